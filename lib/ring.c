// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Message rings: the public calls.
 */
#include <errno.h>
#include "kcr.h"

KCR_PUBLIC int kcr_ring_create(struct kcr_world *w, const struct kcr_lane *lanes,
			       size_t count, unsigned int flags,
			       struct kcr_ring **ring)
{
	(void)lanes;
	(void)count;
	(void)flags;
	if (ring)
		*ring = NULL;
	return kcr_fail(w, -EOPNOTSUPP, "no carrier has rings");
}

/* There is no ring that the others could be called with. */
static int no_ring(void)
{
	return kcr_fail(NULL, -EINVAL, "ring is NULL");
}

KCR_PUBLIC int64_t kcr_ring_send(struct kcr_ring *ring, int destination,
				 const void *data, size_t bytes)
{
	return kcr_ring_send_timeout(ring, destination, data, bytes, -1);
}

KCR_PUBLIC int64_t kcr_ring_send_timeout(struct kcr_ring *ring, int destination,
					 const void *data, size_t bytes,
					 int64_t timeout_ns)
{
	(void)ring;
	(void)destination;
	(void)data;
	(void)bytes;
	(void)timeout_ns;
	return no_ring();
}

KCR_PUBLIC int kcr_ring_poll(struct kcr_ring *ring, kcr_ring_fn fn, void *arg)
{
	(void)ring;
	(void)fn;
	(void)arg;
	return no_ring();
}

KCR_PUBLIC int kcr_ring_ack(struct kcr_ring *ring, int origin, uint64_t sequence)
{
	(void)ring;
	(void)origin;
	(void)sequence;
	return no_ring();
}

KCR_PUBLIC int kcr_ring_wait(struct kcr_ring *ring, int64_t timeout_ns)
{
	(void)ring;
	(void)timeout_ns;
	return no_ring();
}

KCR_PUBLIC int kcr_ring_fd(struct kcr_ring *ring)
{
	(void)ring;
	return no_ring();
}

KCR_PUBLIC int kcr_ring_depth(const struct kcr_ring *ring, int source,
			      int destination)
{
	(void)ring;
	(void)source;
	(void)destination;
	return no_ring();
}

KCR_PUBLIC int kcr_ring_capacity(const struct kcr_ring *ring, int source,
				 int destination)
{
	(void)ring;
	(void)source;
	(void)destination;
	return no_ring();
}

KCR_PUBLIC int kcr_ring_is_safe(const struct kcr_ring *ring)
{
	(void)ring;
	return no_ring();
}

KCR_PUBLIC int kcr_ring_stats(const struct kcr_ring *ring,
			      struct kcr_ring_stats *stats)
{
	(void)ring;
	(void)stats;
	return no_ring();
}

KCR_PUBLIC int kcr_ring_destroy(struct kcr_ring *ring)
{
	return ring ? no_ring() : 0;
}
