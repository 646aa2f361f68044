// SPDX-License-Identifier: GPL-2.0
/*
 * The data of kcr-perf and the oracle
 *
 * An element is a function of its index and its rank, so that every rank can
 * make every other rank's data again, and so that an element that lands in
 * the wrong place, comes twice or from the wrong rank shows. Magnitudes spread
 * over 2^24, which makes nearly every sum depend on its order.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/sha.h>

#include "perf.h"

/* Sums to 0 or 1 in f32, by the order: the classic of a fold gone wrong. */
static const double classic[4] = { 1e8, 1, -1e8, 1 };

/* The finaliser of splitmix64: every bit of @x reaches every bit. */
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static uint64_t random_bits(size_t index, int rank)
{
	return mix(index * KCR_RANKS_MAX + (size_t)rank);
}

static bool is_classic(size_t index)
{
	return index % 8 == 3;
}

static double classic_value(size_t index, int rank)
{
	return classic[(index / 8 + (size_t)rank) % 4];
}

static void fill_f32(void *out, size_t start, size_t count, int rank)
{
	float *to = out;
	size_t i;

	for (i = start; i < start + count; i++, to++) {
		uint64_t h = random_bits(i, rank);
		uint32_t exponent = 127 - 12 + (uint32_t)(h >> 40) % 25;
		uint32_t bits = (uint32_t)(h & 0x807fffff) | exponent << 23;

		if (is_classic(i))
			*to = (float)classic_value(i, rank);
		else
			memcpy(to, &bits, sizeof(bits));
	}
}

static void fill_f64(void *out, size_t start, size_t count, int rank)
{
	double *to = out;
	size_t i;

	for (i = start; i < start + count; i++, to++) {
		uint64_t h = random_bits(i, rank);
		uint64_t exponent = 1023 - 12 + (h >> 52 & 0x7ff) % 25;
		uint64_t bits = (h & 0x800fffffffffffff) | exponent << 52;

		if (is_classic(i))
			*to = classic_value(i, rank);
		else
			memcpy(to, &bits, sizeof(bits));
	}
}

/* A type that is not here cannot be measured; a new one is a line. */
static void (*const fills[KCR_DTYPES])(void *, size_t, size_t, int) = {
	[KCR_F32] = fill_f32,
	[KCR_F64] = fill_f64,
};

bool data_has_type(enum kcr_dtype dtype)
{
	return dtype < KCR_DTYPES && fills[dtype];
}

void data_fill(void *out, size_t start, size_t count, int rank,
	       enum kcr_dtype dtype)
{
	fills[dtype](out, start, count, rank);
}

int oracle_init(struct oracle *oracle, int ranks)
{
	const size_t bytes = ORACLE_CHUNK * sizeof(uint64_t);
	int i;

	memset(oracle, 0, sizeof(*oracle));
	oracle->ranks = ranks;
	oracle->out = malloc(bytes);
	if (!oracle->out)
		return -ENOMEM;
	for (i = 0; i < ranks; i++) {
		oracle->in[i] = malloc(bytes);
		if (!oracle->in[i])
			return -ENOMEM;
	}
	return 0;
}

void oracle_destroy(struct oracle *oracle)
{
	int i;

	for (i = 0; i < oracle->ranks; i++)
		free(oracle->in[i]);
	free(oracle->out);
}

static const void *const *inputs(const struct oracle *oracle)
{
	return (const void *const *)oracle->in;
}

static void regenerate(struct oracle *oracle, size_t start, size_t count,
		       enum kcr_dtype dtype)
{
	int i;

	for (i = 0; i < oracle->ranks; i++)
		data_fill(oracle->in[i], start, count, i, dtype);
}

int oracle_fold(struct oracle *oracle, size_t start, size_t count,
		enum kcr_dtype dtype, enum kcr_op op)
{
	regenerate(oracle, start, count, dtype);
	return kcr_reference_fold(inputs(oracle), oracle->ranks, oracle->out,
				  count, dtype, op);
}

/* Elements that are folded in many orders. */
#define PROBE	512

/* Fold rank order[0], order[1] ... and tell whether the bits are @expected. */
static bool folds_to(struct oracle *oracle, const int *order,
		     const void *expected, enum kcr_dtype dtype, enum kcr_op op)
{
	const void *in[KCR_RANKS_MAX];
	int i;

	for (i = 0; i < oracle->ranks; i++)
		in[i] = oracle->in[order[i]];
	return !kcr_reference_fold(in, oracle->ranks, oracle->out, PROBE, dtype, op) &&
	       !memcmp(oracle->out, expected, PROBE * kcr_dtype_size(dtype));
}

/*
 * A check that cannot fail is none. True if the data gives other bits when
 * the ranks are folded in descending order, and when each of them goes first
 * (what an algorithm does that starts with its own). Needs 3 ranks: the sum of
 * two is the same either way.
 */
bool oracle_sees_order(struct oracle *oracle, enum kcr_dtype dtype,
		       enum kcr_op op)
{
	const size_t bytes = PROBE * kcr_dtype_size(dtype);
	int order[KCR_RANKS_MAX], first, i;
	void *expected = malloc(bytes);
	bool sees;

	if (!expected || oracle_fold(oracle, 0, PROBE, dtype, op)) {
		free(expected);
		return false;
	}
	memcpy(expected, oracle->out, bytes);
	for (i = 0; i < oracle->ranks; i++)
		order[i] = oracle->ranks - 1 - i;
	sees = !folds_to(oracle, order, expected, dtype, op);
	for (first = 2; sees && first < oracle->ranks; first++) {
		order[0] = first;
		for (i = 1; i < oracle->ranks; i++)
			order[i] = i <= first ? i - 1 : i;
		sees = !folds_to(oracle, order, expected, dtype, op);
	}
	free(expected);
	return sees;
}

uint64_t hash_bytes(const void *data, size_t len)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	uint64_t hash = 0;
	int i;

	SHA256(data, len, digest);
	for (i = 0; i < 8; i++)
		hash = hash << 8 | digest[i];
	return hash;
}
