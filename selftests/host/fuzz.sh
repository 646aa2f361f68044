#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# fuzz - arguments of the public calls, by libFuzzer, for a while
#
# Builds the library and fuzz_args.c with clang, AddressSanitizer and
# UndefinedBehaviorSanitizer. KCR_FUZZ_SECONDS says how long, 30 by default (600
# with KCR_TEST_LONG=1). What it finds is kept in the directory that it names.
# Budget: 60 seconds.

set -u -o pipefail

here=$(dirname "$(readlink -f "$0")")
cc=${FUZZ_CC:-clang}
seconds=30
[ "${KCR_TEST_LONG:-0}" != 1 ] || seconds=600
seconds=${KCR_FUZZ_SECONDS:-$seconds}
sanitizers=address,undefined

echo "TAP version 13"
skip()
{
	echo "1..0 # SKIP $1"
	exit 4
}

# From a source tree, or from where its tests are installed.
for top in "$here/../.." "$here/../../../.."; do
	[ -r "$top/lib/coll.c" ] && break
done
[ -r "$top/lib/coll.c" ] || skip "the library's sources are not here"
top=$(readlink -f "$top")
command -v "$cc" > /dev/null || skip "no $cc: apt-get install clang"

dir=$(mktemp -d) || exit
trap 'rm -rf "$dir"' EXIT
echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' \
	> "$dir/try.c"
"$cc" -fsanitize=fuzzer,$sanitizers -o "$dir/try" "$dir/try.c" 2> /dev/null ||
	skip "no libFuzzer for $cc: apt-get install libclang-rt-14-dev"

echo "# budget: $((seconds + 30)) s"
echo "1..2"
# One file at a time and for any CPU: the fold's vector forms have tests of their own.
build()
{
	local source extra

	for source in "$top"/lib/*.c; do
		extra=
		case $source in
		*/fold_avx2.c) extra="-mavx2" ;;
		*/fold_avx512.c) extra="-mavx512f -mavx512bw -mavx512dq -mavx512vl" ;;
		esac
		# shellcheck disable=SC2086 # a list of options
		echo -O1 -g $extra -std=gnu11 -D_GNU_SOURCE -fPIC -ffp-contract=off \
			-fsanitize=fuzzer-no-link,$sanitizers \
			-fno-sanitize-recover=undefined -Wall -Wextra -Werror \
			-fvisibility=hidden -I"$top/include" -I"$top/uapi" \
			-c -o "$dir/$(basename "$source" .c).o" "$source"
	done | xargs -P "$(nproc)" -L 1 "$cc" || return
	"$cc" -O1 -g -std=gnu11 -Wall -Wextra -Werror \
		-fsanitize=fuzzer,$sanitizers -fno-sanitize-recover=undefined \
		-I"$top/include" -o "$dir/fuzz" "$top/selftests/host/fuzz_args.c" \
		"$dir"/*.o -luring -lpthread -lm
}

if ! build > "$dir/log" 2>&1; then
	sed 's/^/# /' "$dir/log"
	echo "not ok 1 the library compiles for libFuzzer"
	echo "not ok 2 arguments # SKIP there is nothing to run"
	exit 1
fi
echo "ok 1 the library compiles for libFuzzer"

cd "$dir" || exit
mkdir corpus
if env -i PATH="$PATH" HOME="$HOME" ./fuzz -max_total_time="$seconds" -max_len=512 \
	-len_control=0 -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 corpus \
	> log 2>&1; then
	sed -n 's/^stat::number_of_executed_units: */# inputs: /p' log
	grep -E 'DONE' log | tail -n 1 | sed 's/^/# /'
	echo "ok 2 arguments, $seconds s"
	exit 0
fi
tail -n 60 log | sed 's/^/# /'
kept=$(mktemp -d) && cp log crash-* timeout-* leak-* oom-* "$kept" 2> /dev/null
echo "# kept in $kept"
echo "not ok 2 arguments, $seconds s"
exit 1
