/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * kcollring: collectives with the same bits on every rank, run and path
 *
 * Every call returns 0 or a negative errno; kcr_error() then has a sentence
 * that says what was wrong, with the names and values. Wrong arguments are refused before
 * anything is sent, and change nothing. What goes wrong later ends the world: it
 * stays failed, and later calls return the first cause.
 *
 * All ranks of a world call the same collectives in the same order. Calls on one
 * world from several threads are serialised.
 */
#ifndef KCOLLRING_H
#define KCOLLRING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KCR_VERSION "0.1.0"

/* Most ranks in a world. */
#define KCR_RANKS_MAX 256

/**
 * enum kcr_dtype - the type of an element
 *
 * Signed and unsigned integers, IEEE 754 half, bfloat16, single and double.
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
 * Integers take all of them. Floats take all but the three on bits, which are
 * refused with -EOPNOTSUPP.
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
 * enum kcr_link_kind - what carries the bytes between ranks
 * @KCR_LINK_AUTO: on one node the module if every rank can use it, else shared
 *	memory; between nodes the mesh
 * @KCR_LINK_MODULE: kcollring.ko, and between nodes the mesh
 * @KCR_LINK_SHM: memory that the library maps itself; one node, needs no privileges
 * @KCR_LINK_MESH: kcollring_verbs.ko, over RDMA; between ranks of one node too
 */
enum kcr_link_kind {
	KCR_LINK_AUTO,
	KCR_LINK_MODULE,
	KCR_LINK_SHM,
	KCR_LINK_MESH,
};

/**
 * enum kcr_algo - the shape of a collective; never changes the bits
 * @KCR_ALGO_AUTO: by the size of the message
 * @KCR_ALGO_DIRECT: everyone sends all to all, each folds everything
 * @KCR_ALGO_OWNER: rank r folds shard r, then the shards are gathered
 * @KCR_ALGO_CHAIN: partial results travel 0 -> 1 -> ... and results back, in
 *	segments; each rank talks to two others only
 */
enum kcr_algo {
	KCR_ALGO_AUTO,
	KCR_ALGO_DIRECT,
	KCR_ALGO_OWNER,
	KCR_ALGO_CHAIN,
};

/**
 * enum kcr_connect_when - when ranks of different nodes are connected
 * @KCR_CONNECT_AUTO: at creation up to 64 ranks, else on first use
 * @KCR_CONNECT_EAGER: at creation, so that a wrong cable is an error there
 * @KCR_CONNECT_LAZY: two ranks when both first use one another, so that a chain
 *	holds two connections a rank
 */
enum kcr_connect_when {
	KCR_CONNECT_AUTO,
	KCR_CONNECT_EAGER,
	KCR_CONNECT_LAZY,
};

/**
 * enum kcr_contract - what decides the bits of a reduction
 * @KCR_FIXED_ORDER: a strict left fold in ascending rank, see kcr_allreduce()
 * @KCR_ANY_ORDER: the owner of a shard may fold operands as they arrive; the
 *	ranks still get the same bits as one another, but another run may get others
 */
enum kcr_contract {
	KCR_FIXED_ORDER,
	KCR_ANY_ORDER,
};

struct kcr_world;
struct kcr_request;
struct kcr_ring;
struct kcr_emu;

