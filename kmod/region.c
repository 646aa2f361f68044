// SPDX-License-Identifier: GPL-2.0
/*
 * Regions: the pages of one part of a window, who pays for them, and their
 * mappings.
 *
 * A region is counted: its window has a reference, and every mapping has one.
 * It is charged to its payer's user and RLIMIT_MEMLOCK until the last goes, so
 * that a window given up but still mapped is not memory for free. The charge
 * is in mm->pinned_vm, as RDMA's is: one limit over both, and no mmap_lock,
 * which the last unmapping could not take.
 *
 * A mapping holds its file, and so the world and the payer.
 */
#include <linux/capability.h>
#include <linux/export.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "compat.h"
#include "kcollring.h"

#define REGION_GFP	(GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN)

static int charge(struct kcr_member *payer, unsigned long nr)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct mm_struct *mm = payer->mm;
	int ret;

	ret = kcr_user_charge_pages(payer->user, nr);
	if (ret)
		return ret;
	if (atomic64_add_return(nr, &mm->pinned_vm) > limit &&
	    !capable(CAP_IPC_LOCK)) {
		atomic64_sub(nr, &mm->pinned_vm);
		kcr_user_uncharge_pages(payer->user, nr);
		return -ENOMEM;
	}
	atomic_long_add(nr, &payer->pages);
	atomic_long_add(nr, &kcr_counts.pages);
	return 0;
}

static void uncharge(struct kcr_member *payer, unsigned long nr)
{
	atomic_long_sub(nr, &kcr_counts.pages);
	atomic_long_sub(nr, &payer->pages);
	atomic64_sub(nr, &payer->mm->pinned_vm);
	kcr_user_uncharge_pages(payer->user, nr);
}

static void free_pages_of(struct kcr_region *region)
{
	unsigned long i;

	for (i = 0; i < region->nr && region->pages[i]; i++)
		put_page(region->pages[i]);
}

/*
 * In runs as long as there are, each split into pages of their own. Long ones
 * are not worth trying hard for; a window is not worth the OOM killer.
 */
static int fill(struct kcr_region *region)
{
	unsigned int order = get_order(KCR_CHUNK_BYTES);
	unsigned long i = 0, j;
	struct page *page;

	while (i < region->nr) {
		if (fatal_signal_pending(current))
			return -EINTR;
		order = min_t(unsigned int, order, ilog2(region->nr - i));
		page = alloc_pages(REGION_GFP | (order ? __GFP_NORETRY :
						 __GFP_RETRY_MAYFAIL), order);
		if (!page) {
			if (!order)
				return -ENOMEM;
			order--;
			continue;
		}
		split_page(page, order);
		for (j = 0; j < 1UL << order; j++)
			region->pages[i++] = page + j;
		cond_resched();
	}
	return 0;
}

/**
 * kcr_region_new() - allocate and charge a region
 * @payer: who pays: a member of the calling process
 * @bytes: its size, at least 1
 *
 * Return: the region, with one reference, or -ENOMEM or -EDQUOT.
 */
struct kcr_region *kcr_region_new(struct kcr_member *payer, u64 bytes)
{
	struct kcr_region *region;
	int ret = -ENOMEM;

	region = kzalloc(sizeof(*region), GFP_KERNEL_ACCOUNT);
	if (!region)
		return ERR_PTR(ret);
	kref_init(&region->kref);
	region->payer = payer;
	region->nr = PAGE_ALIGN(bytes) >> PAGE_SHIFT;

	ret = charge(payer, region->nr);
	if (ret)
		goto err_free;
	ret = -ENOMEM;
	if (region->nr > totalram_pages())
		goto err_charge;
	region->pages = kvcalloc(region->nr, sizeof(*region->pages),
				 GFP_KERNEL_ACCOUNT);
	if (!region->pages)
		goto err_charge;
	ret = fill(region);
	if (ret)
		goto err_pages;
	return region;

err_pages:
	free_pages_of(region);
	kvfree(region->pages);
err_charge:
	uncharge(payer, region->nr);
err_free:
	kfree(region);
	return ERR_PTR(ret);
}
EXPORT_SYMBOL_GPL(kcr_region_new);

static void region_free(struct kref *kref)
{
	struct kcr_region *region = container_of(kref, struct kcr_region, kref);

	free_pages_of(region);
	uncharge(region->payer, region->nr);
	kvfree(region->pages);
	kfree(region);
}

/**
 * kcr_region_put() - give a reference back
 * @region: may be gone afterwards; may be NULL
 */
void kcr_region_put(struct kcr_region *region)
{
	if (region)
		kref_put(&region->kref, region_free);
}
EXPORT_SYMBOL_GPL(kcr_region_put);

static void region_vm_open(struct vm_area_struct *vma)
{
	struct kcr_region *region = vma->vm_private_data;

	kref_get(&region->kref);
}

static void region_vm_close(struct vm_area_struct *vma)
{
	kcr_region_put(vma->vm_private_data);
}

static int region_vm_mremap(struct vm_area_struct *vma)
{
	return -EINVAL;
}

static const struct vm_operations_struct region_vm_ops = {
	.open = region_vm_open,
	.close = region_vm_close,
	.mremap = region_vm_mremap,
};

/**
 * kcr_region_map() - map a region
 * @region: the region
 * @vma: checked to have its length and the right protection
 *
 * Return: 0 or an error.
 */
int kcr_region_map(struct kcr_region *region, struct vm_area_struct *vma)
{
	int ret;

	ret = vm_map_pages_zero(vma, region->pages, region->nr);
	if (ret)
		return ret;
	/* The core closes a mapping only if this succeeds. */
	kref_get(&region->kref);
	vma->vm_private_data = region;
	vma->vm_ops = &region_vm_ops;
	return 0;
}
EXPORT_SYMBOL_GPL(kcr_region_map);
