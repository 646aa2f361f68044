/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The module's part of the mesh, in a process: ranks are threads
 *
 * For a test that is linked with --wrap=open,ioctl,mmap,munmap. It keeps to
 * uapi/linux/kcollring.h as strictly as the module may: a ring has the frames that
 * were asked for and one more, credits that may wait for a frame do, a
 * frame that is out of order is refused, and nothing moves but by commands. Frames
 * arrive when the network thread says so, on each connection in order, between
 * connections in any. One lock for everything.
 */
#ifndef KCR_TEST_FAKE_MODULE_H
#define KCR_TEST_FAKE_MODULE_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <linux/kcollring.h>

#define FAKE_RANKS	8
#define FAKE_FDS	1024
#define FAKE_PARTS	4096

int __real_open(const char *path, int flags, ...);
int __real_ioctl(int fd, unsigned long request, ...);
void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);

/* One direction of one ring. */
struct fake_ring {
	unsigned char *frames;		/* the receiver's */
	uint32_t depth;
	uint64_t sent, delivered, released, returned;
	uint32_t length[KCR_FRAMES_MAX];
};

struct fake_conn {
	struct kcr_conn_status *status;
	uint32_t depth;
	bool is_holding;
	struct fake_ring in[KCR_STREAMS][KCR_CLASSES];
};

struct fake_rank {
	bool is_in;
	struct kcr_status *status;
	unsigned char *board[KCR_MAX_WINDOWS];
	struct fake_conn conns[FAKE_RANKS][KCR_MAX_WIRES];
	uint64_t sends, refusals;
};

struct fake_part {
	uint64_t key;
	void *at;
};

static struct fake_module {
	pthread_mutex_t lock;
	pthread_cond_t event;
	int ranks;
	int node[FAKE_RANKS];
	struct fake_rank *rank;
	struct fake_part parts[FAKE_PARTS];
	int nr_parts;
	unsigned char owner[FAKE_FDS];	/* rank + 1 */
	int refuse_every;		/* the n-th send finds the device full */
	bool is_ending;
	pthread_t network;
} fake = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.event = PTHREAD_COND_INITIALIZER,
};

static __thread int fake_me;

static void fake_move(int rank)
{
	__atomic_fetch_add(&fake.rank[rank].status->events, 1, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&fake.event);
}

static void *fake_page(size_t bytes)
{
	void *at = aligned_alloc(4096, (bytes + 4095) & ~4095ul);

	memset(at, 0, bytes);
	return at;
}

static struct kcr_ring_status *fake_status(int rank, int peer, int wire,
					   int stream, int class)
{
	return &fake.rank[rank].conns[peer][wire].status->rings[stream][class];
}

/* What the sender @peer may see of the ring that @rank has opened to it. */
static void fake_credit(int rank, int peer, int wire, int stream, int class)
{
	struct fake_ring *ring =
		&fake.rank[rank].conns[peer][wire].in[stream][class];
	struct kcr_ring_status *theirs = fake_status(peer, rank, wire, stream, class);

	ring->returned = ring->released;
	__atomic_store_n(&theirs->acked, ring->returned, __ATOMIC_RELEASE);
	__atomic_store_n(&theirs->limit, ring->returned + ring->depth,
			 __ATOMIC_RELEASE);
	fake_move(peer);
}

/* The credit of the first ring that owes one. Returns whether there was one. */
static bool fake_return_one(int rank, int peer, int wire)
{
	struct fake_conn *c = &fake.rank[rank].conns[peer][wire];

	for (int s = 0; s < KCR_STREAMS; s++)
		for (int class = 0; class < KCR_CLASSES; class++)
			if (c->in[s][class].released != c->in[s][class].returned) {
				fake_credit(rank, peer, wire, s, class);
				return true;
			}
	return false;
}

static void fake_return_all(int rank, int peer, int wire)
{
	fake.rank[rank].conns[peer][wire].is_holding = false;
	while (fake_return_one(rank, peer, wire))
		;
}

static int fake_class(uint32_t bytes)
{
	int class = 0;

	while (KCR_CLASS_BYTES(class) < bytes)
		class++;
	return class;
}

/* ---- commands; each under the lock ---- */

