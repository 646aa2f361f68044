// SPDX-License-Identifier: GPL-2.0
/*
 * The mesh against a peer that breaks the rules
 *
 * The victim is rank 1 of 3 by /dev/kcollring. Rank 0, which connects to it, and
 * rank 2, which it connects to, are raw verbs of this process. Whatever they do,
 * the victim ends the connection and says why; a connection that was up
 * takes its world along; nothing else happens to anybody.
 */
#include "kselftest_harness.h"
#include "rawvictim.h"

#define RANKS	VICTIM_RANKS
#define DEPTH	(MESH_DEPTH + 1)

/* The connection has failed for this reason. */
static void expect_failed(struct __test_metadata *_metadata, struct kcr_conn_status *s,
			  __u32 reason, __u32 error)
{
	EXPECT_TRUE(DEV_SOON(10, mesh_state(s) == KCR_CONN_FAILED));
	EXPECT_EQ(KCR_CONN_FAILED, mesh_state(s));
	EXPECT_EQ(reason, s->reason) {
		TH_LOG("state %u reason %u detail %u error %u", s->state, s->reason,
		       s->detail, s->error);
	}
	EXPECT_EQ(error, s->error);
}

/* ... and the world with it: because of this rank. */
static void expect_broken(struct __test_metadata *_metadata, struct victim *v,
			  struct kcr_conn_status *s, __u32 rank, __u32 reason, __u32 error)
{
	expect_failed(_metadata, s, reason, error);
	EXPECT_TRUE(DEV_SOON(10, dev_cause(v->status)));
	EXPECT_EQ(KCR_CAUSE(rank, error), dev_cause(v->status));
}

/* The victim waits, has not failed, and remembers this of the last that came. */
static void expect_waiting(struct __test_metadata *_metadata, struct victim *v, __u32 reason)
{
	EXPECT_TRUE(DEV_SOON(10, __atomic_load_n(&v->low->reason, __ATOMIC_RELAXED) ==
			     reason)) {
		TH_LOG("state %u reason %u detail %u error %u, expected reason %u",
		       v->low->state, v->low->reason, v->low->detail, v->low->error,
		       reason);
	}
	EXPECT_EQ(KCR_CONN_EXPECTED, mesh_state(v->low));
	EXPECT_EQ(0, v->low->error);
	EXPECT_EQ(0, dev_cause(v->status));
}

/* The right one comes, after all. */
static void expect_up(struct __test_metadata *_metadata, struct victim *v, struct raw *low)
{
	raw_close(low);
	EXPECT_EQ(0, raw_come_up(low));
	EXPECT_TRUE(DEV_SOON(10, mesh_is_up(v->low)));
	EXPECT_EQ(0, dev_cause(v->status));
}

#define START(v, before) do {						\
	const char *missing = mesh_missing();				\
									\
	(v)->fd = -1;							\
	if (missing)							\
		SKIP(return, "%s", missing);				\
	*(before) = dev_counters();					\
	ASSERT_EQ(0, victim_join(v));					\
} while (0)

#define END(v, before) do {						\
	victim_free(v);							\
	DEV_EXPECT_NOTHING_LEFT(before);				\
	MESH_EXPECT_NOTHING_LEFT();					\
} while (0)

/* ---- who connects to a victim that waits ---- */

FIXTURE(waits) {
	struct dev_counters before;
	struct victim v;
	struct raw low;
};

FIXTURE_SETUP(waits)
{
	START(&self->v, &self->before);
	self->low = raw_peer(&self->v.world, 0, 1, true);
	ASSERT_EQ(0, victim_expect(&self->v, 60000));
	EXPECT_EQ(KCR_CONN_EXPECTED, mesh_state(self->v.low));
}

FIXTURE_TEARDOWN(waits)
{
	if (self->v.fd < 0)
		return;
	raw_close(&self->low);
	END(&self->v, &self->before);
}

/* How the module refuses this: its reason, or a negative number. */
static int refusal(struct raw *r, const void *data, size_t bytes, __u32 *detail)
{
	int kind = raw_connect(r, data, bytes), reason;

	reason = kind < 0 ? kind : -kind - 1000;
	if (kind == RDMA_CM_EVENT_REJECTED) {
		reason = -EPROTO;
		if (r->reject.magic == RAW_MAGIC && r->reject.version == RAW_VERSION)
			reason = r->reject.reason;
		*detail = r->reject.detail;
	}
	raw_close(r);
	return reason;
}

TEST_F_TIMEOUT(waits, requests, 120)
{
	static const struct {
		const char *what;
		int reason;
		__u32 detail;
		size_t offset;		/* of what is changed */
		size_t width;
		__u32 value;
		size_t bytes;		/* if not all */
	} cases[] = {
#define AT(member) offsetof(struct raw_request, member)
		{ "no magic", KCR_REASON_FORMAT, 0, AT(magic), 4, 0 },
		{ "wrong magic", KCR_REASON_FORMAT, 0, AT(magic), 4, RAW_MAGIC ^ 1 },
		{ "too old", KCR_REASON_VERSION, RAW_VERSION, AT(version), 2, RAW_VERSION - 1 },
		{ "too new", KCR_REASON_VERSION, RAW_VERSION, AT(version_min), 2, RAW_VERSION + 1 },
		{ "reserved", KCR_REASON_FORMAT, 0, AT(reserved) + 7, 1, 1 },
		{ "another world", KCR_REASON_WORLD, 0, AT(world) + 15, 1, 0 },
		{ "fewer ranks", KCR_REASON_RANK, 0, AT(ranks), 2, RANKS - 1 },
		{ "most ranks", KCR_REASON_RANK, 0, AT(ranks), 2, 0xffff },
		{ "from itself", KCR_REASON_RANK, 0, AT(from), 2, 1 },
		{ "from a higher rank", KCR_REASON_RANK, 0, AT(from), 2, 2 },
		{ "from no rank", KCR_REASON_RANK, 0, AT(from), 2, 0xffff },
		{ "to a rank elsewhere", KCR_REASON_WORLD, 0, AT(to), 2, 2 },
		{ "to no rank", KCR_REASON_WORLD, 0, AT(to), 2, 0xffff },
		{ "unused wire", KCR_REASON_RANK, 0, AT(wire), 1, 1 },
		{ "no wire", KCR_REASON_RANK, 0, AT(wire), 1, KCR_MAX_WIRES },
		{ "last wire", KCR_REASON_RANK, 0, AT(wire), 1, 255 },
		{ "depth", KCR_REASON_FORMAT, 0, AT(depth), 1, DEPTH + 1 },
		{ "no depth", KCR_REASON_FORMAT, 0, AT(depth), 1, 0 },
		/* What is missing of a request comes as zeroes. */
		{ "magic alone", KCR_REASON_VERSION, RAW_VERSION, 0, 0, 0, 4 },
		{ "short", KCR_REASON_WORLD, 0, 0, 0, 0, 23 },
		{ "a byte", KCR_REASON_FORMAT, 0, 0, 0, 0, 1 },
#undef AT
	};
	__u32 detail;

	for (int i = 0; i < ARRAY_SIZE(cases); i++) {
		struct raw_request q = raw_request(&self->low);
		__u32 value = cases[i].value;

		/* The world's last byte is random: any other. */
		if (cases[i].offset == offsetof(struct raw_request, world) + 15)
			value = q.world[15] ^ 1;
		memcpy((char *)&q + cases[i].offset, &value, cases[i].width);
		detail = ~0;
		EXPECT_EQ(cases[i].reason, refusal(&self->low, &q, cases[i].bytes ?: sizeof(q),
						   &detail)) {
			TH_LOG("%s", cases[i].what);
		}
		EXPECT_EQ(cases[i].detail, detail) {
			TH_LOG("%s", cases[i].what);
		}
	}
	EXPECT_EQ(KCR_REASON_FORMAT, refusal(&self->low, NULL, 0, &detail));
	expect_waiting(_metadata, &self->v, KCR_REASON_NONE);
	expect_up(_metadata, &self->v, &self->low);
}

/* Whoever would have the victim's queue try for ever. */
TEST_F(waits, for_ever)
{
	struct raw_request q = raw_request(&self->low);
	__u32 detail;

	self->low.is_endless = true;
	EXPECT_EQ(KCR_REASON_FORMAT, refusal(&self->low, &q, sizeof(q), &detail));
	expect_waiting(_metadata, &self->v, KCR_REASON_NONE);
	expect_up(_metadata, &self->v, &self->low);
}

/* ... or would have it take reads and atomics, or send them. */
TEST_F(waits, reads)
{
	struct raw_request q = raw_request(&self->low);
	__u32 detail;

	self->low.sends_reads = 1;
	EXPECT_EQ(KCR_REASON_FORMAT, refusal(&self->low, &q, sizeof(q), &detail));
	self->low.takes_reads = 1;
	EXPECT_EQ(KCR_REASON_FORMAT, refusal(&self->low, &q, sizeof(q), &detail));
	expect_waiting(_metadata, &self->v, KCR_REASON_NONE);
	expect_up(_metadata, &self->v, &self->low);
}

