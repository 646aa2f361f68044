// SPDX-License-Identifier: GPL-2.0
/*
 * The mesh without memory: each step that makes an object of a connection or posts a
 * request fails in turn, in rdma_cm's handlers, workers and calls alike (fail_point)
 *
 * A call says so, has changed nothing and works the next time. A connection says so at
 * one of its ends, and both know. Nothing is left behind.
 */
#include "kselftest_harness.h"
#include "mesh.h"

#define FAIL_POINT	MESH_COUNTERS "fail_point"
/* More steps than there are in a run of all classes. */
#define MOST		1000

struct scene {
	struct mesh_ranks r;
	struct mesh_lane lane[2];	/* of whom, while there is one */
	int refused;		/* calls with -ENOMEM, which worked when repeated */
};

FIXTURE(mesh_points) {
	struct dev_counters before;
	struct scene scene;
};

FIXTURE_SETUP(mesh_points)
{
	const char *missing = mesh_missing();

	self->scene.r.n = 0;
	self->scene.refused = 0;
	self->before = dev_counters();
	if (missing)
		SKIP(return, "%s", missing);
	if (access(FAIL_POINT, W_OK))
		SKIP(return, "no " FAIL_POINT ": debugfs, and root");
}

FIXTURE_TEARDOWN(mesh_points)
{
	dev_write_number(FAIL_POINT, 0);
	mesh_ranks_close(&self->scene.r);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
}

static bool was_hit(void)
{
	return !dev_read_number(FAIL_POINT);
}

/* Either end has failed: there is nothing to wait for any more. */
static bool is_broken(struct mesh_ranks *r)
{
	return mesh_state(r->status[0][1]) == KCR_CONN_FAILED ||
	       mesh_state(r->status[1][0]) == KCR_CONN_FAILED;
}

/*
 * A call that may get -ENOMEM, once: then it has changed nothing, unless it is the
 * connection that has broken, and works.
 */
#define AGAIN(r, call) ({						\
	struct mesh_counters of_mesh = mesh_counters();			\
	struct dev_counters of_module = dev_counters();			\
	int gave = (call);						\
									\
	if (gave == -ENOMEM) {						\
		EXPECT_TRUE(was_hit());					\
		if (!(r)->status[1][0] || !(r)->status[0][1] ||		\
		    !DEV_SOON(0.01, is_broken(r))) {			\
			EXPECT_TRUE(mesh_counters_equal(&of_mesh)) {	\
				TH_LOG("after " #call ": %s", mesh_left());	\
			}						\
			EXPECT_TRUE(dev_counters_equal(&of_module));	\
			scene->refused++;				\
		}							\
		gave = (call);						\
	}								\
	gave;								\
})

/* Wait for it, or for the connection to break. */
#define MUST_COME(r, condition) do {					\
	EXPECT_TRUE(DEV_SOON(20, (condition) || is_broken(r))) {	\
		TH_LOG("never: " #condition);				\
		MESH_LOG((r)->status[0][1]);				\
		MESH_LOG((r)->status[1][0]);				\
	}								\
	if (!(condition))						\
		return false;						\
} while (0)

#define MUST_WORK(r, call) do {						\
	int must = AGAIN(r, call);					\
									\
	if (must && DEV_SOON(5, is_broken(r)))				\
		return false;						\
	EXPECT_EQ(0, must) {						\
		TH_LOG("the second time: " #call);			\
	}								\
	if (must)							\
		return false;						\
} while (0)

