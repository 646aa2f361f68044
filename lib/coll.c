// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Calls: arguments are checked, an algorithm is chosen, and a request is
 * made that does the rest, now or on its way.
 *
 * Every call goes through blocking() or nonblocking(); what differs between
 * the operations is in the two tables, checks[] and choose().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "coll.h"

/* What the caller asked for. */
struct call {
	enum kcr_kind kind;
	const void *send;
	void *recv;
	size_t count;
	enum kcr_dtype dtype;
	enum kcr_op op;
	int rank;		/* the root, or the peer of a message */
	int *flag;
	bool is_host;		/* the buffers are the library's own */
	bool by_chain;		/* whatever the algorithm would be */
};

int coll_run(struct kcr_request *r, const coll_step *steps,
	     bool (*is_over)(const struct kcr_request *r))
{
	bool has_moved = true;

	while (!is_over(r)) {
		if (!has_moved)
			return -EAGAIN;
		has_moved = false;
		rankset_clear(&r->blocked);
		for (int i = 0; steps[i]; i++) {
			int err;

			while (!(err = steps[i](r)))
				has_moved = true;
			if (err != -EAGAIN)
				return err;
		}
		r->has_moved |= has_moved;
	}
	return 0;
}

/* Part of a step: @bytes of the user's from byte @at on, as a frame's payload. */
int coll_put(struct kcr_request *r, struct tx *tx, size_t segment, size_t at,
	     size_t bytes)
{
	void *payload;
	int err;

	err = link_begin(r, tx, segment, bytes, &payload);
	if (!err)
		err = user_read(r, at, payload, bytes);
	if (!err)
		link_post(r, tx);
	return err;
}

/* Part of a step: a frame's payload to byte @at of the user's. */
int coll_take(struct kcr_request *r, struct rx *rx, size_t segment, size_t at,
	      size_t bytes)
{
	const void *payload;
	int err;

	err = link_peek(r, rx, segment, bytes, &payload);
	if (!err)
		err = user_write(r, at, payload, bytes);
	if (!err)
		link_release(r, rx);
	return err;
}

/**
 * coll_operands() - part of a step: the others' operands of a segment
 * @r: the request
 * @from_lanes: they come over lanes, not from boards
 * @segment: which
 * @bytes: of each
 * @in: gets them, by rank, to be released
 *
 * Looks at all of them, so that all that are missing are known. Returns 0,
 * -EAGAIN if any is missing, or an error.
 */
int coll_operands(struct kcr_request *r, bool from_lanes, size_t segment,
		  size_t bytes, const void *in[])
{
	int result = 0, err;

	rankset_for_each(rank, &r->link->others) {
		struct peer *peer = &r->link->peers[rank];

		err = link_peek(r, from_lanes ? &peer->rx[LANES_COLLECTIVE] :
				&peer->rx_board, segment, bytes, &in[rank]);
		if (err && err != -EAGAIN)
			return err;
		if (err)
			result = err;
	}
	return result;
}

/*
 * The one choice. It depends on nothing but what all ranks agree on, so all
 * choose alike. A message with fewer elements than ranks goes direct.
 */
static enum kcr_algo choose_allreduce(const struct kcr_config *config,
				      size_t count, size_t element)
{
	if (count < (size_t)config->size)
		return KCR_ALGO_DIRECT;
	if (config->algo != KCR_ALGO_AUTO)
		return config->algo;
	if (config->size == 2 || count * element <= config->direct_max)
		return KCR_ALGO_DIRECT;
	return KCR_ALGO_OWNER;
}

static void choose(struct kcr_request *r)
{
	static int (* const allreduce[])(struct kcr_request *r) = {
		[KCR_ALGO_DIRECT] = coll_direct,
		[KCR_ALGO_OWNER] = coll_owner,
		[KCR_ALGO_CHAIN] = coll_chain,
	};

	switch (r->header.kind) {
	case KIND_ALLREDUCE:
		r->header.algo = choose_allreduce(&r->world->config, r->m.count,
						  r->m.element);
		r->advance = allreduce[r->header.algo];
		break;
	case KIND_REDUCE_SCATTER:
		r->advance = coll_reduce_scatter;
		break;
	case KIND_ALLGATHER:
	case KIND_BROADCAST:
		r->advance = coll_gather;
		break;
	case KIND_MESSAGE:
		r->advance = r->m.send ? coll_send : coll_receive;
		break;
	default:
		r->advance = coll_direct;
		break;
	}
}

