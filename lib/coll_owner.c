// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Owner: rank r receives every rank's shard r, folds it in ascending rank
 * and publishes the result, which the others gather. Each rank folds one
 * shard only. Reduce-scatter is its first half: the result stays with its owner.
 *
 * Shards are cut into the same number of segments. Scattering runs ahead as
 * far as lanes are deep; results of a segment are gathered once this rank has
 * folded its own of the same segment. Each step waits for steps that come
 * earlier in the order scatter i + 1, fold i, gather i - 1 on the other ranks,
 * given two slots a channel, so nothing can block in a circle.
 *
 * Under any-order the owner folds operands as they arrive; nothing else
 * changes, and all ranks still get the same bits as one another.
 */
#include <errno.h>
#include <string.h>
#include "coll.h"

/* Segment @i of shard @rank, as a place and a size in bytes. */
static size_t place(const struct kcr_request *r, int rank, size_t i,
		    size_t *bytes)
{
	size_t shard, len, start, count;

	if (r->header.kind == KIND_REDUCE_SCATTER) {
		len = r->m.count;
		shard = rank * len;
	} else {
		kcr_shard_range(r->m.count, r->world->config.size, rank,
				&shard, &len);
	}
	kcr_shard_range(len, r->at.segments, i, &start, &count);
	*bytes = count * r->m.element;
	return (shard + start) * r->m.element;
}

/* The next peer of a segment, or the first of the next segment. */
static void move_on(struct kcr_request *r, struct cursor *c)
{
	c->rank = rankset_next(&r->link->others, c->rank + 1);
	if (c->rank >= 0)
		return;
	c->rank = rankset_next(&r->link->others, 0);
	c->segment++;
}

static int scatter(struct kcr_request *r)
{
	struct cursor *sent = &r->at.sent;
	size_t bytes, at;
	int err;

	if (sent->segment == r->at.segments)
		return -EAGAIN;
	at = place(r, sent->rank, sent->segment, &bytes);
	err = coll_put(r, &r->link->peers[sent->rank].tx[LANES_COLLECTIVE],
		       sent->segment, at, bytes);
	if (!err)
		move_on(r, sent);
	return err;
}

/* Where the result goes: to the board, or home if nobody else wants it. */
static int begin_result(struct kcr_request *r, size_t i, size_t at,
			size_t bytes, void **result)
{
	if (r->header.kind != KIND_REDUCE_SCATTER)
		return link_begin(r, &r->link->tx_board, i, bytes, result);
	*result = user_result(r, at);
	return 0;
}

static int end_result(struct kcr_request *r, size_t at, const void *result,
		      size_t bytes)
{
	if (r->header.kind == KIND_REDUCE_SCATTER)
		return user_result_done(r, at, result, bytes);
	link_post(r, &r->link->tx_board);
	return user_write(r, at, result, bytes);
}

/* Where this rank's own segment goes in the receive buffer. */
static size_t home(const struct kcr_request *r, size_t at)
{
	size_t shard = r->world->config.rank * r->m.count * r->m.element;

	return r->header.kind == KIND_REDUCE_SCATTER ? at - shard : at;
}

static int fold_in_order(struct kcr_request *r)
{
	struct cursor *folded = &r->at.folded;
	const int me = r->world->config.rank;
	const void *in[KCR_RANKS_MAX];
	struct fold_state state;
	size_t bytes, at;
	void *result;
	int err;

	if (folded->segment == r->at.segments)
		return -EAGAIN;
	at = place(r, me, folded->segment, &bytes);
	err = coll_operands(r, true, folded->segment, bytes, in);
	if (!err)
		err = begin_result(r, folded->segment, home(r, at), bytes,
				   &result);
	if (!err)
		err = user_operand(r, at, bytes, &in[me]);
	if (err)
		return err;
	fold_enter(&state);
	r->m.fold->all(in, r->world->config.size, result, bytes / r->m.element);
	fold_leave(&state);
	err = end_result(r, home(r, at), result, bytes);
	if (err)
		return err;
	rankset_for_each(rank, &r->link->others)
		link_release(r, &r->link->peers[rank].rx[LANES_COLLECTIVE]);
	folded->segment++;
	return 0;
}

