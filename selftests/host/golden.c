// SPDX-License-Identifier: GPL-2.0
/*
 * Golden vectors: the hash of a result for every type and operation and some worlds,
 * once and for all
 *
 * golden.txt has a line each: type, operation, ranks, elements, seed, hash. The
 * oracle made it on x86-64; every form, on any machine, must give the same. If it
 * has to change, so does KCR_FOLD_VERSION: the contract is another one.
 *
 * "golden --make" writes a new file to stdout. "golden FILE" reads another one.
 *
 * Budget: 2 seconds.
 */
#include <stdio.h>

#include "probe.h"

#define RANKS_MOST	64
#define COUNT_MOST	1500

static unsigned char x[RANKS_MOST][COUNT_MOST * 8], out[COUNT_MOST * 8];
static const void *in[RANKS_MOST];

struct line {
	int dtype, op, ranks;
	size_t count;
	unsigned long long seed, hash;
};

static void fill(const struct line *l)
{
	for (int r = 0; r < l->ranks; r++) {
		probe_fill(x[r], l->count, l->dtype, r, l->seed);
		in[r] = x[r];
	}
}

static unsigned long long hash(const struct line *l)
{
	return data_hash(out, l->count * kcr_dtype_size(l->dtype), 0);
}

static int make(void)
{
	static const struct {
		int ranks;
		size_t count;
	} worlds[] = {
		{ 2, 1024 }, { 3, 1037 }, { 4, 1 }, { 4, 500 }, { 7, 1279 },
		{ 8, 1500 }, { 64, 251 },
	};
	struct line l;

	printf("# SPDX-%s GPL-2.0\n", "License-Identifier:");
	printf("# type operation ranks elements seed hash, fold version %d\n",
	       KCR_FOLD_VERSION);
	for (l.dtype = 0; l.dtype < KCR_DTYPES; l.dtype++) {
		for (l.op = 0; data_is_supported(l.dtype, l.op); l.op++) {
			for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds); i++) {
				l.ranks = worlds[i].ranks;
				l.count = worlds[i].count;
				l.seed = 100 * i + l.op;
				fill(&l);
				if (kcr_reference_fold(in, l.ranks, out, l.count,
						       l.dtype, l.op))
					return 1;
				printf("%s %s %d %zu %llu %016llx\n",
				       kcr_dtype_name(l.dtype), kcr_op_name(l.op),
				       l.ranks, l.count, l.seed, hash(&l));
			}
		}
	}
	return 0;
}

/* A line of the file, as far as it makes sense. */
static int parse(const char *text, struct line *l)
{
	char dtype[8], op[8];

	if (sscanf(text, "%7s %7s %d %zu %llu %llx", dtype, op, &l->ranks,
		   &l->count, &l->seed, &l->hash) != 6 ||
	    l->ranks < 2 || l->ranks > RANKS_MOST || l->count > COUNT_MOST)
		return -1;
	for (l->dtype = 0; l->dtype < KCR_DTYPES; l->dtype++)
		if (!strcmp(dtype, kcr_dtype_name(l->dtype)))
			break;
	for (l->op = 0; l->op < KCR_OPS; l->op++)
		if (!strcmp(op, kcr_op_name(l->op)))
			break;
	return data_is_supported(l->dtype, l->op) ? 0 : -1;
}

static int is_right(const char *form, const struct line *l)
{
	if (hash(l) == l->hash)
		return 1;
	printf("# %s: %s of %s, W %d, count %zu, seed %llu: hash %016llx, not %016llx\n",
	       form, kcr_op_name(l->op), kcr_dtype_name(l->dtype), l->ranks,
	       l->count, l->seed, hash(l), l->hash);
	return 0;
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "golden.txt";
	struct probe_form forms[PROBE_FORMS_MAX];
	int n = probe_forms(forms), failed[1 + PROBE_FORMS_MAX] = { 0 };
	int lines = 0, bad = 0, covered = 0, wanted = 0, failures = 0;
	static int seen[KCR_DTYPES][KCR_OPS];
	char text[128];
	struct line l;
	FILE *file;

	if (argc > 1 && !strcmp(argv[1], "--make"))
		return make();
	printf("TAP version 13\n# budget: 2 s\n1..%d\n", n + 2);
	file = fopen(path, "r");
	while (file && fgets(text, sizeof(text), file)) {
		if (*text == '#')
			continue;
		lines++;
		if (parse(text, &l)) {
			printf("# cannot read: %s", text);
			bad++;
			continue;
		}
		covered += !seen[l.dtype][l.op]++;
		fill(&l);
		memset(out, 0, sizeof(out));
		if (kcr_reference_fold(in, l.ranks, out, l.count, l.dtype, l.op) ||
		    !is_right("oracle", &l))
			failed[0]++;
		for (int i = 0; i < n; i++) {
			memset(out, 0, sizeof(out));
			probe_all(&forms[i].table->of[l.dtype][l.op], in, l.ranks,
				  out, l.count);
			failed[1 + i] += !is_right(forms[i].name, &l);
		}
	}
	if (file)
		fclose(file);
	for (l.dtype = 0; l.dtype < KCR_DTYPES; l.dtype++)
		for (l.op = 0; data_is_supported(l.dtype, l.op); l.op++)
			wanted++;
	bad |= covered != wanted;
	printf("%sok 1 %s has %d lines for %d of %d types and operations\n",
	       bad ? "not " : "", path, lines, covered, wanted);
	failures += bad;
	for (int i = 0; i <= n; i++) {
		bad = failed[i] || !lines;
		printf("%sok %d %s gives these hashes\n", bad ? "not " : "",
		       i + 2, i ? forms[i - 1].name : "oracle");
		failures += bad;
	}
	return failures ? 1 : 0;
}