/* Take the world for a call. Returns 0, or why it cannot be used. */
static int enter(struct kcr_world *w)
{
	int err;

	if (!w)
		return kcr_fail(NULL, -EINVAL, "world is NULL");
	if (w->fork_generation != process_fork_generation())
		return kcr_fail(w, -EPERM,
				"this world belongs to the process that made it, not to a forked child");
	pthread_mutex_lock(&w->lock);
	err = w->failed;
	if (err)
		pthread_mutex_unlock(&w->lock);
	return err;
}

/* The bytes of @count times @ranks elements, or -EINVAL. */
static int size_of(struct kcr_world *w, size_t count, size_t element, int ranks,
		   size_t *bytes)
{
	if (__builtin_mul_overflow(count, element, bytes) ||
	    __builtin_mul_overflow(*bytes, (size_t)ranks, bytes) ||
	    *bytes > PTRDIFF_MAX)
		return kcr_fail(w, -EINVAL,
				"count is %zu: for %d ranks, times %zu bytes it overflows",
				count, ranks, element);
	return 0;
}

static int check_pointer(struct kcr_world *w, const char *name, const void *p,
			 size_t element, size_t count)
{
	if (!p)
		return kcr_fail(w, -EINVAL, "%s is NULL and count is %zu", name,
				count);
	if ((uintptr_t)p % element)
		return kcr_fail(w, -EINVAL,
				"%s is at %p, must be aligned to the element's %zu bytes",
				name, p, element);
	return 0;
}

/*
 * The two buffers must not overlap but in place: @own bytes into the larger
 * of them.
 */
static int check_overlap(struct kcr_world *w, const struct call *c,
			 size_t send_bytes, size_t recv_bytes, size_t own)
{
	uintptr_t s = (uintptr_t)c->send, r = (uintptr_t)c->recv;
	uintptr_t place = send_bytes < recv_bytes ? r + own : s + own;
	uintptr_t other = send_bytes < recv_bytes ? s : r;

	if (place == other || s >= r + recv_bytes || r >= s + send_bytes)
		return 0;
	if (send_bytes == recv_bytes)
		return kcr_fail(w, -EINVAL,
				"send at %p and recv at %p overlap in part (%zu bytes each)",
				c->send, c->recv, send_bytes);
	return kcr_fail(w, -EINVAL,
			"send at %p (%zu bytes) and recv at %p (%zu bytes) overlap; in place, %s is at %p",
			c->send, send_bytes, c->recv, recv_bytes,
			send_bytes < recv_bytes ? "send" : "recv",
			(void *)place);
}

static int check_buffers(struct kcr_world *w, const struct call *c)
{
	const size_t element = kcr_dtype_size(c->dtype);
	const int size = w->config.size;
	int sends = c->kind == KIND_REDUCE_SCATTER ? size : 1;
	int receives = c->kind == KIND_ALLGATHER ? size : 1;
	size_t send_bytes, recv_bytes, own = 0;
	int err;

	if (!c->count)
		return 0;
	err = size_of(w, c->count, element, sends, &send_bytes);
	if (!err)
		err = size_of(w, c->count, element, receives, &recv_bytes);
	if (!err)
		err = check_pointer(w, "send", c->send, element, c->count);
	if (!err)
		err = check_pointer(w, "recv", c->recv, element, c->count);
	if (err)
		return err;
	if (sends != receives)
		own = w->config.rank * c->count * element;
	return check_overlap(w, c, send_bytes, recv_bytes, own);
}

static int check_dtype(struct kcr_world *w, const struct call *c)
{
	if (kcr_dtype_size(c->dtype))
		return 0;
	return kcr_fail(w, -EOPNOTSUPP, "dtype is %d, which is no type",
			c->dtype);
}

