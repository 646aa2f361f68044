// SPDX-License-Identifier: GPL-2.0
/*
 * Windows: the lanes and boards that the ranks of a world agreed on, who pays
 * for which part, and who may map it. A remote window is one rank's alone, and is in
 * kcr_member.remote[] where the others are in kcr_world.windows[]; its lanes are
 * handed to the mesh, which has references of its own to their memory.
 *
 * The first rank that attaches fixes the configuration; each allocates what it
 * pays for. kcr_world.mutex protects both arrays and all of a window
 * but its configuration. A rank's own parts are filled in without it while its
 * attachment is pending: nobody looks at them before it is done, and the
 * window cannot go while one is pending.
 *
 * A window is taken out of the world under the mutex by whoever was attached
 * last, and freed after it.
 */
#include <linux/export.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "kcollring.h"

/* Offsets of mmap leave 32 bits for a part. */
#define PART_BYTES_MAX	(U32_MAX & PAGE_MASK)

static bool is_remote(const struct kcr_win *win)
{
	return win->flags & KCR_WINDOW_REMOTE;
}

/* A part of a window, as one rank sees it. */
struct part {
	struct kcr_region *region;
	u32 payer;
	u64 bytes;
	bool may_read;
	bool may_write;
};

/* The slots of a lane, unrounded. Its factors are at most 32 and 33 bits. */
static int lane_bytes(const struct kcr_lane_desc *lane, u64 *bytes)
{
	if (check_mul_overflow((u64)lane->depth,
			       (u64)KCR_SLOT_STRIDE(lane->capacity), bytes))
		return -EINVAL;
	if (!*bytes || *bytes > PART_BYTES_MAX)
		return -EINVAL;
	return 0;
}

