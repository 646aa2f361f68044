// SPDX-License-Identifier: GPL-2.0
/*
 * Worlds: the table of them, who may enter, and how they fail.
 *
 * The table is a list in the order of serial numbers, under kcr_worlds_lock,
 * which also protects how many files hold a world. The last file that goes
 * takes the world with it: afterwards its id may be used for another. An entry
 * of members[] is set once; a rank that left or died stays there, so that it
 * cannot be taken again.
 */
#include <linux/capability.h>
#include <linux/export.h>
#include <linux/nospec.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timekeeping.h>
#include <linux/user_namespace.h>

#include "compat.h"
#include "kcollring.h"

/* The table, and kcr_world.files. */
DEFINE_MUTEX(kcr_worlds_lock);
LIST_HEAD(kcr_worlds);

static u64 last_serial;		/* kcr_worlds_lock */

/**
 * kcr_world_member() - the member of a rank
 * @w: the world
 * @rank: less than its ranks
 *
 * Return: the member, or NULL if it has not joined.
 */
struct kcr_member *kcr_world_member(struct kcr_world *w, u32 rank)
{
	/* Pairs with the release in enter(). */
	return smp_load_acquire(&w->members[array_index_nospec(rank, w->ranks)]);
}

/**
 * kcr_world_set_cause() - a world fails, for the first reason only
 * @w: the world
 * @rank: the rank that brought it about
 * @error: a positive errno
 *
 * Return: whether this is the first. If so the caller publishes it.
 */
bool kcr_world_set_cause(struct kcr_world *w, u32 rank, u32 error)
{
	lockdep_assert_held(&w->lock);

	if (w->cause)
		return false;
	w->cause = KCR_CAUSE(rank, error);
	return true;
}

/**
 * kcr_world_fail() - fail a world and tell all its ranks
 * @w: the world
 * @rank: the rank that says so
 * @error: a positive errno
 *
 * May sleep.
 */
void kcr_world_fail(struct kcr_world *w, u32 rank, u32 error)
{
	LIST_HEAD(done);
	bool is_first;

	spin_lock_bh(&w->lock);
	is_first = kcr_world_set_cause(w, rank, error);
	if (is_first)
		kcr_status_publish(w, NULL, &done);
	spin_unlock_bh(&w->lock);
	kcr_waiters_finish(&done);
	if (is_first)
		kcr_mesh_failed(w);
}
EXPORT_SYMBOL_GPL(kcr_world_fail);

static struct kcr_world *find(const u8 *id)
{
	struct kcr_world *w;

	lockdep_assert_held(&kcr_worlds_lock);

	list_for_each_entry(w, &kcr_worlds, node)
		if (!memcmp(w->id, id, sizeof(w->id)))
			return w;
	return NULL;
}

static struct kcr_world *world_new(const struct kcr_join *join)
{
	struct kcr_world *w;

	lockdep_assert_held(&kcr_worlds_lock);

	w = kvzalloc(struct_size(w, members, join->ranks), GFP_KERNEL_ACCOUNT);
	if (!w)
		return NULL;
	w->serial = ++last_serial;
	w->ranks = join->ranks;
	w->creator = current_euid();
	memcpy(w->id, join->id, sizeof(w->id));
	memcpy(w->key, join->key, sizeof(w->key));
	mutex_init(&w->mutex);
	spin_lock_init(&w->lock);
	list_add_tail(&w->node, &kcr_worlds);
	atomic_long_inc(&kcr_counts.worlds);
	return w;
}

static void world_free(struct kcr_world *w)
{
	u32 i;

	lockdep_assert_held(&kcr_worlds_lock);

	for (i = 0; i < KCR_MAX_WINDOWS; i++)
		WARN_ON_ONCE(w->windows[i]);
	for (i = 0; i < w->ranks; i++)
		if (w->members[i])
			kcr_member_free(w->members[i]);
	list_del(&w->node);
	atomic_long_dec(&kcr_counts.worlds);
	memzero_explicit(w->key, sizeof(w->key));
	kvfree(w);
}

/* The world of a JOIN, made if there is none. */
static struct kcr_world *world_get(const struct kcr_join *join)
{
	struct kcr_world *w = find(join->id);

	if (!w) {
		w = world_new(join);
		return w ?: ERR_PTR(-ENOMEM);
	}
	if (crypto_memneq(w->key, join->key, sizeof(w->key)))
		return ERR_PTR(-EKEYREJECTED);
	if (w->ranks != join->ranks)
		return ERR_PTR(-EPROTO);
	return w;
}

