/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How many system calls children make between two marks, counted as strace does it: by
 * each stop at one
 *
 *	trace_me();
 *	for (int run = 0; run < TRACE_RUNS; run++) {
 *		trace_mark();
 *		...
 *		trace_mark();
 *	}
 *
 * A mark is a signal that the child sends itself. What that costs is the same in each run,
 * and is in the counts: an empty run has it alone.
 */
#ifndef KCR_TEST_TRACE_H
#define KCR_TEST_TRACE_H

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include "ranks.h"

#define TRACE_RUNS	40

struct trace {
	int marks;		/* seen so far */
	int stops;		/* of system calls in this run, entry and exit */
	int calls[TRACE_RUNS];	/* stops of each, those of the closing mark, too */
	long long last[TRACE_RUNS];	/* the number of its last call that no mark makes, or -1 */
	long long call;		/* of this run */
};

static inline int trace_me(void)
{
	return ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static inline void trace_mark(void)
{
	raise(SIGUSR1);
}

/* What raise() calls. */
static inline int trace_is_of_mark(unsigned long long call)
{
	return call == SYS_rt_sigprocmask || call == SYS_getpid || call == SYS_gettid ||
	       call == SYS_tgkill;
}

/* One stop of a child. Returns the signal to go on with. */
static inline int trace_stop(struct trace *t, pid_t pid, int status)
{
	struct __ptrace_syscall_info info;

	if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
		t->stops++;
		if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) > 0 &&
		    info.op == PTRACE_SYSCALL_INFO_ENTRY && !trace_is_of_mark(info.entry.nr))
			t->call = info.entry.nr;
		return 0;
	}
	if (WSTOPSIG(status) != SIGUSR1)
		return WSTOPSIG(status);
	if (t->marks % 2 && t->marks < 2 * TRACE_RUNS) {
		t->calls[t->marks / 2] = t->stops;
		t->last[t->marks / 2] = t->call;
	}
	t->stops = 0;
	t->call = -1;
	t->marks++;
	return 0;
}

/*
 * Trace @n children to their end. Each that has ended has 0 for a pid, and its status.
 * Returns how many ended badly, or not within @seconds.
 */
static inline int trace_all(pid_t *pids, int *statuses, struct trace *traces, int n,
			    double seconds)
{
	double deadline = ranks_now() + seconds;
	int running = n, bad = 0;

	while (running && ranks_now() < deadline) {
		int status, i, sig;
		pid_t pid = waitpid(-1, &status, __WALL | WNOHANG);

		if (pid <= 0) {
			ranks_sleep(0.0002);
			continue;
		}
		for (i = 0; i < n && pids[i] != pid; i++)
			;
		if (i == n)
			continue;
		if (!WIFSTOPPED(status)) {
			statuses[i] = status;
			pids[i] = 0;
			bad += status != 0;
			running--;
			continue;
		}
		ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD);
		sig = trace_stop(&traces[i], pid, status);
		ptrace(PTRACE_SYSCALL, pid, NULL, sig);
	}
	return bad + running;
}

#endif /* KCR_TEST_TRACE_H */
