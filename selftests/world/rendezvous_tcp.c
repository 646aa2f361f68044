// SPDX-License-Identifier: GPL-2.0
/*
 * Coming together by TCP: who is missing, late, there twice, of another opinion or
 * dies meanwhile; strangers at the port; another who has it
 *
 * Over the link that KCR_LINK names.
 */
#include <arpa/inet.h>
#include <netdb.h>

#include "coming.h"

#define LOOPBACK	"tcp:127.0.0.1"

FIXTURE(tcp) {
	struct job job;
	struct ranks r;
};

FIXTURE_SETUP(tcp)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_TIMEOUT", "40", 1);
	setenv("KCR_RENDEZVOUS_TIMEOUT", "40", 1);
	setenv("KCR_TEST_MEET", LOOPBACK, 1);
	self->job.shared = coming_shared();
	ASSERT_NE(NULL, self->job.shared);
	self->job.odd_rank = -1;
}

FIXTURE_TEARDOWN(tcp)
{
	if (self->r.n)
		ranks_end(&self->r);
}

static int has_ipv6(void)
{
	struct sockaddr_in6 at = { .sin6_family = AF_INET6,
				   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	int fd = socket(AF_INET6, SOCK_STREAM, 0), err;

	if (fd < 0)
		return 0;
	err = bind(fd, (void *)&at, sizeof(at));
	close(fd);
	return !err;
}

static void meet_at(struct __test_metadata *_metadata,
		    struct _test_data_tcp *self, const char *host)
{
	static const int sizes[] = { 2, 5, 16 };
	int i;

	setenv("KCR_TEST_MEET", host, 1);
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		ASSERT_EQ(0, start_those(&self->r, sizes[i], &self->job,
					 come_together));
		see_well(_metadata, &self->r);
	}
}

TEST_F_TIMEOUT(tcp, ipv4, 120)
{
	meet_at(_metadata, self, LOOPBACK);
}

TEST_F_TIMEOUT(tcp, ipv6, 120)
{
	if (!has_ipv6())
		SKIP(return, "there is no address ::1 here");
	meet_at(_metadata, self, "tcp:[::1]");
}

TEST_F_TIMEOUT(tcp, by_name, 120)
{
	meet_at(_metadata, self, "tcp:localhost");
}

TEST_F_TIMEOUT(tcp, many_ranks, 240)
{
	setenv("KCR_LANE_BYTES", "64", 1);
	setenv("KCR_BOARD_BYTES", "256", 1);
	setenv("KCR_RENDEZVOUS_TIMEOUT", "100", 1);
	ASSERT_EQ(0, start_those(&self->r, ranks_are_slow() ? 32 : 100, &self->job,
				 come_together));
	EXPECT_EQ(0, ranks_wait(&self->r, 200));
	EXPECT_EQ(0, ranks_report(&self->r));
}

TEST_F_TIMEOUT(tcp, one_world_after_another, 240)
{
	self->job.rounds = 50;
	ASSERT_EQ(0, start_those(&self->r, 3, &self->job, come_together));
	EXPECT_EQ(0, ranks_wait(&self->r, 200));
	EXPECT_EQ(0, ranks_report(&self->r));
}

/* A world of all, then two launches at one port: one meets after the other. */
static int have_two(int rank, void *arg)
{
	struct kcr_config c[2];
	struct kcr_world *w[2];
	int i;

	kcr_config_init(&c[0]);
	c[1] = c[0];
	c[1].job = rank / 2 ? "one half" : "another";
	c[1].rank = rank % 2;
	c[1].local_rank = rank % 2;
	c[1].size = 2;
	c[1].local_size = 2;
	for (i = 0; i < 2; i++)
		RANK_OK(NULL, kcr_world_create(&c[i], &w[i]));
	for (i = 0; i < 20; i++)
		if (reduce(w[i % 2], c[i % 2].rank, i))
			return 1;
	RANK_OK(NULL, kcr_world_destroy(w[0]));
	if (reduce(w[1], c[1].rank, 7))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(w[1]));
	return 0;
}

TEST_F_TIMEOUT(tcp, two_launches_at_one_port, 120)
{
	ASSERT_EQ(0, start_those(&self->r, 4, &self->job, have_two));
	EXPECT_EQ(0, ranks_wait(&self->r, 100));
	EXPECT_EQ(0, ranks_report(&self->r));
}

