// SPDX-License-Identifier: GPL-2.0
/*
 * Lanes between nodes: what is put, acknowledged and armed for, and what is refused
 *
 * Two ranks of one process that are connected by RDMA, each with a remote window of its
 * own. What a hostile peer tries is in mesh_hostile_lanes.c.
 */
#include "kselftest_harness.h"
#include "mesh.h"

#include <sys/resource.h>

#define RANKS 2
#define WINDOW 3
#define PAGE 4096

/* Each rank's list: lane 0 is from rank 0 to rank 1, lane 1 goes back. */
#define LANES 2

FIXTURE(lanes) {
	struct dev_counters before;
	struct mesh_ranks r;
	int *fd;
	struct kcr_status *status[RANKS];
	struct kcr_lane_desc list[LANES];
	struct mesh_lane lane[RANKS][LANES];	/* of whom, which */
};

static void begin(struct __test_metadata *_metadata, struct _test_data_lanes *self)
{
	ASSERT_EQ(0, mesh_ranks_open(&self->r, RANKS)) {
		MESH_LOG(self->r.status[0][1]);
		MESH_LOG(self->r.status[1][0]);
	}
	self->fd = self->r.fd;
	for (int i = 0; i < RANKS; i++) {
		self->status[i] = dev_status(self->fd[i]);
		ASSERT_NE(MAP_FAILED, self->status[i]);
	}
}

FIXTURE_SETUP(lanes)
{
	const char *missing = mesh_missing();

	self->r.n = 0;
	self->before = dev_counters();
	if (missing)
		SKIP(return, "%s", missing);
	begin(_metadata, self);
}

static void unmap(struct _test_data_lanes *self)
{
	for (int i = 0; i < RANKS; i++)
		for (int j = 0; j < LANES; j++)
			mesh_lane_unmap(&self->lane[i][j]);
}

static void end(struct __test_metadata *_metadata, struct _test_data_lanes *self)
{
	unmap(self);
	for (int i = 0; i < RANKS; i++) {
		if (self->status[i])
			munmap(self->status[i], sizeof(*self->status[i]));
		self->status[i] = NULL;
	}
	mesh_ranks_close(&self->r);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
}

FIXTURE_TEARDOWN(lanes)
{
	end(_metadata, self);
}

static void set_list(struct _test_data_lanes *self, __u32 depth, __u32 capacity)
{
	self->list[0] = (struct kcr_lane_desc){ 0, 1, depth, capacity };
	self->list[1] = (struct kcr_lane_desc){ 1, 0, depth, capacity };
}

static int map(struct _test_data_lanes *self, int rank)
{
	int err = 0;

	for (int j = 0; j < LANES && !err; j++)
		err = mesh_lane_map(&self->lane[rank][j], self->fd[rank], rank, WINDOW,
				    self->list, LANES, j);
	return err;
}

/* One rank's window, which may have to wait for the end of an earlier one. */
static int make(struct _test_data_lanes *self, int rank)
{
	int err = -EBUSY;

	DEV_SOON(10, ({
		err = mesh_window(self->fd[rank], WINDOW, self->list, LANES);
		err != -EBUSY;
	}));
	return err ?: map(self, rank);
}

static bool is_state(struct _test_data_lanes *self, __u32 state)
{
	for (int i = 0; i < RANKS; i++)
		for (int j = 0; j < LANES; j++)
			if (mesh_lane_state(&self->lane[i][j]) != state)
				return false;
	return true;
}

static int open_both(struct _test_data_lanes *self, __u32 depth, __u32 capacity)
{
	int err;

	set_list(self, depth, capacity);
	err = make(self, 0) ?: make(self, 1);
	if (err)
		return err;
	return DEV_SOON(10, is_state(self, KCR_LANE_READY)) ? 0 : -ETIMEDOUT;
}

/* For failures: what is known of each end. */
static void log_ends(struct __test_metadata *_metadata, struct _test_data_lanes *self)
{
	for (int i = 0; i < RANKS; i++) {
		MESH_LOG(self->r.status[i][!i]);
		for (int j = 0; j < LANES; j++)
			if (self->lane[i][j].status)
				TH_LOG("rank %d, lane %d: state %u", i, j,
				       mesh_lane_state(&self->lane[i][j]));
	}
}

static int close_both(struct _test_data_lanes *self)
{
	unmap(self);
	return dev_detach(self->fd[0], WINDOW) ?: dev_detach(self->fd[1], WINDOW);
}

/* Lane 0: its source's end and its destination's. */
#define IMAGE (&self->lane[0][0])
#define SLOTS (&self->lane[1][0])

#define COMES(sequence, length) DEV_SOON(10, mesh_slot_has(SLOTS, sequence, length))
#define IS_DONE(sequence) DEV_SOON(10, mesh_lane_done(IMAGE) == (sequence))

/* ---- what arrives ---- */

/* Every length there is; nothing behind the slot's guard is written. */
TEST_F_TIMEOUT(lanes, lengths, 120)
{
	const __u32 capacity = 300;
	unsigned char last[64];
	__u64 s = 0;

	ASSERT_EQ(0, open_both(self, 1, capacity));
	for (__u32 length = 0; length <= capacity; length++) {
		__u32 end = KCR_SLOT_GUARD(length) + 8;
		__u32 rest = KCR_SLOT_STRIDE(capacity) - end;

		rest = rest < sizeof(last) ? rest : sizeof(last);
		/* First all of it, so that there is something to spoil. */
		mesh_slot_write(IMAGE, ++s, capacity);
		ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, s, 1));
		ASSERT_TRUE(COMES(s, capacity));
		ASSERT_TRUE(IS_DONE(s));
		memcpy(last, mesh_slot(SLOTS, s) + end, rest);
		memset(mesh_slot(IMAGE, s), 0xa5, KCR_SLOT_STRIDE(capacity));
		mesh_slot_write(IMAGE, ++s, length);
		ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, s, 1));
		ASSERT_TRUE(COMES(s, length));
		ASSERT_TRUE(IS_DONE(s));
		EXPECT_EQ(0, memcmp(last, mesh_slot(SLOTS, s) + end, rest)) {
			TH_LOG("%u bytes", length);
		}
		EXPECT_EQ(s, IMAGE->status->put);
	}
}

