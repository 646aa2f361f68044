// SPDX-License-Identifier: GPL-2.0
/*
 * Parts of worlds: who belongs to which, that they are worlds like any other, and
 * that each lives and fails for itself
 *
 * Over the link that KCR_LINK names.
 */
#include "kselftest_harness.h"
#include "collective.h"
#include "ranks.h"

#define RANKS	5
/* The promise is a second; two processors shared with others get two. */
#define SOON	(2.0 * pace())

struct scene {
	struct ranks_meeting meeting;
	struct ranks_outcome part[RANKS], whole[RANKS];
	double acted;
	long rounds;
};

FIXTURE(split) {
	struct scene *scene;
};

FIXTURE_SETUP(split)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_TIMEOUT", "30", 1);
	setenv("KCR_LANE_BYTES", "512", 1);
	setenv("KCR_BOARD_BYTES", "512", 1);
	self->scene = ranks_shared(sizeof(*self->scene));
	ASSERT_NE(NULL, self->scene);
}

FIXTURE_TEARDOWN(split)
{
}

/* A few operations of every kind, with the oracle's results for the ranks of @w. */
static int work(int rank, struct kcr_world *w, uint64_t seed)
{
	struct collective c = { .seed = seed };

	RANK_OK(NULL, collective_alloc(&c, collective_room(300, RANKS)));
	for (c.kind = 0; c.kind < COLLECTIVE_KINDS; c.kind++, c.seed++) {
		c.dtype = c.seed % KCR_DTYPES;
		c.count = 1 + c.seed % 300;
		c.root = c.seed % kcr_size(w);
		collective_prepare(&c, w);
		RANK_OK(w, collective_call(&c, w));
		RANK_RIGHT(&c);
	}
	collective_free(&c);
	return 0;
}

static int is_at(int rank, struct kcr_world *w, int want_rank, int want_size)
{
	char text[32];

	RANK_TRUE(w);
	if (kcr_rank(w) != want_rank || kcr_size(w) != want_size)
		RANK_FAIL("is rank %d of %d, not %d of %d", kcr_rank(w), kcr_size(w),
			  want_rank, want_size);
	snprintf(text, sizeof(text), "size=%d", want_size);
	RANK_TRUE(strstr(kcr_contract(w), text));
	return 0;
}