static int fake_connect(struct kcr_connect *a)
{
	struct fake_conn *c = &fake.rank[fake_me].conns[a->peer][a->wire];
	struct fake_conn *other = &fake.rank[a->peer].conns[fake_me][a->wire];

	if (c->status)
		return -EEXIST;
	c->status = fake_page(sizeof(*c->status));
	c->depth = a->depth + 1;
	c->status->depth = c->depth;
	memcpy(c->status->local, a->local, sizeof(a->local));
	memcpy(c->status->remote, a->remote, sizeof(a->remote));
	strcpy((char *)c->status->device, "fake");
	if (a->peer < (uint32_t)fake_me) {
		c->status->state = KCR_CONN_EXPECTED;
		return 0;
	}
	if (!other->status) {
		c->status->reason = KCR_REASON_RANK;
		c->status->error = ECONNREFUSED;
		c->status->state = KCR_CONN_FAILED;
		return 0;
	}
	__atomic_store_n(&c->status->state, KCR_CONN_UP, __ATOMIC_RELEASE);
	__atomic_store_n(&other->status->state, KCR_CONN_UP, __ATOMIC_RELEASE);
	fake_move(fake_me);
	fake_move(a->peer);
	return 0;
}

static int fake_frames(struct kcr_frames *a)
{
	struct fake_conn *c = &fake.rank[fake_me].conns[a->peer][a->wire];
	struct fake_ring *ring = &c->in[a->stream][a->size_class];
	struct kcr_ring_status *mine;

	if (!c->status || c->status->state != KCR_CONN_UP)
		return -ENOTCONN;
	if (ring->frames)
		return -EEXIST;
	mine = &c->status->rings[a->stream][a->size_class];
	ring->depth = kcr_frames_depth(a->size_class, c->depth);
	ring->frames = fake_page((size_t)ring->depth * KCR_CLASS_BYTES(a->size_class));
	mine->depth = ring->depth;
	mine->wanted = 0;
	fake_credit(fake_me, a->peer, a->wire, a->stream, a->size_class);
	return 0;
}

static int fake_may_send(const struct kcr_send *a, int peer)
{
	struct fake_conn *to = &fake.rank[peer].conns[fake_me][a->wire];
	int class = fake_class(a->bytes);
	struct fake_ring *ring = &to->in[a->stream][class];

	if (!to->status ||
	    fake.rank[fake_me].conns[peer][a->wire].status->state != KCR_CONN_UP)
		return -ENOTCONN;
	if (!ring->frames) {
		to->status->rings[a->stream][class].wanted = 1;
		fake_move(peer);
		return -ENOBUFS;
	}
	if (a->sequence <= ring->sent)
		return -EALREADY;
	if (a->sequence != ring->sent + 1 ||
	    a->sequence > ring->returned + ring->depth)
		return -ENOBUFS;
	return 0;
}

static void fake_send_one(const struct kcr_send *a, int peer)
{
	int class = fake_class(a->bytes);
	struct fake_ring *ring =
		&fake.rank[peer].conns[fake_me][a->wire].in[a->stream][class];
	int place = ring->sent++ % ring->depth;

	memcpy(ring->frames + (size_t)place * KCR_CLASS_BYTES(class),
	       fake.rank[fake_me].board[a->window] + a->offset, a->bytes);
	ring->length[place] = a->bytes;
	fake_return_all(fake_me, peer, a->wire);
}

static int fake_send(struct kcr_send *a)
{
	struct fake_rank *me = &fake.rank[fake_me];
	int err = 0;

	for (int i = 0; i < 64; i++)
		if (a->mask >> i & 1 && !err)
			err = fake_may_send(a, a->base + i);
	if (!err && fake.refuse_every && ++me->sends % fake.refuse_every == 0)
		err = -ENOBUFS;
	me->refusals += err == -ENOBUFS;
	for (int i = 0; i < 64; i++) {
		if (!(a->mask >> i & 1))
			continue;
		if (!err)
			fake_send_one(a, a->base + i);
		else if (me->conns[a->base + i][a->wire].is_holding)
			fake_return_all(fake_me, a->base + i, a->wire);
	}
	return err;
}

static int fake_release(struct kcr_release *a)
{
	struct fake_conn *c = &fake.rank[fake_me].conns[a->peer][a->wire];
	struct fake_ring *ring = &c->in[a->stream][a->size_class];

	if (!c->status)
		return -ENOTCONN;
	if (!ring->frames || a->sequence > ring->delivered)
		return -EINVAL;
	if (a->sequence > ring->released)
		ring->released = a->sequence;
	c->status->rings[a->stream][a->size_class].released = ring->released;
	c->is_holding |= a->flags & KCR_RELEASE_MORE;
	if (c->status->state == KCR_CONN_UP && !c->is_holding)
		fake_return_all(fake_me, a->peer, a->wire);
	return 0;
}

