// SPDX-License-Identifier: GPL-2.0
/*
 * Message rings: what each call does and refuses.
 *
 * Ranks are threads of the test (lib/inside.h), which acts for each of them in turn, so that
 * what is in a lane is known exactly.
 */
#include <liburing.h>
#include <sys/epoll.h>
#include "kselftest_harness.h"
#include "inside.h"
#include "ring.h"

#define RANKS	3
#define SHORT	30000000	/* ns that a wait in vain takes here */

FIXTURE(ring) {
	struct inside in;
	struct kcr_ring *r[INSIDE_MAX];
	struct ring_inbox box[INSIDE_MAX];
};

/* What ranks make together. */
struct plan {
	struct kcr_ring **rings;
	const struct kcr_lane *lanes;
	size_t count;
	unsigned int flags;
	/* What rank @odd passes instead, if it is not NULL. */
	int odd;
	const struct plan *other;
	int want;			/* what all get */
	const char *says;		/* ... and what each says */
};

static int make(int rank, struct kcr_world *w, void *arg)
{
	const struct plan *all = arg, *p = all;

	if (all->other && rank == all->odd)
		p = all->other;
	RANK_GIVES(all->want, w, kcr_ring_create(w, p->lanes, p->count, p->flags,
						 &all->rings[rank]));
	if (all->want) {
		RANK_TRUE(!all->rings[rank]);
		RANK_SAYS(w, all->says);
		RANK_SAYS(NULL, all->says);
	}
	return 0;
}

static int drop(int rank, struct kcr_world *w, void *arg)
{
	struct kcr_ring **rings = arg;

	RANK_OK(w, kcr_ring_destroy(rings[rank]));
	rings[rank] = NULL;
	return 0;
}

#define MAKE(ring_flags, ...) do {					\
	static const struct kcr_lane make_lanes[] = { __VA_ARGS__ };	\
	struct plan make_plan = {					\
		.rings = self->r,					\
		.lanes = make_lanes,					\
		.count = sizeof(make_lanes) / sizeof(make_lanes[0]),	\
		.flags = ring_flags,					\
	};								\
									\
	ASSERT_EQ(0, inside_each(&self->in, make, &make_plan));		\
	for (int make_i = 0; make_i < RANKS; make_i++)			\
		self->box[make_i] = (struct ring_inbox){		\
			.ring = self->r[make_i], .rank = make_i };	\
} while (0)

#define DROP() ASSERT_EQ(0, inside_each(&self->in, drop, self->r))

/* A call of a ring's that must give @want and say @text. */
#define REFUSED(want, call, text) do {					\
	EXPECT_EQ(want, call);						\
	EXPECT_NE(NULL, strstr(kcr_error(NULL), text)) {		\
		TH_LOG("says \"%s\", not \"%s\"", kcr_error(NULL), text);	\
	}								\
} while (0)

FIXTURE_SETUP(ring)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	ASSERT_EQ(0, inside_open(&self->in, RANKS));
}

FIXTURE_TEARDOWN(ring)
{
	for (int i = 0; i < RANKS; i++)
		if (self->r[i])
			inside_each(&self->in, drop, self->r), i = RANKS;
	inside_close(&self->in);
}

TEST_F(ring, can_be_asked)
{
	struct kcr_ring_stats stats;

	MAKE(0, { 2, 0, 7, 100 }, { 0, 1, 1, 1 }, { 1, 0, 3, 64 });
	for (int i = 0; i < RANKS; i++) {
		EXPECT_EQ(1, kcr_ring_is_safe(self->r[i]));
		EXPECT_EQ(7, kcr_ring_depth(self->r[i], 2, 0));
		EXPECT_EQ(100, kcr_ring_capacity(self->r[i], 2, 0));
		EXPECT_EQ(1, kcr_ring_depth(self->r[i], 0, 1));
		EXPECT_EQ(1, kcr_ring_capacity(self->r[i], 0, 1));
		EXPECT_EQ(-ENXIO, kcr_ring_depth(self->r[i], 1, 2));
		EXPECT_EQ(-ENXIO, kcr_ring_capacity(self->r[i], 0, 2));
		EXPECT_EQ(-ENXIO, kcr_ring_depth(self->r[i], -1, 7));
		memset(&stats, 0xff, sizeof(stats));
		EXPECT_EQ(0, kcr_ring_stats(self->r[i], &stats));
		for (size_t j = 0; j < sizeof(stats); j++)
			ASSERT_EQ(0, ((unsigned char *)&stats)[j]);
	}
	DROP();
	MAKE(KCR_RING_RAW, { 0, 1, 2, 3 });
	EXPECT_EQ(0, kcr_ring_is_safe(self->r[2]));
}

TEST_F(ring, needs_no_lanes)
{
	struct plan p = { .rings = self->r };

	ASSERT_EQ(0, inside_each(&self->in, make, &p));
	EXPECT_EQ(0, kcr_ring_poll(self->r[0], ring_receive, NULL));
	REFUSED(-ENXIO, kcr_ring_wait(self->r[0], 0), "no lane leads to rank 0");
	REFUSED(-ENXIO, kcr_ring_fd(self->r[1]), "no lane leads to rank 1");
}

