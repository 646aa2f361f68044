// SPDX-License-Identifier: GPL-2.0
/*
 * What two CPUs of a node do without a ring: how long a cache line is on its way, and how
 * fast one copies what the other has just written.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "perf.h"
#include "perf-ring.h"

#define LINE	128	/* CPUs fetch two at a time */
#define BLOCKS	64	/* a lane's worth: they stay in the writer's cache */

struct bare {
	_Alignas(LINE) uint64_t line;
	_Alignas(LINE) uint64_t written;
	_Alignas(LINE) uint64_t copied;
	_Alignas(4096) unsigned char blocks[BLOCKS][BARE_BLOCK];
};

bool bare_pin(const struct kcr_world *world)
{
	int wanted = kcr_local_rank(world), cpu;
	cpu_set_t cpus, own;

	if (sched_getaffinity(0, sizeof(cpus), &cpus) ||
	    CPU_COUNT(&cpus) < kcr_local_size(world))
		return false;
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &cpus) && !wanted--)
			break;
	CPU_ZERO(&own);
	CPU_SET(cpu, &own);
	return !sched_setaffinity(0, sizeof(own), &own);
}

/* The owner's descriptor, as others of its user can open it. */
static int open_theirs(const int32_t where[2])
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", where[0], where[1]);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return fd;
}

static int make(void)
{
	int fd = memfd_create("kcr-perf", MFD_CLOEXEC), error;

	if (fd < 0)
		return -errno;
	if (!ftruncate(fd, sizeof(struct bare)))
		return fd;
	error = -errno;
	close(fd);
	return error;
}

int bare_share(struct kcr_world *world, int owner, struct bare **shared)
{
	bool is_owner = kcr_rank(world) == owner;
	int32_t where[2] = { getpid(), is_owner ? make() : -1 };
	int fd = where[1], error;
	void *at;

	if (kcr_local_size(world) != kcr_size(world))
		return -EXDEV;
	error = kcr_broadcast(world, where, 2, KCR_I32, owner);
	if (error)
		return error;
	if (!is_owner)
		fd = open_theirs(where);
	if (fd < 0)
		return fd;
	at = mmap(NULL, sizeof(struct bare), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	*shared = at;
	/* The others may have it open yet. */
	error = kcr_barrier(world);
	close(fd);
	return error;
}

void bare_free(struct bare *shared)
{
	if (shared)
		munmap(shared, sizeof(*shared));
}

static void await(const uint64_t *at, uint64_t value)
{
	while (__atomic_load_n(at, __ATOMIC_ACQUIRE) != value)
		;
}

double bare_line(struct bare *shared, bool is_first, int n)
{
	uint64_t *line = &shared->line, value = *line & ~1ull;
	double began = now_us();
	int i;

	for (i = 0; i < n; i++, value += 2) {
		if (is_first) {
			__atomic_store_n(line, value + 1, __ATOMIC_RELEASE);
			await(line, value + 2);
		} else {
			await(line, value + 1);
			__atomic_store_n(line, value + 2, __ATOMIC_RELEASE);
		}
	}
	return (now_us() - began) / 2 / n;
}

double bare_copy(struct bare *shared, bool is_first)
{
	static unsigned char own[BLOCKS][BARE_BLOCK];
	uint64_t round = shared->copied + 1;
	double us;
	int i;

	if (is_first) {
		memset(shared->blocks, (int)round, sizeof(shared->blocks));
		__atomic_store_n(&shared->written, round, __ATOMIC_RELEASE);
		await(&shared->copied, round);
		return 0;
	}
	await(&shared->written, round);
	us = now_us();
	for (i = 0; i < BLOCKS; i++) {
		memcpy(own[i], shared->blocks[i], BARE_BLOCK);
		/* The copy is wanted. */
		__asm__ volatile("" : : "r" (own[i]) : "memory");
	}
	us = (now_us() - us) / BLOCKS;
	__atomic_store_n(&shared->copied, round, __ATOMIC_RELEASE);
	return us;
}
