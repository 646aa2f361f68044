// SPDX-License-Identifier: GPL-2.0
/*
 * Lanes of remote windows against a peer that breaks the rules
 *
 * The victim is rank 1 of 3 by /dev/kcollring; rank 0, and rank 2 where there is one, are
 * raw verbs of this process. The victim has two windows with a lane each: one that
 * rank 0 writes, and one that it writes itself.
 */
#include "kselftest_harness.h"
#include "rawvictim.h"

#define IN		3	/* the window with the lane from rank 0 */
#define OUT		4	/* ... to rank 0 */
#define DEPTH		4
#define CAPACITY	4000
#define STRIDE		KCR_SLOT_STRIDE(CAPACITY)
#define BYTES		(DEPTH * STRIDE)

static const struct kcr_lane_desc in_list = { 0, 1, DEPTH, CAPACITY };
static const struct kcr_lane_desc out_list = { 1, 0, DEPTH, CAPACITY };

FIXTURE(lanes) {
	struct dev_counters before;
	struct victim v;
	struct raw low;
	struct raw high;
	unsigned int said;	/* messages that needed a credit */
	struct mesh_lane in;
	struct mesh_lane out;
	struct raw_lane in_key;	/* as the victim told it */
	struct raw_lane out_key;
	/* What the victim may write. */
	unsigned char *memory;
	struct ibv_mr *mr;
};

/* 0, or -ETIME if there is none for long. */
static int take_credit(struct _test_data_lanes *self)
{
	if (!DEV_SOON(10, ({ raw_poll(&self->low);
			     self->said - self->low.credits < RAW_CREDITS &&
			     self->low.sending < RAW_SENDS - 1; })))
		return -ETIME;
	self->said++;
	return 0;
}

/* With a credit for it; 0 or an error. */
static int say(struct _test_data_lanes *self, const struct raw_message *m)
{
	return take_credit(self) ?: raw_say(&self->low, m);
}

/* Likewise, by a write that writes nothing. */
static int ring(struct _test_data_lanes *self, __u32 imm)
{
	return take_credit(self) ?: raw_write(&self->low, NULL, 0, 0, imm);
}

/* Give all credits back. */
static int give_back(struct _test_data_lanes *self)
{
	struct raw_message m = raw_message(RAW_CREDIT);

	m.credits = self->low.owed;
	self->low.owed = 0;
	return m.credits ? raw_say(&self->low, &m) : 0;
}

static int say_of_end(struct _test_data_lanes *self, __u8 type, __u8 window, __u16 source,
		      __u64 seen)
{
	struct raw_message m = raw_about_end(type, window, source, seen);

	return say(self, &m);
}

/* The victim makes a window; its word of it. */
static int make(struct _test_data_lanes *self, __u8 window, const struct kcr_lane_desc *list,
		struct mesh_lane *lane, struct raw_lane *key)
{
	int err;

	self->low.heard[RAW_LANE] = 0;
	err = mesh_window(self->v.fd, window, list, 1);
	if (!err)
		err = mesh_lane_map(lane, self->v.fd, 1, window, list, 1, 0);
	if (err)
		return err;
	if (!raw_hears(&self->low, RAW_LANE, 10))
		return -ETIME;
	*key = self->low.last[RAW_LANE].lane;
	return 0;
}

/* This side's word: of the slots in its memory, or of an acknowledgement there. */
static int tell(struct _test_data_lanes *self, __u8 window, const struct kcr_lane_desc *list)
{
	struct raw_message m = raw_about_lane(window, list->source, list->destination,
					      list->depth, list->capacity);

	m.lane.flags = RAW_LANE_HEARD;
	for (int i = 0; i < 10; i++)
		m.lane.rkeys[i] = self->mr->rkey;
	return say(self, &m);
}

#define READY(lane) DEV_SOON(10, mesh_lane_state(lane) == KCR_LANE_READY)

