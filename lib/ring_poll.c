// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Receiving from rings: polling and acknowledging.
 *
 * Who polls has the poll lock and moves the lanes' next sequences. A sequence moves
 * before its message is given to the callback, which may acknowledge it.
 */
#include <errno.h>
#include "limits.h"
#include "ring.h"

/* One call of kcr_ring_poll(). */
struct polling {
	struct kcr_ring *ring;
	kcr_ring_fn fn;
	void *arg;
	int count;	/* delivered so far */
	int stop;	/* what the callback returned */
	struct ring_rx *broken;	/* a lane with an error, one that was not told if there is any */
};

/* A lane's first error is told each time. */
static int tell_error(const struct kcr_ring *ring, const struct ring_rx *rx)
{
	unsigned long long sequence = rx->bad;

	if (rx->err == -EOVERFLOW)
		return kcr_fail(NULL, rx->err,
				"ring %u: lane %d -> %d: rank %d has overwritten message %llu, which was not acknowledged",
				ring->number, rx->peer, ring->rank, rx->peer,
				sequence);
	return kcr_fail(NULL, rx->err,
			"ring %u: lane %d -> %d: message %llu from rank %d is damaged",
			ring->number, rx->peer, ring->rank, sequence, rx->peer);
}

static void break_lane(struct ring_rx *rx, int err, uint64_t sequence)
{
	rx->bad = sequence;
	__atomic_store_n(&rx->err, err, __ATOMIC_RELAXED);
}

static void skip_to(struct ring_rx *rx, uint64_t sequence)
{
	__atomic_store_n(&rx->given_up, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&rx->slots.next, sequence, __ATOMIC_RELAXED);
}

static void set_torn_until(struct ring_rx *rx, uint64_t ns)
{
	__atomic_store_n(&rx->torn_until, ns, __ATOMIC_RELAXED);
}

static void no_damage(struct ring_rx *rx)
{
	rx->damage.since_ns = 0;
	set_torn_until(rx, 0);
}

/* Is the message behind the one that is due a whole one? */
static bool has_next(const struct kcr_ring *ring, const struct ring_rx *rx)
{
	struct ring_view view;

	return rx->slots.depth > 1 &&
	       ring_look(&rx->slots, rx->slots.next + 1, ring->copy, &view) ==
	       LOOK_MESSAGE;
}

/*
 * The message that is due is not whole. What stays so is damage: a raw lane goes on
 * behind it, a safe one is at its end. Where not even the sequence is right, it may be an
 * earlier message's damage, and the one that is due not written yet: a raw lane
 * goes on when the one behind it, or a later one in its place, has come. Returns whether to
 * look again.
 */
static bool on_damage(const struct kcr_ring *ring, struct ring_rx *rx, uint64_t found)
{
	if (!ring_is_stuck(ring, rx->remote, &rx->damage, found)) {
		set_torn_until(rx, rx->damage.since_ns +
			       ring_patience(ring, rx->remote));
		return false;
	}
	if (ring_is_raw(ring) && found != rx->slots.next && !has_next(ring, rx)) {
		__atomic_store_n(&rx->given_up, found, __ATOMIC_RELAXED);
		return false;
	}
	no_damage(rx);
	ring_add(&rx->corrupt, 1);
	if (!ring_is_raw(ring)) {
		break_lane(rx, -EBADMSG, rx->slots.next);
		return false;
	}
	skip_to(rx, rx->slots.next + 1);
	return true;
}

/*
 * The source is ahead by more than its lane. That of a safe lane should have waited.
 * What a raw one has overwritten is lost: all but the last depth of messages, of which
 * the next look finds the oldest, or that it has gone as well.
 */
static bool on_lap(const struct kcr_ring *ring, struct ring_rx *rx,
		   uint64_t sequence)
{
	uint64_t oldest = sequence - rx->slots.depth + 1;

	no_damage(rx);
	if (!ring_is_raw(ring)) {
		break_lane(rx, -EOVERFLOW, rx->slots.next);
		return false;
	}
	ring_add(&rx->lost, oldest - rx->slots.next);
	skip_to(rx, oldest);
	return true;
}

