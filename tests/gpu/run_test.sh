#!/usr/bin/env bash
# `run --short` on virtual GPUs: its runs pass, failures are counted, and what it cannot try it says. BINARY: the build's folder.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
failed=0
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# expect CODE PATTERN ARGUMENTS...: run's exit code, and a line that it prints.
expect() {
    local code=$1 pattern=$2 status=0
    shift 2
    output=$("$here/run" -n -b "$BINARY" -o "$out" "$@" 2>&1) || status=$?
    [ "$status" -eq "$code" ] && grep -qE -- "$pattern" <<<"$output" && return
    echo "run $*: expected status $code and '$pattern', got $status:" && tail -n 40 <<<"$output"
    failed=1
}

expect 0 '^[0-9]+ passed, 0 failed, [0-9]+ not supported, 0 left out' --short
for line in 'passed +one GPU +matrix +all_reduce, threads: 2' 'passed +all GPUs +matrix +all_reduce, processes: 2' \
    'passed +one GPU +failures +death in a kernel' 'passed +one GPU +large' 'passed +one GPU +bandwidth +.* a copy: [0-9.]+ GB/s' \
    'The GPUs are virtual'; do
    grep -qE "^$line" <<<"$output" || { echo "no line '$line' in:" && echo "$output" && failed=1; }
done
if command -v python3 >/dev/null; then
    python3 - "$out/gpu-run.json" <<'END' || failed=1
import json, sys
run = json.load(open(sys.argv[1]))
results = [row["result"] for row in run["runs"]]
assert run["virtual"] and run["gpus"] == 2 and run["passed"] == results.count("passed") > 10, run
assert any(row["part"] == "bandwidth" and row["copy_gbs"] > 0 and row["bytes"] > 0 for row in run["runs"]), run
END
else echo "skipped: no python3 to read the JSON with"; fi

# A perf test that fails is a failure; no time, no GPU and no build are said.
mkdir "$out/bin" "$out/tests" && ln -s "$BINARY"/bin/* "$out/bin" && ln -s "$BINARY/tests/gpu_checks" "$out/tests"
rm "$out/bin/all_reduce_perf" && printf '#!/bin/sh\necho "it failed \\"so\\""\nexit 1\n' >"$out/bin/all_reduce_perf"
chmod +x "$out/bin/all_reduce_perf"
expect 1 "failed +one GPU +matrix +all_reduce, threads: 1 .* status 1: it failed 'so'" --short -b "$out" -t 6
expect 1 '^0 passed, 0 failed, 0 not supported, [0-9]+ left out' --short -t 0
VGPU_DEVICES=0 expect 2 'there is no GPU' --short
expect 2 'no perf tests and no tutti-run' --short -b "$out/tests"
exit $failed
