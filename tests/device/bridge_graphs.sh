#!/usr/bin/env bash
# CUDA graphs whose kernels reach ranks of other hosts: ranks on virtual GPUs as processes, on hosts that TUTTI_HOST_ID makes. PROGRAM:
# device_bridge_graphs_rank, which says what the scenes are; RANDOM_RANK: device_rank.
set -uo pipefail
. "$(dirname "$0")/start_ranks.sh"

# right HOSTS SCENE: all ranks succeed.
right() {
    start "$1" "$2"
    all_end "$2 on hosts $1"
}

# wrong HOSTS SCENE RANKS TEXT: each of these ranks says that. Once, not for every number of queues.
wrong() {
    local rank
    [ -z "${CUDA_DEVICE_MAX_CONNECTIONS:-}" ] || return 0
    start "$1" "$2"
    for rank in $3; do
        grep -q "^rank $rank: result .*$4" "$folder/$rank" && grep -q "^status 0" "$folder/$rank" ||
            fail "$2 on hosts $1: rank $rank does not say '$4': $(cat "$folder/$rank")"
    done
}

export CUDA_MPS_PIPE_DIRECTORY=/nonexistent # of a daemon that may run here
export TUTTI_DEVICE_KERNELS=require
export TUTTI_TIMEOUT_MS=80000

# With another number of queues than the default, and with sanitizers: a part of it.
all_hosts='ab aabb abc' ends='ab aabb' ways='chain direct binomial' of_killed='ab aab abb'
[ -z "${CUDA_DEVICE_MAX_CONNECTIONS:-}${SANITIZERS:-}" ] || all_hosts=aabb ends=ab ways=direct of_killed=aab

for hosts in $all_hosts; do
    right $hosts order
    right $hosts calls
done
TUTTI_DEVICE_SLOTS=2 TUTTI_DEVICE_SLOT_BYTES=4K TUTTI_SLOT_BYTES=1K right abb order
TUTTI_DEVICE_CHANNELS= right ab order
TUTTI_ENCRYPT=1 TUTTI_ALGORITHM=ring right aab calls

# The end of a communicator, and of a process, while replays are under way.
for hosts in $ends; do
    right $hosts leave
    right $hosts finalize
done
TUTTI_SLOTS=2 TUTTI_SLOT_BYTES=1K right ab exit
for way in $ways; do
    TUTTI_ALGORITHM=broadcast:$way right abc early
done
TUTTI_ALGORITHM=broadcast:chain start aab parted
for rank in 1 2; do
    grep -q "^status 0" "$folder/$rank" || fail "a rank that is killed while it leaves: rank $rank: $(cat "$folder/$rank")"
done
start abc unneeded
for rank in 0 1; do
    grep -q "^status 0" "$folder/$rank" || fail "a rank that is killed and not needed: rank $rank: $(cat "$folder/$rank")"
done
wrong abb left "1 2" "rank 0 .*has left"
wrong aab abort "1 2" "rank 0 .*aborted the communicator"
wrong ab abort_own 1 "rank 0 .*aborted the communicator"
export TUTTI_TIMEOUT_MS=3000
wrong abb destroy "1 2" "rank 0 .*waited 3000 ms in replay number 2.*rank 1 .*has not replayed it; rank 2 .*has not replayed it"
wrong aab missing "0 1 2" "waited 3000 ms in replay number 2.*; rank 0 .*has not replayed it"
! grep -q "^rank 1: result .*; .*rank [12] " "$folder/1" || fail "ranks that have begun a replay are missed: $(cat "$folder/1")"
export TUTTI_TIMEOUT_MS=80000
for hosts in $of_killed; do
    wrong $hosts killed 1 "rank 0 .*has died"
    wrong $hosts killed_messages 1 "rank 0 .*has died"
done
TUTTI_TIMEOUT_MS=10000 TUTTI_SLOTS=2 TUTTI_SLOT_BYTES=1K wrong ab unsent 1 "rank 0 .*has died"
PROGRAM=$RANDOM_RANK start aab 1 42 1 2 graph
for rank in 0 1; do
    grep -q "rank 2 .*has died" "$folder/$rank" || fail "a rank that dies before the last replay: rank $rank: $(cat "$folder/$rank")"
done

# Ranks that disagree.
wrong aab graphless "0 1 2" "ranks disagree"
wrong abb graphed "0 1 2" "ranks disagree"
wrong abb lengths "0 1 2" "rank 0 .*sends 480 bytes, rank 1 .*receives 400 bytes"
[ $status -eq 0 ] && echo "all jobs ended as expected"
exit $status
