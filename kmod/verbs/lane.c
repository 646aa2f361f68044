// SPDX-License-Identifier: GPL-2.0
/*
 * Lanes: this node's ends of the lanes of remote windows.
 *
 * Each side makes its end by itself: lets the peer write what the peer is to write (the
 * slots, or the acknowledgement page), for this connection alone, and tells it the
 * keys (LANE). Who hears of a lane that it has not made drops that, and tells of its
 * own when it makes it; whoever learns from that of not having been heard tells again. So an
 * end is READY when the other's keys are here, and if that is not the same lane it
 * is UNEQUAL, on both sides.
 *
 * An address is an offset in the lane: nothing of how this node's memory lies is told.
 * The peer's word is taken for its keys alone. They are used with addresses and
 * lengths of our own, so whatever they are they can only hurt who gave them.
 *
 * Writes come without a completion at the receiver. Who wants to sleep says so (ARM,
 * with what it has seen); the peer's module rings as soon as it has posted something
 * newer: the RING comes with that, as its immediate, or goes behind it in the same queue,
 * so when it is heard the data is there. One ARM is enough until the RING for it has come.
 * Who has slept as often as it was rung asks for more of them with its next ARM: then
 * a message costs no ARM of its own. Both count: a RING that was not said yet is for all
 * that is newer.
 *
 * An end that is given up stays until the peer has said (UNLANED) that none of its
 * writes is on its way, as it does when it is asked to (UNLANE) and its last one
 * has completed; and until this end's own requests have, since a peer may say anything
 * at any time, and a registration is still to be used by one that waits. Then, outside
 * of all locks, the registrations go, and only after them the pages. If the connection
 * ends first they go after its queue pair. Since messages keep their order and a
 * window's number stays taken meanwhile, nothing of an earlier lane can be taken for a
 * later one's.
 *
 * All of that is under conn->lock, except that ends are made under conn->open_lock.
 */
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/slab.h>

#include "verbs.h"

/* Work requests that are posted as one, and their scatter entries. */
#define BATCH_WRS	16
#define BATCH_SGES	(2 * FRAME_SGES)

struct batch {
	struct ib_rdma_wr wrs[BATCH_WRS];
	struct ib_sge sges[BATCH_SGES];
	u32 nr;
	u32 nr_sge;
};

static struct lane *find(struct conn *c, u32 window, bool is_source)
{
	lockdep_assert_held(&c->lock);

	return c->lanes[is_source][array_index_nospec(window, KCR_MAX_WINDOWS)];
}

/* The process sees it with the event that whoever calls this is the cause of. */
static void set_state(struct lane *lane, u32 state)
{
	lane->state = state;
	/* Pairs with the acquire of the process: what explains it is there. */
	smp_store_release(&lane->shown->state, state);
}

/* To be said by conn_push(). */
static void want_said(struct lane *lane, u32 flag)
{
	lane->say |= flag;
	lane->conn->say |= SAY_LANES;
}

/* ---- making ---- */

static int grant_ack(struct lane *lane)
{
	int ret;

	ret = grant_make(lane->conn, &lane->grants[0], lane->ack->pages, 0,
			 sizeof(struct kcr_ack));
	if (ret)
		return ret;
	lane->grants[0].mr->iova = 0;
	lane->nr_grants = 1;
	return 0;
}

/* Whole slots in each, and nothing else. */
static int grant_slots(struct lane *lane)
{
	u32 each = kcr_remote_slots(lane->capacity), first, nr;
	struct page **pages = lane->slots->pages;
	struct grant *g;
	u64 start;
	int ret;

	for (first = 0; first < lane->depth; first += nr) {
		g = &lane->grants[lane->nr_grants];
		nr = min(each, lane->depth - first);
		start = (u64)first * lane->stride;
		ret = grant_make(lane->conn, g, pages + (start >> PAGE_SHIFT),
				 offset_in_page(start), nr * lane->stride);
		if (ret)
			return ret;
		g->mr->iova = start;
		lane->nr_grants++;
	}
	return 0;
}

/* One request is enough for each slot. */
static int check_pieces(struct lane *lane)
{
	struct ib_sge sges[FRAME_SGES];
	u32 i;
	int ret;

	for (i = 0; i < lane->depth; i++) {
		ret = source_pieces(lane->conn, lane->image,
				    (u64)i * lane->stride, lane->stride, sges);
		if (ret < 0)
			return -ENOMEM;
		cond_resched();
	}
	return 0;
}

