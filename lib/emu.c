// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The emulator: all ranks of a world in one process, stepped without threads.
 *
 * Its carrier gives the links ordinary memory. A frame that was posted is a
 * message for each reader, which sees it only once the emulator has delivered it:
 * struct rx's gate. Messages of one channel keep their order, as on any link;
 * those of different channels are delivered in an order that is drawn or given. Acknowledgements
 * are seen at once.
 *
 * A step delivers one message and takes the worlds further that it concerns. When
 * nothing can be delivered and nothing moves, time has run out.
 *
 * Used by one thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "emu.h"
#include "limits.h"
#include "world.h"

#define CHANNELS	(1 + LANE_SETS)		/* the board, then the lanes */

/* From one rank to one other. */
struct channel {
	int from, to;
	uint64_t posted;
	uint64_t delivered;	/* the gate */
	int waiting_at;		/* its place in kcr_emu.waiting, or -1 */
	bool is_cut;		/* a message was lost: nothing behind it arrives */
};

struct rule {
	enum kcr_emu_rule rule;
	int from, to;
	uint64_t nth;		/* of the messages between the two, from 1 */
	int value;
	/* Once the message has been posted: */
	struct channel *channel;
	uint64_t sequence;
	uint64_t until;		/* DELAY: so many deliveries in all */
};

struct kcr_emu {
	int ranks;
	struct kcr_world **worlds;
	struct channel *channels;	/* [from][to][CHANNELS] */
	uint64_t *sent;			/* [from][to] messages so far */
	struct channel **waiting;	/* those with messages to deliver */
	int waiting_count;
	struct rule *rules;
	int rules_count;
	bool is_shuffled;
	uint64_t random;
	int *place;			/* of a sender in the order, or NULL */
	uint64_t deliveries;
	struct rankset dirty;		/* worlds that may be able to move */
};

struct emu_carrier {
	struct carrier carrier;
	struct kcr_emu *emu;
	struct kcr_status *status;
	unsigned char *board;
	unsigned char *lanes;	/* outgoing: by peer, then set */
	struct kcr_ack *acks;	/* of incoming lanes, likewise */
	size_t lane_bytes;
};

static struct emu_carrier *carrier_of(const struct link *link)
{
	return (struct emu_carrier *)link->carrier;
}

static struct channel *channel_of(struct kcr_emu *emu, int from, int to, int n)
{
	return &emu->channels[((size_t)from * emu->ranks + to) * CHANNELS + n];
}

