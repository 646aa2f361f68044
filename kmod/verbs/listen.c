// SPDX-License-Identifier: GPL-2.0
/*
 * Listeners: one network namespace's ears, for IPv4 and IPv6, at the module's port.
 *
 * A listener lives as long as a mesh in its namespace. listeners_lock protects the
 * list and the counts. An incoming request is given to the connection that
 * expects it, under meshes_lock, so that its mesh stays; or refused with a
 * reason that the other side can print.
 */
#include <linux/inet.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <rdma/ib_cm.h>

#include "verbs.h"

struct listener {
	struct list_head node;
	struct net *net;
	u32 users;
	struct rdma_cm_id *ids[2];	/* IPv4, IPv6; either may be NULL */
};

static DEFINE_MUTEX(listeners_lock);
static LIST_HEAD(listeners);

/**
 * listen_refuse() - refuse a request, with words
 * @id: the request's
 * @reason: KCR_REASON_*
 * @detail: as the reason has it
 */
void listen_refuse(struct rdma_cm_id *id, u32 reason, u32 detail)
{
	struct wire_reject reject = {
		.magic = cpu_to_le32(WIRE_MAGIC),
		.version = cpu_to_le16(WIRE_VERSION),
		.reason = cpu_to_le16(reason),
		.detail = cpu_to_le32(detail),
	};

	rdma_reject(id, &reject, sizeof(reject), IB_CM_REJ_CONSUMER_DEFINED);
}

/* Returning an error makes rdma_cm destroy the id. */
static int refuse(struct rdma_cm_id *id, u32 reason, u32 detail)
{
	listen_refuse(id, reason, detail);
	return -ECONNREFUSED;
}

static bool is_same_address(const struct sockaddr_storage *a,
			    const struct sockaddr_storage *b)
{
	const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;
	const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;

	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	return ipv6_addr_equal(&a6->sin6_addr, &b6->sin6_addr);
}

static int find_conn(struct rdma_cm_id *id, const struct wire_request *request,
		     struct conn **conn, u32 *detail)
{
	u32 from = le16_to_cpu(request->from), to = le16_to_cpu(request->to);
	struct rdma_addr *addr = &id->route.addr;
	struct mesh *mesh;
	struct conn *c;

	lockdep_assert_held(&meshes_lock);

	mesh = mesh_find(addr->dev_addr.net, request->world, to);
	if (!mesh)
		return KCR_REASON_WORLD;
	if (from >= to || request->wire >= KCR_MAX_WIRES ||
	    le16_to_cpu(request->ranks) != mesh->base.member->world->ranks)
		return KCR_REASON_RANK;
	c = mesh_conn(mesh, from, request->wire);
	if (!c || c->is_active)
		return KCR_REASON_RANK;
	if (request->depth != c->depth)
		return KCR_REASON_FORMAT;
	if (!is_same_address(&addr->src_addr, &c->local) ||
	    !is_same_address(&addr->dst_addr, &c->remote)) {
		*detail = request->wire;
		return KCR_REASON_CROSSED;
	}
	*conn = c;
	return 0;
}

/* Is it a request, whoever may be meant? 0 or the reason why not. */
static u32 check_request(const struct wire_request *request, u8 length,
			 u32 *detail)
{
	if (length < sizeof(*request) ||
	    le32_to_cpu(request->magic) != WIRE_MAGIC)
		return KCR_REASON_FORMAT;
	if (le16_to_cpu(request->version_min) > WIRE_VERSION ||
	    le16_to_cpu(request->version) < WIRE_VERSION_MIN) {
		*detail = WIRE_VERSION;
		return KCR_REASON_VERSION;
	}
	if (memchr_inv(request->reserved, 0, sizeof(request->reserved)))
		return KCR_REASON_FORMAT;
	return 0;
}

/**
 * listen_incoming() - someone wants to connect
 * @id: the request's
 * @event: it
 *
 * Return: 0 if a connection took the id; else rdma_cm destroys it.
 */
