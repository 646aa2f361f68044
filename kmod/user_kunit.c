// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit: quotas. A part of user.c, on kernels with KUnit.
 */
#include <kunit/test.h>

/* One that nobody is. */
#define TEST_UID	KUIDT_INIT(4242424242U)

/* Quotas bind those without CAP_SYS_RESOURCE; a test's thread has it. */
static const struct cred *become_poor(struct kunit *test)
{
	struct cred *cred = prepare_creds();

	KUNIT_ASSERT_NOT_NULL(test, cred);
	cap_lower(cred->cap_effective, CAP_SYS_RESOURCE);
	return override_creds(cred);
}

static void become_rich(const struct cred *old)
{
	const struct cred *poor = current_cred();

	revert_creds(old);
	put_cred(poor);
}

static void user_limit(struct kunit *test)
{
	const struct cred *old = become_poor(test);
	atomic_long_t sum = ATOMIC_LONG_INIT(0);
	int i;

	for (i = 0; i < 5; i++)
		KUNIT_EXPECT_EQ(test, charge(&sum, 2, 10), 0);
	KUNIT_EXPECT_EQ(test, charge(&sum, 1, 10), -EDQUOT);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&sum), 10);
	atomic_long_sub(2, &sum);
	KUNIT_EXPECT_EQ(test, charge(&sum, 3, 10), -EDQUOT);
	KUNIT_EXPECT_EQ(test, charge(&sum, 2, 10), 0);
	KUNIT_EXPECT_EQ(test, charge(&sum, 0, 10), 0);
	/* A quota that was made smaller: what is held stays. */
	KUNIT_EXPECT_EQ(test, charge(&sum, 1, 5), -EDQUOT);
	KUNIT_EXPECT_EQ(test, charge(&sum, 1, 0), -EDQUOT);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&sum), 10);
	become_rich(old);
	KUNIT_EXPECT_EQ(test, charge(&sum, 1, 5), 0);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&sum), 11);
}

/* Far beyond what anybody can ask for, nothing wraps around into the quota. */
static void user_overflow(struct kunit *test)
{
	static const unsigned long nrs[] = {
		1UL << 31, 1UL << 32, 1UL << 40, LONG_MAX - 10,
	};
	const struct cred *old = become_poor(test);
	atomic_long_t sum = ATOMIC_LONG_INIT(10);
	int i;

	for (i = 0; i < ARRAY_SIZE(nrs); i++) {
		KUNIT_EXPECT_EQ(test, charge(&sum, nrs[i], 1000), -EDQUOT);
		KUNIT_EXPECT_EQ(test, atomic_long_read(&sum), 10);
	}
	KUNIT_EXPECT_EQ(test, charge(&sum, LONG_MAX - 10, ULONG_MAX), 0);
	become_rich(old);
}

/* Given back in another order than taken. */
static void user_order(struct kunit *test)
{
	const struct cred *old = become_poor(test);
	struct kcr_user *user = kcr_user_get(TEST_UID);
	u64 members, pages;

	KUNIT_ASSERT_NOT_NULL(test, user);
	KUNIT_EXPECT_EQ(test, kcr_user_charge_pages(user, 3), 0);
	KUNIT_EXPECT_EQ(test, kcr_user_charge_member(user), 0);
	KUNIT_EXPECT_EQ(test, kcr_user_charge_pages(user, 5), 0);
	KUNIT_EXPECT_EQ(test, kcr_user_charge_conn(user), 0);
	kcr_user_usage(TEST_UID, &members, &pages);
	KUNIT_EXPECT_EQ(test, members, 1);
	KUNIT_EXPECT_EQ(test, pages, 8);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&user->conns), 1);
	kcr_user_uncharge_pages(user, 3);
	kcr_user_uncharge_conn(user);
	kcr_user_uncharge_pages(user, 5);
	kcr_user_uncharge_member(user);
	kcr_user_usage(TEST_UID, &members, &pages);
	KUNIT_EXPECT_EQ(test, members, 0);
	KUNIT_EXPECT_EQ(test, pages, 0);
	kcr_user_put(user);
	become_rich(old);
}

static void user_whole_quotas(struct kunit *test)
{
	const struct cred *old = become_poor(test);
	struct kcr_user *user = kcr_user_get(TEST_UID);
	unsigned long pages = READ_ONCE(kcr_max_pages);
	unsigned int i, conns = READ_ONCE(kcr_max_conns);

	KUNIT_ASSERT_NOT_NULL(test, user);
	KUNIT_EXPECT_EQ(test, kcr_user_charge_pages(user, pages + 1), -EDQUOT);
	KUNIT_EXPECT_EQ(test, kcr_user_charge_pages(user, pages), 0);
	KUNIT_EXPECT_EQ(test, kcr_user_charge_pages(user, 1), -EDQUOT);
	kcr_user_uncharge_pages(user, pages);
	for (i = 0; i < conns; i++)
		KUNIT_ASSERT_EQ(test, kcr_user_charge_conn(user), 0);
	KUNIT_EXPECT_EQ(test, kcr_user_charge_conn(user), -EDQUOT);
	for (i = 0; i < conns; i++)
		kcr_user_uncharge_conn(user);
	kcr_user_put(user);
	become_rich(old);
}

static void user_references(struct kunit *test)
{
	long before = atomic_long_read(&kcr_counts.users);
	struct kcr_user *a = kcr_user_get(TEST_UID), *b;
	u64 members, pages;

	KUNIT_ASSERT_NOT_NULL(test, a);
	b = kcr_user_get(TEST_UID);
	KUNIT_EXPECT_PTR_EQ(test, a, b);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&kcr_counts.users), before + 1);
	kcr_user_put(a);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&kcr_counts.users), before + 1);
	kcr_user_put(b);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&kcr_counts.users), before);
	kcr_user_usage(TEST_UID, &members, &pages);
	KUNIT_EXPECT_EQ(test, members + pages, 0);
}

static struct kunit_case user_cases[] = {
	KUNIT_CASE(user_limit),
	KUNIT_CASE(user_overflow),
	KUNIT_CASE(user_order),
	KUNIT_CASE(user_whole_quotas),
	KUNIT_CASE(user_references),
	{ }
};

static struct kunit_suite user_suite = {
	.name = "kcollring-user",
	.test_cases = user_cases,
};

kunit_test_suite(user_suite);
