// SPDX-License-Identifier: GPL-2.0
/*
 * The mesh: how connections are made, and everything that may keep them from it
 *
 * A connection that cannot be made fails alone, in time, and says why: each of
 * its ends has a page with state, reason, detail and error.
 */
#include <sched.h>
#include "kselftest_harness.h"
#include "mesh.h"

FIXTURE(mesh_connect) {
	struct dev_counters before;
	struct mesh_ranks r;
};

FIXTURE_SETUP(mesh_connect)
{
	const char *missing = mesh_missing();

	self->r.n = 0;
	self->before = dev_counters();
	if (missing)
		SKIP(return, "%s", missing);
}

FIXTURE_TEARDOWN(mesh_connect)
{
	mesh_ranks_close(&self->r);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
}

/*
 * Rank @rank's end of a connection to rank @to over wire @over; what is behind
 * that is done to the usual arguments first.
 */
#define CONNECT(rank, to, over, ...) ({				\
	struct kcr_connect a = mesh_connect_args(to, over);		\
	struct kcr_conn_status *of;					\
									\
	__VA_ARGS__;							\
	ASSERT_EQ(0, dev_ioctl(self->r.fd[rank], KCR_IOCTL_CONNECT, &a));	\
	of = mesh_status(self->r.fd[rank], to, over);			\
	ASSERT_NE(MAP_FAILED, of);					\
	of;								\
})

/* It fails within @seconds: as this, and nobody else is harmed. */
#define EXPECT_FAILED(s, seconds, why, what, errnum) do {		\
	EXPECT_TRUE(DEV_SOON(seconds, mesh_state(s) == KCR_CONN_FAILED)) {	\
		MESH_LOG(s);						\
	}								\
	EXPECT_EQ(why, (s)->reason) {					\
		MESH_LOG(s);						\
	}								\
	EXPECT_EQ(what, (s)->detail);					\
	EXPECT_EQ(errnum, (s)->error);					\
} while (0)

static bool has_two_wires(void)
{
	return !access("/sys/class/infiniband/rxe0w1", F_OK);
}

/* Whoever sleeps until its event counter moves sees every change. */
TEST_F(mesh_connect, events)
{
	struct mesh_ranks *r = &self->r;
	struct kcr_status *status[2];
	__u64 seen;
	int i;

	ASSERT_EQ(0, mesh_ranks_join(r, 2));
	for (i = 0; i < 2; i++) {
		status[i] = dev_status(r->fd[i]);
		ASSERT_NE(MAP_FAILED, status[i]);
	}
	ASSERT_EQ(0, mesh_ranks_connect(r, 0, 1));
	for (i = 0; i < 2; i++) {
		for (;;) {
			seen = dev_events(status[i]);
			if (mesh_is_up(r->status[i][!i]))
				break;
			ASSERT_EQ(0, dev_wait(r->fd[i], seen, 10 * DEV_SECOND, 0));
		}
	}
	/* What has come, and that the other has left, as well. */
	ASSERT_EQ(0, mesh_frames(r->fd[1], 0, 0, 0, 0));
	for (;;) {
		seen = dev_events(status[0]);
		if (mesh_limit(r->status[0][1], 0, 0))
			break;
		ASSERT_EQ(0, dev_wait(r->fd[0], seen, 10 * DEV_SECOND, 0));
	}
	ASSERT_EQ(0, mesh_send(r->fd[0], 1, 0, 0, 0, 8, 1));
	for (;;) {
		seen = dev_events(status[1]);
		if (mesh_arrived(r->status[1][0], 0, 0))
			break;
		ASSERT_EQ(0, dev_wait(r->fd[1], seen, 10 * DEV_SECOND, 0));
	}
	ASSERT_EQ(0, dev_leave(r->fd[0]));
	for (;;) {
		seen = dev_events(status[1]);
		if (mesh_state(r->status[1][0]) == KCR_CONN_LEFT)
			break;
		ASSERT_EQ(0, dev_wait(r->fd[1], seen, 10 * DEV_SECOND, 0));
	}
	for (i = 0; i < 2; i++)
		munmap(status[i], sizeof(*status[i]));
}

