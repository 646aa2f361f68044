/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One operation of any kind, called in any way, and what must come of it
 *
 *	struct collective c = { .kind = COLLECTIVE_ALLGATHER, .dtype = KCR_F16,
 *				.count = 100, .seed = 7 };
 *
 *	collective_alloc(&c, collective_room(100, ranks));
 *	collective_prepare(&c, w);		its data and guards
 *	collective_call(&c, w);			or _start() and _wait()
 *	collective_wrong(&c);			-1, or the first wrong element
 *
 * All ranks must be given the same. Data depends on the seed, the rank and the position, see
 * data.h.
 */
#ifndef KCR_TEST_COLLECTIVE_H
#define KCR_TEST_COLLECTIVE_H

#include "data.h"

#define COLLECTIVE_GUARD	0x5a
#define COLLECTIVE_GUARDS	16	/* bytes behind what is used */

enum collective_kind {
	COLLECTIVE_ALLREDUCE,
	COLLECTIVE_REDUCE_SCATTER,
	COLLECTIVE_ALLGATHER,
	COLLECTIVE_BROADCAST,
	COLLECTIVE_BARRIER,
	COLLECTIVE_ANY,
	COLLECTIVE_EXCHANGE,	/* @root ranks on, from as many ranks back */
	COLLECTIVE_KINDS
};

struct collective {
	enum collective_kind kind;
	enum kcr_dtype dtype;
	enum kcr_op op;
	size_t count;		/* elements; of one rank where each has its own */
	int root;
	int in_place;
	size_t shift;		/* elements by which buffers are off */
	uint64_t seed;

	int rank, ranks;
	unsigned char *memory, *scratch;
	unsigned char *send, *recv;
	int any;
	struct kcr_request *request[2];
};

/* Bytes that a call of @count elements of any type needs at most. */
static inline size_t collective_room(size_t count, int ranks)
{
	return (count * ranks + 64) * sizeof(uint64_t) + COLLECTIVE_GUARDS;
}

static inline int collective_alloc(struct collective *c, size_t room)
{
	room = (room + 63) & ~63UL;
	c->memory = aligned_alloc(64, 2 * room);
	c->scratch = aligned_alloc(64, room);
	c->send = c->memory;
	c->recv = c->memory + room;
	return c->memory && c->scratch ? 0 : -ENOMEM;
}

static inline void collective_free(struct collective *c)
{
	free(c->memory);
	free(c->scratch);
}

static inline int collective_reduces(const struct collective *c)
{
	return c->kind == COLLECTIVE_ALLREDUCE ||
	       c->kind == COLLECTIVE_REDUCE_SCATTER;
}

static inline int collective_moves_data(const struct collective *c)
{
	return c->kind != COLLECTIVE_BARRIER && c->kind != COLLECTIVE_ANY;
}

static inline int collective_can_be_in_place(const struct collective *c)
{
	return collective_reduces(c) || c->kind == COLLECTIVE_ALLGATHER;
}

static inline size_t collective_bytes(const struct collective *c)
{
	return c->count * kcr_dtype_size(c->dtype);
}

/* What a rank brings and takes, in elements. */
static inline size_t collective_brings(const struct collective *c)
{
	return c->kind == COLLECTIVE_REDUCE_SCATTER ? c->count * c->ranks :
						      c->count;
}

static inline size_t collective_takes(const struct collective *c)
{
	return c->kind == COLLECTIVE_ALLGATHER ? c->count * c->ranks : c->count;
}

/* In place everything is in c->recv, and a part where it belongs in the whole. */
static inline unsigned char *collective_data(const struct collective *c)
{
	size_t off = c->shift * kcr_dtype_size(c->dtype);

	if (!c->in_place)
		return c->send + off;
	if (c->kind == COLLECTIVE_ALLGATHER)
		off += c->rank * collective_bytes(c);
	return c->recv + off;
}

static inline unsigned char *collective_result(const struct collective *c)
{
	size_t off = c->shift * kcr_dtype_size(c->dtype);

	if (c->in_place && c->kind == COLLECTIVE_REDUCE_SCATTER)
		off += c->rank * collective_bytes(c);
	return c->recv + off;
}

/* Who raises its flag: one, or with @ranks nobody. */
static inline int collective_flag_bearer(const struct collective *c)
{
	return c->seed % (c->ranks + 1);
}

