// SPDX-License-Identifier: GPL-2.0
/*
 * Messages from one rank to another: what is sent arrives, in order, whatever
 * else is on its way, and what goes wrong is said by name
 *
 * Over the link that KCR_LINK names. Slots hold 224 bytes, so that most messages
 * need several.
 */
#include "kselftest_harness.h"
#include "data.h"
#include "ranks.h"

#define SLOT	"256"
#define ROOM	(256 - 32)
/* More than a lane holds, so that it needs a peer that receives. */
#define LONG	(100 * ROOM + 3)
/* The promise is a second; two processors shared with others get two. */
#define SOON	(2.0 * pace())

static const size_t sizes[] = {
	1, 0, 7, ROOM - 1, ROOM, ROOM + 1, 2 * ROOM - 1, 2 * ROOM,
	2 * ROOM + 1, 3 * ROOM, 10 * ROOM + 5, 64, 0, LONG, 2,
};

#define SIZES	ARRAY_SIZE(sizes)

struct scene {
	struct ranks_meeting meeting;
	struct ranks_outcome outcome[8];
	double acted;
};

/* The bytes of message number @i between two ranks. */
static void fill(void *buffer, size_t bytes, int from, int to, size_t i)
{
	data_fill(buffer, bytes, KCR_U8, from, i * 64 + to);
}

static int is_right(const void *buffer, size_t bytes, int from, int to, size_t i)
{
	unsigned char *want = malloc(bytes + 1);
	int right;

	fill(want, bytes, from, to, i);
	right = !memcmp(want, buffer, bytes);
	free(want);
	return right;
}

FIXTURE(messages) {
	struct scene *scene;
};

FIXTURE_SETUP(messages)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_LANE_BYTES", SLOT, 1);
	setenv("KCR_BOARD_BYTES", SLOT, 1);
	setenv("KCR_TIMEOUT", "30", 1);
	self->scene = ranks_shared(sizeof(*self->scene));
	ASSERT_NE(NULL, self->scene);
}

FIXTURE_TEARDOWN(messages)
{
}

