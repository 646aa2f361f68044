// SPDX-License-Identifier: GPL-2.0
/*
 * Message rings used by many threads at once: several send, on different lanes and on the
 * same, one polls or sleeps, and one is in collectives of the same world.
 *
 * Ranks are threads, too (lib/inside.h). The thread sanitizer (make check-tsan) goes by
 * addresses, and each rank maps a lane somewhere else: of what ranks do to one another it sees
 * nothing, but in the form in which both have the source's slots and the destination's
 * counter at one address. Not of raw lanes: their reader copies what may be written
 * meanwhile, and the sanitizer knows no fences.
 */
#include "kselftest_harness.h"
#include "inside.h"
#include "ring.h"
#include "../../lib/ring.h"

#define RANKS	3
#define SENDERS	3		/* threads of each rank */
#define DEPTH	5
#define CAPACITY	64

/* A message names its sender, its place among that one's, and bytes that follow from both. */
struct stamp {
	uint32_t thread;
	uint32_t number;
	unsigned char bytes[32];
};

struct one_memory {
	struct kcr_ring *rings[RANKS];
	pthread_barrier_t all;		/* one that the sanitizer sees, too */
};

struct job {
	unsigned int flags;
	int waits;			/* the receiver: 0 polls, 1 waits, 2 by descriptor */
	struct one_memory *memory;	/* if both ends of a lane are to be at one address */
	long messages;			/* of each thread, to each rank */
};

struct sender {
	pthread_t id;
	struct kcr_ring *ring;
	int rank, thread;
	const struct job *job;
	int failed;
};

static uint64_t stamp_seed(int rank, int to, const struct stamp *s)
{
	return ring_seed(rank, to, (uint64_t)s->thread << 32 | s->number);
}

static int send_all(struct sender *s)
{
	int rank = s->rank;
	int64_t before[RANKS] = { 0 };

	for (long i = 0; i < s->job->messages; i++) {
		for (int to = 0; to < RANKS; to++) {
			struct stamp stamp = { .thread = s->thread, .number = i };
			int64_t sequence;

			if (to == rank)
				continue;
			ring_fill(stamp.bytes, sizeof(stamp.bytes),
				  stamp_seed(rank, to, &stamp));
			sequence = kcr_ring_send(s->ring, to, &stamp, sizeof(stamp));
			if (sequence <= before[to])
				RANK_FAIL("message %ld to rank %d: %lld: %s", i, to,
					  (long long)sequence, kcr_error(NULL));
			before[to] = sequence;
		}
	}
	return 0;
}

static void *sender_main(void *arg)
{
	struct sender *s = arg;

	s->failed = send_all(s);
	return NULL;
}

struct inbox {
	struct kcr_ring *ring;
	int rank;
	long count;
	int wrong;
	uint64_t last[RANKS];
	uint32_t next[RANKS][SENDERS];
	uint64_t lost;
};

static int receive(void *arg, int origin, uint64_t sequence, const void *data,
		   size_t bytes)
{
	const struct stamp *s = data;
	struct inbox *in = arg;

	if (bytes != sizeof(*s) || s->thread >= SENDERS ||
	    sequence <= in->last[origin] ||
	    s->number < in->next[origin][s->thread] ||
	    ring_differs(s->bytes, sizeof(s->bytes),
			 stamp_seed(origin, in->rank, s)))
		in->wrong++;
	else
		in->next[origin][s->thread] = s->number + 1;
	in->lost += sequence - in->last[origin] - 1;
	in->last[origin] = sequence;
	in->count++;
	return kcr_ring_ack(in->ring, origin, sequence);
}

static int is_over(const struct inbox *in, const struct job *job)
{
	for (int origin = 0; origin < RANKS; origin++)
		if (origin != in->rank && in->last[origin] < SENDERS * (uint64_t)job->messages)
			return 0;
	return 1;
}

static int receive_all(struct inbox *in, const struct job *job)
{
	struct pollfd p = { .events = POLLIN };
	int rank = in->rank;

	if (job->waits == 2) {
		p.fd = kcr_ring_fd(in->ring);
		RANK_TRUE(p.fd >= 0);
	}
	while (!is_over(in, job)) {
		int n;

		if (job->waits == 1)
			RANK_OK(NULL, kcr_ring_wait(in->ring, -1));
		if (job->waits == 2)
			RANK_TRUE(poll(&p, 1, 60000) == 1);
		n = kcr_ring_poll(in->ring, receive, in);
		if (n < 0)
			RANK_FAIL("poll gave %d: %s", n, kcr_error(NULL));
		if (!n)
			sched_yield();
	}
	RANK_TRUE(!in->wrong);
	if (!job->flags) {
		RANK_TRUE(!in->lost);
		RANK_TRUE(in->count == (RANKS - 1) * SENDERS * job->messages);
	}
	return 0;
}

