/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The mesh of /dev/kcollring as its tests use it: connections of ranks of one
 * process to one another, over the RDMA device of the loopback (kcr-vm --rdma
 * makes it: rxe0, 10.77.0.1, and one more for each further wire).
 */
#ifndef KCR_TEST_MESH_H
#define KCR_TEST_MESH_H

#include <arpa/inet.h>
#include <netinet/in.h>

#include "device.h"

#define MESH_COUNTERS	"/sys/kernel/debug/kcollring_verbs/"
#define MESH_PARAMETERS	"/sys/module/kcollring_verbs/parameters/"
#define MESH_PORT	18518
#define MESH_DEPTH	2
/* In dummy0's network, and nobody's. */
#define MESH_NOT_THERE	"10.77.0.99"
/* What rdma_cm has for a port at which nobody listens. */
#define MESH_NO_SUCH_SERVICE	8
/* Bytes of the board that frames are sent from. */
#define MESH_BOARD	(2u << 20)

/* The address of a wire's device, as text. */
static inline const char *mesh_address(__u32 wire)
{
	static __thread char text[32];

	snprintf(text, sizeof(text), "10.%u.0.1", 77 + wire);
	return text;
}

/* Why tests of the mesh cannot run here, or NULL. */
static inline const char *mesh_missing(void)
{
	const char *missing = dev_missing();
	struct kcr_query query;
	int fd;

	if (missing)
		return missing;
	if (access("/sys/class/infiniband/rxe0", F_OK))
		return "no RDMA device: kcr-vm --rdma";
	fd = dev_open();
	if (fd < 0)
		return "cannot open " DEV_PATH;
	if (dev_query(fd, &query) || !(query.features & KCR_FEATURE_MESH))
		missing = "no kcollring_verbs.ko";
	close(fd);
	return missing;
}

static inline void mesh_sockaddr(__u8 out[28], const char *address, int port)
{
	struct sockaddr_in sin = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
	};

	memset(out, 0, 28);
	inet_pton(AF_INET, address, &sin.sin_addr);
	memcpy(out, &sin, sizeof(sin));
}

static inline void mesh_sockaddr6(__u8 out[28], const char *address)
{
	struct sockaddr_in6 sin = { .sin6_family = AF_INET6 };

	inet_pton(AF_INET6, address, &sin.sin6_addr);
	memcpy(out, &sin, sizeof(sin));
}

static inline struct kcr_connect mesh_connect_args(__u32 peer, __u32 wire)
{
	struct kcr_connect args = {
		.size = sizeof(args),
		.peer = peer,
		.wire = wire,
		.timeout_ms = 20000 * pace(),
		.depth = MESH_DEPTH,
	};

	mesh_sockaddr(args.local, mesh_address(wire), 0);
	mesh_sockaddr(args.remote, mesh_address(wire), 0);
	return args;
}

static inline int mesh_connect(int fd, __u32 peer, __u32 wire)
{
	struct kcr_connect args = mesh_connect_args(peer, wire);

	return dev_ioctl(fd, KCR_IOCTL_CONNECT, &args);
}

static inline int mesh_frames(int fd, __u32 peer, __u32 wire, __u32 stream, __u32 class)
{
	struct kcr_frames args = {
		.size = sizeof(args),
		.peer = peer,
		.wire = wire,
		.stream = stream,
		.size_class = class,
	};

	return dev_ioctl(fd, KCR_IOCTL_FRAMES, &args);
}

static inline struct kcr_send mesh_send_args(__u32 peer, __u32 wire, __u32 stream,
					     __u64 offset, __u32 bytes, __u64 sequence)
{
	return (struct kcr_send){
		.size = sizeof(struct kcr_send),
		.bytes = bytes,
		.offset = offset,
		.wire = wire,
		.stream = stream,
		.base = peer,
		.mask = 1,
		.sequence = sequence,
	};
}