/* As torchrun starts them: its variables, and none of ours. */
static int come_by_launcher(int rank, void *arg)
{
	const char *place = getenv("KCR_RENDEZVOUS");
	static const char * const names[][2] = {
		{ "RANK", "KCR_RANK" }, { "WORLD_SIZE", "KCR_SIZE" },
		{ "LOCAL_RANK", "KCR_LOCAL_RANK" },
		{ "LOCAL_WORLD_SIZE", "KCR_LOCAL_SIZE" },
	};
	int i;

	setenv("MASTER_ADDR", strstr(place, "[::1]") ? "::1" : "127.0.0.1", 1);
	setenv("MASTER_PORT", strrchr(place, ':') + 1, 1);
	unsetenv("KCR_RENDEZVOUS");
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		setenv(names[i][0], getenv(names[i][1]), 1);
		unsetenv(names[i][1]);
	}
	return come_together(rank, arg);
}

TEST_F_TIMEOUT(tcp, launcher, 120)
{
	ASSERT_EQ(0, start_those(&self->r, 3, &self->job, come_by_launcher));
	see_well(_metadata, &self->r);
	if (!has_ipv6())
		return;
	setenv("KCR_TEST_MEET", "tcp:[::1]", 1);
	ASSERT_EQ(0, start_those(&self->r, 3, &self->job, come_by_launcher));
	see_well(_metadata, &self->r);
}

TEST_F_TIMEOUT(tcp, rank_0_late, 60)
{
	self->job.odd_rank = 0;
	self->job.delay = 2;
	ASSERT_EQ(0, start_those(&self->r, 4, &self->job, come_together));
	see_well(_metadata, &self->r);
}

TEST_F_TIMEOUT(tcp, missing, 60)
{
	static const struct {
		int missing;
		const char *says;
	} cases[] = {
		{ 1 << 2, "no word from rank 2 at tcp:127.0.0.1:" },
		{ 1 << 1 | 1 << 3, "no word from rank 1, rank 3 at tcp:" },
		{ 1 << 0, "no word from rank 0 at tcp:127.0.0.1:" },
	};
	int i;

	setenv("KCR_RENDEZVOUS_TIMEOUT", "2", 1);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		self->job.missing = cases[i].missing;
		ASSERT_EQ(0, start_those(&self->r, 4, &self->job, try_to_come));
		SEE_ALL(-ETIMEDOUT, 10, cases[i].says, "after 2.0 s");
		again(&self->r);
	}
}

TEST_F_TIMEOUT(tcp, a_rank_twice, 120)
{
	int twice;

	for (twice = 0; twice < 3; twice++)
		come_twice(_metadata, &self->r, &self->job, twice, false);
}

TEST_F_TIMEOUT(tcp, disagreement, 120)
{
	static const struct {
		const char *field, *name, *ours, *theirs;
	} cases[] = {
		{ "size", "KCR_SIZE", "\"3\"", "4" },
		{ "local_size", "KCR_LOCAL_SIZE", "\"3\"", "2" },
		{ "algo", "KCR_ALGO", "\"auto\"", "owner" },
		{ "lane_depth", "KCR_LANE_DEPTH", "\"2\"", "3" },
		{ "seed", "KCR_SEED", "\"0\"", "5" },
	};
	char odd[16], theirs[32];
	int i, n;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		for (n = 0; n < 3; n++) {
			if (n == 2 && !strcmp(cases[i].field, "local_size"))
				continue;	/* would be out of range */
			self->job.odd_rank = n;
			self->job.name = cases[i].name;
			self->job.value = cases[i].theirs;
			snprintf(odd, sizeof(odd), "rank %d (", n);
			snprintf(theirs, sizeof(theirs), "\"%s\"", cases[i].theirs);
			ASSERT_EQ(0, start_those(&self->r, 3, &self->job, try_to_come));
			SEE_ALL(-EINVAL, 20, "ranks disagree on ", cases[i].field,
				odd, "host ", "pid ", cases[i].ours, theirs);
			again(&self->r);
		}
	}
}

/* Rank 0 counts fewer than there are: those that it does not know of hear, too. */
TEST_F_TIMEOUT(tcp, too_small_for_rank_0, 60)
{
	self->job.odd_rank = 0;
	self->job.name = "KCR_SIZE";
	self->job.value = "2";
	ASSERT_EQ(0, start_those(&self->r, 4, &self->job, try_to_come));
	SEE_ALL(-EINVAL, 10, "rank 0 (", "local_size is 4, must be 1 to 2");
}

