// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings: what can be mapped by whom and how, and what cannot be made of it
 *
 * Ranks 0 and 1 have a lane each way, rank 2 has none; all have boards.
 */
#include "kselftest_harness.h"
#include "device.h"

#include <sys/uio.h>

#define RANKS	3
#define WINDOW	4
#define BOARD	(5 * 4096)

static const struct kcr_lane_desc lanes[] = {
	{ 0, 1, 20, 1000 },	/* 20 slots of 1024 bytes: 5 pages */
	{ 1, 0, 3, 10000 },
};

FIXTURE(mmap) {
	struct dev_counters before;
	struct dev_world world;
	int fd[RANKS];
	size_t slots;		/* the length of lane 0 */
};

FIXTURE_SETUP(mmap)
{
	const char *missing = dev_missing();
	int i;

	for (i = 0; i < RANKS; i++)
		self->fd[i] = -1;
	if (missing)
		SKIP(return, "%s", missing);
	self->before = dev_counters();
	self->world = dev_world(RANKS);
	self->slots = dev_lane_bytes(&lanes[0]);
	for (i = 0; i < RANKS; i++) {
		self->fd[i] = dev_member(&self->world, i);
		ASSERT_LE(0, self->fd[i]);
		ASSERT_EQ(0, dev_window(self->fd[i], WINDOW, lanes, 2, BOARD));
	}
}

FIXTURE_TEARDOWN(mmap)
{
	int i;

	for (i = 0; i < RANKS; i++)
		if (self->fd[i] >= 0)
			close(self->fd[i]);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
}

#define RW	(PROT_READ | PROT_WRITE)
#define SLOTS	KCR_MMAP_OFFSET(WINDOW, KCR_MAP_SLOTS, 0)
#define ACK	KCR_MMAP_OFFSET(WINDOW, KCR_MAP_ACK, 0)
#define BOARD_0	KCR_MMAP_OFFSET(WINDOW, KCR_MAP_BOARD, 0)

static int map_error(int fd, int prot, __u64 offset, size_t bytes)
{
	return dev_map_error(fd, prot, MAP_SHARED, offset, bytes);
}

/* All parts there are, and who may do what with them. */
static const struct part {
	const char *name;
	__u64 offset;
	size_t bytes;
	const char *may[RANKS];
} parts[] = {
	{ "status", 0, 4096, { "r", "r", "r" } },
	{ "slots 0", SLOTS, 20 * 1024, { "rw", "r", "" } },
	{ "slots 1", KCR_MMAP_OFFSET(WINDOW, KCR_MAP_SLOTS, 1), 8 * 4096, { "r", "rw", "" } },
	{ "ack 0", ACK, 4096, { "r", "rw", "" } },
	{ "ack 1", KCR_MMAP_OFFSET(WINDOW, KCR_MAP_ACK, 1), 4096, { "rw", "r", "" } },
	{ "board 0", BOARD_0, BOARD, { "rw", "r", "r" } },
	{ "board 1", KCR_MMAP_OFFSET(WINDOW, KCR_MAP_BOARD, 1), BOARD, { "r", "rw", "r" } },
	{ "board 2", KCR_MMAP_OFFSET(WINDOW, KCR_MAP_BOARD, 2), BOARD, { "r", "r", "rw" } },
};

#define NR_PARTS (sizeof(parts) / sizeof(parts[0]))

TEST_F(mmap, rights)
{
	int rank, i;

	for (i = 0; i < NR_PARTS; i++) {
		const struct part *p = &parts[i];

		for (rank = 0; rank < RANKS; rank++) {
			int readable = strchr(p->may[rank], 'r') ? 0 : -EACCES;
			int writable = strchr(p->may[rank], 'w') ? 0 : -EACCES;
			int fd = self->fd[rank];

			EXPECT_EQ(readable, map_error(fd, PROT_READ, p->offset, p->bytes)) {
				TH_LOG("rank %d, %s", rank, p->name);
			}
			EXPECT_EQ(writable, map_error(fd, RW, p->offset, p->bytes)) {
				TH_LOG("rank %d, %s", rank, p->name);
			}
			EXPECT_EQ(writable, map_error(fd, PROT_WRITE, p->offset, p->bytes)) {
				TH_LOG("rank %d, %s", rank, p->name);
			}
			EXPECT_EQ(-EPERM, map_error(fd, PROT_READ | PROT_EXEC, p->offset,
						    p->bytes));
			EXPECT_EQ(-EPERM, map_error(fd, PROT_EXEC, p->offset, p->bytes));
			EXPECT_EQ(-EINVAL, dev_map_error(fd, PROT_READ, MAP_PRIVATE, p->offset,
							 p->bytes));
			EXPECT_EQ(-EINVAL, dev_map_error(fd, PROT_NONE, MAP_PRIVATE, p->offset,
							 p->bytes));
			EXPECT_NE(0, dev_map_error(fd, RW, MAP_PRIVATE, p->offset, p->bytes));
		}
	}
}