/* The finaliser of SplitMix64 over a counter. */
static uint64_t draw(struct kcr_emu *emu)
{
	uint64_t x = emu->random += 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static void enlist(struct kcr_emu *emu, struct channel *c)
{
	if (c->waiting_at >= 0 || c->is_cut)
		return;
	c->waiting_at = emu->waiting_count;
	emu->waiting[emu->waiting_count++] = c;
}

static void strike(struct kcr_emu *emu, struct channel *c)
{
	struct channel *last = emu->waiting[--emu->waiting_count];

	emu->waiting[c->waiting_at] = last;
	last->waiting_at = c->waiting_at;
	c->waiting_at = -1;
}

static void post_to(struct kcr_emu *emu, int from, int to, int n)
{
	struct channel *c = channel_of(emu, from, to, n);
	uint64_t nth = ++emu->sent[from * emu->ranks + to];

	c->posted++;
	for (int i = 0; i < emu->rules_count; i++) {
		struct rule *rule = &emu->rules[i];

		if (rule->from != from || rule->to != to || rule->nth != nth)
			continue;
		rule->channel = c;
		rule->sequence = c->posted;
		rule->until = emu->deliveries + rule->value;
	}
	enlist(emu, c);
}

static void emu_posted(struct link *link, struct tx *tx)
{
	struct kcr_emu *emu = carrier_of(link)->emu;
	int me = link->world->config.rank;
	int set;

	if (tx->peer < 0) {
		rankset_for_each(r, &link->others)
			post_to(emu, me, r, 0);
		return;
	}
	set = tx - link->peers[tx->peer].tx;
	post_to(emu, me, tx->peer, 1 + set);
}

static void emu_fail_world(struct kcr_emu *emu, uint64_t cause)
{
	for (int r = 0; r < emu->ranks; r++) {
		struct link *link = emu->worlds[r]->link;

		if (link && !link->status->cause)
			link->status->cause = cause;
		rankset_add(&emu->dirty, r);
	}
}

static void emu_fail(struct link *link, int error)
{
	emu_fail_world(carrier_of(link)->emu,
		       KCR_CAUSE(link->world->config.rank, error));
}

/* All ranks are asleep at all times: who is kicked may be able to move. */
static void emu_kick(struct link *link, const struct rankset *ranks)
{
	rankset_for_each(r, ranks)
		rankset_add(&carrier_of(link)->emu->dirty, r);
}

static int emu_park(struct link *link, uint64_t seen, uint64_t timeout_ns)
{
	(void)seen;
	(void)timeout_ns;
	return kcr_fail(link->world, -EDEADLK, "an emulated world does not sleep");
}

static void emu_close(struct link *link)
{
	struct emu_carrier *c = carrier_of(link);

	free(c->status);
	free(c->board);
	free(c->lanes);
	free(c->acks);
	free(c);
}

static const struct carrier_ops emu_ops = {
	.name = "emulated",
	.park = emu_park,
	.kick = emu_kick,
	.fail = emu_fail,
	.close = emu_close,
	.posted = emu_posted,
};

static struct rule *rule_of(struct kcr_emu *emu, const struct channel *c)
{
	for (int i = 0; i < emu->rules_count; i++) {
		struct rule *rule = &emu->rules[i];

		if (rule->channel == c && rule->sequence == c->delivered + 1)
			return rule;
	}
	return NULL;
}

static bool is_delayed(struct kcr_emu *emu, const struct channel *c)
{
	const struct rule *rule = rule_of(emu, c);

	return rule && rule->rule == KCR_EMU_DELAY &&
	       emu->deliveries < rule->until;
}

/* The next channel to deliver from, of those that are not delayed; or any, if all are. */
static struct channel *pick(struct kcr_emu *emu)
{
	struct channel *best = NULL;
	int n = emu->waiting_count, from = 0;

	if (!n)
		return NULL;
	if (emu->is_shuffled)
		from = draw(emu) % n;
	for (int i = 0; i < n; i++) {
		struct channel *c = emu->waiting[(from + i) % n];

		if (is_delayed(emu, c))
			continue;
		if (!emu->place)
			return c;
		if (!best || emu->place[c->from] < emu->place[best->from])
			best = c;
	}
	return best ? best : emu->waiting[from];
}

static void deliver(struct kcr_emu *emu, struct channel *c)
{
	const struct rule *rule = rule_of(emu, c);

	emu->deliveries++;
	if (rule && rule->rule == KCR_EMU_DROP) {
		strike(emu, c);
		c->is_cut = true;
		return;
	}
	if (rule && rule->rule == KCR_EMU_FAIL) {
		strike(emu, c);
		c->is_cut = true;
		emu_fail_world(emu, KCR_CAUSE(c->from, rule->value));
		return;
	}
	if (++c->delivered == c->posted)
		strike(emu, c);
	rankset_add(&emu->dirty, c->to);
}

/* Take a world further, and note whom that concerns: see emu_kick(). */
static void advance(struct kcr_emu *emu, int rank)
{
	request_progress(emu->worlds[rank]);
	link_flush(emu->worlds[rank]->link);
}

/* One step of everything. Returns false when there is nothing left to do. */
static bool step(struct kcr_emu *emu)
{
	struct channel *c;
	int rank = rankset_next(&emu->dirty, 0);

	if (rank >= 0) {
		rankset_remove(&emu->dirty, rank);
		advance(emu, rank);
		return true;
	}
	c = pick(emu);
	if (!c)
		return false;
	deliver(emu, c);
	return true;
}

/* A request cannot move: does it know why? Returns true if it has moved after all. */
static bool end_stuck(struct kcr_request *r)
{
	int err;

	/* What has not come will not: see cause_error(). */
	r->differs_ns = 1;
	err = request_stuck(r);
	if (err < 0)
		request_fail(r, err);
	return err > 0;
}

/*
 * Nothing is left to do: the world has failed, or time has run out. Who waits
 * may not be the one that knows why.
 */
static void end(struct kcr_emu *emu, struct kcr_request *r)
{
	struct kcr_request *front;
	bool has_moved = false;

	for (int rank = 0; rank < emu->ranks; rank++)
		if (emu->worlds[rank]->collectives.head)
			request_claim(emu->worlds[rank]->collectives.head);
	for (int rank = 0; rank < emu->ranks; rank++)
		if (emu->worlds[rank]->collectives.head)
			has_moved |= end_stuck(emu->worlds[rank]->collectives.head);
	if (r->is_done || has_moved)
		return;
	front = request_front(r);
	if (end_stuck(front) || front->is_done)
		return;
	request_fail(front, request_late(front,
					 r->world->config.timeout_ms / 1e3));
}

/* Wait by running the emulator. */
int emu_wait(struct kcr_request *r)
{
	struct kcr_emu *emu = r->world->emu;

	rankset_add(&emu->dirty, r->world->config.rank);
	while (!r->is_done)
		if (!step(emu))
			end(emu, r);
	return r->err;
}

/* One step, and what follows from there being none. */
void emu_poll(struct kcr_request *r)
{
	struct kcr_emu *emu = r->world->emu;

	rankset_add(&emu->dirty, r->world->config.rank);
	while (step(emu))
		if (r->is_done || r->has_moved)
			return;
	if (!r->is_done)
		end(emu, r);
}

static int make_carrier(struct kcr_emu *emu, struct link *link)
{
	const struct kcr_config *config = &link->world->config;
	struct emu_carrier *c = calloc(1, sizeof(*c));
	size_t lanes = (size_t)config->size * LANE_SETS;

	if (!c)
		return -ENOMEM;
	c->carrier.ops = &emu_ops;
	link->carrier = &c->carrier;
	c->emu = emu;
	c->lane_bytes = link_lane_bytes(config);
	c->status = calloc(1, sizeof(*c->status));
	c->board = calloc(1, link_board_bytes(link));
	c->lanes = calloc(lanes, c->lane_bytes);
	c->acks = calloc(lanes, sizeof(*c->acks));
	if (!c->status || !c->board || !c->lanes || !c->acks)
		return -ENOMEM;
	*(uint32_t *)(c->board + BOARD_SLEEPING) = 1;
	link->status = c->status;
	return 0;
}

static void connect_pair(struct kcr_emu *emu, struct link *a, int me, int peer)
{
	struct link *b = emu->worlds[peer]->link;
	struct emu_carrier *mine = carrier_of(a), *theirs = carrier_of(b);

	link_place_board(a, peer, theirs->board);
	a->peers[peer].rx_board.gate = &channel_of(emu, peer, me, 0)->delivered;
	for (int set = 0; set < LANE_SETS; set++) {
		int out = peer * LANE_SETS + set, in = me * LANE_SETS + set;

		link_place_tx_lane(a, peer, set,
				   mine->lanes + out * mine->lane_bytes,
				   &theirs->acks[in]);
		link_place_rx_lane(a, peer, set,
				   theirs->lanes + in * theirs->lane_bytes,
				   &mine->acks[out]);
		a->peers[peer].rx[set].gate =
			&channel_of(emu, peer, me, 1 + set)->delivered;
	}
}

static int make_world(struct kcr_emu *emu, const struct kcr_config *config,
		      int rank)
{
	struct kcr_config own = *config;
	struct kcr_world *w;
	int err;

	own.rank = rank;
	own.local_rank = rank;
	err = world_alloc(&own, &w);
	if (err)
		return err;
	emu->worlds[rank] = w;
	w->emu = emu;
	if (emu->ranks == 1)
		return 0;
	w->link = link_alloc(w);
	if (!w->link || make_carrier(emu, w->link))
		return kcr_fail(NULL, -ENOMEM,
				"no memory for rank %d of %d emulated ones", rank,
				emu->ranks);
	return 0;
}

static int make_worlds(struct kcr_emu *emu, const struct kcr_config *config)
{
	int n = emu->ranks, err;

	for (int r = 0; r < n; r++) {
		err = make_world(emu, config, r);
		if (err)
			return err;
	}
	for (int a = 0; a < n && n > 1; a++) {
		struct link *link = emu->worlds[a]->link;

		link_place_board(link, a, carrier_of(link)->board);
		rankset_for_each(b, &link->others)
			connect_pair(emu, link, a, b);
	}
	return 0;
}

static int alloc_tables(struct kcr_emu *emu)
{
	size_t ranks = emu->ranks, pairs = ranks * ranks;

	emu->worlds = calloc(ranks, sizeof(*emu->worlds));
	emu->channels = calloc(pairs * CHANNELS, sizeof(*emu->channels));
	emu->waiting = calloc(pairs * CHANNELS, sizeof(*emu->waiting));
	emu->sent = calloc(pairs, sizeof(*emu->sent));
	if (!emu->worlds || !emu->channels || !emu->waiting || !emu->sent)
		return -ENOMEM;
	for (size_t i = 0; i < pairs * CHANNELS; i++) {
		emu->channels[i].from = i / CHANNELS / emu->ranks;
		emu->channels[i].to = i / CHANNELS % emu->ranks;
		emu->channels[i].waiting_at = -1;
	}
	return 0;
}

KCR_PUBLIC int kcr_emu_create_config(const struct kcr_config *config,
				     struct kcr_emu **out)
{
	struct kcr_config own;
	struct kcr_emu *emu;
	int err;

	if (!out)
		return kcr_fail(NULL, -EINVAL, "emu is NULL");
	*out = NULL;
	if (config)
		own = *config;
	else
		kcr_config_init(&own);
	own.rank = 0;
	own.local_rank = 0;
	own.local_size = own.size;
	own.progress_thread = 0;
	/* Hundreds of ranks in one process: small slots will do. */
	if (own.size > EMU_FEW_RANKS && own.lane_bytes == DEFAULT_LANE_BYTES)
		own.lane_bytes = EMU_SLOT_BYTES;
	if (own.size > EMU_FEW_RANKS && own.board_bytes == DEFAULT_BOARD_BYTES)
		own.board_bytes = EMU_SLOT_BYTES;
	err = config_check(&own);
	if (err)
		return err;
	emu = calloc(1, sizeof(*emu));
	if (!emu)
		return kcr_fail(NULL, -ENOMEM, "no memory for an emulator");
	emu->ranks = own.size;
	err = alloc_tables(emu);
	if (err)
		kcr_fail(NULL, err, "no memory for %d emulated ranks", own.size);
	else
		err = make_worlds(emu, &own);
	if (err)
		kcr_emu_destroy(emu);
	else
		*out = emu;
	return err;
}

KCR_PUBLIC int kcr_emu_create(int ranks, struct kcr_emu **emu)
{
	struct kcr_config config;

	kcr_config_init(&config);
	config.size = ranks;
	return kcr_emu_create_config(&config, emu);
}

KCR_PUBLIC void kcr_emu_destroy(struct kcr_emu *emu)
{
	if (!emu)
		return;
	for (int r = 0; emu->worlds && r < emu->ranks; r++)
		if (emu->worlds[r])
			world_free(emu->worlds[r]);
	free(emu->worlds);
	free(emu->channels);
	free(emu->waiting);
	free(emu->sent);
	free(emu->rules);
	free(emu->place);
	free(emu);
}

KCR_PUBLIC struct kcr_world *kcr_emu_world(struct kcr_emu *emu, int rank)
{
	return emu && rank >= 0 && rank < emu->ranks ? emu->worlds[rank] : NULL;
}

KCR_PUBLIC int kcr_emu_shuffle(struct kcr_emu *emu, uint64_t seed)
{
	if (!emu)
		return kcr_fail(NULL, -EINVAL, "emu is NULL");
	free(emu->place);
	emu->place = NULL;
	emu->is_shuffled = true;
	emu->random = seed;
	return 0;
}

KCR_PUBLIC int kcr_emu_order(struct kcr_emu *emu, const int *order, int n)
{
	struct rankset seen = { 0 };
	int *place;

	if (!emu || !order)
		return kcr_fail(NULL, -EINVAL, "%s is NULL",
				emu ? "order" : "emu");
	if (n != emu->ranks)
		return kcr_fail(NULL, -EINVAL, "n is %d, must be %d, the ranks",
				n, emu->ranks);
	for (int i = 0; i < n; i++) {
		if (order[i] < 0 || order[i] >= n || rankset_has(&seen, order[i]))
			return kcr_fail(NULL, -EINVAL,
					"order[%d] is %d, must be each of 0 to %d once",
					i, order[i], n - 1);
		rankset_add(&seen, order[i]);
	}
	place = calloc(KCR_RANKS_MAX, sizeof(*place));
	if (!place)
		return kcr_fail(NULL, -ENOMEM, "no memory for an order");
	for (int i = 0; i < n; i++)
		place[order[i]] = i;
	free(emu->place);
	emu->place = place;
	emu->is_shuffled = false;
	return 0;
}

KCR_PUBLIC int kcr_emu_rule(struct kcr_emu *emu, enum kcr_emu_rule rule,
			    int from, int to, uint64_t nth, int value)
{
	struct rule *rules;

	if (!emu)
		return kcr_fail(NULL, -EINVAL, "emu is NULL");
	if ((unsigned int)rule > KCR_EMU_FAIL)
		return kcr_fail(NULL, -EINVAL, "rule is %d, which is none", rule);
	if (from < 0 || from >= emu->ranks || to < 0 || to >= emu->ranks ||
	    from == to)
		return kcr_fail(NULL, -EINVAL,
				"from is %d and to is %d, must be two of 0 to %d",
				from, to, emu->ranks - 1);
	if (!nth || value < 0 ||
	    (rule == KCR_EMU_FAIL && (value < 1 || value > 4095)))
		return kcr_fail(NULL, -EINVAL,
				"nth is %llu and value is %d: nth counts from 1, an errno is 1 to 4095",
				(unsigned long long)nth, value);
	rules = realloc(emu->rules, (emu->rules_count + 1) * sizeof(*rules));
	if (!rules)
		return kcr_fail(NULL, -ENOMEM, "no memory for a rule");
	emu->rules = rules;
	rules[emu->rules_count++] = (struct rule){
		.rule = rule, .from = from, .to = to, .nth = nth,
		.value = value,
	};
	return 0;
}