/* One frame of a class from @from to @to. Returns whether the connection still lives. */
static bool pass_frame(struct __test_metadata *_metadata, struct scene *scene,
		       int from, int to, __u32 class)
{
	__u32 stream = class % KCR_STREAMS, bytes = KCR_CLASS_BYTES(class) - 3;
	struct mesh_ranks *r = &scene->r;
	const unsigned char *frames;

	MUST_WORK(r, mesh_frames(r->fd[to], from, 0, stream, class));
	MUST_COME(r, mesh_limit(r->status[from][to], stream, class));
	mesh_fill(r->board[from], bytes, class * 2 + from);
	MUST_WORK(r, mesh_send(r->fd[from], to, 0, stream, 0, bytes, 1));
	MUST_COME(r, mesh_arrived(r->status[to][from], stream, class) == 1);
	frames = mesh_map_frames(r->fd[to], from, 0, stream, class);
	EXPECT_NE(MAP_FAILED, frames);
	if (frames == MAP_FAILED)
		return false;
	EXPECT_EQ(0, memcmp(frames, r->board[from], bytes));
	munmap((void *)frames, mesh_ring_bytes(class));
	MUST_WORK(r, mesh_release(r->fd[to], from, 0, stream, class, 1));
	MUST_COME(r, __atomic_load_n(&r->status[from][to]->rings[stream][class].acked,
				     __ATOMIC_ACQUIRE) == 1);
	return true;
}

#define WINDOW 3

/* A window with a lane of several registrations, and one slot and its acknowledgement. */
static bool pass_slot(struct __test_metadata *_metadata, struct scene *scene, int from, int to)
{
	const struct kcr_lane_desc list = { from, to, 3, 700000 };
	struct mesh_lane lane[2] = { };
	struct mesh_ranks *r = &scene->r;

	for (int i = 0; i < 2; i++)
		MUST_WORK(r, mesh_window(r->fd[i], WINDOW + from, &list, 1));
	for (int i = 0; i < 2; i++) {
		EXPECT_EQ(0, mesh_lane_map(&scene->lane[i], r->fd[i], i, WINDOW + from, &list, 1,
					   0));
		lane[i] = scene->lane[i];
		MUST_COME(r, mesh_lane_state(&lane[i]) == KCR_LANE_READY);
	}
	mesh_slot_write(&lane[from], 1, 9000);
	MUST_WORK(r, mesh_put(r->fd[from], WINDOW + from, to, 1, 1));
	MUST_COME(r, mesh_slot_has(&lane[to], 1, 9000));
	lane[to].ack->sequence = 1;
	MUST_WORK(r, mesh_ack(r->fd[to], WINDOW + from, from));
	MUST_COME(r, __atomic_load_n(&lane[from].ack->sequence, __ATOMIC_ACQUIRE) == 1);
	MUST_WORK(r, mesh_arm(r->fd[to], WINDOW + from, from, 0, 0));
	for (int i = 0; i < 2; i++) {
		mesh_lane_unmap(&scene->lane[i]);
		MUST_WORK(r, dev_detach(r->fd[i], WINDOW + from));
	}
	/* They go when both ends have agreed: not in the middle of the next call. */
	MUST_COME(r, !dev_read_number(MESH_COUNTERS "lanes"));
	return true;
}

/* Connect, send one frame of every @step-th class either way. Does it live? */
static bool use(struct __test_metadata *_metadata, struct scene *scene, int step)
{
	struct mesh_ranks *r = &scene->r;
	__u32 class;
	int i;

	for (i = 1; i >= 0; i--) {
		int err = AGAIN(r, mesh_connect(r->fd[i], !i, 0));

		EXPECT_EQ(0, err);
		r->status[i][!i] = mesh_status(r->fd[i], !i, 0);
		EXPECT_NE(MAP_FAILED, r->status[i][!i]);
		if (err || r->status[i][!i] == MAP_FAILED)
			return false;
	}
	MUST_COME(r, mesh_ranks_are_up(r));
	for (class = 0; class < KCR_CLASSES; class += step)
		for (i = 0; i < 2; i++)
			if (!pass_frame(_metadata, scene, i, !i, class))
				return false;
	return pass_slot(_metadata, scene, 0, 1) && pass_slot(_metadata, scene, 1, 0);
}

