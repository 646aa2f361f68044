/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * kcollring: ring windows and commands of /dev/kcollring
 *
 * This is the whole interface between kcollring.ko and user space. It is
 * written for x86-64 and other 64-bit machines, little or big endian, and
 * does not change between kernel versions.
 *
 * Rules that hold for every struct here (the manner of iommufd):
 *
 *  - The first field is "size", set by the caller to sizeof(struct) as it
 *    was compiled. A shorter struct than the first version of it gets
 *    -EINVAL. A longer one is accepted if the trailing bytes are zero, else
 *    -E2BIG.
 *  - Flags that are not defined give -EOPNOTSUPP; "reserved" fields must be
 *    zero, else -EOPNOTSUPP.
 *  - Pointers travel as __u64. There is no padding that is not named.
 *  - A call that fails changes nothing and writes nothing back.
 *
 * Errors that every call may give:
 *
 *  -EINVAL      a size, index or value out of range
 *  -E2BIG       the struct is longer than the kernel's and not zero there
 *  -EOPNOTSUPP  an unknown flag or a reserved field that is not zero
 *  -EFAULT      memory that cannot be read or written
 *  -ENOTTY      an unknown ioctl (through io_uring: -EOPNOTSUPP)
 *  -EPERM       the caller is not the process that joined with this
 *               descriptor (another mm: a child, or a process that was handed the
 *               descriptor)
 *  -ENOTCONN    a call that needs a membership before KCR_IOCTL_JOIN
 *  -ESHUTDOWN   this membership has ended: it left, or it died
 *  -ENOMEM      no memory, RLIMIT_MEMLOCK or the memory cgroup
 *  -EDQUOT      over a quota of this user (see KCR_IOCTL_QUERY)
 */
#ifndef _UAPI_LINUX_KCOLLRING_H
#define _UAPI_LINUX_KCOLLRING_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define KCR_ABI_VERSION		1

/* Most ranks in a world, windows in a world, lanes in a window. */
#define KCR_MAX_RANKS		1024
#define KCR_MAX_WINDOWS		16
#define KCR_MAX_LANES		8192

/* No command stays parked longer than this (30 s): see KCR_CMD_WAIT. */
#define KCR_MAX_WAIT_NS		30000000000ULL

/* Features, in kcr_query.features. */
#define KCR_FEATURE_URING	0x1ULL	/* commands through io_uring */
#define KCR_FEATURE_URING_CANCEL 0x2ULL	/* the kernel cancels parked commands itself */
#define KCR_FEATURE_MESH	0x4ULL	/* kcollring_verbs.ko is loaded */

/**
 * struct kcr_query - version, features, limits and use (KCR_IOCTL_QUERY)
 * @size: sizeof(struct kcr_query)
 * @flags: must be 0
 * @abi_version: KCR_ABI_VERSION of the module
 * @max_ranks: most ranks in a world
 * @features: KCR_FEATURE_*
 * @max_lanes: most lanes in a window
 * @max_windows: most windows in a world
 * @max_members: quota: memberships of one user, over all worlds
 * @members: how many the caller's user has now; those that left or died count for as
 *	long as anybody has their world
 * @max_pages: quota: pages of one user, over all worlds
 * @pages: how many the caller's user has now
 * @max_parked: quota: commands that one membership may have parked
 * @reserved: 0
 * @version: the module's version, a string with a 0 at its end
 *
 * Needs no membership and may be called by anyone who can open the device.
 * Quotas bind users without CAP_SYS_RESOURCE.
 */
struct kcr_query {
	__u32 size;
	__u32 flags;
	__u32 abi_version;
	__u32 max_ranks;
	__u64 features;
	__u32 max_lanes;
	__u32 max_windows;
	__u64 max_members;
	__u64 members;
	__u64 max_pages;
	__u64 pages;
	__u32 max_parked;
	__u32 reserved;
	__u8 version[32];
};

/**
 * struct kcr_join - become a rank of a world (KCR_IOCTL_JOIN)
 * @size: sizeof(struct kcr_join)
 * @flags: must be 0
 * @id: the world's id: random, the same on every rank
 * @key: the world's secret: random, the same on every rank
 * @rank: 0 .. @ranks - 1
 * @ranks: the world's size, 1 .. KCR_MAX_RANKS
 * @cause: answered, with -ECONNRESET only: why the world has failed, as in
 *	struct kcr_status
 *
 * The first to join makes the world. A descriptor joins once. The membership
 * belongs to the calling process (its mm, and its table of descriptors):
 * the last close by that process without KCR_CMD_LEAVE is the rank's death, and
 * so is its exec.
 *
 * -EKEYREJECTED  a world with this id exists and has another key
 * -EPROTO        ... and has another size
 * -EEXIST        ... and this rank is taken, or was before
 * -EISCONN       this descriptor has joined already
 * -ECONNRESET    the world has failed; @cause tells why
 */
