// SPDX-License-Identifier: GPL-2.0
/*
 * Ranks that call different things: -EPROTO on every rank, in this call or the
 * next, in words that name both calls; never wrong data, never a hang
 *
 * Over the link that KCR_LINK names.
 */
#include "kselftest_harness.h"
#include "data.h"
#include "ranks.h"

#define RANKS	4
#define MOST	200000

struct call {
	size_t count;
	enum kcr_dtype dtype;
	int barrier;
};

/* One rank calls @odd where the others call @usual. */
struct job {
	struct call usual, odd;
	int odd_rank;
	int before;		/* calls that are alike */
	struct shared {
		struct ranks_outcome outcome[RANKS];
	} *shared;
};

FIXTURE(mismatch) {
	struct job job;
};

FIXTURE_SETUP(mismatch)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_TIMEOUT", "20", 1);
	setenv("KCR_DIRECT_MAX", "4096", 1);
	self->job.shared = ranks_shared(sizeof(struct shared));
	ASSERT_NE(NULL, self->job.shared);
}

FIXTURE_TEARDOWN(mismatch)
{
}

static int make(struct kcr_world *w, const struct call *c, void *x)
{
	if (c->barrier)
		return kcr_barrier(w);
	return kcr_allreduce(w, x, x, c->count, c->dtype, KCR_SUM);
}

static void name(const struct call *c, int number, char text[64])
{
	if (c->barrier)
		snprintf(text, 64, "barrier #%d", number);
	else
		snprintf(text, 64, "allreduce #%d (%zu %s, sum)", number,
			 c->count, kcr_dtype_name(c->dtype));
}

static int differ(int rank, void *arg)
{
	const struct job *job = arg;
	struct ranks_outcome *o = &job->shared->outcome[rank];
	const struct call alike = { .count = 100, .dtype = KCR_F32 };
	void *x = calloc(MOST, sizeof(double));
	char theirs[64], ours[64];
	struct kcr_world *w;
	int i, err;

	RANK_TRUE(x);
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < job->before; i++)
		RANK_OK(w, make(w, &alike, x));
	err = make(w, rank == job->odd_rank ? &job->odd : &job->usual, x);
	ranks_record(o, w, err);
	/* It cannot end well for anybody: nobody has what it waits for. */
	RANK_GIVES(-EPROTO, w, err);
	name(&job->usual, job->before + 1, ours);
	name(&job->odd, job->before + 1, theirs);
	RANK_SAYS(w, "ranks differ");
	RANK_SAYS(w, ours);
	RANK_SAYS(w, theirs);
	RANK_REFUSED(-EPROTO, w, kcr_barrier(w), o->said);
	RANK_OK(NULL, kcr_world_destroy(w));
	free(x);
	return 0;
}

static const struct {
	const char *what;
	struct call a, b;
} pairs[] = {
	{ "two elements more",
	  { 409600 / 8, KCR_F32 }, { 409598 / 8, KCR_F32 } },
	{ "one element, small", { 100, KCR_F32 }, { 101, KCR_F32 } },
	{ "none and one", { 0, KCR_F32 }, { 1, KCR_F32 } },
	{ "type", { 100, KCR_F32 }, { 100, KCR_F64 } },
	{ "type, as many bytes", { 200, KCR_F32 }, { 100, KCR_F64 } },
	{ "type of nothing", { 0, KCR_F32 }, { 0, KCR_F64 } },
	{ "type, large", { 30000, KCR_F32 }, { 30000, KCR_F64 } },
	{ "allreduce and barrier", { 100, KCR_F32 }, { .barrier = 1 } },
	{ "large allreduce and barrier", { 100000, KCR_F32 }, { .barrier = 1 } },
	{ "empty allreduce and barrier", { 0, KCR_F32 }, { .barrier = 1 } },
	{ "direct and owner", { 1024, KCR_F32 }, { 1025, KCR_F32 } },
	{ "direct and long owner", { 5, KCR_F32 }, { MOST, KCR_F32 } },
	{ "owner and long owner", { 2000, KCR_F32 }, { MOST, KCR_F32 } },
	{ "fewer elements than ranks, and owner", { 3, KCR_F64 }, { 50000, KCR_F64 } },
};

static void run_pairs(struct __test_metadata *_metadata, struct job *job,
		      int ranks)
{
	int i, odd;

	for (i = 0; i < ARRAY_SIZE(pairs); i++) {
		for (odd = 0; odd < ranks; odd++) {
			double began = ranks_now();

			job->odd_rank = odd;
			job->usual = odd & 1 ? pairs[i].a : pairs[i].b;
			job->odd = odd & 1 ? pairs[i].b : pairs[i].a;
			job->before = (i + odd) % 3;
			EXPECT_EQ(0, ranks_run(ranks, differ, job, 60)) {
				TH_LOG("%s, rank %d of %d differs after %d calls",
				       pairs[i].what, odd, ranks, job->before);
			}
			EXPECT_LT(ranks_now() - began, 10);
		}
	}
}

TEST_F_TIMEOUT(mismatch, auto_of_four, 240)
{
	run_pairs(_metadata, &self->job, 4);
}