/* The end that is here is looked at right away, on both sides. */
TEST_F(mesh_connect, local_addresses)
{
	static const struct {
		const char *address;
		int error;
	} wrong[] = {
		{ "127.0.0.1", ENODEV },	/* no RDMA device */
		{ "10.77.255.1", ENODEV },	/* likewise */
		{ "0.0.0.0", ENODEV },		/* which? */
		{ "192.0.2.1", EADDRNOTAVAIL },	/* nobody's here */
	};
	struct kcr_conn_status *s;
	int i, rank;

	ASSERT_EQ(0, mesh_ranks_join(&self->r, 2));
	for (i = 0; i < 4; i++) {
		for (rank = 0; rank < 2; rank++) {
			s = CONNECT(rank, !rank, i,
				    mesh_sockaddr(a.local, wrong[i].address, 0);
				    mesh_sockaddr(a.remote, mesh_address(0), 0));
			EXPECT_FAILED(s, 0, KCR_REASON_ADDRESS, 0, wrong[i].error);
			if (s->error != wrong[i].error)
				TH_LOG("%s for rank %d", wrong[i].address, rank);
			EXPECT_EQ(-EEXIST, mesh_connect(self->r.fd[rank], !rank, i));
			EXPECT_EQ(-ENOTCONN, mesh_send(self->r.fd[rank], !rank, i, 0, 0, 8, 1));
			EXPECT_EQ(-ENOTCONN, mesh_frames(self->r.fd[rank], !rank, i, 0, 0));
			munmap(s, sizeof(*s));
		}
	}
}

/* Nobody is at the other address: the time is up, not before and soon after. */
TEST_F(mesh_connect, nobody_there)
{
	struct kcr_conn_status *s;
	double begin, took;

	ASSERT_EQ(0, mesh_ranks_join(&self->r, 2));
	begin = dev_now();
	s = CONNECT(0, 1, 0, a.timeout_ms = 1500; mesh_sockaddr(a.remote, MESH_NOT_THERE, 0));
	EXPECT_EQ(KCR_CONN_CONNECTING, mesh_state(s));
	EXPECT_FAILED(s, 10, KCR_REASON_TIMEOUT, 0, ETIMEDOUT);
	took = dev_now() - begin;
	EXPECT_LT(1.4, took);
	EXPECT_GT(4, took);
	EXPECT_STREQ("rxe0", (char *)s->device);
	munmap(s, sizeof(*s));
}

/* Nobody answers who has that address on the wire. */
TEST_F(mesh_connect, unreachable)
{
	struct kcr_conn_status *s;

	if (geteuid() || mesh_arp(true))
		SKIP(return, "cannot switch ARP on for dummy0");
	ASSERT_EQ(0, mesh_ranks_join(&self->r, 2));
	s = CONNECT(0, 1, 0, mesh_sockaddr(a.remote, MESH_NOT_THERE, 0));
	EXPECT_TRUE(DEV_SOON(15, mesh_state(s) == KCR_CONN_FAILED));
	EXPECT_EQ(KCR_REASON_UNREACHABLE, s->reason);
	EXPECT_EQ(s->error, s->detail);
	EXPECT_TRUE(s->error == ETIMEDOUT || s->error == EHOSTUNREACH) {
		MESH_LOG(s);
	}
	munmap(s, sizeof(*s));
	EXPECT_EQ(0, mesh_arp(false));
}

/* Nobody listens at that port. */
TEST_F(mesh_connect, refused)
{
	struct kcr_conn_status *s;

	ASSERT_EQ(0, mesh_ranks_join(&self->r, 2));
	s = CONNECT(0, 1, 0, mesh_sockaddr(a.remote, mesh_address(0), 1));
	EXPECT_FAILED(s, 10, KCR_REASON_REFUSED, MESH_NO_SUCH_SERVICE, ECONNREFUSED);
	munmap(s, sizeof(*s));
}

/* The other rank has not called yet, or is not even there. */
TEST_F(mesh_connect, too_early)
{
	struct kcr_conn_status *s[2];
	struct dev_world other;
	int fd;

	ASSERT_EQ(0, mesh_ranks_join(&self->r, 3));
	s[0] = CONNECT(0, 1, 0);
	EXPECT_FAILED(s[0], 10, KCR_REASON_WORLD, 0, ENOENT);
	other = dev_world(2);
	fd = dev_member(&other, 0);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, mesh_connect(fd, 1, 0));
	s[1] = mesh_status(fd, 1, 0);
	ASSERT_NE(MAP_FAILED, s[1]);
	EXPECT_FAILED(s[1], 10, KCR_REASON_WORLD, 0, ENOENT);
	munmap(s[0], sizeof(*s[0]));
	munmap(s[1], sizeof(*s[1]));
	close(fd);
}

/*
 * Many at once: whoever is refused has receives posted, which the device flushes
 * while rdma_cm has yet to tell who refused and why. That must not be all that is said.
 */