static inline void collective_prepare(struct collective *c, struct kcr_world *w)
{
	size_t size = kcr_dtype_size(c->dtype), whole;

	c->rank = kcr_rank(w);
	c->ranks = kcr_size(w);
	c->request[0] = NULL;
	c->request[1] = NULL;
	if (!collective_can_be_in_place(c))
		c->in_place = 0;
	if (!collective_moves_data(c))
		return;
	whole = collective_takes(c) > collective_brings(c) ?
		collective_takes(c) : collective_brings(c);
	memset(c->recv, COLLECTIVE_GUARD,
	       (c->shift + whole) * size + COLLECTIVE_GUARDS);
	data_fill(collective_data(c), collective_brings(c), c->dtype, c->rank,
		  c->seed);
	if (c->kind == COLLECTIVE_BROADCAST && c->rank == c->root)
		memcpy(collective_result(c), collective_data(c),
		       collective_bytes(c));
}

static inline int collective_exchange(struct collective *c, struct kcr_world *w)
{
	int to = (c->rank + c->root) % c->ranks;
	int from = (c->rank + c->ranks - c->root) % c->ranks;
	int err;

	if (!(c->root % c->ranks))
		return 0;
	err = kcr_isend(w, collective_data(c), collective_bytes(c), to,
			&c->request[0]);
	if (err)
		return err;
	return kcr_irecv(w, collective_result(c), collective_bytes(c), from,
			 &c->request[1]);
}

/* Begin. */
static inline int collective_start(struct collective *c, struct kcr_world *w)
{
	unsigned char *data = collective_data(c), *result = collective_result(c);

	switch (c->kind) {
	case COLLECTIVE_ALLREDUCE:
		return kcr_iallreduce(w, data, result, c->count, c->dtype, c->op,
				      c->request);
	case COLLECTIVE_REDUCE_SCATTER:
		return kcr_ireduce_scatter(w, data, result, c->count, c->dtype,
					   c->op, c->request);
	case COLLECTIVE_ALLGATHER:
		return kcr_iallgather(w, data, result, c->count, c->dtype,
				      c->request);
	case COLLECTIVE_BROADCAST:
		return kcr_ibroadcast(w, result, c->count, c->dtype, c->root,
				      c->request);
	case COLLECTIVE_BARRIER:
		return kcr_ibarrier(w, c->request);
	case COLLECTIVE_ANY:
		return kcr_iany(w, collective_flag_bearer(c) == c->rank, &c->any,
				c->request);
	default:
		return collective_exchange(c, w);
	}
}

static inline int collective_wait(struct collective *c)
{
	int i, err = 0, late;

	for (i = 0; i < 2; i++) {
		if (!c->request[i])
			continue;
		late = kcr_wait(c->request[i]);
		err = err ? err : late;
		c->request[i] = NULL;
	}
	return err;
}

/* Is it done? Both requests, where there are two. */
static inline int collective_test(struct collective *c, int *done)
{
	int i, one, err;

	*done = 1;
	for (i = 0; i < 2; i++) {
		if (!c->request[i])
			continue;
		err = kcr_test(c->request[i], &one);
		if (err)
			return err;
		*done &= one;
	}
	return 0;
}

/* At once. */
static inline int collective_call(struct collective *c, struct kcr_world *w)
{
	unsigned char *data = collective_data(c), *result = collective_result(c);
	int err;

	switch (c->kind) {
	case COLLECTIVE_ALLREDUCE:
		return kcr_allreduce(w, data, result, c->count, c->dtype, c->op);
	case COLLECTIVE_REDUCE_SCATTER:
		return kcr_reduce_scatter(w, data, result, c->count, c->dtype,
					  c->op);
	case COLLECTIVE_ALLGATHER:
		return kcr_allgather(w, data, result, c->count, c->dtype);
	case COLLECTIVE_BROADCAST:
		return kcr_broadcast(w, result, c->count, c->dtype, c->root);
	case COLLECTIVE_BARRIER:
		return kcr_barrier(w);
	case COLLECTIVE_ANY:
		return kcr_any(w, collective_flag_bearer(c) == c->rank, &c->any);
	default:
		err = collective_exchange(c, w);
		return err ? err : collective_wait(c);
	}
}

