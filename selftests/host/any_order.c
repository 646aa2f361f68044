// SPDX-License-Identifier: GPL-2.0
/*
 * The contract in a world's configuration: what any-order leaves open, and what
 * it does not; what a rank can be asked about it
 */
#include "kselftest_harness.h"
#include "emu.h"

#define MOST_RANKS	5
#define COUNT		203
#define RESULTS		256

/* Hashes that have been seen. */
struct seen {
	uint64_t hash[RESULTS];
	int n;
};

static void note(struct seen *s, uint64_t hash)
{
	int i;

	for (i = 0; i < s->n; i++)
		if (s->hash[i] == hash)
			return;
	if (s->n < RESULTS)
		s->hash[s->n++] = hash;
}

struct run {
	struct kcr_emu *emu;
	int ranks;
	enum kcr_dtype dtype;
	enum kcr_op op;
	const void *x[MOST_RANKS];
	unsigned char want[COUNT * 8];
};

static void make(struct __test_metadata *_metadata, struct run *run, int ranks,
		 enum kcr_algo algo, enum kcr_contract contract,
		 enum kcr_dtype dtype, enum kcr_op op)
{
	static uint64_t x[MOST_RANKS][COUNT];
	struct kcr_config config = emu_config(ranks, algo, 256);
	int rank;

	config.contract = contract;
	run->ranks = ranks;
	run->dtype = dtype;
	run->op = op;
	for (rank = 0; rank < ranks; rank++) {
		emu_fill_from(x[rank], 0, COUNT, dtype, rank, 9);
		run->x[rank] = x[rank];
	}
	ASSERT_EQ(0, kcr_reference_fold(run->x, ranks, run->want, COUNT, dtype, op));
	ASSERT_EQ(0, kcr_emu_create_config(&config, &run->emu));
}

/*
 * One allreduce, of @count elements. All ranks must have the same bits; returns
 * their hash, and whether they are those of the ascending fold.
 */
static uint64_t once(struct __test_metadata *_metadata, struct run *run,
		     size_t count, int in_place, int *is_ascending)
{
	static uint64_t y[MOST_RANKS][COUNT];
	size_t size = kcr_dtype_size(run->dtype);
	struct kcr_request *r[MOST_RANKS];
	int rank;

	for (rank = 0; rank < run->ranks; rank++) {
		memcpy(y[rank], run->x[rank], count * size);
		ASSERT_EQ(0, kcr_iallreduce(kcr_emu_world(run->emu, rank),
					    in_place ? y[rank] : run->x[rank],
					    y[rank], count, run->dtype, run->op,
					    &r[rank]));
	}
	for (rank = 0; rank < run->ranks; rank++)
		ASSERT_EQ(0, kcr_wait(r[rank]));
	for (rank = 1; rank < run->ranks; rank++)
		ASSERT_EQ(0, memcmp(y[rank], y[0], count * size)) {
			TH_LOG("rank %d has other bits than rank 0", rank);
		}
	if (is_ascending)
		*is_ascending = !memcmp(y[0], run->want, count * size);
	return data_hash(y[0], count * size, 0);
}

/* The next permutation in lexical order; 0 after the last. */
static int permute(int p[], int n)
{
	int i = n - 2, j = n - 1, k, t;

	while (i >= 0 && p[i] > p[i + 1])
		i--;
	if (i < 0)
		return 0;
	while (p[j] < p[i])
		j--;
	t = p[i];
	p[i] = p[j];
	p[j] = t;
	for (j = i + 1, k = n - 1; j < k; j++, k--) {
		t = p[j];
		p[j] = p[k];
		p[k] = t;
	}
	return 1;
}

/* Every order of delivery. Returns how many different results there were. */
static int all_orders(struct __test_metadata *_metadata, struct run *run,
		      size_t count, int *ascending, int *rounds)
{
	int order[MOST_RANKS], rank, is_ascending;
	struct seen seen = { .n = 0 };

	for (rank = 0; rank < run->ranks; rank++)
		order[rank] = rank;
	*ascending = 0;
	*rounds = 0;
	do {
		ASSERT_EQ(0, kcr_emu_order(run->emu, order, run->ranks));
		note(&seen, once(_metadata, run, count, *rounds % 2,
				 &is_ascending));
		*ascending += is_ascending;
		++*rounds;
	} while (permute(order, run->ranks));
	return seen.n;
}

static const struct {
	enum kcr_dtype dtype;
	enum kcr_op op;
} reductions[] = {
	{ KCR_F32, KCR_SUM }, { KCR_F64, KCR_SUM }, { KCR_F16, KCR_SUM },
	{ KCR_BF16, KCR_SUM }, { KCR_F32, KCR_PROD }, { KCR_F64, KCR_MEAN },
	{ KCR_BF16, KCR_MEAN },
};

