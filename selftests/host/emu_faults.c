// SPDX-License-Identifier: GPL-2.0
/*
 * What goes wrong on the way: every message in turn is lost, late or fails;
 * ranks that call different operations
 *
 * Whatever happens, every wait ends, and 0 comes with the right bits only.
 */
#include "kselftest_harness.h"
#include "emu.h"

#define MOST_RANKS	4
#define COUNT		60	/* floats: eight segments of a slot of 64 bytes */

enum what {
	ALLREDUCE, REDUCE_SCATTER, ALLGATHER, BROADCAST, BARRIER, ANY, MESSAGES,
	KINDS
};

static const char * const kind_names[] = {
	"allreduce", "reduce_scatter", "allgather", "broadcast", "barrier",
	"any", "messages",
};

/* An operation of all ranks, and what it must give. */
struct operation {
	enum what what;
	int ranks;
	struct kcr_emu *emu;
	float x[MOST_RANKS][MOST_RANKS * COUNT];
	float y[MOST_RANKS][MOST_RANKS * COUNT];
	int flag[MOST_RANKS];
	struct kcr_request *r[MOST_RANKS][2];	/* the second of messages only */
	int err[MOST_RANKS];
};

static void operation_make(struct operation *o, enum what kind, int ranks,
			   const struct kcr_config *config)
{
	int rank;

	memset(o, 0, sizeof(*o));
	o->what = kind;
	o->ranks = ranks;
	if (kcr_emu_create_config(config, &o->emu))
		abort();
	for (rank = 0; rank < ranks; rank++)
		data_fill(o->x[rank], MOST_RANKS * COUNT, KCR_F32, rank, 5);
}

static int start(struct operation *o, int rank)
{
	struct kcr_world *w = kcr_emu_world(o->emu, rank);
	struct kcr_request **r = o->r[rank];
	float *x = o->x[rank], *y = o->y[rank];
	int next = (rank + 1) % o->ranks, before = (rank + o->ranks - 1) % o->ranks;
	int err;

	switch (o->what) {
	case ALLREDUCE:
		return kcr_iallreduce(w, x, y, COUNT, KCR_F32, KCR_SUM, r);
	case REDUCE_SCATTER:
		return kcr_ireduce_scatter(w, x, y, COUNT, KCR_F32, KCR_SUM, r);
	case ALLGATHER:
		return kcr_iallgather(w, x, y, COUNT, KCR_F32, r);
	case BROADCAST:
		memcpy(y, x, COUNT * sizeof(*x));
		return kcr_ibroadcast(w, y, COUNT, KCR_F32, 1, r);
	case BARRIER:
		return kcr_ibarrier(w, r);
	case ANY:
		return kcr_iany(w, rank == 1, &o->flag[rank], r);
	default:
		err = kcr_isend(w, x, COUNT * sizeof(*x), next, r);
		return err ?: kcr_irecv(w, y, COUNT * sizeof(*x), before, r + 1);
	}
}

/* Element @i of what rank @rank must have; the oracle's where there is a fold. */
static float wanted(const struct operation *o, int rank, int i)
{
	const void *in[MOST_RANKS];
	float out;
	int r;

	if (o->what == REDUCE_SCATTER)
		i += rank * COUNT;
	if (o->what == ALLGATHER)
		return o->x[i / COUNT][i % COUNT];
	if (o->what == BROADCAST)
		return o->x[1][i];
	if (o->what == MESSAGES)
		return o->x[(rank + o->ranks - 1) % o->ranks][i];
	for (r = 0; r < o->ranks; r++)
		in[r] = &o->x[r][i];
	kcr_reference_fold(in, o->ranks, &out, 1, KCR_F32, KCR_SUM);
	return out;
}

static int is_right(const struct operation *o, int rank)
{
	int n = o->what == ALLGATHER ? o->ranks * COUNT : COUNT, i;
	float want;

	if (o->what == BARRIER)
		return 1;
	if (o->what == ANY)
		return o->flag[rank] == 1;
	for (i = 0; i < n; i++) {
		want = wanted(o, rank, i);
		if (memcmp(&want, &o->y[rank][i], sizeof(want)))
			return 0;
	}
	return 1;
}

