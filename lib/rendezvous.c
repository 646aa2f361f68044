// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The ways to meet, and the choice between them, which the place makes: a directory,
 * or a port of rank 0's node.
 */
#include <string.h>
#include <unistd.h>
#include "kcr.h"
#include "limits.h"
#include "link.h"
#include "rendezvous.h"

static bool is_tcp(const struct kcr_config *config)
{
	return !strncmp(config->rendezvous, "tcp:", 4);
}

/**
 * rendezvous_open() - meet the other ranks and compare cards
 * @config: this rank's configuration; must live until rendezvous_settle()
 * @has_module: it can use the module
 * @rv: the rendezvous, to be closed by rendezvous_close()
 */
int rendezvous_open(const struct kcr_config *config, bool has_module,
		    struct rendezvous **rv)
{
	return is_tcp(config) ? rendezvous_tcp_open(config, has_module, rv) :
	       rendezvous_file_open(config, has_module, rv);
}

/**
 * rendezvous_refuse() - tell the ranks that wait for this one that it cannot come
 * @config: a configuration that failed config_check()
 * @error: with what; kcr_error(NULL) has the sentence
 *
 * Returns @error, and leaves the sentence in kcr_error(NULL).
 */
int rendezvous_refuse(const struct kcr_config *config, int error)
{
	struct kcr_config sane = *config;
	char sentence[KCR_ERROR_BYTES], host[65] = "";

	if (config->struct_size != sizeof(*config) || !config->rendezvous ||
	    (config->size == 1 && !config->rank))
		return error;
	gethostname(host, sizeof(host) - 1);
	snprintf(sentence, sizeof(sentence), "rank %d (host %s, pid %d): %s",
		 config->rank, host, getpid(), kcr_error(NULL));
	sane.rendezvous_ms = REFUSE_MS;
	/* Its place may be what is wrong. Only rank 0 leads. */
	if (config->size < 1 || config->size > KCR_RANKS_MAX)
		sane.size = 1;
	/* What is right stays: else the ranks take it for a disagreement. */
	if (config->link > KCR_LINK_MESH)
		sane.link = KCR_LINK_AUTO;
	if (config->algo > KCR_ALGO_CHAIN)
		sane.algo = KCR_ALGO_AUTO;
	if (config->contract > KCR_ANY_ORDER)
		sane.contract = KCR_FIXED_ORDER;
	if (config->connect > KCR_CONNECT_LAZY)
		sane.connect = KCR_CONNECT_AUTO;
	sane.wires = NULL;
	if (is_tcp(config))
		rendezvous_tcp_refuse(&sane, error, sentence);
	else
		rendezvous_file_refuse(&sane, error, sentence);
	return kcr_fail(NULL, error, "%s", sentence);
}