static int make_source(struct lane *lane)
{
	struct source *image;

	kref_get(&lane->slots->kref);
	image = source_new(lane->slots, lane->conn->pd->device);
	if (IS_ERR(image))
		return PTR_ERR(image);
	lane->image = image;
	return check_pieces(lane) ?: grant_ack(lane);
}

static int make_destination(struct lane *lane)
{
	struct ib_device *device = lane->conn->pd->device;
	u64 dma;

	if (verbs_may_fail())
		return -ENOMEM;
	dma = ib_dma_map_single(device, &lane->counter, sizeof(lane->counter),
				DMA_TO_DEVICE);
	if (ib_dma_mapping_error(device, dma))
		return -ENOMEM;
	lane->counter_dma = dma;
	if (verbs_needs_sync(device, dma))
		return -EOPNOTSUPP;
	return grant_slots(lane);
}

/* Not under conn->lock, since it may wait: see grant_free(). */
static void lane_free(struct lane *lane)
{
	struct conn *c = lane->conn;
	u32 i;

	for (i = 0; i < KCR_REMOTE_PARTS; i++)
		grant_free(c, &lane->grants[i]);
	source_free(lane->image, c->pd->device);
	if (lane->counter_dma)
		ib_dma_unmap_single(c->pd->device, lane->counter_dma,
				    sizeof(lane->counter), DMA_TO_DEVICE);
	kcr_region_put(lane->slots);
	kcr_region_put(lane->ack);
	kcr_region_put(lane->status);
	kfree(lane);
	atomic_dec(&verbs_counts.lanes);
}

static struct kcr_region *region_get(struct kcr_region *region)
{
	kref_get(&region->kref);
	return region;
}

static struct lane *lane_new(struct conn *c, const struct kcr_remote_lane *args)
{
	struct lane *lane;
	int ret;

	lane = verbs_may_fail() ? NULL :
	       kzalloc(sizeof(*lane), GFP_KERNEL_ACCOUNT);
	if (!lane)
		return ERR_PTR(-ENOMEM);
	atomic_inc(&verbs_counts.lanes);
	lane->conn = c;
	lane->window = args->window;
	lane->is_source = args->desc->source == c->member->rank;
	lane->depth = args->desc->depth;
	lane->capacity = args->desc->capacity;
	lane->stride = KCR_SLOT_STRIDE(lane->capacity);
	lane->slots = region_get(args->slots);
	lane->ack = region_get(args->ack);
	lane->status = region_get(args->status);
	lane->shown = args->shown;
	lane->cqe.done = queue_lane_done;
	lane->reg_cqe.done = queue_lane_registered;
	ret = lane->is_source ? make_source(lane) : make_destination(lane);
	if (ret) {
		lane_free(lane);
		return ERR_PTR(ret);
	}
	return lane;
}

/* It may be used, and the peer is told. */
static int add(struct lane *lane)
{
	struct conn *c = lane->conn;
	int ret = 0;

	spin_lock_bh(&c->lock);
	if (c->state != CONN_UP || c->peer_has_left) {
		ret = -ENOTCONN;
	} else {
		c->lanes[lane->is_source][lane->window] = lane;
		set_state(lane, KCR_LANE_WAITING);
		want_said(lane, LANE_TELL);
		conn_push(c);
	}
	spin_unlock_bh(&c->lock);
	return ret;
}

static int open_locked(struct conn *c, const struct kcr_remote_lane *args)
{
	bool is_source = args->desc->source == c->member->rank;
	struct lane *lane;
	int ret;

	lockdep_assert_held(&c->open_lock);

	if (READ_ONCE(c->state) != CONN_UP)
		return -ENOTCONN;
	if (READ_ONCE(c->lanes[is_source][args->window]))
		return -EBUSY;
	lane = lane_new(c, args);
	if (IS_ERR(lane))
		return PTR_ERR(lane);
	ret = add(lane);
	if (ret)
		lane_free(lane);
	return ret;
}

/**
 * lane_open() - make this node's end of a lane
 * @c: the connection to the other end
 * @args: the lane
 *
 * Return: 0 or an error of the ABI.
 */
