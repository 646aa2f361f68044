/* SPDX-License-Identifier: GPL-2.0 */
/* What the CPU has, by the kernel's word for it in /proc/cpuinfo. */
#ifndef KCR_TEST_CPU_H
#define KCR_TEST_CPU_H

#include <stdio.h>
#include <string.h>

static inline int cpu_has(const char *flag)
{
	char line[8192], *word, *rest;
	FILE *f = fopen("/proc/cpuinfo", "r");
	int found = 0;

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, "flags", 5))
			continue;
		for (word = strtok_r(line, " \t:\n", &rest); word;
		     word = strtok_r(NULL, " \t:\n", &rest))
			found |= !strcmp(word, flag);
	}
	if (f)
		fclose(f);
	return found;
}

#endif /* KCR_TEST_CPU_H */
