// SPDX-License-Identifier: GPL-2.0
/*
 * Sizes, cuts and reported cases, over the emulator: nothing about the size of a
 * message, its neighbours or its segments enters the bits of an element
 *
 * The cases are public reports about projects that do this job.
 */
#include "kselftest_harness.h"
#include "emu.h"

#define MOST_RANKS	8

static const enum kcr_algo algos[] = {
	KCR_ALGO_DIRECT, KCR_ALGO_OWNER, KCR_ALGO_CHAIN, KCR_ALGO_AUTO,
};

/* In place, on all ranks of an emulator. Returns the first error. */
static int allreduce(struct kcr_emu *emu, int ranks, void *const x[],
		     size_t count, enum kcr_dtype dtype, enum kcr_op op)
{
	struct kcr_request *r[MOST_RANKS];
	int rank, err, first = 0;

	for (rank = 0; rank < ranks; rank++) {
		err = kcr_iallreduce(kcr_emu_world(emu, rank), x[rank], x[rank],
				     count, dtype, op, &r[rank]);
		if (err)
			return err;
	}
	for (rank = 0; rank < ranks; rank++) {
		err = kcr_wait(r[rank]);
		first = first ?: err;
	}
	return first;
}

/* The ranks' data of @count elements from @first on, reduced; rank @who's bits. */
static void reduced(struct __test_metadata *_metadata, struct kcr_emu *emu,
		    int ranks, size_t first, size_t count, enum kcr_dtype dtype,
		    int who, void *out)
{
	size_t bytes = count * kcr_dtype_size(dtype);
	void *x[MOST_RANKS];
	int rank;

	for (rank = 0; rank < ranks; rank++) {
		x[rank] = malloc(bytes + 1);
		emu_fill_from(x[rank], first, count, dtype, rank, 12);
	}
	ASSERT_EQ(0, allreduce(emu, ranks, x, count, dtype, KCR_SUM));
	memcpy(out, x[who], bytes);
	for (rank = 0; rank < ranks; rank++)
		free(x[rank]);
}

/* N2: of two tensors together as of each alone, 1 .. 10000 elements. */
TEST(split_and_join)
{
	static const enum kcr_dtype dtypes[] = { KCR_F32, KCR_BF16, KCR_F16, KCR_F64 };
	static double whole[10000], parts[10000];
	double since = emu_now();
	struct kcr_config config;
	struct kcr_emu *emu;
	uint64_t state = 2;
	int i, dtype;

	for (i = 0; i < 160; i++) {
		size_t count = 2 + data_random(&state) % 9999;
		size_t cut = 1 + data_random(&state) % (count - 1), size;
		int ranks = 2 + i % 4;

		dtype = dtypes[i / 4 % 4];
		size = kcr_dtype_size(dtype);
		config = emu_config(ranks, algos[i / 16 % 4], 1024);
		config.direct_max = 4000;
		ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
		reduced(_metadata, emu, ranks, 0, count, dtype, i % ranks, whole);
		reduced(_metadata, emu, ranks, 0, cut, dtype, 0, parts);
		reduced(_metadata, emu, ranks, cut, count - cut, dtype, 1,
			(char *)parts + cut * size);
		ASSERT_GT(0, data_differ(whole, parts, count, dtype)) {
			TH_LOG("%s, W %d, %zu cut at %zu", kcr_dtype_name(dtype),
			       ranks, count, cut);
		}
		kcr_emu_destroy(emu);
	}
	emu_report("split and join", 160, since, 2);
}

/* N3: a prefix as the beginning of the whole, across every border. */
TEST(prefixes)
{
	static const enum kcr_dtype dtypes[] = { KCR_BF16, KCR_F16, KCR_F32, KCR_F64 };
	static double whole[3000], part[3000];
	double since = emu_now();
	unsigned long rounds = 0;
	struct kcr_config config;
	struct kcr_emu *emu;
	size_t i, room, n, near;
	int ranks, algo, d;

	for (d = 0; d < 4; d++)
		for (algo = 0; algo < 4; algo++) {
			ranks = 3 + (d + algo) % 2;
			config = emu_config(ranks, algos[algo], 256);
			config.direct_max = 1000;
			room = (256 - 32) / kcr_dtype_size(dtypes[d]);
			ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
			reduced(_metadata, emu, ranks, 0, 3000, dtypes[d], 0, whole);
			for (i = 1; i * room < 3000 - 1; i++)
				for (near = 0; near < 3; near++) {
					n = i * room - 1 + near;
					reduced(_metadata, emu, ranks, 0, n,
						dtypes[d], i % ranks, part);
					ASSERT_GT(0, data_differ(whole, part, n,
								 dtypes[d])) {
						TH_LOG("%s, W %d, algo %d, %zu",
						       kcr_dtype_name(dtypes[d]),
						       ranks, algos[algo], n);
					}
					rounds++;
				}
			kcr_emu_destroy(emu);
		}
	emu_report("prefixes", rounds, since, 3);
}