/* A rank that cannot be: the others must not wait for it until the time is up. */
TEST_F_TIMEOUT(tcp, rank_out_of_range, 120)
{
	static const struct {
		int rank;
		const char *name, *value, *says;
	} cases[] = {
		{ 3, "KCR_RANK", "4", "rank is 4, must be 0 to 3" },
		{ 1, "KCR_RANK", "one", "KCR_RANK is \"one\"" },
		{ 2, "KCR_SIZE", "0", "KCR_SIZE is \"0\"" },
		{ 0, "KCR_ALGO", "ring", "KCR_ALGO is \"ring\"" },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		self->job.odd_rank = cases[i].rank;
		self->job.name = cases[i].name;
		self->job.value = cases[i].value;
		self->job.delay = i % 2 * 0.2;
		ASSERT_EQ(0, start_those(&self->r, 4, &self->job, try_to_come));
		SEE_ALL(-EINVAL, 20, cases[i].says);
		again(&self->r);
	}
}

/* A connection to whoever listens, as soon as somebody does. */
static int visit(int port, double seconds)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr = { htonl(INADDR_LOOPBACK) },
	};
	double limit = ranks_now() + seconds;
	int fd;

	do {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0 || !connect(fd, (void *)&at, sizeof(at)))
			return fd;
		close(fd);
		ranks_sleep(0.01);
	} while (ranks_now() < limit);
	return -1;
}

/* What a message begins with. */
struct head {
	char magic[8];
	uint32_t version, kind, rank, length;
};

static struct head hello(int version, int rank, uint32_t length)
{
	return (struct head){
		.magic = "kcrmeet",
		.version = htonl(version),
		.kind = htonl(1),
		.rank = htonl(rank),
		.length = htonl(length),
	};
}

/* Strangers of every kind, while one rank keeps the others waiting. */
TEST_F_TIMEOUT(tcp, strangers, 120)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	struct head heads[] = {
		hello(1, 1, UINT32_MAX), hello(1, 1, 0), hello(1, 1, 80),
		hello(1, 1, 5000), hello(1, UINT32_MAX, 4000),
	};
	char garbage[8192];
	int fd[100], n = 0, i;

	self->job.odd_rank = 2;
	self->job.delay = 2;
	ASSERT_EQ(0, start_those(&self->r, 4, &self->job, come_together));
	/* Closed at once; text; rubbish; lengths that are not so; silence. */
	fd[n] = visit(self->r.port, 20);
	ASSERT_LE(0, fd[n]);
	close(fd[n]);
	fd[n] = visit(self->r.port, 5);
	ASSERT_LE(0, fd[n]);
	send(fd[n++], text, sizeof(text), MSG_NOSIGNAL);
	for (i = 0; i < sizeof(garbage); i++)
		garbage[i] = data_mix(i);
	fd[n] = visit(self->r.port, 5);
	ASSERT_LE(0, fd[n]);
	send(fd[n++], garbage, sizeof(garbage), MSG_NOSIGNAL);
	for (i = 0; i < ARRAY_SIZE(heads); i++) {
		fd[n] = visit(self->r.port, 5);
		ASSERT_LE(0, fd[n]);
		send(fd[n], &heads[i], sizeof(heads[i]), MSG_NOSIGNAL);
		send(fd[n++], garbage, 4000, MSG_NOSIGNAL);
	}
	while (n < ARRAY_SIZE(fd)) {
		fd[n] = visit(self->r.port, 1);
		if (fd[n] < 0)
			break;
		n++;
	}
	EXPECT_LT(50, n);
	see_well(_metadata, &self->r);
	while (n--)
		close(fd[n]);
}

TEST_F_TIMEOUT(tcp, another_version, 60)
{
	struct head head = hello(99, 3, 10);
	int fd;

	self->job.missing = 1 << 3;
	ASSERT_EQ(0, start_those(&self->r, 4, &self->job, try_to_come));
	fd = visit(self->r.port, 20);
	ASSERT_LE(0, fd);
	send(fd, &head, sizeof(head), MSG_NOSIGNAL);
	SEE_ALL(-EPROTONOSUPPORT, 20, "rank 3 meets by version 99");
	close(fd);
}

