// SPDX-License-Identifier: GPL-2.0
/*
 * Rings: frames of one size class in one stream, from one side to the other.
 *
 * The receiver allocates the frames, registers them for writing by this one peer,
 * and advertises them (OPENED). The sender writes frame s to place
 * (s - 1) % depth, with an immediate that names the ring, as long as s <= acked +
 * depth. The receiver counts what arrives; its process releases it; the credit goes
 * back in the immediate of a frame that goes the other way at that moment, or by itself in
 * one without a frame. Both count alike, since a connection delivers in
 * order; a peer that breaks the rules loses the connection.
 *
 * conn->open_lock is held while a ring is opened, and where its memory is looked
 * at from outside of completions; the rest is under conn->lock.
 */
#include <linux/mm.h>

#include "../compat.h"
#include "verbs.h"

static struct kcr_ring_status *status_of(struct conn *c, u32 stream, u32 class)
{
	return &c->status->rings[stream][class];
}

/* ---- receiving ---- */

static int make_frames(struct conn *c, struct rx_ring *rx, u32 depth, u32 class)
{
	struct kcr_region *region;
	int ret;

	region = verbs_may_fail() ? ERR_PTR(-ENOMEM) :
		 kcr_region_new(c->member, (u64)depth * KCR_CLASS_BYTES(class));
	if (IS_ERR(region))
		return PTR_ERR(region);
	ret = grant_make(c, &rx->grant, region->pages, 0,
			 region->nr << PAGE_SHIFT);
	if (ret)
		kcr_region_put(region);
	else
		rx->region = region;
	return ret;
}

static void free_frames(struct rx_ring *rx)
{
	kcr_region_put(rx->region);
	rx->region = NULL;
}

static int make_known(struct conn *c, struct rx_ring *rx)
{
	int ret;

	if (rx->is_registered)
		return 0;
	ret = grant_register(c, &rx->grant, &c->reg_cqe);
	rx->is_registered = !ret;
	return ret;
}

/* Registered, now or later, then told. */
static int advertise(struct conn *c, u32 stream, u32 class, u32 depth)
{
	struct rx_ring *rx = &c->rx[stream][class];
	int ret;

	lockdep_assert_held(&c->lock);

	if (c->state != CONN_UP || c->peer_has_left)
		return -ENOTCONN;
	ret = make_known(c, rx);
	if (ret && ret != -ENOBUFS)
		return ret;
	rx->depth = depth;
	WRITE_ONCE(status_of(c, stream, class)->depth, depth);
	WRITE_ONCE(status_of(c, stream, class)->wanted, 0);
	c->say |= SAY_RINGS;
	conn_push(c);
	return 0;
}

static int open_locked(struct conn *c, u32 stream, u32 class)
{
	struct rx_ring *rx = &c->rx[stream][class];
	u32 depth = kcr_frames_depth(class, c->depth);
	int ret;

	lockdep_assert_held(&c->open_lock);

	if (READ_ONCE(c->state) != CONN_UP)
		return -ENOTCONN;
	if (rx->depth)
		return -EEXIST;
	ret = make_frames(c, rx, depth, class);
	if (ret)
		return ret;
	spin_lock_bh(&c->lock);
	ret = advertise(c, stream, class, depth);
	spin_unlock_bh(&c->lock);
	if (!ret) {
		atomic_inc(&verbs_counts.rings);
		return 0;
	}
	grant_free(c, &rx->grant);
	free_frames(rx);
	return ret;
}

/**
 * ring_open() - KCR_IOCTL_FRAMES
 * @c: the connection
 * @stream: less than KCR_STREAMS
 * @class: less than KCR_CLASSES
 *
 * Return: 0 or an error of the ABI.
 */
int ring_open(struct conn *c, u32 stream, u32 class)
{
	int ret;

	mutex_lock(&c->open_lock);
	ret = open_locked(c, stream, class);
	mutex_unlock(&c->open_lock);
	return ret;
}

/**
 * ring_close_all() - the connection is drained
 * @c: the connection
 *
 * What has arrived stays: the process may not have mapped it yet.
 */
void ring_close_all(struct conn *c)
{
	u32 stream, class;

	mutex_lock(&c->open_lock);
	for (stream = 0; stream < KCR_STREAMS; stream++)
		for (class = 0; class < KCR_CLASSES; class++)
			grant_free(c, &c->rx[stream][class].grant);
	mutex_unlock(&c->open_lock);
}

/**
 * ring_free_all() - nobody will map a frame any more
 * @c: the connection, closed or never started
 */
