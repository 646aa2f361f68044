/* SPDX-License-Identifier: GPL-2.0 */
/* The output of kcr-run: ranks' pipes are cut into lines, lines are tagged and queued. */
#ifndef RUN_OUTPUT_H
#define RUN_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A sink is where lines go: our stdout or stderr. It is written only when
 * poll() says so and only as much as cannot block, so that a reader who
 * does not read (a pager, a stopped terminal) never keeps signals and
 * deadlines from being served.
 */
struct sink {
	int fd;
	bool is_file;		/* takes any amount at once */
	int error;		/* why it takes no more; lines are thrown away then */
	char *text;
	size_t start;
	size_t end;
	size_t room;
};

/* A stream is one pipe from one rank. */
struct stream {
	int fd;			/* -1 once it has ended */
	int rank;
	struct sink *sink;
	char *text;		/* the line that has not ended yet */
	size_t len;
	size_t room;
};

void sink_init(struct sink *sink, int fd);
bool sink_is_full(const struct sink *sink);
bool sink_is_empty(const struct sink *sink);
void sink_put(struct sink *sink, const char *text, size_t len);
void sink_write(struct sink *sink);

/* Zero: tags have no time. Else they tell the time since then. */
void stream_tag_time(uint64_t start_ns);
void stream_init(struct stream *stream, int fd, int rank, struct sink *sink);
void stream_read(struct stream *stream);
void stream_drain(struct stream *stream);
void stream_close(struct stream *stream);

uint64_t now_ns(void);

#endif /* RUN_OUTPUT_H */