static inline int mesh_send(int fd, __u32 peer, __u32 wire, __u32 stream, __u64 offset,
			    __u32 bytes, __u64 sequence)
{
	struct kcr_send args = mesh_send_args(peer, wire, stream, offset, bytes, sequence);

	return dev_ioctl(fd, KCR_IOCTL_SEND, &args);
}

static inline int mesh_release(int fd, __u32 peer, __u32 wire, __u32 stream, __u32 class,
			       __u64 sequence)
{
	struct kcr_release args = {
		.size = sizeof(args),
		.peer = peer,
		.wire = wire,
		.stream = stream,
		.size_class = class,
		.sequence = sequence,
	};

	return dev_ioctl(fd, KCR_IOCTL_RELEASE, &args);
}

static inline struct kcr_conn_status *mesh_status(int fd, __u32 peer, __u32 wire)
{
	return dev_map(fd, PROT_READ, wire, KCR_MAP_CONN, peer,
		       sizeof(struct kcr_conn_status));
}

static inline size_t mesh_ring_bytes(__u32 class)
{
	return (size_t)kcr_frames_depth(class, MESH_DEPTH + 1) * KCR_CLASS_BYTES(class);
}

static inline const unsigned char *mesh_map_frames(int fd, __u32 peer, __u32 wire,
						   __u32 stream, __u32 class)
{
	return dev_map(fd, PROT_READ, wire, KCR_MAP_FRAMES,
		       KCR_FRAMES_INDEX(peer, stream, class), mesh_ring_bytes(class));
}

static inline __u32 mesh_state(const struct kcr_conn_status *s)
{
	return __atomic_load_n(&s->state, __ATOMIC_ACQUIRE);
}

static inline bool mesh_is_up(const struct kcr_conn_status *s)
{
	return mesh_state(s) == KCR_CONN_UP;
}

static inline __u64 mesh_arrived(const struct kcr_conn_status *s, int stream, int class)
{
	return __atomic_load_n(&s->rings[stream][class].arrived, __ATOMIC_ACQUIRE);
}

static inline __u64 mesh_limit(const struct kcr_conn_status *s, int stream, int class)
{
	return __atomic_load_n(&s->rings[stream][class].limit, __ATOMIC_ACQUIRE);
}

/* Lanes of remote windows: what of one is here. */

static inline int mesh_window(int fd, __u32 window, const struct kcr_lane_desc *lanes,
			      __u32 nr_lanes)
{
	struct kcr_window args = {
		.size = sizeof(args),
		.flags = KCR_WINDOW_REMOTE,
		.window = window,
		.nr_lanes = nr_lanes,
		.lanes = (unsigned long)lanes,
	};

	return dev_ioctl(fd, KCR_IOCTL_WINDOW, &args);
}

static inline int mesh_put(int fd, __u32 window, __u32 peer, __u64 sequence, __u32 count)
{
	struct kcr_put args = {
		.size = sizeof(args),
		.window = window,
		.peer = peer,
		.sequence = sequence,
		.count = count,
	};

	return dev_ioctl(fd, KCR_IOCTL_PUT, &args);
}

static inline int mesh_ack(int fd, __u32 window, __u32 peer)
{
	struct kcr_put_ack args = { .size = sizeof(args), .window = window, .peer = peer };

	return dev_ioctl(fd, KCR_IOCTL_ACK, &args);
}

static inline int mesh_arm(int fd, __u32 window, __u32 peer, __u32 flags, __u64 seen)
{
	struct kcr_arm args = {
		.size = sizeof(args),
		.flags = flags,
		.window = window,
		.peer = peer,
		.seen = seen,
	};

	return dev_ioctl(fd, KCR_IOCTL_ARM, &args);
}

struct mesh_lane {
	struct kcr_lane_desc desc;
	unsigned char *slots;
	struct kcr_ack *ack;
	struct kcr_lane_status *page;	/* of all lanes of the window */
	struct kcr_lane_status *status;	/* this one's */
	size_t bytes;
	size_t page_bytes;
};