FIXTURE_SETUP(lanes)
{
	const char *missing = mesh_missing();

	self->v.fd = -1;
	if (missing)
		SKIP(return, "%s", missing);
	self->before = dev_counters();
	ASSERT_EQ(0, victim_join(&self->v));
	self->low = raw_peer(&self->v.world, 0, 1, true);
	self->low.is_greedy = true;
	self->high = raw_peer(&self->v.world, 1, 2, false);
	ASSERT_EQ(0, victim_expect(&self->v, 20000));
	ASSERT_EQ(0, raw_come_up(&self->low));
	ASSERT_EQ(KCR_CONN_UP, mesh_state(self->v.low));
	self->memory = aligned_alloc(4096, dev_pages(BYTES));
	ASSERT_NE(NULL, self->memory);
	memset(self->memory, 0, dev_pages(BYTES));
	/* An address is an offset. */
	self->mr = ibv_reg_mr_iova(self->low.pd, self->memory, dev_pages(BYTES), 0,
				   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	ASSERT_NE(NULL, self->mr);
	ASSERT_EQ(0, make(self, IN, &in_list, &self->in, &self->in_key));
	ASSERT_EQ(0, make(self, OUT, &out_list, &self->out, &self->out_key));
}

/* The device must let go of the memory before the queue pair's domain goes. */
static void leave(struct _test_data_lanes *self)
{
	if (self->mr) {
		if (self->low.id && self->low.id->qp)
			rdma_destroy_qp(self->low.id);
		ibv_dereg_mr(self->mr);
	}
	self->mr = NULL;
	raw_close(&self->low);
	raw_close(&self->high);
	mesh_lane_unmap(&self->in);
	mesh_lane_unmap(&self->out);
	victim_free(&self->v);
}

FIXTURE_TEARDOWN(lanes)
{
	if (self->v.fd < 0)
		return;
	leave(self);
	free(self->memory);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
}

static void expect_up(struct __test_metadata *_metadata, struct _test_data_lanes *self)
{
	dev_sleep(0.2);
	EXPECT_EQ(KCR_CONN_UP, mesh_state(self->v.low)) {
		MESH_LOG(self->v.low);
	}
	EXPECT_EQ(0, dev_cause(self->v.status));
}

/* The connection to this rank has broken, and the world with it. */
static void expect_broken_by(struct __test_metadata *_metadata, struct _test_data_lanes *self,
			     struct kcr_conn_status *s, __u32 rank, __u32 reason, __u32 error)
{
	EXPECT_TRUE(DEV_SOON(10, mesh_state(s) == KCR_CONN_FAILED));
	EXPECT_EQ(reason, s->reason) {
		MESH_LOG(s);
	}
	EXPECT_EQ(error, s->error);
	EXPECT_TRUE(DEV_SOON(10, dev_cause(self->v.status)));
	EXPECT_EQ(KCR_CAUSE(rank, error), dev_cause(self->v.status));
}

static void expect_broken(struct __test_metadata *_metadata, struct _test_data_lanes *self,
			  __u32 reason, __u32 error)
{
	expect_broken_by(_metadata, self, self->v.low, 0, reason, error);
}

/* What the device itself refuses: nothing of it is to be seen by the victim's process. */
static void expect_refused(struct __test_metadata *_metadata, struct _test_data_lanes *self,
			   __u32 rkey, __u64 address, size_t bytes)
{
	memset(self->low.memory + RAW_SEND_AT, 0xee, bytes > 64 ? bytes : 64);
	ASSERT_EQ(0, raw_post(&self->low, IBV_WR_RDMA_WRITE, NULL, bytes, rkey, address, 0));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, raw_sent(&self->low));
	expect_broken(_metadata, self, KCR_REASON_COMPLETION, EHOSTUNREACH);
	for (int i = 0; i < 16; i++)
		EXPECT_EQ(0, ((unsigned char *)self->out.ack)[i]);
	EXPECT_EQ(0, self->in.slots[0]);
	EXPECT_EQ(0, self->in.slots[BYTES - 1]);
}