/* Each to each other all sizes, all on their way at once. */
static int all_pairs(int rank, void *arg)
{
	static struct kcr_request *sent[8][SIZES], *received[8][SIZES];
	static unsigned char *out[8][SIZES], *in[8][SIZES];
	struct kcr_world *w;
	size_t i;
	int peer, n;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	n = kcr_size(w);
	for (i = 0; i < SIZES; i++)
		for (peer = 0; peer < n; peer++) {
			if (peer == rank)
				continue;
			out[peer][i] = malloc(sizes[i] + 1);
			in[peer][i] = malloc(sizes[i] + 1);
			in[peer][i][sizes[i]] = 0x5a;
			fill(out[peer][i], sizes[i], rank, peer, i);
			RANK_OK(w, kcr_irecv(w, in[peer][i], sizes[i], peer,
					     &received[peer][i]));
			RANK_OK(w, kcr_isend(w, out[peer][i], sizes[i], peer,
					     &sent[peer][i]));
		}
	/* The last one first: waiting is in any order. */
	for (peer = n - 1; peer >= 0; peer--)
		for (i = SIZES; peer != rank && i--;) {
			RANK_OK(w, kcr_wait(received[peer][i]));
			RANK_OK(w, kcr_wait(sent[peer][i]));
			RANK_TRUE(is_right(in[peer][i], sizes[i], peer, rank, i));
			RANK_TRUE(in[peer][i][sizes[i]] == 0x5a);
			RANK_TRUE(is_right(out[peer][i], sizes[i], rank, peer, i));
			free(in[peer][i]);
			free(out[peer][i]);
		}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(messages, between_all_pairs, 120)
{
	int ranks;

	for (ranks = 2; ranks <= 5; ranks++)
		ASSERT_EQ(0, ranks_run(ranks, all_pairs, NULL, 60));
}

/* One rank sends to all others, many and mixed; the calls block. */
static int in_order(int rank, void *arg)
{
	static unsigned char buffer[LONG + 1];
	size_t rounds = *(long *)arg, i, bytes;
	struct kcr_world *w;
	int peer;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < rounds; i++) {
		bytes = data_mix(i) % 16 ? data_mix(i) % 64 : data_mix(i) % LONG;
		for (peer = 1; !rank && peer < kcr_size(w); peer++) {
			fill(buffer, bytes, 0, peer, i);
			RANK_OK(w, kcr_send(w, buffer, bytes, peer));
			/* May be used again at once. */
			memset(buffer, 0, bytes);
		}
		if (!rank)
			continue;
		memset(buffer, 0, bytes);
		RANK_OK(w, kcr_recv(w, buffer, bytes, 0));
		if (!is_right(buffer, bytes, 0, rank, i))
			RANK_FAIL("message %zu of %zu bytes is wrong", i, bytes);
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(messages, in_order, 120)
{
	long rounds = ranks_rounds(1 << 14);

	ASSERT_EQ(0, ranks_run(3, in_order, &rounds, 100));
}

/* A short message does not wait for who receives it, an empty one needs no buffer. */
static int short_and_empty(int rank, void *arg)
{
	struct scene *scene = arg;
	struct kcr_world *w;
	int value = 7;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	if (!rank) {
		RANK_OK(w, kcr_send(w, &value, sizeof(value), 1));
		RANK_OK(w, kcr_send(w, NULL, 0, 1));
		ranks_meet(&scene->meeting, 2);
		RANK_OK(w, kcr_recv(w, NULL, 0, 1));
	} else {
		ranks_meet(&scene->meeting, 2);
		RANK_OK(w, kcr_recv(w, &value, sizeof(value), 0));
		RANK_OK(w, kcr_recv(w, NULL, 0, 0));
		RANK_TRUE(value == 7);
		RANK_OK(w, kcr_send(w, NULL, 0, 0));
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(messages, short_and_empty, 60)
{
	ASSERT_EQ(0, ranks_run(2, short_and_empty, self->scene, 50));
}

static int long_ones(int rank, void *arg)
{
	size_t bytes = 1000003, i;
	unsigned char *out = malloc(bytes), *in = malloc(bytes);
	struct kcr_request *sent;
	struct kcr_world *w;

	/* As they are by default. */
	unsetenv("KCR_LANE_BYTES");
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < 3; i++) {
		fill(out, bytes, rank, !rank, i);
		memset(in, 0, bytes);
		/* Both blocking in kcr_send() would be a mistake of theirs. */
		RANK_OK(w, kcr_isend(w, out, bytes, !rank, &sent));
		RANK_OK(w, kcr_recv(w, in, bytes, !rank));
		RANK_OK(w, kcr_wait(sent));
		RANK_TRUE(is_right(in, bytes, !rank, rank, i));
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	free(out);
	free(in);
	return 0;
}

TEST_F_TIMEOUT(messages, long_ones, 60)
{
	ASSERT_EQ(0, ranks_run(2, long_ones, NULL, 50));
}

/*
 * Ranks exchange messages while a collective is on its way that cannot go on: the
 * last rank calls it only when it has its message.
 */
static int during_a_collective(int rank, void *arg)
{
	static unsigned char out[LONG], in[LONG];
	struct kcr_request *sent, *received, *reduction;
	float data[1000], want[1000];
	struct kcr_world *w;
	int n, last, left, right, i;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	n = kcr_size(w);
	last = n - 1;
	left = (rank + n - 1) % n;
	right = (rank + 1) % n;
	for (i = 0; i < 5; i++) {
		data_fill(data, 1000, KCR_F32, rank, i);
		fill(out, LONG, rank, right, i);
		if (rank != last)
			RANK_OK(w, kcr_iallreduce(w, data, data, 1000, KCR_F32,
						  KCR_SUM, &reduction));
		RANK_OK(w, kcr_isend(w, out, LONG, right, &sent));
		RANK_OK(w, kcr_irecv(w, in, LONG, left, &received));
		RANK_OK(w, kcr_wait(received));
		RANK_TRUE(is_right(in, LONG, left, rank, i));
		RANK_OK(w, kcr_wait(sent));
		if (rank == last)
			RANK_OK(w, kcr_iallreduce(w, data, data, 1000, KCR_F32,
						  KCR_SUM, &reduction));
		RANK_OK(w, kcr_wait(reduction));
		RANK_OK(NULL, data_expect(want, 1000, KCR_F32, KCR_SUM, n, i));
		RANK_TRUE(data_differ(want, data, 1000, KCR_F32) < 0);
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(messages, during_a_collective, 120)
{
	const char *const algos[] = { "direct", "owner", "chain" };
	int i;

	for (i = 0; i < ARRAY_SIZE(algos); i++) {
		setenv("KCR_ALGO", algos[i], 1);
		ASSERT_EQ(0, ranks_run(4, during_a_collective, NULL, 30));
	}
}

static int arguments(int rank, void *arg)
{
	struct kcr_request *request = (void *)1;
	struct kcr_world *w;
	char byte = 0, text[40];
	int n;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	n = kcr_size(w);
	snprintf(text, sizeof(text), "peer is %d, this rank itself", rank);
	RANK_REFUSED(-EINVAL, w, kcr_send(w, &byte, 1, rank), text);
	RANK_REFUSED(-EINVAL, w, kcr_recv(w, &byte, 1, rank), text);
	snprintf(text, sizeof(text), "peer is %d, must be 0 to %d", n, n - 1);
	RANK_REFUSED(-EINVAL, w, kcr_send(w, &byte, 1, n), text);
	RANK_REFUSED(-EINVAL, w, kcr_recv(w, &byte, 1, n), text);
	snprintf(text, sizeof(text), "peer is -1, must be 0 to %d", n - 1);
	RANK_REFUSED(-EINVAL, w, kcr_isend(w, &byte, 1, -1, &request), text);
	RANK_TRUE(!request);
	RANK_REFUSED(-EINVAL, w, kcr_irecv(w, &byte, 1, -1, &request), text);
	if (n > 1) {
		RANK_REFUSED(-EINVAL, w, kcr_send(w, NULL, 1, !rank), "NULL");
		RANK_REFUSED(-EINVAL, w, kcr_recv(w, NULL, 1, !rank), "NULL");
		RANK_REFUSED(-EINVAL, w, kcr_send(w, &byte, SIZE_MAX, !rank),
			     "overflows");
	}
	RANK_REFUSED(-EINVAL, NULL, kcr_send(NULL, &byte, 1, 0), "world is NULL");
	/* None of it has harmed the world. */
	RANK_OK(w, kcr_barrier(w));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(messages, arguments, 60)
{
	int ranks;

	for (ranks = 1; ranks <= 3; ranks++)
		ASSERT_EQ(0, ranks_run(ranks, arguments, NULL, 30));
}

/* How much rank 0 sends and rank 1 takes; the third of them looks on. */
struct mismatch {
	size_t sent, taken;
	struct scene *scene;
};

static int differ(int rank, void *arg)
{
	const struct mismatch *m = arg;
	unsigned char *buffer = calloc(1, LONG);
	struct kcr_world *w;
	int err = 0;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	/* One that is as it should be goes before. */
	if (rank == 0)
		RANK_OK(w, kcr_send(w, buffer, 5, 1));
	if (rank == 1)
		RANK_OK(w, kcr_recv(w, buffer, 5, 0));
	if (rank == 0)
		err = kcr_send(w, buffer, m->sent, 1);
	if (rank == 1)
		err = kcr_recv(w, buffer, m->taken, 0);
	/* In this call or the next. */
	if (!err)
		err = kcr_barrier(w);
	ranks_record(&m->scene->outcome[rank], w, err);
	RANK_GIVES(-EPROTO, w, kcr_barrier(w));
	RANK_SAYS(w, m->scene->outcome[rank].said);
	RANK_OK(NULL, kcr_world_destroy(w));
	free(buffer);
	return 0;
}

TEST_F_TIMEOUT(messages, sizes_differ, 120)
{
	static const size_t pairs[][2] = {
		{ 1, 2 }, { 2, 1 }, { 0, 1 }, { 1, 0 }, { ROOM, ROOM + 1 },
		{ LONG, 8 }, { 8, LONG }, { LONG, LONG - 1 },
		/* Who cannot go on sending hears of it in more than one way. */
		{ LONG, 8 }, { LONG, 8 }, { LONG, 8 }, { LONG, 8 },
	};
	struct scene *scene = self->scene;
	char text[64];
	int i, r;

	for (i = 0; i < ARRAY_SIZE(pairs); i++) {
		struct mismatch m = { pairs[i][0], pairs[i][1], scene };

		ASSERT_EQ(0, ranks_run(3, differ, &m, 30));
		for (r = 0; r < 3; r++) {
			EXPECT_EQ(-EPROTO, scene->outcome[r].err);
			EXPECT_NE(NULL, strstr(scene->outcome[r].said, "rank 0"));
			EXPECT_NE(NULL, strstr(scene->outcome[r].said, "rank 1"));
			if (!i || (r == 0 && i == 5))
				TH_LOG("rank %d: %s", r, scene->outcome[r].said);
		}
		/* Who takes knows both sizes. */
		snprintf(text, sizeof(text), "rank 1 called message #2 (%zu bytes)",
			 m.taken);
		EXPECT_NE(NULL, strstr(scene->outcome[1].said, text));
		snprintf(text, sizeof(text), "rank 0 called message #2 (%zu bytes)",
			 m.sent);
		EXPECT_NE(NULL, strstr(scene->outcome[1].said, text));
	}
}

/* Rank 1 dies; rank 0 sends to it, or receives; the others wait for others. */
static int one_dies(int rank, void *arg)
{
	struct mismatch *m = arg;
	struct scene *scene = m->scene;
	unsigned char *buffer = calloc(1, LONG);
	struct kcr_world *w;
	int err;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	ranks_meet(&scene->meeting, 4);
	if (rank == 1) {
		ranks_sleep(0.2);
		scene->acted = ranks_now();
		raise(SIGKILL);
	}
	if (rank == 0 && m->sent)
		err = kcr_send(w, buffer, LONG, 1);
	else if (rank == 0)
		err = kcr_recv(w, buffer, LONG, 1);
	else
		err = kcr_recv(w, buffer, 1, rank == 2 ? 3 : 2);
	ranks_record(&scene->outcome[rank], w, err);
	RANK_OK(NULL, kcr_world_destroy(w));
	free(buffer);
	return 0;
}

TEST_F_TIMEOUT(messages, a_peer_dies, 60)
{
	struct mismatch m = { .scene = self->scene };
	struct ranks_outcome *o = self->scene->outcome;
	int r;

	for (m.sent = 0; m.sent < 2; m.sent++) {
		/* One is killed, no other fails. */
		ASSERT_EQ(1, ranks_run(4, one_dies, &m, 30));
		for (r = 0; r < 4; r++) {
			if (r == 1)
				continue;
			EXPECT_EQ(-ECONNRESET, o[r].err);
			EXPECT_NE(NULL, strstr(o[r].said, "rank 1 died"));
			EXPECT_LT(o[r].at - self->scene->acted, SOON);
		}
	}
}

/* What was sent before a rank left arrives; what was not does not. */
static int one_leaves(int rank, void *arg)
{
	struct kcr_world *w;
	int value = 5;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	if (!rank) {
		RANK_OK(w, kcr_send(w, &value, sizeof(value), 1));
		RANK_OK(NULL, kcr_world_destroy(w));
		return 0;
	}
	ranks_sleep(0.2);
	value = 0;
	RANK_OK(w, kcr_recv(w, &value, sizeof(value), 0));
	RANK_TRUE(value == 5);
	RANK_REFUSED(-ESHUTDOWN, w, kcr_recv(w, &value, sizeof(value), 0),
		     "rank 0 left");
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(messages, a_peer_leaves, 60)
{
	ASSERT_EQ(0, ranks_run(2, one_leaves, NULL, 30));
}

static int nobody_sends(int rank, void *arg)
{
	struct scene *scene = arg;
	struct kcr_world *w;
	char byte;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	if (!rank)
		RANK_REFUSED(-ETIMEDOUT, w, kcr_recv(w, &byte, 1, 1),
			     "message #1: no word from rank 1 after 1.");
	ranks_meet(&scene->meeting, 2);
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(messages, nobody_sends, 60)
{
	setenv("KCR_TIMEOUT", "1", 1);
	ASSERT_EQ(0, ranks_run(2, nobody_sends, self->scene, 30));
}

TEST_HARNESS_MAIN
