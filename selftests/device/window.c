// SPDX-License-Identifier: GPL-2.0
/*
 * Windows: lists of lanes, what is charged for them, attaching and detaching
 */
#include "kselftest_harness.h"
#include "device.h"

#define RANKS 3

FIXTURE(window) {
	struct dev_counters before;
	struct dev_world world;
	int fd[RANKS];
};

FIXTURE_SETUP(window)
{
	const char *missing = dev_missing();
	int i;

	for (i = 0; i < RANKS; i++)
		self->fd[i] = -1;
	if (missing)
		SKIP(return, "%s", missing);
	self->before = dev_counters();
	self->world = dev_world(RANKS);
	for (i = 0; i < RANKS; i++) {
		self->fd[i] = dev_member(&self->world, i);
		ASSERT_LE(0, self->fd[i]);
	}
}

FIXTURE_TEARDOWN(window)
{
	int i;

	for (i = 0; i < RANKS; i++)
		if (self->fd[i] >= 0)
			close(self->fd[i]);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
}

/* The pages that a rank pays for, as INFO has them. */
static long pages_of(const struct dev_world *w, __u32 rank)
{
	struct kcr_info info;

	return dev_info(w, rank, &info) ? -1 : (long)info.pages;
}

static long page_count(const struct kcr_lane_desc *lanes, int n, __u32 rank, size_t board)
{
	size_t bytes = board;
	int i;

	for (i = 0; i < n; i++) {
		if (lanes[i].destination == rank)
			bytes += dev_lane_bytes(&lanes[i]);
		if (lanes[i].source == rank)
			bytes += dev_page();
	}
	return bytes / dev_page();
}

/* Refused lists, made by a rank in them and by one that is not. */
TEST_F(window, lane_lists)
{
	static const struct {
		const char *what;
		struct kcr_lane_desc lane[3];
		int n;
	} lists[] = {
		{ "given twice", { { 0, 1, 2, 64 }, { 0, 1, 2, 64 } }, 2 },
		{ "given twice, differently", { { 0, 1, 2, 64 }, { 0, 1, 3, 32 } }, 2 },
		{ "given twice, apart", { { 0, 1, 2, 64 }, { 1, 0, 2, 64 }, { 0, 1, 2, 64 } },
		  3 },
		{ "to itself", { { 1, 1, 2, 64 } }, 1 },
		{ "to itself, as the second", { { 0, 1, 2, 64 }, { 2, 2, 2, 64 } }, 2 },
		{ "source outside", { { RANKS, 1, 2, 64 } }, 1 },
		{ "destination outside", { { 0, RANKS, 2, 64 } }, 1 },
		{ "source far outside", { { 0xffffffff, 1, 2, 64 } }, 1 },
		{ "destination far outside", { { 0, 0x80000000, 2, 64 } }, 1 },
		{ "both outside", { { 1024, 1025, 2, 64 } }, 1 },
		{ "no depth", { { 0, 1, 0, 64 } }, 1 },
		{ "no capacity", { { 0, 1, 2, 0 } }, 1 },
		{ "neither", { { 0, 1, 0, 0 } }, 1 },
		{ "no depth, as the last", { { 0, 1, 2, 64 }, { 1, 0, 2, 64 }, { 1, 2, 0, 1 } },
		  3 },
		/* The lane's memory would be 2^64, 2^65, 2^33 bytes ... */
		{ "2^32-1 of 2^32-1", { { 0, 1, 0xffffffff, 0xffffffff } }, 1 },
		{ "2^32-1 of 2^31", { { 0, 1, 0xffffffff, 0x80000000 } }, 1 },
		{ "2^31 of 2^31", { { 0, 1, 0x80000000, 0x80000000 } }, 1 },
		{ "1 of 2^32-1", { { 0, 1, 1, 0xffffffff } }, 1 },
		{ "2 of 2^31", { { 0, 1, 2, 0x80000000 } }, 1 },
		{ "2^26 + 1 of 1", { { 0, 1, (1 << 26) + 1, 1 } }, 1 },
		{ "2^32-1 of 1", { { 0, 1, 0xffffffff, 1 } }, 1 },
		/* 2^26 * 64 bytes, and what that is in 32 bits. */
		{ "2^27 of 1", { { 0, 1, 1 << 27, 1 } }, 1 },
		{ "2^16 of 2^16", { { 0, 1, 1 << 16, 1 << 16 } }, 1 },
	};
	int i, rank;

	for (i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		for (rank = 0; rank < RANKS; rank++) {
			EXPECT_EQ(-EINVAL, dev_window(self->fd[rank], i % KCR_MAX_WINDOWS,
						      lists[i].lane, lists[i].n, 0)) {
				TH_LOG("rank %d, a lane %s", rank, lists[i].what);
			}
			EXPECT_EQ(-ENOENT, dev_detach(self->fd[rank], i % KCR_MAX_WINDOWS));
		}
	}
	/* What was refused has left no trace: any list may follow. */
	for (rank = 0; rank < RANKS; rank++)
		EXPECT_EQ(0, dev_window(self->fd[rank], 0, NULL, 0, dev_page()));
}

