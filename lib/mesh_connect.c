// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Connections of the mesh: who is connected to whom by which wires, making the
 * connections, and what has become of them.
 *
 * Which wires two ranks have follows from their cards, so both know. The lower
 * rank connects: before the ranks exchange their notes each makes known whom it
 * expects, after it each connects to the higher ranks, and a rank waits until all of
 * its connections are up, so that all that is wrong is found and named.
 *
 * Owns the mesh: pages, rings of frames, the queue. Under the world's lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "limits.h"
#include "link_mesh.h"
#include "rendezvous.h"
#include "request.h"

#define PAGE	4096ul

static size_t round_to_page(size_t bytes)
{
	return (bytes + PAGE - 1) & ~(PAGE - 1);
}

static size_t conn_page_bytes(void)
{
	return round_to_page(sizeof(struct kcr_conn_status));
}

/* For peers whose page is not there yet: no claim, no beat, awake. */
static const struct kcr_board no_board;

/* Of connections that have not been used: not up, and no ring is open. */
static const struct kcr_conn_status no_status;

static uint32_t lane_slots(const struct mesh *mesh)
{
	return mesh->link->world->config.lane_depth * mesh->wires +
	       MESH_SPARE_SLOTS;
}

static size_t lane_bytes(const struct mesh *mesh)
{
	const struct kcr_config *config = &mesh->link->world->config;

	return round_to_page(lane_slots(mesh) *
			     KCR_SLOT_STRIDE(link_lane_capacity(config)));
}

static unsigned int count_peers(const struct mesh *mesh)
{
	unsigned int n = 0;

	rankset_for_each(rank, &mesh->peers)
		n++;
	return n;
}

/* What the lanes to the mesh take of this rank's board in ARENA_WINDOW. */
size_t mesh_arena_bytes(const struct mesh *mesh)
{
	return count_peers(mesh) * LANE_SETS * lane_bytes(mesh);
}

/* The lower rank's end is the pair's first. */
static void choose_wires(struct mesh *mesh, struct rendezvous *rv, int rank)
{
	int me = mesh->link->world->config.rank;
	const struct card *lower = rendezvous_card(rv, me < rank ? me : rank);
	const struct card *higher = rendezvous_card(rv, me < rank ? rank : me);
	struct wire_pair pairs[WIRES_LISTED];
	int n = wires_pair(&lower->wires, &higher->wires,
			   card_same_node(lower, higher), pairs);

	for (int i = 0; i < n && i < mesh->wires; i++) {
		struct mesh_conn *c = &mesh->by_rank[rank]->conns[i];

		c->local = me < rank ? pairs[i].a : pairs[i].b;
		c->remote = me < rank ? pairs[i].b : pairs[i].a;
	}
}

static struct mesh_tx *make_tx(uint32_t slots)
{
	return calloc(1, sizeof(struct mesh_tx) +
		      slots * sizeof(struct mesh_stamp));
}

/* All that is allocated, so that nothing can fail while frames travel. */
static int alloc_peer(struct mesh *mesh, int rank)
{
	struct peer *peer = &mesh->link->peers[rank];
	struct mesh_peer *mine = calloc(1, sizeof(*mine));

	mesh->by_rank[rank] = mine;
	if (!mine)
		return -ENOMEM;
	mine->mesh = mesh;
	mine->rank = rank;
	peer->board = (const unsigned char *)&no_board;
	for (int set = 0; set < LANE_SETS; set++) {
		struct mesh_tx *t = make_tx(lane_slots(mesh));

		peer->tx[set].mesh = t;
		if (!t)
			return -ENOMEM;
		rankset_add(&t->peers, rank);
	}
	return 0;
}

static int alloc_all(struct mesh *mesh)
{
	struct link *link = mesh->link;
	int err = 0;

	rankset_for_each(rank, &mesh->peers)
		if (!err)
			err = alloc_peer(mesh, rank);
	link->tx_board.mesh = make_tx(link->board_slots);
	mesh->room = RANKSET_WORDS * link->board_slots +
		     count_peers(mesh) * LANE_SETS * lane_slots(mesh);
	mesh->queue = calloc(mesh->room, sizeof(*mesh->queue));
	if (!link->tx_board.mesh || !mesh->queue)
		err = -ENOMEM;
	else
		link->tx_board.mesh->peers = mesh->peers;
	return err;
}

