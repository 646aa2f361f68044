// SPDX-License-Identifier: GPL-2.0
/*
 * The form of every call, whatever it does: sizes, flags, reserved fields,
 * pointers, rings that do not fit, and the order of a membership's life
 *
 * Each try is made on a descriptor and in a world of its own. After a try that
 * must fail, the same call is made as it should be: had the first one done
 * anything, this one would say so (joined already, attached already, ...).
 */
#include "kselftest_harness.h"
#include "device.h"

#define WINDOW		3
#define TAIL		8192

union args {
	__u32 size;
	struct kcr_query query;
	struct kcr_join join;
	struct kcr_window window;
	struct kcr_window_detach detach;
	struct kcr_info info;
	struct kcr_wait wait;
	struct kcr_kick kick;
	struct kcr_leave leave;
	struct kcr_cancel cancel;
	struct kcr_fail fail;
	__u8 bytes[sizeof(struct kcr_query) + TAIL];
};

enum { QUERY, JOIN, ATTACH, DETACH, INFO, WAIT, KICK, LEAVE, CANCEL, FAIL };

static const struct call {
	const char *name;
	unsigned long request;
	__u32 size;
	__u32 reserved;		/* where the reserved field is, or 0 */
	__u32 flags;		/* that it knows */
	int right;		/* the answer to a proper call */
	int again;		/* and when it is made a second time */
	bool member;		/* needs a membership */
	bool answers;		/* writes the struct back */
} calls[] = {
	[QUERY] = { "QUERY", KCR_IOCTL_QUERY, sizeof(struct kcr_query),
		    offsetof(struct kcr_query, reserved), .answers = true },
	[JOIN] = { "JOIN", KCR_IOCTL_JOIN, sizeof(struct kcr_join), 0,
		   .again = -EISCONN },
	[ATTACH] = { "WINDOW", KCR_IOCTL_WINDOW, sizeof(struct kcr_window), 0,
		     .flags = KCR_WINDOW_PRIVATE | KCR_WINDOW_REMOTE, .again = -EEXIST,
		     .member = true },
	[DETACH] = { "WINDOW_DETACH", KCR_IOCTL_WINDOW_DETACH,
		     sizeof(struct kcr_window_detach),
		     offsetof(struct kcr_window_detach, reserved),
		     .again = -ENOENT, .member = true },
	[INFO] = { "INFO", KCR_IOCTL_INFO, sizeof(struct kcr_info), 0,
		   .answers = true },
	[WAIT] = { "WAIT", KCR_IOCTL_WAIT, sizeof(struct kcr_wait), 0,
		   .member = true },
	[KICK] = { "KICK", KCR_IOCTL_KICK, sizeof(struct kcr_kick),
		   offsetof(struct kcr_kick, reserved), .member = true },
	[LEAVE] = { "LEAVE", KCR_IOCTL_LEAVE, sizeof(struct kcr_leave), 0,
		    .again = -ESHUTDOWN, .member = true },
	[CANCEL] = { "CANCEL", KCR_IOCTL_CANCEL, sizeof(struct kcr_cancel), 0,
		     .right = -ENOENT, .again = -ENOENT, .member = true },
	[FAIL] = { "FAIL", KCR_IOCTL_FAIL, sizeof(struct kcr_fail),
		   offsetof(struct kcr_fail, reserved), .member = true },
};

#define NR_CALLS	(sizeof(calls) / sizeof(calls[0]))
#define NR_COMMANDS	(NR_CALLS - WAIT)

static __u32 command_of(const struct call *c)
{
	return _IOC_NR(c->request);
}

/* A descriptor on which @c can be made, and arguments with which it works. */
struct place {
	struct dev_world world;
	int fd;
	union args args;
};

static int place_open(struct place *p, const struct call *c)
{
	int err = 0;

	memset(&p->args, 0, sizeof(p->args));
	p->world = dev_world(1);
	p->fd = dev_open();
	if (p->fd < 0)
		return p->fd;
	if (c != &calls[JOIN])
		err = dev_join(p->fd, &p->world, 0);
	if (!err && c == &calls[DETACH])
		err = dev_window(p->fd, WINDOW, NULL, 0, 0);
	p->args.size = c->size;
	switch (c - calls) {
	case JOIN:
		memcpy(p->args.join.id, p->world.id, 16);
		memcpy(p->args.join.key, p->world.key, 16);
		p->args.join.ranks = 1;
		break;
	case ATTACH:
		p->args.window.window = WINDOW;
		break;
	case DETACH:
		p->args.detach.window = WINDOW;
		break;
	case WAIT:
		p->args.wait.seen = ~0ULL;
		p->args.wait.timeout_ns = DEV_SECOND;
		break;
	case KICK:
		p->args.kick.mask = 1;
		break;
	case FAIL:
		p->args.fail.error = EIO;
		break;
	}
	return err;
}

