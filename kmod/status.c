// SPDX-License-Identifier: GPL-2.0
/*
 * Status: the page that a member maps, and the module's own counters in
 * sysfs.
 *
 * A status page is written by the kernel alone and never read back: what it
 * shows has its original in the world (under kcr_world.lock) or the member
 * (events, under kcr_member.lock). The event counter is stored last, with
 * release: who sees it move sees why.
 */
#include <linux/device.h>
#include <linux/export.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/string.h>

#include "compat.h"
#include "kcollring.h"

struct kcr_counts kcr_counts;

/**
 * kcr_status_new() - a zeroed status page
 *
 * Return: the page, or NULL.
 */
struct kcr_status *kcr_status_new(void)
{
	return (struct kcr_status *)get_zeroed_page(GFP_KERNEL_ACCOUNT);
}

/**
 * kcr_status_free() - give a status page back
 * @status: it, or NULL
 */
void kcr_status_free(struct kcr_status *status)
{
	free_page((unsigned long)status);
}

/**
 * kcr_status_mmap() - map the status page
 * @m: whose; its file is open
 * @vma: checked to be read-only and one page long
 *
 * Return: 0 or an error.
 */
int kcr_status_mmap(struct kcr_member *m, struct vm_area_struct *vma)
{
	return vm_insert_page(vma, vma->vm_start, virt_to_page(m->status));
}

static void fill_world(struct kcr_status *status, const struct kcr_world *w)
{
	WRITE_ONCE(status->cause, w->cause);
	WRITE_ONCE(status->joined, w->joined);
	WRITE_ONCE(status->left, w->left);
}

/**
 * kcr_status_fill() - what the page of a new member shows
 * @m: the member, in its world
 */
void kcr_status_fill(struct kcr_member *m)
{
	struct kcr_world *w = m->world;
	struct kcr_member *other;
	u32 rank;

	lockdep_assert_held(&w->lock);

	fill_world(m->status, w);
	for (rank = 0; rank < w->ranks; rank++) {
		other = kcr_world_member(w, rank);
		if (other)
			WRITE_ONCE(m->status->member[rank], other->state);
	}
}

/**
 * kcr_status_event() - move a member's event counter and wake it
 * @m: the member
 * @done: gets its waiters, for kcr_waiters_finish()
 */
void kcr_status_event(struct kcr_member *m, struct list_head *done)
{
	lockdep_assert_held(&m->lock);

	WRITE_ONCE(m->events, m->events + 1);
	if (m->status) {
		/* Pairs with the acquire of the process that maps the page. */
		smp_store_release(&m->status->events, m->events);
	}
	kcr_waiters_take(m, 0, done);
}

/**
 * kcr_member_event() - something has come for a member
 * @m: the member; may be called in softirq
 */
void kcr_member_event(struct kcr_member *m)
{
	LIST_HEAD(done);

	spin_lock_bh(&m->lock);
	kcr_status_event(m, &done);
	spin_unlock_bh(&m->lock);
	kcr_waiters_finish(&done);
}
EXPORT_SYMBOL_GPL(kcr_member_event);

/**
 * kcr_status_publish() - show everyone what happened in a world
 * @w: the world
 * @subject: the member whose state changed; it gets no event itself. NULL if
 *	only the cause did
 * @done: gets the waiters that this woke, for kcr_waiters_finish()
 */
void kcr_status_publish(struct kcr_world *w, const struct kcr_member *subject,
			struct list_head *done)
{
	struct kcr_member *m;
	u32 rank;

	lockdep_assert_held(&w->lock);

	for (rank = 0; rank < w->ranks; rank++) {
		m = kcr_world_member(w, rank);
		if (!m || !m->status)
			continue;
		fill_world(m->status, w);
		if (subject)
			WRITE_ONCE(m->status->member[subject->rank],
				   subject->state);
		if (m == subject)
			continue;
		spin_lock(&m->lock);
		kcr_status_event(m, done);
		spin_unlock(&m->lock);
	}
}

/**
 * kcr_status_query() - KCR_IOCTL_QUERY
 * @call: the call
 *
 * Return: 0.
 */
int kcr_status_query(struct kcr_call *call)
{
	struct kcr_query *q = &call->args->query;

	if (q->reserved)
		return -EOPNOTSUPP;
	q->abi_version = KCR_ABI_VERSION;
	q->max_ranks = KCR_MAX_RANKS;
	q->features = 0;
	if (IS_ENABLED(CONFIG_IO_URING))
		q->features |= KCR_FEATURE_URING;
	if (IS_ENABLED(CONFIG_IO_URING) && KCR_URING_CANCELS)
		q->features |= KCR_FEATURE_URING_CANCEL;
	if (kcr_mesh_is_there())
		q->features |= KCR_FEATURE_MESH;
	q->max_lanes = KCR_MAX_LANES;
	q->max_windows = KCR_MAX_WINDOWS;
	q->max_members = READ_ONCE(kcr_max_members);
	q->max_pages = READ_ONCE(kcr_max_pages);
	q->max_parked = READ_ONCE(kcr_max_parked);
	kcr_user_usage(current_euid(), &q->members, &q->pages);
	memset(q->version, 0, sizeof(q->version));
	strscpy(q->version, KCR_VERSION, sizeof(q->version));
	return 0;
}

/*
 * Sums over all users, so for root only: they would tell one user what
 * another does.
 */
#define COUNT_SHOW(name)						\
static ssize_t name##_show(struct device *dev,				\
			   struct device_attribute *attr, char *buf)	\
{									\
	return sysfs_emit(buf, "%ld\n",					\
			  atomic_long_read(&kcr_counts.name));		\
}

COUNT_SHOW(worlds)
static DEVICE_ATTR_ADMIN_RO(worlds);
COUNT_SHOW(members)
static DEVICE_ATTR_ADMIN_RO(members);
COUNT_SHOW(windows)
static DEVICE_ATTR_ADMIN_RO(windows);
COUNT_SHOW(pages)
static DEVICE_ATTR_ADMIN_RO(pages);
COUNT_SHOW(parked)
static DEVICE_ATTR_ADMIN_RO(parked);
COUNT_SHOW(users)
static DEVICE_ATTR_ADMIN_RO(users);
COUNT_SHOW(violations)
static DEVICE_ATTR_ADMIN_RO(violations);

static struct attribute *kcr_status_attrs[] = {
	&dev_attr_worlds.attr,
	&dev_attr_members.attr,
	&dev_attr_windows.attr,
	&dev_attr_pages.attr,
	&dev_attr_parked.attr,
	&dev_attr_users.attr,
	&dev_attr_violations.attr,
	NULL
};

static const struct attribute_group kcr_status_group = {
	.attrs = kcr_status_attrs,
};

const struct attribute_group *kcr_status_groups[] = {
	&kcr_status_group,
	NULL
};
