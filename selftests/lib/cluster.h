/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Cases that the ranks of several nodes go through together
 *
 *	static int they_meet(struct cluster *c, int rank)
 *	{
 *		struct kcr_world *w;
 *
 *		RANK_OK(NULL, kcr_world_create(NULL, &w));
 *		...
 *		return 0;
 *	}
 *
 *	static const struct cluster_case cases[] = {
 *		{ "they meet", they_meet },
 *	};
 *
 *	int main(int argc, char **argv)
 *	{
 *		return cluster_main(argc, argv, cases, ARRAY_SIZE(cases), 2);
 *	}
 *
 * The program is started on every node. There it starts itself as ranks, by kcr-run.
 * Each rank is a keeper that makes a process for every case, in which the case's
 * function runs and may create worlds, die or stop. The keepers know each other by
 * TCP connections of their own to rank 0, nothing of which is the library's: they
 * begin each case together and bring together what became of it. Rank 0 prints
 * TAP; on other nodes the one case is that the node's ranks ended well.
 *
 * An argument selects the cases in whose names it is.
 */
#ifndef KCR_TEST_CLUSTER_H
#define KCR_TEST_CLUSTER_H

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include "kselftest.h"
#include "ranks.h"

#define CLUSTER_PORT	29400
#define CLUSTER_LIMIT	60	/* seconds for a case that says nothing else */
#define CLUSTER_GATHER	150	/* seconds in which all must have come */
#define CLUSTER_SKIP	KSFT_SKIP
#define CLUSTER_COUNTERS	"/sys/kernel/debug/kcollring_verbs/"

struct cluster {
	int rank, size;
	int local, locals;
	int node, nodes;
	unsigned int number;	/* of the case */
	unsigned int meetings;	/* in it */
	int fd[KCR_RANKS_MAX];	/* rank 0's: to each rank; others': fd[0] */
};

struct cluster_case {
	const char *name;
	int (*run)(struct cluster *c, int rank);
	int seconds;		/* how long it may take, or 0 */
	int dies;		/* the rank that SIGKILL must end, or 0 */
	const char *lacks;	/* what is missing if it returns CLUSTER_SKIP */
};

/* What keepers, and cases, tell each other. */
struct cluster_word {
	uint32_t number;
	uint32_t meeting;	/* CLUSTER_VERDICT: the case's end */
	int32_t value;
};

#define CLUSTER_VERDICT	(~0u)

static inline int cluster_number(const char *name, int otherwise)
{
	const char *value = getenv(name);

	return value && *value ? atoi(value) : otherwise;
}

static inline int cluster_first_of_node(const struct cluster *c, int node)
{
	return node * c->locals;
}

static inline int cluster_node_of(const struct cluster *c, int rank)
{
	return rank / c->locals;
}

static inline int cluster_put(int fd, struct cluster_word word)
{
	return send(fd, &word, sizeof(word), MSG_NOSIGNAL) == sizeof(word) ? 0 :
									      -EPIPE;
}

static inline int cluster_take(int fd, struct cluster_word *word, int flags)
{
	return recv(fd, word, sizeof(*word), MSG_WAITALL | flags) == sizeof(*word) ?
	       0 : -EPIPE;
}

/* The next word of this case and meeting; what is older is not for us any more. */
static inline int cluster_expect(const struct cluster *c, int fd,
				 unsigned int meeting, int *value)
{
	struct cluster_word word;

	for (;;) {
		if (cluster_take(fd, &word, MSG_PEEK))
			return -EPIPE;
		if (word.number > c->number ||
		    (word.number == c->number && word.meeting > meeting))
			return -ENOMSG;
		if (cluster_take(fd, &word, 0))
			return -EPIPE;
		if (word.number == c->number && word.meeting == meeting)
			break;
	}
	*value = word.value;
	return 0;
}

/*
 * Inside a case: all ranks meet, and learn the largest of their values. A rank that has
 * ended makes it fail.
 */
static inline int cluster_meet(struct cluster *c, int *value)
{
	unsigned int meeting = c->meetings++;
	struct cluster_word word = { c->number, meeting, value ? *value : 0 };
	int r, other, err;

	if (c->rank) {
		err = cluster_put(c->fd[0], word) ?:
		      cluster_expect(c, c->fd[0], meeting, &other);
		if (value && !err)
			*value = other;
		return err;
	}
	for (r = 1; r < c->size; r++) {
		err = cluster_expect(c, c->fd[r], meeting, &other);
		if (err)
			return err;
		if (other > word.value)
			word.value = other;
	}
	for (r = 1; r < c->size; r++) {
		err = cluster_put(c->fd[r], word);
		if (err)
			return err;
	}
	if (value)
		*value = word.value;
	return 0;
}

#define RANK_MEET(c)	RANK_TRUE(!cluster_meet(c, NULL))

