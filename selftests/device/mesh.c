// SPDX-License-Identifier: GPL-2.0
/*
 * The mesh: arguments, mappings, frames, credits, and what is paid for them
 *
 * "mesh_args" has two ranks that are not connected, "mesh_pair" two that are. How
 * connections are made is in mesh_connect.c, how they end in mesh_death.c.
 */
#include "kselftest_harness.h"
#include "mesh.h"

#include <sys/resource.h>

#define RANKS 2
#define PAGE 4096

FIXTURE(mesh_pair) {
	struct mesh_ranks r;
	struct dev_counters before;
	int *fd;
	unsigned char **board;
	struct kcr_conn_status *status[RANKS];
};

FIXTURE_SETUP(mesh_pair)
{
	const char *missing = mesh_missing();

	self->r.n = 0;
	self->before = dev_counters();
	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_EQ(0, mesh_ranks_open(&self->r, RANKS)) {
		MESH_LOG(self->r.status[0][1]);
		MESH_LOG(self->r.status[1][0]);
	}
	self->fd = self->r.fd;
	self->board = self->r.board;
	self->status[0] = self->r.status[0][1];
	self->status[1] = self->r.status[1][0];
}

FIXTURE_TEARDOWN(mesh_pair)
{
	mesh_ranks_close(&self->r);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
}

/* ---- arguments, by every form of the commands ---- */

FIXTURE(mesh_args) {
	struct dev_counters before;
	struct mesh_ranks r;
};

FIXTURE_VARIANT(mesh_args) {
	enum dev_form form;
};

FIXTURE_VARIANT_ADD(mesh_args, ioctl) {
	.form = DEV_IOCTL,
};

FIXTURE_VARIANT_ADD(mesh_args, uring) {
	.form = DEV_URING,
};

FIXTURE_VARIANT_ADD(mesh_args, async) {
	.form = DEV_ASYNC,
};

FIXTURE_VARIANT_ADD(mesh_args, sqpoll) {
	.form = DEV_SQPOLL,
};

FIXTURE_SETUP(mesh_args)
{
	const char *missing = mesh_missing();

	self->r.n = 0;
	self->before = dev_counters();
	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_EQ(0, mesh_ranks_join(&self->r, RANKS));
}

FIXTURE_TEARDOWN(mesh_args)
{
	mesh_ranks_close(&self->r);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
}

/* Room for a struct longer than the kernel knows. */
union longer {
	struct kcr_connect connect;
	struct kcr_send send;
	struct kcr_release release;
	struct kcr_frames frames;
	__u32 size;
	__u8 bytes[512];
};

#define CALL(op, args) dev_command(variant->form, self->r.fd[0], op, args, sizeof(*(args)))

/* What @right gives once @change is made to it. */
#define CHANGED(want, op, right, change) do {				\
	typeof(right) a = (right);					\
									\
	change;								\
	EXPECT_EQ(want, CALL(op, &a)) {					\
		TH_LOG("with %s", #change);				\
	}								\
} while (0)

/* Sizes, for a struct of @bytes: shorter, and longer with what is behind. */
#define SIZES(want, op, right) do {					\
	const __u32 bytes = sizeof(right);				\
	union longer a = { };						\
									\
	memcpy(&a, &(right), bytes);					\
	for (a.size = bytes - 1; a.size; a.size /= 2)			\
		EXPECT_EQ(-EINVAL, CALL(op, &a));			\
	EXPECT_EQ(-EINVAL, CALL(op, &a));				\
	/* The entry of a ring has 80 bytes for it. */			\
	for (a.size = bytes + 8; a.size <= 512; a.size += 8)		\
		EXPECT_EQ(variant->form == DEV_IOCTL || a.size <= 80 ? (want) : -E2BIG,	\
			  CALL(op, &a));				\
	a.size = variant->form == DEV_IOCTL ? 512 : 80;			\
	if (a.size > bytes) {						\
		a.bytes[a.size - 1] = 1;				\
		EXPECT_EQ(-E2BIG, CALL(op, &a));			\
		a.bytes[a.size - 1] = 0;				\
		a.bytes[bytes] = 1;					\
		EXPECT_EQ(-E2BIG, CALL(op, &a));			\
	}								\
	a.size = 8192;							\
	EXPECT_EQ(-E2BIG, CALL(op, &a));				\
} while (0)

TEST_F(mesh_args, connect)
{
	struct kcr_connect right = mesh_connect_args(1, 0);
	struct kcr_info before, after;

	ASSERT_EQ(0, dev_info(&self->r.world, 0, &before));
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.peer = 0);	/* itself */
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.peer = RANKS);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.peer = 1 | 1u << 16);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.peer = ~0);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.wire = KCR_MAX_WIRES);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.wire = 1u << 31);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.wire = ~0);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.timeout_ms = 0);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.timeout_ms = 600001);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.timeout_ms = ~0);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.depth = 0);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.depth = KCR_FRAMES_MAX);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.depth = ~0);
	CHANGED(-EOPNOTSUPP, KCR_CMD_CONNECT, right, a.flags = 1);
	CHANGED(-EOPNOTSUPP, KCR_CMD_CONNECT, right, a.flags = 1u << 31);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, memset(a.local, 0, 28));
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, memset(a.remote, 0, 28));
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.local[0] = AF_UNIX);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.remote[0] = AF_UNIX);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, a.remote[0] = AF_INET6);
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, memset(a.local, 0xff, 28));
	/* Where nobody is, or many. */
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, mesh_sockaddr(a.remote, "0.0.0.0", 0));
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, mesh_sockaddr(a.remote, "224.0.0.1", 0));
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, mesh_sockaddr(a.remote, "255.255.255.255", 0));
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, mesh_sockaddr6(a.local, "fd77::1");
		mesh_sockaddr6(a.remote, "::"));
	CHANGED(-EINVAL, KCR_CMD_CONNECT, right, mesh_sockaddr6(a.local, "fd77::1");
		mesh_sockaddr6(a.remote, "ff02::1"));
	/* None of these made anything. */
	EXPECT_EQ(-ENXIO, dev_map_error(self->r.fd[0], PROT_READ, MAP_SHARED,
					KCR_MMAP_OFFSET(0, KCR_MAP_CONN, 1), PAGE));
	ASSERT_EQ(0, dev_info(&self->r.world, 0, &after));
	EXPECT_EQ(before.pages, after.pages);
}

TEST_F(mesh_args, connect_sizes)
{
	struct kcr_connect right = mesh_connect_args(1, 0);

	/* The first that is right makes it. */
	EXPECT_EQ(0, CALL(KCR_CMD_CONNECT, &right));
	SIZES(-EEXIST, KCR_CMD_CONNECT, right);
}

