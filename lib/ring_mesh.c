// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Rings' lanes to and from ranks of other nodes: remote windows of the module.
 *
 * A message is written into the image of its slot, and one command has it written into
 * the destination's memory. While a thread is in the module with that, others write theirs
 * behind it, and then one command has all of them sent. If the device has no room for
 * that, the messages are none yet: their sequences are the next ones' again, and their
 * senders wait like those whose lane is full. A place in the image is written again when
 * the device is done with it. The counter goes back by a command of its own.
 *
 * The ranks of a world have one number for a ring's remote windows: the highest that no
 * other of its rings has, counted alike by all, also by those that have no such lane.
 * Numbers of windows on a node are taken from the other end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include "limits.h"
#include "link_mesh.h"
#include "ring.h"

#define PAGE	4096ul

static bool is_remote(const struct kcr_ring *ring, const struct ring_lane *lane)
{
	return !link_shares_node(ring->link, lane->desc.source,
				 lane->desc.destination);
}

/* With an end here. */
static bool is_mine(const struct kcr_ring *ring, const struct ring_lane *lane)
{
	return is_remote(ring, lane) && (lane->desc.source == ring->rank ||
					 lane->desc.destination == ring->rank);
}

static int peer_of(const struct kcr_ring *ring, const struct ring_lane *lane)
{
	return lane->desc.source == ring->rank ? lane->desc.destination :
						 lane->desc.source;
}

/**
 * ring_mesh_check() - can a lane be carried between nodes? The same on every rank
 * @ring: the ring
 * @l: the lane
 */
int ring_mesh_check(const struct kcr_ring *ring, const struct kcr_lane *l)
{
	uint32_t most = kcr_remote_depth_max(l->capacity);

	if (l->depth <= most)
		return 0;
	if (!most)
		return kcr_fail(NULL, -EINVAL,
				"ring %u: lane %d -> %d: between nodes none takes messages of %u bytes",
				ring->number, l->source, l->destination, l->capacity);
	return kcr_fail(NULL, -EINVAL,
			"ring %u: lane %d -> %d: between nodes one of %u bytes has %u slots at most, not %u",
			ring->number, l->source, l->destination, l->capacity, most,
			l->depth);
}

/* ---- making ---- */

static int choose_window(struct kcr_ring *ring)
{
	uint32_t remote = 0, taken = ring->window ? 1u << ring->window : 0;
	unsigned int window = KCR_MAX_WINDOWS - 1;

	for (const struct kcr_ring *r = ring->world->rings; r; r = r->next) {
		remote |= 1u << r->remote_window;
		taken |= 1u << r->window;
	}
	while (remote >> window & 1)
		window--;
	if (window < RING_WINDOW || taken >> window & 1)
		return kcr_fail(NULL, -ENOSPC,
				"no window is left: a world has %d rings at most between nodes, fewer if they have lanes on a node, too",
				KCR_MAX_WINDOWS - RING_WINDOW);
	ring->remote_window = window;
	return 0;
}

/* Has any rank lanes between nodes? */
static bool has_any(const struct kcr_ring *ring)
{
	for (size_t i = 0; i < ring->count; i++)
		if (is_remote(ring, &ring->lanes[i]))
			return true;
	return false;
}

/* Something that comes with time; nobody is told of the end of that wait but the caller. */
struct coming {
	struct ring_wait wait;
	const struct ring_lane *lane;
};

static struct coming coming(struct kcr_ring *ring,
			    int64_t (*attempt)(struct ring_wait *wait),
			    void (*late)(const struct ring_wait *wait, double seconds,
					 char *text, size_t size))
{
	return (struct coming){
		.wait = { .ring = ring, .attempt = attempt, .late = late },
	};
}

static unsigned int conn_state(const struct kcr_ring *ring, int peer)
{
	const struct kcr_conn_status *status =
		ring->link->mesh->by_rank[peer]->conns[0].status;

	return __atomic_load_n(&status->state, __ATOMIC_ACQUIRE);
}

static int64_t is_connected(struct ring_wait *wait)
{
	const struct coming *c = (const struct coming *)wait;
	uint64_t cause = ring_cause(wait->ring);
	int peer = peer_of(wait->ring, c->lane);

	if (cause)
		return ring_ended(wait->ring, cause);
	switch (conn_state(wait->ring, peer)) {
	case KCR_CONN_UP:
		return 0;
	case KCR_CONN_LEFT:
	case KCR_CONN_FAILED:
		return kcr_fail(NULL, -ENOTCONN,
				"ring %u: there is no connection to rank %d any more",
				wait->ring->number, peer);
	default:
		return -EAGAIN;
	}
}

static void not_connected(const struct ring_wait *wait, double seconds, char *text,
			  size_t size)
{
	const struct coming *c = (const struct coming *)wait;

	snprintf(text, size, "ring %u: not connected to rank %d after %.1f s",
		 wait->ring->number, peer_of(wait->ring, c->lane), seconds);
}

