// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * What ends an operation that cannot go on: the world has failed, a peer has
 * left, or a peer has called something else.
 */
#include <errno.h>
#include <string.h>
#include "limits.h"
#include "link_mesh.h"
#include "request.h"

/**
 * link_look() - see who has died, if nobody has looked for a while
 * @link: the link
 *
 * For a carrier that sees it only where it looks; by any thread, as often as it likes.
 */
void link_look(struct link *link)
{
	uint64_t now;

	if (!link->carrier->ops->look)
		return;
	now = process_coarse_ns();
	if (now - __atomic_load_n(&link->looked_ns, __ATOMIC_RELAXED) < LOOK_NS)
		return;
	__atomic_store_n(&link->looked_ns, now, __ATOMIC_RELAXED);
	link->carrier->ops->look(link);
}

static const char *op_text(const struct frame_header *h, char *text, size_t size)
{
	int n = snprintf(text, size, "%s #%llu", kcr_kind_text(h->kind),
			 (unsigned long long)h->number);

	switch (h->kind) {
	case KIND_ALLREDUCE:
	case KIND_REDUCE_SCATTER:
		snprintf(text + n, size - n, " (%llu %s, %s)",
			 (unsigned long long)h->count, kcr_dtype_text(h->dtype),
			 kcr_op_text(h->op));
		break;
	case KIND_ALLGATHER:
		snprintf(text + n, size - n, " (%llu %s)",
			 (unsigned long long)h->count, kcr_dtype_text(h->dtype));
		break;
	case KIND_BROADCAST:
		snprintf(text + n, size - n, " (%llu %s, root %u)",
			 (unsigned long long)h->count, kcr_dtype_text(h->dtype),
			 h->root);
		break;
	case KIND_MESSAGE:
		snprintf(text + n, size - n, " (%llu bytes)",
			 (unsigned long long)h->count);
		break;
	default:
		break;
	}
	return text;
}

/**
 * link_mismatch() - two ranks have called different operations
 * @r: this rank's request
 * @peer: the other rank
 * @theirs: the header of its frame
 *
 * Returns -EPROTO with both named.
 */
int link_mismatch(struct kcr_request *r, int peer,
		  const struct frame_header *theirs)
{
	struct frame_header copy = *theirs;
	char mine_text[96], their_text[96];

	return kcr_fail(r->world, -EPROTO,
			"ranks differ: rank %d called %s, rank %d called %s",
			r->world->config.rank,
			op_text(&r->header, mine_text, sizeof(mine_text)),
			peer, op_text(&copy, their_text, sizeof(their_text)));
}

/* Does what the peer called, segments aside, differ from this request? */
static int compare(struct kcr_request *r, int peer,
		   const struct frame_header *theirs)
{
	r->header.segment = theirs->segment;
	if (!memcmp(theirs, &r->header, sizeof(*theirs)))
		return 0;
	return link_mismatch(r, peer, theirs);
}

/*
 * A peer that called something else may have sent it down a channel that this
 * request does not look at: the head of every channel must belong to this
 * operation or to one that is still to come.
 */
static int compare_head(struct kcr_request *r, int rank,
			const struct frame_header *head)
{
	struct frame_header theirs;

	if (!head)
		return 0;
	theirs = *head;
	return theirs.number <= r->header.number ? compare(r, rank, &theirs) : 0;
}

static int compare_slots(struct kcr_request *r, int rank)
{
	struct peer *peer = &r->link->peers[rank];
	struct rx *heads[] = { &peer->rx_board, &peer->rx[LANES_COLLECTIVE] };
	int err = 0;

	for (int i = 0; i < 2 && !err; i++)
		if (link_has_frame(heads[i]))
			err = compare_head(r, rank, link_header(heads[i]));
	return err;
}

/* Over the mesh a channel has many rings, by wire and class. */
static int compare_rings(struct kcr_request *r, struct mesh_peer *peer)
{
	const int rings = (STREAM_LANES + LANES_COLLECTIVE + 1) * KCR_CLASSES;
	int err = 0;

	for (int wire = 0; wire < r->link->mesh->wires; wire++) {
		const struct mesh_ring *ring = &peer->conns[wire].rings[0][0];

		for (int i = 0; i < rings && !err; i++)
			err = compare_head(r, peer->rank, mesh_head(&ring[i]));
	}
	return err;
}

static int compare_heads(struct kcr_request *r, int rank)
{
	struct mesh_peer *peer = r->link->peers[rank].rx_board.mesh;

	return r->link->mesh && peer ? compare_rings(r, peer) : compare_slots(r, rank);
}