static int compare_u64(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* By sorting: comparing all with all would let the caller burn our time. */
static int check_unique(const struct kcr_lane_desc *lanes, u32 nr)
{
	int ret = 0;
	u64 *keys;
	u32 i;

	keys = kvmalloc_array(nr, sizeof(*keys), GFP_KERNEL_ACCOUNT);
	if (!keys)
		return -ENOMEM;
	for (i = 0; i < nr; i++)
		keys[i] = (u64)lanes[i].source << 32 | lanes[i].destination;
	sort(keys, nr, sizeof(*keys), compare_u64, NULL);
	for (i = 1; i < nr && !ret; i++)
		if (keys[i] == keys[i - 1])
			ret = -EINVAL;
	kvfree(keys);
	return ret;
}

/* Of a remote window: one end is here, and the peer can be let into all of it. */
static int check_remote(const struct kcr_lane_desc *lanes, u32 nr, u32 rank)
{
	const struct kcr_lane_desc *lane;

	if (!nr)
		return -EINVAL;
	for (lane = lanes; lane < lanes + nr; lane++)
		if ((lane->source != rank && lane->destination != rank) ||
		    lane->depth > kcr_remote_depth_max(lane->capacity))
			return -EINVAL;
	return 0;
}

static int check_lanes(const struct kcr_lane_desc *lanes, u32 nr, u32 ranks)
{
	const struct kcr_lane_desc *lane;
	u64 bytes;
	int ret;

	for (lane = lanes; lane < lanes + nr; lane++) {
		if (lane->source >= ranks || lane->destination >= ranks ||
		    lane->source == lane->destination || !lane->depth ||
		    !lane->capacity)
			return -EINVAL;
		ret = lane_bytes(lane, &bytes);
		if (ret)
			return ret;
	}
	return nr ? check_unique(lanes, nr) : 0;
}

static void win_free(struct kcr_win *win)
{
	u32 i;

	if (!win)
		return;
	for (i = 0; win->parts && i < win->nr_lanes; i++) {
		kcr_region_put(win->parts[i].slots);
		kcr_region_put(win->parts[i].ack);
	}
	for (i = 0; win->boards && i < win->ranks; i++)
		kcr_region_put(win->boards[i]);
	kcr_region_put(win->status);
	kvfree(win->boards);
	kvfree(win->parts);
	kvfree(win->attach);
	kvfree(win->lanes);
	kfree(win);
}

static int win_alloc(struct kcr_win *win)
{
	win->attach = kvcalloc(win->ranks, sizeof(*win->attach),
			       GFP_KERNEL_ACCOUNT);
	win->boards = kvcalloc(win->ranks, sizeof(*win->boards),
			       GFP_KERNEL_ACCOUNT);
	if (!win->attach || !win->boards)
		return -ENOMEM;
	if (!win->nr_lanes)
		return 0;
	win->lanes = kvmalloc_array(win->nr_lanes, sizeof(*win->lanes),
				    GFP_KERNEL_ACCOUNT);
	win->parts = kvcalloc(win->nr_lanes, sizeof(*win->parts),
			      GFP_KERNEL_ACCOUNT);
	return win->lanes && win->parts ? 0 : -ENOMEM;
}

/* A window as the caller describes it, checked, without memory yet. */
static struct kcr_win *win_new(const struct kcr_window *args,
			       const struct kcr_member *m)
{
	u32 ranks = m->world->ranks;
	struct kcr_win *win;
	int ret;

	win = kzalloc(sizeof(*win), GFP_KERNEL_ACCOUNT);
	if (!win)
		return ERR_PTR(-ENOMEM);
	win->ranks = ranks;
	win->nr_lanes = args->nr_lanes;
	win->flags = args->flags;
	win->board_bytes = args->board_bytes;
	ret = win_alloc(win);
	if (ret)
		goto err;
	if (copy_from_user(win->lanes, u64_to_user_ptr(args->lanes),
			   win->nr_lanes * sizeof(*win->lanes))) {
		ret = -EFAULT;
		goto err;
	}
	ret = check_lanes(win->lanes, win->nr_lanes, ranks);
	if (!ret && is_remote(win))
		ret = check_remote(win->lanes, win->nr_lanes, m->rank);
	if (ret)
		goto err;
	return win;
err:
	win_free(win);
	return ERR_PTR(ret);
}

static bool win_is_same(const struct kcr_win *a, const struct kcr_win *b)
{
	return a->nr_lanes == b->nr_lanes && a->board_bytes == b->board_bytes &&
	       a->flags == b->flags &&
	       !memcmp(a->lanes, b->lanes, a->nr_lanes * sizeof(*a->lanes));
}

/* Where a rank's window of this number is: it has one at most. */
static struct kcr_win **place_of(struct kcr_member *m, u32 nr)
{
	lockdep_assert_held(&m->world->mutex);

	return m->remote[nr] ? &m->remote[nr] : &m->world->windows[nr];
}

static bool is_attached(const struct kcr_win *win, u32 rank)
{
	return win && (win->attach[rank] == KCR_ATTACH_PENDING ||
		       win->attach[rank] == KCR_ATTACH_DONE);
}

/*
 * The window of this number with the rank's attachment pending: @win, if it
 * is the first, or the one that is there.
 */
static struct kcr_win *reserve(struct kcr_member *m, u32 nr,
			       struct kcr_win *win)
{
	struct kcr_win **place = &m->world->windows[nr], *there;

	lockdep_assert_held(&m->world->mutex);

	if (m->remote[nr] || (is_remote(win) && is_attached(*place, m->rank)))
		return ERR_PTR(-EEXIST);
	if (is_remote(win))
		place = &m->remote[nr];
	there = *place;
	if (!there) {
		*place = win;
		atomic_long_inc(&kcr_counts.windows);
		there = win;
	} else if (!win_is_same(there, win)) {
		return ERR_PTR(-EPROTO);
	} else if (there->attach[m->rank] != KCR_ATTACH_NONE) {
		return ERR_PTR(-EEXIST);
	}
	there->attach[m->rank] = KCR_ATTACH_PENDING;
	there->attached++;
	return there;
}

/* Returns the window if nobody is attached any more; the caller frees it. */
static struct kcr_win *unreserve(struct kcr_member *m, u32 nr,
				 enum kcr_attach next)
{
	struct kcr_win **place = place_of(m, nr), *win = *place;

	win->attach[m->rank] = next;
	if (--win->attached)
		return NULL;
	*place = NULL;
	atomic_long_dec(&kcr_counts.windows);
	return win;
}

static int make(struct kcr_region **region, struct kcr_member *m, u64 bytes)
{
	struct kcr_region *new = kcr_region_new(m, bytes);

	if (IS_ERR(new))
		return PTR_ERR(new);
	*region = new;
	return 0;
}

static u64 status_bytes(const struct kcr_win *win)
{
	return (u64)win->nr_lanes * sizeof(struct kcr_lane_status);
}

static int make_lane_parts(struct kcr_member *m, struct kcr_win *win, u32 i)
{
	const struct kcr_lane_desc *lane = &win->lanes[i];
	u64 bytes;
	int ret;

	if (lane->destination == m->rank || is_remote(win)) {
		ret = lane_bytes(lane, &bytes) ?:
		      make(&win->parts[i].slots, m, bytes);
		if (ret)
			return ret;
	}
	if (lane->source == m->rank || is_remote(win))
		return make(&win->parts[i].ack, m, PAGE_SIZE);
	return 0;
}

/* What this rank pays for. */
static int make_parts(struct kcr_member *m, struct kcr_win *win)
{
	int ret;
	u32 i;

	for (i = 0; i < win->nr_lanes; i++) {
		ret = make_lane_parts(m, win, i);
		if (ret)
			return ret;
	}
	if (is_remote(win))
		return make(&win->status, m, status_bytes(win));
	if (!win->board_bytes)
		return 0;
	return make(&win->boards[m->rank], m, win->board_bytes);
}

/* Let the peers in. What was opened of one that fails is for the caller to forget. */
static int open_lanes(struct kcr_member *m, u32 nr, struct kcr_win *win)
{
	const u32 in_page = PAGE_SIZE / sizeof(struct kcr_lane_status);
	struct kcr_remote_lane lane = { .window = nr, .status = win->status };
	struct kcr_lane_status *page;
	int ret = 0;
	u32 i;

	for (i = 0; i < win->nr_lanes && !ret; i++) {
		page = page_address(win->status->pages[i / in_page]);
		lane.desc = &win->lanes[i];
		lane.slots = win->parts[i].slots;
		lane.ack = win->parts[i].ack;
		lane.shown = page + i % in_page;
		ret = kcr_mesh_lane(m, &lane);
	}
	return ret;
}

static void drop_parts(struct kcr_member *m, struct kcr_win *win)
{
	struct kcr_region **region;
	u32 i;

	/* All of it is this rank's, and goes with it. */
	if (is_remote(win))
		return;
	for (i = 0; i < win->nr_lanes; i++) {
		if (win->lanes[i].destination == m->rank)
			region = &win->parts[i].slots;
		else if (win->lanes[i].source == m->rank)
			region = &win->parts[i].ack;
		else
			continue;
		kcr_region_put(*region);
		*region = NULL;
	}
	kcr_region_put(win->boards[m->rank]);
	win->boards[m->rank] = NULL;
}

/* Make a pending attachment a real one, or undo it. */
static int attach_pending(struct kcr_member *m, u32 nr, struct kcr_win *win)
{
	struct kcr_win *unused = NULL;
	int ret;

	ret = make_parts(m, win);
	if (!ret && is_remote(win)) {
		ret = kcr_mesh_vacant(m, nr) ?: open_lanes(m, nr, win);
		if (ret)
			kcr_mesh_forget(m, nr);
	}

	mutex_lock(&m->world->mutex);
	/* If it ends later than this, that detaches it. */
	if (!ret && READ_ONCE(m->state) != KCR_MEMBER_JOINED)
		ret = -ESHUTDOWN;
	if (!ret) {
		win->attach[m->rank] = KCR_ATTACH_DONE;
	} else {
		drop_parts(m, win);
		unused = unreserve(m, nr, KCR_ATTACH_NONE);
	}
	mutex_unlock(&m->world->mutex);
	win_free(unused);
	return ret;
}

/**
 * kcr_window_attach() - KCR_IOCTL_WINDOW
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_window_attach(struct kcr_call *call)
{
	const struct kcr_window *args = &call->args->window;
	struct kcr_member *m = call->member;
	struct kcr_win *win, *there;
	u32 nr;

	if (args->window >= KCR_MAX_WINDOWS || args->nr_lanes > KCR_MAX_LANES ||
	    !PAGE_ALIGNED(args->board_bytes) ||
	    args->board_bytes > PART_BYTES_MAX)
		return -EINVAL;
	if (args->flags & KCR_WINDOW_REMOTE &&
	    (args->flags != KCR_WINDOW_REMOTE || args->board_bytes))
		return -EINVAL;
	nr = array_index_nospec(args->window, KCR_MAX_WINDOWS);

	win = win_new(args, m);
	if (IS_ERR(win))
		return PTR_ERR(win);
	mutex_lock(&m->world->mutex);
	there = reserve(m, nr, win);
	mutex_unlock(&m->world->mutex);
	if (there != win)
		win_free(win);
	if (IS_ERR(there))
		return PTR_ERR(there);
	return attach_pending(m, nr, there);
}

/* The window of this number, if the rank is attached to it. */
static struct kcr_win *attached_to(struct kcr_member *m, u32 nr)
{
	struct kcr_win *win = *place_of(m, nr);

	return win && win->attach[m->rank] == KCR_ATTACH_DONE ? win : NULL;
}

/**
 * kcr_window_detach() - KCR_IOCTL_WINDOW_DETACH
 * @call: the call
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_window_detach(struct kcr_call *call)
{
	const struct kcr_window_detach *args = &call->args->detach;
	struct kcr_member *m = call->member;
	struct kcr_win *win;
	u32 nr;

	if (args->reserved)
		return -EOPNOTSUPP;
	if (args->window >= KCR_MAX_WINDOWS)
		return -EINVAL;

	nr = array_index_nospec(args->window, KCR_MAX_WINDOWS);

	/* The number is free only when the mesh has forgotten it, too. */
	mutex_lock(&m->world->mutex);
	win = attached_to(m, nr);
	if (win)
		win->attach[m->rank] = KCR_ATTACH_PENDING;
	mutex_unlock(&m->world->mutex);
	if (!win)
		return -ENOENT;
	kcr_mesh_forget(m, nr);
	mutex_lock(&m->world->mutex);
	win = unreserve(m, nr, KCR_ATTACH_ENDED);
	mutex_unlock(&m->world->mutex);
	win_free(win);
	return 0;
}

