// SPDX-License-Identifier: GPL-2.0
/*
 * Message rings whose memory is not as its owners should have left it: damage, writers
 * that are slow or do not wait, counters that are wrong, and a peer that writes all it may
 * at random.
 *
 * Ranks are threads of the test (lib/inside.h), which has both ends of each lane mapped.
 */
#include "kselftest_harness.h"
#include "inside.h"
#include "ring.h"
#include "wrap.h"
#include "../../lib/ring.h"

#define RANKS		3
#define DEPTH		4
#define CAPACITY	100
#define PATIENCE	2000000		/* ns, where damage is to be seen soon */

static const struct kcr_lane lanes[] = {
	{ 0, 1, DEPTH, CAPACITY }, { 2, 1, DEPTH, CAPACITY }, { 1, 0, DEPTH, CAPACITY },
};

FIXTURE(hostile) {
	struct inside in;
	struct kcr_ring *r[RANKS];
	struct ring_inbox box;
	struct slots *slots;		/* 0 -> 1, as the source has it */
};

struct plan {
	struct kcr_ring **rings;
	unsigned int flags;
	uint64_t patience;
};

static int make(int rank, struct kcr_world *w, void *arg)
{
	struct plan *p = arg;

	RANK_OK(w, kcr_ring_create(w, lanes, 3, p->flags, &p->rings[rank]));
	p->rings[rank]->patience_ns = p->patience;
	return 0;
}

static int drop(int rank, struct kcr_world *w, void *arg)
{
	struct kcr_ring **rings = arg;

	RANK_OK(w, kcr_ring_destroy(rings[rank]));
	rings[rank] = NULL;
	return 0;
}

#define MAKE(ring_flags, ring_patience) do {				\
	struct plan make_plan = { self->r, ring_flags, ring_patience };	\
									\
	ASSERT_EQ(0, inside_each(&self->in, make, &make_plan));		\
	self->box = (struct ring_inbox){ .ring = self->r[1], .rank = 1 };	\
	self->slots = &self->r[0]->to[1]->slots;			\
} while (0)

#define DROP() ASSERT_EQ(0, inside_each(&self->in, drop, self->r))
#define POLL() kcr_ring_poll(self->r[1], ring_receive, &self->box)
#define SEND(n) ring_send(self->r[0], 0, 1, n, 0)

FIXTURE_SETUP(hostile)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	ASSERT_EQ(0, inside_open(&self->in, RANKS));
}

FIXTURE_TEARDOWN(hostile)
{
	if (self->r[0])
		inside_each(&self->in, drop, self->r);
	inside_close(&self->in);
}

/* Poll until that gives something but 0. */
static int poll_on(struct kcr_ring *ring, struct ring_inbox *box)
{
	double deadline = ranks_now() + 20 * pace();
	int result;

	do {
		result = kcr_ring_poll(ring, ring_receive, box);
	} while (!result && ranks_now() < deadline);
	return result;
}

static uint64_t stat_of(struct kcr_ring *ring, size_t offset)
{
	struct kcr_ring_stats stats;

	return kcr_ring_stats(ring, &stats) ? UINT64_MAX :
	       *(uint64_t *)((char *)&stats + offset);
}

#define STAT(rank, name) stat_of(self->r[rank], offsetof(struct kcr_ring_stats, name))

static unsigned char *slot_of(const struct slots *s, uint64_t sequence)
{
	return s->base + (sequence - 1) % s->depth * s->stride;
}

static int is_readable(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, timeout_ms);
}

/* Is it between payload and guard, where nobody looks? */
static int is_padding(size_t at, size_t bytes)
{
	return at >= KCR_SLOT_PAYLOAD + bytes && at < KCR_SLOT_GUARD(bytes);
}

TEST_F(hostile, a_damaged_byte_ends_a_safe_lane)
{
	const size_t bytes = 13, used = KCR_SLOT_GUARD(bytes) + 8;
	unsigned char data[CAPACITY];

	for (size_t at = 0; at < used; at++) {
		if (is_padding(at, bytes))
			continue;
		MAKE(0, PATIENCE);
		ring_fill(data, bytes, at);
		ASSERT_EQ(1, kcr_ring_send(self->r[0], 1, data, bytes));
		ASSERT_EQ(2, kcr_ring_send(self->r[0], 1, data, bytes));
		slot_of(self->slots, 1)[at] ^= 0x5a;
		EXPECT_EQ(-EBADMSG, poll_on(self->r[1], &self->box)) {
			TH_LOG("byte %zu: %s", at, kcr_error(NULL));
		}
		EXPECT_NE(NULL, strstr(kcr_error(NULL),
				       "lane 0 -> 1: message 1 from rank 0 is damaged"));
		EXPECT_EQ(0, self->box.count);
		EXPECT_EQ(1, STAT(1, corrupt));
		EXPECT_LT(0, STAT(1, torn));
		/* The error stays, is no news, and does not keep others from coming. */
		slot_of(self->slots, 1)[at] ^= 0x5a;
		EXPECT_EQ(-EAGAIN, kcr_ring_wait(self->r[1], 0));
		ASSERT_EQ(1, ring_send(self->r[2], 2, 1, 1, 0));
		EXPECT_EQ(0, kcr_ring_wait(self->r[1], 0));
		EXPECT_EQ(-EBADMSG, POLL());
		EXPECT_EQ(1, self->box.count);
		EXPECT_EQ(1, self->box.last[2]);
		EXPECT_EQ(1, STAT(1, corrupt));
		DROP();
	}
}