/* One more operand of the segment into the scratch. */
static void take_operand(struct kcr_request *r, const void *operand, size_t n)
{
	void *partial = r->world->scratch;
	struct fold_state state;

	fold_enter(&state);
	if (rankset_is_empty(&r->at.arrived))
		r->m.fold->start(partial, operand, n);
	else
		r->m.fold->step(partial, operand, n);
	fold_leave(&state);
}

/* Operands of others, as they come. 0 when all are in. */
static int take_arrived(struct kcr_request *r, size_t i, size_t bytes)
{
	const void *operand;
	int result = 0, err;

	rankset_for_each(rank, &r->link->others) {
		struct rx *lane = &r->link->peers[rank].rx[LANES_COLLECTIVE];

		if (rankset_has(&r->at.arrived, rank))
			continue;
		err = link_peek(r, lane, i, bytes, &operand);
		if (err && err != -EAGAIN)
			return err;
		if (err) {
			result = err;
			continue;
		}
		take_operand(r, operand, bytes / r->m.element);
		rankset_add(&r->at.arrived, rank);
		link_release(r, lane);
		r->has_moved = true;
	}
	return result;
}

static int fold_any_order(struct kcr_request *r)
{
	struct cursor *folded = &r->at.folded;
	const int me = r->world->config.rank;
	struct fold_state state;
	const void *operand;
	size_t bytes, at;
	void *result;
	int err = 0;

	if (folded->segment == r->at.segments)
		return -EAGAIN;
	at = place(r, me, folded->segment, &bytes);
	if (!rankset_has(&r->at.arrived, me)) {
		err = user_operand(r, at, bytes, &operand);
		if (err)
			return err;
		take_operand(r, operand, bytes / r->m.element);
		rankset_add(&r->at.arrived, me);
	}
	err = take_arrived(r, folded->segment, bytes);
	if (!err)
		err = begin_result(r, folded->segment, home(r, at), bytes,
				   &result);
	if (err)
		return err;
	fold_enter(&state);
	r->m.fold->finish(result, r->world->scratch, r->world->config.size,
			  bytes / r->m.element);
	fold_leave(&state);
	rankset_clear(&r->at.arrived);
	folded->segment++;
	return end_result(r, home(r, at), result, bytes);
}

static int fold(struct kcr_request *r)
{
	return r->world->config.contract == KCR_ANY_ORDER ? fold_any_order(r) :
							     fold_in_order(r);
}

static int gather(struct kcr_request *r)
{
	struct cursor *got = &r->at.got;
	size_t bytes, at;
	int err;

	if (got->segment == r->at.folded.segment)
		return -EAGAIN;
	at = place(r, got->rank, got->segment, &bytes);
	err = coll_take(r, &r->link->peers[got->rank].rx_board, got->segment, at,
			bytes);
	if (!err)
		move_on(r, got);
	return err;
}

static void begin(struct kcr_request *r)
{
	int peer = rankset_next(&r->link->others, 0);
	size_t lane = link_room(&r->link->peers[peer].tx[LANES_COLLECTIVE]);
	size_t board = link_room(&r->link->tx_board);
	size_t start, longest = r->m.count;

	/* Shard 0 is never shorter than another. */
	if (r->header.kind != KIND_REDUCE_SCATTER)
		kcr_shard_range(r->m.count, r->world->config.size, 0, &start,
				&longest);
	r->at.segments = kcr_segments(longest, (lane < board ? lane : board) /
				      r->m.element);
	r->at.sent.rank = peer;
	r->at.got.rank = peer;
	r->at.has_begun = true;
}

static bool all_is_gathered(const struct kcr_request *r)
{
	return r->at.got.segment == r->at.segments;
}

int coll_owner(struct kcr_request *r)
{
	static const coll_step steps[] = { scatter, fold, gather, NULL };

	if (!r->at.has_begun)
		begin(r);
	return coll_run(r, steps, all_is_gathered);
}

static bool own_is_folded(const struct kcr_request *r)
{
	return r->at.folded.segment == r->at.segments &&
	       r->at.sent.segment == r->at.segments;
}

int coll_reduce_scatter(struct kcr_request *r)
{
	static const coll_step steps[] = { scatter, fold, NULL };

	if (!r->at.has_begun)
		begin(r);
	return coll_run(r, steps, own_is_folded);
}
