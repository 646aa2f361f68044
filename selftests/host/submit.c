// SPDX-License-Identifier: GPL-2.0
/*
 * Commands through io_uring when it has no memory, is interrupted, or takes a part
 * of them: each is given once, in order, and has its own answer
 *
 * io_uring and the device are this program's: the library is linked with --wrap. Each
 * command bears a number, which is what the device answers and writes down.
 */
#include <errno.h>
#include <liburing.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "kselftest_harness.h"
#include "kcollring.h"
#include "../../lib/submit.h"

#define DEVICE		1000
#define MOST		256
/* Of the library's own attempt 0; else an error that tells of which command it is. */
#define ANSWER(number)	((number) ? -1000 - (int)(number) : 0)

/* io_uring, with one ring. */
static struct uring {
	struct io_uring_sqe sqes[2 * SUBMIT_BATCH];
	struct io_uring_cqe cqes[2 * SUBMIT_BATCH];
	unsigned int sq_head, sq_tail, cq_head, cq_tail;
	struct io_uring *ring;
	/* Finished, and not told yet. */
	struct io_uring_cqe late[SUBMIT_BATCH];
	unsigned int nr_late;
	/* What goes wrong. */
	int interruptions;	/* of calls that take entries */
	int wait_interruptions;	/* of those that wait */
	int takes;		/* of the entries, or -1 for all */
	int error;		/* what taking none gives */
	int short_of_memory;	/* so many commands are answered with -ENOMEM */
	bool is_late;		/* answers come when they are waited for */
	bool counts_none;	/* a thread has taken them before they were counted */
} uring;

static struct device {
	unsigned int n;
	struct given {
		uint64_t number;
		bool by_ring;
	} given[MOST];
} device;

static int give(uint64_t number, bool by_ring)
{
	if (device.n == MOST)
		abort();
	device.given[device.n++] = (struct given){ number, by_ring };
	return ANSWER(number);
}

/* Of a KICK, a SEND and a RELEASE. */
static uint64_t number_of(uint32_t command, const void *payload)
{
	switch (command) {
	case KCR_CMD_KICK:
		return ((const struct kcr_kick *)payload)->mask;
	case KCR_CMD_SEND:
		return ((const struct kcr_send *)payload)->sequence;
	case KCR_CMD_RELEASE:
		return ((const struct kcr_release *)payload)->sequence;
	}
	abort();
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	int answer;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (fd != DEVICE)
		abort();
	answer = give(number_of(_IOC_NR(request), arg), false);
	errno = -answer;
	return answer ? -1 : 0;
}

int __wrap_io_uring_queue_init_params(unsigned int entries, struct io_uring *ring,
				      struct io_uring_params *p)
{
	memset(ring, 0, sizeof(*ring));
	ring->flags = p->flags;
	ring->sq.khead = &uring.sq_head;
	ring->sq.ktail = &uring.sq_tail;
	ring->sq.sqes = uring.sqes;
	ring->sq.ring_entries = entries;
	ring->sq.ring_mask = entries - 1;
	ring->cq.khead = &uring.cq_head;
	ring->cq.ktail = &uring.cq_tail;
	ring->cq.cqes = uring.cqes;
	ring->cq.ring_entries = 2 * entries;
	ring->cq.ring_mask = 2 * entries - 1;
	ring->features = IORING_FEAT_EXT_ARG;
	uring.ring = ring;
	return 0;
}

void __wrap_io_uring_queue_exit(struct io_uring *ring)
{
	uring.ring = NULL;
}

int __wrap_io_uring_ring_dontfork(struct io_uring *ring)
{
	return 0;
}

static void tell(const struct io_uring_cqe *cqe)
{
	uring.cqes[uring.cq_tail & uring.ring->cq.ring_mask] = *cqe;
	uring.cq_tail++;
}

static void tell_late(void)
{
	for (unsigned int i = 0; i < uring.nr_late; i++)
		tell(&uring.late[i]);
	uring.nr_late = 0;
}

