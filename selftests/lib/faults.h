/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's fault injection, for the calling thread: its n-th allocation or copy
 * from or to user memory fails (/proc/thread-self/fail-nth)
 *
 * Needs a kernel with CONFIG_FAULT_INJECTION, CONFIG_FAILSLAB, CONFIG_FAIL_PAGE_ALLOC and
 * CONFIG_FAULT_INJECTION_USERCOPY, debugfs, and root.
 */
#ifndef KCR_TEST_FAULTS_H
#define KCR_TEST_FAULTS_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "device.h"

#define FAULTS_FOLDER	"/sys/kernel/debug/"

/* Why nothing can be made to fail here, or NULL: then everything can. */
static inline const char *faults_missing(void)
{
	static const struct {
		const char *name, *value;
	} settings[] = {
		/* Allocations that may sleep, too, and single pages. */
		{ "failslab/ignore-gfp-wait", "N" },
		{ "fail_page_alloc/ignore-gfp-wait", "N" },
		{ "fail_page_alloc/ignore-gfp-highmem", "N" },
		{ "fail_page_alloc/min-order", "0" },
		/* A trace for each would hide those that matter. */
		{ "failslab/verbose", "0" },
		{ "fail_page_alloc/verbose", "0" },
		{ "fail_usercopy/verbose", "0" },
	};
	static char text[120];
	char path[80];

	if (access("/proc/thread-self/fail-nth", F_OK))
		return "this kernel has no fault injection";
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		snprintf(path, sizeof(path), FAULTS_FOLDER "%s", settings[i].name);
		if (!dev_write_text(path, settings[i].value))
			continue;
		snprintf(text, sizeof(text), "cannot write to %s", path);
		return text;
	}
	return NULL;
}

struct faults {
	int fd;
	int nth;		/* 0: let nothing fail */
	bool was_hit;
};

/* For the calling thread. */
static inline int faults_open(struct faults *f)
{
	f->fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	f->nth = 0;
	f->was_hit = false;
	return f->fd < 0 ? -errno : 0;
}

static inline void faults_arm(struct faults *f)
{
	char text[16];
	int n = snprintf(text, sizeof(text), "%d", f->nth);

	f->was_hit = false;
	if (f->nth && pwrite(f->fd, text, n, 0) != n)
		abort();
}

/* To ask, and to stop it, are copies as well: they may be what fails. */
static inline void faults_disarm(struct faults *f)
{
	char text[16] = "";

	if (!f->nth)
		return;
	if (pread(f->fd, text, sizeof(text) - 1, 0) > 0 && text[0] == '0' && text[1] == '\n') {
		f->was_hit = true;
		return;
	}
	for (int i = 0; pwrite(f->fd, "0", 1, 0) != 1; i++)
		if (i)
			abort();
}

/* The one call in which something fails. */
#define FAULTS_IN(f, call) ({						\
	int faults_gave;						\
									\
	faults_arm(f);							\
	faults_gave = (call);						\
	faults_disarm(f);						\
	faults_gave;							\
})

#endif /* KCR_TEST_FAULTS_H */
