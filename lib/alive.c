// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Files that show that their owner is alive: it holds a lock on each.
 *
 * POSIX record locks behave as the death of a rank must: the kernel drops
 * them when the process that took them exits, is killed or executes another
 * program, and when a forked child does the same nothing happens, since it
 * never had them. They have two traps, and this file exists for them: the process
 * that holds a lock sees it as free, and loses it as soon as it closes any
 * descriptor of the same file. So files that this process owns are listed
 * here, by device and inode, and are never opened a second time.
 *
 * The list is under one mutex; entries of a parent are void in its child.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "alive.h"

struct owned {
	struct owned *next;
	dev_t dev;
	ino_t ino;
	pid_t pid;
	int fd;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct owned *list;

/* Hold @fd's file from now on. Returns 0, or -EBUSY if another process does. */
int alive_own(int fd)
{
	struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct owned *entry;
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	entry = malloc(sizeof(*entry));
	if (!entry)
		return -ENOMEM;
	if (fcntl(fd, F_SETLK, &range)) {
		int err = errno == EACCES || errno == EAGAIN ? -EBUSY : -errno;

		free(entry);
		return err;
	}
	*entry = (struct owned){ .dev = st.st_dev, .ino = st.st_ino,
				 .pid = getpid(), .fd = fd };
	pthread_mutex_lock(&lock);
	entry->next = list;
	list = entry;
	pthread_mutex_unlock(&lock);
	return 0;
}

static struct owned **find(const struct stat *st)
{
	struct owned **at;

	for (at = &list; *at; at = &(*at)->next)
		if ((*at)->dev == st->st_dev && (*at)->ino == st->st_ino)
			break;
	return at;
}

/* Close @fd, whose file this process owned. */
void alive_disown(int fd)
{
	struct owned **at, *entry = NULL;
	struct stat st;

	pthread_mutex_lock(&lock);
	if (!fstat(fd, &st)) {
		at = find(&st);
		entry = *at;
		if (entry)
			*at = entry->next;
	}
	close(fd);
	pthread_mutex_unlock(&lock);
	free(entry);
}

/* Read a file that this very process owns. Returns false if it is not ours. */
static bool read_ours(const struct stat *st, char *text, size_t size)
{
	struct owned *entry;
	ssize_t n = -1;

	pthread_mutex_lock(&lock);
	entry = *find(st);
	if (entry && entry->pid == getpid())
		n = pread(entry->fd, text, size - 1, 0);
	pthread_mutex_unlock(&lock);
	if (n < 0)
		return false;
	text[n] = 0;
	return true;
}

/*
 * What is at @path may change at any time, so the file is first taken by
 * an O_PATH descriptor, whose closing drops no lock, and opened if it is not ours.
 * Nothing but a file is opened: others do things when they are, or wait.
 */
static int open_path(const char *path, int flags, char *text, size_t size)
{
	int handle = open(path, O_PATH | O_CLOEXEC | flags), fd;
	char again[32];
	struct stat st;

	if (handle < 0)
		return -errno;
	snprintf(again, sizeof(again), "/proc/self/fd/%d", handle);
	if (fstat(handle, &st)) {
		fd = -errno;
	} else if (!S_ISREG(st.st_mode)) {
		fd = -EINVAL;
	} else if (read_ours(&st, text, size)) {
		fd = ALIVE_OURS;
	} else {
		fd = open(again, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			fd = -errno;
	}
	close(handle);
	return fd;
}

/**
 * alive_open() - open a file to see whether its owner lives
 * @path: where it is
 * @text: if this very process owns it: filled with the file's beginning and a 0
 * @size: of @text
 *
 * Returns a descriptor, ALIVE_OURS, or a negative errno.
 */
int alive_open(const char *path, char *text, size_t size)
{
	return open_path(path, O_NOFOLLOW, text, size);
}

/**
 * alive_open_number() - likewise a file without a name
 * @pid: of its owner
 * @number: of its owner's descriptor
 * @text: as alive_open(), but filled whoever owns it
 * @size: of @text
 */
int alive_open_number(int pid, int number, char *text, size_t size)
{
	char path[48];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, number);
	fd = open_path(path, 0, text, size);
	if (fd < 0)
		return fd;
	n = pread(fd, text, size - 1, 0);
	text[n > 0 ? n : 0] = 0;
	return fd;
}

/* Does another process hold the file? */
bool alive_is_held(int fd)
{
	struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(fd, F_GETLK, &range) || range.l_type != F_UNLCK;
}
