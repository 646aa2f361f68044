// SPDX-License-Identifier: GPL-2.0
/*
 * kcr-perf ring: messages between the first rank and the last, over safe lanes and raw ones
 *
 * Latency is half of a round trip of one message, every one timed. The rate is that of
 * messages that were received, of a stream of them: a safe lane waits for its reader, a raw
 * one overwrites what its reader has not taken. With --bare it also says what the same two
 * CPUs do without a ring: pass a cache line back and forth, and copy what the other has
 * written; rounds of both take turns, so that what disturbs one disturbs the other.
 *
 * Other ranks only wait.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"
#include "perf-ring.h"

#define IDLE_POLLS	100000		/* before it sleeps */
#define STREAM_BYTES	(256u << 20)	/* a stream is no longer */
/* Of --bare: short, so that most are not disturbed at all. */
#define ROUNDS		201
#define ROUND_TRIPS	200
#define ROUND_BYTES	(1u << 20)

struct ring_bench {
	size_t begin, end;
	double factor;
	int iterations, warmup;
	uint32_t depth;
	bool bare;
	bool waits;
	const char *json_path;

	struct kcr_world *world;
	int rank, first, last;		/* the two are measured */
	struct kcr_ring *ring;
	bool raw;
	unsigned char *data;
	double *times;
	struct bare *shared;
	FILE *text;
	json_t *json;

	uint64_t taken;			/* the last message from the other */
	uint64_t acked;
	uint64_t received;
	uint64_t word;			/* the first 8 bytes of the last that had them */
};

static bool is_one_of_two(const struct ring_bench *b)
{
	return b->rank == b->first || b->rank == b->last;
}

static int other(const struct ring_bench *b)
{
	return b->rank == b->first ? b->last : b->first;
}

static void __attribute__((noreturn)) fail(const struct ring_bench *b,
					   const char *what, int64_t error)
{
	const char *words = kcr_error(NULL);

	if (!*words && b->world)
		words = kcr_error(b->world);
	fprintf(stderr, "kcr-perf: rank %d: %s: %s\n", b->rank, what,
		*words ? words : strerror((int)-error));
	exit(1);
}

static void must(const struct ring_bench *b, const char *what, int64_t error)
{
	if (error < 0)
		fail(b, what, error);
}

/* ---- messages ---- */

static int acknowledge(struct ring_bench *b)
{
	if (b->raw || b->acked == b->taken)
		return 0;
	b->acked = b->taken;
	return kcr_ring_ack(b->ring, other(b), b->taken);
}

/* A stream goes on if its sender gets room before its lane is empty. */
static int take(void *arg, int origin, uint64_t sequence, const void *data,
		size_t bytes)
{
	struct ring_bench *b = arg;

	(void)origin;
	b->taken = sequence;
	b->received++;
	if (bytes >= sizeof(b->word))
		memcpy(&b->word, data, sizeof(b->word));
	return b->taken - b->acked >= b->depth / 4 ? acknowledge(b) : 0;
}

static uint64_t send(struct ring_bench *b, size_t bytes)
{
	int64_t sequence = kcr_ring_send(b->ring, other(b), b->data, bytes);

	must(b, "sending", sequence);
	return (uint64_t)sequence;
}

/* Until message @sequence has come. What came is acknowledged when more is wanted. */
static void receive(struct ring_bench *b, uint64_t sequence)
{
	unsigned int idle = 0;
	int n;

	while (b->taken < sequence) {
		must(b, "acknowledging", acknowledge(b));
		n = kcr_ring_poll(b->ring, take, b);
		must(b, "polling", n);
		if (n || (++idle < IDLE_POLLS && !b->waits))
			continue;
		must(b, "waiting", kcr_ring_wait(b->ring, -1));
		idle = 0;
	}
}

static void send_word(struct ring_bench *b, uint64_t word)
{
	unsigned char keep[sizeof(word)];

	memcpy(keep, b->data, sizeof(keep));
	memcpy(b->data, &word, sizeof(word));
	send(b, sizeof(word));
	memcpy(b->data, keep, sizeof(keep));
}

/* ---- measuring ---- */

/* @n round trips; @times gets half of each, or is NULL. Returns the mean half. */
static double round_trips(struct ring_bench *b, size_t bytes, int n, double *times)
{
	double began = now_us(), before = began, now;
	int i;

	for (i = 0; i < n; i++) {
		if (b->rank == b->first)
			send(b, bytes);
		receive(b, b->taken + 1);
		if (b->rank == b->last)
			send(b, bytes);
		if (!times)
			continue;
		now = now_us();
		times[i] = (now - before) / 2;
		before = now;
	}
	return (now_us() - began) / 2 / n;
}

