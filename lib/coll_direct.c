// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Direct: everyone publishes its message on its board, segment by segment,
 * and folds everyone's in ascending rank. One exchange; each rank folds all.
 *
 * The shape is that of JACCL's mesh allreduce for small messages, with the
 * order of the fold fixed.
 */
#include <string.h>
#include "coll.h"

struct segment {
	size_t index;
	size_t at, bytes;	/* of the message, in bytes */
	size_t count;		/* elements */
};

static int publish(struct op *op, const struct message *m,
		   const struct segment *s)
{
	struct tx *board = &op->link->tx_board;
	void *payload;
	int err = link_begin(op, board, s->index, &payload);

	if (err)
		return err;
	if (s->bytes)
		memcpy(payload, m->send + s->at, s->bytes);
	link_post(op, board, s->bytes);
	return 0;
}

static int fold_all(struct op *op, const struct message *m,
		    const struct segment *s)
{
	const int size = op->world->config.size, me = op->world->config.rank;
	const void *in[KCR_RANKS_MAX];
	int err;

	for (int r = 0; r < size; r++) {
		if (r == me) {
			in[r] = s->bytes ? m->send + s->at : NULL;
			continue;
		}
		err = link_peek(op, &op->link->rx_board[r], s->index, s->bytes,
				&in[r]);
		if (err)
			return err;
	}
	if (s->count)
		fold_run(m->fold, in, size, m->recv + s->at, s->count);
	for (int r = 0; r < size; r++)
		if (r != me)
			link_release(op, &op->link->rx_board[r]);
	return 0;
}

/* Segment i + 1 is on its way while segment i is folded, so boards are two slots deep. */
int coll_direct(struct op *op, const struct message *m)
{
	size_t most = link_room(&op->link->tx_board) / op->element;
	size_t segments = kcr_segments(m->count, most);
	struct segment ahead, now;
	int err = 0;

	for (size_t i = 0; !err && i <= segments; i++) {
		now = ahead;
		if (i < segments) {
			size_t start;

			kcr_shard_range(m->count, segments, i, &start,
					&ahead.count);
			ahead.index = i;
			ahead.at = start * op->element;
			ahead.bytes = ahead.count * op->element;
			err = publish(op, m, &ahead);
		}
		if (!err && i)
			err = fold_all(op, m, &now);
	}
	return err;
}