int lane_open(struct conn *c, const struct kcr_remote_lane *args)
{
	int ret;

	mutex_lock(&c->open_lock);
	ret = open_locked(c, args);
	mutex_unlock(&c->open_lock);
	return ret;
}

/**
 * lane_is_there() - is there an end of a lane of this window, be it of an earlier one?
 * @c: the connection
 * @window: which
 *
 * Return: whether there is.
 */
bool lane_is_there(const struct conn *c, u32 window)
{
	return READ_ONCE(c->lanes[0][window]) || READ_ONCE(c->lanes[1][window]);
}

/* ---- ending ---- */

/* Nothing of ours may be on its way for either end to go. Returns whether ours does. */
static bool settle(struct lane *lane)
{
	struct conn *c = lane->conn;

	lockdep_assert_held(&c->lock);

	if (lane->outstanding || lane->registering)
		return false;
	if (lane->peer_ends) {
		lane->peer_ends = false;
		c->unlaned[lane->is_source] |= BIT(lane->window);
		c->say |= SAY_LANES;
	}
	if (!lane->has_ended)
		return false;
	c->lanes[lane->is_source][lane->window] = NULL;
	lane->next = c->ended_lanes;
	c->ended_lanes = lane;
	queue_work(verbs_wq, &c->lane_work);
	return true;
}

static void forget(struct lane *lane)
{
	if (lane->ends)
		return;
	lane->ends = true;
	lane->rings = 0;
	/*
	 * A peer that we have heard may have written: it must know what it is that
	 * ends. And what was acknowledged is acknowledged.
	 */
	lane->say &= LANE_ACK | (lane->is_heard ? LANE_TELL : 0);
	want_said(lane, LANE_END);
}

/**
 * lane_forget() - a window was given up
 * @c: the connection
 * @window: which
 */
void lane_forget(struct conn *c, u32 window)
{
	struct lane *lane;
	int i;

	spin_lock_bh(&c->lock);
	for (i = 0; i < 2; i++) {
		lane = find(c, window, i);
		if (lane)
			forget(lane);
	}
	conn_push(c);
	spin_unlock_bh(&c->lock);
}

static void free_list(struct lane *list)
{
	struct lane *lane;

	while (list) {
		lane = list;
		list = lane->next;
		lane_free(lane);
	}
}

/**
 * lane_work() - free the lanes that both ends have let go of
 * @work: conn->lane_work
 *
 * What a peer is in the middle of writing all the same is waited for; at the latest until
 * close_work has destroyed the queue pair.
 */
void lane_work(struct work_struct *work)
{
	struct conn *c = container_of(work, struct conn, lane_work);
	struct lane *list;

	verbs_trace_begin();
	spin_lock_bh(&c->lock);
	list = c->ended_lanes;
	c->ended_lanes = NULL;
	spin_unlock_bh(&c->lock);
	free_list(list);
	verbs_trace_end();
}

/**
 * lane_close_all() - the queue pair is gone
 * @c: the connection
 */
void lane_close_all(struct conn *c)
{
	struct lane *lane, *list;
	u32 i, window;

	mutex_lock(&c->open_lock);
	cancel_work_sync(&c->lane_work);
	spin_lock_bh(&c->lock);
	list = c->ended_lanes;
	c->ended_lanes = NULL;
	for (i = 0; i < 2; i++) {
		for (window = 0; window < KCR_MAX_WINDOWS; window++) {
			lane = find(c, window, i);
			if (!lane)
				continue;
			set_state(lane, KCR_LANE_ENDED);
			c->lanes[i][window] = NULL;
			lane->next = list;
			list = lane;
		}
	}
	spin_unlock_bh(&c->lock);
	free_list(list);
	mutex_unlock(&c->open_lock);
}

/* ---- writing ---- */

/* May this end write? */
static int usable(struct conn *c, u32 window, bool is_source,
		  struct lane **found)
{
	struct lane *lane;

	if (c->state != CONN_UP || c->peer_has_left)
		return -ENOTCONN;
	lane = find(c, window, is_source);
	if (!lane || lane->ends)
		return -ENXIO;
	*found = lane;
	switch (lane->state) {
	case KCR_LANE_READY:
		return 0;
	case KCR_LANE_WAITING:
		return -ENOBUFS;
	case KCR_LANE_UNEQUAL:
		return -EPROTO;
	default:
		return -ENOTCONN;
	}
}

