// SPDX-License-Identifier: GPL-2.0
/*
 * In the steady state, with a CPU for each rank, an allreduce makes no system
 * call, nor does a message of a ring.
 *
 * Two ranks are traced (lib/trace.h). A waiting rank that gives its CPU away calls the
 * kernel, so the budget of looking is raised. How long a peer may be away is up to the
 * machine; the least of several runs counts.
 */
#include "kselftest_harness.h"
#include "ring.h"
#include "trace.h"

#define OPERATIONS	500
#define COUNT		256

/* What is done again and again; the ring is there for who wants it. */
typedef int (*operation)(int rank, struct kcr_world *w, struct kcr_ring *ring, int i);

static int reduce(int rank, struct kcr_world *w, struct kcr_ring *ring, int i)
{
	static float send[COUNT], recv[COUNT], want[COUNT];

	if (!i) {
		data_fill(send, COUNT, KCR_F32, rank, 1);
		RANK_OK(NULL, data_expect(want, COUNT, KCR_F32, KCR_SUM, kcr_size(w), 1));
	}
	RANK_OK(w, kcr_allreduce(w, send, recv, COUNT, KCR_F32, KCR_SUM));
	RANK_TRUE(data_differ(want, recv, COUNT, KCR_F32) < 0);
	return 0;
}

static struct ring_inbox box;

/* The one sends and the other answers, each of them looking for itself. */
static int answer(int rank, struct kcr_world *w, struct kcr_ring *ring, int i)
{
	uint64_t before = box.count;
	int got = 0;

	box.ring = ring;
	box.rank = rank;
	box.acks = 1;
	if (!rank)
		RANK_TRUE(ring_send(ring, rank, 1, box.count + 1, -1) > 0);
	while (!got)
		got = kcr_ring_poll(ring, ring_receive, &box);
	RANK_TRUE(got == 1 && !box.wrong);
	if (rank)
		RANK_TRUE(ring_send(ring, rank, 0, before + 1, -1) > 0);
	return 0;
}

/* Likewise, but who receives waits, and so does who sends. */
static int answer_by_waiting(int rank, struct kcr_world *w, struct kcr_ring *ring, int i)
{
	if (rank)
		RANK_OK(NULL, kcr_ring_wait(ring, -1));
	return answer(rank, w, ring, i);
}

static int overwrite(int rank, struct kcr_world *w, struct kcr_ring *ring, int i)
{
	if (ring_send(ring, rank, !rank, i + 1, -1) < 0)
		return 1;
	return kcr_ring_poll(ring, ring_receive, &box) < 0;
}

struct steady {
	operation operate;
	unsigned int flags;
};

static int rank_main(int rank, void *arg)
{
	const struct kcr_lane lanes[] = { { 0, 1, 4, 100 }, { 1, 0, 4, 100 } };
	const struct steady *s = arg;
	struct kcr_ring *ring;
	struct kcr_world *w;
	int i, failed = 0;

	setenv("KCR_SPIN", "1000000000", 1);
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_OK(w, kcr_ring_create(w, lanes, 2, s->flags, &ring));
	box.ring = ring;
	box.rank = rank;
	for (i = 0; i < 100 && !failed; i++)
		failed = s->operate(rank, w, ring, i);
	RANK_TRUE(!trace_me());
	for (int attempt = 0; attempt < TRACE_RUNS; attempt++) {
		trace_mark();
		for (i = 0; i < OPERATIONS && !failed; i++)
			failed = s->operate(rank, w, ring, 1 + i);
		trace_mark();
	}
	RANK_TRUE(!failed);
	RANK_OK(w, kcr_ring_destroy(ring));
	RANK_OK(w, kcr_world_destroy(w));
	return 0;
}

static int empty_main(int rank, void *arg)
{
	RANK_TRUE(!trace_me());
	for (int attempt = 0; attempt < TRACE_RUNS; attempt++) {
		trace_mark();
		trace_mark();
	}
	return 0;
}

static int least(const struct trace *t)
{
	int best = t->calls[0];

	for (int i = 1; i < TRACE_RUNS; i++)
		if (t->calls[i] < best)
			best = t->calls[i];
	return best;
}

FIXTURE(steady) {
};

FIXTURE_VARIANT(steady) {
	struct steady s;
};

FIXTURE_VARIANT_ADD(steady, allreduce) { { reduce } };
FIXTURE_VARIANT_ADD(steady, ring) { { answer } };
FIXTURE_VARIANT_ADD(steady, ring_and_wait) { { answer_by_waiting } };
FIXTURE_VARIANT_ADD(steady, raw_ring) { { overwrite, KCR_RING_RAW } };

FIXTURE_SETUP(steady)
{
	if (ranks_no_link())
		SKIP(return, "%s", ranks_no_link());
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "two ranks need two CPUs");
}

FIXTURE_TEARDOWN(steady)
{
}

TEST_F_TIMEOUT(steady, no_system_call, 900)
{
	struct trace empty = { 0 }, traces[2] = { 0 };
	struct steady s = variant->s;
	struct ranks r;
	int rank;

	ASSERT_EQ(0, ranks_start(&r, 1, empty_main, NULL));
	EXPECT_EQ(0, trace_all(r.pid, r.status, &empty, 1, 20 * pace()));
	ranks_end(&r);

	ASSERT_EQ(0, ranks_start(&r, 2, rank_main, &s));
	EXPECT_EQ(0, trace_all(r.pid, r.status, traces, 2, 100 * pace()));
	ranks_report(&r);
	ranks_end(&r);
	for (rank = 0; rank < 2; rank++) {
		int calls = (least(&traces[rank]) - least(&empty)) / 2;

		EXPECT_EQ(2 * TRACE_RUNS, traces[rank].marks);
		TH_LOG("rank %d: %.4f system calls per operation (%d in %d)",
		       rank, (double)calls / OPERATIONS, calls, OPERATIONS);
		EXPECT_EQ(0, calls);
	}
}

TEST_HARNESS_MAIN