/* All ranks do it; a rank's result goes to o->err, the first one that is not 0. */
static void run(struct operation *o)
{
	int rank, i, err;

	for (rank = 0; rank < o->ranks; rank++)
		o->err[rank] = start(o, rank);
	for (rank = 0; rank < o->ranks; rank++)
		for (i = 0; i < 2; i++) {
			if (!o->r[rank][i])
				continue;
			err = kcr_wait(o->r[rank][i]);
			if (!o->err[rank])
				o->err[rank] = err;
		}
}

/* The world has ended for all: whoever got through gets the error now. */
static void check_ended(struct __test_metadata *_metadata, struct operation *o,
			int code)
{
	struct kcr_request *r;
	int rank, err;

	for (rank = 0; rank < o->ranks; rank++) {
		struct kcr_world *w = kcr_emu_world(o->emu, rank);

		err = kcr_ibarrier(w, &r);
		if (!err)
			err = kcr_wait(r);
		ASSERT_EQ(-code, err);
		ASSERT_EQ(-code, kcr_ibarrier(w, &r));
		ASSERT_EQ(-code, kcr_barrier(w));
		ASSERT_NE(0, strlen(kcr_error(w)));
	}
}

/* One message has a rule. Returns whether anybody noticed. */
static int try_rule(struct __test_metadata *_metadata, enum what kind,
		    const struct kcr_config *config, enum kcr_emu_rule rule,
		    int from, int to, int nth)
{
	static struct operation o;
	int code = rule == KCR_EMU_FAIL ? ENODEV : ETIMEDOUT;
	int rank, failed = 0, named = 0;
	char name[32];

	operation_make(&o, kind, config->size, config);
	ASSERT_EQ(0, kcr_emu_rule(o.emu, rule, from, to, nth,
				  rule == KCR_EMU_DROP ? 0 :
				  rule == KCR_EMU_FAIL ? ENODEV : 40));
	kcr_emu_shuffle(o.emu, nth * 16 + from * 4 + to);
	run(&o);
	snprintf(name, sizeof(name), "no word from rank %d", from);
	for (rank = 0; rank < o.ranks; rank++) {
		const char *error = kcr_error(kcr_emu_world(o.emu, rank));

		ASSERT_TRUE(o.err[rank] == 0 || o.err[rank] == -code) {
			TH_LOG("%s, rule %d, %d to %d, message %d: rank %d: %d: %s",
			       kind_names[kind], rule, from, to, nth, rank,
			       o.err[rank], error);
		}
		if (!o.err[rank])
			ASSERT_TRUE(is_right(&o, rank));
		failed += o.err[rank] != 0;
		named += !!strstr(error, "no word from rank ");
	}
	if (rule == KCR_EMU_DELAY)
		ASSERT_EQ(0, failed);
	if (rule == KCR_EMU_DROP)
		ASSERT_EQ(failed > 0, named > 0);
	if (failed)
		check_ended(_metadata, &o, code);
	kcr_emu_destroy(o.emu);
	return failed > 0;
}

/* How many pairs of ranks talk. */
static int pairs_of(enum what kind, enum kcr_algo algo, int ranks)
{
	if (kind == BROADCAST)
		return ranks - 1;
	if (kind == MESSAGES)
		return ranks;
	if (kind == ALLREDUCE && algo == KCR_ALGO_CHAIN)
		return 2 * (ranks - 1);
	return ranks * (ranks - 1);
}

/*
 * Every message between every two ranks. Each is needed: who drops or fails one
 * is noticed, so the first that nobody misses is one that was never sent.
 */
static unsigned long every_message(struct __test_metadata *_metadata,
				   enum what kind, enum kcr_algo algo, int ranks)
{
	struct kcr_config config = emu_config(ranks, algo, 64);
	unsigned long rounds = 0;
	int from, to, nth, dropped, failed, pairs = 0;

	config.board_depth = 2;
	config.direct_max = 0;
	config.timeout_ms = 5000;
	for (from = 0; from < ranks; from++)
		for (to = 0; to < ranks; to++) {
			if (from == to)
				continue;
			for (nth = 1; ; nth++) {
				try_rule(_metadata, kind, &config, KCR_EMU_DELAY,
					 from, to, nth);
				dropped = try_rule(_metadata, kind, &config,
						   KCR_EMU_DROP, from, to, nth);
				failed = try_rule(_metadata, kind, &config,
						  KCR_EMU_FAIL, from, to, nth);
				rounds += 3;
				ASSERT_EQ(dropped, failed);
				if (!dropped)
					break;
				ASSERT_GT(100, nth);
			}
			pairs += nth > 1;
		}
	ASSERT_EQ(pairs_of(kind, algo, ranks), pairs);
	return rounds;
}

