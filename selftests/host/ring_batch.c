// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that send on one lane between nodes, and a module that refuses now and then: each
 * message is sent once, in its thread's order, and no command has others than those that
 * are next.
 *
 * The module is the function below (--wrap). What it does between nodes is in
 * cluster/rings_batch.c.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include "kselftest_harness.h"
#include "data.h"
#include "wrap.h"
#include "../../lib/ring.h"

#define THREADS		8
#define MESSAGES	2000	/* of each */
#define DEPTH		20
#define CAPACITY	8

struct stamp {
	uint32_t thread, number;
};

static unsigned char image[DEPTH * KCR_SLOT_STRIDE(CAPACITY)] __attribute__((aligned(64)));
static struct kcr_lane_status status;
static struct kcr_ring ring;
static struct ring_tx tx;

static int inside;		/* commands at a time; atomic */
static uint64_t sent, commands, refusals, random_state;
static uint32_t next[THREADS];
static int wrong;
static int gate;		/* atomic: a command that finds it closed waits, and is refused */

enum { OPEN, CLOSED, OCCUPIED };

static void take(uint64_t sequence)
{
	const struct kcr_slot *slot = (void *)(image + (sequence - 1) % DEPTH *
					       KCR_SLOT_STRIDE(CAPACITY));
	struct stamp s;

	memcpy(&s, (const char *)slot + KCR_SLOT_PAYLOAD, sizeof(s));
	if (slot->sequence != sequence || s.thread >= THREADS ||
	    s.number != next[s.thread])
		wrong++;
	else
		next[s.thread]++;
}

int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	const struct kcr_put *put = arg;
	int err = 0;

	if (request != KCR_IOCTL_PUT || __atomic_fetch_add(&inside, 1, __ATOMIC_RELAXED) ||
	    put->sequence != sent + 1 || !put->count || put->count > DEPTH)
		wrong++;
	commands++;
	if (__atomic_load_n(&gate, __ATOMIC_ACQUIRE) != OPEN) {
		__atomic_store_n(&gate, OCCUPIED, __ATOMIC_RELEASE);
		while (__atomic_load_n(&gate, __ATOMIC_ACQUIRE) != OPEN)
			sched_yield();
		err = ENOBUFS;
	} else if (data_random(&random_state) % 4) {
		for (uint32_t i = 0; i < put->count; i++)
			take(++sent);
		__atomic_store_n(&status.done, sent, __ATOMIC_RELEASE);
	} else {
		refusals++;
		err = ENOBUFS;
	}
	if (data_random(&random_state) % 2)
		sched_yield();
	__atomic_fetch_sub(&inside, 1, __ATOMIC_RELAXED);
	errno = err;
	return err ? -1 : 0;
}

static int64_t try_to_send(const struct stamp *s)
{
	int64_t result = -EAGAIN;

	pthread_mutex_lock(&tx.lock);
	if (ring_mesh_has_place(&tx))
		result = ring_mesh_send(&ring, &tx, s, sizeof(*s));
	pthread_mutex_unlock(&tx.lock);
	return result;
}

static void *run(void *arg)
{
	static char not_in_order[] = "not in order";
	struct stamp s = { .thread = (uintptr_t)arg };
	int64_t before = 0, sequence;

	for (; s.number < MESSAGES; s.number++) {
		while ((sequence = try_to_send(&s)) == -EAGAIN)
			sched_yield();
		if (sequence <= before)
			return not_in_order;
		before = sequence;
	}
	return NULL;
}

static void make_lane(uint32_t depth)
{
	tx = (struct ring_tx){
		.slots = {
			.base = image,
			.stride = KCR_SLOT_STRIDE(CAPACITY),
			.depth = depth,
			.capacity = CAPACITY,
			.next = 1,
		},
		.peer = 1,
		.remote = &status,
		.written_end = &tx.written,
	};
	pthread_mutex_init(&tx.lock, NULL);
	pthread_cond_init(&tx.is_put, NULL);
}

static void free_lane(void)
{
	pthread_cond_destroy(&tx.is_put);
	pthread_mutex_destroy(&tx.lock);
}

TEST(each_message_once)
{
	pthread_t threads[THREADS];
	void *failed;

	make_lane(DEPTH);
	for (uintptr_t i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, run, (void *)i));
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &failed);
		EXPECT_EQ(NULL, failed);
		EXPECT_EQ(MESSAGES, next[i]);
	}
	EXPECT_EQ(0, wrong);
	EXPECT_EQ(THREADS * MESSAGES, sent);
	EXPECT_EQ(sent + 1, tx.slots.next);
	EXPECT_EQ(0, tx.nr_written);
	EXPECT_LT(0, refusals);
	TH_LOG("%llu messages by %llu commands, %llu refused", (unsigned long long)sent,
	       (unsigned long long)commands, (unsigned long long)refusals);
	free_lane();
}

static void *run_one(void *arg)
{
	return (void *)(intptr_t)try_to_send(arg);
}

/* Who finds no room for what is not sent yet learns that it is there again. */
TEST(room_that_is_taken_back)
{
	struct stamp s = { 0 };
	pthread_t thread;
	void *result;

	make_lane(1);
	ASSERT_FALSE(ring_mesh_settle(&tx));
	gate = CLOSED;
	ASSERT_EQ(0, pthread_create(&thread, NULL, run_one, &s));
	while (__atomic_load_n(&gate, __ATOMIC_ACQUIRE) != OCCUPIED)
		sched_yield();
	pthread_mutex_lock(&tx.lock);
	EXPECT_FALSE(ring_mesh_has_place(&tx));
	/* It cannot go on before this one waits. */
	__atomic_store_n(&gate, OPEN, __ATOMIC_RELEASE);
	EXPECT_TRUE(ring_mesh_settle(&tx));
	EXPECT_TRUE(ring_mesh_has_place(&tx));
	EXPECT_FALSE(ring_mesh_settle(&tx));
	pthread_mutex_unlock(&tx.lock);
	pthread_join(thread, &result);
	EXPECT_EQ(-EAGAIN, (intptr_t)result);
	EXPECT_EQ(1, tx.slots.next);
	free_lane();
}

TEST_HARNESS_MAIN
