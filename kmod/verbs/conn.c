// SPDX-License-Identifier: GPL-2.0
/*
 * Connections: their states, what rdma_cm tells of them, and their end.
 *
 *	NEW -> EXPECTED -> ACCEPTED -> UP	the higher rank's side
 *	NEW -> RESOLVING -> ROUTING -> REQUESTED -> PROVING -> UP
 *						the lower rank's side
 *	UP or PROVING -> LEAVING -> CLOSING	the membership ended
 *	any -> CLOSING -> CLOSED
 *	CLOSING -> EXPECTED			whoever came did not prove itself
 *	CLOSING -> RESOLVING			the peer waits for the proof of another
 *
 * A state changes in conn_set_state() alone, under conn->lock. Whoever brings a
 * connection to CLOSING queues close_work, which runs once for that: it gets rid
 * of the id first, waiting for its handler, so that no event comes to what is
 * already gone; then drains the queue, so that no completion does; then frees.
 *
 * A disconnect does not tell why. What the peer said before, that it left
 * or that the world has failed, is among the completions that draining
 * brings in: so only then the connection is found to have ended without a word.
 */
#include <linux/in.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <net/ipv6.h>
#include <rdma/ib_cm.h>

#include "../compat.h"
#include "verbs.h"

/* Bounded: 6 tries, with what the device waits in between, then an error. */
#define RNR_RETRIES	6
/* 0.64 ms, in the encoding of the InfiniBand specification. */
#define RNR_TIMER	12
/* Not 7, by which rdma_rxe means for ever. */
#define RETRIES		6
/* Each of address and route: in ms, before the deadline of the whole. */
#define RESOLVE_MS	4000
/* Until a peer is asked again that was busy with another: twice that, ... up to most. */
#define AGAIN_MS	200
#define AGAIN_MOST_MS	6400

static const u16 next_states[] = {
	[CONN_NEW] = BIT(CONN_EXPECTED) | BIT(CONN_RESOLVING),
	[CONN_EXPECTED] = BIT(CONN_ACCEPTED),
	[CONN_RESOLVING] = BIT(CONN_ROUTING),
	[CONN_ROUTING] = BIT(CONN_REQUESTED),
	[CONN_REQUESTED] = BIT(CONN_PROVING),
	[CONN_ACCEPTED] = BIT(CONN_UP) | BIT(CONN_EXPECTED),
	[CONN_PROVING] = BIT(CONN_UP) | BIT(CONN_LEAVING),
	[CONN_UP] = BIT(CONN_LEAVING),
	[CONN_LEAVING] = 0,
	[CONN_CLOSING] = BIT(CONN_CLOSED) | BIT(CONN_EXPECTED) | BIT(CONN_RESOLVING),
	[CONN_CLOSED] = 0,
};

/**
 * conn_set_state() - the one place where a state changes
 * @c: the connection
 * @next: its next state
 *
 * Return: whether there is such a transition; else nothing changed.
 */
bool conn_set_state(struct conn *c, enum conn_state next)
{
	bool is_allowed;

	lockdep_assert_held(&c->lock);

	if (next == CONN_CLOSING)
		is_allowed = c->state < CONN_CLOSING;
	else
		is_allowed = next_states[c->state] & BIT(next);
	if (!is_allowed)
		return false;
	WRITE_ONCE(c->state, next);
	if (next == CONN_UP) {
		c->was_up = true;
		/* It may have failed before there was anybody to tell. */
		if (READ_ONCE(c->member->world->cause))
			c->say |= SAY_FAIL;
	}
	if (next == CONN_CLOSING)
		queue_work(verbs_wq, &c->close_work);
	return true;
}

/**
 * conn_may_post() - may a work request be posted
 * @c: the connection
 *
 * Return: whether its queue is there and not about to be drained.
 */
bool conn_may_post(const struct conn *c)
{
	lockdep_assert_held(&c->lock);

	return c->state >= CONN_ACCEPTED && c->state <= CONN_LEAVING;
}

/* Who leaves because the world has failed is shown to have left when that shows. */
static bool shows_left(const struct conn *c)
{
	return c->peer_has_left &&
	       (!c->peer_cause || READ_ONCE(c->member->world->cause));
}

static u32 shown_state(const struct conn *c)
{
	switch (c->state) {
	case CONN_NEW:
		return KCR_CONN_NONE;
	case CONN_EXPECTED:
	case CONN_ACCEPTED:
		return KCR_CONN_EXPECTED;
	case CONN_CLOSING:
	case CONN_CLOSED:
		if (shows_left(c) && !c->status->error)
			return KCR_CONN_LEFT;
		/* Until it is known why, it is as it was. */
		return c->status->error ? KCR_CONN_FAILED : c->status->state;
	case CONN_UP:
	case CONN_LEAVING:
		return shows_left(c) ? KCR_CONN_LEFT : KCR_CONN_UP;
	default:
		return KCR_CONN_CONNECTING;
	}
}

