// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit: what the ends of a lane make of what they hear, and who may say what. A part
 * of lane.c, on kernels with KUnit. Nothing is posted.
 */
#include "kunit.h"

#define WINDOW	3

struct fake_lane {
	struct fake *f;
	struct lane lane;
	struct kcr_lane_status status;
};

/* The fake is rank 5, its peer rank 2. */
static struct fake_lane *lane_fake(struct kunit *test, bool is_source)
{
	struct fake_lane *l = kunit_kzalloc(test, sizeof(*l), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, l);
	l->f = fake_new(test);
	l->f->c.state = CONN_CLOSING;	/* nothing is posted */
	l->f->c.was_up = true;
	l->lane.conn = &l->f->c;
	l->lane.window = WINDOW;
	l->lane.is_source = is_source;
	l->lane.depth = 4;
	l->lane.capacity = 100;
	l->lane.stride = KCR_SLOT_STRIDE(100);
	l->lane.shown = &l->status;
	l->lane.state = KCR_LANE_WAITING;
	l->f->c.lanes[is_source][WINDOW] = &l->lane;
	return l;
}

static struct wire_message word_of_lane(bool is_source, u32 depth)
{
	return (struct wire_message){
		.magic = cpu_to_le32(WIRE_MAGIC),
		.type = WIRE_LANE,
		.lane = {
			.window = WINDOW,
			.flags = WIRE_LANE_HEARD,
			.source = cpu_to_le16(is_source ? 5 : 2),
			.destination = cpu_to_le16(is_source ? 2 : 5),
			.depth = cpu_to_le32(depth),
			.capacity = cpu_to_le32(100),
			.rkeys = { cpu_to_le32(77) },
		},
	};
}

static struct wire_message word_of_end(enum wire_type type, bool is_source,
				       u64 seen)
{
	return (struct wire_message){
		.magic = cpu_to_le32(WIRE_MAGIC),
		.type = type,
		.end = {
			.window = WINDOW,
			.source = cpu_to_le16(is_source ? 5 : 2),
			.seen = cpu_to_le64(seen),
		},
	};
}

static bool hears(struct fake *f, struct wire_message m)
{
	bool is_right;

	spin_lock_bh(&f->c.lock);
	is_right = conn_hear(&f->c, &m, sizeof(m));
	/* As if it had been said. */
	f->c.owed = 0;
	spin_unlock_bh(&f->c.lock);
	return is_right;
}

static void lane_places(struct kunit *test)
{
	static const u32 capacities[] = {
		1, 40, 41, 4000, 65536, 500000, KCR_REMOTE_CAPACITY_MAX,
	};
	u32 i, slots;
	u64 stride;

	for (i = 0; i < ARRAY_SIZE(capacities); i++) {
		stride = KCR_SLOT_STRIDE(capacities[i]);
		slots = kcr_remote_slots(capacities[i]);
		KUNIT_EXPECT_GE(test, slots, 1);
		/* With a page more, for where it begins, it is one registration. */
		KUNIT_EXPECT_LE(test, slots * stride + SZ_64K,
				(u64)KCR_CHUNK_BYTES);
		KUNIT_EXPECT_GT(test, (slots + 1) * stride + SZ_64K,
				(u64)KCR_CHUNK_BYTES);
		KUNIT_EXPECT_EQ(test, kcr_remote_depth_max(capacities[i]),
				slots * KCR_REMOTE_PARTS);
	}
	KUNIT_EXPECT_EQ(test, kcr_remote_depth_max(0), 0);
	KUNIT_EXPECT_EQ(test, kcr_remote_depth_max(U32_MAX), 0);
}

