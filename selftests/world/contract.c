// SPDX-License-Identifier: GPL-2.0
/*
 * What may not enter the bits of an allreduce, between processes: special
 * values, the callers' floating-point states, and NaNs of any kind
 *
 * Over the link that KCR_LINK names. The oracle itself is tested in host/fold.
 */
#include "kselftest_harness.h"
#include "data.h"
#include "ranks.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#define MOST	20011

/* Bits that have their own rules, in both types. */
static const uint32_t special_f32[] = {
	0x00000000, 0x80000000,			/* zeros */
	0x00000001, 0x80000001, 0x007fffff,	/* subnormal */
	0x00800000, 0x80800001,			/* the smallest normal */
	0x7f7fffff, 0xff7fffff,			/* the largest */
	0x7f800000, 0xff800000,			/* infinities */
	0x7fc00000, 0xffc00000, 0x7fc12345,	/* quiet NaNs */
	0x7f800001, 0xffbfffff,			/* signalling NaNs */
	0x3f800000, 0xbf800000, 0x4cbebc20,	/* 1, -1, 1e8 */
};

static const uint64_t special_f64[] = {
	0x0000000000000000, 0x8000000000000000,
	0x0000000000000001, 0x8000000000000001, 0x000fffffffffffff,
	0x0010000000000000, 0x8010000000000001,
	0x7fefffffffffffff, 0xffefffffffffffff,
	0x7ff0000000000000, 0xfff0000000000000,
	0x7ff8000000000000, 0xfff8000000000000, 0x7ff8000000012345,
	0x7ff0000000000001, 0xfff7ffffffffffff,
	0x3ff0000000000000, 0xbff0000000000000, 0x4341c37937e08000,
};

/* Any of them at any rank, but few NaNs, which would hide the rest. */
static void fill(void *buffer, size_t count, enum kcr_dtype dtype, int rank)
{
	uint64_t h;
	size_t i, k;

	for (i = 0; i < count; i++) {
		h = data_mix(i * 64 + rank);
		k = h % ARRAY_SIZE(special_f32);
		if (k >= 9 && k <= 15 && (h >> 32) % 8)
			k = (h >> 40) % 9;
		if (dtype == KCR_F32)
			((uint32_t *)buffer)[i] = special_f32[k];
		else
			((uint64_t *)buffer)[i] = special_f64[k];
	}
}

/* A state of the thread that spoils arithmetic, another one for every rank. */
static unsigned int spoil_state(int rank)
{
#ifdef __x86_64__
	static const unsigned int states[] = {
		0x1f80,			/* the usual one */
		0xffc0,			/* toward zero, FTZ, DAZ */
		0x3f80, 0x5f80,		/* down, up */
		0x0000,			/* all exceptions trap */
		0x9fff,			/* FTZ, all flags up */
	};
	unsigned int state = states[rank % ARRAY_SIZE(states)];

	_mm_setcsr(state);
	return state;
#else
	return 0;
#endif
}

/* Back to the usual one; what it was until now. */
static unsigned int usual_state(void)
{
#ifdef __x86_64__
	unsigned int state = _mm_getcsr();

	_mm_setcsr(0x1f80);
	return state;
#else
	return 0;
#endif
}

static int special_values(int rank, void *arg)
{
	static const size_t counts[] = { 1, 2, 7, 64, 1000, 1023, 8192, MOST };
	static const enum kcr_dtype dtypes[] = { KCR_F32, KCR_F64 };
	static uint64_t x[8][MOST], got[MOST], want[MOST];
	unsigned int before, after;
	const void *in[8];
	struct kcr_world *w;
	size_t i, d;
	int err, r, n;
	long at;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	n = kcr_size(w);
	for (d = 0; d < ARRAY_SIZE(dtypes); d++) {
		for (r = 0; r < n; r++) {
			fill(x[r], MOST, dtypes[d], r);
			in[r] = x[r];
		}
		for (i = 0; i < ARRAY_SIZE(counts); i++) {
			memset(got, 0x5a, sizeof(got));
			before = spoil_state(rank);
			err = kcr_allreduce(w, x[rank], got, counts[i], dtypes[d],
					    KCR_SUM);
			after = usual_state();
			if (err)
				RANK_FAIL("%d: %s", err, kcr_error(w));
			if (after != before)
				RANK_FAIL("MXCSR was %#x, is %#x", before, after);
			RANK_OK(NULL, kcr_reference_fold(in, n, want, counts[i],
							 dtypes[d], KCR_SUM));
			at = data_differ(want, got, counts[i], dtypes[d]);
			if (at >= 0)
				RANK_FAIL("%s, count %zu: element %ld is wrong",
					  kcr_dtype_name(dtypes[d]), counts[i], at);
		}
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

/* The first element of a message that is all NaN is the canonical one. */
static int all_nan(int rank, void *arg)
{
	static uint32_t x[MOST], got[MOST];
	struct kcr_world *w;
	size_t i;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < MOST; i++)
		x[i] = 0xff800001 + data_mix(i * 64 + rank) % 0x7ffffe;
	RANK_OK(w, kcr_allreduce(w, x, got, MOST, KCR_F32, KCR_SUM));
	for (i = 0; i < MOST; i++)
		if (got[i] != (kcr_size(w) > 1 ? 0x7fc00000 : x[i]))
			RANK_FAIL("element %zu is %#x", i, got[i]);
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

FIXTURE(contract) {
};

FIXTURE_VARIANT(contract) {
	const char *algo;
};

FIXTURE_VARIANT_ADD(contract, direct) {
	.algo = "direct",
};

FIXTURE_VARIANT_ADD(contract, owner) {
	.algo = "owner",
};

FIXTURE_SETUP(contract)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_ALGO", variant->algo, 1);
	setenv("KCR_TIMEOUT", "60", 1);
}

FIXTURE_TEARDOWN(contract)
{
}

TEST_F_TIMEOUT(contract, special_values, 240)
{
	int ranks;

	for (ranks = 2; ranks <= 6; ranks++)
		ASSERT_EQ(0, ranks_run(ranks, special_values, NULL, 60));
}

TEST_F_TIMEOUT(contract, all_nan, 120)
{
	int ranks;

	for (ranks = 1; ranks <= 4; ranks++)
		ASSERT_EQ(0, ranks_run(ranks, all_nan, NULL, 60));
}

TEST_HARNESS_MAIN