/**
 * conn_show_state() - the page shows what the process may see of the state
 * @c: the connection
 */
void conn_show_state(struct conn *c)
{
	lockdep_assert_held(&c->lock);

	/* Pairs with the acquire of the process: what explains it is there. */
	smp_store_release(&c->status->state, shown_state(c));
}

static void show_failure(struct conn *c)
{
	lockdep_assert_held(&c->lock);

	WRITE_ONCE(c->status->reason, c->reason);
	WRITE_ONCE(c->status->detail, c->detail);
	WRITE_ONCE(c->status->error, c->error);
	conn_show_state(c);
}

static bool may_wait(const struct conn *c)
{
	return c->is_patient || time_before(jiffies, c->connect_by);
}

/*
 * One that waits to be connected to goes on waiting, for the right one; and that one
 * comes again if it was not let in because of another, who may be anybody.
 */
static bool may_try_again(const struct conn *c)
{
	lockdep_assert_held(&c->lock);

	if (c->was_up || c->ends || c->is_misplaced || c->reason == KCR_REASON_DEVICE)
		return false;
	if (c->is_active)
		return c->reason == KCR_REASON_DUPLICATE &&
		       c->detail == WIRE_UNPROVEN && may_wait(c);
	return c->is_patient ||
	       (c->reason != KCR_REASON_TIMEOUT && may_wait(c));
}

/*
 * How much does it say? What is heard later may tell more: of the queue's end no more than
 * that (0), of the connection's (1), or why (2).
 */
static int tells(u32 reason, u32 detail)
{
	if (reason == KCR_REASON_COMPLETION && detail == IB_WC_WR_FLUSH_ERR)
		return 0;
	return reason == KCR_REASON_GONE ? 1 : 2;
}

/**
 * conn_fail_locked() - a connection cannot be made, or has broken
 * @c: the connection
 * @reason: KCR_REASON_*
 * @detail: as the reason has it
 * @error: a negative errno
 *
 * For the first reason only. If it was up the world fails; from close_work, which
 * also tells whoever sleeps.
 *
 * Return: whether it is the first.
 */
bool conn_fail_locked(struct conn *c, u32 reason, u32 detail, int error)
{
	bool is_first, is_better;

	lockdep_assert_held(&c->lock);

	/*
	 * Whatever was being made: it is this node that could not. Routing has an
	 * error of its own for that.
	 */
	if (error == -ENOMEM || error == -ENOBUFS) {
		reason = KCR_REASON_LOCAL;
		detail = 0;
		error = -ENOMEM;
	}
	/*
	 * A rank that dies or leaves says so, and its words come before the end does.
	 * It was the other node that has lost the way, in one direction say.
	 */
	if (reason == KCR_REASON_GONE && c->was_up)
		error = -EHOSTUNREACH;
	is_first = conn_set_state(c, CONN_CLOSING);
	/* What the peer had said before, if anything, tells more. */
	if (is_first)
		c->is_gone = tells(reason, detail) < 2;
	/*
	 * Receives may be flushed before what flushes them has completed, and before
	 * rdma_cm tells that the peer's node has refused, or has gone after it had accepted.
	 */
	is_better = c->is_gone && reason != KCR_REASON_TIMEOUT &&
		    tells(reason, detail) > tells(c->reason, c->detail);
	if ((is_first || is_better) && !c->ends && !c->peer_has_left) {
		c->reason = reason;
		c->detail = detail;
		c->error = -error;
		if (!c->is_gone && !may_try_again(c))
			show_failure(c);
	}
	return is_first;
}

/**
 * conn_fail() - as conn_fail_locked(), from anywhere but under conn->lock
 * @c: the connection
 * @reason: KCR_REASON_*
 * @detail: as the reason has it
 * @error: a negative errno
 */
void conn_fail(struct conn *c, u32 reason, u32 detail, int error)
{
	bool is_first;

	spin_lock_bh(&c->lock);
	is_first = conn_fail_locked(c, reason, detail, error);
	spin_unlock_bh(&c->lock);
	if (is_first)
		kcr_member_event(c->member);
}

/* The peer has said that the world has failed, and may have left then. */
static void pass_on(struct conn *c, u64 cause)
{
	kcr_world_fail(c->member->world, KCR_CAUSE_RANK(cause),
		       KCR_CAUSE_ERROR(cause));
	spin_lock_bh(&c->lock);
	conn_show_state(c);
	spin_unlock_bh(&c->lock);
	kcr_member_event(c->member);
}

