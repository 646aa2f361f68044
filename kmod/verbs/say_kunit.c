// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit: what a peer may say, and when. A part of say.c, on kernels with KUnit.
 */
#include "kunit.h"

static struct wire_message good_message(u8 type)
{
	struct wire_message m = {
		.magic = cpu_to_le32(WIRE_MAGIC),
		.type = type,
	};

	if (type == WIRE_OPENED)
		m.ring.depth = cpu_to_le16(3);
	if (type == WIRE_FAIL) {
		m.fail.rank = cpu_to_le32(FAKE_RANKS - 1);
		m.fail.error = cpu_to_le32(EPROTO);
	}
	if (type == WIRE_LANE) {
		m.lane.source = cpu_to_le16(5);
		m.lane.destination = cpu_to_le16(2);
	}
	if (type > WIRE_LANE && type <= WIRE_RING)
		m.end.source = cpu_to_le16(5);
	return m;
}

/* To a connection in this state, that has been up or not. */
static bool hear(struct fake *f, enum conn_state state, bool was_up,
		 const struct wire_message *m, u32 bytes)
{
	struct conn *c = &f->c;
	bool is_right;

	spin_lock_bh(&c->lock);
	c->state = state;
	c->was_up = was_up;
	/* So that it is not closed when a goodbye has been heard. */
	c->sending = 1;
	is_right = conn_hear(c, m, bytes);
	spin_unlock_bh(&c->lock);
	fake_events(f);
	return is_right;
}

static bool may_say(u8 type, enum conn_state state, bool was_up)
{
	switch (type) {
	case WIRE_HELLO:
		return state == CONN_ACCEPTED;
	case WIRE_WELCOME:
		return state == CONN_PROVING || state >= CONN_CLOSING ||
		       (state == CONN_LEAVING && !was_up);
	case WIRE_WANT:
	case WIRE_OPENED:
	case WIRE_PING:
	case WIRE_FAIL:
	case WIRE_BYE:
	case WIRE_LANE:
	case WIRE_UNLANE:
	case WIRE_ARM:
	case WIRE_RING:
	case WIRE_CREDIT:
		return was_up;
	default:	/* also to agree to what was not asked */
		return false;
	}
}

/* Every type in every state. */
static void say_types(struct kunit *test)
{
	enum conn_state state;
	u32 type, was_up;

	for (state = CONN_NEW; state <= CONN_CLOSED; state++) {
		struct fake *f = fake_new(test);

		for (type = 0; type < 256; type++) {
			struct wire_message m = good_message(type);

			for (was_up = 0; was_up < 2; was_up++) {
				/* As if nothing had been said before. */
				f->c.has_proof = false;
				memset(f->c.tx, 0, sizeof(f->c.tx));
				KUNIT_EXPECT_EQ_MSG(test,
						    hear(f, state, was_up, &m,
							 sizeof(m)),
						    may_say(type, state,
							    was_up),
						    "%u in %d, %u", type, state,
						    was_up);
			}
		}
		KUNIT_EXPECT_EQ(test, fake_closes(f), 0);
	}
}

/* None that is not as it must be, whatever it says. */
static void say_format(struct kunit *test)
{
	struct fake *f = fake_new(test);
	struct wire_message m;
	u32 type, bytes, i;

	for (type = WIRE_HELLO; type <= WIRE_CREDIT; type++) {
		enum conn_state state = type == WIRE_HELLO ? CONN_ACCEPTED :
					type == WIRE_WELCOME ? CONN_PROVING :
							       CONN_UP;

		m = good_message(type);
		for (bytes = 0; bytes < 200; bytes++)
			if (bytes != sizeof(m))
				KUNIT_EXPECT_FALSE(test,
						   hear(f, state, true, &m,
							bytes));
		KUNIT_EXPECT_FALSE(test, hear(f, state, true, &m, U32_MAX));
		for (i = 0; i < 32; i++) {
			m.magic ^= cpu_to_le32(BIT(i));
			KUNIT_EXPECT_FALSE(test, hear(f, state, true, &m,
						      sizeof(m)));
			m.magic ^= cpu_to_le32(BIT(i));
		}
		for (i = 0; i < sizeof(m.reserved); i++) {
			m.reserved[i] = 1;
			KUNIT_EXPECT_FALSE(test, hear(f, state, true, &m,
						      sizeof(m)));
			m.reserved[i] = 0;
		}
	}
	KUNIT_EXPECT_EQ(test, fake_events(f), 0);
	KUNIT_EXPECT_FALSE(test, f->c.has_proof);
	KUNIT_EXPECT_FALSE(test, f->c.peer_has_left);
	KUNIT_EXPECT_NULL(test, memchr_inv(&f->status, 0, sizeof(f->status)));
}