void ring_free_all(struct conn *c)
{
	u32 stream, class;

	for (stream = 0; stream < KCR_STREAMS; stream++) {
		for (class = 0; class < KCR_CLASSES; class++) {
			if (!c->rx[stream][class].region)
				continue;
			free_frames(&c->rx[stream][class]);
			atomic_dec(&verbs_counts.rings);
		}
	}
}

/**
 * ring_mmap() - map the frames of a ring
 * @c: the connection
 * @stream: less than KCR_STREAMS
 * @class: less than KCR_CLASSES
 * @vma: shared, not executable
 *
 * Return: 0 or an error of the ABI.
 */
int ring_mmap(struct conn *c, u32 stream, u32 class, struct vm_area_struct *vma)
{
	struct rx_ring *rx = &c->rx[stream][class];
	int ret = -ENXIO;

	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	mutex_lock(&c->open_lock);
	if (rx->region && rx->depth) {
		ret = -EINVAL;
		if (vma_pages(vma) == rx->region->nr) {
			vm_flags_mod(vma, 0, VM_MAYWRITE);
			ret = kcr_region_map(rx->region, vma);
		}
	}
	mutex_unlock(&c->open_lock);
	return ret;
}

static bool frame_arrived(struct conn *c, u32 stream, u32 class, u32 bytes)
{
	struct kcr_ring_status *status = status_of(c, stream, class);
	struct rx_ring *rx = &c->rx[stream][class];

	if (!rx->depth || !bytes || bytes > KCR_CLASS_BYTES(class) ||
	    rx->arrived - rx->released >= rx->depth)
		return false;
	WRITE_ONCE(status->length[rx->arrived % rx->depth], bytes);
	rx->arrived++;
	/* Pairs with the acquire of the process: the frame is there. */
	smp_store_release(&status->arrived, rx->arrived);
	WRITE_ONCE(c->status->received, c->status->received + 1);
	return true;
}

static bool credit_arrived(struct conn *c, u32 stream, u32 class, u32 low)
{
	struct kcr_ring_status *status;
	struct tx_ring *tx;
	u32 more;

	if (stream >= KCR_STREAMS)
		return false;
	tx = &c->tx[stream][class];
	status = status_of(c, stream, class);
	more = (low - (u32)tx->acked) & WIRE_CREDIT_MASK;
	if (!tx->depth || more > tx->next - 1 - tx->acked)
		return false;
	tx->acked += more;
	WRITE_ONCE(status->acked, tx->acked);
	/* Pairs with the acquire of the process: what is acked is told. */
	smp_store_release(&status->limit, tx->acked + tx->depth);
	return true;
}

/**
 * ring_arrived() - a write with an immediate has come
 * @c: the connection
 * @imm: what it says
 * @bytes: that it wrote
 *
 * Return: whether the peer may do this.
 */
bool ring_arrived(struct conn *c, u32 imm, u32 bytes)
{
	u32 stream = WIRE_IMM_STREAM(imm);

	lockdep_assert_held(&c->lock);

	if (!c->was_up)
		return false;
	if (WIRE_IMM_HAS_CREDIT(imm) &&
	    !credit_arrived(c, WIRE_IMM_CREDIT_STREAM(imm),
			    WIRE_IMM_CREDIT_CLASS(imm), WIRE_IMM_CREDIT(imm)))
		return false;
	if (stream == WIRE_NO_FRAME && WIRE_IMM_CLASS(imm) == WIRE_RUNG)
		return lane_rung(c, imm);
	if (stream == WIRE_NO_FRAME)
		return WIRE_IMM_HAS_CREDIT(imm) && !bytes;
	return frame_arrived(c, stream, WIRE_IMM_CLASS(imm), bytes);
}

/* ---- credits ---- */

/* A ring of which frames are owed to the peer, or NULL. */
static struct rx_ring *find_debt(struct conn *c, u32 *stream, u32 *class)
{
	struct rx_ring *rx;

	for (*stream = 0; *stream < KCR_STREAMS; ++*stream) {
		for (*class = 0; *class < KCR_CLASSES; ++*class) {
			rx = &c->rx[*stream][*class];
			if (rx->released != rx->returned)
				return rx;
		}
	}
	return NULL;
}

/**
 * ring_say_credits() - return what is owed
 * @c: the connection
 *
 * All of it: the sender writes the classes of a stream from one set of slots, by
 * all wires, and uses them again in turn. A frame that is kept back stops it
 * whatever comes back after it. Only a frame that is about to be sent is
 * waited for, or the next heartbeat.
 *
 * Return: whether all is said.
 */