/* K5 */
TEST_F(window, lane_counts)
{
	static const __u32 too_many[] = {
		KCR_MAX_LANES + 1, KCR_MAX_LANES * 2, 0x10000000, 0x7fffffff, 0x80000000,
		0x80000001, 0xfffffff0, 0xffffffff,
	};
	struct dev_world w = dev_world(92);	/* 92 * 91 = 8372 lanes */
	struct kcr_lane_desc *lanes = calloc(KCR_MAX_LANES + 1, sizeof(*lanes));
	int i, fd, other, n = 0;
	__u32 from, to;

	ASSERT_NE(NULL, lanes);
	for (from = 0; from < w.ranks; from++)
		for (to = 0; to < w.ranks; to++)
			if (from != to && n <= KCR_MAX_LANES)
				lanes[n++] = (struct kcr_lane_desc){ from, to, 1, 1 };
	ASSERT_EQ(KCR_MAX_LANES + 1, n);
	fd = dev_member(&w, 0);
	other = dev_member(&w, 91);
	ASSERT_LE(0, fd);
	ASSERT_LE(0, other);
	for (i = 0; i < sizeof(too_many) / sizeof(too_many[0]); i++) {
		EXPECT_EQ(-EINVAL, dev_window(fd, 0, lanes, too_many[i], 0)) {
			TH_LOG("%u lanes", too_many[i]);
		}
		/* The number is wrong whatever the list is. */
		EXPECT_EQ(-EINVAL, dev_window(fd, 0, NULL, too_many[i], 0));
	}
	EXPECT_EQ(0, dev_window(fd, 0, lanes, 0, 0));
	EXPECT_EQ(0, dev_window(fd, 1, lanes, 1, 0));
	EXPECT_EQ(0, dev_window(fd, 2, lanes, KCR_MAX_LANES, 0));
	EXPECT_EQ(1 + page_count(lanes, KCR_MAX_LANES, 0, 0),
		  pages_of(&w, 0) - (pages_of(&w, 91)));
	EXPECT_EQ(0, dev_window(other, 2, lanes, KCR_MAX_LANES, 0));
	EXPECT_EQ(0, dev_map_error(fd, PROT_READ, MAP_SHARED,
				   KCR_MMAP_OFFSET(2, KCR_MAP_ACK, 90), dev_page()));
	close(fd);
	close(other);
	free(lanes);
}

