// SPDX-License-Identifier: GPL-2.0
/*
 * KCR_IOCTL_QUERY, and what holds for the device itself
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "kselftest_harness.h"
#include <linux/kcollring.h>

#define DEVICE "/dev/kcollring"

FIXTURE(device) {
	int fd;
};

FIXTURE_SETUP(device)
{
	self->fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (self->fd < 0 && errno != EMFILE)
		SKIP(return, "%s: %s", DEVICE, strerror(errno));
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(device)
{
	EXPECT_EQ(0, close(self->fd));
}

TEST_F(device, node)
{
	struct stat st;

	ASSERT_EQ(0, fstat(self->fd, &st));
	EXPECT_TRUE(S_ISCHR(st.st_mode));
	EXPECT_EQ(10, major(st.st_rdev));
	EXPECT_EQ(0, st.st_mode & 0117);
}

TEST_F(device, query)
{
	struct kcr_query q;

	memset(&q, 0, sizeof(q));
	q.size = sizeof(q);
	ASSERT_EQ(0, ioctl(self->fd, KCR_IOCTL_QUERY, &q));
	EXPECT_EQ(KCR_ABI_VERSION, q.abi_version);
	EXPECT_EQ(KCR_MAX_RANKS, q.max_ranks);
	EXPECT_EQ(KCR_MAX_LANES, q.max_lanes);
	EXPECT_EQ(KCR_MAX_WINDOWS, q.max_windows);
	EXPECT_EQ(0, q.features & ~(KCR_FEATURE_URING | KCR_FEATURE_URING_CANCEL |
				    KCR_FEATURE_MESH));
	EXPECT_LT(0, q.max_members);
	EXPECT_LT(0, q.max_pages);
	EXPECT_LT(0, q.max_parked);
	EXPECT_EQ(0, q.reserved);
	EXPECT_NE(0, q.version[0]);
	EXPECT_EQ(0, q.version[sizeof(q.version) - 1]);
}

/* Nothing is written back by a call that fails. */
#define REFUSED(error, size_, set) do {					\
	memset(&u, 0, sizeof(u));					\
	u.q.size = size_;						\
	set;								\
	memcpy(&before, &u, sizeof(u));					\
	EXPECT_EQ(-1, ioctl(self->fd, KCR_IOCTL_QUERY, &u)) {		\
		TH_LOG("size %u, %s", u.q.size, #set);			\
	}								\
	EXPECT_EQ(error, errno) {					\
		TH_LOG("size %u, %s", u.q.size, #set);			\
	}								\
	EXPECT_EQ(0, memcmp(&before, &u, sizeof(u)));			\
} while (0)

TEST_F(device, sizes)
{
	union {
		struct kcr_query q;
		unsigned char bytes[sizeof(struct kcr_query) + 64];
	} u, before;
	size_t size = sizeof(u.q);

	REFUSED(EINVAL, 0, (void)0);
	REFUSED(EINVAL, 4, (void)0);
	REFUSED(EINVAL, size - 1, (void)0);
	REFUSED(E2BIG, size + 1, u.bytes[size] = 1);
	REFUSED(E2BIG, size + 64, u.bytes[size + 63] = 1);
	REFUSED(EOPNOTSUPP, size, u.q.flags = 1);
	REFUSED(EOPNOTSUPP, size, u.q.flags = 1U << 31);

	/* Longer, and zero there, is a newer program on an older module. */
	memset(&u, 0, sizeof(u));
	u.q.size = size + 64;
	EXPECT_EQ(0, ioctl(self->fd, KCR_IOCTL_QUERY, &u));
	EXPECT_EQ(KCR_ABI_VERSION, u.q.abi_version);
	EXPECT_EQ(0, u.bytes[size]);
}

TEST_F(device, unreadable)
{
	long page = sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct kcr_query *q;

	ASSERT_NE(MAP_FAILED, p);
	ASSERT_EQ(0, mprotect(p + page, page, PROT_NONE));
	EXPECT_EQ(-1, ioctl(self->fd, KCR_IOCTL_QUERY, NULL));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(-1, ioctl(self->fd, KCR_IOCTL_QUERY, p + page));
	EXPECT_EQ(EFAULT, errno);
	/* The end of the struct is beyond the readable page. */
	q = (struct kcr_query *)(p + page - sizeof(*q) + 8);
	q->size = sizeof(*q);
	EXPECT_EQ(-1, ioctl(self->fd, KCR_IOCTL_QUERY, q));
	EXPECT_EQ(EFAULT, errno);
	/* Readable, but not to be written. */
	q = (struct kcr_query *)p;
	memset(q, 0, sizeof(*q));
	q->size = sizeof(*q);
	ASSERT_EQ(0, mprotect(p, page, PROT_READ));
	EXPECT_EQ(-1, ioctl(self->fd, KCR_IOCTL_QUERY, q));
	EXPECT_EQ(EFAULT, errno);
}

TEST_F(device, unknown)
{
	struct kcr_query q = { .size = sizeof(q) };

	EXPECT_EQ(-1, ioctl(self->fd, _IO(KCR_IOCTL_TYPE, 0x7f), &q));
	EXPECT_EQ(ENOTTY, errno);
	EXPECT_EQ(-1, ioctl(self->fd, _IO('x', 0), &q));
	EXPECT_EQ(ENOTTY, errno);
	EXPECT_EQ(-1, read(self->fd, &q, sizeof(q)));
	EXPECT_EQ(-1, write(self->fd, &q, sizeof(q)));
}

TEST_HARNESS_MAIN
