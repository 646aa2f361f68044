// SPDX-License-Identifier: GPL-2.0
/*
 * kcr-info: what the library and the module are and what they hold
 *
 * Everything is first gathered as one JSON value. The text for people is
 * printed from the same value, so the two cannot tell different things.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <kcollring.h>
#include <linux/kcollring.h>

#define DEVICE		"/dev/kcollring"
#define DEVICE_GROUP	"kcollring"
#define MODULE_SYSFS	"/sys/module/kcollring"

/* A library's code for an operation, as in struct kcr_claim. */
static const char *const kinds[] = {
	"nothing", "allreduce", "barrier", "reduce-scatter", "all-gather",
	"broadcast", "any", "message",
};

/* What of a claim says something: nothing is reduced in an all-gather. */
static bool claims_reduction(uint32_t kind)
{
	return kind == 1 || kind == 3;
}

static bool claims_data(uint32_t kind)
{
	return claims_reduction(kind) || kind == 4 || kind == 5 || kind == 7;
}

static const char *const states[] = { "absent", "joined", "left", "dead" };

static const struct {
	uint64_t bit;
	const char *name;
} features[] = {
	{ KCR_FEATURE_URING, "uring" },
	{ KCR_FEATURE_URING_CANCEL, "uring-cancel" },
	{ KCR_FEATURE_MESH, "mesh" },
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static const char *name_of(const char *const *names, size_t n, uint32_t code)
{
	return code < n ? names[code] : "unknown";
}

static json_t *sentence(const char *format, ...)
	__attribute__((format(printf, 1, 2)));

static json_t *sentence(const char *format, ...)
{
	json_t *text;
	va_list args;

	va_start(args, format);
	text = json_vsprintf(format, args);
	va_end(args);
	return text;
}

/* The device */

/* Why the device cannot be opened, in words; @error is open's. */
static json_t *explain(int error)
{
	struct stat st;
	struct group *group;
	const char *name = DEVICE_GROUP;

	if (error == EACCES || error == EPERM) {
		if (!stat(DEVICE, &st) && st.st_gid) {
			/* cppcheck-suppress getgrgidCalled; one thread */
			group = getgrgid(st.st_gid);
			if (group)
				name = group->gr_name;
		}
		return sentence("no permission for " DEVICE ": it is for root and group %s (usermod -aG %s USER, then log in again)",
				name, name);
	}
	if (error == ENOENT || error == ENODEV || error == ENXIO) {
		if (!access(MODULE_SYSFS, F_OK))
			return sentence("loaded, but there is no " DEVICE " (is udev or devtmpfs at work in here?)");
		return sentence("not loaded (insmod kcollring.ko)");
	}
	return sentence(DEVICE ": %s", strerror(error));
}

/* The version is public, even where the device is not. */
static json_t *version_in_sysfs(void)
{
	char text[64];
	FILE *file = fopen(MODULE_SYSFS "/version", "re");
	bool read = file && fgets(text, sizeof(text), file);

	if (file)
		fclose(file);
	if (!read)
		return NULL;
	text[strcspn(text, "\n")] = 0;
	return json_string(text);
}

static json_t *feature_names(uint64_t bits)
{
	json_t *names = json_array();
	size_t i;

	for (i = 0; i < COUNT(features); i++) {
		if (bits & features[i].bit)
			json_array_append_new(names, json_string(features[i].name));
		bits &= ~features[i].bit;
	}
	if (bits)
		json_array_append_new(names, sentence("0x%llx", (unsigned long long)bits));
	return names;
}

static json_t *quota(uint64_t used, uint64_t most)
{
	return json_pack("{s:I, s:I}", "used", (json_int_t)used,
			 "max", (json_int_t)most);
}

static json_t *describe_query(const struct kcr_query *query)
{
	return json_pack("{s:b, s:s#, s:i, s:o, s:{s:i, s:i, s:i}, s:{s:o, s:o, s:{s:i}}}",
			 "loaded", 1,
			 "version", (const char *)query->version,
			 (int)strnlen((const char *)query->version, sizeof(query->version)),
			 "abi", (int)query->abi_version,
			 "features", feature_names(query->features),
			 "limits",
			 "ranks", (int)query->max_ranks,
			 "windows", (int)query->max_windows,
			 "lanes", (int)query->max_lanes,
			 "quotas",
			 "members", quota(query->members, query->max_members),
			 "pages", quota(query->pages, query->max_pages),
			 "parked", "max", (int)query->max_parked);
}

/* @fd is the device, or the negative errno of its open. */
static json_t *describe_module(int fd)
{
	struct kcr_query query = { .size = sizeof(query) };
	json_t *module, *problem;

	if (fd >= 0 && !ioctl(fd, KCR_IOCTL_QUERY, &query))
		return describe_query(&query);
	problem = fd < 0 ? explain(-fd) :
		sentence(DEVICE " refuses to be queried: %s", strerror(errno));
	module = json_pack("{s:b, s:o}",
			   "loaded", !access(MODULE_SYSFS, F_OK),
			   "problem", problem);
	if (json_is_true(json_object_get(module, "loaded")))
		json_object_set_new(module, "version", version_in_sysfs());
	return module;
}

/* Worlds */

static json_t *describe_claim(const struct kcr_info *info)
{
	const struct kcr_claim *claim = &info->claim;
	const char *dtype = kcr_dtype_name((enum kcr_dtype)(claim->detail >> 8 & 0xff));
	const char *op = kcr_op_name((enum kcr_op)(claim->detail & 0xff));
	json_t *value;

	if (!claim->number)
		return json_null();
	value = json_pack("{s:s, s:i, s:I, s:f}",
			  "kind", name_of(kinds, COUNT(kinds), claim->kind),
			  "code", (int)claim->kind,
			  "number", (json_int_t)claim->number,
			  "seconds", (double)info->age_ns / 1e9);
	if (claims_data(claim->kind)) {
		json_object_set_new(value, "dtype", json_string(dtype ? dtype : "unknown"));
		json_object_set_new(value, "count", json_integer((json_int_t)claim->count));
	}
	if (claims_reduction(claim->kind))
		json_object_set_new(value, "op", json_string(op ? op : "unknown"));
	if (claim->kind == 5)
		json_object_set_new(value, "root", json_integer(claim->detail >> 16));
	if (claim->kind == 7)
		json_object_set_new(value, "peer", json_integer(claim->detail >> 16));
	return value;
}

static json_t *describe_member(const struct kcr_info *info)
{
	return json_pack("{s:i, s:s, s:I, s:i, s:I, s:i, s:I, s:o}",
			 "rank", (int)info->rank,
			 "state", name_of(states, COUNT(states), info->state),
			 "uid", (json_int_t)info->uid,
			 "pid", (int)info->pid,
			 "pages", (json_int_t)info->pages,
			 "parked", (int)info->parked,
			 "events", (json_int_t)info->events,
			 "claim", describe_claim(info));
}

static json_t *describe_cause(uint64_t cause)
{
	const char *name = strerrorname_np(KCR_CAUSE_ERROR(cause));

	if (!cause)
		return json_null();
	return json_pack("{s:i, s:i, s:s, s:s}",
			 "rank", (int)KCR_CAUSE_RANK(cause),
			 "errno", KCR_CAUSE_ERROR(cause),
			 "name", name ? name : "?",
			 "text", strerror(KCR_CAUSE_ERROR(cause)));
}

static json_t *describe_world(const struct kcr_info *info)
{
	char id[33];
	int i;

	for (i = 0; i < 16; i++)
		sprintf(id + 2 * i, "%02x", info->id[i]);
	return json_pack("{s:I, s:s, s:i, s:o, s:[]}",
			 "world", (json_int_t)info->world,
			 "id", id,
			 "ranks", (int)info->ranks,
			 "failed", describe_cause(info->cause),
			 "members");
}

/* NULL with errno if the module does not answer. */
static json_t *describe_worlds(int fd)
{
	struct kcr_info info = { .size = sizeof(info) };
	json_t *worlds = json_array(), *world = NULL;
	uint64_t serial = 0;

	while (!ioctl(fd, KCR_IOCTL_INFO, &info)) {
		if (!world || info.world != serial) {
			serial = info.world;
			world = describe_world(&info);
			json_array_append_new(worlds, world);
		}
		json_array_append_new(json_object_get(world, "members"),
				      describe_member(&info));
	}
	if (errno == ENOENT)
		return worlds;
	json_decref(worlds);
	return NULL;
}

/* Text for people */

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "?";
}