/*
 * A message of a safe lane is in the place of one that this rank has, or had, and has not
 * acknowledged. Counts what is in the page: a source may see that before the one who
 * writes it has come any further.
 */
static bool on_message(const struct kcr_ring *ring, struct ring_rx *rx,
		       const struct ring_view *view)
{
	uint64_t acked = __atomic_load_n(&rx->ack->sequence, __ATOMIC_RELAXED);
	uint32_t depth = rx->slots.depth;

	if (ring_is_raw(ring) || view->sequence <= depth ||
	    view->sequence - depth <= acked)
		return true;
	break_lane(rx, -EOVERFLOW, view->sequence - depth);
	return false;
}

/*
 * A raw lane's slot says that it is being written. If the message behind the one that is due
 * has come, that one had, and is being overwritten: its source may have stopped or died
 * there, and must not hide the others. Asked in this order, since both may come
 * meanwhile. Returns whether to look again.
 */
static bool on_writing(const struct kcr_ring *ring, struct ring_rx *rx, uint64_t found)
{
	/* Between nodes messages land as a whole, and in any order. */
	if (found || !ring_is_raw(ring) || rx->remote || !has_next(ring, rx))
		return false;
	if (ring_has_news(&rx->slots, rx->slots.next, 0))
		return true;
	ring_add(&rx->lost, 1);
	skip_to(rx, rx->slots.next + 1);
	return true;
}

/* Look at the message that is due, again while it is just being written. */
static enum ring_look look(struct kcr_ring *ring, struct ring_rx *rx,
			   struct ring_view *view)
{
	enum ring_look found;

	for (int i = 0; i < RING_LOOKS; i++) {
		found = ring_look(&rx->slots, rx->slots.next, ring->copy, view);
		if (found != LOOK_WRITING && found != LOOK_DAMAGED)
			break;
		ring_add(&rx->torn, 1);
		link_relax();
	}
	return found;
}

static void deliver(struct polling *p, struct ring_rx *rx,
		    const struct ring_view *view)
{
	no_damage(rx);
	skip_to(rx, view->sequence + 1);
	ring_add(&rx->received, 1);
	ring_add(&rx->bytes, view->bytes);
	p->count++;
	p->stop = p->fn(p->arg, rx->peer, view->sequence, view->data, view->bytes);
}

/* At most so many messages, and as many looks that find none but go on. */
static void poll_lane(struct polling *p, struct ring_rx *rx)
{
	uint32_t messages = 0, others = 0, most = rx->slots.depth;
	uint64_t began = rx->slots.next;
	bool goes_on = !rx->err;
	struct ring_view view;

	while (goes_on && !p->stop && messages < most && others <= most &&
	       p->count < INT32_MAX) {
		switch (look(p->ring, rx, &view)) {
		case LOOK_MESSAGE:
			goes_on = on_message(p->ring, rx, &view);
			if (goes_on)
				deliver(p, rx, &view);
			messages++;
			break;
		case LOOK_PASSED:
			goes_on = on_lap(p->ring, rx, view.sequence);
			others++;
			break;
		case LOOK_DAMAGED:
			goes_on = on_damage(p->ring, rx, view.sequence);
			others++;
			break;
		default:
			no_damage(rx);
			goes_on = on_writing(p->ring, rx, view.sequence);
			others++;
		}
	}
	if (ring_is_raw(p->ring))
		ring_raise(&rx->max_lag, rx->slots.next - began);
}

/* Each call begins with another lane, so that none waits for the others. */
static void poll_lanes(struct polling *p)
{
	struct kcr_ring *ring = p->ring;

	for (size_t i = 0; i < ring->rx_count && !p->stop; i++) {
		struct ring_rx *rx = &ring->rx[(ring->first + i) % ring->rx_count];

		poll_lane(p, rx);
		if (rx->err && (!p->broken || !rx->is_told))
			p->broken = rx;
	}
	ring->first++;
}

