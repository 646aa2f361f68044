#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Training between nodes ends with the weights of training on one: the digits
# sample for a few steps by every algorithm, and by the oracle

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
# shellcheck source=selftests/lib/tap.sh
. ./tap.sh
# shellcheck source=selftests/lib/weights.sh
. ./weights.sh

readonly EACH=2 STEPS=20
node=${KCR_NODE:-0} nodes=${KCR_NODES:-1}
ranks=$((EACH * nodes))
unset KCR_LINK KCR_ALGO KCR_FOLD
# A few segments a message, so that algorithms have something to do.
export KCR_LANE_BYTES=4096 KCR_BOARD_BYTES=4096 KCR_TIMEOUT=60
export KCR_RENDEZVOUS_TIMEOUT=90

echo "TAP version 13"
needs_nodes
echo "1..5"
find_weights --ranks $ranks --steps $STEPS
for algorithm in direct owner chain; do
	export KCR_ALGO=$algorithm
	train "$ranks ranks of $nodes nodes, $algorithm" $EACH "rank [0-9]+ of $ranks .*" \
		./kcr-run -n $EACH ./digits --steps $STEPS
done
unset KCR_ALGO
KCR_LINK=module train "$ranks ranks of node $node" $ranks "rank [0-9]+ of $ranks .*" \
	./kcr-run -n $ranks --nnodes 1 ./digits --steps $STEPS