/**
 * kcr_window_detach_all() - detach a member that has ended from its windows
 * @m: the member
 *
 * One that is pending, on its way in or out, is undone by who has it so.
 */
void kcr_window_detach_all(struct kcr_member *m)
{
	struct kcr_win *unused;
	u32 nr;

	for (nr = 0; nr < KCR_MAX_WINDOWS; nr++) {
		mutex_lock(&m->world->mutex);
		unused = attached_to(m, nr) ?
			 unreserve(m, nr, KCR_ATTACH_ENDED) : NULL;
		mutex_unlock(&m->world->mutex);
		win_free(unused);
	}
}

static int find_lane_part(const struct kcr_member *m, const struct kcr_win *win,
			  u32 kind, u32 index, struct part *part)
{
	const struct kcr_lane_desc *lane;
	bool is_source, is_destination;

	if (index >= win->nr_lanes)
		return -EINVAL;
	index = array_index_nospec(index, win->nr_lanes);
	lane = &win->lanes[index];
	is_source = lane->source == m->rank;
	is_destination = lane->destination == m->rank;
	part->may_read = is_source || is_destination;

	if (kind == KCR_MAP_SLOTS) {
		part->region = win->parts[index].slots;
		part->payer = is_remote(win) ? m->rank : lane->destination;
		part->may_write = is_source;
		return lane_bytes(lane, &part->bytes);
	}
	part->region = win->parts[index].ack;
	part->payer = is_remote(win) ? m->rank : lane->source;
	part->may_write = is_destination;
	part->bytes = PAGE_SIZE;
	return 0;
}