TEST_F(mmap, lengths)
{
	static const long off[] = { -4096, 4096, 8192, 1 << 20 };
	int i, k;

	for (i = 0; i < NR_PARTS; i++) {
		const struct part *p = &parts[i];
		int rank = strchr(p->may[1], 'r') ? 1 : 2;

		for (k = 0; k < sizeof(off) / sizeof(off[0]); k++) {
			if ((long)p->bytes + off[k] <= 0)
				continue;
			EXPECT_EQ(-EINVAL, map_error(self->fd[rank], PROT_READ, p->offset,
						     p->bytes + off[k])) {
				TH_LOG("%s, %ld bytes more", p->name, off[k]);
			}
		}
		/* mmap() itself rounds up. */
		EXPECT_EQ(0, map_error(self->fd[rank], PROT_READ, p->offset, p->bytes - 4095));
		EXPECT_EQ(-EINVAL, map_error(self->fd[rank], PROT_READ, p->offset,
					     1UL << 32)) {
			TH_LOG("%s, 4 GiB", p->name);
		}
	}
}

TEST_F(mmap, offsets)
{
	/* Places inside a part, or where no part is. */
	static const struct {
		__u64 offset;
		size_t bytes;
	} wrong[] = {
		{ 4096, 4096 },
		{ SLOTS + 4096, 20 * 1024 - 4096 },
		{ SLOTS + 4096, 20 * 1024 },
		{ SLOTS + (1ULL << 31), 20 * 1024 },
		{ BOARD_0 + 4096, BOARD - 4096 },
		{ ACK + 4096, 4096 },
		{ KCR_MMAP_OFFSET(0, KCR_MAP_STATUS, 1), 4096 },
		{ KCR_MMAP_OFFSET(WINDOW, 4, 0), 4096 },
		{ KCR_MMAP_OFFSET(WINDOW, 7, 0), 4096 },
		{ KCR_MMAP_OFFSET(WINDOW, 15, 0), 4096 },
		{ KCR_MMAP_OFFSET(WINDOW, KCR_MAP_SLOTS, 2), 4096 },
		{ KCR_MMAP_OFFSET(WINDOW, KCR_MAP_SLOTS, 0xffff), 20 * 1024 },
		{ KCR_MMAP_OFFSET(WINDOW, KCR_MAP_ACK, 2), 4096 },
		{ KCR_MMAP_OFFSET(WINDOW, KCR_MAP_ACK, 0x8000), 4096 },
		{ KCR_MMAP_OFFSET(WINDOW, KCR_MAP_BOARD, RANKS), BOARD },
		{ KCR_MMAP_OFFSET(WINDOW, KCR_MAP_BOARD, 1024), BOARD },
	};
	/* Windows that are not there. */
	static const __u32 windows[] = { 0, WINDOW - 1, WINDOW + 1, 15 };
	int i, err;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		EXPECT_EQ(-EINVAL, map_error(self->fd[0], PROT_READ, wrong[i].offset,
					     wrong[i].bytes)) {
			TH_LOG("offset %#llx", wrong[i].offset);
		}
	}
	for (i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
		EXPECT_EQ(-ENXIO, map_error(self->fd[0], PROT_READ,
					    KCR_MMAP_OFFSET(windows[i], KCR_MAP_BOARD, 0),
					    BOARD)) {
			TH_LOG("window %u", windows[i]);
		}
	}
	/* Window numbers that never are: the offset or the window is wrong. */
	for (i = KCR_MAX_WINDOWS; i < 4096; i *= 2) {
		err = map_error(self->fd[0], PROT_READ, KCR_MMAP_OFFSET(i, KCR_MAP_BOARD, 0),
				BOARD);
		EXPECT_TRUE(err == -EINVAL || err == -ENXIO || err == -EOVERFLOW) {
			TH_LOG("window %d: %d", i, err);
		}
	}
}

/* A window without boards, and one without lanes. */
TEST_F(mmap, nothing_there)
{
	int err;

	ASSERT_EQ(0, dev_window(self->fd[0], 0, lanes, 2, 0));
	ASSERT_EQ(0, dev_window(self->fd[0], 1, NULL, 0, 4096));
	err = map_error(self->fd[0], PROT_READ, KCR_MMAP_OFFSET(0, KCR_MAP_BOARD, 0), 4096);
	EXPECT_TRUE(err == -EINVAL || err == -ENXIO);
	EXPECT_EQ(-EINVAL, map_error(self->fd[0], PROT_READ,
				     KCR_MMAP_OFFSET(1, KCR_MAP_SLOTS, 0), 4096));
	EXPECT_EQ(-EINVAL, map_error(self->fd[0], PROT_READ,
				     KCR_MMAP_OFFSET(1, KCR_MAP_ACK, 0), 4096));
}

