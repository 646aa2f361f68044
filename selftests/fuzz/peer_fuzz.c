// SPDX-License-Identifier: GPL-2.0
/*
 * The mesh against peers that say random things
 *
 * In each round a rank of this node's module expects a peer, or connects to one,
 * that is made of raw verbs. The peer does as it should up to a point which chance
 * tells, then something else: bytes of the handshake, messages and writes with fields
 * that are not right, more than it has credit for, an end in the middle. The module's
 * counters return to zero every time, and a peer that does all as it should is always
 * served. KCR_FUZZ_SEED repeats a run, --round N of it a single round.
 */
#include "kselftest.h"
#include "rawvictim.h"
#include "chance.h"

#define SECONDS		20
#define PORT		(RAW_PORT + 1)
/* Longer than the module lets anybody be late. */
#define VICTIM_MS	2000
#define PROPER_EVERY	8

struct peer_fuzz {
	struct chance c;
	struct raw raw;
	struct victim v;
	const char *did;	/* the last that was out of order */
};

/* Change some bytes, or bits. */
static void spoil(struct chance *c, void *data, size_t bytes)
{
	unsigned char *at = data;

	for (int n = 1 + below(c, 4); n; n--) {
		size_t i = below(c, bytes);

		if (one_in(c, 2))
			at[i] ^= 1 << below(c, 8);
		else
			at[i] = one_in(c, 2) ? draw(c) : any_number(c);
	}
}

/* In which the victim may have lanes. */
#define WINDOW		1

static __u32 imm(struct chance *c)
{
	if (one_in(c, 4))
		return draw(c);
	if (one_in(c, 4))
		return raw_rung(one_in(c, 8) ? any_number(c) : WINDOW, one_in(c, 2));
	return raw_imm(below(c, 4), below(c, 8)) |
		(one_in(c, 2) ? raw_credit(below(c, 4), below(c, 8), any_number(c)) : 0);
}

static struct raw_ring any_ring(struct chance *c)
{
	return (struct raw_ring){
		.stream = one_in(c, 8) ? any_number(c) : below(c, KCR_STREAMS),
		.class = one_in(c, 8) ? any_number(c) : below(c, KCR_CLASSES),
		.depth = one_in(c, 3) ? any_number(c) : MESH_DEPTH + 1,
		.rkey = draw(c),
		.address = any_number(c),
	};
}

/* About the lane that the victim may have, in the one direction or the other. */
static void about_lane(struct peer_fuzz *f, struct raw_message *m)
{
	struct chance *c = &f->c;
	__u16 peer = f->raw.is_active ? 0 : 2;
	bool is_mine = one_in(c, 2);

	if (m->type == RAW_LANE) {
		m->lane = (struct raw_lane){
			.window = WINDOW,
			.flags = below(c, 2),
			.source = is_mine ? peer : 1,
			.destination = is_mine ? 1 : peer,
			.depth = one_in(c, 4) ? any_number(c) : 4,
			.capacity = one_in(c, 4) ? any_number(c) : 4000,
			/* Most of them lead nowhere: what is put there breaks it. */
			.rkeys = { one_in(c, 2) ? f->raw.mr->rkey : draw(c), },
		};
		return;
	}
	m->end = (struct raw_end){
		.window = one_in(c, 8) ? below(c, 20) : WINDOW,
		.more = m->type == RAW_ARM ? below(c, RAW_RINGS + one_in(c, 8)) : 0,
		.source = one_in(c, 8) ? any_number(c) : is_mine ? peer : 1,
		.seen = any_number(c),
	};
	/* Also too many. */
	m->credits = one_in(c, 6) ? draw(c) : f->raw.owed;
	f->raw.owed = 0;
}

/* ---- what a peer that is up may do ---- */