static bool ring_is_due(const struct lane *lane, u64 newest)
{
	return lane->rings && newest > lane->peer_seen &&
	       !(lane->say & LANE_RING);
}

/* For all that is posted by now. */
static void count_ring(struct lane *lane, u64 newest)
{
	lane->rings--;
	lane->peer_seen = newest;
}

/* Behind what was posted. */
static void ring_if_due(struct lane *lane)
{
	u64 newest = lane->is_source ? lane->put : lane->counter.sequence;

	if (!ring_is_due(lane, newest))
		return;
	count_ring(lane, newest);
	want_said(lane, LANE_RING);
}

/* With @wr, the last of what is posted, if it is due and there is a credit for it. */
static bool ring_with(struct lane *lane, struct ib_rdma_wr *wr, u64 newest)
{
	struct conn *c = lane->conn;

	if (!c->credits || !ring_is_due(lane, newest))
		return false;
	wr->wr.opcode = IB_WR_RDMA_WRITE_WITH_IMM;
	wr->wr.ex.imm_data =
		cpu_to_be32(wire_imm_rung(lane->window, lane->is_source));
	return true;
}

/* What ring_with() has prepared is posted. */
static void has_rung(struct lane *lane, u64 newest)
{
	lane->conn->credits--;
	count_ring(lane, newest);
}

static u64 place_of(const struct lane *lane, u64 sequence)
{
	u32 index;

	div_u64_rem(sequence - 1, lane->depth, &index);
	return (u64)index * lane->stride;
}

/* What the slot says of itself; its process may change that at any time. */
static u32 length_of(const struct lane *lane, u64 place)
{
	struct page *page = lane->slots->pages[place >> PAGE_SHIFT];
	const struct kcr_slot *slot = page_address(page) + offset_in_page(place);

	return READ_ONCE(slot->length);
}

/* Also reads the lengths, once: they are what counts from here on. */
static int check_put(struct lane *lane, const struct kcr_put *args,
		     u32 *lengths)
{
	struct conn *c = lane->conn;
	u32 i;

	if (args->count > lane->depth)
		return -EINVAL;
	if (lane->put && args->sequence <= lane->put)
		return -EALREADY;
	if (lane->put && args->sequence != lane->put + 1)
		return -EINVAL;
	for (i = 0; i < args->count; i++) {
		lengths[i] = length_of(lane, place_of(lane, args->sequence + i));
		if (lengths[i] > lane->capacity)
			return -EMSGSIZE;
	}
	if (!queue_has_room(c, args->count)) {
		c->is_starved = true;
		return -ENOBUFS;
	}
	return 0;
}

static int post(struct lane *lane, struct batch *batch)
{
	u32 sending = lane->conn->sending, i;
	int ret;

	if (!batch->nr)
		return 0;
	for (i = 1; i < batch->nr; i++)
		batch->wrs[i - 1].wr.next = &batch->wrs[i].wr;
	batch->wrs[batch->nr - 1].wr.next = NULL;
	ret = queue_post(lane->conn, &batch->wrs[0].wr);
	/* Also of those that failed the device may have taken some. */
	lane->outstanding += lane->conn->sending - sending;
	lane->put += lane->conn->sending - sending;
	batch->nr = 0;
	batch->nr_sge = 0;
	return ret;
}

static int add_slot(struct lane *lane, struct batch *batch, u64 place,
		    u32 length)
{
	u32 part = place / lane->stride / kcr_remote_slots(lane->capacity);
	struct conn *c = lane->conn;
	struct ib_rdma_wr *wr;
	struct ib_sge *sges;
	int ret;

	if (batch->nr == BATCH_WRS ||
	    batch->nr_sge + c->nr_sge > BATCH_SGES) {
		ret = post(lane, batch);
		if (ret)
			return ret;
	}
	sges = &batch->sges[batch->nr_sge];
	ret = source_pieces(c, lane->image, place, KCR_SLOT_GUARD(length) + 8,
			    sges);
	if (ret < 0)
		return ret;
	wr = &batch->wrs[batch->nr++];
	memset(wr, 0, sizeof(*wr));
	wr->wr.opcode = IB_WR_RDMA_WRITE;
	wr->wr.wr_cqe = &lane->cqe;
	wr->wr.sg_list = sges;
	wr->wr.num_sge = ret;
	wr->remote_addr = place;
	wr->rkey = lane->rkeys[part];
	batch->nr_sge += ret;
	return 0;
}

