// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The process: its clock, its random bytes, its threads, and whether it was forked.
 *
 * A world belongs to the process that joined. getpid() is a system call, so
 * a forked child is told by a counter that a fork handler moves.
 */
#include <errno.h>
#include <signal.h>
#include <sys/random.h>
#include <time.h>
#include "kcr.h"

static unsigned int fork_generation;	/* written in the only thread of a new child */

static void forked(void)
{
	fork_generation++;
}

__attribute__((constructor))
static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, forked);
}

unsigned int process_fork_generation(void)
{
	return fork_generation;
}

uint64_t process_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/*
 * The same, some milliseconds late: no system call, and no look at a device, whatever the
 * machine's clock is.
 */
uint64_t process_coarse_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Fill @buffer; 0 or a negative errno. */
int process_random(void *buffer, size_t bytes)
{
	ssize_t got;

	do {
		got = getrandom(buffer, bytes, 0);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	return got == (ssize_t)bytes ? 0 : -EIO;
}

/*
 * A thread of the library's own. Signals are the program's: one that it waits for, or has
 * blocked in its threads, must not be taken by this. Not so those that a thread causes
 * itself, on the program's memory: they are always its own, and blocked they would end the
 * process past any handler. A positive errno, as pthread_create().
 */
int process_thread(pthread_t *thread, void *(*fn)(void *), void *arg)
{
	static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS };
	sigset_t all, before;
	int err;

	sigfillset(&all);
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		sigdelset(&all, own[i]);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
}
