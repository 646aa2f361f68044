// SPDX-License-Identifier: GPL-2.0
/*
 * The mesh over a fake of the module: every operation between nodes, what
 * differs between ranks, who leaves, who is late, and what breaks
 *
 * The fake is as mean as the interface allows: see fake_module.h.
 */
#include <stdio.h>

#include "kselftest_harness.h"
#include "collective.h"
#include "fake_module.h"
#include "../../lib/link_mesh.h"
#include "../../lib/rendezvous.h"
#include "../../lib/request.h"
#include "../../lib/coll.h"
#include "../../lib/world.h"

struct setup {
	int ranks, wires;
	int nodes;		/* ranks are dealt round; 0: all by the mesh */
	size_t wires_from, slot;
	uint32_t depth;
	uint64_t timeout_ms;
	int algo;
	int refuse_every;
	int cause;		/* of a world that fails */
	enum kcr_connect_when connect;
	int (*body)(struct kcr_world *w);
};

static struct setup setup;
static struct card cards[FAKE_RANKS];
static pthread_barrier_t all;
static struct rendezvous meeting[FAKE_RANKS];
static char errors[FAKE_RANKS][KCR_ERROR_BYTES];
static int results[FAKE_RANKS];

static int meet(struct rendezvous *rv, const char *note)
{
	pthread_barrier_wait(&all);
	return 0;
}

static int no_error(struct rendezvous *rv, bool waits)
{
	return 0;
}

static const struct card *card_of(const struct rendezvous *rv, int rank)
{
	return &cards[rank];
}

static void close_nothing(struct rendezvous *rv)
{
}

static const struct rendezvous_ops meeting_ops = {
	.exchange = meet,
	.error = no_error,
	.card = card_of,
	.close = close_nothing,
};

static void make_cards(void)
{
	char text[80];
	int r, i;

	for (r = 0; r < setup.ranks; r++) {
		struct card *c = &cards[r];

		fake.node[r] = setup.nodes ? r % setup.nodes : 0;
		memset(c, 0, sizeof(*c));
		snprintf(c->host, sizeof(c->host), "node%d", fake.node[r]);
		snprintf(c->boot, sizeof(c->boot), "boot%d", fake.node[r]);
		memset(c->id, '0', 32);
		memset(c->key, '0', 32);
		c->has_module = 1;
		c->wires.count = setup.wires;
		for (i = 0; i < setup.wires; i++) {
			snprintf(text, sizeof(text), "dev%d 10.%d.0.%d/24", i, i,
				 fake.node[r] + 1);
			wire_end_parse(text, &c->wires.wires[i]);
		}
	}
}

static int make_world(int rank, struct kcr_world **w)
{
	struct kcr_config config;
	int err;

	kcr_config_init(&config);
	config.size = setup.ranks;
	config.rank = rank;
	config.link = setup.nodes ? KCR_LINK_AUTO : KCR_LINK_MESH;
	config.algo = setup.algo;
	config.connect = setup.connect;
	config.timeout_ms = setup.timeout_ms ? setup.timeout_ms : 30000;
	config.rendezvous_ms = 5000;
	config.spin = 10;
	config.yield = 10;
	if (setup.depth)
		config.mesh_depth = setup.depth;
	if (setup.wires_from)
		config.wires_from = setup.wires_from;
	if (setup.slot) {
		config.lane_bytes = setup.slot;
		config.board_bytes = setup.slot;
	}
	err = world_alloc(&config, w);
	if (err)
		return err;
	meeting[rank].ops = &meeting_ops;
	meeting[rank].references = 2;
	(*w)->rendezvous = &meeting[rank];
	err = link_create(*w, &meeting[rank]);
	(*w)->operation = -1;
	return err ? err : coll_barrier(*w);
}

