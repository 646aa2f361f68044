// SPDX-License-Identifier: GPL-2.0
/*
 * The mesh: RDMA devices and modules that are taken away under it (F2, F10, K19)
 *
 * Only where the whole machine is ours. Every test gives back what it took.
 */
#include <rdma/rdma_cma.h>

#include "kselftest_harness.h"
#include "mesh.h"
#include "module.h"

#define RANKS 3
#define LONG (25 * DEV_SECOND)
/* Nothing may take longer than this. */
#define LIMIT MESH_SHELL_LIMIT

FIXTURE(mesh_remove) {
	struct dev_counters before;
	struct mesh_ranks r;
	struct kcr_status *status;
};

FIXTURE_SETUP(mesh_remove)
{
	const char *why = mesh_missing_for_removal();

	self->r.n = 0;
	self->status = MAP_FAILED;
	self->before = dev_counters();
	if (why)
		SKIP(return, "%s", why);
	ASSERT_EQ(0, mesh_ranks_open(&self->r, RANKS));
	self->status = dev_status(self->r.fd[0]);
	ASSERT_NE(MAP_FAILED, self->status);
}

FIXTURE_TEARDOWN(mesh_remove)
{
	if (self->status != MAP_FAILED)
		munmap(self->status, sizeof(*self->status));
	mesh_ranks_close(&self->r);
	/* Where a case broke off. */
	if (!mesh_missing_for_removal()) {
		if (dev_read_number(MESH_PARAMETERS "port") != MESH_PORT)
			module_take_verbs();
		if (!module_is_there("kcollring_verbs"))
			EXPECT_EQ(0, module_give_verbs());
	}
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
	/* The device is there again, for whoever comes next. */
	if (!mesh_device_is_there())
		EXPECT_EQ(0, mesh_device_add());
}

/* Ranks 0 and 1 send to each other until they cannot; rank 2 sleeps. */
struct traffic {
	struct mesh_ranks *r;
	pthread_t thread;
	struct dev_sleeper sleeper[2];
	__u64 frames;
	bool stop;
	int result;
};

static void *traffic_main(void *arg)
{
	struct traffic *t = arg;
	struct mesh_ranks *r = t->r;
	__u64 s[2] = { };
	int i, err;

	while (!__atomic_load_n(&t->stop, __ATOMIC_ACQUIRE)) {
		for (i = 0; i < 2; i++) {
			err = mesh_send(r->fd[i], !i, 0, 0, 0, 8192, s[i] + 1);
			if (!err)
				s[i]++;
			else if (err != -ENOBUFS)
				t->result = err;
			mesh_release(r->fd[i], !i, 0, 0, 1, mesh_arrived(r->status[i][!i], 0, 1));
		}
		__atomic_store_n(&t->frames, s[0], __ATOMIC_RELEASE);
		if (t->result)
			break;
	}
	return NULL;
}

static __u64 traffic_frames(struct traffic *t)
{
	return __atomic_load_n(&t->frames, __ATOMIC_ACQUIRE);
}

static int traffic_start(struct traffic *t, struct mesh_ranks *r)
{
	struct kcr_status *status = dev_status(r->fd[2]);
	int err, i;

	memset(t, 0, sizeof(*t));
	t->r = r;
	for (i = 0; i < 2; i++)
		if (mesh_frames(r->fd[i], !i, 0, 0, 1))
			return __LINE__;
	if (status == MAP_FAILED)
		return __LINE__;
	err = pthread_create(&t->thread, NULL, traffic_main, t);
	for (i = 0; i < 2 && !err; i++)
		err = dev_sleeper(&t->sleeper[i], i ? DEV_IOCTL : DEV_URING, r->fd[2],
				  dev_events(status), LONG, 1);
	munmap(status, sizeof(*status));
	if (err || !DEV_SOON(5, dev_parked(&r->world, 2) == 2))
		return __LINE__;
	return DEV_SOON(5, traffic_frames(t) > 20) ? 0 : __LINE__;
}

static int traffic_end(struct traffic *t)
{
	__atomic_store_n(&t->stop, true, __ATOMIC_RELEASE);
	pthread_join(t->thread, NULL);
	return t->result;
}

