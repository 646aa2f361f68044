// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Rings in shared memory.
 *
 * Each rank makes one memory for what it writes in a ring, found by its peers as a world's
 * is (shm.h):
 *
 *	identity	a cache line
 *	then		its acknowledgements of the lanes that lead to it, by source, a
 *			cache line each
 *	then		from the next page on, the slots of the lanes that lead from it, by
 *			destination, each from a page on
 *
 * A peer maps the slots of its own lane, or the acknowledgements, and only to read.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "ring.h"
#include "rendezvous.h"
#include "shm.h"

#define PAGE	4096ul

static size_t round_to_page(size_t bytes)
{
	return (bytes + PAGE - 1) & ~(PAGE - 1);
}

/* Where the slots of lane @end begin, in the memory of @rank; all of it, if it is NULL. */
static size_t slots_at(const struct kcr_ring *ring, int rank,
		       const struct ring_lane *end)
{
	size_t acks = 1, at = 0;

	for (size_t i = 0; i < ring->count; i++)
		acks += ring->lanes[i].desc.destination == rank;
	for (const struct ring_lane *l = ring->lanes;
	     l < ring->lanes + ring->count && l != end; l++)
		if (l->desc.source == rank)
			at += round_to_page(l->bytes);
	return round_to_page(acks * KCR_CACHE_LINE) + at;
}

static size_t ack_at(const struct kcr_ring *ring, const struct ring_lane *lane)
{
	size_t before = 1;

	for (const struct ring_lane *l = ring->lanes; l != lane; l++)
		before += l->desc.destination == lane->desc.destination;
	return before * KCR_CACHE_LINE;
}

static int map_own(struct kcr_ring *ring, size_t bytes, const unsigned char *identity)
{
	unsigned char *mine = ring_map(ring, ring->fd, 0, bytes, true,
				       "this rank's part of a ring");

	if (!mine)
		return -errno;
	memcpy(mine, identity, SHM_IDENTITY);
	for (size_t i = 0; i < ring->count; i++) {
		struct ring_lane *lane = &ring->lanes[i];

		if (lane->desc.source == ring->rank)
			lane->slots = mine + slots_at(ring, ring->rank, lane);
		if (lane->desc.destination == ring->rank)
			lane->ack = (struct kcr_ack *)(mine + ack_at(ring, lane));
	}
	return 0;
}

static int shm_attach(struct kcr_ring *ring, char *note)
{
	size_t bytes = slots_at(ring, ring->rank, NULL);
	unsigned char identity[SHM_IDENTITY];
	int err, n;

	err = process_random(identity, sizeof(identity));
	if (err)
		return kcr_fail(NULL, err, "no random bytes: %s", strerror(-err));
	ring->fd = shm_make(bytes);
	if (ring->fd < 0)
		return ring->fd;
	ring->owns_fd = true;
	n = snprintf(note, NOTE_BYTES, "shm %d ", ring->fd);
	for (int i = 0; i < SHM_IDENTITY; i++)
		n += snprintf(note + n, NOTE_BYTES - n, "%02x", identity[i]);
	return map_own(ring, bytes, identity);
}

/* The memory of a rank, which its note names. */
static int open_memory(struct kcr_ring *ring, int rank)
{
	unsigned char identity[SHM_IDENTITY], found[SHM_IDENTITY];
	const char *note = ring_note(ring, rank);
	char hex[2 * SHM_IDENTITY + 1];
	int number, fd;

	if (sscanf(note, "shm %d %32s", &number, hex) != 2 ||
	    strlen(hex) != 2 * SHM_IDENTITY)
		return kcr_fail(NULL, -EPROTO,
				"rank %d sent \"%.64s\" where its part of a ring should be",
				rank, note);
	card_unhex(hex, identity);
	fd = shm_open_peer(ring->world->rendezvous, rank, number,
			   slots_at(ring, rank, NULL));
	if (fd < 0)
		return fd;
	if (pread(fd, found, sizeof(found), 0) != sizeof(found) ||
	    memcmp(found, identity, sizeof(found))) {
		close(fd);
		return kcr_fail(NULL, -EPROTO,
				"the memory found for rank %d's part of a ring is something else",
				rank);
	}
	return fd;
}

/* The other rank's part of a lane of ours. */
static int map_lane(struct kcr_ring *ring, struct ring_lane *lane)
{
	bool is_source = lane->desc.source == ring->rank;
	int peer = is_source ? lane->desc.destination : lane->desc.source;
	int fd = open_memory(ring, peer);
	unsigned char *at;
	size_t ack;

	if (fd < 0)
		return fd;
	if (is_source) {
		ack = ack_at(ring, lane);
		at = ring_map(ring, fd, ack & ~(PAGE - 1), PAGE, false,
			      "a peer's acknowledgements");
		lane->ack = (struct kcr_ack *)(at + ack % PAGE);
	} else {
		at = ring_map(ring, fd, slots_at(ring, peer, lane),
			      round_to_page(lane->bytes), false, "a peer's slots");
		lane->slots = at;
	}
	close(fd);
	return at ? 0 : -errno;
}

static int shm_map(struct kcr_ring *ring)
{
	int err = 0;

	for (size_t i = 0; i < ring->count && !err; i++) {
		struct ring_lane *lane = &ring->lanes[i];

		if (lane->desc.source == ring->rank ||
		    lane->desc.destination == ring->rank)
			err = map_lane(ring, lane);
	}
	return err;
}

static void shm_detach(struct kcr_ring *ring)
{
	ring_unmap_all(ring);
	if (ring->owns_fd)
		close(ring->fd);
	ring->owns_fd = false;
	ring->fd = -1;
}

/* How to sleep and wake, the world's carrier knows. */
const struct ring_carrier_ops ring_shm_ops = {
	.attach = shm_attach,
	.map = shm_map,
	.detach = shm_detach,
	.park = shm_park,
	.kick = shm_kick_one,
};
