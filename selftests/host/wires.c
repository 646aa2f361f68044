// SPDX-License-Identifier: GPL-2.0
/*
 * Wires: which addresses of two nodes belong together, the same seen from both
 */
#include <sched.h>
#include <sys/mount.h>

#include "kselftest_harness.h"
#include "kcollring.h"
#include "../../lib/wires.h"

#define MOST 4

static struct wire_list list_of(const char * const texts[])
{
	struct wire_list list = { 0 };
	int i;

	for (i = 0; texts[i]; i++)
		if (wire_end_parse(texts[i], &list.wires[list.count++]))
			list.count = -1000;
	return list;
}

#define LIST(...)	list_of((const char * const []){ __VA_ARGS__, NULL })

/* What pairs, in words: "a0-b1 a1-b0". */
static const char *pair_text(const struct wire_list *a, const struct wire_list *b,
			     bool same_node)
{
	static char text[200];
	struct wire_pair pairs[WIRES_LISTED];
	int n = wires_pair(a, b, same_node, pairs), i;
	size_t at = 0;

	text[0] = 0;
	for (i = 0; i < n; i++)
		at += snprintf(text + at, sizeof(text) - at, "%s%s-%s",
			       i ? " " : "", pairs[i].a->device,
			       pairs[i].b->device);
	return text;
}

TEST(by_network)
{
	struct wire_list a = LIST("a0 10.0.0.1/24", "a1 10.0.1.1/24");
	struct wire_list b = LIST("b0 10.0.1.2/24", "b1 10.0.0.2/24");

	EXPECT_STREQ("a0-b1 a1-b0", pair_text(&a, &b, false));
}

/* A wire that one end alone has is left out. */
TEST(some_in_common)
{
	struct wire_list a = LIST("a0 10.0.0.1/24", "a1 10.9.1.1/24", "a2 10.0.2.1/24");
	struct wire_list b = LIST("b0 10.0.0.2/24", "b1 10.0.2.2/24");

	EXPECT_STREQ("a0-b0 a2-b1", pair_text(&a, &b, false));
	EXPECT_STREQ("b0-a0 b1-a2", pair_text(&b, &a, false));
}

TEST(several_in_one_network)
{
	struct wire_list a = LIST("a0 10.0.0.1/16", "a1 10.0.0.2/16");
	struct wire_list b = LIST("b0 10.0.7.1/16", "b1 10.0.7.2/16", "b2 10.0.7.3/16");

	EXPECT_STREQ("a0-b0 a1-b1", pair_text(&a, &b, false));
}

TEST(by_index_if_no_network_is_shared)
{
	struct wire_list a = LIST("a0 10.0.0.1/32", "a1 10.0.0.2/32");
	struct wire_list b = LIST("b0 192.168.0.1/32");

	EXPECT_STREQ("a0-b0", pair_text(&a, &b, false));
}

TEST(on_one_node_by_index)
{
	struct wire_list a = LIST("d0 10.0.0.1/24", "d1 10.0.0.2/24");

	EXPECT_STREQ("d0-d0 d1-d1", pair_text(&a, &a, true));
}

TEST(ipv6)
{
	struct wire_list a = LIST("a0 fd00:1::1/64", "a1 fd00:2::1/64");
	struct wire_list b = LIST("b0 fd00:2::2/64", "b1 10.0.0.1/24", "b2 fd00:1::2/64");

	EXPECT_STREQ("a0-b2 a1-b0", pair_text(&a, &b, false));
}

TEST(none)
{
	struct wire_list a = LIST("a0 10.0.0.1/24"), b = { 0 };

	EXPECT_STREQ("", pair_text(&a, &b, false));
	EXPECT_STREQ("", pair_text(&b, &a, true));
}

TEST(text_and_back)
{
	static const char * const good[] = { "mlx5_0 10.1.2.3/24", "rxe0 fd00::1/64",
		"a 0.0.0.0/0" };
	static const char * const bad[] = { "", "rxe0", "rxe0 10.1.2.3", "rxe0 10.1.2/24",
		"rxe0 10.1.2.3/33", "rxe0 10.1.2.3/-1", "rxe0 fd00::1/129", "rxe0 host/24" };
	char text[WIRE_TEXT_BYTES];
	struct wire_end wire;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(good); i++) {
		ASSERT_EQ(0, wire_end_parse(good[i], &wire));
		EXPECT_STREQ(good[i], wire_end_text(&wire, text));
	}
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		EXPECT_EQ(-EBADMSG, wire_end_parse(bad[i], &wire));
}

