// SPDX-License-Identifier: GPL-2.0
/*
 * Races: what the threads of a rank do, all the time, against what comes in their
 * way (K1, K2, K7, K8, K9, K13)
 *
 *	mmap	both threads map, touch and unmap all parts that there are
 *	pages	likewise, of a mesh: the page of a connection, and its ring of frames
 *	wait	one parks commands in a ring, the other sleeps in the ioctl
 *	send	both send frames to the peer, one through a ring
 *	connect	one connects over several wires, the other maps their pages
 *	lanes	one puts, the other makes and gives up the window of that, acknowledges
 *		and arms; the peer does all of it
 *
 *	leave	LEAVE, or first the window is given up
 *	close	the last descriptor is closed
 *	kill	the process is killed
 *	exec	it becomes another program
 *	cancel	CANCEL of everything, again and again
 *	fail	FAIL
 *	remove	the RDMA device is taken away
 *
 * Every pair is a case of many rounds, each with a world of its own of two ranks:
 * the one that is raced, and its peer, which is always the test itself. After each
 * round: every submission has one completion, the peer sees what happened as it must
 * be seen, and nothing is left by the module's counters. After all: no call gave
 * what it may not give in such a pair, and of everything that the pair is about
 * something had been done before the end came. For that the end waits in every fourth
 * round. Time ends a case, so a slow machine has fewer rounds and no failures.
 * KCR_TEST_SEED repeats the choices of a run.
 */
#include "kselftest_harness.h"
#include "mesh.h"
#include "module.h"

#include <sched.h>

#define THREADS	2		/* of the rank, and one more of the peer */
#define BOARD	(16 * 4096)
#define WINDOW	0
#define COMMANDS	96	/* in one round; the ring has room for them all */
#define LONG	(25 * DEV_SECOND)
#define LIMIT	MESH_SHELL_LIMIT
#define PATIENCE 5		/* until all has been done once */
#define ERRNOS	256
#define CLOSERS	4

enum act { ACT_MMAP, ACT_PAGES, ACT_WAIT, ACT_SEND, ACT_CONNECT, ACT_LANES };
enum end { END_LEAVE, END_CLOSE, END_KILL, END_EXEC, END_CANCEL, END_FAIL, END_REMOVE };

/* What the actors do. */
enum deed {
	DEED_NONE, DEED_MAP, DEED_MAP_CONN, DEED_MAP_FRAMES, DEED_WAIT, DEED_WAIT_BY_RING,
	DEED_SEND, DEED_SEND_BY_RING, DEED_CONNECT, DEED_PUT, DEED_WINDOW, DEED_DETACH,
	DEED_ACK, DEED_ARM, DEEDS,
};

static const char *const deed_names[DEEDS] = {
	"", "map", "map of a connection", "map of frames", "wait", "wait through a ring",
	"send", "send through a ring", "connect", "put", "window", "window given up",
	"acknowledgement", "arm",
};

#define BIT(n)	(1 << (n))

static const int deeds_of[] = {
	[ACT_MMAP] = BIT(DEED_MAP),
	[ACT_PAGES] = BIT(DEED_MAP_CONN) | BIT(DEED_MAP_FRAMES),
	[ACT_WAIT] = BIT(DEED_WAIT) | BIT(DEED_WAIT_BY_RING),
	[ACT_SEND] = BIT(DEED_SEND) | BIT(DEED_SEND_BY_RING),
	[ACT_CONNECT] = BIT(DEED_CONNECT) | BIT(DEED_MAP_CONN),
	[ACT_LANES] = BIT(DEED_PUT) | BIT(DEED_WINDOW) | BIT(DEED_DETACH) |
		      BIT(DEED_ACK) | BIT(DEED_ARM),
};

static const struct kcr_lane_desc lanes[] = {
	{ 0, 1, 3, 2000 }, { 1, 0, 3, 2000 },
};

/* In shared memory: the rank may be another process. */
struct race {
	enum act act;
	enum end end;
	bool has_mesh;			/* connected before the start */
	__u32 seed;
	long tally[ERRNOS];		/* how often each result was seen */
	long done[DEEDS];		/* before the end came */
	int bad;			/* the line that found something wrong */
	int rounds;

	/* A round's. */
	struct dev_world world;
	__u32 rank;
	int fd;				/* its own, in its process */
	int peer_fd;
	struct io_uring ring;
	struct kcr_status *status;	/* the peer's, in the test */
	struct kcr_conn_status *conn;
	int stage;
	int ready;
	int go;
	int stop;
	int calls;			/* that the rank has made so far */
	int deeds;			/* what it has done so far, as a set */
	int is_over;			/* the end comes now */
	__u64 sent[THREADS];
};

/* One that acts, in whichever process. */
struct actor {
	struct race *r;
	int number;
	unsigned int seed;
	pthread_t thread;
};

static bool uses_ring(const struct race *r)
{
	return r->act == ACT_WAIT || r->act == ACT_SEND;
}

static bool is_another_process(const struct race *r)
{
	return r->end == END_KILL || r->end == END_EXEC;
}

static bool needs_rdma(enum act act, enum end end)
{
	return (act != ACT_MMAP && act != ACT_WAIT) || end == END_REMOVE;
}

static __u32 other(const struct race *r)
{
	return !r->rank;
}

/* Counted first: the end may come as soon as it is seen. */
static void has_done(struct race *r, enum deed deed)
{
	if (!__atomic_load_n(&r->is_over, __ATOMIC_ACQUIRE))
		__atomic_fetch_add(&r->done[deed], 1, __ATOMIC_RELAXED);
	__atomic_fetch_or(&r->deeds, BIT(deed), __ATOMIC_RELEASE);
}

static int note(struct race *r, enum deed deed, long result)
{
	int err = result > 0 ? 0 : -result;

	__atomic_fetch_add(&r->tally[err < ERRNOS ? err : ERRNOS - 1], 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&r->calls, 1, __ATOMIC_RELEASE);
	if (!err)
		has_done(r, deed);
	return -err;
}

