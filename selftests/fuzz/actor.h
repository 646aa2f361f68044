/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Actors of the device's fuzzer: the processes that do what a program says
 *
 * They are a user without privileges, all of one process group, and end when they
 * are killed. What they have (descriptors, mappings, rings) has numbers; what is not
 * there is -1 or NULL, and is used all the same where the kernel has to cope.
 */
#ifndef KCR_FUZZ_ACTOR_H
#define KCR_FUZZ_ACTOR_H

#include <poll.h>
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "coverage.h"
#include "program.h"

#define BOARD_BYTES	65536
#define THREADS_MAX	3
#define RING_ENTRIES	32
/* How long an operation may hold up the next one, in seconds. */
#define TURN		0.05

struct stage {
	int turn;		/* operations that have ended, in their order */
	pid_t pid[ACTORS];
	int has_begun[ACTORS];
	int has_ended[ACTORS];
};

/* What all actors of a program share. */
struct play {
	const struct program *program;
	struct stage *stage;
	struct coverage *coverage;
	double slow;		/* how much slower than usual the machine is */
	int mail[ACTORS][2];
	__u64 nonce;		/* worlds of different programs differ */
};

struct mapping {
	unsigned char *at;
	size_t bytes;
	int prot;
};

struct actor {
	const struct play *play;
	__u32 number;
	int fd[FDS];
	struct mapping map[MAPS];
	struct io_uring ring[BY_WAYS];
	bool has_ring[BY_WAYS];
	pthread_mutex_t ring_lock;
	int threads;
	struct chance chance;
};

static __thread sigjmp_buf fault;
static __thread volatile sig_atomic_t may_fault;

/* This actor's, in the stage. */
static int *has_ended;

static inline void on_fault(int sig)
{
	if (!may_fault) {
		*has_ended = 1;
		_exit(1);
	}
	siglongjmp(fault, 1);
}

/* Copy from or to memory that may not be there. */
static __attribute__((noinline)) void touch(void *to, const void *from, size_t bytes)
{
	if (!sigsetjmp(fault, 1)) {
		may_fault = 1;
		memcpy(to, from, bytes);
	}
	may_fault = 0;
}

static inline int *actor_fd(struct actor *a, const struct op *o, const char *name)
{
	return &a->fd[arg(o, name) % FDS];
}

static inline struct mapping *actor_map(struct actor *a, const struct op *o)
{
	return &a->map[arg(o, "map") % MAPS];
}

/* ---- structs of the ABI ---- */

static inline void fill_join(struct actor *a, const struct op *o, void *args)
{
	struct kcr_join *j = args;
	__u64 id[2] = { a->play->nonce, arg(o, "world") };

	memcpy(j->id, id, sizeof(id));
	id[1] = arg(o, "key");
	memcpy(j->key, id, sizeof(id));
	j->rank = arg(o, "rank");
	j->ranks = arg(o, "ranks");
}

#define LANES	12
static __thread struct kcr_lane_desc lanes[LANES];

/* Lists of lanes, by their number: valid ones first. */
static inline void fill_window(struct actor *a, const struct op *o, void *args)
{
	static const struct kcr_lane_desc pairs[LANES] = {
		{ 0, 1 }, { 1, 0 }, { 0, 2 }, { 2, 0 }, { 1, 2 }, { 2, 1 },
		{ 0, 3 }, { 3, 0 }, { 1, 3 }, { 3, 1 }, { 2, 3 }, { 3, 2 },
	};
	struct kcr_window *w = args;

	w->window = arg(o, "window");
	w->board_bytes = arg(o, "board");
	w->nr_lanes = arg(o, "lanes");
	w->lanes = (unsigned long)lanes;
	for (int i = 0; i < LANES; i++) {
		lanes[i] = pairs[i];
		lanes[i].depth = arg(o, "depth");
		lanes[i].capacity = arg(o, "capacity");
	}
	switch (arg(o, "list")) {
	case 0:
		break;
	case 1:
		lanes[1] = lanes[0];
		break;
	case 2:
		lanes[0].destination = lanes[0].source;
		break;
	case 3:
		lanes[1].source = -1;
		break;
	case 4:
		w->lanes = 0;
		break;
	case 5:
		w->lanes = (unsigned long)actor_map(a, o)->at;
		break;
	default:
		w->lanes = -8ull;
	}
}

/* The same lists, most of which name others' lanes. */
static inline void fill_remote(struct actor *a, const struct op *o, void *args)
{
	struct kcr_window *w = args;

	fill_window(a, o, args);
	w->flags ^= KCR_WINDOW_REMOTE;
}

static inline void fill_put(struct actor *a, const struct op *o, void *args)
{
	struct kcr_put *p = args;

	p->window = arg(o, "window");
	p->peer = arg(o, "peer");
	p->sequence = arg(o, "sequence");
	p->count = arg(o, "count");
	p->reserved = arg(o, "reserved");
}

