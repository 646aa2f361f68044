// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Frames over the mesh: the protocol of channels whose other end is on
 * another node.
 *
 * A frame for the mesh lies in a slot of this rank's own memory like any other: of
 * its board, or, for a lane, of its arena. Posting queues a SEND for it, from
 * that very slot. What can go is given to the module in batches, one system call
 * each. A frame travels in the ring of its channel's stream, of its wire and of
 * its class; which these are follows from the operation, the segment and the
 * number of bytes, so the receiver knows where to look. A slot is used again when
 * the peers have released the frame that was in it.
 *
 * A SEND for which there is no credit stays in the queue, and an operation is not
 * over while a frame of its own is there: nobody might call again for long. A
 * ring that is closed gets one SEND that is refused, by which its receiver learns
 * that it is wanted; it opens those while it waits.
 *
 * The last frame that was taken from a channel may stay unreleased: the release goes
 * with the next frame that goes to the same peer, or with the release of the second.
 * So that this costs the sender nothing, a channel has one slot more than its
 * depth, and a ring one frame. It is the channel's last one, whatever its ring: slots
 * are used again in turn, so an older one would stop the sender for ever.
 *
 * All of it is under the world's lock.
 */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include "limits.h"
#include "link_mesh.h"
#include "request.h"

#define STREAM_POINT	(STREAM_LANES + LANES_POINT)