static int by_parity(int rank, void *arg)
{
	struct kcr_world *w, *part;
	int n;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	n = kcr_size(w);
	RANK_OK(w, kcr_world_split(w, rank % 2, 0, &part));
	if (is_at(rank, part, rank / 2, rank % 2 ? n / 2 : (n + 1) / 2) ||
	    work(rank, part, rank % 2) || work(rank, w, 5) ||
	    work(rank, part, 9 + rank % 2))
		return 1;
	RANK_TRUE(kcr_size(part) == 1 ||
		  !strcmp(kcr_link_name(part), kcr_link_name(w)));
	RANK_OK(NULL, kcr_world_destroy(part));
	if (work(rank, w, 11))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(split, by_parity, 60)
{
	int ranks;

	for (ranks = 1; ranks <= RANKS; ranks++)
		ASSERT_EQ(0, ranks_run(ranks, by_parity, NULL, 30));
}

/* All in one part, in another order: it decides the bits. */
static int reversed(int rank, void *arg)
{
	struct kcr_world *w, *part;
	int n;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	n = kcr_size(w);
	RANK_OK(w, kcr_world_split(w, 7, -rank, &part));
	if (is_at(rank, part, n - 1 - rank, n) || work(rank, part, 1))
		return 1;
	/* The old rank decides between equal keys; keys may be anything. */
	RANK_OK(NULL, kcr_world_destroy(part));
	RANK_OK(w, kcr_world_split(w, INT32_MAX, rank % 2 ? INT32_MIN : INT32_MAX,
				   &part));
	if (is_at(rank, part, rank % 2 ? rank / 2 : n / 2 + rank / 2, n) ||
	    work(rank, part, 2))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(part));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(split, reversed, 60)
{
	int ranks;

	for (ranks = 1; ranks <= RANKS; ranks++)
		ASSERT_EQ(0, ranks_run(ranks, reversed, NULL, 30));
}

/* Some belong nowhere; once nobody does. */
static int left_out(int rank, void *arg)
{
	struct kcr_world *w, *part = (void *)1;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_OK(w, kcr_world_split(w, rank == 1 || rank == 3 ? 0 : -1 - rank, 0, &part));
	if (rank == 1 || rank == 3) {
		if (is_at(rank, part, rank / 2, 2) || work(rank, part, 3))
			return 1;
		RANK_OK(NULL, kcr_world_destroy(part));
	} else {
		RANK_TRUE(!part);
	}
	part = (void *)1;
	RANK_OK(w, kcr_world_split(w, -1, 0, &part));
	RANK_TRUE(!part);
	RANK_REFUSED(-EINVAL, w, kcr_world_split(w, 0, 0, NULL), "part is NULL");
	RANK_REFUSED(-EINVAL, NULL, kcr_world_split(NULL, 0, 0, &part),
		     "world is NULL");
	if (work(rank, w, 4))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(split, left_out, 60)
{
	ASSERT_EQ(0, ranks_run(RANKS, left_out, NULL, 50));
}

/* Each for itself. */
static int parts_of_one(int rank, void *arg)
{
	struct kcr_world *w, *part;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_OK(w, kcr_world_split(w, rank, 0, &part));
	if (is_at(rank, part, 0, 1) || work(rank, part, rank))
		return 1;
	RANK_TRUE(!strcmp(kcr_link_name(part), "self"));
	RANK_OK(NULL, kcr_world_destroy(part));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(split, parts_of_one, 60)
{
	ASSERT_EQ(0, ranks_run(RANKS, parts_of_one, NULL, 50));
}

/* A part of a part, and all that came before it destroyed first. */
static int of_a_split(int rank, void *arg)
{
	struct kcr_world *w, *part, *inner;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	/* 0 2 4 and 1 3, then 4 0 and 2, 3 and 1. */
	RANK_OK(w, kcr_world_split(w, rank % 2, -rank, &part));
	if (is_at(rank, part, rank % 2 ? 1 - rank / 2 : 2 - rank / 2,
		  rank % 2 ? 2 : 3))
		return 1;
	RANK_OK(part, kcr_world_split(part, kcr_rank(part) % 2, 0, &inner));
	if (is_at(rank, inner, rank == 0 ? 1 : 0, rank == 0 || rank == 4 ? 2 : 1))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(w));
	if (work(rank, part, 10 + rank % 2) || work(rank, inner, 20))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(part));
	if (work(rank, inner, 30))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(inner));
	return 0;
}

TEST_F_TIMEOUT(split, of_a_split, 60)
{
	ASSERT_EQ(0, ranks_run(RANKS, of_a_split, NULL, 50));
}

/* The same ranks' operations in three worlds on their way at once. */
static int at_the_same_time(int rank, void *arg)
{
	static struct collective c[3];
	struct kcr_world *world[3];
	long rounds = ((struct scene *)arg)->rounds, i;
	int k;

	RANK_OK(NULL, kcr_world_create(NULL, &world[0]));
	RANK_OK(world[0], kcr_world_split(world[0], rank % 2, 0, &world[1]));
	RANK_OK(world[0], kcr_world_split(world[0], rank / 2, -rank, &world[2]));
	for (k = 0; k < 3; k++)
		RANK_OK(NULL, collective_alloc(&c[k], collective_room(300, RANKS)));
	for (i = 0; i < rounds; i++) {
		for (k = 0; k < 3; k++) {
			c[k].kind = (i + k) % COLLECTIVE_KINDS;
			c[k].dtype = (i + k) % KCR_DTYPES;
			c[k].count = data_mix(i) % 300;
			c[k].seed = i;
			c[k].root = i % kcr_size(world[k]);
			collective_prepare(&c[k], world[k]);
			RANK_OK(world[k], collective_start(&c[k], world[k]));
		}
		for (k = 3; k--;) {
			RANK_OK(world[k], collective_wait(&c[k]));
			RANK_RIGHT(&c[k]);
		}
	}
	for (k = 0; k < 3; k++)
		RANK_OK(NULL, kcr_world_destroy(world[k]));
	return 0;
}

TEST_F_TIMEOUT(split, at_the_same_time, 100)
{
	self->scene->rounds = ranks_rounds(2000);
	ASSERT_EQ(0, ranks_run(RANKS, at_the_same_time, self->scene, 80));
}

/*
 * Rank 3 dies. Its part and the whole fail; the even part does not notice.
 */
