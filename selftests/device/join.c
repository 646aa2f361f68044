// SPDX-License-Identifier: GPL-2.0
/*
 * Who may be which rank of which world, whose the descriptor is, what ends a
 * membership, and what one user sees of and may take from others
 */
#include "kselftest_harness.h"
#include "device.h"

#include <sched.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>

#define CGROUPS "/sys/fs/cgroup"

FIXTURE(join) {
	struct dev_counters before;
	struct dev_world world;		/* of two ranks */
	int fd;				/* rank 0 */
	struct kcr_status *status;	/* what it sees */
	int *stage;			/* shared with children, zero */
};

FIXTURE_SETUP(join)
{
	const char *missing = dev_missing();

	self->fd = -1;
	self->status = MAP_FAILED;
	if (missing)
		SKIP(return, "%s", missing);
	self->before = dev_counters();
	self->stage = dev_shared(dev_page());
	self->world = dev_world(2);
	self->fd = dev_member(&self->world, 0);
	ASSERT_LE(0, self->fd);
	self->status = dev_status(self->fd);
	ASSERT_NE(MAP_FAILED, self->status);
}

FIXTURE_TEARDOWN(join)
{
	if (self->status != MAP_FAILED)
		munmap(self->status, sizeof(*self->status));
	if (self->fd >= 0)
		close(self->fd);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
}

/* Rank 1 lives, as its peer sees it. */
static void expect_alive(struct __test_metadata *_metadata, struct kcr_status *status)
{
	EXPECT_EQ(KCR_MEMBER_JOINED, dev_state(status, 1));
	EXPECT_EQ(0, dev_cause(status));
	EXPECT_EQ(0, status->left);
}

/* Rank 1 is known to be dead within @seconds, and this is the world's cause. */
static void expect_death(struct __test_metadata *_metadata, struct kcr_status *status,
			 double seconds)
{
	EXPECT_TRUE(DEV_SOON(seconds, dev_cause(status)));
	EXPECT_EQ(KCR_CAUSE(1, ECONNRESET), dev_cause(status));
	EXPECT_EQ(KCR_MEMBER_DEAD, dev_state(status, 1));
	EXPECT_EQ(1, status->left);
}

#define EXPECT_ALIVE()		expect_alive(_metadata, self->status)
#define EXPECT_DEATH(seconds)	expect_death(_metadata, self->status, seconds)

/* Joining. */

TEST_F(join, refusals)
{
	struct dev_world other;
	int fd, third, i;

	fd = dev_open();
	ASSERT_LE(0, fd);
	for (i = 0; i < 16; i++) {
		other = self->world;
		other.key[i] ^= 1;
		EXPECT_EQ(-EKEYREJECTED, dev_join(fd, &other, 1));
	}
	for (i = 1; i <= KCR_MAX_RANKS; i++) {
		other = self->world;
		other.ranks = i;
		EXPECT_EQ(i == 2 ? -EEXIST : -EPROTO, dev_join(fd, &other, 0));
	}
	/* Without the key nobody learns even the size. */
	other.ranks = 3;
	other.key[0] ^= 1;
	EXPECT_EQ(-EKEYREJECTED, dev_join(fd, &other, 1));

	/* None of it has joined this descriptor, or changed the world. */
	EXPECT_EQ(1, self->status->joined);
	EXPECT_EQ(0, dev_join(fd, &self->world, 1));
	EXPECT_EQ(2, self->status->joined);
	EXPECT_EQ(-EISCONN, dev_join(fd, &self->world, 1));
	EXPECT_EQ(-EISCONN, dev_join(fd, &self->world, 0));
	other = dev_world(1);
	EXPECT_EQ(-EISCONN, dev_join(fd, &other, 0));

	third = dev_open();
	EXPECT_EQ(-EEXIST, dev_join(third, &self->world, 1));
	close(third);
	EXPECT_ALIVE();
	ASSERT_EQ(0, dev_leave(fd));
	close(fd);
}

TEST_F(join, ranges)
{
	static const struct {
		__u32 rank, ranks;
		int want;
	} tries[] = {
		{ 0, 0, -EINVAL },
		{ 1, 1, -EINVAL },
		{ 2, 2, -EINVAL },
		{ 0xffffffff, 2, -EINVAL },
		{ 0, KCR_MAX_RANKS + 1, -EINVAL },
		{ 0, 0x80000000, -EINVAL },
		{ 0, 0xffffffff, -EINVAL },
		{ 0xffffffff, 0xffffffff, -EINVAL },
		{ KCR_MAX_RANKS, KCR_MAX_RANKS, -EINVAL },
		{ KCR_MAX_RANKS - 1, KCR_MAX_RANKS, 0 },
		{ 0, 1, 0 },
	};
	struct dev_world w;
	int i, fd;

	for (i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
		w = dev_world(tries[i].ranks);
		fd = dev_open();
		ASSERT_LE(0, fd);
		EXPECT_EQ(tries[i].want, dev_join(fd, &w, tries[i].rank)) {
			TH_LOG("rank %u of %u", tries[i].rank, tries[i].ranks);
		}
		close(fd);
	}
}

TEST_F(join, full_world)
{
	struct dev_world w = dev_world(KCR_MAX_RANKS);
	struct kcr_status *status;
	struct rlimit files = { 4096, 4096 };
	int *fd = calloc(KCR_MAX_RANKS, sizeof(*fd));
	struct kcr_query query;
	int i;

	ASSERT_EQ(0, dev_query(self->fd, &query));
	if (geteuid() && query.members + KCR_MAX_RANKS > query.max_members)
		SKIP(return, "a quota of %llu members", query.max_members);
	setrlimit(RLIMIT_NOFILE, &files);
	if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur < KCR_MAX_RANKS + 64)
		SKIP(return, "only %lu descriptors allowed", (unsigned long)files.rlim_cur);
	for (i = KCR_MAX_RANKS - 1; i >= 0; i--) {
		fd[i] = dev_member(&w, i);
		ASSERT_LE(0, fd[i]);
	}
	status = dev_status(fd[500]);
	ASSERT_NE(MAP_FAILED, status);
	EXPECT_EQ(KCR_MAX_RANKS, status->joined);
	for (i = 0; i < KCR_MAX_RANKS; i++)
		ASSERT_EQ(KCR_MEMBER_JOINED, dev_state(status, i));
	EXPECT_EQ(0, dev_kick(fd[3], KCR_MAX_RANKS - 64, ~0ULL));
	EXPECT_EQ(-EINVAL, dev_kick(fd[3], KCR_MAX_RANKS - 63, ~0ULL));
	for (i = 0; i < KCR_MAX_RANKS; i++)
		close(fd[i]);
	/* The first to go is the cause. */
	EXPECT_EQ(KCR_CAUSE(0, ECONNRESET), dev_cause(status));
	munmap(status, sizeof(*status));
	free(fd);
}

TEST_F(join, rank_of_one_that_left)
{
	int fd = dev_member(&self->world, 1);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, dev_leave(fd));
	EXPECT_EQ(KCR_MEMBER_LEFT, dev_state(self->status, 1));
	EXPECT_EQ(-EEXIST, dev_member(&self->world, 1));
	close(fd);
	EXPECT_EQ(-EEXIST, dev_member(&self->world, 1));
	EXPECT_EQ(KCR_MEMBER_LEFT, dev_state(self->status, 1));
	EXPECT_EQ(0, dev_cause(self->status));
}

/* Who comes too late hears why. */
static void see_failed(struct __test_metadata *_metadata, const struct dev_world *w,
		       __u32 rank, __u64 want)
{
	__u64 cause = 0;
	int fd = dev_open();

	ASSERT_LE(0, fd);
	EXPECT_EQ(-ECONNRESET, dev_join_cause(fd, w, rank, &cause));
	EXPECT_EQ(want, cause);
	close(fd);
}

