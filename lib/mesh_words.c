// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * What has become of a connection, in words.
 *
 * The numbers are the module's (KCR_REASON_*) and verbs' (enum ib_wc_status),
 * which never change. The names of the latter are those that ibv_wc_status_str()
 * has and that people search for.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <netinet/in.h>
#include "link_mesh.h"

/* @detail: what it is, or NULL if it means nothing. */
static const struct {
	const char *text;
	const char *detail;
} reasons[] = {
	[KCR_REASON_NONE] = { "no reason given", NULL },
	[KCR_REASON_ADDRESS] = { "no RDMA device has the local address, or the remote one cannot be resolved",
				 NULL },
	[KCR_REASON_ROUTE] = { "no route to the address", NULL },
	[KCR_REASON_UNREACHABLE] = { "the address does not answer", "status" },
	[KCR_REASON_TIMEOUT] = { "not connected in time: does the cable lead to the device that has this address?",
				 NULL },
	[KCR_REASON_REFUSED] = { "nobody listens there: is kcollring_verbs.ko loaded on that node?",
				 "status" },
	[KCR_REASON_VERSION] = { "the peer's module speaks another version", NULL },
	[KCR_REASON_FORMAT] = { "the peer sent what is no handshake of kcollring's",
				NULL },
	[KCR_REASON_WORLD] = { "the peer's node has no such world", NULL },
	[KCR_REASON_RANK] = { "the peer's node does not have that rank, or the rank does not expect this one",
			      NULL },
	[KCR_REASON_DUPLICATE] = { "the peer is connected to this rank already",
				   NULL },
	[KCR_REASON_CROSSED] = { "the cable ends at the device of another wire",
				 "wire" },
	[KCR_REASON_KEY] = { "the peer has not proven that it knows the world's key",
			     NULL },
	[KCR_REASON_COMPLETION] = { NULL, NULL },
	[KCR_REASON_GONE] = { "the connection ended without a word", NULL },
	[KCR_REASON_DEVICE] = { "the RDMA device is gone", NULL },
	[KCR_REASON_PROTOCOL] = { "the peer broke the rules", "rule" },
	[KCR_REASON_SILENT] = { "no heartbeat from the peer's node", "ms" },
	[KCR_REASON_LOCAL] = { "one of the two nodes could not make what a connection needs",
				"errno" },
	[KCR_REASON_REJECTED] = { "refused by something that is not kcollring",
				  "status" },
	[KCR_REASON_ENDED] = { "the world had failed", "first by rank" },
};

static const char * const completions[] = {
	"success",
	"local length error",
	"local QP operation error",
	"local EE context operation error",
	"local protection error",
	"Work Request Flushed Error",
	"memory management operation error",
	"bad response error",
	"local access error",
	"remote invalid request error",
	"remote access error",
	"remote operation error",
	"transport retry counter exceeded",
	"RNR retry counter exceeded",
	"local RDD violation error",
	"remote invalid RD request",
	"aborted error",
	"invalid EE context number",
	"invalid EE context state",
	"fatal error",
	"response timeout error",
	"general error",
};

#define COUNT(array)	(sizeof(array) / sizeof((array)[0]))

/* A KCR_REASON_* in words. */
const char *mesh_reason_text(unsigned int reason)
{
	if (reason == KCR_REASON_COMPLETION)
		return "a work request failed";
	return reason < COUNT(reasons) ? reasons[reason].text :
					 "a reason that this library does not know";
}

/* An ib_wc_status in words. */
const char *mesh_completion_text(unsigned int status)
{
	return status < COUNT(completions) ? completions[status] :
					     "unknown status";
}

static void why_text(const struct kcr_conn_status *s, char *text, size_t size)
{
	const char *reason = mesh_reason_text(s->reason);
	const char *detail = s->reason < COUNT(reasons) ?
			     reasons[s->reason].detail : NULL;

	if (s->reason == KCR_REASON_COMPLETION)
		snprintf(text, size, "%s (%u)", mesh_completion_text(s->detail),
			 s->detail);
	else if (s->reason == KCR_REASON_VERSION)
		snprintf(text, size, "%s: %u, where this node's speaks %u", reason,
			 s->detail & 0xffff, s->detail >> 16);
	else if (s->reason == KCR_REASON_DUPLICATE && s->detail)
		snprintf(text, size, "the peer is busy with one who does not prove to be this rank");
	else if (s->reason == KCR_REASON_DEVICE && s->error == EOPNOTSUPP)
		snprintf(text, size, "the RDMA device is of a kind that cannot be used: iWARP");
	else if (detail)
		snprintf(text, size, "%s (%s %d)", reason, detail, (int)s->detail);
	else
		snprintf(text, size, "%s", reason);
}

static char *address_text(const void *address, char text[INET6_ADDRSTRLEN])
{
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;

	memcpy(&v6, address, sizeof(v6));
	memcpy(&v4, address, sizeof(v4));
	strcpy(text, "?");
	if (v4.sin_family == AF_INET)
		inet_ntop(AF_INET, &v4.sin_addr, text, INET6_ADDRSTRLEN);
	else if (v4.sin_family == AF_INET6)
		inet_ntop(AF_INET6, &v6.sin6_addr, text, INET6_ADDRSTRLEN);
	return text;
}

/* What the module has chosen once it has resolved the addresses. */
static void path_text(const struct kcr_conn_status *s, char *text, size_t size)
{
	char local[INET6_ADDRSTRLEN], remote[INET6_ADDRSTRLEN];

	text[0] = 0;
	if (!s->mtu)
		return;
	inet_ntop(AF_INET6, s->local_gid, local, sizeof(local));
	inet_ntop(AF_INET6, s->remote_gid, remote, sizeof(remote));
	snprintf(text, size, ", GID %s -> %s, MTU %u", local, remote, s->mtu);
}

static const char * const states[] = {
	[KCR_CONN_NONE] = "not made",
	[KCR_CONN_EXPECTED] = "the peer has not connected",
	[KCR_CONN_CONNECTING] = "no answer yet",
	[KCR_CONN_UP] = "connected",
	[KCR_CONN_LEFT] = "the peer has left",
	[KCR_CONN_FAILED] = "failed",
};

#define STATES	(sizeof(states) / sizeof(states[0]))

/**
 * mesh_describe() - a connection that is not as it should be
 * @c: the connection
 * @text: "rxe1 10.77.1.1 -> 10.77.1.2, GID ... -> ..., MTU 4096: why"
 * @size: of @text
 */
void mesh_describe(const struct mesh_conn *c, char *text, size_t size)
{
	char local[INET6_ADDRSTRLEN], remote[INET6_ADDRSTRLEN];
	char path[2 * INET6_ADDRSTRLEN + 40] = "", why[160] = "not made";
	const struct kcr_conn_status *s = c->status;

	if (s)
		path_text(s, path, sizeof(path));
	if (s && s->state == KCR_CONN_FAILED)
		why_text(s, why, sizeof(why));
	else if (s)
		snprintf(why, sizeof(why), "%s", states[s->state % STATES]);
	snprintf(text, size, "%s %s -> %s%s: %s", c->local->device,
		 address_text(&c->local->address, local),
		 address_text(&c->remote->address, remote), path, why);
}