/* As documented: this node could not, the other could not, or it went. */
static bool is_explained(const struct kcr_conn_status *s)
{
	switch (s->reason) {
	case KCR_REASON_LOCAL:
		return s->error == ENOMEM ? !s->detail :
		       s->error == ECONNREFUSED && s->detail == ENOMEM;
	case KCR_REASON_GONE:
		return s->error == ECONNRESET || s->error == EHOSTUNREACH;
	case KCR_REASON_ENDED:
		return s->error == ENOMEM || s->error == ECONNRESET;
	default:
		return false;
	}
}

/* Both ends know: the one that waits for others to come may go on with that. */
static void expect_broken(struct __test_metadata *_metadata, struct scene *scene,
			  int k)
{
	struct kcr_conn_status *s;
	int i;

	for (i = 0; i < 2; i++) {
		s = scene->r.status[i][!i];
		EXPECT_TRUE(DEV_SOON(20, mesh_state(s) == KCR_CONN_FAILED ||
				     (i && mesh_state(s) == KCR_CONN_EXPECTED))) {
			TH_LOG("point %d, rank %d", k, i);
			MESH_LOG(s);
		}
		if (mesh_state(s) == KCR_CONN_FAILED) {
			EXPECT_TRUE(is_explained(s)) {
				TH_LOG("point %d, rank %d", k, i);
				MESH_LOG(s);
			}
		}
	}
	EXPECT_TRUE(DEV_SOON(5, scene->r.status[0][1]->reason == KCR_REASON_LOCAL ||
			     scene->r.status[1][0]->reason == KCR_REASON_LOCAL)) {
		TH_LOG("point %d: no end says that it could not", k);
		MESH_LOG(scene->r.status[0][1]);
		MESH_LOG(scene->r.status[1][0]);
	}
}

/* Peers learn that a rank has left, or that the connection broke as it did. */
static void leave(struct __test_metadata *_metadata, struct scene *scene)
{
	struct mesh_ranks *r = &scene->r;
	int i;

	EXPECT_EQ(0, dev_leave(r->fd[0]));
	EXPECT_TRUE(DEV_SOON(10, mesh_state(r->status[1][0]) >= KCR_CONN_LEFT)) {
		MESH_LOG(r->status[1][0]);
	}
	EXPECT_EQ(0, dev_leave(r->fd[1]));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(-ESHUTDOWN, mesh_send(r->fd[i], !i, 0, 0, 0, 8, 9));
}

TEST_F_TIMEOUT(mesh_points, each, 600)
{
	int step = getenv("KCR_TEST_LONG") ? 1 : KCR_CLASSES - 1;
	struct mesh_ranks *r = &self->scene.r;
	double begin = dev_now();
	int k, broken = 0;
	bool lives = false;

	/* Once without: what follows finds what is kept for good. */
	for (k = 0; k < MOST; k++) {
		ASSERT_EQ(0, mesh_ranks_join(r, 2));
		ASSERT_EQ(0, dev_write_number(FAIL_POINT, k));
		lives = use(_metadata, &self->scene, step);
		if (lives) {
			leave(_metadata, &self->scene);
		} else if (r->status[0][1]) {
			broken++;
			EXPECT_TRUE(k && was_hit());
			expect_broken(_metadata, &self->scene, k);
		}
		for (int i = 0; i < 2; i++)
			mesh_lane_unmap(&self->scene.lane[i]);
		mesh_ranks_close(r);
		DEV_EXPECT_NOTHING_LEFT(&self->before);
		MESH_EXPECT_NOTHING_LEFT();
		ASSERT_TRUE(k || lives);
		if (k && !was_hit())
			break;
	}
	TH_LOG("%d steps: %d broke the connection, %d calls were refused; %.1f s", k - 1,
	       broken, self->scene.refused, dev_now() - begin);
	/* The last one was as good as the first. */
	EXPECT_TRUE(lives);
	EXPECT_LT(20, broken);
	EXPECT_LT(5, self->scene.refused);
}