TEST_F(join, failed_world)
{
	struct dev_world w = dev_world(3);
	int a = dev_member(&w, 0), b = dev_member(&w, 1);

	ASSERT_LE(0, a);
	ASSERT_LE(0, b);
	close(b);
	see_failed(_metadata, &w, 2, KCR_CAUSE(1, ECONNRESET));
	close(a);

	w = dev_world(3);
	a = dev_member(&w, 0);
	ASSERT_LE(0, a);
	ASSERT_EQ(0, dev_fail(a, EIO));
	see_failed(_metadata, &w, 2, KCR_CAUSE(0, EIO));
	close(a);
}

/* When all are gone, the name is as good as new. */
TEST_F(join, name_again)
{
	struct dev_world w = dev_world(3);
	int round, fd, left;

	for (round = 0; round < 20; round++) {
		fd = dev_member(&w, 2);
		ASSERT_LE(0, fd);
		if (round & 1)
			ASSERT_EQ(0, dev_leave(fd));
		left = dev_member(&w, 1);
		EXPECT_LE(0, left);
		EXPECT_EQ(0, dev_leave(left));
		close(fd);
		close(left);
		/* Another key and size: nothing of the old world may count. */
		w.key[3]++;
		w.ranks = 3 + round;
	}
}

TEST_F(join, many_worlds)
{
	struct dev_world w[100];
	int fd[100], i;

	for (i = 0; i < 100; i++) {
		w[i] = dev_world(1 + i);
		fd[i] = dev_member(&w[i], i);
		ASSERT_LE(0, fd[i]);
	}
	for (i = 0; i < 100; i++) {
		w[i].key[15]++;
		EXPECT_EQ(-EKEYREJECTED, dev_member(&w[i], 0));
	}
	for (i = 0; i < 100; i++)
		close(fd[(i * 37) % 100]);
}

struct race {
	struct dev_world world;
	int *stage;
	int result;
};

static void *race_main(void *arg)
{
	struct race *r = arg;

	while (!__atomic_load_n(r->stage, __ATOMIC_ACQUIRE))
		;
	r->result = dev_member(&r->world, 1);
	return NULL;
}

/* Of those who want the same rank, one gets it. */
TEST_F(join, race_for_a_rank)
{
	struct race r[4];
	pthread_t thread[4];
	int round, i, won;

	for (round = 0; round < 50; round++) {
		struct dev_world w = dev_world(2);

		*self->stage = 0;
		for (i = 0; i < 4; i++) {
			r[i] = (struct race){ .world = w, .stage = self->stage };
			ASSERT_EQ(0, pthread_create(&thread[i], NULL, race_main, &r[i]));
		}
		dev_reach(self->stage, 1);
		won = 0;
		for (i = 0; i < 4; i++) {
			pthread_join(thread[i], NULL);
			won += r[i].result >= 0;
			if (r[i].result < 0)
				EXPECT_EQ(-EEXIST, r[i].result);
		}
		EXPECT_EQ(1, won);
		for (i = 0; i < 4; i++)
			if (r[i].result >= 0)
				close(r[i].result);
	}
}

/* Two threads, one descriptor, two worlds: it joins one of them. */
static void *race_one_descriptor(void *arg)
{
	struct race *r = arg;

	while (!__atomic_load_n(r->stage, __ATOMIC_ACQUIRE))
		;
	r->result = dev_join(r->result, &r->world, 0);
	return NULL;
}

TEST_F(join, race_on_a_descriptor)
{
	struct race r[2];
	pthread_t thread[2];
	int round, i, fd;

	for (round = 0; round < 50; round++) {
		fd = dev_open();
		ASSERT_LE(0, fd);
		*self->stage = 0;
		for (i = 0; i < 2; i++) {
			r[i] = (struct race){ dev_world(1), self->stage, fd };
			ASSERT_EQ(0, pthread_create(&thread[i], NULL, race_one_descriptor,
						    &r[i]));
		}
		dev_reach(self->stage, 1);
		for (i = 0; i < 2; i++)
			pthread_join(thread[i], NULL);
		EXPECT_TRUE((!r[0].result && r[1].result == -EISCONN) ||
			    (!r[1].result && r[0].result == -EISCONN)) {
			TH_LOG("%d and %d", r[0].result, r[1].result);
		}
		close(fd);
	}
}

/* Other processes with the descriptor. */

struct inherited {
	int fd;
	struct dev_world world;
};

/* What a process that did not join gets: the descriptor is no good to it. */
static void stranger(void *arg)
{
	struct inherited *in = arg;
	struct kcr_query query;
	struct kcr_info info;
	struct io_uring ring;
	int err;

	CHILD_GIVES(-EPERM, dev_window(in->fd, 1, NULL, 0, 0));
	CHILD_GIVES(-EPERM, dev_detach(in->fd, 0));
	CHILD_GIVES(-EPERM, dev_wait(in->fd, ~0ULL, DEV_SECOND, 0));
	CHILD_GIVES(-EPERM, dev_kick(in->fd, 0, 1));
	CHILD_GIVES(-EPERM, dev_cancel(in->fd, 0));
	CHILD_GIVES(-EPERM, dev_fail(in->fd, EIO));
	CHILD_GIVES(-EPERM, dev_leave(in->fd));
	CHILD_GIVES(-EPERM, dev_map_error(in->fd, PROT_READ, MAP_SHARED, 0, dev_page()));
	CHILD_GIVES(-EPERM, dev_map_error(in->fd, PROT_READ, MAP_SHARED,
					  KCR_MMAP_OFFSET(0, KCR_MAP_BOARD, 1), dev_page()));
	err = dev_join(in->fd, &in->world, 0);
	CHILD_TRUE(err == -EISCONN || err == -EPERM);
	CHILD_GIVES(0, dev_query(in->fd, &query));
	memset(&info, 0, sizeof(info));
	info.size = sizeof(info);
	CHILD_GIVES(0, dev_ioctl(in->fd, KCR_IOCTL_INFO, &info));

	if (!dev_ring(&ring, DEV_URING)) {
		struct kcr_wait wait = { .size = sizeof(wait), .seen = ~0ULL,
					 .timeout_ns = DEV_SECOND };
		struct kcr_kick kick = { .size = sizeof(kick), .mask = 1 };
		struct kcr_leave leave = { .size = sizeof(leave) };
		struct kcr_cancel cancel = { .size = sizeof(cancel) };
		struct kcr_fail fail = { .size = sizeof(fail), .error = EIO };
		enum dev_form form;

		for (form = DEV_URING; form <= DEV_ASYNC; form++) {
			CHILD_GIVES(-EPERM, dev_ring_command(&ring, form, in->fd, KCR_CMD_WAIT,
							     &wait, sizeof(wait)));
			CHILD_GIVES(-EPERM, dev_ring_command(&ring, form, in->fd, KCR_CMD_KICK,
							     &kick, sizeof(kick)));
			CHILD_GIVES(-EPERM, dev_ring_command(&ring, form, in->fd, KCR_CMD_CANCEL,
							     &cancel, sizeof(cancel)));
			CHILD_GIVES(-EPERM, dev_ring_command(&ring, form, in->fd, KCR_CMD_FAIL,
							     &fail, sizeof(fail)));
			CHILD_GIVES(-EPERM, dev_ring_command(&ring, form, in->fd, KCR_CMD_LEAVE,
							     &leave, sizeof(leave)));
		}
		io_uring_queue_exit(&ring);
	}
}

static void stranger_that_closes(void *arg)
{
	struct inherited *in = arg;

	stranger(arg);
	CHILD_GIVES(0, close(in->fd));
}

