#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# demo.sh - what "make demo" runs once everything is built
#
# Trains the digits sample on 4 ranks over every path: through kcollring.ko in a
# virtual machine, through shared memory on this host and emulated in one process,
# by each algorithm, and by the oracle. All must end with the same bits in the
# weights.

set -u -o pipefail

readonly RANKS=4 STEPS=500 PROGRESS=100 KERNEL=6.12 ENOUGH=95
readonly ALGORITHMS=(direct owner chain)

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$top" || exit 1
export PATH=$top/build/bin:$PATH

# Only what this script sets may choose a path.
for name in "${!KCR_@}"; do
	[[ $name == KCR_VM_* ]] || unset "$name"
done

# One line for each rank and path: "PATH who ACCURACY HASH"
results=()
failed=

fail()
{
	echo "demo: $*" >&2
	failed=1
}

# Show what the ranks print as it comes, each line behind the name of its path;
# results go to descriptor 3. "demo-path: NAME" says that another begins.
show()
{
	local line name=

	while IFS= read -r line; do
		line=${line%$'\r'}
		if [[ $line =~ ^demo-path:\ (.*)$ ]]; then
			name=${BASH_REMATCH[1]}
		elif [[ $line =~ digits:\ (step\ .*)$ ]]; then
			printf '  %-14s %s\n' "$name" "${BASH_REMATCH[1]}"
		elif [[ $line =~ digits:\ ((rank|emulated|oracle)\ .*)$ ]]; then
			printf '%s\n' "${BASH_REMATCH[1]}" >&3
		else
			printf '  %-14s %s\n' "$name" "$line"
		fi
	done
}

# The shell command that trains over LINK by each algorithm, here or in the
# virtual machine.
training()
{
	local algorithm

	for algorithm in "${ALGORITHMS[@]}"; do
		printf 'echo "demo-path: %s %s" && ' "$1" "$algorithm"
		printf 'KCR_LINK=%s KCR_ALGO=%s kcr-run -n %d digits --steps %d --progress %d && ' \
			"$1" "$algorithm" "$RANKS" "$STEPS" "$PROGRESS"
	done
	printf 'true'
}

# Take in FILE, where each rank must have said once that it used LINK and ALGORITHM.
check_ranks()
{
	local file=$1 link=$2 algorithm=$3 rank line accuracy hash count all=1

	for ((rank = 0; rank < RANKS; rank++)); do
		count=0
		while IFS= read -r line; do
			[[ $line =~ ^rank\ $rank\ of\ $RANKS\ link\ $link\ algo\ $algorithm\ fold\ [a-z0-9]+\ accuracy\ ([0-9.]+)\ %\ weights\ ([0-9a-f]{64})$ ]] || continue
			count=$((count + 1))
			accuracy=${BASH_REMATCH[1]} hash=${BASH_REMATCH[2]}
			results+=("$link-$algorithm rank-$rank $accuracy $hash")
		done < "$file"
		[ $count -eq 1 ] && continue
		fail "$link $algorithm: $count results of rank $rank instead of 1"
		all=
	done
	[ -n "$all" ] && summary "$link $algorithm" "$accuracy" "$hash"
}

summary()
{
	printf '%-16s accuracy %s %%  weights %s\n' "$1" "$2" "$3"
}

# Take in FILE of one process, which must say nothing but WHO, a regular
# expression, it was.
check_one()
{
	local line name=$3

	line=$(< "$1")
	if [[ $line =~ ^$2\ accuracy\ ([0-9.]+)\ %\ weights\ ([0-9a-f]{64})$ ]]; then
		results+=("${name// /-} one ${BASH_REMATCH[1]} ${BASH_REMATCH[2]}")
		summary "$name" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
	else
		fail "$name: no result"
	fi
}

# Run a command and show it; its results go to FILE. It prints how long it took.
run()
{
	local file=$1 start=$SECONDS status
	shift

	"$@" 2>&1 | show 3> "$file"
	status=$?
	echo "  ($((SECONDS - start)) s)"
	[ $status -eq 0 ] || fail "exit status $status of: $*"
	return $status
}

check_link()
{
	local algorithm

	for algorithm in "${ALGORITHMS[@]}"; do
		check_ranks "$tmp/$1" "$1" "$algorithm"
	done
}

through_the_module()
{
	echo "== through kcollring.ko, in a virtual machine with Linux $KERNEL"
	run "$tmp/module" tools/vm/kcr-vm --kernel "$KERNEL" -- \
		bash -c "$(training module)"
	check_link module
}

through_shared_memory()
{
	echo "== through shared memory, on this host"
	run "$tmp/shm" bash -c "$(training shm)"
	check_link shm
}

emulated()
{
	local algorithm

	echo "== emulated, in one process"
	for algorithm in "${ALGORITHMS[@]}"; do
		run "$tmp/emulated" env KCR_ALGO="$algorithm" \
			digits --emulate --ranks "$RANKS" --steps "$STEPS"
		check_one "$tmp/emulated" \
			"emulated $RANKS ranks algo $algorithm fold [a-z0-9]+" \
			"emulated $algorithm"
	done
}

by_the_oracle()
{
	echo "== by the reference fold, in one process"
	run "$tmp/oracle" digits --oracle --ranks "$RANKS" --steps "$STEPS"
	check_one "$tmp/oracle" "oracle of $RANKS ranks" oracle
}

# All results must be the same, and good enough to have learnt something.
compare()
{
	local paths=$((${#ALGORITHMS[@]} * (2 * RANKS + 1) + 1)) entry path who accuracy hash first=

	[ ${#results[@]} -eq $paths ] ||
		fail "${#results[@]} results instead of $paths"
	for entry in "${results[@]}"; do
		read -r path who accuracy hash <<< "$entry"
		: "${first:=$accuracy $hash}"
		[ "$accuracy $hash" = "$first" ] ||
			fail "$path $who: accuracy $accuracy % weights $hash, not $first"
		[ "${accuracy%.*}" -ge $ENOUGH ] ||
			fail "$path $who: accuracy $accuracy %, $ENOUGH % were expected"
	done
	weights=${first#* }
}

for program in kcr-run digits; do
	if [ ! -x "build/bin/$program" ]; then
		echo "demo: build/bin/$program is missing: run make first" >&2
		exit 1
	fi
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
weights=

echo "Training on $RANKS ranks: the same job over every path. Watch the weights."
through_the_module
through_shared_memory
emulated
by_the_oracle
compare
if [ -n "$failed" ]; then
	echo "demo: FAILED"
	exit 1
fi
echo "demo: OK $RANKS ranks, weights $weights on every rank and path"
