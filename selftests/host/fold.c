// SPDX-License-Identifier: GPL-2.0
/*
 * kcr_reference_fold(): the bits that the contract asks for
 *
 * Expected bits are constants, or are folded here, in a loop of our own, so
 * that the oracle is not compared with itself.
 */
#include <errno.h>
#include <fenv.h>
#include <signal.h>
#include <sys/resource.h>

#include "kselftest_harness.h"
#include "data.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

#define NAN_F32		0x7fc00000u
#define NAN_F64		0x7ff8000000000000ull

#define MOST		64

static uint32_t bits_f32(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

static uint64_t bits_f64(double d)
{
	uint64_t u;

	memcpy(&u, &d, sizeof(u));
	return u;
}

/* Fold one element of each rank, given and returned as bits. */
static uint32_t fold_f32(const uint32_t *x, int ranks)
{
	uint32_t out = 0xdeadbeef;
	const void *in[MOST];
	int r;

	for (r = 0; r < ranks; r++)
		in[r] = &x[r];
	if (kcr_reference_fold(in, ranks, &out, 1, KCR_F32, KCR_SUM))
		return 0xdeadbeef;
	return out;
}

static uint64_t fold_f64(const uint64_t *x, int ranks)
{
	uint64_t out = 0xdeadbeefdeadbeefull;
	const void *in[MOST];
	int r;

	for (r = 0; r < ranks; r++)
		in[r] = &x[r];
	if (kcr_reference_fold(in, ranks, &out, 1, KCR_F64, KCR_SUM))
		return 0xdeadbeefdeadbeefull;
	return out;
}

static uint32_t fold4_f32(float a, float b, float c, float d)
{
	uint32_t x[4] = { bits_f32(a), bits_f32(b), bits_f32(c), bits_f32(d) };

	return fold_f32(x, 4);
}

static uint64_t fold4_f64(double a, double b, double c, double d)
{
	uint64_t x[4] = { bits_f64(a), bits_f64(b), bits_f64(c), bits_f64(d) };

	return fold_f64(x, 4);
}

/* The order of the ranks is the order of the sum. */
TEST(left_fold_f32)
{
	EXPECT_EQ(bits_f32(1.0f), fold4_f32(1e8f, 1.0f, -1e8f, 1.0f));
	EXPECT_EQ(bits_f32(2.0f), fold4_f32(1e8f, -1e8f, 1.0f, 1.0f));
	EXPECT_EQ(bits_f32(0.0f), fold4_f32(1.0f, 1e8f, 1.0f, -1e8f));
	EXPECT_EQ(bits_f32(1.0f), fold4_f32(1.0f, 1e8f, -1e8f, 1.0f));
	EXPECT_EQ(bits_f32(0.0f), fold4_f32(1.0f, 1.0f, 1e8f, -1e8f));
	EXPECT_EQ(bits_f32(0.0f), fold4_f32(1e8f, 1.0f, 1.0f, -1e8f));
	EXPECT_EQ(bits_f32(1.0f), fold4_f32(-1e8f, 1.0f, 1e8f, 1.0f));
}

TEST(left_fold_f64)
{
	EXPECT_EQ(bits_f64(1.0), fold4_f64(1e16, 1.0, -1e16, 1.0));
	EXPECT_EQ(bits_f64(2.0), fold4_f64(1e16, -1e16, 1.0, 1.0));
	EXPECT_EQ(bits_f64(0.0), fold4_f64(1.0, 1e16, 1.0, -1e16));
	EXPECT_EQ(bits_f64(1.0), fold4_f64(1.0, 1e16, -1e16, 1.0));
	EXPECT_EQ(bits_f64(0.0), fold4_f64(1e16, 1.0, 1.0, -1e16));
	EXPECT_EQ(bits_f64(2.0), fold4_f64(1.0, 1.0, 1e16, -1e16));
}

/* f32 is added in f32: in a wider type the small ones would survive. */
TEST(rounds_at_every_step)
{
	uint32_t x[5] = {
		0x4b800000,	/* 2^24, where the spacing becomes 2 */
		0x3f800000, 0x3f800000, 0x3f800000,
		0xcb800000,
	};
	uint64_t y[5] = {
		0x4340000000000000,	/* 2^53 */
		0x3ff0000000000000, 0x3ff0000000000000, 0x3ff0000000000000,
		0xc340000000000000,
	};

	EXPECT_EQ(0, fold_f32(x, 5));
	EXPECT_EQ(0, fold_f64(y, 5));

	/* Ties to even, both ways: 2^24 + 1 falls, 2^24 + 2 + 1 rises. */
	x[0] = 0x4b800000;
	EXPECT_EQ(0x4b800000, fold_f32(x, 2));
	x[0] = 0x4b800001;
	EXPECT_EQ(0x4b800002, fold_f32(x, 2));
}

/*
 * Random data against a loop of our own. The sums must also depend on the
 * order, or the data could not show a wrong one.
 */
TEST(random_f32)
{
	static float x[8][1000], out[1000];
	int ranks, r, sensitive = 0;
	const void *in[8];
	size_t i;

	for (r = 0; r < 8; r++) {
		data_fill(x[r], 1000, KCR_F32, r, 1);
		in[r] = x[r];
	}
	for (ranks = 2; ranks <= 8; ranks++) {
		ASSERT_EQ(0, kcr_reference_fold(in, ranks, out, 1000, KCR_F32, KCR_SUM));
		for (i = 0; i < 1000; i++) {
			float sum = x[0][i], other = x[ranks - 1][i];

			for (r = 1; r < ranks; r++)
				sum = sum + x[r][i];
			for (r = ranks - 2; r >= 0; r--)
				other = other + x[r][i];
			ASSERT_EQ(bits_f32(sum), bits_f32(out[i])) {
				TH_LOG("ranks %d element %zu", ranks, i);
			}
			sensitive += bits_f32(sum) != bits_f32(other);
		}
	}
	EXPECT_LT(2000, sensitive);
}

TEST(random_f64)
{
	static double x[8][1000], out[1000];
	int ranks, r, sensitive = 0;
	const void *in[8];
	size_t i;

	for (r = 0; r < 8; r++) {
		data_fill(x[r], 1000, KCR_F64, r, 2);
		in[r] = x[r];
	}
	for (ranks = 2; ranks <= 8; ranks++) {
		ASSERT_EQ(0, kcr_reference_fold(in, ranks, out, 1000, KCR_F64, KCR_SUM));
		for (i = 0; i < 1000; i++) {
			double sum = x[0][i], other = x[ranks - 1][i];

			for (r = 1; r < ranks; r++)
				sum = sum + x[r][i];
			for (r = ranks - 2; r >= 0; r--)
				other = other + x[r][i];
			ASSERT_EQ(bits_f64(sum), bits_f64(out[i])) {
				TH_LOG("ranks %d element %zu", ranks, i);
			}
			sensitive += bits_f64(sum) != bits_f64(other);
		}
	}
	EXPECT_LT(2000, sensitive);
}

static const uint32_t nans_f32[] = {
	0x7fc00000, 0xffc00000,		/* quiet */
	0x7fc12345, 0xffc54321,		/* with payloads */
	0x7fffffff, 0xffffffff,
	0x7f800001, 0xff800001,		/* signalling */
	0x7fa00000, 0xffbfffff,
};

static const uint64_t nans_f64[] = {
	0x7ff8000000000000, 0xfff8000000000000,
	0x7ff8000000012345, 0xfff8000000054321,
	0x7fffffffffffffff, 0xffffffffffffffff,
	0x7ff0000000000001, 0xfff0000000000001,
	0x7ff4000000000000, 0xfff7ffffffffffff,
};

/* Whichever NaN goes in, at whichever rank, one NaN comes out. */
TEST(nan_is_canonical)
{
	size_t n, m;
	int ranks, r;

	for (n = 0; n < ARRAY_SIZE(nans_f32); n++) {
		for (ranks = 2; ranks <= 5; ranks++) {
			for (r = 0; r < ranks; r++) {
				uint32_t x[5] = { 0x3f800000, 0xbf800000, 0x40490fdb,
						  0x80000000, 0x7f800000 };
				uint64_t y[5] = { 0x3ff0000000000000,
						  0xbff0000000000000,
						  0x400921fb54442d18,
						  0x8000000000000000,
						  0x7ff0000000000000 };

				x[r] = nans_f32[n];
				y[r] = nans_f64[n];
				EXPECT_EQ(NAN_F32, fold_f32(x, ranks));
				EXPECT_EQ(NAN_F64, fold_f64(y, ranks));
			}
		}
		for (m = 0; m < ARRAY_SIZE(nans_f32); m++) {
			uint32_t x[2] = { nans_f32[n], nans_f32[m] };
			uint64_t y[2] = { nans_f64[n], nans_f64[m] };

			EXPECT_EQ(NAN_F32, fold_f32(x, 2));
			EXPECT_EQ(NAN_F64, fold_f64(y, 2));
		}
	}
}

TEST(infinities)
{
	uint32_t x[3] = { 0x7f800000, 0xff800000, 0x3f800000 };
	uint64_t y[3] = { 0x7ff0000000000000, 0xfff0000000000000,
			  0x3ff0000000000000 };
	uint32_t over[2] = { 0x7f7fffff, 0x7f7fffff };
	uint64_t over64[2] = { 0x7fefffffffffffff, 0x7fefffffffffffff };

	/* The default NaN of x86 is negative, ours is not. */
	EXPECT_EQ(NAN_F32, fold_f32(x, 2));
	EXPECT_EQ(NAN_F32, fold_f32(x, 3));
	EXPECT_EQ(NAN_F64, fold_f64(y, 2));
	EXPECT_EQ(NAN_F64, fold_f64(y, 3));
	x[1] = 0xbf800000;
	y[1] = 0xbff0000000000000;
	EXPECT_EQ(0x7f800000, fold_f32(x, 3));
	EXPECT_EQ(0x7ff0000000000000, fold_f64(y, 3));
	EXPECT_EQ(0x7f800000, fold_f32(over, 2));
	EXPECT_EQ(0x7ff0000000000000, fold_f64(over64, 2));
}

TEST(zeros)
{
	uint32_t minus[2] = { 0x80000000, 0x80000000 };
	uint32_t mixed[2] = { 0x80000000, 0 };
	uint32_t cancel[2] = { 0x3f800000, 0xbf800000 };
	uint64_t minus64[2] = { 1ull << 63, 1ull << 63 };
	uint64_t cancel64[2] = { 0x3ff0000000000000, 0xbff0000000000000 };

	EXPECT_EQ(0x80000000, fold_f32(minus, 2));
	EXPECT_EQ(0, fold_f32(mixed, 2));
	EXPECT_EQ(0, fold_f32(cancel, 2));
	EXPECT_EQ(1ull << 63, fold_f64(minus64, 2));
	EXPECT_EQ(0, fold_f64(cancel64, 2));
}

/* A world of one returns its input, whatever that is. */
TEST(one_rank_copies_bits)
{
	uint32_t x[ARRAY_SIZE(nans_f32) + 4], out[ARRAY_SIZE(x)];
	uint64_t y[ARRAY_SIZE(nans_f64) + 4], out64[ARRAY_SIZE(y)];
	const void *in[1] = { x };
	size_t n = ARRAY_SIZE(nans_f32);

	memcpy(x, nans_f32, sizeof(nans_f32));
	x[n] = 0x80000000;
	x[n + 1] = 1;
	x[n + 2] = 0xff800000;
	x[n + 3] = 0x807fffff;
	memset(out, 0x5a, sizeof(out));
	ASSERT_EQ(0, kcr_reference_fold(in, 1, out, ARRAY_SIZE(x), KCR_F32, KCR_SUM));
	EXPECT_EQ(0, memcmp(x, out, sizeof(x)));
	ASSERT_EQ(0, kcr_reference_fold(in, 1, x, ARRAY_SIZE(x), KCR_F32, KCR_SUM));
	EXPECT_EQ(0, memcmp(x, out, sizeof(x)));

	memcpy(y, nans_f64, sizeof(nans_f64));
	y[n] = 1ull << 63;
	y[n + 1] = 1;
	y[n + 2] = 0xfff0000000000000;
	y[n + 3] = 0x800fffffffffffff;
	in[0] = y;
	memset(out64, 0x5a, sizeof(out64));
	ASSERT_EQ(0, kcr_reference_fold(in, 1, out64, ARRAY_SIZE(y), KCR_F64, KCR_SUM));
	EXPECT_EQ(0, memcmp(y, out64, sizeof(y)));
}

TEST(count_zero)
{
	uint32_t x[2] = { 1, 2 }, out = 0x12345678;
	const void *in[2] = { &x[0], &x[1] };

	EXPECT_EQ(0, kcr_reference_fold(in, 2, &out, 0, KCR_F32, KCR_SUM));
	EXPECT_EQ(0, kcr_reference_fold(in, 1, &out, 0, KCR_F64, KCR_SUM));
	EXPECT_EQ(0x12345678, out);
}

/* The result may replace any operand; elements behind it stay as they are. */
TEST(in_place_over_any_operand)
{
	enum { N = 517 };
	static float x[5][N + 1], saved[5][N + 1], want[N];
	static double y[5][N + 1], saved64[5][N + 1], want64[N];
	const void *in[5], *in64[5];
	int ranks, r;

	for (r = 0; r < 5; r++) {
		data_fill(saved[r], N + 1, KCR_F32, r, 3);
		data_fill(saved64[r], N + 1, KCR_F64, r, 3);
		in[r] = x[r];
		in64[r] = y[r];
	}
	for (ranks = 1; ranks <= 5; ranks++) {
		memcpy(x, saved, sizeof(x));
		memcpy(y, saved64, sizeof(y));
		ASSERT_EQ(0, kcr_reference_fold(in, ranks, want, N, KCR_F32, KCR_SUM));
		ASSERT_EQ(0, kcr_reference_fold(in64, ranks, want64, N, KCR_F64, KCR_SUM));
		for (r = 0; r < ranks; r++) {
			memcpy(x, saved, sizeof(x));
			memcpy(y, saved64, sizeof(y));
			ASSERT_EQ(0, kcr_reference_fold(in, ranks, x[r], N,
							KCR_F32, KCR_SUM));
			ASSERT_EQ(0, kcr_reference_fold(in64, ranks, y[r], N,
							KCR_F64, KCR_SUM));
			EXPECT_EQ(-1, data_differ(want, x[r], N, KCR_F32));
			EXPECT_EQ(-1, data_differ(want64, y[r], N, KCR_F64));
			memcpy(x[r], saved[r], N * sizeof(float));
			memcpy(y[r], saved64[r], N * sizeof(double));
			EXPECT_EQ(0, memcmp(x, saved, sizeof(x)));
			EXPECT_EQ(0, memcmp(y, saved64, sizeof(y)));
		}
	}
}

TEST(unsupported_is_refused)
{
	uint64_t x[2] = { 1, 2 }, out = 0x0123456789abcdef;
	const void *in[2] = { &x[0], &x[1] };
	int dtype, op;

	for (dtype = -1; dtype <= KCR_DTYPES; dtype++) {
		for (op = -1; op <= KCR_OPS; op++) {
			if (data_is_supported(dtype, op))
				continue;
			EXPECT_EQ(-EOPNOTSUPP, kcr_reference_fold(in, 2, &out, 1, dtype, op)) {
				TH_LOG("dtype %d op %d", dtype, op);
			}
			EXPECT_NE('\0', kcr_error(NULL)[0]);
		}
	}
	EXPECT_EQ(0x0123456789abcdef, out);
	EXPECT_EQ(-EINVAL, kcr_reference_fold(in, 0, &out, 1, KCR_F32, KCR_SUM));
	EXPECT_EQ(-EINVAL, kcr_reference_fold(in, -1, &out, 1, KCR_F32, KCR_SUM));
	EXPECT_EQ(0x0123456789abcdef, out);
}

#ifdef __x86_64__

/* What a step may do in hardware, and what must not change with the state. */
struct probe {
	const char *name;
	uint32_t x[2], want;
	uint64_t y[2], want64;
};

static const struct probe probes[] = {
	{ "tie", { 0x4b800001, 0x3f800000 }, 0x4b800002,
	  { 0x4340000000000001, 0x3ff0000000000000 }, 0x4340000000000002 },
	{ "negative tie", { 0xcb800000, 0xbf800000 }, 0xcb800000,
	  { 0xc340000000000000, 0xbff0000000000000 }, 0xc340000000000000 },
	{ "inexact", { 0x3dcccccd, 0x3e4ccccd }, 0x3e99999a,
	  { 0x3fb999999999999a, 0x3fc999999999999a }, 0x3fd3333333333334 },
	{ "subnormal operands", { 0x00000001, 0x00000002 }, 0x00000003,
	  { 1, 2 }, 3 },
	{ "subnormal result", { 0x00800001, 0x80800000 }, 0x00000001,
	  { 0x0010000000000001, 0x8010000000000000 }, 1 },
	{ "subnormal to normal", { 0x007fffff, 0x00000001 }, 0x00800000,
	  { 0x000fffffffffffff, 1 }, 0x0010000000000000 },
	{ "overflow", { 0x7f7fffff, 0x7f7fffff }, 0x7f800000,
	  { 0x7fefffffffffffff, 0x7fefffffffffffff }, 0x7ff0000000000000 },
	{ "invalid", { 0x7f800000, 0xff800000 }, NAN_F32,
	  { 0x7ff0000000000000, 0xfff0000000000000 }, NAN_F64 },
	{ "signalling", { 0x7f800001, 0x3f800000 }, NAN_F32,
	  { 0x7ff0000000000001, 0x3ff0000000000000 }, NAN_F64 },
	{ "minus zero", { 0x3f800000, 0xbf800000 }, 0,
	  { 0x3ff0000000000000, 0xbff0000000000000 }, 0 },
};

#define MXCSR_FLAGS	0x003f
#define MXCSR_DAZ	0x0040
#define MXCSR_MASKS	0x1f80
#define MXCSR_ROUND	0x6000
#define MXCSR_FTZ	0x8000

/*
 * Run every probe with the thread's state set to @mxcsr. The state is set and
 * read next to the call: the harness does arithmetic of its own.
 */
static int probe_state(struct __test_metadata *_metadata, unsigned int mxcsr)
{
	unsigned int saved = _mm_getcsr(), after;
	uint32_t got;
	uint64_t got64;
	size_t i;
	int bad = 0;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		const struct probe *p = &probes[i];

		_mm_setcsr(mxcsr);
		got = fold_f32(p->x, 2);
		after = _mm_getcsr();
		_mm_setcsr(saved);
		if (got != p->want || after != mxcsr) {
			TH_LOG("%s, f32, MXCSR %#x: %#x, expected %#x; MXCSR after it %#x",
			       p->name, mxcsr, got, p->want, after);
			bad++;
		}
		_mm_setcsr(mxcsr);
		got64 = fold_f64(p->y, 2);
		after = _mm_getcsr();
		_mm_setcsr(saved);
		if (got64 != p->want64 || after != mxcsr) {
			TH_LOG("%s, f64, MXCSR %#x: %#llx, expected %#llx; MXCSR after it %#x",
			       p->name, mxcsr, (unsigned long long)got64,
			       (unsigned long long)p->want64, after);
			bad++;
		}
	}
	return bad;
}