/**
 * struct kcr_config - how a world is made
 * @struct_size: sizeof(struct kcr_config), set by kcr_config_init()
 * @rank: this process's rank, 0 .. @size - 1			(KCR_RANK)
 * @size: ranks in the world					(KCR_SIZE)
 * @local_rank: this process's number on its node		(KCR_LOCAL_RANK)
 * @local_size: ranks on this node				(KCR_LOCAL_SIZE)
 * @rendezvous: where the ranks meet (KCR_RENDEZVOUS, else from MASTER_ADDR and MASTER_PORT):
 *	"file:/path/of/a/directory", on one node; or "tcp:host:port", where host is a name, an
 *	IPv4 address or an IPv6 one in brackets, of the node that rank 0 runs on, which listens
 *	there until all have come. Not used, and may be NULL, when @size is 1. The string must
 *	live until kcr_world_create() returns
 * @job: names the launch, so that files or ranks of another one are not
 *	mistaken for this one's (KCR_JOB); may be NULL
 * @link: what carries the bytes	(KCR_LINK=auto|module|shm|mesh)
 * @algo: the algorithm			(KCR_ALGO=auto|direct|owner|chain)
 * @contract: what decides the bits	(KCR_CONTRACT=fixed-order|any-order)
 * @seed: any number that the job's ranks share, see kcr_seed() (KCR_SEED, up to
 *	2^63 - 1)
 * @direct_max: largest message in bytes that AUTO gives to direct (KCR_DIRECT_MAX)
 * @lane_depth: slots in a lane		(KCR_LANE_DEPTH)
 * @lane_bytes: payload bytes of a lane's slot (KCR_LANE_BYTES)
 * @board_depth: slots in a board	(KCR_BOARD_DEPTH)
 * @board_bytes: payload bytes of a board's slot (KCR_BOARD_BYTES)
 * @spin: rounds of looking before a waiting rank yields the CPU (KCR_SPIN);
 *	negative, or the variable not set: chosen from the ranks, CPUs and wires of the node
 * @yield: rounds of sched_yield() before a waiting rank sleeps (KCR_YIELD);
 *	likewise
 * @warn_ms: an operation that waits so long says once for whom, 0 never (KCR_WARN, in seconds)
 * @timeout_ms: an operation that waits so long fails with -ETIMEDOUT (KCR_TIMEOUT, in seconds)
 * @rendezvous_ms: how long to wait for the other ranks to come (KCR_RENDEZVOUS_TIMEOUT, in seconds)
 * @progress_thread: a thread of the library takes requests further while the caller
 *	computes (KCR_PROGRESS_THREAD=1)
 * @copy_in: NULL, or copies @bytes from the user's memory, which the CPU cannot
 *	read, to host memory; returns 0 or a negative errno, which the operation then
 *	fails with (-EIO for those by which the library tells the ranks something
 *	else: -EAGAIN, -EPROTO, -ETIMEDOUT, -ECONNRESET, -ESHUTDOWN)
 * @copy_out: likewise, to the user's memory
 * @copy_context: passed to the two
 * @debug: say on stderr what was chosen and why (KCR_DEBUG=1)
 * @wires: RDMA devices of this node to use between nodes, by name or address,
 *	separated by commas, in this order; NULL for all that have an address (KCR_WIRES). The
 *	string must live until kcr_world_create() returns
 * @wires_max: most wires between two ranks, 1 to 4 (KCR_WIRES_MAX)
 * @wires_from: messages of at least so many bytes are split across all wires
 *	(KCR_WIRES_FROM)
 * @mesh_depth: frames of one size that may be on their way to a rank of another
 *	node before it has taken one, 1 to 15 (KCR_MESH_DEPTH)
 * @connect: when ranks of different nodes are connected (KCR_CONNECT=auto|eager|lazy)
 *
 * The fields from @size on, but for @local_rank, @wires and those from @spin to @debug,
 * must be the same on every rank, and a difference is an error on every rank. Call
 * kcr_config_init() first, then change what you want.
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
	enum kcr_contract contract;
	uint64_t seed;
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
	int progress_thread;
	int (*copy_in)(void *context, void *host, const void *user,
		       size_t bytes);
	int (*copy_out)(void *context, void *user, const void *host,
			size_t bytes);
	void *copy_context;
	int debug;
	const char *wires;
	uint32_t wires_max;
	size_t wires_from;
	uint32_t mesh_depth;
	enum kcr_connect_when connect;
};

/**
 * kcr_config_init() - defaults, changed by the environment
 * @config: filled in
 *
 * Reads KCR_RANK, KCR_SIZE, KCR_LOCAL_RANK, KCR_LOCAL_SIZE, KCR_RENDEZVOUS
 * and so on, as named in struct kcr_config. Where there is no KCR_RENDEZVOUS, but
 * MASTER_ADDR and MASTER_PORT, as torchrun sets them, the ranks meet there, and without
 * KCR_RANK and KCR_SIZE the numbers are RANK, WORLD_SIZE, LOCAL_RANK and
 * LOCAL_WORLD_SIZE. Strings point into the environment or into the calling
 * thread's memory, which the next call changes. A variable that cannot be understood
 * is remembered and makes kcr_world_create() fail with -EINVAL and a sentence that
 * names it.
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
 * -EADDRINUSE	the port of the rendezvous is in use; -EADDRNOTAVAIL its host is no address
 *	of rank 0's node
 * -ENODEV	KCR_LINK_MODULE, and the module is not loaded; between nodes, a rank without it or
 *		without an RDMA device, or @wires with a name that is none
 * -EPROTONOSUPPORT	between nodes, and kcollring_verbs.ko is not loaded
 * -EHOSTUNREACH, -ETIMEDOUT, -ECONNREFUSED, -ENOENT	a rank of another node cannot be
 *		connected to; the sentence says by which wire and why
 * -ECONNRESET	a rank died while the ranks came together
 * -EACCES	KCR_LINK_MODULE, and no permission for the device
 * -ETIMEDOUT	not all ranks came
 * -ENOMEM	memory, RLIMIT_MEMLOCK; -EDQUOT a quota of the module
 *
 * Others are what a system call gave, which the sentence names: short of memory the
 * kernel also says -ENOBUFS (sockets, io_uring) and -EFAULT (a page that it cannot make
 * present), out of descriptors -EMFILE or -ENFILE.
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
/**
 * kcr_link_name() - what carries the bytes: "self", "module", "mesh", "module+mesh", "shm" or
 * "emulated"
 */
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
 * -ECONNRESET	a rank died, which includes an exit without kcr_world_destroy()
 * -EHOSTUNREACH, -EHOSTDOWN, -ENODEV, -EIO	a way to a rank of another node broke: it
 *		cannot be reached, its node says nothing, the RDMA device is gone, or another
 *		work request failed
 * -ESHUTDOWN	a rank left
 */
