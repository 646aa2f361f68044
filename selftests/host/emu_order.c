// SPDX-License-Identifier: GPL-2.0
/*
 * The order in which messages arrive, and the ranks call, never enters the bits
 *
 * Eight collectives of all kinds are on their way at once. KCR_TEST_SCALE
 * makes as many times more of the seeds.
 */
#include "kselftest_harness.h"
#include "emu.h"

#define MOST_RANKS	5
#define COUNT		37
#define FLIGHT		8

/* A world with eight collectives of each rank, and what they must give. */
struct mix {
	struct kcr_emu *emu;
	int ranks;
	double x[FLIGHT][MOST_RANKS][MOST_RANKS * COUNT];	/* sent */
	double y[FLIGHT][MOST_RANKS][MOST_RANKS * COUNT];	/* received */
	double want[FLIGHT][MOST_RANKS * COUNT];	/* the fold of all of x */
	int flag[MOST_RANKS];
	struct kcr_request *r[MOST_RANKS][FLIGHT];
};

static void mix_make(struct __test_metadata *_metadata, struct mix *m, int ranks,
		     enum kcr_algo algo)
{
	struct kcr_config config = emu_config(ranks, algo, 96);
	const void *in[MOST_RANKS];
	int i, rank;

	config.board_depth = 2 + ranks % 2;
	ASSERT_EQ(0, kcr_emu_create_config(&config, &m->emu));
	m->ranks = ranks;
	for (i = 0; i < FLIGHT; i++) {
		for (rank = 0; rank < ranks; rank++) {
			data_fill(m->x[i][rank], MOST_RANKS * COUNT,
				  i % 2 ? KCR_F64 : KCR_F32, rank, i);
			in[rank] = m->x[i][rank];
		}
		ASSERT_EQ(0, kcr_reference_fold(in, ranks, m->want[i],
						ranks * COUNT,
						i % 2 ? KCR_F64 : KCR_F32, KCR_SUM));
		if (ranks > 2)
			ASSERT_EQ(1, emu_order_matters(in, ranks, COUNT,
						       i % 2 ? KCR_F64 : KCR_F32,
						       KCR_SUM));
	}
}

/* Collective number @i, on one rank. */
static int mix_issue(struct mix *m, int i, int rank)
{
	struct kcr_world *w = kcr_emu_world(m->emu, rank);
	struct kcr_request **r = &m->r[rank][i];
	double *x = m->x[i][rank], *y = m->y[i][rank];

	switch (i) {
	case 0:
	case 7:
		return kcr_iallreduce(w, x, y, COUNT, i % 2 ? KCR_F64 : KCR_F32,
				      KCR_SUM, r);
	case 1:
		return kcr_ireduce_scatter(w, x, y, COUNT, KCR_F64, KCR_SUM, r);
	case 2:
		memcpy(y, x, COUNT * sizeof(float));
		return kcr_ibroadcast(w, y, COUNT, KCR_F32, m->ranks / 2, r);
	case 3:
		/* In place. */
		memcpy(y, x, COUNT * sizeof(double));
		return kcr_iallreduce(w, y, y, COUNT, KCR_F64, KCR_SUM, r);
	case 4:
		return kcr_iany(w, rank == m->ranks - 1, &m->flag[rank], r);
	case 5:
		return kcr_iallgather(w, x, y, COUNT, KCR_F64, r);
	default:
		return kcr_ibarrier(w, r);
	}
}

static int mix_is_right(const struct mix *m, int i, int rank)
{
	const double *y = m->y[i][rank];
	int k;

	switch (i) {
	case 1:
		return !memcmp(y, m->want[i] + rank * COUNT, COUNT * sizeof(double));
	case 2:
		return !memcmp(y, m->x[i][m->ranks / 2], COUNT * sizeof(float));
	case 4:
		return m->flag[rank] == 1;
	case 5:
		for (k = 0; k < m->ranks; k++)
			if (memcmp(y + k * COUNT, m->x[i][k], COUNT * sizeof(double)))
				return 0;
		return 1;
	case 6:
		return 1;
	default:
		return !memcmp(y, m->want[i], COUNT * (i % 2 ? sizeof(double) :
							       sizeof(float)));
	}
}

/* All of it once; ranks are interleaved by @seed, each in its own order. */
static void mix_run(struct __test_metadata *_metadata, struct mix *m, uint64_t seed)
{
	int next[MOST_RANKS] = { 0 }, left = m->ranks * FLIGHT, rank, i, done;

	memset(m->y, 0, sizeof(m->y));
	memset(m->flag, 0, sizeof(m->flag));
	while (left) {
		rank = data_random(&seed) % m->ranks;
		if (next[rank] == FLIGHT)
			continue;
		ASSERT_EQ(0, mix_issue(m, next[rank]++, rank));
		left--;
	}
	/* Some of them are looked at first. */
	ASSERT_EQ(0, kcr_test(m->r[seed % m->ranks][seed % FLIGHT], &done));
	for (i = 0; i < FLIGHT; i++)
		for (rank = 0; rank < m->ranks; rank++) {
			ASSERT_EQ(0, kcr_wait(m->r[rank][(i + seed) % FLIGHT])) {
				TH_LOG("%s", kcr_error(kcr_emu_world(m->emu, rank)));
			}
		}
	for (i = 0; i < FLIGHT; i++)
		for (rank = 0; rank < m->ranks; rank++)
			ASSERT_EQ(1, mix_is_right(m, i, rank)) {
				TH_LOG("W %d, seed %llu, collective %d, rank %d",
				       m->ranks, (unsigned long long)seed, i, rank);
			}
}

