// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit: the states of a connection, and what is shown of them. A part of conn.c, on
 * kernels with KUnit.
 */
#include "kunit.h"

#define NR_STATES	(CONN_CLOSED + 1)

/* As conn.c's head has it, without its table. */
static bool is_way(enum conn_state from, enum conn_state to)
{
	if (to == CONN_CLOSING)
		return from != CONN_CLOSING && from != CONN_CLOSED;
	switch (from) {
	case CONN_NEW:
		return to == CONN_EXPECTED || to == CONN_RESOLVING;
	case CONN_EXPECTED:
		return to == CONN_ACCEPTED;
	case CONN_RESOLVING:
		return to == CONN_ROUTING;
	case CONN_ROUTING:
		return to == CONN_REQUESTED;
	case CONN_REQUESTED:
		return to == CONN_PROVING;
	case CONN_ACCEPTED:
		return to == CONN_UP || to == CONN_EXPECTED;
	case CONN_PROVING:
		return to == CONN_UP || to == CONN_LEAVING;
	case CONN_UP:
		return to == CONN_LEAVING;
	case CONN_CLOSING:
		return to == CONN_CLOSED || to == CONN_EXPECTED || to == CONN_RESOLVING;
	default:
		return false;
	}
}

static bool set_state(struct conn *c, enum conn_state state)
{
	bool is_done;

	spin_lock_bh(&c->lock);
	is_done = conn_set_state(c, state);
	spin_unlock_bh(&c->lock);
	return is_done;
}

static void conn_transitions(struct kunit *test)
{
	enum conn_state from, to;

	for (from = CONN_NEW; from < NR_STATES; from++) {
		for (to = CONN_NEW; to < NR_STATES; to++) {
			struct fake *f = fake_new(test);
			bool is_right = is_way(from, to);

			f->c.state = from;
			KUNIT_EXPECT_EQ_MSG(test, set_state(&f->c, to),
					    is_right, "%d to %d", from, to);
			KUNIT_EXPECT_EQ(test, f->c.state, is_right ? to : from);
			KUNIT_EXPECT_EQ(test, f->c.was_up,
					is_right && to == CONN_UP);
			/* Whoever closes it, and nobody else, queues that. */
			KUNIT_EXPECT_EQ(test, fake_closes(f),
					is_right && to == CONN_CLOSING);
		}
	}
}

/* Whatever happened, a closed one stays so, and every other can be closed. */
static void conn_ends(struct kunit *test)
{
	struct fake *f = fake_new(test);
	enum conn_state to;

	f->c.state = CONN_NEW;
	KUNIT_EXPECT_TRUE(test, set_state(&f->c, CONN_CLOSING));
	KUNIT_EXPECT_FALSE(test, set_state(&f->c, CONN_CLOSING));
	KUNIT_EXPECT_TRUE(test, set_state(&f->c, CONN_CLOSED));
	for (to = CONN_NEW; to < NR_STATES; to++)
		KUNIT_EXPECT_FALSE(test, set_state(&f->c, to));
	KUNIT_EXPECT_EQ(test, f->c.state, CONN_CLOSED);
	KUNIT_EXPECT_EQ(test, fake_closes(f), 1);
}

static void fail(struct conn *c, u32 reason, u32 detail)
{
	spin_lock_bh(&c->lock);
	conn_fail_locked(c, reason, detail, -EIO);
	spin_unlock_bh(&c->lock);
}

