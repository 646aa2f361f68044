/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Messages of a rendezvous by TCP, and the sockets that they go through.
 */
#ifndef KCR_RENDEZVOUS_WIRE_H
#define KCR_RENDEZVOUS_WIRE_H

#include <stdbool.h>
#include <stdint.h>
#include "kcr.h"
#include "rendezvous.h"

#define WIRE_MAGIC	"kcrmeet"
/*
 * A hello that proves a secret will be another version; who speaks this one is
 * then told so in words.
 */
#define WIRE_VERSION	1

/* The longest body: a card and what goes with it. */
#define WIRE_BODY	(CARD_BYTES + 128)

/**
 * enum wire_kind - what a message is, and what its body has
 * @WIRE_HELLO: to rank 0, the first: struct wire_hello and a card's text
 * @WIRE_REFUSE: to rank 0, instead: struct wire_hello and an error; the sender cannot come
 * @WIRE_NOTE: to rank 0, and from it to all: the sender's, or that rank's, note
 * @WIRE_FAIL: to rank 0: an error of the sender
 * @WIRE_CARD: to all: number of a descriptor, and a rank's card; rank 0's is the first
 *	message and says that the hello was taken
 * @WIRE_ERROR: to all: the error that all report; nothing comes after it
 * @WIRE_SETTLED: to all: rank 0 will tell of no error any more
 * @WIRE_OTHER: to one that is of another launch: a sentence
 *
 * An error is an errno, positive, and a sentence.
 */
enum wire_kind {
	WIRE_HELLO = 1,
	WIRE_REFUSE,
	WIRE_NOTE,
	WIRE_FAIL,
	WIRE_CARD,
	WIRE_ERROR,
	WIRE_SETTLED,
	WIRE_OTHER,
};

/* What every message begins with; numbers in network order until wire_read() has it. */
struct wire_head {
	char magic[8];
	uint32_t version;
	uint32_t kind;
	uint32_t rank;
	uint32_t length;	/* of the body */
};

/**
 * struct wire_hello - what a hello has before the card
 * @number: of the descriptor whose lock shows that the rank lives
 * @job: the launch's name, or nothing
 */
struct wire_hello {
	uint32_t number;
	char job[68];
};

/**
 * struct wire - one end of a connection
 * @fd: its socket, or -1
 * @hears: it gets the leader's log
 * @since_ns: when it was made
 * @sent: bytes of the leader's log that have gone
 * @have: bytes of @head and @body that have come
 * @head: of the message that has come, in this machine's order
 * @body: its body, and a 0
 */
struct wire {
	int fd;
	bool hears;
	uint64_t since_ns;
	size_t sent;
	size_t have;
	struct wire_head head;
	char body[WIRE_BODY + 1];
};

void wire_fill(struct wire_head *head, enum wire_kind kind, int rank,
	       size_t length);
int wire_read(struct wire *wire);
int wire_wait(struct wire *wire, uint64_t until_ns);
int wire_send(int fd, enum wire_kind kind, int rank, const void *body,
	      size_t length, uint64_t until_ns);
void wire_close(struct wire *wire);
bool wire_is_open(int fd);

/* Where to meet. */
struct wire_place {
	char host[256];
	char port[8];
	char text[280];		/* as it is shown */
};

int wire_parse_place(const char *rendezvous, struct wire_place *place);
int wire_listen(const struct wire_place *place, int backlog, int *error);
int wire_connect(const struct wire_place *place, uint64_t until_ns,
		 char *why, size_t size);

#endif /* KCR_RENDEZVOUS_WIRE_H */
