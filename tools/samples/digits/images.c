// SPDX-License-Identifier: GPL-2.0
/* The images: lines of 64 pixels from 0 to 16 and the digit that they show. */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "digits.h"

#define DEEPEST		16	/* the value of the darkest pixel */
#define LINE_LONGEST	1024

static void fail(const char *format, ...)
	__attribute__((format(printf, 1, 2), noreturn));

static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("digits: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

/* The number at *@text, which must end with @end; -1 if it is none, or above @most. */
static int take_number(char **text, char end, long most)
{
	char *behind;
	long value = strtol(*text, &behind, 10);

	if (behind == *text || *behind != end || value < 0 || value > most)
		return -1;
	*text = behind + 1;
	return (int)value;
}

/* 0, or -1 if the line is not one of ours. */
static int parse_line(char *line, struct image *image)
{
	int i, value;

	line[strcspn(line, "\r\n")] = 0;
	for (i = 0; i < PIXELS; i++) {
		value = take_number(&line, ',', DEEPEST);
		if (value < 0)
			return -1;
		image->pixel[i] = (float)value / DEEPEST;
	}
	image->label = take_number(&line, 0, DIGITS - 1);
	return image->label < 0 ? -1 : 0;
}

static struct image *append(struct images *images)
{
	struct image *grown;

	/* Doubles at every power of two. */
	if (!(images->count & (images->count - 1))) {
		grown = realloc(images->image, sizeof(*grown) *
				(images->count ? 2 * (size_t)images->count : 1));
		if (!grown)
			fail("no memory for %d images", images->count);
		images->image = grown;
	}
	return &images->image[images->count++];
}

void images_load(struct images *images, const char *path)
{
	char line[LINE_LONGEST];
	gzFile file = gzopen(path, "re");
	int error;

	if (!file)
		fail("%s: %s", path, errno ? strerror(errno) : "cannot be opened");
	images->image = NULL;
	images->count = 0;
	while (gzgets(file, line, sizeof(line)))
		if (parse_line(line, append(images)))
			fail("%s: line %d is not 64 pixels from 0 to 16 and a digit",
			     path, images->count);
	gzerror(file, &error);
	if (error || gzclose(file))
		fail("%s: damaged after line %d", path, images->count);
}

/* Beside the program as it was built, or as it would be installed. */
void images_load_default(struct images *images)
{
	static const char *const beside[] = {
		"/../share/digits.csv.gz",
		"/../share/kcollring/digits.csv.gz",
		"/digits.csv.gz",
	};
	char program[PATH_MAX], path[PATH_MAX + 64];
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
	size_t i;

	program[len > 0 ? len : 0] = 0;
	if (strrchr(program, '/'))
		*strrchr(program, '/') = 0;
	for (i = 0; i < sizeof(beside) / sizeof(*beside); i++) {
		snprintf(path, sizeof(path), "%s%s", program, beside[i]);
		if (!access(path, R_OK)) {
			images_load(images, path);
			return;
		}
	}
	fail("no digits.csv.gz in %s/../share; say where it is with --data", program);
}

void images_hold_out(struct images *images, struct images *held_out, int nth)
{
	int from, kept = 0;

	held_out->image = NULL;
	held_out->count = 0;
	for (from = 0; from < images->count; from++) {
		if (from % nth)
			images->image[kept++] = images->image[from];
		else
			*append(held_out) = images->image[from];
	}
	images->count = kept;
}
