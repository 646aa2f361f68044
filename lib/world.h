/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Worlds, as those who make them see them.
 */
#ifndef KCR_WORLD_H
#define KCR_WORLD_H

#include "kcr.h"

int world_alloc(const struct kcr_config *config, struct kcr_world **world);
void world_free(struct kcr_world *w);

#endif /* KCR_WORLD_H */
