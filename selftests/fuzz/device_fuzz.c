// SPDX-License-Identifier: GPL-2.0
/*
 * The device against random programs
 *
 * After each program, whatever it did: its processes can be killed, the module's
 * counters are what they were, a world can be made and used, and another world, which
 * was there all the time, was not disturbed.
 */
#include "kselftest.h"
#include "actor.h"
#include "victim.h"

#define TARGET		"device_fuzz"
#define TARGET_CORPUS	"corpus"
#define TARGET_WELL	"another world is undisturbed"
#include "fuzz.h"

/* How long a program may take, and its end. */
#define RUN		0.3
#define END		10.0

static struct {
	struct victims victims;
	struct stage *stage;
	bool has_mesh;
	struct dev_counters counters;
	long mesh[MESH_NR_COUNTERS];
} device;

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
		.stage = device.stage,
		.coverage = f->coverage,
		.slow = f->slow,
		.nonce = draw(&f->chance),
	};
	pid_t group = leader_start();
	bool ended;

	memset(device.stage, 0, sizeof(*device.stage));
	for (int i = 0; i < ACTORS; i++)
		if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, play.mail[i]))
			abort();
	for (__u32 i = 0; i < ACTORS; i++)
		device.stage->has_begun[i] = acts(p, i) && !is_forked(p, i);
	for (__u32 i = 0; i < ACTORS; i++)
		if (acts(p, i) && !is_forked(p, i))
			actor_start(&play, i, group);
	(void)DEV_SOON(RUN * f->slow, all_have_ended(device.stage));
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
static bool nothing_is_left(void)
{
	struct dev_counters now = dev_counters();
	long mesh[MESH_NR_COUNTERS];

	for (int i = 0; i < DEV_NR_COUNTERS; i++) {
		bool is_parked = !strcmp(dev_counter_names[i], "parked");

		if (is_parked ? now.value[i] > 2 : now.value[i] != device.counters.value[i])
			return false;
	}
	mesh_values(mesh);
	return !memcmp(mesh, device.mesh, sizeof(mesh));
}

static void say_what_is_left(void)
{
	struct dev_counters now = dev_counters();
	long mesh[MESH_NR_COUNTERS];

	mesh_values(mesh);
	for (int i = 0; i < DEV_NR_COUNTERS; i++)
		printf("# %s %ld, was %ld\n", dev_counter_names[i], now.value[i],
		       device.counters.value[i]);
	for (int i = 0; i < MESH_NR_COUNTERS; i++)
		printf("# %s %ld, was %ld\n", mesh_counter_names[i], mesh[i], device.mesh[i]);
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

static void take_stock(void)
{
	device.counters = dev_counters();
	mesh_values(device.mesh);
}

static const char *target_try(struct fuzz *f, struct program *p)
{
	if (!act(f, p))
		return "processes that cannot be killed";
	if (!victims_are_well(&device.victims))
		return "another world was disturbed";
	if (!DEV_SOON(END * f->slow, nothing_is_left())) {
		say_what_is_left();
		return "something is left behind";
	}
	return world_works() ? "no world can be made" : NULL;
}

/* ---- the start and the end ---- */

static const char *target_missing(void)
{
	if (geteuid())
		return "must be root, to become others and to see the module's counters";
	return dev_missing();
}

static int target_start(struct fuzz *f)
{
	int err;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	device.has_mesh = !mesh_missing();
	f->coverage = coverage_open(ACTORS * 4);
	device.stage = dev_shared(sizeof(*device.stage));
	err = victims_start(&device.victims, f->slow);
	/* What is there now is theirs. */
	take_stock();
	return err;
}

static void target_make(struct fuzz *f, struct program *p)
{
	program_make(p, &f->chance, device.has_mesh);
}

static bool target_is_well(struct fuzz *f)
{
	return victims_are_well(&device.victims);
}

static void target_end(struct fuzz *f)
{
	victims_end(&device.victims);
}

int main(int argc, char **argv)
{
	return fuzz_main(argc, argv);
}
