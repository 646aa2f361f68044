// SPDX-License-Identifier: GPL-2.0
/*
 * The device: /dev/kcollring, its file operations, and the one table of calls
 * behind both ioctl and io_uring.
 *
 * kcr_file.member is set once, by JOIN, and read without a lock; the member
 * stays until the file is released, and every call holds the file.
 */
#include <linux/fdtable.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "kcollring.h"

/* The command bytes of an SQE128. */
#define URING_PAYLOAD_BYTES	80

#define OP_MEMBER	BIT(0)		/* for members only */
#define OP_URING	BIT(1)		/* has a form in io_uring */
#define OP_ANSWERS	BIT(2)		/* the struct is written back */
#define OP_EXPLAINS	BIT(3)		/* ... even with an error */

struct op {
	int (*fn)(struct kcr_call *call);
	u16 size;			/* of the struct as we know it */
	u16 size_min;			/* ... as it was first */
	u32 flags;
	u32 allowed;			/* flags in the struct */
};

#define OP(_fn, _type, _size_min, _flags) {				\
	.fn = (_fn),							\
	.size = sizeof(_type),					\
	.size_min = (_size_min),					\
	.flags = (_flags),						\
}

static const struct op ops[] = {
	[_IOC_NR(KCR_IOCTL_QUERY)] =
		OP(kcr_status_query, struct kcr_query, 104, OP_ANSWERS),
	[_IOC_NR(KCR_IOCTL_JOIN)] =
		OP(kcr_member_join, struct kcr_join, 56, OP_EXPLAINS),
	[_IOC_NR(KCR_IOCTL_WINDOW)] = {
		.fn = kcr_window_attach,
		.size = sizeof(struct kcr_window),
		.size_min = 32,
		.flags = OP_MEMBER,
		.allowed = KCR_WINDOW_PRIVATE | KCR_WINDOW_REMOTE,
	},
	[_IOC_NR(KCR_IOCTL_WINDOW_DETACH)] =
		OP(kcr_window_detach, struct kcr_window_detach, 16, OP_MEMBER),
	[_IOC_NR(KCR_IOCTL_INFO)] =
		OP(kcr_world_info, struct kcr_info, 120, OP_ANSWERS),
	[_IOC_NR(KCR_IOCTL_FRAMES)] =
		OP(kcr_mesh_frames, struct kcr_frames, 24, OP_MEMBER),
	[KCR_CMD_WAIT] =
		OP(kcr_command_wait, struct kcr_wait, 32, OP_MEMBER | OP_URING),
	[KCR_CMD_KICK] =
		OP(kcr_command_kick, struct kcr_kick, 24, OP_MEMBER | OP_URING),
	[KCR_CMD_LEAVE] =
		OP(kcr_command_leave, struct kcr_leave, 8, OP_MEMBER | OP_URING),
	[KCR_CMD_CANCEL] =
		OP(kcr_command_cancel, struct kcr_cancel, 16,
		   OP_MEMBER | OP_URING),
	[KCR_CMD_FAIL] =
		OP(kcr_command_fail, struct kcr_fail, 16, OP_MEMBER | OP_URING),
	[KCR_CMD_CONNECT] =
		OP(kcr_mesh_connect, struct kcr_connect, 80,
		   OP_MEMBER | OP_URING),
	[KCR_CMD_SEND] =
		OP(kcr_mesh_send, struct kcr_send, 56, OP_MEMBER | OP_URING),
	[KCR_CMD_RELEASE] = {
		.fn = kcr_mesh_release,
		.size = sizeof(struct kcr_release),
		.size_min = 32,
		.flags = OP_MEMBER | OP_URING,
		.allowed = KCR_RELEASE_MORE,
	},
	[KCR_CMD_PUT] =
		OP(kcr_mesh_put, struct kcr_put, 32, OP_MEMBER | OP_URING),
	[KCR_CMD_ACK] =
		OP(kcr_mesh_ack, struct kcr_put_ack, 16, OP_MEMBER | OP_URING),
	[KCR_CMD_ARM] = {
		.fn = kcr_mesh_arm,
		.size = sizeof(struct kcr_arm),
		.size_min = 24,
		.flags = OP_MEMBER | OP_URING,
		.allowed = KCR_ARM_SOURCE,
	},
};

