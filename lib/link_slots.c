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
 *
 * The slots descend from mpi-rma's rings of fixed slots.
 */
#include <errno.h>
#include <string.h>
#include "link.h"

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

/* The lowest acknowledgement of all readers, as far as it can be read now. */
static uint64_t read_acks(const struct tx *tx)
{
	uint64_t lowest = UINT64_MAX;

	for (uint64_t rest = tx->readers; rest; rest &= rest - 1) {
		const struct kcr_ack *ack = tx->ack[__builtin_ctzll(rest)];
		uint64_t sequence = load_acquire(&ack->sequence);

		if (sequence != ~load_acquire(&ack->complement))
			return tx->acked;
		if (sequence < lowest)
			lowest = sequence;
	}
	return lowest;
}

/* May the next sequence be written? */
bool link_has_room(struct tx *tx)
{
	uint64_t next = tx->slots.next;

	if (next - tx->acked <= tx->slots.depth)
		return true;
	tx->acked = read_acks(tx);
	return next - tx->acked <= tx->slots.depth;
}

/**
 * link_begin() - take the next frame of a channel to be filled
 * @op: the operation
 * @tx: the channel
 * @segment: which segment of the message it carries
 * @payload: where its bytes go, behind the header
 *
 * Waits while the readers have not taken what is in the slot. Returns 0 or
 * a negative errno that has ended the world.
 */
int link_begin(struct op *op, struct tx *tx, size_t segment, void **payload)
{
	unsigned char *slot;
	int err;

	if (!link_has_room(tx)) {
		err = link_wait_room(op, tx);
		if (err)
			return err;
	}
	slot = slot_at(&tx->slots, tx->slots.next);
	op->header.segment = segment;
	memcpy(slot + KCR_SLOT_PAYLOAD, &op->header, sizeof(op->header));
	*payload = slot + KCR_SLOT_PAYLOAD + sizeof(op->header);
	return 0;
}

/**
 * link_post() - hand the frame that was begun to its readers
 * @op: the operation
 * @tx: the channel
 * @bytes: of payload behind the header
 */
void link_post(struct op *op, struct tx *tx, size_t bytes)
{
	unsigned char *slot = slot_at(&tx->slots, tx->slots.next);
	struct kcr_slot *head = (struct kcr_slot *)slot;
	uint64_t sequence = tx->slots.next++;
	uint32_t length = bytes + sizeof(op->header);

	head->length = length;
	head->checksum = 0;
	*(uint64_t *)(slot + KCR_SLOT_GUARD(length)) = ~sequence;
	store_release(&head->sequence, sequence);
	op->link->touched |= tx->readers;
}

/* Has the peer's next frame arrived? */
bool link_has_frame(const struct rx *rx)
{
	const struct kcr_slot *head = (struct kcr_slot *)
		slot_at(&rx->slots, rx->slots.next);

	return load_acquire(&head->sequence) == rx->slots.next;
}

/* The header of a frame that has arrived. */
const struct frame_header *link_header(const struct rx *rx)
{
	return (struct frame_header *)(slot_at(&rx->slots, rx->slots.next) +
				       KCR_SLOT_PAYLOAD);
}

/* A peer's memory is its own: bound before use. */
static int check_frame(struct op *op, struct rx *rx, size_t segment,
		       size_t bytes)
{
	const unsigned char *slot = slot_at(&rx->slots, rx->slots.next);
	const struct kcr_slot *head = (const struct kcr_slot *)slot;
	uint32_t length = __atomic_load_n(&head->length, __ATOMIC_RELAXED);

	op->header.segment = segment;
	if (memcmp(link_header(rx), &op->header, sizeof(op->header)))
		return link_mismatch(op, rx->peer, link_header(rx));
	if (length != bytes + sizeof(op->header) ||
	    *(uint64_t *)(slot + KCR_SLOT_GUARD(length)) != ~rx->slots.next)
		return kcr_fail(op->world, -EBADMSG,
				"%s #%llu: a damaged frame from rank %d: length %u where %zu belong",
				kcr_kind_text(op->header.kind),
				(unsigned long long)op->header.number, rx->peer,
				length, bytes + sizeof(op->header));
	return 0;
}

/**
 * link_peek() - the next frame of a channel, in place
 * @op: the operation
 * @rx: the channel
 * @segment: which segment it must carry
 * @bytes: of payload that it must have behind the header
 * @payload: where they are, until link_release()
 *
 * Waits for the frame. Returns 0, -EPROTO if the peer called something else,
 * -EBADMSG for a damaged frame, or what ended the wait.
 */
int link_peek(struct op *op, struct rx *rx, size_t segment, size_t bytes,
	      const void **payload)
{
	int err;

	if (!link_has_frame(rx)) {
		err = link_wait_frame(op, rx);
		if (err)
			return err;
	}
	err = check_frame(op, rx, segment, bytes);
	if (err)
		return err;
	*payload = slot_at(&rx->slots, rx->slots.next) + KCR_SLOT_PAYLOAD +
		   sizeof(op->header);
	return 0;
}

/* Give the frame's slot back to the peer. */
void link_release(struct op *op, struct rx *rx)
{
	uint64_t sequence = rx->slots.next++;

	store_release(&rx->ack->sequence, sequence);
	store_relaxed(&rx->ack->complement, ~sequence);
	op->link->touched |= rank_bit(rx->peer);
}