static void *run_rank(void *arg)
{
	struct kcr_world *w = NULL;
	int err;

	fake_me = (long)arg;
	err = make_world(fake_me, &w);
	if (err)
		snprintf(errors[fake_me], KCR_ERROR_BYTES, "%s", kcr_error(NULL));
	else
		err = setup.body(w);
	if (w && w->link && w->error[0])
		snprintf(errors[fake_me], KCR_ERROR_BYTES, "%s", kcr_error(w));
	results[fake_me] = err;
	if (w && w->link)
		kcr_world_destroy(w);
	else if (w)
		world_free(w);
	return NULL;
}

static void run(const struct setup *s)
{
	pthread_t threads[FAKE_RANKS];
	long r;

	setenv("KCR_URING", "0", 1);
	setup = *s;
	fake.refuse_every = s->refuse_every;
	memset(errors, 0, sizeof(errors));
	make_cards();
	pthread_barrier_init(&all, NULL, s->ranks);
	fake_start(s->ranks);
	for (r = 0; r < s->ranks; r++)
		pthread_create(&threads[r], NULL, run_rank, (void *)r);
	for (r = 0; r < s->ranks; r++)
		pthread_join(threads[r], NULL);
	fake_stop();
	pthread_barrier_destroy(&all);
}

#define RUN(...)	run(&(const struct setup){ __VA_ARGS__ })

#define EXPECT_ALL(error)						\
	do {								\
		for (int r_ = 0; r_ < setup.ranks; r_++) {		\
			EXPECT_EQ(error, results[r_])			\
				TH_LOG("rank %d: %s", r_, errors[r_]);	\
		}							\
	} while (0)

/* ---- every operation ---- */

static int every_operation(struct kcr_world *w)
{
	static const size_t counts[] = { 0, 1, 7, 500, 1024, 1025, 5000, 40000,
					 150000 };
	struct collective c = { .dtype = KCR_F32, .op = KCR_SUM, .seed = 5 };
	size_t n = sizeof(counts) / sizeof(counts[0]);
	int err = 0;

	if (strcmp(kcr_link_name(w), setup.nodes ? "module+mesh" : "mesh"))
		return -ENOTCONN;
	c.rank = kcr_rank(w);
	c.ranks = kcr_size(w);
	if (collective_alloc(&c, collective_room(counts[n - 1], c.ranks)))
		return -ENOMEM;
	for (size_t i = 0; i < n && !err; i++) {
		for (int kind = 0; kind < COLLECTIVE_KINDS && !err; kind++) {
			c.kind = kind;
			c.count = counts[i];
			c.root = 1 + i % (c.ranks - 1);
			c.seed++;
			collective_prepare(&c, w);
			err = collective_call(&c, w);
			if (!err && collective_wrong(&c) >= 0) {
				printf("# rank %d: kind %d count %zu: wrong at %ld\n",
				       c.rank, kind, c.count,
				       collective_wrong(&c));
				err = -EILSEQ;
			}
		}
	}
	collective_free(&c);
	return err;
}

TEST(two_ranks)
{
	RUN(.ranks = 2, .wires = 1, .body = every_operation);
	EXPECT_ALL(0);
}

TEST(wires_and_ranks)
{
	for (int wires = 1; wires <= 4; wires++) {
		RUN(.ranks = 1 + wires, .wires = wires,
		    .wires_from = 1, .body = every_operation,
		    .algo = wires % 3);
		EXPECT_ALL(0);
	}
}

/* Frames that have come to this rank over a wire. */
static uint64_t arrived(int peer, int wire)
{
	const struct kcr_conn_status *s = fake.rank[fake_me].conns[peer][wire].status;
	uint64_t n = 0;

	for (int stream = 0; stream < KCR_STREAMS; stream++)
		for (int class = 0; class < KCR_CLASSES; class++)
			n += __atomic_load_n(&s->rings[stream][class].arrived, __ATOMIC_ACQUIRE);
	return n;
}