/* Random bytes, and requests with a few random bytes in them. */
TEST_F_TIMEOUT(waits, noise, 240)
{
	unsigned int seed = (unsigned int)time(NULL), seen[KCR_REASON_ENDED + 1] = { 0 };
	int tries = 200 * dev_scale(), taken = 0;

	TH_LOG("seed %u", seed);
	srandom(seed);
	for (int i = 0; i < tries; i++) {
		struct raw_request q = raw_request(&self->low);
		__u8 *bytes = (__u8 *)&q;
		__u32 detail;
		int reason;

		for (int j = 0; j < (i % 2 ? sizeof(q) : 1 + i % 5); j++)
			bytes[i % 2 ? j : random() % sizeof(q)] = random();
		reason = refusal(&self->low, &q, i % 7 ? sizeof(q) : random() % sizeof(q) + 1,
				 &detail);
		/* One that changes nothing of importance is let in, up to its proof. */
		if (reason == -RDMA_CM_EVENT_ESTABLISHED - 1000) {
			taken++;
			continue;
		}
		ASSERT_LT(0, reason);
		ASSERT_GE(KCR_REASON_DUPLICATE, reason);
		seen[reason]++;
	}
	TH_LOG("refused: version %u, format %u, world %u, rank %u; taken %d",
	       seen[KCR_REASON_VERSION], seen[KCR_REASON_FORMAT], seen[KCR_REASON_WORLD],
	       seen[KCR_REASON_RANK], taken);
	EXPECT_LT(0, seen[KCR_REASON_FORMAT]);
	EXPECT_LT(0, seen[KCR_REASON_WORLD]);
	EXPECT_EQ(0, dev_cause(self->v.status));
	expect_up(_metadata, &self->v, &self->low);
}

/* Connected as a rank is, up to the proof. */
static void come(struct __test_metadata *_metadata, struct raw *r)
{
	double until = dev_now() + 10;
	struct raw_request q;
	int kind;

	for (;;) {
		raw_close(r);
		q = raw_request(r);
		kind = raw_connect(r, &q, sizeof(q));
		if (kind != RDMA_CM_EVENT_REJECTED || dev_now() > until)
			break;
	}
	ASSERT_EQ(RDMA_CM_EVENT_ESTABLISHED, kind) {
		TH_LOG("refused: reason %u", r->reject.reason);
	}
}

/*
 * The victim has hung up; or, if rdma_cm's last part of the handshake did not
 * reach it before what was sent did, has refused after all.
 */
static void expect_hung_up(struct __test_metadata *_metadata, struct raw *r)
{
	int kind = raw_event(r, 10);

	EXPECT_TRUE(kind == RDMA_CM_EVENT_DISCONNECTED || kind == RDMA_CM_EVENT_REJECTED) {
		TH_LOG("event %d", kind);
	}
}

TEST_F(waits, wrong_proof)
{
	struct raw_message m = raw_message(RAW_HELLO);

	come(_metadata, &self->low);
	m = raw_hello(&self->low);
	m.proof[31] ^= 0x80;
	ASSERT_EQ(0, raw_say(&self->low, &m));
	expect_hung_up(_metadata, &self->low);
	expect_waiting(_metadata, &self->v, KCR_REASON_KEY);
	EXPECT_EQ(0, self->low.heard[RAW_WELCOME]);
	expect_up(_metadata, &self->v, &self->low);
}

TEST_F(waits, proof_of_another_key)
{
	struct raw_message m;

	come(_metadata, &self->low);
	self->low.world.key[0] ^= 1;
	m = raw_hello(&self->low);
	self->low.world.key[0] ^= 1;
	ASSERT_EQ(0, raw_say(&self->low, &m));
	expect_hung_up(_metadata, &self->low);
	expect_waiting(_metadata, &self->v, KCR_REASON_KEY);
	expect_up(_metadata, &self->v, &self->low);
}

/* What the victim itself has proven, sent back. */
TEST_F(waits, reflection)
{
	struct raw_message m = raw_message(RAW_HELLO);

	come(_metadata, &self->low);
	memcpy(m.proof, self->low.accept.proof, sizeof(m.proof));
	ASSERT_EQ(0, raw_say(&self->low, &m));
	expect_hung_up(_metadata, &self->low);
	expect_waiting(_metadata, &self->v, KCR_REASON_KEY);
	expect_up(_metadata, &self->v, &self->low);
}

/* The proof of one connection, and its request, in another one. */
TEST_F(waits, replay)
{
	struct raw_request q = raw_request(&self->low);
	struct raw_message m;
	int kind;

	ASSERT_EQ(RDMA_CM_EVENT_ESTABLISHED, raw_connect(&self->low, &q, sizeof(q)));
	m = raw_hello(&self->low);
	for (int i = 0; i < 100; i++) {
		raw_close(&self->low);
		kind = raw_connect(&self->low, &q, sizeof(q));
		if (kind != RDMA_CM_EVENT_REJECTED)
			break;
		dev_sleep(0.02);
	}
	ASSERT_EQ(RDMA_CM_EVENT_ESTABLISHED, kind);
	ASSERT_EQ(0, raw_say(&self->low, &m));
	expect_hung_up(_metadata, &self->low);
	expect_waiting(_metadata, &self->v, KCR_REASON_KEY);
	expect_up(_metadata, &self->v, &self->low);
}

/* Nothing but a proof comes first. */
TEST_F_TIMEOUT(waits, before_the_proof, 60)
{
	static const __u8 types[] = {
		0, RAW_WELCOME, RAW_WANT, RAW_OPENED, RAW_PING, RAW_FAIL, RAW_BYE, RAW_LANE,
		RAW_UNLANE, RAW_UNLANED, RAW_ARM, RAW_RING, RAW_CREDIT, 255,
	};

	for (int i = 0; i < ARRAY_SIZE(types) + 3; i++) {
		struct raw *r = &self->low;
		struct raw_message m = raw_message(types[i % ARRAY_SIZE(types)]);
		int err;

		come(_metadata, r);
		m.fail = (struct raw_fail){ .rank = 0, .error = EIO };
		if (i < ARRAY_SIZE(types))
			err = raw_say(r, &m);
		else if (i == ARRAY_SIZE(types))
			err = raw_write(r, NULL, 0, 0, raw_imm(0, 0));
		else if (i == ARRAY_SIZE(types) + 1)
			err = raw_write(r, NULL, 0, 0, raw_rung(0, true));
		else
			err = raw_write(r, NULL, 0, 0, raw_imm(RAW_NO_FRAME, 0) |
					raw_credit(0, 0, 1));
		ASSERT_EQ(0, err);
		expect_hung_up(_metadata, r);
		expect_waiting(_metadata, &self->v, KCR_REASON_PROTOCOL);
		EXPECT_EQ(0, r->heard[RAW_WELCOME]);
	}
	expect_up(_metadata, &self->v, &self->low);
}

TEST_F(waits, short_hello)
{
	struct raw_message m;

	come(_metadata, &self->low);
	m = raw_hello(&self->low);
	ASSERT_EQ(0, raw_send(&self->low, &m, 40));
	expect_hung_up(_metadata, &self->low);
	expect_waiting(_metadata, &self->v, KCR_REASON_PROTOCOL);
	expect_up(_metadata, &self->v, &self->low);
}

/* Whether it was up by the second one is a matter of time. */
TEST_F(waits, hello_twice)
{
	struct raw_message m;

	come(_metadata, &self->low);
	m = raw_hello(&self->low);
	ASSERT_EQ(0, raw_say(&self->low, &m));
	ASSERT_EQ(0, raw_say(&self->low, &m));
	expect_hung_up(_metadata, &self->low);
	EXPECT_TRUE(DEV_SOON(10, self->v.low->reason == KCR_REASON_PROTOCOL));
	if (mesh_state(self->v.low) == KCR_CONN_FAILED)
		expect_broken(_metadata, &self->v, self->v.low, 0, KCR_REASON_PROTOCOL,
			      EBADMSG);
	else
		expect_up(_metadata, &self->v, &self->low);
}

/* One that is in keeps others out: of the same world, or strangers. */
TEST_F(waits, twice)
{
	struct raw other = raw_peer(&self->v.world, 0, 1, true);
	struct raw_request q = raw_request(&other);
	__u32 detail;

	come(_metadata, &self->low);
	EXPECT_EQ(KCR_REASON_DUPLICATE, refusal(&other, &q, sizeof(q), &detail));
	EXPECT_EQ(RAW_UNPROVEN, detail);
	expect_up(_metadata, &self->v, &self->low);
	EXPECT_EQ(KCR_REASON_DUPLICATE, refusal(&other, &q, sizeof(q), &detail));
	EXPECT_EQ(0, detail);
	dev_sleep(0.3);
	EXPECT_EQ(KCR_CONN_UP, mesh_state(self->v.low));
	EXPECT_EQ(0, dev_cause(self->v.status));
}

/* Gone at each step: before the answer, before the proof, right behind it. */
TEST_F_TIMEOUT(waits, vanishes, 60)
{
	struct raw_message m;

	for (int step = 0; step < 2; step++) {
		for (int how = 0; how < 2; how++) {
			come(_metadata, &self->low);
			m = raw_hello(&self->low);
			m.proof[0] ^= step;
			EXPECT_EQ(0, step ? raw_say(&self->low, &m) : 0);
			if (how)
				rdma_disconnect(self->low.id);
			raw_close(&self->low);
			dev_sleep(0.1);
			EXPECT_TRUE(DEV_SOON(10, mesh_state(self->v.low) ==
					     KCR_CONN_EXPECTED));
			EXPECT_EQ(0, dev_cause(self->v.status));
		}
	}
	expect_up(_metadata, &self->v, &self->low);
}

/*
 * Who says nothing is in the way for as long as a proof may take (10 s), and then out; the
 * right one, whom it kept out, comes again.
 */
