#!/usr/bin/env bash
# A GPU's kernel can walk through a program: the headers compile with nvcc, and a piece takes no division there either.
. "$(dirname "$0")/common.sh"
walk=tests/house/walk.c
nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc) || skip "no nvcc: program.h was not compiled for a GPU"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
output=$("$nvcc" -std=c++17 -x cu -c -Werror all-warnings -Isrc -o "$work/walk.o" $walk 2>&1) ||
    fail "$walk does not compile with $nvcc:"$'\n'"$(head -n 10 <<<"$output")"

division='^[[:space:]]*(div|rem)\.'
for with in "" -DWITH_DIVISION; do
    "$nvcc" -std=c++17 -x cu -ptx -Isrc $with -o "$work/walk$with.ptx" $walk >"$work/log" 2>&1 || fail "$(head "$work/log")"
done
if [ "$failures" -eq 0 ]; then
    grep -qE "$division" "$work/walk-DWITH_DIVISION.ptx" || fail "the division in $walk was not found in nvcc's output"
    hits=$(grep -nE "$division" "$work/walk.ptx" || true)
    [ -z "$hits" ] || fail "walking through the pieces of a span divides on a GPU:"$'\n'"$hits"
fi
finish "a kernel walks through a program without a division a piece"