/* The list is read where it is, to its end and no further. */
TEST_F(window, lanes_unreadable)
{
	struct kcr_lane_desc lanes[] = { { 0, 1, 1, 64 }, { 1, 0, 1, 64 } };
	long page = dev_page();
	char *memory;
	void *edge;

	memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_EQ(0, mprotect(memory + page, page, PROT_NONE));
	EXPECT_EQ(-EFAULT, dev_window(self->fd[0], 0, NULL, 1, 0));
	EXPECT_EQ(-EFAULT, dev_window(self->fd[0], 0, (void *)-16UL, 1, 0));
	EXPECT_EQ(-EFAULT, dev_window(self->fd[0], 0, (void *)(memory + page), 1, 0));
	edge = memory + page - sizeof(lanes[0]);
	memcpy(edge, &lanes[0], sizeof(lanes[0]));
	EXPECT_EQ(-EFAULT, dev_window(self->fd[0], 0, edge, 2, 0));
	EXPECT_EQ(-EFAULT, dev_window(self->fd[0], 0, edge, KCR_MAX_LANES, 0));
	EXPECT_EQ(-ENOENT, dev_detach(self->fd[0], 0));
	edge = memory + page - sizeof(lanes);
	memcpy(edge, lanes, sizeof(lanes));
	EXPECT_EQ(0, dev_window(self->fd[0], 0, edge, 2, 0));
	EXPECT_EQ(0, dev_window(self->fd[1], 0, lanes, 2, 0));
	/* Not looked at when it is empty. */
	EXPECT_EQ(0, dev_window(self->fd[0], 1, (void *)-16UL, 0, 0));
	munmap(memory, 2 * page);
}

TEST_F(window, numbers_and_boards)
{
	static const __u32 windows[] = { KCR_MAX_WINDOWS, KCR_MAX_WINDOWS + 1, 0x80000000,
					 0xffffffff };
	const __u64 boards[] = { 1, dev_page() - 1, dev_page() + 1, dev_page() / 2,
				 (1ULL << 32) + dev_page(), 1ULL << 40, 1ULL << 63,
				 -(__u64)dev_page(), ~0ULL };
	int i;

	for (i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
		EXPECT_EQ(-EINVAL, dev_window(self->fd[0], windows[i], NULL, 0, 0)) {
			TH_LOG("window %u", windows[i]);
		}
		EXPECT_EQ(-EINVAL, dev_detach(self->fd[0], windows[i])) {
			TH_LOG("window %u", windows[i]);
		}
	}
	for (i = 0; i < sizeof(boards) / sizeof(boards[0]); i++) {
		EXPECT_EQ(-EINVAL, dev_window(self->fd[0], 0, NULL, 0, boards[i])) {
			TH_LOG("boards of %#llx bytes", boards[i]);
		}
	}
	for (i = 0; i < KCR_MAX_WINDOWS; i++)
		EXPECT_EQ(0, dev_window(self->fd[0], i, NULL, 0, (i & 3) * dev_page()));
	for (i = 0; i < KCR_MAX_WINDOWS; i++)
		EXPECT_EQ(-EEXIST, dev_window(self->fd[0], i, NULL, 0, (i & 3) * dev_page()));
	for (i = 0; i < KCR_MAX_WINDOWS; i++) {
		EXPECT_EQ(0, dev_detach(self->fd[0], KCR_MAX_WINDOWS - 1 - i));
		EXPECT_EQ(-ENOENT, dev_detach(self->fd[0], KCR_MAX_WINDOWS - 1 - i));
	}
}

TEST_F(window, disagreement)
{
	const struct kcr_lane_desc right[] = { { 0, 1, 4, 64 }, { 1, 0, 4, 64 } };
	const struct kcr_lane_desc swapped[] = { { 1, 0, 4, 64 }, { 0, 1, 4, 64 } };
	const struct kcr_lane_desc deeper[] = { { 0, 1, 4, 64 }, { 1, 0, 5, 64 } };
	const struct kcr_lane_desc wider[] = { { 0, 1, 4, 65 }, { 1, 0, 4, 64 } };
	const struct kcr_lane_desc other[] = { { 0, 1, 4, 64 }, { 2, 0, 4, 64 } };
	const struct kcr_lane_desc more[] = { { 0, 1, 4, 64 }, { 1, 0, 4, 64 },
					      { 0, 2, 4, 64 } };
	const struct {
		const struct kcr_lane_desc *lanes;
		int n;
		size_t board;
	} wrong[] = {
		{ swapped, 2, 4096 }, { deeper, 2, 4096 }, { wider, 2, 4096 },
		{ other, 2, 4096 }, { more, 3, 4096 }, { right, 1, 4096 },
		{ NULL, 0, 4096 }, { right, 2, 0 }, { right, 2, 8192 },
	};
	long pages;
	int i, rank;

	ASSERT_EQ(0, dev_window(self->fd[0], 7, right, 2, 4096));
	pages = pages_of(&self->world, 1);
	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		for (rank = 1; rank < RANKS; rank++) {
			EXPECT_EQ(-EPROTO, dev_window(self->fd[rank], 7, wrong[i].lanes,
						      wrong[i].n, wrong[i].board)) {
				TH_LOG("list %d of rank %d", i, rank);
			}
			EXPECT_EQ(-ENOENT, dev_detach(self->fd[rank], 7));
		}
		/* That is another window's affair. */
		EXPECT_EQ(0, dev_window(self->fd[1], 8, wrong[i].lanes, wrong[i].n,
					wrong[i].board));
		EXPECT_EQ(0, dev_detach(self->fd[1], 8));
	}
	EXPECT_EQ(pages, pages_of(&self->world, 1));
	EXPECT_EQ(0, dev_window(self->fd[1], 7, right, 2, 4096));
	EXPECT_EQ(0, dev_window(self->fd[2], 7, right, 2, 4096));
	/* The wrong one after all have it, too. */
	EXPECT_EQ(0, dev_detach(self->fd[2], 7));
	EXPECT_EQ(-EPROTO, dev_window(self->fd[2], 7, deeper, 2, 4096));
}