/* The end that waits for its peer, and lacked memory for it, says so when its time is up. */
TEST_F_TIMEOUT(mesh_points, waits_in_vain, 120)
{
	struct mesh_ranks *r = &self->scene.r;
	struct kcr_conn_status *low, *high = NULL;
	struct kcr_connect a;
	bool is_it = false;
	int k;

	for (k = 1; k < MOST && !is_it; k++) {
		ASSERT_EQ(0, mesh_ranks_join(r, 2));
		a = mesh_connect_args(0, 0);
		a.timeout_ms = 3000;
		ASSERT_EQ(0, dev_ioctl(r->fd[1], KCR_IOCTL_CONNECT, &a));
		high = mesh_status(r->fd[1], 0, 0);
		ASSERT_NE(MAP_FAILED, high);
		ASSERT_EQ(0, dev_write_number(FAIL_POINT, k));
		if (!mesh_connect(r->fd[0], 1, 0)) {
			low = mesh_status(r->fd[0], 1, 0);
			ASSERT_NE(MAP_FAILED, low);
			ASSERT_TRUE(DEV_SOON(20, mesh_state(low) >= KCR_CONN_UP));
			/* Refused, by a node that has said why. */
			is_it = low->reason == KCR_REASON_LOCAL && low->error == ECONNREFUSED;
			ASSERT_FALSE(mesh_is_up(low) && !was_hit()) {
				TH_LOG("none of %d steps is the other end's", k - 1);
			}
			munmap(low, sizeof(*low));
		}
		if (is_it) {
			EXPECT_TRUE(DEV_SOON(20, mesh_state(high) == KCR_CONN_FAILED));
			EXPECT_EQ(KCR_REASON_LOCAL, high->reason);
			EXPECT_EQ(ETIMEDOUT, high->error);
		}
		munmap(high, sizeof(*high));
		mesh_ranks_close(r);
	}
	EXPECT_TRUE(is_it);
}

/*
 * One frame for two peers: both get it, or the call has done nothing, or the world has
 * failed. Not that one gets it and it can be sent to the other no more.
 */
TEST_F_TIMEOUT(mesh_points, two_peers, 120)
{
	struct mesh_ranks *r = &self->scene.r;
	struct kcr_status *status;
	struct kcr_send args;
	int k, err, broken = 0;

	for (k = 1; k < MOST; k++) {
		ASSERT_EQ(0, mesh_ranks_open(r, 3));
		status = dev_status(r->fd[0]);
		ASSERT_NE(MAP_FAILED, status);
		for (int i = 1; i < 3; i++) {
			ASSERT_EQ(0, mesh_frames(r->fd[i], 0, 0, 0, 0));
			ASSERT_TRUE(DEV_SOON(10, mesh_limit(r->status[0][i], 0, 0)));
		}
		args = mesh_send_args(1, 0, 0, 0, 99, 1);
		args.mask = 3;
		ASSERT_EQ(0, dev_write_number(FAIL_POINT, k));
		err = dev_ioctl(r->fd[0], KCR_IOCTL_SEND, &args);
		if (err) {
			/* Or it was a heartbeat's request that failed, before. */
			EXPECT_TRUE(err == -ENOMEM || err == -ENOTCONN);
			err = dev_ioctl(r->fd[0], KCR_IOCTL_SEND, &args);
		}
		if (err) {
			broken++;
			EXPECT_TRUE(err == -ENOTCONN || err == -EALREADY);
			EXPECT_TRUE(DEV_SOON(10, dev_cause(status)));
		}
		for (int i = 1; i < 3 && !err; i++)
			EXPECT_TRUE(DEV_SOON(10, mesh_arrived(r->status[i][0], 0, 0) == 1 ||
					     dev_cause(status)));
		munmap(status, sizeof(*status));
		mesh_ranks_close(r);
		if (!was_hit())
			break;
	}
	EXPECT_EQ(0, err);
	EXPECT_LT(1, broken);
}

TEST_HARNESS_MAIN
