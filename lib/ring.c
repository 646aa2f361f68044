// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Message rings: how they are made and go, and what can be asked of them.
 *
 * All ranks make, and give up, the same rings in the same order: so they number them
 * alike.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "coll.h"
#include "limits.h"
#include "rendezvous.h"
#include "ring.h"

/* But for locks, which in a forked child nobody may give back any more. */
static void free_memory(struct kcr_ring *ring)
{
	ring_watch_free(ring);
	free(ring->tx);
	free(ring->rx);
	free(ring->copy);
	free(ring->mapped);
	free(ring->lanes);
	free(ring->votes);
	free(ring);
}

static void free_ring(struct kcr_ring *ring)
{
	if (!ring)
		return;
	for (size_t i = 0; i < ring->tx_count; i++) {
		pthread_cond_destroy(&ring->tx[i].is_put);
		pthread_mutex_destroy(&ring->tx[i].lock);
	}
	for (size_t i = 0; i < ring->rx_count; i++)
		pthread_mutex_destroy(&ring->rx[i].ack_lock);
	pthread_mutex_destroy(&ring->poll_lock);
	pthread_mutex_destroy(&ring->watch_lock);
	free_memory(ring);
}

/* A ring without lanes; NULL without memory. */
static struct kcr_ring *new_ring(struct kcr_world *w)
{
	struct kcr_ring *ring = calloc(1, sizeof(*ring));
	pthread_mutexattr_t attr;

	if (!ring)
		return NULL;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&ring->poll_lock, &attr);
	pthread_mutexattr_destroy(&attr);
	pthread_mutex_init(&ring->watch_lock, NULL);
	ring->world = w;
	ring->link = w->link;
	ring->fork_generation = process_fork_generation();
	ring->rank = w->config.rank;
	ring->fd = -1;
	ring->patience_ns = RING_PATIENCE_NS;
	ring->remote_patience_ns = RING_REMOTE_PATIENCE_NS;
	ring->votes = ring_votes(w->config.size);
	if (ring->votes)
		return ring;
	free_ring(ring);
	return NULL;
}

/* The caller's list, sorted, and what is wrong with it. */
static int take_list(struct kcr_ring *ring, const struct kcr_lane *lanes,
		     size_t count, unsigned int flags)
{
	size_t size = ring->world->config.size;

	ring->flags = flags;
	if (!lanes && count)
		return kcr_fail(NULL, -EINVAL, "lanes is NULL and count is %zu",
				count);
	if (count > size * (size - 1))
		return kcr_fail(NULL, -EINVAL,
				"count is %zu, more than the pairs of %zu ranks",
				count, size);
	ring->lanes = calloc(count ? count : 1, sizeof(*ring->lanes));
	if (!ring->lanes)
		return kcr_fail(NULL, -ENOMEM, "no memory for a list of lanes");
	for (size_t i = 0; i < count; i++)
		ring->lanes[i].desc = lanes[i];
	ring->count = count;
	return ring_check_list(ring);
}

/* Memory for the ends of the lanes from and to this rank. */
static int alloc_ends(struct kcr_ring *ring)
{
	size_t tx = 0, rx = 0, copy = 0;

	for (size_t i = 0; i < ring->count; i++) {
		const struct kcr_lane *l = &ring->lanes[i].desc;

		tx += l->source == ring->rank;
		if (l->destination != ring->rank)
			continue;
		rx++;
		if (ring_is_raw(ring) && l->capacity > copy)
			copy = l->capacity;
	}
	/* One for the state of those between nodes. */
	ring->mapped = calloc(2 * (tx + rx) + 1, sizeof(*ring->mapped));
	ring->tx = aligned_alloc(KCR_CACHE_LINE, (tx + 1) * sizeof(*ring->tx));
	ring->rx = aligned_alloc(KCR_CACHE_LINE, (rx + 1) * sizeof(*ring->rx));
	copy = (copy + KCR_CACHE_LINE - 1) & ~(size_t)(KCR_CACHE_LINE - 1);
	if (copy)
		ring->copy = aligned_alloc(KCR_CACHE_LINE, copy);
	if (!ring->mapped || !ring->tx || !ring->rx || (copy && !ring->copy))
		return kcr_fail(NULL, -ENOMEM, "no memory for %zu lanes", tx + rx);
	return 0;
}

static struct slots slots_of(const struct ring_lane *lane)
{
	return (struct slots){
		.base = lane->slots,
		.stride = KCR_SLOT_STRIDE(lane->desc.capacity),
		.depth = lane->desc.depth,
		.capacity = lane->desc.capacity,
		.next = 1,
	};
}

static void open_tx(struct kcr_ring *ring, const struct ring_lane *lane)
{
	struct ring_tx *tx = &ring->tx[ring->tx_count++];

	*tx = (struct ring_tx){
		.slots = slots_of(lane),
		.peer = lane->desc.destination,
		.ack = lane->ack,
		.remote = lane->status,
		.written_end = &tx->written,
	};
	pthread_mutex_init(&tx->lock, NULL);
	pthread_cond_init(&tx->is_put, NULL);
	ring->to[tx->peer] = tx;
}

