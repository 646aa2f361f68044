/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Coming together: the ranks of a world find one another, compare what must be the
 * same, and tell one another small things until the link stands.
 */
#ifndef KCR_RENDEZVOUS_H
#define KCR_RENDEZVOUS_H

#include <stdbool.h>
#include "kcollring.h"
#include "wires.h"

#define CARD_BYTES	4096
#define NOTE_BYTES	512

/**
 * struct card - what a rank tells about itself
 * @host: its node's name
 * @boot: its node's boot, which tells nodes apart
 * @pid: its process
 * @has_module: it can use the module
 * @wires: its node's ends of wires, as far as it may use them
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
	struct wire_list wires;
	char id[33];
	char key[33];
	char incarnation[33];
	const char *agreed;
	char text[CARD_BYTES];
};

int card_secrets(struct card *card);
int card_make(const struct kcr_config *config, bool has_module,
	      struct card *card);
int card_parse(struct card *card);
bool card_same_node(const struct card *a, const struct card *b);
int card_compare(const struct card *first, int rank, const struct card *card);
void card_unhex(const char *hex, unsigned char out[16]);

/**
 * struct rendezvous - how the ranks of one world met
 * @ops: in which way
 * @references: the world's, and those of worlds split from it
 */
struct rendezvous {
	const struct rendezvous_ops *ops;
	int references;
};

/**
 * struct rendezvous_ops - what a way of meeting does
 * @exchange: give every rank a note (not empty, shorter than NOTE_BYTES) and get theirs
 * @fail: make every rank fail with this rank's error, whose sentence is in
 *	kcr_error(NULL); returns the error that all report, which is the first
 * @error: the error that a rank has told, if there is one, with its sentence in
 *	kcr_error(NULL); @waits: there must be one, which may be on its way
 * @settle: all ranks are connected
 * @close: the last reference is gone
 * @card: a rank's card
 * @note: a rank's note of the last exchange
 * @is_alive: whether a rank's process lives; by any thread, once the ranks are connected
 */
struct rendezvous_ops {
	int (*exchange)(struct rendezvous *rv, const char *note);
	int (*fail)(struct rendezvous *rv, int error);
	int (*error)(struct rendezvous *rv, bool waits);
	void (*settle)(struct rendezvous *rv);
	void (*close)(struct rendezvous *rv);
	const struct card *(*card)(const struct rendezvous *rv, int rank);
	const char *(*note)(const struct rendezvous *rv, int rank);
	bool (*is_alive)(const struct rendezvous *rv, int rank);
};

/* rendezvous.c */
int rendezvous_open(const struct kcr_config *config, bool has_module,
		    struct rendezvous **rv);
int rendezvous_refuse(const struct kcr_config *config, int error);

/* rendezvous_file.c */
int rendezvous_file_open(const struct kcr_config *config, bool has_module,
			 struct rendezvous **rv);
void rendezvous_file_refuse(const struct kcr_config *config, int error,
			    const char *sentence);

/* rendezvous_tcp.c */
int rendezvous_tcp_open(const struct kcr_config *config, bool has_module,
			struct rendezvous **rv);
void rendezvous_tcp_refuse(const struct kcr_config *config, int error,
			   const char *sentence);

/* rendezvous_split.c */
int rendezvous_split(struct kcr_world *world, int color, int key,
		     struct kcr_config *config, struct rendezvous **rv);
int rendezvous_agree(struct rendezvous *rv, int error);

static inline int rendezvous_exchange(struct rendezvous *rv, const char *note)
{
	return rv->ops->exchange(rv, note);
}

static inline int rendezvous_fail(struct rendezvous *rv, int error)
{
	return rv->ops->fail(rv, error);
}

static inline int rendezvous_error(struct rendezvous *rv, bool waits)
{
	return rv->ops->error(rv, waits);
}

static inline void rendezvous_settle(struct rendezvous *rv)
{
	rv->ops->settle(rv);
}

static inline const struct card *rendezvous_card(const struct rendezvous *rv,
						 int rank)
{
	return rv->ops->card(rv, rank);
}

static inline const char *rendezvous_note(const struct rendezvous *rv, int rank)
{
	return rv->ops->note(rv, rank);
}

static inline bool rendezvous_is_alive(const struct rendezvous *rv, int rank)
{
	return rv->ops->is_alive(rv, rank);
}

static inline struct rendezvous *rendezvous_get(struct rendezvous *rv)
{
	__atomic_add_fetch(&rv->references, 1, __ATOMIC_RELAXED);
	return rv;
}

static inline void rendezvous_close(struct rendezvous *rv)
{
	if (rv && !__atomic_sub_fetch(&rv->references, 1, __ATOMIC_ACQ_REL))
		rv->ops->close(rv);
}

#endif /* KCR_RENDEZVOUS_H */