TEST(every_message_of_allreduce)
{
	double since = emu_now();
	unsigned long rounds = 0;
	int algo, ranks;

	for (algo = KCR_ALGO_DIRECT; algo <= KCR_ALGO_CHAIN; algo++)
		for (ranks = 2; ranks <= MOST_RANKS; ranks++)
			rounds += every_message(_metadata, ALLREDUCE, algo, ranks);
	emu_report("every message of allreduce", rounds, since, 3);
}

TEST(every_message_of_the_others)
{
	double since = emu_now();
	unsigned long rounds = 0;
	int kind, ranks;

	for (kind = ALLREDUCE + 1; kind < KINDS; kind++)
		for (ranks = 2; ranks <= MOST_RANKS; ranks++)
			rounds += every_message(_metadata, kind, KCR_ALGO_AUTO,
						ranks);
	emu_report("every message of the others", rounds, since, 3);
}

/* Requests behind the one that fails, and messages beside it, fail with it. */
TEST(what_is_in_flight_fails_too)
{
	struct kcr_config config = emu_config(3, KCR_ALGO_OWNER, 64);
	struct kcr_request *r[3][4], *message[2];
	static float x[3][4][COUNT];
	struct kcr_emu *emu;
	int rank, i, err;

	ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
	ASSERT_EQ(0, kcr_emu_rule(emu, KCR_EMU_FAIL, 1, 2, 3, EREMOTEIO));
	for (rank = 0; rank < 3; rank++)
		for (i = 0; i < 4; i++)
			ASSERT_EQ(0, kcr_iallreduce(kcr_emu_world(emu, rank),
						    x[rank][i], x[rank][i], COUNT,
						    KCR_F32, KCR_SUM, &r[rank][i]));
	ASSERT_EQ(0, kcr_irecv(kcr_emu_world(emu, 0), &i, 1, 2, &message[0]));
	ASSERT_EQ(0, kcr_irecv(kcr_emu_world(emu, 2), &i, 1, 0, &message[1]));
	/* The first may have ended on a rank that did not need the message. */
	for (i = 3; i >= 0; i--)
		for (rank = 0; rank < 3; rank++) {
			err = kcr_wait(r[rank][i]);
			EXPECT_TRUE(err == -EREMOTEIO || (i == 0 && err == 0));
			EXPECT_NE(NULL, strstr(kcr_error(kcr_emu_world(emu, rank)),
					       "rank 1 failed the world"));
		}
	EXPECT_EQ(-EREMOTEIO, kcr_wait(message[0]));
	EXPECT_EQ(-EREMOTEIO, kcr_wait(message[1]));
	kcr_emu_destroy(emu);
}

/* A rank that never comes: the others name it, and so do messages. */
TEST(who_never_comes_is_named)
{
	struct kcr_config config = emu_config(4, KCR_ALGO_OWNER, 64);
	static float x[4][COUNT];
	struct kcr_request *r[4];
	struct kcr_emu *emu;
	char byte;
	int rank;

	config.timeout_ms = 2000;
	ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
	for (rank = 0; rank < 4; rank++)
		if (rank != 2)
			ASSERT_EQ(0, kcr_iallreduce(kcr_emu_world(emu, rank),
						    x[rank], x[rank], COUNT,
						    KCR_F32, KCR_SUM, &r[rank]));
	EXPECT_EQ(-ETIMEDOUT, kcr_wait(r[3]));
	EXPECT_STREQ("allreduce #1: no word from rank 2 after 2.0 s",
		     kcr_error(kcr_emu_world(emu, 3)));
	EXPECT_EQ(-ETIMEDOUT, kcr_wait(r[0]));
	EXPECT_EQ(-ETIMEDOUT, kcr_wait(r[1]));
	EXPECT_EQ(-ETIMEDOUT, kcr_ibarrier(kcr_emu_world(emu, 2), &r[2]));
	kcr_emu_destroy(emu);

	ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
	ASSERT_EQ(0, kcr_irecv(kcr_emu_world(emu, 1), &byte, 1, 3, &r[1]));
	EXPECT_EQ(-ETIMEDOUT, kcr_wait(r[1]));
	EXPECT_NE(NULL, strstr(kcr_error(kcr_emu_world(emu, 1)),
			       "#1: no word from rank 3 after 2.0 s"));
	kcr_emu_destroy(emu);
}

