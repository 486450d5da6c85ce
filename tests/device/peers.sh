#!/usr/bin/env bash
# GPUs that do not reach each other's memory right, although the driver says that they can: the test of the mappings when a communicator is made.
# BIN: the build's bin; PROGRAM: device_rank.
set -uo pipefail

export CUDA_MPS_PIPE_DIRECTORY=/nonexistent # of a daemon that may run here
export TUTTI_TIMEOUT_MS=20000
. "$(dirname "$0")/start_ranks.sh"

# each WHAT STATUS TEXT: every rank ended with the status, and said the text.
each() {
    local file
    for file in "$folder"/[0-9]*; do
        grep -q "^status $2$" "$file" || fail "$1: rank ${file##*/} did not end with status $2: $(cat "$file")"
        grep -q "$3" "$file" || fail "$1: rank ${file##*/} does not say '$3': $(cat "$file")"
    done
}

# warned WHAT TIMES: so many lines of the ranks warn that kernels run no calls.
warned() {
    local times
    times=$(cat "$folder"/[0-9]* | grep -c "WARN.*kernels run no calls, which go through memory of the host: rank")
    [ "$times" -eq "$2" ] || fail "$1: warned $times times, not $2: $(cat "$folder"/[0-9]*)"
}

word='the word at byte [0-9]* of [0-9]* is 0x[0-9a-f]*, expected 0x[0-9a-f]*\. An IOMMU or PCIe ACS may be in the way: boot with iommu=pt, .*TUTTI_DEVICE_KERNELS=0'
reads="rank 0 on GPU 0 reads wrong bytes from the memory of rank 1 on GPU 1, by peer access to GPU 1 by IPC: $word"
writes="rank 1 on GPU 1 writes wrong bytes to the memory of rank 0 on GPU 0, by peer access to GPU 0 by IPC: $word"

# Kernels are required: every rank has the same error.
export TUTTI_DEVICE_KERNELS=require
start aa 2 11 2
each "GPUs that work" 0 ''
VGPU_PEER_BROKEN=0-1 start aa 2 11 2
each "loads of GPU 0" 2 "init: .*TUTTI_DEVICE_KERNELS=require forbids.*$reads"
VGPU_PEER_BROKEN=1-0 start aa 2 11 2
each "stores of GPU 1" 2 "init: .*TUTTI_DEVICE_KERNELS=require forbids.*$writes"
VGPU_PEER_BROKEN=0-0 start aa 1 11 2
each "a GPU and its own memory, by IPC" 2 "rank 1 on GPU 0 writes wrong bytes to the memory of rank 0 on GPU 0, by device memory by IPC: "
VGPU_DEVICES=3 VGPU_PEER_BROKEN=2-1 start aaa 3 11 2
each "one pair of three" 2 "rank 2 on GPU 2 writes wrong bytes to the memory of rank 1 on GPU 1, by peer access"

# Each process has GPU 0, of which it names another one, and the second does not see the first one's.
visible=("1,0" "0")
start aa 1 21 6
each "processes that see other GPUs" 0 ''
VGPU_PEER_BROKEN=1-0 start aa 1 21 2
each "processes that see other GPUs, of which one is broken" 2 "rank 0 on GPU 0 reads wrong bytes from the memory of rank 1 on GPU 0, by peer access to GPU 0 by IPC: "
grep -q "several processes share GPU 0" "$folder"/[0-9]* && fail "two GPUs count as one"
visible=("1" "1,0")
start aa 1 22 6
each "processes that name one GPU" 0 ''
grep -q "2 ranks of several processes share GPU 0 without" "$folder"/[0-9]* || fail "one GPU counts as two"
visible=()

# Kernels are not required: the calls go through memory of the host and are right; every rank that has found a wrong word warns.
export TUTTI_DEVICE_KERNELS=1 TUTTI_LOG=INFO
VGPU_PEER_BROKEN=0-1 start aa 2 12 4
each "through the host" 0 "calls on memory of GPU [01] go through memory of the host: $reads"
warned "through the host" 2

# GPUs of two groups: the ranks find them alike, and their rings go round group by group.
grouped() {
    VGPU_DEVICES=4 VGPU_TOPOLOGY="0,2|1,3" start aaaa 4 "$1" 2
    each "groups of GPUs" 0 ''
    grep -q "its GPUs are 2 groups far from one another, the largest of 2 ranks" "$folder/0" || fail "groups of GPUs: rank 0 does not say it: $(cat "$folder/0")"
}
grouped 31
TUTTI_ALGORITHM=ring grouped 32
VGPU_DEVICES=4 start aaaa 4 33 1
grep -q "far from one another" "$folder/0" && fail "GPUs that are alike are groups: $(cat "$folder/0")"

# Threads of one process. A rank that cannot connect counts for more than the words that it has not stored.
threads() {
    output=$(timeout 100 "$BIN/all_reduce_perf" --device cuda -g 2 -b 8 -e 4K -f 8 -n 2 2>&1) || fail "$1: status $?: $output"
    grep -q "$2" <<<"$output" || fail "$1: it does not say '$2': $output"
}
VGPU_PEER_BROKEN=1-0 threads "two threads" "go through memory of the host: rank 1 on GPU 1 writes wrong bytes to the memory of rank 0 on GPU 0, by peer access to GPU 0: "
VGPU_PEERS=0 threads "two threads that cannot connect" "the driver has no peer access between them"
grep -q 'wrong bytes' <<<"$output" && fail "ranks that cannot connect look for words: $output"
[ $status -eq 0 ] && echo "all jobs ended as expected"
exit $status