/* Whoever finds what cannot be. */
#define RIGHT(r, condition) do {					\
	if (!(condition))						\
		__atomic_store_n(&(r)->bad, __LINE__, __ATOMIC_RELAXED);	\
} while (0)

static bool is_stopped(struct race *r)
{
	return __atomic_load_n(&r->stop, __ATOMIC_ACQUIRE);
}

/* Up to a millisecond, mostly less. */
static void jitter(unsigned int *seed)
{
	unsigned int n = rand_r(seed) % (1U << rand_r(seed) % 11);
	double until;

	if (n & 1)
		sched_yield();
	until = dev_now() + n / 1e6;
	while (dev_now() < until)
		;
}

/* All that matter start together. */
static void await_start(struct race *r)
{
	__atomic_fetch_add(&r->ready, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&r->go, __ATOMIC_ACQUIRE))
		sched_yield();
}

/*
 * The membership is over, for whatever reason; more of the same tells nothing. A lane
 * is not connected, too, as long as the other side has none.
 */
static bool is_final(const struct race *r, int err)
{
	return err == -EBADF || err == -ESHUTDOWN ||
	       (err == -ENOTCONN && r->act != ACT_LANES);
}

/* ---- mmap ---- */

struct part {
	__u32 window, kind, index;
	int prot;
	size_t bytes;
};

#define PARTS 9
#define PART_CONN 7	/* and behind that: of a mesh */

static struct part part_of(const struct race *r, int i)
{
	const int rw = PROT_READ | PROT_WRITE;
	__u32 to = r->rank ? 1 : 0, from = !to;		/* lanes by their source */

	switch (i) {
	case 0: return (struct part){ 0, KCR_MAP_STATUS, 0, PROT_READ, 4096 };
	case 1: return (struct part){ WINDOW, KCR_MAP_BOARD, r->rank, rw, BOARD };
	case 2: return (struct part){ WINDOW, KCR_MAP_BOARD, other(r), PROT_READ, BOARD };
	case 3: return (struct part){ WINDOW, KCR_MAP_SLOTS, to, rw,
				      dev_lane_bytes(&lanes[to]) };
	case 4: return (struct part){ WINDOW, KCR_MAP_SLOTS, from, PROT_READ,
				      dev_lane_bytes(&lanes[from]) };
	case 5: return (struct part){ WINDOW, KCR_MAP_ACK, to, PROT_READ, 4096 };
	case 6: return (struct part){ WINDOW, KCR_MAP_ACK, from, rw, 4096 };
	case PART_CONN:
		return (struct part){ 0, KCR_MAP_CONN, other(r), PROT_READ, 4096 };
	default: return (struct part){ 0, KCR_MAP_FRAMES, KCR_FRAMES_INDEX(other(r), 0, 0),
				       PROT_READ, mesh_ring_bytes(0) };
	}
}

/* What was mapped is there, whatever happens to the rest. */
static void touch(struct race *r, volatile __u32 *p, const struct part *part)
{
	__u32 last = part->bytes / 4 - 1;

	(void)*p;
	(void)p[last];
	if (part->prot & PROT_WRITE) {
		p[last] = 0x5ca1ab1e;
		RIGHT(r, p[last] == 0x5ca1ab1e);
	}
}

static enum deed deed_of(const struct part *part)
{
	switch (part->kind) {
	case KCR_MAP_CONN:
		return DEED_MAP_CONN;
	case KCR_MAP_FRAMES:
		return DEED_MAP_FRAMES;
	default:
		return DEED_MAP;
	}
}

static int map_once(struct race *r, int i)
{
	struct part part = part_of(r, i);
	void *p = dev_map(r->fd, part.prot, part.window, part.kind, part.index, part.bytes);

	if (p == MAP_FAILED)
		return note(r, DEED_NONE, -errno);
	touch(r, p, &part);
	munmap(p, part.bytes);
	return note(r, deed_of(&part), 0);
}

static void act_mmap(struct actor *a)
{
	int end = a->r->has_mesh ? PARTS : PART_CONN;
	int first = a->r->act == ACT_PAGES ? PART_CONN : 0;

	while (!is_stopped(a->r) &&
	       !is_final(a->r, map_once(a->r, first + rand_r(&a->seed) % (end - first))))
		;
}

/* ---- wait ---- */

/* Parks a few at a time, and waits for none: the end is to find them parked. */
static void wait_by_ring(struct actor *a, const struct kcr_status *status)
{
	struct race *r = a->r;
	int n = 0, batch, i, err;

	while (!is_stopped(r) && n < COMMANDS) {
		batch = 1 + rand_r(&a->seed) % 8;
		for (i = 0; i < batch && n < COMMANDS; i++, n++)
			dev_entry_wait(&r->ring, r->fd, dev_events(status), LONG,
				       rand_r(&a->seed) % 4, n);
		err = io_uring_submit(&r->ring);
		RIGHT(r, err >= 0);
		__atomic_fetch_add(&r->calls, batch, __ATOMIC_RELEASE);
		jitter(&a->seed);
	}
	/* A thread that ends takes its commands with it: that is another test. */
	while (!is_stopped(r))
		dev_sleep(0.0002);
}

static void wait_by_ioctl(struct actor *a, const struct kcr_status *status)
{
	struct race *r = a->r;
	__u64 timeout;
	int err;

	do {
		timeout = 1 + rand_r(&a->seed) % (20 * DEV_MS);
		err = dev_wait(r->fd, dev_events(status), timeout, rand_r(&a->seed) % 4);
	} while (!is_final(r, note(r, DEED_WAIT, err)) && !is_stopped(r));
}

static void act_wait(struct actor *a)
{
	struct kcr_status *status = dev_status(a->r->fd);

	RIGHT(a->r, status != MAP_FAILED);
	if (status == MAP_FAILED)
		return;
	await_start(a->r);
	jitter(&a->seed);
	if (a->number)
		wait_by_ioctl(a, status);
	else
		wait_by_ring(a, status);
	munmap(status, sizeof(*status));
}

