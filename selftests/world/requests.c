// SPDX-License-Identifier: GPL-2.0
/*
 * Requests between processes: several on their way, in the order of issue,
 * however they are waited for; progress without the caller; and every way to end
 * badly, also for one who only ever tests
 *
 * Over the link that KCR_LINK names.
 */
#include <pthread.h>
#include <sched.h>
#include "kselftest_harness.h"
#include "collective.h"
#include "ranks.h"

#define RANKS	4
#define FLIGHT	16
/* The promise is a second; two processors shared with others get two. */
#define SOON	(2.0 * pace())

struct scene {
	struct ranks_meeting meeting;
	struct ranks_outcome outcome[RANKS];
	double acted;
	long rounds;
};

FIXTURE(requests) {
	struct scene *scene;
};

FIXTURE_VARIANT(requests) {
	const char *algo, *thread;
};

FIXTURE_VARIANT_ADD(requests, direct) {
	.algo = "direct", .thread = "0",
};

FIXTURE_VARIANT_ADD(requests, owner) {
	.algo = "owner", .thread = "0",
};

FIXTURE_VARIANT_ADD(requests, chain) {
	.algo = "chain", .thread = "0",
};

FIXTURE_VARIANT_ADD(requests, owner_progress_thread) {
	.algo = "owner", .thread = "1",
};

static const char *set_up(const char *algo, const char *thread)
{
	setenv("KCR_ALGO", algo, 1);
	setenv("KCR_PROGRESS_THREAD", thread, 1);
	setenv("KCR_LANE_BYTES", "256", 1);
	setenv("KCR_BOARD_BYTES", "256", 1);
	setenv("KCR_TIMEOUT", "30", 1);
	return ranks_no_link();
}

FIXTURE_SETUP(requests)
{
	const char *why = set_up(variant->algo, variant->thread);

	if (why)
		SKIP(return, "%s", why);
	self->scene = ranks_shared(sizeof(*self->scene));
	ASSERT_NE(NULL, self->scene);
}

FIXTURE_TEARDOWN(requests)
{
}

/* Operation number @i of a program of mixed ones. */
static void choose(struct collective *c, size_t i, int ranks)
{
	uint64_t h = data_mix(i);

	c->kind = h % COLLECTIVE_KINDS;
	c->dtype = (h >> 8) % KCR_DTYPES;
	c->op = (h >> 16) % KCR_OPS;
	if (!data_is_supported(c->dtype, c->op))
		c->op = KCR_SUM;
	c->count = (h >> 24) % 8 ? (h >> 32) % 40 : (h >> 32) % 500;
	c->in_place = h >> 28 & 1;
	c->root = (h >> 52) % ranks;
	c->seed = i;
}