static int write_slot(struct _test_data_lanes *self, __u64 address, const void *data, size_t bytes)
{
	return raw_post(&self->low, IBV_WR_RDMA_WRITE, data, bytes, self->in_key.rkeys[0],
			address, 0) ?: raw_sent(&self->low);
}

/* ---- as it should be ---- */

TEST_F(lanes, proper)
{
	static const struct { __u64 sequence; __u32 length, checksum; __u64 guard; } slot = {
		5, 0, 0, ~5ull,
	};
	struct kcr_ack ack = { 7, ~7ull };

	EXPECT_EQ(IN, self->in_key.window);
	EXPECT_EQ(0, self->in_key.flags);
	EXPECT_EQ(0, self->in_key.source);
	EXPECT_EQ(1, self->in_key.destination);
	EXPECT_EQ(DEPTH, self->in_key.depth);
	EXPECT_EQ(CAPACITY, self->in_key.capacity);
	EXPECT_EQ(0, self->in_key.rkeys[1]);
	EXPECT_NE(self->in_key.rkeys[0], self->out_key.rkeys[0]);
	ASSERT_EQ(0, tell(self, IN, &in_list));
	ASSERT_EQ(0, tell(self, OUT, &out_list));
	ASSERT_TRUE(READY(&self->in));
	ASSERT_TRUE(READY(&self->out));
	/* All of the slots, to the last byte. */
	ASSERT_EQ(0, write_slot(self, 0, &slot, sizeof(slot)));
	ASSERT_EQ(0, write_slot(self, BYTES - sizeof(slot), &slot, sizeof(slot)));
	EXPECT_EQ(0, memcmp(self->in.slots, &slot, sizeof(slot)));
	EXPECT_EQ(0, memcmp(self->in.slots + BYTES - sizeof(slot), &slot, sizeof(slot)));
	ASSERT_EQ(0, raw_post(&self->low, IBV_WR_RDMA_WRITE, &ack, sizeof(ack),
			      self->out_key.rkeys[0], 0, 0));
	ASSERT_EQ(0, raw_sent(&self->low));
	EXPECT_EQ(0, memcmp(self->out.ack, &ack, sizeof(ack)));
	for (__u64 s = 1; s <= 2 * DEPTH; s++) {
		mesh_slot_write(&self->out, s, s * 400);
		ASSERT_EQ(0, mesh_put(self->v.fd, OUT, 0, s, 1));
		ASSERT_TRUE(DEV_SOON(10, mesh_lane_done(&self->out) == s));
		EXPECT_EQ(0, memcmp(mesh_slot(&self->out, s), self->memory +
				    (s - 1) % DEPTH * STRIDE, KCR_SLOT_GUARD(s * 400) + 8));
	}
	self->in.ack->sequence = 99;
	ASSERT_EQ(0, mesh_ack(self->v.fd, IN, 0));
	EXPECT_TRUE(DEV_SOON(10, *(volatile __u64 *)self->memory == 99));
	expect_up(_metadata, self);
}

/* What is not heard is asked for again, and then told. */
TEST_F(lanes, told_again)
{
	struct raw_message m = raw_about_lane(IN, 0, 1, DEPTH, CAPACITY);

	for (int i = 0; i < 100; i++) {
		self->low.heard[RAW_LANE] = 0;
		ASSERT_EQ(0, say(self, &m));
		ASSERT_TRUE(raw_hears(&self->low, RAW_LANE, 10));
		EXPECT_EQ(IN, self->low.last[RAW_LANE].lane.window);
		EXPECT_EQ(RAW_LANE_HEARD, self->low.last[RAW_LANE].lane.flags);
		EXPECT_EQ(self->in_key.rkeys[0], self->low.last[RAW_LANE].lane.rkeys[0]);
		ASSERT_EQ(0, give_back(self));
	}
	expect_up(_metadata, self);
}

/* ---- what it may not reach ---- */

TEST_F(lanes, before_the_slots)
{
	expect_refused(_metadata, self, self->in_key.rkeys[0], -8ull, 16);
}

