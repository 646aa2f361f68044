// SPDX-License-Identifier: GPL-2.0
/*
 * Waiters: parked WAIT commands.
 *
 * A parked waiter is on its member's list. It may be ended by an event, its
 * deadline, CANCEL, the end of the membership, io_uring, the monitor or a
 * signal, all at the same time. The one that takes it from the list, under
 * kcr_member.lock, finishes it; the others do not find it any more. Nobody
 * looks at a waiter, or at the io_uring_cmd that it stands for, without having
 * found it on the list: both may be gone.
 *
 * To finish is to let the task of the ioctl go on, or to have the command
 * completed in the context of the task that submitted it, or of a worker if
 * that is gone. It is done without locks, since io_uring takes its own.
 *
 * A command is parked while ->uring_cmd still runs, and may be completed
 * before that returns -EIOCBQUEUED: where both happen in the submitter's
 * context the first waits for the second, and a worker of io_uring holds a
 * reference to its request. After the waiter is on the list, ->uring_cmd does
 * not touch it again.
 */
#include <linux/capability.h>
#include <linux/slab.h>

#include "compat.h"
#include "kcollring.h"

static void take(struct kcr_waiter *waiter, int result, struct list_head *done)
{
	struct kcr_member *m = waiter->member;

	lockdep_assert_held(&m->lock);

	waiter->is_parked = false;
	waiter->result = result;
	list_move_tail(&waiter->node, done);
	WRITE_ONCE(m->parked, m->parked - 1);
	atomic_long_dec(&kcr_counts.parked);
}

/**
 * kcr_waiters_take() - end all waiters of a member
 * @m: the member
 * @result: their result
 * @done: gets them, for kcr_waiters_finish()
 */
void kcr_waiters_take(struct kcr_member *m, int result, struct list_head *done)
{
	struct kcr_waiter *waiter, *next;

	lockdep_assert_held(&m->lock);

	list_for_each_entry_safe(waiter, next, &m->waiters, node)
		take(waiter, result, done);
}

/**
 * kcr_waiters_take_cookie() - cancel the waiters that have a cookie
 * @m: the member
 * @cookie: theirs
 * @done: gets them, for kcr_waiters_finish()
 *
 * Return: how many there were.
 */
int kcr_waiters_take_cookie(struct kcr_member *m, u64 cookie,
			    struct list_head *done)
{
	struct kcr_waiter *waiter, *next;
	int nr = 0;

	lockdep_assert_held(&m->lock);

	list_for_each_entry_safe(waiter, next, &m->waiters, node) {
		if (waiter->cookie != cookie)
			continue;
		take(waiter, -ECANCELED, done);
		nr++;
	}
	return nr;
}

/**
 * kcr_waiters_cancel_cmd() - io_uring wants a command back
 * @m: the member
 * @cmd: the command; parked, or about to be, or being completed
 *
 * io_uring asks again until the command is completed, so one that is about
 * to be parked is found the next time.
 */
void kcr_waiters_cancel_cmd(struct kcr_member *m, struct io_uring_cmd *cmd)
{
	struct kcr_waiter *waiter, *next;
	LIST_HEAD(done);

	spin_lock_bh(&m->lock);
	list_for_each_entry_safe(waiter, next, &m->waiters, node)
		if (waiter->cmd == cmd)
			take(waiter, -ECANCELED, &done);
	spin_unlock_bh(&m->lock);
	kcr_waiters_finish(&done);
}

/**
 * kcr_waiters_cancel_stuck() - cancel commands that something waits for
 * @m: the member
 * @in_exec: its process is in exec, which waits for all its commands
 */
void kcr_waiters_cancel_stuck(struct kcr_member *m, bool in_exec)
{
	struct kcr_waiter *waiter, *next;
	LIST_HEAD(done);

	spin_lock_bh(&m->lock);
	list_for_each_entry_safe(waiter, next, &m->waiters, node)
		if (waiter->cmd &&
		    (in_exec || kcr_uring_is_stuck(waiter->cmd)))
			take(waiter, -ECANCELED, &done);
	spin_unlock_bh(&m->lock);
	kcr_waiters_finish(&done);
}

/* Valid once the waiter was taken, for the one who took it. */
static struct kcr_waiter **waiter_of(struct io_uring_cmd *cmd)
{
	BUILD_BUG_ON(sizeof(struct kcr_waiter *) > sizeof(cmd->pdu));
	return (struct kcr_waiter **)cmd->pdu;
}

/*
 * In the submitter's context or a worker's: touches no user memory. io_uring
 * frees the command, which holds the file, which holds the module: so that
 * comes last.
 */
static void complete_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	struct kcr_waiter *waiter = *waiter_of(cmd);
	int result = waiter->result;

	hrtimer_cancel(&waiter->timer);
	kfree(waiter);
	io_uring_cmd_done(cmd, result, 0, issue_flags);
}

static void finish(struct kcr_waiter *waiter)
{
	if (waiter->cmd)
		io_uring_cmd_complete_in_task(waiter->cmd, complete_cmd);
	else
		complete(&waiter->done);
}

