// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The choice of a form of the fold: the widest that this CPU has, or the one
 * that KCR_FOLD names. All give the same bits.
 *
 * Chosen once, when the library is loaded; constant afterwards.
 */
#include <errno.h>
#include <stdlib.h>
#include <strings.h>
#include "kcr.h"
#include "fold.h"

static const struct form {
	const char *name;
	const struct fold_table *table;
} forms[] = {
	/* Ascending: the last that works is taken. */
	{ "scalar", &fold_scalar },
#if defined(__x86_64__)
	{ "avx2", &fold_avx2 },
	{ "avx512", &fold_avx512 },
#elif defined(__aarch64__)
	{ "neon", &fold_neon },
#endif
};

#define FORMS ((int)(sizeof(forms) / sizeof(forms[0])))

static const struct form *chosen = &forms[0];

static bool cpu_has(const char *name)
{
#if defined(__x86_64__)
	if (!strcasecmp(name, "avx2"))
		return __builtin_cpu_supports("avx2");
	if (!strcasecmp(name, "avx512"))
		return __builtin_cpu_supports("avx512f") &&
		       __builtin_cpu_supports("avx512bw") &&
		       __builtin_cpu_supports("avx512dq") &&
		       __builtin_cpu_supports("avx512vl");
#endif
	(void)name;
	return true;
}

static const char *wanted(void)
{
	const char *name = getenv("KCR_FOLD");

	return name && *name ? name : NULL;
}

__attribute__((constructor))
static void choose(void)
{
	const char *name = wanted();

	for (int i = 0; i < FORMS; i++)
		if (cpu_has(forms[i].name) &&
		    (!name || !strcasecmp(name, forms[i].name)))
			chosen = &forms[i];
}

/* 0, or -EINVAL if KCR_FOLD names a form that this machine does not have. */
int fold_form_check(void)
{
	const char *name = wanted();
	char have[64] = "";
	int at = 0;

	if (!name || !strcasecmp(name, chosen->name))
		return 0;
	for (int i = 0; i < FORMS; i++)
		if (cpu_has(forms[i].name) && !strcasecmp(name, forms[i].name))
			return kcr_fail(NULL, -EINVAL,
					"KCR_FOLD became \"%s\" after the library was loaded and had chosen %s",
					name, chosen->name);
	for (int i = 0; i < FORMS; i++)
		if (cpu_has(forms[i].name))
			at += snprintf(have + at, sizeof(have) - at, "%s%s",
				       i ? ", " : "", forms[i].name);
	return kcr_fail(NULL, -EINVAL, "KCR_FOLD is \"%s\", this machine has %s",
			name, have);
}

KCR_PUBLIC const char *kcr_fold_form(void)
{
	return chosen->name;
}

const struct fold *fold_lookup(enum kcr_dtype dtype, enum kcr_op op)
{
	const struct fold *fold;

	if ((unsigned int)dtype >= KCR_DTYPES || (unsigned int)op >= KCR_OPS)
		return NULL;
	fold = &chosen->table->of[dtype][op];
	return fold->all ? fold : NULL;
}
