// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Rendezvous through a world: how the ranks of a part of it meet.
 *
 * Everything is exchanged by all-gathers of the whole world, in which ranks
 * of every colour, and of none, take the same steps:
 *
 *	1. colour, key and secrets of each rank
 *	2. a note of each rank: attached, or what went wrong
 *	3. whether each rank has mapped the others
 *
 * So a rank that fails takes the rest of its steps all the same, and the
 * others of its part fail with it. Who lives is seen by the cards of the old
 * world, which this one keeps a reference to.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "coll.h"
#include "rendezvous.h"

struct entry {
	int color;
	int key;
	char id[33];
	char secret[33];
	char incarnation[33];
};

struct split {
	struct rendezvous rv;
	struct rendezvous *base;	/* the old world's; NULL if it has one rank */
	struct kcr_world *world;	/* the old one, until the new one stands */
	bool has_exchanged;
	int rank, size;
	int *origin;			/* the old rank of each new one */
	struct card *cards;
	char (*notes)[NOTE_BYTES];
};

static struct split *split_of(struct rendezvous *rv)
{
	return (struct split *)rv;
}

/* A note that begins so is an errno and a sentence. */
#define NOTE_OF_ERROR	"!%d %s"

/* The first error among the notes of this part, in old ranks' order alike on all. */
static int noted_error(struct split *s)
{
	for (int r = 0; r < s->size; r++) {
		int error, at = 0;

		if (sscanf(s->notes[r], "!%d %n", &error, &at) == 1)
			return kcr_fail(NULL, error < 0 ? error : -EIO,
					"rank %d of the part (%d of the whole): %s",
					r, s->origin[r], s->notes[r] + at);
	}
	return 0;
}

static int split_exchange(struct rendezvous *rv, const char *note)
{
	struct split *s = split_of(rv);
	int whole = kcr_size(s->world), err;
	char mine[NOTE_BYTES] = "";
	char (*all)[NOTE_BYTES] = malloc(whole * sizeof(*all));

	if (!all)
		return kcr_fail(NULL, -ENOMEM, "no memory for notes");
	s->has_exchanged = true;
	snprintf(mine, sizeof(mine), "%s", note);
	err = coll_exchange(s->world, mine, all, sizeof(mine));
	if (err)
		kcr_fail(NULL, err, "%s", kcr_error(s->world));
	for (int r = 0; !err && r < s->size; r++)
		memcpy(s->notes[r], all[s->origin[r]], NOTE_BYTES);
	free(all);
	return err ? err : noted_error(s);
}

/**
 * rendezvous_agree() - the last step: have all ranks of the part succeeded?
 * @rv: from rendezvous_split()
 * @error: this rank's result so far, with its sentence in kcr_error(NULL)
 *
 * Catches up with the step that a failure left out. Returns 0 if all have.
 */
int rendezvous_agree(struct rendezvous *rv, int error)
{
	struct split *s = split_of(rv);
	char note[NOTE_BYTES] = "mapped";
	int err = 0, last;

	if (error)
		snprintf(note, sizeof(note), NOTE_OF_ERROR, error,
			 kcr_error(NULL));
	if (!s->has_exchanged)
		err = split_exchange(rv, note);
	last = split_exchange(rv, note);
	s->world = NULL;
	if (last)
		return last;
	return err ? err : error;
}

static int split_fail(struct rendezvous *rv, int error)
{
	(void)rv;
	return error;
}

static int split_error(struct rendezvous *rv, bool waits)
{
	(void)rv;
	(void)waits;
	return 0;
}

static void split_settle(struct rendezvous *rv)
{
	(void)rv;
}

static void split_close(struct rendezvous *rv)
{
	struct split *s = split_of(rv);

	rendezvous_close(s->base);
	free(s->origin);
	free(s->cards);
	free(s->notes);
	free(s);
}

static const struct card *split_card(const struct rendezvous *rv, int rank)
{
	return &((const struct split *)rv)->cards[rank];
}

static const char *split_note(const struct rendezvous *rv, int rank)
{
	return ((const struct split *)rv)->notes[rank];
}

static bool split_is_alive(const struct rendezvous *rv, int rank)
{
	const struct split *s = (const struct split *)rv;

	return rendezvous_is_alive(s->base, s->origin[rank]);
}

static const struct rendezvous_ops split_ops = {
	.exchange = split_exchange,
	.fail = split_fail,
	.error = split_error,
	.settle = split_settle,
	.close = split_close,
	.card = split_card,
	.note = split_note,
	.is_alive = split_is_alive,
};

static struct split *make(struct kcr_world *w)
{
	int size = kcr_size(w);
	struct split *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->rv.ops = &split_ops;
	s->rv.references = 1;
	s->world = w;
	s->base = w->rendezvous ? rendezvous_get(w->rendezvous) : NULL;
	s->origin = calloc(size, sizeof(*s->origin));
	s->cards = calloc(size, sizeof(*s->cards));
	s->notes = calloc(size, sizeof(*s->notes));
	if (s->origin && s->cards && s->notes)
		return s;
	split_close(&s->rv);
	return NULL;
}

/* The ranks of a colour, by key, then by old rank. */
static void gather_part(struct split *s, const struct entry *all, int color)
{
	int whole = kcr_size(s->world), me = kcr_rank(s->world);

	for (int r = 0; r < whole; r++) {
		int at;

		if (all[r].color != color)
			continue;
		for (at = s->size++; at && all[s->origin[at - 1]].key > all[r].key;
		     at--)
			s->origin[at] = s->origin[at - 1];
		s->origin[at] = r;
	}
	for (int r = 0; r < s->size; r++) {
		int old = s->origin[r];

		if (old == me)
			s->rank = r;
		if (s->base)
			s->cards[r] = *rendezvous_card(s->base, old);
		strcpy(s->cards[r].id, all[old].id);
		strcpy(s->cards[r].key, all[old].secret);
		strcpy(s->cards[r].incarnation, all[old].incarnation);
	}
}

static int make_entry(struct entry *mine, int color, int key)
{
	struct card secrets;
	int err = card_secrets(&secrets);

	if (err)
		return err;
	memset(mine, 0, sizeof(*mine));
	mine->color = color;
	mine->key = key;
	strcpy(mine->id, secrets.id);
	strcpy(mine->secret, secrets.key);
	strcpy(mine->incarnation, secrets.incarnation);
	return 0;
}

/**
 * rendezvous_split() - the first step: who belongs to which part
 * @world: the old world
 * @color: this rank's; negative: none, and @rv only goes along
 * @key: this rank's
 * @config: the old world's; gets the new rank and sizes
 * @rv: for link_create(), and in any case for rendezvous_agree()
 */
int rendezvous_split(struct kcr_world *world, int color, int key,
		     struct kcr_config *config, struct rendezvous **rv)
{
	struct split *s = make(world);
	struct entry mine, *all = calloc(kcr_size(world), sizeof(*all));
	int err = -ENOMEM;

	if (!s || !all) {
		kcr_fail(world, err, "no memory to split a world");
		goto out;
	}
	err = make_entry(&mine, color, key);
	if (!err)
		err = coll_exchange(world, &mine, all, sizeof(mine));
	if (err)
		goto out;
	if (color >= 0)
		gather_part(s, all, color);
	config->rank = s->rank;
	config->size = s->size;
	config->local_rank = s->rank;
	config->local_size = s->size;
	*rv = &s->rv;
out:
	if (err && s)
		split_close(&s->rv);
	free(all);
	return err;
}