/* Lanes of several registrations, all of whose slots are used; both ways. */
TEST_F_TIMEOUT(lanes, registrations, 120)
{
	static const struct {
		__u32 depth;
		__u32 capacity;
	} cases[] = {
		{ 1, 1 },
		{ 1, KCR_REMOTE_CAPACITY_MAX },
		{ KCR_REMOTE_PARTS, KCR_REMOTE_CAPACITY_MAX },
		{ 50, 100000 },		/* 20 in each */
		{ 61, 99999 },
		{ 3, 700000 },
		{ 40000, 40 },		/* 31744 in each */
	};

	for (int i = 0; i < ARRAY_SIZE(cases); i++) {
		__u32 depth = cases[i].depth, capacity = cases[i].capacity;
		__u32 step = depth > 1000 ? 997 : 1, each = kcr_remote_slots(capacity);
		__u64 s;

		ASSERT_EQ(0, open_both(self, depth, capacity)) {
			TH_LOG("%u slots of %u bytes", depth, capacity);
		}
		for (s = 1; s <= depth + 2; s++) {
			__u32 length = s % 5 ? capacity - s % 3 % capacity : capacity / 2;

			mesh_slot_write(IMAGE, s, length);
			ASSERT_TRUE(DEV_SOON(10, !mesh_put(self->fd[0], WINDOW, 1, s, 1))) {
				TH_LOG("%llu: %d", s, mesh_put(self->fd[0], WINDOW, 1, s, 1));
			}
			if (s % step && s % each > 1 && s < depth - 1)
				continue;
			ASSERT_TRUE(COMES(s, length)) {
				TH_LOG("slot %llu of %u of %u bytes", s, depth, length);
			}
			ASSERT_TRUE(IS_DONE(s));
		}
		mesh_slot_write(&self->lane[1][1], 1, capacity);
		ASSERT_EQ(0, mesh_put(self->fd[1], WINDOW, 0, 1, 1));
		ASSERT_TRUE(DEV_SOON(10, mesh_slot_has(&self->lane[0][1], 1, capacity)));
		ASSERT_EQ(0, close_both(self));
	}
}

/* Batches of every size, around the lane several times. */
TEST_F(lanes, batches)
{
	const __u32 depth = 7;
	__u64 s = 1;

	ASSERT_EQ(0, open_both(self, depth, 5000));
	for (__u32 round = 0; round < 3; round++) {
		for (__u32 count = 1; count <= depth; count++) {
			for (__u32 i = 0; i < count; i++)
				mesh_slot_write(IMAGE, s + i, (s + i) * 617 % 5001);
			ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, s, count));
			for (__u32 i = 0; i < count; i++)
				ASSERT_TRUE(COMES(s + i, (s + i) * 617 % 5001));
			s += count;
			ASSERT_TRUE(IS_DONE(s - 1));
		}
	}
}

/* More slots than requests in one post, of several pieces each. */
TEST_F(lanes, largest_batch)
{
	ASSERT_EQ(0, open_both(self, KCR_PUT_MAX, 9000));
	for (__u64 s = 1; s <= KCR_PUT_MAX; s++)
		mesh_slot_write(IMAGE, s, 9000 - s);
	ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, 1, KCR_PUT_MAX));
	for (__u64 s = 1; s <= KCR_PUT_MAX; s++)
		ASSERT_TRUE(COMES(s, 9000 - s));
	ASSERT_TRUE(IS_DONE(KCR_PUT_MAX));
}

/* The last sequences there are. */
TEST_F(lanes, last_sequences)
{
	__u64 s;

	ASSERT_EQ(0, open_both(self, 4, 64));
	for (s = -8ull; s; s++) {
		mesh_slot_write(IMAGE, s, s % 65);
		ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, s, 1));
		ASSERT_TRUE(COMES(s, s % 65));
		ASSERT_TRUE(IS_DONE(s));
	}
	EXPECT_EQ(-EINVAL, mesh_put(self->fd[0], WINDOW, 1, 0, 1));
	EXPECT_EQ(-EALREADY, mesh_put(self->fd[0], WINDOW, 1, -1ull, 1));
	EXPECT_EQ(-EALREADY, mesh_put(self->fd[0], WINDOW, 1, 1, 1));
}

/* Whatever is in the page goes, also what is no acknowledgement. */
TEST_F(lanes, acknowledgements)
{
	struct kcr_ack *ours, *theirs;

	ASSERT_EQ(0, open_both(self, 4, 64));
	ours = SLOTS->ack;
	theirs = IMAGE->ack;
	for (__u64 s = 1; s <= 1000; s++) {
		ours->sequence = s;
		ours->complement = ~s;
		ASSERT_EQ(0, mesh_ack(self->fd[1], WINDOW, 0));
		if (s % 10 && s < 980)
			continue;
		ASSERT_TRUE(DEV_SOON(10, __atomic_load_n(&theirs->sequence, __ATOMIC_ACQUIRE) ==
				     s));
		ASSERT_TRUE(DEV_SOON(10, __atomic_load_n(&theirs->complement, __ATOMIC_ACQUIRE) ==
				     ~s));
		ASSERT_TRUE(DEV_SOON(10, __atomic_load_n(&SLOTS->status->acked,
							 __ATOMIC_ACQUIRE) == s));
	}
	ours->complement = 7;
	ours->sequence = ~0ull;
	ASSERT_EQ(0, mesh_ack(self->fd[1], WINDOW, 0));
	EXPECT_TRUE(DEV_SOON(10, __atomic_load_n(&theirs->complement, __ATOMIC_ACQUIRE) == 7));
	EXPECT_EQ(~0ull, theirs->sequence);
	/* Nothing else of the page is written. */
	for (int i = sizeof(*ours); i < PAGE; i++)
		EXPECT_EQ(0, ((unsigned char *)theirs)[i]);
}

/* ---- sleeping ---- */

static int sleeps(int fd, const struct kcr_status *status, __u64 seen, double seconds)
{
	(void)status;
	return dev_wait(fd, seen, seconds * DEV_SECOND, 0);
}

/* Long enough that an event that is under way has come. */
#define QUIET 0.5

TEST_F(lanes, armed_before)
{
	__u64 events;

	ASSERT_EQ(0, open_both(self, 4, 64));
	dev_sleep(QUIET);
	for (__u64 s = 1; s <= 20; s++) {
		events = dev_events(self->status[1]);
		ASSERT_EQ(0, mesh_arm(self->fd[1], WINDOW, 0, 0, s - 1));
		/* Once is enough. */
		ASSERT_EQ(0, mesh_arm(self->fd[1], WINDOW, 0, 0, s - 1));
		if (s < 4)
			ASSERT_EQ(-ETIMEDOUT, sleeps(self->fd[1], self->status[1], events, QUIET));
		mesh_slot_write(IMAGE, s, 10);
		ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, s, 1));
		ASSERT_EQ(0, sleeps(self->fd[1], self->status[1], events, 10));
		/* Who hears the bell finds the data. */
		EXPECT_TRUE(mesh_slot_has(SLOTS, s, 10));
	}
}