static void say_hello_once(struct kunit *test)
{
	struct fake *f = fake_new(test);
	struct wire_message m = good_message(WIRE_HELLO);

	memset(m.proof, 0x5a, sizeof(m.proof));
	KUNIT_EXPECT_TRUE(test, hear(f, CONN_ACCEPTED, false, &m, sizeof(m)));
	KUNIT_EXPECT_EQ(test, fake_events(f), 1);
	KUNIT_EXPECT_MEMEQ(test, f->c.proof, m.proof, sizeof(m.proof));
	/* The proof that is being looked at stays as it is. */
	memset(m.proof, 0xa5, sizeof(m.proof));
	KUNIT_EXPECT_FALSE(test, hear(f, CONN_ACCEPTED, false, &m, sizeof(m)));
	KUNIT_EXPECT_EQ(test, f->c.proof[0], 0x5a);
}

static void say_welcome_brings_up(struct kunit *test)
{
	struct fake *f = fake_new(test);
	struct wire_message m = good_message(WIRE_WELCOME);

	KUNIT_EXPECT_TRUE(test, hear(f, CONN_PROVING, false, &m, sizeof(m)));
	KUNIT_EXPECT_EQ(test, f->c.state, CONN_UP);
	KUNIT_EXPECT_EQ(test, f->status.state, KCR_CONN_UP);
	KUNIT_EXPECT_FALSE(test, hear(f, CONN_UP, true, &m, sizeof(m)));
}

/* The membership has ended before that: it is not up, but may say goodbye. */
static void say_welcome_when_leaving(struct kunit *test)
{
	struct wire_message m = good_message(WIRE_WELCOME);
	struct fake *f = fake_new(test);

	KUNIT_EXPECT_TRUE(test, hear(f, CONN_LEAVING, false, &m, sizeof(m)));
	KUNIT_EXPECT_EQ(test, f->c.state, CONN_LEAVING);
	KUNIT_EXPECT_TRUE(test, f->c.was_up);
	KUNIT_EXPECT_FALSE(test, hear(f, CONN_LEAVING, true, &m, sizeof(m)));
}

static void say_failures(struct kunit *test)
{
	static const struct {
		u32 rank, error;
		bool is_right;
	} of[] = {
		{ 0, 1, true }, { FAKE_RANKS - 1, MAX_ERRNO, true },
		{ FAKE_RANKS, 1, false }, { U32_MAX, 1, false },
		{ 0, 0, false }, { 0, MAX_ERRNO + 1, false },
		{ 0, U32_MAX, false }, { 0, 1U << 31, false },
	};
	struct wire_message m = good_message(WIRE_FAIL);
	int i;

	for (i = 0; i < ARRAY_SIZE(of); i++) {
		struct fake *f = fake_new(test);

		m.fail.rank = cpu_to_le32(of[i].rank);
		m.fail.error = cpu_to_le32(of[i].error);
		KUNIT_EXPECT_EQ(test, hear(f, CONN_UP, true, &m, sizeof(m)),
				of[i].is_right);
		KUNIT_EXPECT_EQ(test, f->c.peer_cause, of[i].is_right ?
				KCR_CAUSE(of[i].rank, of[i].error) : 0);
		KUNIT_EXPECT_EQ(test, fake_events(f), of[i].is_right);
		/* The first one stays. */
		m.fail.rank = cpu_to_le32(1);
		m.fail.error = cpu_to_le32(EIO);
		hear(f, CONN_UP, true, &m, sizeof(m));
		KUNIT_EXPECT_EQ(test, f->c.peer_cause, of[i].is_right ?
				KCR_CAUSE(of[i].rank, of[i].error) :
				KCR_CAUSE(1, EIO));
	}
}

