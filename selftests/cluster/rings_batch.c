// SPDX-License-Identifier: GPL-2.0
/*
 * Message rings between nodes, and threads that send on one lane: what is written while one
 * of them is in the module goes with the next command, all of it, or is taken back if the
 * module has no room.
 *
 * The library's commands to the module pass through the function below (--wrap), which
 * holds the first one until all threads have written.
 */
#include <sys/ioctl.h>
#include "cluster.h"
#include "ring.h"
#include "wrap.h"
#include "../../lib/ring.h"

#define DEPTH		100
#define CAPACITY	100
#define THREADS_MAX	80
#define PUTS_MAX	16
#define SECOND		1000000000ll

static struct ring_tx *held;		/* the lane whose first command is held */
static int awaited;			/* until so many messages are written */
static int refusal;			/* what it comes to then; 0: what the module says */
static uint32_t counts[PUTS_MAX];	/* messages of each command, from then on; atomic */
static int puts_seen;			/* atomic */

static int hold_first(int nth)
{
	double until = ranks_now() + 20 * pace();

	if (nth)
		return 0;
	while (ring_get(&held->slots.next) - 1 < awaited && ranks_now() < until)
		ranks_sleep(0.001);
	return refusal;
}

int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	const struct kcr_put *put = arg;
	int nth;

	if (request == KCR_IOCTL_PUT && held) {
		nth = __atomic_fetch_add(&puts_seen, 1, __ATOMIC_RELAXED);
		if (nth < PUTS_MAX)
			counts[nth] = put->count;
		errno = hold_first(nth);
		if (errno)
			return -1;
	}
	return __real_ioctl(fd, request, arg);
}

struct sender {
	pthread_t id;
	struct kcr_ring *ring;
	uint32_t number;
	int peer;
	int64_t timeout_ns;
	int64_t sent;
	char said[128];
};

static void *send_one(void *arg)
{
	struct sender *s = arg;

	s->sent = kcr_ring_send_timeout(s->ring, s->peer, &s->number, sizeof(s->number),
					s->timeout_ns);
	if (s->sent < 0)
		snprintf(s->said, sizeof(s->said), "%s", kcr_error(NULL));
	return NULL;
}

/* All of them; the module has the first command when the others have written. */
static int send_together(int rank, struct kcr_ring *ring, struct sender *senders, int n,
			 int64_t timeout_ns)
{
	int i;

	puts_seen = 0;
	awaited = ring_get(&ring->tx[0].slots.next) - 1 + n;
	__atomic_store_n(&held, &ring->tx[0], __ATOMIC_RELEASE);
	for (i = 0; i < n; i++) {
		senders[i] = (struct sender){ .ring = ring, .peer = ring->tx[0].peer,
					      .number = i, .timeout_ns = timeout_ns };
		RANK_TRUE(!pthread_create(&senders[i].id, NULL, send_one, &senders[i]));
	}
	for (i = 0; i < n; i++)
		pthread_join(senders[i].id, NULL);
	held = NULL;
	return 0;
}

/* Each has a sequence of its own, from @first. */
static int all_sent(int rank, const struct sender *senders, int n, int64_t first)
{
	bool is_there[THREADS_MAX] = { 0 };

	for (int i = 0; i < n; i++) {
		int64_t at = senders[i].sent - first;

		if (senders[i].sent < 0)
			RANK_FAIL("thread %d: %s", i, senders[i].said);
		RANK_TRUE(at >= 0 && at < n && !is_there[at]);
		is_there[at] = true;
	}
	return 0;
}

struct inbox {
	uint64_t last;
	int from[THREADS_MAX];		/* messages of each thread */
	int wrong;
};

static int receive(void *arg, int origin, uint64_t sequence, const void *data, size_t bytes)
{
	struct inbox *in = arg;
	uint32_t number;

	memcpy(&number, data, sizeof(number));
	if (bytes != sizeof(number) || sequence != in->last + 1 || number >= THREADS_MAX)
		in->wrong++;
	else
		in->from[number]++;
	in->last = sequence;
	return 0;
}

/* @n messages, each of another thread's. */
static int receive_all(int rank, struct kcr_ring *ring, int n)
{
	struct inbox in = { 0 };

	while (in.last < n) {
		RANK_OK(NULL, kcr_ring_wait(ring, -1));
		RANK_TRUE(kcr_ring_poll(ring, receive, &in) >= 0);
	}
	RANK_TRUE(!in.wrong);
	for (int i = 0; i < n; i++)
		RANK_TRUE(in.from[i] == 1);
	return 0;
}

