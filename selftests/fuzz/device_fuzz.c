// SPDX-License-Identifier: GPL-2.0
/*
 * The device against random programs
 *
 * Without options this is a test: the programs of corpus/, then random ones for
 * KCR_FUZZ_SECONDS (20). KCR_FUZZ_SEED repeats a run, as far as processes that
 * run at the same time can be repeated. The options are for use by hand, see usage().
 *
 * After each program, whatever it did: its processes can be killed, the module's
 * counters are what they were, a world can be made and used, and another world, which
 * was there all the time, was not disturbed. The kernel's log is looked at now and then.
 */
#include <dirent.h>
#include <getopt.h>
#include <limits.h>

#include "kselftest.h"
#include "actor.h"
#include "victim.h"

#define SECONDS		20
/* How long a program may take, and its end. */
#define RUN		0.3
#define END		10.0
#define KEPT_MAX	4096
/* The last programs, for when the kernel does not survive. */
#define LAST		16
#define LOG_EVERY	64

struct fuzz {
	double slow;
	__u64 seed;
	double seconds;
	__u64 programs;		/* most; 0: no end */
	const char *corpus;	/* where kept ones are */
	const char *last;	/* where the last ones are */
	struct victims victims;
	struct coverage *coverage;
	struct stage *stage;
	struct chance chance;
	bool has_mesh;
	struct dev_counters counters;
	long mesh[MESH_NR_COUNTERS];
	/* So far: */
	__u64 ran;
	int kept;
	struct program *keep[KEPT_MAX];
};

static void usage(FILE *f)
{
	fputs("usage: device_fuzz [options]\n"
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

static pid_t leader_start(void)
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0, 0);
		for (;;)
			pause();
	}
	if (pid > 0)
		setpgid(pid, pid);
	return pid;
}

static void actor_start(const struct play *play, __u32 number, pid_t group)
{
	struct sigaction sa = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
	struct rlimit none = { 0 };
	struct actor *a;
	pid_t pid;
	int null;

	fflush(NULL);
	pid = fork();
	if (pid) {
		setpgid(pid, group);
		play->stage->pid[number] = pid;
		return;
	}
	setpgid(0, group);
	null = open("/dev/null", O_RDWR);
	dup2(null, 1);
	dup2(null, 2);
	close(null);
	if (dev_become_nobody())
		_exit(1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Its siblings may look at its memory. */
	prctl(PR_SET_DUMPABLE, 1);
	setrlimit(RLIMIT_CORE, &none);
	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
	play->stage->pid[number] = getpid();
	a = calloc(1, sizeof(*a));
	if (!a)
		_exit(1);
	a->play = play;
	a->number = number;
	pthread_mutex_init(&a->ring_lock, NULL);
	memset(a->fd, -1, sizeof(a->fd));
	actor_main(a);
}

static bool is_forked(const struct program *p, __u32 number)
{
	for (int i = 0; i < p->n; i++)
		if (!strcmp(p->ops[i].type->name, "fork") &&
		    arg(&p->ops[i], "actor") % ACTORS == number &&
		    p->ops[i].actor != number)
			return true;
	return false;
}

static bool acts(const struct program *p, __u32 number)
{
	for (int i = 0; i < p->n; i++)
		if (p->ops[i].actor == number)
			return true;
	return false;
}

/* All of them, and those they made, which are ours once their parents are gone. */
static bool kill_all(pid_t group, double seconds)
{
	kill(-group, SIGKILL);
	return DEV_SOON(seconds, ({
		while (waitpid(-group, NULL, WNOHANG) > 0)
			;
		waitpid(-group, NULL, WNOHANG) < 0 && errno == ECHILD;
	}));
}

/* Run it; false if its processes do not end. */
static bool act(struct fuzz *f, const struct program *p)
{
	struct play play = {
		.program = p,
		.stage = f->stage,
		.coverage = f->coverage,
		.slow = f->slow,
		.nonce = draw(&f->chance),
	};
	pid_t group = leader_start();
	bool ended;

	memset(f->stage, 0, sizeof(*f->stage));
	coverage_reset(f->coverage);
	for (int i = 0; i < ACTORS; i++)
		if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, play.mail[i]))
			abort();
	for (__u32 i = 0; i < ACTORS; i++)
		f->stage->has_begun[i] = acts(p, i) && !is_forked(p, i);
	for (__u32 i = 0; i < ACTORS; i++)
		if (acts(p, i) && !is_forked(p, i))
			actor_start(&play, i, group);
	(void)DEV_SOON(RUN * f->slow, all_have_ended(f->stage));
	ended = kill_all(group, END * f->slow);
	for (int i = 0; i < ACTORS; i++) {
		close(play.mail[i][0]);
		close(play.mail[i][1]);
	}
	return ended;
}

