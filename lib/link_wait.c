// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Waiting: look a while, yield the CPU a while, then sleep in the carrier;
 * and everything that ends a wait without what it waited for.
 *
 * Sleeping and waking are Dekker's: the sleeper raises its flag, then looks
 * again; the writer writes, then looks at the flag. A full fence stands
 * between the two on either side, so at least one sees the other. The event
 * counter closes the rest: the sleeper reads it before it raises the flag, and the
 * carrier does not sleep if it has moved since.
 *
 *	sleeper				writer
 *	seen = events			write slot (or acknowledgement)
 *	sleeping = 1			fence
 *	fence				if sleeping: kick (events++)
 *	if nothing there: park(seen)
 *	sleeping = 0
 *
 * A wait also sees, before it sleeps, that the world has failed, that a peer has
 * left, or that a peer has called something else; each moves the event counter.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include "limits.h"
#include "link.h"

/**
 * struct wait - one wait of an operation
 * @op: the operation
 * @rx: the frame that is waited for, or NULL
 * @tx: the room that is waited for, or NULL
 * @began_ns: about when it began, 0 while it is short
 * @looked_ns: when it looked last, from the time on that it sleeps
 * @warned: has said for whom
 */
struct wait {
	struct op *op;
	struct rx *rx;
	struct tx *tx;
	uint64_t began_ns;
	uint64_t looked_ns;
	bool warned;
};

static bool is_over(const struct wait *wait)
{
	return wait->rx ? link_has_frame(wait->rx) : link_has_room(wait->tx);
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" : : : "memory");
#else
	__asm__ volatile("" : : : "memory");
#endif
}

/* The peers that have not done yet what this rank waits for. */
static uint64_t missing(const struct wait *wait)
{
	struct link *link = wait->op->link;
	uint64_t ranks = 0;

	if (wait->tx) {
		const struct tx *tx = wait->tx;

		for (uint64_t rest = tx->readers; rest; rest &= rest - 1) {
			int r = __builtin_ctzll(rest);
			uint64_t acked = __atomic_load_n(&tx->ack[r]->sequence,
							 __ATOMIC_ACQUIRE);

			if (tx->slots.next - acked > tx->slots.depth)
				ranks |= rank_bit(r);
		}
		return ranks;
	}
	/* Channels of one kind are read in ascending order of rank. */
	for (int r = wait->rx->peer; r < link->world->config.size; r++) {
		struct rx *rx = wait->rx == &link->rx_board[wait->rx->peer] ?
				&link->rx_board[r] : &link->rx_lane[r];

		if (r != link->world->config.rank && !link_has_frame(rx))
			ranks |= rank_bit(r);
	}
	return ranks;
}

/*
 * Whose fault it is that this rank has waited until now. Most of those that it misses
 * may wait themselves, for one that it need not even miss: ranks
 * that wait show by their beat that they do.
 */
static uint64_t culprits(const struct wait *wait)
{
	const struct link *link = wait->op->link;
	uint64_t waited = wait->looked_ns - wait->began_ns;
	uint64_t ranks = missing(wait), idle = 0;

	for (uint64_t rest = link->others; rest; rest &= rest - 1) {
		int r = __builtin_ctzll(rest);
		uint64_t beat = __atomic_load_n((const uint64_t *)
						(link->boards[r] + BOARD_BEAT),
						__ATOMIC_RELAXED);

		if ((!beat || beat + waited / 2 < wait->looked_ns) &&
		    link->status->member[r] == KCR_MEMBER_JOINED)
			idle |= rank_bit(r);
	}
	return ranks & idle ? ranks & idle : idle ? idle : ranks;
}

static void set_beat(const struct link *link, uint64_t ns)
{
	__atomic_store_n((uint64_t *)(link->board + BOARD_BEAT), ns,
			 __ATOMIC_RELAXED);
}