static bool all_failed(struct mesh_ranks *r)
{
	int i, j;

	for (i = 0; i < RANKS; i++)
		for (j = 0; j < RANKS; j++)
			if (i != j && mesh_state(r->status[i][j]) != KCR_CONN_FAILED)
				return false;
	return true;
}

/* The device has gone from under all of them. */
static void expect_no_device(struct __test_metadata *_metadata, struct mesh_ranks *r,
			     struct traffic *t, struct kcr_status *status)
{
	int i, j, found = 0;

	EXPECT_TRUE(DEV_SOON(LIMIT, dev_cause(status)));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, dev_sleeper_result(&t->sleeper[i], LIMIT));
	EXPECT_TRUE(DEV_SOON(LIMIT, all_failed(r)));
	for (i = 0; i < RANKS; i++) {
		for (j = 0; j < RANKS; j++) {
			struct kcr_conn_status *s = r->status[i][j];

			if (i == j)
				continue;
			/* One end may learn of it from the other. */
			if (s->reason == KCR_REASON_GONE) {
				EXPECT_EQ(EHOSTUNREACH, s->error);
				continue;
			}
			EXPECT_EQ(KCR_REASON_DEVICE, s->reason) {
				MESH_LOG(s);
			}
			EXPECT_EQ(ENODEV, s->error);
			found++;
		}
	}
	TH_LOG("%d of 6 by the device itself, cause %d", found,
	       KCR_CAUSE_ERROR(dev_cause(status)));
	EXPECT_LE(3, found);
	EXPECT_TRUE(KCR_CAUSE_ERROR(dev_cause(status)) == ENODEV ||
		    KCR_CAUSE_ERROR(dev_cause(status)) == EHOSTUNREACH);
	EXPECT_EQ(-ENOTCONN, traffic_end(t));
}

/* A world that comes later, over the device that is there again. */
static void expect_works(struct __test_metadata *_metadata)
{
	struct mesh_ranks r;
	int err;

	err = mesh_ranks_open(&r, 2);
	EXPECT_EQ(0, err) {
		MESH_LOG(r.status[0][1]);
		MESH_LOG(r.status[1][0]);
	}
	if (!err) {
		EXPECT_EQ(0, mesh_frames(r.fd[1], 0, 0, 0, 0));
		EXPECT_TRUE(DEV_SOON(10, !mesh_send(r.fd[0], 1, 0, 0, 0, 8, 1)));
		EXPECT_TRUE(DEV_SOON(10, mesh_arrived(r.status[1][0], 0, 0) == 1));
	}
	mesh_ranks_close(&r);
}

static void add_again(struct __test_metadata *_metadata)
{
	EXPECT_EQ(0, mesh_device_add());
	EXPECT_TRUE(DEV_SOON(LIMIT, mesh_device_has_gid()));
}

/* rdma link del, with traffic, commands parked, and another mesh that listens. */
TEST_F(mesh_remove, device)
{
	struct dev_world w = dev_world(2);
	struct kcr_conn_status *waits, *late;
	struct kcr_connect args;
	struct traffic t;
	double begin;
	int fd[2], i;

	for (i = 0; i < 2; i++) {
		fd[i] = dev_member(&w, i);
		ASSERT_LE(0, fd[i]);
	}
	ASSERT_EQ(0, mesh_connect(fd[1], 0, 0));
	waits = mesh_status(fd[1], 0, 0);
	ASSERT_NE(MAP_FAILED, waits);
	ASSERT_EQ(0, traffic_start(&t, &self->r));
	begin = dev_now();
	EXPECT_EQ(0, mesh_device_del());
	EXPECT_GT(LIMIT, dev_now() - begin);
	expect_no_device(_metadata, &self->r, &t, self->status);
	EXPECT_FALSE(mesh_device_is_there());
	/* Without it there is no way, and this is said at once. */
	args = mesh_connect_args(1, 0);
	args.wire = 1;
	ASSERT_EQ(0, dev_ioctl(fd[0], KCR_IOCTL_CONNECT, &args));
	late = mesh_status(fd[0], 1, 1);
	ASSERT_NE(MAP_FAILED, late);
	EXPECT_EQ(KCR_CONN_FAILED, mesh_state(late));
	EXPECT_EQ(KCR_REASON_ADDRESS, late->reason);
	munmap(late, sizeof(*late));
	/* Who only waited has used nothing of it, and is found by the new one. */
	EXPECT_EQ(KCR_CONN_EXPECTED, mesh_state(waits));
	add_again(_metadata);
	ASSERT_EQ(0, mesh_connect(fd[0], 1, 0));
	EXPECT_TRUE(DEV_SOON(LIMIT, mesh_is_up(waits))) {
		MESH_LOG(waits);
	}
	munmap(waits, sizeof(*waits));
	for (i = 0; i < 2; i++)
		close(fd[i]);
	expect_works(_metadata);
}

