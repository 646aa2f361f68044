// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit: classes, depths, immediates, and what credits allow. A part of ring.c, on
 * kernels with KUnit.
 */
#include "kunit.h"

static void ring_classes(struct kunit *test)
{
	u32 class, bytes, depth;

	for (class = 0; class < KCR_CLASSES; class++) {
		bytes = KCR_CLASS_BYTES(class);
		KUNIT_EXPECT_EQ(test, bytes, 4096U << class);
		KUNIT_EXPECT_EQ(test, class_of(bytes), class);
		KUNIT_EXPECT_EQ(test, class_of(bytes - 1), class);
		KUNIT_EXPECT_EQ(test, class_of(bytes / 2 + 1), class);
		for (depth = 1; depth <= KCR_FRAMES_MAX; depth++) {
			u32 real = kcr_frames_depth(class, depth);

			/* A ring is one registration, and never empty. */
			KUNIT_EXPECT_GE(test, real, 1);
			KUNIT_EXPECT_LE(test, real, depth);
			KUNIT_EXPECT_LE(test, real * bytes, KCR_CHUNK_BYTES);
			KUNIT_EXPECT_TRUE(test, real == depth ||
					  (real + 1) * bytes > KCR_CHUNK_BYTES);
		}
	}
	KUNIT_EXPECT_EQ(test, class_of(1), 0);
	KUNIT_EXPECT_EQ(test, class_of(KCR_FRAME_BYTES_MAX), KCR_CLASSES - 1);
	KUNIT_EXPECT_EQ(test, kcr_frames_depth(0, 1U << 31), 512);
}

static void ring_immediates(struct kunit *test)
{
	static const u64 sequences[] = {
		0, 1, WIRE_CREDIT_MASK, WIRE_CREDIT_MASK + 1, 1ULL << 31,
		(1ULL << 32) - 1, 1ULL << 40, U64_MAX,
	};
	u32 stream, class, imm, i;

	for (stream = 0; stream < KCR_STREAMS; stream++) {
		for (class = 0; class < KCR_CLASSES; class++) {
			imm = wire_imm(stream, class);
			KUNIT_EXPECT_EQ(test, WIRE_IMM_STREAM(imm), stream);
			KUNIT_EXPECT_EQ(test, WIRE_IMM_CLASS(imm), class);
			KUNIT_EXPECT_EQ(test, WIRE_IMM_HAS_CREDIT(imm), 0);
			for (i = 0; i < ARRAY_SIZE(sequences); i++) {
				imm = wire_imm(2, 5) |
				      wire_imm_credit(stream, class,
						      sequences[i]);
				KUNIT_EXPECT_EQ(test, WIRE_IMM_STREAM(imm), 2);
				KUNIT_EXPECT_EQ(test, WIRE_IMM_CLASS(imm), 5);
				KUNIT_EXPECT_EQ(test, WIRE_IMM_HAS_CREDIT(imm),
						1);
				KUNIT_EXPECT_EQ(test,
						WIRE_IMM_CREDIT_STREAM(imm),
						stream);
				KUNIT_EXPECT_EQ(test,
						WIRE_IMM_CREDIT_CLASS(imm),
						class);
				KUNIT_EXPECT_EQ(test, WIRE_IMM_CREDIT(imm),
						sequences[i] &
						WIRE_CREDIT_MASK);
			}
		}
	}
	KUNIT_EXPECT_GE(test, WIRE_NO_FRAME, KCR_STREAMS);
}

static bool arrives(struct fake *f, u32 imm, u32 bytes)
{
	bool is_right;

	spin_lock_bh(&f->c.lock);
	is_right = ring_arrived(&f->c, imm, bytes);
	spin_unlock_bh(&f->c.lock);
	return is_right;
}

static int release(struct fake *f, u64 sequence)
{
	struct kcr_release args = {
		.stream = 1, .size_class = 2, .sequence = sequence,
	};
	int ret;

	spin_lock_bh(&f->c.lock);
	ret = ring_release(&f->c, &args);
	spin_unlock_bh(&f->c.lock);
	return ret;
}

