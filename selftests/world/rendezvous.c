// SPDX-License-Identifier: GPL-2.0
/*
 * Coming together in a directory: what others have left there, who is missing,
 * there twice, of another opinion, or dies meanwhile; many worlds, one after
 * another and at once, and ranks that are threads
 *
 * Over the link that KCR_LINK names.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <linux/kcollring.h>
#include "coming.h"

#define MOST_RANKS	8

/* What this process does when it joins through the module. */
static enum { JOIN_AS_EVER, JOIN_AND_DIE, JOIN_LATE } joining;

/* The library's calls come here, too. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;
	int ret;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (joining == JOIN_LATE && request == KCR_IOCTL_JOIN)
		ranks_sleep(0.5);
	ret = syscall(SYS_ioctl, fd, request, arg);
	if (joining == JOIN_AND_DIE && request == KCR_IOCTL_JOIN)
		raise(SIGKILL);
	return ret;
}

/* What this process does when it opens another's memory, and when it tells of an error. */
static bool dies_mapping;
static double maps_after, tells_after;

int open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	if (maps_after && strstr(path, "/fd/") && strncmp(path, "/proc/self", 10)) {
		ranks_sleep(maps_after);
		maps_after = 0;
		if (dies_mapping)
			raise(SIGKILL);
	}
	return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int link(const char *from, const char *to)
{
	if (strlen(to) > 6 && !strcmp(to + strlen(to) - 6, ".error"))
		ranks_sleep(tells_after);
	return syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

FIXTURE(rendezvous) {
	struct job job;
	struct ranks r;
};

FIXTURE_SETUP(rendezvous)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_TIMEOUT", "30", 1);
	setenv("KCR_RENDEZVOUS_TIMEOUT", "20", 1);
	self->job.shared = coming_shared();
	ASSERT_NE(NULL, self->job.shared);
	self->job.odd_rank = -1;
}

FIXTURE_TEARDOWN(rendezvous)
{
	if (self->r.n)
		ranks_end(&self->r);
}

TEST_F_TIMEOUT(rendezvous, leaves_nothing_behind, 60)
{
	int n;

	for (n = 2; n <= MOST_RANKS; n += 3) {
		ASSERT_EQ(0, start_those(&self->r, n, &self->job, come_together));
		EXPECT_EQ(0, ranks_wait(&self->r, 30));
		EXPECT_EQ(0, ranks_report(&self->r));
		EXPECT_EQ(0, ranks_files(&self->r));
		again(&self->r);
	}
}

/*
 * A job that was killed, before it was complete or after, has left its files
 * where the next one meets. None names its launch.
 */
TEST_F_TIMEOUT(rendezvous, stale_files, 240)
{
	long round, rounds = ranks_rounds(64) + 6;
	uint64_t random = 7;
	int rank;

	self->job.no_job = 1;
	for (round = 0; round < rounds; round++) {
		/* One is missing, so that the others wait and leave all they have. */
		self->job.missing = round % 2 ? 0 : 1 << round / 2 % 4;
		ASSERT_EQ(0, start_those(&self->r, 4, &self->job, come_together));
		ranks_sleep(round % 2 ? data_random(&random) % 1000 / 1e5 : 0.02);
		for (rank = 0; rank < 4; rank++)
			ranks_kill(&self->r, rank, SIGKILL);
		EXPECT_EQ(0, ranks_wait(&self->r, 10));
		for (rank = 0; rank < 4; rank++)
			ASSERT_EQ(0, ranks_start_one(&self->r, (rank + round) % 4,
						     come_together, &self->job));
		EXPECT_EQ(0, ranks_wait(&self->r, 30));
		ASSERT_EQ(0, ranks_report(&self->r)) {
			TH_LOG("in round %ld", round);
		}
		again(&self->r);
	}
}

/*
 * A launch that has failed is started again, at once and in the same place,
 * without a name: its error is not the next one's, even if rank 0 is slow.
 */
