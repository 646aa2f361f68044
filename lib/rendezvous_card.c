// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The card: what a rank shows the others, and the comparison of two cards.
 *
 * A card is text, a field and its value a line. What follows the line
 * "agreed" must be the same on every rank, to the letter.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include "fold.h"
#include "kcr.h"
#include "link.h"
#include "rendezvous.h"

static void hex(const unsigned char bytes[16], char text[33])
{
	for (int i = 0; i < 16; i++)
		sprintf(text + 2 * i, "%02x", bytes[i]);
}

/* The 16 bytes that 32 hexadecimal digits stand for. */
void card_unhex(const char *text, unsigned char out[16])
{
	for (int i = 0; i < 16; i++) {
		unsigned int byte = 0;

		sscanf(text + 2 * i, "%2x", &byte);
		out[i] = byte;
	}
}

static void read_boot_id(char boot[40])
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = 0;

	if (fd >= 0) {
		n = read(fd, boot, 36);
		close(fd);
	}
	boot[n > 0 ? n : 0] = 0;
	if (n <= 0)
		strcpy(boot, "unknown");
}

/* An id, a key and an incarnation; rank 0's count. */
int card_secrets(struct card *card)
{
	unsigned char bytes[3][16];
	int err = process_random(bytes, sizeof(bytes));

	if (err)
		return kcr_fail(NULL, err, "no random bytes for the world's key");
	hex(bytes[0], card->id);
	hex(bytes[1], card->key);
	hex(bytes[2], card->incarnation);
	return 0;
}

#define WIRE_LINE	"wire "
#define WIRE_LINE_BYTES	(sizeof(WIRE_LINE) + WIRE_TEXT_BYTES)

/* A line for each wire that this rank may use; none where no other node can be reached. */
static int list_wires(const struct kcr_config *config, char *lines)
{
	char text[WIRE_TEXT_BYTES];
	struct wire_list list;
	int err;

	lines[0] = 0;
	if (config->link == KCR_LINK_SHM)
		return 0;
	err = wires_find(config->wires, &list);
	for (int i = 0; !err && i < list.count; i++)
		lines += sprintf(lines, WIRE_LINE "%s\n",
				 wire_end_text(&list.wires[i], text));
	return err;
}

/* Another node's list is not trusted to be short. */
static int parse_wires(struct card *card)
{
	struct wire_list *list = &card->wires;
	const char *at = card->text;

	list->count = 0;
	while ((at = strstr(at, "\n" WIRE_LINE)) && at < card->agreed) {
		at += strlen("\n" WIRE_LINE);
		if (list->count == WIRES_LISTED ||
		    wire_end_parse(at, &list->wires[list->count++]))
			return -EBADMSG;
	}
	return 0;
}

/**
 * card_make() - this rank's card
 * @config: its configuration
 * @has_module: it can use the module
 * @card: filled in
 */
int card_make(const struct kcr_config *config, bool has_module,
	      struct card *card)
{
	char host[HOST_NAME_MAX + 1] = "", wires[WIRES_LISTED * WIRE_LINE_BYTES];
	int err, n;

	memset(card, 0, sizeof(*card));
	err = card_secrets(card) ?: list_wires(config, wires);
	if (err)
		return err;
	gethostname(host, sizeof(host) - 1);
	snprintf(card->host, sizeof(card->host), "%.64s", host[0] ? host : "-");
	read_boot_id(card->boot);
	n = snprintf(card->text, sizeof(card->text),
		     "kcollring-card 1\n"
		     "host %s\nboot %s\npid %d\nmodule %d\n"
		     "id %s\nkey %s\nincarnation %s\n"
		     "%sagreed\n"
		     "library %s\nwire %d\nabi %d\nfold %d\ncontract %s\nseed %llu\n"
		     "size %d\nlocal_size %d\nlink %s\nalgo %s\ndirect_max %zu\n"
		     "lane_depth %u\nlane_bytes %u\nboard_depth %u\nboard_bytes %u\n"
		     "wires_max %u\nwires_from %zu\nmesh_depth %u\nconnect %s\n",
		     card->host, card->boot, getpid(), has_module,
		     card->id, card->key, card->incarnation, wires,
		     KCR_VERSION, KCR_WIRE_VERSION, KCR_ABI_VERSION,
		     KCR_FOLD_VERSION, kcr_contract_names[config->contract],
		     (unsigned long long)config->seed, config->size, config->local_size,
		     kcr_link_names[config->link], kcr_algo_names[config->algo],
		     config->direct_max, config->lane_depth, config->lane_bytes,
		     config->board_depth, config->board_bytes,
		     config->wires_max, config->wires_from, config->mesh_depth,
		     kcr_connect_names[config->connect]);
	if (n < 0 || n >= (int)sizeof(card->text))
		return kcr_fail(NULL, -EINVAL, "the card does not fit");
	return card_parse(card);
}

/* Read the fields out of card->text. Returns 0, or -EBADMSG. */
int card_parse(struct card *card)
{
	const char *agreed = strstr(card->text, "\nagreed\n");

	if (!agreed ||
	    sscanf(card->text,
		   "kcollring-card 1 host %64s boot %39s pid %d module %d id %32[0-9a-f] key %32[0-9a-f] incarnation %32[0-9a-f]",
		   card->host, card->boot, &card->pid, &card->has_module,
		   card->id, card->key, card->incarnation) != 7 ||
	    strlen(card->id) != 32 || strlen(card->key) != 32 ||
	    strlen(card->incarnation) != 32)
		return -EBADMSG;
	card->agreed = agreed + strlen("\nagreed\n");
	return parse_wires(card);
}

/* One line of each text; both move on. */
static void take_line(const char **at, char *line, size_t size)
{
	size_t n = strcspn(*at, "\n");

	snprintf(line, size, "%.*s", (int)n, *at);
	*at += n + ((*at)[n] == '\n');
}

/* Do two ranks run in one boot of one node? */
bool card_same_node(const struct card *a, const struct card *b)
{
	return !strcmp(a->boot, b->boot);
}

/**
 * card_compare() - is a rank's card what rank 0's is, where it must be?
 * @first: rank 0's
 * @rank: the other rank
 * @card: its card
 *
 * Returns 0, or -EINVAL with a sentence that names the rank, its host, the field and
 * both values.
 */
int card_compare(const struct card *first, int rank, const struct card *card)
{
	const char *a = first->agreed, *b = card->agreed;
	char left[160], right[160];

	while (*a || *b) {
		int name;

		take_line(&a, left, sizeof(left));
		take_line(&b, right, sizeof(right));
		if (!strcmp(left, right))
			continue;
		name = strcspn(right, " ");
		return kcr_fail(NULL, -EINVAL,
				"ranks disagree on %.*s: rank %d (host %s, pid %d) has \"%s\", rank 0 (host %s, pid %d) has \"%s\"",
				name, right, rank, card->host, card->pid,
				right[name] ? right + name + 1 : right,
				first->host, first->pid,
				left[strcspn(left, " ")] ?
				left + strcspn(left, " ") + 1 : left);
	}
	return 0;
}