TEST_F_TIMEOUT(waits, silence, 60)
{
	struct kcr_conn_status *s;
	int fd;

	come(_metadata, &self->low);
	fd = dev_member(&self->v.world, 0);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, mesh_connect(fd, 1, 0));
	s = mesh_status(fd, 1, 0);
	ASSERT_NE(MAP_FAILED, s);
	EXPECT_TRUE(DEV_SOON(5, s->reason == KCR_REASON_DUPLICATE));
	EXPECT_EQ(RAW_UNPROVEN, s->detail);
	EXPECT_EQ(KCR_CONN_CONNECTING, mesh_state(s));
	EXPECT_FALSE(mesh_is_up(self->v.low));
	EXPECT_TRUE(DEV_SOON(20, mesh_is_up(s) && mesh_is_up(self->v.low))) {
		MESH_LOG(s);
		MESH_LOG(self->v.low);
	}
	EXPECT_EQ(KCR_REASON_KEY, self->v.low->reason);
	expect_hung_up(_metadata, &self->low);
	EXPECT_EQ(0, dev_cause(self->v.status));
	munmap(s, sizeof(*s));
	close(fd);
}

/* The world has failed, and the connection's start comes after. */
TEST_F(waits, told_of_an_older_failure)
{
	struct raw_message m = raw_message(RAW_PING);

	/* Someone who is turned away makes no difference to that. */
	ASSERT_EQ(0, dev_fail(self->v.fd, ENOSPC));
	come(_metadata, &self->low);
	ASSERT_EQ(0, raw_say(&self->low, &m));
	expect_hung_up(_metadata, &self->low);
	raw_close(&self->low);
	ASSERT_EQ(0, raw_come_up(&self->low));
	ASSERT_TRUE(raw_hears(&self->low, RAW_FAIL, 10));
	EXPECT_EQ(1, self->low.last[RAW_FAIL].fail.rank);
	EXPECT_EQ(ENOSPC, self->low.last[RAW_FAIL].fail.error);
}

/* Neither proof nor end. */
TEST(silent)
{
	struct dev_counters before;
	struct victim v = { .fd = -1 };
	struct raw low;

	START(&v, &before);
	low = raw_peer(&v.world, 0, 1, true);
	ASSERT_EQ(0, victim_expect(&v, 5000));
	come(_metadata, &low);
	expect_failed(_metadata, v.low, KCR_REASON_TIMEOUT, ETIMEDOUT);
	EXPECT_EQ(0, dev_cause(v.status));
	expect_hung_up(_metadata, &low);
	raw_close(&low);
	END(&v, &before);
}

/* A victim that is told to connect and out of time at once, often. */
TEST_F(waits, no_time)
{
	for (int i = 0; i < 50; i++) {
		struct victim v = { .fd = -1 };

		ASSERT_EQ(0, victim_join(&v));
		ASSERT_EQ(0, victim_connect(&v, 0, 1 + i % 20));
		EXPECT_TRUE(DEV_SOON(10, mesh_state(v.high) == KCR_CONN_FAILED));
		EXPECT_EQ(0, dev_cause(v.status));
		victim_free(&v);
	}
}

/* ---- whom a victim connects to ---- */

FIXTURE(connects) {
	struct dev_counters before;
	struct victim v;
	struct raw high;
};

FIXTURE_SETUP(connects)
{
	START(&self->v, &self->before);
	self->high = raw_peer(&self->v.world, 1, 2, false);
	ASSERT_EQ(0, raw_listen(&self->high, RAW_PORT));
}

FIXTURE_TEARDOWN(connects)
{
	if (self->v.fd < 0)
		return;
	EXPECT_EQ(0, self->high.heard[RAW_WELCOME]);
	raw_close(&self->high);
	END(&self->v, &self->before);
}

TEST_F(connects, up)
{
	ASSERT_EQ(0, victim_connect(&self->v, RAW_PORT, 20000));
	ASSERT_EQ(0, raw_let_up(&self->high));
	EXPECT_TRUE(DEV_SOON(10, mesh_is_up(self->v.high)));
	raw_close(&self->high);
	expect_broken(_metadata, &self->v, self->v.high, 2, KCR_REASON_GONE, EHOSTUNREACH);
}

/* A peer that says it is busy with another. */
static int refuse_busy(struct raw *r, double seconds)
{
	struct raw_reject reject = {
		.magic = RAW_MAGIC, .version = RAW_VERSION,
		.reason = KCR_REASON_DUPLICATE, .detail = RAW_UNPROVEN,
	};
	int err = raw_event_is(r, RDMA_CM_EVENT_CONNECT_REQUEST, seconds);

	if (err)
		return err;
	err = rdma_reject(r->id, &reject, sizeof(reject)) ? -errno : 0;
	rdma_destroy_id(r->id);
	r->id = NULL;
	return err;
}

/* ... is asked again, and may let it in then; */
TEST_F(connects, busy)
{
	ASSERT_EQ(0, victim_connect(&self->v, RAW_PORT, 20000));
	for (int i = 0; i < 3; i++) {
		ASSERT_EQ(0, refuse_busy(&self->high, 10));
		EXPECT_NE(KCR_CONN_FAILED, mesh_state(self->v.high));
	}
	ASSERT_EQ(0, raw_let_up(&self->high));
	EXPECT_TRUE(DEV_SOON(10, mesh_is_up(self->v.high)));
	EXPECT_EQ(0, dev_cause(self->v.status));
}

/* ... for as long as there is time, */
TEST_F(connects, busy_for_ever)
{
	int asked = 0;

	ASSERT_EQ(0, victim_connect(&self->v, RAW_PORT, 3000));
	while (!refuse_busy(&self->high, 2))
		asked++;
	TH_LOG("asked %d times", asked);
	EXPECT_LT(1, asked);
	expect_failed(_metadata, self->v.high, KCR_REASON_DUPLICATE, ETIMEDOUT);
	EXPECT_EQ(0, dev_cause(self->v.status));
}

/* ... and not by one that has left meanwhile. */
TEST_F_TIMEOUT(connects, busy_and_left, 60)
{
	for (int i = 0; i < 20; i++) {
		ASSERT_EQ(0, victim_connect(&self->v, RAW_PORT, 20000));
		ASSERT_EQ(0, refuse_busy(&self->high, 10));
		dev_sleep(0.02 * i);
		victim_free(&self->v);
		/* It may have asked again before. */
		while (!refuse_busy(&self->high, 0.05))
			;
		ASSERT_EQ(0, victim_join(&self->v));
	}
	dev_sleep(0.5);
	while (!refuse_busy(&self->high, 0.05))
		;
	EXPECT_GT(0, refuse_busy(&self->high, 1));
}

/* What the victim says is what is written in wire.h. */
TEST_F(connects, request)
{
	struct raw_request *q = &self->high.request;
	static const __u8 zero[8];

	ASSERT_EQ(0, victim_connect(&self->v, RAW_PORT, 20000));
	ASSERT_EQ(0, raw_requested(&self->high));
	EXPECT_LE(sizeof(*q), self->high.bytes);
	EXPECT_EQ(RAW_MAGIC, q->magic);
	EXPECT_EQ(RAW_VERSION, q->version);
	EXPECT_EQ(RAW_VERSION, q->version_min);
	EXPECT_EQ(0, memcmp(q->world, self->v.world.id, 16));
	EXPECT_EQ(1, q->from);
	EXPECT_EQ(2, q->to);
	EXPECT_EQ(RANKS, q->ranks);
	EXPECT_EQ(0, q->wire);
	EXPECT_EQ(DEPTH, q->depth);
	EXPECT_EQ(0, memcmp(q->reserved, zero, 8));
	EXPECT_GT(RAW_FOR_EVER, self->high.retries);
	EXPECT_GT(RAW_FOR_EVER, self->high.rnr_retries);
	EXPECT_EQ(0, self->high.asked_to_send);
	EXPECT_EQ(0, self->high.asked_to_take);
}

FIXTURE(answers) {
	struct dev_counters before;
	struct victim v;
	struct raw high;
};

/* How the higher rank's side answers a victim, and how that takes it. */
FIXTURE_VARIANT(answers) {
	int (*answer)(struct raw *r);
	__u32 reason;
	__u32 error;
	__u32 detail;	/* or 0: whatever it is */
};

FIXTURE_SETUP(answers)
{
	START(&self->v, &self->before);
	self->high = raw_peer(&self->v.world, 1, 2, false);
	ASSERT_EQ(0, raw_listen(&self->high, RAW_PORT));
	ASSERT_EQ(0, victim_connect(&self->v, RAW_PORT, 4000));
	ASSERT_EQ(0, raw_requested(&self->high));
}

FIXTURE_TEARDOWN(answers)
{
	if (self->v.fd < 0)
		return;
	raw_close(&self->high);
	END(&self->v, &self->before);
}

/* A connection that never was up takes nobody along. */
TEST_F(answers, answer)
{
	EXPECT_EQ(0, variant->answer(&self->high));
	expect_failed(_metadata, self->v.high, variant->reason, variant->error);
	if (variant->detail)
		EXPECT_EQ(variant->detail, self->v.high->detail);
	EXPECT_EQ(0, dev_cause(self->v.status));
}

#define ANSWER(fn, want_reason, want_error) {				\
	.answer = answer_##fn,						\
	.reason = KCR_REASON_##want_reason,				\
	.error = want_error,						\
}

