/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Links: what an algorithm sees of its peers.
 *
 * An algorithm moves frames. It begins a frame towards one peer (a lane) or
 * towards all (the board), fills it in place and posts it; it peeks at the
 * next frame of a peer, reads it in place and releases it. Frames of a
 * channel arrive in order. Whatever carries the memory, the module or the
 * library's own mapping, is behind struct carrier.
 */
#ifndef KCR_LINK_H
#define KCR_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/kcollring.h>
#include "kcr.h"

struct carrier;

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

/* The operation in progress; owned by the call. */
struct op {
	struct kcr_world *world;
	struct link *link;
	struct frame_header header;
	size_t element;			/* bytes */
};

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
 * @readers: the ranks that read it, a bit each
 * @acked: every reader has taken all up to this sequence
 * @ack: the readers' acknowledgements, by rank
 */
struct tx {
	struct slots slots;
	uint64_t readers;
	uint64_t acked;
	const struct kcr_ack *ack[KCR_RANKS_MAX];
};

/**
 * struct rx - the reading end of a channel
 * @slots: read here
 * @peer: who writes them
 * @ack: acknowledged here
 */
struct rx {
	struct slots slots;
	int peer;
	struct kcr_ack *ack;
};

/*
 * The library's layout of a board. The kernel knows of the claim only.
 *
 *	0	struct kcr_claim
 *	64	__u32 sleeping: 1 while the rank is parked or about to park
 *	72	__u64 beat: when a rank that waits has looked last, 0 if it does not wait
 *	128	the rank's identity, 16 bytes, checked by those who map it
 *	4096	acknowledgements of the other boards, a cache line each
 *	8192	slots
 */
#define BOARD_SLEEPING		64
#define BOARD_BEAT		72
#define BOARD_IDENTITY		128
#define BOARD_ACKS		4096
#define BOARD_SLOTS		8192

_Static_assert(BOARD_ACKS + KCR_RANKS_MAX * KCR_CACHE_LINE <= BOARD_SLOTS,
	       "acknowledgements run into the slots");

/**
 * struct link - a rank's way to all its peers on the node
 * @world: the world it belongs to
 * @carrier: what carries the memory
 * @status: the mapped status page; in shared memory peers write it too
 * @board: this rank's board
 * @boards: every rank's board, by rank
 * @tx_board: towards all peers
 * @rx_board: from each peer's board, by rank
 * @tx_lane: towards each peer, by rank
 * @rx_lane: from each peer, by rank
 * @touched: ranks that may have to be woken: something was written for them
 *	since the last flush
 * @others: every rank but this one
 * @spin: rounds, see struct kcr_config
 * @yield: rounds, see struct kcr_config
 */
struct link {
	struct kcr_world *world;
	struct carrier *carrier;
	struct kcr_status *status;
	unsigned char *board;
	const unsigned char *boards[KCR_RANKS_MAX];
	struct tx tx_board;
	struct rx rx_board[KCR_RANKS_MAX];
	struct tx tx_lane[KCR_RANKS_MAX];
	struct rx rx_lane[KCR_RANKS_MAX];
	uint64_t touched;
	uint64_t others;
	uint64_t spin;
	uint64_t yield;
};

/**
 * struct carrier_ops - what differs between the module and shared memory
 * @name: for kcr_link_name()
 * @attach: join and make this rank's memory, before the peers have; may write
 *	a note of NOTE_BYTES that the peers read in @map
 * @map: map the peers' memory; all ranks have attached
 * @park: sleep until the event counter differs from @seen, @timeout_ns passes or
 *	something else happens: returns 0 in any case but a broken carrier
 * @kick: move the event counters of a set of ranks and wake them
 * @fail: fail the world for all, with this rank and a positive errno as the cause
 * @leave: say that this rank leaves in peace
 * @close: unmap and free everything; works after any failure
 */
struct carrier_ops {
	const char *name;
	int (*attach)(struct link *link, struct rendezvous *rv, char *note);
	int (*map)(struct link *link, struct rendezvous *rv);
	int (*park)(struct link *link, uint64_t seen, uint64_t timeout_ns);
	void (*kick)(struct link *link, uint64_t ranks);
	void (*fail)(struct link *link, int error);
	void (*leave)(struct link *link);
	void (*close)(struct link *link);
};

struct carrier {
	const struct carrier_ops *ops;
};

/* link_module.c and link_shm.c */
struct carrier *carrier_module(void);
struct carrier *carrier_shm(void);

/* link.c: making a link, and its geometry */
int link_create(struct kcr_world *w, struct rendezvous *rv);
void link_destroy(struct link *link);
size_t link_board_bytes(const struct kcr_config *config);
size_t link_lane_bytes(const struct kcr_config *config);
uint32_t link_lane_capacity(const struct kcr_config *config);
void link_place_board(struct link *link, int rank, const unsigned char *board);
void link_place_tx_lane(struct link *link, int peer, unsigned char *slots,
			const struct kcr_ack *ack);
void link_place_rx_lane(struct link *link, int peer, const unsigned char *slots,
			struct kcr_ack *ack);

/* link_slots.c: frames */
int link_begin(struct op *op, struct tx *tx, size_t segment, void **payload);
void link_post(struct op *op, struct tx *tx, size_t bytes);
int link_peek(struct op *op, struct rx *rx, size_t segment, size_t bytes,
	      const void **payload);
void link_release(struct op *op, struct rx *rx);
size_t link_room(const struct tx *tx);
bool link_has_frame(const struct rx *rx);
bool link_has_room(struct tx *tx);
const struct frame_header *link_header(const struct rx *rx);

/* link_wait.c: waiting, waking, and what ends a wait */
int link_wait_frame(struct op *op, struct rx *rx);
int link_wait_room(struct op *op, struct tx *tx);
void link_flush(struct link *link);
int link_check(struct op *op);
int link_mismatch(struct op *op, int peer, const struct frame_header *theirs);

static inline uint64_t rank_bit(int rank)
{
	return 1ull << rank;
}

#endif /* KCR_LINK_H */