static int post_slots(struct lane *lane, const struct kcr_put *args,
		      const u32 *lengths)
{
	u64 newest = args->sequence + args->count - 1;
	struct batch batch;
	bool rings = false;
	int ret = 0;
	u32 i;

	batch.nr = 0;
	batch.nr_sge = 0;
	if (!lane->put) {
		lane->put = args->sequence - 1;
		lane->done = lane->put;
	}
	for (i = 0; i < args->count && !ret; i++)
		ret = add_slot(lane, &batch,
			       place_of(lane, args->sequence + i), lengths[i]);
	if (!ret)
		rings = ring_with(lane, &batch.wrs[batch.nr - 1], newest);
	ret = ret ?: post(lane, &batch);
	if (!ret && rings)
		has_rung(lane, newest);
	return ret;
}

/**
 * lane_put() - KCR_CMD_PUT
 * @c: the connection
 * @args: numbers are checked
 *
 * Return: 0 or an error of the ABI.
 */
int lane_put(struct conn *c, const struct kcr_put *args)
{
	u32 lengths[KCR_PUT_MAX];
	struct lane *lane;
	int ret;

	lockdep_assert_held(&c->lock);

	ret = usable(c, args->window, true, &lane);
	if (ret)
		return ret;
	ret = check_put(lane, args, lengths) ?:
	      post_slots(lane, args, lengths);
	if (ret)
		return ret;
	WRITE_ONCE(lane->shown->put, lane->put);
	ring_if_due(lane);
	conn_push(c);
	return 0;
}

/* One at a time: the device reads it from where the next one would be put. */
static int post_ack(struct lane *lane)
{
	struct conn *c = lane->conn;
	struct ib_sge sge = {
		.addr = lane->counter_dma,
		.length = sizeof(lane->counter),
		.lkey = c->pd->local_dma_lkey,
	};
	struct ib_rdma_wr wr = {
		.wr = {
			.opcode = IB_WR_RDMA_WRITE,
			.wr_cqe = &lane->cqe,
			.sg_list = &sge,
			.num_sge = 1,
		},
		.rkey = lane->rkeys[0],
	};
	bool rings;
	int ret;

	if (c->sending >= SEND_QUEUE - SEND_QUEUE_RESERVE / 2)
		return -ENOBUFS;
	lane->counter = lane->next_ack;
	rings = ring_with(lane, &wr, lane->counter.sequence);
	ret = queue_post(c, &wr.wr);
	if (ret)
		return ret;
	lane->outstanding++;
	if (rings)
		has_rung(lane, lane->counter.sequence);
	ring_if_due(lane);
	return 0;
}

/**
 * lane_ack() - KCR_CMD_ACK
 * @c: the connection
 * @args: numbers are checked
 *
 * Return: 0 or an error of the ABI.
 */
int lane_ack(struct conn *c, const struct kcr_put_ack *args)
{
	const struct kcr_ack *ack;
	struct lane *lane;
	int ret;

	lockdep_assert_held(&c->lock);

	ret = usable(c, args->window, false, &lane);
	if (ret)
		return ret;
	ack = page_address(lane->ack->pages[0]);
	lane->next_ack.sequence = READ_ONCE(ack->sequence);
	lane->next_ack.complement = READ_ONCE(ack->complement);
	want_said(lane, LANE_ACK);
	conn_push(c);
	return 0;
}

/**
 * lane_arm() - KCR_CMD_ARM
 * @c: the connection
 * @args: numbers are checked
 *
 * Of a lane that waits for the peer nothing is said: that it has come is an event.
 *
 * Return: 0 or an error of the ABI.
 */
int lane_arm(struct conn *c, const struct kcr_arm *args)
{
	bool is_source = args->flags & KCR_ARM_SOURCE;
	struct lane *lane;
	int ret;

	lockdep_assert_held(&c->lock);

	ret = usable(c, args->window, is_source, &lane);
	if (ret)
		return ret == -ENOBUFS ? 0 : ret;
	if (is_source && lane->outstanding)
		lane->is_watched = true;
	lane->slept++;
	if (lane->awaited)
		return 0;
	lane->asked = lane->slept <= lane->asked ? 1 :
		      clamp_t(u32, 2 * lane->asked, 1, WIRE_RINGS);
	lane->slept = 1;
	lane->awaited = lane->asked;
	lane->seen = args->seen;
	want_said(lane, LANE_ARM);
	conn_push(c);
	return 0;
}