static int begin(struct cluster *c, int rank, unsigned int flags, struct kcr_world **w,
		 struct kcr_ring **ring)
{
	const struct kcr_lane lane = { 0, c->size - 1, DEPTH, CAPACITY };

	RANK_OK(NULL, kcr_world_create(NULL, w));
	RANK_OK(*w, kcr_ring_create(*w, &lane, 1, flags, ring));
	return 0;
}

static int end(int rank, struct kcr_world *w, struct kcr_ring *ring)
{
	RANK_OK(w, kcr_ring_destroy(ring));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

/* One goes alone, and the others' messages by one command each KCR_PUT_MAX of them. */
static int gather(struct cluster *c, int rank, unsigned int flags, int n)
{
	struct sender senders[THREADS_MAX];
	struct kcr_ring *ring;
	struct kcr_world *w;
	int left = n - 1, i;

	if (begin(c, rank, flags, &w, &ring))
		return 1;
	if (!rank) {
		if (send_together(rank, ring, senders, n, -1) ||
		    all_sent(rank, senders, n, 1))
			return 1;
		RANK_TRUE(counts[0] == 1);
		for (i = 1; left > 0; i++, left -= KCR_PUT_MAX)
			if (counts[i] != (left < KCR_PUT_MAX ? left : KCR_PUT_MAX))
				RANK_FAIL("command %d: %u of %d messages", i, counts[i], left);
		RANK_TRUE(puts_seen == i);
	} else if (rank == c->size - 1 && receive_all(rank, ring, n)) {
		return 1;
	}
	RANK_MEET(c);
	return end(rank, w, ring);
}

static int gathers(struct cluster *c, int rank)
{
	return gather(c, rank, 0, 5) || gather(c, rank, KCR_RING_RAW, 5) ||
	       gather(c, rank, 0, 2 + KCR_PUT_MAX);
}

/* No room for any of them: all are sent in the end, and each once. */
static int no_room(struct cluster *c, int rank)
{
	struct sender senders[THREADS_MAX];
	struct kcr_ring_stats stats;
	struct kcr_ring *ring;
	const int n = 7;
	struct kcr_world *w;

	if (begin(c, rank, 0, &w, &ring))
		return 1;
	refusal = ENOBUFS;
	if (!rank) {
		/* Who does not wait is told, whoever was in the module. */
		if (send_together(rank, ring, senders, n, 0))
			return 1;
		for (int i = 0; i < n; i++)
			RANK_TRUE(senders[i].sent == -EAGAIN &&
				  strstr(senders[i].said, "the RDMA device has had no room"));
		RANK_OK(NULL, kcr_ring_stats(ring, &stats));
		RANK_TRUE(puts_seen == 1 && !stats.sent);
		if (send_together(rank, ring, senders, n, 60 * SECOND) ||
		    all_sent(rank, senders, n, 1))
			return 1;
		RANK_OK(NULL, kcr_ring_stats(ring, &stats));
		RANK_TRUE(puts_seen > 1 && stats.sent == n);
	} else if (rank == c->size - 1 && receive_all(rank, ring, n)) {
		return 1;
	}
	RANK_MEET(c);
	return end(rank, w, ring);
}

/* What the module says goes to each of them. */
static int refused(struct cluster *c, int rank)
{
	struct sender senders[THREADS_MAX];
	struct kcr_ring *ring;
	const int n = 4;
	struct kcr_world *w;

	if (begin(c, rank, 0, &w, &ring))
		return 1;
	if (!rank) {
		refusal = EPROTO;
		if (send_together(rank, ring, senders, n, -1))
			return 1;
		for (int i = 0; i < n; i++)
			RANK_TRUE(senders[i].sent == -EPROTO &&
				  strstr(senders[i].said, "the module does not send"));
		RANK_TRUE(puts_seen == 1);
		refusal = 0;
		if (send_together(rank, ring, senders, 1, -1) ||
		    all_sent(rank, senders, 1, 1))
			return 1;
	} else if (rank == c->size - 1 && receive_all(rank, ring, 1)) {
		return 1;
	}
	RANK_MEET(c);
	return end(rank, w, ring);
}

static const struct cluster_case cases[] = {
	{ "messages gather", gathers },
	{ "no room for them", no_room },
	{ "the module refuses them", refused },
};

int main(int argc, char **argv)
{
	return cluster_main(argc, argv, cases, ARRAY_SIZE(cases), 2);
}