/* K4 */
TEST_F(mmap, no_upgrade)
{
	int rank, i, prot;
	char *p;

	for (i = 0; i < NR_PARTS; i++) {
		for (rank = 0; rank < RANKS; rank++) {
			bool writable = strchr(parts[i].may[rank], 'w');

			if (!*parts[i].may[rank])
				continue;
			for (prot = PROT_NONE; prot <= PROT_READ; prot++) {
				p = mmap(NULL, parts[i].bytes, prot, MAP_SHARED,
					 self->fd[rank], (off_t)parts[i].offset);
				ASSERT_NE(MAP_FAILED, p);
				EXPECT_EQ(writable ? 0 : -1, mprotect(p, parts[i].bytes, RW)) {
					TH_LOG("rank %d, %s", rank, parts[i].name);
				}
				EXPECT_EQ(writable ? 0 : -1, mprotect(p, 4096, PROT_WRITE));
				if (!writable)
					EXPECT_EQ(EACCES, errno);
				EXPECT_EQ(-1, mprotect(p, 4096, PROT_READ | PROT_EXEC));
				EXPECT_EQ(EACCES, errno);
				EXPECT_EQ(-1, mprotect(p, 4096, RW | PROT_EXEC));
				EXPECT_EQ(0, mprotect(p, parts[i].bytes, PROT_READ));
				munmap(p, parts[i].bytes);
			}
		}
	}
}

/* A descriptor that may only be read, or only be written. */
TEST_F(mmap, how_it_was_opened)
{
	struct dev_world w = dev_world(2);
	int fd, peer;
	char *p;

	fd = open(DEV_PATH, O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, fd);
	peer = dev_member(&w, 1);
	ASSERT_EQ(0, dev_join(fd, &w, 0));
	ASSERT_EQ(0, dev_window(fd, WINDOW, lanes, 2, BOARD));
	ASSERT_EQ(0, dev_window(peer, WINDOW, lanes, 2, BOARD));
	EXPECT_EQ(-EACCES, map_error(fd, RW, SLOTS, self->slots));
	EXPECT_EQ(-EACCES, map_error(fd, PROT_WRITE, SLOTS, self->slots));
	EXPECT_EQ(-EACCES, map_error(fd, RW, BOARD_0, BOARD));
	EXPECT_EQ(-EACCES, map_error(fd, RW, 0, 4096));
	EXPECT_EQ(-EPERM, map_error(fd, PROT_READ | PROT_EXEC, SLOTS, self->slots));
	EXPECT_EQ(-EINVAL, dev_map_error(fd, PROT_READ, MAP_PRIVATE, SLOTS, self->slots));
	EXPECT_EQ(-EINVAL, dev_map_error(fd, RW, MAP_PRIVATE, BOARD_0, BOARD));
	p = mmap(NULL, BOARD, PROT_READ, MAP_SHARED, fd, (off_t)BOARD_0);
	ASSERT_NE(MAP_FAILED, p);
	EXPECT_EQ(-1, mprotect(p, BOARD, RW));
	EXPECT_EQ(EACCES, errno);
	EXPECT_EQ(-1, mprotect(p, BOARD, PROT_READ | PROT_EXEC));
	EXPECT_EQ(0, p[0]);
	munmap(p, BOARD);
	close(fd);
	close(peer);

	w = dev_world(2);
	fd = open(DEV_PATH, O_WRONLY | O_CLOEXEC);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, dev_join(fd, &w, 0));
	ASSERT_EQ(0, dev_window(fd, WINDOW, lanes, 2, BOARD));
	EXPECT_EQ(-EACCES, map_error(fd, RW, BOARD_0, BOARD));
	EXPECT_EQ(-EACCES, map_error(fd, PROT_WRITE, BOARD_0, BOARD));
	close(fd);
}

TEST_F(mmap, no_mremap)
{
	char *p, *elsewhere;
	int i;

	for (i = 0; i < NR_PARTS; i++) {
		size_t bytes = parts[i].bytes;
		int rank = strchr(parts[i].may[0], 'r') ? 0 : 2;

		p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, self->fd[rank],
			 (off_t)parts[i].offset);
		ASSERT_NE(MAP_FAILED, p);
		elsewhere = mmap(NULL, 2 * bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ASSERT_NE(MAP_FAILED, elsewhere);
		EXPECT_EQ(MAP_FAILED, mremap(p, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
					     elsewhere));
		EXPECT_EQ(MAP_FAILED, mremap(p, bytes, bytes + 4096, 0));
		EXPECT_EQ(MAP_FAILED, mremap(p, bytes, bytes + 4096, MREMAP_MAYMOVE));
		EXPECT_EQ(MAP_FAILED, mremap(p, bytes, 2 * bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
					     elsewhere));
		/* A second mapping of the same. */
		EXPECT_EQ(MAP_FAILED, mremap(p, 0, bytes, MREMAP_MAYMOVE));
		EXPECT_EQ(MAP_FAILED, mremap(p, bytes, bytes,
					     MREMAP_MAYMOVE | MREMAP_DONTUNMAP));
		/* It is still where it was. */
		EXPECT_LE(0, __atomic_load_n(p + bytes - 1, __ATOMIC_RELAXED));
		munmap(p, bytes);
		munmap(elsewhere, 2 * bytes);
	}
}

