// SPDX-License-Identifier: GPL-2.0
/*
 * f16 and bf16: every conversion, in every form of the fold and the oracle
 *
 * Widening is start(), narrowing is finish(). They are compared with
 * conversions that are written here, in whole numbers only. Narrowing takes all
 * exponents with many mantissas, those around ties among them; with KCR_TEST_LONG=1
 * all 2^32 floats. Then pairs, by the million, against the oracle.
 *
 * Budget: 5 seconds; the long form 300.
 */
#include "kselftest_harness.h"
#include "probe.h"

PROBE_BUDGET(5)

#define SEED	20260

static uint64_t ones(int bits)
{
	return (1ull << bits) - 1;
}

/* The bits of the f32 that has the value; for NaN, any. */
static uint32_t widen(const struct probe_float *f, uint32_t x)
{
	uint32_t sign = (x >> 15) << 31, m = x & ones(f->mbits);
	int e = x >> f->mbits & ones(f->ebits), top = 0;

	if (e == ones(f->ebits))
		return sign | 0x7f800000 | m << (23 - f->mbits);
	if (!e && !m)
		return sign;
	if (e || f->ebits == 8)		/* bf16's subnormals are f32's */
		return sign | (e + 127 - ones(f->ebits - 1)) << 23 |
		       m << (23 - f->mbits);
	/* Normalise: the leading one becomes the hidden bit. */
	while (!(m >> (f->mbits - top)))
		top++;
	m = m << top & ones(f->mbits);
	return sign | (uint32_t)(1 - top + 127 - ones(f->ebits - 1)) << 23 |
	       m << (23 - f->mbits);
}

/* Round to nearest even: the value is m * 2^(e - 150), cut at the type's last bit. */
static uint16_t narrow(const struct probe_float *f, uint32_t x)
{
	uint32_t sign = x >> 31 << 15, infinity = ones(f->ebits) << f->mbits;
	uint64_t m = x & 0x7fffff, whole, rest, half;
	int e = x >> 23 & 255, cut, bias = ones(f->ebits - 1);

	if (e == 255)
		return m ? f->nan : sign | infinity;
	if (e)
		m |= 0x800000;
	else
		e = 1;
	/* The exponent of the result, if it is normal, is e - 127 + bias. */
	e += bias - 127;
	cut = 23 - f->mbits + (e < 1 ? 1 - e : 0);
	if (cut > 40)
		cut = 40;
	whole = m >> cut;
	rest = m & ones(cut);
	half = 1ull << (cut - 1);
	whole += rest > half || (rest == half && whole & 1);
	if (e > 1)
		whole += (uint64_t)(e - 1) << f->mbits;
	return sign | (whole < infinity ? whole : infinity);
}

static int is_nan(uint32_t x)
{
	return (x & 0x7fffffff) > 0x7f800000;
}