static void take_one(struct io_uring *ring)
{
	const struct io_uring_sqe *sqe =
		&uring.sqes[(uring.sq_head++ & ring->sq.ring_mask) << 1];
	struct io_uring_cqe cqe = { .user_data = sqe->user_data, .res = -ENOMEM };

	if (uring.short_of_memory)
		uring.short_of_memory--;
	else
		cqe.res = give(number_of(sqe->cmd_op, sqe->cmd), true);
	if (uring.is_late)
		uring.late[uring.nr_late++] = cqe;
	else
		tell(&cqe);
}

int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned int wait)
{
	int n = 0;

	if (uring.interruptions && uring.interruptions--)
		return -EINTR;
	while (uring.sq_head != ring->sq.sqe_tail && uring.takes) {
		uring.takes -= uring.takes > 0;
		take_one(ring);
		n++;
	}
	if (uring.counts_none)
		return 0;
	return n ? n : uring.error;
}

int __wrap___io_uring_get_cqe(struct io_uring *ring, struct io_uring_cqe **cqe,
			      unsigned int submit, unsigned int wait, sigset_t *mask)
{
	if (uring.wait_interruptions && uring.wait_interruptions--)
		return -EINTR;
	tell_late();
	/* Whoever waits now waits for ever. */
	if (uring.cq_head == uring.cq_tail)
		abort();
	*cqe = &uring.cqes[uring.cq_head & ring->cq.ring_mask];
	return 0;
}

FIXTURE(submit) {
	struct submit *s;
	struct submit_batch batch;
};

static void start(struct __test_metadata *_metadata, struct _test_data_submit *self,
		  const char *way)
{
	struct kcr_config config = { 0 };

	memset(&uring, 0, sizeof(uring));
	memset(&device, 0, sizeof(device));
	uring.takes = -1;
	setenv("KCR_URING", way, 1);
	ASSERT_EQ(0, submit_create(DEVICE, &config, &self->s));
	ASSERT_NE(NULL, uring.ring);
	memset(&device, 0, sizeof(device));
}

FIXTURE_SETUP(submit)
{
	start(_metadata, self, "1");
}

FIXTURE_TEARDOWN(submit)
{
	submit_destroy(self->s);
}

static int kick(struct _test_data_submit *self, uint64_t number)
{
	struct kcr_kick args = { .size = sizeof(args), .mask = number };

	return submit_command(self->s, KCR_CMD_KICK, &args, sizeof(args));
}

/* SENDs and RELEASEs with the numbers from @first on. */
static void give_batch(struct _test_data_submit *self, uint64_t first, unsigned int n)
{
	self->batch.count = n;
	for (unsigned int i = 0; i < n; i++) {
		struct submit_entry *e = &self->batch.entries[i];

		*e = (struct submit_entry){ .command = KCR_CMD_SEND };
		e->payload.send = (struct kcr_send){
			.size = sizeof(e->payload.send), .sequence = first + i,
		};
		if (i % 3 != 2)
			continue;
		e->command = KCR_CMD_RELEASE;
		e->payload.release = (struct kcr_release){
			.size = sizeof(e->payload.release), .sequence = first + i,
		};
	}
	submit_batch(self->s, &self->batch);
}

static void see_answers(struct __test_metadata *_metadata, struct _test_data_submit *self,
			uint64_t first)
{
	for (unsigned int i = 0; i < self->batch.count; i++) {
		EXPECT_EQ(ANSWER(first + i), self->batch.entries[i].result) {
			TH_LOG("entry %u", i);
		}
	}
}

/* Numbers 1 to @n, once each and in order, of which the ring has taken so many. */
static void see_given(struct __test_metadata *_metadata, unsigned int n, unsigned int by_ring)
{
	ASSERT_EQ(n, device.n);
	for (unsigned int i = 0; i < n; i++) {
		EXPECT_EQ(i + 1, device.given[i].number);
		EXPECT_EQ(i < by_ring, device.given[i].by_ring) {
			TH_LOG("number %u", i + 1);
		}
	}
}