TEST_F(lanes, behind_the_slots)
{
	expect_refused(_metadata, self, self->in_key.rkeys[0], BYTES, 8);
}

TEST_F(lanes, across_their_end)
{
	expect_refused(_metadata, self, self->in_key.rkeys[0], BYTES - 64, 65);
}

TEST_F(lanes, behind_the_acknowledgement)
{
	expect_refused(_metadata, self, self->out_key.rkeys[0], 16, 8);
}

TEST_F(lanes, across_its_end)
{
	expect_refused(_metadata, self, self->out_key.rkeys[0], 8, 16);
}

TEST_F(lanes, another_key)
{
	expect_refused(_metadata, self, self->in_key.rkeys[0] ^ 0x55, 0, 8);
}

/* Rank 2, too, with a lane to the victim: the key that it is given. */
static void let_high_up(struct __test_metadata *_metadata, struct _test_data_lanes *self,
			struct mesh_lane *theirs, __u32 *rkey)
{
	static const struct kcr_lane_desc list = { 2, 1, DEPTH, CAPACITY };

	ASSERT_EQ(0, raw_listen(&self->high, RAW_PORT));
	ASSERT_EQ(0, victim_connect(&self->v, RAW_PORT, 20000));
	ASSERT_EQ(0, raw_let_up(&self->high));
	ASSERT_TRUE(DEV_SOON(10, mesh_is_up(self->v.high)));
	ASSERT_EQ(0, mesh_window(self->v.fd, 9, &list, 1));
	ASSERT_EQ(0, mesh_lane_map(theirs, self->v.fd, 1, 9, &list, 1, 0));
	ASSERT_TRUE(raw_hears(&self->high, RAW_LANE, 10));
	*rkey = self->high.last[RAW_LANE].lane.rkeys[0];
}

/* The lane that the victim has with rank 2, by the key that rank 2 has. */
TEST_F(lanes, of_another)
{
	struct mesh_lane theirs = { };
	__u32 rkey;

	let_high_up(_metadata, self, &theirs, &rkey);
	expect_refused(_metadata, self, rkey, 0, 8);
	EXPECT_EQ(0, theirs.slots[0]);
	mesh_lane_unmap(&theirs);
}

/* What may be written may not be read, nor changed by an atomic. */
static void expect_not_taken(struct __test_metadata *_metadata, struct _test_data_lanes *self,
			     enum ibv_wr_opcode opcode)
{
	const __u64 written = 0x0123456789abcdefULL;

	ASSERT_EQ(0, write_slot(self, 0, &written, sizeof(written)));
	EXPECT_EQ(IBV_WC_REM_INV_REQ_ERR, raw_take(&self->low, opcode, self->in_key.rkeys[0], 0,
						   written));
	EXPECT_FALSE(raw_has_taken(&self->low));
	EXPECT_EQ(0, memcmp(self->in.slots, &written, sizeof(written)));
	expect_broken(_metadata, self, KCR_REASON_COMPLETION, EHOSTUNREACH);
}

TEST_F(lanes, read)
{
	expect_not_taken(_metadata, self, IBV_WR_RDMA_READ);
}

TEST_F(lanes, compare_and_swap)
{
	expect_not_taken(_metadata, self, IBV_WR_ATOMIC_CMP_AND_SWP);
}

TEST_F(lanes, fetch_and_add)
{
	expect_not_taken(_metadata, self, IBV_WR_ATOMIC_FETCH_AND_ADD);
}

/* The acknowledgement of a lane out, too. */
TEST_F(lanes, acknowledgement_by_an_atomic)
{
	EXPECT_EQ(IBV_WC_REM_INV_REQ_ERR,
		  raw_take(&self->low, IBV_WR_ATOMIC_FETCH_AND_ADD, self->out_key.rkeys[0], 0, 1));
	EXPECT_FALSE(raw_has_taken(&self->low));
	for (int i = 0; i < 16; i++)
		EXPECT_EQ(0, ((unsigned char *)self->out.ack)[i]);
	expect_broken(_metadata, self, KCR_REASON_COMPLETION, EHOSTUNREACH);
}

