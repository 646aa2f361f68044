// SPDX-License-Identifier: GPL-2.0
/*
 * Queues: a connection's protection domain, QP and CQ, the buffers of its
 * messages, and what becomes of work requests.
 *
 * One protection domain each: what a peer is given the key of is all that it
 * can reach. Everything is posted under conn->lock, and every request is
 * signalled, so that no completion goes unseen. Receives are posted anew as they
 * complete; there are more of them than the credits of the peer, so it
 * never finds none.
 */
#include <linux/bitmap.h>
#include <linux/slab.h>

#include "verbs.h"

static int error_of_status(enum ib_wc_status status)
{
	switch (status) {
	case IB_WC_RETRY_EXC_ERR:
	case IB_WC_RNR_RETRY_EXC_ERR:
	case IB_WC_WR_FLUSH_ERR:
		return -EHOSTUNREACH;
	default:
		return -EIO;
	}
}

/* What a receive ends with if the peer has sent too much, or where it may not. */
static bool is_peers_fault(const struct ib_wc *wc)
{
	switch (wc->status) {
	case IB_WC_LOC_LEN_ERR:
	case IB_WC_LOC_QP_OP_ERR:
	case IB_WC_REM_INV_REQ_ERR:
	case IB_WC_REM_ACCESS_ERR:
		return true;
	default:
		return false;
	}
}

static void violated(struct conn *c, u32 detail)
{
	atomic_inc(&verbs_counts.violations);
	conn_fail(c, KCR_REASON_PROTOCOL, detail, -EBADMSG);
}

/* Every completion goes through here. Returns whether it was a success. */
static bool check(struct conn *c, const struct ib_wc *wc)
{
	enum ib_wc_status status = wc->status;

	if (unlikely(verbs_inject_failure()))
		status = IB_WC_GENERAL_ERR;
	if (likely(status == IB_WC_SUCCESS))
		return true;
	/*
	 * Flushed: the reason came before. If it did not, it is this end that has
	 * broken: rxe flushes for every packet that its interface does not take.
	 */
	conn_fail(c, KCR_REASON_COMPLETION, status, error_of_status(status));
	return false;
}

/* Is all that went to the peer acknowledged? */
static bool is_idle(const struct conn *c)
{
	return c->sending == c->registering;
}

/*
 * Does what goes to the peer wait for a registration? If that has waited for a whole
 * beat: most queues are empty before that.
 */
static bool is_held(const struct conn *c)
{
	return c->beats_wanted > 1;
}

/* One request fewer on its way: there may be room, or nothing left to say. */
static void sent(struct conn *c, const struct ib_wc *wc, struct buffer *b,
		 struct lane *lane,
		 bool (*lane_fn)(struct lane *lane, bool is_done))
{
	bool is_done, is_event = false;

	verbs_trace_begin();
	is_done = check(c, wc);
	spin_lock_bh(&c->lock);
	if (b && b->message->type == WIRE_PING)
		c->ping_is_out = false;
	if (b)
		__set_bit(b - c->messages, &c->free_messages);
	c->sending--;
	if (lane && lane_fn(lane, is_done))
		is_event = true;
	conn_push(c);
	if (c->is_starved && !is_held(c)) {
		c->is_starved = false;
		is_event = true;
	}
	if (c->state == CONN_LEAVING && !c->sending && !c->say)
		conn_set_state(c, CONN_CLOSING);
	spin_unlock_bh(&c->lock);
	if (is_event)
		kcr_member_event(c->member);
	verbs_trace_end();
}

static void frame_done(struct ib_cq *cq, struct ib_wc *wc)
{
	sent(container_of(wc->wr_cqe, struct conn, frame_cqe), wc, NULL, NULL,
	     NULL);
}

static void registered(struct conn *c)
{
	spin_lock_bh(&c->lock);
	c->registering--;
	spin_unlock_bh(&c->lock);
}

