/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What tests over the emulator share: data of every type, guarded buffers, and
 * an allreduce of all ranks that is compared with the oracle
 */
#ifndef KCR_TEST_EMU_H
#define KCR_TEST_EMU_H

#include <stdio.h>
#include <time.h>

#include "data.h"

#define EMU_GUARD	64
#define EMU_GUARD_BYTE	0xa5

/* How many times the usual amount is wanted: KCR_TEST_SCALE; @lengthy by KCR_TEST_LONG. */
static inline unsigned long emu_scale(unsigned long lengthy)
{
	const char *text = getenv("KCR_TEST_SCALE");
	unsigned long n = text ? strtoul(text, NULL, 10) : 0;

	if (n)
		return n;
	return getenv("KCR_TEST_LONG") ? lengthy : 1;
}

static inline double emu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* For the log: what a group did, and what it may take on a quiet machine. */
static inline void emu_report(const char *what, unsigned long rounds,
			      double since, int budget)
{
	printf("# %s: %lu rounds in %.1f s, budget %d s\n", what, rounds,
	       emu_now() - since, budget);
}

/* A world's configuration with slots of @slot bytes. */
static inline struct kcr_config emu_config(int ranks, enum kcr_algo algo,
					   unsigned int slot)
{
	struct kcr_config config;

	kcr_config_init(&config);
	config.size = ranks;
	config.algo = algo;
	config.lane_bytes = slot;
	config.board_bytes = slot;
	return config;
}

/* The bits of a 16-bit float, from its fields. */
static inline uint16_t emu_half(int mantissa_bits, uint64_t sign, uint64_t exponent,
				uint64_t mantissa)
{
	return (sign & 1) << 15 | exponent << mantissa_bits |
	       (mantissa & ((1u << mantissa_bits) - 1));
}

/*
 * What data_value() does, in 16 bits: see there. Big and small, with a
 * partner that cancels two ranks on, or right after: the fold is in f32, and only
 * what is lost there and then shows in the 16 bits that are left.
 */
static inline uint16_t emu_half_value(uint64_t seed, int rank, size_t i,
				      enum kcr_dtype dtype)
{
	uint64_t h = data_mix(data_mix(seed ^ data_mix(i)) + rank);
	uint64_t common = data_mix(seed + i);
	int bits = dtype == KCR_F16 ? 10 : 7;
	int large = dtype == KCR_F16 ? 29 : 127 + 20;
	int small = dtype == KCR_F16 ? 1 : 127 - 10;

	if (i % 2 && dtype == KCR_F16)
		return emu_half(bits, h >> 20, 1 + (h >> 24) % 24, h >> 32);
	/* Products overflow and vanish on the way. */
	if (i % 2)
		return emu_half(bits, h >> 20, 40 + (h >> 24) % 175, h >> 32);
	if (i % 4 ? rank < 2 : rank % 2 == 0)
		return emu_half(bits, i % 4 ? rank : rank / 2, large, common);
	return emu_half(bits, h >> 20, small + (h >> 24) % 6, h >> 32);
}

/*
 * NaN with payloads, infinities, zeros, subnormals, the largest and the
 * smallest: the exponent's bits and the mantissa's are all ones, all zeros or
 * random. For every floating-point type.
 */
static inline uint64_t emu_special(uint64_t h, int bytes, int mantissa_bits)
{
	int exponent_bits = 8 * bytes - 1 - mantissa_bits;
	uint64_t exponents = ((1ULL << exponent_bits) - 1) << mantissa_bits;
	uint64_t mantissas = (1ULL << mantissa_bits) - 1;
	uint64_t bits = (h & 1) << (8 * bytes - 1);
	uint64_t random = data_mix(h);

	if (h & 2)
		bits |= exponents;
	if ((h & 12) == 12)
		bits ^= 1ULL << mantissa_bits;
	if ((h & 48) == 48)
		bits |= mantissas;
	else if (h & 16)
		bits |= random & mantissas;
	return bits;
}

