// SPDX-License-Identifier: GPL-2.0
/*
 * Death: seen by all, at once, with the first cause for ever; and nothing that
 * a dead process had is left, so that the module can be unloaded
 */
#include "kselftest_harness.h"
#include "device.h"
#include "module.h"

#define RANKS 4
#define LONG (25 * DEV_SECOND)

/* A world whose ranks are processes; the test itself is none of them. */
struct crew {
	struct dev_world world;
	int n;
	struct shared {
		int stage;	/* how many ranks have come as far as they go */
		struct seen {
			__u64 cause;
			__u64 events_before, events_after;
			double when;
			__u8 member[RANKS];
			__u32 left;
		} seen[RANKS];
		int go;
	} *shared;
	pid_t pid[RANKS];
};

static const struct kcr_lane_desc ring_of_lanes[RANKS] = {
	{ 0, 1, 4, 1000 }, { 1, 2, 4, 1000 }, { 2, 3, 4, 1000 }, { 3, 0, 4, 1000 },
};

FIXTURE(death) {
	struct dev_counters before;
	struct crew crew;
};

FIXTURE_SETUP(death)
{
	const char *missing = dev_missing();

	if (missing)
		SKIP(return, "%s", missing);
	self->before = dev_counters();
}

FIXTURE_TEARDOWN(death)
{
	int i;

	for (i = 0; i < self->crew.n; i++) {
		if (self->crew.pid[i] > 0) {
			kill(self->crew.pid[i], SIGKILL);
			waitpid(self->crew.pid[i], NULL, 0);
		}
	}
	DEV_EXPECT_NOTHING_LEFT(&self->before);
}

struct crew_member {
	struct crew *crew;
	int rank;
	int (*act)(int rank, int fd);	/* an end of its own, once all are there */
};

/*
 * A rank: joins, maps, waits for the world to fail, and tells what it saw.
 */
static void crew_main(void *arg)
{
	struct crew_member *me = arg;
	struct crew *c = me->crew;
	struct seen *seen = &c->shared->seen[me->rank];
	int fd = dev_member(&c->world, me->rank);
	struct kcr_status *status;
	__u64 events;
	char *board;
	int i;

	CHILD_TRUE(fd >= 0);
	status = dev_status(fd);
	CHILD_TRUE(status != MAP_FAILED);
	CHILD_GIVES(0, dev_window(fd, 0, ring_of_lanes, c->n == RANKS ? RANKS : 0, 16384));
	board = dev_map(fd, PROT_READ | PROT_WRITE, 0, KCR_MAP_BOARD, me->rank, 16384);
	CHILD_TRUE(board != MAP_FAILED);
	board[0] = 1;
	__atomic_fetch_add(&c->shared->stage, 1, __ATOMIC_SEQ_CST);
	CHILD_TRUE(dev_reached(&c->shared->go, 1));
	seen->events_before = dev_events(status);
	__atomic_fetch_add(&c->shared->stage, 1, __ATOMIC_SEQ_CST);
	if (me->act) {
		CHILD_TRUE(dev_reached(&c->shared->go, 2));
		CHILD_GIVES(0, me->act(me->rank, fd));
	}
	for (;;) {
		events = dev_events(status);
		seen->cause = dev_cause(status);
		if (seen->cause || __atomic_load_n(&c->shared->go, __ATOMIC_ACQUIRE) > 2)
			break;
		i = dev_wait(fd, events, DEV_SECOND, 0);
		CHILD_TRUE(i == 0 || i == -ETIMEDOUT);
	}
	seen->when = dev_now();
	seen->events_after = dev_events(status);
	memcpy(seen->member, status->member, RANKS);
	seen->left = status->left;
	__atomic_fetch_add(&c->shared->stage, 1, __ATOMIC_SEQ_CST);
	/* Then something else may happen, which changes nothing. */
	CHILD_TRUE(dev_reached(&c->shared->go, 3));
	seen->cause = dev_cause(status);
	seen->left = status->left;
	__atomic_fetch_add(&c->shared->stage, 1, __ATOMIC_SEQ_CST);
	CHILD_TRUE(dev_reached(&c->shared->go, 4));
	CHILD_GIVES(0, dev_leave(fd));
}