static void place_close(struct place *p)
{
	close(p->fd);
}

/* The cause of the world's failure: its only member looks. */
static __u64 place_cause(struct place *p)
{
	struct kcr_info info;

	return dev_info(&p->world, 0, &info) ? ~0ULL : info.cause;
}

FIXTURE(abi) {
	struct dev_counters before;
	struct io_uring ring;
	bool has_ring;
};

FIXTURE_SETUP(abi)
{
	const char *missing = dev_missing();

	if (missing)
		SKIP(return, "%s", missing);
	self->before = dev_counters();
	self->has_ring = !dev_ring(&self->ring, DEV_URING);
}

FIXTURE_TEARDOWN(abi)
{
	if (self->has_ring)
		io_uring_queue_exit(&self->ring);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
}

/*
 * Make call @c with @size for its size and @value xored into the byte @at, by
 * ioctl or, if @ring, through it.
 */
static void change(struct __test_metadata *_metadata, struct io_uring *ring,
		   const struct call *c, __u32 size, size_t at, __u8 value, int want)
{
	union args before;
	struct place p;
	int got;

	ASSERT_EQ(0, place_open(&p, c));
	/* Poison behind what the call may look at. */
	if (size < TAIL)
		memset(p.args.bytes + (size > c->size ? size : c->size), 0xa5, 32);
	p.args.size = size;
	if (value)
		p.args.bytes[at] ^= value;
	before = p.args;
	if (ring)
		got = dev_ring_command(ring, DEV_URING, p.fd, command_of(c), &p.args,
				       sizeof(p.args));
	else
		got = dev_ioctl(p.fd, c->request, &p.args);
	EXPECT_EQ(want, got) {
		TH_LOG("%s%s of %u bytes (it has %u), byte %zu ^ %#x", c->name,
		       ring ? " by io_uring" : "", size, c->size, at, value);
	}
	if (!c->answers || got) {
		EXPECT_EQ(0, memcmp(&before, &p.args, sizeof(before))) {
			TH_LOG("%s wrote into its arguments", c->name);
		}
	} else {
		/* Only what it knows is written. */
		EXPECT_EQ(0, memcmp(before.bytes + c->size, p.args.bytes + c->size,
				    sizeof(before) - c->size));
		EXPECT_EQ(size, p.args.size);
		EXPECT_EQ(0, p.args.query.flags);
	}

	if (got != c->right && c == &calls[FAIL])
		EXPECT_EQ(0, place_cause(&p));
	if (c->answers)
		goto out;
	p.args.size = c->size;
	if (value)
		p.args.bytes[at] ^= value;
	EXPECT_EQ(got == c->right ? c->again : c->right,
		  dev_ioctl(p.fd, c->request, &p.args)) {
		TH_LOG("%s made properly, after %d", c->name, got);
	}
out:
	place_close(&p);
}

static void sizes(struct __test_metadata *_metadata, struct io_uring *ring,
		  const struct call *c)
{
	/* An entry has 80 bytes, which is then the longest that can be told. */
	__u32 longest = ring ? 80 : c->size + TAIL - 64;
	__u32 size = c->size;

	change(_metadata, ring, c, 0, 0, 0, -EINVAL);
	change(_metadata, ring, c, 4, 0, 0, -EINVAL);
	change(_metadata, ring, c, size - 1, 0, 0, -EINVAL);
	change(_metadata, ring, c, size, 0, 0, c->right);
	change(_metadata, ring, c, size + 1, 0, 0, c->right);
	change(_metadata, ring, c, size + 1, size, 0x80, -E2BIG);
	change(_metadata, ring, c, size + 9, size + 8, 1, -E2BIG);
	change(_metadata, ring, c, longest, 0, 0, c->right);
	change(_metadata, ring, c, longest, longest - 1, 1, -E2BIG);
	change(_metadata, ring, c, longest, size, 1, -E2BIG);
	if (ring) {
		change(_metadata, ring, c, 81, 0, 0, -E2BIG);
		change(_metadata, ring, c, 0x80000000, 0, 0, -E2BIG);
		change(_metadata, ring, c, 0xffffffff, 0, 0, -E2BIG);
	}
}