/* The first reason counts, unless a later one tells more. */
static void conn_reasons(struct kunit *test)
{
	enum { FLUSHED = IB_WC_WR_FLUSH_ERR, RETRIED = IB_WC_RETRY_EXC_ERR };
	static const struct {
		u32 first, first_detail, second, second_detail;
		bool is_better;
	} of[] = {
		{ KCR_REASON_COMPLETION, FLUSHED, KCR_REASON_GONE, 0, true },
		{ KCR_REASON_COMPLETION, FLUSHED, KCR_REASON_PROTOCOL, 7, true },
		{ KCR_REASON_COMPLETION, FLUSHED, KCR_REASON_COMPLETION, RETRIED, true },
		{ KCR_REASON_COMPLETION, FLUSHED, KCR_REASON_TIMEOUT, 0, false },
		{ KCR_REASON_GONE, 0, KCR_REASON_KEY, 0, true },
		{ KCR_REASON_GONE, 0, KCR_REASON_COMPLETION, FLUSHED, false },
		{ KCR_REASON_GONE, 0, KCR_REASON_TIMEOUT, 0, false },
		{ KCR_REASON_COMPLETION, RETRIED, KCR_REASON_GONE, 0, false },
		{ KCR_REASON_KEY, 0, KCR_REASON_PROTOCOL, 7, false },
	};
	struct rdma_cm_event event = { .event = RDMA_CM_EVENT_DISCONNECTED };
	struct rdma_cm_id id = { };
	struct fake *f;
	int i;

	for (i = 0; i < ARRAY_SIZE(of); i++) {
		f = fake_new(test);
		f->c.state = CONN_PROVING;
		fail(&f->c, of[i].first, of[i].first_detail);
		KUNIT_EXPECT_EQ(test, f->c.reason, of[i].first);
		fail(&f->c, of[i].second, of[i].second_detail);
		KUNIT_EXPECT_EQ_MSG(test, f->c.reason,
				    of[i].is_better ? of[i].second : of[i].first, "%d", i);
		KUNIT_EXPECT_EQ(test, f->c.detail,
				of[i].is_better ? of[i].second_detail : of[i].first_detail);
		KUNIT_EXPECT_EQ(test, fake_closes(f), 1);
	}
	/* A disconnection that follows is this end's own. */
	f = fake_new(test);
	f->c.state = CONN_PROVING;
	f->c.id = &id;
	id.context = &f->c;
	fail(&f->c, KCR_REASON_COMPLETION, FLUSHED);
	KUNIT_EXPECT_EQ(test, handle(&id, &event), 0);
	KUNIT_EXPECT_EQ(test, f->c.reason, KCR_REASON_COMPLETION);
	KUNIT_EXPECT_EQ(test, fake_closes(f), 1);
}

/* A world that failed before it was up: the peer hears of it then. */
static void conn_tells_failure(struct kunit *test)
{
	struct fake *f = fake_new(test);

	f->c.state = CONN_PROVING;
	KUNIT_EXPECT_TRUE(test, set_state(&f->c, CONN_UP));
	KUNIT_EXPECT_EQ(test, f->c.say & SAY_FAIL, 0);
	f->world.cause = KCR_CAUSE(1, EPROTO);
	f->c.state = CONN_ACCEPTED;
	KUNIT_EXPECT_TRUE(test, set_state(&f->c, CONN_UP));
	KUNIT_EXPECT_EQ(test, f->c.say & SAY_FAIL, SAY_FAIL);
}

static void conn_posting(struct kunit *test)
{
	struct fake *f = fake_new(test);
	enum conn_state state;

	for (state = CONN_NEW; state < NR_STATES; state++) {
		f->c.state = state;
		spin_lock_bh(&f->c.lock);
		KUNIT_EXPECT_EQ(test, conn_may_post(&f->c),
				state == CONN_ACCEPTED ||
				state == CONN_PROVING || state == CONN_UP ||
				state == CONN_LEAVING);
		spin_unlock_bh(&f->c.lock);
	}
}

static u32 shown(struct fake *f, enum conn_state state)
{
	f->c.state = state;
	spin_lock_bh(&f->c.lock);
	conn_show_state(&f->c);
	spin_unlock_bh(&f->c.lock);
	return f->status.state;
}