static long long number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static void print_quota(const char *name, const json_t *value, size_t unit)
{
	long long used = number_of(value, "used"), most = number_of(value, "max");

	printf("%-10s %lld of %lld used by this user", name, used, most);
	if (unit)
		printf(" (%.1f of %.1f MiB)", (double)used * (double)unit / 1048576,
		       (double)most * (double)unit / 1048576);
	putchar('\n');
}

static void print_query(const json_t *module)
{
	const json_t *limits = json_object_get(module, "limits");
	const json_t *quotas = json_object_get(module, "quotas");
	const json_t *name;
	size_t i;

	printf("module:    %s, ABI %lld\n", text_of(module, "version"),
	       number_of(module, "abi"));
	printf("features: ");
	json_array_foreach(json_object_get(module, "features"), i, name)
		printf(" %s", json_string_value(name));
	printf("\nlimits:    %lld ranks and %lld windows a world, %lld lanes a window\n",
	       number_of(limits, "ranks"), number_of(limits, "windows"),
	       number_of(limits, "lanes"));
	print_quota("members:", json_object_get(quotas, "members"), 0);
	print_quota("pages:", json_object_get(quotas, "pages"),
		    (size_t)sysconf(_SC_PAGESIZE));
	printf("parked:    at most %lld commands a member\n",
	       number_of(json_object_get(quotas, "parked"), "max"));
}

