// SPDX-License-Identifier: GPL-2.0
/*
 * Every call without memory: each allocation, and each copy from or to user memory,
 * that it makes in its task fails in turn
 *
 * A call that fails says so by an error of its own, has changed nothing, and works when it
 * is made again. What runs in other tasks is in mesh_points.
 */
#include "kselftest_harness.h"
#include "faults.h"
#include "mesh.h"

/* Kernels differ in how many steps there are; more than this is a loop. */
#define MOST		2000
#define BOARD		((2u << 20) + (12u << 10))
#define LANES		2

/* What a call is made with, and on. */
struct scene {
	struct faults faults;
	struct dev_world world;
	int fd[2];
	struct io_uring ring;
	bool has_ring;
	void *at;			/* a mapping, of so many bytes */
	size_t bytes;
	struct kcr_conn_status *conn[2];
	const struct sweep *sweep;
	enum dev_form form;
	struct dev_counters before;	/* anything was there */
};

/*
 * One operation: what is there before it; the call, which something fails in; and what must
 * be so after it. Each returns 0 or a negative errno; @check -ECANCELED for a connection
 * that says it lacked memory.
 */
struct sweep {
	int (*prepare)(struct scene *s);
	int (*call)(struct scene *s);
	int (*check)(struct scene *s);
	int least;		/* steps that can fail, at least */
	__u32 command;		/* KCR_CMD_* */
	__u32 class;
	__u64 offset;		/* of mmap */
	int prot;
	const struct kcr_lane_desc *lane;	/* of the remote window */
	bool needs_mesh;
};

FIXTURE(fail_nth) {
	struct scene scene;
};

FIXTURE_VARIANT(fail_nth) {
	struct sweep of;
};

static void scene_close(struct scene *s)
{
	if (s->at)
		munmap(s->at, s->bytes);
	s->at = NULL;
	for (int i = 0; i < 2; i++) {
		if (s->conn[i])
			munmap(s->conn[i], sizeof(*s->conn[i]));
		s->conn[i] = NULL;
		if (s->fd[i] >= 0)
			close(s->fd[i]);
		s->fd[i] = -1;
	}
	if (s->has_ring)
		io_uring_queue_exit(&s->ring);
	s->has_ring = false;
}

FIXTURE_SETUP(fail_nth)
{
	const char *missing = dev_missing();

	memset(&self->scene, 0, sizeof(self->scene));
	self->scene.fd[0] = -1;
	self->scene.fd[1] = -1;
	self->scene.before = dev_counters();
	if (!missing && variant->of.needs_mesh)
		missing = mesh_missing();
	if (!missing)
		missing = faults_missing();
	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_EQ(0, faults_open(&self->scene.faults));
}

FIXTURE_TEARDOWN(fail_nth)
{
	scene_close(&self->scene);
	DEV_EXPECT_NOTHING_LEFT(&self->scene.before);
	MESH_EXPECT_NOTHING_LEFT();
}

/* io_uring's own for a request that it has no memory for is -EAGAIN. */
static bool is_errno_for_it(const struct scene *s, int err)
{
	return err == -ENOMEM || err == -EFAULT ||
	       (err == -EAGAIN && s->form != DEV_IOCTL);
}