int kcr_allreduce(struct kcr_world *world, const void *send, void *recv,
		  size_t count, enum kcr_dtype dtype, enum kcr_op op);

/**
 * kcr_reduce_scatter() - reduce over all ranks, to each rank its shard
 * @world: the world
 * @send: @recvcount elements for each rank, by rank
 * @recv: @recvcount elements of result: the shard of this rank. May be
 *	@send + rank * @recvcount (in place), must not overlap @send otherwise
 * @recvcount: elements of a shard, the same on every rank
 * @dtype: their type
 * @op: how to reduce
 *
 * The same bits as kcr_allreduce() of the whole. Errors likewise.
 */
int kcr_reduce_scatter(struct kcr_world *world, const void *send, void *recv,
		       size_t recvcount, enum kcr_dtype dtype, enum kcr_op op);

/**
 * kcr_allgather() - the elements of every rank, to all of them
 * @world: the world
 * @send: @sendcount elements of this rank. May be @recv + rank * @sendcount (in
 *	place), must not overlap @recv otherwise
 * @recv: @sendcount elements of each rank, by rank
 * @sendcount: elements of a rank, the same on every rank
 * @dtype: their type
 *
 * Errors as kcr_allreduce().
 */
int kcr_allgather(struct kcr_world *world, const void *send, void *recv,
		  size_t sendcount, enum kcr_dtype dtype);

/**
 * kcr_broadcast() - the elements of one rank, to all of them
 * @world: the world
 * @buf: @count elements: sent by @root, received by the others
 * @count: the same on every rank
 * @dtype: their type
 * @root: whose elements
 *
 * Errors as kcr_allreduce().
 */
int kcr_broadcast(struct kcr_world *world, void *buf, size_t count,
		  enum kcr_dtype dtype, int root);

/**
 * kcr_send() - send a message to one rank
 * @world: the world
 * @buf: @bytes bytes; may be used again when the call returns
 * @bytes: as many as the peer receives, else -EPROTO on both
 * @peer: another rank
 *
 * Messages between two ranks arrive in the order of the calls. A short message
 * is sent whether or not the peer receives yet; a long one waits for it.
 */
