// SPDX-License-Identifier: GPL-2.0
/*
 * The data of kcr-perf and the oracle
 *
 * An element is a function of its index and its rank, so that every rank can
 * make every other rank's data again, and so that an element that lands in
 * the wrong place, comes twice or from the wrong rank shows. Magnitudes of floats
 * spread so far that sums depend on their order.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/sha.h>

#include "perf.h"

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

/*
 * How a float is laid out, and the exponents of its data: @spread of them from
 * @least on, and two that are so far apart that a sum cannot hold both.
 */
static const struct format {
	unsigned int mantissa, sign;
	unsigned int least, spread;
	unsigned int big, small;
} formats[KCR_DTYPES] = {
	[KCR_F16] = { 10, 15, 15 - 4, 8, 15 + 14, 15 - 11 },
	[KCR_BF16] = { 7, 15, 127 - 12, 25, 127 + 26, 127 },
	[KCR_F32] = { 23, 31, 127 - 12, 25, 127 + 26, 127 },
	[KCR_F64] = { 52, 63, 1023 - 12, 25, 1023 + 55, 1023 },
};

static bool is_float(enum kcr_dtype dtype)
{
	return formats[dtype].mantissa;
}

/*
 * The classic of a fold gone wrong, at every eighth element: of four ranks one has a
 * big value, one the same negated, wherever it is, and the others small ones.
 * They survive or do not, by the order.
 */
static int classic_sign(size_t index, int rank)
{
	uint64_t h = mix(index);
	unsigned int plus = h % 4, minus = (plus + 1 + h / 4 % 3) % 4;
	unsigned int at = (unsigned int)rank % 4;

	return (at == plus) - (at == minus);
}

static uint64_t float_bits(const struct format *f, size_t index, int rank)
{
	uint64_t h = random_bits(index, rank);
	uint64_t mantissa = h & ((1ULL << f->mantissa) - 1);
	uint64_t exponent = f->least + (h >> 52 & 0x7ff) % f->spread;
	uint64_t sign = h >> 63;
	int classic;

	if (index % 8 == 3) {
		classic = classic_sign(index, rank);
		exponent = classic ? f->big : f->small;
		mantissa = classic ? 0 : mantissa;
		sign = classic ? classic < 0 : sign;
	}
	return sign << f->sign | exponent << f->mantissa | mantissa;
}

/* Every other integer is odd: products would soon be nothing but zeros. */
static uint64_t element_bits(enum kcr_dtype dtype, size_t index, int rank)
{
	if (is_float(dtype))
		return float_bits(&formats[dtype], index, rank);
	return random_bits(index, rank) | (index & 1);
}

void data_fill(void *out, size_t start, size_t count, int rank,
	       enum kcr_dtype dtype)
{
	const size_t width = kcr_dtype_size(dtype);
	size_t i;

	for (i = 0; i < count; i++) {
		uint64_t bits = element_bits(dtype, start + i, rank);

		switch (width) {
		case 1:
			((uint8_t *)out)[i] = (uint8_t)bits;
			break;
		case 2:
			((uint16_t *)out)[i] = (uint16_t)bits;
			break;
		case 4:
			((uint32_t *)out)[i] = (uint32_t)bits;
			break;
		default:
			((uint64_t *)out)[i] = bits;
			break;
		}
	}
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

bool oracle_must_see_order(enum kcr_dtype dtype, enum kcr_op op)
{
	return is_float(dtype) && (op == KCR_SUM || op == KCR_MEAN);
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