struct kcr_join {
	__u32 size;
	__u32 flags;
	__u8 id[16];
	__u8 key[16];
	__u32 rank;
	__u32 ranks;
	__u64 cause;
};

/**
 * struct kcr_lane_desc - one lane of a window
 * @source: the rank that writes
 * @destination: the rank that reads
 * @depth: slots, at least 1
 * @capacity: most payload bytes in a slot, at least 1
 *
 * A slot's place in the lane's memory is KCR_SLOT_STRIDE(capacity) times its
 * index; the lane's memory is depth times that, rounded up to pages.
 */
struct kcr_lane_desc {
	__u32 source;
	__u32 destination;
	__u32 depth;
	__u32 capacity;
};

/*
 * kcr_window.flags: a board may be mapped by its own rank alone; the lanes are to and
 * from ranks of other nodes.
 */
#define KCR_WINDOW_PRIVATE	0x1
#define KCR_WINDOW_REMOTE	0x2

/*
 * What a remote lane may be: a slot's payload, and its slots. The peer is let into
 * registrations of up to 2 MiB of them, at most KCR_REMOTE_PARTS, of which
 * each holds whole slots; 64 KiB are for where pages begin.
 */
#define KCR_REMOTE_CAPACITY_MAX	0x100000U
#define KCR_REMOTE_PARTS	10

/* Slots in each of a lane's registrations but the last. */
static inline __u32 kcr_remote_slots(__u32 capacity)
{
	if (!capacity || capacity > KCR_REMOTE_CAPACITY_MAX)
		return 0;
	return 0x1f0000U / (((capacity + 7U) / 8U * 8U + 24U + 63U) / 64U * 64U);
}

/* Most slots that a remote lane can have; 0 if no slot can be so large. */
static inline __u32 kcr_remote_depth_max(__u32 capacity)
{
	return KCR_REMOTE_PARTS * kcr_remote_slots(capacity);
}

/**
 * struct kcr_window - make a window, or attach to it (KCR_IOCTL_WINDOW)
 * @size: sizeof(struct kcr_window)
 * @flags: KCR_WINDOW_PRIVATE, the same on every rank, or KCR_WINDOW_REMOTE, or 0
 * @window: its number, 0 .. KCR_MAX_WINDOWS - 1; chosen alike on every rank
 * @nr_lanes: entries of @lanes, 0 .. KCR_MAX_LANES
 * @lanes: user address of an array of struct kcr_lane_desc
 * @board_bytes: the size of each rank's board, a multiple of the page size, or 0 for no boards
 *
 * Every rank of the node makes the call, with the same list, which names no
 * rank of another node. It allocates what this rank
 * pays for: the slots of lanes that end at it, the acknowledgement pages of lanes that
 * start at it, and its board. A part can be mapped once the rank that pays
 * for it has made the call.
 *
 * A remote window is this rank's alone: each of its lanes begins or ends at this
 * rank and has its other end at a peer, to which wire 0 is connected. It has no
 * boards. The peer makes a window of the same number, with the same lane among its own.
 * This rank pays for both parts of either end: as the source for an image of the
 * slots, which it writes and KCR_CMD_PUT sends, and for the acknowledgement page
 * that the peer writes; as the destination for the slots that the peer writes, and
 * for an acknowledgement page, which it writes and KCR_CMD_ACK sends. How far a
 * lane is, is told by struct kcr_lane_status.
 *
 * -EINVAL     a lane given twice, a rank outside the world, source equal to
 *             destination, zero depth or capacity, a part of 4 GiB or more; of a
 *             remote window: no lanes, one of others, boards, another flag, or
 *             more slots than kcr_remote_depth_max()
 * -EPROTO     another rank made this window with another list, board size or
 *             flags
 * -EEXIST     this rank has attached to it already
 * -EBUSY      a peer has not yet let go of an earlier remote window of this
 *             number; when it has the event counter moves
 * -ENOTCONN   no connection to one of the peers by wire 0, or it is not up
 * -EOPNOTSUPP the RDMA device does not see memory as the CPU does
 */
struct kcr_window {
	__u32 size;
	__u32 flags;
	__u32 window;
	__u32 nr_lanes;
	__u64 lanes;
	__u64 board_bytes;
};

/**
 * struct kcr_window_detach - give a window up (KCR_IOCTL_WINDOW_DETACH)
 * @size: sizeof(struct kcr_window_detach)
 * @flags: must be 0
 * @window: its number
 * @reserved: 0
 *
 * Mappings stay valid until they are unmapped. The window's memory is given
 * back when the last rank has detached, left or died; until then its number stays taken.
 * A rank cannot attach to a window a second time while it lives. The memory of
 * a remote window is given back when each peer has said that nothing of its is on
 * its way any more; the peers see KCR_LANE_ENDED, and what they have put is here.
 *
 * -ENOENT     this rank is not attached to such a window
 */
struct kcr_window_detach {
	__u32 size;
	__u32 flags;
	__u32 window;
	__u32 reserved;
};

