// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Memory that the ranks of one node share without the module.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "limits.h"
#include "link.h"
#include "shm.h"

#define SEALS		(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Of the machine: what is more than that would only make it kill somebody. */
static bool is_too_much(size_t bytes)
{
	return bytes / sysconf(_SC_PAGESIZE) > (size_t)sysconf(_SC_PHYS_PAGES);
}

/* Anonymous memory that grows with use would fault when there is none left. */
static int fill(int fd, size_t bytes)
{
	int err = is_too_much(bytes) ? ENOSPC : EINTR;

	/* A signal that is for the program interrupts it. */
	while (err == EINTR)
		err = posix_fallocate(fd, 0, bytes);
	if (err)
		return kcr_fail(NULL, err == ENOSPC ? -ENOMEM : -err,
				"no memory for %zu bytes to share: %s", bytes,
				strerror(err));
	if (fcntl(fd, F_ADD_SEALS, SEALS))
		return kcr_fail(NULL, -errno, "sealing a memfd: %s",
				strerror(errno));
	return 0;
}

/**
 * shm_make() - make memory of this rank's
 * @bytes: its size, a multiple of the page
 *
 * Returns a descriptor, or a negative errno with a sentence in kcr_error(NULL).
 */
int shm_make(size_t bytes)
{
	int fd = memfd_create("kcollring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int err;

	if (fd < 0)
		return kcr_fail(NULL, -errno, "memfd_create: %s",
				strerror(errno));
	err = fill(fd, bytes);
	if (err)
		close(fd);
	return err ? err : fd;
}

/*
 * The memory of a rank that lives can be opened. One that dies loses its descriptors
 * a moment before its lock.
 */
static bool dies(const struct rendezvous *rv, int rank)
{
	const struct timespec pause = { .tv_nsec = DYING_NS / 100 };

	for (int i = 0; i < 100; i++) {
		if (!rendezvous_is_alive(rv, rank))
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

/**
 * shm_open_peer() - open memory of another rank's
 * @rv: how the two met
 * @rank: whose
 * @number: its descriptor
 * @bytes: the size that it must have
 *
 * Process numbers and descriptors are used again: that it is the memory that was meant, its
 * identity must show. Returns a descriptor, or a negative errno with a sentence.
 */
int shm_open_peer(struct rendezvous *rv, int rank, int number, size_t bytes)
{
	char path[64];
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d",
		 rendezvous_card(rv, rank)->pid, number);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		int err = -errno;

		if (dies(rv, rank))
			return link_came_apart(rv, KCR_CAUSE(rank, ECONNRESET));
		return kcr_fail(NULL, err,
				"cannot open rank %d's memory at %s: %s (link shm needs one user and one pid namespace)",
				rank, path, strerror(-err));
	}
	if (fstat(fd, &st) || st.st_size != (off_t)bytes ||
	    (fcntl(fd, F_GET_SEALS) & SEALS) != SEALS) {
		close(fd);
		return kcr_fail(NULL, -EPROTO,
				"rank %d's memory at %s has %lld bytes, must have %zu and be sealed",
				rank, path, (long long)st.st_size, bytes);
	}
	return fd;
}