/* Map this rank's end of lane @index of @nr; 0 or an error. */
static inline int mesh_lane_map(struct mesh_lane *l, int fd, __u32 rank, __u32 window,
				const struct kcr_lane_desc *lanes, __u32 nr, __u32 index)
{
	int writable = PROT_READ | PROT_WRITE;
	bool is_source = lanes[index].source == rank;

	l->desc = lanes[index];
	l->bytes = dev_lane_bytes(&l->desc);
	l->page_bytes = dev_pages(nr * sizeof(struct kcr_lane_status));
	l->slots = dev_map(fd, is_source ? writable : PROT_READ, window, KCR_MAP_SLOTS, index,
			   l->bytes);
	l->ack = dev_map(fd, is_source ? PROT_READ : writable, window, KCR_MAP_ACK, index,
			 dev_page());
	l->page = dev_map(fd, PROT_READ, window, KCR_MAP_LANES, 0, l->page_bytes);
	if (l->slots == MAP_FAILED || l->ack == MAP_FAILED || l->page == MAP_FAILED)
		return -errno;
	l->status = l->page + index;
	return 0;
}

static inline void mesh_lane_unmap(struct mesh_lane *l)
{
	if (!l->status)
		return;
	munmap(l->slots, l->bytes);
	munmap(l->ack, dev_page());
	munmap(l->page, l->page_bytes);
	memset(l, 0, sizeof(*l));
}

static inline __u32 mesh_lane_state(const struct mesh_lane *l)
{
	return __atomic_load_n(&l->status->state, __ATOMIC_ACQUIRE);
}

static inline __u64 mesh_lane_done(const struct mesh_lane *l)
{
	return __atomic_load_n(&l->status->done, __ATOMIC_ACQUIRE);
}

static inline unsigned char *mesh_slot(const struct mesh_lane *l, __u64 sequence)
{
	return l->slots + (sequence - 1) % l->desc.depth * KCR_SLOT_STRIDE(l->desc.capacity);
}

/* Data that depends on the sequence, the length and the place. */
static inline unsigned char mesh_slot_byte(__u64 sequence, __u32 length, __u32 i)
{
	return sequence * 101 + length * 37 + i * 7 + (i >> 8) * 3;
}

static inline void mesh_slot_write(const struct mesh_lane *l, __u64 sequence, __u32 length)
{
	struct kcr_slot *slot = (void *)mesh_slot(l, sequence);
	unsigned char *payload = (unsigned char *)slot + KCR_SLOT_PAYLOAD;
	__u64 guard = ~sequence;

	for (__u32 i = 0; i < length; i++)
		payload[i] = mesh_slot_byte(sequence, length, i);
	slot->length = length;
	slot->checksum = length * 3;
	memcpy((unsigned char *)slot + KCR_SLOT_GUARD(length), &guard, sizeof(guard));
	__atomic_store_n(&slot->sequence, sequence, __ATOMIC_RELEASE);
}

/* Has all of it come? It may come in any order. */
static inline bool mesh_slot_has(const struct mesh_lane *l, __u64 sequence, __u32 length)
{
	const struct kcr_slot *slot = (const void *)mesh_slot(l, sequence);
	const unsigned char *payload = (const unsigned char *)slot + KCR_SLOT_PAYLOAD;
	__u64 guard;

	if (__atomic_load_n(&slot->sequence, __ATOMIC_ACQUIRE) != sequence)
		return false;
	memcpy(&guard, (const unsigned char *)slot + KCR_SLOT_GUARD(length), sizeof(guard));
	if (slot->length != length || slot->checksum != length * 3 || guard != ~sequence)
		return false;
	for (__u32 i = 0; i < length; i++)
		if (payload[i] != mesh_slot_byte(sequence, length, i))
			return false;
	return true;
}

/* Several ranks of one process, each connected to each of the others over wire 0. */
#define MESH_RANKS 8

struct mesh_ranks {
	struct dev_counters before;
	struct dev_world world;
	int n;
	int fd[MESH_RANKS];
	unsigned char *board[MESH_RANKS];
	struct kcr_conn_status *status[MESH_RANKS][MESH_RANKS];	/* of whom, to whom */
};