/* ---- what must be so afterwards ---- */

static void mesh_values(long value[MESH_NR_COUNTERS])
{
	char path[80];

	for (int i = 0; i < MESH_NR_COUNTERS; i++) {
		snprintf(path, sizeof(path), MESH_COUNTERS "%s", mesh_counter_names[i]);
		value[i] = dev_read_number(path);
	}
}

/* But for what the victims have parked, which changes. */
static bool nothing_is_left(const struct fuzz *f)
{
	struct dev_counters now = dev_counters();
	long mesh[MESH_NR_COUNTERS];

	for (int i = 0; i < DEV_NR_COUNTERS; i++) {
		bool is_parked = !strcmp(dev_counter_names[i], "parked");

		if (is_parked ? now.value[i] > 2 : now.value[i] != f->counters.value[i])
			return false;
	}
	mesh_values(mesh);
	return !memcmp(mesh, f->mesh, sizeof(mesh));
}

static void say_what_is_left(const struct fuzz *f)
{
	struct dev_counters now = dev_counters();
	long mesh[MESH_NR_COUNTERS];

	mesh_values(mesh);
	for (int i = 0; i < DEV_NR_COUNTERS; i++)
		printf("# %s %ld, was %ld\n", dev_counter_names[i], now.value[i],
		       f->counters.value[i]);
	for (int i = 0; i < MESH_NR_COUNTERS; i++)
		printf("# %s %ld, was %ld\n", mesh_counter_names[i], mesh[i], f->mesh[i]);
}

/* A world of two, in one process: 0 or an error. */
static int world_works(void)
{
	static const struct kcr_lane_desc lane = { 0, 1, 4, 64 };
	struct dev_world w = dev_world(2);
	int fd[2] = { dev_member(&w, 0), dev_member(&w, 1) };
	int err = fd[0] < 0 ? fd[0] : fd[1] < 0 ? fd[1] : 0;

	for (int i = 0; i < 2 && !err; i++)
		err = dev_window(fd[i], 0, &lane, 1, 4096);
	if (!err)
		err = dev_kick(fd[0], 0, 2);
	if (!err)
		err = dev_wait(fd[1], 0, DEV_SECOND, 0);
	for (int i = 0; i < 2; i++) {
		if (!err)
			err = dev_leave(fd[i]);
		if (fd[i] >= 0)
			close(fd[i]);
	}
	return err;
}

static bool kernel_has_complained(void)
{
	return !system("command -v kcr-dmesg-check > /dev/null") &&
		system("kcr-dmesg-check") != 0;
}

static void take_stock(struct fuzz *f)
{
	f->counters = dev_counters();
	mesh_values(f->mesh);
}

/* What is wrong after this program, or NULL. */
static const char *try(struct fuzz *f, const struct program *p)
{
	char path[PATH_MAX];

	if (f->last) {
		snprintf(path, sizeof(path), "%s/last-%llu", f->last, f->ran % LAST);
		program_save(p, path);
	}
	f->ran++;
	if (!act(f, p))
		return "processes that cannot be killed";
	if (!victims_are_well(&f->victims))
		return "another world was disturbed";
	if (!DEV_SOON(END * f->slow, nothing_is_left(f))) {
		say_what_is_left(f);
		return "something is left behind";
	}
	if (world_works())
		return "no world can be made";
	if (f->ran % LOG_EVERY == 0 && kernel_has_complained())
		return "trouble in the kernel log";
	return NULL;
}

static void report(const struct fuzz *f, const struct program *p, const char *what)
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

static void keep(struct fuzz *f, const struct program *p)
{
	int at = f->kept < KEPT_MAX ? f->kept++ : (int)below(&f->chance, KEPT_MAX);

	if (!f->keep[at])
		f->keep[at] = malloc(sizeof(*p));
	if (!f->keep[at])
		abort();
	*f->keep[at] = *p;
}

/* Programs of a folder; not those that were found there. */
static int corpus_read(struct fuzz *f, const char *folder)
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

