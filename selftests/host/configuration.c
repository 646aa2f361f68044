// SPDX-License-Identifier: GPL-2.0
/*
 * Configuration from the environment, and the world of one rank, which needs
 * none of it
 */
#include <errno.h>

#include "kselftest_harness.h"
#include "data.h"

static const char * const variables[] = {
	"KCR_RANK", "KCR_SIZE", "KCR_LOCAL_RANK", "KCR_LOCAL_SIZE",
	"KCR_RENDEZVOUS", "KCR_JOB", "KCR_LINK", "KCR_ALGO", "KCR_DIRECT_MAX",
	"KCR_LANE_DEPTH", "KCR_LANE_BYTES", "KCR_BOARD_DEPTH",
	"KCR_BOARD_BYTES", "KCR_SPIN", "KCR_YIELD", "KCR_WARN", "KCR_TIMEOUT",
	"KCR_RENDEZVOUS_TIMEOUT", "KCR_DEBUG", "MASTER_ADDR", "MASTER_PORT",
	"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
};

static void clear_environment(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
}

TEST(defaults)
{
	struct kcr_config c;

	clear_environment();
	memset(&c, 0x5a, sizeof(c));
	kcr_config_init(&c);
	EXPECT_EQ(sizeof(c), c.struct_size);
	EXPECT_EQ(0, c.rank);
	EXPECT_EQ(1, c.size);
	EXPECT_EQ(0, c.local_rank);
	EXPECT_EQ(1, c.local_size);
	EXPECT_EQ(NULL, c.rendezvous);
	EXPECT_EQ(NULL, c.job);
	EXPECT_EQ(KCR_LINK_AUTO, c.link);
	EXPECT_EQ(KCR_ALGO_AUTO, c.algo);
	EXPECT_EQ(32768, c.direct_max);
	EXPECT_LT(0, c.lane_depth);
	EXPECT_LT(0, c.lane_bytes);
	EXPECT_LT(0, c.board_depth);
	EXPECT_LT(0, c.board_bytes);
	EXPECT_GT(0, c.spin);
	EXPECT_GT(0, c.yield);
	EXPECT_EQ(30000, c.warn_ms);
	EXPECT_EQ(300000, c.timeout_ms);
	EXPECT_EQ(120000, c.rendezvous_ms);
	EXPECT_EQ(0, c.debug);
}

TEST(environment)
{
	struct kcr_config c;

	clear_environment();
	setenv("KCR_RANK", "3", 1);
	setenv("KCR_SIZE", "7", 1);
	setenv("KCR_LOCAL_RANK", "1", 1);
	setenv("KCR_LOCAL_SIZE", "2", 1);
	setenv("KCR_RENDEZVOUS", "file:/nowhere/at all", 1);
	setenv("KCR_JOB", "a job", 1);
	setenv("KCR_LINK", "shm", 1);
	setenv("KCR_ALGO", "owner", 1);
	setenv("KCR_DIRECT_MAX", "12345", 1);
	setenv("KCR_LANE_DEPTH", "5", 1);
	setenv("KCR_LANE_BYTES", "8192", 1);
	setenv("KCR_BOARD_DEPTH", "6", 1);
	setenv("KCR_BOARD_BYTES", "16384", 1);
	setenv("KCR_SPIN", "1000000000000", 1);
	setenv("KCR_YIELD", "17", 1);
	setenv("KCR_WARN", "2", 1);
	setenv("KCR_TIMEOUT", "3", 1);
	setenv("KCR_RENDEZVOUS_TIMEOUT", "4", 1);
	setenv("KCR_DEBUG", "1", 1);
	memset(&c, 0x5a, sizeof(c));
	kcr_config_init(&c);
	EXPECT_EQ(3, c.rank);
	EXPECT_EQ(7, c.size);
	EXPECT_EQ(1, c.local_rank);
	EXPECT_EQ(2, c.local_size);
	EXPECT_STREQ("file:/nowhere/at all", c.rendezvous);
	EXPECT_STREQ("a job", c.job);
	EXPECT_EQ(KCR_LINK_SHM, c.link);
	EXPECT_EQ(KCR_ALGO_OWNER, c.algo);
	EXPECT_EQ(12345, c.direct_max);
	EXPECT_EQ(5, c.lane_depth);
	EXPECT_EQ(8192, c.lane_bytes);
	EXPECT_EQ(6, c.board_depth);
	EXPECT_EQ(16384, c.board_bytes);
	EXPECT_EQ(1000000000000, c.spin);
	EXPECT_EQ(17, c.yield);
	EXPECT_EQ(2000, c.warn_ms);
	EXPECT_EQ(3000, c.timeout_ms);
	EXPECT_EQ(4000, c.rendezvous_ms);
	EXPECT_EQ(1, c.debug);

	setenv("KCR_LINK", "module", 1);
	setenv("KCR_ALGO", "direct", 1);
	kcr_config_init(&c);
	EXPECT_EQ(KCR_LINK_MODULE, c.link);
	EXPECT_EQ(KCR_ALGO_DIRECT, c.algo);
	setenv("KCR_LINK", "auto", 1);
	setenv("KCR_ALGO", "auto", 1);
	kcr_config_init(&c);
	EXPECT_EQ(KCR_LINK_AUTO, c.link);
	EXPECT_EQ(KCR_ALGO_AUTO, c.algo);
}

