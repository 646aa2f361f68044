/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whom peers made of raw verbs attack: rank 1 of 3 by /dev/kcollring. It expects
 * rank 0 and connects to rank 2.
 */
#ifndef KCR_TEST_RAWVICTIM_H
#define KCR_TEST_RAWVICTIM_H

#include "rawpeer.h"

#define VICTIM_RANKS	3

struct victim {
	struct dev_world world;
	int fd;
	struct kcr_status *status;
	struct kcr_conn_status *low;	/* its connection to rank 0, */
	struct kcr_conn_status *high;	/* to rank 2 */
};

static inline int victim_join(struct victim *v)
{
	v->world = dev_world(VICTIM_RANKS);
	v->fd = dev_member(&v->world, 1);
	if (v->fd < 0)
		return v->fd;
	v->status = dev_status(v->fd);
	if (v->status == MAP_FAILED)
		return -errno;
	return dev_window(v->fd, 0, NULL, 0, MESH_BOARD);
}

/* Expect rank 0. */
static inline int victim_expect(struct victim *v, __u32 timeout_ms)
{
	struct kcr_connect args = mesh_connect_args(0, 0);
	int err;

	args.timeout_ms = timeout_ms;
	err = dev_ioctl(v->fd, KCR_IOCTL_CONNECT, &args);
	if (err)
		return err;
	v->low = mesh_status(v->fd, 0, 0);
	return v->low == MAP_FAILED ? -errno : 0;
}

/* Connect to rank 2. */
static inline int victim_connect(struct victim *v, int port, __u32 timeout_ms)
{
	struct kcr_connect args = mesh_connect_args(2, 0);
	int err;

	args.timeout_ms = timeout_ms;
	mesh_sockaddr(args.remote, mesh_address(0), port);
	err = dev_ioctl(v->fd, KCR_IOCTL_CONNECT, &args);
	if (err)
		return err;
	v->high = mesh_status(v->fd, 2, 0);
	return v->high == MAP_FAILED ? -errno : 0;
}

static inline void victim_free(struct victim *v)
{
	if (v->low)
		munmap(v->low, sizeof(*v->low));
	if (v->high)
		munmap(v->high, sizeof(*v->high));
	if (v->status)
		munmap(v->status, sizeof(*v->status));
	if (v->fd >= 0)
		close(v->fd);
	*v = (struct victim){ .fd = -1 };
}

#endif /* KCR_TEST_RAWVICTIM_H */