TEST_F(ring, refuses_wrong_arguments)
{
	char byte = 0;

	MAKE(0, { 0, 1, 2, 8 });
	REFUSED(-EINVAL, kcr_ring_send(NULL, 1, "", 1), "NULL");
	REFUSED(-EINVAL, kcr_ring_send(self->r[0], 1, NULL, 1), "data is NULL");
	REFUSED(-EMSGSIZE, kcr_ring_send(self->r[0], 1, &byte, 9), "8 bytes at most, not 9");
	REFUSED(-EMSGSIZE, kcr_ring_send(self->r[0], 1, &byte, SIZE_MAX), "8 bytes at most");
	REFUSED(-ENXIO, kcr_ring_send(self->r[0], 2, &byte, 1),
		"no lane leads from rank 0 to rank 2");
	REFUSED(-ENXIO, kcr_ring_send(self->r[0], 0, &byte, 1), "to rank 0");
	REFUSED(-ENXIO, kcr_ring_send(self->r[0], -1, &byte, 1), "to rank -1");
	REFUSED(-ENXIO, kcr_ring_send(self->r[0], 1 << 30, &byte, 1), "no lane");
	REFUSED(-ENXIO, kcr_ring_send(self->r[1], 0, &byte, 1), "from rank 1 to rank 0");
	REFUSED(-EINVAL, kcr_ring_poll(NULL, ring_receive, NULL), "NULL");
	REFUSED(-EINVAL, kcr_ring_poll(self->r[1], NULL, NULL), "fn is NULL");
	REFUSED(-EINVAL, kcr_ring_ack(NULL, 0, 1), "NULL");
	REFUSED(-ENXIO, kcr_ring_ack(self->r[1], 2, 1), "no lane leads from rank 2 to rank 1");
	REFUSED(-ENXIO, kcr_ring_ack(self->r[1], -5, 1), "from rank -5");
	REFUSED(-ENXIO, kcr_ring_ack(self->r[0], 1, 1), "from rank 1 to rank 0");
	REFUSED(-EINVAL, kcr_ring_wait(NULL, 0), "NULL");
	REFUSED(-EINVAL, kcr_ring_fd(NULL), "NULL");
	REFUSED(-EINVAL, kcr_ring_depth(NULL, 0, 1), "NULL");
	REFUSED(-EINVAL, kcr_ring_capacity(NULL, 0, 1), "NULL");
	REFUSED(-EINVAL, kcr_ring_is_safe(NULL), "NULL");
	REFUSED(-EINVAL, kcr_ring_stats(NULL, NULL), "NULL");
	REFUSED(-EINVAL, kcr_ring_stats(self->r[0], NULL), "stats is NULL");
	EXPECT_EQ(0, kcr_ring_destroy(NULL));
	REFUSED(-EINVAL, kcr_ring_create(NULL, NULL, 0, 0, &self->r[3]), "world is NULL");
	EXPECT_EQ(-EINVAL, kcr_ring_create(self->in.ranks[0].w, NULL, 0, 0, NULL));
	EXPECT_NE(NULL, strstr(kcr_error(self->in.ranks[0].w), "ring is NULL"));
	/* None of it has sent anything. */
	EXPECT_EQ(0, kcr_ring_poll(self->r[1], ring_receive, NULL));
	EXPECT_EQ(1, kcr_ring_send(self->r[0], 1, NULL, 0));
}

static const struct kcr_lane good[] = { { 0, 1, 4, 64 }, { 1, 2, 4, 64 } };

/* A rank's wrong list is every rank's error; the world goes on, and so do rings. */
TEST_F(ring, refuses_wrong_lists)
{
#define LIST(...) { __VA_ARGS__ }
#define WRONG(why, ring_flags, ...)					\
	{ why, { .lanes = (const struct kcr_lane[])LIST(__VA_ARGS__),	\
		 .count = sizeof((const struct kcr_lane[])LIST(__VA_ARGS__)) /	\
			  sizeof(struct kcr_lane), .flags = ring_flags } }
	const struct {
		const char *says;
		struct plan p;
	} wrong[] = {
		WRONG("listed twice", 0, { 0, 1, 4, 64 }, { 0, 1, 4, 64 }),
		WRONG("listed twice", 0, { 0, 1, 4, 64 }, { 1, 2, 4, 64 }, { 0, 1, 5, 64 }),
		WRONG("0 -> 3", 0, { 0, 3, 4, 64 }),
		WRONG("-1 -> 2", 0, { -1, 2, 4, 64 }),
		WRONG("from a rank to itself", 0, { 1, 1, 4, 64 }),
		WRONG("depth is 0", 0, { 0, 1, 0, 64 }),
		WRONG("capacity 0", 0, { 0, 1, 4, 0 }),
		WRONG("4 GiB", 0, { 0, 1, 1u << 26, 64 }),
		WRONG("4 GiB", 0, { 0, 1, UINT32_MAX, UINT32_MAX }),
		WRONG("4 GiB", 0, { 0, 1, 1, UINT32_MAX }),
		WRONG("of which 0x2 means nothing", 2, { 0, 1, 4, 64 }),
		WRONG("more than the pairs", 0, { 0, 1, 4, 64 }, { 0, 2, 4, 64 }, { 1, 0, 4, 64 },
		      { 1, 2, 4, 64 }, { 2, 0, 4, 64 }, { 2, 1, 4, 64 }, { 2, 1, 4, 64 }),
		{ "lanes is NULL", { .count = 1 } },
	};
	struct plan p = { .rings = self->r, .lanes = good, .count = 2, .want = -EINVAL };

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		p.says = wrong[i].says;
		p.other = &wrong[i].p;
		p.odd = i % RANKS;
		EXPECT_EQ(0, inside_each(&self->in, make, &p)) {
			TH_LOG("list %zu, \"%s\"", i, wrong[i].says);
		}
	}
	/* All pass the same wrong list. */
	p.lanes = wrong[0].p.lanes;
	p.other = NULL;
	p.says = "listed twice";
	EXPECT_EQ(0, inside_each(&self->in, make, &p));
	MAKE(0, { 0, 1, 4, 64 });
	EXPECT_EQ(1, kcr_ring_send(self->r[0], 1, "x", 1));
}