static void says(struct peer_fuzz *f)
{
	struct chance *c = &f->c;
	struct raw_message m = raw_message(one_in(c, 8) ? draw(c) : below(c, RAW_TYPES + 1));
	size_t bytes = one_in(c, 8) ? below(c, 129) : sizeof(m);
	__u8 data[128] = { 0 };

	if (m.type == RAW_FAIL && one_in(c, 2))
		m.fail = (struct raw_fail){ any_number(c), any_number(c) };
	else if (m.type >= RAW_LANE && !one_in(c, 4))
		about_lane(f, &m);
	else if (one_in(c, 4))
		for (int i = 0; i < 7; i++) {
			__u64 word = any_number(c);

			memcpy(m.bytes + 8 * i, &word, sizeof(word));
		}
	else
		m.ring = any_ring(c);
	if (one_in(c, 6))
		spoil(c, &m, sizeof(m));
	memcpy(data, &m, sizeof(m));
	raw_send(&f->raw, data, bytes);
}

/* As the victim wants it: a ring that is open, if it opens one. */
static void asks_for_ring(struct peer_fuzz *f)
{
	struct chance *c = &f->c;
	__u8 stream = below(c, KCR_STREAMS), class = below(c, 3);
	struct raw_message m = raw_about_ring(RAW_WANT, stream, class, 0);

	raw_say(&f->raw, &m);
	mesh_frames(f->v.fd, f->raw.is_active ? 0 : 2, 0, stream, class);
	raw_hears(&f->raw, RAW_OPENED, 0.05);
}

/* Into frames that are its to write, or not. */
static void writes(struct peer_fuzz *f)
{
	struct chance *c = &f->c;
	struct raw_ring ring = f->raw.last[RAW_OPENED].ring;
	__u64 offset = one_in(c, 3) ? any_number(c) : below(c, 3) * 4096;
	size_t bytes = one_in(c, 3) ? below(c, 65536) : below(c, 4097);

	if (one_in(c, 6))
		spoil(c, &ring, sizeof(ring));
	if (one_in(c, 6))
		raw_post(&f->raw, IBV_WR_RDMA_READ, NULL, bytes, ring.rkey,
			 ring.address + offset, 0);
	else
		raw_write(&f->raw, one_in(c, 8) ? NULL : &ring, offset,
			  one_in(c, 8) ? 0 : bytes,
			  one_in(c, 2) ? raw_imm(ring.stream & 3, ring.class & 7) : imm(c));
}

static void floods(struct peer_fuzz *f)
{
	struct chance *c = &f->c;
	struct raw_message m = raw_message(RAW_PING);
	int n = below(c, 400);
	bool by_write = one_in(c, 2);

	while (n-- && f->raw.sent == IBV_WC_SUCCESS) {
		if (by_write)
			raw_write(&f->raw, NULL, 0, 0, raw_imm(RAW_NO_FRAME, 0));
		else
			raw_say(&f->raw, &m);
		raw_poll(&f->raw);
	}
}

/* What the victim's process does meanwhile. */
static void victim_acts(struct peer_fuzz *f)
{
	struct chance *c = &f->c;
	__u32 peer = f->raw.is_active ? 0 : 2;
	struct kcr_lane_desc lanes[] = { { 1, peer, 4, 4000 }, { peer, 1, 4, 4000 } };

	switch (below(c, 9)) {
	case 4:
		mesh_window(f->v.fd, WINDOW, lanes, 2);
		break;
	case 5:
		mesh_put(f->v.fd, WINDOW, peer, 1 + below(c, 4), 1 + below(c, 3));
		break;
	case 6:
		mesh_ack(f->v.fd, WINDOW, peer);
		break;
	case 7:
		mesh_arm(f->v.fd, WINDOW, peer, below(c, 2), any_number(c));
		break;
	case 8:
		dev_detach(f->v.fd, WINDOW);
		break;
	case 0:
		mesh_frames(f->v.fd, peer, 0, below(c, KCR_STREAMS), below(c, KCR_CLASSES));
		break;
	case 1:
		mesh_send(f->v.fd, peer, 0, below(c, KCR_STREAMS), 0, 1 + below(c, 9000),
			  1 + below(c, 4));
		break;
	case 2:
		mesh_release(f->v.fd, peer, 0, below(c, KCR_STREAMS), below(c, KCR_CLASSES),
			     1 + below(c, 4));
		break;
	default:
		dev_wait(f->v.fd, dev_events(f->v.status), DEV_MS * 5, 0);
	}
}