/* While ranks connect, as fast as they can. */
TEST_F(mesh_remove, while_connecting)
{
	int round, i;

	for (round = 0; round < 5; round++) {
		struct dev_world w = dev_world(6);
		int fd[6], k;
		pid_t pid;

		for (i = 0; i < 6; i++) {
			fd[i] = dev_member(&w, i);
			ASSERT_LE(0, fd[i]);
		}
		pid = fork();
		if (!pid) {
			execlp("rdma", "rdma", "link", "del", "rxe0", NULL);
			_exit(127);
		}
		for (i = 5; i >= 0; i--)
			for (k = 0; k < 6; k++)
				if (i != k)
					ASSERT_EQ(0, mesh_connect(fd[i], k, 0));
		EXPECT_EQ(0, dev_child_status(pid, LIMIT));
		for (i = 0; i < 6; i++)
			close(fd[i]);
		add_again(_metadata);
	}
	expect_works(_metadata);
}

/* The driver's module, from under its device. */
TEST_F(mesh_remove, driver)
{
	bool has_second = !access("/sys/class/infiniband/rxe0w1", F_OK);
	struct traffic t;
	double begin;

	if (access("/sys/module/rdma_rxe/refcnt", F_OK))
		SKIP(return, "rdma_rxe is no module here");
	ASSERT_EQ(0, traffic_start(&t, &self->r));
	begin = dev_now();
	EXPECT_EQ(0, mesh_shell("rmmod rdma_rxe"));
	EXPECT_GT(LIMIT, dev_now() - begin);
	expect_no_device(_metadata, &self->r, &t, self->status);
	EXPECT_EQ(0, mesh_shell("modprobe rdma_rxe"));
	add_again(_metadata);
	if (has_second)
		EXPECT_EQ(0, mesh_shell("rdma link add rxe0w1 type rxe netdev dummy1"));
	expect_works(_metadata);
}

/*
 * The interface below goes down and comes back: no hang, and no half measures.
 * rxe's own queue for connecting does not survive it if something was sent
 * meanwhile; so the device is made anew for what comes later.
 */
TEST_F(mesh_remove, interface)
{
	struct traffic t;
	__u64 frames;
	int i;

	ASSERT_EQ(0, traffic_start(&t, &self->r));
	EXPECT_EQ(0, mesh_shell("ip link set dummy0 down"));
	/* Retries end within this. */
	DEV_SOON(8, dev_cause(self->status));
	TH_LOG("down: cause %#llx", dev_cause(self->status));
	EXPECT_EQ(0, mesh_shell("ip link set dummy0 up"));
	EXPECT_TRUE(DEV_SOON(LIMIT, mesh_device_has_gid()));
	if (dev_cause(self->status)) {
		EXPECT_TRUE(DEV_SOON(LIMIT, all_failed(&self->r)));
		EXPECT_TRUE(DEV_SOON(LIMIT, t.result));
		EXPECT_EQ(-ENOTCONN, traffic_end(&t));
	} else {
		frames = traffic_frames(&t);
		EXPECT_TRUE(DEV_SOON(LIMIT, traffic_frames(&t) > frames + 20));
		EXPECT_EQ(0, traffic_end(&t));
		EXPECT_EQ(0, dev_kick(self->r.fd[0], 2, 1));
	}
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, dev_sleeper_result(&t.sleeper[i], LIMIT));
	EXPECT_EQ(0, mesh_device_del());
	add_again(_metadata);
	expect_works(_metadata);
}

