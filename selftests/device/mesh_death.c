// SPDX-License-Identifier: GPL-2.0
/*
 * The mesh: how connections end: by leaving, by death, by a failure on the way
 *
 * Both ranks are on this node and so in the same world, which has causes of its
 * own; what is looked at here is that nothing is lost, nothing hangs and
 * nothing is left. That causes travel between nodes is for a test with two.
 */
#include <sched.h>
#include "kselftest_harness.h"
#include "mesh.h"

#define SILENT		MESH_PARAMETERS "silent_ms"
#define FAIL_COMPLETION	MESH_COUNTERS "fail_completion"
#define CLASS		3
#define BYTES		(KCR_CLASS_BYTES(CLASS) - 3)
/* ib_wc_status */
#define GENERAL_ERROR	21

FIXTURE(mesh_death) {
	struct dev_counters before;
	struct mesh_ranks r;
	long silent_ms;
};

FIXTURE_SETUP(mesh_death)
{
	const char *missing = mesh_missing();

	self->r.n = 0;
	self->before = dev_counters();
	if (missing)
		SKIP(return, "%s", missing);
	self->silent_ms = dev_read_number(SILENT);
	ASSERT_LT(0, self->silent_ms);
}

FIXTURE_TEARDOWN(mesh_death)
{
	dev_write_number(SILENT, self->silent_ms);
	dev_write_number(FAIL_COMPLETION, 0);
	mesh_ranks_close(&self->r);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
}

/* One end, with all that it needs to send and receive in stream 0. */
struct end {
	int fd;
	int rank;
	unsigned char *board;
	struct kcr_conn_status *conn;
	struct kcr_status *world;
	const unsigned char *frames;
	__u64 sent, taken;
};

/* Each frame is another. */
static void fill(unsigned char *at, int rank, __u64 sequence)
{
	mesh_fill(at, BYTES, sequence * 2 + rank);
}

/* Returns 0, or a line number. */
static int end_open(struct end *e, const struct dev_world *w, int rank)
{
	memset(e, 0, sizeof(*e));
	e->rank = rank;
	e->fd = dev_member(w, rank);
	if (e->fd < 0)
		return __LINE__;
	e->world = dev_status(e->fd);
	if (dev_window(e->fd, 0, NULL, 0, MESH_BOARD) || e->world == MAP_FAILED)
		return __LINE__;
	e->board = dev_map(e->fd, PROT_READ | PROT_WRITE, 0, KCR_MAP_BOARD, rank, MESH_BOARD);
	if (e->board == MAP_FAILED || mesh_connect(e->fd, !rank, 0))
		return __LINE__;
	e->conn = mesh_status(e->fd, !rank, 0);
	return e->conn == MAP_FAILED ? __LINE__ : 0;
}

static int end_ready(struct end *e)
{
	DEV_SOON(10, mesh_state(e->conn) >= KCR_CONN_UP);
	if (!mesh_is_up(e->conn) || mesh_frames(e->fd, !e->rank, 0, 0, CLASS))
		return __LINE__;
	e->frames = mesh_map_frames(e->fd, !e->rank, 0, 0, CLASS);
	return e->frames == MAP_FAILED ? __LINE__ : 0;
}

/* The other end is ready as well. */
static int end_wait(struct end *e)
{
	return DEV_SOON(10, mesh_limit(e->conn, 0, CLASS)) ? 0 : __LINE__;
}

static void end_close(struct end *e)
{
	munmap(e->board, MESH_BOARD);
	munmap(e->conn, sizeof(*e->conn));
	munmap(e->world, sizeof(*e->world));
	if (e->frames)
		munmap((void *)e->frames, mesh_ring_bytes(CLASS));
	if (e->fd >= 0)
		close(e->fd);
}

/* Its next frame, from a place that is free by then; what SEND gives. */
static int end_send(struct end *e)
{
	unsigned char *at = e->board + e->sent % 8 * (MESH_BOARD / 8);
	int err;

	if (mesh_limit(e->conn, 0, CLASS) <= e->sent)
		return -ENOBUFS;
	fill(at, e->rank, e->sent + 1);
	err = mesh_send(e->fd, !e->rank, 0, 0, at - e->board, BYTES, e->sent + 1);
	if (!err)
		e->sent++;
	return err;
}

