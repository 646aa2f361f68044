// SPDX-License-Identifier: GPL-2.0
/*
 * The table of what kcr-perf can measure. One that is new is a line in it, with
 * how it is called and what must come of it.
 */
#include <string.h>

#include "perf.h"

bool collective_has_parts(const struct collective *collective)
{
	return collective->brings_part || collective->result == RESULT_PARTS;
}

size_t call_brings(const struct collective *collective, const struct call *call)
{
	bool is_whole = collective->result == RESULT_PARTS;

	return is_whole ? call->count * (size_t)call->ranks : call->count;
}

size_t call_takes(const struct collective *collective, const struct call *call)
{
	return collective->brings_part ? call->count * (size_t)call->ranks :
					 call->count;
}

/* In place a part lies where it is in the whole. */
static void *work_of(const struct call *call, const struct place *place,
		     bool is_part)
{
	size_t part = call->count * kcr_dtype_size(call->dtype);

	if (!is_part || !call->in_place)
		return place->work;
	return (char *)place->work + (size_t)place->rank * part;
}

void *call_data(const struct collective *collective, const struct call *call,
		const struct place *place)
{
	if (!call->in_place)
		return place->data;
	return work_of(call, place, collective->brings_part);
}

void *call_result(const struct collective *collective, const struct call *call,
		  const struct place *place)
{
	if (collective->has_root && call->root == place->rank)
		return place->data;
	return work_of(call, place, collective->result == RESULT_PARTS);
}

static double one(int ranks)
{
	(void)ranks;
	return 1;
}

static double one_way(int ranks)
{
	return (ranks - 1.0) / ranks;
}

static double there_and_back(int ranks)
{
	return 2.0 * (ranks - 1) / ranks;
}

static int run_allreduce(const struct collective *c, const struct call *call,
			 struct place *p, struct kcr_request **requests)
{
	const void *data = call_data(c, call, p);
	void *result = call_result(c, call, p);

	if (requests)
		return kcr_iallreduce(p->world, data, result, call->count,
				      call->dtype, call->op, requests);
	return kcr_allreduce(p->world, data, result, call->count, call->dtype,
			     call->op);
}

static int expect_reduced(struct oracle *oracle, const struct call *call,
			  int rank, size_t start, size_t count)
{
	(void)rank;
	return oracle_fold(oracle, start, count, call->dtype, call->op);
}

static int run_reduce_scatter(const struct collective *c, const struct call *call,
			      struct place *p, struct kcr_request **requests)
{
	const void *data = call_data(c, call, p);
	void *result = call_result(c, call, p);

	if (requests)
		return kcr_ireduce_scatter(p->world, data, result, call->count,
					   call->dtype, call->op, requests);
	return kcr_reduce_scatter(p->world, data, result, call->count,
				  call->dtype, call->op);
}

static int expect_reduced_part(struct oracle *oracle, const struct call *call,
			       int rank, size_t start, size_t count)
{
	return expect_reduced(oracle, call, rank,
			      (size_t)rank * call->count + start, count);
}

static int run_allgather(const struct collective *c, const struct call *call,
			 struct place *p, struct kcr_request **requests)
{
	const void *data = call_data(c, call, p);
	void *result = call_result(c, call, p);

	if (requests)
		return kcr_iallgather(p->world, data, result, call->count,
				      call->dtype, requests);
	return kcr_allgather(p->world, data, result, call->count, call->dtype);
}

static int expect_gathered(struct oracle *oracle, const struct call *call,
			   int rank, size_t start, size_t count)
{
	const size_t width = kcr_dtype_size(call->dtype);
	char *out = oracle->out;
	size_t at, n;

	(void)rank;
	for (; count; count -= n, start += n, out += n * width) {
		at = start % call->count;
		n = call->count - at < count ? call->count - at : count;
		data_fill(out, at, n, (int)(start / call->count), call->dtype);
	}
	return 0;
}

static int run_broadcast(const struct collective *c, const struct call *call,
			 struct place *p, struct kcr_request **requests)
{
	void *buf = call_result(c, call, p);

