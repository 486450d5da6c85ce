#!/usr/bin/env bash
# Ranks on virtual GPUs as processes that share device memory by IPC. BIN: the build's bin; PROGRAM: device_rank.
set -uo pipefail
status=0

fail() {
    echo "$1" && status=1
}

# run WHAT RANKS ARGUMENTS...: the job must succeed.
run() {
    local what=$1 ranks=$2
    shift 2
    output=$("$BIN/tutti-run" -n "$ranks" --timeout 100 "$PROGRAM" "$@" 2>&1) || fail "$what: status $?: $output"
}

run "three processes on one GPU" 3 1 11 8
run "four processes on two GPUs" 4 2 12 8
TUTTI_DEVICE_CHANNELS= run "as many channels as by default" 2 1 14 4
VGPU_SMS=4 TUTTI_DEVICE_CHANNELS=8 run "ranks with different shares of their GPUs" 3 2 15 4

# GPUs that cannot reach each other: no obstacle to a communicator for memory of the host, an error where they are named.
VGPU_PEERS=0 run "GPUs without peer access and memory of the host" 2 0 0 0
output=$(VGPU_PEERS=0 "$BIN/tutti-run" -n 2 --timeout 100 "$PROGRAM" 2 16 1 2>&1) && fail "GPUs without peer access were connected"
grep -q "GPU 0.*GPU 1\|GPU 1.*GPU 0" <<<"$output" || fail "the error does not name both GPUs: $output"

# The death of a process before its part of a call: the kernels of the others end, and the errors name it.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for rank in 0 1 2; do
    RANK=$rank WORLD_SIZE=3 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=3 TUTTI_INIT_METHOD=file://$folder/id \
        timeout 100 "$PROGRAM" 1 13 1 2 >"$folder/$rank" 2>&1 &
done
wait
for rank in 0 1; do
    grep -q "rank $rank: .*rank 2 .*has died" "$folder/$rank" || fail "rank $rank does not name rank 2, which died: $(cat "$folder/$rank")"
done
[ $status -eq 0 ] && echo "all jobs ended as expected"
exit $status