static bool slot_sent(struct lane *lane)
{
	bool is_watched = lane->is_watched;

	lane->done++;
	lane->is_watched = false;
	/* Pairs with the acquire of the process: its place may be written. */
	smp_store_release(&lane->shown->done, lane->done);
	return is_watched;
}

static void ack_sent(struct lane *lane)
{
	WRITE_ONCE(lane->shown->acked, lane->counter.sequence);
	if (lane->say & LANE_ACK)
		lane->conn->say |= SAY_LANES;
}

/**
 * lane_sent() - a write has completed
 * @lane: whose
 * @is_done: with success; if not, the connection has failed
 *
 * Return: whether the process should know.
 */
bool lane_sent(struct lane *lane, bool is_done)
{
	bool is_event = false;

	lockdep_assert_held(&lane->conn->lock);

	WARN_ON_ONCE(!lane->outstanding);
	lane->outstanding--;
	if (is_done && lane->is_source)
		is_event = slot_sent(lane);
	else if (is_done)
		ack_sent(lane);
	return settle(lane) || is_event;
}

/**
 * lane_registered() - a registration has completed
 * @lane: whose
 * @is_done: with success; if not, the connection has failed
 *
 * Return: whether the process should know.
 */
bool lane_registered(struct lane *lane, bool is_done)
{
	lockdep_assert_held(&lane->conn->lock);

	WARN_ON_ONCE(!lane->registering);
	lane->registering--;
	return settle(lane);
}

/* ---- saying ---- */

/* -EAGAIN if there is no credit for it. */
static int say(struct conn *c, struct wire_message *m, enum wire_type type)
{
	if (wire_needs_credit(type) && !c->credits)
		return -EAGAIN;
	return conn_say(c, m, type);
}

static int say_of_end(struct conn *c, u32 window, bool is_source,
		      enum wire_type type, u64 seen, u8 more)
{
	u32 source = is_source ? c->member->rank : c->peer;
	struct wire_message m = {
		.end = {
			.window = window,
			.more = more,
			.source = cpu_to_le16(source),
			.seen = cpu_to_le64(seen),
		},
	};

	return say(c, &m, type);
}

static int make_known(struct lane *lane)
{
	int ret;

	for (; lane->nr_registered < lane->nr_grants; lane->nr_registered++) {
		ret = grant_register(lane->conn,
				     &lane->grants[lane->nr_registered],
				     &lane->reg_cqe);
		if (ret)
			return ret;
		lane->registering++;
	}
	return 0;
}

/**
 * lane_register() - register what is to be told of lanes
 * @c: the connection
 *
 * Return: 0, or as grant_register().
 */
int lane_register(struct conn *c)
{
	struct lane *lane;
	u32 window, i;
	int ret = 0;

	lockdep_assert_held(&c->lock);

	for (i = 0; i < 2 && !ret; i++) {
		for (window = 0; window < KCR_MAX_WINDOWS && !ret; window++) {
			lane = find(c, window, i);
			if (lane && lane->say & LANE_TELL)
				ret = make_known(lane);
		}
	}
	return ret;
}

/* Registered, then told: the queue keeps the order. */
static int tell(struct lane *lane)
{
	struct conn *c = lane->conn;
	u32 rank = c->member->rank, i;
	struct wire_message m = {
		.lane = {
			.window = lane->window,
			.flags = lane->is_heard ? WIRE_LANE_HEARD : 0,
			.source = cpu_to_le16(lane->is_source ? rank : c->peer),
			.destination = cpu_to_le16(lane->is_source ? c->peer :
						   rank),
			.depth = cpu_to_le32(lane->depth),
			.capacity = cpu_to_le32(lane->capacity),
		},
	};
	int ret;

	ret = make_known(lane);
	if (ret)
		return ret;
	for (i = 0; i < lane->nr_grants; i++)
		m.lane.rkeys[i] = cpu_to_le32(lane->grants[i].mr->rkey);
	return say(c, &m, WIRE_LANE);
}

static int say_unlane(struct lane *lane)
{
	return say_of_end(lane->conn, lane->window, lane->is_source,
			  WIRE_UNLANE, 0, 0);
}