TEST_F(mesh_connect, refused_in_crowds)
{
	enum { CROWD = 16, ROUNDS = 4 };
	struct kcr_conn_status *s[CROWD];
	struct dev_world world;
	int fd[CROWD];

	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < CROWD; i++) {
			world = dev_world(2);
			fd[i] = dev_member(&world, 0);
			ASSERT_LE(0, fd[i]);
		}
		for (int i = 0; i < CROWD; i++)
			ASSERT_EQ(0, mesh_connect(fd[i], 1, 0));
		for (int i = 0; i < CROWD; i++) {
			s[i] = mesh_status(fd[i], 1, 0);
			ASSERT_NE(MAP_FAILED, s[i]);
			EXPECT_FAILED(s[i], 10, KCR_REASON_WORLD, 0, ENOENT);
			munmap(s[i], sizeof(*s[i]));
			close(fd[i]);
		}
	}
}

/* It is there, but expects another rank, or this one over another wire. */
TEST_F(mesh_connect, not_expected)
{
	struct kcr_conn_status *s[3], *expects;
	int i;

	ASSERT_EQ(0, mesh_ranks_join(&self->r, 4));
	expects = CONNECT(2, 1, 0, a.timeout_ms = 30000);
	ASSERT_EQ(0, mesh_connect(self->r.fd[2], 3, 1));
	s[0] = CONNECT(0, 2, 0);
	s[1] = CONNECT(1, 2, 1, mesh_sockaddr(a.local, mesh_address(0), 0);
				mesh_sockaddr(a.remote, mesh_address(0), 0));
	EXPECT_FAILED(s[0], 10, KCR_REASON_RANK, 0, ENOENT);
	EXPECT_FAILED(s[1], 10, KCR_REASON_RANK, 0, ENOENT);
	/* Those who came in vain have not taken the place of the right one. */
	EXPECT_EQ(KCR_CONN_EXPECTED, mesh_state(expects));
	s[2] = CONNECT(1, 2, 0);
	EXPECT_TRUE(DEV_SOON(10, mesh_is_up(expects) && mesh_is_up(s[2])));
	for (i = 0; i < 3; i++)
		munmap(s[i], sizeof(*s[i]));
	munmap(expects, sizeof(*expects));
}

/* Nobody comes. */
TEST_F(mesh_connect, in_vain)
{
	struct kcr_conn_status *s;
	struct kcr_status *status;
	double begin, took;

	ASSERT_EQ(0, mesh_ranks_join(&self->r, 2));
	status = dev_status(self->r.fd[1]);
	ASSERT_NE(MAP_FAILED, status);
	begin = dev_now();
	s = CONNECT(1, 0, 0, a.timeout_ms = 1000);
	EXPECT_EQ(KCR_CONN_EXPECTED, mesh_state(s));
	EXPECT_FAILED(s, 10, KCR_REASON_TIMEOUT, 0, ETIMEDOUT);
	took = dev_now() - begin;
	EXPECT_LT(0.9, took);
	EXPECT_GT(3, took);
	/* Too late. */
	ASSERT_EQ(0, mesh_connect(self->r.fd[0], 1, 0));
	dev_sleep(0.5);
	EXPECT_EQ(KCR_CONN_FAILED, mesh_state(s));
	EXPECT_EQ(0, dev_cause(status));
	munmap(s, sizeof(*s));
	munmap(status, sizeof(*status));
}

/* The shortest time there is: up or not, but both ends know, and agree. */
TEST_F(mesh_connect, no_time)
{
	struct kcr_conn_status *s[2];
	int round, i, failed;

	for (round = 0; round < 10; round++) {
		ASSERT_EQ(0, mesh_ranks_join(&self->r, 2));
		s[1] = CONNECT(1, 0, 0, a.timeout_ms = 1 + round);
		s[0] = CONNECT(0, 1, 0, a.timeout_ms = 1 + round / 2);
		for (i = 0; i < 2; i++) {
			EXPECT_TRUE(DEV_SOON(5, mesh_state(s[i]) >= KCR_CONN_UP)) {
				MESH_LOG(s[i]);
			}
		}
		dev_sleep(0.05);
		failed = 0;
		for (i = 0; i < 2; i++)
			failed += mesh_state(s[i]) == KCR_CONN_FAILED;
		EXPECT_TRUE(failed == 0 || DEV_SOON(5, mesh_state(s[0]) == KCR_CONN_FAILED &&
						    mesh_state(s[1]) == KCR_CONN_FAILED)) {
			MESH_LOG(s[0]);
			MESH_LOG(s[1]);
		}
		for (i = 0; i < 2; i++) {
			EXPECT_EQ(mesh_is_up(s[i]), s[i]->reason == KCR_REASON_NONE);
			EXPECT_EQ(mesh_is_up(s[i]), s[i]->error == 0);
			munmap(s[i], sizeof(*s[i]));
		}
		mesh_ranks_close(&self->r);
	}
}