/* Tell the world of a failure that is known by now. */
static void tell_failure(struct conn *c)
{
	bool is_failed;
	u64 cause;

	spin_lock_bh(&c->lock);
	is_failed = c->was_up && c->status->error && !c->ends && !c->peer_cause;
	cause = c->peer_cause;
	spin_unlock_bh(&c->lock);
	if (cause)
		pass_on(c, cause);
	if (is_failed)
		kcr_world_fail(c->member->world, c->peer, c->error);
}

/* Everything that the peer had said is in. */
static void explain_disconnect(struct conn *c)
{
	spin_lock_bh(&c->lock);
	if (c->peer_cause) {
		c->reason = KCR_REASON_ENDED;
		c->detail = KCR_CAUSE_RANK(c->peer_cause);
		c->error = KCR_CAUSE_ERROR(c->peer_cause);
	}
	if (c->is_gone && !c->ends && !c->peer_has_left && !may_try_again(c))
		show_failure(c);
	conn_show_state(c);
	spin_unlock_bh(&c->lock);
	tell_failure(c);
	kcr_member_event(c->member);
}

static void reset(struct conn *c)
{
	lockdep_assert_held(&c->lock);

	WRITE_ONCE(c->status->reason, c->reason);
	WRITE_ONCE(c->status->detail, c->detail);
	/* What is still true for the next one who comes. */
	c->say &= SAY_FAIL;
	c->has_proof = false;
	c->is_gone = false;
	c->is_accepted = false;
	c->sending = 0;
	c->registering = 0;
	c->wants_idle = false;
	c->beats_wanted = 0;
	memset(c->tx, 0, sizeof(c->tx));
}

static void close_resources(struct conn *c)
{
	if (c->id) {
		if (c->qp)
			port_part(c->port, c->id);
		else
			rdma_destroy_id(c->id);
		atomic_dec(&verbs_counts.ids);
		c->id = NULL;
	}
	queue_drain(c);
	/* A proof that is being looked at is of this try, and not of the next. */
	cancel_work_sync(&c->event_work);
	explain_disconnect(c);
	queue_destroy_qp(c);
	lane_close_all(c);
	ring_close_all(c);
	source_free_all(c);
	queue_destroy(c);
	if (c->port) {
		port_put(c->port);
		WRITE_ONCE(c->port, NULL);
	}
}

/* When this is to be connected, if ever. */
static void set_deadline(struct conn *c)
{
	unsigned long now = jiffies;

	if (!c->is_patient)
		mod_delayed_work(verbs_wq, &c->deadline,
				 time_after(c->connect_by, now) ?
				 c->connect_by - now : 0);
}

/* Who has come must prove itself at once: it is in the way of others. */
static void set_proving_deadline(struct conn *c)
{
	unsigned long by = jiffies + msecs_to_jiffies(PROVING_MS);

	if (c->is_patient || time_before(by, c->connect_by))
		mod_delayed_work(verbs_wq, &c->deadline,
				 msecs_to_jiffies(PROVING_MS));
}

static void come_again(struct conn *c)
{
	lockdep_assert_held(&c->lock);

	queue_delayed_work(verbs_wq, &c->again, msecs_to_jiffies(c->again_ms));
	c->again_ms = min(2 * c->again_ms, AGAIN_MOST_MS);
}

static void close_work(struct work_struct *work)
{
	struct conn *c = container_of(work, struct conn, close_work);
	struct mesh *mesh = c->mesh;
	bool is_over;

	verbs_trace_begin();
	/* It may be about to make an id. */
	cancel_delayed_work_sync(&c->again);
	tell_failure(c);
	close_resources(c);

	spin_lock_bh(&c->lock);
	is_over = !may_try_again(c);
	if (!is_over) {
		reset(c);
		conn_set_state(c, c->is_active ? CONN_RESOLVING : CONN_EXPECTED);
		if (c->is_active)
			come_again(c);
		set_deadline(c);
	} else {
		conn_set_state(c, CONN_CLOSED);
		if (!c->was_up && !c->ends)
			show_failure(c);
	}
	conn_show_state(c);
	spin_unlock_bh(&c->lock);
	kcr_member_event(c->member);
	/* The conn may be freed from here on. */
	if (is_over && atomic_dec_and_test(&mesh->open_conns))
		wake_up_all(&mesh->closed);
	verbs_trace_end();
}

/* One that could not be made here says nothing about the peer. */
static u32 reason_of_proof(int error)
{
	return error == -EKEYREJECTED ? KCR_REASON_KEY : KCR_REASON_LOCAL;
}

