/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The bodies of the fold, for every type and operation, from this one place.
 *
 * A form (scalar, AVX2, AVX-512, NEON) is this file compiled with the flags of its instruction set
 * and FOLD_TABLE naming its table. The loops have no branches that depend on
 * data, so that the compiler makes vectors of them; the bits do not depend on
 * whether it does, since each element is computed by itself, in the order of
 * the ranks.
 */
#include <string.h>
#include "fold.h"

#ifdef __FAST_MATH__
#error "the fold must not be compiled with -ffast-math: its bits are a contract"
#endif

/* Copies with constant sizes in reach of the optimiser, besides those that the table names. */
#define INLINE	inline __attribute__((always_inline))

/* Bytes of a block: partial results stay in the first-level cache. */
#define BLOCK_BYTES	4096

static inline float f32_of(uint32_t bits)
{
	float x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static inline uint32_t bits_f32(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static inline double f64_of(uint64_t bits)
{
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static inline uint64_t bits_f64(double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

/* All ones if @truth, for choosing by bits. */
static inline uint32_t mask32(int truth)
{
	return -(uint32_t)truth;
}

static inline uint64_t mask64(int truth)
{
	return -(uint64_t)truth;
}

static inline uint32_t pick32(uint32_t mask, uint32_t yes, uint32_t no)
{
	return (yes & mask) | (no & ~mask);
}

static inline uint64_t pick64(uint64_t mask, uint64_t yes, uint64_t no)
{
	return (yes & mask) | (no & ~mask);
}

/* 16-bit floats: widening is exact. */

static inline float widen_bf16(uint16_t x)
{
	return f32_of((uint32_t)x << 16);
}

/*
 * The exponent field is moved as it is and its bias mended by an exact
 * multiplication, which also makes subnormals normal. Infinities and NaN get
 * the largest exponent.
 */
static inline float widen_f16(uint16_t x)
{
	uint32_t sign = (uint32_t)(x & 0x8000) << 16;
	uint32_t rest = (uint32_t)(x & 0x7fff) << 13;
	uint32_t finite = bits_f32(f32_of(rest) * 0x1p112f);
	uint32_t special = rest | 0x7f800000;

	return f32_of(sign | pick32(mask32(rest >= 0x0f800000), special, finite));
}

/* Round to nearest even by adding just under half, and one more if odd. */
static inline uint16_t narrow_bf16(float x)
{
	uint32_t bits = bits_f32(x);
	uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
	uint32_t is_nan = mask32((bits & 0x7fffffff) > 0x7f800000);

	return pick32(is_nan, KCR_NAN_BF16, rounded);
}

/*
 * Normal results are rounded as above, at bit 13, with the bias mended.
 * Results below 2^-14 are rounded by an addition that puts the last bit of the result at the last
 * bit of the sum.
 */
static inline uint16_t narrow_f16(float x)
{
	uint32_t bits = bits_f32(x);
	uint32_t sign = (bits >> 16) & 0x8000;
	uint32_t rest = bits & 0x7fffffff;
	uint32_t normal = (rest - (112u << 23) + 0xfff + ((rest >> 13) & 1)) >> 13;
	uint32_t tiny = bits_f32(f32_of(rest) + 0.5f) - bits_f32(0.5f);
	uint32_t result;

	result = pick32(mask32(rest < (113u << 23)), tiny, normal);
	/* 65520 and more rounds to infinity. */
	result = pick32(mask32(rest >= 0x477ff000), 0x7c00, result);
	result = pick32(mask32(rest > 0x7f800000), KCR_NAN_F16, result | sign);
	return result;
}

/*
 * Minimum and maximum of IEEE 754-2019: NaN wins, and -0 is less than +0. Of
 * operands that compare equal only zeros can differ, and those by their sign.
 */
static inline float min_f32(float a, float b)
{
	uint32_t x = bits_f32(a), y = bits_f32(b), r;

	r = pick32(mask32(a < b), x, y);
	r = pick32(mask32(a == b), x | y, r);
	return f32_of(pick32(mask32(a != a), x, r));
}

static inline float max_f32(float a, float b)
{
	uint32_t x = bits_f32(a), y = bits_f32(b), r;

	r = pick32(mask32(a > b), x, y);
	r = pick32(mask32(a == b), x & y, r);
	return f32_of(pick32(mask32(a != a), x, r));
}

static inline double min_f64(double a, double b)
{
	uint64_t x = bits_f64(a), y = bits_f64(b), r;

	r = pick64(mask64(a < b), x, y);
	r = pick64(mask64(a == b), x | y, r);
	return f64_of(pick64(mask64(a != a), x, r));
}

static inline double max_f64(double a, double b)
{
	uint64_t x = bits_f64(a), y = bits_f64(b), r;

	r = pick64(mask64(a > b), x, y);
	r = pick64(mask64(a == b), x & y, r);
	return f64_of(pick64(mask64(a != a), x, r));
}

static inline float quiet_f32(float x)
{
	return f32_of(pick32(mask32(x != x), KCR_NAN_F32, bits_f32(x)));
}

static inline double quiet_f64(double x)
{
	return f64_of(pick64(mask64(x != x), KCR_NAN_F64, bits_f64(x)));
}

#define SAME(x)		(x)
#define NOTHING(x, w)	(x)

/*
 * One type and operation. @T: the element; @A: the partial result; @W: widens
 * T to A; @OP: A and A to A; @SCALE: what mean does at the end; @N: narrows A
 * to T.
 */
#define FOLD(name, T, A, W, OP, SCALE, N)				\
static INLINE void name##_start(void *partial, const void *operand,	\
				size_t count)				\
{									\
	const T *restrict x = operand;					\
	A *restrict a = partial;					\
									\
	for (size_t i = 0; i < count; i++)				\
		a[i] = W(x[i]);						\
}									\
									\
static INLINE void name##_step(void *partial, const void *operand,	\
			       size_t count)				\
{									\
	const T *restrict x = operand;					\
	A *restrict a = partial;					\
									\
	for (size_t i = 0; i < count; i++)				\
		a[i] = OP(a[i], W(x[i]));				\
}									\
									\
static INLINE void name##_finish(void *out, const void *partial,	\
				 int ranks, size_t count)		\
{									\
	const A *restrict a = partial;					\
	T *restrict o = out;						\
									\
	(void)ranks;							\
	for (size_t i = 0; i < count; i++)				\
		o[i] = N(SCALE(a[i], ranks));				\
}									\
									\
static void name##_all(const void *const in[], int ranks, void *out,	\
		       size_t count)					\
{									\
	enum { BLOCK = BLOCK_BYTES / sizeof(A) };			\
	A partial[BLOCK] __attribute__((aligned(64)));			\
	size_t at, n;							\
									\
	for (at = 0; at < count; at += n) {				\
		n = count - at < BLOCK ? count - at : BLOCK;		\
		name##_start(partial, (const T *)in[0] + at, n);	\
		for (int r = 1; r < ranks; r++)				\
			name##_step(partial, (const T *)in[r] + at, n);	\
		name##_finish((T *)out + at, partial, ranks, n);	\
	}								\
}