/* K14: unmapped in pieces, in several orders. */
TEST_F(mmap, pieces)
{
	static const int orders[][5] = {
		{ 0, 1, 2, 3, 4 }, { 4, 3, 2, 1, 0 }, { 2, 0, 4, 1, 3 }, { 1, 3, 0, 2, 4 },
	};
	struct dev_counters base = dev_counters();
	char *w, *r;
	int i, k, m;

	for (i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		w = mmap(NULL, self->slots, RW, MAP_SHARED, self->fd[0], (off_t)SLOTS);
		r = mmap(NULL, self->slots, PROT_READ, MAP_SHARED, self->fd[1], (off_t)SLOTS);
		ASSERT_NE(MAP_FAILED, w);
		ASSERT_NE(MAP_FAILED, r);
		for (k = 0; k < 5; k++) {
			ASSERT_EQ(0, munmap(w + orders[i][k] * 4096, 4096));
			for (m = k + 1; m < 5; m++) {
				int page = orders[i][m] * 4096;

				w[page] = k + 1;
				ASSERT_EQ(k + 1, r[page]);
			}
		}
		/* Split and whole again, without unmapping anything. */
		for (k = 1; k < 5; k += 2)
			EXPECT_EQ(0, mprotect(r + k * 4096, 4096, PROT_NONE));
		EXPECT_EQ(0, mprotect(r, self->slots, PROT_READ));
		EXPECT_EQ(1, r[orders[i][1] * 4096]);
		/* Cut short by mremap(), over another by mmap(). */
		EXPECT_EQ(r, mremap(r, self->slots, self->slots - 4096, 0));
		EXPECT_EQ(r + 4096, mmap(r + 4096, 4096, PROT_READ,
					 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
		EXPECT_EQ(0, r[4096]);
		munmap(r, self->slots);
	}
	EXPECT_TRUE(dev_counters_equal(&base));
}

struct target {
	char *p;
	int write;
};

static void touch(void *arg)
{
	struct target *t = arg;

	if (t->write)
		*t->p = 1;
	else
		__atomic_load_n(t->p, __ATOMIC_RELAXED);
}

static int signal_of_touching(char *p, int write)
{
	struct target t = { p, write };
	int status = dev_child_status(dev_child(touch, &t), 20);

	return WIFSIGNALED(status) ? WTERMSIG(status) : status;
}

TEST_F(mmap, fork)
{
	int rank, i;
	char *p;

	for (i = 0; i < NR_PARTS; i++) {
		rank = strchr(parts[i].may[0], 'r') ? 0 : 2;
		p = mmap(NULL, parts[i].bytes, PROT_READ, MAP_SHARED, self->fd[rank],
			 (off_t)parts[i].offset);
		ASSERT_NE(MAP_FAILED, p);
		EXPECT_EQ(SIGSEGV, signal_of_touching(p, 0)) {
			TH_LOG("%s", parts[i].name);
		}
		EXPECT_EQ(SIGSEGV, signal_of_touching(p + parts[i].bytes - 1, 0));
		munmap(p, parts[i].bytes);
	}
}

/*
 * What madvise() can ask for is refused or harmless, and another process does
 * not get at the memory by it.
 */
TEST_F(mmap, advice)
{
	static const int advice[] = {
		MADV_NORMAL, MADV_WILLNEED, MADV_DOFORK, MADV_DODUMP, MADV_MERGEABLE,
		MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLD, MADV_PAGEOUT, MADV_FREE,
		MADV_REMOVE, MADV_WIPEONFORK, MADV_KEEPONFORK, 22 /* POPULATE_READ */,
		23 /* POPULATE_WRITE */, 25 /* COLLAPSE */,
	};
	char *w, *r;
	int i;

	w = mmap(NULL, self->slots, RW, MAP_SHARED, self->fd[0], (off_t)SLOTS);
	r = mmap(NULL, self->slots, PROT_READ, MAP_SHARED, self->fd[1], (off_t)SLOTS);
	ASSERT_NE(MAP_FAILED, w);
	ASSERT_NE(MAP_FAILED, r);
	for (i = 0; i < sizeof(advice) / sizeof(advice[0]); i++) {
		w[4096] = i + 1;
		madvise(w, self->slots, advice[i]);
		madvise(r + 4096, 4096, advice[i]);
		EXPECT_EQ(i + 1, w[4096]) {
			TH_LOG("advice %d", advice[i]);
		}
		EXPECT_EQ(i + 1, r[4096]);
	}
	mlock(w, self->slots);
	munlock(w, self->slots);
	w[0] = 77;
	EXPECT_EQ(77, r[0]);
	munmap(w, self->slots);
	munmap(r, self->slots);
}

/* Flags of mmap() that change nothing about what may be done. */
TEST_F(mmap, flags)
{
	static const int flags[] = {
		MAP_POPULATE, MAP_LOCKED, MAP_NORESERVE, MAP_NONBLOCK | MAP_POPULATE,
		MAP_STACK, MAP_32BIT,
	};
	int i;

	for (i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		EXPECT_EQ(0, dev_map_error(self->fd[0], RW, MAP_SHARED | flags[i], SLOTS,
					   self->slots)) {
			TH_LOG("flags %#x", flags[i]);
		}
		EXPECT_EQ(-EACCES, dev_map_error(self->fd[1], RW, MAP_SHARED | flags[i], SLOTS,
						 self->slots));
		EXPECT_EQ(-EINVAL, dev_map_error(self->fd[0], PROT_READ, MAP_PRIVATE | flags[i],
						 SLOTS, self->slots));
	}
	EXPECT_EQ(0, dev_map_error(self->fd[0], RW, MAP_SHARED_VALIDATE, SLOTS, self->slots));
	EXPECT_NE(0, dev_map_error(self->fd[0], RW, MAP_SHARED_VALIDATE | MAP_SYNC, SLOTS,
				   self->slots));
}

/* A mapping that is said to be a stack has no memory below it either. */
TEST_F(mmap, grows_down)
{
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	char *hole, *p;

	ASSERT_LE(0, zero);
	hole = mmap(NULL, 4 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, hole);
	munmap(hole, 4 << 20);
	p = mmap(hole + (2 << 20), BOARD, RW, MAP_SHARED | MAP_FIXED | MAP_GROWSDOWN,
		 self->fd[0], (off_t)BOARD_0);
	if (p != MAP_FAILED) {
		p[0] = 1;
		/* The kernel touches it for us: an error, and no signal. */
		EXPECT_EQ(-1, read(zero, p - 16, 16));
		EXPECT_EQ(EFAULT, errno);
		EXPECT_EQ(-1, read(zero, p - 4096, 4096));
		EXPECT_EQ(1, p[0]);
		munmap(p - (1 << 20), (1 << 20) + BOARD);
	}
	close(zero);
}

/* Debuggers write where the process may not: not into these. */
TEST_F(mmap, proc_mem)
{
	int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	char *w, *r, byte = 7;
	struct iovec local, remote;

	if (mem < 0)
		SKIP(return, "/proc/self/mem: %s", strerror(errno));
	w = mmap(NULL, self->slots, RW, MAP_SHARED, self->fd[0], (off_t)SLOTS);
	r = mmap(NULL, self->slots, PROT_READ, MAP_SHARED, self->fd[1], (off_t)SLOTS);
	ASSERT_NE(MAP_FAILED, w);
	ASSERT_NE(MAP_FAILED, r);
	EXPECT_EQ(-1, pwrite(mem, &byte, 1, (off_t)(unsigned long)r));
	EXPECT_EQ(0, r[0]);
	local = (struct iovec){ &byte, 1 };
	remote = (struct iovec){ r, 1 };
	EXPECT_EQ(-1, process_vm_writev(getpid(), &local, 1, &remote, 1, 0));
	EXPECT_EQ(0, r[0]);
	w[0] = 9;
	EXPECT_EQ(1, pread(mem, &byte, 1, (off_t)(unsigned long)r));
	EXPECT_EQ(9, byte);
	munmap(w, self->slots);
	munmap(r, self->slots);
	close(mem);
}

/* An old call moves a mapping to another offset: to nothing that is forbidden. */
TEST_F(mmap, remap_file_pages)
{
	static const struct {
		__u64 offset;
		size_t bytes;
	} others[] = {
		{ KCR_MMAP_OFFSET(WINDOW, KCR_MAP_BOARD, 1), BOARD },
		{ KCR_MMAP_OFFSET(WINDOW, KCR_MAP_SLOTS, 1), 4096 },
		{ BOARD_0 + 4096, 4096 },
		{ BOARD_0, 4096 },
		{ ACK, 4096 },
		{ 0, 4096 },
	};
	char *p;
	int i;

	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		p = mmap(NULL, BOARD, RW, MAP_SHARED, self->fd[0], (off_t)BOARD_0);
		ASSERT_NE(MAP_FAILED, p);
		EXPECT_NE(0, syscall(SYS_remap_file_pages, p, others[i].bytes, 0,
				     others[i].offset >> 12, 0)) {
			TH_LOG("to offset %#llx", others[i].offset);
		}
		munmap(p, BOARD);
	}
}

struct heir {
	char *memory;
	size_t bytes;
	int *stage;
};

static void heir(void *arg)
{
	struct heir *h = arg;

	dev_reach(h->stage, 1);
	CHILD_TRUE(dev_reached(h->stage, 2));
	/* Its parent has neither the mapping nor the descriptor any more. */
	__atomic_load_n(h->memory + h->bytes - 1, __ATOMIC_RELAXED);
	CHILD_GIVES(5, __atomic_load_n(h->memory, __ATOMIC_RELAXED));
}

/*
 * A process may ask for what it is spared: then its child has the memory, which
 * must be as good as any mapping.
 */
TEST_F(mmap, inherited_on_request)
{
	struct heir h = { .bytes = BOARD, .stage = dev_shared(4096) };
	int status, i;
	pid_t pid;

	h.memory = mmap(NULL, BOARD, RW, MAP_SHARED, self->fd[0], (off_t)BOARD_0);
	ASSERT_NE(MAP_FAILED, h.memory);
	h.memory[0] = 5;
	if (madvise(h.memory, BOARD, MADV_DOFORK))
		goto refused;
	pid = dev_child(heir, &h);
	ASSERT_TRUE(dev_reached(h.stage, 1));
	munmap(h.memory, BOARD);
	for (i = 0; i < RANKS; i++) {
		close(self->fd[i]);
		self->fd[i] = -1;
	}
	dev_reach(h.stage, 2);
	status = dev_child_status(pid, 20);
	EXPECT_EQ(0, status);
	return;
refused:
	EXPECT_EQ(EINVAL, errno);
	munmap(h.memory, BOARD);
}

static void drop_own(void *arg)
{
	struct dev_world w = dev_world(1);
	int fd = dev_member(&w, 0);
	char *p;

	CHILD_TRUE(fd >= 0);
	CHILD_GIVES(0, dev_window(fd, WINDOW, NULL, 0, BOARD));
	p = mmap(NULL, BOARD, RW, MAP_SHARED, fd, (off_t)BOARD_0);
	CHILD_TRUE(p != MAP_FAILED);
	if (!madvise(p, BOARD, MADV_DONTNEED))
		__atomic_load_n(p, __ATOMIC_RELAXED);
}

/* Pages dropped from the page table: refused, still there, or SIGBUS. */
TEST_F(mmap, dropped_pages)
{
	int status = dev_child_status(dev_child(drop_own, NULL), 20);

	EXPECT_TRUE(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS)) {
		TH_LOG("status %#x", status);
	}
}