/* ---- our own module ---- */

/* Without any connection it can go. */
static void let_go(FIXTURE_DATA(mesh_remove) *self)
{
	munmap(self->status, sizeof(*self->status));
	self->status = MAP_FAILED;
	mesh_ranks_close(&self->r);
}

TEST_F(mesh_remove, module)
{
	struct dev_world w = dev_world(2);
	struct kcr_query query;
	struct traffic t;
	int module, fd;
	long err = 0;

	module = module_open("kcollring_verbs.ko");
	if (module < 0)
		SKIP(return, "no kcollring_verbs.ko to load again");
	ASSERT_EQ(0, traffic_start(&t, &self->r));
	err = module_delete("kcollring_verbs");
	EXPECT_TRUE(module_is_busy(err));
	EXPECT_EQ(0, dev_kick(self->r.fd[0], 2, 1));
	EXPECT_EQ(0, traffic_end(&t));
	EXPECT_EQ(0, dev_sleeper_result(&t.sleeper[0], LIMIT));
	EXPECT_EQ(0, dev_sleeper_result(&t.sleeper[1], LIMIT));
	EXPECT_TRUE(mesh_ranks_are_up(&self->r));
	let_go(self);
	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, !(err = module_delete("kcollring_verbs")))) {
		TH_LOG("delete_module: %ld", err);
	}
	ASSERT_EQ(0, err);

	/* Everything but meshes goes on. */
	fd = dev_member(&w, 0);
	ASSERT_LE(0, fd);
	EXPECT_EQ(0, dev_query(fd, &query));
	EXPECT_EQ(0, query.features & KCR_FEATURE_MESH);
	EXPECT_EQ(-EPROTONOSUPPORT, mesh_connect(fd, 1, 0));
	EXPECT_EQ(-ENOTCONN, mesh_send(fd, 1, 0, 0, 0, 8, 1));
	EXPECT_EQ(-ENOTCONN, mesh_frames(fd, 1, 0, 0, 0));
	EXPECT_EQ(0, dev_window(fd, 0, NULL, 0, 4096));

	ASSERT_EQ(0, module_load(module, "")) {
		TH_LOG("finit_module: %s", strerror(errno));
	}
	EXPECT_EQ(0, dev_query(fd, &query));
	EXPECT_EQ(KCR_FEATURE_MESH, query.features & KCR_FEATURE_MESH);
	/* Also for those that could not connect before. */
	EXPECT_EQ(0, mesh_connect(fd, 1, 0));
	close(fd);
	close(module);
	expect_works(_metadata);
}

/* Again and again, each time with connections that have just ended. */
TEST_F(mesh_remove, module_often)
{
	int module = module_open("kcollring_verbs.ko"), round;
	long err = 0;

	if (module < 0)
		SKIP(return, "no kcollring_verbs.ko to load again");
	let_go(self);
	for (round = 0; round < 5; round++) {
		ASSERT_TRUE(DEV_SOON(DEV_SETTLE, !(err = module_delete("kcollring_verbs")))) {
			TH_LOG("delete_module: %ld", err);
		}
		ASSERT_EQ(0, module_load(module, ""));
		expect_works(_metadata);
	}
	close(module);
}

#define USERMODEHELPER "/proc/sys/kernel/modprobe"

