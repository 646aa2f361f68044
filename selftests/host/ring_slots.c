// SPDX-License-Identifier: GPL-2.0
/*
 * The protocol of a ring's lanes, on memory of the test's own: bytes, wraps, laps,
 * damage, counters.
 */
#include <endian.h>
#include <signal.h>
#include <sys/mman.h>
#include "kselftest_harness.h"
#include "ring.h"
#include "../../lib/ring.h"

#define DEPTH		4
#define CAPACITY	41		/* one more than a cache line takes */
#define STRIDE		128

FIXTURE(slots) {
	_Alignas(64) unsigned char memory[DEPTH * STRIDE];
	unsigned char copy[CAPACITY];
	unsigned char data[CAPACITY];
	struct slots s;
	struct ring_view view;
};

FIXTURE_SETUP(slots)
{
	memset(self->memory, 0, sizeof(self->memory));
	self->s = (struct slots){
		.base = self->memory,
		.stride = KCR_SLOT_STRIDE(CAPACITY),
		.depth = DEPTH,
		.capacity = CAPACITY,
	};
	ASSERT_EQ(STRIDE, self->s.stride);
}

FIXTURE_TEARDOWN(slots)
{
}

static void put(struct slots *s, unsigned char *data, uint64_t sequence, uint32_t bytes)
{
	ring_fill(data, bytes, sequence);
	ring_write(s, sequence, data, bytes);
}

/* A bitwise CRC-32C that shares nothing with the library's. */
static uint32_t slow_crc(uint32_t crc, const unsigned char *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
	}
	return crc;
}

TEST_F(slots, byte_by_byte)
{
	const uint64_t sequence = 0x0102030405060708 % 1000 * DEPTH + 3;
	unsigned char want[STRIDE] = { 0 }, head[12];
	uint64_t le_sequence = htole64(sequence), guard = ~sequence;
	uint32_t length = 13, le_length = htole32(length), crc;

	put(&self->s, self->data, sequence, length);
	memcpy(head, &le_sequence, 8);
	memcpy(head + 8, &le_length, 4);
	crc = slow_crc(0xffffffff, head, 12);
	crc = ~slow_crc(crc, self->data, length);
	memcpy(want, &sequence, 8);
	memcpy(want + 8, &length, 4);
	memcpy(want + 12, &crc, 4);
	memcpy(want + 16, self->data, length);
	memcpy(want + 32, &guard, 8);
	EXPECT_EQ(0, memcmp(want, self->memory + 2 * STRIDE, STRIDE));
	for (int i = 0; i < DEPTH * STRIDE; i++)
		if (i / STRIDE != 2)
			ASSERT_EQ(0, self->memory[i]);
}

TEST_F(slots, every_length_around_and_around)
{
	uint64_t sequence = 1;

	for (int copied = 0; copied < 2; copied++) {
		for (uint32_t bytes = 0; bytes <= CAPACITY; bytes++, sequence++) {
			unsigned char *copy = copied ? self->copy : NULL;

			EXPECT_EQ(LOOK_NOTHING, ring_look(&self->s, sequence, copy,
							  &self->view));
			EXPECT_FALSE(ring_has_news(&self->s, sequence, 0));
			put(&self->s, self->data, sequence, bytes);
			EXPECT_TRUE(ring_has_news(&self->s, sequence, 0));
			ASSERT_EQ(LOOK_MESSAGE, ring_look(&self->s, sequence, copy,
							  &self->view));
			EXPECT_EQ(sequence, self->view.sequence);
			EXPECT_EQ(bytes, self->view.bytes);
			EXPECT_EQ(0, memcmp(self->data, self->view.data, bytes));
			EXPECT_EQ(copied, self->view.data == &self->copy[0]);
			EXPECT_EQ(0, copied ? 0 : (uintptr_t)self->view.data % 16);
			EXPECT_EQ(LOOK_NOTHING, ring_look(&self->s, sequence + 1,
							  copy, &self->view));
		}
	}
}

