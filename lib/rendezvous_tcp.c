// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Rendezvous by TCP: a star around rank 0, for ranks that share no directory.
 *
 * Rank 0 listens. The others connect until it is there, and show their cards.
 * What rank 0 has to say is the same for all, so it keeps it in one log,
 * of which every connection gets all: its own card, which says that a hello
 * was taken, the others' as they come, the notes of each exchange, an error or that all
 * is settled. A connection that ends before the first message was not with this
 * attempt, and is tried again; one that ends later is a death. So who has not
 * connected when rank 0 dies waits until its time is up. One launch meets at a port at a
 * time: rank 0 of another, by the name of the job, waits until the port is free.
 *
 * Errors go to rank 0, and the first becomes everyone's. Of those that are there
 * together, what a rank says of itself goes before what others saw of its death.
 * For a moment rank 0 goes on to tell those who come late.
 *
 * Who connects and is not of this world, or says nothing, costs a place in a table for
 * some seconds. Nobody is trusted with a length. There is no secret: who reaches
 * the port and speaks this language can join or fail the launch.
 *
 * Nothing runs in the background: rank 0 serves in its own calls, which are collective.
 * Everything belongs to the rank's thread that makes the world, but is_alive(), which
 * any thread may call and changes nothing.
 *
 * That a rank of the same node lives is seen, as in the other way, by a lock
 * (alive.c), here on a file that has no name: peers find it by process and descriptor. For
 * ranks of other nodes there is only the connection, so rank 0 can be asked
 * about all and the others about rank 0. A forked child has it, too, and keeps it open.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "alive.h"
#include "kcr.h"
#include "limits.h"
#include "rendezvous.h"
#include "rendezvous_wire.h"

#define NOT_OPEN	-1
#define MS		1000000ull

struct peer {
	struct card card;
	char note[NOTE_BYTES];
	struct wire *wire;	/* rank 0's to it, until settled */
	int fd;			/* what is left of that */
	int number;		/* of its descriptor with the lock */
	int alive;		/* the same file here */
	bool known;
};

/**
 * struct meeting - a rendezvous by TCP
 * @rv: what others see of it
 * @config: the caller's, until settled
 * @rank: this rank
 * @size: ranks
 * @place: where
 * @card: this rank's
 * @alive: holds the lock that shows that this rank lives
 * @deadline_ns: the end of all waiting for others to come
 * @error: the first error, or the one that rank 0 has told
 * @sentence: the same in words
 * @told: all know it
 * @lost: the connection to rank 0 has ended
 * @standing: rank 0 has settled
 * @leader: not rank 0: the connection to it
 * @listener: rank 0 only, as all that follows
 * @absent: how many have not been heard of
 * @log: what everyone is told
 * @logged: bytes in it
 * @room: bytes that fit
 * @guests: connections that have no rank, or none yet
 * @polls: one for each guest, peer, and the listener
 * @peers: by rank
 */
struct meeting {
	struct rendezvous rv;
	const struct kcr_config *config;
	int rank;
	int size;
	struct wire_place place;
	struct card card;
	int alive;
	uint64_t deadline_ns;
	int error;
	char sentence[KCR_ERROR_BYTES];
	bool told;
	bool lost;
	bool standing;
	struct wire *leader;
	int listener;
	int absent;
	char *log;
	size_t logged, room;
	struct wire *guests[STRANGERS];
	struct pollfd *polls;
	struct peer peers[];
};

static const struct rendezvous_ops tcp_ops;

static struct meeting *meeting_of(struct rendezvous *rv)
{
	return (struct meeting *)rv;
}

static const char *job_of(const struct meeting *m)
{
	return m->config->job ? m->config->job : "";
}

