/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Collectives and messages: algorithms over links, as steps.
 *
 * A step does one thing for one segment, or cannot yet. An algorithm is a
 * list of steps that are tried in turn until it is over or none can be taken.
 */
#ifndef KCR_COLL_H
#define KCR_COLL_H

#include "request.h"

/* 0: taken. -EAGAIN: not now, or nothing left to do. Else the operation fails. */
typedef int (*coll_step)(struct kcr_request *r);

int coll_run(struct kcr_request *r, const coll_step *steps,
	     bool (*is_over)(const struct kcr_request *r));

int coll_put(struct kcr_request *r, struct tx *tx, size_t segment, size_t at,
	     size_t bytes);
int coll_take(struct kcr_request *r, struct rx *rx, size_t segment, size_t at,
	      size_t bytes);
int coll_operands(struct kcr_request *r, bool from_lanes, size_t segment,
		  size_t bytes, const void *in[]);

/* Each is a kcr_request.advance: 0 when over, -EAGAIN, or an error. */
int coll_direct(struct kcr_request *r);
int coll_owner(struct kcr_request *r);
int coll_chain(struct kcr_request *r);
int coll_reduce_scatter(struct kcr_request *r);
int coll_gather(struct kcr_request *r);
int coll_send(struct kcr_request *r);
int coll_receive(struct kcr_request *r);

/* For creation: all ranks can reach one another. */
int coll_barrier(struct kcr_world *w);

/* For kcr_world_split(): @bytes of every rank, to every rank. */
int coll_exchange(struct kcr_world *w, const void *mine, void *all,
		  size_t bytes);

/* @bytes of rank @root, to every rank. */
int coll_share(struct kcr_world *w, void *buf, size_t bytes, int root);

/* user.c: the caller's memory, which the CPU may not be able to reach. */
int user_read(struct kcr_request *r, size_t at, void *to, size_t bytes);
int user_write(struct kcr_request *r, size_t at, const void *from, size_t bytes);
int user_operand(struct kcr_request *r, size_t at, size_t bytes,
		 const void **operand);
void *user_result(struct kcr_request *r, size_t at);
int user_result_done(struct kcr_request *r, size_t at, const void *result,
		     size_t bytes);
int user_copy(struct kcr_request *r, size_t bytes);

#endif /* KCR_COLL_H */
