// SPDX-License-Identifier: GPL-2.0
/*
 * Meshes: a member's connections, from its first CONNECT until its file is gone.
 *
 * meshes_lock protects the list of those that have not ended, by which requests
 * from other nodes are matched. mesh->lock protects the adding of connections;
 * they are found without, and stay until the mesh is destroyed.
 */
#include <linux/nsproxy.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <net/net_namespace.h>

#include "verbs.h"

/* The list of meshes that have not ended. */
DEFINE_MUTEX(meshes_lock);
LIST_HEAD(meshes);

static struct mesh *mesh_of(struct kcr_mesh *base)
{
	return container_of(base, struct mesh, base);
}

static unsigned long mesh_key(u32 peer, u32 wire)
{
	return (unsigned long)wire << 16 | peer;
}

/**
 * mesh_conn() - the connection to a peer over a wire
 * @mesh: the mesh
 * @peer: a rank
 * @wire: less than KCR_MAX_WIRES
 *
 * Return: the connection, whatever its state, or NULL.
 */
struct conn *mesh_conn(struct mesh *mesh, u32 peer, u32 wire)
{
	return xa_load(&mesh->conns, mesh_key(peer, wire));
}

/**
 * mesh_find() - the mesh of a rank that another node asks for
 * @net: the network namespace that the request came to
 * @world: the world's id
 * @rank: the rank
 *
 * Return: the mesh, as long as meshes_lock is held, or NULL.
 */
struct mesh *mesh_find(struct net *net, const u8 *world, u32 rank)
{
	struct mesh *mesh;

	lockdep_assert_held(&meshes_lock);

	list_for_each_entry(mesh, &meshes, node)
		if (mesh->base.member->rank == rank && net_eq(mesh->net, net) &&
		    !memcmp(mesh->base.member->world->id, world, 16))
			return mesh;
	return NULL;
}

/* Is this beat the first in a second? */
static bool is_second(struct conn *c)
{
	lockdep_assert_held(&c->lock);

	if (++c->beats_waited < MSEC_PER_SEC / BEAT_MS)
		return false;
	c->beats_waited = 0;
	return true;
}

/*
 * One at a time. But a new request also wakes a queue that has fallen asleep on
 * those that it has, as rdma_rxe's does on 6.1 once in a while: after a second
 * there is another. No more than that where a registration waits for the queue to
 * be empty; see is_held() of queue.c.
 */
static bool may_ping(struct conn *c)
{
	lockdep_assert_held(&c->lock);

	if (c->ping_is_out || c->wants_idle)
		return is_second(c);
	c->beats_waited = 0;
	return true;
}

/* Tell the peers that this node lives, and what the rank says it is doing. */
static void beat(struct work_struct *work)
{
	struct mesh *mesh = container_of(work, struct mesh, beat.work);
	struct kcr_board head = { };
	u64 now = ktime_get_ns();
	u64 since_ns = now - mesh->beat_ns;
	unsigned long key;
	struct conn *c;
	u64 silent_ns;

	mesh->beat_ns = now;
	kcr_window_board_head(mesh->base.member, &head);
	verbs_trace_begin();
	xa_for_each(&mesh->conns, key, c) {
		silent_ns = 0;
		spin_lock_bh(&c->lock);
		if (c->state == CONN_UP && !c->peer_has_left) {
			silent_ns = conn_silence(c, since_ns);
			if (c->wants_idle)
				c->beats_wanted++;
			c->head = head;
			if (may_ping(c))
				c->say |= SAY_PING;
			conn_push(c);
		} else if (c->state == CONN_LEAVING && c->sending && may_ping(c)) {
			/* Its goodbye may be asleep. */
			c->say |= SAY_PING;
			conn_push(c);
		} else if (c->state == CONN_PROVING && !c->sending && is_second(c)) {
			queue_probe(c);
		}
		spin_unlock_bh(&c->lock);
		if (silent_ns > (u64)verbs_silent_ms * NSEC_PER_MSEC)
			conn_fail(c, KCR_REASON_SILENT,
				  div_u64(silent_ns, NSEC_PER_MSEC), -EHOSTDOWN);
	}
	verbs_trace_end();
	queue_delayed_work(verbs_wq, &mesh->beat, msecs_to_jiffies(BEAT_MS));
}

static struct kcr_mesh *create(struct kcr_member *m)
{
	struct mesh *mesh;
	int ret;

