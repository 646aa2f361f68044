// SPDX-License-Identifier: GPL-2.0
/*
 * Arguments of the public calls, by libFuzzer: no crash, and no byte written but in recv
 *
 * A world of one, and three emulated ranks. All memory that calls are given lies in
 * one arena, in a part for each rank, which is compared with a copy after each
 * round. Sizes fit their room, or overflow, so that the library has to refuse them:
 * all else would be the caller's fault. When three ranks make the same call, the
 * result is the oracle's.
 *
 * Built and run by fuzz.sh, not by make.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kcollring.h"

#define RANKS	3
#define ROOM	4096	/* of a rank */
#define SMALL	96	/* elements, mostly */

#undef assert
#define assert(truth)							\
	do {								\
		if (!(truth)) {						\
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, \
				__LINE__, #truth);			\
			abort();					\
		}							\
	} while (0)

static struct {
	_Alignas(64) unsigned char of[RANKS][ROOM];
} arena, before;

/* The input, taken from its front; zeros when it is used up. */
static const uint8_t *data;
static size_t left;

static unsigned int take(void)
{
	if (!left)
		return 0;
	left--;
	return *data++;
}

static uint64_t take_bytes(int n)
{
	uint64_t x = 0;

	while (n--)
		x = x << 8 | take();
	return x;
}

enum kind {
	ALLREDUCE,
	REDUCE_SCATTER,
	ALLGATHER,
	BROADCAST,
	SEND,
	RECV,
	BARRIER,
	ANY,
	KINDS
};

struct call {
	enum kind kind;
	size_t count;
	int dtype, op, rank;
	unsigned char *send, *recv;
	int *result;
	struct kcr_request *request;
	int err;
};

/* Elements of a buffer for each element of the count, times the ranks for the larger. */
static size_t factor(const struct call *c, int is_send, int ranks)
{
	return (is_send && c->kind == REDUCE_SCATTER) ||
	       (!is_send && c->kind == ALLGATHER) ? ranks : 1;
}

static size_t element(const struct call *c)
{
	if (c->kind == SEND || c->kind == RECV)
		return 1;
	return kcr_dtype_size(c->dtype);
}

/* Somewhere in the rank's part: aligned mostly, NULL sometimes. */
static unsigned char *take_pointer(int rank)
{
	unsigned int how = take();
	size_t at = take_bytes(2) % ROOM;

	if (how < 8)
		return NULL;
	if (how < 240)
		at &= ~(size_t)7;
	return arena.of[rank] + at;
}