/* F5: a wire that ends at another wire's device. */
TEST_F(mesh_connect, crossed)
{
	struct kcr_conn_status *high[2], *low[2];
	int w;

	if (!has_two_wires())
		SKIP(return, "one wire: kcr-vm --wires 2");
	ASSERT_EQ(0, mesh_ranks_join(&self->r, 2));
	for (w = 0; w < 2; w++)
		high[w] = CONNECT(1, 0, w, a.timeout_ms = 2500;
				  mesh_sockaddr(a.local, mesh_address(!w), 0);
				  mesh_sockaddr(a.remote, mesh_address(!w), 0));
	for (w = 0; w < 2; w++) {
		low[w] = CONNECT(0, 1, w);
		EXPECT_FAILED(low[w], 10, KCR_REASON_CROSSED, w, ECONNREFUSED);
	}
	for (w = 0; w < 2; w++) {
		EXPECT_FAILED(high[w], 10, KCR_REASON_TIMEOUT, 0, ETIMEDOUT);
		munmap(low[w], sizeof(*low[w]));
		munmap(high[w], sizeof(*high[w]));
	}
}

/* One end alone is not where it should be: what it says goes nowhere. */
TEST_F(mesh_connect, half_crossed)
{
	struct kcr_conn_status *high, *low;

	if (!has_two_wires())
		SKIP(return, "one wire: kcr-vm --wires 2");
	ASSERT_EQ(0, mesh_ranks_join(&self->r, 2));
	high = CONNECT(1, 0, 1, a.timeout_ms = 1500);
	low = CONNECT(0, 1, 1, a.timeout_ms = 1500;
		      mesh_sockaddr(a.local, mesh_address(0), 0));
	EXPECT_FAILED(low, 10, KCR_REASON_TIMEOUT, 0, ETIMEDOUT);
	EXPECT_FAILED(high, 10, KCR_REASON_TIMEOUT, 0, ETIMEDOUT);
	munmap(low, sizeof(*low));
	munmap(high, sizeof(*high));
}

/* Two wires between the same two ranks are two connections. */
TEST_F(mesh_connect, two_wires)
{
	struct kcr_conn_status *s[2][2];
	int i, w;

	if (!has_two_wires())
		SKIP(return, "one wire: kcr-vm --wires 2");
	ASSERT_EQ(0, mesh_ranks_join(&self->r, 2));
	for (w = 0; w < 2; w++)
		s[w][1] = CONNECT(1, 0, w);
	for (w = 0; w < 2; w++)
		s[w][0] = CONNECT(0, 1, w);
	for (w = 0; w < 2; w++) {
		for (i = 0; i < 2; i++)
			ASSERT_TRUE(DEV_SOON(10, mesh_is_up(s[w][i])));
		EXPECT_STREQ(w ? "rxe0w1" : "rxe0", (char *)s[w][0]->device);
		ASSERT_EQ(0, mesh_frames(self->r.fd[1], 0, w, 0, 0));
		ASSERT_TRUE(DEV_SOON(10, mesh_limit(s[w][0], 0, 0)));
	}
	ASSERT_EQ(0, mesh_send(self->r.fd[0], 1, 1, 0, 0, 77, 1));
	ASSERT_TRUE(DEV_SOON(10, mesh_arrived(s[1][1], 0, 0) == 1));
	EXPECT_EQ(0, s[0][1]->received);
	for (w = 0; w < 2; w++)
		for (i = 0; i < 2; i++)
			munmap(s[w][i], sizeof(*s[w][i]));
}

/* The ends do not agree on the depth. */
TEST_F(mesh_connect, depth)
{
	struct kcr_conn_status *high, *low;

	ASSERT_EQ(0, mesh_ranks_join(&self->r, 2));
	high = CONNECT(1, 0, 0, a.depth = 4; a.timeout_ms = 1500);
	low = CONNECT(0, 1, 0, a.depth = 3);
	EXPECT_FAILED(low, 10, KCR_REASON_FORMAT, 0, EPROTO);
	EXPECT_FAILED(high, 10, KCR_REASON_TIMEOUT, 0, ETIMEDOUT);
	munmap(low, sizeof(*low));
	munmap(high, sizeof(*high));
}

