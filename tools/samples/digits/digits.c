// SPDX-License-Identifier: GPL-2.0
/*
 * digits: data-parallel training, a real use of kcr_allreduce()
 *
 * A small network learns to read handwritten digits. Every rank has all the
 * images and the same weights. Of each batch it computes the gradient of its
 * share, item k going to rank k mod W; kcr_allreduce() gives everyone the sum of
 * the gradients, and everyone takes the same step. Since the sum has the
 * same bits on every rank, so have the weights, to the last step, without ever
 * being sent: their SHA-256 at the end proves it.
 *
 *	kcr-run -n 4 digits			train on 4 ranks
 *	digits --oracle --ranks 4		the same in one process, by the
 *						reference fold: the same hash
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kcollring.h>
#include <openssl/sha.h>

#include "digits.h"

#define TRAINING	1500	/* images to learn from; the rest is held out */
#define SEED		1797
#define RATE		0.06f
#define RATE_LATE	0.005f	/* in the last quarter of the steps */
#define KEEP		0.9f	/* of the momentum */

struct job {
	int steps;
	int batch;
	int hidden;
	int progress;
	bool oracle;
	const char *data;

	struct images images;
	int order[TRAINING];	/* of this pass over the images */
	uint64_t random;

	struct kcr_world *world;	/* NULL: the oracle */
	const char *algorithm;
	int ranks;
	int first, behind;	/* the ranks whose gradients are computed here */

	struct shape shape;
	float *weights;
	float *momentum;
	float *mean;		/* of the gradients of all ranks */
	float *gradient[KCR_RANKS_MAX];
};

static void fail(const struct job *job, const char *what)
{
	const char *words = kcr_error(job->world);

	fprintf(stderr, "digits: %s%s%s\n", what, *words ? ": " : "", words);
	kcr_world_destroy(job->world);
	exit(1);
}

/* The images of each pass in another order, the same on every rank. */
static void shuffle(struct job *job)
{
	int i, k, other;

	for (i = TRAINING - 1; i > 0; i--) {
		k = (int)(random_next(&job->random) % (uint64_t)(i + 1));
		other = job->order[k];
		job->order[k] = job->order[i];
		job->order[i] = other;
	}
}

/* Image @k of batch @step. What is left of a pass when no batch fits is not used. */
static const struct image *item(const struct job *job, int step, int k)
{
	int at = step % (TRAINING / job->batch) * job->batch + k;

	return &job->images.image[job->order[at]];
}

/*
 * The sum over this rank's share, scaled so that the mean over the ranks is the
 * mean over the batch, whether or not the ranks divide it.
 */
static void compute_gradient(struct job *job, int step, int rank, float *gradient)
{
	const float scale = (float)job->ranks / (float)job->batch;
	size_t i;
	int k;

	memset(gradient, 0, job->shape.total * sizeof(float));
	for (k = rank; k < job->batch; k += job->ranks)
		gradient_add(&job->shape, job->weights, item(job, step, k), gradient);
	for (i = 0; i < job->shape.total; i++)
		gradient[i] *= scale;
}

static int sum_here(struct job *job, size_t start, size_t count)
{
	const void *in[KCR_RANKS_MAX];
	int i;

	for (i = 0; i < job->ranks; i++)
		in[i] = job->gradient[i] + start;
	return kcr_reference_fold(in, job->ranks, job->mean + start, count,
				  KCR_F32, KCR_SUM);
}

/*
 * The mean of all ranks' gradients, a part at a time as a framework would:
 * two small messages and two larger ones, a step.
 */
static void exchange_gradients(struct job *job)
{
	const float one_of_all = 1.0f / (float)job->ranks;
	int part, error;
	size_t i;

	for (part = 0; part < PARTS; part++) {
		size_t start = job->shape.start[part];
		size_t count = job->shape.count[part];

		if (job->world)
			error = kcr_allreduce(job->world,
					      job->gradient[job->first] + start,
					      job->mean + start, count,
					      KCR_F32, KCR_SUM);
		else
			error = sum_here(job, start, count);
		if (error)
			fail(job, "the sum of the gradients");
	}
	for (i = 0; i < job->shape.total; i++)
		job->mean[i] *= one_of_all;
}