TEST_F(lanes, armed_after)
{
	__u64 events, own;

	ASSERT_EQ(0, open_both(self, 4, 64));
	mesh_slot_write(IMAGE, 1, 10);
	ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, 1, 1));
	ASSERT_TRUE(COMES(1, 10));
	dev_sleep(QUIET);
	events = dev_events(self->status[1]);
	own = dev_events(self->status[0]);
	/* Nobody was told who did not ask. */
	ASSERT_EQ(-ETIMEDOUT, sleeps(self->fd[1], self->status[1], events, QUIET));
	ASSERT_EQ(0, mesh_arm(self->fd[1], WINDOW, 0, 0, 0));
	ASSERT_EQ(0, sleeps(self->fd[1], self->status[1], events, 10));
	/* Seen: nothing newer is there. */
	events = dev_events(self->status[1]);
	ASSERT_EQ(0, mesh_arm(self->fd[1], WINDOW, 0, 0, 1));
	ASSERT_EQ(-ETIMEDOUT, sleeps(self->fd[1], self->status[1], events, QUIET));
	/* The one who puts is not woken by that. */
	EXPECT_EQ(own, dev_events(self->status[0]));
}

/* The source waits for room. */
TEST_F(lanes, armed_source)
{
	__u64 events, other;

	ASSERT_EQ(0, open_both(self, 4, 64));
	dev_sleep(QUIET);
	for (__u64 s = 1; s <= 20; s++) {
		events = dev_events(self->status[0]);
		other = dev_events(self->status[1]);
		if (s % 2)
			ASSERT_EQ(0, mesh_arm(self->fd[0], WINDOW, 1, KCR_ARM_SOURCE, s - 1));
		if (s == 1)
			ASSERT_EQ(-ETIMEDOUT, sleeps(self->fd[0], self->status[0], events, QUIET));
		SLOTS->ack->sequence = s;
		SLOTS->ack->complement = ~s;
		ASSERT_EQ(0, mesh_ack(self->fd[1], WINDOW, 0));
		if (s % 2 == 0)
			ASSERT_EQ(0, mesh_arm(self->fd[0], WINDOW, 1, KCR_ARM_SOURCE, s - 1));
		ASSERT_EQ(0, sleeps(self->fd[0], self->status[0], events, 10));
		EXPECT_EQ(s, IMAGE->ack->sequence);
		EXPECT_EQ(~s, IMAGE->ack->complement);
		EXPECT_EQ(other, dev_events(self->status[1]));
	}
}

/* ... or for the end of what is on its way. */
TEST_F_TIMEOUT(lanes, watched, 60)
{
	__u64 s, events;
	int slept = 0;

	ASSERT_EQ(0, open_both(self, 2, 500000));
	for (s = 1; s <= 20; s++) {
		mesh_slot_write(IMAGE, s, 500000);
		ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, s, 1));
		events = dev_events(self->status[0]);
		ASSERT_EQ(0, mesh_arm(self->fd[0], WINDOW, 1, KCR_ARM_SOURCE, 0));
		while (mesh_lane_done(IMAGE) < s) {
			ASSERT_EQ(0, sleeps(self->fd[0], self->status[0], events, 10));
			events = dev_events(self->status[0]);
			ASSERT_EQ(0, mesh_arm(self->fd[0], WINDOW, 1, KCR_ARM_SOURCE, 0));
			slept++;
		}
	}
	TH_LOG("slept %d times", slept);
	ASSERT_TRUE(COMES(20, 500000));
}

/*
 * A queue that is full says so, and when it is not any more. Where the device carries what
 * is posted in the poster's own time (rxe on 6.1, in a softirq), it does so for 2 ms at most:
 * one PUT here is far more than that.
 */
TEST_F_TIMEOUT(lanes, full, 60)
{
	const __u32 depth = 64, length = 256 << 10;
	int refused = 0, tries = 200;
	__u64 s, events;
	int err;

	ASSERT_EQ(0, open_both(self, depth, length));
	for (s = 1; s <= depth; s++)
		mesh_slot_write(IMAGE, s, length);
	for (s = 1; tries && refused < 3; tries--) {
		events = dev_events(self->status[0]);
		err = mesh_put(self->fd[0], WINDOW, 1, s, 32);
		if (!err) {
			s += 32;
			continue;
		}
		ASSERT_EQ(-ENOBUFS, err);
		refused++;
		ASSERT_EQ(0, sleeps(self->fd[0], self->status[0], events, 10));
	}
	TH_LOG("refused %d times in %llu", refused, s);
	EXPECT_LT(0, refused);
	ASSERT_TRUE(IS_DONE(s - 1));
	EXPECT_TRUE(mesh_ranks_are_up(&self->r));
}

/* ---- what is refused ---- */

TEST_F(lanes, sequences)
{
	int fd = self->fd[0];

	ASSERT_EQ(0, open_both(self, 4, 64));
	EXPECT_EQ(-EINVAL, mesh_put(fd, WINDOW, 1, 1, 0));
	EXPECT_EQ(-EINVAL, mesh_put(fd, WINDOW, 1, 1, 5));
	EXPECT_EQ(-EINVAL, mesh_put(fd, WINDOW, 1, 1, KCR_PUT_MAX + 1));
	EXPECT_EQ(-EINVAL, mesh_put(fd, WINDOW, 1, 1, ~0u));
	EXPECT_EQ(-EINVAL, mesh_put(fd, WINDOW, 1, 0, 1));
	EXPECT_EQ(-EINVAL, mesh_put(fd, WINDOW, 1, -3ull, 4));
	EXPECT_EQ(-EINVAL, mesh_put(fd, WINDOW, 1, -1ull, 2));
	for (__u64 s = 10; s < 14; s++)
		mesh_slot_write(IMAGE, s, 64);
	ASSERT_EQ(0, mesh_put(fd, WINDOW, 1, 10, 2));
	EXPECT_EQ(-EALREADY, mesh_put(fd, WINDOW, 1, 11, 1));
	EXPECT_EQ(-EALREADY, mesh_put(fd, WINDOW, 1, 11, 2));
	EXPECT_EQ(-EALREADY, mesh_put(fd, WINDOW, 1, 1, 1));
	EXPECT_EQ(-EINVAL, mesh_put(fd, WINDOW, 1, 13, 1));
	EXPECT_EQ(-EINVAL, mesh_put(fd, WINDOW, 1, -1ull, 1));
	EXPECT_EQ(11, IMAGE->status->put);
	ASSERT_EQ(0, mesh_put(fd, WINDOW, 1, 12, 1));
	ASSERT_TRUE(IS_DONE(12));
	EXPECT_FALSE(mesh_slot_has(SLOTS, 13, 64));
}

