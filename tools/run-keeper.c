// SPDX-License-Identifier: GPL-2.0
/* The keeper of kcr-run: see run-keeper.h. */
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run-keeper.h"

static int remove_entry(const char *path, const struct stat *st, int type,
			struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	remove(path);
	return 0;
}

static void remove_directory(const char *path)
{
	nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static bool make_directory(char *path, size_t size)
{
	const char *const bases[] = {
		getenv("XDG_RUNTIME_DIR"), "/dev/shm", "/tmp",
	};
	size_t i;

	for (i = 0; i < sizeof(bases) / sizeof(*bases); i++) {
		if (!bases[i] || bases[i][0] != '/')
			continue;
		if (snprintf(path, size, "%s/kcr-run-XXXXXX", bases[i]) >= (int)size)
			continue;
		if (mkdtemp(path))
			return true;
	}
	return false;
}

static void keep(const struct kept *kept, int pipe_end)
{
	sigset_t all;
	char byte;
	int i;

	prctl(PR_SET_NAME, "kcr-run-keeper");
	setsid();
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	dup2(pipe_end, 0);
	close_range(1, ~0U, 0);
	while (read(0, &byte, 1) != 0)
		;
	for (i = 0; i < KCR_RANKS_MAX; i++)
		if (kept->groups[i])
			kill(-kept->groups[i], SIGKILL);
	if (kept->directory[0])
		remove_directory(kept->directory);
	_exit(0);
}

bool keeper_start(struct keeper *keeper)
{
	int ends[2];

	keeper->kept = mmap(NULL, sizeof(*keeper->kept), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (keeper->kept == MAP_FAILED || pipe2(ends, O_CLOEXEC))
		return false;
	keeper->pid = fork();
	if (keeper->pid < 0)
		return false;
	if (!keeper->pid)
		keep(keeper->kept, ends[0]);
	close(ends[0]);
	keeper->pipe = ends[1];
	return true;
}

bool keeper_make_directory(struct keeper *keeper)
{
	char directory[sizeof(keeper->kept->directory)];

	if (!make_directory(directory, sizeof(directory)))
		return false;
	strcpy(keeper->kept->directory, directory);
	return true;
}

void keeper_stop(struct keeper *keeper)
{
	if (keeper->kept->directory[0])
		remove_directory(keeper->kept->directory);
	close(keeper->pipe);
	waitpid(keeper->pid, NULL, 0);
}