int kcr_send(struct kcr_world *world, const void *buf, size_t bytes, int peer);

/**
 * kcr_recv() - receive a message from one rank
 * @world: the world
 * @buf: room for @bytes bytes
 * @bytes: as many as the peer sends, else -EPROTO on both
 * @peer: another rank
 */
int kcr_recv(struct kcr_world *world, void *buf, size_t bytes, int peer);

/**
 * kcr_barrier() - returns when every rank has called it
 * @world: the world
 *
 * Errors as kcr_allreduce().
 */
int kcr_barrier(struct kcr_world *world);

/**
 * kcr_any() - is a flag set on any rank?
 * @world: the world
 * @flag: this rank's
 * @result: 1 if the flag of at least one rank was not 0, else 0
 *
 * Errors as kcr_allreduce().
 */
int kcr_any(struct kcr_world *world, int flag, int *result);

/**
 * DOC: requests
 *
 * Each operation has a form that returns at once with a request. Its buffers
 * belong to the operation, and its @send must not be changed, until kcr_wait() returns or
 * kcr_test() says that it is done. Every request is waited for exactly once,
 * which frees it, also when it is done or has failed; kcr_world_destroy() before that makes
 * it fail with -ESHUTDOWN.
 *
 * Several may be on their way. Collectives happen and complete in the order of
 * issue, which must be the same on every rank, blocking calls included; messages
 * between two ranks likewise. A collective and a message do not wait for
 * each other. Requests move inside calls on their world, of whatever kind, or in a thread of the
 * library if struct kcr_config asks for one.
 *
 * Calls on one world from several threads are serialised: a blocking call
 * holds the world until it returns.
 */
int kcr_iallreduce(struct kcr_world *world, const void *send, void *recv,
		   size_t count, enum kcr_dtype dtype, enum kcr_op op,
		   struct kcr_request **request);
int kcr_ireduce_scatter(struct kcr_world *world, const void *send, void *recv,
			size_t recvcount, enum kcr_dtype dtype, enum kcr_op op,
			struct kcr_request **request);
int kcr_iallgather(struct kcr_world *world, const void *send, void *recv,
		   size_t sendcount, enum kcr_dtype dtype,
		   struct kcr_request **request);
int kcr_ibroadcast(struct kcr_world *world, void *buf, size_t count,
		   enum kcr_dtype dtype, int root,
		   struct kcr_request **request);
int kcr_isend(struct kcr_world *world, const void *buf, size_t bytes, int peer,
	      struct kcr_request **request);
int kcr_irecv(struct kcr_world *world, void *buf, size_t bytes, int peer,
	      struct kcr_request **request);
int kcr_ibarrier(struct kcr_world *world, struct kcr_request **request);
/* @result is read and written until the request is done. */
int kcr_iany(struct kcr_world *world, int flag, int *result,
	     struct kcr_request **request);

/**
 * kcr_test() - is a request done?
 * @request: the request; stays the caller's
 * @done: 1 if it is, 0 if it is still on its way
 *
 * Takes it further if it can go. Returns 0, or the operation's error if it is done
 * and has failed.
 */
int kcr_test(struct kcr_request *request, int *done);

/**
 * kcr_wait() - wait until a request is done, and free it
 * @request: the request; gone when the call returns
 *
 * Returns the operation's result.
 */
int kcr_wait(struct kcr_request *request);

