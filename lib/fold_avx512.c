// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* The avx512 form of the fold: lib/build.mk has its flags. */
#if defined(__x86_64__)
#define FOLD_TABLE	fold_avx512
#include "fold_body.h"
#endif
