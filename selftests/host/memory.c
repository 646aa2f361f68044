// SPDX-License-Identifier: GPL-2.0
/*
 * Every allocation of the library fails once: -ENOMEM, nothing lost and nothing
 * broken
 *
 * The linker gives the library's calls to the functions below (--wrap).
 */
#include "kselftest_harness.h"
#include "emu.h"
#include "ranks.h"
#include "wrap.h"

static long countdown;		/* the allocation that fails, from 1; 0: none */
static long alive;		/* allocations that were not freed */

static int fails(void)
{
	return countdown && !--countdown;
}

void *__wrap_malloc(size_t bytes)
{
	void *p = fails() ? NULL : __real_malloc(bytes);

	alive += !!p;
	return p;
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	void *p = fails() ? NULL : __real_calloc(n, bytes);

	alive += !!p;
	return p;
}

void *__wrap_realloc(void *old, size_t bytes)
{
	void *p = fails() ? NULL : __real_realloc(old, bytes);

	alive += p && !old;
	return p;
}

void __wrap_free(void *p)
{
	alive -= !!p;
	__real_free(p);
}

/* All that allocates, for @ranks. Returns the first error. */
static int do_it(int ranks)
{
	struct kcr_request *r[4] = { NULL };
	int order[4] = { 0, 1, 2, 3 };
	struct kcr_emu *emu = NULL;
	int x = 1, rank, err, first;

	first = kcr_emu_create(ranks, &emu);
	if (first)
		return emu || !strstr(kcr_error(NULL), "no memory") ? -EBADE : first;
	err = kcr_emu_order(emu, order, ranks);
	first = first ?: err;
	if (ranks > 1) {
		err = kcr_emu_rule(emu, KCR_EMU_DELAY, 0, 1, 1, 2);
		first = first ?: err;
	}
	for (rank = 0; rank < ranks; rank++) {
		err = kcr_ibroadcast(kcr_emu_world(emu, rank), &x, 1, KCR_I32, 0,
				     &r[rank]);
		if (err && r[rank])
			first = -EBADE;
		first = first ?: err;
	}
	/* Those that were refused can be made again. */
	for (rank = 0; rank < ranks; rank++)
		if (!r[rank] && kcr_ibroadcast(kcr_emu_world(emu, rank), &x, 1,
					       KCR_I32, 0, &r[rank]))
			first = -EBADE;
	for (rank = 0; rank < ranks; rank++)
		if (r[rank] && kcr_wait(r[rank]))
			first = -EBADE;
	kcr_emu_destroy(emu);
	return first;
}

static int do_it_alone(int unused)
{
	struct kcr_config config;
	struct kcr_world *w = NULL;
	int err;

	kcr_config_init(&config);
	config.size = 1;
	err = kcr_world_create(&config, &w);
	if (err)
		return w ? -EBADE : err;
	kcr_world_destroy(w);
	return 0;
}

/* Of two ranks, where the other never comes: that, if memory suffices. */
static int wait_by_tcp(int rank)
{
	struct kcr_config config;
	struct kcr_world *w = NULL;
	char place[32];
	int err;

	snprintf(place, sizeof(place), "tcp:127.0.0.1:%d", ranks_free_port());
	kcr_config_init(&config);
	config.size = 2;
	config.local_size = 2;
	config.rank = rank;
	config.local_rank = rank;
	config.link = KCR_LINK_SHM;
	config.rendezvous = place;
	config.rendezvous_ms = 20;
	err = kcr_world_create(&config, &w);
	if (w || (err == -ENOMEM && !strstr(kcr_error(NULL), "memory")))
		return -EBADE;
	if (err != -ETIMEDOUT)
		return err;
	/* What fails in telling of an error changes nothing: it stays the first. */
	return countdown ? 0 : -ENOMEM;
}

static void each_fails(struct __test_metadata *_metadata, int (*what)(int),
		       int ranks)
{
	long n, before = alive;
	int err;

	for (n = 1; ; n++) {
		countdown = n;
		err = what(ranks);
		EXPECT_EQ(before, alive) {
			TH_LOG("allocation %ld of %d ranks", n, ranks);
		}
		if (countdown)
			break;
		ASSERT_EQ(-ENOMEM, err);
	}
	countdown = 0;
	EXPECT_EQ(0, err);
	EXPECT_LT(5, n);
	printf("# %ld allocations\n", n - 1);
}

TEST(each_allocation_fails)
{
	int ranks;

	for (ranks = 1; ranks <= 4; ranks++)
		each_fails(_metadata, do_it, ranks);
	each_fails(_metadata, do_it_alone, 1);
}

TEST(each_allocation_of_a_rendezvous_fails)
{
	int rank;

	for (rank = 0; rank < 2; rank++)
		each_fails(_metadata, wait_by_tcp, rank);
}

/* Every way that a request may end: done, failed, or with its world. */
TEST(each_wait_frees)
{
	struct kcr_request *r[3][3];
	long before = alive;
	struct kcr_emu *emu;
	int x, y, rank, i;

	ASSERT_EQ(0, kcr_emu_create(3, &emu));
	for (rank = 0; rank < 3; rank++)
		ASSERT_EQ(0, kcr_iallgather(kcr_emu_world(emu, rank), &x, &y, 0,
					    KCR_I32, &r[rank][0]));
	for (rank = 0; rank < 3; rank++)
		ASSERT_EQ(0, kcr_wait(r[rank][0]));
	for (i = 0; i < 3; i++)
		for (rank = 0; rank < 2; rank++)
			ASSERT_EQ(0, kcr_ibarrier(kcr_emu_world(emu, rank),
						  &r[rank][i]));
	ASSERT_EQ(-ETIMEDOUT, kcr_wait(r[0][1]));
	ASSERT_EQ(-ETIMEDOUT, kcr_wait(r[0][0]));
	kcr_emu_destroy(emu);
	ASSERT_EQ(before + 4, alive);
	ASSERT_EQ(-ETIMEDOUT, kcr_wait(r[0][2]));
	for (i = 0; i < 3; i++)
		ASSERT_EQ(-ESHUTDOWN, kcr_wait(r[1][i]));
	ASSERT_EQ(before, alive);
}

TEST_HARNESS_MAIN