bool ring_say_credits(struct conn *c)
{
	struct ib_rdma_wr wr = {
		.wr = {
			.opcode = IB_WR_RDMA_WRITE_WITH_IMM,
			.wr_cqe = &c->frame_cqe,
		},
	};
	struct rx_ring *rx;
	u32 stream, class;

	lockdep_assert_held(&c->lock);

	if (c->is_holding && !(c->say & SAY_PING))
		return true;
	c->is_holding = false;
	while ((rx = find_debt(c, &stream, &class))) {
		wr.wr.ex.imm_data = cpu_to_be32(wire_imm(WIRE_NO_FRAME, 0) |
			wire_imm_credit(stream, class, rx->released));
		if (queue_post(c, &wr.wr))
			return false;
		rx->returned = rx->released;
	}
	return true;
}

/**
 * ring_stop_holding() - the frame that credits waited for has gone, or will not
 * @c: the connection
 */
void ring_stop_holding(struct conn *c)
{
	lockdep_assert_held(&c->lock);

	if (!c->is_holding)
		return;
	c->is_holding = false;
	conn_push(c);
}

/**
 * ring_release() - KCR_CMD_RELEASE
 * @c: the connection
 * @args: checked to name a ring
 *
 * Return: 0 or an error of the ABI.
 */
int ring_release(struct conn *c, const struct kcr_release *args)
{
	struct rx_ring *rx = &c->rx[args->stream][args->size_class];

	lockdep_assert_held(&c->lock);

	if (!rx->depth || args->sequence > rx->arrived)
		return -EINVAL;
	if (args->sequence <= rx->released)
		return 0;
	rx->released = args->sequence;
	WRITE_ONCE(status_of(c, args->stream, args->size_class)->released,
		   rx->released);
	if (args->flags & KCR_RELEASE_MORE)
		c->is_holding = true;
	conn_push(c);
	return 0;
}

/* ---- opening ---- */

static bool is_ring(const struct wire_ring *ring)
{
	return ring->stream < KCR_STREAMS && ring->class < KCR_CLASSES;
}

/**
 * ring_hear_want() - the peer has a frame for a ring that is closed
 * @c: the connection
 * @ring: which
 *
 * Return: whether there is such a ring.
 */
bool ring_hear_want(struct conn *c, const struct wire_ring *ring)
{
	if (!is_ring(ring))
		return false;
	if (!c->rx[ring->stream][ring->class].depth)
		WRITE_ONCE(status_of(c, ring->stream, ring->class)->wanted, 1);
	return true;
}

/**
 * ring_hear_opened() - the peer has opened a ring
 * @c: the connection
 * @ring: which, and where
 *
 * Return: whether it could, and as agreed.
 */
bool ring_hear_opened(struct conn *c, const struct wire_ring *ring)
{
	struct kcr_ring_status *status;
	struct tx_ring *tx;

	if (!is_ring(ring) || le16_to_cpu(ring->depth) !=
	    kcr_frames_depth(ring->class, c->depth))
		return false;
	tx = &c->tx[ring->stream][ring->class];
	if (tx->depth)
		return false;
	tx->depth = le16_to_cpu(ring->depth);
	tx->rkey = le32_to_cpu(ring->rkey);
	tx->address = le64_to_cpu(ring->address);
	tx->next = 1;
	tx->is_wanted = false;
	status = status_of(c, ring->stream, ring->class);
	/* Pairs with the acquire of the process. */
	smp_store_release(&status->limit, tx->depth);
	return true;
}

/**
 * ring_register() - register what was opened
 * @c: the connection
 *
 * Return: 0, or as grant_register().
 */
int ring_register(struct conn *c)
{
	u32 stream, class;
	int ret = 0;

	lockdep_assert_held(&c->lock);

	for (stream = 0; stream < KCR_STREAMS && !ret; stream++)
		for (class = 0; class < KCR_CLASSES && !ret; class++)
			if (c->rx[stream][class].depth)
				ret = make_known(c, &c->rx[stream][class]);
	return ret;
}

/* Registered, then told: the queue keeps the order. */
static int say_opened(struct conn *c, u32 stream, u32 class)
{
	struct rx_ring *rx = &c->rx[stream][class];
	struct wire_message m = {
		.ring = {
			.stream = stream,
			.class = class,
			.depth = cpu_to_le16(rx->depth),
			.rkey = cpu_to_le32(rx->grant.mr->rkey),
			.address = cpu_to_le64(rx->grant.mr->iova),
		},
	};

	return make_known(c, rx) ?: conn_say(c, &m, WIRE_OPENED);
}

