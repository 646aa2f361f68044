/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Links: what an algorithm sees of its peers.
 *
 * An algorithm moves frames. It begins a frame towards one peer (a lane) or
 * towards all (the board), fills it in place and posts it; it peeks at the
 * next frame of a peer, reads it in place and releases it. Frames of a
 * channel arrive in order. Nothing here waits: what cannot be done yet is
 * -EAGAIN, and the request remembers for whom. Whatever carries the memory, the
 * module, the library's own mapping or the emulator, is behind struct
 * carrier.
 */
#ifndef KCR_LINK_H
#define KCR_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/kcollring.h>
#include "kcr.h"
#include "rankset.h"

struct carrier;
struct mesh;
struct mesh_peer;
struct mesh_ring;
struct mesh_tx;

/**
 * struct frame_header - every frame begins with it
 *
 * Two ranks that call different operations find out from it. 32 bytes, so
 * that a frame of one 8-byte element fills exactly a cache line with its
 * slot's header and guard.
 */
struct frame_header {
	uint64_t number;
	uint64_t count;
	uint64_t segment;
	uint8_t kind;
	uint8_t dtype;
	uint8_t op;
	uint8_t algo;
	uint32_t root;
};

_Static_assert(sizeof(struct frame_header) == 32, "part of the wire");

/**
 * struct slots - one end of a ring of slots in mapped memory
 * @base: the first slot
 * @stride: bytes from slot to slot
 * @depth: how many
 * @capacity: payload bytes of each
 * @next: the sequence that is written or read next, from 1
 */
struct slots {
	unsigned char *base;
	uint64_t stride;
	uint32_t depth;
	uint32_t capacity;
	uint64_t next;
};

/**
 * struct tx - the writing end of a channel
 * @slots: written here
 * @acked: every reader has taken all up to this sequence
 * @peer: the reader of a lane; -1 for the board, which all others read
 * @acks: the readers' acknowledgements: a lane's one, a board's by rank
 * @segment: of the frame that was begun
 * @bytes: of its payload, behind the header
 * @mesh: NULL, or what is known of the readers that are reached by the mesh
 */
struct tx {
	struct slots slots;
	uint64_t acked;
	int peer;
	const struct kcr_ack **acks;
	const struct kcr_ack *ack;
	size_t segment;
	size_t bytes;
	struct mesh_tx *mesh;
};

/**
 * struct rx - the reading end of a channel
 * @slots: read here
 * @peer: who writes them
 * @ack: acknowledged here
 * @gate: NULL, or the last sequence that the emulator has delivered
 * @mesh: NULL, or the peer from whose rings of frames this reads instead
 * @ring: the ring of the frame that was peeked at
 * @stream: which of the rings are this channel's
 */
struct rx {
	struct slots slots;
	int peer;
	struct kcr_ack *ack;
	const uint64_t *gate;
	struct mesh_peer *mesh;
	struct mesh_ring *ring;
	int stream;
};

/*
 * The library's layout of a board. The kernel knows of the claim only.
 *
 *	0	struct kcr_claim
 *	64	__u32 sleeping: how many threads of the rank are parked or about to park
 *	72	__u64 beat: when a rank that waits has looked last, 0 if it does not wait
 *	128	the rank's identity, 16 bytes, checked by those who map it
 *	4096	acknowledgements of the other boards, a cache line each
 *	then	slots, from the next page on
 */
#define BOARD_SLEEPING		64
#define BOARD_BEAT		72
#define BOARD_IDENTITY		128
#define BOARD_ACKS		4096

/* Lanes come in two sets, so that no message waits behind a collective's. */
enum lane_set {
	LANES_COLLECTIVE,
	LANES_POINT,
	LANE_SETS
};

/**
 * struct peer - all channels between this rank and another
 * @board: its board
 * @rx_board: from its board
 * @tx: lanes towards it
 * @rx: lanes from it
 * @sent: messages to it, numbered
 * @received: messages from it
 */
struct peer {
	const unsigned char *board;
	struct rx rx_board;
	struct tx tx[LANE_SETS];
	struct rx rx[LANE_SETS];
	uint64_t sent;
	uint64_t received;
};

/**
 * struct link - a rank's way to all its peers
 * @world: the world it belongs to
 * @carrier: what carries the memory
 * @status: the mapped status page; in shared memory peers write it too
 * @board: this rank's board
 * @tx_board: towards all peers
 * @board_acks: for @tx_board, by rank
 * @touched: ranks that may have to be woken: something was written for them
 *	since the last flush
 * @others: every rank but this one
 * @local: those of them that are reached by lanes and boards
 * @mesh: the way to the rest of them, or NULL if there are none
 * @board_slots: in a board
 * @spin: rounds, see struct kcr_config
 * @yield: rounds, see struct kcr_config
 * @looked_ns: when the carrier last looked who has died; atomic
 * @peers: by rank
 */
struct link {
	struct kcr_world *world;
	struct carrier *carrier;
	struct kcr_status *status;
	unsigned char *board;
	struct tx tx_board;
	const struct kcr_ack *board_acks[KCR_RANKS_MAX];
	struct rankset touched;
	struct rankset others;
	struct rankset local;
	struct mesh *mesh;
	uint32_t board_slots;
	uint64_t spin;
	uint64_t yield;
	uint64_t looked_ns;
	struct peer peers[];
};

