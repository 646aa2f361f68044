#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# kunit.sh - the cases that the modules run by themselves when they are loaded
#
# On a kernel with KUnit built in, the modules have suites for what needs no process:
# kmod/*_kunit.c, kmod/verbs/*_kunit.c. Their results lie in debugfs; each case is one
# here. Other kernels have none of it, and nothing to skip but the whole.

cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
# shellcheck source=selftests/lib/tap.sh
. ./tap.sh

results=/sys/kernel/debug/kunit
echo "TAP version 13"

[ "$(id -u)" -eq 0 ] || skip_all "needs root"
[ -d /sys/module/kcollring ] || skip_all "kcollring is no module here, or not loaded"
[ ! -e /sys/module/kunit/initstate ] || skip_all "KUnit is a module, and so not used"
[ -d "$results" ] || skip_all "no KUnit in this kernel, or not in debugfs"

suites=(device window user member mesh)
[ ! -d /sys/module/kcollring_verbs ] || suites+=(conn listen say ring lane source)
# And whatever else there is: one that this list does not know must not go unseen.
for found in "$results"/kcollring-*; do
	[[ " ${suites[*]} " == *" ${found##*/kcollring-} "* ]] || suites+=("${found##*/kcollring-}")
done

lines=()
failed=0
for suite in "${suites[@]}"; do
	cases=()
	# A module that was built for this kernel without them is as bad as a failure.
	[ ! -r "$results/kcollring-$suite/results" ] ||
		mapfile -t cases < <(sed -nE 's/^    ((not )?ok) [0-9]+ (.*)/\1 \3/p' \
			"$results/kcollring-$suite/results")
	if [ ${#cases[@]} -eq 0 ]; then
		lines+=("not ok $((${#lines[@]} + 1)) $suite: there are no results")
		failed=1
	fi
	for case in "${cases[@]}"; do
		if [ "${case%% *}" = not ]; then
			lines+=("not ok $((${#lines[@]} + 1)) $suite: ${case#not ok }")
			sed 's/^/# /' "$results/kcollring-$suite/results"
			failed=1
		else
			lines+=("ok $((${#lines[@]} + 1)) $suite: ${case#ok }")
		fi
	done
done

echo "1..${#lines[@]}"
printf '%s\n' "${lines[@]}"
exit "$failed"