/* Has something come over each wire but the first, if it should, and else over none? */
static int check_wires(const struct collective *c, const uint64_t *before, bool is_split)
{
	int peer = !c->rank, wire;

	for (wire = 1; wire < setup.wires; wire++) {
		uint64_t frames = arrived(peer, wire) - before[wire];

		if (!!frames != is_split) {
			printf("# rank %d: kind %d count %zu: wire %d: %llu frames\n", c->rank,
			       c->kind, c->count, wire, (unsigned long long)frames);
			return -EILSEQ;
		}
	}
	return 0;
}

/* What is one element too small comes over the first wire, else some of it over each. */
static int over_which_wires(struct kcr_world *w)
{
	struct collective c = { .dtype = KCR_F32, .op = KCR_SUM, .rank = kcr_rank(w), .ranks = 2 };
	size_t from = (512 << 10) / sizeof(float);
	int peer = !c.rank, err = 0;

	if (collective_alloc(&c, collective_room(from, c.ranks)))
		return -ENOMEM;
	for (int kind = 0; kind < COLLECTIVE_KINDS && !err; kind++) {
		for (c.count = from - 1; c.count <= from && !err; c.count++) {
			uint64_t before[KCR_MAX_WIRES];

			c.kind = kind;
			if (!collective_moves_data(&c))
				continue;
			c.root = kind != COLLECTIVE_BROADCAST;
			c.seed++;
			for (int wire = 0; wire < setup.wires; wire++)
				before[wire] = arrived(peer, wire);
			collective_prepare(&c, w);
			/* Until this rank has counted, the other does not go on. */
			err = kcr_barrier(w) ?: collective_call(&c, w);
			if (!err && collective_wrong(&c) >= 0)
				err = -EILSEQ;
			/* The root of a broadcast receives nothing. */
			if (!err && (kind != COLLECTIVE_BROADCAST || c.rank))
				err = check_wires(&c, before, c.count == from);
		}
	}
	collective_free(&c);
	return err;
}

TEST(how_much_is_split)
{
	for (int algo = 0; algo < 4; algo++) {
		RUN(.ranks = 2, .wires = 4, .body = over_which_wires, .algo = algo);
		EXPECT_ALL(0);
	}
}

TEST(small_slots)
{
	RUN(.ranks = 3, .wires = 2, .wires_from = 1000,
	    .slot = 4096 + 64, .body = every_operation);
	EXPECT_ALL(0);
}

TEST(one_frame_on_its_way)
{
	RUN(.ranks = 3, .wires = 1, .depth = 1,
	    .body = every_operation);
	EXPECT_ALL(0);
}

TEST(a_device_that_is_full)
{
	RUN(.ranks = 3, .wires = 2, .wires_from = 1,
	    .refuse_every = 3, .body = every_operation);
	EXPECT_ALL(0);
}

TEST(lanes_and_mesh)
{
	for (int algo = KCR_ALGO_DIRECT; algo <= KCR_ALGO_CHAIN; algo++) {
		RUN(.ranks = 4, .wires = 2, .nodes = 2,
		    .algo = algo, .wires_from = 1,
		    .body = every_operation);
		EXPECT_ALL(0);
	}
}

/* ---- nobody waits for ever ---- */

/* Receivers that never send: nothing carries their credits. */
static int broadcasts(struct kcr_world *w)
{
	static const size_t sizes[] = { 100, 5000, 10000, 20000, 40000, 60000 };
	unsigned char *buf = malloc(60000);
	int err = 0;

	for (int i = 0; i < 300 && !err; i++) {
		size_t n = sizes[i * 7 % 6];

		memset(buf, kcr_rank(w) ? 0 : i, n);
		err = kcr_broadcast(w, buf, n, KCR_U8, 0);
		for (size_t k = 0; k < n && !err; k++)
			if (buf[k] != (unsigned char)i)
				err = -EILSEQ;
	}
	free(buf);
	return err;
}

TEST(broadcasts_of_all_classes)
{
	RUN(.ranks = 3, .wires = 1, .timeout_ms = 5000,
	    .body = broadcasts);
	EXPECT_ALL(0);
	/* Some over all wires, then some over the first. */
	for (size_t from = 1; from <= 30001; from += 30000) {
		RUN(.ranks = 3, .wires = 4, .wires_from = from,
		    .timeout_ms = 5000, .body = broadcasts);
		EXPECT_ALL(0);
	}
}

