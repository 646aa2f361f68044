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
#include "limits.h"
#include "link.h"
#include "rendezvous.h"

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

size_t link_board_bytes(const struct kcr_config *config)
{
	return round_to_page(board_slots_at(config) + config->board_depth *
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
		place_slots(&link->tx_board.slots, slots, config->board_depth,
			    config->board_bytes);
		link->tx_board.peer = -1;
		link->tx_board.acks = link->board_acks;
		for (int r = 0; r < config->size; r++)
			link->peers[r].rx_board.ack = board_ack(board, r);
		return;
	}
	peer->rx_board.peer = rank;
	place_slots(&peer->rx_board.slots, slots, config->board_depth,
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

/* Rounds of looking and of yielding, from the CPUs that this node's ranks have. */
static void choose_patience(struct link *link)
{
	const struct kcr_config *config = &link->world->config;
	cpu_set_t cpus;
	int n = 1;

	if (!sched_getaffinity(0, sizeof(cpus), &cpus))
		n = CPU_COUNT(&cpus);
	link->spin = config->spin >= 0 ? (uint64_t)config->spin :
		     n >= config->local_size ? SPIN_ENOUGH_CPUS : SPIN_FEW_CPUS;
	link->yield = config->yield >= 0 ? (uint64_t)config->yield :
		      YIELD_ROUNDS;
}

static struct carrier *choose_carrier(struct kcr_world *w,
				      struct rendezvous *rv)
{
	const struct kcr_config *config = &w->config;

	if (config->link == KCR_LINK_MODULE)
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

/* A link without a carrier. */
struct link *link_alloc(struct kcr_world *w)
{
	const struct kcr_config *config = &w->config;
	struct link *link;

	link = calloc(1, sizeof(*link) + config->size * sizeof(link->peers[0]));
	if (!link)
		return NULL;
	link->world = w;
	for (int r = 0; r < config->size; r++)
		if (r != config->rank)
			rankset_add(&link->others, r);
	return link;
}

/**
 * link_create() - connect a world's ranks
 * @w: the world
 * @rv: its rendezvous, where cards are exchanged
 *
 * On success w->link is set. An error has a sentence in kcr_error(NULL).
 */
int link_create(struct kcr_world *w, struct rendezvous *rv)
{
	char note[NOTE_BYTES] = "attached";
	struct link *link;
	int err;

	link = link_alloc(w);
	if (!link)
		return kcr_fail(NULL, -ENOMEM, "no memory for a link");
	choose_patience(link);
	link->carrier = choose_carrier(w, rv);
	if (!link->carrier) {
		free(link);
		return kcr_fail(NULL, -ENOMEM, "no memory for a carrier");
	}
	err = link->carrier->ops->attach(link, rv, note);
	if (!err)
		err = rendezvous_exchange(rv, note);
	if (!err)
		err = link->carrier->ops->map(link, rv);
	if (err) {
		link_destroy(link);
		return err;
	}
	w->link = link;
	return 0;
}

void link_destroy(struct link *link)
{
	if (link->carrier)
		link->carrier->ops->close(link);
	free(link);
}