/**
 * DOC: message rings
 *
 * A ring has lanes, each from one rank to one other, of @depth slots that hold a message
 * of up to @capacity bytes each. Every rank lists the same lanes; what is not listed costs
 * nothing. Messages of a lane are numbered from 1 on, its sequence.
 *
 * On a *safe* lane nothing is lost: a message stays in its slot until the destination has
 * acknowledged it, and a sender waits while @depth messages are not. On a *raw* lane nobody
 * waits: a new message takes the place of the one @depth before it, read or not, and the
 * destination counts what it has lost.
 *
 * Each message has a checksum (CRC-32C over sequence, length and payload), which is
 * verified before the message is delivered. It cannot be left out.
 *
 * On one node to send, to poll and to acknowledge enters the kernel only to sleep, to wake
 * who sleeps, and as kcr_ring_poll() says. Between nodes each message, or those
 * of several threads together, and each acknowledgement is a system call, and all go by the
 * first of the wires between two ranks.
 *
 * Any number of threads may use a ring: several may send, on different lanes or on the
 * same one, and acknowledge, while one polls; another that polls waits for the first.
 * Creation and destruction are collective, and calls on the world like others. All other
 * calls neither take the world nor wait for those who have it. They leave the sentence
 * of an error in kcr_error(NULL), the calling thread's.
 *
 * Errors that they all may give, besides their own:
 *
 * -EINVAL	the ring is NULL
 * -EPERM	the ring belongs to the process that made it, and this is a forked child
 * -ESHUTDOWN	its world was destroyed; or the rank that is meant has left
 * -ECONNRESET	a rank has died, and with it the world; or whatever else has ended the world
 */

/** KCR_RING_RAW: the lanes are raw; without it they are safe */
#define KCR_RING_RAW 0x1u

/**
 * struct kcr_lane - a lane
 * @source: the rank that sends
 * @destination: the rank that receives
 * @depth: messages that it holds, at least 1
 * @capacity: bytes of the largest message, at least 1
 */
struct kcr_lane {
	int source;
	int destination;
	uint32_t depth;
	uint32_t capacity;
};

/**
 * struct kcr_ring_stats - what has happened in a ring, on this rank
 * @sent: messages sent
 * @received: messages delivered
 * @bytes_sent: of payload in them
 * @bytes_received: likewise
 * @lost: messages of raw lanes that were overwritten before they were read
 * @torn: looks that met a message or a counter in the middle of being written, which is
 *	normal: it is looked at again
 * @corrupt: messages whose length, guard or checksum was wrong and stayed so: not delivered
 * @max_lag: the most messages that a lane's destination was behind its source: safe lanes,
 *	as the source saw when it looked at the acknowledgement; raw lanes, as the destination
 *	saw when it polled
 * @waits: sends that had to wait for room; those that returned -EAGAIN did not
 * @wait_ns: how long they waited
 * @reserved: 0
 */
struct kcr_ring_stats {
	uint64_t sent;
	uint64_t received;
	uint64_t bytes_sent;
	uint64_t bytes_received;
	uint64_t lost;
	uint64_t torn;
	uint64_t corrupt;
	uint64_t max_lag;
	uint64_t waits;
	uint64_t wait_ns;
	uint64_t reserved[6];
};

/**
 * kcr_ring_fn - takes a message
 * @arg: as given to kcr_ring_poll()
 * @origin: the rank that sent it
 * @sequence: its number on the lane
 * @data: its payload, aligned to 16 bytes. On a safe lane it lies where the source wrote
 *	it, and is valid until it is acknowledged; on a raw lane it is a copy, valid until the
 *	function returns
 * @bytes: of payload
 *
 * May send, and acknowledge, this message too; must not poll the same ring. It should send
 * with a time of 0 only: two ranks that answer each other on full lanes, each of which
 * waits for the other to poll, would both wait until their time is up. Returns 0 to go
 * on; else polling stops, the message having been delivered, and kcr_ring_poll() returns
 * the value.
 *
 * On a safe lane the payload was verified where it lies, so that nothing is copied. A source
 * that breaks the rules, or a bug in its process, can change it after that. Who does not
 * trust a rank copies the message, then looks at the copy only.
 */
typedef int (*kcr_ring_fn)(void *arg, int origin, uint64_t sequence,
			   const void *data, size_t bytes);

