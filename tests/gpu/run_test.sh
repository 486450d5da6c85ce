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
    output=$("$here/run" --prebuilt "$BINARY" -o "$out" "$@" 2>&1) || status=$?
    [ "$status" -eq "$code" ] && grep -qE -- "$pattern" <<<"$output" && return
    echo "run $*: expected status $code and '$pattern', got $status:" && tail -n 40 <<<"$output"
    failed=1
}

# lines PATTERN...: the output of the last run has such lines.
lines() {
    for line in "$@"; do
        grep -qE "^$line" <<<"$output" || { echo "no line '$line' in:" && echo "$output" && failed=1; }
    done
}

expect 0 '^[0-9]+ passed, 0 failed, [0-9]+ not supported, 0 left out' --short
lines 'passed +one GPU +first +all_reduce, threads: 2' 'passed +one GPU +matrix +all_reduce, threads: 2' \
    'passed +all GPUs +processes +all_reduce, processes: 2' 'passed +one GPU +mixed +a rank of a GPU and one of the host' \
    'passed +one GPU +failures +death in a kernel' 'passed +one GPU +large' 'passed +one GPU +times +a copy of 8K .* [0-9.]+ GB/s' \
    'passed +one GPU +times +all_gather, threads: 2' 'passed +one GPU +library +ctypes client, processes: 2' \
    'passed +one GPU +library +sendrecv, one thread: 2' 'passed +one GPU +library +all_reduce, processes: 2' '  \| +8192 B +[0-9.]+ us  algbw' 'The GPUs are virtual'
if command -v python3 >/dev/null; then
    python3 - "$out/gpu-run.json" <<'END' || failed=1
import json, sys
run = json.load(open(sys.argv[1]))
results = [row["result"] for row in run["runs"]]
assert run["virtual"] and run["gpus"] == 2 and run["build_seconds"] < 60 and run["passed"] == results.count("passed") > 10, run
assert any(row["part"] == "times" and row.get("copy_gbs", 0) > 0 for row in run["runs"]), run
assert any(row["result"] == "time" and row["bytes"] > 0 and row["time_us"] > 0 for row in run["runs"]), run
END
else echo "skipped: no python3 to read the JSON with"; fi
tar -tzf "$out/logs.tar.gz" | grep 'one-GPU-first-all_reduce--threads--2.log' >/dev/null || { echo "no logs in the archive" && failed=1; }
tar -xOzf "$out/logs.tar.gz" ./tutti-info-gpus.log | grep -q 'GPU 0: .*accesses GPU 1' || { echo "the archive does not say which GPUs reach each other" && failed=1; }

# A library whose kernels no GPU can load passes nothing but what the part mixed runs without kernels.
LD_LIBRARY_PATH=$NO_KERNELS:$LD_LIBRARY_PATH expect 1 '^4 passed, 6 failed, 0 not supported, 0 left out' --short --parts first,mixed,failures
lines 'failed +one GPU +first +all_reduce, threads: 1 .* its calls did not go to kernels' \
    'failed +one GPU +failures +abort in a kernel .* its calls did not go to kernels' \
    'passed +one GPU +mixed +all_reduce through the host, threads: 2'

# nccl-tests run with libnccl.so.2.
mkdir "$out/nccl-tests"
printf '#!/bin/sh\necho "preloaded: $LD_PRELOAD, $*"\necho "# Out of bounds values : 0 OK"\n' >"$out/nccl-tests/all_reduce_perf"
chmod +x "$out/nccl-tests/all_reduce_perf"
expect 0 '^[78] passed, 0 failed' --short --parts library --nccl-tests "$out/nccl-tests"
lines 'passed +one GPU +library +nccl-tests: all_reduce_perf, GPUs: 1'
tar -xOzf "$out/logs.tar.gz" ./one-GPU-library-nccl-tests--all_reduce_perf--GPUs--1.log | grep -qx "preloaded: .*/lib/libnccl.so.2, -g 1 -b 8 -e 64K -f 8" ||
    { echo "nccl-tests did not run with libnccl.so.2" && failed=1; }
expect 2 "there is no $out/none/all_reduce_perf" --short --nccl-tests "$out/none"

# The long form, with programs that only say what such programs would: its runs, results and counts.
mkdir "$out/bin" "$out/tests" "$out/lib" "$out/tools"
cat >"$out/bin/all_reduce_perf" <<'END'
#!/bin/sh
case " $0 $* " in
*/alltoall_perf*) echo 'rank 0: it "failed"' && exit 1 ;;
*/sendrecv_perf*) echo '# error: tuttiSend: this call is for streams of the host only' && exit 1 ;;
*/scatter_perf*-t\ 8\ * | */gather_perf*-t\ 8\ *) echo 'rank 1 waited 10000 ms in scatter number 1' && exit 1 ;;
esac
echo '         260            65     float     sum      -1   898.88    1.50    2.50       0   913.01    0.00    0.00       0'
echo '# Out of bounds values : 0 OK'
END
printf '#!/bin/sh\nshift 2\nexec "$@"\n' >"$out/bin/tutti-run"
printf '#!/bin/sh\necho GPU 0\n' >"$out/bin/tutti-info"
printf '#!/bin/sh\nshift 4\nexec "$@"\n' >"$out/tools/compute-sanitizer"
# shellcheck disable=SC2016
printf '#!/bin/sh\ncase "$1 $RANK" in devices*) echo 1 real A GPU ;; copy*) echo 12.5 ;; *1) exit 137 ;; esac\n' >"$out/tests/gpu_checks"
printf '#!/bin/sh\nexit 1\n' >"$out/tools/nvidia-cuda-mps-control"
chmod +x "$out"/*/*
for program in all_gather broadcast reduce_scatter reduce alltoall scatter gather barrier sendrecv all_gatherv reduce_scatterv \
    gatherv scatterv alltoallv hypercube; do ln -s all_reduce_perf "$out/bin/${program}_perf"; done
PATH=$out/tools:$PATH expect 1 '^171 passed, 9 failed, 8 not supported, 13 left out' --prebuilt "$out"
lines "failed +one GPU +matrix +alltoall, threads: 2 .* status 1: rank 0: it 'failed'" \
    'left out +one GPU +matrix +hypercube, threads: 8 .* two runs like it did not end' \
    'passed +one GPU +matrix +hypercube, threads: 4' \
    'left out +all GPUs +matrix +two GPUs .* there is one GPU' 'passed +one GPU +sanitizer +memcheck, threads: 1' \
    'left out +one GPU +nccl .* NVIDIA.s MPS does not start' '  \| +260 B +898.88 us  algbw +1.50  busbw +2.50 GB/s'
! grep -q virtual <<<"$output" || { echo "GPUs that are real are called virtual" && failed=1; }

# No time, no GPU, no build and no such part are said.
expect 1 '^0 passed, 0 failed, 0 not supported, [0-9]+ left out' --short -t 0 --parts first,matrix,ways
VGPU_DEVICES=0 expect 2 'there is no GPU' --short
expect 2 'is no bundle and no complete build: .*bin/all_reduce_perf is not there' --short --prebuilt "$out/tests"
expect 2 "'speed' is no part; there are: first matrix" --parts first,speed
exit $failed
