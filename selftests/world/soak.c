// SPDX-License-Identifier: GPL-2.0
/*
 * A million small allreduces of mixed sizes, without a barrier in between: all
 * ranks have the same results, and those of a sample are the oracle's. Then
 * mixed operations, several on their way, whose results are the emulator's as well.
 *
 * Over the link that KCR_LINK names. 2^20 and 2^17 on a host over shared memory,
 * 64 times fewer in a virtual machine or through the module; KCR_TEST_SCALE
 * times as many, if it is set.
 */
#include "kselftest_harness.h"
#include "collective.h"
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

	ASSERT_EQ(0, ranks_run(RANKS, call, soak, 1800));
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

TEST_F_TIMEOUT(soak, without_a_barrier, 3600)
{
	self->soak.rounds = ranks_rounds(1 << 20);
	run(_metadata, &self->soak);
}

/* Ranks fall behind one another, and sleep. */
TEST_F_TIMEOUT(soak, with_stragglers, 3600)
{
	self->soak.rounds = ranks_rounds(1 << 17);
	self->soak.jitter = 64;
	setenv("KCR_SPIN", "10", 1);
	setenv("KCR_YIELD", "1", 1);
	run(_metadata, &self->soak);
}

/*
 * A program of operations of every kind, type and size. Which of them block and
 * which are still on their way is each rank's own affair.
 */
#define FLIGHT	6
#define LARGEST	600

struct program {
	long rounds;
	const char *algo;
	struct results {
		uint64_t same[RANKS];	/* of results that all have */
		uint64_t own[RANKS];	/* of all results */
	} *real, *emulated;
};

static void choose(struct collective *c, long i)
{
	uint64_t h = data_mix(i);

	c->kind = h % 16 < COLLECTIVE_KINDS ? h % 16 : COLLECTIVE_ALLREDUCE;
	c->dtype = (h >> 8) % KCR_DTYPES;
	c->op = (h >> 16) % KCR_OPS;
	if (!data_is_supported(c->dtype, c->op))
		c->op = KCR_SUM;
	c->count = (h >> 24) % 32 ? (h >> 32) % 20 : (h >> 32) % LARGEST;
	c->in_place = h >> 29 & 1;
	c->root = (h >> 52) % RANKS;
	c->shift = (h >> 56) % 3;
	c->seed = i;
}

/* Take in a result; compare one in so many with the oracle. */
static int finish(int rank, struct collective *c, struct results *results)
{
	if (data_mix(c->seed) % SAMPLE == 0)
		RANK_RIGHT(c);
	results->own[rank] = collective_hash(c, results->own[rank]);
	if (collective_is_same_on_all(c))
		results->same[rank] = collective_hash(c, results->same[rank]);
	return 0;
}

/* By number, whenever they were done: hashes depend on the order. */
static int run_program(int rank, void *arg)
{
	const struct program *p = arg;
	struct collective c[FLIGHT] = { 0 };
	struct kcr_world *w;
	long i;
	int k;

	for (k = 0; k < FLIGHT; k++)
		RANK_OK(NULL, collective_alloc(&c[k], collective_room(LARGEST, RANKS)));
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < p->rounds + FLIGHT; i++) {
		k = i % FLIGHT;
		if (i >= FLIGHT) {
			RANK_OK(w, collective_wait(&c[k]));
			if (finish(rank, &c[k], p->real))
				return 1;
		}
		if (i >= p->rounds)
			continue;
		choose(&c[k], i);
		collective_prepare(&c[k], w);
		if (data_mix(i * RANKS + rank) % 4)
			RANK_OK(w, collective_start(&c[k], w));
		else
			RANK_OK(w, collective_call(&c[k], w));
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	for (k = 0; k < FLIGHT; k++)
		collective_free(&c[k]);
	return 0;
}

/* The same by the emulator, in any order of delivery. */
static int emulate_program(const struct program *p)
{
	static struct collective c[FLIGHT][RANKS];
	const size_t room = collective_room(LARGEST, RANKS);
	struct kcr_emu *emu;
	struct kcr_world *w;
	int k, rank = 0;
	long i;

	RANK_OK(NULL, kcr_emu_create(RANKS, &emu));
	RANK_OK(NULL, kcr_emu_shuffle(emu, 1));
	for (k = 0; k < FLIGHT; k++)
		for (rank = 0; rank < RANKS; rank++)
			RANK_OK(NULL, collective_alloc(&c[k][rank], room));
	for (i = 0; i < p->rounds + FLIGHT; i++) {
		k = i % FLIGHT;
		for (rank = 0; i >= FLIGHT && rank < RANKS; rank++) {
			RANK_OK(kcr_emu_world(emu, rank), collective_wait(&c[k][rank]));
			if (finish(rank, &c[k][rank], p->emulated))
				return 1;
		}
		for (rank = 0; i < p->rounds && rank < RANKS; rank++) {
			w = kcr_emu_world(emu, rank);
			choose(&c[k][rank], i);
			collective_prepare(&c[k][rank], w);
			RANK_OK(w, collective_start(&c[k][rank], w));
		}
	}
	kcr_emu_destroy(emu);
	for (k = 0; k < FLIGHT; k++)
		for (rank = 0; rank < RANKS; rank++)
			collective_free(&c[k][rank]);
	return 0;
}

FIXTURE(mixed) {
	struct program program;
};

FIXTURE_VARIANT(mixed) {
	const char *algo;
	long rounds;
};

/* By size: direct and owner. */
FIXTURE_VARIANT_ADD(mixed, by_size) {
	.algo = "auto", .rounds = 1 << 17,
};

FIXTURE_VARIANT_ADD(mixed, chain) {
	.algo = "chain", .rounds = 1 << 15,
};

FIXTURE_SETUP(mixed)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	self->program.rounds = ranks_rounds(variant->rounds);
	self->program.real = ranks_shared(sizeof(struct results));
	self->program.emulated = ranks_shared(sizeof(struct results));
	ASSERT_NE(NULL, self->program.real);
	ASSERT_NE(NULL, self->program.emulated);
	setenv("KCR_ALGO", variant->algo, 1);
	setenv("KCR_DIRECT_MAX", "100", 1);
	setenv("KCR_LANE_BYTES", "256", 1);
	setenv("KCR_BOARD_BYTES", "512", 1);
	setenv("KCR_TIMEOUT", "60", 1);
}

FIXTURE_TEARDOWN(mixed)
{
}

TEST_F_TIMEOUT(mixed, as_the_emulator, 3600)
{
	struct results *real = self->program.real, *emulated = self->program.emulated;
	double began = ranks_now(), then;
	int r;

	ASSERT_EQ(0, ranks_run(RANKS, run_program, &self->program, 1800));
	then = ranks_now();
	ASSERT_EQ(0, emulate_program(&self->program));
	TH_LOG("%ld operations of %d ranks in %.1f s, emulated in %.1f s: hash %016lx",
	       self->program.rounds, RANKS, then - began, ranks_now() - then,
	       (long)real->same[0]);
	for (r = 0; r < RANKS; r++) {
		EXPECT_NE(0, real->same[r]);
		EXPECT_EQ(real->same[0], real->same[r]);
		EXPECT_EQ(emulated->same[r], real->same[r]);
		EXPECT_EQ(emulated->own[r], real->own[r]);
	}
}

TEST_HARNESS_MAIN
