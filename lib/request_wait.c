// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Waiting: try a while, yield the CPU a while, then sleep in the carrier; and
 * the watchdog.
 *
 * How a sleeper and those who wake it meet is told at the top of link_sleep.c.
 *
 * A wait also sees, before it sleeps, that the world has failed, that a peer has
 * left, or that a peer has called something else; each moves the event counter.
 */
#include <errno.h>
#include <sched.h>
#include "emu.h"
#include "limits.h"
#include "link_mesh.h"
#include "request.h"

static void give_way(void)
{
	sched_yield();
}

/* Ranks in words: "rank 2, rank 3". */
void request_names(const struct rankset *ranks, char *text, size_t size)
{
	size_t at = 0;

	text[0] = 0;
	rankset_for_each(r, ranks) {
		if (at < size)
			at += snprintf(text + at, size - at, "%srank %d",
				       at ? ", " : "", r);
	}
}

/*
 * Whose fault it is that this rank has waited until now. Most of those that it waits
 * for may wait themselves, for one that it need not even miss: ranks that wait
 * show by their beat that they do.
 */
static void find_culprits(const struct kcr_request *r, struct rankset *culprits)
{
	const struct link *link = r->link;
	uint64_t waited = r->looked_ns - r->began_ns;
	struct rankset idle = { 0 };

	rankset_for_each(rank, &link->others) {
		const unsigned char *board = link->peers[rank].board;
		uint64_t beat = __atomic_load_n((const uint64_t *)
						(board + BOARD_BEAT),
						__ATOMIC_RELAXED);

		if ((!beat || beat + waited / 2 < r->looked_ns) &&
		    link_member(link, rank) == KCR_MEMBER_JOINED)
			rankset_add(&idle, rank);
	}
	*culprits = r->blocked;
	if (r->world->emu || rankset_is_empty(&idle))
		return;
	for (int i = 0; i < RANKSET_WORDS; i++)
		culprits->word[i] &= idle.word[i];
	if (rankset_is_empty(culprits))
		*culprits = idle;
}

static void set_beat(const struct link *link, uint64_t ns)
{
	__atomic_store_n((uint64_t *)(link->board + BOARD_BEAT), ns,
			 __ATOMIC_RELAXED);
}

static void warn(struct kcr_request *r, uint64_t waited_ns)
{
	char names[KCR_ERROR_BYTES / 2];
	struct rankset culprits;

	r->is_warned = true;
	find_culprits(r, &culprits);
	request_names(&culprits, names, sizeof(names));
	fprintf(stderr,
		"kcollring: rank %d: %s #%llu: no word from %s for %.1f s, still waiting\n",
		r->world->config.rank, kcr_kind_text(r->header.kind),
		(unsigned long long)r->header.number, names, waited_ns / 1e9);
}

/* The time is up for a request that waited so long. Returns -ETIMEDOUT. */
int request_late(struct kcr_request *r, double seconds)
{
	char names[KCR_ERROR_BYTES / 2];
	struct rankset culprits;

	find_culprits(r, &culprits);
	request_names(&culprits, names, sizeof(names));
	return kcr_fail(r->world, -ETIMEDOUT,
			"%s #%llu: no word from %s after %.1f s",
			kcr_kind_text(r->header.kind),
			(unsigned long long)r->header.number, names, seconds);
}

