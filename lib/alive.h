/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Files that show that their owner is alive: it holds a lock on each.
 */
#ifndef KCR_ALIVE_H
#define KCR_ALIVE_H

#include <stdbool.h>
#include <stddef.h>

/* From alive_open(): a file of this process, which lives as long as we look. */
#define ALIVE_OURS	-1000

int alive_own(int fd);
void alive_disown(int fd);
int alive_open(const char *path, char *text, size_t size);
int alive_open_number(int pid, int number, char *text, size_t size);
bool alive_is_held(int fd);

#endif /* KCR_ALIVE_H */