static void *receiver_main(void *arg)
{
	void **args = arg;

	return (void *)(intptr_t)receive_all(args[0], args[1]);
}

/* Have both ends of the lanes to this rank at one address. */
static void share(int rank, struct kcr_ring *ring, struct one_memory *memory)
{
	memory->rings[rank] = ring;
	pthread_barrier_wait(&memory->all);
	for (size_t i = 0; i < ring->rx_count; i++) {
		struct ring_rx *rx = &ring->rx[i];
		struct ring_tx *tx = memory->rings[rx->peer]->to[rank];

		rx->slots.base = tx->slots.base;
		tx->ack = rx->ack;
	}
	pthread_barrier_wait(&memory->all);
}

static int work(int rank, struct kcr_world *w, void *arg)
{
	struct kcr_lane lanes[RANKS * RANKS];
	const struct job *job = arg;
	struct sender senders[SENDERS];
	struct inbox in = { .rank = rank };
	void *args[] = { &in, arg }, *failed;
	pthread_t receiver;
	struct kcr_ring_stats stats;
	double x[10], want[10];
	int n = 0, err = 0;

	for (int i = 0; i < RANKS; i++)
		for (int j = 0; j < RANKS; j++)
			if (i != j)
				lanes[n++] = (struct kcr_lane){ i, j, DEPTH, CAPACITY };
	RANK_OK(w, kcr_ring_create(w, lanes, n, job->flags, &in.ring));
	if (job->memory)
		share(rank, in.ring, job->memory);
	RANK_TRUE(!pthread_create(&receiver, NULL, receiver_main, args));
	for (int i = 0; i < SENDERS; i++) {
		senders[i] = (struct sender){ .ring = in.ring, .rank = rank, .thread = i,
					      .job = job };
		RANK_TRUE(!pthread_create(&senders[i].id, NULL, sender_main, &senders[i]));
	}
	/* Asleep in a collective now and then, while others sleep on the ring. */
	for (int i = 0; i < 20; i++) {
		data_fill(x, 10, KCR_F64, rank, i);
		if (i % 3 == rank)
			ranks_sleep(0.002);
		RANK_OK(w, kcr_allreduce(w, x, x, 10, KCR_F64, KCR_SUM));
		RANK_OK(NULL, data_expect(want, 10, KCR_F64, KCR_SUM, RANKS, i));
		RANK_TRUE(data_differ(want, x, 10, KCR_F64) < 0);
		RANK_OK(NULL, kcr_ring_stats(in.ring, &stats));
	}
	for (int i = 0; i < SENDERS; i++) {
		pthread_join(senders[i].id, NULL);
		err |= senders[i].failed;
	}
	pthread_join(receiver, &failed);
	RANK_TRUE(!err && !failed);
	RANK_OK(NULL, kcr_ring_stats(in.ring, &stats));
	RANK_TRUE(stats.sent == (RANKS - 1) * SENDERS * (uint64_t)job->messages);
	RANK_TRUE(stats.received == (uint64_t)in.count && stats.lost == in.lost);
	RANK_TRUE(!stats.corrupt);
	/* Nobody may look any more. */
	if (job->memory)
		pthread_barrier_wait(&job->memory->all);
	RANK_OK(w, kcr_ring_destroy(in.ring));
	return 0;
}

FIXTURE(threads) {
	struct inside in;
};

FIXTURE_VARIANT(threads) {
	unsigned int flags;
	int waits;
	int is_one_memory;
};

FIXTURE_VARIANT_ADD(threads, polls) { 0, 0 };
FIXTURE_VARIANT_ADD(threads, waits) { 0, 1 };
FIXTURE_VARIANT_ADD(threads, by_descriptor) { 0, 2 };
FIXTURE_VARIANT_ADD(threads, raw) { KCR_RING_RAW, 0 };
FIXTURE_VARIANT_ADD(threads, one_memory) { 0, 1, 1 };

FIXTURE_SETUP(threads)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	ASSERT_EQ(0, inside_open(&self->in, RANKS));
}

FIXTURE_TEARDOWN(threads)
{
	inside_close(&self->in);
}