/* What the rank is in is shown, whichever part of it has changed. */
static void say_claims(struct kunit *test)
{
	struct wire_message m = good_message(WIRE_PING);
	struct fake *f = fake_new(test);
	struct kcr_claim want = { };
	int i;

	m.ping.since_age_ns = cpu_to_le64(U64_MAX);
	for (i = 1; i <= 16; i++) {
		switch (i % 4) {
		case 0:
			want.number = i;
			break;
		case 1:
			want.count = i;
			break;
		case 2:
			want.kind = i;
			break;
		case 3:
			want.detail = i;
			break;
		}
		m.ping.number = cpu_to_le64(want.number);
		m.ping.count = cpu_to_le64(want.count);
		m.ping.kind = cpu_to_le32(want.kind);
		m.ping.detail = cpu_to_le32(want.detail);
		KUNIT_EXPECT_TRUE(test, hear(f, CONN_UP, true, &m, sizeof(m)));
		KUNIT_EXPECT_MEMEQ(test, &f->status.board.claim, &want,
				   sizeof(want));
	}
}

static void say_rings(struct kunit *test)
{
	struct wire_message m = good_message(WIRE_OPENED);
	struct wire_message want = good_message(WIRE_WANT);
	struct fake *f = fake_new(test);
	u32 stream, class, depth;

	for (stream = 0; stream < 256; stream += 1 + stream / 9) {
		for (class = 0; class < 256; class += 1 + class / 9) {
			bool is_ring = stream < KCR_STREAMS &&
				       class < KCR_CLASSES;

			m.ring.stream = stream;
			m.ring.class = class;
			want.ring.stream = stream;
			want.ring.class = class;
			KUNIT_EXPECT_EQ(test, hear(f, CONN_UP, true, &want,
						   sizeof(m)), is_ring);
			for (depth = 0; depth < 20; depth++) {
				m.ring.depth = cpu_to_le16(depth);
				KUNIT_EXPECT_EQ(test,
						hear(f, CONN_UP, true, &m,
						     sizeof(m)),
						is_ring && depth == 3);
			}
			/* Not a second time. */
			m.ring.depth = cpu_to_le16(3);
			KUNIT_EXPECT_FALSE(test, hear(f, CONN_UP, true, &m,
						      sizeof(m)));
		}
	}
}

/* Ages become times of this node's clock, or none. */
static void say_ages(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, age(0, 100), NO_AGE);
	KUNIT_EXPECT_EQ(test, age(101, 100), NO_AGE);
	KUNIT_EXPECT_EQ(test, age(100, 100), 0);
	KUNIT_EXPECT_EQ(test, age(1, 100), 99);
	KUNIT_EXPECT_EQ(test, since(cpu_to_le64(0), 100), 100);
	KUNIT_EXPECT_EQ(test, since(cpu_to_le64(99), 100), 1);
	KUNIT_EXPECT_EQ(test, since(cpu_to_le64(100), 100), 0);
	KUNIT_EXPECT_EQ(test, since(cpu_to_le64(NO_AGE), 100), 0);
}

static void say_goodbyes(struct kunit *test)
{
	struct wire_message m = good_message(WIRE_BYE);
	struct fake *f = fake_new(test);

	KUNIT_EXPECT_TRUE(test, hear(f, CONN_UP, true, &m, sizeof(m)));
	KUNIT_EXPECT_TRUE(test, f->c.peer_has_left);
	KUNIT_EXPECT_EQ(test, f->status.state, KCR_CONN_LEFT);
	/* Both have said it: it closes when nothing is on its way any more. */
	KUNIT_EXPECT_TRUE(test, hear(f, CONN_LEAVING, true, &m, sizeof(m)));
	KUNIT_EXPECT_EQ(test, f->c.state, CONN_LEAVING);
	spin_lock_bh(&f->c.lock);
	f->c.sending = 0;
	KUNIT_EXPECT_TRUE(test, conn_hear(&f->c, &m, sizeof(m)));
	spin_unlock_bh(&f->c.lock);
	KUNIT_EXPECT_EQ(test, f->c.state, CONN_CLOSING);
	KUNIT_EXPECT_EQ(test, fake_closes(f), 1);
}

static struct kunit_case say_cases[] = {
	KUNIT_CASE(say_types),
	KUNIT_CASE(say_format),
	KUNIT_CASE(say_hello_once),
	KUNIT_CASE(say_welcome_brings_up),
	KUNIT_CASE(say_welcome_when_leaving),
	KUNIT_CASE(say_failures),
	KUNIT_CASE(say_claims),
	KUNIT_CASE(say_rings),
	KUNIT_CASE(say_ages),
	KUNIT_CASE(say_goodbyes),
	{ }
};

static struct kunit_suite say_suite = {
	.name = "kcollring-say",
	.test_cases = say_cases,
};

kunit_test_suite(say_suite);