static void peer_kicks(struct actor *a)
{
	while (!is_stopped(a->r)) {
		dev_kick(a->r->peer_fd, a->r->rank, 1);
		jitter(&a->seed);
	}
}

/* ---- send ---- */

static int send_once(struct actor *a)
{
	struct kcr_send args = mesh_send_args(other(a->r), 0, a->number, 0,
					      1 + rand_r(&a->seed) % 4096,
					      a->r->sent[a->number] + 1);
	int err;

	if (a->number)
		err = dev_ring_command(&a->r->ring, DEV_URING, a->r->fd, KCR_CMD_SEND, &args,
				       sizeof(args));
	else
		err = dev_ioctl(a->r->fd, KCR_IOCTL_SEND, &args);
	if (!err)
		__atomic_fetch_add(&a->r->sent[a->number], 1, __ATOMIC_RELEASE);
	return note(a->r, a->number ? DEED_SEND_BY_RING : DEED_SEND, err);
}

static void act_send(struct actor *a)
{
	int err;

	do {
		err = send_once(a);
		if (err == -ENOBUFS)
			sched_yield();
	} while (!is_final(a->r, err) && err != -ENXIO && !is_stopped(a->r));
}

static void peer_releases(struct actor *a)
{
	struct race *r = a->r;
	int stream;

	while (!is_stopped(r)) {
		for (stream = 0; stream < THREADS; stream++)
			mesh_release(r->peer_fd, r->rank, 0, stream, 0,
				     mesh_arrived(r->conn, stream, 0));
		jitter(&a->seed);
	}
}

/* ---- connect ---- */

/* All wires lead to the same device: what tells them apart is their number. */
static int connect_wire(int fd, __u32 peer, __u32 wire)
{
	struct kcr_connect args = mesh_connect_args(peer, 0);

	args.wire = wire;
	return dev_ioctl(fd, KCR_IOCTL_CONNECT, &args);
}

static void act_connect(struct actor *a)
{
	struct race *r = a->r;
	struct part page = { 0, KCR_MAP_CONN, other(r), PROT_READ, 4096 };
	__u32 wire;
	void *p;
	int err;

	/* All of them, be it late: the peer waits for each. */
	if (!a->number) {
		for (wire = 0; wire < KCR_MAX_WIRES; wire++) {
			if (is_final(r, note(r, DEED_CONNECT, connect_wire(r->fd, other(r), wire))))
				break;
			jitter(&a->seed);
		}
		return;
	}
	do {
		wire = rand_r(&a->seed) % KCR_MAX_WIRES;
		p = dev_map(r->fd, PROT_READ, wire, KCR_MAP_CONN, other(r), page.bytes);
		err = note(r, DEED_MAP_CONN, p == MAP_FAILED ? -errno : 0);
		if (!err) {
			touch(r, p, &page);
			munmap(p, page.bytes);
		}
	} while (!is_final(r, err) && !is_stopped(r));
}

static void peer_connects(struct actor *a)
{
	struct race *r = a->r;
	__u32 wire;
	int err;

	for (wire = 0; wire < KCR_MAX_WIRES; wire++) {
		err = connect_wire(r->peer_fd, r->rank, wire);
		RIGHT(r, !err);
		jitter(&a->seed);
	}
}

/* ---- lanes ---- */

#define REMOTE	(WINDOW + 1)

static int put_once(int fd, __u32 peer, __u64 *sequence)
{
	int err = mesh_put(fd, REMOTE, peer, *sequence, 1);

	if (!err || err == -EALREADY)
		++*sequence;
	else if (err == -EINVAL)
		*sequence = 1;
	else
		sched_yield();
	return err;
}

static int change_lanes(int fd, __u32 peer, unsigned int *seed, enum deed *deed)
{
	switch (rand_r(seed) % 8) {
	case 0:
		*deed = DEED_DETACH;
		return dev_detach(fd, REMOTE);
	case 1:
	case 2:
		*deed = DEED_WINDOW;
		return mesh_window(fd, REMOTE, lanes, 2);
	case 3:
	case 4:
		*deed = DEED_ACK;
		return mesh_ack(fd, REMOTE, peer);
	default:
		*deed = DEED_ARM;
		return mesh_arm(fd, REMOTE, peer, rand_r(seed) & 1, rand_r(seed) % 4);
	}
}

static void act_lanes(struct actor *a)
{
	struct race *r = a->r;
	enum deed deed = DEED_PUT;
	__u64 sequence = 1;
	int err;

	do {
		err = a->number ? change_lanes(r->fd, other(r), &a->seed, &deed) :
				  put_once(r->fd, other(r), &sequence);
	} while (!is_final(r, note(r, deed, err)) && !is_stopped(r));
}

static void peer_lanes(struct actor *a)
{
	struct race *r = a->r;
	__u64 sequence = 1;
	enum deed deed;

	while (!is_stopped(r)) {
		put_once(r->peer_fd, r->rank, &sequence);
		change_lanes(r->peer_fd, r->rank, &a->seed, &deed);
		if (rand_r(&a->seed) % 8 == 0)
			jitter(&a->seed);
	}
}

/* ---- the two sides ---- */

static void *actor_main(void *arg)
{
	static void (*const acts[])(struct actor *a) = {
		[ACT_MMAP] = act_mmap,
		[ACT_PAGES] = act_mmap,
		[ACT_WAIT] = act_wait,		/* starts by itself */
		[ACT_SEND] = act_send,
		[ACT_CONNECT] = act_connect,
		[ACT_LANES] = act_lanes,
	};
	struct actor *a = arg;

	if (a->r->act != ACT_WAIT) {
		await_start(a->r);
		jitter(&a->seed);
	}
	acts[a->r->act](a);
	return NULL;
}

static void *peer_main(void *arg)
{
	static void (*const acts[])(struct actor *a) = {
		[ACT_WAIT] = peer_kicks,
		[ACT_SEND] = peer_releases,
		[ACT_CONNECT] = peer_connects,
		[ACT_LANES] = peer_lanes,
	};
	struct actor *a = arg;

	await_start(a->r);
	jitter(&a->seed);
	if (acts[a->r->act])
		acts[a->r->act](a);
	return NULL;
}