static int fake_wait(struct kcr_wait *a)
{
	struct kcr_status *status = fake.rank[fake_me].status;
	struct timespec until;
	uint64_t ns;

	clock_gettime(CLOCK_REALTIME, &until);
	ns = until.tv_nsec + a->timeout_ns;
	until.tv_sec += ns / 1000000000;
	until.tv_nsec = ns % 1000000000;
	while (status->events == a->seen)
		if (pthread_cond_timedwait(&fake.event, &fake.lock, &until))
			return -ETIMEDOUT;
	return 0;
}

static int fake_fail_world(uint64_t cause)
{
	for (int r = 0; r < fake.ranks; r++) {
		if (!fake.rank[r].status->cause)
			__atomic_store_n(&fake.rank[r].status->cause, cause,
					 __ATOMIC_RELEASE);
		fake_move(r);
	}
	return 0;
}

static void fake_deliver(int rank, int peer, int wire, int stream, int class)
{
	struct fake_conn *c = &fake.rank[rank].conns[peer][wire];
	struct fake_ring *ring = &c->in[stream][class];
	struct kcr_ring_status *mine = &c->status->rings[stream][class];

	if (ring->delivered == ring->sent)
		return;
	memcpy(mine->length, ring->length, sizeof(mine->length));
	ring->delivered = ring->sent;
	__atomic_store_n(&mine->arrived, ring->delivered, __ATOMIC_RELEASE);
	fake_move(rank);
}

/* All that is on its way by one connection, and the peer's board with it. */
static void fake_deliver_all(int rank, int peer, int wire)
{
	struct fake_conn *c = &fake.rank[rank].conns[peer][wire];

	if (!c->status)
		return;
	for (int s = 0; s < KCR_STREAMS; s++)
		for (int class = 0; class < KCR_CLASSES; class++)
			fake_deliver(rank, peer, wire, s, class);
	if (fake.rank[peer].board[0])
		memcpy(&c->status->board, fake.rank[peer].board[0],
		       offsetof(struct kcr_board, sleeping));
	if (fake.rank[peer].board[0])
		__atomic_store_n(&c->status->board.beat_ns,
				 __atomic_load_n(&((struct kcr_board *)
						   fake.rank[peer].board[0])->beat_ns,
						 __ATOMIC_RELAXED),
				 __ATOMIC_RELAXED);
}

static int fake_leave(void)
{
	for (int peer = 0; peer < fake.ranks; peer++) {
		for (int wire = 0; wire < KCR_MAX_WIRES; wire++) {
			struct fake_conn *c = &fake.rank[peer].conns[fake_me][wire];

			if (!c->status || c->status->state != KCR_CONN_UP)
				continue;
			for (int s = 0; s < KCR_STREAMS; s++)
				for (int k = 0; k < KCR_CLASSES; k++)
					if (fake.rank[fake_me].conns[peer][wire].in[s][k].frames)
						fake_credit(fake_me, peer, wire, s, k);
			fake_deliver_all(peer, fake_me, wire);
			__atomic_store_n(&c->status->state, KCR_CONN_LEFT,
					 __ATOMIC_RELEASE);
		}
		fake.rank[peer].status->member[fake_me] = KCR_MEMBER_LEFT;
		fake.rank[peer].status->left++;
		fake_move(peer);
	}
	return 0;
}

static int fake_kick(struct kcr_kick *a)
{
	for (int i = 0; i < 64; i++)
		if (a->mask >> i & 1)
			fake_move(a->base + i);
	return 0;
}

static int fake_query(struct kcr_query *a)
{
	a->abi_version = KCR_ABI_VERSION;
	a->features = KCR_FEATURE_MESH;
	return 0;
}

static int fake_window(struct kcr_window *a)
{
	struct fake_rank *me = &fake.rank[fake_me];

	if (a->board_bytes)
		me->board[a->window] = fake_page(a->board_bytes);
	return 0;
}

static int fake_command(unsigned long request, void *a)
{
	switch (request) {
	case KCR_IOCTL_QUERY: return fake_query(a);
	case KCR_IOCTL_JOIN: return 0;
	case KCR_IOCTL_WINDOW: return fake_window(a);
	case KCR_IOCTL_CONNECT: return fake_connect(a);
	case KCR_IOCTL_FRAMES: return fake_frames(a);
	case KCR_IOCTL_SEND: return fake_send(a);
	case KCR_IOCTL_RELEASE: return fake_release(a);
	case KCR_IOCTL_WAIT: return fake_wait(a);
	case KCR_IOCTL_KICK: return fake_kick(a);
	case KCR_IOCTL_LEAVE: return fake_leave();
	case KCR_IOCTL_FAIL:
		return fake_fail_world(KCR_CAUSE(fake_me, ((struct kcr_fail *)a)->error));
	default: return -ENOTTY;
	}
}

/* ---- system calls ---- */

