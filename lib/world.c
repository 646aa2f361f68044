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
#include "ring.h"
#include "submit.h"
#include "world.h"

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

/*
 * Who could not connect has told why, and then looks dead. If nobody has, this rank does,
 * before its memory goes: others may be about to connect to it.
 */
static int come_apart(struct kcr_world *w, int err)
{
	int first = rendezvous_error(w->rendezvous, true);

	if (first)
		return first;
	kcr_fail(NULL, err, "while the ranks came together: %s", w->error);
	return rendezvous_fail(w->rendezvous, err);
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
	if (err)
		return come_apart(w, err);
	rendezvous_settle(w->rendezvous);
	return 0;
}

/* A world that is not connected yet. */
int world_alloc(const struct kcr_config *config, struct kcr_world **world)
{
	size_t slot = config->board_bytes > config->lane_bytes ?
		      config->board_bytes : config->lane_bytes;
	struct kcr_world *w = calloc(1, sizeof(*w));

	if (!w)
		goto no_memory;
	pthread_mutex_init(&w->lock, NULL);
	w->config = *config;
	w->fork_generation = process_fork_generation();
	snprintf(w->contract, sizeof(w->contract), "%s fold=%d size=%d",
		 kcr_contract_names[config->contract], KCR_FOLD_VERSION,
		 config->size);
	w->sends = calloc(config->size, sizeof(*w->sends));
	w->receives = calloc(config->size, sizeof(*w->receives));
	w->stage = malloc(slot);
	/* A partial result of 16-bit floats takes twice their room. */
	w->scratch = malloc(2 * slot);
	if (!w->sends || !w->receives || !w->stage || !w->scratch) {
		world_free(w);
		goto no_memory;
	}
	*world = w;
	return 0;
no_memory:
	return kcr_fail(NULL, -ENOMEM, "no memory for a world");
}

static void free_memory(struct kcr_world *w)
{
	free(w->sends);
	free(w->receives);
	free(w->stage);
	free(w->scratch);
	free(w);
}

void world_free(struct kcr_world *w)
{
	progress_thread_stop(w);
	request_orphan_all(w);
	ring_orphan_all(w);
	if (w->link)
		link_destroy(w->link);
	rendezvous_close(w->rendezvous);
	pthread_mutex_destroy(&w->lock);
	free_memory(w);
}

/* The last steps of a creation: the world is the caller's, or gone. */
static int hand_over(struct kcr_world *w, int err, struct kcr_world **world)
{
	if (!err && w->link && w->config.progress_thread)
		err = progress_thread_start(w);
	if (err) {
		world_free(w);
		return err;
	}
	kcr_fail(NULL, 0, "%s", "");
	*world = w;
	return 0;
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
	err = config_check(config) ?: config_check_place(config) ?:
	      config_check_wires(config);
	if (err)
		return rendezvous_refuse(config, err);
	err = world_alloc(config, &w);
	if (err)
		return err;
	if (config->size > 1)
		err = come_together(w);
	return hand_over(w, err, world);
}

/* Connect a part; every rank of the old world takes every step. */
static int connect_part(struct kcr_world *w, struct rendezvous *rv)
{
	int err = w && w->config.size > 1 ? link_create(w, rv) : 0;

	return rendezvous_agree(rv, err);
}

KCR_PUBLIC int kcr_world_split(struct kcr_world *old, int color, int key,
			       struct kcr_world **part)
{
	struct kcr_config config;
	struct rendezvous *rv;
	struct kcr_world *w = NULL;
	int err, made = 0;

	if (!part)
		return kcr_fail(old, -EINVAL, "part is NULL");
	*part = NULL;
	if (!old)
		return kcr_fail(NULL, -EINVAL, "world is NULL");
	if (old->emu && old->config.size > 1)
		return kcr_fail(old, -EOPNOTSUPP,
				"an emulated world cannot be split");
	config = old->config;
	err = rendezvous_split(old, color, key, &config, &rv);
	if (err)
		return err;
	if (color >= 0)
		made = world_alloc(&config, &w);
	if (w)
		w->rendezvous = rendezvous_get(rv);
	err = made ? rendezvous_agree(rv, made) : connect_part(w, rv);
	rendezvous_close(rv);
	if (err)
		kcr_fail(old, err, "%s", kcr_error(NULL));
	return w ? hand_over(w, err, part) : err;
}

KCR_PUBLIC int kcr_world_destroy(struct kcr_world *w)
{
	if (!w)
		return 0;
	if (w->emu)
		return kcr_fail(w, -EINVAL,
				"an emulated world goes with its emulator: kcr_emu_destroy()");
	if (w->fork_generation != process_fork_generation()) {
		/* Its mappings were not inherited; what is there now is not ours. */
		free_memory(w);
		return kcr_fail(NULL, -EPERM,
				"this world belongs to the process that made it, not to a forked child");
	}
	progress_thread_stop(w);
	if (w->link)
		link_leave(w->link);
	world_free(w);
	return 0;
}

KCR_PUBLIC const char *kcr_contract(const struct kcr_world *w)
{
	return w ? w->contract : "";
}

KCR_PUBLIC uint64_t kcr_seed(const struct kcr_world *w)
{
	return w ? w->config.seed : 0;
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
	return w && w->link ? link_name(w->link) : "self";
}
