// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The oracle: the scalar left fold that defines the bits. Slow and plain on
 * purpose, and written apart from the forms that the collectives run: they
 * are compared with it.
 *
 * The written order of operations is mamba-rs's.
 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include "kcr.h"
#include "fold.h"

/* 16-bit floats: sign, exponent of @ebits, mantissa of @mbits. */
struct half {
	int ebits, mbits;
	uint16_t nan;
};

static const struct half f16 = { 5, 10, KCR_NAN_F16 };
static const struct half bf16 = { 8, 7, KCR_NAN_BF16 };

/* What the bits stand for, which a float holds exactly. */
static float widen(const struct half *h, uint16_t x)
{
	int bias = (1 << (h->ebits - 1)) - 1;
	int e = x >> h->mbits & ((1 << h->ebits) - 1);
	int m = x & ((1 << h->mbits) - 1);
	float value;

	if (e == (1 << h->ebits) - 1)
		value = m ? NAN : INFINITY;
	else if (e == 0)
		value = ldexpf(m, 1 - bias - h->mbits);
	else
		value = ldexpf(m | 1 << h->mbits, e - bias - h->mbits);
	return x >> 15 ? -value : value;
}

/*
 * The nearest of the values that the type has, ties to even. The quotient by
 * the distance of its neighbours is rounded to a whole number; a carry runs
 * into the exponent, as it must, and from the largest value to infinity.
 */
static uint16_t narrow(const struct half *h, float x)
{
	int bias = (1 << (h->ebits - 1)) - 1;
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	uint16_t infinity = ((1 << h->ebits) - 1) << h->mbits;
	int e;
	uint32_t whole, bits;
	float steps;

	if (isnan(x))
		return h->nan;
	if (isinf(x))
		return sign | infinity;
	if (x == 0)
		return sign;
	x = fabsf(x);
	frexpf(x, &e);
	e--;
	if (e < 1 - bias)
		e = 1 - bias;
	/* Exact: a scaling by a power of two, of 24 bits at most. */
	steps = ldexpf(x, h->mbits - e);
	whole = (uint32_t)steps;
	if (steps - whole > 0.5f || (steps - whole == 0.5f && whole % 2))
		whole++;
	bits = ((uint32_t)(e + bias - 1) << h->mbits) + whole;
	return sign | (bits < infinity ? bits : infinity);
}

/* NaN wins, and of two zeros the negative one is less. */
static double least(double a, double b)
{
	if (isnan(a) || isnan(b))
		return NAN;
	if (a == b)
		return signbit(a) ? a : b;
	return a < b ? a : b;
}

static double most(double a, double b)
{
	if (isnan(a) || isnan(b))
		return NAN;
	if (a == b)
		return signbit(a) ? b : a;
	return a > b ? a : b;
}

/* One step, rounded to float. */
static float step_f32(enum kcr_op op, float a, float b)
{
	switch (op) {
	case KCR_PROD:
		return a * b;
	case KCR_MIN:
		return (float)least(a, b);
	case KCR_MAX:
		return (float)most(a, b);
	default:
		return a + b;
	}
}

static double step_f64(enum kcr_op op, double a, double b)
{
	switch (op) {
	case KCR_PROD:
		return a * b;
	case KCR_MIN:
		return least(a, b);
	case KCR_MAX:
		return most(a, b);
	default:
		return a + b;
	}
}

/* @half is NULL for f32 itself. */
static float fold_f32(const void *const in[], int ranks, size_t i,
		      enum kcr_op op, const struct half *half)
{
	float a = 0, b;

	for (int r = 0; r < ranks; r++) {
		b = half ? widen(half, ((const uint16_t *)in[r])[i]) :
			   ((const float *)in[r])[i];
		a = r ? step_f32(op, a, b) : b;
	}
	return op == KCR_MEAN ? a * (1.0f / (float)ranks) : a;
}

static double fold_f64(const void *const in[], int ranks, size_t i,
		       enum kcr_op op)
{
	double a = ((const double *)in[0])[i];

	for (int r = 1; r < ranks; r++)
		a = step_f64(op, a, ((const double *)in[r])[i]);
	return op == KCR_MEAN ? a * (1.0 / (double)ranks) : a;
}

/* An integer of @size bytes, as a 64-bit one of the same value. */
static uint64_t load(const void *at, size_t i, size_t size, bool is_signed)
{
	const char *p = (const char *)at + i * size;
	union {
		int8_t i8; uint8_t u8; int16_t i16; uint16_t u16;
		int32_t i32; uint32_t u32; uint64_t u64;
	} x;

	memcpy(&x, p, size);
	switch (size) {
	case 1:
		return is_signed ? (uint64_t)x.i8 : x.u8;
	case 2:
		return is_signed ? (uint64_t)x.i16 : x.u16;
	case 4:
		return is_signed ? (uint64_t)x.i32 : x.u32;
	default:
		return x.u64;
	}
}

