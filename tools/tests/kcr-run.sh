#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Tests of kcr-run in TAP: tools/tests/kcr-run.sh [build/bin/kcr-run]
# shellcheck disable=SC2016 # what is quoted is for the ranks' shell
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
run=$here/kcr-run # beside it when installed
[ -x "$run" ] || run=$here/../../build/bin/kcr-run
run=$(realpath "${1:-$run}")
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export XDG_RUNTIME_DIR=$tmp/runtime
unset KCR_NODE KCR_NODES KCR_NODE_ADDRS KCR_RENDEZVOUS KCR_JOB MASTER_ADDR MASTER_PORT
mkdir "$XDG_RUNTIME_DIR"
count=0
failed=0

# check NAME: the last command's status says how it went
check() {
	local good=$?
	count=$((count + 1))
	if [ $good -eq 0 ]; then
		echo "ok $count $1"
	else
		echo "not ok $count $1"
		failed=$((failed + 1))
		sed 's/^/# /' out err | cut -c 1-200 | head -20
	fi
}

# go ARGUMENTS: kcr-run with out and err in files; $status, $ms
go() {
	local start
	start=$(date +%s%N)
	"$run" "$@" >out 2>err </dev/null
	status=$?
	ms=$((($(date +%s%N) - start) / 1000000))
}

# says FILE PATTERN
says() {
	grep -Eq -- "$2" "$1"
}

# Processes started with this mark in their command line
marked() {
	pgrep -f "sleep $1\$" | wc -l
}

gone() {
	for _ in $(seq 50); do
		[ "$(marked "$1")" -eq 0 ] && return 0
		sleep 0.1
	done
	return 1
}

no_directory_left() {
	for _ in $(seq 50); do
		[ -z "$(ls -A "$XDG_RUNTIME_DIR")" ] && return 0
		sleep 0.1
	done
	return 1
}

wait_for() {
	for _ in $(seq 100); do
		[ "$(marked "$2")" -ge "$1" ] && return 0
		sleep 0.05
	done
	return 1
}

echo "TAP version 13"

for n in 0 257 -1 4x '' 99999999999999999999; do
	go -n "$n" true
	[ $status -eq 2 ] && says err 'must be 1 to 256'
	check "-n '$n' is refused"
done
go true
[ $status -eq 2 ] && says err '-n is missing'
check "-n is demanded"
go -n 2
[ $status -eq 2 ] && says err 'no program'
check "a program is demanded"
go -n 2 --grace x true
[ $status -eq 2 ]
check "--grace x is refused"
go -n 2 --help
[ $status -eq 0 ] && says out '^Usage'
check "--help"

go -n 4 /no/such/program
[ $status -eq 127 ] && [ "$(wc -l <err)" -eq 1 ] && says err "cannot run '/no/such/program': No such file"
check "an unknown program: 127, one message"
touch plain
go -n 4 ./plain
[ $status -eq 126 ] && [ "$(wc -l <err)" -eq 1 ]
check "a file that is no program: 126, one message"

go -n 64 sh -c 'echo "$KCR_RANK $KCR_SIZE $KCR_LOCAL_RANK $KCR_LOCAL_SIZE"'
[ $status -eq 0 ] && for r in $(seq 0 63); do echo "[$r] $r 64 $r 64"; done | sort | cmp -s - <(sort out)
check "64 ranks and their environment"
go -n 3 sh -c 'echo $KCR_JOB; d=${KCR_RENDEZVOUS#file:}; stat -c %a-%F "$d"; echo x >"$d/$KCR_RANK"; mkdir -p "$d/sub/sub"'
[ $status -eq 0 ] && [ "$(grep -Ec '^\[[0-2]\] [0-9a-f]{32}$' out)" -eq 3 ] &&
	[ "$(sed 's/^.* //' out | sort -u | wc -l)" -eq 2 ] && says out '700-directory'
check "nonce and private directory"
no_directory_left
check "the directory is removed"
XDG_RUNTIME_DIR=/no/such go -n 1 sh -c 'echo $KCR_RENDEZVOUS'
says out '^\[0\] file:/(dev/shm|tmp)/'
check "without XDG_RUNTIME_DIR"

