// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Submission: commands to /dev/kcollring, through io_uring or, where that is
 * forbidden (containers, sysctl io_uring_disabled), through ioctl.
 *
 * Owns a ring with 128-byte entries. One command, or one batch of them, is in
 * flight at a time, and all of it is over before the next. Used under the world's lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/kcollring.h>
#include "kcr.h"
#include "limits.h"
#include "submit.h"

#define ENTRIES		SUBMIT_BATCH
#define PAYLOAD_BYTES	80	/* of an entry of 128 bytes */

struct submit {
	struct io_uring ring;
	bool has_ring;
	int device;
};

/* -EACCES, and who may: the device's group. */
static int no_permission(void)
{
	char buffer[1024], name[32] = "?";
	struct group group, *found = NULL;
	struct stat st = { 0 };

	if (!stat(KCR_DEVICE, &st)) {
		snprintf(name, sizeof(name), "%u", st.st_gid);
		/* Of a group without a name, the number will do. */
		(void)getgrgid_r(st.st_gid, &group, buffer, sizeof(buffer), &found);
	}
	return kcr_fail(NULL, -EACCES,
			"no permission for %s: this user is not in its group, %s (mode %o)",
			KCR_DEVICE, found ? found->gr_name : name,
			st.st_mode & 07777);
}

/**
 * submit_open_device() - open the module's device
 *
 * Returns a descriptor, -ENODEV or -EACCES with a sentence that says what to do.
 */
int submit_open_device(void)
{
	struct kcr_query query = { .size = sizeof(query) };
	int fd = open(KCR_DEVICE, O_RDWR | O_CLOEXEC);

	if (fd < 0 && (errno == ENOENT || errno == ENXIO || errno == ENODEV))
		return kcr_fail(NULL, -ENODEV,
				"%s is not there: load the module (insmod kcollring.ko), or use KCR_LINK=shm",
				KCR_DEVICE);
	if (fd < 0 && (errno == EACCES || errno == EPERM))
		return no_permission();
	if (fd < 0)
		return kcr_fail(NULL, -errno, "cannot open %s: %s", KCR_DEVICE,
				strerror(errno));
	if (ioctl(fd, KCR_IOCTL_QUERY, &query)) {
		int err = -errno;

		close(fd);
		return kcr_fail(NULL, err, "%s does not answer a query: %s",
				KCR_DEVICE, strerror(-err));
	}
	if (query.abi_version != KCR_ABI_VERSION) {
		close(fd);
		return kcr_fail(NULL, -EPROTO,
				"the module %.31s speaks ABI %u, this library ABI %u",
				query.version, query.abi_version,
				KCR_ABI_VERSION);
	}
	return fd;
}

static int through_ioctl(struct submit *s, uint32_t command,
			 const void *payload)
{
	if (ioctl(s->device, _IO(KCR_IOCTL_TYPE, command), payload))
		return -errno;
	return 0;
}

static int prepare(struct submit *s, uint32_t command, const void *payload,
		   size_t size, uint64_t index)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&s->ring);

	if (!sqe)
		return -EBUSY;
	memset(sqe, 0, 2 * sizeof(*sqe));
	sqe->opcode = IORING_OP_URING_CMD;
	sqe->fd = s->device;
	sqe->cmd_op = command;
	sqe->user_data = index;
	memcpy(sqe->cmd, payload, size);
	return 0;
}

/*
 * What io_uring has not taken, for want of memory, it would take with what comes next:
 * from here on commands go through ioctl. A polling thread takes it in any case.
 */
static void drop_ring(struct submit *s)
{
	if (s->ring.flags & IORING_SETUP_SQPOLL)
		return;
	io_uring_queue_exit(&s->ring);
	s->has_ring = false;
}

static int through_ring(struct submit *s, uint32_t command,
			const void *payload, size_t size)
{
	struct io_uring_cqe *cqe;
	int err = prepare(s, command, payload, size, 0);

	if (err)
		return err;
	/* A signal ends the system call, not the command: it has a deadline. */
	do {
		err = io_uring_submit_and_wait(&s->ring, 1);
	} while (err == -EINTR);
	if (err < 0)
		drop_ring(s);
	while (err >= 0) {
		err = io_uring_wait_cqe(&s->ring, &cqe);
		if (err == -EINTR) {
			err = 0;
			continue;
		}
		break;
	}
	if (err < 0)
		return err;
	err = cqe->res;
	io_uring_cqe_seen(&s->ring, cqe);
	return err;
}

/**
 * submit_command() - give a command to the module and wait for its answer
 * @s: where
 * @command: KCR_CMD_*
 * @payload: its struct
 * @size: of it
 *
 * io_uring needs memory of its own, without which peers would not be woken, nor hear
 * that this rank leaves: ioctl needs none. A command that failed has changed nothing.
 *
 * Returns the answer: 0 or a negative errno.
 */
