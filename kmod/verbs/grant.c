// SPDX-License-Identifier: GPL-2.0
/*
 * Grants: bytes that one peer may write, by a registration in its connection's
 * protection domain. No bytes around them, no reading, no relaxed ordering.
 *
 * Made under conn->open_lock; registered by a work request, so under conn->lock, and
 * before the key is told: the queue keeps the order. Freed when the peer has said
 * that it writes no more, or when the queue pair is gone.
 */
#include <linux/dma-mapping.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>

#include "verbs.h"

static int map(struct conn *c, struct grant *g, struct page **pages,
	       u32 offset, u32 bytes)
{
	struct scatterlist *sg;
	u32 part;
	int ret, i;

	g->nr = DIV_ROUND_UP(offset + bytes, PAGE_SIZE);
	ret = verbs_may_fail() ?:
	      sg_alloc_table(&g->sgt, g->nr, GFP_KERNEL_ACCOUNT);
	if (ret)
		return ret;
	for_each_sgtable_sg(&g->sgt, sg, i) {
		part = min_t(u32, bytes, PAGE_SIZE - offset);
		sg_set_page(sg, pages[i], part, offset);
		bytes -= part;
		offset = 0;
	}
	g->nr_dma = verbs_may_fail() ? 0 :
		    ib_dma_map_sg(c->pd->device, g->sgt.sgl, g->nr,
				  DMA_FROM_DEVICE);
	if (g->nr_dma)
		return 0;
	sg_free_table(&g->sgt);
	return -ENOMEM;
}

static void unmap(struct conn *c, struct grant *g)
{
	ib_dma_unmap_sg(c->pd->device, g->sgt.sgl, g->nr, DMA_FROM_DEVICE);
	sg_free_table(&g->sgt);
}

/* What the device writes must be what user space reads, without being told. */
static bool needs_sync(struct conn *c, struct grant *g)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(g->sgt.sgl, sg, g->nr_dma, i)
		if (verbs_needs_sync(c->pd->device, sg_dma_address(sg)))
			return true;
	return false;
}

static int make_mr(struct conn *c, struct grant *g)
{
	struct ib_mr *mr;
	int nr;

	if (needs_sync(c, g))
		return -EOPNOTSUPP;
	mr = verbs_may_fail() ? ERR_PTR(-ENOMEM) :
	     ib_alloc_mr(c->pd, IB_MR_TYPE_MEM_REG, g->nr);
	if (IS_ERR(mr))
		return PTR_ERR(mr);
	nr = verbs_may_fail() ?:
	     ib_map_mr_sg(mr, g->sgt.sgl, g->nr_dma, NULL, PAGE_SIZE);
	if (nr != g->nr_dma) {
		ib_dereg_mr(mr);
		return nr < 0 ? nr : -EINVAL;
	}
	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey));
	g->mr = mr;
	atomic_inc(&verbs_counts.mrs);
	return 0;
}

/**
 * grant_make() - prepare a registration
 * @c: the connection, up; its open_lock is held
 * @g: the grant, all zero
 * @pages: what it is part of, from the page of its first byte
 * @offset: of its first byte in that page
 * @bytes: KCR_CHUNK_BYTES at most, with the offset
 *
 * Return: 0, -EOPNOTSUPP for a device that would have to be synchronized with, or
 * another error; then there is nothing to free.
 */
int grant_make(struct conn *c, struct grant *g, struct page **pages, u32 offset,
	       u32 bytes)
{
	int ret;

	lockdep_assert_held(&c->open_lock);

	ret = map(c, g, pages, offset, bytes);
	if (ret)
		return ret;
	ret = make_mr(c, g);
	if (ret)
		unmap(c, g);
	return ret;
}

/**
 * grant_register() - let the device know
 * @c: the connection
 * @g: the grant; may go only when the request has completed
 * @cqe: of the request
 *
 * Return: as queue_post_registration().
 */
int grant_register(struct conn *c, struct grant *g, struct ib_cqe *cqe)
{
	struct ib_reg_wr wr = {
		.wr = {
			.opcode = IB_WR_REG_MR,
			.wr_cqe = cqe,
		},
		.mr = g->mr,
		.key = g->mr->rkey,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE,
	};

	return queue_post_registration(c, &wr.wr);
}

/**
 * grant_free() - nobody may write any more; the pages can be given back afterwards
 * @c: the connection
 * @g: the grant; one that was not made is let be
 *
 * May wait for what the peer is in the middle of writing: not under a lock that
 * the end of the queue pair needs.
 */
void grant_free(struct conn *c, struct grant *g)
{
	if (!g->mr)
		return;
	ib_dereg_mr(g->mr);
	g->mr = NULL;
	atomic_dec(&verbs_counts.mrs);
	unmap(c, g);
}