/* What has come of messages of full capacity: a kcr_ring_fn's argument. */
struct full {
	uint64_t last;
	int wrong;
};

static int receive_full(void *arg, int origin, uint64_t sequence, const void *data,
			size_t bytes)
{
	struct full *f = arg;

	if (origin || bytes != CAPACITY || ring_differs(data, bytes, sequence))
		f->wrong++;
	f->last = sequence;
	return 0;
}

static int64_t send_full(struct kcr_ring *ring, uint64_t sequence)
{
	unsigned char data[CAPACITY];

	ring_fill(data, CAPACITY, sequence);
	return kcr_ring_send(ring, 1, data, CAPACITY);
}

TEST_F(hostile, a_damaged_byte_costs_a_raw_lane_one_message)
{
	const size_t used = KCR_SLOT_GUARD(CAPACITY) + 8;
	uint64_t n = 1, damaged = 0;
	struct full full = { 0 };
	int got;

	MAKE(KCR_RING_RAW, PATIENCE);
	for (size_t at = 0; at < used; at++, n += 2) {
		double deadline = ranks_now() + 20 * pace();

		ASSERT_EQ(n, send_full(self->r[0], n));
		ASSERT_EQ(n + 1, send_full(self->r[0], n + 1));
		slot_of(self->slots, n)[at] ^= 0x5a;
		damaged += !is_padding(at, CAPACITY);
		do {
			got = kcr_ring_poll(self->r[1], receive_full, &full);
		} while (!got && ranks_now() < deadline);
		EXPECT_EQ(is_padding(at, CAPACITY) ? 2 : 1, got) {
			TH_LOG("byte %zu of message %llu", at, (unsigned long long)n);
		}
		EXPECT_EQ(n + 1, full.last);
		EXPECT_EQ(damaged, STAT(1, corrupt));
	}
	EXPECT_EQ(KCR_SLOT_PAYLOAD + CAPACITY + 8, damaged);
	EXPECT_EQ(0, STAT(1, lost));
	EXPECT_EQ(0, full.wrong);
}

/* Where the sequence is damaged, who polls must not run ahead of the source. */
TEST_F(hostile, a_damaged_sequence_and_a_source_that_waits)
{
	const uint64_t rubbish = 0x5a5a5a5a5a5a;
	uint64_t n;

	MAKE(KCR_RING_RAW, PATIENCE);
	for (uint64_t deep = 0; deep < 2; deep++) {
		/* The last of those that are there; then, of a lane of one slot, the only one. */
		if (deep) {
			self->slots->depth = 1;
			self->r[1]->from[0]->slots.depth = 1;
		}
		n = self->slots->next;
		ASSERT_EQ(n, SEND(n));
		*(uint64_t *)slot_of(self->slots, n) = rubbish;
		for (int i = 0; i < 10; i++) {
			EXPECT_EQ(0, POLL());
			ranks_sleep(2 * PATIENCE / 1e9);
		}
		EXPECT_EQ(n, self->r[1]->from[0]->slots.next);
		EXPECT_EQ(-EAGAIN, kcr_ring_wait(self->r[1], 0));
		for (int i = 1; i < 3 * DEPTH; i++) {
			ASSERT_EQ(n + i, SEND(n + i));
			EXPECT_EQ(0, kcr_ring_wait(self->r[1], 0));
			EXPECT_EQ(1, POLL());
			EXPECT_EQ(n + i, self->box.last[0]);
		}
	}
	EXPECT_EQ(0, self->box.wrong);
	EXPECT_EQ(2, self->box.gaps);
	EXPECT_EQ(2, STAT(1, corrupt) + STAT(1, lost));
}

/*
 * What a poll has found torn is nothing to wake up for until it is whole, or damage: else
 * who waits and polls in turn would never sleep.
 */