TEST_F_TIMEOUT(rendezvous, launched_again_after_an_error, 60)
{
	int round, rank;

	self->job.no_job = 1;
	for (round = 0; round < 4; round++) {
		self->job.odd_rank = 2;
		self->job.name = "KCR_LANE_DEPTH";
		self->job.value = "7";
		ASSERT_EQ(0, start_those(&self->r, 4, &self->job, try_to_come));
		SEE_ALL(-EINVAL, 10, "ranks disagree on lane_depth");
		self->job.name = NULL;
		self->job.odd_rank = 0;
		self->job.delay = round * 0.2;
		for (rank = 3; rank >= 0; rank--)
			ASSERT_EQ(0, ranks_start_one(&self->r, rank, come_together,
						     &self->job));
		EXPECT_EQ(0, ranks_wait(&self->r, 30));
		EXPECT_EQ(0, ranks_report(&self->r));
		self->job.delay = 0;
		again(&self->r);
	}
}

/* Files with any content and name, as an enemy or a broken disk leaves them. */
TEST_F_TIMEOUT(rendezvous, rubbish, 60)
{
	static const char * const names[] = {
		"kcr.0.leader", "kcr.1.leader", "x.0.leader", ".tmp.abcdef",
		"00000000000000000000000000000000.card.1", "error",
	};
	char path[128];
	FILE *f;
	int i;

	self->job.no_job = 1;
	/* Not at the leader's place. */
	ASSERT_EQ(0, ranks_init(&self->r, 3));
	for (i = 1; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", self->r.dir, names[i]);
		f = fopen(path, "w");
		ASSERT_NE(NULL, f);
		fputs("rubbish\n", f);
		fclose(f);
	}
	for (i = 0; i < 3; i++)
		ranks_start_one(&self->r, i, come_together, &self->job);
	see_well(_metadata, &self->r);
	/* There: all say so, soon. */
	ASSERT_EQ(0, ranks_init(&self->r, 3));
	snprintf(path, sizeof(path), "%s/%s", self->r.dir, names[0]);
	f = fopen(path, "w");
	ASSERT_NE(NULL, f);
	fputs("rubbish\n", f);
	fclose(f);
	for (i = 0; i < 3; i++)
		ranks_start_one(&self->r, i, try_to_come, &self->job);
	SEE_ALL(-EBADMSG, 10, self->r.dir, "cannot read");
}

/*
 * 64 processes come at once to a directory that none has made yet: 32 worlds of
 * two in it, by the name of their jobs.
 */
static int make_the_directory(int rank, void *arg)
{
	const struct job *job = arg;
	struct kcr_config c;
	struct kcr_world *w;
	char place[128], name[16];
	long i;

	for (i = 0; i < job->rounds; i++) {
		kcr_config_init(&c);
		snprintf(place, sizeof(place), "file:%s/%ld", job->place, i);
		snprintf(name, sizeof(name), "job%d", rank / 2);
		c.rendezvous = place;
		c.job = name;
		c.rank = rank % 2;
		c.size = 2;
		c.local_rank = c.rank;
		c.local_size = 2;
		ranks_meet(&job->shared->meeting, 64);
		RANK_OK(NULL, kcr_world_create(&c, &w));
		if (reduce(w, c.rank, i))
			return 1;
		RANK_OK(NULL, kcr_world_destroy(w));
		ranks_meet(&job->shared->meeting, 64);
		/* Gone again, and empty. */
		RANK_TRUE(rank || !rmdir(place + strlen("file:")));
	}
	return 0;
}

TEST_F_TIMEOUT(rendezvous, many_make_the_directory, 240)
{
	ASSERT_EQ(0, ranks_init(&self->r, 64));
	self->job.rounds = ranks_rounds(100) + 4;
	self->job.place = self->r.dir;
	for (int rank = 0; rank < 64; rank++)
		ASSERT_EQ(0, ranks_start_one(&self->r, rank, make_the_directory,
					     &self->job));
	EXPECT_EQ(0, ranks_wait(&self->r, 220));
	EXPECT_EQ(0, ranks_report(&self->r));
}

