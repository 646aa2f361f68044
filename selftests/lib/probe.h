/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Operands of every type for the fold, and the forms of the fold that this CPU has
 *
 * Operands are made of bits, without arithmetic of the type, so they are the same on
 * every machine and whatever the floating-point state is. They depend on seed, rank and
 * position. Neighbouring elements differ in kind: sums that cancel, ties,
 * products that overflow on their way, subnormals, specials, any bits at all.
 */
#ifndef KCR_TEST_PROBE_H
#define KCR_TEST_PROBE_H

#include <stdio.h>

#include "data.h"
#include "../../lib/fold.h"

/* Said before anything runs: how long it may take on a quiet machine. */
#define PROBE_BUDGET(seconds)						\
	__attribute__((constructor))					\
	static void say_budget(void)					\
	{								\
		printf("# budget: %d s\n", (seconds));			\
		fflush(stdout);						\
	}

#define PROBE_KINDS	8

/* How the floats are made: sign, @ebits of exponent, @mbits of mantissa. */
struct probe_float {
	int ebits, mbits;
	int cancel;		/* 2^cancel swallows numbers around 1 / 16 */
	uint64_t nan;		/* the canonical one */
};

static const struct probe_float probe_floats[] = {
	[KCR_F16 - KCR_F16] = { 5, 10, 14, 0x7e00 },
	[KCR_BF16 - KCR_F16] = { 8, 7, 40, 0x7fc0 },
	[KCR_F32 - KCR_F16] = { 8, 23, 30, 0x7fc00000 },
	[KCR_F64 - KCR_F16] = { 11, 52, 60, 0x7ff8000000000000 },
};

static inline int probe_is_float(int dtype)
{
	return dtype >= KCR_F16;
}

static inline uint64_t probe_compose(const struct probe_float *f, uint64_t sign,
				     uint64_t exponent, uint64_t mantissa)
{
	uint64_t e = exponent & ((1ull << f->ebits) - 1);
	uint64_t m = mantissa & ((1ull << f->mbits) - 1);

	return (sign & 1) << (f->ebits + f->mbits) | e << f->mbits | m;
}

#define PROBE_SPECIALS	48

/* Special value @i, as bits: each with both signs. */
static inline uint64_t probe_special(int dtype, unsigned int i)
{
	const struct probe_float *f = &probe_floats[dtype - KCR_F16];
	uint64_t max = (1ull << f->ebits) - 1, all = (1ull << f->mbits) - 1;
	uint64_t quiet = 1ull << (f->mbits - 1), bias = max / 2, sign = i & 1;

	switch (i / 2 % (PROBE_SPECIALS / 2)) {
	case 0: return probe_compose(f, sign, 0, 0);
	case 1: return probe_compose(f, sign, max, 0);
	case 2: return probe_compose(f, sign, max, quiet);
	case 3: return probe_compose(f, sign, max, quiet | 5);
	case 4: return probe_compose(f, sign, max, all);
	case 5: return probe_compose(f, sign, max, 1);		/* signalling */
	case 6: return probe_compose(f, sign, max, quiet - 1);
	case 7: return probe_compose(f, sign, 0, 1);		/* subnormal */
	case 8: return probe_compose(f, sign, 0, 2);
	case 9: return probe_compose(f, sign, 0, all);
	case 10: return probe_compose(f, sign, 0, quiet + 1);
	case 11: return probe_compose(f, sign, 1, 0);		/* normal */
	case 12: return probe_compose(f, sign, 1, 1);
	case 13: return probe_compose(f, sign, 2, all);
	case 14: return probe_compose(f, sign, max - 1, all);	/* largest */
	case 15: return probe_compose(f, sign, max - 1, all - 1);
	case 16: return probe_compose(f, sign, max - 1, 0);
	case 17: return probe_compose(f, sign, bias, 0);	/* one */
	case 18: return probe_compose(f, sign, bias, 1);
	case 19: return probe_compose(f, sign, bias - 1, all);
	case 20: return probe_compose(f, sign, bias + 1, quiet);
	case 21: return probe_compose(f, sign, bias - f->mbits - 1, 0);
	case 22: return probe_compose(f, sign, bias + f->mbits + 1, 1);
	default: return probe_compose(f, sign, bias - 2, all / 3);
	}
}

/*
 * In f32 the product of two f16 is exact and that of three is rounded once, so
 * their order cannot matter. These are of the few fours of which it does.
 */
static const uint16_t probe_f16_products[][4] = {
	{ 0x3ed8, 0x3ebb, 0x3c7d, 0x3c42 }, { 0x3e44, 0x3e72, 0x3dd9, 0x3f21 },
	{ 0x3c28, 0x3f56, 0x3cba, 0x3d8a }, { 0x3da1, 0x3de5, 0x3cc2, 0x3cae },
	{ 0x3ff1, 0x3f58, 0x3c8b, 0x3cdd }, { 0x3d07, 0x3fa9, 0x3f65, 0x3d06 },
	{ 0x3e96, 0x3ddc, 0x3f8f, 0x3db4 }, { 0x3f26, 0x3f40, 0x3f53, 0x3f23 },
};

