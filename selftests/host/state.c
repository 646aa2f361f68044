// SPDX-License-Identifier: GPL-2.0
/*
 * The caller's floating-point state: neither used by the fold nor changed
 *
 * Every rounding mode, with and without flushing to zero, with exceptions
 * masked and not, with flags up: the bits of every type and operation stay the
 * same, the state comes back as it was, flags included, and nothing traps.
 *
 * Budget: 2 seconds.
 */
#include "kselftest_harness.h"
#include "probe.h"

PROBE_BUDGET(2)

#define RANKS	3
#define COUNT	1056

struct fp {
	unsigned long control;	/* MXCSR, with the flags; FPCR */
	unsigned long other;	/* the x87 control word; FPSR */
};

#if defined(__x86_64__)

#define ROUNDINGS	4
#define FLUSHES		4
#define TRAPS		2
#define FLAGS		0x3f

static void fp_set(struct fp fp)
{
	unsigned int mxcsr = fp.control;
	unsigned short word = fp.other;

	__asm__ volatile("fldcw %0\n\tldmxcsr %1" : : "m" (word), "m" (mxcsr)
			 : "memory");
}

static struct fp fp_get(void)
{
	unsigned int mxcsr;
	unsigned short word;

	__asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m" (mxcsr), "=m" (word)
			 : : "memory");
	return (struct fp){ mxcsr, word };
}

/* Rounding, DAZ and FTZ, masks; the x87 word with another precision and rounding. */
static struct fp fp_make(int rounding, int flush, int traps, int flags)
{
	unsigned long mxcsr = rounding << 13 | (flush & 1) << 6 | flush >> 1 << 15 |
			      (traps ? 0 : 0x1f80) | flags;

	return (struct fp){ mxcsr, 0x007f | rounding << 10 | (flush ? 0x200 : 0) };
}

#elif defined(__aarch64__)

#define ROUNDINGS	4
#define FLUSHES		4	/* DN, which changes NaN, and FZ */
#define TRAPS		1	/* few CPUs have them */
#define FLAGS		0x9f

static void fp_set(struct fp fp)
{
	__asm__ volatile("msr fpcr, %0\n\tmsr fpsr, %1"
			 : : "r" (fp.control), "r" (fp.other) : "memory");
}

static struct fp fp_get(void)
{
	struct fp fp;

	__asm__ volatile("mrs %0, fpcr\n\tmrs %1, fpsr"
			 : "=r" (fp.control), "=r" (fp.other) : : "memory");
	return fp;
}

static struct fp fp_make(int rounding, int flush, int traps, int flags)
{
	return (struct fp){ (unsigned long)rounding << 22 | flush << 24, flags };
}

#endif

static unsigned char want[COUNT * 8], got[COUNT * 8];
static unsigned char operands[RANKS][COUNT * 8];
static const void *in[RANKS] = { operands[0], operands[1], operands[2] };

/*
 * What is under test is reached through here: between the two settings of the
 * state there is nothing but the call.
 */
static struct fp under(struct fp state, void (*call)(void *argument), void *argument)
{
	struct fp saved = fp_get(), after;

	fp_set(state);
	call(argument);
	after = fp_get();
	fp_set(saved);
	return after;
}

struct pair {
	int dtype, op;
	const struct fold *fold;
	int err;
};

static void call_oracle(void *argument)
{
	struct pair *p = argument;

	p->err = kcr_reference_fold(in, RANKS, got, COUNT, p->dtype, p->op);
}

static void call_form(void *argument)
{
	struct pair *p = argument;

	probe_all(p->fold, in, RANKS, got, COUNT);
}

#define STATES	(ROUNDINGS * FLUSHES * TRAPS * 2)

static struct fp fp_number(int n)
{
	return fp_make(n % ROUNDINGS, n / ROUNDINGS % FLUSHES,
		       n / ROUNDINGS / FLUSHES % TRAPS,
		       n / ROUNDINGS / FLUSHES / TRAPS ? FLAGS : 0);
}

static int check(struct __test_metadata *_metadata, const char *what,
		 const struct pair *p, struct fp before, struct fp after)
{
	long at = data_differ(want, got, COUNT, p->dtype);

	if (at < 0 && !p->err && after.control == before.control &&
	    after.other == before.other)
		return 0;
	TH_LOG("%s: %s of %s in state %#lx, %#lx: error %d, element %ld differs, state after it %#lx, %#lx",
	       what, kcr_op_name(p->op), kcr_dtype_name(p->dtype), before.control,
	       before.other, p->err, at, after.control, after.other);
	return -1;
}