/* As many ranks as there can be, in one world. */
TEST_F_TIMEOUT(rendezvous, as_many_ranks_as_can_be, 240)
{
	const char *link = getenv("KCR_LINK");
	/* The module has a limit of its own, and a virtual machine less memory. */
	int most = link && !strcmp(link, "module") ? 64 : KCR_RANKS_MAX;

	setenv("KCR_LANE_BYTES", "64", 1);
	setenv("KCR_BOARD_BYTES", "256", 1);
	setenv("KCR_RENDEZVOUS_TIMEOUT", "100", 1);
	setenv("KCR_TIMEOUT", "100", 1);
	EXPECT_EQ(0, ranks_run(most, come_together, &self->job, 200));
}

TEST_F_TIMEOUT(rendezvous, a_rank_twice, 120)
{
	int round;

	for (round = 0; round < 10; round++) {
		come_twice(_metadata, &self->r, &self->job, 1, round == 0);
		come_twice(_metadata, &self->r, &self->job, 2, round == 1);
	}
}

TEST_F_TIMEOUT(rendezvous, rank_0_twice, 120)
{
	int round;

	for (round = 0; round < 20; round++)
		come_twice(_metadata, &self->r, &self->job, 0, round % 8 == 0);
}

/* A rank that cannot be: the others must not wait for it until the time is up. */
TEST_F_TIMEOUT(rendezvous, rank_out_of_range, 120)
{
	static const struct {
		int rank;
		const char *name, *value, *says;
	} cases[] = {
		{ 3, "KCR_RANK", "4", "rank is 4, must be 0 to 3" },
		{ 2, "KCR_RANK", "63", "rank is 63, must be 0 to 3" },
		{ 3, "KCR_RANK", "-1", "KCR_RANK is \"-1\"" },
		{ 1, "KCR_RANK", "one", "KCR_RANK is \"one\"" },
		{ 3, "KCR_SIZE", "257", "KCR_SIZE is \"257\"" },
		{ 2, "KCR_SIZE", "0", "KCR_SIZE is \"0\"" },
		{ 2, "KCR_ALGO", "ring", "KCR_ALGO is \"ring\"" },
		{ 0, "KCR_ALGO", "ring", "KCR_ALGO is \"ring\"" },
		{ 3, "KCR_LANE_BYTES", "32", "KCR_LANE_BYTES is \"32\"" },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		self->job.odd_rank = cases[i].rank;
		self->job.name = cases[i].name;
		self->job.value = cases[i].value;
		/* First or last. */
		self->job.delay = i % 2 * 0.1;
		ASSERT_EQ(0, start_those(&self->r, 4, &self->job, try_to_come));
		SEE_ALL(-EINVAL, 10, cases[i].says);
		again(&self->r);
	}
}

/* Whatever must be the same everywhere, and is not. */
TEST_F_TIMEOUT(rendezvous, disagreement, 120)
{
	static const struct {
		const char *field, *name, *ours, *theirs;
	} cases[] = {
		{ "size", "KCR_SIZE", "\"3\"", "4" },
		{ "local_size", "KCR_LOCAL_SIZE", "\"3\"", "2" },
		{ "algo", "KCR_ALGO", "\"auto\"", "owner" },
		{ "direct_max", "KCR_DIRECT_MAX", "\"32768\"", "32767" },
		{ "lane_depth", "KCR_LANE_DEPTH", "\"2\"", "3" },
		{ "lane_bytes", "KCR_LANE_BYTES", "\"65536\"", "65535" },
		{ "board_depth", "KCR_BOARD_DEPTH", "\"4\"", "2" },
		{ "board_bytes", "KCR_BOARD_BYTES", "\"65536\"", "64" },
		{ "link", "KCR_LINK", NULL, "auto" },
	};
	const char *link = getenv("KCR_LINK");
	char odd[16], theirs[32], ours[32];
	const char *said;
	int i, n;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		for (n = 0; n < 3; n++) {
			/* Rank 0 must differ from a rank, not from itself. */
			self->job.odd_rank = n;
			self->job.name = cases[i].name;
			self->job.value = cases[i].theirs;
			if (n == 2 && !strcmp(cases[i].field, "local_size"))
				continue;	/* would be out of range */
			snprintf(odd, sizeof(odd), "rank %d (", n);
			snprintf(theirs, sizeof(theirs), "\"%s\"", cases[i].theirs);
			snprintf(ours, sizeof(ours), "\"%s\"",
				 link ? link : "auto");
			if (!cases[i].ours && !strcmp(ours, theirs))
				continue;
			ASSERT_EQ(0, start_those(&self->r, 3, &self->job,
						 try_to_come));
			said = ours;
			if (cases[i].ours)
				said = cases[i].ours;
			SEE_ALL(-EINVAL, 10, "ranks disagree on ", cases[i].field,
				odd, "host ", "pid ", said, theirs);
			again(&self->r);
		}
	}
}

