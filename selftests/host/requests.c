// SPDX-License-Identifier: GPL-2.0
/*
 * Requests: what kcr_test() and kcr_wait() promise, over the emulator and in a
 * world of one
 *
 * That every request is freed by its wait shows under the address sanitizer.
 */
#include "kselftest_harness.h"
#include "emu.h"

#define RANKS	3
#define COUNT	200	/* many segments: slots hold 32 bytes of payload */
#define FLIGHT	6

FIXTURE(requests) {
	struct kcr_emu *emu;
	struct kcr_world *w[RANKS];
	float x[RANKS][COUNT];
	float y[FLIGHT][RANKS][COUNT];
	float want[COUNT];
	struct kcr_request *r[FLIGHT][RANKS];
};

FIXTURE_SETUP(requests)
{
	struct kcr_config config = emu_config(RANKS, KCR_ALGO_AUTO, 64);
	const void *in[RANKS];
	int rank;

	config.direct_max = 100;
	ASSERT_EQ(0, kcr_emu_create_config(&config, &self->emu));
	for (rank = 0; rank < RANKS; rank++) {
		self->w[rank] = kcr_emu_world(self->emu, rank);
		ASSERT_NE(NULL, self->w[rank]);
		data_fill(self->x[rank], COUNT, KCR_F32, rank, 1);
		in[rank] = self->x[rank];
	}
	ASSERT_EQ(0, kcr_reference_fold(in, RANKS, self->want, COUNT, KCR_F32,
					KCR_SUM));
}

FIXTURE_TEARDOWN(requests)
{
	kcr_emu_destroy(self->emu);
}

/* Rank @rank's allreduce number @i. */
static int issue(FIXTURE_DATA(requests) * self, int i, int rank)
{
	return kcr_iallreduce(self->w[rank], self->x[rank], self->y[i][rank],
			      COUNT, KCR_F32, KCR_SUM, &self->r[i][rank]);
}

static int is_right(FIXTURE_DATA(requests) * self, int i, int rank)
{
	return data_differ(self->y[i][rank], self->want, COUNT, KCR_F32) < 0;
}

TEST_F(requests, none_is_done_before_all_have_come)
{
	int rank, done = 7;

	for (rank = 0; rank < RANKS; rank++) {
		ASSERT_EQ(0, issue(self, 0, rank));
		ASSERT_NE(NULL, self->r[0][rank]);
	}
	/* The first look cannot have moved all segments. */
	ASSERT_EQ(0, kcr_test(self->r[0][0], &done));
	ASSERT_EQ(0, done);
	for (rank = 0; rank < RANKS; rank++) {
		do {
			ASSERT_EQ(0, kcr_test(self->r[0][rank], &done));
		} while (!done);
		ASSERT_EQ(1, done);
		EXPECT_TRUE(is_right(self, 0, rank));
		/* Done is done. */
		ASSERT_EQ(0, kcr_test(self->r[0][rank], &done));
		ASSERT_EQ(1, done);
		ASSERT_EQ(0, kcr_wait(self->r[0][rank]));
	}
}

/* When one is done, so are those that were issued before. */
TEST_F(requests, complete_in_the_order_of_issue)
{
	int i, j, rank, done;

	for (i = 0; i < FLIGHT; i++)
		for (rank = RANKS - 1; rank >= 0; rank--)
			ASSERT_EQ(0, issue(self, i, rank));
	kcr_emu_shuffle(self->emu, 3);
	for (i = FLIGHT - 1; i >= 0; i -= 2) {
		do {
			ASSERT_EQ(0, kcr_test(self->r[i][1], &done));
		} while (!done);
		for (j = 0; j <= i; j++)
			EXPECT_TRUE(is_right(self, j, 1));
		for (j = 0; j <= i; j++) {
			ASSERT_EQ(0, kcr_test(self->r[j][1], &done));
			EXPECT_EQ(1, done);
		}
	}
	for (i = 0; i < FLIGHT; i++)
		for (rank = 0; rank < RANKS; rank++)
			ASSERT_EQ(0, kcr_wait(self->r[i][rank]));
}

TEST_F(requests, waited_for_in_reverse)
{
	int i, rank;

	for (i = 0; i < FLIGHT; i++)
		for (rank = 0; rank < RANKS; rank++)
			ASSERT_EQ(0, issue(self, i, rank));
	for (i = FLIGHT - 1; i >= 0; i--)
		for (rank = RANKS - 1; rank >= 0; rank--) {
			ASSERT_EQ(0, kcr_wait(self->r[i][rank]));
			EXPECT_TRUE(is_right(self, i, rank));
		}
}

