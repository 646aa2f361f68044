#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# One hash of weights, whatever trains: the digits sample for a few steps on 4
# ranks by every algorithm and every form of the fold, over the link that
# KCR_LINK names and over emulated ones, and by the oracle.

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
# shellcheck source=selftests/lib/tap.sh
. ./tap.sh
# shellcheck source=selftests/lib/weights.sh
. ./weights.sh

readonly RANKS=4 STEPS=20
link=${KCR_LINK:-shm}
unset KCR_ALGO KCR_FOLD
# A few segments a message, so that algorithms have something to do.
export KCR_LINK=$link KCR_LANE_BYTES=4096 KCR_BOARD_BYTES=4096 KCR_TIMEOUT=60

case $(uname -m) in
x86_64) forms=(scalar avx2 avx512) ;;
aarch64) forms=(scalar neon) ;;
*) forms=(scalar) ;;
esac
algorithms=(direct owner chain)

echo "TAP version 13"
needs_module
echo "1..$((1 + 2 * ${#forms[@]} * ${#algorithms[@]}))"

find_weights --ranks $RANKS --steps $STEPS
for form in "${forms[@]}"; do
	missing=$(KCR_FOLD=$form ./digits --emulate --ranks 1 --steps 1 2>&1) && missing=
	for algorithm in "${algorithms[@]}"; do
		export KCR_FOLD=$form KCR_ALGO=$algorithm
		if [ -n "$missing" ]; then
			report 0 "$link $algorithm $form # SKIP $missing"
			report 0 "emulated $algorithm $form # SKIP $missing"
			continue
		fi
		train "$link $algorithm $form" $RANKS \
			"rank [0-9]+ of $RANKS link $link algo $algorithm fold $form" \
			./kcr-run -n $RANKS ./digits --steps $STEPS
		train "emulated $algorithm $form" 1 \
			"emulated $RANKS ranks algo $algorithm fold $form" \
			./digits --emulate --ranks $RANKS --steps $STEPS
	done
done