/* A slot that is longer than slots can be keeps all of its batch from being sent. */
TEST_F(lanes, too_long)
{
	static const __u32 lengths[] = { 65, 72, 1u << 16, 1u << 31, ~0u, ~0u - 7, ~0u - 23 };
	struct kcr_slot *slot;

	ASSERT_EQ(0, open_both(self, 4, 64));
	for (__u64 s = 1; s <= 4; s++)
		mesh_slot_write(IMAGE, s, 64);
	slot = (void *)mesh_slot(IMAGE, 3);
	for (int i = 0; i < ARRAY_SIZE(lengths); i++) {
		slot->length = lengths[i];
		EXPECT_EQ(-EMSGSIZE, mesh_put(self->fd[0], WINDOW, 1, 1, 4));
		EXPECT_EQ(-EMSGSIZE, mesh_put(self->fd[0], WINDOW, 1, 3, 1));
	}
	EXPECT_EQ(0, IMAGE->status->put);
	slot->length = 64;
	ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, 1, 4));
	ASSERT_TRUE(COMES(4, 64));
}

/* A rank has one end. */
TEST_F(lanes, ends)
{
	set_list(self, 4, 64);
	ASSERT_EQ(0, mesh_window(self->fd[0], WINDOW, self->list, 1));
	ASSERT_EQ(0, mesh_lane_map(IMAGE, self->fd[0], 0, WINDOW, self->list, 1, 0));
	/* The peer has not made its own. */
	EXPECT_EQ(-ENOBUFS, mesh_put(self->fd[0], WINDOW, 1, 1, 1));
	EXPECT_EQ(0, mesh_arm(self->fd[0], WINDOW, 1, KCR_ARM_SOURCE, 0));
	EXPECT_EQ(-ENXIO, mesh_ack(self->fd[0], WINDOW, 1));
	EXPECT_EQ(-ENXIO, mesh_arm(self->fd[0], WINDOW, 1, 0, 0));
	EXPECT_EQ(-ENXIO, mesh_put(self->fd[1], WINDOW, 0, 1, 1));
	EXPECT_EQ(-ENXIO, mesh_ack(self->fd[1], WINDOW, 0));
	EXPECT_EQ(KCR_LANE_WAITING, mesh_lane_state(IMAGE));
	ASSERT_EQ(0, mesh_window(self->fd[1], WINDOW, self->list, 1));
	ASSERT_TRUE(DEV_SOON(10, mesh_lane_state(IMAGE) == KCR_LANE_READY));
	EXPECT_EQ(0, mesh_arm(self->fd[1], WINDOW, 0, 0, 0));
	EXPECT_EQ(-ENXIO, mesh_arm(self->fd[1], WINDOW, 0, KCR_ARM_SOURCE, 0));
	EXPECT_EQ(-ENXIO, mesh_put(self->fd[1], WINDOW, 0, 1, 1));
	EXPECT_EQ(-ENOTCONN, mesh_put(self->fd[0], WINDOW, 0, 1, 1));
	EXPECT_EQ(-ENXIO, mesh_put(self->fd[0], WINDOW + 1, 1, 1, 1));
	mesh_slot_write(IMAGE, 1, 8);
	EXPECT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, 1, 1));
}

/* Lists that differ: both ends find out, and may try again. */
TEST_F(lanes, unequal)
{
	for (int i = 0; i < 4; i++) {
		for (int rank = 0; rank < RANKS; rank++) {
			set_list(self, 4, 64);
			if (rank == i % 2)
				self->list[0].depth = i < 2 ? 5 : 4;
			if (rank == i % 2)
				self->list[1].capacity = i < 2 ? 64 : 65;
			ASSERT_EQ(0, make(self, rank));
		}
		for (int rank = 0; rank < RANKS; rank++) {
			struct mesh_lane *unequal = &self->lane[rank][i / 2];
			struct mesh_lane *other = &self->lane[rank][!(i / 2)];

			EXPECT_TRUE(DEV_SOON(10, mesh_lane_state(unequal) == KCR_LANE_UNEQUAL));
			EXPECT_TRUE(DEV_SOON(10, mesh_lane_state(other) == KCR_LANE_READY));
			EXPECT_EQ(self->lane[!rank][i / 2].desc.depth, unequal->status->peer_depth);
			EXPECT_EQ(self->lane[!rank][i / 2].desc.capacity,
				  unequal->status->peer_capacity);
		}
		EXPECT_EQ(i < 2 ? -EPROTO : 0, mesh_put(self->fd[0], WINDOW, 1, 1, 1));
		EXPECT_EQ(i < 2 ? -EPROTO : 0, mesh_ack(self->fd[1], WINDOW, 0));
		EXPECT_EQ(i < 2 ? 0 : -EPROTO, mesh_put(self->fd[1], WINDOW, 0, 1, 1));
		EXPECT_EQ(i < 2 ? 0 : -EPROTO, mesh_arm(self->fd[0], WINDOW, 1, 0, 0));
		ASSERT_EQ(0, close_both(self));
	}
	ASSERT_EQ(0, open_both(self, 4, 64));
}

#define WINDOW_GIVES(want, ...) do {					\
	struct kcr_lane_desc list[] = { __VA_ARGS__ };			\
									\
	EXPECT_EQ(want, mesh_window(self->fd[0], WINDOW, list, ARRAY_SIZE(list))) {	\
		TH_LOG("%s", #__VA_ARGS__);				\
	}								\
} while (0)