TEST_F(join, child)
{
	struct inherited in = { .world = self->world };
	int fd = dev_member(&self->world, 1);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, dev_window(fd, 0, NULL, 0, dev_page()));
	in.fd = fd;
	EXPECT_EQ(0, dev_child_status(dev_child(stranger, &in), 20));
	EXPECT_ALIVE();
	EXPECT_EQ(0, dev_child_status(dev_child(stranger_that_closes, &in), 20));
	EXPECT_ALIVE();
	EXPECT_EQ(0, dev_kick(fd, 0, 1));
	ASSERT_EQ(0, dev_leave(fd));
	EXPECT_EQ(0, dev_cause(self->status));
	close(fd);
}

/* A descriptor that has not joined yet is anybody's: the child joins with it. */
static void joins_inherited(void *arg)
{
	struct inherited *in = arg;

	CHILD_GIVES(0, dev_join(in->fd, &in->world, 1));
	CHILD_GIVES(0, dev_kick(in->fd, 0, 1));
}

TEST_F(join, opened_by_the_parent)
{
	struct inherited in = { dev_open(), self->world };

	ASSERT_LE(0, in.fd);
	EXPECT_EQ(0, dev_child_status(dev_child(joins_inherited, &in), 20));
	/* The child has ended, without LEAVE, whoever else has the descriptor. */
	EXPECT_DEATH(1);
	EXPECT_NE(0, dev_kick(in.fd, 0, 1));
	close(in.fd);
}

struct parent_and_child {
	struct dev_world world;
	int *stage;
	pid_t *child;
	bool leave;
};

/* Rank 1, with a child that holds a copy for as long as it is told. */
static void parent_of_holder(void *arg)
{
	struct parent_and_child *pc = arg;
	int fd = dev_member(&pc->world, 1);

	CHILD_TRUE(fd >= 0);
	*pc->child = fork();
	CHILD_TRUE(*pc->child >= 0);
	if (!*pc->child) {
		dev_reached(pc->stage, 2);
		_exit(0);
	}
	if (pc->leave)
		CHILD_GIVES(0, dev_leave(fd));
	dev_reach(pc->stage, 1);
	if (!pc->leave)
		for (;;)
			pause();
}

TEST_F(join, parent_dies_before_its_child)
{
	struct parent_and_child pc = { self->world, self->stage,
				       (pid_t *)(self->stage + 1) };
	pid_t pid = dev_child(parent_of_holder, &pc);

	ASSERT_TRUE(dev_reached(self->stage, 1));
	EXPECT_ALIVE();
	EXPECT_TRUE(dev_child_kill(pid));
	EXPECT_EQ(0, kill(*pc.child, 0));
	EXPECT_DEATH(1);
	dev_reach(self->stage, 2);
}

TEST_F(join, parent_leaves_before_its_child)
{
	struct parent_and_child pc = { self->world, self->stage,
				       (pid_t *)(self->stage + 1), .leave = true };

	EXPECT_EQ(0, dev_child_status(dev_child(parent_of_holder, &pc), 20));
	EXPECT_EQ(KCR_MEMBER_LEFT, dev_state(self->status, 1));
	EXPECT_EQ(0, dev_cause(self->status));
	dev_reach(self->stage, 2);
}

TEST_F(join, copies)
{
	int fd = dev_member(&self->world, 1);
	int copy, high;

	ASSERT_LE(0, fd);
	copy = dup(fd);
	high = fcntl(fd, F_DUPFD_CLOEXEC, 200);
	ASSERT_LE(0, copy);
	ASSERT_LE(200, high);
	EXPECT_EQ(0, close(fd));
	EXPECT_ALIVE();
	EXPECT_EQ(0, dev_kick(copy, 0, 1));
	EXPECT_EQ(0, close(copy));
	EXPECT_ALIVE();
	/* dup2() onto the last one closes it too. */
	EXPECT_EQ(0, dev_kick(high, 0, 1));
	EXPECT_EQ(high, dup2(STDERR_FILENO, high));
	EXPECT_DEATH(1);
	close(high);
}

TEST_F(join, closed_by_range)
{
	int fd = dev_member(&self->world, 1);
	int high;

	ASSERT_LE(0, fd);
	high = fcntl(fd, F_DUPFD_CLOEXEC, 300);
	EXPECT_EQ(0, close(fd));
	EXPECT_ALIVE();
	EXPECT_EQ(0, syscall(SYS_close_range, 300, ~0U, 0));
	EXPECT_LT(0, high);
	EXPECT_DEATH(1);
}

/* Two threads close two copies at once: the second is a death all the same. */
static void *close_when_told(void *arg)
{
	struct race *r = arg;

	while (!__atomic_load_n(r->stage, __ATOMIC_ACQUIRE))
		;
	r->result = close(r->result);
	return NULL;
}

TEST_F(join, copies_closed_at_once)
{
	pthread_t thread[2];
	struct race r[2];
	int round, i;

	for (round = 0; round < 200; round++) {
		struct dev_world w = dev_world(2);
		int peer = dev_member(&w, 0);
		int fd = dev_member(&w, 1);
		struct kcr_status *status = dev_status(peer);

		ASSERT_NE(MAP_FAILED, status);
		*self->stage = 0;
		for (i = 0; i < 2; i++) {
			r[i] = (struct race){ .stage = self->stage,
					      .result = i ? dup(fd) : fd };
			ASSERT_EQ(0, pthread_create(&thread[i], NULL, close_when_told, &r[i]));
		}
		dev_reach(self->stage, 1);
		for (i = 0; i < 2; i++)
			pthread_join(thread[i], NULL);
		ASSERT_EQ(KCR_MEMBER_DEAD, dev_state(status, 1)) {
			TH_LOG("round %d", round);
		}
		munmap(status, sizeof(*status));
		close(peer);
	}
}

static int send_descriptor(int socket, int fd)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = { 0 };
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};

	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	return sendmsg(socket, &message, 0) == 1 ? 0 : -errno;
}

