/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Leaks are looked for at exit, but cases and ranks end by _exit(): included before
 * everything else where tests are built with the address sanitizer (make check-asan),
 * so that one that says that all is well has lost no memory either.
 */
#ifndef KCR_TEST_LEAKS_H
#define KCR_TEST_LEAKS_H

#include <sanitizer/lsan_interface.h>
#include <unistd.h>

static inline void leaks_exit(int status)
{
	if (!status && __lsan_do_recoverable_leak_check())
		status = 1;
	_exit(status);
}

#define _exit(status) leaks_exit(status)

#endif /* KCR_TEST_LEAKS_H */