/* Nothing can be sent any more, whatever credits there are. */
static bool end_is_cut(struct end *e)
{
	return mesh_send(e->fd, !e->rank, 0, 0, 0, 8, e->sent + 1) == -ENOTCONN;
}

/* Take what has arrived; false if it is not what was sent. */
static bool end_take(struct end *e)
{
	static unsigned char right[BYTES];
	const unsigned char *frame;

	while (e->taken < mesh_arrived(e->conn, 0, CLASS)) {
		frame = e->frames + e->taken % (MESH_DEPTH + 1) * KCR_CLASS_BYTES(CLASS);
		fill(right, !e->rank, e->taken + 1);
		if (memcmp(frame, right, BYTES))
			return false;
		if (mesh_release(e->fd, !e->rank, 0, 0, CLASS, ++e->taken))
			return false;
	}
	return true;
}

/* Send and take for a while; false if something is wrong. */
static bool end_traffic(struct end *e, double seconds)
{
	double until = dev_now() + seconds;
	int err;

	do {
		err = end_send(e);
		if (err && err != -ENOBUFS)
			return err == -ENOTCONN;
		if (!end_take(e))
			return false;
		if (err)
			dev_sleep(0.0005);
	} while (dev_now() < until);
	return true;
}

/* ---- a child as the other end ---- */

struct other {
	struct dev_world world;
	int rank;
	int *stage;
	void (*act)(struct other *o);
	struct end e;
	pid_t pid;
};

static void other_main(void *arg)
{
	struct other *o = arg;

	CHILD_GIVES(0, end_open(&o->e, &o->world, o->rank));
	dev_reach(o->stage, 1);
	CHILD_GIVES(0, end_ready(&o->e));
	CHILD_GIVES(0, end_wait(&o->e));
	dev_reach(o->stage, 2);
	o->act(o);
}

/* Both are ready when this returns 0. */
static int other_start(struct other *o, struct end *mine, int rank, void (*act)(struct other *o))
{
	int err;

	memset(o, 0, sizeof(*o));
	o->world = dev_world(2);
	o->rank = rank;
	o->act = act;
	o->stage = dev_shared(4096);
	if (!rank) {
		err = end_open(mine, &o->world, 1);
		if (err)
			return err;
	}
	o->pid = dev_child(other_main, o);
	if (rank) {
		if (!dev_reached(o->stage, 1))
			return __LINE__;
		err = end_open(mine, &o->world, 0);
		if (err)
			return err;
	}
	err = end_ready(mine) ?: end_wait(mine);
	if (err)
		return err;
	return dev_reached(o->stage, 2) ? 0 : __LINE__;
}

static void act_traffic(struct other *o)
{
	CHILD_TRUE(end_traffic(&o->e, 60));
	pause();
}

/* Killed in the middle of it, whoever of the two made the connection. */
TEST_F(mesh_death, killed)
{
	struct other o;
	struct end e;
	double since;
	int round;

	for (round = 0; round < 6; round++) {
		ASSERT_EQ(0, other_start(&o, &e, round & 1, act_traffic));
		EXPECT_TRUE(end_traffic(&e, (0.1 + 0.05 * round) * pace()));
		EXPECT_LT(3, e.taken);
		since = dev_now();
		kill(o.pid, SIGKILL);
		EXPECT_TRUE(end_traffic(&e, 0.1));
		EXPECT_TRUE(DEV_SOON(2, dev_cause(e.world)));
		EXPECT_EQ(KCR_CAUSE(o.rank, ECONNRESET), dev_cause(e.world));
		/* All that has come is whole, and no more goes out. */
		EXPECT_TRUE(DEV_SOON(3, end_is_cut(&e)));
		EXPECT_GT(4 * pace(), dev_now() - since);
		EXPECT_TRUE(end_take(&e));
		EXPECT_TRUE(dev_child_kill(o.pid));
		end_close(&e);
		munmap(o.stage, 4096);
	}
}

