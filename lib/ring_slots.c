// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The protocol of a ring's lanes: slots that one rank writes and one reads, and
 * the counter that goes back.
 *
 * A slot is written in this order:
 *
 *	sequence = 0			a reader of what was there sees that it goes
 *	(release fence)
 *	payload, length, checksum, guard
 *	sequence = n			release: who sees it sees the rest
 *
 * and read in this one:
 *
 *	sequence			acquire
 *	length, checksum, guard, payload
 *	(acquire fence)
 *	sequence			unchanged, or what was copied may be of two messages
 *
 * The last step is for copies only: on a safe lane nobody writes a slot that was not
 * acknowledged. What comes over a network may land in any order, so a message is
 * what all of sequence, length, guard and checksum agree on, and nothing else is.
 *
 * Nothing that is read here is trusted: each value is read once, and bounded before it is
 * used. The slots are the source's, who may change them at any time.
 *
 * A counter is stored as sequence, then complement, and read the other way round; where
 * the two do not match it is being written.
 */
#include <endian.h>
#include <string.h>
#include "crc32c.h"
#include "ring.h"

/* A call returns a sequence as a positive number. */
#define SEQUENCE_MAX	((uint64_t)INT64_MAX)

_Static_assert(sizeof(struct kcr_slot) == KCR_SLOT_PAYLOAD, "part of the wire");
_Static_assert(offsetof(struct kcr_slot, length) == 8, "part of the wire");
_Static_assert(offsetof(struct kcr_slot, checksum) == 12, "part of the wire");
_Static_assert(KCR_SLOT_GUARD(0) == 16 && KCR_SLOT_GUARD(1) == 24 &&
	       KCR_SLOT_GUARD(8) == 24 && KCR_SLOT_GUARD(9) == 32,
	       "part of the wire");
_Static_assert(KCR_SLOT_STRIDE(1) == 64 && KCR_SLOT_STRIDE(40) == 64 &&
	       KCR_SLOT_STRIDE(41) == 128, "part of the wire");
_Static_assert(sizeof(struct kcr_ack) == 16, "part of the wire");

static struct kcr_slot *slot_at(const struct slots *slots, uint64_t sequence)
{
	return (struct kcr_slot *)(slots->base +
				   (sequence - 1) % slots->depth * slots->stride);
}

static unsigned char *payload_of(const struct kcr_slot *slot)
{
	return (unsigned char *)slot + KCR_SLOT_PAYLOAD;
}

static uint64_t *guard_of(const struct kcr_slot *slot, uint32_t length)
{
	return (uint64_t *)((unsigned char *)slot + KCR_SLOT_GUARD(length));
}

/* CRC-32C over sequence and length, little endian, and the payload. */
uint32_t ring_checksum(uint64_t sequence, uint32_t length, const void *data)
{
	struct {
		uint64_t sequence;
		uint32_t length;
	} __attribute__((packed)) head = { htole64(sequence), htole32(length) };

	return crc32c(crc32c(0, &head, sizeof(head)), data, length);
}

/**
 * ring_write() - write a message into its slot
 * @slots: the lane
 * @sequence: the message's
 * @data: its payload, which must not change meanwhile
 * @bytes: of it, at most the capacity
 *
 * The checksum is that of @data rather than of what is in the slot, whose lines the
 * reader's CPU still has: to read them back takes several times as long as to write them.
 */
