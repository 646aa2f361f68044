// SPDX-License-Identifier: GPL-2.0
/*
 * What opens the ways of a world while packets get lost: frames of each class, and lanes.
 * The device sends again what was lost, and whatever it had begun behind that
 */
#include "cluster.h"
#include "data.h"
#include "ring.h"

/*
 * One in so many packets that a node is sent is lost, for either node. Made ready while
 * nothing is sent: it stops the interface for a moment, and on 6.12 sometimes for good.
 */
#define READY	"tc qdisc del dev cable%d clsact 2> /dev/null; tc qdisc add dev cable%d clsact"
#define LOSES	"tc filter add dev cable%d ingress matchall action pass random netrand drop 16"
#define LOST	"tc -s filter show dev cable%d ingress | grep -q 'dropped [1-9]'"
#define KEEPS	"tc filter del dev cable%d ingress"
#define COUNT	(12 << 10)
#define WORLDS	2
#define CAPACITY	1000
#define MESSAGES	40

/* The first rank of each node does it. Returns 0 if all could. */
static int at_cables(struct cluster *c, const char *format)
{
	int peer = c->node ? 0 : 1, failed = 0;
	char command[160];

	if (!c->local) {
		snprintf(command, sizeof(command), format, peer, peer);
		failed = !!system(command);
	}
	return cluster_meet(c, &failed) ? -1 : failed;
}

/* Of the smallest frames first. */
static int reduce(struct cluster *c, int rank, struct kcr_world *w, uint64_t seed)
{
	uint64_t *x = malloc(3 * COUNT * sizeof(*x)), *sum = x + COUNT, *right = sum + COUNT;
	size_t count;

	RANK_TRUE(x);
	for (count = 64; count <= COUNT; count *= 4) {
		data_fill(x, count, KCR_F64, rank, seed + count);
		memset(sum, 0, count * sizeof(*sum));
		RANK_OK(w, kcr_allreduce(w, x, sum, count, KCR_F64, KCR_SUM));
		RANK_TRUE(!data_expect(right, count, KCR_F64, KCR_SUM, c->size, seed + count));
		RANK_TRUE(!memcmp(sum, right, count * sizeof(*sum)));
	}
	free(x);
	return 0;
}

/* Few enough for all of them to have room. */
static int exchange(struct cluster *c, int rank, struct kcr_ring *ring)
{
	struct ring_inbox in = { .ring = ring, .rank = rank, .acks = 1 };
	uint64_t n;
	int to;

	for (n = 1; n <= MESSAGES; n++) {
		for (to = 0; to < c->size; to++)
			if (to != rank)
				RANK_TRUE(ring_send(ring, rank, to, n, -1) == (int64_t)n);
	}
	while (in.count < (uint64_t)MESSAGES * (c->size - 1)) {
		RANK_OK(NULL, kcr_ring_wait(ring, -1));
		RANK_TRUE(kcr_ring_poll(ring, ring_receive, &in) >= 0);
		RANK_TRUE(!in.wrong);
	}
	RANK_TRUE(!in.gaps);
	return 0;
}

static int make_ring(struct cluster *c, int rank, struct kcr_world *w)
{
	struct kcr_lane lanes[KCR_RANKS_MAX];
	struct kcr_ring *ring;
	size_t n = 0;
	int a, b;

	for (a = 0; a < c->size; a++)
		for (b = 0; b < c->size; b++)
			if (a != b)
				lanes[n++] = (struct kcr_lane){ a, b, MESSAGES, CAPACITY };
	RANK_OK(w, kcr_ring_create(w, lanes, n, 0, &ring));
	if (exchange(c, rank, ring))
		return 1;
	RANK_OK(w, kcr_ring_destroy(ring));
	return 0;
}

static int rings(struct cluster *c, int rank, struct kcr_world *w, uint64_t seed)
{
	return make_ring(c, rank, w) || reduce(c, rank, w, seed) || make_ring(c, rank, w);
}

static int while_losing(struct cluster *c, int rank,
			int (*run)(struct cluster *c, int rank, struct kcr_world *w,
				   uint64_t seed))
{
	struct kcr_world *w;
	int i, failed;

	if (at_cables(c, READY))
		return CLUSTER_SKIP;
	for (i = 0; i < WORLDS; i++) {
		RANK_OK(NULL, kcr_world_create(NULL, &w));
		RANK_TRUE(!at_cables(c, LOSES));
		failed = run(c, rank, w, i);
		RANK_TRUE(!at_cables(c, LOST));
		RANK_TRUE(!at_cables(c, KEEPS));
		if (failed)
			return 1;
		RANK_OK(NULL, kcr_world_destroy(w));
	}
	return 0;
}

static int frames(struct cluster *c, int rank)
{
	return while_losing(c, rank, reduce);
}

static int lanes(struct cluster *c, int rank)
{
	return while_losing(c, rank, rings);
}

static const struct cluster_case cases[] = {
	{ "frames are opened", frames, 90, 0, "the kernel has no gact" },
	{ "lanes are opened", lanes, 90, 0, "the kernel has no gact" },
};

int main(int argc, char **argv)
{
	return cluster_main(argc, argv, cases, ARRAY_SIZE(cases), 2);
}
