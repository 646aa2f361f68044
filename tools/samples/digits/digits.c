// SPDX-License-Identifier: GPL-2.0
/*
 * digits: data-parallel training, a real use of kcr_allreduce()
 *
 * A small network learns to read handwritten digits. Every rank has all the
 * images and the same weights. Of each batch it computes the gradient of its
 * share, item k going to rank k mod W; kcr_allreduce() gives everyone the mean of
 * the gradients, and everyone takes the same step. Since the mean has the
 * same bits on every rank, so have the weights, to the last step, without ever
 * being sent: their SHA-256 at the end proves it.
 *
 *	kcr-run -n 4 digits			train on 4 ranks
 *	digits --emulate --ranks 4		the same in one process, over
 *						emulated links: the same hash
 *	digits --oracle --ranks 4		and by the reference fold
 */
#include <assert.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kcollring.h>
#include <openssl/sha.h>

#include "digits.h"

#define HELD_OUT	6	/* every 6th image is not learnt from */
#define SEED		1797
#define STEPS		500
#define RATE		0.08f
#define LATE		12	/* in the last quarter of the steps the rate is so much lower */
#define KEEP		0.9f	/* of the momentum */

/* What a rank that is in this process has for itself. */
struct rank {
	struct kcr_world *world;	/* NULL: the oracle */
	float *gradient;		/* of its share */
	float *mean;			/* of the gradients of all ranks */
	struct kcr_request *request[PARTS];
};

struct job {
	int steps;
	int batch;
	int hidden;
	int progress;
	float rate;
	bool validate;
	bool oracle, emulate;
	const char *data;

	struct images learnt, held_out;
	int *order;		/* of this pass over the images */
	uint64_t random;

	struct kcr_emu *emu;
	const char *algorithm;
	int ranks;
	int first, behind;	/* the ranks that are in this process */
	struct rank rank[KCR_RANKS_MAX];

	struct shape shape;
	float *weights;		/* of every rank */
	float *momentum;
};

static void leave(const struct job *job)
{
	if (job->emu)
		kcr_emu_destroy(job->emu);
	else
		kcr_world_destroy(job->rank[job->first].world);
}

static void fail(const struct job *job, const struct rank *rank, const char *what)
{
	const char *words = kcr_error(rank ? rank->world : NULL);

	fprintf(stderr, "digits: %s%s%s\n", what, *words ? ": " : "", words);
	leave(job);
	exit(1);
}

/* The images of each pass in another order, the same on every rank. */
static void shuffle(struct job *job)
{
	int i, k, other;

	assert(job->order);
	for (i = job->learnt.count - 1; i > 0; i--) {
		k = (int)(random_next(&job->random) % (uint64_t)(i + 1));
		other = job->order[k];
		job->order[k] = job->order[i];
		job->order[i] = other;
	}
}

/* What is left of a pass when no batch fits is not used. */
static int batches(const struct job *job)
{
	return job->learnt.count / job->batch;
}

/* Image @k of batch @step. */
static const struct image *item(const struct job *job, int step, int k)
{
	int at = step % batches(job) * job->batch + k;

	return &job->learnt.image[job->order[at]];
}

/*
 * The sum over this rank's share, scaled so that the mean over the ranks is the
 * mean over the batch, whether or not the ranks divide it.
 */
static void compute_gradient(struct job *job, int step, int rank)
{
	float *gradient = job->rank[rank].gradient;
	const float scale = (float)job->ranks / (float)job->batch;
	size_t i;
	int k;

	memset(gradient, 0, job->shape.total * sizeof(float));
	for (k = rank; k < job->batch; k += job->ranks)
		gradient_add(&job->shape, job->weights, item(job, step, k), gradient);
	for (i = 0; i < job->shape.total; i++)
		gradient[i] *= scale;
}

/*
 * A part at a time, as a framework would: two small messages and two larger
 * ones, a step.
 */
static void exchange(struct job *job, struct rank *rank)
{
	const struct shape *shape = &job->shape;
	int part, error;

	for (part = 0; part < PARTS; part++) {
		error = kcr_allreduce(rank->world,
				      rank->gradient + shape->start[part],
				      rank->mean + shape->start[part],
				      shape->count[part], KCR_F32, KCR_MEAN);
		if (error)
			fail(job, rank, "the mean of the gradients");
	}
}

/* Of every rank all four are on their way at once, then all are waited for. */
static void exchange_emulated(struct job *job)
{
	const struct shape *shape = &job->shape;
	struct rank *rank, *behind = job->rank + job->behind;
	int part, error;

	for (rank = job->rank; rank < behind; rank++)
		for (part = 0; part < PARTS; part++) {
			error = kcr_iallreduce(rank->world,
					       rank->gradient + shape->start[part],
					       rank->mean + shape->start[part],
					       shape->count[part], KCR_F32,
					       KCR_MEAN, &rank->request[part]);
			if (error)
				fail(job, rank, "the mean of the gradients");
		}
	for (rank = job->rank; rank < behind; rank++) {
		for (part = 0; part < PARTS; part++)
			if (kcr_wait(rank->request[part]))
				fail(job, rank, "the mean of the gradients");
		if (memcmp(rank->mean, job->rank->mean,
			   shape->total * sizeof(*rank->mean)))
			fail(job, NULL, "the ranks have different means");
	}
}