static int open_rx(struct kcr_ring *ring, const struct ring_lane *lane)
{
	struct ring_rx *rx = &ring->rx[ring->rx_count++];

	*rx = (struct ring_rx){
		.slots = slots_of(lane),
		.peer = lane->desc.source,
		.ack = lane->ack,
		.remote = lane->status,
	};
	pthread_mutex_init(&rx->ack_lock, NULL);
	ring_count(rx->ack, 0);
	ring->from[rx->peer] = rx;
	return rx->remote ? ring_mesh_ack(ring, rx) : 0;
}

/* All is mapped. Nobody sends before all ranks have come here. */
static int open_lanes(struct kcr_ring *ring)
{
	int err = 0;

	for (size_t i = 0; i < ring->count && !err; i++) {
		if (ring->lanes[i].desc.source == ring->rank)
			open_tx(ring, &ring->lanes[i]);
		if (ring->lanes[i].desc.destination == ring->rank)
			err = open_rx(ring, &ring->lanes[i]);
	}
	return err;
}

/* Can every lane be carried? The same on every rank. */
static int check_ways(const struct kcr_ring *ring)
{
	for (size_t i = 0; i < ring->count; i++) {
		const struct kcr_lane *l = &ring->lanes[i].desc;

		int err;

		if (link_shares_node(ring->link, l->source, l->destination))
			continue;
		err = ring_mesh_check(ring, l);
		if (err)
			return err;
	}
	return 0;
}

/* Make the lanes' memory and map it: all ranks take every step, or none does. */
static int connect_lanes(struct kcr_ring *ring)
{
	const struct ring_carrier_ops *ops = ring->link->carrier->ops->rings;
	char note[NOTE_BYTES] = "";
	int err;

	err = check_ways(ring);
	if (err)
		return err;
	err = ring_vote(ring, alloc_ends(ring) ?: ops->attach(ring, note), note);
	if (!err)
		err = ring_vote(ring, ops->map(ring) ?: open_lanes(ring), "");
	if (!err)
		return 0;
	ops->detach(ring);
	/* What it was called can be used again when it is gone everywhere. */
	kcr_barrier(ring->world);
	return err;
}

static int make(struct kcr_world *w, const struct kcr_lane *lanes, size_t count,
		unsigned int flags, struct kcr_ring **out)
{
	struct kcr_ring *ring = new_ring(w);
	int no_memory = 0, err;

	/* Who has no memory for a vote can still raise a flag. */
	err = kcr_any(w, !ring, &no_memory);
	if (err)
		kcr_fail(NULL, err, "%s", kcr_error(w));
	else if (no_memory)
		err = kcr_fail(NULL, -ENOMEM, "%s has no memory for a ring",
			       ring ? "another rank" : "this rank");
	if (!err) {
		ring->number = ++w->ring_number;
		err = ring_agree(ring, take_list(ring, lanes, count, flags));
	}
	if (!err && ring->link)
		err = connect_lanes(ring);
	if (err) {
		free_ring(ring);
		return err;
	}
	free(ring->votes);
	ring->votes = NULL;
	*out = ring;
	return 0;
}

static int check_world(struct kcr_world *w)
{
	if (!w)
		return kcr_fail(NULL, -EINVAL, "world is NULL");
	if (w->emu || (w->link && !w->link->carrier->ops->rings))
		return kcr_fail(NULL, -EOPNOTSUPP,
				"an emulated world has no message rings");
	return 0;
}

static void remember(struct kcr_world *w, struct kcr_ring *ring)
{
	pthread_mutex_lock(&w->lock);
	ring->next = w->rings;
	w->rings = ring;
	pthread_mutex_unlock(&w->lock);
}

static void forget(struct kcr_world *w, struct kcr_ring *ring)
{
	struct kcr_ring **at = &w->rings;

	pthread_mutex_lock(&w->lock);
	while (*at != ring)
		at = &(*at)->next;
	*at = ring->next;
	pthread_mutex_unlock(&w->lock);
}

/* The sentence is the world's too, unless that has one that stays. */
static int tell_world(struct kcr_world *w, int err)
{
	if (!w || w->fork_generation != process_fork_generation())
		return err;
	pthread_mutex_lock(&w->lock);
	if (!w->failed)
		kcr_fail(w, err, "%s", kcr_error(NULL));
	pthread_mutex_unlock(&w->lock);
	return err;
}

KCR_PUBLIC int kcr_ring_create(struct kcr_world *w, const struct kcr_lane *lanes,
			       size_t count, unsigned int flags,
			       struct kcr_ring **ring)
{
	int err;

