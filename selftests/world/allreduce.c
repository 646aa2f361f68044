// SPDX-License-Identifier: GPL-2.0
/*
 * kcr_allreduce() between processes: the oracle's bits, on every rank, for any
 * algorithm, count, alignment, in place or not
 *
 * Over the link that KCR_LINK names.
 */
#include "kselftest_harness.h"
#include "data.h"
#include "ranks.h"

#define GUARD	0x5a

struct job {
	enum kcr_dtype dtype;
	const size_t *counts;
	size_t n;
	int in_place;
	size_t shift;		/* elements by which buffers are off a page */
	uint64_t *hashes;	/* one a rank */
};

/* From nothing to several times what a slot holds, and around the borders. */
static const size_t small_counts[] = {
	0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 100, 255, 256,
	257, 1000, 1023, 1024, 1025, 2047, 4095, 4096, 4097, 0, 1,
};

static const size_t large_counts[] = {
	8191, 8192, 8193, 16384, 16385, 65535, 65536, 65537, 100003, 262144,
	262145, 524309,
};

static int reduce_and_compare(int rank, void *arg)
{
	const struct job *job = arg;
	size_t size = kcr_dtype_size(job->dtype);
	size_t most = 0, bytes, i, k;
	unsigned char *memory[2], *send, *recv, *want;
	struct kcr_world *w;
	long at;

	for (i = 0; i < job->n; i++)
		if (job->counts[i] > most)
			most = job->counts[i];
	bytes = (most + job->shift + 8) * size;
	for (i = 0; i < 2; i++)
		memory[i] = aligned_alloc(4096, (bytes + 4095) & ~4095UL);
	want = malloc(bytes);
	RANK_TRUE(memory[0] && memory[1] && want);
	send = memory[0] + job->shift * size;
	recv = memory[!job->in_place] + job->shift * size;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_TRUE(kcr_rank(w) == rank);
	for (i = 0; i < job->n; i++) {
		size_t count = job->counts[i];

		/* What lies behind the elements must stay as it is. */
		memset(recv, GUARD, (count + 8) * size);
		memset(send + count * size, GUARD, 8 * size);
		data_fill(send, count, job->dtype, rank, i);
		RANK_OK(w, kcr_allreduce(w, send, recv, count, job->dtype, KCR_SUM));
		RANK_OK(NULL, data_expect(want, count, job->dtype, KCR_SUM,
					  kcr_size(w), i));
		at = data_differ(want, recv, count, job->dtype);
		if (at >= 0)
			RANK_FAIL("count %zu: element %ld is wrong", count, at);
		for (k = 0; k < 8 * size; k++)
			RANK_TRUE(recv[count * size + k] == GUARD);
		if (!job->in_place) {
			data_fill(want, count, job->dtype, rank, i);
			RANK_TRUE(data_differ(want, send, count, job->dtype) < 0);
		}
		job->hashes[rank] = data_hash(recv, count * size,
					      job->hashes[rank]);
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	free(memory[0]);
	free(memory[1]);
	free(want);
	return 0;
}

FIXTURE(allreduce) {
	uint64_t *hashes;
};

FIXTURE_VARIANT(allreduce) {
	const char *algo;
	enum kcr_dtype dtype;
	int in_place;
};

FIXTURE_VARIANT_ADD(allreduce, auto_f32) {
	.algo = "auto", .dtype = KCR_F32,
};

FIXTURE_VARIANT_ADD(allreduce, direct_f32) {
	.algo = "direct", .dtype = KCR_F32,
};

FIXTURE_VARIANT_ADD(allreduce, owner_f32) {
	.algo = "owner", .dtype = KCR_F32,
};

FIXTURE_VARIANT_ADD(allreduce, direct_f64_in_place) {
	.algo = "direct", .dtype = KCR_F64, .in_place = 1,
};

FIXTURE_VARIANT_ADD(allreduce, owner_f64_in_place) {
	.algo = "owner", .dtype = KCR_F64, .in_place = 1,
};

FIXTURE_SETUP(allreduce)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_ALGO", variant->algo, 1);
	setenv("KCR_TIMEOUT", "60", 1);
	self->hashes = ranks_shared(KCR_RANKS_MAX * sizeof(uint64_t));
	ASSERT_NE(NULL, self->hashes);
}

FIXTURE_TEARDOWN(allreduce)
{
}