/* One of the mesh's counters on this node, or -1. */
static inline long cluster_counter(const char *name)
{
	char path[128];
	long value = -1;
	FILE *f;

	snprintf(path, sizeof(path), CLUSTER_COUNTERS "%s", name);
	f = fopen(path, "r");
	if (!f)
		return -1;
	if (fscanf(f, "%ld", &value) != 1)
		value = -1;
	fclose(f);
	return value;
}

static const char *const cluster_counters[] = {
	"conns", "ids", "pds", "qps", "cqs", "mrs", "rings", "sources", "lanes",
};

/* Until nothing of the mesh is alive on this node: what is left, or NULL. */
static inline const char *cluster_left(double seconds)
{
	double until = ranks_now() + seconds * pace();
	const char *left;
	unsigned int i;

	do {
		left = NULL;
		for (i = 0; i < ARRAY_SIZE(cluster_counters); i++)
			if (cluster_counter(cluster_counters[i]) > 0)
				left = cluster_counters[i];
		if (left)
			ranks_sleep(0.1);
	} while (left && ranks_now() < until);
	return left;
}

/* ---- keepers ---- */

static inline int cluster_socket(struct sockaddr_in *at)
{
	char host[64] = "127.0.0.1";
	const char *nodes = getenv("KCR_NODE_ADDRS");

	if (nodes)
		sscanf(nodes, "%63[0-9.]", host);
	*at = (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(CLUSTER_PORT),
	};
	inet_pton(AF_INET, host, &at->sin_addr);
	return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

/* A greeting: the program's hash and the rank. A late one of another program is sent away. */
static inline struct cluster_word cluster_greeting(const struct cluster *c,
						   const char *program)
{
	uint32_t hash = 2166136261u;

	while (*program)
		hash = (hash ^ (unsigned char)*program++) * 16777619u;
	return (struct cluster_word){ hash, c->size, c->rank };
}

static inline int cluster_listen(struct cluster *c, const char *program)
{
	struct cluster_word mine = cluster_greeting(c, program), word;
	double until = ranks_now() + CLUSTER_GATHER * pace();
	struct sockaddr_in at;
	int fd = cluster_socket(&at), on = 1, here = 1, from;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (void *)&at, sizeof(at)) || listen(fd, KCR_RANKS_MAX))
		return -errno;
	while (here < c->size) {
		struct pollfd p = { .fd = fd, .events = POLLIN };

		if (ranks_now() > until)
			return -ETIMEDOUT;
		if (poll(&p, 1, 1000) != 1)
			continue;
		from = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
		if (from < 0)
			continue;
		if (cluster_take(from, &word, 0) || word.number != mine.number ||
		    word.meeting != mine.meeting || word.value < 1 ||
		    word.value >= c->size || c->fd[word.value] >= 0) {
			close(from);
			continue;
		}
		setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		c->fd[word.value] = from;
		here++;
	}
	close(fd);
	/* All have come: only now they may believe that it was this program's. */
	for (from = 1; from < c->size; from++)
		if (cluster_put(c->fd[from], mine))
			return -EPIPE;
	return 0;
}

static inline int cluster_call(struct cluster *c, const char *program)
{
	struct cluster_word mine = cluster_greeting(c, program), word;
	double until = ranks_now() + CLUSTER_GATHER * pace();
	struct sockaddr_in at;
	int on = 1;

	while (ranks_now() < until) {
		int fd = cluster_socket(&at);

		if (!connect(fd, (void *)&at, sizeof(at))) {
			setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
			if (!cluster_put(fd, mine) && !cluster_take(fd, &word, 0) &&
			    word.number == mine.number) {
				c->fd[0] = fd;
				return 0;
			}
		}
		close(fd);
		ranks_sleep(0.1);
	}
	return -ETIMEDOUT;
}

/* Run a case in a process of its own: 0, 1 or CLUSTER_SKIP. */
static inline int cluster_run(struct cluster *c, const struct cluster_case *one)
{
	double until = ranks_now() + (one->seconds ?: CLUSTER_LIMIT) * pace_of_case();
	pid_t pid, parent = getpid();
	int status;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		/* Standard output is for TAP. */
		dup2(STDERR_FILENO, STDOUT_FILENO);
		status = one->run(c, c->rank);
		fflush(NULL);
		_exit(status);
	}
	while (!waitpid(pid, &status, WNOHANG)) {
		if (ranks_now() > until) {
			fprintf(stderr, "# rank %d: no end of \"%s\"\n", c->rank,
				one->name);
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return 1;
		}
		ranks_sleep(0.01);
	}
	if (WIFSIGNALED(status)) {
		if (one->dies == c->rank && one->dies && WTERMSIG(status) == SIGKILL)
			return 0;
		fprintf(stderr, "# rank %d: signal %d in \"%s\"\n", c->rank,
			WTERMSIG(status), one->name);
		return 1;
	}
	if (one->dies == c->rank && one->dies) {
		fprintf(stderr, "# rank %d should have died\n", c->rank);
		return 1;
	}
	return WEXITSTATUS(status);
}

