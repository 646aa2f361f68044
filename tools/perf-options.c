// SPDX-License-Identifier: GPL-2.0
/* What the options of kcr-perf have in common. */
#include <stdlib.h>
#include <string.h>

#include "perf.h"

void bad_usage(const char *what, const char *value)
{
	if (value)
		fprintf(stderr, "kcr-perf: %s '%s'\n", what, value);
	else
		fprintf(stderr, "kcr-perf: %s\n", what);
	fputs("Try 'kcr-perf --help'.\n", stderr);
	exit(2);
}

size_t parse_size(const char *text)
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

int parse_count(const char *text, int least, int most)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end == text || *end || value < least || value > most)
		bad_usage("not a count that makes sense:", text);
	return (int)value;
}

double parse_factor(const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value > 1 && value <= 1e6))
		bad_usage("the factor must be more than 1, not", text);
	return value;
}