/* Known answers, so that the conversions above are not only compared with others. */
TEST(known)
{
	static const struct {
		int dtype;
		uint32_t wide;
		uint16_t narrow;
	} cases[] = {
		{ KCR_F16, 0x477fe000, 0x7bff },	/* 65504 */
		{ KCR_F16, 0x477fefff, 0x7bff },	/* just below 65520 */
		{ KCR_F16, 0x477ff000, 0x7c00 },	/* 65520, a tie */
		{ KCR_F16, 0xc77ff000, 0xfc00 },
		{ KCR_F16, 0x38800000, 0x0400 },	/* 2^-14, normal */
		{ KCR_F16, 0x387fe000, 0x0400 },	/* a tie, to even */
		{ KCR_F16, 0x387fdfff, 0x03ff },
		{ KCR_F16, 0x33800000, 0x0001 },	/* 2^-24 */
		{ KCR_F16, 0x33000000, 0x0000 },	/* 2^-25, a tie */
		{ KCR_F16, 0x33000001, 0x0001 },
		{ KCR_F16, 0xb3000000, 0x8000 },
		{ KCR_F16, 0x33c00000, 0x0002 },	/* 1.5 * 2^-24, a tie */
		{ KCR_F16, 0x00000001, 0x0000 },
		{ KCR_F16, 0x7f800000, 0x7c00 },
		{ KCR_F16, 0xff800001, 0x7e00 },
		{ KCR_F16, 0x3f801000, 0x3c00 },	/* 1 + 2^-11, a tie */
		{ KCR_F16, 0x3f803000, 0x3c02 },
		{ KCR_BF16, 0x3f808000, 0x3f80 },
		{ KCR_BF16, 0x3f818000, 0x3f82 },
		{ KCR_BF16, 0x3f808001, 0x3f81 },
		{ KCR_BF16, 0x7f7fffff, 0x7f80 },	/* to infinity */
		{ KCR_BF16, 0x7f7f7fff, 0x7f7f },
		{ KCR_BF16, 0x00008000, 0x0000 },	/* subnormal ties */
		{ KCR_BF16, 0x00018000, 0x0002 },
		{ KCR_BF16, 0x807fffff, 0x8080 },	/* up to normal */
		{ KCR_BF16, 0xffffffff, 0x7fc0 },
		{ KCR_BF16, 0x7f800001, 0x7fc0 },
	};
	struct probe_form forms[PROBE_FORMS_MAX];
	int n = probe_forms(forms);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct probe_float *f = &probe_floats[cases[i].dtype - KCR_F16];

		EXPECT_EQ(cases[i].narrow, narrow(f, cases[i].wide));
		for (int form = 0; form < n; form++) {
			uint16_t got;

			forms[form].table->of[cases[i].dtype][KCR_SUM]
				.finish(&got, &cases[i].wide, 2, 1);
			EXPECT_EQ(cases[i].narrow, got) {
				TH_LOG("%s: %#x", forms[form].name, cases[i].wide);
			}
		}
	}
}

TEST(widen_all)
{
	static uint16_t x[65536], zero[65536], back[65536];
	static uint32_t got[65536];
	struct probe_form forms[PROBE_FORMS_MAX];
	int n = probe_forms(forms);
	struct fold_state state;

	for (int i = 0; i < 65536; i++) {
		x[i] = i;
		zero[i] = 0x8000;	/* -0 added changes nothing */
	}
	for (int dtype = KCR_F16; dtype <= KCR_BF16; dtype++) {
		const struct probe_float *f = &probe_floats[dtype - KCR_F16];
		const void *in[] = { x, zero };

		for (int form = 0; form < n; form++) {
			const struct fold *fold = &forms[form].table->of[dtype][0];

			fold_enter(&state);
			fold->start(got, x, 65536);
			fold->finish(back, got, 2, 65536);
			fold_leave(&state);
			for (int i = 0; i < 65536; i++) {
				uint32_t want = widen(f, i);

				if (is_nan(want)) {
					ASSERT_TRUE(is_nan(got[i]));
					ASSERT_EQ(f->nan, back[i]);
					continue;
				}
				ASSERT_EQ(want, got[i]) {
					TH_LOG("%s: %s %#x", forms[form].name,
					       kcr_dtype_name(dtype), i);
				}
				ASSERT_EQ(i, back[i]);
			}
		}
		/* The oracle, there and back. */
		ASSERT_EQ(0, kcr_reference_fold(in, 2, back, 65536, dtype, KCR_SUM));
		for (int i = 0; i < 65536; i++)
			ASSERT_EQ(is_nan(widen(f, i)) ? f->nan : i, back[i]);
	}
}

#define CHUNK	8192

