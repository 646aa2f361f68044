// SPDX-License-Identifier: GPL-2.0
/* The command line of kcr-run: see run-options.h. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include <kcollring.h>

#include "run-options.h"
#include "run-output.h"

#define EXIT_USAGE	2

static const char usage_text[] =
"Usage: kcr-run -n RANKS [OPTION]... PROGRAM [ARGUMENT]...\n"
"Start the ranks of a job on this node and put tags before their lines.\n"
"\n"
"  -n, --ranks RANKS      how many on this node, 1 to 256\n"
"  -t, --time             tags tell the seconds since the start, too\n"
"      --no-tag           ranks write to our output themselves, without tags\n"
"      --grace SECONDS    after a failure, what the other ranks get to end\n"
"                         by themselves before they are sent SIGTERM, and\n"
"                         SIGKILL two seconds later (default 5)\n"
"      --timeout SECONDS  the most the job may take; the exit status is then 124\n"
"      --nnodes NODES     a job of so many nodes, with RANKS ranks and a kcr-run\n"
"                         on each (default $KCR_NODES, or 1)\n"
"      --node-rank NODE   which of them this is, from 0 (default $KCR_NODE, or 0);\n"
"                         node 0 has the first ranks, node 1 the next, ...\n"
"      --rdzv WHERE       where the ranks meet, their KCR_RENDEZVOUS; default on one\n"
"                         node: a directory of this job; on several: $KCR_RENDEZVOUS,\n"
"                         or else tcp:$MASTER_ADDR:$MASTER_PORT, or else port 29511\n"
"                         of the first of $KCR_NODE_ADDRS\n"
"  -h, --help             this text\n"
"      --version          the version\n"
"\n"
"Ranks find KCR_RANK, KCR_SIZE, KCR_LOCAL_RANK, KCR_LOCAL_SIZE, KCR_RENDEZVOUS\n"
"and KCR_JOB in their environment. Rank 0 gets the standard input.\n"
"On several nodes KCR_JOB is left as it is, and each kcr-run ends its own ranks.\n"
"SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP and SIGCONT are\n"
"passed on; a second SIGINT or SIGTERM kills at once.\n"
"\n"
"The exit status is that of the first rank that failed, 128 and the signal's\n"
"number if a signal killed it; 126 or 127 if PROGRAM cannot be run or found;\n"
"else 0.\n";

static void __attribute__((noreturn)) bad_usage(const char *what,
						const char *value)
{
	if (value)
		fprintf(stderr, "kcr-run: %s: '%s'\n", what, value);
	else
		fprintf(stderr, "kcr-run: %s\n", what);
	fputs("Try 'kcr-run --help'.\n", stderr);
	exit(EXIT_USAGE);
}

static uint64_t parse_seconds(const char *name, const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= 0 && value <= 1e9))
		bad_usage(name, text);
	return (uint64_t)(value * 1e9);
}

static int parse_number(const char *wrong, const char *text, int min, int max)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (end == text || *end || value < min || value > max)
		bad_usage(wrong, text);
	return (int)value;
}

enum {
	OPTION_NO_TAG = 256,
	OPTION_GRACE,
	OPTION_TIMEOUT,
	OPTION_NNODES,
	OPTION_NODE_RANK,
	OPTION_RDZV,
	OPTION_VERSION,
};

static const struct option known[] = {
	{ "ranks", required_argument, NULL, 'n' },
	{ "time", no_argument, NULL, 't' },
	{ "no-tag", no_argument, NULL, OPTION_NO_TAG },
	{ "grace", required_argument, NULL, OPTION_GRACE },
	{ "timeout", required_argument, NULL, OPTION_TIMEOUT },
	{ "nnodes", required_argument, NULL, OPTION_NNODES },
	{ "node-rank", required_argument, NULL, OPTION_NODE_RANK },
	{ "rdzv", required_argument, NULL, OPTION_RDZV },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, OPTION_VERSION },
	{ NULL, 0, NULL, 0 },
};

static void take_option(struct options *to, int option)
{
	switch (option) {
	case 'n':
		to->place.ranks = parse_number("-n must be 1 to 256 ranks, not",
					       optarg, 1, KCR_RANKS_MAX);
		break;
	case 't':
		stream_tag_time(now_ns());
		break;
	case OPTION_NO_TAG:
		to->tag = false;
		break;
	case OPTION_GRACE:
		to->grace_ns = parse_seconds("--grace needs seconds, not", optarg);
		break;
	case OPTION_TIMEOUT:
		to->timeout_ns = parse_seconds("--timeout needs seconds, not", optarg);
		if (!to->timeout_ns)
			bad_usage("--timeout must be more than 0 seconds", NULL);
		break;
	case OPTION_NNODES:
		to->place.nodes = parse_number("--nnodes must be 1 to 256 nodes, not",
					       optarg, 1, KCR_RANKS_MAX);
		break;
	case OPTION_NODE_RANK:
		to->place.node = parse_number("--node-rank must be 0 to 255, not",
					      optarg, 0, KCR_RANKS_MAX - 1);
		break;
	case OPTION_RDZV:
		if (!*optarg)
			bad_usage("--rdzv needs a place", NULL);
		to->place.rendezvous = optarg;
		break;
	case 'h':
		fputs(usage_text, stdout);
		exit(0);
	case OPTION_VERSION:
		puts("kcr-run " KCR_VERSION);
		exit(0);
	default:
		bad_usage("unknown option, or one without its value", NULL);
	}
}

void options_parse(struct options *to, int argc, char **argv)
{
	int option;

	*to = (struct options){
		.place = PLACE_INIT,
		.tag = true,
		.grace_ns = 5 * SECOND_NS,
	};
	while ((option = getopt_long(argc, argv, "+n:th", known, NULL)) != -1)
		take_option(to, option);
	if (!to->place.ranks)
		bad_usage("how many ranks? -n is missing", NULL);
	if (!argv[optind])
		bad_usage("no program to run", NULL);
	to->command = argv + optind;
	if (!place_complete(&to->place))
		bad_usage(to->place.text, NULL);
}