static bool is_lazy(const struct kcr_config *config)
{
	return config->connect == KCR_CONNECT_LAZY ||
	       (config->connect == KCR_CONNECT_AUTO &&
		config->size > MESH_EAGER_RANKS);
}

/* Until the module must have connected; 0: whenever the peer comes. */
static uint32_t time_to_connect(const struct mesh *mesh, int rank)
{
	const struct kcr_config *config = &mesh->link->world->config;

	if (mesh->is_lazy && rank < config->rank)
		return 0;
	return config->rendezvous_ms < MESH_CONNECT_MS ? config->rendezvous_ms :
							 MESH_CONNECT_MS;
}

/**
 * mesh_create() - the mesh of a link
 * @link: knows who is reached by lanes; all others are the mesh's
 * @rv: has the cards; must live as long as the link
 * @wires: to each peer
 *
 * On success link->mesh is set.
 */
int mesh_create(struct link *link, struct rendezvous *rv, int wires)
{
	struct mesh *mesh = calloc(1, sizeof(*mesh) + link->world->config.size *
				   sizeof(mesh->by_rank[0]));

	if (!mesh)
		return kcr_fail(NULL, -ENOMEM, "no memory for a mesh");
	mesh->link = link;
	mesh->device = -1;
	mesh->wires = wires;
	mesh->rv = rv;
	mesh->is_lazy = is_lazy(&link->world->config);
	rankset_for_each(rank, &link->others)
		if (!rankset_has(&link->local, rank))
			rankset_add(&mesh->peers, rank);
	link->mesh = mesh;
	if (alloc_all(mesh))
		return kcr_fail(NULL, -ENOMEM, "no memory for a mesh");
	rankset_for_each(rank, &mesh->peers)
		choose_wires(mesh, rv, rank);
	return 0;
}

/* A rank as sentences about connections name it. */
static void name_way(const struct mesh *mesh, struct rendezvous *rv, int rank,
		     int wire, char *text, size_t size)
{
	const struct mesh_conn *c = &mesh->by_rank[rank]->conns[wire];
	int n = snprintf(text, size, "rank %d (host %s) by wire %d: ", rank,
			 rendezvous_card(rv, rank)->host, wire);

	if (n > 0 && (size_t)n < size)
		mesh_describe(c, text + n, size - n);
}

static int start_one(struct mesh *mesh, struct rendezvous *rv, int rank,
		     int wire)
{
	const struct kcr_config *config = &mesh->link->world->config;
	struct mesh_conn *c = &mesh->by_rank[rank]->conns[wire];
	struct kcr_connect connect = {
		.size = sizeof(connect),
		.peer = rank,
		.wire = wire,
		.timeout_ms = time_to_connect(mesh, rank),
		.depth = config->mesh_depth,
	};
	char way[KCR_ERROR_BYTES / 2];
	int err;

	memcpy(connect.local, &c->local->address, sizeof(connect.local));
	memcpy(connect.remote, &c->remote->address, sizeof(connect.remote));
	err = submit_command(mesh->submit, KCR_CMD_CONNECT, &connect,
			     sizeof(connect));
	if (!err)
		return 0;
	if (err == -EPROTONOSUPPORT)
		return kcr_fail(NULL, err,
				"the module cannot connect to other nodes: load kcollring_verbs.ko on host %s",
				rendezvous_card(rv, config->rank)->host);
	name_way(mesh, rv, rank, wire, way, sizeof(way));
	return kcr_fail(NULL, err, "cannot connect to %s: %s", way,
			strerror(-err));
}

static int map_page(struct mesh *mesh, int rank, int wire)
{
	struct mesh_conn *c = &mesh->by_rank[rank]->conns[wire];
	void *at = mmap(NULL, conn_page_bytes(), PROT_READ, MAP_SHARED,
			mesh->device,
			KCR_MMAP_OFFSET(wire, KCR_MAP_CONN, rank));

	if (at == MAP_FAILED)
		return kcr_fail(NULL, -errno,
				"cannot map the state of the connection to rank %d: %s",
				rank, strerror(errno));
	c->status = at;
	c->is_started = true;
	if (!wire)
		mesh->link->peers[rank].board =
			(const unsigned char *)&c->status->board;
	return 0;
}