/* Not connected, closed, too long, empty, and more than was allowed. */
static void ring_frames(struct kunit *test)
{
	struct fake *f = fake_new(test);
	struct kcr_ring_status *status = &f->status.rings[1][2];
	struct rx_ring *rx = &f->c.rx[1][2];
	u32 imm = wire_imm(1, 2), i;

	f->c.state = CONN_CLOSING;	/* nothing is posted */
	rx->depth = 3;
	KUNIT_EXPECT_FALSE(test, arrives(f, imm, 1));
	f->c.was_up = true;
	KUNIT_EXPECT_FALSE(test, arrives(f, imm, 0));
	KUNIT_EXPECT_FALSE(test, arrives(f, imm, KCR_CLASS_BYTES(2) + 1));
	KUNIT_EXPECT_FALSE(test, arrives(f, imm, U32_MAX));
	KUNIT_EXPECT_FALSE(test, arrives(f, wire_imm(1, 3), 1));
	KUNIT_EXPECT_FALSE(test, arrives(f, wire_imm(0, 2), 1));
	KUNIT_EXPECT_FALSE(test, arrives(f, wire_imm(WIRE_NO_FRAME, 2), 0));
	KUNIT_EXPECT_EQ(test, rx->arrived, 0);
	KUNIT_EXPECT_EQ(test, release(f, 1), -EINVAL);
	for (i = 0; i < 3; i++)
		KUNIT_EXPECT_TRUE(test, arrives(f, imm, 10 + i));
	KUNIT_EXPECT_FALSE(test, arrives(f, imm, 1));
	KUNIT_EXPECT_EQ(test, status->arrived, 3);
	KUNIT_EXPECT_EQ(test, status->length[1], 11);
	/* One is released, so one may come, into its place. */
	KUNIT_EXPECT_EQ(test, release(f, 1), 0);
	KUNIT_EXPECT_TRUE(test, arrives(f, imm, 20));
	KUNIT_EXPECT_EQ(test, status->length[0], 20);
	KUNIT_EXPECT_FALSE(test, arrives(f, imm, 1));
	KUNIT_EXPECT_EQ(test, release(f, 5), -EINVAL);
	KUNIT_EXPECT_EQ(test, release(f, U64_MAX), -EINVAL);
	KUNIT_EXPECT_EQ(test, release(f, 4), 0);
	/* Again, or fewer: nothing changes. */
	KUNIT_EXPECT_EQ(test, release(f, 2), 0);
	KUNIT_EXPECT_EQ(test, rx->released, 4);
	KUNIT_EXPECT_EQ(test, status->released, 4);
}

static void ring_credits(struct kunit *test)
{
	struct fake *f = fake_new(test);
	struct kcr_ring_status *status = &f->status.rings[0][7];
	struct tx_ring *tx = &f->c.tx[0][7];
	u32 none = wire_imm(WIRE_NO_FRAME, 0);

	f->c.was_up = true;
	KUNIT_EXPECT_FALSE(test, arrives(f, none | wire_imm_credit(0, 7, 0),
					 0));
	tx->depth = 3;
	tx->next = 3;			/* two were sent */
	KUNIT_EXPECT_FALSE(test, arrives(f, none | wire_imm_credit(0, 7, 3),
					 0));
	KUNIT_EXPECT_FALSE(test, arrives(f, none | wire_imm_credit(3, 7, 1),
					 0));
	KUNIT_EXPECT_FALSE(test, arrives(f, none | wire_imm_credit(0, 6, 1),
					 0));
	KUNIT_EXPECT_EQ(test, tx->acked, 0);
	KUNIT_EXPECT_FALSE(test, arrives(f, none | wire_imm_credit(0, 7, 1),
					 8));
	KUNIT_EXPECT_TRUE(test, arrives(f, none | wire_imm_credit(0, 7, 2),
					0));
	KUNIT_EXPECT_EQ(test, tx->acked, 2);
	KUNIT_EXPECT_EQ(test, status->acked, 2);
	KUNIT_EXPECT_EQ(test, status->limit, 5);
	/* Backwards is a step far ahead. */
	KUNIT_EXPECT_FALSE(test, arrives(f, none | wire_imm_credit(0, 7, 1),
					 0));
	/* Only the low bits travel. */
	tx->acked = 3ULL << WIRE_CREDIT_BITS;
	tx->acked--;
	tx->next = tx->acked + 3;
	KUNIT_EXPECT_TRUE(test, arrives(f, none |
					wire_imm_credit(0, 7, tx->acked + 2),
					0));
	KUNIT_EXPECT_EQ(test, tx->acked, (3ULL << WIRE_CREDIT_BITS) + 1);
}

static int may_send(struct fake *f, u64 sequence)
{
	struct kcr_send args = {
		.stream = 2, .bytes = 5000, .sequence = sequence,
	};
	int ret;

	spin_lock_bh(&f->c.lock);
	ret = ring_check_send(&f->c, &args);
	spin_unlock_bh(&f->c.lock);
	return ret;
}

