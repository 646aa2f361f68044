/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory that the ranks of one node share without the module: files without a name,
 * sealed against resizing and filled, so that no access of a peer can fault.
 */
#ifndef KCR_SHM_H
#define KCR_SHM_H

#include <stddef.h>
#include "rendezvous.h"

/* What a memory begins with, that it may be told from all others. */
#define SHM_IDENTITY	16

int shm_make(size_t bytes);
int shm_open_peer(struct rendezvous *rv, int rank, int number, size_t bytes);

#endif /* KCR_SHM_H */