/* A message does not wait for a collective that somebody has not called yet. */
TEST_F(requests, messages_pass_collectives)
{
	struct kcr_request *send, *receive;
	char from[500], to[500];
	int rank;

	memset(from, 'm', sizeof(from));
	ASSERT_EQ(0, issue(self, 0, 0));
	ASSERT_EQ(0, issue(self, 0, 2));
	ASSERT_EQ(0, kcr_isend(self->w[0], from, sizeof(from), 2, &send));
	ASSERT_EQ(0, kcr_irecv(self->w[2], to, sizeof(to), 0, &receive));
	ASSERT_EQ(0, kcr_wait(receive));
	ASSERT_EQ(0, kcr_wait(send));
	EXPECT_EQ(0, memcmp(from, to, sizeof(from)));
	ASSERT_EQ(0, issue(self, 0, 1));
	for (rank = 0; rank < RANKS; rank++) {
		ASSERT_EQ(0, kcr_wait(self->r[0][rank]));
		EXPECT_TRUE(is_right(self, 0, rank));
	}
}

/*
 * Rank 1 comes when all that could be sent has long arrived: what it takes
 * at once gives room to rank 0, which nobody else would tell.
 */
static void late(struct __test_metadata *_metadata,
		 FIXTURE_DATA(requests) * self, int waits_first)
{
	struct kcr_request *r[RANKS], *send, *receive;
	char from[2000] = { 1 }, to[2000];
	int rank;

	for (rank = 0; rank < RANKS; rank += 2)
		ASSERT_EQ(0, kcr_ibroadcast(self->w[rank], self->x[rank], COUNT,
					    KCR_F32, 0, &r[rank]));
	/* There and back: the emulator delivers everything, and rank 0 has looked. */
	ASSERT_EQ(0, kcr_isend(self->w[0], from, sizeof(from), 2, &send));
	ASSERT_EQ(0, kcr_irecv(self->w[2], to, sizeof(to), 0, &receive));
	ASSERT_EQ(0, kcr_wait(receive));
	ASSERT_EQ(0, kcr_wait(send));
	for (rank = 0; rank < 3; rank++) {
		ASSERT_EQ(0, kcr_isend(self->w[2], from, 1, 0, &send));
		ASSERT_EQ(0, kcr_irecv(self->w[0], to, 1, 2, &receive));
		ASSERT_EQ(0, kcr_wait(receive));
		ASSERT_EQ(0, kcr_wait(send));
	}
	ASSERT_EQ(0, kcr_ibroadcast(self->w[1], self->x[1], COUNT, KCR_F32, 0,
				    &r[1]));
	for (rank = 0; rank < RANKS; rank++)
		ASSERT_EQ(0, kcr_wait(r[(waits_first + rank) % RANKS])) {
			TH_LOG("%s", kcr_error(self->w[(waits_first + rank) %
						       RANKS]));
		}
	for (rank = 0; rank < RANKS; rank++)
		EXPECT_GT(0, data_differ(self->x[rank], self->x[0], COUNT,
					 KCR_F32));
}

TEST_F(requests, who_comes_late_waits_first)
{
	late(_metadata, self, 1);
}

TEST_F(requests, who_comes_late_waits_last)
{
	late(_metadata, self, 2);
}

TEST_F(requests, outlive_their_world)
{
	int rank, done;

	for (rank = 0; rank < RANKS; rank++)
		ASSERT_EQ(0, issue(self, 0, rank));
	ASSERT_EQ(0, kcr_wait(self->r[0][0]));
	ASSERT_EQ(0, issue(self, 1, 0));
	ASSERT_EQ(0, issue(self, 1, 1));
	do {
		ASSERT_EQ(0, kcr_test(self->r[0][1], &done));
	} while (!done);
	kcr_emu_destroy(self->emu);
	self->emu = NULL;
	/* What was done stays so; the rest has failed. */
	ASSERT_EQ(0, kcr_test(self->r[0][1], &done));
	EXPECT_EQ(1, done);
	EXPECT_EQ(0, kcr_wait(self->r[0][1]));
	EXPECT_TRUE(is_right(self, 0, 1));
	done = 0;
	EXPECT_EQ(-ESHUTDOWN, kcr_test(self->r[1][0], &done));
	EXPECT_EQ(1, done);
	EXPECT_EQ(-ESHUTDOWN, kcr_wait(self->r[1][0]));
	EXPECT_EQ(-ESHUTDOWN, kcr_wait(self->r[1][1]));
	done = kcr_wait(self->r[0][2]);
	EXPECT_TRUE(done == 0 || done == -ESHUTDOWN);
}