static long pages_of(struct _test_data_lanes *self)
{
	struct kcr_info info;
	int err = dev_info(&self->v.world, 1, &info);

	return err ? err : (long)info.pages;
}

/*
 * Until it has agreed, what it writes goes to pages that are still there for it;
 * afterwards nowhere, and the victim has its pages back.
 */
TEST_F(lanes, detached)
{
	long before = pages_of(self), mrs = dev_read_number(MESH_COUNTERS "mrs");

	ASSERT_EQ(0, tell(self, IN, &in_list));
	ASSERT_TRUE(READY(&self->in));
	ASSERT_EQ(0, dev_detach(self->v.fd, IN));
	ASSERT_TRUE(raw_hears(&self->low, RAW_UNLANE, 10));
	EXPECT_EQ(IN, self->low.last[RAW_UNLANE].end.window);
	EXPECT_EQ(0, self->low.last[RAW_UNLANE].end.source);
	ASSERT_EQ(0, write_slot(self, 0, "late", 5));
	EXPECT_STREQ("late", (char *)self->in.slots);
	EXPECT_EQ(-EBUSY, mesh_window(self->v.fd, IN, &in_list, 1));
	/* Nothing of that is done for the asking. */
	ASSERT_EQ(0, say_of_end(self, RAW_ARM, IN, 0, 0));
	ASSERT_EQ(0, say_of_end(self, RAW_ARM, IN, 0, 0));
	ASSERT_EQ(0, tell(self, IN, &in_list));
	ASSERT_EQ(0, say_of_end(self, RAW_UNLANED, IN, 0, 0));
	ASSERT_TRUE(DEV_SOON(10, dev_read_number(MESH_COUNTERS "mrs") == mrs - 1));
	mesh_lane_unmap(&self->in);
	/* Two pages of slots and more, its acknowledgement, and its status. */
	EXPECT_TRUE(DEV_SOON(10, pages_of(self) == before - (long)dev_pages(BYTES) / 4096 - 2));
	EXPECT_EQ(KCR_CONN_UP, mesh_state(self->v.low));
	ASSERT_EQ(0, raw_post(&self->low, IBV_WR_RDMA_WRITE, NULL, 8, self->in_key.rkeys[0], 0,
			      0));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, raw_sent(&self->low));
	expect_broken(_metadata, self, KCR_REASON_COMPLETION, EHOSTUNREACH);
}

/* ... and says so in the middle of what it writes, with nothing behind that. */
TEST_F_TIMEOUT(lanes, agrees_and_writes, 60)
{
	struct raw_message m = raw_about_end(RAW_UNLANED, IN, 0, 0);

	ASSERT_EQ(0, tell(self, IN, &in_list));
	ASSERT_EQ(0, dev_detach(self->v.fd, IN));
	ASSERT_TRUE(raw_hears(&self->low, RAW_UNLANE, 10));
	ASSERT_EQ(0, say(self, &m));
	for (int i = 0; i < 40; i++)
		ASSERT_EQ(0, raw_post(&self->low, IBV_WR_RDMA_WRITE, NULL, BYTES,
				      self->in_key.rkeys[0], 0, 0));
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, raw_sent(&self->low));
	expect_broken(_metadata, self, KCR_REASON_COMPLETION, EHOSTUNREACH);
}

/* It never agrees: the victim can still go, with all that it has. */
TEST_F(lanes, never_agrees)
{
	ASSERT_EQ(0, tell(self, IN, &in_list));
	ASSERT_EQ(0, dev_detach(self->v.fd, IN));
	ASSERT_EQ(0, dev_detach(self->v.fd, OUT));
	ASSERT_TRUE(raw_hears(&self->low, RAW_UNLANE, 10));
	dev_sleep(0.3);
	EXPECT_EQ(-EBUSY, mesh_window(self->v.fd, IN, &in_list, 1));
	EXPECT_EQ(-EBUSY, mesh_window(self->v.fd, OUT, &out_list, 1));
	expect_up(_metadata, self);
}