static void lane_words(struct kunit *test)
{
	struct fake_lane *l = lane_fake(test, true);
	struct wire_message m = word_of_lane(true, 4);

	m.lane.window = KCR_MAX_WINDOWS;
	KUNIT_EXPECT_FALSE(test, hears(l->f, m));
	m = word_of_lane(true, 4);
	m.lane.source = cpu_to_le16(4);
	KUNIT_EXPECT_FALSE(test, hears(l->f, m));
	m = word_of_lane(true, 4);
	m.lane.destination = cpu_to_le16(5);
	KUNIT_EXPECT_FALSE(test, hears(l->f, m));
	m = word_of_lane(true, 4);
	m.lane.flags = 2;
	KUNIT_EXPECT_FALSE(test, hears(l->f, m));
	/* Of the other direction, where there is no lane. */
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_lane(false, 4)));
	KUNIT_EXPECT_EQ(test, l->lane.state, KCR_LANE_WAITING);
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_lane(true, 4)));
	KUNIT_EXPECT_EQ(test, l->lane.state, KCR_LANE_READY);
	KUNIT_EXPECT_EQ(test, l->status.state, KCR_LANE_READY);
	KUNIT_EXPECT_EQ(test, l->lane.rkeys[0], 77);
	/* Later words change nothing, but may ask for ours. */
	KUNIT_EXPECT_EQ(test, l->lane.say, 0);
	m = word_of_lane(true, 9);
	m.lane.flags = 0;
	m.lane.rkeys[0] = cpu_to_le32(78);
	KUNIT_EXPECT_TRUE(test, hears(l->f, m));
	KUNIT_EXPECT_EQ(test, l->lane.state, KCR_LANE_READY);
	KUNIT_EXPECT_EQ(test, l->lane.rkeys[0], 77);
	KUNIT_EXPECT_EQ(test, l->lane.say, LANE_TELL);
}

static void lane_unequal(struct kunit *test)
{
	struct fake_lane *l = lane_fake(test, false);

	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_lane(false, 5)));
	KUNIT_EXPECT_EQ(test, l->status.state, KCR_LANE_UNEQUAL);
	KUNIT_EXPECT_EQ(test, l->status.peer_depth, 5);
	KUNIT_EXPECT_EQ(test, l->status.peer_capacity, 100);
	KUNIT_EXPECT_EQ(test, l->lane.rkeys[0], 0);
}

/* Who asks is told when there is more than it has seen, and once. */
static void lane_arms(struct kunit *test)
{
	struct fake_lane *l = lane_fake(test, true);

	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_end(WIRE_ARM, true, 0)));
	KUNIT_EXPECT_EQ(test, l->lane.rings, 0);	/* not ready */
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_lane(true, 4)));
	l->lane.put = 7;
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_end(WIRE_ARM, true, 7)));
	KUNIT_EXPECT_EQ(test, l->lane.rings, 1);
	KUNIT_EXPECT_EQ(test, l->lane.say & LANE_RING, 0);
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_end(WIRE_ARM, true, 6)));
	KUNIT_EXPECT_EQ(test, l->lane.rings, 0);
	KUNIT_EXPECT_EQ(test, l->lane.say & LANE_RING, LANE_RING);
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_end(WIRE_ARM, true,
							U64_MAX)));
	KUNIT_EXPECT_EQ(test, l->lane.rings, 1);
	l->lane.awaited = 2;
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_end(WIRE_RING, true, 0)));
	KUNIT_EXPECT_EQ(test, l->lane.awaited, 1);
	/* Of a lane that there is not. */
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_end(WIRE_RING, false, 0)));
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_end(WIRE_ARM, false, 0)));
}

static bool is_rung(struct fake *f, u32 imm)
{
	bool is_right;

	spin_lock_bh(&f->c.lock);
	is_right = lane_rung(&f->c, imm);
	spin_unlock_bh(&f->c.lock);
	return is_right;
}

/* Rings that come with writes: of what there is, and no more than there are credits. */
static void lane_rings(struct kunit *test)
{
	struct fake_lane *l = lane_fake(test, true);
	u32 imm = wire_imm_rung(WINDOW, false), i;
	struct fake *f = l->f;

	l->lane.awaited = 2;
	KUNIT_EXPECT_FALSE(test, is_rung(f, wire_imm_rung(KCR_MAX_WINDOWS,
							  false)));
	KUNIT_EXPECT_FALSE(test, is_rung(f, imm | BIT(5)));
	KUNIT_EXPECT_FALSE(test, is_rung(f, imm | BIT(7)));
	f->c.owed = 0;
	KUNIT_EXPECT_TRUE(test, is_rung(f, wire_imm_rung(WINDOW, true)));
	KUNIT_EXPECT_EQ(test, l->lane.awaited, 2);
	for (i = 1; i < WIRE_CREDITS; i++)
		KUNIT_EXPECT_TRUE(test, is_rung(f, imm));
	KUNIT_EXPECT_EQ(test, l->lane.awaited, 0);
	KUNIT_EXPECT_FALSE(test, is_rung(f, imm));
}

