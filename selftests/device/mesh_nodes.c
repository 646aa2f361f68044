// SPDX-License-Identifier: GPL-2.0
/*
 * The mesh between two nodes: what travels where the worlds are two, and what a
 * node refuses that knows another key
 *
 * Runs in both nodes at once (kcr-vm --nodes 2 --rdma): node 0 is rank 0. The cases
 * go by the same order, and meet over TCP before each step that has to be told.
 */
#include "kselftest_harness.h"
#include "mesh.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#define TCP_PORT 18600
#define DEVICE (node() ? "rxe0" : "rxe1")

static int node(void)
{
	const char *text = getenv("KCR_NODE");

	return text ? atoi(text) : 0;
}

static const char *address_of(int n)
{
	return n ? "10.77.1.2" : "10.77.1.1";
}

static const char *not_here(void)
{
	const char *nodes = getenv("KCR_NODES");
	char path[80];
	const char *missing = dev_missing();

	if (missing)
		return missing;
	if (!nodes || strcmp(nodes, "2"))
		return "needs two nodes: kcr-vm --nodes 2 --rdma";
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s", DEVICE);
	if (access(path, F_OK))
		return "no RDMA device on the cable: kcr-vm --rdma";
	return access(MESH_COUNTERS "conns", F_OK) ? "no kcollring_verbs.ko" : NULL;
}

/* A line to the other node, or -1. Each case makes one of its own. */
static int line_open(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(TCP_PORT) };
	struct timeval limit = { .tv_sec = 25 };
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, line = -1;

	inet_pton(AF_INET, address_of(0), &at.sin_addr);
	if (!node()) {
		setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		if (!bind(s, (struct sockaddr *)&at, sizeof(at)) && !listen(s, 1))
			line = accept(s, NULL, NULL);
		close(s);
	} else {
		close(s);
		DEV_SOON(25, ({
			s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
			if (!connect(s, (struct sockaddr *)&at, sizeof(at)))
				line = s;
			else
				close(s);
			line >= 0;
		}));
	}
	if (line >= 0) {
		setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		setsockopt(line, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	}
	return line;
}

FIXTURE(mesh_nodes) {
	struct dev_counters before;
	struct dev_world world;
	int line;
	int fd;
	int step;
	unsigned char *board;
	struct kcr_conn_status *conn;
	struct kcr_status *status;
};

/* Both have come so far. */
#define MEET() do {							\
	char meet_mine = ++self->step, meet_other = 0;			\
									\
	ASSERT_EQ(1, send(self->line, &meet_mine, 1, MSG_NOSIGNAL));	\
	ASSERT_EQ(1, recv(self->line, &meet_other, 1, 0));		\
	ASSERT_EQ(meet_mine, meet_other);				\
} while (0)

FIXTURE_SETUP(mesh_nodes)
{
	const char *why = not_here();

	self->fd = -1;
	self->line = -1;
	self->board = MAP_FAILED;
	self->conn = MAP_FAILED;
	self->status = MAP_FAILED;
	self->before = dev_counters();
	if (why)
		SKIP(return, "%s", why);
	self->line = line_open();
	ASSERT_LE(0, self->line);
	self->world = dev_world(2);
	/* Node 0's choice. */
	ASSERT_EQ(32, node() ? recv(self->line, &self->world, 32, MSG_WAITALL) :
			       send(self->line, &self->world, 32, MSG_NOSIGNAL));
}

