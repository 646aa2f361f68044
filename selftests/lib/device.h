/* SPDX-License-Identifier: GPL-2.0 */
/*
 * /dev/kcollring as its tests use it: no library in between
 *
 * Every call here returns what the kernel gave, 0 or a negative errno, and
 * changes nothing of its own when that is an error. One process may be several
 * ranks, each with a descriptor of its own: tests do that where nobody has to
 * die.
 */
#ifndef KCR_TEST_DEVICE_H
#define KCR_TEST_DEVICE_H

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/kcollring.h>

#include "pace.h"

#define DEV_PATH	"/dev/kcollring"
#define DEV_COUNTERS	"/sys/class/misc/kcollring/"
#define DEV_PARAMETERS	"/sys/module/kcollring/parameters/"
#define DEV_NOBODY	65534

#define DEV_MS		1000000ULL
#define DEV_SECOND	1000000000ULL

/* How long what the kernel does later (workers, RCU) may take: CASES' 5 s. */
#define DEV_SETTLE	5.0

static inline double dev_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static inline void dev_sleep(double seconds)
{
	struct timespec t = { (time_t)seconds,
			      (long)((seconds - (time_t)seconds) * 1e9) };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* Does @condition become true within @seconds, as pace.h stretches them? */
#define DEV_SOON(seconds, condition) ({					\
	double dev_until = dev_now() + (seconds) * pace();		\
	bool dev_so;							\
									\
	for (;;) {							\
		dev_so = (condition);					\
		if (dev_so || dev_now() > dev_until)			\
			break;						\
		dev_sleep(0.001);					\
	}								\
	dev_so;								\
})

/*
 * How much more than usual is asked of the tests that repeat something:
 * KCR_TEST_SCALE, a factor, or KCR_TEST_LONG for PACE_LONG times.
 */
static inline double dev_scale(void)
{
	const char *scale = getenv("KCR_TEST_SCALE");
	double factor = scale ? strtod(scale, NULL) : 0;

	if (factor > 0)
		return factor;
	return getenv("KCR_TEST_LONG") ? PACE_LONG : 1;
}

/* The device and its calls. */

/* Why the tests of the device cannot run here, or NULL. */
static inline const char *dev_missing(void)
{
	if (!access(DEV_PATH, R_OK | W_OK))
		return NULL;
	if (errno == EACCES)
		return "no permission for " DEV_PATH;
	return "no " DEV_PATH ": insmod kcollring.ko";
}