static uint64_t load_acquire(const __u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* Only messages worth it are split across the wires. */
static unsigned int wire_of(const struct kcr_request *r, size_t segment)
{
	return segment % r->wires;
}

static bool is_up(const struct mesh_conn *c)
{
	return c->status && __atomic_load_n(&c->status->state, __ATOMIC_ACQUIRE) ==
			    KCR_CONN_UP;
}

static void break_mesh(struct mesh *mesh, int err, const char *what, int rank)
{
	mesh_give_up(mesh, kcr_fail(NULL, err, "%s rank %d: %s", what, rank,
				    strerror(-err)));
}

/* ---- sending ---- */

static struct mesh_send *enqueue(struct mesh *mesh)
{
	struct mesh_send *q = &mesh->queue[mesh->queued++];

	memset(q, 0, sizeof(*q));
	return q;
}

/* The next sequence of the ring, the same for all readers of a channel. */
static uint64_t count_frame(struct mesh *mesh, const struct mesh_tx *t,
			    unsigned int wire, int class)
{
	uint64_t sequence = 0;

	rankset_for_each(rank, &t->peers)
		sequence = ++mesh->by_rank[rank]->conns[wire].sent[t->stream][class];
	return sequence;
}

/**
 * mesh_post() - send the frame that was begun to those readers that are not here
 * @r: the request
 * @tx: the channel, which has some
 * @sequence: of the frame in the channel
 */
void mesh_post(struct kcr_request *r, struct tx *tx, uint64_t sequence)
{
	struct mesh *mesh = r->link->mesh;
	struct mesh_tx *t = tx->mesh;
	size_t bytes = tx->bytes + sizeof(r->header);
	size_t slot = (sequence - 1) % tx->slots.depth;
	struct mesh_stamp *stamp = &t->stamps[slot];

	stamp->wire = wire_of(r, tx->segment);
	stamp->class = mesh_class(bytes);
	stamp->sequence = count_frame(mesh, t, stamp->wire, stamp->class);
	for (int i = 0; i < RANKSET_WORDS; i++) {
		struct mesh_send *q;

		if (!t->peers.word[i])
			continue;
		q = enqueue(mesh);
		q->class = stamp->class;
		q->send = (struct kcr_send){
			.size = sizeof(q->send),
			.window = t->window,
			.bytes = bytes,
			.offset = tx->slots.base + slot * tx->slots.stride +
				  KCR_SLOT_PAYLOAD - t->memory,
			.wire = stamp->wire,
			.stream = t->stream,
			.base = 64 * i,
			.mask = t->peers.word[i],
			.sequence = stamp->sequence,
		};
	}
	if (bytes >= MESH_PUSH_BYTES)
		mesh_push(mesh);
}

static bool is_acked(const struct mesh *mesh, const struct tx *tx,
		     uint64_t sequence, int rank)
{
	const struct mesh_tx *t = tx->mesh;
	const struct mesh_stamp *stamp =
		&t->stamps[(sequence - 1) % tx->slots.depth];
	const struct mesh_conn *c = &mesh->by_rank[rank]->conns[stamp->wire];

	return load_acquire(&c->status->rings[t->stream][stamp->class].acked) >=
	       stamp->sequence;
}

/* All readers of the mesh have taken all of the channel up to this sequence. */
uint64_t mesh_acked(const struct link *link, struct tx *tx)
{
	struct mesh_tx *t = tx->mesh;

	while (t->acked + 1 < tx->slots.next) {
		rankset_for_each(rank, &t->peers)
			if (!is_acked(link->mesh, tx, t->acked + 1, rank))
				return t->acked;
		t->acked++;
	}
	return t->acked;
}

/* Readers of the mesh that have not taken yet what is in the next slot. */
void mesh_behind(const struct link *link, const struct tx *tx,
		 struct rankset *ranks)
{
	if (tx->slots.next <= tx->slots.depth)
		return;
	rankset_for_each(rank, &tx->mesh->peers)
		if (!is_acked(link->mesh, tx, tx->slots.next - tx->slots.depth,
			      rank))
			rankset_add(ranks, rank);
}

static struct submit_entry *add(struct mesh *mesh, uint32_t command, int tag)
{
	struct submit_entry *e = &mesh->batch.entries[mesh->batch.count++];

	e->command = command;
	e->tag = tag;
	return e;
}

static bool has_space(const struct mesh *mesh, unsigned int entries)
{
	return mesh->batch.count + entries <= SUBMIT_BATCH;
}

/*
 * Who of a queued frame's readers can get it now: those with credit, and in
 * @ask those who have not been told yet that they must open the ring.
 */
static void find_ready(struct mesh *mesh, struct mesh_send *q, uint64_t *ask)
{
	q->ready = 0;
	*ask = 0;
	for (uint64_t left = q->send.mask; left; left &= left - 1) {
		uint64_t bit = left & -left;
		int rank = q->send.base + __builtin_ctzll(left);
		struct mesh_conn *c = &mesh->by_rank[rank]->conns[q->send.wire];
		uint64_t limit;

		mesh_use(mesh, rank, q->send.wire);
		if (!is_up(c))
			continue;
		limit = load_acquire(&c->status->rings[q->send.stream][q->class].limit);
		if (q->send.sequence <= limit)
			q->ready |= bit;
		else if (!limit && !(q->asked & bit))
			*ask |= bit;
	}
}

static void add_send(struct mesh *mesh, unsigned int index, uint64_t mask)
{
	struct submit_entry *e;

	if (!mask)
		return;
	e = add(mesh, KCR_CMD_SEND, index);
	e->payload.send = mesh->queue[index].send;
	e->payload.send.mask = mask;
}

/* Returns false if the batch is full. */
static bool add_sends(struct mesh *mesh)
{
	for (unsigned int i = 0; i < mesh->queued; i++) {
		struct mesh_send *q = &mesh->queue[i];
		uint64_t ask;

		if (!has_space(mesh, 2))
			return false;
		find_ready(mesh, q, &ask);
		add_send(mesh, i, q->ready);
		add_send(mesh, i, ask);
		q->asked |= ask;
	}
	return true;
}

static void add_release(struct mesh *mesh, int rank, struct mesh_ring *ring,
			bool more)
{
	struct submit_entry *e;

	if (!ring->frames || ring->released + 1 == ring->next)
		return;
	ring->released = ring->next - 1;
	e = add(mesh, KCR_CMD_RELEASE, rank);
	e->payload.release = (struct kcr_release){
		.size = sizeof(e->payload.release),
		.flags = more ? KCR_RELEASE_MORE : 0,
		.peer = rank,
		.wire = ring->wire,
		.stream = ring->stream,
		.size_class = ring->class,
		.sequence = ring->released,
	};
}

/* @sending: by wire, who gets a frame in this batch that may carry a credit. */
static void release_stream(struct mesh_peer *peer, int stream,
			   const struct rankset sending[])
{
	struct mesh *mesh = peer->mesh;

	if (peer->unreleased[stream] >= MESH_RELEASE_AT)
		mesh->due--;
	mesh->unreleased -= peer->unreleased[stream];
	peer->unreleased[stream] = 0;
	for (int wire = 0; wire < mesh->wires; wire++)
		for (int class = 0; class < KCR_CLASSES; class++)
			add_release(mesh, peer->rank,
				    &peer->conns[wire].rings[stream][class],
				    rankset_has(&sending[wire], peer->rank));
}

static bool gets_frame(const struct mesh *mesh, const struct rankset sending[],
		       int rank)
{
	for (int wire = 0; wire < mesh->wires; wire++)
		if (rankset_has(&sending[wire], rank))
			return true;
	return false;
}

/*
 * Releases of those who get a frame in this batch, and of channels of which too
 * many are owed; @all: of all. Returns false if the batch is full.
 */
static bool add_releases(struct mesh *mesh, const struct rankset sending[],
			 bool all)
{
	unsigned int rings = mesh->wires * KCR_CLASSES;

	rankset_for_each(rank, &mesh->peers) {
		struct mesh_peer *peer = mesh->by_rank[rank];
		bool goes = all || gets_frame(mesh, sending, rank);

		for (int s = 0; s < KCR_STREAMS; s++) {
			if (!peer->unreleased[s] ||
			    (!goes && peer->unreleased[s] < MESH_RELEASE_AT))
				continue;
			if (!has_space(mesh, rings))
				return false;
			release_stream(peer, s, sending);
		}
	}
	return true;
}

/* By wire, everyone who gets a frame now, as far as is known before any is sent. */
static void find_receivers(struct mesh *mesh, struct rankset receivers[])
{
	for (int wire = 0; wire < mesh->wires; wire++)
		rankset_clear(&receivers[wire]);
	for (unsigned int i = 0; i < mesh->queued; i++) {
		struct mesh_send *q = &mesh->queue[i];
		uint64_t ask;

		find_ready(mesh, q, &ask);
		receivers[q->send.wire].word[q->send.base / 64] |= q->ready;
	}
}

/* Returns whether the command has done what it should. */
static bool take_result(struct mesh *mesh, const struct submit_entry *e)
{
	struct mesh_send *q;

	if (e->command == KCR_CMD_RELEASE) {
		if (e->result)
			break_mesh(mesh, e->result, "cannot release a frame of",
				   e->tag);
		return !e->result;
	}
	q = &mesh->queue[e->tag];
	switch (e->result) {
	case 0:
	case -EALREADY:
		q->send.mask &= ~e->payload.send.mask;
		return true;
	case -ENOBUFS:
		/* Credit, but no room with the device: nobody tells when there is. */
		mesh->is_refused |= e->payload.send.mask == q->ready;
		return false;
	case -ENOTCONN:
		/* The world has failed, or the peer left: that is seen elsewhere. */
		return false;
	default:
		break_mesh(mesh, e->result, "cannot send a frame to",
			   q->send.base + __builtin_ctzll(e->payload.send.mask));
		return false;
	}
}

/* Those that are sent to all leave the queue; the others keep their order. */
static void shrink_queue(struct mesh *mesh)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < mesh->queued; i++)
		if (mesh->queue[i].send.mask)
			mesh->queue[kept++] = mesh->queue[i];
	mesh->queued = kept;
}

