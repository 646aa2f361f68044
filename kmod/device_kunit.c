// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit: how calls are decoded. A part of device.c, on kernels with KUnit.
 */
#include <kunit/test.h>

/* An entry of 128 bytes, with a command of so many bytes in it. */
struct entry {
	u8 sqe[128];
	struct io_uring_cmd cmd;
};

static u8 *entry_payload(struct entry *e)
{
	e->cmd.sqe = (const struct io_uring_sqe *)e->sqe;
	return (u8 *)kcr_uring_payload(&e->cmd);
}

static int decode(struct entry *e, const struct op *op, u32 size,
		  union kcr_args *args)
{
	u8 *payload = entry_payload(e);

	*(u32 *)payload = size;
	memset(args, 0, sizeof(*args));
	return copy_payload(args, op, &e->cmd);
}

static void device_finds_ops(struct kunit *test)
{
	u32 nr, found = 0;

	for (nr = 0; nr < 256; nr++)
		found += !!find_op(nr);
	KUNIT_EXPECT_EQ(test, found, 17);
	KUNIT_EXPECT_PTR_EQ(test, find_op(KCR_CMD_WAIT), &ops[KCR_CMD_WAIT]);
	KUNIT_EXPECT_NULL(test, find_op(_IOC_NR(KCR_IOCTL_FRAMES) + 1));
	KUNIT_EXPECT_NULL(test, find_op(KCR_CMD_WAIT - 1));
	KUNIT_EXPECT_NULL(test, find_op(KCR_CMD_ARM + 1));
	KUNIT_EXPECT_NULL(test, find_op(U32_MAX));
	KUNIT_EXPECT_NULL(test, find_op(1U << 31));
}

/* What each entry of the table must be like, for the code to be right. */
static void device_table(struct kunit *test)
{
	const struct op *op;

	for (op = ops; op < ops + ARRAY_SIZE(ops); op++) {
		if (!op->fn)
			continue;
		KUNIT_EXPECT_LE(test, op->size_min, op->size);
		KUNIT_EXPECT_LE(test, op->size, sizeof(union kcr_args));
		/* The size and the flags are read in any case. */
		KUNIT_EXPECT_LE(test, 8, op->size_min);
		if (!(op->flags & OP_URING))
			continue;
		KUNIT_EXPECT_LE(test, op->size, URING_PAYLOAD_BYTES);
		KUNIT_EXPECT_TRUE(test, op->flags & OP_MEMBER);
		KUNIT_EXPECT_FALSE(test, op->flags & OP_ANSWERS);
	}
}

static void device_payload_sizes(struct kunit *test)
{
	struct entry *e = kunit_kzalloc(test, sizeof(*e), GFP_KERNEL);
	union kcr_args args;
	const struct op *op;
	u8 *payload;
	u32 size, i;

	KUNIT_ASSERT_NOT_NULL(test, e);
	payload = entry_payload(e);
	for (op = ops; op < ops + ARRAY_SIZE(ops); op++) {
		if (!op->fn || !(op->flags & OP_URING))
			continue;
		for (size = 0; size <= URING_PAYLOAD_BYTES + 48; size++) {
			int want = size < op->size_min ? -EINVAL :
				   size > URING_PAYLOAD_BYTES ? -E2BIG : 0;

			memset(payload, 0, URING_PAYLOAD_BYTES);
			KUNIT_EXPECT_EQ(test, decode(e, op, size, &args), want);
		}
		KUNIT_EXPECT_EQ(test, decode(e, op, U32_MAX, &args), -E2BIG);
		KUNIT_EXPECT_EQ(test, decode(e, op, 1U << 31, &args), -E2BIG);
		/* Trailing bytes that this module does not know: zero only. */
		for (i = op->size; i < URING_PAYLOAD_BYTES; i++) {
			payload[i] = 1;
			KUNIT_EXPECT_EQ(test, decode(e, op, i + 1, &args),
					-E2BIG);
			KUNIT_EXPECT_EQ(test, decode(e, op, i, &args), 0);
			payload[i] = 0;
		}
	}
}