static uint64_t in_ms(uint64_t ms)
{
	return process_now_ns() + ms * MS;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The sentence is in kcr_error(NULL). */
static void blame(struct meeting *m, int error)
{
	if (m->told ||
	    (m->error && (m->error != -ECONNRESET || error == -ECONNRESET)))
		return;
	m->error = error;
	snprintf(m->sentence, sizeof(m->sentence), "%s", kcr_error(NULL));
}

static int result(const struct meeting *m)
{
	return m->error ? kcr_fail(NULL, m->error, "%s", m->sentence) : 0;
}

/* An error as a message has it; @body of WIRE_BODY bytes. */
static size_t pack_error(char *body, int error, const char *sentence)
{
	uint32_t number = htonl(-error);

	memcpy(body, &number, sizeof(number));
	return sizeof(number) + snprintf(body + sizeof(number), KCR_ERROR_BYTES,
					 "%s", sentence);
}

/* Its sentence goes to kcr_error(NULL). */
static int unpack_error(const char *body, size_t length)
{
	uint32_t number = 0;

	if (length < sizeof(number))
		return kcr_fail(NULL, -EPROTO, "an error that cannot be understood");
	memcpy(&number, body, sizeof(number));
	number = ntohl(number);
	return kcr_fail(NULL, number && number < 4096 ? -(int)number : -EIO,
			"%.*s", KCR_ERROR_BYTES - 1, body + sizeof(number));
}

/* Rank 0: say something to everyone. */
static int log_add(struct meeting *m, enum wire_kind kind, int rank,
		   const void *body, size_t length)
{
	struct wire_head head;
	size_t bytes = sizeof(head) + length;

	if (m->logged + bytes > m->room) {
		size_t room = 2 * m->room + bytes;
		char *log = realloc(m->log, room);

		if (!log)
			return kcr_fail(NULL, -ENOMEM,
					"no memory for the rendezvous");
		m->log = log;
		m->room = room;
	}
	wire_fill(&head, kind, rank, length);
	memcpy(m->log + m->logged, &head, sizeof(head));
	memcpy(m->log + m->logged + sizeof(head), body, length);
	m->logged += bytes;
	return 0;
}

static void log_card(struct meeting *m, int rank, const struct card *card,
		     int number)
{
	char body[WIRE_BODY];
	uint32_t n = htonl(number);
	size_t length = strlen(card->text);
	int err;

	memcpy(body, &n, sizeof(n));
	memcpy(body + sizeof(n), card->text, length);
	err = log_add(m, WIRE_CARD, rank, body, sizeof(n) + length);
	if (err)
		blame(m, err);
}

/* Guests come first, then ranks. */
static struct wire **slot(struct meeting *m, int i)
{
	return i < STRANGERS ? &m->guests[i] : &m->peers[i - STRANGERS].wire;
}

static int slots(const struct meeting *m)
{
	return STRANGERS + m->size;
}

static void drop(struct wire **wire)
{
	if (!*wire)
		return;
	wire_close(*wire);
	free(*wire);
	*wire = NULL;
}

static bool is_behind(const struct meeting *m, const struct wire *wire)
{
	return wire && wire->hears && wire->sent < m->logged;
}

/* Send what can be sent; who cannot be sent to is found out by reading. */
static void push(struct meeting *m, struct wire *wire)
{
	while (is_behind(m, wire)) {
		ssize_t n = send(wire->fd, m->log + wire->sent,
				 m->logged - wire->sent,
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n > 0)
			wire->sent += n;
		else if (n < 0 && errno == EAGAIN)
			return;
		else if (n >= 0 || errno != EINTR)
			wire->sent = m->logged;
	}
}

static bool is_known(const struct meeting *m, uint32_t rank)
{
	return rank < (uint32_t)m->size && m->peers[rank].known;
}

static void is_here(struct meeting *m, uint32_t rank)
{
	if (is_known(m, rank))
		return;
	/* It counts more ranks than this one: who knows how many are to come. */
	if (rank >= (uint32_t)m->size) {
		m->absent = KCR_RANKS_MAX;
		return;
	}
	m->peers[rank].known = true;
	m->absent--;
}

/* Another launch, or an attempt to do better after an error: not now. */
static void send_away(struct wire **guest, const char *why)
{
	wire_send((*guest)->fd, WIRE_OTHER, 0, why, strlen(why), 0);
	drop(guest);
}

static void refuse_duplicate(struct meeting *m, int rank,
			     const struct card *card)
{
	const struct card *first = rank ? &m->peers[rank].card : &m->card;

	kcr_fail(NULL, -EEXIST,
		 "rank %d is claimed twice: by host %s pid %d and by host %s pid %d",
		 rank, first->host, first->pid, card->host, card->pid);
	blame(m, -EEXIST);
}

/* A guest has shown the card of a rank. */
static void take_card(struct meeting *m, struct wire **guest, uint32_t rank,
		      const struct card *card, int number)
{
	struct peer *peer;
	int err;

	(*guest)->hears = true;
	if (is_known(m, rank)) {
		refuse_duplicate(m, rank, card);
		return;
	}
	err = card_compare(&m->card, rank, card);
	if (!err && rank >= (uint32_t)m->size)
		err = kcr_fail(NULL, -EINVAL,
			       "rank is %u (host %s, pid %d), must be 0 to %d",
			       rank, card->host, card->pid, m->size - 1);
	is_here(m, rank);
	if (err) {
		blame(m, err);
		return;
	}
	peer = &m->peers[rank];
	peer->card = *card;
	card_parse(&peer->card);
	peer->number = number;
	peer->wire = *guest;
	*guest = NULL;
	log_card(m, rank, &peer->card, number);
}

/* A guest's first message is here. What is not ours is not worth an answer. */
static void greet(struct meeting *m, struct wire **guest)
{
	struct wire *wire = *guest;
	uint32_t rank = wire->head.rank;
	size_t length = wire->head.length;
	struct wire_hello hello;
	const char *rest = wire->body + sizeof(hello);
	struct card card;

	if ((wire->head.kind != WIRE_HELLO && wire->head.kind != WIRE_REFUSE) ||
	    length <= sizeof(hello) ||
	    length - sizeof(hello) >= sizeof(card.text)) {
		drop(guest);
		return;
	}
	memcpy(&hello, wire->body, sizeof(hello));
	hello.job[sizeof(hello.job) - 1] = 0;
	if (strcmp(hello.job, job_of(m))) {
		send_away(guest, "another launch is meeting there");
		return;
	}
	if (m->told && is_known(m, rank)) {
		send_away(guest, "an attempt that has failed is ending there");
		return;
	}
	if (wire->head.kind == WIRE_REFUSE) {
		wire->hears = true;
		blame(m, unpack_error(rest, length - sizeof(hello)));
		is_here(m, rank);
		return;
	}
	memset(&card, 0, sizeof(card));
	memcpy(card.text, rest, length - sizeof(hello));
	if (card_parse(&card)) {
		drop(guest);
	} else if (m->error) {
		wire->hears = true;
		is_here(m, rank);
	} else {
		take_card(m, guest, rank, &card, ntohl(hello.number));
	}
}

static void hear_guest(struct meeting *m, struct wire **guest)
{
	struct wire *wire = *guest;
	int err;

	/* One that only listens now has nothing more to say. */
	if (wire->hears) {
		if (!wire_is_open(wire->fd))
			drop(guest);
		return;
	}
	err = wire_read(wire);
	if (!err) {
		greet(m, guest);
	} else if (err == -EPROTONOSUPPORT && wire->head.kind == WIRE_HELLO) {
		kcr_fail(NULL, err,
			 "rank %d meets by version %u of the protocol and rank 0 (host %s, pid %d) by %d: are their libraries the same?",
			 (int)wire->head.rank, wire->head.version, m->card.host,
			 m->card.pid, WIRE_VERSION);
		blame(m, err);
		wire->hears = true;
		is_here(m, wire->head.rank);
	} else if (err != -EAGAIN) {
		drop(guest);
	}
}

/* A note; the empty one is that it is missing. */
static int take_note(struct meeting *m, int rank, const struct wire *wire)
{
	if (!wire->body[0] || wire->head.length >= NOTE_BYTES)
		return -EBADMSG;
	memcpy(m->peers[rank].note, wire->body, wire->head.length + 1);
	return 0;
}

/* A message of a rank to rank 0. */
static int take_message(struct meeting *m, int rank, const struct wire *wire)
{
	int err;

	switch (wire->head.kind) {
	case WIRE_NOTE:
		/* The next one comes when all have this one. */
		err = m->peers[rank].note[0] ? -EBADMSG :
		      take_note(m, rank, wire);
		if (!err)
			err = log_add(m, WIRE_NOTE, rank, wire->body,
				      wire->head.length);
		return err;
	case WIRE_FAIL:
		blame(m, unpack_error(wire->body, wire->head.length));
		return 0;
	}
	return -EBADMSG;
}

static void hear_rank(struct meeting *m, int rank)
{
	struct peer *peer = &m->peers[rank];
	const struct card *card = &peer->card;
	int err;

	do {
		err = wire_read(peer->wire);
		if (!err)
			err = take_message(m, rank, peer->wire);
	} while (!err);
	if (err == -EAGAIN)
		return;
	if (err == -ECONNRESET)
		kcr_fail(NULL, err,
			 "rank %d died while the ranks came together (host %s, pid %d)",
			 rank, card->host, card->pid);
	else if (err != -ENOMEM)
		kcr_fail(NULL, err,
			 "rank %d (host %s, pid %d) sent what cannot be understood",
			 rank, card->host, card->pid);
	blame(m, err);
	drop(&peer->wire);
}

/* A place for a guest, made free if somebody has had it too long. */
static struct wire **find_place(struct meeting *m)
{
	uint64_t now = process_now_ns();
	struct wire **oldest = NULL;
	int i;

	for (i = 0; i < STRANGERS; i++) {
		struct wire **at = &m->guests[i];

		if (*at && !(*at)->hears && now - (*at)->since_ns > STRANGER_MS * MS)
			drop(at);
		if (!*at)
			return at;
		if (!oldest || (*at)->since_ns < (*oldest)->since_ns)
			oldest = at;
	}
	if (now - (*oldest)->since_ns < STRANGER_FULL_MS * MS)
		return NULL;
	drop(oldest);
	return oldest;
}

/* Those for whom there is no place wait in the kernel's queue. */
static void accept_guests(struct meeting *m)
{
	struct wire **place, *wire;
	int fd;

	while ((place = find_place(m))) {
		/* cppcheck-suppress nullPointer; accept(2) allows it */
		fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EMFILE || errno == ENFILE ||
			       errno == ENOMEM || errno == ENOBUFS))
			blame(m, kcr_fail(NULL, -errno,
					  "rank 0 cannot take a connection: %s",
					  strerror(errno)));
		if (fd < 0)
			return;
		wire = calloc(1, sizeof(*wire));
		if (!wire) {
			close(fd);
			return;
		}
		wire->fd = fd;
		wire->since_ns = process_now_ns();
		*place = wire;
	}
}