/*
 * What mmap of the descriptor maps is told by its offset. A mapping starts at
 * the beginning of a part and has exactly its length rounded up to pages;
 * anything else is -EINVAL. All are MAP_SHARED, never executable, not
 * inherited by fork (unless the process asks for it by MADV_DOFORK; its child may
 * then use the memory, and nothing else), not movable by mremap, not dumped.
 *
 *  part              index    the rank that may write     ranks that may read
 *  KCR_MAP_STATUS    0        none (the kernel writes)    this rank
 *  KCR_MAP_SLOTS     lane     the source                  source, destination
 *  KCR_MAP_ACK       lane     the destination             source, destination
 *  KCR_MAP_BOARD     rank     that rank                   every rank of the world;
 *                                                         of a private window: none
 *  KCR_MAP_CONN      peer     none (the kernel writes)    this rank
 *  KCR_MAP_FRAMES    see below  none (the peer sends)     this rank
 *  KCR_MAP_LANES     0        none (the kernel writes)    this rank
 *
 * KCR_MAP_CONN and KCR_MAP_FRAMES have the number of a wire where the others have a
 * window's; the index of frames is KCR_FRAMES_INDEX(peer, stream, class). The lanes
 * are a remote window's: a struct kcr_lane_status each, in the order of its list.
 * Of its lanes each end has parts of its own, and what the other end may
 * write is written here by its device alone.
 *
 * -EACCES     not for this rank, or PROT_WRITE where it may only read
 * -EPERM      PROT_EXEC
 * -EINVAL     MAP_PRIVATE, wrong offset or length
 * -ENXIO      no such window, or this rank is not attached to it, or the rank
 *             that pays has not made the part yet
 */
#define KCR_MAP_STATUS		0
#define KCR_MAP_SLOTS		1
#define KCR_MAP_ACK		2
#define KCR_MAP_BOARD		3
#define KCR_MAP_CONN		4
#define KCR_MAP_FRAMES		5
#define KCR_MAP_LANES		6

#define KCR_FRAMES_INDEX(peer, stream, class) \
	((__u64)(peer) | (__u64)(stream) << 10 | (__u64)(class) << 12)

#define KCR_MMAP_OFFSET(window, part, index) \
	(((__u64)(window) << 52) | ((__u64)(part) << 48) | ((__u64)(index) << 32))

/*
 * A slot, in a lane and in whatever a board carries:
 *
 *	offset 0	__u64 sequence		from 1; 0 was never written
 *	offset 8	__u32 length		bytes of payload
 *	offset 12	__u32 checksum		CRC-32C, or 0 where the lane has none
 *	offset 16	payload
 *	behind it, at the next multiple of 8:
 *			__u64 guard		~sequence
 *
 * The guard trails the payload so that only used bytes travel.
 */
struct kcr_slot {
	__u64 sequence;
	__u32 length;
	__u32 checksum;
};

#define KCR_CACHE_LINE		64
#define KCR_SLOT_PAYLOAD	16
#define KCR_SLOT_GUARD(length) \
	(KCR_SLOT_PAYLOAD + (((__u64)(length) + 7) & ~7ULL))
#define KCR_SLOT_STRIDE(capacity) \
	((KCR_SLOT_GUARD(capacity) + 8 + KCR_CACHE_LINE - 1) & \
	 ~(__u64)(KCR_CACHE_LINE - 1))

/**
 * struct kcr_ack - the acknowledgement page of a lane begins with it
 * @sequence: all up to this one are taken
 * @complement: ~@sequence; where the two do not match, read again
 */
struct kcr_ack {
	__u64 sequence;
	__u64 complement;
};

/* What a rank is to its world, in kcr_status.member and kcr_info.state. */
#define KCR_MEMBER_ABSENT	0	/* has not joined yet */
#define KCR_MEMBER_JOINED	1
#define KCR_MEMBER_LEFT		2	/* said KCR_CMD_LEAVE */
#define KCR_MEMBER_DEAD		3	/* went without */

/**
 * struct kcr_status - the mapped status page, written by the kernel alone
 * @events: the rank's event counter; moves when the rank is kicked, when a
 *	rank joins, leaves or dies, when the world fails, and when something
 *	comes by the mesh
 * @pad: keeps the counter, which peers move, in a cache line of its own
 * @cause: 0 while the world is well; else why it failed, and it
 *	never changes again: see KCR_CAUSE_RANK and KCR_CAUSE_ERROR
 * @joined: how many ranks have joined so far
 * @left: how many have left or died
 * @member: KCR_MEMBER_* of each rank
 */
struct kcr_status {
	__u64 events;
	__u8 pad[56];
	__u64 cause;
	__u32 joined;
	__u32 left;
	__u8 pad2[48];
	__u8 member[KCR_MAX_RANKS];
};

