#!/usr/bin/env bash
# cost.sh BUILD: what ncclAllReduce of 8 bytes costs on a stream of a virtual GPU beside tuttiAllReduce, as nccl_cost (cost.c) measures
# it: nanoseconds, allocations, and with valgrind the instructions of a call in each library. No test: docs/nccl.md has the figures.
set -euo pipefail
build=${1:?usage: cost.sh BUILD}
folder=$(mktemp -d)
trap 'rm -r --one-file-system "$folder"' EXIT

on_gpu() {
    NCCL_DEBUG=NONE TUTTI_LOG=none "$build/vgpu/vgpu-run" --gpus 1 "$@"
}

on_gpu "$build/tests/nccl_cost" "${ROUNDS:-301}"
command -v valgrind >/dev/null || { echo "no valgrind: no instructions" && exit 0; }
on_gpu valgrind --tool=callgrind --callgrind-out-file="$folder/out" --toggle-collect=make_calls --dump-before=next_kind \
    "$build/tests/nccl_cost" count >"$folder/log" 2>&1 || { cat "$folder/log" >&2 && exit 1; }
# The second to fourth parts are of the three kinds. A part names an object once, by its number and file, and then by the number only.
part=2
for kind in ncclAllReduce tuttiAllReduce cuStreamGetId; do
    awk -v kind=$kind '
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
        }' "$folder/out.$part"
    part=$((part + 1))
done