/* All are started, then waited for in another order on every rank. */
static int in_flight(int rank, void *arg)
{
	const struct scene *scene = arg;
	static struct collective c[FLIGHT];
	struct kcr_world *w;
	size_t i, k;
	long round;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < FLIGHT; i++)
		RANK_OK(NULL, collective_alloc(&c[i], collective_room(500, RANKS)));
	for (round = 0; round < scene->rounds; round++) {
		for (i = 0; i < FLIGHT; i++) {
			choose(&c[i], round * FLIGHT + i, RANKS);
			collective_prepare(&c[i], w);
			RANK_OK(w, collective_start(&c[i], w));
		}
		for (i = 0; i < FLIGHT; i++) {
			k = (i * 5 + rank * 3 + round) % FLIGHT;
			RANK_OK(w, collective_wait(&c[k]));
			RANK_RIGHT(&c[k]);
		}
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(requests, in_flight, 120)
{
	self->scene->rounds = ranks_rounds(512);
	ASSERT_EQ(0, ranks_run(RANKS, in_flight, self->scene, 100));
}

/* None is done before one that was issued earlier; what is done stays so. */
static int in_order(int rank, void *arg)
{
	const struct scene *scene = arg;
	static struct collective c[FLIGHT];
	struct kcr_world *w;
	int done, before;
	size_t i, open;
	long round;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < FLIGHT; i++)
		RANK_OK(NULL, collective_alloc(&c[i], collective_room(500, RANKS)));
	for (round = 0; round < scene->rounds; round++) {
		for (i = 0; i < FLIGHT; i++) {
			choose(&c[i], round * FLIGHT + i, RANKS);
			if (c[i].kind == COLLECTIVE_EXCHANGE)
				c[i].kind = COLLECTIVE_ANY;
			collective_prepare(&c[i], w);
			RANK_OK(w, collective_start(&c[i], w));
		}
		do {
			before = 0;
			open = 0;
			/* From the last to the first: what comes earlier is older. */
			for (i = FLIGHT; i--;) {
				RANK_OK(w, collective_test(&c[i], &done));
				RANK_TRUE(done || !before);
				before |= done;
				open += !done;
			}
			sched_yield();
		} while (open);
		for (i = 0; i < FLIGHT; i++) {
			RANK_OK(w, collective_wait(&c[i]));
			RANK_RIGHT(&c[i]);
		}
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(requests, in_order, 120)
{
	self->scene->rounds = ranks_rounds(128);
	ASSERT_EQ(0, ranks_run(RANKS, in_order, self->scene, 100));
}

/* Which are blocking is each rank's own affair. */
static int mixed(int rank, void *arg)
{
	const struct scene *scene = arg;
	static struct collective c[FLIGHT];
	struct kcr_world *w;
	size_t i, k, n = scene->rounds * FLIGHT;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < FLIGHT; i++)
		RANK_OK(NULL, collective_alloc(&c[i], collective_room(500, RANKS)));
	for (i = 0; i < n; i++) {
		k = i % FLIGHT;
		/* The one that was here before, if it is still on its way. */
		if (i >= FLIGHT) {
			RANK_OK(w, collective_wait(&c[k]));
			RANK_RIGHT(&c[k]);
		}
		choose(&c[k], i, RANKS);
		collective_prepare(&c[k], w);
		if (data_mix(i * RANKS + rank) % 3)
			RANK_OK(w, collective_start(&c[k], w));
		else
			RANK_OK(w, collective_call(&c[k], w));
	}
	for (k = 0; k < FLIGHT; k++) {
		RANK_OK(w, collective_wait(&c[k]));
		RANK_RIGHT(&c[k]);
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(requests, blocking_and_not, 120)
{
	self->scene->rounds = ranks_rounds(512);
	ASSERT_EQ(0, ranks_run(RANKS, mixed, self->scene, 100));
}

/*
 * Two threads of each rank use one world at the same time, one for collectives and
 * one for messages. A blocking call holds the world, so theirs do not block.
 */
struct user {
	struct kcr_world *w;
	int messages;
	long rounds;
	int failed;
};

static int use_once(struct user *u, struct collective *c)
{
	int rank = kcr_rank(u->w), done = 0;

	collective_prepare(c, u->w);
	RANK_OK(u->w, collective_start(c, u->w));
	while (!done) {
		RANK_OK(u->w, collective_test(c, &done));
		sched_yield();
	}
	RANK_OK(u->w, collective_wait(c));
	RANK_RIGHT(c);
	return 0;
}

static void *use(void *arg)
{
	struct user *u = arg;
	struct collective c = { .kind = 0 };
	long i;

	u->failed = collective_alloc(&c, collective_room(500, RANKS));
	for (i = 0; i < u->rounds && !u->failed; i++) {
		choose(&c, 2 * i + u->messages, RANKS);
		if (u->messages) {
			c.kind = COLLECTIVE_EXCHANGE;
			c.root = 1 + i % (RANKS - 1);
		} else if (c.kind == COLLECTIVE_EXCHANGE) {
			c.kind = COLLECTIVE_ALLREDUCE;
		}
		u->failed = use_once(u, &c);
	}
	collective_free(&c);
	return NULL;
}

static int two_threads(int rank, void *arg)
{
	const struct scene *scene = arg;
	struct user user[2];
	pthread_t thread[2];
	struct kcr_world *w;
	int i;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < 2; i++) {
		user[i] = (struct user){ .w = w, .messages = i, .rounds = scene->rounds };
		RANK_TRUE(!pthread_create(&thread[i], NULL, use, &user[i]));
	}
	for (i = 0; i < 2; i++) {
		pthread_join(thread[i], NULL);
		RANK_TRUE(!user[i].failed);
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(requests, of_two_threads, 120)
{
	self->scene->rounds = ranks_rounds(1024);
	ASSERT_EQ(0, ranks_run(RANKS, two_threads, self->scene, 100));
}

/* What is left behind on destruction fails, here and with those who wait for it. */
static int destroy_pending(int rank, void *arg)
{
	struct kcr_request *request[3];
	enum { COUNT = 8000 };
	static float data[COUNT];
	struct kcr_world *w;
	char byte;
	int done;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	if (rank) {
		RANK_OK(w, kcr_barrier(w));
		RANK_GIVES(-ESHUTDOWN, w, kcr_allreduce(w, data, data, COUNT,
							KCR_F32, KCR_SUM));
		RANK_SAYS(w, "rank 0 left");
		RANK_OK(NULL, kcr_world_destroy(w));
		return 0;
	}
	RANK_OK(w, kcr_barrier(w));
	RANK_OK(w, kcr_irecv(w, &byte, 1, 1, &request[0]));
	/* More than lanes, or rings by four wires, hold: the others cannot finish it. */
	RANK_OK(w, kcr_iallreduce(w, data, data, COUNT, KCR_F32, KCR_SUM,
				  &request[1]));
	RANK_OK(w, kcr_irecv(w, &byte, 1, 2, &request[2]));
	RANK_OK(NULL, kcr_world_destroy(w));
	RANK_GIVES(-ESHUTDOWN, NULL, kcr_test(request[0], &done));
	RANK_TRUE(done == 1);
	RANK_GIVES(-ESHUTDOWN, NULL, kcr_wait(request[2]));
	RANK_GIVES(-ESHUTDOWN, NULL, kcr_wait(request[1]));
	RANK_GIVES(-ESHUTDOWN, NULL, kcr_wait(request[0]));
	return 0;
}

static int destroy_pending_messages(int rank, void *arg)
{
	struct kcr_request *request[2];
	struct kcr_world *w;
	char byte;
	int done;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_OK(w, kcr_irecv(w, &byte, 1, (rank + 1) % RANKS, &request[0]));
	RANK_OK(w, kcr_irecv(w, &byte, 1, (rank + 1) % RANKS, &request[1]));
	RANK_OK(w, kcr_barrier(w));
	RANK_OK(NULL, kcr_world_destroy(w));
	RANK_GIVES(-ESHUTDOWN, NULL, kcr_test(request[0], &done));
	RANK_TRUE(done == 1);
	RANK_GIVES(-ESHUTDOWN, NULL, kcr_wait(request[1]));
	RANK_GIVES(-ESHUTDOWN, NULL, kcr_wait(request[0]));
	return 0;
}

TEST_F_TIMEOUT(requests, of_a_destroyed_world, 60)
{
	ASSERT_EQ(0, ranks_run(RANKS, destroy_pending_messages, NULL, 30));
}

/* One who only ever tests; the result is recorded. */
static int test_until_it_ends(int rank, struct scene *scene, struct kcr_world *w,
			      struct kcr_request *request)
{
	int done = 0, err = 0, late;

	while (!done) {
		err = kcr_test(request, &done);
		RANK_TRUE(done || !err);
		ranks_sleep(0.001);
	}
	ranks_record(&scene->outcome[rank], w, err);
	late = kcr_wait(request);
	RANK_TRUE(late == err);
	return 0;
}

static int nobody_comes(int rank, void *arg)
{
	struct scene *scene = arg;
	struct kcr_request *request;
	float data[500] = { 0 };
	struct kcr_world *w;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	scene->acted = ranks_now();
	if (rank == 1) {
		RANK_OK(w, kcr_iallreduce(w, data, data, 500, KCR_F32, KCR_SUM,
					  &request));
		if (test_until_it_ends(rank, scene, w, request))
			return 1;
	}
	ranks_meet(&scene->meeting, RANKS);
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(requests, time_out_when_tested, 60)
{
	struct ranks_outcome *o = &self->scene->outcome[1];

	setenv("KCR_TIMEOUT", "1", 1);
	ASSERT_EQ(0, ranks_run(RANKS, nobody_comes, self->scene, 30));
	EXPECT_EQ(-ETIMEDOUT, o->err);
	EXPECT_NE(NULL, strstr(o->said, "allreduce #1: no word from rank"));
	EXPECT_GT(o->at - self->scene->acted, 0.9);
	EXPECT_LT(o->at - self->scene->acted, 1 + SOON);
	TH_LOG("%s", o->said);
}

static int one_dies(int rank, void *arg)
{
	struct scene *scene = arg;
	struct kcr_request *request;
	float data[500] = { 0 };
	struct kcr_world *w;
	char byte;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	ranks_meet(&scene->meeting, RANKS);
	if (rank == 2) {
		ranks_sleep(0.3);
		scene->acted = ranks_now();
		raise(SIGKILL);
	}
	/* One of them waits for a message that has nothing to do with it. */
	if (rank == 3)
		RANK_OK(w, kcr_irecv(w, &byte, 1, 0, &request));
	else
		RANK_OK(w, kcr_iallreduce(w, data, data, 500, KCR_F32, KCR_SUM,
					  &request));
	if (test_until_it_ends(rank, scene, w, request))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(requests, die_when_tested, 60)
{
	struct ranks_outcome *o = self->scene->outcome;
	int r;

	ASSERT_EQ(1, ranks_run(RANKS, one_dies, self->scene, 30));
	for (r = 0; r < RANKS; r++) {
		if (r == 2)
			continue;
		EXPECT_EQ(-ECONNRESET, o[r].err);
		EXPECT_NE(NULL, strstr(o[r].said, "rank 2 died"));
		EXPECT_LT(o[r].at - self->scene->acted, SOON) {
			TH_LOG("rank %d knew after %.2f s", r,
			       o[r].at - self->scene->acted);
		}
	}
}

/* What needs no variants. */
FIXTURE(alone) {
	struct scene *scene;
};

FIXTURE_SETUP(alone)
{
	const char *why = set_up("owner", "0");

	if (why)
		SKIP(return, "%s", why);
	self->scene = ranks_shared(sizeof(*self->scene));
	ASSERT_NE(NULL, self->scene);
}

FIXTURE_TEARDOWN(alone)
{
}

TEST_F_TIMEOUT(alone, left_to_others, 60)
{
	ASSERT_EQ(0, ranks_run(RANKS, destroy_pending, NULL, 30));
}

/* Compute for as long, with all that a processor has. */
static void compute(double seconds)
{
	double until = ranks_now() + seconds;

	while (ranks_now() < until)
		;
}

/* Is the result there, without any call since the operation began? */
static int compute_meanwhile(int rank, void *arg)
{
	enum { COUNT = 100000 };
	struct scene *scene = arg;
	static float data[COUNT], result[COUNT], want[COUNT];
	struct kcr_request *request;
	struct kcr_world *w;
	int done, there;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	data_fill(data, COUNT, KCR_F32, rank, 3);
	RANK_OK(NULL, data_expect(want, COUNT, KCR_F32, KCR_SUM, 2, 3));
	RANK_OK(w, kcr_barrier(w));
	/* One after the other: two calls at a time could do all of it. */
	if (rank)
		ranks_meet(&scene->meeting, 2);
	RANK_OK(w, kcr_iallreduce(w, data, result, COUNT, KCR_F32, KCR_SUM,
				  &request));
	if (!rank)
		ranks_meet(&scene->meeting, 2);
	compute(scene->acted);
	there = data_differ(want, result, COUNT, KCR_F32) < 0;
	ranks_meet(&scene->meeting, 2);
	RANK_OK(w, kcr_test(request, &done));
	RANK_TRUE(done || !there);
	RANK_OK(w, kcr_wait(request));
	RANK_TRUE(data_differ(want, result, COUNT, KCR_F32) < 0);
	scene->outcome[rank].done = there;
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(alone, progress_thread, 60)
{
	struct scene *scene = self->scene;
	/* Emulated processors get longer. */
	double seconds = ranks_are_slow() ? 4 : 0.2;
	int attempt;

	/* Few segments, each of which has to wait for the thread's turn. */
	unsetenv("KCR_LANE_BYTES");
	unsetenv("KCR_BOARD_BYTES");
	scene->acted = seconds;
	/* Without the thread nothing happens: else this would prove nothing. */
	ASSERT_EQ(0, ranks_run(2, compute_meanwhile, scene, 30));
	EXPECT_EQ(0, scene->outcome[0].done);
	EXPECT_EQ(0, scene->outcome[1].done);
	setenv("KCR_PROGRESS_THREAD", "1", 1);
	/* Others may have had the processors: then longer. */
	for (attempt = 0; attempt < 5; attempt++, scene->acted *= 2) {
		ASSERT_EQ(0, ranks_run(2, compute_meanwhile, scene, 30));
		if (scene->outcome[0].done && scene->outcome[1].done)
			break;
	}
	EXPECT_EQ(1, scene->outcome[0].done);
	EXPECT_EQ(1, scene->outcome[1].done);
	TH_LOG("attempt %d", attempt + 1);
}

static int arguments(int rank, void *arg)
{
	struct kcr_request *request;
	struct kcr_world *w;
	float data[4] = { 0 };
	int done, flag;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_REFUSED(-EINVAL, NULL, kcr_ibarrier(w, NULL), "request is NULL");
	request = (void *)1;
	RANK_REFUSED(-EINVAL, NULL, kcr_ibarrier(NULL, &request), "world is NULL");
	RANK_TRUE(!request);
	request = (void *)1;
	RANK_GIVES(-EOPNOTSUPP, w, kcr_iallreduce(w, data, data, 4, KCR_F32,
						  KCR_BAND, &request));
	RANK_SAYS(w, "band of f32");
	RANK_TRUE(!request);
	RANK_REFUSED(-EINVAL, w, kcr_ibroadcast(w, data, 4, KCR_F32, -1, &request),
		     "root is -1");
	RANK_REFUSED(-EINVAL, w, kcr_iallgather(w, data, NULL, 4, KCR_F32, &request),
		     "recv is NULL");
	RANK_REFUSED(-EINVAL, w, kcr_iany(w, 0, NULL, &request), "result is NULL");
	RANK_REFUSED(-EINVAL, NULL, kcr_test(NULL, &done), "request is NULL");
	RANK_REFUSED(-EINVAL, NULL, kcr_wait(NULL), "request is NULL");
	/* None of it counts as a call. */
	RANK_OK(w, kcr_iany(w, rank == kcr_size(w) - 1, &flag, &request));
	RANK_REFUSED(-EINVAL, NULL, kcr_test(request, NULL), "done is NULL");
	RANK_OK(w, kcr_wait(request));
	RANK_TRUE(flag == 1);
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(alone, arguments, 60)
{
	int ranks;

	for (ranks = 1; ranks <= 3; ranks++)
		ASSERT_EQ(0, ranks_run(ranks, arguments, NULL, 30));
}

TEST_HARNESS_MAIN
