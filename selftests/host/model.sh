#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# model - spin searches the models of lanes and of sleeping and waking
#
# Documentation/models has them, Documentation/ring.rst says what they show. As the protocol
# is, spin finds nothing. With any one of its barriers or steps left out it finds what that
# is there to prevent: so a model that could not fail would fail here. Budget: 30 seconds. The
# long form (KCR_TEST_LONG) also has sleeping on the weaker machine with all its lanes and
# messages: 67 million states, 4 GB of memory and some minutes.

set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
here=$PWD

# Model, how it is compiled, and what spin finds: nothing, a state in which nothing can
# move (stuck), or an assertion that does not hold (wrong). TSO is x86's memory; the
# others are weaker.
cases()
{
	cat << 'END'
sleep	TSO				nothing
sleep	TSO FLAG_STORED LANES=1		nothing
sleep	MESSAGES=1			nothing
sleep	LANES=1				nothing
sleep	TSO FLAG_STORED LANES=1 NO_SLEEPER_FENCE	stuck
sleep	LANES=1 NO_SLEEPER_FENCE	stuck
sleep	TSO NO_WAKER_FENCE		stuck
sleep	LANES=1 NO_WAKER_FENCE		stuck
sleep	TSO SEEN_LATE			stuck
sleep	TSO FLAG_STORED			stuck
sleep	MESSAGES=1 FLAG_STORED		stuck
lane	TSO				nothing
lane	-				nothing
lane	TSO NO_WAIT			wrong
lane	NO_SEQUENCE_RELEASE		wrong
lane	NO_SEQUENCE_ACQUIRE		wrong
lane	NO_ACK_RELEASE			wrong
raw	TSO DEPTH=2 MESSAGES=5		nothing
raw	-				nothing
raw	TSO DEPTH=2 MESSAGES=5 NO_ZERO	wrong
raw	NO_WALL				wrong
raw	NO_SEQUENCE_RELEASE		wrong
raw	NO_SEQUENCE_ACQUIRE		wrong
raw	NO_SECOND_LOOK			wrong
raw	NO_COPY_ACQUIRE			wrong
counter	-				nothing
counter	SEQUENCE_FIRST			wrong
arm	-				nothing
arm	NO_COMPARE			stuck
arm	NO_LOCK				stuck
arm	SEEN_LATE			stuck
arm	RINGS=1				nothing
arm	COUNT_OWED			stuck
arm	RINGS=3				nothing
arm	RINGS=3 NO_LOOK			stuck
END
	[ -z "${KCR_TEST_LONG:-}" ] || echo "sleep	-	nothing"
}

# search N MODEL DEFINES... FOUND: is that what spin finds? The search itself is complete
# only if it was not cut off by a limit.
search()
{
	local n=$1 model=$2 defines=("${@:3:$#-3}") define options=() said found

	for define in "${defines[@]}"; do
		[ "$define" = - ] || options+=("-D$define")
	done
	mkdir "$scratch/$n" && cd "$scratch/$n" && cp "$models"/*.pml . || return
	if spin "${options[@]}" -a "$model.pml" > log 2>&1 &&
		gcc -w "-O$speed" -DSAFETY -DCOLLAPSE -DMEMLIM="$memory" -o pan pan.c >> log 2>&1 &&
		./pan -m100000 > said 2>&1; then
		said=$(< said)
	else
		said=failed
	fi
	case $said in
	failed|*'max search depth'*|*'reached -DMEMLIM'*) found="no end" ;;
	*'invalid end state ('*) found=stuck ;;
	*'assertion violated'*) found=wrong ;;
	*'errors: 0'*) found=nothing ;;
	*) found="no end" ;;
	esac
	[ "$found" = "${*: -1}" ] || {
		echo "$found"
		tail -n 40 log said
	} > "$scratch/$n.bad"
}

echo "TAP version 13"
skip()
{
	echo "1..0 # SKIP $1"
	exit 4
}

# From a source tree, or from where its tests are installed.
for top in "$here/../.." "$here/../../../.."; do
	models=$top/Documentation/models
	[ -r "$models/machine.pml" ] && break
done
[ -r "$models/machine.pml" ] || skip "the models are not here"
models=$(readlink -f "$models")
command -v spin > /dev/null || skip "no spin: apt-get install spin"
command -v gcc > /dev/null || skip "no gcc: apt-get install gcc"

# Megabytes for each search; and a search of seconds is not worth a slower compiler.
memory=1000 speed=0
[ -z "${KCR_TEST_LONG:-}" ] || memory=8000 speed=2

scratch=$(mktemp -d) || exit
trap 'rm -rf "$scratch"' EXIT
mapfile -t list < <(cases)
echo "# budget: 30 s"
echo "1..${#list[@]}"

# As many at a time as there are CPUs.
for n in "${!list[@]}"; do
	[ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
	# shellcheck disable=SC2086 # a list of words
	search "$n" ${list[n]} &
done
wait

failed=0
for n in "${!list[@]}"; do
	read -ra words <<< "${list[n]}"
	name="${words[*]:0:${#words[@]}-1}: ${words[-1]}"
	name=${name/ -:/:}
	if [ -d "$scratch/$n" ] && ! [ -e "$scratch/$n.bad" ]; then
		echo "ok $((n + 1)) $name"
	else
		sed 's/^/# /' "$scratch/$n.bad" 2> /dev/null
		echo "not ok $((n + 1)) $name"
		failed=1
	fi
done
exit $failed