static int answer_wrong_proof(struct raw *r)
{
	struct raw_accept a = raw_acceptance(r);

	a.proof[0] ^= 1;
	return raw_accept(r, &a, sizeof(a));
}

FIXTURE_VARIANT_ADD(answers, wrong_proof) ANSWER(wrong_proof, KEY, EKEYREJECTED);

/* The proof of the other side's label. */
static int answer_low_proof(struct raw *r)
{
	struct raw_accept a = raw_acceptance(r);

	raw_proof(r, true, a.proof);
	return raw_accept(r, &a, sizeof(a));
}

FIXTURE_VARIANT_ADD(answers, low_proof) ANSWER(low_proof, KEY, EKEYREJECTED);

static int answer_wrong_magic(struct raw *r)
{
	struct raw_accept a = raw_acceptance(r);

	a.magic ^= 1;
	return raw_accept(r, &a, sizeof(a));
}

FIXTURE_VARIANT_ADD(answers, wrong_magic) ANSWER(wrong_magic, FORMAT, EPROTO);

static int answer_wrong_version(struct raw *r)
{
	struct raw_accept a = raw_acceptance(r);

	a.version++;
	return raw_accept(r, &a, sizeof(a));
}

FIXTURE_VARIANT_ADD(answers, wrong_version) ANSWER(wrong_version, FORMAT, EPROTO);

static int answer_reserved(struct raw *r)
{
	struct raw_accept a = raw_acceptance(r);

	a.reserved = 1;
	return raw_accept(r, &a, sizeof(a));
}

FIXTURE_VARIANT_ADD(answers, reserved) ANSWER(reserved, FORMAT, EPROTO);

static int answer_nothing(struct raw *r)
{
	return raw_accept(r, NULL, 0);
}

FIXTURE_VARIANT_ADD(answers, nothing) ANSWER(nothing, FORMAT, EPROTO);

static int answer_half_a_proof(struct raw *r)
{
	struct raw_accept a = raw_acceptance(r);

	return raw_accept(r, &a, sizeof(a) - 16);
}

FIXTURE_VARIANT_ADD(answers, half_a_proof) ANSWER(half_a_proof, KEY, EKEYREJECTED);

static int answer_for_ever(struct raw *r)
{
	struct raw_accept a = raw_acceptance(r);

	r->is_endless = true;
	return raw_accept(r, &a, sizeof(a));
}

FIXTURE_VARIANT_ADD(answers, for_ever) ANSWER(for_ever, FORMAT, EPROTO);

/* ... or take reads and atomics, or send them. */
static int answer_sends_reads(struct raw *r)
{
	struct raw_accept a = raw_acceptance(r);

	r->sends_reads = 1;
	return raw_accept(r, &a, sizeof(a));
}

FIXTURE_VARIANT_ADD(answers, sends_reads) ANSWER(sends_reads, FORMAT, EPROTO);

static int answer_takes_reads(struct raw *r)
{
	struct raw_accept a = raw_acceptance(r);

	r->takes_reads = 1;
	return raw_accept(r, &a, sizeof(a));
}

FIXTURE_VARIANT_ADD(answers, takes_reads) ANSWER(takes_reads, FORMAT, EPROTO);

static int answer_no(struct raw *r)
{
	return rdma_reject(r->id, NULL, 0) ? -errno : 0;
}

FIXTURE_VARIANT_ADD(answers, no) ANSWER(no, REJECTED, ECONNREFUSED);

static int answer_no_with_noise(struct raw *r)
{
	return rdma_reject(r->id, "no, and nothing of yours", 24) ? -errno : 0;
}

FIXTURE_VARIANT_ADD(answers, no_with_noise) ANSWER(no_with_noise, REJECTED, ECONNREFUSED);

static int reject_as(struct raw *r, __u16 version, __u16 reason, __u32 detail)
{
	struct raw_reject reject = {
		.magic = RAW_MAGIC, .version = version, .reason = reason, .detail = detail,
	};

	return rdma_reject(r->id, &reject, sizeof(reject)) ? -errno : 0;
}

static int reject_with(struct raw *r, __u16 reason)
{
	return reject_as(r, RAW_VERSION, reason, 7);
}

static int answer_no_rank(struct raw *r)
{
	return reject_with(r, KCR_REASON_RANK);
}

FIXTURE_VARIANT_ADD(answers, no_rank) ANSWER(no_rank, RANK, ENOENT);

static int answer_another_version(struct raw *r)
{
	return reject_as(r, RAW_VERSION + 1, KCR_REASON_VERSION, RAW_VERSION + 1);
}

/* What this node's module speaks is its own to say, in the same word. */
FIXTURE_VARIANT_ADD(answers, another_version) {
	.answer = answer_another_version,
	.reason = KCR_REASON_VERSION,
	.error = EPROTO,
	.detail = RAW_VERSION << 16 | (RAW_VERSION + 1),
};

static int answer_no_world(struct raw *r)
{
	return reject_with(r, KCR_REASON_WORLD);
}

FIXTURE_VARIANT_ADD(answers, no_world) ANSWER(no_world, WORLD, ENOENT);

static int answer_twice(struct raw *r)
{
	return reject_with(r, KCR_REASON_DUPLICATE);
}

FIXTURE_VARIANT_ADD(answers, twice) ANSWER(twice, DUPLICATE, EEXIST);

static int answer_crossed(struct raw *r)
{
	return reject_with(r, KCR_REASON_CROSSED);
}

FIXTURE_VARIANT_ADD(answers, crossed) {
	.answer = answer_crossed,
	.reason = KCR_REASON_CROSSED,
	.error = ECONNREFUSED,
	.detail = 7,
};

/* Reasons that nobody gives, or that are no answer to a request. */
static int answer_no_reason(struct raw *r)
{
	return reject_with(r, KCR_REASON_NONE);
}

FIXTURE_VARIANT_ADD(answers, no_reason) ANSWER(no_reason, FORMAT, EPROTO);

static int answer_unknown_reason(struct raw *r)
{
	return reject_with(r, 0xffff);
}

FIXTURE_VARIANT_ADD(answers, unknown_reason) ANSWER(unknown_reason, FORMAT, EPROTO);

static int answer_not_its_reason(struct raw *r)
{
	return reject_with(r, KCR_REASON_GONE);
}

FIXTURE_VARIANT_ADD(answers, not_its_reason) ANSWER(not_its_reason, FORMAT, EPROTO);

static int answer_never(struct raw *r)
{
	return 0;
}

FIXTURE_VARIANT_ADD(answers, never) ANSWER(never, TIMEOUT, ETIMEDOUT);

static int answer_rightly(struct raw *r)
{
	struct raw_accept a = raw_acceptance(r);
	int err = raw_accept(r, &a, sizeof(a));

	return err ?: raw_event_is(r, RDMA_CM_EVENT_ESTABLISHED, 10);
}

/* No WELCOME. */
static int answer_and_wait(struct raw *r)
{
	int err = answer_rightly(r);

	return err ?: raw_hears(r, RAW_HELLO, 10) ? 0 : -ETIME;
}

FIXTURE_VARIANT_ADD(answers, and_wait) ANSWER(and_wait, TIMEOUT, ETIMEDOUT);

static int answer_and_vanish(struct raw *r)
{
	int err = answer_rightly(r);

	raw_close(r);
	return err;
}

FIXTURE_VARIANT_ADD(answers, and_vanish) ANSWER(and_vanish, GONE, ECONNRESET);

static int answer_and_hang_up(struct raw *r)
{
	int err = answer_and_wait(r);

	return err ?: rdma_disconnect(r->id);
}

FIXTURE_VARIANT_ADD(answers, and_hang_up) ANSWER(and_hang_up, GONE, ECONNRESET);

static int answer_then(struct raw *r, const struct raw_message *m)
{
	int err = answer_rightly(r);

	return err ?: raw_hears(r, RAW_HELLO, 10) ? raw_say(r, m) : -ETIME;
}

static int answer_hello(struct raw *r)
{
	struct raw_message m = raw_hello(r);

	return answer_then(r, &m);
}

FIXTURE_VARIANT_ADD(answers, hello) ANSWER(hello, PROTOCOL, EBADMSG);

static int answer_opened(struct raw *r)
{
	struct raw_message m = raw_about_ring(RAW_OPENED, 0, 0, DEPTH);

	return answer_then(r, &m);
}

FIXTURE_VARIANT_ADD(answers, opened) ANSWER(opened, PROTOCOL, EBADMSG);

static int answer_bye(struct raw *r)
{
	struct raw_message m = raw_message(RAW_BYE);

	return answer_then(r, &m);
}

FIXTURE_VARIANT_ADD(answers, bye) ANSWER(bye, PROTOCOL, EBADMSG);

static int answer_frame(struct raw *r)
{
	int err = answer_rightly(r);

	return err ?: raw_write(r, NULL, 0, 0, raw_imm(0, 0));
}

FIXTURE_VARIANT_ADD(answers, frame) ANSWER(frame, PROTOCOL, EBADMSG);

/* What comes before the end of rdma_cm's own handshake. */
static int answer_too_fast(struct raw *r)
{
	struct raw_accept a = raw_acceptance(r);
	struct raw_message m = raw_message(RAW_PING);
	int err = raw_accept(r, &a, sizeof(a));

	while (!err && r->sending < 32)
		err = raw_say(r, &m);
	return 0;
}

FIXTURE_VARIANT_ADD(answers, too_fast) ANSWER(too_fast, PROTOCOL, EBADMSG);

