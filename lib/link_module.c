// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Lanes and boards in the module's windows.
 *
 * The module owns the memory and knows who lives; this file joins, maps each
 * part with the protection that the rank may have, and turns parking and
 * kicking into commands. Lanes and boards join the ranks of one node; those of
 * others are the mesh's, for which this file makes the arena and which it
 * takes through the same steps.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "limits.h"
#include "link_mesh.h"
#include "rendezvous.h"
#include "ring.h"

#define PAGE	4096ul

/* Window 0 has the boards and the collectives' lanes, window 1 the messages'. */
#define WINDOWS		LANE_SETS
#define BOARD_WINDOW	0

struct mapping {
	void *at;
	size_t bytes;
};

struct module {
	struct carrier carrier;
	int device;
	struct submit *submit;
	size_t lane_bytes, board_bytes;
	int local_size;		/* ranks that lanes join, this one with them */
	int mappings;
	struct mapping mapped[];
};

/*
 * Status, arena, boards, and slots and acknowledgements of the lanes to and from a
 * peer.
 */
static size_t mappings_max(int size)
{
	return 2 + size + WINDOWS * 4 * size;
}

/* A window takes so many lanes, and there is one for every ordered pair of ranks. */
bool carrier_module_takes(int size)
{
	return size * (size - 1) <= KCR_MAX_LANES;
}

static struct module *module_of(struct link *link)
{
	return (struct module *)link->carrier;
}

/* For rings, whose windows this rank makes by itself. */
int module_device(const struct link *link)
{
	return ((const struct module *)link->carrier)->device;
}

static bool is_here(const struct link *link, int rank)
{
	return rank == link->world->config.rank ||
	       rankset_has(&link->local, rank);
}

/* A rank's number among those of this node. */
static int local_number(const struct link *link, int rank)
{
	int n = 0;

	for (int r = 0; r < rank; r++)
		n += is_here(link, r);
	return n;
}

/* Lanes are listed by source, then destination, without the diagonal. */
static int lane_index(struct link *link, int source, int destination)
{
	return local_number(link, source) * (module_of(link)->local_size - 1) +
	       local_number(link, destination) - (destination > source);
}

static struct kcr_lane_desc *list_lanes(struct link *link, int *count)
{
	const struct kcr_config *config = &link->world->config;
	int local = module_of(link)->local_size, n = 0;
	struct kcr_lane_desc *lanes = calloc(local * local, sizeof(*lanes));

	for (int s = 0; lanes && s < config->size; s++) {
		for (int d = 0; d < config->size; d++) {
			if (s == d || !is_here(link, s) || !is_here(link, d))
				continue;
			lanes[n++] = (struct kcr_lane_desc){
				.source = s,
				.destination = d,
				.depth = config->lane_depth,
				.capacity = link_lane_capacity(config),
			};
		}
	}
	*count = n;
	return lanes;
}

static int join(struct link *link, struct rendezvous *rv)
{
	const struct kcr_config *config = &link->world->config;
	struct kcr_join join = {
		.size = sizeof(join),
		.rank = config->rank,
		.ranks = config->size,
	};

	card_unhex(rendezvous_card(rv, 0)->id, join.id);
	card_unhex(rendezvous_card(rv, 0)->key, join.key);
	if (!ioctl(module_of(link)->device, KCR_IOCTL_JOIN, &join))
		return 0;
	if (errno == ECONNRESET)
		return link_came_apart(rv, join.cause);
	if (errno == EDQUOT)
		return kcr_fail(NULL, -EDQUOT,
				"rank %d cannot join: the module's quota of memberships for this user is used up (kcr-info shows it)",
				config->rank);
	return kcr_fail(NULL, -errno, "rank %d cannot join its world: %s",
			config->rank, strerror(errno));
}

static int make_window(struct link *link, struct kcr_window *window)
{
	struct module *m = module_of(link);
	int err;

	if (!ioctl(m->device, KCR_IOCTL_WINDOW, window))
		return 0;
	err = -errno;
	if (err == -ENOMEM)
		return kcr_fail(NULL, err,
				"no memory for a window of %zu bytes a rank: see ulimit -l and the memory cgroup",
				(size_t)window->board_bytes +
				(window->nr_lanes ? m->local_size - 1 : 0) *
				(m->lane_bytes + PAGE));
	return kcr_fail(NULL, err, "cannot make a window of %u lanes: %s",
			window->nr_lanes, strerror(-err));
}

