// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* The neon form of the fold: lib/build.mk has its flags. */
#if defined(__aarch64__)
#define FOLD_TABLE	fold_neon
#include "fold_body.h"
#endif
