/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages of rings whose size and bytes follow from their lane and sequence, so that one
 * that is lost, doubled, cut or in another's place shows
 */
#ifndef KCR_TEST_RING_H
#define KCR_TEST_RING_H

#include "data.h"
#include "ranks.h"

#define RING_MESSAGE_MAX	8192

static inline uint64_t ring_seed(int source, int destination, uint64_t sequence)
{
	return data_mix(data_mix(sequence) ^ (uint64_t)source << 32 ^ destination);
}

/* The bytes of a message: none now and then, and all that a slot takes. */
static inline size_t ring_bytes(int source, int destination, uint64_t sequence,
				size_t capacity)
{
	uint64_t h = ring_seed(source, destination, sequence);

	switch (h % 16) {
	case 0:
		return 0;
	case 1:
		return capacity;
	default:
		return h / 16 % (capacity + 1);
	}
}

static inline void ring_fill(unsigned char *data, size_t bytes, uint64_t seed)
{
	size_t i;

	for (i = 0; i < bytes; i += 8) {
		uint64_t word = data_mix(seed + i);

		memcpy(data + i, &word, bytes - i < 8 ? bytes - i : 8);
	}
}

static inline int ring_differs(const unsigned char *data, size_t bytes, uint64_t seed)
{
	size_t i;

	for (i = 0; i < bytes; i += 8) {
		uint64_t word = data_mix(seed + i);

		if (memcmp(data + i, &word, bytes - i < 8 ? bytes - i : 8))
			return 1;
	}
	return 0;
}

/* Mappings of lanes: not those of sanitizers, nor what the C library keeps. */
static inline int ring_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	if (!maps)
		return -errno;
	while (fgets(line, sizeof(line), maps))
		n += !!strstr(line, "kcollring");
	fclose(maps);
	return n;
}

/* Send the message that has @sequence on its lane. Returns as kcr_ring_send(). */
static inline int64_t ring_send(struct kcr_ring *ring, int source, int destination,
				uint64_t sequence, int64_t timeout_ns)
{
	static __thread unsigned char data[RING_MESSAGE_MAX];
	size_t bytes = ring_bytes(source, destination, sequence,
				  kcr_ring_capacity(ring, source, destination));

	ring_fill(data, bytes, ring_seed(source, destination, sequence));
	return kcr_ring_send_timeout(ring, destination, data, bytes, timeout_ns);
}

/* What a rank receives: a kcr_ring_fn's argument. */
struct ring_inbox {
	struct kcr_ring *ring;
	int rank;
	int acks;				/* acknowledge each at once */
	uint64_t count;				/* of messages */
	uint64_t bytes;
	uint64_t last[KCR_RANKS_MAX];		/* by origin */
	uint64_t gaps;				/* sequences left out */
	int wrong;				/* not as it was sent, or not in order */
};

static inline int ring_receive(void *arg, int origin, uint64_t sequence,
			       const void *data, size_t bytes)
{
	struct ring_inbox *in = arg;
	size_t capacity = kcr_ring_capacity(in->ring, origin, in->rank);

	if (sequence <= in->last[origin] ||
	    bytes != ring_bytes(origin, in->rank, sequence, capacity) ||
	    ring_differs(data, bytes, ring_seed(origin, in->rank, sequence)) ||
	    (uintptr_t)data % 16)
		in->wrong++;
	in->gaps += sequence - in->last[origin] - 1;
	in->last[origin] = sequence;
	in->count++;
	in->bytes += bytes;
	if (in->acks && kcr_ring_ack(in->ring, origin, sequence))
		in->wrong++;
	return 0;
}

#endif /* KCR_TEST_RING_H */