/* The least and the most; all places of a ring are used. */
TEST_F(mesh_connect, depths)
{
	static const __u32 depths[] = { 1, 7, KCR_FRAMES_MAX - 1 };
	struct kcr_conn_status *high, *low;
	__u32 k, class, s;

	for (k = 0; k < 3; k++) {
		ASSERT_EQ(0, mesh_ranks_join(&self->r, 2));
		high = CONNECT(1, 0, 0, a.depth = depths[k]);
		low = CONNECT(0, 1, 0, a.depth = depths[k]);
		ASSERT_TRUE(DEV_SOON(10, mesh_is_up(low) && mesh_is_up(high)));
		EXPECT_EQ(depths[k] + 1, low->depth);
		EXPECT_EQ(depths[k] + 1, high->depth);
		for (class = 0; class < KCR_CLASSES; class++) {
			__u32 depth = kcr_frames_depth(class, depths[k] + 1);

			ASSERT_EQ(0, mesh_frames(self->r.fd[1], 0, 0, 0, class));
			EXPECT_EQ(depth, high->rings[0][class].depth);
			ASSERT_TRUE(DEV_SOON(10, mesh_limit(low, 0, class) == depth));
			for (s = 1; s <= depth; s++)
				ASSERT_EQ(0, mesh_send(self->r.fd[0], 1, 0, 0, 0,
						       KCR_CLASS_BYTES(class), s));
			EXPECT_EQ(-ENOBUFS, mesh_send(self->r.fd[0], 1, 0, 0, 0,
						      KCR_CLASS_BYTES(class), s));
			ASSERT_TRUE(DEV_SOON(10, mesh_arrived(high, 0, class) == depth));
			ASSERT_EQ(0, mesh_release(self->r.fd[1], 0, 0, 0, class, depth));
			ASSERT_TRUE(DEV_SOON(10, mesh_limit(low, 0, class) >= 2 * depth - 1));
		}
		munmap(low, sizeof(*low));
		munmap(high, sizeof(*high));
		mesh_ranks_close(&self->r);
	}
}

static bool has_gid(const char *start)
{
	char path[80], text[64];
	int i, fd;
	ssize_t n;

	for (i = 0; i < 32; i++) {
		snprintf(path, sizeof(path), "/sys/class/infiniband/rxe0/ports/1/gids/%d", i);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return false;
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
		if (n > 0 && !strncmp(text, start, strlen(start)))
			return true;
	}
	return false;
}

TEST_F(mesh_connect, ipv6)
{
	struct kcr_conn_status *high, *low;

	if (geteuid() || system("ip addr add fd77::1/64 dev dummy0 nodad 2>&1"))
		SKIP(return, "cannot give dummy0 an IPv6 address");
	ASSERT_TRUE(DEV_SOON(10, has_gid("fd77:")));
	ASSERT_EQ(0, mesh_ranks_join(&self->r, 2));
	high = CONNECT(1, 0, 0, mesh_sockaddr6(a.local, "fd77::1");
		       mesh_sockaddr6(a.remote, "fd77::1"));
	low = CONNECT(0, 1, 0, mesh_sockaddr6(a.local, "fd77::1");
		      mesh_sockaddr6(a.remote, "fd77::1"));
	EXPECT_TRUE(DEV_SOON(10, mesh_is_up(low) && mesh_is_up(high))) {
		MESH_LOG(low);
		MESH_LOG(high);
	}
	EXPECT_EQ(0xfd, low->local_gid[0]);
	EXPECT_EQ(0xfd, high->remote_gid[0]);
	munmap(low, sizeof(*low));
	munmap(high, sizeof(*high));
	EXPECT_EQ(0, system("ip addr del fd77::1/64 dev dummy0"));
}

/* Everybody with everybody, at once. */
TEST_F(mesh_connect, storm)
{
	struct mesh_ranks *r = &self->r;
	double begin = dev_now();
	int i, j;

	ASSERT_EQ(0, mesh_ranks_open(r, 8));
	TH_LOG("28 connections in %.2f s", dev_now() - begin);
	for (i = 0; i < 8; i++)
		for (j = 0; j < 8; j++)
			if (i != j)
				ASSERT_EQ(0, mesh_frames(r->fd[i], j, 0, 0, 0));
	for (i = 0; i < 8; i++) {
		struct kcr_send args = mesh_send_args(0, 0, 0, 0, 64, 1);

		args.mask = 0xff & ~(1 << i);
		ASSERT_TRUE(DEV_SOON(10, !dev_ioctl(r->fd[i], KCR_IOCTL_SEND, &args)));
	}
	for (i = 0; i < 8; i++)
		for (j = 0; j < 8; j++)
			if (i != j)
				EXPECT_TRUE(DEV_SOON(10, mesh_arrived(r->status[i][j], 0, 0) == 1));
	begin = dev_now();
	mesh_ranks_close(r);
	/* All of them die one after another, and none waits for those it knows. */
	EXPECT_GT(10, dev_now() - begin);
}

