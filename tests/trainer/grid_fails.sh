#!/usr/bin/env bash
# A rank that fails in the middle of a step fails its layout at once, and only that one.
# GRID: grid_ranks; RUN: tutti-run.
set -uo pipefail
: "${GRID:?}" "${RUN:?}"
export TUTTI_LOG=NONE TUTTI_TIMEOUT_MS=600000
failures=0
complain() { echo "FAILED $*"; failures=$((failures + 1)); }

# Rank 2 fails in the layouts of 4 and of 8 ranks; the one of 2 ranks has no rank 2.
cases=("dp=2" "dp=2 pp=2" "pp=2 dp=2 tp=2")
args=()
for case in "${cases[@]}"; do args+=(--case "$case"); done
output=$(timeout 100 "$RUN" -n 8 "$GRID" "${args[@]}" --fail 2 2>&1)
status=$?
[ $status -eq 124 ] && complain "a layout hangs after the planted failure"
[ $status -eq 0 ] && complain "no layout failed"
grep -q '^ok dp=2$' <<<"$output" || complain "dp=2 has no rank 2, but is not ok"
for case in "${cases[@]:1}"; do
    grep -q "grid: rank 2 of $case: a planted failure\$" <<<"$output" || complain "$case: rank 2 does not tell its failure"
    grep -q "^FAILED $case\$" <<<"$output" || complain "$case: not reported as failed"
done
[ $failures -eq 0 ] || echo "$output"
[ $failures -eq 0 ]