/* A number is taken until the last has let go of it. */
TEST_F(window, attach_and_detach)
{
	const struct kcr_lane_desc lane = { 0, 1, 4, 64 }, second = { 1, 0, 4, 64 };

	EXPECT_EQ(-ENOENT, dev_detach(self->fd[0], 0));
	ASSERT_EQ(0, dev_window(self->fd[0], 0, &lane, 1, 0));
	EXPECT_EQ(-ENOENT, dev_detach(self->fd[1], 0));
	ASSERT_EQ(0, dev_window(self->fd[1], 0, &lane, 1, 0));
	EXPECT_EQ(-EEXIST, dev_window(self->fd[0], 0, &lane, 1, 0));
	EXPECT_EQ(0, dev_detach(self->fd[0], 0));
	EXPECT_EQ(-ENOENT, dev_detach(self->fd[0], 0));
	EXPECT_EQ(-EPROTO, dev_window(self->fd[2], 0, &second, 1, 0));
	/* A second time while it lives: no. */
	EXPECT_EQ(-EEXIST, dev_window(self->fd[0], 0, &lane, 1, 0));
	EXPECT_EQ(0, dev_detach(self->fd[1], 0));
	EXPECT_EQ(0, dev_window(self->fd[0], 0, &second, 1, 8192));
	EXPECT_EQ(0, dev_window(self->fd[2], 0, &second, 1, 8192));
	/* Those who leave or die let go. */
	ASSERT_EQ(0, dev_leave(self->fd[0]));
	EXPECT_EQ(0, dev_detach(self->fd[2], 0));
	EXPECT_EQ(0, dev_window(self->fd[1], 0, &lane, 1, 0));
	EXPECT_EQ(0, dev_detach(self->fd[1], 0));
}

TEST_F(window, dead_let_go)
{
	const struct kcr_lane_desc lane = { 0, 1, 4, 64 };

	ASSERT_EQ(0, dev_window(self->fd[0], 3, &lane, 1, 65536));
	ASSERT_EQ(0, dev_window(self->fd[1], 3, &lane, 1, 65536));
	close(self->fd[1]);
	self->fd[1] = -1;
	/* The world has failed; what it had is still to be given back. */
	EXPECT_EQ(0, dev_detach(self->fd[0], 3));
	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, !pages_of(&self->world, 0)));
}

