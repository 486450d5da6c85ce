#!/usr/bin/env bash
# Processes whose memory their peers read in place. BIN: the build's bin; PROGRAM: device_in_place; RANK_PROGRAM: device_rank. SHORT=1: without
# the longest runs, for sanitizers and other numbers of hardware queues.
set -uo pipefail
. "$(dirname "$0")/start_ranks.sh"
export CUDA_MPS_PIPE_DIRECTORY=/nonexistent # of a daemon that may run here
export TUTTI_DEVICE_KERNELS=require TUTTI_DEVICE_IN_PLACE=1

# run WHAT RANKS PROGRAM ARGUMENTS...: the job must succeed.
run() {
    local what=$1 ranks=$2
    shift 2
    output=$("$BIN/tutti-run" -n "$ranks" --timeout 100 "$@" 2>&1) || fail "$what: status $?: $output"
}

# Lines only for short messages: all of these are in place. The memory model changes no count.
export VGPU_MODEL=0 TUTTI_DEVICE_CHANNELS=32 TUTTI_DEVICE_LINE_BYTES=4K
run "all-gather of 1 MiB among four processes" 4 env TUTTI_ALGORITHM=all_gather:ring "$PROGRAM" 4 traffic
TUTTI_DEVICE_IN_PLACE=auto run "the same with memory of tuttiDeviceMemAlloc only" 4 env TUTTI_ALGORITHM=all_gather:ring "$PROGRAM" 4 traffic
TUTTI_DEVICE_IN_PLACE=0 run "the same by copies" 2 env TUTTI_ALGORITHM=all_gather:ring "$PROGRAM" 2 memory
grep -q . <<<"$output" && fail "by copies: $output"
unset VGPU_MODEL TUTTI_DEVICE_LINE_BYTES
export TUTTI_DEVICE_CHANNELS=2
if [ -z "${SHORT-}" ]; then
    run "memory that comes and goes" 3 env TUTTI_ALGORITHM=all_gather:ring "$PROGRAM" 2 memory
    TUTTI_ALGORITHM=all_gather:ring run "memory that is freed behind each call" 3 "$PROGRAM" 2 growth
    TUTTI_ALGORITHM=all_gather:ring run "more memory than a rank can offer" 2 "$PROGRAM" 2 many
    grep -q . <<<"$output" && fail "more memory than a rank can offer: $output"
fi
TUTTI_ALGORITHM=all_gather:ring run "calls on streams that wait for the thread that issues them" 3 "$PROGRAM" 3 held
settings=(auto 1)
[ -z "${SHORT-}" ] || settings=(1)
for setting in "${settings[@]}"; do
    TUTTI_DEVICE_IN_PLACE=$setting TUTTI_ALGORITHM=all_gather:ring run "memory that peers close before it is freed ($setting)" 3 "$PROGRAM" 3 closed
    TUTTI_DEVICE_IN_PLACE=$setting TUTTI_ALGORITHM=all_gather:ring run "memory that waiting kernels keep open ($setting)" 3 "$PROGRAM" 3 late
    [ "$setting" = auto ] || grep -q "rank 0: communicator world: rank [12] (.*) still has the 2097152 bytes at 0x.* open" <<<"$output" ||
        fail "the error does not name who has the memory open: $output"
    TUTTI_DEVICE_IN_PLACE=$setting run "memory that is freed while a call sends from it ($setting)" 3 "$PROGRAM" 3 early
    [ "$setting" = auto ] || grep -q "rank 0: .*rank [12] (.*) still has .* open, because calls of this rank that send from them have not ended" <<<"$output" ||
        fail "the error does not say that calls send from the memory: $output"
done
for what in gone aborted; do
    TUTTI_ALGORITHM=all_gather:ring start aa 2 $what
    grep -q "^status 0" "$folder/0" || fail "a rank that has memory open is $what: $(cat "$folder/0")"
done
run "memory that is freed while it is registered" 2 "$PROGRAM" 2 freed 1
grep -q "rank 1: .*were freed while they were registered with communicator .*: call tuttiCommDeregister before you free memory" <<<"$output" ||
    fail "the error does not name the freed memory: $output"

# Calls at random, whose buffers are all in memory that peers have opened.
export TT_ONE_MEMORY=1 VGPU_BLOCK_ORDER=shuffled VGPU_VECTOR=strict
run "four processes on two GPUs" 4 "$RANK_PROGRAM" 2 12 16
run "three processes on three GPUs" 3 "$RANK_PROGRAM" 3 13 16
run "three processes on one GPU" 3 "$RANK_PROGRAM" 1 11 16
run "captured calls of three processes on two GPUs" 3 "$RANK_PROGRAM" 2 17 4 -1 graph
PROGRAM=$RANK_PROGRAM start aaa 2 18 8 2
for rank in 0 1; do
    grep -q "rank $rank: .*rank 2 .*has died" "$folder/$rank" || fail "rank $rank does not name rank 2, which died: $(cat "$folder/$rank")"
done
exit $status