static void leave_all(int *fd, void *board, void *conn, void *status)
{
	if (board != MAP_FAILED)
		munmap(board, MESH_BOARD);
	if (conn != MAP_FAILED)
		munmap(conn, sizeof(struct kcr_conn_status));
	if (status != MAP_FAILED)
		munmap(status, sizeof(struct kcr_status));
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

FIXTURE_TEARDOWN(mesh_nodes)
{
	leave_all(&self->fd, self->board, self->conn, self->status);
	if (self->line >= 0)
		close(self->line);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
}

static struct kcr_connect connect_args(void)
{
	struct kcr_connect args = mesh_connect_args(!node(), 0);

	mesh_sockaddr(args.local, address_of(node()), 0);
	mesh_sockaddr(args.remote, address_of(!node()), 0);
	args.timeout_ms = 4000;
	return args;
}

/* This node's rank, which has connected as soon as the other was ready for it. */
#define OPEN() do {						\
	struct kcr_connect a = connect_args();				\
									\
	self->fd = dev_member(&self->world, node());			\
	ASSERT_LE(0, self->fd);						\
	self->status = dev_status(self->fd);				\
	ASSERT_NE(MAP_FAILED, self->status);				\
	ASSERT_EQ(0, dev_window(self->fd, 0, NULL, 0, MESH_BOARD));	\
	self->board = dev_map(self->fd, PROT_READ | PROT_WRITE, 0, KCR_MAP_BOARD, node(),	\
			      MESH_BOARD);				\
	ASSERT_NE(MAP_FAILED, self->board);				\
	if (!node()) {							\
		MEET();							\
	}								\
	ASSERT_EQ(0, dev_ioctl(self->fd, KCR_IOCTL_CONNECT, &a));	\
	if (node()) {							\
		MEET();							\
	}								\
	self->conn = mesh_status(self->fd, !node(), 0);			\
	ASSERT_NE(MAP_FAILED, self->conn);				\
} while (0)

#define OPEN_UP() do {							\
	OPEN();								\
	ASSERT_TRUE(DEV_SOON(8, mesh_is_up(self->conn))) {		\
		MESH_LOG(self->conn);					\
	}								\
	MEET();								\
} while (0)

#define EXPECT_ENDS(why, errnum) do {					\
	EXPECT_TRUE(DEV_SOON(8, mesh_state(self->conn) == KCR_CONN_FAILED)) {	\
		MESH_LOG(self->conn);					\
	}								\
	EXPECT_EQ(why, self->conn->reason) {				\
		MESH_LOG(self->conn);					\
	}								\
	EXPECT_EQ(errnum, self->conn->error);				\
} while (0)

TEST_F(mesh_nodes, frames)
{
	const __u32 class = 7, bytes = KCR_CLASS_BYTES(class) - 1;
	const unsigned char *frames;
	unsigned char *right;
	int s;

	OPEN_UP();
	EXPECT_STREQ(DEVICE, (char *)self->conn->device);
	EXPECT_NE(0, memcmp(self->conn->local_gid, self->conn->remote_gid, 16));
	right = malloc(bytes);
	ASSERT_EQ(0, mesh_frames(self->fd, !node(), 0, 0, class));
	frames = mesh_map_frames(self->fd, !node(), 0, 0, class);
	ASSERT_NE(MAP_FAILED, frames);
	for (s = 1; s <= 10; s++) {
		mesh_fill(self->board, bytes, s * 2 + node());
		ASSERT_TRUE(DEV_SOON(8, !mesh_send(self->fd, !node(), 0, 0, 0, bytes, s)));
		ASSERT_TRUE(DEV_SOON(8, mesh_arrived(self->conn, 0, class) == s));
		mesh_fill(right, bytes, s * 2 + !node());
		EXPECT_EQ(0, memcmp(right, frames + (s - 1) % 3 * KCR_CLASS_BYTES(class), bytes));
		/* The other's frame may be changed once it has released this. */
		MEET();
		ASSERT_EQ(0, mesh_release(self->fd, !node(), 0, 0, class, s));
	}
	munmap((void *)frames, mesh_ring_bytes(class));
	free(right);
	MEET();
	ASSERT_EQ(0, dev_leave(self->fd));
	EXPECT_EQ(0, dev_cause(self->status));
}

/* A rank says that the world has failed: so it has on the other node. */
TEST_F(mesh_nodes, fail)
{
	OPEN_UP();
	if (!node())
		ASSERT_EQ(0, dev_fail(self->fd, EOVERFLOW));
	EXPECT_TRUE(DEV_SOON(2, dev_cause(self->status)));
	EXPECT_EQ(KCR_CAUSE(0, EOVERFLOW), dev_cause(self->status));
	MEET();
	/* What comes after it changes nothing. */
	if (node())
		ASSERT_EQ(0, dev_fail(self->fd, EIO));
	dev_sleep(0.5);
	EXPECT_EQ(KCR_CAUSE(0, EOVERFLOW), dev_cause(self->status));
	MEET();
}