/* Once. Returns whether something was made to fail. */
static bool attempt(struct __test_metadata *_metadata, struct scene *s, int nth)
{
	const struct sweep *sweep = s->sweep;
	struct mesh_counters of_mesh;
	struct dev_counters of_module;
	bool was_hit;
	int err;

	s->world = dev_world(2);
	ASSERT_EQ(0, sweep->prepare ? sweep->prepare(s) : 0);
	of_module = dev_counters();
	of_mesh = mesh_counters();
	s->faults.nth = nth;
	err = sweep->call(s);
	was_hit = s->faults.was_hit;
	s->faults.nth = 0;
	s->faults.was_hit = false;
	if (err) {
		EXPECT_TRUE(was_hit && is_errno_for_it(s, err)) {
			TH_LOG("step %d: %s", nth, strerror(-err));
		}
		EXPECT_TRUE(DEV_SOON(1, dev_counters_equal(&of_module))) {
			TH_LOG("step %d: %s", nth, dev_left_behind(&of_module));
		}
		EXPECT_TRUE(DEV_SOON(1, mesh_counters_equal(&of_mesh))) {
			TH_LOG("step %d: %s", nth, mesh_left());
		}
		err = sweep->call(s);
		EXPECT_EQ(0, err) {
			TH_LOG("step %d, once more", nth);
		}
	}
	if (!err && sweep->check) {
		err = sweep->check(s);
		EXPECT_TRUE(!err || (err == -ECANCELED && was_hit)) {
			TH_LOG("step %d: %d instead of what it should have done", nth, err);
			for (int i = 0; i < 2; i++)
				if (s->conn[i])
					MESH_LOG(s->conn[i]);
		}
	}
	scene_close(s);
	DEV_EXPECT_NOTHING_LEFT(&s->before);
	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, !mesh_left())) {
		TH_LOG("step %d leaves %s", nth, mesh_left());
	}
	return was_hit;
}

static void sweep(struct __test_metadata *_metadata, struct scene *s, enum dev_form form)
{
	int nth;

	s->form = form;
	/* Without any, so that what is kept for good is there. */
	attempt(_metadata, s, 0);
	for (nth = 1; nth < MOST && attempt(_metadata, s, nth); nth++)
		;
	TH_LOG("%d steps%s", nth - 1, form == DEV_URING ? " by io_uring" : "");
	EXPECT_GT(MOST, nth);
	if (form == DEV_IOCTL)
		EXPECT_LE(s->sweep->least, nth - 1);
}

/* Commands in both their forms. */
TEST_F_TIMEOUT(fail_nth, each, 300)
{
	self->scene.sweep = &variant->of;
	sweep(_metadata, &self->scene, DEV_IOCTL);
	if (variant->of.command)
		sweep(_metadata, &self->scene, DEV_URING);
}

/* ---- what is there before ---- */

static int opened(struct scene *s)
{
	for (int i = 0; i < 2; i++) {
		s->fd[i] = dev_open();
		if (s->fd[i] < 0)
			return s->fd[i];
	}
	return 0;
}

static int one_joined(struct scene *s)
{
	return opened(s) ?: dev_join(s->fd[0], &s->world, 0);
}

static int joined(struct scene *s)
{
	return one_joined(s) ?: dev_join(s->fd[1], &s->world, 1);
}

static int window(struct scene *s, int rank)
{
	static const struct kcr_lane_desc lanes[LANES] = {
		{ .source = 0, .destination = 1, .depth = 4, .capacity = 5000 },
		{ .source = 1, .destination = 0, .depth = 3, .capacity = 100 },
	};

	return dev_window(s->fd[rank], 0, lanes, LANES, BOARD);
}

static int one_attached(struct scene *s)
{
	return joined(s) ?: window(s, 1);
}

static int attached(struct scene *s)
{
	return one_attached(s) ?: window(s, 0);
}

/* A ring, for commands that are to go through one. */
static int with_ring(struct scene *s, int err)
{
	if (err || s->form == DEV_IOCTL)
		return err;
	err = dev_ring(&s->ring, s->form);
	s->has_ring = !err;
	return err;
}

static int ready(struct scene *s)
{
	return with_ring(s, attached(s));
}

static int map_conn(struct scene *s, int rank)
{
	s->conn[rank] = mesh_status(s->fd[rank], !rank, 0);
	if (s->conn[rank] != MAP_FAILED)
		return 0;
	s->conn[rank] = NULL;
	return -errno;
}

static int expected(struct scene *s)
{
	return ready(s) ?: mesh_connect(s->fd[1], 0, 0) ?: map_conn(s, 1);
}

static int connected(struct scene *s)
{
	int err = expected(s) ?: mesh_connect(s->fd[0], 1, 0) ?: map_conn(s, 0);

	if (err)
		return err;
	return DEV_SOON(20, mesh_is_up(s->conn[0]) && mesh_is_up(s->conn[1])) ? 0 : -ETIMEDOUT;
}

static __u32 stream_of(const struct scene *s)
{
	return s->sweep->class % KCR_STREAMS;
}