/*
 * Gone without a word, as if rdma_cm's had got lost: found out long before the time to
 * connect is over.
 */
TEST_F_TIMEOUT(connects, peer_is_lost, 120)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	ASSERT_EQ(0, victim_connect(&self->v, RAW_PORT, 90000));
	ASSERT_EQ(0, raw_requested(&self->high));
	ASSERT_EQ(0, answer_and_wait(&self->high));
	/* It waits for as long as it is asked to. */
	dev_sleep(3);
	EXPECT_EQ(KCR_CONN_CONNECTING, mesh_state(self->v.high));
	ASSERT_EQ(0, ibv_modify_qp(self->high.id->qp, &attr, IBV_QP_STATE));
	EXPECT_TRUE(DEV_SOON(40, mesh_state(self->v.high) != KCR_CONN_CONNECTING));
	expect_failed(_metadata, self->v.high, KCR_REASON_COMPLETION, EHOSTUNREACH);
	EXPECT_EQ(IBV_WC_RETRY_EXC_ERR, self->v.high->detail);
	EXPECT_EQ(0, dev_cause(self->v.status));
}

/* ---- who has proven itself, and then ---- */

FIXTURE(proven) {
	struct dev_counters before;
	struct victim v;
	struct raw low;
};

static void prove(struct __test_metadata *_metadata, struct victim *v, struct raw *low)
{
	ASSERT_EQ(0, victim_expect(v, 20000));
	ASSERT_EQ(0, raw_come_up(low));
	/* Its page says so a moment after it has told the peer. */
	ASSERT_TRUE(DEV_SOON(10, mesh_is_up(v->low)));
}

static void set_up_proven(struct __test_metadata *_metadata, struct victim *v, struct raw *low)
{
	*low = raw_peer(&v->world, 0, 1, true);
	prove(_metadata, v, low);
}

FIXTURE_SETUP(proven)
{
	START(&self->v, &self->before);
	set_up_proven(_metadata, &self->v, &self->low);
}

FIXTURE_TEARDOWN(proven)
{
	if (self->v.fd < 0)
		return;
	raw_close(&self->low);
	END(&self->v, &self->before);
}

/* The victim opens a ring; where it is. */
static int open_ring(struct victim *v, struct raw *r, __u32 peer, int class,
		     struct raw_ring *ring)
{
	int err;

	r->heard[RAW_OPENED] = 0;
	err = mesh_frames(v->fd, peer, 0, 0, class);
	if (err)
		return err;
	if (!raw_hears(r, RAW_OPENED, 10))
		return -ETIME;
	*ring = r->last[RAW_OPENED].ring;
	return 0;
}

/* What is allowed, however often. */
TEST_F_TIMEOUT(proven, flood, 120)
{
	struct raw_message m = raw_message(RAW_PING);

	for (int i = 0; i < 10000; i++) {
		ASSERT_TRUE(DEV_SOON(20, ({ raw_poll(&self->low);
					    self->low.sending < RAW_SENDS; })));
		m.type = i % 100 ? RAW_PING : RAW_WANT;
		ASSERT_EQ(0, raw_say(&self->low, &m));
	}
	EXPECT_EQ(IBV_WC_SUCCESS, raw_sent(&self->low));
	EXPECT_EQ(KCR_CONN_UP, mesh_state(self->v.low));
	EXPECT_TRUE(DEV_SOON(10, self->v.low->rings[0][0].wanted));
	EXPECT_EQ(0, dev_cause(self->v.status));
}

/* Frames as they should be, and what the victim says of them. */
TEST_F(proven, frames)
{
	struct raw_ring ring;

	ASSERT_EQ(0, open_ring(&self->v, &self->low, 0, 0, &ring));
	EXPECT_EQ(0, ring.stream);
	EXPECT_EQ(0, ring.class);
	EXPECT_EQ(DEPTH, ring.depth);
	for (int i = 0; i < DEPTH; i++)
		ASSERT_EQ(0, raw_write(&self->low, &ring, i * 4096, 4096, raw_imm(0, 0)));
	EXPECT_EQ(IBV_WC_SUCCESS, raw_sent(&self->low));
	EXPECT_TRUE(DEV_SOON(10, mesh_arrived(self->v.low, 0, 0) == DEPTH));
	EXPECT_EQ(0, mesh_release(self->v.fd, 0, 0, 0, 0, 2));
	EXPECT_TRUE(DEV_SOON(10, ({ raw_poll(&self->low); self->low.imms; })));
	EXPECT_EQ(KCR_CONN_UP, mesh_state(self->v.low));
}

/* The other has left: nothing has failed, and nobody can be sent to. */
TEST_F(proven, bye)
{
	struct raw_message m = raw_message(RAW_BYE);

	ASSERT_EQ(0, raw_say(&self->low, &m));
	EXPECT_TRUE(DEV_SOON(10, mesh_state(self->v.low) == KCR_CONN_LEFT));
	EXPECT_EQ(-ENOTCONN, mesh_send(self->v.fd, 0, 0, 0, 0, 8, 1));
	raw_close(&self->low);
	dev_sleep(0.3);
	EXPECT_EQ(KCR_CONN_LEFT, mesh_state(self->v.low));
	EXPECT_EQ(0, dev_cause(self->v.status));
}

/* ... and has told of a failure: it is the world's, with the rank it names. */
TEST_F(proven, fail)
{
	struct raw_message m = raw_message(RAW_FAIL);

	m.fail = (struct raw_fail){ .rank = 2, .error = ENOMEM };
	ASSERT_EQ(0, raw_say(&self->low, &m));
	EXPECT_TRUE(DEV_SOON(10, dev_cause(self->v.status)));
	EXPECT_EQ(KCR_CAUSE(2, ENOMEM), dev_cause(self->v.status));
}

/* Who reads too slowly, or not at all, is not waited for. */
TEST_F(proven, vanishes)
{
	raw_close(&self->low);
	expect_broken(_metadata, &self->v, self->v.low, 0, KCR_REASON_GONE, EHOSTUNREACH);
}

/* ---- who is up, and takes nothing any more ---- */

/* As the InfiniBand specification writes it: the shortest and the longest there are. */
#define RNR_10_US	1
#define RNR_655_MS	0

FIXTURE(deaf) {
	struct dev_counters before;
	struct victim v;
	struct raw low;
};

/* How long the victim is told to wait each time, and what it has to say but that it lives. */
FIXTURE_VARIANT(deaf) {
	__u8 timer;
	bool has_frames;
};

FIXTURE_VARIANT_ADD(deaf, soon) { .timer = RNR_10_US };
FIXTURE_VARIANT_ADD(deaf, late) { .timer = RNR_655_MS };
FIXTURE_VARIANT_ADD(deaf, frames_soon) { .timer = RNR_10_US, .has_frames = true };
FIXTURE_VARIANT_ADD(deaf, frames_late) { .timer = RNR_655_MS, .has_frames = true };

FIXTURE_SETUP(deaf)
{
	START(&self->v, &self->before);
	self->low = raw_peer(&self->v.world, 0, 1, true);
	self->low.is_deaf = true;
	prove(_metadata, &self->v, &self->low);
}

FIXTURE_TEARDOWN(deaf)
{
	if (self->v.fd < 0)
		return;
	raw_close(&self->low);
	END(&self->v, &self->before);
}

/* All that the ring has room for, as soon as the victim has heard of it. */
static int send_frames(struct victim *v, struct raw *low)
{
	struct raw_message m = raw_about_ring(RAW_OPENED, 0, 0, DEPTH);
	int err;

	m.ring.rkey = low->mr->rkey;
	m.ring.address = (unsigned long)low->memory + RAW_SEND_AT;
	err = raw_say(low, &m);
	if (!err && !DEV_SOON(10, mesh_limit(v->low, 0, 0) == DEPTH))
		err = -ETIME;
	for (__u64 s = 1; s <= DEPTH && !err; s++)
		err = mesh_send(v->fd, 0, 0, 0, 0, KCR_CLASS_BYTES(0), s);
	return err;
}

/* If not, it is told once more that its peer lives. */
static bool has_failed(struct victim *v, struct raw *low)
{
	struct raw_message m = raw_message(RAW_PING);

	raw_poll(low);
	if (!low->sending)
		raw_say(low, &m);
	return mesh_state(v->low) == KCR_CONN_FAILED;
}

/*
 * What the victim says finds nothing posted: that is tried again a few times, not for
 * ever, and then is an error, although the peer is there.
 */
TEST_F_TIMEOUT(deaf, up, 60)
{
	struct victim *v = &self->v;
	struct raw *low = &self->low;

	/* What the victim would have done to it. */
	EXPECT_GT(RAW_FOR_EVER, low->rnr_retries);
	if (variant->has_frames)
		ASSERT_EQ(0, send_frames(v, low));
	ASSERT_EQ(0, raw_set_rnr_timer(low, variant->timer));
	EXPECT_TRUE(DEV_SOON(20, has_failed(v, low)));
	expect_broken(_metadata, v, v->low, 0, KCR_REASON_COMPLETION, EHOSTUNREACH);
	EXPECT_EQ(IBV_WC_RNR_RETRY_EXC_ERR, v->low->detail);
	EXPECT_EQ(1, low->heard[RAW_WELCOME]);
	EXPECT_EQ(-ENOTCONN, mesh_send(v->fd, 0, 0, 0, 0, 8, DEPTH + 1));
}

FIXTURE(breaks) {
	struct dev_counters before;
	struct victim v;
	struct raw low;
};

