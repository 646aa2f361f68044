// SPDX-License-Identifier: GPL-2.0
/*
 * Message rings and ranks that die, stop or leave while others wait for them; and ranks
 * that have no memory, or may have no more.
 *
 * Ranks are processes. Each says what its call gave in shared memory (lib/ranks.h).
 */
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include "kselftest_harness.h"
#include "ring.h"
#include "../../lib/ring.h"

#define RANKS		3
#define DEPTH		4
#define LATE		700	/* ms that a rank waits before it gives up */

enum role {
	SENDER,			/* rank 0, which waits for room on the lane to rank 1 */
	RECEIVER,		/* rank 0, which waits for a message from 1 and 2 */
	AMONG_KICKS,		/* the same, and rank 2 wakes it all the time for nothing */
	ON_FD,			/* the same by poll(2) */
	WHO_POLLS,		/* the same, and never waits */
	WHO_POLLS_SELDOM,
	WHO_SENDS_RAW,		/* rank 0, which sends and never waits */
};

/* Shared by the ranks and the test. */
struct play {
	struct ranks_meeting meeting;
	struct ranks_outcome outcome[RANKS];
	pid_t pid[RANKS];
	enum role role;
	int leaves;		/* ranks 1 and 2 leave, when told */
	int acts;		/* now */
	int short_rank;		/* has no memory */
	long quota;		/* of pages, as it was */
	uint64_t received;
};

static int make(int rank, struct kcr_world *w, enum role role, struct kcr_ring **ring)
{
	static const struct kcr_lane lanes[] = {
		{ 0, 1, DEPTH, 100 }, { 1, 0, DEPTH, 100 }, { 2, 0, DEPTH, 100 },
	};

	RANK_OK(w, kcr_ring_create(w, lanes, 3, role == WHO_SENDS_RAW ?
				   KCR_RING_RAW : 0, ring));
	return 0;
}

/* Rank 0: until its call gives an error. */
static int64_t act(struct kcr_ring *ring, enum role role, struct ring_inbox *box,
		   struct play *play)
{
	struct pollfd p = { .events = POLLIN };
	int64_t result = 0;
	uint64_t n = 1;

	if (role == ON_FD)
		p.fd = kcr_ring_fd(ring);
	while (result >= 0) {
		switch (role) {
		case SENDER:
			result = ring_send(ring, 0, 1, n, -1);
			n += result > 0;
			break;
		case RECEIVER:
		case AMONG_KICKS:
			result = kcr_ring_wait(ring, -1) ?:
				 kcr_ring_poll(ring, ring_receive, box);
			break;
		case ON_FD:
			result = poll(&p, 1, 60000) == 1 ?
				 kcr_ring_poll(ring, ring_receive, box) : -ETIME;
			break;
		case WHO_POLLS:
			result = kcr_ring_poll(ring, ring_receive, box);
			break;
		case WHO_POLLS_SELDOM:
			result = kcr_ring_poll(ring, ring_receive, box);
			ranks_sleep(0.05);
			break;
		case WHO_SENDS_RAW:
			result = ring_send(ring, 0, 1, n, -1);
			n += result > 0;
			break;
		}
	}
	play->received = box->count;
	return result;
}

