// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Waiting on rings: try a while, yield the CPU a while, then sleep in the carrier.
 *
 * As request_wait.c does it, but without the world's lock, so that any number of threads
 * may: how they sleep and are woken is told at the top of link_sleep.c. A wait
 * does not change the world, and an error of its own does not end it.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include "limits.h"
#include "request.h"
#include "ring.h"

/* What has ended the world, or 0. */
uint64_t ring_cause(const struct kcr_ring *ring)
{
	if (!ring->link)
		return 0;
	return __atomic_load_n(&ring->link->status->cause, __ATOMIC_ACQUIRE);
}

/* Say what has ended the world. */
int ring_ended(const struct kcr_ring *ring, uint64_t cause)
{
	int rank = KCR_CAUSE_RANK(cause), error = KCR_CAUSE_ERROR(cause);

	if (error == ECONNRESET)
		return kcr_fail(NULL, -error, "ring %u: rank %d died",
				ring->number, rank);
	if (error < 1 || error > 4095)
		error = EIO;
	return kcr_fail(NULL, -error, "ring %u: rank %d %s: %s", ring->number, rank,
			link_failure_text(ring->link, error), strerror(error));
}

/* May this process and thread use the ring? */
int ring_enter(const struct kcr_ring *ring)
{
	if (!ring)
		return kcr_fail(NULL, -EINVAL, "ring is NULL");
	if (ring->fork_generation != process_fork_generation())
		return kcr_fail(NULL, -EPERM,
				"this ring belongs to the process that made it, not to a forked child");
	if (!ring->world)
		return kcr_fail(NULL, -ESHUTDOWN,
				"ring %u: its world was destroyed", ring->number);
	return 0;
}

