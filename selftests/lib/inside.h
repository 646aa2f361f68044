/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ranks that are threads of the test, over a real link
 *
 * A world for each rank is made by a thread each, which ends then; the test has all of
 * them in its hands, and the memory that they map. What ranks must do together they do in
 * inside_each(), again by a thread each; what they do alone, the test does in their place,
 * one after another, so that nothing depends on time.
 *
 *	struct inside in;
 *
 *	ASSERT_EQ(0, inside_open(&in, 2));
 *	EXPECT_EQ(0, inside_each(&in, fn, arg));
 *	inside_close(&in);
 */
#ifndef KCR_TEST_INSIDE_H
#define KCR_TEST_INSIDE_H

#include <pthread.h>
#include "ranks.h"

#define INSIDE_MAX	8

struct inside;

struct inside_rank {
	struct inside *in;
	pthread_t thread;
	int rank;
	int result;
	struct kcr_world *w;
};

struct inside {
	struct ranks place;
	int n;
	uint64_t timeout_ms;		/* 0: the default */
	int progress_thread;
	struct inside_rank ranks[INSIDE_MAX];
	int (*fn)(int rank, struct kcr_world *w, void *arg);
	void *arg;
};

static inline void *inside_run(void *arg)
{
	struct inside_rank *r = arg;

	r->result = r->in->fn(r->rank, r->w, r->in->arg);
	return NULL;
}

/* Have each rank call @fn, all at once; returns how many returned something but 0. */
static inline int inside_each(struct inside *in,
			      int (*fn)(int rank, struct kcr_world *w, void *arg),
			      void *arg)
{
	int bad = 0, rank;

	in->fn = fn;
	in->arg = arg;
	for (rank = 0; rank < in->n; rank++) {
		in->ranks[rank].in = in;
		in->ranks[rank].rank = rank;
		if (pthread_create(&in->ranks[rank].thread, NULL, inside_run,
				   &in->ranks[rank]))
			abort();
	}
	for (rank = 0; rank < in->n; rank++) {
		pthread_join(in->ranks[rank].thread, NULL);
		bad += in->ranks[rank].result != 0;
	}
	return bad;
}

static inline int inside_come(int rank, struct kcr_world *w, void *arg)
{
	struct inside *in = arg;
	struct kcr_config config;
	char where[128];

	(void)w;
	kcr_config_init(&config);
	snprintf(where, sizeof(where), "file:%s", in->place.dir);
	config.rendezvous = where;
	config.rank = rank;
	config.size = in->n;
	config.local_rank = rank;
	config.local_size = in->n;
	if (in->timeout_ms)
		config.timeout_ms = in->timeout_ms;
	config.progress_thread = in->progress_thread;
	RANK_OK(NULL, kcr_world_create(&config, &in->ranks[rank].w));
	return 0;
}

/* In an &in that is zero but for what the test wants otherwise. */
static inline int inside_open(struct inside *in, int n)
{
	int err = ranks_init(&in->place, n);

	in->n = n;
	return err ? err : inside_each(in, inside_come, in);
}

static inline void inside_close(struct inside *in)
{
	int rank;

	for (rank = 0; rank < in->n; rank++)
		kcr_world_destroy(in->ranks[rank].w);
	if (*in->place.dir)
		ranks_remove_dir(&in->place);
	in->n = 0;
}

#endif /* KCR_TEST_INSIDE_H */
