// SPDX-License-Identifier: GPL-2.0
/*
 * Ranks of different nodes that do not agree: what they call, and how their world is
 * to be. Every rank is told, and nobody waits.
 */
#include "cluster.h"
#include "data.h"

#define MOST	410000
#define SOON	10.0

struct call {
	const char *text;	/* in words, behind the number */
	char kind;		/* a(llreduce) g(ather) b(roadcast) s(catter) f(lush: barrier) */
	size_t count;
	enum kcr_dtype dtype;
	enum kcr_op op;
	int root;
};

static int make(struct kcr_world *w, const struct call *c, void *x, void *y)
{
	switch (c->kind) {
	case 'a': return kcr_allreduce(w, x, y, c->count, c->dtype, c->op);
	case 's': return kcr_reduce_scatter(w, x, y, c->count, c->dtype, c->op);
	case 'g': return kcr_allgather(w, x, y, c->count, c->dtype);
	case 'b': return kcr_broadcast(w, y, c->count, c->dtype, c->root);
	default: return kcr_barrier(w);
	}
}

/*
 * One rank calls something else; a world for each such rank. Whoever sends a broadcast
 * need not wait for anybody, and is told in its next call.
 */
static int differ(struct cluster *cluster, int rank, const struct call *usual,
		  const struct call *odd)
{
	void *x = calloc(MOST * cluster->size, 8), *y = calloc(MOST * cluster->size, 8);
	int who, i, err;

	RANK_TRUE(x && y);
	for (who = 0; who < cluster->size; who += cluster->size - 1) {
		struct kcr_world *w;
		char words[128];
		double began;

		RANK_OK(NULL, kcr_world_create(NULL, &w));
		for (i = 0; i < who % 3; i++)
			RANK_OK(w, kcr_allreduce(w, x, y, 100, KCR_F32, KCR_SUM));
		began = ranks_now();
		err = make(w, rank == who ? odd : usual, x, y);
		if (!err && odd->kind == 'b')
			err = kcr_barrier(w);
		RANK_GIVES(-EPROTO, w, err);
		RANK_TRUE(ranks_now() - began < SOON);
		RANK_SAYS(w, "ranks differ");
		for (i = 0; i < 2 && odd->kind != 'b'; i++) {
			snprintf(words, sizeof(words), (i ? odd : usual)->text,
				 who % 3 + 1);
			RANK_SAYS(w, words);
		}
		/* Nobody has left before all have seen it. */
		RANK_MEET(cluster);
		RANK_OK(NULL, kcr_world_destroy(w));
	}
	free(x);
	free(y);
	return 0;
}

static const struct call hundred = {
	"allreduce #%d (100 f32, sum)", 'a', 100, KCR_F32, KCR_SUM
};

static int count(struct cluster *c, int rank)
{
	static const struct call more = {
		"allreduce #%d (101 f32, sum)", 'a', 101, KCR_F32, KCR_SUM
	};

	return differ(c, rank, &hundred, &more);
}

/* The frames of one are of another class than those of the other. */
static int class(struct cluster *c, int rank)
{
	static const struct call a = {
		"allreduce #%d (1016 f32, sum)", 'a', 1016, KCR_F32, KCR_SUM
	}, b = {
		"allreduce #%d (1017 f32, sum)", 'a', 1017, KCR_F32, KCR_SUM
	};

	return differ(c, rank, &a, &b);
}

static int large(struct cluster *c, int rank)
{
	static const struct call a = {
		"allreduce #%d (409600 f32, sum)", 'a', 409600, KCR_F32, KCR_SUM
	}, b = {
		"allreduce #%d (409598 f32, sum)", 'a', 409598, KCR_F32, KCR_SUM
	};

	return differ(c, rank, &a, &b);
}

static int small_and_large(struct cluster *c, int rank)
{
	static const struct call a = {
		"allreduce #%d (200000 f32, sum)", 'a', 200000, KCR_F32, KCR_SUM
	};

	return differ(c, rank, &a, &hundred);
}

static int type(struct cluster *c, int rank)
{
	static const struct call other = {
		"allreduce #%d (100 i32, sum)", 'a', 100, KCR_I32, KCR_SUM
	};

	return differ(c, rank, &hundred, &other);
}

static int operation(struct cluster *c, int rank)
{
	static const struct call other = {
		"allreduce #%d (100 f32, max)", 'a', 100, KCR_F32, KCR_MAX
	};

	return differ(c, rank, &hundred, &other);
}

