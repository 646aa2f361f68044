// SPDX-License-Identifier: GPL-2.0
/*
 * Ranks that die, stop, or give up: the others hear of it, soon and by name,
 * the world stays failed, and no process is ended by the library
 *
 * Over the link that KCR_LINK names.
 */
#include <limits.h>
#include "kselftest_harness.h"
#include "data.h"
#include "ranks.h"

#define RANKS	4
/* The promise is a second; two processors shared with others get two. */
#define SOON	(2.0 * pace())
/* Nothing here takes longer, unless it hangs. */
#define LONG	60.0
#define BYTES_16_MIB	(16u << 20)

/* What a rank does instead of its call number @at. */
enum act {
	ACT_NONE,
	ACT_EXIT,
	ACT_EXEC,
	ACT_EXEC_FAILS,
	ACT_STOP,
	ACT_ABORT,
};

struct scene {
	size_t count;		/* elements; 0 stands for barriers */
	long calls;		/* after which a rank ends, 0 for never */
	int actor;
	enum act act;
	long at;		/* the call before which it acts */
	FILE *stderr_of[RANKS];	/* where a rank's stderr goes, if not to ours */
	struct shared {
		struct ranks_meeting meeting;
		long progress[RANKS];
		struct ranks_outcome outcome[RANKS];
		double acted;
	} *shared;
};

FIXTURE(death) {
	struct ranks r;
	struct scene scene;
	int started;
};

FIXTURE_SETUP(death)
{
	const char *why = ranks_no_link();

	if (why)
		SKIP(return, "%s", why);
	setenv("KCR_TIMEOUT", "30", 1);
	self->scene.shared = ranks_shared(sizeof(struct shared));
	ASSERT_NE(NULL, self->scene.shared);
	self->scene.actor = -1;
}

FIXTURE_TEARDOWN(death)
{
	if (self->started)
		ranks_end(&self->r);
}

static int act(const struct scene *s, int rank, struct kcr_world *w)
{
	s->shared->acted = ranks_now();
	switch (s->act) {
	case ACT_EXIT:
		exit(0);
	case ACT_EXEC:
		execl("/bin/sleep", "sleep", "20", NULL);
		RANK_FAIL("exec: %s", strerror(errno));
	case ACT_EXEC_FAILS:
		execl("/nonexistent/kcr", "kcr", NULL);
		return 0;
	case ACT_STOP:
		raise(SIGSTOP);
		return 0;
	case ACT_ABORT:
		RANK_OK(w, kcr_abort(w, ENOTUNIQ));
		return 0;
	default:
		return 0;
	}
}

static int call(struct kcr_world *w, const struct scene *s, float *buffer)
{
	if (!s->count)
		return kcr_barrier(w);
	return kcr_allreduce(w, buffer, buffer + s->count, s->count, KCR_F32,
			     KCR_SUM);
}

/* Call until an error, record that, and see that it stays. */
static int call_and_see(int rank, void *arg)
{
	struct scene *s = arg;
	struct shared *shared = s->shared;
	float *buffer = calloc(2 * s->count + 1, sizeof(float));
	char first[512];
	struct kcr_world *w;
	int err = 0;
	long i;

	RANK_TRUE(buffer);
	if (s->stderr_of[rank])
		dup2(fileno(s->stderr_of[rank]), STDERR_FILENO);
	data_fill(buffer, s->count, KCR_F32, rank, 1);
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 1; !err && (!s->calls || i <= s->calls); i++) {
		if (i == s->at)
			ranks_meet(&shared->meeting, RANKS);
		if (rank == s->actor && i == s->at && act(s, rank, w))
			return 1;
		err = call(w, s, buffer);
		shared->progress[rank] = i;
	}
	ranks_record(&shared->outcome[rank], w, err);
	if (err) {
		snprintf(first, sizeof(first), "%s", kcr_error(w));
		for (i = 0; i < 3; i++) {
			RANK_REFUSED(err, w, kcr_barrier(w), first);
			RANK_REFUSED(err, w, call(w, s, buffer), first);
			RANK_REFUSED(err, w, kcr_abort(w, ENOTUNIQ), first);
		}
	} else {
		ranks_meet(&shared->meeting, RANKS);
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	free(buffer);
	return 0;
}

