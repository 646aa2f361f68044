// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The oracle: the scalar left fold that defines the bits. Slow and plain on
 * purpose; everything else is compared with it.
 *
 * The written order of operations is mamba-rs's; the rules for NaN are
 * DESIGN's.
 */
#include <errno.h>
#include <string.h>
#include "kcr.h"
#include "fold.h"

#define REFERENCE_SUM(name, type, bits, quiet)				\
static void name(const void *const in[], int ranks, void *out,		\
		 size_t count)						\
{									\
	const bits nan = quiet;						\
									\
	for (size_t i = 0; i < count; i++) {				\
		type sum = ((const type *)in[0])[i];			\
									\
		for (int r = 1; r < ranks; r++)				\
			sum = sum + ((const type *)in[r])[i];		\
		if (sum != sum)						\
			memcpy(&sum, &nan, sizeof(sum));		\
		((type *)out)[i] = sum;					\
	}								\
}

REFERENCE_SUM(sum_f32, float, uint32_t, KCR_NAN_F32)
REFERENCE_SUM(sum_f64, double, uint64_t, KCR_NAN_F64)

static const fold_fn reference[KCR_DTYPES][KCR_OPS] = {
	[KCR_F32][KCR_SUM] = sum_f32,
	[KCR_F64][KCR_SUM] = sum_f64,
};

fold_fn fold_lookup_reference(enum kcr_dtype dtype, enum kcr_op op)
{
	if ((unsigned int)dtype >= KCR_DTYPES || (unsigned int)op >= KCR_OPS)
		return NULL;
	return reference[dtype][op];
}

KCR_PUBLIC int kcr_reference_fold(const void *const in[], int ranks, void *out,
				  size_t count, enum kcr_dtype dtype,
				  enum kcr_op op)
{
	fold_fn fn = fold_lookup_reference(dtype, op);

	if (!fn)
		return kcr_fail(NULL, -EOPNOTSUPP, "%s of %s is not supported",
				kcr_op_text(op), kcr_dtype_text(dtype));
	if (ranks < 1)
		return kcr_fail(NULL, -EINVAL, "ranks is %d, must be at least 1",
				ranks);
	if (!count)
		return 0;
	if (!in || !out)
		return kcr_fail(NULL, -EINVAL, "%s is NULL", in ? "out" : "in");
	for (int r = 0; r < ranks; r++)
		if (!in[r])
			return kcr_fail(NULL, -EINVAL, "in[%d] is NULL", r);
	if (ranks == 1)
		memmove(out, in[0], count * kcr_dtype_size(dtype));
	else
		fold_run(fn, in, ranks, out, count);
	return 0;
}