static void act_close(struct other *o)
{
	CHILD_TRUE(end_traffic(&o->e, 0.2));
	close(o->e.fd);
	dev_reach(o->stage, 3);
	/* Its mappings are there yet, and so is the file. */
	dev_sleep(1);
}

TEST_F(mesh_death, closes_without_leaving)
{
	struct other o;
	struct end e;
	int rank;

	for (rank = 0; rank < 2; rank++) {
		ASSERT_EQ(0, other_start(&o, &e, rank, act_close));
		EXPECT_TRUE(end_traffic(&e, 0.3));
		EXPECT_TRUE(dev_reached(o.stage, 3));
		EXPECT_TRUE(DEV_SOON(2, dev_cause(e.world)));
		EXPECT_EQ(KCR_CAUSE(o.rank, ECONNRESET), dev_cause(e.world));
		EXPECT_TRUE(DEV_SOON(2, end_is_cut(&e)));
		EXPECT_TRUE(end_take(&e));
		EXPECT_EQ(0, dev_child_status(o.pid, 10));
		end_close(&e);
		munmap(o.stage, 4096);
	}
}

static void act_fail(struct other *o)
{
	CHILD_TRUE(end_traffic(&o->e, 0.2));
	CHILD_GIVES(0, dev_fail(o->e.fd, EOVERFLOW));
	dev_reach(o->stage, 3);
	pause();
}

/* The first cause stays, whatever becomes of the connection behind it. */
TEST_F(mesh_death, fails_then_dies)
{
	struct other o;
	struct end e;
	int rank;

	for (rank = 0; rank < 2; rank++) {
		ASSERT_EQ(0, other_start(&o, &e, rank, act_fail));
		EXPECT_TRUE(end_traffic(&e, 0.2));
		EXPECT_TRUE(dev_reached(o.stage, 3));
		EXPECT_TRUE(DEV_SOON(2, dev_cause(e.world)));
		EXPECT_EQ(KCR_CAUSE(o.rank, EOVERFLOW), dev_cause(e.world));
		dev_sleep(0.3);
		EXPECT_TRUE(dev_child_kill(o.pid));
		EXPECT_TRUE(DEV_SOON(3, end_is_cut(&e)));
		EXPECT_EQ(KCR_CAUSE(o.rank, EOVERFLOW), dev_cause(e.world));
		end_close(&e);
		munmap(o.stage, 4096);
	}
}

static void act_leave(struct other *o)
{
	while (o->e.sent < MESH_DEPTH + 1)
		CHILD_GIVES(0, end_send(&o->e));
	CHILD_GIVES(0, dev_leave(o->e.fd));
}

/* Who leaves has said all: it arrives, also where the process ends at once. */
TEST_F(mesh_death, leaves)
{
	struct other o;
	struct end e;
	int round;

	for (round = 0; round < 6; round++) {
		ASSERT_EQ(0, other_start(&o, &e, round & 1, act_leave));
		if (round & 2)
			EXPECT_EQ(0, dev_child_status(o.pid, 10));
		EXPECT_TRUE(DEV_SOON(10, mesh_state(e.conn) == KCR_CONN_LEFT)) {
			MESH_LOG(e.conn);
		}
		EXPECT_EQ(MESH_DEPTH + 1, mesh_arrived(e.conn, 0, CLASS));
		EXPECT_TRUE(end_take(&e));
		EXPECT_EQ(MESH_DEPTH + 1, e.taken);
		EXPECT_TRUE(end_is_cut(&e));
		EXPECT_EQ(-ENOTCONN, mesh_frames(e.fd, o.rank, 0, 1, 0));
		EXPECT_EQ(KCR_MEMBER_LEFT, dev_state(e.world, o.rank));
		if (!(round & 2))
			EXPECT_EQ(0, dev_child_status(o.pid, 10));
		dev_sleep(0.5);
		EXPECT_EQ(0, dev_cause(e.world));
		EXPECT_EQ(KCR_CONN_LEFT, mesh_state(e.conn));
		EXPECT_EQ(KCR_REASON_NONE, e.conn->reason);
		end_close(&e);
		munmap(o.stage, 4096);
	}
}