TEST_F_TIMEOUT(threads, all_at_once, 120)
{
	struct one_memory memory;
	struct job job = { .flags = variant->flags, .waits = variant->waits,
			   .memory = variant->is_one_memory ? &memory : NULL,
			   .messages = ranks_rounds(2000) };

	pthread_barrier_init(&memory.all, NULL, RANKS);
	EXPECT_EQ(0, inside_each(&self->in, work, &job));
	pthread_barrier_destroy(&memory.all);
}

FIXTURE(waiting) {
	struct inside in;
};

FIXTURE_SETUP(waiting)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	ASSERT_EQ(0, inside_open(&self->in, RANKS));
}

FIXTURE_TEARDOWN(waiting)
{
	inside_close(&self->in);
}

/* Several threads wait for the same messages, and all are woken. */
struct waiter {
	pthread_t id;
	struct kcr_ring *ring;
	int result;
};

static void *waiter_main(void *arg)
{
	struct waiter *w = arg;

	w->result = kcr_ring_wait(w->ring, 60000000000);
	return NULL;
}

static int wake_all(int rank, struct kcr_world *w, void *arg)
{
	const struct kcr_lane lane = { 0, 1, 1000, 8 };
	struct waiter waiters[8];
	struct kcr_ring *ring;

	RANK_OK(w, kcr_ring_create(w, &lane, 1, 0, &ring));
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 8 && rank == 1; i++) {
			waiters[i].ring = ring;
			RANK_TRUE(!pthread_create(&waiters[i].id, NULL, waiter_main,
						  &waiters[i]));
		}
		RANK_OK(w, kcr_barrier(w));
		if (!rank) {
			ranks_sleep(round * 0.02);
			RANK_TRUE(kcr_ring_send(ring, 1, &round, 4) == round + 1);
		}
		for (int i = 0; i < 8 && rank == 1; i++) {
			pthread_join(waiters[i].id, NULL);
			RANK_TRUE(!waiters[i].result);
		}
		if (rank == 1) {
			struct ring_inbox box = { .ring = ring, .rank = 1 };

			RANK_TRUE(kcr_ring_poll(ring, ring_receive, &box) == 1);
		}
	}
	RANK_OK(w, kcr_ring_destroy(ring));
	return 0;
}

TEST_F_TIMEOUT(waiting, all_that_wait_are_woken, 120)
{
	EXPECT_EQ(0, inside_each(&self->in, wake_all, NULL));
}

/* One waits for room; another that will not wait does not wait for it. */
static void *blocked_main(void *arg)
{
	struct waiter *w = arg;

	w->result = kcr_ring_send_timeout(w->ring, 1, "late", 4, 60000000000);
	return NULL;
}

static int block(int rank, struct kcr_world *w, void *arg)
{
	const struct kcr_lane lane = { 0, 1, 2, 8 };
	struct ring_inbox box = { .rank = rank };
	struct waiter blocked;
	struct kcr_ring *ring;
	double began;

	RANK_OK(w, kcr_ring_create(w, &lane, 1, 0, &ring));
	box.ring = ring;
	if (!rank) {
		blocked.ring = ring;
		RANK_TRUE(kcr_ring_send(ring, 1, "a", 1) == 1);
		RANK_TRUE(kcr_ring_send(ring, 1, "b", 1) == 2);
		RANK_TRUE(!pthread_create(&blocked.id, NULL, blocked_main, &blocked));
		ranks_sleep(0.1);
		began = ranks_now();
		for (int i = 0; i < 10; i++)
			RANK_TRUE(kcr_ring_send_timeout(ring, 1, "c", 1, 0) == -EAGAIN);
		RANK_TRUE(ranks_now() - began < 20 * pace());
	}
	RANK_OK(w, kcr_barrier(w));
	if (rank == 1) {
		RANK_TRUE(kcr_ring_poll(ring, ring_receive, &box) == 2);
		RANK_OK(NULL, kcr_ring_ack(ring, 0, 1));
		RANK_OK(NULL, kcr_ring_wait(ring, -1));
	}
	if (!rank) {
		pthread_join(blocked.id, NULL);
		RANK_TRUE(blocked.result == 3);
	}
	RANK_OK(w, kcr_ring_destroy(ring));
	return 0;
}

TEST_F_TIMEOUT(waiting, who_will_not_wait, 120)
{
	EXPECT_EQ(0, inside_each(&self->in, block, NULL));
}

TEST_HARNESS_MAIN
