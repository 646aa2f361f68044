/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The mesh: links to peers of other nodes, over connections of the module.
 *
 * Used by the link layer and the module's carrier only.
 */
#ifndef KCR_LINK_MESH_H
#define KCR_LINK_MESH_H

#include "link.h"
#include "submit.h"
#include "wires.h"

/* Streams: what waits for something else must not hold it up. */
enum mesh_stream {
	STREAM_BOARD,
	STREAM_LANES,		/* and the lane sets from here on */
};

_Static_assert(STREAM_LANES + LANE_SETS == KCR_STREAMS, "a stream each");

/* The window whose board of this rank has the frames of its lanes to the mesh. */
#define ARENA_WINDOW	2
/* Message rings have the windows from here on. */
#define RING_WINDOW	3

/**
 * struct mesh_ring - the receiving end of a ring of frames
 * @status: of the ring, in the connection's page
 * @frames: mapped; NULL while the ring is closed
 * @bytes: of the mapping
 * @depth: frames in it
 * @next: the sequence that is read next, from 1
 * @released: given back to the module so far
 * @wire: of the connection
 * @stream: its stream
 * @class: its class
 */
struct mesh_ring {
	const struct kcr_ring_status *status;
	const unsigned char *frames;
	size_t bytes;
	uint32_t depth;
	uint64_t next;
	uint64_t released;
	uint8_t wire, stream, class;
};

/**
 * struct mesh_conn - a connection: one peer, one wire
 * @status: its page, or NULL before there is one
 * @local: this end's address, for the case that it never gets a page
 * @remote: the other end's
 * @is_started: the module was asked to connect, or to expect the peer
 * @rings: from the peer
 * @sent: the last sequence in each ring towards the peer
 */
struct mesh_conn {
	const struct kcr_conn_status *status;
	const struct wire_end *local, *remote;
	bool is_started;
	struct mesh_ring rings[KCR_STREAMS][KCR_CLASSES];
	uint64_t sent[KCR_STREAMS][KCR_CLASSES];
};

/**
 * struct mesh_peer - a rank that is reached by the mesh
 * @mesh: this rank's mesh
 * @rank: the peer
 * @unreleased: frames of each stream that the module does not know to be taken
 * @conns: by wire
 */
struct mesh_peer {
	struct mesh *mesh;
	int rank;
	unsigned int unreleased[KCR_STREAMS];
	struct mesh_conn conns[KCR_MAX_WIRES];
};

/* Which frame of which ring a slot had last. */
struct mesh_stamp {
	uint64_t sequence;
	uint8_t wire, class;
};

/**
 * struct mesh_tx - the mesh's part of a channel's writing end
 * @peers: the readers
 * @memory: where the window's board begins, in which the slots lie
 * @window: its number
 * @stream: of the rings towards the readers
 * @acked: all readers have taken all up to this sequence of the channel
 * @stamps: by slot
 */
struct mesh_tx {
	struct rankset peers;
	const unsigned char *memory;
	uint32_t window;
	int stream;
	uint64_t acked;
	struct mesh_stamp stamps[];
};

/**
 * struct mesh_send - a frame on its way to the module
 * @send: the command; its mask has those that have not got the frame yet
 * @class: of the frame
 * @asked: peers that were asked to open the ring
 * @ready: those to whom it is being sent
 */
struct mesh_send {
	struct kcr_send send;
	int class;
	uint64_t asked;
	uint64_t ready;
};

/**
 * struct mesh - all that a rank has of the mesh; under the world's lock
 * @link: its link
 * @device: the module's, the carrier's; -1 before it is open
 * @submit: likewise
 * @rv: how the ranks met, for the names of hosts
 * @is_lazy: connections are made on first use
 * @wires: connections to each peer
 * @peers: who is reached by the mesh
 * @unreleased: frames that were taken and that the module does not know to be taken
 * @due: channels of which more are unreleased than may stay so
 * @queue: frames for which there was no credit yet, in order
 * @queued: how many
 * @room: for how many
 * @arena: slots of the lanes, in this rank's board of ARENA_WINDOW
 * @arena_bytes: its size
 * @looked: the event counter at the last look for rings that peers want
 * @is_refused: the module could not take a frame for which there was credit
 * @error: what broke the mesh for this rank, or 0; the sentence is in @sentence
 * @sentence: see there
 * @batch: commands that go together
 * @by_rank: or NULL for ranks that are not in @peers
 */
struct mesh {
	struct link *link;
	int device;
	struct submit *submit;
	struct rendezvous *rv;
	bool is_lazy;
	int wires;
	struct rankset peers;
	unsigned int unreleased, due;
	struct mesh_send *queue;
	unsigned int queued, room;
	unsigned char *arena;
	size_t arena_bytes;
	uint64_t looked;
	bool is_refused;
	int error;
	char sentence[KCR_ERROR_BYTES];
	struct submit_batch batch;
	struct mesh_peer *by_rank[];
};

/* The class of a frame of so many bytes, header included: the smallest that holds it. */
static inline int mesh_class(size_t bytes)
{
	if (bytes <= KCR_CLASS_BYTES(0))
		return 0;
	return 64 - __builtin_clzll(bytes - 1) - 12;
}

/* link_mesh.c: frames */
void mesh_post(struct kcr_request *r, struct tx *tx, uint64_t sequence);
int mesh_peek(struct kcr_request *r, struct rx *rx, size_t segment,
	      size_t bytes, const void **payload);
void mesh_release(struct rx *rx);
uint64_t mesh_acked(const struct link *link, struct tx *tx);
void mesh_behind(const struct link *link, const struct tx *tx,
		 struct rankset *ranks);
bool mesh_push(struct mesh *mesh);
int mesh_drain(struct kcr_request *r);
void mesh_finish(struct mesh *mesh);
void mesh_open_small(struct mesh *mesh);
void mesh_look(struct mesh *mesh);
const struct frame_header *mesh_head(const struct mesh_ring *ring);

/* mesh_connect.c: making it, and what has become of it */
int mesh_create(struct link *link, struct rendezvous *rv, int wires);
size_t mesh_arena_bytes(const struct mesh *mesh);
int mesh_expect(struct mesh *mesh, struct rendezvous *rv);
int mesh_connect(struct mesh *mesh, struct rendezvous *rv);
void mesh_place(struct mesh *mesh);
void mesh_use(struct mesh *mesh, int rank, int wire);
void mesh_give_up(struct mesh *mesh, int err);
void mesh_look_for_failure(struct mesh *mesh);
unsigned int mesh_member(const struct mesh *mesh, int rank);
int mesh_check(struct kcr_request *r);
int mesh_broken(struct kcr_request *r, int error);
void mesh_destroy(struct mesh *mesh);

/* mesh_words.c */
void mesh_describe(const struct mesh_conn *c, char *text, size_t size);
const char *mesh_reason_text(unsigned int reason);
const char *mesh_completion_text(unsigned int status);

#endif /* KCR_LINK_MESH_H */