/* Only members, with a board each in window 0. Returns 0 or an error. */
static inline int mesh_ranks_join(struct mesh_ranks *r, int n)
{
	int i, err;

	memset(r, 0, sizeof(*r));
	r->before = dev_counters();
	r->world = dev_world(n);
	r->n = n;
	for (i = 0; i < n; i++)
		r->fd[i] = -1;
	for (i = 0; i < n; i++) {
		r->fd[i] = dev_member(&r->world, i);
		if (r->fd[i] < 0)
			return r->fd[i];
		err = dev_window(r->fd[i], 0, NULL, 0, MESH_BOARD);
		if (err)
			return err;
		r->board[i] = dev_map(r->fd[i], PROT_READ | PROT_WRITE, 0, KCR_MAP_BOARD, i,
				      MESH_BOARD);
		if (r->board[i] == MAP_FAILED) {
			r->board[i] = NULL;
			return -errno;
		}
	}
	return 0;
}

/* The connection of two of them, in both directions; it may not be up yet. */
static inline int mesh_ranks_connect(struct mesh_ranks *r, int a, int b)
{
	int low = a < b ? a : b, high = a < b ? b : a, err;

	err = mesh_connect(r->fd[high], low, 0);
	if (!err)
		err = mesh_connect(r->fd[low], high, 0);
	if (err)
		return err;
	r->status[low][high] = mesh_status(r->fd[low], high, 0);
	r->status[high][low] = mesh_status(r->fd[high], low, 0);
	if (r->status[low][high] == MAP_FAILED || r->status[high][low] == MAP_FAILED)
		return -errno;
	return 0;
}

static inline bool mesh_ranks_are_up(struct mesh_ranks *r)
{
	int i, j;

	for (i = 0; i < r->n; i++)
		for (j = 0; j < r->n; j++)
			if (r->status[i][j] && !mesh_is_up(r->status[i][j]))
				return false;
	return true;
}

/* Everybody with everybody. */
static inline int mesh_ranks_open(struct mesh_ranks *r, int n)
{
	int i, j, err = mesh_ranks_join(r, n);

	for (i = 0; i < n && !err; i++)
		for (j = i + 1; j < n && !err; j++)
			err = mesh_ranks_connect(r, i, j);
	if (err)
		return err;
	return DEV_SOON(20, mesh_ranks_are_up(r)) ? 0 : -ETIMEDOUT;
}

static inline void mesh_ranks_close(struct mesh_ranks *r)
{
	int i, j;

	for (i = 0; i < r->n; i++) {
		if (r->board[i])
			munmap(r->board[i], MESH_BOARD);
		for (j = 0; j < r->n; j++)
			if (r->status[i][j] && r->status[i][j] != MAP_FAILED)
				munmap(r->status[i][j], sizeof(*r->status[i][j]));
		if (r->fd[i] >= 0)
			close(r->fd[i]);
	}
	r->n = 0;
}

/* For failures: what a connection's page says. */
#define MESH_LOG(s) \
	TH_LOG("state %u reason %u detail %u error %u", (s)->state, (s)->reason,	\
	       (s)->detail, (s)->error)

/* Data that nobody would write by accident: no two places look alike. */
static inline void mesh_fill(unsigned char *at, size_t bytes, unsigned int seed)
{
	__u32 x = seed * 2654435761u + 1;
	size_t i;

	for (i = 0; i + 4 <= bytes; i += 4) {
		x = x * 1664525 + 1013904223;
		memcpy(at + i, &x, 4);
	}
	for (; i < bytes; i++)
		at[i] = seed + i;
}

/* The provider's counters of everything that is alive. */
#define MESH_NR_COUNTERS 10
#define MESH_IDS	1
#define MESH_QPS	3
static const char *const mesh_counter_names[MESH_NR_COUNTERS] = {
	"conns", "ids", "pds", "qps", "cqs", "mrs", "rings", "sources", "lanes",
	"listeners",
};

