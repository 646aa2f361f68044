// SPDX-License-Identifier: GPL-2.0
/*
 * Memory hooks: user memory that the CPU cannot touch
 *
 * The pretend device's memory is mapped without any permission, and a shadow at
 * a constant distance holds its contents: whoever reads or writes it other
 * than through the hooks gets SIGSEGV.
 */
#include <sys/mman.h>

#include "kselftest_harness.h"
#include "emu.h"

#define RANKS		4
#define COUNT		300
#define DEVICE_BYTES	(1 << 20)

struct device {
	unsigned char *memory;		/* PROT_NONE */
	unsigned char *shadow;
	size_t used;
	unsigned long copies;
	long fail_at;			/* the copy that fails, from 1; 0 never */
	int error;
};

FIXTURE(hooks) {
	struct device device[RANKS];
};

FIXTURE_SETUP(hooks)
{
	int rank;

	for (rank = 0; rank < RANKS; rank++) {
		struct device *d = &self->device[rank];

		memset(d, 0, sizeof(*d));
		d->memory = mmap(NULL, DEVICE_BYTES, PROT_NONE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		ASSERT_NE(MAP_FAILED, (void *)d->memory);
		d->shadow = calloc(1, DEVICE_BYTES);
		ASSERT_NE(NULL, d->shadow);
	}
}

FIXTURE_TEARDOWN(hooks)
{
	int rank;

	for (rank = 0; rank < RANKS; rank++) {
		munmap(self->device[rank].memory, DEVICE_BYTES);
		free(self->device[rank].shadow);
	}
}

/* Where the device keeps what the user knows by this address, or NULL. */
static unsigned char *behind(const struct device *d, const void *user,
			     size_t bytes)
{
	const unsigned char *p = user;

	if (p < d->memory || bytes > DEVICE_BYTES ||
	    p > d->memory + DEVICE_BYTES - bytes)
		return NULL;
	return d->shadow + (p - d->memory);
}

static int count_copy(struct device *d)
{
	return ++d->copies == (unsigned long)d->fail_at ? d->error : 0;
}

static int copy_in(void *context, void *host, const void *user, size_t bytes)
{
	struct device *d = context;
	const unsigned char *from = behind(d, user, bytes);
	int err = count_copy(d);

	if (err)
		return err;
	if (!from)
		return -EFAULT;
	memcpy(host, from, bytes);
	return 0;
}

static int copy_out(void *context, void *user, const void *host, size_t bytes)
{
	struct device *d = context;
	unsigned char *to = behind(d, user, bytes);
	int err = count_copy(d);

	if (err)
		return err;
	if (!to)
		return -EFAULT;
	memcpy(to, host, bytes);
	return 0;
}

static void *device_alloc(struct device *d, size_t bytes)
{
	void *user = d->memory + d->used;

	d->used += (bytes + 63) & ~63ul;
	if (d->used > DEVICE_BYTES)
		abort();
	return user;
}

/* The emulator's worlds share a configuration, and so one device: each rank has a part. */
static struct kcr_config with_device(struct device *d, int ranks,
				     enum kcr_algo algo)
{
	struct kcr_config config = emu_config(ranks, algo, 64);

	config.copy_in = copy_in;
	config.copy_out = copy_out;
	config.copy_context = d;
	config.direct_max = 100;
	return config;
}

/* One allreduce in device memory, against the oracle in host memory. */
static void allreduce(struct __test_metadata *_metadata, struct device *d,
		      struct kcr_emu *emu, int ranks, size_t count,
		      enum kcr_dtype dtype, enum kcr_op op, int in_place)
{
	size_t bytes = count * kcr_dtype_size(dtype);
	void *x[RANKS], *y[RANKS], *want = malloc(bytes + 1);
	struct kcr_request *r[RANKS];
	const void *in[RANKS];
	unsigned char *copies = malloc(RANKS * bytes + 1);
	int rank;

	d->used = 0;
	for (rank = 0; rank < ranks; rank++) {
		x[rank] = device_alloc(d, bytes);
		y[rank] = in_place ? x[rank] : device_alloc(d, bytes);
		emu_fill_from(behind(d, x[rank], bytes), 0, count, dtype, rank,
			      count);
		in[rank] = memcpy(copies + rank * bytes,
				  behind(d, x[rank], bytes), bytes);
	}
	kcr_reference_fold(in, ranks, want, count, dtype, op);
	for (rank = 0; rank < ranks; rank++)
		ASSERT_EQ(0, kcr_iallreduce(kcr_emu_world(emu, rank), x[rank],
					    y[rank], count, dtype, op, &r[rank]));
	for (rank = 0; rank < ranks; rank++) {
		ASSERT_EQ(0, kcr_wait(r[rank]));
		ASSERT_GT(0, data_differ(behind(d, y[rank], bytes), want, count,
					 dtype));
		if (!in_place)
			ASSERT_GT(0, data_differ(behind(d, x[rank], bytes),
						 in[rank], count, dtype));
	}
	free(copies);
	free(want);
}

TEST_F(hooks, allreduce_of_everything)
{
	static const size_t counts[] = { 0, 1, 4, 5, 8, 9, COUNT };
	double since = emu_now();
	unsigned long rounds = 0;
	struct kcr_config config;
	struct kcr_emu *emu;
	int algo, ranks, any, dtype, op, i;

	for (algo = KCR_ALGO_AUTO; algo <= KCR_ALGO_CHAIN; algo++)
		for (ranks = 1; ranks <= RANKS; ranks++)
			for (any = 0; any < 2; any++) {
				config = with_device(&self->device[0], ranks, algo);
				/* Of W = 3 any-order gives what it gives: see any_order. */
				config.contract = any && ranks < 3 ? KCR_ANY_ORDER :
								     KCR_FIXED_ORDER;
				ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
				for (dtype = 0; dtype < KCR_DTYPES; dtype++)
					for (i = 0; i < 7; i++) {
						op = (dtype + i) % (dtype < KCR_F16 ?
								    KCR_OPS : KCR_BAND);
						allreduce(_metadata, &self->device[0],
							  emu, ranks, counts[i],
							  dtype, op, i % 2 ^ any);
						rounds++;
					}
				kcr_emu_destroy(emu);
			}
	emu_report("allreduce through hooks", rounds, since, 1);
	/* They were used. */
	ASSERT_LT(rounds, self->device[0].copies);
}

/* Every other collective, and messages, between devices, on rank @rank. */
static int start(struct kcr_world *w, float *x, float *y, int *flag, int what,
		 int in_place, struct kcr_request *r[2])
{
	int rank = kcr_rank(w), err;
	float *own = x + rank * COUNT;

	r[0] = NULL;
	r[1] = NULL;
	switch (what) {
	case 0:
		return kcr_ireduce_scatter(w, x, in_place ? own : y, COUNT,
					   KCR_F32, KCR_SUM, r);
	case 1:
		return kcr_iallgather(w, own, in_place ? x : y, COUNT, KCR_F32, r);
	case 2:
		return kcr_ibroadcast(w, x, COUNT, KCR_F32, 2, r);
	case 3:
		return kcr_iany(w, rank == 3, flag, r);
	case 4:
		return kcr_ibarrier(w, r);
	default:
		err = kcr_isend(w, x, 4 * COUNT, (rank + 1) % RANKS, r);
		return err ?: kcr_irecv(w, y, 4 * COUNT, (rank + 3) % RANKS, r + 1);
	}
}

/* Element @i of what rank @rank has when it is over. */
static float wanted(float copies[RANKS][RANKS * COUNT], int rank, int what, int i)
{
	const void *in[RANKS];
	float out;
	int k;

	if (what == 1)
		return copies[i / COUNT][i];
	if (what == 2)
		return copies[2][i];
	if (what == 5)
		return copies[(rank + 3) % RANKS][i];
	for (k = 0; k < RANKS; k++)
		in[k] = &copies[k][rank * COUNT + i];
	kcr_reference_fold(in, RANKS, &out, 1, KCR_F32, KCR_SUM);
	return out;
}

static void check_all(struct __test_metadata *_metadata, struct device *d,
		      float *x[RANKS], float *y[RANKS], int flags[RANKS], int what,
		      int in_place, float copies[RANKS][RANKS * COUNT])
{
	int rank, i, n = what == 1 ? RANKS * COUNT : COUNT;
	const float *got;
	float want;

	for (rank = 0; rank < RANKS; rank++) {
		if (what == 3)
			ASSERT_EQ(1, flags[rank]);
		if (what == 3 || what == 4)
			continue;
		got = what == 2 || in_place ? x[rank] : y[rank];
		if (what == 0 && in_place)
			got += rank * COUNT;
		if (what == 5)
			got = y[rank];
		got = (float *)behind(d, got, n * sizeof(float));
		for (i = 0; i < n; i++) {
			want = wanted(copies, rank, what, i);
			ASSERT_EQ(0, memcmp(&got[i], &want, sizeof(want)));
		}
	}
}

static void others(struct __test_metadata *_metadata, struct device *d,
		   enum kcr_algo algo)
{
	struct kcr_config config = with_device(d, RANKS, algo);
	static float copies[RANKS][RANKS * COUNT];
	struct kcr_request *r[RANKS][2];
	float *x[RANKS], *y[RANKS];
	int rank, what, in_place, flags[RANKS];
	struct kcr_emu *emu;

	ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
	for (what = 0; what < 6; what++)
		for (in_place = 0; in_place < 2; in_place++) {
			d->used = 0;
			for (rank = 0; rank < RANKS; rank++) {
				x[rank] = device_alloc(d, sizeof(copies[0]));
				y[rank] = device_alloc(d, sizeof(copies[0]));
				data_fill(copies[rank], RANKS * COUNT, KCR_F32,
					  rank, what);
				memcpy(behind(d, x[rank], sizeof(copies[0])),
				       copies[rank], sizeof(copies[0]));
			}
			for (rank = 0; rank < RANKS; rank++)
				ASSERT_EQ(0, start(kcr_emu_world(emu, rank), x[rank],
						   y[rank], &flags[rank], what,
						   in_place, r[rank]));
			for (rank = 0; rank < RANKS; rank++) {
				ASSERT_EQ(0, kcr_wait(r[rank][0])) {
					TH_LOG("operation %d: %s", what,
					       kcr_error(kcr_emu_world(emu, rank)));
				}
				if (r[rank][1])
					ASSERT_EQ(0, kcr_wait(r[rank][1]));
			}
			check_all(_metadata, d, x, y, flags, what, in_place, copies);
		}
	kcr_emu_destroy(emu);
}

TEST_F(hooks, the_other_operations)
{
	others(_metadata, &self->device[0], KCR_ALGO_DIRECT);
	others(_metadata, &self->device[0], KCR_ALGO_OWNER);
}

/* A world of one copies from device to device. */
TEST_F(hooks, alone)
{
	struct kcr_config config = with_device(&self->device[0], 1, KCR_ALGO_AUTO);
	struct device *d = &self->device[0];
	double *x = device_alloc(d, COUNT * sizeof(double));
	double *y = device_alloc(d, COUNT * sizeof(double));
	struct kcr_world *w;
	int flag = 0;

	config.rank = 0;
	ASSERT_EQ(0, kcr_world_create(&config, &w));
	data_fill(behind(d, x, COUNT * 8), COUNT, KCR_F64, 0, 1);
	ASSERT_EQ(0, kcr_allreduce(w, x, y, COUNT, KCR_F64, KCR_SUM));
	EXPECT_EQ(0, memcmp(behind(d, x, COUNT * 8), behind(d, y, COUNT * 8),
			    COUNT * 8));
	EXPECT_EQ(0, kcr_any(w, 1, &flag));
	EXPECT_EQ(1, flag);
	d->error = -ENXIO;
	d->fail_at = d->copies + 2;
	EXPECT_EQ(-ENXIO, kcr_allgather(w, x, y, COUNT, KCR_F64));
	EXPECT_STREQ("the configuration's copy_out hook returned -6", kcr_error(w));
	EXPECT_EQ(0, kcr_world_destroy(w));
}

/*
 * The @n-th copy of all fails with @error: the operation fails with @want on the
 * rank that made it, and ends on every other. Returns whether there were so many.
 */
static int fail_copy(struct __test_metadata *_metadata, struct device *d,
		     enum kcr_algo algo, int what, long n, int error, int want)
{
	struct kcr_config config = with_device(d, RANKS, algo);
	int rank, i, err, errors[RANKS], flags[RANKS], failed = 0, named = 0;
	struct kcr_request *r[RANKS][2];
	float *x[RANKS], *y[RANKS];
	struct kcr_emu *emu;

	ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
	d->used = 0;
	for (rank = 0; rank < RANKS; rank++) {
		x[rank] = device_alloc(d, RANKS * COUNT * sizeof(float));
		y[rank] = device_alloc(d, RANKS * COUNT * sizeof(float));
	}
	d->copies = 0;
	d->fail_at = n;
	d->error = error;
	for (rank = 0; rank < RANKS; rank++)
		errors[rank] = start(kcr_emu_world(emu, rank), x[rank], y[rank],
				     &flags[rank], what, 0, r[rank]);
	for (rank = 0; rank < RANKS; rank++)
		for (i = 0; i < 2; i++) {
			err = r[rank][i] ? kcr_wait(r[rank][i]) : errors[rank];
			failed += err != 0;
			ASSERT_TRUE(!err || err == want) {
				TH_LOG("operation %d, copy %ld fails with %d: rank %d: %d: %s",
				       what, n, error, rank, err,
				       kcr_error(kcr_emu_world(emu, rank)));
			}
			named += !!strstr(kcr_error(kcr_emu_world(emu, rank)),
					  "hook returned");
		}
	ASSERT_EQ(failed > 0, named > 0);
	ASSERT_EQ(d->copies >= (unsigned long)n, failed > 0);
	for (rank = 0; failed && rank < RANKS; rank++) {
		err = kcr_ibarrier(kcr_emu_world(emu, rank), &r[rank][0]);
		ASSERT_EQ(want, err ?: kcr_wait(r[rank][0]));
	}
	kcr_emu_destroy(emu);
	d->fail_at = 0;
	return failed > 0;
}

TEST_F(hooks, every_copy_fails_once)
{
	double since = emu_now();
	unsigned long rounds = 0;
	int what;
	long n;

	for (what = 0; what < 6; what++)
		for (n = 1; ; n += 1 + n / 40) {
			rounds++;
			if (!fail_copy(_metadata, &self->device[0], KCR_ALGO_OWNER,
				       what, n, -ENXIO, -ENXIO))
				break;
		}
	emu_report("every copy fails", rounds, since, 1);
}

/* Whatever a hook returns, the operation ends, and not as something else. */
TEST_F(hooks, what_they_may_return)
{
	static const struct {
		int error, want;
	} cases[] = {
		{ -EIO, -EIO }, { -ENOMEM, -ENOMEM }, { -4095, -4095 },
		/* No errno, or one that has a meaning of its own inside. */
		{ 1, -EIO }, { 700, -EIO }, { -4096, -EIO }, { INT32_MIN, -EIO },
		{ -EAGAIN, -EIO }, { -ESHUTDOWN, -EIO }, { -EPROTO, -EIO },
		{ -ECONNRESET, -EIO }, { -ETIMEDOUT, -EIO },
	};
	int i, what;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (what = 0; what < 6; what++)
			if (what != 3 && what != 4)
				EXPECT_EQ(1, fail_copy(_metadata, &self->device[0],
						       KCR_ALGO_AUTO, what, 3,
						       cases[i].error,
						       cases[i].want));
}

TEST_F(hooks, both_or_none)
{
	struct kcr_config config = with_device(&self->device[0], 2, KCR_ALGO_AUTO);
	struct kcr_emu *emu = (void *)1;
	struct kcr_world *w = (void *)1;

	config.copy_in = NULL;
	EXPECT_EQ(-EINVAL, kcr_emu_create_config(&config, &emu));
	EXPECT_EQ(NULL, emu);
	EXPECT_STREQ("copy_out is set and copy_in is not: both or none",
		     kcr_error(NULL));
	config.copy_in = copy_in;
	config.copy_out = NULL;
	EXPECT_EQ(-EINVAL, kcr_emu_create_config(&config, &emu));
	config.size = 1;
	config.local_size = 1;
	EXPECT_EQ(-EINVAL, kcr_world_create(&config, &w));
	EXPECT_STREQ("copy_in is set and copy_out is not: both or none",
		     kcr_error(NULL));
	EXPECT_EQ(NULL, w);
}

TEST_HARNESS_MAIN