/* The rank is there, and connected if that comes first. 0 or the line. */
static int rank_open(struct race *r)
{
	struct kcr_conn_status *conn;
	bool is_up;

	r->fd = dev_member(&r->world, r->rank);
	if (r->fd < 0 || dev_window(r->fd, WINDOW, lanes, 2, BOARD))
		return __LINE__;
	if (!r->has_mesh)
		return 0;
	/* The higher one must have made the call before. */
	if (!r->rank && !dev_reached(&r->stage, 1))
		return __LINE__;
	if (mesh_connect(r->fd, other(r), 0))
		return __LINE__;
	dev_reach(&r->stage, 2);
	conn = mesh_status(r->fd, other(r), 0);
	if (conn == MAP_FAILED)
		return __LINE__;
	is_up = DEV_SOON(20, mesh_is_up(conn));
	munmap(conn, sizeof(*conn));
	if (!is_up)
		return __LINE__;
	return mesh_frames(r->fd, other(r), 0, 0, 0) ? __LINE__ : 0;
}

/* In a thread of the test, so that neither side waits for the other for ever. */
static void *peer_open_mesh(void *arg)
{
	struct race *r = arg;
	int stream;

	RIGHT(r, r->rank == 0 || dev_reached(&r->stage, 2));
	RIGHT(r, !mesh_connect(r->peer_fd, r->rank, 0));
	dev_reach(&r->stage, 1);
	r->conn = mesh_status(r->peer_fd, r->rank, 0);
	RIGHT(r, r->conn != MAP_FAILED);
	if (r->conn == MAP_FAILED)
		return NULL;
	RIGHT(r, DEV_SOON(20, mesh_is_up(r->conn)));
	for (stream = 0; stream < THREADS; stream++)
		RIGHT(r, !mesh_frames(r->peer_fd, r->rank, 0, stream, 0));
	return NULL;
}

static int actors_start(struct race *r, struct actor *a, unsigned int seed)
{
	int i;

	for (i = 0; i < THREADS; i++) {
		a[i] = (struct actor){ r, i, seed + i };
		if (pthread_create(&a[i].thread, NULL, actor_main, &a[i]))
			return __LINE__;
	}
	return 0;
}

/* K1: what the kernel has taken from the ring, and what it has answered. */
static unsigned int ring_taken(struct race *r)
{
	return __atomic_load_n(r->ring.sq.khead, __ATOMIC_ACQUIRE);
}

static unsigned int ring_answered(struct race *r)
{
	return __atomic_load_n(r->ring.cq.ktail, __ATOMIC_ACQUIRE);
}

/* Whoever parks commands looks at no answers: before the end they are by kicks. */
static bool has_done_all(struct race *r)
{
	int deeds = __atomic_load_n(&r->deeds, __ATOMIC_ACQUIRE);

	if (r->act == ACT_WAIT && !(deeds & BIT(DEED_WAIT_BY_RING)) && ring_answered(r))
		has_done(r, DEED_WAIT_BY_RING);
	return (deeds & deeds_of[r->act]) == deeds_of[r->act];
}

/*
 * In the middle of it, however slow the machine is: after so many calls, or, for those
 * that take longer to come to what they are about, when they have.
 */
static void await_calls(struct race *r, unsigned int *seed)
{
	int calls = rand_r(seed) % (1U << rand_r(seed) % 7);
	double until = dev_now() + 0.05;

	if (r->rounds % 4 == 0)
		DEV_SOON(PATIENCE, has_done_all(r));
	while (__atomic_load_n(&r->calls, __ATOMIC_ACQUIRE) < calls && dev_now() < until)
		sched_yield();
	jitter(seed);
	__atomic_store_n(&r->is_over, 1, __ATOMIC_RELEASE);
}

/* The rank as a process: it ends by being killed, or as another program. */
static void rank_main(void *arg)
{
	char *const arguments[] = { (char *)"true", NULL };
	struct race *r = arg;
	struct actor a[THREADS];
	unsigned int seed = r->seed + 7 * r->rounds;

	CHILD_GIVES(0, rank_open(r));
	CHILD_GIVES(0, actors_start(r, a, seed));
	await_start(r);
	if (r->end == END_KILL)
		for (;;)
			pause();
	await_calls(r, &seed);
	execv("/bin/true", arguments);
	_exit(127);
}

/* ---- what comes in the way ---- */

static bool join_soon(pthread_t thread)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += LIMIT * pace();
	return !pthread_timedjoin_np(thread, NULL, &t);
}

static void cancel_all(struct race *r, unsigned int *seed)
{
	int i, err;

	for (i = 0; i < 64; i++) {
		err = dev_cancel(r->fd, rand_r(seed) % 4);
		RIGHT(r, !err || err == -ENOENT);
		jitter(seed);
	}
}

static void strike(struct race *r, unsigned int *seed)
{
	int fd = r->fd;

	await_calls(r, seed);
	switch (r->end) {
	case END_LEAVE:
		if (rand_r(seed) & 1)
			RIGHT(r, !dev_detach(fd, WINDOW));
		RIGHT(r, !dev_leave(fd));
		break;
	case END_CLOSE:
		close(fd);
		break;
	case END_CANCEL:
		cancel_all(r, seed);
		break;
	case END_FAIL:
		RIGHT(r, !dev_fail(fd, EPROTO));
		break;
	case END_REMOVE:
		RIGHT(r, !mesh_device_del());
		break;
	default:
		break;
	}
}

/* ---- after a round ---- */