static int receive_descriptor(int socket)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	char byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	int fd = -1;

	if (recvmsg(socket, &message, 0) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

struct receiver {
	struct dev_world world;
	int socket;
	int *stage;
};

static void receiver(void *arg)
{
	struct receiver *r = arg;
	struct inherited in = { receive_descriptor(r->socket), r->world };

	CHILD_TRUE(in.fd >= 0);
	stranger(&in);
	dev_reach(r->stage, 1);
	CHILD_TRUE(dev_reached(r->stage, 2));
	/* Its owner has closed it meanwhile: over, but still not ours. */
	CHILD_TRUE(dev_kick(in.fd, 0, 1) < 0);
	CHILD_TRUE(dev_map_error(in.fd, PROT_READ, MAP_SHARED, 0, dev_page()) < 0);
}

TEST_F(join, sent_to_another_process)
{
	struct receiver r = { .world = self->world, .stage = self->stage };
	int pair[2], fd;
	pid_t pid;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	r.socket = pair[1];
	pid = dev_child(receiver, &r);
	fd = dev_member(&self->world, 1);
	ASSERT_LE(0, fd);
	EXPECT_EQ(0, send_descriptor(pair[0], fd));
	EXPECT_TRUE(dev_reached(self->stage, 1));
	EXPECT_ALIVE();
	EXPECT_EQ(0, close(fd));
	EXPECT_DEATH(1);
	dev_reach(self->stage, 2);
	EXPECT_EQ(0, dev_child_status(pid, 20));
	close(pair[0]);
	close(pair[1]);
}

/* A message on its way is not the process's table of descriptors. */
TEST_F(join, sent_to_oneself)
{
	int fd = dev_member(&self->world, 1);
	int pair[2];

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	EXPECT_EQ(0, send_descriptor(pair[0], fd));
	EXPECT_EQ(0, close(fd));
	EXPECT_DEATH(1);
	fd = receive_descriptor(pair[1]);
	EXPECT_LE(0, fd);
	EXPECT_EQ(-ESHUTDOWN, dev_kick(fd, 0, 1));
	close(fd);
	close(pair[0]);
	close(pair[1]);
}

/* Threads, and processes that share only a part. */

static void *use_in_thread(void *arg)
{
	struct inherited *in = arg;
	struct kcr_status *status = dev_status(in->fd);
	long bad = status == MAP_FAILED;

	bad += !!dev_kick(in->fd, 0, 1);
	bad += !!dev_wait(in->fd, ~0ULL, DEV_SECOND, 0);
	bad += !!dev_window(in->fd, 5, NULL, 0, dev_page());
	munmap(status, sizeof(*status));
	return (void *)bad;
}

TEST_F(join, thread)
{
	struct inherited in = { dev_member(&self->world, 1), self->world };
	pthread_t thread;
	void *bad;

	ASSERT_LE(0, in.fd);
	ASSERT_EQ(0, pthread_create(&thread, NULL, use_in_thread, &in));
	ASSERT_EQ(0, pthread_join(thread, &bad));
	EXPECT_EQ(NULL, bad);
	EXPECT_ALIVE();
	EXPECT_EQ(0, dev_kick(in.fd, 0, 1));
	close(in.fd);
	EXPECT_DEATH(1);
}

static void *join_in_thread(void *arg)
{
	return (void *)(long)dev_member(arg, 1);
}

/* The thread that joined is gone, its process is not. */
TEST_F(join, joined_by_a_thread_that_ended)
{
	struct kcr_status *status;
	pthread_t thread;
	void *fd;

	ASSERT_EQ(0, pthread_create(&thread, NULL, join_in_thread, &self->world));
	ASSERT_EQ(0, pthread_join(thread, &fd));
	ASSERT_LE(0, (long)fd);
	status = dev_status((long)fd);
	ASSERT_NE(MAP_FAILED, status);
	dev_sleep(1.2);
	EXPECT_ALIVE();
	EXPECT_EQ(0, dev_kick((long)fd, 0, 1));
	EXPECT_EQ(-ETIMEDOUT, dev_wait((long)fd, dev_events(status), 50 * DEV_MS, 0));
	munmap(status, sizeof(*status));
	ASSERT_EQ(0, dev_leave((long)fd));
	close((long)fd);
}

static char clone_stack[65536] __attribute__((aligned(16)));

static int clone_main(void *arg)
{
	struct inherited *in = arg;

	return dev_kick(in->fd, 0, 1) == -EPERM ? 0 : 1;
}

static int clone_uses_and_closes(void *arg)
{
	struct inherited *in = arg;

	if (dev_kick(in->fd, 0, 1))
		return 1;
	return close(in->fd) ? 2 : 0;
}

/* The same table of descriptors in another address space. */
TEST_F(join, shared_table)
{
	struct inherited in = { dev_member(&self->world, 1), self->world };
	pid_t pid;

	ASSERT_LE(0, in.fd);
	pid = clone(clone_main, clone_stack + sizeof(clone_stack), CLONE_FILES | SIGCHLD,
		    &in);
	ASSERT_LT(0, pid);
	EXPECT_EQ(0, dev_child_status(pid, 20));
	EXPECT_ALIVE();
	EXPECT_EQ(0, dev_kick(in.fd, 0, 1));
	close(in.fd);
	EXPECT_DEATH(1);
}

/* The same address space with a table of its own, as posix_spawn() has it. */
TEST_F(join, shared_memory)
{
	struct inherited in = { dev_member(&self->world, 1), self->world };
	pid_t pid;

	ASSERT_LE(0, in.fd);
	pid = clone(clone_uses_and_closes, clone_stack + sizeof(clone_stack),
		    CLONE_VM | CLONE_VFORK | SIGCHLD, &in);
	ASSERT_LT(0, pid);
	EXPECT_EQ(0, dev_child_status(pid, 20));
	EXPECT_ALIVE();
	EXPECT_EQ(0, dev_kick(in.fd, 0, 1));
	close(in.fd);
	EXPECT_DEATH(1);
}

static int clone_sleeps(void *arg)
{
	int *stage = arg;

	prctl(PR_SET_PDEATHSIG, 0);
	dev_reach(stage, 1);
	dev_reached(stage, 2);
	return 0;
}

static void shares_its_table(void *arg)
{
	struct parent_and_child *pc = arg;

	CHILD_TRUE(dev_member(&pc->world, 1) >= 0);
	CHILD_TRUE(clone(clone_sleeps, clone_stack + sizeof(clone_stack),
			 CLONE_FILES | SIGCHLD, pc->stage) > 0);
	for (;;)
		pause();
}

/* The process is dead, although nothing in its table was closed. */
TEST_F(join, killed_with_a_shared_table)
{
	struct parent_and_child pc = { self->world, self->stage };
	pid_t pid = dev_child(shares_its_table, &pc);

	ASSERT_TRUE(dev_reached(self->stage, 1));
	EXPECT_ALIVE();
	EXPECT_TRUE(dev_child_kill(pid));
	EXPECT_DEATH(1);
	dev_reach(self->stage, 2);
}

static void *outlives_main(void *arg)
{
	struct parent_and_child *pc = arg;
	int fd = dev_member(&pc->world, 1);
	struct kcr_status *status = dev_status(fd);

	CHILD_TRUE(status != MAP_FAILED);
	dev_reach(pc->stage, 1);
	CHILD_TRUE(dev_reached(pc->stage, 2));
	CHILD_GIVES(0, dev_kick(fd, 0, 1));
	CHILD_GIVES(-ETIMEDOUT, dev_wait(fd, dev_events(status), 10 * DEV_MS, 0));
	dev_reach(pc->stage, 3);
	CHILD_TRUE(dev_reached(pc->stage, 4));
	_exit(0);
}

static void main_thread_ends(void *arg)
{
	pthread_t thread;

	CHILD_GIVES(0, pthread_create(&thread, NULL, outlives_main, arg));
	pthread_exit(NULL);
}

TEST_F(join, main_thread_ends)
{
	struct parent_and_child pc = { self->world, self->stage };
	pid_t pid = dev_child(main_thread_ends, &pc);

	ASSERT_TRUE(dev_reached(self->stage, 1));
	dev_sleep(1.2);
	EXPECT_ALIVE();
	dev_reach(self->stage, 2);
	EXPECT_TRUE(dev_reached(self->stage, 3));
	EXPECT_ALIVE();
	dev_reach(self->stage, 4);
	EXPECT_EQ(0, dev_child_status(pid, 20));
	EXPECT_DEATH(1);
}

static void *unshare_and_close(void *arg)
{
	struct inherited *in = arg;

	if (unshare(CLONE_FILES))
		return (void *)1;
	return (void *)(long)close(in->fd);
}

/* A table that a thread makes for itself is not the one that joined. */
TEST_F(join, unshared_table)
{
	struct inherited in = { dev_member(&self->world, 1), self->world };
	pthread_t thread;
	void *bad;

	ASSERT_LE(0, in.fd);
	EXPECT_EQ(0, unshare(CLONE_FILES));
	EXPECT_ALIVE();
	ASSERT_EQ(0, pthread_create(&thread, NULL, unshare_and_close, &in));
	ASSERT_EQ(0, pthread_join(thread, &bad));
	EXPECT_EQ(NULL, bad);
	EXPECT_ALIVE();
	EXPECT_EQ(0, dev_kick(in.fd, 0, 1));
	close(in.fd);
	EXPECT_DEATH(1);
}

TEST_F(join, spawns)
{
	char *const arguments[] = { (char *)"true", NULL };
	int fd = dev_member(&self->world, 1);
	int plain, i;
	pid_t pid;

	ASSERT_LE(0, fd);
	/* Inherited over the exec, too. */
	plain = dup(fd);
	for (i = 0; i < 5; i++) {
		ASSERT_EQ(0, posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, NULL));
		EXPECT_EQ(0, dev_child_status(pid, 20));
		EXPECT_EQ(0, system("exit 0"));
		EXPECT_ALIVE();
		EXPECT_EQ(0, dev_kick(fd, 0, 1));
	}
	ASSERT_EQ(0, dev_leave(fd));
	close(plain);
	close(fd);
}