/*
 * A stream of @n messages from the first rank to the last, which then says how many of them
 * it has got. Returns the time, until that has come, and sets how many.
 */
static double stream(struct ring_bench *b, size_t bytes, uint64_t n, uint64_t *received)
{
	double began = now_us();
	uint64_t before = b->received, i;

	if (b->rank == b->first) {
		for (i = 0; i < n; i++)
			send(b, bytes);
		receive(b, b->taken + 1);
		*received = b->word;
	} else {
		receive(b, b->taken + n);
		*received = b->received - before;
		send_word(b, *received);
	}
	return now_us() - began;
}

static uint64_t stream_length(const struct ring_bench *b, size_t bytes, size_t most)
{
	uint64_t n = 10 * (uint64_t)b->iterations, limit = most / (bytes ? bytes : 1);

	return n < limit ? n : limit ? limit : 1;
}

/* ---- the table ---- */

struct ring_row {
	size_t bytes;
	double min, median, p99, max;
	double rate;			/* received messages, in millions a second */
	double bandwidth;		/* of their payload, in GB/s */
	double lost;			/* of those sent, in percent */
};

static const char *mode_name(const struct ring_bench *b)
{
	return b->raw ? "raw" : "safe";
}

static void print_heading(const struct ring_bench *b)
{
	if (!b->text)
		return;
	fprintf(b->text, "# kcr-perf ring, version %s: rank %d and rank %d of %d, link %s, depth %u\n",
		kcr_version(), b->first, b->last, kcr_size(b->world),
		kcr_link_name(b->world), b->depth);
	fprintf(b->text, "# latency one way, of %d round trips after %d to warm up\n",
		b->iterations, b->warmup);
	fprintf(b->text, "#%11s%6s%10s%10s%10s%10s%10s%10s%8s\n#%11s%6s%10s%10s%10s%10s%10s%10s%8s\n",
		"size", "mode", "min", "p50", "p99", "max", "rate", "bandwidth", "lost",
		"(B)", "", "(us)", "(us)", "(us)", "(us)", "(M/s)", "(GB/s)", "(%)");
}

static void add_row(const struct ring_bench *b, const struct ring_row *row)
{
	json_t *value;

	if (b->text) {
		fprintf(b->text, "%12zu%6s%10.3f%10.3f%10.3f%10.3f%10.3f%10.3f%8.2f\n",
			row->bytes, mode_name(b), row->min, row->median, row->p99,
			row->max, row->rate, row->bandwidth, row->lost);
		fflush(b->text);
	}
	value = json_pack("{s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
			  "size", (json_int_t)row->bytes, "mode", mode_name(b),
			  "min_us", row->min, "p50_us", row->median, "p99_us", row->p99,
			  "max_us", row->max, "messages_per_s", row->rate * 1e6,
			  "bandwidth", row->bandwidth, "lost_percent", row->lost);
	json_array_append_new(json_object_get(b->json, "rows"), value);
}

static void measure_size(struct ring_bench *b, size_t bytes)
{
	uint64_t sent = stream_length(b, bytes, STREAM_BYTES), received;
	size_t n = (size_t)b->iterations;
	struct ring_row row = { .bytes = bytes };
	double us;

	round_trips(b, bytes, b->warmup, NULL);
	round_trips(b, bytes, b->iterations, b->times);
	us = stream(b, bytes, sent, &received);
	if (b->rank)
		return;
	sort_times(b->times, n);
	row.min = b->times[0];
	row.median = median(b->times, n);
	row.p99 = b->times[n - 1 - n / 100];
	row.max = b->times[n - 1];
	row.rate = (double)received / us;
	row.bandwidth = row.rate * (double)bytes / 1e3;
	row.lost = 100 * (1 - (double)received / (double)sent);
	add_row(b, &row);
}

/* ---- with a ring, and without ---- */

static void add_figure(const struct ring_bench *b, const char *what, double ring,
		       double bare, double ratio)
{
	if (b->text)
		fprintf(b->text, "# %s: %.3f, bare %.3f: %.2f times\n", what, ring, bare,
			ratio);
	json_object_set_new(b->json, what,
			    json_pack("{s:f, s:f, s:f}", "ring", ring, "bare", bare,
				      "ratio", ratio));
}

static double median_of(double *times)
{
	sort_times(times, ROUNDS);
	return median(times, ROUNDS);
}