/* Rank 0: something happens, or @until_ns comes, or a little time passes. */
static void serve(struct meeting *m, uint64_t until_ns)
{
	uint64_t now = process_now_ns();
	int n = slots(m), i, ms;

	for (i = 0; i < n; i++) {
		struct wire *wire = *slot(m, i);

		m->polls[i].fd = wire ? wire->fd : -1;
		m->polls[i].events = is_behind(m, wire) ? POLLIN | POLLOUT : POLLIN;
		m->polls[i].revents = 0;
	}
	m->polls[n].fd = find_place(m) ? m->listener : -1;
	m->polls[n].events = POLLIN;
	m->polls[n].revents = 0;
	ms = until_ns <= now ? 0 : (until_ns - now) / MS < 50 ?
	     (until_ns - now) / MS + 1 : 50;
	if (poll(m->polls, n + 1, ms) <= 0)
		return;
	/* Read, then write: an answer to what goes now is for another turn. */
	for (i = 0; i < n; i++) {
		struct wire **at = slot(m, i);

		if (!m->polls[i].revents || !*at || (*at)->fd != m->polls[i].fd)
			continue;
		if (i < STRANGERS)
			hear_guest(m, at);
		else
			hear_rank(m, i - STRANGERS);
	}
	for (i = 0; i < n; i++)
		push(m, *slot(m, i));
	if (m->polls[n].revents)
		accept_guests(m);
}

