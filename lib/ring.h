/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Message rings.
 *
 * What does not change once a ring is made needs no lock. Each outgoing lane has a lock
 * for those who send, each incoming one a lock for those who acknowledge, and the ring
 * one for who polls, which is held while messages are delivered. A callback may
 * take either of the others; nobody takes the poll lock with one of the others held, nor
 * two of them. The world's lock is taken in creation and destruction alone.
 *
 * What other threads look at without the lock (the next sequence, the counts) is atomic.
 */
#ifndef KCR_RING_H
#define KCR_RING_H

#include "link.h"

/**
 * struct ring_lane - a lane of the list
 * @desc: as the ranks agreed
 * @bytes: of its slots, without rounding
 * @slots: mapped, if this rank is one of the two
 * @ack: likewise
 * @status: of a lane between nodes, else NULL
 */
struct ring_lane {
	struct kcr_lane desc;
	size_t bytes;
	unsigned char *slots;
	struct kcr_ack *ack;
	const struct kcr_lane_status *status;
};

struct ring_watch;
struct ring_vote;
struct ring_put;

/**
 * struct ring_damage - something that is not whole
 * @since_ns: since when it is so; 0 if it is not
 * @found: the sequence that was found then
 */
struct ring_damage {
	uint64_t since_ns;
	uint64_t found;
};

/**
 * struct ring_tx - a lane that leads from this rank
 * @lock: for sending: all of the following but what is constant
 * @slots: with the next sequence
 * @peer: constant; the destination
 * @ack: constant; how far the destination has come
 * @remote: constant; NULL, or the destination is on another node and the slots are an image
 * @acked: the last good look at it
 * @damage: to the counter
 * @written: between nodes: what the module has not been given yet, the last messages before
 *	the next sequence, each of another thread, which waits; @written_end: and where it ends
 * @nr_written: how many
 * @is_putting: one of the threads is in the module, without the lock
 * @is_put: it has come back, or another one has
 * @sent: counts, for kcr_ring_stats(); from here on atomic
 */
struct ring_tx {
	pthread_mutex_t lock;
	struct slots slots;
	int peer;
	const struct kcr_ack *ack;
	const struct kcr_lane_status *remote;
	uint64_t acked;
	struct ring_damage damage;
	struct ring_put *written, **written_end;
	uint32_t nr_written;
	bool is_putting;
	pthread_cond_t is_put;
	uint64_t sent, bytes, torn, max_lag, waits, wait_ns;
} __attribute__((aligned(KCR_CACHE_LINE)));

/**
 * struct ring_rx - a lane that leads to this rank
 * @slots: with the sequence that is delivered next, which only who polls moves, and
 *	others read
 * @peer: constant; the source
 * @remote: constant; NULL, or the source is on another node
 * @damage: for who polls: to the next message
 * @torn_until: until then a poll that has found that message torn takes it for one that is
 *	landing, and who waits need not wake for it; 0 if none has; atomic
 * @given_up: of a raw lane: the sequence that was found damaged for too long where the
 *	next message should be, which may not have been written yet; 0 if it is not so; atomic
 * @err: why nothing comes from here any more, or 0; atomic
 * @bad: the message that it is about
 * @is_told: a poll has returned it, or has had to tell of the world's end; atomic
 * @ack_lock: for acknowledging: the three that follow
 * @ack: written here
 * @acked: what was written last
 * @told: what was sent of it last to a source on another node
 * @received: counts; from here on atomic
 */
struct ring_rx {
	struct slots slots;
	int peer;
	const struct kcr_lane_status *remote;
	struct ring_damage damage;
	uint64_t torn_until;
	uint64_t given_up;
	int err;
	uint64_t bad;
	bool is_told;
	pthread_mutex_t ack_lock;
	struct kcr_ack *ack;
	uint64_t acked, told;
	uint64_t received, bytes, lost, torn, corrupt, max_lag;
} __attribute__((aligned(KCR_CACHE_LINE)));

struct ring_mapping {
	void *at;
	size_t bytes;
};

