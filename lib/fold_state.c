// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The floating-point state of the fold: nearest even, nothing trapped,
 * subnormals kept, whatever the calling thread has set.
 *
 * Both functions are opaque to their callers, and the bodies of the fold are
 * reached through pointers or are out of line: so the compiler cannot move
 * arithmetic across the change of state.
 */
#include <fenv.h>
#include <string.h>
#include "fold.h"

#if defined(__x86_64__)

#define MXCSR_DEFAULT	0x1f80u		/* all masked, nearest, no FTZ, no DAZ */

/* SSE does all the arithmetic on x86-64; the x87 word stays as it is. */
void fold_enter(struct fold_state *state)
{
	unsigned int clean = MXCSR_DEFAULT, saved;

	__asm__ volatile("stmxcsr %0" : "=m" (saved) : : "memory");
	__asm__ volatile("ldmxcsr %0" : : "m" (clean) : "memory");
	state->saved[0] = saved;
}

void fold_leave(const struct fold_state *state)
{
	unsigned int saved = state->saved[0];

	__asm__ volatile("ldmxcsr %0" : : "m" (saved) : "memory");
}

#else

_Static_assert(sizeof(fenv_t) <= sizeof(struct fold_state), "no room");

/* FE_DFL_ENV clears flush-to-zero as well where it lives in that word (FPCR). */
void fold_enter(struct fold_state *state)
{
	fegetenv((fenv_t *)state->saved);
	fesetenv(FE_DFL_ENV);
}

void fold_leave(const struct fold_state *state)
{
	fesetenv((const fenv_t *)state->saved);
}

#endif
