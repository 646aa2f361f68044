/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A peer of the mesh made of raw verbs, which says what a test wants said
 *
 * It has either side of a connection to one rank: the lower one, which connects
 * to the module's port, or the higher one, which listens at a port of its own.
 * What the modules say to each other is written down here a second time, so that
 * a change of kmod/verbs/wire.h that is none of its version fails here.
 *
 * All functions that can fail give 0 or a negative errno, if they do not say
 * otherwise.
 */
#ifndef KCR_TEST_RAWPEER_H
#define KCR_TEST_RAWPEER_H

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include "mesh.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "structs are as on the wire");

#define RAW_MAGIC	0x6772636bU
#define RAW_VERSION	3
#define RAW_PORT	18917

#define RAW_HELLO	1
#define RAW_WELCOME	2
#define RAW_WANT	3
#define RAW_OPENED	4
#define RAW_PING	5
#define RAW_FAIL	6
#define RAW_BYE		7
#define RAW_LANE	8
#define RAW_UNLANE	9
#define RAW_UNLANED	10
#define RAW_ARM		11
#define RAW_RING	12
#define RAW_CREDIT	13
#define RAW_TYPES	14

/* Messages about lanes that may be on their way without a credit given back. */
#define RAW_CREDITS	16
#define RAW_LANE_HEARD	1

/* As a number of retries; of those that are no answer at all, for rdma_rxe. */
#define RAW_FOR_EVER	7

#define RAW_NO_FRAME	3u
#define RAW_RUNG	1u
#define RAW_RINGS	8	/* most that one ARM asks for */

struct raw_request {
	__u32 magic;
	__u16 version;
	__u16 version_min;
	__u8 world[16];
	__u16 from;
	__u16 to;
	__u16 ranks;
	__u8 wire;
	__u8 depth;
	__u8 nonce[16];
	__u8 reserved[8];
};

struct raw_accept {
	__u32 magic;
	__u16 version;
	__u16 reserved;
	__u8 nonce[16];
	__u8 proof[32];
};

/* The detail of DUPLICATE: because of one that has not proven yet who it is. */
#define RAW_UNPROVEN	1

struct raw_reject {
	__u32 magic;
	__u16 version;
	__u16 reason;
	__u32 detail;
};

struct raw_ring {
	__u8 stream;
	__u8 class;
	__u16 depth;
	__u32 rkey;
	__u64 address;
};

struct raw_fail {
	__u32 rank;
	__u32 error;
};

struct raw_lane {
	__u8 window;
	__u8 flags;
	__u16 source;
	__u16 destination;
	__u16 reserved;
	__u32 depth;
	__u32 capacity;
	__u32 rkeys[10];
};

struct raw_end {
	__u8 window;
	__u8 more;
	__u16 source;
	__u32 reserved2;
	__u64 seen;
};

struct raw_message {
	__u32 magic;
	__u8 type;
	__u8 credits;
	__u8 reserved[2];
	union {
		__u8 proof[32];
		struct raw_ring ring;
		struct raw_fail fail;
		struct raw_lane lane;
		struct raw_end end;
		__u8 bytes[56];
	};
};

_Static_assert(sizeof(struct raw_request) == 56, "as on the wire");
_Static_assert(sizeof(struct raw_accept) == 56, "as on the wire");
_Static_assert(sizeof(struct raw_reject) == 12, "as on the wire");
_Static_assert(sizeof(struct raw_message) == 64, "as on the wire");

#define RAW_RECEIVES	512
#define RAW_SENDS	64
/* Behind the receives: what is sent, and what frames are written from. */
#define RAW_SEND_AT	(RAW_RECEIVES * sizeof(struct raw_message))
#define RAW_MEMORY	(RAW_SEND_AT + (1u << 20))