/* Both at once, with frames on the way: in peace, and soon. */
TEST_F(mesh_death, both_leave)
{
	struct dev_world w;
	struct end e[2];
	double begin;
	int rounds = 10 * dev_scale(), round, i;

	for (round = 0; round < rounds; round++) {
		w = dev_world(2);
		for (i = 1; i >= 0; i--)
			ASSERT_EQ(0, end_open(&e[i], &w, i));
		for (i = 0; i < 2; i++)
			ASSERT_EQ(0, end_ready(&e[i]));
		for (i = 0; i < 2; i++)
			ASSERT_EQ(0, end_wait(&e[i]));
		for (i = 0; i < 2 * (MESH_DEPTH + 1); i++)
			ASSERT_EQ(0, end_send(&e[i & 1]));
		begin = dev_now();
		for (i = 0; i < 2; i++)
			ASSERT_EQ(0, dev_leave(e[round & 1 ? !i : i].fd));
		for (i = 0; i < 2; i++) {
			EXPECT_EQ(0, dev_cause(e[i].world));
			EXPECT_NE(KCR_CONN_FAILED, mesh_state(e[i].conn)) {
				MESH_LOG(e[i].conn);
			}
			end_close(&e[i]);
		}
		/* Who leaves has three seconds if nobody answers; here they do. */
		EXPECT_GT(3, dev_now() - begin) {
			TH_LOG("round %d: %.2f s", round, dev_now() - begin);
		}
	}
}

/* ---- silence ---- */

/* A rank that is stopped lives, as long as its node does. */
TEST_F(mesh_death, stopped)
{
	struct other o;
	double begin;
	struct end e;
	__u64 taken;
	int rank;

	EXPECT_EQ(0, dev_write_number(SILENT, 2000));
	for (rank = 0; rank < 2; rank++) {
		ASSERT_EQ(0, other_start(&o, &e, rank, act_traffic));
		EXPECT_TRUE(end_traffic(&e, 0.2));
		kill(o.pid, SIGSTOP);
		EXPECT_TRUE(end_traffic(&e, 3.5));
		EXPECT_EQ(KCR_CONN_UP, mesh_state(e.conn));
		EXPECT_EQ(0, dev_cause(e.world));
		EXPECT_EQ(-ENOBUFS, end_send(&e));
		taken = e.taken;
		kill(o.pid, SIGCONT);
		begin = dev_now();
		do {
			EXPECT_TRUE(end_traffic(&e, 0.3));
		} while (e.taken <= taken + 3 && dev_now() - begin < 10 * pace());
		EXPECT_LT(taken + 3, e.taken);
		EXPECT_EQ(KCR_CONN_UP, mesh_state(e.conn));
		EXPECT_TRUE(dev_child_kill(o.pid));
		end_close(&e);
		munmap(o.stage, 4096);
	}
}

/* What the scheduler leaves to others when a task of real time takes all of a CPU. */
#define RT_RUNTIME	"/proc/sys/kernel/sched_rt_runtime_us"
#define FAIR_RUNTIME	"/sys/kernel/debug/sched/fair_server/cpu%d/runtime"
#define MOST_CPUS	16

struct hogs {
	int *ready;		/* shared */
	int n;
	int cpu;		/* of the one that is being started */
	double seconds;
	long rt_runtime;
	long fair_runtime[MOST_CPUS];
};

static void hog_main(void *arg)
{
	struct hogs *h = arg;
	struct sched_param param = { .sched_priority = 1 };
	cpu_set_t set;
	double until;

	CPU_ZERO(&set);
	CPU_SET(h->cpu, &set);
	CHILD_GIVES(0, sched_setaffinity(0, sizeof(set), &set));
	CHILD_GIVES(0, sched_setscheduler(0, SCHED_FIFO, &param));
	__atomic_add_fetch(h->ready, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(h->ready, __ATOMIC_SEQ_CST) < h->n)
		;
	until = dev_now() + h->seconds;
	while (dev_now() < until)
		;
}