/**
 * kcr_ring_create() - make a ring
 * @world: the world; not an emulated one
 * @lanes: the lanes, in any order; copied
 * @count: how many; 0 is a ring that nobody can use
 * @flags: KCR_RING_RAW or 0
 * @ring: the new ring, owned by the caller until kcr_ring_destroy()
 *
 * Collective: lanes and flags are compared on all ranks, and whatever is wrong on one is an
 * error on every rank, with a sentence that names it, in kcr_error(@world) too; but for a
 * NULL @world or @ring, which is refused at once on the rank that passes it, and which the
 * others then wait for. After those that are named here nothing is left, and the world
 * goes on.
 *
 * -EINVAL	a lane given twice, a rank outside the world, source equal to destination, zero
 *		depth or capacity, a lane of 4 GiB and more, an unknown flag, a NULL pointer;
 *		between nodes a capacity above 1 MiB, or more slots than the module can let
 *		the source into: kcr_remote_depth_max() of linux/kcollring.h
 * -EPROTO	ranks list different lanes, or pass different flags
 * -ENOMEM, -EDQUOT	a rank has no memory for its lanes, or is over a quota
 * -ENOSPC	the module has no window left: a world has 13 rings at most there
 * -EOPNOTSUPP	the world is emulated; or between nodes the RDMA device does not see memory as
 *		the CPU does
 * ... and the errors of kcr_allreduce(), which leave the world failed
 */
int kcr_ring_create(struct kcr_world *world, const struct kcr_lane *lanes,
		    size_t count, unsigned int flags, struct kcr_ring **ring);

/**
 * kcr_ring_send() - send a message, and wait for room at most the world's timeout_ms
 * @ring: the ring
 * @destination: a rank that a lane from this one leads to
 * @data: the payload, copied; must not change during the call; may be NULL if @bytes is 0
 * @bytes: of payload
 *
 * Returns the message's sequence, which is positive, or:
 *
 * -EMSGSIZE	@bytes is more than the lane's capacity
 * -ENXIO	no lane leads from this rank to @destination
 * -ETIMEDOUT	the destination has not made room in time
 * -ESTALE	the destination's counter went backwards
 * -ERANGE	... or is past what was sent
 * -EUCLEAN	... or is not one, and stays so
 * -EOVERFLOW	the lane's sequences, 2^63 - 1, are used up
 *
 * Nothing was sent after an error. A sender to another node also waits, on a raw lane too, for
 * the RDMA device to have read what was in the slot before. Of several threads that wait for
 * room on one lane any may be the first to find it.
 */
int64_t kcr_ring_send(struct kcr_ring *ring, int destination, const void *data,
		      size_t bytes);

/**
 * kcr_ring_send_timeout() - send a message, with a time of one's own
 * @ring: the ring
 * @destination: as kcr_ring_send()
 * @data: likewise
 * @bytes: likewise
 * @timeout_ns: how long to wait for room; 0 not at all, negative the world's timeout_ms
 *
 * As kcr_ring_send(). -EAGAIN instead of -ETIMEDOUT if @timeout_ns is 0; that there is room
 * later, only another try tells.
 */
int64_t kcr_ring_send_timeout(struct kcr_ring *ring, int destination,
			      const void *data, size_t bytes, int64_t timeout_ns);

/**
 * kcr_ring_poll() - take what has arrived
 * @ring: the ring
 * @fn: called for each message, those of a lane in the order of their sequences
 * @arg: passed to it
 *
 * Looks at memory, and at no lane for ever: at most its depth in messages a call. It enters the
 * kernel in two cases: over shared memory without the module it looks ten times a
 * second who has died, and where kcr_ring_fd() was called it makes the descriptor
 * unreadable when it has left nothing.
 *
 * It delivers what there is on every lane even if one has an error, which it then returns,
 * and returns again, since nothing comes from that lane any more. What had arrived
 * before the world failed is delivered before the failure is told, which comes before a
 * lane's error.
 *
 * Returns how many messages were delivered, what @fn returned if that was not 0, or:
 *
 * -EBADMSG	a message of a safe lane is damaged: nothing behind it is delivered
 * -EOVERFLOW	a safe lane's source has overwritten a message that was not acknowledged
 * -EDEADLK	called by @fn
 */
int kcr_ring_poll(struct kcr_ring *ring, kcr_ring_fn fn, void *arg);

/**
 * kcr_ring_ack() - give the slots of messages back to their source
 * @ring: the ring
 * @origin: the rank that sent them
 * @sequence: all messages up to this one; one that is acknowledged already changes nothing
 *
 * On a raw lane nobody waits for it.
 *
 * -ENXIO	no lane leads from @origin to this rank
 * -ERANGE	the message has not been delivered yet
 * -EUCLEAN	the counter is not what this rank wrote last: somebody else writes its memory
 */
