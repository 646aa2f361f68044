#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# kcr-perf measures every collective, type and operation over the link that
# KCR_LINK names and over emulated ones: nothing is wrong, and both have the same
# results. It measures messages over rings, too.

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
# shellcheck source=selftests/lib/tap.sh
. ./tap.sh

readonly RANKS=3
link=${KCR_LINK:-shm}
unset KCR_ALGO KCR_FOLD
export KCR_LINK=$link KCR_LANE_BYTES=512 KCR_BOARD_BYTES=512 KCR_TIMEOUT=60
what=(all -d all -o all -e 2600 -f 18 -i)
if [ "$link" = module ] || [ -n "${KCR_NODE:-}" ]; then
	what+=(-b 144 -n 1 -w 0)	# all is slow there
else
	what+=(-b 8 -n 2 -w 1)
fi

# Run into FILE; is all well, and is each pair of type and operation there?
measure()
{
	local file=$1
	shift

	if ! "$@" > "$file" 2>&1; then
		sed 's/^/# /' "$file" | tail -n 20
		return 1
	fi
	grep -q '# wrong 0, hashes equal: OK$' "$file" &&
		[ "$(results "$file" | awk 'NF && $4 != "-" { print $3, $4 }' | sort -u | wc -l)" -eq 84 ]
}

echo "TAP version 13"
needs_module
echo "1..13"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
for algorithm in direct owner chain; do
	export KCR_ALGO=$algorithm
	measure "$tmp/real" ./kcr-run -n $RANKS ./kcr-perf "${what[@]}"
	report $? "$link $algorithm"
	measure "$tmp/emulated" ./kcr-perf --emulate $RANKS "${what[@]}"
	report $? "emulated $algorithm"
	cmp -s <(results "$tmp/real") <(results "$tmp/emulated")
	report $? "$link and emulated $algorithm have the same results"
done
# One that cannot be.
./kcr-perf --emulate 2 allreduce -d f32 -o bxor > "$tmp/refused" 2>&1
[ $? -eq 2 ] && grep -q 'there is no bxor of f32' "$tmp/refused"
report $? "an operation that the type does not have"
# The time is the median, or the mean if asked for: between the least and the most.
./kcr-perf --emulate 2 allreduce -e 8 --json - > "$tmp/median" &&
	./kcr-perf --emulate 2 allreduce -e 8 -n 50 --mean --json - > "$tmp/mean" &&
	grep -q '"time": "median"' "$tmp/median" && grep -q '"time": "mean"' "$tmp/mean" &&
	awk '/"(time|min|max)_us"/ { v[$1] = $2 + 0 }
		END { exit !(v["\"min_us\":"] > 0 && v["\"time_us\":"] >= v["\"min_us\":"] &&
			v["\"time_us\":"] <= v["\"max_us\":"]) }' "$tmp/mean"
report $? "the median or the mean"
# Messages: a row for each size and mode, and none of a safe lane is lost.
./kcr-run -n $RANKS --no-tag ./kcr-perf ring -b 8 -e 4100 -f 512 -n 40 -w 5 > "$tmp/ring" &&
	[ "$(grep -cE '^ +(8|4096) +(safe|raw) ' "$tmp/ring")" -eq 4 ] &&
	awk '$2 == "safe" { n++; bad += $NF != 0 || !($3 > 0 && $3 <= $4 && $4 <= $5 && $5 <= $6) }
		END { exit !(n == 2 && !bad) }' "$tmp/ring"
report $? "messages over rings"
if [ "$(nproc)" -lt 2 ]; then
	echo "ok $((number += 1)) beside the bare machine # SKIP one CPU"
else
	./kcr-run -n 2 --no-tag ./kcr-perf ring --bare --safe -e 4K -f 512 -n 40 --json - > "$tmp/bare" &&
		[ "$(grep -c '"ratio"' "$tmp/bare")" -eq 2 ]
	report $? "beside the bare machine"
fi
