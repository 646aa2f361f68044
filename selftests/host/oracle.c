// SPDX-License-Identifier: GPL-2.0
/*
 * The oracle, which everything else is compared with, against arithmetic of
 * another kind
 *
 * Integers: in 128 bits, reduced modulo 2^n. f32: each step in double, f64: each step
 * in a 113-bit type; both are wide enough that rounding twice is rounding once.
 * 16-bit floats: see half.c. And known answers, for cases from other
 * projects' reports.
 *
 * Budget: 2 seconds.
 */
#include <math.h>

#include "kselftest_harness.h"
#include "probe.h"

PROBE_BUDGET(2)

#define RANKS_MOST	256

#ifdef __aarch64__
#define QUAD	long double
#else
#define QUAD	__float128
#endif

/* x modulo 2^bits, as the type reads it. */
static __int128 reduce(__int128 x, int bits, int is_signed)
{
	__int128 modulus = (__int128)1 << bits;

	x %= modulus;
	if (x < 0)
		x += modulus;
	if (is_signed && x >= modulus / 2)
		x -= modulus;
	return x;
}

static __int128 int_at(const void *x, size_t i, int dtype)
{
	size_t size = kcr_dtype_size(dtype);

	return reduce((__int128)probe_bits(x, i, dtype), size * 8,
		      dtype % 2 == KCR_I8 % 2);
}

static __int128 int_step(int op, __int128 a, __int128 b)
{
	switch (op) {
	case KCR_PROD:
		return a * b;	/* 64 bits times 64 bits, also negative ones */
	case KCR_MIN:
		return a < b ? a : b;
	case KCR_MAX:
		return a > b ? a : b;
	case KCR_BAND:
		return a & b;
	case KCR_BOR:
		return a | b;
	case KCR_BXOR:
		return a ^ b;
	default:
		return a + b;
	}
}

static uint64_t int_fold(const void *const in[], int ranks, size_t i, int dtype,
			 int op)
{
	int bits = kcr_dtype_size(dtype) * 8, is_signed = dtype % 2 == KCR_I8 % 2;
	__int128 a = int_at(in[0], i, dtype);

	for (int r = 1; r < ranks; r++) {
		__int128 b = int_at(in[r], i, dtype);

		/* Two of 2^64 - 1 do not fit a signed 128-bit product. */
		if (op == KCR_PROD) {
			a = reduce(a, bits, 1);
			b = reduce(b, bits, 1);
		}
		a = reduce(int_step(op, a, b), bits, is_signed);
	}
	if (op == KCR_MEAN)
		a = a < 0 ? -(-a / ranks) : a / ranks;
	return a & (((__int128)1 << bits) - 1);
}

TEST(integers)
{
	enum { COUNT = 1000 };
	static const int many[] = { 2, 3, 4, 5, 6, 7, 8, 9, 16, 255, 256 };
	static uint64_t x[RANKS_MOST][COUNT], out[COUNT];
	const void *in[RANKS_MOST];

	for (int dtype = KCR_I8; dtype <= KCR_U64; dtype++) {
		for (int r = 0; r < RANKS_MOST; r++) {
			probe_fill(x[r], COUNT, dtype, r, 21);
			in[r] = x[r];
		}
		for (int op = 0; op < KCR_OPS; op++) {
			for (size_t w = 0; w < ARRAY_SIZE(many); w++) {
				size_t n = many[w] < 10 ? COUNT : COUNT / 10;

				ASSERT_EQ(0, kcr_reference_fold(in, many[w], out, n,
								dtype, op));
				for (size_t i = 0; i < n; i++) {
					uint64_t want = int_fold(in, many[w], i,
								 dtype, op);

					ASSERT_EQ(want, probe_bits(out, i, dtype)) {
						TH_LOG("%s of %s, W %d",
						       kcr_op_name(op),
						       kcr_dtype_name(dtype), many[w]);
					}
				}
			}
		}
	}
}

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

