/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An acknowledgement that another node writes: sequence, then its complement, in bytes that
 * land one after the other, so that a word may be seen half written. What the reader takes was
 * acknowledged, and never goes back.
 *
 * A word is two digits here. The reader loads words.
 *
 *	SEQUENCE_FIRST	the reader loads the sequence first, in the order in which they
 *			land: then both may be torn alike
 */
#define COUNTS	5	/* 0 to 4, of two digits of base 2 and what is above them */
#define BASE	2

byte sequence_low, sequence_high, complement_low = 255, complement_high = 255;
byte landed;			/* the last count that has landed whole */

#define WORD(high, low)	((high) * BASE + (low))

proctype writer()
{
	byte n = 1;

	do
	:: n < COUNTS ->
		sequence_low = n % BASE;
		sequence_high = n / BASE;
		complement_low = 255 - n % BASE;
		complement_high = 255 - n / BASE;
		landed = n;
		n++
	:: else -> break
	od
}

proctype reader()
{
	byte sequence, complement, taken;

	do
	:: taken < COUNTS - 1 ->
#ifdef SEQUENCE_FIRST
		sequence = WORD(sequence_high, sequence_low);
		complement = WORD(255 - complement_high, 255 - complement_low);
#else
		complement = WORD(255 - complement_high, 255 - complement_low);
		sequence = WORD(sequence_high, sequence_low);
#endif
		if
		:: sequence == complement ->
			assert(sequence >= taken);
			/* The last may be on its way: its sequence is there, all of it. */
			assert(sequence <= landed + 1);
			taken = sequence
		:: else -> skip
		fi;
		sequence = 0;
		complement = 0
	:: else -> break
	od
}

init { atomic { run writer(); run reader() } }
