// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Rendezvous in a directory.
 *
 * Rank 0 leads: it puts its card at <job>.<generation>.leader and holds a lock
 * on it. The card names the attempt by a random incarnation X; everything
 * else is a file whose name begins with X, so nothing that an earlier or a
 * killed job left behind can be taken for this one's:
 *
 *	X.card.R	rank R's card; R holds a lock on it as long as its world lives
 *	X.note.N.R	rank R's note of round N
 *	X.error		an errno and a sentence; the first to fail writes it, all report it
 *
 * Files appear whole: they are written under another name, then linked or renamed.
 * A leader's file without a lock was left by a dead process: rank 0 replaces
 * it, the others wait for a live one. The generation counts the worlds that
 * this process has made at this place, so that the next world does not meet
 * the last one's files.
 *
 * The idea of a nonce per launch answers the stale markers of mamba-rs's barrier.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "alive.h"
#include "kcr.h"
#include "limits.h"
#include "rendezvous.h"

#define PATH_BYTES	512
#define NOT_OPEN	-1

struct peer {
	struct card card;
	char note[NOTE_BYTES];
	int fd;			/* its card, kept to see whether it lives */
	bool known;
};

struct rendezvous {
	const struct kcr_config *config;	/* the caller's until settled */
	int rank;
	int size;
	char dir[PATH_BYTES / 2];
	char leader[PATH_BYTES];
	char incarnation[33];
	struct card card;
	int fd;			/* our card, locked */
	int round;
	bool settled;
	uint64_t deadline_ns;
	struct timespec started;	/* wall clock, as the files' times are */
	struct peer peers[];
};

/* How many worlds this process has made at one place, by rank (ranks may be threads). */
static unsigned int next_generation(const struct kcr_config *config)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct place {
		struct place *next;
		unsigned int count;
		char name[];
	} *places;
	struct place *at;
	unsigned int generation = 0;
	char name[PATH_BYTES];

	snprintf(name, sizeof(name), "%d %s %s", config->rank,
		 config->job ? config->job : "", config->rendezvous);
	pthread_mutex_lock(&lock);
	for (at = places; at && strcmp(at->name, name); at = at->next)
		;
	if (!at) {
		at = calloc(1, sizeof(*at) + strlen(name) + 1);
		if (at) {
			strcpy(at->name, name);
			at->next = places;
			places = at;
		}
	}
	if (at)
		generation = at->count++;
	pthread_mutex_unlock(&lock);
	return generation;
}

static void path_of(const struct rendezvous *rv, char path[PATH_BYTES],
		    const char *what, int rank)
{
	if (rank < 0)
		snprintf(path, PATH_BYTES, "%s/%s.%s", rv->dir,
			 rv->incarnation, what);
	else
		snprintf(path, PATH_BYTES, "%s/%s.%s.%d", rv->dir,
			 rv->incarnation, what, rank);
}

static int write_all(int fd, const char *text)
{
	size_t n = strlen(text);

	while (n) {
		ssize_t put = write(fd, text, n);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put ? -errno : -EIO;
		text += put;
		n -= put;
	}
	return 0;
}

/* Read a whole small file, from its start whatever the descriptor's place. */
static int read_all(int fd, char *text, size_t size)
{
	ssize_t n = pread(fd, text, size - 1, 0);

	if (n < 0)
		return -errno;
	text[n] = 0;
	return 0;
}