/* Ranks 1 and 2 send one message, then do nothing until they are told. */
static int idle(int rank, struct play *play, struct kcr_world *w, struct kcr_ring *ring)
{
	if (ring_send(ring, rank, 0, 1, -1) != 1)
		return 1;
	ranks_meet(&play->meeting, RANKS);
	while (!__atomic_load_n(&play->acts, __ATOMIC_ACQUIRE)) {
		if (rank == 2 && play->role == AMONG_KICKS)
			ring->link->carrier->ops->rings->kick(ring->link, 0);
		ranks_sleep(0.001);
	}
	if (play->leaves)
		RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

static int rank_main(int rank, void *arg)
{
	struct play *play = arg;
	struct ring_inbox box = { .rank = rank, .acks = 1 };
	struct kcr_ring *ring;
	struct kcr_world *w;
	int64_t result;

	play->pid[rank] = getpid();
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	if (make(rank, w, play->role, &ring))
		return 1;
	if (rank) {
		int err = idle(rank, play, w, ring);

		if (play->leaves)
			RANK_OK(NULL, kcr_ring_destroy(ring));
		return err;
	}
	box.ring = ring;
	ranks_meet(&play->meeting, RANKS);
	result = act(ring, play->role, &box, play);
	ranks_record(&play->outcome[0], NULL, result);
	RANK_TRUE(!box.wrong);
	/* It says so again, and whatever is called. */
	if (result == -ECONNRESET) {
		RANK_GIVES(-ECONNRESET, NULL, (int)kcr_ring_send(ring, 1, "", 0));
		while (kcr_ring_poll(ring, ring_receive, &box) > 0)
			;
		RANK_GIVES(-ECONNRESET, NULL, kcr_ring_wait(ring, -1));
	}
	RANK_TRUE(kcr_ring_destroy(ring) || result == -ETIMEDOUT);
	kcr_world_destroy(w);
	return 0;
}

FIXTURE(ends) {
	struct ranks r;
	struct play *play;
};

FIXTURE_VARIANT(ends) {
	enum role role;
	const char *waits_for;
};

FIXTURE_VARIANT_ADD(ends, sender) { SENDER, "rank 1" };
FIXTURE_VARIANT_ADD(ends, receiver) { RECEIVER, "rank 1, rank 2" };
FIXTURE_VARIANT_ADD(ends, among_kicks) { AMONG_KICKS, "rank 1, rank 2" };
FIXTURE_VARIANT_ADD(ends, on_fd) { ON_FD, "rank 1, rank 2" };
FIXTURE_VARIANT_ADD(ends, who_polls) { WHO_POLLS, "rank 1, rank 2" };
FIXTURE_VARIANT_ADD(ends, who_polls_seldom) { WHO_POLLS_SELDOM, "rank 1, rank 2" };
FIXTURE_VARIANT_ADD(ends, who_sends_raw) { WHO_SENDS_RAW, "rank 1" };

FIXTURE_SETUP(ends)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	self->play = ranks_shared(sizeof(*self->play));
	ASSERT_NE(NULL, self->play);
	self->play->role = variant->role;
}

FIXTURE_TEARDOWN(ends)
{
	ranks_end(&self->r);
}

static void wait_until_they_wait(struct play *play)
{
	while (!__atomic_load_n(&play->meeting.round, __ATOMIC_ACQUIRE))
		ranks_sleep(0.001);
	/* Asleep by now, and if not, it must not matter. */
	ranks_sleep(0.3);
}

static void see(struct __test_metadata *_metadata, const struct play *play, int err,
		const char *says)
{
	const struct ranks_outcome *o = &play->outcome[0];

	EXPECT_EQ(1, o->done);
	EXPECT_EQ(err, o->err) {
		TH_LOG("%s", o->said);
	}
	EXPECT_NE(NULL, strstr(o->said, says)) {
		TH_LOG("\"%s\" does not say \"%s\"", o->said, says);
	}
}

TEST_F_TIMEOUT(ends, a_rank_dies, 120)
{
	double began;

	ASSERT_EQ(0, ranks_start(&self->r, RANKS, rank_main, self->play));
	wait_until_they_wait(self->play);
	ranks_kill(&self->r, 1, SIGKILL);
	began = ranks_now();
	while (!ranks_ended(&self->r, 0) && ranks_now() < began + 60 * pace())
		ranks_sleep(0.001);
	EXPECT_LT(ranks_now() - began, 10 * pace());
	EXPECT_EQ(1, ranks_ended(&self->r, 0));
	EXPECT_EQ(0, self->r.status[0]);
	see(_metadata, self->play, -ECONNRESET, "rank 1 died");
	/* What had come before, it has. */
	if (variant->role != SENDER && variant->role != WHO_SENDS_RAW)
		EXPECT_EQ(2, self->play->received);
}