static int kind(struct cluster *c, int rank)
{
	static const struct call gather = {
		"all-gather #%d (100 f32", 'g', 100, KCR_F32
	};
	static const struct call barrier = { "barrier #%d", 'f' };

	return differ(c, rank, &hundred, &gather) ||
	       differ(c, rank, &hundred, &barrier);
}

static int root(struct cluster *c, int rank)
{
	static const struct call first = {
		"broadcast #%d (100 f32, root 1", 'b', 100, KCR_F32, 0, 1
	}, last = {
		"broadcast #%d (100 f32, root 2", 'b', 100, KCR_F32, 0, 2
	};

	return differ(c, rank, &first, &last);
}

/* Messages between nodes: both of those who exchange them are told. */
static int message(struct cluster *c, int rank)
{
	static char x[2000001];
	struct kcr_world *w;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	if (rank == 0)
		RANK_GIVES(-EPROTO, w, kcr_send(w, x, 2000000, c->size - 1));
	else if (rank == c->size - 1)
		RANK_GIVES(-EPROTO, w, kcr_recv(w, x, 2000001, 0));
	/* Whoever finds out names both; the other may hear of it only then. */
	if (rank == 0 || rank == c->size - 1)
		RANK_SAYS(w, "ranks differ");
	RANK_MEET(c);
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

/* ---- the world itself ---- */

static int shared_memory(struct cluster *c, int rank)
{
	struct kcr_world *w;

	setenv("KCR_LINK", "shm", 1);
	RANK_REFUSED(-EOPNOTSUPP, NULL, kcr_world_create(NULL, &w),
		     "several nodes");
	RANK_SAYS(NULL, "shm");
	return 0;
}

static int no_such_wire(struct cluster *c, int rank)
{
	struct kcr_world *w;

	setenv("KCR_WIRES", "rxe77", 1);
	RANK_REFUSED(-ENODEV, NULL, kcr_world_create(NULL, &w), "\"rxe77\"");
	return 0;
}

/* On one node only: the others hear of it as well, and do not wait for it. */
static int no_such_wire_there(struct cluster *c, int rank)
{
	double began = ranks_now();
	struct kcr_world *w;
	int err;

	if (c->node == 1)
		setenv("KCR_WIRES", "rxe77", 1);
	err = kcr_world_create(NULL, &w);
	RANK_TRUE(err < 0);
	RANK_SAYS(NULL, "rxe77");
	RANK_TRUE(ranks_now() - began < SOON);
	return 0;
}

static int algorithm(struct cluster *c, int rank)
{
	struct kcr_world *w;

	setenv("KCR_ALGO", c->node ? "chain" : "owner", 1);
	RANK_REFUSED(-EINVAL, NULL, kcr_world_create(NULL, &w), "algo");
	return 0;
}

static int numbers(struct cluster *c, int rank)
{
	struct kcr_world *w;

	/* Two processes claim to be rank 1, of different nodes, if there are enough. */
	if (rank == c->size - 1)
		setenv("KCR_RANK", "1", 1);
	RANK_REFUSED(-EEXIST, NULL, kcr_world_create(NULL, &w), "rank 1");
	return 0;
}

/* After all of that a world is made, and works. */
static int afterwards(struct cluster *c, int rank)
{
	const char *left = cluster_left(10);
	struct kcr_world *w;
	int flag;

	if (left)
		RANK_FAIL("%ld %s are left", cluster_counter(left), left);
	RANK_MEET(c);
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_OK(w, kcr_any(w, rank == 1, &flag));
	RANK_TRUE(flag == 1);
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

static const struct cluster_case cases[] = {
	{ "one element more", count },
	{ "one element more, frames of another class", class },
	{ "two elements less, large", large },
	{ "small and large", small_and_large },
	{ "another type", type },
	{ "another operation", operation },
	{ "another kind", kind },
	{ "another root", root },
	{ "a message of another size", message },
	{ "shared memory between nodes", shared_memory },
	{ "a device that no node has", no_such_wire },
	{ "a device that one node has not", no_such_wire_there },
	{ "another algorithm on another node", algorithm },
	{ "a rank twice", numbers },
	{ "then a world works, and nothing is left", afterwards },
};

int main(int argc, char **argv)
{
	return cluster_main(argc, argv, cases, ARRAY_SIZE(cases), 2);
}
