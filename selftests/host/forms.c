// SPDX-License-Identifier: GPL-2.0
/*
 * Every form of the fold (scalar, AVX2, AVX-512, NEON: those that this CPU
 * has) against the oracle, for every type and operation
 *
 * What might enter the bits and must not: the number of ranks, the count
 * around vector widths and the size of a block, where the operands and the result
 * lie, whether they are the same, and whether a fold is done at once or step by step
 * over partial results.
 *
 * Budget: 5 seconds.
 */
#include "kselftest_harness.h"
#include "probe.h"

PROBE_BUDGET(5)

#define RANKS_MOST	256
#define BLOCK_BYTES	4096	/* of partial results, as in lib/fold_body.h */
#define COUNT_MOST	(2 * BLOCK_BYTES + 2)
#define OFFSETS		64
#define GUARD		64

/* Room for any type at any offset, and a guard behind it. */
#define ROOM		((COUNT_MOST + OFFSETS) * 8 + GUARD)

static unsigned char *operands[RANKS_MOST];
static const void *in[RANKS_MOST];
static unsigned char want[ROOM], got[ROOM], partial[ROOM];

static struct probe_form forms[PROBE_FORMS_MAX];
static int forms_count;

__attribute__((constructor))
static void find_forms(void)
{
	forms_count = probe_forms(forms);
}

static void *aligned(size_t size)
{
	void *p = aligned_alloc(64, (size + 63) / 64 * 64);

	if (!p)
		abort();
	memset(p, 0, size);
	return p;
}

/* in[]: operands of @ranks ranks; want[]: the result that the oracle wants. */
static int prepare(struct probe_pair p, int ranks, size_t count, uint64_t seed)
{
	for (int r = 0; r < ranks; r++) {
		if (!operands[r])
			operands[r] = aligned(r < 10 ? ROOM : 4096);
		probe_fill(operands[r], count, p.dtype, r, seed);
		in[r] = operands[r];
	}
	return kcr_reference_fold(in, ranks, want, count, p.dtype, p.op);
}

/* -1, or the first element of @count that is not as wanted; says which. */
static long differ(struct __test_metadata *_metadata, const char *form,
		   struct probe_pair p, int ranks, size_t count, const void *have)
{
	long at = data_differ(want, have, count, p.dtype);

	if (at >= 0)
		TH_LOG("%s: %s of %s, W %d, count %zu: element %ld is %#llx, not %#llx",
		       form, kcr_op_name(p.op), kcr_dtype_name(p.dtype), ranks,
		       count, at, probe_bits(have, at, p.dtype),
		       probe_bits(want, at, p.dtype));
	return at;
}

/* The table has what the contract has, no more, and says how wide partials are. */
TEST(table)
{
	for (int dtype = 0; dtype < KCR_DTYPES; dtype++) {
		size_t size = kcr_dtype_size(dtype);

		if (dtype == KCR_F16 || dtype == KCR_BF16)
			size = sizeof(float);
		for (int op = 0; op < KCR_OPS; op++) {
			int supported = data_is_supported(dtype, op);

			EXPECT_EQ(supported, !!fold_lookup(dtype, op));
			for (int f = 0; f < forms_count; f++) {
				const struct fold *fold =
					&forms[f].table->of[dtype][op];

				EXPECT_EQ(supported, !!fold->all);
				EXPECT_EQ(supported, !!fold->start);
				EXPECT_EQ(supported, !!fold->step);
				EXPECT_EQ(supported, !!fold->finish);
				EXPECT_EQ(supported ? size : 0, fold->partial);
			}
		}
	}
	EXPECT_EQ(NULL, fold_lookup(-1, KCR_SUM));
	EXPECT_EQ(NULL, fold_lookup(KCR_DTYPES, KCR_SUM));
	EXPECT_EQ(NULL, fold_lookup(KCR_F32, -1));
	EXPECT_EQ(NULL, fold_lookup(KCR_F32, KCR_OPS));
}