go -n 2 sh -c 'printf "no newline"; printf "err no newline" >&2'
[ "$(sort out | tr '\n' '|')" = '[0] no newline|[1] no newline|' ] && [ "$(sort err | tr '\n' '|')" = '[0] err no newline|[1] err no newline|' ]
check "a last line without newline"
go -n 4 awk 'BEGIN { r = ENVIRON["KCR_RANK"]; s = ""; for (i = 0; i < 100000; i++) s = s r; for (i = 0; i < 50; i++) print s }'
[ "$(tr -d 0123 <out | sort | uniq -c | tr -s ' ')" = ' 200 [] ' ] && [ "$(wc -c <out)" -eq 20001000 ] &&
	[ "$(tr -s 0123 <out | sort | uniq -c | tr -d '\n' | tr -s ' ')" = ' 50 [0] 0 50 [1] 1 50 [2] 2 50 [3] 3' ]
check "long lines stay whole"
go -n 1 sh -c 'head -c 3000000 /dev/zero | tr "\0" x'
[ "$(wc -l <out)" -eq 3 ] && [ "$(sed 's/^\[0\] //' out | tr -d '\n' | wc -c)" -eq 3000000 ]
check "endless lines are cut, nothing is lost"
"$run" -n 4 awk 'BEGIN { r = ENVIRON["KCR_RANK"]; for (i = 0; i < 50000; i++) { s = r " line " i " of a flood"; if (i % 2) print s; else print s > "/dev/stderr" } }' 2>&1 | cat >out
[ "$(wc -l <out)" -eq 200000 ] && [ "$(grep -Evc '^\[([0-3])\] \1 line [0-9]+ of a flood$' out)" -eq 0 ]
check "a flood on both streams into one pipe"
go --no-tag -n 2 echo plain
[ "$(sort -u out)" = plain ]
check "--no-tag"
go -t -n 1 echo timed
says out '^\[0 [0-9]+\.[0-9]{6}\] timed$'
check "-t"
timeout 20 "$run" -n 4 yes 2>err | head -1 >out
[ "$(wc -l <out)" -eq 1 ]
check "a reader that goes away ends the job"

"$run" -n 2 sh -c 'echo lost; sleep 0.2' >/dev/full 2>err
says err 'cannot write the output: No space left'
check "a full disk is told"
"$run" -n 2 sh -c 'echo fine; echo noted >&2' >out 2>err <&- &&
	[ "$(wc -l <out)" -eq 2 ] && [ "$(wc -l <err)" -eq 2 ]
check "without standard input"

echo typed | "$run" -n 3 sh -c 'cat; echo end' >out 2>err
[ "$(sort out | tr '\n' '|')" = '[0] end|[0] typed|[1] end|[2] end|' ]
check "rank 0 gets stdin, the others nothing"

go -n 4 sh -c '[ $KCR_RANK = 2 ] && exit 7; exit 0'
[ $status -eq 7 ] && says err 'rank 2 \(pid [0-9]+\) exited with status 7'
check "the exit status of the rank that failed"
go -n 4 sh -c '[ $KCR_RANK = 2 ] && kill -9 $$; exec sleep 0.3'
[ $status -eq 137 ] && says err '^kcr-run: rank 2 \(pid [0-9]+\) was killed by signal 9 \(Killed\)$' && [ $ms -lt 20000 ]
check "a killed rank is named; the rest end by themselves"
go --grace 0.5 -n 4 sh -c '[ $KCR_RANK = 1 ] && exit 3; exec sleep 30111'
[ $status -eq 3 ] && [ $ms -lt 20000 ] && [ $ms -ge 500 ] &&
	says err 'ranks 0, 2-3: still there after 0.5 s of grace, sending SIGTERM'
