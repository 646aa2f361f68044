// SPDX-License-Identifier: GPL-2.0
/*
 * WAIT, and everything that can end it
 *
 * "wait" are the cases that hold for every form of the command: ioctl, io_uring,
 * io_uring from a worker, io_uring from its polling thread. "parked" are those
 * of one form. A rank's deadline is long (LONG) where something else is to end
 * its WAIT: a result of -ETIMEDOUT is then a wake-up that was lost.
 */
#include "kselftest_harness.h"
#include "device.h"

#include <elf.h>
#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>

#define LONG	(25 * DEV_SECOND)
#define SOON	5.0

struct pair {
	struct dev_counters before;
	struct dev_world world;
	int fd[2];
	struct kcr_status *status[2];
};

/* Why not, or NULL. */
static const char *pair_open(struct pair *p)
{
	const char *missing = dev_missing();
	int i;

	for (i = 0; i < 2; i++) {
		p->fd[i] = -1;
		p->status[i] = MAP_FAILED;
	}
	if (missing)
		return missing;
	p->before = dev_counters();
	p->world = dev_world(2);
	for (i = 0; i < 2; i++) {
		p->fd[i] = dev_member(&p->world, i);
		if (p->fd[i] >= 0)
			p->status[i] = dev_status(p->fd[i]);
	}
	return NULL;
}

static void pair_close(struct pair *p)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (p->status[i] != MAP_FAILED)
			munmap(p->status[i], sizeof(*p->status[i]));
		if (p->fd[i] >= 0)
			close(p->fd[i]);
	}
}

/* Rank @rank has @n commands parked, soon. */
#define SOON_PARKED(p, rank, n) DEV_SOON(SOON, dev_parked(&(p)->world, rank) == (n))

static bool form_works(enum dev_form form)
{
	struct io_uring ring;

	if (form == DEV_IOCTL)
		return true;
	if (dev_ring(&ring, form))
		return false;
	io_uring_queue_exit(&ring);
	return true;
}

FIXTURE(wait) {
	struct pair p;
};

FIXTURE_VARIANT(wait) {
	enum dev_form form;
};

FIXTURE_VARIANT_ADD(wait, ioctl) {
	.form = DEV_IOCTL,
};

FIXTURE_VARIANT_ADD(wait, uring) {
	.form = DEV_URING,
};

FIXTURE_VARIANT_ADD(wait, async) {
	.form = DEV_ASYNC,
};

FIXTURE_VARIANT_ADD(wait, sqpoll) {
	.form = DEV_SQPOLL,
};

FIXTURE_SETUP(wait)
{
	const char *missing = pair_open(&self->p);

	if (missing)
		SKIP(return, "%s", missing);
	if (!form_works(variant->form))
		SKIP(return, "no io_uring here");
	ASSERT_NE(MAP_FAILED, self->p.status[0]);
	ASSERT_NE(MAP_FAILED, self->p.status[1]);
}

FIXTURE_TEARDOWN(wait)
{
	pair_close(&self->p);
	DEV_EXPECT_NOTHING_LEFT(&self->p.before);
}

static int wait_by(enum dev_form form, int fd, __u64 seen, __u64 timeout_ns)
{
	struct kcr_wait args = {
		.size = sizeof(args),
		.seen = seen,
		.timeout_ns = timeout_ns,
	};

	return dev_command(form, fd, KCR_CMD_WAIT, &args, sizeof(args));
}

TEST_F(wait, at_once)
{
	struct pair *p = &self->p;
	__u64 events = dev_events(p->status[0]);
	double begin = dev_now();

	EXPECT_EQ(0, wait_by(variant->form, p->fd[0], events + 1, LONG));
	EXPECT_EQ(0, wait_by(variant->form, p->fd[0], events - 1, LONG));
	EXPECT_EQ(0, wait_by(variant->form, p->fd[0], ~0ULL, KCR_MAX_WAIT_NS));
	ASSERT_EQ(0, dev_kick(p->fd[1], 0, 1));
	EXPECT_EQ(0, wait_by(variant->form, p->fd[0], events, LONG));
	EXPECT_GT(10, dev_now() - begin);
	EXPECT_EQ(0, dev_parked(&p->world, 0));
}

TEST_F(wait, deadline)
{
	static const double seconds[] = { 0.001, 0.05, 0.3, 1.5 };
	struct pair *p = &self->p;
	double begin, took;
	int i;

	for (i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++) {
		begin = dev_now();
		EXPECT_EQ(-ETIMEDOUT, wait_by(variant->form, p->fd[0],
					      dev_events(p->status[0]), seconds[i] * 1e9));
		took = dev_now() - begin;
		EXPECT_LE(seconds[i] * 0.999, took);
		EXPECT_GT(seconds[i] + 2, took);
	}
	EXPECT_EQ(-ETIMEDOUT, wait_by(variant->form, p->fd[0], dev_events(p->status[0]), 1));
	EXPECT_EQ(0, dev_parked(&p->world, 0));
}

TEST_F(wait, timeouts_out_of_range)
{
	struct pair *p = &self->p;
	__u64 events = dev_events(p->status[0]);

	EXPECT_EQ(-EINVAL, wait_by(variant->form, p->fd[0], events, 0));
	EXPECT_EQ(-EINVAL, wait_by(variant->form, p->fd[0], events, KCR_MAX_WAIT_NS + 1));
	EXPECT_EQ(-EINVAL, wait_by(variant->form, p->fd[0], events, ~0ULL));
	/* Also where there is nothing to wait for. */
	EXPECT_EQ(-EINVAL, wait_by(variant->form, p->fd[0], events + 1, 0));
	EXPECT_EQ(0, dev_parked(&p->world, 0));
}

/* Rank 0 sleeps; then @what happens; then it has been woken with @want. */
#define WOKEN(want, what) do {						\
	struct dev_sleeper woken_s;					\
									\
	ASSERT_EQ(0, dev_sleeper(&woken_s, variant->form, self->p.fd[0],	\
				 dev_events(self->p.status[0]), LONG, 0x77));	\
	ASSERT_TRUE(SOON_PARKED(&self->p, 0, 1));			\
	what;								\
	EXPECT_EQ(want, dev_sleeper_result(&woken_s, SOON));		\
} while (0)