static bool any_behind(struct meeting *m)
{
	int i;

	for (i = 0; i < slots(m); i++)
		if (is_behind(m, *slot(m, i)))
			return true;
	return false;
}

/* Rank 0: let all have what was said, without hearing them. */
static void flush(struct meeting *m, uint64_t until_ns)
{
	int i;

	for (;;) {
		for (i = 0; i < slots(m); i++)
			push(m, *slot(m, i));
		if (!any_behind(m) || process_now_ns() >= until_ns)
			return;
		for (i = 0; i < slots(m); i++) {
			struct wire *wire = *slot(m, i);

			m->polls[i].fd = is_behind(m, wire) ? wire->fd : -1;
			m->polls[i].events = POLLOUT;
		}
		poll(m->polls, slots(m), 10);
	}
}

/* Rank 0: the first error is everyone's, also of those who come a little late. */
static int lead_tell(struct meeting *m)
{
	char body[WIRE_BODY];
	size_t length;
	uint64_t late;

	if (m->told)
		return result(m);
	serve(m, 0);
	length = pack_error(body, m->error, m->sentence);
	m->told = true;
	if (log_add(m, WIRE_ERROR, 0, body, length))
		return result(m);
	flush(m, in_ms(LATE_MS));
	late = sooner(in_ms(LATE_MS), m->deadline_ns);
	while (m->absent > 0 && process_now_ns() < late)
		serve(m, late);
	flush(m, in_ms(LATE_MS));
	return result(m);
}

static int take_word_of_card(struct meeting *m, uint32_t rank,
			     const struct wire *wire)
{
	struct peer *peer;
	uint32_t number;

	if (rank >= (uint32_t)m->size || wire->head.length <= sizeof(number) ||
	    wire->head.length - sizeof(number) >= CARD_BYTES)
		return -EBADMSG;
	peer = &m->peers[rank];
	memcpy(&number, wire->body, sizeof(number));
	peer->number = ntohl(number);
	strcpy(peer->card.text, wire->body + sizeof(number));
	peer->known = true;
	return card_parse(&peer->card);
}