static int check_reduction(struct kcr_world *w, const struct call *c)
{
	if (!fold_lookup(c->dtype, c->op))
		return kcr_fail(w, -EOPNOTSUPP, "%s of %s is not supported",
				kcr_op_text(c->op), kcr_dtype_text(c->dtype));
	return check_buffers(w, c);
}

static int check_gather(struct kcr_world *w, const struct call *c)
{
	int err = check_dtype(w, c);

	return err ? err : check_buffers(w, c);
}

static int check_rank(struct kcr_world *w, const char *name, int rank)
{
	if (rank >= 0 && rank < w->config.size)
		return 0;
	return kcr_fail(w, -EINVAL, "%s is %d, must be 0 to %d", name, rank,
			w->config.size - 1);
}

static int check_broadcast(struct kcr_world *w, const struct call *c)
{
	size_t bytes;
	int err = check_dtype(w, c);

	if (!err)
		err = check_rank(w, "root", c->rank);
	if (err || !c->count)
		return err;
	err = size_of(w, c->count, kcr_dtype_size(c->dtype), 1, &bytes);
	return err ? err : check_pointer(w, "buf", c->recv,
					 kcr_dtype_size(c->dtype), c->count);
}

static int check_message(struct kcr_world *w, const struct call *c)
{
	size_t bytes;
	int err = check_rank(w, "peer", c->rank);

	if (err)
		return err;
	if (c->rank == w->config.rank)
		return kcr_fail(w, -EINVAL, "peer is %d, this rank itself",
				c->rank);
	err = size_of(w, c->count, 1, 1, &bytes);
	if (err || !c->count)
		return err;
	return check_pointer(w, "buf", c->send ? c->send : c->recv, 1, c->count);
}

static int check_nothing(struct kcr_world *w, const struct call *c)
{
	(void)w;
	(void)c;
	return 0;
}

static int (* const checks[KINDS])(struct kcr_world *w, const struct call *c) = {
	[KIND_ALLREDUCE] = check_reduction,
	[KIND_REDUCE_SCATTER] = check_reduction,
	[KIND_ALLGATHER] = check_gather,
	[KIND_BROADCAST] = check_broadcast,
	[KIND_MESSAGE] = check_message,
	[KIND_BARRIER] = check_nothing,
	[KIND_ANY] = check_nothing,
};

/* Fill in a request, all but its number. */
static int prepare(struct kcr_world *w, const struct call *c,
		   struct kcr_request *r)
{
	int err = checks[c->kind](w, c);

	if (err)
		return err;
	*r = (struct kcr_request){
		.world = w,
		.peer = c->kind == KIND_MESSAGE ? c->rank : -1,
		.flag = c->flag,
		.header = {
			.count = c->count,
			.kind = c->kind,
			.dtype = c->dtype,
			.op = c->op,
			.root = c->kind == KIND_BROADCAST ? c->rank : 0,
		},
		.m = {
			.send = c->send,
			.recv = c->recv,
			.count = c->count,
			.element = kcr_dtype_size(c->dtype),
			.fold = fold_lookup(c->dtype, c->op),
			.is_host = c->is_host,
		},
	};
	if (c->kind == KIND_ANY) {
		r->m.is_host = true;
		r->byte = *c->flag != 0;
		r->m.send = &r->byte;
		r->m.recv = &r->byte;
	}
	choose(r);
	if (c->by_chain)
		r->advance = coll_chain;
	return 0;
}

/* A world of one rank: the result is there. */
static int alone(struct kcr_request *r)
{
	size_t bytes = r->m.count * r->m.element;
	int err = 0;

	if (r->header.kind != KIND_BARRIER && r->header.kind != KIND_ANY)
		err = user_copy(r, bytes);
	if (r->flag)
		*r->flag = r->byte;
	r->is_done = true;
	r->err = err;
	return err;
}