TEST_F(wait, kick)
{
	struct pair *p = &self->p;
	__u64 events = dev_events(p->status[0]);

	WOKEN(0, EXPECT_EQ(0, dev_kick(p->fd[1], 0, 1)));
	EXPECT_EQ(events + 1, dev_events(p->status[0]));
	WOKEN(0, EXPECT_EQ(0, dev_kick(p->fd[0], 0, 1)));
	WOKEN(0, EXPECT_EQ(0, dev_kick(p->fd[1], 0, 3)));
	EXPECT_EQ(events + 3, dev_events(p->status[0]));
	EXPECT_EQ(0, dev_parked(&p->world, 0));
}

/* A kick of others does not wake, and neither does one that is refused. */
TEST_F(wait, not_for_me)
{
	struct pair *p = &self->p;
	struct dev_sleeper s;
	int i;

	ASSERT_EQ(0, dev_sleeper(&s, variant->form, p->fd[0], dev_events(p->status[0]), LONG,
				 5));
	ASSERT_TRUE(SOON_PARKED(p, 0, 1));
	for (i = 0; i < 100; i++) {
		EXPECT_EQ(0, dev_kick(p->fd[1], 1, 1));
		EXPECT_EQ(0, dev_kick(p->fd[1], 0, 0));
		EXPECT_EQ(-EINVAL, dev_kick(p->fd[1], 0, 5));
	}
	EXPECT_EQ(1, dev_parked(&p->world, 0));
	EXPECT_EQ(-ENOENT, dev_cancel(p->fd[1], 5));
	EXPECT_EQ(-ENOENT, dev_cancel(p->fd[0], 4));
	EXPECT_EQ(1, dev_parked(&p->world, 0));
	EXPECT_EQ(0, dev_cancel(p->fd[0], 5));
	EXPECT_EQ(-ECANCELED, dev_sleeper_result(&s, SOON));
	EXPECT_EQ(-ENOENT, dev_cancel(p->fd[0], 5));
}

/* Those who are not there any more, or not yet, are passed over. */
TEST_F(wait, kick_of_nobody)
{
	struct dev_world w = dev_world(4);
	struct kcr_status *status[3];
	int fd[3], i;
	__u64 events;

	for (i = 0; i < 3; i++) {
		fd[i] = dev_member(&w, i);
		ASSERT_LE(0, fd[i]);
		status[i] = dev_status(fd[i]);
		ASSERT_NE(MAP_FAILED, status[i]);
	}
	ASSERT_EQ(0, dev_leave(fd[1]));
	ASSERT_EQ(0, close(fd[2]));
	events = dev_events(status[0]);
	for (i = 1; i < 3; i++)
		EXPECT_NE(KCR_MEMBER_JOINED, dev_state(status[0], i));
	EXPECT_EQ(0, dev_kick(fd[0], 0, 0xf));
	EXPECT_EQ(0, dev_kick(fd[0], 1, 7));
	EXPECT_EQ(0, dev_kick(fd[0], 3, 1));
	EXPECT_EQ(events + 1, dev_events(status[0]));
	EXPECT_EQ(-ETIMEDOUT, wait_by(variant->form, fd[0], events + 1, 10 * DEV_MS));
	for (i = 0; i < 3; i++)
		munmap(status[i], sizeof(*status[i]));
	close(fd[0]);
	close(fd[1]);
}

TEST_F(wait, peer_joins)
{
	struct dev_world w = dev_world(2);
	struct kcr_status *status;
	struct dev_sleeper s;
	int fd[2];

	fd[0] = dev_member(&w, 0);
	ASSERT_LE(0, fd[0]);
	status = dev_status(fd[0]);
	ASSERT_NE(MAP_FAILED, status);
	ASSERT_EQ(0, dev_sleeper(&s, variant->form, fd[0], dev_events(status), LONG, 0));
	ASSERT_TRUE(DEV_SOON(SOON, dev_parked(&w, 0) == 1));
	fd[1] = dev_member(&w, 1);
	ASSERT_LE(0, fd[1]);
	EXPECT_EQ(0, dev_sleeper_result(&s, SOON));
	EXPECT_EQ(KCR_MEMBER_JOINED, dev_state(status, 1));
	munmap(status, sizeof(*status));
	close(fd[0]);
	close(fd[1]);
}

TEST_F(wait, peer_leaves)
{
	WOKEN(0, EXPECT_EQ(0, dev_leave(self->p.fd[1])));
	EXPECT_EQ(KCR_MEMBER_LEFT, dev_state(self->p.status[0], 1));
}

TEST_F(wait, peer_dies)
{
	WOKEN(0, EXPECT_EQ(0, close(self->p.fd[1])));
	self->p.fd[1] = -1;
	EXPECT_EQ(KCR_CAUSE(1, ECONNRESET), dev_cause(self->p.status[0]));
	/* The membership goes on, in a world that has failed. */
	EXPECT_EQ(-ETIMEDOUT, wait_by(variant->form, self->p.fd[0],
				      dev_events(self->p.status[0]), 10 * DEV_MS));
	WOKEN(0, EXPECT_EQ(0, dev_kick(self->p.fd[0], 0, 1)));
}

TEST_F(wait, world_fails)
{
	WOKEN(0, EXPECT_EQ(0, dev_fail(self->p.fd[1], EIO)));
	EXPECT_EQ(KCR_CAUSE(1, EIO), dev_cause(self->p.status[0]));
}

TEST_F(wait, cancel)
{
	WOKEN(-ECANCELED, EXPECT_EQ(0, dev_cancel(self->p.fd[0], 0x77)));
	EXPECT_EQ(0, dev_parked(&self->p.world, 0));
	EXPECT_EQ(-ENOENT, dev_cancel(self->p.fd[0], 0x77));
}

TEST_F(wait, leave)
{
	WOKEN(-ESHUTDOWN, EXPECT_EQ(0, dev_leave(self->p.fd[0])));
	EXPECT_EQ(-ESHUTDOWN, wait_by(variant->form, self->p.fd[0], ~0ULL, LONG));
	EXPECT_EQ(KCR_MEMBER_LEFT, dev_state(self->p.status[1], 0));
	EXPECT_EQ(0, dev_cause(self->p.status[1]));
}

TEST_F(wait, last_close)
{
	int copy = dup(self->p.fd[0]);

	/* Not the last: all goes on. */
	WOKEN(0, EXPECT_EQ(0, close(copy)); EXPECT_EQ(0, dev_kick(self->p.fd[1], 0, 1)));
	WOKEN(-ESHUTDOWN, EXPECT_EQ(0, close(self->p.fd[0])));
	self->p.fd[0] = -1;
	EXPECT_EQ(KCR_CAUSE(0, ECONNRESET), dev_cause(self->p.status[1]));
}

