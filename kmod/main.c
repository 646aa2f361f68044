// SPDX-License-Identifier: GPL-2.0
/*
 * The module: its parameters, its start and its end. Everything else lives in
 * the file of the object that it concerns; kcollring.h has the overview.
 */
#include <linux/build_bug.h>
#include <linux/mm.h>
#include <linux/module.h>

#include "kcollring.h"

unsigned int kcr_max_members = 1024;
module_param_named(max_members_per_user, kcr_max_members, uint, 0644);
MODULE_PARM_DESC(max_members_per_user,
		 "Memberships of one user, over all worlds (default 1024)");

unsigned long kcr_max_pages = SZ_1G >> PAGE_SHIFT;
module_param_named(max_pages_per_user, kcr_max_pages, ulong, 0644);
MODULE_PARM_DESC(max_pages_per_user,
		 "Pages in windows of one user, over all worlds (default 1 GiB of them)");

unsigned int kcr_max_parked = 64;
module_param_named(max_parked, kcr_max_parked, uint, 0644);
MODULE_PARM_DESC(max_parked, "Parked commands of one membership (default 64)");

unsigned int kcr_max_conns = 16384;
module_param_named(max_conns_per_user, kcr_max_conns, uint, 0644);
MODULE_PARM_DESC(max_conns_per_user,
		 "Connections to peers of one user, over all worlds (default 16384)");

/* The ABI: none of these may ever change. */
static_assert(sizeof(struct kcr_query) == 104);
static_assert(offsetof(struct kcr_query, features) == 16);
static_assert(offsetof(struct kcr_query, max_members) == 32);
static_assert(offsetof(struct kcr_query, max_parked) == 64);
static_assert(offsetof(struct kcr_query, version) == 72);
static_assert(sizeof(struct kcr_join) == 56);
static_assert(offsetof(struct kcr_join, key) == 24);
static_assert(offsetof(struct kcr_join, rank) == 40);
static_assert(offsetof(struct kcr_join, cause) == 48);
static_assert(sizeof(struct kcr_lane_desc) == 16);
static_assert(sizeof(struct kcr_window) == 32);
static_assert(offsetof(struct kcr_window, lanes) == 16);
static_assert(offsetof(struct kcr_window, board_bytes) == 24);
static_assert(sizeof(struct kcr_window_detach) == 16);
static_assert(sizeof(struct kcr_slot) == KCR_SLOT_PAYLOAD);
static_assert(offsetof(struct kcr_slot, length) == 8);
static_assert(offsetof(struct kcr_slot, checksum) == 12);
static_assert(sizeof(struct kcr_ack) == 16);
static_assert(sizeof(struct kcr_status) == 128 + KCR_MAX_RANKS);
static_assert(offsetof(struct kcr_status, cause) == KCR_CACHE_LINE);
static_assert(offsetof(struct kcr_status, joined) == 72);
static_assert(offsetof(struct kcr_status, left) == 76);
static_assert(offsetof(struct kcr_status, member) == 128);
static_assert(sizeof(struct kcr_status) <= PAGE_SIZE);
static_assert(sizeof(struct kcr_claim) == 32);
static_assert(offsetof(struct kcr_claim, kind) == 24);
static_assert(sizeof(struct kcr_wait) == 32);
static_assert(offsetof(struct kcr_wait, cookie) == 24);
static_assert(sizeof(struct kcr_kick) == 24);
static_assert(offsetof(struct kcr_kick, mask) == 16);
static_assert(sizeof(struct kcr_leave) == 8);
static_assert(sizeof(struct kcr_cancel) == 16);
static_assert(sizeof(struct kcr_fail) == 16);
static_assert(sizeof(struct kcr_board) == 80);
static_assert(offsetof(struct kcr_board, sleeping) == KCR_CACHE_LINE);
static_assert(offsetof(struct kcr_board, beat_ns) == 72);
static_assert(sizeof(struct kcr_ring_status) == 128);
static_assert(offsetof(struct kcr_ring_status, length) == 40);
static_assert(sizeof(struct kcr_conn_status) == 4096);
static_assert(offsetof(struct kcr_conn_status, local) == 16);
static_assert(offsetof(struct kcr_conn_status, mtu) == 104);
static_assert(offsetof(struct kcr_conn_status, device) == 128);
static_assert(offsetof(struct kcr_conn_status, board) == 256);
static_assert(offsetof(struct kcr_conn_status, rings) == 1024);
static_assert(sizeof(struct kcr_frames) == 24);
static_assert(sizeof(struct kcr_connect) == 80);
static_assert(offsetof(struct kcr_connect, timeout_ms) == 72);
static_assert(sizeof(struct kcr_send) == 56);
static_assert(offsetof(struct kcr_send, sequence) == 48);
static_assert(sizeof(struct kcr_release) == 32);
static_assert(sizeof(struct kcr_lane_status) == KCR_CACHE_LINE);
static_assert(offsetof(struct kcr_lane_status, put) == 16);
static_assert(offsetof(struct kcr_lane_status, acked) == 32);
static_assert(sizeof(struct kcr_put) == 32);
static_assert(offsetof(struct kcr_put, count) == 24);
static_assert(sizeof(struct kcr_put_ack) == 16);
static_assert(sizeof(struct kcr_arm) == 24);
static_assert(offsetof(struct kcr_arm, seen) == 16);
static_assert(sizeof(struct kcr_info) == 120);
static_assert(offsetof(struct kcr_info, id) == 24);
static_assert(offsetof(struct kcr_info, cause) == 40);
static_assert(offsetof(struct kcr_info, pages) == 64);
static_assert(offsetof(struct kcr_info, claim) == 80);
static_assert(offsetof(struct kcr_info, age_ns) == 112);
static_assert(KCR_SLOT_STRIDE(1) == KCR_CACHE_LINE);
static_assert(KCR_SLOT_STRIDE(40) == KCR_CACHE_LINE);
static_assert(KCR_SLOT_STRIDE(41) == 2 * KCR_CACHE_LINE);

static int __init kcr_init(void)
{
	return kcr_device_register();
}

static void __exit kcr_exit(void)
{
	kcr_device_unregister();
	kcr_monitor_stop();
}

module_init(kcr_init);
module_exit(kcr_exit);

MODULE_DESCRIPTION("Ring windows and commands for collectives");
MODULE_AUTHOR("The kcollring developers");
MODULE_VERSION(KCR_VERSION);
MODULE_LICENSE("GPL");
