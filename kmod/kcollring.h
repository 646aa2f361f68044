/* SPDX-License-Identifier: GPL-2.0 */
/*
 * kcollring: the objects of the module and how they are locked
 *
 * kcr_file	one open of the device; has a member once it has joined
 * kcr_member	a rank of a world. Lives as long as its world, so that nobody
 *		who holds the world needs a reference to its members
 * kcr_world	the ranks that gave the same id and key. Lives as long as one
 *		of their files is open (mappings hold the file open)
 * kcr_win	lanes and boards that the ranks of a world agreed on; or one member's
 *		lanes to ranks of other nodes
 * kcr_region	the pages of one part of a window. Counted: by the window and by
 *		every mapping, so that what is mapped stays charged
 * kcr_waiter	one parked WAIT
 * kcr_user	the quota of one user
 * kcr_mesh	a member's connections to peers, made by kcollring_verbs.ko; the
 *		rest of it is in verbs/verbs.h
 *
 * Locks, outermost first; what each protects is said at the fields:
 *
 *	kcr_file.lock		mutex, two JOINs on one descriptor
 *	kcr_worlds_lock		mutex, the list of worlds and who is in it
 *	  kcr_member.mesh_lock	mutex, makes and unmakes its mesh
 *	  kcr_world.mutex	mutex, the windows of a world and its members
 *	  kcr_world.lock	spinlock, states, cause, status pages
 *	    kcr_member.lock	spinlock, event counter, waiters
 *
 * mmap takes kcr_world.mutex inside mmap_lock. So nothing that may take an
 * mmap_lock, and that is every access to user memory, happens under
 * kcr_world.mutex or the locks that are held when it is taken. The spinlocks
 * are taken in timers too, in soft interrupts: always with _bh.
 */
#ifndef _KCR_KCOLLRING_H
#define _KCR_KCOLLRING_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/lockdep.h>
#include <linux/mm_types.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/refcount.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include <linux/kcollring.h>

#define KCR_VERSION		"0.1.0"

/*
 * Memory is allocated in runs of up to 2 MiB: the most that one registration
 * with a network device covers, and one huge page of x86.
 */
#define KCR_CHUNK_BYTES		SZ_2M

/*
 * How often the monitor looks. An exec on a kernel that does not cancel
 * commands takes up to the first; a death that no close announces (exec with
 * an inheritable descriptor) is seen within the second.
 */
#define KCR_MONITOR_PARKED_MS	100
#define KCR_MONITOR_IDLE_MS	250

struct io_uring_cmd;
struct attribute_group;
struct kcr_mesh;
struct module;
struct vm_area_struct;

/* Everything alive, shown in sysfs. */
struct kcr_counts {
	atomic_long_t worlds;
	atomic_long_t members;
	atomic_long_t windows;
	atomic_long_t pages;
	atomic_long_t parked;
	atomic_long_t users;
	atomic_long_t violations;
};

struct kcr_user {
	struct list_head node;	/* kcr_users, under kcr_users_lock */
	refcount_t refs;
	kuid_t uid;
	atomic_long_t members;
	atomic_long_t pages;
	atomic_long_t conns;
};

struct kcr_file {
	struct mutex lock;		/* held over JOIN */
	struct kcr_member *member;	/* set once, with release */
};

struct kcr_member {
	/* Fixed from before the member can be found. */
	struct kcr_world *world;
	struct kcr_user *user;
	struct mm_struct *mm;		/* compared, and charged; not used */
	struct pid *pid;		/* of the thread group */
	fl_owner_t owner;		/* its table of descriptors */
	u32 rank;

	atomic_long_t pages;		/* that it pays for */
	struct mutex mesh_lock;		/* held while the mesh is made or told */
	struct kcr_mesh *mesh;		/* set once, with release, until the file goes */
	struct kcr_win *remote[KCR_MAX_WINDOWS];	/* under world->mutex */
	unsigned int fd_hint;		/* where flush found a copy last */