/* The owner takes what comes: this is what the tests of fixed-order can fail on. */
TEST(owner_folds_as_they_arrive)
{
	int ranks, i, results, ascending, rounds;
	double since = emu_now();
	struct run run;

	for (ranks = 3; ranks <= MOST_RANKS; ranks++)
		for (i = 0; i < sizeof(reductions) / sizeof(reductions[0]); i++) {
			make(_metadata, &run, ranks, KCR_ALGO_OWNER, KCR_ANY_ORDER,
			     reductions[i].dtype, reductions[i].op);
			results = all_orders(_metadata, &run, COUNT, &ascending,
					     &rounds);
			EXPECT_LE(2, results) {
				TH_LOG("%s of %s, W %d",
				       kcr_op_name(reductions[i].op),
				       kcr_dtype_name(reductions[i].dtype), ranks);
			}
			EXPECT_GT(rounds, ascending);
			kcr_emu_destroy(run.emu);
		}
	emu_report("any-order, every order", rounds, since, 1);
}

/* Everything else is as under fixed-order. */
TEST(the_rest_stays_ascending)
{
	int ranks, i, algo, ascending, rounds;
	struct run run;

	for (ranks = 2; ranks <= 4; ranks++)
		for (i = 0; i < sizeof(reductions) / sizeof(reductions[0]); i++)
			for (algo = KCR_ALGO_DIRECT; algo <= KCR_ALGO_CHAIN; algo++) {
				make(_metadata, &run, ranks, algo, KCR_ANY_ORDER,
				     reductions[i].dtype, reductions[i].op);
				if (algo != KCR_ALGO_OWNER) {
					EXPECT_EQ(1, all_orders(_metadata, &run,
								COUNT, &ascending,
								&rounds));
					EXPECT_EQ(rounds, ascending);
				}
				/* Fewer elements than ranks go direct. */
				EXPECT_EQ(1, all_orders(_metadata, &run, ranks - 1,
							&ascending, &rounds));
				EXPECT_EQ(rounds, ascending);
				kcr_emu_destroy(run.emu);
			}
}

/* Fixed-order under the same orders: one result. */
TEST(fixed_order_is_one)
{
	int ranks, i, ascending, rounds;
	struct run run;

	for (ranks = 2; ranks <= MOST_RANKS; ranks++)
		for (i = 0; i < sizeof(reductions) / sizeof(reductions[0]); i++) {
			make(_metadata, &run, ranks, KCR_ALGO_OWNER, KCR_FIXED_ORDER,
			     reductions[i].dtype, reductions[i].op);
			EXPECT_EQ(1, all_orders(_metadata, &run, COUNT, &ascending,
						&rounds));
			EXPECT_EQ(rounds, ascending);
			kcr_emu_destroy(run.emu);
		}
}

/* Where the order cannot matter, any-order gives the oracle's bits. */
TEST(any_order_of_what_has_none)
{
	int dtype, op, seed, is_ascending;
	struct run run;

	for (dtype = 0; dtype < KCR_DTYPES; dtype++)
		for (op = 0; op < KCR_OPS; op++) {
			if (!data_is_supported(dtype, op) ||
			    (dtype >= KCR_F16 && op != KCR_MIN && op != KCR_MAX))
				continue;
			make(_metadata, &run, MOST_RANKS, KCR_ALGO_OWNER,
			     KCR_ANY_ORDER, dtype, op);
			for (seed = 0; seed < 5; seed++) {
				kcr_emu_shuffle(run.emu, seed);
				once(_metadata, &run, COUNT, seed % 2,
				     &is_ascending);
				EXPECT_EQ(1, is_ascending) {
					TH_LOG("%s of %s", kcr_op_name(op),
					       kcr_dtype_name(dtype));
				}
			}
			kcr_emu_destroy(run.emu);
		}
}

/* Shuffled, each segment of each shard may have an order of its own. */
TEST(shuffled)
{
	struct seen seen = { .n = 0 }, again = { .n = 0 };
	struct run run;
	int seed, i;

	make(_metadata, &run, 4, KCR_ALGO_OWNER, KCR_ANY_ORDER, KCR_F32, KCR_SUM);
	for (seed = 0; seed < 200; seed++) {
		kcr_emu_shuffle(run.emu, seed);
		note(&seen, once(_metadata, &run, COUNT, seed % 2, NULL));
	}
	EXPECT_LT(24, seen.n);
	/* The same seeds give the same bits: it is the order that decides. */
	for (seed = 0; seed < 200; seed++) {
		kcr_emu_shuffle(run.emu, seed);
		note(&again, once(_metadata, &run, COUNT, seed % 2, NULL));
	}
	ASSERT_EQ(seen.n, again.n);
	for (i = 0; i < seen.n; i++)
		EXPECT_EQ(seen.hash[i], again.hash[i]);
	kcr_emu_destroy(run.emu);
}

