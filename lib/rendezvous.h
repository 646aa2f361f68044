/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Coming together: the ranks of a world find one another, compare what must be the
 * same, and tell one another small things until the link stands.
 */
#ifndef KCR_RENDEZVOUS_H
#define KCR_RENDEZVOUS_H

#include <stdbool.h>
#include "kcollring.h"

#define CARD_BYTES	4096
#define NOTE_BYTES	128

/**
 * struct card - what a rank tells about itself
 * @host: its node's name
 * @boot: its node's boot, which tells nodes apart
 * @pid: its process
 * @has_module: it can use the module
 * @id: of the world; rank 0's counts
 * @key: of the world; rank 0's counts
 * @incarnation: random, names this attempt; rank 0's counts
 * @agreed: the rest of the text: must be the same on every rank
 * @text: the whole card
 */
struct card {
	char host[65];
	char boot[40];
	int pid;
	int has_module;
	char id[33];
	char key[33];
	char incarnation[33];
	const char *agreed;
	char text[CARD_BYTES];
};

int card_make(const struct kcr_config *config, bool has_module,
	      struct card *card);
int card_parse(struct card *card);
int card_compare(const struct card *first, int rank, const struct card *card);
void card_unhex(const char *hex, unsigned char out[16]);

int rendezvous_open(const struct kcr_config *config, bool has_module,
		    struct rendezvous **rv);
int rendezvous_refuse(const struct kcr_config *config, int error);
int rendezvous_exchange(struct rendezvous *rv, const char *note);
int rendezvous_fail(struct rendezvous *rv, int error);
int rendezvous_error(struct rendezvous *rv);
void rendezvous_settle(struct rendezvous *rv);
void rendezvous_close(struct rendezvous *rv);

const struct card *rendezvous_card(const struct rendezvous *rv, int rank);
const char *rendezvous_note(const struct rendezvous *rv, int rank);
bool rendezvous_is_alive(const struct rendezvous *rv, int rank);

#endif /* KCR_RENDEZVOUS_H */
