/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the fuzzers have in common: what is kept, changed, tried again and made shorter
 *
 * Without options a fuzzer is a test: the programs of its folder, then random ones for
 * KCR_FUZZ_SECONDS (20). KCR_FUZZ_SEED repeats a run, as far as what runs at the same
 * time can be repeated. The options are for use by hand, see usage().
 *
 * Who includes this has before that struct program, with program_read_line(),
 * program_write(), program_change(), program_cut() and program_simpler(), and the
 * names TARGET, TARGET_CORPUS and TARGET_WELL; and has behind it the functions that
 * are declared here as target_*.
 */
#ifndef KCR_FUZZ_FUZZ_H
#define KCR_FUZZ_FUZZ_H

#include <dirent.h>
#include <getopt.h>
#include <limits.h>

#include "chance.h"
#include "coverage.h"
#include "mesh.h"

#define SECONDS		20
#define KEPT_MAX	4096
/* The last programs, for when the kernel does not survive. */
#define LAST		16
#define LOG_EVERY	64
/* How often what may depend on chance is tried when it is made shorter. */
#define TIMES		5

struct fuzz {
	double slow;
	__u64 seed;
	double seconds;
	__u64 programs;		/* most; 0: no end */
	const char *corpus;	/* where kept ones are */
	const char *last;	/* where the last ones are */
	struct coverage *coverage;
	struct chance chance;
	/* So far: */
	__u64 ran;
	int kept;
	struct program *keep[KEPT_MAX];
};

/* Why it cannot be done here, or NULL. */
static const char *target_missing(void);
/* 0 or an error. Opens the coverage. */
static int target_start(struct fuzz *f);
static void target_make(struct fuzz *f, struct program *p);
/* What is wrong after this program, or NULL. */
static const char *target_try(struct fuzz *f, struct program *p);
static bool target_is_well(struct fuzz *f);
static void target_end(struct fuzz *f);

static inline int program_save(const struct program *p, const char *path)
{
	FILE *f = fopen(path, "we");

	if (!f)
		return -errno;
	program_write(p, f);
	return fclose(f) ? -errno : 0;
}

static inline int program_read(struct program *p, const char *path)
{
	FILE *f = fopen(path, "re");
	char line[2048];
	int number = 0, err = 0;

	memset(p, 0, sizeof(*p));
	if (!f)
		return -errno;
	while (!err && fgets(line, sizeof(line), f)) {
		number++;
		line[strcspn(line, "#")] = 0;
		err = program_read_line(p, line);
	}
	fclose(f);
	if (!err && !p->n)
		err = -EINVAL;
	if (err)
		fprintf(stderr, "# %s:%d: not a step\n", path, number);
	return err;
}

static inline void usage(FILE *f)
{
	fputs("usage: " TARGET " [options]\n"
	      "\n"
	      "  --seed N         of the first program (default: random)\n"
	      "  --programs N     stop after so many\n"
	      "  --seconds N      stop after so long (default: 20)\n"
	      "  --corpus DIR     begin with its programs, and keep there which reach new code\n"
	      "  --last DIR       write each program there before it runs\n"
	      "  --replay FILE    run this program, --programs times\n"
	      "  --minimise FILE  make this program, which fails, shorter\n"
	      "\n"
	      "Without options it is a test, with its output in TAP.\n", f);
}

/* ---- one program ---- */

static inline bool kernel_has_complained(void)
{
	return !system("command -v kcr-dmesg-check > /dev/null") &&
		system("kcr-dmesg-check") != 0;
}

/* What is wrong after this program, or NULL. */
static inline const char *try(struct fuzz *f, struct program *p)
{
	const char *what;
	char path[PATH_MAX];

	if (f->last) {
		snprintf(path, sizeof(path), "%s/last-%llu", f->last, f->ran % LAST);
		program_save(p, path);
	}
	f->ran++;
	coverage_reset(f->coverage);
	what = target_try(f, p);
	if (!what && f->ran % LOG_EVERY == 0 && kernel_has_complained())
		what = "trouble in the kernel log";
	return what;
}

static inline void report(const struct fuzz *f, const struct program *p, const char *what)
{
	char path[PATH_MAX];

	printf("# found: %s, by program %llu of seed %#llx:\n", what, f->ran, f->seed);
	program_write(p, stdout);
	if (f->corpus) {
		snprintf(path, sizeof(path), "%s/found-%llx-%llu", f->corpus, f->seed,
			 f->ran);
		program_save(p, path);
	}
	fflush(stdout);
}

