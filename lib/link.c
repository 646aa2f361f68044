// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Making a link: its geometry, the choice of a carrier, and the order in
 * which the ranks attach and map.
 *
 * The geometry is a function of the configuration alone, which the ranks have
 * compared, so all compute the same.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "limits.h"
#include "link_mesh.h"
#include "rendezvous.h"
#include "request.h"

#define PAGE	4096ul

static size_t round_to_page(size_t bytes)
{
	return (bytes + PAGE - 1) & ~(PAGE - 1);
}

/*
 * Many ranks get smaller slots, so that a rank's lanes fit the usual memlock
 * limit, unless the size was chosen by the user.
 */
uint32_t link_lane_capacity(const struct kcr_config *config)
{
	uint64_t lanes = LANE_SETS * (config->size > 1 ? config->size - 1 : 1);
	uint64_t most = LANES_BUDGET / (lanes * config->lane_depth);

	most = most / KCR_CACHE_LINE * KCR_CACHE_LINE;
	if (most < MIN_SLOT_BYTES)
		most = MIN_SLOT_BYTES;
	if (config->lane_bytes == DEFAULT_LANE_BYTES && most < config->lane_bytes)
		return most;
	return config->lane_bytes;
}

size_t link_lane_bytes(const struct kcr_config *config)
{
	return round_to_page(config->lane_depth *
			     KCR_SLOT_STRIDE(link_lane_capacity(config)));
}

static size_t board_slots_at(const struct kcr_config *config)
{
	return BOARD_ACKS + round_to_page(config->size * KCR_CACHE_LINE);
}

size_t link_board_bytes(const struct link *link)
{
	const struct kcr_config *config = &link->world->config;

	return round_to_page(board_slots_at(config) + link->board_slots *
			     KCR_SLOT_STRIDE(config->board_bytes));
}

static void place_slots(struct slots *slots, const unsigned char *base,
			uint32_t depth, uint32_t capacity)
{
	*slots = (struct slots){
		.base = (unsigned char *)base,
		.stride = KCR_SLOT_STRIDE(capacity),
		.depth = depth,
		.capacity = capacity,
		.next = 1,
	};
}

static struct kcr_ack *board_ack(const unsigned char *board, int writer)
{
	return (struct kcr_ack *)(board + BOARD_ACKS +
				  writer * KCR_CACHE_LINE);
}

/**
 * link_place_board() - a rank's board is mapped
 * @link: the link
 * @rank: whose
 * @board: where; writable if it is this rank's own
 */
void link_place_board(struct link *link, int rank, const unsigned char *board)
{
	const struct kcr_config *config = &link->world->config;
	const unsigned char *slots = board + board_slots_at(config);
	struct peer *peer = &link->peers[rank];

	peer->board = board;
	if (rank == config->rank) {
		link->board = (unsigned char *)board;
		place_slots(&link->tx_board.slots, slots, link->board_slots,
			    config->board_bytes);
		link->tx_board.peer = -1;
		link->tx_board.acks = link->board_acks;
		for (int r = 0; r < config->size; r++)
			link->peers[r].rx_board.ack = board_ack(board, r);
		return;
	}
	peer->rx_board.peer = rank;
	place_slots(&peer->rx_board.slots, slots, link->board_slots,
		    config->board_bytes);
	link->board_acks[rank] = board_ack(board, config->rank);
}

/* A lane to a peer is mapped. */
void link_place_tx_lane(struct link *link, int peer, enum lane_set set,
			unsigned char *slots, const struct kcr_ack *ack)
{
	const struct kcr_config *config = &link->world->config;
	struct tx *tx = &link->peers[peer].tx[set];

	place_slots(&tx->slots, slots, config->lane_depth,
		    link_lane_capacity(config));
	tx->peer = peer;
	tx->ack = ack;
}

/* A lane from a peer is mapped. */
void link_place_rx_lane(struct link *link, int peer, enum lane_set set,
			const unsigned char *slots, struct kcr_ack *ack)
{
	const struct kcr_config *config = &link->world->config;
	struct rx *rx = &link->peers[peer].rx[set];

	place_slots(&rx->slots, slots, config->lane_depth,
		    link_lane_capacity(config));
	rx->peer = peer;
	rx->ack = ack;
}

/*
 * Rounds of looking and of yielding, from the CPUs that this node's ranks have. A wire of
 * software needs one to carry anything: where each has a rank that looks, what the rank
 * looks for comes when it sleeps.
 */