TEST_F_TIMEOUT(rendezvous, missing, 60)
{
	static const struct {
		int missing;
		const char *says;
	} cases[] = {
		{ 1 << 2, "no word from rank 2 at " },
		{ 1 << 1 | 1 << 3, "no word from rank 1, rank 3 at " },
		{ 1 << 0, "no word from rank 0 at " },
	};
	int i;

	setenv("KCR_RENDEZVOUS_TIMEOUT", "1", 1);
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		self->job.missing = cases[i].missing;
		ASSERT_EQ(0, start_those(&self->r, 4, &self->job, try_to_come));
		SEE_ALL(-ETIMEDOUT, 5, cases[i].says, "after 1.0 s");
		again(&self->r);
	}
}

/* A rank that has come and dies while the others wait for one more. */
TEST_F_TIMEOUT(rendezvous, death_of_one_that_waits, 60)
{
	char says[64];
	int victim;

	for (victim = 0; victim < 3; victim++) {
		self->job.missing = 1 << 3;
		ASSERT_EQ(0, start_those(&self->r, 4, &self->job, try_to_come));
		ranks_sleep(0.3);
		kill_rank(&self->r, victim);
		self->job.missing |= 1 << victim;
		snprintf(says, sizeof(says), "rank %d died", victim);
		SEE_ALL(-ECONNRESET, 5, says, "came together", "pid ");
		again(&self->r);
	}
}

static int try_to_join(int rank, void *arg)
{
	const struct job *job = arg;

	joining = rank == job->odd_rank ? JOIN_AND_DIE :
		  rank == !job->odd_rank ? JOIN_AS_EVER : JOIN_LATE;
	return try_to_come(rank, arg);
}

/* One is dead before all have joined: who joins then is told who it was. */
TEST_F_TIMEOUT(rendezvous, death_of_one_that_joined, 60)
{
	char says[64];
	int victim;

	if (!ranks_link_is_module())
		SKIP(return, "not over the module");
	for (victim = 0; victim < 4; victim++) {
		self->job.odd_rank = victim;
		ASSERT_EQ(0, start_those(&self->r, 4, &self->job, try_to_join));
		while (!ranks_ended(&self->r, victim))
			ranks_sleep(0.001);
		self->r.status[victim] = 0;
		self->job.missing = 1 << victim;
		snprintf(says, sizeof(says), "rank %d died", victim);
		SEE_ALL(-ECONNRESET, 20, says, "came together", "pid ");
		again(&self->r);
		self->job.missing = 0;
	}
}

static int try_to_map(int rank, void *arg)
{
	const struct job *job = arg;
	/* Rank 1 meets the death as it maps, or when it has. */
	static const double after[] = { 0.6, 0.4, 0.9, 0.2 };

	dies_mapping = rank == 3;
	maps_after = rank == 1 && job->odd_rank ? 0 : after[rank];
	tells_after = rank == 1 ? 1.5 : 0;
	return try_to_come(rank, arg);
}

/*
 * One has died, a second found out, and its memory goes: those that are about to map that
 * are told of the dead one, and do not take the second for dead or for something else.
 */
TEST_F_TIMEOUT(rendezvous, death_of_one_that_mapped, 60)
{
	if (ranks_link_is_module())
		SKIP(return, "not over shm");
	for (self->job.odd_rank = 0; self->job.odd_rank < 2; self->job.odd_rank++) {
		self->job.missing = 0;
		ASSERT_EQ(0, start_those(&self->r, 4, &self->job, try_to_map));
		while (!ranks_ended(&self->r, 3))
			ranks_sleep(0.001);
		self->r.status[3] = 0;
		self->job.missing = 1 << 3;
		SEE_ALL(-ECONNRESET, 20, "rank 3", "died");
		again(&self->r);
	}
}