static int enter(struct kcr_world *w, struct kcr_member *m, u64 *cause)
{
	LIST_HEAD(done);
	int ret = 0;

	spin_lock_bh(&w->lock);
	if (kcr_world_member(w, m->rank)) {
		ret = -EEXIST;
	} else if (w->cause) {
		*cause = w->cause;
		ret = -ECONNRESET;
	} else {
		m->world = w;
		/* Pairs with the acquire in kcr_world_member(). */
		smp_store_release(&w->members[m->rank], m);
		kcr_member_set_state(m, KCR_MEMBER_JOINED, &done);
		kcr_status_fill(m);
		kcr_status_publish(w, m, &done);
	}
	spin_unlock_bh(&w->lock);
	kcr_waiters_finish(&done);
	return ret;
}

/**
 * kcr_world_join() - put a new member into its world
 * @m: the member
 * @join: what its process asked for, checked; its cause is filled in
 *
 * Return: 0, or -EKEYREJECTED, -EPROTO, -EEXIST, -ECONNRESET, -ENOMEM and
 * the member is still the caller's.
 */
int kcr_world_join(struct kcr_member *m, struct kcr_join *join)
{
	struct kcr_world *w;
	int ret;

	mutex_lock(&kcr_worlds_lock);
	w = world_get(join);
	if (IS_ERR(w)) {
		ret = PTR_ERR(w);
		goto out;
	}
	ret = enter(w, m, &join->cause);
	if (!ret)
		w->files++;
out:
	mutex_unlock(&kcr_worlds_lock);
	return ret;
}

/**
 * kcr_world_part() - the file of a member is gone
 * @m: the member, which has ended; gone afterwards if it was the last
 */
void kcr_world_part(struct kcr_member *m)
{
	struct kcr_world *w = m->world;

	mutex_lock(&kcr_worlds_lock);
	if (!--w->files)
		world_free(w);
	mutex_unlock(&kcr_worlds_lock);
}

static bool caller_may_see(const struct kcr_world *w)
{
	return uid_eq(w->creator, current_euid()) || capable(CAP_SYS_ADMIN);
}

/* The first member at or behind a rank. */
static struct kcr_member *member_from(struct kcr_world *w, u64 rank)
{
	struct kcr_member *m;

	for (; rank < w->ranks; rank++) {
		m = kcr_world_member(w, rank);
		if (m)
			return m;
	}
	return NULL;
}

static struct kcr_member *member_behind(u64 serial, u32 rank)
{
	struct kcr_member *m;
	struct kcr_world *w;

	lockdep_assert_held(&kcr_worlds_lock);

	list_for_each_entry(w, &kcr_worlds, node) {
		if (w->serial < serial || !caller_may_see(w))
			continue;
		m = member_from(w, w->serial == serial ? (u64)rank + 1 : 0);
		if (m)
			return m;
	}
	return NULL;
}

static void fill_claim(struct kcr_info *info, struct kcr_member *m)
{
	struct kcr_board head = { };
	u64 now = ktime_get_ns();

	info->age_ns = 0;
	memset(&info->claim, 0, sizeof(info->claim));
	if (!kcr_window_board_head(m, &head))
		return;
	info->claim = head.claim;
	if (!head.claim.since_ns)
		return;
	if (info->claim.since_ns > now)
		atomic_long_inc(&kcr_counts.violations);
	else
		info->age_ns = now - info->claim.since_ns;
}

static void fill_info(struct kcr_info *info, struct kcr_member *m)
{
	struct kcr_world *w = m->world;

	info->world = w->serial;
	info->rank = m->rank;
	info->ranks = w->ranks;
	memcpy(info->id, w->id, sizeof(info->id));
	info->uid = from_kuid_munged(current_user_ns(), m->user->uid);
	info->pid = pid_nr_ns(m->pid, task_active_pid_ns(current));
	info->pages = atomic_long_read(&m->pages);

	spin_lock_bh(&w->lock);
	info->cause = w->cause;
	spin_lock(&m->lock);
	info->state = m->state;
	info->parked = m->parked;
	info->events = m->events;
	spin_unlock(&m->lock);
	spin_unlock_bh(&w->lock);

	fill_claim(info, m);
}

/**
 * kcr_world_info() - KCR_IOCTL_INFO
 * @call: the call
 *
 * Return: 0, or -ENOENT if there is no further member to see.
 */
int kcr_world_info(struct kcr_call *call)
{
	struct kcr_info *info = &call->args->info;
	struct kcr_member *m;

	mutex_lock(&kcr_worlds_lock);
	m = member_behind(info->world, info->rank);
	if (m)
		fill_info(info, m);
	mutex_unlock(&kcr_worlds_lock);
	return m ? 0 : -ENOENT;
}