static const struct op *find_op(u32 nr)
{
	if (nr >= ARRAY_SIZE(ops))
		return NULL;
	nr = array_index_nospec(nr, ARRAY_SIZE(ops));
	return ops[nr].fn ? &ops[nr] : NULL;
}

static struct kcr_member *member_of(struct kcr_file *f)
{
	/* Pairs with the release in kcr_member_join(). */
	return smp_load_acquire(&f->member);
}

static int usable_member(struct kcr_file *f, struct kcr_member **member)
{
	*member = member_of(f);
	return *member ? kcr_member_usable(*member) : -ENOTCONN;
}

static int run(const struct op *op, struct kcr_call *call)
{
	int ret;

	if (call->args->flags & ~op->allowed)
		return -EOPNOTSUPP;
	if (op->flags & OP_MEMBER) {
		ret = usable_member(call->file, &call->member);
		if (ret)
			return ret;
	}
	return op->fn(call);
}

static long device_ioctl(struct file *filp, unsigned int nr, unsigned long arg)
{
	void __user *user = (void __user *)arg;
	union kcr_args args = { };
	struct kcr_call call = {
		.file = filp->private_data,
		.args = &args,
	};
	const struct op *op;
	u32 size;
	int ret;

	if (nr != _IO(KCR_IOCTL_TYPE, _IOC_NR(nr)))
		return -ENOTTY;
	op = find_op(_IOC_NR(nr));
	if (!op)
		return -ENOTTY;
	if (get_user(size, (u32 __user *)user))
		return -EFAULT;
	if (size < op->size_min)
		return -EINVAL;
	ret = copy_struct_from_user(&args, op->size, user, size);
	if (ret)
		return ret;
	/* It may have changed meanwhile; what counts is what was copied. */
	args.size = size;
	ret = run(op, &call);
	if (!(op->flags & (ret ? OP_EXPLAINS : OP_ANSWERS)))
		return ret;
	if (copy_to_user(user, &args, min_t(u32, size, op->size)))
		return ret ?: -EFAULT;
	return ret;
}

/*
 * The submitter can write to the entry while we look at it: it is read once,
 * into @words, and not looked at again.
 */
static int copy_payload(union kcr_args *args, const struct op *op,
			const struct io_uring_cmd *cmd)
{
	u64 words[URING_PAYLOAD_BYTES / sizeof(u64)];
	const u64 *payload = kcr_uring_payload(cmd);
	u32 size, i;

	for (i = 0; i < ARRAY_SIZE(words); i++)
		words[i] = READ_ONCE(payload[i]);
	size = *(u32 *)words;
	if (size < op->size_min)
		return -EINVAL;
	if (size > sizeof(words))
		return -E2BIG;
	if (size > op->size && memchr_inv((u8 *)words + op->size, 0,
					  size - op->size))
		return -E2BIG;
	memcpy(args, words, min_t(u32, size, op->size));
	return 0;
}

static int device_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	union kcr_args args = { };
	struct kcr_call call = {
		.file = cmd->file->private_data,
		.args = &args,
		.cmd = cmd,
		.issue_flags = issue_flags,
	};
	const struct op *op;
	int ret;

	/* Comes from a worker, for a command that was parked. */
	if (kcr_uring_is_cancel(issue_flags)) {
		kcr_waiters_cancel_cmd(member_of(call.file), cmd);
		return 0;
	}
	if (issue_flags & IO_URING_F_IOPOLL)
		return -EOPNOTSUPP;
	if (!(issue_flags & IO_URING_F_SQE128))
		return -EINVAL;
	op = find_op(cmd->cmd_op);
	if (!op || !(op->flags & OP_URING))
		return -EOPNOTSUPP;
	ret = copy_payload(&args, op, cmd);
	if (ret)
		return ret;
	return run(op, &call);
}