	/* Written under both locks, so that either is enough to read. */
	u32 state;			/* KCR_MEMBER_* */
	struct kcr_status *status;	/* its page; NULL after release */

	spinlock_t lock;		/* protects what follows */
	u64 events;
	u32 parked;			/* length of waiters */
	struct list_head waiters;
};

struct kcr_world {
	/* Fixed from before the world can be found. */
	u64 serial;
	u32 ranks;
	kuid_t creator;
	u8 id[16];
	u8 key[16];

	/* kcr_worlds_lock */
	struct list_head node;
	u32 files;			/* members whose file is open */

	struct mutex mutex;	/* protects windows, and members' remote ones */
	struct kcr_win *windows[KCR_MAX_WINDOWS];

	spinlock_t lock;		/* protects what follows */
	u64 cause;
	u32 joined;
	u32 left;
	/*
	 * An entry is set once, with release, under lock, and may be read
	 * without: members live as long as their world.
	 */
	struct kcr_member *members[];
};

struct kcr_region {
	struct kref kref;
	struct kcr_member *payer;
	unsigned long nr;
	bool charged;
	struct page **pages;
};

struct kcr_lane_parts {
	struct kcr_region *slots;
	struct kcr_region *ack;
};

enum kcr_attach {
	KCR_ATTACH_NONE = 0,
	KCR_ATTACH_PENDING,	/* its memory is being allocated, or forgotten */
	KCR_ATTACH_DONE,
	KCR_ATTACH_ENDED,	/* detached, left or died */
};

/* All but the configuration is protected by kcr_world.mutex. */
struct kcr_win {
	/* Fixed from before the window can be found. */
	u32 ranks;
	u32 nr_lanes;
	u32 flags;			/* KCR_WINDOW_* */
	u64 board_bytes;
	struct kcr_lane_desc *lanes;

	u32 attached;			/* ranks pending or done */
	u8 *attach;			/* enum kcr_attach of each rank */
	struct kcr_lane_parts *parts;	/* of each lane */
	struct kcr_region **boards;	/* of each rank */
	struct kcr_region *status;	/* of remote lanes */
};

/*
 * On kcr_member.waiters, or on a list of the one who took it from there:
 * taking it, under kcr_member.lock, makes one the only one to finish it.
 */
struct kcr_waiter {
	struct list_head node;
	struct kcr_member *member;
	struct hrtimer timer;
	u64 cookie;
	bool is_parked;			/* kcr_member.lock */
	int result;			/* by the one who took it */
	struct io_uring_cmd *cmd;	/* NULL: a task waits for done */
	struct completion done;
};

/* The arguments of every call; all begin with a size and flags. */
union kcr_args {
	struct {
		__u32 size;
		__u32 flags;
	};
	struct kcr_query query;
	struct kcr_join join;
	struct kcr_window window;
	struct kcr_window_detach detach;
	struct kcr_info info;
	struct kcr_wait wait;
	struct kcr_kick kick;
	struct kcr_leave leave;
	struct kcr_cancel cancel;
	struct kcr_fail fail;
	struct kcr_frames frames;
	struct kcr_connect connect;
	struct kcr_send send;
	struct kcr_release release;
	struct kcr_put put;
	struct kcr_put_ack ack;
	struct kcr_arm arm;
};

/* A lane between nodes, as the one of its ends that is here hands it to the mesh. */
struct kcr_remote_lane {
	u32 window;
	const struct kcr_lane_desc *desc;
	struct kcr_region *slots;	/* or their image */
	struct kcr_region *ack;
	struct kcr_region *status;
	struct kcr_lane_status *shown;	/* in the latter */
};

