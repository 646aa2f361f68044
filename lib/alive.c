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

/**
 * alive_read_ours() - read a file that this very process owns
 * @path: where it is
 * @text: filled with the file's beginning and a 0
 * @size: of @text
 *
 * It must not be opened a second time. Returns 0, or -ENOENT if it is not ours.
 */
int alive_read_ours(const char *path, char *text, size_t size)
{
	struct owned *entry;
	struct stat st;
	ssize_t n = -1;

	if (stat(path, &st))
		return -ENOENT;
	pthread_mutex_lock(&lock);
	entry = *find(&st);
	if (entry && entry->pid == getpid())
		n = pread(entry->fd, text, size - 1, 0);
	pthread_mutex_unlock(&lock);
	if (n < 0)
		return -ENOENT;
	text[n] = 0;
	return 0;
}

/* Does another process hold the file? */
bool alive_is_held(int fd)
{
	struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	return fcntl(fd, F_GETLK, &range) || range.l_type != F_UNLCK;
}
