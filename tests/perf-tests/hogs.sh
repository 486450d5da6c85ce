#!/usr/bin/env bash
# Tests --hogs of the perf tests: as many busy loops as asked for, of one process of a host, and none is left, however the program ends.
set -uo pipefail
bin=$1 failed=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HOGS_OF_THE_TEST=$folder # hogs have the environment of the program that started them

wrong() {
    echo "$*"
    failed=1
}

# hogs: their pids.
hogs() {
    local process
    for process in /proc/[0-9]*; do
        [ "$(cat "$process/comm" 2>/dev/null)" = perf-hog ] || continue
        ! grep -qaF "$folder" "$process/environ" 2>/dev/null || echo "${process#/proc/}"
    done
}

# until_so COMMAND...: waits until it succeeds, at most a minute.
until_so() {
    local end=$((SECONDS + 60))
    until "$@"; do [ $SECONDS -lt $end ] || return 1; done
}

there_are() { [ "$(hogs | wc -l)" -eq "$1" ]; }
is_busy() { [ "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | awk '{ print $12 }')" -gt 0 ] 2>/dev/null; }

# killed NAME NUMBER COMMAND...: there are so many hogs while it runs; none is left after SIGKILL.
killed() {
    local name=$1 number=$2 pid hog
    shift 2
    "$@" >"$folder/out" 2>&1 &
    pid=$!
    until_so there_are "$number" || wrong "$name: expected $number hogs, there are: $(hogs | xargs); $(tail -n 3 "$folder/out")"
    for hog in $(hogs); do until_so is_busy "$hog" || wrong "$name: hog $hog uses no processor"; done
    kill -KILL $pid
    wait $pid 2>/dev/null
    until_so there_are 0 || wrong "$name: left after SIGKILL: $(hogs | xargs)"
    for hog in $(hogs); do kill -KILL "$hog"; done
}

for_ever=(-b 64 -e 64 -N 0 -c 0)
killed program 3 "$bin/all_reduce_perf" "${for_ever[@]}" -t 2 --hogs 3
killed launcher 2 "$bin/tutti-run" -n 2 "$bin/all_reduce_perf" "${for_ever[@]}" --hogs 2

# ended NAME CODE COMMAND...: a program that ends by itself leaves none either.
ended() {
    local name=$1 code=$2 status=0
    shift 2
    "$@" >"$folder/out" 2>&1 || status=$?
    [ $status -eq "$code" ] || wrong "$name: expected exit code $code, got $status: $(tail -n 3 "$folder/out")"
    until_so there_are 0 || wrong "$name: left: $(hogs | xargs)"
}
ended right 0 "$bin/tutti-run" -n 2 "$bin/all_reduce_perf" -b 64 -e 64 --hogs 2 --work 10 -J "$folder/json"
for text in '# Hogs: 2 busy loops on each host' '# Work: each thread computes for 10 us'; do
    grep -qF -- "$text" "$folder/out" || wrong "a run with --hogs 2 --work 10 does not say '$text'"
done
grep -q '"hogs":2' "$folder/json" && grep -q '"work_us":10' "$folder/json" || wrong "the JSON does not name hogs and work"
ended too_slow 1 "$bin/all_reduce_perf" -b 64 -e 64 -t 2 --hogs 1 --min-bw 1000000
ended on_streams 0 "$bin/all_reduce_perf" -b 64 -e 64 -g 2 --stream own -I 1 --hogs 1 --work 10
exit $failed