/* Ranks that call different things. */
struct different {
	enum what what;
	size_t count;
	enum kcr_dtype dtype;
	enum kcr_op op;
	int root;
};

static const struct different calls[] = {
	{ ALLREDUCE, 100, KCR_F32, KCR_SUM },
	{ ALLREDUCE, 98, KCR_F32, KCR_SUM },
	{ ALLREDUCE, 10, KCR_F32, KCR_SUM },
	{ ALLREDUCE, 0, KCR_F32, KCR_SUM },
	{ ALLREDUCE, 100, KCR_I32, KCR_SUM },
	{ ALLREDUCE, 100, KCR_F32, KCR_MAX },
	{ ALLREDUCE, 200, KCR_F16, KCR_SUM },
	{ REDUCE_SCATTER, 25, KCR_F32, KCR_SUM },
	{ REDUCE_SCATTER, 0, KCR_F32, KCR_SUM },
	{ ALLGATHER, 25, KCR_F32 },
	{ BROADCAST, 100, KCR_F32, 0, 0 },
	{ BROADCAST, 100, KCR_F32, 0, 1 },
	{ BROADCAST, 0, KCR_F32, 0, 0 },
	{ BARRIER },
	{ ANY },
};

#define CALLS	((int)(sizeof(calls) / sizeof(calls[0])))

static int call(struct kcr_world *w, const struct different *d, float *x,
		float *y, int *flag, struct kcr_request **r)
{
	switch (d->what) {
	case ALLREDUCE:
		return kcr_iallreduce(w, x, y, d->count, d->dtype, d->op, r);
	case REDUCE_SCATTER:
		return kcr_ireduce_scatter(w, x, y, d->count, d->dtype, d->op, r);
	case ALLGATHER:
		return kcr_iallgather(w, x, y, d->count, d->dtype, r);
	case BROADCAST:
		return kcr_ibroadcast(w, y, d->count, d->dtype, d->root, r);
	case BARRIER:
		return kcr_ibarrier(w, r);
	default:
		return kcr_iany(w, 1, flag, r);
	}
}

/*
 * Rank @odd calls @b where the others call @a. Everybody gets -EPROTO, in this
 * call or the next, and somebody's sentence names both.
 */
static void differ(struct __test_metadata *_metadata,
		   const struct kcr_config *config, int a, int b, int odd)
{
	static float x[MOST_RANKS][400], y[MOST_RANKS][400];
	struct kcr_request *r[MOST_RANKS];
	int rank, err[MOST_RANKS], flags[MOST_RANKS], named = 0;
	struct kcr_emu *emu;

	ASSERT_EQ(0, kcr_emu_create_config(config, &emu));
	for (rank = 0; rank < config->size; rank++)
		err[rank] = call(kcr_emu_world(emu, rank),
				 &calls[rank == odd ? b : a], x[rank], y[rank],
				 &flags[rank], &r[rank]);
	for (rank = 0; rank < config->size; rank++)
		if (!err[rank])
			err[rank] = kcr_wait(r[rank]);
	for (rank = 0; rank < config->size; rank++) {
		struct kcr_world *w = kcr_emu_world(emu, rank);

		if (!err[rank]) {
			err[rank] = kcr_ibarrier(w, &r[rank]);
			if (!err[rank])
				err[rank] = kcr_wait(r[rank]);
		}
		EXPECT_EQ(-EPROTO, err[rank]) {
			TH_LOG("call %d, but %d on rank %d of %d, algo %d: rank %d: %s",
			       a, b, odd, config->size, config->algo, rank,
			       kcr_error(w));
		}
		named += !!strstr(kcr_error(w), "ranks differ: rank ");
	}
	EXPECT_NE(0, named);
	kcr_emu_destroy(emu);
}

static void all_differ(struct __test_metadata *_metadata, enum kcr_algo algo)
{
	struct kcr_config config;
	int a, b, odd;

	for (config.size = 2; config.size <= MOST_RANKS; config.size++)
		for (a = 0; a < CALLS; a++)
			for (b = 0; b < CALLS; b++) {
				if (a == b)
					continue;
				config = emu_config(config.size, algo, 64);
				config.direct_max = 60;
				for (odd = 0; odd < config.size; odd++)
					differ(_metadata, &config, a, b, odd);
			}
}

