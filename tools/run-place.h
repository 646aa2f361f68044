/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where the ranks of one kcr-run stand in the job, and where the job meets
 *
 * A job has one kcr-run on each of its nodes, each with as many ranks: node 0 has
 * the first of them, node 1 the next, and so on.
 */
#ifndef RUN_PLACE_H
#define RUN_PLACE_H

#include <stdbool.h>

#include <kcollring.h>

struct place {
	int ranks;		/* on each node; 0: not said */
	int nodes;		/* 0: not said */
	int node;		/* -1: not said */
	const char *rendezvous;	/* NULL: not said, or the ranks need a directory */
	char text[512];		/* what is made: the rendezvous, or what is wrong */
};

#define PLACE_INIT	{ .node = -1 }

/*
 * Finds out from the environment what was not said. If that leaves no sensible
 * place it returns false, and @text says why.
 */
bool place_complete(struct place *place);

/* The rank in the job of a rank of this node. */
static inline int place_rank(const struct place *place, int local)
{
	return place->node * place->ranks + local;
}

/*
 * Sets what tells the program which rank it is; @job, random, names the launch where
 * no other kcr-run has to know the name.
 */
void place_set_environment(const struct place *place, int local, const char *job);

#endif /* RUN_PLACE_H */