/* Counts around vectors of 16 to 64 bytes, unrolled ones, and blocks. */
static int list_counts(size_t list[], size_t element, size_t partial_size)
{
	size_t block = BLOCK_BYTES / partial_size, around;
	int n = 0;

	for (size_t c = 0; c <= 9; c++)
		list[n++] = c;
	for (around = 16; around <= 512; around *= 2) {
		list[n++] = around / element + 1;
		list[n++] = around / element - 1;
		list[n++] = around / element;
	}
	for (size_t blocks = 1; blocks <= 2; blocks++) {
		list[n++] = blocks * block - 1;
		list[n++] = blocks * block;
		list[n++] = blocks * block + 1;
	}
	return n;
}

static void try_counts(struct __test_metadata *_metadata, struct probe_pair p,
		       int ranks)
{
	size_t partial_size = fold_lookup(p.dtype, p.op)->partial;
	size_t size = kcr_dtype_size(p.dtype), list[64];
	int n = list_counts(list, size, partial_size);
	unsigned char guard[GUARD];

	memset(guard, 0xa5, GUARD);
	ASSERT_EQ(0, prepare(p, ranks, 2 * BLOCK_BYTES / partial_size + 1, ranks));
	for (int i = 0; i < n * forms_count; i++) {
		const struct probe_form *form = &forms[i / n];
		size_t bytes = list[i % n] * size;

		memset(got, 0xa5, bytes + GUARD);
		probe_all(probe_fold(form, p), in, ranks, got, list[i % n]);
		ASSERT_EQ(-1, differ(_metadata, form->name, p, ranks, list[i % n],
				     got));
		ASSERT_EQ(0, memcmp(got + bytes, guard, GUARD));
	}
}

TEST(counts_and_ranks)
{
	struct probe_pair p = PROBE_FIRST;

	while (probe_next(&p))
		for (int ranks = 2; ranks <= 9; ranks++)
			try_counts(_metadata, p, ranks);
}

TEST(many_ranks)
{
	static const int many[] = { 16, 64, 255, 256 };
	struct probe_pair p = PROBE_FIRST;

	while (probe_next(&p)) {
		for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
			ASSERT_EQ(0, prepare(p, many[i], 131, i));
			for (int f = 0; f < forms_count; f++) {
				probe_all(probe_fold(&forms[f], p), in, many[i],
					  got, 131);
				ASSERT_EQ(-1, differ(_metadata, forms[f].name, p,
						     many[i], 131, got));
			}
		}
	}
}

/* Operands and result each at any element, none as another. */
TEST(alignment)
{
	enum { RANKS = 3, COUNT = 77 };
	static unsigned char rooms[RANKS][ROOM];
	struct probe_pair p = PROBE_FIRST;
	const void *moved[RANKS];

	while (probe_next(&p)) {
		size_t size = kcr_dtype_size(p.dtype);

		ASSERT_EQ(0, prepare(p, RANKS, COUNT, 3));
		for (int offset = 0; offset < OFFSETS; offset++) {
			unsigned char *out = got + (offset * 5 + 1) % OFFSETS * size;

			for (int r = 0; r < RANKS; r++) {
				size_t at = (offset * (2 * r + 1) + r) % OFFSETS;

				moved[r] = memcpy(rooms[r] + at * size, in[r],
						  COUNT * size);
			}
			for (int f = 0; f < forms_count; f++) {
				memset(out, 0, COUNT * size);
				probe_all(probe_fold(&forms[f], p), moved, RANKS,
					  out, COUNT);
				ASSERT_EQ(-1, differ(_metadata, forms[f].name, p,
						     RANKS, COUNT, out));
			}
		}
	}
}