/* What the peer must see of it. */
static bool is_seen(struct race *r)
{
	int state = dev_state(r->status, r->rank);
	__u64 cause = dev_cause(r->status);

	switch (r->end) {
	case END_LEAVE:
		return state == KCR_MEMBER_LEFT && !cause;
	case END_CLOSE:
	case END_KILL:
	case END_EXEC:
		return state == KCR_MEMBER_DEAD && cause == KCR_CAUSE(r->rank, ECONNRESET);
	case END_FAIL:
		return state == KCR_MEMBER_JOINED && cause == KCR_CAUSE(r->rank, EPROTO);
	case END_REMOVE:
		return state == KCR_MEMBER_JOINED && (cause || !r->has_mesh);
	default:
		return state == KCR_MEMBER_JOINED && !cause;
	}
}

/* Of a connection: whoever left had sent all, and it is all here. */
static bool conn_has_ended(struct race *r)
{
	__u32 state = mesh_state(r->conn);
	int i;

	switch (r->end) {
	case END_LEAVE:
		for (i = 0; i < THREADS && r->act == ACT_SEND; i++)
			if (mesh_arrived(r->conn, i, 0) != r->sent[i])
				return false;
		return state == KCR_CONN_LEFT;
	case END_CLOSE:
	case END_KILL:
	case END_EXEC:
	case END_REMOVE:
		return state == KCR_CONN_FAILED;
	default:
		return state == KCR_CONN_UP;
	}
}

/* Each has come to where it stays as long as nobody does anything. */
static bool wires_are_settled(struct race *r)
{
	struct kcr_conn_status *conn;
	bool are_settled = true;
	__u32 wire, state;

	for (wire = 0; wire < KCR_MAX_WIRES; wire++) {
		conn = mesh_status(r->peer_fd, r->rank, wire);
		if (conn == MAP_FAILED)
			return false;
		state = mesh_state(conn);
		are_settled &= state != KCR_CONN_CONNECTING &&
			       (state != KCR_CONN_UP || r->end >= END_CANCEL);
		munmap(conn, sizeof(*conn));
	}
	return are_settled;
}

static void log_wires(struct __test_metadata *_metadata, struct race *r)
{
	for (__u32 wire = 0; wire < KCR_MAX_WIRES; wire++) {
		struct kcr_conn_status *conn = mesh_status(r->peer_fd, r->rank, wire);

		if (conn == MAP_FAILED)
			continue;
		TH_LOG("wire %u of rank %u", wire, other(r));
		MESH_LOG(conn);
		munmap(conn, sizeof(*conn));
	}
}

static void expect_completions(struct __test_metadata *_metadata, struct race *r)
{
	unsigned char seen[COMMANDS] = { };
	struct io_uring_cqe *cqe;
	unsigned int head, n = 0;

	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, ring_taken(r) == ring_answered(r))) {
		TH_LOG("%u taken, %u answered", ring_taken(r), ring_answered(r));
	}
	if (r->act != ACT_WAIT)
		return;
	io_uring_for_each_cqe(&r->ring, head, cqe) {
		n++;
		note(r, DEED_NONE, cqe->res);
		ASSERT_GT(COMMANDS, cqe->user_data);
		EXPECT_EQ(0, seen[cqe->user_data]++) {
			TH_LOG("completed twice");
		}
	}
	EXPECT_EQ(ring_taken(r), n);
}

/* K13: in any order. */
static void close_all(struct race *r, unsigned int *seed)
{
	int first = rand_r(seed) % CLOSERS, i;

	for (i = 0; i < CLOSERS; i++) {
		switch ((first + i) % CLOSERS) {
		case 0:
			if (!is_another_process(r) && r->end != END_CLOSE)
				close(r->fd);
			break;
		case 1:
			close(r->peer_fd);
			break;
		case 2:
			if (uses_ring(r))
				io_uring_queue_exit(&r->ring);
			break;
		default:
			munmap(r->status, sizeof(*r->status));
			if (r->conn)
				munmap(r->conn, sizeof(*r->conn));
		}
	}
}

static void device_again(struct __test_metadata *_metadata)
{
	ASSERT_EQ(0, mesh_device_add());
	ASSERT_TRUE(DEV_SOON(LIMIT, mesh_device_has_gid()));
}

/* ---- a round ---- */

static void begin_round(struct __test_metadata *_metadata, struct race *r, unsigned int *seed)
{
	r->world = dev_world(2);
	r->rank = rand_r(seed) & 1;
	r->conn = NULL;
	r->stage = 0;
	r->ready = 0;
	r->go = 0;
	r->stop = 0;
	r->calls = 0;
	r->deeds = 0;
	r->is_over = 0;
	memset(r->sent, 0, sizeof(r->sent));
	r->peer_fd = dev_member(&r->world, other(r));
	ASSERT_LE(0, r->peer_fd);
	ASSERT_EQ(0, dev_window(r->peer_fd, WINDOW, lanes, 2, BOARD));
	r->status = dev_status(r->peer_fd);
	ASSERT_NE(MAP_FAILED, r->status);
	if (uses_ring(r))
		ASSERT_EQ(0, dev_ring(&r->ring, DEV_URING));
}

/* Who is in it. */
struct cast {
	struct actor rank[THREADS];	/* unless it is a process of its own */
	struct actor peer;
	pid_t pid;
};

/* Both sides are there, and all who matter stand at the line. */
static void line_up(struct __test_metadata *_metadata, struct race *r, struct cast *c,
		    unsigned int *seed)
{
	bool is_child = is_another_process(r);
	pthread_t mesh;

	if (r->has_mesh)
		ASSERT_EQ(0, pthread_create(&mesh, NULL, peer_open_mesh, r));
	if (is_child) {
		c->pid = dev_child(rank_main, r);
		ASSERT_LT(0, c->pid);
	} else {
		ASSERT_EQ(0, rank_open(r));
	}
	if (r->has_mesh)
		ASSERT_EQ(0, pthread_join(mesh, NULL));
	ASSERT_EQ(0, r->bad);
	c->peer = (struct actor){ r, THREADS, rand_r(seed) };
	ASSERT_EQ(0, pthread_create(&c->peer.thread, NULL, peer_main, &c->peer));
	if (!is_child)
		ASSERT_EQ(0, actors_start(r, c->rank, rand_r(seed)));
	ASSERT_TRUE(dev_reached(&r->ready, THREADS + 1 + is_child));
}