/* What was asked for is rung with what is posted, if there is a credit, else behind it. */
static void lane_rings_with(struct kunit *test)
{
	struct fake_lane *l = lane_fake(test, true);
	struct wire_message m = word_of_end(WIRE_ARM, true, 7);
	struct lane *lane = &l->lane;
	struct ib_rdma_wr wr = { };

	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_lane(true, 4)));
	lane->put = 7;
	m.end.more = WIRE_RINGS;
	KUNIT_EXPECT_FALSE(test, hears(l->f, m));
	m.end.more = 2;
	KUNIT_EXPECT_TRUE(test, hears(l->f, m));
	spin_lock_bh(&l->f->c.lock);
	l->f->c.credits = 1;
	KUNIT_EXPECT_FALSE(test, ring_with(lane, &wr, 7));
	KUNIT_EXPECT_TRUE(test, ring_with(lane, &wr, 9));
	KUNIT_EXPECT_EQ(test, wr.wr.opcode, IB_WR_RDMA_WRITE_WITH_IMM);
	KUNIT_EXPECT_EQ(test, be32_to_cpu(wr.wr.ex.imm_data),
			wire_imm_rung(WINDOW, true));
	lane->put = 9;
	has_rung(lane, 9);
	KUNIT_EXPECT_EQ(test, l->f->c.credits, 0);
	KUNIT_EXPECT_EQ(test, lane->rings, 2);
	ring_if_due(lane);
	KUNIT_EXPECT_EQ(test, lane->rings, 2);
	lane->put = 10;
	KUNIT_EXPECT_FALSE(test, ring_with(lane, &wr, 10));
	ring_if_due(lane);
	KUNIT_EXPECT_EQ(test, lane->rings, 1);
	KUNIT_EXPECT_EQ(test, lane->say & LANE_RING, LANE_RING);
	/* That one is for this, too. */
	lane->put = 11;
	l->f->c.credits = 1;
	KUNIT_EXPECT_FALSE(test, ring_with(lane, &wr, 11));
	ring_if_due(lane);
	KUNIT_EXPECT_EQ(test, lane->rings, 1);
	spin_unlock_bh(&l->f->c.lock);
}

/* The peer gives its end up: agreed to when nothing of ours is on its way. */
static void lane_ends(struct kunit *test)
{
	struct fake_lane *l = lane_fake(test, true);
	struct conn *c = &l->f->c;

	/* Not of this lane, of which the peer has never said anything. */
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_end(WIRE_UNLANE, true, 0)));
	KUNIT_EXPECT_EQ(test, l->lane.state, KCR_LANE_WAITING);
	KUNIT_EXPECT_EQ(test, c->unlaned[1], BIT(WINDOW));
	c->unlaned[1] = 0;
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_lane(true, 4)));
	l->lane.outstanding = 2;
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_end(WIRE_UNLANE, true, 0)));
	KUNIT_EXPECT_EQ(test, l->status.state, KCR_LANE_ENDED);
	KUNIT_EXPECT_EQ(test, c->unlaned[1], 0);
	spin_lock_bh(&c->lock);
	lane_sent(&l->lane, true);
	KUNIT_EXPECT_EQ(test, c->unlaned[1], 0);
	lane_sent(&l->lane, false);
	spin_unlock_bh(&c->lock);
	KUNIT_EXPECT_EQ(test, c->unlaned[1], BIT(WINDOW));
	KUNIT_EXPECT_EQ(test, l->status.done, 1);
	/* What the peer makes next is not this one's other end. */
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_lane(true, 4)));
	KUNIT_EXPECT_EQ(test, l->lane.state, KCR_LANE_ENDED);
	/* Of one that there is not. */
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_end(WIRE_UNLANE, false,
							0)));
	KUNIT_EXPECT_EQ(test, c->unlaned[0], BIT(WINDOW));
}