/* A cause holds the rank that died, or that said KCR_CMD_FAIL, and a positive errno. */
#define KCR_CAUSE(rank, error)	(((__u64)(rank) << 32) | (__u32)(error))
#define KCR_CAUSE_RANK(cause)	((__u32)((cause) >> 32))
#define KCR_CAUSE_ERROR(cause)	((int)(__u32)(cause))

/**
 * struct kcr_claim - what a rank says it is doing; a board begins with it
 * @number: the operation's number in its world, 0 for none
 * @since_ns: CLOCK_MONOTONIC, when the rank began to wait in it
 * @count: elements
 * @kind: the library's code for the kind of operation
 * @detail: the library's: root or peer, type and operation
 *
 * The kernel only shows it (kcr-info worlds), as that rank's claim. Written by
 * the library on its slow path, to the board of window 0.
 */
struct kcr_claim {
	__u64 number;
	__u64 since_ns;
	__u64 count;
	__u32 kind;
	__u32 detail;
};

/**
 * struct kcr_board - how a board in window 0 begins
 * @claim: what the rank says it is doing
 * @pad: 0
 * @sleeping: the library's
 * @pad2: 0
 * @beat_ns: CLOCK_MONOTONIC, when the rank looked last, if it waits; else 0
 *
 * The module tells the peers of other nodes of @claim and @beat_ns, a few times
 * a second: see struct kcr_conn_status. Otherwise it only shows the claim.
 */
struct kcr_board {
	struct kcr_claim claim;
	__u8 pad[32];
	__u32 sleeping;
	__u32 pad2;
	__u64 beat_ns;
};

/*
 * The mesh: connections to peers over RDMA, one for each peer and wire, by
 * kcollring_verbs.ko.
 *
 * What travels is a frame: 1 .. KCR_FRAME_BYTES_MAX bytes from this rank's board in
 * any window into the next of the peer's frames in a ring. A connection has a ring
 * for each stream and class in either direction. A stream is the
 * library's to use: rings of different streams do not wait for one another.
 * Frames of class k hold 4 KiB << k; a frame travels in the smallest class that
 * holds it. The receiver opens a ring before its first frame can come
 * (KCR_IOCTL_FRAMES) and pays for it; a sender that finds it closed makes the
 * receiver see kcr_ring_status.wanted. The sequence numbers of a ring start at 1; the frame
 * with sequence s lies at (s - 1) % depth times the class's size in the mapping.
 *
 * Credits: a frame may be sent as long as its sequence is at most
 * kcr_ring_status.limit. KCR_CMD_RELEASE gives frames back, at once or with a frame
 * that goes the other way: nothing is kept back. Each ring has one frame more than
 * was asked for, so that a receiver may release the last one late.
 */
#define KCR_MAX_WIRES		4
#define KCR_STREAMS		3
#define KCR_CLASSES		8
#define KCR_FRAMES_MAX		16	/* most frames in a ring */
#define KCR_CLASS_BYTES(class)	(4096U << (class))
#define KCR_FRAME_BYTES_MAX	KCR_CLASS_BYTES(KCR_CLASSES - 1)

/* The frames of a ring are one registration: 2 MiB at most. */
static inline __u32 kcr_frames_depth(__u32 size_class, __u32 depth)
{
	__u32 most = 0x200000U / KCR_CLASS_BYTES(size_class);

	return depth < most ? depth : most;
}

/* kcr_conn_status.state */
#define KCR_CONN_NONE		0
#define KCR_CONN_EXPECTED	1	/* the peer, which has the lower rank, connects */
#define KCR_CONN_CONNECTING	2
#define KCR_CONN_UP		3	/* both sides have proven that they know the key */
#define KCR_CONN_LEFT		4	/* the peer left; all it had sent is here */
#define KCR_CONN_FAILED		5	/* see error and reason */

/* kcr_conn_status.reason, with what detail means; both sides use the numbers. */
#define KCR_REASON_NONE		0
#define KCR_REASON_ADDRESS	1	/* no RDMA device has it, or it is unknown */
#define KCR_REASON_ROUTE	2	/* no way to the address */
#define KCR_REASON_UNREACHABLE	3	/* it does not answer; rdma_cm's status */
#define KCR_REASON_TIMEOUT	4	/* not connected in time */
#define KCR_REASON_REFUSED	5	/* nobody listens there; rdma_cm's status */
#define KCR_REASON_VERSION	6	/* another version: which, and above 16 bits ours */
#define KCR_REASON_FORMAT	7	/* the peer sent what is no handshake of ours */
#define KCR_REASON_WORLD	8	/* the peer's node has no such world */
#define KCR_REASON_RANK		9	/* ... or not that rank, or it does not expect this one */
#define KCR_REASON_DUPLICATE	10	/* that rank is connected already; 1: unproven yet */
#define KCR_REASON_CROSSED	11	/* the wire ends at another wire's device; which wire */
#define KCR_REASON_KEY		12	/* the peer has not proven that it knows the world's key */
#define KCR_REASON_COMPLETION	13	/* a work request failed; ib_wc_status */
#define KCR_REASON_GONE		14	/* the connection ended without a word */
#define KCR_REASON_DEVICE	15	/* the RDMA device is gone */
#define KCR_REASON_PROTOCOL	16	/* the peer broke the rules; which, for us */
#define KCR_REASON_SILENT	17	/* no heartbeat; for how many ms */
#define KCR_REASON_LOCAL	18	/* this node could not make the connection's objects */
#define KCR_REASON_REJECTED	19	/* refused by something that is not us; rdma_cm's status */
#define KCR_REASON_ENDED	20	/* the world had failed; first by which rank */

