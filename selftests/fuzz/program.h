/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Programs of the device's fuzzer: what they are made of, their text, how they are
 * made up and changed
 *
 * A program is a text, one operation a line:
 *
 *	free				the processes do not wait for one another
 *	0 join fd=1 rank=1 ranks=2	process 0, and what is not as usual
 *	1 wait& ms=20			in a thread of its own
 *
 * Without "free" an operation begins when the one in the line before has ended, or
 * has taken a while. A process that is named by "fork" begins there, any other at
 * once. "#" begins a comment. Each operation has arguments with names; one that is
 * not given has its usual value, which is valid as far as there is such a thing.
 */
#ifndef KCR_FUZZ_PROGRAM_H
#define KCR_FUZZ_PROGRAM_H

#include <stdarg.h>

#include "chance.h"
#include "mesh.h"

#define ACTORS		4
#define MAX_OPS		64
#define MAX_ARGS	24
#define FDS		6
#define MAPS		8

/* What an argument is, which tells what is worth trying. */
enum kind {
	KIND_FD, KIND_MAP, KIND_ACTOR, KIND_WORLD, KIND_RANK, KIND_RANKS, KIND_WINDOW,
	KIND_PART, KIND_WIRE, KIND_STREAM, KIND_CLASS, KIND_SMALL, KIND_MS, KIND_NUMBER,
	KIND_MASK, KIND_BYTES, KIND_SEED, KIND_TIMEOUT,
	/* Mostly left as they are: what is not so is refused early. */
	KIND_SIZE, KIND_FLAGS, KIND_AT, KIND_BY, KIND_SQE, KIND_ADDRESS,
};

struct arg_type {
	const char *name;
	enum kind kind;
	__u64 usual;
};

/* By which way a command goes. */
enum by {
	BY_IOCTL, BY_URING, BY_SHORT, BY_ASYNC, BY_SQPOLL, BY_IOPOLL, BY_WAYS
};

struct actor;
struct op;

struct op_type {
	const char *name;
	unsigned int weight;
	void (*run)(struct actor *a, const struct op *o);
	/* For what has a struct of the ABI: how it is filled, behind size and flags. */
	void (*fill)(struct actor *a, const struct op *o, void *args);
	__u32 nr;
	__u32 bytes;
	struct arg_type args[MAX_ARGS - 8];
};

struct op {
	const struct op_type *type;
	__u32 actor;
	bool is_apart;		/* in a thread */
	__u64 value[MAX_ARGS];
};

struct program {
	bool is_free;
	int n;
	struct op ops[MAX_OPS];
};

extern const struct op_type op_types[];
extern const int nr_op_types;

/* What all calls of the ABI have besides, and, behind it, all commands. */
#define CALL_ARGS	5
#define COMMAND_ARGS	8
static const struct arg_type call_args[COMMAND_ARGS] = {
	{ "fd", KIND_FD }, { "size", KIND_SIZE }, { "flags", KIND_FLAGS }, { "at", KIND_AT },
	{ "tail", KIND_FLAGS }, { "by", KIND_BY }, { "sqe", KIND_SQE }, { "ms", KIND_MS },
};

static inline int nr_own_args(const struct op_type *t)
{
	int n = 0;

	while (n < MAX_ARGS - COMMAND_ARGS && t->args[n].name)
		n++;
	return n;
}

static inline int nr_args(const struct op_type *t)
{
	int more = t->nr >= KCR_CMD_WAIT ? COMMAND_ARGS : CALL_ARGS;

	return nr_own_args(t) + (t->bytes ? more : 0);
}

static inline struct arg_type arg_type(const struct op_type *t, int i)
{
	int own = nr_own_args(t);
	struct arg_type a = i < own ? t->args[i] : call_args[i - own];

	if (a.kind == KIND_SIZE && i >= own)
		a.usual = t->bytes;
	return a;
}

/* An argument by its name. One that the operation does not have is 0. */
static inline __u64 arg(const struct op *o, const char *name)
{
	int n = nr_args(o->type);

	for (int i = 0; i < n; i++)
		if (!strcmp(arg_type(o->type, i).name, name))
			return o->value[i];
	return 0;
}

