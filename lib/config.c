// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Configuration: defaults, the environment, and what is a sensible value.
 *
 * kcr_config_init() returns nothing, so a variable that cannot be understood
 * is remembered per thread and reported by kcr_world_create().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "fold.h"
#include "kcr.h"
#include "limits.h"
#include "link.h"
#include "wires.h"

static __thread char env_error[KCR_ERROR_BYTES];

static void bad_env(const char *name, const char *value, const char *want)
{
	if (!env_error[0])
		snprintf(env_error, sizeof(env_error), "%s is \"%s\", must be %s",
			 name, value, want);
}

/*
 * A whole number of @min to @max; left alone if the variable is not set.
 * Returns false if it cannot be understood.
 */
static bool env_int(const char *name, int64_t min, int64_t max, int64_t *value)
{
	const char *text = getenv(name);
	char want[80], *end;
	long long n;

	if (!text || !*text)
		return true;
	errno = 0;
	n = strtoll(text, &end, 10);
	if (errno || *end || end == text || n < min || n > max) {
		snprintf(want, sizeof(want), "a number from %lld to %lld",
			 (long long)min, (long long)max);
		bad_env(name, text, want);
		return false;
	}
	*value = n;
	return true;
}

static bool env_number(const char *name, int64_t min, int64_t max, int *value)
{
	int64_t n = *value;
	bool understood = env_int(name, min, max, &n);

	*value = (int)n;
	return understood;
}

static void env_u32(const char *name, int64_t min, int64_t max, uint32_t *value)
{
	int64_t n = *value;

	env_int(name, min, max, &n);
	*value = (uint32_t)n;
}

/* Seconds, with a fraction if wanted, into milliseconds, at least @min of them. */
static void env_seconds(const char *name, uint64_t min, uint64_t *ms)
{
	const char *text = getenv(name);
	char *end;
	double s;

	if (!text || !*text)
		return;
	s = strtod(text, &end);
	if (*end || end == text ||
	    !(s * 1000 >= min && s <= MAX_TIMEOUT_MS / 1000))
		bad_env(name, text, min ? "seconds, more than 0, at most a week" :
					  "seconds, at most a week");
	else
		*ms = (uint64_t)(s * 1000 + 0.5);
}

static void env_name(const char *name, const char * const names[], int *value)
{
	const char *text = getenv(name);
	char want[80] = "";
	int index;

	if (!text || !*text)
		return;
	index = kcr_name_index(names, text);
	if (index >= 0) {
		*value = index;
		return;
	}
	for (int i = 0; names[i]; i++) {
		strcat(want, i ? ", " : "one of ");
		strcat(want, names[i]);
	}
	bad_env(name, text, want);
}

static const char *env_text(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
}

/*
 * Where torchrun's ranks meet, or NULL. A launcher with a place gives the ranks their
 * numbers, too, unless they have others.
 */
static const char *launchers_place(void)
{
	static __thread char place[300];
	const char *host = env_text("MASTER_ADDR");
	const char *port = env_text("MASTER_PORT");
	bool bare = host && strchr(host, ':') && *host != '[';

	if (!host || !port)
		return NULL;
	snprintf(place, sizeof(place), "tcp:%s%.256s%s:%.16s", bare ? "[" : "",
		 host, bare ? "]" : "", port);
	return place;
}

/* Who does not know its place must not be taken for another rank. */
static void read_numbers(struct kcr_config *config, bool launcher)
{
	const char *size = launcher ? "WORLD_SIZE" : "KCR_SIZE";
	const char *rank = launcher ? "RANK" : "KCR_RANK";

	if (!env_number(size, 1, KCR_RANKS_MAX, &config->size))
		config->size = -1;
	if (!env_number(rank, 0, KCR_RANKS_MAX - 1, &config->rank))
		config->rank = -1;
	config->local_rank = config->rank;
	config->local_size = config->size;
	if (launcher) {
		env_number("LOCAL_RANK", 0, KCR_RANKS_MAX - 1, &config->local_rank);
		env_number("LOCAL_WORLD_SIZE", 1, KCR_RANKS_MAX,
			   &config->local_size);
	}
	env_number("KCR_LOCAL_RANK", 0, KCR_RANKS_MAX - 1, &config->local_rank);
	env_number("KCR_LOCAL_SIZE", 1, KCR_RANKS_MAX, &config->local_size);
}