static int say_arm(struct lane *lane)
{
	return say_of_end(lane->conn, lane->window, lane->is_source, WIRE_ARM,
			  lane->seen, lane->asked - 1);
}

static int say_ring(struct lane *lane)
{
	return say_of_end(lane->conn, lane->window, lane->is_source, WIRE_RING,
			  0, 0);
}

/* What @flag stands for, if it is to be said. */
static int try(struct lane *lane, u32 flag, int (*fn)(struct lane *lane))
{
	int ret;

	if (!(lane->say & flag))
		return 0;
	ret = fn(lane);
	if (!ret)
		lane->say &= ~flag;
	return ret;
}

static int say_lane(struct lane *lane)
{
	int ret = 0;

	if (!lane->is_source && !lane->outstanding)
		ret = try(lane, LANE_ACK, post_ack);
	ret = ret ?: try(lane, LANE_TELL, tell);
	/* An acknowledgement that waits for the last one goes first. */
	if (!ret && !(lane->say & LANE_ACK))
		ret = try(lane, LANE_END, say_unlane);
	return ret ?:
	       try(lane, LANE_ARM, say_arm) ?:
	       try(lane, LANE_RING, say_ring);
}

static int say_end(struct conn *c, u32 window, bool is_source)
{
	struct lane *lane = c->lanes[is_source][window];
	int ret;

	if (c->unlaned[is_source] & BIT(window)) {
		ret = say_of_end(c, window, is_source, WIRE_UNLANED, 0, 0);
		if (ret)
			return ret;
		c->unlaned[is_source] &= ~BIT(window);
	}
	return lane ? say_lane(lane) : 0;
}

static int say_ends(struct conn *c)
{
	int ret, missing = 0;
	u32 window, i;

	for (i = 0; i < 2; i++) {
		for (window = 0; window < KCR_MAX_WINDOWS; window++) {
			ret = say_end(c, window, i);
			/* Others may have what needs no credit. */
			if (ret == -EAGAIN)
				missing = ret;
			else if (ret)
				return ret;
		}
	}
	return missing;
}

static int say_credit(struct conn *c)
{
	struct wire_message m = { };

	if (c->owed < WIRE_CREDITS / 2)
		return 0;
	return say(c, &m, WIRE_CREDIT);
}

/**
 * lane_say() - say what is to be said about lanes, and acknowledge
 * @c: the connection
 *
 * For want of credits the rest waits, without being in the way of anything else.
 *
 * Return: whether there may be room for more.
 */
bool lane_say(struct conn *c)
{
	int ret;

	lockdep_assert_held(&c->lock);

	if (!(c->say & SAY_LANES))
		return true;
	c->say &= ~SAY_LANES;
	if (c->state != CONN_UP || c->peer_has_left)
		return true;
	ret = say_ends(c);
	if (ret == -EAGAIN || !ret) {
		if (ret)
			c->say |= SAY_LANES;
		ret = say_credit(c);
	}
	if (ret)
		c->say |= SAY_LANES;
	return !ret;
}

/* ---- hearing ---- */

static void hear_keys(struct lane *lane, const struct wire_lane *l)
{
	u32 depth = le32_to_cpu(l->depth), capacity = le32_to_cpu(l->capacity);
	u32 i;

	lane->is_heard = true;
	if (depth != lane->depth || capacity != lane->capacity) {
		WRITE_ONCE(lane->shown->peer_depth, depth);
		WRITE_ONCE(lane->shown->peer_capacity, capacity);
		set_state(lane, KCR_LANE_UNEQUAL);
		return;
	}
	for (i = 0; i < KCR_REMOTE_PARTS; i++)
		lane->rkeys[i] = le32_to_cpu(l->rkeys[i]);
	set_state(lane, KCR_LANE_READY);
}

static bool hear_lane(struct conn *c, const struct wire_lane *l)
{
	u32 source = le16_to_cpu(l->source), rank = c->member->rank;
	u32 destination = le16_to_cpu(l->destination);
	struct lane *lane;

	if (l->window >= KCR_MAX_WINDOWS || l->flags & ~WIRE_LANE_HEARD ||
	    l->reserved ||
	    !((source == rank && destination == c->peer) ||
	      (source == c->peer && destination == rank)))
		return false;
	lane = find(c, l->window, source == rank);
	if (!lane || lane->ends || lane->state == KCR_LANE_ENDED)
		return true;
	if (!lane->is_heard)
		hear_keys(lane, l);
	/* It had not made its own when it was told of this one. */
	if (!(l->flags & WIRE_LANE_HEARD))
		want_said(lane, LANE_TELL);
	return true;
}