/* Cut to @size bytes and widened again: how the type wraps. */
static uint64_t wrap(uint64_t x, size_t size, bool is_signed)
{
	int unused = 64 - 8 * (int)size;

	x <<= unused;
	return is_signed ? (uint64_t)((int64_t)x >> unused) : x >> unused;
}

static uint64_t step_int(enum kcr_op op, uint64_t a, uint64_t b, bool is_signed)
{
	bool is_less = is_signed ? (int64_t)a < (int64_t)b : a < b;

	switch (op) {
	case KCR_PROD:
		return a * b;
	case KCR_MIN:
		return is_less ? a : b;
	case KCR_MAX:
		return is_less ? b : a;
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

static uint64_t fold_int(const void *const in[], int ranks, size_t i,
			 enum kcr_op op, size_t size, bool is_signed)
{
	uint64_t a = load(in[0], i, size, is_signed);

	for (int r = 1; r < ranks; r++)
		a = wrap(step_int(op, a, load(in[r], i, size, is_signed),
				  is_signed), size, is_signed);
	if (op == KCR_MEAN)
		a = is_signed ? (uint64_t)((int64_t)a / ranks) : a / ranks;
	return a;
}

/* Element @i of the result, as its bits. */
static uint64_t fold_element(const void *const in[], int ranks, size_t i,
			     enum kcr_dtype dtype, enum kcr_op op)
{
	uint32_t bits32;
	uint64_t bits64;
	double d;
	float f;

	switch (dtype) {
	case KCR_F16:
		return narrow(&f16, fold_f32(in, ranks, i, op, &f16));
	case KCR_BF16:
		return narrow(&bf16, fold_f32(in, ranks, i, op, &bf16));
	case KCR_F32:
		f = fold_f32(in, ranks, i, op, NULL);
		memcpy(&bits32, &f, sizeof(f));
		return isnan(f) ? KCR_NAN_F32 : bits32;
	case KCR_F64:
		d = fold_f64(in, ranks, i, op);
		memcpy(&bits64, &d, sizeof(d));
		return isnan(d) ? KCR_NAN_F64 : bits64;
	default:
		/* Signed and unsigned types alternate. */
		return fold_int(in, ranks, i, op, kcr_dtype_size(dtype),
				dtype % 2 == KCR_I8 % 2);
	}
}

static void store(void *at, size_t i, size_t size, uint64_t bits)
{
	uint8_t b8 = bits;
	uint16_t b16 = bits;
	uint32_t b32 = bits;
	const void *from = size == 1 ? (void *)&b8 : size == 2 ? (void *)&b16 :
			   size == 4 ? (void *)&b32 : (void *)&bits;

	memcpy((char *)at + i * size, from, size);
}

/* Out of line: nothing of it may move across the change of state. */
__attribute__((noinline))
static void fold_elements(const void *const in[], int ranks, void *out,
			  size_t count, enum kcr_dtype dtype, enum kcr_op op)
{
	for (size_t i = 0; i < count; i++)
		store(out, i, kcr_dtype_size(dtype),
		      fold_element(in, ranks, i, dtype, op));
}

static int check(const void *const in[], int ranks, const void *out,
		 size_t count, enum kcr_dtype dtype, enum kcr_op op)
{
	if (!fold_lookup(dtype, op))
		return kcr_fail(NULL, -EOPNOTSUPP, "%s of %s is not supported",
				kcr_op_text(op), kcr_dtype_text(dtype));
	if (ranks < 1)
		return kcr_fail(NULL, -EINVAL, "ranks is %d, must be at least 1",
				ranks);
	if (count && (!in || !out))
		return kcr_fail(NULL, -EINVAL, "%s is NULL", in ? "out" : "in");
	for (int r = 0; count && r < ranks; r++)
		if (!in[r])
			return kcr_fail(NULL, -EINVAL, "in[%d] is NULL", r);
	return 0;
}

KCR_PUBLIC int kcr_reference_fold(const void *const in[], int ranks, void *out,
				  size_t count, enum kcr_dtype dtype,
				  enum kcr_op op)
{
	struct fold_state state;
	int err = check(in, ranks, out, count, dtype, op);

	if (err || !count)
		return err;
	if (ranks == 1) {
		memmove(out, in[0], count * kcr_dtype_size(dtype));
		return 0;
	}
	fold_enter(&state);
	fold_elements(in, ranks, out, count, dtype, op);
	fold_leave(&state);
	return 0;
}
