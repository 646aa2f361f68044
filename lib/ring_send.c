// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Sending on rings.
 *
 * A lane's lock is held while a message is written, and not while its sender waits for
 * room: so one that will not wait need not wait for one that does.
 */
#include <errno.h>
#include "limits.h"
#include "ring.h"

/* A wait for room, with what is to be sent. */
struct sending {
	struct ring_wait wait;
	const void *data;
	uint32_t bytes;
};

/* How long something may be torn, in ns. */
uint64_t ring_patience(const struct kcr_ring *ring, bool is_remote)
{
	return is_remote ? ring->remote_patience_ns : ring->patience_ns;
}

/**
 * ring_is_stuck() - has damage stayed for too long?
 * @ring: the ring
 * @is_remote: it is on a lane between nodes, whose transport may take its time
 * @damage: kept by the caller
 * @found: the sequence that is there
 *
 * Asked at each look that finds it. Each message and each count is written once, so another
 * sequence is another one's landing, whatever was not looked at in between. The clock is the
 * coarse one, as everywhere for damage: who polls makes no system call, and a message between
 * nodes is found half landed now and then.
 */
bool ring_is_stuck(const struct kcr_ring *ring, bool is_remote,
		   struct ring_damage *damage, uint64_t found)
{
	uint64_t now = process_coarse_ns();

	if (!damage->since_ns || damage->found != found)
		*damage = (struct ring_damage){ .since_ns = now, .found = found };
	return now - damage->since_ns > ring_patience(ring, is_remote);
}

static int bad_count(const struct kcr_ring *ring, const struct ring_tx *tx,
		     int err, uint64_t found)
{
	const char *what = err == -ESTALE ? "went backwards" :
			   err == -ERANGE ? "is past what was sent" :
			   "is not one and stays so";

	return kcr_fail(NULL, err,
			"ring %u: lane %d -> %d: rank %d's acknowledgement %s: %llu, where it had %llu of %llu messages",
			ring->number, ring->rank, tx->peer, tx->peer, what,
			(unsigned long long)found, (unsigned long long)tx->acked,
			(unsigned long long)ring_get(&tx->slots.next) - 1);
}

/*
 * Look how far the destination has come. A look that finds a counter being written is
 * none.
 */
static int read_acks(struct kcr_ring *ring, struct ring_tx *tx)
{
	uint64_t sent = tx->slots.next - 1, found;

	for (int i = 0; !ring_read_count(tx->ack, &found); i++) {
		ring_add(&tx->torn, 1);
		if (i < RING_LOOKS) {
			link_relax();
			continue;
		}
		return ring_is_stuck(ring, tx->remote, &tx->damage, found) ?
		       bad_count(ring, tx, -EUCLEAN, found) : 0;
	}
	tx->damage.since_ns = 0;
	if (found < tx->acked)
		return bad_count(ring, tx, -ESTALE, found);
	if (found > sent)
		return bad_count(ring, tx, -ERANGE, found);
	__atomic_store_n(&tx->acked, found, __ATOMIC_RELAXED);
	ring_raise(&tx->max_lag, sent - found);
	return 0;
}

static bool is_full(const struct ring_tx *tx)
{
	return tx->slots.next - tx->acked > tx->slots.depth;
}

/* May the next message be written? 0, -EAGAIN while it may not, or an error. */
static int make_room(struct kcr_ring *ring, struct ring_tx *tx)
{
	int err;

	if (tx->slots.next > INT64_MAX)
		return kcr_fail(NULL, -EOVERFLOW,
				"ring %u: lane %d -> %d: its sequences are used up",
				ring->number, ring->rank, tx->peer);
	if (!ring_is_raw(ring) && is_full(tx)) {
		err = read_acks(ring, tx);
		if (err)
			return err;
		if (is_full(tx))
			return -EAGAIN;
	}
	return tx->remote && !ring_mesh_has_place(tx) ? -EAGAIN : 0;
}

/* Can the destination still receive? */
int ring_check_peer(const struct kcr_ring *ring, const struct ring_tx *tx)
{
	uint64_t cause = ring_cause(ring);

	if (cause)
		return ring_ended(ring, cause);
	if (link_member(ring->link, tx->peer) == KCR_MEMBER_LEFT)
		return kcr_fail(NULL, -ESHUTDOWN,
				"ring %u: lane %d -> %d: rank %d left",
				ring->number, ring->rank, tx->peer, tx->peer);
	return 0;
}