static int say_want(struct conn *c, u32 stream, u32 class)
{
	struct wire_message m = {
		.ring = { .stream = stream, .class = class },
	};

	return conn_say(c, &m, WIRE_WANT);
}

static bool say_one(struct conn *c, u32 stream, u32 class)
{
	struct rx_ring *rx = &c->rx[stream][class];
	struct tx_ring *tx = &c->tx[stream][class];

	if (rx->depth && !rx->is_told) {
		if (say_opened(c, stream, class))
			return false;
		rx->is_told = true;
	}
	if (tx->is_wanted) {
		if (say_want(c, stream, class))
			return false;
		tx->is_wanted = false;
	}
	return true;
}

/**
 * ring_say() - tell the peer which rings were opened, and which are wanted
 * @c: the connection
 *
 * Return: whether all is said.
 */
bool ring_say(struct conn *c)
{
	u32 stream, class;

	lockdep_assert_held(&c->lock);

	if (!(c->say & SAY_RINGS))
		return true;
	for (stream = 0; stream < KCR_STREAMS; stream++)
		for (class = 0; class < KCR_CLASSES; class++)
			if (!say_one(c, stream, class))
				return false;
	c->say &= ~SAY_RINGS;
	return true;
}

/* ---- sending ---- */

static u32 class_of(u32 bytes)
{
	u32 class = 0;

	while (KCR_CLASS_BYTES(class) < bytes)
		class++;
	return class;
}

static void want(struct conn *c, struct tx_ring *tx)
{
	if (tx->was_wanted)
		return;
	tx->was_wanted = true;
	tx->is_wanted = true;
	c->say |= SAY_RINGS;
	conn_push(c);
}

/**
 * ring_check_send() - may a frame be sent now
 * @c: the connection
 * @args: what is to be sent
 *
 * Return: 0 or an error of the ABI.
 */
int ring_check_send(struct conn *c, const struct kcr_send *args)
{
	struct tx_ring *tx = &c->tx[args->stream][class_of(args->bytes)];

	lockdep_assert_held(&c->lock);

	if (c->state != CONN_UP || c->peer_has_left)
		return -ENOTCONN;
	if (!tx->depth) {
		want(c, tx);
		return -ENOBUFS;
	}
	if (args->sequence < tx->next)
		return -EALREADY;
	if (args->sequence > tx->next || tx->next > tx->acked + tx->depth)
		return -ENOBUFS;
	if (!queue_has_room(c, 1)) {
		c->is_starved = true;
		return -ENOBUFS;
	}
	return 0;
}

/**
 * ring_send() - send a frame
 * @c: the connection; ring_check_send() has just said that it may be sent
 * @args: what is to be sent
 *
 * Return: 0 or an error of the ABI.
 */
int ring_send(struct conn *c, const struct kcr_send *args)
{
	u32 class = class_of(args->bytes), stream, owed_class;
	struct tx_ring *tx = &c->tx[args->stream][class];
	u32 imm = wire_imm(args->stream, class);
	struct ib_sge sges[FRAME_SGES];
	struct ib_rdma_wr wr = {
		.wr = {
			.opcode = IB_WR_RDMA_WRITE_WITH_IMM,
			.wr_cqe = &c->frame_cqe,
			.sg_list = sges,
		},
		.rkey = tx->rkey,
	};
	struct rx_ring *rx;
	int ret;

	lockdep_assert_held(&c->lock);

	ret = source_sges(c, args->window, args->offset, args->bytes, sges);
	if (ret < 0)
		return ret;
	rx = find_debt(c, &stream, &owed_class);
	if (rx)
		imm |= wire_imm_credit(stream, owed_class, rx->released);
	wr.wr.num_sge = ret;
	wr.wr.ex.imm_data = cpu_to_be32(imm);
	/* cppcheck-suppress unreadVariable; it is read with wr.wr, its first part */
	wr.remote_addr = tx->address + (tx->next - 1) % tx->depth *
			 (u64)KCR_CLASS_BYTES(class);
	ret = queue_post(c, &wr.wr);
	if (ret)
		return ret;
	tx->next++;
	if (rx)
		rx->returned = rx->released;
	WRITE_ONCE(c->status->sent, c->status->sent + 1);
	return 0;
}

#if IS_BUILTIN(CONFIG_KUNIT)
#include "ring_kunit.c"
#endif