TEST_F_TIMEOUT(hostile, waiting_while_it_is_torn, 120)
{
	static const struct kcr_lane_status status;
	unsigned char *byte;
	int fd;

	for (int form = 0; form < 4; form++) {
		MAKE(form % 2 ? KCR_RING_RAW : 0, 20000000000ull * pace());
		self->r[1]->remote_patience_ns = self->r[1]->patience_ns;
		self->r[1]->from[0]->remote = form / 2 ? &status : NULL;
		fd = kcr_ring_fd(self->r[1]);
		ASSERT_LE(0, fd);
		byte = slot_of(self->slots, 1) + KCR_SLOT_PAYLOAD + 24;
		ASSERT_EQ(1, kcr_ring_send(self->r[0], 1, "a message of some length", 24));
		/* Of the guard: the length and what is counted are as they were. */
		*byte ^= 1;
		EXPECT_EQ(0, kcr_ring_wait(self->r[1], 0));
		EXPECT_EQ(0, POLL());
		EXPECT_EQ(-EAGAIN, kcr_ring_wait(self->r[1], 0));
		EXPECT_EQ(-ETIMEDOUT, kcr_ring_wait(self->r[1], PATIENCE));
		EXPECT_EQ(0, is_readable(fd, 50));
		/* Another lane's is there all the same. */
		ASSERT_EQ(1, ring_send(self->r[2], 2, 1, 1, 0));
		EXPECT_EQ(0, kcr_ring_wait(self->r[1], 0));
		EXPECT_EQ(1, is_readable(fd, 20000));
		EXPECT_EQ(1, POLL());
		EXPECT_EQ(-EAGAIN, kcr_ring_wait(self->r[1], 0));
		*byte ^= 1;
		self->r[1]->link->carrier->ops->rings->kick(self->r[1]->link, 1);
		EXPECT_EQ(0, kcr_ring_wait(self->r[1], -1));
		EXPECT_EQ(1, is_readable(fd, 20000));
		EXPECT_EQ(1, POLL());
		EXPECT_EQ(0, is_readable(fd, 0));

		/* The next one never gets whole. Nobody need poll for that to be seen. */
		self->r[1]->patience_ns = 20 * PATIENCE;
		self->r[1]->remote_patience_ns = 20 * PATIENCE;
		ASSERT_EQ(2, kcr_ring_send(self->r[0], 1, "a message of some length", 24));
		slot_of(self->slots, 2)[KCR_SLOT_PAYLOAD] ^= 1;
		EXPECT_EQ(0, POLL());
		EXPECT_EQ(0, kcr_ring_wait(self->r[1], -1));
		EXPECT_EQ(1, is_readable(fd, 20000));
		EXPECT_EQ(form % 2 ? 0 : -EBADMSG, POLL());
		EXPECT_EQ(1, STAT(1, corrupt));
		self->r[1]->from[0]->remote = NULL;
		DROP();
	}
}

static __thread unsigned int exact_times;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	exact_times += clock != CLOCK_MONOTONIC_COARSE;
	return __real_clock_gettime(clock, now);
}

/*
 * The exact time is a system call where the machine's clock is a device, as in many a virtual
 * machine. Who polls, or finds a lane full, makes none, be what is found whole or not.
 */
TEST_F(hostile, what_is_torn_costs_no_system_call)
{
	static const struct kcr_lane_status status;
	unsigned char *byte, *count;

	for (int form = 0; form < 4; form++) {
		MAKE(form % 2 ? KCR_RING_RAW : 0, 20000000000ull * pace());
		self->r[1]->remote_patience_ns = self->r[1]->patience_ns;
		self->r[1]->from[0]->remote = form / 2 ? &status : NULL;
		byte = slot_of(self->slots, 1) + KCR_SLOT_PAYLOAD;
		exact_times = 0;
		for (int n = 1; n <= DEPTH; n++)
			ASSERT_EQ(n, SEND(n));
		*byte ^= 1;
		for (int look = 0; look < 100; look++)
			ASSERT_EQ(0, POLL());
		EXPECT_NE(0, STAT(1, torn));
		*byte ^= 1;
		ASSERT_EQ(DEPTH, POLL());
		if (form % 2 == 0) {
			/* The counter says what no counter can. */
			count = (unsigned char *)self->r[1]->from[0]->ack;
			*count ^= 1;
			for (int look = 0; look < 100; look++)
				ASSERT_EQ(-EAGAIN, SEND(DEPTH + 1));
			*count ^= 1;
		}
		EXPECT_EQ(0, exact_times);
		self->r[1]->from[0]->remote = NULL;
		DROP();
	}
}

