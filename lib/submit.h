/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Submission: commands to /dev/kcollring.
 */
#ifndef KCR_SUBMIT_H
#define KCR_SUBMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "kcollring.h"

#define KCR_DEVICE	"/dev/kcollring"

struct submit;

int submit_open_device(void);
int submit_create(int device, const struct kcr_config *config,
		  struct submit **submit);
int submit_command(struct submit *s, uint32_t command, const void *payload,
		   size_t size);
void submit_destroy(struct submit *s);

#endif /* KCR_SUBMIT_H */