/* @acts gives a rank something to do; all have joined and look when it returns. */
static void crew_start(struct __test_metadata *_metadata, struct crew *c, int n,
		       int (*const *acts)(int rank, int fd))
{
	struct crew_member me = { .crew = c };

	c->world = dev_world(n);
	c->n = n;
	c->shared = dev_shared(sizeof(*c->shared));
	for (me.rank = 0; me.rank < n; me.rank++) {
		me.act = acts ? acts[me.rank] : NULL;
		c->pid[me.rank] = dev_child(crew_main, &me);
	}
	ASSERT_TRUE(dev_reached(&c->shared->stage, n));
	dev_reach(&c->shared->go, 1);
	ASSERT_TRUE(dev_reached(&c->shared->stage, 2 * n));
	dev_reach(&c->shared->stage, 0);
}

/* Let those who are left go home, and see that they are content. */
static void crew_end(struct __test_metadata *_metadata, struct crew *c, int living)
{
	int i;

	dev_reach(&c->shared->go, 4);
	for (i = 0; i < c->n; i++) {
		if (c->pid[i] > 0) {
			EXPECT_EQ(0, dev_child_status(c->pid[i], 20)) {
				TH_LOG("rank %d", i);
			}
			living--;
		}
		c->pid[i] = 0;
	}
	EXPECT_EQ(0, living);
}

static void crew_kill(struct __test_metadata *_metadata, struct crew *c, int rank)
{
	EXPECT_TRUE(dev_child_kill(c->pid[rank]));
	c->pid[rank] = 0;
}

/* All living ranks saw @cause within a second of @since, and an event. */
static void expect_seen(struct __test_metadata *_metadata, struct crew *c, __u64 cause,
			double since)
{
	int i;

	for (i = 0; i < c->n; i++) {
		struct seen *seen = &c->shared->seen[i];

		if (!c->pid[i])
			continue;
		EXPECT_EQ(cause, seen->cause) {
			TH_LOG("rank %d", i);
		}
		EXPECT_LT(seen->events_before, seen->events_after);
		EXPECT_GT(since + 1, seen->when) {
			TH_LOG("rank %d knew after %.3f s", i, seen->when - since);
		}
	}
}

TEST_F(death, killed)
{
	struct crew *c = &self->crew;
	double since;
	int victim, i;

	for (victim = 0; victim < RANKS; victim++) {
		crew_start(_metadata, c, RANKS, NULL);
		since = dev_now();
		crew_kill(_metadata, c, victim);
		EXPECT_TRUE(dev_reached(&c->shared->stage, RANKS - 1));
		expect_seen(_metadata, c, KCR_CAUSE(victim, ECONNRESET), since);
		for (i = 0; i < RANKS; i++) {
			if (i == victim)
				continue;
			EXPECT_EQ(KCR_MEMBER_DEAD, c->shared->seen[i].member[victim]);
			EXPECT_EQ(1, c->shared->seen[i].left);
		}
		dev_reach(&c->shared->go, 3);
		crew_end(_metadata, c, RANKS - 1);
	}
}

/* Another death and a FAIL after the first change nothing. */
TEST_F(death, first_cause_stays)
{
	struct crew *c = &self->crew;
	double since;
	int i;

	crew_start(_metadata, c, RANKS, NULL);
	since = dev_now();
	crew_kill(_metadata, c, 2);
	EXPECT_TRUE(dev_reached(&c->shared->stage, RANKS - 1));
	expect_seen(_metadata, c, KCR_CAUSE(2, ECONNRESET), since);
	crew_kill(_metadata, c, 0);
	dev_reach(&c->shared->stage, 0);
	dev_reach(&c->shared->go, 3);
	EXPECT_TRUE(dev_reached(&c->shared->stage, 2));
	for (i = 1; i < RANKS; i += 2) {
		EXPECT_EQ(KCR_CAUSE(2, ECONNRESET), c->shared->seen[i].cause);
		EXPECT_EQ(2, c->shared->seen[i].left);
	}
	crew_end(_metadata, c, 2);
}

