// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * What the ranks must agree on before they make a ring: lanes and flags.
 *
 * A rank whose own list is wrong takes part all the same, and so does one that has no
 * memory: what went wrong on one rank is every rank's error, in its words. All ranks
 * come to the same result, so they take the same steps.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "coll.h"
#include "limits.h"
#include "rendezvous.h"
#include "ring.h"

/* What a rank says in a vote. */
struct ring_vote {
	int32_t error;
	uint32_t flags;
	uint64_t count;
	char text[NOTE_BYTES];	/* the sentence of the error, or a note */
};

_Static_assert(offsetof(struct ring_lane, desc) == 0, "sorted by it");

static int compare_lanes(const void *a, const void *b)
{
	const struct kcr_lane *x = a, *y = b;

	if (x->source != y->source)
		return x->source < y->source ? -1 : 1;
	return x->destination < y->destination ? -1 :
	       x->destination > y->destination;
}

static int check_lane(const struct kcr_ring *ring, struct ring_lane *lane)
{
	const struct kcr_lane *l = &lane->desc;
	int size = ring->world->config.size;

	if (l->source < 0 || l->source >= size || l->destination < 0 ||
	    l->destination >= size)
		return kcr_fail(NULL, -EINVAL,
				"lane %d -> %d: ranks are 0 to %d", l->source,
				l->destination, size - 1);
	if (l->source == l->destination)
		return kcr_fail(NULL, -EINVAL,
				"lane %d -> %d leads from a rank to itself",
				l->source, l->destination);
	if (!l->depth || !l->capacity)
		return kcr_fail(NULL, -EINVAL,
				"lane %d -> %d: depth is %u and capacity %u bytes, must be at least 1",
				l->source, l->destination, l->depth, l->capacity);
	if (l->capacity > INT32_MAX ||
	    __builtin_mul_overflow((size_t)l->depth,
				   (size_t)KCR_SLOT_STRIDE(l->capacity),
				   &lane->bytes) ||
	    lane->bytes > RING_LANE_BYTES_MAX)
		return kcr_fail(NULL, -EINVAL,
				"lane %d -> %d: %u slots of %u bytes and what belongs to them are 4 GiB or more",
				l->source, l->destination, l->depth, l->capacity);
	return 0;
}

/**
 * ring_check_list() - sort a ring's lanes, and see what is wrong with them
 * @ring: with its lanes as the caller gave them, which get their sizes
 */
int ring_check_list(struct kcr_ring *ring)
{
	int err = 0;

	if (ring->flags & ~KCR_RING_RAW)
		return kcr_fail(NULL, -EINVAL, "flags are %#x, of which %#x means nothing",
				ring->flags, ring->flags & ~KCR_RING_RAW);
	for (size_t i = 0; i < ring->count && !err; i++)
		err = check_lane(ring, &ring->lanes[i]);
	if (err)
		return err;
	if (ring->count)
		qsort(ring->lanes, ring->count, sizeof(*ring->lanes), compare_lanes);
	for (size_t i = 1; i < ring->count; i++)
		if (!compare_lanes(&ring->lanes[i - 1], &ring->lanes[i]))
			return kcr_fail(NULL, -EINVAL,
					"lane %d -> %d is listed twice",
					ring->lanes[i].desc.source,
					ring->lanes[i].desc.destination);
	return 0;
}

/* The first error of the ranks is that of all. */
static int voted_error(const struct kcr_ring *ring, int err)
{
	for (int r = 0; r < ring->world->config.size; r++) {
		const struct ring_vote *v = &ring->votes[r];

		if (!v->error)
			continue;
		if (r == ring->rank)
			return err;
		return kcr_fail(NULL, v->error < 0 ? v->error : -EIO,
				"rank %d: %.*s", r, NOTE_BYTES - 1, v->text);
	}
	return 0;
}

/* Room for a vote of every rank, which the first step needs; NULL without memory. */
struct ring_vote *ring_votes(int size)
{
	return calloc(size, sizeof(struct ring_vote));
}

/**
 * ring_vote() - a step of all ranks: has it gone well everywhere?
 * @ring: the ring
 * @err: this rank's result, with its sentence in kcr_error(NULL)
 * @note: of this rank's, for ring_note()
 *
 * Returns 0 if it has, else the first error of any, with its sentence.
 */
