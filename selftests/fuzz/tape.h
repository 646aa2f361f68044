/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Programs of the peer's fuzzer: what they are made of, their text, how they are made up
 * and changed
 *
 * A program is a text, one step a line:
 *
 *	comes			the way up, which is the first
 *	says 2 0 1		with what chance gave out in it
 *	writes 1 ~0x1234	behind that it goes by this seed
 *
 * Numbers and seeds that are missing are 0. What a number decides, its step knows; a 0
 * is always what is ordinary. "#" begins a comment.
 */
#ifndef KCR_FUZZ_TAPE_H
#define KCR_FUZZ_TAPE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chance.h"

#define MAX_STEPS	17

struct peer;

struct step_type {
	const char *name;
	unsigned int weight;	/* 0 for a way up */
	void (*run)(struct peer *p);
};

/* The ways up first. */
#define WAYS	2
extern const struct step_type step_types[];
extern const int nr_step_types;

struct step {
	const struct step_type *type;
	struct record record;
};

struct program {
	int n;
	struct step steps[MAX_STEPS];
};

/* ---- text ---- */

static inline void program_write(const struct program *p, FILE *f)
{
	for (int i = 0; i < p->n; i++) {
		const struct record *r = &p->steps[i].record;
		int n = r->n;

		while (!r->seed && n && !r->word[n - 1])
			n--;
		fprintf(f, "%s", p->steps[i].type->name);
		for (int j = 0; j < n; j++)
			fprintf(f, r->word[j] < 100000 ? " %llu" : " %#llx", r->word[j]);
		if (r->seed)
			fprintf(f, " ~%#llx", r->seed);
		fprintf(f, "\n");
	}
}

static inline int word_read(struct record *r, const char *word)
{
	bool is_seed = *word == '~';
	__u64 value;
	char *end;

	value = strtoull(word + is_seed, &end, 0);
	if (*end || end == word + is_seed || r->seed || (!is_seed && r->n == RECORD_WORDS))
		return -EINVAL;
	if (is_seed)
		r->seed = value;
	else
		r->word[r->n++] = value;
	return 0;
}

static inline int program_read_line(struct program *p, char *line)
{
	char *rest = NULL, *word = strtok_r(line, " \t\n", &rest);
	struct step *s = &p->steps[p->n];

	if (!word)
		return 0;
	if (p->n == MAX_STEPS)
		return -EINVAL;
	for (int i = 0; i < nr_step_types; i++)
		if (!strcmp(step_types[i].name, word))
			s->type = &step_types[i];
	/* One way up, and at the beginning. */
	if (!s->type || !s->type->weight != !p->n)
		return -EINVAL;
	p->n++;
	while ((word = strtok_r(NULL, " \t\n", &rest)))
		if (word_read(&s->record, word))
			return -EINVAL;
	return 0;
}

/* ---- making them up ---- */

static inline struct step draw_step(struct chance *c)
{
	unsigned int all = 0;
	__u64 at;
	int i;

	for (i = WAYS; i < nr_step_types; i++)
		all += step_types[i].weight;
	at = below(c, all);
	for (i = WAYS; at >= step_types[i].weight; i++)
		at -= step_types[i].weight;
	return (struct step){ .type = &step_types[i], .record.seed = draw(c) };
}

static inline void program_make(struct program *p, struct chance *c)
{
	int n = 2 + below(c, MAX_STEPS - 1);

	memset(p, 0, sizeof(*p));
	p->steps[p->n++] = (struct step){
		.type = &step_types[below(c, WAYS)], .record.seed = draw(c),
	};
	while (p->n < n)
		p->steps[p->n++] = draw_step(c);
}

/* Not before the way up. */
static inline void insert(struct program *p, int at, struct step s)
{
	if (p->n == MAX_STEPS || !at)
		return;
	memmove(&p->steps[at + 1], &p->steps[at], (p->n - at) * sizeof(s));
	p->steps[at] = s;
	p->n++;
}

/* Returns whether that can be: a program begins with the way up. */
static inline bool program_cut(struct program *p, int at, int n)
{
	if (!at)
		return false;
	memmove(&p->steps[at], &p->steps[at + n], (p->n - at - n) * sizeof(p->steps[0]));
	p->n -= n;
	return true;
}

/*
 * A step without its numbers, without its seed, or with a number that is 0, by @i: whether
 * that is something else than before, or -1 if there is none.
 */
static inline int program_simpler(struct program *p, int i)
{
	struct record *r = &p->steps[i / (RECORD_WORDS + 2)].record;
	int at = i % (RECORD_WORDS + 2);
	struct record before;

	if (i / (RECORD_WORDS + 2) >= p->n)
		return -1;
	before = *r;
	if (at == 0)
		*r = (struct record){ 0 };
	else if (at == 1)
		r->seed = 0;
	else if (at - 2 < r->n)
		r->word[at - 2] = 0;
	return !!memcmp(&before, r, sizeof(before));
}

static inline void change_record(struct record *r, struct chance *c)
{
	int at = r->n ? below(c, r->n) : 0;

	switch (r->n ? below(c, 5) : 0) {
	case 0:
		/* All that comes behind it is another. */
		r->n = at;
		r->seed = draw(c);
		break;
	case 1:
		r->word[at] ^= 1;
		break;
	case 2:
		r->word[at] = any_number(c);
		break;
	default:
		r->word[at] = draw(c);
	}
}

/* Change it a little; @other is another one to take from. */
static inline void program_change(struct program *p, struct chance *c,
				  const struct program *other)
{
	int times = 1 + below(c, 4);

	while (times--) {
		int at = below(c, p->n), n;
		struct step *s = &p->steps[at];

		switch (below(c, 8)) {
		case 0:
		case 1:
			insert(p, 1 + below(c, p->n), draw_step(c));
			break;
		case 2:
			program_cut(p, at, 1);
			break;
		case 3:
			if (at)
				insert(p, 1 + below(c, p->n), *s);
			break;
		case 4:
			n = other->n > 1 ? 1 + below(c, other->n - 1) : 0;
			for (int j = 0; j < n; j++)
				insert(p, p->n, other->steps[other->n - n + j]);
			break;
		default:
			change_record(&s->record, c);
		}
	}
}

#endif /* KCR_FUZZ_TAPE_H */
