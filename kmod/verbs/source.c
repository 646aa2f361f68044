// SPDX-License-Identifier: GPL-2.0
/*
 * Sources: the boards that a connection sends from, mapped for its device on
 * first use and until the connection closes. A window that is given up meanwhile is
 * forgotten: its board is not sent from any more, but stays while the
 * device may read it.
 *
 * Made and forgotten under conn->open_lock; looked up under conn->lock.
 */
#include <linux/dma-mapping.h>
#include <linux/slab.h>

#include "verbs.h"

/*
 * How many pages from the i-th, @most or fewer, lie behind one another in memory. They are
 * mapped at once: where the device's addresses are not the CPU's, those of two mappings need
 * not join up, and a frame would be in as many pieces as pages.
 */
static unsigned long run_of(const struct kcr_region *region, unsigned long i,
			    unsigned long most)
{
	unsigned long first = page_to_pfn(region->pages[i]), n = 1;

	most = min(most, region->nr - i);
	while (n < most && page_to_pfn(region->pages[i + n]) == first + n)
		n++;
	return n;
}

/* In pages: what region.c allocates at once, if the device can have that much. */
static unsigned long longest_run(struct ib_device *device)
{
	size_t bytes = KCR_CHUNK_BYTES;

	if (!ib_uses_virt_dma(device))
		bytes = clamp_t(size_t, dma_max_mapping_size(device->dma_device),
				PAGE_SIZE, bytes);
	return bytes >> PAGE_SHIFT;
}

static void unmap(struct source *s, struct ib_device *device, unsigned long nr)
{
	unsigned long i, run, most = longest_run(device);

	for (i = 0; i < nr; i += run) {
		run = run_of(s->region, i, most);
		ib_dma_unmap_page(device, s->dma[i], run << PAGE_SHIFT, DMA_TO_DEVICE);
	}
}

/**
 * verbs_needs_sync() - must memory be handed to and fro between CPU and device
 * @device: the device
 * @dma: memory mapped for it
 *
 * Then it cannot be what both look at without telling each other.
 *
 * Return: whether it must.
 */
bool verbs_needs_sync(struct ib_device *device, dma_addr_t dma)
{
	return !ib_uses_virt_dma(device) &&
	       dma_need_sync(device->dma_device, dma);
}

static int map(struct source *s, struct ib_device *device)
{
	unsigned long i, run, j, most = longest_run(device);
	struct kcr_region *region = s->region;
	int ret = 0;
	u64 dma;

	for (i = 0; i < region->nr && !ret; i += run) {
		run = run_of(region, i, most);
		dma = ib_dma_map_page(device, region->pages[i], 0, run << PAGE_SHIFT,
				      DMA_TO_DEVICE);
		if (ib_dma_mapping_error(device, dma)) {
			ret = -ENOMEM;
			break;
		}
		for (j = 0; j < run; j++)
			s->dma[i + j] = dma + (j << PAGE_SHIFT);
		if (verbs_needs_sync(device, dma))
			ret = -EOPNOTSUPP;
	}
	if (ret)
		unmap(s, device, i);
	return ret;
}

/**
 * source_new() - map what is going to be sent from
 * @region: the memory; its reference is taken over, also by an error
 * @device: whoever reads it
 *
 * Return: the source, or -ENOMEM or -EOPNOTSUPP.
 */
struct source *source_new(struct kcr_region *region, struct ib_device *device)
{
	struct source *s;
	int ret = -ENOMEM;

	s = kvzalloc(struct_size(s, dma, region->nr), GFP_KERNEL_ACCOUNT);
	if (!s)
		goto err_region;
	s->region = region;
	ret = verbs_may_fail() ?: map(s, device);
	if (ret)
		goto err_free;
	atomic_inc(&verbs_counts.sources);
	return s;

err_free:
	kvfree(s);
err_region:
	kcr_region_put(region);
	return ERR_PTR(ret);
}

/**
 * source_free() - the device does not read it any more
 * @s: the source, or NULL
 * @device: the same
 */
void source_free(struct source *s, struct ib_device *device)
{
	if (!s)
		return;
	unmap(s, device, s->region->nr);
	kcr_region_put(s->region);
	kvfree(s);
	atomic_dec(&verbs_counts.sources);
}