/* The bits order the values, once negative ones are turned around; -0 < +0. */
static int64_t place(uint64_t bits, int dtype)
{
	int64_t x = dtype == KCR_F32 ? (int64_t)(int32_t)bits : (int64_t)bits;
	int64_t low = dtype == KCR_F32 ? (int64_t)INT32_MIN : INT64_MIN;

	return x < 0 ? low - x - 1 : x;
}

static int is_nan(uint64_t bits, int dtype)
{
	const struct probe_float *f = &probe_floats[dtype - KCR_F16];
	uint64_t infinity = ((1ull << f->ebits) - 1) << f->mbits;

	return (bits & ((1ull << (f->ebits + f->mbits)) - 1)) > infinity;
}

static float step_f32(int op, float a, float b)
{
	return op == KCR_PROD ? (float)((double)a * (double)b) :
				(float)((double)a + (double)b);
}

static double step_f64(int op, double a, double b)
{
	return op == KCR_PROD ? (double)((QUAD)a * (QUAD)b) :
				(double)((QUAD)a + (QUAD)b);
}

static uint64_t float_fold(const void *const in[], int ranks, size_t i,
			   int dtype, int op)
{
	uint64_t nan = probe_floats[dtype - KCR_F16].nan;
	uint64_t best = probe_bits(in[0], i, dtype);
	float f = ((const float *)in[0])[dtype == KCR_F32 ? i : 0];
	double d = ((const double *)in[0])[dtype == KCR_F64 ? i : 0];

	for (int r = 0; r < ranks; r++) {
		uint64_t x = probe_bits(in[r], i, dtype);

		if (is_nan(x, dtype))
			return nan;
		if (op == KCR_MIN && place(x, dtype) < place(best, dtype))
			best = x;
		if (op == KCR_MAX && place(x, dtype) > place(best, dtype))
			best = x;
		if (r && dtype == KCR_F32)
			f = step_f32(op, f, ((const float *)in[r])[i]);
		if (r && dtype == KCR_F64)
			d = step_f64(op, d, ((const double *)in[r])[i]);
	}
	if (op == KCR_MIN || op == KCR_MAX)
		return best;
	if (op == KCR_MEAN) {
		f = step_f32(KCR_PROD, f, (float)(1.0 / ranks));
		d = step_f64(KCR_PROD, d, (double)((QUAD)1 / ranks));
	}
	best = dtype == KCR_F32 ? bits_f32(f) : bits_f64(d);
	return is_nan(best, dtype) ? nan : best;
}

TEST(floats)
{
	enum { COUNT = 4000 };
	static const int many[] = { 2, 3, 4, 5, 6, 7, 8, 9, 31, 256 };
	static double x[RANKS_MOST][COUNT], out[COUNT];
	const void *in[RANKS_MOST];

	for (int dtype = KCR_F32; dtype <= KCR_F64; dtype++) {
		for (int r = 0; r < RANKS_MOST; r++) {
			probe_fill(x[r], COUNT, dtype, r, 22);
			in[r] = x[r];
		}
		for (int op = 0; op <= KCR_MEAN; op++) {
			for (size_t w = 0; w < ARRAY_SIZE(many); w++) {
				size_t n = many[w] < 10 ? COUNT : COUNT / 20;

				ASSERT_EQ(0, kcr_reference_fold(in, many[w], out, n,
								dtype, op));
				for (size_t i = 0; i < n; i++) {
					uint64_t want = float_fold(in, many[w], i,
								   dtype, op);

					ASSERT_EQ(want, probe_bits(out, i, dtype)) {
						TH_LOG("%s of %s, W %d, element %zu",
						       kcr_op_name(op),
						       kcr_dtype_name(dtype), many[w],
						       i);
					}
				}
			}
		}
	}
}

/* One element of each rank, as bits. */
static uint64_t fold_bits(int dtype, int op, int ranks, const uint64_t x[])
{
	const void *in[RANKS_MOST];
	uint64_t out = 0;

	for (int r = 0; r < ranks; r++)
		in[r] = &x[r];
	if (kcr_reference_fold(in, ranks, &out, 1, dtype, op))
		return 0xbad;
	return out;
}

