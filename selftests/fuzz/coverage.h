/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which edges of the module a program went along, by KCOV where the kernel has it
 *
 * Root opens as many traces as there may be tasks, before there are any. A task takes
 * one for itself; it ends with the task, and is read here afterwards. Or there is one
 * trace, of what the module does for a mesh in tasks of the kernel.
 */
#ifndef KCR_FUZZ_COVERAGE_H
#define KCR_FUZZ_COVERAGE_H

#include <linux/kcov.h>
#include <sys/ioctl.h>

#include "device.h"

#define KCOV_PATH	"/sys/kernel/debug/kcov"
/* Whichever: there is no other. */
#define KCOV_HANDLE	1

#define TRACES		16
/* Of all traces together. */
#define TRACE_WORDS	(512ul << 10)
/* Of what the kernel's tasks do at one go. */
#define REMOTE_WORDS	(16u << 10)
#define EDGE_BITS	20

struct coverage {
	int n;			/* 0: the kernel has none */
	unsigned long words;	/* of each */
	int fd[TRACES];
	unsigned long *trace[TRACES];
	int taken;		/* shared: traces that tasks have */
	__u8 seen[1 << EDGE_BITS >> 3];
	unsigned int edges;
};

/* @n traces, at most TRACES. */
static inline struct coverage *coverage_open(int n)
{
	struct coverage *c = dev_shared(sizeof(*c));
	int fd;

	c->words = TRACE_WORDS / n;
	while (c->n < n) {
		fd = open(KCOV_PATH, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			break;
		if (ioctl(fd, KCOV_INIT_TRACE, c->words)) {
			close(fd);
			break;
		}
		c->trace[c->n] = mmap(NULL, c->words * sizeof(long),
				      PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (c->trace[c->n] == MAP_FAILED) {
			close(fd);
			break;
		}
		c->fd[c->n++] = fd;
	}
	return c;
}

/* Before a program. */
static inline void coverage_reset(struct coverage *c)
{
	c->taken = 0;
	for (int i = 0; i < c->n; i++)
		c->trace[i][0] = 0;
}

/* From now on for this task. */
static inline void coverage_begin(struct coverage *c)
{
	int i = __atomic_fetch_add(&c->taken, 1, __ATOMIC_RELAXED);

	if (i < c->n)
		ioctl(c->fd[i], KCOV_ENABLE, KCOV_TRACE_PC);
}

/* Trace what is done for the meshes that this task makes from now on. */
static inline void coverage_follow(struct coverage *c)
{
	struct kcov_remote_arg args = {
		.trace_mode = KCOV_TRACE_PC,
		.area_size = REMOTE_WORDS,
		.common_handle = KCOV_HANDLE,
	};

	if (c->n && ioctl(c->fd[0], KCOV_REMOTE_ENABLE, &args))
		c->n = 0;
}

static inline unsigned int edge(unsigned long from, unsigned long to)
{
	return (from * 0x9e3779b97f4a7c15 ^ to * 0xbf58476d1ce4e5b9) >> (64 - EDGE_BITS);
}

/* After a program: how many edges no other one went along before. */
static inline unsigned int coverage_new(struct coverage *c)
{
	unsigned int fresh = 0, e;

	for (int i = 0; i < c->n; i++) {
		unsigned long n = __atomic_load_n(&c->trace[i][0], __ATOMIC_RELAXED);

		if (n >= c->words)
			n = c->words - 1;
		for (unsigned long j = 1; j <= n; j++) {
			e = edge(j > 1 ? c->trace[i][j - 1] : 0, c->trace[i][j]);
			if (c->seen[e >> 3] & 1 << (e & 7))
				continue;
			c->seen[e >> 3] |= 1 << (e & 7);
			fresh++;
		}
	}
	c->edges += fresh;
	return fresh;
}

#endif /* KCR_FUZZ_COVERAGE_H */
