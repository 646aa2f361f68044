// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit: sizes, offsets and rights of the parts of a window, at 2^31, 2^32 and
 * 2^40 too, where no memory could follow. A part of window.c, on kernels with KUnit.
 */
#include <kunit/test.h>

static void window_strides(struct kunit *test)
{
	static const u32 some[] = {
		S32_MAX - 1, S32_MAX, 1U << 31, U32_MAX - 64, U32_MAX - 1,
		U32_MAX,
	};
	u32 i, capacity;
	u64 guard, stride;

	for (i = 1; i < 9000 + ARRAY_SIZE(some); i++) {
		capacity = i < 9000 ? i : some[i - 9000];
		guard = KCR_SLOT_GUARD(capacity);
		stride = KCR_SLOT_STRIDE(capacity);
		/* No room is lost, none is missing, and nothing wraps. */
		KUNIT_EXPECT_GE(test, guard, 16ULL + capacity);
		KUNIT_EXPECT_LT(test, guard, 16ULL + capacity + 8);
		KUNIT_EXPECT_EQ(test, guard % 8, 0);
		KUNIT_EXPECT_GE(test, stride, guard + 8);
		KUNIT_EXPECT_LT(test, stride, guard + 8 + KCR_CACHE_LINE);
		KUNIT_EXPECT_EQ(test, stride % KCR_CACHE_LINE, 0);
	}
}

static void window_lane_bytes(struct kunit *test)
{
	static const struct {
		u32 depth, capacity;
		u64 bytes;		/* 0: refused */
	} lanes[] = {
		{ 1, 1, 64 },
		{ 1, 40, 64 },
		{ 1, 41, 128 },
		{ 3, 4096, 3 * 4160 },
		{ 1U << 25, 40, 1ULL << 31 },
		{ 1U << 24, 40 + 64, 1ULL << 31 },
		/* The most that an offset leaves room for, and one slot more. */
		{ (1U << 26) - 64, 40, (1ULL << 32) - 4096 },
		{ (1U << 26) - 63, 40, 0 },
		{ 1U << 26, 40, 0 },
		{ 1, U32_MAX - 4096 - 24, U32_MAX - 4095 },
		{ 1, U32_MAX - 4096, 0 },
		{ 1, U32_MAX, 0 },
		{ 1U << 8, U32_MAX, 0 },	/* 2^40 */
		{ 1U << 31, 40, 0 },
		/* 64 and 65 bits. */
		{ U32_MAX, U32_MAX - 24, 0 },
		{ U32_MAX, U32_MAX, 0 },
		{ 1U << 31, U32_MAX, 0 },
	};
	struct kcr_lane_desc lane = { };
	u64 bytes;
	int i, ret;

	for (i = 0; i < ARRAY_SIZE(lanes); i++) {
		lane.depth = lanes[i].depth;
		lane.capacity = lanes[i].capacity;
		ret = lane_bytes(&lane, &bytes);
		KUNIT_EXPECT_EQ_MSG(test, ret, lanes[i].bytes ? 0 : -EINVAL,
				    "%u slots of %u", lane.depth,
				    lane.capacity);
		if (!ret)
			KUNIT_EXPECT_EQ(test, bytes, lanes[i].bytes);
	}
}

static void window_lanes(struct kunit *test)
{
	struct kcr_lane_desc good[] = {
		{ 0, 1, 1, 1 }, { 1, 0, 1, 1 }, { 0, 2, 1, 1 }, { 2, 1, 1, 1 },
	};
	struct kcr_lane_desc bad[] = {
		{ 3, 0, 1, 1 }, { 0, 3, 1, 1 }, { U32_MAX, 0, 1, 1 },
		{ 1, 1, 1, 1 }, { 1, 2, 0, 1 }, { 1, 2, 1, 0 },
		{ 1, 2, U32_MAX, U32_MAX },
		{ 0, 1, 1, 1 }, { 2, 1, 5, 9 },		/* again */
	};
	struct kcr_lane_desc lanes[ARRAY_SIZE(good)];
	int i, at;

	KUNIT_EXPECT_EQ(test, check_lanes(NULL, 0, 3), 0);
	KUNIT_EXPECT_EQ(test, check_lanes(good, ARRAY_SIZE(good), 3), 0);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		for (at = 1; at < ARRAY_SIZE(good) - 1; at++) {
			memcpy(lanes, good, sizeof(lanes));
			lanes[at] = bad[i];
			KUNIT_EXPECT_EQ_MSG(test,
					    check_lanes(lanes, ARRAY_SIZE(good),
							3),
					    -EINVAL, "lane %d", i);
		}
	}
}

static void window_offsets(struct kunit *test)
{
	static const u32 indices[] = { 0, 1, 0x3ff, 0x8000, 0xffff };
	struct place at;
	u32 nr, kind, i;
	u64 offset;

	for (nr = 0; nr < 4096; nr++) {
		for (kind = 0; kind < 16; kind++) {
			u32 most = kind < KCR_MAP_SLOTS ? 0 :
				   kind <= KCR_MAP_BOARD ||
				   kind == KCR_MAP_LANES ? KCR_MAX_WINDOWS :
				   kind <= KCR_MAP_FRAMES ? KCR_MAX_WIRES : 0;

			for (i = 0; i < ARRAY_SIZE(indices); i++) {
				offset = KCR_MMAP_OFFSET(nr, kind, indices[i]);
				KUNIT_ASSERT_EQ(test, parse_offset(offset, &at),
						nr < most);
				KUNIT_ASSERT_EQ(test, at.nr, nr);
				KUNIT_ASSERT_EQ(test, at.kind, kind);
				KUNIT_ASSERT_EQ(test, at.index, indices[i]);
			}
		}
	}
	/* A mapping begins where its part does. */
	for (i = 0; i < 32; i++) {
		offset = KCR_MMAP_OFFSET(1, KCR_MAP_BOARD, 2) | 1ULL << i;
		KUNIT_EXPECT_FALSE(test, parse_offset(offset, &at));
	}
}

