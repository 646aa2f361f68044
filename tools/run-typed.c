// SPDX-License-Identifier: GPL-2.0
/* What is typed to kcr-run: see run-typed.h. */
#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

#include "run-typed.h"

static bool owns_terminal(void)
{
	return tcgetpgrp(0) == getpgrp();
}

void typed_close(struct typed *typed)
{
	if (typed->to >= 0)
		close(typed->to);
	typed->to = -1;
}

static void typed_read(struct typed *typed)
{
	ssize_t n = read(0, typed->text, sizeof(typed->text));

	if (n > 0) {
		typed->start = 0;
		typed->end = (size_t)n;
	} else if (!n || errno != EINTR) {
		typed_close(typed);
	}
}

/* A pipe that polls writable takes PIPE_BUF bytes, and text is no longer. */
static void typed_write(struct typed *typed)
{
	ssize_t n = write(typed->to, typed->text + typed->start,
			  typed->end - typed->start);

	if (n > 0)
		typed->start += (size_t)n;
	else if (errno != EINTR)
		typed_close(typed);
}

struct pollfd typed_poll(const struct typed *typed)
{
	struct pollfd fd = { .fd = -1 };

	if (typed->to < 0)
		return fd;
	if (typed->start < typed->end)
		fd = (struct pollfd){ .fd = typed->to, .events = POLLOUT };
	else if (owns_terminal())
		fd = (struct pollfd){ .fd = 0, .events = POLLIN };
	return fd;
}

void typed_serve(struct typed *typed, const struct pollfd *fd)
{
	if (typed->to < 0 || !fd->revents)
		return;
	if (fd->fd == 0)
		typed_read(typed);
	else
		typed_write(typed);
}