static int act_fail(int rank, int fd)
{
	return dev_fail(fd, 100 + rank);
}

static int act_leave(int rank, int fd)
{
	return dev_leave(fd) ? 1 : (_exit(0), 0);
}

/* A rank says that the world has failed: all see whose word it is. */
TEST_F(death, fail)
{
	static int (*const acts[RANKS])(int rank, int fd) = { [1] = act_fail };
	struct crew *c = &self->crew;
	double since;

	crew_start(_metadata, c, RANKS, acts);
	since = dev_now();
	dev_reach(&c->shared->go, 2);
	EXPECT_TRUE(dev_reached(&c->shared->stage, RANKS));
	expect_seen(_metadata, c, KCR_CAUSE(1, 101), since);
	/* A death now is too late. */
	crew_kill(_metadata, c, 3);
	dev_reach(&c->shared->stage, 0);
	dev_reach(&c->shared->go, 3);
	EXPECT_TRUE(dev_reached(&c->shared->stage, RANKS - 1));
	EXPECT_EQ(KCR_CAUSE(1, 101), c->shared->seen[0].cause);
	crew_end(_metadata, c, RANKS - 1);
}

/* All fail the world at once: one of them is the cause, for everyone. */
TEST_F(death, all_fail)
{
	static int (*const acts[RANKS])(int rank, int fd) = {
		act_fail, act_fail, act_fail, act_fail,
	};
	struct crew *c = &self->crew;
	int round, i;

	for (round = 0; round < 10; round++) {
		crew_start(_metadata, c, RANKS, acts);
		dev_reach(&c->shared->go, 2);
		EXPECT_TRUE(dev_reached(&c->shared->stage, RANKS));
		EXPECT_EQ(100 + KCR_CAUSE_RANK(c->shared->seen[0].cause),
			  KCR_CAUSE_ERROR(c->shared->seen[0].cause));
		for (i = 1; i < RANKS; i++)
			EXPECT_EQ(c->shared->seen[0].cause, c->shared->seen[i].cause);
		dev_reach(&c->shared->go, 3);
		crew_end(_metadata, c, RANKS);
	}
}

/* Leaving is not dying, even for those who end right behind it. */
TEST_F(death, leaving_is_not)
{
	static int (*const acts[RANKS])(int rank, int fd) = {
		[1] = act_leave, [2] = act_leave,
	};
	struct crew *c = &self->crew;
	int i;

	crew_start(_metadata, c, RANKS, acts);
	dev_reach(&c->shared->go, 2);
	for (i = 1; i <= 2; i++) {
		EXPECT_EQ(0, dev_child_status(c->pid[i], 20));
		c->pid[i] = 0;
	}
	dev_sleep(0.3);
	EXPECT_EQ(0, c->shared->stage);
	dev_reach(&c->shared->go, 3);
	EXPECT_TRUE(dev_reached(&c->shared->stage, 4));
	for (i = 0; i < RANKS; i += 3) {
		struct seen *seen = &c->shared->seen[i];

		EXPECT_EQ(0, seen->cause);
		EXPECT_EQ(2, seen->left);
		EXPECT_EQ(KCR_MEMBER_LEFT, seen->member[1]);
		EXPECT_EQ(KCR_MEMBER_LEFT, seen->member[2]);
		EXPECT_EQ(KCR_MEMBER_JOINED, seen->member[3 - i]);
	}
	crew_end(_metadata, c, 2);
}

/* The rank that dies last leaves a world nobody sees: nothing remains of it. */
TEST_F(death, all_die)
{
	struct crew *c = &self->crew;
	int i;

	crew_start(_metadata, c, RANKS, NULL);
	for (i = 0; i < RANKS; i++)
		kill(c->pid[i], SIGKILL);
	for (i = 0; i < RANKS; i++)
		crew_kill(_metadata, c, i);
}