FIXTURE_VARIANT(breaks) {
	int (*act)(struct victim *v, struct raw *r);
};

FIXTURE_SETUP(breaks)
{
	START(&self->v, &self->before);
	set_up_proven(_metadata, &self->v, &self->low);
}

FIXTURE_TEARDOWN(breaks)
{
	if (self->v.fd < 0)
		return;
	raw_close(&self->low);
	END(&self->v, &self->before);
}

TEST_F(breaks, rule)
{
	EXPECT_EQ(0, variant->act(&self->v, &self->low));
	expect_broken(_metadata, &self->v, self->v.low, 0, KCR_REASON_PROTOCOL, EBADMSG);
	expect_hung_up(_metadata, &self->low);
}

#define BREAKS(name) { .act = break_##name }

#define BREAKS_BY_SAYING(name, ...)					\
	static int break_##name(struct victim *v, struct raw *r)	\
	{								\
		struct raw_message m = raw_message(RAW_PING);		\
		size_t bytes = sizeof(m);				\
									\
		__VA_ARGS__;						\
		return raw_send(r, &m, bytes);				\
	}								\
	FIXTURE_VARIANT_ADD(breaks, name) BREAKS(name)

BREAKS_BY_SAYING(no_bytes, bytes = 0);
BREAKS_BY_SAYING(a_byte, bytes = 1);
BREAKS_BY_SAYING(a_byte_too_few, bytes--);
BREAKS_BY_SAYING(magic, m.magic ^= 0x100);
BREAKS_BY_SAYING(credits, m.credits = 1);
BREAKS_BY_SAYING(credits_most, m.credits = 255);
BREAKS_BY_SAYING(reserved, m.reserved[1] = 1);
BREAKS_BY_SAYING(type_0, m.type = 0);
BREAKS_BY_SAYING(type_14, m.type = RAW_TYPES);
BREAKS_BY_SAYING(type_255, m.type = 255);
BREAKS_BY_SAYING(hello, m = raw_hello(r));
BREAKS_BY_SAYING(welcome, m.type = RAW_WELCOME);
BREAKS_BY_SAYING(want_stream, m = raw_about_ring(RAW_WANT, KCR_STREAMS, 0, 0));
BREAKS_BY_SAYING(want_class, m = raw_about_ring(RAW_WANT, 0, KCR_CLASSES, 0));
BREAKS_BY_SAYING(want_255, m = raw_about_ring(RAW_WANT, 255, 255, 0));
BREAKS_BY_SAYING(opened_stream, m = raw_about_ring(RAW_OPENED, KCR_STREAMS, 0, DEPTH));
BREAKS_BY_SAYING(opened_class, m = raw_about_ring(RAW_OPENED, 0, KCR_CLASSES, DEPTH));
BREAKS_BY_SAYING(opened_no_depth, m = raw_about_ring(RAW_OPENED, 0, 0, 0));
BREAKS_BY_SAYING(opened_depth, m = raw_about_ring(RAW_OPENED, 0, 0, DEPTH + 1));
BREAKS_BY_SAYING(opened_most, m = raw_about_ring(RAW_OPENED, 0, 0, 0xffff));
BREAKS_BY_SAYING(lane_window, m = raw_about_lane(KCR_MAX_WINDOWS, 0, 1, 1, 1));
BREAKS_BY_SAYING(lane_window_255, m = raw_about_lane(255, 0, 1, 1, 1));
BREAKS_BY_SAYING(lane_of_others, m = raw_about_lane(3, 0, 2, 1, 1));
BREAKS_BY_SAYING(lane_from_others, m = raw_about_lane(3, 2, 1, 1, 1));
BREAKS_BY_SAYING(lane_to_itself, m = raw_about_lane(3, 1, 1, 1, 1));
BREAKS_BY_SAYING(lane_flags, m = raw_about_lane(3, 0, 1, 1, 1); m.lane.flags = 2);
BREAKS_BY_SAYING(lane_reserved, m = raw_about_lane(3, 0, 1, 1, 1); m.lane.reserved = 1);
BREAKS_BY_SAYING(end_window, m = raw_about_end(RAW_UNLANE, KCR_MAX_WINDOWS, 0, 0));
BREAKS_BY_SAYING(end_of_others, m = raw_about_end(RAW_UNLANE, 3, 2, 0));
BREAKS_BY_SAYING(end_of_nobody, m = raw_about_end(RAW_ARM, 3, 0xffff, 0));
BREAKS_BY_SAYING(end_more, m = raw_about_end(RAW_ARM, 3, 0, 0); m.end.more = RAW_RINGS);
BREAKS_BY_SAYING(end_more_of_ring, m = raw_about_end(RAW_RING, 3, 1, 0); m.end.more = 1);
BREAKS_BY_SAYING(end_reserved2, m = raw_about_end(RAW_RING, 3, 1, 0); m.end.reserved2 = 1);
BREAKS_BY_SAYING(unlaned, m = raw_about_end(RAW_UNLANED, 3, 0, 0));
BREAKS_BY_SAYING(unlaned_out, m = raw_about_end(RAW_UNLANED, 15, 1, 0));
BREAKS_BY_SAYING(fail_rank, m.type = RAW_FAIL; m.fail.rank = RANKS; m.fail.error = EIO);
BREAKS_BY_SAYING(fail_rank_most, m.type = RAW_FAIL; m.fail.rank = ~0u; m.fail.error = EIO);
BREAKS_BY_SAYING(fail_nothing, m.type = RAW_FAIL);
BREAKS_BY_SAYING(fail_error, m.type = RAW_FAIL; m.fail.error = 4096);

/* More than there is room for: the device gives the whole receive back. */
static int break_a_byte_too_many(struct victim *v, struct raw *r)
{
	return raw_send(r, NULL, sizeof(struct raw_message) + 1);
}

FIXTURE_VARIANT_ADD(breaks, a_byte_too_many) BREAKS(a_byte_too_many);

static int break_far_too_many(struct victim *v, struct raw *r)
{
	return raw_send(r, NULL, 65536);
}

FIXTURE_VARIANT_ADD(breaks, far_too_many) BREAKS(far_too_many);

/* A message that takes away a key of the victim's, be it the sender's own ring's. */
static int break_invalidates(struct victim *v, struct raw *r)
{
	struct raw_message m = raw_message(RAW_PING);
	struct raw_ring ring;

	/* Where others have an immediate, this has the key. */
	return open_ring(v, r, 0, 0, &ring) ?:
	       raw_post(r, IBV_WR_SEND_WITH_INV, &m, sizeof(m), 0, 0, ntohl(ring.rkey));
}

FIXTURE_VARIANT_ADD(breaks, invalidates) BREAKS(invalidates);

static int break_opened_twice(struct victim *v, struct raw *r)
{
	struct raw_message m = raw_about_ring(RAW_OPENED, 2, 7, DEPTH);

	return raw_say(r, &m) ?: raw_say(r, &m);
}

FIXTURE_VARIANT_ADD(breaks, opened_twice) BREAKS(opened_twice);

static int break_neither_frame_nor_credit(struct victim *v, struct raw *r)
{
	return raw_write(r, NULL, 0, 0, raw_imm(RAW_NO_FRAME, 0));
}

FIXTURE_VARIANT_ADD(breaks, neither_frame_nor_credit) BREAKS(neither_frame_nor_credit);

/* A write that rings for a lane that there cannot be, or says more than that. */
#define BREAKS_BY_RINGING(name, imm)					\
	static int break_##name(struct victim *v, struct raw *r)	\
	{								\
		return raw_write(r, NULL, 0, 0, imm);			\
	}								\
	FIXTURE_VARIANT_ADD(breaks, name) BREAKS(name)

BREAKS_BY_RINGING(rung_window, raw_rung(KCR_MAX_WINDOWS, true));
BREAKS_BY_RINGING(rung_window_most, raw_rung(0xffffff, false));
BREAKS_BY_RINGING(rung_bit_5, raw_rung(3, true) | 1 << 5);
BREAKS_BY_RINGING(rung_bit_7, raw_rung(3, false) | 1 << 7);

static int break_credit_stream(struct victim *v, struct raw *r)
{
	return raw_write(r, NULL, 0, 0, raw_imm(RAW_NO_FRAME, 0) | raw_credit(3, 0, 0));
}

FIXTURE_VARIANT_ADD(breaks, credit_stream) BREAKS(credit_stream);

static int break_credit_closed(struct victim *v, struct raw *r)
{
	return raw_write(r, NULL, 0, 0, raw_imm(RAW_NO_FRAME, 0) | raw_credit(2, 7, 0));
}

FIXTURE_VARIANT_ADD(breaks, credit_closed) BREAKS(credit_closed);

static int break_credit_not_sent(struct victim *v, struct raw *r)
{
	struct raw_message m = raw_about_ring(RAW_OPENED, 0, 0, DEPTH);

	return raw_say(r, &m) ?:
	       raw_write(r, NULL, 0, 0, raw_imm(RAW_NO_FRAME, 0) | raw_credit(0, 0, 1));
}

FIXTURE_VARIANT_ADD(breaks, credit_not_sent) BREAKS(credit_not_sent);

/* Less than was returned already, so to say. */
static int break_credit_back(struct victim *v, struct raw *r)
{
	struct raw_message m = raw_about_ring(RAW_OPENED, 0, 0, DEPTH);

	return raw_say(r, &m) ?:
	       raw_write(r, NULL, 0, 0, raw_imm(RAW_NO_FRAME, 0) |
			 raw_credit(0, 0, 0x1fffff));
}