static void ring_sending(struct kunit *test)
{
	struct fake *f = fake_new(test);
	struct tx_ring *tx = &f->c.tx[2][1];

	f->c.state = CONN_PROVING;
	KUNIT_EXPECT_EQ(test, may_send(f, 1), -ENOTCONN);
	f->c.state = CONN_LEAVING;
	KUNIT_EXPECT_EQ(test, may_send(f, 1), -ENOTCONN);
	f->c.state = CONN_UP;
	f->c.peer_has_left = true;
	KUNIT_EXPECT_EQ(test, may_send(f, 1), -ENOTCONN);
	f->c.peer_has_left = false;
	/* Closed: the peer is asked to open it, once. */
	KUNIT_EXPECT_EQ(test, may_send(f, 1), -ENOBUFS);
	KUNIT_EXPECT_TRUE(test, tx->is_wanted);
	KUNIT_EXPECT_EQ(test, f->c.say, SAY_RINGS);
	f->c.say = 0;
	KUNIT_EXPECT_EQ(test, may_send(f, 1), -ENOBUFS);
	KUNIT_EXPECT_EQ(test, f->c.say, 0);
	tx->depth = 2;
	tx->next = 1;
	KUNIT_EXPECT_EQ(test, may_send(f, 0), -EALREADY);
	KUNIT_EXPECT_EQ(test, may_send(f, 1), 0);
	KUNIT_EXPECT_EQ(test, may_send(f, 2), -ENOBUFS);
	KUNIT_EXPECT_EQ(test, may_send(f, U64_MAX), -ENOBUFS);
	tx->next = 3;
	KUNIT_EXPECT_EQ(test, may_send(f, 2), -EALREADY);
	KUNIT_EXPECT_EQ(test, may_send(f, 3), -ENOBUFS);
	tx->acked = 1;
	KUNIT_EXPECT_EQ(test, may_send(f, 3), 0);
	/* The rest of the queue is for messages. */
	f->c.sending = SEND_QUEUE - SEND_QUEUE_RESERVE;
	KUNIT_EXPECT_EQ(test, may_send(f, 3), -ENOBUFS);
	KUNIT_EXPECT_TRUE(test, f->c.is_starved);
}

/* A registration waits for what was sent, and what is to be sent for it. */
static void ring_registrations(struct kunit *test)
{
	struct fake *f = fake_new(test);
	struct tx_ring *tx = &f->c.tx[2][1];
	struct ib_send_wr wr = { .opcode = IB_WR_REG_MR };

	f->c.state = CONN_UP;
	tx->depth = 2;
	tx->next = 1;
	spin_lock_bh(&f->c.lock);
	f->c.sending = 2;
	f->c.registering = 1;
	KUNIT_EXPECT_EQ(test, queue_post_registration(&f->c, &wr), -ENOBUFS);
	KUNIT_EXPECT_TRUE(test, queue_has_room(&f->c, 1));
	f->c.beats_wanted = 2;
	KUNIT_EXPECT_EQ(test, queue_post(&f->c, &wr), -ENOBUFS);
	KUNIT_EXPECT_FALSE(test, queue_has_room(&f->c, 1));
	KUNIT_EXPECT_FALSE(test, queue_becomes_idle(&f->c));
	spin_unlock_bh(&f->c.lock);
	KUNIT_EXPECT_EQ(test, may_send(f, 1), -ENOBUFS);
	KUNIT_EXPECT_TRUE(test, f->c.is_starved);
	spin_lock_bh(&f->c.lock);
	f->c.sending = 1;
	KUNIT_EXPECT_TRUE(test, queue_becomes_idle(&f->c));
	KUNIT_EXPECT_FALSE(test, queue_becomes_idle(&f->c));
	KUNIT_EXPECT_TRUE(test, queue_has_room(&f->c, 1));
	spin_unlock_bh(&f->c.lock);
	KUNIT_EXPECT_EQ(test, may_send(f, 1), 0);
}

static struct kunit_case ring_cases[] = {
	KUNIT_CASE(ring_classes),
	KUNIT_CASE(ring_immediates),
	KUNIT_CASE(ring_frames),
	KUNIT_CASE(ring_credits),
	KUNIT_CASE(ring_sending),
	KUNIT_CASE(ring_registrations),
	{ }
};

static struct kunit_suite ring_suite = {
	.name = "kcollring-ring",
	.test_cases = ring_cases,
};

kunit_test_suite(ring_suite);