/**
 * struct kcr_mesh_ops - what kcollring_verbs.ko does for kcollring.ko
 * @owner: its module; every mesh holds a reference
 * @create: a mesh for a member; called by its process
 * @connect: KCR_CMD_CONNECT
 * @frames: KCR_IOCTL_FRAMES
 * @send: KCR_CMD_SEND
 * @release: KCR_CMD_RELEASE
 * @mmap: a part of a connection; under no lock but mmap_lock
 * @vacant: has no peer an end of an earlier remote window of this number? 0 or -EBUSY
 * @lane: let a peer into a lane; takes references to its regions
 * @put: KCR_CMD_PUT
 * @ack: KCR_CMD_ACK
 * @arm: KCR_CMD_ARM
 * @forget: the member's board in a window may go, or its remote lanes
 * @failed: the member's world has failed, tell the peers; does not wait
 * @end: the member has left or died: tell the peers and close; does not wait, and
 *	does nothing the second time
 * @destroy: wait until everything is closed, then free it all
 *
 * The last three are called under kcr_member.mesh_lock, but destroy.
 */
struct kcr_mesh_ops {
	struct module *owner;
	struct kcr_mesh *(*create)(struct kcr_member *m);
	int (*connect)(struct kcr_mesh *mesh, const struct kcr_connect *args);
	int (*frames)(struct kcr_mesh *mesh, const struct kcr_frames *args);
	int (*send)(struct kcr_mesh *mesh, const struct kcr_send *args);
	int (*release)(struct kcr_mesh *mesh, const struct kcr_release *args);
	int (*mmap)(struct kcr_mesh *mesh, u32 kind, u32 wire, u32 index,
		    struct vm_area_struct *vma);
	int (*vacant)(struct kcr_mesh *mesh, u32 window);
	int (*lane)(struct kcr_mesh *mesh, const struct kcr_remote_lane *lane);
	int (*put)(struct kcr_mesh *mesh, const struct kcr_put *args);
	int (*ack)(struct kcr_mesh *mesh, const struct kcr_put_ack *args);
	int (*arm)(struct kcr_mesh *mesh, const struct kcr_arm *args);
	void (*forget)(struct kcr_mesh *mesh, u32 window);
	void (*failed)(struct kcr_mesh *mesh);
	void (*end)(struct kcr_mesh *mesh, u32 state);
	void (*destroy)(struct kcr_mesh *mesh);
};

/* The provider's object begins with it. */
struct kcr_mesh {
	const struct kcr_mesh_ops *ops;
	struct kcr_member *member;
};

/* One call, by ioctl or by io_uring. */
struct kcr_call {
	struct kcr_file *file;
	struct kcr_member *member;	/* NULL where none is needed */
	union kcr_args *args;		/* in kernel memory */
	struct io_uring_cmd *cmd;	/* NULL: an ioctl */
	unsigned int issue_flags;
};

/* main.c */
extern unsigned int kcr_max_members;
extern unsigned long kcr_max_pages;
extern unsigned int kcr_max_parked;
extern unsigned int kcr_max_conns;

/* device.c */
int kcr_device_register(void);
void kcr_device_unregister(void);

/* world.c */
extern struct mutex kcr_worlds_lock;
extern struct list_head kcr_worlds;
int kcr_world_join(struct kcr_member *m, struct kcr_join *join);
void kcr_world_part(struct kcr_member *m);
void kcr_world_fail(struct kcr_world *w, u32 rank, u32 error);
bool kcr_world_set_cause(struct kcr_world *w, u32 rank, u32 error);
struct kcr_member *kcr_world_member(struct kcr_world *w, u32 rank);
int kcr_world_info(struct kcr_call *call);

/* member.c */
int kcr_member_join(struct kcr_call *call);
int kcr_member_usable(const struct kcr_member *m);
bool kcr_member_set_state(struct kcr_member *m, u32 state,
			  struct list_head *done);
bool kcr_member_end(struct kcr_member *m, u32 state);
void kcr_member_release(struct kcr_member *m);
void kcr_member_free(struct kcr_member *m);