FIXTURE_VARIANT_ADD(breaks, credit_back) BREAKS(credit_back);

static int break_frame_closed(struct victim *v, struct raw *r)
{
	return raw_write(r, NULL, 0, 0, raw_imm(1, 3));
}

FIXTURE_VARIANT_ADD(breaks, frame_closed) BREAKS(frame_closed);

static int break_frame_of_another_ring(struct victim *v, struct raw *r)
{
	struct raw_ring ring;

	return open_ring(v, r, 0, 0, &ring) ?: raw_write(r, &ring, 0, 8, raw_imm(0, 1));
}

FIXTURE_VARIANT_ADD(breaks, frame_of_another_ring) BREAKS(frame_of_another_ring);

static int break_frame_without_bytes(struct victim *v, struct raw *r)
{
	struct raw_ring ring;

	return open_ring(v, r, 0, 0, &ring) ?: raw_write(r, &ring, 0, 0, raw_imm(0, 0));
}

FIXTURE_VARIANT_ADD(breaks, frame_without_bytes) BREAKS(frame_without_bytes);

static int break_frame_too_long(struct victim *v, struct raw *r)
{
	struct raw_ring ring;

	return open_ring(v, r, 0, 0, &ring) ?: raw_write(r, &ring, 0, 4097, raw_imm(0, 0));
}

FIXTURE_VARIANT_ADD(breaks, frame_too_long) BREAKS(frame_too_long);

static int break_bytes_without_frame(struct victim *v, struct raw *r)
{
	struct raw_message m = raw_about_ring(RAW_OPENED, 0, 0, DEPTH);
	struct raw_ring ring;

	return open_ring(v, r, 0, 0, &ring) ?: raw_say(r, &m) ?:
	       raw_write(r, &ring, 0, 8, raw_imm(RAW_NO_FRAME, 0) | raw_credit(0, 0, 0));
}

FIXTURE_VARIANT_ADD(breaks, bytes_without_frame) BREAKS(bytes_without_frame);

static int break_frames_without_credit(struct victim *v, struct raw *r)
{
	struct raw_ring ring;
	int err = open_ring(v, r, 0, 0, &ring);

	for (int i = 0; i <= DEPTH && !err; i++)
		err = raw_write(r, &ring, 0, 8, raw_imm(0, 0));
	return err;
}

FIXTURE_VARIANT_ADD(breaks, frames_without_credit) BREAKS(frames_without_credit);

static int break_frames_after_release(struct victim *v, struct raw *r)
{
	struct raw_ring ring;
	int err = open_ring(v, r, 0, 0, &ring);

	for (int i = 0; i < DEPTH && !err; i++)
		err = raw_write(r, &ring, i * 4096, 8, raw_imm(0, 0));
	if (!err && !DEV_SOON(10, mesh_arrived(v->low, 0, 0) == DEPTH))
		err = -ETIME;
	err = err ?: mesh_release(v->fd, 0, 0, 0, 0, 1);
	for (int i = 0; i < 2 && !err; i++)
		err = raw_write(r, &ring, 0, 8, raw_imm(0, 0));
	return err;
}

FIXTURE_VARIANT_ADD(breaks, frames_after_release) BREAKS(frames_after_release);

/* ---- what the device itself refuses ---- */

FIXTURE(reaches) {
	struct dev_counters before;
	struct victim v;
	struct raw low;
	struct raw high;
	struct raw_ring ring;
};

FIXTURE_SETUP(reaches)
{
	START(&self->v, &self->before);
	self->high = raw_peer(&self->v.world, 1, 2, false);
	set_up_proven(_metadata, &self->v, &self->low);
	ASSERT_EQ(0, open_ring(&self->v, &self->low, 0, 0, &self->ring));
}

FIXTURE_TEARDOWN(reaches)
{
	if (self->v.fd < 0)
		return;
	raw_close(&self->low);
	raw_close(&self->high);
	END(&self->v, &self->before);
}

/* The victim learns why only if a receive was taken for it. */
static void expect_refused(struct __test_metadata *_metadata, struct victim *v, struct raw *r,
			   bool is_known)
{
	EXPECT_EQ(IBV_WC_REM_ACCESS_ERR, raw_sent(r));
	if (is_known)
		expect_broken(_metadata, v, v->low, 0, KCR_REASON_PROTOCOL, EBADMSG);
	else
		expect_broken(_metadata, v, v->low, 0, KCR_REASON_COMPLETION,
			      EHOSTUNREACH);
}

TEST_F(reaches, behind_the_ring)
{
	ASSERT_EQ(0, raw_write(&self->low, &self->ring, (DEPTH - 1) * 4096, 4097,
			       raw_imm(0, 0)));
	expect_refused(_metadata, &self->v, &self->low, false);
}

TEST_F(reaches, before_the_ring)
{
	ASSERT_EQ(0, raw_write(&self->low, &self->ring, -1, 8, raw_imm(0, 0)));
	expect_refused(_metadata, &self->v, &self->low, true);
}

TEST_F(reaches, address_0)
{
	self->ring.address = 0;
	ASSERT_EQ(0, raw_write(&self->low, &self->ring, 0, 8, raw_imm(0, 0)));
	expect_refused(_metadata, &self->v, &self->low, true);
}

/* Without an immediate nobody is told, but for this. */
TEST_F(reaches, behind_the_ring_in_silence)
{
	ASSERT_EQ(0, raw_post(&self->low, IBV_WR_RDMA_WRITE, NULL, 8, self->ring.rkey,
			      self->ring.address + DEPTH * 4096, 0));
	expect_refused(_metadata, &self->v, &self->low, false);
}

TEST_F(reaches, key)
{
	self->ring.rkey ^= 0x55;
	ASSERT_EQ(0, raw_write(&self->low, &self->ring, 0, 8, raw_imm(0, 0)));
	expect_refused(_metadata, &self->v, &self->low, true);
}

/* Rank 2, too: the ring that the victim has opened to it. */
static void let_high_up(struct __test_metadata *_metadata, struct victim *v, struct raw *high,
			struct raw_ring *theirs)
{
	ASSERT_EQ(0, raw_listen(high, RAW_PORT));
	ASSERT_EQ(0, victim_connect(v, RAW_PORT, 20000));
	ASSERT_EQ(0, raw_let_up(high));
	ASSERT_TRUE(DEV_SOON(10, mesh_is_up(v->high)));
	ASSERT_EQ(0, open_ring(v, high, 2, 0, theirs));
}

/* The ring that the victim has opened to rank 2, with the key that rank 2 has. */
TEST_F(reaches, ring_of_another)
{
	const unsigned char *frames;
	struct raw_ring theirs;

	let_high_up(_metadata, &self->v, &self->high, &theirs);
	frames = mesh_map_frames(self->v.fd, 2, 0, 0, 0);
	ASSERT_NE(MAP_FAILED, frames);
	EXPECT_NE(theirs.rkey, self->ring.rkey);
	memset(self->low.memory + RAW_SEND_AT, 0xee, 64);
	ASSERT_EQ(0, raw_post(&self->low, IBV_WR_RDMA_WRITE, NULL, 8, theirs.rkey,
			      theirs.address, 0));
	expect_refused(_metadata, &self->v, &self->low, false);
	EXPECT_EQ(0, frames[0]);
	munmap((void *)frames, mesh_ring_bytes(0));
}

/* A key is dead as soon as the ring's owner is gone. */
TEST_F(reaches, ring_of_the_past)
{
	struct raw_ring past = self->ring;

	raw_close(&self->low);
	END(&self->v, &self->before);
	ASSERT_EQ(0, victim_join(&self->v));
	set_up_proven(_metadata, &self->v, &self->low);
	ASSERT_EQ(0, raw_write(&self->low, &past, 0, 8, raw_imm(0, 0)));
	expect_refused(_metadata, &self->v, &self->low, true);
}

/* ---- what was opened for writing is for nothing else ---- */

FIXTURE(takes) {
	struct dev_counters before;
	struct victim v;
	struct raw low;
	struct raw high;
};

FIXTURE_VARIANT(takes) {
	bool is_high;		/* the victim has connected to it */
	enum ibv_wr_opcode opcode;
};

FIXTURE_VARIANT_ADD(takes, low_reads) { false, IBV_WR_RDMA_READ };
FIXTURE_VARIANT_ADD(takes, low_swaps) { false, IBV_WR_ATOMIC_CMP_AND_SWP };
FIXTURE_VARIANT_ADD(takes, low_adds) { false, IBV_WR_ATOMIC_FETCH_AND_ADD };
FIXTURE_VARIANT_ADD(takes, high_reads) { true, IBV_WR_RDMA_READ };
FIXTURE_VARIANT_ADD(takes, high_swaps) { true, IBV_WR_ATOMIC_CMP_AND_SWP };
FIXTURE_VARIANT_ADD(takes, high_adds) { true, IBV_WR_ATOMIC_FETCH_AND_ADD };

FIXTURE_SETUP(takes)
{
	START(&self->v, &self->before);
	self->low = raw_peer(&self->v.world, 0, 1, true);
	self->low.is_greedy = true;
	self->high = raw_peer(&self->v.world, 1, 2, false);
	self->high.is_greedy = true;
}

FIXTURE_TEARDOWN(takes)
{
	if (self->v.fd < 0)
		return;
	raw_close(&self->low);
	raw_close(&self->high);
	END(&self->v, &self->before);
}