TEST_F(abi, sizes)
{
	int i;

	for (i = 0; i < NR_CALLS; i++)
		sizes(_metadata, NULL, &calls[i]);
}

TEST_F(abi, sizes_uring)
{
	int i;

	if (!self->has_ring)
		SKIP(return, "no io_uring here");
	for (i = WAIT; i < NR_CALLS; i++)
		sizes(_metadata, &self->ring, &calls[i]);
}

/* Nothing is that long: there is no such memory, or it is not zero. */
TEST_F(abi, endless_size)
{
	struct place p;
	int i, err;

	for (i = 0; i < NR_CALLS; i++) {
		ASSERT_EQ(0, place_open(&p, &calls[i]));
		p.args.size = 0xffffffff;
		err = dev_ioctl(p.fd, calls[i].request, &p.args);
		EXPECT_TRUE(err == -E2BIG || err == -EFAULT) {
			TH_LOG("%s: %d", calls[i].name, err);
		}
		place_close(&p);
	}
}

static void flags_and_reserved(struct __test_metadata *_metadata, struct io_uring *ring,
			       const struct call *c)
{
	__u32 at;

	for (at = 4; at < 8; at++) {
		change(_metadata, ring, c, c->size, at, at == 4 ? 1 + c->flags : 1,
		       -EOPNOTSUPP);
		change(_metadata, ring, c, c->size, at, 0x80, -EOPNOTSUPP);
	}
	if (!c->reserved)
		return;
	for (at = c->reserved; at < c->reserved + 4; at++) {
		change(_metadata, ring, c, c->size, at, 1, -EOPNOTSUPP);
		change(_metadata, ring, c, c->size, at, 0x80, -EOPNOTSUPP);
	}
}

TEST_F(abi, flags_and_reserved)
{
	int i;

	for (i = 0; i < NR_CALLS; i++)
		flags_and_reserved(_metadata, NULL, &calls[i]);
}

TEST_F(abi, flags_and_reserved_uring)
{
	int i;

	if (!self->has_ring)
		SKIP(return, "no io_uring here");
	for (i = WAIT; i < NR_CALLS; i++)
		flags_and_reserved(_metadata, &self->ring, &calls[i]);
}

/* Arguments before a page that cannot be read, in it, and over its edge. */
TEST_F(abi, unreadable)
{
	void *nowhere[] = {
		NULL, (void *)4UL, (void *)-4UL, (void *)(1UL << 63),
		(void *)0xffff888000000000UL,
	};
	long page = dev_page();
	struct place p;
	__u8 *memory;
	int i, k;

	memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_EQ(0, mprotect(memory + page, page, PROT_NONE));
	for (i = 0; i < NR_CALLS; i++) {
		const struct call *c = &calls[i];
		__u8 *exact = memory + page - c->size;

		ASSERT_EQ(0, place_open(&p, c));
		for (k = 0; k < sizeof(nowhere) / sizeof(nowhere[0]); k++) {
			EXPECT_EQ(-EFAULT, dev_ioctl(p.fd, c->request, nowhere[k])) {
				TH_LOG("%s at %p", c->name, nowhere[k]);
			}
		}
		EXPECT_EQ(-EFAULT, dev_ioctl(p.fd, c->request, memory + page));
		EXPECT_EQ(-EFAULT, dev_ioctl(p.fd, c->request, memory + page - 2));
		memcpy(exact + 4, &p.args, c->size - 4);
		EXPECT_EQ(-EFAULT, dev_ioctl(p.fd, c->request, exact + 4)) {
			TH_LOG("%s, 4 bytes over the edge", c->name);
		}
		/* The tail of a longer struct counts too. */
		memcpy(exact, &p.args, c->size);
		*(__u32 *)exact = c->size + 8;
		EXPECT_EQ(-EFAULT, dev_ioctl(p.fd, c->request, exact)) {
			TH_LOG("%s, its tail unreadable", c->name);
		}
		*(__u32 *)exact = c->size;
		EXPECT_EQ(c->right, dev_ioctl(p.fd, c->request, exact)) {
			TH_LOG("%s, up to the last readable byte", c->name);
		}
		place_close(&p);
	}
	munmap(memory, 2 * page);
}