/* N4: segments of 4 KiB to 2 MiB, slots of several depths: one hash. */
TEST(segments)
{
	const size_t count = 400003;
	static float got[400003], want[400003];
	double since = emu_now();
	unsigned long rounds = 0;
	struct kcr_config config;
	struct kcr_emu *emu;
	unsigned int bytes;
	void *x[3];
	int algo, rank;

	ASSERT_EQ(0, data_expect(want, count, KCR_F32, KCR_SUM, 3, 12));
	for (bytes = 4 << 10; bytes <= 2 << 20; bytes <<= 3)
		for (algo = 0; algo < 3; algo++) {
			config = emu_config(3, algos[algo], bytes);
			config.lane_depth = 2 + rounds % 3;
			ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
			for (rank = 0; rank < 3; rank++) {
				x[rank] = malloc(sizeof(got));
				data_fill(x[rank], count, KCR_F32, rank, 12);
			}
			ASSERT_EQ(0, allreduce(emu, 3, x, count, KCR_F32, KCR_SUM));
			for (rank = 0; rank < 3; rank++) {
				ASSERT_EQ(data_hash(want, sizeof(want), 0),
					  data_hash(x[rank], sizeof(want), 0));
				free(x[rank]);
			}
			kcr_emu_destroy(emu);
			rounds++;
		}
	emu_report("segments", rounds, since, 3);
}

/* Reported cases of few elements: what each rank has, and what all must get. */
static void reported(struct __test_metadata *_metadata, enum kcr_dtype dtype,
		     enum kcr_op op, int ranks, const void *data,
		     const void *want, size_t size)
{
	struct kcr_config config;
	struct kcr_emu *emu;
	char copies[MOST_RANKS][16 * 8];
	void *x[MOST_RANKS];
	int algo, rank, i;

	for (algo = 0; algo < 4; algo++) {
		config = emu_config(ranks, algos[algo], 64);
		ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
		for (rank = 0; rank < ranks; rank++) {
			x[rank] = copies[rank];
			/* So many elements that no algorithm steps aside. */
			for (i = 0; i < 16; i++)
				memcpy(copies[rank] + i * size,
				       (const char *)data + rank * size, size);
		}
		ASSERT_EQ(0, allreduce(emu, ranks, x, 16, dtype, op));
		for (rank = 0; rank < ranks; rank++)
			for (i = 0; i < 16; i++)
				ASSERT_EQ(0, memcmp(copies[rank] + i * size, want,
						    size)) {
					TH_LOG("%s of %s, W %d, algo %d",
					       kcr_op_name(op),
					       kcr_dtype_name(dtype), ranks,
					       algos[algo]);
				}
		kcr_emu_destroy(emu);
	}
}

/* N1: NaN wins wherever it is, in each floating-point type. */
TEST(nan_on_any_rank)
{
	static const uint64_t one[] = { 0x3c00, 0x3f80, 0x3f800000, 0x3ff0000000000000 };
	static const uint64_t nan[] = { 0x7e00, 0x7fc0, 0x7fc00000, 0x7ff8000000000000 };
	unsigned char data[4 * 8];
	int d, where, rank, variant;
	uint64_t bits;
	size_t size;

	for (d = 0; d < 4; d++)
		for (where = 0; where < 4; where++)
			for (variant = 0; variant < 4; variant++) {
				size = kcr_dtype_size(KCR_F16 + d);
				for (rank = 0; rank < 4; rank++) {
					bits = one[d] + rank;
					memcpy(data + rank * size, &bits, size);
				}
				/* With a payload; signalling, and of either sign. */
				bits = nan[d] | 5;
				if (variant & 1)
					bits ^= nan[d] & -nan[d];
				if (variant & 2)
					bits |= 1ull << (8 * size - 1);
				memcpy(data + where * size, &bits, size);
				reported(_metadata, KCR_F16 + d, KCR_MIN, 4, data,
					 &nan[d], size);
				reported(_metadata, KCR_F16 + d, KCR_MAX, 4, data,
					 &nan[d], size);
				reported(_metadata, KCR_F16 + d, KCR_SUM, 4, data,
					 &nan[d], size);
			}
}