static void acts(struct peer_fuzz *f)
{
	int n = 1 + below(&f->c, 16);

	while (n-- && f->raw.sent == IBV_WC_SUCCESS) {
		switch (below(&f->c, 8)) {
		case 0:
		case 1:
			says(f);
			break;
		case 2:
			asks_for_ring(f);
			break;
		case 3:
		case 4:
			writes(f);
			break;
		case 5:
			floods(f);
			break;
		default:
			victim_acts(f);
		}
		raw_poll(&f->raw);
	}
	f->did = "acts";
	if (one_in(&f->c, 3))
		rdma_disconnect(f->raw.id);
	else if (one_in(&f->c, 2))
		raw_hears(&f->raw, RAW_BYE, 0.02);
}

/* ---- the way up ---- */

static void comes(struct peer_fuzz *f)
{
	struct raw_request q = raw_request(&f->raw);
	size_t bytes = sizeof(q);
	struct raw_message m;

	f->did = "request";
	if (one_in(&f->c, 3)) {
		spoil(&f->c, &q, sizeof(q));
		bytes = one_in(&f->c, 4) ? below(&f->c, sizeof(q) + 1) : bytes;
	}
	if (raw_connect(&f->raw, bytes ? &q : NULL, bytes) != RDMA_CM_EVENT_ESTABLISHED)
		return;
	f->did = "hello";
	if (one_in(&f->c, 6)) {
		acts(f);
		return;
	}
	m = raw_hello(&f->raw);
	if (one_in(&f->c, 6))
		spoil(&f->c, &m, sizeof(m));
	raw_say(&f->raw, &m);
	if (one_in(&f->c, 6) || raw_hears(&f->raw, RAW_WELCOME, 1))
		acts(f);
}

static void refuses(struct peer_fuzz *f)
{
	struct raw_reject r = {
		.magic = RAW_MAGIC,
		.version = RAW_VERSION,
		.reason = any_number(&f->c),
		.detail = any_number(&f->c),
	};
	size_t bytes = one_in(&f->c, 3) ? below(&f->c, sizeof(r) + 1) : sizeof(r);

	f->did = "reject";
	if (one_in(&f->c, 3))
		spoil(&f->c, &r, sizeof(r));
	rdma_reject(f->raw.id, bytes ? &r : NULL, bytes);
}

static void lets_come(struct peer_fuzz *f)
{
	struct raw_message m = raw_message(RAW_WELCOME);
	struct raw_accept a;
	size_t bytes = sizeof(a);

	f->did = "nothing";
	if (raw_requested(&f->raw) || one_in(&f->c, 12))
		return;
	if (one_in(&f->c, 6)) {
		refuses(f);
		return;
	}
	a = raw_acceptance(&f->raw);
	f->did = "accept";
	if (one_in(&f->c, 4)) {
		spoil(&f->c, &a, sizeof(a));
		bytes = one_in(&f->c, 3) ? below(&f->c, sizeof(a) + 1) : bytes;
	}
	if (raw_accept(&f->raw, bytes ? &a : NULL, bytes) ||
	    raw_event_is(&f->raw, RDMA_CM_EVENT_ESTABLISHED, 1))
		return;
	f->did = "welcome";
	if (!one_in(&f->c, 6) && !raw_hears(&f->raw, RAW_HELLO, 1))
		return;
	if (one_in(&f->c, 6))
		spoil(&f->c, &m, sizeof(m));
	raw_say(&f->raw, &m);
	acts(f);
}