static void choose_patience(struct link *link, struct rendezvous *rv)
{
	const struct kcr_config *config = &link->world->config;
	bool is_starving;
	cpu_set_t cpus;
	int n = 1;

	if (!sched_getaffinity(0, sizeof(cpus), &cpus))
		n = CPU_COUNT(&cpus);
	is_starving = link->mesh && n <= config->local_size &&
		      wires_have_software(&rendezvous_card(rv, config->rank)->wires);
	link->spin = config->spin >= 0 ? (uint64_t)config->spin :
		     is_starving ? 0 :
		     n >= config->local_size ? SPIN_ENOUGH_CPUS : SPIN_FEW_CPUS;
	link->yield = config->yield >= 0 ? (uint64_t)config->yield :
		      is_starving ? 0 : YIELD_ROUNDS;
	kcr_debug(config, "waits: %llu looks, %llu yields, then sleep: %d CPUs for %d ranks%s",
		  (unsigned long long)link->spin, (unsigned long long)link->yield, n,
		  config->local_size, is_starving ? " and wires of software" : "");
}

static struct carrier *choose_carrier(const struct link *link,
				      struct rendezvous *rv)
{
	const struct kcr_config *config = &link->world->config;

	if (link->mesh || config->link == KCR_LINK_MODULE)
		return carrier_module(config->size);
	if (config->link == KCR_LINK_SHM)
		return carrier_shm(config->size);
	if (!carrier_module_takes(config->size)) {
		kcr_debug(config, "link shm: %d ranks are too many for the module",
			  config->size);
		return carrier_shm(config->size);
	}
	for (int r = 0; r < config->size; r++) {
		const struct card *card = rendezvous_card(rv, r);

		if (card->has_module)
			continue;
		kcr_debug(config, "link shm: rank %d (pid %d) cannot use the module",
			  r, card->pid);
		return carrier_shm(config->size);
	}
	kcr_debug(config, "link module: every rank can use it");
	return carrier_module(config->size);
}

/* ---- who is reached how: the same on every rank, from the cards ---- */

static bool needs_mesh(const struct kcr_config *config, const struct card *a,
		       const struct card *b)
{
	return config->link == KCR_LINK_MESH || !card_same_node(a, b);
}

/* Is there a pair of ranks that only the mesh can join? */
static bool world_needs_mesh(const struct kcr_config *config,
			     struct rendezvous *rv)
{
	const struct card *first = rendezvous_card(rv, 0);

	for (int r = 1; r < config->size; r++)
		if (needs_mesh(config, first, rendezvous_card(rv, r)))
			return true;
	return false;
}

/* What the mesh needs of every rank. */
static int check_ranks(const struct kcr_config *config, struct rendezvous *rv)
{
	for (int r = 0; r < config->size; r++) {
		const struct card *card = rendezvous_card(rv, r);

		if (config->link == KCR_LINK_SHM)
			return kcr_fail(NULL, -EOPNOTSUPP,
					"the ranks are on several nodes and link is shm, which joins ranks of one node only: use KCR_LINK=auto");
		if (!card->has_module)
			return kcr_fail(NULL, -ENODEV,
					"rank %d (host %s, pid %d) cannot use %s, which the ranks need to reach one another: is kcollring.ko loaded there, and may this user open it?",
					r, card->host, card->pid, KCR_DEVICE);
		if (!card->wires.count)
			return kcr_fail(NULL, -ENODEV,
					"rank %d (host %s, pid %d) has no RDMA device with an address, which the ranks need to reach one another",
					r, card->host, card->pid);
	}
	return 0;
}

/* The wires that every pair of ranks has that the mesh joins. */
static int count_wires(const struct kcr_config *config, struct rendezvous *rv)
{
	struct wire_pair pairs[WIRES_LISTED];
	int least = config->wires_max;

	for (int a = 0; a < config->size; a++) {
		const struct card *lower = rendezvous_card(rv, a);

		for (int b = a + 1; b < config->size; b++) {
			const struct card *higher = rendezvous_card(rv, b);
			int n;

			if (!needs_mesh(config, lower, higher))
				continue;
			n = wires_pair(&lower->wires, &higher->wires,
				       card_same_node(lower, higher), pairs);
			least = n < least ? n : least;
		}
	}
	return least;
}

/* Every rank's frames must fit the largest class, whatever mix of peers it has. */
static void cap_slots(struct kcr_config *config)
{
	if (config->lane_bytes > KCR_FRAME_BYTES_MAX)
		config->lane_bytes = KCR_FRAME_BYTES_MAX;
	if (config->board_bytes > KCR_FRAME_BYTES_MAX)
		config->board_bytes = KCR_FRAME_BYTES_MAX;
}

