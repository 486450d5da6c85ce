#!/usr/bin/env bash
# The perf tests through a library of NCCL's (--library). BIN: the build's bin; LIBRARY: libnccl.so.2; OLD: one without ncclAlltoAll, which is
# not tutti's (old_nccl.c).
set -uo pipefail
. "$(dirname "$0")/expect.sh"

right='Out of bounds values : 0 OK'
small=(-b 264 -e 264 -n 2 --rotate 4K --align 1 --library "$LIBRARY")
run=("$BIN/tutti-run" -n 2)

# Every program in two processes and in two threads; ranks of one thread; more of both; all types and operations.
for program in all_reduce broadcast reduce all_gather reduce_scatter alltoall gather scatter sendrecv hypercube; do
    expect 0 "$right" "${run[@]}" "$BIN/${program}_perf" "${small[@]}" -r 1 -d int32
    has "^# Library: NCCL 2\.30\.7 of tutti, $LIBRARY$"
    has '^ +26[0-9] '
    expect 0 "$right" "$BIN/${program}_perf" "${small[@]}" -t 2
done
for program in all_reduce sendrecv; do expect 0 "$right" "$BIN/${program}_perf" "${small[@]}" -g 3; done
expect 0 "$right" "${run[@]}" "$BIN/all_reduce_perf" "${small[@]}" -t 2 -g 2 -p 1 -z 1 -I 1 -M 1 -m 2 -R 1
expect 0 "$right" "$BIN/all_reduce_perf" "${small[@]}" -t 2 -n 1 -d all -o all
rows=$(grep -cE '^ +26[0-9]' <<<"$output")
[ "$rows" -eq 72 ] || { echo "expected 12 types x 6 operations, got $rows rows" && failed=1; }
if command -v python3 >/dev/null; then
    expect 0 "23007 $LIBRARY" bash -c '"$@" -J /dev/stderr 2>&1 >/dev/null | python3 -c "import json, sys
run = json.load(sys.stdin)
print(run[\"nccl_version\"], run[\"library\"])"' bash "$BIN/all_reduce_perf" "${small[@]}"
else echo "skipped: no python3 to read the JSON with"; fi

# What NCCL lacks, and what only tutti has.
for program in barrier all_gatherv reduce_scatterv alltoallv gatherv scatterv; do
    expect 2 "--library: NCCL has no $program" "$BIN/${program}_perf" -t 2 --library "$LIBRARY"
done
expect 2 '-d: NCCL has no int16' "$BIN/all_reduce_perf" "${small[@]}" -d int16
expect 2 '-o: NCCL has no bxor' "$BIN/all_reduce_perf" "${small[@]}" -d int32 -o bxor
expect 2 '--algorithm: with --library NCCL chooses itself' "$BIN/all_reduce_perf" "${small[@]}" --algorithm ring
expect 2 "--stream: with --library NCCL's streams are CUDA's" "$BIN/all_reduce_perf" "${small[@]}" --stream own
expect 2 '-R: with --library tuttiMemAlloc' "$BIN/all_reduce_perf" "${small[@]}" -R 2

# What is no library, no library of NCCL's, an old one, and one that takes memory of GPUs only.
missing=/nonexistent/libnccl.so.2
expect 1 "--library: cannot load '$missing'" "$BIN/all_reduce_perf" --library "$missing"
expect 1 "--library: cannot load '$0'" "$BIN/all_reduce_perf" --library "$0"
expect 1 'is no library of NCCL' "$BIN/all_reduce_perf" --library libm.so.6
expect 1 "--library: '$OLD', version 2.27.3, has no ncclAlltoAll: take one of 2.28" "$BIN/alltoall_perf" --library "$OLD"
expect 1 "only tutti's libnccl.so.2 takes memory of the host" "$BIN/all_reduce_perf" -t 2 --library "$OLD"
expect 1 "only tutti's libnccl.so.2 takes memory of the host" "${run[@]}" "$BIN/all_reduce_perf" -p 1 --library "$OLD"
exit $failed