static int find_board(const struct kcr_member *m, const struct kcr_win *win,
		      u32 rank, struct part *part)
{
	if (rank >= win->ranks || !win->board_bytes)
		return -EINVAL;
	rank = array_index_nospec(rank, win->ranks);
	part->region = win->boards[rank];
	part->payer = rank;
	part->bytes = win->board_bytes;
	part->may_write = rank == m->rank;
	part->may_read = part->may_write || !(win->flags & KCR_WINDOW_PRIVATE);
	return 0;
}

static int find_status(const struct kcr_member *m, const struct kcr_win *win,
		       u32 index, struct part *part)
{
	if (!is_remote(win) || index)
		return -EINVAL;
	part->region = win->status;
	part->payer = m->rank;
	part->bytes = status_bytes(win);
	part->may_read = true;
	part->may_write = false;
	return 0;
}

static bool is_made(const struct kcr_win *win, u32 rank)
{
	return win->attach[rank] == KCR_ATTACH_DONE ||
	       win->attach[rank] == KCR_ATTACH_ENDED;
}

static int map_part(struct kcr_member *m, const struct kcr_win *win, u32 kind,
		    u32 index, struct vm_area_struct *vma)
{
	struct part part;
	int ret;

	lockdep_assert_held(&m->world->mutex);

	if (!win || win->attach[m->rank] != KCR_ATTACH_DONE)
		return -ENXIO;
	if (kind == KCR_MAP_BOARD)
		ret = find_board(m, win, index, &part);
	else if (kind == KCR_MAP_LANES)
		ret = find_status(m, win, index, &part);
	else
		ret = find_lane_part(m, win, kind, index, &part);
	if (ret)
		return ret;
	if (!part.may_read || (!part.may_write && vma->vm_flags & VM_WRITE))
		return -EACCES;
	if (vma->vm_end - vma->vm_start != PAGE_ALIGN(part.bytes))
		return -EINVAL;
	if (!is_made(win, part.payer))
		return -ENXIO;
	/* Else mprotect could make it writable later. */
	if (!part.may_write)
		vm_flags_mod(vma, 0, VM_MAYWRITE);
	return kcr_region_map(part.region, vma);
}

