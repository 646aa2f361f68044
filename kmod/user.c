// SPDX-License-Identifier: GPL-2.0
/*
 * Users: what all the memberships of one user hold together, and the quotas
 * on it. The list and the references' fall to zero are under kcr_users_lock;
 * the sums are atomic, charged first and taken back when they are over.
 */
#include <linux/capability.h>
#include <linux/export.h>
#include <linux/slab.h>

#include "kcollring.h"

static DEFINE_MUTEX(kcr_users_lock);
static LIST_HEAD(kcr_users);

static struct kcr_user *find(kuid_t uid)
{
	struct kcr_user *user;

	lockdep_assert_held(&kcr_users_lock);

	list_for_each_entry(user, &kcr_users, node)
		if (uid_eq(user->uid, uid))
			return user;
	return NULL;
}

/**
 * kcr_user_get() - the object of a user, made if there is none
 * @uid: the user
 *
 * Return: with a reference, or NULL without memory.
 */
struct kcr_user *kcr_user_get(kuid_t uid)
{
	struct kcr_user *user;

	mutex_lock(&kcr_users_lock);
	user = find(uid);
	if (user) {
		refcount_inc(&user->refs);
		goto out;
	}

	user = kzalloc(sizeof(*user), GFP_KERNEL_ACCOUNT);
	if (!user)
		goto out;
	user->uid = uid;
	refcount_set(&user->refs, 1);
	list_add(&user->node, &kcr_users);
	atomic_long_inc(&kcr_counts.users);
out:
	mutex_unlock(&kcr_users_lock);
	return user;
}

/**
 * kcr_user_put() - give a reference back
 * @user: may be gone afterwards
 */
void kcr_user_put(struct kcr_user *user)
{
	if (!refcount_dec_and_mutex_lock(&user->refs, &kcr_users_lock))
		return;
	list_del(&user->node);
	mutex_unlock(&kcr_users_lock);

	WARN_ON_ONCE(atomic_long_read(&user->members));
	WARN_ON_ONCE(atomic_long_read(&user->pages));
	WARN_ON_ONCE(atomic_long_read(&user->conns));
	atomic_long_dec(&kcr_counts.users);
	kfree(user);
}

/**
 * kcr_user_usage() - what a user holds now
 * @uid: the user
 * @members: memberships
 * @pages: pages in windows
 */
void kcr_user_usage(kuid_t uid, u64 *members, u64 *pages)
{
	struct kcr_user *user;

	mutex_lock(&kcr_users_lock);
	user = find(uid);
	*members = user ? atomic_long_read(&user->members) : 0;
	*pages = user ? atomic_long_read(&user->pages) : 0;
	mutex_unlock(&kcr_users_lock);
}

static int charge(atomic_long_t *sum, unsigned long nr, unsigned long max)
{
	if (atomic_long_add_return(nr, sum) <= max ||
	    capable(CAP_SYS_RESOURCE))
		return 0;
	atomic_long_sub(nr, sum);
	return -EDQUOT;
}

/**
 * kcr_user_charge_member() - one more membership
 * @user: the user
 *
 * Return: 0 or -EDQUOT.
 */
int kcr_user_charge_member(struct kcr_user *user)
{
	return charge(&user->members, 1, READ_ONCE(kcr_max_members));
}

/**
 * kcr_user_uncharge_member() - one membership less
 * @user: the user
 */
void kcr_user_uncharge_member(struct kcr_user *user)
{
	atomic_long_dec(&user->members);
}

/**
 * kcr_user_charge_pages() - more pages
 * @user: the user
 * @nr: how many
 *
 * Return: 0 or -EDQUOT.
 */
int kcr_user_charge_pages(struct kcr_user *user, unsigned long nr)
{
	return charge(&user->pages, nr, READ_ONCE(kcr_max_pages));
}

/**
 * kcr_user_uncharge_pages() - fewer pages
 * @user: the user
 * @nr: how many
 */
void kcr_user_uncharge_pages(struct kcr_user *user, unsigned long nr)
{
	atomic_long_sub(nr, &user->pages);
}

/**
 * kcr_user_charge_conn() - one more connection, whose queues are the device's
 * @user: the user
 *
 * Return: 0 or -EDQUOT.
 */
int kcr_user_charge_conn(struct kcr_user *user)
{
	return charge(&user->conns, 1, READ_ONCE(kcr_max_conns));
}
EXPORT_SYMBOL_GPL(kcr_user_charge_conn);

/**
 * kcr_user_uncharge_conn() - one connection less
 * @user: the user
 */
void kcr_user_uncharge_conn(struct kcr_user *user)
{
	atomic_long_dec(&user->conns);
}
EXPORT_SYMBOL_GPL(kcr_user_uncharge_conn);

#if IS_BUILTIN(CONFIG_KUNIT)
#include "user_kunit.c"
#endif