/* The result over operand @over, by the oracle and by every form. */
static void try_in_place(struct __test_metadata *_metadata, struct probe_pair p,
			 int ranks, size_t count, int over)
{
	size_t bytes = count * kcr_dtype_size(p.dtype);

	memcpy(got, in[over], bytes);
	kcr_reference_fold(in, ranks, operands[over], count, p.dtype, p.op);
	ASSERT_EQ(-1, differ(_metadata, "oracle in place", p, ranks, count,
			     in[over]));
	for (int f = 0; f < forms_count; f++) {
		memcpy(operands[over], got, bytes);
		probe_all(probe_fold(&forms[f], p), in, ranks, operands[over], count);
		ASSERT_EQ(-1, differ(_metadata, forms[f].name, p, ranks, count,
				     in[over]));
	}
	memcpy(operands[over], got, bytes);
}

TEST(in_place)
{
	struct probe_pair p = PROBE_FIRST;

	while (probe_next(&p)) {
		size_t block = BLOCK_BYTES / fold_lookup(p.dtype, p.op)->partial;

		for (int ranks = 2; ranks <= 9; ranks++) {
			ASSERT_EQ(0, prepare(p, ranks, block + 13, 7));
			for (int over = 0; over < ranks; over++)
				try_in_place(_metadata, p, ranks, block + 13, over);
		}
	}
}

/* One operand twice. */
TEST(same_operand)
{
	enum { COUNT = 700 };
	struct probe_pair p = PROBE_FIRST;

	while (probe_next(&p)) {
		for (int ranks = 2; ranks <= 9; ranks++) {
			ASSERT_EQ(0, prepare(p, ranks, COUNT, 7));
			in[ranks - 1] = in[0];
			kcr_reference_fold(in, ranks, want, COUNT, p.dtype, p.op);
			for (int f = 0; f < forms_count; f++) {
				probe_all(probe_fold(&forms[f], p), in, ranks, got,
					  COUNT);
				ASSERT_EQ(-1, differ(_metadata, forms[f].name, p,
						     ranks, COUNT, got));
			}
		}
	}
}

#define CHAIN_COUNT	1100

/* As a chain folds: partial results, in segments, @offset elements into their room. */
static void chain(const struct fold *fold, int ranks, size_t size, size_t segment,
		  size_t offset)
{
	void *p = partial + offset * fold->partial;
	struct fold_state state;
	size_t n;

	fold_enter(&state);
	for (size_t at = 0; at < CHAIN_COUNT; at += n) {
		n = segment < CHAIN_COUNT - at ? segment : CHAIN_COUNT - at;
		fold->start(p, operands[0] + at * size, n);
		for (int r = 1; r < ranks; r++)
			fold->step(p, operands[r] + at * size, n);
		fold->finish(got + at * size, p, ranks, n);
	}
	fold_leave(&state);
}

TEST(partial_results)
{
	static const size_t segments[] = { 1, 5, 64, 333, CHAIN_COUNT };
	struct probe_pair p = PROBE_FIRST;

	while (probe_next(&p)) {
		size_t size = kcr_dtype_size(p.dtype);

		for (int ranks = 2; ranks <= 9; ranks++) {
			ASSERT_EQ(0, prepare(p, ranks, CHAIN_COUNT, 11));
			for (int i = 0; i < 5 * forms_count; i++) {
				const struct probe_form *form = &forms[i / 5];

				chain(probe_fold(form, p), ranks, size,
				      segments[i % 5], ranks);
				ASSERT_EQ(-1, differ(_metadata, form->name, p, ranks,
						     CHAIN_COUNT, got));
			}
		}
	}
}

/* The nodes of a chain may have different CPUs: partial results mean the same to all. */
TEST(mixed_forms)
{
	struct probe_pair p = PROBE_FIRST;
	struct fold_state state;

	while (probe_next(&p)) {
		for (int first = 0; first < forms_count; first++) {
			ASSERT_EQ(0, prepare(p, 7, CHAIN_COUNT, 12));
			fold_enter(&state);
			probe_fold(&forms[first], p)->start(partial, in[0],
							    CHAIN_COUNT);
			for (int r = 1; r < 7; r++)
				probe_fold(&forms[(first + r) % forms_count], p)
					->step(partial, in[r], CHAIN_COUNT);
			probe_fold(&forms[(first + 1) % forms_count], p)
				->finish(got, partial, 7, CHAIN_COUNT);
			fold_leave(&state);
			ASSERT_EQ(-1, differ(_metadata, "mixed", p, 7, CHAIN_COUNT,
					     got));
		}
	}
}