struct executor {
	struct dev_world world;
	int *stage;
	bool inherit;
	bool thread;
};

static void *exec_in_thread(void *arg)
{
	execl("/bin/sleep", "sleep", "3", NULL);
	return NULL;
}

static void executor(void *arg)
{
	struct executor *e = arg;
	int fd = dev_member(&e->world, 1);
	pthread_t thread;

	CHILD_TRUE(fd >= 0);
	if (e->inherit)
		CHILD_GIVES(0, fcntl(fd, F_SETFD, 0));
	dev_reach(e->stage, 1);
	if (e->thread) {
		CHILD_GIVES(0, pthread_create(&thread, NULL, exec_in_thread, NULL));
		pthread_join(thread, NULL);
	} else {
		exec_in_thread(NULL);
	}
	CHILD_TRUE(!"exec failed");
}

static void exec_is_death(struct __test_metadata *_metadata, struct kcr_status *status,
			  struct executor *e)
{
	pid_t pid = dev_child(executor, e);
	double begin;

	ASSERT_TRUE(dev_reached(e->stage, 1));
	begin = dev_now();
	expect_death(_metadata, status, 2);
	TH_LOG("known after %.3f s", dev_now() - begin);
	/* It runs on, as something else. */
	EXPECT_EQ(0, waitpid(pid, NULL, WNOHANG));
	EXPECT_TRUE(dev_child_kill(pid));
}

#define EXEC_IS_DEATH(...) do {						\
	struct executor e = { self->world, self->stage, __VA_ARGS__ };	\
									\
	exec_is_death(_metadata, self->status, &e);			\
} while (0)

TEST_F(join, exec)
{
	EXEC_IS_DEATH(.inherit = false);
}

TEST_F(join, exec_that_inherits)
{
	EXEC_IS_DEATH(.inherit = true);
}

TEST_F(join, exec_by_a_thread)
{
	EXEC_IS_DEATH(.thread = true);
}

TEST_F(join, exec_by_a_thread_that_inherits)
{
	EXEC_IS_DEATH(.inherit = true, .thread = true);
}

/* K13: every order in which two ranks can let go of what they have. */

#define NR_HANDLES 6

static void let_go(int handle, int *fd, int *copy, void **mapping)
{
	switch (handle) {
	case 0:
	case 1:
		close(fd[handle]);
		break;
	case 2:
	case 3:
		close(copy[handle - 2]);
		break;
	case 4:
	case 5:
		/* While it is there it can be used. */
		__atomic_load_n((char *)mapping[handle - 4], __ATOMIC_RELAXED);
		munmap(mapping[handle - 4], dev_page());
		break;
	}
}

TEST_F_TIMEOUT(join, closing_orders, 60)
{
	struct kcr_lane_desc lanes[] = { { 0, 1, 1, 64 }, { 1, 0, 1, 64 } };
	int order[NR_HANDLES], i, k, n, code;
	int fd[2], copy[2], orders = 0;
	void *mapping[2];

	for (code = 0; code < 720; code++) {
		struct dev_world w = dev_world(2);
		int left[NR_HANDLES] = { 0, 1, 2, 3, 4, 5 };

		for (i = 0, n = code; i < NR_HANDLES; i++) {
			k = n % (NR_HANDLES - i);
			n /= NR_HANDLES - i;
			order[i] = left[k];
			memmove(left + k, left + k + 1,
				(NR_HANDLES - i - k - 1) * sizeof(left[0]));
		}
		for (i = 0; i < 2; i++) {
			fd[i] = dev_member(&w, i);
			ASSERT_LE(0, fd[i]);
			ASSERT_EQ(0, dev_window(fd[i], 0, lanes, 2, dev_page()));
			copy[i] = dup(fd[i]);
		}
		for (i = 0; i < 2; i++) {
			/* Each maps memory that the other pays for. */
			mapping[i] = dev_map(fd[i], PROT_READ, 0, KCR_MAP_BOARD, !i,
					     dev_page());
			ASSERT_NE(MAP_FAILED, mapping[i]);
		}
		for (i = 0; i < NR_HANDLES; i++)
			let_go(order[i], fd, copy, mapping);
		orders++;
	}
	EXPECT_EQ(720, orders);
}

/* Users. */

static void check_strangers_view(void *arg)
{
	struct inherited *in = arg;
	struct kcr_info info = { .size = sizeof(info) };
	struct kcr_query query;
	struct dev_world w = in->world;
	struct kcr_lane_desc lane = { 0, 1, 1, 1 };
	int fd, i;

	CHILD_GIVES(0, dev_become_nobody());
	fd = dev_open();
	CHILD_TRUE(fd >= 0);
	CHILD_GIVES(-ENOENT, dev_info(&w, 0, &info));
	CHILD_GIVES(0, dev_query(fd, &query));
	CHILD_GIVES(0, query.members);
	CHILD_GIVES(0, query.pages);
	CHILD_TRUE(dev_read_number(DEV_COUNTERS "worlds") < 0);
	/* K20: the id may be known, the key is not. */
	for (i = 0; i < 64; i++) {
		getrandom(w.key, sizeof(w.key), 0);
		CHILD_GIVES(-EKEYREJECTED, dev_join(fd, &w, 1));
	}
	CHILD_GIVES(-EPERM, dev_kick(in->fd, 0, 1));

	w = dev_world(2);
	CHILD_GIVES(0, dev_join(fd, &w, 1));
	CHILD_GIVES(0, dev_window(fd, 0, &lane, 1, 2 * dev_page()));
	CHILD_GIVES(0, dev_info(&w, 1, &info));
	CHILD_GIVES(DEV_NOBODY, info.uid);
	CHILD_GIVES(getpid(), info.pid);
	CHILD_GIVES(KCR_MEMBER_JOINED, info.state);
	CHILD_GIVES(0, dev_query(fd, &query));
	CHILD_GIVES(1, query.members);
	CHILD_GIVES(info.pages, query.pages);
	/* All that it sees is its own. */
	memset(&info, 0, sizeof(info));
	info.size = sizeof(info);
	while (!dev_ioctl(fd, KCR_IOCTL_INFO, &info))
		CHILD_GIVES(DEV_NOBODY, info.uid);
	memcpy(in + 1, &w, sizeof(w));
	dev_reach((int *)((char *)in + 512), 1);
	CHILD_TRUE(dev_reached((int *)((char *)in + 512), 2));
}

TEST_F(join, users)
{
	struct inherited *in = (void *)(self->stage + 128);
	int *stage = (int *)((char *)in + 512);
	struct dev_world theirs;
	struct kcr_query query;
	struct kcr_info info;
	pid_t pid;

	if (geteuid())
		SKIP(return, "needs root to become two users");
	*in = (struct inherited){ self->fd, self->world };
	pid = dev_child(check_strangers_view, in);
	EXPECT_TRUE(dev_reached(stage, 1));
	memcpy(&theirs, in + 1, sizeof(theirs));
	EXPECT_EQ(0, dev_info(&theirs, 1, &info));
	EXPECT_EQ(DEV_NOBODY, info.uid);
	EXPECT_EQ(pid, info.pid);
	EXPECT_EQ(0, dev_info(&self->world, 0, &info));
	EXPECT_EQ(0, info.uid);
	EXPECT_EQ(getpid(), info.pid);
	EXPECT_EQ(0, dev_query(self->fd, &query));
	EXPECT_EQ(1, query.members);
	dev_reach(stage, 2);
	EXPECT_EQ(0, dev_child_status(pid, 20));
}