/* Gone before it is known how it went, in every way one can go. */
TEST_F(mesh_connect, close_at_once)
{
	int rounds = 100 * dev_scale(), round, i;
	struct dev_world w;
	int fd[2];

	for (round = 0; round < rounds; round++) {
		w = dev_world(2);
		for (i = 0; i < 2; i++) {
			fd[i] = dev_member(&w, i);
			ASSERT_LE(0, fd[i]);
		}
		if (round % 3 != 1)
			ASSERT_EQ(0, mesh_connect(fd[1], 0, 0));
		if (round % 3 != 2)
			ASSERT_EQ(0, mesh_connect(fd[0], 1, 0));
		if (round % 5 == 4)
			dev_sleep(0.001 * (round % 11));
		for (i = 0; i < 2; i++) {
			int who = round & 8 ? !i : i;

			if (round & 1 << who)
				ASSERT_EQ(0, dev_leave(fd[who]));
			if (round & 4)
				close(fd[who]);
		}
		for (i = 0; i < 2 && !(round & 4); i++)
			close(fd[i]);
	}
}

/* ---- children ---- */

struct rank {
	struct dev_world world;
	int rank;
	int *stage;
	void (*act)(struct rank *me);
	const char *remote;
	int fd;
	struct kcr_conn_status *status;
};

/* A child that connects, and says so at once. */
static void rank_main(void *arg)
{
	struct rank *me = arg;
	struct kcr_connect a = mesh_connect_args(!me->rank, 0);

	me->fd = dev_member(&me->world, me->rank);
	CHILD_TRUE(me->fd >= 0);
	if (me->remote)
		mesh_sockaddr(a.remote, me->remote, 0);
	CHILD_GIVES(0, dev_ioctl(me->fd, KCR_IOCTL_CONNECT, &a));
	me->status = mesh_status(me->fd, !me->rank, 0);
	CHILD_TRUE(me->status != MAP_FAILED);
	dev_reach(me->stage, 1);
	me->act(me);
}

static void act_pause(struct rank *me)
{
	for (;;)
		pause();
}

/* Nobody is there: it is killed while it waits for an answer. */
TEST_F(mesh_connect, killed_while_alone)
{
	struct rank me = { .act = act_pause, .remote = MESH_NOT_THERE };
	double begin;
	pid_t pid;

	me.stage = dev_shared(4096);
	for (me.rank = 0; me.rank < 2; me.rank++) {
		me.world = dev_world(2);
		dev_reach(me.stage, 0);
		pid = dev_child(rank_main, &me);
		EXPECT_TRUE(dev_reached(me.stage, 1));
		dev_sleep(0.2);
		begin = dev_now();
		EXPECT_TRUE(dev_child_kill(pid));
		EXPECT_GT(2, dev_now() - begin);
	}
	munmap(me.stage, 4096);
}

/* At any moment while two connect: the other learns of it, and lives. */
TEST_F(mesh_connect, killed_while_connecting)
{
	struct rank me = { .act = act_pause };
	int rounds = 30 * dev_scale(), round, fd;
	struct kcr_conn_status *s;
	struct kcr_status *status;
	pid_t pid;

	me.stage = dev_shared(4096);
	for (round = 0; round < rounds; round++) {
		me.world = dev_world(2);
		me.rank = round & 1;
		dev_reach(me.stage, 0);
		fd = dev_member(&me.world, !me.rank);
		ASSERT_LE(0, fd);
		status = dev_status(fd);
		ASSERT_NE(MAP_FAILED, status);
		if (!me.rank)
			ASSERT_EQ(0, mesh_connect(fd, me.rank, 0));
		pid = dev_child(rank_main, &me);
		EXPECT_TRUE(dev_reached(me.stage, 1));
		if (me.rank)
			ASSERT_EQ(0, mesh_connect(fd, me.rank, 0));
		s = mesh_status(fd, me.rank, 0);
		ASSERT_NE(MAP_FAILED, s);
		dev_sleep(0.001 * (round / 2));
		EXPECT_TRUE(dev_child_kill(pid));
		EXPECT_TRUE(DEV_SOON(2, dev_cause(status)));
		EXPECT_EQ(KCR_CAUSE(me.rank, ECONNRESET), dev_cause(status));
		/* It is a member all the same. */
		EXPECT_EQ(0, dev_kick(fd, !me.rank, 1));
		EXPECT_TRUE(DEV_SOON(5, mesh_send(fd, me.rank, 0, 0, 0, 8, 1) == -ENOTCONN));
		munmap(s, sizeof(*s));
		munmap(status, sizeof(*status));
		close(fd);
	}
	munmap(me.stage, 4096);
}