/* Who is reached by lanes and boards, and who by the mesh. */
static int plan(struct link *link, struct rendezvous *rv)
{
	struct kcr_config *config = &link->world->config;
	const struct card *mine = rendezvous_card(rv, config->rank);
	int err, wires;

	if (!world_needs_mesh(config, rv))
		return 0;
	err = check_ranks(config, rv);
	if (err)
		return err;
	cap_slots(config);
	rankset_for_each(r, &link->others)
		if (needs_mesh(config, mine, rendezvous_card(rv, r)))
			rankset_remove(&link->local, r);
	wires = count_wires(config, rv);
	link->board_slots = config->board_depth + MESH_SPARE_SLOTS;
	kcr_debug(config, "link %s: %d wire%s to each rank of another node",
		  rankset_is_empty(&link->local) ? "mesh" : "module+mesh", wires,
		  wires == 1 ? "" : "s");
	return mesh_create(link, rv, wires);
}

/* A link without a carrier. */
struct link *link_alloc(struct kcr_world *w)
{
	const struct kcr_config *config = &w->config;
	struct link *link;

	link = calloc(1, sizeof(*link) + config->size * sizeof(link->peers[0]));
	if (!link)
		return NULL;
	link->world = w;
	link->board_slots = config->board_depth;
	for (int r = 0; r < config->size; r++)
		if (r != config->rank)
			rankset_add(&link->others, r);
	link->local = link->others;
	return link;
}

/**
 * link_create() - connect a world's ranks
 * @w: the world
 * @rv: its rendezvous, where cards are exchanged
 *
 * An error has a sentence in kcr_error(NULL). What there is of the link is the world's even
 * then: its memory must be found by the others until they have been told.
 */
int link_create(struct kcr_world *w, struct rendezvous *rv)
{
	char note[NOTE_BYTES] = "attached";
	struct link *link;
	int err;

	link = link_alloc(w);
	if (!link)
		return kcr_fail(NULL, -ENOMEM, "no memory for a link");
	w->link = link;
	err = plan(link, rv);
	if (!err) {
		choose_patience(link, rv);
		link->carrier = choose_carrier(link, rv);
	}
	if (!err && !link->carrier)
		err = kcr_fail(NULL, -ENOMEM, "no memory for a carrier");
	if (!err)
		err = link->carrier->ops->attach(link, rv, note);
	if (!err)
		err = rendezvous_exchange(rv, note);
	if (!err)
		err = link->carrier->ops->map(link, rv);
	return err;
}

/* Say that this rank leaves in peace; the others may still read what it sent. */
void link_leave(struct link *link)
{
	if (link->mesh)
		mesh_finish(link->mesh);
	link->carrier->ops->leave(link);
}

void link_destroy(struct link *link)
{
	if (link->mesh)
		mesh_destroy(link->mesh);
	if (link->carrier)
		link->carrier->ops->close(link);
	free(link);
}

/* The world has failed before it was one: say by whom. Returns a negative errno. */
int link_came_apart(struct rendezvous *rv, uint64_t cause)
{
	int rank = KCR_CAUSE_RANK(cause), error = KCR_CAUSE_ERROR(cause);
	const struct card *card = rendezvous_card(rv, rank);

	if (error == ECONNRESET)
		return kcr_fail(NULL, -error,
				"rank %d died while the ranks came together (host %s, pid %d)",
				rank, card->host, card->pid);
	return kcr_fail(NULL, -error,
			"rank %d failed while the ranks came together: %s",
			rank, strerror(error));
}

/* Are connections made on first use? */
bool link_is_lazy(const struct link *link)
{
	return link && link->mesh && link->mesh->is_lazy;
}

/* Can lanes join two ranks, which may both be others? The same on every rank. */
bool link_shares_node(const struct link *link, int a, int b)
{
	const struct rendezvous *rv = link->world->rendezvous;

	return !needs_mesh(&link->world->config, rendezvous_card(rv, a),
			   rendezvous_card(rv, b));
}

const char *link_name(const struct link *link)
{
	if (!link->mesh)
		return link->carrier->ops->name;
	return rankset_is_empty(&link->local) ? "mesh" : "module+mesh";
}

/* What has become of another rank: KCR_MEMBER_*. */
unsigned int link_member(const struct link *link, int rank)
{
	if (link->mesh && rankset_has(&link->mesh->peers, rank))
		return mesh_member(link->mesh, rank);
	return __atomic_load_n(&link->status->member[rank], __ATOMIC_ACQUIRE);
}

/* Across how many wires of the mesh an operation is split: all ranks compute the same. */
unsigned int link_wires(const struct kcr_request *r)
{
	const struct mesh *mesh = r->link->mesh;

	if (!mesh || r->m.count * r->m.element < r->world->config.wires_from)
		return 1;
	return mesh->wires;
}