/* In namespaces of its own: numbers are as the caller has them. */
static void in_pid_namespace(void *arg)
{
	struct inherited *in = arg;
	struct kcr_info info;
	int fd = dev_member(&in->world, 1);

	CHILD_TRUE(fd >= 0);
	CHILD_GIVES(1, getpid());
	CHILD_GIVES(0, dev_info(&in->world, 1, &info));
	CHILD_GIVES(1, info.pid);
	CHILD_GIVES(0, dev_info(&in->world, 0, &info));
	CHILD_GIVES(0, info.pid);
	CHILD_GIVES(0, unshare(CLONE_NEWUSER));
	CHILD_GIVES(0, dev_info(&in->world, 1, &info));
	CHILD_GIVES(DEV_NOBODY, info.uid);
	CHILD_GIVES(0, dev_leave(fd));
}

static void makes_namespaces(void *arg)
{
	struct inherited *in = arg;
	pid_t pid;

	CHILD_GIVES(0, unshare(CLONE_NEWPID));
	pid = fork();
	CHILD_TRUE(pid >= 0);
	if (!pid) {
		in_pid_namespace(in);
		_exit(0);
	}
	CHILD_GIVES(0, dev_child_status(pid, 20));
}

TEST_F(join, namespaces)
{
	struct inherited in = { self->fd, self->world };

	if (geteuid() || access("/proc/self/ns/user", R_OK))
		SKIP(return, "needs root and namespaces");
	EXPECT_EQ(0, dev_child_status(dev_child(makes_namespaces, &in), 20));
	EXPECT_EQ(KCR_MEMBER_LEFT, dev_state(self->status, 1));
}

static void cannot_open(void *arg)
{
	CHILD_TRUE(!setgroups(0, NULL));
	CHILD_TRUE(!setresgid(DEV_NOBODY, DEV_NOBODY, DEV_NOBODY));
	CHILD_TRUE(!setresuid(DEV_NOBODY, DEV_NOBODY, DEV_NOBODY));
	CHILD_GIVES(-EACCES, dev_open());
	CHILD_TRUE(open(DEV_PATH, O_RDONLY) < 0 && errno == EACCES);
}

/* K20 */
TEST_F(join, not_for_everyone)
{
	struct stat st;

	if (geteuid())
		SKIP(return, "needs root to become somebody else");
	ASSERT_EQ(0, stat(DEV_PATH, &st));
	EXPECT_EQ(0660, st.st_mode & 07777);
	EXPECT_EQ(0, dev_child_status(dev_child(cannot_open, NULL), 20));
}

/* INFO, of one's own. */
TEST_F(join, info)
{
	struct kcr_lane_desc lanes[] = { { 0, 1, 4, 5000 }, { 1, 0, 3, 100 } };
	struct kcr_claim *claim;
	struct kcr_info info, next;
	struct timespec t;
	int fd;

	EXPECT_EQ(0, dev_info(&self->world, 0, &info));
	EXPECT_EQ(2, info.ranks);
	EXPECT_EQ(0, info.cause);
	EXPECT_EQ(geteuid(), info.uid);
	EXPECT_EQ(getpid(), info.pid);
	EXPECT_EQ(KCR_MEMBER_JOINED, info.state);
	EXPECT_EQ(0, info.parked);
	EXPECT_EQ(dev_events(self->status), info.events);
	EXPECT_EQ(0, info.claim.number);
	EXPECT_EQ(0, info.age_ns);
	EXPECT_LT(0, info.world);
	/* Nobody has joined as rank 1. */
	EXPECT_EQ(-ENOENT, dev_info(&self->world, 1, &next));

	fd = dev_member(&self->world, 1);
	ASSERT_LE(0, fd);
	next = info;
	EXPECT_EQ(0, dev_ioctl(fd, KCR_IOCTL_INFO, &next));
	EXPECT_EQ(info.world, next.world);
	EXPECT_EQ(1, next.rank);
	next.world = ~0ULL;
	next.rank = ~0U;
	EXPECT_EQ(-ENOENT, dev_ioctl(fd, KCR_IOCTL_INFO, &next));
	EXPECT_EQ(~0ULL, next.world);
	EXPECT_EQ(~0U, next.rank);

	/* The claim is what begins the board of window 0. */
	ASSERT_EQ(0, dev_window(self->fd, 0, lanes, 2, dev_page()));
	claim = dev_map(self->fd, PROT_READ | PROT_WRITE, 0, KCR_MAP_BOARD, 0, dev_page());
	ASSERT_NE(MAP_FAILED, claim);
	EXPECT_EQ(0, dev_info(&self->world, 0, &next));
	EXPECT_EQ(info.pages + 1 + 1 + 1, next.pages);
	EXPECT_EQ(0, next.claim.number);
	EXPECT_EQ(0, next.age_ns);
	clock_gettime(CLOCK_MONOTONIC, &t);
	*claim = (struct kcr_claim){
		.number = 17,
		.since_ns = t.tv_sec * DEV_SECOND + t.tv_nsec - 3 * DEV_SECOND,
		.count = ~0ULL,
		.kind = 0xdeadbeef,
		.detail = 0x80000000,
	};
	EXPECT_EQ(0, dev_info(&self->world, 0, &info));
	EXPECT_EQ(0, memcmp(claim, &info.claim, sizeof(*claim)));
	EXPECT_LE(3 * DEV_SECOND, info.age_ns);
	EXPECT_GT(30 * DEV_SECOND, info.age_ns);
	/* It may lie. */
	claim->since_ns = ~0ULL;
	EXPECT_EQ(0, dev_info(&self->world, 0, &info));
	EXPECT_EQ(~0ULL, info.claim.since_ns);
	munmap(claim, dev_page());

	ASSERT_EQ(0, dev_leave(fd));
	EXPECT_EQ(0, dev_info(&self->world, 1, &info));
	EXPECT_EQ(KCR_MEMBER_LEFT, info.state);
	close(fd);
}

/* Quotas bind those without CAP_SYS_RESOURCE. */

static void members_over_quota(void *arg)
{
	struct kcr_query query;
	struct dev_world w = dev_world(4);
	int fd[3];

	CHILD_GIVES(0, dev_become_nobody());
	fd[0] = dev_member(&w, 0);
	fd[1] = dev_member(&w, 1);
	CHILD_TRUE(fd[0] >= 0 && fd[1] >= 0);
	fd[2] = dev_open();
	CHILD_TRUE(fd[2] >= 0);
	CHILD_GIVES(0, dev_query(fd[2], &query));
	CHILD_GIVES(2, query.max_members);
	CHILD_GIVES(2, query.members);
	CHILD_GIVES(-EDQUOT, dev_join(fd[2], &w, 2));
	w = dev_world(1);
	CHILD_GIVES(-EDQUOT, dev_join(fd[2], &w, 0));
	CHILD_GIVES(0, dev_query(fd[2], &query));
	CHILD_GIVES(2, query.members);
	/* Who has left, and closed, keeps its place for as long as the world is there. */
	CHILD_GIVES(0, dev_leave(fd[1]));
	close(fd[1]);
	CHILD_GIVES(-EDQUOT, dev_join(fd[2], &w, 0));
	CHILD_GIVES(0, dev_query(fd[2], &query));
	CHILD_GIVES(2, query.members);
	/* That world was not made either: it may have another key. */
	w.key[0]++;
	CHILD_GIVES(0, dev_leave(fd[0]));
	close(fd[0]);
	CHILD_TRUE(DEV_SOON(DEV_SETTLE, !dev_join(fd[2], &w, 0)));
}