/*
 * Before 6.12 the first number is all. While that limits it the scheduler may refuse to
 * change the others.
 */
static void leave_nothing(struct hogs *h)
{
	char path[80];

	h->rt_runtime = dev_read_number(RT_RUNTIME);
	dev_write_number(RT_RUNTIME, -1);
	for (int i = 0; i < h->n; i++) {
		snprintf(path, sizeof(path), FAIR_RUNTIME, i);
		h->fair_runtime[i] = dev_read_number(path);
		dev_write_number(path, 0);
	}
}

static void leave_as_before(const struct hogs *h)
{
	char path[80];

	for (int i = 0; i < h->n; i++) {
		snprintf(path, sizeof(path), FAIR_RUNTIME, i);
		dev_write_number(path, h->fair_runtime[i]);
	}
	dev_write_number(RT_RUNTIME, h->rt_runtime);
}

/*
 * No CPU of this node does anything but interrupts for so long; how long the caller did not
 * run meanwhile, or -1.
 */
static double starve(double seconds)
{
	struct hogs h = { .seconds = seconds, .n = sysconf(_SC_NPROCESSORS_ONLN) };
	double seen = dev_now(), now, longest = 0;
	pid_t pids[MOST_CPUS];
	int running = h.n;

	if (h.n > MOST_CPUS)
		return -1;
	h.ready = dev_shared(4096);
	leave_nothing(&h);
	for (h.cpu = 0; h.cpu < h.n; h.cpu++)
		pids[h.cpu] = dev_child(hog_main, &h);
	while (running) {
		running = 0;
		for (int i = 0; i < h.n; i++) {
			if (pids[i] > 0 && !waitpid(pids[i], NULL, WNOHANG))
				running++;
			else
				pids[i] = 0;
		}
		now = dev_now();
		if (now - seen > longest)
			longest = now - seen;
		seen = now;
		dev_sleep(0.01);
	}
	leave_as_before(&h);
	munmap(h.ready, 4096);
	return longest;
}

/*
 * A node that has not had a CPU for longer than others may be silent has heard nobody, and
 * is itself to blame.
 */
TEST_F_TIMEOUT(mesh_death, starved, 60)
{
	struct kcr_status *status;
	double starved;

	ASSERT_EQ(0, mesh_ranks_open(&self->r, 2));
	status = dev_status(self->r.fd[0]);
	ASSERT_NE(MAP_FAILED, status);
	dev_sleep(1);
	EXPECT_TRUE(mesh_ranks_are_up(&self->r));
	for (int i = 0; i < 3; i++) {
		EXPECT_EQ(0, dev_write_number(SILENT, 2000));
		starved = starve(3.5);
		if (starved < 3) {
			munmap(status, sizeof(*status));
			SKIP(return, "others run here, %.1f s at the latest", starved);
		}
		dev_sleep(1);
		EXPECT_EQ(0, dev_write_number(SILENT, self->silent_ms));
		ASSERT_EQ(0, dev_cause(status)) {
			MESH_LOG(self->r.status[0][1]);
			MESH_LOG(self->r.status[1][0]);
		}
		EXPECT_TRUE(mesh_ranks_are_up(&self->r));
	}
	munmap(status, sizeof(*status));
}

/* With no patience at all, every node is dead: the world fails, and says so. */
TEST_F(mesh_death, silent)
{
	struct kcr_status *status;
	__u64 cause;
	int i, silent = 0;

	ASSERT_EQ(0, mesh_ranks_open(&self->r, 2));
	status = dev_status(self->r.fd[0]);
	ASSERT_NE(MAP_FAILED, status);
	dev_sleep(1);
	EXPECT_TRUE(mesh_ranks_are_up(&self->r));
	EXPECT_EQ(0, dev_write_number(SILENT, 0));
	EXPECT_TRUE(DEV_SOON(3, dev_cause(status)));
	EXPECT_EQ(0, dev_write_number(SILENT, self->silent_ms));
	cause = dev_cause(status);
	EXPECT_TRUE(KCR_CAUSE_ERROR(cause) == EHOSTDOWN ||
		    KCR_CAUSE_ERROR(cause) == EHOSTUNREACH);
	for (i = 0; i < 2; i++) {
		struct kcr_conn_status *s = self->r.status[i][!i];

		EXPECT_TRUE(DEV_SOON(5, mesh_state(s) == KCR_CONN_FAILED));
		if (s->reason == KCR_REASON_SILENT) {
			silent++;
			EXPECT_EQ(EHOSTDOWN, s->error);
			EXPECT_GT(2000, s->detail);
		} else {
			EXPECT_EQ(KCR_REASON_GONE, s->reason);
			EXPECT_EQ(EHOSTUNREACH, s->error);
		}
	}
	EXPECT_LT(0, silent);
	munmap(status, sizeof(*status));
}

