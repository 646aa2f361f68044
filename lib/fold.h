/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The contract's arithmetic: one table by type and operation, and the
 * floating-point state in which it runs.
 */
#ifndef KCR_FOLD_H
#define KCR_FOLD_H

#include <stdint.h>
#include "kcollring.h"

/* Changes if the bits of any result ever would. */
#define KCR_FOLD_VERSION	1

/*
 * Fold @ranks operands of @count elements in ascending order into @out, which
 * may be one of them. Called in the state that fold_state_enter() sets.
 */
typedef void (*fold_fn)(const void *const in[], int ranks, void *out,
			size_t count);

/* NULL if the pair is not supported. */
fold_fn fold_lookup(enum kcr_dtype dtype, enum kcr_op op);
fold_fn fold_lookup_reference(enum kcr_dtype dtype, enum kcr_op op);

/* Run @fn in the contract's state and give the caller's back, flags included. */
void fold_run(fold_fn fn, const void *const in[], int ranks, void *out,
	      size_t count);

/* Results that are no number have these bits. */
#define KCR_NAN_F32	0x7fc00000u
#define KCR_NAN_F64	0x7ff8000000000000ull

#endif /* KCR_FOLD_H */
