// SPDX-License-Identifier: GPL-2.0
/*
 * Every collective, type and operation between processes: the oracle's bits, on
 * every rank, whatever the algorithm, count, alignment, in place or not, blocking
 * or not
 *
 * Over the link that KCR_LINK names. Slots are so small that most counts need many.
 */
#include "kselftest_harness.h"
#include "collective.h"
#include "ranks.h"

#define MOST_RANKS	5
#define MOST_COUNTS	40

struct job {
	size_t lane, board, depth;	/* the slots' payload, in bytes */
	int nonblocking;
	int any_order;
	long every;			/* one in so many calls is made */
	long *calls;			/* shared */
	uint64_t *hashes;		/* shared, by rank */
};

/* @n, one less and one more, unless they are there. */
static size_t add_border(size_t *counts, size_t have, size_t n)
{
	size_t c, i;

	for (c = n ? n - 1 : 0; c <= n + 1; c++) {
		for (i = 0; i < have && counts[i] != c; i++)
			;
		if (i == have && have < MOST_COUNTS)
			counts[have++] = c;
	}
	return have;
}

/* Around whatever the library may cut by, for elements of @size bytes. */
static size_t make_counts(const struct job *job, size_t *counts, size_t size,
			  int ranks)
{
	/* Behind a frame's header. */
	size_t lane = (job->lane - 32) / size, board = (job->board - 32) / size;
	size_t n = 0;

	n = add_border(counts, n, 0);
	n = add_border(counts, n, ranks);
	n = add_border(counts, n, lane);
	n = add_border(counts, n, board);
	n = add_border(counts, n, lane * ranks);
	n = add_border(counts, n, 3 * job->depth * board * ranks + 3);
	return n;
}

/* Under any-order only these are the oracle's. */
static int is_exact(const struct job *job, const struct collective *c)
{
	if (!job->any_order || !collective_reduces(c) || c->dtype < KCR_F16)
		return 1;
	return c->op == KCR_MIN || c->op == KCR_MAX;
}

static int call(int rank, struct job *job, struct kcr_world *w,
		struct collective *c)
{
	collective_prepare(c, w);
	if (job->nonblocking) {
		RANK_OK(w, collective_start(c, w));
		RANK_OK(w, collective_wait(c));
	} else {
		RANK_OK(w, collective_call(c, w));
	}
	if (is_exact(job, c))
		RANK_RIGHT(c);
	if (collective_is_same_on_all(c))
		job->hashes[rank] = collective_hash(c, job->hashes[rank]);
	if (!rank)
		++*job->calls;
	return 0;
}

/* All counts of one kind, type and operation. */
static int all_counts(int rank, struct job *job, struct kcr_world *w,
		      struct collective *c)
{
	size_t counts[MOST_COUNTS], n, i;

	n = make_counts(job, counts, kcr_dtype_size(c->dtype), kcr_size(w));
	for (i = 0; i < 2 * n; i++) {
		if (data_mix(++c->seed) % job->every)
			continue;
		c->count = counts[i / 2];
		c->in_place = i % 2;
		c->root = c->seed % kcr_size(w);
		c->shift = c->seed % 5;
		if (call(rank, job, w, c))
			return 1;
	}
	return 0;
}

static int all_calls(int rank, void *arg)
{
	struct job *job = arg;
	struct collective c = { .seed = 1 };
	struct kcr_world *w;

	/* The largest count has elements of a byte. */
	RANK_OK(NULL, collective_alloc(&c, collective_room(4 * job->depth *
				(job->board + job->lane) * MOST_RANKS, MOST_RANKS)));
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (c.kind = 0; c.kind < COLLECTIVE_KINDS; c.kind++)
		for (c.dtype = 0; c.dtype < KCR_DTYPES; c.dtype++)
			for (c.op = 0; c.op < KCR_OPS; c.op++) {
				if (!data_is_supported(c.dtype, c.op) ||
				    (c.op && !collective_reduces(&c)))
					continue;
				if (all_counts(rank, job, w, &c))
					return 1;
			}
	RANK_OK(NULL, kcr_world_destroy(w));
	collective_free(&c);
	return 0;
}

FIXTURE(collectives) {
	struct job job;
};

FIXTURE_VARIANT(collectives) {
	const char *algo, *contract, *lane, *board, *depth;
	int nonblocking;
};

FIXTURE_VARIANT_ADD(collectives, direct) {
	.algo = "direct", .lane = "96", .board = "64", .depth = "2",
};

FIXTURE_VARIANT_ADD(collectives, owner) {
	.algo = "owner", .lane = "64", .board = "96", .depth = "2",
};

FIXTURE_VARIANT_ADD(collectives, owner_odd_bytes) {
	.algo = "owner", .lane = "131", .board = "101", .depth = "3",
	.nonblocking = 1,
};

FIXTURE_VARIANT_ADD(collectives, chain) {
	.algo = "chain", .lane = "64", .board = "64", .depth = "2",
};

FIXTURE_VARIANT_ADD(collectives, chain_odd_bytes) {
	.algo = "chain", .lane = "109", .board = "73", .depth = "3",
	.nonblocking = 1,
};

FIXTURE_VARIANT_ADD(collectives, any_order) {
	.algo = "owner", .lane = "96", .board = "64", .depth = "2",
	.contract = "any-order",
};

FIXTURE_SETUP(collectives)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_ALGO", variant->algo, 1);
	setenv("KCR_CONTRACT", variant->contract ? variant->contract : "fixed-order", 1);
	setenv("KCR_LANE_BYTES", variant->lane, 1);
	setenv("KCR_BOARD_BYTES", variant->board, 1);
	setenv("KCR_LANE_DEPTH", variant->depth, 1);
	setenv("KCR_BOARD_DEPTH", variant->depth, 1);
	setenv("KCR_TIMEOUT", "60", 1);
	self->job = (struct job){
		.lane = atoi(variant->lane),
		.board = atoi(variant->board),
		.depth = atoi(variant->depth),
		.nonblocking = variant->nonblocking,
		.any_order = !!variant->contract,
		.every = ranks_are_slow() ? 64 : 1,
		.calls = ranks_shared(sizeof(long)),
		.hashes = ranks_shared(KCR_RANKS_MAX * sizeof(uint64_t)),
	};
	ASSERT_NE(NULL, self->job.calls);
	ASSERT_NE(NULL, self->job.hashes);
}

FIXTURE_TEARDOWN(collectives)
{
}

TEST_F_TIMEOUT(collectives, one_to_five_ranks, 240)
{
	struct job *job = &self->job;
	double began = ranks_now();
	int ranks, r;

	for (ranks = 1; ranks <= MOST_RANKS; ranks++) {
		memset(job->hashes, 0, ranks * sizeof(*job->hashes));
		ASSERT_EQ(0, ranks_run(ranks, all_calls, job, 100));
		for (r = 0; r < ranks; r++)
			EXPECT_EQ(job->hashes[0], job->hashes[r]);
	}
	TH_LOG("%ld calls in %.1f s", *job->calls, ranks_now() - began);
}

TEST_HARNESS_MAIN
