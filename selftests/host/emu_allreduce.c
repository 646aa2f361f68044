// SPDX-License-Identifier: GPL-2.0
/*
 * Allreduce over the emulator: every type, operation, algorithm and number of
 * ranks gives the oracle's bits on every rank
 *
 * Slots are small, so that few elements make many segments. Every rank's
 * buffers have guards, and are off the natural alignment by elements.
 */
#include "kselftest_harness.h"
#include "emu.h"

#define MOST_RANKS	9

static const enum kcr_algo algos[] = {
	KCR_ALGO_AUTO, KCR_ALGO_DIRECT, KCR_ALGO_OWNER, KCR_ALGO_CHAIN,
};

#define ALGOS	4

/* Adds a count to a list, once, if it is not too large. */
static size_t add_count(size_t list[], size_t n, size_t most, size_t count)
{
	size_t i;

	if (count > most)
		return n;
	for (i = 0; i < n; i++)
		if (list[i] == count)
			return n;
	list[n] = count;
	return n + 1;
}

/* One more, one less. */
static size_t add_around(size_t list[], size_t n, size_t most, size_t count)
{
	n = add_count(list, n, most, count);
	n = add_count(list, n, most, count + 1);
	return count ? add_count(list, n, most, count - 1) : n;
}

#define LIST_MOST	128

/*
 * Counts at which something changes: so many segments are full, or so many
 * in each shard, or a depth of slots; @room is in elements.
 */
static size_t borders(size_t list[LIST_MOST], size_t room, int ranks, size_t most)
{
	static const size_t segments[] = { 1, 2, 3, 4, 5, 7 };
	size_t n = 0, i;

	for (i = 0; i < sizeof(segments) / sizeof(segments[0]); i++) {
		n = add_around(list, n, most, segments[i] * room);
		n = add_around(list, n, most, segments[i] * room * ranks);
	}
	return n;
}

/* The types and operations that there are, @pair of them; 0 when there are no more. */
static int nth_pair(int pair, enum kcr_dtype *dtype, enum kcr_op *op)
{
	int d, o;

	for (d = 0; d < KCR_DTYPES; d++)
		for (o = 0; o < KCR_OPS; o++)
			if (data_is_supported(d, o) && !pair--) {
				*dtype = d;
				*op = o;
				return 1;
			}
	return 0;
}

/* Few elements: some ranks' shards are empty. */
static unsigned long few_elements(struct __test_metadata *_metadata, int ranks,
				  enum kcr_algo algo)
{
	struct kcr_config config = emu_config(ranks, algo, 64);
	struct emu_call c = { .ranks = ranks };
	unsigned long rounds = 0;
	int pair, variant;

	ASSERT_EQ(0, kcr_emu_create_config(&config, &c.emu));
	for (pair = 0; nth_pair(pair, &c.dtype, &c.op); pair++)
		for (c.count = 0; c.count <= 2 * ranks; c.count++)
			for (variant = 0; variant < 2; variant++) {
				c.in_place = variant;
				c.misaligned = (c.count + pair + variant) % 4;
				c.seed = ++rounds;
				ASSERT_EQ(0, emu_allreduce(&c, NULL));
			}
	kcr_emu_destroy(c.emu);
	return rounds;
}

TEST(few_elements_of_everything)
{
	double since = emu_now();
	unsigned long rounds = 0;
	int ranks, i;

	for (ranks = 1; ranks <= MOST_RANKS; ranks++)
		for (i = 0; i < ALGOS; i++)
			rounds += few_elements(_metadata, ranks, algos[i]);
	emu_report("few elements", rounds, since, 6);
}

/* Around every border; the operation changes from call to call. */
static unsigned long around_borders(struct __test_metadata *_metadata,
				    const struct kcr_config *config)
{
	struct emu_call c = { .ranks = config->size };
	size_t list[LIST_MOST], n, i, room;
	unsigned int slot = config->lane_bytes < config->board_bytes ?
			    config->lane_bytes : config->board_bytes;
	unsigned long rounds = 0;
	int dtype, op = 0;

	ASSERT_EQ(0, kcr_emu_create_config(config, &c.emu));
	for (dtype = 0; dtype < KCR_DTYPES; dtype++) {
		room = (slot - 32) / kcr_dtype_size(dtype);
		n = borders(list, room, c.ranks, 2000);
		/* Partial results of 16-bit floats are in f32. */
		if (dtype == KCR_F16 || dtype == KCR_BF16)
			n = add_around(list, n, 2000, room / 2 * 3);
		n = add_around(list, n, 2000,
			       config->direct_max / kcr_dtype_size(dtype));
		for (i = 0; i < n; i++) {
			do {
				op = (op + 1) % KCR_OPS;
			} while (!data_is_supported(dtype, op));
			c.dtype = dtype;
			c.op = op;
			c.count = list[i];
			c.seed = ++rounds;
			c.in_place = rounds % 2;
			c.misaligned = rounds % 3;
			ASSERT_EQ(0, emu_allreduce(&c, NULL));
		}
	}
	kcr_emu_destroy(c.emu);
	return rounds;
}