static int blocking(struct kcr_world *w, const struct call *c)
{
	struct kcr_request r;
	int err = enter(w);

	if (err)
		return err;
	err = prepare(w, c, &r);
	if (!err && w->emu && w->config.size > 1)
		err = kcr_fail(w, -EDEADLK,
			       "a blocking call on an emulated world would wait for ever: use requests");
	if (!err && w->config.size == 1)
		err = alone(&r);
	else if (!err)
		err = request_start(&r) ?: request_wait(&r);
	pthread_mutex_unlock(&w->lock);
	return err;
}

static int nonblocking(struct kcr_world *w, const struct call *c,
		       struct kcr_request **out)
{
	struct kcr_request *r = NULL;
	int err;

	if (!out)
		return kcr_fail(NULL, -EINVAL, "request is NULL");
	*out = NULL;
	err = enter(w);
	if (err)
		return err;
	r = malloc(sizeof(*r));
	if (!r)
		err = kcr_fail(w, -ENOMEM, "no memory for a request");
	if (!err)
		err = prepare(w, c, r);
	if (!err && w->config.size == 1) {
		alone(r);
	} else if (!err) {
		err = request_start(r);
		link_flush(w->link);
	}
	if (!err) {
		request_own(r);
		*out = r;
	} else {
		free(r);
	}
	pthread_mutex_unlock(&w->lock);
	return err;
}

/* Of a request whose flag was filled at the call, see kcr_iany(). */
#define CALL(...)	(&(const struct call){ __VA_ARGS__ })

#define CALL_ALLREDUCE	CALL(.kind = KIND_ALLREDUCE, .send = send,	\
			     .recv = recv, .count = count, .dtype = dtype, \
			     .op = op)

KCR_PUBLIC int kcr_allreduce(struct kcr_world *w, const void *send, void *recv,
			     size_t count, enum kcr_dtype dtype,
			     enum kcr_op op)
{
	return blocking(w, CALL_ALLREDUCE);
}

KCR_PUBLIC int kcr_iallreduce(struct kcr_world *w, const void *send, void *recv,
			      size_t count, enum kcr_dtype dtype,
			      enum kcr_op op, struct kcr_request **request)
{
	return nonblocking(w, CALL_ALLREDUCE, request);
}

#define CALL_REDUCE_SCATTER	CALL(.kind = KIND_REDUCE_SCATTER,	\
				     .send = send, .recv = recv,	\
				     .count = recvcount, .dtype = dtype, .op = op)

KCR_PUBLIC int kcr_reduce_scatter(struct kcr_world *w, const void *send,
				  void *recv, size_t recvcount,
				  enum kcr_dtype dtype, enum kcr_op op)
{
	return blocking(w, CALL_REDUCE_SCATTER);
}

KCR_PUBLIC int kcr_ireduce_scatter(struct kcr_world *w, const void *send,
				   void *recv, size_t recvcount,
				   enum kcr_dtype dtype, enum kcr_op op,
				   struct kcr_request **request)
{
	return nonblocking(w, CALL_REDUCE_SCATTER, request);
}

#define CALL_ALLGATHER	CALL(.kind = KIND_ALLGATHER, .send = send,	\
			     .recv = recv, .count = sendcount, .dtype = dtype)

KCR_PUBLIC int kcr_allgather(struct kcr_world *w, const void *send, void *recv,
			     size_t sendcount, enum kcr_dtype dtype)
{
	return blocking(w, CALL_ALLGATHER);
}

KCR_PUBLIC int kcr_iallgather(struct kcr_world *w, const void *send, void *recv,
			      size_t sendcount, enum kcr_dtype dtype,
			      struct kcr_request **request)
{
	return nonblocking(w, CALL_ALLGATHER, request);
}

#define CALL_BROADCAST	CALL(.kind = KIND_BROADCAST, .send = buf,	\
			     .recv = buf, .count = count, .dtype = dtype, \
			     .rank = root)

KCR_PUBLIC int kcr_broadcast(struct kcr_world *w, void *buf, size_t count,
			     enum kcr_dtype dtype, int root)
{
	return blocking(w, CALL_BROADCAST);
}

