/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What is typed to kcr-run: carried from the terminal to rank 0
 *
 * Rank 0 is not in the terminal's foreground process group and may not read
 * it. Where the standard input is no terminal it is simply inherited.
 */
#ifndef RUN_TYPED_H
#define RUN_TYPED_H

#include <poll.h>
#include <stddef.h>

struct typed {
	int to;			/* a pipe to rank 0; -1: nothing to carry */
	char text[4096];
	size_t start;
	size_t end;
};

/* What to wait for next; its fd is -1 if nothing. */
struct pollfd typed_poll(const struct typed *typed);
void typed_serve(struct typed *typed, const struct pollfd *fd);
void typed_close(struct typed *typed);

#endif /* RUN_TYPED_H */
