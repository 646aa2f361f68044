// SPDX-License-Identifier: GPL-2.0
/*
 * Commands: what a member may ask for by ioctl and by io_uring alike. They
 * are called with a member that the caller may use and flags checked, and lock
 * what they need; device.c has the table of them.
 */
#include "kcollring.h"

/* Bits of kcr_kick.mask. */
#define KICK_BITS	64

/**
 * kcr_command_wait() - KCR_CMD_WAIT
 * @call: the call
 *
 * Return: the result, or -EIOCBQUEUED if it comes later through io_uring.
 */
int kcr_command_wait(struct kcr_call *call)
{
	const struct kcr_wait *wait = &call->args->wait;

	if (!wait->timeout_ns || wait->timeout_ns > KCR_MAX_WAIT_NS)
		return -EINVAL;
	/* Looked at again under the lock before anything is parked. */
	if (READ_ONCE(call->member->events) != wait->seen)
		return 0;
	return call->cmd ? kcr_waiter_park(call) : kcr_waiter_wait(call);
}

static void kick(struct kcr_member *m, struct list_head *done)
{
	spin_lock_bh(&m->lock);
	if (m->state == KCR_MEMBER_JOINED)
		kcr_status_event(m, done);
	spin_unlock_bh(&m->lock);
}

/**
 * kcr_command_kick() - KCR_CMD_KICK
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_command_kick(struct kcr_call *call)
{
	const struct kcr_kick *args = &call->args->kick;
	struct kcr_world *w = call->member->world;
	struct kcr_member *m;
	LIST_HEAD(done);
	u32 bit;

	if (args->reserved)
		return -EOPNOTSUPP;
	if (args->mask && (u64)args->base + fls64(args->mask) > w->ranks)
		return -EINVAL;

	for (bit = 0; bit < KICK_BITS; bit++) {
		if (!(args->mask >> bit & 1))
			continue;
		m = kcr_world_member(w, args->base + bit);
		if (m)
			kick(m, &done);
	}
	kcr_waiters_finish(&done);
	return 0;
}

/**
 * kcr_command_leave() - KCR_CMD_LEAVE
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_command_leave(struct kcr_call *call)
{
	return kcr_member_end(call->member, KCR_MEMBER_LEFT) ? 0 : -ESHUTDOWN;
}

/**
 * kcr_command_cancel() - KCR_CMD_CANCEL
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_command_cancel(struct kcr_call *call)
{
	struct kcr_member *m = call->member;
	LIST_HEAD(done);
	int nr;

	spin_lock_bh(&m->lock);
	nr = kcr_waiters_take_cookie(m, call->args->cancel.cookie, &done);
	spin_unlock_bh(&m->lock);
	kcr_waiters_finish(&done);
	return nr ? 0 : -ENOENT;
}

/**
 * kcr_command_fail() - KCR_CMD_FAIL
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_command_fail(struct kcr_call *call)
{
	const struct kcr_fail *args = &call->args->fail;
	struct kcr_member *m = call->member;

	if (args->reserved)
		return -EOPNOTSUPP;
	if (!args->error || args->error > MAX_ERRNO)
		return -EINVAL;
	kcr_world_fail(m->world, m->rank, args->error);
	return 0;
}
