// SPDX-License-Identifier: GPL-2.0
/*
 * Message rings between nodes, and a peer that does not keep to the rules: the last rank
 * writes what it likes into the images of its slots and into its counters, and has the
 * module send that to rank 0, whose calls say so, each time by its own error.
 *
 * The library's commands to the module pass through the function below (--wrap).
 */
#include <sys/ioctl.h>
#include "cluster.h"
#include "ring.h"
#include "wrap.h"
#include "../../lib/ring.h"

#define DEPTH		4
#define CAPACITY	100
/* What stays half landed for so long is damage, in ns: packets land in less. */
#define PATIENCE	200000000

static bool is_unequal;		/* what this rank tells the module of its lanes */
static int busy;		/* so many times the module still has lanes of an earlier one */

int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	struct kcr_window *window = arg;

	if (request != KCR_IOCTL_WINDOW || !(window->flags & KCR_WINDOW_REMOTE))
		return __real_ioctl(fd, request, arg);
	if (is_unequal)
		((struct kcr_lane_desc *)(uintptr_t)window->lanes)->depth++;
	if (busy && busy--) {
		errno = EBUSY;
		return -1;
	}
	return __real_ioctl(fd, request, arg);
}

static int make(struct cluster *c, int rank, struct kcr_world *w, unsigned int flags,
		struct kcr_ring **ring)
{
	const struct kcr_lane lanes[] = {
		{ 0, c->size - 1, DEPTH, CAPACITY }, { c->size - 1, 0, DEPTH, CAPACITY },
	};

	RANK_OK(w, kcr_ring_create(w, lanes, 2, flags, ring));
	(*ring)->remote_patience_ns = PATIENCE;
	return 0;
}

/* ---- what the last rank does ---- */

static struct kcr_slot *slot_of(const struct slots *s, uint64_t sequence)
{
	return (struct kcr_slot *)(s->base + (sequence - 1) % s->depth * s->stride);
}

static bool has_landed(const struct ring_tx *tx, uint64_t sequence)
{
	return __atomic_load_n(&tx->remote->done, __ATOMIC_ACQUIRE) >= sequence;
}

/* Send what is in the image in the place of message @sequence, and see it land. */
static int put(int rank, struct kcr_ring *ring, uint64_t sequence)
{
	struct kcr_put args = {
		.size = sizeof(args),
		.window = ring->remote_window,
		.sequence = sequence,
		.count = 1,
	};
	double until = ranks_now() + 20 * pace();
	int err;

	while ((err = ioctl(ring->fd, KCR_IOCTL_PUT, &args)) && errno == ENOBUFS)
		ranks_sleep(0.001);
	if (err)
		RANK_FAIL("the module does not send: %s", strerror(errno));
	while (!has_landed(ring->to[0], sequence)) {
		RANK_TRUE(ranks_now() < until);
		ranks_sleep(0.001);
	}
	return 0;
}

/* Likewise what is in the page for acknowledgements, without waiting. */
static int put_ack(int rank, struct kcr_ring *ring)
{
	struct kcr_put_ack args = {
		.size = sizeof(args),
		.window = ring->remote_window,
	};

	if (ioctl(ring->fd, KCR_IOCTL_ACK, &args))
		RANK_FAIL("the module does not send: %s", strerror(errno));
	return 0;
}

static struct kcr_slot *write_message(struct kcr_ring *ring, uint64_t sequence)
{
	const struct slots *slots = &ring->to[0]->slots;
	int source = ring->rank;
	unsigned char data[CAPACITY];
	size_t bytes = ring_bytes(source, 0, sequence, CAPACITY);

	ring_fill(data, bytes, ring_seed(source, 0, sequence));
	ring_write(slots, sequence, data, bytes);
	return slot_of(slots, sequence);
}

/* ---- damage ---- */

enum damage {
	PAYLOAD,
	CHECKSUM,
	GUARD,
	LENGTH,
	OTHER_SEQUENCE,
	DAMAGES,
};

static void spoil(struct kcr_slot *slot, enum damage damage)
{
	unsigned char *bytes = (unsigned char *)slot;

	switch (damage) {
	case PAYLOAD:
		bytes[KCR_SLOT_PAYLOAD] ^= 1;
		break;
	case CHECKSUM:
		slot->checksum ^= 1 << 31;
		break;
	case GUARD:
		bytes[KCR_SLOT_GUARD(slot->length)] ^= 0x80;
		break;
	case LENGTH:
		slot->length ^= 8;
		break;
	default:
		slot->sequence ^= 1ull << 40;
	}
}

