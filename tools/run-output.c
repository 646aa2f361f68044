// SPDX-License-Identifier: GPL-2.0
/* The output of kcr-run: see run-output.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "run-output.h"

/* Queued bytes from which ranks are no longer read: they wait for our reader. */
#define SINK_FULL	(256 * 1024)
/* What a pipe's or terminal's POLLOUT promises to take without blocking. */
#define SINK_CHUNK	PIPE_BUF
/* One read from a rank; a pipe holds no more by default. */
#define STREAM_CHUNK	(64 * 1024)
/* A longer line is cut into tagged pieces: memory must be bounded. */
#define LINE_LONGEST	(1024 * 1024)

static uint64_t tag_start_ns;

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void *grow(void *memory, size_t size)
{
	memory = realloc(memory, size);
	if (!memory) {
		fprintf(stderr, "kcr-run: no memory for %zu bytes\n", size);
		exit(1);
	}
	return memory;
}

void sink_init(struct sink *sink, int fd)
{
	struct stat st;

	memset(sink, 0, sizeof(*sink));
	sink->fd = fd;
	sink->is_file = !fstat(fd, &st) && S_ISREG(st.st_mode);
}

bool sink_is_empty(const struct sink *sink)
{
	return sink->start == sink->end;
}

bool sink_is_full(const struct sink *sink)
{
	return sink->end - sink->start >= SINK_FULL;
}

void sink_put(struct sink *sink, const char *text, size_t len)
{
	if (sink->error)
		return;
	if (sink->start && sink->end + len > sink->room) {
		memmove(sink->text, sink->text + sink->start,
			sink->end - sink->start);
		sink->end -= sink->start;
		sink->start = 0;
	}
	if (sink->end + len > sink->room) {
		sink->room = 2 * (sink->end + len);
		sink->text = grow(sink->text, sink->room);
	}
	memcpy(sink->text + sink->end, text, len);
	sink->end += len;
}

/* Call it when poll() found the descriptor writable. */
void sink_write(struct sink *sink)
{
	size_t len = sink->end - sink->start;
	ssize_t done;

	if (!sink->is_file && len > SINK_CHUNK)
		len = SINK_CHUNK;
	done = write(sink->fd, sink->text + sink->start, len);
	if (done < 0) {
		if (errno == EINTR || errno == EAGAIN)
			return;
		sink->error = errno;
		done = (ssize_t)(sink->end - sink->start);
	}
	sink->start += (size_t)done;
	if (sink_is_empty(sink)) {
		sink->start = 0;
		sink->end = 0;
	}
}

void stream_tag_time(uint64_t start_ns)
{
	tag_start_ns = start_ns;
}

void stream_init(struct stream *stream, int fd, int rank, struct sink *sink)
{
	memset(stream, 0, sizeof(*stream));
	stream->fd = fd;
	stream->rank = rank;
	stream->sink = sink;
	fcntl(fd, F_SETFL, O_NONBLOCK);
}

static void put_line(struct stream *stream, const char *text, size_t len)
{
	char tag[64];
	int n;

	if (tag_start_ns)
		n = snprintf(tag, sizeof(tag), "[%d %.6f] ", stream->rank,
			     (double)(now_ns() - tag_start_ns) / 1e9);
	else
		n = snprintf(tag, sizeof(tag), "[%d] ", stream->rank);
	sink_put(stream->sink, tag, (size_t)n);
	sink_put(stream->sink, text, len);
	if (!len || text[len - 1] != '\n')
		sink_put(stream->sink, "\n", 1);
}

/* Put out the complete lines, keep the rest; @fresh is where news begin. */
static void cut_lines(struct stream *stream, size_t fresh)
{
	size_t start = 0;
	char *newline;

	while (fresh < stream->len) {
		newline = memchr(stream->text + fresh, '\n', stream->len - fresh);
		if (!newline)
			break;
		fresh = (size_t)(newline - stream->text) + 1;
		put_line(stream, stream->text + start, fresh - start);
		start = fresh;
	}
	if (stream->len - start >= LINE_LONGEST) {
		put_line(stream, stream->text + start, LINE_LONGEST);
		start += LINE_LONGEST;
	}
	if (start)
		memmove(stream->text, stream->text + start, stream->len - start);
	stream->len -= start;
}

/* True if there may be more to read at once. */
static bool read_once(struct stream *stream)
{
	ssize_t n;

	if (stream->len + STREAM_CHUNK > stream->room) {
		stream->room = 2 * stream->len + STREAM_CHUNK;
		stream->text = grow(stream->text, stream->room);
	}
	n = read(stream->fd, stream->text + stream->len, STREAM_CHUNK);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return errno == EINTR;
	if (n <= 0) {
		stream_close(stream);
		return false;
	}
	stream->len += (size_t)n;
	cut_lines(stream, stream->len - (size_t)n);
	return true;
}

void stream_read(struct stream *stream)
{
	if (stream->fd < 0)
		return;
	if (stream->sink->error)
		stream_close(stream);	/* so the rank gets SIGPIPE */
	else
		read_once(stream);
}

/* What a rank that has ended left in its pipe, and no more than a pipe holds. */
void stream_drain(struct stream *stream)
{
	size_t most = 1024 * 1024 / STREAM_CHUNK;

	while (stream->fd >= 0 && most-- && read_once(stream))
		;
}

void stream_close(struct stream *stream)
{
	if (stream->fd < 0)
		return;
	if (stream->len)
		put_line(stream, stream->text, stream->len);
	close(stream->fd);
	stream->fd = -1;
	free(stream->text);
	stream->text = NULL;
	stream->len = 0;
	stream->room = 0;
}
