// SPDX-License-Identifier: GPL-2.0
/*
 * The end of meshes, at the worst of times: under traffic, while connecting, by
 * death, by the loss of the device; and often
 */
#include "kselftest_harness.h"
#include "mesh.h"

#define RANKS 2

struct rank {
	pthread_t thread;
	int fd;
	int peer;
	struct kcr_conn_status *status;
	__u64 frames;
	int error;		/* that ended the traffic */
};

struct pair {
	struct dev_world world;
	struct rank rank[RANKS];
};

static int rank_open(struct rank *r, const struct dev_world *w, int rank)
{
	r->peer = !rank;
	r->fd = dev_member(w, rank);
	if (r->fd < 0)
		return r->fd;
	return dev_window(r->fd, 0, NULL, 0, MESH_BOARD) ?: mesh_connect(r->fd, !rank, 0);
}

static int rank_map(struct rank *r)
{
	r->status = mesh_status(r->fd, r->peer, 0);
	return r->status == MAP_FAILED ? -errno : 0;
}

static void rank_close(struct rank *r)
{
	if (r->status)
		munmap(r->status, sizeof(*r->status));
	if (r->fd >= 0)
		close(r->fd);
	*r = (struct rank){ .fd = -1 };
}

/* Both ranks, the higher one first; not waited for. */
static int pair_open(struct pair *p)
{
	int err = 0;

	p->world = dev_world(RANKS);
	for (int j = 0; j < RANKS; j++)
		p->rank[j].fd = -1;
	for (int i = RANKS - 1; i >= 0 && !err; i--)
		err = rank_open(&p->rank[i], &p->world, i);
	for (int i = 0; i < RANKS && !err; i++)
		err = rank_map(&p->rank[i]);
	return err;
}

static bool pair_is_up(const struct pair *p)
{
	return mesh_is_up(p->rank[0].status) && mesh_is_up(p->rank[1].status);
}

static void pair_close(struct pair *p)
{
	for (int i = 0; i < RANKS; i++)
		rank_close(&p->rank[i]);
}

/* Frames in both directions until there is no connection any more. */
static void *traffic(void *arg)
{
	struct rank *r = arg;
	__u64 sent = 0, seen = 0;
	int err;

	do {
		err = mesh_send(r->fd, r->peer, 0, 1, 0, 30000, sent + 1);
		if (!err)
			sent++;
		if (mesh_arrived(r->status, 1, 3) != seen) {
			seen = mesh_arrived(r->status, 1, 3);
			__atomic_store_n(&r->frames, seen, __ATOMIC_RELEASE);
			mesh_release(r->fd, r->peer, 0, 1, 3, seen);
		}
		if (err == -ENOBUFS)
			dev_sleep(0.0005);
	} while (!err || err == -ENOBUFS);
	r->error = err;
	return NULL;
}

static int rank_start(struct rank *r)
{
	return mesh_frames(r->fd, r->peer, 0, 1, 3) ?:
	       -pthread_create(&r->thread, NULL, traffic, r);
}

static bool has_traffic(struct pair *p)
{
	return DEV_SOON(20, __atomic_load_n(&p->rank[0].frames, __ATOMIC_ACQUIRE) > 20);
}

FIXTURE(mesh_end) {
	struct dev_counters before;
	struct pair pair;
};

FIXTURE_SETUP(mesh_end)
{
	const char *missing = mesh_missing();

	if (missing)
		SKIP(return, "%s", missing);
	self->before = dev_counters();
}

FIXTURE_TEARDOWN(mesh_end)
{
	if (!self->before.known)
		return;
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
}

TEST_F_TIMEOUT(mesh_end, often, 240)
{
	for (int i = 0; i < 100 * dev_scale(); i++) {
		ASSERT_EQ(0, pair_open(&self->pair));
		ASSERT_TRUE(DEV_SOON(10, pair_is_up(&self->pair))) {
			TH_LOG("try %d: states %u and %u", i,
			       self->pair.rank[0].status->state,
			       self->pair.rank[1].status->state);
		}
		if (i % 2)
			EXPECT_EQ(0, mesh_frames(self->pair.rank[0].fd, 1, 0, 0, i % 8));
		if (i % 3)
			dev_leave(self->pair.rank[i % 2].fd);
		pair_close(&self->pair);
	}
}

/* Before it is up, at whatever point it is. */
TEST_F_TIMEOUT(mesh_end, while_connecting, 240)
{
	for (int i = 0; i < 100 * dev_scale(); i++) {
		ASSERT_EQ(0, pair_open(&self->pair));
		dev_sleep((i * 7 % 50) * 0.001);
		rank_close(&self->pair.rank[i % 2]);
		dev_sleep(i % 5 * 0.002);
		pair_close(&self->pair);
	}
}