static void prove(struct conn *c)
{
	int ret;

	ret = proof_check(c, !c->is_active, c->proof);
	if (ret) {
		conn_fail(c, reason_of_proof(ret), 0, ret);
		return;
	}
	spin_lock_bh(&c->lock);
	if (c->state == CONN_ACCEPTED && conn_set_state(c, CONN_UP)) {
		c->say |= SAY_WELCOME;
		conn_push(c);
		conn_show_state(c);
	}
	spin_unlock_bh(&c->lock);
	kcr_member_event(c->member);
}

/* What came and may not be done where it came. */
static void event_work(struct work_struct *work)
{
	struct conn *c = container_of(work, struct conn, event_work);
	bool has_proof;
	u64 cause;

	verbs_trace_begin();
	spin_lock_bh(&c->lock);
	has_proof = c->has_proof && c->state == CONN_ACCEPTED;
	cause = c->peer_cause;
	/* The last part of rdma_cm's handshake got lost, and data came first. */
	if (xchg(&c->is_early, false) && c->state == CONN_ACCEPTED)
		rdma_notify(c->id, IB_EVENT_COMM_EST);
	spin_unlock_bh(&c->lock);
	if (has_proof)
		prove(c);
	if (cause)
		pass_on(c, cause);
	verbs_trace_end();
}

static void deadline(struct work_struct *work)
{
	struct conn *c = container_of(work, struct conn, deadline.work);
	bool is_over, is_silent;
	u32 reason, detail;

	verbs_trace_begin();
	spin_lock_bh(&c->lock);
	if (c->state == CONN_LEAVING)
		conn_set_state(c, CONN_CLOSING);
	/* Why those that came were refused says more than that the time is up. */
	reason = c->status->reason ?: KCR_REASON_TIMEOUT;
	detail = c->status->detail;
	is_over = !c->was_up && c->state != CONN_CLOSED && !may_wait(c);
	is_silent = !c->was_up && c->state == CONN_ACCEPTED && may_wait(c);
	spin_unlock_bh(&c->lock);
	if (is_over)
		conn_fail(c, reason, detail, -ETIMEDOUT);
	else if (is_silent)
		conn_fail(c, KCR_REASON_KEY, 0, -ETIMEDOUT);
	verbs_trace_end();
}

static struct rdma_cm_id *new_id(struct conn *c)
{
	return verbs_may_fail() ? ERR_PTR(-ENOMEM) :
	       rdma_create_id(c->mesh->net, conn_handler, c, RDMA_PS_TCP,
			      IB_QPT_RC);
}

static int resolve(struct conn *c)
{
	struct rdma_cm_id *id = new_id(c);

	if (IS_ERR(id))
		return PTR_ERR(id);
	atomic_inc(&verbs_counts.ids);
	c->id = id;
	return verbs_may_fail() ?:
	       rdma_resolve_addr(id, (struct sockaddr *)&c->local,
				 (struct sockaddr *)&c->remote, RESOLVE_MS);
}

/* The peer was busy. Whoever closes the connection waits for this to be over. */
static void again(struct work_struct *work)
{
	struct conn *c = container_of(work, struct conn, again.work);
	bool is_wanted;
	int ret;

	verbs_trace_begin();
	spin_lock_bh(&c->lock);
	is_wanted = c->state == CONN_RESOLVING;
	spin_unlock_bh(&c->lock);
	ret = is_wanted ? resolve(c) : 0;
	if (ret)
		conn_fail(c, KCR_REASON_ADDRESS, 0, ret);
	verbs_trace_end();
}

static int parse_address(const u8 *bytes, struct sockaddr_storage *address)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
	struct sockaddr_in *v4 = (struct sockaddr_in *)address;

	memset(address, 0, sizeof(*address));
	memcpy(v6, bytes, sizeof(*v6));
	if (address->ss_family == AF_INET) {
		memset(v4 + 1, 0, sizeof(*v6) - sizeof(*v4));
		memset(v4->sin_zero, 0, sizeof(v4->sin_zero));
		return 0;
	}
	return address->ss_family == AF_INET6 ? 0 : -EINVAL;
}

/*
 * Is it the address of one node? rdma_cm takes any address, for one of this node, but writes
 * it as it is into a request, to which then nobody answers.
 */
static bool is_of_one_node(const struct sockaddr_storage *address)
{
	const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
	__be32 v4 = ((const struct sockaddr_in *)address)->sin_addr.s_addr;

	if (address->ss_family == AF_INET)
		return !ipv4_is_zeronet(v4) && !ipv4_is_multicast(v4) &&
		       !ipv4_is_lbcast(v4);
	return !ipv6_addr_any(v6) && !ipv6_addr_is_multicast(v6);
}

/* sin_port and sin6_port lie at the same place. */
static void set_port(struct sockaddr_storage *address, u16 port)
{
	((struct sockaddr_in *)address)->sin_port = htons(port);
}