/* One is killed at any moment: the others know, whatever they are at. */
TEST_F_TIMEOUT(rendezvous, death_at_any_moment, 240)
{
	long round, rounds = ranks_rounds(640) / 8 + 5;
	uint64_t random = 1;
	char says[64];
	int victim;

	/* Who dies before it has shown itself is missing. */
	setenv("KCR_RENDEZVOUS_TIMEOUT", "2", 1);
	for (round = 0; round < rounds; round++) {
		victim = data_random(&random) % 4;
		self->job.missing = 0;
		ASSERT_EQ(0, start_those(&self->r, 4, &self->job,
					 come_and_reduce));
		ranks_sleep(data_random(&random) % 1000 / 1e3 *
			    (ranks_link_is_module() ? 0.1 : 0.012));
		kill_rank(&self->r, victim);
		self->job.missing = 1 << victim;
		snprintf(says, sizeof(says), "rank %d", victim);
		if (self->job.shared->outcome[!victim].err == -ETIMEDOUT) {
			SEE_ALL(-ETIMEDOUT, 10, says);
		} else {
			ranks_wait(&self->r, 40);
			if (self->job.shared->outcome[!victim].err == -ETIMEDOUT)
				SEE_ALL(-ETIMEDOUT, 10, says);
			else
				SEE_ALL(-ECONNRESET, 10, says, "died");
		}
		again(&self->r);
	}
}

/* What cannot be a place to meet. */
TEST_F_TIMEOUT(rendezvous, places, 60)
{
	static const struct {
		const char *place;
		int err;
		const char *says;
	} cases[] = {
		{ "file:relative/dir", -EINVAL, "must be file:/directory" },
		{ "file:", -EINVAL, "rendezvous is \"file:\"" },
		{ "/tmp", -EINVAL, "rendezvous is \"/tmp\"" },
		{ "http://localhost", -EINVAL, "must be file:/directory" },
		{ "file:/nonexistent/dir", -ENOENT, "/nonexistent/dir: cannot make it" },
		{ "file:/etc/passwd", -ENOTDIR, "/etc/passwd: cannot use it" },
		{ "file:/etc/passwd/dir", -ENOTDIR, "/etc/passwd/dir" },
		{ "file:/dev/null", -ENOTDIR, "/dev/null" },
		{ "file:/tmp", -EACCES, "world-writable" },
		{ "file:/proc", 0, "/proc" },
	};
	char place[512];
	struct kcr_config c;
	struct kcr_world *w;
	int i, err;

	kcr_config_init(&c);
	c.size = 2;
	c.local_size = 2;
	c.rendezvous_ms = 1000;
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		c.rendezvous = cases[i].place;
		c.rank = i % 2;
		w = (void *)1;
		err = kcr_world_create(&c, &w);
		EXPECT_GT(0, err);
		EXPECT_EQ(cases[i].err ?: err, err);
		EXPECT_EQ(NULL, w);
		EXPECT_NE(NULL, strstr(kcr_error(NULL), cases[i].says)) {
			TH_LOG("%s: \"%s\"", cases[i].place, kcr_error(NULL));
		}
	}
	/* Too long, by how much is said. */
	memset(place, 'x', sizeof(place) - 1);
	memcpy(place, "file:/", 6);
	place[sizeof(place) - 1] = 0;
	c.rendezvous = place;
	EXPECT_EQ(-ENAMETOOLONG, kcr_world_create(&c, &w));
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "511"));
	/* The job is part of files' names. */
	c.rendezvous = "file:/tmp/kcr-test-none";
	c.job = "../x";
	EXPECT_EQ(-EINVAL, kcr_world_create(&c, &w));
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "job is \"../x\""));
	place[80] = 0;
	c.job = place + 6;
	EXPECT_EQ(-EINVAL, kcr_world_create(&c, &w));
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "at most 64 characters"));
	EXPECT_EQ(-1, access("/tmp/kcr-test-none", F_OK));
}