/**
 * kcr_waiters_finish() - finish waiters that were taken
 * @done: them; empty afterwards
 *
 * Called without locks.
 */
void kcr_waiters_finish(struct list_head *done)
{
	struct kcr_waiter *waiter;

	while (!list_empty(done)) {
		waiter = list_first_entry(done, struct kcr_waiter, node);
		list_del_init(&waiter->node);
		finish(waiter);
	}
}

/* In a soft interrupt. Whoever finishes the waiter waits for this to end. */
static enum hrtimer_restart deadline(struct hrtimer *timer)
{
	struct kcr_waiter *waiter = container_of(timer, struct kcr_waiter, timer);
	struct kcr_member *m = waiter->member;
	LIST_HEAD(done);

	spin_lock_bh(&m->lock);
	if (waiter->is_parked)
		take(waiter, -ETIMEDOUT, &done);
	spin_unlock_bh(&m->lock);
	kcr_waiters_finish(&done);
	return HRTIMER_NORESTART;
}

static struct kcr_waiter *waiter_new(struct kcr_call *call)
{
	struct kcr_waiter *waiter;

	waiter = kzalloc(sizeof(*waiter), GFP_KERNEL_ACCOUNT);
	if (!waiter)
		return NULL;
	INIT_LIST_HEAD(&waiter->node);
	waiter->member = call->member;
	waiter->cookie = call->args->wait.cookie;
	waiter->cmd = call->cmd;
	init_completion(&waiter->done);
	hrtimer_init(&waiter->timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	waiter->timer.function = deadline;
	return waiter;
}

/* 0: no need to wait. -EIOCBQUEUED: on the list, and no more ours. */
static int try_enqueue(struct kcr_waiter *waiter, const struct kcr_wait *wait,
		       u32 limit)
{
	struct kcr_member *m = waiter->member;
	int ret = -EIOCBQUEUED;

	spin_lock_bh(&m->lock);
	if (m->state != KCR_MEMBER_JOINED) {
		ret = -ESHUTDOWN;
	} else if (m->events != wait->seen) {
		ret = 0;
	} else if (m->parked >= limit) {
		ret = -EDQUOT;
	} else {
		list_add_tail(&waiter->node, &m->waiters);
		waiter->is_parked = true;
		WRITE_ONCE(m->parked, m->parked + 1);
		atomic_long_inc(&kcr_counts.parked);
		hrtimer_start(&waiter->timer, ns_to_ktime(wait->timeout_ns),
			      HRTIMER_MODE_REL_SOFT);
	}
	spin_unlock_bh(&m->lock);
	return ret;
}

/*
 * As try_enqueue(). Who is bound by no limit is asked only where there is one in the way,
 * and without the lock, since a capability check may be audited.
 */
static int enqueue(struct kcr_waiter *waiter, const struct kcr_wait *wait)
{
	int ret = try_enqueue(waiter, wait, READ_ONCE(kcr_max_parked));

	if (ret == -EDQUOT && capable(CAP_SYS_RESOURCE))
		ret = try_enqueue(waiter, wait, U32_MAX);
	return ret;
}

/**
 * kcr_waiter_park() - WAIT through io_uring
 * @call: the call
 *
 * Once io_uring may ask for the command back there is only one way to end it,
 * so what makes parking needless in that moment is completed like the rest.
 *
 * Return: the result, or -EIOCBQUEUED if it comes later.
 */
int kcr_waiter_park(struct kcr_call *call)
{
	struct kcr_waiter *waiter = waiter_new(call);
	int ret;

	if (!waiter)
		return -ENOMEM;
	*waiter_of(call->cmd) = waiter;
	kcr_uring_mark_cancelable(call->cmd, call->issue_flags);

	ret = enqueue(waiter, &call->args->wait);
	if (ret != -EIOCBQUEUED) {
		waiter->result = ret;
		finish(waiter);
	}
	return -EIOCBQUEUED;
}

/**
 * kcr_waiter_wait() - WAIT by ioctl
 * @call: the call
 *
 * Return: the result.
 */
int kcr_waiter_wait(struct kcr_call *call)
{
	struct kcr_member *m = call->member;
	struct kcr_waiter *waiter;
	LIST_HEAD(done);
	int ret;

	waiter = waiter_new(call);
	if (!waiter)
		return -ENOMEM;
	ret = enqueue(waiter, &call->args->wait);
	if (ret != -EIOCBQUEUED)
		goto out;

	if (wait_for_completion_interruptible(&waiter->done)) {
		spin_lock_bh(&m->lock);
		if (waiter->is_parked)
			take(waiter, -EINTR, &done);
		spin_unlock_bh(&m->lock);
		kcr_waiters_finish(&done);
		/* Someone else took it and is about to finish it. */
		wait_for_completion(&waiter->done);
	}
	ret = waiter->result;
out:
	hrtimer_cancel(&waiter->timer);
	kfree(waiter);
	return ret;
}