/* A rank that has come and dies while the others wait for one more. */
TEST_F_TIMEOUT(tcp, death_of_one_that_waits, 60)
{
	char says[64];
	int victim;

	for (victim = 0; victim < 3; victim++) {
		self->job.missing = 1 << 3;
		ASSERT_EQ(0, start_those(&self->r, 4, &self->job, try_to_come));
		ranks_sleep(1);
		kill_rank(&self->r, victim);
		self->job.missing |= 1 << victim;
		snprintf(says, sizeof(says), "rank %d died", victim);
		SEE_ALL(-ECONNRESET, 8, says, "came together", "pid ");
		again(&self->r);
	}
}

/* One is killed at any moment: the others know, whatever they are at. */
TEST_F_TIMEOUT(tcp, death_at_any_moment, 240)
{
	long round, rounds = ranks_rounds(20) + 4;
	uint64_t random = 1;
	int victim, rank;
	char says[64];

	/* Who dies before it has shown itself is missing. */
	setenv("KCR_RENDEZVOUS_TIMEOUT", "3", 1);
	for (round = 0; round < rounds; round++) {
		victim = data_random(&random) % 4;
		ASSERT_EQ(0, start_those(&self->r, 4, &self->job, come_and_reduce));
		ranks_sleep(data_random(&random) % 1000 / 1e3 *
			    (ranks_link_is_module() ? 0.1 : 0.02));
		ranks_kill(&self->r, victim, SIGKILL);
		EXPECT_EQ(0, ranks_wait(&self->r, 60));
		self->r.status[victim] = 0;
		EXPECT_EQ(0, ranks_report(&self->r));
		snprintf(says, sizeof(says), "rank %d", victim);
		for (rank = 0; rank < 4; rank++) {
			if (rank == victim)
				continue;
			if (self->job.shared->outcome[rank].err == -ETIMEDOUT)
				SEE_RANK(rank, -ETIMEDOUT, says);
			else
				SEE_RANK(rank, -ECONNRESET, says, "died");
		}
		again(&self->r);
	}
}

/* A world that stands: a killed rank is noticed, also in a part of it. */
static int see_death(int rank, void *arg)
{
	const struct job *job = arg;
	struct kcr_world *w, *part;

	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_OK(w, kcr_world_split(w, rank % 2, -rank, &part));
	RANK_TRUE(kcr_size(part) == 2 && kcr_rank(part) == (rank < 2));
	if (reduce(part, kcr_rank(part), 3) || reduce(w, rank, 4))
		return 1;
	ranks_meet(&job->shared->meeting, 4);
	if (rank == 3) {
		ranks_sleep(0.2);
		job->shared->acted = ranks_now();
		raise(SIGKILL);
	}
	if (rank == 1)
		RANK_REFUSED(-ECONNRESET, part, kcr_barrier(part), "rank 0 died");
	ranks_record(&job->shared->outcome[rank], w, kcr_barrier(w));
	if (rank != 1 && reduce(part, kcr_rank(part), 5))
		return 1;
	RANK_OK(NULL, kcr_world_destroy(w));
	RANK_OK(NULL, kcr_world_destroy(part));
	return 0;
}

TEST_F_TIMEOUT(tcp, death_after_creation, 60)
{
	int rank;

	ASSERT_EQ(0, start_those(&self->r, 4, &self->job, see_death));
	EXPECT_EQ(0, ranks_wait(&self->r, 50));
	EXPECT_EQ(1, ranks_report(&self->r));
	for (rank = 0; rank < 3; rank++) {
		SEE_RANK(rank, -ECONNRESET, "rank 3 died");
		EXPECT_LT(self->job.shared->outcome[rank].at -
			  self->job.shared->acted, 4.0);
	}
}

/* Somebody else listens at @port, and says @answer to all who come, or nothing. */
static pid_t squat(int port, const char *answer)
{
	struct sockaddr_in at = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr = { htonl(INADDR_LOOPBACK) },
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, client;
	pid_t pid = -1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (!bind(fd, (void *)&at, sizeof(at)) && !listen(fd, 100))
		pid = fork();
	if (pid) {
		close(fd);
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		client = accept(fd, NULL, NULL);
		if (client >= 0 && answer)
			send(client, answer, strlen(answer), MSG_NOSIGNAL);
	}
}