static bool has_port(const struct sockaddr_storage *address)
{
	return ((const struct sockaddr_in *)address)->sin_port;
}

static int set_addresses(struct conn *c, const struct kcr_connect *args)
{
	int ret;

	BUILD_BUG_ON(sizeof(args->local) != sizeof(struct sockaddr_in6));
	BUILD_BUG_ON(offsetof(struct sockaddr_in, sin_port) !=
		     offsetof(struct sockaddr_in6, sin6_port));
	ret = parse_address(args->local, &c->local) ?:
	      parse_address(args->remote, &c->remote);
	if (ret || c->local.ss_family != c->remote.ss_family ||
	    !is_of_one_node(&c->remote))
		return -EINVAL;
	set_port(&c->local, 0);
	if (!has_port(&c->remote))
		set_port(&c->remote, verbs_port);
	memcpy(c->status->local, &c->local, sizeof(c->status->local));
	memcpy(c->status->remote, &c->remote, sizeof(c->status->remote));
	return 0;
}

/**
 * conn_new() - a connection, not yet started
 * @mesh: its mesh
 * @args: what its process asked for; numbers are checked
 *
 * Return: the connection, or an error.
 */
struct conn *conn_new(struct mesh *mesh, const struct kcr_connect *args)
{
	struct kcr_member *m = mesh->base.member;
	struct conn *c;
	int ret;

	c = kvzalloc(sizeof(*c), GFP_KERNEL_ACCOUNT);
	if (!c)
		return ERR_PTR(-ENOMEM);
	c->mesh = mesh;
	c->member = m;
	c->peer = args->peer;
	c->wire = args->wire;
	c->depth = args->depth + 1;
	c->is_active = m->rank < args->peer;
	c->is_patient = !args->timeout_ms;
	c->connect_by = jiffies + msecs_to_jiffies(args->timeout_ms);
	mutex_init(&c->open_lock);
	spin_lock_init(&c->lock);
	INIT_WORK(&c->close_work, close_work);
	INIT_WORK(&c->event_work, event_work);
	INIT_WORK(&c->lane_work, lane_work);
	INIT_DELAYED_WORK(&c->deadline, deadline);
	INIT_DELAYED_WORK(&c->again, again);
	c->again_ms = AGAIN_MS;
	atomic_inc(&verbs_counts.conns);
	ret = kcr_user_charge_conn(m->user);
	if (ret)
		goto err;
	c->is_charged = true;
	c->region = verbs_may_fail() ? ERR_PTR(-ENOMEM) :
		    kcr_region_new(m, sizeof(*c->status));
	if (IS_ERR(c->region)) {
		ret = PTR_ERR(c->region);
		c->region = NULL;
		goto err;
	}
	c->status = page_address(c->region->pages[0]);
	c->status->depth = c->depth;
	ret = set_addresses(c, args);
	if (ret)
		goto err;
	return c;
err:
	conn_free(c);
	return ERR_PTR(ret);
}

/**
 * conn_free() - the end of a connection that is closed, or was not started
 * @c: the connection
 */
void conn_free(struct conn *c)
{
	cancel_delayed_work_sync(&c->deadline);
	cancel_work_sync(&c->event_work);
	cancel_work_sync(&c->close_work);
	cancel_delayed_work_sync(&c->again);
	ring_free_all(c);
	kcr_region_put(c->region);
	if (c->is_charged)
		kcr_user_uncharge_conn(c->member->user);
	atomic_dec(&verbs_counts.conns);
	kvfree(c);
}

static void show_device(struct conn *c, const struct rdma_cm_id *id)
{
	memset(c->status->device, 0, sizeof(c->status->device));
	if (id->device)
		strscpy(c->status->device, id->device->name,
			sizeof(c->status->device));
}

/* Is the address one that peers can connect to? Better said now than never. */
static int check_address(struct conn *c)
{
	struct rdma_cm_id *id = new_id(c);
	int ret;

	if (IS_ERR(id))
		return PTR_ERR(id);
	ret = verbs_may_fail() ?:
	      rdma_bind_addr(id, (struct sockaddr *)&c->local);
	if (!ret && !id->device)
		ret = -ENODEV;
	if (!ret)
		show_device(c, id);
	rdma_destroy_id(id);
	return ret;
}

/**
 * conn_start() - connect, or expect to be connected to
 * @c: the connection, in its mesh
 */
