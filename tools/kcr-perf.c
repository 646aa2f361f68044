// SPDX-License-Identifier: GPL-2.0
/*
 * kcr-perf: how fast the collectives are, and whether their bits are right
 *
 * Run under kcr-run, or emulated in one process. Every rank makes its data, runs
 * the collective over and over and compares the bits of the last result with the
 * oracle's; rank 0 prints. What ranks must tell one another travels through
 * kcr_allreduce() too, as sums of numbers that f64 holds exactly.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"

struct bench {
	const struct collective *collective;	/* measured now */
	const char *collective_name;		/* one, or all */
	size_t begin, end, step;
	double factor;
	const char *types, *ops;		/* one, or all */
	int root;
	int iterations;
	bool mean;			/* of the iterations, rather than the median */
	int warmup;
	int emulated;			/* ranks, or 0: kcr-run's */
	bool in_place;
	bool check;
	const char *json_path;

	const char *algorithm;
	int ranks;
	struct kcr_emu *emu;
	struct place *places;		/* the ranks in this process */
	int places_count;
	void *whole;			/* of a result in parts */
	struct oracle oracle;
	struct table table;
	enum kcr_dtype dtype;		/* measured now */
	enum kcr_op op;
	double *times;			/* of each iteration, in us */
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static bool is_first(const struct bench *bench)
{
	return bench->places[0].rank == 0;
}

static void leave(struct bench *bench)
{
	if (bench->emu)
		kcr_emu_destroy(bench->emu);
	else
		kcr_world_destroy(bench->places[0].world);
}

static void __attribute__((noreturn)) fail(struct bench *bench,
					   const struct place *place,
					   const char *what, int error)
{
	const char *words = kcr_error(place->world);

	fprintf(stderr, "kcr-perf: rank %d: %s: %s\n", place->rank, what,
		*words ? words : strerror(-error));
	leave(bench);
	exit(1);
}

static void must(struct bench *bench, const struct place *place,
		 const char *what, int error)
{
	if (error)
		fail(bench, place, what, error);
}

static void *allocate(struct bench *bench, size_t size)
{
	void *memory = malloc(size ? size : 1);

	if (!memory)
		fail(bench, &bench->places[0], "no memory for buffers", -ENOMEM);
	return memory;
}

/* Running: emulated ranks all begin, then all are waited for. */

static void run_emulated(struct bench *bench, const struct call *call)
{
	const struct collective *collective = bench->collective;
	struct place *p;
	size_t i;

	for (p = bench->places; p < bench->places + bench->places_count; p++) {
		memset(p->requests, 0, sizeof(p->requests));
		must(bench, p, collective->name,
		     collective->run(collective, call, p, p->requests));
	}
	for (p = bench->places; p < bench->places + bench->places_count; p++)
		for (i = 0; i < COUNT(p->requests); i++)
			if (p->requests[i])
				must(bench, p, collective->name,
				     kcr_wait(p->requests[i]));
}

static void run(struct bench *bench, const struct call *call)
{
	const struct collective *collective = bench->collective;
	struct place *place = &bench->places[0];

	if (bench->emu)
		run_emulated(bench, call);
	else
		must(bench, place, collective->name,
		     collective->run(collective, call, place, NULL));
}

static void meet(struct bench *bench)
{
	if (!bench->emu)
		must(bench, &bench->places[0], "barrier",
		     kcr_barrier(bench->places[0].world));
}

/* Measuring */

/* Emulated, the time is that of all ranks together. */
static void average_times(struct bench *bench)
{
	double *t = bench->times;
	int i;

	if (bench->emu)
		return;
	must(bench, &bench->places[0], "gathering times",
	     kcr_allreduce(bench->places[0].world, t, t,
			   (size_t)bench->iterations, KCR_F64, KCR_SUM));
	for (i = 0; i < bench->iterations; i++)
		t[i] /= bench->ranks;
}

static double mean(const double *t, int n)
{
	double sum = 0;
	int i;

	for (i = 0; i < n; i++)
		sum += t[i];
	return sum / n;
}