/* Message 1 is good, 2 is not, 3 is again. All have at least a byte. */
static int send_damaged(int rank, struct kcr_ring *ring, enum damage damage)
{
	static const unsigned char data[20] = "as it was written";

	for (uint64_t s = 1; s <= 3; s++) {
		ring_write(&ring->to[0]->slots, s, data, sizeof(data));
		if (s == 2)
			spoil(slot_of(&ring->to[0]->slots, s), damage);
		if (put(rank, ring, s))
			return 1;
	}
	return 0;
}

struct seen {
	int count;
	uint64_t last;
	int wrong;
};

static int see(void *arg, int origin, uint64_t sequence, const void *data, size_t bytes)
{
	struct seen *seen = arg;

	if (bytes != 20 || strcmp(data, "as it was written"))
		seen->wrong++;
	seen->count++;
	seen->last = sequence;
	return 0;
}

/* Poll until @want messages were seen, or that gives an error, which is returned. */
static int poll_until(struct kcr_ring *ring, struct seen *seen, int want)
{
	double until = ranks_now() + 20 * pace();
	int result = 0;

	while (seen->count < want && result >= 0 && ranks_now() < until)
		result = kcr_ring_poll(ring, see, seen);
	return result < 0 ? result : 0;
}

static int see_damage(int rank, struct kcr_ring *ring, bool is_raw, int origin)
{
	struct kcr_ring_stats stats;
	struct seen seen = { 0 };
	char text[64];

	if (is_raw) {
		RANK_OK(NULL, poll_until(ring, &seen, 2));
		RANK_TRUE(seen.last == 3);
	} else {
		snprintf(text, sizeof(text), "message 2 from rank %d is damaged", origin);
		RANK_REFUSED(-EBADMSG, NULL, poll_until(ring, &seen, 2), text);
		RANK_REFUSED(-EBADMSG, NULL, kcr_ring_poll(ring, see, &seen), text);
		RANK_TRUE(seen.last == 1);
	}
	RANK_TRUE(seen.count == 1 + is_raw && !seen.wrong);
	RANK_OK(NULL, kcr_ring_stats(ring, &stats));
	RANK_TRUE(stats.corrupt == 1 && !stats.lost && stats.received == seen.count);
	return 0;
}