/* A source that stops in the middle of a write hides one message, not those behind it. */
TEST_F(hostile, a_raw_source_that_stops_in_a_write)
{
	MAKE(KCR_RING_RAW, PATIENCE);
	for (uint64_t n = 1; n <= 4 * DEPTH; n++) {
		ASSERT_EQ(n, SEND(n));
		if (n % DEPTH)
			continue;
		*(uint64_t *)slot_of(self->slots, n + 1) = 0;
		EXPECT_EQ(0, kcr_ring_wait(self->r[1], 0));
		EXPECT_EQ(DEPTH - 1, POLL());
		EXPECT_EQ(n, self->box.last[0]);
		EXPECT_EQ(n / DEPTH, STAT(1, lost));
		EXPECT_EQ(-EAGAIN, kcr_ring_wait(self->r[1], 0));
		EXPECT_EQ(0, POLL());
	}
	EXPECT_EQ(0, STAT(1, corrupt));
	EXPECT_EQ(0, self->box.wrong);
}

/* A lane's error is news once, and hides neither who has left nor the world's end. */
TEST_F(hostile, what_comes_after_a_broken_lane)
{
	struct kcr_status *status;
	uint8_t joined;
	int fd;

	MAKE(0, PATIENCE);
	if (strcmp(kcr_link_name(self->r[1]->world), "shm"))
		SKIP(return, "only over shared memory a rank can write what has become of others");
	status = self->r[1]->link->status;
	joined = status->member[2];
	fd = kcr_ring_fd(self->r[1]);
	ASSERT_LE(0, fd);
	ASSERT_EQ(1, SEND(1));
	slot_of(self->slots, 1)[KCR_SLOT_PAYLOAD] ^= 1;
	EXPECT_EQ(-EBADMSG, poll_on(self->r[1], &self->box));
	EXPECT_EQ(0, is_readable(fd, 50));
	EXPECT_EQ(-EBADMSG, POLL());
	ASSERT_EQ(1, ring_send(self->r[2], 2, 1, 1, 0));
	EXPECT_EQ(1, is_readable(fd, 20000));
	status->member[2] = KCR_MEMBER_LEFT;
	EXPECT_EQ(-EBADMSG, POLL());
	EXPECT_EQ(1, self->box.count);
	EXPECT_EQ(-ESHUTDOWN, POLL());
	EXPECT_NE(NULL, strstr(kcr_error(NULL), ": rank 2 left"));
	EXPECT_EQ(-ESHUTDOWN, kcr_ring_wait(self->r[1], -1));
	status->member[2] = joined;
	EXPECT_EQ(-EBADMSG, POLL());
	status->cause = KCR_CAUSE(2, ECONNRESET);
	EXPECT_EQ(-ECONNRESET, POLL());
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "rank 2 died"));
	EXPECT_EQ(-ECONNRESET, kcr_ring_wait(self->r[1], -1));
	status->cause = 0;
}

TEST_F(hostile, a_safe_lane_overwritten_by_force)
{
	unsigned char data[8] = "by force";

	for (uint64_t laps = 1; laps < 3; laps++) {
		MAKE(0, PATIENCE);
		for (uint64_t n = 1; n <= 2 * DEPTH; n++)
			ASSERT_EQ(n > DEPTH ? -EAGAIN : (int64_t)n, SEND(n));
		ASSERT_EQ(DEPTH, POLL());
		for (uint64_t n = DEPTH + 1; n <= (1 + laps) * DEPTH + 1; n++)
			ring_write(self->slots, n, data, sizeof(data));
		EXPECT_EQ(-EOVERFLOW, POLL());
		EXPECT_NE(NULL, strstr(kcr_error(NULL), "rank 0 has overwritten message 5"));
		EXPECT_EQ(-EOVERFLOW, POLL());
		EXPECT_EQ(0, STAT(1, corrupt));
		EXPECT_EQ(0, STAT(1, lost));
		DROP();
	}
}

/* It has been delivered: what the caller has of it is another message now. */
TEST_F(hostile, a_safe_lane_overwritten_after_delivery)
{
	unsigned char data[8] = "by force";

	MAKE(0, PATIENCE);
	for (uint64_t n = 1; n <= DEPTH; n++)
		ASSERT_EQ(n, SEND(n));
	ASSERT_EQ(DEPTH, POLL());
	ASSERT_EQ(0, kcr_ring_ack(self->r[1], 0, 1));
	ASSERT_EQ(DEPTH + 1, SEND(DEPTH + 1));
	EXPECT_EQ(1, POLL());
	ring_write(self->slots, DEPTH + 2, data, sizeof(data));
	EXPECT_EQ(-EOVERFLOW, POLL());
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "rank 0 has overwritten message 2,"));
	EXPECT_EQ(DEPTH + 1, self->box.count);
}

/* How a slow writer writes message @n of 0 -> 1, a byte at a time. */
struct slow {
	const struct slots *slots;
	uint64_t n;
	int sequence_first;		/* as what comes over a network may land */
	double pause;
	unsigned char image[256];
	size_t used;
};

