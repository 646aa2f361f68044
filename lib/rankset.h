/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Sets of ranks.
 */
#ifndef KCR_RANKSET_H
#define KCR_RANKSET_H

#include <stdbool.h>
#include <stdint.h>
#include "kcollring.h"

#define RANKSET_WORDS	(KCR_RANKS_MAX / 64)

struct rankset {
	uint64_t word[RANKSET_WORDS];
};

static inline void rankset_add(struct rankset *s, int rank)
{
	s->word[rank / 64] |= 1ull << (rank % 64);
}

static inline void rankset_remove(struct rankset *s, int rank)
{
	s->word[rank / 64] &= ~(1ull << (rank % 64));
}

static inline bool rankset_has(const struct rankset *s, int rank)
{
	return s->word[rank / 64] >> (rank % 64) & 1;
}

static inline void rankset_clear(struct rankset *s)
{
	for (int i = 0; i < RANKSET_WORDS; i++)
		s->word[i] = 0;
}

/* The first rank of the set from @rank on, or -1. */
static inline int rankset_next(const struct rankset *s, int rank)
{
	if (rank >= KCR_RANKS_MAX)
		return -1;
	for (int i = rank / 64; i < RANKSET_WORDS; i++) {
		uint64_t word = s->word[i];

		if (i == rank / 64)
			word &= ~0ull << (rank % 64);
		if (word)
			return i * 64 + __builtin_ctzll(word);
	}
	return -1;
}

static inline bool rankset_is_empty(const struct rankset *s)
{
	return rankset_next(s, 0) < 0;
}

/* Both are names: evaluated again and again. */
#define rankset_for_each(rank, s)					\
	for (int rank = rankset_next(s, 0); rank >= 0;			\
	     rank = rankset_next(s, rank + 1))

#endif /* KCR_RANKSET_H */