static void start(struct __test_metadata *_metadata,
		  struct _test_data_death *self)
{
	memset(self->scene.shared, 0, sizeof(*self->scene.shared));
	ASSERT_EQ(0, ranks_start(&self->r, RANKS, call_and_see, &self->scene));
	self->started = 1;
}

/* Let every rank make @calls calls. */
static void let_run(struct __test_metadata *_metadata,
		    struct _test_data_death *self, long calls)
{
	volatile long *progress = self->scene.shared->progress;
	double limit = ranks_now() + LONG;
	int r;

	for (r = 0; r < RANKS; r++) {
		while (progress[r] < calls && ranks_now() < limit)
			ranks_sleep(0.001);
		ASSERT_GE(progress[r], calls);
	}
}

/*
 * All ranks but those in @gone get @err and say @text; the last is there @seconds
 * after @since, if that is not 0.
 */
static void see(struct __test_metadata *_metadata,
		struct _test_data_death *self, unsigned int gone, int err,
		const char *text, double since, double seconds)
{
	double limit = ranks_now() + LONG, last = 0;
	int r;

	for (r = 0; r < RANKS; r++) {
		struct ranks_outcome *o = &self->scene.shared->outcome[r];

		if (gone >> r & 1)
			continue;
		while (!ranks_ended(&self->r, r) && ranks_now() < limit)
			ranks_sleep(0.001);
		ASSERT_NE(-1, self->r.status[r]) {
			TH_LOG("rank %d has not ended", r);
		}
		EXPECT_EQ(0, self->r.status[r]);
		EXPECT_EQ(err, o->err);
		EXPECT_NE(NULL, strstr(o->said, text)) {
			TH_LOG("rank %d said \"%s\", not \"%s\"", r, o->said,
			       text);
		}
		if (o->at > last)
			last = o->at;
	}
	if (since) {
		TH_LOG("known everywhere after %.3f s", last - since);
		EXPECT_LT(last - since, seconds);
	}
}

/* Kill @victim while all are calling. */
static void kill_one(struct __test_metadata *_metadata,
		     struct _test_data_death *self, int victim)
{
	char text[32];
	double since;

	start(_metadata, self);
	let_run(_metadata, self, self->scene.count > 65536 ? 2 : 50);
	since = ranks_now();
	ranks_kill(&self->r, victim, SIGKILL);
	snprintf(text, sizeof(text), "rank %d died", victim);
	see(_metadata, self, 1 << victim, -ECONNRESET, text, since, SOON);
	ranks_end(&self->r);
	self->started = 0;
}

static void kill_each(struct __test_metadata *_metadata,
		      struct _test_data_death *self)
{
	int victim;

	for (victim = 0; victim < RANKS; victim++)
		kill_one(_metadata, self, victim);
}

TEST_F_TIMEOUT(death, killed_in_small_direct, 120)
{
	self->scene.count = 8;
	setenv("KCR_ALGO", "direct", 1);
	kill_each(_metadata, self);
}

TEST_F_TIMEOUT(death, killed_in_large_owner, 240)
{
	self->scene.count = ranks_link_is_module() ? 1 << 18 : 1 << 20;
	setenv("KCR_ALGO", "owner", 1);
	kill_each(_metadata, self);
}

TEST_F_TIMEOUT(death, killed_in_barriers, 120)
{
	kill_each(_metadata, self);
}

/* However long a rank may look before it sleeps, it hears of a death. */
TEST_F_TIMEOUT(death, killed_while_the_others_spin, 120)
{
	self->scene.count = 8;
	setenv("KCR_SPIN", "1000000000000", 1);
	kill_one(_metadata, self, 2);
	setenv("KCR_SPIN", "0", 1);
	setenv("KCR_YIELD", "1000000000000", 1);
	kill_one(_metadata, self, 0);
}

