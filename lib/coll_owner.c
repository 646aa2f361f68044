// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Owner: rank r receives every rank's shard r, folds it in ascending rank
 * and publishes the result, which the others gather. Each rank folds one
 * shard only.
 *
 * Shards are cut into the same number of segments. In each step a rank sends
 * the next segment of every shard to its owner, folds this segment of its
 * own, and gathers the previous segment of the others'. Each part waits only for
 * parts that come earlier in this order on the other ranks, given two slots a
 * channel, so nothing can block in a circle.
 */
#include <string.h>
#include "coll.h"

struct plan {
	const struct message *m;
	size_t segments;
};

/* Segment @i of shard @r, as a place and a size in bytes. */
static size_t place(const struct op *op, const struct plan *plan, int r,
		    size_t i, size_t *bytes)
{
	size_t shard, len, start, count;

	kcr_shard_range(plan->m->count, op->world->config.size, r, &shard, &len);
	kcr_shard_range(len, plan->segments, i, &start, &count);
	*bytes = count * op->element;
	return (shard + start) * op->element;
}

static int scatter(struct op *op, const struct plan *plan, size_t i)
{
	for (uint64_t rest = op->link->others; rest; rest &= rest - 1) {
		int r = __builtin_ctzll(rest);
		struct tx *lane = &op->link->tx_lane[r];
		size_t bytes, at = place(op, plan, r, i, &bytes);
		void *payload;
		int err = link_begin(op, lane, i, &payload);

		if (err)
			return err;
		memcpy(payload, plan->m->send + at, bytes);
		link_post(op, lane, bytes);
	}
	return 0;
}

static int fold_own(struct op *op, const struct plan *plan, size_t i)
{
	const int size = op->world->config.size, me = op->world->config.rank;
	struct tx *board = &op->link->tx_board;
	size_t bytes, at = place(op, plan, me, i, &bytes);
	const void *in[KCR_RANKS_MAX];
	void *result;
	int err;

	for (int r = 0; r < size; r++) {
		if (r == me) {
			in[r] = plan->m->send + at;
			continue;
		}
		err = link_peek(op, &op->link->rx_lane[r], i, bytes, &in[r]);
		if (err)
			return err;
	}
	err = link_begin(op, board, i, &result);
	if (err)
		return err;
	fold_run(plan->m->fold, in, size, result, bytes / op->element);
	link_post(op, board, bytes);
	memcpy(plan->m->recv + at, result, bytes);
	for (uint64_t rest = op->link->others; rest; rest &= rest - 1)
		link_release(op, &op->link->rx_lane[__builtin_ctzll(rest)]);
	return 0;
}

static int gather(struct op *op, const struct plan *plan, size_t i)
{
	for (uint64_t rest = op->link->others; rest; rest &= rest - 1) {
		int r = __builtin_ctzll(rest);
		struct rx *board = &op->link->rx_board[r];
		size_t bytes, at = place(op, plan, r, i, &bytes);
		const void *payload;
		int err = link_peek(op, board, i, bytes, &payload);

		if (err)
			return err;
		memcpy(plan->m->recv + at, payload, bytes);
		link_release(op, board);
	}
	return 0;
}

int coll_owner(struct op *op, const struct message *m)
{
	size_t lane = link_room(&op->link->tx_lane[op->world->config.rank ? 0 : 1]);
	size_t board = link_room(&op->link->tx_board);
	size_t most = (lane < board ? lane : board) / op->element;
	struct plan plan = { .m = m };
	size_t start, longest;
	int err;

	/* Shard 0 is never shorter than another. */
	kcr_shard_range(m->count, op->world->config.size, 0, &start, &longest);
	plan.segments = kcr_segments(longest, most);
	err = scatter(op, &plan, 0);
	for (size_t i = 0; !err && i <= plan.segments; i++) {
		if (i + 1 < plan.segments)
			err = scatter(op, &plan, i + 1);
		if (!err && i < plan.segments)
			err = fold_own(op, &plan, i);
		if (!err && i)
			err = gather(op, &plan, i - 1);
	}
	return err;
}