TEST_F(mesh_args, send)
{
	struct kcr_send right = mesh_send_args(1, 0, 0, 0, 8, 1);

	/* Arguments are looked at before there is anything to send over. */
	EXPECT_EQ(-ENOTCONN, CALL(KCR_CMD_SEND, &right));
	SIZES(-ENOTCONN, KCR_CMD_SEND, right);
	CHANGED(-EOPNOTSUPP, KCR_CMD_SEND, right, a.flags = 1);
	CHANGED(-EOPNOTSUPP, KCR_CMD_SEND, right, a.flags = 1u << 31);
	CHANGED(-EOPNOTSUPP, KCR_CMD_SEND, right, a.reserved = 1);
	CHANGED(-EOPNOTSUPP, KCR_CMD_SEND, right, a.reserved = 1u << 31);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.window = KCR_MAX_WINDOWS);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.window = ~0);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.wire = KCR_MAX_WIRES);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.wire = ~0);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.stream = KCR_STREAMS);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.stream = ~0);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.bytes = 0);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.bytes = KCR_FRAME_BYTES_MAX + 1);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.bytes = 1u << 31);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.bytes = ~0);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.mask = 0);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.mask = 2);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.mask = 1ull << 63);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.base = RANKS);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, a.base = ~0);
	CHANGED(-EINVAL, KCR_CMD_SEND, right, (a.base = ~0, a.mask = 2));
	/* To itself there is no way, now as later. */
	CHANGED(-ENOTCONN, KCR_CMD_SEND, right, a.base = 0);
	ASSERT_EQ(0, mesh_connect(self->r.fd[0], 1, 0));
	CHANGED(-ENOTCONN, KCR_CMD_SEND, right, a.base = 0);
	CHANGED(-ENOTCONN, KCR_CMD_SEND, right, a.wire = 1);
	EXPECT_EQ(-ENOTCONN, CALL(KCR_CMD_SEND, &right));
}

TEST_F(mesh_args, release)
{
	struct kcr_release right = {
		.size = sizeof(right), .peer = 1, .sequence = 1,
	};

	EXPECT_EQ(-ENOTCONN, CALL(KCR_CMD_RELEASE, &right));
	SIZES(-ENOTCONN, KCR_CMD_RELEASE, right);
	CHANGED(-ENOTCONN, KCR_CMD_RELEASE, right, a.flags = KCR_RELEASE_MORE);
	CHANGED(-EOPNOTSUPP, KCR_CMD_RELEASE, right, a.flags = 2);
	CHANGED(-EINVAL, KCR_CMD_RELEASE, right, a.peer = RANKS);
	CHANGED(-EINVAL, KCR_CMD_RELEASE, right, a.peer = ~0);
	CHANGED(-EINVAL, KCR_CMD_RELEASE, right, a.wire = KCR_MAX_WIRES);
	CHANGED(-EINVAL, KCR_CMD_RELEASE, right, a.wire = ~0);
	CHANGED(-EINVAL, KCR_CMD_RELEASE, right, a.stream = KCR_STREAMS);
	CHANGED(-EINVAL, KCR_CMD_RELEASE, right, a.stream = ~0);
	CHANGED(-EINVAL, KCR_CMD_RELEASE, right, a.size_class = KCR_CLASSES);
	CHANGED(-EINVAL, KCR_CMD_RELEASE, right, a.size_class = ~0);
	CHANGED(-ENOTCONN, KCR_CMD_RELEASE, right, a.peer = 0);
	ASSERT_EQ(0, mesh_connect(self->r.fd[0], 1, 0));
	CHANGED(-ENOTCONN, KCR_CMD_RELEASE, right, a.peer = 0);
	CHANGED(-ENOTCONN, KCR_CMD_RELEASE, right, a.wire = 1);
	/* A ring that is closed. */
	EXPECT_EQ(-EINVAL, CALL(KCR_CMD_RELEASE, &right));
}

/* By ioctl alone. */
TEST_F(mesh_args, frames)
{
	struct kcr_frames right = { .size = sizeof(right), .peer = 1 };
	int fd = self->r.fd[0];

	if (variant->form != DEV_IOCTL) {
		EXPECT_EQ(-EOPNOTSUPP, CALL(_IOC_NR(KCR_IOCTL_FRAMES), &right));
		return;
	}
	SIZES(-ENOTCONN, _IOC_NR(KCR_IOCTL_FRAMES), right);
	CHANGED(-EOPNOTSUPP, _IOC_NR(KCR_IOCTL_FRAMES), right, a.flags = 1);
	CHANGED(-EINVAL, _IOC_NR(KCR_IOCTL_FRAMES), right, a.peer = RANKS);
	CHANGED(-EINVAL, _IOC_NR(KCR_IOCTL_FRAMES), right, a.peer = ~0);
	CHANGED(-EINVAL, _IOC_NR(KCR_IOCTL_FRAMES), right, a.wire = KCR_MAX_WIRES);
	CHANGED(-EINVAL, _IOC_NR(KCR_IOCTL_FRAMES), right, a.stream = KCR_STREAMS);
	CHANGED(-EINVAL, _IOC_NR(KCR_IOCTL_FRAMES), right, a.size_class = KCR_CLASSES);
	CHANGED(-EINVAL, _IOC_NR(KCR_IOCTL_FRAMES), right, a.size_class = ~0);
	EXPECT_EQ(-ENOTCONN, mesh_frames(fd, 1, 0, 0, 0));
	/* One that is made, but not up. */
	ASSERT_EQ(0, mesh_connect(self->r.fd[1], 0, 0));
	EXPECT_EQ(-ENOTCONN, mesh_frames(self->r.fd[1], 0, 0, 0, 0));
	EXPECT_EQ(-EFAULT, dev_ioctl(fd, KCR_IOCTL_FRAMES, (void *)8));
	EXPECT_EQ(-EFAULT, dev_ioctl(fd, KCR_IOCTL_CONNECT, (void *)8));
	EXPECT_EQ(-EFAULT, dev_ioctl(fd, KCR_IOCTL_SEND, (void *)8));
	EXPECT_EQ(-EFAULT, dev_ioctl(fd, KCR_IOCTL_RELEASE, (void *)8));
}

static void calls_of_all(struct __test_metadata *_metadata, enum dev_form form, int fd,
			 int want)
{
	struct kcr_connect connect = mesh_connect_args(1, 0);
	struct kcr_send send = mesh_send_args(1, 0, 0, 0, 8, 1);
	struct kcr_release release = { .size = sizeof(release), .peer = 1, .sequence = 1 };

	EXPECT_EQ(want, dev_command(form, fd, KCR_CMD_CONNECT, &connect, sizeof(connect)));
	EXPECT_EQ(want, dev_command(form, fd, KCR_CMD_SEND, &send, sizeof(send)));
	EXPECT_EQ(want, dev_command(form, fd, KCR_CMD_RELEASE, &release, sizeof(release)));
	EXPECT_EQ(want, mesh_frames(fd, 1, 0, 0, 0));
}

/* Who has not joined, and who has left. */
TEST_F(mesh_args, membership)
{
	int fd = dev_open();

	ASSERT_LE(0, fd);
	calls_of_all(_metadata, variant->form, fd, -ENOTCONN);
	close(fd);
	ASSERT_EQ(0, mesh_connect(self->r.fd[0], 1, 0));
	ASSERT_EQ(0, dev_leave(self->r.fd[0]));
	calls_of_all(_metadata, variant->form, self->r.fd[0], -ESHUTDOWN);
	EXPECT_EQ(-ESHUTDOWN, dev_map_error(self->r.fd[0], PROT_READ, MAP_SHARED,
					    KCR_MMAP_OFFSET(0, KCR_MAP_CONN, 1), PAGE));
}

struct stranger {
	int fd;
	enum dev_form form;
};

static void stranger(void *arg)
{
	struct stranger *s = arg;
	struct kcr_connect connect = mesh_connect_args(1, 1);
	struct kcr_send send = mesh_send_args(1, 0, 0, 0, 8, 1);
	struct kcr_release release = { .size = sizeof(release), .peer = 1, .sequence = 1 };

	CHILD_GIVES(-EPERM, dev_command(s->form, s->fd, KCR_CMD_CONNECT, &connect,
					sizeof(connect)));
	CHILD_GIVES(-EPERM, dev_command(s->form, s->fd, KCR_CMD_SEND, &send, sizeof(send)));
	CHILD_GIVES(-EPERM, dev_command(s->form, s->fd, KCR_CMD_RELEASE, &release,
					sizeof(release)));
	CHILD_GIVES(-EPERM, mesh_frames(s->fd, 1, 0, 0, 0));
	CHILD_GIVES(-EPERM, dev_map_error(s->fd, PROT_READ, MAP_SHARED,
					  KCR_MMAP_OFFSET(0, KCR_MAP_CONN, 1), PAGE));
}