/* Both send before they receive, and no ring is open. */
static int crossing_messages(struct kcr_world *w)
{
	int peer = !kcr_rank(w), err = 0;
	char out[9000], in[9000];

	for (size_t n = 1; n <= sizeof(out) && !err; n *= 3) {
		memset(out, kcr_rank(w) + 1, n);
		err = kcr_send(w, out, n, peer) ?: kcr_recv(w, in, n, peer);
		if (!err && (in[0] != peer + 1 || in[n - 1] != peer + 1))
			err = -EILSEQ;
	}
	return err;
}

TEST(messages_that_cross)
{
	RUN(.ranks = 2, .wires = 1, .timeout_ms = 5000,
	    .body = crossing_messages);
	EXPECT_ALL(0);
}

/* A short message has left when the call returns, whatever the peer does. */
static int message_then_silence(struct kcr_world *w)
{
	char c = 5;
	int err;

	if (kcr_rank(w) == 0) {
		err = kcr_send(w, &c, 1, 1);
		usleep(500000);
		return err;
	}
	/* Longer than rank 0 waits. */
	usleep(1500000);
	err = kcr_recv(w, &c, 1, 0);
	return err ? err : c == 5 ? 0 : -EILSEQ;
}

TEST(a_sender_that_computes)
{
	RUN(.ranks = 2, .wires = 1, .timeout_ms = 1000,
	    .body = message_then_silence);
	EXPECT_ALL(0);
}

/* ---- connections on first use ---- */

static int connected[FAKE_RANKS];

/* By how many wires, and to whom, is a rank connected? */
static int count_up(int rank)
{
	int n = 0;

	for (int peer = 0; peer < setup.ranks; peer++) {
		for (int wire = 0; wire < setup.wires; wire++) {
			struct fake_conn *c = &fake.rank[rank].conns[peer][wire];

			n += c->status && c->status->state == KCR_CONN_UP;
		}
	}
	return n;
}

/* No more than the neighbours, and for what is small by one wire. */
static int by_chain(struct kcr_world *w)
{
	float x[100], *in[FAKE_RANKS], sum[100];
	const void *operands[FAKE_RANKS];
	int err = 0, size = kcr_size(w);

	for (int r = 0; r < size; r++) {
		in[r] = calloc(100, sizeof(float));
		for (int i = 0; i < 100; i++)
			in[r][i] = (r % 2 ? -1e8f : 1e8f) + r * 251 + i;
		operands[r] = in[r];
	}
	for (int i = 0; !err && i < 3; i++) {
		memcpy(x, in[kcr_rank(w)], sizeof(x));
		err = kcr_allreduce(w, x, x, 100, KCR_F32, KCR_SUM);
	}
	kcr_reference_fold(operands, size, sum, 100, KCR_F32, KCR_SUM);
	if (!err && memcmp(x, sum, sizeof(x)))
		err = -EILSEQ;
	connected[kcr_rank(w)] = count_up(kcr_rank(w));
	/* Nobody leaves before all have counted. */
	if (!err)
		err = kcr_allreduce(w, x, x, 100, KCR_F32, KCR_SUM);
	for (int r = 0; r < size; r++)
		free(in[r]);
	return err;
}

TEST(a_chain_on_first_use)
{
	RUN(.ranks = 6, .wires = 2, .timeout_ms = 5000, .algo = KCR_ALGO_CHAIN,
	    .connect = KCR_CONNECT_LAZY, .body = by_chain);
	EXPECT_ALL(0);
	for (int r = 0; r < 6; r++)
		EXPECT_EQ(r && r < 5 ? 2 : 1, connected[r]);
	RUN(.ranks = 6, .wires = 2, .timeout_ms = 5000, .algo = KCR_ALGO_CHAIN,
	    .body = by_chain);
	EXPECT_ALL(0);
	EXPECT_EQ(10, connected[0]);
}

