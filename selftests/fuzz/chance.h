/* SPDX-License-Identifier: GPL-2.0 */
/* Chance with a seed, and numbers that are worth trying */
#ifndef KCR_FUZZ_CHANCE_H
#define KCR_FUZZ_CHANCE_H

#include <stdbool.h>
#include <linux/types.h>

/* What chance gave out, and gives out again; behind that it goes by the seed. */
#define RECORD_WORDS	64

struct record {
	__u64 seed;		/* 0: nothing but zeros */
	int n;
	__u64 word[RECORD_WORDS];
};

struct chance {
	__u64 state;
	struct record *record;	/* or NULL */
	int at;			/* in it */
};

static inline __u64 scatter(__u64 z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* From 0 to @n - 1; of all numbers if @n is 0. */
static inline __u64 below(struct chance *c, __u64 n)
{
	struct record *r = c->record;
	__u64 step = 0x9e3779b97f4a7c15, word = 0;

	if (!r)
		word = scatter(c->state += step);
	else if (c->at < r->n)
		word = r->word[c->at];
	else if (r->seed)
		word = scatter(r->seed + (c->at + 1) * step);
	if (n)
		word %= n;
	if (r && c->at == r->n && r->n < RECORD_WORDS)
		r->word[r->n++] = word;
	c->at++;
	return word;
}

static inline __u64 draw(struct chance *c)
{
	return below(c, 0);
}

/* Not by a 0: that has to be what is ordinary. */
static inline bool one_in(struct chance *c, __u64 n)
{
	return below(c, n) == n - 1;
}

#define ONE_OF(c, list) ((list)[below(c, sizeof(list) / sizeof(*(list)))])

static inline __u64 any_number(struct chance *c)
{
	static const __u64 edges[] = {
		0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 255, 256, 1023, 1024, 1025,
		4095, 4096, 4097, 8191, 8192, 8193, 65535, 65536, 1ull << 20, 1ull << 21,
		(1ull << 31) - 1, 1ull << 31, (1ull << 32) - 4096, (1ull << 32) - 1,
		1ull << 32, 1ull << 40, 1ull << 52, (1ull << 63) - 1, 1ull << 63,
		-4096ull, -2ull, -1ull,
	};

	return one_in(c, 8) ? draw(c) >> below(c, 64) : ONE_OF(c, edges);
}

#endif /* KCR_FUZZ_CHANCE_H */