TEST_F(ring, compares_lists)
{
	const struct kcr_lane deeper[] = { { 0, 1, 5, 64 }, { 1, 2, 4, 64 } };
	const struct kcr_lane larger[] = { { 0, 1, 4, 64 }, { 1, 2, 4, 65 } };
	const struct kcr_lane more[] = { { 2, 1, 4, 64 }, { 0, 1, 4, 64 }, { 1, 2, 4, 64 } };
	const struct kcr_lane others[] = { { 0, 2, 4, 64 }, { 1, 2, 4, 64 } };
	const struct kcr_lane turned[] = { { 1, 2, 4, 64 }, { 0, 1, 4, 64 } };
	const struct {
		const char *says[2];	/* where the odd one is another rank, and rank 0 */
		struct plan p;
	} differ[] = {
		{ { "depth 4 and capacity 64 on rank 0, depth 5 and capacity 64 on rank 2",
		    "depth 5 and capacity 64 on rank 0, depth 4 and capacity 64 on rank 1" },
		  { .lanes = deeper, .count = 2 } },
		{ { "lane 1 -> 2 has depth 4 and capacity 64 on rank 0, depth 4 and capacity 65",
		    "lane 1 -> 2 has depth 4 and capacity 65 on rank 0" },
		  { .lanes = larger, .count = 2 } },
		{ { "rank 2 lists lane 2 -> 1, rank 0 does not",
		    "rank 0 lists lane 2 -> 1, rank 1 does not" },
		  { .lanes = more, .count = 3 } },
		{ { "rank 0 lists lane 0 -> 1, rank 2 does not",
		    "rank 1 lists lane 0 -> 1, rank 0 does not" },
		  { .lanes = others, .count = 2 } },
		{ { "rank 0 lists lane 1 -> 2, rank 2 does not",
		    "rank 1 lists lane 1 -> 2, rank 0 does not" },
		  { .lanes = good, .count = 1 } },
		{ { "rank 0 lists lane 0 -> 1, rank 2 does not",
		    "rank 1 lists lane 0 -> 1, rank 0 does not" },
		  { .count = 0 } },
		{ { "rank 0 makes a safe ring, rank 2 a raw one",
		    "rank 0 makes a raw ring, rank 1 a safe one" },
		  { .lanes = good, .count = 2, .flags = KCR_RING_RAW } },
	};
	const struct plan same = { .lanes = turned, .count = 2 };
	struct plan p = { .rings = self->r, .lanes = good, .count = 2, .want = -EPROTO };

	for (size_t i = 0; i < sizeof(differ) / sizeof(differ[0]); i++) {
		for (int first = 0; first < 2; first++) {
			p.odd = first ? 0 : 2;
			p.other = &differ[i].p;
			p.says = differ[i].says[first];
			EXPECT_EQ(0, inside_each(&self->in, make, &p)) {
				TH_LOG("list %zu, odd rank %d", i, p.odd);
			}
		}
	}
	/* Their order does not matter. */
	p.other = &same;
	p.want = 0;
	EXPECT_EQ(0, inside_each(&self->in, make, &p));
}

static int drop_other(int rank, struct kcr_world *w, void *arg)
{
	struct kcr_ring **rings = arg;

	RANK_REFUSED(-EPROTO, NULL, kcr_ring_destroy(rings[rank]),
		     "rank 0 gives up ring 1, rank 1 ring 2");
	return 0;
}

