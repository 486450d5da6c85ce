#!/usr/bin/env bash
# Ranks with GPUs, whose kernels do their part of calls, beside ranks without, whose host does: ranks as processes, on one host and on several that
# TUTTI_HOST_ID makes. PROGRAM: device_rank, of which every second rank has no GPU.
set -uo pipefail
. "$(dirname "$0")/start_ranks.sh"

export CUDA_MPS_PIPE_DIRECTORY=/nonexistent # of a daemon that may run here
export TUTTI_DEVICE_KERNELS=require

# Random calls of every kind, each compared with the reference.
start aa -1 51 12
all_end "a rank with a GPU and one without"
start aaaa -2 52 12
all_end "two of four ranks of a host without a GPU"
start ab -1 53 12 order
all_end "a rank with a GPU and one without on another host"
start aabb -2 54 12 order
all_end "two hosts, each with a rank without a GPU"
start abab -2 55 8
all_end "two hosts, one without a GPU"
TUTTI_DEVICE_CHANNELS= TUTTI_CHANNELS=5 start abc -1 56 6
all_end "as many channels as by default"
TUTTI_ENCRYPT=1 TUTTI_SLOT_BYTES=1K TUTTI_DEVICE_SLOTS=2 start aab -1 57 6 order
all_end "encrypted wires whose slots are far shorter than those of GPUs"
TUTTI_DEVICE_SLOT_BYTES=4K TUTTI_DETERMINISTIC=1 start aaa -1 58 8
all_end "folds in rank order, with slots of GPUs that are shorter than those of the host"
for algorithm in ring tree; do
    TUTTI_ALGORITHM=$algorithm start aaaa -1 59 6
    all_end "$algorithm"
done

# Ranks that leave when they have done their part, before others have begun.
for way in chain direct binomial; do
    TUTTI_ALGORITHM=broadcast:$way start aab -1 60 0 late
    all_end "a broadcast by $way to ranks that are late"
done

# A process that dies, with a GPU or without.
for dies in 0 1; do
    start aaa -1 61 1 $dies
    [ $dies = 1 ] && ranks="0 2" || ranks="1 2"
    for rank in $ranks; do
        grep -q "rank $dies .*has died" "$folder/$rank" || fail "rank $dies dies: rank $rank: $(cat "$folder/$rank")"
    done
done
[ $status -eq 0 ] && echo "all jobs ended as expected"
exit $status
