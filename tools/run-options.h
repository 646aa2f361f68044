/* SPDX-License-Identifier: GPL-2.0 */
/* What the command line of kcr-run says */
#ifndef RUN_OPTIONS_H
#define RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "run-place.h"

#define SECOND_NS	1000000000ULL

struct options {
	struct place place;
	bool tag;
	uint64_t grace_ns;
	uint64_t timeout_ns;	/* 0: none */
	char **command;
};

/* Ends the process with a message if the usage is wrong, or after --help. */
void options_parse(struct options *options, int argc, char **argv);

#endif /* RUN_OPTIONS_H */