TEST_F(submit, by_ring)
{
	EXPECT_EQ(ANSWER(1), kick(self, 1));
	give_batch(self, 2, SUBMIT_BATCH);
	see_answers(_metadata, self, 2);
	EXPECT_EQ(ANSWER(SUBMIT_BATCH + 2), kick(self, SUBMIT_BATCH + 2));
	see_given(_metadata, SUBMIT_BATCH + 2, SUBMIT_BATCH + 2);
}

/* The rest of a batch goes by ioctl, and so does what comes later. */
TEST_F(submit, batch_in_part)
{
	for (unsigned int part = 0; part < 6; part++) {
		submit_destroy(self->s);
		start(_metadata, self, "1");
		uring.takes = part;
		uring.error = part % 2 ? -EAGAIN : -ENOMEM;
		give_batch(self, 1, 6);
		see_answers(_metadata, self, 1);
		/* What it has not taken it would take now. */
		EXPECT_EQ(NULL, uring.ring);
		uring.takes = -1;
		EXPECT_EQ(ANSWER(7), kick(self, 7));
		give_batch(self, 8, 3);
		see_answers(_metadata, self, 8);
		see_given(_metadata, 10, part);
	}
}

/* A command that io_uring does not take, and the one behind it. */
TEST_F(submit, command_not_taken)
{
	uring.takes = 0;
	uring.error = -ENOMEM;
	EXPECT_EQ(ANSWER(1), kick(self, 1));
	EXPECT_EQ(NULL, uring.ring);
	uring.takes = -1;
	EXPECT_EQ(ANSWER(2), kick(self, 2));
	give_batch(self, 3, 2);
	see_answers(_metadata, self, 3);
	see_given(_metadata, 4, 0);
}

/* Taken, and found to lack memory of io_uring's: ioctl needs none. */
TEST_F(submit, command_without_memory)
{
	uring.short_of_memory = 1;
	EXPECT_EQ(ANSWER(1), kick(self, 1));
	EXPECT_EQ(ANSWER(2), kick(self, 2));
	ASSERT_EQ(2, device.n);
	EXPECT_FALSE(device.given[0].by_ring);
	EXPECT_TRUE(device.given[1].by_ring);
}

TEST_F(submit, batch_without_memory)
{
	uring.short_of_memory = 3;
	give_batch(self, 1, 3);
	see_answers(_metadata, self, 1);
	see_given(_metadata, 3, 0);
	give_batch(self, 4, 3);
	see_answers(_metadata, self, 4);
	ASSERT_EQ(6, device.n);
	EXPECT_TRUE(device.given[5].by_ring);
}

/* Signals, where commands are taken and where their answers are waited for. */
TEST_F(submit, signals)
{
	uint64_t next = 1;

	uring.is_late = true;
	for (int round = 0; round < 4; round++) {
		uring.interruptions = round;
		uring.wait_interruptions = round;
		EXPECT_EQ(ANSWER(next), kick(self, next));
		uring.interruptions = round;
		uring.wait_interruptions = round;
		give_batch(self, next + 1, 5);
		see_answers(_metadata, self, next + 1);
		next += 6;
	}
	see_given(_metadata, next - 1, next - 1);
}

/* A thread polls: entries are gone before the library can count them. */
TEST_F(submit, polling_thread)
{
	submit_destroy(self->s);
	start(_metadata, self, "sqpoll");
	uring.is_late = true;
	uring.counts_none = true;
	EXPECT_EQ(ANSWER(1), kick(self, 1));
	give_batch(self, 2, 5);
	see_answers(_metadata, self, 2);
	uring.wait_interruptions = 2;
	give_batch(self, 7, 5);
	see_answers(_metadata, self, 7);
	EXPECT_EQ(ANSWER(12), kick(self, 12));
	EXPECT_NE(NULL, uring.ring);
	see_given(_metadata, 12, 12);
}

TEST_HARNESS_MAIN