static void summarise_times(struct bench *bench, struct measure *m, size_t size)
{
	int n = bench->iterations;
	double *t = bench->times;

	average_times(bench);
	sort_times(t, (size_t)n);
	m->time_us = bench->mean ? mean(t, n) : median(t, (size_t)n);
	m->min_us = t[0];
	m->max_us = t[n - 1];
	m->algbw = m->time_us > 0 ? (double)size / m->time_us / 1e3 : 0;
	m->busbw = m->algbw * bench->collective->bus_factor(bench->ranks);
}

static const char *result_of(struct bench *bench, const struct call *call,
			     const struct place *place)
{
	return call_result(bench->collective, call, place);
}

static uint64_t count_wrong(struct bench *bench, const struct call *call,
			    const struct place *place)
{
	const struct collective *collective = bench->collective;
	const size_t count = call_takes(collective, call);
	const size_t width = kcr_dtype_size(call->dtype);
	const char *expected = bench->oracle.out;
	const char *result = result_of(bench, call, place);
	size_t start, len, i;
	uint64_t wrong = 0;

	for (start = 0; start < count; start += len) {
		len = count - start < ORACLE_CHUNK ? count - start : ORACLE_CHUNK;
		must(bench, place, "the oracle",
		     collective->expect(&bench->oracle, call, place->rank, start, len));
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
static void share_verdict(struct bench *bench, struct measure *m)
{
	const struct place *place = &bench->places[0];
	double words[4 * KCR_RANKS_MAX + 1] = { 0 };
	double *own = words + 1 + 4 * place->rank;
	const uint64_t hash = m->hash[place->rank], wrong = m->wrong;
	int i, k;

	words[0] = (double)wrong;
	for (k = 0; k < 4; k++)
		own[k] = (double)(hash >> 16 * k & 0xffff);
	must(bench, place, "comparing hashes",
	     kcr_allreduce(place->world, words, words, 1 + 4 * (size_t)bench->ranks,
			   KCR_F64, KCR_SUM));
	m->wrong = (uint64_t)words[0];
	for (i = 0; i < bench->ranks; i++) {
		m->hash[i] = 0;
		for (k = 0; k < 4; k++)
			m->hash[i] |= (uint64_t)words[1 + 4 * i + k] << 16 * k;
	}
	/* Should the sharing itself be what is broken. */
	m->hashes_differ |= m->hash[place->rank] != hash || m->wrong < wrong;
}

/* All parts, in bench->whole, which is one for all ranks that are here. */
static void gather_parts(struct bench *bench, const struct call *call)
{
	const size_t bytes = call->count * kcr_dtype_size(call->dtype);
	const struct place *p;

	if (!bench->emu) {
		p = &bench->places[0];
		must(bench, p, "gathering parts",
		     kcr_allgather(p->world, result_of(bench, call, p),
				   bench->whole, call->count, call->dtype));
		return;
	}
	for (p = bench->places; p < bench->places + bench->places_count; p++)
		memcpy((char *)bench->whole + (size_t)p->rank * bytes,
		       result_of(bench, call, p), bytes);
}

/*
 * The hash that is to be the same on every rank: of the result, of all parts of
 * it, or of the hashes of all ranks.
 */
static void compare_hashes(struct bench *bench, const struct call *call,
			   struct measure *m)
{
	const struct collective *collective = bench->collective;
	size_t bytes = call_takes(collective, call) * kcr_dtype_size(call->dtype);
	const struct place *p;
	uint64_t hash;
	int i;

	if (collective->result == RESULT_PARTS) {
		gather_parts(bench, call);
		hash = hash_bytes(bench->whole, bytes * (size_t)bench->ranks);
		for (i = 0; i < bench->places_count; i++)
			m->hash[bench->places[i].rank] = hash;
	} else {
		for (p = bench->places; p < bench->places + bench->places_count; p++)
			m->hash[p->rank] = hash_bytes(result_of(bench, call, p), bytes);
	}
	if (!bench->emu)
		share_verdict(bench, m);
	if (collective->result == RESULT_OWN) {
		hash = hash_bytes(m->hash, (size_t)bench->ranks * sizeof(hash));
		for (i = 0; i < bench->ranks; i++)
			m->hash[i] = hash;
	}
	for (i = 0; i < bench->ranks; i++)
		m->hashes_differ |= m->hash[i] != m->hash[0];
}

static void verify(struct bench *bench, const struct call *call, struct measure *m)
{
	const struct place *p;

	for (p = bench->places; bench->check &&
	     p < bench->places + bench->places_count; p++)
		m->wrong += count_wrong(bench, call, p);
	compare_hashes(bench, call, m);
}

/*
 * In place the data is lost and is put there again. Out of place the last
 * run must write everything itself. Not timed, so ranks meet afterwards.
 */
static void prepare(struct bench *bench, const struct call *call, bool last)
{
	const struct collective *collective = bench->collective;
	const size_t width = kcr_dtype_size(call->dtype);
	const struct place *p;

	if (!collective->moves_data || !call->count || !(call->in_place || last))
		return;
	for (p = bench->places; p < bench->places + bench->places_count; p++) {
		void *result = call_result(collective, call, p);

		if (result != p->data)
			memset(result, 0xff, call_takes(collective, call) * width);
		if (call->in_place)
			memcpy(call_data(collective, call, p), p->data,
			       call_brings(collective, call) * width);
	}
	meet(bench);
}

static void check_flags(struct bench *bench, const struct call *call,
			struct measure *m)
{
	const struct collective *collective = bench->collective;
	int i;

	for (i = 0; collective->wrong && i < bench->places_count; i++)
		m->wrong += collective->wrong(call, &bench->places[i]);
}

static void measure(struct bench *bench, struct measure *m, struct call *call,
		    size_t size)
{
	double start;
	int i;

	memset(m, 0, sizeof(*m));
	for (i = -bench->warmup; i < bench->iterations; i++) {
		call->iteration = (unsigned int)(i + bench->warmup);
		prepare(bench, call, i == bench->iterations - 1);
		start = now_us();
		run(bench, call);
		if (i >= 0)
			bench->times[i] = now_us() - start;
		check_flags(bench, call, m);
	}
	if (bench->collective->moves_data)
		verify(bench, call, m);
	else if (!bench->emu)
		share_verdict(bench, m);
	summarise_times(bench, m, size);
}

/* Elements of a call of @size bytes; of one rank where each has its own. */
static size_t count_for(const struct bench *bench, size_t size)
{
	size_t count = size / kcr_dtype_size(bench->dtype), part;

	if (!collective_has_parts(bench->collective))
		return count;
	part = count / (size_t)bench->ranks;
	return part || !count ? part : 1;
}

static size_t size_of(const struct bench *bench, size_t count)
{
	return count * kcr_dtype_size(bench->dtype) *
	       (collective_has_parts(bench->collective) ? (size_t)bench->ranks : 1);
}

static bool measure_count(struct bench *bench, size_t count)
{
	const struct collective *collective = bench->collective;
	struct call call = {
		.ranks = bench->ranks,
		.count = count,
		.dtype = bench->dtype,
		.op = bench->op,
		.root = bench->root,
	};
	struct row row = {
		.collective = collective->name,
		.count = count,
		.has_in_place = bench->in_place && collective->can_be_in_place,
	};

	row.size = size_of(bench, count);
	if (collective->moves_data)
		row.type = kcr_dtype_name(bench->dtype);
	if (collective->reduces)
		row.redop = kcr_op_name(bench->op);
	measure(bench, &row.out_of_place, &call, row.size);
	call.in_place = true;
	if (row.has_in_place)
		measure(bench, &row.in_place, &call, row.size);
	if (is_first(bench))
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

/* Sizes that come to the same number of elements are one. */
static bool measure_sizes(struct bench *bench)
{
	size_t size, count, before = SIZE_MAX;
	bool good = true;

	for (size = bench->begin; size <= bench->end; size = next_size(bench, size)) {
		count = count_for(bench, size);
		if (count != before)
			good &= measure_count(bench, count);
		before = count;
	}
	return good;
}

static bool measure_op(struct bench *bench, enum kcr_op op)
{
	bench->op = op;
	if (bench->check && bench->ranks > 2 &&
	    oracle_must_see_order(bench->dtype, op) &&
	    !oracle_sees_order(&bench->oracle, bench->dtype, op)) {
		fprintf(stderr, "kcr-perf: the %s data does not tell one order from another: nothing would be proved\n",
			kcr_dtype_name(bench->dtype));
		exit(1);
	}
	return measure_sizes(bench);
}

/* "all", or the one. */
static bool is_wanted(const char *wanted, const char *name)
{
	return !strcmp(wanted, "all") || !strcmp(wanted, name);
}

/* The oracle knows which pairs there are. */
static bool is_supported(enum kcr_dtype dtype, enum kcr_op op)
{
	uint64_t one = 0;
	const void *in[] = { &one };

	return !kcr_reference_fold(in, 1, &one, 1, dtype, op);
}

static bool measure_type(struct bench *bench, enum kcr_dtype dtype)
{
	bool good = true;
	unsigned int op;
	int i;

	bench->dtype = dtype;
	for (i = 0; i < bench->places_count; i++)
		data_fill(bench->places[i].data, 0,
			  bench->end / kcr_dtype_size(dtype) + (size_t)bench->ranks,
			  bench->places[i].rank, dtype);
	if (!bench->collective->reduces)
		return measure_sizes(bench);
	for (op = 0; op < KCR_OPS; op++)
		if (is_wanted(bench->ops, kcr_op_name(op)) && is_supported(dtype, op))
			good &= measure_op(bench, op);
	return good;
}

static bool measure_collective(struct bench *bench)
{
	bool good = true;
	unsigned int dtype;

	if (!bench->collective->moves_data) {
		bench->dtype = KCR_F32;
		return measure_count(bench, 0);
	}
	for (dtype = 0; dtype < KCR_DTYPES; dtype++)
		if (is_wanted(bench->types, kcr_dtype_name(dtype)))
			good &= measure_type(bench, dtype);
	return good;
}

static bool measure_all(struct bench *bench)
{
	bool are_many = !strcmp(bench->collective_name, "all"), good = true;
	size_t i;

	for (i = 0; i < collectives_count; i++) {
		bench->collective = &collectives[i];
		if (!is_wanted(bench->collective_name, collectives[i].name) ||
		    bench->ranks < collectives[i].least)
			continue;
		if (are_many && is_first(bench))
			table_part(&bench->table, collectives[i].name);
		good &= measure_collective(bench);
	}
	return good;
}

/* Start and end */

static const char *algorithm_name(enum kcr_algo algo)
{
	static const char *const names[] = { "auto", "direct", "owner", "chain" };

	return algo < COUNT(names) ? names[algo] : "?";
}

static void emulate(struct bench *bench, struct kcr_config *config)
{
	int i;

	config->size = bench->emulated;
	must(bench, &bench->places[0], "emulating",
	     kcr_emu_create_config(config, &bench->emu));
	for (i = 0; i < bench->places_count; i++) {
		bench->places[i].rank = i;
		bench->places[i].world = kcr_emu_world(bench->emu, i);
	}
}

static void join(struct bench *bench)
{
	struct kcr_config config;
	struct place *first;

	kcr_config_init(&config);
	bench->places_count = bench->emulated ? bench->emulated : 1;
	bench->places = calloc((size_t)bench->places_count, sizeof(*first));
	if (!bench->places) {
		fputs("kcr-perf: no memory\n", stderr);
		exit(1);
	}
	first = &bench->places[0];
	first->rank = config.rank;
	bench->algorithm = algorithm_name(config.algo);
	if (bench->emulated) {
		emulate(bench, &config);
	} else {
		must(bench, first, "joining",
		     kcr_world_create(&config, &first->world));
		first->rank = kcr_rank(first->world);
	}
	bench->ranks = kcr_size(first->world);
	/* Then the order of arrival decides the bits, and the oracle does not know it. */
	bench->check &= config.contract == KCR_FIXED_ORDER;
}

static void set_up(struct bench *bench)
{
	size_t bytes;
	int i;

	join(bench);
	/* At least an element of the widest type for each rank. */
	bytes = bench->end + (size_t)bench->ranks * sizeof(uint64_t);
	for (i = 0; i < bench->places_count; i++) {
		bench->places[i].data = allocate(bench, bytes);
		bench->places[i].work = allocate(bench, bytes);
	}
	bench->whole = allocate(bench, bytes);
	bench->times = allocate(bench, (size_t)bench->iterations * sizeof(double));
	must(bench, &bench->places[0], "memory for the oracle",
	     oracle_init(&bench->oracle, bench->ranks));
	bench->table.ranks = bench->ranks;
	bench->table.in_place = bench->in_place;
	bench->table.json_path = bench->json_path;
	if (!bench->json_path || strcmp(bench->json_path, "-"))
		bench->table.text = stdout;
}

/* What the number of ranks, known only now, forbids. */
static void check_ranks(const struct bench *bench)
{
	size_t i;

	if (bench->root >= bench->ranks) {
		fprintf(stderr, "kcr-perf: root %d is none of %d ranks\n",
			bench->root, bench->ranks);
		exit(2);
	}
	for (i = 0; i < collectives_count; i++) {
		if (strcmp(bench->collective_name, collectives[i].name) ||
		    bench->ranks >= collectives[i].least)
			continue;
		fprintf(stderr, "kcr-perf: %s needs %d ranks\n",
			collectives[i].name, collectives[i].least);
		exit(2);
	}
}

static bool measure_and_print(struct bench *bench)
{
	const struct kcr_world *world = bench->places[0].world;
	const struct heading heading = {
		.collective = bench->collective_name,
		.link = kcr_link_name(world),
		.algorithm = bench->algorithm,
		.contract = kcr_contract(world),
		.iterations = bench->iterations,
		.mean = bench->mean,
		.warmup = bench->warmup,
		.checked = bench->check,
	};
	bool good;

	if (is_first(bench))
		table_begin(&bench->table, &heading);
	good = measure_all(bench);
	if (is_first(bench))
		good &= table_end(&bench->table);
	return good;
}

static void tear_down(struct bench *bench)
{
	int i;

	leave(bench);
	oracle_destroy(&bench->oracle);
	for (i = 0; i < bench->places_count; i++) {
		free(bench->places[i].data);
		free(bench->places[i].work);
	}
	free(bench->places);
	free(bench->whole);
	free(bench->times);
}

static const char usage_text[] =
"Usage: kcr-run -n RANKS kcr-perf COLLECTIVE [OPTION]...\n"
"       kcr-perf --emulate RANKS COLLECTIVE [OPTION]...\n"
"       kcr-run -n RANKS kcr-perf ring [OPTION]...     (see kcr-perf ring --help)\n"
"Measure a collective and check its bits: allreduce, reduce_scatter, allgather,\n"
"broadcast, sendrecv (in a ring), barrier, any, or all of them.\n"
"\n"
"  -b, --minbytes SIZE    the smallest message (default 8); K, M, G are 1024s;\n"
"                         of all ranks together where each has a part\n"
"  -e, --maxbytes SIZE    at most so large a message (default 16M)\n"
"  -f, --stepfactor N     multiply the size by N each time (default 2)\n"
"  -s, --stepbytes SIZE   or add SIZE each time\n"
"  -d, --datatype TYPE    i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 (default) f64,\n"
"                         or all\n"
"  -o, --op OP            sum (default) prod min max mean band bor bxor, or all\n"
"                         that the type has\n"
"  -r, --root RANK        who broadcasts (default 0)\n"
"  -n, --iters N          how often to measure (default 20)\n"
"  -w, --warmup N         how often to run before that (default 5)\n"
"  -i, --inplace          measure in place too\n"
"  -c, --check 0|1        compare with the oracle (default 1)\n"
"      --mean             the mean of the iterations, not their median\n"
"      --emulate RANKS    all ranks in this process, over emulated links; the time is\n"
"                         that of all together\n"
"      --json FILE        write JSON too; '-': JSON instead of the table\n"
"  -h, --help             this text\n"
"      --version          the version\n"
"\n"
"#wrong counts the elements, over all ranks, whose bits are not the oracle's;\n"
"the hash is that of the result, of all ranks' results where each has a part. If\n"
"either is not as it should be the exit status is 1. KCR_LINK=module|mesh|shm and\n"
"KCR_ALGO=direct|owner|chain choose what is measured.\n";

static const char *parse_op(const char *text)
{
	unsigned int op;

	if (!strcmp(text, "all"))
		return text;
	for (op = 0; op < KCR_OPS; op++)
		if (!strcmp(text, kcr_op_name(op)))
			return text;
	bad_usage("no such reduction:", text);
}

static const char *parse_types(const char *text)
{
	unsigned int dtype;

	if (!strcmp(text, "all"))
		return text;
	for (dtype = 0; dtype < KCR_DTYPES; dtype++)
		if (!strcmp(text, kcr_dtype_name(dtype)))
			return text;
	bad_usage("no such type:", text);
}

static const char *parse_collective(const char *text)
{
	size_t i;

	if (!strcmp(text, "all"))
		return text;
	for (i = 0; i < collectives_count; i++)
		if (!strcmp(text, collectives[i].name))
			return text;
	bad_usage("no such collective:", text);
}

/* If one type and one operation do not go together, nothing would be left. */
static void check_pair(const struct bench *bench)
{
	unsigned int dtype, op;

	for (dtype = 0; dtype < KCR_DTYPES; dtype++)
		for (op = 0; op < KCR_OPS; op++)
			if (is_wanted(bench->types, kcr_dtype_name(dtype)) &&
			    is_wanted(bench->ops, kcr_op_name(op)) &&
			    is_supported(dtype, op))
				return;
	fprintf(stderr, "kcr-perf: there is no %s of %s\n", bench->ops, bench->types);
	exit(2);
}

enum { OPTION_JSON = 256, OPTION_MEAN, OPTION_EMULATE, OPTION_VERSION };

static const struct option options[] = {
	{ "minbytes", required_argument, NULL, 'b' },
	{ "maxbytes", required_argument, NULL, 'e' },
	{ "stepfactor", required_argument, NULL, 'f' },
	{ "stepbytes", required_argument, NULL, 's' },
	{ "datatype", required_argument, NULL, 'd' },
	{ "op", required_argument, NULL, 'o' },
	{ "root", required_argument, NULL, 'r' },
	{ "iters", required_argument, NULL, 'n' },
	{ "warmup", required_argument, NULL, 'w' },
	{ "inplace", no_argument, NULL, 'i' },
	{ "check", required_argument, NULL, 'c' },
	{ "mean", no_argument, NULL, OPTION_MEAN },
	{ "emulate", required_argument, NULL, OPTION_EMULATE },
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
		bench->ops = parse_op(optarg);
		break;
	case 'r':
		bench->root = parse_count(optarg, 0, KCR_RANKS_MAX - 1);
		break;
	case 'n':
		bench->iterations = parse_count(optarg, 1, MAX_ITERATIONS);
		break;
	case 'w':
		bench->warmup = parse_count(optarg, 0, MAX_ITERATIONS);
		break;
	case 'i':
		bench->in_place = true;
		break;
	case 'c':
		bench->check = parse_count(optarg, 0, 1) > 0;
		break;
	case OPTION_MEAN:
		bench->mean = true;
		break;
	case OPTION_EMULATE:
		bench->emulated = parse_count(optarg, 1, KCR_RANKS_MAX);
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

	while ((option = getopt_long(argc, argv, "b:e:f:s:d:o:r:n:w:ic:h", options,
				     NULL)) != -1)
		take_option(bench, option);
	if (optind != argc - 1)
		bad_usage("one collective must be named, or all", NULL);
	bench->collective_name = parse_collective(argv[optind]);
	if (bench->begin > bench->end)
		bad_usage("-b is larger than -e", NULL);
	check_pair(bench);
}

int main(int argc, char **argv)
{
	static struct bench bench = {
		.begin = 8,
		.end = 16 << 20,
		.factor = 2,
		.types = "f32",
		.ops = "sum",
		.iterations = 20,
		.warmup = 5,
		.check = true,
	};
	bool good;

	if (argc > 1 && !strcmp(argv[1], "ring"))
		return ring_main(argc - 1, argv + 1);
	parse(&bench, argc, argv);
	set_up(&bench);
	check_ranks(&bench);
	good = measure_and_print(&bench);
	tear_down(&bench);
	return good ? 0 : 1;
}
