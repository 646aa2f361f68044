/* SPDX-License-Identifier: GPL-2.0 */
/* kcr-perf ring: perf-bare.c, what two CPUs do without a ring. */
#ifndef PERF_RING_H
#define PERF_RING_H

#include <stdbool.h>

#include <kcollring.h>

#define BARE_BLOCK	4096

struct bare;

/* Bind this rank to a CPU of its own; false where there are not enough for the node's. */
bool bare_pin(const struct kcr_world *world);

/* Memory that all ranks map, made by @owner; collective. 0, or a negative errno. */
int bare_share(struct kcr_world *world, int owner, struct bare **shared);
void bare_free(struct bare *shared);

/* A cache line goes back and forth @n times. Returns the time of one way, in us. */
double bare_line(struct bare *shared, bool is_first, int n);

/*
 * The first of the two writes blocks, then the other copies them. Returns the time of one
 * copy in us, on the other.
 */
double bare_copy(struct bare *shared, bool is_first);

#endif /* PERF_RING_H */