TEST_F_TIMEOUT(tcp, port_in_use, 60)
{
	static const char * const answers[] = {
		NULL, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
	};
	char port[16];
	pid_t pid;
	int i, rank;

	setenv("KCR_RENDEZVOUS_TIMEOUT", "4", 1);
	for (i = 0; i < ARRAY_SIZE(answers); i++) {
		ASSERT_EQ(0, ranks_init(&self->r, 3));
		snprintf(port, sizeof(port), "port %d", self->r.port);
		pid = squat(self->r.port, answers[i]);
		ASSERT_LT(0, pid);
		ASSERT_EQ(0, start_ranks(&self->r, &self->job, try_to_come));
		EXPECT_EQ(0, ranks_wait(&self->r, 50));
		EXPECT_EQ(0, ranks_report(&self->r));
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		SEE_RANK(0, -EADDRINUSE, "127.0.0.1", port, "in use");
		for (rank = 1; rank < 3; rank++) {
			if (answers[i])
				SEE_RANK(rank, -EBADMSG, "is not rank 0");
			else
				SEE_RANK(rank, -ETIMEDOUT, "no word from rank 0 at ",
					 "nothing answers");
		}
		again(&self->r);
	}
}

TEST_F_TIMEOUT(tcp, places, 60)
{
	static const struct {
		const char *place;
		int err;
		const char *says;
	} cases[] = {
		{ "tcp:", -EINVAL, "must be tcp:host:port" },
		{ "tcp:localhost", -EINVAL, "rendezvous is \"tcp:localhost\"" },
		{ "tcp::5000", -EINVAL, "must be tcp:host:port" },
		{ "tcp:localhost:", -EINVAL, "from 1 to 65535" },
		{ "tcp:localhost:0", -EINVAL, "from 1 to 65535" },
		{ "tcp:localhost:65536", -EINVAL, "from 1 to 65535" },
		{ "tcp:localhost:99999999999", -EINVAL, "from 1 to 65535" },
		{ "tcp:localhost:80x", -EINVAL, "from 1 to 65535" },
		{ "tcp:::1:5000", -EINVAL, "tcp:[address]:port" },
		{ "tcp:[]:5000", -EINVAL, "tcp:[address]:port" },
		{ "tcp:[::1]", -EINVAL, "rendezvous is \"tcp:[::1]\"" },
		{ "tcp:192.0.2.1:5000", -EADDRNOTAVAIL, "192.0.2.1 is no address of " },
	};
	struct kcr_config c;
	struct kcr_world *w;
	int i;

	kcr_config_init(&c);
	c.size = 2;
	c.local_size = 2;
	c.rendezvous_ms = 1000;
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		c.rendezvous = cases[i].place;
		w = (void *)1;
		EXPECT_EQ(cases[i].err, kcr_world_create(&c, &w)) {
			TH_LOG("%s", cases[i].place);
		}
		EXPECT_EQ(NULL, w);
		EXPECT_NE(NULL, strstr(kcr_error(NULL), cases[i].says)) {
			TH_LOG("%s: \"%s\"", cases[i].place, kcr_error(NULL));
		}
	}
}

/* Nothing is left of a world when it has gone, nor of one that failed. */
static int come_and_go(int rank, void *arg)
{
	const struct job *job = arg;
	int descriptors = 0;
	struct kcr_config c;
	struct kcr_world *w;
	long i;

	for (i = 0; i < job->rounds; i++) {
		if (i == 10)
			descriptors = ranks_descriptors();
		kcr_config_init(&c);
		/* Now and then they disagree, or one does not know its place. */
		c.lane_depth += i % 8 == 3 && rank == 1;
		c.local_rank += (i % 8 == 7 && rank == i / 8 % 3) * 10;
		if (i % 4 == 3) {
			RANK_GIVES(-EINVAL, NULL, kcr_world_create(&c, &w));
			/* Not before all have heard of it. */
			ranks_meet(&job->shared->meeting, 3);
			continue;
		}
		RANK_OK(NULL, kcr_world_create(&c, &w));
		if (reduce(w, rank, i))
			return 1;
		RANK_OK(NULL, kcr_world_destroy(w));
	}
	RANK_TRUE(ranks_descriptors() == descriptors);
	return 0;
}

TEST_F_TIMEOUT(tcp, leaks_nothing, 240)
{
	self->job.rounds = ranks_rounds(100) + 16;
	ASSERT_EQ(0, start_those(&self->r, 3, &self->job, come_and_go));
	EXPECT_EQ(0, ranks_wait(&self->r, 200));
	EXPECT_EQ(0, ranks_report(&self->r));
}

TEST_HARNESS_MAIN
