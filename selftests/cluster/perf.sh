#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# kcr-perf between nodes gets what it gets through memory: no wrong element, and
# the same hashes for every collective and size; and what it says of message rings there
# can be so

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
# shellcheck source=selftests/lib/tap.sh
. ./tap.sh

node=${KCR_NODE:-0} nodes=${KCR_NODES:-1}
ranges=("-b 8 -e 256K -f 8" "-b 4M -e 4M")
unset KCR_LINK KCR_ALGO KCR_FOLD
export KCR_TIMEOUT=60 KCR_RENDEZVOUS_TIMEOUT=90

# measure FILE OPTION...: every collective, with kcr-run's options
measure()
{
	local file=$1 range sizes
	shift

	: > "$file"
	for range in "${ranges[@]}"; do
		read -ra sizes <<< "$range"
		if ! ./kcr-run "$@" ./kcr-perf all "${sizes[@]}" -n 1 -w 0 > "$tmp/table" 2>&1 ||
		   { [ "$node" -eq 0 ] &&
		     ! grep -q '# wrong 0, hashes equal: OK$' "$tmp/table"; }; then
			sed 's/^/# /' "$tmp/table" | tail -n 20
			return 1
		fi
		cat "$tmp/table" >> "$file"
	done
}

# A row for each size and mode: times in order, messages that came, and of a safe lane all.
check_rings()
{
	./kcr-run -n 1 --no-tag ./kcr-perf ring --wait -b 8 -e 4K -f 512 -n 100 -w 10 \
		> "$1" 2>&1 || {
		sed 's/^/# /' "$1" | tail -n 20
		return 1
	}
	[ "$node" -eq 0 ] || return 0
	awk '
	/^#/ { next }
	NF != 9 || $3 <= 0 || $3 > $4 || $4 > $5 || $5 > $6 || $7 < 0 || $9 < 0 || $9 >= 100 ||
	($2 == "safe" && $9 != 0) { bad = 1 }
	{ print "# " $0; rows = rows " " $1 $2 }
	END { exit bad || rows != " 8safe 4096safe 8raw 4096raw" }' "$1"
}

echo "TAP version 13"
needs_nodes
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
echo "1..$((node ? 3 : 7))"
for ranks in 1 2; do
	measure "$tmp/mesh" -n $ranks
	report $? "$ranks ranks a node"
	[ "$node" -eq 0 ] || continue
	KCR_LINK=shm measure "$tmp/shm" -n $((ranks * nodes)) --nnodes 1
	report $? "$((ranks * nodes)) ranks of one node"
	results "$tmp/mesh" > "$tmp/a"
	results "$tmp/shm" > "$tmp/b"
	[ "$(grep -c . "$tmp/a")" -ge 30 ] && cmp "$tmp/a" "$tmp/b"
	report $? "the same $(grep -c . "$tmp/a") results"
done
check_rings "$tmp/ring"
report $? "messages of rings"