/* Kernel's own access to the memory, by system calls. */
TEST_F(mmap, system_calls)
{
	char text[64] = "";
	int tube[2];
	char *w, *r;

	w = mmap(NULL, self->slots, RW, MAP_SHARED, self->fd[0], (off_t)SLOTS);
	r = mmap(NULL, self->slots, PROT_READ, MAP_SHARED, self->fd[1], (off_t)SLOTS);
	ASSERT_NE(MAP_FAILED, w);
	ASSERT_NE(MAP_FAILED, r);
	ASSERT_EQ(0, pipe(tube));
	EXPECT_EQ(6, write(tube[1], "hello", 6));
	EXPECT_EQ(6, read(tube[0], w + 4093, 6));
	EXPECT_STREQ("hello", r + 4093);
	EXPECT_EQ(6, write(tube[1], r + 4093, 6));
	/* Not into what may only be read. */
	EXPECT_EQ(-1, read(tube[0], r, 6));
	EXPECT_EQ(EFAULT, errno);
	EXPECT_EQ(0, r[0]);
	EXPECT_EQ(6, read(tube[0], text, 6));
	EXPECT_STREQ("hello", text);
	/* A call's arguments may be there too. */
	((struct kcr_kick *)w)->size = sizeof(struct kcr_kick);
	((struct kcr_kick *)w)->mask = 7;
	EXPECT_EQ(0, dev_ioctl(self->fd[1], KCR_IOCTL_KICK, r));
	((struct kcr_query *)w)->size = sizeof(struct kcr_query);
	memset(w + 4, 0, sizeof(struct kcr_query) - 4);
	EXPECT_EQ(-EFAULT, dev_ioctl(self->fd[1], KCR_IOCTL_QUERY, r));
	EXPECT_EQ(0, dev_ioctl(self->fd[0], KCR_IOCTL_QUERY, w));
	EXPECT_EQ(KCR_ABI_VERSION, ((struct kcr_query *)r)->abi_version);
	munmap(w, self->slots);
	munmap(r, self->slots);
	close(tube[0]);
	close(tube[1]);
}

