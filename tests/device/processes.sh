#!/usr/bin/env bash
# Ranks on virtual GPUs as processes that share device memory by IPC. BIN: the build's bin; PROGRAM: device_rank; LEAVER: device_leave.
set -uo pipefail
. "$(dirname "$0")/start_ranks.sh"

# run WHAT RANKS ARGUMENTS...: the job must succeed.
run() {
    local what=$1 ranks=$2
    shift 2
    output=$("$BIN/tutti-run" -n "$ranks" --timeout 100 "$PROGRAM" "$@" 2>&1) || fail "$what: status $?: $output"
}

# warned TIMES WHAT: so many lines of the last job's output warn of a GPU whose processes take turns.
warned() {
    local times
    times=$(grep -c "several processes share GPU 0 without NVIDIA's MPS" <<<"$output")
    [ "$times" -eq "$1" ] || fail "$2: warned $times times, not $1: $output"
}

export CUDA_MPS_PIPE_DIRECTORY=/nonexistent # of a daemon that may run here
export TUTTI_DEVICE_KERNELS=require # no job passes by going through memory of the host
run "three processes on one GPU" 3 1 11 8
warned 1 "three processes without MPS"
run "four processes on two GPUs" 4 2 12 8
TUTTI_ALGORITHM=meet run "meetings of three processes on two GPUs" 3 2 20 4
TUTTI_DEVICE_CHANNELS= run "as many channels as by default" 2 1 14 4
VGPU_SMS=4 TUTTI_DEVICE_CHANNELS=8 run "ranks with different shares of their GPUs" 3 2 15 4

# Clients of MPS run side by side: they must fit on the GPU together, each within its own limit.
TUTTI_MPS=1 run "three clients of MPS" 3 1 11 2
warned 0 "clients of MPS"
TUTTI_MPS=1 VGPU_SMS=8 VGPU_SM_LIMIT=2 run "clients of MPS with a limit" 3 1 11 2
# refused WHAT RANKS ARGUMENTS...: every rank says why the job's ranks do not fit.
refused() {
    local what=$1 ranks=$2
    shift 2
    output=$("$BIN/tutti-run" -n "$ranks" --timeout 100 "$PROGRAM" "$@" 2>&1) && fail "$what: no error: $output"
    grep -q "$ranks ranks share GPU 0 .* as clients of MPS, which runs 4 blocks .* each rank needs 2 blocks, all need 6: put at most 2 ranks .*CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" \
        <<<"$output" || fail "$what: the error does not say what fits: $output"
}
TUTTI_MPS=1 VGPU_SMS=8 VGPU_SM_LIMIT=1 refused "clients of MPS that do not fit" 3 1 11 4

# Clients of MPS that fit have no room for one more communicator, which has nobody to take turns with.
TUTTI_DEVICE_KERNELS=1 TUTTI_MPS=1 TUTTI_LOG=INFO VGPU_SMS=1 run "a communicator without room among clients of MPS" 2 1 11 2 second
grep -q "through memory of the host: communicators of this process have 2 of the 2 blocks of threads" <<<"$output" ||
    fail "the log does not say that there is no room: $output"

# GPUs that cannot reach each other: calls on their memory go through the host, and the log says why.
TUTTI_DEVICE_KERNELS=1 VGPU_PEERS=0 run "GPUs without peer access and memory of the host" 2 0 0 0
TUTTI_DEVICE_KERNELS=1 TUTTI_LOG=INFO VGPU_PEERS=0 run "GPUs without peer access" 2 2 16 4
grep -q "through memory of the host: .*GPU 0.*GPU 1\|through memory of the host: .*GPU 1.*GPU 0" <<<"$output" ||
    fail "the log does not name both GPUs: $output"

# queues_warned TIMES CONNECTIONS: two ranks that are threads warn of so few hardware queues. Where they do, the calls may end at their deadline.
queues_warned() {
    local times
    output=$(env -u VGPU_QUEUES CUDA_DEVICE_MAX_CONNECTIONS=$2 TUTTI_TIMEOUT_MS=5000 VGPU_DEVICES=1 timeout 100 "$BIN/all_reduce_perf" --device cuda \
        -t 2 -b 8 -e 8 -n 1 -w 0 2>&1) || [ "$1" -gt 0 ] ||
        fail "two threads with $2 hardware queues: status $?: $output"
    times=$(grep -c "2 ranks of this process share GPU 0, whose streams share $2 hardware queues" <<<"$output")
    [ "$times" -eq "$1" ] || fail "two threads with $2 hardware queues: warned $times times, not $1: $output"
}
queues_warned 1 1
queues_warned 0 2
TUTTI_DEVICE_KERNELS=0 queues_warned 1 1
TUTTI_DEVICE_KERNELS=0 queues_warned 0 2

run "captured calls of three processes on two GPUs" 3 2 17 1 -1 graph

# GPUs that take one process each: no rank makes a context of another rank's GPU.
exclusive=$(mktemp)
VGPU_EXCLUSIVE=$exclusive run "two processes on GPUs that take one process each" 2 2 12 2
rm -f "$exclusive"

# names_the_dead WHAT [HOW]: ranks 0 and 1 name rank 2, which died, or did otherwise.
names_the_dead() {
    local how=${2:-has died}
    for rank in 0 1; do
        grep -q "rank $rank: .*rank 2 .*$how" "$folder/$rank" ||
            fail "$1: rank $rank does not name rank 2, which $how: $(cat "$folder/$rank")"
    done
}

# Between hosts, without bridges.
export TUTTI_DEVICE_KERNELS=1 TUTTI_DEVICE_BRIDGES=0
start aabb 2 17 8
all_end "four ranks on GPUs of two hosts"
TUTTI_DEVICE_KERNELS=0 start aabbb -2 18 40
all_end "every kind of call among five ranks of two hosts, two of them without a GPU"

# Captured calls are refused there.
TUTTI_DEVICE_KERNELS=0 start aab 2 17 1 -1 graph
for rank in 0 1; do
    grep -q "cannot be captured into a CUDA graph, .*TUTTI_DEVICE_KERNELS is off on rank 0 (what brings kernels: " "$folder/$rank" ||
        fail "through the host: rank $rank does not say why it cannot capture: $(cat "$folder/$rank")"
done

# The death of a process before its part of a call: kernels and CUDA streams of the others go on, and the errors name it.
export TUTTI_DEVICE_KERNELS=require
start aaa 1 13 1 2
names_the_dead "by kernels"
start aaa 1 13 1 2 graph
names_the_dead "in a replay"
export TUTTI_DEVICE_KERNELS=1
start aab 1 19 1 2
names_the_dead "through the host"

# A destroy waits for another process, however late that makes its call, but for none that has died.
export TUTTI_DEVICE_KERNELS=require
PROGRAM=$LEAVER start aa
all_end "a destroy before another process has the result"
PROGRAM=$LEAVER start aa killed
grep -q "^status 0" "$folder/0" || fail "a destroy that waits for a process that is killed: $(cat "$folder/0")"
grep -q "^status 137" "$folder/1" || fail "the process was not killed: $(cat "$folder/1")"
[ $status -eq 0 ] && echo "all jobs ended as expected"
exit $status