/* ---- many ---- */

static inline void keep(struct fuzz *f, const struct program *p)
{
	int at = f->kept < KEPT_MAX ? f->kept++ : (int)below(&f->chance, KEPT_MAX);

	if (!f->keep[at])
		f->keep[at] = malloc(sizeof(*p));
	if (!f->keep[at])
		abort();
	*f->keep[at] = *p;
}

/* Programs of a folder; not those that were found there. */
static inline int corpus_read(struct fuzz *f, const char *folder)
{
	struct dirent **names;
	int n = scandir(folder, &names, NULL, alphasort), read = 0;

	for (int i = 0; i < n; i++) {
		struct program p;
		char path[PATH_MAX];

		snprintf(path, sizeof(path), "%s/%s", folder, names[i]->d_name);
		if (names[i]->d_name[0] != '.' && strncmp(names[i]->d_name, "found-", 6) &&
		    f->kept < KEPT_MAX && !program_read(&p, path)) {
			keep(f, &p);
			read++;
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	return read;
}

static inline void next_program(struct fuzz *f, struct program *p)
{
	if (f->kept < 2 || one_in(&f->chance, 3)) {
		target_make(f, p);
		return;
	}
	*p = *f->keep[below(&f->chance, f->kept)];
	program_change(p, &f->chance, f->keep[below(&f->chance, f->kept)]);
}

/* Some for a while; what is wrong, or NULL. */
static inline const char *run_random(struct fuzz *f)
{
	double until = dev_now() + f->seconds, said = dev_now();
	const char *what = NULL;
	char path[PATH_MAX];
	struct program p;

	while (!what && dev_now() < until && (!f->programs || f->ran < f->programs)) {
		next_program(f, &p);
		what = try(f, &p);
		if (what) {
			report(f, &p, what);
		} else if (coverage_new(f->coverage)) {
			keep(f, &p);
			snprintf(path, sizeof(path), "%s/%llx-%llu", f->corpus ?: ".",
				 f->seed, f->ran);
			if (f->corpus)
				program_save(&p, path);
		}
		if (dev_now() > said + 60) {
			said = dev_now();
			printf("# %llu programs, %u edges, %d kept\n", f->ran,
			       f->coverage->edges, f->kept);
			fflush(stdout);
		}
	}
	printf("# %llu programs, %u edges, %d kept, seed %#llx%s\n", f->ran,
	       f->coverage->edges, f->kept, f->seed,
	       f->coverage->n ? "" : " (no KCOV: purely random)");
	return what;
}

static inline int replay(struct fuzz *f, const char *path)
{
	struct program original, p;
	const char *what;

	if (program_read(&original, path))
		return 2;
	do {
		p = original;
		what = try(f, &p);
	} while (!what && f->ran < f->programs);
	/* In any case, or it would be held against the next. */
	if (kernel_has_complained() && !what)
		what = "trouble in the kernel log";
	if (what)
		report(f, &p, what);
	else
		printf("# %llu times, nothing found\n", f->ran);
	return !!what;
}

/* ---- making one shorter ---- */

/* In a process of its own: what fails may spoil the next try. */
static inline bool still_fails(const char *self, const struct program *p, const char *path)
{
	char command[2 * PATH_MAX + 128];

	if (program_save(p, path))
		return false;
	snprintf(command, sizeof(command), "%s --programs %d --replay %s > /dev/null 2>&1",
		 self, TIMES, path);
	return WEXITSTATUS(system(command)) == 1;
}

static inline int minimise(const char *path)
{
	char self[PATH_MAX] = "", shorter[PATH_MAX];
	struct program p, less;
	int got;

	if (program_read(&p, path) || readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 2;
	snprintf(shorter, sizeof(shorter), "%s.shorter", path);
	if (!still_fails(self, &p, shorter)) {
		printf("# it does not fail\n");
		return 1;
	}
	for (int n = p.n / 2 ?: 1; n; n /= 2)
		for (int at = 0; at + n <= p.n;) {
			less = p;
			if (program_cut(&less, at, n) && still_fails(self, &less, shorter))
				p = less;
			else
				at += n;
		}
	for (int i = 0; less = p, (got = program_simpler(&less, i)) >= 0; i++)
		if (got && still_fails(self, &less, shorter))
			p = less;
	program_save(&p, shorter);
	program_write(&p, stdout);
	return 0;
}

/* ---- the start and the end ---- */

static inline void fuzz_init(struct fuzz *f)
{
	const char *seed = getenv("KCR_FUZZ_SEED");
	const char *seconds = getenv("KCR_FUZZ_SECONDS");

	f->slow = pace();
	f->seconds = seconds ? atof(seconds) : SECONDS * dev_scale();
	if (seed)
		f->seed = strtoull(seed, NULL, 0);
	else if (getrandom(&f->seed, sizeof(f->seed), 0) < 0)
		abort();
}

static inline int fuzz_start(struct fuzz *f)
{
	f->chance.state = f->seed;
	return target_start(f);
}

static inline const char *left_behind(const struct fuzz *f,
				      const struct dev_counters *before)
{
	const char *what = dev_left_behind(before);

	if (!what && !DEV_SOON(DEV_SETTLE * f->slow, !mesh_left()))
		what = mesh_left();
	return what;
}

/* The programs that come with it; what is wrong, or NULL. */
static inline const char *run_corpus(struct fuzz *f, struct dirent **names, int n)
{
	const char *what = NULL;

	for (int i = 0; i < n; i++) {
		char path[PATH_MAX];
		struct program p;

		if (names[i]->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), TARGET_CORPUS "/%s", names[i]->d_name);
		if (what) {
			/* What it left would be held against the next. */
			ksft_test_result_skip("%s: after a failure\n", path);
			continue;
		}
		what = program_read(&p, path) ? "not a program" : try(f, &p);
		if (what)
			ksft_print_msg("%s\n", what);
		ksft_test_result(!what, "%s\n", path);
		if (!what && coverage_new(f->coverage))
			keep(f, &p);
	}
	return what;
}

static inline int test(struct fuzz *f)
{
	const char *what, *why = target_missing();
	struct dev_counters before;
	struct dirent **names;
	int n = scandir(TARGET_CORPUS, &names, NULL, alphasort), files = 0;

	ksft_print_header();
	if (why)
		ksft_exit_skip("%s\n", why);
	for (int i = 0; i < n; i++)
		files += names[i]->d_name[0] != '.';
	ksft_set_plan(files + 3);
	ksft_print_msg("seed %#llx; repeat with KCR_FUZZ_SEED=%#llx\n", f->seed, f->seed);
	before = dev_counters();
	if (fuzz_start(f))
		ksft_exit_fail_msg("it cannot be started\n");
	what = run_corpus(f, names, n);
	if (!what)
		what = run_random(f);
	ksft_test_result(!what, "random programs\n");
	ksft_test_result(target_is_well(f), TARGET_WELL "\n");
	target_end(f);
	what = left_behind(f, &before);
	if (what)
		ksft_print_msg("left behind: %s\n", what);
	ksft_test_result(!what, "nothing is left\n");
	ksft_finished();
}

static inline int by_hand(struct fuzz *f, const char *program)
{
	const char *why = target_missing(), *what;

	if (why) {
		fprintf(stderr, TARGET ": %s\n", why);
		return 4;
	}
	if (fuzz_start(f)) {
		fprintf(stderr, TARGET ": it cannot be started\n");
		return 3;
	}
	if (program)
		return replay(f, program);
	if (f->corpus)
		printf("# %d programs read\n", corpus_read(f, f->corpus));
	what = run_random(f);
	if (!what && !target_is_well(f))
		what = "not so: " TARGET_WELL;
	target_end(f);
	if (!what && kernel_has_complained()) {
		what = "trouble in the kernel log";
		printf("# found: %s\n", what);
	}
	return !!what;
}

static inline int fuzz_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "programs", required_argument, NULL, 'p' },
		{ "seconds", required_argument, NULL, 't' },
		{ "corpus", required_argument, NULL, 'c' },
		{ "last", required_argument, NULL, 'l' },
		{ "replay", required_argument, NULL, 'r' },
		{ "minimise", required_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' },
		{ }
	};
	static struct fuzz f;
	const char *program = NULL;
	int option;

	fuzz_init(&f);
	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0)
		switch (option) {
		case 's':
			f.seed = strtoull(optarg, NULL, 0);
			break;
		case 'p':
			f.programs = strtoull(optarg, NULL, 0);
			break;
		case 't':
			f.seconds = atof(optarg);
			break;
		case 'c':
			f.corpus = optarg;
			break;
		case 'l':
			f.last = optarg;
			break;
		case 'r':
			program = optarg;
			break;
		case 'm':
			return minimise(optarg);
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	if (optind < argc) {
		usage(stderr);
		return 2;
	}
	return argc > 1 ? by_hand(&f, program) : test(&f);
}

#endif /* KCR_FUZZ_FUZZ_H */
