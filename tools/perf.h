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

void data_fill(void *out, size_t start, size_t count, int rank,
	       enum kcr_dtype dtype);

int oracle_init(struct oracle *oracle, int ranks);
void oracle_destroy(struct oracle *oracle);
/* What sums and means of floats must show; nothing else depends on the order. */
bool oracle_must_see_order(enum kcr_dtype dtype, enum kcr_op op);
bool oracle_sees_order(struct oracle *oracle, enum kcr_dtype dtype,
		       enum kcr_op op);
/* Expected elements @start and on, at most ORACLE_CHUNK, in oracle->out. */
int oracle_fold(struct oracle *oracle, size_t start, size_t count,
		enum kcr_dtype dtype, enum kcr_op op);

uint64_t hash_bytes(const void *data, size_t len);

/* perf-collectives.c: what can be measured. */

/* A rank that is in this process: under kcr-run one, emulated all. */
struct place {
	int rank;
	struct kcr_world *world;
	void *data;			/* what this rank brings; never written */
	void *work;			/* what comes of it */
	int any;			/* what kcr_any() said */
	struct kcr_request *requests[2];
};

/* One call, the same on every rank. */
struct call {
	int ranks;
	size_t count;			/* elements; of one rank where each has its own */
	enum kcr_dtype dtype;
	enum kcr_op op;
	int root;
	bool in_place;
	unsigned int iteration;
};

/**
 * enum likeness - how the results of the ranks are alike
 * @RESULT_SAME: all have the same
 * @RESULT_PARTS: each has its part, by rank
 * @RESULT_OWN: each has something else
 */
enum likeness {
	RESULT_SAME,
	RESULT_PARTS,
	RESULT_OWN,
};

/**
 * struct collective - one that can be measured
 * @name: as on the command line
 * @moves_data: false: sizes and types mean nothing
 * @reduces: operations mean something
 * @can_be_in_place: the result may come where the data was
 * @has_root: one rank's data goes to the others, and stays where it is
 * @brings_part: a rank's data is one of as many parts as there are ranks
 * @result: how the results are alike
 * @least: ranks that it needs
 * @bus_factor: busbw over algbw, as nccl-tests defines it
 * @run: one call; with @requests it only begins, and leaves there what is to be waited for
 * @expect: makes the oracle hold elements @start and on of a rank's result
 * @wrong: what is not as it should be without moving data, or NULL
 */
struct collective {
	const char *name;
	bool moves_data;
	bool reduces;
	bool can_be_in_place;
	bool has_root;
	bool brings_part;
	enum likeness result;
	int least;
	double (*bus_factor)(int ranks);
	int (*run)(const struct collective *collective, const struct call *call,
		   struct place *place, struct kcr_request **requests);
	int (*expect)(struct oracle *oracle, const struct call *call, int rank,
		      size_t start, size_t count);
	uint64_t (*wrong)(const struct call *call, const struct place *place);
};

extern const struct collective collectives[];
extern const size_t collectives_count;

bool collective_has_parts(const struct collective *collective);
/* Where a rank's data and result are. */
void *call_data(const struct collective *collective, const struct call *call,
		const struct place *place);
void *call_result(const struct collective *collective, const struct call *call,
		  const struct place *place);
/* Elements of a rank's data and of its result. */
size_t call_brings(const struct collective *collective, const struct call *call);
size_t call_takes(const struct collective *collective, const struct call *call);

/* perf-table.c: results as text and JSON. */

struct measure {
	double time_us;			/* median, or mean if asked for */
	double min_us;
	double max_us;
	double algbw;			/* GB/s, 10^9 */
	double busbw;
	uint64_t wrong;			/* elements, over all ranks */
	bool hashes_differ;		/* between ranks */
	uint64_t hash[KCR_RANKS_MAX];
};

struct row {
	const char *collective;
	size_t size;
	size_t count;
	const char *type;		/* NULL: moves no data */
	const char *redop;		/* NULL: reduces nothing */
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
	const char *contract;
	int iterations;
	bool mean;
	int warmup;
	bool checked;
};

void table_begin(struct table *table, const struct heading *heading);
/* The rows of another collective follow. */
void table_part(struct table *table, const char *collective);
void table_row(struct table *table, const struct row *row);
/* False if something was wrong, or cannot be written. */
bool table_end(struct table *table);

/* perf-options.c */

#define MAX_ITERATIONS	1000000

void __attribute__((noreturn)) bad_usage(const char *what, const char *value);
size_t parse_size(const char *text);
int parse_count(const char *text, int least, int most);
double parse_factor(const char *text);

/* perf-times.c */

double now_us(void);
void sort_times(double *times, size_t count);
double median(const double *sorted, size_t count);

/* perf-ring.c: messages over rings; perf-bare.c: what the machine does without them. */

int ring_main(int argc, char **argv);

#endif /* PERF_H */