static int open_ring(struct scene *s)
{
	return mesh_frames(s->fd[0], 1, 0, stream_of(s), s->sweep->class);
}

static int ring_is_open(struct scene *s)
{
	return DEV_SOON(20, mesh_limit(s->conn[1], stream_of(s), s->sweep->class)) ? 0 : -ETIMEDOUT;
}

static int with_frames(struct scene *s)
{
	return connected(s) ?: open_ring(s) ?: ring_is_open(s);
}

static int frame_is_there(struct scene *s)
{
	return DEV_SOON(20, mesh_arrived(s->conn[0], stream_of(s), s->sweep->class) == 1) ?
	       0 : -ETIMEDOUT;
}

static int with_arrived(struct scene *s)
{
	return with_frames(s) ?:
	       mesh_send(s->fd[1], 0, 0, stream_of(s), 0, KCR_CLASS_BYTES(s->sweep->class), 1) ?:
	       frame_is_there(s);
}

/* ---- calls without a form in io_uring ---- */

static int call_open(struct scene *s)
{
	s->fd[0] = FAULTS_IN(&s->faults, dev_open());
	return s->fd[0] < 0 ? s->fd[0] : 0;
}

FIXTURE_VARIANT_ADD(fail_nth, open) {
	.of = {
		.call = call_open,
		.least = 1,
	},
};

static int call_query(struct scene *s)
{
	struct kcr_query q = { .size = sizeof(q) };
	int err = FAULTS_IN(&s->faults, dev_ioctl(s->fd[0], KCR_IOCTL_QUERY, &q));

	/* All of it, or nothing. */
	return err ? (q.abi_version ? -ENOTRECOVERABLE : err) :
	       q.abi_version == KCR_ABI_VERSION && q.version[0] ? 0 : -ENODATA;
}

FIXTURE_VARIANT_ADD(fail_nth, query) {
	.of = {
		.prepare = opened,
		.call = call_query,
		.least = 2,
	},
};

static int call_info(struct scene *s)
{
	struct kcr_info info = { .size = sizeof(info) };
	int err = FAULTS_IN(&s->faults, dev_ioctl(s->fd[0], KCR_IOCTL_INFO, &info));

	return err ? (info.world ? -ENOTRECOVERABLE : err) :
	       info.ranks == 2 && !memcmp(info.id, s->world.id, sizeof(info.id)) ? 0 : -ENODATA;
}

FIXTURE_VARIANT_ADD(fail_nth, info) {
	.of = {
		.prepare = attached,
		.call = call_info,
		.least = 2,
	},
};

static int call_join_first(struct scene *s)
{
	return FAULTS_IN(&s->faults, dev_join(s->fd[0], &s->world, 0));
}

static int call_join_second(struct scene *s)
{
	return FAULTS_IN(&s->faults, dev_join(s->fd[1], &s->world, 1));
}

static int check_joined(struct scene *s)
{
	return dev_kick(s->fd[0], 0, 1);
}

/* The copy, the member, its user, its page, the world. */
FIXTURE_VARIANT_ADD(fail_nth, join_first) {
	.of = {
		.prepare = opened,
		.call = call_join_first,
		.check = check_joined,
		.least = 5,
	},
};

FIXTURE_VARIANT_ADD(fail_nth, join_second) {
	.of = {
		.prepare = one_joined,
		.call = call_join_second,
		.check = check_joined,
		.least = 3,
	},
};

static int call_window(struct scene *s)
{
	return FAULTS_IN(&s->faults, window(s, 0));
}

static int check_window(struct scene *s)
{
	return dev_map_error(s->fd[0], PROT_READ | PROT_WRITE, MAP_SHARED,
			     KCR_MMAP_OFFSET(0, KCR_MAP_BOARD, 0), BOARD);
}

FIXTURE_VARIANT_ADD(fail_nth, window_first) {
	.of = {
		.prepare = joined,
		.call = call_window,
		.check = check_window,
		.least = 15,
	},
};

FIXTURE_VARIANT_ADD(fail_nth, window_second) {
	.of = {
		.prepare = one_attached,
		.call = call_window,
		.check = check_window,
		.least = 15,
	},
};