static void name_ranks(uint64_t ranks, char *text, size_t size)
{
	size_t at = 0;

	text[0] = 0;
	for (; ranks && at < size; ranks &= ranks - 1)
		at += snprintf(text + at, size - at, "%srank %d",
			       at ? ", " : "", __builtin_ctzll(ranks));
}

static const char *op_text(const struct frame_header *h, char *text, size_t size)
{
	if (h->kind == KIND_ALLREDUCE)
		snprintf(text, size, "%s #%llu (%llu %s, %s)",
			 kcr_kind_text(h->kind), (unsigned long long)h->number,
			 (unsigned long long)h->count, kcr_dtype_text(h->dtype),
			 kcr_op_text(h->op));
	else
		snprintf(text, size, "%s #%llu", kcr_kind_text(h->kind),
			 (unsigned long long)h->number);
	return text;
}

/**
 * link_mismatch() - two ranks have called different operations
 * @op: this rank's
 * @peer: the other rank
 * @theirs: the header of its frame
 *
 * Returns -EPROTO with both named.
 */
int link_mismatch(struct op *op, int peer, const struct frame_header *theirs)
{
	struct frame_header copy = *theirs;
	char mine_text[96], their_text[96];

	return kcr_fail(op->world, -EPROTO,
			"ranks differ: rank %d called %s, rank %d called %s",
			op->world->config.rank,
			op_text(&op->header, mine_text, sizeof(mine_text)),
			peer, op_text(&copy, their_text, sizeof(their_text)));
}

/*
 * A peer that called something else may have sent it down the channel this
 * rank does not look at: the head of every channel must belong to this
 * operation or to one that is still to come.
 */
static int look_for_mismatch(struct op *op)
{
	struct link *link = op->link;

	for (uint64_t rest = link->others; rest; rest &= rest - 1) {
		int r = __builtin_ctzll(rest);
		struct rx *heads[] = { &link->rx_board[r], &link->rx_lane[r] };

		for (int i = 0; i < 2; i++) {
			struct frame_header theirs;

			if (!link_has_frame(heads[i]))
				continue;
			theirs = *link_header(heads[i]);
			if (theirs.number != op->header.number)
				continue;
			op->header.segment = theirs.segment;
			if (memcmp(&theirs, &op->header, sizeof(theirs)))
				return link_mismatch(op, r, &theirs);
		}
	}
	return 0;
}

/*
 * Whoever saw first that the ranks differ has said so. What the other called is
 * on its way to this rank as well: it is sent to all before anything is
 * waited for.
 */