void ring_write(const struct slots *slots, uint64_t sequence, const void *data,
		uint32_t bytes)
{
	struct kcr_slot *slot = slot_at(slots, sequence);

	__atomic_store_n(&slot->sequence, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	if (bytes)
		memcpy(payload_of(slot), data, bytes);
	slot->length = bytes;
	slot->checksum = ring_checksum(sequence, bytes, data);
	*guard_of(slot, bytes) = ~sequence;
	__atomic_store_n(&slot->sequence, sequence, __ATOMIC_RELEASE);
}

/* Take the message that says it is @sequence. Returns whether it is one. */
static bool take(const struct slots *slots, const struct kcr_slot *slot,
		 uint64_t sequence, unsigned char *copy, struct ring_view *view)
{
	uint32_t length = __atomic_load_n(&slot->length, __ATOMIC_RELAXED);
	uint32_t checksum = __atomic_load_n(&slot->checksum, __ATOMIC_RELAXED);

	if (length > slots->capacity ||
	    __atomic_load_n(guard_of(slot, length), __ATOMIC_RELAXED) != ~sequence)
		return false;
	*view = (struct ring_view){
		.sequence = sequence,
		.data = payload_of(slot),
		.bytes = length,
	};
	if (copy) {
		memcpy(copy, view->data, length);
		view->data = copy;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&slot->sequence, __ATOMIC_RELAXED) != sequence)
			return false;
	}
	return checksum == ring_checksum(sequence, length, view->data);
}

/**
 * ring_look() - look for a message
 * @slots: the lane
 * @sequence: the message's: one that was not taken, all before it having been
 * @copy: NULL to take it in place; else room for the capacity, used for LOOK_PASSED too
 * @view: the message, with LOOK_MESSAGE; what is there instead, with LOOK_PASSED; else the
 *	sequence alone
 *
 * What was in the slot before is depth messages older. A later message is believed
 * only if it is a whole one, in the slot where it belongs.
 */
enum ring_look ring_look(const struct slots *slots, uint64_t sequence,
			 unsigned char *copy, struct ring_view *view)
{
	const struct kcr_slot *slot = slot_at(slots, sequence);
	uint64_t found = __atomic_load_n(&slot->sequence, __ATOMIC_ACQUIRE);
	bool is_first = sequence <= slots->depth;

	view->sequence = found;
	if (found == sequence)
		return take(slots, slot, found, copy, view) ? LOOK_MESSAGE :
							      LOOK_DAMAGED;
	if (!found)
		return is_first ? LOOK_NOTHING : LOOK_WRITING;
	if (!is_first && found == sequence - slots->depth)
		return LOOK_NOTHING;
	if (found < sequence || found > SEQUENCE_MAX ||
	    (found - sequence) % slots->depth ||
	    !take(slots, slot, found, copy, view))
		return LOOK_DAMAGED;
	return LOOK_PASSED;
}

/* Would ring_look() find anything, but for what was given up? By any thread. */
bool ring_has_news(const struct slots *slots, uint64_t sequence, uint64_t given_up)
{
	const struct kcr_slot *slot = slot_at(slots, sequence);
	uint64_t found = __atomic_load_n(&slot->sequence, __ATOMIC_ACQUIRE);

	return found && found != given_up && (sequence <= slots->depth ||
					      found != sequence - slots->depth);
}

/* Is it this message that is in the slot, whole or not? By any thread. */
bool ring_has_come(const struct slots *slots, uint64_t sequence)
{
	return __atomic_load_n(&slot_at(slots, sequence)->sequence,
			       __ATOMIC_ACQUIRE) == sequence;
}

void ring_count(struct kcr_ack *ack, uint64_t sequence)
{
	__atomic_store_n(&ack->sequence, sequence, __ATOMIC_RELEASE);
	__atomic_store_n(&ack->complement, ~sequence, __ATOMIC_RELEASE);
}

/*
 * Returns false while it is being written, or is none. What comes over a network may land
 * a few bytes at a time, in ascending order: the complement last. So it is read first:
 * a sequence that is read behind it is not older. The other way round both could be
 * torn alike, and match.
 */
bool ring_read_count(const struct kcr_ack *ack, uint64_t *sequence)
{
	uint64_t complement = __atomic_load_n(&ack->complement, __ATOMIC_ACQUIRE);

	*sequence = __atomic_load_n(&ack->sequence, __ATOMIC_ACQUIRE);
	return *sequence == ~complement;
}