static int call_detach(struct scene *s)
{
	return FAULTS_IN(&s->faults, dev_detach(s->fd[0], 0));
}

FIXTURE_VARIANT_ADD(fail_nth, detach) {
	.of = {
		.prepare = attached,
		.call = call_detach,
		.least = 1,
	},
};

static size_t bytes_of(const struct scene *s)
{
	switch (s->sweep->offset >> 48 & 0xf) {
	case KCR_MAP_SLOTS:
		return s->sweep->lane ? dev_lane_bytes(s->sweep->lane) :
		       dev_pages(4 * KCR_SLOT_STRIDE(5000));
	case KCR_MAP_BOARD:
		return BOARD;
	case KCR_MAP_CONN:
		return sizeof(struct kcr_conn_status);
	case KCR_MAP_FRAMES:
		return mesh_ring_bytes(s->sweep->class);
	default:
		return dev_page();
	}
}

static int map(struct scene *s)
{
	void *p = mmap(NULL, bytes_of(s), s->sweep->prot, MAP_SHARED, s->fd[0],
		       (off_t)s->sweep->offset);

	if (p == MAP_FAILED)
		return -errno;
	s->at = p;
	s->bytes = bytes_of(s);
	return 0;
}

static int call_map(struct scene *s)
{
	return FAULTS_IN(&s->faults, map(s));
}

/* All of it is there: a byte of each page can be read. */
static int check_map(struct scene *s)
{
	volatile unsigned char *at = s->at;

	for (size_t i = 0; i < s->bytes; i += dev_page())
		(void)at[i];
	return 0;
}

#define MAPS(part, index, with) {						\
	.of = {								\
		.prepare = attached,					\
		.call = call_map,					\
		.check = check_map,					\
		.offset = KCR_MMAP_OFFSET(0, KCR_MAP_##part, index),	\
		.prot = with,						\
		.least = 1,						\
	},								\
}

FIXTURE_VARIANT_ADD(fail_nth, map_status) MAPS(STATUS, 0, PROT_READ);
FIXTURE_VARIANT_ADD(fail_nth, map_slots) MAPS(SLOTS, 0, PROT_READ | PROT_WRITE);
FIXTURE_VARIANT_ADD(fail_nth, map_ack) MAPS(ACK, 1, PROT_READ);
FIXTURE_VARIANT_ADD(fail_nth, map_board) MAPS(BOARD, 0, PROT_READ | PROT_WRITE);
FIXTURE_VARIANT_ADD(fail_nth, map_peers_board) MAPS(BOARD, 1, PROT_READ);

/* ---- commands, by ioctl and by io_uring ---- */

/*
 * One that the ring has taken but not submitted would be submitted with the next: so a new
 * ring after an error.
 */
static int through_ring(struct scene *s, const void *args, size_t bytes)
{
	struct io_uring_cqe cqe;
	int err;

	if (!dev_entry(&s->ring, s->fd[0], s->sweep->command, args, bytes, 1))
		return -EXFULL;
	err = FAULTS_IN(&s->faults, io_uring_submit(&s->ring));
	if (err >= 0)
		err = dev_reap(&s->ring, 40, &cqe) ?: cqe.res;
	if (err) {
		io_uring_queue_exit(&s->ring);
		s->has_ring = false;
		return with_ring(s, 0) ?: err;
	}
	return 0;
}

static int command(struct scene *s, void *args, size_t bytes)
{
	if (s->form == DEV_URING)
		return through_ring(s, args, bytes);
	return FAULTS_IN(&s->faults, dev_ioctl(s->fd[0], _IO(KCR_IOCTL_TYPE, s->sweep->command),
					       args));
}

/* It waits, and nobody comes. */
static int call_wait(struct scene *s)
{
	struct kcr_wait args = { .size = sizeof(args), .timeout_ns = DEV_MS };
	struct kcr_info info;
	int err = dev_info(&s->world, 0, &info);

	args.seen = info.events;
	err = err ?: command(s, &args, sizeof(args));
	return err == -ETIMEDOUT ? 0 : err ? err : -ENODATA;
}

