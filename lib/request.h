/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Requests: operations on their way. An algorithm is a function that takes a
 * request as far as it goes now.
 */
#ifndef KCR_REQUEST_H
#define KCR_REQUEST_H

#include "fold.h"
#include "link.h"

/**
 * struct message - what an operation works on; sizes in elements
 * @send: the user's, or NULL
 * @recv: the user's, or NULL
 * @count: elements of the operation: of a shard for reduce-scatter, of a rank for
 *	all-gather
 * @element: bytes of one
 * @fold: NULL if nothing is folded
 * @is_host: the memory is the library's, not the user's: no hooks
 */
struct message {
	const unsigned char *send;
	unsigned char *recv;
	size_t count;
	size_t element;
	const struct fold *fold;
	bool is_host;
};

/* How far a request has come: cursors of segments and ranks, each algorithm's. */
struct cursor {
	size_t segment;
	int rank;
};

struct progress {
	bool has_begun;
	size_t segments;
	struct cursor sent;	/* handed to peers */
	struct cursor folded;
	struct cursor got;	/* results taken from peers */
	struct rankset arrived;	/* any-order: operands of the segment being folded */
};

struct kcr_request {
	struct kcr_world *world;
	struct link *link;
	struct kcr_request *next;	/* in its queue */
	struct kcr_request *next_owned;	/* of those the caller holds */
	int (*advance)(struct kcr_request *r);
	struct frame_header header;
	struct message m;
	struct progress at;
	int peer;			/* of send and recv, else -1 */
	unsigned int wires;		/* of the mesh, that it is split across */
	int *flag;			/* kcr_any()'s result */
	unsigned char byte;		/* ... and its flag on the way */
	struct rankset blocked;		/* whom it waits for, by the last look */
	bool has_moved;			/* in the last look */
	bool is_done;
	bool is_warned;
	bool is_doomed;			/* issued when the world had failed */
	int err;
	uint64_t began_ns;		/* since when it cannot move; 0 if it can */
	uint64_t looked_ns;		/* when the watchdog looked last */
	uint64_t differs_ns;		/* when the world failed since ranks differ */
};

int request_start(struct kcr_request *r);
bool request_progress(struct kcr_world *w);
void request_end_all(struct kcr_world *w);
struct kcr_request *request_front(struct kcr_request *r);
int request_fail(struct kcr_request *r, int err);

void request_own(struct kcr_request *r);
void request_orphan_all(struct kcr_world *w);

/* progress_thread.c */
int progress_thread_start(struct kcr_world *w);
void progress_thread_stop(struct kcr_world *w);
void progress_thread_wake(struct kcr_world *w);

/* request_wait.c */
void request_poll(struct kcr_request *r);
int request_wait(struct kcr_request *r);
int request_watchdog(struct kcr_request *r, uint64_t *sleep_ns);
int request_stuck(struct kcr_request *r);
int request_late(struct kcr_request *r, double seconds);
void request_claim(const struct kcr_request *r);

/* Whom does it wait for, in words. */
void request_names(const struct rankset *ranks, char *text, size_t size);

#endif /* KCR_REQUEST_H */
