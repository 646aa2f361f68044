// SPDX-License-Identifier: GPL-2.0
/* Places of ranks in a job of several nodes: see run-place.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run-place.h"

/* The port of a rendezvous that nobody named. */
#define DEFAULT_PORT	"29511"

#define wrong(place, ...) \
	(snprintf((place)->text, sizeof((place)->text), __VA_ARGS__), false)

static const char *environment(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
}

/* Leaves *@value alone if the variable is not set. */
static bool take_number(struct place *place, const char *name, int min, int max,
			int *value)
{
	const char *text = environment(name);
	char *end;
	long n;

	if (!text)
		return true;
	n = strtol(text, &end, 10);
	if (*end || n < min || n > max)
		return wrong(place, "%s must be %d to %d, not '%s'", name, min, max,
			     text);
	*value = (int)n;
	return true;
}

static bool complete_numbers(struct place *place)
{
	if (!place->nodes) {
		place->nodes = 1;
		if (!take_number(place, "KCR_NODES", 1, KCR_RANKS_MAX, &place->nodes))
			return false;
	}
	if (place->node < 0) {
		place->node = 0;
		/* A node of several may still start a job of its own. */
		if (place->nodes > 1 &&
		    !take_number(place, "KCR_NODE", 0, place->nodes - 1, &place->node))
			return false;
	}
	if (place->node >= place->nodes)
		return wrong(place, "--node-rank must be 0 to %d with %d node%s, not '%d'",
			     place->nodes - 1, place->nodes, place->nodes > 1 ? "s" : "",
			     place->node);
	if (place->ranks > KCR_RANKS_MAX / place->nodes)
		return wrong(place, "-n %d on %d nodes are %d ranks, and 256 is the most",
			     place->ranks, place->nodes, place->ranks * place->nodes);
	return true;
}

/* @length: of @address, of which there may be more. */
static bool meet_at(struct place *place, const char *address, size_t length,
		    const char *port)
{
	bool bare = memchr(address, ':', length) && address[0] != '[';
	int n = snprintf(place->text, sizeof(place->text), "tcp:%s%.*s%s:%s",
			 bare ? "[" : "", (int)length, address, bare ? "]" : "", port);

	if (n >= (int)sizeof(place->text))
		return wrong(place, "the address of the first node is too long");
	place->rendezvous = place->text;
	return true;
}

/* Where all nodes would look: no directory of ours is there for the others. */
static bool complete_rendezvous(struct place *place)
{
	const char *address = environment("MASTER_ADDR");
	const char *port = environment("MASTER_PORT");
	const char *nodes = environment("KCR_NODE_ADDRS");

	/* The rest of it is the ranks' to understand; that it is one is seen at once. */
	if (place->rendezvous && strncmp(place->rendezvous, "tcp:", 4) &&
	    strncmp(place->rendezvous, "file:/", 6))
		return wrong(place, "--rdzv must be tcp:host:port or file:/directory, not %s",
			     place->rendezvous);
	if (place->rendezvous || place->nodes == 1)
		return true;
	place->rendezvous = environment("KCR_RENDEZVOUS");
	if (place->rendezvous)
		return true;
	if (address && port)
		return meet_at(place, address, strlen(address), port);
	if (nodes)
		return meet_at(place, nodes, strcspn(nodes, " "), DEFAULT_PORT);
	return wrong(place, "where do %d nodes meet? --rdzv is missing, and so are MASTER_ADDR and MASTER_PORT",
		     place->nodes);
}

bool place_complete(struct place *place)
{
	return complete_numbers(place) && complete_rendezvous(place);
}

static void set_number(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	setenv(name, text, 1);
}

void place_set_environment(const struct place *place, int local, const char *job)
{
	set_number("KCR_RANK", place_rank(place, local));
	set_number("KCR_SIZE", place->nodes * place->ranks);
	set_number("KCR_LOCAL_RANK", local);
	set_number("KCR_LOCAL_SIZE", place->ranks);
	if (place->rendezvous)
		setenv("KCR_RENDEZVOUS", place->rendezvous, 1);
	/* Else it is the caller's, who can give all nodes the same. */
	if (place->nodes == 1)
		setenv("KCR_JOB", job, 1);
}