static bool push(struct mesh *mesh, bool release_all)
{
	struct rankset receivers[KCR_MAX_WIRES];
	bool has_moved = false, is_full;

	mesh->is_refused = false;
	mesh->batch.count = 0;
	find_receivers(mesh, receivers);
	is_full = !add_releases(mesh, receivers, release_all) ||
		  !add_sends(mesh);
	if (!mesh->batch.count)
		return false;
	submit_batch(mesh->submit, &mesh->batch);
	for (unsigned int i = 0; i < mesh->batch.count; i++)
		has_moved |= take_result(mesh, &mesh->batch.entries[i]);
	shrink_queue(mesh);
	return has_moved || is_full;
}

/**
 * mesh_push() - give the module what can go now
 * @mesh: the mesh
 *
 * Releases first: the credits that they mean travel with the frames behind them.
 * Returns whether anything has gone.
 */
bool mesh_push(struct mesh *mesh)
{
	if ((!mesh->queued && !mesh->due) || mesh->error)
		return false;
	return push(mesh, false);
}

/* This rank leaves: nothing that it took may keep its peers. */
void mesh_finish(struct mesh *mesh)
{
	while ((mesh->queued || mesh->unreleased) && !mesh->error)
		if (!push(mesh, true))
			return;
}

static bool belongs_to(const struct mesh_send *q, const struct kcr_request *r)
{
	if (r->peer < 0)
		return q->send.stream != STREAM_POINT;
	return q->send.stream == STREAM_POINT && r->m.send &&
	       (int)q->send.base == r->peer / 64 * 64 &&
	       q->send.mask >> (r->peer % 64) & 1;
}