/* What rank 0 says. */
static int take_word(struct meeting *m)
{
	const struct wire *wire = m->leader;
	uint32_t rank = wire->head.rank;

	switch (wire->head.kind) {
	case WIRE_CARD:
		return take_word_of_card(m, rank, wire);
	case WIRE_NOTE:
		return rank < (uint32_t)m->size ? take_note(m, rank, wire) : -EBADMSG;
	case WIRE_ERROR:
		m->error = 0;
		blame(m, unpack_error(wire->body, wire->head.length));
		m->told = true;
		return 0;
	case WIRE_SETTLED:
		m->standing = true;
		return 0;
	}
	return -EBADMSG;
}

/* Not rank 0: hear one word of it, or wait until @until_ns. */
static void listen_to_leader(struct meeting *m, uint64_t until_ns)
{
	const struct card *first = &m->peers[0].card;
	int err = m->lost ? -ECONNRESET : wire_wait(m->leader, until_ns);

	if (!err)
		err = take_word(m);
	if (!err || err == -ETIMEDOUT)
		return;
	m->lost = true;
	if (err == -ECONNRESET)
		kcr_fail(NULL, err,
			 "rank 0 died while the ranks came together (host %s, pid %d)",
			 first->host, first->pid);
	else
		kcr_fail(NULL, err,
			 "rank 0 (host %s, pid %d) sent what cannot be understood",
			 first->host, first->pid);
	blame(m, err);
}

static void show_death(struct meeting *m)
{
	if (m->alive != NOT_OPEN)
		alive_disown(m->alive);
	m->alive = NOT_OPEN;
}

/*
 * Not rank 0: tell it, and hear what everyone's error is. Rank 0 may be where it
 * hears of nothing but deaths, so this rank looks dead from now on.
 */
static int follow_tell(struct meeting *m)
{
	char body[WIRE_BODY];
	uint64_t until = in_ms(REFUSE_MS);
	size_t length;

	if (m->told || m->lost || m->standing)
		return result(m);
	length = pack_error(body, m->error, m->sentence);
	if (wire_send(m->leader->fd, WIRE_FAIL, m->rank, body, length, until))
		until = in_ms(0);
	show_death(m);
	while (!m->told && !m->lost) {
		listen_to_leader(m, until);
		if (process_now_ns() >= until)
			break;
	}
	return result(m);
}

static int tell(struct meeting *m)
{
	return m->rank ? follow_tell(m) : lead_tell(m);
}

static void turn_until(struct meeting *m, uint64_t until_ns)
{
	if (m->rank)
		listen_to_leader(m, until_ns);
	else
		serve(m, until_ns);
}

static bool have_card(const struct meeting *m, int rank)
{
	return m->peers[rank].known;
}

static bool have_note(const struct meeting *m, int rank)
{
	return m->peers[rank].note[0];
}

/* The first rank of which @have is not true, from @from on; or the size. */
static int first_missing(const struct meeting *m, int from,
			 bool (*have)(const struct meeting *m, int rank))
{
	while (from < m->size && have(m, from))
		from++;
	return from;
}

static void blame_missing(struct meeting *m,
			  bool (*have)(const struct meeting *m, int rank))
{
	char names[KCR_ERROR_BYTES / 2] = "";
	size_t at = 0;
	int r = first_missing(m, 0, have);

	/* Others' answers go through rank 0, so it alone knows who is missing. */
	for (; r < m->size && at < sizeof(names);
	     r = first_missing(m, r + 1, have))
		at += snprintf(names + at, sizeof(names) - at, "%srank %d",
			       at ? ", " : "", r);
	blame(m, kcr_fail(NULL, -ETIMEDOUT, "no word from %s at %s after %.1f s",
			  names, m->place.text, m->config->rendezvous_ms / 1e3));
}

/* Until @have is true of all ranks. A rank that fails meanwhile, or dies, is everyone's error. */
static int gather(struct meeting *m,
		  bool (*have)(const struct meeting *m, int rank))
{
	int r = 0;

	for (;;) {
		if (m->error)
			return tell(m);
		r = first_missing(m, r, have);
		if (r == m->size)
			break;
		if (process_now_ns() >= m->deadline_ns) {
			blame_missing(m, have);
			return tell(m);
		}
		turn_until(m, m->deadline_ns);
	}
	if (!m->rank)
		flush(m, m->deadline_ns);
	return 0;
}

static void take_breath(unsigned int *pauses)
{
	struct timespec t = { .tv_nsec = 1000000 };

	t.tv_nsec <<= *pauses < 5 ? (*pauses)++ : 5;
	nanosleep(&t, NULL);
}

