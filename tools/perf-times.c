// SPDX-License-Identifier: GPL-2.0
/* The clock, and what is made of many times. */
#include <stdlib.h>
#include <time.h>

#include "perf.h"

double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void sort_times(double *times, size_t count)
{
	qsort(times, count, sizeof(*times), ascending);
}

double median(const double *sorted, size_t count)
{
	return count % 2 ? sorted[count / 2] :
	       (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}