/*
 * With the poll lock. The world's end is told when nothing is left from before it, and
 * before a lane's; that all have left, once each lane's end was told.
 */
static int poll_locked(struct polling *p)
{
	struct kcr_ring *ring = p->ring;
	uint64_t cause = ring_cause(ring);
	bool have_left = ring->rx_count && ring_all_left(ring), is_news = false;

	poll_lanes(p);
	/* One rank's messages say nothing of the others. */
	if (ring->rx_count)
		link_look(ring->link);
	if (p->stop)
		return p->stop;
	if (p->broken) {
		is_news = !p->broken->is_told;
		__atomic_store_n(&p->broken->is_told, true, __ATOMIC_RELAXED);
	}
	ring_watch_drained(ring);
	if (cause && !p->count)
		return ring_ended(ring, cause);
	if (p->broken && (is_news || p->count || !have_left))
		return tell_error(ring, p->broken);
	if (p->count)
		return p->count;
	return have_left ? ring_nobody_left(ring) : 0;
}

KCR_PUBLIC int kcr_ring_poll(struct kcr_ring *ring, kcr_ring_fn fn, void *arg)
{
	struct polling p = { .ring = ring, .fn = fn, .arg = arg };
	int result = ring_enter(ring);

	if (result)
		return result;
	if (!fn)
		return kcr_fail(NULL, -EINVAL, "fn is NULL");
	if (pthread_mutex_lock(&ring->poll_lock))
		return kcr_fail(NULL, -EDEADLK,
				"ring %u: polled by a function that polling calls",
				ring->number);
	result = poll_locked(&p);
	pthread_mutex_unlock(&ring->poll_lock);
	return result;
}

/* Write the counter, if it moves. Returns 1 if it has. */
static int move_count(struct kcr_ring *ring, struct ring_rx *rx, uint64_t sequence)
{
	uint64_t found;

	if (!ring_read_count(rx->ack, &found) || found != rx->acked)
		return kcr_fail(NULL, -EUCLEAN,
				"ring %u: lane %d -> %d: the acknowledgement is %llu, where rank %d had written %llu: somebody else writes its memory",
				ring->number, rx->peer, ring->rank,
				(unsigned long long)found, ring->rank,
				(unsigned long long)rx->acked);
	if (sequence <= rx->acked)
		return 0;
	ring_count(rx->ack, sequence);
	rx->acked = sequence;
	return 1;
}

/* Send the counter to another node, if it was not. One that could not be goes with the next. */
static int tell_source(struct kcr_ring *ring, struct ring_rx *rx)
{
	int err;

	if (rx->told == rx->acked)
		return 0;
	err = ring_mesh_ack(ring, rx);
	if (!err)
		rx->told = rx->acked;
	return err;
}

KCR_PUBLIC int kcr_ring_ack(struct kcr_ring *ring, int origin, uint64_t sequence)
{
	struct ring_rx *rx;
	int result = ring_enter(ring);

	if (result)
		return result;
	rx = origin >= 0 && origin < KCR_RANKS_MAX ? ring->from[origin] : NULL;
	if (!rx)
		return kcr_fail(NULL, -ENXIO, "ring %u: no lane leads from rank %d to rank %d",
				ring->number, origin, ring->rank);
	if (sequence >= ring_get(&rx->slots.next))
		return kcr_fail(NULL, -ERANGE,
				"ring %u: lane %d -> %d: message %llu was not delivered yet",
				ring->number, origin, ring->rank,
				(unsigned long long)sequence);
	pthread_mutex_lock(&rx->ack_lock);
	result = move_count(ring, rx, sequence);
	if (result >= 0 && rx->remote && !ring_is_raw(ring))
		result = tell_source(ring, rx);
	pthread_mutex_unlock(&rx->ack_lock);
	if (result > 0 && !ring_is_raw(ring))
		link_wake(ring->link, origin);
	return result < 0 ? result : 0;
}