/* Another mm: a child, before and while it is connected; its end changes nothing. */
TEST_F(mesh_args, child)
{
	struct stranger s = { self->r.fd[0], variant->form };
	int i;

	for (i = 0; i < 2; i++) {
		EXPECT_EQ(0, dev_child_status(dev_child(stranger, &s), 20));
		if (!i)
			ASSERT_EQ(0, mesh_ranks_connect(&self->r, 0, 1));
		ASSERT_TRUE(DEV_SOON(10, mesh_ranks_are_up(&self->r)));
	}
	EXPECT_EQ(0, self->r.status[0][1]->sent);
}

/* All the way, by one form of the commands. */
TEST_F(mesh_args, works)
{
	struct kcr_connect connect = mesh_connect_args(1, 0);
	struct kcr_release release = { .size = sizeof(release), .peer = 1 };
	struct kcr_conn_status *status;
	const unsigned char *frames;
	struct kcr_send send;
	unsigned int s;

	ASSERT_EQ(0, mesh_connect(self->r.fd[1], 0, 0));
	ASSERT_EQ(0, CALL(KCR_CMD_CONNECT, &connect));
	EXPECT_EQ(-EEXIST, CALL(KCR_CMD_CONNECT, &connect));
	status = mesh_status(self->r.fd[0], 1, 0);
	self->r.status[0][1] = status;
	ASSERT_NE(MAP_FAILED, status);
	ASSERT_TRUE(DEV_SOON(10, mesh_is_up(status)));
	EXPECT_EQ(-EEXIST, CALL(KCR_CMD_CONNECT, &connect));
	ASSERT_EQ(0, mesh_frames(self->r.fd[0], 1, 0, 2, 0));
	ASSERT_EQ(0, mesh_frames(self->r.fd[1], 0, 0, 2, 0));
	frames = mesh_map_frames(self->r.fd[0], 1, 0, 2, 0);
	ASSERT_NE(MAP_FAILED, frames);
	release.stream = 2;
	for (s = 1; s <= 20; s++) {
		/* There and back. */
		memset(self->r.board[0], s, 100);
		send = mesh_send_args(1, 0, 2, 0, 100, s);
		ASSERT_TRUE(DEV_SOON(10, mesh_limit(status, 2, 0) >= s));
		ASSERT_EQ(0, CALL(KCR_CMD_SEND, &send));
		EXPECT_EQ(-EALREADY, CALL(KCR_CMD_SEND, &send));
		ASSERT_TRUE(DEV_SOON(10, !mesh_release(self->r.fd[1], 0, 0, 2, 0, s)));
		memset(self->r.board[1], 0x80 + s, 50);
		ASSERT_TRUE(DEV_SOON(10, -ENOBUFS != mesh_send(self->r.fd[1], 0, 0, 2, 0, 50, s)));
		ASSERT_TRUE(DEV_SOON(10, mesh_arrived(status, 2, 0) == s));
		EXPECT_EQ(0x80 + s, frames[(s - 1) % 3 * PAGE]);
		EXPECT_EQ(0x80 + s, frames[(s - 1) % 3 * PAGE + 49]);
		release.sequence = s;
		ASSERT_EQ(0, CALL(KCR_CMD_RELEASE, &release));
		EXPECT_EQ(s, status->rings[2][0].released);
		EXPECT_EQ(0, CALL(KCR_CMD_RELEASE, &release));
		release.sequence = s + 1;
		EXPECT_EQ(-EINVAL, CALL(KCR_CMD_RELEASE, &release));
	}
	munmap((void *)frames, mesh_ring_bytes(0));
}

/* K3: entries of 64 bytes have no room for a command. */
TEST_F(mesh_pair, plain_ring)
{
	struct kcr_send send = mesh_send_args(1, 0, 0, 0, 8, 1);
	struct kcr_release release = { .size = sizeof(release), .peer = 1, .sequence = 1 };
	struct kcr_connect connect = mesh_connect_args(1, 1);
	struct io_uring ring;
	int fd = self->fd[0];

	if (io_uring_queue_init(1, &ring, 0))
		SKIP(return, "no io_uring here");
	EXPECT_EQ(-EINVAL, dev_ring_command(&ring, DEV_URING, fd, KCR_CMD_SEND, &send,
					    sizeof(send)));
	EXPECT_EQ(-EINVAL, dev_ring_command(&ring, DEV_URING, fd, KCR_CMD_RELEASE, &release,
					    sizeof(release)));
	EXPECT_EQ(-EINVAL, dev_ring_command(&ring, DEV_URING, fd, KCR_CMD_CONNECT, &connect,
					    sizeof(connect)));
	EXPECT_EQ(0, self->status[0]->sent);
	EXPECT_EQ(-ENXIO, dev_map_error(fd, PROT_READ, MAP_SHARED,
					KCR_MMAP_OFFSET(1, KCR_MAP_CONN, 1), PAGE));
	io_uring_queue_exit(&ring);
}

/* ---- mappings ---- */

#define MAP(wire, part, index) KCR_MMAP_OFFSET(wire, part, index)
#define MAP_GIVES(want, prot, flags, offset, bytes)			\
	EXPECT_EQ(want, dev_map_error(self->fd[0], prot, flags, offset, bytes))

/* One part's mapping: how it may not be had, and what may not become of it. */
static void expect_read_only(struct __test_metadata *_metadata, int fd, __u64 offset,
			     size_t bytes)
{
	unsigned char *p;

	EXPECT_EQ(-EACCES, dev_map_error(fd, PROT_WRITE, MAP_SHARED, offset, bytes));
	EXPECT_EQ(-EACCES, dev_map_error(fd, PROT_READ | PROT_WRITE, MAP_SHARED, offset, bytes));
	EXPECT_EQ(-EPERM, dev_map_error(fd, PROT_READ | PROT_EXEC, MAP_SHARED, offset, bytes));
	EXPECT_EQ(-EINVAL, dev_map_error(fd, PROT_READ, MAP_PRIVATE, offset, bytes));
	EXPECT_EQ(-EINVAL, dev_map_error(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE, offset, bytes));
	EXPECT_EQ(-EINVAL, dev_map_error(fd, PROT_READ, MAP_SHARED, offset, bytes + PAGE));
	EXPECT_EQ(-EINVAL, dev_map_error(fd, PROT_READ, MAP_SHARED, offset + PAGE, bytes));
	if (bytes > PAGE)
		EXPECT_EQ(-EINVAL, dev_map_error(fd, PROT_READ, MAP_SHARED, offset, bytes - PAGE));
	p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, offset);
	ASSERT_NE(MAP_FAILED, p);
	EXPECT_EQ(-1, mprotect(p, bytes, PROT_READ | PROT_WRITE));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(-1, mprotect(p, bytes, PROT_READ | PROT_EXEC));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(MAP_FAILED, mremap(p, bytes, bytes + PAGE, MREMAP_MAYMOVE));
	EXPECT_EQ(0, munmap(p, bytes));
}