KCR_PUBLIC void kcr_config_init(struct kcr_config *config)
{
	int link = KCR_LINK_AUTO, algo = KCR_ALGO_AUTO;
	int contract = KCR_FIXED_ORDER, connect = KCR_CONNECT_AUTO;
	int64_t direct_max = DEFAULT_DIRECT_MAX, seed = 0;
	int64_t wires_from = DEFAULT_WIRES_FROM;
	bool launched = false;

	env_error[0] = 0;
	*config = (struct kcr_config){
		.struct_size = sizeof(*config),
		.size = 1,
		.lane_depth = DEFAULT_LANE_DEPTH,
		.lane_bytes = DEFAULT_LANE_BYTES,
		.board_depth = DEFAULT_BOARD_DEPTH,
		.board_bytes = DEFAULT_BOARD_BYTES,
		.spin = -1,
		.yield = -1,
		.warn_ms = DEFAULT_WARN_MS,
		.timeout_ms = DEFAULT_TIMEOUT_MS,
		.rendezvous_ms = DEFAULT_RENDEZVOUS_MS,
		.rendezvous = env_text("KCR_RENDEZVOUS"),
		.job = env_text("KCR_JOB"),
		.wires = env_text("KCR_WIRES"),
		.wires_max = KCR_MAX_WIRES,
		.mesh_depth = DEFAULT_MESH_DEPTH,
	};
	if (!config->rendezvous) {
		config->rendezvous = launchers_place();
		launched = config->rendezvous;
	}
	read_numbers(config, launched && !env_text("KCR_RANK") &&
		     !env_text("KCR_SIZE"));
	env_name("KCR_LINK", kcr_link_names, &link);
	config->link = link;
	env_name("KCR_ALGO", kcr_algo_names, &algo);
	config->algo = algo;
	env_name("KCR_CONTRACT", kcr_contract_names, &contract);
	config->contract = contract;
	env_int("KCR_SEED", 0, INT64_MAX, &seed);
	config->seed = seed;
	env_int("KCR_DIRECT_MAX", 0, INT64_MAX, &direct_max);
	config->direct_max = (size_t)direct_max;
	env_u32("KCR_LANE_DEPTH", MIN_DEPTH, MAX_DEPTH, &config->lane_depth);
	env_u32("KCR_LANE_BYTES", MIN_SLOT_BYTES, MAX_SLOT_BYTES,
		&config->lane_bytes);
	env_u32("KCR_BOARD_DEPTH", MIN_DEPTH, MAX_DEPTH, &config->board_depth);
	env_u32("KCR_BOARD_BYTES", MIN_SLOT_BYTES, MAX_SLOT_BYTES,
		&config->board_bytes);
	env_int("KCR_SPIN", 0, INT64_MAX, &config->spin);
	env_int("KCR_YIELD", 0, INT64_MAX, &config->yield);
	env_seconds("KCR_WARN", 0, &config->warn_ms);
	env_seconds("KCR_TIMEOUT", 1, &config->timeout_ms);
	env_seconds("KCR_RENDEZVOUS_TIMEOUT", 1, &config->rendezvous_ms);
	env_number("KCR_PROGRESS_THREAD", 0, 1, &config->progress_thread);
	env_number("KCR_DEBUG", 0, 9, &config->debug);
	env_u32("KCR_WIRES_MAX", 1, KCR_MAX_WIRES, &config->wires_max);
	env_int("KCR_WIRES_FROM", 0, INT64_MAX, &wires_from);
	config->wires_from = (size_t)wires_from;
	env_u32("KCR_MESH_DEPTH", 1, MAX_MESH_DEPTH, &config->mesh_depth);
	env_name("KCR_CONNECT", kcr_connect_names, &connect);
	config->connect = connect;
}