/**
 * struct kcr_ring_status - one stream and class of a connection
 * @limit: out: frames up to this sequence may be sent; 0 while closed
 * @acked: out: the peer has released all up to this
 * @arrived: in: the last frame that has come, at most @released + @depth
 * @released: in: as by KCR_CMD_RELEASE
 * @depth: in: frames in the ring; 0 while this rank has not opened it
 * @wanted: in: not 0 if the peer has a frame for it and it is closed
 * @length: in: bytes of the frame in each place
 * @pad: 0
 */
struct kcr_ring_status {
	__u64 limit;
	__u64 acked;
	__u64 arrived;
	__u64 released;
	__u32 depth;
	__u32 wanted;
	__u32 length[KCR_FRAMES_MAX];
	__u8 pad[24];
};

/**
 * struct kcr_conn_status - a connection's mapped page, written by the kernel alone
 * @state: KCR_CONN_*; stored last, with release
 * @error: a positive errno, with KCR_CONN_FAILED
 * @reason: KCR_REASON_*
 * @detail: see there
 * @local: this end's socket address (struct sockaddr_in or sockaddr_in6)
 * @remote: the other end's
 * @local_gid: as used by the connection
 * @remote_gid: likewise
 * @mtu: of the path, in bytes of payload
 * @depth: frames a ring has by default: kcr_connect.depth + 1
 * @sent: frames sent
 * @received: frames received
 * @device: name of the RDMA device, a string with a 0 at its end
 * @board: the peer's claim and beat; times are in this node's CLOCK_MONOTONIC
 * @pad: 0
 * @rings: by stream, class
 */
struct kcr_conn_status {
	__u32 state;
	__u32 error;
	__u32 reason;
	__u32 detail;
	__u8 local[28];
	__u8 remote[28];
	__u8 local_gid[16];
	__u8 remote_gid[16];
	__u32 mtu;
	__u32 depth;
	__u64 sent;
	__u64 received;
	__u8 device[64];
	__u8 pad[64];
	struct kcr_board board;
	__u8 pad2[688];
	struct kcr_ring_status rings[KCR_STREAMS][KCR_CLASSES];
};

/* kcr_lane_status.state */
#define KCR_LANE_WAITING	1	/* the peer has not made its window yet */
#define KCR_LANE_READY		2
#define KCR_LANE_UNEQUAL	3	/* the peer's lane has another depth or capacity */
#define KCR_LANE_ENDED		4	/* the peer has detached, or the connection has ended */

/**
 * struct kcr_lane_status - this end of a remote lane, written by the kernel alone
 * @state: KCR_LANE_*; moves the event counter
 * @peer_depth: as the peer has it, with KCR_LANE_UNEQUAL
 * @peer_capacity: likewise
 * @pad: 0
 * @put: the last sequence given to KCR_CMD_PUT
 * @done: all up to this one are at the destination: their places in the image may be
 *	written again
 * @acked: the last sequence that KCR_CMD_ACK brought to the source
 * @pad2: 0
 */
struct kcr_lane_status {
	__u32 state;
	__u32 peer_depth;
	__u32 peer_capacity;
	__u32 pad;
	__u64 put;
	__u64 done;
	__u64 acked;
	__u8 pad2[24];
};

/**
 * struct kcr_frames - open a ring of frames from a peer (KCR_IOCTL_FRAMES)
 * @size: sizeof(struct kcr_frames)
 * @flags: must be 0
 * @peer: a rank
 * @wire: 0 .. KCR_MAX_WIRES - 1
 * @stream: 0 .. KCR_STREAMS - 1
 * @size_class: 0 .. KCR_CLASSES - 1
 *
 * The frames can be mapped afterwards: KCR_MAP_FRAMES,
 * kcr_ring_status.depth frames of KCR_CLASS_BYTES(class).
 *
 * -ENOTCONN   no connection, or it is not up
 * -EEXIST     open already
 */
struct kcr_frames {
	__u32 size;
	__u32 flags;
	__u32 peer;
	__u32 wire;
	__u32 stream;
	__u32 size_class;
};

