// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A descriptor that is readable while a ring has something to poll.
 *
 * A thread sleeps as kcr_ring_wait() does. When there is something it makes the
 * descriptor readable, then waits until a poll has left nothing, which makes the
 * descriptor unreadable and sends the thread back to sleep: so who polls all the time
 * has nothing to do with it.
 *
 * ring_watch.lock protects both states, and what they say of the descriptor.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "limits.h"
#include "ring.h"

struct ring_watch {
	struct kcr_ring *ring;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t drained;
	int fd;
	bool is_readable;
	bool is_ending;		/* atomic: the thread reads it as it lies down */
};

/* The watch's wait. */
struct watching {
	struct ring_wait wait;
	const struct ring_watch *watch;
};

static int64_t look(struct ring_wait *wait)
{
	const struct ring_watch *watch = ((struct watching *)wait)->watch;

	if (__atomic_load_n(&watch->is_ending, __ATOMIC_ACQUIRE))
		return 0;
	return ring_look_for_any(wait);
}

static void raise_flag(struct ring_watch *watch)
{
	watch->is_readable = true;
	/* It can only be full, and then it is readable. */
	(void)!eventfd_write(watch->fd, 1);
}

static void *run(void *arg)
{
	struct ring_watch *watch = arg;
	struct watching w = {
		.wait = {
			.ring = watch->ring,
			.limit_ns = UINT64_MAX,
			.attempt = look,
		},
		.watch = watch,
	};

	pthread_mutex_lock(&watch->lock);
	while (!watch->is_ending) {
		if (watch->is_readable) {
			pthread_cond_wait(&watch->drained, &watch->lock);
			continue;
		}
		pthread_mutex_unlock(&watch->lock);
		/* An error is something to be told, too. */
		ring_wait_asleep(&w.wait);
		pthread_mutex_lock(&watch->lock);
		raise_flag(watch);
	}
	pthread_mutex_unlock(&watch->lock);
	return NULL;
}

static int start(struct ring_watch *watch)
{
	int err;

	watch->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (watch->fd < 0)
		return kcr_fail(NULL, -errno, "ring %u: no descriptor: %s",
				watch->ring->number, strerror(errno));
	pthread_mutex_init(&watch->lock, NULL);
	pthread_cond_init(&watch->drained, NULL);
	err = process_thread(&watch->thread, run, watch);
	if (!err)
		return 0;
	pthread_cond_destroy(&watch->drained);
	pthread_mutex_destroy(&watch->lock);
	close(watch->fd);
	return kcr_fail(NULL, -err, "ring %u: no thread: %s", watch->ring->number,
			strerror(err));
}

/* With the watch lock. Returns the descriptor or an error. */
static int make(struct kcr_ring *ring)
{
	struct ring_watch *watch = ring->watch;
	int err;

	if (watch)
		return watch->fd;
	watch = calloc(1, sizeof(*watch));
	if (!watch)
		return kcr_fail(NULL, -ENOMEM, "no memory for a thread");
	watch->ring = ring;
	err = start(watch);
	if (err) {
		free(watch);
		return err;
	}
	__atomic_store_n(&ring->watch, watch, __ATOMIC_RELEASE);
	return watch->fd;
}

KCR_PUBLIC int kcr_ring_fd(struct kcr_ring *ring)
{
	int result = ring_enter(ring);

	if (result)
		return result;
	if (!ring->rx_count)
		return kcr_fail(NULL, -ENXIO, "ring %u: no lane leads to rank %d",
				ring->number, ring->rank);
	pthread_mutex_lock(&ring->watch_lock);
	result = make(ring);
	pthread_mutex_unlock(&ring->watch_lock);
	return result;
}

/* A poll has delivered what it found. */
void ring_watch_drained(struct kcr_ring *ring)
{
	struct ring_watch *watch = __atomic_load_n(&ring->watch, __ATOMIC_ACQUIRE);
	eventfd_t value;

	if (!watch)
		return;
	pthread_mutex_lock(&watch->lock);
	if (watch->is_readable && !ring_has_any(ring)) {
		(void)!eventfd_read(watch->fd, &value);
		watch->is_readable = false;
		pthread_cond_signal(&watch->drained);
	}
	pthread_mutex_unlock(&watch->lock);
}

/* Nobody uses the ring any more. The descriptor stays, and says that there is news. */
void ring_watch_stop(struct kcr_ring *ring)
{
	struct ring_watch *watch = ring->watch;

	if (!watch || watch->is_ending)
		return;
	pthread_mutex_lock(&watch->lock);
	__atomic_store_n(&watch->is_ending, true, __ATOMIC_RELEASE);
	raise_flag(watch);
	pthread_cond_signal(&watch->drained);
	pthread_mutex_unlock(&watch->lock);
	ring->link->carrier->ops->rings->kick(ring->link, ring->rank);
	pthread_join(watch->thread, NULL);
	pthread_cond_destroy(&watch->drained);
	pthread_mutex_destroy(&watch->lock);
}

/* It has stopped, or this is a child that does not have its thread. */
void ring_watch_free(struct kcr_ring *ring)
{
	struct ring_watch *watch = ring->watch;

	if (!watch)
		return;
	close(watch->fd);
	free(watch);
	ring->watch = NULL;
}
