// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit: what CONNECT, FRAMES, SEND and RELEASE may ask for: the limits of every
 * field; and how a mesh goes. A part of mesh.c, on kernels with KUnit.
 */
#include <kunit/test.h>

#define RANKS	70
#define SELF	5
/* What reaches the provider. */
#define PASSED	77

static int take_connect(struct kcr_mesh *mesh, const struct kcr_connect *args)
{
	return PASSED;
}

static int take_frames(struct kcr_mesh *mesh, const struct kcr_frames *args)
{
	return PASSED;
}

static int take_send(struct kcr_mesh *mesh, const struct kcr_send *args)
{
	return PASSED;
}

static int take_release(struct kcr_mesh *mesh, const struct kcr_release *args)
{
	return PASSED;
}

/* In which order they are called, as digits; the state that an end was given. */
static u32 order, end_state;

static void take_end(struct kcr_mesh *mesh, u32 state)
{
	order = order * 10 + 1;
	end_state = state;
}

static void take_destroy(struct kcr_mesh *mesh)
{
	order = order * 10 + 2;
}

static const struct kcr_mesh_ops fake_ops = {
	.end = take_end,
	.destroy = take_destroy,
	.connect = take_connect,
	.frames = take_frames,
	.send = take_send,
	.release = take_release,
};

struct fake_call {
	struct kcr_world world;
	struct kcr_member member;
	struct kcr_mesh mesh;
	union kcr_args args;
	struct kcr_call call;
};

static struct fake_call *fake_call(struct kunit *test)
{
	struct fake_call *f = kunit_kzalloc(test, sizeof(*f), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, f);
	f->world.ranks = RANKS;
	f->member.world = &f->world;
	f->member.rank = SELF;
	f->member.mesh = &f->mesh;
	mutex_init(&f->member.mesh_lock);
	f->mesh.ops = &fake_ops;
	f->call.member = &f->member;
	f->call.args = &f->args;
	return f;
}

/* One field of the arguments, all of them u32, with a value of its own. */
struct field {
	size_t at;
	u32 value;
	int want;
};

static void expect_fields(struct kunit *test, struct fake_call *f,
			  int (*fn)(struct kcr_call *call),
			  const struct field *fields, size_t nr)
{
	const struct field *field;
	u32 *at, saved;

	for (field = fields; field < fields + nr; field++) {
		at = (u32 *)((u8 *)&f->args + field->at);
		saved = *at;
		*at = field->value;
		KUNIT_EXPECT_EQ_MSG(test, fn(&f->call), field->want,
				    "%u at %zu", field->value, field->at);
		*at = saved;
	}
}

static void mesh_connect_fields(struct kunit *test)
{
	static const struct field fields[] = {
		{ offsetof(struct kcr_connect, peer), 0, PASSED },
		{ offsetof(struct kcr_connect, peer), RANKS - 1, PASSED },
		{ offsetof(struct kcr_connect, peer), SELF, -EINVAL },
		{ offsetof(struct kcr_connect, peer), RANKS, -EINVAL },
		{ offsetof(struct kcr_connect, peer), U32_MAX, -EINVAL },
		{ offsetof(struct kcr_connect, wire), 3, PASSED },
		{ offsetof(struct kcr_connect, wire), 4, -EINVAL },
		{ offsetof(struct kcr_connect, wire), U32_MAX, -EINVAL },
		{ offsetof(struct kcr_connect, timeout_ms), 600000, PASSED },
		{ offsetof(struct kcr_connect, timeout_ms), 600001, -EINVAL },
		{ offsetof(struct kcr_connect, timeout_ms), U32_MAX, -EINVAL },
		{ offsetof(struct kcr_connect, depth), 0, -EINVAL },
		{ offsetof(struct kcr_connect, depth), 1, PASSED },
		{ offsetof(struct kcr_connect, depth), 15, PASSED },
		{ offsetof(struct kcr_connect, depth), 16, -EINVAL },
		{ offsetof(struct kcr_connect, depth), U32_MAX, -EINVAL },
	};
	/* Only who is connected to may wait without end. */
	static const struct field patient[] = {
		{ offsetof(struct kcr_connect, peer), SELF - 1, PASSED },
		{ offsetof(struct kcr_connect, peer), SELF + 1, -EINVAL },
	};
	struct fake_call *f = fake_call(test);

	f->args.connect.depth = 2;
	f->args.connect.timeout_ms = 100;
	expect_fields(test, f, kcr_mesh_connect, fields, ARRAY_SIZE(fields));
	f->args.connect.timeout_ms = 0;
	expect_fields(test, f, kcr_mesh_connect, patient, ARRAY_SIZE(patient));
}