static inline const struct op_type *op_type(const char *name)
{
	for (int i = 0; i < nr_op_types; i++)
		if (!strcmp(op_types[i].name, name))
			return &op_types[i];
	return NULL;
}

static inline struct op usual_op(const struct op_type *t, __u32 actor)
{
	struct op o = { .type = t, .actor = actor };
	int n = nr_args(t);

	for (int i = 0; i < n; i++)
		o.value[i] = arg_type(t, i).usual;
	return o;
}

/* ---- text ---- */

static inline void program_write(const struct program *p, FILE *f)
{
	if (p->is_free)
		fprintf(f, "free\n");
	for (int i = 0; i < p->n; i++) {
		const struct op *o = &p->ops[i];
		int n = nr_args(o->type);

		fprintf(f, "%u %s%s", o->actor, o->type->name, o->is_apart ? "&" : "");
		for (int j = 0; j < n; j++) {
			struct arg_type t = arg_type(o->type, j);

			if (o->value[j] != t.usual)
				fprintf(f, o->value[j] < 100000 ? " %s=%llu" : " %s=%#llx",
					t.name, o->value[j]);
		}
		fprintf(f, "\n");
	}
}

/* "name=value": 0 or -EINVAL */
static inline int op_set(struct op *o, const char *word)
{
	const char *equals = strchr(word, '=');
	int n = nr_args(o->type);
	char *end;

	for (int i = 0; equals && i < n; i++) {
		const char *name = arg_type(o->type, i).name;

		if (strlen(name) != equals - word || strncmp(name, word, equals - word))
			continue;
		o->value[i] = strtoull(equals + 1, &end, 0);
		return *end || end == equals + 1 ? -EINVAL : 0;
	}
	return -EINVAL;
}

static inline int program_read_line(struct program *p, char *line)
{
	char *rest = NULL, *word = strtok_r(line, " \t\n", &rest), *end;
	const struct op_type *t;
	unsigned long actor;
	struct op *o;
	size_t length;

	if (!word)
		return 0;
	if (!strcmp(word, "free")) {
		p->is_free = true;
		return 0;
	}
	actor = strtoul(word, &end, 10);
	word = strtok_r(NULL, " \t\n", &rest);
	if (*end || actor >= ACTORS || !word || p->n == MAX_OPS)
		return -EINVAL;
	length = strlen(word);
	o = &p->ops[p->n];
	o->is_apart = word[length - 1] == '&';
	if (o->is_apart)
		word[length - 1] = 0;
	t = op_type(word);
	if (!t)
		return -EINVAL;
	*o = (struct op){ .is_apart = o->is_apart };
	memcpy(o->value, usual_op(t, actor).value, sizeof(o->value));
	o->type = t;
	o->actor = actor;
	p->n++;
	while ((word = strtok_r(NULL, " \t\n", &rest)))
		if (op_set(o, word))
			return -EINVAL;
	return 0;
}

/* ---- values ---- */

/* Mostly below @n, sometimes anything. */
static inline __u64 mostly_below(struct chance *c, __u64 n)
{
	return one_in(c, 24) ? any_number(c) : below(c, n);
}

