/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sleeping between nodes: nobody sleeps through a message that another node sends.
 *
 * The source's library writes a message into its image of the lane and has its module PUT
 * it: an RDMA write, which the destination's processor learns nothing of. Before it parks,
 * the destination tells the source's module "armed (lane, seen)"; that rings, which moves the
 * destination's event counter, at once if it has sent more than that already, and otherwise
 * with its next PUT. What a connection carries arrives in order: so a ring comes behind the
 * data that it is for.
 *
 * One "armed" asks for several rings, each for what is newer than what the last was for, and
 * both count them: while some are to come the destination need not say anything. A ring that
 * cannot be said at once is owed, and is for all that is sent before it is said.
 *
 * To be left out, one at a time:
 *
 *	NO_COMPARE	the module does not look what it has sent already
 *	NO_LOCK		... or does, but a PUT may come between that and its being armed
 *	SEEN_LATE	the destination reads its event counter behind its last look
 *	COUNT_OWED	the module counts one more ring while one is owed
 *
 *	NO_LOOK		the destination does not look once more, with RINGS=3: while rings are
 *			to come nobody compares
 *
 * The order of data and ring could be left out: who is woken too early arms again. It only
 * spares a round over the network.
 */
#define MESSAGES 4
#ifndef RINGS
#define RINGS 2
#endif

#define DATA	0
#define RING	1

byte arrived;		/* the lane's memory: the last message */
byte events;		/* the destination's event counter */
byte awaited;		/* the destination's module: rings that are to come */

byte put;		/* the source's module: the last message that it has sent */
byte rings;		/* ... what it was told: so many, for more than that */
byte seen_there;
bit owed;		/* ... a ring that is not said yet */
bit locked;		/* ... and its lock for the two */

chan there = [8] of { bit, byte };	/* to the destination */
chan back = [2] of { byte };		/* to the source */

#ifdef NO_LOCK
#define lock()		skip
#define unlock()	skip
#else
#define lock()		atomic { !locked -> locked = 1 }
#define unlock()	locked = 0
#endif

#ifdef COUNT_OWED
#define is_due	(rings > 0 && put > seen_there)
#else
#define is_due	(rings > 0 && put > seen_there && !owed)
#endif

inline ring_if_due()
{
	if
	:: is_due ->
		rings--;
		seen_there = put;
		if
		:: !owed -> there!RING(0)
		:: owed = 1
		fi
	:: else -> skip
	fi
}

/* PUT, by the source. */
proctype source()
{
	byte n = 1;

	do
	:: n <= MESSAGES ->
		lock();
		there!DATA(n);
		put = n;
		ring_if_due();
		unlock();
		n++
	:: else -> break
	od
}

/* The source's module is told that the destination sleeps. */
proctype arming()
{
	byte seen;

end:	do
	:: back?seen ->
		lock();
#ifdef NO_COMPARE
		seen_there = put;
		rings = RINGS;
#else
		seen_there = seen;
		rings = RINGS;
		ring_if_due();
#endif
		unlock();
		seen = 0
	od
}

/* What was owed is said, behind all that was sent. */
proctype saying()
{
end:	do
	:: atomic { owed && !locked -> owed = 0; there!RING(0) }
	od
}

/* What the connection brings to the destination's node. */
proctype arrival()
{
	byte n;

end:	do
	:: atomic { there?DATA(n) -> arrived = n; n = 0 }
	:: there?RING(n) ->
		atomic { if :: awaited > 0 -> awaited-- :: else -> skip fi };
		events++
	od
}

proctype destination()
{
	byte next = 1, seen;

	do
	:: next <= MESSAGES ->
		if
		:: arrived >= next -> next++
		:: else ->
#ifndef SEEN_LATE
			seen = events;
#endif
			atomic {
				if
				:: awaited > 0 -> skip
				:: else -> awaited = RINGS; back!next - 1
				fi
			};
			if
#ifndef NO_LOOK
			:: arrived >= next -> skip
#endif
			:: else ->
#ifdef SEEN_LATE
				seen = events;
#endif
				events != seen	/* park */
			fi;
			seen = 0
		fi
	:: else -> break
	od
}

init { atomic { run source(); run arming(); run saying(); run arrival(); run destination() } }