/* Root of a user namespace of its own has every capability, but not here. */
static void members_over_quota_as_root(void *arg)
{
	char map[32];
	struct dev_world w = dev_world(4);
	struct rlimit limit = { 1 << 20, 1 << 20 };
	struct dev_world *others = arg;
	struct kcr_info info;
	int i, fd;

	CHILD_GIVES(0, setrlimit(RLIMIT_MEMLOCK, &limit));
	CHILD_GIVES(0, dev_become_nobody());
	/* Files of /proc are root's in a process that has changed its user. */
	CHILD_GIVES(0, prctl(PR_SET_DUMPABLE, 1));
	if (unshare(CLONE_NEWUSER))
		_exit(KSFT_SKIP);
	snprintf(map, sizeof(map), "0 %d 1", DEV_NOBODY);
	CHILD_GIVES(0, dev_write_text("/proc/self/uid_map", map));
	CHILD_GIVES(0, geteuid());
	fd = dev_member(&w, 0);
	CHILD_TRUE(fd >= 0);
	CHILD_GIVES(-ENOMEM, dev_window(fd, 0, NULL, 0, (1 << 20) + dev_page()));
	CHILD_GIVES(0, dev_info(&w, 0, &info));
	CHILD_GIVES(0, info.uid);
	CHILD_GIVES(-ENOENT, dev_info(others, 0, &info));
	CHILD_TRUE(dev_member(&w, 1) >= 0);
	for (i = 2; i < 4; i++)
		CHILD_GIVES(-EDQUOT, dev_member(&w, i));
}

#define MORE_PAGES 8

static void pages_over_quota(void *arg)
{
	struct kcr_lane_desc lane = { 1, 0, MORE_PAGES, 4096 - 64 };
	struct dev_world w = dev_world(2);
	struct kcr_query query;
	__u64 before;
	int fd;

	CHILD_GIVES(0, dev_become_nobody());
	fd = dev_member(&w, 0);
	CHILD_TRUE(fd >= 0);
	CHILD_GIVES(0, dev_query(fd, &query));
	before = query.pages;
	CHILD_TRUE(query.max_pages == MORE_PAGES + 2 && before <= 2);
	CHILD_GIVES(-EDQUOT, dev_window(fd, 0, NULL, 0, 11 * dev_page()));
	CHILD_GIVES(-EDQUOT, dev_window(fd, 0, NULL, 0, (1ULL << 32) - dev_page()));
	lane.depth = 11;
	CHILD_GIVES(-EDQUOT, dev_window(fd, 0, &lane, 1, 0));
	lane.depth = MORE_PAGES;
	CHILD_GIVES(-EDQUOT, dev_window(fd, 0, &lane, 1, 3 * dev_page()));
	CHILD_GIVES(0, dev_query(fd, &query));
	CHILD_GIVES(before, query.pages);
	/* As much as there is, and then nothing more. */
	CHILD_GIVES(0, dev_window(fd, 0, NULL, 0, (MORE_PAGES + 2 - before) * dev_page()));
	CHILD_GIVES(0, dev_query(fd, &query));
	CHILD_GIVES(MORE_PAGES + 2, query.pages);
	CHILD_GIVES(-EDQUOT, dev_window(fd, 1, NULL, 0, dev_page()));
	CHILD_GIVES(0, dev_window(fd, 1, NULL, 0, 0));
	CHILD_GIVES(0, dev_detach(fd, 0));
	CHILD_GIVES(0, dev_query(fd, &query));
	CHILD_GIVES(before, query.pages);
	CHILD_GIVES(0, dev_window(fd, 0, &lane, 1, 0));
}

static void parked_over_quota(void *arg)
{
	struct dev_world w = dev_world(1);
	struct io_uring_cqe cqe;
	struct io_uring ring;
	int fd, i, err;

	CHILD_GIVES(0, dev_become_nobody());
	fd = dev_member(&w, 0);
	CHILD_TRUE(fd >= 0);
	err = dev_ring(&ring, DEV_URING);
	if (err)
		_exit(KSFT_SKIP);
	for (i = 0; i < 6; i++) {
		CHILD_TRUE(dev_entry_wait(&ring, fd, 0, 20 * DEV_SECOND, 9, i));
		CHILD_GIVES(1, io_uring_submit(&ring));
	}
	for (i = 5; i < 6; i++) {
		CHILD_GIVES(0, dev_reap(&ring, 5, &cqe));
		CHILD_GIVES(-EDQUOT, cqe.res);
		CHILD_GIVES(i, cqe.user_data);
	}
	CHILD_GIVES(-EDQUOT, dev_wait(fd, 0, DEV_SECOND, 0));
	/* What need not park is not counted. */
	CHILD_GIVES(0, dev_wait(fd, ~0ULL, DEV_SECOND, 0));
	CHILD_GIVES(5, dev_parked(&w, 0));
	CHILD_GIVES(0, dev_cancel(fd, 9));
	for (i = 0; i < 5; i++) {
		CHILD_GIVES(0, dev_reap(&ring, 5, &cqe));
		CHILD_GIVES(-ECANCELED, cqe.res);
	}
	CHILD_GIVES(0, dev_parked(&w, 0));
	CHILD_GIVES(-ETIMEDOUT, dev_wait(fd, 0, 10 * DEV_MS, 0));
	io_uring_queue_exit(&ring);
}

static void with_quota(struct __test_metadata *_metadata, const char *parameter,
		       long value, void (*fn)(void *arg), void *arg)
{
	char path[96];
	long usual;
	int status;

	snprintf(path, sizeof(path), DEV_PARAMETERS "%s", parameter);
	usual = dev_read_number(path);
	if (geteuid() || usual < 0)
		SKIP(return, "needs root and %s", path);
	ASSERT_EQ(0, dev_write_number(path, value));
	status = dev_child_status(dev_child(fn, arg), 20);
	EXPECT_EQ(0, dev_write_number(path, usual));
	if (WIFEXITED(status) && WEXITSTATUS(status) == KSFT_SKIP)
		SKIP(return, "no io_uring here, or no user namespaces");
	EXPECT_EQ(0, status);
	EXPECT_EQ(usual, dev_read_number(path));
}

TEST_F(join, quota_of_members)
{
	with_quota(_metadata, "max_members_per_user", 2, members_over_quota, NULL);
}

TEST_F(join, root_of_a_namespace)
{
	with_quota(_metadata, "max_members_per_user", 2, members_over_quota_as_root,
		   &self->world);
}

TEST_F(join, quota_of_pages)
{
	with_quota(_metadata, "max_pages_per_user", MORE_PAGES + 2, pages_over_quota,
		   NULL);
}

TEST_F(join, quota_of_parked)
{
	with_quota(_metadata, "max_parked", 5, parked_over_quota, NULL);
}

/* Root is not bound. */
TEST_F(join, quota_and_root)
{
	long usual = dev_read_number(DEV_PARAMETERS "max_members_per_user");
	struct dev_world w = dev_world(2);
	int fd[2];

	if (geteuid() || usual < 0)
		SKIP(return, "needs root");
	ASSERT_EQ(0, dev_write_number(DEV_PARAMETERS "max_members_per_user", 1));
	fd[0] = dev_member(&w, 0);
	fd[1] = dev_member(&w, 1);
	EXPECT_EQ(0, dev_write_number(DEV_PARAMETERS "max_members_per_user", usual));
	EXPECT_LE(0, fd[0]);
	EXPECT_LE(0, fd[1]);
	close(fd[0]);
	close(fd[1]);
}

static void *parks(void *fd)
{
	long err, i;

	for (i = 0; i < 500; i++) {
		err = dev_wait(*(int *)fd, 0, (1 + i % 50) * DEV_MS / 100, 0);
		if (err != -ETIMEDOUT)
			return (void *)(err ?: 1L);	/* it did not park */
	}
	return NULL;
}