/* Who connects first needs no module loaded: the kernel asks modprobe, or what it has for it. */
TEST_F(mesh_remove, module_on_demand)
{
	char folder[] = "/tmp/kcr-modprobe-XXXXXX", script[64];
	char before[256] = "", link[32], path[PATH_MAX];
	struct dev_world w = dev_world(2);
	int module, fd, n;
	FILE *file;

	module = module_open("kcollring_verbs.ko");
	if (module < 0)
		SKIP(return, "no kcollring_verbs.ko to load again");
	snprintf(link, sizeof(link), "/proc/self/fd/%d", module);
	n = readlink(link, path, sizeof(path) - 1);
	ASSERT_LT(0, n);
	path[n] = 0;
	ASSERT_NE(NULL, mkdtemp(folder));
	snprintf(script, sizeof(script), "%s/modprobe", folder);
	file = fopen(script, "w");
	ASSERT_NE(NULL, file);
	fprintf(file, "#!/bin/sh\n[ \"$*\" = \"-q -- kcollring_verbs\" ] && insmod '%s'\n", path);
	ASSERT_EQ(0, fclose(file));
	ASSERT_EQ(0, chmod(script, 0700));
	file = fopen(USERMODEHELPER, "r");
	ASSERT_NE(NULL, file);
	ASSERT_NE(NULL, fgets(before, sizeof(before), file));
	fclose(file);
	let_go(self);
	ASSERT_TRUE(module_take_verbs());

	EXPECT_EQ(0, dev_write_text(USERMODEHELPER, script));
	fd = dev_member(&w, 1);
	EXPECT_LE(0, fd);
	EXPECT_EQ(0, mesh_connect(fd, 0, 0));
	EXPECT_TRUE(module_is_there("kcollring_verbs"));
	close(fd);
	EXPECT_EQ(0, dev_write_text(USERMODEHELPER, before));
	EXPECT_EQ(0, unlink(script));
	EXPECT_EQ(0, rmdir(folder));
	close(module);
	expect_works(_metadata);
}

/* A port that somebody else listens at: refused where a mesh begins. Another one will do. */
TEST_F(mesh_remove, port)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in at = {
		.sin_family = AF_INET, .sin_port = htons(MESH_PORT),
	};
	struct dev_world w = dev_world(2);
	struct rdma_cm_id *ear;
	int module, fd;

	module = module_open("kcollring_verbs.ko");
	if (module < 0)
		SKIP(return, "no kcollring_verbs.ko to load again");
	ASSERT_NE(NULL, channel);
	let_go(self);
	ASSERT_TRUE(module_take_verbs());
	ASSERT_EQ(0, module_load(module, ""));
	ASSERT_EQ(0, rdma_create_id(channel, &ear, NULL, RDMA_PS_TCP));
	ASSERT_EQ(0, rdma_bind_addr(ear, (struct sockaddr *)&at));
	ASSERT_EQ(0, rdma_listen(ear, 1));

	fd = dev_member(&w, 1);
	ASSERT_LE(0, fd);
	EXPECT_EQ(-EADDRINUSE, mesh_connect(fd, 0, 0));
	EXPECT_EQ(MAP_FAILED, mesh_status(fd, 0, 0));
	ASSERT_TRUE(module_take_verbs());
	ASSERT_EQ(0, module_load(module, "port=18600"));
	EXPECT_EQ(18600, dev_read_number(MESH_PARAMETERS "port"));
	EXPECT_EQ(0, mesh_connect(fd, 0, 0));
	close(fd);
	expect_works(_metadata);

	rdma_destroy_id(ear);
	rdma_destroy_event_channel(channel);
	ASSERT_TRUE(module_take_verbs());
	EXPECT_EQ(-EINVAL, module_load(module, "port=0"));
	EXPECT_EQ(-EINVAL, module_load(module, "port=65536"));
	ASSERT_EQ(0, module_load(module, ""));
	close(module);
	expect_works(_metadata);
}

/* ---- K16: out while an address is being looked for, which nobody answers ---- */

/* Longer than rdma_cm and the module look for it. */
#define RESOLVED	5.0

FIXTURE(resolving) {
	struct dev_counters before;
	int module;
	int *stage;
	struct dev_world world;
	__u32 timeout_ms;
};

FIXTURE_SETUP(resolving)
{
	const char *why = mesh_missing_for_removal();

	self->before = dev_counters();
	self->module = -1;
	if (why)
		SKIP(return, "%s", why);
	self->module = module_open("kcollring_verbs.ko");
	if (self->module < 0)
		SKIP(return, "no kcollring_verbs.ko to load again");
	self->stage = dev_shared(4096);
	self->timeout_ms = 20000 * pace();
	ASSERT_EQ(0, mesh_arp(true));
}

FIXTURE_TEARDOWN(resolving)
{
	if (self->module < 0)
		return;
	EXPECT_EQ(0, mesh_arp(false));
	if (!module_is_there("kcollring_verbs"))
		EXPECT_EQ(0, module_load(self->module, ""));
	close(self->module);
	munmap(self->stage, 4096);
	DEV_EXPECT_NOTHING_LEFT(&self->before);
	MESH_EXPECT_NOTHING_LEFT();
	expect_works(_metadata);
}

