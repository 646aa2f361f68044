// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Messages of a rendezvous by TCP, and the sockets that they go through.
 *
 * Whoever finds the port can connect, so nothing that comes is trusted: a
 * message has a magic, a version and a length that are looked at before more
 * is read, and it fits into memory that is already there. Sockets do
 * not block; where something waits, it waits until a time.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "limits.h"
#include "rendezvous_wire.h"

void wire_fill(struct wire_head *head, enum wire_kind kind, int rank,
	       size_t length)
{
	memcpy(head->magic, WIRE_MAGIC, sizeof(head->magic));
	head->version = htonl(WIRE_VERSION);
	head->kind = htonl(kind);
	head->rank = htonl(rank);
	head->length = htonl(length);
}

/* Read until @want bytes of the message are there. */
static int fill(struct wire *wire, size_t want)
{
	char *at = (char *)&wire->head;

	while (wire->have < want) {
		size_t in_head = sizeof(wire->head);
		bool head = wire->have < in_head;
		ssize_t n;

		n = recv(wire->fd, head ? at + wire->have :
			 wire->body + (wire->have - in_head),
			 want - wire->have, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return -EAGAIN;
		if (n <= 0)
			return -ECONNRESET;
		wire->have += n;
	}
	return 0;
}

/* The head is there: may its body come? */
static int check_head(struct wire *wire)
{
	struct wire_head *head = &wire->head;

	if (memcmp(head->magic, WIRE_MAGIC, sizeof(head->magic)))
		return -EBADMSG;
	head->version = ntohl(head->version);
	head->kind = ntohl(head->kind);
	head->rank = ntohl(head->rank);
	head->length = ntohl(head->length);
	if (head->version != WIRE_VERSION)
		return -EPROTONOSUPPORT;
	return head->length > WIRE_BODY ? -EBADMSG : 0;
}

/**
 * wire_read() - take what has come of the next message
 * @wire: the connection; when this returns 0 it has the message, until the next call
 *
 * Returns 0, -EAGAIN if more must come, -ECONNRESET at the end, -EBADMSG if it
 * is no message of ours, or -EPROTONOSUPPORT if it is of another version, whose
 * kind and rank are then known.
 */
int wire_read(struct wire *wire)
{
	size_t head = sizeof(wire->head);
	int err;

	if (wire->have >= head && wire->have == head + wire->head.length)
		wire->have = 0;
	if (wire->have < head) {
		err = fill(wire, head);
		if (err)
			return err;
		err = check_head(wire);
		if (err)
			return err;
	}
	err = fill(wire, head + wire->head.length);
	if (!err)
		wire->body[wire->head.length] = 0;
	return err;
}

/* Until @until_ns, in poll()'s milliseconds. */
static int left_ms(uint64_t until_ns)
{
	uint64_t now = process_now_ns();

	return now >= until_ns ? 0 : (int)((until_ns - now + 999999) / 1000000);
}

static int wait_for(int fd, int events, uint64_t until_ns)
{
	struct pollfd p = { .fd = fd, .events = events };
	int n;

	do {
		n = poll(&p, 1, left_ms(until_ns));
	} while (n < 0 && errno == EINTR);
	return n > 0 ? 0 : n ? -errno : -ETIMEDOUT;
}

/* The next message, as wire_read(), or -ETIMEDOUT. */
int wire_wait(struct wire *wire, uint64_t until_ns)
{
	int err = wire_read(wire);

	while (err == -EAGAIN) {
		err = wait_for(wire->fd, POLLIN, until_ns);
		if (err)
			return err;
		err = wire_read(wire);
	}
	return err;
}

static int send_all(int fd, const char *at, size_t n, uint64_t until_ns)
{
	while (n) {
		ssize_t put = send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		int err = 0;

		if (put < 0 && errno == EAGAIN)
			err = wait_for(fd, POLLOUT, until_ns);
		else if (put < 0 && errno != EINTR)
			err = -errno;
		if (err)
			return err;
		if (put > 0) {
			at += put;
			n -= put;
		}
	}
	return 0;
}

/* Send a message whole. */
int wire_send(int fd, enum wire_kind kind, int rank, const void *body,
	      size_t length, uint64_t until_ns)
{
	char message[sizeof(struct wire_head) + WIRE_BODY];
	struct wire_head head;

	if (length > WIRE_BODY)
		return -EMSGSIZE;
	wire_fill(&head, kind, rank, length);
	memcpy(message, &head, sizeof(head));
	memcpy(message + sizeof(head), body, length);
	return send_all(fd, message, sizeof(head) + length, until_ns);
}

/*
 * A socket that is closed with bytes unread resets the connection, which can
 * take the last message from the peer.
 */
void wire_close(struct wire *wire)
{
	char rest[512];
	int i;

	if (wire->fd < 0)
		return;
	shutdown(wire->fd, SHUT_WR);
	for (i = 0; i < 64; i++)
		if (recv(wire->fd, rest, sizeof(rest), MSG_DONTWAIT) <= 0)
			break;
	close(wire->fd);
	wire->fd = -1;
	wire->have = 0;
}

/* Has the other end not been closed? Throws away what has come. */
bool wire_is_open(int fd)
{
	char rest[512];
	ssize_t n;

	do {
		n = recv(fd, rest, sizeof(rest), MSG_DONTWAIT);
	} while (n > 0 || (n < 0 && errno == EINTR));
	return n < 0 && errno == EAGAIN;
}

static int not_a_place(const char *rendezvous, const char *what)
{
	return kcr_fail(NULL, -EINVAL,
			"rendezvous is \"%.280s\", must be tcp:host:port or tcp:[address]:port%s",
			rendezvous, what);
}

/**
 * wire_parse_place() - where tcp:host:port is
 * @rendezvous: the configuration's
 * @place: filled in
 */
int wire_parse_place(const char *rendezvous, struct wire_place *place)
{
	const char *at = rendezvous + strlen("tcp:");
	const char *colon = strrchr(at, ':'), *end = colon;
	size_t digits;

	if (!colon)
		return not_a_place(rendezvous, "");
	digits = strspn(colon + 1, "0123456789");
	if (!digits || colon[1 + digits] || digits > 5 ||
	    atoi(colon + 1) < 1 || atoi(colon + 1) > 65535)
		return not_a_place(rendezvous, " with a port from 1 to 65535");
	if (*at == '[' && colon[-1] == ']') {
		at++;
		end--;
	} else if (memchr(at, ':', end - at) || memchr(at, '[', end - at)) {
		return not_a_place(rendezvous, "");
	}
	if (end <= at)
		return not_a_place(rendezvous, "");
	if (end - at >= (int)sizeof(place->host))
		return kcr_fail(NULL, -ENAMETOOLONG,
				"the host in rendezvous has %zd bytes, at most %zu work",
				end - at, sizeof(place->host) - 1);
	snprintf(place->host, sizeof(place->host), "%.*s", (int)(end - at), at);
	snprintf(place->port, sizeof(place->port), "%s", colon + 1);
	snprintf(place->text, sizeof(place->text), "%s", rendezvous);
	return 0;
}

static int resolve(const struct wire_place *place, struct addrinfo **list)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV,
	};

	return getaddrinfo(place->host, place->port, &hints, list);
}

