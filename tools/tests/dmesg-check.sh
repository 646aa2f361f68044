#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Tests of kcr-dmesg-check --filter in TAP: what is trouble, and what is a known issue

set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
checker=$here/kcr-dmesg-check # beside it when installed
[ -r "$checker" ] || checker=$here/../vm/kcr-dmesg-check
tmp=$(mktemp -d) || exit
trap 'rm -rf "$tmp"' EXIT

# It finds the known issues from where it lies.
mkdir -p "$tmp/tools/vm" "$tmp/selftests"
cp "$checker" "$tmp/tools/vm/" || exit
count=0
failed=0

# finds NAME LINES: of the log on standard input, with the known issues in $known,
# these line numbers are trouble
finds()
{
	local log=$tmp/log want=$2 got status=0

	cat > "$log"
	printf '%s\n' "$known" > "$tmp/selftests/known-issues"
	got=$("$tmp/tools/vm/kcr-dmesg-check" --filter < "$log") || status=1
	got=$(grep -nxFf <(echo "${got:-nothing}") "$log" | cut -d : -f 1 | xargs)
	count=$((count + 1))
	if [ "$got" = "$want" ] && { [ -z "$want" ] || [ $status -eq 1 ]; } &&
	   { [ -n "$want" ] || [ $status -eq 0 ]; }; then
		echo "ok $count $1"
	else
		echo "not ok $count $1"
		echo "# lines '$got', expected '$want', status $status"
		failed=$((failed + 1))
	fi
}

splat='[    2.1][   T12] WARNING: possible circular locking dependency detected
[    2.1][   T12] ip/12 is trying to acquire lock:
[    2.1][   T12] ffff8881 (a_lock){+.+.}-{3:3}, at: a_function+0x12'

echo "TAP version 13"
echo "1..10"
known='# nothing'
finds "harmless words" "" <<< "[    1.0] Spectre V2 : WARNING: all is well"
finds "a splat" "2" <<< "[    1.0] hello
$splat"
finds "memory that was lost" "1" <<< "unreferenced object 0xffff8881 (size 64):
    backtrace:"
finds "a page written after it was freed" "1 4" <<< \
"[    2.0][  T123] pagealloc: memory corruption
[    2.0][  T123] 00000000c1b6a4d2: 2a 2a 2a 2a                                      ****
[    2.0][  T123] CPU: 0 UID: 0 PID: 123 Comm: window Not tainted 6.12.0 #1
[    2.0][  T123] page dumped because: pagealloc: corrupted page details"
finds "or a bit of it" "1" <<< "[    2.0] pagealloc: single bit error"
known='# theirs
WARNING: possible circular locking dependency :: at: a_function+'
finds "a known splat" "" <<< "$splat"
finds "the same of another lock" "1" <<< "${splat//a_function/b_function}"
finds "what comes after a known one" "4" <<< "$splat
[    3.0] BUG: KASAN: use-after-free in a_function+0x1/0x2"
finds "a known one with a function of ours" "1" <<< "$splat
[    2.1]  kcr_function+0x1/0x2 [kcollring_verbs]"
known='# WARNING: possible circular locking dependency :: at: a_function+'
finds "a comment is no entry" "1" <<< "$splat"
[ $failed -eq 0 ]