/* The launcher's variables count where there is a place among them and none of ours. */
TEST(launcher)
{
	struct kcr_config c;

	clear_environment();
	setenv("RANK", "5", 1);
	setenv("WORLD_SIZE", "8", 1);
	setenv("LOCAL_RANK", "1", 1);
	setenv("LOCAL_WORLD_SIZE", "4", 1);
	setenv("MASTER_ADDR", "node7", 1);
	kcr_config_init(&c);
	EXPECT_EQ(NULL, c.rendezvous);
	EXPECT_EQ(0, c.rank);
	EXPECT_EQ(1, c.size);

	setenv("MASTER_PORT", "29500", 1);
	kcr_config_init(&c);
	EXPECT_STREQ("tcp:node7:29500", c.rendezvous);
	EXPECT_EQ(5, c.rank);
	EXPECT_EQ(8, c.size);
	EXPECT_EQ(1, c.local_rank);
	EXPECT_EQ(4, c.local_size);
	setenv("MASTER_ADDR", "fe80::1", 1);
	kcr_config_init(&c);
	EXPECT_STREQ("tcp:[fe80::1]:29500", c.rendezvous);

	setenv("KCR_RANK", "1", 1);
	setenv("KCR_SIZE", "3", 1);
	kcr_config_init(&c);
	EXPECT_STREQ("tcp:[fe80::1]:29500", c.rendezvous);
	EXPECT_EQ(1, c.rank);
	EXPECT_EQ(3, c.size);
	EXPECT_EQ(1, c.local_rank);
	EXPECT_EQ(3, c.local_size);

	clear_environment();
	setenv("RANK", "5", 1);
	setenv("WORLD_SIZE", "8", 1);
	setenv("MASTER_ADDR", "node7", 1);
	setenv("MASTER_PORT", "29500", 1);
	setenv("KCR_RENDEZVOUS", "file:/x", 1);
	kcr_config_init(&c);
	EXPECT_STREQ("file:/x", c.rendezvous);
	EXPECT_EQ(0, c.rank);
	EXPECT_EQ(1, c.size);
	clear_environment();
}