/* Directories of others, and such as let others in. */
TEST_F_TIMEOUT(rendezvous, directories_of_others, 60)
{
	struct kcr_config c;
	struct kcr_world *w;
	char place[128];

	if (getuid())
		SKIP(return, "needs root, to give a directory away");
	ASSERT_EQ(0, ranks_init(&self->r, 2));
	snprintf(place, sizeof(place), "file:%s", self->r.dir);
	kcr_config_init(&c);
	c.size = 2;
	c.local_size = 2;
	c.rendezvous_ms = 500;
	c.rendezvous = place;
	ASSERT_EQ(0, chmod(self->r.dir, 0777));
	EXPECT_EQ(-EACCES, kcr_world_create(&c, &w));
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "mode 777"));
	ASSERT_EQ(0, chmod(self->r.dir, 01777));
	EXPECT_EQ(-EACCES, kcr_world_create(&c, &w));
	ASSERT_EQ(0, chmod(self->r.dir, 0700));
	ASSERT_EQ(0, chown(self->r.dir, 65534, 65534));
	EXPECT_EQ(-EACCES, kcr_world_create(&c, &w));
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "owner 65534"));
	ASSERT_EQ(0, chown(self->r.dir, 0, 0));
	EXPECT_EQ(-ETIMEDOUT, kcr_world_create(&c, &w));
}

/* What ranks write there has the world's key in it. */
TEST_F_TIMEOUT(rendezvous, files_for_nobody_else, 60)
{
	mode_t mask = umask(0);
	struct dirent *entry;
	struct stat st;
	int files = 0;
	DIR *dir;

	setenv("KCR_RENDEZVOUS_TIMEOUT", "20", 1);
	self->job.missing = 1 << 2;
	ASSERT_EQ(0, start_those(&self->r, 3, &self->job, try_to_come));
	for (int i = 0; i < 1000 && files < 2; i++) {
		ranks_sleep(0.01);
		files = 0;
		dir = opendir(self->r.dir);
		ASSERT_NE(NULL, dir);
		while ((entry = readdir(dir))) {
			/* One under a temporary name may be gone by now: look again. */
			if (fstatat(dirfd(dir), entry->d_name, &st, 0) || !S_ISREG(st.st_mode))
				continue;
			files++;
			EXPECT_EQ(0, st.st_mode & 0177) {
				TH_LOG("%s: mode %o", entry->d_name, st.st_mode);
			}
		}
		closedir(dir);
	}
	EXPECT_LE(2, files);
	umask(mask);
}

/* Nothing is left of a world when it has gone, nor of one that failed. */
static int come_and_go(int rank, void *arg)
{
	const struct job *job = arg;
	int descriptors = 0, mappings = 0;
	struct kcr_config c;
	struct kcr_world *w;
	long i;

	for (i = 0; i < job->rounds; i++) {
		if (i == 10) {
			descriptors = ranks_descriptors();
			mappings = ranks_mappings();
		}
		kcr_config_init(&c);
		/* Now and then they disagree, or one does not know its place. */
		if (i % 32 == 3)
			c.lane_depth += rank == 1;
		if (i % 32 == 7)
			c.local_rank += (rank == 0) * 10;
		if (i % 32 == 3 || i % 32 == 7) {
			RANK_GIVES(-EINVAL, NULL, kcr_world_create(&c, &w));
			continue;
		}
		RANK_OK(NULL, kcr_world_create(&c, &w));
		if (reduce(w, rank, i))
			return 1;
		RANK_OK(NULL, kcr_world_destroy(w));
	}
	RANK_TRUE(ranks_descriptors() == descriptors);
	/* The heap may have got another mapping or two. */
	if (ranks_mappings() > mappings + 2)
		RANK_FAIL("%d mappings became %d", mappings, ranks_mappings());
	return 0;
}

TEST_F_TIMEOUT(rendezvous, one_world_after_another, 240)
{
	self->job.rounds = ranks_rounds(1000) + 16;
	EXPECT_EQ(0, ranks_run(2, come_and_go, &self->job, 200));
	EXPECT_EQ(0, ranks_run(3, come_and_go, &self->job, 200));
}

