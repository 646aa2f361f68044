/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A safe lane: every message arrives once, in order and whole, and a slot is written again
 * only when its reader is done with it.
 *
 * The checksum is left out: it would hide what barriers are for. A payload is two words,
 * so that it can be seen half written.
 *
 * To be left out, one at a time:
 *
 *	NO_SEQUENCE_RELEASE	the sequence is stored like the rest
 *	NO_SEQUENCE_ACQUIRE	... and loaded so
 *	NO_ACK_RELEASE		the acknowledgement, likewise
 *	NO_WAIT			the writer does not look at it
 *
 * The acquire of the acknowledgement is not among them: what it keeps back are stores, by a
 * condition before them, and no machine does those on suspicion.
 */
#define THREADS	2
#define ENTRIES	5
#define DEPTH	2
#define MESSAGES 4

#define SEQUENCE(slot)	(3 * (slot))
#define FIRST(slot)	(3 * (slot) + 1)
#define SECOND(slot)	(3 * (slot) + 2)
#define ACKED		(3 * DEPTH)
#define COMPLEMENT	(3 * DEPTH + 1)
#define PLACES		(3 * DEPTH + 2)

#define reads(t, a)	((t) == 0 -> (a) >= ACKED : (a) < ACKED)

#include "machine.pml"

#define INVERTED(n)	(255 - (n))

#ifdef NO_SEQUENCE_RELEASE
#define store_sequence(t, a, v)	store(t, a, v)
#else
#define store_sequence(t, a, v)	store_release(t, a, v)
#endif

#ifdef NO_SEQUENCE_ACQUIRE
#define load_sequence(t, a, v)	load(t, a, v)
#else
#define load_sequence(t, a, v)	load_acquire(t, a, v)
#endif

proctype writer()
{
	byte scan, n = 1, acked, sequence, complement;

	do
	:: n <= MESSAGES ->
#ifndef NO_WAIT
		do
		:: n - acked <= DEPTH -> break
		:: else ->
			load_acquire(0, COMPLEMENT, complement);
			load_acquire(0, ACKED, sequence);
			if
			:: sequence == INVERTED(complement) ->
				assert(sequence >= acked && sequence < n);
				acked = sequence
			:: else -> skip
			fi;
			sequence = 0;
			complement = 0
		od;
#endif
		store(0, FIRST((n - 1) % DEPTH), n);
		store(0, SECOND((n - 1) % DEPTH), n);
		store_sequence(0, SEQUENCE((n - 1) % DEPTH), n);
		n++
	:: else -> break
	od
}

inline take() {
	load(1, FIRST((n - 1) % DEPTH), first);
	load(1, SECOND((n - 1) % DEPTH), second)
}

proctype reader()
{
	byte scan, n = 1, found, first, second;

	do
	:: n <= MESSAGES ->
		load_sequence(1, SEQUENCE((n - 1) % DEPTH), found);
		if
		:: found == n ->
#ifdef NO_ACK_RELEASE
			/* Then what was loaded before may be loaded after. */
			if
			:: take()
			:: skip
			fi;
			store(1, ACKED, n);
			store(1, COMPLEMENT, INVERTED(n));
			if
			:: first -> skip
			:: else -> take()
			fi;
#else
			take();
			store_release(1, ACKED, n);
			store(1, COMPLEMENT, INVERTED(n));
#endif
			assert(first == n && second == n);
			n++
		:: else ->
			/* Overwritten: nobody was waited for. */
			assert(found < n)
		fi;
		found = 0;
		first = 0;
		second = 0
	:: else -> break
	od
}

init {
	atomic {
		mem[COMPLEMENT] = INVERTED(0);
		copy_initial(0, COMPLEMENT);
		run writer();
		run memory(0);
		run reader();
		run memory(1)
	}
}
