// SPDX-License-Identifier: GPL-2.0
/*
 * The other collectives and messages over the emulator
 *
 * Reduce-scatter gives what the allreduce of the whole does, from the oracle;
 * the others give what was sent, to the byte, and write nothing else.
 */
#include "kselftest_harness.h"
#include "emu.h"

#define MOST_RANKS	9

/* A send and a receive buffer of each rank. */
struct buffers {
	int ranks;
	struct emu_buffer send[KCR_RANKS_MAX];
	struct emu_buffer recv[KCR_RANKS_MAX];
	unsigned char *copy;		/* of all that is sent, by rank */
	size_t send_bytes;
};

static void buffers_make(struct buffers *b, int ranks, size_t send_count,
			 size_t recv_count, enum kcr_dtype dtype, uint64_t seed)
{
	size_t size = kcr_dtype_size(dtype);
	int r;

	b->ranks = ranks;
	b->send_bytes = send_count * size;
	b->copy = malloc(ranks * b->send_bytes + 1);
	for (r = 0; r < ranks; r++) {
		emu_buffer_make(&b->send[r], b->send_bytes, (seed + r) % 3 * size);
		emu_buffer_make(&b->recv[r], recv_count * size,
				(seed + 2 * r) % 3 * size);
		emu_fill_from(b->send[r].data, 0, send_count, dtype, r, seed);
		memcpy(b->copy + r * b->send_bytes, b->send[r].data,
		       b->send_bytes);
	}
}

/* Frees; returns whether guards are whole and, if asked, sends as they were. */
static int buffers_end(struct buffers *b, int sends_stay)
{
	int r, is_whole = 1;

	for (r = 0; r < b->ranks; r++) {
		if (sends_stay && memcmp(b->send[r].data,
					 b->copy + r * b->send_bytes, b->send_bytes))
			is_whole = 0;
		is_whole &= emu_buffer_end(&b->send[r]);
		is_whole &= emu_buffer_end(&b->recv[r]);
	}
	free(b->copy);
	return is_whole;
}

/* Waits for all, beginning anywhere. Returns the first error. */
static int wait_all(struct kcr_request *r[], int n, uint64_t seed)
{
	int first = data_mix(seed) % n, i, err = 0, one;

	for (i = 0; i < n; i++) {
		one = kcr_wait(r[(first + i) % n]);
		err = err ?: one;
	}
	return err;
}

static void reduce_scatter(struct __test_metadata *_metadata,
			   struct kcr_emu *emu, int ranks, size_t count,
			   enum kcr_dtype dtype, enum kcr_op op, int in_place)
{
	size_t bytes = count * kcr_dtype_size(dtype);
	struct kcr_request *r[KCR_RANKS_MAX];
	const void *in[KCR_RANKS_MAX];
	unsigned char *want = malloc(ranks * bytes + 1);
	struct buffers b;
	int rank;

	buffers_make(&b, ranks, ranks * count, count, dtype, count + dtype);
	for (rank = 0; rank < ranks; rank++)
		in[rank] = b.copy + rank * b.send_bytes;
	ASSERT_EQ(0, kcr_reference_fold(in, ranks, want, ranks * count, dtype, op));
	for (rank = 0; rank < ranks; rank++)
		ASSERT_EQ(0, kcr_ireduce_scatter(kcr_emu_world(emu, rank),
						 b.send[rank].data,
						 in_place ? b.send[rank].data +
							    rank * bytes :
							    b.recv[rank].data,
						 count, dtype, op, &r[rank]));
	ASSERT_EQ(0, wait_all(r, ranks, count));
	for (rank = 0; rank < ranks; rank++) {
		unsigned char *got = in_place ? b.send[rank].data + rank * bytes :
						b.recv[rank].data;

		ASSERT_GT(0, data_differ(got, want + rank * bytes, count, dtype)) {
			TH_LOG("%s of %s, W %d, count %zu, %s: rank %d",
			       kcr_op_name(op), kcr_dtype_name(dtype), ranks, count,
			       in_place ? "in place" : "apart", rank);
		}
		/* In place, the shards of others are not touched. */
		if (in_place)
			memcpy(got, b.copy + rank * (b.send_bytes + bytes), bytes);
	}
	ASSERT_EQ(1, buffers_end(&b, 1));
	free(want);
}