TEST_F_TIMEOUT(mesh_end, under_traffic, 120)
{
	for (int i = 0; i < 5; i++) {
		ASSERT_EQ(0, pair_open(&self->pair));
		ASSERT_TRUE(DEV_SOON(10, pair_is_up(&self->pair)));
		for (int j = 0; j < RANKS; j++)
			ASSERT_EQ(0, rank_start(&self->pair.rank[j]));
		ASSERT_TRUE(has_traffic(&self->pair));
		ASSERT_EQ(0, dev_leave(self->pair.rank[i % 2].fd));
		for (int j = 0; j < RANKS; j++) {
			ASSERT_EQ(0, pthread_join(self->pair.rank[j].thread, NULL));
			EXPECT_TRUE(self->pair.rank[j].error == -ENOTCONN ||
				    self->pair.rank[j].error == -ESHUTDOWN) {
				TH_LOG("rank %d: %d", j, self->pair.rank[j].error);
			}
		}
		pair_close(&self->pair);
	}
}

static int *stage;	/* shared with the child */

static void one_rank(void *arg)
{
	struct pair *p = arg;

	/* This process is rank 1, and has nothing of rank 0's open. */
	CHILD_GIVES(0, rank_open(&p->rank[1], &p->world, 1));
	dev_reach(stage, 1);
	CHILD_GIVES(0, rank_map(&p->rank[1]));
	CHILD_TRUE(DEV_SOON(10, mesh_is_up(p->rank[1].status)));
	CHILD_GIVES(0, rank_start(&p->rank[1]));
	dev_sleep(60);
}

TEST_F_TIMEOUT(mesh_end, by_death, 120)
{
	struct pair *p = &self->pair;

	stage = dev_shared(sizeof(*stage));
	for (int i = 0; i < 5; i++) {
		struct kcr_status *status;
		pid_t pid;

		dev_reach(stage, 0);
		p->world = dev_world(RANKS);
		pid = dev_child(one_rank, p);
		/* Rank 1 has to expect the connection by then. */
		ASSERT_TRUE(dev_reached(stage, 1));
		ASSERT_EQ(0, rank_open(&p->rank[0], &p->world, 0));
		ASSERT_EQ(0, rank_map(&p->rank[0]));
		ASSERT_TRUE(DEV_SOON(10, mesh_is_up(p->rank[0].status)));
		status = dev_status(p->rank[0].fd);
		ASSERT_NE(MAP_FAILED, status);
		ASSERT_EQ(0, rank_start(&p->rank[0]));
		ASSERT_TRUE(has_traffic(p));
		EXPECT_TRUE(dev_child_kill(pid));
		ASSERT_EQ(0, pthread_join(p->rank[0].thread, NULL));
		EXPECT_TRUE(DEV_SOON(10, dev_cause(status)));
		EXPECT_EQ(KCR_CAUSE(1, ECONNRESET), dev_cause(status));
		munmap(status, sizeof(*status));
		rank_close(&p->rank[0]);
	}
}

/* rdma link del: it ends, and so does everything that used the device. */
TEST_F_TIMEOUT(mesh_end, by_removal, 180)
{
	struct pair *p = &self->pair;
	double begin, took;

	for (int i = 0; i < 3; i++) {
		ASSERT_TRUE(DEV_SOON(10, !pair_open(p) || (pair_close(p), 0)));
		if (i < 2) {
			ASSERT_TRUE(DEV_SOON(20, pair_is_up(p)));
			for (int j = 0; j < RANKS; j++)
				ASSERT_EQ(0, rank_start(&p->rank[j]));
			ASSERT_TRUE(has_traffic(p));
		}
		begin = dev_now();
		EXPECT_EQ(0, system("rdma link del rxe0"));
		took = dev_now() - begin;
		EXPECT_GT(10, took) {
			TH_LOG("try %d: %.1f s", i, took);
		}
		for (int j = 0; j < RANKS; j++) {
			struct kcr_conn_status *s = p->rank[j].status;

			if (i == 2)
				continue;
			ASSERT_EQ(0, pthread_join(p->rank[j].thread, NULL));
			EXPECT_TRUE(DEV_SOON(10, mesh_state(s) == KCR_CONN_FAILED));
			EXPECT_EQ(KCR_REASON_DEVICE, s->reason);
			EXPECT_EQ(ENODEV, s->error);
		}
		pair_close(p);
		MESH_EXPECT_NOTHING_LEFT();
		ASSERT_EQ(0, system("rdma link add rxe0 type rxe netdev dummy0"));
		ASSERT_TRUE(DEV_SOON(10, !access("/sys/class/infiniband/rxe0", F_OK)));
	}
}

TEST_HARNESS_MAIN