static bool fake_is_ours(int fd)
{
	return fd >= 0 && fd < FAKE_FDS && fake.owner[fd];
}

int __wrap_open(const char *path, int flags, ...)
{
	va_list args;
	int fd, mode;

	va_start(args, flags);
	mode = va_arg(args, int);
	va_end(args);
	if (strcmp(path, "/dev/kcollring"))
		return __real_open(path, flags, mode);
	fd = __real_open("/dev/null", O_RDWR | O_CLOEXEC);
	fake.owner[fd] = fake_me + 1;
	return fd;
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;
	int err;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (!fake_is_ours(fd))
		return __real_ioctl(fd, request, arg);
	pthread_mutex_lock(&fake.lock);
	err = fake_command(request, arg);
	pthread_mutex_unlock(&fake.lock);
	errno = -err;
	return err ? -1 : 0;
}

/* Slots and acknowledgements are the node's, by window and index. */
static void *fake_shared(uint64_t key, size_t bytes)
{
	for (int i = 0; i < fake.nr_parts; i++)
		if (fake.parts[i].key == key)
			return fake.parts[i].at;
	fake.parts[fake.nr_parts].key = key;
	fake.parts[fake.nr_parts].at = fake_page(bytes);
	return fake.parts[fake.nr_parts++].at;
}

static void *fake_map(uint64_t offset, size_t bytes)
{
	unsigned int window = offset >> 52, part = offset >> 48 & 15;
	unsigned int index = offset >> 32 & 0xffff, peer = index & 1023;
	struct fake_rank *me = &fake.rank[fake_me];

	switch (part) {
	case KCR_MAP_STATUS:
		return me->status;
	case KCR_MAP_BOARD:
		return fake.rank[index].board[window];
	case KCR_MAP_CONN:
		return me->conns[peer][window].status;
	case KCR_MAP_FRAMES:
		return me->conns[peer][window].in[index >> 10 & 3][index >> 12].frames;
	default:
		return fake_shared(offset | (uint64_t)fake.node[fake_me] << 8, bytes);
	}
}

void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	if (!fake_is_ours(fd))
		return __real_mmap(at, bytes, prot, flags, fd, offset);
	pthread_mutex_lock(&fake.lock);
	at = fake_map(offset, bytes);
	pthread_mutex_unlock(&fake.lock);
	if (at)
		return at;
	errno = ENXIO;
	return MAP_FAILED;
}

/* The memory is the fake's until it ends. */
int __wrap_munmap(void *at, size_t bytes)
{
	return 0;
}

/* ---- the network ---- */

static void *fake_network(void *arg)
{
	struct timespec t = { .tv_nsec = 20000 };
	unsigned int random = 1;

	while (!__atomic_load_n(&fake.is_ending, __ATOMIC_ACQUIRE)) {
		pthread_mutex_lock(&fake.lock);
		for (int r = 0; r < fake.ranks; r++)
			for (int p = 0; p < fake.ranks; p++)
				for (int w = 0; w < KCR_MAX_WIRES; w++)
					if (rand_r(&random) % 3)
						fake_deliver_all(r, p, w);
		pthread_mutex_unlock(&fake.lock);
		nanosleep(&t, NULL);
	}
	return NULL;
}

static void fake_start(int ranks)
{
	fake.ranks = ranks;
	fake.rank = calloc(ranks, sizeof(*fake.rank));
	for (int r = 0; r < ranks; r++) {
		fake.rank[r].status = fake_page(sizeof(struct kcr_status));
		memset(fake.rank[r].status->member, KCR_MEMBER_JOINED, ranks);
	}
	fake.nr_parts = 0;
	fake.is_ending = false;
	pthread_create(&fake.network, NULL, fake_network, NULL);
}

static void fake_stop(void)
{
	__atomic_store_n(&fake.is_ending, true, __ATOMIC_RELEASE);
	pthread_join(fake.network, NULL);
	for (int r = 0; r < fake.ranks; r++) {
		for (int w = 0; w < KCR_MAX_WINDOWS; w++)
			free(fake.rank[r].board[w]);
		for (int p = 0; p < fake.ranks; p++)
			for (int w = 0; w < KCR_MAX_WIRES; w++) {
				struct fake_conn *c = &fake.rank[r].conns[p][w];

				for (int i = 0; i < KCR_STREAMS * KCR_CLASSES; i++)
					free((&c->in[0][0])[i].frames);
				free(c->status);
			}
		free(fake.rank[r].status);
	}
	for (int i = 0; i < fake.nr_parts; i++)
		free(fake.parts[i].at);
	free(fake.rank);
}

#endif /* KCR_TEST_FAKE_MODULE_H */