/*
 * Commands. Each has two forms with one meaning: an ioctl, whose argument is
 * the struct; and IORING_OP_URING_CMD on a ring with 128-byte entries
 * (IORING_SETUP_SQE128), with KCR_CMD_* in cmd_op and the struct in the
 * entry's 80 command bytes, whose answer is the completion's res. A ring with
 * 64-byte entries gets -EINVAL; one set up for IOPOLL -EOPNOTSUPP.
 */
#define KCR_CMD_WAIT		0x10
#define KCR_CMD_KICK		0x11
#define KCR_CMD_LEAVE		0x12
#define KCR_CMD_CANCEL		0x13
#define KCR_CMD_FAIL		0x14
#define KCR_CMD_CONNECT		0x15
#define KCR_CMD_SEND		0x16
#define KCR_CMD_RELEASE		0x17
#define KCR_CMD_PUT		0x18
#define KCR_CMD_ACK		0x19
#define KCR_CMD_ARM		0x1a

/**
 * struct kcr_wait - sleep until this rank's event counter moves
 * @size: sizeof(struct kcr_wait)
 * @flags: must be 0
 * @seen: the value of kcr_status.events that the caller has acted on
 * @timeout_ns: from now, 1 .. KCR_MAX_WAIT_NS
 * @cookie: a name for KCR_CMD_CANCEL, any value
 *
 * Answers 0 as soon as the counter differs from @seen, at once if it does.
 *
 * -ETIMEDOUT  the time is up
 * -ECANCELED  by KCR_CMD_CANCEL, by io_uring, or because an exec was tried
 * -EINTR      a signal, or work that io_uring has for the task (the ioctl form
 *             only)
 * -ESHUTDOWN  the membership ended while it waited
 * -EDQUOT     too many parked already
 */
struct kcr_wait {
	__u32 size;
	__u32 flags;
	__u64 seen;
	__u64 timeout_ns;
	__u64 cookie;
};

/**
 * struct kcr_kick - move the event counters of other ranks
 * @size: sizeof(struct kcr_kick)
 * @flags: must be 0
 * @base: the rank that bit 0 of @mask stands for
 * @reserved: 0
 * @mask: a set of ranks; those outside the world give -EINVAL, those that
 *	are not there (absent, left, dead) are passed over
 */
struct kcr_kick {
	__u32 size;
	__u32 flags;
	__u32 base;
	__u32 reserved;
	__u64 mask;
};

/**
 * struct kcr_leave - end this membership in peace
 * @size: sizeof(struct kcr_leave)
 * @flags: must be 0
 *
 * The others see KCR_MEMBER_LEFT and an event. What this rank wrote stays
 * readable to those who mapped it. Its parked commands end with -ESHUTDOWN.
 */
struct kcr_leave {
	__u32 size;
	__u32 flags;
};

/**
 * struct kcr_cancel - end this rank's parked commands that have a cookie
 * @size: sizeof(struct kcr_cancel)
 * @flags: must be 0
 * @cookie: as given to KCR_CMD_WAIT
 *
 * Answers 0 if there was one, else -ENOENT.
 */
struct kcr_cancel {
	__u32 size;
	__u32 flags;
	__u64 cookie;
};

/**
 * struct kcr_fail - fail the world, for every rank
 * @size: sizeof(struct kcr_fail)
 * @flags: must be 0
 * @error: a positive errno, 1 .. 4095
 * @reserved: 0
 *
 * The world's first cause stays; a later one changes nothing and answers 0.
 */
struct kcr_fail {
	__u32 size;
	__u32 flags;
	__u32 error;
	__u32 reserved;
};

/**
 * struct kcr_connect - connect to a peer over a wire
 * @size: sizeof(struct kcr_connect)
 * @flags: must be 0
 * @peer: a rank, not this one
 * @wire: 0 .. KCR_MAX_WIRES - 1
 * @local: struct sockaddr_in or sockaddr_in6 of this end: an address of an RDMA device in
 *	the caller's network namespace; the port does not matter
 * @remote: the other end's, neither 0.0.0.0 nor ::, nor one of many; port 0 stands for the
 *	module's
 * @timeout_ms: until it must be up, from now, at most 600000; 0, for the higher rank
 *	only: wait for the peer without end
 * @depth: frames of a ring that may be on their way, 1 .. KCR_FRAMES_MAX - 1; the same
 *	on both ends
 *
 * The lower rank connects, so the higher one must have made the call before. The
 * call starts it and answers at once. How it goes is told by the connection's
 * page (KCR_MAP_CONN), which can be mapped afterwards; every change of its state
 * moves the event counter. A connection that could not be made fails alone, so that
 * all faults of the cabling are found; one that was up and breaks fails the world.
 *
 * -EEXIST          there is one, whatever its state
 * -EPROTONOSUPPORT kcollring_verbs.ko is not there
 * -EADDRINUSE      somebody else listens at the module's port
 * -EACCES          the port is less than 1024, and the caller may not use such ones
 */
