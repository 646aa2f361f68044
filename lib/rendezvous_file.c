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

struct meeting {
	struct rendezvous rv;
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

static const struct rendezvous_ops file_ops;
static void file_close(struct meeting *m);
static bool is_alive(const struct meeting *m, int rank);

static struct meeting *meeting_of(struct rendezvous *rv)
{
	return (struct meeting *)rv;
}

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

static void path_of(const struct meeting *m, char path[PATH_BYTES],
		    const char *what, int rank)
{
	if (rank < 0)
		snprintf(path, PATH_BYTES, "%s/%s.%s", m->dir,
			 m->incarnation, what);
	else
		snprintf(path, PATH_BYTES, "%s/%s.%s.%d", m->dir,
			 m->incarnation, what, rank);
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
static int make_file(struct meeting *m, const char *text,
		     char path[PATH_BYTES])
{
	int fd, err;

	snprintf(path, PATH_BYTES, "%s/.tmp.XXXXXX", m->dir);
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

static int dir_fail(struct meeting *m, int err, const char *what)
{
	return kcr_fail(NULL, err, "rendezvous directory %s: %s: %s", m->dir,
			what, strerror(-err));
}

/* The directory must be ours: who can write it can join the world. */
static int open_dir(struct meeting *m)
{
	struct stat st;

	if (mkdir(m->dir, 0700) && errno != EEXIST)
		return dir_fail(m, -errno, "cannot make it");
	if (stat(m->dir, &st))
		return dir_fail(m, -errno, "cannot look at it");
	if (!S_ISDIR(st.st_mode))
		return dir_fail(m, -ENOTDIR, "cannot use it");
	if ((st.st_uid != geteuid() && st.st_uid) || (st.st_mode & 0002))
		return kcr_fail(NULL, -EACCES,
				"rendezvous directory %s: owner %u and mode %o let others in; must be yours and not world-writable",
				m->dir, st.st_uid, st.st_mode & 07777);
	return 0;
}

/* Put our card at @path, exclusively. */
static int publish_card(struct meeting *m, const char *path)
{
	char temporary[PATH_BYTES];
	int err = 0;

	m->fd = make_file(m, m->card.text, temporary);
	if (m->fd < 0) {
		err = m->fd;
		m->fd = NOT_OPEN;
		return dir_fail(m, err, "cannot write a card");
	}
	err = alive_own(m->fd);
	if (err) {
		unlink(temporary);
		close(m->fd);
		m->fd = NOT_OPEN;
		return dir_fail(m, err, "cannot lock a card");
	}
	if (link(temporary, path))
		err = -errno;
	unlink(temporary);
	if (err) {
		alive_disown(m->fd);
		m->fd = NOT_OPEN;
		return err == -EEXIST ? err :
		       dir_fail(m, err, "cannot publish a card");
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
 * file_error() - the error that a rank has published, if there is one
 * @m: the meeting
 *
 * Returns it, with its sentence in kcr_error(NULL), or 0.
 */
static int file_error(struct meeting *m)
{
	char path[PATH_BYTES], text[KCR_ERROR_BYTES];
	char *sentence;
	int fd, err;

	if (!m->incarnation[0])
		return 0;
	path_of(m, path, "error", -1);
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
 * file_fail() - make every rank fail with this rank's error
 * @m: the meeting
 * @error: a negative errno; kcr_error(NULL) has the sentence
 *
 * The first error of an attempt is everyone's. Returns it.
 */
static int file_fail(struct meeting *m, int error)
{
	char text[KCR_ERROR_BYTES + 16], path[PATH_BYTES], temporary[PATH_BYTES];
	int fd;

	if (!m->incarnation[0])
		return error;
	snprintf(text, sizeof(text), "%d\n%s", error, kcr_error(NULL));
	fd = make_file(m, text, temporary);
	if (fd < 0)
		return error;
	close(fd);
	path_of(m, path, "error", -1);
	if (link(temporary, path) && errno != EEXIST)
		dir_fail(m, -errno, "cannot publish an error");
	unlink(temporary);
	return file_error(m) ?: error;
}

/* Wait a little, less at first. Returns 0, or -ETIMEDOUT. */
static int pause_a_little(struct meeting *m, unsigned int *rounds)
{
	struct timespec t = { 0 };

	if (process_now_ns() > m->deadline_ns)
		return -ETIMEDOUT;
	if ((*rounds)++ < 20) {
		sched_yield();
		return 0;
	}
	t.tv_nsec = *rounds < 100 ? 100000 : 2000000;
	nanosleep(&t, NULL);
	return 0;
}

static int duplicate(struct meeting *m, const struct card *other)
{
	return file_fail(m, kcr_fail(NULL, -EEXIST,
		"rank %d is claimed twice: by host %s pid %d and by host %s pid %d",
		m->rank, other->host, other->pid, m->card.host, m->card.pid));
}

/* Files of an attempt whose leader is dead. */
static void sweep(struct meeting *m, const char *incarnation)
{
	struct dirent *entry;
	DIR *dir = opendir(m->dir);

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
static int contest_lead(struct meeting *m)
{
	int dir = open(m->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct card other;
	int fd, err = 0;
	bool held;

	if (dir < 0 || flock(dir, LOCK_EX)) {
		err = dir_fail(m, -errno, "cannot lock it");
		goto out;
	}
	fd = look_at_card(m->leader, &other, &held);
	if (fd >= 0)
		close(fd);
	if (fd == -ENOENT) {
		goto out;
	} else if (fd < 0 && fd != ALIVE_OURS) {
		err = dir_fail(m, fd, "cannot read a card");
	} else if (held) {
		strcpy(m->incarnation, other.incarnation);
		err = duplicate(m, &other);
	} else {
		unlink(m->leader);
		sweep(m, other.incarnation);
	}
out:
	if (dir >= 0)
		close(dir);
	return err;
}

static int lead(struct meeting *m)
{
	int err;

	strcpy(m->incarnation, m->card.incarnation);
	for (;;) {
		err = publish_card(m, m->leader);
		if (err != -EEXIST)
			return err;
		err = contest_lead(m);
		if (err)
			return err;
	}
}

/*
 * An error that a leader left before it went is for us, too, if it led this launch.
 * Without a name for the launch the time must tell: its error is new, and no
 * other leader comes, as it would if ours were an attempt to do better.
 */
static bool is_our_error(struct meeting *m, const char *incarnation,
			 uint64_t waited_ns)
{
	char path[PATH_BYTES];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s.error", m->dir, incarnation);
	if (stat(path, &st))
		return false;
	return m->config->job ||
	       (st.st_mtim.tv_sec + 1 >= m->started.tv_sec &&
		waited_ns > NEXT_LAUNCH_MS * 1000000ull);
}

/* Find a live leader, or one that has died of an error that is for us. */
static int follow(struct meeting *m)
{
	uint64_t began_ns = process_now_ns();
	struct peer *leader = &m->peers[0];
	unsigned int rounds = 0;
	bool held;
	int fd;

	for (;;) {
		fd = look_at_card(m->leader, &leader->card, &held);
		if (fd == ALIVE_OURS)
			break;
		if (fd < 0 && fd != -ENOENT)
			return dir_fail(m, fd, "cannot read rank 0's card");
		if (fd >= 0 &&
		    (held || is_our_error(m, leader->card.incarnation,
					  process_now_ns() - began_ns)))
			break;
		if (fd >= 0)
			close(fd);
		if (pause_a_little(m, &rounds))
			return kcr_fail(NULL, -ETIMEDOUT,
					"no word from rank 0 at %s after %.1f s",
					m->leader,
					m->config->rendezvous_ms / 1e3);
	}
	leader->fd = fd;
	return 0;
}

/* Rank R's place is free, unless another process claims it. */
static int take_place(struct meeting *m)
{
	char path[PATH_BYTES];
	struct card other;
	bool held;
	int fd, err;

	path_of(m, path, "card", m->rank);
	err = publish_card(m, path);
	if (err != -EEXIST)
		return err;
	fd = look_at_card(path, &other, &held);
	if (fd < 0 && fd != ALIVE_OURS)
		return dir_fail(m, fd, "cannot read a card");
	if (fd >= 0)
		close(fd);
	if (held)
		return duplicate(m, &other);
	return file_fail(m, kcr_fail(NULL, -ECONNRESET,
		"rank %d died while the ranks came together (host %s, pid %d)",
		m->rank, other.host, other.pid));
}

static int join_attempt(struct meeting *m)
{
	struct card *first = &m->peers[0].card;
	int err;

	err = follow(m);
	if (err)
		return err;
	strcpy(m->incarnation, first->incarnation);
	m->peers[0].known = true;
	err = file_error(m);
	if (err)
		return err;
	err = take_place(m);
	if (err)
		return err;
	err = card_compare(first, m->rank, &m->card);
	return err ? file_fail(m, err) : 0;
}

/* Ranks of which @have is not true, in words. */
static void name_missing(struct meeting *m,
			 bool (*have)(struct meeting *m, int rank),
			 char *text, size_t size)
{
	size_t at = 0;

	text[0] = 0;
	for (int r = 0; r < m->size && at < size; r++)
		if (r != m->rank && !have(m, r))
			at += snprintf(text + at, size - at, "%srank %d",
				       at ? ", " : "", r);
}

static int check_alive(struct meeting *m)
{
	for (int r = 0; r < m->size; r++) {
		const struct card *card = &m->peers[r].card;

		if (r == m->rank || !m->peers[r].known ||
		    is_alive(m, r))
			continue;
		return file_fail(m, kcr_fail(NULL, -ECONNRESET,
			"rank %d died while the ranks came together (host %s, pid %d)",
			r, card->host, card->pid));
	}
	return 0;
}

/* Call @get for each other rank until it is true for all. */
static int gather(struct meeting *m,
		  int (*get)(struct meeting *m, int rank),
		  bool (*have)(struct meeting *m, int rank))
{
	unsigned int rounds = 0;
	char names[KCR_ERROR_BYTES / 2];
	int err, r;

	for (;;) {
		for (r = 0; r < m->size; r++) {
			if (r == m->rank || have(m, r))
				continue;
			err = get(m, r);
			if (err && err != -ENOENT)
				return err;
			if (err)
				break;
		}
		if (r == m->size)
			return 0;
		err = file_error(m);
		if (!err && rounds >= 20)
			err = check_alive(m);
		if (err)
			return err;
		if (pause_a_little(m, &rounds)) {
			/* Only the first that is missing was looked for. */
			for (r = 0; r < m->size; r++)
				if (r != m->rank && !have(m, r))
					get(m, r);
			name_missing(m, have, names, sizeof(names));
			return file_fail(m, kcr_fail(NULL, -ETIMEDOUT,
				"no word from %s at %s after %.1f s", names,
				m->dir, m->config->rendezvous_ms / 1e3));
		}
	}
}

static bool have_card(struct meeting *m, int rank)
{
	return m->peers[rank].known;
}

static int get_card(struct meeting *m, int rank)
{
	struct peer *peer = &m->peers[rank];
	const struct card *first = m->rank ? &m->peers[0].card : &m->card;
	char path[PATH_BYTES];
	bool held;
	int fd, err;

	path_of(m, path, "card", rank);
	fd = look_at_card(path, &peer->card, &held);
	if (fd == -ENOENT)
		return fd;
	if (fd < 0 && fd != ALIVE_OURS)
		return dir_fail(m, fd, "cannot read a card");
	peer->fd = fd;
	peer->known = true;
	err = card_compare(first, rank, &peer->card);
	return err ? file_fail(m, err) : 0;
}

static void note_path(const struct meeting *m, char path[PATH_BYTES],
		      int round, int rank)
{
	char what[32];

	snprintf(what, sizeof(what), "note.%d", round);
	path_of(m, path, what, rank);
}

static bool have_note(struct meeting *m, int rank)
{
	return m->peers[rank].note[0];
}

static int get_note(struct meeting *m, int rank)
{
	char path[PATH_BYTES];
	int fd, err;

	note_path(m, path, m->round, rank);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ENOENT :
		       dir_fail(m, -errno, "cannot read a note");
	err = read_all(fd, m->peers[rank].note, NOTE_BYTES);
	close(fd);
	return err;
}

/* A rank that fails meanwhile, or dies, is everyone's error. */
static int file_exchange(struct rendezvous *rv, const char *note)
{
	struct meeting *m = meeting_of(rv);
	char path[PATH_BYTES], temporary[PATH_BYTES];
	int fd;

	for (int r = 0; r < m->size; r++)
		m->peers[r].note[0] = 0;
	m->round++;
	fd = make_file(m, note, temporary);
	if (fd < 0)
		return dir_fail(m, fd, "cannot write a note");
	close(fd);
	note_path(m, path, m->round, m->rank);
	if (rename(temporary, path))
		return dir_fail(m, -errno, "cannot publish a note");
	return gather(m, get_note, have_note);
}

static int parse_place(struct meeting *m, const struct kcr_config *config)
{
	const char *place = config->rendezvous;
	unsigned int generation;

	if (strncmp(place, "file:", 5) || place[5] != '/')
		return kcr_fail(NULL, -EINVAL,
				"rendezvous is \"%s\", must be file:/directory or tcp:host:port",
				place);
	if (snprintf(m->dir, sizeof(m->dir), "%s", place + 5) >=
	    (int)sizeof(m->dir))
		return kcr_fail(NULL, -ENAMETOOLONG,
				"rendezvous has %zu bytes, at most %zu work",
				strlen(place), sizeof(m->dir) + 4);
	if (config->job && (strchr(config->job, '/') ||
			    strlen(config->job) > 64))
		return kcr_fail(NULL, -EINVAL,
				"job is \"%s\", must be at most 64 characters without /",
				config->job);
	generation = next_generation(config);
	snprintf(m->leader, sizeof(m->leader), "%s/%s.%u.leader", m->dir,
		 config->job ? config->job : "kcr", generation);
	return open_dir(m);
}

/* A rendezvous whose place is known, before anybody is met. */
static int make(const struct kcr_config *config, bool has_module,
		struct meeting **out)
{
	struct meeting *m;
	int err;

	m = calloc(1, sizeof(*m) + config->size * sizeof(m->peers[0]));
	if (!m)
		return kcr_fail(NULL, -ENOMEM, "no memory for the rendezvous");
	m->rv.ops = &file_ops;
	m->rv.references = 1;
	m->config = config;
	m->rank = config->rank;
	m->size = config->size;
	m->fd = NOT_OPEN;
	for (int r = 0; r < m->size; r++)
		m->peers[r].fd = NOT_OPEN;
	clock_gettime(CLOCK_REALTIME, &m->started);
	m->deadline_ns = process_now_ns() + config->rendezvous_ms * 1000000;
	err = parse_place(m, config);
	if (!err)
		err = card_make(config, has_module, &m->card);
	if (err)
		file_close(m);
	else
		*out = m;
	return err;
}

/**
 * rendezvous_file_open() - meet the other ranks and compare cards
 * @config: this rank's configuration; must live until rendezvous_settle()
 * @has_module: it can use the module
 * @out: the rendezvous, to be closed by rendezvous_close()
 */
int rendezvous_file_open(const struct kcr_config *config, bool has_module,
			 struct rendezvous **out)
{
	struct meeting *m;
	int err;

	err = make(config, has_module, &m);
	if (err)
		return err;
	err = m->rank ? join_attempt(m) : lead(m);
	if (!err)
		err = gather(m, get_card, have_card);
	if (err)
		file_close(m);
	else
		*out = &m->rv;
	return err;
}

/**
 * rendezvous_file_refuse() - tell the ranks that wait for this one
 * @config: a sane one, as rendezvous_refuse() makes it
 * @error: why this rank cannot come
 * @sentence: the same in words
 */
void rendezvous_file_refuse(const struct kcr_config *config, int error,
			    const char *sentence)
{
	struct meeting *m;

	if (make(config, false, &m))
		return;
	if (!(m->rank ? follow(m) : lead(m))) {
		if (m->rank)
			strcpy(m->incarnation, m->peers[0].card.incarnation);
		kcr_fail(NULL, error, "%s", sentence);
		file_fail(m, error);
	}
	file_close(m);
}

static void unlink_ours(struct meeting *m, bool leader)
{
	char path[PATH_BYTES];

	if (m->fd == NOT_OPEN)
		return;
	if (m->rank) {
		path_of(m, path, "card", m->rank);
		unlink(path);
	} else if (leader) {
		unlink(m->leader);
	}
	for (int round = 1; round <= m->round; round++) {
		note_path(m, path, round, m->rank);
		unlink(path);
	}
}

/* All ranks are connected: nobody needs the files any more, only their locks. */
static void file_settle(struct rendezvous *rv)
{
	struct meeting *m = meeting_of(rv);

	unlink_ours(m, true);
	m->settled = true;
}

/*
 * After a failure the leader's card stays, without its lock, for those who come late: it leads
 * them to the error. The next launch at this place sweeps it.
 */
static void file_close(struct meeting *m)
{
	if (!m->settled)
		unlink_ours(m, false);
	for (int r = 0; r < m->size; r++)
		if (m->peers[r].fd >= 0)
			close(m->peers[r].fd);
	if (m->fd != NOT_OPEN)
		alive_disown(m->fd);
	free(m);
}

static bool is_alive(const struct meeting *m, int rank)
{
	return rank == m->rank || m->peers[rank].fd < 0 ||
	       alive_is_held(m->peers[rank].fd);
}

static int file_fail_all(struct rendezvous *rv, int error)
{
	return file_fail(meeting_of(rv), error);
}

static int file_error_all(struct rendezvous *rv, bool waits)
{
	(void)waits;
	return file_error(meeting_of(rv));
}

static void file_close_all(struct rendezvous *rv)
{
	file_close(meeting_of(rv));
}

static const struct card *file_card(const struct rendezvous *rv, int rank)
{
	const struct meeting *m = (const struct meeting *)rv;

	return rank == m->rank ? &m->card : &m->peers[rank].card;
}

static const char *file_note(const struct rendezvous *rv, int rank)
{
	return ((const struct meeting *)rv)->peers[rank].note;
}

/* Only for ranks whose cards have been seen. */
static bool file_is_alive(const struct rendezvous *rv, int rank)
{
	return is_alive((const struct meeting *)rv, rank);
}

static const struct rendezvous_ops file_ops = {
	.exchange = file_exchange,
	.fail = file_fail_all,
	.error = file_error_all,
	.settle = file_settle,
	.close = file_close_all,
	.card = file_card,
	.note = file_note,
	.is_alive = file_is_alive,
};
