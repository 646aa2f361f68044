// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit: which pages are mapped for a device at once. A part of source.c, on kernels
 * with KUnit.
 */
#include "kunit.h"

static void source_runs(struct kunit *test)
{
	/* By place: which page of memory lies there. */
	static const u8 order[] = { 0, 1, 2, 4, 3, 6, 7, 5 };
	static const u8 runs[] = { 3, 2, 1, 1, 1, 2, 1, 1 };
	struct page *pages[ARRAY_SIZE(order)], *first;
	struct kcr_region region = { .nr = ARRAY_SIZE(order), .pages = pages };
	unsigned long i;

	first = alloc_pages(GFP_KERNEL, 3);
	KUNIT_ASSERT_NOT_NULL(test, first);
	for (i = 0; i < region.nr; i++)
		pages[i] = first + order[i];
	for (i = 0; i < region.nr; i++) {
		KUNIT_EXPECT_EQ_MSG(test, run_of(&region, i, 8), (unsigned long)runs[i],
				    "page %lu", i);
		KUNIT_EXPECT_EQ_MSG(test, run_of(&region, i, 2),
				    min(2ul, (unsigned long)runs[i]), "page %lu", i);
		KUNIT_EXPECT_EQ(test, run_of(&region, i, 1), 1ul);
	}
	__free_pages(first, 3);
}

static struct kunit_case source_cases[] = {
	KUNIT_CASE(source_runs),
	{ }
};

static struct kunit_suite source_suite = {
	.name = "kcollring-source",
	.test_cases = source_cases,
};

kunit_test_suite(source_suite);