struct kcr_connect {
	__u32 size;
	__u32 flags;
	__u32 peer;
	__u32 wire;
	__u8 local[28];
	__u8 remote[28];
	__u32 timeout_ms;
	__u32 depth;
};

/**
 * struct kcr_send - send a frame to peers
 * @size: sizeof(struct kcr_send)
 * @flags: must be 0
 * @window: the window in whose board of this rank the frame lies
 * @bytes: 1 .. KCR_FRAME_BYTES_MAX
 * @offset: of its first byte in the board
 * @wire: 0 .. KCR_MAX_WIRES - 1
 * @stream: 0 .. KCR_STREAMS - 1
 * @base: the rank that bit 0 of @mask stands for
 * @reserved: 0
 * @mask: the peers, at least one
 * @sequence: that the frame gets in the ring, the same for all peers: the next
 *
 * Answers 0 when it is handed to the device, for all peers. The bytes may not
 * change until the peers have released the frame.
 *
 * -ENOBUFS    one of the peers has no credit or has not opened the ring (it is
 *             asked to), the device's queue is full, or a frame with a lower sequence was
 *             not sent yet. Some of the others may have got it if the room went while it was
 *             sent: to send it again sends it to those who have not. Not -EAGAIN,
 *             which io_uring takes for its own
 * -EALREADY   a frame with this sequence was sent, to all of them
 * -ENOTCONN   no connection to one of them, or it is not up; nothing was sent, unless
 *             that has just changed
 * -ENXIO      this rank has no board in such a window
 * -EMSGSIZE   its memory is in more pieces than a request of the device can have, which no
 *             60 KiB are where that is 16
 * -EOPNOTSUPP the device does not see the board's memory as the CPU does
 */
struct kcr_send {
	__u32 size;
	__u32 flags;
	__u32 window;
	__u32 bytes;
	__u64 offset;
	__u32 wire;
	__u32 stream;
	__u32 base;
	__u32 reserved;
	__u64 mask;
	__u64 sequence;
};

/*
 * kcr_release.flags: a SEND to the same peer by the same wire follows at once, and
 * may carry the credit. If it is refused the credit goes by itself.
 */
#define KCR_RELEASE_MORE	0x1

/**
 * struct kcr_release - give frames back to their sender
 * @size: sizeof(struct kcr_release)
 * @flags: KCR_RELEASE_MORE or 0
 * @peer: a rank
 * @wire: 0 .. KCR_MAX_WIRES - 1
 * @stream: 0 .. KCR_STREAMS - 1
 * @size_class: 0 .. KCR_CLASSES - 1
 * @sequence: all up to this one; one that was released already changes nothing
 *
 * -EINVAL     it has not arrived yet, or the ring is closed
 * -ENOTCONN   no connection. One that is not up any more answers 0
 */
struct kcr_release {
	__u32 size;
	__u32 flags;
	__u32 peer;
	__u32 wire;
	__u32 stream;
	__u32 size_class;
	__u64 sequence;
};

#define KCR_PUT_MAX		64	/* slots of one KCR_CMD_PUT */

/**
 * struct kcr_put - send slots of a remote lane's image to its destination
 * @size: sizeof(struct kcr_put)
 * @flags: must be 0
 * @window: a remote window
 * @peer: the destination
 * @sequence: the first slot's; the slot lies at (sequence - 1) % depth
 * @count: how many, 1 .. KCR_PUT_MAX, and at most the lane's depth
 * @reserved: 0
 *
 * Of each slot what is used, from its sequence to its guard, by the length that it has
 * at this moment. The first sequence of a lane may be any but 0; the others follow
 * on it, else -EINVAL. Answers 0 when all are handed to the device; they may not change until
 * kcr_lane_status.done has come to them. They may reach the destination in any order.
 *
 * -ENOBUFS    the lane is waiting for the peer, or the device's queue is full; then
 *             the event counter moves when there is room. Nothing was sent
 * -EALREADY   a slot with this sequence was sent
 * -EMSGSIZE   a slot says that it has more bytes than the lane's capacity
 * -EPROTO     the peer's lane is not the same (KCR_LANE_UNEQUAL)
 * -ENOTCONN   no connection, it is not up, or KCR_LANE_ENDED
 * -ENXIO      no such remote window, or no lane to this peer in it
 */
struct kcr_put {
	__u32 size;
	__u32 flags;
	__u32 window;
	__u32 peer;
	__u64 sequence;
	__u32 count;
	__u32 reserved;
};

/**
 * struct kcr_put_ack - send a remote lane's acknowledgement to its source (KCR_CMD_ACK)
 * @size: sizeof(struct kcr_put_ack)
 * @flags: must be 0
 * @window: a remote window
 * @peer: the source
 *
 * The struct kcr_ack at the beginning of this rank's page, as it is at this
 * moment. Answers 0 when it is handed to the device, or is to follow one that is on its
 * way; of several that wait the last one goes, unless the membership ends before it can.
 *
 * Errors are KCR_CMD_PUT's, of those but -EALREADY and -EMSGSIZE.
 */