/* Bring the verdicts of a case together: rank 0 learns and prints them. */
static inline int cluster_judge(struct cluster *c, const struct cluster_case *one,
				int verdict, int number, double took)
{
	struct cluster_word word = { c->number, CLUSTER_VERDICT, verdict };
	int r, other, failed = 0, skipped = verdict == CLUSTER_SKIP;

	if (c->rank)
		return cluster_put(c->fd[0], word) ?:
		       cluster_expect(c, c->fd[0], CLUSTER_VERDICT, &other);
	if (verdict && !skipped) {
		printf("# \"%s\": rank 0 failed\n", one->name);
		failed = 1;
	}
	for (r = 1; r < c->size; r++) {
		if (cluster_expect(c, c->fd[r], CLUSTER_VERDICT, &other))
			return -EPIPE;
		skipped |= other == CLUSTER_SKIP;
		if (!other || other == CLUSTER_SKIP)
			continue;
		printf("# \"%s\": rank %d of node %d failed\n", one->name, r,
		       cluster_node_of(c, r));
		failed = 1;
	}
	printf("%s %d %s%s%s\n", failed ? "not ok" : "ok", number, one->name,
	       !failed && skipped ? " # SKIP " : "",
	       !failed && skipped ? one->lacks ?: "something" : "");
	printf("# %.1f s\n", took);
	fflush(stdout);
	for (r = 1; r < c->size; r++)
		if (cluster_put(c->fd[r], word))
			return -EPIPE;
	return failed;
}

static inline int cluster_keep(const char *program,
			       const struct cluster_case *cases, int n,
			       const char *only)
{
	static struct cluster c;
	int i, err, verdict, wanted = 0, number = 0, failed = 0;

	c.rank = cluster_number("KCR_RANK", 0);
	c.size = cluster_number("KCR_SIZE", 1);
	c.local = cluster_number("KCR_LOCAL_RANK", 0);
	c.locals = cluster_number("KCR_LOCAL_SIZE", 1);
	c.node = cluster_number("KCR_NODE", 0);
	c.nodes = cluster_number("KCR_NODES", 1);
	memset(c.fd, -1, sizeof(c.fd));
	err = c.rank ? cluster_call(&c, program) : cluster_listen(&c, program);
	if (err) {
		fprintf(stderr, "# rank %d: the keepers have not met: %s\n",
			c.rank, strerror(-err));
		return 1;
	}
	for (i = 0; i < n; i++)
		wanted += !only || strstr(cases[i].name, only);
	if (!c.rank)
		printf("TAP version 13\n1..%d\n", wanted);
	for (i = 0; i < n; i++) {
		double began = ranks_now();

		if (only && !strstr(cases[i].name, only))
			continue;
		c.number++;
		c.meetings = 0;
		verdict = cluster_run(&c, &cases[i]);
		err = cluster_judge(&c, &cases[i], verdict, ++number,
				    ranks_now() - began);
		if (err < 0) {
			fprintf(stderr, "# rank %d: lost the others in \"%s\"\n",
				c.rank, cases[i].name);
			return 1;
		}
		failed |= err;
	}
	return failed;
}

/* ---- starting ---- */

static inline int cluster_start(char **argv, int per_node, long limit)
{
	char ranks[16], seconds[16];
	int node = cluster_number("KCR_NODE", 0), status;
	pid_t pid;

	snprintf(ranks, sizeof(ranks), "%d", per_node);
	snprintf(seconds, sizeof(seconds), "%ld", limit);
	unsetenv("KCR_LINK");
	setenv("KCR_TIMEOUT", "40", 0);
	setenv("KCR_RENDEZVOUS_TIMEOUT", "40", 0);
	pid = fork();
	if (!pid) {
		execl("./kcr-run", "./kcr-run", "-n", ranks, "--no-tag", "--timeout",
		      seconds, argv[0], argv[1], NULL);
		perror("# ./kcr-run");
		_exit(127);
	}
	waitpid(pid, &status, 0);
	status = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	if (node)
		printf("TAP version 13\n1..1\n%s 1 ranks of node %d\n",
		       status ? "not ok" : "ok", node);
	return status ? 1 : 0;
}

static inline int cluster_main(int argc, char **argv,
			       const struct cluster_case *cases, int n,
			       int per_node)
{
	long limit = CLUSTER_GATHER;
	int i;

	if (getenv("KCR_RANK"))
		return cluster_keep(strrchr(argv[0], '/') ?: argv[0], cases, n,
				    argv[1]);
	if (cluster_number("KCR_NODES", 1) < 2 || !getenv("KCR_RDMA")) {
		printf("1..0 # SKIP not on several nodes with RDMA: see kcr-vm --nodes --rdma\n");
		return KSFT_SKIP;
	}
	for (i = 0; i < n; i++)
		limit += (cases[i].seconds ?: CLUSTER_LIMIT) * pace_of_case();
	return cluster_start(argv, cluster_number("KCR_TEST_RANKS", per_node),
			     limit);
}

#endif /* KCR_TEST_CLUSTER_H */