static void print_all(const json_t *all)
{
	const json_t *module = json_object_get(all, "module");

	printf("library:   %s, ABI %d\n",
	       text_of(json_object_get(all, "library"), "version"), KCR_ABI_VERSION);
	if (!json_object_get(module, "problem")) {
		print_query(module);
		return;
	}
	printf("module:    ");
	if (json_object_get(module, "version"))
		printf("%s, ", text_of(module, "version"));
	puts(text_of(module, "problem"));
}

static void print_claim(const json_t *claim)
{
	if (!json_is_object(claim))
		return;
	printf("  claims %s #%lld", text_of(claim, "kind"), number_of(claim, "number"));
	if (json_object_get(claim, "dtype"))
		printf(" %s", text_of(claim, "dtype"));
	if (json_object_get(claim, "op"))
		printf(" %s", text_of(claim, "op"));
	if (json_object_get(claim, "count"))
		printf(" %lld", number_of(claim, "count"));
	if (json_object_get(claim, "root"))
		printf(" root %lld", number_of(claim, "root"));
	if (json_object_get(claim, "peer"))
		printf(" with rank %lld", number_of(claim, "peer"));
	printf(" since %.1f s", json_real_value(json_object_get(claim, "seconds")));
}

static void print_member(const json_t *member)
{
	printf("  rank %-3lld %-6s  uid %lld  pid %lld  pages %lld  parked %lld",
	       number_of(member, "rank"), text_of(member, "state"),
	       number_of(member, "uid"), number_of(member, "pid"),
	       number_of(member, "pages"), number_of(member, "parked"));
	print_claim(json_object_get(member, "claim"));
	putchar('\n');
}

