// SPDX-License-Identifier: GPL-2.0
/*
 * What modules say to each other: messages on their way out and in.
 *
 * What is to be said is marked in the connection, and conn_push() says as much
 * of it as there is room for; it is called whenever something was marked, and
 * whenever a request has completed. A message is made when it goes out, so none is
 * out of date. All under conn->lock.
 */
#include <linux/math64.h>

#include "verbs.h"

#define NO_AGE	U64_MAX

/**
 * conn_say() - send a message
 * @c: the connection
 * @message: the body of it; gets its head
 * @type: what it is; if it needs a credit there is one
 *
 * Return: 0, or as queue_post_message().
 */
int conn_say(struct conn *c, struct wire_message *message, enum wire_type type)
{
	int ret;

	message->magic = cpu_to_le32(WIRE_MAGIC);
	message->type = type;
	message->credits = c->owed;
	ret = queue_post_message(c, message);
	if (ret)
		return ret;
	c->owed = 0;
	if (wire_needs_credit(type))
		c->credits--;
	return 0;
}

static int say_hello(struct conn *c)
{
	struct wire_message m = { };

	memcpy(m.proof, c->own_proof, sizeof(m.proof));
	return conn_say(c, &m, WIRE_HELLO);
}

static int say_welcome(struct conn *c)
{
	struct wire_message m = { };

	return conn_say(c, &m, WIRE_WELCOME);
}

static u64 age(u64 then, u64 now)
{
	return then && then <= now ? now - then : NO_AGE;
}

static int say_ping(struct conn *c)
{
	const struct kcr_claim *claim = &c->head.claim;
	u64 now = ktime_get_ns();
	struct wire_message m = {
		.ping = {
			.number = cpu_to_le64(claim->number),
			.since_age_ns = cpu_to_le64(age(claim->since_ns, now)),
			.count = cpu_to_le64(claim->count),
			.kind = cpu_to_le32(claim->kind),
			.detail = cpu_to_le32(claim->detail),
			.beat_age_ns = cpu_to_le64(age(c->head.beat_ns, now)),
		},
	};
	int ret;

	ret = conn_say(c, &m, WIRE_PING);
	if (!ret)
		c->ping_is_out = true;
	return ret;
}

static int say_fail(struct conn *c)
{
	u64 cause = READ_ONCE(c->member->world->cause);
	struct wire_message m = {
		.fail = {
			.rank = cpu_to_le32(KCR_CAUSE_RANK(cause)),
			.error = cpu_to_le32(KCR_CAUSE_ERROR(cause)),
		},
	};

	return conn_say(c, &m, WIRE_FAIL);
}

static int say_bye(struct conn *c)
{
	struct wire_message m = { };

	return conn_say(c, &m, WIRE_BYE);
}

/* What @flag stands for, if it is to be said. Returns whether it is said by now. */
static bool try(struct conn *c, u32 flag, int (*fn)(struct conn *c))
{
	if (!(c->say & flag))
		return true;
	if (fn(c))
		return false;
	c->say &= ~flag;
	return true;
}

/**
 * conn_push() - say what is to be said, as far as there is room
 * @c: the connection
 *
 * What has waited until nothing was on its way comes first, a goodbye last.
 */
void conn_push(struct conn *c)
{
	lockdep_assert_held(&c->lock);

	if (!conn_may_post(c))
		return;
	if (!try(c, SAY_HELLO, say_hello) || !c->was_up)
		return;
	if (queue_becomes_idle(c)) {
		if (ring_register(c) || lane_register(c))
			return;
	} else if (c->wants_idle && !try(c, SAY_PING, say_ping)) {
		return;
	}
	if (!try(c, SAY_WELCOME, say_welcome) || !ring_say_credits(c) ||
	    !ring_say(c) || !try(c, SAY_PING, say_ping) ||
	    !try(c, SAY_FAIL, say_fail) || !lane_say(c))
		return;
	try(c, SAY_BYE, say_bye);
}

static bool hear_hello(struct conn *c, const struct wire_message *m)
{
	if (c->state != CONN_ACCEPTED || c->has_proof)
		return false;
	memcpy(c->proof, m->proof, sizeof(c->proof));
	c->has_proof = true;
	queue_work(verbs_wq, &c->event_work);
	return true;
}

static bool hear_welcome(struct conn *c)
{
	/* The membership has ended meanwhile: now the peer listens to that. */
	if (c->state == CONN_LEAVING && !c->was_up) {
		c->was_up = true;
		if (READ_ONCE(c->member->world->cause))
			c->say |= SAY_FAIL;
		conn_push(c);
		return true;
	}
	if (c->state != CONN_PROVING)
		return c->state >= CONN_CLOSING;
	conn_set_state(c, CONN_UP);
	conn_push(c);
	conn_show_state(c);
	return true;
}