struct raw {
	struct dev_world world;
	__u32 low;
	__u32 high;
	bool is_active;
	bool is_endless;	/* would have the other side's queue try for ever */
	bool is_deaf;	/* posts one receive, for what comes first, and never again */
	bool is_greedy;	/* its queue sends reads and atomics, whatever was agreed to */
	/* How many of those it says that it sends at once, and how many it takes. */
	__u8 sends_reads;
	__u8 takes_reads;
	__u8 nonces[2][16];
	struct rdma_event_channel *channel;
	struct rdma_cm_id *ear;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	unsigned char *memory;
	/* What rdma_cm told last. */
	int status;
	size_t bytes;
	__u8 retries;		/* how often this side's queue is to try */
	__u8 rnr_retries;	/* ... what found no receive */
	__u8 asked_to_send;	/* how many reads and atomics at once */
	__u8 asked_to_take;
	union {
		__u8 data[256];
		struct raw_request request;
		struct raw_accept accept;
		struct raw_reject reject;
	};
	/* What was sent. */
	int sending;
	unsigned int posted;		/* whose turn it is of the places for messages */
	enum ibv_wc_status sent;	/* the first that was no success */
	/* What came: how often, and the last. */
	unsigned int heard[RAW_TYPES];
	struct raw_message last[RAW_TYPES];
	unsigned int imms;
	unsigned int rung;	/* by immediates */
	__u32 last_rung;
	unsigned int credits;		/* that were given back */
	unsigned int owed;		/* messages about lanes that came */
};

static inline struct raw raw_peer(const struct dev_world *w, __u32 low, __u32 high,
				  bool is_active)
{
	return (struct raw){
		.world = *w, .low = low, .high = high, .is_active = is_active,
	};
}

static inline void raw_close(struct raw *r)
{
	bool is_deaf;

	if (r->id && r->id->qp)
		rdma_destroy_qp(r->id);
	if (r->id)
		rdma_destroy_id(r->id);
	if (r->ear)
		rdma_destroy_id(r->ear);
	if (r->mr)
		ibv_dereg_mr(r->mr);
	if (r->cq)
		ibv_destroy_cq(r->cq);
	if (r->pd)
		ibv_dealloc_pd(r->pd);
	if (r->channel)
		rdma_destroy_event_channel(r->channel);
	free(r->memory);
	is_deaf = r->is_deaf;
	*r = raw_peer(&r->world, r->low, r->high, r->is_active);
	r->is_deaf = is_deaf;
}

/* The next event's kind, or -ETIME if none comes in time. */
static inline int raw_event(struct raw *r, double seconds)
{
	struct pollfd p = { .fd = r->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	int kind;

	if (poll(&p, 1, (int)(seconds * 1000)) != 1)
		return -ETIME;
	if (rdma_get_cm_event(r->channel, &event))
		return -errno;
	kind = event->event;
	r->status = event->status;
	r->retries = event->param.conn.retry_count;
	r->rnr_retries = event->param.conn.rnr_retry_count;
	r->asked_to_send = event->param.conn.initiator_depth;
	r->asked_to_take = event->param.conn.responder_resources;
	r->bytes = event->param.conn.private_data ? event->param.conn.private_data_len : 0;
	memset(r->data, 0, sizeof(r->data));
	memcpy(r->data, event->param.conn.private_data, r->bytes);
	if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
		if (r->id)
			rdma_reject(event->id, NULL, 0);
		else
			r->id = event->id;
	}
	rdma_ack_cm_event(event);
	return kind;
}

/* Events up to this one; 0 or -ETIME. */
static inline int raw_event_is(struct raw *r, int kind, double seconds)
{
	double until = dev_now() + seconds * pace();
	int got;

	do {
		got = raw_event(r, until - dev_now() > 0 ? until - dev_now() : 0);
	} while (got >= 0 && got != kind);
	return got < 0 ? got : 0;
}