/* Answers cannot be written there; those that write none do not mind. */
TEST_F(abi, unwritable)
{
	long page = dev_page();
	struct place p;
	__u8 *memory;
	int i;

	memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	ASSERT_NE(MAP_FAILED, memory);
	for (i = 0; i < NR_CALLS; i++) {
		const struct call *c = &calls[i];
		__u8 *over = memory + page - c->size + 8;

		ASSERT_EQ(0, place_open(&p, c));
		if (c->answers) {
			memcpy(over, &p.args, c->size);
			ASSERT_EQ(0, mprotect(memory + page, page, PROT_READ));
			EXPECT_EQ(-EFAULT, dev_ioctl(p.fd, c->request, over)) {
				TH_LOG("%s, its end unwritable", c->name);
			}
		}
		memcpy(memory, &p.args, c->size);
		ASSERT_EQ(0, mprotect(memory, 2 * page, PROT_READ));
		EXPECT_EQ(c->answers ? -EFAULT : c->right,
			  dev_ioctl(p.fd, c->request, memory)) {
			TH_LOG("%s in memory that is only readable", c->name);
		}
		EXPECT_EQ(0, memcmp(memory, &p.args, c->size));
		ASSERT_EQ(0, mprotect(memory, 2 * page, PROT_READ | PROT_WRITE));
		place_close(&p);
	}
	munmap(memory, 2 * page);
}

TEST_F(abi, unknown_ioctl)
{
	struct dev_world w = dev_world(1);
	union args args = { .size = 64 };
	unsigned int nr;
	int fd, i;

	fd = dev_open();
	ASSERT_LE(0, fd);
	for (i = 0; i < 2; i++) {
		for (nr = 0; nr < 256; nr++) {
			if (nr <= 0x05 || (nr >= KCR_CMD_WAIT && nr <= KCR_CMD_ARM))
				continue;
			EXPECT_EQ(-ENOTTY, dev_ioctl(fd, _IO(KCR_IOCTL_TYPE, nr), &args)) {
				TH_LOG("ioctl %#x", nr);
			}
			EXPECT_EQ(-ENOTTY, dev_ioctl(fd, _IO(KCR_IOCTL_TYPE, nr), NULL));
		}
		/* The known ones, with a size or a direction in the number. */
		EXPECT_EQ(-ENOTTY, dev_ioctl(fd, _IOWR(KCR_IOCTL_TYPE, 0, args.query), &args));
		EXPECT_EQ(-ENOTTY, dev_ioctl(fd, _IOC(_IOC_NONE, KCR_IOCTL_TYPE, 0, 8), &args));
		EXPECT_EQ(-ENOTTY, dev_ioctl(fd, _IOC(_IOC_READ, KCR_IOCTL_TYPE,
						      KCR_CMD_LEAVE, 0), &args));
		EXPECT_EQ(-ENOTTY, dev_ioctl(fd, _IO(KCR_IOCTL_TYPE ^ 1, 0), &args));
		EXPECT_EQ(-ENOTTY, dev_ioctl(fd, 0, &args));
		if (!i)
			ASSERT_EQ(0, dev_join(fd, &w, 0));
	}
	close(fd);
}

TEST_F(abi, unknown_command)
{
	static const __u32 unknown[] = {
		/* The calls that have no command form. */
		0, 1, 2, 3, 4, 5, 6, 0x0f, 0x1b, 0x1f, 0x20, 0xff,
		/* The number is all 32 bits. */
		0x110, 0x10010, 0x80000010, 0xffffffff,
		KCR_IOCTL_QUERY, KCR_IOCTL_WAIT, KCR_IOCTL_KICK, KCR_IOCTL_LEAVE,
	};
	struct dev_world w = dev_world(1);
	union args args = { .kick = { .size = sizeof(args.kick), .mask = 1 } };
	int fd, i, k;

	if (!self->has_ring)
		SKIP(return, "no io_uring here");
	fd = dev_open();
	ASSERT_LE(0, fd);
	for (k = 0; k < 2; k++) {
		for (i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
			EXPECT_EQ(-EOPNOTSUPP,
				  dev_ring_command(&self->ring, DEV_URING, fd, unknown[i],
						   &args, sizeof(args))) {
				TH_LOG("command %#x", unknown[i]);
			}
		}
		if (!k)
			ASSERT_EQ(0, dev_join(fd, &w, 0));
	}
	EXPECT_EQ(0, dev_ring_command(&self->ring, DEV_URING, fd, KCR_CMD_KICK, &args,
				      sizeof(args)));
	close(fd);
}

