// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Rings in windows of the module, one each.
 *
 * The ranks of a node choose the lowest window that no ring of the world has, its lanes
 * between nodes included, of which all ranks know: they make and give up the same rings in
 * the same order. The destination pays for a lane's slots, the source for its
 * acknowledgements.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include "limits.h"
#include "link_mesh.h"
#include "ring.h"

#define PAGE	4096ul

static bool is_here(const struct kcr_ring *ring, int rank)
{
	return rank == ring->rank || rankset_has(&ring->link->local, rank);
}

/* Lanes that the window has: those between ranks of this node, in their order. */
static bool is_local(const struct kcr_ring *ring, const struct ring_lane *lane)
{
	return is_here(ring, lane->desc.source) &&
	       is_here(ring, lane->desc.destination);
}

static int choose_window(struct kcr_ring *ring)
{
	uint32_t taken = 0;
	unsigned int window = RING_WINDOW;

	for (const struct kcr_ring *r = ring->world->rings; r; r = r->next)
		taken |= 1u << r->window | 1u << r->remote_window;
	while (window < KCR_MAX_WINDOWS && taken >> window & 1)
		window++;
	if (window == KCR_MAX_WINDOWS)
		return kcr_fail(NULL, -ENOSPC,
				"no window is left: a world has %d rings at most by the module",
				KCR_MAX_WINDOWS - RING_WINDOW);
	ring->window = window;
	return 0;
}

/* As a window has them: those that belong to it. To be freed; NULL without memory. */
struct kcr_lane_desc *ring_list_lanes(const struct kcr_ring *ring, uint32_t *count,
				      bool (*belongs)(const struct kcr_ring *ring,
						      const struct ring_lane *lane))
{
	struct kcr_lane_desc *list = calloc(ring->count + 1, sizeof(*list));
	uint32_t n = 0;

	for (size_t i = 0; list && i < ring->count; i++) {
		const struct kcr_lane *l = &ring->lanes[i].desc;

		if (belongs(ring, &ring->lanes[i]))
			list[n++] = (struct kcr_lane_desc){
				.source = l->source,
				.destination = l->destination,
				.depth = l->depth,
				.capacity = l->capacity,
			};
	}
	*count = n;
	return list;
}

static int make_window(struct kcr_ring *ring, const struct kcr_lane_desc *lanes,
		       uint32_t count)
{
	struct kcr_window args = {
		.size = sizeof(args),
		.window = ring->window,
		.nr_lanes = count,
		.lanes = (uintptr_t)lanes,
	};
	int err;

	if (count > KCR_MAX_LANES)
		return kcr_fail(NULL, -EINVAL,
				"%u lanes on one node, the module takes %d",
				count, KCR_MAX_LANES);
	if (!ioctl(ring->fd, KCR_IOCTL_WINDOW, &args))
		return 0;
	err = -errno;
	return kcr_fail(NULL, err, "cannot make a window of %u lanes: %s%s", count,
			strerror(-err), err == -ENOMEM ?
			" (see ulimit -l and the memory cgroup)" : "");
}

static int module_attach(struct kcr_ring *ring, char *note)
{
	struct kcr_lane_desc *lanes;
	uint32_t count;
	int err;

	(void)note;
	lanes = ring_list_lanes(ring, &count, is_local);
	if (!lanes)
		return kcr_fail(NULL, -ENOMEM, "no memory for a list of lanes");
	ring->fd = module_device(ring->link);
	err = count ? choose_window(ring) : 0;
	if (!err && count)
		err = make_window(ring, lanes, count);
	if (err)
		ring->window = 0;
	free(lanes);
	return err ?: ring_mesh_attach(ring);
}

static int map_lane(struct kcr_ring *ring, struct ring_lane *lane, int index)
{
	bool is_source = lane->desc.source == ring->rank;
	size_t bytes = (lane->bytes + PAGE - 1) & ~(PAGE - 1);

	lane->slots = ring_map(ring, ring->fd,
			       KCR_MMAP_OFFSET(ring->window, KCR_MAP_SLOTS, index),
			       bytes, is_source, "a lane's slots");
	if (!lane->slots)
		return -errno;
	lane->ack = ring_map(ring, ring->fd,
			     KCR_MMAP_OFFSET(ring->window, KCR_MAP_ACK, index),
			     PAGE, !is_source, "a lane's acknowledgements");
	return lane->ack ? 0 : -errno;
}

static int module_map(struct kcr_ring *ring)
{
	int index = 0, err = 0;

	for (size_t i = 0; i < ring->count && !err; i++) {
		struct ring_lane *lane = &ring->lanes[i];

		if (!is_local(ring, lane))
			continue;
		if (lane->desc.source == ring->rank ||
		    lane->desc.destination == ring->rank)
			err = map_lane(ring, lane, index);
		index++;
	}
	return err ?: ring_mesh_map(ring);
}

static void module_detach(struct kcr_ring *ring)
{
	struct kcr_window_detach args = {
		.size = sizeof(args),
		.window = ring->window,
	};

	ring_unmap_all(ring);
	if (ring->window)
		ioctl(ring->fd, KCR_IOCTL_WINDOW_DETACH, &args);
	ring_mesh_detach(ring);
	ring->window = 0;
	ring->fd = -1;
}

/* Commands of rings take the ioctl form: the world's ring of io_uring is under its lock. */
static int module_park(struct link *link, uint64_t seen, uint64_t timeout_ns)
{
	struct kcr_wait wait = {
		.size = sizeof(wait),
		.seen = seen,
		.timeout_ns = timeout_ns,
	};

	if (!ioctl(module_device(link), KCR_IOCTL_WAIT, &wait))
		return 0;
	switch (errno) {
	case ETIMEDOUT:
	case EINTR:
	case ECANCELED:
		return 0;
	case EDQUOT:
		module_nap();
		return 0;
	default:
		return kcr_fail(NULL, -errno, "the module refused to wait: %s",
				strerror(errno));
	}
}

static void module_kick(struct link *link, int rank)
{
	struct kcr_kick kick = {
		.size = sizeof(kick),
		.base = rank,
		.mask = 1,
	};

	ioctl(module_device(link), KCR_IOCTL_KICK, &kick);
}

const struct ring_carrier_ops ring_module_ops = {
	.attach = module_attach,
	.map = module_map,
	.detach = module_detach,
	.park = module_park,
	.kick = module_kick,
};