/* window.c */
int kcr_window_attach(struct kcr_call *call);
int kcr_window_detach(struct kcr_call *call);
void kcr_window_detach_all(struct kcr_member *m);
int kcr_window_mmap(struct kcr_member *m, struct vm_area_struct *vma);
bool kcr_window_board_head(struct kcr_member *m, struct kcr_board *head);
struct kcr_region *kcr_window_board(struct kcr_member *m, u32 window);

/* mesh.c */
int kcr_mesh_register(const struct kcr_mesh_ops *ops);
void kcr_mesh_unregister(void);
bool kcr_mesh_is_there(void);
int kcr_mesh_connect(struct kcr_call *call);
int kcr_mesh_frames(struct kcr_call *call);
int kcr_mesh_send(struct kcr_call *call);
int kcr_mesh_release(struct kcr_call *call);
int kcr_mesh_mmap(struct kcr_member *m, u32 kind, u32 wire, u32 index,
		  struct vm_area_struct *vma);
int kcr_mesh_vacant(struct kcr_member *m, u32 window);
int kcr_mesh_lane(struct kcr_member *m, const struct kcr_remote_lane *lane);
int kcr_mesh_put(struct kcr_call *call);
int kcr_mesh_ack(struct kcr_call *call);
int kcr_mesh_arm(struct kcr_call *call);
void kcr_mesh_forget(struct kcr_member *m, u32 window);
void kcr_mesh_failed(struct kcr_world *w);
void kcr_mesh_end(struct kcr_member *m, u32 state);
void kcr_mesh_destroy(struct kcr_member *m);

/* region.c */
struct kcr_region *kcr_region_new(struct kcr_member *payer, u64 bytes);
void kcr_region_put(struct kcr_region *region);
int kcr_region_map(struct kcr_region *region, struct vm_area_struct *vma);

/* command.c */
int kcr_command_wait(struct kcr_call *call);
int kcr_command_kick(struct kcr_call *call);
int kcr_command_leave(struct kcr_call *call);
int kcr_command_cancel(struct kcr_call *call);
int kcr_command_fail(struct kcr_call *call);

/* waiter.c */
int kcr_waiter_park(struct kcr_call *call);
int kcr_waiter_wait(struct kcr_call *call);
void kcr_waiters_take(struct kcr_member *m, int result, struct list_head *done);
int kcr_waiters_take_cookie(struct kcr_member *m, u64 cookie,
			    struct list_head *done);
void kcr_waiters_cancel_cmd(struct kcr_member *m, struct io_uring_cmd *cmd);
void kcr_waiters_cancel_stuck(struct kcr_member *m, bool in_exec);
void kcr_waiters_finish(struct list_head *done);

/* monitor.c */
void kcr_monitor_start(void);
void kcr_monitor_stop(void);

/* user.c */
struct kcr_user *kcr_user_get(kuid_t uid);
void kcr_user_put(struct kcr_user *user);
void kcr_user_usage(kuid_t uid, u64 *members, u64 *pages);
int kcr_user_charge_member(struct kcr_user *user);
void kcr_user_uncharge_member(struct kcr_user *user);
int kcr_user_charge_pages(struct kcr_user *user, unsigned long nr);
void kcr_user_uncharge_pages(struct kcr_user *user, unsigned long nr);
int kcr_user_charge_conn(struct kcr_user *user);
void kcr_user_uncharge_conn(struct kcr_user *user);

/* status.c */
extern struct kcr_counts kcr_counts;
extern const struct attribute_group *kcr_status_groups[];
struct kcr_status *kcr_status_new(void);
void kcr_status_free(struct kcr_status *status);
int kcr_status_mmap(struct kcr_member *m, struct vm_area_struct *vma);
void kcr_status_fill(struct kcr_member *m);
void kcr_status_publish(struct kcr_world *w, const struct kcr_member *subject,
			struct list_head *done);
void kcr_status_event(struct kcr_member *m, struct list_head *done);
void kcr_member_event(struct kcr_member *m);
int kcr_status_query(struct kcr_call *call);

#endif /* _KCR_KCOLLRING_H */