/* Counts around the number of elements in one, two and three segments. */
static size_t nth_count(int n, size_t room)
{
	return n < 4 ? n : (n - 4) / 3 * room + room - 1 + (n - 4) % 3;
}

#define COUNTS	13

TEST(reduce_scatters)
{
	double since = emu_now();
	unsigned long rounds = 0;
	struct kcr_config config;
	struct kcr_emu *emu;
	int ranks, dtype, n, op = 0;

	for (ranks = 1; ranks <= MOST_RANKS; ranks++) {
		config = emu_config(ranks, KCR_ALGO_AUTO, ranks % 2 ? 64 : 135);
		config.board_bytes = 128;
		ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
		for (dtype = 0; dtype < KCR_DTYPES; dtype++)
			for (n = 0; n < 2 * COUNTS; n++) {
				size_t room = ((ranks % 2 ? 64 : 128) - 32) /
					      kcr_dtype_size(dtype);

				op = (op + 1) % KCR_OPS;
				if (!data_is_supported(dtype, op))
					op = 0;
				reduce_scatter(_metadata, emu, ranks,
					       nth_count(n / 2, room), dtype, op,
					       n % 2);
				rounds++;
			}
		kcr_emu_destroy(emu);
	}
	emu_report("reduce-scatter", rounds, since, 2);
}

static void allgather(struct __test_metadata *_metadata, struct kcr_emu *emu,
		      int ranks, size_t count, enum kcr_dtype dtype, int in_place)
{
	size_t bytes = count * kcr_dtype_size(dtype);
	struct kcr_request *r[KCR_RANKS_MAX];
	struct buffers b;
	int rank;

	buffers_make(&b, ranks, count, ranks * count, dtype, count + dtype);
	for (rank = 0; rank < ranks; rank++) {
		unsigned char *own = b.recv[rank].data + rank * bytes;

		if (in_place)
			memcpy(own, b.send[rank].data, bytes);
		ASSERT_EQ(0, kcr_iallgather(kcr_emu_world(emu, rank),
					    in_place ? own : b.send[rank].data,
					    b.recv[rank].data, count, dtype,
					    &r[rank]));
	}
	ASSERT_EQ(0, wait_all(r, ranks, count));
	for (rank = 0; rank < ranks; rank++)
		ASSERT_EQ(0, memcmp(b.recv[rank].data, b.copy, ranks * bytes)) {
			TH_LOG("%s, W %d, count %zu, %s: rank %d",
			       kcr_dtype_name(dtype), ranks, count,
			       in_place ? "in place" : "apart", rank);
		}
	ASSERT_EQ(1, buffers_end(&b, 1));
}

static void broadcast(struct __test_metadata *_metadata, struct kcr_emu *emu,
		      int ranks, size_t count, enum kcr_dtype dtype, int root)
{
	struct kcr_request *r[KCR_RANKS_MAX];
	struct buffers b;
	int rank;

	buffers_make(&b, ranks, count, 0, dtype, count + dtype);
	for (rank = 0; rank < ranks; rank++)
		ASSERT_EQ(0, kcr_ibroadcast(kcr_emu_world(emu, rank),
					    b.send[rank].data, count, dtype, root,
					    &r[rank]));
	ASSERT_EQ(0, wait_all(r, ranks, count));
	for (rank = 0; rank < ranks; rank++)
		ASSERT_EQ(0, memcmp(b.send[rank].data,
				    b.copy + root * b.send_bytes, b.send_bytes));
	ASSERT_EQ(1, buffers_end(&b, 0));
}

