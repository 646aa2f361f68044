// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The caller's memory. Mostly it is read and written where it is. Memory that
 * the CPU cannot reach (a GPU's) goes through the configuration's two hooks, a
 * segment at a time, by way of the world's stage; the fold stays on host memory.
 *
 * The hooks descend from nexar's adapter.
 */
#include <errno.h>
#include <string.h>
#include "coll.h"

/*
 * What a hook returned becomes the operation's error, unless it is none, or one by
 * which the library would tell the ranks something else.
 */
static int hook_failed(struct kcr_world *w, const char *name, int err)
{
	kcr_fail(w, err, "the configuration's %s hook returned %d", name, err);
	switch (err) {
	case -EAGAIN:
	case -ESHUTDOWN:
	case -EPROTO:
	case -ECONNRESET:
	case -ETIMEDOUT:
		return -EIO;
	default:
		return err < 0 && err >= -4095 ? err : -EIO;
	}
}

/* Memory of the library's own needs no hooks. */
static bool has_hooks(const struct kcr_request *r)
{
	return r->world->config.copy_in && !r->m.is_host;
}

static int copy_in(struct kcr_request *r, void *to, const void *from,
		   size_t bytes)
{
	const struct kcr_config *config = &r->world->config;
	int err;

	if (!bytes)
		return 0;
	if (!has_hooks(r)) {
		memcpy(to, from, bytes);
		return 0;
	}
	err = config->copy_in(config->copy_context, to, from, bytes);
	return err ? hook_failed(r->world, "copy_in", err) : 0;
}

static int copy_out(struct kcr_request *r, void *to, const void *from,
		    size_t bytes)
{
	const struct kcr_config *config = &r->world->config;
	int err;

	if (!bytes)
		return 0;
	if (!has_hooks(r)) {
		memcpy(to, from, bytes);
		return 0;
	}
	err = config->copy_out(config->copy_context, to, from, bytes);
	return err ? hook_failed(r->world, "copy_out", err) : 0;
}

/* A call without elements may have no buffers, and C adds nothing to NULL, not even 0. */
static const void *source(const struct kcr_request *r, size_t at)
{
	return r->m.send ? r->m.send + at : NULL;
}

static void *destination(const struct kcr_request *r, size_t at)
{
	return r->m.recv ? r->m.recv + at : NULL;
}

/* @bytes of the send buffer from byte @at on, into host memory. */
int user_read(struct kcr_request *r, size_t at, void *to, size_t bytes)
{
	return copy_in(r, to, source(r, at), bytes);
}

/* @bytes of host memory to byte @at of the receive buffer. */
int user_write(struct kcr_request *r, size_t at, const void *from, size_t bytes)
{
	return copy_out(r, destination(r, at), from, bytes);
}

/* A part of the send buffer where the fold can read it, until the next call. */
int user_operand(struct kcr_request *r, size_t at, size_t bytes,
		 const void **operand)
{
	if (!has_hooks(r)) {
		*operand = source(r, at);
		return 0;
	}
	*operand = r->world->stage;
	return user_read(r, at, r->world->stage, bytes);
}

/* Where the fold can write a part of the receive buffer. */
void *user_result(struct kcr_request *r, size_t at)
{
	return has_hooks(r) ? r->world->stage : destination(r, at);
}

/* ... which then goes to its place. */
int user_result_done(struct kcr_request *r, size_t at, const void *result,
		     size_t bytes)
{
	return has_hooks(r) ? user_write(r, at, result, bytes) : 0;
}

/* From send buffer to receive buffer: all there is to do in a world of one. */
int user_copy(struct kcr_request *r, size_t bytes)
{
	const size_t most = r->world->config.board_bytes;
	void *stage = r->world->stage;
	size_t at, n;
	int err = 0;

	if (!bytes || r->m.send == r->m.recv)
		return 0;
	if (!has_hooks(r)) {
		memmove(r->m.recv, r->m.send, bytes);
		return 0;
	}
	for (at = 0; at < bytes && !err; at += n) {
		n = bytes - at < most ? bytes - at : most;
		err = user_read(r, at, stage, n);
		if (!err)
			err = user_write(r, at, stage, n);
	}
	return err;
}
