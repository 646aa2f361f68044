// SPDX-License-Identifier: GPL-2.0
/*
 * kcr-run: start the ranks of a job that are on this node
 *
 * Each rank is the leader of a process group of its own, so that what a rank
 * has started can be signalled and killed with it. A terminal's Ctrl-C then
 * reaches kcr-run alone, which passes it on. Two things see to it that no
 * rank outlives kcr-run, whatever happens to it: the parent-death signal,
 * which the kernel sends at once but to the rank alone, and the keeper, a
 * child that waits for our end of a pipe to close, kills the groups and
 * removes the rendezvous directory.
 *
 * How a job ends:
 *
 *	RUNNING	  a rank fails, or we are told to stop		-> GRACE
 *	GRACE	  the time is up: SIGTERM to those that still run -> TERMED
 *	TERMED	  the time is up: SIGKILL			-> KILLED
 *	KILLED	  the time is up: a rank cannot be killed, give up
 *
 * and at any time when the last rank has ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kcollring.h>

#include "../lib/rankset.h"
#include "run-keeper.h"
#include "run-options.h"
#include "run-output.h"
#include "run-place.h"
#include "run-typed.h"

/* A rank that does not act on SIGTERM is killed so long after. */
#define TERM_NS		(2 * SECOND_NS)
/* A rank in an uninterruptible sleep may outlive SIGKILL; say so then. */
#define KILL_NS		(10 * SECOND_NS)
/*
 * A death by a signal so soon behind an exit goes for the first of the two:
 * peers may hear of a death, and exit, before the dying process can be waited for.
 */
#define SETTLE_NS	(SECOND_NS / 20)
/* How often a background job looks whether it owns the terminal now. */
#define TERMINAL_MS	500

#define EXIT_TIMEOUT	124
#define EXIT_CANNOT	126
#define EXIT_UNKNOWN	127

enum stage { RUNNING, GRACE, TERMED, KILLED };

struct rank {
	pid_t pid;
	bool running;
	int status;		/* of waitpid() */
	struct stream out;
	struct stream err;
};

struct job {
	struct options options;
	struct place *place;	/* in the options */
	int running;

	struct rank rank[KCR_RANKS_MAX];
	struct sink out_sink;
	struct sink err_sink;
	struct sink *err;	/* where stderr goes; &out_sink if it is the same file */
	struct typed typed;

	sigset_t old_mask;
	sigset_t passed;	/* the signals we handle */
	int signals;		/* signalfd */
	bool told_to_stop;
	bool told_to_quit;	/* told again when only output was left */

	struct keeper keeper;
	char nonce[33];

	enum stage stage;
	uint64_t stage_ends;	/* 0: never */
	uint64_t job_ends;	/* 0: never */
	int first;		/* the rank here that failed first, or -1 */
	uint64_t settled;	/* when @first is said; 0: has been, or none */
	struct rankset failed;	/* ranks of the job that failed by themselves */
	int exit_code;
};

static const int passed_signals[] = {
	SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT,
};

static void say(struct job *job, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void say(struct job *job, const char *format, ...)
{
	char text[1024] = "kcr-run: ";
	size_t len = strlen(text);
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text + len, sizeof(text) - len - 1, format, args);
	va_end(args);
	if (n > 0)
		len += (size_t)n;
	if (len > sizeof(text) - 2)
		len = sizeof(text) - 2;
	text[len++] = '\n';
	sink_put(job->err, text, len);
}

/* "rank 2", "ranks 0-3, 5" */
static const char *name_ranks(const struct rankset *set)
{
	static char text[8 * KCR_RANKS_MAX];
	int from = rankset_next(set, 0), to;
	size_t len;

	len = (size_t)sprintf(text, "rank%s",
			      rankset_next(set, from + 1) >= 0 ? "s" : "");
	for (; from >= 0; from = rankset_next(set, to + 1)) {
		to = from;
		while (to + 1 < KCR_RANKS_MAX && rankset_has(set, to + 1))
			to++;
		len += (size_t)sprintf(text + len, "%s %d", len > 5 ? "," : "", from);
		if (to > from)
			len += (size_t)sprintf(text + len, "-%d", to);
	}
	return text;
}