static uint64_t lower(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* How long until what is torn is damage, and something to be polled. */
static uint64_t until_damage(const struct kcr_ring *ring)
{
	uint64_t now = 0, ns = UINT64_MAX;

	for (size_t i = 0; i < ring->rx_count; i++) {
		uint64_t until = ring_get(&ring->rx[i].torn_until);

		if (!until)
			continue;
		if (!now)
			now = process_coarse_ns();
		if (until >= now)
			ns = lower(ns, until - now + 1);
	}
	return ns;
}

/* Once, after so long; @sleep_ns: until it must be asked again. */
static void warn(const struct ring_wait *w, uint64_t waited, bool *is_warned,
		 uint64_t *sleep_ns)
{
	const struct kcr_config *config = &w->ring->world->config;
	uint64_t warn_at = config->warn_ms * 1000000;
	char text[KCR_ERROR_BYTES];

	if (!warn_at || *is_warned || !w->late)
		return;
	if (waited < warn_at) {
		*sleep_ns = lower(*sleep_ns, warn_at - waited);
		return;
	}
	*is_warned = true;
	w->late(w, waited / 1e9, text, sizeof(text));
	fprintf(stderr, "kcollring: rank %d: %s, still waiting\n", config->rank,
		text);
}

static int64_t late(const struct ring_wait *w, uint64_t waited)
{
	char text[KCR_ERROR_BYTES];

	w->late(w, waited / 1e9, text, sizeof(text));
	return kcr_fail(NULL, -ETIMEDOUT, "%s", text);
}

/*
 * Try, @rounds times, with @rest in between, and look at the clock each @chunk of them; where
 * a round enters the kernel, that is nothing beside it.
 */
static int64_t try_awhile(struct ring_wait *w, uint64_t rounds, unsigned int chunk,
			  void (*rest)(void))
{
	int64_t result = -EAGAIN;

	for (uint64_t i = 1; i <= rounds; i++) {
		rest();
		result = w->attempt(w);
		if (result != -EAGAIN)
			break;
		if (i % chunk)
			continue;
		if (!w->began_ns)
			w->began_ns = process_now_ns();
		if (process_now_ns() - w->began_ns >= lower(w->limit_ns, SPIN_LIMIT_NS))
			break;
	}
	return result;
}

static void give_way(void)
{
	sched_yield();
}

/* Sleep once, unless it can be done now. */
static int64_t sleep_once(struct ring_wait *w, bool *is_warned)
{
	struct link *link = w->ring->link;
	uint64_t seen = link_lie_down(link);
	/* Before the attempt, too: it may become damage right after that. */
	uint64_t damage_ns = w->tx ? UINT64_MAX : until_damage(w->ring);
	uint64_t waited, ns;
	int64_t result;

	ring_mesh_arm(w->ring, w->tx);
	result = w->attempt(w);
	if (result == -EAGAIN) {
		waited = process_now_ns() - w->began_ns;
		if (waited >= w->limit_ns) {
			result = late(w, waited);
		} else {
			ns = lower(PARK_SLICE_NS, w->limit_ns - waited);
			ns = lower(ns, damage_ns);
			if (!w->tx)
				ns = lower(ns, until_damage(w->ring));
			warn(w, waited, is_warned, &ns);
			result = link->carrier->ops->rings->park(link, seen, ns) ?:
				 -EAGAIN;
		}
	}
	link_get_up(link);
	return result;
}

/* For one that has nothing better to do, and no CPU of its own. */
int64_t ring_wait_asleep(struct ring_wait *w)
{
	bool is_warned = false;
	int64_t result = -EAGAIN;

	if (!w->began_ns)
		w->began_ns = process_now_ns();
	while (result == -EAGAIN)
		result = sleep_once(w, &is_warned);
	return result;
}

/* Returns what the attempt that did it gave, an error of one, or -ETIMEDOUT. */
static int64_t wait(struct ring_wait *w)
{
	const struct link *link = w->ring->link;
	int64_t result;
	bool is_slow;

	/* Over the mesh, a send that finds a place asks the module; what is torn is verified. */
	is_slow = w->is_slow || (w->tx ? !!w->tx->remote :
				 until_damage(w->ring) != UINT64_MAX);
	result = try_awhile(w, link->spin, is_slow ? 1 : SPIN_CHUNK, link_relax);
	if (result == -EAGAIN)
		result = try_awhile(w, link->yield, 1, give_way);
	return result == -EAGAIN ? ring_wait_asleep(w) : result;
}

/* ---- waiting for messages ---- */

static bool has_left(const struct kcr_ring *ring, const struct ring_rx *rx)
{
	return link_member(ring->link, rx->peer) == KCR_MEMBER_LEFT;
}

/*
 * Has every source left, but for those whose lane has ended anyway? Asked before a look
 * that finds nothing, it means the end.
 */
bool ring_all_left(const struct kcr_ring *ring)
{
	bool has_any_left = false;

	for (size_t i = 0; i < ring->rx_count; i++) {
		const struct ring_rx *rx = &ring->rx[i];

		if (has_left(ring, rx))
			has_any_left = true;
		else if (!__atomic_load_n(&rx->err, __ATOMIC_RELAXED))
			return false;
	}
	return has_any_left;
}

/*
 * Is what a poll has found torn still so? Looked at in place: nothing is taken. A poll could
 * do no more, so that who waits and polls in turn would keep its CPU busy for as long as a
 * source likes to leave a message half written.
 */
static bool is_still_torn(const struct ring_rx *rx, uint64_t next)
{
	uint64_t until = ring_get(&rx->torn_until);
	struct ring_view view;

	return until && process_coarse_ns() <= until &&
	       ring_look(&rx->slots, next, NULL, &view) == LOOK_DAMAGED;
}

/* Is there anything to poll on a lane that has not ended? */
static bool has_news(const struct kcr_ring *ring, const struct ring_rx *rx)
{
	uint64_t next = ring_get(&rx->slots.next), given_up = ring_get(&rx->given_up);

	if (is_still_torn(rx, next))
		return false;
	if (ring_has_news(&rx->slots, next, given_up))
		return true;
	/* A raw lane goes on behind what was given up or is being overwritten. */
	return (given_up || (ring_is_raw(ring) && !rx->remote)) &&
	       rx->slots.depth > 1 && ring_has_come(&rx->slots, next + 1);
}

/* Is there anything to poll, be it an error that was not told? */
bool ring_has_any(const struct kcr_ring *ring)
{
	for (size_t i = 0; i < ring->rx_count; i++) {
		const struct ring_rx *rx = &ring->rx[i];

		if (__atomic_load_n(&rx->err, __ATOMIC_RELAXED)) {
			if (!__atomic_load_n(&rx->is_told, __ATOMIC_RELAXED))
				return true;
		} else if (has_news(ring, rx)) {
			return true;
		}
	}
	return false;
}

/* The sources in words. */
static void name_sources(const struct kcr_ring *ring, char *text, size_t size)
{
	struct rankset sources = { 0 };

	for (size_t i = 0; i < ring->rx_count; i++)
		rankset_add(&sources, ring->rx[i].peer);
	request_names(&sources, text, size);
}

int ring_nobody_left(const struct kcr_ring *ring)
{
	char names[KCR_ERROR_BYTES / 2];
	struct rankset left = { 0 };

	for (size_t i = 0; i < ring->rx_count; i++)
		if (has_left(ring, &ring->rx[i]))
			rankset_add(&left, ring->rx[i].peer);
	request_names(&left, names, sizeof(names));
	return kcr_fail(NULL, -ESHUTDOWN, "ring %u: %s left", ring->number, names);
}

/* What was there before the world's end, or a rank's leaving, comes first. */
int64_t ring_look_for_any(struct ring_wait *w)
{
	const struct kcr_ring *ring = w->ring;
	uint64_t cause = ring_cause(ring);
	bool have_left = ring_all_left(ring);

	if (ring_has_any(ring))
		return 0;
	if (cause)
		return ring_ended(ring, cause);
	return have_left ? ring_nobody_left(ring) : -EAGAIN;
}

static void nothing_came(const struct ring_wait *w, double seconds, char *text,
			 size_t size)
{
	char names[KCR_ERROR_BYTES / 2];

	name_sources(w->ring, names, sizeof(names));
	snprintf(text, size, "ring %u: no message from %s after %.1f s",
		 w->ring->number, names, seconds);
}

static uint64_t limit_of(const struct kcr_ring *ring, int64_t timeout_ns)
{
	return timeout_ns < 0 ? ring->world->config.timeout_ms * 1000000 :
				(uint64_t)timeout_ns;
}

/**
 * ring_wait_timeout() - wait until something can be done
 * @w: what; it was tried before, in vain
 * @timeout_ns: as a call has it: 0 not at all, negative as long as the world says
 *
 * Returns what the attempt that did it gave, an error of one, -ETIMEDOUT or -EAGAIN.
 */
int64_t ring_wait_timeout(struct ring_wait *w, int64_t timeout_ns)
{
	char text[KCR_ERROR_BYTES];

	if (timeout_ns) {
		w->limit_ns = limit_of(w->ring, timeout_ns);
		return wait(w);
	}
	w->late(w, 0, text, sizeof(text));
	return kcr_fail(NULL, -EAGAIN, "%s", text);
}

KCR_PUBLIC int kcr_ring_wait(struct kcr_ring *ring, int64_t timeout_ns)
{
	struct ring_wait w = {
		.ring = ring,
		.attempt = ring_look_for_any,
		.late = nothing_came,
	};
	int64_t result = ring_enter(ring);

	if (!result && !ring->rx_count)
		result = kcr_fail(NULL, -ENXIO, "ring %u: no lane leads to rank %d",
				  ring->number, ring->rank);
	if (!result)
		result = ring_look_for_any(&w);
	if (result == -EAGAIN) {
		/* Who asks again and again need never sleep. */
		link_look(ring->link);
		result = ring_wait_timeout(&w, timeout_ns);
	}
	return result;
}
