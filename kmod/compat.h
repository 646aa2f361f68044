/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What differs between the kernels that this module is built for, 6.1 and
 * 6.12. No other file looks at the version.
 */
#ifndef _KCR_COMPAT_H
#define _KCR_COMPAT_H

#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
#include <crypto/utils.h>
#include <linux/io_uring/cmd.h>
#else
#include <crypto/algapi.h>
#include <linux/io_uring.h>
#include <linux/io_uring_types.h>
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static inline void vm_flags_mod(struct vm_area_struct *vma, unsigned long set,
				unsigned long clear)
{
	vma->vm_flags = (vma->vm_flags | set) & ~clear;
}
#endif

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
/* io_uring asks for parked commands back, with IO_URING_F_CANCEL. */
#define KCR_URING_CANCELS	true

static inline const void *kcr_uring_payload(const struct io_uring_cmd *cmd)
{
	return io_uring_sqe_cmd(cmd->sqe);
}

static inline bool kcr_uring_is_cancel(unsigned int issue_flags)
{
	return issue_flags & IO_URING_F_CANCEL;
}

static inline void kcr_uring_mark_cancelable(struct io_uring_cmd *cmd,
					     unsigned int issue_flags)
{
	io_uring_cmd_mark_cancelable(cmd, issue_flags);
}

static inline bool kcr_uring_is_stuck(struct io_uring_cmd *cmd)
{
	return false;
}

static inline bool kcr_task_is_in_exec(const struct task_struct *task)
{
	return false;
}
#else
/* It does not: the monitor must find those that something waits for. */
#define KCR_URING_CANCELS	false

static inline const void *kcr_uring_payload(const struct io_uring_cmd *cmd)
{
	return cmd->cmd;
}

static inline bool kcr_uring_is_cancel(unsigned int issue_flags)
{
	return false;
}

static inline void kcr_uring_mark_cancelable(struct io_uring_cmd *cmd,
					     unsigned int issue_flags)
{
}

/* The ring was closed, and a worker of io_uring waits for this command. */
static inline bool kcr_uring_is_stuck(struct io_uring_cmd *cmd)
{
	return percpu_ref_is_dying(&cmd_to_io_kiocb(cmd)->ctx->refs);
}

/*
 * An exec waits for all that its task has submitted. The bit shares its word
 * with others that the task itself changes; a stale one is seen next time.
 */
static inline bool kcr_task_is_in_exec(const struct task_struct *task)
{
	return task->in_execve;
}
#endif

#endif /* _KCR_COMPAT_H */