TEST(allgathers_and_broadcasts)
{
	double since = emu_now();
	unsigned long rounds = 0;
	struct kcr_config config;
	struct kcr_emu *emu;
	int ranks, dtype, n, root;

	for (ranks = 1; ranks <= MOST_RANKS; ranks++) {
		config = emu_config(ranks, KCR_ALGO_AUTO, 96);
		config.lane_bytes = 64;
		config.board_depth = 2 + ranks % 3;
		ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
		for (dtype = 0; dtype < KCR_DTYPES; dtype++)
			for (n = 0; n < COUNTS; n++) {
				size_t count = nth_count(n, 64 / kcr_dtype_size(dtype));

				allgather(_metadata, emu, ranks, count, dtype, 0);
				allgather(_metadata, emu, ranks, count, dtype, 1);
				for (root = 0; root < ranks; root++)
					broadcast(_metadata, emu, ranks, count,
						  dtype, root);
				rounds += 2 + ranks;
			}
		kcr_emu_destroy(emu);
	}
	emu_report("all-gather and broadcast", rounds, since, 2);
}

/* The flag of each rank alone, of none, of all; anything but 0 is set. */
TEST(any_flag)
{
	struct kcr_request *r[MOST_RANKS];
	int result[MOST_RANKS];
	struct kcr_emu *emu;
	int ranks, set, rank;

	for (ranks = 1; ranks <= MOST_RANKS; ranks++) {
		ASSERT_EQ(0, kcr_emu_create(ranks, &emu));
		for (set = -2; set < ranks; set++) {
			for (rank = 0; rank < ranks; rank++)
				ASSERT_EQ(0, kcr_iany(kcr_emu_world(emu, rank),
						      set == -2 || set == rank ?
						      256 << rank : 0,
						      &result[rank], &r[rank]));
			ASSERT_EQ(0, wait_all(r, ranks, set));
			for (rank = 0; rank < ranks; rank++)
				ASSERT_EQ(set != -1, result[rank]);
		}
		kcr_emu_destroy(emu);
	}
}

/* Nobody leaves a barrier before all have come: rank @late has not. */
TEST(barrier_waits_for_all)
{
	struct kcr_request *r[4], *send, *receive;
	struct kcr_emu *emu;
	int late, rank, done, a, b, order[4];
	char byte = 1;

	for (late = 0; late < 4; late++) {
		ASSERT_EQ(0, kcr_emu_create(4, &emu));
		for (rank = 0; rank < 4; rank++)
			if (rank != late)
				ASSERT_EQ(0, kcr_ibarrier(kcr_emu_world(emu, rank),
							  &r[rank]));
		/* Everything that is there is delivered for this one. */
		a = (late + 1) % 4;
		b = (late + 2) % 4;
		order[0] = b;
		order[1] = (late + 3) % 4;
		order[2] = late;
		order[3] = a;
		ASSERT_EQ(0, kcr_emu_order(emu, order, 4));
		ASSERT_EQ(0, kcr_isend(kcr_emu_world(emu, a), &byte, 1, b, &send));
		ASSERT_EQ(0, kcr_irecv(kcr_emu_world(emu, b), &byte, 1, a, &receive));
		ASSERT_EQ(0, kcr_wait(receive));
		ASSERT_EQ(0, kcr_wait(send));
		/* Not done, so time runs out; had it been done, it would be 0. */
		ASSERT_EQ(-ETIMEDOUT, kcr_test(r[a], &done));
		for (rank = 0; rank < 4; rank++)
			if (rank != late)
				ASSERT_EQ(-ETIMEDOUT, kcr_wait(r[rank]));
		kcr_emu_destroy(emu);
	}
}

