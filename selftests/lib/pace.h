/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How slow it is here
 *
 * A limit in a test is for what never ends, and is chosen for an ordinary machine.
 * selftests/run says in KCR_TIME_FACTOR by what its own limits are stretched; those of
 * the tests are stretched as much. A time that the module or the library is given, or
 * that is waited to see that nothing happens, is not.
 *
 * In their long form, which KCR_TEST_LONG asks for, cases repeat PACE_LONG times as often
 * what they repeat. The limits of whole cases grow as much, those within them do not.
 */
#ifndef KCR_TEST_PACE_H
#define KCR_TEST_PACE_H

#include <stdlib.h>

#define PACE_LONG	10

static inline int pace(void)
{
	const char *factor = getenv("KCR_TIME_FACTOR");
	int n = factor ? atoi(factor) : 1;

	return n > 1 ? n : 1;
}

static inline int pace_of_case(void)
{
	return pace() * (getenv("KCR_TEST_LONG") ? PACE_LONG : 1);
}

#endif /* KCR_TEST_PACE_H */