static void next_program(struct fuzz *f, struct program *p)
{
	if (f->kept < 2 || one_in(&f->chance, 3)) {
		program_make(p, &f->chance, f->has_mesh);
		return;
	}
	*p = *f->keep[below(&f->chance, f->kept)];
	program_change(p, &f->chance, f->keep[below(&f->chance, f->kept)]);
}

/* Some for a while; what is wrong, or NULL. */
static const char *run_random(struct fuzz *f)
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

static int replay(struct fuzz *f, const char *path)
{
	struct program p;
	const char *what;

	if (program_read(&p, path))
		return 2;
	do {
		what = try(f, &p);
	} while (!what && f->ran < f->programs);
	if (!what && kernel_has_complained())
		what = "trouble in the kernel log";
	if (what)
		report(f, &p, what);
	else
		printf("# %llu times, nothing found\n", f->ran);
	return !!what;
}

/* In a process of its own: what fails may spoil the next try. */
static bool still_fails(const char *self, const struct program *p, const char *path)
{
	char command[2 * PATH_MAX];

	if (program_save(p, path))
		return false;
	snprintf(command, sizeof(command), "%s --programs 5 --replay %s > /dev/null 2>&1", self,
		 path);
	return WEXITSTATUS(system(command)) == 1;
}

static int minimise(const char *path)
{
	char self[PATH_MAX] = "", shorter[PATH_MAX];
	struct program p, less;

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
			program_cut(&less, at, n);
			if (still_fails(self, &less, shorter))
				p = less;
			else
				at += n;
		}
	program_save(&p, shorter);
	program_write(&p, stdout);
	return 0;
}

/* ---- the start and the end ---- */

static const char *missing(void)
{
	if (geteuid())
		return "must be root, to become others and to see the module's counters";
	return dev_missing();
}

static void fuzz_init(struct fuzz *f)
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

static int fuzz_start(struct fuzz *f)
{
	int err;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	f->chance.state = f->seed;
	f->has_mesh = !mesh_missing();
	f->coverage = coverage_open();
	f->stage = dev_shared(sizeof(*f->stage));
	err = victims_start(&f->victims, f->slow);
	/* What is there now is theirs. */
	take_stock(f);
	return err;
}

static int test(struct fuzz *f)
{
	const char *what = NULL, *why = missing();
	struct dev_counters before;
	struct dirent **names;
	int n = scandir("corpus", &names, NULL, alphasort), files = 0;

	ksft_print_header();
	if (why)
		ksft_exit_skip("%s\n", why);
	for (int i = 0; i < n; i++)
		files += names[i]->d_name[0] != '.';
	ksft_set_plan(files + 3);
	ksft_print_msg("seed %#llx; repeat with KCR_FUZZ_SEED=%#llx\n", f->seed, f->seed);
	before = dev_counters();
	if (fuzz_start(f))
		ksft_exit_fail_msg("the other world cannot be made\n");

	for (int i = 0; i < n; i++) {
		char path[PATH_MAX];
		struct program p;

		if (names[i]->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "corpus/%s", names[i]->d_name);
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
	if (!what)
		what = run_random(f);
	ksft_test_result(!what, "random programs\n");
	ksft_test_result(victims_are_well(&f->victims), "another world is undisturbed\n");
	victims_end(&f->victims);
	what = dev_left_behind(&before);
	if (!what && !DEV_SOON(DEV_SETTLE * f->slow, !mesh_left()))
		what = mesh_left();
	if (what)
		ksft_print_msg("left behind: %s\n", what);
	ksft_test_result(!what, "nothing is left\n");
	ksft_finished();
}

static int by_hand(struct fuzz *f, const char *program)
{
	const char *why = missing(), *what;

	if (why) {
		fprintf(stderr, "device_fuzz: %s\n", why);
		return 4;
	}
	if (fuzz_start(f)) {
		fprintf(stderr, "device_fuzz: the other world cannot be made\n");
		return 1;
	}
	if (program)
		return replay(f, program);
	if (f->corpus)
		printf("# %d programs read\n", corpus_read(f, f->corpus));
	what = run_random(f);
	victims_end(&f->victims);
	if (!what && kernel_has_complained()) {
		what = "trouble in the kernel log";
		printf("# found: %s\n", what);
	}
	return !!what;
}

int main(int argc, char **argv)
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