TEST_F(mesh_pair, mappings)
{
	__u32 class;

	expect_read_only(_metadata, self->fd[0], MAP(0, KCR_MAP_CONN, 1), PAGE);
	MAP_GIVES(-ENXIO, PROT_READ, MAP_SHARED, MAP(0, KCR_MAP_CONN, 0), PAGE);
	MAP_GIVES(-ENXIO, PROT_READ, MAP_SHARED, MAP(0, KCR_MAP_CONN, RANKS), PAGE);
	MAP_GIVES(-ENXIO, PROT_READ, MAP_SHARED, MAP(0, KCR_MAP_CONN, 1023), PAGE);
	MAP_GIVES(-ENXIO, PROT_READ, MAP_SHARED, MAP(1, KCR_MAP_CONN, 1), PAGE);
	MAP_GIVES(-EINVAL, PROT_READ, MAP_SHARED, MAP(KCR_MAX_WIRES, KCR_MAP_CONN, 1), PAGE);
	MAP_GIVES(-EINVAL, PROT_READ, MAP_SHARED, MAP(0, KCR_MAP_CONN, 1 | 1 << 10), PAGE);
	MAP_GIVES(-EINVAL, PROT_READ, MAP_SHARED, MAP(0, KCR_MAP_CONN, 1 | 1 << 15), PAGE);
	MAP_GIVES(-EINVAL, PROT_READ, MAP_SHARED, MAP(0, KCR_MAP_FRAMES + 1, 1), PAGE);

	for (class = 0; class < KCR_CLASSES; class++) {
		__u64 at = MAP(0, KCR_MAP_FRAMES, KCR_FRAMES_INDEX(1, 2, class));
		size_t bytes = mesh_ring_bytes(class);

		MAP_GIVES(-ENXIO, PROT_READ, MAP_SHARED, at, bytes);
		ASSERT_EQ(0, mesh_frames(self->fd[0], 1, 0, 2, class));
		expect_read_only(_metadata, self->fd[0], at, bytes);
		/* Those of others are none of this. */
		MAP_GIVES(-ENXIO, PROT_READ, MAP_SHARED,
			  MAP(0, KCR_MAP_FRAMES, KCR_FRAMES_INDEX(1, 1, class)), bytes);
		MAP_GIVES(-ENXIO, PROT_READ, MAP_SHARED,
			  MAP(0, KCR_MAP_FRAMES, KCR_FRAMES_INDEX(0, 2, class)), bytes);
		MAP_GIVES(-ENXIO, PROT_READ, MAP_SHARED,
			  MAP(1, KCR_MAP_FRAMES, KCR_FRAMES_INDEX(1, 2, class)), bytes);
		MAP_GIVES(-EINVAL, PROT_READ, MAP_SHARED,
			  MAP(KCR_MAX_WIRES, KCR_MAP_FRAMES, KCR_FRAMES_INDEX(1, 2, class)), bytes);
		MAP_GIVES(-EINVAL, PROT_READ, MAP_SHARED,
			  MAP(0, KCR_MAP_FRAMES, KCR_FRAMES_INDEX(1, 3, class)), bytes);
	}
	MAP_GIVES(-EINVAL, PROT_READ, MAP_SHARED,
		  MAP(0, KCR_MAP_FRAMES, KCR_FRAMES_INDEX(1, 2, KCR_CLASSES)), PAGE);
}

/* K12: what is mapped stays, as it is, until it is unmapped. */
TEST_F(mesh_pair, touched_after_close)
{
	const unsigned char *frames;
	size_t bytes = KCR_CLASS_BYTES(6) - 5;
	int round;

	ASSERT_EQ(0, mesh_frames(self->fd[1], 0, 0, 1, 6));
	frames = mesh_map_frames(self->fd[1], 0, 0, 1, 6);
	ASSERT_NE(MAP_FAILED, frames);
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(self->status[0], 1, 6)));
	mesh_fill(self->board[0], bytes, 5);
	ASSERT_EQ(0, mesh_send(self->fd[0], 1, 0, 1, 0, bytes, 1));
	ASSERT_TRUE(DEV_SOON(10, mesh_arrived(self->status[1], 1, 6) == 1));
	close(self->fd[1]);
	self->fd[1] = -1;
	for (round = 0; round < 3; round++) {
		EXPECT_EQ(0, memcmp(frames, self->board[0], bytes));
		EXPECT_EQ(bytes, self->status[1]->rings[1][6].length[0]);
		EXPECT_EQ(1, self->status[1]->received);
		if (!round) {
			close(self->fd[0]);
			self->fd[0] = -1;
		}
		dev_sleep(0.3);
	}
	EXPECT_EQ(0, munmap((void *)frames, mesh_ring_bytes(6)));
}

/* ---- frames ---- */

/* What a frame holds: depends on the rank, the frame and the place. */
static void fill(unsigned char *at, size_t bytes, int rank, unsigned int frame)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = rank * 101 + frame * 37 + i * 7 + (i >> 8) * 3;
}

static bool is_filled(const unsigned char *at, size_t bytes, int rank, unsigned int frame)
{
	for (size_t i = 0; i < bytes; i++)
		if (at[i] != (unsigned char)(rank * 101 + frame * 37 + i * 7 + (i >> 8) * 3))
			return false;
	return true;
}

TEST_F(mesh_pair, up)
{
	int i;

	for (i = 0; i < RANKS; i++) {
		struct kcr_conn_status *s = self->status[i];

		EXPECT_STREQ("rxe0", (char *)s->device);
		EXPECT_EQ(MESH_DEPTH + 1, s->depth);
		EXPECT_LE(1024, s->mtu);
		EXPECT_EQ(0, memcmp(s->local_gid, s->remote_gid, 16));
	}
}

/* Every class, around the ring three times, in both directions. */
TEST_F(mesh_pair, frames)
{
	for (int class = 0; class < KCR_CLASSES; class++) {
		size_t most = KCR_CLASS_BYTES(class);
		const unsigned char *frames[RANKS];
		struct kcr_ring_status *ring;
		unsigned int depth, place;

		for (int i = 0; i < RANKS; i++) {
			ASSERT_EQ(0, mesh_frames(self->fd[i], !i, 0, 1, class));
			EXPECT_EQ(-EEXIST, mesh_frames(self->fd[i], !i, 0, 1, class));
			frames[i] = mesh_map_frames(self->fd[i], !i, 0, 1, class);
			ASSERT_NE(MAP_FAILED, frames[i]);
		}
		depth = self->status[0]->rings[1][class].depth;
		for (unsigned int s = 1; s <= 3 * depth; s++) {
			for (int i = 0; i < RANKS; i++) {
				size_t bytes = s % 3 ? most - s : most / 2 + 1;

				fill(self->board[i] + 64, bytes, i, s);
				ASSERT_TRUE(DEV_SOON(10, mesh_limit(self->status[i], 1,
								    class) >= s));
				ASSERT_EQ(0, mesh_send(self->fd[i], !i, 0, 1, 64, bytes, s));
				ASSERT_TRUE(DEV_SOON(10, mesh_arrived(self->status[!i], 1,
								      class) == s));
				ring = &self->status[!i]->rings[1][class];
				place = (s - 1) % depth;
				EXPECT_EQ(bytes, ring->length[place]);
				EXPECT_TRUE(is_filled(frames[!i] + place * most, bytes, i, s));
				ASSERT_EQ(0, mesh_release(self->fd[!i], i, 0, 1, class, s));
			}
		}
		for (int i = 0; i < RANKS; i++)
			munmap((void *)frames[i], mesh_ring_bytes(class));
	}
}