/**
 * struct ring_carrier_ops - the memory of message rings, and sleeping without the
 *	world's lock
 * @attach: make this rank's memory of a ring; may write a note of NOTE_BYTES, which the
 *	peers find by ring_note() in @map
 * @map: map the lanes from and to this rank; all ranks have attached
 * @detach: unmap and free everything; works after any failure
 * @park: as carrier_ops.park, by any number of threads at once; the sentence of an error
 *	goes to kcr_error(NULL)
 * @kick: move the event counter of one rank, which may be this one, and wake it; likewise
 *	by any thread
 *
 * @attach, @map and @detach are called in the order in which rings are made and go, the same
 * on every rank.
 */
struct ring_carrier_ops {
	int (*attach)(struct kcr_ring *ring, char *note);
	int (*map)(struct kcr_ring *ring);
	void (*detach)(struct kcr_ring *ring);
	int (*park)(struct link *link, uint64_t seen, uint64_t timeout_ns);
	void (*kick)(struct link *link, int rank);
};

/**
 * struct carrier_ops - what differs between the carriers
 * @name: for kcr_link_name()
 * @attach: join and make this rank's memory, before the peers have; may write
 *	a note of NOTE_BYTES that the peers read in @map
 * @map: map the peers' memory; all ranks have attached
 * @park: sleep until the event counter differs from @seen, @timeout_ns passes or
 *	something else happens: returns 0 in any case but a broken carrier
 * @look: NULL, or see who has died, without waiting
 * @kick: move the event counters of a set of ranks and wake them
 * @fail: fail the world for all, with this rank and a positive errno as the cause
 * @leave: say that this rank leaves in peace
 * @close: unmap and free everything; works after any failure
 * @posted: NULL, or told of each frame that was posted
 * @rings: NULL if it has no message rings
 */
struct carrier_ops {
	const char *name;
	int (*attach)(struct link *link, struct rendezvous *rv, char *note);
	int (*map)(struct link *link, struct rendezvous *rv);
	int (*park)(struct link *link, uint64_t seen, uint64_t timeout_ns);
	void (*look)(struct link *link);
	void (*kick)(struct link *link, const struct rankset *ranks);
	void (*fail)(struct link *link, int error);
	void (*leave)(struct link *link);
	void (*close)(struct link *link);
	void (*posted)(struct link *link, struct tx *tx);
	const struct ring_carrier_ops *rings;
};

struct carrier {
	const struct carrier_ops *ops;
};

/* link_module.c and link_shm.c */
struct carrier *carrier_module(int size);
bool carrier_module_takes(int size);
struct carrier *carrier_shm(int size);

/* link.c: making a link, and its geometry */
struct link *link_alloc(struct kcr_world *w);
int link_create(struct kcr_world *w, struct rendezvous *rv);
void link_destroy(struct link *link);
void link_leave(struct link *link);
unsigned int link_wires(const struct kcr_request *r);
int link_came_apart(struct rendezvous *rv, uint64_t cause);
bool link_is_lazy(const struct link *link);
bool link_shares_node(const struct link *link, int a, int b);
const char *link_name(const struct link *link);
unsigned int link_member(const struct link *link, int rank);
size_t link_board_bytes(const struct link *link);
size_t link_lane_bytes(const struct kcr_config *config);
uint32_t link_lane_capacity(const struct kcr_config *config);
void link_place_board(struct link *link, int rank, const unsigned char *board);
void link_place_tx_lane(struct link *link, int peer, enum lane_set set,
			unsigned char *slots, const struct kcr_ack *ack);
void link_place_rx_lane(struct link *link, int peer, enum lane_set set,
			const unsigned char *slots, struct kcr_ack *ack);

/* link_slots.c: frames */
int link_begin(struct kcr_request *r, struct tx *tx, size_t segment,
	       size_t bytes, void **payload);
void link_post(struct kcr_request *r, struct tx *tx);
const void *link_posted(const struct tx *tx, uint64_t back);
int link_peek(struct kcr_request *r, struct rx *rx, size_t segment,
	      size_t bytes, const void **payload);
void link_release(struct kcr_request *r, struct rx *rx);
size_t link_room(const struct tx *tx);
bool link_has_frame(const struct rx *rx);
bool link_has_room(struct link *link, struct tx *tx);
void link_behind(const struct link *link, const struct tx *tx,
		 struct rankset *ranks);
const struct frame_header *link_header(const struct rx *rx);
bool link_push(struct link *link);
int link_drain(struct kcr_request *r);

/* link_sleep.c: sleeping and waking */
void link_relax(void);
uint64_t link_lie_down(struct link *link);
void link_get_up(struct link *link);
void link_wake(struct link *link, int rank);
void link_flush(struct link *link);

/* link_end.c: what ends an operation that cannot go on */
void link_look(struct link *link);
int link_check(struct kcr_request *r);
int link_check_left(struct kcr_request *r);
const char *link_failure_text(const struct link *link, int error);
int link_find_mismatch(struct kcr_request *r);
int link_mismatch(struct kcr_request *r, int peer,
		  const struct frame_header *theirs);

#endif /* KCR_LINK_H */