/**
 * struct kcr_ring - a ring, as one rank has it
 * @world: NULL once that has gone; changes only when nobody uses the ring
 * @link: the world's; NULL if it has one rank
 * @next: in the world's list
 * @fork_generation: tells a forked child
 * @number: of the world's rings, from 1
 * @flags: KCR_RING_RAW
 * @rank: this one
 * @lanes: by source, then destination
 * @count: how many
 * @tx: the lanes from this rank, by destination
 * @rx: the lanes to this rank, by source
 * @to: by destination: of @tx, or NULL
 * @from: by source: of @rx, or NULL
 * @votes: by rank; only while it is made
 * @mapped: all that is, and @mappings how much
 * @fd: the memory that this rank shares, or the device; or -1
 * @owns_fd: it goes with the ring
 * @window: the module's number for the ring's memory, 0 if it has none
 * @remote_window: the same for its lanes between nodes, 0 if no rank has any
 * @has_remote: this rank has, and made the window
 * @patience_ns: damage that stays so long is no write in progress
 * @remote_patience_ns: the same on lanes between nodes
 * @poll_lock: for who polls: @first, @copy and @rx
 * @first: which lane the next poll looks at first
 * @copy: a message of a raw lane, else NULL
 * @watch_lock: for making @watch
 * @watch: who feeds the descriptor, or NULL; atomic
 */
struct kcr_ring {
	struct kcr_world *world;
	struct link *link;
	struct kcr_ring *next;
	unsigned int fork_generation;
	unsigned int number;
	unsigned int flags;
	int rank;
	struct ring_lane *lanes;
	size_t count;
	struct ring_tx *tx;
	struct ring_rx *rx;
	size_t tx_count, rx_count;
	struct ring_tx *to[KCR_RANKS_MAX];
	struct ring_rx *from[KCR_RANKS_MAX];
	struct ring_vote *votes;
	struct ring_mapping *mapped;
	size_t mappings;
	int fd;
	bool owns_fd;
	unsigned int window;
	unsigned int remote_window;
	bool has_remote;
	uint64_t patience_ns, remote_patience_ns;
	pthread_mutex_t poll_lock;
	size_t first;
	unsigned char *copy;
	pthread_mutex_t watch_lock;
	struct ring_watch *watch;
};

static inline bool ring_is_raw(const struct kcr_ring *ring)
{
	return ring->flags & KCR_RING_RAW;
}

/* A count or a sequence that others may look at meanwhile. */
static inline uint64_t ring_get(const uint64_t *count)
{
	return __atomic_load_n(count, __ATOMIC_RELAXED);
}

/* By one thread at a time. */
static inline void ring_add(uint64_t *count, uint64_t n)
{
	__atomic_store_n(count, *count + n, __ATOMIC_RELAXED);
}

static inline void ring_raise(uint64_t *count, uint64_t n)
{
	if (n > *count)
		__atomic_store_n(count, n, __ATOMIC_RELAXED);
}

/* ring_agree.c: what all ranks must agree on */
struct ring_vote *ring_votes(int size);
int ring_check_list(struct kcr_ring *ring);
int ring_agree(struct kcr_ring *ring, int err);
int ring_vote(struct kcr_ring *ring, int err, const char *note);
const char *ring_note(const struct kcr_ring *ring, int rank);

/* ring_slots.c: the protocol of lanes */

/* What a look at the slot of a sequence has found. */
enum ring_look {
	LOOK_NOTHING,	/* the source has not come so far */
	LOOK_WRITING,	/* it writes there now, which may take as long as it takes */
	LOOK_DAMAGED,	/* something that is neither, or that is in the middle of landing */
	LOOK_PASSED,	/* a later message */
	LOOK_MESSAGE,
};

/**
 * struct ring_view - a message that was found
 * @sequence: its number; of damage, what is found in its place
 * @data: the payload, in place or copied
 * @bytes: of it
 */
struct ring_view {
	uint64_t sequence;
	const void *data;
	uint32_t bytes;
};

void ring_write(const struct slots *slots, uint64_t sequence, const void *data,
		uint32_t bytes);
enum ring_look ring_look(const struct slots *slots, uint64_t sequence,
			 unsigned char *copy, struct ring_view *view);