static void *write_slowly(void *arg)
{
	struct slow *s = arg;
	unsigned char *slot = slot_of(s->slots, s->n);
	uint64_t *sequence = (uint64_t *)slot;

	__atomic_store_n(sequence, s->sequence_first ? s->n : 0, __ATOMIC_RELEASE);
	for (size_t i = s->used; i-- > 8;) {
		__atomic_store_n(&slot[i], s->image[i], __ATOMIC_RELEASE);
		ranks_sleep(s->pause);
	}
	__atomic_store_n(sequence, s->n, __ATOMIC_RELEASE);
	return NULL;
}

/* The image of a message, written aside. */
static void prepare(struct slow *s, uint64_t n)
{
	_Alignas(64) unsigned char aside[256] = { 0 };
	struct slots one = *s->slots;
	unsigned char data[CAPACITY];
	size_t bytes = ring_bytes(0, 1, n, CAPACITY);

	one.base = aside;
	one.depth = 1;
	ring_fill(data, bytes, ring_seed(0, 1, n));
	ring_write(&one, n, data, bytes);
	s->used = KCR_SLOT_GUARD(bytes) + 8;
	memcpy(s->image, aside, sizeof(aside));
	s->n = n;
}

TEST_F(hostile, a_slow_writer)
{
	for (int form = 0; form < 4; form++) {
		struct slow s = { .sequence_first = form % 2, .pause = 0.0005 };
		pthread_t writer;
		uint64_t n;

		/* One that says that it writes may take longer than damage may. */
		MAKE(form / 2 ? KCR_RING_RAW : 0, s.sequence_first ?
		     20000000000ull * pace() : PATIENCE);
		s.slots = self->slots;
		self->box.acks = 1;
		for (n = 1; n <= DEPTH; n++)
			ASSERT_EQ(n, SEND(n));
		ASSERT_EQ(DEPTH, POLL());
		for (; n < 10; n++) {
			prepare(&s, n);
			ASSERT_EQ(0, pthread_create(&writer, NULL, write_slowly, &s));
			EXPECT_EQ(1, poll_on(self->r[1], &self->box)) {
				TH_LOG("form %d: %s", form, kcr_error(NULL));
			}
			pthread_join(writer, NULL);
		}
		EXPECT_EQ(n - 1, self->box.count);
		EXPECT_EQ(0, self->box.wrong);
		EXPECT_EQ(0, self->box.gaps);
		EXPECT_LT(0, STAT(1, torn));
		EXPECT_EQ(0, STAT(1, corrupt));
		EXPECT_EQ(0, STAT(1, lost));
		DROP();
	}
}

/* Send until that gives something but -EAGAIN. */
static int64_t send_on(struct kcr_ring *ring, uint64_t n)
{
	double deadline = ranks_now() + 20 * pace();
	int64_t result;

	do {
		result = ring_send(ring, 0, 1, n, 0);
	} while (result == -EAGAIN && ranks_now() < deadline);
	return result;
}

/* How a counter comes over a slow network: a byte at a time, the complement behind it. */
struct slow_count {
	struct kcr_ack *ack;
	uint64_t from, to;
	uint64_t now;			/* the one that is being written; atomic */
	uint64_t looks;			/* of its reader, UINT64_MAX at the end; atomic */
};

/* Each byte has been looked at before the next one comes. */
static void await_look(const struct slow_count *s)
{
	uint64_t before = __atomic_load_n(&s->looks, __ATOMIC_ACQUIRE), now;

	do {
		sched_yield();
		now = __atomic_load_n(&s->looks, __ATOMIC_ACQUIRE);
	} while (now < UINT64_MAX && now < before + 2);
}

static void *count_slowly(void *arg)
{
	struct slow_count *s = arg;
	struct kcr_ack image;

	for (uint64_t n = s->from; n <= s->to; n++) {
		__atomic_store_n(&s->now, n, __ATOMIC_RELEASE);
		ring_count(&image, n);
		for (size_t i = 0; i < sizeof(image); i++) {
			__atomic_store_n((unsigned char *)s->ack + i,
					 ((unsigned char *)&image)[i], __ATOMIC_RELEASE);
			await_look(s);
		}
	}
	return NULL;
}

