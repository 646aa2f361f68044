// SPDX-License-Identifier: GPL-2.0
/*
 * kcr-perf: how fast the collectives are, and whether their bits are right
 *
 * Run under kcr-run. Every rank makes its data, runs the collective over and
 * over and compares the bits of the last result with the oracle's; rank 0
 * prints. What ranks must tell one another travels through kcr_allreduce()
 * too, as sums of numbers that f64 holds exactly.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "perf.h"

#define MAX_ITERATIONS	1000000

struct bench;

/**
 * struct collective - one that can be measured
 * @name: as on the command line
 * @moves_data: false: sizes, types and operations mean nothing
 * @bus_factor: busbw over algbw, as nccl-tests defines it
 * @run: one call
 * @expect: makes the oracle hold the expected elements @start and on
 */
struct collective {
	const char *name;
	bool moves_data;
	double (*bus_factor)(int ranks);
	int (*run)(struct bench *bench, const void *send, void *recv, size_t count);
	int (*expect)(struct bench *bench, size_t start, size_t count);
};

struct bench {
	const struct collective *collective;
	size_t begin, end, step;
	double factor;
	const char *types;
	enum kcr_op op;
	int iterations;
	int warmup;
	bool in_place;
	bool check;
	const char *json_path;

	struct kcr_world *world;
	const char *algorithm;
	int rank, ranks;
	struct oracle oracle;
	struct table table;
	enum kcr_dtype dtype;		/* measured now */
	void *send, *recv;		/* @end bytes each */
	double *times;			/* of each iteration, in us */
};

static double one(int ranks)
{
	(void)ranks;
	return 1;
}

static double there_and_back(int ranks)
{
	return 2.0 * (ranks - 1) / ranks;
}

static int run_allreduce(struct bench *bench, const void *send, void *recv,
			 size_t count)
{
	return kcr_allreduce(bench->world, send, recv, count, bench->dtype, bench->op);
}

static int expect_reduced(struct bench *bench, size_t start, size_t count)
{
	return oracle_fold(&bench->oracle, start, count, bench->dtype, bench->op);
}

static int run_barrier(struct bench *bench, const void *send, void *recv,
		       size_t count)
{
	(void)send;
	(void)recv;
	(void)count;
	return kcr_barrier(bench->world);
}