static inline uint64_t probe_float_bits(int dtype, uint64_t h, uint64_t shared,
					size_t i, int rank)
{
	const struct probe_float *f = &probe_floats[dtype - KCR_F16];
	uint64_t max = (1ull << f->ebits) - 1, bias = max / 2;
	uint64_t sign = h >> 63, m = h >> 3;

	switch (i % PROBE_KINDS) {
	case 0:		/* big, small, -big, small */
		if (rank % 2 == 0)
			return probe_compose(f, rank / 2, bias + f->cancel,
					     shared);
		return probe_compose(f, 0, bias - 6 + (h & 3), m);
	case 1:		/* every step is rounded */
		return probe_compose(f, sign, bias - 3 + (h & 7), m);
	case 2:
		return h >> (63 - f->ebits - f->mbits);
	case 3:		/* half a step of the type: ties */
		if (rank % 2)
			return probe_compose(f, sign, bias - f->mbits - 1,
					     h & 1);
		return probe_compose(f, rank ? sign : 0, bias, m);
	case 4:		/* products near 1 */
		if (dtype == KCR_F16 && i / PROBE_KINDS % 2)
			return rank < 4 ? probe_f16_products[shared % 8][rank] :
					  0x3c00;
		return probe_compose(f, sign, bias - (h & 1), m);
	case 5:		/* products that leave the range and come back */
		if ((rank / 2 + (shared & 1)) % 2)
			return probe_compose(f, sign, 1 + (h & 3), m);
		return probe_compose(f, sign, max - 1 - (h & 3), m);
	case 6:
		return probe_special(dtype, h % PROBE_SPECIALS);
	default:	/* subnormals, and results around the smallest normal */
		return probe_compose(f, sign, h & 1, m);
	}
}

static inline uint64_t probe_int_bits(int bits, uint64_t h, size_t i, int rank)
{
	uint64_t top = 1ull << (bits - 1);

	switch (i % PROBE_KINDS) {
	case 0:		/* small, of both signs if there are any */
		return h % 7 - 3;
	case 1:		/* the largest and the smallest, as signed ... */
		return top + h % 5 - 2;
	case 2:		/* ... and as unsigned */
		return h % 5 - 2;
	case 3:		/* odd: products that do not become 0 */
		return h | 1;
	default:
		return h;
	}
}

/* Elements of rank @rank, the same for a position wherever the buffer is. */
static inline void probe_fill(void *buffer, size_t count, int dtype, int rank,
			      uint64_t seed)
{
	size_t size = kcr_dtype_size(dtype), i;

	for (i = 0; i < count; i++) {
		uint64_t shared = data_mix(seed ^ data_mix(i + 1));
		uint64_t h = data_mix(shared + rank), bits;

		if (probe_is_float(dtype))
			bits = probe_float_bits(dtype, h, shared, i, rank);
		else
			bits = probe_int_bits(size * 8, h, i, rank);
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the bytes that are kept are the first ones"
#endif
		memcpy((char *)buffer + i * size, &bits, size);
	}
}

/* All supported pairs: start with PROBE_FIRST, take the next while there is one. */
struct probe_pair {
	int dtype, op;
};

#define PROBE_FIRST	((struct probe_pair){ 0, -1 })

static inline int probe_next(struct probe_pair *p)
{
	do {
		if (++p->op == KCR_OPS) {
			p->op = 0;
			p->dtype++;
		}
	} while (p->dtype < KCR_DTYPES && !data_is_supported(p->dtype, p->op));
	return p->dtype < KCR_DTYPES;
}

struct probe_form {
	const char *name;
	const struct fold_table *table;
};

#define PROBE_FORMS_MAX	4

/* The forms that this CPU can run; returns how many. */
static inline int probe_forms(struct probe_form forms[PROBE_FORMS_MAX])
{
	int n = 0;

	forms[n++] = (struct probe_form){ "scalar", &fold_scalar };
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx2"))
		forms[n++] = (struct probe_form){ "avx2", &fold_avx2 };
	if (__builtin_cpu_supports("avx512f") &&
	    __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl"))
		forms[n++] = (struct probe_form){ "avx512", &fold_avx512 };
#elif defined(__aarch64__)
	forms[n++] = (struct probe_form){ "neon", &fold_neon };
#endif
	return n;
}

static inline const struct fold *probe_fold(const struct probe_form *form,
					    struct probe_pair p)
{
	return &form->table->of[p.dtype][p.op];
}

/* One fold by one form, in the state in which the collectives run it. */
static inline void probe_all(const struct fold *fold, const void *const in[],
			     int ranks, void *out, size_t count)
{
	struct fold_state state;

	fold_enter(&state);
	fold->all(in, ranks, out, count);
	fold_leave(&state);
}

/* For a message: element @i as bits. */
static inline unsigned long long probe_bits(const void *buffer, size_t i,
					    int dtype)
{
	size_t size = kcr_dtype_size(dtype);
	uint64_t bits = 0;

	memcpy(&bits, (const char *)buffer + i * size, size);
	return bits;
}

#endif /* KCR_TEST_PROBE_H */