FIXTURE_VARIANT_ADD(fail_nth, wait) {
	.of = {
		.command = KCR_CMD_WAIT,
		.prepare = ready,
		.call = call_wait,
		.least = 2,
	},
};

static int call_kick(struct scene *s)
{
	struct kcr_kick args = { .size = sizeof(args), .mask = 3 };

	return command(s, &args, sizeof(args));
}

FIXTURE_VARIANT_ADD(fail_nth, kick) {
	.of = {
		.command = KCR_CMD_KICK,
		.prepare = ready,
		.call = call_kick,
		.least = 1,
	},
};

static int call_cancel(struct scene *s)
{
	struct kcr_cancel args = { .size = sizeof(args), .cookie = 1 };
	int err = command(s, &args, sizeof(args));

	return err == -ENOENT ? 0 : err ? err : -ENODATA;
}

FIXTURE_VARIANT_ADD(fail_nth, cancel) {
	.of = {
		.command = KCR_CMD_CANCEL,
		.prepare = ready,
		.call = call_cancel,
		.least = 1,
	},
};

static int call_fail(struct scene *s)
{
	struct kcr_fail args = { .size = sizeof(args), .error = EDOM };

	return command(s, &args, sizeof(args));
}

static int check_fail(struct scene *s)
{
	struct kcr_info info;
	int err = dev_info(&s->world, 1, &info);

	return err ? err : info.cause == KCR_CAUSE(0, EDOM) ? 0 : -ENODATA;
}

FIXTURE_VARIANT_ADD(fail_nth, fail) {
	.of = {
		.command = KCR_CMD_FAIL,
		.prepare = ready,
		.call = call_fail,
		.check = check_fail,
		.least = 1,
	},
};

static int call_leave(struct scene *s)
{
	struct kcr_leave args = { .size = sizeof(args) };

	return command(s, &args, sizeof(args));
}

static int check_leave(struct scene *s)
{
	return dev_leave(s->fd[0]) == -ESHUTDOWN ? 0 : -ENODATA;
}

/* ---- the mesh ---- */

static int call_connect(struct scene *s)
{
	struct kcr_connect args = mesh_connect_args(1, 0);

	return command(s, &args, sizeof(args));
}

/* The connection comes up, or says that it could not. */
static int check_connect(struct scene *s)
{
	int err = map_conn(s, 0);

	if (err)
		return err;
	if (!DEV_SOON(20, mesh_state(s->conn[0]) >= KCR_CONN_UP))
		return -ETIMEDOUT;
	if (mesh_is_up(s->conn[0]))
		return DEV_SOON(20, mesh_is_up(s->conn[1])) ? 0 : -ETIMEDOUT;
	return s->conn[0]->reason == KCR_REASON_LOCAL && s->conn[0]->error == ENOMEM ?
	       -ECANCELED : -ENODATA;
}

FIXTURE_VARIANT_ADD(fail_nth, connect) {
	.of = {
		.needs_mesh = true,
		.command = KCR_CMD_CONNECT,
		.prepare = expected,
		.call = call_connect,
		.check = check_connect,
		.least = 5,
	},
};

/* The first in its namespace makes the listener as well: seen from rank 1. */
static int one_ready(struct scene *s)
{
	int err = attached(s), low;

	low = s->fd[0];
	s->fd[0] = s->fd[1];
	s->fd[1] = low;
	return with_ring(s, err);
}

static int call_expect(struct scene *s)
{
	struct kcr_connect args = mesh_connect_args(0, 0);

	return command(s, &args, sizeof(args));
}

static int check_expect(struct scene *s)
{
	struct kcr_conn_status *high, *low;
	int err = 0;

	high = mesh_status(s->fd[0], 0, 0);
	if (high == MAP_FAILED)
		return -errno;
	s->conn[0] = high;
	if (mesh_state(high) == KCR_CONN_FAILED)
		return high->reason == KCR_REASON_LOCAL && high->error == ENOMEM ?
		       -ECANCELED : -ENODATA;
	err = mesh_connect(s->fd[1], 1, 0);
	if (err)
		return err;
	low = mesh_status(s->fd[1], 1, 0);
	if (low == MAP_FAILED)
		return -errno;
	s->conn[1] = low;
	return DEV_SOON(20, mesh_is_up(low) && mesh_is_up(high)) ? 0 : -ETIMEDOUT;
}