/* To the next rank and from the one before; again and again without waiting. */
TEST(messages_around_the_ring)
{
	static const size_t lengths[] = { 0, 1, 31, 32, 33, 0, 64, 1000, 5000, 3 };
	static unsigned char from[MOST_RANKS][10][5000], to[MOST_RANKS][10][5000];
	struct kcr_request *r[2 * 10 * MOST_RANKS];
	int ranks, rank, before, i, n;
	struct kcr_config config;
	struct kcr_emu *emu;
	void *x, *y;

	for (ranks = 2; ranks <= MOST_RANKS; ranks++) {
		config = emu_config(ranks, KCR_ALGO_AUTO, 64);
		ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
		kcr_emu_shuffle(emu, ranks);
		n = 0;
		for (rank = 0; rank < ranks; rank++)
			for (i = 0; i < 10; i++) {
				struct kcr_world *w = kcr_emu_world(emu, rank);

				emu_fill_from(from[rank][i], 0, 5000, KCR_U8, rank, i);
				memset(to[rank][i], 0, 5000);
				/* Without bytes there may be no buffer. */
				x = lengths[i] ? from[rank][i] : NULL;
				y = lengths[i] ? to[rank][i] : NULL;
				ASSERT_EQ(0, kcr_isend(w, x, lengths[i],
						       (rank + 1) % ranks, &r[n++]));
				ASSERT_EQ(0, kcr_irecv(w, y, lengths[i],
						       (rank + ranks - 1) % ranks,
						       &r[n++]));
			}
		ASSERT_EQ(0, wait_all(r, n, ranks));
		for (rank = 0; rank < ranks; rank++)
			for (i = 0; i < 10; i++) {
				before = (rank + ranks - 1) % ranks;
				ASSERT_EQ(0, memcmp(to[rank][i], from[before][i],
						    lengths[i]));
				if (lengths[i] < 5000)
					ASSERT_EQ(0, to[rank][i][lengths[i]]);
			}
		kcr_emu_destroy(emu);
	}
}

#define ALL_BYTES	300
#define ALL_COUNT	70

/* A message from every rank to every other, and collectives among them. */
struct crowd {
	unsigned char from[MOST_RANKS][MOST_RANKS][ALL_BYTES];
	unsigned char to[MOST_RANKS][MOST_RANKS][ALL_BYTES];
	float x[MOST_RANKS][ALL_COUNT], y[MOST_RANKS][ALL_COUNT];
	float all[MOST_RANKS][MOST_RANKS * ALL_COUNT];
	int any[MOST_RANKS];
	struct kcr_request *r[MOST_RANKS * (2 * MOST_RANKS + 4)];
	int n;
};

static void crowd_issue(struct __test_metadata *_metadata, struct crowd *c,
			struct kcr_world *w, uint64_t seed)
{
	int ranks = kcr_size(w), me = kcr_rank(w), i, peer;

	for (i = 0; i < ranks; i++) {
		peer = (i + seed) % ranks;
		if (i == 1)
			ASSERT_EQ(0, kcr_iallreduce(w, c->x[me], c->y[me], ALL_COUNT,
						    KCR_F32, KCR_SUM, &c->r[c->n++]));
		if (i == ranks / 2)
			ASSERT_EQ(0, kcr_iany(w, me == ranks - 1, &c->any[me],
					      &c->r[c->n++]));
		if (i == ranks - 1)
			ASSERT_EQ(0, kcr_iallgather(w, c->x[me], c->all[me],
						    ALL_COUNT, KCR_F32,
						    &c->r[c->n++]));
		if (peer == me)
			continue;
		ASSERT_EQ(0, kcr_irecv(w, c->to[me][peer], ALL_BYTES, peer,
				       &c->r[c->n++]));
		ASSERT_EQ(0, kcr_isend(w, c->from[me][peer], ALL_BYTES, peer,
				       &c->r[c->n++]));
	}
}

