/* SPDX-License-Identifier: GPL-2.0 */
/* Chance with a seed, and numbers that are worth trying */
#ifndef KCR_FUZZ_CHANCE_H
#define KCR_FUZZ_CHANCE_H

#include <stdbool.h>
#include <linux/types.h>

struct chance {
	__u64 state;
};

static inline __u64 draw(struct chance *c)
{
	__u64 z = c->state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static inline __u64 below(struct chance *c, __u64 n)
{
	return draw(c) % n;
}

static inline bool one_in(struct chance *c, __u64 n)
{
	return !below(c, n);
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