/* No looking and no yielding: all sleep all the time. */
TEST_F_TIMEOUT(death, killed_while_the_others_sleep, 120)
{
	self->scene.count = 8;
	setenv("KCR_SPIN", "0", 1);
	setenv("KCR_YIELD", "0", 1);
	kill_each(_metadata, self);
}

TEST_F_TIMEOUT(death, two_killed, 120)
{
	double since;
	int r;

	self->scene.count = 1000;
	start(_metadata, self);
	let_run(_metadata, self, 20);
	since = ranks_now();
	ranks_kill(&self->r, 1, SIGKILL);
	ranks_kill(&self->r, 3, SIGKILL);
	see(_metadata, self, 1 << 1 | 1 << 3, -ECONNRESET, "died", since, SOON);
	for (r = 0; r < RANKS; r += 2) {
		const char *said = self->scene.shared->outcome[r].said;

		EXPECT_TRUE(strstr(said, "rank 1 died") ||
			    strstr(said, "rank 3 died"));
	}
	/* All name one and the same, the first. */
	EXPECT_STREQ(strstr(self->scene.shared->outcome[0].said, "rank"),
		     strstr(self->scene.shared->outcome[2].said, "rank"));
}

TEST_F_TIMEOUT(death, exit_without_destroy, 120)
{
	self->scene.count = 100;
	self->scene.actor = 2;
	self->scene.act = ACT_EXIT;
	self->scene.at = 17;
	start(_metadata, self);
	see(_metadata, self, 1 << 2, -ECONNRESET, "#17: rank 2 died", 0, 0);
	EXPECT_LT(self->scene.shared->outcome[0].at - self->scene.shared->acted,
		  SOON);
}

TEST_F_TIMEOUT(death, exec, 120)
{
	self->scene.count = 100;
	self->scene.actor = 1;
	self->scene.act = ACT_EXEC;
	self->scene.at = 17;
	start(_metadata, self);
	see(_metadata, self, 1 << 1, -ECONNRESET, "#17: rank 1 died", 0, 0);
	EXPECT_LT(self->scene.shared->outcome[0].at - self->scene.shared->acted,
		  SOON);
	EXPECT_FALSE(ranks_ended(&self->r, 1));
}

TEST_F_TIMEOUT(death, exec_that_fails, 120)
{
	self->scene.count = 100;
	self->scene.actor = 1;
	self->scene.act = ACT_EXEC_FAILS;
	self->scene.at = 17;
	self->scene.calls = 40;
	start(_metadata, self);
	see(_metadata, self, 0, 0, "", 0, 0);
}

TEST_F_TIMEOUT(death, abort, 120)
{
	int r;

	self->scene.count = 100;
	self->scene.actor = 3;
	self->scene.act = ACT_ABORT;
	self->scene.at = 17;
	start(_metadata, self);
	see(_metadata, self, 0, -ENOTUNIQ, strerror(ENOTUNIQ), 0, 0);
	for (r = 0; r < RANKS; r++) {
		const struct ranks_outcome *o = &self->scene.shared->outcome[r];

		EXPECT_NE(NULL, strstr(o->said, r == 3 ? "this rank" : "rank 3"));
		EXPECT_LT(o->at - self->scene.shared->acted, SOON);
	}
}

static int abort_with_any_code(int rank, void *arg)
{
	struct kcr_world *w;
	int codes[] = { 0, -1, 4096, INT_MAX, INT_MIN };
	int i;

	(void)arg;
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	RANK_REFUSED(-EINVAL, NULL, kcr_abort(NULL, EIO), "world is NULL");
	for (i = 0; i < 5; i++) {
		char text[32];

		snprintf(text, sizeof(text), "code is %d", codes[i]);
		RANK_REFUSED(-EINVAL, w, kcr_abort(w, codes[i]), text);
	}
	RANK_OK(w, kcr_barrier(w));
	if (rank == 0)
		RANK_OK(w, kcr_abort(w, 4095));
	RANK_GIVES(-4095, w, kcr_barrier(w));
	RANK_OK(NULL, kcr_world_destroy(w));
	return 0;
}