int ring_vote(struct kcr_ring *ring, int err, const char *note)
{
	struct ring_vote mine = {
		.error = err,
		.flags = ring->flags,
		.count = ring->count,
	};
	int failed;

	snprintf(mine.text, sizeof(mine.text), "%s", err ? kcr_error(NULL) : note);
	failed = coll_exchange(ring->world, &mine, ring->votes, sizeof(mine));
	if (failed)
		return kcr_fail(NULL, failed, "%s", kcr_error(ring->world));
	return voted_error(ring, err);
}

/* What a rank noted in the last vote. */
const char *ring_note(const struct kcr_ring *ring, int rank)
{
	char *text = ring->votes[rank].text;

	text[NOTE_BYTES - 1] = 0;
	return text;
}

static int not_listed(const struct kcr_lane *lane, int has, int has_not)
{
	return kcr_fail(NULL, -EPROTO,
			"ranks differ: rank %d lists lane %d -> %d, rank %d does not",
			has, lane->source, lane->destination, has_not);
}

static int compare_sizes(const struct kcr_lane *theirs, const struct kcr_lane *mine,
			 int rank)
{
	if (theirs->depth == mine->depth && theirs->capacity == mine->capacity)
		return 0;
	return kcr_fail(NULL, -EPROTO,
			"ranks differ: lane %d -> %d has depth %u and capacity %u on rank 0, depth %u and capacity %u on rank %d",
			mine->source, mine->destination, theirs->depth,
			theirs->capacity, mine->depth, mine->capacity, rank);
}

/* Compare this rank's list with rank 0's, to the letter. */
static int compare(const struct kcr_ring *ring, const struct ring_vote *first,
		   const struct kcr_lane *theirs)
{
	size_t most = first->count > ring->count ? first->count : ring->count;
	int err = 0;

	if (first->flags != ring->flags)
		return kcr_fail(NULL, -EPROTO,
				"ranks differ: rank 0 makes a %s ring, rank %d a %s one",
				first->flags & KCR_RING_RAW ? "raw" : "safe",
				ring->rank, ring_is_raw(ring) ? "raw" : "safe");
	for (size_t i = 0; i < most && !err; i++) {
		const struct kcr_lane *a = i < first->count ? &theirs[i] : NULL;
		const struct kcr_lane *b = i < ring->count ?
					   &ring->lanes[i].desc : NULL;

		if (a && (!b || compare_lanes(a, b) < 0))
			err = not_listed(a, 0, ring->rank);
		else if (b && (!a || compare_lanes(a, b) > 0))
			err = not_listed(b, ring->rank, 0);
		else if (a && b)
			err = compare_sizes(a, b, ring->rank);
	}
	return err;
}

/* Rank 0's list, as all have it now; NULL without memory, having taken the step. */
static int share_list(struct kcr_ring *ring, size_t count,
		      struct kcr_lane **theirs)
{
	struct kcr_lane *list = calloc(count, sizeof(*list));
	int err;

	for (size_t i = 0; list && !ring->rank && i < count; i++)
		list[i] = ring->lanes[i].desc;
	*theirs = list;
	err = ring_vote(ring, list ? 0 : kcr_fail(NULL, -ENOMEM,
						  "no memory for a list of lanes"),
			"");
	if (err)
		return err;
	err = coll_share(ring->world, list, count * sizeof(*list), 0);
	return err ? kcr_fail(NULL, err, "%s", kcr_error(ring->world)) : 0;
}

/**
 * ring_agree() - do all ranks mean the same ring?
 * @ring: with its sorted lanes
 * @err: this rank's result so far, with its sentence in kcr_error(NULL)
 *
 * Returns 0 if they do. Any other result is every rank's.
 */
int ring_agree(struct kcr_ring *ring, int err)
{
	struct kcr_lane *theirs = NULL;
	struct ring_vote first;

	err = ring_vote(ring, err, "");
	if (err)
		return err;
	first = ring->votes[0];
	if (first.count)
		err = share_list(ring, first.count, &theirs);
	if (!err)
		err = ring_vote(ring, compare(ring, &first, theirs), "");
	free(theirs);
	return err;
}