static void fold_here(struct job *job)
{
	const void *in[KCR_RANKS_MAX];
	int i;

	for (i = 0; i < job->ranks; i++)
		in[i] = job->rank[i].gradient;
	if (kcr_reference_fold(in, job->ranks, job->rank[0].mean,
			       job->shape.total, KCR_F32, KCR_MEAN))
		fail(job, NULL, "the oracle");
}

static void exchange_gradients(struct job *job)
{
	if (job->oracle)
		fold_here(job);
	else if (job->emulate)
		exchange_emulated(job);
	else
		exchange(job, &job->rank[job->first]);
}

static double held_out_accuracy(const struct job *job)
{
	return accuracy(&job->shape, job->weights, job->held_out.image,
			job->held_out.count);
}

static void report_progress(const struct job *job, int done)
{
	if (!job->progress || job->first || done % job->progress)
		return;
	printf("digits: step %d of %d, accuracy %.2f %%\n", done, job->steps,
	       100 * held_out_accuracy(job));
}

static void train(struct job *job)
{
	int step, rank;

	for (step = 0; step < job->steps; step++) {
		if (step % batches(job) == 0)
			shuffle(job);
		for (rank = job->first; rank < job->behind; rank++)
			compute_gradient(job, step, rank);
		exchange_gradients(job);
		parameters_step(&job->shape, job->weights, job->momentum,
				job->rank[job->first].mean,
				step < job->steps / 4 * 3 ? job->rate : job->rate / LATE,
				KEEP);
		report_progress(job, step + 1);
	}
}

static void print_result(const struct job *job)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	char hash[2 * SHA256_DIGEST_LENGTH + 1], who[96];
	int i;

	SHA256((const void *)job->weights, job->shape.total * sizeof(float), digest);
	for (i = 0; i < SHA256_DIGEST_LENGTH; i++)
		sprintf(hash + 2 * i, "%02x", digest[i]);
	if (job->oracle)
		snprintf(who, sizeof(who), "oracle of %d ranks", job->ranks);
	else if (job->emulate)
		snprintf(who, sizeof(who), "emulated %d ranks algo %s fold %s",
			 job->ranks, job->algorithm, kcr_fold_form());
	else
		snprintf(who, sizeof(who), "rank %d of %d link %s algo %s fold %s",
			 job->first, job->ranks,
			 kcr_link_name(job->rank[job->first].world),
			 job->algorithm, kcr_fold_form());
	printf("digits: %s accuracy %.2f %% weights %s\n", who,
	       100 * held_out_accuracy(job), hash);
}

/* Start and end */

static const char *algorithm_name(enum kcr_algo algo)
{
	static const char *const names[] = { "auto", "direct", "owner", "chain" };

	return names[algo];
}

static void join(struct job *job)
{
	struct kcr_config config;
	struct kcr_world *world;

	kcr_config_init(&config);
	if (kcr_world_create(&config, &world))
		fail(job, NULL, "joining");
	job->algorithm = algorithm_name(config.algo);
	job->ranks = kcr_size(world);
	job->first = kcr_rank(world);
	job->behind = job->first + 1;
	job->rank[job->first].world = world;
}

static void emulate(struct job *job)
{
	struct kcr_config config;
	int i;

	kcr_config_init(&config);
	config.size = job->ranks;
	if (kcr_emu_create_config(&config, &job->emu))
		fail(job, NULL, "emulating");
	job->algorithm = algorithm_name(config.algo);
	for (i = 0; i < job->ranks; i++)
		job->rank[i].world = kcr_emu_world(job->emu, i);
	job->behind = job->ranks;
}

/*
 * What is held out is never looked at before the end. Who looks for better rates
 * holds out some of the rest instead.
 */
static void load(struct job *job)
{
	int i;

	if (job->data)
		images_load(&job->learnt, job->data);
	else
		images_load_default(&job->learnt);
	images_hold_out(&job->learnt, &job->held_out, HELD_OUT);
	if (job->validate) {
		free(job->held_out.image);
		images_hold_out(&job->learnt, &job->held_out, HELD_OUT);
	}
	if (job->learnt.count < job->batch)
		fail(job, NULL, "too few images for a batch");
	job->order = calloc((size_t)job->learnt.count, sizeof(*job->order));
	if (!job->order)
		fail(job, NULL, "no memory");
	for (i = 0; i < job->learnt.count; i++)
		job->order[i] = i;
}