FIXTURE_VARIANT_ADD(fail_nth, expect) {
	.of = {
		.needs_mesh = true,
		.command = KCR_CMD_CONNECT,
		.prepare = one_ready,
		.call = call_expect,
		.check = check_expect,
		.least = 10,
	},
};

static int call_frames(struct scene *s)
{
	return FAULTS_IN(&s->faults, open_ring(s));
}

#define FRAMES(k) {							\
	.of = {								\
		.needs_mesh = true,					\
		.prepare = connected,					\
		.call = call_frames,					\
		.check = ring_is_open,					\
		.class = k,						\
		.least = 5,						\
	},								\
}

FIXTURE_VARIANT_ADD(fail_nth, frames_0) FRAMES(0);
FIXTURE_VARIANT_ADD(fail_nth, frames_1) FRAMES(1);
FIXTURE_VARIANT_ADD(fail_nth, frames_2) FRAMES(2);
FIXTURE_VARIANT_ADD(fail_nth, frames_3) FRAMES(3);
FIXTURE_VARIANT_ADD(fail_nth, frames_4) FRAMES(4);
FIXTURE_VARIANT_ADD(fail_nth, frames_5) FRAMES(5);
FIXTURE_VARIANT_ADD(fail_nth, frames_6) FRAMES(6);
FIXTURE_VARIANT_ADD(fail_nth, frames_7) FRAMES(7);

FIXTURE_VARIANT_ADD(fail_nth, map_conn) {
	.of = {
		.needs_mesh = true,
		.prepare = connected,
		.call = call_map,
		.check = check_map,
		.class = 0,
		.offset = KCR_MMAP_OFFSET(0, KCR_MAP_CONN, 1),
		.prot = PROT_READ,
		.least = 1,
	},
};

FIXTURE_VARIANT_ADD(fail_nth, map_frames) {
	.of = {
		.needs_mesh = true,
		.prepare = with_frames,
		.call = call_map,
		.check = check_map,
		.class = 7,
		.offset = KCR_MMAP_OFFSET(0, KCR_MAP_FRAMES,
					  KCR_FRAMES_INDEX(1, 7 % KCR_STREAMS, 7)),
		.prot = PROT_READ,
		.least = 1,
	},
};

/* ---- lanes of remote windows; rank 1 has made its own ---- */

#define REMOTE	1

static const struct kcr_lane_desc lane_out = { 0, 1, 3, 700000 };
static const struct kcr_lane_desc lane_in = { 1, 0, 3, 700000 };

static bool is_source(const struct scene *s)
{
	return !s->sweep->lane->source;
}

static int before_remote(struct scene *s)
{
	return connected(s) ?: mesh_window(s->fd[1], REMOTE, s->sweep->lane, 1);
}

static int open_remote(struct scene *s)
{
	return mesh_window(s->fd[0], REMOTE, s->sweep->lane, 1);
}

static int call_remote(struct scene *s)
{
	return FAULTS_IN(&s->faults, open_remote(s));
}

/* Both ends are ready when one of them is. */
static int check_remote(struct scene *s)
{
	return DEV_SOON(20, !(is_source(s) ? mesh_put(s->fd[0], REMOTE, 1, 1, 1) :
			      mesh_ack(s->fd[0], REMOTE, 1))) ? 0 : -ETIMEDOUT;
}

static int with_remote(struct scene *s)
{
	return before_remote(s) ?: open_remote(s) ?: check_remote(s);
}

#define REMOTES(of_lane) {						\
	.of = {								\
		.needs_mesh = true,					\
		.prepare = before_remote,				\
		.call = call_remote,					\
		.check = check_remote,					\
		.lane = &(of_lane),					\
		.least = 8,						\
	},								\
}

FIXTURE_VARIANT_ADD(fail_nth, remote_source) REMOTES(lane_out);
FIXTURE_VARIANT_ADD(fail_nth, remote_destination) REMOTES(lane_in);

