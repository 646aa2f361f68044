// SPDX-License-Identifier: GPL-2.0
/*
 * Ranks that die, leave, give up or do not come, and cables that are pulled: the ranks
 * of all nodes hear of it, soon and in words that name the cause, and nothing is left
 */
#include "cluster.h"
#include "data.h"

#define COUNT	500000
#define SOON	5.0	/* to hear of a rank that died or left */
#define SOME	10.0	/* to find out that nothing gets through any more */

static float *buffer;

static int call(struct kcr_world *w, size_t count)
{
	return kcr_allreduce(w, buffer, buffer + count, count, KCR_F32, KCR_SUM);
}

static int start(struct cluster *c, int rank, struct kcr_world **w)
{
	buffer = malloc(2 * COUNT * sizeof(*buffer));
	RANK_TRUE(buffer);
	data_fill(buffer, COUNT, KCR_F32, rank, 1);
	RANK_OK(NULL, kcr_world_create(NULL, w));
	RANK_OK(*w, call(*w, 1000));
	RANK_MEET(c);
	return 0;
}

/* Call until an error; how long after @event that was. */
static int go_on(struct kcr_world *w, size_t count, double event, double *after)
{
	double until = ranks_now() + 40;
	int err;

	do
		err = call(w, count);
	while (!err && ranks_now() < until);
	*after = ranks_now() - event;
	return err;
}

static int end(struct cluster *c, int rank, struct kcr_world *w)
{
	const char *left;

	RANK_OK(NULL, kcr_world_destroy(w));
	free(buffer);
	left = cluster_left(10);
	if (left)
		RANK_FAIL("%ld %s are left", cluster_counter(left), left);
	return 0;
}

static int dies(struct cluster *c, int rank, size_t count)
{
	int victim = 2;
	struct kcr_world *w;
	double began, after;

	/* Forked before there is a world, which it would hold. */
	if (rank == victim) {
		int pipes[2];
		char byte;
		pid_t parent = getpid();

		RANK_TRUE(!pipe(pipes));
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(pipes[1]);
			if (read(pipes[0], &byte, 1) == 1) {
				ranks_sleep(1);
				kill(parent, SIGKILL);
			}
			_exit(0);
		}
		close(pipes[0]);
		if (start(c, rank, &w) || write(pipes[1], "", 1) != 1)
			return 1;
	} else if (start(c, rank, &w)) {
		return 1;
	}
	began = ranks_now();
	RANK_GIVES(-ECONNRESET, w, go_on(w, count, began + 1, &after));
	RANK_SAYS(w, "rank 2 died");
	fprintf(stderr, "# rank %d heard of it after %.1f s\n", rank, after);
	RANK_TRUE(after < SOON * pace());
	RANK_REFUSED(-ECONNRESET, w, kcr_barrier(w), "rank 2 died");
	return end(c, rank, w);
}

static int dies_large(struct cluster *c, int rank)
{
	return dies(c, rank, COUNT);
}

static int dies_small(struct cluster *c, int rank)
{
	return dies(c, rank, 100);
}

static int leaves(struct cluster *c, int rank)
{
	struct kcr_world *w;
	double after;
	int i;

	if (start(c, rank, &w))
		return 1;
	for (i = 0; i < 5; i++)
		RANK_OK(w, call(w, 5000));
	if (rank == 2)
		return end(c, rank, w);
	RANK_GIVES(-ESHUTDOWN, w, go_on(w, 5000, ranks_now(), &after));
	RANK_SAYS(w, "rank 2 left");
	RANK_TRUE(after < SOON * pace());
	return end(c, rank, w);
}

/* Of more wires than were ever used. */
static int leaves_lazy(struct cluster *c, int rank)
{
	setenv("KCR_CONNECT", "lazy", 1);
	return leaves(c, rank);
}

static int aborts(struct cluster *c, int rank)
{
	struct kcr_world *w;
	double after;

	if (start(c, rank, &w))
		return 1;
	if (rank == 2) {
		RANK_OK(w, call(w, 5000));
		ranks_sleep(0.5);
		RANK_OK(w, kcr_abort(w, ENOTUNIQ));
	}
	RANK_GIVES(-ENOTUNIQ, w, go_on(w, 5000, ranks_now(), &after));
	RANK_SAYS(w, rank == 2 ? "aborted by this rank" : "rank 2");
	RANK_TRUE(after < SOON * pace());
	RANK_MEET(c);
	return end(c, rank, w);
}

/* One does not come; whoever gave up first says for whom it waited. */
static int late(struct cluster *c, int rank)
{
	struct kcr_world *w;
	double began;

	setenv("KCR_TIMEOUT", "3", 1);
	if (start(c, rank, &w))
		return 1;
	began = ranks_now();
	if (rank == 2) {
		ranks_sleep(6);
	} else {
		RANK_GIVES(-ETIMEDOUT, w, call(w, 5000));
		RANK_TRUE(ranks_now() - began < 3 + SOON * pace());
		RANK_TRUE(strstr(kcr_error(w), "rank 2") ||
			  strstr(kcr_error(w), "gave up"));
	}
	RANK_MEET(c);
	if (rank == 2)
		RANK_GIVES(-ETIMEDOUT, w, call(w, 5000));
	return end(c, rank, w);
}

/* ---- cables ---- */