static void conn_shown_states(struct kunit *test)
{
	static const u32 want[NR_STATES] = {
		[CONN_NEW] = KCR_CONN_NONE,
		[CONN_EXPECTED] = KCR_CONN_EXPECTED,
		[CONN_RESOLVING] = KCR_CONN_CONNECTING,
		[CONN_ROUTING] = KCR_CONN_CONNECTING,
		[CONN_REQUESTED] = KCR_CONN_CONNECTING,
		[CONN_ACCEPTED] = KCR_CONN_EXPECTED,
		[CONN_PROVING] = KCR_CONN_CONNECTING,
		[CONN_UP] = KCR_CONN_UP,
		[CONN_LEAVING] = KCR_CONN_UP,
		/* As it was, until it is known why. */
		[CONN_CLOSING] = KCR_CONN_UP,
		[CONN_CLOSED] = KCR_CONN_UP,
	};
	struct fake *f = fake_new(test);
	enum conn_state state;

	for (state = CONN_NEW; state < NR_STATES; state++)
		KUNIT_EXPECT_EQ(test, shown(f, state), want[state]);
	f->status.error = ECONNRESET;
	KUNIT_EXPECT_EQ(test, shown(f, CONN_CLOSING), KCR_CONN_FAILED);
	KUNIT_EXPECT_EQ(test, shown(f, CONN_CLOSED), KCR_CONN_FAILED);
	f->c.peer_has_left = true;
	KUNIT_EXPECT_EQ(test, shown(f, CONN_CLOSED), KCR_CONN_FAILED);
	f->status.error = 0;
	KUNIT_EXPECT_EQ(test, shown(f, CONN_UP), KCR_CONN_LEFT);
	KUNIT_EXPECT_EQ(test, shown(f, CONN_LEAVING), KCR_CONN_LEFT);
	KUNIT_EXPECT_EQ(test, shown(f, CONN_CLOSED), KCR_CONN_LEFT);
	/* Not before the reason for that is. */
	f->status.state = KCR_CONN_UP;
	f->c.peer_cause = KCR_CAUSE(1, EPROTO);
	KUNIT_EXPECT_EQ(test, shown(f, CONN_UP), KCR_CONN_UP);
	KUNIT_EXPECT_EQ(test, shown(f, CONN_CLOSED), KCR_CONN_UP);
	f->world.cause = KCR_CAUSE(2, EPROTO);
	KUNIT_EXPECT_EQ(test, shown(f, CONN_UP), KCR_CONN_LEFT);
	KUNIT_EXPECT_EQ(test, shown(f, CONN_CLOSED), KCR_CONN_LEFT);
}

static bool tries_again(struct conn *c)
{
	bool again;

	spin_lock_bh(&c->lock);
	again = may_try_again(c);
	spin_unlock_bh(&c->lock);
	return again;
}

/* Who waits to be connected to goes on waiting, if that can be of any use. */
static void conn_other_try(struct kunit *test)
{
	struct fake *f = fake_new(test);
	struct conn *c = &f->c;

	c->connect_by = jiffies + 1000 * HZ;
	KUNIT_EXPECT_TRUE(test, tries_again(c));
	c->reason = KCR_REASON_TIMEOUT;
	KUNIT_EXPECT_FALSE(test, tries_again(c));
	c->is_patient = true;
	KUNIT_EXPECT_TRUE(test, tries_again(c));
	c->reason = KCR_REASON_DEVICE;
	KUNIT_EXPECT_FALSE(test, tries_again(c));
	c->reason = KCR_REASON_KEY;
	c->connect_by = jiffies - 1;
	KUNIT_EXPECT_TRUE(test, tries_again(c));
	c->is_patient = false;
	KUNIT_EXPECT_FALSE(test, tries_again(c));
	c->is_patient = true;
	c->is_active = true;
	KUNIT_EXPECT_FALSE(test, tries_again(c));
	c->reason = KCR_REASON_DUPLICATE;
	KUNIT_EXPECT_FALSE(test, tries_again(c));
	c->detail = WIRE_UNPROVEN;
	KUNIT_EXPECT_TRUE(test, tries_again(c));
	c->is_patient = false;
	KUNIT_EXPECT_FALSE(test, tries_again(c));
	c->is_patient = true;
	c->is_active = false;
	c->was_up = true;
	KUNIT_EXPECT_FALSE(test, tries_again(c));
	c->was_up = false;
	c->ends = true;
	KUNIT_EXPECT_FALSE(test, tries_again(c));
	c->ends = false;
	c->is_misplaced = true;
	KUNIT_EXPECT_FALSE(test, tries_again(c));
}

/* What a peer may refuse with; anything else it may not. */
static void conn_refusals(struct kunit *test)
{
	u32 reason, known = 0;

	for (reason = 0; reason < 0x10000; reason++) {
		int error = error_of_refusal(reason);

		KUNIT_EXPECT_LE(test, error, 0);
		known += !!error;
	}
	KUNIT_EXPECT_EQ(test, known, 7);
	KUNIT_EXPECT_EQ(test, error_of_refusal(KCR_REASON_VERSION), -EPROTO);
	KUNIT_EXPECT_EQ(test, error_of_refusal(KCR_REASON_RANK), -ENOENT);
	KUNIT_EXPECT_EQ(test, error_of_refusal(KCR_REASON_DUPLICATE), -EEXIST);
	KUNIT_EXPECT_EQ(test, error_of_refusal(KCR_REASON_NONE), 0);
	KUNIT_EXPECT_EQ(test, error_of_refusal(KCR_REASON_KEY), 0);
}

