// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A thread that takes a world's requests further while the caller computes,
 * for those who ask for it.
 *
 * It holds the world's lock only while it moves requests, and sleeps on a
 * condition while there are none. It leaves the watchdog to those who wait.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "request.h"
#include "limits.h"

struct progress_thread {
	struct kcr_world *world;
	pthread_t thread;
	pthread_cond_t work;
	bool is_ending;		/* under the world's lock */
};

static void nap(unsigned int idle)
{
	struct timespec t = { .tv_nsec = PROGRESS_NAP_NS };

	if (idle < PROGRESS_YIELDS)
		sched_yield();
	else
		nanosleep(&t, NULL);
}

static void *run(void *arg)
{
	struct progress_thread *p = arg;
	struct kcr_world *w = p->world;
	unsigned int idle = 0;

	pthread_mutex_lock(&w->lock);
	while (!p->is_ending) {
		if (!w->pending) {
			pthread_cond_wait(&p->work, &w->lock);
			continue;
		}
		idle = request_progress(w) ? 0 : idle + 1;
		link_flush(w->link);
		pthread_mutex_unlock(&w->lock);
		nap(idle);
		pthread_mutex_lock(&w->lock);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* For a world that is connected. */
int progress_thread_start(struct kcr_world *w)
{
	struct progress_thread *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return kcr_fail(NULL, -ENOMEM, "no memory for a thread");
	p->world = w;
	pthread_cond_init(&p->work, NULL);
	err = process_thread(&p->thread, run, p);
	if (err) {
		pthread_cond_destroy(&p->work);
		free(p);
		return kcr_fail(NULL, -err, "no progress thread: %s",
				strerror(err));
	}
	w->progress_thread = p;
	return 0;
}

/* There is work; the world is locked. */
void progress_thread_wake(struct kcr_world *w)
{
	if (w->progress_thread)
		pthread_cond_signal(&w->progress_thread->work);
}

void progress_thread_stop(struct kcr_world *w)
{
	struct progress_thread *p = w->progress_thread;

	if (!p)
		return;
	pthread_mutex_lock(&w->lock);
	p->is_ending = true;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&w->lock);
	pthread_join(p->thread, NULL);
	pthread_cond_destroy(&p->work);
	free(p);
	w->progress_thread = NULL;
}