TEST(different_calls)
{
	all_differ(_metadata, KCR_ALGO_AUTO);
}

TEST(different_calls_chain)
{
	all_differ(_metadata, KCR_ALGO_CHAIN);
}

/* S3 as it was reported: the tail of the longer one was wrong. */
TEST(counts_that_differ_a_little)
{
	static float x[2][409600];
	struct kcr_request *r[2];
	struct kcr_emu *emu;
	int algo, rank;

	for (algo = KCR_ALGO_AUTO; algo <= KCR_ALGO_CHAIN; algo++) {
		struct kcr_config config;

		kcr_config_init(&config);
		config.size = 2;
		config.algo = algo;
		ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
		for (rank = 0; rank < 2; rank++)
			ASSERT_EQ(0, kcr_iallreduce(kcr_emu_world(emu, rank),
						    x[rank], x[rank],
						    409600 - 2 * rank, KCR_F32,
						    KCR_SUM, &r[rank]));
		for (rank = 0; rank < 2; rank++)
			EXPECT_EQ(-EPROTO, kcr_wait(r[rank]));
		EXPECT_STREQ("ranks differ: rank 0 called allreduce #1 (409600 f32, sum), rank 1 called allreduce #1 (409598 f32, sum)",
			     kcr_error(kcr_emu_world(emu, 0)));
		kcr_emu_destroy(emu);
	}
}

/*
 * Two ranks have differed. What a third one could do without them, and has not
 * begun, it does not do either.
 */
TEST(nothing_begins_after_it)
{
	struct kcr_config config = emu_config(3, KCR_ALGO_AUTO, 64);
	static float x[3][COUNT];
	struct kcr_request *r[3];
	struct kcr_emu *emu;
	int what, err;

	for (what = 0; what < 2; what++) {
		ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
		/* Over a message: nothing of it is seen where collectives go. */
		ASSERT_EQ(0, kcr_isend(kcr_emu_world(emu, 0), x[0], 1, 1, &r[0]));
		ASSERT_EQ(0, kcr_irecv(kcr_emu_world(emu, 1), x[1], 2, 0, &r[1]));
		ASSERT_EQ(-EPROTO, kcr_wait(r[1]));
		kcr_wait(r[0]);
		err = what ? kcr_isend(kcr_emu_world(emu, 2), x[2], 1, 0, &r[2]) :
			     kcr_ibroadcast(kcr_emu_world(emu, 2), x[2], 1, KCR_F32,
					    2, &r[2]);
		EXPECT_EQ(-EPROTO, err ?: kcr_wait(r[2]));
		EXPECT_NE(NULL, strstr(kcr_error(kcr_emu_world(emu, 2)),
				       "ranks differ"));
		EXPECT_EQ(-EPROTO, kcr_barrier(kcr_emu_world(emu, 2)));
		kcr_emu_destroy(emu);
	}
}

/* A message of another length: both ends get -EPROTO, in this call or the next. */
TEST(messages_of_different_lengths)
{
	static const size_t lengths[][2] = {
		{ 0, 1 }, { 1, 0 }, { 5, 6 }, { 100, 101 }, { 101, 100 },
		{ 10, 1000 }, { 1000, 10 },
	};
	struct kcr_config config = emu_config(3, KCR_ALGO_AUTO, 64);
	struct kcr_request *send, *receive;
	char from[1000] = { 0 }, to[1000];
	struct kcr_emu *emu;
	int i, err;

	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
		ASSERT_EQ(0, kcr_isend(kcr_emu_world(emu, 0), from, lengths[i][0],
				       2, &send));
		ASSERT_EQ(0, kcr_irecv(kcr_emu_world(emu, 2), to, lengths[i][1],
				       0, &receive));
		EXPECT_EQ(-EPROTO, kcr_wait(receive));
		EXPECT_NE(NULL, strstr(kcr_error(kcr_emu_world(emu, 2)),
				       "ranks differ: rank 2 called "));
		err = kcr_wait(send);
		if (!err)
			err = kcr_isend(kcr_emu_world(emu, 0), from, 1, 2, &send);
		EXPECT_EQ(-EPROTO, err) {
			TH_LOG("%zu sent, %zu received", lengths[i][0],
			       lengths[i][1]);
			if (!err)
				EXPECT_EQ(-EPROTO, kcr_wait(send));
		}
		kcr_emu_destroy(emu);
	}
}

TEST_HARNESS_MAIN