int submit_command(struct submit *s, uint32_t command, const void *payload,
		   size_t size)
{
	int err;

	if (s->has_ring) {
		err = through_ring(s, command, payload, size);
		if (err != -ENOMEM && s->has_ring)
			return err;
	}
	return through_ioctl(s, command, payload);
}

static size_t payload_bytes(const struct submit_entry *e)
{
	return e->command == KCR_CMD_SEND ? sizeof(e->payload.send) :
					    sizeof(e->payload.release);
}

/*
 * They complete when they are issued, so this does not sleep. Returns how many io_uring
 * has taken; if not all, there is no ring any more.
 */
static unsigned int batch_through_ring(struct submit *s, struct submit_batch *batch)
{
	unsigned int prepared = 0, taken, done = 0;
	struct io_uring_cqe *cqe;
	int err;

	for (; prepared < batch->count; prepared++) {
		struct submit_entry *e = &batch->entries[prepared];

		if (prepare(s, e->command, &e->payload, payload_bytes(e), prepared))
			break;
	}
	for (unsigned int i = prepared; i < batch->count; i++)
		batch->entries[i].result = -ENOBUFS;
	do {
		err = io_uring_submit_and_wait(&s->ring, prepared);
	} while (err == -EINTR);
	/* A polling thread takes all, and may have taken some before they were counted. */
	if (s->ring.flags & IORING_SETUP_SQPOLL)
		taken = prepared;
	else
		taken = err < 0 ? 0 : err;
	while (done < taken) {
		err = io_uring_wait_cqe(&s->ring, &cqe);
		/* They are given all the same: not to be given twice. */
		if (err == -EINTR)
			continue;
		if (err)
			break;
		batch->entries[cqe->user_data].result = cqe->res;
		io_uring_cqe_seen(&s->ring, cqe);
		done++;
	}
	if (taken < prepared)
		drop_ring(s);
	return taken;
}

/* As submit_command() does: by ioctl, which needs none of io_uring's. */
static void repeat_without_memory(struct submit *s, struct submit_batch *batch,
				  unsigned int taken)
{
	for (unsigned int i = 0; i < taken; i++) {
		struct submit_entry *e = &batch->entries[i];

		if (e->result == -ENOMEM)
			e->result = through_ioctl(s, e->command, &e->payload);
	}
}

/**
 * submit_batch() - give commands to the module, in order, in one system call
 * @s: where
 * @batch: each gets its result; those that could not be given -ENOBUFS
 */
void submit_batch(struct submit *s, struct submit_batch *batch)
{
	unsigned int taken = 0;

	if (s->has_ring) {
		for (unsigned int i = 0; i < batch->count; i++)
			batch->entries[i].result = -ENOBUFS;
		taken = batch_through_ring(s, batch);
		repeat_without_memory(s, batch, taken);
		if (s->has_ring)
			return;
	}
	for (unsigned int i = taken; i < batch->count; i++) {
		struct submit_entry *e = &batch->entries[i];

		e->result = through_ioctl(s, e->command, &e->payload);
	}
}

/* A kick of nobody shows that commands arrive. */
static int try_ring(struct submit *s)
{
	struct kcr_kick kick = { .size = sizeof(kick) };

	return through_ring(s, KCR_CMD_KICK, &kick, sizeof(kick));
}

/**
 * submit_create() - a way for commands to a device that has joined
 * @device: its descriptor; stays the caller's
 * @config: says whether to debug
 * @out: the way, to be destroyed before @device is closed
 */
int submit_create(int device, const struct kcr_config *config,
		  struct submit **out)
{
	const char *wanted = getenv("KCR_URING");
	bool polls = wanted && !strcmp(wanted, "sqpoll");
	struct io_uring_params params = {
		.flags = IORING_SETUP_SQE128 | (polls ? IORING_SETUP_SQPOLL : 0),
		.sq_thread_idle = SQPOLL_IDLE_MS,
	};
	struct submit *s = calloc(1, sizeof(*s));
	int err = -ECANCELED;

	_Static_assert(sizeof(struct kcr_wait) <= PAYLOAD_BYTES, "payload");
	if (!s)
		return kcr_fail(NULL, -ENOMEM, "no memory for a ring");
	s->device = device;
	if (!wanted || strcmp(wanted, "0")) {
		err = io_uring_queue_init_params(ENTRIES, &s->ring, &params);
		s->has_ring = !err;
		if (!err)
			io_uring_ring_dontfork(&s->ring);
	}
	if (s->has_ring) {
		err = try_ring(s);
		if (err && s->has_ring) {
			io_uring_queue_exit(&s->ring);
			s->has_ring = false;
		}
	}
	if (err)
		kcr_debug(config, "commands go through ioctl: io_uring: %s",
			  strerror(-err));
	*out = s;
	return 0;
}

void submit_destroy(struct submit *s)
{
	if (!s)
		return;
	if (s->has_ring)
		io_uring_queue_exit(&s->ring);
	free(s);
}