/* One way: of 8 bytes, and of a cache line that nothing else is in. */
static void compare_latency(struct ring_bench *b)
{
	double ring[ROUNDS], line[ROUNDS];
	int i;

	for (i = 0; i < ROUNDS; i++) {
		ring[i] = round_trips(b, 8, ROUND_TRIPS, NULL);
		line[i] = bare_line(b->shared, b->rank == b->first, ROUND_TRIPS);
	}
	if (!b->rank)
		add_figure(b, "8 bytes one way, us", median_of(ring), median_of(line),
			   median_of(ring) / median_of(line));
}

/* The copy is timed where it is made, and told to the first rank. */
static void compare_bandwidth(struct ring_bench *b)
{
	double ring[ROUNDS], copy[ROUNDS];
	uint64_t n = ROUND_BYTES / BARE_BLOCK, received;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		ring[i] = stream(b, BARE_BLOCK, n, &received) / (double)n;
		copy[i] = bare_copy(b->shared, b->rank == b->first);
	}
	must(b, "telling times", kcr_broadcast(b->world, copy, ROUNDS, KCR_F64, b->last));
	if (!b->rank)
		add_figure(b, "4 KiB messages, GB/s", BARE_BLOCK / median_of(ring) / 1e3,
			   BARE_BLOCK / median_of(copy) / 1e3,
			   median_of(copy) / median_of(ring));
}

static void compare(struct ring_bench *b)
{
	if (b->raw || !b->shared)
		return;
	round_trips(b, 8, ROUND_TRIPS, NULL);
	compare_latency(b);
	if (b->end >= BARE_BLOCK)
		compare_bandwidth(b);
}

/* ---- start and end ---- */

static void measure_mode(struct ring_bench *b, bool raw)
{
	const struct kcr_lane lanes[] = {
		{ b->first, b->last, b->depth, (uint32_t)b->end },
		{ b->last, b->first, b->depth, (uint32_t)b->end },
	};
	size_t size, next;

	b->raw = raw;
	b->taken = 0;
	b->acked = 0;
	must(b, "making a ring", kcr_ring_create(b->world, lanes, 2,
						 raw ? KCR_RING_RAW : 0, &b->ring));
	for (size = b->begin; is_one_of_two(b) && size <= b->end; size = next) {
		measure_size(b, size);
		next = (size_t)((double)size * b->factor);
		next = next > size ? next : size + 1;
	}
	if (is_one_of_two(b))
		compare(b);
	else if (b->shared && !raw && b->end >= BARE_BLOCK)
		must(b, "telling times", kcr_broadcast(b->world, b->times, ROUNDS,
						       KCR_F64, b->last));
	must(b, "giving a ring up", kcr_ring_destroy(b->ring));
}

static void set_up(struct ring_bench *b)
{
	size_t times = (size_t)(b->iterations > ROUNDS ? b->iterations : ROUNDS);

	must(b, "joining", kcr_world_create(NULL, &b->world));
	b->rank = kcr_rank(b->world);
	b->last = kcr_size(b->world) - 1;
	if (b->last < 1) {
		fputs("kcr-perf: ring needs 2 ranks\n", stderr);
		exit(2);
	}
	if (!bare_pin(b->world) && b->bare) {
		fputs("kcr-perf: --bare needs a CPU for each rank\n", stderr);
		exit(2);
	}
	b->data = calloc(1, b->end + sizeof(uint64_t));
	b->times = malloc(times * sizeof(double));
	if (!b->data || !b->times)
		fail(b, "no memory for buffers", -ENOMEM);
	data_fill(b->data, 0, b->end, b->rank, KCR_U8);
	if (b->bare)
		must(b, "sharing memory", bare_share(b->world, b->first, &b->shared));
	if (!b->rank && (!b->json_path || strcmp(b->json_path, "-")))
		b->text = stdout;
	b->json = json_pack("{s:s, s:s, s:i, s:s, s:i, s:i, s:[]}", "tool",
			    "kcr-perf ring", "version", kcr_version(), "ranks",
			    kcr_size(b->world), "link", kcr_link_name(b->world), "depth",
			    (int)b->depth, "iterations", b->iterations, "rows");
	print_heading(b);
}

static bool write_json(const struct ring_bench *b)
{
	if (b->rank || !b->json_path)
		return true;
	if (!strcmp(b->json_path, "-"))
		return !json_dumpf(b->json, stdout, JSON_INDENT(2)) && puts("") >= 0;
	return !json_dump_file(b->json, b->json_path, JSON_INDENT(2));
}

