// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Direct: everyone publishes its message on its board, segment by segment,
 * and folds everyone's in ascending rank. One exchange; each rank folds all.
 *
 * A rank's own operand is the copy on its board, so it publishes no further
 * ahead of its fold than the board is deep.
 *
 * The shape is that of JACCL's mesh allreduce for small messages, with the
 * order of the fold fixed.
 */
#include <errno.h>
#include "coll.h"

/* Segment @i of the message, as a place and a size in bytes. */
static size_t place(const struct kcr_request *r, size_t i, size_t *bytes)
{
	size_t start, count;

	kcr_shard_range(r->m.count, r->at.segments, i, &start, &count);
	*bytes = count * r->m.element;
	return start * r->m.element;
}

static int publish(struct kcr_request *r)
{
	struct tx *board = &r->link->tx_board;
	struct cursor *sent = &r->at.sent;
	size_t bytes, at;
	void *payload;
	int err;

	if (sent->segment == r->at.segments ||
	    sent->segment - r->at.folded.segment == board->slots.depth)
		return -EAGAIN;
	err = link_begin(r, board, sent->segment, &payload);
	if (err)
		return err;
	at = place(r, sent->segment, &bytes);
	err = user_read(r, at, payload, bytes);
	if (err)
		return err;
	link_post(r, board, bytes);
	sent->segment++;
	return 0;
}

/* Everyone's operand of a segment, by rank. */
static int operands(struct kcr_request *r, size_t i, size_t bytes,
		    const void *in[])
{
	int me = r->world->config.rank, result = 0, err;

	rankset_for_each(rank, &r->link->others) {
		err = link_peek(r, &r->link->peers[rank].rx_board, i, bytes,
				&in[rank]);
		if (err && err != -EAGAIN)
			return err;
		if (err)
			result = err;
	}
	in[me] = link_posted(&r->link->tx_board, r->at.sent.segment - i);
	return result;
}

static int fold(struct kcr_request *r)
{
	struct cursor *folded = &r->at.folded;
	const void *in[KCR_RANKS_MAX];
	struct fold_state state;
	size_t bytes, at;
	void *result;
	int err;

	if (folded->segment == r->at.sent.segment)
		return -EAGAIN;
	at = place(r, folded->segment, &bytes);
	err = operands(r, folded->segment, bytes, in);
	if (err)
		return err;
	if (bytes) {
		result = user_result(r, at);
		fold_enter(&state);
		r->m.fold->all(in, r->world->config.size, result,
			       bytes / r->m.element);
		fold_leave(&state);
		err = user_result_done(r, at, result, bytes);
		if (err)
			return err;
	}
	rankset_for_each(rank, &r->link->others)
		link_release(r, &r->link->peers[rank].rx_board);
	folded->segment++;
	return 0;
}

static bool is_over(const struct kcr_request *r)
{
	return r->at.folded.segment == r->at.segments;
}

int coll_direct(struct kcr_request *r)
{
	static const coll_step steps[] = { publish, fold, NULL };
	size_t room = link_room(&r->link->tx_board);

	if (!r->at.has_begun) {
		r->at.has_begun = true;
		r->at.segments = kcr_segments(r->m.count, room / r->m.element);
	}
	return coll_run(r, steps, is_over);
}