static inline void fill_ack(struct actor *a, const struct op *o, void *args)
{
	struct kcr_put_ack *p = args;

	p->window = arg(o, "window");
	p->peer = arg(o, "peer");
}

static inline void fill_arm(struct actor *a, const struct op *o, void *args)
{
	struct kcr_arm *p = args;

	p->flags ^= arg(o, "source") & KCR_ARM_SOURCE;
	p->window = arg(o, "window");
	p->peer = arg(o, "peer");
	p->seen = arg(o, "seen");
}

static inline void fill_detach(struct actor *a, const struct op *o, void *args)
{
	struct kcr_window_detach *d = args;

	d->window = arg(o, "window");
	d->reserved = arg(o, "reserved");
}

static inline void fill_frames(struct actor *a, const struct op *o, void *args)
{
	struct kcr_frames *f = args;

	f->peer = arg(o, "peer");
	f->wire = arg(o, "wire");
	f->stream = arg(o, "stream");
	f->size_class = arg(o, "class");
}

static inline void fill_wait(struct actor *a, const struct op *o, void *args)
{
	struct kcr_wait *w = args;

	w->seen = arg(o, "seen");
	w->timeout_ns = arg(o, "timeout");
	w->cookie = arg(o, "cookie");
}

static inline void fill_kick(struct actor *a, const struct op *o, void *args)
{
	struct kcr_kick *k = args;

	k->base = arg(o, "base");
	k->mask = arg(o, "mask");
	k->reserved = arg(o, "reserved");
}

static inline void fill_cancel(struct actor *a, const struct op *o, void *args)
{
	((struct kcr_cancel *)args)->cookie = arg(o, "cookie");
}

static inline void fill_fail(struct actor *a, const struct op *o, void *args)
{
	struct kcr_fail *f = args;

	f->error = arg(o, "error");
	f->reserved = arg(o, "reserved");
}

static inline void fill_address(__u8 out[28], __u64 which, int port)
{
	static const char *const text[] = {
		"10.77.0.1", "10.78.0.1", "127.0.0.1", "10.77.0.99", "0.0.0.0",
	};
	struct sockaddr_in6 v6 = {
		.sin6_family = AF_INET6,
		.sin6_port = htons(port),
		.sin6_addr = IN6ADDR_LOOPBACK_INIT,
	};

	if (which < sizeof(text) / sizeof(text[0]))
		mesh_sockaddr(out, text[which], port);
	else if (which == 5)
		memcpy(out, &v6, sizeof(v6));
	else
		memset(out, which, 28);
}

static inline void fill_connect(struct actor *a, const struct op *o, void *args)
{
	struct kcr_connect *c = args;

	c->peer = arg(o, "peer");
	c->wire = arg(o, "wire");
	c->timeout_ms = arg(o, "timeout");
	c->depth = arg(o, "depth");
	fill_address(c->local, arg(o, "local"), 0);
	fill_address(c->remote, arg(o, "remote"), arg(o, "port"));
}

static inline void fill_send(struct actor *a, const struct op *o, void *args)
{
	struct kcr_send *s = args;

	s->window = arg(o, "window");
	s->bytes = arg(o, "bytes");
	s->offset = arg(o, "offset");
	s->wire = arg(o, "wire");
	s->stream = arg(o, "stream");
	s->base = arg(o, "base");
	s->reserved = arg(o, "reserved");
	s->mask = arg(o, "mask");
	s->sequence = arg(o, "sequence");
}

static inline void fill_release(struct actor *a, const struct op *o, void *args)
{
	struct kcr_release *r = args;

	r->peer = arg(o, "peer");
	r->wire = arg(o, "wire");
	r->stream = arg(o, "stream");
	r->size_class = arg(o, "class");
	r->sequence = arg(o, "sequence");
}

static inline void fill_info(struct actor *a, const struct op *o, void *args)
{
	struct kcr_info *i = args;

	i->world = arg(o, "world");
	i->rank = arg(o, "rank");
}

/* ---- the ways that a struct takes ---- */

#define PAGE		4096
#define KERNEL_ADDRESS	0xffff888000100000ull

/* Two pages, the second of which nobody may touch. */
static inline unsigned char *edge_page(void)
{
	unsigned char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	mprotect(p + PAGE, PAGE, PROT_NONE);
	return p;
}

/*
 * Where a struct lies: where it should, nowhere, where it cannot be written, partly
 * behind the end, in the kernel, or in a mapping of the device.
 */