/* A rank that connects to where nobody is; its descriptor. */
static int look_for(struct _test_data_resolving *self, struct kcr_conn_status **s)
{
	struct kcr_connect args = mesh_connect_args(1, 0);
	int fd = dev_member(&self->world, 0), err;

	if (fd < 0)
		return fd;
	args.timeout_ms = self->timeout_ms;
	mesh_sockaddr(args.remote, MESH_NOT_THERE, 0);
	err = dev_ioctl(fd, KCR_IOCTL_CONNECT, &args);
	if (!err) {
		*s = mesh_status(fd, 1, 0);
		err = *s == MAP_FAILED ? -errno : 0;
	}
	if (err)
		close(fd);
	return err ?: fd;
}

static void looks_main(void *arg)
{
	struct _test_data_resolving *self = arg;
	struct kcr_conn_status *s;

	CHILD_TRUE(look_for(self, &s) >= 0);
	/* Where the time is short it may be up by now. */
	CHILD_TRUE(self->timeout_ms < 1000 || mesh_state(s) == KCR_CONN_CONNECTING);
	dev_reach(self->stage, 1);
	for (;;)
		pause();
}

/* Out as soon as nobody holds it, and, if that is to be seen, for as long as one looked. */
static void out_and_in(struct __test_metadata *_metadata, int module, double absent)
{
	long err = 0;

	ASSERT_TRUE(DEV_SOON(LIMIT, !(err = module_delete("kcollring_verbs")))) {
		TH_LOG("delete_module: %ld", err);
	}
	dev_sleep(absent);
	ASSERT_EQ(0, module_load(module, ""));
}

/* A child that looks is killed after so long, and the module goes at once. */
static void kill_after(struct __test_metadata *_metadata, struct _test_data_resolving *self,
		       double seconds, double absent)
{
	pid_t pid;

	self->world = dev_world(2);
	dev_reach(self->stage, 0);
	pid = dev_child(looks_main, self);
	ASSERT_TRUE(dev_reached(self->stage, 1));
	dev_sleep(seconds);
	/* Where the deadline is near it may be over. */
	if (seconds < self->timeout_ms / 2000.0)
		EXPECT_TRUE(mesh_is_resolving());
	EXPECT_EQ(0, kill(pid, SIGKILL));
	out_and_in(_metadata, self->module, absent);
	EXPECT_TRUE(dev_child_kill(pid));
}

TEST_F_TIMEOUT(resolving, killed, 60)
{
	kill_after(_metadata, self, 0, 0);
	kill_after(_metadata, self, 0.05, 0);
	kill_after(_metadata, self, 0.6, RESOLVED);
}

/* The time is up long before the looking has an end of its own. */
TEST_F_TIMEOUT(resolving, out_of_time, 60)
{
	struct kcr_conn_status *s;
	double begin;
	int fd;

	self->timeout_ms = 2000;
	self->world = dev_world(2);
	begin = dev_now();
	fd = look_for(self, &s);
	ASSERT_LE(0, fd);
	EXPECT_TRUE(mesh_is_resolving());
	EXPECT_TRUE(DEV_SOON(10, mesh_state(s) == KCR_CONN_FAILED));
	EXPECT_EQ(KCR_REASON_TIMEOUT, s->reason) {
		MESH_LOG(s);
	}
	EXPECT_EQ(ETIMEDOUT, s->error);
	EXPECT_TRUE(DEV_SOON(DEV_SETTLE, !mesh_counters().value[MESH_IDS]));
	TH_LOG("over after %.2f s", dev_now() - begin);
	munmap(s, sizeof(*s));
	close(fd);
	out_and_in(_metadata, self->module, RESOLVED);
}

/* Both at once. */
TEST_F_TIMEOUT(resolving, killed_out_of_time, 60)
{
	int round;

	self->timeout_ms = 100;
	for (round = 0; round < 8; round++)
		kill_after(_metadata, self, 0.092 + 0.002 * round, 0);
}

TEST_HARNESS_MAIN