TEST_F(requests, without_arguments)
{
	struct kcr_request *r = (void *)1;
	int done = 7, flag;

	EXPECT_EQ(-EINVAL, kcr_wait(NULL));
	EXPECT_STREQ("request is NULL", kcr_error(NULL));
	EXPECT_EQ(-EINVAL, kcr_test(NULL, &done));
	EXPECT_EQ(7, done);
	EXPECT_EQ(-EINVAL, kcr_ibarrier(self->w[0], NULL));
	EXPECT_EQ(-EINVAL, kcr_ibarrier(NULL, &r));
	EXPECT_EQ(NULL, r);
	EXPECT_EQ(-EINVAL, kcr_iany(self->w[0], 1, NULL, &r));
	EXPECT_EQ(-EINVAL, kcr_iany(self->w[0], 1, &flag, NULL));
	EXPECT_EQ(-EINVAL, kcr_isend(self->w[0], "", 1, 0, &r));
	EXPECT_EQ(-EINVAL, kcr_irecv(self->w[0], &flag, 1, RANKS, &r));
	EXPECT_EQ(-EINVAL, kcr_ibroadcast(self->w[0], &flag, 1, KCR_U8, -1, &r));
	EXPECT_EQ(NULL, r);
	/* Nothing was queued by these, and nothing numbered. */
	for (done = 0; done < RANKS; done++)
		ASSERT_EQ(0, issue(self, 0, done));
	EXPECT_EQ(-EINVAL, kcr_test(self->r[0][0], NULL));
	for (done = 0; done < RANKS; done++)
		ASSERT_EQ(0, kcr_wait(self->r[0][done]));
	EXPECT_TRUE(is_right(self, 0, 0));
}

/* Each in turn, on each rank; then the world does what it did before. */
TEST_F(requests, blocking_calls_are_refused)
{
	int rank, flag = 5;

	for (rank = 0; rank < RANKS; rank++) {
		struct kcr_world *w = self->w[rank];
		float *x = self->x[rank], *y = self->y[0][rank];

		EXPECT_EQ(-EDEADLK, kcr_allreduce(w, x, y, COUNT, KCR_F32, KCR_SUM));
		EXPECT_NE(NULL, strstr(kcr_error(w), "use requests"));
		EXPECT_EQ(-EDEADLK, kcr_reduce_scatter(w, x, y, 1, KCR_F32, KCR_SUM));
		EXPECT_EQ(-EDEADLK, kcr_allgather(w, x, y, 1, KCR_F32));
		EXPECT_EQ(-EDEADLK, kcr_broadcast(w, y, 1, KCR_F32, 0));
		EXPECT_EQ(-EDEADLK, kcr_send(w, x, 1, (rank + 1) % RANKS));
		EXPECT_EQ(-EDEADLK, kcr_recv(w, y, 1, (rank + 1) % RANKS));
		EXPECT_EQ(-EDEADLK, kcr_barrier(w));
		EXPECT_EQ(-EDEADLK, kcr_any(w, 1, &flag));
		EXPECT_EQ(-EINVAL, kcr_allreduce(w, NULL, y, 1, KCR_F32, KCR_SUM));
	}
	for (rank = 0; rank < RANKS; rank++)
		ASSERT_EQ(0, issue(self, 0, rank));
	for (rank = 0; rank < RANKS; rank++) {
		ASSERT_EQ(0, kcr_wait(self->r[0][rank]));
		EXPECT_TRUE(is_right(self, 0, rank));
	}
}

TEST_F(requests, a_world_of_an_emulator_is_its_own)
{
	struct kcr_world *part = (void *)1;

	EXPECT_EQ(-EINVAL, kcr_world_destroy(self->w[1]));
	EXPECT_EQ(-EOPNOTSUPP, kcr_world_split(self->w[1], 0, 0, &part));
	EXPECT_EQ(NULL, part);
	EXPECT_EQ(1, kcr_rank(self->w[1]));
	EXPECT_EQ(RANKS, kcr_size(self->w[1]));
	EXPECT_EQ(NULL, kcr_emu_world(self->emu, RANKS));
	EXPECT_EQ(NULL, kcr_emu_world(self->emu, -1));
	EXPECT_EQ(NULL, kcr_emu_world(NULL, 0));
}

