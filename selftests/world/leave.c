// SPDX-License-Identifier: GPL-2.0
/*
 * Ranks that leave: the first never breaks those who still read its last data,
 * later operations say who left, and what a forked child does is not the rank's
 *
 * Over the link that KCR_LINK names.
 */
#include <sys/syscall.h>

#include "kselftest_harness.h"
#include "data.h"
#include "ranks.h"

struct job {
	long rounds;
	size_t count;
	int delay;		/* 1 in so many ranks waits before it leaves or comes */
	struct shared {
		struct ranks_meeting meeting;
		struct ranks_outcome outcome[8];
		pid_t child;
		double acted;
	} *shared;
};

FIXTURE(leave) {
	struct job job;
};

FIXTURE_SETUP(leave)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_TIMEOUT", "60", 1);
	self->job.shared = ranks_shared(sizeof(struct shared));
	ASSERT_NE(NULL, self->job.shared);
}

FIXTURE_TEARDOWN(leave)
{
}

static int reduce(struct kcr_world *w, int rank, float *x, size_t count,
		  uint64_t seed)
{
	float *want = x + count;
	long at;

	data_fill(x, count, KCR_F32, rank, seed);
	RANK_OK(w, kcr_allreduce(w, x, x, count, KCR_F32, KCR_SUM));
	RANK_OK(NULL, data_expect(want, count, KCR_F32, KCR_SUM, kcr_size(w),
				  seed));
	at = data_differ(want, x, count, KCR_F32);
	if (at >= 0)
		RANK_FAIL("seed %ld: element %ld is wrong", (long)seed, at);
	return 0;
}

/* Come, reduce once, go: the one that is first goes while the others read. */
static int come_and_go(int rank, void *arg)
{
	const struct job *job = arg;
	float *x = malloc(2 * job->count * sizeof(float));
	uint64_t random = rank;
	struct kcr_world *w;
	long i;

	RANK_TRUE(x);
	for (i = 0; i < job->rounds; i++) {
		RANK_OK(NULL, kcr_world_create(NULL, &w));
		if (reduce(w, rank, x, job->count, i))
			RANK_FAIL("in round %ld", i);
		if (job->delay && !(data_random(&random) % job->delay))
			ranks_sleep(data_random(&random) % 1000 / 1e6);
		RANK_OK(NULL, kcr_world_destroy(w));
	}
	free(x);
	return 0;
}

TEST_F_TIMEOUT(leave, small_direct, 240)
{
	self->job.rounds = ranks_rounds(4000);
	self->job.count = 100;
	self->job.delay = 16;
	setenv("KCR_ALGO", "direct", 1);
	EXPECT_EQ(0, ranks_run(3, come_and_go, &self->job, 230));
}

TEST_F_TIMEOUT(leave, owner_in_many_segments, 240)
{
	self->job.rounds = ranks_rounds(4000);
	self->job.count = 1000;
	self->job.delay = 16;
	setenv("KCR_ALGO", "owner", 1);
	setenv("KCR_LANE_BYTES", "256", 1);
	setenv("KCR_BOARD_BYTES", "256", 1);
	EXPECT_EQ(0, ranks_run(4, come_and_go, &self->job, 230));
}

/* Nobody looks before he sleeps. */
TEST_F_TIMEOUT(leave, asleep, 240)
{
	self->job.rounds = ranks_rounds(2000);
	self->job.count = 64;
	setenv("KCR_SPIN", "0", 1);
	setenv("KCR_YIELD", "0", 1);
	EXPECT_EQ(0, ranks_run(3, come_and_go, &self->job, 230));
}

/* All go but one. */
static int stay_alone(int rank, void *arg)
{
	const struct job *job = arg;
	float x[256];
	struct kcr_world *w;
	int i;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < 3; i++)
		if (reduce(w, rank, x, 128, i))
			return 1;
	if (rank) {
		RANK_OK(NULL, kcr_world_destroy(w));
		ranks_meet(&job->shared->meeting, 4);
		return 0;
	}
	ranks_meet(&job->shared->meeting, 4);
	RANK_REFUSED(-ESHUTDOWN, w, kcr_barrier(w), "barrier #4: rank 1 left");
	RANK_REFUSED(-ESHUTDOWN, w, kcr_barrier(w), "barrier #4: rank 1 left");
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(leave, all_the_others_gone, 60)
{
	EXPECT_EQ(0, ranks_run(4, stay_alone, &self->job, 30));
}

