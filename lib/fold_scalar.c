// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* The scalar form of the fold: one element after another, on any machine. */
#define FOLD_TABLE	fold_scalar
#include "fold_body.h"