static void act_exec(struct rank *me)
{
	CHILD_TRUE(DEV_SOON(10, mesh_is_up(me->status)));
	dev_reach(me->stage, 2);
	execl("/bin/sleep", "sleep", "20", NULL);
	CHILD_TRUE(!"exec failed");
}

static void act_exec_inherit(struct rank *me)
{
	CHILD_GIVES(0, fcntl(me->fd, F_SETFD, 0));
	act_exec(me);
}

/* A child of the rank has its descriptor, and outlives it. */
static void act_fork(struct rank *me)
{
	CHILD_TRUE(DEV_SOON(10, mesh_is_up(me->status)));
	if (!fork()) {
		dev_reach(me->stage, 2);
		CHILD_GIVES(-EPERM, mesh_send(me->fd, !me->rank, 0, 0, 0, 8, 1));
		CHILD_TRUE(dev_reached(me->stage, 3));
		CHILD_GIVES(-EPERM, mesh_send(me->fd, !me->rank, 0, 0, 0, 8, 1));
		_exit(0);
	}
	CHILD_TRUE(dev_reached(me->stage, 2));
}

/* Exec, and a child that outlives its parent: a rank's end as any other. */
TEST_F(mesh_connect, exec_and_fork)
{
	static void (*const acts[])(struct rank *me) = { act_exec, act_exec_inherit, act_fork };
	struct rank me = { };
	struct kcr_conn_status *s;
	struct kcr_status *status;
	int i, fd;
	pid_t pid;

	me.stage = dev_shared(4096);
	for (i = 0; i < 6; i++) {
		me.act = acts[i / 2];
		me.rank = i & 1;
		me.world = dev_world(2);
		dev_reach(me.stage, 0);
		fd = dev_member(&me.world, !me.rank);
		ASSERT_LE(0, fd);
		status = dev_status(fd);
		ASSERT_NE(MAP_FAILED, status);
		if (!me.rank)
			ASSERT_EQ(0, mesh_connect(fd, me.rank, 0));
		pid = dev_child(rank_main, &me);
		EXPECT_TRUE(dev_reached(me.stage, 1));
		if (me.rank)
			ASSERT_EQ(0, mesh_connect(fd, me.rank, 0));
		s = mesh_status(fd, me.rank, 0);
		ASSERT_NE(MAP_FAILED, s);
		EXPECT_TRUE(dev_reached(me.stage, 2));
		/* The program has to be read first. */
		EXPECT_TRUE(DEV_SOON(6, dev_cause(status))) {
			TH_LOG("case %d", i);
		}
		EXPECT_EQ(KCR_CAUSE(me.rank, ECONNRESET), dev_cause(status));
		EXPECT_TRUE(DEV_SOON(2, mesh_send(fd, me.rank, 0, 0, 0, 8, 1) == -ENOTCONN));
		/* All this while somebody still has the descriptor. */
		dev_reach(me.stage, 3);
		EXPECT_TRUE(me.act == act_fork ? !dev_child_status(pid, 20) : dev_child_kill(pid));
		munmap(s, sizeof(*s));
		munmap(status, sizeof(*status));
		close(fd);
		/* Also the one that the rank left behind goes. */
		EXPECT_TRUE(DEV_SOON(10, dev_counters_equal(&self->before)));
	}
	munmap(me.stage, 4096);
}

/* What the rdma tool sees. */
static void resources(char *text, size_t bytes)
{
	FILE *pipe = popen("rdma resource show 2> /dev/null", "r");
	size_t n = pipe ? fread(text, 1, bytes - 1, pipe) : 0;

	text[n] = 0;
	if (pipe)
		pclose(pipe);
}

/*
 * K18: a thousand times; afterwards the devices have what they had before. A kernel that
 * watches itself is several times slower, and does what there is time for.
 */