check "the rest are sent SIGTERM after the grace time"
go --grace 0.2 -n 3 sh -c '[ $KCR_RANK = 1 ] && exit 3; trap "" TERM; sleep 30112; sleep 30112; sleep 30112'
[ $status -eq 3 ] && [ $ms -ge 2200 ] && [ $ms -lt 50000 ] && says err 'sending SIGKILL' && gone 30112
check "ranks that ignore SIGTERM are killed, with their children"
go --grace 0.2 -n 2 sh -c '[ $KCR_RANK = 1 ] && { sleep 0.1; exit 3; }; kill -STOP $$'
[ $status -eq 3 ] && [ $ms -lt 15000 ]
check "a stopped rank is ended too"
go -n 2 sh -c 'sleep 30113 & exit 0'
[ $status -eq 0 ] && [ $ms -lt 20000 ] && gone 30113
check "what a rank leaves behind ends with it"
go --timeout 0.5 -n 2 sleep 30114
[ $status -eq 124 ] && [ $ms -lt 20000 ] && says err "the job's 0.5 s are up" && gone 30114
check "--timeout"
go -n 64 --grace 1 sh -c '[ $KCR_RANK = 63 ] && exit 9; exec sleep 30115'
[ $status -eq 9 ] && gone 30115
check "64 ranks, the last one fails"
go -n 100 sh -c '[ $KCR_RANK = 70 ] && { : >dying; exit 9; }; [ $KCR_RANK = 6 ] || [ $KCR_RANK -gt 90 ] || exit 0; until [ -e dying ]; do sleep 0.1; done; sleep 0.5; exit 1'
[ $status -eq 9 ] && says err 'rank 70 .* status 9' && says err 'ranks 6, 91-99 failed after that'
check "who failed of 100 ranks"
good=0
for _ in $(seq 20); do
	rm -f dying
	go -n 8 sh -c '[ $KCR_RANK = 5 ] && { sleep 0.02; : >dying; kill -SEGV $$; }; until [ -e dying ]; do :; done; exit 1'
	[ $status -eq 139 ] && good=$((good + 1))
done
[ $good -eq 20 ]
check "a death by signal goes before the exits that follow from it"

# Several nodes: what a rank is told, and what is refused
told='echo "$KCR_RANK $KCR_SIZE $KCR_LOCAL_RANK $KCR_LOCAL_SIZE $KCR_RENDEZVOUS ${KCR_JOB-none}"'
# tells LINES, joined by |
tells() {
	[ $status -eq 0 ] && [ "$(sort out | tr '\n' '|')" = "$1" ]
}
# refused PATTERN
refused() {
	[ $status -eq 2 ] && says err "$1" && [ ! -s out ]
}
for node in 0 1; do
	"$run" -n 2 --nnodes 2 --node-rank $node --rdzv tcp:here:1 sh -c "$told" >out$node 2>&1 </dev/null &
	pids[node]=$!
done
wait "${pids[0]}" && wait "${pids[1]}"
status=$?
cat out0 out1 >out
tells '[0] 0 4 0 2 tcp:here:1 none|[1] 1 4 1 2 tcp:here:1 none|[2] 2 4 0 2 tcp:here:1 none|[3] 3 4 1 2 tcp:here:1 none|'
check "two nodes' ranks: the first node's come first"
export KCR_NODES=3 KCR_NODE=2 KCR_NODE_ADDRS='10.0.0.1 10.0.0.2 10.0.0.3'
go -n 1 sh -c "$told"
tells '[2] 2 3 0 1 tcp:10.0.0.1:29511 none|'
check "a node finds its place in the environment"
KCR_JOB=j MASTER_ADDR=::1 MASTER_PORT=77 go -n 1 sh -c "$told"
tells '[2] 2 3 0 1 tcp:[::1]:77 j|'
check "MASTER_ADDR and MASTER_PORT go before, the job's name stays"
MASTER_ADDR=m MASTER_PORT=77 KCR_RENDEZVOUS=file:/x go -n 1 sh -c "$told"
tells '[2] 2 3 0 1 file:/x none|'
check "KCR_RENDEZVOUS goes before those"
KCR_RENDEZVOUS=file:/x go --node-rank 0 --rdzv file:/y -n 1 sh -c "$told"
tells '[0] 0 3 0 1 file:/y none|'
check "and options before all"
go --nnodes 1 -n 2 sh -c "$told"
[ $status -eq 0 ] && [ "$(sort out | grep -Ec '^\[[01]\] ([01]) 2 \1 2 file:/.* [0-9a-f]{32}$')" -eq 2 ]
check "--nnodes 1 is a job of its own"
KCR_NODES=three go -n 1 true
refused "KCR_NODES must be 1 to 256, not 'three'"
check "KCR_NODES=three is refused"
KCR_NODE=3 go -n 1 true
refused "KCR_NODE must be 0 to 2, not '3'"
check "KCR_NODE=3 of 3 is refused"
unset KCR_NODES KCR_NODE KCR_NODE_ADDRS
go --rdzv file:/y -n 1 sh -c "$told"
says out '^\[0\] 0 1 0 1 file:/y [0-9a-f]{32}$' && no_directory_left
check "one node may be told where to meet"
for n in 0 257 two ''; do
	go --nnodes "$n" --rdzv x -n 1 true
	refused '--nnodes must be 1 to 256'
	check "--nnodes '$n' is refused"
