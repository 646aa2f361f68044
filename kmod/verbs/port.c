// SPDX-License-Identifier: GPL-2.0
/*
 * Ports: the RDMA devices, and how many connections use each, so that a
 * device that is taken away can wait for them to let go.
 *
 * A port lives from the add to the remove of its device. ports_lock protects
 * the list and the fall of users to zero; goodbyes is held by who says one.
 */
#include <linux/delay.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

#include "verbs.h"

struct port {
	struct list_head node;
	struct ib_device *device;
	struct mutex goodbyes;		/* see port_part() */
	bool is_leaving;
	bool was_used;
	u32 users;
};

static DEFINE_SPINLOCK(ports_lock);
static LIST_HEAD(ports);
static DECLARE_WAIT_QUEUE_HEAD(ports_idle);

/**
 * port_get() - a connection is going to use a device
 * @device: the device; held by an id at this moment
 * @at: the connection's pointer to its port
 *
 * The pointer is set under the lock: the device's remove(), which waits for
 * all users, finds them by it.
 *
 * Return: 0, or -ENODEV if it is being taken away.
 */
int port_get(struct ib_device *device, struct port **at)
{
	struct port *port;
	int ret = -ENODEV;

	spin_lock_bh(&ports_lock);
	list_for_each_entry(port, &ports, node) {
		if (port->device != device || port->is_leaving)
			continue;
		port->users++;
		port->was_used = true;
		WRITE_ONCE(*at, port);
		ret = 0;
		break;
	}
	spin_unlock_bh(&ports_lock);
	return ret;
}

/**
 * port_put() - a connection has let go of everything of a device
 * @port: its port
 */
void port_put(struct port *port)
{
	spin_lock_bh(&ports_lock);
	if (!--port->users)
		wake_up_all(&ports_idle);
	spin_unlock_bh(&ports_lock);
}

/**
 * port_part() - say goodbye to a peer and destroy the id
 * @port: its port
 * @id: the id, which has been connected or was about to be
 *
 * One at a time: destroying an id waits until the device has done with its
 * message. rdma_rxe of 6.1 has one queue for those of all ids, and fails it when the
 * interface below goes down; of two that are in it then the second may stay there
 * for ever, and with it whoever waits, and the device's own removal.
 *
 * Under the handler's lock, since an address may have been resolved just now:
 * rdma_cm then connects, and if that fails frees what rdma_disconnect() looks at.
 */
void port_part(struct port *port, struct rdma_cm_id *id)
{
	mutex_lock(&port->goodbyes);
	rdma_lock_handler(id);
	rdma_disconnect(id);
	rdma_unlock_handler(id);
	rdma_destroy_id(id);
	mutex_unlock(&port->goodbyes);
}

static bool is_idle(struct port *port)
{
	bool idle;

	spin_lock_bh(&ports_lock);
	idle = !port->users;
	spin_unlock_bh(&ports_lock);
	return idle;
}

static int add(struct ib_device *device)
{
	struct port *port;

	port = kzalloc(sizeof(*port), GFP_KERNEL);
	if (!port)
		return -ENOMEM;
	port->device = device;
	mutex_init(&port->goodbyes);
	spin_lock_bh(&ports_lock);
	list_add_tail(&port->node, &ports);
	spin_unlock_bh(&ports_lock);
	return 0;
}

static void fail_conns(struct port *port)
{
	struct mesh *mesh;
	struct conn *c;
	unsigned long key;

	mutex_lock(&meshes_lock);
	list_for_each_entry(mesh, &meshes, node)
		xa_for_each(&mesh->conns, key, c)
			if (READ_ONCE(c->port) == port)
				conn_fail(c, KCR_REASON_DEVICE, 0, -ENODEV);
	mutex_unlock(&meshes_lock);
}

/*
 * What connections have said last may still be on its way in, and comes to ib_mad and
 * to the pool of completion queues. These are removed next, and up to 6.12 neither
 * waits for it: ib_mad destroys its queue pair while the completion of a receive may
 * be about to post the next (ib_mad_port_close() and ib_mad_recv_done()), and
 * the pool frees a queue that its softirq may be about to arm (ib_poll_handler()).
 */
#define SETTLE_MS	100

static void settle(void)
{
	msleep(SETTLE_MS);
	/* Softirqs have ended. */
	synchronize_rcu();
}

/*
 * The device goes. Those that have ended close anyway, and an id that has
 * just been bound to the device gets an event of its own.
 */
static void remove(struct ib_device *device, void *data)
{
	struct port *port, *found = NULL;

	spin_lock_bh(&ports_lock);
	list_for_each_entry(port, &ports, node)
		if (port->device == device)
			found = port;
	if (found)
		found->is_leaving = true;
	spin_unlock_bh(&ports_lock);
	if (!found)
		return;

	fail_conns(found);
	wait_event(ports_idle, is_idle(found));
	if (found->was_used)
		settle();
	spin_lock_bh(&ports_lock);
	list_del(&found->node);
	spin_unlock_bh(&ports_lock);
	kfree(found);
}

static struct ib_client client = {
	.name = "kcollring",
	.add = add,
	.remove = remove,
};

/**
 * port_init() - learn of all devices
 *
 * Return: 0 or an error.
 */
int port_init(void)
{
	return ib_register_client(&client);
}

/**
 * port_exit() - the module goes, and has no connections
 */
void port_exit(void)
{
	ib_unregister_client(&client);
}