TEST_F_TIMEOUT(death, abort_codes, 60)
{
	EXPECT_EQ(0, ranks_run(3, abort_with_any_code, NULL, 30));
}

/* The culprit is named, and nobody who waits for it, by everyone. */
static void see_timeout(struct __test_metadata *_metadata,
			struct _test_data_death *self, const char *text)
{
	double timeout = atof(getenv("KCR_TIMEOUT"));
	int r, exactly = 0;
	char after[32];

	snprintf(after, sizeof(after), "after %.1f s", timeout);
	see(_metadata, self, 1 << 2, -ETIMEDOUT, text, self->scene.shared->acted,
	    timeout + SOON);
	for (r = 0; r < RANKS; r++) {
		const char *said = self->scene.shared->outcome[r].said;

		if (r == 2)
			continue;
		EXPECT_GE(self->scene.shared->outcome[r].at,
			  self->scene.shared->acted + timeout - 0.1);
		EXPECT_EQ(NULL, strstr(said, "rank 0"));
		EXPECT_EQ(NULL, strstr(said, "rank 1"));
		EXPECT_EQ(NULL, strstr(said, "rank 3"));
		exactly += !!strstr(said, after);
	}
	/* The first whose time was up; the others began a little later. */
	EXPECT_LT(0, exactly);
	/* The one that stopped finds its world failed, and blames nobody. */
	ranks_kill(&self->r, 2, SIGCONT);
	see(_metadata, self, 0, -ETIMEDOUT, "", 0, 0);
	EXPECT_NE(NULL, strstr(self->scene.shared->outcome[2].said, "gave up"));
}

TEST_F_TIMEOUT(death, stopped_before_a_small_one, 120)
{
	setenv("KCR_TIMEOUT", "2", 1);
	self->scene.count = 8;
	self->scene.actor = 2;
	self->scene.act = ACT_STOP;
	self->scene.at = 17;
	start(_metadata, self);
	see_timeout(_metadata, self,
		    "allreduce #17: no word from rank 2 after ");
}

TEST_F_TIMEOUT(death, stopped_before_a_barrier, 120)
{
	setenv("KCR_TIMEOUT", "2", 1);
	self->scene.actor = 2;
	self->scene.act = ACT_STOP;
	self->scene.at = 17;
	start(_metadata, self);
	see_timeout(_metadata, self,
		    "barrier #17: no word from rank 2 after ");
}

TEST_F_TIMEOUT(death, stopped_before_a_large_one, 120)
{
	setenv("KCR_TIMEOUT", "2", 1);
	setenv("KCR_ALGO", "owner", 1);
	self->scene.count = 300000;
	self->scene.actor = 2;
	self->scene.act = ACT_STOP;
	self->scene.at = 3;
	start(_metadata, self);
	see_timeout(_metadata, self,
		    "allreduce #3: no word from rank 2 after ");
}

/* Somewhere inside, asleep or not. */
TEST_F_TIMEOUT(death, stopped_in_mid_allreduce, 240)
{
	int round, rounds = ranks_link_is_module() ? 3 : 6;

	setenv("KCR_TIMEOUT", "2", 1);
	for (round = 0; round < rounds; round++) {
		if (round % 3 == 1) {
			setenv("KCR_SPIN", "0", 1);
			setenv("KCR_YIELD", "0", 1);
		} else {
			unsetenv("KCR_SPIN");
			unsetenv("KCR_YIELD");
		}
		self->scene.count = round % 3 == 2 ? 8 : 300000;
		start(_metadata, self);
		let_run(_metadata, self, 2 + round);
		self->scene.shared->acted = ranks_now();
		ranks_kill(&self->r, 2, SIGSTOP);
		see_timeout(_metadata, self, "no word from rank 2 after ");
		ranks_end(&self->r);
		self->started = 0;
	}
}

