// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Mappings of a ring, whatever carries it.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include "ring.h"

/**
 * ring_map() - map a part of a ring
 * @ring: the ring, which remembers it
 * @fd: where it is
 * @offset: ... and at which place
 * @bytes: a multiple of the page
 * @is_writable: this rank writes it
 * @whose: part it is, for the sentence of an error
 *
 * Returns NULL with errno, and a sentence in kcr_error(NULL).
 */
void *ring_map(struct kcr_ring *ring, int fd, uint64_t offset, size_t bytes,
	       bool is_writable, const char *whose)
{
	struct ring_mapping *m = &ring->mapped[ring->mappings];

	/* No page should be missing where others wait for a message. */
	m->at = mmap(NULL, bytes, is_writable ? PROT_READ | PROT_WRITE : PROT_READ,
		     MAP_SHARED | MAP_POPULATE, fd, offset);
	if (m->at == MAP_FAILED) {
		int error = errno;

		kcr_fail(NULL, -error, "cannot map %s: %s", whose, strerror(error));
		errno = error;
		return NULL;
	}
	/* As the module's windows: a forked child has none. */
	madvise(m->at, bytes, MADV_DONTFORK);
	m->bytes = bytes;
	ring->mappings++;
	return m->at;
}

void ring_unmap_all(struct kcr_ring *ring)
{
	for (size_t i = 0; i < ring->mappings; i++)
		munmap(ring->mapped[i].at, ring->mapped[i].bytes);
	ring->mappings = 0;
}
