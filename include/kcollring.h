/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * kcollring: collectives with the same bits on every rank, run and path
 *
 * Every call returns 0 or a negative errno; kcr_error() then has a sentence
 * that says what was wrong, with the names and values. A world fails once and stays
 * failed: later calls return the first cause.
 *
 * All ranks of a world call the same collectives in the same order. A world
 * is used by one thread at a time.
 */
#ifndef KCOLLRING_H
#define KCOLLRING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KCR_VERSION "0.1.0"

/* Most ranks in a world over the node-local links. */
#define KCR_RANKS_MAX 64

/**
 * enum kcr_dtype - the type of an element
 *
 * kcr_allreduce() takes KCR_F32 and KCR_F64 so far and refuses the others
 * with -EOPNOTSUPP.
 */
enum kcr_dtype {
	KCR_I8,
	KCR_U8,
	KCR_I16,
	KCR_U16,
	KCR_I32,
	KCR_U32,
	KCR_I64,
	KCR_U64,
	KCR_F16,
	KCR_BF16,
	KCR_F32,
	KCR_F64,
	KCR_DTYPES		/* how many there are */
};

/**
 * enum kcr_op - how elements are reduced
 *
 * kcr_allreduce() takes KCR_SUM so far and refuses the others with
 * -EOPNOTSUPP.
 */
enum kcr_op {
	KCR_SUM,
	KCR_PROD,
	KCR_MIN,
	KCR_MAX,
	KCR_MEAN,
	KCR_BAND,
	KCR_BOR,
	KCR_BXOR,
	KCR_OPS			/* how many there are */
};

/**
 * enum kcr_link_kind - what carries the bytes between ranks of one node
 * @KCR_LINK_AUTO: the module if every rank can use it, else shared memory
 * @KCR_LINK_MODULE: kcollring.ko
 * @KCR_LINK_SHM: memory that the library maps itself; needs no privileges
 */
enum kcr_link_kind {
	KCR_LINK_AUTO,
	KCR_LINK_MODULE,
	KCR_LINK_SHM,
};

/**
 * enum kcr_algo - the shape of a collective; never changes the bits
 * @KCR_ALGO_AUTO: by the size of the message
 * @KCR_ALGO_DIRECT: everyone sends all to all, each folds everything
 * @KCR_ALGO_OWNER: rank r folds shard r, then the shards are gathered
 */
enum kcr_algo {
	KCR_ALGO_AUTO,
	KCR_ALGO_DIRECT,
	KCR_ALGO_OWNER,
};

struct kcr_world;

/**
 * struct kcr_config - how a world is made
 * @struct_size: sizeof(struct kcr_config), set by kcr_config_init()
 * @rank: this process's rank, 0 .. @size - 1			(KCR_RANK)
 * @size: ranks in the world					(KCR_SIZE)
 * @local_rank: this process's number on its node		(KCR_LOCAL_RANK)
 * @local_size: ranks on this node				(KCR_LOCAL_SIZE)
 * @rendezvous: where the ranks meet, "file:/path/of/a/directory" (KCR_RENDEZVOUS);
 *	not used, and may be NULL, when @size is 1. The string must live until kcr_world_create()
 *	returns
 * @job: names the launch, so that files of an earlier one are not
 *	mistaken for this one's (KCR_JOB); may be NULL
 * @link: what carries the bytes	(KCR_LINK=auto|module|shm)
 * @algo: the algorithm			(KCR_ALGO=auto|direct|owner)
 * @direct_max: largest message in bytes that AUTO gives to direct (KCR_DIRECT_MAX)
 * @lane_depth: slots in a lane		(KCR_LANE_DEPTH)
 * @lane_bytes: payload bytes of a lane's slot (KCR_LANE_BYTES)
 * @board_depth: slots in a board	(KCR_BOARD_DEPTH)
 * @board_bytes: payload bytes of a board's slot (KCR_BOARD_BYTES)
 * @spin: rounds of looking before a waiting rank yields the CPU (KCR_SPIN);
 *	negative: chosen from the number of ranks and CPUs of the node
 * @yield: rounds of sched_yield() before a waiting rank sleeps (KCR_YIELD);
 *	negative: chosen by the library
 * @warn_ms: an operation that waits so long says once for whom, 0 never (KCR_WARN, in seconds)
 * @timeout_ms: an operation that waits so long fails with -ETIMEDOUT (KCR_TIMEOUT, in seconds)
 * @rendezvous_ms: how long to wait for the other ranks to come (KCR_RENDEZVOUS_TIMEOUT, in seconds)
 * @debug: say on stderr what was chosen and why (KCR_DEBUG=1)
 *
 * The fields from @size on, but for @local_rank, @spin, @yield, @warn_ms, @timeout_ms,
 * @rendezvous_ms and @debug, must be the same on every rank, and a difference is an error on
 * every rank. Call kcr_config_init() first, then change what you want.
 */
struct kcr_config {
	size_t struct_size;
	int rank;
	int size;
	int local_rank;
	int local_size;
	const char *rendezvous;
	const char *job;
	enum kcr_link_kind link;
	enum kcr_algo algo;
	size_t direct_max;
	uint32_t lane_depth;
	uint32_t lane_bytes;
	uint32_t board_depth;
	uint32_t board_bytes;
	int64_t spin;
	int64_t yield;
	uint64_t warn_ms;
	uint64_t timeout_ms;
	uint64_t rendezvous_ms;
	int debug;
};