/* Say hello, or instead what went wrong. */
static int say_hello(struct meeting *m, int fd)
{
	char body[WIRE_BODY];
	struct wire_hello hello = { 0 };
	size_t length;

	hello.number = htonl(m->alive);
	snprintf(hello.job, sizeof(hello.job), "%s", job_of(m));
	memcpy(body, &hello, sizeof(hello));
	if (m->error) {
		length = pack_error(body + sizeof(hello), m->error, m->sentence);
		return wire_send(fd, WIRE_REFUSE, m->rank, body,
				 sizeof(hello) + length, m->deadline_ns);
	}
	length = strlen(m->card.text);
	memcpy(body + sizeof(hello), m->card.text, length);
	return wire_send(fd, WIRE_HELLO, m->rank, body, sizeof(hello) + length,
			 m->deadline_ns);
}

/*
 * Try once to be taken by rank 0. Returns 0 if it has; -EAGAIN if whoever is there
 * has not, or not yet, and @why; -EBUSY likewise if that is another launch;
 * or an error.
 */
static int try_leader(struct meeting *m, uint64_t until_ns, char *why,
		      size_t size)
{
	int err;

	m->leader->have = 0;
	m->leader->fd = wire_connect(&m->place, until_ns, why, size);
	if (m->leader->fd < 0)
		return -EAGAIN;
	err = say_hello(m, m->leader->fd);
	if (!err)
		err = wire_wait(m->leader, until_ns);
	if (!err && m->leader->head.kind == WIRE_OTHER) {
		snprintf(why, size, "%.*s", (int)size - 1, m->leader->body);
		err = -EBUSY;
	} else if (!err) {
		err = take_word(m);
	} else if (err == -ETIMEDOUT) {
		snprintf(why, size, "connected, and nothing answers");
		err = -EAGAIN;
	} else if (err == -EPROTONOSUPPORT) {
		kcr_fail(NULL, err,
			 "rank 0 at %s meets by version %u of the protocol and rank %d by %d: are their libraries the same?",
			 m->place.text, m->leader->head.version, m->rank,
			 WIRE_VERSION);
	} else if (err != -EBADMSG) {
		snprintf(why, size, "the connection was closed");
		err = -EAGAIN;
	}
	if (err == -EBADMSG)
		kcr_fail(NULL, err, "what listens at %s is not rank 0 of a kcollring world",
			 m->place.text);
	if (err)
		wire_close(m->leader);
	return err;
}

static int follow(struct meeting *m)
{
	char why[KCR_ERROR_BYTES / 2] = "";
	unsigned int pauses = 0;
	int err;

	for (;;) {
		err = try_leader(m, m->deadline_ns, why, sizeof(why));
		if (err != -EAGAIN && err != -EBUSY)
			return err;
		if (process_now_ns() >= m->deadline_ns)
			return kcr_fail(NULL, -ETIMEDOUT,
					"no word from rank 0 at %s after %.1f s (%s)",
					m->place.text,
					m->config->rendezvous_ms / 1e3, why);
		take_breath(&pauses);
	}
}

/*
 * Somebody uses rank 0's port. Another rank 0 tells that there are two, and
 * another launch that it will soon be done.
 */
static int contest_lead(struct meeting *m)
{
	uint64_t until = sooner(in_ms(LISTEN_MS), m->deadline_ns);
	char why[KCR_ERROR_BYTES / 2];
	int err = try_leader(m, until, why, sizeof(why));

	if (err)
		return err == -EBUSY ? err : -EAGAIN;
	while (!m->told && !m->lost && process_now_ns() < until)
		listen_to_leader(m, until);
	wire_close(m->leader);
	if (m->told)
		return result(m);
	/* It has gone: nothing of it is for us. */
	m->error = 0;
	m->lost = false;
	m->peers[0].known = false;
	return -EAGAIN;
}

static int lead(struct meeting *m)
{
	uint64_t patience = sooner(in_ms(LISTEN_MS), m->deadline_ns);
	char sentence[KCR_ERROR_BYTES];
	unsigned int pauses = 0;
	int err, error = m->error;

	for (;;) {
		m->listener = wire_listen(&m->place, m->size + STRANGERS, &err);
		if (m->listener >= 0)
			break;
		if (err != -EADDRINUSE || error)
			return err;
		snprintf(sentence, sizeof(sentence), "%s", kcr_error(NULL));
		err = contest_lead(m);
		if (err == -EBUSY)
			patience = sooner(in_ms(LISTEN_MS), m->deadline_ns);
		else if (err != -EAGAIN)
			return err;
		if (process_now_ns() >= patience)
			return kcr_fail(NULL, -EADDRINUSE, "%s", sentence);
		take_breath(&pauses);
	}
	m->peers[0].card = m->card;
	card_parse(&m->peers[0].card);
	m->peers[0].known = true;
	m->peers[0].number = m->alive;
	if (!error)
		log_card(m, 0, &m->card, m->alive);
	return 0;
}