#define MAPS_REMOTE(part, of_lane, with) {				\
	.of = {								\
		.needs_mesh = true,					\
		.prepare = with_remote,					\
		.call = call_map,					\
		.check = check_map,					\
		.lane = &(of_lane),					\
		.offset = KCR_MMAP_OFFSET(REMOTE, KCR_MAP_##part, 0),	\
		.prot = with,						\
		.least = 1,						\
	},								\
}

#define WRITABLE	(PROT_READ | PROT_WRITE)

FIXTURE_VARIANT_ADD(fail_nth, map_sources_slots) MAPS_REMOTE(SLOTS, lane_out, WRITABLE);
FIXTURE_VARIANT_ADD(fail_nth, map_destinations_slots) MAPS_REMOTE(SLOTS, lane_in, PROT_READ);
FIXTURE_VARIANT_ADD(fail_nth, map_sources_ack) MAPS_REMOTE(ACK, lane_out, PROT_READ);
FIXTURE_VARIANT_ADD(fail_nth, map_destinations_ack) MAPS_REMOTE(ACK, lane_in, WRITABLE);
FIXTURE_VARIANT_ADD(fail_nth, map_lanes) MAPS_REMOTE(LANES, lane_out, PROT_READ);

static int call_detach_remote(struct scene *s)
{
	return FAULTS_IN(&s->faults, dev_detach(s->fd[0], REMOTE));
}

/* The number is free as soon as rank 1's module has agreed. */
static int check_detach_remote(struct scene *s)
{
	return DEV_SOON(20, !open_remote(s)) ? 0 : -ETIMEDOUT;
}

#define DETACHES_REMOTE(of_lane) {					\
	.of = {								\
		.needs_mesh = true,					\
		.prepare = with_remote,					\
		.call = call_detach_remote,				\
		.check = check_detach_remote,				\
		.lane = &(of_lane),					\
		.least = 1,						\
	},								\
}

FIXTURE_VARIANT_ADD(fail_nth, detach_source) DETACHES_REMOTE(lane_out);
FIXTURE_VARIANT_ADD(fail_nth, detach_destination) DETACHES_REMOTE(lane_in);

/* The second slot: the first showed that the lane is ready. */
static int call_put(struct scene *s)
{
	struct kcr_put args = {
		.size = sizeof(args), .window = REMOTE, .peer = 1, .sequence = 2, .count = 1,
	};

	return command(s, &args, sizeof(args));
}

static int check_put(struct scene *s)
{
	return mesh_put(s->fd[0], REMOTE, 1, 2, 1) == -EALREADY ? 0 : -EBADE;
}

FIXTURE_VARIANT_ADD(fail_nth, put) {
	.of = {
		.needs_mesh = true,
		.command = KCR_CMD_PUT,
		.prepare = with_remote,
		.call = call_put,
		.check = check_put,
		.lane = &lane_out,
		.least = 1,
	},
};

static struct kcr_ack *map_ack(struct scene *s, int rank, int prot)
{
	return dev_map(s->fd[rank], prot, REMOTE, KCR_MAP_ACK, 0, dev_page());
}

/* Something else than what showed that the lane is ready. */
static int with_ack(struct scene *s)
{
	int err = with_remote(s);
	struct kcr_ack *ack;

	if (err)
		return err;
	ack = map_ack(s, 0, WRITABLE);
	if (ack == MAP_FAILED)
		return -errno;
	*ack = (struct kcr_ack){ .sequence = 7, .complement = ~7ull };
	munmap(ack, dev_page());
	return 0;
}

static int call_ack(struct scene *s)
{
	struct kcr_put_ack args = { .size = sizeof(args), .window = REMOTE, .peer = 1 };

	return command(s, &args, sizeof(args));
}

static int check_ack(struct scene *s)
{
	struct kcr_ack *ack = map_ack(s, 1, PROT_READ);
	bool is_there;

	if (ack == MAP_FAILED)
		return -errno;
	is_there = DEV_SOON(20, __atomic_load_n(&ack->complement, __ATOMIC_ACQUIRE) == ~7ull);
	munmap(ack, dev_page());
	return is_there ? 0 : -ETIMEDOUT;
}