static void mesh_frames_fields(struct kunit *test)
{
	static const struct field fields[] = {
		{ offsetof(struct kcr_frames, peer), RANKS - 1, PASSED },
		{ offsetof(struct kcr_frames, peer), RANKS, -EINVAL },
		{ offsetof(struct kcr_frames, wire), 3, PASSED },
		{ offsetof(struct kcr_frames, wire), 4, -EINVAL },
		{ offsetof(struct kcr_frames, stream), 2, PASSED },
		{ offsetof(struct kcr_frames, stream), 3, -EINVAL },
		{ offsetof(struct kcr_frames, size_class), 7, PASSED },
		{ offsetof(struct kcr_frames, size_class), 8, -EINVAL },
		{ offsetof(struct kcr_frames, size_class), U32_MAX, -EINVAL },
	};
	/* Without a mesh that comes after what is wrong in any case. */
	static const struct field without[] = {
		{ offsetof(struct kcr_frames, peer), 0, -ENOTCONN },
		{ offsetof(struct kcr_frames, peer), RANKS, -EINVAL },
	};
	struct fake_call *f = fake_call(test);

	expect_fields(test, f, kcr_mesh_frames, fields, ARRAY_SIZE(fields));
	f->member.mesh = NULL;
	expect_fields(test, f, kcr_mesh_frames, without, ARRAY_SIZE(without));
}

static void mesh_send_fields(struct kunit *test)
{
	static const struct field fields[] = {
		{ offsetof(struct kcr_send, reserved), 1, -EOPNOTSUPP },
		{ offsetof(struct kcr_send, window), 15, PASSED },
		{ offsetof(struct kcr_send, window), 16, -EINVAL },
		{ offsetof(struct kcr_send, bytes), 0, -EINVAL },
		{ offsetof(struct kcr_send, bytes), 524288, PASSED },
		{ offsetof(struct kcr_send, bytes), 524289, -EINVAL },
		{ offsetof(struct kcr_send, bytes), U32_MAX, -EINVAL },
		{ offsetof(struct kcr_send, wire), 4, -EINVAL },
		{ offsetof(struct kcr_send, stream), 2, PASSED },
		{ offsetof(struct kcr_send, stream), 3, -EINVAL },
		{ offsetof(struct kcr_send, base), RANKS - 1, PASSED },
		{ offsetof(struct kcr_send, base), RANKS, -EINVAL },
		{ offsetof(struct kcr_send, base), U32_MAX, -EINVAL },
	};
	struct fake_call *f = fake_call(test);

	f->args.send.bytes = 1;
	f->args.send.mask = 1;
	expect_fields(test, f, kcr_mesh_send, fields, ARRAY_SIZE(fields));
	f->member.mesh = NULL;
	KUNIT_EXPECT_EQ(test, kcr_mesh_send(&f->call), -ENOTCONN);
}

/* The highest peer of the set counts, wherever the set begins. */
static void mesh_send_masks(struct kunit *test)
{
	static const struct {
		u32 base;
		u64 mask;
		int want;
	} sets[] = {
		{ 0, 0, -EINVAL },
		{ 0, U64_MAX, PASSED },
		{ RANKS - 64, 1ULL << 63, PASSED },
		{ RANKS - 63, 1ULL << 63, -EINVAL },
		{ RANKS - 63, 1ULL << 62, PASSED },
		{ U32_MAX, U64_MAX, -EINVAL },
	};
	struct fake_call *f = fake_call(test);
	int i;

	f->args.send.bytes = 1;
	for (i = 0; i < ARRAY_SIZE(sets); i++) {
		f->args.send.base = sets[i].base;
		f->args.send.mask = sets[i].mask;
		KUNIT_EXPECT_EQ_MSG(test, kcr_mesh_send(&f->call),
				    sets[i].want, "set %d", i);
	}
}

static void mesh_release_fields(struct kunit *test)
{
	static const struct field fields[] = {
		{ offsetof(struct kcr_release, peer), RANKS - 1, PASSED },
		{ offsetof(struct kcr_release, peer), RANKS, -EINVAL },
		{ offsetof(struct kcr_release, wire), 4, -EINVAL },
		{ offsetof(struct kcr_release, stream), 3, -EINVAL },
		{ offsetof(struct kcr_release, size_class), 8, -EINVAL },
	};
	struct fake_call *f = fake_call(test);

	expect_fields(test, f, kcr_mesh_release, fields, ARRAY_SIZE(fields));
}

/* Also if whoever ended the member has not come to its mesh yet. */
static void mesh_ends_before_it_goes(struct kunit *test)
{
	struct fake_call *f = fake_call(test);

	order = 0;
	f->member.state = KCR_MEMBER_DEAD;
	kcr_mesh_destroy(&f->member);
	KUNIT_EXPECT_EQ(test, order, 12);
	KUNIT_EXPECT_EQ(test, end_state, KCR_MEMBER_DEAD);
	KUNIT_EXPECT_NULL(test, f->member.mesh);
	/* Whoever comes late finds none. */
	kcr_mesh_end(&f->member, KCR_MEMBER_DEAD);
	kcr_mesh_destroy(&f->member);
	KUNIT_EXPECT_EQ(test, order, 12);
}

static struct kunit_case mesh_cases[] = {
	KUNIT_CASE(mesh_connect_fields),
	KUNIT_CASE(mesh_frames_fields),
	KUNIT_CASE(mesh_send_fields),
	KUNIT_CASE(mesh_send_masks),
	KUNIT_CASE(mesh_release_fields),
	KUNIT_CASE(mesh_ends_before_it_goes),
	{ }
};

static struct kunit_suite mesh_suite = {
	.name = "kcollring-mesh",
	.test_cases = mesh_cases,
};

kunit_test_suite(mesh_suite);