	if (!ring)
		return tell_world(w, kcr_fail(NULL, -EINVAL, "ring is NULL"));
	*ring = NULL;
	err = check_world(w);
	if (!err)
		err = make(w, lanes, count, flags, ring);
	if (err)
		return tell_world(w, err);
	remember(w, *ring);
	return 0;
}

static void detach(struct kcr_ring *ring)
{
	ring_watch_stop(ring);
	if (ring->link)
		ring->link->carrier->ops->rings->detach(ring);
	ring->world = NULL;
	ring->link = NULL;
}

/* The world goes: nobody uses its rings. */
void ring_orphan_all(struct kcr_world *w)
{
	while (w->rings) {
		struct kcr_ring *ring = w->rings;

		w->rings = ring->next;
		detach(ring);
	}
}

/* Do all ranks give up the same ring? Then what it was called is free as well. */
static int agree_on_end(struct kcr_world *w, uint64_t number)
{
	uint64_t numbers[KCR_RANKS_MAX];
	int err = coll_exchange(w, &number, numbers, sizeof(number));

	if (err)
		return kcr_fail(NULL, err, "%s", kcr_error(w));
	for (int r = 1; r < w->config.size; r++)
		if (numbers[r] != numbers[0])
			return kcr_fail(NULL, -EPROTO,
					"ranks differ: rank 0 gives up ring %llu, rank %d ring %llu",
					(unsigned long long)numbers[0], r,
					(unsigned long long)numbers[r]);
	return 0;
}

KCR_PUBLIC int kcr_ring_destroy(struct kcr_ring *ring)
{
	struct kcr_world *w;
	int err = 0;

	if (!ring)
		return 0;
	if (ring->fork_generation != process_fork_generation()) {
		/* Its mappings and its thread were not inherited; its memory was. */
		if (ring->owns_fd)
			close(ring->fd);
		free_memory(ring);
		return kcr_fail(NULL, -EPERM,
				"this ring belongs to the process that made it, not to a forked child");
	}
	w = ring->world;
	if (w) {
		forget(w, ring);
		detach(ring);
		err = agree_on_end(w, ring->number);
	}
	free_ring(ring);
	return err ? tell_world(w, err) : 0;
}

static const struct kcr_lane *find(const struct kcr_ring *ring, int source,
				   int destination)
{
	for (size_t i = 0; i < ring->count; i++) {
		const struct kcr_lane *l = &ring->lanes[i].desc;

		if (l->source == source && l->destination == destination)
			return l;
	}
	kcr_fail(NULL, -ENXIO, "ring %u has no lane %d -> %d", ring->number, source,
		 destination);
	return NULL;
}

static int no_ring(void)
{
	return kcr_fail(NULL, -EINVAL, "ring is NULL");
}

KCR_PUBLIC int kcr_ring_depth(const struct kcr_ring *ring, int source,
			      int destination)
{
	const struct kcr_lane *lane;

	if (!ring)
		return no_ring();
	lane = find(ring, source, destination);
	return lane ? (int)lane->depth : -ENXIO;
}

KCR_PUBLIC int kcr_ring_capacity(const struct kcr_ring *ring, int source,
				 int destination)
{
	const struct kcr_lane *lane;

	if (!ring)
		return no_ring();
	lane = find(ring, source, destination);
	return lane ? (int)lane->capacity : -ENXIO;
}

KCR_PUBLIC int kcr_ring_is_safe(const struct kcr_ring *ring)
{
	return ring ? !ring_is_raw(ring) : no_ring();
}

static void raise_to(uint64_t *most, uint64_t n)
{
	*most = n > *most ? n : *most;
}

KCR_PUBLIC int kcr_ring_stats(const struct kcr_ring *ring,
			      struct kcr_ring_stats *stats)
{
	if (!ring)
		return no_ring();
	if (!stats)
		return kcr_fail(NULL, -EINVAL, "stats is NULL");
	*stats = (struct kcr_ring_stats){ 0 };
	for (size_t i = 0; i < ring->tx_count; i++) {
		const struct ring_tx *tx = &ring->tx[i];

		stats->sent += ring_get(&tx->sent);
		stats->bytes_sent += ring_get(&tx->bytes);
		stats->torn += ring_get(&tx->torn);
		stats->waits += ring_get(&tx->waits);
		stats->wait_ns += ring_get(&tx->wait_ns);
		raise_to(&stats->max_lag, ring_get(&tx->max_lag));
	}
	for (size_t i = 0; i < ring->rx_count; i++) {
		const struct ring_rx *rx = &ring->rx[i];

		stats->received += ring_get(&rx->received);
		stats->bytes_received += ring_get(&rx->bytes);
		stats->lost += ring_get(&rx->lost);
		stats->torn += ring_get(&rx->torn);
		stats->corrupt += ring_get(&rx->corrupt);
		raise_to(&stats->max_lag, ring_get(&rx->max_lag));
	}
	return 0;
}
