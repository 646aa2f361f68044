/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The contract's arithmetic: one table by type and operation, and the
 * floating-point state in which it runs.
 */
#ifndef KCR_FOLD_H
#define KCR_FOLD_H

#include <stddef.h>
#include <stdint.h>
#include "kcollring.h"

/* Changes if the bits of any result ever would. */
#define KCR_FOLD_VERSION	1

/* Results that are no number have these bits. */
#define KCR_NAN_F16	0x7e00u
#define KCR_NAN_BF16	0x7fc0u
#define KCR_NAN_F32	0x7fc00000u
#define KCR_NAN_F64	0x7ff8000000000000ull

/**
 * struct fold - one type and operation, in one form
 * @partial: bytes of an element of a partial result: f32's for 16-bit floats,
 *	else the type's own
 * @all: fold @ranks (at least 2) operands of @count elements in ascending order
 *	into @out, which may be one of them
 * @start: a partial result is the first operand
 * @step: a partial result takes one more operand
 * @finish: a partial result of @ranks operands becomes the result, elsewhere
 *
 * all() is start(), step() for the rest and finish(), block by block. Called in
 * the state that fold_enter() sets.
 */
struct fold {
	size_t partial;
	void (*all)(const void *const in[], int ranks, void *out, size_t count);
	void (*start)(void *partial, const void *x, size_t count);
	void (*step)(void *partial, const void *x, size_t count);
	void (*finish)(void *out, const void *partial, int ranks, size_t count);
};

/* NULL if the pair is not supported. */
const struct fold *fold_lookup(enum kcr_dtype dtype, enum kcr_op op);

/* 0, or -EINVAL if KCR_FOLD asks for a form that is not there. */
int fold_form_check(void);

/* The forms: tables by type and operation, of those that were compiled. */
struct fold_table {
	struct fold of[KCR_DTYPES][KCR_OPS];
};

extern const struct fold_table fold_scalar;
#if defined(__x86_64__)
extern const struct fold_table fold_avx2, fold_avx512;
#elif defined(__aarch64__)
extern const struct fold_table fold_neon;
#endif

/* The contract's floating-point state, and the caller's back, flags included. */
struct fold_state {
	unsigned long saved[8];
};

void fold_enter(struct fold_state *state);
void fold_leave(const struct fold_state *state);

#endif /* KCR_FOLD_H */