#define FOLD_BITS(dtype, op, ...)					\
	fold_bits(dtype, op, sizeof((uint64_t[]){ __VA_ARGS__ }) / 8,	\
		  (uint64_t[]){ __VA_ARGS__ })

/* Small whole numbers, as bits of each float type. */
static uint64_t number(int dtype, int x)
{
	static const uint16_t f16[] = { 0, 0x3c00, 0x4000, 0x4200, 0x4400 };

	switch (dtype) {
	case KCR_F16:
		return f16[x];
	case KCR_BF16:
		return bits_f32(x) >> 16;
	case KCR_F32:
		return bits_f32(x);
	default:
		return bits_f64(x);
	}
}

/* 1, NaN, 3, 4, in all 24 orders; whichever NaN. */
TEST(nan_wins)
{
	for (int dtype = KCR_F16; dtype <= KCR_F64; dtype++) {
		for (int order = 0; order < 256; order++) {
			int at[] = { order & 3, order >> 2 & 3, order >> 4 & 3,
				     order >> 6 };
			uint64_t x[4];

			if ((1 << at[0] | 1 << at[1] | 1 << at[2] | 1 << at[3]) != 15)
				continue;
			for (int nan = 4; nan <= 13; nan++) {
				x[at[0]] = number(dtype, 1);
				x[at[1]] = probe_special(dtype, nan);
				x[at[2]] = number(dtype, 3);
				x[at[3]] = number(dtype, 4);
				for (int op = 0; op <= KCR_MEAN; op++)
					ASSERT_EQ(probe_floats[dtype - KCR_F16].nan,
						  fold_bits(dtype, op, 4, x));
			}
		}
	}
}

/* 1e8, 1, -1e8, 1 in the four rotations: a left fold in ascending rank. */
TEST(order)
{
	const uint64_t big = bits_f32(1e8f), minus = bits_f32(-1e8f);
	const uint64_t one = bits_f32(1), two = bits_f32(2);

	EXPECT_EQ(one, FOLD_BITS(KCR_F32, KCR_SUM, big, one, minus, one));
	EXPECT_EQ(0, FOLD_BITS(KCR_F32, KCR_SUM, one, big, one, minus));
	EXPECT_EQ(one, FOLD_BITS(KCR_F32, KCR_SUM, minus, one, big, one));
	EXPECT_EQ(0, FOLD_BITS(KCR_F32, KCR_SUM, one, minus, one, big));
	EXPECT_EQ(two, FOLD_BITS(KCR_F32, KCR_SUM, big, minus, one, one));
	EXPECT_EQ(bits_f32(0.25f),
		  FOLD_BITS(KCR_F32, KCR_MEAN, big, one, minus, one));
}

/* n = 15 and 28, where multiplying and dividing differ: one multiply by 1/n. */
TEST(mean)
{
	static const int many[] = { 15, 28 };
	uint64_t x[28];
	int differing = 0;

	for (size_t w = 0; w < ARRAY_SIZE(many); w++) {
		for (int value = 1; value <= 64; value++) {
			float sum = 0, times = 1.0f / many[w];

			for (int r = 0; r < many[w]; r++) {
				x[r] = bits_f32(value * 0.1f + r);
				sum = r ? sum + (value * 0.1f + r) : value * 0.1f;
			}
			EXPECT_EQ(bits_f32(sum * times),
				  fold_bits(KCR_F32, KCR_MEAN, many[w], x));
			differing += bits_f32(sum * times) != bits_f32(sum / many[w]);
		}
	}
	EXPECT_LT(0, differing);
	/* 15 ones: 15 * fl(1/15), which is 1 after rounding. */
	for (int r = 0; r < 28; r++)
		x[r] = bits_f32(1);
	EXPECT_EQ(0x3f800000, fold_bits(KCR_F32, KCR_MEAN, 15, x));
	EXPECT_EQ(0x3f800000, fold_bits(KCR_F32, KCR_MEAN, 28, x));
}