/* K3: such an entry has 16 bytes for a command, and the next one behind them. */
TEST_F(abi, plain_ring)
{
	struct io_uring ring;
	struct place p;
	int i;

	if (!self->has_ring)
		SKIP(return, "no io_uring here");
	ASSERT_EQ(0, io_uring_queue_init(1, &ring, 0));
	for (i = WAIT; i < NR_CALLS; i++) {
		ASSERT_EQ(0, place_open(&p, &calls[i]));
		EXPECT_EQ(-EINVAL, dev_ring_command(&ring, DEV_URING, p.fd, command_of(&calls[i]),
						    &p.args, sizeof(p.args))) {
			TH_LOG("%s", calls[i].name);
		}
		EXPECT_EQ(0, place_cause(&p));
		EXPECT_EQ(calls[i].right, dev_ioctl(p.fd, calls[i].request, &p.args));
		place_close(&p);
	}
	io_uring_queue_exit(&ring);
}

/* Nobody polls for our completions: they come when they come. */
TEST_F(abi, iopoll_ring)
{
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	struct place p;
	int i, err;

	if (!self->has_ring)
		SKIP(return, "no io_uring here");
	err = io_uring_queue_init(4, &ring, IORING_SETUP_SQE128 | IORING_SETUP_IOPOLL);
	if (err)
		SKIP(return, "no ring with IOPOLL: %s", strerror(-err));
	for (i = WAIT; i < NR_CALLS; i++) {
		ASSERT_EQ(0, place_open(&p, &calls[i]));
		ASSERT_NE(NULL, dev_entry(&ring, p.fd, command_of(&calls[i]), &p.args,
					  sizeof(p.args), 1));
		ASSERT_EQ(1, io_uring_submit(&ring));
		ASSERT_TRUE(DEV_SOON(5, !io_uring_peek_cqe(&ring, &cqe)));
		EXPECT_EQ(-EOPNOTSUPP, cqe->res) {
			TH_LOG("%s", calls[i].name);
		}
		io_uring_cqe_seen(&ring, cqe);
		EXPECT_EQ(0, place_cause(&p));
		EXPECT_EQ(calls[i].right, dev_ioctl(p.fd, calls[i].request, &p.args));
		place_close(&p);
	}
	io_uring_queue_exit(&ring);
}

/* Rings of other kinds, and a descriptor that is registered with the ring. */
TEST_F(abi, other_rings)
{
	static const unsigned int kinds[] = {
		IORING_SETUP_CQE32, IORING_SETUP_SUBMIT_ALL, IORING_SETUP_COOP_TASKRUN,
		IORING_SETUP_SINGLE_ISSUER, IORING_SETUP_SINGLE_ISSUER | (1U << 13),
	};
	struct dev_world w = dev_world(1);
	struct kcr_kick kick = { .size = sizeof(kick), .mask = 1 };
	struct io_uring_sqe *sqe;
	struct io_uring_cqe cqe;
	struct kcr_status *status;
	struct io_uring ring;
	__u64 events;
	int i, fd;

	if (!self->has_ring)
		SKIP(return, "no io_uring here");
	fd = dev_member(&w, 0);
	ASSERT_LE(0, fd);
	status = dev_status(fd);
	ASSERT_NE(MAP_FAILED, status);
	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		events = dev_events(status);
		ASSERT_EQ(0, io_uring_queue_init(4, &ring, kinds[i] | IORING_SETUP_SQE128));
		/* One at once, and one that parks and is woken by the next. */
		EXPECT_EQ(0, dev_ring_command(&ring, DEV_URING, fd, KCR_CMD_KICK, &kick,
					      sizeof(kick)));
		ASSERT_NE(NULL, dev_entry_wait(&ring, fd, events + 1, 20 * DEV_SECOND, 0, 7));
		ASSERT_EQ(1, io_uring_submit(&ring));
		EXPECT_EQ(0, dev_kick(fd, 0, 1));
		ASSERT_EQ(0, dev_reap(&ring, 5, &cqe)) {
			TH_LOG("ring flags %#x", kinds[i]);
		}
		EXPECT_EQ(0, cqe.res);
		EXPECT_EQ(7, cqe.user_data);
		EXPECT_EQ(events + 2, dev_events(status));
		io_uring_queue_exit(&ring);
	}

	ASSERT_EQ(0, io_uring_register_files(&self->ring, &fd, 1));
	sqe = dev_entry(&self->ring, 0, KCR_CMD_KICK, &kick, sizeof(kick), 2);
	sqe->flags |= IOSQE_FIXED_FILE;
	events = dev_events(status);
	ASSERT_EQ(1, io_uring_submit(&self->ring));
	ASSERT_EQ(0, dev_reap(&self->ring, 5, &cqe));
	EXPECT_EQ(0, cqe.res);
	EXPECT_EQ(events + 1, dev_events(status));
	/* The ring's copy of the file is none of the process's. */
	close(fd);
	EXPECT_EQ(KCR_MEMBER_DEAD, dev_state(status, 0));
	sqe = dev_entry(&self->ring, 0, KCR_CMD_KICK, &kick, sizeof(kick), 3);
	sqe->flags |= IOSQE_FIXED_FILE;
	ASSERT_EQ(1, io_uring_submit(&self->ring));
	ASSERT_EQ(0, dev_reap(&self->ring, 5, &cqe));
	EXPECT_EQ(-ESHUTDOWN, cqe.res);
	EXPECT_EQ(0, munmap(status, sizeof(*status)));
	EXPECT_EQ(0, io_uring_unregister_files(&self->ring));
}

