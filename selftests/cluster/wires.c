// SPDX-License-Identifier: GPL-2.0
/*
 * One hash, however many wires a message takes, however large its segments are, and
 * however unlike the wires are
 */
#include "cluster.h"
#include "data.h"

#define COUNT	(512 << 10)	/* 2 MiB of f32 */

static uint64_t expected(int size)
{
	static uint64_t hash;
	void *x;

	if (hash)
		return hash;
	x = malloc(COUNT * sizeof(float));
	if (x && !data_expect(x, COUNT, KCR_F32, KCR_SUM, size, 1))
		hash = data_hash(x, COUNT * sizeof(float), 0);
	free(x);
	return hash;
}

/* In a world of its own; with @wires 0 as many as there are. */
static int reduce(int rank, const char *algo, int wires, int bytes, int times,
		  double *took)
{
	float *x = malloc(2 * COUNT * sizeof(*x));
	struct kcr_world *w;
	double began;
	int i;

	RANK_TRUE(x);
	data_fill(x, COUNT, KCR_F32, rank, 1);
	setenv("KCR_ALGO", algo, 1);
	if (wires)
		ranks_set("KCR_WIRES_MAX", wires);
	if (bytes) {
		ranks_set("KCR_LANE_BYTES", bytes);
		ranks_set("KCR_BOARD_BYTES", bytes);
	}
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	began = ranks_now();
	for (i = 0; i < times; i++) {
		memset(x + COUNT, 0, COUNT * sizeof(*x));
		RANK_OK(w, kcr_allreduce(w, x, x + COUNT, COUNT, KCR_F32, KCR_SUM));
		if (data_hash(x + COUNT, COUNT * sizeof(*x), 0) !=
		    expected(kcr_size(w)))
			RANK_FAIL("%s, %d wires, segments of %d: another hash", algo,
				  wires, bytes);
	}
	if (took)
		*took = ranks_now() - began;
	RANK_OK(NULL, kcr_world_destroy(w));
	free(x);
	return 0;
}

static int number(struct cluster *c, int rank)
{
	return reduce(rank, "owner", 1, 0, 1, NULL) ||
	       reduce(rank, "owner", 2, 0, 1, NULL) ||
	       reduce(rank, "chain", 1, 0, 1, NULL) ||
	       reduce(rank, "chain", 2, 0, 1, NULL) ||
	       reduce(rank, "direct", 2, 0, 1, NULL);
}

static int segments(struct cluster *c, int rank)
{
	static const int bytes[] = { 4096, 12296, 65536, (512 << 10) - 64 };
	int i;

	for (i = 0; i < ARRAY_SIZE(bytes); i++)
		if (reduce(rank, i % 2 ? "chain" : "owner", 1 + i / 2, bytes[i], 1,
			   NULL))
			return 1;
	return 0;
}

/* Which wires, and in which order; a node may name them in another. */
static int named(struct cluster *c, int rank)
{
	char names[64];
	int peer = c->node ? 0 : 1;

	snprintf(names, sizeof(names), "rxe%dw1,rxe%d", peer, peer);
	setenv("KCR_WIRES", names, 1);
	if (reduce(rank, "owner", 0, 0, 1, NULL))
		return 1;
	snprintf(names, sizeof(names), "rxe%dw1", peer);
	setenv("KCR_WIRES", names, 1);
	return reduce(rank, "owner", 0, 0, 1, NULL);
}

/* The second wire has a small part of the first one's speed, both ways. */
static int unlike(struct cluster *c, int rank)
{
	char command[160];
	int failed = 0, lacks = 0, all;
	double took;

	if (!c->local) {
		snprintf(command, sizeof(command),
			 "tc qdisc replace dev cable%dw1 root tbf rate 20mbit burst 32k limit 8000000",
			 c->node ? 0 : 1);
		lacks = !!system(command);
	}
	all = lacks;
	RANK_TRUE(!cluster_meet(c, &all));
	if (!all) {
		failed = reduce(rank, "owner", 2, 0, 2, &took) ||
			 reduce(rank, "chain", 2, 0, 2, &took);
		fprintf(stderr, "# rank %d: %.1f s by unlike wires\n", rank, took);
	}
	cluster_meet(c, NULL);
	if (!c->local && !lacks) {
		snprintf(command, sizeof(command), "tc qdisc replace dev cable%dw1 root pfifo limit 20000",
			 c->node ? 0 : 1);
		RANK_TRUE(!system(command));
	}
	return all ? CLUSTER_SKIP : failed;
}

static const struct cluster_case cases[] = {
	{ "the number of wires", number, 90 },
	{ "the size of segments", segments, 90 },
	{ "wires by name", named },
	{ "a slow wire", unlike, 90, 0, "the kernel has no tbf" },
};

int main(int argc, char **argv)
{
	return cluster_main(argc, argv, cases, ARRAY_SIZE(cases), 2);
}
