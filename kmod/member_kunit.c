// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit: the states of a member, and the first cause of a world. A part of
 * member.c, on kernels with KUnit.
 */
#include <kunit/test.h>

static struct kcr_member *fake_member(struct kunit *test)
{
	struct kcr_member *m = kunit_kzalloc(test, sizeof(*m), GFP_KERNEL);
	struct kcr_world *w = kunit_kzalloc(test, sizeof(*w), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, m);
	KUNIT_ASSERT_NOT_NULL(test, w);
	spin_lock_init(&w->lock);
	spin_lock_init(&m->lock);
	INIT_LIST_HEAD(&m->waiters);
	m->world = w;
	return m;
}

static bool set_state(struct kcr_member *m, u32 state)
{
	LIST_HEAD(done);
	bool is_done;

	spin_lock_bh(&m->world->lock);
	is_done = kcr_member_set_state(m, state, &done);
	spin_unlock_bh(&m->world->lock);
	return is_done;
}

/* Every state, and every next one, those that there are not included. */
static void member_transitions(struct kunit *test)
{
	static const bool allowed[4][6] = {
		[KCR_MEMBER_ABSENT][KCR_MEMBER_JOINED] = true,
		[KCR_MEMBER_JOINED][KCR_MEMBER_LEFT] = true,
		[KCR_MEMBER_JOINED][KCR_MEMBER_DEAD] = true,
	};
	struct kcr_member *m = fake_member(test);
	struct kcr_world *w = m->world;
	u32 from, to;

	for (from = 0; from < 4; from++) {
		for (to = 0; to < 6; to++) {
			bool may = allowed[from][to];

			m->state = from;
			w->joined = 0;
			w->left = 0;
			KUNIT_EXPECT_EQ_MSG(test, set_state(m, to), may,
					    "%u to %u", from, to);
			KUNIT_EXPECT_EQ(test, m->state, may ? to : from);
			KUNIT_EXPECT_EQ(test, w->joined,
					may && to == KCR_MEMBER_JOINED);
			KUNIT_EXPECT_EQ(test, w->left,
					may && to != KCR_MEMBER_JOINED);
		}
	}
}

static void member_first_cause(struct kunit *test)
{
	struct kcr_member *m = fake_member(test);
	struct kcr_world *w = m->world;

	spin_lock_bh(&w->lock);
	KUNIT_EXPECT_TRUE(test, kcr_world_set_cause(w, 1023, 4095));
	KUNIT_EXPECT_FALSE(test, kcr_world_set_cause(w, 0, EPROTO));
	spin_unlock_bh(&w->lock);
	KUNIT_EXPECT_EQ(test, KCR_CAUSE_RANK(w->cause), 1023);
	KUNIT_EXPECT_EQ(test, KCR_CAUSE_ERROR(w->cause), 4095);
}

static void member_usable(struct kunit *test)
{
	struct kcr_member *m = fake_member(test);
	u32 state;

	for (state = 0; state < 4; state++) {
		m->state = state;
		m->mm = current->mm;
		KUNIT_EXPECT_EQ(test, kcr_member_usable(m),
				state == KCR_MEMBER_JOINED ? 0 : -ESHUTDOWN);
		m->mm = (struct mm_struct *)m;
		KUNIT_EXPECT_EQ(test, kcr_member_usable(m), -EPERM);
	}
}

static struct kunit_case member_cases[] = {
	KUNIT_CASE(member_transitions),
	KUNIT_CASE(member_first_cause),
	KUNIT_CASE(member_usable),
	{ }
};

static struct kunit_suite member_suite = {
	.name = "kcollring-member",
	.test_cases = member_cases,
};

kunit_test_suite(member_suite);
