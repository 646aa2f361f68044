/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's harness, with the limit of each case stretched as pace.h says
 */
#ifndef KCR_TEST_HARNESS_H
#define KCR_TEST_HARNESS_H

#include <unistd.h>

#include "pace.h"

static inline unsigned int pace_alarm(unsigned int seconds)
{
	return alarm(seconds * pace_of_case());
}

#define alarm(seconds)	pace_alarm(seconds)
#include_next "kselftest_harness.h"
#undef alarm

#endif /* KCR_TEST_HARNESS_H */
