# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Training ends with the oracle's weights: what the tests of the digits sample
# have in common. Needs tap.sh.

weights=

# find_weights OPTION...: what all is compared with
find_weights()
{
	local line

	line=$(./digits --oracle "$@" 2>&1)
	[[ $line =~ weights\ ([0-9a-f]{64})$ ]] && weights=${BASH_REMATCH[1]}
	[ -n "$weights" ] || echo "# $line"
	report $? "oracle: $weights"
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

# train NAME LINES WHO COMMAND...
train()
{
	local what=$1 lines=$2 who=$3
	shift 3

	"$@" 2>&1 | agree "$lines" "$who"
	report $? "$what"
}