TEST_F_TIMEOUT(mismatch, auto_of_two, 240)
{
	run_pairs(_metadata, &self->job, 2);
}

TEST_F_TIMEOUT(mismatch, owner_in_many_segments, 240)
{
	setenv("KCR_ALGO", "owner", 1);
	setenv("KCR_LANE_BYTES", "1024", 1);
	setenv("KCR_BOARD_BYTES", "512", 1);
	run_pairs(_metadata, &self->job, 3);
}

TEST_F_TIMEOUT(mismatch, direct_in_many_segments, 240)
{
	setenv("KCR_ALGO", "direct", 1);
	setenv("KCR_BOARD_BYTES", "1024", 1);
	run_pairs(_metadata, &self->job, 3);
}

/* Asleep all the time: who sleeps must be woken by what it does not wait for. */
TEST_F_TIMEOUT(mismatch, asleep, 240)
{
	setenv("KCR_SPIN", "0", 1);
	setenv("KCR_YIELD", "0", 1);
	run_pairs(_metadata, &self->job, 3);
}

/*
 * One rank has called once more than the others: what it called then is
 * compared with what they call next, or they leave.
 */
struct extra_job {
	int leaves;
	int odd_rank;
};

static int call_once_more(int rank, void *arg)
{
	const struct extra_job *job = arg;
	static float x[1000];
	struct kcr_world *w;
	int i;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < 10; i++)
		RANK_OK(w, kcr_allreduce(w, x, x, 1000, KCR_F32, KCR_SUM));
	if (rank == job->odd_rank) {
		RANK_REFUSED(job->leaves ? -ESHUTDOWN : -EPROTO, w,
			     kcr_allreduce(w, x, x, 1000, KCR_F32, KCR_SUM),
			     job->leaves ? "allreduce #11: rank" :
			     "allreduce #11 (1000 f32, sum)");
	} else if (!job->leaves) {
		RANK_REFUSED(-EPROTO, w, kcr_barrier(w), "barrier #11");
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(mismatch, one_call_more, 120)
{
	struct extra_job job;

	for (job.leaves = 0; job.leaves < 2; job.leaves++) {
		for (job.odd_rank = 0; job.odd_rank < RANKS; job.odd_rank++) {
			EXPECT_EQ(0, ranks_run(RANKS, call_once_more, &job, 30)) {
				TH_LOG("rank %d, leaves %d", job.odd_rank,
				       job.leaves);
			}
		}
	}
}

/*
 * Every rank calls what it likes. A call may succeed only if all have made
 * the same, and then with the right bits; where they differ, all must see it.
 */
struct random_job {
	uint64_t seed;
};

static struct call any_call(uint64_t seed, int n)
{
	static const size_t counts[] = {
		0, 1, 3, 4, 5, 100, 511, 512, 513, 1023, 1024, 1025, 3000, 20000,
	};
	uint64_t h = data_mix(seed + 1000 * n);

	return (struct call){
		.count = counts[h % ARRAY_SIZE(counts)],
		.dtype = h >> 32 & 1 ? KCR_F32 : KCR_F64,
		.barrier = !(h >> 33 & 7),
	};
}

static int is_same(const struct call *a, const struct call *b)
{
	return a->barrier ? b->barrier :
	       !b->barrier && a->count == b->count && a->dtype == b->dtype;
}

static int call_at_random(int rank, void *arg)
{
	const struct random_job *job = arg;
	int odd = data_mix(job->seed) % RANKS;
	int at = data_mix(job->seed + 1) % 20;
	double *x = malloc(20000 * sizeof(double));
	double *want = malloc(20000 * sizeof(double));
	struct kcr_world *w;
	int i, err;

	RANK_TRUE(x && want);
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < 25; i++) {
		struct call usual = any_call(job->seed, i);
		struct call odds = any_call(job->seed + 7, i);
		int differs = i == at && !is_same(&usual, &odds);
		struct call c = differs && rank == odd ? odds : usual;

		if (!c.barrier)
			data_fill(x, c.count, c.dtype, rank, i);
		err = make(w, &c, x);
		if (differs) {
			RANK_GIVES(-EPROTO, w, err);
			RANK_SAYS(w, "ranks differ");
			break;
		}
		RANK_GIVES(0, w, err);
		if (c.barrier)
			continue;
		data_expect(want, c.count, c.dtype, KCR_SUM, RANKS, i);
		RANK_TRUE(data_differ(want, x, c.count, c.dtype) < 0);
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	free(x);
	free(want);
	return 0;
}

TEST_F_TIMEOUT(mismatch, at_random, 240)
{
	struct random_job job = { 0 };
	long round;

	setenv("KCR_LANE_BYTES", "1024", 1);
	setenv("KCR_BOARD_BYTES", "2048", 1);
	for (round = 0; round < ranks_rounds(300); round++) {
		job.seed = 0x5eed + 16 * round;
		ASSERT_EQ(0, ranks_run(RANKS, call_at_random, &job, 60)) {
			TH_LOG("seed %#lx", (long)job.seed);
		}
	}
}

TEST_HARNESS_MAIN