static inline void *place(struct actor *a, __u64 at, const void *args, size_t bytes,
			  unsigned char **page)
{
	unsigned char *p;

	*page = NULL;
	switch (at) {
	case 0:
		return (void *)args;
	case 1:
		return NULL;
	case 2:
	case 3:
		p = *page = edge_page();
		if (!p)
			return NULL;
		if (at == 3) {
			memcpy(p + PAGE - bytes / 2, args, bytes / 2);
			return p + PAGE - bytes / 2;
		}
		memcpy(p, args, bytes);
		mprotect(p, PAGE, PROT_READ);
		return p;
	case 4:
		return (void *)KERNEL_ADDRESS;
	default:
		p = a->map[at % MAPS].at;
		if (p)
			touch(p, args, bytes);
		return p;
	}
}

static inline struct io_uring *actor_ring(struct actor *a, __u64 by)
{
	struct io_uring_params p = { 0 };

	if (by != BY_SHORT)
		p.flags |= IORING_SETUP_SQE128;
	if (by == BY_SQPOLL)
		p.flags |= IORING_SETUP_SQPOLL;
	if (by == BY_IOPOLL)
		p.flags |= IORING_SETUP_IOPOLL;
	p.sq_thread_idle = 20;
	if (!a->has_ring[by])
		a->has_ring[by] = !io_uring_queue_init_params(RING_ENTRIES, &a->ring[by], &p);
	return a->has_ring[by] ? &a->ring[by] : NULL;
}

/* Take what has completed. */
static inline void reap(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;

	while (!io_uring_peek_cqe(ring, &cqe))
		io_uring_cqe_seen(ring, cqe);
}

static inline void command(struct actor *a, const struct op *o, __u64 by,
			   const void *args, size_t bytes)
{
	double until = dev_now() + arg(o, "ms") / 1e3;
	struct io_uring_sqe *sqe = NULL;
	struct io_uring *ring;

	pthread_mutex_lock(&a->ring_lock);
	ring = actor_ring(a, by);
	if (ring)
		sqe = dev_entry(ring, *actor_fd(a, o, "fd"), o->type->nr, args, bytes,
				o->value[0]);
	if (sqe) {
		sqe->flags = arg(o, "sqe");
		if (by == BY_ASYNC)
			sqe->flags |= IOSQE_ASYNC;
		if (sqe->flags & IOSQE_FIXED_FILE)
			sqe->fd = 0;
		io_uring_submit(ring);
	}
	if (ring)
		reap(ring);
	pthread_mutex_unlock(&a->ring_lock);
	while (ring && dev_now() < until) {
		dev_sleep(0.001);
		pthread_mutex_lock(&a->ring_lock);
		reap(ring);
		pthread_mutex_unlock(&a->ring_lock);
	}
}

/* A call of the ABI, whichever way it goes. */
static inline void run_call(struct actor *a, const struct op *o)
{
	__u64 by = arg(o, "by");
	__u8 args[512] = { 0 };
	unsigned char *page;
	__u32 head[2] = { arg(o, "size"), arg(o, "flags") };
	size_t bytes = o->type->bytes;
	void *p;

	memcpy(args, head, sizeof(head));
	if (o->type->fill)
		o->type->fill(a, o, args);
	args[bytes] = arg(o, "tail");
	if (by && by < BY_WAYS && o->type->nr >= KCR_CMD_WAIT) {
		command(a, o, by, args, bytes);
		return;
	}
	p = place(a, arg(o, "at"), args, bytes, &page);
	ioctl(*actor_fd(a, o, "fd"), _IO(KCR_IOCTL_TYPE, o->type->nr), p);
	if (page)
		munmap(page, 2 * PAGE);
}

/* ---- what is no call of the ABI ---- */

/* Any request, with any bytes. */
static inline void run_ioctl(struct actor *a, const struct op *o)
{
	struct chance c = { arg(o, "seed") };
	__u64 args[64];
	__u32 size = arg(o, "size");

	for (int i = 0; i < 64; i++)
		args[i] = one_in(&c, 2) ? any_number(&c) : 0;
	memcpy(args, &size, sizeof(size));
	ioctl(*actor_fd(a, o, "fd"), arg(o, "request"), args);
}

static inline void run_open(struct actor *a, const struct op *o)
{
	int *fd = actor_fd(a, o, "fd");
	static const int how[] = {
		O_RDWR, O_RDONLY, O_WRONLY, O_PATH, O_RDWR | O_NONBLOCK, O_RDWR | O_DIRECT,
		O_RDWR | O_APPEND | O_ASYNC,
	};

	/* What lay there stays open. */
	*fd = open(DEV_PATH, how[arg(o, "how") % 7] | (arg(o, "exec") ? 0 : O_CLOEXEC));
}

static inline void run_close(struct actor *a, const struct op *o)
{
	int *fd = actor_fd(a, o, "fd");

	close(*fd);
	*fd = -1;
}

static inline void run_dup(struct actor *a, const struct op *o)
{
	*actor_fd(a, o, "to") = fcntl(*actor_fd(a, o, "fd"), F_DUPFD_CLOEXEC, 3);
}