static inline int dev_open(void)
{
	int fd = open(DEV_PATH, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static inline int dev_ioctl(int fd, unsigned long request, void *args)
{
	return ioctl(fd, request, args) < 0 ? -errno : 0;
}

/* What the ranks of a world have in common. */
struct dev_world {
	__u8 id[16];
	__u8 key[16];
	__u32 ranks;
};

static inline struct dev_world dev_world(__u32 ranks)
{
	struct dev_world w = { .ranks = ranks };

	if (getrandom(&w, offsetof(struct dev_world, ranks), 0) < 0)
		abort();
	return w;
}

/* With -ECONNRESET, @cause tells why the world has failed. */
static inline int dev_join_cause(int fd, const struct dev_world *w, __u32 rank, __u64 *cause)
{
	int err;

	struct kcr_join join = {
		.size = sizeof(join),
		.rank = rank,
		.ranks = w->ranks,
	};

	memcpy(join.id, w->id, sizeof(join.id));
	memcpy(join.key, w->key, sizeof(join.key));
	err = dev_ioctl(fd, KCR_IOCTL_JOIN, &join);
	*cause = join.cause;
	return err;
}

static inline int dev_join(int fd, const struct dev_world *w, __u32 rank)
{
	__u64 cause;

	return dev_join_cause(fd, w, rank, &cause);
}

/* A descriptor that has joined, or an error. */
static inline int dev_member(const struct dev_world *w, __u32 rank)
{
	int fd = dev_open();
	int err;

	if (fd < 0)
		return fd;
	err = dev_join(fd, w, rank);
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

static inline int dev_window(int fd, __u32 window, const struct kcr_lane_desc *lanes,
			     __u32 nr_lanes, __u64 board_bytes)
{
	struct kcr_window args = {
		.size = sizeof(args),
		.window = window,
		.nr_lanes = nr_lanes,
		.lanes = (unsigned long)lanes,
		.board_bytes = board_bytes,
	};

	return dev_ioctl(fd, KCR_IOCTL_WINDOW, &args);
}

static inline int dev_detach(int fd, __u32 window)
{
	struct kcr_window_detach args = { .size = sizeof(args), .window = window };

	return dev_ioctl(fd, KCR_IOCTL_WINDOW_DETACH, &args);
}

static inline int dev_wait(int fd, __u64 seen, __u64 timeout_ns, __u64 cookie)
{
	struct kcr_wait args = {
		.size = sizeof(args),
		.seen = seen,
		.timeout_ns = timeout_ns,
		.cookie = cookie,
	};

	return dev_ioctl(fd, KCR_IOCTL_WAIT, &args);
}

static inline int dev_kick(int fd, __u32 base, __u64 mask)
{
	struct kcr_kick args = { .size = sizeof(args), .base = base, .mask = mask };

	return dev_ioctl(fd, KCR_IOCTL_KICK, &args);
}

static inline int dev_leave(int fd)
{
	struct kcr_leave args = { .size = sizeof(args) };

	return dev_ioctl(fd, KCR_IOCTL_LEAVE, &args);
}

static inline int dev_cancel(int fd, __u64 cookie)
{
	struct kcr_cancel args = { .size = sizeof(args), .cookie = cookie };

	return dev_ioctl(fd, KCR_IOCTL_CANCEL, &args);
}

static inline int dev_fail(int fd, __u32 error)
{
	struct kcr_fail args = { .size = sizeof(args), .error = error };

	return dev_ioctl(fd, KCR_IOCTL_FAIL, &args);
}

static inline int dev_query(int fd, struct kcr_query *query)
{
	memset(query, 0, sizeof(*query));
	query->size = sizeof(*query);
	return dev_ioctl(fd, KCR_IOCTL_QUERY, query);
}

/* What KCR_IOCTL_INFO has on a rank; -ENOENT if it shows no such member. */
static inline int dev_info(const struct dev_world *w, __u32 rank, struct kcr_info *info)
{
	int fd = dev_open();
	int err;

	if (fd < 0)
		return fd;
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	do {
		err = dev_ioctl(fd, KCR_IOCTL_INFO, info);
	} while (!err && (memcmp(info->id, w->id, sizeof(w->id)) || info->rank != rank));
	close(fd);
	return err;
}

/* How many commands a rank has parked, or a negative errno. */
static inline int dev_parked(const struct dev_world *w, __u32 rank)
{
	struct kcr_info info;
	int err = dev_info(w, rank, &info);

	return err ? err : (int)info.parked;
}

/* Mappings. MAP_FAILED, with errno, as mmap() gives it. */

static inline long dev_page(void)
{
	return sysconf(_SC_PAGESIZE);
}

static inline size_t dev_pages(size_t bytes)
{
	return (bytes + dev_page() - 1) & ~(size_t)(dev_page() - 1);
}

/* The length of a lane's memory. */
static inline size_t dev_lane_bytes(const struct kcr_lane_desc *lane)
{
	return dev_pages(lane->depth * KCR_SLOT_STRIDE(lane->capacity));
}

static inline void *dev_map(int fd, int prot, __u32 window, __u32 part, __u32 index,
			    size_t bytes)
{
	return mmap(NULL, bytes, prot, MAP_SHARED, fd,
		    (off_t)KCR_MMAP_OFFSET(window, part, index));
}

/* The error that a mapping gives; 0, and it is gone again, if it gives none. */
static inline int dev_map_error(int fd, int prot, int flags, __u64 offset, size_t bytes)
{
	void *p = mmap(NULL, bytes, prot, flags, fd, (off_t)offset);

	if (p == MAP_FAILED)
		return -errno;
	munmap(p, bytes);
	return 0;
}

static inline struct kcr_status *dev_status(int fd)
{
	return dev_map(fd, PROT_READ, 0, KCR_MAP_STATUS, 0, sizeof(struct kcr_status));
}

static inline __u64 dev_events(const struct kcr_status *status)
{
	return __atomic_load_n(&status->events, __ATOMIC_ACQUIRE);
}

static inline __u64 dev_cause(const struct kcr_status *status)
{
	return __atomic_load_n(&status->cause, __ATOMIC_ACQUIRE);
}

static inline int dev_state(const struct kcr_status *status, __u32 rank)
{
	return __atomic_load_n(&status->member[rank], __ATOMIC_ACQUIRE);
}

/* Commands through io_uring, and by whichever way a test's variant says. */

enum dev_form {
	DEV_IOCTL,
	DEV_URING,
	DEV_ASYNC,		/* from a worker of io_uring: IOSQE_ASYNC */
	DEV_SQPOLL,		/* from its polling thread */
};

static inline int dev_ring(struct io_uring *ring, enum dev_form form)
{
	struct io_uring_params p = { .flags = IORING_SETUP_SQE128 };

	if (form == DEV_SQPOLL) {
		p.flags |= IORING_SETUP_SQPOLL;
		p.sq_thread_idle = 20;
	}
	return io_uring_queue_init_params(256, ring, &p);
}

/*
 * An entry with a command; liburing 2.3 has no function for it. As many bytes
 * of @args as the ring's entries have room for.
 */
static inline struct io_uring_sqe *dev_entry(struct io_uring *ring, int fd, __u32 op,
					     const void *args, size_t bytes, __u64 user_data)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	size_t whole = ring->flags & IORING_SETUP_SQE128 ? 128 : 64;
	size_t room = whole - offsetof(struct io_uring_sqe, cmd);

	if (!sqe)
		return NULL;
	memset(sqe, 0, whole);
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = fd;
	sqe->cmd_op = op;
	sqe->user_data = user_data;
	memcpy(sqe->cmd, args, bytes < room ? bytes : room);
	return sqe;
}

static inline struct io_uring_sqe *dev_entry_wait(struct io_uring *ring, int fd, __u64 seen,
						  __u64 timeout_ns, __u64 cookie,
						  __u64 user_data)
{
	struct kcr_wait args = {
		.size = sizeof(args),
		.seen = seen,
		.timeout_ns = timeout_ns,
		.cookie = cookie,
	};

	return dev_entry(ring, fd, KCR_CMD_WAIT, &args, sizeof(args), user_data);
}

/* Take one completion; -ETIME if none comes within @seconds, stretched. */
static inline int dev_reap(struct io_uring *ring, double seconds, struct io_uring_cqe *cqe)
{
	double until = dev_now() + seconds * pace();
	struct io_uring_cqe *first;
	int err;

	for (;;) {
		double left = until - dev_now();
		struct __kernel_timespec t = { 0 };

		if (left > 0) {
			t.tv_sec = (long long)left;
			t.tv_nsec = (long long)((left - t.tv_sec) * 1e9);
		}
		err = io_uring_wait_cqe_timeout(ring, &first, &t);
		if (!err)
			break;
		if (left <= 0)
			return -ETIME;
		if (err != -EINTR && err != -ETIME && err != -EAGAIN)
			return err;
	}
	*cqe = *first;
	io_uring_cqe_seen(ring, first);
	return 0;
}

/* One command through a ring, and its answer. -ETIME: it never came. */
static inline int dev_ring_command(struct io_uring *ring, enum dev_form form, int fd,
				   __u32 op, const void *args, size_t bytes)
{
	struct io_uring_sqe *sqe = dev_entry(ring, fd, op, args, bytes, 1);
	struct io_uring_cqe cqe;
	int err;

	if (!sqe)
		return -EXFULL;
	if (form == DEV_ASYNC)
		sqe->flags |= IOSQE_ASYNC;
	err = io_uring_submit(ring);
	if (err < 0)
		return err;
	err = dev_reap(ring, 40, &cqe);
	return err ? err : cqe.res;
}

/* One command, KCR_CMD_*, by any form; a ring only for as long as it takes. */
static inline int dev_command(enum dev_form form, int fd, __u32 op, void *args, size_t bytes)
{
	struct io_uring ring;
	int err;

	if (form == DEV_IOCTL)
		return dev_ioctl(fd, _IO(KCR_IOCTL_TYPE, op), args);
	err = dev_ring(&ring, form);
	if (err)
		return err;
	err = dev_ring_command(&ring, form, fd, op, args, bytes);
	io_uring_queue_exit(&ring);
	return err;
}

/* A thread that waits. */

struct dev_sleeper {
	pthread_t thread;
	enum dev_form form;
	int fd;
	struct kcr_wait args;
	int result;
	double took;
};

static inline void *dev_sleeper_main(void *arg)
{
	struct dev_sleeper *s = arg;
	double begin = dev_now();

	s->result = dev_command(s->form, s->fd, KCR_CMD_WAIT, &s->args, sizeof(s->args));
	s->took = dev_now() - begin;
	return NULL;
}

static inline int dev_sleeper(struct dev_sleeper *s, enum dev_form form, int fd, __u64 seen,
			      __u64 timeout_ns, __u64 cookie)
{
	memset(s, 0, sizeof(*s));
	s->form = form;
	s->fd = fd;
	s->args.size = sizeof(s->args);
	s->args.seen = seen;
	s->args.timeout_ns = timeout_ns;
	s->args.cookie = cookie;
	s->result = 1;
	return -pthread_create(&s->thread, NULL, dev_sleeper_main, s);
}

/* What its WAIT gave; 1 if it did not end within @seconds. */
static inline int dev_sleeper_result(struct dev_sleeper *s, double seconds)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += (time_t)(seconds * pace()) + 1;
	if (pthread_timedjoin_np(s->thread, NULL, &t))
		return 1;
	return s->result;
}

/* Child processes. */

/* In a child: say what is not so and end. */
#define CHILD_TRUE(condition) do {					\
	if (!(condition)) {						\
		fprintf(stderr, "# child: %s:%d: not so: %s (errno %d)\n",	\
			__FILE__, __LINE__, #condition, errno);		\
		_exit(1);						\
	}								\
} while (0)

#define CHILD_GIVES(want, call) do {					\
	long child_got = (call);					\
	long child_want = (want);					\
									\
	if (child_got != child_want) {					\
		fprintf(stderr, "# child: %s:%d: %s: %ld, expected %ld\n",	\
			__FILE__, __LINE__, #call, child_got, child_want);	\
		_exit(1);						\
	}								\
} while (0)

/* @fn is all the child does; it dies with its parent. */
static inline pid_t dev_child(void (*fn)(void *arg), void *arg)
{
	pid_t parent = getpid();
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		fn(arg);
		fflush(NULL);
		_exit(0);
	}
	return pid;
}