/* No credit, no frame; a ring that is closed is asked for. */
TEST_F(mesh_pair, credits)
{
	struct kcr_ring_status *ring = &self->status[1]->rings[0][0];
	unsigned int s;

	EXPECT_EQ(-ENOBUFS, mesh_send(self->fd[0], 1, 0, 0, 0, 8, 1));
	ASSERT_TRUE(DEV_SOON(10, __atomic_load_n(&ring->wanted, __ATOMIC_ACQUIRE)));
	ASSERT_EQ(0, mesh_frames(self->fd[1], 0, 0, 0, 0));
	EXPECT_EQ(0, ring->wanted);
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(self->status[0], 0, 0) == 3));
	EXPECT_EQ(-ENOBUFS, mesh_send(self->fd[0], 1, 0, 0, 0, 8, 2));
	for (s = 1; s <= 3; s++)
		EXPECT_EQ(0, mesh_send(self->fd[0], 1, 0, 0, 0, 8, s));
	EXPECT_EQ(-EALREADY, mesh_send(self->fd[0], 1, 0, 0, 0, 8, 3));
	EXPECT_EQ(-ENOBUFS, mesh_send(self->fd[0], 1, 0, 0, 0, 8, 4));
	ASSERT_TRUE(DEV_SOON(10, mesh_arrived(self->status[1], 0, 0) == 3));
	EXPECT_EQ(-EINVAL, mesh_release(self->fd[1], 0, 0, 0, 0, 4));
	/* Nothing is kept back, nor returned twice. */
	EXPECT_EQ(0, mesh_release(self->fd[1], 0, 0, 0, 0, 1));
	EXPECT_TRUE(DEV_SOON(10, mesh_limit(self->status[0], 0, 0) == 4));
	EXPECT_EQ(0, mesh_release(self->fd[1], 0, 0, 0, 0, 2));
	EXPECT_EQ(0, mesh_release(self->fd[1], 0, 0, 0, 0, 1));
	EXPECT_TRUE(DEV_SOON(10, mesh_limit(self->status[0], 0, 0) == 5));
}

/*
 * S8: every length at which something changes, from places in the board where
 * something does; nothing behind the frame is written.
 */
TEST_F(mesh_pair, lengths)
{
	static const __u32 edges[] = { 0, 1, PAGE - 1, PAGE, PAGE + 1, (1 << 20) - 3, ~0u };
	const unsigned char *frames[KCR_CLASSES];
	__u64 sequence[KCR_CLASSES] = { };
	__u32 lengths[64], nr = 0, k, class;
	unsigned char behind[64];

	for (k = 0; k < KCR_CLASSES; k++) {
		ASSERT_EQ(0, mesh_frames(self->fd[1], 0, 0, 0, k));
		frames[k] = mesh_map_frames(self->fd[1], 0, 0, 0, k);
		ASSERT_NE(MAP_FAILED, frames[k]);
		ASSERT_TRUE(DEV_SOON(10, mesh_limit(self->status[0], 0, k)));
	}
	for (k = 1; k < 9; k += 2)
		lengths[nr++] = k;
	for (k = 10; k <= 19; k++) {
		lengths[nr++] = (1u << k) - 1;
		lengths[nr++] = 1u << k;
		lengths[nr++] = (1u << k) + 1;
	}
	mesh_fill(self->board[0], MESH_BOARD, 1);
	EXPECT_EQ(KCR_FRAME_BYTES_MAX + 1, lengths[nr - 1]);
	for (k = 0; k < nr; k++) {
		__u32 bytes = lengths[k], e;

		for (class = 0; KCR_CLASS_BYTES(class) < bytes; class++)
			;
		for (e = 0; e < sizeof(edges) / sizeof(edges[0]); e++) {
			/* The last one ends with the board. */
			__u64 at = edges[e] == ~0u ? MESH_BOARD - bytes : edges[e];
			struct kcr_ring_status *ring;
			const unsigned char *frame;
			__u64 s;
			__u32 rest;

			if (bytes > KCR_FRAME_BYTES_MAX) {
				EXPECT_EQ(-EINVAL, mesh_send(self->fd[0], 1, 0, 0, at, bytes, 1));
				continue;
			}
			ring = &self->status[1]->rings[0][class];
			s = ++sequence[class];
			frame = frames[class] + (s - 1) % ring->depth * KCR_CLASS_BYTES(class);
			rest = KCR_CLASS_BYTES(class) - bytes;
			rest = rest < sizeof(behind) ? rest : sizeof(behind);
			memcpy(behind, frame + bytes, rest);
			ASSERT_TRUE(DEV_SOON(10, mesh_limit(self->status[0], 0, class) >= s));
			ASSERT_EQ(0, mesh_send(self->fd[0], 1, 0, 0, at, bytes, s));
			ASSERT_TRUE(DEV_SOON(10, mesh_arrived(self->status[1], 0, class) == s)) {
				TH_LOG("%u bytes from %llu", bytes, at);
			}
			EXPECT_EQ(bytes, ring->length[(s - 1) % ring->depth]);
			EXPECT_EQ(0, memcmp(frame, self->board[0] + at, bytes)) {
				TH_LOG("%u bytes from %llu", bytes, at);
			}
			EXPECT_EQ(0, memcmp(frame + bytes, behind, rest));
			ASSERT_EQ(0, mesh_release(self->fd[1], 0, 0, 0, class, s));
		}
	}
	for (k = 0; k < KCR_CLASSES; k++)
		munmap((void *)frames[k], mesh_ring_bytes(k));
}

/* Frames that do not lie in the board; they use up nothing. */
TEST_F(mesh_pair, outside_the_board)
{
	int fd = self->fd[0];

	ASSERT_EQ(0, dev_window(fd, 1, NULL, 0, 0));
	ASSERT_EQ(0, dev_window(self->fd[1], 2, NULL, 0, PAGE));
	ASSERT_EQ(0, mesh_frames(self->fd[1], 0, 0, 0, 0));
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(self->status[0], 0, 0) == 3));
	EXPECT_EQ(-EINVAL, mesh_send(fd, 1, 0, 0, MESH_BOARD, 1, 1));
	EXPECT_EQ(-EINVAL, mesh_send(fd, 1, 0, 0, MESH_BOARD - 1, 2, 1));
	EXPECT_EQ(-EINVAL, mesh_send(fd, 1, 0, 0, MESH_BOARD - 4095, 4096, 1));
	EXPECT_EQ(-EINVAL, mesh_send(fd, 1, 0, 0, 1ull << 32, 8, 1));
	EXPECT_EQ(-EINVAL, mesh_send(fd, 1, 0, 0, 1ull << 63, 8, 1));
	EXPECT_EQ(-EINVAL, mesh_send(fd, 1, 0, 0, ~0ull, 1, 1));
	EXPECT_EQ(-EINVAL, mesh_send(fd, 1, 0, 0, ~0ull - 7, 8, 1));
	EXPECT_EQ(-EINVAL, mesh_send(fd, 1, 0, 0, ~0ull - 6, 8, 1));
	for (int window = 1; window < 4; window++) {
		/* Without boards; of another rank alone; none at all. */
		struct kcr_send args = mesh_send_args(1, 0, 0, 0, 8, 1);

		args.window = window;
		EXPECT_EQ(-ENXIO, dev_ioctl(fd, KCR_IOCTL_SEND, &args)) {
			TH_LOG("window %d", window);
		}
	}
	EXPECT_EQ(0, self->status[0]->sent);
	EXPECT_EQ(0, mesh_send(fd, 1, 0, 0, MESH_BOARD - 1, 1, 1));
	ASSERT_TRUE(DEV_SOON(10, mesh_arrived(self->status[1], 0, 0) == 1));
}