/* ---- a failure while others connect ---- */

TEST_F(mesh_death, fails_while_connecting)
{
	struct mesh_ranks *r = &self->r;
	struct kcr_conn_status *s;
	struct kcr_status *status;
	int round;

	for (round = 0; round < 10; round++) {
		ASSERT_EQ(0, mesh_ranks_join(r, 4));
		status = dev_status(r->fd[3]);
		ASSERT_NE(MAP_FAILED, status);
		ASSERT_EQ(0, mesh_ranks_connect(r, 0, 1));
		ASSERT_TRUE(DEV_SOON(10, mesh_ranks_are_up(r)));
		ASSERT_EQ(0, mesh_connect(r->fd[2], 1, 0));
		ASSERT_EQ(0, mesh_connect(r->fd[3], 0, 0));
		ASSERT_EQ(0, mesh_connect(r->fd[1], 2, 0));
		if (round & 1) {
			ASSERT_EQ(0, dev_fail(r->fd[0], EPROTO));
		} else {
			close(r->fd[0]);
			r->fd[0] = -1;
		}
		/* Those whose peer is there may come up, in a world that has failed. */
		s = mesh_status(r->fd[2], 1, 0);
		ASSERT_NE(MAP_FAILED, s);
		EXPECT_TRUE(DEV_SOON(10, mesh_is_up(s))) {
			MESH_LOG(s);
		}
		munmap(s, sizeof(*s));
		EXPECT_EQ(KCR_CAUSE(0, round & 1 ? EPROTO : ECONNRESET), dev_cause(status));
		munmap(status, sizeof(*status));
		mesh_ranks_close(r);
	}
}

/* ---- F3: completions that fail ---- */

/* One more than there are places: the last one needs a credit back. */
#define EXCHANGE	(MESH_DEPTH + 2)
/* More completions than connecting and that can have. */
#define COMPLETIONS	150
/* So many in a row that no more come by themselves, but for heartbeats. */
#define IN_VAIN		3

/* Both send EXCHANGE frames and take as many; false if it cannot be done. */
static bool exchange(struct end e[2])
{
	double until = dev_now() + 10 * pace();
	int i;

	while (dev_now() < until) {
		bool done = true;

		for (i = 0; i < 2; i++) {
			int err = e[i].sent < EXCHANGE ? end_send(&e[i]) : 0;

			if ((err && err != -ENOBUFS) || dev_cause(e[i].world))
				return false;
			if (!end_take(&e[i]))
				return false;
			done &= e[i].sent == EXCHANGE && e[i].taken == EXCHANGE;
		}
		if (done)
			return true;
	}
	return false;
}

static bool are_up(const struct end e[2])
{
	return mesh_is_up(e[0].conn) && mesh_is_up(e[1].conn);
}

static bool is_over(const struct end *e)
{
	__u32 state = mesh_state(e->conn);

	/* Whoever waits to be connected to goes on, and shows what was wrong. */
	return state == KCR_CONN_FAILED || (state == KCR_CONN_EXPECTED && e->conn->reason);
}

/* Whose end has gone had lost the way, unless it went before this end was up. */
static bool is_explained(const struct kcr_conn_status *s, bool was_up)
{
	if (s->reason != KCR_REASON_GONE)
		return s->error == EIO;
	return s->error == EHOSTUNREACH || (!was_up && s->error == ECONNRESET);
}

