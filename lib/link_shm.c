// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Lanes and boards in shared memory: one node, no module, no privileges.
 *
 * Each rank makes one memory (memfd), which ends with its last user:
 *
 *	page 0		status, as the module's, but written by peers
 *	then		its board
 *	then		the slots of its outgoing lanes, by destination
 *	then		its acknowledgements of the incoming lanes, a cache line each
 *
 * It is sealed and filled: see shm.h. Peers map it read-only but for page 0: they
 * move the event counter and write what has become of ranks. The world's cause is
 * decided in rank 0's page by compare and exchange, then copied to all.
 *
 * A rank sleeps on the low half of its event counter, a futex, and looks for dead peers
 * when it wakes, unless it has just done so.
 */
#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "limits.h"
#include "link.h"
#include "rendezvous.h"
#include "ring.h"
#include "shm.h"

#define PAGE		4096ul

struct mapping {
	struct kcr_status *status;	/* page 0, writable */
	unsigned char *memory;		/* all of it; read-only if a peer's */
};

struct shm {
	struct carrier carrier;
	struct rendezvous *rv;	/* to see who lives; the world's */
	int fd;
	size_t bytes;
	size_t lane_bytes;
	size_t board_at, lanes_at, acks_at;
	struct mapping ranks[];
};

static struct shm *shm_of(struct link *link)
{
	return (struct shm *)link->carrier;
}

static void lay_out(struct shm *shm, const struct link *link)
{
	const struct kcr_config *config = &link->world->config;
	size_t acks = LANE_SETS * config->size * KCR_CACHE_LINE;

	shm->lane_bytes = link_lane_bytes(config);
	shm->board_at = PAGE;
	shm->lanes_at = shm->board_at + link_board_bytes(link);
	shm->acks_at = shm->lanes_at +
		       LANE_SETS * config->size * shm->lane_bytes;
	shm->bytes = shm->acks_at + ((acks + PAGE - 1) & ~(PAGE - 1));
}

static unsigned char *lane_of(struct shm *shm, int source, int destination,
			      enum lane_set set)
{
	return shm->ranks[source].memory + shm->lanes_at +
	       (LANE_SETS * destination + set) * shm->lane_bytes;
}

static struct kcr_ack *ack_of(struct shm *shm, int destination, int source,
			      enum lane_set set)
{
	return (struct kcr_ack *)(shm->ranks[destination].memory +
				  shm->acks_at +
				  (LANE_SETS * source + set) * KCR_CACHE_LINE);
}