/* Rank 2 leaves after five; the others go on. */
static int go_on_without(int rank, void *arg)
{
	const struct job *job = arg;
	struct kcr_world *w;
	float *x = malloc(2 * job->count * sizeof(float));
	int i;

	RANK_TRUE(x);
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < 5; i++)
		if (reduce(w, rank, x, job->count, i))
			return 1;
	if (rank != 2) {
		RANK_REFUSED(-ESHUTDOWN, w,
			     kcr_allreduce(w, x, x, job->count, KCR_F32, KCR_SUM),
			     "allreduce #6: rank 2 left");
		RANK_REFUSED(-ESHUTDOWN, w, kcr_barrier(w), "allreduce #6: rank 2 left");
		ranks_meet(&job->shared->meeting, kcr_size(w) - 1);
		RANK_REFUSED(-ESHUTDOWN, w, kcr_barrier(w), "allreduce #6: rank 2 left");
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	free(x);
	return 0;
}

TEST_F_TIMEOUT(leave, later_operations, 120)
{
	static const char * const algos[] = { "direct", "owner" };
	long round;

	for (round = 0; round < ranks_rounds(128) + 4; round++) {
		setenv("KCR_ALGO", algos[round % 2], 1);
		/* Awake or asleep. */
		setenv("KCR_SPIN", round % 4 < 2 ? "0" : "1000", 1);
		setenv("KCR_YIELD", round % 4 < 2 ? "0" : "100", 1);
		self->job.count = round % 3 ? 50 : 10000;
		ASSERT_EQ(0, ranks_run(4, go_on_without, &self->job, 60));
	}
}

/* Run @fn in a forked child; 0 if it returned 0. */
static int in_child(int (*fn)(struct kcr_world *w, float *x),
		    struct kcr_world *w, float *x)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	/* Nobody looks for leaks, as leaks.h would: its copy of the link is lost. */
	if (!pid)
		syscall(SYS_exit_group, fn(w, x));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -1;
	return status;
}

static int use_in_child(struct kcr_world *w, float *x)
{
	int rank = -1;

	RANK_REFUSED(-EPERM, w, kcr_barrier(w), "forked child");
	RANK_GIVES(-EPERM, w, kcr_allreduce(w, x, x, 10, KCR_F32, KCR_SUM));
	RANK_GIVES(-EPERM, w, kcr_abort(w, EIO));
	RANK_TRUE(kcr_size(w) == 3);
	RANK_REFUSED(-EPERM, NULL, kcr_world_destroy(w), "forked child");
	return 0;
}

static int just_exit(struct kcr_world *w, float *x)
{
	(void)w;
	(void)x;
	exit(0);
}

static int close_all(struct kcr_world *w, float *x)
{
	int fd;

	(void)w;
	(void)x;
	for (fd = 3; fd < 1024; fd++)
		close(fd);
	return 0;
}

static int run_true(struct kcr_world *w, float *x)
{
	(void)w;
	(void)x;
	execl("/bin/true", "true", NULL);
	return 1;
}

static int be_killed(struct kcr_world *w, float *x)
{
	(void)w;
	(void)x;
	raise(SIGKILL);
	return 0;
}

/* A world of its own is none of the parent's business. */
static int own_world(struct kcr_world *w, float *x)
{
	struct kcr_world *own;
	int rank = 0;

	(void)w;
	setenv("KCR_SIZE", "1", 1);
	setenv("KCR_RANK", "0", 1);
	setenv("KCR_LOCAL_SIZE", "1", 1);
	setenv("KCR_LOCAL_RANK", "0", 1);
	*x = 5;
	RANK_OK(NULL, kcr_world_create(NULL, &own));
	RANK_OK(own, kcr_allreduce(own, x, x, 1, KCR_F32, KCR_SUM));
	RANK_TRUE(*x == 5);
	RANK_OK(NULL, kcr_world_destroy(own));
	return 0;
}