done
go --nnodes 2 --node-rank 2 --rdzv x -n 1 true
refused "--node-rank must be 0 to 1 with 2 nodes, not '2'"
check "a node that is not there is refused"
go --node-rank 1 -n 1 true
refused "--node-rank must be 0 to 0 with 1 node"
check "a second node of one is refused"
go --nnodes 2 --rdzv x -n 129 true
refused '258 ranks'
check "too many ranks on all nodes together are refused"
MASTER_ADDR=m go --nnodes 2 -n 1 true
refused '--rdzv is missing'
check "several nodes need a place to meet"
go --nnodes 2 --rdzv '' -n 1 true
refused '--rdzv needs a place'
check "an empty place is refused"
for place in x x:1 tcp file:x; do
	go --nnodes 2 --rdzv "$place" -n 1 true
	refused "--rdzv must be tcp:host:port or file:/directory, not $place"
	check "a place '$place' is refused"
done
go --nnodes 2 --node-rank 1 --rdzv tcp:x:1 -n 3 sh -c '[ $KCR_RANK = 4 ] && exit 7; exit 0'
[ $status -eq 7 ] && says err 'rank 4 \(pid [0-9]+\) exited with status 7'
check "a rank that failed is named as in the job"
go --nnodes 2 --node-rank 1 --rdzv tcp:x:1 --grace 0.3 -n 3 sh -c '[ $KCR_RANK = 4 ] && exit 7; exec sleep 30116'
[ $status -eq 7 ] && says err 'ranks 3, 5: still there' && gone 30116
check "so are those that still run, and only they are ended"
echo typed | "$run" --nnodes 2 --node-rank 1 --rdzv tcp:x:1 -n 2 sh -c 'cat; echo end' >out 2>err
[ "$(sort out | tr '\n' '|')" = '[2] end|[3] end|' ]
check "stdin is rank 0's, who is elsewhere"

# Signals to kcr-run
signalled() {
	"$run" --grace "${4:-1}" -n 2 sh -c "$3" >out 2>err </dev/null &
	pid=$!
	wait_for 2 "$2"
	kill "-$1" $pid
	wait $pid
	status=$?
}
signalled TERM 30121 'exec sleep 30121'
[ $status -eq 143 ] && gone 30121 && no_directory_left
check "SIGTERM is passed on"
signalled HUP 30122 'exec sleep 30122'
[ $status -eq 129 ] && gone 30122
check "SIGHUP is passed on"
signalled USR1 30123 'trap "echo usr1; kill \$child; exit 0" USR1; sleep 30123 & child=$!; wait'
[ $status -eq 0 ] && [ "$(grep -c usr1 out)" -eq 2 ]
check "SIGUSR1 is passed on and ends nothing"
signalled TERM 30124 'trap "" TERM; sleep 30124; sleep 30124; sleep 30124' 0.3
gone 30124 && says err 'sending SIGKILL'
check "SIGTERM that is ignored"
signalled KILL 30125 'sleep 30125; true'
[ $status -eq 137 ] && gone 30125 && no_directory_left
check "kcr-run killed: no rank, no child of one, no directory stays"

"$run" -n 2 sh -c 'trap "" TERM INT; sleep 30126; sleep 30126' >out 2>err </dev/null &
pid=$!
wait_for 2 30126
kill -TERM $pid
sleep 0.3
kill -TERM $pid
wait $pid
status=$?
[ $status -eq 0 ] && says err 'told to stop twice, sending SIGKILL' && gone 30126
check "told twice, it kills at once"

# poll() takes no more places than descriptors may be open
(ulimit -n 64 && go -n 40 --no-tag echo here && exit $status) && [ "$(grep -c here out)" -eq 40 ]
check "more streams in all than descriptors may be open"
(ulimit -n 64 && go -n 128 --timeout 10 true && [ $status -eq 126 ]) && says err 'Too many open files'
check "too few descriptors for all ranks are an error"

# With nobody reading, signals are still served
mkfifo fifo
tail -f /dev/null <>fifo &
reader=$!
"$run" -n 2 yes >fifo 2>err </dev/null &
pid=$!
sleep 0.5
kill -TERM $pid
sleep 0.5
kill -TERM $pid
for _ in $(seq 50); do
	kill -0 $pid 2>/dev/null || break
	sleep 0.1
done
! kill -0 $pid 2>/dev/null
check "a stuck reader does not make it deaf"
kill $reader 2>/dev/null

echo "1..$count"
[ $failed -eq 0 ]
