/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ranks of a world, as child processes of a test
 *
 *	static int rank_main(int rank, void *arg)
 *	{
 *		struct kcr_world *w;
 *
 *		RANK_OK(NULL, kcr_world_create(NULL, &w));
 *		...
 *		return 0;
 *	}
 *
 *	ASSERT_EQ(0, ranks_run(4, rank_main, &arg, 20));
 *
 * Every run has a rendezvous directory of its own, or, if KCR_TEST_MEET names a way
 * and a host, such as tcp:127.0.0.1, a port there. What a rank finds wrong, it
 * says on stderr and returns non-zero; ranks_run() says which rank did, which
 * died of what signal, and which had not ended in time. What ranks have to tell
 * the test goes through memory from ranks_shared().
 *
 * A rank is killed when the test dies. The link is chosen by KCR_LINK, which
 * whoever runs the tests sets.
 */
#ifndef KCR_TEST_RANKS_H
#define KCR_TEST_RANKS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kcollring.h"
#include "pace.h"

#define RANKS_DEVICE	"/dev/kcollring"

struct ranks {
	int n;
	char dir[64];
	char place[128];		/* for KCR_RENDEZVOUS */
	int port;
	pid_t pid[KCR_RANKS_MAX];	/* 0 once it was waited for */
	int status[KCR_RANKS_MAX];	/* as waitpid() gives it, -1 while it runs */
};

/* Inside a rank: complain and return from the rank's function. */
#define RANK_FAIL(...) do {						\
	fprintf(stderr, "# rank %d: %s:%d: ", rank, __FILE__, __LINE__);	\
	fprintf(stderr, __VA_ARGS__);					\
	fputc('\n', stderr);						\
	return 1;							\
} while (0)

#define RANK_TRUE(condition) do {					\
	if (!(condition))						\
		RANK_FAIL("not so: %s", #condition);			\
} while (0)

/* A library call that must give @want; @w as for kcr_error(). */
#define RANK_GIVES(want, w, call) do {					\
	int rank_got = (call);						\
	int rank_want = (want);						\
									\
	if (rank_got != rank_want)					\
		RANK_FAIL("%s: %d (%s), expected %d: %s", #call, rank_got,	\
			  strerror(-rank_got), rank_want, kcr_error(w));	\
} while (0)

#define RANK_OK(w, call) RANK_GIVES(0, w, call)

/* The sentence in kcr_error(@w) must have @text in it. */
#define RANK_SAYS(w, text) do {						\
	const char *rank_said = kcr_error(w), *rank_text = (text);	\
									\
	if (!strstr(rank_said, rank_text))				\
		RANK_FAIL("\"%s\" does not say \"%s\"", rank_said, rank_text);	\
} while (0)

/* A call that must give @want and say @text. */
#define RANK_REFUSED(want, w, call, text) do {				\
	const struct kcr_world *rank_world = (w);			\
									\
	RANK_GIVES(want, rank_world, call);				\
	RANK_SAYS(rank_world, text);					\
} while (0)

