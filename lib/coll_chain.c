// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Chain: partial results travel 0 -> 1 -> ... -> size - 1, each rank folding
 * its operand into what it passes on; results travel back. Each rank talks to
 * two others only. Cut into segments: one is folded while the next travels,
 * and the first results are back while the last operands are still on their way.
 *
 * The classic rotating ring starts each chunk's fold at another rank; this
 * is the ring that keeps the order. It descends from nexar's pipelined ring.
 * For 16-bit floats a partial result is in f32.
 */
#include <errno.h>
#include <string.h>
#include "coll.h"

static size_t place(const struct kcr_request *r, size_t i, size_t *count)
{
	size_t start;

	kcr_shard_range(r->m.count, r->at.segments, i, &start, count);
	return start * r->m.element;
}

static struct tx *lane_to(struct kcr_request *r, int rank)
{
	return &r->link->peers[rank].tx[LANES_COLLECTIVE];
}

static struct rx *lane_from(struct kcr_request *r, int rank)
{
	return &r->link->peers[rank].rx[LANES_COLLECTIVE];
}

/* The first rank starts the fold of a segment. */
static int start(struct kcr_request *r, size_t i, size_t at, size_t count)
{
	const struct fold *fold = r->m.fold;
	struct tx *up = lane_to(r, 1);
	struct fold_state state;
	const void *operand;
	void *partial;
	int err;

	err = link_begin(r, up, i, count * fold->partial, &partial);
	if (!err)
		err = user_operand(r, at, count * r->m.element, &operand);
	if (err)
		return err;
	fold_enter(&state);
	fold->start(partial, operand, count);
	fold_leave(&state);
	link_post(r, up);
	return 0;
}

/*
 * What a rank behind the first needs for a segment: the partial result from
 * below, its own operand, and a frame of @bytes for what it makes of them.
 */
static int gather_inputs(struct kcr_request *r, struct tx *to, size_t i,
			 size_t at, size_t count, size_t bytes,
			 const void **before, const void **operand,
			 void **payload)
{
	struct rx *down = lane_from(r, r->world->config.rank - 1);
	int err;

	err = link_peek(r, down, i, count * r->m.fold->partial, before);
	if (!err)
		err = link_begin(r, to, i, bytes, payload);
	if (!err)
		err = user_operand(r, at, count * r->m.element, operand);
	return err;
}

/* A rank in between takes the partial result one step further. */
static int pass(struct kcr_request *r, size_t i, size_t at, size_t count)
{
	const struct fold *fold = r->m.fold;
	int me = r->world->config.rank;
	struct tx *up = lane_to(r, me + 1);
	struct fold_state state;
	const void *before, *operand;
	void *partial;
	int err;

	err = gather_inputs(r, up, i, at, count, count * fold->partial, &before,
			    &operand, &partial);
	if (err)
		return err;
	memcpy(partial, before, count * fold->partial);
	fold_enter(&state);
	fold->step(partial, operand, count);
	fold_leave(&state);
	link_post(r, up);
	link_release(r, lane_from(r, me - 1));
	return 0;
}

/* The last one finishes it and sends the result back. */
static int finish(struct kcr_request *r, size_t i, size_t at, size_t count)
{
	const struct fold *fold = r->m.fold;
	int me = r->world->config.rank;
	struct tx *back = lane_to(r, me - 1);
	void *partial = r->world->scratch, *result;
	struct fold_state state;
	const void *before, *operand;
	int err;

	err = gather_inputs(r, back, i, at, count, count * r->m.element,
			    &before, &operand, &result);
	if (err)
		return err;
	memcpy(partial, before, count * fold->partial);
	fold_enter(&state);
	fold->step(partial, operand, count);
	fold->finish(result, partial, me + 1, count);
	fold_leave(&state);
	link_post(r, back);
	link_release(r, lane_from(r, me - 1));
	return user_write(r, at, result, count * r->m.element);
}

static int forward(struct kcr_request *r)
{
	struct cursor *sent = &r->at.sent;
	int me = r->world->config.rank;
	size_t count, at;
	int err;

	if (sent->segment == r->at.segments)
		return -EAGAIN;
	at = place(r, sent->segment, &count);
	if (!me)
		err = start(r, sent->segment, at, count);
	else if (me < r->world->config.size - 1)
		err = pass(r, sent->segment, at, count);
	else
		err = finish(r, sent->segment, at, count);
	if (!err)
		sent->segment++;
	return err;
}

/* A result arrives from above, and goes on below. */
static int backward(struct kcr_request *r)
{
	struct cursor *got = &r->at.got;
	int me = r->world->config.rank;
	struct rx *above = lane_from(r, me + 1);
	struct tx *below = me ? lane_to(r, me - 1) : NULL;
	const void *result;
	size_t count, at, bytes;
	void *payload;
	int err;

	/* Not before this rank's operand is in: so only neighbours that are late are named. */
	if (got->segment == r->at.sent.segment)
		return -EAGAIN;
	at = place(r, got->segment, &count);
	bytes = count * r->m.element;
	err = link_peek(r, above, got->segment, bytes, &result);
	if (!err && below)
		err = link_begin(r, below, got->segment, bytes, &payload);
	if (err)
		return err;
	if (below) {
		memcpy(payload, result, bytes);
		link_post(r, below);
	}
	err = user_write(r, at, result, bytes);
	if (err)
		return err;
	link_release(r, above);
	got->segment++;
	return 0;
}

static bool is_over(const struct kcr_request *r)
{
	if (r->world->config.rank == r->world->config.size - 1)
		return r->at.sent.segment == r->at.segments;
	return r->at.got.segment == r->at.segments;
}

int coll_chain(struct kcr_request *r)
{
	static const coll_step inner[] = { forward, backward, NULL };
	static const coll_step last[] = { forward, NULL };
	int me = r->world->config.rank;

	if (!r->at.has_begun) {
		struct tx *lane = lane_to(r, me ? me - 1 : 1);

		r->at.has_begun = true;
		r->at.segments = kcr_segments(r->m.count, link_room(lane) /
					      r->m.fold->partial);
	}
	return coll_run(r, me == r->world->config.size - 1 ? last : inner,
			is_over);
}