void conn_start(struct conn *c)
{
	int ret;

	ret = check_address(c);
	spin_lock_bh(&c->lock);
	/* Its membership may have ended meanwhile. */
	if (!ret && !conn_set_state(c, c->is_active ? CONN_RESOLVING :
				    CONN_EXPECTED))
		ret = -ESHUTDOWN;
	conn_show_state(c);
	spin_unlock_bh(&c->lock);
	if (!ret && c->is_active)
		ret = resolve(c);
	if (ret) {
		/* Not to be tried again: it is this end that is wrong. */
		c->is_misplaced = true;
		conn_fail(c, KCR_REASON_ADDRESS, 0, ret);
	}
	/* Not before: an id that is not in its place yet would be missed. */
	set_deadline(c);
}

/* ---- what rdma_cm tells; under the id's handler mutex ---- */

static bool next(struct conn *c, enum conn_state state)
{
	bool is_allowed;

	spin_lock_bh(&c->lock);
	is_allowed = conn_set_state(c, state);
	conn_show_state(c);
	spin_unlock_bh(&c->lock);
	return is_allowed;
}

/*
 * iWARP knows no immediates, and its rdma_disconnect() waits for the handler, whose lock
 * port_part() holds.
 */
static int use_device(struct conn *c, struct rdma_cm_id *id)
{
	int ret;

	if (!rdma_cap_ib_cm(id->device, id->port_num))
		return -EOPNOTSUPP;
	ret = verbs_may_fail() ?: port_get(id->device, &c->port);
	if (ret)
		return ret;
	show_device(c, id);
	rdma_set_ack_timeout(id, clamp(verbs_ack_timeout, 14U, 22U));
	rdma_set_min_rnr_timer(id, RNR_TIMER);
	return 0;
}

static void show_path(struct conn *c, const struct rdma_cm_id *id)
{
	const struct sa_path_rec *path = id->route.path_rec;

	if (!path)
		return;
	memcpy(c->status->local_gid, &path->sgid, sizeof(path->sgid));
	memcpy(c->status->remote_gid, &path->dgid, sizeof(path->dgid));
	WRITE_ONCE(c->status->mtu, ib_mtu_enum_to_int(path->mtu));
}

static void address_resolved(struct conn *c)
{
	int ret;

	ret = use_device(c, c->id);
	if (ret) {
		conn_fail(c, KCR_REASON_DEVICE, 0, ret);
		return;
	}
	if (!next(c, CONN_ROUTING))
		return;
	ret = verbs_may_fail() ?: rdma_resolve_route(c->id, RESOLVE_MS);
	if (ret)
		conn_fail(c, KCR_REASON_ROUTE, 0, ret);
}

static struct rdma_conn_param parameters(const void *data, u8 length)
{
	return (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = length,
		.flow_control = 1,
		.retry_count = RETRIES,
		.rnr_retry_count = RNR_RETRIES,
	};
}

/**
 * conn_may_be_set_up() - is this end's queue to be as such a peer wants it
 * @param: what the peer says; its numbers are what rdma_cm sets the queue to
 *
 * Retries must have an end, and 7 is for ever. Nobody reads here, and there are no
 * atomics: a queue takes both if the peer says that it will send them, whatever this end
 * has answered. Then keys alone would be in their way.
 *
 * Return: whether it is.
 */
bool conn_may_be_set_up(const struct rdma_conn_param *param)
{
	return param->retry_count <= RETRIES &&
	       param->rnr_retry_count <= RNR_RETRIES &&
	       !param->initiator_depth && !param->responder_resources;
}

static int request(struct conn *c)
{
	const struct kcr_member *m = c->member;
	struct wire_request r = {
		.magic = cpu_to_le32(WIRE_MAGIC),
		.version = cpu_to_le16(WIRE_VERSION),
		.version_min = cpu_to_le16(WIRE_VERSION_MIN),
		.from = cpu_to_le16(m->rank),
		.to = cpu_to_le16(c->peer),
		.ranks = cpu_to_le16(m->world->ranks),
		.wire = c->wire,
		.depth = c->depth,
	};
	struct rdma_conn_param param = parameters(&r, sizeof(r));
	int ret;

	memcpy(r.world, m->world->id, sizeof(r.world));
	get_random_bytes(c->nonces[0], sizeof(c->nonces[0]));
	memcpy(r.nonce, c->nonces[0], sizeof(r.nonce));
	ret = queue_create(c);
	if (ret)
		return ret;
	if (!next(c, CONN_REQUESTED))
		return 0;
	ret = verbs_may_fail();
	if (ret)
		return ret;
	return rdma_connect_locked(c->id, &param);
}

static void route_resolved(struct conn *c)
{
	int ret;

	show_path(c, c->id);
	ret = request(c);
	if (ret)
		conn_fail(c, KCR_REASON_LOCAL, 0, ret);
}

