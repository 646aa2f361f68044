// SPDX-License-Identifier: GPL-2.0
/*
 * Meshes, as far as this module knows them: who provides them, and which
 * member has one.
 *
 * kcollring_verbs.ko registers its functions here and is asked for when a
 * process connects first. providers_lock protects who is registered; a mesh
 * holds a reference to its provider's module, so that the functions stay as long
 * as it does. kcr_member.mesh is made and unmade under kcr_member.mesh_lock. The
 * member's own calls need no lock to use it: they hold the file, and it goes
 * with that.
 */
#include <linux/export.h>
#include <linux/kmod.h>
#include <linux/module.h>
#include <linux/mutex.h>

#include "kcollring.h"

static DEFINE_MUTEX(providers_lock);
static const struct kcr_mesh_ops *provider;

/**
 * kcr_mesh_register() - kcollring_verbs.ko is there
 * @ops: its functions
 *
 * Return: 0, or -EBUSY if there is one already.
 */
int kcr_mesh_register(const struct kcr_mesh_ops *ops)
{
	int ret = 0;

	mutex_lock(&providers_lock);
	if (provider)
		ret = -EBUSY;
	else
		WRITE_ONCE(provider, ops);
	mutex_unlock(&providers_lock);
	return ret;
}
EXPORT_SYMBOL_GPL(kcr_mesh_register);

/**
 * kcr_mesh_unregister() - kcollring_verbs.ko goes; it has no meshes any more
 */
void kcr_mesh_unregister(void)
{
	mutex_lock(&providers_lock);
	WRITE_ONCE(provider, NULL);
	mutex_unlock(&providers_lock);
}
EXPORT_SYMBOL_GPL(kcr_mesh_unregister);

/**
 * kcr_mesh_is_there() - is kcollring_verbs.ko there
 *
 * Return: whether it is, at this moment.
 */
bool kcr_mesh_is_there(void)
{
	return READ_ONCE(provider);
}

static const struct kcr_mesh_ops *provider_get(void)
{
	const struct kcr_mesh_ops *ops;

	mutex_lock(&providers_lock);
	ops = provider;
	if (ops && !try_module_get(ops->owner))
		ops = NULL;
	mutex_unlock(&providers_lock);
	return ops;
}

static int create(struct kcr_member *m)
{
	const struct kcr_mesh_ops *ops;
	struct kcr_mesh *mesh;

	lockdep_assert_held(&m->mesh_lock);

	/* An end that comes later finds the mesh. */
	if (READ_ONCE(m->state) != KCR_MEMBER_JOINED)
		return -ESHUTDOWN;
	ops = provider_get();
	if (!ops)
		return -EPROTONOSUPPORT;
	mesh = ops->create(m);
	if (IS_ERR(mesh)) {
		module_put(ops->owner);
		return PTR_ERR(mesh);
	}
	/* Pairs with the acquire in mesh_of(). */
	smp_store_release(&m->mesh, mesh);
	return 0;
}

static struct kcr_mesh *mesh_of(struct kcr_member *m)
{
	/* Pairs with the release in create(). */
	return smp_load_acquire(&m->mesh);
}