TEST_F(slots, up_to_the_last_sequence)
{
	for (uint64_t n = INT64_MAX - 2 * DEPTH; n <= INT64_MAX; n++) {
		put(&self->s, self->data, n, n % CAPACITY);
		ASSERT_EQ(LOOK_MESSAGE, ring_look(&self->s, n, NULL, &self->view));
		EXPECT_EQ(n, self->view.sequence);
	}
	/* What no call could return is no message, whole as it is. */
	for (uint64_t n = UINT64_MAX - 2 * DEPTH; n; n++) {
		put(&self->s, self->data, n, 8);
		EXPECT_EQ(LOOK_DAMAGED, ring_look(&self->s, INT64_MAX - DEPTH -
						  (INT64_MAX - n) % DEPTH, NULL,
						  &self->view));
	}
}

/* Of what another wrote, nothing gets through. */
TEST_F(slots, damage_to_each_bit)
{
	unsigned char *slot = self->memory + (5 - 1) % DEPTH * STRIDE;
	const uint32_t length = 13;
	int seen = 0;

	for (int used = 0; used < 40; used++) {
		for (int bit = 0; bit < 8; bit++) {
			enum ring_look look;

			put(&self->s, self->data, 1, 20);
			put(&self->s, self->data, 5, length);
			slot[used] ^= 1 << bit;
			look = ring_look(&self->s, 5, NULL, &self->view);
			/* Behind the payload nothing is looked at before the guard. */
			if (used >= 16 + (int)length && used < 32) {
				EXPECT_EQ(LOOK_MESSAGE, look);
				continue;
			}
			/* 5 with one bit less is 1, which is what was there before. */
			if (used == 0 && bit == 2) {
				EXPECT_EQ(LOOK_NOTHING, look);
				continue;
			}
			EXPECT_EQ(LOOK_DAMAGED, look) {
				TH_LOG("byte %d, bit %d", used, bit);
			}
			EXPECT_EQ(LOOK_DAMAGED, ring_look(&self->s, 5, self->copy,
							  &self->view));
			seen++;
		}
	}
	EXPECT_EQ((40 - 3) * 8 - 1, seen);
}

TEST_F(slots, lengths_that_lead_out)
{
	struct kcr_slot *slot = (struct kcr_slot *)self->memory;
	const uint32_t lengths[] = { CAPACITY + 1, STRIDE, 1u << 31, UINT32_MAX,
				     UINT32_MAX - 7 };

	for (int i = 0; i < 5; i++) {
		put(&self->s, self->data, 1, 8);
		slot->length = lengths[i];
		EXPECT_EQ(LOOK_DAMAGED, ring_look(&self->s, 1, self->copy,
						  &self->view));
		EXPECT_EQ(LOOK_DAMAGED, ring_look(&self->s, 1, NULL, &self->view));
	}
}

/* What is written again is nobody's message until it is whole. */
TEST_F(slots, being_written)
{
	struct kcr_slot *slot = (struct kcr_slot *)self->memory;

	put(&self->s, self->data, 1, 8);
	slot->sequence = 0;
	/* The first time a slot is written it has a 0 as well. */
	EXPECT_EQ(LOOK_NOTHING, ring_look(&self->s, 1, NULL, &self->view));
	EXPECT_EQ(LOOK_WRITING, ring_look(&self->s, 1 + DEPTH, NULL, &self->view));
	EXPECT_FALSE(ring_has_news(&self->s, 1 + DEPTH, 0));
	slot->sequence = 77;
	EXPECT_TRUE(ring_has_news(&self->s, 1 + DEPTH, 0));
	EXPECT_FALSE(ring_has_news(&self->s, 1 + DEPTH, 77));
	EXPECT_TRUE(ring_has_news(&self->s, 1 + DEPTH, 78));
	/* As a network may: the sequence before the rest. */
	slot->sequence = 1 + DEPTH;
	EXPECT_EQ(LOOK_DAMAGED, ring_look(&self->s, 1 + DEPTH, NULL, &self->view));
	put(&self->s, self->data, 1 + DEPTH, 8);
	EXPECT_EQ(LOOK_MESSAGE, ring_look(&self->s, 1 + DEPTH, NULL, &self->view));
}

