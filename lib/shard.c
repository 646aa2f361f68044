// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The one function that cuts: messages into shards, shards into segments.
 *
 * In elements, never in bytes, so that no element is split or dropped.
 */
#include "kcr.h"

KCR_PUBLIC void kcr_shard_range(size_t count, int ranks, int rank,
				size_t *start, size_t *len)
{
	size_t each, rest, r = rank;

	if (ranks < 1 || rank < 0 || rank >= ranks) {
		*start = 0;
		*len = 0;
		return;
	}
	each = count / ranks;
	rest = count % ranks;
	*start = r * each + (r < rest ? r : rest);
	*len = each + (r < rest);
}

KCR_PUBLIC size_t kcr_strided_count(size_t count, int ranks, int rank)
{
	if (ranks < 1 || rank < 0 || rank >= ranks)
		return 0;
	return count / ranks + ((size_t)rank < count % ranks);
}

/**
 * kcr_segments() - how many segments of at most @most elements cover @count
 * @count: elements
 * @most: elements that fit, at least 1
 *
 * The segments themselves are kcr_shard_range(count, segments, i). At least
 * one, so that a message without elements still has a frame to be checked.
 */
size_t kcr_segments(size_t count, size_t most)
{
	return count ? (count - 1) / most + 1 : 1;
}