/*
 * A child's status as waitpid() gives it; 0 is a child that is content. If it
 * has not ended in time it is killed: -ETIMEDOUT, or -EBUSY if even then it
 * does not end.
 */
static inline int dev_child_status(pid_t pid, double seconds)
{
	int status = 0;

	if (DEV_SOON(seconds, waitpid(pid, &status, WNOHANG) == pid))
		return status;
	kill(pid, SIGKILL);
	if (DEV_SOON(DEV_SETTLE, waitpid(pid, &status, WNOHANG) == pid))
		return -ETIMEDOUT;
	return -EBUSY;
}

/* Kill it; true if it is gone within the time that this may take. */
static inline bool dev_child_kill(pid_t pid)
{
	int status = 0;

	kill(pid, SIGKILL);
	return DEV_SOON(DEV_SETTLE, waitpid(pid, &status, WNOHANG) == pid) &&
		WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* Zeroed memory that this process and its children share. */
static inline void *dev_shared(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

/* A number in shared memory that tells how far somebody has come. */
static inline void dev_reach(int *stage, int value)
{
	__atomic_store_n(stage, value, __ATOMIC_SEQ_CST);
}

static inline bool dev_reached(int *stage, int value)
{
	return DEV_SOON(20, __atomic_load_n(stage, __ATOMIC_SEQ_CST) >= value);
}

/*
 * Become a user without privileges who may open the device: the device's group
 * stays.
 */
static inline int dev_become_nobody(void)
{
	struct stat st;

	if (stat(DEV_PATH, &st) || setgroups(1, &st.st_gid) ||
	    setresgid(DEV_NOBODY, DEV_NOBODY, DEV_NOBODY) ||
	    setresuid(DEV_NOBODY, DEV_NOBODY, DEV_NOBODY))
		return -errno;
	return 0;
}

/* Files with a number in them. */

static inline long dev_read_number(const char *path)
{
	char text[64] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	return n > 0 ? strtol(text, NULL, 10) : -1;
}

static inline int dev_write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		err = -errno;
	close(fd);
	return err;
}

static inline int dev_write_number(const char *path, long value)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld", value);
	return dev_write_text(path, text);
}

