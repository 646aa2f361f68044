// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * All-gather and broadcast: what is published on a board and taken by all.
 *
 * In all-gather every rank publishes its elements; in broadcast the root does.
 * Segments of all ranks are taken in turn. In place, a rank's own elements are
 * where they belong already.
 */
#include <errno.h>
#include "coll.h"

static bool publishes(const struct kcr_request *r, int rank)
{
	return r->header.kind == KIND_ALLGATHER || (int)r->header.root == rank;
}

/* Segment @i, as a place in a rank's elements and a size in bytes. */
static size_t place(const struct kcr_request *r, size_t i, size_t *bytes)
{
	size_t start, count;

	kcr_shard_range(r->m.count, r->at.segments, i, &start, &count);
	*bytes = count * r->m.element;
	return start * r->m.element;
}

/* Where a rank's elements begin in the receive buffer. */
static size_t home(const struct kcr_request *r, int rank)
{
	return r->header.kind == KIND_ALLGATHER ?
	       rank * r->m.count * r->m.element : 0;
}

static int publish(struct kcr_request *r)
{
	struct tx *board = &r->link->tx_board;
	struct cursor *sent = &r->at.sent;
	int me = r->world->config.rank;
	size_t bytes, at;
	void *payload;
	int err;

	if (sent->segment == r->at.segments)
		return -EAGAIN;
	at = place(r, sent->segment, &bytes);
	err = link_begin(r, board, sent->segment, bytes, &payload);
	if (err)
		return err;
	err = user_read(r, at, payload, bytes);
	if (!err && bytes && r->m.recv + home(r, me) != r->m.send)
		err = user_write(r, home(r, me) + at, payload, bytes);
	if (err)
		return err;
	link_post(r, board);
	sent->segment++;
	return 0;
}

/* The next rank, from @rank on, whose elements are taken, or -1. */
static int next_source(const struct kcr_request *r, int rank)
{
	for (; rank < r->world->config.size; rank++)
		if (rank != r->world->config.rank && publishes(r, rank))
			return rank;
	return -1;
}

static int take(struct kcr_request *r)
{
	struct cursor *got = &r->at.got;
	size_t bytes, at;
	int err;

	if (got->segment == r->at.segments)
		return -EAGAIN;
	at = home(r, got->rank) + place(r, got->segment, &bytes);
	err = coll_take(r, &r->link->peers[got->rank].rx_board, got->segment, at,
			bytes);
	if (err)
		return err;
	got->rank = next_source(r, got->rank + 1);
	if (got->rank < 0) {
		got->rank = next_source(r, 0);
		got->segment++;
	}
	return 0;
}

static void begin(struct kcr_request *r)
{
	r->at.segments = kcr_segments(r->m.count, link_room(&r->link->tx_board) /
				      r->m.element);
	/* What this rank does not do is done. */
	if (!publishes(r, r->world->config.rank))
		r->at.sent.segment = r->at.segments;
	r->at.got.rank = next_source(r, 0);
	if (r->at.got.rank < 0)
		r->at.got.segment = r->at.segments;
	r->at.has_begun = true;
}

static bool is_over(const struct kcr_request *r)
{
	return r->at.sent.segment == r->at.segments &&
	       r->at.got.segment == r->at.segments;
}

int coll_gather(struct kcr_request *r)
{
	static const coll_step steps[] = { publish, take, NULL };

	if (!r->at.has_begun)
		begin(r);
	return coll_run(r, steps, is_over);
}