/* Connections to lower ranks, or to higher ones. */
static int start_all(struct mesh *mesh, struct rendezvous *rv, bool higher)
{
	int me = mesh->link->world->config.rank, err;

	rankset_for_each(rank, &mesh->peers) {
		bool is_higher = rank > me;

		if (is_higher != higher)
			continue;
		for (int wire = 0; wire < mesh->wires; wire++) {
			err = start_one(mesh, rv, rank, wire) ?:
			      map_page(mesh, rank, wire);
			if (err)
				return err;
		}
	}
	return 0;
}

/* Before the exchange: let the lower ranks connect. */
int mesh_expect(struct mesh *mesh, struct rendezvous *rv)
{
	rankset_for_each(rank, &mesh->peers)
		for (int wire = 0; wire < mesh->wires; wire++)
			mesh->by_rank[rank]->conns[wire].status = &no_status;
	return start_all(mesh, rv, false);
}

/**
 * mesh_give_up() - the mesh cannot go on for this rank
 * @mesh: the mesh; the first reason stays
 * @err: of kcr_fail(), whose sentence is kept with it
 */
void mesh_give_up(struct mesh *mesh, int err)
{
	if (mesh->error)
		return;
	mesh->error = err;
	snprintf(mesh->sentence, sizeof(mesh->sentence), "%s", kcr_error(NULL));
}

/**
 * mesh_use() - a connection is going to be used
 * @mesh: the mesh
 * @rank: the peer
 * @wire: by which wire
 *
 * If connections are made on first use, and by this rank, it is made now. The
 * peer, which has been expecting it from the start, will not call.
 */
void mesh_use(struct mesh *mesh, int rank, int wire)
{
	int err;

	if (!mesh->is_lazy || mesh->by_rank[rank]->conns[wire].is_started ||
	    mesh->error)
		return;
	err = start_one(mesh, mesh->rv, rank, wire) ?:
	      map_page(mesh, rank, wire);
	if (err)
		mesh_give_up(mesh, err);
}

static unsigned int state_of(const struct mesh_conn *c)
{
	return __atomic_load_n(&c->status->state, __ATOMIC_ACQUIRE);
}

/* How many connections have failed, and how many are on their way. */
static void survey(const struct mesh *mesh, int *failed, int *pending)
{
	*failed = 0;
	*pending = 0;
	rankset_for_each(rank, &mesh->peers) {
		for (int wire = 0; wire < mesh->wires; wire++) {
			unsigned int state =
				state_of(&mesh->by_rank[rank]->conns[wire]);

			*failed += state == KCR_CONN_FAILED;
			*pending += state < KCR_CONN_UP;
		}
	}
}

/* Say of all connections that are not up why. */
static int report(const struct mesh *mesh, struct rendezvous *rv)
{
	char text[KCR_ERROR_BYTES], one[KCR_ERROR_BYTES / 2];
	size_t at = 0;
	int err = 0;

	text[0] = 0;
	rankset_for_each(rank, &mesh->peers) {
		for (int wire = 0; wire < mesh->wires; wire++) {
			const struct mesh_conn *c = &mesh->by_rank[rank]->conns[wire];
			unsigned int state = state_of(c);

			if (state >= KCR_CONN_UP && state != KCR_CONN_FAILED)
				continue;
			if (!err)
				err = state == KCR_CONN_FAILED && c->status->error ?
				      -(int)c->status->error : -ETIMEDOUT;
			name_way(mesh, rv, rank, wire, one, sizeof(one));
			if (at < sizeof(text))
				at += snprintf(text + at, sizeof(text) - at,
					       "%s%s", at ? "; " : "", one);
		}
	}
	return kcr_fail(NULL, err, "rank %d is not connected to %s",
			mesh->link->world->config.rank, text);
}