static void run(struct __test_metadata *_metadata, uint64_t *hashes,
		struct job *job, int ranks, double seconds)
{
	int r;

	memset(hashes, 0, KCR_RANKS_MAX * sizeof(uint64_t));
	job->hashes = hashes;
	ASSERT_EQ(0, ranks_run(ranks, reduce_and_compare, job, seconds)) {
		TH_LOG("%d ranks, shift %zu", ranks, job->shift);
	}
	for (r = 0; r < ranks; r++)
		EXPECT_EQ(hashes[0], hashes[r]);
}

TEST_F_TIMEOUT(allreduce, one_to_eight_ranks, 240)
{
	struct job job = {
		.dtype = variant->dtype, .in_place = variant->in_place,
		.counts = small_counts, .n = ARRAY_SIZE(small_counts),
	};
	int ranks;

	for (ranks = 1; ranks <= 8; ranks++)
		run(_metadata, self->hashes, &job, ranks, 60);
}

TEST_F_TIMEOUT(allreduce, large, 240)
{
	struct job job = {
		.dtype = variant->dtype, .in_place = variant->in_place,
		.counts = large_counts, .n = ARRAY_SIZE(large_counts),
	};

	/* Emulation is slow: the longest are for the host. */
	if (ranks_rounds(2) == 1)
		job.n -= 3;
	run(_metadata, self->hashes, &job, 4, 120);
}

TEST_F_TIMEOUT(allreduce, any_alignment, 240)
{
	struct job job = {
		.dtype = variant->dtype, .in_place = variant->in_place,
		.counts = small_counts, .n = ARRAY_SIZE(small_counts),
	};

	for (job.shift = 1; job.shift <= 17; job.shift += 4)
		run(_metadata, self->hashes, &job, 3, 60);
}

/*
 * Counts around whatever the library may cut by: slots, segments, shards and
 * the choice of an algorithm. Slots are so small that most counts need many.
 */
FIXTURE(borders) {
	uint64_t *hashes;
};

FIXTURE_VARIANT(borders) {
	const char *algo, *lane_bytes, *board_bytes, *depth, *direct_max;
	enum kcr_dtype dtype;
	int in_place;
};

FIXTURE_VARIANT_ADD(borders, direct_64) {
	.algo = "direct", .lane_bytes = "64", .board_bytes = "64", .depth = "2",
	.direct_max = "32768", .dtype = KCR_F32,
};

FIXTURE_VARIANT_ADD(borders, owner_64) {
	.algo = "owner", .lane_bytes = "64", .board_bytes = "64", .depth = "2",
	.direct_max = "32768", .dtype = KCR_F64,
};

FIXTURE_VARIANT_ADD(borders, owner_64_and_256_in_place) {
	.algo = "owner", .lane_bytes = "64", .board_bytes = "256", .depth = "3",
	.direct_max = "32768", .dtype = KCR_F32, .in_place = 1,
};

FIXTURE_VARIANT_ADD(borders, owner_odd_bytes) {
	.algo = "owner", .lane_bytes = "131", .board_bytes = "101", .depth = "2",
	.direct_max = "32768", .dtype = KCR_F32, .in_place = 1,
};

FIXTURE_VARIANT_ADD(borders, direct_odd_bytes_in_place) {
	.algo = "direct", .lane_bytes = "64", .board_bytes = "133", .depth = "5",
	.direct_max = "32768", .dtype = KCR_F64, .in_place = 1,
};

FIXTURE_VARIANT_ADD(borders, auto_512) {
	.algo = "auto", .lane_bytes = "256", .board_bytes = "256", .depth = "2",
	.direct_max = "512", .dtype = KCR_F32,
};

FIXTURE_VARIANT_ADD(borders, auto_513_in_place) {
	.algo = "auto", .lane_bytes = "256", .board_bytes = "128", .depth = "4",
	.direct_max = "513", .dtype = KCR_F64, .in_place = 1,
};

FIXTURE_VARIANT_ADD(borders, auto_always_owner) {
	.algo = "auto", .lane_bytes = "128", .board_bytes = "256", .depth = "2",
	.direct_max = "0", .dtype = KCR_F64,
};

