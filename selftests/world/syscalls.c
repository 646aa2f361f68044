// SPDX-License-Identifier: GPL-2.0
/*
 * In the steady state, with a CPU for each rank, an allreduce makes no system
 * call.
 *
 * Two ranks are traced as strace does it: each stop at the entry of a system
 * call between two marks (SIGUSR1 the rank sends itself) is counted. A waiting rank
 * that gives its CPU away calls the kernel, so the budget of looking is raised. How
 * long a peer may be away is up to the machine; the least of several runs counts.
 */
#include <sys/ptrace.h>
#include "kselftest_harness.h"
#include "data.h"
#include "ranks.h"

#define OPERATIONS	2000
#define ATTEMPTS	10
#define COUNT		256

static int rank_main(int rank, void *arg)
{
	static float send[COUNT], recv[COUNT], want[COUNT];
	struct kcr_world *w;
	int i;

	setenv("KCR_SPIN", "1000000000", 1);
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	data_fill(send, COUNT, KCR_F32, rank, 1);
	RANK_OK(NULL, data_expect(want, COUNT, KCR_F32, KCR_SUM, kcr_size(w), 1));
	for (i = 0; i < 100; i++)
		RANK_OK(w, kcr_allreduce(w, send, recv, COUNT, KCR_F32, KCR_SUM));
	RANK_TRUE(!ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		raise(SIGUSR1);
		for (i = 0; i < OPERATIONS; i++)
			RANK_OK(w, kcr_allreduce(w, send, recv, COUNT, KCR_F32,
						 KCR_SUM));
		raise(SIGUSR1);
	}
	RANK_TRUE(data_differ(want, recv, COUNT, KCR_F32) < 0);
	RANK_OK(w, kcr_world_destroy(w));
	return 0;
}

struct trace {
	int marks;		/* seen so far */
	int stops;		/* of system calls in this run, entry and exit */
	int calls[ATTEMPTS];
};

/* One stop of a traced rank. Returns the signal to go on with. */
static int on_stop(struct trace *t, int status)
{
	if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
		t->stops++;
		return 0;
	}
	if (WSTOPSIG(status) != SIGUSR1)
		return WSTOPSIG(status);
	if (t->marks % 2)
		/* raise() of the closing mark: getpid, gettid, tgkill. */
		t->calls[t->marks / 2] = t->stops;
	t->stops = 0;
	t->marks++;
	return 0;
}

/*
 * What the marks themselves cost is the same in each run; it is measured by
 * an empty run.
 */
static int empty_main(int rank, void *arg)
{
	RANK_TRUE(!ptrace(PTRACE_TRACEME, 0, NULL, NULL));
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		raise(SIGUSR1);
		raise(SIGUSR1);
	}
	return 0;
}

/* Trace all ranks to their end. Returns how many ended badly. */
static int trace_ranks(struct ranks *r, struct trace *traces, double seconds)
{
	double deadline = ranks_now() + seconds;
	int running = r->n, bad = 0;

	while (running && ranks_now() < deadline) {
		int status, rank, sig;
		pid_t pid = waitpid(-1, &status, __WALL | WNOHANG);

		if (pid <= 0) {
			ranks_sleep(0.0002);
			continue;
		}
		for (rank = 0; rank < r->n && r->pid[rank] != pid; rank++)
			;
		if (rank == r->n)
			continue;
		if (!WIFSTOPPED(status)) {
			r->status[rank] = status;
			r->pid[rank] = 0;
			bad += status != 0;
			running--;
			continue;
		}
		ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD);
		sig = on_stop(&traces[rank], status);
		ptrace(PTRACE_SYSCALL, pid, NULL, sig);
	}
	return bad + running;
}

static int least(const struct trace *t)
{
	int best = t->calls[0];

	for (int i = 1; i < ATTEMPTS; i++)
		if (t->calls[i] < best)
			best = t->calls[i];
	return best;
}

TEST(no_system_call_in_the_steady_state)
{
	struct trace empty = { 0 }, traces[2] = { 0 };
	struct ranks r;
	int rank;

	if (ranks_no_link())
		SKIP(return, "%s", ranks_no_link());
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "two ranks need two CPUs");

	ASSERT_EQ(0, ranks_start(&r, 1, empty_main, NULL));
	EXPECT_EQ(0, trace_ranks(&r, &empty, 20));
	ranks_end(&r);

	ASSERT_EQ(0, ranks_start(&r, 2, rank_main, NULL));
	EXPECT_EQ(0, trace_ranks(&r, traces, 100));
	ranks_report(&r);
	ranks_end(&r);
	for (rank = 0; rank < 2; rank++) {
		int calls = (least(&traces[rank]) - least(&empty)) / 2;

		EXPECT_EQ(2 * ATTEMPTS, traces[rank].marks);
		TH_LOG("rank %d: %.4f system calls per allreduce (%d in %d)",
		       rank, (double)calls / OPERATIONS, calls, OPERATIONS);
		EXPECT_EQ(0, calls);
	}
}

TEST_HARNESS_MAIN