static void load_claim(const struct kcr_claim *from, struct kcr_claim *to)
{
	to->number = __atomic_load_n(&from->number, __ATOMIC_ACQUIRE);
	to->since_ns = __atomic_load_n(&from->since_ns, __ATOMIC_RELAXED);
	to->count = __atomic_load_n(&from->count, __ATOMIC_RELAXED);
	to->kind = __atomic_load_n(&from->kind, __ATOMIC_RELAXED);
	to->detail = __atomic_load_n(&from->detail, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
}

/*
 * Or it may have sent nothing, because it waits as well: two ranks that each take
 * the other for the root of a broadcast. Then its claim tells. One that reads
 * the same twice was not being written. That a rank was in an operation stays
 * true, however old its claim is.
 */
static int compare_claim(struct kcr_request *r, int rank)
{
	const struct kcr_claim *shared =
		(const struct kcr_claim *)r->link->peers[rank].board;
	struct frame_header theirs = r->header;
	struct kcr_claim claim, again;

	load_claim(shared, &claim);
	load_claim(shared, &again);
	if (memcmp(&claim, &again, sizeof(claim)) || !claim.number ||
	    claim.number != r->header.number || claim.kind == KIND_MESSAGE)
		return 0;
	theirs.count = claim.count;
	theirs.kind = claim.kind;
	theirs.root = claim.detail >> 16;
	theirs.dtype = claim.detail >> 8;
	theirs.op = claim.detail;
	return compare(r, rank, &theirs);
}

/**
 * link_find_mismatch() - has a peer called something else?
 * @r: a collective that cannot move
 *
 * Returns -EPROTO with both named, or 0.
 */
int link_find_mismatch(struct kcr_request *r)
{
	int err;

	if (r->peer >= 0)
		return 0;
	rankset_for_each(rank, &r->link->others) {
		err = compare_heads(r, rank) ?: compare_claim(r, rank);
		if (err)
			return err;
	}
	return 0;
}

/*
 * The rank that found out was taking a message: its claim tells from whom. Who
 * sent it may have gone on since.
 *
 * Returns -EPROTO with both named, or 0.
 */
static int compare_message(struct kcr_request *r, int rank)
{
	struct frame_header theirs = r->header;
	struct kcr_claim claim;
	int from;

	if (rank == r->world->config.rank)
		return 0;
	load_claim((const struct kcr_claim *)r->link->peers[rank].board, &claim);
	if (!claim.number || claim.kind != KIND_MESSAGE)
		return 0;
	from = claim.detail >> 16;
	if (from == r->world->config.rank && r->peer == rank && r->m.send &&
	    claim.number == r->header.number) {
		theirs.count = claim.count;
		return link_mismatch(r, rank, &theirs);
	}
	return kcr_fail(r->world, -EPROTO,
			"ranks differ: rank %d called message #%llu (%llu bytes), rank %d sent it another",
			rank, (unsigned long long)claim.number,
			(unsigned long long)claim.count, from);
}

/* Over the mesh, a rank's claim may come a moment after it has failed the world. */
static bool has_said(const struct kcr_request *r, int rank)
{
	const struct kcr_claim *claim =
		(const struct kcr_claim *)r->link->peers[rank].board;

	return rank == r->world->config.rank ||
	       __atomic_load_n(&claim->number, __ATOMIC_ACQUIRE);
}

/**
 * link_failure_text() - what a rank has done that the world has failed because of
 * @link: the world's
 * @error: the cause's, positive; none that has words of its own
 *
 * Whoever saw a way break says which.
 */
const char *link_failure_text(const struct link *link, int error)
{
	switch (error) {
	case EHOSTUNREACH:
	case EHOSTDOWN:
	case ENODEV:
		return "lost a way";
	case EIO:
	case EBADMSG:
		return link->mesh ? "lost a way, or failed the world" : "failed the world";
	default:
		return "failed the world";
	}
}

/* The world has failed: say why. */
static int cause_error(struct kcr_request *r, uint64_t cause)
{
	struct kcr_world *w = r->world;
	int rank = KCR_CAUSE_RANK(cause);
	int error = KCR_CAUSE_ERROR(cause);
	const char *kind = kcr_kind_text(r->header.kind);
	unsigned long long number = r->header.number;
	int err;

	err = r->link->mesh && error != ECONNRESET ? mesh_broken(r, error) : 0;
	if (err)
		return err;
	switch (error) {
	case ECONNRESET:
		return kcr_fail(w, -ECONNRESET, "%s #%llu: rank %d died", kind,
				number, rank);
	case EPROTO:
		/* Whoever saw it first has said so; name both, when it shows here. */
		if (link_find_mismatch(r))
			return -EPROTO;
		if (!r->differs_ns)
			r->differs_ns = process_now_ns();
		/* A message has nothing to do with it, and waits for names only. */
		if ((r->peer < 0 || !has_said(r, rank)) &&
		    process_now_ns() - r->differs_ns < DIFFER_NS)
			return 0;
		return compare_message(r, rank) ?:
		       kcr_fail(w, -EPROTO,
				"%s #%llu: ranks differ, as rank %d found out",
				kind, number, rank);
	case ETIMEDOUT:
		return kcr_fail(w, -ETIMEDOUT,
				"%s #%llu: rank %d waited in vain and gave up",
				kind, number, rank);
	default:
		return kcr_fail(w, -error, "%s #%llu: rank %d %s: %s", kind, number, rank,
				link_failure_text(r->link, error), strerror(error));
	}
}

/* Returns what has ended the world, or 0. */
int link_check(struct kcr_request *r)
{
	uint64_t cause = __atomic_load_n(&r->link->status->cause,
					 __ATOMIC_ACQUIRE);

	return cause ? cause_error(r, cause) : 0;
}

/*
 * A peer that has left will not do what this request waits for. Called after
 * a look that found nothing, and looks again: what a peer did before it left
 * counts. Returns 0, 1 if something has moved then, or -ESHUTDOWN.
 */
int link_check_left(struct kcr_request *r)
{
	const struct link *link = r->link;
	struct rankset left = { 0 };
	bool any = false;

	if (!link->mesh && !__atomic_load_n(&link->status->left, __ATOMIC_ACQUIRE))
		return 0;
	rankset_for_each(rank, &r->blocked) {
		if (link_member(link, rank) != KCR_MEMBER_LEFT)
			continue;
		rankset_add(&left, rank);
		any = true;
	}
	if (!any)
		return 0;
	if (request_progress(r->world))
		return 1;
	/* It may have left because the world had failed. */
	if (__atomic_load_n(&link->status->cause, __ATOMIC_ACQUIRE))
		return link_check(r);
	rankset_for_each(rank, &left)
		if (rankset_has(&r->blocked, rank))
			return kcr_fail(r->world, -ESHUTDOWN,
					"%s #%llu: rank %d left",
					kcr_kind_text(r->header.kind),
					(unsigned long long)r->header.number,
					rank);
	return 0;
}