TEST_F(slots, passed_by_whole_messages_only)
{
	struct kcr_slot *slot = (struct kcr_slot *)self->memory;

	for (int laps = 1; laps < 5; laps++) {
		uint64_t later = 1 + laps * DEPTH;

		put(&self->s, self->data, later, 8);
		ASSERT_EQ(LOOK_PASSED, ring_look(&self->s, 1, self->copy, &self->view));
		EXPECT_EQ(later, self->view.sequence);
		slot->checksum ^= 1;
		EXPECT_EQ(LOOK_DAMAGED, ring_look(&self->s, 1, self->copy,
						  &self->view));
	}
	/* A message of another slot's, whole. */
	put(&self->s, self->data, 6, 8);
	memcpy(self->memory, self->memory + STRIDE, STRIDE);
	EXPECT_EQ(LOOK_DAMAGED, ring_look(&self->s, 1, NULL, &self->view));
	EXPECT_EQ(LOOK_DAMAGED, ring_look(&self->s, 5, NULL, &self->view));
	EXPECT_EQ(LOOK_DAMAGED, ring_look(&self->s, 9, NULL, &self->view));
}

TEST_F(slots, counters)
{
	struct kcr_ack ack = { 0 };
	uint64_t found;

	EXPECT_FALSE(ring_read_count(&ack, &found));
	for (uint64_t n = 0; n < 10; n++) {
		ring_count(&ack, n * n);
		EXPECT_EQ(n * n, ack.sequence);
		EXPECT_EQ(~(n * n), ack.complement);
		ASSERT_TRUE(ring_read_count(&ack, &found));
		EXPECT_EQ(n * n, found);
		for (int bit = 0; bit < 128; bit++) {
			((unsigned char *)&ack)[bit / 8] ^= 1 << bit % 8;
			EXPECT_FALSE(ring_read_count(&ack, &found));
			((unsigned char *)&ack)[bit / 8] ^= 1 << bit % 8;
		}
	}
}

/* A counter that a network brings, a part at a time; its complement is on another page. */
static const uint64_t arriving[2] = { 0x100, ~0x100ull };
static struct kcr_ack *landing;
static void *second_page;

static void land(size_t bytes)
{
	memcpy(landing, arriving, bytes);
}

/* Who reads the complement gets here first: by then its first byte has landed, too. */
static void on_fault(int signal)
{
	(void)signal;
	mprotect(second_page, 4096, PROT_READ | PROT_WRITE);
	land(9);
}

/*
 * Torn alike, a sequence and its complement would match: 0xff is there, 0x100 arrives, and
 * with only the first byte of each it is 0.
 */
TEST(a_counter_that_lands_meanwhile)
{
	unsigned char *pages = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t found = 0;

	ASSERT_NE(MAP_FAILED, (void *)pages);
	second_page = pages + 4096;
	landing = (struct kcr_ack *)(pages + 4096 - 8);
	ring_count(landing, 0xff);
	land(1);
	signal(SIGSEGV, on_fault);
	ASSERT_EQ(0, mprotect(second_page, 4096, PROT_NONE));
	if (ring_read_count(landing, &found))
		EXPECT_EQ(0x100, found);
	signal(SIGSEGV, SIG_DFL);
	land(16);
	EXPECT_TRUE(ring_read_count(landing, &found));
	EXPECT_EQ(0x100, found);
	munmap(pages, 2 * 4096);
}

TEST_HARNESS_MAIN