TEST_F_TIMEOUT(ends, ranks_leave, 120)
{
	self->play->leaves = 1;
	ASSERT_EQ(0, ranks_start(&self->r, RANKS, rank_main, self->play));
	wait_until_they_wait(self->play);
	__atomic_store_n(&self->play->acts, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(0, ranks_wait(&self->r, 60));
	EXPECT_EQ(0, ranks_report(&self->r));
	see(_metadata, self->play, -ESHUTDOWN, variant->waits_for);
	see(_metadata, self->play, -ESHUTDOWN, "left");
	if (variant->role != SENDER && variant->role != WHO_SENDS_RAW)
		EXPECT_EQ(2, self->play->received);
}

/* One that is stopped costs its peers a deadline, and they say who it is. */
static int stopped_main(int rank, void *arg)
{
	struct play *play = arg;
	struct ring_inbox box = { .rank = rank, .acks = 1 };
	struct kcr_ring_stats stats;
	struct kcr_ring *ring;
	struct kcr_world *w;
	int64_t result = 0;
	uint64_t n;

	play->pid[rank] = getpid();
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	if (make(rank, w, play->role, &ring))
		return 1;
	box.ring = ring;
	ranks_meet(&play->meeting, RANKS);
	if (rank == 1) {
		while (box.count < 2 * DEPTH) {
			RANK_OK(NULL, kcr_ring_wait(ring, -1));
			RANK_TRUE(kcr_ring_poll(ring, ring_receive, &box) >= 0);
		}
		RANK_TRUE(!box.wrong && !box.gaps);
	}
	if (!rank) {
		while (!play->acts)
			ranks_sleep(0.001);
		for (n = 1; result >= 0; n++)
			result = ring_send(ring, 0, 1, n, LATE * 1000000l);
		ranks_record(&play->outcome[0], NULL, result);
		RANK_TRUE(n - 2 == DEPTH);
		/* Its world has not failed: once it goes on, so does this. */
		kill(play->pid[1], SIGCONT);
		for (n = DEPTH + 1; n <= 2 * DEPTH; n++)
			RANK_TRUE(ring_send(ring, 0, 1, n, -1) == (int64_t)n);
		RANK_OK(NULL, kcr_ring_stats(ring, &stats));
		RANK_TRUE(stats.waits && stats.wait_ns >= LATE * 1000000ull);
	}
	RANK_OK(NULL, kcr_ring_destroy(ring));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

FIXTURE(goes_on) {
	struct ranks r;
	struct play *play;
};

FIXTURE_SETUP(goes_on)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	self->play = ranks_shared(sizeof(*self->play));
	ASSERT_NE(NULL, self->play);
}

FIXTURE_TEARDOWN(goes_on)
{
	ranks_end(&self->r);
}

TEST_F_TIMEOUT(goes_on, after_a_stop, 120)
{
	ASSERT_EQ(0, ranks_start(&self->r, RANKS, stopped_main, self->play));
	wait_until_they_wait(self->play);
	ranks_kill(&self->r, 1, SIGSTOP);
	__atomic_store_n(&self->play->acts, 1, __ATOMIC_RELEASE);
	EXPECT_EQ(0, ranks_wait(&self->r, 60));
	EXPECT_EQ(0, ranks_report(&self->r));
	see(_metadata, self->play, -ETIMEDOUT,
	    "lane 0 -> 1 is full: rank 1 has not acknowledged any of 4 messages for 0.");
}

/* A rank without memory, or descriptors: an error on every rank, and nothing is left. */
static int short_main(int rank, void *arg)
{
	struct play *play = arg;
	struct kcr_lane lanes[RANKS * RANKS];
	struct rlimit limit, old;
	struct kcr_ring *ring = NULL;
	struct kcr_world *w;
	int descriptors, mappings, err, n = 0;

	for (int i = 0; i < RANKS; i++)
		for (int j = 0; j < RANKS; j++)
			if (i != j)
				lanes[n++] = (struct kcr_lane){ i, j, 1024, 4096 };
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_OK(w, kcr_barrier(w));
	descriptors = ranks_descriptors();
	mappings = ring_mappings();
	if (rank == play->short_rank) {
		RANK_TRUE(!getrlimit(RLIMIT_AS, &old));
		limit = old;
		limit.rlim_cur = 1 << 20;	/* less than it has */
		RANK_TRUE(!setrlimit(RLIMIT_AS, &limit));
	}
	err = kcr_ring_create(w, lanes, n, 0, &ring);
	if (rank == play->short_rank)
		RANK_TRUE(!setrlimit(RLIMIT_AS, &old));
	ranks_record(&play->outcome[rank], w, err);
	RANK_TRUE(!ring);
	RANK_TRUE(descriptors == ranks_descriptors());
	RANK_TRUE(mappings == ring_mappings());
	/* The world, and its numbers for rings, go on. */
	for (int i = 0; i < 20; i++) {
		RANK_OK(w, kcr_ring_create(w, lanes, 2, 0, &ring));
		RANK_OK(w, kcr_ring_destroy(ring));
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(goes_on, without_memory, 120)
{
#ifdef __SANITIZE_ADDRESS__
	SKIP(return, "the address sanitizer needs address space itself");
#endif
	self->play->short_rank = 1;
	EXPECT_EQ(0, ranks_run(RANKS, short_main, self->play, 60));
	for (int i = 0; i < RANKS; i++) {
		const struct ranks_outcome *o = &self->play->outcome[i];

		EXPECT_EQ(-ENOMEM, o->err) {
			TH_LOG("rank %d: %s", i, o->said);
		}
		EXPECT_NE(NULL, strstr(o->said, i == 1 ? "cannot map" : "rank 1: cannot map")) {
			TH_LOG("rank %d: %s", i, o->said);
		}
	}
}

#define PAGES_QUOTA	"/sys/module/kcollring/parameters/max_pages_per_user"

/* For one that root may exceed: without what allows it. */
static int obey_quotas(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];

	if (syscall(SYS_capget, &head, caps))
		return -errno;
	caps[0].effective &= ~(1u << CAP_SYS_RESOURCE);
	return syscall(SYS_capset, &head, caps) ? -errno : 0;
}

static int write_quota(long pages)
{
	FILE *f = fopen(PAGES_QUOTA, "w");

	if (!f)
		return -errno;
	fprintf(f, "%ld", pages);
	return fclose(f) ? -errno : 0;
}

/* All are one user, who has no pages left once the world is there. */
static int over_quota_main(int rank, void *arg)
{
	static const struct kcr_lane lanes[] = { { 0, 1, DEPTH, 100 }, { 2, 1, DEPTH, 100 } };
	struct play *play = arg;
	struct kcr_ring *ring;
	struct kcr_world *w;

	RANK_OK(NULL, obey_quotas());
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_OK(w, kcr_barrier(w));
	ranks_meet(&play->meeting, RANKS);
	if (!rank)
		RANK_OK(NULL, write_quota(1));
	ranks_meet(&play->meeting, RANKS);
	ranks_record(&play->outcome[rank], w, kcr_ring_create(w, lanes, 2, 0, &ring));
	RANK_TRUE(!ring);
	ranks_meet(&play->meeting, RANKS);
	if (!rank)
		RANK_OK(NULL, write_quota(play->quota));
	ranks_meet(&play->meeting, RANKS);
	/* Nothing is left of it, and there is room again. */
	RANK_OK(w, kcr_ring_create(w, lanes, 2, 0, &ring));
	RANK_OK(w, kcr_ring_destroy(ring));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(goes_on, over_a_quota, 120)
{
	FILE *f;

	if (!ranks_link_is_module() || geteuid())
		SKIP(return, "needs the module and root, who sets its quota");
	f = fopen(PAGES_QUOTA, "r");
	ASSERT_NE(NULL, f);
	ASSERT_EQ(1, fscanf(f, "%ld", &self->play->quota));
	fclose(f);
	EXPECT_EQ(0, ranks_run(RANKS, over_quota_main, self->play, 60));
	EXPECT_EQ(0, write_quota(self->play->quota));
	for (int i = 0; i < RANKS; i++) {
		const struct ranks_outcome *o = &self->play->outcome[i];

		EXPECT_EQ(-EDQUOT, o->err) {
			TH_LOG("rank %d: %s", i, o->said);
		}
		EXPECT_NE(NULL, strstr(o->said, "cannot make a window of 2 lanes")) {
			TH_LOG("rank %d: %s", i, o->said);
		}
	}
}

TEST_HARNESS_MAIN
