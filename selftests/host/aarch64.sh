#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# aarch64 - the fold gives the same bits on another architecture, and so does the
# checksum
#
# Compiles both and their tests for aarch64 and runs them under qemu-user: the
# golden hashes, the oracle's known answers, every form, and the caller's
# floating-point state. Budget: 40 seconds.

set -u -o pipefail

here=$(dirname "$(readlink -f "$0")")
cc=${AARCH64_CC:-aarch64-linux-gnu-gcc}
qemu=${QEMU_AARCH64:-qemu-aarch64}
tests=(golden oracle half forms state crc32c)

echo "TAP version 13"
skip()
{
	echo "1..0 # SKIP $1"
	exit 4
}

# From a source tree, or from where its tests are installed.
for top in "$here/../.." "$here/../../../.."; do
	[ -r "$top/lib/fold_body.h" ] && break
done
[ -r "$top/lib/fold_body.h" ] || skip "the library's sources are not here"
top=$(readlink -f "$top")
harness=$top/build/kselftest/tools/testing/selftests
[ -r "$harness/kselftest_harness.h" ] || skip "no build/kselftest: make kselftest"
command -v "$cc" > /dev/null ||
	skip "no $cc: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
command -v "$qemu" > /dev/null || skip "no $qemu: apt-get install qemu-user"

dir=$(mktemp -d) || exit
trap 'rm -rf "$dir"' EXIT
echo "# budget: 40 s"
echo "1..$((${#tests[@]} + 1))"
failed=0

# Case $1, called $2, went well if $3 is 0.
result()
{
	if [ "$3" -eq 0 ]; then
		echo "ok $1 $2"
	else
		echo "not ok $1 $2"
		failed=1
	fi
}

# The flags are lib/build.mk's.
# shellcheck disable=SC2016 # it is make's variable
flags=$(make -s --no-print-directory -C "$top" -f lib/build.mk \
	--eval 'fold-flags: ; @echo $(LIB_FOLD_CFLAGS)' fold-flags)
build()
{
	local source extra name common="-std=gnu11 -D_GNU_SOURCE -I$top/include"

	# As many at a time as there are CPUs; each line is a command.
	for source in "$top"/lib/{fold*,crc32c,error,types}.c; do
		extra=$flags
		case $source in
		*/fold_scalar.c) extra+=" -fno-tree-vectorize" ;;
		*/fold_reference.c) extra="-ffp-contract=off -frounding-math" ;;
		esac
		name=$(basename "$source" .c)
		echo "-O2 $extra $common -fvisibility=hidden -Wall -Wextra -Werror" \
			"-I$top/uapi -c -o $dir/$name.o $source"
	done > "$dir/commands"
	for name in "${tests[@]}"; do
		echo "-O2 $common -DFOLD_ONLY -ffp-contract=off" \
			"-I$top/selftests/lib -isystem $harness -c" \
			"-o $dir/test-$name.o $top/selftests/host/$name.c"
	done >> "$dir/commands"
	xargs -P "$(nproc)" -L 1 "$cc" < "$dir/commands" || return
	for name in "${tests[@]}"; do
		"$cc" -static -o "$dir/$name" "$dir/test-$name.o" \
			"$dir"/{fold*,crc32c,error,types}.o -lm -lpthread || return
	done
}

build > "$dir/log" 2>&1
status=$?
[ $status -eq 0 ] || sed 's/^/# /' "$dir/log"
result 1 "the fold, the checksum and their tests compile for aarch64" $status
n=1
for test in "${tests[@]}"; do
	n=$((n + 1))
	arguments=()
	[ "$test" = golden ] && arguments=("$top/selftests/host/golden.txt")
	# Its cases are this one's subtests.
	env -u KCR_FOLD -u KCR_TEST_LONG "$qemu" "$dir/$test" "${arguments[@]}" 2>&1 |
		sed 's/^/    /'
	result $n "aarch64: $test" $?
done
exit $failed