/* A rank that is stopped lives, and dies by SIGKILL all the same. */
TEST_F(death, stopped_and_killed)
{
	struct crew *c = &self->crew;
	double since;

	crew_start(_metadata, c, RANKS, NULL);
	kill(c->pid[1], SIGSTOP);
	dev_sleep(0.3);
	EXPECT_EQ(0, c->shared->stage);
	since = dev_now();
	crew_kill(_metadata, c, 1);
	EXPECT_TRUE(dev_reached(&c->shared->stage, RANKS - 1));
	expect_seen(_metadata, c, KCR_CAUSE(1, ECONNRESET), since);
	dev_reach(&c->shared->go, 3);
	crew_end(_metadata, c, RANKS - 1);
}

/* What is in the cause of a FAIL, for every rank and the whole range. */
TEST_F(death, causes)
{
	static const __u32 errors[] = { 1, EIO, 133, 4095 };
	struct kcr_status *status;
	int fd[3], i, k;

	for (i = 0; i < 12; i++) {
		struct dev_world w = dev_world(3);

		for (k = 0; k < 3; k++)
			fd[k] = dev_member(&w, k);
		status = dev_status(fd[0]);
		ASSERT_NE(MAP_FAILED, status);
		EXPECT_EQ(0, dev_fail(fd[i % 3], errors[i / 3]));
		EXPECT_EQ(KCR_CAUSE(i % 3, errors[i / 3]), dev_cause(status));
		EXPECT_EQ(0, dev_fail(fd[(i + 1) % 3], EPERM));
		EXPECT_EQ(0, dev_fail(fd[i % 3], EPERM));
		EXPECT_EQ(KCR_CAUSE(i % 3, errors[i / 3]), dev_cause(status));
		munmap(status, sizeof(*status));
		for (k = 0; k < 3; k++)
			close(fd[k]);
	}
}

/*
 * B9, K9: worlds whose processes are killed, wherever they are and in any
 * order. Each process is a rank of several worlds, half of them busy.
 */
#define WORLDS_PER_PROCESS 10

struct victim {
	struct dev_world *worlds;
	int rank;
	unsigned int seed;
	int *ready;
};

static void victim(void *arg)
{
	struct victim *v = arg;
	struct dev_sleeper s;
	struct kcr_status *status = MAP_FAILED;
	struct io_uring ring;
	unsigned int seed = v->seed;
	int fd = -1, i, has_ring;
	char *board;

	has_ring = !dev_ring(&ring, DEV_URING);
	for (i = 0; i < WORLDS_PER_PROCESS; i++) {
		fd = dev_member(&v->worlds[i], v->rank);
		/* The others may be dead already. */
		if (fd == -ECONNRESET)
			continue;
		CHILD_TRUE(fd >= 0);
		status = dev_status(fd);
		if (status == MAP_FAILED || rand_r(&seed) & 1)
			continue;
		if (!dev_window(fd, 0, ring_of_lanes, 1, 65536)) {
			board = dev_map(fd, PROT_READ | PROT_WRITE, 0, KCR_MAP_BOARD, v->rank,
					65536);
			if (board != MAP_FAILED)
				memset(board, 1, 65536);
		}
		if (has_ring && rand_r(&seed) & 1) {
			dev_entry_wait(&ring, fd, dev_events(status), LONG, 0, 0);
			io_uring_submit(&ring);
		}
	}
	if (fd >= 0 && status != MAP_FAILED && rand_r(&seed) & 1)
		dev_sleeper(&s, DEV_IOCTL, fd, dev_events(status), LONG, 0);
	__atomic_fetch_add(v->ready, 1, __ATOMIC_SEQ_CST);
	/* Busy with calls until the end. */
	for (;;) {
		if (fd < 0)
			pause();
		dev_kick(fd, 0, 3);
		dev_window(fd, 1, NULL, 0, 4096);
		dev_detach(fd, 1);
		dev_wait(fd, 0, DEV_MS, 0);
	}
}

