/* SPDX-License-Identifier: GPL-2.0 */
/* kcr-perf: what its parts share. */
#ifndef PERF_H
#define PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <kcollring.h>

/* Elements the oracle holds of every rank at once: bounds its memory. */
#define ORACLE_CHUNK	16384

/* perf-data.c: the data of every rank, and what must come of it. */

struct oracle {
	int ranks;
	void *in[KCR_RANKS_MAX];	/* ORACLE_CHUNK elements each */
	void *out;
};

bool data_has_type(enum kcr_dtype dtype);
void data_fill(void *out, size_t start, size_t count, int rank,
	       enum kcr_dtype dtype);

int oracle_init(struct oracle *oracle, int ranks);
void oracle_destroy(struct oracle *oracle);
bool oracle_sees_order(struct oracle *oracle, enum kcr_dtype dtype,
		       enum kcr_op op);
/* Expected elements @start and on, at most ORACLE_CHUNK, in oracle->out. */
int oracle_fold(struct oracle *oracle, size_t start, size_t count,
		enum kcr_dtype dtype, enum kcr_op op);

uint64_t hash_bytes(const void *data, size_t len);

/* perf-table.c: results as text and JSON. */

struct measure {
	double time_us;			/* median */
	double min_us;
	double max_us;
	double algbw;			/* GB/s, 10^9 */
	double busbw;
	uint64_t wrong;			/* elements, over all ranks */
	bool hashes_differ;		/* between ranks */
	uint64_t hash[KCR_RANKS_MAX];
};

struct row {
	size_t size;
	size_t count;
	const char *type;		/* NULL: moves no data */
	const char *redop;
	bool has_in_place;
	struct measure out_of_place;
	struct measure in_place;
};

struct table {
	FILE *text;			/* NULL: none */
	const char *json_path;		/* NULL: none; "-": stdout */
	void *json;
	bool in_place;
	int ranks;
	double busbw_sum;
	int busbw_count;
	uint64_t wrong;
	bool hashes_differ;
};

struct heading {
	const char *collective;
	const char *link;
	const char *algorithm;
	int iterations;
	int warmup;
	bool checked;
};

void table_begin(struct table *table, const struct heading *heading);
void table_row(struct table *table, const struct row *row);
/* False if something was wrong, or cannot be written. */
bool table_end(struct table *table);

#endif /* PERF_H */