TEST_F_TIMEOUT(mesh_connect, many, 150)
{
	bool is_slow = !access("/sys/kernel/debug/kmemleak", F_OK);
	double begin = dev_now(), limit = 45 * dev_scale();
	static char before[4096], after[4096];
	int most = 1000 * dev_scale(), rounds;

	/* The pools of completion queues grow once, and stay. */
	ASSERT_EQ(0, mesh_ranks_open(&self->r, 4));
	mesh_ranks_close(&self->r);
	ASSERT_TRUE(DEV_SOON(DEV_SETTLE, !mesh_left()));
	resources(before, sizeof(before));
	ASSERT_TRUE(strstr(before, "rxe0: ")) {
		TH_LOG("the rdma tool says \"%s\"", before);
	}
	for (rounds = 0; rounds < most && !(is_slow && dev_now() - begin > limit); rounds++) {
		ASSERT_EQ(0, mesh_ranks_open(&self->r, 2));
		if (rounds & 1)
			ASSERT_EQ(0, dev_leave(self->r.fd[rounds >> 1 & 1]));
		mesh_ranks_close(&self->r);
	}
	TH_LOG("%d of %d connections in %.1f s", rounds, most, dev_now() - begin);
	EXPECT_LE(is_slow ? most / 50 : most, rounds);
	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, (resources(after, sizeof(after)),
					  !strcmp(before, after)))) {
		TH_LOG("before:\n%safter:\n%s", before, after);
	}
}

/* ---- another network namespace ---- */

struct emigrant {
	struct dev_world world;
	int rank;
	int *stage;
};

/* Its connection to the other rank over wire @wire, by the addresses of the first wire. */
static void connect_in_vain(const struct emigrant *me, int fd, __u32 wire, __u32 errnum)
{
	struct kcr_connect a = mesh_connect_args(!me->rank, wire);
	struct kcr_conn_status *s;

	mesh_sockaddr(a.local, mesh_address(0), 0);
	mesh_sockaddr(a.remote, mesh_address(0), 0);
	CHILD_GIVES(0, dev_ioctl(fd, KCR_IOCTL_CONNECT, &a));
	s = mesh_status(fd, !me->rank, wire);
	CHILD_TRUE(s != MAP_FAILED);
	CHILD_TRUE(DEV_SOON(10, mesh_state(s) == KCR_CONN_FAILED));
	CHILD_TRUE(s->reason == KCR_REASON_ADDRESS && s->error == errnum);
}

static void emigrant_main(void *arg)
{
	struct emigrant *me = arg;
	int fd;

	CHILD_GIVES(0, unshare(CLONE_NEWNET));
	fd = dev_member(&me->world, me->rank);
	CHILD_TRUE(fd >= 0);
	connect_in_vain(me, fd, 0, EADDRNOTAVAIL);
	/* The address alone is not the device. */
	CHILD_GIVES(0, system("ip link add same0 type dummy && ip link set same0 up"));
	CHILD_GIVES(0, system("ip addr add 10.77.0.1/24 dev same0"));
	connect_in_vain(me, fd, 1, ENODEV);
	dev_reach(me->stage, 1);
	CHILD_TRUE(dev_reached(me->stage, 2));
}

/*
 * A rank that lives in another network namespace, with the device, the world's id and key:
 * its world is the same, but wires of this namespace are not its own, to call or to be
 * called over. The one that stayed is told so, or goes on waiting.
 */
TEST_F(mesh_connect, another_namespace)
{
	struct emigrant it = { };
	struct kcr_conn_status *s;
	struct kcr_status *status;
	pid_t pid;
	int fd;

	if (geteuid())
		SKIP(return, "needs root to make a network namespace");
	it.stage = dev_shared(4096);
	for (it.rank = 0; it.rank < 2; it.rank++) {
		it.world = dev_world(2);
		dev_reach(it.stage, 0);
		fd = dev_member(&it.world, !it.rank);
		ASSERT_LE(0, fd);
		status = dev_status(fd);
		ASSERT_NE(MAP_FAILED, status);
		if (!it.rank)
			ASSERT_EQ(0, mesh_connect(fd, it.rank, 0));
		pid = dev_child(emigrant_main, &it);
		EXPECT_TRUE(dev_reached(it.stage, 1));
		if (it.rank)
			ASSERT_EQ(0, mesh_connect(fd, it.rank, 0));
		s = mesh_status(fd, it.rank, 0);
		ASSERT_NE(MAP_FAILED, s);
		if (it.rank)
			EXPECT_FAILED(s, 10, KCR_REASON_WORLD, 0, ENOENT);
		else
			EXPECT_EQ(KCR_CONN_EXPECTED, mesh_state(s));
		EXPECT_EQ(0, dev_cause(status));
		dev_reach(it.stage, 2);
		EXPECT_EQ(0, dev_child_status(pid, 20));
		munmap(s, sizeof(*s));
		munmap(status, sizeof(*status));
		close(fd);
	}
	munmap(it.stage, 4096);
}

TEST_HARNESS_MAIN