/* Several sleep, for one event: all wake. */
TEST_F(wait, several)
{
	struct pair *p = &self->p;
	struct dev_sleeper s[8];
	int i;

	for (i = 0; i < 8; i++)
		ASSERT_EQ(0, dev_sleeper(&s[i], variant->form, p->fd[0],
					 dev_events(p->status[0]), LONG, i / 4));
	ASSERT_TRUE(SOON_PARKED(p, 0, 8));
	EXPECT_EQ(0, dev_cancel(p->fd[0], 1));
	for (i = 4; i < 8; i++)
		EXPECT_EQ(-ECANCELED, dev_sleeper_result(&s[i], SOON));
	EXPECT_EQ(4, dev_parked(&p->world, 0));
	EXPECT_EQ(0, dev_kick(p->fd[1], 0, 1));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(0, dev_sleeper_result(&s[i], SOON));
	EXPECT_EQ(0, dev_parked(&p->world, 0));
}

/* Spawning is not exec: what has been parked stays. */
TEST_F(wait, spawn)
{
	char *const arguments[] = { (char *)"true", NULL };
	struct pair *p = &self->p;
	struct dev_sleeper s;
	pid_t pid;
	int i;

	ASSERT_EQ(0, dev_sleeper(&s, variant->form, p->fd[0], dev_events(p->status[0]), LONG,
				 0));
	ASSERT_TRUE(SOON_PARKED(p, 0, 1));
	for (i = 0; i < 10; i++) {
		ASSERT_EQ(0, posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, NULL));
		EXPECT_EQ(0, dev_child_status(pid, 20));
	}
	EXPECT_EQ(1, dev_parked(&p->world, 0));
	EXPECT_EQ(0, dev_kick(p->fd[1], 0, 1));
	EXPECT_EQ(0, dev_sleeper_result(&s, SOON));
}

/*
 * A child that is rank 1 of a world in which the test is rank 0; it parks a
 * WAIT, and then does something.
 */
struct actor {
	struct dev_world world;
	enum dev_form form;
	int *stage;		/* 1: it has parked its WAIT */
	void (*act)(struct actor *a);
	bool inherit;		/* over exec */
	__u64 timeout_ns;
	/* The child's. */
	int fd;
	struct kcr_status *status;
	struct io_uring ring;
	struct dev_sleeper sleeper;
	/* The test's. */
	pid_t pid;
	int peer_fd;
	struct kcr_status *peer;
};

/* A polling thread may take some of @n before they are counted. */
static int submit(struct io_uring *ring, int n)
{
	int done = io_uring_submit(ring);

	if (done < 0)
		return done;
	return done == n || ring->flags & IORING_SETUP_SQPOLL ? 0 : -EBUSY;
}

/* For the io_uring forms by this thread, for the ioctl by another. */
static void actor_wait(struct actor *a)
{
	struct io_uring_sqe *sqe;
	__u64 seen = dev_events(a->status);

	if (a->form == DEV_IOCTL) {
		CHILD_GIVES(0, dev_sleeper(&a->sleeper, DEV_IOCTL, a->fd, seen, a->timeout_ns,
					   1));
	} else {
		sqe = dev_entry_wait(&a->ring, a->fd, seen, a->timeout_ns, 1, 1);
		CHILD_TRUE(sqe);
		if (a->form == DEV_ASYNC)
			sqe->flags |= IOSQE_ASYNC;
		CHILD_GIVES(0, submit(&a->ring, 1));
	}
}

static void actor_park(struct actor *a)
{
	actor_wait(a);
	CHILD_TRUE(DEV_SOON(SOON, dev_parked(&a->world, 1) == 1));
}

/* What became of it; 1 if it has not ended within the time. */
static int actor_result(struct actor *a, double seconds)
{
	struct io_uring_cqe cqe;

	if (a->form == DEV_IOCTL)
		return dev_sleeper_result(&a->sleeper, seconds);
	return dev_reap(&a->ring, seconds, &cqe) ? 1 : cqe.res;
}

static void actor_main(void *arg)
{
	struct actor *a = arg;

	a->fd = dev_member(&a->world, 1);
	CHILD_TRUE(a->fd >= 0);
	if (a->inherit)
		CHILD_GIVES(0, fcntl(a->fd, F_SETFD, 0));
	a->status = dev_status(a->fd);
	CHILD_TRUE(a->status != MAP_FAILED);
	if (a->form != DEV_IOCTL) {
		CHILD_GIVES(0, dev_ring(&a->ring, a->form));
		if (a->inherit)
			CHILD_GIVES(0, fcntl(a->ring.ring_fd, F_SETFD, 0));
	}
	actor_park(a);
	dev_reach(a->stage, 1);
	a->act(a);
}

/* True once it has parked. */
static bool actor_start(struct actor *a)
{
	a->world = dev_world(2);
	a->timeout_ns = LONG;
	a->stage = dev_shared(4096);
	a->peer_fd = dev_member(&a->world, 0);
	if (a->peer_fd < 0)
		return false;
	a->peer = dev_status(a->peer_fd);
	if (a->peer == MAP_FAILED)
		return false;
	a->pid = dev_child(actor_main, a);
	return dev_reached(a->stage, 1);
}

static void actor_end(struct actor *a)
{
	munmap(a->peer, sizeof(*a->peer));
	munmap(a->stage, 4096);
	close(a->peer_fd);
}

#define ACTOR(...)							\
	struct actor a = { .form = variant->form, __VA_ARGS__ };	\
									\
	ASSERT_TRUE(actor_start(&a))

static void act_sleep(struct actor *a)
{
	for (;;)
		pause();
}

static void act_exit(struct actor *a)
{
}

TEST_F(wait, killed)
{
	ACTOR(.act = act_sleep);

	EXPECT_TRUE(dev_child_kill(a.pid));
	EXPECT_TRUE(DEV_SOON(1, dev_cause(a.peer)));
	EXPECT_EQ(KCR_CAUSE(1, ECONNRESET), dev_cause(a.peer));
	EXPECT_TRUE(DEV_SOON(SOON, dev_parked(&a.world, 1) == 0));
	actor_end(&a);
}

/* K8 */
TEST_F(wait, exits)
{
	ACTOR(.act = act_exit);

	EXPECT_EQ(0, dev_child_status(a.pid, SOON));
	EXPECT_TRUE(DEV_SOON(1, dev_cause(a.peer)));
	EXPECT_TRUE(DEV_SOON(SOON, dev_parked(&a.world, 1) == 0));
	actor_end(&a);
}