static const char usage_text[] =
"Usage: kcr-run -n RANKS kcr-perf ring [OPTION]...\n"
"Measure messages between the first rank and the last, over safe lanes and raw ones:\n"
"latency one way (half of a round trip), and the rate and bandwidth of a stream.\n"
"\n"
"  -b, --minbytes SIZE    the smallest message (default 8); K, M, G are 1024s\n"
"  -e, --maxbytes SIZE    at most so large a message (default 64K)\n"
"  -f, --stepfactor N     multiply the size by N each time (default 2)\n"
"  -n, --iters N          round trips of each size (default 10000); a stream is ten\n"
"                         times as many messages, but 256M at most\n"
"  -w, --warmup N         round trips before that (default 1000)\n"
"      --depth N          messages that a lane holds (default 64)\n"
"      --safe             no raw lanes\n"
"      --bare             compare safe lanes with what the CPUs do without: a cache line\n"
"                         that goes back and forth, and memcpy of what the other wrote;\n"
"                         both ranks must be on one node\n"
"      --wait             call kcr_ring_wait() as soon as nothing is there, where others\n"
"                         poll for long: for nodes without a CPU to spare\n"
"      --json FILE        write JSON too; '-': JSON instead of the table\n"
"  -h, --help             this text\n"
"\n"
"Ranks are bound to a CPU each where there are enough. Of a raw lane, which waits for\n"
"nobody, the rate is that of messages received; the others are lost.\n";

enum { OPTION_JSON = 256, OPTION_DEPTH, OPTION_BARE, OPTION_SAFE, OPTION_WAIT };

static const struct option options[] = {
	{ "minbytes", required_argument, NULL, 'b' },
	{ "maxbytes", required_argument, NULL, 'e' },
	{ "stepfactor", required_argument, NULL, 'f' },
	{ "iters", required_argument, NULL, 'n' },
	{ "warmup", required_argument, NULL, 'w' },
	{ "depth", required_argument, NULL, OPTION_DEPTH },
	{ "safe", no_argument, NULL, OPTION_SAFE },
	{ "bare", no_argument, NULL, OPTION_BARE },
	{ "wait", no_argument, NULL, OPTION_WAIT },
	{ "json", required_argument, NULL, OPTION_JSON },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static void parse(struct ring_bench *b, bool *no_raw, int argc, char **argv)
{
	int option;

	while ((option = getopt_long(argc, argv, "b:e:f:n:w:h", options, NULL)) != -1) {
		switch (option) {
		case 'b':
			b->begin = parse_size(optarg);
			break;
		case 'e':
			b->end = parse_size(optarg);
			break;
		case 'f':
			b->factor = parse_factor(optarg);
			break;
		case 'n':
			b->iterations = parse_count(optarg, 1, MAX_ITERATIONS);
			break;
		case 'w':
			b->warmup = parse_count(optarg, 1, MAX_ITERATIONS);
			break;
		case OPTION_DEPTH:
			b->depth = (uint32_t)parse_count(optarg, 1, 1 << 20);
			break;
		case OPTION_SAFE:
			*no_raw = true;
			break;
		case OPTION_BARE:
			b->bare = true;
			break;
		case OPTION_WAIT:
			b->waits = true;
			break;
		case OPTION_JSON:
			b->json_path = optarg;
			break;
		case 'h':
			fputs(usage_text, stdout);
			exit(0);
		default:
			bad_usage("unknown option, or one without its value", NULL);
		}
	}
	if (optind != argc)
		bad_usage("what is", argv[optind]);
	if (b->begin > b->end)
		bad_usage("-b is larger than -e", NULL);
	/* The word at the end of a stream, and what a lane can hold. */
	if (b->end < sizeof(uint64_t) || b->end > 1u << 30)
		bad_usage("-e must be 8 to 1G", NULL);
}

int ring_main(int argc, char **argv)
{
	static struct ring_bench bench = {
		.begin = 8,
		.end = 64 << 10,
		.factor = 2,
		.iterations = 10000,
		.warmup = 1000,
		.depth = 64,
	};
	bool no_raw = false, good;

	parse(&bench, &no_raw, argc, argv);
	set_up(&bench);
	measure_mode(&bench, false);
	if (!no_raw)
		measure_mode(&bench, true);
	good = write_json(&bench);
	json_decref(bench.json);
	bare_free(bench.shared);
	free(bench.data);
	free(bench.times);
	must(&bench, "leaving", kcr_world_destroy(bench.world));
	return good ? 0 : 1;
}