static void conn_addresses(struct kunit *test)
{
	struct fake *f = fake_new(test);
	struct kcr_connect args = { };
	struct sockaddr_in v4 = {
		.sin_family = AF_INET,
		.sin_port = htons(99),
		.sin_addr.s_addr = htonl(0x0a4d0001),
	};
	struct sockaddr_in *out = (struct sockaddr_in *)&f->c.remote;
	u32 family;

	memset(args.local, 0xff, sizeof(args.local));
	memset(args.remote, 0xff, sizeof(args.remote));
	KUNIT_EXPECT_EQ(test, set_addresses(&f->c, &args), -EINVAL);
	memcpy(args.local, &v4, sizeof(v4));
	KUNIT_EXPECT_EQ(test, set_addresses(&f->c, &args), -EINVAL);
	memcpy(args.remote, &v4, sizeof(v4));
	memset(args.remote + 4, 0, 4);
	KUNIT_EXPECT_EQ(test, set_addresses(&f->c, &args), -EINVAL);
	memcpy(args.remote, &v4, sizeof(v4));
	memset(args.remote + 8, 0xff, sizeof(args.remote) - 8);
	KUNIT_EXPECT_EQ(test, set_addresses(&f->c, &args), 0);
	KUNIT_EXPECT_EQ(test, out->sin_port, htons(99));
	/* What is behind an address of IPv4 is nobody's. */
	KUNIT_EXPECT_NULL(test, memchr_inv(out->sin_zero, 0, 8));
	KUNIT_EXPECT_NULL(test, memchr_inv(f->status.remote + 16, 0, 12));
	KUNIT_EXPECT_FALSE(test, has_port(&f->c.local));
	args.remote[2] = 0;
	args.remote[3] = 0;
	KUNIT_EXPECT_EQ(test, set_addresses(&f->c, &args), 0);
	KUNIT_EXPECT_EQ(test, out->sin_port, htons(verbs_port));
	for (family = 0; family < 256; family++) {
		if (family == AF_INET)
			continue;
		args.remote[0] = family;
		args.remote[1] = 0;
		KUNIT_EXPECT_EQ(test, set_addresses(&f->c, &args), -EINVAL);
	}
}

static u64 beats(struct fake *f, u32 nr, u64 ms)
{
	u64 ns = 0;

	spin_lock_bh(&f->c.lock);
	while (nr--)
		ns = conn_silence(&f->c, ms * NSEC_PER_MSEC);
	spin_unlock_bh(&f->c.lock);
	return div_u64(ns, NSEC_PER_MSEC);
}

/* Beats in time count what they take; late ones not much more, however late. */
static void conn_silences(struct kunit *test)
{
	struct fake *f = fake_new(test);

	KUNIT_EXPECT_EQ(test, beats(f, 36, BEAT_MS), 9000);
	KUNIT_EXPECT_EQ(test, beats(f, 1, BEAT_MS), 9250);
	KUNIT_EXPECT_EQ(test, beats(f, 10, 0), 9250);
	f->c.silent_ns = 0;
	KUNIT_EXPECT_EQ(test, beats(f, 20, BEAT_MS + 20), 5400);
	f->c.silent_ns = 0;
	KUNIT_EXPECT_EQ(test, beats(f, 1, 13100), 2 * BEAT_MS);
	KUNIT_EXPECT_EQ(test, beats(f, 1, BEAT_MS), 3 * BEAT_MS);
	/* A clock that has jumped by years. */
	KUNIT_EXPECT_EQ(test, beats(f, 1, U64_MAX / NSEC_PER_MSEC), 5 * BEAT_MS);
	/* Who is always late finds a dead node, too. */
	f->c.silent_ns = 0;
	KUNIT_EXPECT_EQ(test, beats(f, 18, 5000), 9000);
}

static struct kunit_case conn_cases[] = {
	KUNIT_CASE(conn_transitions),
	KUNIT_CASE(conn_ends),
	KUNIT_CASE(conn_reasons),
	KUNIT_CASE(conn_tells_failure),
	KUNIT_CASE(conn_posting),
	KUNIT_CASE(conn_shown_states),
	KUNIT_CASE(conn_other_try),
	KUNIT_CASE(conn_refusals),
	KUNIT_CASE(conn_addresses),
	KUNIT_CASE(conn_silences),
	{ }
};

static struct kunit_suite conn_suite = {
	.name = "kcollring-conn",
	.test_cases = conn_cases,
};

kunit_test_suite(conn_suite);