/* Agreed to, of what was not asked. */
TEST_F(lanes, agrees_unasked)
{
	ASSERT_EQ(0, say_of_end(self, RAW_UNLANED, IN, 0, 0));
	expect_broken(_metadata, self, KCR_REASON_PROTOCOL, EBADMSG);
}

TEST_F(lanes, agrees_twice)
{
	ASSERT_EQ(0, dev_detach(self->v.fd, IN));
	ASSERT_TRUE(raw_hears(&self->low, RAW_UNLANE, 10));
	ASSERT_EQ(0, say_of_end(self, RAW_UNLANED, IN, 0, 0));
	ASSERT_EQ(0, say_of_end(self, RAW_UNLANED, IN, 0, 0));
	expect_broken(_metadata, self, KCR_REASON_PROTOCOL, EBADMSG);
}

/* ---- what it says ---- */

/* Lanes that are not the victim's, of any depth and capacity. */
TEST_F(lanes, unequal)
{
	static const struct kcr_lane_desc wrong[] = {
		{ 0, 1, 0, 0 }, { 0, 1, ~0u, ~0u }, { 0, 1, DEPTH + 1, CAPACITY },
	};

	for (int i = 0; i < ARRAY_SIZE(wrong); i++) {
		ASSERT_EQ(0, tell(self, 7 + i, &wrong[i]));
		ASSERT_EQ(0, tell(self, IN, &wrong[i]));
		/* The first word counts. */
		ASSERT_EQ(0, tell(self, IN, &in_list));
		EXPECT_TRUE(DEV_SOON(10, mesh_lane_state(&self->in) == KCR_LANE_UNEQUAL));
		EXPECT_EQ(wrong[0].depth, self->in.status->peer_depth);
		EXPECT_EQ(wrong[0].capacity, self->in.status->peer_capacity);
	}
	EXPECT_EQ(-EPROTO, mesh_ack(self->v.fd, IN, 0));
	expect_up(_metadata, self);
}

/* Keys that lead nowhere hurt none but the one who gave them. */
TEST_F(lanes, keys_to_nothing)
{
	struct raw_message m = raw_about_lane(OUT, 1, 0, DEPTH, CAPACITY);

	m.lane.rkeys[0] = self->mr->rkey ^ 0x55;
	ASSERT_EQ(0, say(self, &m));
	ASSERT_TRUE(READY(&self->out));
	/* Others, later, are not taken. */
	ASSERT_EQ(0, tell(self, OUT, &out_list));
	mesh_slot_write(&self->out, 1, 8);
	ASSERT_EQ(0, mesh_put(self->v.fd, OUT, 0, 1, 1));
	EXPECT_TRUE(DEV_SOON(10, mesh_state(self->v.low) == KCR_CONN_FAILED));
	EXPECT_EQ(KCR_REASON_COMPLETION, self->v.low->reason);
	EXPECT_EQ(EIO, self->v.low->error);
	EXPECT_EQ(0, mesh_lane_done(&self->out));
	EXPECT_TRUE(DEV_SOON(10, mesh_lane_state(&self->out) == KCR_LANE_ENDED));
}

/* Arms in a loop: no more bells than it has asked for, and nothing is kept. */
TEST_F_TIMEOUT(lanes, arms_in_a_loop, 60)
{
	int n = 2000 * dev_scale();

	ASSERT_EQ(0, tell(self, OUT, &out_list));
	ASSERT_TRUE(READY(&self->out));
	for (int i = 0; i < n; i++)
		ASSERT_EQ(0, say_of_end(self, RAW_ARM, i % 16, i % 2, i % 7));
	EXPECT_EQ(0, self->low.heard[RAW_RING]);
	mesh_slot_write(&self->out, 1, 8);
	ASSERT_EQ(0, mesh_put(self->v.fd, OUT, 0, 1, 1));
	/* Also those that it does not give credit for: then they are not said. */
	for (int i = 0; i < n; i++)
		ASSERT_EQ(0, say_of_end(self, RAW_ARM, OUT, 1, 0));
	ASSERT_TRUE(raw_hears(&self->low, RAW_RING, 10));
	raw_sent(&self->low);
	EXPECT_GE(RAW_CREDITS, self->low.heard[RAW_RING]);
	self->low.heard[RAW_RING] = 0;
	ASSERT_EQ(0, give_back(self));
	EXPECT_TRUE(raw_hears(&self->low, RAW_RING, 10));
	expect_up(_metadata, self);
}