/* A new file under a name of its own, with @text in it. Returns the descriptor. */
static int make_file(struct rendezvous *rv, const char *text,
		     char path[PATH_BYTES])
{
	int fd, err;

	snprintf(path, PATH_BYTES, "%s/.tmp.XXXXXX", rv->dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = write_all(fd, text);
	if (err) {
		unlink(path);
		close(fd);
		return err;
	}
	return fd;
}

static int dir_fail(struct rendezvous *rv, int err, const char *what)
{
	return kcr_fail(NULL, err, "rendezvous directory %s: %s: %s", rv->dir,
			what, strerror(-err));
}

/* The directory must be ours: who can write it can join the world. */
static int open_dir(struct rendezvous *rv)
{
	struct stat st;

	if (mkdir(rv->dir, 0700) && errno != EEXIST)
		return dir_fail(rv, -errno, "cannot make it");
	if (stat(rv->dir, &st))
		return dir_fail(rv, -errno, "cannot look at it");
	if (!S_ISDIR(st.st_mode))
		return dir_fail(rv, -ENOTDIR, "cannot use it");
	if ((st.st_uid != geteuid() && st.st_uid) || (st.st_mode & 0002))
		return kcr_fail(NULL, -EACCES,
				"rendezvous directory %s: owner %u and mode %o let others in; must be yours and not world-writable",
				rv->dir, st.st_uid, st.st_mode & 07777);
	return 0;
}

/* Put our card at @path, exclusively. */
static int publish_card(struct rendezvous *rv, const char *path)
{
	char temporary[PATH_BYTES];
	int err = 0;

	rv->fd = make_file(rv, rv->card.text, temporary);
	if (rv->fd < 0) {
		err = rv->fd;
		rv->fd = NOT_OPEN;
		return dir_fail(rv, err, "cannot write a card");
	}
	err = alive_own(rv->fd);
	if (err) {
		unlink(temporary);
		close(rv->fd);
		rv->fd = NOT_OPEN;
		return dir_fail(rv, err, "cannot lock a card");
	}
	if (link(temporary, path))
		err = -errno;
	unlink(temporary);
	if (err) {
		alive_disown(rv->fd);
		rv->fd = NOT_OPEN;
		return err == -EEXIST ? err :
		       dir_fail(rv, err, "cannot publish a card");
	}
	return 0;
}

/*
 * Look at a card's file. Returns a descriptor, ALIVE_OURS, or a negative errno;
 * *@held tells whether its owner lives.
 */
static int look_at_card(const char *path, struct card *card, bool *held)
{
	int fd = alive_open(path, card->text, sizeof(card->text)), err = 0;

	if (fd < 0 && fd != ALIVE_OURS)
		return fd;
	*held = fd == ALIVE_OURS || alive_is_held(fd);
	if (fd != ALIVE_OURS)
		err = read_all(fd, card->text, sizeof(card->text));
	if (!err)
		err = card_parse(card);
	if (!err)
		return fd;
	if (fd >= 0)
		close(fd);
	return err;
}

/**
 * rendezvous_error() - the error that a rank has published, if there is one
 * @rv: the rendezvous
 *
 * Returns it, with its sentence in kcr_error(NULL), or 0.
 */
int rendezvous_error(struct rendezvous *rv)
{
	char path[PATH_BYTES], text[KCR_ERROR_BYTES];
	char *sentence;
	int fd, err;

	if (!rv->incarnation[0])
		return 0;
	path_of(rv, path, "error", -1);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return 0;
	err = read_all(fd, text, sizeof(text));
	close(fd);
	sentence = strchr(text, '\n');
	if (err || !sentence)
		return kcr_fail(NULL, -EIO, "%s cannot be understood", path);
	return kcr_fail(NULL, atoi(text) < 0 ? atoi(text) : -EIO, "%s",
			sentence + 1);
}

/**
 * rendezvous_fail() - make every rank fail with this rank's error
 * @rv: the rendezvous
 * @error: a negative errno; kcr_error(NULL) has the sentence
 *
 * The first error of an attempt is everyone's. Returns it.
 */
int rendezvous_fail(struct rendezvous *rv, int error)
{
	char text[KCR_ERROR_BYTES + 16], path[PATH_BYTES], temporary[PATH_BYTES];
	int fd;

	if (!rv->incarnation[0])
		return error;
	snprintf(text, sizeof(text), "%d\n%s", error, kcr_error(NULL));
	fd = make_file(rv, text, temporary);
	if (fd < 0)
		return error;
	close(fd);
	path_of(rv, path, "error", -1);
	if (link(temporary, path) && errno != EEXIST)
		dir_fail(rv, -errno, "cannot publish an error");
	unlink(temporary);
	error = rendezvous_error(rv) ?: error;
	return error;
}

/* Wait a little, less at first. Returns 0, or -ETIMEDOUT. */
static int pause_a_little(struct rendezvous *rv, unsigned int *rounds)
{
	struct timespec t = { 0 };

	if (process_now_ns() > rv->deadline_ns)
		return -ETIMEDOUT;
	if ((*rounds)++ < 20) {
		sched_yield();
		return 0;
	}
	t.tv_nsec = *rounds < 100 ? 100000 : 2000000;
	nanosleep(&t, NULL);
	return 0;
}

static int duplicate(struct rendezvous *rv, const struct card *other)
{
	return rendezvous_fail(rv, kcr_fail(NULL, -EEXIST,
		"rank %d is claimed twice: by host %s pid %d and by host %s pid %d",
		rv->rank, other->host, other->pid, rv->card.host, rv->card.pid));
}

/* Files of an attempt whose leader is dead. */
static void sweep(struct rendezvous *rv, const char *incarnation)
{
	struct dirent *entry;
	DIR *dir = opendir(rv->dir);

	if (!dir)
		return;
	while ((entry = readdir(dir)))
		if (!strncmp(entry->d_name, incarnation, strlen(incarnation)))
			unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
}

/*
 * Rank 0 finds a leader's file. Live: an error for all, in the attempt that
 * people wait in, the other's. Dead: 0, try again. The directory is locked,
 * so that of two that find a dead one none removes the other's.
 */
static int contest_lead(struct rendezvous *rv)
{
	int dir = open(rv->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct card other;
	int fd, err = 0;
	bool held;

	if (dir < 0 || flock(dir, LOCK_EX)) {
		err = dir_fail(rv, -errno, "cannot lock it");
		goto out;
	}
	fd = look_at_card(rv->leader, &other, &held);
	if (fd >= 0)
		close(fd);
	if (fd == -ENOENT) {
		goto out;
	} else if (fd < 0 && fd != ALIVE_OURS) {
		err = dir_fail(rv, fd, "cannot read a card");
	} else if (held) {
		strcpy(rv->incarnation, other.incarnation);
		err = duplicate(rv, &other);
	} else {
		unlink(rv->leader);
		sweep(rv, other.incarnation);
	}
out:
	if (dir >= 0)
		close(dir);
	return err;
}

static int lead(struct rendezvous *rv)
{
	int err;

	strcpy(rv->incarnation, rv->card.incarnation);
	for (;;) {
		err = publish_card(rv, rv->leader);
		if (err != -EEXIST)
			return err;
		err = contest_lead(rv);
		if (err)
			return err;
	}
}

/*
 * An error that a leader left before it went is for us, too, if it led this launch.
 * Without a name for the launch the time must tell: its error is new, and no
 * other leader comes, as it would if ours were an attempt to do better.
 */
static bool is_our_error(struct rendezvous *rv, const char *incarnation,
			 uint64_t waited_ns)
{
	char path[PATH_BYTES];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s.error", rv->dir, incarnation);
	if (stat(path, &st))
		return false;
	return rv->config->job ||
	       (st.st_mtim.tv_sec + 1 >= rv->started.tv_sec &&
		waited_ns > NEXT_LAUNCH_MS * 1000000ull);
}

/* Find a live leader, or one that has died of an error that is for us. */
static int follow(struct rendezvous *rv)
{
	uint64_t began_ns = process_now_ns();
	struct peer *leader = &rv->peers[0];
	unsigned int rounds = 0;
	bool held;
	int fd;

	for (;;) {
		fd = look_at_card(rv->leader, &leader->card, &held);
		if (fd == ALIVE_OURS)
			break;
		if (fd < 0 && fd != -ENOENT)
			return dir_fail(rv, fd, "cannot read rank 0's card");
		if (fd >= 0 &&
		    (held || is_our_error(rv, leader->card.incarnation,
					  process_now_ns() - began_ns)))
			break;
		if (fd >= 0)
			close(fd);
		if (pause_a_little(rv, &rounds))
			return kcr_fail(NULL, -ETIMEDOUT,
					"no word from rank 0 at %s after %.1f s",
					rv->leader,
					rv->config->rendezvous_ms / 1e3);
	}
	leader->fd = fd;
	return 0;
}

/* Rank R's place is free, unless another process claims it. */
static int take_place(struct rendezvous *rv)
{
	char path[PATH_BYTES];
	struct card other;
	bool held;
	int fd, err;

	path_of(rv, path, "card", rv->rank);
	err = publish_card(rv, path);
	if (err != -EEXIST)
		return err;
	fd = look_at_card(path, &other, &held);
	if (fd < 0 && fd != ALIVE_OURS)
		return dir_fail(rv, fd, "cannot read a card");
	if (fd >= 0)
		close(fd);
	if (held)
		return duplicate(rv, &other);
	return rendezvous_fail(rv, kcr_fail(NULL, -ECONNRESET,
		"rank %d died while the ranks came together (host %s, pid %d)",
		rv->rank, other.host, other.pid));
}

static int join_attempt(struct rendezvous *rv)
{
	struct card *first = &rv->peers[0].card;
	int err;

	err = follow(rv);
	if (err)
		return err;
	strcpy(rv->incarnation, first->incarnation);
	rv->peers[0].known = true;
	err = rendezvous_error(rv);
	if (err)
		return err;
	err = take_place(rv);
	if (err)
		return err;
	err = card_compare(first, rv->rank, &rv->card);
	return err ? rendezvous_fail(rv, err) : 0;
}

/* Ranks of which @have is not true, in words. */
static void name_missing(struct rendezvous *rv,
			 bool (*have)(struct rendezvous *rv, int rank),
			 char *text, size_t size)
{
	size_t at = 0;

	text[0] = 0;
	for (int r = 0; r < rv->size && at < size; r++)
		if (r != rv->rank && !have(rv, r))
			at += snprintf(text + at, size - at, "%srank %d",
				       at ? ", " : "", r);
}

static int check_alive(struct rendezvous *rv)
{
	for (int r = 0; r < rv->size; r++) {
		const struct card *card = &rv->peers[r].card;

		if (r == rv->rank || !rv->peers[r].known ||
		    rendezvous_is_alive(rv, r))
			continue;
		return rendezvous_fail(rv, kcr_fail(NULL, -ECONNRESET,
			"rank %d died while the ranks came together (host %s, pid %d)",
			r, card->host, card->pid));
	}
	return 0;
}

/* Call @get for each other rank until it is true for all. */
static int gather(struct rendezvous *rv,
		  int (*get)(struct rendezvous *rv, int rank),
		  bool (*have)(struct rendezvous *rv, int rank))
{
	unsigned int rounds = 0;
	char names[KCR_ERROR_BYTES / 2];
	int err, r = 0;

	for (;;) {
		for (r = 0; r < rv->size; r++) {
			if (r == rv->rank || have(rv, r))
				continue;
			err = get(rv, r);
			if (err && err != -ENOENT)
				return err;
			if (err)
				break;
		}
		if (r == rv->size)
			return 0;
		err = rendezvous_error(rv);
		if (!err && rounds >= 20)
			err = check_alive(rv);
		if (err)
			return err;
		if (pause_a_little(rv, &rounds)) {
			/* Only the first that is missing was looked for. */
			for (r = 0; r < rv->size; r++)
				if (r != rv->rank && !have(rv, r))
					get(rv, r);
			name_missing(rv, have, names, sizeof(names));
			return rendezvous_fail(rv, kcr_fail(NULL, -ETIMEDOUT,
				"no word from %s at %s after %.1f s", names,
				rv->dir, rv->config->rendezvous_ms / 1e3));
		}
	}
}

static bool have_card(struct rendezvous *rv, int rank)
{
	return rv->peers[rank].known;
}

static int get_card(struct rendezvous *rv, int rank)
{
	struct peer *peer = &rv->peers[rank];
	const struct card *first = rv->rank ? &rv->peers[0].card : &rv->card;
	char path[PATH_BYTES];
	bool held;
	int fd, err;

	path_of(rv, path, "card", rank);
	fd = look_at_card(path, &peer->card, &held);
	if (fd == -ENOENT)
		return fd;
	if (fd < 0 && fd != ALIVE_OURS)
		return dir_fail(rv, fd, "cannot read a card");
	peer->fd = fd;
	peer->known = true;
	err = card_compare(first, rank, &peer->card);
	return err ? rendezvous_fail(rv, err) : 0;
}

static void note_path(const struct rendezvous *rv, char path[PATH_BYTES],
		      int round, int rank)
{
	char what[32];

	snprintf(what, sizeof(what), "note.%d", round);
	path_of(rv, path, what, rank);
}

static bool have_note(struct rendezvous *rv, int rank)
{
	return rv->peers[rank].note[0];
}

static int get_note(struct rendezvous *rv, int rank)
{
	char path[PATH_BYTES];
	int fd, err;

	note_path(rv, path, rv->round, rank);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ENOENT :
		       dir_fail(rv, -errno, "cannot read a note");
	err = read_all(fd, rv->peers[rank].note, NOTE_BYTES);
	close(fd);
	return err;
}

/**
 * rendezvous_exchange() - give every rank a note and get theirs
 * @rv: the rendezvous
 * @note: not empty, shorter than NOTE_BYTES
 *
 * A rank that fails meanwhile, or dies, is everyone's error.
 */
int rendezvous_exchange(struct rendezvous *rv, const char *note)
{
	char path[PATH_BYTES], temporary[PATH_BYTES];
	int fd;

	for (int r = 0; r < rv->size; r++)
		rv->peers[r].note[0] = 0;
	rv->round++;
	fd = make_file(rv, note, temporary);
	if (fd < 0)
		return dir_fail(rv, fd, "cannot write a note");
	close(fd);
	note_path(rv, path, rv->round, rv->rank);
	if (rename(temporary, path))
		return dir_fail(rv, -errno, "cannot publish a note");
	return gather(rv, get_note, have_note);
}

static int parse_place(struct rendezvous *rv, const struct kcr_config *config)
{
	const char *place = config->rendezvous;
	unsigned int generation;

	if (strncmp(place, "file:", 5) || place[5] != '/')
		return kcr_fail(NULL, -EINVAL,
				"rendezvous is \"%s\", must be file:/directory",
				place);
	if (snprintf(rv->dir, sizeof(rv->dir), "%s", place + 5) >=
	    (int)sizeof(rv->dir))
		return kcr_fail(NULL, -ENAMETOOLONG,
				"rendezvous has %zu bytes, at most %zu work",
				strlen(place), sizeof(rv->dir) + 4);
	if (config->job && (strchr(config->job, '/') ||
			    strlen(config->job) > 64))
		return kcr_fail(NULL, -EINVAL,
				"job is \"%s\", must be at most 64 characters without /",
				config->job);
	generation = next_generation(config);
	snprintf(rv->leader, sizeof(rv->leader), "%s/%s.%u.leader", rv->dir,
		 config->job ? config->job : "kcr", generation);
	return open_dir(rv);
}

/* A rendezvous whose place is known, before anybody is met. */
static int make(const struct kcr_config *config, bool has_module,
		struct rendezvous **out)
{
	struct rendezvous *rv;
	int err;

	rv = calloc(1, sizeof(*rv) + config->size * sizeof(rv->peers[0]));
	if (!rv)
		return kcr_fail(NULL, -ENOMEM, "no memory for the rendezvous");
	rv->config = config;
	rv->rank = config->rank;
	rv->size = config->size;
	rv->fd = NOT_OPEN;
	for (int r = 0; r < rv->size; r++)
		rv->peers[r].fd = NOT_OPEN;
	clock_gettime(CLOCK_REALTIME, &rv->started);
	rv->deadline_ns = process_now_ns() + config->rendezvous_ms * 1000000;
	err = parse_place(rv, config);
	if (!err)
		err = card_make(config, has_module, &rv->card);
	if (err)
		rendezvous_close(rv);
	else
		*out = rv;
	return err;
}

/**
 * rendezvous_open() - meet the other ranks and compare cards
 * @config: this rank's configuration; must live until rendezvous_settle()
 * @has_module: it can use the module
 * @out: the rendezvous, to be closed by rendezvous_close()
 */
int rendezvous_open(const struct kcr_config *config, bool has_module,
		    struct rendezvous **out)
{
	struct rendezvous *rv;
	int err;

	err = make(config, has_module, &rv);
	if (err)
		return err;
	err = rv->rank ? join_attempt(rv) : lead(rv);
	if (!err)
		err = gather(rv, get_card, have_card);
	if (err)
		rendezvous_close(rv);
	else
		*out = rv;
	return err;
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
	struct rendezvous *rv;

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
	sane.link = KCR_LINK_AUTO;
	sane.algo = KCR_ALGO_AUTO;
	if (!make(&sane, false, &rv)) {
		if (!(rv->rank ? follow(rv) : lead(rv))) {
			if (rv->rank)
				strcpy(rv->incarnation,
				       rv->peers[0].card.incarnation);
			kcr_fail(NULL, error, "%s", sentence);
			rendezvous_fail(rv, error);
		}
		rendezvous_close(rv);
	}
	return kcr_fail(NULL, error, "%s", sentence);
}

static void unlink_ours(struct rendezvous *rv, bool leader)
{
	char path[PATH_BYTES];

	if (rv->fd == NOT_OPEN)
		return;
	if (rv->rank) {
		path_of(rv, path, "card", rv->rank);
		unlink(path);
	} else if (leader) {
		unlink(rv->leader);
	}
	for (int round = 1; round <= rv->round; round++) {
		note_path(rv, path, round, rv->rank);
		unlink(path);
	}
}

/* All ranks are connected: nobody needs the files any more, only their locks. */
void rendezvous_settle(struct rendezvous *rv)
{
	unlink_ours(rv, true);
	rv->settled = true;
}

/*
 * After a failure the leader's card stays, without its lock, for those who come late: it leads
 * them to the error. The next launch at this place sweeps it.
 */
void rendezvous_close(struct rendezvous *rv)
{
	if (!rv)
		return;
	if (!rv->settled)
		unlink_ours(rv, false);
	for (int r = 0; r < rv->size; r++)
		if (rv->peers[r].fd >= 0)
			close(rv->peers[r].fd);
	if (rv->fd != NOT_OPEN)
		alive_disown(rv->fd);
	free(rv);
}

const struct card *rendezvous_card(const struct rendezvous *rv, int rank)
{
	return rank == rv->rank ? &rv->card : &rv->peers[rank].card;
}

const char *rendezvous_note(const struct rendezvous *rv, int rank)
{
	return rv->peers[rank].note;
}

/* Does the rank's process live? Only for ranks whose cards have been seen. */
bool rendezvous_is_alive(const struct rendezvous *rv, int rank)
{
	return rank == rv->rank || rv->peers[rank].fd < 0 ||
	       alive_is_held(rv->peers[rank].fd);
}
