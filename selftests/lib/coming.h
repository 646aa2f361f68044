/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ranks that come together in some way, and what becomes of that: what the tests
 * of every rendezvous have in common
 *
 * The fixture's self->r has the ranks and self->job how they come; self->job.shared
 * is of coming_shared() and has what they tell.
 */
#ifndef KCR_TEST_COMING_H
#define KCR_TEST_COMING_H

/* Not by its place, which is beside this file: it includes the next one of its name. */
#include <kselftest_harness.h>
#include "data.h"
#include "ranks.h"

struct shared {
	struct ranks_meeting meeting;
	struct ranks_outcome outcome[KCR_RANKS_MAX];
	pid_t pid[KCR_RANKS_MAX];
	double acted;
};

/* How the ranks of a test come. */
struct job {
	struct shared *shared;
	int no_job;		/* without KCR_JOB */
	int odd_rank;		/* sets the variable below, or -1 */
	const char *name, *value;
	int missing;		/* a bit for each rank below 31 that does not come */
	double delay;		/* of the odd rank */
	long rounds;
	const char *place;	/* a directory that is not there yet */
};

static struct shared *coming_shared(void)
{
	return ranks_shared(sizeof(struct shared));
}

static int reduce(struct kcr_world *w, int rank, uint64_t seed)
{
	double x[100], want[100];

	data_fill(x, 100, KCR_F64, rank, seed);
	RANK_OK(w, kcr_allreduce(w, x, x, 100, KCR_F64, KCR_SUM));
	RANK_OK(NULL, data_expect(want, 100, KCR_F64, KCR_SUM, kcr_size(w), seed));
	RANK_TRUE(data_differ(want, x, 100, KCR_F64) < 0);
	return 0;
}

/* What each rank of a job does to its environment. */
static void come_as_told(int rank, const struct job *job)
{
	job->shared->pid[rank] = getpid();
	if (job->no_job)
		unsetenv("KCR_JOB");
	if (rank != job->odd_rank)
		return;
	if (job->name)
		setenv(job->name, job->value, 1);
	ranks_sleep(job->delay);
}

/* Come together, reduce, go; again, if there are to be rounds. */
static int come_together(int rank, void *arg)
{
	const struct job *job = arg;
	struct kcr_world *w;
	long i = 0;

	come_as_told(rank, job);
	do {
		RANK_OK(NULL, kcr_world_create(NULL, &w));
		if (reduce(w, rank, i))
			return 1;
		RANK_OK(NULL, kcr_world_destroy(w));
	} while (++i < job->rounds);
	return 0;
}