/* What an offset names, if its fields could name something. */
struct place {
	u32 kind;	/* KCR_MAP_* */
	u32 nr;		/* the window, or the wire */
	u32 index;
};

static bool parse_offset(u64 offset, struct place *place)
{
	place->index = (offset >> 32) & 0xffff;
	place->kind = (offset >> 48) & 0xf;
	place->nr = offset >> 52;
	if (lower_32_bits(offset))
		return false;
	switch (place->kind) {
	case KCR_MAP_SLOTS:
	case KCR_MAP_ACK:
	case KCR_MAP_BOARD:
	case KCR_MAP_LANES:
		return place->nr < KCR_MAX_WINDOWS;
	case KCR_MAP_CONN:
	case KCR_MAP_FRAMES:
		return place->nr < KCR_MAX_WIRES;
	default:
		return false;
	}
}

/**
 * kcr_window_mmap() - map a part of a window
 * @m: the member; the caller is its process
 * @vma: shared, not executable; its offset says which part
 *
 * Return: 0 or an error of the ABI.
 */
int kcr_window_mmap(struct kcr_member *m, struct vm_area_struct *vma)
{
	struct place at;
	u32 nr;
	int ret;

	if (!parse_offset((u64)vma->vm_pgoff << PAGE_SHIFT, &at))
		return -EINVAL;
	if (at.kind == KCR_MAP_CONN || at.kind == KCR_MAP_FRAMES)
		return kcr_mesh_mmap(m, at.kind, at.nr, at.index, vma);
	nr = array_index_nospec(at.nr, KCR_MAX_WINDOWS);

	mutex_lock(&m->world->mutex);
	ret = map_part(m, *place_of(m, nr), at.kind, at.index, vma);
	mutex_unlock(&m->world->mutex);
	return ret;
}

/**
 * kcr_window_board_head() - what a rank says on its board in window 0
 * @m: the member
 * @head: gets its claim and beat, each field read once; they may be anything
 *
 * Return: whether the member has such a board.
 */
bool kcr_window_board_head(struct kcr_member *m, struct kcr_board *head)
{
	const struct kcr_board *shared;
	struct kcr_win *win;
	bool is_there;

	mutex_lock(&m->world->mutex);
	win = m->world->windows[0];
	is_there = win && is_made(win, m->rank) && win->boards[m->rank];
	if (is_there) {
		shared = page_address(win->boards[m->rank]->pages[0]);
		head->claim.number = READ_ONCE(shared->claim.number);
		head->claim.since_ns = READ_ONCE(shared->claim.since_ns);
		head->claim.count = READ_ONCE(shared->claim.count);
		head->claim.kind = READ_ONCE(shared->claim.kind);
		head->claim.detail = READ_ONCE(shared->claim.detail);
		head->beat_ns = READ_ONCE(shared->beat_ns);
	}
	mutex_unlock(&m->world->mutex);
	return is_there;
}
EXPORT_SYMBOL_GPL(kcr_window_board_head);

/**
 * kcr_window_board() - a member's own board
 * @m: the member
 * @window: less than KCR_MAX_WINDOWS
 *
 * Return: its region with a reference, or NULL if it is not attached or there
 * are no boards.
 */
struct kcr_region *kcr_window_board(struct kcr_member *m, u32 window)
{
	struct kcr_region *board = NULL;
	struct kcr_win *win;

	mutex_lock(&m->world->mutex);
	win = m->world->windows[window];
	if (win && win->attach[m->rank] == KCR_ATTACH_DONE)
		board = win->boards[m->rank];
	if (board)
		kref_get(&board->kref);
	mutex_unlock(&m->world->mutex);
	return board;
}
EXPORT_SYMBOL_GPL(kcr_window_board);

#if IS_BUILTIN(CONFIG_KUNIT)
#include "window_kunit.c"
#endif
