/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The keeper of kcr-run: a child that sees to it that nothing stays behind
 *
 * It waits for our end of a pipe to close, which it does however we end, kills
 * the ranks' process groups and removes the rendezvous directory.
 */
#ifndef RUN_KEEPER_H
#define RUN_KEEPER_H

#include <stdbool.h>
#include <sys/types.h>

#include <kcollring.h>

/* Shared with the child. A rank enters its group itself, and we take it out. */
struct kept {
	pid_t groups[KCR_RANKS_MAX];	/* 0: none */
	char directory[256];
};

struct keeper {
	struct kept *kept;
	pid_t pid;
	int pipe;
};

/* Both false, with errno, if there are no resources for it. */
bool keeper_start(struct keeper *keeper);
bool keeper_make_directory(struct keeper *keeper);
/* Removes the directory; call it when all ranks have ended. */
void keeper_stop(struct keeper *keeper);

#endif /* RUN_KEEPER_H */