bool ring_has_news(const struct slots *slots, uint64_t sequence, uint64_t given_up);
bool ring_has_come(const struct slots *slots, uint64_t sequence);
uint32_t ring_checksum(uint64_t sequence, uint32_t length, const void *data);
void ring_count(struct kcr_ack *ack, uint64_t sequence);
bool ring_read_count(const struct kcr_ack *ack, uint64_t *sequence);

/* ring_send.c */
int ring_check_peer(const struct kcr_ring *ring, const struct ring_tx *tx);
uint64_t ring_patience(const struct kcr_ring *ring, bool is_remote);
bool ring_is_stuck(const struct kcr_ring *ring, bool is_remote,
		   struct ring_damage *damage, uint64_t found);

/* ring_wait.c */

/**
 * struct ring_wait - a wait
 * @ring: the ring
 * @limit_ns: how long
 * @attempt: tries to do what is waited for; -EAGAIN: not yet
 * @tx: the lane that is to have room, or NULL: then it is a message that is waited for
 * @is_slow: the attempt enters the kernel
 * @late: writes the sentence of a wait that has lasted so many seconds; NULL for one
 *	that is nobody's business
 * @began_ns: when it began; 0 while that is not known, which takes a look at the clock
 */
struct ring_wait {
	struct kcr_ring *ring;
	uint64_t limit_ns;
	struct ring_tx *tx;
	bool is_slow;
	int64_t (*attempt)(struct ring_wait *wait);
	void (*late)(const struct ring_wait *wait, double seconds, char *text,
		     size_t size);
	uint64_t began_ns;
};

int64_t ring_wait_timeout(struct ring_wait *w, int64_t timeout_ns);
int64_t ring_wait_asleep(struct ring_wait *w);
int64_t ring_look_for_any(struct ring_wait *w);
int ring_enter(const struct kcr_ring *ring);
int ring_ended(const struct kcr_ring *ring, uint64_t cause);
uint64_t ring_cause(const struct kcr_ring *ring);
bool ring_all_left(const struct kcr_ring *ring);
int ring_nobody_left(const struct kcr_ring *ring);
bool ring_has_any(const struct kcr_ring *ring);

/* ring_fd.c */
void ring_watch_drained(struct kcr_ring *ring);
void ring_watch_stop(struct kcr_ring *ring);
void ring_watch_free(struct kcr_ring *ring);

/* ring.c */
void ring_orphan_all(struct kcr_world *w);

/* ring_memory.c */
void *ring_map(struct kcr_ring *ring, int fd, uint64_t offset, size_t bytes,
	       bool is_writable, const char *whose);
void ring_unmap_all(struct kcr_ring *ring);

/* ring_mesh.c: lanes between nodes, for ring_module.c and for those who use them */
int ring_mesh_check(const struct kcr_ring *ring, const struct kcr_lane *l);
int ring_mesh_attach(struct kcr_ring *ring);
int ring_mesh_map(struct kcr_ring *ring);
void ring_mesh_detach(struct kcr_ring *ring);
bool ring_mesh_has_place(const struct ring_tx *tx);
int64_t ring_mesh_send(struct kcr_ring *ring, struct ring_tx *tx, const void *data,
		       uint32_t bytes);
bool ring_mesh_settle(struct ring_tx *tx);
int ring_mesh_ack(struct kcr_ring *ring, struct ring_rx *rx);
void ring_mesh_arm(struct kcr_ring *ring, const struct ring_tx *tx);

/* ring_module.c and ring_shm.c; and what they have from the links of that name */
extern const struct ring_carrier_ops ring_module_ops, ring_shm_ops;
int shm_park(struct link *link, uint64_t seen, uint64_t timeout_ns);
void shm_kick_one(struct link *link, int rank);
struct kcr_lane_desc *ring_list_lanes(const struct kcr_ring *ring, uint32_t *count,
				      bool (*belongs)(const struct kcr_ring *ring,
						      const struct ring_lane *lane));
int module_device(const struct link *link);
void module_nap(void);

#endif /* KCR_RING_H */
