// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit: requests of strangers, field by field. A part of listen.c, on kernels with
 * KUnit.
 */
#include <linux/random.h>

#include "kunit.h"

static struct wire_request good_request(const struct fake *f)
{
	struct wire_request r = {
		.magic = cpu_to_le32(WIRE_MAGIC),
		.version = cpu_to_le16(WIRE_VERSION),
		.version_min = cpu_to_le16(WIRE_VERSION_MIN),
		.from = cpu_to_le16(2),
		.to = cpu_to_le16(5),
		.ranks = cpu_to_le16(FAKE_RANKS),
		.wire = 1,
		.depth = 3,
	};

	memcpy(r.world, f->world.id, sizeof(r.world));
	return r;
}

static void listen_format(struct kunit *test)
{
	struct fake *f = fake_new(test);
	const struct wire_request good = good_request(f);
	struct wire_request r = good;
	u32 detail = 0, length, bit, i;

	/* rdma_cm may give more than was sent, filled up with zeros. */
	for (length = 0; length < 256; length++)
		KUNIT_EXPECT_EQ(test, check_request(&good, length, &detail),
				length < sizeof(good) ? KCR_REASON_FORMAT : 0);
	for (bit = 0; bit < 32; bit++) {
		r.magic = good.magic ^ cpu_to_le32(BIT(bit));
		KUNIT_EXPECT_EQ(test, check_request(&r, sizeof(r), &detail),
				KCR_REASON_FORMAT);
	}
	r = good;
	for (i = 0; i < sizeof(r.reserved); i++) {
		r.reserved[i] = 0x80;
		KUNIT_EXPECT_EQ(test, check_request(&r, sizeof(r), &detail),
				KCR_REASON_FORMAT);
		r.reserved[i] = 0;
	}
	KUNIT_EXPECT_EQ(test, detail, 0);
	memset(&r, 0, sizeof(r));
	KUNIT_EXPECT_EQ(test, check_request(&r, sizeof(r), &detail),
			KCR_REASON_FORMAT);
	memset(&r, 0xff, sizeof(r));
	KUNIT_EXPECT_EQ(test, check_request(&r, sizeof(r), &detail),
			KCR_REASON_FORMAT);
}

/* A range of versions, of which ours must be one. */
static void listen_versions(struct kunit *test)
{
	static const struct {
		u16 version, version_min;
		bool is_ours;
	} of[] = {
		{ WIRE_VERSION, WIRE_VERSION_MIN, true },
		{ WIRE_VERSION + 1, WIRE_VERSION, true }, { U16_MAX, 0, true },
		{ WIRE_VERSION + 1, WIRE_VERSION + 1, false },
		{ WIRE_VERSION_MIN - 1, WIRE_VERSION_MIN - 1, false },
		{ 0, 0, false }, { U16_MAX, U16_MAX, false },
		{ 0, U16_MAX, false },
	};
	struct fake *f = fake_new(test);
	struct wire_request r = good_request(f);
	u32 detail;
	int i;

	for (i = 0; i < ARRAY_SIZE(of); i++) {
		r.version = cpu_to_le16(of[i].version);
		r.version_min = cpu_to_le16(of[i].version_min);
		detail = 0;
		KUNIT_EXPECT_EQ(test, check_request(&r, sizeof(r), &detail),
				of[i].is_ours ? 0 : KCR_REASON_VERSION);
		KUNIT_EXPECT_EQ(test, detail,
				of[i].is_ours ? 0 : WIRE_VERSION);
	}
}

/* A mesh that is on the list, for as long as the test, of a world like no other. */
struct place {
	struct fake *fake;
	struct rdma_cm_id *id;
};

static void set_address(void *at, u32 address)
{
	struct sockaddr_in *v4 = at;

	v4->sin_family = AF_INET;
	v4->sin_addr.s_addr = htonl(address);
}

static struct place place_new(struct kunit *test)
{
	struct place p = { .fake = fake_new(test) };
	struct fake *f = p.fake;

	p.id = kunit_kzalloc(test, sizeof(*p.id), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, p.id);
	get_random_bytes(f->world.id, sizeof(f->world.id));
	f->mesh.net = &init_net;
	f->c.wire = 1;
	f->c.state = CONN_EXPECTED;
	set_address(&f->c.local, 0x0a4d0001);
	set_address(&f->c.remote, 0x0a4d0002);
	p.id->route.addr.dev_addr.net = &init_net;
	set_address(&p.id->route.addr.src_addr, 0x0a4d0001);
	set_address(&p.id->route.addr.dst_addr, 0x0a4d0002);
	KUNIT_ASSERT_EQ(test, xa_err(xa_store(&f->mesh.conns, 1UL << 16 | 2,
					      &f->c, GFP_KERNEL)), 0);
	return p;
}