/* Reduce-scatter's owners are the same ones. */
TEST(reduce_scatter)
{
	static float x[3][3 * COUNT], y[3][COUNT];
	struct kcr_config config = emu_config(3, KCR_ALGO_AUTO, 128);
	int order[] = { 0, 1, 2 }, rank;
	struct seen seen = { .n = 0 };
	struct kcr_request *r[3];
	struct kcr_emu *emu;

	config.contract = KCR_ANY_ORDER;
	ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
	for (rank = 0; rank < 3; rank++)
		data_fill(x[rank], 3 * COUNT, KCR_F32, rank, 2);
	do {
		ASSERT_EQ(0, kcr_emu_order(emu, order, 3));
		for (rank = 0; rank < 3; rank++)
			ASSERT_EQ(0, kcr_ireduce_scatter(kcr_emu_world(emu, rank),
							 x[rank], y[rank], COUNT,
							 KCR_F32, KCR_SUM, &r[rank]));
		for (rank = 0; rank < 3; rank++)
			ASSERT_EQ(0, kcr_wait(r[rank]));
		note(&seen, data_hash(y, sizeof(y), 0));
	} while (permute(order, 3));
	EXPECT_LE(2, seen.n);
	kcr_emu_destroy(emu);
}

TEST(in_words)
{
	struct kcr_config config = emu_config(7, KCR_ALGO_AUTO, 64);
	struct kcr_emu *emu;
	struct kcr_world *w;

	config.seed = 0xfedcba9876543210ull;
	ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
	EXPECT_STREQ("fixed-order fold=1 size=7", kcr_contract(kcr_emu_world(emu, 6)));
	EXPECT_EQ(config.seed, kcr_seed(kcr_emu_world(emu, 0)));
	EXPECT_EQ(config.seed, kcr_seed(kcr_emu_world(emu, 6)));
	kcr_emu_destroy(emu);
	config.contract = KCR_ANY_ORDER;
	config.seed = 0;
	config.size = KCR_RANKS_MAX;
	ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
	EXPECT_STREQ("any-order fold=1 size=256", kcr_contract(kcr_emu_world(emu, 255)));
	EXPECT_EQ(0, kcr_seed(kcr_emu_world(emu, 3)));
	kcr_emu_destroy(emu);
	config.size = 1;
	config.rank = 0;
	config.local_size = 1;
	config.seed = 1;
	ASSERT_EQ(0, kcr_world_create(&config, &w));
	EXPECT_STREQ("any-order fold=1 size=1", kcr_contract(w));
	EXPECT_EQ(1, kcr_seed(w));
	kcr_world_destroy(w);
	EXPECT_EQ(0, kcr_seed(NULL));
	EXPECT_STREQ("", kcr_contract(NULL));
	config.contract = 2;
	EXPECT_EQ(-EINVAL, kcr_world_create(&config, &w));
	EXPECT_STREQ("contract is 2, must be 0 to 1", kcr_error(NULL));
}

/* Item k is rank k mod W's: counted one by one, then by what must hold. */
TEST(strided)
{
	uint64_t state = 4;
	size_t count, k, sum, most, least, n;
	size_t seen[64];
	int ranks, r, round;

	for (ranks = 1; ranks <= 64; ranks++) {
		memset(seen, 0, sizeof(seen));
		for (count = 0; count < 300; count++) {
			for (r = 0; r < ranks; r++)
				ASSERT_EQ(seen[r], kcr_strided_count(count, ranks, r));
			seen[count % ranks]++;
		}
	}
	for (round = 0; round < 20000; round++) {
		count = data_random(&state) >> (data_random(&state) % 64);
		ranks = 1 + data_random(&state) % KCR_RANKS_MAX;
		sum = 0;
		most = 0;
		least = SIZE_MAX;
		for (r = 0; r < ranks; r++) {
			n = kcr_strided_count(count, ranks, r);
			sum += n;
			most = n > most ? n : most;
			least = n < least ? n : least;
			/* The last item of the rank is there, and the next is not. */
			if (n)
				ASSERT_GT(count, (n - 1) * ranks + r);
			k = n * ranks + r;
			if (k >= n)
				ASSERT_LE(count, k);
		}
		ASSERT_EQ(count, sum);
		ASSERT_GE(1, most - least);
	}
	EXPECT_EQ(0, kcr_strided_count(10, 0, 0));
	EXPECT_EQ(0, kcr_strided_count(10, 4, 4));
	EXPECT_EQ(0, kcr_strided_count(10, 4, -1));
}

TEST_HARNESS_MAIN
