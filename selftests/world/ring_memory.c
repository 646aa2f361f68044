// SPDX-License-Identifier: GPL-2.0
/*
 * A rank gets no memory, descriptor, mapping or thread, at each place where it asks for one:
 * an error on every rank, and nothing is left
 *
 * Ranks are threads of the test (lib/inside.h). The linker gives the library's calls to
 * the functions below (--wrap), which fail once in the thread that is to.
 */
#include <signal.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <linux/kcollring.h>
#include "kselftest_harness.h"
#include "inside.h"
#include "ring.h"
#include "wrap.h"
#include "../../lib/ring.h"

#define RANKS	3
#define VICTIM	1

static __thread long countdown;		/* the call that fails, from 1; 0: none */
static long alive;			/* allocations, locks and conditions; atomic */
static int takes_acks, acks;		/* in the module's place; how many */
static int deaf, hearing;		/* the library's threads, by whether they take signals */

static int fails(void)
{
	return countdown && !--countdown;
}

static void *count(void *p)
{
	if (p)
		__atomic_fetch_add(&alive, 1, __ATOMIC_RELAXED);
	return p;
}

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : count(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : count(__real_calloc(n, bytes));
}

void __wrap_free(void *p)
{
	if (p)
		__atomic_fetch_sub(&alive, 1, __ATOMIC_RELAXED);
	__real_free(p);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
	return fails() ? NULL : count(__real_aligned_alloc(alignment, bytes));
}

int __wrap_memfd_create(const char *name, unsigned int flags)
{
	errno = EMFILE;
	return fails() ? -1 : __real_memfd_create(name, flags);
}

int __wrap_posix_fallocate(int fd, off_t at, off_t bytes)
{
	static __thread int calls;
	int err;

	/* Each first time, a signal comes. Errors are positive here. */
	if (++calls % 2)
		err = EINTR;
	else
		err = fails() ? ENOSPC : __real_posix_fallocate(fd, at, bytes);
	return err;
}

void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	errno = ENOMEM;
	return fails() ? MAP_FAILED : __real_mmap(at, bytes, prot, flags, fd, offset);
}

int __wrap_eventfd(unsigned int value, int flags)
{
	errno = ENFILE;
	return fails() ? -1 : __real_eventfd(value, flags);
}

int __wrap_pthread_mutex_init(pthread_mutex_t *lock, const pthread_mutexattr_t *attr)
{
	__atomic_fetch_add(&alive, 1, __ATOMIC_RELAXED);
	return __real_pthread_mutex_init(lock, attr);
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *lock)
{
	__atomic_fetch_sub(&alive, 1, __ATOMIC_RELAXED);
	return __real_pthread_mutex_destroy(lock);
}

int __wrap_pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attr)
{
	__atomic_fetch_add(&alive, 1, __ATOMIC_RELAXED);
	return __real_pthread_cond_init(cond, attr);
}

int __wrap_pthread_cond_destroy(pthread_cond_t *cond)
{
	__atomic_fetch_sub(&alive, 1, __ATOMIC_RELAXED);
	return __real_pthread_cond_destroy(cond);
}

/* What a thread causes itself, by what it does to the program's memory. */
static int is_own(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL ||
	       sig == SIGTRAP || sig == SIGSYS;
}

/* A thread begins with the signals blocked that its maker has blocked. */
static int blocks_signals(void)
{
	sigset_t now;

	pthread_sigmask(SIG_BLOCK, NULL, &now);
	for (int sig = 1; sig <= SIGRTMAX; sig++) {
		if (sig == SIGKILL || sig == SIGSTOP || (sig >= 32 && sig < SIGRTMIN))
			continue;
		if (sigismember(&now, sig) == is_own(sig))
			return 0;
	}
	return 1;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			  void *(*fn)(void *), void *arg)
{
	/* Not the test's own, which are ranks. */
	if (fn != inside_run)
		__atomic_fetch_add(blocks_signals() ? &deaf : &hearing, 1,
				   __ATOMIC_RELAXED);
	return fails() ? EAGAIN : __real_pthread_create(thread, attr, fn, arg);
}

/* Those that make something, and those that send acknowledgements, which may go nowhere. */
int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	errno = ENOMEM;
	if ((request == KCR_IOCTL_WINDOW || request == KCR_IOCTL_ACK) && fails())
		return -1;
	if (request != KCR_IOCTL_ACK || !takes_acks)
		return __real_ioctl(fd, request, arg);
	acks++;
	return 0;
}

struct attempt {
	long nth;
	unsigned int flags;
	struct kcr_ring *rings[RANKS];
	int err[RANKS];
	int left;
};

static int make(int rank, struct kcr_world *w, void *arg)
{
	static const struct kcr_lane lanes[] = { { 0, 1, 4, 100 }, { 1, 2, 4, 100 },
						 { 2, 1, 4, 100 } };
	struct attempt *a = arg;

	countdown = rank == VICTIM ? a->nth : 0;
	a->err[rank] = kcr_ring_create(w, lanes, 3, a->flags, &a->rings[rank]);
	if (rank == VICTIM)
		a->left = countdown;
	countdown = 0;
	RANK_TRUE(!a->err[rank] == !!a->rings[rank]);
	if (a->err[rank])
		RANK_TRUE(strlen(kcr_error(w)) > 10 && strlen(kcr_error(NULL)) > 10);
	RANK_OK(w, kcr_barrier(w));
	return 0;
}

static int drop(int rank, struct kcr_world *w, void *arg)
{
	struct attempt *a = arg;

	RANK_OK(w, kcr_ring_destroy(a->rings[rank]));
	return 0;
}