TEST_F(lanes, windows)
{
	struct kcr_window args = {
		.size = sizeof(args), .flags = KCR_WINDOW_REMOTE, .window = WINDOW,
	};
	__u32 capacity;

	WINDOW_GIVES(-EINVAL, { 0, 0, 1, 1 });
	WINDOW_GIVES(-EINVAL, { 0, 2, 1, 1 });
	WINDOW_GIVES(-EINVAL, { 2, 0, 1, 1 });
	WINDOW_GIVES(-EINVAL, { 1, 1, 1, 1 });
	WINDOW_GIVES(-EINVAL, { 0, 1, 0, 1 });
	WINDOW_GIVES(-EINVAL, { 0, 1, 1, 0 });
	WINDOW_GIVES(-EINVAL, { 0, 1, 1, 1 }, { 0, 1, 2, 2 });
	WINDOW_GIVES(-EINVAL, { 0, 1, 1, KCR_REMOTE_CAPACITY_MAX + 1 });
	WINDOW_GIVES(-EINVAL, { 0, 1, 1, ~0u });
	WINDOW_GIVES(-EINVAL, { 0, 1, ~0u, 1 });
	WINDOW_GIVES(-EINVAL, { 0, 1, ~0u, ~0u });
	WINDOW_GIVES(-EINVAL, { 0, 1, KCR_REMOTE_PARTS + 1, KCR_REMOTE_CAPACITY_MAX });
	EXPECT_EQ(-EINVAL, dev_ioctl(self->fd[0], KCR_IOCTL_WINDOW, &args));
	set_list(self, 1, 1);
	args.lanes = (unsigned long)self->list;
	args.nr_lanes = 1;
	args.board_bytes = PAGE;
	EXPECT_EQ(-EINVAL, dev_ioctl(self->fd[0], KCR_IOCTL_WINDOW, &args));
	args.board_bytes = 0;
	args.flags |= KCR_WINDOW_PRIVATE;
	EXPECT_EQ(-EINVAL, dev_ioctl(self->fd[0], KCR_IOCTL_WINDOW, &args));
	args.flags = KCR_WINDOW_REMOTE | 4;
	EXPECT_EQ(-EOPNOTSUPP, dev_ioctl(self->fd[0], KCR_IOCTL_WINDOW, &args));
	args.flags = KCR_WINDOW_REMOTE;
	args.nr_lanes = KCR_MAX_LANES + 1;
	EXPECT_EQ(-EINVAL, dev_ioctl(self->fd[0], KCR_IOCTL_WINDOW, &args));
	args.nr_lanes = 1;
	args.lanes = 8;
	EXPECT_EQ(-EFAULT, dev_ioctl(self->fd[0], KCR_IOCTL_WINDOW, &args));
	for (capacity = 1; capacity <= KCR_REMOTE_CAPACITY_MAX; capacity = capacity * 3 + 1) {
		__u32 most = kcr_remote_depth_max(capacity);

		/* Whole slots in a registration, and no more of them than fit. */
		EXPECT_LE(kcr_remote_slots(capacity) * KCR_SLOT_STRIDE(capacity), 0x1f0000);
		EXPECT_GT((kcr_remote_slots(capacity) + 1) * KCR_SLOT_STRIDE(capacity), 0x1f0000);
		WINDOW_GIVES(-EINVAL, { 0, 1, most + 1, capacity });
	}
	EXPECT_EQ(0, kcr_remote_depth_max(0));
	EXPECT_EQ(0, kcr_remote_depth_max(KCR_REMOTE_CAPACITY_MAX + 1));
	/* A number is taken by the one kind of window or by the other. */
	EXPECT_EQ(-EEXIST, mesh_window(self->fd[0], 0, self->list, 1));
	ASSERT_EQ(0, mesh_window(self->fd[0], WINDOW, self->list, 2));
	EXPECT_EQ(-EEXIST, mesh_window(self->fd[0], WINDOW, self->list, 2));
	EXPECT_EQ(-EEXIST, mesh_window(self->fd[0], WINDOW, self->list, 1));
	EXPECT_EQ(-EEXIST, dev_window(self->fd[0], WINDOW, NULL, 0, PAGE));
	/* ... of this rank alone. */
	EXPECT_EQ(0, dev_window(self->fd[1], WINDOW, NULL, 0, PAGE));
	EXPECT_EQ(-EEXIST, mesh_window(self->fd[1], WINDOW, self->list, 2));
	EXPECT_EQ(0, dev_detach(self->fd[1], WINDOW));
	EXPECT_EQ(0, mesh_window(self->fd[1], WINDOW, self->list, 2));
	EXPECT_EQ(0, dev_detach(self->fd[1], WINDOW));
	EXPECT_EQ(-ENOENT, dev_detach(self->fd[1], WINDOW));
	EXPECT_EQ(0, dev_detach(self->fd[0], WINDOW));
}

/* A peer that is not connected. */
TEST_F(lanes, not_connected)
{
	struct dev_world w = dev_world(3);
	struct kcr_lane_desc list[] = { { 0, 1, 2, 8 }, { 2, 0, 2, 8 } };
	int fd = dev_member(&w, 0);

	ASSERT_LE(0, fd);
	EXPECT_EQ(-ENOTCONN, mesh_window(fd, WINDOW, list, 2));
	EXPECT_EQ(-ENOTCONN, mesh_put(fd, WINDOW, 1, 1, 1));
	EXPECT_EQ(-ENOTCONN, mesh_ack(fd, WINDOW, 2));
	EXPECT_EQ(-ENOTCONN, mesh_arm(fd, WINDOW, 2, 0, 1));
	ASSERT_EQ(0, mesh_connect(fd, 1, 0));
	EXPECT_EQ(-ENOTCONN, mesh_window(fd, WINDOW, list, 1));
	EXPECT_EQ(-ENOTCONN, mesh_put(fd, WINDOW, 1, 1, 1));
	/* By another wire than the first. */
	ASSERT_EQ(0, mesh_connect(fd, 2, 1));
	EXPECT_EQ(-ENOTCONN, mesh_window(fd, WINDOW, list + 1, 1));
	close(fd);
}

#define MAP_GIVES(want, rank, prot, part, index, bytes)			\
	EXPECT_EQ(want, dev_map_error(self->fd[rank], prot, MAP_SHARED,	\
				      KCR_MMAP_OFFSET(WINDOW, part, index), bytes))

TEST_F(lanes, mappings)
{
	const int rw = PROT_READ | PROT_WRITE;
	size_t bytes = dev_pages(40 * KCR_SLOT_STRIDE(1000));

	MAP_GIVES(-ENXIO, 0, PROT_READ, KCR_MAP_LANES, 0, PAGE);
	ASSERT_EQ(0, open_both(self, 40, 1000));
	for (int rank = 0; rank < RANKS; rank++) {
		MAP_GIVES(0, rank, rw, KCR_MAP_SLOTS, rank, bytes);
		MAP_GIVES(-EACCES, rank, rw, KCR_MAP_SLOTS, !rank, bytes);
		MAP_GIVES(0, rank, PROT_READ, KCR_MAP_SLOTS, !rank, bytes);
		MAP_GIVES(-EACCES, rank, rw, KCR_MAP_ACK, rank, PAGE);
		MAP_GIVES(0, rank, rw, KCR_MAP_ACK, !rank, PAGE);
		MAP_GIVES(-EACCES, rank, rw, KCR_MAP_LANES, 0, PAGE);
		MAP_GIVES(0, rank, PROT_READ, KCR_MAP_LANES, 0, PAGE);
		MAP_GIVES(-EINVAL, rank, PROT_READ, KCR_MAP_LANES, 1, PAGE);
		MAP_GIVES(-EINVAL, rank, PROT_READ, KCR_MAP_LANES, 0, 2 * PAGE);
		MAP_GIVES(-EINVAL, rank, PROT_READ, KCR_MAP_SLOTS, 2, bytes);
		MAP_GIVES(-EINVAL, rank, PROT_READ, KCR_MAP_SLOTS, 0, bytes + PAGE);
		MAP_GIVES(-EINVAL, rank, PROT_READ, KCR_MAP_BOARD, rank, PAGE);
		MAP_GIVES(-EPERM, rank, PROT_READ | PROT_EXEC, KCR_MAP_LANES, 0, PAGE);
		EXPECT_EQ(-EINVAL, dev_map_error(self->fd[rank], PROT_READ, MAP_SHARED,
						 KCR_MMAP_OFFSET(0, KCR_MAP_LANES, 0), PAGE));
	}
	EXPECT_EQ(-1, mprotect(SLOTS->slots, SLOTS->bytes, rw));
	EXPECT_EQ(-1, mprotect(IMAGE->ack, PAGE, rw));
	EXPECT_EQ(-1, mprotect(IMAGE->page, PAGE, rw));
}