/* It goes round the place where more than one byte changes. */
TEST_F(hostile, a_slow_counter)
{
	const uint64_t first = 0x100 - DEPTH - 3;
	struct slow_count s;
	struct ring_tx *tx;
	struct ring_rx *rx;
	pthread_t writer;
	uint64_t n;

	MAKE(0, 20000000000ull * pace());
	tx = self->r[0]->to[1];
	rx = self->r[1]->from[0];
	s = (struct slow_count){ .ack = rx->ack, .from = first, .to = 0x108 };
	tx->slots.next = first;
	tx->acked = first - 1;
	ring_count(s.ack, first - 1);
	for (n = first; n < first + DEPTH; n++)
		ASSERT_EQ(n, SEND(n));
	ASSERT_EQ(0, pthread_create(&writer, NULL, count_slowly, &s));
	/* Each that is acknowledged makes room for one, and nothing else does. */
	for (; n <= s.to + DEPTH; n++) {
		int64_t result;

		do {
			result = SEND(n);
			__atomic_fetch_add(&s.looks, 1, __ATOMIC_RELEASE);
		} while (result == -EAGAIN);
		ASSERT_EQ(n, result) {
			TH_LOG("%s", kcr_error(NULL));
		}
		ASSERT_LE(n - DEPTH, tx->acked);
		ASSERT_LE(tx->acked, __atomic_load_n(&s.now, __ATOMIC_ACQUIRE));
	}
	__atomic_store_n(&s.looks, UINT64_MAX, __ATOMIC_RELEASE);
	pthread_join(writer, NULL);
	EXPECT_EQ(-EAGAIN, SEND(n));
	EXPECT_EQ(s.to, tx->acked);
	EXPECT_LT(0, STAT(0, torn));
}

TEST_F(hostile, counters_that_are_wrong)
{
	struct kcr_ack *ack;

	MAKE(0, PATIENCE);
	ack = self->r[1]->from[0]->ack;
	for (uint64_t n = 1; n <= DEPTH; n++)
		ASSERT_EQ(n, SEND(n));
	ASSERT_EQ(DEPTH, POLL());
	/* Torn: news that are not there yet, until they are none. */
	ack->sequence = 2;
	EXPECT_EQ(-EAGAIN, SEND(5));
	EXPECT_LT(0, STAT(0, torn));
	EXPECT_EQ(-EUCLEAN, send_on(self->r[0], 5));
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "acknowledgement is not one and stays so"));
	EXPECT_EQ(-EUCLEAN, ring_send(self->r[0], 0, 1, 5, 1000000000));
	ack->complement = ~2ull;
	EXPECT_EQ(5, SEND(5));
	EXPECT_EQ(6, SEND(6));
	EXPECT_EQ(-EAGAIN, SEND(7));
	ring_count(ack, 1);
	EXPECT_EQ(-ESTALE, SEND(7));
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "went backwards: 1, where it had 2"));
	ring_count(ack, 7);
	EXPECT_EQ(-ERANGE, SEND(7));
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "past what was sent: 7"));
	ring_count(ack, UINT64_MAX);
	EXPECT_EQ(-ERANGE, SEND(7));
	EXPECT_EQ(-ERANGE, ring_send(self->r[0], 0, 1, 7, -1));
	ring_count(ack, 6);
	EXPECT_EQ(7, SEND(7));
	/* Nothing was sent meanwhile. */
	EXPECT_EQ(7, STAT(0, sent));
}

TEST_F(hostile, a_counter_that_somebody_else_wrote)
{
	struct kcr_ack *ack;

	MAKE(0, PATIENCE);
	ack = self->r[1]->from[0]->ack;
	for (uint64_t n = 1; n <= DEPTH; n++)
		ASSERT_EQ(n, SEND(n));
	ASSERT_EQ(DEPTH, POLL());
	ASSERT_EQ(0, kcr_ring_ack(self->r[1], 0, 2));
	for (int bit = 0; bit < 128; bit++) {
		((unsigned char *)ack)[bit / 8] ^= 1 << bit % 8;
		EXPECT_EQ(-EUCLEAN, kcr_ring_ack(self->r[1], 0, 3));
		EXPECT_NE(NULL, strstr(kcr_error(NULL), "rank 1 had written 2"));
		((unsigned char *)ack)[bit / 8] ^= 1 << bit % 8;
	}
	ring_count(ack, 3);
	EXPECT_EQ(-EUCLEAN, kcr_ring_ack(self->r[1], 0, 2));
	ring_count(ack, 2);
	EXPECT_EQ(0, kcr_ring_ack(self->r[1], 0, 3));
	EXPECT_EQ(3, ack->sequence);
}

TEST_F(hostile, the_last_sequences)
{
	const uint64_t first = INT64_MAX - 4 * DEPTH;

	for (unsigned int flags = 0; flags < 2; flags++) {
		struct ring_tx *tx;
		struct ring_rx *rx;

		MAKE(flags, PATIENCE);
		tx = self->r[0]->to[1];
		rx = self->r[1]->from[0];
		tx->slots.next = first;
		tx->acked = first - 1;
		rx->slots.next = first;
		rx->acked = first - 1;
		ring_count(rx->ack, first - 1);
		self->box.last[0] = first - 1;
		self->box.acks = 1;
		EXPECT_EQ(0, POLL());
		for (uint64_t n = first; n <= INT64_MAX; n++) {
			ASSERT_EQ(n, SEND(n));
			EXPECT_EQ(1, POLL());
		}
		EXPECT_EQ(0, self->box.wrong);
		EXPECT_EQ(0, self->box.gaps);
		EXPECT_EQ(-EOVERFLOW, SEND(1));
		EXPECT_NE(NULL, strstr(kcr_error(NULL), "used up"));
		EXPECT_EQ(0, POLL());
		EXPECT_EQ(0, kcr_ring_ack(self->r[1], 0, INT64_MAX));
		EXPECT_EQ(-ERANGE, kcr_ring_ack(self->r[1], 0, 1ull << 63));
		DROP();
	}
}