/* The usual length, for what is usually asked for. */
static inline size_t part_bytes(const struct op *o)
{
	struct kcr_lane_desc lane = { .depth = 4, .capacity = 64 };

	switch (arg(o, "part")) {
	case KCR_MAP_SLOTS:
		return dev_lane_bytes(&lane);
	case KCR_MAP_BOARD:
		return BOARD_BYTES;
	case KCR_MAP_FRAMES:
		return mesh_ring_bytes(arg(o, "index") >> 12 & 7);
	default:
		return PAGE;
	}
}

static inline void run_map(struct actor *a, const struct op *o)
{
	struct mapping *m = actor_map(a, o);
	int flags = arg(o, "how") == 1 ? MAP_PRIVATE : MAP_SHARED;
	__u64 bytes = arg(o, "bytes") ?: part_bytes(o);
	__u64 offset = KCR_MMAP_OFFSET(arg(o, "window"), arg(o, "part"), arg(o, "index"));
	int prot = arg(o, "prot") & 7;
	void *p;

	if (arg(o, "how") == 2)
		flags |= MAP_POPULATE;
	if (arg(o, "how") == 3)
		flags |= MAP_LOCKED;
	p = mmap(NULL, bytes, prot, flags, *actor_fd(a, o, "fd"), offset + arg(o, "skew"));
	if (p == MAP_FAILED)
		return;
	*m = (struct mapping){ p, bytes, prot };
}

/* The part of a mapping that an operation is about: from page to the end, or less. */
static inline struct mapping part_of(struct actor *a, const struct op *o)
{
	struct mapping m = *actor_map(a, o);
	size_t pages = m.bytes / PAGE, from = arg(o, "from"), n = arg(o, "pages");

	if (!pages)
		return (struct mapping){ 0 };
	from %= pages;
	if (!n || n > pages - from)
		n = pages - from;
	m.at += from * PAGE;
	m.bytes = n * PAGE;
	return m;
}

static inline void run_unmap(struct actor *a, const struct op *o)
{
	struct mapping m = part_of(a, o);

	if (!m.at)
		return;
	munmap(m.at, m.bytes);
	if (m.bytes == actor_map(a, o)->bytes)
		*actor_map(a, o) = (struct mapping){ 0 };
}

static inline void run_protect(struct actor *a, const struct op *o)
{
	struct mapping m = part_of(a, o);
	int prot = arg(o, "prot") & 7;

	if (m.at && !mprotect(m.at, m.bytes, prot))
		actor_map(a, o)->prot = prot;
}

static inline void run_advise(struct actor *a, const struct op *o)
{
	struct mapping m = part_of(a, o);

	if (m.at)
		madvise(m.at, m.bytes, arg(o, "advice"));
}

static inline void run_remap(struct actor *a, const struct op *o)
{
	struct mapping m = part_of(a, o);
	void *p;

	if (!m.at)
		return;
	p = mremap(m.at, m.bytes, arg(o, "bytes"), arg(o, "how") & 5, NULL);
	if (p != MAP_FAILED)
		*actor_map(a, o) = (struct mapping){ p, arg(o, "bytes"), m.prot };
}

static inline void run_lock(struct actor *a, const struct op *o)
{
	struct mapping m = part_of(a, o);

	if (!m.at)
		return;
	if (arg(o, "how") & 1)
		munlock(m.at, m.bytes);
	else
		mlock(m.at, m.bytes);
	msync(m.at, m.bytes, MS_SYNC);
}

/* Words that mean something, and others, on whatever may be written. */
static inline void scribble(struct mapping *m, struct chance *c, __u64 words)
{
	__u64 most = m->bytes / 8;

	if (!m->at || !(m->prot & PROT_WRITE) || !most)
		return;
	while (words--) {
		__u64 at = one_in(c, 2) ? below(c, most < 16 ? most : 16) : below(c, most);

		__u64 word = any_number(c);

		touch(m->at + at * 8, &word, sizeof(word));
	}
}

static inline void run_scribble(struct actor *a, const struct op *o)
{
	struct chance c = { arg(o, "seed") };
	__u64 words = arg(o, "words") & 0xffff;

	for (int i = 0; i < MAPS; i++)
		scribble(&a->map[i], &c, words);
}

static inline void run_look(struct actor *a, const struct op *o)
{
	struct mapping m = part_of(a, o);
	__u64 word;

	for (size_t i = 0; m.at && i < m.bytes; i += PAGE)
		touch(&word, m.at + i, sizeof(word));
}

/* References to pages that outlive the mapping: they stay in a pipe. */
static inline void run_splice(struct actor *a, const struct op *o)
{
	struct mapping m = part_of(a, o);
	struct iovec v = { m.at, m.bytes };
	int pipe[2];

	if (!m.at || pipe2(pipe, O_CLOEXEC | O_NONBLOCK))
		return;
	vmsplice(pipe[1], &v, 1, SPLICE_F_NONBLOCK);
	if (arg(o, "how") & 1) {
		close(pipe[0]);
		close(pipe[1]);
	}
}