/* Every variable that is not free text, with what it cannot mean. */
static const struct {
	const char *name, *value;
} bad[] = {
	{ "KCR_RANK", "first" }, { "KCR_RANK", "-1" }, { "KCR_RANK", "1.5" },
	{ "KCR_RANK", "4294967296" },
	{ "KCR_SIZE", "four" }, { "KCR_SIZE", "0" }, { "KCR_SIZE", "-4" },
	{ "KCR_SIZE", "4x" }, { "KCR_SIZE", "257" },
	{ "KCR_SIZE", "99999999999999999999" },
	{ "KCR_LOCAL_RANK", "x" }, { "KCR_LOCAL_RANK", "-1" },
	{ "KCR_LOCAL_SIZE", "0" }, { "KCR_LOCAL_SIZE", "two" },
	{ "KCR_LINK", "infiniband" }, { "KCR_LINK", "shm " },
	{ "KCR_ALGO", "ring" }, { "KCR_ALGO", "1" },
	{ "KCR_DIRECT_MAX", "32K" }, { "KCR_DIRECT_MAX", "-1" },
	{ "KCR_LANE_DEPTH", "0" }, { "KCR_LANE_DEPTH", "deep" },
	{ "KCR_LANE_DEPTH", "4294967297" },
	{ "KCR_LANE_BYTES", "0" }, { "KCR_LANE_BYTES", "-64" },
	{ "KCR_BOARD_DEPTH", "0" }, { "KCR_BOARD_DEPTH", "x" },
	{ "KCR_BOARD_BYTES", "0" }, { "KCR_BOARD_BYTES", "4294967296" },
	{ "KCR_SPIN", "long" }, { "KCR_YIELD", "much" },
	{ "KCR_WARN", "soon" }, { "KCR_WARN", "-1" },
	{ "KCR_TIMEOUT", "never" }, { "KCR_TIMEOUT", "-5" },
	{ "KCR_TIMEOUT", "nan" }, { "KCR_TIMEOUT", "inf" },
	{ "KCR_TIMEOUT", "1e30" }, { "KCR_TIMEOUT", "0" },
	{ "KCR_RENDEZVOUS_TIMEOUT", "x" }, { "KCR_RENDEZVOUS_TIMEOUT", "-1" },
	{ "KCR_RENDEZVOUS_TIMEOUT", "0" },
	{ "KCR_DEBUG", "loud" },
};

TEST(bad_values_are_named)
{
	struct kcr_config c;
	struct kcr_world *w;
	size_t i;
	int err;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		clear_environment();
		setenv(bad[i].name, bad[i].value, 1);
		kcr_config_init(&c);
		w = (struct kcr_world *)&c;
		err = kcr_world_create(&c, &w);
		EXPECT_EQ(-EINVAL, err) {
			TH_LOG("%s=%s", bad[i].name, bad[i].value);
		}
		if (!err)
			kcr_world_destroy(w);
		EXPECT_NE(NULL, strstr(kcr_error(NULL), bad[i].name)) {
			TH_LOG("%s=%s: '%s'", bad[i].name, bad[i].value,
			       kcr_error(NULL));
		}
		EXPECT_NE(NULL, strstr(kcr_error(NULL), bad[i].value)) {
			TH_LOG("%s=%s: '%s'", bad[i].name, bad[i].value,
			       kcr_error(NULL));
		}

		/* The same by the way that reads the environment itself. */
		EXPECT_EQ(-EINVAL, kcr_world_create(NULL, &w)) {
			TH_LOG("%s=%s", bad[i].name, bad[i].value);
		}
		EXPECT_NE(NULL, strstr(kcr_error(NULL), bad[i].name));
	}
}

/* A window of the module has so many lanes, one for every ordered pair of ranks. */
TEST(too_many_ranks_for_the_module)
{
	struct kcr_config c;
	struct kcr_world *w;

	clear_environment();
	kcr_config_init(&c);
	c.link = KCR_LINK_MODULE;
	c.size = 92;
	EXPECT_EQ(-EINVAL, kcr_world_create(&c, &w));
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "size is 92 and link is module"));
	/* One less fits, and fails for want of a place to meet. */
	c.size = 91;
	EXPECT_EQ(-EINVAL, kcr_world_create(&c, &w));
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "rendezvous"));
}