/* The same, of a board that nobody would take for a whole number of frames. */
TEST_F(mesh_pair, small_board)
{
	struct kcr_send args = mesh_send_args(1, 0, 0, 3 * PAGE - 1, 1, 1);
	unsigned char *board;

	for (int i = 0; i < RANKS; i++)
		ASSERT_EQ(0, dev_window(self->fd[i], 15, NULL, 0, 3 * PAGE));
	board = dev_map(self->fd[0], PROT_READ | PROT_WRITE, 15, KCR_MAP_BOARD, 0, 3 * PAGE);
	ASSERT_NE(MAP_FAILED, board);
	ASSERT_EQ(0, mesh_frames(self->fd[1], 0, 0, 0, 0));
	ASSERT_EQ(0, mesh_frames(self->fd[1], 0, 0, 0, 2));
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(self->status[0], 0, 2)));
	args.window = 15;
	EXPECT_EQ(0, dev_ioctl(self->fd[0], KCR_IOCTL_SEND, &args));
	args.bytes = 3 * PAGE;
	EXPECT_EQ(-EINVAL, dev_ioctl(self->fd[0], KCR_IOCTL_SEND, &args));
	args.offset = 1;
	EXPECT_EQ(-EINVAL, dev_ioctl(self->fd[0], KCR_IOCTL_SEND, &args));
	args.offset = 0;
	EXPECT_EQ(0, dev_ioctl(self->fd[0], KCR_IOCTL_SEND, &args));
	ASSERT_TRUE(DEV_SOON(10, mesh_arrived(self->status[1], 0, 2) == 1));
	munmap(board, 3 * PAGE);
}

/* A ring that is full keeps no other from moving. */
TEST_F(mesh_pair, streams)
{
	__u32 stream, class, s;

	for (stream = 0; stream < KCR_STREAMS; stream++)
		for (class = 0; class < 2; class++)
			ASSERT_EQ(0, mesh_frames(self->fd[1], 0, 0, stream, class));
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(self->status[0], KCR_STREAMS - 1, 1)));
	for (stream = 0; stream < KCR_STREAMS; stream++) {
		for (class = 0; class < 2; class++) {
			__u32 bytes = KCR_CLASS_BYTES(class);

			for (s = 1; s <= 3; s++)
				ASSERT_EQ(0, mesh_send(self->fd[0], 1, 0, stream, 0, bytes, s));
			EXPECT_EQ(-ENOBUFS, mesh_send(self->fd[0], 1, 0, stream, 0, bytes, 4));
			ASSERT_TRUE(DEV_SOON(10, mesh_arrived(self->status[1], stream,
							      class) == 3));
		}
	}
	/* Room in one is room in that one alone. */
	ASSERT_EQ(0, mesh_release(self->fd[1], 0, 0, 1, 1, 3));
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(self->status[0], 1, 1) == 6));
	for (stream = 0; stream < KCR_STREAMS; stream++)
		for (class = 0; class < 2; class++)
			EXPECT_EQ(stream == 1 && class == 1 ? 0 : -ENOBUFS,
				  mesh_send(self->fd[0], 1, 0, stream, 0,
					    KCR_CLASS_BYTES(class), 4));
	ASSERT_TRUE(DEV_SOON(10, mesh_arrived(self->status[1], 1, 1) == 4));
	EXPECT_EQ(3, mesh_arrived(self->status[1], 0, 1));
	EXPECT_EQ(0, self->status[0]->rings[0][0].acked);
	EXPECT_EQ(3, self->status[0]->rings[1][1].acked);
}

/* Whoever does nothing for a while loses nothing, and neither does its peer. */
TEST_F(mesh_pair, asleep)
{
	const unsigned char *frames;
	__u32 s;

	ASSERT_EQ(0, mesh_frames(self->fd[1], 0, 0, 0, 3));
	frames = mesh_map_frames(self->fd[1], 0, 0, 0, 3);
	ASSERT_NE(MAP_FAILED, frames);
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(self->status[0], 0, 3) == 3));
	for (s = 1; s <= 3; s++) {
		memset(self->board[0] + s * (1 << 16), s, 1 << 15);
		ASSERT_EQ(0, mesh_send(self->fd[0], 1, 0, 0, s * (1 << 16), 1 << 15, s));
	}
	dev_sleep(2.5);
	EXPECT_EQ(-ENOBUFS, mesh_send(self->fd[0], 1, 0, 0, 0, 1 << 15, 4));
	EXPECT_EQ(3, mesh_arrived(self->status[1], 0, 3));
	for (s = 1; s <= 3; s++)
		EXPECT_EQ(0, memcmp(frames + (s - 1) * (1 << 15),
				    self->board[0] + s * (1 << 16), 1 << 15));
	ASSERT_EQ(0, mesh_release(self->fd[1], 0, 0, 0, 3, 3));
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(self->status[0], 0, 3) == 6));
	for (s = 4; s <= 6; s++)
		ASSERT_EQ(0, mesh_send(self->fd[0], 1, 0, 0, 0, 1 << 15, s));
	ASSERT_TRUE(DEV_SOON(10, mesh_arrived(self->status[1], 0, 3) == 6));
	EXPECT_EQ(KCR_CONN_UP, mesh_state(self->status[0]));
	EXPECT_EQ(KCR_CONN_UP, mesh_state(self->status[1]));
	munmap((void *)frames, mesh_ring_bytes(3));
}

/* A board that is given up, and one that takes its number. */
TEST_F(mesh_pair, detached)
{
	const unsigned char *frames;
	int i;

	ASSERT_EQ(0, mesh_frames(self->fd[1], 0, 0, 0, 0));
	frames = mesh_map_frames(self->fd[1], 0, 0, 0, 0);
	ASSERT_NE(MAP_FAILED, frames);
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(self->status[0], 0, 0)));
	mesh_fill(self->board[0], PAGE, 1);
	ASSERT_EQ(0, mesh_send(self->fd[0], 1, 0, 0, 0, PAGE, 1));
	for (i = 0; i < RANKS; i++)
		ASSERT_EQ(0, dev_detach(self->fd[i], 0));
	EXPECT_EQ(-ENXIO, mesh_send(self->fd[0], 1, 0, 0, 0, PAGE, 2));
	ASSERT_TRUE(DEV_SOON(10, mesh_arrived(self->status[1], 0, 0) == 1));
	EXPECT_EQ(0, memcmp(frames, self->board[0], PAGE));
	for (i = 0; i < RANKS; i++)
		munmap(self->board[i], MESH_BOARD);
	for (i = 0; i < RANKS; i++) {
		ASSERT_EQ(0, dev_window(self->fd[i], 0, NULL, 0, MESH_BOARD));
		self->board[i] = dev_map(self->fd[i], PROT_READ | PROT_WRITE, 0, KCR_MAP_BOARD,
					 i, MESH_BOARD);
		ASSERT_NE(MAP_FAILED, self->board[i]);
	}
	mesh_fill(self->board[0], PAGE, 2);
	ASSERT_EQ(0, mesh_send(self->fd[0], 1, 0, 0, 0, PAGE, 2));
	ASSERT_TRUE(DEV_SOON(10, mesh_arrived(self->status[1], 0, 0) == 2));
	EXPECT_EQ(0, memcmp(frames + PAGE, self->board[0], PAGE));
	EXPECT_NE(0, memcmp(frames, self->board[0], PAGE));
	EXPECT_TRUE(mesh_ranks_are_up(&self->r));
	munmap((void *)frames, mesh_ring_bytes(0));
}

