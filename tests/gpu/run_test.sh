#!/usr/bin/env bash
# Tries "run --short" on virtual GPUs: its runs pass, failures are counted, and what it cannot try it says. BINARY: the build's folder.
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
    'passed +one GPU +mixed +a rank of a GPU and one of the host' 'passed +one GPU +failures +death in a kernel' \
    'passed +one GPU +large' 'passed +one GPU +bandwidth +.* a copy: [0-9.]+ GB/s' \
    'The GPUs are virtual'; do
    grep -qE "^$line" <<<"$output" || { echo "no line '$line' in:" && echo "$output" && failed=1; }
done
if command -v python3 >/dev/null; then
    python3 - "$out/gpu-run.json" <<'END' || failed=1
import json, sys
run = json.load(open(sys.argv[1]))
results = [row["result"] for row in run["runs"]]
assert run["virtual"] and run["gpus"] == 2 and run["build_seconds"] < 60 and run["passed"] == results.count("passed") > 10, run
assert any(row["part"] == "bandwidth" and row["copy_gbs"] > 0 and row["bytes"] > 0 for row in run["runs"]), run
END
else echo "skipped: no python3 to read the JSON with"; fi

# The long form, with programs that only say what such programs would: its runs, results and counts.
mkdir "$out/bin" "$out/tests" "$out/tools"
cat >"$out/bin/all_reduce_perf" <<'END'
#!/bin/sh
case " $0 $* " in
*/alltoall_perf*) echo 'rank 0: it "failed"' && exit 1 ;;
*/sendrecv_perf*) echo '# error: tuttiSend: this call is for streams of the host only' && exit 1 ;;
esac
echo '         260            65     float     sum      -1   898.88    1.50    2.50       0   913.01    0.00    0.00       0'
echo '# Out of bounds values : 0 OK'
END
printf '#!/bin/sh\nshift 2\nexec "$@"\n' >"$out/bin/tutti-run"
printf '#!/bin/sh\nshift 4\nexec "$@"\n' >"$out/tools/compute-sanitizer"
# shellcheck disable=SC2016
printf '#!/bin/sh\ncase "$1 $RANK" in devices*) echo 1 real A GPU ;; copy*) echo 12.5 ;; *1) exit 137 ;; esac\n' >"$out/tests/gpu_checks"
chmod +x "$out"/*/*
for program in all_gather broadcast reduce_scatter reduce alltoall scatter gather barrier sendrecv all_gatherv reduce_scatterv \
    gatherv scatterv alltoallv hypercube; do ln -s all_reduce_perf "$out/bin/${program}_perf"; done
PATH=$out/tools:$PATH expect 1 '^167 passed, 9 failed, 11 not supported, 1 left out' -b "$out"
for line in "failed +one GPU +matrix +alltoall, processes: 8 .* status 1: rank 0: it 'failed'" \
    'left out +all GPUs +matrix +two GPUs .* there is one GPU' 'passed +one GPU +sanitizer +memcheck, threads: 2' \
    'passed +one GPU +bandwidth +all_gather, threads: 8, 256M .* 898.88 us, algbw 1.50, busbw 2.50 GB/s; a copy: 12.5 GB/s'; do
    grep -qE "^$line" <<<"$output" || { echo "no line '$line' in:" && echo "$output" && failed=1; }
done
! grep -q virtual <<<"$output" || { echo "GPUs that are real are called virtual" && failed=1; }

# No time, no GPU and no build are said.
expect 1 '^0 passed, 0 failed, 0 not supported, [0-9]+ left out' --short -t 0
VGPU_DEVICES=0 expect 2 'there is no GPU' --short
expect 2 'no perf tests and no tutti-run' --short -b "$out/tests"
exit $failed