static const struct collective collectives[] = {
	{ "allreduce", true, there_and_back, run_allreduce, expect_reduced },
	{ "barrier", false, one, run_barrier, NULL },
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void __attribute__((noreturn)) fail(struct bench *bench, const char *what,
					   int error)
{
	const char *words = kcr_error(bench->world);

	fprintf(stderr, "kcr-perf: rank %d: %s: %s\n", bench->rank, what,
		*words ? words : strerror(-error));
	kcr_world_destroy(bench->world);
	exit(1);
}

static void must(struct bench *bench, const char *what, int error)
{
	if (error)
		fail(bench, what, error);
}

static void *allocate(struct bench *bench, size_t size)
{
	void *memory = malloc(size ? size : 1);

	if (!memory)
		fail(bench, "no memory for buffers", -ENOMEM);
	return memory;
}

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

/* Measuring */

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void summarise_times(struct bench *bench, struct measure *m, size_t size)
{
	int n = bench->iterations, i;
	double *t = bench->times;

	must(bench, "gathering times",
	     kcr_allreduce(bench->world, t, t, (size_t)n, KCR_F64, KCR_SUM));
	for (i = 0; i < n; i++)
		t[i] /= bench->ranks;
	qsort(t, (size_t)n, sizeof(*t), ascending);
	m->time_us = n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2;
	m->min_us = t[0];
	m->max_us = t[n - 1];
	m->algbw = m->time_us > 0 ? (double)size / m->time_us / 1e3 : 0;
	m->busbw = m->algbw * bench->collective->bus_factor(bench->ranks);
}

static uint64_t count_wrong(struct bench *bench, const char *result, size_t count)
{
	const size_t width = kcr_dtype_size(bench->dtype);
	const char *expected = bench->oracle.out;
	size_t start, len, i;
	uint64_t wrong = 0;

	for (start = 0; start < count; start += len) {
		len = count - start < ORACLE_CHUNK ? count - start : ORACLE_CHUNK;
		must(bench, "the oracle", bench->collective->expect(bench, start, len));
		if (!memcmp(expected, result + start * width, len * width))
			continue;
		for (i = 0; i < len; i++)
			wrong += !!memcmp(expected + i * width,
					  result + (start + i) * width, width);
	}
	return wrong;
}

/*
 * Tells all ranks all ranks' hashes and the sum of what is wrong. Each rank
 * adds to zeros in a place of its own, 16 bits at a time.
 */
static void share_verdict(struct bench *bench, struct measure *m, uint64_t hash,
			  uint64_t wrong)
{
	double words[4 * KCR_RANKS_MAX + 1] = { 0 };
	double *own = words + 1 + 4 * bench->rank;
	int i, k;

	words[0] = (double)wrong;
	for (k = 0; k < 4; k++)
		own[k] = (double)(hash >> 16 * k & 0xffff);
	must(bench, "comparing hashes",
	     kcr_allreduce(bench->world, words, words, 1 + 4 * (size_t)bench->ranks,
			   KCR_F64, KCR_SUM));
	m->wrong = (uint64_t)words[0];
	for (i = 0; i < bench->ranks; i++) {
		m->hash[i] = 0;
		for (k = 0; k < 4; k++)
			m->hash[i] |= (uint64_t)words[1 + 4 * i + k] << 16 * k;
		m->hashes_differ |= m->hash[i] != m->hash[0];
	}
	/* Should the sharing itself be what is broken. */
	m->hashes_differ |= m->hash[bench->rank] != hash || m->wrong < wrong;
}

static void verify(struct bench *bench, struct measure *m, const void *result,
		   size_t count)
{
	size_t size = count * kcr_dtype_size(bench->dtype);
	uint64_t wrong = bench->check ? count_wrong(bench, result, count) : 0;

	share_verdict(bench, m, hash_bytes(result, size), wrong);
}

/*
 * In place the data is lost and is put there again. Out of place the last
 * run must write everything itself. Not timed, so ranks meet afterwards.
 */
static void prepare(struct bench *bench, bool in_place, bool last, size_t size)
{
	if (in_place)
		memcpy(bench->recv, bench->send, size);
	else if (last && size)
		memset(bench->recv, 0xff, size);
	else
		return;
	must(bench, "barrier", kcr_barrier(bench->world));
}

static void measure(struct bench *bench, struct measure *m, size_t count,
		    bool in_place)
{
	const struct collective *collective = bench->collective;
	const size_t size = count * kcr_dtype_size(bench->dtype);
	const void *send = in_place ? bench->recv : bench->send;
	double start;
	int i;

	memset(m, 0, sizeof(*m));
	for (i = -bench->warmup; i < bench->iterations; i++) {
		prepare(bench, in_place, i == bench->iterations - 1, size);
		start = now_us();
		must(bench, collective->name,
		     collective->run(bench, send, bench->recv, count));
		if (i >= 0)
			bench->times[i] = now_us() - start;
	}
	if (collective->moves_data)
		verify(bench, m, bench->recv, count);
	summarise_times(bench, m, size);
}

static bool measure_size(struct bench *bench, size_t size)
{
	struct row row = {
		.count = size / kcr_dtype_size(bench->dtype),
		.has_in_place = bench->in_place,
	};

	row.size = row.count * kcr_dtype_size(bench->dtype);
	if (bench->collective->moves_data) {
		row.type = kcr_dtype_name(bench->dtype);
		row.redop = kcr_op_name(bench->op);
	}
	measure(bench, &row.out_of_place, row.count, false);
	if (bench->in_place)
		measure(bench, &row.in_place, row.count, true);
	if (!bench->rank)
		table_row(&bench->table, &row);
	return !row.out_of_place.wrong && !row.out_of_place.hashes_differ &&
	       !row.in_place.wrong && !row.in_place.hashes_differ;
}

static size_t next_size(const struct bench *bench, size_t size)
{
	size_t next = bench->step ? size + bench->step :
		(size_t)((double)size * bench->factor);

	return next > size ? next : size + 1;
}

static bool measure_type(struct bench *bench, enum kcr_dtype dtype)
{
	bool good = true;
	size_t size;

	bench->dtype = dtype;
	data_fill(bench->send, 0, bench->end / kcr_dtype_size(dtype), bench->rank,
		  dtype);
	if (bench->ranks > 2 && !oracle_sees_order(&bench->oracle, dtype, bench->op) &&
	    bench->op == KCR_SUM) {
		fprintf(stderr, "kcr-perf: the %s data does not tell one order from another: nothing would be proved\n",
			kcr_dtype_name(dtype));
		exit(1);
	}
	for (size = bench->begin; size <= bench->end; size = next_size(bench, size))
		good &= measure_size(bench, size);
	return good;
}

static bool measure_all(struct bench *bench)
{
	bool all = !strcmp(bench->types, "all"), good = true;
	unsigned int dtype;

	if (!bench->collective->moves_data) {
		bench->dtype = KCR_F32;
		return measure_size(bench, 0);
	}
	for (dtype = 0; dtype < KCR_DTYPES; dtype++)
		if (data_has_type(dtype) &&
		    (all || !strcmp(bench->types, kcr_dtype_name(dtype))))
			good &= measure_type(bench, dtype);
	return good;
}

/* Start and end */

static const char *algorithm_name(enum kcr_algo algo)
{
	static const char *const names[] = { "auto", "direct", "owner" };

	return algo < COUNT(names) ? names[algo] : "?";
}

static void join(struct bench *bench)
{
	struct kcr_config config;

	kcr_config_init(&config);
	bench->rank = config.rank;
	bench->algorithm = algorithm_name(config.algo);
	must(bench, "joining", kcr_world_create(&config, &bench->world));
	bench->rank = kcr_rank(bench->world);
	bench->ranks = kcr_size(bench->world);
}

static void set_up(struct bench *bench)
{
	join(bench);
	bench->send = allocate(bench, bench->end);
	bench->recv = allocate(bench, bench->end);
	bench->times = allocate(bench, (size_t)bench->iterations * sizeof(double));
	must(bench, "memory for the oracle", oracle_init(&bench->oracle, bench->ranks));
	bench->table.ranks = bench->ranks;
	bench->table.in_place = bench->in_place;
	bench->table.json_path = bench->json_path;
	if (!bench->json_path || strcmp(bench->json_path, "-"))
		bench->table.text = stdout;
}

static bool measure_and_print(struct bench *bench)
{
	const struct heading heading = {
		.collective = bench->collective->name,
		.link = kcr_link_name(bench->world),
		.algorithm = bench->algorithm,
		.iterations = bench->iterations,
		.warmup = bench->warmup,
		.checked = bench->check,
	};
	bool good;

	if (!bench->rank)
		table_begin(&bench->table, &heading);
	good = measure_all(bench);
	if (!bench->rank)
		good &= table_end(&bench->table);
	return good;
}

static void tear_down(struct bench *bench)
{
	kcr_world_destroy(bench->world);
	oracle_destroy(&bench->oracle);
	free(bench->send);
	free(bench->recv);
	free(bench->times);
}

static const char usage_text[] =
"Usage: kcr-run -n RANKS kcr-perf COLLECTIVE [OPTION]...\n"
"Measure a collective (allreduce, barrier) and check its bits.\n"
"\n"
"  -b, --minbytes SIZE    the smallest message (default 8); K, M, G are 1024s\n"
"  -e, --maxbytes SIZE    the largest message (default 16M)\n"
"  -f, --stepfactor N     multiply the size by N each time (default 2)\n"
"  -s, --stepbytes SIZE   or add SIZE each time\n"
"  -d, --datatype TYPE    f32 (default), f64 or all\n"
"  -o, --op OP            the reduction (default sum)\n"
"  -n, --iters N          how often to measure (default 20)\n"
"  -w, --warmup N         how often to run before that (default 5)\n"
"  -i, --inplace          measure in place too\n"
"  -c, --check 0|1        compare with the oracle (default 1)\n"
"      --json FILE        write JSON too; '-': JSON instead of the table\n"
"  -h, --help             this text\n"
"      --version          the version\n"
"\n"
"#wrong counts the elements, over all ranks, whose bits are not the oracle's;\n"
"the hash is that of the result, the same on every rank. If either is not as\n"
"it should be the exit status is 1. KCR_LINK=module|shm and\n"
"KCR_ALGO=direct|owner choose what is measured.\n";

static void __attribute__((noreturn)) bad_usage(const char *what, const char *value)
{
	if (value)
		fprintf(stderr, "kcr-perf: %s '%s'\n", what, value);
	else
		fprintf(stderr, "kcr-perf: %s\n", what);
	fputs("Try 'kcr-perf --help'.\n", stderr);
	exit(2);
}

static size_t parse_size(const char *text)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 10);
	int shift = 0;

	if (end != text && *end) {
		const char *unit = strchr("KMG", *end & ~0x20);

		if (!unit || end[1])
			bad_usage("not a size:", text);
		shift = 10 * (int)(unit - "KMG" + 1);
	}
	if (end == text || *text == '-' || value > (1ULL << 40) >> shift)
		bad_usage("not a size:", text);
	return (size_t)(value << shift);
}