TEST(mean_of_integers)
{
	uint64_t x[RANKS_MOST];

	EXPECT_EQ(7, FOLD_BITS(KCR_I32, KCR_MEAN, 7, 8));
	EXPECT_EQ((uint32_t)-3, FOLD_BITS(KCR_I32, KCR_MEAN, (uint32_t)-7, 0));
	EXPECT_EQ((uint8_t)-3, FOLD_BITS(KCR_I8, KCR_MEAN, (uint8_t)-7, 0));
	EXPECT_EQ((uint64_t)-3, FOLD_BITS(KCR_I64, KCR_MEAN, (uint64_t)-7, 0));
	/* The sum wraps first: 120 + 100 is -36. */
	EXPECT_EQ((uint8_t)-36, FOLD_BITS(KCR_I8, KCR_SUM, 120, 100));
	EXPECT_EQ((uint8_t)-18, FOLD_BITS(KCR_I8, KCR_MEAN, 120, 100));
	EXPECT_EQ(100, FOLD_BITS(KCR_U8, KCR_MEAN, 200, 0));
	EXPECT_EQ(72, FOLD_BITS(KCR_U8, KCR_MEAN, 200, 200));
	EXPECT_EQ((uint64_t)(INT64_MIN / 2),
		  FOLD_BITS(KCR_I64, KCR_MEAN, (uint64_t)INT64_MIN, 0));
	EXPECT_EQ(0, FOLD_BITS(KCR_I64, KCR_MEAN, (uint64_t)INT64_MIN,
			       (uint64_t)INT64_MIN));
	EXPECT_EQ((uint64_t)(INT64_MIN / 3), FOLD_BITS(KCR_I64, KCR_MEAN, 0,
						       (uint64_t)INT64_MIN, 0));
	EXPECT_EQ(UINT64_MAX / 2, FOLD_BITS(KCR_U64, KCR_MEAN, UINT64_MAX, 0));
	EXPECT_EQ(0x7fffffff, FOLD_BITS(KCR_U32, KCR_MEAN, UINT32_MAX, 0));

	/* 256 does not fit in u8, and the sum is divided by it all the same. */
	for (int r = 0; r < RANKS_MOST; r++)
		x[r] = 1;
	EXPECT_EQ(0, fold_bits(KCR_U8, KCR_MEAN, 256, x));
	EXPECT_EQ(1, fold_bits(KCR_U16, KCR_MEAN, 256, x));
	x[0] = 0;
	EXPECT_EQ(0, fold_bits(KCR_U8, KCR_MEAN, 256, x));
	EXPECT_EQ(255, fold_bits(KCR_U8, KCR_SUM, 256, x));
	EXPECT_EQ(1, fold_bits(KCR_U8, KCR_MEAN, 255, x + 1));
	/* ... nor 255 in i8. */
	for (int r = 0; r < RANKS_MOST; r++)
		x[r] = 0x80;
	EXPECT_EQ(0, fold_bits(KCR_I8, KCR_MEAN, 255, x));
	EXPECT_EQ(0x80, fold_bits(KCR_I8, KCR_SUM, 255, x));
}

TEST(half)
{
	/* 40000 + 40000 is beyond f16, and the partial result is not. */
	EXPECT_EQ(0x78e2, FOLD_BITS(KCR_F16, KCR_MEAN, 0x78e2, 0x78e2));
	EXPECT_EQ(0x7c00, FOLD_BITS(KCR_F16, KCR_SUM, 0x78e2, 0x78e2));
	EXPECT_EQ(0x78e2, FOLD_BITS(KCR_F16, KCR_SUM, 0x78e2, 0x78e2, 0xf8e2));
	/* Rounded once: 1 + 2^-11 twice is 1 + 2^-10. In f16 each would vanish. */
	EXPECT_EQ(0x3c01, FOLD_BITS(KCR_F16, KCR_SUM, 0x3c00, 0x1000, 0x1000));
	EXPECT_EQ(0x3f81, FOLD_BITS(KCR_BF16, KCR_SUM, 0x3f80, 0x3b80, 0x3b80));
	EXPECT_EQ(0x0003, FOLD_BITS(KCR_F16, KCR_SUM, 1, 2));
	EXPECT_EQ(0x0003, FOLD_BITS(KCR_BF16, KCR_SUM, 1, 2));
}

