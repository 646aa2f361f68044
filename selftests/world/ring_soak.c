// SPDX-License-Identifier: GPL-2.0
/*
 * Very many messages over rings: two ranks that answer each other on safe lanes, and one
 * that floods another on a raw lane. A million, or a hundred million if KCR_TEST_LONG is set.
 */
#include <sched.h>
#include "kselftest_harness.h"
#include "ring.h"

#define DEPTH		16
#define CAPACITY	256

static long messages(void)
{
	return ranks_rounds(getenv("KCR_TEST_LONG") ? 100000000 : 1000000);
}

/* Both send and receive all the time; neither ever waits for long. */
static int exchange(int rank, struct kcr_world *w, struct kcr_ring *ring)
{
	struct ring_inbox box = { .ring = ring, .rank = rank, .acks = 1 };
	struct kcr_ring_stats stats;
	const uint64_t n = messages() / 2;
	uint64_t sent = 0;

	while (sent < n || box.count < n) {
		int64_t sequence = -EAGAIN;
		int got;

		if (sent < n)
			sequence = ring_send(ring, rank, !rank, sent + 1, 0);
		if (sequence == (int64_t)sent + 1)
			sent++;
		else
			RANK_GIVES(-EAGAIN, NULL, (int)sequence);
		got = kcr_ring_poll(ring, ring_receive, &box);
		if (got < 0)
			RANK_FAIL("poll gave %d: %s", got, kcr_error(NULL));
		if (!got && sequence < 0) {
			/* As who has nothing to do does. */
			if (box.count < n)
				got = kcr_ring_wait(ring, 1000000);
			RANK_TRUE(!got || got == -ETIMEDOUT);
		}
	}
	RANK_TRUE(!box.wrong && !box.gaps && box.last[!rank] == n);
	RANK_OK(NULL, kcr_ring_stats(ring, &stats));
	RANK_TRUE(stats.sent == n && stats.received == n);
	RANK_TRUE(!stats.lost && !stats.corrupt);
	return 0;
}

/* Rank 0 sends as fast as it can; of what rank 1 misses, it knows how much. */
static int flood(int rank, struct kcr_world *w, struct kcr_ring *ring)
{
	struct ring_inbox box = { .ring = ring, .rank = rank };
	struct kcr_ring_stats stats;
	const uint64_t n = messages();
	uint64_t i;

	for (i = 1; !rank && i <= n; i++) {
		/* Over RDMA it waits for the device, though for nobody else. */
		if (ring_send(ring, 0, 1, i, -1) != (int64_t)i)
			RANK_FAIL("message %llu: %s", (unsigned long long)i,
				  kcr_error(NULL));
		/* Now and then the reader catches up. */
		if (i % 5000 == 0)
			sched_yield();
	}
	while (rank && box.last[0] < n) {
		int got = kcr_ring_poll(ring, ring_receive, &box);

		if (got < 0)
			RANK_FAIL("poll gave %d: %s", got, kcr_error(NULL));
	}
	RANK_OK(NULL, kcr_ring_stats(ring, &stats));
	RANK_TRUE(stats.sent == (rank ? 0 : n));
	RANK_TRUE(!stats.corrupt);
	if (rank) {
		fprintf(stderr, "# rank 1: %llu received, %llu lost, %llu torn, %llu behind\n",
			(unsigned long long)stats.received, (unsigned long long)stats.lost,
			(unsigned long long)stats.torn, (unsigned long long)stats.max_lag);
		RANK_TRUE(!box.wrong);
		RANK_TRUE(box.gaps == stats.lost && box.count == stats.received);
		RANK_TRUE(stats.received + stats.lost == n);
	}
	return 0;
}

static int rank_main(int rank, void *arg)
{
	const struct kcr_lane lanes[] = { { 0, 1, DEPTH, CAPACITY }, { 1, 0, DEPTH, CAPACITY } };
	unsigned int flags = *(unsigned int *)arg;
	struct kcr_ring *ring;
	struct kcr_world *w;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_OK(w, kcr_ring_create(w, lanes, 2, flags, &ring));
	if (flags ? flood(rank, w, ring) : exchange(rank, w, ring))
		return 1;
	RANK_OK(NULL, kcr_ring_destroy(ring));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

FIXTURE(soak) {
};

FIXTURE_VARIANT(soak) {
	unsigned int flags;
};

FIXTURE_VARIANT_ADD(soak, safe) { 0 };
FIXTURE_VARIANT_ADD(soak, raw) { KCR_RING_RAW };

FIXTURE_SETUP(soak)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
}

FIXTURE_TEARDOWN(soak)
{
}

TEST_F_TIMEOUT(soak, messages, 7000)
{
	unsigned int flags = variant->flags;

	EXPECT_EQ(0, ranks_run(2, rank_main, &flags, getenv("KCR_TEST_LONG") ? 6500 : 100));
}

TEST_HARNESS_MAIN
