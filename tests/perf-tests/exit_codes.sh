#!/usr/bin/env bash
# What the programs exit with, and that only rank 0 speaks.
set -uo pipefail
. "$(dirname "$0")/expect.sh"
bin=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

small=(-b 64 -e 64 -n 2)
expect 0 "Out of bounds values : 0 OK" "$bin/all_reduce_perf" "${small[@]}" -t 2
expect 0 "# Collective test concluded: barrier_perf" "$bin/tutti-run" -n 2 "$bin/barrier_perf" -n 2
expect 0 "usage: all_reduce_perf" "$bin/all_reduce_perf" --help
expect 0 "tutti-perf " "$bin/all_reduce_perf" --version
expect 1 "FAILED" "$bin/all_reduce_perf" "${small[@]}" -t 2 --min-bw 1000000
expect 0 "OK" "$bin/all_reduce_perf" "${small[@]}" -t 2 --min-bw 0
expect 2 "-g: '0' is not a whole number from 1" "$bin/all_reduce_perf" -g 0
expect 2 "-r: there is no rank 2 among 2" "$bin/broadcast_perf" "${small[@]}" -t 2 -r 2
expect 2 "use one of" "$bin/all_reduce_perf" --algorithm nonsense
expect 2 "has none" "$bin/sendrecv_perf" --algorithm ring
expect 2 "-J: cannot write '$folder/none/x.json'" "$bin/all_reduce_perf" "${small[@]}" -J "$folder/none/x.json"
expect 0 "x.json" "$bin/all_reduce_perf" "${small[@]}" -J "$folder/x.json"
expect 0 "x.json.0" "$bin/all_reduce_perf" "${small[@]}" -J "$folder/x.json"
if command -v python3 >/dev/null; then
    expect 0 '"average_bus_bandwidth"' python3 -m json.tool "$folder/x.json"
else echo "skipped: no python3 to read the JSON with"; fi

# --transport, between ranks of this host; the library says by which way a rank reaches another host.
two=("$bin/tutti-run" -n 2 "$bin/all_reduce_perf" "${small[@]}" --transport)
for transport in shm window cma tcp; do expect 0 "# Transport: $transport" "${two[@]}" $transport; done
expect 0 "rank 0 reaches rank 1" env TUTTI_LOG=INFO "${two[@]}" tcp
expect 0 "by tcp" env TUTTI_LOG=INFO "${two[@]}" tcp
expect 2 "--transport tcp: ranks of one process" "$bin/all_reduce_perf" "${small[@]}" -t 2 --transport tcp
expect 2 "--transport rdma: ranks of one process" "$bin/all_reduce_perf" "${small[@]}" -g 2 --transport rdma
if [ -n "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
    echo "skipped: there is an RDMA device, so --transport rdma is not refused"
else expect 2 "--transport rdma: this host has no RDMA device" "${two[@]}" rdma; fi

expect 0 "# bootstrap_perf concluded" "$bin/bootstrap_perf" -b 2 -e 16 -f 8 -n 2
expect 0 "# bootstrap_perf concluded" "$bin/tutti-run" -n 3 "$bin/bootstrap_perf" -b 2 -e 8 -n 2
expect 0 "usage: bootstrap_perf" "$bin/bootstrap_perf" --help
expect 2 "-b: '0' is not a whole number from 1 to 8192" "$bin/bootstrap_perf" -b 0
expect 2 "'x' is no option" "$bin/bootstrap_perf" x

heads=$("$bin/tutti-run" -n 3 "$bin/all_gather_perf" "${small[@]}" | grep -c 'Collective test starting')
if [ "$heads" -ne 1 ]; then
    echo "expected one head of three processes, got $heads"
    failed=1
fi
exit $failed
