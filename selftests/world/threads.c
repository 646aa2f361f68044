// SPDX-License-Identifier: GPL-2.0
/*
 * Ranks that are threads of one process, over a real link: so the thread sanitizer,
 * which sees no race between processes, sees those on the memory that ranks share
 * (make check-tsan). With progress threads each rank has two.
 */
#include <pthread.h>

#include "kselftest_harness.h"
#include "collective.h"
#include "ranks.h"

#define RANKS	3
#define COUNT	500

struct thread {
	pthread_t id;
	struct kcr_config config;
	struct kcr_world *w;
	long rounds;
	int failed;
};

/* kcr_wait() would keep the rank's other thread out. */
static int wait_politely(struct collective *c, struct kcr_world *w)
{
	int done = 0, err;

	do {
		err = collective_test(c, &done);
		sched_yield();
	} while (!err && !done);
	return err ? err : collective_wait(c);
}

static int operate(struct kcr_world *w, long rounds, int messages)
{
	int rank = kcr_rank(w), result;
	struct collective c = { .kind = 0 };
	long i;

	RANK_TRUE(!collective_alloc(&c, collective_room(COUNT, RANKS)));
	for (i = 0, result = 0; i < rounds && !result; i++) {
		c.kind = messages ? COLLECTIVE_EXCHANGE : i % COLLECTIVE_EXCHANGE;
		c.dtype = KCR_F32;
		c.op = KCR_SUM;
		c.count = 1 + (i * 37) % COUNT;
		c.root = messages ? 1 + i % (RANKS - 1) : i % RANKS;
		c.seed = i;
		collective_prepare(&c, w);
		result = collective_start(&c, w) || wait_politely(&c, w) ||
			 collective_wrong(&c) != -1;
	}
	collective_free(&c);
	if (result)
		RANK_FAIL("round %ld: %s", i - 1, kcr_error(w));
	return 0;
}

static void *messages_main(void *arg)
{
	struct thread *t = arg;

	t->failed = operate(t->w, t->rounds, 1);
	return NULL;
}

static int rank_main(struct thread *t)
{
	struct thread other = { .rounds = t->rounds };
	int rank = t->config.rank, err;

	RANK_OK(NULL, kcr_world_create(&t->config, &t->w));
	other.w = t->w;
	RANK_TRUE(!pthread_create(&other.id, NULL, messages_main, &other));
	err = operate(t->w, t->rounds, 0);
	pthread_join(other.id, NULL);
	RANK_OK(NULL, kcr_world_destroy(t->w));
	return err || other.failed;
}

static void *thread_main(void *arg)
{
	struct thread *t = arg;

	t->failed = rank_main(t);
	return NULL;
}

FIXTURE(threads) {
	struct ranks r;
	char place[128];
};

FIXTURE_VARIANT(threads) {
	int progress;
	enum kcr_algo algo;
};

FIXTURE_VARIANT_ADD(threads, direct) { .algo = KCR_ALGO_DIRECT };
FIXTURE_VARIANT_ADD(threads, owner) { .algo = KCR_ALGO_OWNER };
FIXTURE_VARIANT_ADD(threads, chain) { .algo = KCR_ALGO_CHAIN };
FIXTURE_VARIANT_ADD(threads, progress) { .progress = 1 };

FIXTURE_SETUP(threads)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	ASSERT_EQ(0, ranks_init(&self->r, RANKS));
	snprintf(self->place, sizeof(self->place), "file:%s", self->r.dir);
}

FIXTURE_TEARDOWN(threads)
{
	if (*self->r.dir)
		ranks_remove_dir(&self->r);
}

/* Collectives by one thread of each rank, messages by another. */
TEST_F_TIMEOUT(threads, collectives_and_messages, 120)
{
	struct thread t[RANKS] = { 0 };

	for (int i = 0; i < RANKS; i++) {
		kcr_config_init(&t[i].config);
		t[i].config.rendezvous = self->place;
		t[i].config.rank = i;
		t[i].config.size = RANKS;
		t[i].config.local_rank = i;
		t[i].config.local_size = RANKS;
		t[i].config.algo = variant->algo;
		t[i].config.progress_thread = variant->progress;
		t[i].rounds = ranks_rounds(512);
		ASSERT_EQ(0, pthread_create(&t[i].id, NULL, thread_main, &t[i]));
	}
	for (int i = 0; i < RANKS; i++) {
		pthread_join(t[i].id, NULL);
		EXPECT_EQ(0, t[i].failed);
	}
}

TEST_HARNESS_MAIN