static inline __u64 draw_value(struct chance *c, struct arg_type t)
{
	static const __u64 milliseconds[] = { 0, 1, 1, 5, 20, 100 };
	static const __u64 masks[] = { 1, 2, 3, 7, 15, 1ull << 63, -1ull };
	static const __u64 bytes[] = {
		1, 8, 4095, 4096, 4097, 8192, 65536, 1 << 19, (1 << 19) + 1, 1 << 20,
	};
	static const __u64 timeouts[] = {
		1, DEV_MS, DEV_MS, DEV_MS, 20 * DEV_MS, KCR_MAX_WAIT_NS, KCR_MAX_WAIT_NS + 1,
		0, -1ull,
	};
	bool as_usual = t.kind >= KIND_SIZE ? !one_in(c, 16) : one_in(c, 3);

	if (as_usual)
		return t.usual;
	switch (t.kind) {
	case KIND_FD:
		return one_in(c, 32) ? below(c, FDS) : below(c, 3);
	case KIND_MAP:
		return below(c, MAPS);
	case KIND_ACTOR:
		return below(c, ACTORS);
	case KIND_WORLD:
		return below(c, 2);
	case KIND_RANK:
		return mostly_below(c, 3);
	case KIND_RANKS:
		return one_in(c, 12) ? any_number(c) : 1 + below(c, 4);
	case KIND_WINDOW:
		return mostly_below(c, 2);
	case KIND_PART:
		return mostly_below(c, KCR_MAP_LANES + 1);
	case KIND_WIRE:
		return mostly_below(c, 2);
	case KIND_STREAM:
		return mostly_below(c, KCR_STREAMS);
	case KIND_CLASS:
		return mostly_below(c, KCR_CLASSES);
	case KIND_SMALL:
		return one_in(c, 8) ? any_number(c) : below(c, 10);
	case KIND_MS:
		return ONE_OF(c, milliseconds);
	case KIND_MASK:
		return one_in(c, 8) ? draw(c) : ONE_OF(c, masks);
	case KIND_BYTES:
		return one_in(c, 6) ? any_number(c) : ONE_OF(c, bytes);
	case KIND_SEED:
		return draw(c) & 0xffff;
	case KIND_TIMEOUT:
		return ONE_OF(c, timeouts);
	case KIND_AT:
		return 1 + below(c, 4 + MAPS);
	case KIND_BY:
		return below(c, BY_WAYS);
	case KIND_SQE:
		return 1ull << below(c, 7);
	case KIND_ADDRESS:
		return below(c, 8);
	case KIND_SIZE:
		return one_in(c, 3) ? any_number(c) : t.usual + below(c, 17) - 8;
	case KIND_FLAGS:
		return one_in(c, 3) ? any_number(c) : 1;
	case KIND_NUMBER:
		break;
	}
	return any_number(c);
}

/* ---- making them up ---- */

static inline const struct op_type *draw_type(struct chance *c)
{
	unsigned int all = 0;
	__u64 at;

	for (int i = 0; i < nr_op_types; i++)
		all += op_types[i].weight;
	at = below(c, all);
	for (int i = 0; i < nr_op_types; i++) {
		if (at < op_types[i].weight)
			return &op_types[i];
		at -= op_types[i].weight;
	}
	return &op_types[0];
}

static inline struct op draw_op(struct chance *c, int actors)
{
	struct op o = usual_op(draw_type(c), below(c, actors));
	int n = nr_args(o.type);

	for (int i = 0; i < n; i++)
		o.value[i] = draw_value(c, arg_type(o.type, i));
	/* Ways other than ioctl() are worth more than one in sixteen. */
	for (int i = 0; i < n; i++)
		if (arg_type(o.type, i).kind == KIND_BY && one_in(c, 3))
			o.value[i] = one_in(c, 2) ? BY_URING : below(c, BY_WAYS);
	o.is_apart = one_in(c, 8);
	return o;
}

/* A line of text, added. */
__attribute__((format(printf, 2, 3)))
static inline void append(struct program *p, const char *format, ...)
{
	char line[128];
	va_list more;

	va_start(more, format);
	vsnprintf(line, sizeof(line), format, more);
	va_end(more);
	if (program_read_line(p, line))
		abort();
}

