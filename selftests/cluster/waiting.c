// SPDX-License-Identifier: GPL-2.0
/*
 * A rank that does something else for long, or is stopped for longer than the
 * modules let each other be silent: it costs the others time, and nothing breaks
 */
#include "cluster.h"
#include "collective.h"

#define COUNT	50000

static double long_time(void)
{
	return getenv("KCR_TEST_LONG") ? 60 : 20;
}

static int reduce(int rank, struct kcr_world *w, struct collective *c)
{
	c->seed++;
	collective_prepare(c, w);
	RANK_OK(w, collective_call(c, w));
	RANK_RIGHT(c);
	return 0;
}

static int start(int rank, struct collective *c, struct kcr_world **w)
{
	*c = (struct collective){ .kind = COLLECTIVE_ALLREDUCE, .count = COUNT,
				  .dtype = KCR_F32, .op = KCR_SUM };
	RANK_OK(NULL, collective_alloc(c, collective_room(COUNT, 1)));
	RANK_OK(NULL, kcr_world_create(NULL, w));
	return reduce(rank, *w, c);
}

/* The last rank, and then the first. */
static int asleep(struct cluster *cluster, int rank)
{
	struct collective c;
	struct kcr_world *w;
	double began;

	if (start(rank, &c, &w))
		return 1;
	began = ranks_now();
	if (rank == cluster->size - 1)
		ranks_sleep(long_time());
	if (reduce(rank, w, &c))
		return 1;
	RANK_TRUE(ranks_now() - began > long_time() - 1);
	if (!rank)
		ranks_sleep(3);
	if (reduce(rank, w, &c))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

/* Stopped by a signal while the others go on calling; a helper lets it go on. */
static int stopped(struct cluster *cluster, int rank)
{
	struct collective c;
	struct kcr_world *w;
	int pipes[2], i;
	double began;
	char byte;

	/* Before there is a world that it could have a share in. */
	if (rank == cluster->size - 1) {
		pid_t parent = getpid();

		RANK_TRUE(!pipe(pipes));
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(pipes[1]);
			if (read(pipes[0], &byte, 1) == 1) {
				ranks_sleep(12);
				kill(parent, SIGCONT);
			}
			_exit(0);
		}
		close(pipes[0]);
	}
	if (start(rank, &c, &w))
		return 1;
	began = ranks_now();
	if (rank == cluster->size - 1) {
		RANK_TRUE(write(pipes[1], "", 1) == 1);
		raise(SIGSTOP);
	}
	for (i = 0; i < 3; i++)
		if (reduce(rank, w, &c))
			return 1;
	RANK_TRUE(ranks_now() - began > 11);
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

static const struct cluster_case cases[] = {
	{ "a rank sleeps", asleep, 120 },
	{ "a rank is stopped", stopped },
};

int main(int argc, char **argv)
{
	return cluster_main(argc, argv, cases, ARRAY_SIZE(cases), 2);
}