#define ADD(a, b)	((a) + (b))
#define MUL(a, b)	((a) * (b))
#define LESS(a, b)	((a) < (b) ? (a) : (b))
#define MORE(a, b)	((a) > (b) ? (a) : (b))
#define AND(a, b)	((a) & (b))
#define OR(a, b)	((a) | (b))
#define XOR(a, b)	((a) ^ (b))
/* Constant over the loop: the nearest value of the type to 1 / ranks. */
#define MEAN_F32(a, w)	((a) * (1.0f / (float)(w)))
#define MEAN_F64(a, w)	((a) * (1.0 / (double)(w)))
/* In 64 bits, toward zero. */
#define MEAN_INT(T, a, w)	((T)(sizeof(T) == 8 && (T)-1 > 0 ?	\
				     (uint64_t)(T)(a) / (uint64_t)(w) :	\
				     (uint64_t)((int64_t)(T)(a) / (int64_t)(w))))

#define FOLD_FLOAT(name, T, A, W, SUFFIX, MEAN, N)			\
	FOLD(name##_sum, T, A, W, ADD, NOTHING, N)			\
	FOLD(name##_prod, T, A, W, MUL, NOTHING, N)			\
	FOLD(name##_min, T, A, W, min_##SUFFIX, NOTHING, N)		\
	FOLD(name##_max, T, A, W, max_##SUFFIX, NOTHING, N)		\
	FOLD(name##_mean, T, A, W, ADD, MEAN, N)

/* Sums and products wrap: they are computed unsigned, and at least 32 bits wide. */
#define FOLD_INT(name, T, U)						\
	static inline U name##_add(U a, U b) { return a + b; }		\
	static inline U name##_mul(U a, U b)				\
	{								\
		return (U)((uint64_t)a * b);				\
	}								\
	static inline T name##_mean_of(U a, int w)			\
	{								\
		return MEAN_INT(T, a, w);				\
	}								\
	FOLD(name##_sum, U, U, SAME, name##_add, NOTHING, SAME)		\
	FOLD(name##_prod, U, U, SAME, name##_mul, NOTHING, SAME)	\
	FOLD(name##_min, T, T, SAME, LESS, NOTHING, SAME)		\
	FOLD(name##_max, T, T, SAME, MORE, NOTHING, SAME)		\
	FOLD(name##_mean, U, U, SAME, name##_add, name##_mean_of, SAME)	\
	FOLD(name##_band, U, U, SAME, AND, NOTHING, SAME)		\
	FOLD(name##_bor, U, U, SAME, OR, NOTHING, SAME)			\
	FOLD(name##_bxor, U, U, SAME, XOR, NOTHING, SAME)

FOLD_INT(i8, int8_t, uint8_t)
FOLD_INT(u8, uint8_t, uint8_t)
FOLD_INT(i16, int16_t, uint16_t)
FOLD_INT(u16, uint16_t, uint16_t)
FOLD_INT(i32, int32_t, uint32_t)
FOLD_INT(u32, uint32_t, uint32_t)
FOLD_INT(i64, int64_t, uint64_t)
FOLD_INT(u64, uint64_t, uint64_t)
FOLD_FLOAT(f16, uint16_t, float, widen_f16, f32, MEAN_F32, narrow_f16)
FOLD_FLOAT(bf16, uint16_t, float, widen_bf16, f32, MEAN_F32, narrow_bf16)
FOLD_FLOAT(f32, float, float, SAME, f32, MEAN_F32, quiet_f32)
FOLD_FLOAT(f64, double, double, SAME, f64, MEAN_F64, quiet_f64)

#define ENTRY(name, A) {						\
	.partial = sizeof(A),						\
	.all = name##_all,						\
	.start = name##_start,						\
	.step = name##_step,						\
	.finish = name##_finish,					\
}

#define ENTRIES(name, A)						\
	[KCR_SUM] = ENTRY(name##_sum, A),				\
	[KCR_PROD] = ENTRY(name##_prod, A),				\
	[KCR_MIN] = ENTRY(name##_min, A),				\
	[KCR_MAX] = ENTRY(name##_max, A),				\
	[KCR_MEAN] = ENTRY(name##_mean, A)

#define ENTRIES_INT(name, A)						\
	ENTRIES(name, A),						\
	[KCR_BAND] = ENTRY(name##_band, A),				\
	[KCR_BOR] = ENTRY(name##_bor, A),				\
	[KCR_BXOR] = ENTRY(name##_bxor, A)

const struct fold_table FOLD_TABLE = { .of = {
	[KCR_I8] = { ENTRIES_INT(i8, int8_t) },
	[KCR_U8] = { ENTRIES_INT(u8, uint8_t) },
	[KCR_I16] = { ENTRIES_INT(i16, int16_t) },
	[KCR_U16] = { ENTRIES_INT(u16, uint16_t) },
	[KCR_I32] = { ENTRIES_INT(i32, int32_t) },
	[KCR_U32] = { ENTRIES_INT(u32, uint32_t) },
	[KCR_I64] = { ENTRIES_INT(i64, int64_t) },
	[KCR_U64] = { ENTRIES_INT(u64, uint64_t) },
	[KCR_F16] = { ENTRIES(f16, float) },
	[KCR_BF16] = { ENTRIES(bf16, float) },
	[KCR_F32] = { ENTRIES(f32, float) },
	[KCR_F64] = { ENTRIES(f64, double) },
} };