/* The next message: its sequence, or as ring_mesh_send(). */
static int64_t send_next(struct kcr_ring *ring, struct ring_tx *tx, const void *data,
			 uint32_t bytes)
{
	int64_t sequence = tx->slots.next;

	if (tx->remote) {
		sequence = ring_mesh_send(ring, tx, data, bytes);
		if (sequence < 0)
			return sequence;
	} else {
		ring_write(&tx->slots, sequence, data, bytes);
		ring_add(&tx->slots.next, 1);
	}
	ring_add(&tx->sent, 1);
	ring_add(&tx->bytes, bytes);
	return sequence;
}

/* The message's sequence, -EAGAIN if there is no room, or an error. */
static int64_t try_to_send(struct ring_wait *wait)
{
	struct sending *s = (struct sending *)wait;
	struct kcr_ring *ring = wait->ring;
	struct ring_tx *tx = wait->tx;
	int64_t result;

	result = ring_check_peer(ring, tx);
	if (result)
		return result;
	pthread_mutex_lock(&tx->lock);
	result = make_room(ring, tx);
	while (result == -EAGAIN && ring_mesh_settle(tx))
		result = make_room(ring, tx);
	if (!result)
		result = send_next(ring, tx, s->data, s->bytes);
	if (result == -EAGAIN || ring_is_raw(ring))
		link_look(ring->link);
	pthread_mutex_unlock(&tx->lock);
	/* The module wakes those of other nodes. */
	if (result > 0 && !tx->remote)
		link_wake(ring->link, tx->peer);
	return result;
}

/*
 * Between nodes: is it the destination that the sender waits for? Else it is the device, which
 * has done with whatever is acknowledged.
 */
static bool waits_for_peer(const struct kcr_ring *ring, struct ring_tx *tx)
{
	bool does;

	pthread_mutex_lock(&tx->lock);
	does = !ring_is_raw(ring) && is_full(tx);
	pthread_mutex_unlock(&tx->lock);
	return does;
}

static void no_room(const struct ring_wait *wait, double seconds, char *text,
		    size_t size)
{
	const struct ring_tx *tx = wait->tx;

	if (tx->remote && !waits_for_peer(wait->ring, wait->tx)) {
		snprintf(text, size,
			 "ring %u: lane %d -> %d: the RDMA device has had no room for a message to rank %d for %.1f s",
			 wait->ring->number, wait->ring->rank, tx->peer, tx->peer,
			 seconds);
		return;
	}
	snprintf(text, size,
		 "ring %u: lane %d -> %d is full: rank %d has not acknowledged any of %u messages for %.1f s",
		 wait->ring->number, wait->ring->rank, tx->peer, tx->peer,
		 tx->slots.depth, seconds);
}

/* Several threads may wait for one lane. */
static void count_wait(struct ring_tx *tx, uint64_t ns)
{
	__atomic_fetch_add(&tx->waits, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&tx->wait_ns, ns, __ATOMIC_RELAXED);
}

static int check_message(const struct kcr_ring *ring, int destination,
			 const void *data, size_t bytes)
{
	const struct ring_tx *tx;

	tx = destination >= 0 && destination < KCR_RANKS_MAX ?
	     ring->to[destination] : NULL;
	if (!tx)
		return kcr_fail(NULL, -ENXIO, "ring %u: no lane leads from rank %d to rank %d",
				ring->number, ring->rank, destination);
	if (bytes > tx->slots.capacity)
		return kcr_fail(NULL, -EMSGSIZE,
				"ring %u: lane %d -> %d takes messages of %u bytes at most, not %zu",
				ring->number, ring->rank, destination,
				tx->slots.capacity, bytes);
	if (!data && bytes)
		return kcr_fail(NULL, -EINVAL, "data is NULL and bytes is %zu",
				bytes);
	return 0;
}

KCR_PUBLIC int64_t kcr_ring_send_timeout(struct kcr_ring *ring, int destination,
					 const void *data, size_t bytes,
					 int64_t timeout_ns)
{
	struct sending s = {
		.wait = {
			.ring = ring,
			.attempt = try_to_send,
			.late = no_room,
		},
		.data = data,
		.bytes = bytes,
	};
	int64_t result;

	result = ring_enter(ring) ?: check_message(ring, destination, data, bytes);
	if (result)
		return result;
	s.wait.tx = ring->to[destination];
	result = try_to_send(&s.wait);
	if (result != -EAGAIN)
		return result;
	/* Who does not wait asks no clock. */
	if (timeout_ns)
		s.wait.began_ns = process_now_ns();
	result = ring_wait_timeout(&s.wait, timeout_ns);
	if (timeout_ns)
		count_wait(s.wait.tx, process_now_ns() - s.wait.began_ns);
	return result;
}

KCR_PUBLIC int64_t kcr_ring_send(struct kcr_ring *ring, int destination,
				 const void *data, size_t bytes)
{
	return kcr_ring_send_timeout(ring, destination, data, bytes, -1);
}