static int narrow_chunk(struct __test_metadata *_metadata, const uint32_t *x,
			size_t count)
{
	struct probe_form forms[PROBE_FORMS_MAX];
	int n = probe_forms(forms);
	uint16_t want[CHUNK], got[CHUNK];
	struct fold_state state;

	for (int dtype = KCR_F16; dtype <= KCR_BF16; dtype++) {
		for (size_t i = 0; i < count; i++)
			want[i] = narrow(&probe_floats[dtype - KCR_F16], x[i]);
		for (int form = 0; form < n; form++) {
			long at;

			fold_enter(&state);
			forms[form].table->of[dtype][0].finish(got, x, 2, count);
			fold_leave(&state);
			at = data_differ(want, got, count, dtype);
			if (at < 0)
				continue;
			TH_LOG("%s: %#x to %s: %#x, not %#x", forms[form].name,
			       x[at], kcr_dtype_name(dtype), got[at], want[at]);
			return -1;
		}
	}
	return 0;
}

/* All signs and exponents, with mantissas that are a tie or next to one at each bit. */
TEST(narrow_around_ties)
{
	uint32_t x[CHUNK];
	uint64_t random = SEED;

	for (uint32_t top = 0; top < 512; top++) {
		for (int rounds = 0; rounds < 8; rounds++) {
			size_t n = 0;

			for (int bit = 0; bit <= 22; bit++) {
				for (int k = 0; k < 64; k++) {
					uint32_t upper = data_random(&random);
					uint32_t tie = (upper >> bit << bit | 1u << bit) &
						       0x7fffff;

					if (k < 2)	/* the largest of its kind */
						tie = 0x7fffff >> bit << bit;
					x[n++] = top << 23 | tie;
					x[n++] = top << 23 | ((tie + 1) & 0x7fffff);
					x[n++] = top << 23 | ((tie - 1) & 0x7fffff);
				}
			}
			ASSERT_EQ(0, narrow_chunk(_metadata, x, n));
		}
	}
}

FIXTURE(sweep) {
};

FIXTURE_SETUP(sweep)
{
}

FIXTURE_TEARDOWN(sweep)
{
}

/* Every 509th float; in the long form all of them. */
TEST_F_TIMEOUT(sweep, narrow, 600)
{
	const char *longer = getenv("KCR_TEST_LONG");
	uint64_t step = longer && *longer == '1' ? 1 : 509, at = 0;
	uint32_t x[CHUNK];

	while (at < 1ull << 32) {
		size_t n = 0;

		for (; n < CHUNK && at < 1ull << 32; at += step)
			x[n++] = at;
		ASSERT_EQ(0, narrow_chunk(_metadata, x, n));
	}
}

/* Any values, each operation: a million pairs and threes. */
TEST_F_TIMEOUT(sweep, pairs, 120)
{
	enum { PAIRS = 1000000 };
	struct probe_form forms[PROBE_FORMS_MAX];
	int n = probe_forms(forms);
	uint64_t random = SEED;
	uint16_t x[3][CHUNK], want[CHUNK], got[CHUNK];
	const void *in[] = { x[0], x[1], x[2] };

	for (int done = 0; done < PAIRS; done += CHUNK) {
		for (int i = 0; i < CHUNK; i++) {
			uint64_t h = data_random(&random);

			x[0][i] = h;
			x[1][i] = h >> 16;
			x[2][i] = h >> 32;
			/* Every other: exponents that are near one another. */
			if (h >> 48 & 1)
				x[1][i] = (x[0][i] & 0x7c00) ^ (x[1][i] & 0x8fff);
		}
		for (int dtype = KCR_F16; dtype <= KCR_BF16; dtype++) {
			for (int op = 0; op <= KCR_MEAN; op++) {
				int ranks = 2 + done / CHUNK % 2;

				ASSERT_EQ(0, kcr_reference_fold(in, ranks, want, CHUNK,
								dtype, op));
				for (int form = 0; form < n; form++) {
					probe_all(&forms[form].table->of[dtype][op], in,
						  ranks, got, CHUNK);
					ASSERT_EQ(-1, data_differ(want, got, CHUNK, dtype));
				}
			}
		}
	}
}

TEST_HARNESS_MAIN