static void set_up(struct job *job)
{
	int i;

	if (job->oracle)
		job->behind = job->ranks;
	else if (job->emulate)
		emulate(job);
	else
		join(job);
	load(job);
	shape_init(&job->shape, job->hidden);
	job->weights = parameters_alloc(&job->shape);
	job->momentum = parameters_alloc(&job->shape);
	if (!job->weights || !job->momentum)
		fail(job, NULL, "no memory");
	for (i = job->first; i < job->behind; i++) {
		job->rank[i].gradient = parameters_alloc(&job->shape);
		job->rank[i].mean = parameters_alloc(&job->shape);
		if (!job->rank[i].gradient || !job->rank[i].mean)
			fail(job, NULL, "no memory");
	}
	job->random = SEED;
	parameters_randomise(&job->shape, job->weights, SEED);
}

static void tear_down(struct job *job)
{
	int i;

	leave(job);
	for (i = job->first; i < job->behind; i++) {
		free(job->rank[i].gradient);
		free(job->rank[i].mean);
	}
	free(job->weights);
	free(job->momentum);
	free(job->order);
	free(job->learnt.image);
	free(job->held_out.image);
}

static const char usage_text[] =
"Usage: kcr-run -n RANKS digits [OPTION]...\n"
"       digits --emulate|--oracle --ranks RANKS [OPTION]...\n"
"Train a network to read handwritten digits; print its accuracy on images that\n"
"it has not seen and the SHA-256 of its weights.\n"
"\n"
"  --steps N      mini-batches (default 500)\n"
"  --batch N      images in a batch, over all ranks (default 32)\n"
"  --hidden N     units of the hidden layer (default 160)\n"
"  --data FILE    the images (default: digits.csv.gz beside the program)\n"
"  --rate X       how far a step goes (default 0.08)\n"
"  --validate     hold out some of the images that are learnt from instead, to\n"
"                 choose rate and steps by\n"
"  --progress N   rank 0 says how far it is, every N steps\n"
"  --emulate      all ranks in this process, over emulated links\n"
"  --oracle       all ranks in this process, averaged by the reference fold\n"
"  --ranks N      how many ranks there are then (default 4)\n"
"  --help         this text\n";

static void __attribute__((noreturn)) bad_usage(void)
{
	fputs("Try 'digits --help'.\n", stderr);
	exit(2);
}

static int parse_number(const char *text, int most)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end == text || *end || value < 1 || value > most) {
		fprintf(stderr, "digits: '%s' is not a number from 1 to %d\n", text, most);
		bad_usage();
	}
	return (int)value;
}

static float parse_rate(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value > 0 && value <= 1)) {
		fprintf(stderr, "digits: '%s' is not a rate, more than 0 and at most 1\n", text);
		bad_usage();
	}
	return (float)value;
}

static const struct option options[] = {
	{ "steps", required_argument, NULL, 's' },
	{ "batch", required_argument, NULL, 'b' },
	{ "hidden", required_argument, NULL, 'h' },
	{ "data", required_argument, NULL, 'd' },
	{ "rate", required_argument, NULL, 'a' },
	{ "validate", no_argument, NULL, 'v' },
	{ "progress", required_argument, NULL, 'p' },
	{ "emulate", no_argument, NULL, 'e' },
	{ "oracle", no_argument, NULL, 'o' },
	{ "ranks", required_argument, NULL, 'r' },
	{ "help", no_argument, NULL, '?' + 1 },
	{ NULL, 0, NULL, 0 },
};

static void take_option(struct job *job, int option)
{
	switch (option) {
	case 's':
		job->steps = parse_number(optarg, 1000000);
		break;
	case 'b':
		job->batch = parse_number(optarg, 1000000);
		break;
	case 'h':
		job->hidden = parse_number(optarg, HIDDEN_MOST);
		break;
	case 'd':
		job->data = optarg;
		break;
	case 'p':
		job->progress = parse_number(optarg, 1000000);
		break;
	case 'a':
		job->rate = parse_rate(optarg);
		break;
	case 'v':
		job->validate = true;
		break;
	case 'e':
		job->emulate = true;
		break;
	case 'o':
		job->oracle = true;
		break;
	case 'r':
		job->ranks = parse_number(optarg, KCR_RANKS_MAX);
		break;
	case '?' + 1:
		fputs(usage_text, stdout);
		exit(0);
	default:
		bad_usage();
	}
}

int main(int argc, char **argv)
{
	static struct job job = {
		.steps = STEPS,
		.batch = 32,
		.hidden = 160,
		.rate = RATE,
		.ranks = 4,
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		take_option(&job, option);
	if (optind < argc || (job.oracle && job.emulate))
		bad_usage();
	setvbuf(stdout, NULL, _IOLBF, 0);
	set_up(&job);
	train(&job);
	print_result(&job);
	tear_down(&job);
	return 0;
}