	if (requests)
		return kcr_ibroadcast(p->world, buf, call->count, call->dtype,
				      call->root, requests);
	return kcr_broadcast(p->world, buf, call->count, call->dtype, call->root);
}

static int expect_the_roots(struct oracle *oracle, const struct call *call,
			    int rank, size_t start, size_t count)
{
	(void)rank;
	data_fill(oracle->out, start, count, call->root, call->dtype);
	return 0;
}

static int left_of(const struct call *call, int rank)
{
	return (rank + call->ranks - 1) % call->ranks;
}

/* Each to the right, from the left. */
static int run_sendrecv(const struct collective *c, const struct call *call,
			struct place *p, struct kcr_request **requests)
{
	size_t bytes = call->count * kcr_dtype_size(call->dtype);
	int right = (p->rank + 1) % call->ranks, left = left_of(call, p->rank);
	struct kcr_request *sent;
	int error, late;

	(void)c;
	error = kcr_isend(p->world, p->data, bytes, right, &sent);
	if (error)
		return error;
	if (requests) {
		requests[0] = sent;
		return kcr_irecv(p->world, p->work, bytes, left, &requests[1]);
	}
	error = kcr_recv(p->world, p->work, bytes, left);
	late = kcr_wait(sent);
	return error ? error : late;
}

static int expect_the_lefts(struct oracle *oracle, const struct call *call,
			    int rank, size_t start, size_t count)
{
	data_fill(oracle->out, start, count, left_of(call, rank), call->dtype);
	return 0;
}

static int run_barrier(const struct collective *c, const struct call *call,
		       struct place *p, struct kcr_request **requests)
{
	(void)c;
	(void)call;
	return requests ? kcr_ibarrier(p->world, requests) : kcr_barrier(p->world);
}

/* One rank after another raises its flag, then none. */
static unsigned int flag_bearer(const struct call *call)
{
	return call->iteration % ((unsigned int)call->ranks + 1);
}

static int run_any(const struct collective *c, const struct call *call,
		   struct place *p, struct kcr_request **requests)
{
	int flag = flag_bearer(call) == (unsigned int)p->rank;

	(void)c;
	return requests ? kcr_iany(p->world, flag, &p->any, requests) :
			  kcr_any(p->world, flag, &p->any);
}

static uint64_t wrong_any(const struct call *call, const struct place *place)
{
	return place->any != (flag_bearer(call) < (unsigned int)call->ranks);
}

const struct collective collectives[] = {
	{
		.name = "allreduce",
		.moves_data = true,
		.reduces = true,
		.can_be_in_place = true,
		.result = RESULT_SAME,
		.bus_factor = there_and_back,
		.run = run_allreduce,
		.expect = expect_reduced,
	}, {
		.name = "reduce_scatter",
		.moves_data = true,
		.reduces = true,
		.can_be_in_place = true,
		.result = RESULT_PARTS,
		.bus_factor = one_way,
		.run = run_reduce_scatter,
		.expect = expect_reduced_part,
	}, {
		.name = "allgather",
		.moves_data = true,
		.can_be_in_place = true,
		.brings_part = true,
		.result = RESULT_SAME,
		.bus_factor = one_way,
		.run = run_allgather,
		.expect = expect_gathered,
	}, {
		.name = "broadcast",
		.moves_data = true,
		.has_root = true,
		.result = RESULT_SAME,
		.bus_factor = one,
		.run = run_broadcast,
		.expect = expect_the_roots,
	}, {
		.name = "sendrecv",
		.moves_data = true,
		.result = RESULT_OWN,
		.least = 2,
		.bus_factor = one,
		.run = run_sendrecv,
		.expect = expect_the_lefts,
	}, {
		.name = "barrier",
		.bus_factor = one,
		.run = run_barrier,
	}, {
		.name = "any",
		.bus_factor = one,
		.run = run_any,
		.wrong = wrong_any,
	},
};

const size_t collectives_count = sizeof(collectives) / sizeof(*collectives);
