// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Collective calls: arguments are checked, an algorithm is chosen, the
 * operation gets its number and runs, and what goes wrong ends the world.
 */
#include <errno.h>
#include <string.h>
#include "coll.h"

static int (* const algorithms[])(struct op *op, const struct message *m) = {
	[KCR_ALGO_DIRECT] = coll_direct,
	[KCR_ALGO_OWNER] = coll_owner,
};

/*
 * The one choice. It depends on nothing but what all ranks agree on, so all
 * choose alike.
 */
static enum kcr_algo choose(const struct kcr_config *config, size_t count,
			    size_t element)
{
	if (count < (size_t)config->size)
		return KCR_ALGO_DIRECT;
	if (config->algo != KCR_ALGO_AUTO)
		return config->algo;
	if (config->size == 2 || count * element <= config->direct_max)
		return KCR_ALGO_DIRECT;
	return KCR_ALGO_OWNER;
}

/* An operation has failed: so has the world, for all ranks. */
static int end_world(struct op *op, int err)
{
	struct kcr_world *w = op->world;

	w->failed = err;
	/*
	 * A rank that left is seen by each rank for itself: those who still
	 * read its last data must be able to finish.
	 */
	if (err != -ESHUTDOWN)
		op->link->carrier->ops->fail(op->link, -err);
	return err;
}

static int run(struct kcr_world *w, enum kcr_kind kind, const struct message *m,
	       enum kcr_dtype dtype, enum kcr_op operation)
{
	size_t element = kcr_dtype_size(dtype);
	enum kcr_algo algo = choose(&w->config, m->count, element);
	struct op op = {
		.world = w,
		.link = w->link,
		.element = element,
		.header = {
			.number = ++w->operation,
			.count = m->count,
			.kind = kind,
			.dtype = dtype,
			.op = operation,
			.algo = algo,
		},
	};
	int err = link_check(&op);

	if (!err)
		err = algorithms[algo](&op, m);
	link_flush(w->link);
	return err ? end_world(&op, err) : 0;
}

/* Take the world for a call. Returns 0, or why it cannot be used. */
static int enter(struct kcr_world *w)
{
	if (w->fork_generation != process_fork_generation())
		return kcr_fail(w, -EPERM,
				"this world belongs to the process that made it, not to a forked child");
	pthread_mutex_lock(&w->lock);
	if (!w->failed)
		return 0;
	pthread_mutex_unlock(&w->lock);
	return w->failed;
}

static int check_buffers(struct kcr_world *w, const void *send,
			 const void *recv, size_t count, size_t element)
{
	uintptr_t s = (uintptr_t)send, r = (uintptr_t)recv;
	size_t bytes;

	if (!count)
		return 0;
	if (!send || !recv)
		return kcr_fail(w, -EINVAL, "%s is NULL and count is %zu",
				send ? "recv" : "send", count);
	if (__builtin_mul_overflow(count, element, &bytes) ||
	    bytes > PTRDIFF_MAX)
		return kcr_fail(w, -EINVAL,
				"count is %zu: times %zu bytes it overflows",
				count, element);
	if (s % element || r % element)
		return kcr_fail(w, -EINVAL,
				"%s is at %p, must be aligned to the element's %zu bytes",
				s % element ? "send" : "recv",
				s % element ? send : recv, element);
	if (s != r && s < r + bytes && r < s + bytes)
		return kcr_fail(w, -EINVAL,
				"send at %p and recv at %p overlap in part (%zu bytes each)",
				send, recv, bytes);
	return 0;
}

static int check_reduction(struct kcr_world *w, enum kcr_dtype dtype,
			   enum kcr_op op)
{
	if (fold_lookup(dtype, op))
		return 0;
	return kcr_fail(w, -EOPNOTSUPP, "%s of %s is not supported",
			kcr_op_text(op), kcr_dtype_text(dtype));
}

KCR_PUBLIC int kcr_allreduce(struct kcr_world *w, const void *send, void *recv,
			     size_t count, enum kcr_dtype dtype,
			     enum kcr_op op)
{
	const struct message m = {
		.send = send,
		.recv = recv,
		.count = count,
		.fold = fold_lookup(dtype, op),
	};
	int err;

	if (!w)
		return kcr_fail(NULL, -EINVAL, "world is NULL");
	err = enter(w);
	if (err)
		return err;
	err = check_reduction(w, dtype, op);
	if (!err)
		err = check_buffers(w, send, recv, count, kcr_dtype_size(dtype));
	if (!err && w->config.size > 1)
		err = run(w, KIND_ALLREDUCE, &m, dtype, op);
	else if (!err && count && send != recv)
		memcpy(recv, send, count * kcr_dtype_size(dtype));
	pthread_mutex_unlock(&w->lock);
	return err;
}

/* Nothing is folded: every rank's frame has come. Type and operation do not matter. */
int coll_barrier(struct kcr_world *w)
{
	const struct message nothing = { 0 };

	return run(w, KIND_BARRIER, &nothing, KCR_U8, KCR_SUM);
}

KCR_PUBLIC int kcr_barrier(struct kcr_world *w)
{
	int err;

	if (!w)
		return kcr_fail(NULL, -EINVAL, "world is NULL");
	err = enter(w);
	if (err)
		return err;
	if (w->config.size > 1)
		err = coll_barrier(w);
	pthread_mutex_unlock(&w->lock);
	return err;
}

KCR_PUBLIC int kcr_abort(struct kcr_world *w, int code)
{
	int err;

	if (!w)
		return kcr_fail(NULL, -EINVAL, "world is NULL");
	err = enter(w);
	if (err)
		return err;
	if (code < 1 || code > 4095) {
		err = kcr_fail(w, -EINVAL, "code is %d, must be 1 to 4095", code);
	} else {
		w->failed = kcr_fail(w, -code, "aborted by this rank: %s",
				     strerror(code));
		if (w->link)
			w->link->carrier->ops->fail(w->link, code);
	}
	pthread_mutex_unlock(&w->lock);
	return err;
}
