// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Messages from one rank to one other, on lanes of their own.
 *
 * A message is its bytes in segments. It is sent when all are in slots of the
 * lane, so a long one needs a peer that receives.
 */
#include <errno.h>
#include "coll.h"

static size_t place(const struct kcr_request *r, size_t i, size_t *bytes)
{
	size_t start;

	kcr_shard_range(r->m.count, r->at.segments, i, &start, bytes);
	return start;
}

static int put(struct kcr_request *r)
{
	struct tx *lane = &r->link->peers[r->peer].tx[LANES_POINT];
	struct cursor *sent = &r->at.sent;
	size_t bytes, at;
	int err;

	if (sent->segment == r->at.segments)
		return -EAGAIN;
	at = place(r, sent->segment, &bytes);
	err = coll_put(r, lane, sent->segment, at, bytes);
	if (!err)
		sent->segment++;
	return err;
}

static int take(struct kcr_request *r)
{
	struct rx *lane = &r->link->peers[r->peer].rx[LANES_POINT];
	struct cursor *got = &r->at.got;
	size_t bytes, at;
	int err;

	if (got->segment == r->at.segments)
		return -EAGAIN;
	at = place(r, got->segment, &bytes);
	err = coll_take(r, lane, got->segment, at, bytes);
	if (!err)
		got->segment++;
	return err;
}

static void begin(struct kcr_request *r)
{
	struct tx *lane = &r->link->peers[r->peer].tx[LANES_POINT];

	r->at.segments = kcr_segments(r->m.count, link_room(lane));
	r->at.has_begun = true;
}

static bool is_sent(const struct kcr_request *r)
{
	return r->at.sent.segment == r->at.segments;
}

static bool is_received(const struct kcr_request *r)
{
	return r->at.got.segment == r->at.segments;
}

int coll_send(struct kcr_request *r)
{
	static const coll_step steps[] = { put, NULL };

	if (!r->at.has_begun)
		begin(r);
	return coll_run(r, steps, is_sent);
}

int coll_receive(struct kcr_request *r)
{
	static const coll_step steps[] = { take, NULL };

	if (!r->at.has_begun)
		begin(r);
	return coll_run(r, steps, is_received);
}