static u32 ask(struct place *p, const struct wire_request *r, u32 *detail)
{
	struct conn *c = NULL;
	u32 reason;

	*detail = 0;
	mutex_lock(&meshes_lock);
	list_add_tail(&p->fake->mesh.node, &meshes);
	reason = find_conn(p->id, r, &c, detail);
	list_del(&p->fake->mesh.node);
	mutex_unlock(&meshes_lock);
	/* It is found exactly if there is no reason against it. */
	return !reason != (c == &p->fake->c) ? U32_MAX : reason;
}

#define EXPECT_REASON(test, p, good, field, value, want) do {		\
	struct wire_request changed = (good);				\
	u32 detail;							\
									\
	changed.field = (value);					\
	KUNIT_EXPECT_EQ_MSG(test, ask(p, &changed, &detail), (u32)(want),	\
			    "%s", #field " = " #value);			\
} while (0)

static void listen_fields(struct kunit *test)
{
	struct place p = place_new(test);
	const struct wire_request r = good_request(p.fake);

#define EXPECT(field, value, want) \
	EXPECT_REASON(test, &p, r, field, value, want)
	EXPECT(wire, 1, 0);
	EXPECT(wire, 0, KCR_REASON_RANK);
	EXPECT(wire, KCR_MAX_WIRES, KCR_REASON_RANK);
	EXPECT(wire, U8_MAX, KCR_REASON_RANK);
	EXPECT(world[15], r.world[15] ^ 1, KCR_REASON_WORLD);
	EXPECT(to, cpu_to_le16(6), KCR_REASON_WORLD);
	EXPECT(to, cpu_to_le16(U16_MAX), KCR_REASON_WORLD);
	EXPECT(to, cpu_to_le16(0), KCR_REASON_WORLD);
	EXPECT(from, cpu_to_le16(1), KCR_REASON_RANK);
	EXPECT(from, cpu_to_le16(5), KCR_REASON_RANK);
	EXPECT(from, cpu_to_le16(6), KCR_REASON_RANK);
	EXPECT(from, cpu_to_le16(U16_MAX), KCR_REASON_RANK);
	EXPECT(ranks, cpu_to_le16(FAKE_RANKS - 1), KCR_REASON_RANK);
	EXPECT(ranks, cpu_to_le16(0), KCR_REASON_RANK);
	EXPECT(depth, 2, KCR_REASON_FORMAT);
	EXPECT(depth, 0, KCR_REASON_FORMAT);
	EXPECT(depth, U8_MAX, KCR_REASON_FORMAT);
	/* This side connects itself. */
	p.fake->c.is_active = true;
	EXPECT(wire, 1, KCR_REASON_RANK);
#undef EXPECT
	xa_destroy(&p.fake->mesh.conns);
}

/* Where it came from and where it came to are those that were agreed on. */
static void listen_crossed(struct kunit *test)
{
	struct place p = place_new(test);
	const struct wire_request r = good_request(p.fake);
	struct rdma_addr *addr = &p.id->route.addr;
	u32 detail;

	set_address(&addr->src_addr, 0x0a4e0001);
	KUNIT_EXPECT_EQ(test, ask(&p, &r, &detail), KCR_REASON_CROSSED);
	KUNIT_EXPECT_EQ(test, detail, 1);
	set_address(&addr->src_addr, 0x0a4d0001);
	set_address(&addr->dst_addr, 0x0a4d0003);
	KUNIT_EXPECT_EQ(test, ask(&p, &r, &detail), KCR_REASON_CROSSED);
	set_address(&addr->dst_addr, 0x0a4d0002);
	addr->dst_addr.ss_family = AF_INET6;
	KUNIT_EXPECT_EQ(test, ask(&p, &r, &detail), KCR_REASON_CROSSED);
	set_address(&addr->dst_addr, 0x0a4d0002);
	KUNIT_EXPECT_EQ(test, ask(&p, &r, &detail), 0);
	addr->dev_addr.net = NULL;
	KUNIT_EXPECT_EQ(test, ask(&p, &r, &detail), KCR_REASON_WORLD);
	xa_destroy(&p.fake->mesh.conns);
}

static struct kunit_case listen_cases[] = {
	KUNIT_CASE(listen_format),
	KUNIT_CASE(listen_versions),
	KUNIT_CASE(listen_fields),
	KUNIT_CASE(listen_crossed),
	{ }
};

static struct kunit_suite listen_suite = {
	.name = "kcollring-listen",
	.test_cases = listen_cases,
};

kunit_test_suite(listen_suite);
