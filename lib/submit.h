/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Submission: commands to /dev/kcollring.
 */
#ifndef KCR_SUBMIT_H
#define KCR_SUBMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/kcollring.h>
#include "kcollring.h"

#define KCR_DEVICE	"/dev/kcollring"

struct submit;

/* Commands that go together, in order: see submit_batch(). */
#define SUBMIT_BATCH	64

struct submit_entry {
	uint32_t command;
	int result;
	int tag;		/* the caller's */
	union {
		struct kcr_send send;
		struct kcr_release release;
	} payload;
};

struct submit_batch {
	unsigned int count;
	struct submit_entry entries[SUBMIT_BATCH];
};

int submit_open_device(void);
int submit_create(int device, const struct kcr_config *config,
		  struct submit **submit);
int submit_command(struct submit *s, uint32_t command, const void *payload,
		   size_t size);
void submit_batch(struct submit *s, struct submit_batch *batch);
void submit_destroy(struct submit *s);

#endif /* KCR_SUBMIT_H */