/* Who pays for what, to the page. */
TEST_F(window, charges)
{
	const struct kcr_lane_desc lanes[] = {
		{ 0, 1, 1, 1 }, { 1, 0, 4, 4096 - 24 }, { 1, 2, 3, 4096 - 23 },
		{ 2, 1, 100, 100 }, { 0, 2, 64, 40 }, { 2, 0, 65, 40 },
	};
	const int n = sizeof(lanes) / sizeof(lanes[0]);
	const size_t board = 7 * dev_page();
	struct dev_counters now, base = dev_counters();
	long before[RANKS], all = 0, pages;
	struct kcr_query query, first;
	int rank;

	ASSERT_EQ(0, dev_query(self->fd[0], &first));
	for (rank = 0; rank < RANKS; rank++)
		before[rank] = pages_of(&self->world, rank);
	for (rank = 0; rank < RANKS; rank++) {
		pages = page_count(lanes, n, rank, board);
		all += pages;
		ASSERT_EQ(0, dev_window(self->fd[rank], 0, lanes, n, board));
		EXPECT_EQ(before[rank] + pages, pages_of(&self->world, rank));
		EXPECT_EQ(0, dev_query(self->fd[0], &query));
		EXPECT_EQ(first.pages + all, query.pages);
	}
	now = dev_counters();
	if (base.known) {
		EXPECT_EQ(base.value[2] + 1, now.value[2]);	/* windows */
		EXPECT_EQ(base.value[3] + all, now.value[3]);	/* pages */
	}
	for (rank = 0; rank < RANKS; rank++)
		EXPECT_EQ(0, dev_detach(self->fd[rank], 0));
	EXPECT_EQ(0, dev_query(self->fd[0], &query));
	EXPECT_EQ(first.pages, query.pages);
	EXPECT_TRUE(dev_counters_equal(&base));
}

/* A part is there once the rank that pays for it has made it. */
TEST_F(window, before_it_is_made)
{
	const struct kcr_lane_desc lanes[] = { { 0, 1, 4, 5000 }, { 1, 0, 2, 64 } };
	const size_t board = 3 * dev_page();
	const struct part {
		__u32 part, index;
		size_t bytes;
		int payer;
	} parts[] = {
		{ KCR_MAP_SLOTS, 0, dev_lane_bytes(&lanes[0]), 1 },
		{ KCR_MAP_SLOTS, 1, dev_lane_bytes(&lanes[1]), 0 },
		{ KCR_MAP_ACK, 0, dev_page(), 0 },
		{ KCR_MAP_ACK, 1, dev_page(), 1 },
		{ KCR_MAP_BOARD, 0, board, 0 },
		{ KCR_MAP_BOARD, 1, board, 1 },
		{ KCR_MAP_BOARD, 2, board, 2 },
	};
	int attached, rank, i;

	for (attached = 0; attached <= RANKS; attached++) {
		for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
			const struct part *p = &parts[i];

			/* Those who have attached so far, and those who pay. */
			for (rank = 0; rank < 2 && rank < attached; rank++) {
				EXPECT_EQ(p->payer < attached ? 0 : -ENXIO,
					  dev_map_error(self->fd[rank], PROT_READ, MAP_SHARED,
							KCR_MMAP_OFFSET(5, p->part, p->index),
							p->bytes)) {
					TH_LOG("%d attached, rank %d, part %u of %u", attached,
					       rank, p->part, p->index);
				}
			}
			if (!attached)
				EXPECT_EQ(-ENXIO, dev_map_error(self->fd[0], PROT_READ,
								MAP_SHARED,
								KCR_MMAP_OFFSET(5, p->part,
										p->index),
								p->bytes));
		}
		if (attached < RANKS)
			ASSERT_EQ(0, dev_window(self->fd[attached], 5, lanes, 2, board));
	}
	/* And no longer, once all of it is gone. */
	for (rank = 0; rank < RANKS; rank++)
		EXPECT_EQ(0, dev_detach(self->fd[rank], 5));
	EXPECT_EQ(-ENXIO, dev_map_error(self->fd[0], PROT_READ, MAP_SHARED,
					KCR_MMAP_OFFSET(5, KCR_MAP_BOARD, 0), board));
}

static void *lane_of(int fd, int prot, const struct kcr_lane_desc *lane)
{
	return dev_map(fd, prot, 0, KCR_MAP_SLOTS, 0, dev_lane_bytes(lane));
}

