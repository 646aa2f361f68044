/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The allocator, for a test that is linked with --wrap: the library calls
 * __wrap_...(), which the test has, and which may call __real_...()
 */
#ifndef KCR_TEST_WRAP_H
#define KCR_TEST_WRAP_H

#include <stddef.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void __real_free(void *p);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void __wrap_free(void *p);

#endif /* KCR_TEST_WRAP_H */