TEST(state_default)
{
	EXPECT_EQ(0, probe_state(_metadata, MXCSR_MASKS));
}

TEST(state_rounding_modes)
{
	unsigned int round;

	for (round = 0; round <= MXCSR_ROUND; round += 0x2000)
		EXPECT_EQ(0, probe_state(_metadata, MXCSR_MASKS | round));
}

TEST(state_flush_to_zero)
{
	EXPECT_EQ(0, probe_state(_metadata, MXCSR_MASKS | MXCSR_FTZ));
	EXPECT_EQ(0, probe_state(_metadata, MXCSR_MASKS | MXCSR_DAZ));
	EXPECT_EQ(0, probe_state(_metadata, MXCSR_MASKS | MXCSR_FTZ | MXCSR_DAZ));
}

/* The flags are the caller's: those that were up stay, no others appear. */
TEST(state_flags)
{
	unsigned int flags;

	for (flags = 0; flags <= MXCSR_FLAGS; flags++)
		ASSERT_EQ(0, probe_state(_metadata, MXCSR_MASKS | flags));
}

/* With an exception unmasked, a step that raises it would be a SIGFPE. */
TEST(state_unmasked)
{
	unsigned int mask;

	EXPECT_EQ(0, probe_state(_metadata, 0));
	for (mask = 0x80; mask <= 0x1000; mask <<= 1)
		EXPECT_EQ(0, probe_state(_metadata, MXCSR_MASKS & ~mask));
}