/* A command with this node's end of the cable between the first two nodes. */
static int with_cable(const struct cluster *c, const char *format, int wire)
{
	char suffix[8] = "", words[256], command[256];
	const char *from = format;
	size_t at = 0;

	if (wire)
		snprintf(suffix, sizeof(suffix), "w%d", wire);
	/* @: the peer's number and the wire; %: the wire's network. */
	for (; *from && at < sizeof(words) - 16; from++) {
		if (*from == '@')
			at += sprintf(words + at, "%d%s", c->node ? 0 : 1, suffix);
		else if (*from == '%')
			at += sprintf(words + at, "10.%d.1.%d", 77 + wire,
				      c->node ? 1 : 2);
		else
			words[at++] = *from;
	}
	words[at] = 0;
	snprintf(command, sizeof(command), "%s", words);
	return system(command);
}

/* From now on, what this node sends by the cable goes to nobody. */
#define CUT	"ip neigh replace % lladdr 02:00:00:00:00:99 nud permanent dev cable@"
#define MEND	"ip neigh del % dev cable@"
#define DOWN	"ip link set cable@ down"
#define UP	"ip link set cable@ up; rdma link del rxe@ &&" ADD
#define ADD	"rdma link add rxe@ type rxe netdev cable@"
/* The device of the cable goes while all ranks are at it, and is there again after that. */
#define DELETE	"(sleep 0.5; rdma link del rxe@) > /dev/null 2>&1 &"
#define ADD_ANEW	"for i in $(seq 30); do [ ! -e /sys/class/infiniband/rxe@ ] ||"	\
			"sleep 1; done;" ADD

static int pulled(struct cluster *c, int rank, int wire, const char *pull,
		  const char *mend)
{
	struct kcr_world *w;
	double began, after;
	int err;

	if (start(c, rank, &w))
		return 1;
	RANK_OK(w, call(w, COUNT));
	began = ranks_now();
	if (rank == c->size - 1) {
		ranks_sleep(1);
		RANK_TRUE(!with_cable(c, pull, wire));
	}
	err = go_on(w, COUNT, began + 1, &after);
	fprintf(stderr, "# rank %d: after %.1f s %d: %s\n", rank, after, err,
		kcr_error(w));
	/* Those of the cable's ends say which; the others, whose way it was. */
	RANK_SAYS(w, "rank ");
	RANK_TRUE(strstr(kcr_error(w), " broke") || strstr(kcr_error(w), " lost a way"));
	if (strstr(kcr_error(w), " by wire "))
		RANK_SAYS(w, " -> 10.7");
	if (rank == c->size - 1)
		RANK_TRUE(!with_cable(c, mend, wire));
	RANK_MEET(c);
	RANK_OK(NULL, kcr_world_destroy(w));
	RANK_TRUE(err == -EHOSTUNREACH || err == -EHOSTDOWN || err == -EIO ||
		  err == -ENODEV);
	RANK_TRUE(after < SOME * pace());
	return 0;
}

static int first_lost(struct cluster *c, int rank)
{
	return pulled(c, rank, 0, CUT, MEND);
}

static int second_lost(struct cluster *c, int rank)
{
	return pulled(c, rank, 1, CUT, MEND);
}

/*
 * rdma_rxe loses its queue for the handshakes of connections when that sends by an
 * interface that is down; so the device is made anew.
 */
static int interface_down(struct cluster *c, int rank)
{
	return pulled(c, rank, 1, DOWN, UP);
}

static int device_deleted(struct cluster *c, int rank)
{
	return pulled(c, rank, 0, DELETE, ADD_ANEW);
}

static int second_device_deleted(struct cluster *c, int rank)
{
	return pulled(c, rank, 1, DELETE, ADD_ANEW);
}

static int works_again(struct cluster *c, int rank)
{
	struct kcr_world *w;
	void *result = malloc(COUNT * sizeof(*buffer));
	int i;

	RANK_TRUE(result);
	if (start(c, rank, &w))
		return 1;
	data_fill(buffer, COUNT, KCR_F32, rank, 1);
	RANK_OK(w, call(w, COUNT));
	RANK_TRUE(!data_expect(result, COUNT, KCR_F32, KCR_SUM, c->size, 1));
	RANK_TRUE(!memcmp(result, buffer + COUNT, COUNT * sizeof(*buffer)));
	for (i = 0; i < 10; i++)
		RANK_OK(w, kcr_barrier(w));
	RANK_MEET(c);
	return end(c, rank, w);
}

static const struct cluster_case cases[] = {
	{ "killed in a large operation", dies_large, 0, 2 },
	{ "killed in a small operation", dies_small, 0, 2 },
	{ "a world works after that", works_again },
	{ "left", leaves },
	{ "left, connected on first use", leaves_lazy },
	{ "gave up", aborts },
	{ "did not come", late },
	{ "a cable loses everything", first_lost, 90 },
	{ "a world works when it does not", works_again },
	{ "the second cable loses everything", second_lost, 90 },
	{ "a world works when that does not", works_again },
	{ "an interface goes down", interface_down, 90 },
	{ "a world works when it is back", works_again },
	{ "a device is deleted", device_deleted, 90 },
	{ "a world works when the device is there again", works_again },
	{ "the second device is deleted", second_device_deleted, 90 },
	{ "a world works when the second device is there", works_again },
};

int main(int argc, char **argv)
{
	return cluster_main(argc, argv, cases, ARRAY_SIZE(cases), 2);
}
