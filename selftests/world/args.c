// SPDX-License-Identifier: GPL-2.0
/*
 * Arguments that cannot be: refused by the calling rank, in words that name the
 * field and its values, before anything is sent
 *
 * Configurations, and calls in a world of one, are in host/configuration.
 * Over the link that KCR_LINK names.
 */
#include <pthread.h>
#include "kselftest_harness.h"
#include "data.h"
#include "ranks.h"

#define COUNT	1000

FIXTURE(args) {
};

FIXTURE_SETUP(args)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_TIMEOUT", "20", 1);
}

FIXTURE_TEARDOWN(args)
{
}

/* A call that all make and that works: nothing was sent before it. */
static int works(struct kcr_world *w, int rank, uint64_t seed)
{
	static double x[COUNT], want[COUNT];

	data_fill(x, COUNT, KCR_F64, rank, seed);
	RANK_OK(w, kcr_allreduce(w, x, x, COUNT, KCR_F64, KCR_SUM));
	RANK_OK(NULL, data_expect(want, COUNT, KCR_F64, KCR_SUM, kcr_size(w),
				  seed));
	RANK_TRUE(data_differ(want, x, COUNT, KCR_F64) < 0);
	return 0;
}

static int pass_bad_pointers(struct kcr_world *w, int rank)
{
	static double buffer[2 * COUNT];
	float *x = (float *)buffer, *y = x + 2 * COUNT;
	const struct {
		const void *send;
		void *recv;
		size_t count;
		enum kcr_dtype dtype;
		const char *says;
	} bad[] = {
		{ NULL, y, 10, KCR_F32, "send is NULL and count is 10" },
		{ x, NULL, 10, KCR_F32, "recv is NULL and count is 10" },
		{ NULL, NULL, 1, KCR_F32, "is NULL and count is 1" },
		/* Misaligned. */
		{ (char *)x + 1, y, 10, KCR_F32, "aligned to the element's 4 bytes" },
		{ x, (char *)y + 2, 10, KCR_F32, "recv is at" },
		{ (char *)x + 3, (char *)x + 3, 10, KCR_F32, "send is at" },
		{ (char *)x + 4, y, 10, KCR_F64, "aligned to the element's 8 bytes" },
		/* Overlap in part, from either side, by one element or nearly all. */
		{ x, x + 1, 10, KCR_F32, "overlap in part (40 bytes each)" },
		{ x + 1, x, 10, KCR_F32, "overlap in part" },
		{ x, x + 9, 10, KCR_F32, "overlap in part" },
		{ x + 9, x, 10, KCR_F32, "overlap in part" },
		{ x, x + 2, 2, KCR_F64, "overlap in part (16 bytes each)" },
		/* Counts whose bytes do not fit. */
		{ x, y, SIZE_MAX, KCR_F32, "count is 18446744073709551615" },
		{ x, x, SIZE_MAX / 4 + 1, KCR_F32, "overflows" },
		{ x, x, SIZE_MAX / 8 + 1, KCR_F64, "overflows" },
		{ x, y, (size_t)PTRDIFF_MAX / 8 + 1, KCR_F64, "times 8 bytes it overflows" },
		{ x, y, (size_t)1 << 63, KCR_F32, "overflows" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		RANK_REFUSED(-EINVAL, w,
			     kcr_allreduce(w, bad[i].send, bad[i].recv,
					   bad[i].count, bad[i].dtype, KCR_SUM),
			     bad[i].says);
	return 0;
}

static int pass_unsupported(struct kcr_world *w, int rank)
{
	static uint64_t x[10];
	char text[64];
	int type, op;

	for (type = 0; type < KCR_DTYPES; type++) {
		for (op = 0; op < KCR_OPS; op++) {
			if (data_is_supported(type, op))
				continue;
			snprintf(text, sizeof(text), "%s of %s is not supported",
				 kcr_op_name(op), kcr_dtype_name(type));
			RANK_REFUSED(-EOPNOTSUPP, w,
				     kcr_allreduce(w, x, x, 10, type, op), text);
			/* Not even for nothing. */
			RANK_GIVES(-EOPNOTSUPP, w,
				   kcr_allreduce(w, x, x, 0, type, op));
		}
	}
	RANK_REFUSED(-EOPNOTSUPP, w, kcr_allreduce(w, x, x, 10, KCR_DTYPES, KCR_SUM),
		     "unknown type");
	RANK_REFUSED(-EOPNOTSUPP, w, kcr_allreduce(w, x, x, 10, KCR_F32, KCR_OPS),
		     "unknown operation");
	RANK_GIVES(-EOPNOTSUPP, w, kcr_allreduce(w, x, x, 10, -1, KCR_SUM));
	RANK_GIVES(-EOPNOTSUPP, w, kcr_allreduce(w, x, x, 10, KCR_F32, -1));
	RANK_GIVES(-EOPNOTSUPP, w, kcr_allreduce(w, x, x, 10, 1 << 30, 1 << 30));
	return 0;
}

/* What borders on a mistake and is none. */
static int pass_good_ones(struct kcr_world *w, int rank)
{
	static float x[40];

	RANK_OK(w, kcr_allreduce(w, x, x + 10, 10, KCR_F32, KCR_SUM));
	RANK_OK(w, kcr_allreduce(w, x + 10, x, 10, KCR_F32, KCR_SUM));
	RANK_OK(w, kcr_allreduce(w, x + 1, x + 1, 7, KCR_F32, KCR_SUM));
	RANK_OK(w, kcr_allreduce(w, NULL, NULL, 0, KCR_F32, KCR_SUM));
	RANK_OK(w, kcr_allreduce(w, (char *)x + 1, x, 0, KCR_F64, KCR_SUM));
	RANK_OK(w, kcr_allreduce(w, x, NULL, 0, KCR_F64, KCR_SUM));
	return 0;
}

/* Only some ranks make the mistakes: the others wait for the call that works. */
static int make_mistakes(int rank, void *arg)
{
	struct kcr_world *w;

	(void)arg;
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	if (works(w, rank, 1) || (rank != 1 && pass_bad_pointers(w, rank)) ||
	    works(w, rank, 2) || (rank && pass_unsupported(w, rank)) ||
	    works(w, rank, 3) || pass_good_ones(w, rank) || works(w, rank, 4))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(args, refused_before_anything_is_sent, 60)
{
	EXPECT_EQ(0, ranks_run(3, make_mistakes, NULL, 30));
}

TEST_F_TIMEOUT(args, refused_in_a_world_of_one, 60)
{
	EXPECT_EQ(0, ranks_run(1, make_mistakes, NULL, 30));
}

TEST_F(args, no_world)
{
	float x[4] = { 0 };

	EXPECT_EQ(-EINVAL, kcr_rank(NULL));
	EXPECT_EQ(-EINVAL, kcr_size(NULL));
	EXPECT_EQ(-EINVAL, kcr_local_rank(NULL));
	EXPECT_EQ(-EINVAL, kcr_local_size(NULL));
	EXPECT_NE(NULL, kcr_link_name(NULL));
	EXPECT_NE(NULL, kcr_error(NULL));
	EXPECT_EQ(0, kcr_world_destroy(NULL));
	EXPECT_EQ(-EINVAL, kcr_allreduce(NULL, x, x, 4, KCR_F32, KCR_SUM));
	EXPECT_STREQ("world is NULL", kcr_error(NULL));
	EXPECT_EQ(-EINVAL, kcr_barrier(NULL));
	EXPECT_EQ(-EINVAL, kcr_abort(NULL, EIO));
	EXPECT_EQ(-EINVAL, kcr_world_create(NULL, NULL));
	EXPECT_STREQ("world is NULL", kcr_error(NULL));
}

/* The errors of a thread's calls are not another's. */
static void *fail_elsewhere(void *arg)
{
	(void)arg;
	return (void *)(long)kcr_world_create(NULL, NULL);
}

TEST_F(args, errors_belong_to_a_thread)
{
	pthread_t thread;
	void *gave;

	EXPECT_EQ(-EINVAL, kcr_barrier(NULL));
	ASSERT_EQ(0, pthread_create(&thread, NULL, fail_elsewhere, NULL));
	ASSERT_EQ(0, pthread_join(thread, &gave));
	EXPECT_EQ(-EINVAL, (long)gave);
	EXPECT_STREQ("world is NULL", kcr_error(NULL));
}

TEST_HARNESS_MAIN