static inline int raw_receive(struct raw *r, __u64 i)
{
	struct ibv_sge sge = {
		.addr = (unsigned long)r->memory + i * sizeof(struct raw_message),
		.length = sizeof(struct raw_message),
		.lkey = r->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

	return -ibv_post_recv(r->id->qp, &wr, &bad);
}

/*
 * How long the other side is to wait each time that nothing is posted for what it sends, in
 * the encoding of the InfiniBand specification. Once connected.
 */
static inline int raw_set_rnr_timer(struct raw *r, __u8 timer)
{
	struct ibv_qp_attr attr = { .min_rnr_timer = timer };

	return -ibv_modify_qp(r->id->qp, &attr, IBV_QP_MIN_RNR_TIMER);
}

static inline int raw_queue(struct raw *r)
{
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = RAW_SENDS,
			.max_recv_wr = RAW_RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	int err;

	r->memory = aligned_alloc(4096, RAW_MEMORY);
	r->pd = ibv_alloc_pd(r->id->verbs);
	r->cq = ibv_create_cq(r->id->verbs, RAW_RECEIVES + RAW_SENDS, NULL, NULL, 0);
	if (!r->memory || !r->pd || !r->cq)
		return -ENOMEM;
	memset(r->memory, 0, RAW_MEMORY);
	r->mr = ibv_reg_mr(r->pd, r->memory, RAW_MEMORY,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	attr.send_cq = r->cq;
	attr.recv_cq = r->cq;
	if (!r->mr || rdma_create_qp(r->id, r->pd, &attr))
		return -errno;
	for (__u64 i = 0; i < (r->is_deaf ? 1 : RAW_RECEIVES); i++) {
		err = raw_receive(r, i);
		if (err)
			return err;
	}
	return 0;
}

static inline void raw_address(struct sockaddr_in *sin, int port)
{
	__u8 bytes[28];

	mesh_sockaddr(bytes, mesh_address(0), port);
	memcpy(sin, bytes, sizeof(*sin));
}

/* It is the other side's queue that keeps to the numbers of retries. */
static inline struct rdma_conn_param raw_param(const struct raw *r, const void *data,
					       size_t bytes)
{
	return (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = bytes,
		.responder_resources = r->takes_reads,
		.initiator_depth = r->sends_reads,
		.flow_control = 1,
		.retry_count = RAW_FOR_EVER - 1,
		.rnr_retry_count = r->is_endless ? RAW_FOR_EVER : RAW_FOR_EVER - 1,
		.qp_num = r->id && r->id->qp ? r->id->qp->qp_num : 0,
	};
}

/*
 * Through its states by hand: how many reads and atomics were agreed to is for each side's
 * own queue to keep to.
 */
static inline int raw_make_greedy(struct raw *r, struct ibv_qp *qp)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };

	for (int i = 0; i < 3; i++) {
		struct ibv_qp_attr attr = { .qp_state = states[i] };
		int mask, err;

		if (rdma_init_qp_attr(r->id, &attr, &mask))
			return -errno;
		attr.max_rd_atomic = 1;
		err = -ibv_modify_qp(qp, &attr, mask);
		if (err)
			return err;
	}
	return 0;
}

/* ---- the lower rank's side ---- */

static inline struct raw_request raw_request(struct raw *r)
{
	struct raw_request q = {
		.magic = RAW_MAGIC,
		.version = RAW_VERSION,
		.version_min = RAW_VERSION,
		.from = r->low,
		.to = r->high,
		.ranks = r->world.ranks,
		.depth = MESH_DEPTH + 1,
	};

	memcpy(q.world, r->world.id, sizeof(q.world));
	if (getrandom(r->nonces[0], 16, 0) != 16)
		abort();
	memcpy(q.nonce, r->nonces[0], sizeof(q.nonce));
	return q;
}

