/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A machine whose memory is not sequentially consistent, for spin, which is. Included
 * by the models, which define THREADS, PLACES, ENTRIES and reads(thread, place) first; the
 * last, whether the thread ever loads from there, only spares spin states.
 *
 * Each thread has a buffer of stores that the others do not see yet. A process of its own
 * for each buffer lets them out, when it likes:
 *
 *	TSO	in order, as x86 does; an atomic addition waits until the buffer is empty
 *	else	in any order, as others may: but stores to one place in order, nothing
 *		behind a wall before it, and a release after all that is older. Additions are
 *		let out like stores. And loads may be early: a thread reads from copies
 *		of the places, each as old as the thread's last acquire at most, which the
 *		same process brings up to date when it likes.
 *
 * Not here: a load that is later than a store behind it. No model relies on that but in one
 * place, where it says so.
 */

#define FLAT(t, i)	((t) * ENTRIES + (i))
#define COPY(t, a)	((t) * PLACES + (a))
#define WALL		255	/* a place that orders stores; nothing is stored */

byte mem[PLACES];

/* Buffers, the oldest entry first. */
byte entries[THREADS];
byte place[THREADS * ENTRIES];
byte value[THREADS * ENTRIES];
bit adds[THREADS * ENTRIES];
bit releases[THREADS * ENTRIES];

#ifdef TSO
#define copy_initial(t, a)	skip
#else
byte copy[THREADS * PLACES];
#define copy_initial(t, a)	copy[COPY(t, a)] = mem[a]
#endif

inline put(t, a, v, is_add, is_release) {
	atomic {
		entries[t] < ENTRIES;
		place[FLAT(t, entries[t])] = a;
		value[FLAT(t, entries[t])] = v;
		adds[FLAT(t, entries[t])] = is_add;
		releases[FLAT(t, entries[t])] = is_release;
		entries[t]++
	}
}

inline store(t, a, v)		{ put(t, a, v, 0, 0) }
inline store_release(t, a, v)	{ put(t, a, v, 0, 1) }

#ifdef TSO
inline add(t, a, v)		{ atomic { entries[t] == 0; mem[a] = mem[a] + v } }
inline wall(t)			{ skip }	/* stores are in order */
#else
inline add(t, a, v)		{ put(t, a, v, 1, 0) }
inline wall(t)			{ put(t, WALL, 0, 0, 0) }
#endif

inline refresh(t) {
#ifndef TSO
	scan = 0;
	do
	:: scan < PLACES && reads(t, scan) -> copy[COPY(t, scan)] = mem[scan]; scan++
	:: scan < PLACES && !reads(t, scan) -> scan++
	:: else -> break
	od;
	scan = 0
#else
	skip
#endif
}

/* Nothing passes. */
inline fence(t)			{ d_step { entries[t] == 0; refresh(t) } }
/* Loads behind it are not early. */
inline acquire(t)		{ d_step { refresh(t) } }

/* The newest of the own stores, else memory, or a copy of it. */
inline load(t, a, into) {
	d_step {
		scan = entries[t];
		do
		:: scan > 0 && place[FLAT(t, scan - 1)] != a -> scan--
		:: else -> break
		od;
		if
		:: scan > 0 -> into = value[FLAT(t, scan - 1)]
#ifdef TSO
		:: else -> into = mem[a]
#else
		:: else -> into = copy[COPY(t, a)]
#endif
		fi;
		scan = 0
	}
}

/* ... which is not early, and nothing behind it is. */
inline load_acquire(t, a, into) {
	atomic {
		acquire(t);
		load(t, a, into)
	}
}

/* May entry @i leave the buffer now? Into @may. */
inline look(t, i) {
	may = 1;
	scan = 0;
	do
	:: scan < i ->
		if
#ifdef TSO
		:: 1 -> may = 0
#else
		:: place[FLAT(t, scan)] == place[FLAT(t, i)] ||
		   place[FLAT(t, scan)] == WALL || place[FLAT(t, i)] == WALL ||
		   releases[FLAT(t, i)] -> may = 0
		:: else -> skip
#endif
		fi;
		scan++
	:: else -> break
	od;
	scan = 0
}

inline let_out(t, i) {
	if
	:: place[FLAT(t, i)] == WALL -> skip
	:: else ->
		if
		:: adds[FLAT(t, i)] ->
			mem[place[FLAT(t, i)]] = mem[place[FLAT(t, i)]] + value[FLAT(t, i)]
		:: else -> mem[place[FLAT(t, i)]] = value[FLAT(t, i)]
		fi;
#ifndef TSO
		if
		:: reads(t, place[FLAT(t, i)]) ->
			copy[COPY(t, place[FLAT(t, i)])] = mem[place[FLAT(t, i)]]
		:: else -> skip
		fi
#endif
	fi;
	scan = i + 1;
	do
	:: scan < entries[t] ->
		place[FLAT(t, scan - 1)] = place[FLAT(t, scan)];
		value[FLAT(t, scan - 1)] = value[FLAT(t, scan)];
		adds[FLAT(t, scan - 1)] = adds[FLAT(t, scan)];
		releases[FLAT(t, scan - 1)] = releases[FLAT(t, scan)];
		scan++
	:: else -> break
	od;
	entries[t]--;
	/* Equal buffers are equal states. */
	place[FLAT(t, entries[t])] = 0;
	value[FLAT(t, entries[t])] = 0;
	adds[FLAT(t, entries[t])] = 0;
	releases[FLAT(t, entries[t])] = 0;
	scan = 0
}

/* A copy is brought up to date: a guard, so that spin sees where nothing can move. */
#define early(a)							\
	:: (a) < PLACES && reads(t, a) &&				\
	   copy[COPY(t, (a) % PLACES)] != mem[(a) % PLACES] ->	\
		copy[COPY(t, (a) % PLACES)] = mem[(a) % PLACES]

/* What memory does by itself for thread @t. */
proctype memory(byte t)
{
	byte scan, i;
	bit may;

end:	do
	:: atomic {
		entries[t] > 0 -> i = 0;
#ifndef TSO
		do
		:: i + 1 < entries[t] -> i++
		:: break
		od;
#endif
		d_step {
			look(t, i);
			if
			:: may -> let_out(t, i)
			:: else -> skip
			fi;
			i = 0;
			may = 0
		}
	}
#ifndef TSO
	early(0)
	early(1)
	early(2)
	early(3)
	early(4)
	early(5)
	early(6)
	early(7)
#endif
	od
}
