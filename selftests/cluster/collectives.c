// SPDX-License-Identifier: GPL-2.0
/*
 * Every kind of operation between nodes has the oracle's bits: all types and
 * operations, all algorithms, sizes at which frames change their class, several at once, in
 * worlds of parts
 */
#include <math.h>
#include "cluster.h"
#include "collective.h"

#define HEADER		32	/* of a frame, in bytes */
#define ROOM		(4 << 20)
#define FLIGHT		6

static const enum kcr_algo algos[] = {
	KCR_ALGO_DIRECT, KCR_ALGO_OWNER, KCR_ALGO_CHAIN,
};

static int make(enum kcr_algo algo, uint32_t slot, struct kcr_world **w)
{
	struct kcr_config config;

	kcr_config_init(&config);
	config.algo = algo;
	if (slot) {
		config.lane_bytes = slot;
		config.board_bytes = slot;
	}
	return kcr_world_create(&config, w);
}

static int check(int rank, struct kcr_world *w, struct collective *c)
{
	collective_prepare(c, w);
	RANK_OK(w, collective_call(c, w));
	RANK_RIGHT(c);
	return 0;
}

static int pairs(int rank, enum kcr_algo algo)
{
	struct collective c = { .seed = 1 + algo };
	struct kcr_world *w;
	int dtype, op, size;

	RANK_OK(NULL, collective_alloc(&c, ROOM / 4));
	RANK_OK(NULL, make(algo, 4096, &w));
	RANK_TRUE(strstr(kcr_link_name(w), "mesh"));
	for (dtype = 0; dtype < KCR_DTYPES; dtype++) {
		for (op = 0; op < KCR_OPS; op++) {
			if (!data_is_supported(dtype, op))
				continue;
			for (size = 0; size < 2; size++) {
				c.dtype = dtype;
				c.op = op;
				c.count = size ? 2501 : 13;
				c.seed++;
				c.in_place = c.seed & 1;
				c.kind = COLLECTIVE_ALLREDUCE;
				if (check(rank, w, &c))
					return 1;
				c.kind = COLLECTIVE_REDUCE_SCATTER;
				c.count = size ? 701 : 5;
				if (check(rank, w, &c))
					return 1;
			}
		}
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

static int pairs_direct(struct cluster *c, int rank)
{
	return pairs(rank, KCR_ALGO_DIRECT);
}

static int pairs_owner(struct cluster *c, int rank)
{
	return pairs(rank, KCR_ALGO_OWNER);
}

static int pairs_chain(struct cluster *c, int rank)
{
	return pairs(rank, KCR_ALGO_CHAIN);
}

/* Those that fold nothing, and exchanges: of each type, by each rank in turn. */
static int moving(struct cluster *cluster, int rank)
{
	struct collective c = { .seed = 100 };
	struct kcr_world *w;
	unsigned int a;

	RANK_OK(NULL, collective_alloc(&c, ROOM / 4));
	for (a = 0; a < ARRAY_SIZE(algos); a++) {
		RANK_OK(NULL, make(algos[a], 4096, &w));
		for (c.dtype = 0; c.dtype < KCR_DTYPES; c.dtype++) {
			for (c.kind = COLLECTIVE_ALLGATHER;
			     c.kind < COLLECTIVE_KINDS; c.kind++) {
				c.seed++;
				c.root = c.seed % cluster->size;
				c.count = c.dtype % 2 ? 1500 : 21;
				c.in_place = c.seed & 1;
				if (check(rank, w, &c))
					return 1;
			}
		}
		RANK_OK(NULL, kcr_world_destroy(w));
	}
	return 0;
}

/* None, fewer than ranks, as many, odd numbers. */
static int few(struct cluster *cluster, int rank)
{
	size_t counts[] = { 0, 1, cluster->size - 1, cluster->size,
			    cluster->size + 1, 127 };
	struct collective c = { .seed = 200 };
	struct kcr_world *w;
	unsigned int a, i;

	RANK_OK(NULL, collective_alloc(&c, ROOM / 4));
	for (a = 0; a < ARRAY_SIZE(algos); a++) {
		RANK_OK(NULL, make(algos[a], 0, &w));
		for (i = 0; i < ARRAY_SIZE(counts); i++) {
			for (c.kind = 0; c.kind < COLLECTIVE_KINDS; c.kind++) {
				c.seed++;
				c.count = counts[i];
				c.dtype = i % 2 ? KCR_F64 : KCR_F32;
				c.op = KCR_SUM;
				c.root = c.seed % cluster->size;
				c.in_place = c.seed & 1;
				if (check(rank, w, &c))
					return 1;
			}
		}
		RANK_OK(NULL, kcr_world_destroy(w));
	}
	return 0;
}

/* Frames that just fit their class, and do not: header and all. */
static int borders(struct cluster *cluster, int rank)
{
	static const size_t classes[] = { 4096, 8192, 65536 };
	struct collective c = { .seed = 300, .dtype = KCR_F32, .op = KCR_SUM };
	struct kcr_world *w;
	unsigned int a, i;
	int off;

	RANK_OK(NULL, collective_alloc(&c, ROOM));
	for (a = 0; a < ARRAY_SIZE(algos); a++) {
		RANK_OK(NULL, make(algos[a], 128 << 10, &w));
		for (i = 0; i < ARRAY_SIZE(classes); i++) {
			for (off = -1; off <= 1; off++) {
				/* A whole message in a frame, and a shard. */
				c.count = (classes[i] - HEADER) / 4 + off;
				c.seed++;
				c.kind = COLLECTIVE_ALLREDUCE;
				if (check(rank, w, &c))
					return 1;
				c.kind = COLLECTIVE_REDUCE_SCATTER;
				if (check(rank, w, &c))
					return 1;
				c.kind = COLLECTIVE_EXCHANGE;
				c.root = 1 + c.seed % (cluster->size - 1);
				if (check(rank, w, &c))
					return 1;
			}
		}
		RANK_OK(NULL, kcr_world_destroy(w));
	}
	return 0;
}

static int large(struct cluster *cluster, int rank)
{
	struct collective c = { .seed = 400, .dtype = KCR_F32, .op = KCR_SUM };
	struct kcr_world *w;
	unsigned int a;

	RANK_OK(NULL, collective_alloc(&c, collective_room(300 << 10, 1)));
	for (a = 0; a < ARRAY_SIZE(algos); a++) {
		RANK_OK(NULL, make(algos[a], 0, &w));
		c.seed++;
		c.kind = COLLECTIVE_ALLREDUCE;
		c.count = 256 << 10;
		if (check(rank, w, &c))
			return 1;
		c.kind = COLLECTIVE_EXCHANGE;
		c.root = 1 + a % (cluster->size - 1);
		if (check(rank, w, &c))
			return 1;
		c.kind = COLLECTIVE_BROADCAST;
		c.root = cluster->size - 1;
		if (check(rank, w, &c))
			return 1;
		RANK_OK(NULL, kcr_world_destroy(w));
	}
	return 0;
}

/* A sum that is right in one order of the ranks only, in every permutation of the four. */
static int order(struct cluster *cluster, int rank)
{
	static const float values[] = { 1e8f, 1.0f, -1e8f, 1.0f };
	struct kcr_world *w;
	unsigned int a, i, p, round;
	float x[96], y[96], sum[96];

	for (i = 0; i < ARRAY_SIZE(sum); i++) {
		for (p = 0; p < cluster->size; p++) {
			float v = values[(p + i + i / 4 * p) % 4];

			sum[i] = p ? sum[i] + v : v;
		}
		x[i] = values[(rank + i + i / 4 * rank) % 4];
	}
	for (a = 0; a < ARRAY_SIZE(algos); a++) {
		RANK_OK(NULL, make(algos[a], 0, &w));
		for (round = 0; round < 10; round++) {
			RANK_OK(w, kcr_allreduce(w, x, y, ARRAY_SIZE(x), KCR_F32,
						 KCR_SUM));
			RANK_TRUE(!memcmp(y, sum, sizeof(y)));
		}
		RANK_OK(NULL, kcr_world_destroy(w));
	}
	return 0;
}

static void set_nan(void *at, int dtype)
{
	static const uint16_t half = 0xfe01, brain = 0xff81;
	static const uint32_t single = 0xff800001;
	static const uint64_t twice = 0xfff0000000000001;

	if (dtype == KCR_F16)
		memcpy(at, &half, sizeof(half));
	else if (dtype == KCR_BF16)
		memcpy(at, &brain, sizeof(brain));
	else if (dtype == KCR_F32)
		memcpy(at, &single, sizeof(single));
	else
		memcpy(at, &twice, sizeof(twice));
}

/* Element i of the rank i's is a signalling NaN: all get the same, canonical one. */
static int nans(struct cluster *cluster, int rank)
{
	enum { COUNT = 40 };
	uint64_t in[KCR_RANKS_MAX][COUNT], out[COUNT], expected[COUNT];
	const void *of[KCR_RANKS_MAX];
	struct kcr_world *w;
	int a, dtype, op, r;

	for (a = 0; a < ARRAY_SIZE(algos); a++) {
		RANK_OK(NULL, make(algos[a], 0, &w));
		for (dtype = KCR_F16; dtype < KCR_DTYPES; dtype++) {
			for (op = KCR_SUM; op <= KCR_MEAN; op++) {
				size_t size = kcr_dtype_size(dtype);

				for (r = 0; r < cluster->size; r++) {
					data_fill(in[r], COUNT, dtype, r, op);
					set_nan((char *)in[r] + r * size, dtype);
					of[r] = in[r];
				}
				RANK_OK(NULL, kcr_reference_fold(of, cluster->size,
								 expected, COUNT,
								 dtype, op));
				RANK_OK(w, kcr_allreduce(w, in[rank], out, COUNT,
							 dtype, op));
				RANK_TRUE(data_differ(out, expected, COUNT, dtype) < 0);
			}
		}
		RANK_OK(NULL, kcr_world_destroy(w));
	}
	return 0;
}

/* From each to each, both ways at once, then round a ring without requests. */
static int messages(struct cluster *cluster, int rank)
{
	static const size_t sizes[] = { 0, 1, 4063, 4064, 4065, 65537, 300001 };
	static unsigned char out[300001], in[300001], right[300001];
	int n = cluster->size, i, to, from;
	struct kcr_world *w;
	unsigned int s;

	RANK_OK(NULL, make(KCR_ALGO_AUTO, 0, &w));
	for (s = 0; s < ARRAY_SIZE(sizes); s++) {
		size_t bytes = sizes[s];

		for (i = 1; i < n; i++) {
			struct kcr_request *r[2];

			to = (rank + i) % n;
			from = (rank + n - i) % n;
			data_fill(out, bytes, KCR_U8, rank, 10 * s + i);
			data_fill(right, bytes, KCR_U8, from, 10 * s + i);
			RANK_OK(w, kcr_irecv(w, in, bytes, from, &r[0]));
			RANK_OK(w, kcr_isend(w, out, bytes, to, &r[1]));
			RANK_OK(w, kcr_wait(r[1]));
			RANK_OK(w, kcr_wait(r[0]));
			RANK_TRUE(!memcmp(in, right, bytes));
		}
		to = (rank + 1) % n;
		from = (rank + n - 1) % n;
		if (rank)
			RANK_OK(w, kcr_recv(w, in, bytes, from));
		else
			data_fill(in, bytes, KCR_U8, 0, s);
		RANK_OK(w, kcr_send(w, in, bytes, to));
		if (!rank)
			RANK_OK(w, kcr_recv(w, in, bytes, from));
		data_fill(right, bytes, KCR_U8, 0, s);
		RANK_TRUE(!memcmp(in, right, bytes));
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

/* Several of all kinds on their way, waited for in each rank's own order. */
static int requests(struct cluster *cluster, int rank)
{
	static struct collective c[FLIGHT];
	struct kcr_world *w;
	int round, i;

	RANK_OK(NULL, make(KCR_ALGO_AUTO, 4096, &w));
	for (i = 0; i < FLIGHT; i++)
		RANK_OK(NULL, collective_alloc(&c[i], ROOM / 8));
	for (round = 0; round < 20; round++) {
		for (i = 0; i < FLIGHT; i++) {
			c[i].seed = 500 + round * FLIGHT + i;
			c[i].kind = data_mix(c[i].seed) % COLLECTIVE_KINDS;
			c[i].dtype = c[i].seed % KCR_DTYPES;
			c[i].op = c[i].seed % KCR_BAND;
			c[i].count = data_mix(c[i].seed) >> 20 & 2047;
			c[i].root = c[i].seed % cluster->size;
			collective_prepare(&c[i], w);
			RANK_OK(w, collective_start(&c[i], w));
		}
		for (i = 0; i < FLIGHT; i++) {
			struct collective *one = &c[(i * 5 + rank) % FLIGHT];

			RANK_OK(w, collective_wait(one));
			RANK_RIGHT(one);
		}
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

static int work(int rank, struct kcr_world *w, uint64_t seed)
{
	struct collective c = { .seed = seed };

	RANK_OK(NULL, collective_alloc(&c, ROOM / 8));
	for (c.kind = 0; c.kind < COLLECTIVE_KINDS; c.kind++) {
		c.seed++;
		c.dtype = c.seed % KCR_DTYPES;
		c.count = 1 + data_mix(c.seed) % 3000;
		c.root = c.seed % kcr_size(w);
		if (check(rank, w, &c))
			return 1;
	}
	collective_free(&c);
	return 0;
}

/* A world for each node, and one across nodes for each place; all work in turn. */
static int parts(struct cluster *cluster, int rank)
{
	struct kcr_world *w, *mine, *across;

	RANK_OK(NULL, make(KCR_ALGO_AUTO, 0, &w));
	RANK_OK(w, kcr_world_split(w, cluster->node, rank, &mine));
	RANK_OK(w, kcr_world_split(w, cluster->local, -rank, &across));
	RANK_TRUE(kcr_size(mine) == cluster->locals);
	RANK_TRUE(kcr_rank(mine) == cluster->local);
	RANK_TRUE(kcr_size(across) == cluster->nodes);
	RANK_TRUE(kcr_rank(across) == cluster->nodes - 1 - cluster->node);
	if (cluster->locals > 1)
		RANK_TRUE(!strcmp(kcr_link_name(mine), "module"));
	RANK_TRUE(strstr(kcr_link_name(across), "mesh"));
	if (work(rank, mine, 600) || work(rank, across, 700) || work(rank, w, 800))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(w));
	if (work(rank, across, 900))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(across));
	if (work(rank, mine, 1000))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(mine));
	return 0;
}

/* Every case has left the nodes as they were. */
static int nothing_left(struct cluster *cluster, int rank)
{
	const char *left = cluster_left(10);

	if (left)
		RANK_FAIL("%ld %s are left", cluster_counter(left), left);
	RANK_TRUE(cluster_counter("violations") <= 0);
	return 0;
}

static const struct cluster_case cases[] = {
	{ "all types and operations, direct", pairs_direct },
	{ "all types and operations, owner", pairs_owner },
	{ "all types and operations, chain", pairs_chain },
	{ "what folds nothing", moving },
	{ "few elements", few },
	{ "borders of frame classes", borders, 90 },
	{ "1 MiB", large, 90 },
	{ "the order of the ranks", order },
	{ "a NaN of each rank", nans },
	{ "messages", messages },
	{ "requests", requests },
	{ "worlds of a node and across nodes", parts },
	{ "nothing is left", nothing_left },
};

int main(int argc, char **argv)
{
	return cluster_main(argc, argv, cases, ARRAY_SIZE(cases), 2);
}
