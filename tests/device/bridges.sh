#!/usr/bin/env bash
# Kernels that reach ranks of other hosts, without CUDA graphs: ranks on virtual GPUs as processes, on hosts that TUTTI_HOST_ID makes. PROGRAM: device_rank;
# LEAVER: device_bridge_rank.
set -uo pipefail
. "$(dirname "$0")/start_ranks.sh"

# all_say WHAT RANKS TEXT: each of these ranks says so.
all_say() {
    local rank
    for rank in $2; do
        grep -q "$3" "$folder/$rank" || fail "$1: rank $rank does not say '$3': $(cat "$folder/$rank")"
    done
}

export CUDA_MPS_PIPE_DIRECTORY=/nonexistent # of a daemon that may run here
export TUTTI_DEVICE_KERNELS=require

# Random calls of every kind, each compared with the reference.
start ab 1 31 12
all_end "two hosts"
start aabb 2 32 12
all_end "four ranks of two hosts"
start abcb 2 33 8
all_end "three hosts, one of which has two ranks"
TUTTI_DEVICE_CHANNELS= start ab 1 34 4
all_end "as many channels as by default"
TUTTI_ENCRYPT=1 TUTTI_SLOT_BYTES=1K TUTTI_DEVICE_SLOTS=2 start aab 2 35 8
all_end "encrypted wires whose slots are far shorter than those of GPUs"
TUTTI_DETERMINISTIC=1 start aab 2 36 8
all_end "folds in rank order"
TUTTI_ALGORITHM=ring start aab 2 37 6
all_end "rings"

# Ranks that leave when they have done their part, before others have begun.
for way in chain direct binomial; do
    TUTTI_ALGORITHM=broadcast:$way start abc 1 44 0 late
    all_end "a broadcast by $way to ranks that are late"
done

# As much as the slots of GPUs take, over links of short slots; other calls before it.
leave() {
    [ -n "${CUDA_DEVICE_MAX_CONNECTIONS:-}" ] || # once
        TUTTI_SLOTS=2 TUTTI_SLOT_BYTES=1K TUTTI_TIMEOUT_MS=90000 PROGRAM=$LEAVER start "$@"
}
TUTTI_ALGORITHM=broadcast:direct leave abc ends
all_end "ranks that end one after the other while one is late"
TUTTI_ALGORITHM=broadcast:chain leave abc ends
all_end "a late rank that needs nothing of the one that has left"
leave ab exit
all_end "a process that ends before its messages are taken"
[ -n "${CUDA_DEVICE_MAX_CONNECTIONS:-}" ] || all_say "links" 0 "to rank 1 .*: tcp .*; kernels by a bridge over it"
[ -n "${CUDA_DEVICE_MAX_CONNECTIONS:-}" ] || all_say "links" 0 "by kernels .*; its bridges to other hosts have .* MiB, pinned"
TUTTI_ALGORITHM=reduce:direct leave abc part
all_end "a process that ends when it has done its part, while another rank is late"
leave ab abort
all_end "a rank that aborts before its messages are taken"
TUTTI_DEVICE_CHANNELS=16 leave ab idle "$folder/left"
all_end "a rank that leaves while the other makes no call"
leave aab wrong "$folder/left"
all_end "a rank that leaves while the ranks of another host have made no call"

# With one hardware queue a rank's calls stand behind whatever the program has there, which may wait for the thread that makes the calls.
for hosts in ab aab; do
    CUDA_DEVICE_MAX_CONNECTIONS=1 PROGRAM=$LEAVER start $hosts held
    all_end "first calls beside a stream that waits, one hardware queue"
done

# An all-reduce sends each byte once a host over the network, inside and between hosts together (X/Y); by any other algorithm it would
# be twice and more.
if [ -z "${CUDA_DEVICE_MAX_CONNECTIONS:-}" ]; then
    PROGRAM=$LEAVER start aaaabbbb bytes
    all_end "the bytes of an all-reduce"
    for host in "0 1 2 3" "4 5 6 7"; do
        (cd "$folder" && cat $host) | awk '/^sent/ { sent += $2; all = $4; xy += $6 ~ "/" } END { exit !(xy == 4 && sent >= all && sent < 1.05 * all) }' ||
            fail "ranks $host send other than the data once: $(cd "$folder" && cat $host)"
    done
fi

# A short call takes few of the blocks of threads that it may have: each would send messages of its own, and each of these has a frame and a credit.
if [ -z "${CUDA_DEVICE_MAX_CONNECTIONS:-}" ]; then
    TUTTI_DEVICE_CHANNELS=16 PROGRAM=$LEAVER start ab bytes 8192
    all_end "the messages of an all-reduce of 32 KiB"
    for rank in 0 1; do
        awk '/^messages/ { n = $2 } END { exit !(n > 0 && n <= 12) }' "$folder/$rank" ||
            fail "rank $rank sends other than 1 to 12 messages: $(cat "$folder/$rank")"
    done
fi

# Rank 0 takes another algorithm, with more or fewer blocks of threads than the others': by the model 512 KiB have 2 blocks by two_shot and 4 by
# recursive_doubling, and short calls 2 by tree and 1 by two_shot. A block that waits for a channel of which the others know nothing ends too.
if [ -z "${CUDA_DEVICE_MAX_CONNECTIONS:-}" ]; then
    for pair in "two_shot recursive_doubling 131072" "recursive_doubling two_shot 131072" "two_shot tree 256" "tree two_shot 256"; do
        read -r others own count <<<"$pair"
        TUTTI_DEVICE_CHANNELS=16 TUTTI_TIMEOUT_MS=90000 TUTTI_ALGORITHM=all_reduce:$others PROGRAM=$LEAVER start abc "other$own" "$count"
        all_end "rank 0 by $own, the others by $others, $count elements"
    done
fi

# A program that closes connections of the library: long before the deadline the call says so.
for closer in 0 1; do
    leave ab close$closer
    [ -n "${CUDA_DEVICE_MAX_CONNECTIONS:-}" ] && continue
    all_say "a rank that has closed its connections" "$closer" "rank $closer has closed the descriptor of its connection with rank"
done

# What cannot be says why.
TUTTI_ALGORITHM=all_reduce:meet/ring start aabb 2 38 0 -1
all_say "meetings inside hosts, required kernels" "0 1 2 3" "all_reduce:meet/ring is forced, whose ranks meet"
TUTTI_DEVICE_BRIDGES=0 start ab 1 40 1
all_say "without bridges, required kernels" "0 1" "its ranks are on several hosts, and TUTTI_DEVICE_BRIDGES is off"

# Then the host carries the calls.
export TUTTI_DEVICE_KERNELS=1 TUTTI_LOG=INFO
TUTTI_ALGORITHM=all_reduce:meet/ring start aabb 2 38 2
all_end "meetings inside hosts"
all_say "meetings inside hosts" "0 1 2 3" "through memory of the host: all_reduce:meet/ring is forced"
TUTTI_DEVICE_BRIDGES=0 start ab 1 40 1
all_end "without bridges"
all_say "without bridges" "0 1" "through memory of the host: its ranks are on several hosts"
TUTTI_MPS=1 VGPU_SMS=1 start aab 1 39 1
all_end "more clients of MPS than their GPU takes"
export TUTTI_DEVICE_KERNELS=require TUTTI_LOG=

start aab 1 42 1 2
all_say "a process of another host that dies" "0 1" "rank 2 .*has died"
start abb 1 43 1 0
all_say "a process alone on its host that dies" "1 2" "rank 0 .*has died"
[ $status -eq 0 ] && echo "all jobs ended as expected"
exit $status
