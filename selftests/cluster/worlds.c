// SPDX-License-Identifier: GPL-2.0
/*
 * Many connections made and closed: eight ranks on each node, five worlds in a row and
 * two at once
 */
#include "cluster.h"
#include "data.h"

static int work(int rank, struct kcr_world *w, uint64_t seed)
{
	uint64_t x[500], sum[500];
	int flag;

	data_fill(x, ARRAY_SIZE(x), KCR_U64, kcr_rank(w), seed);
	RANK_OK(w, kcr_allreduce(w, x, x, ARRAY_SIZE(x), KCR_U64, KCR_SUM));
	RANK_TRUE(!data_expect(sum, ARRAY_SIZE(x), KCR_U64, KCR_SUM, kcr_size(w), seed));
	RANK_TRUE(!memcmp(x, sum, sizeof(x)));
	RANK_OK(w, kcr_any(w, kcr_rank(w) == 3, &flag));
	RANK_TRUE(flag == 1);
	return 0;
}

static int in_a_row(struct cluster *c, int rank)
{
	struct kcr_world *w;
	int i;

	for (i = 0; i < 5; i++) {
		RANK_OK(NULL, kcr_world_create(NULL, &w));
		if (work(rank, w, i))
			return 1;
		RANK_OK(NULL, kcr_world_destroy(w));
	}
	return 0;
}

static int at_once(struct cluster *c, int rank)
{
	struct kcr_world *a, *b;

	setenv("KCR_WIRES_MAX", "1", 1);
	RANK_OK(NULL, kcr_world_create(NULL, &a));
	RANK_OK(NULL, kcr_world_create(NULL, &b));
	if (work(rank, a, 10) || work(rank, b, 11) || work(rank, a, 12))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(a));
	if (work(rank, b, 13))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(b));
	return 0;
}

static int nothing_left(struct cluster *cluster, int rank)
{
	const char *left = cluster_left(10);

	if (left)
		RANK_FAIL("%ld %s are left", cluster_counter(left), left);
	return 0;
}

static const struct cluster_case cases[] = {
	{ "five worlds", in_a_row, 120 },
	{ "two worlds at once", at_once, 90 },
	{ "nothing is left", nothing_left },
};

int main(int argc, char **argv)
{
	return cluster_main(argc, argv, cases, ARRAY_SIZE(cases), 8);
}
