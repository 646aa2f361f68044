/* SPDX-License-Identifier: GPL-2.0 */
/* The digits sample: what its parts share. */
#ifndef DIGITS_H
#define DIGITS_H

#include <stddef.h>
#include <stdint.h>

#define PIXELS	64
#define DIGITS	10

/* Units that the hidden layer can have: they fit on the stack. */
#define HIDDEN_MOST	4096

/* images.c: the data */

struct image {
	float pixel[PIXELS];	/* 0 to 1, in sixteenths: exact */
	int label;
};

struct images {
	struct image *image;
	int count;
};

/* All say on stderr what is wrong and end the program. */
void images_load(struct images *images, const char *path);
void images_load_default(struct images *images);
/* Moves the first of @images and every @nth after it. */
void images_hold_out(struct images *images, struct images *held_out, int nth);

/* network.c: 64 inputs, a hidden layer of ReLUs, 10 outputs */

enum part { PART_HIDDEN_BIAS, PART_HIDDEN, PART_OUTPUT_BIAS, PART_OUTPUT, PARTS };

/*
 * The parameters lie one behind the other, part by part. Gradients and
 * momenta have the same shape.
 */
struct shape {
	int hidden;
	size_t start[PARTS];
	size_t count[PARTS];
	size_t total;
};

void shape_init(struct shape *shape, int hidden);
float *parameters_alloc(const struct shape *shape);
void parameters_randomise(const struct shape *shape, float *weights,
			  uint64_t seed);
/* Adds the gradient of the squared error of one image. */
void gradient_add(const struct shape *shape, const float *weights,
		  const struct image *image, float *gradient);
void parameters_step(const struct shape *shape, float *weights, float *momentum,
		     const float *gradient, float rate, float keep);
double accuracy(const struct shape *shape, const float *weights,
		const struct image *image, int count);

/* A generator whose numbers are the same everywhere (splitmix64). */
uint64_t random_next(uint64_t *state);

#endif /* DIGITS_H */