static inline double ranks_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static inline void ranks_sleep(double seconds)
{
	struct timespec t = { (time_t)seconds,
			      (long)((seconds - (time_t)seconds) * 1e9) };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* Zeroed memory that this process and all its ranks share. */
static inline void *ranks_shared(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static inline int ranks_link_is_module(void)
{
	const char *link = getenv("KCR_LINK");

	return link && !strcmp(link, "module");
}

/* In a virtual machine, which KCR_NODE tells, or through the module. */
static inline int ranks_are_slow(void)
{
	return ranks_link_is_module() || getenv("KCR_NODE");
}

/*
 * How often to do what is to be done @full times: over shared memory on a host
 * that often; where ranks are slow 64 times less. KCR_TEST_SCALE times as often, if it is set.
 */
static inline long ranks_rounds(long full)
{
	const char *scale = getenv("KCR_TEST_SCALE");
	long divisor = ranks_are_slow() ? 64 : 1;

	if (scale && atof(scale) > 0)
		full *= atof(scale);
	return full / divisor ? full / divisor : 1;
}

/* Seconds that a process has computed, with all its threads; or -1. */
static inline double ranks_cpu(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
		return -1;
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* What a call gave, when, and what was said, for the test to look at. */
struct ranks_outcome {
	int done;
	int err;
	double at;
	double cpu;
	char said[512];
};

/* @w as for kcr_error(). Returns @err. */
static inline int ranks_record(struct ranks_outcome *o, struct kcr_world *w,
			       int err)
{
	o->at = ranks_now();
	o->cpu = ranks_cpu(0);
	o->err = err;
	snprintf(o->said, sizeof(o->said), "%s", kcr_error(w));
	__atomic_store_n(&o->done, 1, __ATOMIC_RELEASE);
	return err;
}

/*
 * Why the link that KCR_LINK asks for cannot be used here, or NULL if it can:
 * for SKIP() in a fixture's setup.
 */
static inline const char *ranks_no_link(void)
{
	const char *link = getenv("KCR_LINK");

	if (!link || strcmp(link, "module"))
		return NULL;
	if (!access(RANKS_DEVICE, R_OK | W_OK))
		return NULL;
	return errno == EACCES ? "no permission for " RANKS_DEVICE :
		"no " RANKS_DEVICE ": insmod kcollring.ko";
}

static inline void ranks_set(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	setenv(name, text, 1);
}

static inline void ranks_child(struct ranks *r, int rank, pid_t parent,
			       int (*fn)(int rank, void *arg), void *arg)
{
	int err;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	ranks_set("KCR_RANK", rank);
	ranks_set("KCR_SIZE", r->n);
	ranks_set("KCR_LOCAL_RANK", rank);
	ranks_set("KCR_LOCAL_SIZE", r->n);
	setenv("KCR_RENDEZVOUS", r->place, 1);
	setenv("KCR_JOB", strrchr(r->dir, '/') + 1, 1);
	err = fn(rank, arg);
	fflush(NULL);
	/* No exit handlers: they are the test's, not the rank's. */
	_exit(err ? 1 : 0);
}

/* How many files ranks have left in the rendezvous directory. */
static inline int ranks_files(struct ranks *r)
{
	struct dirent *entry;
	DIR *dir = opendir(r->dir);
	int n = 0;

	if (!dir)
		return -errno;
	while ((entry = readdir(dir)))
		n += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	closedir(dir);
	return n;
}

/*
 * Open descriptors and memory mappings of this process; of the latter 0 where an
 * allocator of the address sanitizer's makes them as it likes.
 */
static inline int ranks_descriptors(void)
{
	struct dirent *entry;
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	if (!dir)
		return -errno;
	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

static inline int ranks_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	int c, n = 0;

	if (!maps)
		return -errno;
	while ((c = getc(maps)) != EOF)
		n += c == '\n';
	fclose(maps);
#ifdef __SANITIZE_ADDRESS__
	n = 0;
#endif
	return n;
}

/* Remove the rendezvous directory and what ranks left there. */
static inline void ranks_remove_dir(struct ranks *r)
{
	struct dirent *entry;
	DIR *dir = opendir(r->dir);

	if (!dir)
		return;
	while ((entry = readdir(dir)))
		unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
	rmdir(r->dir);
}

/* Start rank @rank, again if it was started before. */
static inline int ranks_start_one(struct ranks *r, int rank,
				  int (*fn)(int rank, void *arg), void *arg)
{
	pid_t parent = getpid();

	fflush(NULL);
	r->status[rank] = -1;
	r->pid[rank] = fork();
	if (!r->pid[rank])
		ranks_child(r, rank, parent, fn, arg);
	return r->pid[rank] < 0 ? -errno : 0;
}

/*
 * A port that nobody listens at, nor gets for a connection: below the range that
 * those are from.
 */
static inline int ranks_free_port(void)
{
	static unsigned int next;
	struct sockaddr_in6 at = { .sin6_family = AF_INET6 };
	struct sockaddr_in at4 = { .sin_family = AF_INET };
	int on = 1, tries;

	if (!next)
		next = getpid() * 37;
	for (tries = 0; tries < 1000; tries++) {
		int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
		int six = fd >= 0, port = 12000 + next++ % 20000, err;

		if (!six)
			fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		at.sin6_port = htons(port);
		at4.sin_port = htons(port);
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
		err = bind(fd, six ? (void *)&at : (void *)&at4,
			   six ? sizeof(at) : sizeof(at4)) || listen(fd, 1);
		close(fd);
		if (!err)
			return port;
	}
	return -1;
}

/* Make the directory for a world of @n ranks, and start none of them. */
static inline int ranks_init(struct ranks *r, int n)
{
	const char *meet = getenv("KCR_TEST_MEET");

	memset(r, 0, sizeof(*r));
	if (n < 1 || n > KCR_RANKS_MAX)
		return -EINVAL;
	r->n = n;
	strcpy(r->dir, "/tmp/kcr-test-XXXXXX");
	if (!mkdtemp(r->dir))
		return -errno;
	snprintf(r->place, sizeof(r->place), "file:%s", r->dir);
	if (meet && *meet) {
		r->port = ranks_free_port();
		snprintf(r->place, sizeof(r->place), "%.100s:%d", meet, r->port);
	}
	return 0;
}

static inline void ranks_kill(struct ranks *r, int rank, int sig)
{
	if (r->pid[rank] > 0)
		kill(r->pid[rank], sig);
}

/* Kill those who still run, forget all. */
static inline void ranks_end(struct ranks *r)
{
	int rank;

	for (rank = 0; rank < r->n; rank++)
		ranks_kill(r, rank, SIGKILL);
	for (rank = 0; rank < r->n; rank++) {
		if (r->pid[rank] > 0)
			waitpid(r->pid[rank], &r->status[rank], 0);
		r->pid[rank] = 0;
	}
	ranks_remove_dir(r);
}

static inline int ranks_start(struct ranks *r, int n,
			      int (*fn)(int rank, void *arg), void *arg)
{
	int rank, err;

	err = ranks_init(r, n);
	for (rank = 0; rank < n && !err; rank++)
		err = ranks_start_one(r, rank, fn, arg);
	if (err)
		ranks_end(r);
	return err;
}

/* Has rank @rank ended? Its status is then in r->status[rank]. */
static inline int ranks_ended(struct ranks *r, int rank)
{
	if (r->pid[rank] > 0 &&
	    waitpid(r->pid[rank], &r->status[rank], WNOHANG) == r->pid[rank])
		r->pid[rank] = 0;
	return r->pid[rank] <= 0;
}

/*
 * Wait until all have ended, at most @seconds; 0, or -ETIMEDOUT with those that have not
 * still running.
 */
static inline int ranks_wait(struct ranks *r, double seconds)
{
	double deadline = ranks_now() + seconds * pace();
	int rank, running;

	for (;;) {
		running = 0;
		for (rank = 0; rank < r->n; rank++)
			running += !ranks_ended(r, rank);
		if (!running)
			return 0;
		if (ranks_now() > deadline)
			return -ETIMEDOUT;
		ranks_sleep(0.002);
	}
}

/* Say which ranks did not return 0, and how many. Those that run are late. */
static inline int ranks_report(struct ranks *r)
{
	int rank, bad = 0;

	for (rank = 0; rank < r->n; rank++) {
		int status = r->status[rank];

		if (!status)
			continue;
		bad++;
		if (r->pid[rank] > 0)
			fprintf(stderr, "# rank %d of %d has not ended\n",
				rank, r->n);
		else if (WIFSIGNALED(status))
			fprintf(stderr, "# rank %d of %d died of signal %d (%s)\n",
				rank, r->n, WTERMSIG(status),
				strsignal(WTERMSIG(status)));
		else
			fprintf(stderr, "# rank %d of %d failed\n", rank, r->n);
	}
	return bad;
}

/* Run a whole world; returns how many ranks failed, or a negative errno. */
static inline int ranks_run(int n, int (*fn)(int rank, void *arg), void *arg,
			    double seconds)
{
	struct ranks r;
	int bad, err;

	err = ranks_start(&r, n, fn, arg);
	if (err) {
		fprintf(stderr, "# %d ranks could not be started: %s\n", n,
			strerror(-err));
		return err;
	}
	if (ranks_wait(&r, seconds))
		fprintf(stderr, "# not all of %d ranks ended within %g s\n", n,
			seconds);
	bad = ranks_report(&r);
	ranks_end(&r);
	return bad;
}

/*
 * Meet in shared memory, without the library: for a test that must line
 * ranks up before it does something to them. @n of them, any number of times.
 */
struct ranks_meeting {
	int arrived;
	int round;
};

static inline void ranks_meet(struct ranks_meeting *m, int n)
{
	int round = __atomic_load_n(&m->round, __ATOMIC_ACQUIRE);

	if (__atomic_add_fetch(&m->arrived, 1, __ATOMIC_ACQ_REL) == n) {
		__atomic_store_n(&m->arrived, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&m->round, round + 1, __ATOMIC_RELEASE);
		return;
	}
	while (__atomic_load_n(&m->round, __ATOMIC_ACQUIRE) == round)
		ranks_sleep(0.0005);
}

#endif /* KCR_TEST_RANKS_H */