static int64_t wait_for(struct coming *c)
{
	int64_t result = c->wait.attempt(&c->wait);

	return result == -EAGAIN ? ring_wait_timeout(&c->wait, -1) : result;
}

/* Those that are made on first use. */
static void use_connections(struct kcr_ring *ring)
{
	pthread_mutex_lock(&ring->world->lock);
	for (size_t i = 0; i < ring->count; i++)
		if (is_mine(ring, &ring->lanes[i]))
			mesh_use(ring->link->mesh,
				 peer_of(ring, &ring->lanes[i]), 0);
	pthread_mutex_unlock(&ring->world->lock);
}

static int connect_peers(struct kcr_ring *ring)
{
	struct coming c = coming(ring, is_connected, not_connected);
	int err = 0;

	use_connections(ring);
	if (ring->link->mesh->error)
		return kcr_fail(NULL, ring->link->mesh->error, "%s",
				ring->link->mesh->sentence);
	for (size_t i = 0; i < ring->count && !err; i++) {
		c.lane = &ring->lanes[i];
		if (is_mine(ring, c.lane))
			err = wait_for(&c);
	}
	return err;
}

/* A peer may not have let go of the last one of that number yet. */
static int64_t make_window(struct ring_wait *wait)
{
	struct kcr_ring *ring = wait->ring;
	struct kcr_lane_desc *lanes;
	struct kcr_window args = {
		.size = sizeof(args),
		.flags = KCR_WINDOW_REMOTE,
		.window = ring->remote_window,
	};
	int err = 0;

	lanes = ring_list_lanes(ring, &args.nr_lanes, is_mine);
	if (!lanes)
		return kcr_fail(NULL, -ENOMEM, "no memory for a list of lanes");
	args.lanes = (uintptr_t)lanes;
	if (ioctl(ring->fd, KCR_IOCTL_WINDOW, &args))
		err = -errno;
	free(lanes);
	ring->has_remote = !err;
	if (!err)
		return 0;
	if (err == -EBUSY)
		return -EAGAIN;
	return kcr_fail(NULL, err, "cannot make a window of %u lanes between nodes: %s%s",
			args.nr_lanes, strerror(-err), err == -ENOMEM ?
			" (see ulimit -l and the memory cgroup)" : "");
}

static void window_is_busy(const struct ring_wait *wait, double seconds, char *text,
			   size_t size)
{
	snprintf(text, size,
		 "ring %u: peers still have lanes of an earlier ring after %.1f s",
		 wait->ring->number, seconds);
}

/**
 * ring_mesh_attach() - make this rank's ends of lanes between nodes
 * @ring: the ring, with its descriptor
 */
int ring_mesh_attach(struct kcr_ring *ring)
{
	struct coming c = coming(ring, make_window, window_is_busy);
	size_t mine = 0;
	int err;

	if (!has_any(ring))
		return 0;
	err = choose_window(ring);
	for (size_t i = 0; i < ring->count; i++)
		mine += is_mine(ring, &ring->lanes[i]);
	if (err || !mine)
		return err;
	err = connect_peers(ring);
	if (err)
		return err;
	c.wait.is_slow = true;
	return wait_for(&c);
}

static void *map(struct kcr_ring *ring, int part, int index, size_t bytes,
		 bool is_writable, const char *whose)
{
	return ring_map(ring, ring->fd,
			KCR_MMAP_OFFSET(ring->remote_window, part, index),
			(bytes + PAGE - 1) & ~(PAGE - 1), is_writable, whose);
}

static int map_lane(struct kcr_ring *ring, struct ring_lane *lane, int index)
{
	bool is_source = lane->desc.source == ring->rank;

	lane->slots = map(ring, KCR_MAP_SLOTS, index, lane->bytes, is_source,
			  "a lane's slots");
	if (!lane->slots)
		return -errno;
	lane->ack = map(ring, KCR_MAP_ACK, index, PAGE, !is_source,
			"a lane's acknowledgements");
	return lane->ack ? 0 : -errno;
}

static int map_lanes(struct kcr_ring *ring, const struct kcr_lane_status *status)
{
	int index = 0, err = 0;

	for (size_t i = 0; i < ring->count && !err; i++) {
		struct ring_lane *lane = &ring->lanes[i];

		if (!is_mine(ring, lane))
			continue;
		lane->status = &status[index];
		err = map_lane(ring, lane, index++);
	}
	return err;
}

static unsigned int lane_state(const struct kcr_lane_status *status)
{
	return __atomic_load_n(&status->state, __ATOMIC_ACQUIRE);
}

