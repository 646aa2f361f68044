#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# kmemleak.sh - what was allocated since boot and is referred to by nothing
#
# To be run last, on a kernel with DEBUG_KMEMLEAK, after the tests that may have lost
# something. A report that is not in the known issues is a failure, whoever lost it.

set -u

kmemleak=/sys/kernel/debug/kmemleak
reports=$(mktemp) || exit
trap 'rm -f "$reports"' EXIT

echo "TAP version 13"
if [ ! -w $kmemleak ] || ! echo scan > $kmemleak; then
	echo "1..0 # SKIP no kmemleak in this kernel, or it has switched itself off"
	exit 4
fi
if ! command -v kcr-dmesg-check > /dev/null; then
	echo "1..0 # SKIP no kcr-dmesg-check, which knows what to look for"
	exit 4
fi
echo "1..1"
# It does not report what is younger than five seconds, nor what changes between scans.
sleep 6
if ! echo scan > $kmemleak || ! cat $kmemleak > "$reports"; then
	echo "not ok 1 kmemleak works"
	exit 1
fi
if kcr-dmesg-check --filter < "$reports" > /dev/null; then
	echo "ok 1 nothing is lost"
else
	sed 's/^/# /' "$reports"
	echo "not ok 1 nothing is lost"
	exit 1
fi
