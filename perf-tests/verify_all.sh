#!/usr/bin/env bash
# Runs every perf test for many numbers of ranks, as processes, as threads and in one thread, and counts
# the runs whose results are wrong. Ends with "N runs, R rows, M wrong"; exits 1 when M is not 0 or R is.
set -uo pipefail

usage() {
    cat <<TEXT
usage: verify_all.sh [--quick] [--every N] [--bin DIR] [--verbose]

  --bin DIR   where the programs are (build/bin)
  --quick     fewer ranks and sizes: about a minute on two cores instead of about four
  --every N   only each N-th run
  --verbose   name every run
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/perf-tests/verify_options.sh" "$@"
. "$root/perf-tests/verify_common.sh"

# run MODE RANKS PROGRAM ARGS...: one run; MODE is processes, threads, ranks (one thread) or mixed.
run() {
    local mode=$1 ranks=$2 program=$3 command
    shift 3
    case $mode in
    processes) command=("$bin/tutti-run" -n "$ranks" "$bin/${program}_perf") ;;
    threads) command=("$bin/${program}_perf" -t "$ranks") ;;
    ranks) command=("$bin/${program}_perf" -g "$ranks") ;;
    mixed) command=("$bin/tutti-run" -n 2 "$bin/${program}_perf" -t 2 -g $((ranks / 4))) ;;
    esac
    judge "${command[@]}" "$@"
}

# Sizes from one element on, every root.
sizes() {
    local ranks=$1 modes=$2 program mode
    for program in "${programs[@]}"; do
        for mode in $modes; do run "$mode" "$ranks" "$program" "${once[@]}" -b 4 -e "$3" -f 4 -r -1; done
    done
}

# take_turn MODES: "in-turn" becomes the next of three modes, in the caller's `modes`. What takes long runs so: in one of them for each
# program and number of ranks. 3 divides no number of programs, so that each program meets each mode with two numbers of ranks or three.
nturns=0
take_turn() {
    local in_turn=(processes threads ranks)
    modes=$1
    [ "$1" != in-turn ] || modes=${in_turn[nturns % 3]}
    nturns=$((nturns + 1))
}

# Odd sizes that take several rounds.
rounds() {
    local ranks=$1 modes program mode
    for program in "${programs[@]}"; do
        take_turn "$2"
        for mode in $modes; do run "$mode" "$ranks" "$program" "${once[@]}" -b 1048580 -e 4M -i 2097160; done
    done
}

# Every type with every operation; sizes that leave a remainder for vectors and for blocks.
types() {
    local ranks=$1 modes program mode
    for program in "${programs[@]}"; do
        take_turn "$2"
        [ "$program" != barrier ] || continue
        for mode in $modes; do
            run "$mode" "$ranks" "$program" "${once[@]}" -b 8 -e 5000 -i 1664 -d all -o all
        done
    done
}

# The ways of calling: streams, groups, waiting, misalignment, memory, transports, joining. in-turn: a program goes through twelve ways in
# three modes, and the next program begins with the next mode.
ways() {
    local ranks=$1 modes program mode way
    local small=(-n 3 -w 1 --rotate 256K --align 1 -b 4 -e 300K -f 20 -d int32)
    for program in "${programs[@]}"; do
        for way in "--stream own" "--stream own -m 3 -I 1" "-m 3" "-z 1" "-z 3 -a 3" "-u 1 -d int8" \
            "-R 1" "-R 2" "-p 1" "--transport shm" "--transport window" "--transport cma"; do
            take_turn "$2"
            # shellcheck disable=SC2086
            for mode in $modes; do run "$mode" "$ranks" "$program" "${small[@]}" $way; done
        done
        [ "$2" != in-turn ] || take_turn in-turn
        # Only processes can be hosts of their own.
        run processes "$ranks" "$program" "${small[@]}" --transport tcp
    done
}

# Links and meeting places of unusual sizes, and every way of waiting.
settings() {
    local ranks=$1 program setting pair
    for program in "${programs[@]}"; do
        for setting in "MEET_BYTES=64K SLOT_BYTES=1K" "SLOT_BYTES=4M SLOTS=2" "MEET_BYTES=1K SLOTS=64" "WAIT=yield" \
            "WAIT=spin"; do
            for pair in $setting; do export "TUTTI_${pair?}"; done
            run processes "$ranks" "$program" -n 3 -w 1 --rotate 256K --align 1 -b 4 -e 6M -f 35 -d int32
            for pair in $setting; do unset "TUTTI_${pair%%=*}"; done
        done
    done
}

# A count for each rank: all alike, and one rank with everything.
spreads() {
    local ranks=$1 program spread
    for program in all_gatherv reduce_scatterv gatherv scatterv alltoallv; do
        for spread in even one; do
            run processes "$ranks" "$program" "${once[@]}" -b 4 -e 3M -f 91 -r -1 --spread "$spread"
        done
    done
}

# Every algorithm for one host by its name.
algorithms() {
    local ranks=$1 program algorithm names
    for program in "${programs[@]}"; do
        case $program in hypercube | sendrecv | alltoallv) continue ;; esac # made of sends and receives
        algorithms_of "$program" '[^/]+'
        for algorithm in $names; do
            run processes "$ranks" "$program" "${once[@]}" -b 4 -e 256K -f 16 --algorithm "$algorithm"
        done
    done
}

if [ $quick -eq 1 ]; then
    for ranks in 1 2 3 5 8; do sizes $ranks "processes threads ranks" 16K; done
    types 1 processes
    types 3 "processes ranks"
    spreads 3
    ways 3 processes
    settings 2
else
    for ranks in 1 2 3 4 5 7 8; do
        sizes $ranks "processes threads ranks" 64K
        rounds $ranks in-turn
        types $ranks in-turn
    done
    for ranks in 4 8; do
        sizes $ranks mixed 64K
        rounds $ranks mixed
    done
    ways 3 in-turn
    settings 2
    for ranks in 2 5 8; do spreads $ranks; done
    for ranks in 2 3 4 8; do algorithms $ranks; done
fi
total
