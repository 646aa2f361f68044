/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The numbers that matter, each with its reason.
 */
#ifndef KCR_LIMITS_H
#define KCR_LIMITS_H

/* DESIGN's threshold: below it one exchange costs less than two shorter ones. */
#define DEFAULT_DIRECT_MAX	(32u << 10)

/*
 * Two slots let a peer fold one segment while the next is copied; 64 KiB of
 * each stay in the second-level cache between the copy and the fold.
 */
#define DEFAULT_LANE_DEPTH	2u
#define DEFAULT_LANE_BYTES	(64u << 10)
#define DEFAULT_BOARD_DEPTH	4u
#define DEFAULT_BOARD_BYTES	(64u << 10)

/* A rank's outgoing lanes stay below this (half of Debian's memlock limit). */
#define LANES_BUDGET		(4u << 20)

/* A slot holds a header and at least one element of the widest type. */
#define MIN_SLOT_BYTES		64u
#define MAX_SLOT_BYTES		(16u << 20)
#define MAX_DEPTH		1024u
/* With one slot the algorithms' steps would wait for one another in a circle. */
#define MIN_DEPTH		2u

/*
 * Rounds of looking before a CPU is given away. With a CPU for each rank a
 * peer is at most some hundred microseconds behind; with fewer CPUs than
 * ranks it cannot come before this rank yields.
 */
#define SPIN_ENOUGH_CPUS	1024
#define SPIN_FEW_CPUS		16
/* Whatever the budget says: who waits longer than this must see who lives. In ns. */
#define SPIN_LIMIT_NS		100000000ull
/* Rounds between looks at the clock, which is a system call on some machines. */
#define SPIN_CHUNK		16384
/* Rounds of sched_yield() before sleeping: sleeping costs two switches and a kick. */
#define YIELD_ROUNDS		256

/*
 * Over the mesh, messages from this size on are split across all wires: smaller
 * ones cost more in posting twice than they gain. DESIGN's threshold.
 */
#define DEFAULT_WIRES_FROM	(512u << 10)
/* Frames of a ring that may be on their way: one travels while one is read. */
#define DEFAULT_MESH_DEPTH	2u
/* What the module allows: KCR_FRAMES_MAX - 1. */
#define MAX_MESH_DEPTH		15u
/* A frame of this size is worth a system call of its own, so that it leaves at once. */
#define MESH_PUSH_BYTES		(16u << 10)
/* Slots of a channel whose frames may have been taken without the sender's knowing. */
#define MESH_SPARE_SLOTS	(MESH_RELEASE_AT - 1)
/* So many frames of a channel are released together: see link_mesh.c. */
#define MESH_RELEASE_AT		2u
/* A frame that the device has no room for is tried again so soon. In ns. */
#define MESH_RETRY_NS		1000000ull
/* More ranks than this are connected on first use: DESIGN's number. */
#define MESH_EAGER_RANKS	64
/* Making one connection may take so long, within the time to come together. In ms. */
#define MESH_CONNECT_MS		60000u
/* While connections are made: how often to look whether another rank has failed. In ns. */
#define MESH_LOOK_NS		100000000ull
/* One connection has failed: so long the others may take to fail as well. In ns. */
#define MESH_GRACE_NS		2000000000ull

/* The watchdog: jobs write checkpoints, so minutes are normal. In ms. */
#define DEFAULT_WARN_MS		30000u
#define DEFAULT_TIMEOUT_MS	300000u
#define DEFAULT_RENDEZVOUS_MS	120000u
/* A rank that cannot come waits so long for somebody to tell. In ms. */
#define REFUSE_MS		5000u
/*
 * A dead leader's error is for us if none that lives comes in this time, where
 * launches have no names. In ms.
 */
#define NEXT_LAUNCH_MS		2000u
/* Rank 0 still tells an error to ranks that come so much later. In ms. */
#define LATE_MS			3000u
/* Rank 0 waits so long for a port that somebody uses. In ms. */
#define LISTEN_MS		2000u
/* An address of several may be one that swallows what is sent to it. In ms. */
#define CONNECT_MS		3000u
/*
 * Connections that have not said a hello: so many, and each so long, and less long
 * where others wait for its place. In ms.
 */
#define STRANGERS		64
#define STRANGER_MS		3000u
#define STRANGER_FULL_MS	300u
/* Later than this is a mistake in the unit. */
#define MAX_TIMEOUT_MS		(7ull * 24 * 3600 * 1000)

/* The slots of a ring's lane: the module's mappings are told apart by 32 bits. */
#define RING_LANE_BYTES_MAX	0xfffff000ul
/*
 * A slot or a counter that is not whole may be landing. Who sees it look after look for so
 * long has seen damage: the largest slot lands in milliseconds, but on a machine that
 * is not on a CPU for a while. In ns.
 */
#define RING_PATIENCE_NS	1000000000ull
/*
 * Between nodes it lands when the transport has had its way: seven retries of four times
 * 4096 ns * 2^17 at worst are 15 s, and a node that has died is seen after the module's silent_ms,
 * 9 s. What stays half landed for longer is damage: of a connection that has broken the
 * world's end tells before. In ns.
 */
#define RING_REMOTE_PATIENCE_NS	30000000000ull
/* A thread that the module lets not park looks again so soon. In ns. */
#define MODULE_NAP_NS		1000000l
/* Looks at what is not whole before who looks goes on with something else. */
#define RING_LOOKS		64

/* Over shared memory a sleeping rank looks for dead peers this often. In ns. */
#define SHM_SLICE_NS		100000000ull
/* A process that is dying has lost its locks so long after its descriptors. In ns. */
#define DYING_NS		1000000000ull

/* One who tests, or polls, and does not sleep looks for dead peers this often. In ns. */
#define LOOK_NS			100000000ull

/* The progress thread's patience before it naps, and how long it naps. */
#define PROGRESS_YIELDS		100
#define PROGRESS_NAP_NS		50000

/* More emulated ranks than this get slots of this size by default. */
#define EMU_FEW_RANKS		16
#define EMU_SLOT_BYTES		1024u

/* A rank that parks looks up at least this often. In ns. */
#define PARK_SLICE_NS		5000000000ull
/*
 * And at least so often before its time is up: who has not looked for half of
 * the time does not wait any more, but has stopped.
 */
#define BEATS			8

/*
 * Ranks have called different things, but nothing that differs has come here yet: the
 * operation that this rank is in may be an earlier one, which can still
 * complete. In ns.
 */
#define DIFFER_NS		1000000000ull

/*
 * A kernel thread that polls for commands (KCR_URING=sqpoll) sleeps after this: as
 * long as a rank that computes a step may leave it alone, and no CPU is burnt for long.
 */
#define SQPOLL_IDLE_MS		20u

#endif /* KCR_LIMITS_H */