/* See link_drain(). */
int mesh_drain(struct kcr_request *r)
{
	struct mesh *mesh = r->link->mesh;
	int result = 0;

	if (mesh->queued)
		mesh_push(mesh);
	for (unsigned int i = 0; i < mesh->queued; i++) {
		const struct mesh_send *q = &mesh->queue[i];

		if (!belongs_to(q, r))
			continue;
		r->blocked.word[q->send.base / 64] |= q->send.mask;
		result = -EAGAIN;
	}
	return result;
}

/* ---- receiving ---- */

static int map_ring(struct mesh *mesh, int rank, struct mesh_ring *ring)
{
	uint64_t index = KCR_FRAMES_INDEX(rank, ring->stream, ring->class);
	void *at;

	ring->depth = ring->status->depth;
	ring->bytes = (size_t)ring->depth * KCR_CLASS_BYTES(ring->class);
	at = mmap(NULL, ring->bytes, PROT_READ, MAP_SHARED, mesh->device,
		  KCR_MMAP_OFFSET(ring->wire, KCR_MAP_FRAMES, index));
	if (at == MAP_FAILED)
		return -errno;
	ring->frames = at;
	ring->next = 1;
	return 0;
}

/* A connection that is not up yet, or no more, opens nothing. */
static void open_ring(struct mesh_peer *peer, int wire, int stream, int class)
{
	struct mesh_conn *c = &peer->conns[wire];
	struct mesh_ring *ring = &c->rings[stream][class];
	struct kcr_frames frames = {
		.size = sizeof(frames),
		.peer = peer->rank,
		.wire = wire,
		.stream = stream,
		.size_class = class,
	};
	int err = 0;

	if (!is_up(c) || peer->mesh->error)
		return;
	ring->wire = wire;
	ring->stream = stream;
	ring->class = class;
	ring->status = &c->status->rings[stream][class];
	if (ioctl(peer->mesh->device, KCR_IOCTL_FRAMES, &frames))
		err = -errno;
	/* It may have gone down, which is seen elsewhere. */
	if (err == -ENOTCONN)
		return;
	if (!err)
		err = map_ring(peer->mesh, peer->rank, ring);
	if (err)
		break_mesh(peer->mesh, err, err == -ENOMEM ?
			   "no memory (see ulimit -l and the memory cgroup) for frames from" :
			   "cannot open a ring of frames from", peer->rank);
}

static const unsigned char *frame_of(const struct mesh_ring *ring)
{
	return ring->frames + (ring->next - 1) % ring->depth *
			      KCR_CLASS_BYTES(ring->class);
}

static bool has_frame(const struct mesh_ring *ring)
{
	return ring->frames && load_acquire(&ring->status->arrived) >= ring->next;
}