static void expect_seen(struct __test_metadata *_metadata, struct race *r)
{
	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, is_seen(r))) {
		TH_LOG("rank %u: state %d, cause %#llx", r->rank,
		       dev_state(r->status, r->rank), dev_cause(r->status));
	}
	if (!r->conn)
		return;
	EXPECT_TRUE(DEV_SOON(LIMIT, conn_has_ended(r))) {
		MESH_LOG(r->conn);
		TH_LOG("sent %llu %llu, arrived %llu %llu", r->sent[0], r->sent[1],
		       mesh_arrived(r->conn, 0, 0), mesh_arrived(r->conn, 1, 0));
	}
}

static void stop_all(struct __test_metadata *_metadata, struct race *r, struct cast *c)
{
	int i;

	dev_reach(&r->stop, 1);
	/* What is parked is not woken by that. */
	if (r->act == ACT_WAIT && !is_another_process(r) && r->end >= END_CANCEL)
		RIGHT(r, !dev_leave(r->fd));
	for (i = 0; i < THREADS && !is_another_process(r); i++)
		ASSERT_TRUE(join_soon(c->rank[i].thread));
	ASSERT_TRUE(join_soon(c->peer.thread));
}

static void one_round(struct __test_metadata *_metadata, struct race *r, unsigned int *seed)
{
	struct cast c;

	begin_round(_metadata, r, seed);
	line_up(_metadata, r, &c, seed);
	dev_reach(&r->go, 1);
	strike(r, seed);
	if (r->end == END_EXEC)
		EXPECT_EQ(0, dev_child_status(c.pid, LIMIT));
	if (r->end == END_KILL)
		EXPECT_TRUE(dev_child_kill(c.pid));
	expect_seen(_metadata, r);
	jitter(seed);
	stop_all(_metadata, r, &c);
	/* A peer that left while it connected is no dead one. */
	if (r->act == ACT_CONNECT) {
		EXPECT_TRUE(DEV_SOON(LIMIT, wires_are_settled(r))) {
			log_wires(_metadata, r);
		}
		EXPECT_TRUE(is_seen(r)) {
			TH_LOG("cause %#llx", dev_cause(r->status));
		}
	}
	if (uses_ring(r))
		expect_completions(_metadata, r);
	close_all(r, seed);
	if (r->end == END_REMOVE)
		device_again(_metadata);
}

/* ---- what may be ---- */

struct rule {
	int acts, ends;			/* sets of them */
	int err;
};

#define ALL	(~0)
#define ENDED	(BIT(END_LEAVE) | BIT(END_CLOSE))
#define GONE	(BIT(END_KILL) | BIT(END_EXEC))
#define MAPS	(BIT(ACT_MMAP) | BIT(ACT_PAGES))

static const struct rule rules[] = {
	{ ALL, ALL, 0 },
	/* The rank's own calls, once it has ended. */
	{ ALL, ENDED, ESHUTDOWN },
	{ ALL, BIT(END_CLOSE), EBADF },
	/* Its window goes before its calls have all come to their end. */
	{ MAPS, ENDED, ENXIO },
	{ BIT(ACT_SEND), ENDED, ENXIO },
	/* Not connected yet. */
	{ BIT(ACT_CONNECT), ALL, ENXIO },
	{ BIT(ACT_SEND), ALL, ENOBUFS },
	{ BIT(ACT_SEND), ENDED | BIT(END_REMOVE), ENOTCONN },
	/* Either side may have no window at the moment, or one that goes. */
	{ BIT(ACT_LANES), ALL, ENXIO },
	{ BIT(ACT_LANES), ALL, ENOENT },
	{ BIT(ACT_LANES), ALL, ENOBUFS },
	{ BIT(ACT_LANES), ALL, ENOTCONN },
	{ BIT(ACT_LANES), ALL, EBUSY },
	{ BIT(ACT_LANES), ALL, EEXIST },
	{ BIT(ACT_LANES), ALL, EALREADY },
	{ BIT(ACT_LANES), ALL, EINVAL },
	{ BIT(ACT_WAIT), ALL, ETIMEDOUT },
	/* By io_uring, when its submitter goes; by LEAVE, when a round is over. */
	{ BIT(ACT_WAIT), GONE, ECANCELED },
	{ BIT(ACT_WAIT), BIT(END_CANCEL), ECANCELED },
	{ BIT(ACT_WAIT), ALL, ESHUTDOWN },
};

static bool may_give(const struct race *r, int err)
{
	const struct rule *rule;

	for (rule = rules; rule < rules + sizeof(rules) / sizeof(*rules); rule++)
		if (rule->err == err && rule->acts & BIT(r->act) && rule->ends & BIT(r->end))
			return true;
	return false;
}

static void expect_results(struct __test_metadata *_metadata, struct race *r, double took)
{
	char text[1000] = "";
	size_t n = 0;
	int err;

	for (err = 0; err < ERRNOS; err++) {
		if (!r->tally[err])
			continue;
		if (n < sizeof(text))
			n += snprintf(text + n, sizeof(text) - n, " %ld %s,",
				      r->tally[err], err ? strerror(err) : "done");
		EXPECT_TRUE(may_give(r, err)) {
			TH_LOG("gave %s", strerror(err));
		}
	}
	TH_LOG("%d rounds in %.1f s, seed %u:%s", r->rounds, took, r->seed, text);
}

/* Of everything that the pair is about something was done before the end. */
static void expect_deeds(struct __test_metadata *_metadata, const struct race *r)
{
	char text[400] = "";
	size_t n = 0;
	int deed;

	for (deed = DEED_NONE + 1; deed < DEEDS; deed++) {
		if (!(deeds_of[r->act] & BIT(deed)))
			continue;
		n += snprintf(text + n, sizeof(text) - n, " %ld %s,", r->done[deed],
			      deed_names[deed]);
		EXPECT_LT(0, r->done[deed]) {
			TH_LOG("no %s before the end", deed_names[deed]);
		}
	}
	TH_LOG("before the end:%s", text);
}