static int64_t is_ready(struct ring_wait *wait)
{
	const struct ring_lane *lane = ((const struct coming *)wait)->lane;
	uint64_t cause = ring_cause(wait->ring);

	if (cause)
		return ring_ended(wait->ring, cause);
	switch (lane_state(lane->status)) {
	case KCR_LANE_READY:
		return 0;
	case KCR_LANE_WAITING:
		return -EAGAIN;
	case KCR_LANE_UNEQUAL:
		return kcr_fail(NULL, -EPROTO,
				"ring %u: lane %d -> %d has depth %u and capacity %u at rank %d",
				wait->ring->number, lane->desc.source,
				lane->desc.destination, lane->status->peer_depth,
				lane->status->peer_capacity,
				peer_of(wait->ring, lane));
	default:
		return kcr_fail(NULL, -ENOTCONN,
				"ring %u: lane %d -> %d has ended before it began",
				wait->ring->number, lane->desc.source,
				lane->desc.destination);
	}
}

static void not_ready(const struct ring_wait *wait, double seconds, char *text,
		      size_t size)
{
	const struct ring_lane *lane = ((const struct coming *)wait)->lane;

	snprintf(text, size, "ring %u: no word of lane %d -> %d from rank %d after %.1f s",
		 wait->ring->number, lane->desc.source, lane->desc.destination,
		 peer_of(wait->ring, lane), seconds);
}

/**
 * ring_mesh_map() - map them, and wait until the peers' ends are known
 * @ring: the ring; all ranks have attached
 */
int ring_mesh_map(struct kcr_ring *ring)
{
	struct coming c = coming(ring, is_ready, not_ready);
	const struct kcr_lane_status *status;
	size_t mine = 0;
	int err;

	if (!ring->has_remote)
		return 0;
	for (size_t i = 0; i < ring->count; i++)
		mine += is_mine(ring, &ring->lanes[i]);
	status = map(ring, KCR_MAP_LANES, 0, mine * sizeof(*status), false,
		     "the state of lanes");
	if (!status)
		return -errno;
	err = map_lanes(ring, status);
	for (size_t i = 0; i < ring->count && !err; i++) {
		c.lane = &ring->lanes[i];
		if (c.lane->status)
			err = wait_for(&c);
	}
	return err;
}

/**
 * ring_mesh_detach() - give them up; nothing is mapped any more
 * @ring: the ring
 */
void ring_mesh_detach(struct kcr_ring *ring)
{
	struct kcr_window_detach args = {
		.size = sizeof(args),
		.window = ring->remote_window,
	};

	if (ring->has_remote)
		ioctl(ring->fd, KCR_IOCTL_WINDOW_DETACH, &args);
	ring->has_remote = false;
}

/* ---- using ---- */

/**
 * ring_mesh_has_place() - has the device read what was in the next slot's place?
 * @tx: a lane between nodes; with its lock
 */
bool ring_mesh_has_place(const struct ring_tx *tx)
{
	uint64_t done = __atomic_load_n(&tx->remote->done, __ATOMIC_ACQUIRE);

	return tx->slots.next - done <= tx->slots.depth;
}

/*
 * The module has no connection, or no lane. Whether the peer has died or left it may have
 * come to know since the sender asked, and a connection that fails takes its lanes with
 * it: then it is told by the world's cause, in a moment.
 */
static int no_way(const struct kcr_ring *ring, const struct ring_tx *tx)
{
	bool has_ended = lane_state(tx->remote) == KCR_LANE_ENDED &&
			 conn_state(ring, tx->peer) != KCR_CONN_FAILED;
	int err = ring_check_peer(ring, tx);

	if (err || !has_ended)
		return err ?: -EAGAIN;
	return kcr_fail(NULL, -ESHUTDOWN,
			"ring %u: lane %d -> %d: rank %d has given up the ring",
			ring->number, ring->rank, tx->peer, tx->peer);
}

/**
 * struct ring_put - a message that was written, for the thread that waits with it
 * @next: the one behind it
 * @is_over: the module was asked
 * @err: what it answered: a negative errno, and the message is none; or 0
 */
struct ring_put {
	struct ring_put *next;
	bool is_over;
	int err;
};

static int put(const struct kcr_ring *ring, const struct ring_tx *tx, uint64_t first,
	       uint32_t count)
{
	struct kcr_put args = {
		.size = sizeof(args),
		.window = ring->remote_window,
		.peer = tx->peer,
		.sequence = first,
		.count = count,
	};

	return ioctl(ring->fd, KCR_IOCTL_PUT, &args) ? -errno : 0;
}

static void append(struct ring_tx *tx, struct ring_put *p)
{
	*tx->written_end = p;
	tx->written_end = &p->next;
	tx->nr_written++;
}

static void end_first(struct ring_tx *tx, int err)
{
	struct ring_put *p = tx->written;

	tx->written = p->next;
	if (!--tx->nr_written)
		tx->written_end = &tx->written;
	p->err = err;
	p->is_over = true;
}