/* ---- the forms of the commands ---- */

FIXTURE(forms) {
	struct dev_counters before;
	struct mesh_ranks r;
	struct mesh_lane image;
	struct mesh_lane slots;
};

FIXTURE_VARIANT(forms) {
	enum dev_form form;
};

FIXTURE_VARIANT_ADD(forms, ioctl) {
	.form = DEV_IOCTL,
};

FIXTURE_VARIANT_ADD(forms, uring) {
	.form = DEV_URING,
};

FIXTURE_VARIANT_ADD(forms, async) {
	.form = DEV_ASYNC,
};

FIXTURE_VARIANT_ADD(forms, sqpoll) {
	.form = DEV_SQPOLL,
};

FIXTURE_SETUP(forms)
{
	static const struct kcr_lane_desc list = { 0, 1, 4, 64 };
	const char *missing = mesh_missing();

	self->r.n = 0;
	self->before = dev_counters();
	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_EQ(0, mesh_ranks_open(&self->r, RANKS));
	for (int i = 0; i < RANKS; i++)
		ASSERT_EQ(0, mesh_window(self->r.fd[i], WINDOW, &list, 1));
	ASSERT_EQ(0, mesh_lane_map(&self->image, self->r.fd[0], 0, WINDOW, &list, 1, 0));
	ASSERT_EQ(0, mesh_lane_map(&self->slots, self->r.fd[1], 1, WINDOW, &list, 1, 0));
	ASSERT_TRUE(DEV_SOON(10, mesh_lane_state(&self->image) == KCR_LANE_READY));
	ASSERT_TRUE(DEV_SOON(10, mesh_lane_state(&self->slots) == KCR_LANE_READY));
}

FIXTURE_TEARDOWN(forms)
{
	mesh_lane_unmap(&self->image);
	mesh_lane_unmap(&self->slots);
	mesh_ranks_close(&self->r);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
}

#define CALL(rank, op, args)						\
	dev_command(variant->form, self->r.fd[rank], op, args, sizeof(*(args)))

/* What @right gives once @change is made to it. */
#define CHANGED(want, rank, op, right, change) do {			\
	typeof(right) a = (right);					\
									\
	change;								\
	EXPECT_EQ(want, CALL(rank, op, &a)) {				\
		TH_LOG("with %s", #change);				\
	}								\
} while (0)

TEST_F(forms, arguments)
{
	struct kcr_put put = {
		.size = sizeof(put), .window = WINDOW, .peer = 1, .sequence = 1, .count = 1,
	};
	struct kcr_put_ack ack = { .size = sizeof(ack), .window = WINDOW };
	struct kcr_arm arm = { .size = sizeof(arm), .window = WINDOW };

	CHANGED(-EOPNOTSUPP, 0, KCR_CMD_PUT, put, a.flags = 1);
	CHANGED(-EOPNOTSUPP, 0, KCR_CMD_PUT, put, a.reserved = 1);
	CHANGED(-EINVAL, 0, KCR_CMD_PUT, put, a.size--);
	CHANGED(-EINVAL, 0, KCR_CMD_PUT, put, a.window = KCR_MAX_WINDOWS);
	CHANGED(-EINVAL, 0, KCR_CMD_PUT, put, a.window = ~0);
	CHANGED(-EINVAL, 0, KCR_CMD_PUT, put, a.peer = RANKS);
	CHANGED(-EINVAL, 0, KCR_CMD_PUT, put, a.peer = ~0);
	CHANGED(-EINVAL, 0, KCR_CMD_PUT, put, a.sequence = 0);
	CHANGED(-EINVAL, 0, KCR_CMD_PUT, put, a.count = 0);
	CHANGED(-EINVAL, 0, KCR_CMD_PUT, put, a.count = 5);
	CHANGED(-EINVAL, 0, KCR_CMD_PUT, put, a.count = ~0);
	CHANGED(-ENOTCONN, 0, KCR_CMD_PUT, put, a.peer = 0);
	CHANGED(-EOPNOTSUPP, 1, KCR_CMD_ACK, ack, a.flags = 1);
	CHANGED(-EINVAL, 1, KCR_CMD_ACK, ack, a.size--);
	CHANGED(-EINVAL, 1, KCR_CMD_ACK, ack, a.window = KCR_MAX_WINDOWS);
	CHANGED(-EINVAL, 1, KCR_CMD_ACK, ack, a.peer = RANKS);
	CHANGED(-ENXIO, 1, KCR_CMD_ACK, ack, a.window = 0);
	CHANGED(-EOPNOTSUPP, 1, KCR_CMD_ARM, arm, a.flags = 2);
	CHANGED(-EINVAL, 1, KCR_CMD_ARM, arm, a.size--);
	CHANGED(-EINVAL, 1, KCR_CMD_ARM, arm, a.window = KCR_MAX_WINDOWS);
	CHANGED(-EINVAL, 1, KCR_CMD_ARM, arm, a.peer = RANKS);
	CHANGED(-ENXIO, 1, KCR_CMD_ARM, arm, a.flags = KCR_ARM_SOURCE);
	EXPECT_EQ(0, self->image.status->put);
	ASSERT_EQ(0, dev_leave(self->r.fd[0]));
	EXPECT_EQ(-ESHUTDOWN, CALL(0, KCR_CMD_PUT, &put));
}

TEST_F(forms, works)
{
	struct kcr_put put = {
		.size = sizeof(put), .window = WINDOW, .peer = 1, .sequence = 1, .count = 1,
	};
	struct kcr_put_ack ack = { .size = sizeof(ack), .window = WINDOW };
	struct kcr_arm arm = { .size = sizeof(arm), .window = WINDOW };
	struct kcr_status *status = dev_status(self->r.fd[1]);
	__u64 events;

	ASSERT_NE(MAP_FAILED, status);
	for (__u64 s = 1; s <= 10; s++) {
		events = dev_events(status);
		arm.seen = s - 1;
		ASSERT_EQ(0, CALL(1, KCR_CMD_ARM, &arm));
		mesh_slot_write(&self->image, s, s);
		put.sequence = s;
		ASSERT_EQ(0, CALL(0, KCR_CMD_PUT, &put));
		EXPECT_EQ(-EALREADY, CALL(0, KCR_CMD_PUT, &put));
		/* A wait by ioctl may be interrupted by what io_uring has to do. */
		ASSERT_TRUE(DEV_SOON(10, dev_events(status) != events));
		EXPECT_TRUE(DEV_SOON(10, mesh_slot_has(&self->slots, s, s)));
		self->slots.ack->sequence = s;
		self->slots.ack->complement = ~s;
		ASSERT_EQ(0, CALL(1, KCR_CMD_ACK, &ack));
		ASSERT_TRUE(DEV_SOON(10, __atomic_load_n(&self->image.ack->complement,
							 __ATOMIC_ACQUIRE) == ~s));
	}
	munmap(status, sizeof(*status));
}

