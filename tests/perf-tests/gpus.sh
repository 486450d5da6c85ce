#!/usr/bin/env bash
# The perf tests on memory of GPUs, here virtual ones. BIN: the build's bin; SHORT: a library for LD_PRELOAD, short_call.c; LIBRARY:
# libnccl.so.2, or empty.
set -uo pipefail
. "$(dirname "$0")/expect.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

right='Out of bounds values : 0 OK'
small=(--device cuda -b 260 -e 260 -n 1 -w 0 --rotate 4K --align 1)

# Threads on one and two GPUs, ranks of one thread, processes; several ranks on a GPU.
expect 0 "$right" "$BIN/all_reduce_perf" "${small[@]}" -t 3
has '# VIRTUAL GPU: '
has 'Avg bus bandwidth .*\(virtual GPU\)'
has 'Rank  0 .* device  0 \[7f00:00:00.0\] tutti virtual GPU'
has 'Rank  1 .* device  1 \[7f00:01:00.0\] tutti virtual GPU'
has 'Rank  2 .* device  0 '
expect 0 "$right" "$BIN/reduce_scatter_perf" "${small[@]}" -g 2 -d bfloat16 -o max
expect 0 "$right" "$BIN/tutti-run" -n 2 "$BIN/all_gather_perf" "${small[@]}" -d int8
has 'Rank  1 .* device  1 '
expect 0 "$right" env VGPU_DEVICES=1 "$BIN/tutti-run" -n 2 "$BIN/reduce_perf" "${small[@]}" -d uint16 -o mulsum -r 1
for program in broadcast alltoall scatter gather; do
    expect 0 "$right" "$BIN/${program}_perf" "${small[@]}" -t 2 -r 1 -d int32 -u 1
done
expect 0 "$right" "$BIN/barrier_perf" "${small[@]}" -t 2
expect 0 "$right" "$BIN/tutti-run" -n 2 "$BIN/sendrecv_perf" "${small[@]}"
expect 0 "$right" "$BIN/hypercube_perf" "${small[@]}" -g 3
for program in all_gatherv alltoallv; do expect 0 "$right" "$BIN/${program}_perf" "${small[@]}" -t 3; done

# Ways of calling and of reporting.
expect 0 "$right" "$BIN/all_reduce_perf" "${small[@]}" -t 2 -p 1 --stream null -M 1 -n 2
expect 0 "$right" "$BIN/all_reduce_perf" "${small[@]}" -t 2 -m 2 -I 1 -R 1 -z 3 -J "$folder/x.json" -x 2
has '# -x ignored: '
expect 0 "$right" "$BIN/all_reduce_perf" "${small[@]}" -t 2 -G 2
has ' graph: 2 '
if command -v python3 >/dev/null; then
    expect 0 "cuda true tutti virtual GPU" python3 -c 'import json, sys
run = json.load(open(sys.argv[1]))
print(run["config"]["device"], run["config"]["virtual_gpus"], run["config"]["devices"][0]["device_info"])
assert 0 < run["results"][0]["out_of_place_per_iter"]["min_us"] < 1e8' "$folder/x.json"
else echo "skipped: no python3 to read the JSON with"; fi

# Through libnccl.so.2: ranks of one thread, threads, processes; graphs.
if [ -n "$LIBRARY" ]; then
    expect 0 "$right" "$BIN/all_reduce_perf" "${small[@]}" -g 2 --library "$LIBRARY"
    has "^# Library: NCCL .* of tutti, $LIBRARY$"
    has 'Rank  1 .* device  1 \[7f00:01:00.0\] tutti virtual GPU'
    expect 0 "$right" "$BIN/reduce_scatter_perf" "${small[@]}" -g 2 -d bfloat16 -o mulsum --library "$LIBRARY"
    expect 0 "$right" "$BIN/tutti-run" -n 2 "$BIN/sendrecv_perf" "${small[@]}" --library "$LIBRARY"
    expect 0 "$right" "$BIN/all_gather_perf" "${small[@]}" -t 2 -p 1 -G 2 -R 1 --library "$LIBRARY"
    expect 2 "--stream: with --library calls are on a stream" "$BIN/all_reduce_perf" "${small[@]}" --stream null --library "$LIBRARY"
else echo "skipped: no libnccl.so.2 to run through"; fi

# A result that is wrong on the GPU is noticed, and so are a missing driver and a missing GPU.
expect 1 "FAILED" env LD_PRELOAD="$SHORT" ASAN_OPTIONS=verify_asan_link_order=0 "$BIN/all_reduce_perf" "${small[@]}" -t 2
has '^ +260 +65 .* 2 .* 2$'
expect 1 "--device cuda: no CUDA driver: libcuda.so.1" env LD_LIBRARY_PATH="$folder" "$BIN/all_reduce_perf" "${small[@]}"
expect 1 "--device cuda: CUDA's driver: cuInit: there is no GPU" env VGPU_DEVICES=0 "$BIN/all_reduce_perf" "${small[@]}"
exit $failed