/* ---- the pairs ---- */

FIXTURE(race) {
	struct dev_counters before;
	struct race *r;
};

FIXTURE_VARIANT(race) {
	enum end end;
};

FIXTURE_VARIANT_ADD(race, leave) {
	.end = END_LEAVE,
};

FIXTURE_VARIANT_ADD(race, close) {
	.end = END_CLOSE,
};

FIXTURE_VARIANT_ADD(race, kill) {
	.end = END_KILL,
};

FIXTURE_VARIANT_ADD(race, exec) {
	.end = END_EXEC,
};

FIXTURE_VARIANT_ADD(race, cancel) {
	.end = END_CANCEL,
};

FIXTURE_VARIANT_ADD(race, fail) {
	.end = END_FAIL,
};

FIXTURE_VARIANT_ADD(race, remove) {
	.end = END_REMOVE,
};

static const char *race_missing(enum act act, enum end end)
{
	const char *missing = dev_missing();

	if (missing)
		return missing;
	if (geteuid())
		return "needs root, to see what is left";
	if (end == END_REMOVE)
		return mesh_missing_for_removal();
	return needs_rdma(act, end) ? mesh_missing() : NULL;
}

FIXTURE_SETUP(race)
{
	const char *seed = getenv("KCR_TEST_SEED");

	self->before = dev_counters();
	self->r = dev_shared(sizeof(*self->r));
	self->r->end = variant->end;
	if (seed)
		self->r->seed = strtoul(seed, NULL, 0);
	else
		ASSERT_EQ(4, getrandom(&self->r->seed, 4, 0));
}

FIXTURE_TEARDOWN(race)
{
	munmap(self->r, sizeof(*self->r));
	/* For whoever comes next, if a round broke off. */
	if (variant->end == END_REMOVE && !mesh_missing_for_removal() &&
	    !mesh_device_is_there())
		EXPECT_EQ(0, mesh_device_add());
}

static void run_pair(struct __test_metadata *_metadata, enum act act, struct race *r,
		     const struct dev_counters *before)
{
	double begin = dev_now(), end = begin + 1.2 * dev_scale();
	const char *missing = race_missing(act, r->end), *left;
	unsigned int seed = r->seed;

	if (missing)
		SKIP(return, "%s", missing);
	r->act = act;
	r->has_mesh = needs_rdma(act, r->end) && act != ACT_CONNECT;
	while ((dev_now() < end || r->rounds < 3) && !r->bad) {
		one_round(_metadata, r, &seed);
		r->rounds++;
		left = dev_left_behind(before);
		if (!left && needs_rdma(act, r->end) && !DEV_SOON(DEV_SETTLE, !mesh_left()))
			left = mesh_left();
		ASSERT_EQ(NULL, left) {
			TH_LOG("round %d, seed %u: left behind: %s", r->rounds, r->seed, left);
		}
	}
	EXPECT_EQ(0, r->bad) {
		TH_LOG("line %d found it, in round %d, seed %u", r->bad, r->rounds, r->seed);
	}
	expect_results(_metadata, r, dev_now() - begin);
	expect_deeds(_metadata, r);
}

TEST_F_TIMEOUT(race, mmap, 300)
{
	run_pair(_metadata, ACT_MMAP, self->r, &self->before);
}

TEST_F_TIMEOUT(race, pages, 300)
{
	run_pair(_metadata, ACT_PAGES, self->r, &self->before);
}

TEST_F_TIMEOUT(race, wait, 300)
{
	run_pair(_metadata, ACT_WAIT, self->r, &self->before);
}

TEST_F_TIMEOUT(race, send, 300)
{
	run_pair(_metadata, ACT_SEND, self->r, &self->before);
}

TEST_F_TIMEOUT(race, connect, 300)
{
	run_pair(_metadata, ACT_CONNECT, self->r, &self->before);
}

TEST_F_TIMEOUT(race, lanes, 300)
{
	run_pair(_metadata, ACT_LANES, self->r, &self->before);
}

/* ---- one of a kind; nobody else may use the module ---- */

FIXTURE(alone) {
	struct dev_counters before;
};

FIXTURE_SETUP(alone)
{
	const char *missing = dev_missing();

	self->before = dev_counters();
	if (missing)
		SKIP(return, "%s", missing);
}

FIXTURE_TEARDOWN(alone)
{
	DEV_EXPECT_NOTHING_LEFT(&self->before);
}

/*
 * A process has died, and whoever shares its table of descriptors closes the last
 * one in the very moment in which the monitor finds that out. Waking many gives the
 * monitor something to do between seeing the death and ending the connections.
 */
#define SLEEPERS 200

struct heir {
	struct dev_world world;
	const struct kcr_status *status;	/* the peer's */
	int stage;
};

static void heir_main(struct heir *h, int fd)
{
	dev_reach(&h->stage, 2);
	while (!dev_cause(h->status))
		;
	close(fd);
	dev_reach(&h->stage, 3);
	_exit(0);
}

static void bequeath(void *arg)
{
	struct kcr_conn_status *conn;
	struct heir *h = arg;
	int fd = dev_member(&h->world, 0);

	CHILD_TRUE(fd >= 0);
	CHILD_GIVES(0, dev_window(fd, WINDOW, NULL, 0, BOARD));
	CHILD_GIVES(0, mesh_connect(fd, 1, 0));
	conn = mesh_status(fd, 1, 0);
	CHILD_TRUE(conn != MAP_FAILED);
	CHILD_TRUE(DEV_SOON(20, mesh_is_up(conn)));
	switch (syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL)) {
	case -1:
		CHILD_TRUE(!"clone failed");
		break;
	case 0:
		prctl(PR_SET_PDEATHSIG, 0);
		heir_main(h, fd);
	}
	CHILD_TRUE(dev_reached(&h->stage, 2));
}