/* ... and that the probes would show it, if the library did nothing. */
TEST_SIGNAL(state_unmasked_bites, SIGFPE)
{
	float x = 3e38f;

	/* The core of a death on purpose is of no use to anyone. */
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	_mm_setcsr(0);
	__asm__ volatile("addss %0, %0" : "+x" (x));
	_mm_setcsr(MXCSR_MASKS);
}

TEST(state_all_at_once)
{
	unsigned int round, flags;

	for (round = 0; round <= MXCSR_ROUND; round += 0x2000)
		for (flags = 0; flags <= MXCSR_FLAGS; flags += 7)
			ASSERT_EQ(0, probe_state(_metadata, round | flags |
						 MXCSR_FTZ | MXCSR_DAZ));
}

/* Long vectors may take another body than single elements do. */
TEST(state_long_vectors)
{
	enum { N = 4099 };
	static float x[3][N], want[N], got[N];
	static double y[3][N], want64[N], got64[N];
	const void *in[3] = { x[0], x[1], x[2] };
	const void *in64[3] = { y[0], y[1], y[2] };
	unsigned int saved = _mm_getcsr(), state, after, round;
	size_t i;
	int r, err;

	for (r = 0; r < 3; r++) {
		data_fill(x[r], N, KCR_F32, r, 4);
		data_fill(y[r], N, KCR_F64, r, 4);
		for (i = 0; i < N; i += 3) {
			/* Into the subnormal range, in two steps. */
			x[r][i] = x[r][i] / 0x1p126f / 0x1p22f;
			y[r][i] = y[r][i] / 0x1p1000 / 0x1p60;
		}
	}
	ASSERT_EQ(0, kcr_reference_fold(in, 3, want, N, KCR_F32, KCR_SUM));
	ASSERT_EQ(0, kcr_reference_fold(in64, 3, want64, N, KCR_F64, KCR_SUM));
	for (round = 0; round <= MXCSR_ROUND; round += 0x2000) {
		state = round | MXCSR_FTZ | MXCSR_DAZ;
		_mm_setcsr(state);
		err = kcr_reference_fold(in, 3, got, N, KCR_F32, KCR_SUM);
		err |= kcr_reference_fold(in64, 3, got64, N, KCR_F64, KCR_SUM);
		after = _mm_getcsr();
		_mm_setcsr(saved);
		ASSERT_EQ(0, err);
		EXPECT_EQ(state, after);
		EXPECT_EQ(-1, data_differ(want, got, N, KCR_F32));
		EXPECT_EQ(-1, data_differ(want64, got64, N, KCR_F64));
	}
}