static void print_world(const json_t *world)
{
	const json_t *failed = json_object_get(world, "failed");
	const json_t *members = json_object_get(world, "members");
	long long absent = number_of(world, "ranks") - (long long)json_array_size(members);
	const json_t *member;
	size_t i;

	printf("world %lld  id %s  ranks %lld", number_of(world, "world"),
	       text_of(world, "id"), number_of(world, "ranks"));
	if (absent > 0)
		printf("  not here yet %lld", absent);
	if (json_is_object(failed))
		printf("  failed: rank %lld, %s (%s)", number_of(failed, "rank"),
		       text_of(failed, "text"), text_of(failed, "name"));
	putchar('\n');
	json_array_foreach(members, i, member)
		print_member(member);
}

static void print_worlds(const json_t *worlds)
{
	const json_t *world;
	size_t i;

	json_array_foreach(worlds, i, world)
		print_world(world);
	if (!i)
		puts("no worlds");
}

/* Commands */

static int print_json(const json_t *value)
{
	if (json_dumpf(value, stdout, JSON_INDENT(2)))
		return 1;
	putchar('\n');
	return 0;
}

static int show_all(int fd, bool as_json)
{
	json_t *worlds = fd >= 0 ? describe_worlds(fd) : NULL;
	json_t *all = json_pack("{s:{s:s, s:i}, s:o}",
				"library", "version", kcr_version(), "abi", KCR_ABI_VERSION,
				"module", describe_module(fd));
	int status = 0;

	json_object_set_new(all, "worlds", worlds ? worlds : json_null());
	if (as_json)
		status = print_json(all);
	else
		print_all(all);
	json_decref(all);
	return status;
}

static int show_worlds(int fd, bool as_json)
{
	json_t *worlds, *problem;
	int status = 0;

	if (fd < 0) {
		problem = explain(-fd);
		fprintf(stderr, "kcr-info: module: %s\n", json_string_value(problem));
		json_decref(problem);
		return 1;
	}
	worlds = describe_worlds(fd);
	if (!worlds) {
		fprintf(stderr, "kcr-info: " DEVICE " does not tell its worlds: %s\n",
			strerror(errno));
		return 1;
	}
	if (as_json)
		status = print_json(worlds);
	else
		print_worlds(worlds);
	json_decref(worlds);
	return status;
}

static const char usage_text[] =
"Usage: kcr-info [--json] [worlds]\n"
"Print the versions, features, quotas and use of kcollring.\n"
"\n"
"  worlds      list the worlds of this user (root: of all) and their members.\n"
"              What a member claims to do is its own word, unchecked\n"
"  -j, --json  as JSON\n"
"  -h, --help  this text\n"
"  --version   the version\n"
"\n"
"The exit status of 'kcr-info worlds' is 1 if the module cannot be asked.\n";

static const struct option options[] = {
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ "version", no_argument, NULL, 'v' },
	{ NULL, 0, NULL, 0 },
};

static bool parse(int argc, char **argv, bool *as_json)
{
	int option;

	while ((option = getopt_long(argc, argv, "jh", options, NULL)) != -1) {
		switch (option) {
		case 'j':
			*as_json = true;
			break;
		case 'h':
			fputs(usage_text, stdout);
			exit(0);
		case 'v':
			puts("kcr-info " KCR_VERSION);
			exit(0);
		default:
			return false;
		}
	}
	return argc - optind <= 1 &&
	       (optind == argc || !strcmp(argv[optind], "worlds"));
}

int main(int argc, char **argv)
{
	bool as_json = false;
	int fd, status;

	if (!parse(argc, argv, &as_json)) {
		fputs(usage_text, stderr);
		return 2;
	}
	fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		fd = -errno;
	status = optind < argc ? show_worlds(fd, as_json) : show_all(fd, as_json);
	if (fflush(stdout) || ferror(stdout)) {
		perror("kcr-info: cannot write");
		return 1;
	}
	return status;
}