int kcr_ring_ack(struct kcr_ring *ring, int origin, uint64_t sequence);

/**
 * kcr_ring_wait() - sleep until there is something to poll
 * @ring: the ring
 * @timeout_ns: how long; 0 not at all, negative the world's timeout_ms
 *
 * Looks a while, as every wait of the world does, then sleeps. Any number of threads may.
 * Returns 0 if there is something, which a lane's error is until kcr_ring_poll() has
 * returned it, or:
 *
 * -EAGAIN, -ETIMEDOUT	nothing has come; the first if @timeout_ns is 0
 * -ENXIO	no lane leads to this rank
 * -ESHUTDOWN	every rank that a lane leads from has left, but for lanes with errors, and
 *		nothing is left of theirs
 */
int kcr_ring_wait(struct kcr_ring *ring, int64_t timeout_ns);

/**
 * kcr_ring_fd() - a descriptor for poll, epoll and io_uring
 * @ring: the ring
 *
 * It is readable when there is something to poll, or an error to be told by
 * kcr_ring_poll() or kcr_ring_wait(), and is not any more after a kcr_ring_poll() that left
 * nothing. Not to be read or closed: it is the ring's, and goes with it. The first call
 * starts a thread, which sleeps in the caller's place; from then on a message that
 * finds it asleep costs its source a system call.
 *
 * Returns the descriptor, -ENXIO if no lane leads to this rank, or -EMFILE, -EAGAIN and so on.
 */
int kcr_ring_fd(struct kcr_ring *ring);

/**
 * kcr_ring_depth() - messages that a lane of the ring holds
 * @ring: the ring
 * @source: of the lane
 * @destination: of the lane
 *
 * Returns -ENXIO if it is not listed.
 */
int kcr_ring_depth(const struct kcr_ring *ring, int source, int destination);
/** kcr_ring_capacity() - likewise, bytes of the largest message */
int kcr_ring_capacity(const struct kcr_ring *ring, int source, int destination);
/** kcr_ring_is_safe() - 1 if the lanes are safe, 0 if they are raw */
int kcr_ring_is_safe(const struct kcr_ring *ring);

/**
 * kcr_ring_stats() - what has happened so far
 * @ring: the ring
 * @stats: filled in; while others use the ring, each number on its own
 */
int kcr_ring_stats(const struct kcr_ring *ring, struct kcr_ring_stats *stats);

/**
 * kcr_ring_destroy() - give a ring up
 * @ring: freed, whatever is returned; NULL is fine. No other thread may use it
 *
 * Collective: messages that were not polled are gone. An error says that the ranks could
 * not do so together: -EPROTO if they meant different rings, or the world's. A ring
 * should go before its world; one that does not is freed by this all the same.
 */
int kcr_ring_destroy(struct kcr_ring *ring);

/**
 * kcr_world_split() - make worlds of parts of a world
 * @world: the world; goes on to exist
 * @color: ranks of the same colour make a world; negative: this rank makes none
 * @key: ranks are numbered by it, and by their old rank where it is the same
 * @part: the new world, to be destroyed like any other; NULL if @color is negative
 *
 * Collective over @world. The configuration is the old world's but for rank and
 * sizes.
 */
int kcr_world_split(struct kcr_world *world, int color, int key,
		    struct kcr_world **part);

/**
 * kcr_contract() - the rule that decides the bits, for a checkpoint
 * @world: the world
 *
 * Returns a string such as "fixed-order fold=1 size=4": with the same one, the same
 * inputs give the same bits (unless it says any-order). Valid as long as the world.
 */
const char *kcr_contract(const struct kcr_world *world);

/** kcr_seed() - the seed that all ranks agreed on, 0 for NULL */
uint64_t kcr_seed(const struct kcr_world *world);

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