TEST_F(ring, ends_together)
{
	struct kcr_ring *first[RANKS], *meant[RANKS], *rest[RANKS];
	struct plan p = { .rings = first };

	ASSERT_EQ(0, inside_each(&self->in, make, &p));
	p.rings = self->r;
	ASSERT_EQ(0, inside_each(&self->in, make, &p));
	for (int i = 0; i < RANKS; i++) {
		meant[i] = i == 1 ? self->r[i] : first[i];
		rest[i] = i == 1 ? first[i] : self->r[i];
		self->r[i] = NULL;
	}
	EXPECT_EQ(0, inside_each(&self->in, drop_other, meant));
	for (int i = 0; i < RANKS; i++)
		meant[i] = rest[i];
	/* The world has not failed. */
	for (int i = 0; i < RANKS; i++)
		self->r[i] = NULL;
	p.rings = first;
	EXPECT_EQ(0, inside_each(&self->in, make, &p));
	EXPECT_EQ(0, inside_each(&self->in, drop, first));
}

TEST_F(ring, delivers_in_place_and_in_order)
{
	uint64_t n;

	MAKE(0, { 0, 1, 3, 1000 }, { 2, 1, 5, 40 }, { 1, 0, 1, 8192 });
	self->box[1].acks = 1;
	for (n = 1; n <= 100; n++) {
		ASSERT_EQ(n, ring_send(self->r[0], 0, 1, n, 0));
		ASSERT_EQ(n, ring_send(self->r[2], 2, 1, n, 0));
		if (n % 3 == 0)
			ASSERT_EQ(6, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	}
	EXPECT_EQ(2, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	EXPECT_EQ(0, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	EXPECT_EQ(200, self->box[1].count);
	EXPECT_EQ(0, self->box[1].gaps);
	EXPECT_EQ(0, self->box[1].wrong);
	/* The one message that a lane of depth 1 holds, again and again. */
	self->box[0].acks = 1;
	for (n = 1; n <= 50; n++) {
		ASSERT_EQ(n, ring_send(self->r[1], 1, 0, n, 0));
		ASSERT_EQ(-EAGAIN, ring_send(self->r[1], 1, 0, n + 1, 0));
		ASSERT_EQ(1, kcr_ring_poll(self->r[0], ring_receive, &self->box[0]));
	}
	EXPECT_EQ(0, self->box[0].wrong);
}

TEST_F(ring, counts)
{
	struct kcr_ring_stats sender, receiver;
	uint64_t bytes = 0;

	MAKE(0, { 0, 1, 4, 100 }, { 0, 2, 4, 100 });
	for (uint64_t n = 1; n <= 4; n++) {
		ring_send(self->r[0], 0, 1, n, 0);
		bytes += ring_bytes(0, 1, n, 100);
	}
	EXPECT_EQ(-EAGAIN, ring_send(self->r[0], 0, 1, 5, 0));
	EXPECT_EQ(1, ring_send(self->r[0], 0, 2, 1, 0));
	EXPECT_EQ(4, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	EXPECT_EQ(0, kcr_ring_stats(self->r[0], &sender));
	EXPECT_EQ(0, kcr_ring_stats(self->r[1], &receiver));
	EXPECT_EQ(5, sender.sent);
	EXPECT_EQ(bytes + ring_bytes(0, 2, 1, 100), sender.bytes_sent);
	EXPECT_EQ(4, sender.max_lag);
	EXPECT_EQ(0, sender.received);
	/* It did not wait. */
	EXPECT_EQ(0, sender.waits);
	EXPECT_EQ(0, sender.wait_ns);
	EXPECT_EQ(4, receiver.received);
	EXPECT_EQ(bytes, receiver.bytes_received);
	EXPECT_EQ(0, receiver.sent);
	EXPECT_EQ(0, receiver.torn + receiver.lost + receiver.corrupt);
}

/* F8: a sender does not wait for ever, and it shows that it waits. */
TEST_F(ring, waits_for_room_so_long)
{
	struct kcr_ring_stats stats;
	double began;

	MAKE(0, { 0, 1, 2, 100 });
	EXPECT_EQ(1, ring_send(self->r[0], 0, 1, 1, -1));
	EXPECT_EQ(2, ring_send(self->r[0], 0, 1, 2, -1));
	REFUSED(-EAGAIN, ring_send(self->r[0], 0, 1, 3, 0),
		"lane 0 -> 1 is full: rank 1 has not acknowledged");
	began = ranks_now();
	REFUSED(-ETIMEDOUT, ring_send(self->r[0], 0, 1, 3, SHORT),
		"lane 0 -> 1 is full: rank 1 has not acknowledged");
	EXPECT_LE(SHORT / 1e9, ranks_now() - began);
	EXPECT_EQ(0, kcr_ring_stats(self->r[0], &stats));
	EXPECT_EQ(1, stats.waits);
	EXPECT_LE(SHORT, stats.wait_ns);
	EXPECT_EQ(2, stats.sent);
	/* Delivered is not acknowledged. */
	EXPECT_EQ(2, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	EXPECT_EQ(-EAGAIN, ring_send(self->r[0], 0, 1, 3, 0));
	EXPECT_EQ(0, kcr_ring_ack(self->r[1], 0, 1));
	EXPECT_EQ(3, ring_send(self->r[0], 0, 1, 3, 0));
	EXPECT_EQ(-EAGAIN, ring_send(self->r[0], 0, 1, 4, 0));
	EXPECT_EQ(1, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	EXPECT_EQ(0, self->box[1].wrong);
}

TEST_F(ring, acknowledges_what_was_delivered)
{
	MAKE(0, { 0, 1, 4, 100 });
	for (uint64_t n = 1; n <= 4; n++)
		EXPECT_EQ(n, ring_send(self->r[0], 0, 1, n, 0));
	EXPECT_EQ(0, kcr_ring_ack(self->r[1], 0, 0));
	REFUSED(-ERANGE, kcr_ring_ack(self->r[1], 0, 1), "message 1 was not delivered yet");
	EXPECT_EQ(4, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	REFUSED(-ERANGE, kcr_ring_ack(self->r[1], 0, 5), "message 5 was not delivered yet");
	EXPECT_EQ(-ERANGE, kcr_ring_ack(self->r[1], 0, UINT64_MAX));
	/* Cumulative, and again. */
	for (uint64_t n = 3; n; n--)
		EXPECT_EQ(0, kcr_ring_ack(self->r[1], 0, n));
	for (uint64_t n = 5; n <= 7; n++)
		EXPECT_EQ(n, ring_send(self->r[0], 0, 1, n, 0));
	EXPECT_EQ(-EAGAIN, ring_send(self->r[0], 0, 1, 8, 0));
	EXPECT_EQ(3, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	EXPECT_EQ(0, self->box[1].wrong);
}

/* Raw: exactly those that were overwritten are lost, and the rest come in order. */
TEST_F(ring, loses_what_was_overwritten)
{
	struct kcr_ring_stats stats;
	uint64_t sent = 0, lost = 0;

	MAKE(KCR_RING_RAW, { 0, 1, 5, 200 }, { 2, 1, 1, 64 }, { 0, 2, 8, 8 });
	for (int burst = 0; burst < 40; burst++) {
		for (int i = 0; i < burst; i++) {
			sent++;
			ASSERT_EQ(sent, ring_send(self->r[0], 0, 1, sent, -1));
		}
		lost += burst > 5 ? burst - 5 : 0;
		ASSERT_EQ(burst > 5 ? 5 : burst,
			  kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
		EXPECT_EQ(sent, self->box[1].last[0]);
		EXPECT_EQ(lost, self->box[1].gaps);
		EXPECT_EQ(0, kcr_ring_stats(self->r[1], &stats));
		EXPECT_EQ(lost, stats.lost);
		EXPECT_EQ(sent - lost, stats.received);
		EXPECT_EQ(0, stats.corrupt);
		/* Checked, and nobody waits for it. */
		EXPECT_EQ(0, kcr_ring_ack(self->r[1], 0, sent));
		EXPECT_EQ(-ERANGE, kcr_ring_ack(self->r[1], 0, sent + 1));
	}
	EXPECT_EQ(39, stats.max_lag);
	for (uint64_t n = 1; n <= 10; n++)
		ASSERT_EQ(n, ring_send(self->r[2], 2, 1, n, -1));
	EXPECT_EQ(1, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	EXPECT_EQ(10, self->box[1].last[2]);
	EXPECT_EQ(0, kcr_ring_stats(self->r[1], &stats));
	EXPECT_EQ(lost + 9, stats.lost);
	EXPECT_EQ(0, self->box[1].wrong);
	EXPECT_EQ(0, kcr_ring_stats(self->r[0], &stats));
	EXPECT_EQ(0, stats.waits);
}

/* Answers each message with another, until it has to stop. */
struct answer {
	struct kcr_ring *ring;
	int count, stop_at;
	int64_t sent;
	int polled, acked;
};

static int answer(void *arg, int origin, uint64_t sequence, const void *data,
		  size_t bytes)
{
	struct answer *a = arg;

	a->acked |= kcr_ring_ack(a->ring, origin, sequence);
	a->polled = kcr_ring_poll(a->ring, ring_receive, NULL);
	a->sent = kcr_ring_send_timeout(a->ring, origin, data, bytes, 0);
	return ++a->count == a->stop_at ? 77 : 0;
}

TEST_F(ring, callbacks_may_send_and_acknowledge)
{
	struct answer a = { .stop_at = 2 };

	MAKE(0, { 0, 1, 4, 100 }, { 1, 0, 8, 100 });
	a.ring = self->r[1];
	for (uint64_t n = 1; n <= 4; n++)
		EXPECT_EQ(n, ring_send(self->r[0], 0, 1, n, 0));
	EXPECT_EQ(77, kcr_ring_poll(self->r[1], answer, &a));
	EXPECT_EQ(2, a.count);
	EXPECT_EQ(2, a.sent);
	EXPECT_EQ(0, a.acked);
	EXPECT_EQ(-EDEADLK, a.polled);
	/* The message that it stopped at was delivered. */
	EXPECT_EQ(2, kcr_ring_poll(self->r[1], answer, &a));
	EXPECT_EQ(4, a.sent);
	EXPECT_EQ(8, ring_send(self->r[0], 0, 1, 5, 0) + 3);
	EXPECT_EQ(4, kcr_ring_poll(self->r[0], ring_receive, &self->box[0]));
}

/* Room is made while the lane is drained: a poll ends all the same. */
struct chase {
	struct kcr_ring *from;
	struct ring_inbox *box;
	uint64_t sent;
};

static int refill(void *arg, int origin, uint64_t sequence, const void *data,
		  size_t bytes)
{
	struct chase *c = arg;

	ring_receive(c->box, origin, sequence, data, bytes);
	c->sent++;
	if (ring_send(c->from, origin, c->box->rank, c->sent, 0) != (int64_t)c->sent)
		c->box->wrong++;
	return 0;
}

TEST_F(ring, polls_so_many_at_once)
{
	struct chase c = { .sent = 4 };

	MAKE(0, { 0, 1, 4, 100 });
	c.from = self->r[0];
	c.box = &self->box[1];
	c.box->acks = 1;
	for (uint64_t n = 1; n <= 4; n++)
		EXPECT_EQ(n, ring_send(self->r[0], 0, 1, n, 0));
	for (int i = 0; i < 10; i++)
		EXPECT_EQ(4, kcr_ring_poll(self->r[1], refill, &c));
	EXPECT_EQ(0, c.box->wrong);
}

TEST_F(ring, waits_for_messages_so_long)
{
	double began;

	MAKE(0, { 0, 1, 2, 100 }, { 2, 1, 2, 100 });
	REFUSED(-EAGAIN, kcr_ring_wait(self->r[1], 0), "no message from rank 0, rank 2");
	began = ranks_now();
	REFUSED(-ETIMEDOUT, kcr_ring_wait(self->r[1], SHORT), "no message from rank 0, rank 2");
	EXPECT_LE(SHORT / 1e9, ranks_now() - began);
	EXPECT_EQ(1, ring_send(self->r[2], 2, 1, 1, 0));
	EXPECT_EQ(0, kcr_ring_wait(self->r[1], 0));
	EXPECT_EQ(0, kcr_ring_wait(self->r[1], -1));
	EXPECT_EQ(1, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	EXPECT_EQ(-EAGAIN, kcr_ring_wait(self->r[1], 0));
	REFUSED(-ENXIO, kcr_ring_wait(self->r[0], 0), "no lane leads to rank 0");
}

static int is_readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1 && p.revents == POLLIN;
}

TEST_F(ring, has_a_descriptor)
{
	int fd;

	MAKE(0, { 0, 1, 4, 100 }, { 2, 1, 4, 100 });
	self->box[1].acks = 1;
	fd = kcr_ring_fd(self->r[1]);
	ASSERT_LE(0, fd);
	EXPECT_EQ(fd, kcr_ring_fd(self->r[1]));
	EXPECT_FALSE(is_readable(fd, 20));
	for (uint64_t n = 1; n <= 200; n++) {
		ASSERT_EQ(n, ring_send(self->r[0], 0, 1, n, 0));
		ASSERT_TRUE(is_readable(fd, 10000 * pace()));
		/* It stays so until there is nothing left. */
		ASSERT_TRUE(is_readable(fd, 0));
		ASSERT_EQ(1, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
		ASSERT_FALSE(is_readable(fd, 0));
	}
	/* Who polls before it is readable finds what there is. */
	for (uint64_t n = 1; n <= 200; n++) {
		ASSERT_EQ(n, ring_send(self->r[2], 2, 1, n, 0));
		ASSERT_EQ(1, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	}
	while (is_readable(fd, 20))
		EXPECT_EQ(0, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	ASSERT_EQ(201, ring_send(self->r[2], 2, 1, 201, 0));
	EXPECT_TRUE(is_readable(fd, 10000 * pace()));
	EXPECT_EQ(0, self->box[1].wrong);
	DROP();
	EXPECT_EQ(-1, fcntl(fd, F_GETFD));
}

/* Level: it says so until there is nothing left. Edge: once for each time there is something. */
TEST_F(ring, has_a_descriptor_for_epoll)
{
	struct epoll_event level = { .events = EPOLLIN }, got;
	struct epoll_event edge = { .events = EPOLLIN | EPOLLET };
	int by_level, by_edge, fd;

	MAKE(0, { 0, 1, 4, 100 });
	self->box[1].acks = 1;
	fd = kcr_ring_fd(self->r[1]);
	by_level = epoll_create1(0);
	by_edge = epoll_create1(0);
	ASSERT_EQ(0, epoll_ctl(by_level, EPOLL_CTL_ADD, fd, &level));
	ASSERT_EQ(0, epoll_ctl(by_edge, EPOLL_CTL_ADD, fd, &edge));
	EXPECT_EQ(0, epoll_wait(by_level, &got, 1, 0));
	EXPECT_EQ(0, epoll_wait(by_edge, &got, 1, 0));
	for (uint64_t n = 1; n <= 100; n += 2) {
		ASSERT_EQ(n, ring_send(self->r[0], 0, 1, n, 0));
		ASSERT_EQ(1, epoll_wait(by_edge, &got, 1, 10000 * pace()));
		ASSERT_EQ(1, epoll_wait(by_level, &got, 1, 0));
		/* More of the same. */
		ASSERT_EQ(n + 1, ring_send(self->r[0], 0, 1, n + 1, 0));
		ASSERT_EQ(0, epoll_wait(by_edge, &got, 1, 0));
		ASSERT_EQ(1, epoll_wait(by_level, &got, 1, 0));
		ASSERT_EQ(2, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
		ASSERT_EQ(0, epoll_wait(by_edge, &got, 1, 0));
		ASSERT_EQ(0, epoll_wait(by_level, &got, 1, 0));
	}
	EXPECT_EQ(0, self->box[1].wrong);
	close(by_level);
	close(by_edge);
}

TEST_F(ring, has_a_descriptor_for_io_uring)
{
	struct __kernel_timespec limit = { .tv_sec = 10 * pace() };
	struct io_uring_cqe *cqe;
	struct io_uring uring;
	int fd;

	if (io_uring_queue_init(4, &uring, 0))
		SKIP(return, "no io_uring here");
	MAKE(0, { 0, 1, 4, 100 });
	self->box[1].acks = 1;
	fd = kcr_ring_fd(self->r[1]);
	for (uint64_t n = 1; n <= 100; n++) {
		/* Now before the message, now behind it. */
		if (n % 2)
			ASSERT_EQ(n, ring_send(self->r[0], 0, 1, n, 0));
		io_uring_prep_poll_add(io_uring_get_sqe(&uring), fd, POLLIN);
		ASSERT_EQ(1, io_uring_submit(&uring));
		if (!(n % 2)) {
			ASSERT_EQ(-EAGAIN, io_uring_peek_cqe(&uring, &cqe));
			ASSERT_EQ(n, ring_send(self->r[0], 0, 1, n, 0));
		}
		ASSERT_EQ(0, io_uring_wait_cqe_timeout(&uring, &cqe, &limit));
		EXPECT_EQ(POLLIN, cqe->res);
		io_uring_cqe_seen(&uring, cqe);
		ASSERT_EQ(1, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	}
	EXPECT_EQ(0, self->box[1].wrong);
	io_uring_queue_exit(&uring);
}

TEST_F(ring, outlives_its_world)
{
	int fd;

	MAKE(0, { 0, 1, 4, 100 }, { 1, 0, 4, 100 });
	fd = kcr_ring_fd(self->r[0]);
	ASSERT_LE(0, fd);
	inside_close(&self->in);
	EXPECT_TRUE(is_readable(fd, 0));
	for (int i = 0; i < RANKS; i++) {
		REFUSED(-ESHUTDOWN, kcr_ring_send(self->r[i], 1, "", 0), "world was destroyed");
		EXPECT_EQ(-ESHUTDOWN, kcr_ring_poll(self->r[i], ring_receive, NULL));
		EXPECT_EQ(-ESHUTDOWN, kcr_ring_wait(self->r[i], -1));
		EXPECT_EQ(-ESHUTDOWN, kcr_ring_ack(self->r[i], 0, 0));
		EXPECT_EQ(4, kcr_ring_depth(self->r[i], 0, 1));
		EXPECT_EQ(0, kcr_ring_destroy(self->r[i]));
		self->r[i] = NULL;
	}
}

/* A part of a world has rings of its own, beside those of the whole. */
static int split(int rank, struct kcr_world *w, void *arg)
{
	const struct kcr_lane lanes[] = { { 0, 1, 4, 100 }, { 1, 0, 4, 100 } };
	struct ring_inbox box = { .rank = 0 };
	struct kcr_world *part;

	RANK_OK(w, kcr_world_split(w, rank == 1 ? -1 : 0, -rank, &part));
	if (!part)
		return 0;
	/* Old ranks 2 and 0 are the new 0 and 1. */
	box.rank = kcr_rank(part);
	RANK_TRUE(box.rank == !rank);
	RANK_OK(part, kcr_ring_create(part, lanes, 2, 0, &box.ring));
	for (uint64_t n = 1; n <= 4; n++)
		RANK_TRUE(ring_send(box.ring, box.rank, !box.rank, n, -1) == (int64_t)n);
	while (box.count < 4) {
		RANK_OK(NULL, kcr_ring_wait(box.ring, -1));
		RANK_TRUE(kcr_ring_poll(box.ring, ring_receive, &box) > 0);
	}
	RANK_TRUE(!box.wrong);
	RANK_OK(NULL, kcr_ring_destroy(box.ring));
	RANK_OK(NULL, kcr_world_destroy(part));
	return 0;
}

TEST_F(ring, of_a_part)
{
	MAKE(0, { 0, 1, 4, 100 });
	EXPECT_EQ(0, inside_each(&self->in, split, NULL));
	EXPECT_EQ(1, ring_send(self->r[0], 0, 1, 1, 0));
	EXPECT_EQ(1, kcr_ring_poll(self->r[1], ring_receive, &self->box[1]));
	EXPECT_EQ(0, self->box[1].wrong);
}

TEST_F(ring, is_not_a_childs)
{
	int descriptors, status;
	pid_t pid;

	descriptors = ranks_descriptors();
	MAKE(0, { 0, 1, 4, 100 }, { 1, 0, 4, 100 });
	descriptors = ranks_descriptors() - descriptors;
	fflush(NULL);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		int mine = ranks_descriptors();

		if (kcr_ring_send(self->r[0], 1, "x", 1) != -EPERM ||
		    kcr_ring_poll(self->r[0], ring_receive, NULL) != -EPERM ||
		    kcr_ring_wait(self->r[0], 0) != -EPERM ||
		    kcr_ring_fd(self->r[0]) != -EPERM ||
		    kcr_ring_ack(self->r[0], 1, 0) != -EPERM ||
		    kcr_ring_destroy(self->r[0]) != -EPERM)
			_exit(1);
		/* Each rank has as many: over shared memory, one. */
		_exit(ranks_descriptors() != mine - descriptors / RANKS ? 2 : 0);
	}
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status);
	EXPECT_EQ(1, kcr_ring_send(self->r[0], 1, "x", 1));
}

/* Numbers and windows are used again; nothing is left. */
TEST_F(ring, many_come_and_go)
{
	static const struct kcr_lane lanes[] = { { 0, 1, 4, 100 }, { 1, 2, 3, 5000 } };
	struct kcr_ring *many[13][RANKS];
	struct plan p = { .lanes = lanes, .count = 2 };
	int descriptors, mappings;

	descriptors = ranks_descriptors();
	mappings = ring_mappings();
	EXPECT_LT(0, mappings);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 13; i++) {
			p.rings = many[i];
			p.flags = i % 2 ? KCR_RING_RAW : 0;
			ASSERT_EQ(0, inside_each(&self->in, make, &p));
			ASSERT_EQ(1, ring_send(many[i][0], 0, 1, 1, 0));
			ASSERT_LE(0, kcr_ring_fd(many[i][1]));
		}
		if (ranks_link_is_module()) {
			p.rings = self->r;
			p.want = -ENOSPC;
			p.says = "13 rings at most";
			EXPECT_EQ(0, inside_each(&self->in, make, &p));
			p.want = 0;
		}
		EXPECT_LT(mappings, ring_mappings());
		for (int i = 0; i < 13; i++)
			ASSERT_EQ(0, inside_each(&self->in, drop,
						 many[(i * 5 + round) % 13]));
	}
	EXPECT_EQ(descriptors, ranks_descriptors());
	EXPECT_EQ(mappings, ring_mappings());
}

/* More than the machine has, and no factor alone is. */
TEST_F(ring, memory_that_is_not_there)
{
	struct kcr_lane lanes[INSIDE_MAX * (INSIDE_MAX - 1)];
	struct plan p = { .rings = self->r, .lanes = lanes, .want = -ENOMEM,
			  .says = "no memory for" };
	long pages = sysconf(_SC_PHYS_PAGES);
	int descriptors;

	if (ranks_link_is_module())
		SKIP(return, "the kernel would look for it in other processes");
	if (pages > (INSIDE_MAX - 1) * (4L << 30) / sysconf(_SC_PAGESIZE))
		SKIP(return, "a machine of more than 28 GiB might have it");
	inside_close(&self->in);
	ASSERT_EQ(0, inside_open(&self->in, INSIDE_MAX));
	for (int i = 0; i < INSIDE_MAX; i++)
		for (int j = 0; j < INSIDE_MAX; j++)
			if (i != j)
				lanes[p.count++] = (struct kcr_lane){ i, j, 0x3ffffc0, 40 };
	descriptors = ranks_descriptors();
	EXPECT_EQ(0, inside_each(&self->in, make, &p));
	EXPECT_EQ(descriptors, ranks_descriptors());
	MAKE(0, { 0, 1, 4, 64 });
	DROP();
}

TEST(a_world_of_one_rank)
{
	const struct kcr_lane lane = { 0, 1, 1, 1 };
	struct kcr_ring *ring;
	struct kcr_world *w;
	struct kcr_config config;

	kcr_config_init(&config);
	config.size = 1;
	config.rank = 0;
	config.local_size = 1;
	config.local_rank = 0;
	ASSERT_EQ(0, kcr_world_create(&config, &w));
	EXPECT_EQ(-EINVAL, kcr_ring_create(w, &lane, 1, 0, &ring));
	ASSERT_EQ(0, kcr_ring_create(w, NULL, 0, 0, &ring));
	EXPECT_EQ(0, kcr_ring_poll(ring, ring_receive, NULL));
	EXPECT_EQ(-ENXIO, kcr_ring_wait(ring, -1));
	EXPECT_EQ(-ENXIO, kcr_ring_send(ring, 0, NULL, 0));
	EXPECT_EQ(0, kcr_ring_destroy(ring));
	EXPECT_EQ(0, kcr_world_destroy(w));
}

TEST(an_emulated_world_has_none)
{
	struct kcr_ring *ring = (void *)1;
	struct kcr_emu *emu;

	ASSERT_EQ(0, kcr_emu_create(2, &emu));
	EXPECT_EQ(-EOPNOTSUPP, kcr_ring_create(kcr_emu_world(emu, 0), NULL, 0, 0, &ring));
	EXPECT_EQ(NULL, ring);
	kcr_emu_destroy(emu);
}

TEST_HARNESS_MAIN