static int status_vm_mremap(struct vm_area_struct *vma)
{
	return -EINVAL;
}

static const struct vm_operations_struct status_vm_ops = {
	.mremap = status_vm_mremap,
};

static int map_status(struct kcr_member *m, struct vm_area_struct *vma)
{
	if (vma->vm_flags & VM_WRITE)
		return -EACCES;
	if (vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EINVAL;
	vm_flags_mod(vma, 0, VM_MAYWRITE);
	vma->vm_ops = &status_vm_ops;
	return kcr_status_mmap(m, vma);
}

static int device_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct kcr_member *m;
	int ret;

	ret = usable_member(filp->private_data, &m);
	if (ret)
		return ret;
	if (vma->vm_flags & VM_EXEC)
		return -EPERM;
	/* Without FMODE_WRITE a shared mapping has VM_MAYSHARE alone. */
	if (!(vma->vm_flags & VM_MAYSHARE))
		return -EINVAL;
	vm_flags_mod(vma, VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP,
		     VM_MAYEXEC);
	if (!vma->vm_pgoff)
		return map_status(m, vma);
	return kcr_window_mmap(m, vma);
}

static int device_open(struct inode *inode, struct file *filp)
{
	struct kcr_file *f;

	f = kzalloc(sizeof(*f), GFP_KERNEL_ACCOUNT);
	if (!f)
		return -ENOMEM;
	mutex_init(&f->lock);
	filp->private_data = f;
	return nonseekable_open(inode, filp);
}

static int is_this_file(const void *filp, struct file *other, unsigned int fd)
{
	return filp == other ? fd + 1 : 0;
}

/*
 * An exit closes the copies in ascending order: starting where the last one
 * was found keeps many of them from taking quadratic time.
 */
static bool table_has_copy(struct kcr_member *m, struct file *filp)
{
	int found;

	found = iterate_fd(m->owner, READ_ONCE(m->fd_hint), is_this_file, filp);
	if (!found)
		found = iterate_fd(m->owner, 0, is_this_file, filp);
	if (found)
		WRITE_ONCE(m->fd_hint, found - 1);
	return found;
}

/*
 * Called at every close of every copy of the descriptor. A member dies by the
 * last close in the table of descriptors that joined: the one after which no
 * other entry in it is this file.
 */
static int device_flush(struct file *filp, fl_owner_t owner)
{
	struct kcr_member *m = member_of(filp->private_data);

	if (m && owner == m->owner && !table_has_copy(m, filp))
		kcr_member_end(m, KCR_MEMBER_DEAD);
	return 0;
}

static int device_release(struct inode *inode, struct file *filp)
{
	struct kcr_file *f = filp->private_data;

	if (f->member)
		kcr_member_release(f->member);
	kfree(f);
	return 0;
}

static const struct file_operations device_fops = {
	.owner = THIS_MODULE,
	.open = device_open,
	.flush = device_flush,
	.release = device_release,
	.unlocked_ioctl = device_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.uring_cmd = device_uring_cmd,
	.mmap = device_mmap,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kcollring",
	.fops = &device_fops,
	.mode = 0660,
	.groups = kcr_status_groups,
};

/**
 * kcr_device_register() - make /dev/kcollring
 *
 * Return: 0 or an error.
 */
int kcr_device_register(void)
{
	return misc_register(&device);
}

/**
 * kcr_device_unregister() - take /dev/kcollring away
 */
void kcr_device_unregister(void)
{
	misc_deregister(&device);
}

#if IS_BUILTIN(CONFIG_KUNIT)
#include "device_kunit.c"
#endif
