// SPDX-License-Identifier: GPL-2.0
/*
 * The mesh against peers that say random things
 *
 * For each program a rank of this node's module expects a peer, or connects to one,
 * that is made of raw verbs. The peer does as it should up to a point which chance
 * tells, then something else: bytes of the handshake, messages and writes with fields
 * that are not right, more than it has credit for, an end in the middle. The module's
 * counters return to zero every time, and a peer that does all as it should is always
 * served.
 */
#include "kselftest.h"
#include "rawvictim.h"
#include "tape.h"

#define TARGET		"peer_fuzz"
#define TARGET_CORPUS	"peers"
#define TARGET_WELL	"a proper peer is served"
#include "fuzz.h"

#define PORT		(RAW_PORT + 1)
/* Longer than the module lets anybody be late. */
#define VICTIM_MS	2000
#define PROPER_EVERY	8

struct peer {
	struct chance c;
	struct raw raw;
	struct victim v;
	struct program *program;
	/* How it ends, if it comes so far. */
	enum { END_SILENT, END_HEARS_BYE, END_DISCONNECTS, ENDS } end;
	bool is_first_to_go;
};

static struct dev_counters counters;

/* What is drawn from now on belongs to this step. */
static void begin(struct peer *f, struct step *s)
{
	f->c = (struct chance){ .record = &s->record };
}