/* Connect, with these bytes; how that ended: an event's kind, or -errno. */
static inline int raw_connect(struct raw *r, const void *data, size_t bytes)
{
	struct sockaddr_in source, destination;
	struct rdma_conn_param param;
	struct ibv_qp *qp;
	int kind, err;

	raw_address(&source, 0);
	raw_address(&destination, MESH_PORT);
	r->channel = rdma_create_event_channel();
	if (!r->channel || rdma_create_id(r->channel, &r->id, NULL, RDMA_PS_TCP))
		return -errno;
	if (rdma_resolve_addr(r->id, (struct sockaddr *)&source,
			      (struct sockaddr *)&destination, 2000) ||
	    raw_event(r, 10) != RDMA_CM_EVENT_ADDR_RESOLVED ||
	    rdma_resolve_route(r->id, 2000) ||
	    raw_event(r, 10) != RDMA_CM_EVENT_ROUTE_RESOLVED)
		return -EHOSTUNREACH;
	err = raw_queue(r);
	if (err)
		return err;
	param = raw_param(r, data, bytes);
	qp = r->id->qp;
	/* What librdmacm does not know of it leaves alone. */
	if (r->is_greedy)
		r->id->qp = NULL;
	kind = rdma_connect(r->id, &param) ? -errno : raw_event(r, 20);
	if (kind == RDMA_CM_EVENT_CONNECT_RESPONSE)
		kind = raw_make_greedy(r, qp) ?: rdma_establish(r->id) ? -errno :
		       RDMA_CM_EVENT_ESTABLISHED;
	r->id->qp = qp;
	if (kind == RDMA_CM_EVENT_ESTABLISHED)
		memcpy(r->nonces[1], r->accept.nonce, sizeof(r->nonces[1]));
	return kind;
}

/* ---- the higher rank's side ---- */

static inline int raw_listen(struct raw *r, int port)
{
	struct sockaddr_in address;

	raw_address(&address, port);
	r->channel = rdma_create_event_channel();
	if (!r->channel || rdma_create_id(r->channel, &r->ear, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(r->ear, (struct sockaddr *)&address) || rdma_listen(r->ear, 4))
		return -errno;
	return 0;
}

/* The other side connects; what it said is in r->request afterwards. */
static inline int raw_requested(struct raw *r)
{
	int err = raw_event_is(r, RDMA_CM_EVENT_CONNECT_REQUEST, 20);

	if (!err)
		memcpy(r->nonces[0], r->request.nonce, sizeof(r->nonces[0]));
	return err;
}

static inline int raw_accept(struct raw *r, const void *data, size_t bytes)
{
	struct rdma_conn_param param;
	struct ibv_qp *qp;
	int err = raw_queue(r);

	if (err)
		return err;
	param = raw_param(r, data, bytes);
	qp = r->id->qp;
	if (r->is_greedy) {
		err = raw_make_greedy(r, qp);
		r->id->qp = NULL;
	}
	err = err ?: rdma_accept(r->id, &param) ? -errno : 0;
	r->id->qp = qp;
	return err;
}

/* ---- proofs ---- */

static inline void raw_proof(const struct raw *r, bool is_low, __u8 proof[32])
{
	struct {
		__u8 label[8];
		__u8 world[16];
		__u16 low;
		__u16 high;
		__u16 ranks;
		__u8 wire;
		__u8 depth;
		__u8 nonces[2][16];
	} s = {
		.low = r->low,
		.high = r->high,
		.ranks = r->world.ranks,
		.depth = MESH_DEPTH + 1,
	};
	unsigned int bytes = 32;

	memcpy(s.label, is_low ? "kcr-low " : "kcr-high", 8);
	memcpy(s.world, r->world.id, 16);
	memcpy(s.nonces, r->nonces, 32);
	if (!HMAC(EVP_sha256(), r->world.key, 16, (void *)&s, sizeof(s), proof, &bytes))
		abort();
}

static inline struct raw_accept raw_acceptance(struct raw *r)
{
	struct raw_accept a = { .magic = RAW_MAGIC, .version = RAW_VERSION };

	if (getrandom(r->nonces[1], 16, 0) != 16)
		abort();
	memcpy(a.nonce, r->nonces[1], sizeof(a.nonce));
	raw_proof(r, false, a.proof);
	return a;
}

/* ---- what is said and written ---- */

static inline struct raw_message raw_message(__u8 type)
{
	return (struct raw_message){ .magic = RAW_MAGIC, .type = type };
}

static inline struct raw_message raw_hello(const struct raw *r)
{
	struct raw_message m = raw_message(RAW_HELLO);

	raw_proof(r, true, m.proof);
	return m;
}

static inline struct raw_message raw_about_ring(__u8 type, __u8 stream, __u8 class,
						__u16 depth)
{
	struct raw_message m = raw_message(type);

	m.ring = (struct raw_ring){ .stream = stream, .class = class, .depth = depth };
	return m;
}

static inline __u32 raw_imm(__u32 stream, __u32 class)
{
	return stream | class << 2;
}

/* What rings comes with what it rings for; @by_source: for slots, else for a counter. */
static inline __u32 raw_rung(__u32 window, bool by_source)
{
	return raw_imm(RAW_NO_FRAME, RAW_RUNG) | by_source << 6 | window << 8;
}

/* Take what has completed. */
static inline void raw_poll(struct raw *r)
{
	const struct raw_message *m;
	struct ibv_wc wc;

	while (ibv_poll_cq(r->cq, 1, &wc) == 1) {
		if (wc.wr_id >= RAW_RECEIVES) {
			r->sending--;
			if (wc.status != IBV_WC_SUCCESS && r->sent == IBV_WC_SUCCESS)
				r->sent = wc.status;
			continue;
		}
		if (wc.status != IBV_WC_SUCCESS)
			continue;
		m = (void *)(r->memory + wc.wr_id * sizeof(*m));
		if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
		    (ntohl(wc.imm_data) & 31) == raw_imm(RAW_NO_FRAME, RAW_RUNG)) {
			r->rung++;
			r->owed++;
			r->last_rung = ntohl(wc.imm_data);
		} else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
			r->imms++;
		} else if (wc.byte_len == sizeof(*m) && m->type < RAW_TYPES) {
			r->last[m->type] = *m;
			r->heard[m->type]++;
			r->credits += m->credits;
			r->owed += m->type >= RAW_LANE && m->type <= RAW_RING;
		}
		if (!r->is_deaf)
			raw_receive(r, wc.wr_id);
	}
}