/* One bad variable does not stay behind when it has been put right. */
TEST(bad_value_put_right)
{
	struct kcr_world *w = NULL;
	struct kcr_config c;

	clear_environment();
	setenv("KCR_SIZE", "four", 1);
	kcr_config_init(&c);
	EXPECT_EQ(-EINVAL, kcr_world_create(&c, &w));
	setenv("KCR_SIZE", "1", 1);
	kcr_config_init(&c);
	ASSERT_EQ(0, kcr_world_create(&c, &w)) {
		TH_LOG("%s", kcr_error(NULL));
	}
	kcr_world_destroy(w);
}

TEST(bad_fields)
{
	struct kcr_world *w = NULL;
	struct kcr_config c;

	clear_environment();
#define REFUSED(assignment, word) do {					\
	kcr_config_init(&c);						\
	assignment;							\
	EXPECT_EQ(-EINVAL, kcr_world_create(&c, &w)) {			\
		TH_LOG("%s", #assignment);				\
	}								\
	EXPECT_NE(NULL, strstr(kcr_error(NULL), word)) {		\
		TH_LOG("%s: '%s'", #assignment, kcr_error(NULL));	\
	}								\
} while (0)
	REFUSED(c.struct_size = 0, "struct_size");
	REFUSED(c.struct_size--, "struct_size");
	REFUSED(c.size = 0, "size");
	REFUSED(c.size = -1, "size");
	REFUSED(c.size = KCR_RANKS_MAX + 1, "size");
	REFUSED(c.rank = 1, "rank");
	REFUSED(c.rank = -1, "rank");
	REFUSED(c.local_rank = 1, "local_rank");
	REFUSED(c.local_size = 0, "local_size");
	REFUSED(c.local_size = 2, "local_size");
	REFUSED(c.link = 17, "link");
	REFUSED(c.algo = 17, "algo");
	REFUSED(c.lane_depth = 0, "lane_depth");
	REFUSED(c.lane_bytes = 0, "lane_bytes");
	REFUSED(c.board_depth = 0, "board_depth");
	REFUSED(c.board_bytes = 0, "board_bytes");
	REFUSED(c.timeout_ms = 0, "timeout_ms");
	REFUSED(c.rendezvous_ms = 0, "rendezvous_ms");
	REFUSED(c.size = 2; c.local_size = 2, "rendezvous");
	REFUSED(c.size = 2; c.local_size = 2; c.rendezvous = "smoke:signals",
		"smoke:signals");
#undef REFUSED
	EXPECT_EQ(-EINVAL, kcr_world_create(&c, NULL));
}

FIXTURE(alone) {
	struct kcr_world *w;
};

FIXTURE_SETUP(alone)
{
	clear_environment();
	ASSERT_EQ(0, kcr_world_create(NULL, &self->w)) {
		TH_LOG("%s", kcr_error(NULL));
	}
}

FIXTURE_TEARDOWN(alone)
{
	EXPECT_EQ(0, kcr_world_destroy(self->w));
}

TEST_F(alone, identity)
{
	EXPECT_EQ(0, kcr_rank(self->w));
	EXPECT_EQ(1, kcr_size(self->w));
	EXPECT_EQ(0, kcr_local_rank(self->w));
	EXPECT_EQ(1, kcr_local_size(self->w));
	EXPECT_STREQ("self", kcr_link_name(self->w));
	EXPECT_STREQ("", kcr_error(self->w));
	EXPECT_EQ(-EINVAL, kcr_rank(NULL));
	EXPECT_EQ(-EINVAL, kcr_size(NULL));
}

/* Bit for bit: NaNs keep their payloads and their signs. */
TEST_F(alone, copies_bits)
{
	uint32_t x[] = { 0x3f800000, 0x7f800001, 0xffc12345, 0x80000000, 1,
			 0x7f800000, 0xffffffff };
	uint64_t y[] = { 0x3ff0000000000000, 0x7ff0000000000001,
			 0xfff8000000012345, 1ull << 63, 1,
			 0xffffffffffffffff };
	uint32_t out[ARRAY_SIZE(x)], same[ARRAY_SIZE(x)];
	uint64_t out64[ARRAY_SIZE(y)];

	memset(out, 0x5a, sizeof(out));
	memset(out64, 0x5a, sizeof(out64));
	memcpy(same, x, sizeof(x));
	EXPECT_EQ(0, kcr_allreduce(self->w, x, out, ARRAY_SIZE(x), KCR_F32, KCR_SUM));
	EXPECT_EQ(0, memcmp(x, out, sizeof(x)));
	EXPECT_EQ(0, memcmp(x, same, sizeof(x)));
	EXPECT_EQ(0, kcr_allreduce(self->w, y, out64, ARRAY_SIZE(y), KCR_F64, KCR_SUM));
	EXPECT_EQ(0, memcmp(y, out64, sizeof(y)));

	/* In place. */
	EXPECT_EQ(0, kcr_allreduce(self->w, x, x, ARRAY_SIZE(x), KCR_F32, KCR_SUM));
	EXPECT_EQ(0, memcmp(x, same, sizeof(x)));
	EXPECT_EQ(0, kcr_barrier(self->w));
}

TEST_F(alone, count_zero)
{
	float x = 1, y = 2;

	EXPECT_EQ(0, kcr_allreduce(self->w, &x, &y, 0, KCR_F32, KCR_SUM));
	EXPECT_EQ(0, kcr_allreduce(self->w, NULL, NULL, 0, KCR_F64, KCR_SUM));
	EXPECT_EQ(2.0f, y);
}

TEST_F(alone, one_to_many)
{
	static float x[100000], y[100000];
	size_t count;
	uint32_t behind;

	data_fill(x, 100000, KCR_F32, 0, 1);
	for (count = 1; count <= 100000; count = count * 3 + 1) {
		memset(y, 0x5a, sizeof(y));
		EXPECT_EQ(0, kcr_allreduce(self->w, x, y, count, KCR_F32, KCR_SUM));
		EXPECT_EQ(-1, data_differ(x, y, count, KCR_F32));
		if (count < 100000) {
			memcpy(&behind, &y[count], sizeof(behind));
			EXPECT_EQ(0x5a5a5a5a, behind);
		}
	}
}

/* A refusal says why, changes nothing, and leaves the world well. */
#define REFUSED(error, ...) do {					\
	memset(out, 0x5a, sizeof(out));					\
	EXPECT_EQ(error, kcr_allreduce(__VA_ARGS__)) {			\
		TH_LOG("kcr_allreduce(%s)", #__VA_ARGS__);		\
	}								\
	EXPECT_NE('\0', kcr_error(self->w)[0]) {			\
		TH_LOG("kcr_allreduce(%s)", #__VA_ARGS__);		\
	}								\
	for (i = 0; i < sizeof(out); i++)				\
		ASSERT_EQ(0x5a, ((unsigned char *)out)[i]);		\
} while (0)

TEST_F(alone, bad_arguments)
{
	double x[64] = { 0 }, out[64];
	struct kcr_world *w = self->w;
	size_t i;

	REFUSED(-EINVAL, w, NULL, out, 1, KCR_F32, KCR_SUM);
	REFUSED(-EINVAL, w, x, NULL, 1, KCR_F32, KCR_SUM);
	REFUSED(-EINVAL, w, (char *)x + 1, out, 1, KCR_F32, KCR_SUM);
	REFUSED(-EINVAL, w, x, (char *)out + 2, 1, KCR_F32, KCR_SUM);
	REFUSED(-EINVAL, w, (char *)x + 4, out, 1, KCR_F64, KCR_SUM);
	REFUSED(-EINVAL, w, out, out + 1, 2, KCR_F64, KCR_SUM);
	REFUSED(-EINVAL, w, out + 1, out, 2, KCR_F64, KCR_SUM);
	REFUSED(-EINVAL, w, out + 31, out, 32, KCR_F64, KCR_SUM);
	REFUSED(-EINVAL, w, x, out, SIZE_MAX / 4 + 1, KCR_F32, KCR_SUM);
	REFUSED(-EINVAL, w, x, out, SIZE_MAX / 8 + 2, KCR_F64, KCR_SUM);
	REFUSED(-EINVAL, w, x, out, SIZE_MAX, KCR_F64, KCR_SUM);

	/* Side by side is no overlap. */
	EXPECT_EQ(0, kcr_allreduce(w, out, out + 32, 32, KCR_F64, KCR_SUM));
	EXPECT_EQ(0, kcr_allreduce(w, out + 32, out, 32, KCR_F64, KCR_SUM));
	EXPECT_EQ(-EINVAL, kcr_allreduce(NULL, x, out, 1, KCR_F64, KCR_SUM));
	EXPECT_EQ(-EINVAL, kcr_barrier(NULL));
}

TEST_F(alone, unsupported)
{
	double x[8] = { 0 }, out[8];
	struct kcr_world *w = self->w;
	int dtype, op;
	size_t i;

	for (dtype = -1; dtype <= KCR_DTYPES; dtype++) {
		for (op = -1; op <= KCR_OPS; op++) {
			if (data_is_supported(dtype, op))
				continue;
			REFUSED(-EOPNOTSUPP, w, x, out, 1, dtype, op);
			EXPECT_EQ(-EOPNOTSUPP, kcr_allreduce(w, x, out, 0, dtype, op));
		}
	}
	EXPECT_EQ(0, kcr_allreduce(w, x, out, 8, KCR_F64, KCR_SUM));
}

/* Several worlds live side by side, and go in any order. */
TEST(many_worlds_of_one)
{
	struct kcr_world *w[100];
	float x = 3, y;
	int i;

	clear_environment();
	for (i = 0; i < 100; i++)
		ASSERT_EQ(0, kcr_world_create(NULL, &w[i]));
	for (i = 0; i < 100; i++) {
		y = 0;
		EXPECT_EQ(0, kcr_allreduce(w[i], &x, &y, 1, KCR_F32, KCR_SUM));
		EXPECT_EQ(3.0f, y);
	}
	for (i = 0; i < 100; i += 2)
		EXPECT_EQ(0, kcr_world_destroy(w[i]));
	for (i = 99; i > 0; i -= 2)
		EXPECT_EQ(0, kcr_world_destroy(w[i]));
	EXPECT_EQ(0, kcr_world_destroy(NULL));
}

TEST(names)
{
	static const char * const types[] = { "i8", "u8", "i16", "u16", "i32",
		"u32", "i64", "u64", "f16", "bf16", "f32", "f64" };
	static const size_t sizes[] = { 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8 };
	static const char * const ops[] = { "sum", "prod", "min", "max", "mean",
		"band", "bor", "bxor" };
	int i;

	ASSERT_EQ(KCR_DTYPES, ARRAY_SIZE(types));
	ASSERT_EQ(KCR_OPS, ARRAY_SIZE(ops));
	for (i = 0; i < KCR_DTYPES; i++) {
		EXPECT_STREQ(types[i], kcr_dtype_name(i));
		EXPECT_EQ(sizes[i], kcr_dtype_size(i));
	}
	for (i = 0; i < KCR_OPS; i++)
		EXPECT_STREQ(ops[i], kcr_op_name(i));
	EXPECT_EQ(NULL, kcr_dtype_name(KCR_DTYPES));
	EXPECT_EQ(NULL, kcr_dtype_name(-1));
	EXPECT_EQ(0, kcr_dtype_size(KCR_DTYPES));
	EXPECT_EQ(NULL, kcr_op_name(KCR_OPS));
	EXPECT_EQ(NULL, kcr_op_name(-1));
	EXPECT_STREQ(KCR_VERSION, kcr_version());
}

TEST_HARNESS_MAIN