/*
 * Give the module what is written by now: all that fits into a command. It takes all of
 * that or nothing; then what was written meanwhile is taken back, too, since it follows on it.
 */
static void put_written(const struct kcr_ring *ring, struct ring_tx *tx)
{
	uint64_t first = tx->slots.next - tx->nr_written;
	uint32_t count = tx->nr_written < KCR_PUT_MAX ? tx->nr_written : KCR_PUT_MAX;
	int err;

	tx->is_putting = true;
	pthread_mutex_unlock(&tx->lock);
	err = put(ring, tx, first, count);
	pthread_mutex_lock(&tx->lock);
	tx->is_putting = false;
	if (err) {
		count = tx->nr_written;
		__atomic_store_n(&tx->slots.next, first, __ATOMIC_RELAXED);
	}
	while (count--)
		end_first(tx, err);
	pthread_cond_broadcast(&tx->is_put);
}

/* As what it answers is known to the caller of kcr_ring_send(). */
static int not_put(const struct kcr_ring *ring, const struct ring_tx *tx, int err)
{
	if (err == -ENOBUFS)
		return -EAGAIN;
	if (err == -ENOTCONN)
		return no_way(ring, tx);
	return kcr_fail(NULL, err, "ring %u: lane %d -> %d: the module does not send: %s",
			ring->number, ring->rank, tx->peer, strerror(-err));
}

/**
 * ring_mesh_send() - write the next message and have it sent
 * @ring: the ring
 * @tx: a lane between nodes; with its lock, which others may have meanwhile
 * @data: the message
 * @bytes: of it
 *
 * Returns its sequence, -EAGAIN if it could not be sent yet, and is none, or an error.
 */
int64_t ring_mesh_send(struct kcr_ring *ring, struct ring_tx *tx, const void *data,
		       uint32_t bytes)
{
	int64_t sequence = tx->slots.next;
	struct ring_put mine = { 0 };

	ring_write(&tx->slots, sequence, data, bytes);
	ring_add(&tx->slots.next, 1);
	append(tx, &mine);
	while (!mine.is_over) {
		if (tx->is_putting)
			pthread_cond_wait(&tx->is_put, &tx->lock);
		else
			put_written(ring, tx);
	}
	return mine.err ? not_put(ring, tx, mine.err) : sequence;
}

/**
 * ring_mesh_settle() - wait until the module has answered to what is written
 * @tx: a lane; with its lock, which others may have meanwhile
 *
 * What takes up the room now may be taken back, and nobody tells of that: so whoever
 * finds none waits for the answer before it believes that.
 *
 * Returns whether there was something, so that it is worth another look.
 */
bool ring_mesh_settle(struct ring_tx *tx)
{
	if (!tx->nr_written)
		return false;
	pthread_cond_wait(&tx->is_put, &tx->lock);
	return true;
}

/**
 * ring_mesh_ack() - send the acknowledgement that was written
 * @ring: the ring
 * @rx: a lane between nodes
 *
 * To a source that is gone there is no way, and no need.
 */
int ring_mesh_ack(struct kcr_ring *ring, struct ring_rx *rx)
{
	struct kcr_put_ack ack = {
		.size = sizeof(ack),
		.window = ring->remote_window,
		.peer = rx->peer,
	};

	if (!ioctl(ring->fd, KCR_IOCTL_ACK, &ack) || errno == ENOTCONN)
		return 0;
	return kcr_fail(NULL, -errno,
			"ring %u: lane %d -> %d: the module does not send an acknowledgement: %s",
			ring->number, rx->peer, ring->rank, strerror(errno));
}

static void arm(const struct kcr_ring *ring, int peer, uint32_t flags, uint64_t seen)
{
	struct kcr_arm args = {
		.size = sizeof(args),
		.flags = flags,
		.window = ring->remote_window,
		.peer = peer,
		.seen = seen,
	};

	/* What ends a connection moves the event counter by itself. */
	ioctl(ring->fd, KCR_IOCTL_ARM, &args);
}

/**
 * ring_mesh_arm() - this thread is about to sleep: let the peers wake it
 * @ring: the ring
 * @tx: the lane that must have room, or NULL for those that lead here
 *
 * Before the last look. A peer that has written something newer rings at once.
 */
void ring_mesh_arm(struct kcr_ring *ring, const struct ring_tx *tx)
{
	if (tx && tx->remote)
		arm(ring, tx->peer, KCR_ARM_SOURCE, ring_get(&tx->acked));
	for (size_t i = 0; !tx && ring->has_remote && i < ring->rx_count; i++)
		if (ring->rx[i].remote)
			arm(ring, ring->rx[i].peer, 0,
			    ring_get(&ring->rx[i].slots.next) - 1);
}
