#!/usr/bin/env bash
# Ranks on virtual GPUs as processes whose drivers are of different versions. BIN: the build's bin; PROGRAM: device_rank.
set -uo pipefail
export CUDA_MPS_PIPE_DIRECTORY=/nonexistent # of a daemon that may run here

. "$(dirname "$0")/start_ranks.sh"
export TUTTI_LOG=INFO

# start_with VERSIONS HOSTS ARGUMENTS...: a rank for each letter of HOSTS, with the driver of the word of VERSIONS.
start_with() {
    read -ra versions <<<"$1"
    start "${@:2}"
}

# ends WHAT RANK STATUS [TEXT]: the rank ended so, and its output has the text.
ends() {
    grep -q "^status $3$" "$folder/$2" || fail "$1: rank $2 did not end with status $3: $(cat "$folder/$2")"
    [ $# -lt 4 ] || grep -q "$4" "$folder/$2" || fail "$1: rank $2 does not say '$4': $(cat "$folder/$2")"
}

older='GPU [01] .*: its driver, for CUDA 12.4, compiles the kernels from PTX'
export TUTTI_DEVICE_KERNELS=require # no job passes by going through memory of the host
start_with "12040 12040" aa 2 11 8
ends "two drivers of 12.4" 0 0 "$older"
ends "two drivers of 12.4" 1 0 "$older"
start_with "12040 12040" aa 2 17 1 -1 graph
ends "captured calls, 12.4" 0 0
ends "captured calls, 12.4" 1 0
TUTTI_MPS=1 start_with "12040 12040" aa 1 11 2
ends "clients of MPS, 12.4" 0 0
ends "clients of MPS, 12.4" 1 0
start_with "12040 13000" aa 2 12 8
ends "12.4 and 13.0" 0 0 "$older"
ends "12.4 and 13.0" 1 0
grep -q "compiles the kernels" "$folder/1" && fail "a driver of 13.0 takes the kernels for older ones: $(cat "$folder/1")"

export TUTTI_DEVICE_KERNELS=0
start_with "12040 12040" aa 2 18 8
ends "through the host, 12.4" 0 0
ends "through the host, 12.4" 1 0
export TUTTI_DEVICE_KERNELS=1
start_with "12040 13000" ab 2 19 4
ends "hosts of 12.4 and 13.0" 0 0 "to each rank of another host by a bridge"
ends "hosts of 12.4 and 13.0" 1 0

# Too old: a GPU that the init names cannot be used, and every rank says so; a communicator for memory of the host does without it.
old='libcuda.so.1 is a driver for CUDA 12.2; tutti needs one for CUDA 12.4 or later (update NVIDIA.s driver)'
for hosts in aa ab; do
    start_with "12020 13000" $hosts 2 13 2
    ends "12.2 and 13.0 on $hosts" 0 2 "init: .*$old"
    ends "12.2 and 13.0 on $hosts" 1 2 "init: .*rank 0.*$old"
done
start_with "12020 12020" aa 2 13 2
ends "two drivers of 12.2" 0 2 "init: .*$old"
ends "two drivers of 12.2" 1 2 "init: .*$old"
start_with "12020 13000" aa 0 0 0
ends "memory of the host, 12.2 and 13.0" 0 0 "no GPU: $old"
ends "memory of the host, 12.2 and 13.0" 1 0
[ $status -eq 0 ] && echo "all jobs ended as expected"
exit $status