static long pages_of(const struct dev_world *w, int rank)
{
	struct kcr_info info;
	int err = dev_info(w, rank, &info);

	return err ? err : (long)info.pages;
}

/* A rank pays for its rings and connections, and for nothing of its peers. */
TEST_F(mesh_pair, pages)
{
	long before[RANKS];
	__u32 class;
	int i;

	for (i = 0; i < RANKS; i++) {
		before[i] = pages_of(&self->r.world, i);
		/* The board, and the connection's page. */
		EXPECT_EQ(MESH_BOARD / PAGE + 1, before[i]);
	}
	for (class = 0; class < KCR_CLASSES; class++) {
		long more = mesh_ring_bytes(class) / PAGE;

		ASSERT_EQ(0, mesh_frames(self->fd[0], 1, 0, class % 3, class));
		EXPECT_EQ(-EEXIST, mesh_frames(self->fd[0], 1, 0, class % 3, class));
		EXPECT_EQ(before[0] + more, pages_of(&self->r.world, 0));
		EXPECT_EQ(before[1], pages_of(&self->r.world, 1));
		before[0] += more;
	}
	ASSERT_EQ(0, mesh_connect(self->fd[0], 1, 1));
	EXPECT_EQ(before[0] + 1, pages_of(&self->r.world, 0));
}

static void short_of_memlock(void *arg)
{
	struct rlimit limit, low;
	struct mesh_ranks r;
	long pages;

	CHILD_GIVES(0, dev_become_nobody());
	CHILD_GIVES(0, getrlimit(RLIMIT_MEMLOCK, &limit));
	CHILD_TRUE(limit.rlim_max >= 8 << 20);
	CHILD_GIVES(0, mesh_ranks_open(&r, RANKS));
	pages = pages_of(&r.world, 0);
	/* Both ranks are this process; the ring is of 3 pages. */
	low = limit;
	low.rlim_cur = (pages + pages_of(&r.world, 1) + 2) * PAGE;
	CHILD_GIVES(0, setrlimit(RLIMIT_MEMLOCK, &low));
	CHILD_GIVES(-ENOMEM, mesh_frames(r.fd[0], 1, 0, 0, 0));
	CHILD_GIVES(-ENOMEM, mesh_frames(r.fd[0], 1, 0, 0, 7));
	CHILD_GIVES(pages, pages_of(&r.world, 0));
	CHILD_GIVES(-ENXIO, dev_map_error(r.fd[0], PROT_READ, MAP_SHARED,
					  MAP(0, KCR_MAP_FRAMES, KCR_FRAMES_INDEX(1, 0, 0)),
					  3 * PAGE));
	CHILD_GIVES(0, mesh_connect(r.fd[0], 1, 1));
	CHILD_GIVES(0, mesh_connect(r.fd[0], 1, 2));
	CHILD_GIVES(-ENOMEM, mesh_connect(r.fd[0], 1, 3));
	low.rlim_cur += 3 * PAGE;
	CHILD_GIVES(0, setrlimit(RLIMIT_MEMLOCK, &low));
	CHILD_GIVES(0, mesh_frames(r.fd[0], 1, 0, 0, 0));
	CHILD_GIVES(-ENOMEM, mesh_connect(r.fd[0], 1, 3));
	CHILD_GIVES(0, setrlimit(RLIMIT_MEMLOCK, &limit));
	CHILD_GIVES(0, mesh_connect(r.fd[0], 1, 3));
	CHILD_TRUE(mesh_is_up(r.status[0][1]));
}

TEST_F(mesh_pair, memlock)
{
	EXPECT_EQ(0, dev_child_status(dev_child(short_of_memlock, NULL), 20));
}

static void over_quota(void *arg)
{
	struct mesh_ranks r;
	struct kcr_query query;

	CHILD_GIVES(0, dev_become_nobody());
	CHILD_GIVES(0, mesh_ranks_open(&r, RANKS));
	dev_reach(arg, 1);
	CHILD_TRUE(dev_reached(arg, 2));
	CHILD_GIVES(0, dev_query(r.fd[0], &query));
	CHILD_GIVES(query.pages + 2, query.max_pages);
	CHILD_GIVES(-EDQUOT, mesh_frames(r.fd[0], 1, 0, 0, 0));
	CHILD_GIVES(0, mesh_connect(r.fd[0], 1, 1));
	CHILD_GIVES(0, mesh_connect(r.fd[1], 0, 1));
	CHILD_GIVES(-EDQUOT, mesh_connect(r.fd[0], 1, 2));
	dev_reach(arg, 3);
	CHILD_TRUE(dev_reached(arg, 4));
	CHILD_GIVES(0, mesh_frames(r.fd[0], 1, 0, 0, 0));
	CHILD_GIVES(0, mesh_connect(r.fd[0], 1, 2));
	CHILD_TRUE(mesh_is_up(r.status[0][1]));
}

TEST_F(mesh_pair, quota)
{
	long was = dev_read_number(DEV_PARAMETERS "max_pages_per_user");
	/* Two boards, two pages of connections, and two more. */
	long few = 2 * (MESH_BOARD / PAGE) + 4;
	int *stage = dev_shared(4096);
	pid_t pid;

	ASSERT_LT(few, was);
	pid = dev_child(over_quota, stage);
	EXPECT_TRUE(dev_reached(stage, 1));
	EXPECT_EQ(0, dev_write_number(DEV_PARAMETERS "max_pages_per_user", few));
	dev_reach(stage, 2);
	EXPECT_TRUE(dev_reached(stage, 3));
	EXPECT_EQ(0, dev_write_number(DEV_PARAMETERS "max_pages_per_user", was));
	dev_reach(stage, 4);
	EXPECT_EQ(0, dev_child_status(pid, 20));
	munmap(stage, 4096);
}

/* Connections are counted, too: their queues are the device's. */
static void over_connections(void *arg)
{
	struct mesh_ranks r;
	long pages;

	CHILD_GIVES(0, dev_become_nobody());
	CHILD_GIVES(0, mesh_ranks_join(&r, RANKS));
	CHILD_GIVES(0, mesh_ranks_connect(&r, 0, 1));
	pages = pages_of(&r.world, 0);
	CHILD_GIVES(-EDQUOT, mesh_connect(r.fd[0], 1, 1));
	CHILD_GIVES(-EDQUOT, mesh_connect(r.fd[1], 0, 1));
	CHILD_GIVES(pages, pages_of(&r.world, 0));
	CHILD_TRUE(DEV_SOON(10, mesh_ranks_are_up(&r)));
	/* Given back with the last of them. */
	mesh_ranks_close(&r);
	CHILD_GIVES(0, mesh_ranks_open(&r, RANKS));
}

TEST_F(mesh_pair, quota_of_connections)
{
	long was = dev_read_number(DEV_PARAMETERS "max_conns_per_user");

	ASSERT_EQ(0, dev_write_number(DEV_PARAMETERS "max_conns_per_user", 2));
	EXPECT_EQ(0, dev_child_status(dev_child(over_connections, NULL), 30));
	EXPECT_EQ(0, dev_write_number(DEV_PARAMETERS "max_conns_per_user", was));
}

static bool is_zero(const unsigned char *at, size_t bytes)
{
	return !at[0] && !memcmp(at, at + 1, bytes - 1);
}

