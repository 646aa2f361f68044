// SPDX-License-Identifier: GPL-2.0
/*
 * Which link a world gets: by what is there, who may use it and what was asked
 * for; and the module without io_uring
 */
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "kselftest_harness.h"
#include "data.h"
#include "ranks.h"

#define NOBODY	65534

/* What the ranks must get. */
struct job {
	const char *link;	/* NULL if they come to an error */
	int err;
	const char *says[3];
	int rings;		/* io_uring descriptors that a rank has; -1: any */
};

static int count_rings(void)
{
	char path[64], target[64];
	int fd, n = 0;
	ssize_t len;

	for (fd = 0; fd < 64; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		len = readlink(path, target, sizeof(target) - 1);
		if (len < 0)
			continue;
		target[len] = 0;
		n += !strcmp(target, "anon_inode:[io_uring]");
	}
	return n;
}

static int come(int rank, void *arg)
{
	const struct job *job = arg;
	double x[1000], want[1000];
	struct kcr_world *w;
	int i, err;

	err = kcr_world_create(NULL, &w);
	if (!job->link) {
		RANK_GIVES(job->err, NULL, err);
		for (i = 0; i < 3 && job->says[i]; i++)
			RANK_SAYS(NULL, job->says[i]);
		return 0;
	}
	RANK_GIVES(0, NULL, err);
	if (strcmp(job->link, kcr_link_name(w)))
		RANK_FAIL("the link is %s, not %s", kcr_link_name(w), job->link);
	if (job->rings >= 0)
		RANK_TRUE(count_rings() == job->rings);
	for (i = 0; i < 200; i++) {
		data_fill(x, 1000, KCR_F64, rank, i);
		/* Somebody sleeps. */
		if (i % 50 == rank)
			ranks_sleep(0.02);
		RANK_OK(w, kcr_allreduce(w, x, x, 1000, KCR_F64, KCR_SUM));
		RANK_OK(NULL, data_expect(want, 1000, KCR_F64, KCR_SUM,
					  kcr_size(w), i));
		RANK_TRUE(data_differ(want, x, 1000, KCR_F64) < 0);
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

FIXTURE(links) {
	int has_module;
};

FIXTURE_SETUP(links)
{
	self->has_module = !access(RANKS_DEVICE, R_OK | W_OK);
	setenv("KCR_TIMEOUT", "30", 1);
	setenv("KCR_RENDEZVOUS_TIMEOUT", "30", 1);
	unsetenv("KCR_LINK");
	unsetenv("KCR_URING");
}

FIXTURE_TEARDOWN(links)
{
}

/* A /dev of our own, with nothing in it. Returns why it cannot be, or NULL. */
static const char *hide_device(void)
{
	if (access(RANKS_DEVICE, F_OK))
		return NULL;
	if (unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/dev", "tmpfs", 0, NULL))
		return "the module is loaded, and no privilege to hide " RANKS_DEVICE;
	return NULL;
}

TEST_F(links, module_without_the_module)
{
	struct job job = {
		.err = -ENODEV, .says = { RANKS_DEVICE, "insmod", "KCR_LINK=shm" },
	};
	const char *why = hide_device();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_LINK", "module", 1);
	EXPECT_EQ(0, ranks_run(2, come, &job, 30));
}

TEST_F(links, auto_without_the_module)
{
	struct job job = { .link = "shm", .rings = 0 };
	const char *why = hide_device();

	if (why)
		SKIP(return, "%s", why);
	EXPECT_EQ(0, ranks_run(3, come, &job, 30));
	setenv("KCR_LINK", "auto", 1);
	EXPECT_EQ(0, ranks_run(2, come, &job, 30));
}

TEST_F(links, shm_when_asked_for)
{
	struct job job = { .link = "shm", .rings = 0 };

	setenv("KCR_LINK", "shm", 1);
	EXPECT_EQ(0, ranks_run(3, come, &job, 30));
}

/* One rank of three has no use for the module: none uses it. */
static int come_blind(int rank, void *arg)
{
	if (rank == 1 && hide_device())
		return 1;
	return come(rank, arg);
}

TEST_F_TIMEOUT(links, auto_if_not_all_have_the_module, 60)
{
	struct job job = { .link = "shm", .rings = 0 };

	if (!self->has_module)
		SKIP(return, "no " RANKS_DEVICE ": insmod kcollring.ko");
	if (getuid())
		SKIP(return, "needs root, to hide " RANKS_DEVICE);
	EXPECT_EQ(0, ranks_run(3, come_blind, &job, 30));
}

TEST_F(links, auto_prefers_the_module)
{
	struct job job = { .link = "module", .rings = 1 };

	if (!self->has_module)
		SKIP(return, "no " RANKS_DEVICE ": insmod kcollring.ko");
	EXPECT_EQ(0, ranks_run(3, come, &job, 30));
	setenv("KCR_LINK", "module", 1);
	EXPECT_EQ(0, ranks_run(3, come, &job, 30));
}

TEST_F(links, module_without_io_uring)
{
	struct job job = { .link = "module", .rings = 0 };

	if (!self->has_module)
		SKIP(return, "no " RANKS_DEVICE ": insmod kcollring.ko");
	setenv("KCR_LINK", "module", 1);
	setenv("KCR_URING", "0", 1);
	EXPECT_EQ(0, ranks_run(4, come, &job, 30));
	/* Nobody looks: all sleep in the ioctl. */
	setenv("KCR_SPIN", "0", 1);
	setenv("KCR_YIELD", "0", 1);
	EXPECT_EQ(0, ranks_run(4, come, &job, 60));
}

/* One has io_uring and the other has not, which is nobody else's business. */
static int come_as_you_are(int rank, void *arg)
{
	struct job job = *(struct job *)arg;

	job.rings = rank % 2;
	setenv("KCR_URING", rank % 2 ? "1" : "0", 1);
	return come(rank, &job);
}

TEST_F(links, module_with_and_without_io_uring)
{
	struct job job = { .link = "module" };

	if (!self->has_module)
		SKIP(return, "no " RANKS_DEVICE ": insmod kcollring.ko");
	setenv("KCR_SPIN", "0", 1);
	setenv("KCR_YIELD", "0", 1);
	EXPECT_EQ(0, ranks_run(3, come_as_you_are, &job, 30));
}

/* Nobody may not use the device, unless he is of its group. */
static int come_as_nobody(int rank, void *arg)
{
	struct job *job = arg;
	struct stat st;

	RANK_TRUE(!stat(RANKS_DEVICE, &st));
	RANK_TRUE((st.st_mode & 07777) == 0660);
	RANK_TRUE(getgrgid(st.st_gid));
	job->says[2] = getgrgid(st.st_gid)->gr_name;
	if (job->link && !strcmp(job->link, "module"))
		RANK_TRUE(!setgroups(1, &st.st_gid));
	else
		RANK_TRUE(!setgroups(0, NULL));
	RANK_TRUE(!setgid(NOBODY) && !setuid(NOBODY));
	/* A process that has changed its user hides its files from its equals. */
	prctl(PR_SET_DUMPABLE, 1);
	return come(rank, arg);
}

static int run_as_nobody(int n, struct job *job)
{
	struct ranks r;
	int rank, bad;

	if (ranks_init(&r, n) || chown(r.dir, NOBODY, NOBODY))
		return -1;
	for (rank = 0; rank < n; rank++)
		ranks_start_one(&r, rank, come_as_nobody, job);
	ranks_wait(&r, 30);
	bad = ranks_report(&r);
	ranks_end(&r);
	return bad;
}

TEST_F_TIMEOUT(links, without_permission, 60)
{
	struct job refused = {
		.err = -EACCES, .says = { "no permission", RANKS_DEVICE, "group" },
	};
	struct job shm = { .link = "shm", .rings = 0 };
	struct job module = { .link = "module", .rings = -1 };

	if (!self->has_module)
		SKIP(return, "no " RANKS_DEVICE ": insmod kcollring.ko");
	if (getuid())
		SKIP(return, "needs root, to become nobody");
	EXPECT_EQ(0, run_as_nobody(2, &shm));
	setenv("KCR_LINK", "module", 1);
	EXPECT_EQ(0, run_as_nobody(2, &refused));
	EXPECT_EQ(0, run_as_nobody(2, &module));
}

TEST_HARNESS_MAIN