static int map_memory(struct shm *shm, int rank, int fd, bool own)
{
	struct mapping *m = &shm->ranks[rank];
	void *p;

	p = mmap(NULL, shm->bytes, own ? PROT_READ | PROT_WRITE : PROT_READ,
		 MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return kcr_fail(NULL, -errno, "mapping rank %d's memory: %s",
				rank, strerror(errno));
	m->memory = p;
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return kcr_fail(NULL, -errno, "mapping rank %d's status: %s",
				rank, strerror(errno));
	m->status = p;
	/* As the module's windows: a forked child has none. */
	madvise(m->memory, shm->bytes, MADV_DONTFORK);
	madvise(m->status, PAGE, MADV_DONTFORK);
	return 0;
}

static int shm_attach(struct link *link, struct rendezvous *rv, char *note)
{
	const struct kcr_config *config = &link->world->config;
	struct shm *shm = shm_of(link);
	int me = config->rank, err;

	shm->rv = rv;
	lay_out(shm, link);
	shm->fd = shm_make(shm->bytes);
	if (shm->fd < 0)
		return shm->fd;
	err = map_memory(shm, me, shm->fd, true);
	if (err)
		return err;
	link->status = shm->ranks[me].status;
	link->status->joined = config->size;
	for (int r = 0; r < config->size; r++)
		link->status->member[r] = KCR_MEMBER_JOINED;
	link_place_board(link, me, shm->ranks[me].memory + shm->board_at);
	/* Process numbers are used again: what is opened must be this very memory. */
	card_unhex(rendezvous_card(rv, me)->incarnation,
		   link->board + BOARD_IDENTITY);
	snprintf(note, NOTE_BYTES, "shm %d", shm->fd);
	return 0;
}

static int open_peer(struct shm *shm, int rank)
{
	const char *note = rendezvous_note(shm->rv, rank);
	int theirs;

	if (sscanf(note, "shm %d", &theirs) != 1)
		return kcr_fail(NULL, -EPROTO,
				"rank %d sent \"%s\" where its memory should be",
				rank, note);
	return shm_open_peer(shm->rv, rank, theirs, shm->bytes);
}

static int map_peer(struct link *link, int rank)
{
	struct shm *shm = shm_of(link);
	unsigned char identity[SHM_IDENTITY];
	int me = link->world->config.rank;
	const unsigned char *board;
	int fd, err;

	fd = open_peer(shm, rank);
	if (fd < 0)
		return fd;
	err = map_memory(shm, rank, fd, false);
	close(fd);
	if (err)
		return err;
	board = shm->ranks[rank].memory + shm->board_at;
	card_unhex(rendezvous_card(shm->rv, rank)->incarnation, identity);
	if (memcmp(board + BOARD_IDENTITY, identity, sizeof(identity)))
		return kcr_fail(NULL, -EPROTO,
				"the memory found for rank %d belongs to another world",
				rank);
	link_place_board(link, rank, board);
	for (int set = 0; set < LANE_SETS; set++) {
		link_place_tx_lane(link, rank, set, lane_of(shm, me, rank, set),
				   ack_of(shm, rank, me, set));
		link_place_rx_lane(link, rank, set, lane_of(shm, rank, me, set),
				   ack_of(shm, me, rank, set));
	}
	return 0;
}

static int shm_map(struct link *link, struct rendezvous *rv)
{
	int err;

	(void)rv;
	rankset_for_each(rank, &link->others) {
		err = map_peer(link, rank);
		if (err)
			return err;
	}
	return 0;
}

static uint32_t *futex_of(struct kcr_status *status)
{
	uint32_t *half = (uint32_t *)&status->events;

	return half + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

/* Move a rank's event counter and wake it. */
static void ring(struct kcr_status *status)
{
	__atomic_fetch_add(&status->events, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, futex_of(status), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* For rings: by any thread. */
void shm_kick_one(struct link *link, int rank)
{
	ring(shm_of(link)->ranks[rank].status);
}

static void shm_kick(struct link *link, const struct rankset *ranks)
{
	rankset_for_each(rank, ranks)
		ring(shm_of(link)->ranks[rank].status);
}

/* What has become of a rank, in everyone's page. */
static void announce(struct link *link, int rank, uint8_t state)
{
	struct shm *shm = shm_of(link);

	for (int r = 0; r < link->world->config.size; r++) {
		struct kcr_status *status = shm->ranks[r].status;

		if (!status)
			continue;
		__atomic_store_n(&status->member[rank], state, __ATOMIC_RELEASE);
		__atomic_fetch_add(&status->left, 1, __ATOMIC_RELEASE);
		ring(status);
	}
}

static void fail_world(struct link *link, uint64_t cause)
{
	struct shm *shm = shm_of(link);
	__u64 first = 0;

	/* Before all are mapped, the rendezvous tells of failures. */
	if (!shm->ranks[0].status)
		return;
	if (!__atomic_compare_exchange_n(&shm->ranks[0].status->cause, &first,
					 cause, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		cause = first;
	for (int r = 0; r < link->world->config.size; r++) {
		struct kcr_status *status = shm->ranks[r].status;

		if (!status)
			continue;
		__atomic_store_n(&status->cause, cause, __ATOMIC_RELEASE);
		ring(status);
	}
}

static void shm_fail(struct link *link, int error)
{
	fail_world(link, KCR_CAUSE(link->world->config.rank, error));
}

static void look_for_dead(struct link *link)
{
	struct shm *shm = shm_of(link);

	rankset_for_each(r, &link->others) {
		uint8_t *state = &link->status->member[r];

		if (__atomic_load_n(state, __ATOMIC_ACQUIRE) != KCR_MEMBER_JOINED ||
		    rendezvous_is_alive(shm->rv, r))
			continue;
		/* It may have said that it leaves just before its lock went. */
		if (__atomic_load_n(state, __ATOMIC_ACQUIRE) != KCR_MEMBER_JOINED)
			continue;
		announce(link, r, KCR_MEMBER_DEAD);
		fail_world(link, KCR_CAUSE(r, ECONNRESET));
	}
}

/* For rings, too: by any number of threads. */
int shm_park(struct link *link, uint64_t seen, uint64_t timeout_ns)
{
	uint64_t ns = timeout_ns < SHM_SLICE_NS ? timeout_ns : SHM_SLICE_NS;
	struct timespec t = {
		.tv_sec = ns / 1000000000,
		.tv_nsec = ns % 1000000000,
	};

	syscall(SYS_futex, futex_of(link->status), FUTEX_WAIT, (uint32_t)seen, &t,
		NULL, 0);
	/* Kicks, which may be meant for others, must not keep it from looking. */
	link_look(link);
	return 0;
}

static void shm_leave(struct link *link)
{
	announce(link, link->world->config.rank, KCR_MEMBER_LEFT);
}

static void shm_close(struct link *link)
{
	struct shm *shm = shm_of(link);

	for (int r = 0; r < link->world->config.size; r++) {
		struct mapping *m = &shm->ranks[r];

		if (m->memory)
			munmap(m->memory, shm->bytes);
		if (m->status)
			munmap(m->status, PAGE);
	}
	if (shm->fd >= 0)
		close(shm->fd);
	free(shm);
}

static const struct carrier_ops shm_ops = {
	.name = "shm",
	.attach = shm_attach,
	.map = shm_map,
	.park = shm_park,
	.look = look_for_dead,
	.kick = shm_kick,
	.fail = shm_fail,
	.leave = shm_leave,
	.close = shm_close,
	.rings = &ring_shm_ops,
};

struct carrier *carrier_shm(int size)
{
	struct shm *shm = calloc(1, sizeof(*shm) + size * sizeof(shm->ranks[0]));

	if (!shm)
		return NULL;
	shm->carrier.ops = &shm_ops;
	shm->fd = -1;
	return &shm->carrier;
}