/* Elements @first .. @first + @count - 1 of rank @rank, of any type. */
static inline void emu_fill_from(void *buffer, size_t first, size_t count,
				 enum kcr_dtype dtype, int rank, uint64_t seed)
{
	static const int mantissa_bits[KCR_DTYPES] = {
		[KCR_F16] = 10, [KCR_BF16] = 7, [KCR_F32] = 23, [KCR_F64] = 52,
	};
	size_t size = kcr_dtype_size(dtype), i;
	uint64_t h, bits;

	if (dtype == KCR_F32 || dtype == KCR_F64)
		data_fill_from(buffer, first, count, dtype, rank, seed);
	for (i = 0; i < count; i++) {
		h = data_mix(data_mix(seed ^ data_mix(first + i)) + rank);
		bits = h;
		if (dtype >= KCR_F16 && data_mix(seed - first - i) % 8 == 0)
			bits = emu_special(h, size, mantissa_bits[dtype]);
		else if (dtype == KCR_F16 || dtype == KCR_BF16)
			bits = emu_half_value(seed, rank, first + i, dtype);
		else if (dtype >= KCR_F16)
			continue;
		memcpy((char *)buffer + i * size, &bits, size);
	}
}

/*
 * Would the fold of these operands, begun at another rank as the rotating ring
 * does, and with ranks 1 and 2 exchanged, give other bits? 1 if so; never for 2 ranks.
 */
static inline int emu_order_matters(const void *const in[], int ranks,
				    size_t count, enum kcr_dtype dtype,
				    enum kcr_op op)
{
	size_t bytes = count * kcr_dtype_size(dtype);
	const void *other[KCR_RANKS_MAX];
	char *a = malloc(bytes + 1), *b = malloc(bytes + 1);
	int r, matters;

	kcr_reference_fold(in, ranks, a, count, dtype, op);
	for (r = 0; r < ranks; r++)
		other[r] = in[(r + 1) % ranks];
	kcr_reference_fold(other, ranks, b, count, dtype, op);
	matters = memcmp(a, b, bytes) != 0;
	for (r = 0; r < ranks; r++)
		other[r] = in[ranks > 2 && (r == 1 || r == 2) ? 3 - r : r];
	kcr_reference_fold(other, ranks, b, count, dtype, op);
	matters = matters && memcmp(a, b, bytes) != 0;
	free(a);
	free(b);
	return matters;
}

/* Memory with guards on both sides, at @offset bytes from where malloc() puts it. */
struct emu_buffer {
	unsigned char *base;
	unsigned char *data;
	size_t bytes;
	size_t offset;
};

static inline void emu_buffer_make(struct emu_buffer *b, size_t bytes,
				   size_t offset)
{
	b->base = malloc(bytes + offset + 2 * EMU_GUARD);
	b->data = b->base + EMU_GUARD + offset;
	b->bytes = bytes;
	b->offset = offset;
	memset(b->base, EMU_GUARD_BYTE, bytes + offset + 2 * EMU_GUARD);
}

/* Frees it; returns whether nothing was written outside. */
static inline int emu_buffer_end(struct emu_buffer *b)
{
	size_t before = b->data - b->base, i;
	int is_whole = 1;

	for (i = 0; i < before; i++)
		is_whole &= b->base[i] == EMU_GUARD_BYTE;
	for (i = 0; i < EMU_GUARD; i++)
		is_whole &= b->data[b->bytes + i] == EMU_GUARD_BYTE;
	free(b->base);
	return is_whole;
}

/* One allreduce of all ranks of an emulator. */
struct emu_call {
	struct kcr_emu *emu;
	int ranks;
	size_t count;
	enum kcr_dtype dtype;
	enum kcr_op op;
	int in_place;
	int misaligned;		/* by so many elements */
	uint64_t seed;		/* of the data, and of the order of the calls */
};