	if (kcov_common_handle())
		WRITE_ONCE(verbs_tracer, kcov_common_handle());
	mesh = kzalloc(sizeof(*mesh), GFP_KERNEL_ACCOUNT);
	if (!mesh)
		return ERR_PTR(-ENOMEM);
	mesh->base.ops = &mesh_ops;
	mesh->base.member = m;
	mutex_init(&mesh->lock);
	xa_init(&mesh->conns);
	init_waitqueue_head(&mesh->closed);
	INIT_DELAYED_WORK(&mesh->beat, beat);
	mesh->beat_ns = ktime_get_ns();
	mesh->net = get_net(current->nsproxy->net_ns);
	mesh->listener = verbs_may_fail() ? ERR_PTR(-ENOMEM) :
			 listener_get(mesh->net);
	if (IS_ERR(mesh->listener)) {
		ret = PTR_ERR(mesh->listener);
		goto err;
	}
	mutex_lock(&meshes_lock);
	list_add_tail(&mesh->node, &meshes);
	mutex_unlock(&meshes_lock);
	queue_delayed_work(verbs_wq, &mesh->beat, msecs_to_jiffies(BEAT_MS));
	return &mesh->base;
err:
	put_net(mesh->net);
	kfree(mesh);
	return ERR_PTR(ret);
}

static int add_conn(struct mesh *mesh, const struct kcr_connect *args)
{
	struct conn *c;
	int ret;

	lockdep_assert_held(&mesh->lock);

	if (mesh->has_ended)
		return -ESHUTDOWN;
	if (mesh_conn(mesh, args->peer, args->wire))
		return -EEXIST;
	c = conn_new(mesh, args);
	if (IS_ERR(c))
		return PTR_ERR(c);
	ret = verbs_may_fail() ?:
	      xa_err(xa_store(&mesh->conns, mesh_key(args->peer, args->wire), c,
			      GFP_KERNEL_ACCOUNT));
	if (ret) {
		conn_free(c);
		return ret;
	}
	atomic_inc(&mesh->open_conns);
	conn_start(c);
	return 0;
}

static int connect(struct kcr_mesh *base, const struct kcr_connect *args)
{
	struct mesh *mesh = mesh_of(base);
	int ret;

	mutex_lock(&mesh->lock);
	ret = add_conn(mesh, args);
	mutex_unlock(&mesh->lock);
	return ret;
}

static int frames(struct kcr_mesh *base, const struct kcr_frames *args)
{
	struct conn *c = mesh_conn(mesh_of(base), args->peer, args->wire);

	return c ? ring_open(c, args->stream, args->size_class) : -ENOTCONN;
}

/* Is there a way to each of the peers, and room? */
static int check_peers(struct mesh *mesh, const struct kcr_send *args)
{
	bool have_all = true;
	struct conn *c;
	int ret = 0;
	u32 bit;

	for (bit = 0; bit < 64 && !ret; bit++) {
		if (!(args->mask >> bit & 1))
			continue;
		c = mesh_conn(mesh, args->base + bit, args->wire);
		if (!c)
			return -ENOTCONN;
		ret = source_need(c, args->window);
		if (ret)
			break;
		spin_lock_bh(&c->lock);
		ret = ring_check_send(c, args);
		spin_unlock_bh(&c->lock);
		if (ret == -EALREADY)
			ret = 0;
		else
			have_all = false;
	}
	return ret ?: have_all ? -EALREADY : 0;
}

/* A frame is refused: what waited for it goes without. */
static void stop_holding(struct mesh *mesh, const struct kcr_send *args)
{
	struct conn *c;
	u32 bit;

	for (bit = 0; bit < 64; bit++) {
		if (!(args->mask >> bit & 1))
			continue;
		c = mesh_conn(mesh, args->base + bit, args->wire);
		if (!c)
			continue;
		spin_lock_bh(&c->lock);
		ring_stop_holding(c);
		spin_unlock_bh(&c->lock);
	}
}

static int send(struct kcr_mesh *base, const struct kcr_send *args)
{
	struct mesh *mesh = mesh_of(base);
	struct conn *c;
	u32 bit;
	int ret;

	ret = check_peers(mesh, args);
	for (bit = 0; bit < 64 && !ret; bit++) {
		if (!(args->mask >> bit & 1))
			continue;
		c = mesh_conn(mesh, args->base + bit, args->wire);
		spin_lock_bh(&c->lock);
		/* Again: it may have changed. Then the next try is for the others. */
		ret = ring_check_send(c, args) ?: ring_send(c, args);
		ring_stop_holding(c);
		spin_unlock_bh(&c->lock);
		if (ret == -EALREADY)
			ret = 0;
	}
	if (ret)
		stop_holding(mesh, args);
	return ret;
}

static int release(struct kcr_mesh *base, const struct kcr_release *args)
{
	struct conn *c = mesh_conn(mesh_of(base), args->peer, args->wire);
	int ret;

	if (!c)
		return -ENOTCONN;
	spin_lock_bh(&c->lock);
	ret = ring_release(c, args);
	spin_unlock_bh(&c->lock);
	return ret;
}

static int map(struct kcr_mesh *base, u32 kind, u32 wire, u32 index,
	       struct vm_area_struct *vma)
{
	u32 stream = index >> 10 & 3, class = index >> 12;
	struct conn *c;

