#!/usr/bin/env bash
# Kernels that reach ranks of other hosts over RDMA devices: ranks on virtual GPUs, each with a device of its own. suite.sh runs the parts calls
# and dmabuf in a virtual machine; ends takes half a minute there, more some minutes. The same scenes run over TCP in tests/device (bridges.sh, bridge_graphs.sh).
#   bridges.sh BUILD calls|dmabuf|dmabuf_more|ends|more
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../device/start_ranks.sh"

build=${1:?the build folder} part=${2:?a part} bin=$1/tests
export LD_LIBRARY_PATH=$build/vgpu VGPU_DEVICES=2 VGPU_SEED=1
export TUTTI_DEVICE_CHANNELS=2 TUTTI_DEVICE_THREADS=64 TUTTI_DEVICE_KERNELS=require
export TUTTI_TRANSPORT=rdma # alone: it is an error if a pair of ranks cannot use it
export TUTTI_TIMEOUT_MS=120000 TUTTI_INIT_TIMEOUT_MS=120000 CUDA_MPS_PIPE_DIRECTORY=/nonexistent
most_seconds=250 # emulated machines are slow

# over HOSTS PROGRAM ARGUMENTS...: as `start`.
PROGRAM=bash
over() {
    # shellcheck disable=SC2016 # the rank's shell expands it
    start "$1" -c 'export TUTTI_RDMA_DEVICE="=rxe$((RANK % 4))"; case ${refused:-} in *:all | *:$RANK) export DMABUF=${refused%:*} ;; esac; exec "$@"' - "$bin/$2" "${@:3}"
}

# right HOSTS PROGRAM ARGUMENTS...: all ranks succeed.
right() {
    over "$@"
    all_end "$*"
}

# says RANKS TEXT HOSTS PROGRAM ARGUMENTS...: each of these ranks says so.
says() {
    local rank
    over "${@:3}"
    for rank in $1; do
        grep -q "$2" "$folder/$rank" || fail "${*:3}: rank $rank does not say '$2': $(cat "$folder/$rank")"
    done
}

# in_gpu RANK: what it has sent to other hosts came from memory of its GPU, but for frames.
in_gpu() {
    awk '$1 == "copied" { n++; if ($2 + 0 > ($4 + 0) / 20 || $4 + 0 == 0) bad = 1 } END { exit n != 1 || bad }' "$folder/$1" ||
        fail "rank $1 copies what it sends: $(cat "$folder/$1")"
}

# refused_at HOW RANK|all: the devices take no memory of GPUs (off), or none after so many pieces.
refused_at() {
    local rank n
    refused=$1:$2 right ab device_dmabuf_rank 1 36 4
    for rank in 0 1; do
        n=$(grep -c 'goes through memory of the host: ' "$folder/$rank")
        [ "$n" -eq "$([[ $2 = all || $2 = "$rank" ]] && echo 1 || echo 0)" ] ||
            fail "memory of GPUs refused $1 at $2: rank $rank says so $n times: $(cat "$folder/$rank")"
    done
}

# As much as the slots of GPUs take, over links whose slots are few.
leave() { # HOSTS PROGRAM ARGUMENTS...
    TUTTI_SLOTS=2 TUTTI_SLOT_BYTES=8K right "$@"
}
closes() { # RANK: closes its connections
    TUTTI_SLOTS=2 TUTTI_SLOT_BYTES=8K says "$1" "rank $1 has closed the descriptor of its connection with rank" ab device_bridge_rank "close$1"
}

case $part in
calls)
    TUTTI_SLOT_BYTES=1K TUTTI_DEVICE_SLOTS=2 TUTTI_LOG=INFO right aab device_rank 2 35 3
    grep -q 'rank 0 reaches rank 2 .* by rdma rxe0/1' "$folder/0" || fail "rank 0 does not say that it uses RDMA: $(cat "$folder/0")"
    ;;
dmabuf) # slots in memory of GPUs
    export TUTTI_LOG=INFO
    TUTTI_SLOT_BYTES=1K TUTTI_DEVICE_SLOTS=2 right aab device_dmabuf_rank 2 35 3
    right ab device_dmabuf_bridge_rank bytes
    for rank in 0 1; do in_gpu $rank; done
    refused_at off all
    refused_at 1 0 # the first piece after the one that is tried
    ;;
dmabuf_more)
    export TUTTI_LOG=INFO
    leave abc device_dmabuf_bridge_rank ends
    grep -q "pinned, and [0-9.]* MiB of the GPU, for slots that RDMA devices use" "$folder/0" || fail "rank 0 does not say where its slots are: $(cat "$folder/0")"
    for how in off 1; do
        for whose in 0 1 all; do refused_at $how $whose; done
    done
    CUDA_DEVICE_MAX_CONNECTIONS=1 right ab device_dmabuf_bridge_rank held
    TUTTI_RDMA_GPU=off right ab device_dmabuf_bridge_rank bytes
    grep -q 'direct 0$' "$folder/0" || fail "TUTTI_RDMA_GPU=off changes nothing: $(cat "$folder/0")"
    says "0 1" "rank 2 .*has died" aab device_dmabuf_rank 1 42 1 2
    leave ab device_dmabuf_bridge_rank abort
    leave ab device_dmabuf_bridge_rank exit
    ;;
ends)
    right ab device_bridge_graphs_rank order
    TUTTI_ALGORITHM=reduce:direct leave abc device_bridge_rank part
    grep -q 'to rank 1 .*: rdma rxe0/1, not encrypted; kernels by a bridge over it' "$folder/0" || fail "rank 0 does not say what its bridges go over: $(cat "$folder/0")"
    says 1 "rank 0 .*has died" ab device_bridge_graphs_rank killed
    closes 1
    ;;
more)
    right ab device_rank 1 31 4
    right aab device_bridge_graphs_rank calls
    right ab device_bridge_graphs_rank leave
    TUTTI_ALGORITHM=broadcast:chain leave abc device_bridge_rank ends
    leave ab device_bridge_rank exit
    leave ab device_bridge_rank abort
    leave ab device_bridge_rank idle "$folder/left"
    says "0 1" "rank 2 .*has died" aab device_rank 1 42 1 2
    says 1 "rank 0 .*has died" ab device_bridge_graphs_rank killed_messages
    says "1 2" "rank 0 .*aborted the communicator" aab device_bridge_graphs_rank abort
    says "1 2" "rank 0 .*has left" abb device_bridge_graphs_rank left
    closes 0
    ;;
esac
exit $status