/* Another process's memory, by way of the kernel. */
static inline void run_peek(struct actor *a, const struct op *o)
{
	struct mapping m = part_of(a, o);
	pid_t pid = a->play->stage->pid[arg(o, "actor") % ACTORS];
	unsigned char bytes[256] = { 0 };
	struct iovec here = { bytes, sizeof(bytes) }, there = { m.at, sizeof(bytes) };

	if (!m.at || pid <= 0)
		return;
	if (arg(o, "how") & 1)
		process_vm_writev(pid, &here, 1, &there, 1, 0);
	else
		process_vm_readv(pid, &here, 1, &there, 1, 0);
}

static inline void run_poll(struct actor *a, const struct op *o)
{
	struct pollfd p = { .fd = *actor_fd(a, o, "fd"), .events = arg(o, "events") };

	poll(&p, 1, arg(o, "ms") % 200);
}

static inline void run_file(struct actor *a, const struct op *o)
{
	int fd = *actor_fd(a, o, "fd");
	char bytes[64] = { 0 };

	switch (arg(o, "how")) {
	case 0:
		(void)!read(fd, bytes, sizeof(bytes));
		break;
	case 1:
		(void)!write(fd, bytes, sizeof(bytes));
		break;
	case 2:
		lseek(fd, 1ull << 40, SEEK_SET);
		break;
	case 3:
		(void)!ftruncate(fd, PAGE);
		break;
	case 4:
		fsync(fd);
		break;
	case 5:
		fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK);
		break;
	case 6:
		fcntl(fd, F_SETFD, 0);
		break;
	case 7:
		fallocate(fd, 0, 0, PAGE);
		break;
	default:
		(void)!pread(fd, bytes, sizeof(bytes), 1ull << 52);
	}
}

/* ---- io_uring beside commands ---- */

static inline void run_ring_close(struct actor *a, const struct op *o)
{
	__u64 by = arg(o, "by") % BY_WAYS;

	pthread_mutex_lock(&a->ring_lock);
	if (a->has_ring[by])
		io_uring_queue_exit(&a->ring[by]);
	a->has_ring[by] = false;
	pthread_mutex_unlock(&a->ring_lock);
}

static inline void run_ring_cancel(struct actor *a, const struct op *o)
{
	__u64 by = arg(o, "by") % BY_WAYS;
	struct io_uring_sqe *sqe;
	struct io_uring *ring;

	pthread_mutex_lock(&a->ring_lock);
	ring = actor_ring(a, by);
	sqe = ring ? io_uring_get_sqe(ring) : NULL;
	if (sqe) {
		io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ANY);
		io_uring_submit(ring);
		reap(ring);
	}
	pthread_mutex_unlock(&a->ring_lock);
}

static inline void run_ring_register(struct actor *a, const struct op *o)
{
	__u64 by = arg(o, "by") % BY_WAYS;
	struct io_uring *ring;

	pthread_mutex_lock(&a->ring_lock);
	ring = actor_ring(a, by);
	if (ring && arg(o, "how") & 1)
		io_uring_unregister_files(ring);
	else if (ring)
		io_uring_register_files(ring, actor_fd(a, o, "fd"), 1);
	pthread_mutex_unlock(&a->ring_lock);
}

/* ---- processes ---- */

static inline void actor_main(struct actor *a);

static inline void run_fork(struct actor *a, const struct op *o)
{
	struct stage *stage = a->play->stage;
	__u32 child = arg(o, "actor") % ACTORS;
	pid_t pid;

	if (__atomic_exchange_n(&stage->has_begun[child], 1, __ATOMIC_SEQ_CST))
		return;
	pid = fork();
	if (pid < 0) {
		stage->has_ended[child] = 1;
		return;
	}
	if (pid) {
		stage->pid[child] = pid;
		return;
	}
	stage->pid[child] = getpid();
	a->number = child;
	a->threads = 0;
	pthread_mutex_init(&a->ring_lock, NULL);
	actor_main(a);
}

static inline void run_kill(struct actor *a, const struct op *o)
{
	static const int signals[] = { SIGKILL, SIGSTOP, SIGCONT, SIGUSR1, SIGTERM };
	__u32 number = arg(o, "actor") % ACTORS;
	pid_t pid = a->play->stage->pid[number];
	int sig = signals[arg(o, "how") % 5];

	if (pid > 0)
		kill(pid, sig);
	if (sig == SIGKILL || sig == SIGTERM)
		a->play->stage->has_ended[number] = 1;
}

static inline void run_exit(struct actor *a, const struct op *o)
{
	a->play->stage->has_ended[a->number] = 1;
	_exit(0);
}

/* One that succeeds, or one that does not. */
static inline void run_exec(struct actor *a, const struct op *o)
{
	char *const args[] = { (char *)"sleep", (char *)"0.2", NULL };

	if (!(arg(o, "how") & 1))
		a->play->stage->has_ended[a->number] = 1;
	execv(arg(o, "how") & 1 ? "/dev/null" : "/bin/sleep", args);
}