TEST_F_TIMEOUT(death, many_worlds, 240)
{
	struct dev_world worlds[WORLDS_PER_PROCESS];
	int rounds = 100 * dev_scale(), round, i, k, order;
	struct victim v = { .worlds = worlds };
	unsigned int seed = 3;
	double begin = dev_now();
	pid_t pid[3];
	int n = 2;

	v.ready = dev_shared(4096);
	for (round = 0; round < rounds; round++) {
		for (i = 0; i < WORLDS_PER_PROCESS; i++)
			worlds[i] = dev_world(2);
		*v.ready = 0;
		for (i = 0; i < n; i++) {
			v.rank = i;
			v.seed = rand_r(&seed);
			pid[i] = dev_child(victim, &v);
			ASSERT_LT(0, pid[i]);
		}
		/* When they are ready, or a little before. */
		dev_sleep(0.001 * (rand_r(&seed) % 30));
		if (round & 1)
			EXPECT_TRUE(dev_reached(v.ready, n));
		order = rand_r(&seed) % n;
		for (k = 0; k < n; k++)
			kill(pid[(k + order) % n], SIGKILL);
		for (k = 0; k < n; k++)
			ASSERT_TRUE(dev_child_kill(pid[k])) {
				TH_LOG("round %d: %d has not died", round, pid[k]);
			}
	}
	TH_LOG("%d worlds in %.1f s", rounds * WORLDS_PER_PROCESS, dev_now() - begin);
	munmap(v.ready, 4096);
}

/* Worlds that are made, used and left, again and again, by one process (B9). */
TEST_F_TIMEOUT(death, many_lives, 240)
{
	int rounds = 10000 * dev_scale(), round, fd[2], i;
	double begin = dev_now();

	for (round = 0; round < rounds; round++) {
		struct dev_world w = dev_world(2);

		for (i = 0; i < 2; i++) {
			fd[i] = dev_member(&w, i);
			ASSERT_LE(0, fd[i]);
			ASSERT_EQ(0, dev_window(fd[i], 0, ring_of_lanes, 1, 8192));
		}
		ASSERT_EQ(0, dev_kick(fd[0], 0, 3));
		for (i = 0; i < 2; i++) {
			if (round & (1 << i))
				ASSERT_EQ(0, dev_leave(fd[i]));
			close(fd[i]);
		}
	}
	TH_LOG("%d worlds in %.1f s", rounds, dev_now() - begin);
}

/* Unloading. Only where the whole machine is ours. */

static void expect_busy(struct __test_metadata *_metadata, const char *why)
{
	double begin = dev_now();
	long err = module_delete("kcollring");

	EXPECT_TRUE(module_is_busy(err)) {
		TH_LOG("%s: %ld", why, err);
	}
	EXPECT_GT(1, dev_now() - begin);
}

static void park_until_told(void *arg)
{
	int *stage = arg;
	struct dev_world w = dev_world(1);
	int fd = dev_member(&w, 0);
	struct dev_sleeper s;

	CHILD_TRUE(fd >= 0);
	CHILD_GIVES(0, dev_sleeper(&s, DEV_URING, fd, 0, LONG, 0));
	CHILD_TRUE(DEV_SOON(5, dev_parked(&w, 0) == 1));
	dev_reach(stage, 1);
	for (;;)
		pause();
}