KCR_PUBLIC int kcr_ibroadcast(struct kcr_world *w, void *buf, size_t count,
			      enum kcr_dtype dtype, int root,
			      struct kcr_request **request)
{
	return nonblocking(w, CALL_BROADCAST, request);
}

/* A message without bytes may have no buffer; sending and receiving still differ. */
static const char no_bytes;

#define CALL_SEND	CALL(.kind = KIND_MESSAGE,			\
			     .send = bytes || buf ? buf : &no_bytes,	\
			     .count = bytes, .dtype = KCR_U8, .rank = peer)

KCR_PUBLIC int kcr_send(struct kcr_world *w, const void *buf, size_t bytes,
			int peer)
{
	return blocking(w, CALL_SEND);
}

KCR_PUBLIC int kcr_isend(struct kcr_world *w, const void *buf, size_t bytes,
			 int peer, struct kcr_request **request)
{
	return nonblocking(w, CALL_SEND, request);
}

#define CALL_RECV	CALL(.kind = KIND_MESSAGE, .recv = buf,		\
			     .count = bytes, .dtype = KCR_U8, .rank = peer)

KCR_PUBLIC int kcr_recv(struct kcr_world *w, void *buf, size_t bytes, int peer)
{
	return blocking(w, CALL_RECV);
}

KCR_PUBLIC int kcr_irecv(struct kcr_world *w, void *buf, size_t bytes, int peer,
			 struct kcr_request **request)
{
	return nonblocking(w, CALL_RECV, request);
}

/* Nothing is folded: every rank's frame has come. */
#define CALL_BARRIER	CALL(.kind = KIND_BARRIER, .dtype = KCR_U8, .op = KCR_BOR)

KCR_PUBLIC int kcr_barrier(struct kcr_world *w)
{
	return blocking(w, CALL_BARRIER);
}

KCR_PUBLIC int kcr_ibarrier(struct kcr_world *w, struct kcr_request **request)
{
	return nonblocking(w, CALL_BARRIER, request);
}

#define CALL_ANY	CALL(.kind = KIND_ANY, .count = 1, .dtype = KCR_U8, \
			     .op = KCR_BOR, .flag = result)

KCR_PUBLIC int kcr_any(struct kcr_world *w, int flag, int *result)
{
	if (!result)
		return kcr_fail(w, -EINVAL, "result is NULL");
	*result = flag;
	return blocking(w, CALL_ANY);
}

KCR_PUBLIC int kcr_iany(struct kcr_world *w, int flag, int *result,
			struct kcr_request **request)
{
	if (!result)
		return kcr_fail(w, -EINVAL, "result is NULL");
	*result = flag;
	return nonblocking(w, CALL_ANY, request);
}

/*
 * Where connections are made on first use, along the chain, which is as much
 * as all ranks need.
 */
int coll_barrier(struct kcr_world *w)
{
	return blocking(w, CALL(.kind = KIND_BARRIER, .dtype = KCR_U8,
				.op = KCR_BOR, .by_chain = link_is_lazy(w->link)));
}

int coll_exchange(struct kcr_world *w, const void *mine, void *all,
		  size_t bytes)
{
	return blocking(w, CALL(.kind = KIND_ALLGATHER, .send = mine,
				.recv = all, .count = bytes, .dtype = KCR_U8,
				.is_host = true));
}

int coll_share(struct kcr_world *w, void *buf, size_t bytes, int root)
{
	return blocking(w, CALL(.kind = KIND_BROADCAST, .send = buf, .recv = buf,
				.count = bytes, .dtype = KCR_U8, .rank = root,
				.is_host = true));
}

KCR_PUBLIC int kcr_abort(struct kcr_world *w, int code)
{
	int err = enter(w);

	if (err)
		return err;
	if (code < 1 || code > 4095) {
		err = kcr_fail(w, -EINVAL, "code is %d, must be 1 to 4095", code);
	} else {
		w->failed = kcr_fail(w, -code, "aborted by this rank: %s",
				     strerror(code));
		if (w->link)
			w->link->carrier->ops->fail(w->link, code);
		request_end_all(w);
	}
	pthread_mutex_unlock(&w->lock);
	return err;
}
