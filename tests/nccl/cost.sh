#!/usr/bin/env bash
# cost.sh BUILD: what ncclAllReduce of 8 bytes costs beside tuttiAllReduce, on host memory (one rank, two threads) and on a stream of a
# virtual GPU, as nccl_cost (cost.c) measures it: nanoseconds, allocations, and with valgrind the instructions of a call of one rank in
# each library. No test: docs/nccl.md has the figures.
set -euo pipefail
build=${1:?usage: cost.sh BUILD}
folder=$(mktemp -d)
trap 'rm -r --one-file-system "$folder"' EXIT

quietly() { NCCL_DEBUG=NONE TUTTI_LOG=none "$@"; }

# count_of KIND PART: of callgrind's file PART, the instructions of a call in each object. A part names an object once, by its number and
# file, and then by the number only.
count_of() {
    awk -v kind="$1" '
        /^c?ob=/ {
            is_own = /^ob=/
            id = name = $0
            sub(/^c?ob=/, "", id)
            sub(/\).*/, ")", id)
            if (sub(/^[^)]*\) /, "", name)) names[id] = name
            if (is_own) object = id
        }
        /^calls=/ { getline; next } # the cost of the function that is called
        /^[-+*0-9]/ { sums[object] += $2 }
        END {
            for (id in sums) {
                total += each = sums[id] / 1000
                sub(/.*\//, "", names[id])
                if (each >= 0.5) line = line sprintf(", %s %.0f", names[id], each)
            }
            printf "instructions of %s: %.0f%s\n", kind, total, line
        }' "$2"
}

# instructions KINDS COMMAND...: the second and later parts are of the kinds.
instructions() {
    local kinds=$1 part=2 kind
    shift
    command -v valgrind >/dev/null || { echo "no valgrind: no instructions" && return; }
    rm -f "$folder"/out*
    quietly "$@" count >"$folder/log" 2>&1 || { cat "$folder/log" >&2 && exit 1; }
    for kind in $kinds; do
        count_of "$kind" "$folder/out.$part"
        part=$((part + 1))
    done
}
counter=(valgrind --tool=callgrind --callgrind-out-file="$folder/out" --toggle-collect=make_calls --dump-before=next_kind)
rounds=${ROUNDS:-301}
program=$build/tests/nccl_cost
on_gpu=("$build/vgpu/vgpu-run" --gpus 1)

echo "host memory, one rank:"
quietly "$program" host 1 "$rounds"
instructions "ncclAllReduce tuttiAllReduce" "${counter[@]}" "$program" host 1
echo "host memory, two threads:"
quietly "$program" host 2 "$rounds"
echo "a stream of a virtual GPU, one rank:"
quietly "${on_gpu[@]}" "$program" gpu "$rounds"
instructions "ncclAllReduce tuttiAllReduce cuStreamGetId" "${on_gpu[@]}" "${counter[@]}" "$program" gpu