/* Has a message of this type come? The last of them is in r->last. */
static inline bool raw_hears(struct raw *r, int type, double seconds)
{
	return DEV_SOON(seconds, ({ raw_poll(r); r->heard[type]; }));
}

/* All that was posted has completed: the first status that was no success. */
static inline int raw_sent(struct raw *r)
{
	if (!DEV_SOON(20, ({ raw_poll(r); !r->sending; })))
		return -ETIME;
	return r->sent;
}

static inline int raw_post(struct raw *r, enum ibv_wr_opcode opcode, const void *data,
			   size_t bytes, __u32 rkey, __u64 address, __u32 imm)
{
	size_t at = RAW_SEND_AT + (data && bytes <= 64 ? r->posted++ % RAW_SENDS * 64 : 0);
	struct ibv_sge sge = {
		.addr = (unsigned long)r->memory + at,
		.length = bytes,
		.lkey = r->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = RAW_RECEIVES,
		.sg_list = &sge,
		.num_sge = !!bytes,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(imm),
		.wr.rdma = { .remote_addr = address, .rkey = rkey },
	}, *bad;
	int err;

	if (data)
		memcpy(r->memory + at, data, bytes);
	err = -ibv_post_send(r->id->qp, &wr, &bad);
	if (!err)
		r->sending++;
	return err;
}

static inline int raw_send(struct raw *r, const void *data, size_t bytes)
{
	return raw_post(r, IBV_WR_SEND, data, bytes, 0, 0, 0);
}

static inline int raw_say(struct raw *r, const struct raw_message *m)
{
	return raw_send(r, m, sizeof(*m));
}

static inline struct raw_message raw_about_end(__u8 type, __u8 window, __u16 source,
					       __u64 seen)
{
	struct raw_message m = raw_message(type);

	m.end = (struct raw_end){ .window = window, .source = source, .seen = seen };
	return m;
}