/* Two that land, each seen but once and long apart, are not one that stays half landed. */
TEST_F(hostile, looks_that_are_far_apart)
{
	struct kcr_slot *slot;
	struct kcr_ack *ack;

	MAKE(KCR_RING_RAW, PATIENCE);
	slot = (struct kcr_slot *)slot_of(self->slots, 1);
	for (uint64_t laps = 0; laps < 3; laps++) {
		slot->sequence = 1 + laps * DEPTH;
		slot->checksum ^= 1;
		EXPECT_EQ(0, POLL());
		ranks_sleep(5 * PATIENCE / 1e9);
	}
	EXPECT_EQ(0, STAT(1, corrupt));
	DROP();

	MAKE(0, PATIENCE);
	ack = self->r[1]->from[0]->ack;
	for (uint64_t n = 1; n <= DEPTH; n++)
		ASSERT_EQ(n, SEND(n));
	for (uint64_t n = 1; n < DEPTH; n++) {
		ack->sequence = n;
		EXPECT_EQ(-EAGAIN, SEND(5));
		ranks_sleep(5 * PATIENCE / 1e9);
	}
	ring_count(ack, 1);
	EXPECT_EQ(5, SEND(5));
}

/* Between nodes a message or a counter may stay half landed as long as packets are retried. */
TEST_F(hostile, a_lane_between_nodes_has_more_patience)
{
	static const struct kcr_lane_status status = { .done = DEPTH };
	struct kcr_ack *ack;

	MAKE(0, PATIENCE);
	self->r[1]->from[0]->remote = &status;
	ASSERT_EQ(1, SEND(1));
	slot_of(self->slots, 1)[KCR_SLOT_PAYLOAD] ^= 1;
	EXPECT_EQ(0, POLL());
	ranks_sleep(5 * PATIENCE / 1e9);
	EXPECT_EQ(0, POLL());
	EXPECT_EQ(0, STAT(1, corrupt));
	slot_of(self->slots, 1)[KCR_SLOT_PAYLOAD] ^= 1;
	EXPECT_EQ(1, POLL());
	slot_of(self->slots, 2)[0] = 1;
	self->r[1]->remote_patience_ns = PATIENCE;
	EXPECT_EQ(-EBADMSG, poll_on(self->r[1], &self->box));
	self->r[1]->from[0]->remote = NULL;

	for (uint64_t n = 2; n <= DEPTH; n++)
		ASSERT_EQ(n, SEND(n));
	self->r[0]->to[1]->remote = &status;
	ack = self->r[1]->from[0]->ack;
	ack->sequence = 1;
	EXPECT_EQ(-EAGAIN, SEND(5));
	ranks_sleep(5 * PATIENCE / 1e9);
	EXPECT_EQ(-EAGAIN, SEND(5));
	self->r[0]->remote_patience_ns = PATIENCE;
	EXPECT_EQ(-EUCLEAN, send_on(self->r[0], 5));
	self->r[0]->to[1]->remote = NULL;
	ack->sequence = 0;
}

/* There, a sender may also wait for the device, on raw lanes too; it says for whom. */
TEST_F(hostile, whom_a_sender_waits_for)
{
	static const struct kcr_lane_status busy;
	struct ring_tx *tx;

	for (unsigned int flags = 0; flags < 2; flags++) {
		MAKE(flags, PATIENCE);
		tx = self->r[0]->to[1];
		for (uint64_t n = 1; n <= DEPTH; n++)
			ASSERT_EQ(n, SEND(n));
		ASSERT_EQ(DEPTH, POLL());
		tx->remote = &busy;
		if (!flags) {
			EXPECT_EQ(-EAGAIN, SEND(DEPTH + 1));
			EXPECT_NE(NULL, strstr(kcr_error(NULL), "rank 1 has not acknowledged"));
			EXPECT_EQ(0, kcr_ring_ack(self->r[1], 0, DEPTH));
		}
		EXPECT_EQ(-EAGAIN, SEND(DEPTH + 1));
		EXPECT_NE(NULL, strstr(kcr_error(NULL), "lane 0 -> 1: the RDMA device")) {
			TH_LOG("%s", kcr_error(NULL));
		}
		tx->remote = NULL;
		DROP();
	}
}

