// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Errors in words: one sentence per world, and one per thread for calls that
 * have no world.
 */
#include <stdarg.h>
#include "kcr.h"

static __thread char thread_error[KCR_ERROR_BYTES];

/**
 * kcr_fail() - remember a sentence and pass an error on
 * @w: the world, or NULL for the calling thread
 * @error: a negative errno
 * @format: the sentence, without full stop or newline
 *
 * Returns @error.
 */
int (kcr_fail)(struct kcr_world *w, int error, const char *format, ...)
{
	char text[KCR_ERROR_BYTES];
	va_list args;

	/* Composed aside: an argument may be the sentence that is replaced. */
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(w ? w->error : thread_error, KCR_ERROR_BYTES, "%s", text);
	return error;
}

/* What was chosen and why, on stderr, for those who asked by KCR_DEBUG. */
void kcr_debug(const struct kcr_config *config, const char *format, ...)
{
	char text[KCR_ERROR_BYTES];
	va_list args;

	if (!config->debug)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "kcollring: rank %d: %s\n", config->rank, text);
}

KCR_PUBLIC const char *kcr_error(const struct kcr_world *world)
{
	return world ? world->error : thread_error;
}