/* What the ranks other than rank 2 have computed by now. */
static void take_cpu(const struct ranks *r, double *cpu)
{
	int rank;

	for (rank = 0; rank < RANKS; rank++)
		cpu[rank] = rank == 2 ? 0 : ranks_cpu(r->pid[rank]);
}

/* Who waits sleeps, most of the time, and does not spin. */
static void expect_asleep(struct __test_metadata *_metadata, int rank, double cpu,
			  double seconds)
{
	TH_LOG("rank %d computed for %.3f s of %.3f s", rank, cpu, seconds);
	EXPECT_LE(0, cpu);
	EXPECT_LT(cpu, seconds / 4);
}

/* 16 MiB: the others have begun with it, and wait in the middle, in more than one way. */
TEST_F_TIMEOUT(death, stopped_in_16_mib, 120)
{
	static const char *const algorithms[] = { "owner", "chain" };
	double cpu[RANKS];
	int i, r;

	/* Longer than a slow machine is busy with what the others have in their hands. */
	setenv("KCR_TIMEOUT", "4", 1);
	self->scene.count = BYTES_16_MIB / sizeof(float);
	for (i = 0; i < 2; i++) {
		setenv("KCR_ALGO", algorithms[i], 1);
		start(_metadata, self);
		let_run(_metadata, self, 1);
		self->scene.shared->acted = ranks_now();
		ranks_kill(&self->r, 2, SIGSTOP);
		take_cpu(&self->r, cpu);
		see_timeout(_metadata, self, "no word from rank 2 after ");
		for (r = 0; r < RANKS; r++) {
			struct ranks_outcome *o = &self->scene.shared->outcome[r];

			if (r != 2)
				expect_asleep(_metadata, r, o->cpu - cpu[r],
					      o->at - self->scene.shared->acted);
		}
		ranks_end(&self->r);
		self->started = 0;
	}
}

/* Calls go on as if nothing had been, and who waits says so, once. */
TEST_F_TIMEOUT(death, continued_in_time, 120)
{
	char line[512];
	FILE *log = tmpfile();
	int r, warnings[RANKS] = { 0 };

	ASSERT_NE(NULL, log);
	setenv("KCR_WARN", "0.3", 1);
	for (r = 0; r < RANKS; r++)
		self->scene.stderr_of[r] = log;
	self->scene.count = 8;
	self->scene.calls = 40;
	self->scene.actor = 2;
	self->scene.act = ACT_STOP;
	self->scene.at = 17;
	start(_metadata, self);
	let_run(_metadata, self, 16);
	ranks_sleep(1.5);
	for (r = 0; r < RANKS; r++)
		EXPECT_EQ(16, self->scene.shared->progress[r]);
	ranks_kill(&self->r, 2, SIGCONT);
	see(_metadata, self, 0, 0, "", 0, 0);
	rewind(log);
	while (fgets(line, sizeof(line), log)) {
		ASSERT_EQ(1, sscanf(line, "kcollring: rank %d:", &r));
		EXPECT_NE(NULL, strstr(line, ": allreduce #17: no word from rank 2 for 0.3 s")) {
			TH_LOG("%s", line);
		}
		warnings[r]++;
	}
	fclose(log);
	for (r = 0; r < RANKS; r++)
		EXPECT_EQ(r != 2, warnings[r]);
}

struct bits_job {
	struct scene *scene;
	size_t count;
	int calls;
};

static int reduce_and_compare(int rank, void *arg)
{
	const struct bits_job *job = arg;
	float *x = malloc(job->count * sizeof(float));
	float *want = malloc(job->count * sizeof(float));
	struct kcr_world *w;
	int i;

	RANK_TRUE(x && want);
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	for (i = 0; i < job->calls; i++) {
		data_fill(x, job->count, KCR_F32, rank, i);
		RANK_OK(w, kcr_allreduce(w, x, x, job->count, KCR_F32, KCR_SUM));
		RANK_OK(NULL, data_expect(want, job->count, KCR_F32, KCR_SUM,
					  kcr_size(w), i));
		RANK_TRUE(data_differ(want, x, job->count, KCR_F32) < 0);
		job->scene->shared->progress[rank] = i + 1;
	}
	RANK_OK(NULL, kcr_world_destroy(w));
	free(x);
	free(want);
	return 0;
}