static void borders_of(struct __test_metadata *_metadata, enum kcr_algo algo,
		       const char *name)
{
	/* Lanes, boards; 65 and 103 have room for no whole number of elements. */
	static const unsigned int slots[][2] = {
		{ 64, 64 }, { 103, 65 }, { 128, 512 }, { 512, 128 },
	};
	double since = emu_now();
	unsigned long rounds = 0;
	int ranks, i;

	for (ranks = 1; ranks <= MOST_RANKS; ranks++)
		for (i = 0; i < 4; i++) {
			struct kcr_config config = emu_config(ranks, algo,
							      slots[i][0]);

			config.board_bytes = slots[i][1];
			config.lane_depth = 2 + (ranks + i) % 3;
			config.board_depth = 2 + ranks % 2;
			config.direct_max = 256;
			rounds += around_borders(_metadata, &config);
		}
	emu_report(name, rounds, since, 5);
}

TEST(borders_of_auto)
{
	borders_of(_metadata, KCR_ALGO_AUTO, "borders, auto");
}

TEST(borders_of_direct)
{
	borders_of(_metadata, KCR_ALGO_DIRECT, "borders, direct");
}

TEST(borders_of_owner)
{
	borders_of(_metadata, KCR_ALGO_OWNER, "borders, owner");
}

TEST(borders_of_chain)
{
	borders_of(_metadata, KCR_ALGO_CHAIN, "borders, chain");
}

static int depends_on_order(enum kcr_dtype dtype, enum kcr_op op)
{
	return dtype >= KCR_F16 && op != KCR_MIN && op != KCR_MAX;
}

/* What the tests above compare would differ if the order were another. */
TEST(data_shows_the_order)
{
	struct kcr_config config;
	struct emu_call c;
	int pair, matters;

	for (c.ranks = 3; c.ranks <= MOST_RANKS; c.ranks++) {
		config = emu_config(c.ranks, KCR_ALGO_OWNER, 256);
		ASSERT_EQ(0, kcr_emu_create_config(&config, &c.emu));
		for (pair = 0; nth_pair(pair, &c.dtype, &c.op); pair++) {
			c.count = 500;
			c.seed = pair;
			c.in_place = 0;
			c.misaligned = 0;
			ASSERT_EQ(0, emu_allreduce(&c, &matters));
			/* A product of f16 has 33 bits, rounded to 11 at last. */
			if (c.dtype == KCR_F16 && c.op == KCR_PROD)
				continue;
			ASSERT_EQ(depends_on_order(c.dtype, c.op), matters) {
				emu_describe(&c, "the order matters:", 0, matters);
			}
		}
		kcr_emu_destroy(c.emu);
	}
}

/* As it is without a word in the configuration: slots of 64 KiB, W = 2, 3. */
TEST(defaults)
{
	static const size_t counts[] = {
		8191, 8192, 8193, 16375, 16376, 16377, 49129, 100003,
	};
	struct kcr_config config;
	struct emu_call c = { .dtype = KCR_F32, .op = KCR_SUM };
	int i, matters;

	for (c.ranks = 2; c.ranks <= 3; c.ranks++)
		for (i = 0; i < 8 * ALGOS; i++) {
			kcr_config_init(&config);
			config.size = c.ranks;
			config.algo = algos[i % ALGOS];
			c.count = counts[i / ALGOS];
			c.seed = i;
			c.in_place = i % 2;
			c.misaligned = i % 3;
			ASSERT_EQ(0, kcr_emu_create_config(&config, &c.emu));
			ASSERT_EQ(0, emu_allreduce(&c, &matters));
			ASSERT_EQ(c.ranks > 2, matters);
			kcr_emu_destroy(c.emu);
		}
}

TEST_HARNESS_MAIN