FIXTURE(order) {
};

FIXTURE_SETUP(order)
{
}

FIXTURE_TEARDOWN(order)
{
}

/* The long form takes minutes: a million seeds. */
TEST_F_TIMEOUT(order, thousands_of_seeds, 1800)
{
	static struct mix m;
	double since = emu_now();
	unsigned long rounds = 0;
	uint64_t seed, seeds = 800 * emu_scale(105);
	int ranks, algo;

	for (ranks = 2; ranks <= MOST_RANKS; ranks++)
		for (algo = KCR_ALGO_DIRECT; algo <= KCR_ALGO_CHAIN; algo++) {
			mix_make(_metadata, &m, ranks, algo);
			for (seed = 0; seed < seeds; seed++) {
				ASSERT_EQ(0, kcr_emu_shuffle(m.emu, seed));
				mix_run(_metadata, &m, seed * 1000);
				rounds++;
			}
			kcr_emu_destroy(m.emu);
		}
	ASSERT_LE(3000, rounds);
	emu_report("shuffled mixes of eight", rounds, since, 5);
}

static int next_permutation(int p[], int n)
{
	int i = n - 1, j = n - 1, k, t;

	while (i > 0 && p[i - 1] > p[i])
		i--;
	if (!i)
		return 0;
	while (p[j] < p[i - 1])
		j--;
	t = p[i - 1];
	p[i - 1] = p[j];
	p[j] = t;
	for (k = n - 1; i < k; i++, k--) {
		t = p[i];
		p[i] = p[k];
		p[k] = t;
	}
	return 1;
}

TEST_F(order, every_order_of_four)
{
	static struct mix m;
	int algo, order[4], rank, n;

	for (algo = KCR_ALGO_DIRECT; algo <= KCR_ALGO_CHAIN; algo++) {
		mix_make(_metadata, &m, 4, algo);
		for (rank = 0; rank < 4; rank++)
			order[rank] = rank;
		n = 0;
		do {
			ASSERT_EQ(0, kcr_emu_order(m.emu, order, 4));
			mix_run(_metadata, &m, ++n);
		} while (next_permutation(order, 4));
		ASSERT_EQ(24, n);
		kcr_emu_destroy(m.emu);
	}
}

static void delay(struct __test_metadata *_metadata, struct mix *m, int from,
		  int to, uint64_t nth, int by)
{
	ASSERT_EQ(0, kcr_emu_rule(m->emu, KCR_EMU_DELAY, from, to, nth, by));
}

/* N11: every message of all is late, by as much as chance wants. */
TEST_F(order, every_message_is_late)
{
	static struct mix m;
	double since = emu_now();
	int from, to, algo, round;
	uint64_t nth, state = 6;

	for (algo = KCR_ALGO_DIRECT; algo <= KCR_ALGO_CHAIN; algo++)
		for (round = 0; round < 10; round++) {
			mix_make(_metadata, &m, 2 + round % 4, algo);
			for (from = 0; from < m.ranks; from++)
				for (to = 0; to < m.ranks; to++)
					for (nth = 1; nth <= 60 && from != to; nth++)
						delay(_metadata, &m, from, to, nth,
						      data_random(&state) % 50);
			if (round % 2)
				kcr_emu_shuffle(m.emu, round);
			mix_run(_metadata, &m, round);
			kcr_emu_destroy(m.emu);
		}
	emu_report("delays on every message", 30, since, 1);
}

/* Delays that can only end together: nothing else is left to be delivered. */
TEST_F(order, all_wait_for_others)
{
	static struct mix m;
	int rank;

	mix_make(_metadata, &m, 3, KCR_ALGO_OWNER);
	for (rank = 0; rank < 3; rank++)
		ASSERT_EQ(0, kcr_emu_rule(m.emu, KCR_EMU_DELAY, rank,
					  (rank + 1) % 3, 1, INT32_MAX));
	mix_run(_metadata, &m, 1);
	mix_run(_metadata, &m, 2);
	kcr_emu_destroy(m.emu);
}

