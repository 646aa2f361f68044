#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# One node over RDMA gets the same bits as over memory, whatever the number of
# ranks and wires, the size of frames, the way of commands and when ranks connect; and
# says what is wrong where it cannot

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
# shellcheck source=selftests/lib/tap.sh
. ./tap.sh

unset KCR_ALGO KCR_FOLD KCR_LINK
export KCR_TIMEOUT=60

# hashes RANKS OPTION...: the hash of each row, if all is well
hashes()
{
	local ranks=$1
	shift

	kcr-run -n "$ranks" --no-tag kcr-perf "$@" -n 1 -w 1 > "$tmp/table" 2>&1 || {
		sed 's/^/# /' "$tmp/table" | tail -n 10
		return 1
	}
	awk '!/^#/ { print $1, $NF }' "$tmp/table"
}

# same NAME RANKS OPTION...: the mesh, as the environment has it, against memory
same()
{
	local name=$1 mesh memory
	shift

	mesh=$(KCR_LINK=mesh hashes "$@")
	memory=$(KCR_LINK=shm hashes "$@")
	[ -n "$memory" ] && [ "$mesh" = "$memory" ]
	report $? "$name" || echo "# $mesh / $memory"
}

# waits NAME WORDS COMMAND...: ranks say so of how they wait, each of them
waits()
{
	local name=$1 words=$2 said
	shift 2

	said=$(KCR_DEBUG=1 "$@" 2>&1) &&
		[ "$(grep -c "waits: $words," <<< "$said")" -eq 2 ]
	report $? "$name" || echo "# $(grep -m 2 "waits:" <<< "$said")"
}

# fails NAME WORDS COMMAND...: it fails, and says so
fails()
{
	local name=$1 words=$2 said
	shift 2

	if said=$("$@" 2>&1); then
		said="it did not fail"
	fi
	[[ $said == *"$words"* ]]
	report $? "$name"
	[[ $said == *"$words"* ]] || echo "# $said"
}

echo "TAP version 13"
if [ -z "${KCR_RDMA:-}" ] || [ "${KCR_NODES:-1}" -ne 1 ]; then
	skip_all "not on one node with RDMA: see kcr-vm --rdma"
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
echo "1..18"
same "16 ranks" 16 allreduce -b 8 -e 64K -f 90
large=(allreduce -b 2M -e 2M)
for wires in 1 2 3 4; do
	KCR_WIRES_MAX=$wires same "wires: $wires" 3 "${large[@]}"
done
for bytes in 4096 30000 524288; do
	KCR_LANE_BYTES=$bytes KCR_BOARD_BYTES=$bytes \
		same "segments of $bytes" 3 "${large[@]}"
done
KCR_MESH_DEPTH=1 same "one frame on its way" 3 all -b 8 -e 1M -f 40
KCR_URING=0 same "commands by ioctl" 3 all -b 8 -e 64K -f 90
KCR_URING=sqpoll same "commands by a polling thread" 3 all -b 8 -e 64K -f 90
KCR_CONNECT=lazy same "connections on first use" 5 all -b 8 -e 64K -f 90
KCR_CONNECT=lazy KCR_ALGO=chain same "a chain on first use" 8 allreduce -b 64K -e 64K
KCR_LINK=mesh KCR_WIRES=rxe99 fails "no such device" \
	'wires has "rxe99", which is no RDMA device with an address here: there are rxe0' \
	kcr-run -n 2 kcr-perf barrier
KCR_LINK=mesh fails "a network namespace without one" "has no RDMA device with an address" \
	unshare -n kcr-run -n 2 kcr-perf barrier
two=(taskset -c 0 kcr-run -n 2 kcr-perf barrier -n 10)
KCR_LINK=mesh waits "no CPU to spare for wires of software" "0 looks, 0 yields" "${two[@]}"
KCR_LINK=mesh KCR_SPIN=5 KCR_YIELD=6 waits "as it is told to" "5 looks, 6 yields" "${two[@]}"
KCR_LINK=module waits "memory needs no CPU" "16 looks, 256 yields" "${two[@]}"
