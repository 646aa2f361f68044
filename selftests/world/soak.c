// SPDX-License-Identifier: GPL-2.0
/*
 * A million small allreduces of mixed sizes, without a barrier in between: all
 * ranks have the same results, and those of a sample are the oracle's
 *
 * Over the link that KCR_LINK names. 2^20 on a host over shared memory, 2^14 in
 * a virtual machine or through the module; KCR_TEST_SCALE is another divisor.
 */
#include "kselftest_harness.h"
#include "data.h"
#include "ranks.h"

#define RANKS	4
#define POOL	4096	/* elements of every rank, of either type */
#define MOST	300
#define SAMPLE	64	/* one in so many is compared */

struct soak {
	long rounds;
	int jitter;		/* one in so many calls is made late */
	struct shared {
		float f32[RANKS][POOL + MOST];
		double f64[RANKS][POOL + MOST];
		uint64_t all[RANKS], sample[RANKS], oracle[RANKS];
	} *shared;
};

FIXTURE(soak) {
	struct soak soak;
};

FIXTURE_SETUP(soak)
{
	const char *why = ranks_no_link();
	struct shared *shared;
	int r;

	if (why)
		SKIP(return, "%s", why);
	shared = ranks_shared(sizeof(*shared));
	ASSERT_NE(NULL, shared);
	for (r = 0; r < RANKS; r++) {
		data_fill(shared->f32[r], POOL + MOST, KCR_F32, r, 1);
		data_fill(shared->f64[r], POOL + MOST, KCR_F64, r, 2);
	}
	self->soak.shared = shared;
	/* Of either kind, and in a few segments. */
	setenv("KCR_DIRECT_MAX", "400", 1);
	setenv("KCR_LANE_BYTES", "256", 1);
	setenv("KCR_BOARD_BYTES", "512", 1);
	setenv("KCR_TIMEOUT", "60", 1);
}

FIXTURE_TEARDOWN(soak)
{
}

/* Call number @i: mostly a few elements, now and then none, or many. */
static size_t count_of(uint64_t h)
{
	switch (h % 16) {
	case 0:
		return 0;
	case 1:
		return h / 16 % MOST;
	case 2:
	case 3:
		return h / 16 % 64;
	default:
		return 1 + h / 16 % 8;
	}
}

static int call(int rank, void *arg)
{
	const struct soak *soak = arg;
	struct shared *shared = soak->shared;
	double out[MOST], want[MOST];
	uint64_t all = 0, sample = 0, oracle = 0;
	struct kcr_world *w;
	long i;
	int r;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < soak->rounds; i++) {
		uint64_t h = data_mix(i);
		size_t count = count_of(h), at = (h >> 32) % POOL;
		enum kcr_dtype dtype = h >> 48 & 1 ? KCR_F64 : KCR_F32;
		size_t bytes = count * kcr_dtype_size(dtype);
		const void *in[RANKS];

		for (r = 0; r < RANKS; r++)
			in[r] = dtype == KCR_F64 ? (void *)&shared->f64[r][at] :
				(void *)&shared->f32[r][at];
		if (soak->jitter && !(data_mix(i + rank) % soak->jitter))
			ranks_sleep(h % 200 / 1e6);
		RANK_OK(w, kcr_allreduce(w, in[rank], out, count, dtype, KCR_SUM));
		all = data_hash(out, bytes, all);
		if ((h >> 52) % SAMPLE)
			continue;
		RANK_OK(NULL, kcr_reference_fold(in, RANKS, want, count, dtype,
						 KCR_SUM));
		sample = data_hash(out, bytes, sample);
		oracle = data_hash(want, bytes, oracle);
		if (data_differ(want, out, count, dtype) >= 0)
			RANK_FAIL("call %ld, %zu %s: element %ld is wrong", i,
				  count, kcr_dtype_name(dtype),
				  data_differ(want, out, count, dtype));
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	shared->all[rank] = all;
	shared->sample[rank] = sample;
	shared->oracle[rank] = oracle;
	return 0;
}

static void run(struct __test_metadata *_metadata, struct soak *soak)
{
	const struct shared *shared = soak->shared;
	double began = ranks_now();
	int r;

	ASSERT_EQ(0, ranks_run(RANKS, call, soak, 500));
	TH_LOG("%ld allreduces of %d ranks in %.1f s: hash %016lx", soak->rounds,
	       RANKS, ranks_now() - began, (long)shared->all[0]);
	for (r = 0; r < RANKS; r++) {
		EXPECT_NE(0, shared->all[r]);
		EXPECT_NE(0, shared->sample[r]);
		EXPECT_EQ(shared->all[0], shared->all[r]);
		EXPECT_EQ(shared->oracle[r], shared->sample[r]);
		EXPECT_EQ(shared->oracle[0], shared->oracle[r]);
	}
}

TEST_F_TIMEOUT(soak, without_a_barrier, 540)
{
	self->soak.rounds = ranks_rounds(1 << 20);
	run(_metadata, &self->soak);
}

/* Ranks fall behind one another, and sleep. */
TEST_F_TIMEOUT(soak, with_stragglers, 540)
{
	self->soak.rounds = ranks_rounds(1 << 17);
	self->soak.jitter = 64;
	setenv("KCR_SPIN", "10", 1);
	setenv("KCR_YIELD", "1", 1);
	run(_metadata, &self->soak);
}

TEST_HARNESS_MAIN