/* What needs a membership, before there is one and after it ended. */
TEST_F(abi, life)
{
	struct place p;
	union args args;
	int i, fd;

	for (i = 0; i < NR_CALLS; i++) {
		const struct call *c = &calls[i];

		if (!c->member)
			continue;
		ASSERT_EQ(0, place_open(&p, c));
		fd = dev_open();
		ASSERT_LE(0, fd);
		args = p.args;
		EXPECT_EQ(-ENOTCONN, dev_ioctl(fd, c->request, &args)) {
			TH_LOG("%s", c->name);
		}
		EXPECT_EQ(0, memcmp(&args, &p.args, sizeof(args)));
		if (i >= WAIT && self->has_ring)
			EXPECT_EQ(-ENOTCONN,
				  dev_ring_command(&self->ring, DEV_URING, fd, command_of(c),
						   &args, sizeof(args))) {
				TH_LOG("%s by io_uring", c->name);
			}
		close(fd);

		ASSERT_EQ(0, dev_leave(p.fd));
		EXPECT_EQ(-ESHUTDOWN, dev_ioctl(p.fd, c->request, &args)) {
			TH_LOG("%s after LEAVE", c->name);
		}
		EXPECT_EQ(0, memcmp(&args, &p.args, sizeof(args)));
		if (i >= WAIT && self->has_ring)
			EXPECT_EQ(-ESHUTDOWN,
				  dev_ring_command(&self->ring, DEV_URING, p.fd,
						   command_of(c), &args, sizeof(args))) {
				TH_LOG("%s by io_uring after LEAVE", c->name);
			}
		place_close(&p);
	}

	fd = dev_open();
	ASSERT_LE(0, fd);
	EXPECT_EQ(-ENOTCONN, dev_map_error(fd, PROT_READ, MAP_SHARED, 0, dev_page()));
	p.world = dev_world(1);
	ASSERT_EQ(0, dev_join(fd, &p.world, 0));
	ASSERT_EQ(0, dev_leave(fd));
	EXPECT_EQ(-ESHUTDOWN, dev_map_error(fd, PROT_READ, MAP_SHARED, 0, dev_page()));
	EXPECT_EQ(-EISCONN, dev_join(fd, &p.world, 0));
	p.world = dev_world(1);
	EXPECT_EQ(-EISCONN, dev_join(fd, &p.world, 0));
	/* These need none. */
	EXPECT_EQ(0, dev_query(fd, &args.query));
	close(fd);
}

