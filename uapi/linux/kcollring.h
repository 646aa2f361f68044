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
 * @members: how many the caller's user has now
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
 * -ECONNRESET    the world has failed
 */
struct kcr_join {
	__u32 size;
	__u32 flags;
	__u8 id[16];
	__u8 key[16];
	__u32 rank;
	__u32 ranks;
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

/**
 * struct kcr_window - make a window, or attach to it (KCR_IOCTL_WINDOW)
 * @size: sizeof(struct kcr_window)
 * @flags: must be 0
 * @window: its number, 0 .. KCR_MAX_WINDOWS - 1; chosen alike on every rank
 * @nr_lanes: entries of @lanes, 0 .. KCR_MAX_LANES
 * @lanes: user address of an array of struct kcr_lane_desc
 * @board_bytes: the size of each rank's board, a multiple of the page size, or 0 for no boards
 *
 * Every rank makes the call, with the same list. It allocates what this rank
 * pays for: the slots of lanes that end at it, the acknowledgement pages of lanes that
 * start at it, and its board. A part can be mapped once the rank that pays
 * for it has made the call.
 *
 * -EINVAL     a lane given twice, a rank outside the world, source equal to
 *             destination, zero depth or capacity, a part of 4 GiB or more
 * -EPROTO     another rank made this window with another list or board size
 * -EEXIST     this rank has attached to it already
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
 * A rank cannot attach to a window a second time while it lives.
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
 *  KCR_MAP_BOARD     rank     that rank                   every rank of the world
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
 *	rank joins, leaves or dies, and when the world fails
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
#define KCR_IOCTL_WAIT		_IO(KCR_IOCTL_TYPE, KCR_CMD_WAIT)
#define KCR_IOCTL_KICK		_IO(KCR_IOCTL_TYPE, KCR_CMD_KICK)
#define KCR_IOCTL_LEAVE		_IO(KCR_IOCTL_TYPE, KCR_CMD_LEAVE)
#define KCR_IOCTL_CANCEL	_IO(KCR_IOCTL_TYPE, KCR_CMD_CANCEL)
#define KCR_IOCTL_FAIL		_IO(KCR_IOCTL_TYPE, KCR_CMD_FAIL)

#endif /* _UAPI_LINUX_KCOLLRING_H */