static __u32 peer_rank(const struct peer *f)
{
	return f->raw.is_active ? 0 : 2;
}

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
	__u32 stream, class, imm;

	if (one_in(c, 4))
		return draw(c);
	if (one_in(c, 4)) {
		imm = one_in(c, 8) ? any_number(c) : WINDOW;
		return raw_rung(imm, one_in(c, 2));
	}
	stream = below(c, 4);
	class = below(c, 8);
	imm = raw_imm(stream, class);
	if (one_in(c, 2)) {
		stream = below(c, 4);
		class = below(c, 8);
		imm |= raw_credit(stream, class, any_number(c));
	}
	return imm;
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
static void about_lane(struct peer *f, struct raw_message *m)
{
	struct chance *c = &f->c;
	__u16 peer = peer_rank(f);
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
			.rkeys = { one_in(c, 2) ? draw(c) : f->raw.mr->rkey, },
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

static void says(struct peer *f)
{
	struct chance *c = &f->c;
	struct raw_message m = raw_message(one_in(c, 8) ? draw(c) : 1 + below(c, RAW_TYPES));
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
static void asks_for_ring(struct peer *f)
{
	struct chance *c = &f->c;
	__u8 stream = below(c, KCR_STREAMS), class = below(c, 3);
	struct raw_message m = raw_about_ring(RAW_WANT, stream, class, 0);

	raw_say(&f->raw, &m);
	mesh_frames(f->v.fd, peer_rank(f), 0, stream, class);
	raw_hears(&f->raw, RAW_OPENED, 0.05);
}

/* Into frames that are its to write, or not. */
static void writes(struct peer *f)
{
	struct chance *c = &f->c;
	struct raw_ring ring = f->raw.last[RAW_OPENED].ring;
	__u64 offset = one_in(c, 3) ? any_number(c) : below(c, 3) * 4096;
	size_t bytes = one_in(c, 3) ? below(c, 65536) : below(c, 4097);
	bool is_nowhere, has_own_imm;

	if (one_in(c, 6))
		spoil(c, &ring, sizeof(ring));
	if (one_in(c, 6)) {
		raw_post(&f->raw, IBV_WR_RDMA_READ, NULL, bytes, ring.rkey,
			 ring.address + offset, 0);
		return;
	}
	is_nowhere = one_in(c, 8);
	if (one_in(c, 8))
		bytes = 0;
	has_own_imm = one_in(c, 2);
	raw_write(&f->raw, is_nowhere ? NULL : &ring, offset, bytes,
		  has_own_imm ? imm(c) : raw_imm(ring.stream & 3, ring.class & 7));
}

/* A key of the victim's is not to be given back by others. */
static void takes_key(struct peer *f)
{
	struct raw_message m = raw_message(RAW_PING);
	__u32 key = one_in(&f->c, 4) ? draw(&f->c) : f->raw.last[RAW_OPENED].ring.rkey;

	/* Where others have an immediate, this has the key. */
	raw_post(&f->raw, IBV_WR_SEND_WITH_INV, &m, sizeof(m), 0, 0, ntohl(key));
}

static void floods(struct peer *f)
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

/* ---- what the victim's process does meanwhile ---- */

static void victim_windows(struct peer *f)
{
	__u32 peer = peer_rank(f);
	struct kcr_lane_desc lanes[] = { { 1, peer, 4, 4000 }, { peer, 1, 4, 4000 } };

	mesh_window(f->v.fd, WINDOW, lanes, 2);
}

static void victim_puts(struct peer *f)
{
	__u64 sequence = 1 + below(&f->c, 4);

	mesh_put(f->v.fd, WINDOW, peer_rank(f), sequence, 1 + below(&f->c, 3));
}

static void victim_acks(struct peer *f)
{
	mesh_ack(f->v.fd, WINDOW, peer_rank(f));
}

static void victim_arms(struct peer *f)
{
	__u32 flags = below(&f->c, 2);

	mesh_arm(f->v.fd, WINDOW, peer_rank(f), flags, any_number(&f->c));
}

static void victim_detaches(struct peer *f)
{
	dev_detach(f->v.fd, WINDOW);
}

static void victim_opens(struct peer *f)
{
	__u8 stream = below(&f->c, KCR_STREAMS);

	mesh_frames(f->v.fd, peer_rank(f), 0, stream, below(&f->c, KCR_CLASSES));
}

static void victim_sends(struct peer *f)
{
	__u8 stream = below(&f->c, KCR_STREAMS);
	__u32 bytes = 1 + below(&f->c, 9000);

	mesh_send(f->v.fd, peer_rank(f), 0, stream, 0, bytes, 1 + below(&f->c, 4));
}

static void victim_releases(struct peer *f)
{
	__u8 stream = below(&f->c, KCR_STREAMS), class = below(&f->c, KCR_CLASSES);

	mesh_release(f->v.fd, peer_rank(f), 0, stream, class, 1 + below(&f->c, 4));
}

static void victim_waits(struct peer *f)
{
	dev_wait(f->v.fd, dev_events(f->v.status), DEV_MS * 5, 0);
}

static void acts(struct peer *f)
{
	for (int i = 1; i < f->program->n && f->raw.sent == IBV_WC_SUCCESS; i++) {
		begin(f, &f->program->steps[i]);
		f->program->steps[i].type->run(f);
		raw_poll(&f->raw);
	}
	if (f->end == END_DISCONNECTS)
		rdma_disconnect(f->raw.id);
	else if (f->end == END_HEARS_BYE)
		raw_hears(&f->raw, RAW_BYE, 0.02);
}

/* ---- the way up ---- */

static void comes(struct peer *f)
{
	struct raw_request q = raw_request(&f->raw);
	size_t bytes = sizeof(q);
	struct raw_message m;

	if (one_in(&f->c, 3)) {
		spoil(&f->c, &q, sizeof(q));
		bytes = one_in(&f->c, 4) ? below(&f->c, sizeof(q) + 1) : bytes;
	}
	if (raw_connect(&f->raw, bytes ? &q : NULL, bytes) != RDMA_CM_EVENT_ESTABLISHED)
		return;
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

static void refuses(struct peer *f)
{
	struct raw_reject r = {
		.magic = RAW_MAGIC,
		.version = RAW_VERSION,
		.reason = any_number(&f->c),
		.detail = any_number(&f->c),
	};
	size_t bytes = one_in(&f->c, 3) ? below(&f->c, sizeof(r) + 1) : sizeof(r);

	if (one_in(&f->c, 3))
		spoil(&f->c, &r, sizeof(r));
	rdma_reject(f->raw.id, bytes ? &r : NULL, bytes);
}

static void lets_come(struct peer *f)
{
	struct raw_message m = raw_message(RAW_WELCOME);
	struct raw_accept a;
	size_t bytes = sizeof(a);

	if (raw_requested(&f->raw) || one_in(&f->c, 12))
		return;
	if (one_in(&f->c, 6)) {
		refuses(f);
		return;
	}
	a = raw_acceptance(&f->raw);
	if (one_in(&f->c, 4)) {
		spoil(&f->c, &a, sizeof(a));
		bytes = one_in(&f->c, 3) ? below(&f->c, sizeof(a) + 1) : bytes;
	}
	if (raw_accept(&f->raw, bytes ? &a : NULL, bytes) ||
	    raw_event_is(&f->raw, RDMA_CM_EVENT_ESTABLISHED, 1))
		return;
	if (!one_in(&f->c, 6) && !raw_hears(&f->raw, RAW_HELLO, 1))
		return;
	if (one_in(&f->c, 6))
		spoil(&f->c, &m, sizeof(m));
	raw_say(&f->raw, &m);
	acts(f);
}

/* ---- a program ---- */

const struct step_type step_types[] = {
	{ "comes", 0, comes },
	{ "lets-come", 0, lets_come },
	{ "says", 10, says },
	{ "asks-for-ring", 5, asks_for_ring },
	{ "writes", 10, writes },
	{ "takes-key", 1, takes_key },
	{ "floods", 5, floods },
	{ "victim-opens", 1, victim_opens },
	{ "victim-sends", 1, victim_sends },
	{ "victim-releases", 1, victim_releases },
	{ "victim-windows", 3, victim_windows },
	{ "victim-puts", 1, victim_puts },
	{ "victim-acks", 1, victim_acks },
	{ "victim-arms", 1, victim_arms },
	{ "victim-detaches", 1, victim_detaches },
	{ "victim-waits", 1, victim_waits },
};

const int nr_step_types = sizeof(step_types) / sizeof(step_types[0]);

/* What is wrong then, or NULL. */
static const char *run(struct peer *f)
{
	struct step *way = &f->program->steps[0];
	bool is_active = way->type->run == comes;

	f->v = (struct victim){ .fd = -1 };
	if (victim_join(&f->v))
		return "no world can be made";
	f->raw = raw_peer(&f->v.world, is_active ? 0 : 1, is_active ? 1 : 2, is_active);
	if (is_active) {
		if (victim_expect(&f->v, VICTIM_MS))
			return "the victim cannot expect anybody";
	} else if (raw_listen(&f->raw, PORT) || victim_connect(&f->v, PORT, VICTIM_MS)) {
		return "the victim cannot connect";
	}
	begin(f, way);
	f->end = below(&f->c, ENDS);
	f->is_first_to_go = one_in(&f->c, 2);
	f->raw.is_endless = one_in(&f->c, 24);
	f->raw.is_deaf = one_in(&f->c, 24);
	way->type->run(f);
	if (f->is_first_to_go)
		raw_close(&f->raw);
	victim_free(&f->v);
	raw_close(&f->raw);
	return NULL;
}

/* Is a peer that does as it should served, up to a frame? */
static bool is_served(struct peer *f)
{
	struct raw_message m = raw_about_ring(RAW_WANT, 0, 0, 0);
	bool is_well;

	f->v = (struct victim){ .fd = -1 };
	if (victim_join(&f->v) || victim_expect(&f->v, 60000))
		return false;
	f->raw = raw_peer(&f->v.world, 0, 1, true);
	is_well = !raw_come_up(&f->raw) && !raw_say(&f->raw, &m) &&
		  !mesh_frames(f->v.fd, 0, 0, 0, 0) && raw_hears(&f->raw, RAW_OPENED, 10) &&
		  !raw_write(&f->raw, &f->raw.last[RAW_OPENED].ring, 0, 64, raw_imm(0, 0)) &&
		  !raw_sent(&f->raw) && DEV_SOON(10, mesh_arrived(f->v.low, 0, 0) == 1);
	raw_close(&f->raw);
	victim_free(&f->v);
	return is_well;
}

static const char *target_try(struct fuzz *f, struct program *program)
{
	static struct peer p;
	const char *what;

	p.program = program;
	what = run(&p) ?: left_behind(f, &counters);
	if (!what && f->ran % PROPER_EVERY == 0 && !is_served(&p))
		what = "a proper peer is not served";
	return what;
}

/* ---- the start and the end ---- */

static const char *target_missing(void)
{
	return geteuid() ? "must be root, to see the module's counters" : mesh_missing();
}

static int target_start(struct fuzz *f)
{
	f->coverage = coverage_open(1);
	coverage_follow(f->coverage);
	counters = dev_counters();
	return 0;
}

static void target_make(struct fuzz *f, struct program *p)
{
	program_make(p, &f->chance);
}

static bool target_is_well(struct fuzz *f)
{
	static struct peer p;

	return is_served(&p);
}

static void target_end(struct fuzz *f)
{
}

int main(int argc, char **argv)
{
	return fuzz_main(argc, argv);
}