	if (kind == KCR_MAP_CONN && (stream || class))
		return -EINVAL;
	if (stream >= KCR_STREAMS || class >= KCR_CLASSES)
		return -EINVAL;
	c = mesh_conn(mesh_of(base), index & 0x3ff, wire);
	if (!c)
		return -ENXIO;
	return kind == KCR_MAP_CONN ? conn_mmap(c, vma) :
				      ring_mmap(c, stream, class, vma);
}

static int vacant(struct kcr_mesh *base, u32 window)
{
	unsigned long key;
	struct conn *c;

	xa_for_each(&mesh_of(base)->conns, key, c)
		if (lane_is_there(c, window))
			return -EBUSY;
	return 0;
}

static int lane(struct kcr_mesh *base, const struct kcr_remote_lane *args)
{
	u32 rank = base->member->rank, peer = args->desc->source;
	struct conn *c;

	if (peer == rank)
		peer = args->desc->destination;
	c = mesh_conn(mesh_of(base), peer, 0);
	return c ? lane_open(c, args) : -ENOTCONN;
}

static int put(struct kcr_mesh *base, const struct kcr_put *args)
{
	struct conn *c = mesh_conn(mesh_of(base), args->peer, 0);
	int ret;

	if (!c)
		return -ENOTCONN;
	spin_lock_bh(&c->lock);
	ret = lane_put(c, args);
	spin_unlock_bh(&c->lock);
	return ret;
}

static int ack(struct kcr_mesh *base, const struct kcr_put_ack *args)
{
	struct conn *c = mesh_conn(mesh_of(base), args->peer, 0);
	int ret;

	if (!c)
		return -ENOTCONN;
	spin_lock_bh(&c->lock);
	ret = lane_ack(c, args);
	spin_unlock_bh(&c->lock);
	return ret;
}

static int arm(struct kcr_mesh *base, const struct kcr_arm *args)
{
	struct conn *c = mesh_conn(mesh_of(base), args->peer, 0);
	int ret;

	if (!c)
		return -ENOTCONN;
	spin_lock_bh(&c->lock);
	ret = lane_arm(c, args);
	spin_unlock_bh(&c->lock);
	return ret;
}

static void forget(struct kcr_mesh *base, u32 window)
{
	struct mesh *mesh = mesh_of(base);
	unsigned long key;
	struct conn *c;

	xa_for_each(&mesh->conns, key, c) {
		source_forget(c, window);
		lane_forget(c, window);
	}
}

/* What the rank was doing goes first: by it the others see why it failed. */
static void failed(struct kcr_mesh *base)
{
	struct mesh *mesh = mesh_of(base);
	struct kcr_board head = { };
	unsigned long key;
	struct conn *c;

	kcr_window_board_head(base->member, &head);
	xa_for_each(&mesh->conns, key, c) {
		spin_lock_bh(&c->lock);
		c->head = head;
		c->say |= SAY_PING | SAY_FAIL;
		conn_push(c);
		spin_unlock_bh(&c->lock);
	}
}

/* From here on none is added, and no peer finds one. Whether this was the first. */
static bool set_ended(struct mesh *mesh)
{
	bool is_first;

	mutex_lock(&mesh->lock);
	mutex_lock(&meshes_lock);
	is_first = !mesh->has_ended;
	if (is_first)
		list_del(&mesh->node);
	mesh->has_ended = true;
	mutex_unlock(&meshes_lock);
	mutex_unlock(&mesh->lock);
	return is_first;
}

static void end(struct kcr_mesh *base, u32 state)
{
	struct mesh *mesh = mesh_of(base);
	struct kcr_board head = { };
	unsigned long key;
	struct conn *c;

	if (!set_ended(mesh))
		return;
	kcr_window_board_head(base->member, &head);
	xa_for_each(&mesh->conns, key, c)
		conn_end(c, state, &head);
}

/* Bounded: whoever leaves has LEAVING_MS, and closing waits for nobody. */
static void destroy(struct kcr_mesh *base)
{
	struct mesh *mesh = mesh_of(base);
	unsigned long key;
	struct conn *c;

	wait_event(mesh->closed, !atomic_read(&mesh->open_conns));
	cancel_delayed_work_sync(&mesh->beat);
	xa_for_each(&mesh->conns, key, c)
		conn_free(c);
	xa_destroy(&mesh->conns);
	listener_put(mesh->listener);
	put_net(mesh->net);
	kfree(mesh);
}

const struct kcr_mesh_ops mesh_ops = {
	.owner = THIS_MODULE,
	.create = create,
	.connect = connect,
	.frames = frames,
	.send = send,
	.release = release,
	.mmap = map,
	.vacant = vacant,
	.lane = lane,
	.put = put,
	.ack = ack,
	.arm = arm,
	.forget = forget,
	.failed = failed,
	.end = end,
	.destroy = destroy,
};