/*
 * The module's counters of everything that is alive, which only root may read.
 * Nobody else may use the module meanwhile.
 */
#define DEV_NR_COUNTERS 6
static const char *const dev_counter_names[DEV_NR_COUNTERS] = {
	"worlds", "members", "windows", "pages", "parked", "users",
};

struct dev_counters {
	bool known;
	long value[DEV_NR_COUNTERS];
};

static inline struct dev_counters dev_counters(void)
{
	struct dev_counters c = { .known = true };
	char path[80];
	int i;

	for (i = 0; i < DEV_NR_COUNTERS; i++) {
		snprintf(path, sizeof(path), DEV_COUNTERS "%s", dev_counter_names[i]);
		c.value[i] = dev_read_number(path);
		if (c.value[i] < 0)
			c.known = false;
	}
	return c;
}

static inline bool dev_counters_equal(const struct dev_counters *a)
{
	struct dev_counters b = dev_counters();

	return !a->known || !memcmp(a->value, b.value, sizeof(b.value));
}

/* What is there that was not there before, in words, or NULL. */
static inline const char *dev_left_behind(const struct dev_counters *before)
{
	static char text[160];
	struct dev_counters now;
	size_t n = 0;
	int i;

	if (DEV_SOON(DEV_SETTLE, dev_counters_equal(before)))
		return NULL;
	now = dev_counters();
	for (i = 0; i < DEV_NR_COUNTERS; i++)
		if (now.value[i] != before->value[i])
			n += snprintf(text + n, sizeof(text) - n, "%s %ld, was %ld; ",
				      dev_counter_names[i], now.value[i],
				      before->value[i]);
	return text;
}

/* For the end of a test: nothing may be left behind. */
#define DEV_EXPECT_NOTHING_LEFT(before) do {				\
	const char *dev_left = dev_left_behind(before);			\
									\
	EXPECT_EQ(NULL, dev_left) {					\
		TH_LOG("left behind: %s", dev_left);			\
	}								\
} while (0)

#endif /* KCR_TEST_DEVICE_H */