/* It asks for several: each comes with what it is for, and there is none too many. */
TEST_F(lanes, asks_for_more)
{
	struct raw_message m = raw_about_end(RAW_ARM, OUT, 1, 0);

	ASSERT_EQ(0, tell(self, OUT, &out_list));
	ASSERT_TRUE(READY(&self->out));
	m.end.more = 2;
	ASSERT_EQ(0, say(self, &m));
	/* So that it is there before what it asks for. */
	ASSERT_EQ(0, raw_sent(&self->low));
	dev_sleep(0.1 * dev_scale());
	for (__u64 s = 1; s <= 5; s++) {
		mesh_slot_write(&self->out, s, 8);
		ASSERT_EQ(0, mesh_put(self->v.fd, OUT, 0, s, 1));
		ASSERT_TRUE(DEV_SOON(10, mesh_lane_done(&self->out) == s));
		EXPECT_TRUE(DEV_SOON(10, ({ raw_poll(&self->low);
					    self->low.rung == (s < 3 ? s : 3); })));
	}
	EXPECT_EQ(raw_rung(OUT, true), self->low.last_rung);
	EXPECT_EQ(0, self->low.heard[RAW_RING]);
	/* What is there already is told by itself. */
	m.end.seen = 4;
	ASSERT_EQ(0, say(self, &m));
	EXPECT_TRUE(raw_hears(&self->low, RAW_RING, 10));
	EXPECT_EQ(3, self->low.rung);
	expect_up(_metadata, self);
}

/* The victim asks, and has seen @seen. */
static int asks(struct _test_data_lanes *self, __u64 seen)
{
	return mesh_arm(self->v.fd, IN, 0, 0, seen);
}

static int rings(struct _test_data_lanes *self)
{
	__u64 events = dev_events(self->v.status);

	return ring(self, raw_rung(IN, true)) ?: raw_sent(&self->low) ?:
	       !DEV_SOON(10, dev_events(self->v.status) != events);
}

/* Who sleeps each time asks for more at a time, and for one again when it need not. */
TEST_F(lanes, asks_seldom)
{
	unsigned int asked = 1, said = 0;
	__u64 s = 0;

	ASSERT_EQ(0, tell(self, IN, &in_list));
	ASSERT_TRUE(READY(&self->in));
	for (int i = 0; i < 6; i++) {
		ASSERT_EQ(0, asks(self, s));
		ASSERT_TRUE(DEV_SOON(10, ({ raw_poll(&self->low);
					    self->low.heard[RAW_ARM] == said + 1; })));
		said++;
		EXPECT_EQ(asked - 1, self->low.last[RAW_ARM].end.more);
		EXPECT_EQ(s, self->low.last[RAW_ARM].end.seen);
		for (unsigned int j = 0; j < asked; j++) {
			if (j)
				ASSERT_EQ(0, asks(self, s));
			s++;
			ASSERT_EQ(0, rings(self));
		}
		EXPECT_EQ(said, self->low.heard[RAW_ARM]);
		ASSERT_EQ(0, give_back(self));
		asked = asked < RAW_RINGS ? 2 * asked : RAW_RINGS;
	}
	ASSERT_EQ(0, asks(self, s));
	for (unsigned int j = 0; j < RAW_RINGS; j++)
		ASSERT_EQ(0, rings(self));
	ASSERT_EQ(0, asks(self, s));
	ASSERT_TRUE(DEV_SOON(10, ({ raw_poll(&self->low);
				    self->low.heard[RAW_ARM] == said + 2; })));
	EXPECT_EQ(0, self->low.last[RAW_ARM].end.more);
	expect_up(_metadata, self);
}