static inline void emu_describe(const struct emu_call *c, const char *what,
				int rank, long value)
{
	printf("# %s of %s, W %d, count %zu, %s, off by %d, seed %llu: rank %d: %s %ld: %s\n",
	       kcr_op_name(c->op), kcr_dtype_name(c->dtype), c->ranks, c->count,
	       c->in_place ? "in place" : "apart", c->misaligned,
	       (unsigned long long)c->seed, rank, what, value,
	       kcr_error(kcr_emu_world(c->emu, rank)));
}

/* Compares with the oracle; sends must be as they were. Returns what is wrong, counted. */
static inline int emu_compare(const struct emu_call *c, const void *want,
			      const void *const operands[],
			      struct emu_buffer send[], struct emu_buffer recv[])
{
	int r, wrong = 0;
	long at;

	for (r = 0; r < c->ranks; r++) {
		const void *got = c->in_place ? send[r].data : recv[r].data;

		at = data_differ(got, want, c->count, c->dtype);
		if (at >= 0) {
			emu_describe(c, "wrong bits at", r, at);
			wrong++;
		}
		if (!c->in_place && c->count &&
		    data_differ(send[r].data, operands[r], c->count, c->dtype) >= 0) {
			emu_describe(c, "send was written", r, 0);
			wrong++;
		}
		if (!emu_buffer_end(&send[r]) || !emu_buffer_end(&recv[r])) {
			emu_describe(c, "a guard was written", r, 0);
			wrong++;
		}
	}
	return wrong;
}

/* Issue on all ranks, beginning somewhere, and wait beginning elsewhere. */
static inline int emu_run(const struct emu_call *c, struct emu_buffer send[],
			  struct emu_buffer recv[])
{
	int first = data_mix(c->seed) % c->ranks, i, r, err, wrong = 0;
	struct kcr_request *requests[KCR_RANKS_MAX] = { NULL };

	for (i = 0; i < c->ranks; i++) {
		r = (first + i) % c->ranks;
		err = kcr_iallreduce(kcr_emu_world(c->emu, r), send[r].data,
				     c->in_place ? send[r].data : recv[r].data,
				     c->count, c->dtype, c->op, &requests[r]);
		if (err) {
			emu_describe(c, "the call returned", r, err);
			wrong++;
		}
	}
	for (i = 0; i < c->ranks; i++) {
		r = (2 * first + 1 + i) % c->ranks;
		if (!requests[r])
			continue;
		err = kcr_wait(requests[r]);
		if (err) {
			emu_describe(c, "the wait returned", r, err);
			wrong++;
		}
	}
	return wrong;
}

/*
 * The whole of it. Returns how much was wrong; *matters, if not NULL, tells
 * whether this data would have shown another order.
 */
static inline int emu_allreduce(const struct emu_call *c, int *matters)
{
	size_t size = kcr_dtype_size(c->dtype), bytes = c->count * size;
	struct emu_buffer send[KCR_RANKS_MAX], recv[KCR_RANKS_MAX];
	const void *operands[KCR_RANKS_MAX];
	char *copies = malloc(c->ranks * bytes + 1), *want = malloc(bytes + 1);
	int r, wrong;

	for (r = 0; r < c->ranks; r++) {
		emu_buffer_make(&send[r], bytes, c->misaligned * size);
		emu_buffer_make(&recv[r], bytes, (c->misaligned + r) % 3 * size);
		emu_fill_from(send[r].data, 0, c->count, c->dtype, r, c->seed);
		operands[r] = memcpy(copies + r * bytes, send[r].data, bytes);
	}
	wrong = kcr_reference_fold(operands, c->ranks, want, c->count, c->dtype,
				   c->op) != 0;
	if (matters)
		*matters = emu_order_matters(operands, c->ranks, c->count,
					     c->dtype, c->op);
	wrong += emu_run(c, send, recv);
	wrong += emu_compare(c, want, operands, send, recv);
	free(copies);
	free(want);
	return wrong;
}

#endif /* KCR_TEST_EMU_H */