/* N5: the ranks' own first gives 0, 1 or 2. */
TEST(big_and_small)
{
	static const float data[][4] = {
		{ 1e8f, 1, -1e8f, 1 }, { 1e8f, -1e8f, 1, 1 }, { 1, 1e8f, -1e8f, 1 },
		{ 1, 1, 1e8f, -1e8f },
	};
	static const float want[] = { 1, 2, 1, 0 };
	int i;

	for (i = 0; i < 4; i++)
		reported(_metadata, KCR_F32, KCR_SUM, 4, data[i], &want[i], 4);
}

/* N7, N8: one multiplication after the fold; integers toward zero. */
TEST(means)
{
	static const float f[8] = { 0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f };
	static const uint16_t f16[2] = { 0x78e2, 0x78e2 };	/* 40000, N10 */
	static const int32_t i[2][2] = { { 7, 8 }, { -7, 0 } };
	static const int32_t i_want[2] = { 7, -3 };
	static const int8_t i8[2] = { 120, 100 }, i8_want = -36, i8_mean = -18;
	float sum;
	int w, k;

	for (w = 2; w <= 7; w++) {
		for (k = 1, sum = f[0]; k < w; k++)
			sum += f[k];
		sum *= 1.0f / (float)w;
		reported(_metadata, KCR_F32, KCR_MEAN, w, f, &sum, 4);
	}
	reported(_metadata, KCR_F16, KCR_MEAN, 2, f16, f16, 2);
	for (k = 0; k < 2; k++)
		reported(_metadata, KCR_I32, KCR_MEAN, 2, i[k], &i_want[k], 4);
	/* N9 */
	reported(_metadata, KCR_I8, KCR_SUM, 2, i8, &i8_want, 1);
	reported(_metadata, KCR_I8, KCR_MEAN, 2, i8, &i8_mean, 1);
}

/* Large messages in slots as they are by default, against a formula or the oracle. */
static void large(struct __test_metadata *_metadata, int ranks, size_t count,
		  enum kcr_algo algo, size_t direct_max)
{
	struct kcr_config config;
	struct kcr_emu *emu;
	uint32_t *x[MOST_RANKS], want;
	int rank;
	size_t i;

	kcr_config_init(&config);
	config.size = ranks;
	config.algo = algo;
	if (direct_max)
		config.direct_max = direct_max;
	ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
	for (rank = 0; rank < ranks; rank++) {
		x[rank] = malloc(count * 4 + 1);
		for (i = 0; i < count; i++)
			x[rank][i] = rank * 251 + i;
	}
	ASSERT_EQ(0, allreduce(emu, ranks, (void **)x, count, KCR_U32, KCR_SUM));
	for (rank = 0; rank < ranks; rank++) {
		for (i = 0; i < count; i++) {
			want = ranks * (uint32_t)i + 251 * (ranks * (ranks - 1) / 2);
			if (x[rank][i] != want)
				break;
		}
		ASSERT_EQ(count, i) {
			TH_LOG("W %d, count %zu, algo %d: rank %d, element %zu",
			       ranks, count, algo, rank, i);
		}
		free(x[rank]);
	}
	kcr_emu_destroy(emu);
}

/* S5: counts of which segments in bytes lose elements. S4: and odd ones. */
TEST(counts_that_lost_elements)
{
	double since = emu_now();
	int algo;

	for (algo = 0; algo < 3; algo++) {
		large(_metadata, 2, 2097153, algos[algo], 0);
		large(_metadata, 3, 3145729, algos[algo], 0);
	}
	large(_metadata, 3, 5000000, KCR_ALGO_OWNER, 0);
	emu_report("counts that lost elements", 7, since, 3);
}

TEST(counts_that_were_reported)
{
	static const size_t counts[] = { 1048576, 1055658, 1055659, 999999, 1234567 };
	double since = emu_now();
	int ranks;

	/* The reported ones go to 12345678: by a tenth, and one whole. */
	for (ranks = 2; ranks <= 6; ranks++)
		large(_metadata, ranks, counts[ranks - 2], algos[ranks % 3], 0);
	large(_metadata, 2, 10556587, KCR_ALGO_OWNER, 0);
	emu_report("counts that were reported", 6, since, 3);
}