/* One sum of 16 MiB, which all begin together with whoever stops them. */
static int sum_16_mib(int rank, void *arg)
{
	const size_t count = BYTES_16_MIB / sizeof(float);
	struct shared *shared = arg;
	float *x = malloc(BYTES_16_MIB), *want = malloc(BYTES_16_MIB);
	struct kcr_world *w;

	RANK_TRUE(x && want);
	data_fill(x, count, KCR_F32, rank, 1);
	RANK_OK(NULL, data_expect(want, count, KCR_F32, KCR_SUM, RANKS, 1));
	RANK_OK(NULL, kcr_world_create(NULL, &w));
	ranks_meet(&shared->meeting, RANKS + 1);
	RANK_OK(w, kcr_allreduce(w, x, x, count, KCR_F32, KCR_SUM));
	shared->progress[rank] = 1;
	RANK_TRUE(data_differ(want, x, count, KCR_F32) < 0);
	RANK_OK(NULL, kcr_world_destroy(w));
	free(x);
	free(want);
	return 0;
}

TEST_F_TIMEOUT(death, continued_in_16_mib, 240)
{
	struct shared *shared = self->scene.shared;
	double cpu[RANKS], now[RANKS], begin;
	int round, r, stopped = 0;

	for (round = 0; round < 10 && stopped < 2; round++) {
		memset(shared, 0, sizeof(*shared));
		self->started = 1;
		ASSERT_EQ(0, ranks_start(&self->r, RANKS, sum_16_mib, shared));
		ranks_meet(&shared->meeting, RANKS + 1);
		ranks_sleep(0.003 * round);
		ranks_kill(&self->r, 2, SIGSTOP);
		begin = ranks_now();
		take_cpu(&self->r, cpu);
		ranks_sleep(1.5);
		take_cpu(&self->r, now);
		/* It may have been too late for that. */
		if (!shared->progress[2]) {
			stopped++;
			for (r = 0; r < RANKS; r++)
				if (r != 2)
					expect_asleep(_metadata, r, now[r] - cpu[r],
						      ranks_now() - begin);
		}
		ranks_kill(&self->r, 2, SIGCONT);
		EXPECT_EQ(0, ranks_wait(&self->r, LONG));
		EXPECT_EQ(0, ranks_report(&self->r));
		ranks_end(&self->r);
		self->started = 0;
	}
	EXPECT_EQ(2, stopped);
}

/* Stop and continue ranks at random while they reduce: all bits are right. */
TEST_F_TIMEOUT(death, stopped_and_continued_again_and_again, 240)
{
	int large = ranks_link_is_module() ? 50000 : 200000;
	struct bits_job jobs[] = {
		{ &self->scene, .count = 3000, .calls = ranks_rounds(1600) },
		{ &self->scene, .count = large, .calls = ranks_rounds(32) + 4 },
	};
	uint64_t random = 1;
	int i, stops;

	for (i = 0; i < 2; i++) {
		self->started = 1;
		ASSERT_EQ(0, ranks_start(&self->r, RANKS, reduce_and_compare,
					 &jobs[i]));
		for (stops = 0; ranks_wait(&self->r, 0); stops++) {
			int victim = data_random(&random) % RANKS;

			ranks_kill(&self->r, victim, SIGSTOP);
			ranks_sleep(data_random(&random) % 1000 / 2e4);
			ranks_kill(&self->r, victim, SIGCONT);
			ranks_sleep(data_random(&random) % 1000 / 5e4);
			ASSERT_LT(stops, 3000);
		}
		TH_LOG("%d stops in %d allreduces of %zu", stops, jobs[i].calls,
		       jobs[i].count);
		EXPECT_EQ(0, ranks_report(&self->r));
		ranks_end(&self->r);
		self->started = 0;
	}
}

TEST_HARNESS_MAIN