/* The header of the next frame of a ring, or NULL if it has not arrived. */
const struct frame_header *mesh_head(const struct mesh_ring *ring)
{
	return has_frame(ring) ? (const struct frame_header *)frame_of(ring) :
				 NULL;
}

static int check_frame(struct kcr_request *r, const struct rx *rx,
		       const struct mesh_ring *ring, size_t segment,
		       size_t bytes)
{
	const struct frame_header *theirs = mesh_head(ring);
	uint32_t length = ring->status->length[(ring->next - 1) % ring->depth];

	r->header.segment = segment;
	if (length < sizeof(*theirs) ||
	    (length != bytes + sizeof(*theirs) &&
	     !memcmp(theirs, &r->header, sizeof(*theirs))))
		return kcr_fail(r->world, -EBADMSG,
				"%s #%llu: a damaged frame from rank %d by wire %d: length %u where %zu belong",
				kcr_kind_text(r->header.kind),
				(unsigned long long)r->header.number, rx->peer,
				ring->wire, length, bytes + sizeof(*theirs));
	if (memcmp(theirs, &r->header, sizeof(*theirs)))
		return link_mismatch(r, rx->peer, theirs);
	return 0;
}

/* link_peek() for a peer of the mesh. */
int mesh_peek(struct kcr_request *r, struct rx *rx, size_t segment,
	      size_t bytes, const void **payload)
{
	unsigned int wire = wire_of(r, segment);
	int class = mesh_class(bytes + sizeof(r->header)), err;
	struct mesh_ring *ring = &rx->mesh->conns[wire].rings[rx->stream][class];

	if (!ring->frames) {
		mesh_use(rx->mesh->mesh, rx->peer, wire);
		open_ring(rx->mesh, wire, rx->stream, class);
	}
	if (!has_frame(ring)) {
		rankset_add(&r->blocked, rx->peer);
		return -EAGAIN;
	}
	err = check_frame(r, rx, ring, segment, bytes);
	if (err)
		return err;
	rx->ring = ring;
	*payload = frame_of(ring) + sizeof(r->header);
	return 0;
}

/* link_release() for a peer of the mesh: noted, see the top of the file. */
void mesh_release(struct rx *rx)
{
	struct mesh_peer *peer = rx->mesh;

	rx->ring->next++;
	peer->mesh->unreleased++;
	if (++peer->unreleased[rx->stream] == MESH_RELEASE_AT)
		peer->mesh->due++;
}

static void open_wanted(struct mesh_peer *peer, int wire)
{
	struct mesh_conn *c = &peer->conns[wire];

	if (!is_up(c))
		return;
	for (int s = 0; s < KCR_STREAMS; s++)
		for (int class = 0; class < KCR_CLASSES; class++)
			if (!c->rings[s][class].frames &&
			    __atomic_load_n(&c->status->rings[s][class].wanted,
					    __ATOMIC_RELAXED))
				open_ring(peer, wire, s, class);
}

/*
 * The rings of the smallest frames, before any can come: a short message leaves at
 * once, whatever its receiver does then.
 */
void mesh_open_small(struct mesh *mesh)
{
	rankset_for_each(rank, &mesh->peers)
		for (int s = 0; s < KCR_STREAMS; s++)
			open_ring(mesh->by_rank[rank], 0, s, 0);
}

/**
 * mesh_look() - open the rings that peers want
 * @mesh: the mesh
 *
 * For a rank that cannot move. It may be that a peer called something else, whose frames this
 * rank would not look for; or that both wait until a frame that nobody takes yet has gone.
 */
void mesh_look(struct mesh *mesh)
{
	uint64_t events = load_acquire(&mesh->link->status->events);

	if (events == mesh->looked)
		return;
	mesh->looked = events;
	mesh_look_for_failure(mesh);
	rankset_for_each(rank, &mesh->peers)
		for (int wire = 0; wire < mesh->wires; wire++)
			open_wanted(mesh->by_rank[rank], wire);
}