/* Bells that nobody has asked for, and ends of lanes that there are not. */
TEST_F_TIMEOUT(lanes, noise, 60)
{
	int n = 1000 * dev_scale();

	for (int i = 0; i < n; i++) {
		ASSERT_EQ(0, say_of_end(self, RAW_RING, i % 16, i % 2, 0));
		ASSERT_EQ(0, ring(self, raw_rung(i % 16, i / 16 % 2)));
		ASSERT_EQ(0, say_of_end(self, RAW_UNLANE, 5 + i % 3, i % 2, 0));
		if (self->low.owed > RAW_CREDITS / 2)
			ASSERT_EQ(0, give_back(self));
	}
	ASSERT_TRUE(raw_hears(&self->low, RAW_UNLANED, 10));
	/* The victim's own are as they were. */
	EXPECT_EQ(KCR_LANE_WAITING, mesh_lane_state(&self->in));
	ASSERT_EQ(0, give_back(self));
	ASSERT_EQ(0, tell(self, IN, &in_list));
	ASSERT_TRUE(READY(&self->in));
	expect_up(_metadata, self);
}

/* It ends a lane while the victim puts. */
TEST_F(lanes, ends)
{
	int err;

	ASSERT_EQ(0, tell(self, OUT, &out_list));
	ASSERT_TRUE(READY(&self->out));
	for (__u64 s = 1; ; s++) {
		mesh_slot_write(&self->out, s, CAPACITY);
		if (s == 20)
			ASSERT_EQ(0, say_of_end(self, RAW_UNLANE, OUT, 1, 0));
		ASSERT_TRUE(DEV_SOON(10, ({
			err = mesh_put(self->v.fd, OUT, 0, s, 1);
			err != -ENOBUFS;
		})));
		if (err)
			break;
	}
	EXPECT_EQ(-ENOTCONN, err);
	ASSERT_TRUE(raw_hears(&self->low, RAW_UNLANED, 10));
	EXPECT_EQ(KCR_LANE_ENDED, mesh_lane_state(&self->out));
	/* All that was put is there by then. */
	EXPECT_EQ(self->out.status->put, mesh_lane_done(&self->out));
	expect_up(_metadata, self);
}

/* It is gone in the middle of a write of its own, with everything half done. */
TEST_F_TIMEOUT(lanes, vanishes, 60)
{
	ASSERT_EQ(0, tell(self, IN, &in_list));
	ASSERT_EQ(0, tell(self, OUT, &out_list));
	ASSERT_TRUE(READY(&self->out));
	mesh_slot_write(&self->out, 1, CAPACITY);
	for (int i = 0; i < 20; i++)
		ASSERT_EQ(0, raw_post(&self->low, IBV_WR_RDMA_WRITE, NULL, BYTES,
				      self->in_key.rkeys[0], 0, 0));
	ASSERT_EQ(0, dev_detach(self->v.fd, IN));
	ASSERT_EQ(0, mesh_put(self->v.fd, OUT, 0, 1, 1));
	ASSERT_EQ(0, mesh_arm(self->v.fd, OUT, 0, KCR_ARM_SOURCE, 0));
	rdma_destroy_qp(self->low.id);
	ibv_dereg_mr(self->mr);
	self->mr = NULL;
	raw_close(&self->low);
	EXPECT_TRUE(DEV_SOON(20, mesh_state(self->v.low) == KCR_CONN_FAILED));
	EXPECT_TRUE(DEV_SOON(10, dev_cause(self->v.status)));
	EXPECT_TRUE(DEV_SOON(10, dev_read_number(MESH_COUNTERS "mrs") == 0));
	EXPECT_EQ(0, dev_read_number(MESH_COUNTERS "lanes"));
}

TEST_HARNESS_MAIN