static void device_payload_bytes(struct kunit *test)
{
	struct entry *e = kunit_kzalloc(test, sizeof(*e), GFP_KERNEL);
	const struct op *op = &ops[KCR_CMD_CONNECT];
	union kcr_args args;
	u8 *payload;
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, e);
	payload = entry_payload(e);
	for (i = 0; i < op->size; i++)
		payload[i] = i;
	KUNIT_EXPECT_EQ(test, decode(e, op, op->size, &args), 0);
	for (i = sizeof(u32); i < op->size; i++)
		KUNIT_EXPECT_EQ(test, ((u8 *)&args)[i], i);
	KUNIT_EXPECT_EQ(test, args.size, op->size);
}

static int called;

static int count_call(struct kcr_call *call)
{
	called++;
	return 7;
}

static void device_flags(struct kunit *test)
{
	union kcr_args args = { };
	struct kcr_call call = { .args = &args };
	const struct op *op;
	struct op copy;
	u32 bit;

	for (op = ops; op < ops + ARRAY_SIZE(ops); op++) {
		if (!op->fn)
			continue;
		copy = *op;
		copy.fn = count_call;
		copy.flags &= ~OP_MEMBER;
		for (bit = 0; bit < 32; bit++) {
			bool may = op->allowed & BIT(bit);

			called = 0;
			args.flags = BIT(bit);
			KUNIT_EXPECT_EQ(test, run(&copy, &call),
					may ? 7 : -EOPNOTSUPP);
			KUNIT_EXPECT_EQ(test, called, may);
		}
		args.flags = 0;
		KUNIT_EXPECT_EQ(test, run(&copy, &call), 7);
	}
	KUNIT_EXPECT_EQ(test, ops[_IOC_NR(KCR_IOCTL_WINDOW)].allowed,
			KCR_WINDOW_PRIVATE | KCR_WINDOW_REMOTE);
	KUNIT_EXPECT_EQ(test, ops[KCR_CMD_RELEASE].allowed, KCR_RELEASE_MORE);
	KUNIT_EXPECT_EQ(test, ops[KCR_CMD_ARM].allowed, KCR_ARM_SOURCE);
}

/* Not joined, another process's, ended; and then flags come first. */
static void device_membership(struct kunit *test)
{
	const struct op op = { .fn = count_call, .flags = OP_MEMBER };
	struct kcr_member *m = kunit_kzalloc(test, sizeof(*m), GFP_KERNEL);
	union kcr_args args = { };
	struct kcr_file file = { };
	struct kcr_call call = { .args = &args, .file = &file };

	KUNIT_ASSERT_NOT_NULL(test, m);
	called = 0;
	KUNIT_EXPECT_EQ(test, run(&op, &call), -ENOTCONN);
	file.member = m;
	m->state = KCR_MEMBER_JOINED;
	m->mm = (struct mm_struct *)m;
	KUNIT_EXPECT_EQ(test, run(&op, &call), -EPERM);
	m->mm = current->mm;
	m->state = KCR_MEMBER_LEFT;
	KUNIT_EXPECT_EQ(test, run(&op, &call), -ESHUTDOWN);
	m->state = KCR_MEMBER_DEAD;
	KUNIT_EXPECT_EQ(test, run(&op, &call), -ESHUTDOWN);
	args.flags = 1;
	KUNIT_EXPECT_EQ(test, run(&op, &call), -EOPNOTSUPP);
	KUNIT_EXPECT_EQ(test, called, 0);
	args.flags = 0;
	m->state = KCR_MEMBER_JOINED;
	KUNIT_EXPECT_EQ(test, run(&op, &call), 7);
	KUNIT_EXPECT_PTR_EQ(test, call.member, m);
}

static struct kunit_case device_cases[] = {
	KUNIT_CASE(device_finds_ops),
	KUNIT_CASE(device_table),
	KUNIT_CASE(device_payload_sizes),
	KUNIT_CASE(device_payload_bytes),
	KUNIT_CASE(device_flags),
	KUNIT_CASE(device_membership),
	{ }
};

static struct kunit_suite device_suite = {
	.name = "kcollring-device",
	.test_cases = device_cases,
};

kunit_test_suite(device_suite);
