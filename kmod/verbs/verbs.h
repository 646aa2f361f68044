/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kcollring_verbs: the objects of the module and how they are locked
 *
 * mesh		a member's connections. Made with its first CONNECT, gone with
 *		its file
 * conn		a connection to one peer over one wire: an rdma_cm id, a
 *		protection domain of its own, a QP, the rings of frames, and the
 *		ends of lanes
 * grant	bytes that a conn's peer may write
 * lane		this node's end of a lane of a remote window
 * port		one RDMA device, counting who uses it
 * listener	one network namespace's ear; counted by the meshes in it
 *
 * A conn is in its mesh from CONNECT until the mesh is destroyed, so that whoever
 * holds the member's file, or has found the mesh on the list under meshes_lock,
 * needs no reference. What it owns of the device is made in the handler of
 * its id and undone in conn->close_work, after the id is gone and no
 * completion can come any more.
 *
 * Locks, outermost first:
 *
 *	kcr_member.mesh_lock	(kcollring.ko)
 *	listeners_lock		mutex, the listeners
 *	port->goodbyes		mutex, ids that are disconnected and destroyed
 *	an id's handler mutex	(rdma_cm) held in our handlers; rdma_destroy_id()
 *				takes it, so that is never called under a lock that
 *				they take
 *	mesh->lock		mutex, new conns
 *	meshes_lock		mutex, the list of meshes that have not ended
 *	conn->open_lock		mutex, opening rings
 *	conn->lock		spinlock, with _bh: state, queue, rings. Nobody
 *				posts without it, and nobody posts when the
 *				state is past CONN_LEAVING
 *
 * The locks of kcollring.ko other than mesh_lock are taken under none of these but
 * the mutexes; events and failures are told after conn->lock is dropped.
 */
#ifndef _KCR_VERBS_H
#define _KCR_VERBS_H

#include <linux/completion.h>
#include <linux/kcov.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/scatterlist.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

#include "../kcollring.h"
#include "wire.h"

/* How often the modules tell each other that they, and their ranks, are there. */
#define BEAT_MS			250
/* A peer that connects has so long to prove itself, lost packets included. */
#define PROVING_MS		10000
/* A rank that leaves or dies has so long to tell its peers. */
#define LEAVING_MS		3000

/* Scatter entries of a frame: memory in chunks of 2 MiB needs one or two. */
#define FRAME_SGES		16
/* Work requests on their way; some are kept for messages. */
#define SEND_QUEUE		256
#define SEND_QUEUE_RESERVE	64
/* Messages on their way. */
#define MESSAGES		16
/*
 * Receives that are kept for messages, on top of those for frames and credits: for
 * those about lanes as many as there are credits, and a few that give credits back.
 */
#define RECEIVE_RESERVE		(64 + WIRE_CREDITS + 4)

struct conn;
struct listener;
struct port;

/* Everything alive, shown in debugfs. */
struct verbs_counts {
	atomic_t conns;
	atomic_t ids;
	atomic_t pds;
	atomic_t qps;
	atomic_t cqs;
	atomic_t mrs;
	atomic_t rings;
	atomic_t sources;
	atomic_t lanes;
	atomic_t listeners;
	atomic_t violations;
};

struct mesh {
	struct kcr_mesh base;
	struct list_head node;		/* meshes, under meshes_lock */
	struct net *net;
	struct listener *listener;

	struct mutex lock;		/* protects adding to conns */
	struct xarray conns;		/* by mesh_key() */
	bool has_ended;			/* under lock, and meshes_lock */

	struct delayed_work beat;
	u64 beat_ns;			/* of the last; the beat's alone */
	atomic_t open_conns;		/* not CONN_CLOSED */
	wait_queue_head_t closed;
};

enum conn_state {
	CONN_NEW,
	CONN_EXPECTED,		/* the peer, whose rank is lower, connects */
	CONN_RESOLVING,
	CONN_ROUTING,
	CONN_REQUESTED,		/* REQ sent */
	CONN_ACCEPTED,		/* REP sent */
	CONN_PROVING,		/* waits for the peer's HELLO or WELCOME */
	CONN_UP,
	CONN_LEAVING,		/* says its last */
	CONN_CLOSING,
	CONN_CLOSED,
};

/* Bytes that the peer may write. */
struct grant {
	struct ib_mr *mr;	/* NULL if there are none */
	struct sg_table sgt;
	u32 nr;			/* pages */
	int nr_dma;
};