/* Show that this rank lives, by a lock on a file without a name. */
static int show_life(struct meeting *m)
{
	const char *text = m->card.incarnation;
	int fd = memfd_create("kcollring-alive", MFD_CLOEXEC), err = 0;

	if (fd < 0)
		return kcr_fail(NULL, -errno, "memfd_create: %s", strerror(errno));
	if (write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		err = -ENOSPC;
	if (!err)
		err = alive_own(fd);
	if (!err) {
		m->alive = fd;
		return 0;
	}
	close(fd);
	return kcr_fail(NULL, err, "cannot hold a lock: %s", strerror(-err));
}

/* Not to be asked: who is on another node, or where this rank cannot look. */
static void find_lives(struct meeting *m)
{
	char text[sizeof(m->card.incarnation)];

	for (int r = 0; r < m->size; r++) {
		struct peer *peer = &m->peers[r];
		int fd;

		if (r == m->rank || !card_same_node(&m->card, &peer->card))
			continue;
		fd = alive_open_number(peer->card.pid, peer->number, text,
				       sizeof(text));
		if (fd != ALIVE_OURS && fd < 0)
			continue;
		if (!strcmp(text, peer->card.incarnation))
			peer->alive = fd;
		else if (fd >= 0)
			close(fd);
	}
}

static void tcp_free(struct meeting *m)
{
	if (m->polls)
		for (int i = 0; i < slots(m); i++)
			drop(slot(m, i));
	drop(&m->leader);
	for (int r = 0; r < m->size; r++) {
		if (m->peers[r].fd >= 0)
			close(m->peers[r].fd);
		if (m->peers[r].alive >= 0)
			close(m->peers[r].alive);
	}
	if (m->listener >= 0)
		close(m->listener);
	show_death(m);
	free(m->log);
	free(m->polls);
	free(m);
}

/* A rendezvous whose place is known, before anybody is met. */
static int make(const struct kcr_config *config, struct meeting **out)
{
	struct meeting *m;
	int err;

	if (config->job && strlen(config->job) > 64)
		return kcr_fail(NULL, -EINVAL,
				"job is \"%s\", must be at most 64 characters",
				config->job);
	m = calloc(1, sizeof(*m) + config->size * sizeof(m->peers[0]));
	if (!m)
		return kcr_fail(NULL, -ENOMEM, "no memory for the rendezvous");
	m->rv.ops = &tcp_ops;
	m->rv.references = 1;
	m->config = config;
	m->rank = config->rank;
	m->size = config->size;
	m->absent = m->size - 1;
	m->alive = NOT_OPEN;
	m->listener = NOT_OPEN;
	for (int r = 0; r < m->size; r++) {
		m->peers[r].fd = NOT_OPEN;
		m->peers[r].alive = NOT_OPEN;
	}
	m->deadline_ns = in_ms(config->rendezvous_ms);
	m->leader = calloc(1, sizeof(*m->leader));
	if (m->leader)
		m->leader->fd = NOT_OPEN;
	if (!m->rank)
		m->polls = calloc(slots(m) + 1, sizeof(*m->polls));
	if (!m->leader || (!m->rank && !m->polls))
		err = kcr_fail(NULL, -ENOMEM, "no memory for the rendezvous");
	else
		err = wire_parse_place(config->rendezvous, &m->place);
	if (err)
		tcp_free(m);
	else
		*out = m;
	return err;
}

/**
 * rendezvous_tcp_open() - meet at a port of rank 0's node, and compare cards
 * @config: this rank's configuration; must live until rendezvous_settle()
 * @has_module: it can use the module
 * @out: the rendezvous
 */
int rendezvous_tcp_open(const struct kcr_config *config, bool has_module,
			struct rendezvous **out)
{
	struct meeting *m;
	int err;

	err = make(config, &m);
	if (err)
		return err;
	err = card_make(config, has_module, &m->card);
	if (!err)
		err = show_life(m);
	if (!err)
		err = m->rank ? follow(m) : lead(m);
	if (!err)
		err = gather(m, have_card);
	if (err) {
		tcp_free(m);
		return err;
	}
	find_lives(m);
	*out = &m->rv;
	return 0;
}

/**
 * rendezvous_tcp_refuse() - tell the ranks that wait for this one
 * @config: a sane one, as rendezvous_refuse() makes it
 * @error: why this rank cannot come
 * @sentence: the same in words
 */
void rendezvous_tcp_refuse(const struct kcr_config *config, int error,
			   const char *sentence)
{
	char why[KCR_ERROR_BYTES];
	unsigned int pauses = 0;
	struct meeting *m;

	if (make(config, &m))
		return;
	blame(m, kcr_fail(NULL, error, "%s", sentence));
	if (!m->rank) {
		/* It may be the size that is wrong. */
		m->absent = KCR_RANKS_MAX;
		if (!lead(m))
			lead_tell(m);
	} else {
		do {
			error = try_leader(m, m->deadline_ns, why, sizeof(why));
			take_breath(&pauses);
		} while ((error == -EAGAIN || error == -EBUSY) &&
			 process_now_ns() < m->deadline_ns);
	}
	tcp_free(m);
}

static int tcp_exchange(struct rendezvous *rv, const char *note)
{
	struct meeting *m = meeting_of(rv);
	size_t length = strlen(note);
	int err;

	for (int r = 0; r < m->size; r++)
		m->peers[r].note[0] = 0;
	if (m->rank) {
		/* If it cannot be sent, why not is heard of next. */
		wire_send(m->leader->fd, WIRE_NOTE, m->rank, note, length,
			  m->deadline_ns);
	} else {
		snprintf(m->peers[0].note, NOTE_BYTES, "%s", note);
		err = log_add(m, WIRE_NOTE, 0, note, length);
		if (err)
			blame(m, err);
	}
	return gather(m, have_note);
}

static int tcp_fail(struct rendezvous *rv, int error)
{
	struct meeting *m = meeting_of(rv);

	blame(m, error);
	return tell(m);
}

/*
 * Rank 0 hears what there is to hear; the others listen for its word: it has
 * failed as well, or tells that it has not.
 */
static int tcp_error(struct rendezvous *rv, bool waits)
{
	struct meeting *m = meeting_of(rv);
	uint64_t until = in_ms(0);

	if (waits)
		until = m->rank ? in_ms(REFUSE_MS) : until + DYING_NS;
	do {
		if (m->rank ? m->told || m->lost || m->standing : m->error != 0)
			break;
		turn_until(m, until);
	} while (process_now_ns() < until);
	if (m->rank)
		return m->told ? result(m) : 0;
	return m->error ? lead_tell(m) : 0;
}

/* Connections stay, to see who lives on other nodes. */
static void tcp_settle(struct rendezvous *rv)
{
	struct meeting *m = meeting_of(rv);

	m->config = NULL;
	if (m->rank) {
		m->peers[0].fd = m->leader->fd;
		free(m->leader);
		m->leader = NULL;
		return;
	}
	log_add(m, WIRE_SETTLED, 0, "", 0);
	flush(m, 0);
	for (int i = 0; i < STRANGERS; i++)
		drop(&m->guests[i]);
	for (int r = 1; r < m->size; r++) {
		struct wire *wire = m->peers[r].wire;

		m->peers[r].fd = wire ? wire->fd : NOT_OPEN;
		free(wire);
		m->peers[r].wire = NULL;
	}
	close(m->listener);
	m->listener = NOT_OPEN;
	free(m->log);
	m->log = NULL;
	m->logged = 0;
	m->room = 0;
}

static void tcp_close(struct rendezvous *rv)
{
	tcp_free(meeting_of(rv));
}

static const struct card *tcp_card(const struct rendezvous *rv, int rank)
{
	const struct meeting *m = (const struct meeting *)rv;

	return rank == m->rank ? &m->card : &m->peers[rank].card;
}

static const char *tcp_note(const struct rendezvous *rv, int rank)
{
	return ((const struct meeting *)rv)->peers[rank].note;
}

/* Of those who cannot be asked about it is true. */
static bool tcp_is_alive(const struct rendezvous *rv, int rank)
{
	const struct meeting *m = (const struct meeting *)rv;
	const struct peer *peer = &m->peers[rank];

	if (rank == m->rank || peer->alive == ALIVE_OURS)
		return true;
	if (peer->alive >= 0)
		return alive_is_held(peer->alive);
	return peer->fd < 0 || wire_is_open(peer->fd);
}

static const struct rendezvous_ops tcp_ops = {
	.exchange = tcp_exchange,
	.fail = tcp_fail,
	.error = tcp_error,
	.settle = tcp_settle,
	.close = tcp_close,
	.card = tcp_card,
	.note = tcp_note,
	.is_alive = tcp_is_alive,
};