static u64 since(__le64 age, u64 now)
{
	u64 ns = le64_to_cpu(age);

	return ns < now ? now - ns : 0;
}

/* Ages are never quite the same. */
static bool is_shown(const struct kcr_claim *claim, const struct wire_ping *ping)
{
	return claim->number == le64_to_cpu(ping->number) &&
	       claim->count == le64_to_cpu(ping->count) &&
	       claim->kind == le32_to_cpu(ping->kind) &&
	       claim->detail == le32_to_cpu(ping->detail);
}

/* Shown as the library writes it: number 0 while the rest changes. */
static void hear_ping(struct conn *c, const struct wire_ping *ping)
{
	struct kcr_board *board = &c->status->board;
	u64 now = ktime_get_ns();

	WRITE_ONCE(board->beat_ns, since(ping->beat_age_ns, now));
	if (is_shown(&board->claim, ping))
		return;
	WRITE_ONCE(board->claim.number, 0);
	smp_wmb(); /* pairs with the reader's, who looks twice */
	WRITE_ONCE(board->claim.since_ns, since(ping->since_age_ns, now));
	WRITE_ONCE(board->claim.count, le64_to_cpu(ping->count));
	WRITE_ONCE(board->claim.kind, le32_to_cpu(ping->kind));
	WRITE_ONCE(board->claim.detail, le32_to_cpu(ping->detail));
	/* Pairs with the acquire of the process: the rest is there. */
	smp_store_release(&board->claim.number, le64_to_cpu(ping->number));
}

static bool hear_fail(struct conn *c, const struct wire_fail *fail)
{
	u32 rank = le32_to_cpu(fail->rank), error = le32_to_cpu(fail->error);

	if (rank >= c->member->world->ranks || !error || error > MAX_ERRNO)
		return false;
	if (!c->peer_cause)
		c->peer_cause = KCR_CAUSE(rank, error);
	queue_work(verbs_wq, &c->event_work);
	return true;
}

static bool hear_bye(struct conn *c)
{
	c->peer_has_left = true;
	conn_show_state(c);
	/* Both have said it: nothing is left to do. */
	if (c->state == CONN_LEAVING && !c->sending)
		conn_set_state(c, CONN_CLOSING);
	return true;
}

/* No more than were taken. */
static bool hear_credits(struct conn *c, u32 credits)
{
	if (credits > WIRE_CREDITS - c->credits)
		return false;
	c->credits += credits;
	return true;
}

static bool take_in(struct conn *c, const struct wire_message *m, u32 bytes)
{
	if (bytes != sizeof(*m) || le32_to_cpu(m->magic) != WIRE_MAGIC ||
	    memchr_inv(m->reserved, 0, sizeof(m->reserved)))
		return false;
	if (m->type == WIRE_HELLO)
		return !m->credits && hear_hello(c, m);
	if (m->type == WIRE_WELCOME)
		return !m->credits && hear_welcome(c);
	/* The rest is for those who have proven themselves. */
	if (!c->was_up || !hear_credits(c, m->credits))
		return false;
	switch (m->type) {
	case WIRE_WANT:
		return ring_hear_want(c, &m->ring);
	case WIRE_OPENED:
		return ring_hear_opened(c, &m->ring);
	case WIRE_PING:
		hear_ping(c, &m->ping);
		conn_push(c);
		return true;
	case WIRE_FAIL:
		return hear_fail(c, &m->fail);
	case WIRE_BYE:
		return hear_bye(c);
	case WIRE_LANE:
	case WIRE_UNLANE:
	case WIRE_UNLANED:
	case WIRE_ARM:
	case WIRE_RING:
	case WIRE_CREDIT:
		return lane_hear(c, m);
	default:
		return false;
	}
}

/**
 * conn_hear() - a message has come
 * @c: the connection
 * @m: a copy of it
 * @bytes: that came
 *
 * Return: whether it may be said at this point, by this peer.
 */
bool conn_hear(struct conn *c, const struct wire_message *m, u32 bytes)
{
	lockdep_assert_held(&c->lock);

	if (!take_in(c, m, bytes))
		return false;
	/* Something may have waited for them. */
	if (m->credits)
		conn_push(c);
	return true;
}

#if IS_BUILTIN(CONFIG_KUNIT)
#include "say_kunit.c"
#endif
