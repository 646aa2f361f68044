// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Frames in slots: the protocol of lanes and boards.
 *
 * One rank writes a ring of slots. It fills payload, length and guard, then
 * stores the sequence with release: a reader that sees the sequence with acquire
 * sees the rest. The writer uses a slot again when every reader has
 * acknowledged the sequence that was in it. An acknowledgement is stored
 * with its complement; one that does not match is being written, and the last
 * good one stands.
 *
 * A lane has one reader and a board has all other ranks; nothing else differs.
 * Readers of other nodes get the frame, which begins behind the slot's head,
 * over the mesh, and read it there: see link_mesh.c.
 *
 * The slots descend from mpi-rma's rings of fixed slots.
 */
#include <errno.h>
#include <string.h>
#include "link_mesh.h"
#include "request.h"

static unsigned char *slot_at(const struct slots *slots, uint64_t sequence)
{
	return slots->base + (sequence - 1) % slots->depth * slots->stride;
}

static uint64_t load_acquire(const __u64 *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void store_relaxed(__u64 *p, uint64_t value)
{
	__atomic_store_n(p, value, __ATOMIC_RELAXED);
}

static void store_release(__u64 *p, uint64_t value)
{
	__atomic_store_n(p, value, __ATOMIC_RELEASE);
}

/* Payload bytes of a frame behind its header. */
size_t link_room(const struct tx *tx)
{
	return tx->slots.capacity - sizeof(struct frame_header);
}

/* What a reader has acknowledged, or @old while it is being written. */
static uint64_t read_ack(const struct kcr_ack *ack, uint64_t old)
{
	uint64_t sequence = load_acquire(&ack->sequence);

	return sequence == ~load_acquire(&ack->complement) ? sequence : old;
}

/* The lowest acknowledgement of all readers, as far as it can be read now. */
static uint64_t read_acks(const struct link *link, struct tx *tx)
{
	uint64_t lowest = tx->mesh ? mesh_acked(link, tx) : UINT64_MAX;

	if (tx->ack)
		return read_ack(tx->ack, tx->acked);
	if (tx->peer >= 0)
		return lowest;
	rankset_for_each(r, &link->local) {
		uint64_t sequence = read_ack(tx->acks[r], tx->acked);

		if (sequence < lowest)
			lowest = sequence;
	}
	return lowest;
}

/* May the next sequence be written? */
bool link_has_room(struct link *link, struct tx *tx)
{
	uint64_t next = tx->slots.next;

	if (next - tx->acked <= tx->slots.depth)
		return true;
	tx->acked = read_acks(link, tx);
	return next - tx->acked <= tx->slots.depth;
}

/* Readers that have not taken yet what is in the next slot. */
void link_behind(const struct link *link, const struct tx *tx,
		 struct rankset *ranks)
{
	if (tx->mesh)
		mesh_behind(link, tx, ranks);
	rankset_for_each(r, &link->local) {
		const struct kcr_ack *ack = tx->peer < 0 ? tx->acks[r] : tx->ack;

		if (tx->peer >= 0 && tx->peer != r)
			continue;
		if (tx->slots.next - read_ack(ack, 0) > tx->slots.depth)
			rankset_add(ranks, r);
	}
}

/**
 * link_begin() - take the next frame of a channel to be filled
 * @r: the request
 * @tx: the channel
 * @segment: which segment of the message it carries
 * @bytes: of payload that it will have behind the header
 * @payload: where they go
 *
 * Returns 0, or -EAGAIN while the readers have not taken what is in the slot.
 */
int link_begin(struct kcr_request *r, struct tx *tx, size_t segment,
	       size_t bytes, void **payload)
{
	unsigned char *slot;

	if (!link_has_room(r->link, tx)) {
		link_behind(r->link, tx, &r->blocked);
		return -EAGAIN;
	}
	slot = slot_at(&tx->slots, tx->slots.next);
	tx->segment = segment;
	tx->bytes = bytes;
	r->header.segment = segment;
	memcpy(slot + KCR_SLOT_PAYLOAD, &r->header, sizeof(r->header));
	*payload = slot + KCR_SLOT_PAYLOAD + sizeof(r->header);
	return 0;
}

/**
 * link_post() - hand the frame that was begun to its readers
 * @r: the request
 * @tx: the channel
 */
void link_post(struct kcr_request *r, struct tx *tx)
{
	struct link *link = r->link;
	unsigned char *slot = slot_at(&tx->slots, tx->slots.next);
	struct kcr_slot *head = (struct kcr_slot *)slot;
	uint64_t sequence = tx->slots.next++;
	uint32_t length = tx->bytes + sizeof(r->header);

	head->length = length;
	head->checksum = 0;
	*(uint64_t *)(slot + KCR_SLOT_GUARD(length)) = ~sequence;
	store_release(&head->sequence, sequence);
	if (tx->peer < 0)
		link->touched = link->local;
	else if (!tx->mesh)
		rankset_add(&link->touched, tx->peer);
	if (tx->mesh)
		mesh_post(r, tx, sequence);
	if (link->carrier->ops->posted)
		link->carrier->ops->posted(link, tx);
}

/* The payload of a frame that was posted @back frames ago (1: the last). */
const void *link_posted(const struct tx *tx, uint64_t back)
{
	return slot_at(&tx->slots, tx->slots.next - back) + KCR_SLOT_PAYLOAD +
	       sizeof(struct frame_header);
}

/* Has the peer's next frame arrived? */
bool link_has_frame(const struct rx *rx)
{
	const struct kcr_slot *head = (struct kcr_slot *)
		slot_at(&rx->slots, rx->slots.next);

	if (rx->gate && *rx->gate < rx->slots.next)
		return false;
	return load_acquire(&head->sequence) == rx->slots.next;
}

/* The header of a frame that has arrived. */
const struct frame_header *link_header(const struct rx *rx)
{
	return (struct frame_header *)(slot_at(&rx->slots, rx->slots.next) +
				       KCR_SLOT_PAYLOAD);
}

/* A peer's memory is its own: bound before use. */
static int check_frame(struct kcr_request *r, struct rx *rx, size_t segment,
		       size_t bytes)
{
	const unsigned char *slot = slot_at(&rx->slots, rx->slots.next);
	const struct kcr_slot *head = (const struct kcr_slot *)slot;
	uint32_t length = __atomic_load_n(&head->length, __ATOMIC_RELAXED);

	r->header.segment = segment;
	if (memcmp(link_header(rx), &r->header, sizeof(r->header)))
		return link_mismatch(r, rx->peer, link_header(rx));
	if (length != bytes + sizeof(r->header) ||
	    *(uint64_t *)(slot + KCR_SLOT_GUARD(length)) != ~rx->slots.next)
		return kcr_fail(r->world, -EBADMSG,
				"%s #%llu: a damaged frame from rank %d: length %u where %zu belong",
				kcr_kind_text(r->header.kind),
				(unsigned long long)r->header.number, rx->peer,
				length, bytes + sizeof(r->header));
	return 0;
}

/**
 * link_peek() - the next frame of a channel, in place
 * @r: the request
 * @rx: the channel
 * @segment: which segment it must carry
 * @bytes: of payload that it must have behind the header
 * @payload: where they are, until link_release()
 *
 * Returns 0, -EAGAIN if it has not come yet, -EPROTO if the peer called
 * something else, or -EBADMSG for a damaged frame.
 */
int link_peek(struct kcr_request *r, struct rx *rx, size_t segment,
	      size_t bytes, const void **payload)
{
	int err;

	if (rx->mesh)
		return mesh_peek(r, rx, segment, bytes, payload);
	if (!link_has_frame(rx)) {
		rankset_add(&r->blocked, rx->peer);
		return -EAGAIN;
	}
	err = check_frame(r, rx, segment, bytes);
	if (err)
		return err;
	*payload = slot_at(&rx->slots, rx->slots.next) + KCR_SLOT_PAYLOAD +
		   sizeof(r->header);
	return 0;
}

/* Give the frame's slot back to the peer. */
void link_release(struct kcr_request *r, struct rx *rx)
{
	uint64_t sequence;

	if (rx->mesh) {
		mesh_release(rx);
		return;
	}
	sequence = rx->slots.next++;
	store_release(&rx->ack->sequence, sequence);
	store_relaxed(&rx->ack->complement, ~sequence);
	rankset_add(&r->link->touched, rx->peer);
}

/* Take frames for the mesh on their way. Returns whether any has gone. */
bool link_push(struct link *link)
{
	return link->mesh && mesh_push(link->mesh);
}

/**
 * link_drain() - has all that an operation has posted been taken from it?
 * @r: the request, which is over otherwise
 *
 * A frame that waits for a peer of the mesh would wait for the next call on this
 * world. Returns 0, or -EAGAIN.
 */
int link_drain(struct kcr_request *r)
{
	return r->link->mesh ? mesh_drain(r) : 0;
}