/* A peer that writes what it may at random: now bytes, now what looks like a message. */
struct vandal {
	const struct slots *slots;
	struct kcr_ack *ack;
	uint64_t random;
	long strokes;			/* atomic */
	int is_over;			/* atomic */
};

static void vandalise(struct vandal *v)
{
	uint64_t h = data_random(&v->random), n = data_random(&v->random);
	unsigned char data[CAPACITY];
	uint64_t *ack = (uint64_t *)v->ack;

	switch (h % 8) {
	case 0:
		v->slots->base[n % (DEPTH * v->slots->stride)] = h >> 8;
		break;
	case 1:
		*(uint64_t *)(slot_of(v->slots, 1 + n % DEPTH)) = h >> (8 + h % 56);
		break;
	case 2:
		*(uint32_t *)(slot_of(v->slots, 1 + n % DEPTH) + 8) = h >> (8 + h % 56);
		break;
	case 3:
		ring_count(v->ack, n >> h % 64);
		break;
	case 4:
		ack[n % 2] = h >> h % 64;
		break;
	default:
		ring_fill(data, CAPACITY, h);
		ring_write(v->slots, n >> h / 8 % 64 ?: 1, data, h / 512 % (CAPACITY + 1));
	}
}

static void *vandal_main(void *arg)
{
	struct vandal *v = arg;

	while (!__atomic_load_n(&v->is_over, __ATOMIC_RELAXED)) {
		vandalise(v);
		__atomic_fetch_add(&v->strokes, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

#define STROKES		1000

static long strokes_of(const struct vandal *v)
{
	return __atomic_load_n(&v->strokes, __ATOMIC_RELAXED);
}

struct victim {
	uint64_t last;
	uint64_t count;
	int wrong;
};

static int suffer(void *arg, int origin, uint64_t sequence, const void *data, size_t bytes)
{
	struct victim *v = arg;
	volatile unsigned char sum = 0;

	if (origin != 1 || bytes > CAPACITY || sequence <= v->last ||
	    sequence > INT64_MAX)
		v->wrong++;
	for (size_t i = 0; i < bytes; i++)
		sum += ((const unsigned char *)data)[i];
	v->last = sequence;
	v->count++;
	return 0;
}

/* Is it one of those that a call may give when a peer does not keep to the rules? */
static int is_known(int64_t result)
{
	return result >= 0 || result == -EAGAIN || result == -EBADMSG ||
	       result == -EOVERFLOW || result == -ESTALE || result == -ERANGE ||
	       result == -EUCLEAN || result == -ETIMEDOUT;
}

/* Rank 1 is the vandal: of its lane to 0 the slots are its, of that from 0 the counter. */
TEST_F_TIMEOUT(hostile, a_peer_at_random, 120)
{
	long rounds = ranks_rounds(20000), broken = 0, refused = 0;
	int64_t results[4];
	int k;

	for (int round = 0; round < 20; round++) {
		struct vandal v = { .random = round * 1000003 };
		struct victim victim = { 0 };
		uint64_t sent = 1;
		pthread_t thread;

		MAKE(round % 2 ? KCR_RING_RAW : 0, 20000);
		v.slots = &self->r[1]->to[0]->slots;
		v.ack = self->r[1]->from[0]->ack;
		ASSERT_EQ(0, pthread_create(&thread, NULL, vandal_main, &v));
		/* It need not have begun yet, nor be on a CPU all the time. */
		for (long i = 0; i < rounds || strokes_of(&v) < STROKES; i++) {
			results[0] = kcr_ring_poll(self->r[0], suffer, &victim);
			results[1] = ring_send(self->r[0], 0, 1, sent, 0);
			results[2] = kcr_ring_ack(self->r[0], 1, victim.last);
			results[3] = i % 1024 ? 0 : kcr_ring_wait(self->r[0], 10000);
			sent += results[1] > 0;
			broken += results[0] == -EBADMSG || results[0] == -EOVERFLOW;
			refused += results[1] < 0 && results[1] != -EAGAIN;
			for (k = 0; k < 4 && is_known(results[k]); k++)
				;
			ASSERT_EQ(4, k) {
				TH_LOG("call %d gave %lld", k, (long long)results[k]);
			}
		}
		__atomic_store_n(&v.is_over, 1, __ATOMIC_RELAXED);
		pthread_join(thread, NULL);
		EXPECT_EQ(0, victim.wrong);
		EXPECT_EQ(victim.count, STAT(0, received));
		DROP();
	}
	/* Of both that it may write something was seen to be wrong. */
	EXPECT_LT(0, broken);
	EXPECT_LT(0, refused);
}

TEST_HARNESS_MAIN