static struct probe_form forms[PROBE_FORMS_MAX];
static int forms_count;

static void try_states(struct __test_metadata *_metadata, struct probe_pair pair)
{
	for (int n = 0; n < STATES; n++) {
		struct pair p = { pair.dtype, pair.op };
		struct fp fp = fp_number(n), after = under(fp, call_oracle, &p);

		ASSERT_EQ(0, check(_metadata, "oracle", &p, fp, after));
		for (int f = 0; f < forms_count; f++) {
			memset(got, 0, sizeof(got));
			p.fold = probe_fold(&forms[f], pair);
			after = under(fp, call_form, &p);
			ASSERT_EQ(0, check(_metadata, forms[f].name, &p, fp, after));
		}
	}
}

TEST(fold)
{
	struct probe_pair pair = PROBE_FIRST;

	forms_count = probe_forms(forms);
	while (probe_next(&pair)) {
		for (int r = 0; r < RANKS; r++)
			probe_fill(operands[r], COUNT, pair.dtype, r, 31);
		ASSERT_EQ(0, kcr_reference_fold(in, RANKS, want, COUNT, pair.dtype,
						pair.op));
		try_states(_metadata, pair);
	}
}

/* The states are not those of the contract, and show: a bare fold gives other bits. */
static void call_bare(void *argument)
{
	struct pair *p = argument;

	p->fold->all(in, RANKS, got, COUNT);
}

TEST(states_matter)
{
	for (int dtype = KCR_F16; dtype <= KCR_F64; dtype++) {
		struct pair p = { dtype, KCR_SUM, fold_lookup(dtype, KCR_SUM) };

		for (int r = 0; r < RANKS; r++)
			probe_fill(operands[r], COUNT, dtype, r, 31);
		ASSERT_EQ(0, kcr_reference_fold(in, RANKS, want, COUNT, dtype,
						KCR_SUM));
		for (int rounding = 1; rounding < ROUNDINGS; rounding++) {
			under(fp_make(rounding, 0, 0, 0), call_bare, &p);
			EXPECT_NE(-1, data_differ(want, got, COUNT, dtype));
		}
		under(fp_make(0, FLUSHES - 1, 0, 0), call_bare, &p);
		EXPECT_NE(-1, data_differ(want, got, COUNT, dtype));
	}
}

#ifndef FOLD_ONLY

/* The whole way through a world: one caller has a state of its own. */
struct collective {
	struct kcr_emu *emu;
	int ranks, err;
	struct pair pair;
};

static void call_allreduce(void *argument)
{
	struct collective *c = argument;
	struct kcr_request *requests[RANKS] = { 0 };
	static unsigned char other[RANKS][COUNT * 8];

	for (int r = 0; r < c->ranks; r++)
		c->err |= kcr_iallreduce(kcr_emu_world(c->emu, r), in[r],
					 r ? other[r] : got, COUNT, c->pair.dtype,
					 c->pair.op, &requests[r]);
	for (int r = 0; r < c->ranks; r++)
		c->err |= kcr_wait(requests[r]);
	for (int r = 1; r < c->ranks; r++)
		c->err |= memcmp(got, other[r], COUNT *
				 kcr_dtype_size(c->pair.dtype));
}

TEST(allreduce)
{
	struct collective c = { .ranks = RANKS };
	struct kcr_config config;

	for (int algo = KCR_ALGO_DIRECT; algo <= KCR_ALGO_CHAIN; algo++) {
		struct probe_pair pair = PROBE_FIRST;

		kcr_config_init(&config);
		config.size = RANKS;
		config.algo = algo;
		ASSERT_EQ(0, kcr_emu_create_config(&config, &c.emu));
		while (probe_next(&pair)) {
			for (int r = 0; r < RANKS; r++)
				probe_fill(operands[r], COUNT, pair.dtype, r, 32);
			kcr_reference_fold(in, RANKS, want, COUNT, pair.dtype,
					   pair.op);
			for (int n = 0; n < STATES; n++) {
				struct fp fp = fp_number(n), after;

				c.pair = (struct pair){ pair.dtype, pair.op };
				memset(got, 0, sizeof(got));
				after = under(fp, call_allreduce, &c);
				c.pair.err = c.err;
				ASSERT_EQ(0, check(_metadata, "allreduce", &c.pair,
						   fp, after));
			}
		}
		kcr_emu_destroy(c.emu);
	}
}

#endif

TEST_HARNESS_MAIN