#define TRIPLES	(PROBE_SPECIALS * PROBE_SPECIALS * PROBE_SPECIALS)

/* Three ranks' operands: every triple of special values. */
static void fill_triples(unsigned char *x[3], int dtype)
{
	size_t size = kcr_dtype_size(dtype);

	for (size_t i = 0; i < TRIPLES; i++) {
		size_t which = i;

		for (int r = 0; r < 3; r++, which /= PROBE_SPECIALS) {
			uint64_t bits = probe_special(dtype, which % PROBE_SPECIALS);

			memcpy(x[r] + i * size, &bits, size);
		}
	}
}

TEST(specials)
{
	unsigned char *x[3], *result = aligned(TRIPLES * 8);
	unsigned char *expected = aligned(TRIPLES * 8);
	struct probe_pair p = { KCR_F16, -1 };

	for (int r = 0; r < 3; r++)
		x[r] = aligned(TRIPLES * 8);
	while (probe_next(&p)) {
		const void *triple[] = { x[0], x[1], x[2] };

		fill_triples(x, p.dtype);
		for (int i = 0; i < 2 * forms_count; i++) {
			int ranks = 2 + i % 2;
			long at;

			kcr_reference_fold(triple, ranks, expected, TRIPLES,
					   p.dtype, p.op);
			probe_all(probe_fold(&forms[i / 2], p), triple, ranks,
				  result, TRIPLES);
			at = data_differ(expected, result, TRIPLES, p.dtype);
			ASSERT_EQ(-1, at) {
				TH_LOG("%s, %s of %s, W %d: %#llx, not %#llx",
				       forms[i / 2].name, kcr_op_name(p.op),
				       kcr_dtype_name(p.dtype), ranks,
				       probe_bits(result, at, p.dtype),
				       probe_bits(expected, at, p.dtype));
			}
		}
	}
	for (int r = 0; r < 3; r++)
		free(x[r]);
	free(result);
	free(expected);
}

/* How many of @count results change when the first rank becomes the last. */
static size_t count_sensitive(struct probe_pair p, int ranks, size_t count)
{
	size_t size = kcr_dtype_size(p.dtype), sensitive = 0;
	const void *other[RANKS_MOST];

	prepare(p, ranks, count, 5);
	for (int r = 0; r < ranks; r++)
		other[r] = in[(r + 1) % ranks];
	kcr_reference_fold(other, ranks, got, count, p.dtype, p.op);
	for (size_t i = 0; i < count; i++)
		sensitive += !!memcmp(want + i * size, got + i * size, size);
	return sensitive;
}

/*
 * What all this rests on: the operands would show a wrong order. For sums,
 * products and means of each float type, another order of three and more ranks gives
 * other bits. With two ranks it cannot, nor for minima and maxima at all, nor for
 * the product of three f16: see probe.h.
 */
TEST(operands_are_sensitive)
{
	struct probe_pair p = { KCR_F16, -1 };

	while (probe_next(&p)) {
		for (int ranks = 3; ranks <= 9; ranks++) {
			size_t sensitive = count_sensitive(p, ranks, 8000);

			int wanted = p.op != KCR_MIN && p.op != KCR_MAX &&
				     !(p.dtype == KCR_F16 && p.op == KCR_PROD &&
				       ranks == 3);

			EXPECT_EQ(wanted, sensitive > 0) {
				TH_LOG("%s of %s, W %d: %zu elements",
				       kcr_op_name(p.op), kcr_dtype_name(p.dtype),
				       ranks, sensitive);
			}
		}
	}
}

TEST_HARNESS_MAIN