static int parse_count(const char *text, int least)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end == text || *end || value < least || value > MAX_ITERATIONS)
		bad_usage("not a count that makes sense:", text);
	return (int)value;
}

static double parse_factor(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value > 1 && value <= 1e6))
		bad_usage("the factor must be more than 1, not", text);
	return value;
}

static enum kcr_op parse_op(const char *text)
{
	unsigned int op;

	for (op = 0; op < KCR_OPS; op++)
		if (!strcmp(text, kcr_op_name(op)))
			return op;
	bad_usage("no such reduction:", text);
}

static const char *parse_types(const char *text)
{
	unsigned int dtype;

	if (!strcmp(text, "all"))
		return text;
	for (dtype = 0; dtype < KCR_DTYPES; dtype++)
		if (data_has_type(dtype) && !strcmp(text, kcr_dtype_name(dtype)))
			return text;
	bad_usage("no such type here:", text);
}

static const struct collective *parse_collective(const char *text)
{
	size_t i;

	for (i = 0; i < COUNT(collectives); i++)
		if (!strcmp(text, collectives[i].name))
			return &collectives[i];
	bad_usage("no such collective:", text);
}

enum { OPTION_JSON = 256, OPTION_VERSION };

static const struct option options[] = {
	{ "minbytes", required_argument, NULL, 'b' },
	{ "maxbytes", required_argument, NULL, 'e' },
	{ "stepfactor", required_argument, NULL, 'f' },
	{ "stepbytes", required_argument, NULL, 's' },
	{ "datatype", required_argument, NULL, 'd' },
	{ "op", required_argument, NULL, 'o' },
	{ "iters", required_argument, NULL, 'n' },
	{ "warmup", required_argument, NULL, 'w' },
	{ "inplace", no_argument, NULL, 'i' },
	{ "check", required_argument, NULL, 'c' },
	{ "json", required_argument, NULL, OPTION_JSON },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ NULL, 0, NULL, 0 },
};