static int check_range(const char *field, int64_t value, int64_t min,
		       int64_t max)
{
	if (value >= min && value <= max)
		return 0;
	return kcr_fail(NULL, -EINVAL, "%s is %lld, must be %lld to %lld",
			field, (long long)value, (long long)min,
			(long long)max);
}

/**
 * config_check() - every field that can be wrong by itself
 * @config: as the caller gave it
 *
 * Returns 0, or -EINVAL with a sentence that names the field, its value and
 * what it must be.
 */
int config_check(const struct kcr_config *config)
{
	const struct {
		const char *field;
		int64_t value, min, max;
	} ranges[] = {
		{ "size", config->size, 1, KCR_RANKS_MAX },
		{ "rank", config->rank, 0, (int64_t)config->size - 1 },
		{ "local_size", config->local_size, 1, config->size },
		{ "local_rank", config->local_rank, 0,
		  (int64_t)config->local_size - 1 },
		{ "link", config->link, KCR_LINK_AUTO, KCR_LINK_MESH },
		{ "algo", config->algo, KCR_ALGO_AUTO, KCR_ALGO_CHAIN },
		{ "contract", config->contract, KCR_FIXED_ORDER, KCR_ANY_ORDER },
		{ "progress_thread", config->progress_thread, 0, 1 },
		{ "lane_depth", config->lane_depth, MIN_DEPTH, MAX_DEPTH },
		{ "lane_bytes", config->lane_bytes, MIN_SLOT_BYTES, MAX_SLOT_BYTES },
		{ "board_depth", config->board_depth, MIN_DEPTH, MAX_DEPTH },
		{ "board_bytes", config->board_bytes, MIN_SLOT_BYTES, MAX_SLOT_BYTES },
		{ "warn_ms", config->warn_ms, 0, MAX_TIMEOUT_MS },
		{ "timeout_ms", config->timeout_ms, 1, MAX_TIMEOUT_MS },
		{ "rendezvous_ms", config->rendezvous_ms, 1, MAX_TIMEOUT_MS },
		{ "wires_max", config->wires_max, 1, KCR_MAX_WIRES },
		{ "mesh_depth", config->mesh_depth, 1, MAX_MESH_DEPTH },
		{ "connect", config->connect, KCR_CONNECT_AUTO, KCR_CONNECT_LAZY },
	};
	int err;

	if (config->struct_size != sizeof(*config))
		return kcr_fail(NULL, -EINVAL,
				"struct_size is %zu, must be %zu: was kcr_config_init() called?",
				config->struct_size, sizeof(*config));
	if (env_error[0])
		return kcr_fail(NULL, -EINVAL, "%s", env_error);
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		err = check_range(ranges[i].field, ranges[i].value,
				  ranges[i].min, ranges[i].max);
		if (err)
			return err;
	}
	if (!config->copy_in != !config->copy_out)
		return kcr_fail(NULL, -EINVAL,
				"copy_%s is set and copy_%s is not: both or none",
				config->copy_in ? "in" : "out",
				config->copy_in ? "out" : "in");
	if (config->link == KCR_LINK_MODULE && !carrier_module_takes(config->size))
		return kcr_fail(NULL, -EINVAL,
				"size is %d and link is module, which has %d lanes and would need %d: use KCR_LINK=shm",
				config->size, KCR_MAX_LANES,
				config->size * (config->size - 1));
	err = fold_form_check();
	if (err)
		return err;
	return 0;
}

/* The wires that were asked for are there. */
int config_check_wires(const struct kcr_config *config)
{
	struct wire_list list;

	if (config->size == 1 || config->link == KCR_LINK_SHM || !config->wires)
		return 0;
	return wires_find(config->wires, &list);
}

/* What only a world that meets at a place needs. */
int config_check_place(const struct kcr_config *config)
{
	if (config->size > 1 && !config->rendezvous)
		return kcr_fail(NULL, -EINVAL,
				"rendezvous is not set and size is %d: start with kcr-run, or set KCR_RENDEZVOUS=file:/directory or tcp:host:port",
				config->size);
	return 0;
}