TEST(everything_on_first_use)
{
	RUN(.ranks = 4, .wires = 2, .wires_from = 4096, .timeout_ms = 10000,
	    .connect = KCR_CONNECT_LAZY, .body = every_operation);
	EXPECT_ALL(0);
	RUN(.ranks = 4, .wires = 1, .nodes = 2, .timeout_ms = 10000,
	    .connect = KCR_CONNECT_LAZY, .body = every_operation);
	EXPECT_ALL(0);
}

/* ---- what goes wrong ---- */

/* Other counts, so other classes and other wires: case S3. */
static int other_counts(struct kcr_world *w)
{
	size_t count = kcr_rank(w) == 1 ? 2000 : 200000;
	float *x = calloc(200000, sizeof(*x));
	int err = kcr_allreduce(w, x, x, count, KCR_F32, KCR_SUM);

	free(x);
	return err;
}

TEST(ranks_differ)
{
	RUN(.ranks = 3, .wires = 2, .wires_from = 1 << 19,
	    .timeout_ms = 20000, .body = other_counts);
	EXPECT_ALL(-EPROTO);
	for (int r = 0; r < 3; r++)
		EXPECT_NE(NULL, strstr(errors[r], "ranks differ"));
	EXPECT_NE(NULL, strstr(errors[1], "2000 f32"));
	EXPECT_NE(NULL, strstr(errors[1], "200000 f32"));
}

static int one_leaves(struct kcr_world *w)
{
	int err = kcr_barrier(w);

	if (kcr_rank(w) == 2 || err)
		return err;
	return kcr_barrier(w);
}

TEST(a_rank_leaves)
{
	RUN(.ranks = 3, .wires = 2, .timeout_ms = 5000,
	    .body = one_leaves);
	EXPECT_EQ(0, results[2]);
	EXPECT_EQ(-ESHUTDOWN, results[0]);
	EXPECT_EQ(-ESHUTDOWN, results[1]);
	EXPECT_STREQ("barrier #2: rank 2 left", errors[0]);
	/* Also where not all wires, or none yet, were used. */
	RUN(.ranks = 3, .wires = 3, .timeout_ms = 5000,
	    .connect = KCR_CONNECT_LAZY, .body = one_leaves);
	EXPECT_EQ(-ESHUTDOWN, results[0]);
	EXPECT_EQ(-ESHUTDOWN, results[1]);
	EXPECT_STREQ("barrier #2: rank 2 left", errors[0]);
}

static int one_is_late(struct kcr_world *w)
{
	if (kcr_rank(w) == 1)
		usleep(2500000);
	return kcr_barrier(w);
}

TEST(a_rank_is_late)
{
	RUN(.ranks = 3, .wires = 1, .timeout_ms = 1000,
	    .body = one_is_late);
	EXPECT_EQ(-ETIMEDOUT, results[0]);
	EXPECT_EQ(-ETIMEDOUT, results[2]);
	EXPECT_NE(NULL, strstr(errors[0], "barrier #1: no word from rank 1 after"));
}

/* The way between ranks 0 and 1 breaks while all wait for rank 1. */
static int one_breaks(struct kcr_world *w)
{
	struct fake_conn *c = &fake.rank[0].conns[1][1];

	if (kcr_rank(w) != 1)
		return kcr_barrier(w);
	usleep(200000);
	pthread_mutex_lock(&fake.lock);
	c->status->reason = KCR_REASON_COMPLETION;
	c->status->detail = 12;
	c->status->error = EHOSTUNREACH;
	c->status->mtu = 4096;
	__atomic_store_n(&c->status->state, KCR_CONN_FAILED, __ATOMIC_RELEASE);
	fake_fail_world(KCR_CAUSE(1, EHOSTUNREACH));
	pthread_mutex_unlock(&fake.lock);
	return kcr_barrier(w);
}

