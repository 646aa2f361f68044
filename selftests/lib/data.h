/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Test data whose reduction changes if anything about it is wrong
 *
 * A value depends on the seed, the rank and the element's position, so that a
 * shard that lands elsewhere, an operand taken twice and an operand left out all
 * show. The sum of many elements depends on the order of the ranks: every
 * other element is big, small, -big, small over the ranks, where the
 * small ones vanish or not depending on when they are added.
 */
#ifndef KCR_TEST_DATA_H
#define KCR_TEST_DATA_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kcollring.h"

/* The finaliser of SplitMix64 (Steele, Lea and Flood): a good enough hash. */
static inline uint64_t data_mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* A stream of random numbers: *state is the position. */
static inline uint64_t data_random(uint64_t *state)
{
	return data_mix((*state)++);
}

/*
 * Element @i of rank @rank, as a double that is a float too when @f32 is set.
 * No arithmetic here depends on the rounding mode: all products are exact.
 */
static inline double data_value(uint64_t seed, int rank, size_t i, int f32)
{
	uint64_t h = data_mix(data_mix(seed ^ data_mix(i)) + rank);
	int digits = f32 ? 23 : 52;
	double mantissa = (double)(int64_t)((h >> (64 - digits)) | 1);
	double scale = 1.0;
	int exponent;

	if (h & 1)
		mantissa = -mantissa;
	if (i % 2 == 0) {
		/* Big and small, with a cancelling partner. */
		uint64_t big = data_mix(seed + i) >> (64 - digits) | 1;

		switch (rank % 4) {
		case 0:
			return (double)(int64_t)big;
		case 2:
			return -(double)(int64_t)big;
		default:
			return mantissa / (double)(1LL << (digits - 1));
		}
	}
	for (exponent = (h >> 1) % 24; exponent > 0; exponent--)
		scale *= 0.5;
	return mantissa * scale;
}

/*
 * Element @i of a 16-bit float, as bits: big and small like data_value(), of
 * magnitudes that f32, in which they are folded, cannot hold together. @digits
 * of mantissa; exponents as they are in the type.
 */
static inline uint16_t data_half(uint64_t seed, int rank, size_t i, int digits,
				 unsigned int big, unsigned int small)
{
	uint64_t h = data_mix(data_mix(seed ^ data_mix(i)) + rank);
	unsigned int mask = (1u << digits) - 1;
	unsigned int sign = h >> 63 << 15, exponent = small + (h >> 32) % 4;
	unsigned int mantissa = h & mask;

	if (i % 2) {
		exponent = small + (h >> 32) % 12;
	} else if (rank % 4 == 0 || rank % 4 == 2) {
		/* The same at both, but for the sign. */
		mantissa = data_mix(seed + i) & mask;
		exponent = big;
		sign = rank % 4 << 14;
	}
	return (uint16_t)(sign | exponent << digits | mantissa);
}

/* Element @i of an integer: any bits, but odd now and then, for products. */
static inline uint64_t data_bits(uint64_t seed, int rank, size_t i)
{
	return data_mix(data_mix(seed ^ data_mix(i)) + rank) | (i % 2);
}

/* Elements @first .. @first + @count - 1 of rank @rank; 0, or -1 for no type. */
static inline int data_fill_from(void *buffer, size_t first, size_t count,
				 enum kcr_dtype dtype, int rank, uint64_t seed)
{
	size_t i;

	switch (kcr_dtype_size(dtype) ? dtype : KCR_DTYPES) {
	case KCR_F32:
		for (i = 0; i < count; i++)
			((float *)buffer)[i] =
				(float)data_value(seed, rank, first + i, 1);
		return 0;
	case KCR_F64:
		for (i = 0; i < count; i++)
			((double *)buffer)[i] =
				data_value(seed, rank, first + i, 0);
		return 0;
	case KCR_F16:
		for (i = 0; i < count; i++)
			((uint16_t *)buffer)[i] =
				data_half(seed, rank, first + i, 10, 29, 3);
		return 0;
	case KCR_BF16:
		for (i = 0; i < count; i++)
			((uint16_t *)buffer)[i] =
				data_half(seed, rank, first + i, 7, 150, 121);
		return 0;
	case KCR_I8:
	case KCR_U8:
		for (i = 0; i < count; i++)
			((uint8_t *)buffer)[i] = data_bits(seed, rank, first + i);
		return 0;
	case KCR_I16:
	case KCR_U16:
		for (i = 0; i < count; i++)
			((uint16_t *)buffer)[i] = data_bits(seed, rank, first + i);
		return 0;
	case KCR_I32:
	case KCR_U32:
		for (i = 0; i < count; i++)
			((uint32_t *)buffer)[i] = data_bits(seed, rank, first + i);
		return 0;
	case KCR_I64:
	case KCR_U64:
		for (i = 0; i < count; i++)
			((uint64_t *)buffer)[i] = data_bits(seed, rank, first + i);
		return 0;
	default:
		return -1;
	}
}

static inline int data_fill(void *buffer, size_t count, enum kcr_dtype dtype,
			    int rank, uint64_t seed)
{
	return data_fill_from(buffer, 0, count, dtype, rank, seed);
}

/* What the contract supports: floats have no operations on bits. */
static inline int data_is_supported(int dtype, int op)
{
	if (dtype < 0 || dtype >= KCR_DTYPES || op < 0 || op >= KCR_OPS)
		return 0;
	return dtype < KCR_F16 || op < KCR_BAND;
}

/* The index of the first element whose bits differ, or -1 if none do. */
static inline long data_differ(const void *a, const void *b, size_t count,
			       enum kcr_dtype dtype)
{
	size_t size = kcr_dtype_size(dtype);
	size_t i;

	if (!memcmp(a, b, count * size))
		return -1;
	for (i = 0; i < count; i++)
		if (memcmp((const char *)a + i * size,
			   (const char *)b + i * size, size))
			return (long)i;
	return -1;
}

/* FNV-1a over the bytes: to compare results that are too big to keep. */
static inline uint64_t data_hash(const void *buffer, size_t bytes, uint64_t hash)
{
	const unsigned char *p = buffer;

	if (!hash)
		hash = 0xcbf29ce484222325ULL;
	while (bytes--)
		hash = (hash ^ *p++) * 0x100000001b3ULL;
	return hash;
}

/*
 * What the fold of all ranks' data_fill() gives, by the library's oracle, into
 * @out. Block by block, so that it takes little memory whatever @count is.
 * Returns 0 or a negative errno.
 */
static inline int data_expect(void *out, size_t count, enum kcr_dtype dtype,
			      enum kcr_op op, int ranks, uint64_t seed)
{
	enum { BLOCK = 4096 };
	size_t size = kcr_dtype_size(dtype);
	const void *in[KCR_RANKS_MAX];
	size_t first, n;
	char *operands;
	int r, err = 0;

	operands = malloc(ranks * BLOCK * size);
	if (!operands)
		return -ENOMEM;
	for (first = 0; first < count && !err; first += n) {
		n = count - first < BLOCK ? count - first : BLOCK;
		for (r = 0; r < ranks; r++) {
			in[r] = operands + r * BLOCK * size;
			data_fill_from(operands + r * BLOCK * size, first, n,
				       dtype, r, seed);
		}
		err = kcr_reference_fold(in, ranks, (char *)out + first * size,
					 n, dtype, op);
	}
	free(operands);
	return err;
}

#endif /* KCR_TEST_DATA_H */