FIXTURE(memory) {
	struct inside in;
};

FIXTURE_VARIANT(memory) {
	unsigned int flags;
};

FIXTURE_VARIANT_ADD(memory, safe) { 0 };
FIXTURE_VARIANT_ADD(memory, raw) { KCR_RING_RAW };

FIXTURE_SETUP(memory)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	ASSERT_EQ(0, inside_open(&self->in, RANKS));
}

FIXTURE_TEARDOWN(memory)
{
	inside_close(&self->in);
}

TEST_F_TIMEOUT(memory, each_thing_that_a_ring_needs, 120)
{
	struct attempt a = { .flags = variant->flags };
	int descriptors = ranks_descriptors();
	int mappings = ring_mappings();
	long before = alive;

	for (a.nth = 1; ; a.nth++) {
		ASSERT_GT(100, a.nth);
		ASSERT_EQ(0, inside_each(&self->in, make, &a));
		EXPECT_EQ(a.err[0], a.err[1]);
		EXPECT_EQ(a.err[0], a.err[2]);
		if (!a.err[VICTIM])
			break;
		EXPECT_TRUE(a.err[0] == -ENOMEM || a.err[0] == -EMFILE) {
			TH_LOG("%ld. call: %d", a.nth, a.err[0]);
		}
		EXPECT_EQ(descriptors, ranks_descriptors());
		EXPECT_EQ(mappings, ring_mappings());
		EXPECT_EQ(before, alive) {
			TH_LOG("%ld. call", a.nth);
		}
	}
	/* It was not one of these calls that failed. */
	EXPECT_LT(0, a.left);
	EXPECT_LT(8, a.nth);
	ASSERT_EQ(0, inside_each(&self->in, drop, &a));
	EXPECT_EQ(descriptors, ranks_descriptors());
	EXPECT_EQ(mappings, ring_mappings());
	EXPECT_EQ(before, alive);
}

TEST_F(memory, what_a_descriptor_needs)
{
	const int errors[] = { -ENOMEM, -ENFILE, -EAGAIN };
	struct attempt a = { .flags = variant->flags };
	int descriptors;
	long before;

	ASSERT_EQ(0, inside_each(&self->in, make, &a));
	descriptors = ranks_descriptors();
	before = alive;
	for (int nth = 1; nth <= 3; nth++) {
		countdown = nth;
		EXPECT_EQ(errors[nth - 1], kcr_ring_fd(a.rings[1]));
		EXPECT_EQ(0, countdown);
		EXPECT_EQ(descriptors, ranks_descriptors());
		EXPECT_EQ(before, alive);
	}
	EXPECT_LE(0, kcr_ring_fd(a.rings[1]));
	ASSERT_EQ(0, inside_each(&self->in, drop, &a));
}

/* Over a lane between nodes, as far as the library sees: the module is the test. */
TEST_F(memory, an_acknowledgement_that_is_not_sent)
{
	static const struct kcr_lane_status status;
	struct attempt a = { .flags = variant->flags };
	struct ring_inbox box = { .rank = 1 };
	int sends = !variant->flags;	/* on a raw lane nobody waits for it */
	const struct kcr_lane_status *remote;
	struct ring_rx *rx;
	int polled = 0;

	ASSERT_EQ(0, inside_each(&self->in, make, &a));
	box.ring = a.rings[1];
	rx = a.rings[1]->from[0];
	remote = rx->remote;
	rx->remote = &status;
	takes_acks = 1;
	acks = 0;
	for (uint64_t n = 1; n <= 3; n++)
		ASSERT_EQ(n, ring_send(a.rings[0], 0, 1, n, 0));
	/* Over RDMA they take a moment. */
	while (polled < 3) {
		int n = kcr_ring_poll(a.rings[1], ring_receive, &box);

		ASSERT_LE(0, n);
		polled += n;
	}
	for (int i = 0; i < 2 && sends; i++) {
		countdown = 1;
		EXPECT_EQ(-ENOMEM, kcr_ring_ack(a.rings[1], 0, 2));
		EXPECT_EQ(0, countdown);
		EXPECT_EQ(0, acks);
	}
	/* Whatever is acknowledged next, the source hears of it. */
	EXPECT_EQ(0, kcr_ring_ack(a.rings[1], 0, 1));
	EXPECT_EQ(sends, acks);
	EXPECT_EQ(0, kcr_ring_ack(a.rings[1], 0, 2));
	EXPECT_EQ(sends, acks);
	EXPECT_EQ(0, kcr_ring_ack(a.rings[1], 0, 3));
	EXPECT_EQ(2 * sends, acks);
	EXPECT_EQ(0, kcr_ring_ack(a.rings[1], 0, 3));
	EXPECT_EQ(2 * sends, acks);
	takes_acks = 0;
	rx->remote = remote;
	ASSERT_EQ(0, inside_each(&self->in, drop, &a));
}

/* They are the program's: one that its own threads block must not go to one of the library's. */
TEST_F(memory, threads_that_take_no_signals)
{
	struct attempt a = { .flags = variant->flags };
	struct inside in = { .progress_thread = 1 };

	deaf = 0;
	ASSERT_EQ(0, inside_open(&in, 2));
	EXPECT_EQ(2, deaf);
	inside_close(&in);
	ASSERT_EQ(0, inside_each(&self->in, make, &a));
	ASSERT_LE(0, kcr_ring_fd(a.rings[1]));
	EXPECT_EQ(3, deaf);
	EXPECT_EQ(0, hearing);
	EXPECT_FALSE(blocks_signals());
	ASSERT_EQ(0, inside_each(&self->in, drop, &a));
}

TEST_HARNESS_MAIN