/* Something that ends the wait, whatever becomes of the connections. */
static int look_around(const struct mesh *mesh, struct rendezvous *rv)
{
	uint64_t cause = __atomic_load_n(&mesh->link->status->cause,
					 __ATOMIC_ACQUIRE);
	int err = rendezvous_error(rv, false);

	return err || !cause ? err : link_came_apart(rv, cause);
}

static int wait_connected(struct mesh *mesh, struct rendezvous *rv)
{
	const struct kcr_config *config = &mesh->link->world->config;
	uint64_t deadline = process_now_ns() + config->rendezvous_ms * 1000000;
	struct link *link = mesh->link;
	bool has_failed = false;
	int failed, pending, err;

	for (;;) {
		uint64_t seen = __atomic_load_n(&link->status->events,
						__ATOMIC_ACQUIRE);
		uint64_t now = process_now_ns();

		survey(mesh, &failed, &pending);
		if (!pending)
			return failed ? report(mesh, rv) : 0;
		if (failed && !has_failed && deadline > now + MESH_GRACE_NS)
			deadline = now + MESH_GRACE_NS;
		has_failed = failed;
		err = look_around(mesh, rv);
		if (err)
			return err;
		if (now >= deadline)
			return report(mesh, rv);
		err = link->carrier->ops->park(link, seen, MESH_LOOK_NS);
		if (err)
			return err;
	}
}

static void say_connected(const struct mesh *mesh, struct rendezvous *rv)
{
	const struct kcr_config *config = &mesh->link->world->config;
	char way[KCR_ERROR_BYTES / 2];

	if (!config->debug)
		return;
	rankset_for_each(rank, &mesh->peers) {
		for (int wire = 0; wire < mesh->wires; wire++) {
			name_way(mesh, rv, rank, wire, way, sizeof(way));
			kcr_debug(config, "%s", way);
		}
	}
}

/* After the exchange: connect to the higher ranks, and wait for all. */
int mesh_connect(struct mesh *mesh, struct rendezvous *rv)
{
	int err;

	if (mesh->is_lazy)
		return 0;
	err = start_all(mesh, rv, true) ?: wait_connected(mesh, rv);

	if (err)
		return err;
	say_connected(mesh, rv);
	mesh_open_small(mesh);
	return 0;
}

/* ---- channels ---- */

static void place_lanes(struct mesh *mesh, int rank, unsigned char *at)
{
	struct peer *peer = &mesh->link->peers[rank];

	for (int set = 0; set < LANE_SETS; set++) {
		struct tx *tx = &peer->tx[set];

		link_place_tx_lane(mesh->link, rank, set,
				   at + set * lane_bytes(mesh), NULL);
		tx->slots.depth = lane_slots(mesh);
		tx->mesh->memory = mesh->arena;
		tx->mesh->window = ARENA_WINDOW;
		tx->mesh->stream = STREAM_LANES + set;
		peer->rx[set].peer = rank;
		peer->rx[set].mesh = mesh->by_rank[rank];
		peer->rx[set].stream = STREAM_LANES + set;
	}
}

/* This rank's board and arena are mapped: lay the channels out. */
void mesh_place(struct mesh *mesh)
{
	struct link *link = mesh->link;
	unsigned char *at = mesh->arena;

	link->tx_board.mesh->memory = link->board;
	link->tx_board.mesh->stream = STREAM_BOARD;
	rankset_for_each(rank, &mesh->peers) {
		struct rx *rx = &link->peers[rank].rx_board;

		place_lanes(mesh, rank, at);
		at += LANE_SETS * lane_bytes(mesh);
		rx->peer = rank;
		rx->mesh = mesh->by_rank[rank];
		rx->stream = STREAM_BOARD;
	}
}

/* ---- what has become of connections ---- */

/* KCR_MEMBER_* of a rank that is reached by the mesh, as far as that shows here. */
unsigned int mesh_member(const struct mesh *mesh, int rank)
{
	const struct mesh_peer *peer = mesh->by_rank[rank];
	int left = 0, failed = 0, busy = 0;

	for (int wire = 0; wire < mesh->wires; wire++) {
		switch (state_of(&peer->conns[wire])) {
		case KCR_CONN_UP:
		case KCR_CONN_CONNECTING:
			busy++;
			break;
		case KCR_CONN_LEFT:
			left++;
			break;
		case KCR_CONN_FAILED:
			failed++;
			break;
		default:
			break;
		}
	}
	/*
	 * What it has sent by a wire in use may still come. By one that was never used it
	 * has sent nothing, and to who has left none can be made.
	 */
	if (left && !busy)
		return KCR_MEMBER_LEFT;
	return failed ? KCR_MEMBER_DEAD : KCR_MEMBER_JOINED;
}