int listen_incoming(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	const struct wire_request *request = event->param.conn.private_data;
	u32 reason, detail = 0;
	struct conn *c;

	reason = check_request(request, event->param.conn.private_data_len,
			       &detail);
	if (!reason && !conn_may_be_set_up(&event->param.conn))
		reason = KCR_REASON_FORMAT;
	if (reason)
		return refuse(id, reason, detail);

	mutex_lock(&meshes_lock);
	reason = find_conn(id, request, &c, &detail) ?:
		 conn_incoming(c, id, request, &detail);
	mutex_unlock(&meshes_lock);
	return reason ? refuse(id, reason, detail) : 0;
}

/* Of an address that is everybody's, rdma_cm has none left: somebody has that port. */
static int bind_to(struct rdma_cm_id *id, struct sockaddr *address)
{
	int ret = rdma_bind_addr(id, address);

	return ret == -EADDRNOTAVAIL ? -EADDRINUSE : ret;
}

static struct rdma_cm_id *listen_at(struct net *net, struct sockaddr *address)
{
	struct rdma_cm_id *id;
	int ret;

	id = verbs_may_fail() ? ERR_PTR(-ENOMEM) :
	     rdma_create_id(net, conn_handler, NULL, RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(id))
		return id;
	ret = rdma_set_afonly(id, 1);
	if (!ret)
		ret = bind_to(id, address);
	if (!ret)
		ret = verbs_may_fail() ?: rdma_listen(id, 0);
	if (!ret)
		return id;
	rdma_destroy_id(id);
	return ERR_PTR(ret);
}

static void close_ears(struct listener *listener)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(listener->ids); i++)
		if (listener->ids[i])
			rdma_destroy_id(listener->ids[i]);
}

/* IPv6 may not be there. */
static int open_ears(struct listener *listener)
{
	struct sockaddr_in v4 = {
		.sin_family = AF_INET,
		.sin_port = htons(verbs_port),
	};
	struct sockaddr_in6 v6 = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(verbs_port),
	};
	struct rdma_cm_id *id;

	id = listen_at(listener->net, (struct sockaddr *)&v4);
	if (IS_ERR(id))
		return PTR_ERR(id);
	listener->ids[0] = id;
	id = listen_at(listener->net, (struct sockaddr *)&v6);
	if (!IS_ERR(id))
		listener->ids[1] = id;
	else if (PTR_ERR(id) != -EAFNOSUPPORT)
		goto err;
	return 0;
err:
	close_ears(listener);
	return PTR_ERR(id);
}

static struct listener *find(struct net *net)
{
	struct listener *listener;

	lockdep_assert_held(&listeners_lock);

	list_for_each_entry(listener, &listeners, node)
		if (net_eq(listener->net, net))
			return listener;
	return NULL;
}

static struct listener *listener_new(struct net *net)
{
	struct listener *listener;
	int ret;

	listener = kzalloc(sizeof(*listener), GFP_KERNEL);
	if (!listener)
		return ERR_PTR(-ENOMEM);
	listener->net = net;
	ret = open_ears(listener);
	if (ret) {
		kfree(listener);
		return ERR_PTR(ret);
	}
	list_add(&listener->node, &listeners);
	atomic_inc(&verbs_counts.listeners);
	return listener;
}

/**
 * listener_get() - listen in a network namespace
 * @net: the namespace; the caller holds it as long as the listener
 *
 * Return: the listener, or an error.
 */
struct listener *listener_get(struct net *net)
{
	struct listener *listener;

	mutex_lock(&listeners_lock);
	listener = find(net) ?: listener_new(net);
	if (!IS_ERR(listener))
		listener->users++;
	mutex_unlock(&listeners_lock);
	return listener;
}

/**
 * listener_put() - one that listens is gone
 * @listener: may be gone afterwards
 */
void listener_put(struct listener *listener)
{
	bool is_last;

	mutex_lock(&listeners_lock);
	is_last = !--listener->users;
	if (is_last) {
		list_del(&listener->node);
		atomic_dec(&verbs_counts.listeners);
		/* Its handlers take none of what is held here. */
		close_ears(listener);
	}
	mutex_unlock(&listeners_lock);
	if (is_last)
		kfree(listener);
}

#if IS_BUILTIN(CONFIG_KUNIT)
#include "listen_kunit.c"
#endif