/* Case B7: a device that is not there is named, with those that are. */
TEST(a_device_that_is_not_there)
{
	char place[] = "file:/tmp/kcr-wires-XXXXXX", command[64];
	struct kcr_config config;
	struct kcr_world *w;

	ASSERT_NE(NULL, mkdtemp(place + strlen("file:")));
	kcr_config_init(&config);
	config.size = 2;
	config.local_size = 2;
	config.rendezvous = place;
	/* Over shared memory alone nobody asks for wires. */
	config.link = KCR_LINK_AUTO;
	config.wires = "mlx9_7";
	EXPECT_EQ(-ENODEV, kcr_world_create(&config, &w));
	snprintf(command, sizeof(command), "rm -r %s", place + strlen("file:"));
	EXPECT_EQ(0, system(command));
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "wires has \"mlx9_7\", which is no"));
	EXPECT_NE(NULL, strstr(kcr_error(NULL), "here: there are"));
}

TEST(a_list_of_none)
{
	struct wire_list list;

	EXPECT_EQ(-EINVAL, wires_find(" ,, ", &list));
	EXPECT_STREQ("wires is \" ,, \", which names none", kcr_error(NULL));
}

TEST(configuration)
{
	struct kcr_config config;
	struct kcr_world *w;

	setenv("KCR_WIRES_MAX", "5", 1);
	EXPECT_EQ(-EINVAL, kcr_world_create(NULL, &w));
	EXPECT_STREQ("KCR_WIRES_MAX is \"5\", must be a number from 1 to 4",
		     kcr_error(NULL));
	unsetenv("KCR_WIRES_MAX");
	kcr_config_init(&config);
	EXPECT_EQ(MOST, config.wires_max);
	EXPECT_EQ(524288, config.wires_from);
	EXPECT_EQ(2, config.mesh_depth);
	config.mesh_depth = 16;
	EXPECT_EQ(-EINVAL, kcr_world_create(&config, &w));
	EXPECT_STREQ("mesh_depth is 16, must be 1 to 15", kcr_error(NULL));
}

/* A file, and the folders it is in. */
static int put(const char *path, const char *text)
{
	char command[512];

	snprintf(command, sizeof(command), "mkdir -p $(dirname %s) && echo %s > %s", path, text,
		 path);
	return system(command);
}

#define SYS	"/sys/class/infiniband/"

/*
 * A node with an adapter of RoCE, one of InfiniBand with two ports and a partition, and one
 * without an interface. Made in a mount and a network namespace of this case's own.
 */
TEST(devices_of_all_kinds)
{
	struct wire_list list;
	char text[500];

	if (geteuid() || unshare(CLONE_NEWNS | CLONE_NEWNET))
		SKIP(return, "needs root, for namespaces of its own");
	ASSERT_EQ(0, mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
	ASSERT_EQ(0, mount("none", "/sys/class", "tmpfs", 0, NULL));
	if (system("ip link add eth9 type veth peer name ib0 && "
		   "ip link add ib1 type veth peer name ib0.8001"))
		SKIP(return, "needs ip, and a kernel with veth");
	ASSERT_EQ(0, system("ip addr add 10.9.0.1/24 dev eth9 && ip addr add 10.9.1.1/24 dev ib0 &&"
			    "ip addr add 10.9.2.1/24 dev ib1 && "
			    "ip addr add 10.9.3.1/24 dev ib0.8001"));
	ASSERT_EQ(0, put(SYS "roce0/ports/1/gid_attrs/ndevs/0", "eth9"));
	ASSERT_EQ(0, put(SYS "bare0/node_type", "1"));
	ASSERT_EQ(0, put(SYS "mlx5_0/device/net/ib1/type", "32"));
	ASSERT_EQ(0, put(SYS "mlx5_0/device/net/ib1/dev_port", "1"));
	ASSERT_EQ(0, put(SYS "mlx5_0/device/net/ib0.8001/type", "32"));
	ASSERT_EQ(0, put(SYS "mlx5_0/device/net/ib0.8001/dev_port", "0"));
	ASSERT_EQ(0, put(SYS "mlx5_0/device/net/ib0/type", "32"));
	ASSERT_EQ(0, put(SYS "mlx5_0/device/net/ib0/dev_port", "0"));
	ASSERT_EQ(0, put(SYS "mlx5_0/device/net/eth9/type", "1"));
	ASSERT_EQ(0, put(SYS "mlx5_0/device/net/eth9/dev_port", "0"));

	ASSERT_EQ(0, wires_find(NULL, &list));
	EXPECT_STREQ("roce0 10.9.0.1/24, mlx5_0 10.9.1.1/24",
		     wires_text(&list, text, sizeof(text)));
	ASSERT_EQ(0, wires_find("10.9.1.1", &list));
	EXPECT_STREQ("mlx5_0 10.9.1.1/24", wires_text(&list, text, sizeof(text)));
	EXPECT_EQ(-ENODEV, wires_find("10.9.2.1", &list));
}

TEST_HARNESS_MAIN