/* Is there a connection that could not be made on first use? */
void mesh_look_for_failure(struct mesh *mesh)
{
	char way[KCR_ERROR_BYTES / 2];

	if (!mesh->is_lazy)
		return;
	rankset_for_each(rank, &mesh->peers) {
		/* One that has left lets nobody in any more. */
		if (mesh_member(mesh, rank) != KCR_MEMBER_DEAD)
			continue;
		for (int wire = 0; wire < mesh->wires; wire++) {
			const struct mesh_conn *c = &mesh->by_rank[rank]->conns[wire];

			if (state_of(c) != KCR_CONN_FAILED ||
			    c->status->reason == KCR_REASON_ENDED)
				continue;
			name_way(mesh, mesh->rv, rank, wire, way, sizeof(way));
			mesh_give_up(mesh, kcr_fail(NULL, -(int)c->status->error,
						    "rank %d is not connected to %s",
						    mesh->link->world->config.rank,
						    way));
		}
	}
}

/* Why this rank cannot use its mesh any more, or 0. */
int mesh_check(struct kcr_request *r)
{
	const struct mesh *mesh = r->link->mesh;

	if (!mesh->error)
		return 0;
	return kcr_fail(r->world, mesh->error, "%s #%llu: %s",
			kcr_kind_text(r->header.kind),
			(unsigned long long)r->header.number, mesh->sentence);
}

static bool is_broken(const struct mesh *mesh, int rank, int wire, int error)
{
	const struct mesh_conn *c = &mesh->by_rank[rank]->conns[wire];

	return c->status && state_of(c) == KCR_CONN_FAILED &&
	       (int)c->status->error == error &&
	       c->status->reason != KCR_REASON_ENDED;
}

/**
 * mesh_broken() - the way that broke, if a world failed for that and it was this rank's
 * @r: the request
 * @error: the cause's, positive
 *
 * Returns a negative errno with a sentence, or 0.
 */
int mesh_broken(struct kcr_request *r, int error)
{
	const struct mesh *mesh = r->link->mesh;
	char way[KCR_ERROR_BYTES / 2];

	rankset_for_each(rank, &mesh->peers) {
		for (int wire = 0; wire < mesh->wires; wire++) {
			if (!is_broken(mesh, rank, wire, error))
				continue;
			mesh_describe(&mesh->by_rank[rank]->conns[wire], way,
				      sizeof(way));
			return kcr_fail(r->world, -error,
					"%s #%llu: the way to rank %d (host %s) by wire %d broke: %s",
					kcr_kind_text(r->header.kind),
					(unsigned long long)r->header.number,
					rank, rendezvous_card(r->world->rendezvous,
							      rank)->host,
					wire, way);
		}
	}
	return 0;
}

static void close_peer(struct mesh *mesh, int rank)
{
	struct mesh_peer *peer = mesh->by_rank[rank];

	for (int set = 0; set < LANE_SETS; set++)
		free(mesh->link->peers[rank].tx[set].mesh);
	for (int wire = 0; peer && wire < mesh->wires; wire++) {
		struct mesh_conn *c = &peer->conns[wire];
		struct mesh_ring *rings = &c->rings[0][0];

		for (int i = 0; i < KCR_STREAMS * KCR_CLASSES; i++)
			if (rings[i].frames)
				munmap((void *)rings[i].frames, rings[i].bytes);
		if (c->status && c->status != &no_status)
			munmap((void *)c->status, conn_page_bytes());
	}
	free(peer);
}

void mesh_destroy(struct mesh *mesh)
{
	rankset_for_each(rank, &mesh->peers)
		close_peer(mesh, rank);
	free(mesh->link->tx_board.mesh);
	free(mesh->queue);
	free(mesh);
}