FIXTURE_SETUP(borders)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_ALGO", variant->algo, 1);
	setenv("KCR_LANE_BYTES", variant->lane_bytes, 1);
	setenv("KCR_BOARD_BYTES", variant->board_bytes, 1);
	setenv("KCR_LANE_DEPTH", variant->depth, 1);
	setenv("KCR_BOARD_DEPTH", variant->depth, 1);
	setenv("KCR_DIRECT_MAX", variant->direct_max, 1);
	setenv("KCR_TIMEOUT", "60", 1);
	self->hashes = ranks_shared(KCR_RANKS_MAX * sizeof(uint64_t));
	ASSERT_NE(NULL, self->hashes);
}

FIXTURE_TEARDOWN(borders)
{
}

/* @n, one less and one more, unless they are there. */
static size_t add_border(size_t *counts, size_t have, size_t most, size_t n)
{
	size_t c, i;

	for (c = n ? n - 1 : 0; c <= n + 1; c++) {
		for (i = 0; i < have && counts[i] != c; i++)
			;
		if (i == have && have < most)
			counts[have++] = c;
	}
	return have;
}

TEST_F_TIMEOUT(borders, plus_and_minus_one, 240)
{
	/* What a slot holds behind its frame's header. */
	const size_t header = 32, size = kcr_dtype_size(variant->dtype);
	size_t lane = (atoi(variant->lane_bytes) - header) / size;
	size_t board = (atoi(variant->board_bytes) - header) / size;
	size_t direct = atoi(variant->direct_max) / size;
	size_t depth = atoi(variant->depth);
	size_t counts[200], n, i;
	int ranks;

	for (ranks = 2; ranks <= 8; ranks++) {
		struct job job = {
			.dtype = variant->dtype, .in_place = variant->in_place,
			.shift = ranks % 3, .counts = counts,
		};

		n = 0;
		for (i = 1; i <= 2 * ranks; i++)
			n = add_border(counts, n, 200, i);
		for (i = 1; i <= 3; i++) {
			n = add_border(counts, n, 200, i * lane);
			n = add_border(counts, n, 200, i * board);
			n = add_border(counts, n, 200, i * lane * ranks);
			n = add_border(counts, n, 200, i * board * ranks);
		}
		n = add_border(counts, n, 200, depth * lane * ranks);
		n = add_border(counts, n, 200, 4 * depth * board * ranks + 5);
		n = add_border(counts, n, 200, direct);
		job.n = n;
		run(_metadata, self->hashes, &job, ranks, 60);
	}
}

FIXTURE(cases) {
};

FIXTURE_SETUP(cases)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_TIMEOUT", "100", 1);
}

FIXTURE_TEARDOWN(cases)
{
}

/* CASES S4: sizes that gave wrong sums elsewhere. */
static const size_t s4_counts[] = {
	1048576, 9999999, 10556576, 10556587, 10556592, 12345678,
};

struct big {
	size_t count;
	float *want;		/* shared */
};

/* Cheap, and different at every place and rank. */
static float big_value(int rank, size_t i)
{
	uint32_t h = (uint32_t)i * 2654435761u + rank * 0x9e3779b9u;

	h ^= h >> 15;
	h *= 0x2c1b3c6du;
	return (float)(int32_t)h * (i & 1 ? 1.0f : 1.0f / (1 << 20));
}

static int reduce_big(int rank, void *arg)
{
	const struct big *big = arg;
	float *x = malloc(big->count * sizeof(float));
	struct kcr_world *w;
	size_t i;

	RANK_TRUE(x);
	for (i = 0; i < big->count; i++)
		x[i] = big_value(rank, i);
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_OK(w, kcr_allreduce(w, x, x, big->count, KCR_F32, KCR_SUM));
	if (data_differ(big->want, x, big->count, KCR_F32) >= 0)
		RANK_FAIL("count %zu: element %ld is wrong", big->count,
			  data_differ(big->want, x, big->count, KCR_F32));
	RANK_OK(NULL, kcr_world_destroy(w));
	free(x);
	return 0;
}

static void expect_big(float *want, size_t count, int ranks)
{
	enum { BLOCK = 4096 };
	static float block[8][BLOCK];
	const void *in[8];
	size_t at, i;
	int r;

	for (r = 0; r < 8; r++)
		in[r] = block[r];
	for (at = 0; at < count; at += BLOCK) {
		size_t len = count - at < BLOCK ? count - at : BLOCK;

		for (r = 0; r < ranks; r++)
			for (i = 0; i < len; i++)
				block[r][i] = big_value(r, at + i);
		kcr_reference_fold(in, ranks, want + at, len, KCR_F32, KCR_SUM);
	}
}