static int damaged(struct cluster *c, int rank)
{
	int last = c->size - 1;
	struct kcr_ring *ring;
	struct kcr_world *w;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (int i = 0; i < 2 * DAMAGES; i++) {
		if (make(c, rank, w, i % 2 ? KCR_RING_RAW : 0, &ring))
			return 1;
		if (rank == last && send_damaged(rank, ring, i / 2))
			return 1;
		if (!rank && see_damage(rank, ring, i % 2, last))
			RANK_FAIL("damage %d, %s", i / 2, i % 2 ? "raw" : "safe");
		RANK_MEET(c);
		RANK_OK(w, kcr_ring_destroy(ring));
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

/* One that has not waited: before any was received, and after all were. */
static int by_force(struct cluster *c, int rank)
{
	int last = c->size - 1;
	struct kcr_ring *ring;
	struct kcr_world *w;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (int is_received = 0; is_received < 2; is_received++) {
		struct ring_inbox in = { .rank = rank };

		if (make(c, rank, w, 0, &ring))
			return 1;
		in.ring = ring;
		for (uint64_t s = 1; s <= 2 * DEPTH; s++) {
			if (s == DEPTH + 1) {
				while (!rank && is_received && in.count < DEPTH)
					RANK_TRUE(kcr_ring_poll(ring, ring_receive, &in) >= 0);
				RANK_MEET(c);
			}
			if (rank != last)
				continue;
			write_message(ring, s);
			if (put(rank, ring, s))
				return 1;
		}
		RANK_MEET(c);
		if (!rank) {
			for (int again = 0; again < 2; again++)
				RANK_REFUSED(-EOVERFLOW, NULL,
					     kcr_ring_poll(ring, ring_receive, &in),
					     "has overwritten message 1, which");
			RANK_TRUE(in.count == (is_received ? DEPTH : 0) && !in.wrong);
		}
		RANK_OK(w, kcr_ring_destroy(ring));
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

/* ---- counters ---- */

/* What the last rank has written, and what rank 0's sends come to. */
static const struct {
	struct kcr_ack ack;
	int err;
	const char *says;
} counts[] = {
	{ { 2, ~2ull }, 0 },
	{ { 1, ~1ull }, -ESTALE, "went backwards: 1, where it had 2 of 6" },
	{ { 7, ~7ull }, -ERANGE, "is past what was sent: 7" },
	{ { -1ull, 0 }, -ERANGE, "is past what was sent" },
	{ { 6, ~2ull }, -EUCLEAN, "is not one and stays so" },
	{ { 6, ~6ull }, 0 },
};

/* Send until that gives what it should; what was there before may still be seen. */
static int send_until(int rank, struct kcr_ring *ring, uint64_t *next, int want)
{
	double until = ranks_now() + 20 * pace();
	int peer = ring->tx[0].peer;
	int64_t sent;

	do {
		sent = ring_send(ring, rank, peer, *next, 0);
		if (sent > 0)
			*next = sent + 1;
	} while ((want ? sent != want : sent <= 0) && ranks_now() < until);
	if (want ? sent != want : sent <= 0)
		RANK_FAIL("message %llu: %lld, not %d: %s", (unsigned long long)*next,
			  (long long)sent, want, kcr_error(NULL));
	return 0;
}

static int bad_counts(struct cluster *c, int rank)
{
	int last = c->size - 1, i;
	struct ring_inbox in = { .rank = rank };
	struct kcr_ring_stats stats;
	struct kcr_ring *ring;
	struct kcr_world *w;
	uint64_t next = 1;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	if (make(c, rank, w, 0, &ring))
		return 1;
	in.ring = ring;
	for (; !rank && next <= DEPTH; next++)
		RANK_TRUE(ring_send(ring, 0, last, next, -1) == next);
	while (rank == last && in.count < DEPTH)
		RANK_TRUE(kcr_ring_poll(ring, ring_receive, &in) >= 0);
	for (i = 0; i < ARRAY_SIZE(counts); i++) {
		if (rank == last) {
			*ring->rx[0].ack = counts[i].ack;
			if (put_ack(rank, ring))
				return 1;
		}
		if (!rank && send_until(rank, ring, &next, counts[i].err))
			RANK_FAIL("count %d", i);
		if (!rank && counts[i].err) {
			RANK_SAYS(NULL, counts[i].says);
			RANK_TRUE(ring_send(ring, 0, last, next, -1) == counts[i].err);
		}
		if (!rank && !i)
			RANK_TRUE(ring_send(ring, 0, last, next++, -1) == 6);
		RANK_MEET(c);
	}
	RANK_OK(NULL, kcr_ring_stats(ring, &stats));
	RANK_TRUE(stats.sent == (rank ? 0 : 7));
	RANK_OK(w, kcr_ring_destroy(ring));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

/* ---- at random ---- */

#define PUTS	100
/* Where the last rank says that it is done, which it does not write otherwise. */
#define OVER	0xdeadull

static int vandalise(int rank, struct kcr_ring *ring, uint64_t seed)
{
	uint64_t random = seed, *ack = (uint64_t *)ring->rx[0].ack;
	struct kcr_slot *slot;
	uint64_t h, n;

	for (uint64_t s = 1; s <= PUTS; s++) {
		slot = write_message(ring, s);
		h = data_random(&random);
		n = data_random(&random);
		switch (h % 8) {
		case 0:
			((unsigned char *)slot)[n % KCR_SLOT_STRIDE(CAPACITY)] ^= h >> 8;
			break;
		case 1:
			slot->sequence = n >> h / 8 % 64;
			break;
		case 2:
			ring_write(&ring->to[0]->slots, s + n % 4 * DEPTH, &h, sizeof(h));
			break;
		case 3:
			slot->length = n % (CAPACITY + 1);
			break;
		default:
			break;
		}
		/* More than that the module does not send. */
		if (slot->length > CAPACITY)
			slot->length = CAPACITY;
		if (s == PUTS)
			slot->sequence = OVER;
		ack[h / 8 % 2] = n >> h / 16 % 64;
		if (h / 1024 % 4)
			ack[1] = ~ack[0];
		if (put(rank, ring, s) || put_ack(rank, ring))
			return 1;
	}
	return 0;
}

/* Is it one of those that a call may give when a peer does not keep to the rules? */
static bool is_known(int64_t result)
{
	return result >= 0 || result == -EAGAIN || result == -EBADMSG ||
	       result == -EOVERFLOW || result == -ESTALE || result == -ERANGE ||
	       result == -EUCLEAN || result == -ETIMEDOUT;
}

struct victim {
	uint64_t last, count;
	int wrong;
};

static int suffer(void *arg, int origin, uint64_t sequence, const void *data, size_t bytes)
{
	struct victim *v = arg;
	volatile unsigned char sum = 0;

	if (bytes > CAPACITY || sequence <= v->last || sequence > INT64_MAX)
		v->wrong++;
	for (size_t i = 0; i < bytes; i++)
		sum += ((const unsigned char *)data)[i];
	v->last = sequence;
	v->count++;
	return 0;
}

static int endure(int rank, struct kcr_ring *ring)
{
	const struct kcr_slot *end = slot_of(&ring->rx[0].slots, PUTS);
	int last = ring->rx[0].peer, k;
	struct kcr_ring_stats stats;
	struct victim v = { 0 };
	int64_t results[4];
	uint64_t next = 1, i;

	for (i = 0; __atomic_load_n(&end->sequence, __ATOMIC_ACQUIRE) != OVER; i++) {
		results[0] = kcr_ring_poll(ring, suffer, &v);
		results[1] = ring_send(ring, 0, last, next, 0);
		results[2] = kcr_ring_ack(ring, last, v.last);
		/* Each time it sleeps it tells the peer so. */
		results[3] = i % 64 ? 0 : kcr_ring_wait(ring, 10000);
		next += results[1] > 0;
		for (k = 0; k < 4; k++)
			if (!is_known(results[k]))
				RANK_FAIL("call %d gave %lld: %s", k, (long long)results[k],
					  kcr_error(NULL));
	}
	RANK_OK(NULL, kcr_ring_stats(ring, &stats));
	RANK_TRUE(!v.wrong && v.count == stats.received);
	return 0;
}

static int at_random(struct cluster *c, int rank)
{
	int last = c->size - 1, round;
	struct kcr_ring *ring;
	struct kcr_world *w;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (round = 0; round < 6; round++) {
		if (make(c, rank, w, round % 2 ? KCR_RING_RAW : 0, &ring))
			return 1;
		ring->remote_patience_ns = 20000;
		if (rank == last && vandalise(rank, ring, 1000003 * round))
			return 1;
		if (!rank && endure(rank, ring))
			return 1;
		RANK_MEET(c);
		RANK_OK(w, kcr_ring_destroy(ring));
	}
	/* No world has ended of it. */
	RANK_OK(w, kcr_barrier(w));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

/* ---- making a ring ---- */

/* It tells the library the same as the others, and its module something else. */
static int unequal(struct cluster *c, int rank)
{
	const struct kcr_lane lane = { 0, c->size - 1, DEPTH, CAPACITY };
	int last = c->size - 1;
	struct kcr_ring *ring;
	struct kcr_world *w;
	char text[80];

	snprintf(text, sizeof(text), "lane 0 -> %d has depth 5 and capacity 100 at rank %d",
		 last, last);
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	is_unequal = rank == last;
	if (rank == last)
		RANK_GIVES(-EPROTO, w, kcr_ring_create(w, &lane, 1, 0, &ring));
	else
		RANK_REFUSED(-EPROTO, w, kcr_ring_create(w, &lane, 1, 0, &ring), text);
	is_unequal = false;
	if (make(c, rank, w, 0, &ring))
		return 1;
	RANK_OK(w, kcr_ring_destroy(ring));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

/* As long as a peer's module does not say that it has let go of an earlier ring's lanes. */
static int earlier(struct cluster *c, int rank)
{
	const struct kcr_lane lane = { 0, c->size - 1, DEPTH, CAPACITY };
	struct kcr_ring *ring;
	struct kcr_world *w;
	uint64_t timeout_ms;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	timeout_ms = w->config.timeout_ms;
	busy = rank ? 0 : INT32_MAX;
	/* Sooner than the others, who wait for what becomes of it. */
	if (!rank)
		w->config.timeout_ms = 1000;
	RANK_REFUSED(-ETIMEDOUT, w, kcr_ring_create(w, &lane, 1, 0, &ring),
		     "peers still have lanes of an earlier ring after 1.");
	RANK_TRUE(rank || busy < INT32_MAX);
	w->config.timeout_ms = timeout_ms;
	busy = rank ? 0 : 3;
	if (make(c, rank, w, 0, &ring))
		return 1;
	RANK_TRUE(!busy);
	RANK_OK(w, kcr_ring_destroy(ring));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

static const struct cluster_case cases[] = {
	{ "a damaged message", damaged, 120 },
	{ "a lane overwritten by force", by_force },
	{ "counters that are wrong", bad_counts },
	{ "a peer at random", at_random, 120 },
	{ "lanes that are not alike", unequal },
	{ "lanes of an earlier ring", earlier },
};

int main(int argc, char **argv)
{
	return cluster_main(argc, argv, cases, ARRAY_SIZE(cases), 2);
}