TEST(messages_among_collectives)
{
	double since = emu_now();
	unsigned long rounds = 0;
	static struct crowd c;
	struct kcr_config config;
	struct kcr_emu *emu;
	float want[ALL_COUNT];
	int ranks, rank, peer, seed;

	for (ranks = 2; ranks <= MOST_RANKS; ranks++)
		for (seed = 0; seed < 20; seed++) {
			config = emu_config(ranks, 1 + seed % 3, 64);
			ASSERT_EQ(0, kcr_emu_create_config(&config, &emu));
			kcr_emu_shuffle(emu, seed);
			memset(&c, 0, sizeof(c));
			for (rank = 0; rank < ranks; rank++) {
				data_fill(c.x[rank], ALL_COUNT, KCR_F32, rank, 3);
				emu_fill_from(c.from[rank], 0, sizeof(c.from[0]),
					      KCR_U8, rank, seed);
			}
			for (rank = 0; rank < ranks; rank++)
				crowd_issue(_metadata, &c,
					    kcr_emu_world(emu, (rank + seed) % ranks),
					    seed);
			ASSERT_EQ(0, wait_all(c.r, c.n, seed));
			data_expect(want, ALL_COUNT, KCR_F32, KCR_SUM, ranks, 3);
			for (rank = 0; rank < ranks; rank++) {
				ASSERT_EQ(0, memcmp(want, c.y[rank], sizeof(want)));
				ASSERT_EQ(1, c.any[rank]);
				for (peer = 0; peer < ranks; peer++) {
					ASSERT_EQ(0, memcmp(c.all[rank] +
							    peer * ALL_COUNT,
							    c.x[peer], sizeof(want)));
					if (peer != rank)
						ASSERT_EQ(0, memcmp(c.to[rank][peer],
								    c.from[peer][rank],
								    ALL_BYTES));
				}
			}
			kcr_emu_destroy(emu);
			rounds++;
		}
	emu_report("messages among collectives", rounds, since, 2);
}

/* As many ranks as there may be: every operation once with each algorithm. */
static void crowded(struct __test_metadata *_metadata, int ranks,
		    enum kcr_algo algo)
{
	struct kcr_request *r[KCR_RANKS_MAX];
	struct kcr_config config;
	int flags[KCR_RANKS_MAX], rank;
	struct emu_call c = {
		.ranks = ranks, .count = ranks + 1, .dtype = KCR_F32,
		.op = KCR_SUM, .seed = ranks,
	};
	int matters;

	kcr_config_init(&config);
	config.size = ranks;
	config.algo = algo;
	config.lane_bytes = 64;
	config.board_bytes = 256;
	ASSERT_EQ(0, kcr_emu_create_config(&config, &c.emu));
	ASSERT_EQ(0, emu_allreduce(&c, &matters));
	ASSERT_EQ(1, matters);
	c.dtype = KCR_BF16;
	c.op = KCR_MEAN;
	c.in_place = 1;
	ASSERT_EQ(0, emu_allreduce(&c, NULL));
	reduce_scatter(_metadata, c.emu, ranks, 2, KCR_F64, KCR_SUM, 1);
	allgather(_metadata, c.emu, ranks, 5, KCR_I16, 1);
	broadcast(_metadata, c.emu, ranks, 200, KCR_F32, ranks - 1);
	for (rank = 0; rank < ranks; rank++)
		ASSERT_EQ(0, kcr_iany(kcr_emu_world(c.emu, rank), rank == 63,
				      &flags[rank], &r[rank]));
	ASSERT_EQ(0, wait_all(r, ranks, 1));
	for (rank = 0; rank < ranks; rank++)
		ASSERT_EQ(1, flags[rank]);
	kcr_emu_destroy(c.emu);
}

TEST(sixty_four_ranks)
{
	double since = emu_now();
	int algo;

	for (algo = KCR_ALGO_DIRECT; algo <= KCR_ALGO_CHAIN; algo++)
		crowded(_metadata, 64, algo);
	emu_report("64 ranks", 3, since, 3);
}

TEST(as_many_as_there_may_be)
{
	double since = emu_now();

	crowded(_metadata, KCR_RANKS_MAX, KCR_ALGO_OWNER);
	emu_report("256 ranks", 1, since, 10);
}

TEST_HARNESS_MAIN