/* ---- who pays, and how it ends ---- */

static long pages_of(const struct dev_world *w, int rank)
{
	struct kcr_info info;
	int err = dev_info(w, rank, &info);

	return err ? err : (long)info.pages;
}

TEST_F(lanes, pages)
{
	long before[RANKS], more;

	for (int i = 0; i < RANKS; i++)
		before[i] = pages_of(&self->r.world, i);
	for (int round = 0; round < 5; round++) {
		ASSERT_EQ(0, open_both(self, 10 + round, 5000));
		/* Image, slots, two acknowledgements, and the page of both lanes. */
		more = 2 * IMAGE->bytes / PAGE + 3;
		for (int i = 0; i < RANKS; i++)
			EXPECT_EQ(before[i] + more, pages_of(&self->r.world, i));
		mesh_slot_write(IMAGE, 1, 5000);
		EXPECT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, 1, 1));
		ASSERT_EQ(0, close_both(self));
		for (int i = 0; i < RANKS; i++)
			EXPECT_TRUE(DEV_SOON(10, before[i] == pages_of(&self->r.world, i)));
	}
	EXPECT_TRUE(mesh_ranks_are_up(&self->r));
}

static void short_of_memlock(void *arg)
{
	static const struct kcr_lane_desc list = { 0, 1, 2, 4000 };
	struct rlimit limit, low;
	struct mesh_ranks r;
	long pages;

	CHILD_GIVES(0, dev_become_nobody());
	CHILD_GIVES(0, getrlimit(RLIMIT_MEMLOCK, &limit));
	CHILD_GIVES(0, mesh_ranks_open(&r, RANKS));
	pages = pages_of(&r.world, 0);
	/* Both ranks are this process; the window has 2 pages of slots, and 2 more. */
	for (int fewer = 4; fewer >= 0; fewer--) {
		low = limit;
		low.rlim_cur = (pages + pages_of(&r.world, 1) + 4 - fewer) * PAGE;
		CHILD_GIVES(0, setrlimit(RLIMIT_MEMLOCK, &low));
		CHILD_GIVES(fewer ? -ENOMEM : 0, mesh_window(r.fd[0], WINDOW, &list, 1));
		CHILD_GIVES(fewer ? pages : pages + 4, pages_of(&r.world, 0));
	}
}

TEST_F(lanes, memlock)
{
	EXPECT_EQ(0, dev_child_status(dev_child(short_of_memlock, NULL), 20));
}

/* What is mapped stays; what was put arrives; the other end learns of it. */
TEST_F(lanes, detached)
{
	struct mesh_lane image, slots;

	ASSERT_EQ(0, open_both(self, 2, 300000));
	image = *IMAGE;
	slots = *SLOTS;
	mesh_slot_write(IMAGE, 1, 300000);
	mesh_slot_write(IMAGE, 2, 299999);
	ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, 1, 2));
	ASSERT_EQ(0, dev_detach(self->fd[0], WINDOW));
	EXPECT_EQ(-ENXIO, mesh_put(self->fd[0], WINDOW, 1, 3, 1));
	EXPECT_EQ(-ENOENT, dev_detach(self->fd[0], WINDOW));
	EXPECT_TRUE(COMES(1, 300000));
	EXPECT_TRUE(COMES(2, 299999));
	EXPECT_TRUE(DEV_SOON(10, mesh_lane_state(SLOTS) == KCR_LANE_ENDED));
	EXPECT_EQ(-ENOTCONN, mesh_ack(self->fd[1], WINDOW, 0));
	EXPECT_EQ(-ENOTCONN, mesh_put(self->fd[1], WINDOW, 0, 1, 1));
	EXPECT_EQ(-ENOTCONN, mesh_arm(self->fd[1], WINDOW, 0, 0, 2));
	/* A new one waits for the peer to have a new one, too. */
	ASSERT_TRUE(DEV_SOON(10, mesh_window(self->fd[0], WINDOW, self->list, 2) == 0));
	dev_sleep(0.3);
	EXPECT_EQ(-ENOBUFS, mesh_put(self->fd[0], WINDOW, 1, 1, 1));
	EXPECT_EQ(KCR_LANE_ENDED, mesh_lane_state(SLOTS));
	EXPECT_TRUE(mesh_slot_has(&slots, 2, 299999));
	EXPECT_EQ(0, memcmp(image.slots, slots.slots, KCR_SLOT_GUARD(300000) + 8));
	ASSERT_EQ(0, dev_detach(self->fd[1], WINDOW));
	unmap(self);
	ASSERT_EQ(0, map(self, 0));
	ASSERT_EQ(0, make(self, 1));
	ASSERT_TRUE(DEV_SOON(10, is_state(self, KCR_LANE_READY)));
	EXPECT_EQ(0, mesh_slot(SLOTS, 1)[0]);
	mesh_slot_write(IMAGE, 1, 7);
	ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, 1, 1));
	EXPECT_TRUE(COMES(1, 7));
	EXPECT_TRUE(mesh_ranks_are_up(&self->r));
}

/* Again and again, one or the other or both first, with traffic in both directions. */
TEST_F_TIMEOUT(lanes, comes_and_goes, 120)
{
	int rounds = 60 * dev_scale();

	for (int round = 0; round < rounds; round++) {
		ASSERT_EQ(0, open_both(self, 3, 100 + round % 7 * 40000)) {
			TH_LOG("round %d", round);
			log_ends(_metadata, self);
		}
		for (__u64 s = 1; s <= 3; s++) {
			mesh_slot_write(IMAGE, s, 100);
			mesh_slot_write(&self->lane[1][1], s, 99);
		}
		ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, 1, 3));
		ASSERT_EQ(0, mesh_put(self->fd[1], WINDOW, 0, 1, 3));
		ASSERT_EQ(0, mesh_ack(self->fd[1], WINDOW, 0));
		ASSERT_EQ(0, mesh_arm(self->fd[0], WINDOW, 1, round % 2, round % 4));
		ASSERT_EQ(0, mesh_arm(self->fd[1], WINDOW, 0, round % 3 == 0, 3));
		if (round % 2)
			unmap(self);
		ASSERT_EQ(0, dev_detach(self->fd[round % 3 == 0], WINDOW));
		if (round % 4 == 0)
			dev_sleep(0.01);
		ASSERT_EQ(0, dev_detach(self->fd[round % 3 != 0], WINDOW));
		unmap(self);
	}
	EXPECT_TRUE(mesh_ranks_are_up(&self->r));
}