/* S8: 1 KiB to 1 MiB, plus and minus one byte and one element. */
TEST(sweep)
{
	double since = emu_now();
	unsigned long rounds = 0;
	size_t bytes;
	int by;

	for (bytes = 1024; bytes <= 1 << 20; bytes *= 2)
		for (by = -1; by <= 1; by++) {
			large(_metadata, 2 + rounds % 3, bytes / 4 + by,
			      algos[rounds % 4], 0);
			rounds++;
		}
	emu_report("sweep", rounds, since, 2);
}

/* N12: bytes that depend on rank and position, odd sizes, every algorithm. */
TEST(odd_bytes)
{
	static const size_t counts[] = { 3, 251, 257, 1021, 4093, 65521, 65537 };
	double since = emu_now();
	struct kcr_config config;
	struct kcr_emu *emu;
	uint8_t *x[5], want;
	int algo, rank, n;
	size_t i;

	for (algo = 0; algo < 4; algo++)
		for (n = 0; n < 7; n++) {
			config = emu_config(5, algos[algo], 4096);
			ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
			for (rank = 0; rank < 5; rank++) {
				x[rank] = malloc(counts[n]);
				for (i = 0; i < counts[n]; i++)
					x[rank][i] = rank * 251 + i;
			}
			ASSERT_EQ(0, allreduce(emu, 5, (void **)x, counts[n],
					       KCR_U8, KCR_SUM));
			for (rank = 0; rank < 5; rank++) {
				for (i = 0; i < counts[n]; i++) {
					want = 5 * i + 10 * 251;
					ASSERT_EQ(want, x[rank][i]);
				}
				free(x[rank]);
			}
			kcr_emu_destroy(emu);
		}
	emu_report("odd bytes", 28, since, 1);
}

/* S1: shards of messages that nobody has room for; every element once. */
TEST(huge_without_data)
{
	static const size_t counts[] = {
		1ull << 31, 1ull << 32, 1ull << 40, 1ull << 61, SIZE_MAX,
	};
	size_t count, start, len, next;
	int c, by, ranks, rank;

	for (c = 0; c < 5; c++)
		for (by = -2; by <= 2; by++) {
			if (counts[c] == SIZE_MAX && by > 0)
				continue;
			count = counts[c] + by;
			for (ranks = 1; ranks <= KCR_RANKS_MAX; ranks++) {
				for (rank = 0, next = 0; rank < ranks; rank++) {
					kcr_shard_range(count, ranks, rank, &start,
							&len);
					ASSERT_EQ(next, start);
					ASSERT_EQ(count / ranks +
						  (rank < count % ranks), len);
					next += len;
				}
				ASSERT_EQ(count, next);
			}
		}
}

/* And calls of such sizes are refused where the bytes overflow, before anything moves. */
TEST(huge_calls)
{
	struct kcr_request *r = NULL;
	struct kcr_emu *emu;
	struct kcr_world *w;
	char x[16];

	ASSERT_EQ(0, kcr_emu_create(4, &emu));
	w = kcr_emu_world(emu, 0);
	EXPECT_EQ(-EINVAL, kcr_iallreduce(w, x, x, SIZE_MAX, KCR_U8, KCR_SUM, &r));
	EXPECT_EQ(-EINVAL, kcr_iallreduce(w, x, x, 1ull << 61, KCR_F64, KCR_SUM, &r));
	EXPECT_EQ(-EINVAL, kcr_iallreduce(w, x, x, 1ull << 60, KCR_F64, KCR_SUM, &r));
	EXPECT_EQ(-EINVAL, kcr_ireduce_scatter(w, x, x, 1ull << 61, KCR_U8, KCR_SUM,
					       &r));
	EXPECT_EQ(-EINVAL, kcr_iallgather(w, x, x, 1ull << 62, KCR_U8, &r));
	EXPECT_EQ(-EINVAL, kcr_ibroadcast(w, x, 1ull << 63, KCR_U8, 0, &r));
	EXPECT_EQ(-EINVAL, kcr_isend(w, x, SIZE_MAX, 1, &r));
	EXPECT_EQ(-EINVAL, kcr_irecv(w, x, 1ull << 63, 1, &r));
	EXPECT_NE(NULL, strstr(kcr_error(w), "overflow"));
	EXPECT_EQ(NULL, r);
	kcr_emu_destroy(emu);
}

TEST_HARNESS_MAIN
