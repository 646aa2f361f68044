/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A raw lane: the writer waits for nobody, so the reader may be lapped at any moment. What
 * it takes is whole and in order, and what it gives up as lost was overwritten.
 *
 * The reader copies, then looks whether the slot is still what it was. As in lane.pml the
 * checksum is left out, which would catch what these barriers prevent.
 *
 * To be left out, one at a time:
 *
 *	NO_ZERO			the sequence is not taken away before the slot is written again
 *	NO_WALL			... or what is written then may be seen before that
 *	NO_SEQUENCE_RELEASE	the new sequence is stored like the rest
 *	NO_SEQUENCE_ACQUIRE	... and loaded so
 *	NO_SECOND_LOOK		the sequence is not looked at again
 *	NO_COPY_ACQUIRE		... or may be, before the copy is made
 */
#define THREADS	2
#define ENTRIES	4
#ifndef DEPTH
#define DEPTH	1
#endif
#ifndef MESSAGES
#define MESSAGES 3
#endif

#define SLOT(n)		(((n) - 1) % DEPTH)
#define SEQUENCE(n)	(4 * SLOT(n))
#define FIRST(n)	(4 * SLOT(n) + 1)
#define SECOND(n)	(4 * SLOT(n) + 2)
#define GUARD(n)	(4 * SLOT(n) + 3)
#define PLACES		(4 * DEPTH)

#define reads(t, a)	((t) == 1)

#include "machine.pml"

#define INVERTED(n)	(255 - (n))

byte begun;		/* the last message whose slot the writer has touched */

proctype writer()
{
	byte scan, n = 1;

	do
	:: n <= MESSAGES ->
		begun = n;
#ifndef NO_ZERO
		store(0, SEQUENCE(n), 0);
#ifndef NO_WALL
		wall(0);
#endif
#endif
		store(0, FIRST(n), n);
		store(0, SECOND(n), n);
		store(0, GUARD(n), INVERTED(n));
#ifdef NO_SEQUENCE_RELEASE
		store(0, SEQUENCE(n), n);
#else
		store_release(0, SEQUENCE(n), n);
#endif
		n++
	:: else -> break
	od
}

proctype reader()
{
	byte scan, next = 1, lost, taken, found, first, second, guard, again;

	do
	:: next <= MESSAGES ->
#ifdef NO_SEQUENCE_ACQUIRE
		load(1, SEQUENCE(next), found);
#else
		load_acquire(1, SEQUENCE(next), found);
#endif
		if
		:: found >= next ->
			load(1, GUARD(next), guard);
			load(1, FIRST(next), first);
			load(1, SECOND(next), second);
#ifndef NO_COPY_ACQUIRE
			acquire(1);
#endif
#ifdef NO_SECOND_LOOK
			again = found;
#else
			load(1, SEQUENCE(next), again);
#endif
			if
			:: again == found && guard == INVERTED(found) ->
				assert(first == found && second == found);
				if
				:: found == next -> taken++; next++
				:: else ->
					/* The oldest that may still be there. */
					assert(found <= begun);
					lost = lost + found - DEPTH + 1 - next;
					next = found - DEPTH + 1
				fi
			:: else -> skip	/* torn */
			fi
		:: else -> skip
		fi;
		found = 0;
		first = 0;
		second = 0;
		guard = 0;
		again = 0
	:: else -> break
	od;
	assert(taken + lost == MESSAGES)
}

init {
	atomic {
		run writer();
		run memory(0);
		run reader();
		run memory(1)
	}
}