static void reg_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct conn *c = container_of(wc->wr_cqe, struct conn, reg_cqe);

	registered(c);
	sent(c, wc, NULL, NULL, NULL);
}

static void message_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct buffer *b = container_of(wc->wr_cqe, struct buffer, cqe);

	sent(b->conn, wc, b, NULL, NULL);
}

/**
 * queue_lane_done() - a write to a lane's other end has completed
 * @cq: the queue
 * @wc: how; its cqe is the lane's
 */
void queue_lane_done(struct ib_cq *cq, struct ib_wc *wc)
{
	struct lane *lane = container_of(wc->wr_cqe, struct lane, cqe);

	sent(lane->conn, wc, NULL, lane, lane_sent);
}

/**
 * queue_lane_registered() - something that the peer may write is registered
 * @cq: the queue
 * @wc: how; its cqe is the lane's
 */
void queue_lane_registered(struct ib_cq *cq, struct ib_wc *wc)
{
	struct lane *lane = container_of(wc->wr_cqe, struct lane, reg_cqe);

	registered(lane->conn);
	sent(lane->conn, wc, NULL, lane, lane_registered);
}

static int post_receive(struct conn *c, struct buffer *b)
{
	struct ib_sge sge = {
		.addr = b->dma,
		.length = sizeof(*b->message),
		.lkey = c->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = {
		.wr_cqe = &b->cqe,
		.sg_list = &sge,
		.num_sge = 1,
	};

	return ib_post_recv(c->qp, &wr, NULL);
}

/* Of what the peer says: is it for the process to know? */
static bool is_news(u8 type)
{
	return type != WIRE_PING && type != WIRE_ARM && type != WIRE_CREDIT;
}

/* Returns whether the process should know. */
static bool receive(struct conn *c, struct buffer *b, const struct ib_wc *wc,
		    bool *is_right)
{
	struct ib_device *device = c->qp->device;
	struct wire_message message;

	lockdep_assert_held(&c->lock);

	c->silent_ns = 0;
	if (wc->opcode == IB_WC_RECV_RDMA_WITH_IMM) {
		*is_right = ring_arrived(c, be32_to_cpu(wc->ex.imm_data),
					 wc->byte_len);
		return true;
	}
	/* Keys are this end's to take away. */
	if (wc->wc_flags & IB_WC_WITH_INVALIDATE) {
		*is_right = false;
		return true;
	}
	ib_dma_sync_single_for_cpu(device, b->dma, sizeof(message),
				   DMA_FROM_DEVICE);
	message = *b->message;
	ib_dma_sync_single_for_device(device, b->dma, sizeof(message),
				      DMA_FROM_DEVICE);
	*is_right = conn_hear(c, &message, wc->byte_len);
	return is_news(message.type);
}

static void received(struct buffer *b, const struct ib_wc *wc)
{
	struct conn *c = b->conn;
	bool is_right = true, is_event;
	int ret = 0;

	if (unlikely(is_peers_fault(wc))) {
		violated(c, wc->status);
		return;
	}
	if (!check(c, wc))
		return;
	spin_lock_bh(&c->lock);
	is_event = receive(c, b, wc, &is_right);
	if (is_right && conn_may_post(c))
		ret = verbs_may_fail() ?: post_receive(c, b);
	spin_unlock_bh(&c->lock);
	if (!is_right)
		violated(c, 0);
	else if (ret)
		conn_fail(c, KCR_REASON_LOCAL, 0, ret);
	if (is_event)
		kcr_member_event(c->member);
}

static void receive_done(struct ib_cq *cq, struct ib_wc *wc)
{
	verbs_trace_begin();
	received(container_of(wc->wr_cqe, struct buffer, cqe), wc);
	verbs_trace_end();
}

static void happened(struct ib_event *event, void *context)
{
	struct conn *c = context;

	/* Some devices say so in their interrupt: no lock of ours. */
	if (event->event != IB_EVENT_COMM_EST)
		return;
	WRITE_ONCE(c->is_early, true);
	queue_work(verbs_wq, &c->event_work);
}

static int create_buffers(struct conn *c, struct ib_device *device)
{
	u32 nr = c->nr_receives + MESSAGES, i;
	struct buffer *b;

	if (verbs_may_fail())
		return -ENOMEM;
	c->memory_bytes = nr * sizeof(*c->memory);
	c->memory = kzalloc(c->memory_bytes, GFP_KERNEL_ACCOUNT);
	c->messages = kvcalloc(nr, sizeof(*c->messages), GFP_KERNEL_ACCOUNT);
	if (!c->memory || !c->messages || verbs_may_fail())
		return -ENOMEM;
	c->memory_dma = ib_dma_map_single(device, c->memory, c->memory_bytes,
					  DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(device, c->memory_dma)) {
		c->memory_dma = 0;
		return -ENOMEM;
	}
	c->receives = c->messages + MESSAGES;
	for (i = 0; i < nr; i++) {
		b = &c->messages[i];
		b->conn = c;
		b->message = &c->memory[i];
		b->dma = c->memory_dma + i * sizeof(*c->memory);
		b->cqe.done = i < MESSAGES ? message_done : receive_done;
	}
	bitmap_fill(&c->free_messages, MESSAGES);
	return 0;
}

static void destroy_buffers(struct conn *c, struct ib_device *device)
{
	if (c->memory_dma)
		ib_dma_unmap_single(device, c->memory_dma, c->memory_bytes,
				    DMA_BIDIRECTIONAL);
	c->memory_dma = 0;
	kvfree(c->messages);
	c->messages = NULL;
	kfree(c->memory);
	c->memory = NULL;
}

static int create_cq(struct conn *c, struct ib_device *device)
{
	struct ib_cq *cq;

	/* One more for each way, to mark the end of draining. */
	c->nr_cqe = SEND_QUEUE + c->nr_receives + 2;
	cq = verbs_may_fail() ? ERR_PTR(-ENOMEM) :
	     ib_cq_pool_get(device, c->nr_cqe, -1, IB_POLL_SOFTIRQ);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	c->cq = cq;
	atomic_inc(&verbs_counts.cqs);
	return 0;
}

static int create_qp(struct conn *c, struct ib_device *device)
{
	struct ib_qp_init_attr attr = {
		.event_handler = happened,
		.qp_context = c,
		.send_cq = c->cq,
		.recv_cq = c->cq,
		.cap = {
			.max_send_wr = SEND_QUEUE + 1,
			.max_recv_wr = c->nr_receives + 1,
			.max_send_sge = c->nr_sge,
			.max_recv_sge = 1,
		},
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.qp_type = IB_QPT_RC,
	};
	int ret;

	ret = verbs_may_fail() ?: rdma_create_qp(c->id, c->pd, &attr);
	if (ret)
		return ret;
	c->qp = c->id->qp;
	atomic_inc(&verbs_counts.qps);
	return 0;
}

static int create_pd(struct conn *c, struct ib_device *device)
{
	struct ib_pd *pd = verbs_may_fail() ? ERR_PTR(-ENOMEM) :
			   ib_alloc_pd(device, 0);

	if (IS_ERR(pd))
		return PTR_ERR(pd);
	c->pd = pd;
	atomic_inc(&verbs_counts.pds);
	return 0;
}

static int post_receives(struct conn *c)
{
	int ret = 0;
	u32 i;

	for (i = 0; i < c->nr_receives && !ret; i++)
		ret = post_receive(c, &c->receives[i]);
	return ret ?: verbs_may_fail();
}

/**
 * queue_create() - make all that a connection needs of its device
 * @c: the connection; its id is bound to the device
 *
 * After an error the rest is for queue_destroy() to undo.
 *
 * Return: 0 or an error.
 */
int queue_create(struct conn *c)
{
	struct ib_device *device = c->id->device;
	int ret;

	c->credits = WIRE_CREDITS;
	c->owed = 0;
	c->frame_cqe.done = frame_done;
	c->reg_cqe.done = reg_done;
	/* A frame each, and a credit for each. */
	c->nr_receives = 2 * KCR_STREAMS * KCR_CLASSES * c->depth +
			 RECEIVE_RESERVE;
	c->nr_sge = min_t(u32, FRAME_SGES, device->attrs.max_send_sge);
	ret = create_pd(c, device) ?: create_buffers(c, device) ?:
	      create_cq(c, device) ?: create_qp(c, device);
	return ret ?: post_receives(c);
}

/**
 * queue_drain() - wait for the last completion
 * @c: the connection; its state keeps anybody from posting
 *
 * Needs no peer: what was not done is flushed. rdma_cm makes a queue ready to
 * receive before it tells us, so whether anything may have come is not known.
 */
void queue_drain(struct conn *c)
{
	if (c->qp)
		ib_drain_qp(c->qp);
}

/**
 * queue_destroy_qp() - nothing can come any more
 * @c: the connection, drained; its id is gone
 *
 * Before the registrations of its rings go: rdma_rxe holds on to the one that a
 * peer was in the middle of writing to for as long as there is the queue pair,
 * and waits for that in vain.
 */
void queue_destroy_qp(struct conn *c)
{
	if (!c->qp)
		return;
	ib_destroy_qp(c->qp);
	atomic_dec(&verbs_counts.qps);
	c->qp = NULL;
}

/**
 * queue_destroy() - undo the rest of queue_create(), as far as it came
 * @c: the connection, without its queue pair
 */
void queue_destroy(struct conn *c)
{
	struct ib_device *device = c->pd ? c->pd->device : NULL;

	if (c->cq) {
		ib_cq_pool_put(c->cq, c->nr_cqe);
		atomic_dec(&verbs_counts.cqs);
		c->cq = NULL;
	}
	destroy_buffers(c, device);
	if (c->pd) {
		ib_dealloc_pd(c->pd);
		atomic_dec(&verbs_counts.pds);
		c->pd = NULL;
	}
}

static u32 length_of(const struct ib_send_wr *wr, const struct ib_send_wr *end)
{
	u32 nr = 0;

	for (; wr != end; wr = wr->next)
		nr++;
	return nr;
}

/**
 * queue_has_room() - is there room for what the process wants to send
 * @c: the connection
 * @nr: work requests
 *
 * Return: whether there is, beside what this module may have to say.
 */
bool queue_has_room(const struct conn *c, u32 nr)
{
	lockdep_assert_held(&c->lock);

	return !is_held(c) && c->sending + nr <= SEND_QUEUE - SEND_QUEUE_RESERVE;
}

/**
 * queue_becomes_idle() - is what has waited for that to be posted now
 * @c: the connection
 *
 * Return: whether it is; before anything else.
 */
bool queue_becomes_idle(struct conn *c)
{
	lockdep_assert_held(&c->lock);

	if (!c->wants_idle || !is_idle(c))
		return false;
	c->wants_idle = false;
	c->beats_wanted = 0;
	return true;
}

static int post(struct conn *c, const struct ib_send_wr *wr)
{
	const struct ib_send_wr *bad = wr;
	u32 nr = length_of(wr, NULL);
	int ret;

	if (c->sending + nr > SEND_QUEUE)
		return -ENOBUFS;
	ret = verbs_may_fail() ?: ib_post_send(c->qp, wr, &bad);
	if (ret)
		conn_fail_locked(c, KCR_REASON_LOCAL, 0, ret);
	/* The device may have taken some of them. */
	c->sending += ret ? length_of(wr, bad) : nr;
	return ret;
}

/**
 * queue_post() - post work requests that go to the peer
 * @c: the connection
 * @wr: the first; all or none
 *
 * What the device refuses although there is room for it would be missed by the
 * peer, or by those whom the same frame reached: the connection has broken.
 *
 * Return: 0, -ENOTCONN, -ENOBUFS if the queue is full, or the device's error.
 */
int queue_post(struct conn *c, const struct ib_send_wr *wr)
{
	lockdep_assert_held(&c->lock);

	if (!conn_may_post(c))
		return -ENOTCONN;
	return is_held(c) ? -ENOBUFS : post(c, wr);
}

/**
 * queue_probe() - have the peer's device acknowledge something
 * @c: the connection, which waits for a word of the peer's
 *
 * rdma_cm tells that a peer has gone by a datagram, once: if that is lost, who only
 * waits would never know. A write of no bytes needs no key and no receive, and the
 * peer sees nothing of it; if there is no queue pair any more it ends with an error.
 * What is on its way does as much, and must be left alone: rdma_rxe counts the time
 * until it sends that again from the last request that was posted.
 *
 * Return: 0, or as queue_post().
 */
int queue_probe(struct conn *c)
{
	struct ib_rdma_wr wr = {
		.wr = {
			.opcode = IB_WR_RDMA_WRITE,
			.wr_cqe = &c->frame_cqe,
		},
	};

	return queue_post(c, &wr.wr);
}

/**
 * queue_post_registration() - post a registration
 * @c: the connection
 * @wr: the request
 *
 * Only when nothing before it is on its way. rdma_rxe, when it sends again what was
 * not acknowledged, also does the registrations again that came after that. The
 * second time they fail, and the queue with them; on 6.1 without a word.
 *
 * Return: 0, or as queue_post(). After -ENOBUFS it is for who asks
 * queue_becomes_idle() to post it.
 */
int queue_post_registration(struct conn *c, const struct ib_send_wr *wr)
{
	int ret;

	lockdep_assert_held(&c->lock);

	if (!conn_may_post(c))
		return -ENOTCONN;
	if (!is_idle(c)) {
		c->wants_idle = true;
		return -ENOBUFS;
	}
	ret = post(c, wr);
	if (!ret)
		c->registering++;
	return ret;
}

/**
 * queue_post_message() - send a message
 * @c: the connection
 * @message: it; copied
 *
 * Return: 0, or as queue_post().
 */
int queue_post_message(struct conn *c, const struct wire_message *message)
{
	struct ib_send_wr wr = { .opcode = IB_WR_SEND, .num_sge = 1 };
	struct ib_sge sge = { .length = sizeof(*message) };
	struct buffer *b;
	u32 i;
	int ret;

	lockdep_assert_held(&c->lock);

	if (!conn_may_post(c))
		return -ENOTCONN;
	/* PING wakes a queue that has fallen asleep: see may_ping(). */
	if (is_held(c) && message->type != WIRE_PING)
		return -ENOBUFS;
	/*
	 * On 6.1, a stale timer of the queue's may take what is sent right behind a
	 * registration for lost before that is done. A few instructions are between
	 * that and nothing, and frames may have to hurry, but messages need not.
	 */
	if (c->registering)
		return -ENOBUFS;
	i = find_first_bit(&c->free_messages, MESSAGES);
	if (i == MESSAGES)
		return -ENOBUFS;
	b = &c->messages[i];
	ib_dma_sync_single_for_cpu(c->qp->device, b->dma, sizeof(*message),
				   DMA_TO_DEVICE);
	*b->message = *message;
	ib_dma_sync_single_for_device(c->qp->device, b->dma, sizeof(*message),
				      DMA_TO_DEVICE);
	sge.addr = b->dma;
	sge.lkey = c->pd->local_dma_lkey;
	wr.wr_cqe = &b->cqe;
	wr.sg_list = &sge;
	ret = post(c, &wr);
	if (!ret)
		__clear_bit(i, &c->free_messages);
	return ret;
}