static void act_exec(struct actor *a)
{
	execl("/bin/true", "true", NULL);
	CHILD_TRUE(!"exec failed");
}

static void *exec_main(void *arg)
{
	act_exec(arg);
	return NULL;
}

static void act_exec_by_thread(struct actor *a)
{
	pthread_t thread;

	CHILD_GIVES(0, pthread_create(&thread, NULL, exec_main, a));
	for (;;)
		pause();
}

/* An exec must not wait for what is parked: it would for as long as LONG. */
#define EXPECT_EXEC() do {						\
	double exec_begin;						\
									\
	exec_begin = dev_now();						\
	EXPECT_EQ(0, dev_child_status(a.pid, 10));			\
	EXPECT_GT(SOON, dev_now() - exec_begin) {			\
		TH_LOG("the exec took %.1f s", dev_now() - exec_begin);	\
	}								\
	EXPECT_TRUE(DEV_SOON(1, dev_cause(a.peer)));			\
	EXPECT_EQ(KCR_CAUSE(1, ECONNRESET), dev_cause(a.peer));	\
	EXPECT_TRUE(DEV_SOON(SOON, dev_parked(&a.world, 1) == 0));	\
	actor_end(&a);							\
} while (0)

TEST_F(wait, exec)
{
	ACTOR(.act = act_exec);

	EXPECT_EXEC();
}

TEST_F(wait, exec_that_inherits)
{
	ACTOR(.act = act_exec, .inherit = true);

	EXPECT_EXEC();
}

TEST_F(wait, exec_by_a_thread)
{
	ACTOR(.act = act_exec_by_thread);

	EXPECT_EXEC();
}

/* A program of which only the interpreter is missing: exec finds out late. */
static int no_interpreter(void)
{
	static const char name[] = "/lib64/ld-linux";
	int in = open("/bin/true", O_RDONLY | O_CLOEXEC);
	int out = memfd_create("no-interpreter", MFD_CLOEXEC);
	char bytes[4096];
	bool found = false;
	ssize_t n;
	char *p;

	if (in < 0 || out < 0)
		return -1;
	while ((n = read(in, bytes, sizeof(bytes))) > 0) {
		p = found ? NULL : memmem(bytes, n, name, sizeof(name) - 1);
		if (p) {
			p[1] = 'X';
			found = true;
		}
		if (write(out, bytes, n) != n)
			break;
	}
	close(in);
	return found ? out : -1;
}

/* Tries to exec, in many ways and for a while, and goes on all the same. */
static void act_failed_execs(struct actor *a)
{
	char *const arguments[] = { (char *)"x", NULL };
	char *const none[] = { NULL };
	int program = no_interpreter();
	char script[] = "/tmp/kcr-test-exec-XXXXXX";
	int fd = mkstemp(script);
	double end = dev_now() + 1.5;
	int rounds = 0, result;

	CHILD_TRUE(fd >= 0);
	CHILD_TRUE(write(fd, "#!/nonexistent/interpreter\n", 27) == 27);
	fchmod(fd, 0755);
	close(fd);
	while (dev_now() < end) {
		execve("/nonexistent", arguments, none);
		CHILD_TRUE(errno == ENOENT);
		execve("/", arguments, none);
		CHILD_TRUE(errno == EACCES);
		execve("/dev/null", arguments, none);
		CHILD_TRUE(errno == EACCES);
		execve(script, arguments, none);
		CHILD_TRUE(errno == ENOENT);
		if (program >= 0) {
			syscall(SYS_execveat, program, "", arguments, none, AT_EMPTY_PATH);
			CHILD_TRUE(errno == ENOENT);
		}
		syscall(SYS_execve, "/bin/true", 8, none);
		CHILD_TRUE(errno == EFAULT);
		rounds++;
	}
	unlink(script);
	/* It may have been ended by that, or not. */
	dev_cancel(a->fd, 1);
	result = actor_result(a, SOON);
	CHILD_GIVES(-ECANCELED, result);
	CHILD_GIVES(0, dev_parked(&a->world, 1));
	/* All is as before. */
	CHILD_GIVES(-ETIMEDOUT, wait_by(a->form, a->fd, dev_events(a->status), 20 * DEV_MS));
	a->timeout_ns = 100 * DEV_MS;
	actor_wait(a);
	CHILD_GIVES(-ETIMEDOUT, actor_result(a, SOON));
	a->timeout_ns = LONG;
	actor_park(a);
	dev_reach(a->stage, 2);
	CHILD_GIVES(0, actor_result(a, 20));
	CHILD_GIVES(0, dev_leave(a->fd));
}

TEST_F(wait, failed_exec)
{
	ACTOR(.act = act_failed_execs);

	ASSERT_TRUE(dev_reached(a.stage, 2));
	EXPECT_EQ(KCR_MEMBER_JOINED, dev_state(a.peer, 1));
	EXPECT_EQ(0, dev_cause(a.peer));
	EXPECT_EQ(0, dev_kick(a.peer_fd, 1, 1));
	EXPECT_EQ(0, dev_child_status(a.pid, 20));
	EXPECT_EQ(KCR_MEMBER_LEFT, dev_state(a.peer, 1));
	EXPECT_EQ(0, dev_cause(a.peer));
	actor_end(&a);
}

/* Stopped is not dead; its deadlines pass meanwhile. */
TEST_F(wait, stopped)
{
	ACTOR(.act = act_sleep);

	EXPECT_EQ(0, kill(a.pid, SIGSTOP));
	dev_sleep(1.5);
	EXPECT_EQ(0, dev_cause(a.peer));
	EXPECT_EQ(KCR_MEMBER_JOINED, dev_state(a.peer, 1));
	EXPECT_EQ(0, dev_kick(a.peer_fd, 1, 1));
	EXPECT_EQ(0, kill(a.pid, SIGCONT));
	EXPECT_TRUE(DEV_SOON(SOON, dev_parked(&a.world, 1) == 0));
	EXPECT_TRUE(dev_child_kill(a.pid));
	actor_end(&a);
}

/* Many that are killed or kicked in the very moment of parking (K1). */
static void act_park_on(struct actor *a)
{
	int result;

	for (;;) {
		result = actor_result(a, LONG);
		CHILD_GIVES(0, result);
		actor_park(a);
	}
}