TEST(zeros)
{
	for (int dtype = KCR_F16; dtype <= KCR_F64; dtype++) {
		uint64_t minus = 1ull << (kcr_dtype_size(dtype) * 8 - 1);
		uint64_t one = number(dtype, 1);

		EXPECT_EQ(minus, FOLD_BITS(dtype, KCR_MIN, minus, 0));
		EXPECT_EQ(minus, FOLD_BITS(dtype, KCR_MIN, 0, minus));
		EXPECT_EQ(0, FOLD_BITS(dtype, KCR_MAX, minus, 0));
		EXPECT_EQ(0, FOLD_BITS(dtype, KCR_MAX, 0, minus));
		EXPECT_EQ(minus, FOLD_BITS(dtype, KCR_MAX, minus, minus));
		EXPECT_EQ(0, FOLD_BITS(dtype, KCR_SUM, minus, 0));
		EXPECT_EQ(minus, FOLD_BITS(dtype, KCR_SUM, minus, minus));
		EXPECT_EQ(minus, FOLD_BITS(dtype, KCR_MEAN, minus, minus, minus));
		EXPECT_EQ(minus, FOLD_BITS(dtype, KCR_PROD, minus, one));
		EXPECT_EQ(0, FOLD_BITS(dtype, KCR_PROD, minus, minus));
		EXPECT_EQ(0, FOLD_BITS(dtype, KCR_SUM, one, one | minus));
	}
}

/* The examples of Documentation/contract.rst that are not above. */
TEST(documentation)
{
	const uint64_t nan = 0x7fc00000, infinity = 0x7f800000, minus = 0x80000000;
	uint64_t two[2];

	EXPECT_EQ(0x3fd55556, FOLD_BITS(KCR_F32, KCR_MEAN, bits_f32(5), 0, 0));
	EXPECT_EQ(bits_f32(1.66666675f), 0x3fd55556);
	EXPECT_EQ(bits_f32(1.66666663f), bits_f32(5.0f / 3));
	EXPECT_EQ(nan, FOLD_BITS(KCR_F32, KCR_MIN, bits_f32(1), nan | 1, bits_f32(3),
				 bits_f32(4)));
	EXPECT_EQ(nan, FOLD_BITS(KCR_F32, KCR_SUM, infinity, infinity | minus));
	EXPECT_EQ(bits_f32(1.29999995f),
		  FOLD_BITS(KCR_F32, KCR_SUM, bits_f32(0.1f), bits_f32(0.1f),
			    bits_f32(0.4f), bits_f32(0.7f)));
	two[0] = FOLD_BITS(KCR_F32, KCR_SUM, bits_f32(0.1f), bits_f32(0.1f));
	two[1] = FOLD_BITS(KCR_F32, KCR_SUM, bits_f32(0.4f), bits_f32(0.7f));
	EXPECT_EQ(bits_f32(1.30000007f), fold_bits(KCR_F32, KCR_SUM, 2, two));
}

/* One rank: its bits, for every type and operation, NaN as it is. */
TEST(one_rank)
{
	uint64_t x[64], out[64];
	const void *in[] = { x };

	for (int dtype = 0; dtype < KCR_DTYPES; dtype++) {
		probe_fill(x, 64, dtype, 0, 23);
		for (int i = 0; probe_is_float(dtype) && i < PROBE_SPECIALS; i++) {
			uint64_t bits = probe_special(dtype, i);

			memcpy((char *)x + i * kcr_dtype_size(dtype), &bits,
			       kcr_dtype_size(dtype));
		}
		for (int op = 0; data_is_supported(dtype, op); op++) {
			memset(out, 0x5a, sizeof(out));
			ASSERT_EQ(0, kcr_reference_fold(in, 1, out, 64, dtype, op));
			EXPECT_EQ(-1, data_differ(x, out, 64, dtype));
		}
	}
}

TEST_HARNESS_MAIN
