/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sleeping and waking, as lib/link_sleep.c does it: nobody sleeps through what
 * it waits for.
 *
 * Rank 0 has one thread, which sends on two lanes of one slot each. Rank 1 has two, each of
 * which reads one of the lanes. All sleep when they have nothing to do: the readers
 * until their message comes, the writer until its slot is given back. Spin looks for a state in
 * which nothing can move and not all is done.
 *
 * To be left out, or done wrong, one at a time:
 *
 *	NO_SLEEPER_FENCE	between raising the flag and the last look
 *	NO_WAKER_FENCE		between writing and the look at the flag
 *	SEEN_LATE		the event counter is read behind the last look
 *	FLAG_STORED		the flag is 1 or 0, not a count of those who sleep
 */
#ifndef LANES
#define LANES		2	/* and readers */
#endif
#ifndef MESSAGES
#define MESSAGES	2	/* on each */
#endif

#define THREADS	(1 + LANES)
#define ENTRIES	3
#define PLACES	(2 * LANES + 2)

/* Places. A lane's message and its acknowledgement; both count. */
#define SENT(lane)	(lane)
#define ACKED(lane)	(LANES + (lane))
#define SLEEPING(rank)	(2 * LANES + (rank))

/* Thread 0 is the writer, 1 and 2 are the readers. */
#define reads(t, a)	((t) == 0 -> (a) == SLEEPING(1) || ((a) >= LANES && (a) < 2 * LANES) : \
			 (a) == SLEEPING(0) || (a) == (t) - 1)

#include "machine.pml"

/* Each rank's counter: the kernel's, or moved by locked instructions. */
byte events[2];

#ifdef NO_SLEEPER_FENCE
#define sleeper_fence(t)	skip
#else
#define sleeper_fence(t)	fence(t)
#endif

#ifdef NO_WAKER_FENCE
#define waker_fence(t)		skip
#else
#define waker_fence(t)		fence(t)
#endif

#ifdef FLAG_STORED
#define raise(t, rank)		store(t, SLEEPING(rank), 1)
#define lower(t, rank)		store(t, SLEEPING(rank), 0)
#else
#define raise(t, rank)		add(t, SLEEPING(rank), 1)
#define lower(t, rank)		add(t, SLEEPING(rank), 255)
#endif

inline see(t, rank) {
	atomic {
		seen = events[rank];
		acquire(t)
	}
}

/* Thread @t of @rank waits until place @a has come to @v. */
inline await(t, rank, a, v) {
	load_acquire(t, a, found);
	do
	:: found >= v -> break
	:: else ->
#ifndef SEEN_LATE
		see(t, rank);
#endif
		raise(t, rank);
		sleeper_fence(t);
		load_acquire(t, a, found);
#ifdef SEEN_LATE
		see(t, rank);
#endif
		if
		:: found >= v -> skip
		:: else -> events[rank] != seen	/* park */
		fi;
		lower(t, rank);
		load_acquire(t, a, found)
	od;
	found = 0;
	seen = 0
}

/* Thread @t has written place @a for @rank. */
inline publish(t, rank, a, v) {
	store_release(t, a, v);
	waker_fence(t);
	load(t, SLEEPING(rank), flag);
	if
	:: flag -> atomic { entries[t] == 0; events[rank]++ }	/* kick */
	:: else -> skip
	fi;
	flag = 0
}

proctype writer()
{
	byte scan, n = 1, found, seen, flag, lane;

	do
	:: n <= MESSAGES ->
		lane = 0;
		do
		:: lane < LANES ->
			await(0, 0, ACKED(lane), n - 1);
			publish(0, 1, SENT(lane), n);
			lane++
		:: else -> break
		od;
		n++
	:: else -> break
	od
}

proctype reader(byte t; byte lane)
{
	byte scan, n = 1, found, seen, flag;

	do
	:: n <= MESSAGES ->
		await(t, 1, SENT(lane), n);
		publish(t, 0, ACKED(lane), n);
		n++
	:: else -> break
	od
}

init {
	atomic {
		run writer();
		run memory(0);
		run reader(1, 0);
		run memory(1);
#if LANES > 1
		run reader(2, 1);
		run memory(2);
#endif
		skip
	}
}
