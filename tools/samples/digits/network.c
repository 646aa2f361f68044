// SPDX-License-Identifier: GPL-2.0
/*
 * The network and its gradient
 *
 * Only additions and multiplications of f32, in the order written here, so
 * that the bits are the same on every machine: no function of libm, whose
 * variants differ by processor, and compiled without contraction to fused
 * multiply-add. Inner loops run over independent sums; the compiler may
 * use vectors for them without reordering any.
 */
#include <stdlib.h>
#include <string.h>

#include "digits.h"

uint64_t random_next(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

void shape_init(struct shape *shape, int hidden)
{
	size_t width = (size_t)hidden, start = 0;
	int part;

	shape->hidden = hidden;
	shape->count[PART_HIDDEN_BIAS] = width;
	shape->count[PART_HIDDEN] = PIXELS * width;
	shape->count[PART_OUTPUT_BIAS] = DIGITS;
	shape->count[PART_OUTPUT] = width * DIGITS;
	for (part = 0; part < PARTS; part++) {
		shape->start[part] = start;
		start += shape->count[part];
	}
	shape->total = start;
}

float *parameters_alloc(const struct shape *shape)
{
	return calloc(shape->total, sizeof(float));
}

/* Uniform in [-@most, @most), from the 24 upper bits: exact before the scaling. */
static void randomise(float *to, size_t count, float most, uint64_t *state)
{
	while (count--) {
		int32_t value = (int32_t)(random_next(state) >> 40) - (1 << 23);

		*to++ = (float)value * (1.0f / (1 << 23)) * most;
	}
}

void parameters_randomise(const struct shape *shape, float *weights,
			  uint64_t seed)
{
	memset(weights, 0, shape->total * sizeof(float));
	randomise(weights + shape->start[PART_HIDDEN], shape->count[PART_HIDDEN],
		  0.25f, &seed);
	randomise(weights + shape->start[PART_OUTPUT], shape->count[PART_OUTPUT],
		  0.125f, &seed);
}

/* to[] += factor * from[] */
static void add_scaled(float *restrict to, const float *restrict from,
		       float factor, int count)
{
	int i;

	for (i = 0; i < count; i++)
		to[i] += factor * from[i];
}

static void forward(const struct shape *shape, const float *weights,
		    const struct image *image, float *hidden, float *output)
{
	const float *from_pixel = weights + shape->start[PART_HIDDEN];
	const float *from_hidden = weights + shape->start[PART_OUTPUT];
	int i, width = shape->hidden;

	memcpy(hidden, weights + shape->start[PART_HIDDEN_BIAS],
	       (size_t)width * sizeof(float));
	for (i = 0; i < PIXELS; i++, from_pixel += width)
		if (image->pixel[i] != 0)
			add_scaled(hidden, from_pixel, image->pixel[i], width);
	memcpy(output, weights + shape->start[PART_OUTPUT_BIAS],
	       DIGITS * sizeof(float));
	for (i = 0; i < width; i++, from_hidden += DIGITS) {
		if (!(hidden[i] > 0))
			hidden[i] = 0;
		else
			add_scaled(output, from_hidden, hidden[i], DIGITS);
	}
}

void gradient_add(const struct shape *shape, const float *weights,
		  const struct image *image, float *gradient)
{
	const float *from_hidden = weights + shape->start[PART_OUTPUT];
	float *to_hidden = gradient + shape->start[PART_OUTPUT];
	float *to_pixel = gradient + shape->start[PART_HIDDEN];
	int i, k, width = shape->hidden;
	float hidden[HIDDEN_MOST], back[HIDDEN_MOST], error[DIGITS];

	forward(shape, weights, image, hidden, error);
	error[image->label] -= 1;
	add_scaled(gradient + shape->start[PART_OUTPUT_BIAS], error, 1, DIGITS);
	for (i = 0; i < width; i++) {
		back[i] = 0;
		if (!(hidden[i] > 0))
			continue;
		for (k = 0; k < DIGITS; k++)
			back[i] += from_hidden[i * DIGITS + k] * error[k];
		add_scaled(to_hidden + i * DIGITS, error, hidden[i], DIGITS);
	}
	add_scaled(gradient + shape->start[PART_HIDDEN_BIAS], back, 1, width);
	for (i = 0; i < PIXELS; i++, to_pixel += width)
		if (image->pixel[i] != 0)
			add_scaled(to_pixel, back, image->pixel[i], width);
}

void parameters_step(const struct shape *shape, float *weights, float *momentum,
		     const float *gradient, float rate, float keep)
{
	size_t i;

	for (i = 0; i < shape->total; i++) {
		momentum[i] = keep * momentum[i] - rate * gradient[i];
		weights[i] += momentum[i];
	}
}

static int recognise(const struct shape *shape, const float *weights,
		     const struct image *image)
{
	float hidden[HIDDEN_MOST], output[DIGITS];
	int best = 0, k;

	forward(shape, weights, image, hidden, output);
	for (k = 1; k < DIGITS; k++)
		if (output[k] > output[best])
			best = k;
	return best;
}

double accuracy(const struct shape *shape, const float *weights,
		const struct image *image, int count)
{
	int right = 0, i;

	for (i = 0; i < count; i++)
		right += recognise(shape, weights, &image[i]) == image[i].label;
	return count ? (double)right / count : 0;
}