/* Also if others park in the moment that it is found out. */
TEST_F(join, quota_of_parked_and_root)
{
	long usual = dev_read_number(DEV_PARAMETERS "max_parked");
	struct dev_world w = dev_world(1);
	pthread_t thread[4];
	int i, fd;
	void *err;

	if (geteuid() || usual < 0)
		SKIP(return, "needs root");
	fd = dev_member(&w, 0);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, dev_write_number(DEV_PARAMETERS "max_parked", 1));
	for (i = 0; i < 4; i++)
		EXPECT_EQ(0, pthread_create(&thread[i], NULL, parks, &fd));
	for (i = 0; i < 4; i++) {
		pthread_join(thread[i], &err);
		EXPECT_EQ(NULL, err) {
			TH_LOG("%ld", (long)err);
		}
	}
	EXPECT_EQ(0, dev_write_number(DEV_PARAMETERS "max_parked", usual));
	close(fd);
}

/* What the kernel has charged to this process's RLIMIT_MEMLOCK, in kB. */
static long locked_kb(void)
{
	long vm_lck = 0, vm_pin = 0;
	char line[128];
	FILE *f = fopen("/proc/self/status", "r");

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f)) {
		sscanf(line, "VmLck: %ld", &vm_lck);
		sscanf(line, "VmPin: %ld", &vm_pin);
	}
	fclose(f);
	return vm_lck + vm_pin;
}

static void over_memlock(void *arg)
{
	struct rlimit limit = { 1 << 20, 1 << 20 };
	struct kcr_lane_desc lane = { 1, 0, 300, 4096 - 64 };
	struct dev_world w = dev_world(2);
	struct kcr_query query;
	long locked;
	__u64 pages;
	int fd;

	CHILD_GIVES(0, setrlimit(RLIMIT_MEMLOCK, &limit));
	CHILD_GIVES(0, dev_become_nobody());
	fd = dev_member(&w, 0);
	CHILD_TRUE(fd >= 0);
	locked = locked_kb();
	CHILD_GIVES(0, dev_query(fd, &query));
	pages = query.pages;
	CHILD_GIVES(-ENOMEM, dev_window(fd, 0, NULL, 0, (1 << 20) + dev_page()));
	CHILD_GIVES(-ENOMEM, dev_window(fd, 0, &lane, 1, 0));
	lane.depth = 128;
	CHILD_GIVES(-ENOMEM, dev_window(fd, 0, &lane, 1, (1 << 19) + dev_page()));
	CHILD_GIVES(locked, locked_kb());
	CHILD_GIVES(0, dev_query(fd, &query));
	CHILD_GIVES(pages, query.pages);
	CHILD_GIVES(0, dev_window(fd, 0, &lane, 1, 1 << 18));
	CHILD_GIVES(locked + 512 + 256, locked_kb());
	/* What is charged for windows is charged for all of them together. */
	CHILD_GIVES(-ENOMEM, dev_window(fd, 1, NULL, 0, 1 << 19));
	CHILD_GIVES(0, dev_detach(fd, 0));
	CHILD_GIVES(locked, locked_kb());
	CHILD_GIVES(0, dev_window(fd, 1, NULL, 0, 1 << 19));
	CHILD_GIVES(0, dev_leave(fd));
	close(fd);
	CHILD_GIVES(locked, locked_kb());
}

TEST_F(join, memlock)
{
	if (geteuid())
		SKIP(return, "needs root to become a user without CAP_IPC_LOCK");
	EXPECT_EQ(0, dev_child_status(dev_child(over_memlock, NULL), 20));
}

/* A cgroup of its own, for as long as this process is in it. */
static int enter_cgroup(const char *path, const char *limit)
{
	char file[128];
	int err;

	if (mkdir(path, 0755))
		return -errno;
	snprintf(file, sizeof(file), "%s/memory.max", path);
	err = dev_write_text(file, limit);
	snprintf(file, sizeof(file), "%s/memory.swap.max", path);
	dev_write_text(file, "0");
	snprintf(file, sizeof(file), "%s/cgroup.procs", path);
	if (!err)
		err = dev_write_number(file, getpid());
	if (err)
		rmdir(path);
	return err;
}

struct cgroup {
	char path[64];
	const char *limit;
};

/* Who is not allowed to set limits is told apart from who is not charged. */
static void charged(void *arg)
{
	struct dev_world w = dev_world(2);
	struct cgroup *group = arg;
	char current[96];
	long before, after;
	int fd;

	if (enter_cgroup(group->path, group->limit))
		_exit(KSFT_SKIP);
	snprintf(current, sizeof(current), "%s/memory.current", group->path);
	fd = dev_member(&w, 0);
	CHILD_TRUE(fd >= 0);
	before = dev_read_number(current);
	CHILD_TRUE(before >= 0);
	CHILD_GIVES(0, dev_window(fd, 0, NULL, 0, 16 << 20));
	after = dev_read_number(current);
	fprintf(stderr, "# a window of 16 MiB: %ld KiB charged\n", (after - before) >> 10);
	CHILD_TRUE(after - before >= 15 << 20);
	CHILD_TRUE(after - before <= 18 << 20);
	CHILD_GIVES(0, dev_detach(fd, 0));
	CHILD_TRUE(DEV_SOON(DEV_SETTLE, dev_read_number(current) - before < 2 << 20));
}

static void over_cgroup_limit(void *arg)
{
	struct kcr_lane_desc lane = { 1, 0, 16384, 4096 - 64 };
	struct dev_world w = dev_world(2);
	struct cgroup *group = arg;
	struct kcr_query query;
	__u64 pages;
	int fd, i;

	if (enter_cgroup(group->path, group->limit))
		_exit(KSFT_SKIP);
	fd = dev_member(&w, 0);
	CHILD_TRUE(fd >= 0);
	CHILD_GIVES(0, dev_query(fd, &query));
	pages = query.pages;
	for (i = 0; i < 3; i++) {
		CHILD_GIVES(-ENOMEM, dev_window(fd, 0, NULL, 0, 64 << 20));
		CHILD_GIVES(-ENOMEM, dev_window(fd, 0, &lane, 1, 0));
		CHILD_GIVES(-ENOMEM, dev_window(fd, 0, NULL, 0, (1ULL << 32) - 4096));
		CHILD_GIVES(0, dev_query(fd, &query));
		CHILD_GIVES(pages, query.pages);
	}
	CHILD_GIVES(0, dev_window(fd, 0, NULL, 0, 4 << 20));
}

static void in_cgroup(struct __test_metadata *_metadata, const char *limit,
		      void (*fn)(void *arg))
{
	struct cgroup group = { .limit = limit };
	int status;

	if (geteuid() || access(CGROUPS "/cgroup.controllers", R_OK))
		SKIP(return, "needs root and cgroup2 on " CGROUPS);
	snprintf(group.path, sizeof(group.path), CGROUPS "/kcr-test-%d", getpid());
	status = dev_child_status(dev_child(fn, &group), 25);
	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, !rmdir(group.path) || errno == ENOENT));
	if (WIFEXITED(status) && WEXITSTATUS(status) == KSFT_SKIP)
		SKIP(return, "no cgroup of our own, or it has no memory controller");
	EXPECT_EQ(0, status) {
		if (WIFSIGNALED(status))
			TH_LOG("killed by signal %d, for its memory?", WTERMSIG(status));
	}
}

TEST_F(join, cgroup_charge)
{
	in_cgroup(_metadata, "max", charged);
}

TEST_F(join, cgroup_limit)
{
	in_cgroup(_metadata, "25165824", over_cgroup_limit);
}

TEST_HARNESS_MAIN