/* Rings are new memory: of the frames that others had there nothing is to be seen. */
TEST_F(mesh_pair, zeroed)
{
	static const __u32 classes[] = { 0, 3, 7 };
	int round, i;
	__u64 s;

	for (round = 0; round < 3; round++) {
		if (round)
			ASSERT_EQ(0, mesh_ranks_open(&self->r, RANKS));
		memset(self->board[0], 0xee, MESH_BOARD);
		for (i = 0; i < ARRAY_SIZE(classes); i++) {
			struct kcr_conn_status *to = self->r.status[1][0];
			const unsigned char *frames;
			__u32 class = classes[i];

			ASSERT_EQ(0, mesh_frames(self->fd[1], 0, 0, 0, class));
			frames = mesh_map_frames(self->fd[1], 0, 0, 0, class);
			ASSERT_NE(MAP_FAILED, frames);
			EXPECT_TRUE(is_zero(frames, mesh_ring_bytes(class))) {
				TH_LOG("round %d, class %u", round, class);
			}
			ASSERT_TRUE(DEV_SOON(10, mesh_limit(self->r.status[0][1], 0, class)));
			for (s = 1; s <= kcr_frames_depth(class, MESH_DEPTH + 1); s++)
				ASSERT_EQ(0, mesh_send(self->fd[0], 1, 0, 0, 0,
						       KCR_CLASS_BYTES(class), s));
			EXPECT_TRUE(DEV_SOON(20, mesh_arrived(to, 0, class) == s - 1));
			EXPECT_FALSE(is_zero(frames, mesh_ring_bytes(class)));
			munmap((void *)frames, mesh_ring_bytes(class));
		}
		mesh_ranks_close(&self->r);
	}
}

/* ---- several peers ---- */

#define MANY 4

FIXTURE(mesh_many) {
	struct dev_counters before;
	struct mesh_ranks r;
};

FIXTURE_SETUP(mesh_many)
{
	const char *missing = mesh_missing();

	self->r.n = 0;
	self->before = dev_counters();
	if (missing)
		SKIP(return, "%s", missing);
	ASSERT_EQ(0, mesh_ranks_open(&self->r, MANY));
}

FIXTURE_TEARDOWN(mesh_many)
{
	mesh_ranks_close(&self->r);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
}

static int send_to(int fd, __u32 base, __u64 mask, __u32 bytes, __u64 sequence)
{
	struct kcr_send args = mesh_send_args(base, 0, 0, 0, bytes, sequence);

	args.mask = mask;
	return dev_ioctl(fd, KCR_IOCTL_SEND, &args);
}

/* One command to several: to all of them, or to none. */
TEST_F(mesh_many, all_or_none)
{
	struct mesh_ranks *r = &self->r;
	int i, fd = r->fd[1];

	for (i = 0; i < MANY; i += 2)
		ASSERT_EQ(0, mesh_frames(r->fd[i], 1, 0, 0, 0));
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(r->status[1][0], 0, 0)));
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(r->status[1][2], 0, 0)));
	/* Rank 3's ring is closed; it is asked for. */
	EXPECT_EQ(-ENOBUFS, send_to(fd, 0, 0xd, 8, 1));
	EXPECT_TRUE(DEV_SOON(10, r->status[3][1]->rings[0][0].wanted));
	/* To itself there is none. */
	EXPECT_EQ(-ENOTCONN, send_to(fd, 0, 0xf, 8, 1));
	EXPECT_EQ(-ENOTCONN, send_to(fd, 0, 0x3, 8, 1));
	EXPECT_EQ(-ENOTCONN, send_to(fd, 1, 0x3, 8, 1));
	EXPECT_EQ(-EINVAL, send_to(fd, 1, 0xd, 8, 1));
	EXPECT_EQ(-EINVAL, send_to(fd, 2, 7, 8, 1));
	for (i = 0; i < MANY; i++)
		if (i != 1)
			EXPECT_EQ(0, r->status[1][i]->sent);
	ASSERT_EQ(0, mesh_frames(r->fd[3], 1, 0, 0, 0));
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(r->status[1][3], 0, 0)));
	EXPECT_EQ(0, send_to(fd, 0, 0xd, 8, 1));
	EXPECT_EQ(0, send_to(fd, 2, 0x3, 8, 2));
	/* Rank 0 has not had the second yet, so none gets the third. */
	EXPECT_EQ(-ENOBUFS, send_to(fd, 0, 0xd, 8, 3));
	EXPECT_EQ(-EALREADY, send_to(fd, 2, 0x3, 8, 2));
	/* Who has it does not get it again. */
	EXPECT_EQ(0, send_to(fd, 0, 0xd, 8, 2));
	EXPECT_EQ(-EALREADY, send_to(fd, 0, 0xd, 8, 2));
	EXPECT_EQ(0, send_to(fd, 0, 0xd, 8, 3));
	/* Rank 2 has no place for a fourth, though the others have. */
	for (i = 0; i < MANY; i++)
		if (i != 1)
			ASSERT_TRUE(DEV_SOON(10, mesh_arrived(r->status[i][1], 0, 0) == 3));
	EXPECT_EQ(0, mesh_release(r->fd[0], 1, 0, 0, 0, 3));
	EXPECT_EQ(0, mesh_release(r->fd[3], 1, 0, 0, 0, 3));
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(r->status[1][0], 0, 0) == 6));
	ASSERT_TRUE(DEV_SOON(10, mesh_limit(r->status[1][3], 0, 0) == 6));
	EXPECT_EQ(-ENOBUFS, send_to(fd, 0, 0xd, 8, 4));
	for (i = 0; i < MANY; i++)
		if (i != 1)
			EXPECT_EQ(3, r->status[1][i]->sent);
}

/* Everybody sends to all others, again and again; all arrives, as it was. */
TEST_F(mesh_many, all_to_all)
{
	const unsigned char *frames[MANY][MANY];
	const __u32 class = 4, bytes = KCR_CLASS_BYTES(class) - 9;
	struct mesh_ranks *r = &self->r;
	int rounds = 20 * dev_scale();
	int s, i, j;

	for (i = 0; i < MANY; i++)
		for (j = 0; j < MANY; j++) {
			if (i == j)
				continue;
			ASSERT_EQ(0, mesh_frames(r->fd[i], j, 0, 0, class));
			frames[i][j] = mesh_map_frames(r->fd[i], j, 0, 0, class);
			ASSERT_NE(MAP_FAILED, frames[i][j]);
		}
	for (s = 1; s <= rounds; s++) {
		for (i = 0; i < MANY; i++) {
			mesh_fill(r->board[i], bytes, s * MANY + i);
			ASSERT_TRUE(DEV_SOON(10, !send_to(r->fd[i], 0, 0xf & ~(1 << i), bytes, s)));
		}
		for (i = 0; i < MANY; i++)
			for (j = 0; j < MANY; j++) {
				if (i == j)
					continue;
				ASSERT_TRUE(DEV_SOON(10, mesh_arrived(r->status[i][j], 0,
								      class) == s));
				EXPECT_EQ(0, memcmp(r->board[j], frames[i][j] +
						    (s - 1) % 3 * KCR_CLASS_BYTES(class), bytes));
				ASSERT_EQ(0, mesh_release(r->fd[i], j, 0, 0, class, s));
			}
	}
	for (i = 0; i < MANY; i++)
		for (j = 0; j < MANY; j++)
			if (i != j)
				munmap((void *)frames[i][j], mesh_ring_bytes(class));
}

TEST_HARNESS_MAIN
