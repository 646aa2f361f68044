// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Worlds: coming into being, going, and what can be asked of them.
 *
 * A world owns its rendezvous, whose lock shows that this rank lives, and its
 * link. Both are NULL in a world of one rank.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "coll.h"
#include "rendezvous.h"
#include "submit.h"

/* Can this rank use the module? The answer is for its card. */
static bool module_works(const struct kcr_config *config)
{
	int fd;

	if (config->link == KCR_LINK_SHM)
		return false;
	fd = submit_open_device();
	if (fd < 0) {
		kcr_debug(config, "%s", kcr_error(NULL));
		return false;
	}
	close(fd);
	return true;
}

/* Meet, connect, and see that all have: after that nobody needs the files. */
static int come_together(struct kcr_world *w)
{
	int err;

	err = rendezvous_open(&w->config, module_works(&w->config),
			      &w->rendezvous);
	if (err)
		return err;
	err = link_create(w, w->rendezvous);
	if (err)
		return rendezvous_fail(w->rendezvous, err);
	/* Number 0: a peer that is through may be in number 1 already. */
	w->operation = -1;
	err = coll_barrier(w);
	/* Who could not connect has told why, and then looks dead. */
	if (err)
		return rendezvous_error(w->rendezvous) ?:
		       kcr_fail(NULL, err, "while the ranks came together: %s",
				w->error);
	rendezvous_settle(w->rendezvous);
	return 0;
}

static void free_world(struct kcr_world *w)
{
	if (w->link)
		link_destroy(w->link);
	rendezvous_close(w->rendezvous);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

KCR_PUBLIC int kcr_world_create(const struct kcr_config *config,
				struct kcr_world **world)
{
	struct kcr_config from_env;
	struct kcr_world *w;
	int err;

	if (!world)
		return kcr_fail(NULL, -EINVAL, "world is NULL");
	*world = NULL;
	if (!config) {
		kcr_config_init(&from_env);
		config = &from_env;
	}
	err = config_check(config);
	if (err)
		return rendezvous_refuse(config, err);
	w = calloc(1, sizeof(*w));
	if (!w)
		return kcr_fail(NULL, -ENOMEM, "no memory for a world");
	pthread_mutex_init(&w->lock, NULL);
	w->config = *config;
	w->fork_generation = process_fork_generation();
	if (config->size > 1)
		err = come_together(w);
	if (err) {
		free_world(w);
		return err;
	}
	kcr_fail(NULL, 0, "%s", "");
	*world = w;
	return 0;
}

KCR_PUBLIC int kcr_world_destroy(struct kcr_world *w)
{
	if (!w)
		return 0;
	if (w->fork_generation != process_fork_generation()) {
		/* Its mappings were not inherited; what is there now is not ours. */
		free(w);
		return kcr_fail(NULL, -EPERM,
				"this world belongs to the process that made it, not to a forked child");
	}
	if (w->link)
		w->link->carrier->ops->leave(w->link);
	free_world(w);
	return 0;
}

KCR_PUBLIC int kcr_rank(const struct kcr_world *w)
{
	return w ? w->config.rank : -EINVAL;
}

KCR_PUBLIC int kcr_size(const struct kcr_world *w)
{
	return w ? w->config.size : -EINVAL;
}

KCR_PUBLIC int kcr_local_rank(const struct kcr_world *w)
{
	return w ? w->config.local_rank : -EINVAL;
}

KCR_PUBLIC int kcr_local_size(const struct kcr_world *w)
{
	return w ? w->config.local_size : -EINVAL;
}

KCR_PUBLIC const char *kcr_link_name(const struct kcr_world *w)
{
	return w && w->link ? w->link->carrier->ops->name : "self";
}