/* Both say so at once: each node has a cause, and keeps it. */
TEST_F(mesh_nodes, both_fail)
{
	__u64 cause;

	OPEN_UP();
	ASSERT_EQ(0, dev_fail(self->fd, 100 + node()));
	cause = dev_cause(self->status);
	EXPECT_TRUE(cause == KCR_CAUSE(0, 100) || cause == KCR_CAUSE(1, 101));
	dev_sleep(0.5);
	EXPECT_EQ(cause, dev_cause(self->status));
	MEET();
}

/* A rank dies: its word for it reaches the other node, and so does its silence. */
TEST_F(mesh_nodes, dies)
{
	OPEN_UP();
	if (node()) {
		leave_all(&self->fd, self->board, self->conn, self->status);
		self->board = MAP_FAILED;
		self->conn = MAP_FAILED;
		self->status = MAP_FAILED;
	} else {
		EXPECT_TRUE(DEV_SOON(2, dev_cause(self->status)));
		EXPECT_EQ(KCR_CAUSE(1, ECONNRESET), dev_cause(self->status));
		EXPECT_TRUE(DEV_SOON(2, mesh_send(self->fd, 1, 0, 0, 0, 8, 1) == -ENOTCONN));
	}
	MEET();
}

TEST_F(mesh_nodes, leaves)
{
	OPEN_UP();
	if (node()) {
		ASSERT_EQ(0, mesh_frames(self->fd, 0, 0, 0, 7));
		EXPECT_TRUE(DEV_SOON(8, mesh_state(self->conn) == KCR_CONN_LEFT));
		EXPECT_EQ(4, mesh_arrived(self->conn, 0, 7) + 1);
		EXPECT_EQ(0, dev_cause(self->status));
		EXPECT_EQ(-ENOTCONN, mesh_send(self->fd, 0, 0, 0, 0, 8, 1));
	} else {
		ASSERT_TRUE(DEV_SOON(8, mesh_limit(self->conn, 0, 7)));
		for (int s = 1; s <= 3; s++)
			ASSERT_EQ(0, mesh_send(self->fd, 1, 0, 0, 0, KCR_FRAME_BYTES_MAX, s));
		ASSERT_EQ(0, dev_leave(self->fd));
	}
	MEET();
}

/* The same world by its id, and another by its key. */
TEST_F(mesh_nodes, another_key)
{
	self->world.key[0] ^= node();
	OPEN();
	/* The one that connects sees the first proof, and that it is wrong. */
	if (!node())
		EXPECT_ENDS(KCR_REASON_KEY, EKEYREJECTED);
	else
		EXPECT_ENDS(KCR_REASON_GONE, ETIMEDOUT);
	EXPECT_EQ(0, dev_cause(self->status));
	MEET();
}

/* The other node has no such world. */
TEST_F(mesh_nodes, another_world)
{
	self->world.id[15] ^= node();
	OPEN();
	if (!node())
		EXPECT_ENDS(KCR_REASON_WORLD, ENOENT);
	else
		EXPECT_ENDS(KCR_REASON_TIMEOUT, ETIMEDOUT);
	MEET();
}

/* ... or one of another size. */
TEST_F(mesh_nodes, another_size)
{
	self->world.ranks += node();
	OPEN();
	if (!node())
		EXPECT_ENDS(KCR_REASON_RANK, ENOENT);
	else
		EXPECT_ENDS(KCR_REASON_TIMEOUT, ETIMEDOUT);
	MEET();
}

/* Nobody on the other node has a mesh, so nobody listens. */
TEST_F(mesh_nodes, nobody_listens)
{
	if (!node()) {
		struct kcr_connect a = connect_args();

		self->fd = dev_member(&self->world, 0);
		ASSERT_LE(0, self->fd);
		ASSERT_EQ(0, dev_ioctl(self->fd, KCR_IOCTL_CONNECT, &a));
		self->conn = mesh_status(self->fd, 1, 0);
		ASSERT_NE(MAP_FAILED, self->conn);
		EXPECT_ENDS(KCR_REASON_REFUSED, ECONNREFUSED);
	}
	MEET();
}

TEST_HARNESS_MAIN