static int make_socket(const struct addrinfo *a)
{
	int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
			a->ai_protocol);
	int on = 1;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static int listen_at(const struct addrinfo *a, int backlog)
{
	int fd = make_socket(a), err;

	if (fd < 0)
		return fd;
	if (!bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, backlog))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

/**
 * wire_listen() - rank 0 listens at its host's address
 * @place: where
 * @backlog: how many may connect at once
 * @error: the errno, if it fails; it then has a sentence in kcr_error(NULL)
 *
 * A name's addresses are tried in turn, but not past one whose port is in use: the
 * others would connect to who uses it. Returns a socket, or -1.
 */
int wire_listen(const struct wire_place *place, int backlog, int *error)
{
	struct addrinfo *list, *a;
	int fd = -EADDRNOTAVAIL, failed = resolve(place, &list);

	if (failed) {
		*error = kcr_fail(NULL, -EADDRNOTAVAIL,
				  "rank 0 cannot listen at %s: %s: %s",
				  place->text, place->host, gai_strerror(failed));
		return -1;
	}
	for (a = list; a; a = a->ai_next) {
		fd = listen_at(a, backlog);
		if (fd >= 0 || fd == -EADDRINUSE)
			break;
	}
	freeaddrinfo(list);
	if (fd >= 0)
		return fd;
	if (fd == -EADDRINUSE)
		*error = kcr_fail(NULL, fd,
				  "rank 0 cannot listen at %s: port %s of %s is in use",
				  place->text, place->port, place->host);
	else if (fd == -EADDRNOTAVAIL)
		*error = kcr_fail(NULL, fd,
				  "rank 0 cannot listen at %s: %s is no address of the node that it runs on",
				  place->text, place->host);
	else
		*error = kcr_fail(NULL, fd, "rank 0 cannot listen at %s: %s",
				  place->text, strerror(-fd));
	return -1;
}

/*
 * A port of the range from which clients get theirs can be given to the client itself,
 * which then talks to itself and keeps rank 0 from listening.
 */
static bool is_itself(int fd)
{
	struct sockaddr_storage ours = { 0 }, theirs = { 0 };
	socklen_t n = sizeof(ours), k = sizeof(theirs);

	return !getsockname(fd, (struct sockaddr *)&ours, &n) &&
	       !getpeername(fd, (struct sockaddr *)&theirs, &k) &&
	       n == k && !memcmp(&ours, &theirs, n);
}

static int connect_to(const struct addrinfo *a, uint64_t until_ns)
{
	int fd = make_socket(a), err = 0;
	socklen_t size = sizeof(err);

	if (fd < 0)
		return fd;
	if (connect(fd, a->ai_addr, a->ai_addrlen)) {
		err = -errno;
		if (err == -EINPROGRESS)
			err = wait_for(fd, POLLOUT, until_ns);
		if (!err && getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size))
			err = -errno;
		if (err > 0)
			err = -err;
	}
	if (!err && is_itself(fd))
		err = -ECONNREFUSED;
	if (!err)
		return fd;
	close(fd);
	return err;
}

/**
 * wire_connect() - try once to connect to rank 0
 * @place: where
 * @until_ns: the end of all patience; an address gets CONNECT_MS of it
 * @why: if it fails: the reason
 * @size: of @why
 *
 * Returns a socket, or -1.
 */
int wire_connect(const struct wire_place *place, uint64_t until_ns,
		 char *why, size_t size)
{
	struct addrinfo *list, *a;
	int fd = -EADDRNOTAVAIL, err = resolve(place, &list);

	if (err) {
		snprintf(why, size, "%s: %s", place->host, gai_strerror(err));
		return -1;
	}
	for (a = list; a && fd < 0; a = a->ai_next) {
		uint64_t until = process_now_ns() + CONNECT_MS * 1000000ull;

		fd = connect_to(a, until < until_ns ? until : until_ns);
	}
	freeaddrinfo(list);
	if (fd >= 0)
		return fd;
	snprintf(why, size, "%s", strerror(-fd));
	return -1;
}
