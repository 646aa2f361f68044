#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# One hash of weights, whatever trains: the digits sample for a few steps on 4
# ranks by every algorithm and every form of the fold, over the link that
# KCR_LINK names and over emulated ones, and by the oracle.

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

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
number=0

report()
{
	number=$((number + 1))
	echo "$1 $number $2"
}

# Do the lines of standard input say LINES times, as WHO (a regular expression),
# that the weights are the oracle's?
agree()
{
	local lines=$1 who=$2 line good=0 bad=0

	while IFS= read -r line; do
		if [[ $line =~ digits:\ $who\ accuracy\ [0-9.]+\ %\ weights\ ([0-9a-f]{64})$ ]] &&
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
	local what=$1 lines=$2 who=$3
	shift 3

	if "$@" 2>&1 | agree "$lines" "$who"; then
		report ok "$what"
	else
		report "not ok" "$what"
	fi
}

echo "TAP version 13"
if [ "$link" = module ] && ! [ -w /dev/kcollring ]; then
	echo "1..0 # SKIP no /dev/kcollring: insmod kcollring.ko"
	exit 4
fi
echo "1..$((1 + 2 * ${#forms[@]} * ${#algorithms[@]}))"

weights=
line=$(./digits --oracle --ranks $RANKS --steps $STEPS 2>&1)
if [[ $line =~ weights\ ([0-9a-f]{64})$ ]]; then
	weights=${BASH_REMATCH[1]}
	report ok "oracle: $weights"
else
	echo "# $line"
	report "not ok" "oracle"
fi
for form in "${forms[@]}"; do
	missing=$(KCR_FOLD=$form ./digits --emulate --ranks 1 --steps 1 2>&1) && missing=
	for algorithm in "${algorithms[@]}"; do
		export KCR_FOLD=$form KCR_ALGO=$algorithm
		if [ -n "$missing" ]; then
			report ok "$link $algorithm $form # SKIP $missing"
			report ok "emulated $algorithm $form # SKIP $missing"
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