/* Frames towards the peer. */
struct tx_ring {
	bool is_wanted;		/* WANT is to be sent */
	bool was_wanted;
	u32 depth;		/* 0 until the peer has opened it */
	u32 rkey;
	u64 address;
	u64 next;		/* sequence, from 1 */
	u64 acked;
};

/* Frames from the peer. */
struct rx_ring {
	bool is_registered;
	bool is_told;		/* OPENED was sent */
	u32 depth;		/* 0 until this side has opened it */
	u64 arrived;
	u64 released;
	u64 returned;		/* as the peer knows it */
	struct kcr_region *region;
	struct grant grant;
};

/* A board that frames are sent from. */
struct source {
	struct source *next;		/* of those that were forgotten */
	struct kcr_region *region;
	dma_addr_t dma[];	/* of each page */
};

/* What of a lane has still to be said or done; see lane_say(). */
#define LANE_TELL	BIT(0)
#define LANE_END	BIT(1)		/* UNLANE */
#define LANE_ENDED	BIT(2)		/* UNLANED */
#define LANE_ARM	BIT(3)
#define LANE_RING	BIT(4)
#define LANE_ACK	BIT(5)

/*
 * This node's end of a lane to or from the peer; found by its direction and window.
 * Under conn->lock, but for what is fixed.
 */
struct lane {
	/* Fixed. */
	struct conn *conn;
	u32 window;
	bool is_source;
	u32 depth;
	u32 capacity;
	u32 stride;
	struct kcr_region *slots;	/* of the source: the image */
	struct kcr_region *ack;		/* of the destination: its own page */
	struct kcr_region *status;
	struct kcr_lane_status *shown;
	struct source *image;		/* the source's */
	u64 counter_dma;		/* the destination's */
	u32 nr_grants;
	struct grant grants[KCR_REMOTE_PARTS];

	struct lane *next;		/* of those that have ended */
	struct ib_cqe cqe;
	struct ib_cqe reg_cqe;
	u32 state;			/* KCR_LANE_* */
	u32 say;			/* LANE_* */
	u32 nr_registered;		/* of grants */
	u32 registering;		/* of those: not done yet */
	u32 outstanding;		/* writes on their way */
	bool is_heard;			/* the peer's LANE came */
	bool ends;			/* it was forgotten */
	bool has_ended;			/* the peer has agreed to that */
	bool peer_ends;			/* and wants to know when we do */
	u32 rkeys[KCR_REMOTE_PARTS];	/* the peer's */
	/* The source's. */
	u64 put;
	u64 done;
	bool is_watched;		/* an event when done moves */
	/* The destination's. */
	struct kcr_ack counter;		/* as it is sent; counter_dma */
	struct kcr_ack next_ack;
	/* Who waits: this end, by its ARM; the peer, by its. */
	u64 seen;
	u32 awaited;			/* RINGs that ARM has asked for */
	u32 asked;			/* how many that were */
	u32 slept;			/* how often this end wanted one since */
	u64 peer_seen;
	u32 rings;			/* that the peer has asked for */
};

/* A message on its way out, or a receive. */
struct buffer {
	struct ib_cqe cqe;
	struct conn *conn;
	u64 dma;
	struct wire_message *message;
};

/* What a conn has still to say; see conn_push(). */
#define SAY_HELLO	BIT(0)
#define SAY_WELCOME	BIT(1)
#define SAY_PING	BIT(2)
#define SAY_FAIL	BIT(3)
#define SAY_BYE		BIT(4)
#define SAY_RINGS	BIT(5)
#define SAY_LANES	BIT(6)

struct conn {
	/* Fixed. */
	struct mesh *mesh;
	struct kcr_member *member;
	u32 peer;
	u32 wire;
	u32 depth;			/* of rings, the spare one included */
	bool is_active;			/* this side connects */
	bool is_charged;		/* to its user's quota */
	bool is_patient;		/* waits for the peer without end */
	bool is_misplaced;		/* its own address is none of ours */
	struct sockaddr_storage local;
	struct sockaddr_storage remote;
	struct kcr_region *region;	/* the status page */
	struct kcr_conn_status *status;

	struct work_struct close_work;
	struct work_struct event_work;	/* proofs and failures that came */
	struct work_struct lane_work;	/* frees lanes that have ended */
	struct delayed_work deadline;
	struct delayed_work again;	/* of one that connects: the peer was busy */
	unsigned long connect_by;	/* jiffies */