static uint64_t lower(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/**
 * request_watchdog() - how long has a request been where it is?
 * @r: the request, which could not move
 * @sleep_ns: how long it may sleep until this must be asked again
 *
 * Warns once. Returns 0, or -ETIMEDOUT with those it waits for.
 */
int request_watchdog(struct kcr_request *r, uint64_t *sleep_ns)
{
	const struct kcr_config *config = &r->world->config;
	uint64_t limit = config->timeout_ms * 1000000;
	uint64_t warn_at = config->warn_ms * 1000000;
	uint64_t now = process_now_ns(), waited;

	/* It was this rank that was away, and the others that waited. */
	if (!r->began_ns || (r->looked_ns && now - r->looked_ns > limit / 2))
		r->began_ns = now;
	r->looked_ns = now;
	set_beat(r->link, now);
	waited = now - r->began_ns;
	if (waited >= limit)
		return request_late(r, waited / 1e9);
	*sleep_ns = lower(PARK_SLICE_NS, limit - waited);
	*sleep_ns = lower(*sleep_ns, limit / BEATS);
	/* The world fails for another reason soon: see link_check(). */
	if (r->differs_ns)
		*sleep_ns = lower(*sleep_ns, DIFFER_NS / BEATS);
	if (!warn_at || r->is_warned)
		return 0;
	*sleep_ns = lower(*sleep_ns, warn_at / BEATS);
	if (waited >= warn_at)
		warn(r, waited);
	else
		*sleep_ns = lower(*sleep_ns, warn_at - waited);
	return 0;
}

static bool has_waited_long(const struct kcr_request *r)
{
	uint64_t limit = r->world->config.timeout_ms * 1000000;

	return r->looked_ns && r->looked_ns - r->began_ns > limit / 2;
}

/**
 * request_claim() - say on the board what this rank is in
 * @r: its request
 *
 * On the slow path only: when it waits long enough to sleep, or when it fails
 * since ranks differ. kcr-info shows it, and peers compare: see
 * link_find_mismatch(). While the number is 0 the rest is being written.
 */
void request_claim(const struct kcr_request *r)
{
	struct kcr_claim *claim = (struct kcr_claim *)r->link->board;
	uint32_t with = r->peer >= 0 ? (uint32_t)r->peer : r->header.root;

	__atomic_store_n(&claim->number, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	__atomic_store_n(&claim->kind, r->header.kind, __ATOMIC_RELAXED);
	__atomic_store_n(&claim->detail, with << 16 | r->header.dtype << 8 |
			 r->header.op, __ATOMIC_RELAXED);
	__atomic_store_n(&claim->count, r->header.count, __ATOMIC_RELAXED);
	__atomic_store_n(&claim->since_ns, r->began_ns, __ATOMIC_RELAXED);
	__atomic_store_n(&claim->number, r->header.number, __ATOMIC_RELEASE);
}

static void clear_claim(const struct link *link)
{
	struct kcr_claim *claim = (struct kcr_claim *)link->board;

	__atomic_store_n(&claim->number, 0, __ATOMIC_RELEASE);
}

/*
 * What has become of a request that could not move? Returns 0 if it may yet, 1 if
 * something has moved meanwhile, or why it never will.
 *
 * The world may have failed in a later operation than this, whose data have all
 * come then: it ends well, and the next finds the cause. So the cause is seen
 * before the look that decides.
 */
int request_stuck(struct kcr_request *r)
{
	int err;

	if (__atomic_load_n(&r->link->status->cause, __ATOMIC_ACQUIRE) &&
	    request_progress(r->world))
		return 1;
	if (r->link->mesh)
		mesh_look(r->link->mesh);
	err = link_check(r);
	if (!err && r->link->mesh)
		err = mesh_check(r);
	/* Another's time was up first; this rank knows as well for whom they wait. */
	if (err == -ETIMEDOUT && r->began_ns && has_waited_long(r))
		err = request_late(r, (r->looked_ns - r->began_ns) / 1e9);
	if (!err)
		err = link_find_mismatch(r);
	/* Who left since ranks differ has not ended this in peace. */
	if (!err && !r->differs_ns)
		err = link_check_left(r);
	return err;
}

/* Sleep once, unless something moves. */
static int sleep_once(struct kcr_request *r)
{
	struct link *link = r->link;
	struct kcr_request *front;
	uint64_t seen, ns;
	int err = 0;

	seen = link_lie_down(link);
	if (!request_progress(r->world)) {
		front = request_front(r);
		err = request_stuck(front);
		if (!err)
			err = request_watchdog(front, &ns);
		if (!err) {
			request_claim(front);
			err = link->carrier->ops->park(link, seen, ns);
		}
	}
	link_get_up(link);
	return err < 0 ? err : 0;
}

/*
 * Try again and again, @rounds times without a move, with @rest in between.
 * The world's end and the watchdog need a look now and then, whatever the budget.
 */
static void try_awhile(struct kcr_request *r, uint64_t rounds,
		       void (*rest)(void))
{
	for (uint64_t i = 1; i <= rounds && !r->is_done; i++) {
		if (request_progress(r->world)) {
			i = 0;
			link_flush(r->link);
			continue;
		}
		rest();
		if (i % SPIN_CHUNK)
			continue;
		if (!r->began_ns)
			r->began_ns = process_now_ns();
		else if (process_now_ns() - r->began_ns > SPIN_LIMIT_NS)
			return;
	}
}

static int wait_asleep(struct kcr_request *r)
{
	int err = 0;

	if (!r->began_ns)
		r->began_ns = process_now_ns();
	while (!err && !r->is_done) {
		link_flush(r->link);
		err = sleep_once(r);
	}
	/* Those that find out later want to say what this rank called. */
	if (r->world->failed != -EPROTO)
		clear_claim(r->link);
	/* Who gives up has waited so far: the others may still look. */
	if (!err && !r->err)
		set_beat(r->link, 0);
	return err;
}

/**
 * request_wait() - wait until a request is done
 * @r: the request, started
 *
 * Returns its result.
 */
int request_wait(struct kcr_request *r)
{
	struct link *link = r->link;
	int err = 0;

	if (r->is_done) {
		link_flush(link);
		return r->err;
	}
	if (r->world->emu)
		return emu_wait(r);
	link_flush(link);
	try_awhile(r, link->spin, link_relax);
	try_awhile(r, link->yield, give_way);
	if (!r->is_done)
		err = wait_asleep(r);
	if (err && !r->is_done)
		request_fail(r, err);
	link_flush(link);
	return r->err;
}

/* A carrier that sees deaths while it parks does not do so for one who only tests. */
static void look_now_and_then(struct kcr_request *r)
{
	struct link *link = r->link;

	if (link->carrier->ops->look && r->began_ns &&
	    process_now_ns() - r->began_ns >= LOOK_NS)
		link_look(link);
}

/**
 * request_poll() - take one look, without waiting
 * @r: the request, not done
 *
 * Sees the watchdog and the world's end too, so that one who only ever tests
 * does not do so for ever.
 */
void request_poll(struct kcr_request *r)
{
	struct kcr_request *front;
	uint64_t ns;
	int err;

	if (r->world->emu) {
		emu_poll(r);
		return;
	}
	if (!request_progress(r->world) && !r->is_done) {
		front = request_front(r);
		look_now_and_then(front);
		err = request_stuck(front);
		if (!err)
			err = request_watchdog(front, &ns);
		if (err < 0)
			request_fail(front, err);
	}
	link_flush(r->link);
}
