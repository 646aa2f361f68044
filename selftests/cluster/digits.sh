#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Training between nodes ends with the weights of training on one: the digits
# sample for a few steps by every algorithm, and by the oracle

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

readonly EACH=2 STEPS=20
node=${KCR_NODE:-0} nodes=${KCR_NODES:-1}
ranks=$((EACH * nodes))
unset KCR_LINK KCR_ALGO KCR_FOLD
# A few segments a message, so that algorithms have something to do.
export KCR_LANE_BYTES=4096 KCR_BOARD_BYTES=4096 KCR_TIMEOUT=60
export KCR_RENDEZVOUS_TIMEOUT=90
number=0

report()
{
	number=$((number + 1))
	echo "$1 $number $2"
}

# Do @1 lines of standard input say that the weights are the oracle's?
agree()
{
	local lines=$1 line good=0 bad=0

	while IFS= read -r line; do
		if [[ $line =~ \ accuracy\ [0-9.]+\ %\ weights\ ([0-9a-f]{64})$ ]] &&
		   [ "${BASH_REMATCH[1]}" = "$weights" ]; then
			good=$((good + 1))
		else
			bad=$((bad + 1))
			echo "# $line"
		fi
	done
	[ $good -eq "$lines" ] && [ $bad -eq 0 ]
}

train()
{
	local what=$1 lines=$2
	shift 2

	if "$@" 2>&1 | agree "$lines"; then
		report ok "$what"
	else
		report "not ok" "$what"
	fi
}

echo "TAP version 13"
if [ "$nodes" -lt 2 ] || [ -z "${KCR_RDMA:-}" ]; then
	echo "1..0 # SKIP not on several nodes with RDMA: see kcr-vm --nodes --rdma"
	exit 4
fi
echo "1..5"
weights=
line=$(./digits --oracle --ranks $ranks --steps $STEPS 2>&1)
if [[ $line =~ weights\ ([0-9a-f]{64})$ ]]; then
	weights=${BASH_REMATCH[1]}
	report ok "oracle: $weights"
else
	echo "# $line"
	report "not ok" "oracle"
fi
for algorithm in direct owner chain; do
	export KCR_ALGO=$algorithm
	train "$ranks ranks of $nodes nodes, $algorithm" $EACH \
		./kcr-run -n $EACH ./digits --steps $STEPS
done
unset KCR_ALGO
KCR_LINK=module train "$ranks ranks of node $node" $ranks \
	./kcr-run -n $ranks --nnodes 1 ./digits --steps $STEPS