static int make_lanes(struct link *link, int number)
{
	struct kcr_window window = {
		.size = sizeof(window),
		.window = number,
		.board_bytes = number == BOARD_WINDOW ?
			       module_of(link)->board_bytes : 0,
	};
	struct kcr_lane_desc *lanes;
	int count, err;

	lanes = list_lanes(link, &count);
	if (!lanes)
		return kcr_fail(NULL, -ENOMEM, "no memory for a list of lanes");
	window.lanes = (uintptr_t)lanes;
	window.nr_lanes = count;
	/* All of a rank's peers may be elsewhere. */
	err = count || window.board_bytes ? make_window(link, &window) : 0;
	free(lanes);
	return err;
}

/* The module's SEND takes frames from boards; nobody here need read these. */
static int make_arena(struct link *link)
{
	struct kcr_window window = {
		.size = sizeof(window),
		.flags = KCR_WINDOW_PRIVATE,
		.window = ARENA_WINDOW,
		.board_bytes = mesh_arena_bytes(link->mesh),
	};

	return make_window(link, &window);
}

/* Everything that the other ranks may count on once this one has told that it is there. */
static int make_memory(struct link *link)
{
	int err = 0;

	for (int window = 0; window < WINDOWS && !err; window++)
		err = make_lanes(link, window);
	if (!err && link->mesh)
		err = make_arena(link);
	return err;
}

/* NULL with errno. */
static void *map_part(struct link *link, int window, int part, int index,
		      size_t bytes, bool writable)
{
	struct module *m = module_of(link);
	void *at;

	at = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
		  MAP_SHARED, m->device, KCR_MMAP_OFFSET(window, part, index));
	if (at == MAP_FAILED) {
		int error = errno;

		kcr_fail(NULL, -error, "cannot map part %d, index %d, of window %d: %s",
			 part, index, window, strerror(error));
		errno = error;
		return NULL;
	}
	m->mapped[m->mappings].at = at;
	m->mapped[m->mappings++].bytes = bytes;
	return at;
}

/* The mesh uses the module through this carrier. */
static int expect(struct link *link, struct rendezvous *rv)
{
	link->mesh->device = module_of(link)->device;
	link->mesh->submit = module_of(link)->submit;
	return mesh_expect(link->mesh, rv);
}

static int module_attach(struct link *link, struct rendezvous *rv, char *note)
{
	const struct kcr_config *config = &link->world->config;
	struct module *m = module_of(link);
	int err;

	(void)note;
	m->local_size = 1;
	rankset_for_each(rank, &link->local)
		m->local_size++;
	m->lane_bytes = link_lane_bytes(config);
	m->board_bytes = link_board_bytes(link);
	m->device = submit_open_device();
	if (m->device < 0)
		return m->device;
	err = join(link, rv) ?: make_memory(link) ?:
	      submit_create(m->device, config, &m->submit);
	if (err)
		return err;
	link->status = map_part(link, 0, KCR_MAP_STATUS, 0, PAGE, false);
	if (!link->status)
		return -errno;
	return link->mesh ? expect(link, rv) : 0;
}

static int map_lanes(struct link *link, int peer, enum lane_set set)
{
	struct module *m = module_of(link);
	int me = link->world->config.rank;
	int out = lane_index(link, me, peer), in = lane_index(link, peer, me);
	void *slots, *ack;

	slots = map_part(link, set, KCR_MAP_SLOTS, out, m->lane_bytes, true);
	ack = slots ? map_part(link, set, KCR_MAP_ACK, out, PAGE, false) : NULL;
	if (!ack)
		return -errno;
	link_place_tx_lane(link, peer, set, slots, ack);
	slots = map_part(link, set, KCR_MAP_SLOTS, in, m->lane_bytes, false);
	ack = slots ? map_part(link, set, KCR_MAP_ACK, in, PAGE, true) : NULL;
	if (!ack)
		return -errno;
	link_place_rx_lane(link, peer, set, slots, ack);
	return 0;
}

