// SPDX-License-Identifier: GPL-2.0
/*
 * A whole world without memory: each allocation and copy that the kernel makes for one of
 * two ranks fails in turn, from the making of the world over an allreduce to its end
 *
 * A call gives an error, or has done all that it should: a rank for which all went well has
 * the right bits. Both ranks end, in time, and nothing is left behind.
 */
#include "kselftest_harness.h"
#include "data.h"
#include "faults.h"
#include "ranks.h"

#define COUNT	5000
#define MOST	20000

struct scene {
	int nth;
	int armed;		/* the rank */
	struct {
		int err;
		int was_hit;
		int is_wrong;
		char said[256];
	} of[2];
};

FIXTURE(fail_nth) {
	struct dev_counters before;
	struct scene *scene;
};

FIXTURE_SETUP(fail_nth)
{
	const char *missing = dev_missing();

	if (!missing)
		missing = faults_missing();
	if (missing)
		SKIP(return, "%s", missing);
	setenv("KCR_LINK", "module", 1);
	setenv("KCR_TIMEOUT", "10", 1);
	/* For a rank whose peer did not get as far as to say that it is there. */
	setenv("KCR_RENDEZVOUS_TIMEOUT", "4", 1);
	self->before = dev_counters();
	self->scene = ranks_shared(sizeof(*self->scene));
	ASSERT_NE(NULL, self->scene);
}

FIXTURE_TEARDOWN(fail_nth)
{
	if (self->scene)
		munmap(self->scene, sizeof(*self->scene));
}

static int whole(const float *in, float *out, char said[256])
{
	struct kcr_world *w;
	int err, end;

	err = kcr_world_create(NULL, &w);
	if (err) {
		snprintf(said, 256, "%s", kcr_error(NULL));
		return err;
	}
	err = kcr_allreduce(w, in, out, COUNT, KCR_F32, KCR_SUM);
	if (err)
		snprintf(said, 256, "%s", kcr_error(w));
	end = kcr_world_destroy(w);
	return err ? err : end;
}

static int rank_main(int rank, void *arg)
{
	static float in[2][COUNT], out[COUNT], right[COUNT];
	const void *const all[2] = { in[0], in[1] };
	struct scene *s = arg;
	struct faults f;

	for (int i = 0; i < 2; i++)
		data_fill(in[i], COUNT, KCR_F32, i, 7);
	memset(out, 0xff, sizeof(out));
	RANK_OK(NULL, kcr_reference_fold(all, 2, right, COUNT, KCR_F32, KCR_SUM));
	RANK_OK(NULL, faults_open(&f));
	f.nth = rank == s->armed ? s->nth : 0;
	s->of[rank].err = FAULTS_IN(&f, whole(in[rank], out, s->of[rank].said));
	s->of[rank].was_hit = f.was_hit;
	s->of[rank].is_wrong = memcmp(out, right, sizeof(out)) != 0;
	return 0;
}

/* Once. Returns whether something was made to fail. */
static bool attempt(struct __test_metadata *_metadata, struct scene *s, int nth)
{
	struct dev_counters before = dev_counters();

	s->nth = nth;
	EXPECT_EQ(0, ranks_run(2, rank_main, s, 60)) {
		TH_LOG("step %d", nth);
	}
	for (int i = 0; i < 2; i++) {
		if (s->of[i].err) {
			EXPECT_TRUE(s->of[s->armed].was_hit) {
				TH_LOG("step %d: rank %d: %s", nth, i, strerror(-s->of[i].err));
			}
		} else {
			EXPECT_FALSE(s->of[i].is_wrong) {
				TH_LOG("step %d: rank %d has wrong bits", nth, i);
			}
		}
	}
	DEV_EXPECT_NOTHING_LEFT(&before);
	return s->of[s->armed].was_hit;
}

static void sweep(struct __test_metadata *_metadata, struct scene *s, int rank)
{
	int nth, failed = 0, tried = 0;

	s->armed = rank;
	EXPECT_FALSE(attempt(_metadata, s, 0));
	EXPECT_EQ(0, s->of[0].err | s->of[1].err);
	/* Closer together at first, where most of them are in calls of ours. */
	for (nth = 1; nth < MOST; nth += getenv("KCR_TEST_LONG") ? 1 : 1 + nth / 8) {
		if (!attempt(_metadata, s, nth))
			break;
		tried++;
		if (!s->of[rank].err)
			continue;
		failed++;
		TH_LOG("step %d: %s (%s)", nth, s->of[rank].said, strerror(-s->of[rank].err));
	}
	TH_LOG("%d of up to %d steps, of which the world did not survive %d", tried, nth, failed);
	EXPECT_GT(MOST, nth);
	EXPECT_LT(5, failed);
	/* None was hit in the last one. */
	EXPECT_EQ(0, s->of[0].err | s->of[1].err);
}

TEST_F_TIMEOUT(fail_nth, of_rank_0, 900)
{
	sweep(_metadata, self->scene, 0);
}

TEST_F_TIMEOUT(fail_nth, of_rank_1, 900)
{
	sweep(_metadata, self->scene, 1);
}

TEST_HARNESS_MAIN