/* K11: what is mapped does not hold up a detach, and outlives it. */
TEST_F(window, detach_with_mappings)
{
	const struct kcr_lane_desc lane = { 0, 1, 16, 4000 };
	struct dev_counters base = dev_counters();
	char *writer, *reader, *board, *again;
	size_t bytes = dev_lane_bytes(&lane);
	double begin;
	int i;

	ASSERT_EQ(0, dev_window(self->fd[0], 0, &lane, 1, 8192));
	ASSERT_EQ(0, dev_window(self->fd[1], 0, &lane, 1, 8192));
	writer = lane_of(self->fd[0], PROT_READ | PROT_WRITE, &lane);
	reader = lane_of(self->fd[1], PROT_READ, &lane);
	board = dev_map(self->fd[1], PROT_READ | PROT_WRITE, 0, KCR_MAP_BOARD, 1, 8192);
	ASSERT_NE(MAP_FAILED, writer);
	ASSERT_NE(MAP_FAILED, reader);
	ASSERT_NE(MAP_FAILED, board);
	for (i = 0; i < bytes; i++)
		writer[i] = i * 7 + (i >> 12);
	strcpy(board, "board");

	begin = dev_now();
	EXPECT_EQ(0, dev_detach(self->fd[1], 0));
	EXPECT_EQ(0, dev_detach(self->fd[0], 0));
	EXPECT_GT(1, dev_now() - begin);
	EXPECT_EQ(-ENXIO, dev_map_error(self->fd[0], PROT_READ, MAP_SHARED,
					KCR_MMAP_OFFSET(0, KCR_MAP_SLOTS, 0), bytes));
	for (i = 0; i < bytes; i++)
		if (reader[i] != (char)(i * 7 + (i >> 12)))
			break;
	EXPECT_EQ(bytes, i);
	EXPECT_STREQ("board", board);
	writer[5] = 99;
	EXPECT_EQ(99, reader[5]);

	/* A new window of that number has memory of its own. */
	EXPECT_EQ(0, dev_window(self->fd[0], 0, &lane, 1, 0));
	EXPECT_EQ(0, dev_window(self->fd[1], 0, &lane, 1, 0));
	again = lane_of(self->fd[0], PROT_READ | PROT_WRITE, &lane);
	ASSERT_NE(MAP_FAILED, again);
	EXPECT_EQ(0, again[5]);
	again[6] = 1;
	EXPECT_EQ((char)(6 * 7), reader[6]);
	munmap(again, bytes);
	EXPECT_EQ(0, dev_detach(self->fd[0], 0));
	EXPECT_EQ(0, dev_detach(self->fd[1], 0));

	munmap(writer, bytes);
	EXPECT_EQ(99, reader[5]);
	munmap(reader, bytes);
	munmap(board, 8192);
	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, dev_counters_equal(&base)));
}

/* What a rank wrote stays, whether it detaches, leaves or dies. */
TEST_F(window, what_is_written_stays)
{
	const struct kcr_lane_desc lane = { 0, 1, 16, 4000 };
	size_t bytes = dev_lane_bytes(&lane);
	char *writer, *reader, *board, *late;

	ASSERT_EQ(0, dev_window(self->fd[0], 0, &lane, 1, 4096));
	ASSERT_EQ(0, dev_window(self->fd[1], 0, &lane, 1, 4096));
	writer = lane_of(self->fd[0], PROT_READ | PROT_WRITE, &lane);
	reader = lane_of(self->fd[1], PROT_READ, &lane);
	board = dev_map(self->fd[0], PROT_READ | PROT_WRITE, 0, KCR_MAP_BOARD, 0, 4096);
	ASSERT_NE(MAP_FAILED, writer);
	ASSERT_NE(MAP_FAILED, reader);
	ASSERT_NE(MAP_FAILED, board);
	strcpy(writer + bytes - 16, "last words");
	strcpy(board, "and more");
	munmap(writer, bytes);
	late = dev_map(self->fd[1], PROT_READ, 0, KCR_MAP_BOARD, 0, 4096);
	ASSERT_NE(MAP_FAILED, late);
	munmap(board, 4096);
	ASSERT_EQ(0, dev_leave(self->fd[0]));
	EXPECT_STREQ("last words", reader + bytes - 16);
	EXPECT_STREQ("and more", late);
	close(self->fd[0]);
	self->fd[0] = -1;
	EXPECT_STREQ("last words", reader + bytes - 16);
	EXPECT_STREQ("and more", late);
	munmap(late, 4096);
	munmap(reader, bytes);
}