/* For each errno that the library has a meaning for, too; and at once. */
TEST_F(requests, an_abort_ends_them_all)
{
	static const int codes[] = { EIO, 4095, EPROTO, ETIMEDOUT, ECONNRESET, ESHUTDOWN };
	double since = emu_now();
	struct kcr_request *r;
	int i, j, rank, done;

	for (i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		for (j = 0; j < 2; j++)
			for (rank = 0; rank < RANKS; rank++)
				ASSERT_EQ(0, issue(self, j, rank));
		ASSERT_EQ(-EINVAL, kcr_abort(self->w[1], 0));
		ASSERT_EQ(-EINVAL, kcr_abort(self->w[1], 4096));
		ASSERT_EQ(0, kcr_test(self->r[0][0], &done));
		ASSERT_EQ(0, done);
		ASSERT_EQ(0, kcr_abort(self->w[1], codes[i]));
		ASSERT_EQ(-codes[i], kcr_test(self->r[0][1], &done));
		ASSERT_EQ(1, done);
		for (j = 0; j < 2; j++)
			for (rank = 0; rank < RANKS; rank++)
				EXPECT_EQ(-codes[i], kcr_wait(self->r[j][rank]));
		for (rank = 0; rank < RANKS; rank++) {
			EXPECT_EQ(-codes[i], kcr_ibarrier(self->w[rank], &r));
			EXPECT_EQ(NULL, r);
			EXPECT_EQ(-codes[i], kcr_barrier(self->w[rank]));
			EXPECT_EQ(-codes[i], kcr_abort(self->w[rank], EIO));
		}
		kcr_emu_destroy(self->emu);
		requests_setup(_metadata, self, NULL);
	}
	EXPECT_GT(2, emu_now() - since);
}

/* A world of one: all is done at once, and outlives the world. */
TEST(alone)
{
	struct kcr_config config;
	struct kcr_request *r[6] = { NULL };
	float x[4] = { 1, 2, 3, 4 }, y[4] = { 0 }, z[4] = { 0 };
	struct kcr_world *w;
	int i, flag, done;

	kcr_config_init(&config);
	config.size = 1;
	config.rank = 0;
	ASSERT_EQ(0, kcr_world_create(&config, &w));
	EXPECT_EQ(0, kcr_iallreduce(w, x, y, 4, KCR_F32, KCR_MEAN, &r[0]));
	EXPECT_EQ(0, kcr_ireduce_scatter(w, x, x, 4, KCR_F32, KCR_SUM, &r[1]));
	EXPECT_EQ(0, kcr_iallgather(w, x, z, 4, KCR_F32, &r[2]));
	EXPECT_EQ(0, kcr_ibroadcast(w, x, 4, KCR_F32, 0, &r[3]));
	EXPECT_EQ(0, kcr_ibarrier(w, &r[4]));
	EXPECT_EQ(0, kcr_iany(w, 2, &flag, &r[5]));
	for (i = 0; i < 6; i++) {
		done = 0;
		EXPECT_EQ(0, kcr_test(r[i], &done));
		EXPECT_EQ(1, done);
	}
	EXPECT_EQ(0, memcmp(x, y, sizeof(x)));
	EXPECT_EQ(0, memcmp(x, z, sizeof(x)));
	EXPECT_EQ(1, flag);
	EXPECT_EQ(0, kcr_wait(r[5]));
	EXPECT_EQ(0, kcr_world_destroy(w));
	for (i = 0; i < 5; i++)
		EXPECT_EQ(0, kcr_wait(r[i]));
}

/* Over the emulator too, where blocking calls work if nobody is waited for. */
TEST(alone_in_an_emulator)
{
	struct kcr_emu *emu;
	struct kcr_world *w;
	struct kcr_request *r;
	int x = 5, y = 0, flag;

	ASSERT_EQ(0, kcr_emu_create(1, &emu));
	w = kcr_emu_world(emu, 0);
	EXPECT_EQ(0, kcr_allreduce(w, &x, &y, 1, KCR_I32, KCR_SUM));
	EXPECT_EQ(5, y);
	EXPECT_EQ(0, kcr_barrier(w));
	EXPECT_EQ(0, kcr_any(w, 0, &flag));
	EXPECT_EQ(0, flag);
	EXPECT_EQ(0, kcr_iany(w, 3, &flag, &r));
	EXPECT_EQ(0, kcr_emu_shuffle(emu, 1));
	EXPECT_EQ(0, kcr_emu_order(emu, (const int []){ 0 }, 1));
	kcr_emu_destroy(emu);
	EXPECT_EQ(0, kcr_wait(r));
	EXPECT_EQ(1, flag);
	kcr_emu_destroy(NULL);
}

TEST_HARNESS_MAIN