/**
 * kcr_config_init() - defaults, changed by the environment
 * @config: filled in
 *
 * Reads KCR_RANK, KCR_SIZE, KCR_LOCAL_RANK, KCR_LOCAL_SIZE, KCR_RENDEZVOUS
 * and so on, as named in struct kcr_config. Strings point into the
 * environment. A variable that cannot be understood is remembered and
 * makes kcr_world_create() fail with -EINVAL and a sentence that names it.
 */
void kcr_config_init(struct kcr_config *config);

/**
 * kcr_world_create() - come together with the other ranks
 * @config: from kcr_config_init(), or NULL for just that
 * @world: the new world, owned by the caller until kcr_world_destroy()
 *
 * Collective: returns when all ranks have come, agree and are connected, or
 * with an error on every rank. A world of one rank needs no rendezvous,
 * environment or module.
 *
 * -EINVAL	a field is out of range, or differs between ranks
 * -EEXIST	two processes claim one rank
 * -ENODEV	KCR_LINK_MODULE, and the module is not loaded
 * -EACCES	KCR_LINK_MODULE, and no permission for the device
 * -ETIMEDOUT	not all ranks came
 * -ENOMEM	memory, RLIMIT_MEMLOCK; -EDQUOT a quota of the module
 */
int kcr_world_create(const struct kcr_config *config, struct kcr_world **world);

/**
 * kcr_world_destroy() - leave a world
 * @world: freed, whatever is returned; NULL is fine
 *
 * Not collective: a rank leaves when it is done. The others finish every
 * operation whose data has arrived; later ones get -ESHUTDOWN.
 */
int kcr_world_destroy(struct kcr_world *world);

/** kcr_rank() - this rank's number, or -EINVAL for NULL */
int kcr_rank(const struct kcr_world *world);
/** kcr_size() - how many ranks the world has, or -EINVAL for NULL */
int kcr_size(const struct kcr_world *world);
/** kcr_local_rank() - this rank's number on its node */
int kcr_local_rank(const struct kcr_world *world);
/** kcr_local_size() - ranks of the world on this node */
int kcr_local_size(const struct kcr_world *world);
/** kcr_link_name() - what carries the bytes: "self", "module" or "shm" */
const char *kcr_link_name(const struct kcr_world *world);

/**
 * kcr_error() - the last error in words
 * @world: a world, or NULL for errors of this thread's calls that had none
 *
 * Returns a string, empty if there was no error, that is valid until the next
 * call on @world (with NULL: in this thread).
 */
const char *kcr_error(const struct kcr_world *world);

/**
 * kcr_allreduce() - reduce over all ranks, the result to all of them
 * @world: the world
 * @send: @count elements of this rank
 * @recv: @count elements of result; may be @send itself (in place), must not overlap it in part
 * @count: elements, the same on every rank; 0 succeeds
 * @dtype: their type
 * @op: how to reduce
 *
 * Each element of the result is op( ... op(op(x[0], x[1]), x[2]) ..., x[size - 1]),
 * bit for bit, by whatever algorithm and link: see kcr_reference_fold(). Both
 * buffers belong to the call until it returns. On an error @recv is undefined.
 *
 * -EINVAL	a NULL or misaligned pointer, overlap, a size that overflows
 * -EOPNOTSUPP	no such type, operation, or pair of them
 * -EPROTO	ranks made different calls
 * -ETIMEDOUT	a rank did not come within the configured time
 * -ECONNRESET	a rank died
 * -ESHUTDOWN	a rank left
 */
int kcr_allreduce(struct kcr_world *world, const void *send, void *recv,
		  size_t count, enum kcr_dtype dtype, enum kcr_op op);

/**
 * kcr_barrier() - returns when every rank has called it
 * @world: the world
 *
 * Errors as kcr_allreduce().
 */
int kcr_barrier(struct kcr_world *world);

/**
 * kcr_abort() - fail the world for every rank
 * @world: the world
 * @code: a positive errno, 1 .. 4095, that the others' calls return negated
 */
int kcr_abort(struct kcr_world *world, int code);

/**
 * kcr_reference_fold() - the oracle: the scalar fold that defines the bits
 * @in: @ranks pointers to @count elements each, by rank
 * @ranks: how many, at least 1
 * @out: @count elements of result; may be one of @in
 * @count: elements
 * @dtype: their type
 * @op: how to reduce
 *
 * A strict left fold in ascending rank, each step rounded to nearest even in
 * the element type, NaN results canonical for @ranks of 2 and more, the
 * caller's floating-point state neither used nor changed.
 *
 * The idea of a written order of reduction is mamba-rs's.
 */
int kcr_reference_fold(const void *const in[], int ranks, void *out,
		       size_t count, enum kcr_dtype dtype, enum kcr_op op);

/**
 * kcr_shard_range() - which of @count elements are rank @rank's shard
 * @count: elements
 * @ranks: shards
 * @rank: 0 .. @ranks - 1
 * @start: the first element of the shard
 * @len: how many; the remainder goes one each to the lowest ranks
 */
void kcr_shard_range(size_t count, int ranks, int rank, size_t *start,
		     size_t *len);

/** kcr_dtype_size() - bytes of an element, 0 if there is no such type */
size_t kcr_dtype_size(enum kcr_dtype dtype);
/** kcr_dtype_name() - "f32" and so on, NULL if there is no such type */
const char *kcr_dtype_name(enum kcr_dtype dtype);
/** kcr_op_name() - "sum" and so on, NULL if there is no such operation */
const char *kcr_op_name(enum kcr_op op);
/** kcr_version() - the library's version, KCR_VERSION as it was built */
const char *kcr_version(void);

#ifdef __cplusplus
}
#endif

#endif /* KCOLLRING_H */
