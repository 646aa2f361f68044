// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The floating-point state of the fold: nearest even, nothing trapped,
 * subnormals kept, whatever the calling thread has set.
 *
 * The bodies are reached through a pointer only, so that the compiler cannot
 * move arithmetic across the change of state.
 */
#include <fenv.h>
#include "kcr.h"
#include "fold.h"

#ifdef __FAST_MATH__
#error "the fold must not be compiled with -ffast-math: its bits are a contract"
#endif

#if defined(__x86_64__)

#define MXCSR_DEFAULT	0x1f80u		/* all masked, nearest, no FTZ, no DAZ */

/* SSE does all the arithmetic on x86-64; the x87 word stays as it is. */
__attribute__((noinline))
void fold_run(fold_fn fn, const void *const in[], int ranks, void *out,
	      size_t count)
{
	unsigned int saved, clean = MXCSR_DEFAULT;

	__asm__ volatile("stmxcsr %0" : "=m" (saved) : : "memory");
	__asm__ volatile("ldmxcsr %0" : : "m" (clean) : "memory");
	fn(in, ranks, out, count);
	__asm__ volatile("ldmxcsr %0" : : "m" (saved) : "memory");
}

#else

/* FE_DFL_ENV clears flush-to-zero as well where it lives in that word (FPCR). */
__attribute__((noinline))
void fold_run(fold_fn fn, const void *const in[], int ranks, void *out,
	      size_t count)
{
	fenv_t saved;

	fegetenv(&saved);
	fesetenv(FE_DFL_ENV);
	fn(in, ranks, out, count);
	fesetenv(&saved);
}

#endif
