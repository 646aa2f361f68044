// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Sleeping and waking.
 *
 * They are Dekker's: the sleeper raises its flag, then looks again; the writer writes,
 * then looks at the flag. A full fence stands between the two on either side, so at
 * least one sees the other. The event counter closes the rest: the sleeper reads it
 * before it raises the flag, and the carrier does not sleep if it has moved since.
 *
 *	sleeper				writer
 *	seen = events			write slot (or acknowledgement)
 *	sleeping += 1			fence
 *	fence				if sleeping: kick (events++)
 *	if nothing moves: park(seen)
 *	sleeping -= 1
 *
 * Several threads of a rank may sleep at once, one in a call on the world and others on
 * rings, so the flag is a count: it is up as long as one of them has it up. The
 * additions are atomic, and only this rank makes them. A kick moves the one event counter
 * that all of them read for themselves, and wakes all: each looks for what it waits for.
 */
#include "link_mesh.h"

void link_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" : : : "memory");
#else
	__asm__ volatile("" : : : "memory");
#endif
}

static uint32_t *sleeping(const unsigned char *board)
{
	return (uint32_t *)(board + BOARD_SLEEPING);
}

static bool is_asleep(const struct link *link, int rank)
{
	return __atomic_load_n(sleeping(link->peers[rank].board),
			       __ATOMIC_RELAXED);
}

/**
 * link_lie_down() - this thread is about to sleep, and looks once more
 * @link: the link
 *
 * Returns the event counter for the carrier to park on.
 */
uint64_t link_lie_down(struct link *link)
{
	uint64_t seen = __atomic_load_n(&link->status->events, __ATOMIC_ACQUIRE);

	__atomic_fetch_add(sleeping(link->board), 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return seen;
}

/* It has slept, or need not. */
void link_get_up(struct link *link)
{
	__atomic_fetch_sub(sleeping(link->board), 1, __ATOMIC_RELAXED);
}

/**
 * link_wake() - wake a rank if it sleeps: something was written for it
 * @link: the link
 * @rank: another rank of this node
 *
 * For any thread.
 */
void link_wake(struct link *link, int rank)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (is_asleep(link, rank))
		link->carrier->ops->rings->kick(link, rank);
}

/**
 * link_flush() - wake those who sleep on what was written since the last flush
 * @link: the link
 *
 * Before every wait and at the end of every operation. One fence for all; see
 * the top of the file. What goes over the mesh needs no fence: the module
 * wakes its readers.
 */
void link_flush(struct link *link)
{
	struct rankset asleep = { 0 };
	bool any = false;

	link_push(link);
	if (rankset_is_empty(&link->touched))
		return;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	rankset_for_each(r, &link->touched) {
		if (!is_asleep(link, r))
			continue;
		rankset_add(&asleep, r);
		any = true;
	}
	rankset_clear(&link->touched);
	if (any)
		link->carrier->ops->kick(link, &asleep);
}