/* The x87 unit is not used, and its words are not touched. */
TEST(state_x87)
{
	unsigned short before, after, status;
	uint32_t x[2] = { 0x3dcccccd, 0x3e4ccccd }, got;

	__asm__ volatile("fnclex\n\tfnstcw %0" : "=m" (before));
	before = (before & ~0xf00) | 0x400;	/* single precision, down */
	__asm__ volatile("fldcw %0" : : "m" (before));
	got = fold_f32(x, 2);
	__asm__ volatile("fnstcw %0\n\tfnstsw %1\n\tfninit"
			 : "=m" (after), "=m" (status));
	EXPECT_EQ(0x3e99999a, got);
	EXPECT_EQ(before, after);
	EXPECT_EQ(0, status & 0xff);
}

#else

/* Where the control word has another shape: what C can say about it. */
TEST(state_rounding_modes)
{
	static const int modes[] = { FE_TONEAREST, FE_UPWARD, FE_DOWNWARD,
				     FE_TOWARDZERO };
	uint32_t x[2] = { 0x4b800001, 0x3f800000 }, got;
	size_t i;
	int after;

	for (i = 0; i < ARRAY_SIZE(modes); i++) {
		fesetround(modes[i]);
		feclearexcept(FE_ALL_EXCEPT);
		got = fold_f32(x, 2);
		after = fegetround();
		fesetround(FE_TONEAREST);
		EXPECT_EQ(0x4b800002, got);
		EXPECT_EQ(modes[i], after);
		EXPECT_EQ(0, fetestexcept(FE_ALL_EXCEPT));
	}
}

#endif

TEST_HARNESS_MAIN