TEST_F(wait, killed_while_kicked)
{
	int rounds = 12 * dev_scale(), i, k;

	for (i = 0; i < rounds; i++) {
		ACTOR(.act = act_park_on);

		for (k = 0; k < 40 + 7 * i; k++)
			ASSERT_EQ(0, dev_kick(a.peer_fd, 1, 1));
		kill(a.pid, SIGKILL);
		for (k = 0; k < 100; k++)
			ASSERT_EQ(0, dev_kick(a.peer_fd, 1, 1));
		EXPECT_TRUE(dev_child_kill(a.pid));
		EXPECT_TRUE(DEV_SOON(1, dev_cause(a.peer)));
		EXPECT_TRUE(DEV_SOON(SOON, dev_parked(&a.world, 1) == 0));
		actor_end(&a);
	}
}

/* The wake-up race. */

struct duel {
	struct dev_world world;
	enum dev_form form;
	__u64 rounds;
	double end;		/* no new round after that */
	__u64 last;		/* the last round, once it is known */
	struct {
		__u64 number;	/* the round that this rank has reached */
		__u64 waits;
		char pad[48];
	} side[2];
	int ready;
};

static int duel_wait(struct duel *d, struct io_uring *ring, int fd, __u64 seen)
{
	struct io_uring_cqe cqe;
	int err;

	if (d->form == DEV_IOCTL)
		return dev_wait(fd, seen, LONG, 0);
	if (!dev_entry_wait(ring, fd, seen, LONG, 0, seen))
		return -EXFULL;
	err = submit(ring, 1);
	if (err)
		return err;
	err = dev_reap(ring, 40, &cqe);
	if (err)
		return err;
	return cqe.user_data == seen ? cqe.res : -EPROTO;
}

/* Sleep until the other has reached round @number. */
static void duel_await(struct duel *d, int rank, struct io_uring *ring, int fd,
		       struct kcr_status *status, __u64 number)
{
	__u64 seen;

	for (;;) {
		seen = dev_events(status);
		if (__atomic_load_n(&d->side[!rank].number, __ATOMIC_ACQUIRE) >= number)
			return;
		CHILD_GIVES(0, duel_wait(d, ring, fd, seen));
		d->side[rank].waits++;
	}
}

static void duel_side(struct duel *d, int rank)
{
	int fd = dev_member(&d->world, rank);
	struct kcr_status *status;
	struct io_uring ring;
	cpu_set_t cpus;
	__u64 i;

	CHILD_TRUE(fd >= 0);
	status = dev_status(fd);
	CHILD_TRUE(status != MAP_FAILED);
	if (d->form != DEV_IOCTL)
		CHILD_GIVES(0, dev_ring(&ring, d->form));
	__atomic_fetch_add(&d->ready, 1, __ATOMIC_SEQ_CST);
	CHILD_TRUE(dev_reached(&d->ready, 2));
	for (i = 1; ; i++) {
		/* On one processor for a while, then on two, where there are. */
		if (i % 256 == 1) {
			CPU_ZERO(&cpus);
			CPU_SET(rank ? i / 256 & 1 : 0, &cpus);
			sched_setaffinity(0, sizeof(cpus), &cpus);
		}
		if (rank)
			duel_await(d, rank, &ring, fd, status, i);
		else if (i == d->rounds || dev_now() > d->end)
			__atomic_store_n(&d->last, i, __ATOMIC_RELEASE);
		__atomic_store_n(&d->side[rank].number, i, __ATOMIC_RELEASE);
		CHILD_GIVES(0, dev_kick(fd, !rank, 1));
		if (!rank)
			duel_await(d, rank, &ring, fd, status, i);
		if (i == __atomic_load_n(&d->last, __ATOMIC_ACQUIRE))
			break;
	}
	CHILD_GIVES(0, dev_leave(fd));
}

static void duel_first(void *arg)
{
	duel_side(arg, 0);
}

static void duel_second(void *arg)
{
	duel_side(arg, 1);
}

TEST_F_TIMEOUT(wait, duel, 400)
{
	struct duel *d = dev_shared(sizeof(*d));
	double begin = dev_now();
	pid_t pid[2];

	d->world = dev_world(2);
	d->form = variant->form;
	d->rounds = 100000;
	d->end = begin + (variant->form <= DEV_URING ? 6 : 3) * dev_scale();
	pid[0] = dev_child(duel_first, d);
	pid[1] = dev_child(duel_second, d);
	EXPECT_EQ(0, dev_child_status(pid[0], 6 * dev_scale() + 60));
	EXPECT_EQ(0, dev_child_status(pid[1], 20));
	EXPECT_EQ(d->last, d->side[1].number);
	EXPECT_LT(0, d->side[0].waits);
	TH_LOG("%llu rounds of 2 kicks, %llu and %llu waits, %.1f s", d->last,
	       d->side[0].waits, d->side[1].waits, dev_now() - begin);
	munmap(d, sizeof(*d));
}

/* What one form has alone. */

FIXTURE(parked) {
	struct pair p;
	struct io_uring ring;
	bool has_ring;
};

FIXTURE_SETUP(parked)
{
	const char *missing = pair_open(&self->p);

	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_NE(MAP_FAILED, self->p.status[0]);
	ASSERT_NE(MAP_FAILED, self->p.status[1]);
	if (dev_ring(&self->ring, DEV_URING))
		SKIP(return, "no io_uring here");
	self->has_ring = true;
}

FIXTURE_TEARDOWN(parked)
{
	if (self->has_ring)
		io_uring_queue_exit(&self->ring);
	pair_close(&self->p);
	DEV_EXPECT_NOTHING_LEFT(&self->p.before);
}

static int nr_signals;

static void count_signal(int sig)
{
	nr_signals++;
}

static void *signal_until(void *arg)
{
	pthread_t *sleeper = arg;
	int i;

	for (i = 0; i < 20; i++) {
		dev_sleep(0.05);
		pthread_kill(*sleeper, SIGUSR1);
	}
	return NULL;
}

