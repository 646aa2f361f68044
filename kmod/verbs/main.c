// SPDX-License-Identifier: GPL-2.0
/*
 * The module: its parameters, its counters, its start and its end.
 */
#include <linux/debugfs.h>
#include <linux/module.h>

#include "verbs.h"

/* Free in IANA's list, and outside of what kernels hand out by themselves. */
unsigned int verbs_port = 18518;
module_param_named(port, verbs_port, uint, 0444);
MODULE_PARM_DESC(port, "rdma_cm port that nodes listen at, the same everywhere (default 18518)");

/* Several beats, and longer than a node can be busy with other things. */
unsigned int verbs_silent_ms = 9000;
module_param_named(silent_ms, verbs_silent_ms, uint, 0644);
MODULE_PARM_DESC(silent_ms, "a peer's node is dead if it says nothing for so long while this one runs (default 9000)");

/* 4096 ns times 2 to the 17th: half a second, six times. */
unsigned int verbs_ack_timeout = 17;
module_param_named(ack_timeout, verbs_ack_timeout, uint, 0644);
MODULE_PARM_DESC(ack_timeout, "exponent of the transport's retry timeout, 14 to 22 (default 17)");

/* The handle for KCOV of the last task that made a mesh and has one. */
u64 verbs_tracer;

struct verbs_counts verbs_counts;
struct workqueue_struct *verbs_wq;

static struct dentry *folder;
static atomic_t fail_completion;
static atomic_t fail_point;

/* For the n-th call after n was written to it. */
static bool is_hit(atomic_t *countdown)
{
	if (likely(!atomic_read(countdown)))
		return false;
	return !atomic_dec_if_positive(countdown);
}

/**
 * verbs_inject_failure() - is this the completion that a test wants to fail
 *
 * Return: true for the n-th call after n was written to fail_completion.
 */
bool verbs_inject_failure(void)
{
	return is_hit(&fail_completion);
}

/**
 * verbs_may_fail() - is this the place that a test wants to fail
 *
 * Stands before whatever may lack memory. The kernel's own fault injection
 * counts by task, and so reaches neither rdma_cm's handlers nor workers.
 *
 * Return: -ENOMEM for the n-th call after n was written to fail_point, else 0.
 */
int verbs_may_fail(void)
{
	return is_hit(&fail_point) ? -ENOMEM : 0;
}

static void show(void)
{
	static const struct {
		const char *name;
		atomic_t *count;
	} counts[] = {
		{ "conns", &verbs_counts.conns },
		{ "ids", &verbs_counts.ids },
		{ "pds", &verbs_counts.pds },
		{ "qps", &verbs_counts.qps },
		{ "cqs", &verbs_counts.cqs },
		{ "mrs", &verbs_counts.mrs },
		{ "rings", &verbs_counts.rings },
		{ "sources", &verbs_counts.sources },
		{ "lanes", &verbs_counts.lanes },
		{ "listeners", &verbs_counts.listeners },
		{ "violations", &verbs_counts.violations },
	};
	int i;

	folder = debugfs_create_dir("kcollring_verbs", NULL);
	for (i = 0; i < ARRAY_SIZE(counts); i++)
		debugfs_create_atomic_t(counts[i].name, 0400, folder,
					counts[i].count);
	debugfs_create_atomic_t("fail_completion", 0600, folder,
				&fail_completion);
	debugfs_create_atomic_t("fail_point", 0600, folder, &fail_point);
}

static int __init verbs_init(void)
{
	int ret = -ENOMEM;

	if (!verbs_port || verbs_port > U16_MAX)
		return -EINVAL;
	verbs_wq = alloc_workqueue("kcollring_verbs", WQ_UNBOUND, 0);
	if (!verbs_wq)
		return ret;
	ret = port_init();
	if (ret)
		goto err_wq;
	ret = kcr_mesh_register(&mesh_ops);
	if (ret)
		goto err_port;
	show();
	return 0;

err_port:
	port_exit();
err_wq:
	destroy_workqueue(verbs_wq);
	return ret;
}

static void __exit verbs_exit(void)
{
	debugfs_remove_recursive(folder);
	kcr_mesh_unregister();
	port_exit();
	destroy_workqueue(verbs_wq);
}

module_init(verbs_init);
module_exit(verbs_exit);

MODULE_DESCRIPTION("Mesh queues over RDMA for kcollring");
MODULE_AUTHOR("The kcollring developers");
MODULE_VERSION(KCR_VERSION);
MODULE_LICENSE("GPL");