TEST_F(death, unload)
{
	static const char *const names[] = {
		"max_members_per_user", "max_pages_per_user", "max_parked",
		"max_conns_per_user",
	};
	char parameters[256] = "", path[96];
	const char *no = module_missing();
	struct dev_world w = dev_world(1);
	int fd, module, i, n = 0, *stage;
	struct kcr_query query;
	struct io_uring ring;
	struct stat st;
	long err = 0;
	bool verbs;
	void *page;
	pid_t pid;

	if (no)
		SKIP(return, "%s", no);
	module = module_open_own();
	if (module < 0)
		SKIP(return, "no kcollring.ko to load again: set KCR_MODULE");
	ASSERT_EQ(0, stat(DEV_PATH, &st));
	for (i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), DEV_PARAMETERS "%s", names[i]);
		n += snprintf(parameters + n, sizeof(parameters) - n, "%s=%ld ", names[i],
			      dev_read_number(path));
	}

	verbs = module_take_verbs();
	fd = dev_open();
	ASSERT_LE(0, fd);
	expect_busy(_metadata, "an open descriptor");
	ASSERT_EQ(0, dev_join(fd, &w, 0));
	expect_busy(_metadata, "a member");
	ASSERT_EQ(0, dev_window(fd, 0, NULL, 0, 1 << 20));
	page = dev_map(fd, PROT_READ | PROT_WRITE, 0, KCR_MAP_BOARD, 0, 1 << 20);
	ASSERT_NE(MAP_FAILED, page);
	ASSERT_EQ(0, dev_leave(fd));
	close(fd);
	expect_busy(_metadata, "a mapping");
	munmap(page, 1 << 20);
	fd = dev_open();
	ASSERT_LE(0, fd);
	if (!dev_ring(&ring, DEV_URING)) {
		ASSERT_EQ(0, io_uring_register_files(&ring, &fd, 1));
		close(fd);
		expect_busy(_metadata, "a file registered with a ring");
		io_uring_queue_exit(&ring);
	} else {
		close(fd);
	}
	stage = dev_shared(4096);
	pid = dev_child(park_until_told, stage);
	EXPECT_TRUE(dev_reached(stage, 1));
	expect_busy(_metadata, "a parked command");
	EXPECT_TRUE(dev_child_kill(pid));

	/* The last user is gone: soon it works, and the device goes with it. */
	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, !(err = module_delete("kcollring")))) {
		TH_LOG("delete_module: %ld", err);
	}
	if (err)
		return;
	EXPECT_EQ(-ENOENT, dev_open());
	EXPECT_NE(0, access("/sys/module/kcollring", F_OK));
	EXPECT_EQ(-ENOENT, module_delete("kcollring"));

	ASSERT_EQ(0, module_load(module, parameters)) {
		TH_LOG("finit_module(\"%s\"): %s", parameters, strerror(errno));
	}
	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, !access(DEV_PATH, F_OK)));
	EXPECT_EQ(0, chown(DEV_PATH, st.st_uid, st.st_gid));
	EXPECT_EQ(0, chmod(DEV_PATH, st.st_mode & 07777));
	fd = dev_open();
	EXPECT_LE(0, fd);
	EXPECT_EQ(0, dev_query(fd, &query));
	EXPECT_EQ(0, query.members);
	EXPECT_EQ(0, query.pages);
	close(fd);
	close(module);
	if (verbs)
		EXPECT_EQ(0, module_give_verbs());
}

/* Again and again, with something to give back each time. */
TEST_F_TIMEOUT(death, unload_often, 120)
{
	const char *no = module_missing();
	int module, round, pid, err = 0, *stage;
	struct stat st;
	bool verbs;

	if (no)
		SKIP(return, "%s", no);
	module = module_open_own();
	if (module < 0)
		SKIP(return, "no kcollring.ko to load again: set KCR_MODULE");
	ASSERT_EQ(0, stat(DEV_PATH, &st));
	stage = dev_shared(4096);
	verbs = module_take_verbs();
	for (round = 0; round < 5; round++) {
		*stage = 0;
		pid = dev_child(park_until_told, stage);
		EXPECT_TRUE(dev_reached(stage, 1));
		EXPECT_TRUE(dev_child_kill(pid));
		/* At once, if it can be had: what is still to come must not be lost. */
		ASSERT_TRUE(DEV_SOON(DEV_SETTLE, !(err = module_delete("kcollring")))) {
			TH_LOG("delete_module: %d", err);
		}
		ASSERT_EQ(0, module_load(module, ""));
		ASSERT_TRUE(DEV_SOON(DEV_SETTLE, !access(DEV_PATH, F_OK)));
		EXPECT_EQ(0, chown(DEV_PATH, st.st_uid, st.st_gid));
		EXPECT_EQ(0, chmod(DEV_PATH, st.st_mode & 07777));
	}
	close(module);
	if (verbs)
		EXPECT_EQ(0, module_give_verbs());
}

TEST_HARNESS_MAIN