/* A world of @ranks, each rank a descriptor: of one process, or of as many. */
static inline void append_world(struct program *p, int ranks, bool is_alone, bool has_mesh)
{
	int i;

#define ACTOR(i)	(is_alone ? 0 : (i))
#define FD(i)		(is_alone ? (i) : 0)
	for (i = 0; i < ranks; i++) {
		append(p, "%d open fd=%d", ACTOR(i), FD(i));
		append(p, "%d join fd=%d rank=%d ranks=%d", ACTOR(i), FD(i), i, ranks);
		append(p, "%d window fd=%d", ACTOR(i), FD(i));
		append(p, "%d map fd=%d map=%d", ACTOR(i), FD(i), FD(i));
		append(p, "%d map fd=%d map=%d part=%d index=%d prot=%d", ACTOR(i), FD(i),
		       4 + FD(i), KCR_MAP_BOARD, i, PROT_READ | PROT_WRITE);
	}
	if (!has_mesh)
		return;
	/* The higher rank first: it has to expect the lower one. */
	for (i = ranks - 1; i >= 0; i--)
		append(p, "%d connect fd=%d peer=%d", ACTOR(i), FD(i), !i);
	append(p, "0 pause ms=100");
	for (i = 0; i < ranks; i++)
		append(p, "%d frames fd=%d peer=%d", ACTOR(i), FD(i), !i);
	for (i = 0; i < ranks; i++) {
		append(p, "%d remote fd=%d", ACTOR(i), FD(i));
		append(p, "%d map fd=%d map=%d window=1 part=%d index=%d prot=%d", ACTOR(i),
		       FD(i), 6 + FD(i), KCR_MAP_SLOTS, i, PROT_READ | PROT_WRITE);
	}
#undef ACTOR
#undef FD
}

static inline void program_make(struct program *p, struct chance *c, bool has_mesh)
{
	int actors = 1 + below(c, ACTORS), ops = 2 + below(c, 24);

	memset(p, 0, sizeof(*p));
	p->is_free = one_in(c, 2);
	if (!one_in(c, 8)) {
		int ranks = 1 + below(c, actors < 3 ? actors + 1 : 3);

		append_world(p, ranks, ranks > actors || one_in(c, 3),
			     has_mesh && ranks == 2 && !one_in(c, 3));
	}
	for (int i = 0; i < ops && p->n < MAX_OPS; i++)
		p->ops[p->n++] = draw_op(c, actors);
}

static inline void insert(struct program *p, int at, struct op o)
{
	if (p->n == MAX_OPS)
		return;
	memmove(&p->ops[at + 1], &p->ops[at], (p->n - at) * sizeof(o));
	p->ops[at] = o;
	p->n++;
}

/* Returns whether that can be. */
static inline bool program_cut(struct program *p, int at, int n)
{
	memmove(&p->ops[at], &p->ops[at + n], (p->n - at - n) * sizeof(p->ops[0]));
	p->n -= n;
	return true;
}

/* The @i-th argument as usual: whether it was not, or -1 if there is none. */
static inline int program_simpler(struct program *p, int i)
{
	struct op *o = &p->ops[i / MAX_ARGS];
	int n = i % MAX_ARGS;
	__u64 usual;

	if (i / MAX_ARGS >= p->n)
		return -1;
	if (n >= nr_args(o->type))
		return 0;
	usual = arg_type(o->type, n).usual;
	if (o->value[n] == usual)
		return 0;
	o->value[n] = usual;
	return 1;
}

/* Change it a little; @other is another one to take from. */
static inline void program_change(struct program *p, struct chance *c,
				  const struct program *other)
{
	int times = 1 + below(c, 4);

	while (times--) {
		int at = p->n ? below(c, p->n) : 0, j, n;
		struct op *o = &p->ops[at];

		switch (p->n ? below(c, 10) : 0) {
		case 0:
		case 1:
			insert(p, p->n ? at : 0, draw_op(c, ACTORS));
			break;
		case 2:
			program_cut(p, at, 1);
			break;
		case 3:
			insert(p, below(c, p->n), *o);
			break;
		case 4:
			o->actor = below(c, ACTORS);
			break;
		case 5:
			o->is_apart = !o->is_apart;
			break;
		case 6:
			p->is_free = !p->is_free;
			break;
		case 7:
			n = other->n ? 1 + below(c, other->n) : 0;
			for (j = 0; j < n; j++)
				insert(p, p->n, other->ops[other->n - n + j]);
			break;
		default:
			n = nr_args(o->type);
			j = n ? below(c, n) : 0;
			if (n)
				o->value[j] = draw_value(c, arg_type(o->type, j));
		}
	}
}

#endif /* KCR_FUZZ_PROGRAM_H */