static void take_option(struct bench *bench, int option)
{
	switch (option) {
	case 'b':
		bench->begin = parse_size(optarg);
		break;
	case 'e':
		bench->end = parse_size(optarg);
		break;
	case 'f':
		bench->factor = parse_factor(optarg);
		break;
	case 's':
		bench->step = parse_size(optarg);
		break;
	case 'd':
		bench->types = parse_types(optarg);
		break;
	case 'o':
		bench->op = parse_op(optarg);
		break;
	case 'n':
		bench->iterations = parse_count(optarg, 1);
		break;
	case 'w':
		bench->warmup = parse_count(optarg, 0);
		break;
	case 'i':
		bench->in_place = true;
		break;
	case 'c':
		bench->check = parse_count(optarg, 0) > 0;
		break;
	case OPTION_JSON:
		bench->json_path = optarg;
		break;
	case 'h':
		fputs(usage_text, stdout);
		exit(0);
	case OPTION_VERSION:
		puts("kcr-perf " KCR_VERSION);
		exit(0);
	default:
		bad_usage("unknown option, or one without its value", NULL);
	}
}

static void parse(struct bench *bench, int argc, char **argv)
{
	int option;

	while ((option = getopt_long(argc, argv, "b:e:f:s:d:o:n:w:ic:h", options,
				     NULL)) != -1)
		take_option(bench, option);
	if (optind != argc - 1)
		bad_usage("one collective must be named", NULL);
	bench->collective = parse_collective(argv[optind]);
	if (bench->begin > bench->end)
		bad_usage("-b is larger than -e", NULL);
	if (!bench->collective->moves_data)
		bench->in_place = false;
}

int main(int argc, char **argv)
{
	static struct bench bench = {
		.begin = 8,
		.end = 16 << 20,
		.factor = 2,
		.types = "f32",
		.op = KCR_SUM,
		.iterations = 20,
		.warmup = 5,
		.check = true,
	};
	bool good;

	parse(&bench, argc, argv);
	set_up(&bench);
	good = measure_and_print(&bench);
	tear_down(&bench);
	return good ? 0 : 1;
}
