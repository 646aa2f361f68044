/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two processes that have nothing to do with what is tried: a world of their own, as
 * another user, in which numbers go to and fro, over boards and over the mesh. Nothing
 * that others do may disturb them.
 */
#ifndef KCR_FUZZ_VICTIM_H
#define KCR_FUZZ_VICTIM_H

#include "mesh.h"

#define VICTIM_BOARD	65536
#define VICTIM_WORDS	64
/* Where in the board frames lie. */
#define VICTIM_FRAME	32768

struct victims {
	struct dev_world world;
	bool has_mesh;
	double patience;
	pid_t pid[2];
	/* shared: */
	struct {
		int ready;
		__u64 rounds;
		__u64 frames;
	} *told;
};

struct victim {
	struct victims *all;
	__u32 rank;
	int fd;
	struct kcr_status *status;
	struct kcr_conn_status *conn;
	const unsigned char *frames;
	__u64 *own;
	__u64 *others;
};

static inline __u64 victim_word(__u64 round, int i)
{
	return (round * 64 + i + 1) * 0x9e3779b97f4a7c15;
}

/* Sleep until @condition, which an event tells of. */
#define VICTIM_AWAIT(v, condition) do {					\
	double until = dev_now() + (v)->all->patience;			\
									\
	for (;;) {							\
		__u64 seen = dev_events((v)->status);			\
		int got;						\
									\
		if (condition)						\
			break;						\
		got = victim_wait(v, seen);				\
		/* Its own io_uring may have work for it. */		\
		CHILD_TRUE(!got || got == -ETIMEDOUT || got == -EINTR);	\
		CHILD_GIVES(0, dev_cause((v)->status));			\
		CHILD_TRUE(dev_now() < until);				\
	}								\
} while (0)

static inline int victim_wait(struct victim *v, __u64 seen)
{
	struct kcr_wait args = {
		.size = sizeof(args),
		.seen = seen,
		.timeout_ns = DEV_SECOND / 2,
	};

	return dev_command(seen % 4 ? DEV_IOCTL : DEV_URING, v->fd, KCR_CMD_WAIT, &args,
			   sizeof(args));
}

static inline void victim_connect(struct victim *v)
{
	__u32 other = !v->rank;

	/* The higher rank first. */
	if (!v->rank)
		CHILD_TRUE(DEV_SOON(v->all->patience, v->all->told->ready));
	CHILD_GIVES(0, mesh_connect(v->fd, other, 0));
	__atomic_store_n(&v->all->told->ready, 1, __ATOMIC_SEQ_CST);
	v->conn = mesh_status(v->fd, other, 0);
	CHILD_TRUE(v->conn != MAP_FAILED);
	VICTIM_AWAIT(v, mesh_is_up(v->conn));
	CHILD_GIVES(0, mesh_frames(v->fd, other, 0, 0, 0));
	v->frames = mesh_map_frames(v->fd, other, 0, 0, 0);
	CHILD_TRUE(v->frames != MAP_FAILED);
}

static inline void victim_join(struct victim *v)
{
	static const struct kcr_lane_desc pair[] = { { 0, 1, 4, 64 }, { 1, 0, 4, 64 } };

	v->fd = dev_member(&v->all->world, v->rank);
	CHILD_TRUE(v->fd >= 0);
	v->status = dev_status(v->fd);
	CHILD_TRUE(v->status != MAP_FAILED);
	CHILD_GIVES(0, dev_window(v->fd, 0, pair, 2, VICTIM_BOARD));
	v->own = dev_map(v->fd, PROT_READ | PROT_WRITE, 0, KCR_MAP_BOARD, v->rank,
			 VICTIM_BOARD);
	CHILD_TRUE(v->own != MAP_FAILED);
	CHILD_TRUE(DEV_SOON(v->all->patience, ({
		v->others = dev_map(v->fd, PROT_READ, 0, KCR_MAP_BOARD, !v->rank,
				    VICTIM_BOARD);
		v->others != MAP_FAILED;
	})));
	if (v->all->has_mesh)
		victim_connect(v);
}