/* Who still runs, by name. */
static const char *name_running(const struct job *job)
{
	struct rankset set = { 0 };
	int i;

	for (i = 0; i < job->place->ranks; i++)
		if (job->rank[i].running)
			rankset_add(&set, place_rank(job->place, i));
	return name_ranks(&set);
}

static void signal_ranks(struct job *job, int sig)
{
	int i;

	for (i = 0; i < job->place->ranks; i++)
		if (job->rank[i].running)
			kill(-job->rank[i].pid, sig);
}

/* Starting ranks */

static void become_rank(struct job *job, int number, const int fds[3],
			pid_t parent)
{
	int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_CANNOT);	/* it died before we asked to be told */
	setpgid(0, 0);
	job->keeper.kept->groups[number] = getpid();
	for (i = 0; i < 3; i++)
		if (fds[i] >= 0)
			dup2(fds[i], i);
	place_set_environment(job->place, number, job->nonce);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
	execvp(job->options.command[0], job->options.command);
}

static void close_all(const int *fds, int n)
{
	while (n--)
		if (fds[n] >= 0)
			close(fds[n]);
}

/* What a rank gets as descriptors 0 to 2, -1 for ours; our ends of pipes. */
static bool open_streams(struct job *job, int number, int theirs[3],
			 int ours[3])
{
	int ends[2], i;

	for (i = 0; i < 3; i++)
		theirs[i] = -1;
	for (i = 0; i < 3; i++)
		ours[i] = -1;
	if (place_rank(job->place, number)) {
		theirs[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (theirs[0] < 0)
			return false;
	} else if (isatty(0)) {
		if (pipe2(ends, O_CLOEXEC))
			return false;
		theirs[0] = ends[0];
		ours[0] = ends[1];
	}
	for (i = 1; job->options.tag && i < 3; i++) {
		if (pipe2(ends, O_CLOEXEC))
			return false;
		ours[i] = ends[0];
		theirs[i] = ends[1];
	}
	return true;
}

/*
 * Returns 0 or an errno. The status pipe closes when the program runs, or
 * brings the errno of an exec that failed: so we know which of the two it is.
 */
static int fork_rank(struct job *job, int number, const int theirs[3],
		     pid_t *pid)
{
	pid_t parent = getpid();
	int status[2], error = 0;

	if (pipe2(status, O_CLOEXEC))
		return errno;
	*pid = fork();
	if (!*pid) {
		become_rank(job, number, theirs, parent);
		error = errno;
		if (write(status[1], &error, sizeof(error)) < 0)
			_exit(EXIT_CANNOT);
		_exit(EXIT_UNKNOWN);
	}
	if (*pid < 0)
		error = errno;
	close(status[1]);
	if (*pid > 0 && read(status[0], &error, sizeof(error)) > 0)
		waitpid(*pid, NULL, 0);
	close(status[0]);
	return error;
}

static int start_rank(struct job *job, int number)
{
	struct rank *rank = &job->rank[number];
	int theirs[3], ours[3], error, tag = place_rank(job->place, number);

	if (!open_streams(job, number, theirs, ours)) {
		error = errno;
		close_all(theirs, 3);
		close_all(ours, 3);
		return error;
	}
	error = fork_rank(job, number, theirs, &rank->pid);
	close_all(theirs, 3);
	if (error) {
		close_all(ours, 3);
		job->keeper.kept->groups[number] = 0;
		return error;
	}
	rank->running = true;
	job->running++;
	if (ours[0] >= 0)
		job->typed.to = ours[0];
	if (job->options.tag) {
		stream_init(&rank->out, ours[1], tag, &job->out_sink);
		stream_init(&rank->err, ours[2], tag, job->err);
	}
	return 0;
}

static bool start_ranks(struct job *job)
{
	int i, error;

	for (i = 0; i < job->place->ranks; i++) {
		job->rank[i].out.fd = -1;
		job->rank[i].err.fd = -1;
	}
	for (i = 0; i < job->place->ranks; i++) {
		error = start_rank(job, i);
		if (!error)
			continue;
		say(job, "cannot run '%s'%s: %s", job->options.command[0],
		    job->running ? " on all ranks" : "", strerror(error));
		job->exit_code = error == ENOENT ? EXIT_UNKNOWN : EXIT_CANNOT;
		job->stage = KILLED;
		job->stage_ends = now_ns() + KILL_NS;
		signal_ranks(job, SIGKILL);
		return false;
	}
	return true;
}

/* How ranks end */

static bool has_failed(int status)
{
	return !WIFEXITED(status) || WEXITSTATUS(status);
}

static void say_first(struct job *job)
{
	struct rank *rank = &job->rank[job->first];
	int number = place_rank(job->place, job->first), status = rank->status;

	job->settled = 0;
	if (WIFSIGNALED(status)) {
		say(job, "rank %d (pid %d) was killed by signal %d (%s)%s",
		    number, rank->pid, WTERMSIG(status),
		    strsignal(WTERMSIG(status)),
		    WCOREDUMP(status) ? ", core dumped" : "");
		job->exit_code = 128 + WTERMSIG(status);
	} else {
		say(job, "rank %d (pid %d) exited with status %d",
		    number, rank->pid, WEXITSTATUS(status));
		job->exit_code = WEXITSTATUS(status);
	}
}

static void begin_grace(struct job *job)
{
	if (job->stage != RUNNING)
		return;
	job->stage = GRACE;
	job->stage_ends = now_ns() + job->options.grace_ns;
}

static void note_failure(struct job *job, int number)
{
	int status = job->rank[number].status;

	if (job->stage >= TERMED)
		return;		/* our own doing */
	rankset_add(&job->failed, place_rank(job->place, number));
	if (job->first < 0) {
		job->first = number;
		job->settled = now_ns() + SETTLE_NS;
		begin_grace(job);
	} else if (job->settled && WIFSIGNALED(status) &&
		   WIFEXITED(job->rank[job->first].status)) {
		job->first = number;
	}
}

static void end_rank(struct job *job, int number)
{
	struct rank *rank = &job->rank[number];

	/* Not reaped yet, so the group's number cannot be anybody else's. */
	kill(-rank->pid, SIGKILL);
	stream_drain(&rank->out);
	stream_drain(&rank->err);
	job->keeper.kept->groups[number] = 0;
	waitpid(rank->pid, &rank->status, 0);
	rank->running = false;
	job->running--;
	if (!number)
		typed_close(&job->typed);
	if (has_failed(rank->status))
		note_failure(job, number);
}

static void reap(struct job *job)
{
	int i;
	siginfo_t info;

	for (i = 0; i < job->place->ranks; i++) {
		if (!job->rank[i].running)
			continue;
		info.si_pid = 0;
		if (!waitid(P_PID, (id_t)job->rank[i].pid, &info,
			    WEXITED | WNOHANG | WNOWAIT) && info.si_pid)
			end_rank(job, i);
	}
}

static void send_term(struct job *job, const char *why)
{
	say(job, "%s: %s, sending SIGTERM", name_running(job), why);
	job->stage = TERMED;
	job->stage_ends = now_ns() + TERM_NS;
	signal_ranks(job, SIGTERM);
	signal_ranks(job, SIGCONT);	/* a stopped rank could not act on it */
}

static void send_kill(struct job *job, const char *why)
{
	say(job, "%s: %s, sending SIGKILL", name_running(job), why);
	job->stage = KILLED;
	job->stage_ends = now_ns() + KILL_NS;
	signal_ranks(job, SIGKILL);
}

static void next_stage(struct job *job)
{
	char why[64];

	if (job->stage == GRACE) {
		snprintf(why, sizeof(why), "still there after %g s of grace",
			 (double)job->options.grace_ns / 1e9);
		send_term(job, why);
	} else if (job->stage == TERMED) {
		send_kill(job, "still there after SIGTERM");
	} else {
		say(job, "%s: cannot be killed, giving up",
		    name_running(job));
		job->running = 0;
	}
}

static void look_at_clock(struct job *job)
{
	uint64_t now = now_ns();
	char why[64];

	if (job->settled && (now >= job->settled || !job->running))
		say_first(job);
	if (!job->running)
		return;
	if (job->job_ends && now >= job->job_ends) {
		job->job_ends = 0;
		if (job->stage < TERMED) {
			snprintf(why, sizeof(why), "the job's %g s are up",
				 (double)job->options.timeout_ns / 1e9);
			send_term(job, why);
			if (!job->exit_code)
				job->exit_code = EXIT_TIMEOUT;
		}
	} else if (job->stage_ends && now >= job->stage_ends) {
		next_stage(job);
	}
}

/* Milliseconds for poll() until the next thing is due. */
static int clock_wait(const struct job *job)
{
	const uint64_t due[] = { job->settled, job->job_ends, job->stage_ends };
	uint64_t first = UINT64_MAX, now = now_ns();
	size_t i;

	if (!job->running)
		return -1;
	for (i = 0; i < sizeof(due) / sizeof(*due); i++)
		if (due[i] && due[i] < first)
			first = due[i];
	if (first == UINT64_MAX)
		return job->typed.to >= 0 ? TERMINAL_MS : -1;
	if (first <= now)
		return 0;
	first = (first - now + 999999) / 1000000;
	return first < TERMINAL_MS ? (int)first : TERMINAL_MS;
}

/* Signals */

static void pass_on(struct job *job, int sig)
{
	bool stop = sig == SIGINT || sig == SIGTERM;

	if (!job->running) {
		job->told_to_quit |= stop;
		return;
	}
	if (stop && job->told_to_stop && job->stage < KILLED) {
		send_kill(job, "told to stop twice");
		return;
	}
	job->told_to_stop |= stop;
	signal_ranks(job, sig);
	if (sig == SIGTSTP)
		raise(SIGSTOP);
	else if (stop || sig == SIGHUP || sig == SIGQUIT)
		begin_grace(job);
}

static void take_signals(struct job *job)
{
	struct signalfd_siginfo info;

	while (read(job->signals, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			reap(job);
		else
			pass_on(job, (int)info.ssi_signo);
	}
}

/* What we were started to ignore (nohup, a shell's background) we ignore. */
static bool is_ignored(int sig)
{
	struct sigaction action;

	return !sigaction(sig, NULL, &action) && action.sa_handler == SIG_IGN;
}

static bool open_signals(struct job *job)
{
	size_t i;

	sigemptyset(&job->passed);
	for (i = 0; i < sizeof(passed_signals) / sizeof(*passed_signals); i++)
		if (!is_ignored(passed_signals[i]))
			sigaddset(&job->passed, passed_signals[i]);
	sigaddset(&job->passed, SIGCHLD);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &job->passed, &job->old_mask);
	job->signals = signalfd(-1, &job->passed, SFD_CLOEXEC | SFD_NONBLOCK);
	return job->signals >= 0;
}

/* The loop */

enum { AT_SIGNALS, AT_OUT, AT_ERR, AT_TYPED, AT_STREAMS };

/*
 * Streams that are read now alone: poll() refuses more places than descriptors may be open,
 * whatever is in them.
 */
struct polled {
	struct pollfd fds[AT_STREAMS + 2 * KCR_RANKS_MAX];
	struct stream *streams[AT_STREAMS + 2 * KCR_RANKS_MAX];
	nfds_t n;
};

static void add_stream(struct polled *polled, struct stream *stream)
{
	if (stream->fd < 0 || sink_is_full(stream->sink))
		return;
	polled->streams[polled->n] = stream;
	polled->fds[polled->n++] = (struct pollfd){
		.fd = stream->fd, .events = POLLIN,
	};
}

static void collect(struct job *job, struct polled *polled)
{
	struct sink *out = &job->out_sink, *err = &job->err_sink;
	int i;

	polled->fds[AT_SIGNALS] = (struct pollfd){
		.fd = job->signals, .events = POLLIN,
	};
	polled->fds[AT_OUT] = (struct pollfd){
		.fd = sink_is_empty(out) ? -1 : out->fd, .events = POLLOUT,
	};
	polled->fds[AT_ERR] = (struct pollfd){
		.fd = sink_is_empty(err) ? -1 : err->fd, .events = POLLOUT,
	};
	polled->fds[AT_TYPED] = typed_poll(&job->typed);
	polled->n = AT_STREAMS;
	for (i = 0; i < job->place->ranks; i++) {
		add_stream(polled, &job->rank[i].out);
		add_stream(polled, &job->rank[i].err);
	}
}

static void serve(struct job *job, const struct polled *polled)
{
	const struct pollfd *fds = polled->fds;
	nfds_t i;

	if (fds[AT_OUT].revents)
		sink_write(&job->out_sink);
	if (fds[AT_ERR].revents)
		sink_write(&job->err_sink);
	typed_serve(&job->typed, &fds[AT_TYPED]);
	for (i = AT_STREAMS; i < polled->n; i++)
		if (fds[i].revents)
			stream_read(polled->streams[i]);
	if (fds[AT_SIGNALS].revents)
		take_signals(job);
}

/* Ends when the ranks have ended and their output is out. */
static void run(struct job *job)
{
	struct polled polled;

	while (job->running || !sink_is_empty(&job->out_sink) ||
	       !sink_is_empty(&job->err_sink)) {
		collect(job, &polled);
		if (poll(polled.fds, polled.n, clock_wait(job)) > 0)
			serve(job, &polled);
		if (job->told_to_quit)
			break;	/* even if our reader does not read */
		look_at_clock(job);
	}
}

static void close_streams(struct job *job)
{
	int i;

	for (i = 0; i < job->place->ranks; i++) {
		stream_close(&job->rank[i].out);
		stream_close(&job->rank[i].err);
	}
}

static void say_the_rest(struct job *job)
{
	struct rankset rest = job->failed;

	if (job->first >= 0)
		rankset_remove(&rest, place_rank(job->place, job->first));
	if (!rankset_is_empty(&rest))
		say(job, "%s failed after that", name_ranks(&rest));
}

/* A reader that went away (EPIPE) did so by itself; a full disk nobody wanted. */
static void say_lost_output(struct job *job)
{
	const struct sink *out = &job->out_sink;

	if (!out->error || out->error == EPIPE)
		return;
	if (job->err != out)
		say(job, "cannot write the output: %s", strerror(out->error));
	if (!job->exit_code)
		job->exit_code = 1;
}

/* Start and end */

static bool same_file(int a, int b)
{
	struct stat sa, sb;

	return !fstat(a, &sa) && !fstat(b, &sb) && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino;
}

/*
 * Lines of stdout and stderr that go to one place share a queue, or a line
 * that is written in pieces could be torn by another.
 */
static void open_sinks(struct job *job)
{
	sink_init(&job->out_sink, 1);
	sink_init(&job->err_sink, 2);
	job->err = same_file(1, 2) ? &job->out_sink : &job->err_sink;
}

static bool make_nonce(char nonce[33])
{
	unsigned char bytes[16];
	int i;

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return false;
	for (i = 0; i < 16; i++)
		sprintf(nonce + 2 * i, "%02x", bytes[i]);
	return true;
}

static void __attribute__((noreturn)) fail(const char *what)
{
	fprintf(stderr, "kcr-run: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Ours alone: the keeper removes it. */
static void make_rendezvous(struct job *job)
{
	static char rendezvous[sizeof(job->keeper.kept->directory) + 8];

	if (!keeper_make_directory(&job->keeper))
		fail("cannot make a directory for the rendezvous");
	snprintf(rendezvous, sizeof(rendezvous), "file:%s",
		 job->keeper.kept->directory);
	job->place->rendezvous = rendezvous;
}

static void set_up(struct job *job)
{
	open_sinks(job);
	if (!make_nonce(job->nonce))
		fail("random numbers");
	if (!open_signals(job))
		fail("signalfd");
	if (!keeper_start(&job->keeper))
		fail("cannot start the keeper");
	if (!job->place->rendezvous)
		make_rendezvous(job);
}

/* Pipes must not land on 0 to 2 because the caller closed one of them. */
static void fill_standard_fds(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd < 3);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	static struct job job = {
		.place = &job.options.place,
		.first = -1,
		.typed.to = -1,
	};

	fill_standard_fds();
	options_parse(&job.options, argc, argv);
	set_up(&job);
	if (start_ranks(&job) && job.options.timeout_ns)
		job.job_ends = now_ns() + job.options.timeout_ns;
	run(&job);
	close_streams(&job);
	say_the_rest(&job);
	say_lost_output(&job);
	run(&job);
	keeper_stop(&job.keeper);
	return job.exit_code;
}