static void window_frames_index(struct kunit *test)
{
	u32 peer, stream, class;
	u64 index;

	for (peer = 0; peer < KCR_MAX_RANKS; peer += 31) {
		for (stream = 0; stream < KCR_STREAMS; stream++) {
			for (class = 0; class < KCR_CLASSES; class++) {
				index = KCR_FRAMES_INDEX(peer, stream, class);
				KUNIT_EXPECT_LE(test, index, 0xffff);
				KUNIT_EXPECT_EQ(test, index & 0x3ff, peer);
				KUNIT_EXPECT_EQ(test, index >> 10 & 3, stream);
				KUNIT_EXPECT_EQ(test, index >> 12, class);
			}
		}
	}
}

/* Who may read and write what: rank 0 is the source, 1 the destination. */
static void window_rights(struct kunit *test)
{
	struct kcr_lane_desc lane = { 0, 1, 2, 40 };
	struct kcr_lane_parts parts = { };
	struct kcr_region *boards[3] = { };
	struct kcr_win win = {
		.ranks = 3,
		.nr_lanes = 1,
		.lanes = &lane,
		.parts = &parts,
		.boards = boards,
		.board_bytes = PAGE_SIZE,
	};
	struct kcr_member *m = kunit_kzalloc(test, sizeof(*m), GFP_KERNEL);
	struct part part;
	u32 rank, of;

	KUNIT_ASSERT_NOT_NULL(test, m);
	for (rank = 0; rank < 3; rank++) {
		m->rank = rank;
		KUNIT_EXPECT_EQ(test, find_lane_part(m, &win, KCR_MAP_SLOTS, 0,
						     &part), 0);
		KUNIT_EXPECT_EQ(test, part.may_read, rank < 2);
		KUNIT_EXPECT_EQ(test, part.may_write, rank == 0);
		KUNIT_EXPECT_EQ(test, part.payer, 1);
		KUNIT_EXPECT_EQ(test, part.bytes, 128);
		KUNIT_EXPECT_EQ(test, find_lane_part(m, &win, KCR_MAP_ACK, 0,
						     &part), 0);
		KUNIT_EXPECT_EQ(test, part.may_read, rank < 2);
		KUNIT_EXPECT_EQ(test, part.may_write, rank == 1);
		KUNIT_EXPECT_EQ(test, part.payer, 0);
		KUNIT_EXPECT_EQ(test, part.bytes, PAGE_SIZE);
		KUNIT_EXPECT_EQ(test, find_lane_part(m, &win, KCR_MAP_ACK, 1,
						     &part), -EINVAL);
		for (of = 0; of < 3; of++) {
			win.flags = 0;
			KUNIT_EXPECT_EQ(test, find_board(m, &win, of, &part),
					0);
			KUNIT_EXPECT_TRUE(test, part.may_read);
			KUNIT_EXPECT_EQ(test, part.may_write, rank == of);
			KUNIT_EXPECT_EQ(test, part.payer, of);
			win.flags = KCR_WINDOW_PRIVATE;
			KUNIT_EXPECT_EQ(test, find_board(m, &win, of, &part),
					0);
			KUNIT_EXPECT_EQ(test, part.may_read, rank == of);
			KUNIT_EXPECT_EQ(test, part.may_write, rank == of);
		}
		KUNIT_EXPECT_EQ(test, find_board(m, &win, 3, &part), -EINVAL);
	}
	win.board_bytes = 0;
	KUNIT_EXPECT_EQ(test, find_board(m, &win, 0, &part), -EINVAL);
}

static void window_same(struct kunit *test)
{
	struct kcr_lane_desc a[] = { { 0, 1, 2, 3 }, { 1, 0, 2, 3 } };
	struct kcr_lane_desc b[] = { { 0, 1, 2, 3 }, { 1, 0, 2, 4 } };
	const struct kcr_win win = {
		.nr_lanes = 2, .lanes = a, .board_bytes = PAGE_SIZE,
	};
	struct kcr_win other = win;

	KUNIT_EXPECT_TRUE(test, win_is_same(&win, &other));
	other.lanes = b;
	KUNIT_EXPECT_FALSE(test, win_is_same(&win, &other));
	other.nr_lanes = 1;
	KUNIT_EXPECT_FALSE(test, win_is_same(&win, &other));
	other = win;
	other.board_bytes = 0;
	KUNIT_EXPECT_FALSE(test, win_is_same(&win, &other));
	other = win;
	other.flags = KCR_WINDOW_PRIVATE;
	KUNIT_EXPECT_FALSE(test, win_is_same(&win, &other));
}

static struct kunit_case window_cases[] = {
	KUNIT_CASE(window_strides),
	KUNIT_CASE(window_lane_bytes),
	KUNIT_CASE(window_lanes),
	KUNIT_CASE(window_offsets),
	KUNIT_CASE(window_frames_index),
	KUNIT_CASE(window_rights),
	KUNIT_CASE(window_same),
	{ }
};

static struct kunit_suite window_suite = {
	.name = "kcollring-window",
	.test_cases = window_cases,
};

kunit_test_suite(window_suite);