/* A signal ends the ioctl, whether system calls are to be restarted or not. */
TEST_F(parked, signal_ends_ioctl)
{
	static const int flags[] = { 0, SA_RESTART };
	struct sigaction action = { .sa_handler = count_signal };
	struct pair *p = &self->p;
	struct dev_sleeper s;
	int i;

	for (i = 0; i < 2; i++) {
		action.sa_flags = flags[i];
		ASSERT_EQ(0, sigaction(SIGUSR1, &action, NULL));
		nr_signals = 0;
		ASSERT_EQ(0, dev_sleeper(&s, DEV_IOCTL, p->fd[0], dev_events(p->status[0]),
					 LONG, 0));
		ASSERT_TRUE(SOON_PARKED(p, 0, 1));
		pthread_kill(s.thread, SIGUSR1);
		EXPECT_EQ(-EINTR, dev_sleeper_result(&s, SOON)) {
			TH_LOG("with %s", i ? "SA_RESTART" : "no SA_RESTART");
		}
		EXPECT_EQ(1, nr_signals);
		EXPECT_EQ(0, dev_parked(&p->world, 0));
	}
	/* One that is ignored is none. */
	signal(SIGUSR1, SIG_IGN);
	ASSERT_EQ(0, dev_sleeper(&s, DEV_IOCTL, p->fd[0], dev_events(p->status[0]), LONG, 0));
	ASSERT_TRUE(SOON_PARKED(p, 0, 1));
	pthread_kill(s.thread, SIGUSR1);
	EXPECT_EQ(0, kill(getpid(), SIGWINCH));
	dev_sleep(0.1);
	EXPECT_EQ(1, dev_parked(&p->world, 0));
	EXPECT_EQ(0, dev_kick(p->fd[1], 0, 1));
	EXPECT_EQ(0, dev_sleeper_result(&s, SOON));
}

/* It does not end the command of a ring. */
TEST_F(parked, signal_spares_uring)
{
	struct sigaction action = { .sa_handler = count_signal };
	pthread_t self_thread = pthread_self(), thread;
	struct pair *p = &self->p;
	struct io_uring_cqe cqe;

	ASSERT_EQ(0, sigaction(SIGUSR1, &action, NULL));
	nr_signals = 0;
	ASSERT_NE(NULL, dev_entry_wait(&self->ring, p->fd[0], dev_events(p->status[0]),
				       3 * DEV_SECOND, 0, 5));
	ASSERT_EQ(1, io_uring_submit(&self->ring));
	ASSERT_EQ(0, pthread_create(&thread, NULL, signal_until, &self_thread));
	ASSERT_EQ(0, dev_reap(&self->ring, 20, &cqe));
	EXPECT_EQ(-ETIMEDOUT, cqe.res);
	pthread_join(thread, NULL);
	EXPECT_LT(0, nr_signals);
}

/* Cookies: all that have it, whatever it is, and only those. */
TEST_F(parked, cookies)
{
	static const __u64 cookies[] = { 0, 1, ~0ULL, 1ULL << 32, 1, 0, 1, 1ULL << 63 };
	const int n = sizeof(cookies) / sizeof(cookies[0]);
	static const struct {
		__u64 cookie;
		int have;
	} cancels[] = {
		{ 1, 3 }, { 1, 0 }, { 2, 0 }, { 1ULL << 32, 1 }, { ~0ULL, 1 }, { 0, 2 },
		{ 1ULL << 63, 1 }, { 0, 0 },
	};
	struct pair *p = &self->p;
	struct io_uring_cqe cqe;
	int i, k;

	for (i = 0; i < n; i++)
		ASSERT_NE(NULL, dev_entry_wait(&self->ring, p->fd[0], dev_events(p->status[0]),
					       LONG, cookies[i], cookies[i]));
	ASSERT_EQ(n, io_uring_submit(&self->ring));
	EXPECT_EQ(n, dev_parked(&p->world, 0));
	for (i = 0; i < sizeof(cancels) / sizeof(cancels[0]); i++) {
		EXPECT_EQ(cancels[i].have ? 0 : -ENOENT,
			  dev_cancel(p->fd[0], cancels[i].cookie)) {
			TH_LOG("cookie %#llx", cancels[i].cookie);
		}
		for (k = 0; k < cancels[i].have; k++) {
			ASSERT_EQ(0, dev_reap(&self->ring, SOON, &cqe));
			EXPECT_EQ(cancels[i].cookie, cqe.user_data);
			EXPECT_EQ(-ECANCELED, cqe.res);
		}
	}
	EXPECT_EQ(-ETIME, dev_reap(&self->ring, 0.05, &cqe));
	EXPECT_EQ(0, dev_parked(&p->world, 0));
}

/* The shortest and the longest ends first, in order. */
TEST_F(parked, deadlines_in_order)
{
	struct pair *p = &self->p;
	struct io_uring_cqe cqe;
	int i;

	for (i = 0; i < 10; i++)
		ASSERT_NE(NULL, dev_entry_wait(&self->ring, p->fd[0], dev_events(p->status[0]),
					       (10 - i) * 100 * DEV_MS, 0, i));
	ASSERT_EQ(10, io_uring_submit(&self->ring));
	for (i = 9; i >= 0; i--) {
		ASSERT_EQ(0, dev_reap(&self->ring, SOON, &cqe));
		EXPECT_EQ(-ETIMEDOUT, cqe.res);
		EXPECT_EQ(i, cqe.user_data);
	}
}

/*
 * A ring of its own process that goes while a command is parked: not even where
 * the kernel cannot cancel the command has it to wait for the deadline.
 */
TEST_F(parked, ring_closed)
{
	struct pair *p = &self->p;
	struct io_uring ring;
	int err;

	ASSERT_EQ(0, dev_ring(&ring, DEV_URING));
	ASSERT_NE(NULL, dev_entry_wait(&ring, p->fd[0], dev_events(p->status[0]), LONG, 0, 1));
	ASSERT_EQ(1, io_uring_submit(&ring));
	EXPECT_EQ(1, dev_parked(&p->world, 0));
	io_uring_queue_exit(&ring);
	EXPECT_TRUE(SOON_PARKED(p, 0, 0));
	EXPECT_EQ(KCR_MEMBER_JOINED, dev_state(p->status[1], 0));
	/* What io_uring still has to do in this thread may interrupt a system call. */
	do {
		err = dev_wait(p->fd[0], dev_events(p->status[0]), 10 * DEV_MS, 0);
	} while (err == -EINTR);
	EXPECT_EQ(-ETIMEDOUT, err);
}

/* The same with a kick and a cancel meanwhile: nothing must be left to complete. */
TEST_F(parked, ring_closed_while_woken)
{
	struct pair *p = &self->p;
	struct io_uring ring;
	int i, k;

	for (i = 0; i < 60; i++) {
		ASSERT_EQ(0, dev_ring(&ring, DEV_URING));
		for (k = 0; k < 4; k++)
			ASSERT_NE(NULL, dev_entry_wait(&ring, p->fd[0],
						       dev_events(p->status[0]),
						       (1 + i % 4) * DEV_MS, i, k));
		ASSERT_EQ(4, io_uring_submit(&ring));
		if (i & 1)
			ASSERT_EQ(0, dev_kick(p->fd[1], 0, 1));
		io_uring_queue_exit(&ring);
		dev_cancel(p->fd[0], i);
	}
	EXPECT_TRUE(SOON_PARKED(p, 0, 0));
}