/* Values that each command refuses, by both its forms. */
TEST_F(abi, values)
{
	struct dev_world w = dev_world(3);
	union args a;
	enum dev_form form;
	__u32 command;
	int fd, i;

	fd = dev_member(&w, 1);
	ASSERT_LE(0, fd);
#define TRY(want, op, field, ...) do {					\
	command = op;							\
	a = (union args){ .field = { __VA_ARGS__ } };			\
	a.size = calls[WAIT + command - KCR_CMD_WAIT].size;		\
	EXPECT_EQ(want, dev_command(form, fd, command, &a, sizeof(a))) {	\
		TH_LOG("form %d: " #__VA_ARGS__, form);			\
	}								\
} while (0)
	for (i = 0; i < 2; i++) {
		form = i ? DEV_URING : DEV_IOCTL;
		if (form == DEV_URING && !self->has_ring)
			break;
		TRY(-EINVAL, KCR_CMD_WAIT, wait, .seen = ~0ULL, .timeout_ns = 0);
		TRY(-EINVAL, KCR_CMD_WAIT, wait, .seen = ~0ULL,
		    .timeout_ns = KCR_MAX_WAIT_NS + 1);
		TRY(-EINVAL, KCR_CMD_WAIT, wait, .seen = ~0ULL, .timeout_ns = 1ULL << 63);
		TRY(-EINVAL, KCR_CMD_WAIT, wait, .seen = ~0ULL, .timeout_ns = ~0ULL);
		TRY(0, KCR_CMD_WAIT, wait, .seen = ~0ULL, .timeout_ns = 1);
		TRY(0, KCR_CMD_WAIT, wait, .seen = ~0ULL, .timeout_ns = KCR_MAX_WAIT_NS);

		TRY(0, KCR_CMD_KICK, kick, .mask = 0);
		TRY(0, KCR_CMD_KICK, kick, .mask = 7);
		TRY(0, KCR_CMD_KICK, kick, .base = 2, .mask = 1);
		TRY(-EINVAL, KCR_CMD_KICK, kick, .mask = 8);
		TRY(-EINVAL, KCR_CMD_KICK, kick, .mask = 1ULL << 63);
		TRY(-EINVAL, KCR_CMD_KICK, kick, .base = 2, .mask = 2);
		TRY(-EINVAL, KCR_CMD_KICK, kick, .base = 3, .mask = 1);
		TRY(-EINVAL, KCR_CMD_KICK, kick, .base = KCR_MAX_RANKS, .mask = 1);
		/* Sums that come out small. */
		TRY(-EINVAL, KCR_CMD_KICK, kick, .base = 0xffffffff, .mask = 2);
		TRY(-EINVAL, KCR_CMD_KICK, kick, .base = 0xffffffc1, .mask = 1ULL << 63);
		TRY(-EINVAL, KCR_CMD_KICK, kick, .base = 0x80000000, .mask = ~0ULL);

		TRY(-ENOENT, KCR_CMD_CANCEL, cancel, .cookie = 0);
		TRY(-ENOENT, KCR_CMD_CANCEL, cancel, .cookie = ~0ULL);

		TRY(-EINVAL, KCR_CMD_FAIL, fail, .error = 0);
		TRY(-EINVAL, KCR_CMD_FAIL, fail, .error = 4096);
		TRY(-EINVAL, KCR_CMD_FAIL, fail, .error = -5);
		TRY(-EINVAL, KCR_CMD_FAIL, fail, .error = 0x80000000);
	}
	form = DEV_IOCTL;
	TRY(0, KCR_CMD_FAIL, fail, .error = 4095);
#undef TRY
	close(fd);
}

/* A kick that is refused moves nobody's counter, not even of those it might. */
TEST_F(abi, refused_kick)
{
	struct dev_world w = dev_world(2);
	struct kcr_status *status;
	__u64 events;
	int fd[2];

	fd[0] = dev_member(&w, 0);
	fd[1] = dev_member(&w, 1);
	ASSERT_LE(0, fd[0]);
	ASSERT_LE(0, fd[1]);
	status = dev_status(fd[0]);
	ASSERT_NE(MAP_FAILED, status);
	events = dev_events(status);
	EXPECT_EQ(-EINVAL, dev_kick(fd[1], 0, 5));
	EXPECT_EQ(events, dev_events(status));
	EXPECT_EQ(0, dev_kick(fd[1], 0, 1));
	EXPECT_EQ(events + 1, dev_events(status));
	munmap(status, sizeof(*status));
	close(fd[0]);
	close(fd[1]);
}

TEST_HARNESS_MAIN
