// SPDX-License-Identifier: GPL-2.0
/*
 * Message rings between nodes: each rank has lanes to all others, some of which are on
 * its own node
 */
#include <poll.h>
#include "cluster.h"
#include "ring.h"
#include "trace.h"
#include "../../lib/ring.h"

#define DEPTH		32
#define CAPACITY	2000
/* That each rank sends, and receives; a hundred times as many with KCR_TEST_LONG. */
#define MESSAGES	10000
#define SECOND		1000000000ll

/* Everybody with everybody. */
static int make_ring(struct cluster *c, int rank, struct kcr_world *w, unsigned int flags,
		     uint32_t depth, uint32_t capacity, struct kcr_ring **ring)
{
	struct kcr_lane *lanes = calloc(c->size * c->size, sizeof(*lanes));
	size_t n = 0;
	int a, b;

	RANK_TRUE(lanes);
	for (a = 0; a < c->size; a++)
		for (b = 0; b < c->size; b++)
			if (a != b)
				lanes[n++] = (struct kcr_lane){ a, b, depth, capacity };
	RANK_OK(w, kcr_ring_create(w, lanes, n, flags, ring));
	free(lanes);
	return 0;
}

static int begin(struct cluster *c, int rank, unsigned int flags, struct kcr_world **w,
		 struct kcr_ring **ring)
{
	RANK_OK(NULL, kcr_world_create(NULL, w));
	RANK_TRUE(strstr(kcr_link_name(*w), "mesh"));
	return make_ring(c, rank, *w, flags, DEPTH, CAPACITY, ring);
}

/* Only between the first rank and the last, of another node. */
static int begin_pair(struct cluster *c, int rank, unsigned int flags, struct kcr_world **w,
		      struct kcr_ring **ring)
{
	const struct kcr_lane lanes[] = {
		{ 0, c->size - 1, DEPTH, CAPACITY }, { c->size - 1, 0, DEPTH, CAPACITY },
	};

	RANK_OK(NULL, kcr_world_create(NULL, w));
	RANK_OK(*w, kcr_ring_create(*w, lanes, 2, flags, ring));
	return 0;
}