struct submission {
	struct io_uring *ring;
	int fd;
	__u64 seen, timeout_ns;
	int result;
};

static void *submit_and_end(void *arg)
{
	struct submission *s = arg;

	if (!dev_entry_wait(s->ring, s->fd, s->seen, s->timeout_ns, 3, 33))
		s->result = -EXFULL;
	else
		s->result = io_uring_submit(s->ring);
	return NULL;
}

/*
 * The thread that submitted ends, its process does not. That may end the
 * command. If not, what is said of every parked command holds for it too.
 */
TEST_F(parked, submitter_ends)
{
	struct pair *p = &self->p;
	struct submission s = { &self->ring, p->fd[0] };
	struct io_uring_cqe cqe;
	pthread_t thread;
	int way, err;

	for (way = 0; way < 4; way++) {
		s.seen = dev_events(p->status[0]);
		/* Later than dev_reap() gives up. */
		s.timeout_ns = way == 2 ? 2 * DEV_SECOND * pace() : LONG;
		ASSERT_EQ(0, pthread_create(&thread, NULL, submit_and_end, &s));
		ASSERT_EQ(0, pthread_join(thread, NULL));
		ASSERT_EQ(1, s.result);
		err = dev_reap(&self->ring, 0.7, &cqe);
		if (!err) {
			EXPECT_EQ(-ECANCELED, cqe.res);
			continue;
		}
		EXPECT_EQ(1, dev_parked(&p->world, 0));
		switch (way) {
		case 0:
			EXPECT_EQ(0, dev_kick(p->fd[1], 0, 1));
			break;
		case 1:
			EXPECT_EQ(0, dev_cancel(p->fd[0], 3));
			break;
		case 3:
			EXPECT_EQ(0, dev_leave(p->fd[0]));
			break;
		}
		ASSERT_EQ(0, dev_reap(&self->ring, SOON, &cqe));
		EXPECT_EQ(33, cqe.user_data);
		EXPECT_EQ(way == 0 ? 0 : way == 1 ? -ECANCELED :
			  way == 2 ? -ETIMEDOUT : -ESHUTDOWN, cqe.res);
		EXPECT_EQ(0, dev_parked(&p->world, 0));
	}
}

/* K2: the ring is closed by a process that did not submit, last of all. */
struct k2 {
	struct dev_world world;
	int *stage;
	bool park_more;
};

static void k2_closer(struct k2 *k, struct io_uring *ring, int fd)
{
	close(fd);
	dev_reach(k->stage, 1);
	dev_reached(k->stage, 2);
	io_uring_queue_exit(ring);
	_exit(0);
}

static void k2_submitter(void *arg)
{
	struct k2 *k = arg;
	struct kcr_status *status;
	struct io_uring ring;
	int fd, i;

	fd = dev_member(&k->world, 1);
	CHILD_TRUE(fd >= 0);
	status = dev_status(fd);
	CHILD_GIVES(0, dev_ring(&ring, DEV_URING));
	switch (fork()) {
	case -1:
		CHILD_TRUE(!"fork failed");
		break;
	case 0:
		k2_closer(k, &ring, fd);
	}
	CHILD_TRUE(dev_reached(k->stage, 1));
	for (i = 0; i < 8; i++)
		CHILD_TRUE(dev_entry_wait(&ring, fd, dev_events(status), LONG, i, i));
	CHILD_GIVES(8, io_uring_submit(&ring));
	dev_reach(k->stage, 2);
}

TEST_F(parked, ring_closed_by_another)
{
	struct k2 k = { .stage = dev_shared(4096) };
	int rounds = 20 * dev_scale(), i, fd;

	for (i = 0; i < rounds; i++) {
		struct dev_counters base = dev_counters();

		k.world = dev_world(2);
		*k.stage = 0;
		fd = dev_member(&k.world, 0);
		ASSERT_LE(0, fd);
		ASSERT_EQ(0, dev_child_status(dev_child(k2_submitter, &k), 20));
		if (i & 1)
			dev_kick(fd, 1, 1);
		EXPECT_TRUE(DEV_SOON(SOON, dev_parked(&k.world, 1) == 0)) {
			TH_LOG("round %d: %d parked", i, dev_parked(&k.world, 1));
		}
		close(fd);
		ASSERT_TRUE(DEV_SOON(SOON, dev_counters_equal(&base)));
	}
}

/* A ring of a child cannot be used to wait for its parent, whoever enters it. */
static void child_submits(void *arg)
{
	struct submission *s = arg;
	struct io_uring_cqe cqe;

	CHILD_TRUE(dev_entry_wait(s->ring, s->fd, s->seen, DEV_SECOND, 3, 44));
	CHILD_GIVES(1, io_uring_submit(s->ring));
	CHILD_GIVES(0, dev_reap(s->ring, SOON, &cqe));
	CHILD_GIVES(-EPERM, cqe.res);
}

TEST_F(parked, submitted_by_a_child)
{
	struct submission s = { &self->ring, self->p.fd[0], ~0ULL };

	EXPECT_EQ(0, dev_child_status(dev_child(child_submits, &s), 20));
}

/* K8: one of each at once, and then the process ends. */
static void park_one_of_each(void *arg)
{
	struct dev_world *w = arg;
	struct dev_sleeper s[4];
	struct kcr_status *status;
	int fd = dev_member(w, 1);
	int i;

	CHILD_TRUE(fd >= 0);
	status = dev_status(fd);
	for (i = 0; i < 4; i++)
		CHILD_GIVES(0, dev_sleeper(&s[i], DEV_IOCTL + i, fd, dev_events(status), LONG,
					   i));
	CHILD_TRUE(DEV_SOON(SOON, dev_parked(w, 1) == 4));
}

TEST_F(parked, one_of_each_and_exit)
{
	struct dev_counters base = dev_counters();
	struct dev_world w;
	int i;

	for (i = 0; i < 3; i++) {
		w = dev_world(2);
		ASSERT_EQ(0, dev_child_status(dev_child(park_one_of_each, &w), 10));
		EXPECT_TRUE(DEV_SOON(SOON, dev_counters_equal(&base)));
	}
}