static int map_board(struct link *link, int rank)
{
	void *board = map_part(link, BOARD_WINDOW, KCR_MAP_BOARD, rank,
			       module_of(link)->board_bytes,
			       rank == link->world->config.rank);

	if (!board)
		return -errno;
	link_place_board(link, rank, board);
	return 0;
}

static int map_mesh(struct link *link, struct rendezvous *rv)
{
	struct mesh *mesh = link->mesh;

	mesh->arena = map_part(link, ARENA_WINDOW, KCR_MAP_BOARD,
			       link->world->config.rank,
			       mesh_arena_bytes(mesh), true);
	if (!mesh->arena)
		return -errno;
	mesh_place(mesh);
	return mesh_connect(mesh, rv);
}

static int module_map(struct link *link, struct rendezvous *rv)
{
	int err = map_board(link, link->world->config.rank);

	rankset_for_each(rank, &link->local) {
		if (!err)
			err = map_board(link, rank);
		for (int set = 0; set < LANE_SETS && !err; set++)
			err = map_lanes(link, rank, set);
	}
	return !err && link->mesh ? map_mesh(link, rv) : err;
}

/* More threads sleep than the module lets park: of one rank, those that wait on rings. */
void module_nap(void)
{
	const struct timespec nap = { .tv_nsec = MODULE_NAP_NS };

	nanosleep(&nap, NULL);
}

static int module_park(struct link *link, uint64_t seen, uint64_t timeout_ns)
{
	bool retries = link->mesh && link->mesh->is_refused;
	struct kcr_wait wait = {
		.size = sizeof(wait),
		.seen = seen,
		.timeout_ns = retries && timeout_ns > MESH_RETRY_NS ?
			      MESH_RETRY_NS : timeout_ns,
	};
	int err = submit_command(module_of(link)->submit, KCR_CMD_WAIT, &wait,
				 sizeof(wait));

	switch (err) {
	case 0:
	case -ETIMEDOUT:
	case -EINTR:
	case -ECANCELED:	/* an exec that failed, in another thread */
		return 0;
	case -EDQUOT:
		module_nap();
		return 0;
	default:
		return kcr_fail(link->world, err, "the module refused to wait: %s",
				strerror(-err));
	}
}

static void module_kick(struct link *link, const struct rankset *ranks)
{
	struct kcr_kick kick = { .size = sizeof(kick) };

	for (int i = 0; i < RANKSET_WORDS; i++) {
		kick.base = 64 * i;
		kick.mask = ranks->word[i];
		if (kick.mask)
			submit_command(module_of(link)->submit, KCR_CMD_KICK,
				       &kick, sizeof(kick));
	}
}

static void module_fail(struct link *link, int error)
{
	struct kcr_fail fail = { .size = sizeof(fail), .error = error };

	submit_command(module_of(link)->submit, KCR_CMD_FAIL, &fail,
		       sizeof(fail));
}

static void module_leave(struct link *link)
{
	struct kcr_leave leave = { .size = sizeof(leave) };

	submit_command(module_of(link)->submit, KCR_CMD_LEAVE, &leave,
		       sizeof(leave));
}

static void module_close(struct link *link)
{
	struct module *m = module_of(link);

	submit_destroy(m->submit);
	for (int i = 0; i < m->mappings; i++)
		munmap(m->mapped[i].at, m->mapped[i].bytes);
	if (m->device >= 0)
		close(m->device);
	free(m);
}

static const struct carrier_ops module_ops = {
	.name = "module",
	.attach = module_attach,
	.map = module_map,
	.park = module_park,
	.kick = module_kick,
	.fail = module_fail,
	.leave = module_leave,
	.close = module_close,
	.rings = &ring_module_ops,
};

struct carrier *carrier_module(int size)
{
	struct module *m = calloc(1, sizeof(*m) + mappings_max(size) *
				  sizeof(m->mapped[0]));

	if (!m)
		return NULL;
	m->carrier.ops = &module_ops;
	m->device = -1;
	return &m->carrier;
}