	/* Made in the id's handler, undone in close_work. */
	struct rdma_cm_id *id;
	struct port *port;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	u32 nr_cqe;
	u32 nr_sge;
	struct buffer *receives;
	u32 nr_receives;
	struct buffer *messages;
	struct wire_message *memory;	/* of both, mapped as one */
	u64 memory_dma;
	size_t memory_bytes;
	u8 nonces[2][WIRE_NONCE_BYTES];	/* the lower rank's, the higher's */

	bool is_accepted;		/* by the peer; in the handlers of the id */
	bool is_early;			/* data came before RTU */
	struct mutex open_lock;		/* protects opening, and sources */

	spinlock_t lock;		/* protects what follows */
	enum conn_state state;
	bool was_up;
	bool is_gone;			/* the peer disconnected */
	bool peer_has_left;
	bool ends;			/* the membership ends: no other try */
	u32 reason;			/* of the failure that is being told */
	u32 detail;
	u32 error;
	int again_ms;			/* until the next try */
	u32 say;			/* SAY_* */
	bool ping_is_out;
	u32 beats_waited;		/* for it */
	struct kcr_board head;		/* for PING */
	u64 silent_ns;			/* of own beats, since the peer was heard */
	u64 peer_cause;			/* by FAIL; 0 for none */
	bool has_proof;			/* HELLO came */
	u8 proof[WIRE_PROOF_BYTES];
	u8 own_proof[WIRE_PROOF_BYTES];
	u32 sending;			/* work requests on their way */
	u32 registering;		/* of those, registrations */
	bool is_starved;		/* a SEND found no room */
	bool wants_idle;		/* a registration waits for that */
	u32 beats_wanted;		/* for how long */
	bool is_holding;		/* credits wait for a frame: KCR_RELEASE_MORE */
	unsigned long free_messages;	/* bitmap */
	struct ib_cqe frame_cqe;
	struct ib_cqe reg_cqe;
	struct tx_ring tx[KCR_STREAMS][KCR_CLASSES];
	struct rx_ring rx[KCR_STREAMS][KCR_CLASSES];
	struct source *sources[KCR_MAX_WINDOWS];	/* also under open_lock */
	struct source *forgotten;	/* open_lock */
	struct lane *lanes[2][KCR_MAX_WINDOWS];	/* in, out; added under open_lock */
	struct lane *ended_lanes;	/* for lane_work */
	u32 unlaned[2];			/* UNLANED is owed: bits of windows */
	u32 credits;			/* messages about lanes that may be said */
	u32 owed;			/* ... that were heard */
};

/* main.c */
extern struct verbs_counts verbs_counts;
extern struct workqueue_struct *verbs_wq;
extern unsigned int verbs_port;
extern unsigned int verbs_silent_ms;
extern unsigned int verbs_ack_timeout;
extern u64 verbs_tracer;
bool verbs_inject_failure(void);
int verbs_may_fail(void);

/*
 * What peers have this module do, in workers, handlers and completions, lies between these
 * two: on a kernel with KCOV, the task that made the last mesh is told which lines that
 * were, if it wants to know. Not nested, and not in a process, which may be traced
 * itself: one that unregisters a device comes through our handlers.
 */
static inline bool verbs_may_trace(void)
{
	return IS_ENABLED(CONFIG_KCOV) &&
	       (!in_task() || current->flags & PF_KTHREAD);
}

static inline void verbs_trace_begin(void)
{
	if (verbs_may_trace())
		kcov_remote_start_common(READ_ONCE(verbs_tracer));
}

static inline void verbs_trace_end(void)
{
	if (verbs_may_trace())
		kcov_remote_stop();
}

/* port.c */
int port_init(void);
void port_exit(void);
int port_get(struct ib_device *device, struct port **at);
void port_put(struct port *port);
void port_part(struct port *port, struct rdma_cm_id *id);

/* mesh.c */
extern struct mutex meshes_lock;
extern struct list_head meshes;
extern const struct kcr_mesh_ops mesh_ops;
struct conn *mesh_conn(struct mesh *mesh, u32 peer, u32 wire);
struct mesh *mesh_find(struct net *net, const u8 *world, u32 rank);

/* listen.c */
struct listener *listener_get(struct net *net);
void listener_put(struct listener *listener);
int listen_incoming(struct rdma_cm_id *id, struct rdma_cm_event *event);
void listen_refuse(struct rdma_cm_id *id, u32 reason, u32 detail);

