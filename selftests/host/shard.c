// SPDX-License-Identifier: GPL-2.0
/*
 * kcr_shard_range(): whatever is cut, every element is in exactly one shard
 */
#include "kselftest_harness.h"
#include "data.h"

/*
 * The ranges follow one another from 0 to count, so that nothing is in two
 * or in none; they differ by at most one; the longer ones come first.
 */
static int check_cut(struct __test_metadata *_metadata, size_t count, int ranks)
{
	size_t each = count / ranks, rest = count % ranks;
	size_t next = 0, start, len;
	int r;

	for (r = 0; r < ranks; r++) {
		start = 0x5a5a;
		len = 0x5a5a;
		kcr_shard_range(count, ranks, r, &start, &len);
		if (start != next || len != each + ((size_t)r < rest)) {
			TH_LOG("count %zu ranks %d rank %d: %zu from %zu, not %zu from %zu",
			       count, ranks, r, len, start,
			       each + ((size_t)r < rest), next);
			return 1;
		}
		next += len;
	}
	if (next != count)
		TH_LOG("count %zu ranks %d: %zu covered", count, ranks, next);
	return next != count;
}

TEST(small_counts)
{
	size_t count;
	int ranks;

	for (ranks = 1; ranks <= KCR_RANKS_MAX; ranks++)
		for (count = 0; count <= 2 * (size_t)ranks + 1; count++)
			ASSERT_EQ(0, check_cut(_metadata, count, ranks));
}

/* By counting, with no formula of the library's or ours. */
TEST(every_element_once)
{
	static unsigned char seen[5000];
	size_t count, start, len, i;
	uint64_t state = 1;
	int ranks, r, round;

	for (round = 0; round < 500; round++) {
		count = data_random(&state) % sizeof(seen);
		ranks = 1 + data_random(&state) % KCR_RANKS_MAX;
		memset(seen, 0, sizeof(seen));
		for (r = 0; r < ranks; r++) {
			kcr_shard_range(count, ranks, r, &start, &len);
			ASSERT_LE(start, count);
			ASSERT_LE(len, count - start);
			for (i = start; i < start + len; i++)
				seen[i]++;
		}
		for (i = 0; i < sizeof(seen); i++)
			ASSERT_EQ(i < count, seen[i]) {
				TH_LOG("count %zu ranks %d element %zu",
				       count, ranks, i);
			}
	}
}

TEST(random_counts)
{
	uint64_t state = 2;
	int round;

	for (round = 0; round < 200000; round++) {
		/* All magnitudes alike: most 64-bit numbers are huge. */
		size_t count = data_random(&state) >> (data_random(&state) % 64);
		int ranks = 1 + data_random(&state) % KCR_RANKS_MAX;

		ASSERT_EQ(0, check_cut(_metadata, count, ranks));
	}
}

TEST(powers_of_two)
{
	static const int shifts[] = { 31, 32, 40, 63 };
	size_t i;
	int ranks, d;

	for (i = 0; i < ARRAY_SIZE(shifts); i++)
		for (ranks = 1; ranks <= KCR_RANKS_MAX; ranks++)
			for (d = -3; d <= 3; d++)
				ASSERT_EQ(0, check_cut(_metadata,
						       (1UL << shifts[i]) + d, ranks));
	for (ranks = 1; ranks <= KCR_RANKS_MAX; ranks++)
		ASSERT_EQ(0, check_cut(_metadata, SIZE_MAX, ranks));
}

/* The size at which a cut in bytes loses two elements of f32. */
TEST(odd_count_of_two)
{
	size_t start, len;

	kcr_shard_range(2097153, 2, 0, &start, &len);
	EXPECT_EQ(0, start);
	EXPECT_EQ(1048577, len);
	kcr_shard_range(2097153, 2, 1, &start, &len);
	EXPECT_EQ(1048577, start);
	EXPECT_EQ(1048576, len);
}

TEST_HARNESS_MAIN