/*
 * Each with two numbers of ranks, and each number of ranks with two of them; all
 * with all in the long form. In a virtual machine's memory only some fit.
 */
TEST_F_TIMEOUT(cases, sizes_that_were_wrong_elsewhere, 400)
{
	int small = ranks_rounds(2) == 1 && !getenv("KCR_TEST_LONG");
	struct big big;
	int ranks, i;

	big.want = ranks_shared(s4_counts[5] * sizeof(float));
	ASSERT_NE(NULL, big.want);
	for (ranks = 2; ranks <= 8; ranks++) {
		for (i = 0; i < ARRAY_SIZE(s4_counts); i++) {
			if (!getenv("KCR_TEST_LONG") && (ranks + i) % 3)
				continue;
			if (small && i && ranks > 2)
				continue;
			big.count = s4_counts[i];
			expect_big(big.want, big.count, ranks);
			EXPECT_EQ(0, ranks_run(ranks, reduce_big, &big, 100)) {
				TH_LOG("%zu elements, %d ranks", big.count, ranks);
			}
		}
	}
}

/* CASES N5: the ranks' order is the order of the sum, and shows in its bits. */
static const float n5_values[4] = { 1e8f, 1.0f, -1e8f, 1.0f };

struct permuted {
	int orders[24][4];
	int n;
};

static void permute(struct permuted *p, int *order, int at)
{
	int i, t;

	if (at == 4) {
		memcpy(p->orders[p->n++], order, sizeof(p->orders[0]));
		return;
	}
	for (i = at; i < 4; i++) {
		t = order[at], order[at] = order[i], order[i] = t;
		permute(p, order, at + 1);
		t = order[at], order[at] = order[i], order[i] = t;
	}
}

/* Not even the compiler may know better. */
static float in_order(const int order[4])
{
	volatile float sum = n5_values[order[0]];
	int r;

	for (r = 1; r < 4; r++)
		sum = sum + n5_values[order[r]];
	return sum;
}