/* The most elements that fit behind @p. */
static size_t room(const unsigned char *p, int rank, size_t bytes)
{
	return p && bytes ? (arena.of[rank] + ROOM - p) / bytes : SIZE_MAX;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* A count so large that no buffer could have it. */
static size_t take_overflow(const struct call *c, int ranks)
{
	size_t most = element(c) ? PTRDIFF_MAX / element(c) : PTRDIFF_MAX;

	/* Of the two buffers one may be smaller. */
	if (c->kind == REDUCE_SCATTER || c->kind == ALLGATHER)
		most /= ranks;
	return most + 1 + take_bytes(8) % (SIZE_MAX - most);
}

static void take_call(struct call *c)
{
	unsigned int how;

	*c = (struct call){ .kind = take() % KINDS };
	c->dtype = (int)take() % (KCR_DTYPES + 2) - 1;
	c->op = (int)take() % (KCR_OPS + 2) - 1;
	how = take();
	c->rank = how < 200 ? (int)how % RANKS : (int)take_bytes(4);
	c->count = take() % SMALL;
}

/* The rank's own pointers; the count as far as there is room. */
static void take_buffers(struct call *c, int rank, int ranks)
{
	unsigned int how = take();

	c->send = take_pointer(rank);
	c->recv = take_pointer(rank);
	if (c->kind == BROADCAST)
		c->send = c->recv;
	if (how < 64)		/* in place */
		c->recv = c->send;
	if (how < 32 && c->send && c->count < ROOM / 8 / RANKS) {
		size_t own = rank * c->count * element(c);

		if (c->kind == REDUCE_SCATTER)
			c->recv = c->send + own;
		if (c->kind == ALLGATHER)
			c->send = c->recv + own;
	}
	if (c->send >= arena.of[rank] + ROOM || c->recv >= arena.of[rank] + ROOM) {
		c->send = arena.of[rank];
		c->recv = c->send;
	}
	c->result = how == 255 ? NULL :
		    (int *)(arena.of[rank] + take() % (ROOM / 4) * 4);
	if (how >= 250) {
		c->count = take_overflow(c, ranks);
		return;
	}
	c->count = least(c->count, room(c->send, rank,
					element(c) * factor(c, 1, ranks)));
	c->count = least(c->count, room(c->recv, rank,
					element(c) * factor(c, 0, ranks)));
}

/* What may have been written: nothing, or recv. */
static void restore_written(const struct call *c, int rank, int ranks)
{
	unsigned char *at = c->recv;
	size_t bytes = c->count * element(c) * factor(c, 0, ranks);

	if (c->kind == ANY) {
		at = (unsigned char *)c->result;
		bytes = sizeof(int);
	} else if (c->kind == BARRIER || c->kind == SEND || c->count > ROOM ||
		   c->err == -EINVAL || c->err == -EOPNOTSUPP) {
		return;
	}
	if (!at || !bytes)
		return;
	memcpy(before.of[rank] + (at - arena.of[rank]), at, bytes);
}

static int issue(struct kcr_world *w, struct call *c)
{
	int flag = c->op;

	switch (c->kind) {
	case ALLREDUCE:
		return kcr_iallreduce(w, c->send, c->recv, c->count, c->dtype,
				      c->op, &c->request);
	case REDUCE_SCATTER:
		return kcr_ireduce_scatter(w, c->send, c->recv, c->count, c->dtype,
					   c->op, &c->request);
	case ALLGATHER:
		return kcr_iallgather(w, c->send, c->recv, c->count, c->dtype,
				      &c->request);
	case BROADCAST:
		return kcr_ibroadcast(w, c->recv, c->count, c->dtype, c->rank,
				      &c->request);
	case SEND:
		return kcr_isend(w, c->send, c->count, c->rank, &c->request);
	case RECV:
		return kcr_irecv(w, c->recv, c->count, c->rank, &c->request);
	case BARRIER:
		return kcr_ibarrier(w, &c->request);
	default:
		return kcr_iany(w, flag, c->result, &c->request);
	}
}

static int block(struct kcr_world *w, struct call *c)
{
	switch (c->kind) {
	case ALLREDUCE:
		return kcr_allreduce(w, c->send, c->recv, c->count, c->dtype, c->op);
	case REDUCE_SCATTER:
		return kcr_reduce_scatter(w, c->send, c->recv, c->count, c->dtype,
					  c->op);
	case ALLGATHER:
		return kcr_allgather(w, c->send, c->recv, c->count, c->dtype);
	case BROADCAST:
		return kcr_broadcast(w, c->recv, c->count, c->dtype, c->rank);
	case SEND:
		return kcr_send(w, c->send, c->count, c->rank);
	case RECV:
		return kcr_recv(w, c->recv, c->count, c->rank);
	case BARRIER:
		return kcr_barrier(w);
	default:
		return kcr_any(w, c->op, c->result);
	}
}

static void expect_error(struct kcr_world *w, int err)
{
	assert(err <= 0 && err >= -4095);
	assert(!err || kcr_error(w)[0] || kcr_error(NULL)[0]);
}

static void expect_untouched(void)
{
	assert(!memcmp(&arena, &before, sizeof(arena)));
}

/* One rank: every call is a copy. */
static void alone(struct kcr_world *w)
{
	struct call c;

	take_call(&c);
	c.rank = c.rank % RANKS - 1;
	take_buffers(&c, 0, 1);
	if (take() & 1) {
		c.err = block(w, &c);
		expect_error(w, c.err);
	} else {
		c.err = issue(w, &c);
		expect_error(w, c.err);
		assert(!c.err == !!c.request);
		if (!c.err)
			assert(!kcr_wait(c.request));
	}
	if (!c.err && c.count && (c.kind == ALLREDUCE || c.kind == ALLGATHER ||
				  c.kind == REDUCE_SCATTER))
		assert(!memcmp(c.recv, before.of[0] + (c.send - arena.of[0]),
			       c.count * element(&c)));
	restore_written(&c, 0, 1);
	expect_untouched();
}

/* All made the same call: the oracle knows the result, unless the order was free. */
static void expect_result(struct call calls[], int is_fixed)
{
	struct call *c = calls;
	unsigned char want[ROOM];
	const void *in[RANKS];

	for (int r = 0; r < RANKS; r++) {
		if (calls[r].err || calls[r].count != c->count ||
		    calls[r].kind != ALLREDUCE || !c->count)
			return;
		in[r] = before.of[r] + (calls[r].send - arena.of[r]);
	}
	assert(!kcr_reference_fold(in, RANKS, want, c->count, c->dtype, c->op));
	if (!is_fixed)
		memcpy(want, c->recv, c->count * element(c));
	for (int r = 0; r < RANKS; r++)
		assert(!memcmp(want, calls[r].recv, c->count * element(c)));
}

/* Returns whether the worlds can go on. */
static int together(struct kcr_emu *emu, int is_fixed)
{
	struct call common, calls[RANKS];
	int failed = 0, done;

	take_call(&common);
	for (int r = 0; r < RANKS; r++) {
		calls[r] = common;
		take_buffers(&calls[r], r, RANKS);
		/* The shortest of all, so that most rounds are alike. */
		common.count = least(common.count, calls[r].count);
	}
	for (int r = 0; r < RANKS; r++) {
		struct kcr_world *w = kcr_emu_world(emu, r);
		struct call *c = &calls[r];
		unsigned int how = take();

		if (c->count < SMALL)
			c->count = common.count;
		if (how == 1) {
			take_call(c);
			take_buffers(c, r, RANKS);
		} else if (how == 2) {
			kcr_abort(w, (int)take_bytes(2));
		} else if (how == 3) {
			c->err = block(w, c);
			assert(c->err);
		}
		c->err = issue(w, c);
		expect_error(w, c->err);
		assert(!c->err == !!c->request);
	}
	for (int r = 0; r < RANKS; r++) {
		struct call *c = &calls[r];

		if (c->request && take() & 1)
			expect_error(kcr_emu_world(emu, r),
				     kcr_test(c->request, &done));
		if (c->request)
			c->err = kcr_wait(c->request);
		expect_error(kcr_emu_world(emu, r), c->err);
		failed |= c->err;
	}
	expect_result(calls, is_fixed);
	for (int r = 0; r < RANKS; r++) {
		/* Refused at once, or later: then recv is undefined. */
		if (calls[r].request && calls[r].err)
			calls[r].err = -EIO;
		restore_written(&calls[r], r, RANKS);
	}
	expect_untouched();
	return !failed;
}

/* Calls that take no buffers of elements. */
static void others(struct kcr_world *w, struct kcr_emu *emu)
{
	int order[RANKS + 1], done, n = take() % (RANKS + 2);
	struct kcr_request *request = NULL;
	struct kcr_world *part = NULL;
	size_t start, len, count = take_bytes(8);
	const void *in[RANKS] = { NULL };
	int number = (int)take_bytes(4);

	switch (take() % 12) {
	case 0:
		for (int i = 0; i <= RANKS; i++)
			order[i] = (int)take() % (RANKS + 2) - 1;
		expect_error(NULL, kcr_emu_order(emu, order, n));
		break;
	case 1:
		kcr_emu_shuffle(emu, count);
		break;
	case 2:
		expect_error(NULL, kcr_emu_rule(emu, take() % 5, (int)take() % 5 - 1,
						(int)take() % 5 - 1, take() % 16,
						(int)take() - 1));
		break;
	case 3:
		kcr_shard_range(count, number, (int)take_bytes(4), &start, &len);
		assert(start <= count && len <= count - start);
		kcr_shard_range(count, 1 + number % 128 * (number % 128), 0, &start,
				&len);
		assert(start == 0 && len <= count);
		break;
	case 4:
		assert(kcr_strided_count(count, number, (int)take_bytes(4)) <= count);
		break;
	case 5:
		assert(kcr_dtype_size(number) <= 8);
		kcr_dtype_name(number);
		kcr_op_name(number);
		break;
	case 6:
		for (int r = 0; r < RANKS; r++)
			in[r] = take() % 8 ? arena.of[r] : NULL;
		expect_error(NULL, kcr_reference_fold(in, n % (RANKS + 1),
						      before.of[0], take() % SMALL,
						      (int)take() % 14 - 1,
						      (int)take() % 10 - 1));
		memcpy(before.of[0], arena.of[0], ROOM);
		break;
	case 7:
		assert(kcr_test(NULL, &done) && kcr_wait(NULL));
		assert(kcr_emu_order(emu, NULL, n) && kcr_emu_order(NULL, order, n));
		assert(!kcr_emu_world(NULL, 0) && !kcr_emu_world(emu, RANKS));
		assert(!kcr_emu_world(emu, -1));
		break;
	case 8:
		if (!kcr_world_split(w, number, n, number & 1 ? &part : NULL))
			assert(number < 0 ? !part : !!part);
		kcr_world_destroy(part);
		break;
	case 9:
		assert(kcr_iallreduce(w, arena.of[0], arena.of[0], 1, KCR_F32,
				      KCR_SUM, NULL));
		assert(kcr_ibarrier(NULL, &request) && !request);
		break;
	case 10:
		kcr_rank(take() & 1 ? w : NULL);
		kcr_size(take() & 1 ? w : NULL);
		kcr_seed(take() & 1 ? w : NULL);
		kcr_error(take() & 1 ? w : NULL);
		kcr_contract(w);
		kcr_link_name(w);
		break;
	default:
		assert(kcr_world_destroy(kcr_emu_world(emu, 0)));
		assert(!kcr_emu_create_config(NULL, &emu));
		kcr_emu_destroy(emu);
		kcr_emu_destroy(NULL);
		kcr_world_destroy(NULL);
		break;
	}
	expect_untouched();
}

/* A configuration in which most fields are fine. */
static void take_config(struct kcr_config *config)
{
	kcr_config_init(config);
	config->size = RANKS;
	config->algo = take() % 4;
	config->contract = take() % 8 == 7;
	config->lane_bytes = 64 + take() % 4 * 200;
	config->board_bytes = 64 + take() % 4 * 200;
	config->lane_depth = 2 + take() % 3;
	config->board_depth = 2 + take() % 3;
	config->direct_max = take() * 4;
}

static void bad_config(void)
{
	struct kcr_config config;
	struct kcr_world *w = NULL;
	struct kcr_emu *emu = NULL;
	uint64_t x = take_bytes(8);

	take_config(&config);
	config.size = 1;
	config.local_size = 1;
	switch (take() % 14) {
	case 0:
		config.struct_size = x;
		break;
	case 1:
		config.size = (int)x <= RANKS ? (int)x : -1;
		break;
	case 2:
		config.rank = (int)x;
		break;
	case 3:
		config.local_rank = (int)x;
		break;
	case 4:
		config.local_size = (int)x;
		break;
	case 5:
		config.link = (int)x;
		break;
	case 6:
		config.algo = (int)x;
		break;
	case 7:
		config.contract = (int)x;
		break;
	case 8:
		config.lane_depth = x < 8 ? x : x | 1u << 31;
		break;
	case 9:
		config.board_bytes = x < 256 ? x : x | 1u << 31;
		break;
	case 10:
		config.timeout_ms = x;
		break;
	case 11:
		config.warn_ms = x;
		break;
	case 12:
		config.copy_context = (void *)(uintptr_t)x;
		break;
	default:
		config.rendezvous_ms = x;
		break;
	}
	if (!kcr_emu_create_config(&config, &emu))
		assert(emu);
	kcr_emu_destroy(emu);
	/* More ranks would wait for one another. */
	if (config.size <= 1) {
		expect_error(NULL, kcr_world_create(&config, &w));
		kcr_world_destroy(w);
	}
	assert(kcr_world_create(&config, NULL));
	assert(kcr_emu_create_config(&config, NULL));
	assert(kcr_emu_create((int)x | INT32_MIN, &emu) && !emu);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct kcr_config config;
	struct kcr_world *w;
	struct kcr_emu *emu;

	data = bytes;
	left = size;
	for (size_t i = 0; i < sizeof(arena.of); i++)
		arena.of[i / ROOM][i % ROOM] = i * 7 + (i >> 8) + size;
	before = arena;
	assert(!kcr_world_create(NULL, &w));
	take_config(&config);
	assert(!kcr_emu_create_config(&config, &emu));
	for (int i = 0; left && i < 12; i++) {
		switch (take() % 8) {
		case 0: case 1:
			alone(w);
			break;
		case 2:
			others(w, emu);
			break;
		case 3:
			bad_config();
			break;
		default:
			if (together(emu, config.contract == KCR_FIXED_ORDER))
				break;
			kcr_emu_destroy(emu);
			assert(!kcr_emu_create_config(&config, &emu));
			break;
		}
	}
	kcr_emu_destroy(emu);
	assert(!kcr_world_destroy(w));
	return 0;
}
