// SPDX-License-Identifier: GPL-2.0
/*
 * The monitor: a delayed work that runs as long as anyone is a member and
 * sees what nothing announces.
 *
 *  - A process that went into exec with an inheritable descriptor, or died
 *    while others share its table of descriptors, closes nothing. But no
 *    thread of it uses the mm that joined any more. Those others may be
 *    threads that io_uring made for it, which wait for our commands to end
 *    before they do: they do not count.
 *
 *  - Where io_uring does not cancel commands, an exec waits for those that are
 *    parked before it gets as far as to close anything, and the worker that
 *    ends a closed ring waits too. Only the commands are ended then: the exec
 *    may yet fail, and the process go on as a member.
 *
 * Takes kcr_worlds_lock, so worlds and members stay.
 */
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "kcollring.h"

static void look(struct work_struct *work);
static DECLARE_DELAYED_WORK(monitor, look);

struct sight {
	bool is_alive;
	bool is_in_exec;
};

static struct sight look_at_process(const struct kcr_member *m)
{
	bool look_for_exec = !KCR_URING_CANCELS && READ_ONCE(m->parked);
	struct task_struct *leader, *task;
	struct sight sight = { };

	rcu_read_lock();
	leader = pid_task(m->pid, PIDTYPE_TGID);
	if (leader) {
		for_each_thread(leader, task) {
			/* Only compared, so no lock. */
			if (READ_ONCE(task->mm) == m->mm &&
			    !(task->flags & PF_IO_WORKER))
				sight.is_alive = true;
			if (sight.is_alive && !look_for_exec)
				break;
			sight.is_in_exec |= kcr_task_is_in_exec(task);
		}
	}
	rcu_read_unlock();
	return sight;
}

/* Returns whether to look again. */
static bool look_at(struct kcr_member *m)
{
	struct sight sight;

	if (READ_ONCE(m->state) != KCR_MEMBER_JOINED)
		return false;
	sight = look_at_process(m);
	if (!sight.is_alive) {
		kcr_member_end(m, KCR_MEMBER_DEAD);
		return false;
	}
	if (!KCR_URING_CANCELS && READ_ONCE(m->parked))
		kcr_waiters_cancel_stuck(m, sight.is_in_exec);
	return true;
}

static bool look_at_world(struct kcr_world *w)
{
	struct kcr_member *m;
	bool again = false;
	u32 rank;

	for (rank = 0; rank < w->ranks; rank++) {
		m = kcr_world_member(w, rank);
		if (m)
			again |= look_at(m);
	}
	cond_resched();
	return again;
}

/**
 * kcr_monitor_start() - someone has joined, or is still there
 */
void kcr_monitor_start(void)
{
	bool is_urgent = !KCR_URING_CANCELS &&
			 atomic_long_read(&kcr_counts.parked);

	queue_delayed_work(system_wq, &monitor,
			   msecs_to_jiffies(is_urgent ? KCR_MONITOR_PARKED_MS :
					    KCR_MONITOR_IDLE_MS));
}

static void look(struct work_struct *work)
{
	struct kcr_world *w;
	bool again = false;

	mutex_lock(&kcr_worlds_lock);
	list_for_each_entry(w, &kcr_worlds, node)
		again |= look_at_world(w);
	mutex_unlock(&kcr_worlds_lock);
	if (again)
		kcr_monitor_start();
}

/**
 * kcr_monitor_stop() - the module goes
 *
 * Nobody is a member any more, so it does not start itself again.
 */
void kcr_monitor_stop(void)
{
	cancel_delayed_work_sync(&monitor);
}
