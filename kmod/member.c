// SPDX-License-Identifier: GPL-2.0
/*
 * Members: the life of a rank, from JOIN to the end of its world.
 *
 *	ABSENT -> JOINED	JOIN
 *	JOINED -> LEFT		LEAVE
 *	JOINED -> DEAD		its process closed, died or went into exec
 *
 * A state changes under kcr_world.lock and kcr_member.lock. After its end a
 * member keeps its place, its page (as long as the file is open) and the memory
 * that the others may still read.
 */
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "kcollring.h"

/**
 * kcr_member_set_state() - the one place where a state changes
 * @m: the member
 * @state: its next state
 * @done: gets its waiters if this ends it, for kcr_waiters_finish()
 *
 * Return: whether there is such a transition; else nothing changed.
 */
bool kcr_member_set_state(struct kcr_member *m, u32 state,
			  struct list_head *done)
{
	struct kcr_world *w = m->world;
	bool is_allowed;

	lockdep_assert_held(&w->lock);

	if (m->state == KCR_MEMBER_ABSENT)
		is_allowed = state == KCR_MEMBER_JOINED;
	else
		is_allowed = m->state == KCR_MEMBER_JOINED &&
			     (state == KCR_MEMBER_LEFT ||
			      state == KCR_MEMBER_DEAD);
	if (!is_allowed)
		return false;

	spin_lock(&m->lock);
	WRITE_ONCE(m->state, state);
	if (state == KCR_MEMBER_JOINED) {
		w->joined++;
	} else {
		w->left++;
		kcr_waiters_take(m, -ESHUTDOWN, done);
	}
	spin_unlock(&m->lock);
	return true;
}

/**
 * kcr_member_end() - a member leaves or dies
 * @m: the member
 * @state: KCR_MEMBER_LEFT or KCR_MEMBER_DEAD; a death fails the world
 *
 * May be called at any time from anywhere that may sleep, and by many at
 * once: only the first does it.
 *
 * Return: whether this call was it.
 */
bool kcr_member_end(struct kcr_member *m, u32 state)
{
	struct kcr_world *w = m->world;
	bool is_first, has_failed = false;
	LIST_HEAD(done);

	spin_lock_bh(&w->lock);
	is_first = kcr_member_set_state(m, state, &done);
	if (is_first) {
		if (state == KCR_MEMBER_DEAD)
			has_failed = kcr_world_set_cause(w, m->rank,
							 ECONNRESET);
		kcr_status_publish(w, m, &done);
	}
	spin_unlock_bh(&w->lock);

	kcr_waiters_finish(&done);
	if (has_failed)
		kcr_mesh_failed(w);
	if (is_first) {
		kcr_mesh_end(m, state);
		kcr_window_detach_all(m);
	}
	return is_first;
}

/**
 * kcr_member_usable() - may the caller use this membership
 * @m: the membership
 *
 * The threads that io_uring makes have the mm of the process they work for.
 *
 * Return: 0, -EPERM or -ESHUTDOWN.
 */
int kcr_member_usable(const struct kcr_member *m)
{
	if (current->mm != m->mm)
		return -EPERM;
	if (READ_ONCE(m->state) != KCR_MEMBER_JOINED)
		return -ESHUTDOWN;
	return 0;
}

static struct kcr_member *member_new(u32 rank)
{
	struct kcr_member *m;
	int ret = -ENOMEM;

	m = kzalloc(sizeof(*m), GFP_KERNEL_ACCOUNT);
	if (!m)
		return ERR_PTR(ret);
	m->user = kcr_user_get(current_euid());
	if (!m->user)
		goto err_free;
	ret = kcr_user_charge_member(m->user);
	if (ret)
		goto err_user;
	ret = -ENOMEM;
	m->status = kcr_status_new();
	if (!m->status)
		goto err_charge;

	m->rank = rank;
	m->mm = current->mm;
	mmgrab(m->mm);
	m->pid = get_pid(task_tgid(current));
	m->owner = current->files;
	mutex_init(&m->mesh_lock);
	spin_lock_init(&m->lock);
	INIT_LIST_HEAD(&m->waiters);
	atomic_long_inc(&kcr_counts.members);
	return m;

err_charge:
	kcr_user_uncharge_member(m->user);
err_user:
	kcr_user_put(m->user);
err_free:
	kfree(m);
	return ERR_PTR(ret);
}

/* What goes with its file, and not with its world. */
static void member_close(struct kcr_member *m, struct kcr_status *status)
{
	kcr_status_free(status);
	atomic_long_dec(&kcr_counts.members);
}

/**
 * kcr_member_free() - the end of a member, with its world
 * @m: the member
 *
 * Until then it counts against the quota: it keeps its place, and what is left
 * of its mm and pid, for as long as anybody keeps the world.
 */
void kcr_member_free(struct kcr_member *m)
{
	WARN_ON_ONCE(!list_empty(&m->waiters));
	put_pid(m->pid);
	mmdrop(m->mm);
	kcr_user_uncharge_member(m->user);
	kcr_user_put(m->user);
	kfree(m);
}

/**
 * kcr_member_release() - the file of a member is closed for good
 * @m: the member; may be gone afterwards
 */
void kcr_member_release(struct kcr_member *m)
{
	struct kcr_status *status;

	kcr_member_end(m, KCR_MEMBER_DEAD);
	kcr_mesh_destroy(m);

	spin_lock_bh(&m->world->lock);
	spin_lock(&m->lock);
	status = m->status;
	m->status = NULL;
	spin_unlock(&m->lock);
	spin_unlock_bh(&m->world->lock);

	member_close(m, status);
	kcr_world_part(m);
}

static int join_locked(struct kcr_call *call)
{
	struct kcr_join *join = &call->args->join;
	struct kcr_file *f = call->file;
	struct kcr_member *m = f->member;
	int ret;

	lockdep_assert_held(&f->lock);

	if (m)
		return current->mm != m->mm ? -EPERM : -EISCONN;
	m = member_new(join->rank);
	if (IS_ERR(m))
		return PTR_ERR(m);
	ret = kcr_world_join(m, join);
	if (ret) {
		member_close(m, m->status);
		kcr_member_free(m);
		return ret;
	}
	/* Pairs with the acquire of those who look without the lock. */
	smp_store_release(&f->member, m);
	kcr_monitor_start();
	return 0;
}

/**
 * kcr_member_join() - KCR_IOCTL_JOIN
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_member_join(struct kcr_call *call)
{
	struct kcr_join *join = &call->args->join;
	int ret;

	join->cause = 0;
	if (!join->ranks || join->ranks > KCR_MAX_RANKS ||
	    join->rank >= join->ranks)
		return -EINVAL;

	mutex_lock(&call->file->lock);
	ret = join_locked(call);
	mutex_unlock(&call->file->lock);
	return ret;
}

#if IS_BUILTIN(CONFIG_KUNIT)
#include "member_kunit.c"
#endif