/* The higher rank has answered: is it one of ours? Then prove the same to it. */
static void established(struct conn *c, const struct rdma_conn_param *param)
{
	const struct wire_accept *accept = param->private_data;
	int ret;

	if (!c->is_active)
		return;
	c->is_accepted = true;
	if (param->private_data_len < sizeof(*accept) ||
	    le32_to_cpu(accept->magic) != WIRE_MAGIC ||
	    le16_to_cpu(accept->version) != WIRE_VERSION || accept->reserved ||
	    !conn_may_be_set_up(param)) {
		conn_fail(c, KCR_REASON_FORMAT, 0, -EPROTO);
		return;
	}
	memcpy(c->nonces[1], accept->nonce, sizeof(c->nonces[1]));
	ret = proof_check(c, false, accept->proof) ?:
	      proof_make(c, true, c->own_proof);
	if (ret) {
		conn_fail(c, reason_of_proof(ret), 0, ret);
		return;
	}
	spin_lock_bh(&c->lock);
	if (conn_set_state(c, CONN_PROVING)) {
		c->say |= SAY_HELLO;
		conn_push(c);
	}
	spin_unlock_bh(&c->lock);
}

/* 0 for what nobody refuses a request with. */
static int error_of_refusal(u32 reason)
{
	switch (reason) {
	case KCR_REASON_VERSION:
	case KCR_REASON_FORMAT:
		return -EPROTO;
	case KCR_REASON_WORLD:
	case KCR_REASON_RANK:
		return -ENOENT;
	case KCR_REASON_DUPLICATE:
		return -EEXIST;
	case KCR_REASON_CROSSED:
	case KCR_REASON_LOCAL:
		return -ECONNREFUSED;
	default:
		return 0;
	}
}

static void rejected(struct conn *c, struct rdma_cm_event *event)
{
	const struct wire_reject *reject;
	u32 reason, detail;
	int error;
	u8 length;

	reject = rdma_consumer_reject_data(c->id, event, &length);
	if (reject && length >= sizeof(*reject) &&
	    le32_to_cpu(reject->magic) == WIRE_MAGIC) {
		reason = le16_to_cpu(reject->reason);
		detail = le32_to_cpu(reject->detail);
		if (reason == KCR_REASON_VERSION)
			detail = WIRE_VERSION << 16 | (detail & 0xffff);
		error = error_of_refusal(reason);
		/* If there is time it comes again. */
		if (reason == KCR_REASON_DUPLICATE && detail == WIRE_UNPROVEN)
			error = -ETIMEDOUT;
		if (error)
			conn_fail(c, reason, detail, error);
		else
			conn_fail(c, KCR_REASON_FORMAT, 0, -EPROTO);
		return;
	}
	/* It had accepted, and then went before it was told that we are there. */
	if (!c->is_active || c->is_accepted) {
		conn_fail(c, KCR_REASON_GONE, 0, -ECONNRESET);
		return;
	}
	reason = event->status == IB_CM_REJ_INVALID_SERVICE_ID ?
		 KCR_REASON_REFUSED : KCR_REASON_REJECTED;
	conn_fail(c, reason, event->status, -ECONNREFUSED);
}

static int handle(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct conn *c = id->context;
	int error = event->status < 0 ? event->status : -EHOSTUNREACH;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		return listen_incoming(id, event);
	/* A listener's own, or one to check an address. */
	if (!c || c->id != id)
		return 0;
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		address_resolved(c);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		route_resolved(c);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		established(c, &event->param.conn);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
		conn_fail(c, KCR_REASON_UNREACHABLE, -error, error);
		break;
	case RDMA_CM_EVENT_ROUTE_ERROR:
		conn_fail(c, KCR_REASON_ROUTE, -error, error);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		conn_fail(c, KCR_REASON_UNREACHABLE, -error, error);
		break;
	case RDMA_CM_EVENT_REJECTED:
		rejected(c, event);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		/* Later it is the answer to this end's own goodbye. */
		if (READ_ONCE(c->state) < CONN_CLOSING)
			conn_fail(c, KCR_REASON_GONE, 0, -ECONNRESET);
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		conn_fail(c, KCR_REASON_DEVICE, 0, -ENODEV);
		break;
	default:
		break;
	}
	return 0;
}

/**
 * conn_handler() - an event of an id
 * @id: a connection's, or one that has just come in
 * @event: what happened
 *
 * Return: 0, for ids that are ours to destroy; an error has rdma_cm destroy it.
 */
int conn_handler(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	int ret;

	verbs_trace_begin();
	ret = handle(id, event);
	verbs_trace_end();
	return ret;
}

