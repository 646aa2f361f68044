// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The fold that the collectives run: the reference's bits, all operands in
 * one pass over the output, in blocks that the compiler turns into vectors.
 *
 * A block is read whole before it is written, so the output may be one of
 * the operands.
 */
#include <stddef.h>
#include <string.h>
#include "kcr.h"
#include "fold.h"

/* Elements of a block: small enough for the first-level cache with its operands. */
#define BLOCK	256

#define BLOCK_SUM(name, type, bits, quiet)				\
static void name##_block(const void *const in[], int ranks, type *out,	\
			 size_t at, size_t len)				\
{									\
	type sum[BLOCK];						\
									\
	memcpy(sum, (const type *)in[0] + at, len * sizeof(type));	\
	for (int r = 1; r < ranks; r++) {				\
		const type *x = (const type *)in[r] + at;		\
									\
		for (size_t i = 0; i < len; i++)			\
			sum[i] = sum[i] + x[i];				\
	}								\
	for (size_t i = 0; i < len; i++) {				\
		bits b;							\
									\
		memcpy(&b, &sum[i], sizeof(b));				\
		b = sum[i] != sum[i] ? quiet : b;			\
		memcpy(&sum[i], &b, sizeof(b));				\
	}								\
	memcpy(out + at, sum, len * sizeof(type));			\
}									\
									\
static void name(const void *const in[], int ranks, void *out,		\
		 size_t count)						\
{									\
	size_t at = 0;							\
									\
	for (; count - at >= BLOCK; at += BLOCK)			\
		name##_block(in, ranks, out, at, BLOCK);		\
	if (at < count)							\
		name##_block(in, ranks, out, at, count - at);		\
}

BLOCK_SUM(sum_f32, float, uint32_t, KCR_NAN_F32)
BLOCK_SUM(sum_f64, double, uint64_t, KCR_NAN_F64)

static const fold_fn table[KCR_DTYPES][KCR_OPS] = {
	[KCR_F32][KCR_SUM] = sum_f32,
	[KCR_F64][KCR_SUM] = sum_f64,
};

fold_fn fold_lookup(enum kcr_dtype dtype, enum kcr_op op)
{
	if ((unsigned int)dtype >= KCR_DTYPES || (unsigned int)op >= KCR_OPS)
		return NULL;
	return table[dtype][op];
}