static int reduce_permuted(int rank, void *arg)
{
	static const size_t counts[] = { 1, 3, 4, 9, 1000, 20000 };
	const struct permuted *p = arg;
	static float x[20000];
	struct kcr_world *w;
	size_t c, i;
	int n;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (c = 0; c < ARRAY_SIZE(counts); c++) {
		for (n = 0; n < 24; n++) {
			float want = in_order(p->orders[n]);

			for (i = 0; i < counts[c]; i++)
				x[i] = n5_values[p->orders[n][rank]];
			RANK_OK(w, kcr_allreduce(w, x, x, counts[c], KCR_F32,
						 KCR_SUM));
			for (i = 0; i < counts[c]; i++)
				RANK_TRUE(!memcmp(&x[i], &want, sizeof(want)));
		}
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(cases, order_of_ranks, 120)
{
	static const char * const algos[] = { "direct", "owner", "auto" };
	int order[4] = { 0, 1, 2, 3 }, i, kinds = 0;
	struct permuted p = { 0 };

	permute(&p, order, 0);
	ASSERT_EQ(24, p.n);
	/* 0, 1 or 2: whoever takes another order is found out. */
	for (i = 0; i < 24; i++)
		kinds |= 1 << (int)in_order(p.orders[i]);
	ASSERT_EQ(1 << 0 | 1 << 1 | 1 << 2, kinds);
	for (i = 0; i < 3; i++) {
		setenv("KCR_ALGO", algos[i], 1);
		EXPECT_EQ(0, ranks_run(4, reduce_permuted, &p, 60));
	}
}

/* The usual test data is a probe, too: enough of it tells two orders apart. */
TEST(data_shows_the_order)
{
	enum { COUNT = 1000 };
	static float in[8][COUNT], sum[COUNT], other[COUNT];
	const void *ordered[8], *swapped[8];
	int ranks, r, i, differ;

	for (ranks = 3; ranks <= 8; ranks++) {
		for (r = 0; r < ranks; r++) {
			data_fill(in[r], COUNT, KCR_F32, r, 5);
			ordered[r] = in[r];
			swapped[r] = in[(r + 1) % ranks];
		}
		ASSERT_EQ(0, kcr_reference_fold(ordered, ranks, sum, COUNT, KCR_F32,
						KCR_SUM));
		ASSERT_EQ(0, kcr_reference_fold(swapped, ranks, other, COUNT,
						KCR_F32, KCR_SUM));
		for (differ = 0, i = 0; i < COUNT; i++)
			differ += !!memcmp(&sum[i], &other[i], sizeof(float));
		EXPECT_LT(COUNT / 20, differ) {
			TH_LOG("%d ranks: %d of %d", ranks, differ, COUNT);
		}
	}
}

/* CASES N6: in place, { rank, 1 / rank }, where the ranks count from 1. */
static int reduce_n6(int rank, void *arg)
{
	float x[2] = { rank + 1, 1.0f / (rank + 1) }, want[2], others[9][2];
	double y[2] = { rank + 1, 1.0 / (rank + 1) }, wants[2], more[9][2];
	const void *in[9];
	struct kcr_world *w;
	int r, n;

	(void)arg;
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	n = kcr_size(w);
	for (r = 0; r < n; r++) {
		others[r][0] = r + 1;
		others[r][1] = 1.0f / (r + 1);
		in[r] = others[r];
	}
	RANK_OK(NULL, kcr_reference_fold(in, n, want, 2, KCR_F32, KCR_SUM));
	RANK_OK(w, kcr_allreduce(w, x, x, 2, KCR_F32, KCR_SUM));
	RANK_TRUE(!memcmp(x, want, sizeof(x)));
	for (r = 0; r < n; r++) {
		more[r][0] = r + 1;
		more[r][1] = 1.0 / (r + 1);
		in[r] = more[r];
	}
	RANK_OK(NULL, kcr_reference_fold(in, n, wants, 2, KCR_F64, KCR_SUM));
	RANK_OK(w, kcr_allreduce(w, y, y, 2, KCR_F64, KCR_SUM));
	RANK_TRUE(!memcmp(y, wants, sizeof(y)));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(cases, in_place_from_four_ranks, 60)
{
	int ranks;

	for (ranks = 4; ranks <= 9; ranks++)
		EXPECT_EQ(0, ranks_run(ranks, reduce_n6, NULL, 30));
}

/* A barrier lets nobody through before all have come. */
struct barrier_job {
	long rounds;
	long *come;		/* shared, one a rank */
};

static int pass_barriers(int rank, void *arg)
{
	const struct barrier_job *job = arg;
	uint64_t random = rank;
	struct kcr_world *w;
	long i;
	int r;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 1; i <= job->rounds; i++) {
		if (!(data_random(&random) % 4))
			ranks_sleep(data_random(&random) % 1000 / 1e6);
		__atomic_store_n(&job->come[rank], i, __ATOMIC_SEQ_CST);
		RANK_OK(w, kcr_barrier(w));
		for (r = 0; r < kcr_size(w); r++) {
			long at = __atomic_load_n(&job->come[r], __ATOMIC_SEQ_CST);

			if (at != i && at != i + 1)
				RANK_FAIL("through barrier %ld, rank %d is at %ld",
					  i, r, at);
		}
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(cases, barrier_waits_for_all, 120)
{
	struct barrier_job job;
	int ranks;

	job.rounds = ranks_rounds(640) * 3;
	job.come = ranks_shared(8 * sizeof(long));
	ASSERT_NE(NULL, job.come);
	for (ranks = 1; ranks <= 8; ranks += ranks < 4 ? 1 : 4) {
		memset(job.come, 0, 8 * sizeof(long));
		EXPECT_EQ(0, ranks_run(ranks, pass_barriers, &job, 60));
	}
}

/* CASES S2: nothing, from nowhere. */
static int reduce_nothing(int rank, void *arg)
{
	struct kcr_world *w;
	float x[2] = { 1, 2 };
	int i;

	(void)arg;
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < 100; i++) {
		RANK_OK(w, kcr_allreduce(w, NULL, NULL, 0, KCR_F32, KCR_SUM));
		RANK_OK(w, kcr_allreduce(w, x, x, 0, KCR_F64, KCR_SUM));
		RANK_OK(w, kcr_allreduce(w, NULL, x, 0, KCR_F32, KCR_SUM));
	}
	RANK_TRUE(x[0] == 1 && x[1] == 2);
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(cases, nothing, 60)
{
	int ranks;

	for (ranks = 1; ranks <= 8; ranks++)
		EXPECT_EQ(0, ranks_run(ranks, reduce_nothing, NULL, 30));
}

TEST_HARNESS_MAIN