static int accept(struct conn *c, struct rdma_cm_id *id)
{
	struct wire_accept a = {
		.magic = cpu_to_le32(WIRE_MAGIC),
		.version = cpu_to_le16(WIRE_VERSION),
	};
	struct rdma_conn_param param = parameters(&a, sizeof(a));
	int ret;

	ret = use_device(c, id);
	if (ret)
		return ret;
	show_path(c, id);
	ret = queue_create(c);
	if (ret)
		return ret;
	get_random_bytes(c->nonces[1], sizeof(c->nonces[1]));
	memcpy(a.nonce, c->nonces[1], sizeof(a.nonce));
	ret = proof_make(c, false, a.proof) ?: verbs_may_fail();
	if (ret)
		return ret;
	return rdma_accept(id, &param);
}

/* Why a connection takes nobody: it is taken, or this end has failed by itself. */
static u32 why_not(const struct conn *c, u32 *detail)
{
	lockdep_assert_held(&c->lock);

	if (c->was_up)
		return KCR_REASON_DUPLICATE;
	if (!c->status->error) {
		*detail = WIRE_UNPROVEN;
		return KCR_REASON_DUPLICATE;
	}
	if (c->reason != KCR_REASON_LOCAL)
		return KCR_REASON_RANK;
	*detail = c->error;
	return KCR_REASON_LOCAL;
}

/**
 * conn_incoming() - a peer asks to be connected to
 * @c: the connection that expects it; meshes_lock is held
 * @id: the request's
 * @request: its private data, checked
 * @detail: gets that of a refusal
 *
 * If the connection cannot be made the request is refused, and close_work gets
 * rid of the rest as it always does: what was made may have been used by now.
 *
 * Return: 0 and the id is the connection's; or the reason for the caller, whose
 * the id still is, to refuse it with.
 */
u32 conn_incoming(struct conn *c, struct rdma_cm_id *id,
		  const struct wire_request *request, u32 *detail)
{
	u32 reason = 0;
	int ret;

	spin_lock_bh(&c->lock);
	if (conn_set_state(c, CONN_ACCEPTED)) {
		c->id = id;
		id->context = c;
		atomic_inc(&verbs_counts.ids);
	} else {
		reason = why_not(c, detail);
	}
	spin_unlock_bh(&c->lock);
	if (reason)
		return reason;
	set_proving_deadline(c);
	memcpy(c->nonces[0], request->nonce, sizeof(c->nonces[0]));
	ret = accept(c, id);
	if (ret) {
		listen_refuse(id, KCR_REASON_LOCAL, -ret);
		conn_fail(c, KCR_REASON_LOCAL, 0, ret);
	}
	return 0;
}

/**
 * conn_end() - the membership has ended
 * @c: the connection
 * @state: KCR_MEMBER_LEFT or KCR_MEMBER_DEAD
 * @head: what the rank was doing last, which peers compare if they differ
 *
 * What was sent is still delivered, and the peer is told: also one that may be up
 * already, while its WELCOME is on its way.
 */
void conn_end(struct conn *c, u32 state, const struct kcr_board *head)
{
	spin_lock_bh(&c->lock);
	c->ends = true;
	if (!conn_set_state(c, CONN_LEAVING)) {
		conn_set_state(c, CONN_CLOSING);
		spin_unlock_bh(&c->lock);
		return;
	}
	c->head = *head;
	if (c->peer_has_left)
		conn_set_state(c, CONN_CLOSING);
	else
		c->say |= SAY_PING |
			  (state == KCR_MEMBER_LEFT ? SAY_BYE : SAY_FAIL);
	conn_push(c);
	spin_unlock_bh(&c->lock);
	mod_delayed_work(verbs_wq, &c->deadline, msecs_to_jiffies(LEAVING_MS));
}

/**
 * conn_silence() - for how long the peer has been silent, as a beat of this node finds it
 * @c: the connection, up
 * @since_ns: since the beat before
 *
 * A node that has not run for a while has heard nobody, whoever spoke, and what came
 * may still wait to be taken in. So a beat that is late counts as no more than two.
 *
 * Return: ns of this node's own beats.
 */
u64 conn_silence(struct conn *c, u64 since_ns)
{
	lockdep_assert_held(&c->lock);

	c->silent_ns += min_t(u64, since_ns, 2 * BEAT_MS * NSEC_PER_MSEC);
	return c->silent_ns;
}

/**
 * conn_mmap() - map a connection's page
 * @c: the connection
 * @vma: shared, not executable
 *
 * Return: 0 or an error of the ABI.
 */
int conn_mmap(struct conn *c, struct vm_area_struct *vma)
{
	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	if (vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EINVAL;
	vm_flags_mod(vma, 0, VM_MAYWRITE);
	return kcr_region_map(c->region, vma);
}

#if IS_BUILTIN(CONFIG_KUNIT)
#include "conn_kunit.c"
#endif