static int source_add(struct conn *c, u32 window)
{
	struct kcr_region *board;
	struct source *s;

	lockdep_assert_held(&c->open_lock);

	if (c->sources[window])
		return 0;
	if (READ_ONCE(c->state) != CONN_UP)
		return -ENOTCONN;
	board = kcr_window_board(c->member, window);
	if (!board)
		return -ENXIO;
	s = source_new(board, c->pd->device);
	if (IS_ERR(s))
		return PTR_ERR(s);
	spin_lock_bh(&c->lock);
	c->sources[window] = s;
	spin_unlock_bh(&c->lock);
	return 0;
}

/**
 * source_need() - a board is going to be sent from
 * @c: the connection
 * @window: its window
 *
 * Return: 0, -ENXIO if there is none, -ENOTCONN, -ENOMEM, or -EOPNOTSUPP.
 */
int source_need(struct conn *c, u32 window)
{
	int ret;

	if (READ_ONCE(c->sources[window]))
		return 0;
	mutex_lock(&c->open_lock);
	ret = source_add(c, window);
	mutex_unlock(&c->open_lock);
	return ret;
}

/**
 * source_pieces() - the scatter entries of some bytes
 * @c: the connection
 * @s: what they lie in
 * @offset: of the first byte
 * @bytes: how many; not behind the end
 * @sges: gets up to c->nr_sge of them
 *
 * Return: how many, or -EMSGSIZE if memory is in too many pieces.
 */
int source_pieces(const struct conn *c, const struct source *s, u64 offset,
		  u32 bytes, struct ib_sge *sges)
{
	struct ib_sge *sge = NULL;
	u32 part, nr = 0;
	u64 addr;

	for (; bytes; bytes -= part, offset += part) {
		part = min_t(u32, bytes, PAGE_SIZE - offset_in_page(offset));
		addr = s->dma[offset >> PAGE_SHIFT] + offset_in_page(offset);
		if (sge && sge->addr + sge->length == addr) {
			sge->length += part;
			continue;
		}
		if (nr == c->nr_sge)
			return -EMSGSIZE;
		sge = &sges[nr++];
		sge->addr = addr;
		sge->length = part;
		sge->lkey = c->pd->local_dma_lkey;
	}
	return nr;
}

/**
 * source_sges() - the scatter entries of a frame
 * @c: the connection
 * @window: whose board it lies in
 * @offset: of its first byte
 * @bytes: of the frame
 * @sges: gets up to c->nr_sge of them
 *
 * Return: how many, -ENXIO without a board, -EINVAL if the frame ends behind it,
 * or -EMSGSIZE if memory is in too many pieces.
 */
int source_sges(struct conn *c, u32 window, u64 offset, u32 bytes,
		struct ib_sge *sges)
{
	struct source *s = c->sources[window];

	lockdep_assert_held(&c->lock);

	if (!s)
		return -ENXIO;
	if (offset > (u64)s->region->nr << PAGE_SHIFT ||
	    bytes > ((u64)s->region->nr << PAGE_SHIFT) - offset)
		return -EINVAL;
	return source_pieces(c, s, offset, bytes, sges);
}

/**
 * source_forget() - a window was given up
 * @c: the connection
 * @window: which
 */
void source_forget(struct conn *c, u32 window)
{
	struct source *s;

	mutex_lock(&c->open_lock);
	s = c->sources[window];
	spin_lock_bh(&c->lock);
	c->sources[window] = NULL;
	spin_unlock_bh(&c->lock);
	if (s) {
		s->next = c->forgotten;
		c->forgotten = s;
	}
	mutex_unlock(&c->open_lock);
}

/**
 * source_free_all() - the connection is drained
 * @c: the connection
 */
void source_free_all(struct conn *c)
{
	struct source *s;
	u32 i;

	mutex_lock(&c->open_lock);
	for (i = 0; i < KCR_MAX_WINDOWS; i++) {
		source_free(c->sources[i], c->pd ? c->pd->device : NULL);
		c->sources[i] = NULL;
	}
	while (c->forgotten) {
		s = c->forgotten;
		c->forgotten = s->next;
		source_free(s, c->pd->device);
	}
	mutex_unlock(&c->open_lock);
}

#if IS_BUILTIN(CONFIG_KUNIT)
#include "source_kunit.c"
#endif