/* A lane of this peer and the other one's. */
static inline struct raw_message raw_about_lane(__u8 window, __u16 source, __u16 destination,
						__u32 depth, __u32 capacity)
{
	struct raw_message m = raw_message(RAW_LANE);

	m.lane = (struct raw_lane){
		.window = window, .source = source, .destination = destination,
		.depth = depth, .capacity = capacity,
	};
	return m;
}

static inline __u32 raw_credit(__u32 stream, __u32 class, __u32 released)
{
	return 1u << 5 | stream << 6 | class << 8 | released << 11;
}

/* A write with an immediate, of whatever lies in the memory. */
static inline int raw_write(struct raw *r, const struct raw_ring *ring, size_t offset,
			    size_t bytes, __u32 imm)
{
	return raw_post(r, IBV_WR_RDMA_WRITE_WITH_IMM, NULL, bytes, ring ? ring->rkey : 0,
			ring ? ring->address + offset : 0, imm);
}

/*
 * Read what was opened for writing, or change it by an atomic, by a greedy one: how that
 * ended. A compare-and-swap does so if @value is there.
 */
static inline int raw_take(struct raw *r, enum ibv_wr_opcode opcode, __u32 rkey, __u64 address,
			   __u64 value)
{
	struct ibv_sge sge = {
		.addr = (unsigned long)r->memory + RAW_SEND_AT,
		.length = sizeof(value),
		.lkey = r->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = RAW_RECEIVES,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	int err;

	if (opcode == IBV_WR_RDMA_READ) {
		wr.wr.rdma.remote_addr = address;
		wr.wr.rdma.rkey = rkey;
	} else {
		wr.wr.atomic.remote_addr = address;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = value;
		wr.wr.atomic.swap = ~value;
	}
	memset(r->memory + RAW_SEND_AT, 0xee, sizeof(value));
	err = -ibv_post_send(r->id->qp, &wr, &bad);
	if (err)
		return err;
	r->sending++;
	return raw_sent(r);
}

/* ... and whether anything of it came here. */
static inline bool raw_has_taken(const struct raw *r)
{
	__u64 value;

	memcpy(&value, r->memory + RAW_SEND_AT, sizeof(value));
	return value != 0xeeeeeeeeeeeeeeeeULL;
}

/*
 * Both sides as they should be, up to the end. Who waits may still be busy with
 * the end of the one before: then it says so, and is asked again.
 */
static inline int raw_come_up(struct raw *r)
{
	double until = dev_now() + 10 * pace();
	struct raw_request q;
	struct raw_message m;
	__u8 proof[32];
	int kind;

	for (;;) {
		q = raw_request(r);
		kind = raw_connect(r, &q, sizeof(q));
		if (kind != RDMA_CM_EVENT_REJECTED ||
		    r->reject.reason != KCR_REASON_DUPLICATE || dev_now() > until)
			break;
		raw_close(r);
		dev_sleep(0.01);
	}
	if (kind != RDMA_CM_EVENT_ESTABLISHED)
		return kind < 0 ? kind : -ECONNREFUSED;
	raw_proof(r, false, proof);
	if (memcmp(proof, r->accept.proof, sizeof(proof)))
		return -EKEYREJECTED;
	m = raw_hello(r);
	if (raw_say(r, &m))
		return -EIO;
	return raw_hears(r, RAW_WELCOME, 10) ? 0 : -ETIME;
}

static inline int raw_let_up(struct raw *r)
{
	struct raw_message m = raw_message(RAW_WELCOME);
	struct raw_accept a;
	__u8 proof[32];
	int err = raw_requested(r);

	if (err)
		return err;
	a = raw_acceptance(r);
	err = raw_accept(r, &a, sizeof(a));
	if (err)
		return err;
	err = raw_event_is(r, RDMA_CM_EVENT_ESTABLISHED, 10);
	if (err)
		return err;
	if (!raw_hears(r, RAW_HELLO, 10))
		return -ETIME;
	raw_proof(r, true, proof);
	if (memcmp(proof, r->last[RAW_HELLO].proof, sizeof(proof)))
		return -EKEYREJECTED;
	return raw_say(r, &m);
}

#endif /* KCR_TEST_RAWPEER_H */
