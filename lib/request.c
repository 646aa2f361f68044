// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Requests: the queues of a world, and how they move.
 *
 * A world has one queue of collectives and, for each peer, one of sends and
 * one of receives. Only the head of a queue moves, so collectives happen and
 * complete in the order of issue, and messages in the order of issue between
 * two ranks; messages and collectives do not wait for each other. All of it
 * happens inside calls on the world, under its lock.
 */
#include <errno.h>
#include <stdlib.h>
#include "request.h"

static struct queue *queue_of(struct kcr_request *r)
{
	struct kcr_world *w = r->world;

	if (r->peer < 0)
		return &w->collectives;
	return r->m.send ? &w->sends[r->peer] : &w->receives[r->peer];
}

/* The request that @r waits behind, maybe itself. */
struct kcr_request *request_front(struct kcr_request *r)
{
	return queue_of(r)->head;
}

static void push(struct queue *q, struct kcr_request *r)
{
	r->next = NULL;
	if (q->tail)
		q->tail->next = r;
	else
		q->head = r;
	q->tail = r;
}

static void pop(struct queue *q)
{
	q->head = q->head->next;
	if (!q->head)
		q->tail = NULL;
}

static void complete(struct kcr_request *r, int err)
{
	r->err = err;
	r->is_done = true;
	if (!err && r->flag)
		*r->flag = r->byte;
	r->world->pending--;
	r->world->messages -= r->peer >= 0;
}

static void complete_queue(struct queue *q, int err)
{
	while (q->head) {
		struct kcr_request *r = q->head;

		pop(q);
		complete(r, err);
	}
}

/* The world has failed: so has everything that is on its way. */
void request_end_all(struct kcr_world *w)
{
	complete_queue(&w->collectives, w->failed);
	/* Both are missing, or one, if there was no memory for them. */
	if (!w->sends || !w->receives)
		return;
	for (int r = 0; r < w->config.size; r++) {
		complete_queue(&w->sends[r], w->failed);
		complete_queue(&w->receives[r], w->failed);
	}
}

/**
 * request_fail() - an operation has failed: so has the world, for all ranks
 * @r: the request
 * @err: with what; w->error says it
 *
 * Returns @err.
 */
int request_fail(struct kcr_request *r, int err)
{
	struct kcr_world *w = r->world;

	w->failed = err;
	if (err == -EPROTO)
		request_claim(r);
	/*
	 * A rank that left is seen by each rank for itself: those who still
	 * read its last data must be able to finish.
	 */
	if (err != -ESHUTDOWN)
		w->link->carrier->ops->fail(w->link, -err);
	request_end_all(w);
	return err;
}

/* Move one queue. Returns whether anything moved. */
static bool move_queue(struct queue *q)
{
	struct kcr_request *r;
	bool has_moved = false;
	int err;

	while ((r = q->head)) {
		rankset_clear(&r->blocked);
		r->has_moved = false;
		err = r->is_doomed ? -EAGAIN : r->advance(r) ?: link_drain(r);
		if (err == -EAGAIN) {
			if (r->has_moved) {
				r->began_ns = 0;
				r->looked_ns = 0;
			}
			return has_moved || r->has_moved;
		}
		has_moved = true;
		if (err) {
			request_fail(r, err);
			break;
		}
		pop(q);
		complete(r, 0);
	}
	return has_moved;
}

/**
 * request_progress() - take every request of a world as far as it goes now
 * @w: the world, locked
 *
 * Returns whether anything moved.
 */
bool request_progress(struct kcr_world *w)
{
	bool has_moved = move_queue(&w->collectives);

	for (int r = 0; w->messages && r < w->config.size; r++) {
		has_moved |= move_queue(&w->sends[r]);
		has_moved |= move_queue(&w->receives[r]);
	}
	return link_push(w->link) || has_moved;
}

/**
 * request_start() - number a request, queue it, and take a first step
 * @r: filled in but for number and state; must live until it is done
 *
 * Returns 0, or why the world has failed; then the request is not queued.
 */
int request_start(struct kcr_request *r)
{
	struct kcr_world *w = r->world;
	struct queue *q;
	int err;

	r->link = w->link;
	r->wires = link_wires(r);
	if (r->peer < 0)
		r->header.number = ++w->operation;
	else
		r->header.number = r->m.send ? ++w->link->peers[r->peer].sent :
					       ++w->link->peers[r->peer].received;
	err = link_check(r);
	if (err)
		return request_fail(r, err);
	/* Ranks differ: this one waits only to find out who. */
	r->is_doomed = r->differs_ns;
	q = queue_of(r);
	push(q, r);
	w->pending++;
	w->messages += r->peer >= 0;
	if (q->head == r)
		move_queue(q);
	if (!r->is_done)
		progress_thread_wake(w);
	return 0;
}

/**
 * request_own() - a request gets into the caller's hands, who waits for it later
 * @r: from malloc()
 *
 * The world remembers it, so that it outlives its world if need be.
 */
void request_own(struct kcr_request *r)
{
	r->next_owned = r->world->owned;
	r->world->owned = r;
}

static void disown(struct kcr_request *r)
{
	struct kcr_request **at = &r->world->owned;

	while (*at != r)
		at = &(*at)->next_owned;
	*at = r->next_owned;
}

/* The world goes: what is on its way fails, and nobody touches the world. */
void request_orphan_all(struct kcr_world *w)
{
	if (!w->failed)
		w->failed = kcr_fail(w, -ESHUTDOWN, "this rank left");
	request_end_all(w);
	for (struct kcr_request *r = w->owned; r; r = r->next_owned)
		r->world = NULL;
	w->owned = NULL;
}

static int check_owner(const struct kcr_request *r)
{
	if (!r)
		return kcr_fail(NULL, -EINVAL, "request is NULL");
	if (r->world && r->world->fork_generation != process_fork_generation())
		return kcr_fail(NULL, -EPERM,
				"this request belongs to the process that made it, not to a forked child");
	return 0;
}

KCR_PUBLIC int kcr_test(struct kcr_request *r, int *done)
{
	struct kcr_world *w;
	int err = check_owner(r);

	if (err)
		return err;
	if (!done)
		return kcr_fail(NULL, -EINVAL, "done is NULL");
	w = r->world;
	if (w)
		pthread_mutex_lock(&w->lock);
	if (w && !r->is_done)
		request_poll(r);
	*done = r->is_done;
	err = r->is_done ? r->err : 0;
	if (w)
		pthread_mutex_unlock(&w->lock);
	return err;
}

KCR_PUBLIC int kcr_wait(struct kcr_request *r)
{
	struct kcr_world *w;
	int err = check_owner(r);

	if (err)
		return err;
	w = r->world;
	if (w) {
		pthread_mutex_lock(&w->lock);
		if (!r->is_done)
			request_wait(r);
		disown(r);
		pthread_mutex_unlock(&w->lock);
	}
	err = r->err;
	free(r);
	return err;
}