/* Pages that a pipe holds outlive everything, and are nobody else's. */
TEST_F(mmap, pages_in_a_pipe)
{
	struct iovec iov;
	char text[16];
	int tube[2], i;
	char *p;

	ASSERT_EQ(0, pipe(tube));
	p = mmap(NULL, BOARD, RW, MAP_SHARED, self->fd[0], (off_t)BOARD_0);
	ASSERT_NE(MAP_FAILED, p);
	strcpy(p + 100, "kept by a pipe");
	iov = (struct iovec){ p + 100, 16 };
	ASSERT_EQ(16, vmsplice(tube[1], &iov, 1, 0));
	munmap(p, BOARD);
	for (i = 0; i < RANKS; i++) {
		close(self->fd[i]);
		self->fd[i] = -1;
	}
	/* Whoever allocates now must not get them. */
	p = mmap(NULL, 16 << 20, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	memset(p, 0x55, 16 << 20);
	EXPECT_EQ(16, read(tube[0], text, 16));
	EXPECT_STREQ("kept by a pipe", text);
	munmap(p, 16 << 20);
	close(tube[0]);
	close(tube[1]);
}

TEST_F(mmap, after_close)
{
	char *w, *r, *mine;
	struct kcr_status *status;
	int i;

	w = mmap(NULL, self->slots, RW, MAP_SHARED, self->fd[0], (off_t)SLOTS);
	r = mmap(NULL, self->slots, PROT_READ, MAP_SHARED, self->fd[1], (off_t)SLOTS);
	mine = mmap(NULL, BOARD, RW, MAP_SHARED, self->fd[0], (off_t)BOARD_0);
	status = dev_status(self->fd[0]);
	ASSERT_NE(MAP_FAILED, w);
	ASSERT_NE(MAP_FAILED, r);
	ASSERT_NE(MAP_FAILED, mine);
	ASSERT_NE(MAP_FAILED, status);
	for (i = 0; i < RANKS; i++) {
		ASSERT_EQ(0, close(self->fd[i]));
		self->fd[i] = -1;
	}
	for (i = 0; i < self->slots; i++)
		w[i] = i ^ (i >> 8);
	for (i = 0; i < self->slots; i++)
		if (r[i] != (char)(i ^ (i >> 8)))
			break;
	EXPECT_EQ(self->slots, i);
	mine[BOARD - 1] = 1;
	EXPECT_EQ(KCR_CAUSE(0, ECONNRESET), dev_cause(status));
	munmap(w, self->slots);
	EXPECT_EQ(99 ^ 0, r[99]);
	munmap(r, self->slots);
	munmap(mine, BOARD);
	munmap(status, sizeof(*status));
}

/* Both ways between two ranks, and by acknowledgements. */
TEST_F(mmap, contents)
{
	struct kcr_ack *ack, *seen;
	char *memory[2], *view[2];
	int lane, i, k;

	for (lane = 0; lane < 2; lane++) {
		__u64 offset = KCR_MMAP_OFFSET(WINDOW, KCR_MAP_SLOTS, lane);
		__u64 ack_offset = KCR_MMAP_OFFSET(WINDOW, KCR_MAP_ACK, lane);
		int from = lanes[lane].source, to = lanes[lane].destination;
		size_t bytes = dev_lane_bytes(&lanes[lane]);

		memory[lane] = mmap(NULL, bytes, RW, MAP_SHARED, self->fd[from], (off_t)offset);
		view[lane] = mmap(NULL, bytes, PROT_READ, MAP_SHARED, self->fd[to],
				  (off_t)offset);
		ASSERT_NE(MAP_FAILED, memory[lane]);
		ASSERT_NE(MAP_FAILED, view[lane]);
		for (i = 0; i < bytes; i++)
			if (view[lane][i])
				break;
		EXPECT_EQ(bytes, i);
		for (i = 0; i < bytes; i++)
			memory[lane][i] = lane * 100 + i * 3 + (i >> 12);
		ack = mmap(NULL, 4096, RW, MAP_SHARED, self->fd[to], (off_t)ack_offset);
		seen = mmap(NULL, 4096, PROT_READ, MAP_SHARED, self->fd[from],
			    (off_t)ack_offset);
		ASSERT_NE(MAP_FAILED, ack);
		ASSERT_NE(MAP_FAILED, seen);
		EXPECT_EQ(0, seen->sequence);
		ack->sequence = 5 + lane;
		ack->complement = ~ack->sequence;
		EXPECT_EQ(5 + lane, seen->sequence);
		EXPECT_EQ(~(5ULL + lane), seen->complement);
		munmap(ack, 4096);
		munmap(seen, 4096);
	}
	for (lane = 0; lane < 2; lane++) {
		size_t bytes = dev_lane_bytes(&lanes[lane]);

		for (i = 0; i < bytes; i++)
			if (view[lane][i] != (char)(lane * 100 + i * 3 + (i >> 12)))
				break;
		EXPECT_EQ(bytes, i);
		munmap(memory[lane], bytes);
		munmap(view[lane], bytes);
	}
	/* Boards are three different pieces of memory. */
	for (k = 0; k < RANKS; k++) {
		char *mine = mmap(NULL, BOARD, RW, MAP_SHARED, self->fd[k],
				  (off_t)KCR_MMAP_OFFSET(WINDOW, KCR_MAP_BOARD, k));

		ASSERT_NE(MAP_FAILED, mine);
		memset(mine, k + 1, BOARD);
		munmap(mine, BOARD);
	}
	for (k = 0; k < RANKS; k++) {
		for (i = 0; i < RANKS; i++) {
			char *theirs = mmap(NULL, BOARD, PROT_READ, MAP_SHARED, self->fd[i],
					    (off_t)KCR_MMAP_OFFSET(WINDOW, KCR_MAP_BOARD, k));

			ASSERT_NE(MAP_FAILED, theirs);
			EXPECT_EQ(k + 1, theirs[0]);
			EXPECT_EQ(k + 1, theirs[BOARD - 1]);
			munmap(theirs, BOARD);
		}
	}
}

TEST_F(mmap, status_page)
{
	struct kcr_status *status = dev_status(self->fd[0]);
	struct dev_world w = dev_world(3);
	int fd[2], i;

	ASSERT_NE(MAP_FAILED, status);
	EXPECT_EQ(3, status->joined);
	EXPECT_EQ(0, status->left);
	EXPECT_EQ(0, status->cause);
	for (i = 0; i < KCR_MAX_RANKS; i++)
		if (dev_state(status, i) != (i < RANKS ? KCR_MEMBER_JOINED : KCR_MEMBER_ABSENT))
			break;
	EXPECT_EQ(KCR_MAX_RANKS, i);
	/* A map of the second one is of the same page. */
	EXPECT_EQ(dev_events(status), status->events);
	munmap(status, sizeof(*status));

	fd[0] = dev_member(&w, 2);
	ASSERT_LE(0, fd[0]);
	status = dev_status(fd[0]);
	ASSERT_NE(MAP_FAILED, status);
	EXPECT_EQ(1, status->joined);
	EXPECT_EQ(KCR_MEMBER_ABSENT, dev_state(status, 0));
	EXPECT_EQ(KCR_MEMBER_ABSENT, dev_state(status, 1));
	EXPECT_EQ(KCR_MEMBER_JOINED, dev_state(status, 2));
	fd[1] = dev_member(&w, 0);
	ASSERT_LE(0, fd[1]);
	EXPECT_EQ(2, status->joined);
	EXPECT_EQ(KCR_MEMBER_JOINED, dev_state(status, 0));
	ASSERT_EQ(0, dev_leave(fd[1]));
	EXPECT_EQ(2, status->joined);
	EXPECT_EQ(1, status->left);
	EXPECT_EQ(KCR_MEMBER_LEFT, dev_state(status, 0));
	EXPECT_EQ(0, dev_cause(status));
	/* One's own end is to be seen there too. */
	ASSERT_EQ(0, dev_leave(fd[0]));
	EXPECT_EQ(2, status->left);
	EXPECT_EQ(KCR_MEMBER_LEFT, dev_state(status, 2));
	close(fd[0]);
	close(fd[1]);
	EXPECT_EQ(KCR_MEMBER_LEFT, dev_state(status, 2));
	munmap(status, sizeof(*status));
}

TEST_F(mmap, many)
{
	struct dev_counters base = dev_counters();
	int rounds = 1000 * dev_scale(), i, k, n;
	char *kept[200];
	char *p;

	for (i = 0; i < rounds; i++) {
		const struct part *part = &parts[i % NR_PARTS];
		int rank = strchr(part->may[0], 'r') ? 0 : 2;

		p = mmap(NULL, part->bytes, PROT_READ, MAP_SHARED, self->fd[rank],
			 (off_t)part->offset);
		ASSERT_NE(MAP_FAILED, p);
		__atomic_load_n(p + part->bytes - 1, __ATOMIC_RELAXED);
		ASSERT_EQ(0, munmap(p, part->bytes));
	}
	/* Many of the same at once. */
	for (n = 0; n < 200; n++) {
		kept[n] = mmap(NULL, self->slots, RW, MAP_SHARED, self->fd[0], (off_t)SLOTS);
		ASSERT_NE(MAP_FAILED, kept[n]);
	}
	for (i = 0; i < n; i++)
		kept[i][i * 64] = i;
	for (i = 0; i < n; i++)
		for (k = 0; k < n; k += 17)
			ASSERT_EQ((char)i, kept[k][i * 64]);
	for (i = 0; i < n; i++)
		munmap(kept[i], self->slots);
	EXPECT_TRUE(dev_counters_equal(&base));
}

/* K7: one thread maps, another makes and drops what it maps. */
struct k7 {
	struct dev_world world;
	int fd;
	int stop;
	int odd;
	int made, mapped, missed;
};

static void *k7_map(void *arg)
{
	struct k7 *k = arg;
	__u32 *p;

	while (!__atomic_load_n(&k->stop, __ATOMIC_ACQUIRE)) {
		p = mmap(NULL, BOARD, RW, MAP_SHARED, k->fd, (off_t)BOARD_0);
		if (p == MAP_FAILED) {
			if (errno != ENXIO)
				__atomic_store_n(&k->odd, -errno, __ATOMIC_RELAXED);
			__atomic_fetch_add(&k->missed, 1, __ATOMIC_RELAXED);
			continue;
		}
		p[1000] = 0x12345678;
		if (p[1000] != 0x12345678)
			__atomic_store_n(&k->odd, 1, __ATOMIC_RELAXED);
		munmap(p, BOARD);
		__atomic_fetch_add(&k->mapped, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

TEST_F(mmap, against_detach)
{
	struct k7 k = { .world = dev_world(1) };
	double end = dev_now() + 3 * dev_scale();
	pthread_t thread[2];
	int i, err;

	k.fd = dev_member(&k.world, 0);
	ASSERT_LE(0, k.fd);
	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&thread[i], NULL, k7_map, &k));
	while (dev_now() < end) {
		err = dev_window(k.fd, WINDOW, NULL, 0, BOARD);
		/* For a while that is not always the same. */
		for (i = 0; i < (k.made & 15) * 1000; i++)
			__asm__ volatile ("" ::: "memory");
		if (!err)
			err = dev_detach(k.fd, WINDOW);
		ASSERT_EQ(0, err);
		k.made++;
	}
	__atomic_store_n(&k.stop, 1, __ATOMIC_RELEASE);
	for (i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	EXPECT_EQ(0, k.odd);
	TH_LOG("%d windows, mapped %d times, missed %d times", k.made, k.mapped, k.missed);
	EXPECT_LT(0, k.mapped);
	close(k.fd);
}

/* ... and against the last close, by the same process. */
TEST_F(mmap, against_close)
{
	struct k7 k = { .world = dev_world(1) };
	pthread_t thread;
	int round;

	for (round = 0; round < 100; round++) {
		k.world = dev_world(1);
		k.stop = 0;
		k.fd = dev_member(&k.world, 0);
		ASSERT_LE(0, k.fd);
		ASSERT_EQ(0, dev_window(k.fd, WINDOW, NULL, 0, BOARD));
		ASSERT_EQ(0, pthread_create(&thread, NULL, k7_map, &k));
		dev_sleep(0.001 * (round % 5));
		close(k.fd);
		__atomic_store_n(&k.stop, 1, __ATOMIC_RELEASE);
		pthread_join(thread, NULL);
		EXPECT_TRUE(!k.odd || k.odd == -EBADF || k.odd == -ESHUTDOWN) {
			TH_LOG("%d", k.odd);
		}
		k.odd = 0;
	}
}

TEST_HARNESS_MAIN