static bool mismatch_shows(struct op *op)
{
	const struct timespec pause = { .tv_nsec = MISMATCH_NS / 1000 };

	for (int i = 0; i < 1000; i++) {
		if (look_for_mismatch(op))
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

/* The world has failed: say why. */
static int cause_error(struct op *op, uint64_t cause)
{
	struct kcr_world *w = op->world;
	int rank = KCR_CAUSE_RANK(cause);
	int error = KCR_CAUSE_ERROR(cause);
	const char *kind = kcr_kind_text(op->header.kind);
	unsigned long long number = op->header.number;

	switch (error) {
	case ECONNRESET:
		return kcr_fail(w, -ECONNRESET, "%s #%llu: rank %d died", kind,
				number, rank);
	case EPROTO:
		if (mismatch_shows(op))
			return -EPROTO;
		return kcr_fail(w, -EPROTO,
				"%s #%llu: ranks differ, as rank %d found out",
				kind, number, rank);
	case ETIMEDOUT:
		return kcr_fail(w, -ETIMEDOUT,
				"%s #%llu: rank %d waited in vain and gave up",
				kind, number, rank);
	default:
		return kcr_fail(w, -error, "%s #%llu: rank %d failed the world: %s",
				kind, number, rank, strerror(error));
	}
}

/* Returns what has ended the world, or 0. */
int link_check(struct op *op)
{
	uint64_t cause = __atomic_load_n(&op->link->status->cause,
					 __ATOMIC_ACQUIRE);

	return cause ? cause_error(op, cause) : 0;
}

/* A peer that has left will not do what this rank waits for. */
static int check_left(struct wait *wait)
{
	struct op *op = wait->op;
	struct kcr_status *status = op->link->status;

	if (!__atomic_load_n(&status->left, __ATOMIC_ACQUIRE))
		return 0;
	for (uint64_t rest = missing(wait); rest; rest &= rest - 1) {
		int r = __builtin_ctzll(rest);

		if (__atomic_load_n(&status->member[r], __ATOMIC_ACQUIRE) !=
		    KCR_MEMBER_LEFT)
			continue;
		/* What it did before it left counts. */
		if (is_over(wait))
			return 0;
		if (missing(wait) & rank_bit(r))
			return kcr_fail(op->world, -ESHUTDOWN,
					"%s #%llu: rank %d left",
					kcr_kind_text(op->header.kind),
					(unsigned long long)op->header.number, r);
	}
	return 0;
}

/* The watchdog. Returns how long to sleep at most in ns, 0 when the time is up. */
static uint64_t time_left(struct wait *wait)
{
	struct op *op = wait->op;
	const struct kcr_config *config = &op->world->config;
	uint64_t limit = config->timeout_ms * 1000000;
	uint64_t warn = config->warn_ms * 1000000;
	uint64_t now = process_now_ns(), ns = PARK_SLICE_NS, waited;
	char names[KCR_ERROR_BYTES / 2];

	/* It was this rank that was away, and the others that waited. */
	if (wait->looked_ns && now - wait->looked_ns > limit / 2)
		wait->began_ns = now;
	wait->looked_ns = now;
	set_beat(op->link, now);
	waited = now - wait->began_ns;
	if (waited >= limit)
		return 0;
	if (ns > limit - waited)
		ns = limit - waited;
	if (ns > limit / BEATS)
		ns = limit / BEATS;
	if (warn && ns > warn / BEATS)
		ns = warn / BEATS;
	if (!wait->warned && warn && waited < warn && ns > warn - waited)
		ns = warn - waited;
	if (!wait->warned && warn && waited >= warn) {
		wait->warned = true;
		name_ranks(culprits(wait), names, sizeof(names));
		fprintf(stderr,
			"kcollring: rank %d: %s #%llu: no word from %s for %.1f s, still waiting\n",
			config->rank, kcr_kind_text(op->header.kind),
			(unsigned long long)op->header.number, names,
			waited / 1e9);
	}
	return ns;
}

static int time_is_up(struct wait *wait)
{
	struct op *op = wait->op;
	char names[KCR_ERROR_BYTES / 2];

	name_ranks(culprits(wait), names, sizeof(names));
	return kcr_fail(op->world, -ETIMEDOUT,
			"%s #%llu: no word from %s after %.1f s",
			kcr_kind_text(op->header.kind),
			(unsigned long long)op->header.number, names,
			(wait->looked_ns - wait->began_ns) / 1e9);
}

static bool has_waited_long(const struct wait *wait)
{
	uint64_t limit = wait->op->world->config.timeout_ms * 1000000;

	return wait->looked_ns - wait->began_ns > limit / 2;
}

/* What kcr-info shows of this rank: only of ranks that wait long enough to sleep. */
static void stamp_claim(const struct wait *wait)
{
	struct kcr_claim *claim = (struct kcr_claim *)wait->op->link->board;
	const struct frame_header *h = &wait->op->header;

	claim->kind = h->kind;
	claim->detail = h->dtype << 8 | h->op;
	claim->count = h->count;
	claim->since_ns = wait->began_ns;
	__atomic_store_n(&claim->number, h->number, __ATOMIC_RELEASE);
}

static void clear_claim(const struct wait *wait)
{
	struct kcr_claim *claim = (struct kcr_claim *)wait->op->link->board;

	__atomic_store_n(&claim->number, 0, __ATOMIC_RELEASE);
}

/*
 * The world may have failed in a later operation than this, whose data have all
 * come then: it ends well, and the next finds the cause. The order of the
 * two looks matters.
 */
static int check_cause(struct wait *wait)
{
	uint64_t cause = __atomic_load_n(&wait->op->link->status->cause,
					 __ATOMIC_ACQUIRE);
	int err;

	if (!cause || is_over(wait))
		return 0;
	err = cause_error(wait->op, cause);
	/* Another's time was up first; this rank knows as well for whom they wait. */
	if (err == -ETIMEDOUT && has_waited_long(wait))
		err = time_is_up(wait);
	return err;
}

/* Sleep once, unless there is something to do; see the top of the file. */
static int sleep_once(struct wait *wait, uint64_t ns)
{
	struct link *link = wait->op->link;
	uint32_t *sleeping = (uint32_t *)(link->board + BOARD_SLEEPING);
	uint64_t seen;
	int err;

	seen = __atomic_load_n(&link->status->events, __ATOMIC_ACQUIRE);
	__atomic_store_n(sleeping, 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	err = check_cause(wait);
	if (!err && !is_over(wait))
		err = check_left(wait);
	if (!err && !is_over(wait))
		err = link->carrier->ops->park(link, seen, ns);
	__atomic_store_n(sleeping, 0, __ATOMIC_RELAXED);
	return err;
}

static int wait_asleep(struct wait *wait)
{
	int err = 0;

	stamp_claim(wait);
	while (!err && !is_over(wait)) {
		uint64_t ns = time_left(wait);

		if (ns)
			err = look_for_mismatch(wait->op);
		else
			err = time_is_up(wait);
		if (!err)
			err = sleep_once(wait, ns);
	}
	clear_claim(wait);
	set_beat(wait->op->link, 0);
	return err;
}

/*
 * Look again and again, @rounds times, with @rest in between. The world's end
 * and the watchdog need a look now and then, whatever the budget. Returns
 * true when the wait is over.
 */
static bool look_awhile(struct wait *wait, uint64_t rounds, void (*rest)(void))
{
	for (uint64_t i = 1; i <= rounds; i++) {
		if (is_over(wait))
			return true;
		rest();
		if (i % SPIN_CHUNK)
			continue;
		if (!wait->began_ns)
			wait->began_ns = process_now_ns();
		else if (process_now_ns() - wait->began_ns > SPIN_LIMIT_NS)
			break;
	}
	return false;
}

static void give_way(void)
{
	sched_yield();
}

static int wait_for(struct wait *wait)
{
	struct link *link = wait->op->link;

	link_flush(link);
	if (look_awhile(wait, link->spin, relax) ||
	    look_awhile(wait, link->yield, give_way))
		return 0;
	if (!wait->began_ns)
		wait->began_ns = process_now_ns();
	return wait_asleep(wait);
}

/* Wait until the next frame of a channel is there. */
int link_wait_frame(struct op *op, struct rx *rx)
{
	struct wait wait = { .op = op, .rx = rx };

	return wait_for(&wait);
}

/* Wait until the next slot of a channel may be written. */
int link_wait_room(struct op *op, struct tx *tx)
{
	struct wait wait = { .op = op, .tx = tx };

	return wait_for(&wait);
}

/**
 * link_flush() - wake those who sleep on what was written since the last flush
 * @link: the link
 *
 * Before every wait and at the end of every operation. One fence for all.
 */
void link_flush(struct link *link)
{
	uint64_t asleep = 0;

	if (!link->touched)
		return;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (uint64_t rest = link->touched; rest; rest &= rest - 1) {
		int r = __builtin_ctzll(rest);

		if (__atomic_load_n((const uint32_t *)(link->boards[r] +
						       BOARD_SLEEPING),
				    __ATOMIC_RELAXED))
			asleep |= rank_bit(r);
	}
	link->touched = 0;
	if (asleep)
		link->carrier->ops->kick(link, asleep);
}