TEST_F_TIMEOUT(alone, last_close_while_monitored, 300)
{
	double end = dev_now() + 2.5 * dev_scale();
	struct heir *h = dev_shared(sizeof(*h));
	const char *missing = mesh_missing();
	struct kcr_status *status;
	int fd, i, rounds = 0;
	struct io_uring ring;
	__u64 seen;

	if (missing)
		SKIP(return, "%s", missing);
	for (; dev_now() < end; rounds++) {
		h->world = dev_world(2);
		h->stage = 0;
		fd = dev_member(&h->world, 1);
		ASSERT_LE(0, fd);
		ASSERT_EQ(0, mesh_connect(fd, 0, 0));
		status = dev_status(fd);
		ASSERT_NE(MAP_FAILED, status);
		ASSERT_EQ(0, madvise(status, 4096, MADV_DOFORK));
		h->status = status;
		ASSERT_EQ(0, dev_child_status(dev_child(bequeath, h), 30));
		ASSERT_EQ(0, dev_ring(&ring, DEV_URING));
		seen = dev_events(status);
		for (i = 0; i < SLEEPERS; i++)
			dev_entry_wait(&ring, fd, seen, LONG, 0, i);
		ASSERT_EQ(SLEEPERS, io_uring_submit(&ring));
		/* Else it hangs in its close(). */
		ASSERT_TRUE(dev_reached(&h->stage, 3)) {
			TH_LOG("round %d: stage %d", rounds, h->stage);
		}
		EXPECT_EQ(KCR_CAUSE(0, ECONNRESET), dev_cause(status));
		io_uring_queue_exit(&ring);
		munmap(status, sizeof(*status));
		close(fd);
		MESH_EXPECT_NOTHING_LEFT();
	}
	TH_LOG("%d rounds", rounds);
	munmap(h, sizeof(*h));
}

/* ---- modules, among users ---- */

#define USERS 2

struct crowd {
	bool connects;
	int stop;
	long there, gone;
};

/* Everything works, or the module is not there. */
static void use(void *arg)
{
	struct crowd *c = arg;
	unsigned int seed = getpid();
	int fd, err;

	while (!__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE)) {
		struct dev_world w = dev_world(2);

		fd = dev_open();
		if (fd < 0) {
			CHILD_TRUE(!c->connects && (fd == -ENOENT || fd == -ENODEV));
			__atomic_fetch_add(&c->gone, 1, __ATOMIC_RELAXED);
			continue;
		}
		CHILD_GIVES(0, dev_join(fd, &w, 1));
		CHILD_GIVES(0, dev_window(fd, WINDOW, NULL, 0, BOARD));
		err = c->connects ? mesh_connect(fd, 0, 0) : 0;
		CHILD_TRUE(!err || err == -EPROTONOSUPPORT);
		__atomic_fetch_add(err ? &c->gone : &c->there, 1, __ATOMIC_RELAXED);
		close(fd);
		/* There must be moments without users. */
		dev_sleep(0.001 * (rand_r(&seed) % 10));
	}
}

/* Out and in again, with @module; returns how often. */
static int reload(struct __test_metadata *_metadata, const char *name, int module,
		  double seconds, const struct stat *st)
{
	double end = dev_now() + seconds, begin;
	int rounds = 0;
	long err;

	while (dev_now() < end || (!rounds && dev_now() < end + LIMIT)) {
		begin = dev_now();
		err = module_delete(name);
		EXPECT_GT(LIMIT, dev_now() - begin);
		if (err) {
			EXPECT_TRUE(module_is_busy(err)) {
				TH_LOG("delete_module: %ld", err);
			}
			continue;
		}
		err = module_load(module, "");
		EXPECT_EQ(0, err);
		if (err)
			break;
		rounds++;
		/* Time for others to come. */
		dev_sleep(0.0001 * (rounds % 64));
	}
	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, !access(DEV_PATH, F_OK)));
	EXPECT_EQ(0, chown(DEV_PATH, st->st_uid, st->st_gid));
	EXPECT_EQ(0, chmod(DEV_PATH, st->st_mode & 07777));
	return rounds;
}

static void unload_among(struct __test_metadata *_metadata, const char *name, int module,
			 bool connects)
{
	struct crowd *c = dev_shared(sizeof(*c));
	pid_t pid[USERS];
	struct stat st;
	int i, rounds;

	c->connects = connects;
	ASSERT_EQ(0, stat(DEV_PATH, &st));
	for (i = 0; i < USERS; i++)
		pid[i] = dev_child(use, c);
	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, __atomic_load_n(&c->there, __ATOMIC_RELAXED)));
	rounds = reload(_metadata, name, module, 3 * dev_scale(), &st);
	__atomic_store_n(&c->stop, 1, __ATOMIC_RELEASE);
	for (i = 0; i < USERS; i++)
		EXPECT_EQ(0, dev_child_status(pid[i], LIMIT));
	TH_LOG("out and in %d times; %ld times it was there, %ld times not", rounds, c->there,
	       c->gone);
	EXPECT_LT(0, rounds);
	munmap(c, sizeof(*c));
	close(module);
}

TEST_F_TIMEOUT(alone, unload_among_users, 120)
{
	const char *missing = module_missing();
	int module = module_open_own();
	bool verbs;

	if (missing)
		SKIP(return, "%s", missing);
	if (module < 0)
		SKIP(return, "no kcollring.ko to load again: set KCR_MODULE");
	verbs = module_take_verbs();
	unload_among(_metadata, "kcollring", module, false);
	if (verbs)
		EXPECT_EQ(0, module_give_verbs());
}

TEST_F_TIMEOUT(alone, unload_verbs_among_users, 120)
{
	const char *missing = module_missing() ?: mesh_missing();
	int module = module_open("kcollring_verbs.ko");

	if (missing)
		SKIP(return, "%s", missing);
	if (module < 0)
		SKIP(return, "no kcollring_verbs.ko to load again");
	unload_among(_metadata, "kcollring_verbs", module, true);
	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, !mesh_left()));
}

TEST_HARNESS_MAIN