/* A lane that was never heard of is not the one that the peer ends. */
static void hear_unlane(struct conn *c, struct lane *lane, u32 window,
			bool is_source)
{
	if (!lane) {
		c->unlaned[is_source] |= BIT(window);
		c->say |= SAY_LANES;
		return;
	}
	if (lane->is_heard && !lane->ends) {
		set_state(lane, KCR_LANE_ENDED);
		lane->rings = 0;
		lane->say = 0;
	}
	/* Nothing may be written there any more. */
	lane->say &= ~LANE_ACK;
	/*
	 * Who gives it up, too, has nothing left to explain: behind UNLANED, the
	 * peer would take that for the other end of its next lane.
	 */
	if (lane->ends)
		lane->say &= ~LANE_TELL;
	lane->peer_ends = true;
	settle(lane);
}

static bool hear_unlaned(struct lane *lane)
{
	if (!lane || !lane->ends || lane->say & LANE_END || lane->has_ended)
		return false;
	lane->has_ended = true;
	settle(lane);
	return true;
}

static void hear_arm(struct lane *lane, u64 seen, u32 rings)
{
	if (!lane || lane->ends || lane->state != KCR_LANE_READY)
		return;
	lane->peer_seen = seen;
	lane->rings = rings;
	ring_if_due(lane);
}

static void hear_ring(struct lane *lane)
{
	if (lane && lane->awaited)
		lane->awaited--;
}

static bool hear_of_end(struct conn *c, const struct wire_message *m)
{
	u32 source = le16_to_cpu(m->end.source), window = m->end.window;
	bool is_source = source == c->member->rank;
	struct lane *lane;

	if (window >= KCR_MAX_WINDOWS || (!is_source && source != c->peer) ||
	    m->end.reserved2 ||
	    m->end.more >= (m->type == WIRE_ARM ? WIRE_RINGS : 1))
		return false;
	lane = find(c, window, is_source);
	switch (m->type) {
	case WIRE_UNLANE:
		hear_unlane(c, lane, window, is_source);
		return true;
	case WIRE_UNLANED:
		return hear_unlaned(lane);
	case WIRE_ARM:
		hear_arm(lane, le64_to_cpu(m->end.seen), m->end.more + 1);
		return true;
	default:
		hear_ring(lane);
		return true;
	}
}

/* Something that was taken is owed. Returns whether there was credit for it. */
static bool take_credit(struct conn *c)
{
	if (++c->owed > WIRE_CREDITS)
		return false;
	if (c->owed >= WIRE_CREDITS / 2)
		c->say |= SAY_LANES;
	return true;
}

/**
 * lane_rung() - something was written to a lane, and rings
 * @c: the connection
 * @imm: which lane
 *
 * Return: whether it may.
 */
bool lane_rung(struct conn *c, u32 imm)
{
	bool by_source = WIRE_IMM_RUNG_BY_SOURCE(imm);
	u32 window = WIRE_IMM_RUNG_WINDOW(imm);

	lockdep_assert_held(&c->lock);

	if (window >= KCR_MAX_WINDOWS ||
	    imm != wire_imm_rung(window, by_source) || !take_credit(c))
		return false;
	hear_ring(find(c, window, !by_source));
	conn_push(c);
	return true;
}

/**
 * lane_hear() - a message about lanes has come
 * @c: the connection
 * @m: the message
 *
 * Return: whether it may be said at this point.
 */
bool lane_hear(struct conn *c, const struct wire_message *m)
{
	bool is_right = true;

	lockdep_assert_held(&c->lock);

	if (wire_needs_credit(m->type) && !take_credit(c))
		return false;
	if (m->type == WIRE_LANE)
		is_right = hear_lane(c, &m->lane);
	else if (m->type != WIRE_CREDIT)
		is_right = hear_of_end(c, m);
	if (is_right)
		conn_push(c);
	return is_right;
}

#if IS_BUILTIN(CONFIG_KUNIT)
#include "lane_kunit.c"
#endif