static double held_out_accuracy(const struct job *job)
{
	return accuracy(&job->shape, job->weights, job->images.image + TRAINING,
			job->images.count - TRAINING);
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
		if (step % (TRAINING / job->batch) == 0)
			shuffle(job);
		for (rank = job->first; rank < job->behind; rank++)
			compute_gradient(job, step, rank, job->gradient[rank]);
		exchange_gradients(job);
		parameters_step(&job->shape, job->weights, job->momentum, job->mean,
				step < job->steps / 4 * 3 ? RATE : RATE_LATE, KEEP);
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
	if (job->world)
		snprintf(who, sizeof(who), "rank %d of %d link %s algo %s",
			 job->first, job->ranks, kcr_link_name(job->world),
			 job->algorithm);
	else
		snprintf(who, sizeof(who), "oracle of %d ranks", job->ranks);
	printf("digits: %s accuracy %.2f %% weights %s\n", who,
	       100 * held_out_accuracy(job), hash);
}

/* Start and end */

static void join(struct job *job)
{
	static const char *const algorithms[] = { "auto", "direct", "owner" };
	struct kcr_config config;

	kcr_config_init(&config);
	if (kcr_world_create(&config, &job->world))
		fail(job, "joining");
	job->algorithm = algorithms[config.algo];
	job->ranks = kcr_size(job->world);
	job->first = kcr_rank(job->world);
	job->behind = job->first + 1;
}

static void set_up(struct job *job)
{
	int i;

	if (job->data)
		images_load(&job->images, job->data);
	else
		images_load_default(&job->images);
	if (job->images.count <= TRAINING)
		fail(job, "too few images");
	if (job->oracle)
		job->behind = job->ranks;
	else
		join(job);
	shape_init(&job->shape, job->hidden);
	job->weights = parameters_alloc(&job->shape);
	job->momentum = parameters_alloc(&job->shape);
	job->mean = parameters_alloc(&job->shape);
	if (!job->weights || !job->momentum || !job->mean)
		fail(job, "no memory");
	for (i = job->first; i < job->behind; i++) {
		job->gradient[i] = parameters_alloc(&job->shape);
		if (!job->gradient[i])
			fail(job, "no memory");
	}
	for (i = 0; i < TRAINING; i++)
		job->order[i] = i;
	job->random = SEED;
	parameters_randomise(&job->shape, job->weights, SEED);
}

static void tear_down(struct job *job)
{
	int i;

	kcr_world_destroy(job->world);
	for (i = job->first; i < job->behind; i++)
		free(job->gradient[i]);
	free(job->weights);
	free(job->momentum);
	free(job->mean);
	free(job->images.image);
}

static const char usage_text[] =
"Usage: kcr-run -n RANKS digits [OPTION]...\n"
"       digits --oracle --ranks RANKS [OPTION]...\n"
"Train a network to read handwritten digits; print its accuracy on images that\n"
"it has not seen and the SHA-256 of its weights.\n"
"\n"
"  --steps N      mini-batches (default 1000)\n"
"  --batch N      images in a batch, over all ranks (default 32)\n"
"  --hidden N     units of the hidden layer (default 160)\n"
"  --data FILE    the images (default: digits.csv.gz beside the program)\n"
"  --progress N   rank 0 says how far it is, every N steps\n"
"  --oracle       all ranks in this process, summed by the reference fold\n"
"  --ranks N      how many ranks the oracle stands for (default 4)\n"
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

static const struct option options[] = {
	{ "steps", required_argument, NULL, 's' },
	{ "batch", required_argument, NULL, 'b' },
	{ "hidden", required_argument, NULL, 'h' },
	{ "data", required_argument, NULL, 'd' },
	{ "progress", required_argument, NULL, 'p' },
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
		job->batch = parse_number(optarg, TRAINING);
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
		.steps = 1000,
		.batch = 32,
		.hidden = 160,
		.ranks = 4,
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
		take_option(&job, option);
	if (optind < argc)
		bad_usage();
	setvbuf(stdout, NULL, _IOLBF, 0);
	set_up(&job);
	train(&job);
	print_result(&job);
	tear_down(&job);
	return 0;
}
