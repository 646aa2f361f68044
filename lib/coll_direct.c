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
	int err;

	if (sent->segment == r->at.segments ||
	    sent->segment - r->at.folded.segment == board->slots.depth)
		return -EAGAIN;
	at = place(r, sent->segment, &bytes);
	err = coll_put(r, board, sent->segment, at, bytes);
	if (!err)
		sent->segment++;
	return err;
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
	err = coll_operands(r, false, folded->segment, bytes, in);
	if (err)
		return err;
	in[r->world->config.rank] = link_posted(&r->link->tx_board,
						r->at.sent.segment -
						folded->segment);
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
