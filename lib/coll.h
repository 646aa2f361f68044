/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Collectives: algorithms over links, and the one choice between them.
 */
#ifndef KCR_COLL_H
#define KCR_COLL_H

#include "fold.h"
#include "link.h"

/* What a collective works on; segments refer to elements of it. */
struct message {
	const unsigned char *send;
	unsigned char *recv;
	size_t count;
	fold_fn fold;		/* NULL if nothing is folded */
};

int coll_direct(struct op *op, const struct message *m);
int coll_owner(struct op *op, const struct message *m);

/* For link_create(): all ranks can reach one another. */
int coll_barrier(struct kcr_world *w);

#endif /* KCR_COLL_H */