static inline void run_pass(struct actor *a, const struct op *o)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec v = { (char *)"", 1 };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1,
		.msg_control = control.bytes, .msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), actor_fd(a, o, "fd"), sizeof(int));
	sendmsg(a->play->mail[arg(o, "actor") % ACTORS][0], &m, MSG_DONTWAIT);
}

static inline void run_take(struct actor *a, const struct op *o)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	char byte;
	struct iovec v = { &byte, 1 };
	struct msghdr m = {
		.msg_iov = &v, .msg_iovlen = 1,
		.msg_control = control.bytes, .msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *c;

	if (recvmsg(a->play->mail[a->number][1], &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
		return;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(actor_fd(a, o, "fd"), CMSG_DATA(c), sizeof(int));
}

static inline void run_pause(struct actor *a, const struct op *o)
{
	dev_sleep((arg(o, "ms") & 0x1ff) / 1e3 * a->play->slow);
}

static inline void run_limit(struct actor *a, const struct op *o)
{
	struct rlimit r = { arg(o, "bytes"), arg(o, "bytes") };

	setrlimit(RLIMIT_MEMLOCK, &r);
}

/* ---- all of them ---- */

const struct op_type op_types[] = {
	{ "open", 6, run_open, .args = {
		{ "fd", KIND_FD }, { "how", KIND_SMALL, 0 }, { "exec", KIND_FLAGS, 0 } } },
	{ "close", 5, run_close, .args = { { "fd", KIND_FD } } },
	{ "dup", 2, run_dup, .args = { { "fd", KIND_FD }, { "to", KIND_FD, 1 } } },
	{ "query", 1, run_call, NULL, 0x00, sizeof(struct kcr_query) },
	{ "join", 6, run_call, fill_join, 0x01, sizeof(struct kcr_join), .args = {
		{ "world", KIND_WORLD }, { "key", KIND_FLAGS, 7 },
		{ "rank", KIND_RANK }, { "ranks", KIND_RANKS, 2 } } },
	{ "window", 6, run_call, fill_window, 0x02, sizeof(struct kcr_window), .args = {
		{ "window", KIND_WINDOW },
		{ "lanes", KIND_SMALL, 2 }, { "list", KIND_FLAGS, 0 }, { "map", KIND_MAP },
		{ "depth", KIND_SIZE, 4 }, { "capacity", KIND_SIZE, 64 },
		{ "board", KIND_SIZE, BOARD_BYTES } } },
	{ "remote", 6, run_call, fill_remote, 0x02, sizeof(struct kcr_window), .args = {
		{ "window", KIND_WINDOW, 1 },
		{ "lanes", KIND_SMALL, 2 }, { "list", KIND_FLAGS, 0 }, { "map", KIND_MAP },
		{ "depth", KIND_SIZE, 4 }, { "capacity", KIND_SIZE, 64 } } },
	{ "detach", 4, run_call, fill_detach, 0x03, sizeof(struct kcr_window_detach), .args = {
		{ "window", KIND_WINDOW },
		{ "reserved", KIND_FLAGS, 0 } } },
	{ "info", 2, run_call, fill_info, 0x04, sizeof(struct kcr_info), .args = {
		{ "world", KIND_NUMBER, 0 },
		{ "rank", KIND_RANK } } },
	{ "frames", 4, run_call, fill_frames, 0x05, sizeof(struct kcr_frames), .args = {
		{ "peer", KIND_RANK, 1 }, { "wire", KIND_WIRE },
		{ "stream", KIND_STREAM }, { "class", KIND_CLASS } } },
	{ "wait", 8, run_call, fill_wait, KCR_CMD_WAIT, sizeof(struct kcr_wait), .args = {
		{ "seen", KIND_NUMBER, 0 },
		{ "timeout", KIND_TIMEOUT, 10 * DEV_SECOND },
		{ "cookie", KIND_SMALL, 1 } } },
	{ "kick", 5, run_call, fill_kick, KCR_CMD_KICK, sizeof(struct kcr_kick), .args = {
		{ "base", KIND_RANK }, { "mask", KIND_MASK, 3 },
		{ "reserved", KIND_FLAGS, 0 } } },
	{ "leave", 2, run_call, NULL, KCR_CMD_LEAVE, sizeof(struct kcr_leave) },
	{ "cancel", 4, run_call, fill_cancel, KCR_CMD_CANCEL, sizeof(struct kcr_cancel), .args = {
		{ "cookie", KIND_SMALL, 1 } } },
	{ "fail", 1, run_call, fill_fail, KCR_CMD_FAIL, sizeof(struct kcr_fail), .args = {
		{ "error", KIND_NUMBER, EIO },
		{ "reserved", KIND_FLAGS, 0 } } },
	{ "connect", 5, run_call, fill_connect, KCR_CMD_CONNECT,
	  sizeof(struct kcr_connect), .args = {
		{ "peer", KIND_RANK, 1 }, { "wire", KIND_WIRE },
		{ "local", KIND_ADDRESS, 0 }, { "remote", KIND_ADDRESS, 0 },
		{ "port", KIND_FLAGS, 0 }, { "timeout", KIND_SMALL, 5000 },
		{ "depth", KIND_SIZE, MESH_DEPTH } } },
	{ "send", 6, run_call, fill_send, KCR_CMD_SEND, sizeof(struct kcr_send), .args = {
		{ "window", KIND_WINDOW },
		{ "bytes", KIND_BYTES, 64 }, { "offset", KIND_BYTES, 0 },
		{ "wire", KIND_WIRE }, { "stream", KIND_STREAM }, { "base", KIND_RANK, 1 },
		{ "reserved", KIND_FLAGS, 0 }, { "mask", KIND_MASK, 1 },
		{ "sequence", KIND_SMALL, 1 } } },
	{ "release", 5, run_call, fill_release, KCR_CMD_RELEASE,
	  sizeof(struct kcr_release), .args = {
		{ "peer", KIND_RANK, 1 },
		{ "wire", KIND_WIRE }, { "stream", KIND_STREAM }, { "class", KIND_CLASS },
		{ "sequence", KIND_SMALL, 1 } } },
	{ "put", 6, run_call, fill_put, KCR_CMD_PUT, sizeof(struct kcr_put), .args = {
		{ "window", KIND_WINDOW, 1 }, { "peer", KIND_RANK, 1 },
		{ "sequence", KIND_SMALL, 1 }, { "count", KIND_SMALL, 1 },
		{ "reserved", KIND_FLAGS, 0 } } },
	{ "ack", 5, run_call, fill_ack, KCR_CMD_ACK, sizeof(struct kcr_put_ack), .args = {
		{ "window", KIND_WINDOW, 1 }, { "peer", KIND_RANK, 1 } } },
	{ "arm", 5, run_call, fill_arm, KCR_CMD_ARM, sizeof(struct kcr_arm), .args = {
		{ "window", KIND_WINDOW, 1 }, { "peer", KIND_RANK, 1 },
		{ "seen", KIND_SMALL, 0 }, { "source", KIND_SMALL, 0 } } },
	{ "ioctl", 2, run_ioctl, .args = {
		{ "fd", KIND_FD }, { "request", KIND_NUMBER, KCR_IOCTL_JOIN },
		{ "size", KIND_SIZE, 64 }, { "seed", KIND_SEED } } },
	{ "map", 10, run_map, .args = {
		{ "fd", KIND_FD }, { "map", KIND_MAP }, { "window", KIND_WINDOW },
		{ "part", KIND_PART }, { "index", KIND_RANK }, { "bytes", KIND_FLAGS, 0 },
		{ "prot", KIND_SMALL, PROT_READ }, { "how", KIND_FLAGS, 0 },
		{ "skew", KIND_FLAGS, 0 } } },
	{ "unmap", 4, run_unmap, .args = {
		{ "map", KIND_MAP }, { "from", KIND_SMALL, 0 }, { "pages", KIND_SMALL, 0 } } },
	{ "protect", 4, run_protect, .args = {
		{ "map", KIND_MAP }, { "from", KIND_SMALL, 0 }, { "pages", KIND_SMALL, 0 },
		{ "prot", KIND_SMALL, PROT_READ | PROT_WRITE } } },
	{ "advise", 3, run_advise, .args = {
		{ "map", KIND_MAP }, { "from", KIND_SMALL, 0 }, { "pages", KIND_SMALL, 0 },
		{ "advice", KIND_SMALL, MADV_DOFORK } } },
	{ "remap", 3, run_remap, .args = {
		{ "map", KIND_MAP }, { "from", KIND_SMALL, 0 }, { "pages", KIND_SMALL, 0 },
		{ "bytes", KIND_BYTES, 8192 }, { "how", KIND_SMALL, MREMAP_MAYMOVE } } },
	{ "lock", 1, run_lock, .args = {
		{ "map", KIND_MAP }, { "from", KIND_SMALL, 0 }, { "pages", KIND_SMALL, 0 },
		{ "how", KIND_SMALL, 0 } } },
	{ "scribble", 8, run_scribble, .args = {
		{ "words", KIND_BYTES, 16 }, { "seed", KIND_SEED } } },
	{ "look", 3, run_look, .args = {
		{ "map", KIND_MAP }, { "from", KIND_SMALL, 0 }, { "pages", KIND_SMALL, 0 } } },
	{ "splice", 2, run_splice, .args = {
		{ "map", KIND_MAP }, { "from", KIND_SMALL, 0 }, { "pages", KIND_SMALL, 0 },
		{ "how", KIND_SMALL, 0 } } },
	{ "peek", 2, run_peek, .args = {
		{ "map", KIND_MAP }, { "from", KIND_SMALL, 0 }, { "actor", KIND_ACTOR, 1 },
		{ "how", KIND_SMALL, 0 } } },
	{ "poll", 1, run_poll, .args = {
		{ "fd", KIND_FD }, { "events", KIND_NUMBER, POLLIN }, { "ms", KIND_MS, 0 } } },
	{ "file", 2, run_file, .args = { { "fd", KIND_FD }, { "how", KIND_SMALL, 0 } } },
	{ "ring-close", 3, run_ring_close, .args = { { "by", KIND_BY, BY_URING } } },
	{ "ring-cancel", 3, run_ring_cancel, .args = { { "by", KIND_BY, BY_URING } } },
	{ "ring-register", 2, run_ring_register, .args = {
		{ "by", KIND_BY, BY_URING }, { "fd", KIND_FD }, { "how", KIND_FLAGS, 0 } } },
	{ "fork", 4, run_fork, .args = { { "actor", KIND_ACTOR, 1 } } },
	{ "kill", 2, run_kill, .args = {
		{ "actor", KIND_ACTOR, 1 }, { "how", KIND_SMALL, 0 } } },
	{ "exit", 1, run_exit },
	{ "exec", 1, run_exec, .args = { { "how", KIND_SMALL, 0 } } },
	{ "pass", 2, run_pass, .args = {
		{ "fd", KIND_FD }, { "actor", KIND_ACTOR, 1 } } },
	{ "take", 2, run_take, .args = { { "fd", KIND_FD, 1 } } },
	{ "pause", 3, run_pause, .args = { { "ms", KIND_MS, 5 } } },
	{ "limit", 1, run_limit, .args = { { "bytes", KIND_NUMBER, 65536 } } },
};

const int nr_op_types = sizeof(op_types) / sizeof(op_types[0]);

/* ---- a life ---- */

struct apart {
	struct actor *actor;
	const struct op *op;
};

static inline void *apart_main(void *arg)
{
	struct apart t = *(struct apart *)arg;

	free(arg);
	coverage_begin(t.actor->play->coverage);
	t.op->type->run(t.actor, t.op);
	__atomic_fetch_sub(&t.actor->threads, 1, __ATOMIC_RELAXED);
	return NULL;
}

static inline void run_apart(struct actor *a, const struct op *o)
{
	struct apart *t = malloc(sizeof(*t));
	pthread_t thread;

	if (!t || __atomic_fetch_add(&a->threads, 1, __ATOMIC_RELAXED) >= THREADS_MAX)
		return;
	*t = (struct apart){ a, o };
	if (!pthread_create(&thread, NULL, apart_main, t))
		pthread_detach(thread);
}

/* Is this process done for, or has everybody done what there was to do? */
static inline bool all_have_ended(const struct stage *stage)
{
	for (int i = 0; i < ACTORS; i++)
		if (__atomic_load_n(&stage->has_begun[i], __ATOMIC_SEQ_CST) &&
		    !__atomic_load_n(&stage->has_ended[i], __ATOMIC_SEQ_CST))
			return false;
	return true;
}

/* Has what comes before been done, as far as there is still somebody to do it? */
static inline bool is_turn(const struct program *p, const struct stage *stage, int i)
{
	while (i > 0) {
		__u32 before = p->ops[i - 1].actor;

		if (__atomic_load_n(&stage->has_begun[before], __ATOMIC_SEQ_CST) &&
		    !__atomic_load_n(&stage->has_ended[before], __ATOMIC_SEQ_CST))
			break;
		i--;
	}
	return __atomic_load_n(&stage->turn, __ATOMIC_SEQ_CST) >= i;
}

static inline void actor_main(struct actor *a)
{
	const struct program *p = a->play->program;
	struct stage *stage = a->play->stage;
	int i;

	has_ended = &stage->has_ended[a->number];
	coverage_begin(a->play->coverage);
	for (i = 0; i < p->n; i++) {
		const struct op *o = &p->ops[i];

		if (o->actor != a->number)
			continue;
		if (!p->is_free)
			(void)DEV_SOON(TURN * a->play->slow, is_turn(p, stage, i));
		if (o->is_apart)
			run_apart(a, o);
		else
			o->type->run(a, o);
		if (__atomic_load_n(&stage->turn, __ATOMIC_SEQ_CST) <= i)
			__atomic_store_n(&stage->turn, i + 1, __ATOMIC_SEQ_CST);
	}
	__atomic_store_n(&stage->has_ended[a->number], 1, __ATOMIC_SEQ_CST);
	/* What it has goes when all are done. */
	while (!all_have_ended(stage))
		dev_sleep(0.001);
	_exit(0);
}

#endif /* KCR_FUZZ_ACTOR_H */