/*
 * K1: parked commands that are ended by kicks, cancels and deadlines all at
 * once. Each submission has one completion.
 */
struct storm {
	struct pair *p;
	int stop;
	long kicks, cancels;
};

static void *storm_main(void *arg)
{
	struct storm *s = arg;
	unsigned int seed = 1;

	while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE)) {
		if (rand_r(&seed) & 1) {
			dev_kick(s->p->fd[1], 0, 1);
			s->kicks++;
		} else {
			s->cancels += !dev_cancel(s->p->fd[0], rand_r(&seed) & 3);
		}
		if (!(rand_r(&seed) & 7))
			dev_sleep(0.0003);
	}
	return NULL;
}

static void storm(struct __test_metadata *_metadata, struct pair *p, enum dev_form form)
{
	struct storm s = { p };
	double begin = dev_now(), end = begin + 3 * dev_scale();
	long woken = 0, canceled = 0, late = 0, submitted = 0;
	int rounds = 4000 * dev_scale(), round, i, n;
	struct io_uring_sqe *sqe;
	struct io_uring_cqe cqe;
	struct io_uring ring;
	unsigned int seed = 2;
	pthread_t thread;
	__u32 seen;

	ASSERT_EQ(0, dev_ring(&ring, form));
	ASSERT_EQ(0, pthread_create(&thread, NULL, storm_main, &s));
	for (round = 0; round < rounds && dev_now() < end; round++) {
		n = 1 + rand_r(&seed) % 24;
		for (i = 0; i < n; i++) {
			sqe = dev_entry_wait(&ring, p->fd[0], dev_events(p->status[0]),
					     1 + rand_r(&seed) % (2 * DEV_MS),
					     rand_r(&seed) & 3, i);
			ASSERT_NE(NULL, sqe);
			if (form == DEV_ASYNC && (rand_r(&seed) & 1))
				sqe->flags |= IOSQE_ASYNC;
		}
		ASSERT_EQ(0, submit(&ring, n));
		submitted += n;
		for (i = 0, seen = 0; i < n; i++) {
			ASSERT_EQ(0, dev_reap(&ring, SOON, &cqe)) {
				TH_LOG("round %d: %d of %d came, %d are parked", round, i, n,
				       dev_parked(&p->world, 0));
			}
			ASSERT_GT(n, cqe.user_data);
			EXPECT_EQ(0, seen & (1U << cqe.user_data)) {
				TH_LOG("completed twice");
			}
			seen |= 1U << cqe.user_data;
			woken += cqe.res == 0;
			canceled += cqe.res == -ECANCELED;
			late += cqe.res == -ETIMEDOUT;
		}
		EXPECT_EQ(-EAGAIN, io_uring_peek_cqe(&ring, &(struct io_uring_cqe *){ NULL }));
	}
	__atomic_store_n(&s.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	TH_LOG("%ld submitted: %ld woken, %ld canceled, %ld late; %ld kicks; %.1f s",
	       submitted, woken, canceled, late, s.kicks, dev_now() - begin);
	EXPECT_EQ(submitted, woken + canceled + late);
	EXPECT_LT(0, woken);
	EXPECT_LT(0, canceled);
	EXPECT_LT(0, late);
	EXPECT_EQ(0, dev_parked(&p->world, 0));
	io_uring_queue_exit(&ring);
}

TEST_F_TIMEOUT(parked, storm, 120)
{
	storm(_metadata, &self->p, DEV_URING);
}

TEST_F_TIMEOUT(parked, storm_async, 120)
{
	storm(_metadata, &self->p, DEV_ASYNC);
}

TEST_F_TIMEOUT(parked, storm_sqpoll, 120)
{
	storm(_metadata, &self->p, DEV_SQPOLL);
}

/* Commands that park in one ring and are ended by others of the same ring. */
TEST_F(parked, all_in_one_ring)
{
	struct kcr_cancel cancel = { .size = sizeof(cancel), .cookie = 8 };
	struct kcr_kick kick = { .size = sizeof(kick), .mask = 1 };
	struct pair *p = &self->p;
	struct io_uring_cqe cqe;
	__u64 results[4] = { 9, 9, 9, 9 };
	int i;

	ASSERT_NE(NULL, dev_entry_wait(&self->ring, p->fd[0], dev_events(p->status[0]), LONG,
				       8, 0));
	ASSERT_NE(NULL, dev_entry_wait(&self->ring, p->fd[0], dev_events(p->status[0]), LONG,
				       7, 1));
	ASSERT_NE(NULL, dev_entry(&self->ring, p->fd[0], KCR_CMD_CANCEL, &cancel,
				  sizeof(cancel), 2));
	ASSERT_NE(NULL, dev_entry(&self->ring, p->fd[1], KCR_CMD_KICK, &kick, sizeof(kick), 3));
	ASSERT_EQ(4, io_uring_submit(&self->ring));
	for (i = 0; i < 4; i++) {
		ASSERT_EQ(0, dev_reap(&self->ring, SOON, &cqe));
		ASSERT_GT(4, cqe.user_data);
		results[cqe.user_data] = cqe.res;
	}
	EXPECT_EQ(-ECANCELED, (int)results[0]);
	EXPECT_EQ(0, (int)results[1]);
	EXPECT_EQ(0, (int)results[2]);
	EXPECT_EQ(0, (int)results[3]);
}

/* By LEAVE and by the last close through a ring's own copy of the file. */
TEST_F(parked, registered_file)
{
	struct pair *p = &self->p;
	struct io_uring_sqe *sqe;
	struct io_uring_cqe cqe;

	ASSERT_EQ(0, io_uring_register_files(&self->ring, &p->fd[0], 1));
	sqe = dev_entry_wait(&self->ring, 0, dev_events(p->status[0]), LONG, 0, 1);
	ASSERT_NE(NULL, sqe);
	sqe->flags |= IOSQE_FIXED_FILE;
	ASSERT_EQ(1, io_uring_submit(&self->ring));
	EXPECT_EQ(1, dev_parked(&p->world, 0));
	close(p->fd[0]);
	p->fd[0] = -1;
	ASSERT_EQ(0, dev_reap(&self->ring, SOON, &cqe));
	EXPECT_EQ(-ESHUTDOWN, cqe.res);
	EXPECT_EQ(KCR_CAUSE(0, ECONNRESET), dev_cause(p->status[1]));
}

TEST_HARNESS_MAIN