static inline void victim_speaks(struct victim *v, __u64 round)
{
	__u64 frame = round / 2;

	for (int i = 0; i < VICTIM_WORDS; i++)
		v->own[64 + i] = victim_word(round, i);
	__atomic_store_n(&v->own[32], round, __ATOMIC_RELEASE);
	CHILD_GIVES(0, dev_kick(v->fd, 0, 1ull << !v->rank));
	if (!v->conn)
		return;
	for (int i = 0; i < VICTIM_WORDS; i++)
		v->own[VICTIM_FRAME / 8 + i] = ~victim_word(round, i);
	VICTIM_AWAIT(v, mesh_limit(v->conn, 0, 0) >= frame);
	CHILD_GIVES(0, mesh_send(v->fd, !v->rank, 0, 0, VICTIM_FRAME, VICTIM_WORDS * 8,
				 frame));
}

static inline void victim_hears(struct victim *v, __u64 round)
{
	__u64 frame = round / 2;
	const __u64 *came;

	VICTIM_AWAIT(v, __atomic_load_n(&v->others[32], __ATOMIC_ACQUIRE) >= round);
	for (int i = 0; i < VICTIM_WORDS; i++)
		CHILD_TRUE(v->others[64 + i] == victim_word(round, i));
	if (!v->conn)
		return;
	VICTIM_AWAIT(v, mesh_arrived(v->conn, 0, 0) >= frame);
	came = (const __u64 *)(v->frames + (frame - 1) % (MESH_DEPTH + 1) * 4096);
	for (int i = 0; i < VICTIM_WORDS; i++)
		CHILD_TRUE(came[i] == ~victim_word(round, i));
	CHILD_GIVES(0, mesh_release(v->fd, !v->rank, 0, 0, 0, frame));
}

static inline void victim_main(void *arg)
{
	struct victim *v = arg;

	victim_join(v);
	for (__u64 round = 2;; round++) {
		if (round % 2 == v->rank) {
			victim_speaks(v, round);
			dev_sleep(0.002);
		} else {
			victim_hears(v, round);
		}
		CHILD_GIVES(0, dev_cause(v->status));
		__atomic_store_n(&v->all->told->rounds, round, __ATOMIC_RELEASE);
	}
}

static inline __u64 victims_rounds(const struct victims *all)
{
	return __atomic_load_n(&all->told->rounds, __ATOMIC_ACQUIRE);
}

/* Are they there, and getting on? */
static inline bool victims_are_well(struct victims *all)
{
	__u64 before = victims_rounds(all);
	bool are_there = true;

	for (int i = 0; i < 2; i++)
		are_there &= !waitpid(all->pid[i], NULL, WNOHANG);
	return are_there && DEV_SOON(all->patience, victims_rounds(all) > before + 1 ||
				     waitpid(all->pid[0], NULL, WNOHANG) ||
				     waitpid(all->pid[1], NULL, WNOHANG)) &&
		victims_rounds(all) > before + 1;
}

/*
 * 0 when each has sent something to the other, else an error: what that needs they
 * have then, and do not get more while others are tried.
 */
static inline int victims_start(struct victims *all, double slow)
{
	memset(all, 0, sizeof(*all));
	all->world = dev_world(2);
	all->has_mesh = !mesh_missing();
	all->patience = 20 * slow;
	all->told = dev_shared(sizeof(*all->told));
	for (int i = 0; i < 2; i++) {
		struct victim v = { .all = all, .rank = i };

		all->pid[i] = dev_child(victim_main, &v);
	}
	/* Two rounds are seen each time: first rank 0's, then rank 1's and another. */
	return victims_are_well(all) && victims_are_well(all) ? 0 : -EIO;
}

static inline void victims_end(struct victims *all)
{
	/* Both at once, or one would complain of the other's death. */
	for (int i = 0; i < 2; i++)
		kill(all->pid[i], SIGKILL);
	for (int i = 0; i < 2; i++)
		dev_child_status(all->pid[i], DEV_SETTLE);
}

#endif /* KCR_FUZZ_VICTIM_H */