/* The expected result into c->scratch, by the oracle. */
static inline int collective_expect(struct collective *c)
{
	size_t bytes = collective_bytes(c);
	int r, err;

	switch (c->kind) {
	case COLLECTIVE_ALLREDUCE:
		return data_expect(c->scratch, c->count, c->dtype, c->op,
				   c->ranks, c->seed);
	case COLLECTIVE_REDUCE_SCATTER:
		err = data_expect(c->scratch, c->count * c->ranks, c->dtype,
				  c->op, c->ranks, c->seed);
		memmove(c->scratch, c->scratch + c->rank * bytes, bytes);
		return err;
	case COLLECTIVE_ALLGATHER:
		for (r = 0; r < c->ranks; r++)
			data_fill(c->scratch + r * bytes, c->count, c->dtype, r,
				  c->seed);
		return 0;
	case COLLECTIVE_BROADCAST:
		return data_fill(c->scratch, c->count, c->dtype, c->root, c->seed);
	default:
		r = (c->rank + c->ranks - c->root % c->ranks) % c->ranks;
		return data_fill(c->scratch, c->count, c->dtype, r, c->seed);
	}
}

/* Were bytes written that are not the operation's? */
static inline int collective_spills(struct collective *c)
{
	size_t i, size = kcr_dtype_size(c->dtype);
	const unsigned char *end = collective_result(c) +
				   collective_takes(c) * size;

	/* In place the other parts may be used as the library likes. */
	if (c->in_place && c->kind == COLLECTIVE_REDUCE_SCATTER)
		end = c->recv + (c->shift + collective_brings(c)) * size;
	for (i = 0; i < c->shift * size; i++)
		if (c->recv[i] != COLLECTIVE_GUARD)
			return 1;
	for (i = 0; i < COLLECTIVE_GUARDS; i++)
		if (end[i] != COLLECTIVE_GUARD)
			return 1;
	return 0;
}

/* Has the data changed that was only to be read? */
static inline int collective_spoilt(struct collective *c)
{
	if (c->in_place)
		return 0;
	data_fill(c->scratch, collective_brings(c), c->dtype, c->rank, c->seed);
	return data_differ(c->scratch, collective_data(c), collective_brings(c),
			   c->dtype) >= 0;
}

/* The first element that is wrong, -2 for bytes beside the result, or -1. */
static inline long collective_wrong(struct collective *c)
{
	if (c->kind == COLLECTIVE_ANY &&
	    c->any != (collective_flag_bearer(c) < c->ranks))
		return 0;
	if (!collective_moves_data(c))
		return -1;
	if (c->kind == COLLECTIVE_EXCHANGE && !(c->root % c->ranks))
		return -1;
	if (collective_spills(c) || collective_spoilt(c))
		return -2;
	if (collective_expect(c))
		return 0;
	return data_differ(c->scratch, collective_result(c), collective_takes(c),
			   c->dtype);
}

/* Of the result. */
static inline uint64_t collective_hash(const struct collective *c, uint64_t hash)
{
	if (c->kind == COLLECTIVE_ANY)
		return data_hash(&c->any, sizeof(c->any), hash);
	if (!collective_moves_data(c))
		return hash;
	return data_hash(collective_result(c),
			 collective_takes(c) * kcr_dtype_size(c->dtype), hash);
}

static inline int collective_is_same_on_all(const struct collective *c)
{
	return c->kind != COLLECTIVE_REDUCE_SCATTER &&
	       c->kind != COLLECTIVE_EXCHANGE;
}

static inline const char *collective_name(const struct collective *c)
{
	static const char *const names[] = {
		"allreduce", "reduce-scatter", "all-gather", "broadcast",
		"barrier", "any", "exchange",
	};

	return names[c->kind];
}

/* Inside a rank: complain if it is not as it should be. */
#define RANK_RIGHT(c) do {						\
	struct collective *rank_c = (c);				\
	long rank_at = collective_wrong(rank_c);			\
									\
	if (rank_at == -1)						\
		break;							\
	RANK_FAIL("%s of %zu %s, %s%s, seed %llu: %s %ld is wrong",	\
		  collective_name(rank_c), rank_c->count,		\
		  kcr_dtype_name(rank_c->dtype), kcr_op_name(rank_c->op),	\
		  rank_c->in_place ? ", in place" : "",			\
		  (unsigned long long)rank_c->seed,			\
		  rank_at == -2 ? "the surroundings," : "element", rank_at);	\
} while (0)

#endif /* KCR_TEST_COLLECTIVE_H */