struct mesh_counters {
	long value[MESH_NR_COUNTERS];
};

static inline struct mesh_counters mesh_counters(void)
{
	struct mesh_counters c;
	char path[80];

	for (int i = 0; i < MESH_NR_COUNTERS; i++) {
		snprintf(path, sizeof(path), MESH_COUNTERS "%s", mesh_counter_names[i]);
		c.value[i] = dev_read_number(path);
	}
	return c;
}

/* An address is being looked for: nothing is made before it is found. */
static inline bool mesh_is_resolving(void)
{
	struct mesh_counters c = mesh_counters();

	return c.value[MESH_IDS] == 1 && !c.value[MESH_QPS];
}

/* The same, but for listeners: they stay with a rank that has tried to connect. */
static inline bool mesh_counters_equal(const struct mesh_counters *a)
{
	struct mesh_counters b = mesh_counters();

	return !memcmp(a->value, b.value, (MESH_NR_COUNTERS - 1) * sizeof(b.value[0]));
}

/* What is left of anything, in words, or NULL. Nobody else may use it meanwhile. */
static inline const char *mesh_left(void)
{
	struct mesh_counters c = mesh_counters();
	static char text[160];
	size_t n = 0;

	for (int i = 0; i < MESH_NR_COUNTERS; i++)
		if (c.value[i] > 0)
			n += snprintf(text + n, sizeof(text) - n, "%s %ld; ",
				      mesh_counter_names[i], c.value[i]);
	return n ? text : NULL;
}

#define MESH_EXPECT_NOTHING_LEFT() do {					\
	bool mesh_clean = DEV_SOON(DEV_SETTLE, !mesh_left());		\
									\
	EXPECT_TRUE(mesh_clean) {					\
		TH_LOG("left behind: %s", mesh_left());			\
	}								\
} while (0)

/*
 * The device goes and comes back. Only where the whole machine is ours; whoever
 * takes it away gives it back.
 */

/* Nothing may take longer than this, in seconds. */
#define MESH_SHELL_LIMIT	10

/* Why that cannot be done here, or NULL. */
static inline const char *mesh_missing_for_removal(void)
{
	if (!getenv("KCR_VM") && !getenv("KCR_NODE"))
		return "only in a virtual machine (KCR_VM, KCR_NODE)";
	if (geteuid())
		return "needs root";
	if (system("which rdma ip rmmod modprobe > /dev/null"))
		return "needs rdma, ip, rmmod, modprobe";
	return mesh_missing();
}

/* A command for the shell; what it gave, or -ETIMEDOUT if it hangs. */
static inline int mesh_shell(const char *command)
{
	char *const arguments[] = { (char *)"sh", (char *)"-c", (char *)command, NULL };
	pid_t pid = fork();

	if (!pid) {
		execv("/bin/sh", arguments);
		_exit(127);
	}
	return dev_child_status(pid, MESH_SHELL_LIMIT);
}

/*
 * Does dummy0 ask who has an address, so that nobody answers for those that are not
 * there? Else it answers for everybody.
 */
static inline int mesh_arp(bool is_on)
{
	return mesh_shell(is_on ? "ip link set dummy0 arp on" : "ip link set dummy0 arp off");
}

static inline bool mesh_device_is_there(void)
{
	return !access("/sys/class/infiniband/rxe0", F_OK);
}

static inline int mesh_device_del(void)
{
	return mesh_shell("rdma link del rxe0");
}

static inline int mesh_device_add(void)
{
	return mesh_shell("rdma link add rxe0 type rxe netdev dummy0");
}

/* It has its address some time after it was added. */
static inline bool mesh_device_has_gid(void)
{
	char text[64] = "";
	int fd = open("/sys/class/infiniband/rxe0/ports/1/gids/1", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	return n > 0 && strstr(text, "ffff:0a4d:0001");
}

#endif /* KCR_TEST_MESH_H */