/* A world of all four, one of each half, and one of all in another order. */
static int have_several(int rank, void *arg)
{
	const struct job *job = arg;
	struct kcr_config c[4];
	struct kcr_world *w[4];
	char half[16];
	int i, k;

	(void)job;
	snprintf(half, sizeof(half), "half%d", rank / 2);
	for (i = 0; i < 4; i++)
		kcr_config_init(&c[i]);
	c[1].job = half;
	c[1].rank = rank % 2;
	c[1].local_rank = rank % 2;
	c[1].size = 2;
	c[1].local_size = 2;
	c[2].rank = 3 - rank;
	c[2].local_rank = 3 - rank;
	c[2].job = "reversed";
	c[2].algo = KCR_ALGO_OWNER;
	for (i = 0; i < 4; i++)
		RANK_OK(NULL, kcr_world_create(&c[i], &w[i]));
	for (i = 0; i < 100; i++)
		for (k = 0; k < 4; k++)
			if (reduce(w[k], c[k].rank, 100 * i + k))
				return 1;
	/* The end of one is nothing to the others, whoever goes first. */
	for (i = 0; i < 4; i++) {
		RANK_OK(NULL, kcr_world_destroy(w[i]));
		for (k = i + 1; k < 4; k++)
			if (reduce(w[k], c[k].rank, k))
				return 1;
	}
	return 0;
}

TEST_F_TIMEOUT(rendezvous, several_worlds_at_once, 60)
{
	EXPECT_EQ(0, ranks_run(4, have_several, &self->job, 50));
}

/* Ranks as threads: of one process, or two in each of two. */
struct thread {
	pthread_t id;
	struct kcr_config config;
	int rounds;
	int first;		/* of this process's ranks, who stays */
	int failed;
};

static int be_rank(struct thread *t)
{
	int rank = t->config.rank, i;
	struct kcr_world *w;

	for (i = 0; i < t->rounds; i++) {
		RANK_OK(NULL, kcr_world_create(&t->config, &w));
		if (reduce(w, rank, i) || reduce(w, rank, i + 1))
			return 1;
		if (i + 1 == t->rounds && rank == t->first) {
			/* The others have gone, and are not dead. */
			ranks_sleep(0.3);
			RANK_REFUSED(-ESHUTDOWN, w, kcr_barrier(w), " left");
		}
		RANK_OK(NULL, kcr_world_destroy(w));
	}
	return 0;
}

static void *be_thread(void *arg)
{
	struct thread *t = arg;

	t->failed = be_rank(t);
	return NULL;
}

static int run_threads(const char *place, int first, int n, int size, int stays,
		       int rounds)
{
	struct thread t[MOST_RANKS] = { 0 };
	int i, bad = 0;

	for (i = 0; i < n; i++) {
		kcr_config_init(&t[i].config);
		t[i].config.rendezvous = place;
		t[i].config.rank = first + i;
		t[i].config.size = size;
		t[i].config.local_rank = first + i;
		t[i].config.local_size = size;
		t[i].rounds = rounds;
		t[i].first = stays;
		if (pthread_create(&t[i].id, NULL, be_thread, &t[i]))
			return -1;
	}
	for (i = 0; i < n; i++) {
		pthread_join(t[i].id, NULL);
		bad += t[i].failed;
	}
	return bad;
}

TEST_F_TIMEOUT(rendezvous, threads, 120)
{
	int descriptors = ranks_descriptors();
	char place[128];

	ASSERT_EQ(0, ranks_init(&self->r, 4));
	snprintf(place, sizeof(place), "file:%s", self->r.dir);
	EXPECT_EQ(0, run_threads(place, 0, 4, 4, 2, ranks_rounds(320)));
	EXPECT_EQ(0, run_threads(place, 0, 2, 2, 0, ranks_rounds(320)));
	EXPECT_EQ(descriptors, ranks_descriptors());
	EXPECT_EQ(0, ranks_files(&self->r));
}

static int be_two_threads(int rank, void *arg)
{
	const struct job *job = arg;

	return run_threads(getenv("KCR_RENDEZVOUS"), 2 * rank, 2, 4, 3,
			   job->rounds);
}

TEST_F_TIMEOUT(rendezvous, threads_of_two_processes, 120)
{
	self->job.rounds = ranks_rounds(320);
	EXPECT_EQ(0, ranks_run(2, be_two_threads, &self->job, 100));
}

TEST_HARNESS_MAIN