static int with_children(int rank, void *arg)
{
	const struct job *job = arg;
	float x[256];
	struct kcr_world *w;

	(void)job;
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	if (reduce(w, rank, x, 100, 1))
		return 1;
	if (rank == 1) {
		RANK_TRUE(!in_child(use_in_child, w, x));
		RANK_TRUE(!in_child(just_exit, w, x));
		RANK_TRUE(!in_child(close_all, w, x));
		RANK_TRUE(!in_child(run_true, w, x));
		RANK_TRUE(!in_child(own_world, w, x));
		RANK_TRUE(in_child(be_killed, w, x) == SIGKILL);
		RANK_TRUE(!system("true"));
	} else {
		/* Asleep, and looking for the dead, while the children end. */
		if (reduce(w, rank, x, 100, 2))
			return 1;
	}
	if (rank == 1 && reduce(w, rank, x, 100, 2))
		return 1;
	ranks_sleep(0.3);
	if (reduce(w, rank, x, 100, 3))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(leave, children_are_not_the_rank, 60)
{
	EXPECT_EQ(0, ranks_run(3, with_children, &self->job, 50));
}

/* Rank 2 has a child that holds all it inherited, and then is killed. */
static int leave_an_orphan(int rank, void *arg)
{
	const struct job *job = arg;
	struct ranks_outcome *o = &job->shared->outcome[rank];
	float x[256];
	struct kcr_world *w;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	if (reduce(w, rank, x, 100, 1))
		return 1;
	if (rank == 2) {
		pid_t child = fork();

		if (!child) {
			ranks_sleep(60);
			_exit(0);
		}
		job->shared->child = child;
		job->shared->acted = ranks_now();
		raise(SIGKILL);
	}
	ranks_record(o, w, kcr_barrier(w));
	RANK_GIVES(-ECONNRESET, w, o->err);
	RANK_SAYS(w, "barrier #2: rank 2 died");
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(leave, killed_while_its_child_lives, 60)
{
	struct shared *shared = self->job.shared;
	struct ranks r;
	int rank;

	ASSERT_EQ(0, ranks_start(&r, 3, leave_an_orphan, &self->job));
	EXPECT_EQ(0, ranks_wait(&r, 30));
	EXPECT_EQ(0, r.status[0]);
	EXPECT_EQ(0, r.status[1]);
	EXPECT_EQ(SIGKILL, r.status[2]);
	ranks_end(&r);
	ASSERT_LT(0, shared->child);
	EXPECT_EQ(0, kill(shared->child, SIGKILL));
	for (rank = 0; rank < 2; rank++) {
		TH_LOG("rank %d knew after %.3f s", rank,
		       shared->outcome[rank].at - shared->acted);
		EXPECT_LT(shared->outcome[rank].at - shared->acted, 2.0);
	}
}

/* A rank that leaves a failed world, or fails after others left, harms nobody. */
static int go_in_turn(int rank, void *arg)
{
	const struct job *job = arg;
	float x[256];
	struct kcr_world *w;
	int i, err;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < 3 * (rank + 1); i++) {
		data_fill(x, 100, KCR_F32, rank, i);
		err = kcr_allreduce(w, x, x, 100, KCR_F32, KCR_SUM);
		if (i < 3) {
			RANK_GIVES(0, w, err);
			continue;
		}
		RANK_GIVES(-ESHUTDOWN, w, err);
		/* Others may have given up because of rank 0, and left as well. */
		RANK_SAYS(w, "allreduce #4: rank ");
		RANK_SAYS(w, " left");
	}
	(void)job;
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(leave, one_by_one, 120)
{
	long round;

	for (round = 0; round < ranks_rounds(200); round++)
		ASSERT_EQ(0, ranks_run(5, go_in_turn, &self->job, 30));
}

TEST_HARNESS_MAIN