/* New memory is zero, whatever its size and whoever had it before. */
TEST_F(window, zeroed)
{
	/* Twice this and the lanes: less than the usual RLIMIT_MEMLOCK of 8 MiB. */
	static const size_t boards[] = { 4096, 12288, 2 << 20, (2 << 20) + 4096, 3 << 20 };
	struct kcr_lane_desc lane = { 1, 0, 33, 10000 };
	size_t bytes, sum, k;
	int round, part;
	__u64 *p;

	for (round = 0; round < 15; round++) {
		size_t board = boards[round % 5];

		lane.depth = 1 + 7 * round;
		ASSERT_EQ(0, dev_window(self->fd[0], 0, &lane, 1, board));
		/* Only who writes can dirty it: the board, and the ack page. */
		ASSERT_EQ(0, dev_window(self->fd[1], 0, &lane, 1, board));
		for (part = 0; part < 3; part++) {
			static const __u32 parts[] = { KCR_MAP_SLOTS, KCR_MAP_ACK,
						       KCR_MAP_BOARD };
			int writer = part == 0 ? 1 : 0;

			bytes = part == 0 ? dev_lane_bytes(&lane) :
				part == 1 ? 4096 : board;
			p = dev_map(self->fd[writer], PROT_READ | PROT_WRITE, 0, parts[part], 0,
				    bytes);
			ASSERT_NE(MAP_FAILED, p);
			for (sum = 0, k = 0; k < bytes / 8; k++)
				sum |= p[k];
			EXPECT_EQ(0, sum) {
				TH_LOG("round %d, part %d", round, part);
			}
			memset(p, 0xee, bytes);
			munmap(p, bytes);
		}
		EXPECT_EQ(0, dev_detach(self->fd[0], 0));
		EXPECT_EQ(0, dev_detach(self->fd[1], 0));
	}
}

/* Windows survive the failure of their world, and can be given up after it. */
TEST_F(window, failed_world)
{
	const struct kcr_lane_desc lane = { 0, 1, 4, 64 };
	char *board;

	ASSERT_EQ(0, dev_window(self->fd[0], 0, &lane, 1, 4096));
	board = dev_map(self->fd[0], PROT_READ | PROT_WRITE, 0, KCR_MAP_BOARD, 0, 4096);
	ASSERT_NE(MAP_FAILED, board);
	ASSERT_EQ(0, dev_fail(self->fd[2], EIO));
	board[0] = 1;
	munmap(board, 4096);
	EXPECT_EQ(0, dev_detach(self->fd[0], 0));
}

struct racer {
	pthread_t thread;
	int fd, *start;
	int attached, refused, odd;
	struct kcr_lane_desc lane;
};

static void *racer_main(void *arg)
{
	struct racer *r = arg;
	int i, err;

	while (!__atomic_load_n(r->start, __ATOMIC_ACQUIRE))
		;
	for (i = 0; i < 2000; i++) {
		err = dev_window(r->fd, 2, &r->lane, 1, 4096 << (i & 1));
		if (!err) {
			r->attached++;
			err = dev_detach(r->fd, 2);
			if (err)
				r->odd = err;
		} else if (err == -EPROTO) {
			r->refused++;
		} else if (err != -EEXIST) {
			r->odd = err;
		}
	}
	return NULL;
}

/* Ranks that make and drop one window, not always the same. */
TEST_F(window, races)
{
	struct racer r[RANKS];
	int i, start = 0;

	for (i = 0; i < RANKS; i++) {
		r[i] = (struct racer){ .fd = self->fd[i], .start = &start,
				       .lane = { 0, 1, 9, 1000 } };
		ASSERT_EQ(0, pthread_create(&r[i].thread, NULL, racer_main, &r[i]));
	}
	__atomic_store_n(&start, 1, __ATOMIC_RELEASE);
	for (i = 0; i < RANKS; i++) {
		pthread_join(r[i].thread, NULL);
		EXPECT_EQ(0, r[i].odd);
		EXPECT_LT(0, r[i].attached);
		TH_LOG("rank %d: %d times attached, %d times too different", i,
		       r[i].attached, r[i].refused);
	}
}

TEST_HARNESS_MAIN