static int one_dies(int rank, void *arg)
{
	struct scene *scene = arg;
	struct kcr_world *w, *part;
	int err = 0, i;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_OK(w, kcr_world_split(w, rank % 2, 0, &part));
	ranks_meet(&scene->meeting, RANKS);
	if (rank == 3) {
		ranks_sleep(0.2);
		scene->acted = ranks_now();
		raise(SIGKILL);
	}
	if (rank % 2) {
		ranks_record(&scene->part[rank], part, kcr_barrier(part));
	} else {
		for (i = 0; i < 5 && !err; i++) {
			if (work(rank, part, i))
				return 1;
			ranks_sleep(0.1);
		}
	}
	ranks_record(&scene->whole[rank], w, kcr_barrier(w));
	if (rank % 2 == 0 && work(rank, part, 20))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(w));
	if (rank % 2 == 0 && work(rank, part, 30))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(part));
	return 0;
}

TEST_F_TIMEOUT(split, one_dies, 60)
{
	struct scene *scene = self->scene;
	int r;

	ASSERT_EQ(1, ranks_run(RANKS, one_dies, scene, 50));
	/* By its rank in the part, which is 1. */
	EXPECT_EQ(-ECONNRESET, scene->part[1].err);
	EXPECT_NE(NULL, strstr(scene->part[1].said, "rank 1 died"));
	EXPECT_LT(scene->part[1].at - scene->acted, SOON);
	for (r = 0; r < RANKS; r++) {
		if (r == 3)
			continue;
		EXPECT_EQ(-ECONNRESET, scene->whole[r].err);
		EXPECT_NE(NULL, strstr(scene->whole[r].said, "rank 3 died"));
	}
}

/* One fails its part on purpose: the whole and the other part go on. */
static int one_aborts(int rank, void *arg)
{
	struct kcr_world *w, *part;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_OK(w, kcr_world_split(w, rank % 2, 0, &part));
	if (rank == 1)
		RANK_OK(part, kcr_abort(part, ENOTUNIQ));
	if (rank == 3)
		RANK_GIVES(-ENOTUNIQ, part, kcr_barrier(part));
	if (rank % 2 == 0 && work(rank, part, 5))
		return 1;
	if (work(rank, w, 6))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(part));
	/* And a part can be made again. */
	RANK_OK(w, kcr_world_split(w, rank % 2, 0, &part));
	if (work(rank, part, rank % 2))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(part));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(split, one_aborts, 60)
{
	ASSERT_EQ(0, ranks_run(RANKS, one_aborts, NULL, 50));
}

/* Also when the split cannot be: it is one of the whole's operations. */
static int one_dies_before(int rank, void *arg)
{
	struct scene *scene = arg;
	struct kcr_world *w, *part;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	ranks_meet(&scene->meeting, RANKS);
	if (rank == 3) {
		ranks_sleep(0.2);
		scene->acted = ranks_now();
		raise(SIGKILL);
	}
	ranks_record(&scene->whole[rank], w, kcr_world_split(w, rank % 2, 0, &part));
	RANK_TRUE(!part);
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(split, one_dies_before, 60)
{
	struct scene *scene = self->scene;
	int r;

	ASSERT_EQ(1, ranks_run(RANKS, one_dies_before, scene, 50));
	for (r = 0; r < RANKS; r++) {
		if (r == 3)
			continue;
		EXPECT_EQ(-ECONNRESET, scene->whole[r].err);
		EXPECT_NE(NULL, strstr(scene->whole[r].said, "rank 3 died"));
		EXPECT_LT(scene->whole[r].at - scene->acted, SOON);
	}
}

/* Descriptors and mappings are as many after many splits as after a few. */
static int leaks(int rank, void *arg)
{
	long rounds = ((struct scene *)arg)->rounds, i;
	int descriptors = 0, mappings = 0;
	struct kcr_world *w, *part;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < rounds + 3; i++) {
		if (i == 3) {
			descriptors = ranks_descriptors();
			mappings = ranks_mappings();
		}
		RANK_OK(w, kcr_world_split(w, rank % 2 - !(rank % 3), 0, &part));
		if (part && work(rank, part, i))
			return 1;
		RANK_OK(NULL, kcr_world_destroy(part));
	}
	if (ranks_descriptors() != descriptors || ranks_mappings() != mappings)
		RANK_FAIL("%d descriptors and %d mappings became %d and %d",
			  descriptors, mappings, ranks_descriptors(),
			  ranks_mappings());
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(split, leaks_nothing, 100)
{
	self->scene->rounds = ranks_are_slow() ? 10 : 100;
	ASSERT_EQ(0, ranks_run(RANKS, leaks, self->scene, 80));
}

TEST_HARNESS_MAIN