static int end(int rank, struct kcr_world *w, struct kcr_ring *ring)
{
	RANK_OK(w, kcr_ring_destroy(ring));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

static uint64_t messages(const struct cluster *c)
{
	return MESSAGES / (c->size - 1) * (getenv("KCR_TEST_LONG") ? 100 : 1);
}

/* Take what there is; a callback has found nothing wrong with it. */
static int take(int rank, struct kcr_ring *ring, struct ring_inbox *in)
{
	int got = kcr_ring_poll(ring, ring_receive, in);

	if (got < 0)
		RANK_FAIL("poll: %s", kcr_error(NULL));
	RANK_TRUE(!in->wrong);
	return 0;
}

/* All of them, on all lanes at once; each rank receives while its own lanes are full. */
static int send_all(struct cluster *c, int rank, struct kcr_ring *ring,
		    struct ring_inbox *in, uint64_t count)
{
	uint64_t next[KCR_RANKS_MAX] = { 0 };
	int left = c->size - 1, peer;
	int64_t sent;

	while (left) {
		left = c->size - 1;
		for (peer = 0; peer < c->size; peer++) {
			if (peer == rank)
				continue;
			if (next[peer] == count) {
				left--;
				continue;
			}
			sent = ring_send(ring, rank, peer, next[peer] + 1, 0);
			if (sent == -EAGAIN)
				continue;
			if (sent < 0)
				RANK_FAIL("send: %s", kcr_error(NULL));
			next[peer]++;
			RANK_TRUE(sent == (int64_t)next[peer]);
		}
		if (take(rank, ring, in))
			return 1;
	}
	return 0;
}

/* In order, whole, and none is missing; then the same again. */
static int safe(struct cluster *c, int rank)
{
	uint64_t count = messages(c);
	struct kcr_ring_stats stats;
	struct kcr_ring *ring;
	struct kcr_world *w;
	int peer;

	if (begin(c, rank, 0, &w, &ring))
		return 1;
	struct ring_inbox in = { .ring = ring, .rank = rank, .acks = 1 };

	if (send_all(c, rank, ring, &in, count))
		return 1;
	while (in.count < count * (c->size - 1)) {
		RANK_OK(NULL, kcr_ring_wait(ring, -1));
		if (take(rank, ring, &in))
			return 1;
	}
	for (peer = 0; peer < c->size; peer++)
		RANK_TRUE(in.last[peer] == (peer == rank ? 0 : count));
	RANK_TRUE(!in.gaps);
	RANK_OK(NULL, kcr_ring_stats(ring, &stats));
	RANK_TRUE(stats.sent == count * (c->size - 1) && stats.received == stats.sent);
	RANK_TRUE(!stats.corrupt && !stats.lost);
	return end(rank, w, ring);
}

/* Nobody waits for readers: what arrives is right, what does not is counted. */
static int raw(struct cluster *c, int rank)
{
	uint64_t count = messages(c), all = count * (c->size - 1);
	struct kcr_ring_stats stats = { 0 };
	struct kcr_ring *ring;
	struct kcr_world *w;
	int64_t sent;
	int peer;

	if (begin(c, rank, KCR_RING_RAW, &w, &ring))
		return 1;
	struct ring_inbox in = { .ring = ring, .rank = rank };

	for (uint64_t s = 1; s <= count; s++) {
		for (peer = 0; peer < c->size; peer++) {
			if (peer == rank)
				continue;
			sent = ring_send(ring, rank, peer, s, -1);
			if (sent != (int64_t)s)
				RANK_FAIL("send: %s", kcr_error(NULL));
		}
		if (s % 16 == 0 && take(rank, ring, &in))
			return 1;
	}
	/* The last ones are overwritten by nothing. */
	for (;;) {
		RANK_OK(NULL, kcr_ring_stats(ring, &stats));
		if (stats.received + stats.lost + stats.corrupt == all)
			break;
		RANK_OK(NULL, kcr_ring_wait(ring, -1));
		if (take(rank, ring, &in))
			return 1;
	}
	RANK_TRUE(!stats.corrupt);
	RANK_TRUE(in.count == stats.received && in.gaps == stats.lost);
	for (peer = 0; peer < c->size; peer++)
		RANK_TRUE(in.last[peer] == (peer == rank ? 0 : count));
	RANK_MEET(c);
	return end(rank, w, ring);
}

/* Until all that was sent on a lane has landed. */
static int wait_landed(int rank, const struct ring_tx *tx, uint64_t sequence)
{
	double until = ranks_now() + 30 * pace();

	while (__atomic_load_n(&tx->remote->done, __ATOMIC_ACQUIRE) < sequence) {
		if (ranks_now() > until)
			RANK_FAIL("message %llu has not landed", (unsigned long long)sequence);
		ranks_sleep(0.001);
	}
	return 0;
}

/*
 * A reader that looks when so many have been sent finds exactly the last of them, as many
 * as the lane holds, in their order, and knows how many there were before.
 */
static int laps(struct cluster *c, int rank)
{
	static const uint64_t sent[] = { 3 * DEPTH, 1, DEPTH, DEPTH + 5, DEPTH - 1, 7 * DEPTH + 3 };
	uint64_t next = 1, taken = 0, gaps = 0, s;
	struct kcr_ring_stats stats;
	struct kcr_ring *ring;
	struct kcr_world *w;
	int i, last = c->size - 1;

	if (begin_pair(c, rank, KCR_RING_RAW, &w, &ring))
		return 1;
	struct ring_inbox in = { .ring = ring, .rank = rank };

	for (i = 0; i < ARRAY_SIZE(sent); i++) {
		uint64_t comes = sent[i] < DEPTH ? sent[i] : DEPTH;

		for (s = 0; rank == last && s < sent[i]; s++)
			RANK_TRUE(ring_send(ring, last, 0, next + s, -1) == (int64_t)(next + s));
		if (rank == last && wait_landed(rank, ring->to[0], next + sent[i] - 1))
			return 1;
		RANK_MEET(c);
		next += sent[i];
		taken += comes;
		gaps += sent[i] - comes;
		/* The inbox sees to it that they are in order, and whole. */
		while (!rank && in.last[last] < next - 1)
			if (take(rank, ring, &in))
				return 1;
		RANK_OK(NULL, kcr_ring_stats(ring, &stats));
		if (!rank)
			RANK_TRUE(stats.received == taken && stats.lost == gaps &&
				  in.count == taken && in.gaps == gaps && !stats.corrupt);
		RANK_MEET(c);
	}
	return end(rank, w, ring);
}

/* The last rank speaks to the first, of another node, now and then: it sleeps meanwhile. */
static int asleep(struct cluster *c, int rank)
{
	int last = c->size - 1, round;
	struct kcr_ring *ring;
	struct kcr_world *w;
	struct pollfd p;

	if (begin(c, rank, 0, &w, &ring))
		return 1;
	struct ring_inbox in = { .ring = ring, .rank = rank, .acks = 1 };

	for (round = 1; round <= 20; round++) {
		if (rank == last) {
			ranks_sleep(round % 4 * 0.1);
			RANK_TRUE(ring_send(ring, last, 0, round, -1) == round);
		} else if (!rank && round <= 10) {
			RANK_OK(NULL, kcr_ring_wait(ring, 30 * SECOND));
		} else if (!rank) {
			p = (struct pollfd){ .fd = kcr_ring_fd(ring), .events = POLLIN };
			RANK_TRUE(p.fd >= 0);
			RANK_TRUE(poll(&p, 1, 30000) == 1);
		}
		if (!rank) {
			while (in.count < (uint64_t)round)
				if (take(rank, ring, &in))
					return 1;
		}
		RANK_MEET(c);
	}
	/* Nothing comes: the descriptor says so, and a wait ends. */
	if (!rank) {
		p = (struct pollfd){ .fd = kcr_ring_fd(ring), .events = POLLIN };
		RANK_TRUE(!kcr_ring_poll(ring, ring_receive, &in));
		RANK_TRUE(!poll(&p, 1, 300));
		RANK_GIVES(-ETIMEDOUT, NULL, kcr_ring_wait(ring, SECOND / 5));
	}
	RANK_MEET(c);
	return end(rank, w, ring);
}

/* A lane that is full: who does not wait is told, who waits goes on with the first ack. */
static int full(struct cluster *c, int rank)
{
	int last = c->size - 1;
	struct kcr_ring_stats stats;
	struct kcr_ring *ring;
	struct kcr_world *w;
	char text[64];

	if (begin(c, rank, 0, &w, &ring))
		return 1;
	struct ring_inbox in = { .ring = ring, .rank = rank };

	snprintf(text, sizeof(text), "lane 0 -> %d is full", last);
	if (!rank) {
		for (int s = 1; s <= DEPTH; s++)
			RANK_TRUE(ring_send(ring, 0, last, s, -1) == s);
		RANK_TRUE(ring_send(ring, 0, last, DEPTH + 1, 0) == -EAGAIN);
		RANK_SAYS(NULL, text);
		RANK_TRUE(ring_send(ring, 0, last, DEPTH + 1, SECOND) == -ETIMEDOUT);
		RANK_SAYS(NULL, text);
	}
	RANK_MEET(c);
	if (!rank) {
		RANK_TRUE(ring_send(ring, 0, last, DEPTH + 1, 30 * SECOND) == DEPTH + 1);
		RANK_OK(NULL, kcr_ring_stats(ring, &stats));
		RANK_TRUE(stats.waits == 2 && stats.wait_ns >= SECOND);
	} else if (rank == last) {
		ranks_sleep(0.5);
		while (in.count < DEPTH)
			if (take(rank, ring, &in))
				return 1;
		ranks_sleep(0.5);
		RANK_OK(NULL, kcr_ring_ack(ring, 0, 3));
		while (in.count < DEPTH + 1)
			if (take(rank, ring, &in))
				return 1;
	}
	RANK_MEET(c);
	return end(rank, w, ring);
}

/* Rings come and go, several at once, with messages under way. */
static int again(struct cluster *c, int rank)
{
	struct kcr_ring *ring[3];
	struct kcr_world *w;
	int round, i;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (round = 0; round < 10; round++) {
		for (i = 0; i < 3; i++) {
			if (make_ring(c, rank, w, i == 1 ? KCR_RING_RAW : 0, 1 + round,
				      1 + 700 * i, &ring[i]))
				return 1;
		}
		for (i = 0; i < 3; i++) {
			struct ring_inbox in = { .ring = ring[i], .rank = rank, .acks = 1 };

			RANK_TRUE(ring_send(ring[i], rank, (rank + 1) % c->size, 1, -1) == 1);
			while (!in.count) {
				RANK_OK(NULL, kcr_ring_wait(ring[i], -1));
				if (take(rank, ring[i], &in))
					return 1;
			}
			RANK_TRUE(in.last[(rank + c->size - 1) % c->size] == 1);
		}
		for (i = 0; i < 3; i++)
			RANK_OK(w, kcr_ring_destroy(ring[(i + round) % 3]));
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

/* A rank dies, of the second node: whoever waits for a message, or for room, learns of it. */
#define DEAD	2

static int dies(struct cluster *c, int rank)
{
	struct kcr_ring *ring;
	struct kcr_world *w;
	int result = 0;

	if (begin(c, rank, 0, &w, &ring))
		return 1;
	RANK_OK(w, kcr_barrier(w));
	if (rank == DEAD) {
		ranks_sleep(1);
		raise(SIGKILL);
	}
	if (rank == 0)
		for (uint64_t s = 1; result >= 0; s++)
			result = ring_send(ring, 0, DEAD, s, 60 * SECOND);
	else
		result = kcr_ring_wait(ring, 60 * SECOND);
	RANK_TRUE(result == -ECONNRESET);
	RANK_SAYS(NULL, "rank 2 died");
	RANK_GIVES(-ECONNRESET, NULL, kcr_ring_destroy(ring));
	kcr_world_destroy(w);
	return 0;
}

/* A rank leaves: what it had sent is received, then its peers are told, who waits and who sends. */
static int leaves(struct cluster *c, int rank)
{
	int last = c->size - 1, i;
	int64_t sent = 1;
	struct kcr_ring *ring;
	struct kcr_world *w;
	char left[32];

	snprintf(left, sizeof(left), "rank %d left", last);
	if (begin_pair(c, rank, 0, &w, &ring))
		return 1;
	struct ring_inbox in = { .ring = ring, .rank = rank };

	for (i = 1; rank == last && i <= 3; i++)
		RANK_TRUE(ring_send(ring, last, 0, i, -1) == i);
	RANK_MEET(c);
	if (rank == last) {
		ranks_sleep(0.5);
		RANK_OK(NULL, kcr_world_destroy(w));
		RANK_OK(NULL, kcr_ring_destroy(ring));
		return 0;
	}
	if (!rank) {
		/* It waits for room by then, or comes too late. */
		for (i = 1; sent > 0; i++)
			sent = ring_send(ring, 0, last, i, -1);
		RANK_TRUE(sent == -ESHUTDOWN && i - 1 <= DEPTH + 1);
		RANK_SAYS(NULL, left);
		while (in.count < 3) {
			RANK_OK(NULL, kcr_ring_wait(ring, -1));
			if (take(rank, ring, &in))
				return 1;
		}
		RANK_REFUSED(-ESHUTDOWN, NULL, kcr_ring_wait(ring, -1), left);
		RANK_REFUSED(-ESHUTDOWN, NULL, kcr_ring_poll(ring, ring_receive, &in),
			     left);
	}
	RANK_GIVES(-ESHUTDOWN, NULL, kcr_ring_destroy(ring));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

/* One gives the ring up while another still sends. */
static int given_up(struct cluster *c, int rank)
{
	static const unsigned int flags[] = { 0, KCR_RING_RAW };
	int last = c->size - 1, i;
	struct kcr_ring *ring;
	struct kcr_world *w;
	char text[64];

	snprintf(text, sizeof(text), "rank %d has given up the ring", last);
	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		if (begin_pair(c, rank, flags[i], &w, &ring))
			return 1;
		RANK_MEET(c);
		if (!rank) {
			const struct kcr_lane_status *status = ring->to[last]->remote;

			while (__atomic_load_n(&status->state, __ATOMIC_ACQUIRE) !=
			       KCR_LANE_ENDED)
				ranks_sleep(0.001);
			RANK_TRUE(ring_send(ring, 0, last, 1, -1) == -ESHUTDOWN);
			RANK_SAYS(NULL, text);
			RANK_TRUE(ring_send(ring, 0, last, 1, 0) == -ESHUTDOWN);
		}
		if (end(rank, w, ring))
			return 1;
	}
	return 0;
}

/* ---- who polls makes no system call ---- */

/* Rank 0's part, between marks; the others answer for themselves. */
static int poll_steadily(struct cluster *c, int rank)
{
	int last = c->size - 1, run, i;
	struct kcr_ring *ring;
	struct kcr_world *w;

	if (begin_pair(c, rank, 0, &w, &ring))
		return 1;
	struct ring_inbox in = { .ring = ring, .rank = rank };

	if (!rank)
		RANK_TRUE(!trace_me());
	for (run = 0; run < TRACE_RUNS; run++) {
		RANK_MEET(c);
		for (i = 1; rank == last && i <= DEPTH; i++)
			RANK_TRUE(ring_send(ring, last, 0, run * DEPTH + i, -1) > 0);
		if (rank)
			continue;
		trace_mark();
		while (in.count < (run + 1) * DEPTH)
			if (take(rank, ring, &in))
				return 1;
		trace_mark();
		RANK_OK(NULL, kcr_ring_ack(ring, last, in.last[last]));
	}
	RANK_MEET(c);
	return end(rank, w, ring);
}

static int mark_only(void)
{
	if (trace_me())
		return 1;
	for (int run = 0; run < TRACE_RUNS; run++) {
		trace_mark();
		trace_mark();
	}
	return 0;
}

/* What a child of rank 0's does, or if @c is NULL one that does nothing. */
static int trace_child(struct cluster *c, struct trace *t)
{
	int status = -1, result;
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		result = c ? poll_steadily(c, 0) : mark_only();
		fflush(NULL);
		_exit(result);
	}
	return trace_all(&pid, &status, t, 1, 100 * pace());
}

static int polls(struct cluster *c, int rank)
{
	struct trace empty = { 0 }, polled = { 0 };

	if (rank)
		return poll_steadily(c, rank);
	RANK_TRUE(!trace_child(NULL, &empty));
	RANK_TRUE(!trace_child(c, &polled));
	RANK_TRUE(polled.marks == 2 * TRACE_RUNS && empty.marks == polled.marks);
	for (int run = 0; run < TRACE_RUNS; run++)
		if (polled.calls[run] != empty.calls[run])
			RANK_FAIL("run %d: %d system calls for %d messages, the last is number %lld",
				  run, (polled.calls[run] - empty.calls[run]) / 2, DEPTH,
				  polled.last[run]);
	return 0;
}

/* What no lane between nodes can be is refused on every rank. */
static int too_large(struct cluster *c, int rank)
{
	const struct kcr_lane deep = { 0, c->size - 1, 11, 1 << 20 };
	const struct kcr_lane wide = { 0, c->size - 1, 1, (1 << 20) + 1 };
	struct kcr_ring *ring;
	struct kcr_world *w;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_REFUSED(-EINVAL, w, kcr_ring_create(w, &deep, 1, 0, &ring), "10 slots at most");
	RANK_REFUSED(-EINVAL, w, kcr_ring_create(w, &wide, 1, 0, &ring),
		     "none takes messages of 1048577 bytes");
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

static const struct cluster_case cases[] = {
	{ "messages on safe lanes", safe, 300 },
	{ "messages on raw lanes", raw, 300 },
	{ "a reader that looks now and then", laps },
	{ "who polls makes no system call", polls, 120 },
	{ "who sleeps is woken", asleep, 120 },
	{ "a full lane", full },
	{ "rings come and go", again, 120 },
	{ "too large", too_large },
	{ "a rank leaves", leaves },
	{ "one gives the ring up", given_up },
	{ "a rank dies", dies, 120, DEAD },
};

int main(int argc, char **argv)
{
	return cluster_main(argc, argv, cases, ARRAY_SIZE(cases), 2);
}