/* Both give it up at once, one of them with something to say of it still. */
static void lane_ends_of_both(struct kunit *test)
{
	struct fake_lane *l = lane_fake(test, true);
	struct wire_message m = word_of_lane(true, 4);
	struct conn *c = &l->f->c;

	m.lane.flags = 0;
	KUNIT_EXPECT_TRUE(test, hears(l->f, m));
	KUNIT_EXPECT_EQ(test, l->lane.say, LANE_TELL);
	lane_forget(c, WINDOW);
	KUNIT_EXPECT_EQ(test, l->lane.say, LANE_TELL | LANE_END);
	/* The peer may have the next one as soon as this is agreed to. */
	KUNIT_EXPECT_TRUE(test, hears(l->f, word_of_end(WIRE_UNLANE, true, 0)));
	KUNIT_EXPECT_EQ(test, c->unlaned[1], BIT(WINDOW));
	KUNIT_EXPECT_EQ(test, l->lane.say, LANE_END);
}

/* Only what was asked for can be agreed to. */
static void lane_agreements(struct kunit *test)
{
	struct fake_lane *l = lane_fake(test, false);
	struct wire_message agreed = word_of_end(WIRE_UNLANED, false, 0);

	KUNIT_EXPECT_FALSE(test, hears(l->f, agreed));
	lane_forget(&l->f->c, WINDOW);
	KUNIT_EXPECT_TRUE(test, l->lane.ends);
	KUNIT_EXPECT_EQ(test, l->lane.say, LANE_END);
	/* It is not asked for yet. */
	KUNIT_EXPECT_FALSE(test, hears(l->f, agreed));
	l->lane.say = 0;
	l->lane.outstanding = 1;
	KUNIT_EXPECT_TRUE(test, hears(l->f, agreed));
	KUNIT_EXPECT_FALSE(test, hears(l->f, agreed));
	KUNIT_EXPECT_PTR_EQ(test, l->f->c.lanes[0][WINDOW], &l->lane);
	KUNIT_EXPECT_FALSE(test, hears(l->f, word_of_end(WIRE_UNLANED, true,
							 0)));
}

static void lane_credits(struct kunit *test)
{
	struct fake *f = fake_new(test);
	struct wire_message m = word_of_end(WIRE_ARM, true, 0);
	u32 i;

	f->c.state = CONN_CLOSING;
	f->c.was_up = true;
	spin_lock_bh(&f->c.lock);
	for (i = 0; i < WIRE_CREDITS; i++)
		KUNIT_EXPECT_TRUE(test, conn_hear(&f->c, &m, sizeof(m)));
	KUNIT_EXPECT_FALSE(test, conn_hear(&f->c, &m, sizeof(m)));
	/* More given back than were taken. */
	f->c.credits = WIRE_CREDITS - 3;
	m = (struct wire_message){
		.magic = cpu_to_le32(WIRE_MAGIC),
		.type = WIRE_CREDIT,
		.credits = 4,
	};
	KUNIT_EXPECT_FALSE(test, conn_hear(&f->c, &m, sizeof(m)));
	KUNIT_EXPECT_EQ(test, f->c.credits, WIRE_CREDITS - 3);
	m.credits = 3;
	KUNIT_EXPECT_TRUE(test, conn_hear(&f->c, &m, sizeof(m)));
	KUNIT_EXPECT_EQ(test, f->c.credits, WIRE_CREDITS);
	spin_unlock_bh(&f->c.lock);
}

static struct kunit_case lane_cases[] = {
	KUNIT_CASE(lane_places),
	KUNIT_CASE(lane_words),
	KUNIT_CASE(lane_unequal),
	KUNIT_CASE(lane_arms),
	KUNIT_CASE(lane_rings),
	KUNIT_CASE(lane_rings_with),
	KUNIT_CASE(lane_ends),
	KUNIT_CASE(lane_ends_of_both),
	KUNIT_CASE(lane_agreements),
	KUNIT_CASE(lane_credits),
	{ }
};

static struct kunit_suite lane_suite = {
	.name = "kcollring-lane",
	.test_cases = lane_cases,
};

kunit_test_suite(lane_suite);