/* What it has written itself: nothing of that comes back, and nothing changes. */
TEST_F(takes, frame)
{
	const __u64 written = 0x0123456789abcdefULL;
	struct victim *v = &self->v;
	__u32 peer = variant->is_high ? 2 : 0;
	struct raw *r = variant->is_high ? &self->high : &self->low;
	const unsigned char *frames;
	struct raw_ring ring;

	if (variant->is_high) {
		let_high_up(_metadata, v, r, &ring);
	} else {
		prove(_metadata, v, r);
		ASSERT_EQ(0, open_ring(v, r, 0, 0, &ring));
	}
	frames = mesh_map_frames(v->fd, peer, 0, 0, 0);
	ASSERT_NE(MAP_FAILED, frames);
	ASSERT_EQ(0, raw_post(r, IBV_WR_RDMA_WRITE, &written, sizeof(written), ring.rkey,
			      ring.address + 8, 0));
	ASSERT_EQ(IBV_WC_SUCCESS, raw_sent(r));
	EXPECT_EQ(0, memcmp(frames + 8, &written, sizeof(written)));
	EXPECT_EQ(IBV_WC_REM_INV_REQ_ERR, raw_take(r, variant->opcode, ring.rkey,
						   ring.address + 8, written));
	EXPECT_FALSE(raw_has_taken(r));
	EXPECT_EQ(0, memcmp(frames + 8, &written, sizeof(written)));
	expect_broken(_metadata, v, variant->is_high ? v->high : v->low, peer,
		      KCR_REASON_COMPLETION, EHOSTUNREACH);
	munmap((void *)frames, mesh_ring_bytes(0));
}

/* ---- a storm of requests, while who listens comes and goes ---- */

#define STORM_PEERS	2	/* processes */
#define STORM_IDS	8	/* that each of them has on the way */

struct storm {
	struct dev_world world;	/* one that is there at times */
	int stop;
	long refused[KCR_REASON_ENDED + 1];	/* in words */
	long unheard;		/* nobody listened */
	long answered;		/* taken, up to the proof that never comes */
	long others;		/* among them: who listened went while it was asked */
};

static void storm_count(long *n)
{
	__atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
}

static long storm_counted(const long *n)
{
	return __atomic_load_n(n, __ATOMIC_RELAXED);
}

static void storm_open(struct rdma_event_channel *channel)
{
	struct sockaddr_in source, destination;
	struct rdma_cm_id *id;

	raw_address(&source, 0);
	raw_address(&destination, MESH_PORT);
	CHILD_GIVES(0, rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	CHILD_GIVES(0, rdma_resolve_addr(id, (struct sockaddr *)&source,
					 (struct sockaddr *)&destination, 2000));
}

/*
 * From rank 0 to rank 2, as it should be; now and then to a world that never was, or
 * noise. There is no queue behind it: whoever answers is left with that.
 */
static bool storm_ask(const struct storm *s, struct rdma_cm_id *id)
{
	struct raw r = raw_peer(&s->world, 0, 2, true);
	struct raw_request q = raw_request(&r);
	struct rdma_conn_param param = raw_param(&r, &q, sizeof(q));

	/* None that rdma_rxe has given to anybody: rdma_cm would take that one for stale. */
	param.qp_num = 0x800000 | (random() & 0x7fffff);
	switch (random() % 8) {
	case 0:
		q.world[random() % 16] ^= 1;
		break;
	case 1:
		((__u8 *)&q)[random() % sizeof(q)] = random();
		break;
	case 2:
		for (int i = 0; i < sizeof(q); i++)
			((__u8 *)&q)[i] = random();
		param.private_data_len = random() % sizeof(q);
	}
	return !rdma_connect(id, &param);
}

static void storm_ended(struct storm *s, const struct rdma_cm_event *event)
{
	const struct raw_reject *reject = event->param.conn.private_data;
	bool has_words = reject && event->param.conn.private_data_len >= sizeof(*reject) &&
			 reject->magic == RAW_MAGIC && reject->reason <= KCR_REASON_ENDED;

	if (event->event == RDMA_CM_EVENT_REJECTED && has_words)
		storm_count(&s->refused[reject->reason]);
	else if (event->event == RDMA_CM_EVENT_REJECTED && event->status == MESH_NO_SUCH_SERVICE)
		storm_count(&s->unheard);
	else if (event->event == RDMA_CM_EVENT_CONNECT_RESPONSE)
		storm_count(&s->answered);
	else
		storm_count(&s->others);
}

/* One step of one id; whether it is over. */
static bool storm_step(struct storm *s, const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return rdma_resolve_route(event->id, 2000);
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return !storm_ask(s, event->id);
	default:
		storm_ended(s, event);
		return true;
	}
}

/* As fast as it can, until it is told to stop; what is on the way then goes with it. */
static void storm_main(void *arg)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct storm *s = arg;
	struct rdma_cm_id *id;
	bool is_over;

	CHILD_TRUE(channel);
	srandom(getpid());
	for (int i = 0; i < STORM_IDS; i++)
		storm_open(channel);
	while (!__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE)) {
		struct pollfd p = { .fd = channel->fd, .events = POLLIN };

		if (poll(&p, 1, 100) != 1)
			continue;
		CHILD_GIVES(0, rdma_get_cm_event(channel, &event));
		id = event->id;
		is_over = storm_step(s, event);
		rdma_ack_cm_event(event);
		if (is_over) {
			rdma_destroy_id(id);
			storm_open(channel);
		}
	}
}

/* A world of three: two of them connect, the third has the storm. All go as @round says. */
static void come_and_go(struct __test_metadata *_metadata, struct storm *s, int round)
{
	struct kcr_status *status;
	struct mesh_ranks r;

	ASSERT_EQ(0, mesh_ranks_join(&r, 3));
	s->world = r.world;
	status = dev_status(r.fd[1]);
	ASSERT_NE(MAP_FAILED, status);
	ASSERT_EQ(0, mesh_connect(r.fd[2], 0, 0));
	ASSERT_EQ(0, mesh_ranks_connect(&r, 0, 1));
	/* Now and then before it is known how that went. */
	if (round % 4 != 3)
		EXPECT_TRUE(DEV_SOON(20, mesh_ranks_are_up(&r))) {
			MESH_LOG(r.status[0][1]);
			MESH_LOG(r.status[1][0]);
		}
	EXPECT_EQ(0, dev_cause(status));
	for (int i = 0; i < 3 && round & 1; i++)
		EXPECT_EQ(0, dev_leave(r.fd[i]));
	munmap(status, sizeof(*status));
	mesh_ranks_close(&r);
}

static bool has_seen_all(const struct storm *s)
{
	return storm_counted(&s->unheard) && storm_counted(&s->answered) &&
	       storm_counted(&s->refused[KCR_REASON_WORLD]) &&
	       storm_counted(&s->refused[KCR_REASON_FORMAT]);
}

FIXTURE(storm) {
	struct dev_counters before;
	struct storm *s;
	pid_t peers[STORM_PEERS];
};

FIXTURE_SETUP(storm)
{
	const char *missing = mesh_missing();

	self->s = NULL;
	if (missing)
		SKIP(return, "%s", missing);
	self->before = dev_counters();
	self->s = dev_shared(sizeof(*self->s));
	self->s->world = dev_world(3);
	for (int i = 0; i < STORM_PEERS; i++)
		self->peers[i] = dev_child(storm_main, self->s);
}

/* After that it is as ever. */
FIXTURE_TEARDOWN(storm)
{
	struct mesh_ranks r;

	if (!self->s)
		return;
	__atomic_store_n(&self->s->stop, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < STORM_PEERS; i++)
		EXPECT_EQ(0, dev_child_status(self->peers[i], 10));
	munmap(self->s, sizeof(*self->s));
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
	EXPECT_EQ(0, mesh_ranks_open(&r, 2));
	EXPECT_EQ(0, mesh_frames(r.fd[1], 0, 0, 0, 0));
	EXPECT_TRUE(DEV_SOON(10, !mesh_send(r.fd[0], 1, 0, 0, 0, 8, 1)));
	EXPECT_TRUE(DEV_SOON(10, mesh_arrived(r.status[1][0], 0, 0) == 1));
	mesh_ranks_close(&r);
}

TEST_F_TIMEOUT(storm, listener, 120)
{
	double end = dev_now() + 5 * dev_scale(), last = end + 30 * pace();
	struct storm *s = self->s;
	int rounds;

	for (rounds = 0; dev_now() < end || rounds < 24 || !has_seen_all(s); rounds++) {
		ASSERT_GT(last, dev_now()) {
			TH_LOG("%d rounds", rounds);
		}
		come_and_go(_metadata, s, rounds);
		/* Nobody listens any more, for a moment. */
		ASSERT_TRUE(DEV_SOON(DEV_SETTLE, !mesh_left())) {
			TH_LOG("round %d: left behind: %s", rounds, mesh_left());
		}
		dev_sleep(0.002 * (rounds % 8));
	}
	TH_LOG("%d rounds; %ld answered, %ld heard by nobody, %ld else; refused: world %ld, duplicate %ld, rank %ld, format %ld, version %ld",
	       rounds, s->answered, s->unheard, s->others, s->refused[KCR_REASON_WORLD],
	       s->refused[KCR_REASON_DUPLICATE], s->refused[KCR_REASON_RANK],
	       s->refused[KCR_REASON_FORMAT], s->refused[KCR_REASON_VERSION]);
}

TEST_HARNESS_MAIN