/* conn.c */
struct conn *conn_new(struct mesh *mesh, const struct kcr_connect *args);
void conn_start(struct conn *c);
void conn_free(struct conn *c);
bool conn_set_state(struct conn *c, enum conn_state next);
bool conn_may_post(const struct conn *c);
bool conn_may_be_set_up(const struct rdma_conn_param *param);
void conn_fail(struct conn *c, u32 reason, u32 detail, int error);
bool conn_fail_locked(struct conn *c, u32 reason, u32 detail, int error);
void conn_end(struct conn *c, u32 state, const struct kcr_board *head);
u32 conn_incoming(struct conn *c, struct rdma_cm_id *id,
		  const struct wire_request *request, u32 *detail);
int conn_handler(struct rdma_cm_id *id, struct rdma_cm_event *event);
void conn_show_state(struct conn *c);
u64 conn_silence(struct conn *c, u64 since_ns);
int conn_mmap(struct conn *c, struct vm_area_struct *vma);

/* queue.c */
int queue_create(struct conn *c);
void queue_drain(struct conn *c);
void queue_destroy_qp(struct conn *c);
void queue_destroy(struct conn *c);
void queue_lane_done(struct ib_cq *cq, struct ib_wc *wc);
void queue_lane_registered(struct ib_cq *cq, struct ib_wc *wc);
bool queue_has_room(const struct conn *c, u32 nr);
bool queue_becomes_idle(struct conn *c);
int queue_post(struct conn *c, const struct ib_send_wr *wr);
int queue_probe(struct conn *c);
int queue_post_registration(struct conn *c, const struct ib_send_wr *wr);
int queue_post_message(struct conn *c, const struct wire_message *message);

/* say.c */
void conn_push(struct conn *c);
int conn_say(struct conn *c, struct wire_message *message, enum wire_type type);
bool conn_hear(struct conn *c, const struct wire_message *message, u32 bytes);

/* ring.c */
int ring_open(struct conn *c, u32 stream, u32 class);
void ring_close_all(struct conn *c);
void ring_free_all(struct conn *c);
int ring_mmap(struct conn *c, u32 stream, u32 class, struct vm_area_struct *vma);
bool ring_arrived(struct conn *c, u32 imm, u32 bytes);
bool ring_hear_want(struct conn *c, const struct wire_ring *ring);
bool ring_hear_opened(struct conn *c, const struct wire_ring *ring);
int ring_register(struct conn *c);
bool ring_say(struct conn *c);
bool ring_say_credits(struct conn *c);
void ring_stop_holding(struct conn *c);
int ring_check_send(struct conn *c, const struct kcr_send *args);
int ring_send(struct conn *c, const struct kcr_send *args);
int ring_release(struct conn *c, const struct kcr_release *args);

/* grant.c */
int grant_make(struct conn *c, struct grant *g, struct page **pages, u32 offset,
	       u32 bytes);
int grant_register(struct conn *c, struct grant *g, struct ib_cqe *cqe);
void grant_free(struct conn *c, struct grant *g);

/* source.c */
bool verbs_needs_sync(struct ib_device *device, dma_addr_t dma);
struct source *source_new(struct kcr_region *region, struct ib_device *device);
void source_free(struct source *s, struct ib_device *device);
int source_pieces(const struct conn *c, const struct source *s, u64 offset,
		  u32 bytes, struct ib_sge *sges);
int source_need(struct conn *c, u32 window);
int source_sges(struct conn *c, u32 window, u64 offset, u32 bytes,
		struct ib_sge *sges);
void source_forget(struct conn *c, u32 window);
void source_free_all(struct conn *c);

/* lane.c */
int lane_open(struct conn *c, const struct kcr_remote_lane *args);
bool lane_is_there(const struct conn *c, u32 window);
void lane_forget(struct conn *c, u32 window);
void lane_close_all(struct conn *c);
void lane_work(struct work_struct *work);
int lane_put(struct conn *c, const struct kcr_put *args);
int lane_ack(struct conn *c, const struct kcr_put_ack *args);
int lane_arm(struct conn *c, const struct kcr_arm *args);
bool lane_sent(struct lane *lane, bool is_done);
bool lane_registered(struct lane *lane, bool is_done);
int lane_register(struct conn *c);
bool lane_say(struct conn *c);
bool lane_rung(struct conn *c, u32 imm);
bool lane_hear(struct conn *c, const struct wire_message *message);

/* proof.c */
int proof_make(const struct conn *c, bool is_active, u8 *proof);
int proof_check(const struct conn *c, bool is_active, const u8 *proof);

#endif /* _KCR_VERBS_H */