/* Try to come together, and tell what that gave. */
static int try_to_come(int rank, void *arg)
{
	const struct job *job = arg;
	struct kcr_world *w = (void *)1;
	int err;

	come_as_told(rank, job);
	err = kcr_world_create(NULL, &w);
	ranks_record(&job->shared->outcome[rank], NULL, err);
	if (err)
		RANK_TRUE(!w);
	else
		RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

/* Come together and reduce until that fails, for what is to be told. */
static int come_and_reduce(int rank, void *arg)
{
	const struct job *job = arg;
	struct ranks_outcome *o = &job->shared->outcome[rank];
	struct kcr_world *w;
	double x = rank;
	int err;

	if (ranks_record(o, NULL, kcr_world_create(NULL, &w)))
		return 0;
	do {
		err = kcr_allreduce(w, &x, &x, 1, KCR_F64, KCR_SUM);
	} while (!err);
	ranks_record(o, w, err);
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

static int is_missing(const struct job *job, int rank)
{
	return rank < 31 && job->missing >> rank & 1;
}

/* Start the ranks, but the missing. */
static int start_ranks(struct ranks *r, struct job *job,
		       int (*fn)(int rank, void *arg))
{
	int rank, err = 0;

	memset(job->shared, 0, sizeof(*job->shared));
	for (rank = 0; rank < r->n && !err; rank++)
		if (!is_missing(job, rank))
			err = ranks_start_one(r, rank, fn, job);
	return err;
}

static int start_those(struct ranks *r, int n, struct job *job,
		       int (*fn)(int rank, void *arg))
{
	return ranks_init(r, n) ?: start_ranks(r, job, fn);
}

/* Kill a rank and see it dead; it is not expected to end in another way. */
static void kill_rank(struct ranks *r, int victim)
{
	ranks_kill(r, victim, SIGKILL);
	while (!ranks_ended(r, victim))
		ranks_sleep(0.001);
	r->status[victim] = 0;
}

/* Rank @rank has come to @err and says every one of @says. */
static void see_rank(struct __test_metadata *_metadata,
		     const struct ranks_outcome *o, int rank, int err,
		     const char * const says[])
{
	int i;

	EXPECT_EQ(1, o->done);
	EXPECT_EQ(err, o->err) {
		TH_LOG("rank %d: %s", rank, o->said);
	}
	for (i = 0; says[i]; i++) {
		EXPECT_NE(NULL, strstr(o->said, says[i])) {
			TH_LOG("rank %d says \"%s\", not \"%s\"", rank, o->said,
			       says[i]);
		}
	}
}

#define SEE_RANK(rank, err, ...) \
	see_rank(_metadata, &self->job.shared->outcome[rank], rank, err, \
		 (const char * const []){ __VA_ARGS__, NULL })

/* All but the missing have come to @err, in time, and say every one of @says. */
static void see_all(struct __test_metadata *_metadata, struct ranks *r,
		    const struct job *job, int err, double seconds,
		    const char * const says[])
{
	double began = ranks_now();
	int rank;

	EXPECT_EQ(0, ranks_wait(r, 60));
	EXPECT_LT(ranks_now() - began, seconds);
	EXPECT_EQ(0, ranks_report(r));
	for (rank = 0; rank < r->n; rank++)
		if (!is_missing(job, rank))
			see_rank(_metadata, &job->shared->outcome[rank], rank, err,
				 says);
}

#define SEE_ALL(err, seconds, ...) \
	see_all(_metadata, &self->r, &self->job, err, seconds, \
		(const char * const []){ __VA_ARGS__, NULL })

/* One test after another, each with a place of its own to meet. */
static void again(struct ranks *r)
{
	ranks_end(r);
	r->n = 0;
}

/* Two processes are rank @twice of 4; rank 3 comes when they know, or never. */
static void come_twice(struct __test_metadata *_metadata, struct ranks *r, struct job *job,
		       int twice, bool late)
{
	double limit = ranks_now() + 15;
	char pids[2][32];
	struct ranks second;
	int rank;

	ASSERT_EQ(0, ranks_init(r, 4));
	memset(job->shared, 0, sizeof(*job->shared));
	job->missing = late ? 0 : 1 << 3;
	ASSERT_EQ(0, ranks_start_one(r, twice, try_to_come, job));
	second = *r;
	ASSERT_EQ(0, ranks_start_one(&second, twice, try_to_come, job));
	snprintf(pids[0], sizeof(pids[0]), "pid %d", r->pid[twice]);
	snprintf(pids[1], sizeof(pids[1]), "pid %d", second.pid[twice]);
	for (rank = 0; rank < 3; rank++)
		if (rank != twice)
			ranks_start_one(r, rank, try_to_come, job);
	if (late) {
		while (!job->shared->outcome[twice].done && ranks_now() < limit)
			ranks_sleep(0.001);
		ranks_start_one(r, 3, try_to_come, job);
	}
	see_all(_metadata, r, job, -EEXIST, 20,
		(const char * const []){ "claimed twice", "by host ", pids[0], pids[1], NULL });
	EXPECT_EQ(second.pid[twice], waitpid(second.pid[twice], NULL, 0));
	again(r);
}

/* All have come, met, and gone. */
static void see_well(struct __test_metadata *_metadata, struct ranks *r)
{
	EXPECT_EQ(0, ranks_wait(r, 60));
	EXPECT_EQ(0, ranks_report(r));
	again(r);
}

#endif /* KCR_TEST_COMING_H */