FIXTURE_VARIANT_ADD(fail_nth, ack) {
	.of = {
		.needs_mesh = true,
		.command = KCR_CMD_ACK,
		.prepare = with_ack,
		.call = call_ack,
		.check = check_ack,
		.lane = &lane_in,
		.least = 1,
	},
};

static int call_arm(struct scene *s)
{
	struct kcr_arm args = { .size = sizeof(args), .window = REMOTE, .peer = 1 };

	return command(s, &args, sizeof(args));
}

/* Only who has asked for it is told of what comes. */
static int check_arm(struct scene *s)
{
	struct kcr_status *status = dev_status(s->fd[0]);
	__u64 events;
	int err;

	if (status == MAP_FAILED)
		return -errno;
	events = dev_events(status);
	err = mesh_put(s->fd[1], REMOTE, 0, 1, 1);
	if (!err && !DEV_SOON(20, dev_events(status) != events))
		err = -ETIMEDOUT;
	munmap(status, sizeof(*status));
	return err;
}

FIXTURE_VARIANT_ADD(fail_nth, arm) {
	.of = {
		.needs_mesh = true,
		.command = KCR_CMD_ARM,
		.prepare = with_remote,
		.call = call_arm,
		.check = check_arm,
		.lane = &lane_in,
		.least = 1,
	},
};

/* From rank 1, whose descriptor is put first; the frame comes to rank 0. */
static int ready_to_send(struct scene *s)
{
	int err = with_frames(s), fd = s->fd[0];

	s->fd[0] = s->fd[1];
	s->fd[1] = fd;
	return err;
}

static int call_send(struct scene *s)
{
	struct kcr_send args = mesh_send_args(0, 0, stream_of(s), 0,
					      KCR_CLASS_BYTES(s->sweep->class), 1);

	return command(s, &args, sizeof(args));
}

FIXTURE_VARIANT_ADD(fail_nth, send) {
	.of = {
		.needs_mesh = true,
		.command = KCR_CMD_SEND,
		.prepare = ready_to_send,
		.call = call_send,
		.check = frame_is_there,
		.class = 2,
		.least = 2,
	},
};

FIXTURE_VARIANT_ADD(fail_nth, send_largest) {
	.of = {
		.needs_mesh = true,
		.command = KCR_CMD_SEND,
		.prepare = ready_to_send,
		.call = call_send,
		.check = frame_is_there,
		.class = KCR_CLASSES - 1,
		.least = 2,
	},
};

static int call_release(struct scene *s)
{
	struct kcr_release args = {
		.size = sizeof(args),
		.peer = 1,
		.stream = stream_of(s),
		.size_class = s->sweep->class,
		.sequence = 1,
	};

	return command(s, &args, sizeof(args));
}

static int check_release(struct scene *s)
{
	const struct kcr_ring_status *ring = &s->conn[1]->rings[stream_of(s)][s->sweep->class];

	return DEV_SOON(20, __atomic_load_n(&ring->acked, __ATOMIC_ACQUIRE) == 1) ? 0 : -ETIMEDOUT;
}

FIXTURE_VARIANT_ADD(fail_nth, release) {
	.of = {
		.needs_mesh = true,
		.command = KCR_CMD_RELEASE,
		.prepare = with_arrived,
		.call = call_release,
		.check = check_release,
		.class = 1,
		.least = 1,
	},
};

FIXTURE_VARIANT_ADD(fail_nth, leave) {
	.of = {
		.command = KCR_CMD_LEAVE,
		.prepare = ready,
		.call = call_leave,
		.check = check_leave,
		.least = 1,
	},
};

static int check_leave_mesh(struct scene *s)
{
	return DEV_SOON(20, mesh_state(s->conn[1]) == KCR_CONN_LEFT) ? check_leave(s) : -ETIMEDOUT;
}

FIXTURE_VARIANT_ADD(fail_nth, leave_mesh) {
	.of = {
		.needs_mesh = true,
		.command = KCR_CMD_LEAVE,
		.prepare = connected,
		.call = call_leave,
		.check = check_leave_mesh,
		.least = 1,
	},
};

TEST_HARNESS_MAIN