/**
 * kcr_strided_count() - how many of @count items are rank @rank's by stride
 * @count: items
 * @ranks: how many share them
 * @rank: 0 .. @ranks - 1
 *
 * Item k goes to rank k mod @ranks: rank @rank takes @rank, @rank + @ranks, and so on.
 * The counts differ by one where @ranks does not divide @count: a rank that makes one
 * step of training per item then makes one more than another, whose next
 * collective is a different one. Drop the rest, or pad.
 *
 * The strided shard is mamba-rs's.
 */
size_t kcr_strided_count(size_t count, int ranks, int rank);

/**
 * DOC: the emulator
 *
 * All ranks of a world in one process and one thread. The algorithms and
 * everything above them are the real ones; links are emulated, and messages between
 * ranks are delivered one at a time in an order that the user permutes. Worlds of an
 * emulator are used with requests: a blocking call could not be met by the
 * others, and fails at once. kcr_wait() and kcr_test() run the whole emulator. When no
 * message is left to deliver and nothing moves, the operation has timed out.
 *
 * It descends from the emulated worlds of mamba-rs and nuvec.
 */

/**
 * enum kcr_emu_rule - what happens to a message between two ranks
 * @KCR_EMU_DROP: it is lost
 * @KCR_EMU_DELAY: it waits until @value other messages have been delivered
 * @KCR_EMU_FAIL: its delivery fails the sender's world with the errno @value
 */
enum kcr_emu_rule {
	KCR_EMU_DROP,
	KCR_EMU_DELAY,
	KCR_EMU_FAIL,
};

/**
 * kcr_emu_create() - emulate a world
 * @ranks: 1 .. KCR_RANKS_MAX
 * @emu: the emulator, to be destroyed by kcr_emu_destroy()
 *
 * Tunables come from the environment as for any world (see struct kcr_config).
 */
int kcr_emu_create(int ranks, struct kcr_emu **emu);

/**
 * kcr_emu_create_config() - emulate a world of @config->size ranks
 * @config: as for kcr_world_create(), NULL included; ranks, local sizes and rendezvous are
 *	not used
 * @emu: the emulator
 */
int kcr_emu_create_config(const struct kcr_config *config,
			  struct kcr_emu **emu);
void kcr_emu_destroy(struct kcr_emu *emu);

/** kcr_emu_world() - the world of a rank, the emulator's own; NULL if there is none */
struct kcr_world *kcr_emu_world(struct kcr_emu *emu, int rank);

/** kcr_emu_shuffle() - deliver in an order drawn from @seed from now on */
int kcr_emu_shuffle(struct kcr_emu *emu, uint64_t seed);

/**
 * kcr_emu_order() - deliver by sender, in this order, from now on
 * @emu: the emulator
 * @order: the ranks, each once: messages of the first go before those of the
 *	second, and so on
 * @n: how many: the number of ranks, else -EINVAL
 */
int kcr_emu_order(struct kcr_emu *emu, const int *order, int n);

/**
 * kcr_emu_rule() - a rule for one message
 * @emu: the emulator
 * @rule: what happens
 * @from: sender
 * @to: receiver
 * @nth: which of the messages between the two, counted from 1 at creation
 * @value: see enum kcr_emu_rule
 */
int kcr_emu_rule(struct kcr_emu *emu, enum kcr_emu_rule rule, int from, int to,
		 uint64_t nth, int value);

/** kcr_dtype_size() - bytes of an element, 0 if there is no such type */
size_t kcr_dtype_size(enum kcr_dtype dtype);
/** kcr_dtype_name() - "f32" and so on, NULL if there is no such type */
const char *kcr_dtype_name(enum kcr_dtype dtype);
/** kcr_op_name() - "sum" and so on, NULL if there is no such operation */
const char *kcr_op_name(enum kcr_op op);
/**
 * kcr_fold_form() - which form of the fold runs here
 *
 * Returns "scalar", "avx2", "avx512" or "neon". KCR_FOLD forces one.
 */
const char *kcr_fold_form(void);
/** kcr_version() - the library's version, KCR_VERSION as it was built */
const char *kcr_version(void);

#ifdef __cplusplus
}
#endif

#endif /* KCOLLRING_H */