TEST(a_way_breaks)
{
	RUN(.ranks = 3, .wires = 2, .timeout_ms = 5000,
	    .body = one_breaks);
	EXPECT_ALL(-EHOSTUNREACH);
	EXPECT_STREQ("barrier #1: the way to rank 1 (host node0) by wire 1 broke: dev1 10.1.0.1 -> 10.1.0.1, GID :: -> ::, MTU 4096: transport retry counter exceeded (12)",
		     errors[0]);
	EXPECT_STREQ("barrier #1: rank 1 lost a way: No route to host",
		     errors[2]);
}

/* ---- words ---- */

static const char *words(__u32 reason, __u32 detail, __u32 error)
{
	static char text[KCR_ERROR_BYTES];
	struct kcr_conn_status status = {
		.state = KCR_CONN_FAILED, .reason = reason, .detail = detail, .error = error,
	};
	static const struct wire_end wire = { .device = "dev0" };
	struct mesh_conn c = { .status = &status, .local = &wire, .remote = &wire };

	mesh_describe(&c, text, sizeof(text));
	return strstr(text, ": ") + 2;
}

TEST(reasons)
{
	EXPECT_STREQ("transport retry counter exceeded (12)",
		     words(KCR_REASON_COMPLETION, 12, EHOSTUNREACH));
	EXPECT_STREQ("the peer's module speaks another version: 4, where this node's speaks 3",
		     words(KCR_REASON_VERSION, 3 << 16 | 4, EPROTO));
	EXPECT_STREQ("the peer is connected to this rank already",
		     words(KCR_REASON_DUPLICATE, 0, EEXIST));
	EXPECT_STREQ("the peer is busy with one who does not prove to be this rank",
		     words(KCR_REASON_DUPLICATE, 1, ETIMEDOUT));
	EXPECT_STREQ("the RDMA device is gone", words(KCR_REASON_DEVICE, 0, ENODEV));
	EXPECT_STREQ("the RDMA device is of a kind that cannot be used: iWARP",
		     words(KCR_REASON_DEVICE, 0, EOPNOTSUPP));
	EXPECT_STREQ("no heartbeat from the peer's node (ms 9000)",
		     words(KCR_REASON_SILENT, 9000, EHOSTDOWN));
	EXPECT_STREQ("a reason that this library does not know", words(99, 0, EIO));
}

/* A rank that did not see it itself is told by the world's cause. */
static int told_of(struct kcr_world *w)
{
	if (!kcr_rank(w))
		return kcr_barrier(w);
	if (kcr_rank(w) == 1) {
		usleep(100000);
		pthread_mutex_lock(&fake.lock);
		fake_fail_world(KCR_CAUSE(1, setup.cause));
		pthread_mutex_unlock(&fake.lock);
	}
	return kcr_barrier(w);
}

TEST(told_of_a_way)
{
	RUN(.ranks = 2, .wires = 1, .timeout_ms = 5000, .body = told_of,
	    .cause = EIO);
	EXPECT_STREQ("barrier #1: rank 1 lost a way, or failed the world: Input/output error",
		     errors[0]);
	RUN(.ranks = 2, .wires = 1, .timeout_ms = 5000, .body = told_of,
	    .cause = EHOSTDOWN);
	EXPECT_STREQ("barrier #1: rank 1 lost a way: Host is down", errors[0]);
	RUN(.ranks = 2, .wires = 1, .timeout_ms = 5000, .body = told_of,
	    .cause = ENOTUNIQ);
	EXPECT_STREQ("barrier #1: rank 1 failed the world: Name not unique on network",
		     errors[0]);
}

/* ---- arithmetic ---- */

TEST(classes)
{
	for (size_t bytes = 1; bytes <= KCR_FRAME_BYTES_MAX; bytes++)
		if (mesh_class(bytes) != fake_class(bytes))
			ASSERT_EQ(fake_class(bytes), mesh_class(bytes));
}

TEST_HARNESS_MAIN