TEST_F(order, what_is_refused)
{
	static const struct {
		int order[4], n;
		const char *why;
	} orders[] = {
		{ { 0, 1, 2, 3 }, 3, "n is 3, must be 4, the ranks" },
		{ { 0, 1, 2, 3 }, 5, "n is 5, must be 4, the ranks" },
		{ { 0, 1, 2, 3 }, -1, "n is -1, must be 4, the ranks" },
		{ { 0, 1, 2, 2 }, 4, "order[3] is 2, must be each of 0 to 3 once" },
		{ { 4, 1, 2, 3 }, 4, "order[0] is 4, must be each of 0 to 3 once" },
		{ { 0, -1, 2, 3 }, 4, "order[1] is -1, must be each of 0 to 3 once" },
	};
	static const struct {
		int rule, from, to;
		uint64_t nth;
		int value;
	} rules[] = {
		{ 3, 0, 1, 1, 1 }, { -1, 0, 1, 1, 1 },
		{ KCR_EMU_DROP, 0, 0, 1, 0 }, { KCR_EMU_DROP, -1, 0, 1, 0 },
		{ KCR_EMU_DROP, 0, 4, 1, 0 }, { KCR_EMU_DROP, 4, 0, 1, 0 },
		{ KCR_EMU_DROP, 0, -1, 1, 0 }, { KCR_EMU_DROP, 0, 1, 0, 0 },
		{ KCR_EMU_DELAY, 0, 1, 0, 5 }, { KCR_EMU_DELAY, 0, 1, 1, -1 },
		{ KCR_EMU_FAIL, 0, 1, 1, 0 }, { KCR_EMU_FAIL, 0, 1, 1, -EIO },
		{ KCR_EMU_FAIL, 0, 1, 1, 4096 },
	};
	static struct mix m;
	int i;

	mix_make(_metadata, &m, 4, KCR_ALGO_AUTO);
	for (i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		EXPECT_EQ(-EINVAL, kcr_emu_order(m.emu, orders[i].order,
						 orders[i].n));
		EXPECT_STREQ(orders[i].why, kcr_error(NULL));
	}
	EXPECT_EQ(-EINVAL, kcr_emu_order(NULL, orders[0].order, 4));
	EXPECT_EQ(-EINVAL, kcr_emu_order(m.emu, NULL, 4));
	EXPECT_EQ(-EINVAL, kcr_emu_shuffle(NULL, 1));
	EXPECT_EQ(-EINVAL, kcr_emu_rule(NULL, KCR_EMU_DROP, 0, 1, 1, 0));
	for (i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		EXPECT_EQ(-EINVAL, kcr_emu_rule(m.emu, rules[i].rule,
						rules[i].from, rules[i].to,
						rules[i].nth, rules[i].value)) {
			TH_LOG("rule %d", i);
		}
	/* None of it has had an effect. */
	mix_run(_metadata, &m, 1);
	kcr_emu_destroy(m.emu);
}

TEST_F(order, emulators_that_cannot_be)
{
	static const int sizes[] = { 0, -1, KCR_RANKS_MAX + 1, INT32_MAX, INT32_MIN };
	struct kcr_config config = emu_config(2, KCR_ALGO_AUTO, 64);
	struct kcr_emu *emu;
	int i;

	for (i = 0; i < 5; i++) {
		emu = (void *)1;
		EXPECT_EQ(-EINVAL, kcr_emu_create(sizes[i], &emu));
		EXPECT_EQ(NULL, emu);
		EXPECT_NE(NULL, strstr(kcr_error(NULL), "size is "));
	}
	EXPECT_EQ(-EINVAL, kcr_emu_create(2, NULL));
	EXPECT_EQ(-EINVAL, kcr_emu_create_config(&config, NULL));
	config.lane_bytes = 63;
	EXPECT_EQ(-EINVAL, kcr_emu_create_config(&config, &emu));
	EXPECT_STREQ("lane_bytes is 63, must be 64 to 16777216", kcr_error(NULL));
	config = emu_config(2, 4, 64);
	EXPECT_EQ(-EINVAL, kcr_emu_create_config(&config, &emu));
	config = emu_config(2, KCR_ALGO_AUTO, 64);
	config.struct_size--;
	EXPECT_EQ(-EINVAL, kcr_emu_create_config(&config, &emu));
	EXPECT_EQ(NULL, emu);
	/* Rank and rendezvous are not used: whatever they are. */
	config = emu_config(2, KCR_ALGO_AUTO, 64);
	config.rank = 77;
	config.local_rank = -1;
	config.local_size = 1000;
	config.rendezvous = "nonsense";
	ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
	EXPECT_EQ(1, kcr_rank(kcr_emu_world(emu, 1)));
	EXPECT_EQ(1, kcr_local_rank(kcr_emu_world(emu, 1)));
	EXPECT_EQ(2, kcr_local_size(kcr_emu_world(emu, 1)));
	EXPECT_STREQ("emulated", kcr_link_name(kcr_emu_world(emu, 0)));
	kcr_emu_destroy(emu);
	/* From the environment alone, as for a world. */
	setenv("KCR_SIZE", "3", 1);
	ASSERT_EQ(0, kcr_emu_create_config(NULL, &emu));
	EXPECT_EQ(3, kcr_size(kcr_emu_world(emu, 0)));
	kcr_emu_destroy(emu);
}

TEST_HARNESS_MAIN