#define LOG_END(k, i, s) do {						\
	TH_LOG("completion %d, rank %d", k, i);				\
	MESH_LOG(s);							\
} while (0)

/* Both ends know: one that completion @k has failed, the other that it is gone. */
static void expect_over(struct __test_metadata *_metadata, struct end e[2], int k, bool is_made)
{
	int i, found = 0;

	for (i = 0; i < 2; i++) {
		struct kcr_conn_status *s = e[i].conn;

		EXPECT_TRUE(DEV_SOON(10, is_over(&e[i]))) {
			LOG_END(k, i, s);
		}
		if (s->reason == KCR_REASON_COMPLETION) {
			EXPECT_EQ(GENERAL_ERROR, s->detail);
			found++;
		} else {
			EXPECT_EQ(KCR_REASON_GONE, s->reason) {
				LOG_END(k, i, s);
			}
		}
		if (mesh_state(s) == KCR_CONN_FAILED)
			EXPECT_TRUE(is_explained(s, is_made)) {
				LOG_END(k, i, s);
			}
		EXPECT_EQ(-ENOTCONN, mesh_send(e[i].fd, !i, 0, 0, 0, 8, 99));
	}
	EXPECT_EQ(1, found);
	/* Where it was up at one end, that end's world has failed. */
	if (is_made)
		EXPECT_TRUE(DEV_SOON(5, dev_cause(e[0].world)));
}

/* Connect and exchange, with completion @k failing; returns whether there was one. */
static bool fail_one(struct __test_metadata *_metadata, int k, int *made)
{
	struct dev_world w = dev_world(2);
	struct end e[2];
	bool is_made, is_done, is_hit;
	long left;
	int i;

	ASSERT_EQ(0, dev_write_number(FAIL_COMPLETION, k));
	for (i = 1; i >= 0; i--)
		ASSERT_EQ(0, end_open(&e[i], &w, i));
	EXPECT_TRUE(DEV_SOON(10, are_up(e) || is_over(&e[0])));
	is_made = are_up(e) && !end_ready(&e[0]) && !end_ready(&e[1]);
	*made += is_made;
	is_done = is_made && exchange(e);
	/* The sender's last may complete after the frame has arrived. */
	if (is_done)
		dev_sleep(0.02);
	left = dev_read_number(FAIL_COMPLETION);
	/* Heartbeats complete, too, and come late. */
	dev_write_number(FAIL_COMPLETION, 0);
	is_hit = k && (!left || dev_cause(e[0].world) || !are_up(e));
	if (is_hit) {
		expect_over(_metadata, e, k, is_made);
	} else {
		EXPECT_TRUE(is_done) {
			TH_LOG("completion %d: failed, but by what?", k);
		}
		EXPECT_EQ(0, dev_cause(e[0].world));
		EXPECT_TRUE(are_up(e));
	}
	for (i = 0; i < 2; i++)
		end_close(&e[i]);
	return is_hit;
}

/*
 * Every completion of connecting and of a small exchange, one at a time, until so
 * many there are not. Whatever it is, both ends know.
 */
TEST_F_TIMEOUT(mesh_death, completions, 180)
{
	int k, hit = 0, in_vain = 0, made = 0;
	double begin = dev_now();

	/* What is done works. */
	ASSERT_FALSE(fail_one(_metadata, 0, &made));
	ASSERT_EQ(1, made);
	for (k = 1; in_vain < IN_VAIN; k++) {
		ASSERT_GE(COMPLETIONS, k) {
			TH_LOG("there is no end of them");
		}
		if (fail_one(_metadata, k, &made)) {
			hit++;
			in_vain = 0;
		} else {
			in_vain++;
		}
	}
	TH_LOG("%d failed, %d of them before they were up, in %.1f s", hit, k - made,
	       dev_now() - begin);
	/* Both ends of four messages and of each frame; and two registrations. */
	EXPECT_LE(2 * (4 + 2 * EXCHANGE) + 2, hit);
}

TEST_HARNESS_MAIN