/**
 * kcr_mesh_connect() - KCR_CMD_CONNECT
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_mesh_connect(struct kcr_call *call)
{
	const struct kcr_connect *args = &call->args->connect;
	struct kcr_member *m = call->member;
	int ret = 0;

	if (args->peer >= m->world->ranks || args->peer == m->rank ||
	    args->wire >= KCR_MAX_WIRES || args->timeout_ms > 600000 ||
	    (!args->timeout_ms && args->peer > m->rank) || !args->depth ||
	    args->depth >= KCR_FRAMES_MAX)
		return -EINVAL;
	if (!mesh_of(m) && !kcr_mesh_is_there())
		request_module("kcollring_verbs");

	mutex_lock(&m->mesh_lock);
	if (!m->mesh)
		ret = create(m);
	mutex_unlock(&m->mesh_lock);
	return ret ?: m->mesh->ops->connect(m->mesh, args);
}

static bool is_ring(struct kcr_member *m, u32 peer, u32 wire, u32 stream,
		    u32 class)
{
	return peer < m->world->ranks && wire < KCR_MAX_WIRES &&
	       stream < KCR_STREAMS && class < KCR_CLASSES;
}

/**
 * kcr_mesh_frames() - KCR_IOCTL_FRAMES
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_mesh_frames(struct kcr_call *call)
{
	const struct kcr_frames *args = &call->args->frames;
	struct kcr_mesh *mesh = mesh_of(call->member);

	if (!is_ring(call->member, args->peer, args->wire, args->stream,
		     args->size_class))
		return -EINVAL;
	return mesh ? mesh->ops->frames(mesh, args) : -ENOTCONN;
}

/**
 * kcr_mesh_send() - KCR_CMD_SEND
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_mesh_send(struct kcr_call *call)
{
	const struct kcr_send *args = &call->args->send;
	struct kcr_mesh *mesh = mesh_of(call->member);

	if (args->reserved)
		return -EOPNOTSUPP;
	if (!is_ring(call->member, 0, args->wire, args->stream, 0) ||
	    args->window >= KCR_MAX_WINDOWS || !args->bytes ||
	    args->bytes > KCR_FRAME_BYTES_MAX || !args->mask ||
	    (u64)args->base + fls64(args->mask) > call->member->world->ranks)
		return -EINVAL;
	return mesh ? mesh->ops->send(mesh, args) : -ENOTCONN;
}

/**
 * kcr_mesh_release() - KCR_CMD_RELEASE
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_mesh_release(struct kcr_call *call)
{
	const struct kcr_release *args = &call->args->release;
	struct kcr_mesh *mesh = mesh_of(call->member);

	if (!is_ring(call->member, args->peer, args->wire, args->stream,
		     args->size_class))
		return -EINVAL;
	return mesh ? mesh->ops->release(mesh, args) : -ENOTCONN;
}

/**
 * kcr_mesh_vacant() - may there be a remote window of this number?
 * @m: the member; the caller is its process
 * @window: its number
 *
 * Asked before its first lane is opened: what is begun and given up again, the peer
 * takes for the end of the window.
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_mesh_vacant(struct kcr_member *m, u32 window)
{
	struct kcr_mesh *mesh = mesh_of(m);

	return mesh ? mesh->ops->vacant(mesh, window) : 0;
}

/**
 * kcr_mesh_lane() - let a peer into a lane of a remote window
 * @m: the member; the caller is its process
 * @lane: the lane, with both of its parts made
 *
 * Until kcr_mesh_forget(), also of those after which another one failed.
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_mesh_lane(struct kcr_member *m, const struct kcr_remote_lane *lane)
{
	struct kcr_mesh *mesh = mesh_of(m);

	return mesh ? mesh->ops->lane(mesh, lane) : -ENOTCONN;
}

static bool is_lane(struct kcr_member *m, u32 window, u32 peer)
{
	return window < KCR_MAX_WINDOWS && peer < m->world->ranks;
}

/**
 * kcr_mesh_put() - KCR_CMD_PUT
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_mesh_put(struct kcr_call *call)
{
	const struct kcr_put *args = &call->args->put;
	struct kcr_mesh *mesh = mesh_of(call->member);

	if (args->reserved)
		return -EOPNOTSUPP;
	if (!is_lane(call->member, args->window, args->peer) ||
	    !args->sequence || !args->count || args->count > KCR_PUT_MAX ||
	    args->count - 1 > U64_MAX - args->sequence)
		return -EINVAL;
	return mesh ? mesh->ops->put(mesh, args) : -ENOTCONN;
}

/**
 * kcr_mesh_ack() - KCR_CMD_ACK
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_mesh_ack(struct kcr_call *call)
{
	const struct kcr_put_ack *args = &call->args->ack;
	struct kcr_mesh *mesh = mesh_of(call->member);

	if (!is_lane(call->member, args->window, args->peer))
		return -EINVAL;
	return mesh ? mesh->ops->ack(mesh, args) : -ENOTCONN;
}

/**
 * kcr_mesh_arm() - KCR_CMD_ARM
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_mesh_arm(struct kcr_call *call)
{
	const struct kcr_arm *args = &call->args->arm;
	struct kcr_mesh *mesh = mesh_of(call->member);

	if (!is_lane(call->member, args->window, args->peer))
		return -EINVAL;
	return mesh ? mesh->ops->arm(mesh, args) : -ENOTCONN;
}

/**
 * kcr_mesh_mmap() - map a part of a connection
 * @m: the member; the caller is its process
 * @kind: KCR_MAP_CONN or KCR_MAP_FRAMES
 * @wire: less than KCR_MAX_WIRES
 * @index: the peer, or KCR_FRAMES_INDEX()
 * @vma: shared, not executable
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_mesh_mmap(struct kcr_member *m, u32 kind, u32 wire, u32 index,
		  struct vm_area_struct *vma)
{
	struct kcr_mesh *mesh = mesh_of(m);

	return mesh ? mesh->ops->mmap(mesh, kind, wire, index, vma) : -ENXIO;
}

/**
 * kcr_mesh_forget() - a member has given up a window
 * @m: the member
 * @window: which
 */
void kcr_mesh_forget(struct kcr_member *m, u32 window)
{
	struct kcr_mesh *mesh = mesh_of(m);

	if (mesh)
		mesh->ops->forget(mesh, window);
}

/**
 * kcr_mesh_failed() - a world has failed: let its ranks on other nodes know
 * @w: the world
 */
void kcr_mesh_failed(struct kcr_world *w)
{
	struct kcr_member *m;
	u32 rank;

	for (rank = 0; rank < w->ranks; rank++) {
		m = kcr_world_member(w, rank);
		if (!m)
			continue;
		mutex_lock(&m->mesh_lock);
		if (m->mesh)
			m->mesh->ops->failed(m->mesh);
		mutex_unlock(&m->mesh_lock);
	}
}

/**
 * kcr_mesh_end() - a member has left or died
 * @m: the member
 * @state: KCR_MEMBER_LEFT or KCR_MEMBER_DEAD
 */
void kcr_mesh_end(struct kcr_member *m, u32 state)
{
	mutex_lock(&m->mesh_lock);
	if (m->mesh)
		m->mesh->ops->end(m->mesh, state);
	mutex_unlock(&m->mesh_lock);
}

/**
 * kcr_mesh_destroy() - the file of a member that has ended is gone
 * @m: the member
 */
void kcr_mesh_destroy(struct kcr_member *m)
{
	struct module *owner;
	struct kcr_mesh *mesh;

	mutex_lock(&m->mesh_lock);
	mesh = m->mesh;
	m->mesh = NULL;
	/* Whoever ended the member, the monitor say, may not have come to that. */
	if (mesh)
		mesh->ops->end(mesh, READ_ONCE(m->state));
	mutex_unlock(&m->mesh_lock);
	if (!mesh)
		return;
	owner = mesh->ops->owner;
	mesh->ops->destroy(mesh);
	module_put(owner);
}

#if IS_BUILTIN(CONFIG_KUNIT)
#include "mesh_kunit.c"
#endif