/* K12: everything goes at once, and what is mapped can be looked at. */
TEST_F(lanes, touched_after_close)
{
	ASSERT_EQ(0, open_both(self, 2, 100000));
	mesh_slot_write(IMAGE, 1, 100000);
	ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, 1, 1));
	ASSERT_TRUE(COMES(1, 100000));
	for (int i = 0; i < RANKS; i++) {
		close(self->fd[i]);
		self->fd[i] = -1;
		EXPECT_TRUE(mesh_slot_has(SLOTS, 1, 100000));
		mesh_slot_write(IMAGE, 2, 100000);
		EXPECT_EQ(0, IMAGE->ack->sequence);
		EXPECT_TRUE(DEV_SOON(10, is_state(self, KCR_LANE_ENDED)));
	}
}

/* A rank that leaves: what it had put arrives; nobody can put any more. */
TEST_F(lanes, leaves)
{
	ASSERT_EQ(0, open_both(self, 2, 300000));
	mesh_slot_write(IMAGE, 1, 300000);
	ASSERT_EQ(0, mesh_put(self->fd[0], WINDOW, 1, 1, 1));
	ASSERT_EQ(0, dev_leave(self->fd[0]));
	EXPECT_TRUE(COMES(1, 300000));
	EXPECT_TRUE(DEV_SOON(10, mesh_put(self->fd[1], WINDOW, 0, 1, 1) == -ENOTCONN));
	EXPECT_EQ(-ENOTCONN, mesh_ack(self->fd[1], WINDOW, 0));
	EXPECT_TRUE(DEV_SOON(10, mesh_state(self->r.status[1][0]) == KCR_CONN_LEFT));
	EXPECT_EQ(0, dev_cause(self->status[1]));
	EXPECT_EQ(0, dev_detach(self->fd[1], WINDOW));
}

#define FAIL_COMPLETION	MESH_COUNTERS "fail_completion"

/* F3: whichever work request fails, both ends and their world do; nothing is taken as done. */
TEST_F_TIMEOUT(lanes, failed_completions, 120)
{
	int k, i;

	if (access(FAIL_COMPLETION, W_OK))
		SKIP(return, "no " FAIL_COMPLETION ": debugfs, and root");
	for (k = 1; k <= 12; k++) {
		ASSERT_EQ(0, open_both(self, 4, 5000));
		ASSERT_EQ(0, dev_write_number(FAIL_COMPLETION, k));
		for (__u64 s = 1; s <= 500; s++) {
			mesh_slot_write(IMAGE, s, s * 617 % 5001);
			mesh_arm(self->fd[1], WINDOW, 0, 0, s - 1);
			if (mesh_put(self->fd[0], WINDOW, 1, s, 1) ||
			    mesh_ack(self->fd[1], WINDOW, 0))
				break;
			dev_sleep(0.001);
		}
		EXPECT_EQ(0, dev_read_number(FAIL_COMPLETION));
		for (i = 0; i < RANKS; i++) {
			EXPECT_TRUE(DEV_SOON(10, mesh_state(self->r.status[i][!i]) ==
					     KCR_CONN_FAILED)) {
				MESH_LOG(self->r.status[i][!i]);
			}
			EXPECT_TRUE(DEV_SOON(10, dev_cause(self->status[i])));
		}
		EXPECT_TRUE(self->r.status[0][1]->reason == KCR_REASON_COMPLETION ||
			    self->r.status[1][0]->reason == KCR_REASON_COMPLETION);
		EXPECT_TRUE(DEV_SOON(10, is_state(self, KCR_LANE_ENDED)));
		EXPECT_LE(mesh_lane_done(IMAGE), IMAGE->status->put);
		end(_metadata, self);
		begin(_metadata, self);
	}
}

struct writer {
	struct dev_world world;
	int stage;
};

/* Rank 0, by itself: puts until it is killed. */
static void writer(void *arg)
{
	static const struct kcr_lane_desc list = { 0, 1, 16, 60000 };
	struct writer *w = arg;
	struct mesh_lane image;
	struct kcr_conn_status *status;
	__u64 s;
	int fd;

	fd = dev_member(&w->world, 0);
	CHILD_TRUE(fd >= 0);
	CHILD_GIVES(0, mesh_connect(fd, 1, 0));
	status = mesh_status(fd, 1, 0);
	CHILD_TRUE(DEV_SOON(20, mesh_is_up(status)));
	CHILD_GIVES(0, mesh_window(fd, WINDOW, &list, 1));
	CHILD_GIVES(0, mesh_lane_map(&image, fd, 0, WINDOW, &list, 1, 0));
	CHILD_TRUE(DEV_SOON(20, mesh_lane_state(&image) == KCR_LANE_READY));
	for (s = 1; ; s++) {
		if (s > 16)
			CHILD_TRUE(DEV_SOON(20, mesh_lane_done(&image) >= s - 16));
		mesh_slot_write(&image, s, 60000);
		CHILD_TRUE(DEV_SOON(20, mesh_put(fd, WINDOW, 1, s, 1) != -ENOBUFS));
		if (s == 20)
			dev_reach(&w->stage, 1);
	}
}

/* K9: the writer is killed in the middle of it. */
TEST_F_TIMEOUT(lanes, killed, 120)
{
	static const struct kcr_lane_desc list = { 0, 1, 16, 60000 };
	int rounds = 5 * dev_scale();
	struct writer *w = dev_shared(sizeof(*w));

	for (int round = 0; round < rounds; round++) {
		struct kcr_conn_status *conn;
		struct kcr_status *status;
		struct mesh_lane slots;
		pid_t pid;
		int fd;

		w->world = dev_world(RANKS);
		w->stage = 0;
		fd = dev_member(&w->world, 1);
		ASSERT_LE(0, fd);
		ASSERT_EQ(0, mesh_connect(fd, 0, 0));
		conn = mesh_status(fd, 0, 0);
		status = dev_status(fd);
		pid = dev_child(writer, w);
		ASSERT_TRUE(DEV_SOON(20, mesh_is_up(conn)));
		ASSERT_EQ(0, mesh_window(fd, WINDOW, &list, 1));
		ASSERT_EQ(0, mesh_lane_map(&slots, fd, 1, WINDOW, &list, 1, 0));
		ASSERT_TRUE(dev_reached(&w->stage, 1));
		dev_sleep(round * 0.005);
		ASSERT_TRUE(dev_child_kill(pid));
		EXPECT_TRUE(DEV_SOON(10, dev_cause(status)));
		EXPECT_EQ(KCR_CAUSE(0, ECONNRESET), dev_cause(status));
		EXPECT_TRUE(DEV_SOON(10, mesh_lane_state(&slots) == KCR_LANE_ENDED));
		mesh_lane_unmap(&slots);
		munmap(conn, sizeof(*conn));
		munmap(status, sizeof(*status));
		close(fd);
	}
	munmap(w, sizeof(*w));
}

TEST_HARNESS_MAIN
