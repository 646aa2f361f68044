/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the rooms of the library share: the world, and the small things that
 * every file needs.
 */
#ifndef KCR_H
#define KCR_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "kcollring.h"

#define KCR_PUBLIC __attribute__((visibility("default")))

/* The version of what ranks write into slots and boards; ranks compare it. */
#define KCR_WIRE_VERSION	1

#define KCR_ERROR_BYTES		512

/* Kinds of operation, on the wire and in claims: numbers never change. */
enum kcr_kind {
	KIND_NONE,
	KIND_ALLREDUCE,
	KIND_BARRIER,
	KIND_REDUCE_SCATTER,
	KIND_ALLGATHER,
	KIND_BROADCAST,
	KIND_ANY,
	KIND_MESSAGE,
	KINDS
};

struct link;
struct rendezvous;
struct kcr_emu;
struct progress_thread;
struct kcr_request;
struct kcr_ring;

/* Requests, first in, first out. */
struct queue {
	struct kcr_request *head, *tail;
};

/**
 * struct kcr_world - one rank's view of a world
 * @lock: serialises calls; every field below but the constant ones is under it
 * @config: constant; its strings are not used after creation
 * @fork_generation: constant; tells a forked child from the process that joined
 * @link: the way to the peers; NULL if the world has one rank
 * @rendezvous: how they met, and their locks; NULL if the world has one rank
 * @emu: the emulator that runs it, or NULL
 * @operation: the number of the last collective
 * @collectives: on their way, in the order of issue
 * @sends: messages on their way, by peer
 * @receives: likewise
 * @owned: requests that the caller holds
 * @rings: those that were made and have not gone, the last first
 * @ring_number: of the last one
 * @pending: how many requests are on their way
 * @messages: how many of them are sends and receives
 * @stage: host memory for a segment of user memory that only hooks can reach
 * @scratch: room for a segment of partial results
 * @progress_thread: takes requests further, or NULL
 * @contract: constant; see kcr_contract()
 * @failed: the negative errno that ended the world, or 0
 * @error: the last error in words; the first cause once @failed is set
 */
struct kcr_world {
	pthread_mutex_t lock;
	struct kcr_config config;
	unsigned int fork_generation;
	struct link *link;
	struct rendezvous *rendezvous;
	struct kcr_emu *emu;
	uint64_t operation;
	struct queue collectives;
	struct queue *sends, *receives;
	struct kcr_request *owned;
	struct kcr_ring *rings;
	unsigned int ring_number;
	unsigned int pending;
	unsigned int messages;
	unsigned char *stage;
	unsigned char *scratch;
	struct progress_thread *progress_thread;
	char contract[64];
	int failed;
	char error[KCR_ERROR_BYTES];
};

/* error.c */
int kcr_fail(struct kcr_world *w, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__
/* It looks into one file at a time, and should know what comes back. */
#define kcr_fail(w, error, ...) ({			\
	int fail_error = (error);			\
							\
	(kcr_fail)(w, fail_error, __VA_ARGS__);		\
	fail_error;					\
})
#endif
void kcr_debug(const struct kcr_config *config, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* config.c */
int config_check(const struct kcr_config *config);
int config_check_place(const struct kcr_config *config);
int config_check_wires(const struct kcr_config *config);

/* types.c */
extern const char * const kcr_link_names[];
extern const char * const kcr_algo_names[];
extern const char * const kcr_contract_names[];
extern const char * const kcr_connect_names[];
const char *kcr_dtype_text(enum kcr_dtype dtype);
const char *kcr_op_text(enum kcr_op op);
const char *kcr_kind_text(unsigned int kind);
int kcr_name_index(const char * const names[], const char *text);

/* shard.c */
size_t kcr_segments(size_t count, size_t most);

/* process.c */
uint64_t process_now_ns(void);
uint64_t process_coarse_ns(void);
unsigned int process_fork_generation(void);
int process_random(void *buffer, size_t bytes);
int process_thread(pthread_t *thread, void *(*fn)(void *), void *arg);

#endif /* KCR_H */
