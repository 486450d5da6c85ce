#!/usr/bin/env bash
# Prints a line for each layout of the gradient grid: checksums of the losses, of the norms and of the weights after two steps, at one
# thread a rank. Where two commits print the same lines on one machine, they compute the same bits.
# Usage: tests/trainer/checksums.sh [BUILD [GRID_OPTION...]] >FILE; then diff two files. GRID_OPTION is one of grid_ranks.c.
set -euo pipefail
build=${1:-build}
file=$(mktemp)
trap 'rm -f "$file"' EXIT
TUTTI_LOG=NONE TUTTI_TIMEOUT_MS=${TUTTI_TIMEOUT_MS:-120000} \
    "$build/bin/tutti-run" -n 8 "$build/tests/grid_ranks" --checksums "$file" "${@:2}" >&2
cat "$file"