/* A round, and what is wrong then, or NULL. */
static const char *round_random(struct peer_fuzz *f)
{
	bool is_active = one_in(&f->c, 2);

	f->did = "";
	f->v = (struct victim){ .fd = -1 };
	if (victim_join(&f->v))
		return "no world can be made";
	f->raw = raw_peer(&f->v.world, is_active ? 0 : 1, is_active ? 1 : 2, is_active);
	if (is_active) {
		if (victim_expect(&f->v, VICTIM_MS))
			return "the victim cannot expect anybody";
		comes(f);
	} else {
		if (raw_listen(&f->raw, PORT) || victim_connect(&f->v, PORT, VICTIM_MS))
			return "the victim cannot connect";
		lets_come(f);
	}
	/* Either may be the first to go. */
	if (one_in(&f->c, 2))
		raw_close(&f->raw);
	victim_free(&f->v);
	raw_close(&f->raw);
	return NULL;
}

/* A peer that does as it should, up to a frame. */
static const char *round_proper(struct peer_fuzz *f)
{
	const char *what = NULL;
	struct raw_message m = raw_about_ring(RAW_WANT, 0, 0, 0);

	f->did = "proper";
	f->v = (struct victim){ .fd = -1 };
	if (victim_join(&f->v) || victim_expect(&f->v, 60000))
		return "no world can be made";
	f->raw = raw_peer(&f->v.world, 0, 1, true);
	if (raw_come_up(&f->raw) || raw_say(&f->raw, &m) ||
	    mesh_frames(f->v.fd, 0, 0, 0, 0) || !raw_hears(&f->raw, RAW_OPENED, 10) ||
	    raw_write(&f->raw, &f->raw.last[RAW_OPENED].ring, 0, 64, raw_imm(0, 0)) ||
	    raw_sent(&f->raw) || !DEV_SOON(10, mesh_arrived(f->v.low, 0, 0) == 1))
		what = "a proper peer is not served";
	raw_close(&f->raw);
	victim_free(&f->v);
	return what;
}

static const char *left(const struct dev_counters *before)
{
	const char *what = dev_left_behind(before);

	if (!what && !DEV_SOON(DEV_SETTLE, !mesh_left()))
		what = mesh_left();
	return what;
}

int main(int argc, char **argv)
{
	const char *seed_text = getenv("KCR_FUZZ_SEED"), *time_text = getenv("KCR_FUZZ_SECONDS");
	double until = dev_now() + (time_text ? atof(time_text) : SECONDS * dev_scale());
	const char *why = mesh_missing(), *what = NULL, *remains = NULL;
	struct dev_counters before;
	__u64 seed = 0, round = 0, only = 0;
	static struct peer_fuzz f;

	ksft_print_header();
	if (why || geteuid())
		ksft_exit_skip("%s\n", why ?: "must be root, to see the module's counters");
	ksft_set_plan(3);
	if (seed_text)
		seed = strtoull(seed_text, NULL, 0);
	else if (getrandom(&seed, sizeof(seed), 0) < 0)
		abort();
	if (argc == 3 && !strcmp(argv[1], "--round"))
		only = strtoull(argv[2], NULL, 0);
	ksft_print_msg("seed %#llx; repeat with KCR_FUZZ_SEED=%#llx\n", seed, seed);

	before = dev_counters();
	while (!what && !remains && dev_now() < until) {
		round++;
		/* Each has chances of its own, so that it can be repeated alone. */
		f.c.state = seed + (only ?: round) * 0x100000001b3;
		what = round_random(&f);
		remains = left(&before);
		if (!what && !remains && round % PROPER_EVERY == 0)
			what = round_proper(&f);
	}
	if (!what && !remains)
		what = round_proper(&f);
	if (!remains)
		remains = left(&before);
	ksft_print_msg("%llu rounds\n", round);
	if (what || remains)
		ksft_print_msg("round %llu (%s): %s; left: %s\n", round, f.did,
			       what ?: "as it should", remains ?: "nothing");
	ksft_test_result(round > 0, "random peers\n");
	ksft_test_result(!what, "a proper peer is served\n");
	ksft_test_result(!remains, "nothing is left\n");
	ksft_finished();
}
