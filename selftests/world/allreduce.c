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
	unsigned char *send, *recv, *want;
	struct kcr_world *w;
	long at;

	for (i = 0; i < job->n; i++)
		if (job->counts[i] > most)
			most = job->counts[i];
	bytes = (most + job->shift + 8) * size;
	send = aligned_alloc(4096, (bytes + 4095) & ~4095UL);
	recv = aligned_alloc(4096, (bytes + 4095) & ~4095UL);
	want = malloc(bytes);
	RANK_TRUE(send && recv && want);
	send += job->shift * size;
	recv = job->in_place ? send : recv + job->shift * size;

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

TEST_HARNESS_MAIN
