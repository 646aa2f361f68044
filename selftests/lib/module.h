/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The modules, taken out of the kernel and put in again: only where the whole
 * machine is the test's, and nobody else uses them
 */
#ifndef KCR_TEST_MODULE_H
#define KCR_TEST_MODULE_H

#include <limits.h>
#include <sys/utsname.h>

#include "device.h"

/* Why modules cannot be unloaded here, or NULL. */
static inline const char *module_missing(void)
{
	if (!getenv("KCR_VM") && !getenv("KCR_NODE"))
		return "only in a virtual machine (KCR_VM, KCR_NODE)";
	if (geteuid())
		return "needs root";
	if (access("/sys/module/kcollring/refcnt", R_OK))
		return "kcollring is no module here";
	return NULL;
}

static inline bool module_is_there(const char *name)
{
	char path[80];

	snprintf(path, sizeof(path), "/sys/module/%s", name);
	return !access(path, F_OK);
}

/* 0 or a negative errno; does not wait until it is used no more. */
static inline long module_delete(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}

/* "says EBUSY": the call itself has EWOULDBLOCK for a module that is in use. */
static inline bool module_is_busy(long err)
{
	return err == -EBUSY || err == -EWOULDBLOCK;
}

/* build/kmod/RELEASE/FILE of the tree that this program is in, or -1. */
static inline int module_open(const char *file)
{
	char path[PATH_MAX], *end;
	struct utsname name;
	ssize_t n;
	int fd;

	n = readlink("/proc/self/exe", path, sizeof(path) - 200);
	if (n < 0 || uname(&name))
		return -1;
	path[n] = 0;
	for (end = strrchr(path, '/'); end; end = strrchr(path, '/')) {
		sprintf(end, "/kmod/%.64s/%s", name.release, file);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0)
			return fd;
		*end = 0;
	}
	return -1;
}

/* kcollring.ko: of the tree, or the one that KCR_MODULE names. */
static inline int module_open_own(void)
{
	const char *named = getenv("KCR_MODULE");

	return named ? open(named, O_RDONLY | O_CLOEXEC) : module_open("kcollring.ko");
}

static inline long module_load(int fd, const char *parameters)
{
	return syscall(SYS_finit_module, fd, parameters, 0) ? -errno : 0;
}

/* kcollring_verbs.ko uses kcollring.ko: it goes first, and comes back at the end. */
static inline bool module_take_verbs(void)
{
	if (!module_is_there("kcollring_verbs"))
		return false;
	return DEV_SOON(DEV_SETTLE, !module_delete("kcollring_verbs"));
}

static inline long module_give_verbs(void)
{
	int fd = module_open("kcollring_verbs.ko");
	long err;

	if (fd < 0)
		return -errno;
	err = module_load(fd, "");
	close(fd);
	return err;
}

#endif /* KCR_TEST_MODULE_H */