struct kcr_put_ack {
	__u32 size;
	__u32 flags;
	__u32 window;
	__u32 peer;
};

/* kcr_arm.flags: wait as the lane's source, for acknowledgements, and for @done. */
#define KCR_ARM_SOURCE		0x1

/**
 * struct kcr_arm - say that this rank is about to sleep (KCR_CMD_ARM)
 * @size: sizeof(struct kcr_arm)
 * @flags: KCR_ARM_SOURCE or 0
 * @window: a remote window
 * @peer: the other end
 * @seen: the last sequence that came: of a slot or, as the source, an acknowledgement
 *
 * The event counter moves when the peer has put or acknowledged something newer,
 * at once if it has. It may also move for what follows that, for a rank that has armed as
 * often as it was woken: as long as that lasts a further call does nothing, even
 * if something newer than @seen has come before. As the source it also moves when one more
 * of the slots that are on their way has arrived. Call it after the event counter was
 * read, and look at the lane again before KCR_CMD_WAIT.
 *
 * Errors are as of KCR_CMD_ACK.
 */
struct kcr_arm {
	__u32 size;
	__u32 flags;
	__u32 window;
	__u32 peer;
	__u64 seen;
};

/**
 * struct kcr_info - the next member that the caller may see (KCR_IOCTL_INFO)
 * @size: sizeof(struct kcr_info)
 * @flags: must be 0
 * @world: in: answer with the first member behind (@world, @rank) in the order of
 *	world serial numbers, then ranks; out: that member's world. Serial
 *	numbers start at 1, so all zero starts at the beginning
 * @rank: in and out, see @world
 * @ranks: the world's size
 * @id: the world's id
 * @cause: as in struct kcr_status
 * @uid: the member's user, as the caller's user namespace names it
 * @pid: its process, as the caller's pid namespace numbers it, or 0
 * @state: KCR_MEMBER_JOINED, _LEFT or _DEAD
 * @parked: commands it has parked
 * @pages: pages it pays for
 * @events: its event counter
 * @claim: as it wrote it, unchecked; all zero if there is no board
 * @age_ns: now less @claim.since_ns, 0 if there is no claim
 *
 * A caller sees worlds that its own user made; CAP_SYS_ADMIN sees all.
 *
 * -ENOENT     there is no further one
 */
struct kcr_info {
	__u32 size;
	__u32 flags;
	__u64 world;
	__u32 rank;
	__u32 ranks;
	__u8 id[16];
	__u64 cause;
	__u32 uid;
	__u32 pid;
	__u32 state;
	__u32 parked;
	__u64 pages;
	__u64 events;
	struct kcr_claim claim;
	__u64 age_ns;
};

#define KCR_IOCTL_TYPE		0xCB
/* iommufd's way: no size in the number, since the struct carries it. */
#define KCR_IOCTL_QUERY		_IO(KCR_IOCTL_TYPE, 0x00)
#define KCR_IOCTL_JOIN		_IO(KCR_IOCTL_TYPE, 0x01)
#define KCR_IOCTL_WINDOW	_IO(KCR_IOCTL_TYPE, 0x02)
#define KCR_IOCTL_WINDOW_DETACH	_IO(KCR_IOCTL_TYPE, 0x03)
#define KCR_IOCTL_INFO		_IO(KCR_IOCTL_TYPE, 0x04)
#define KCR_IOCTL_FRAMES	_IO(KCR_IOCTL_TYPE, 0x05)
#define KCR_IOCTL_WAIT		_IO(KCR_IOCTL_TYPE, KCR_CMD_WAIT)
#define KCR_IOCTL_KICK		_IO(KCR_IOCTL_TYPE, KCR_CMD_KICK)
#define KCR_IOCTL_LEAVE		_IO(KCR_IOCTL_TYPE, KCR_CMD_LEAVE)
#define KCR_IOCTL_CANCEL	_IO(KCR_IOCTL_TYPE, KCR_CMD_CANCEL)
#define KCR_IOCTL_FAIL		_IO(KCR_IOCTL_TYPE, KCR_CMD_FAIL)
#define KCR_IOCTL_CONNECT	_IO(KCR_IOCTL_TYPE, KCR_CMD_CONNECT)
#define KCR_IOCTL_SEND		_IO(KCR_IOCTL_TYPE, KCR_CMD_SEND)
#define KCR_IOCTL_RELEASE	_IO(KCR_IOCTL_TYPE, KCR_CMD_RELEASE)
#define KCR_IOCTL_PUT		_IO(KCR_IOCTL_TYPE, KCR_CMD_PUT)
#define KCR_IOCTL_ACK		_IO(KCR_IOCTL_TYPE, KCR_CMD_ACK)
#define KCR_IOCTL_ARM		_IO(KCR_IOCTL_TYPE, KCR_CMD_ARM)

#endif /* _UAPI_LINUX_KCOLLRING_H */
