#!/usr/bin/env bash
# Everything that needs RDMA devices, in virtual machines that have them in software: one host with
# four network cards, then two hosts with two each.
#   suite.sh BUILD              boots both and counts
#   suite.sh one|two BUILD      inside of them
# Nothing is asserted about times: the machines are emulated. With RATIOS=1 in the environment the ratios to
# ib_write_lat and ib_write_bw are printed, for a quiet hour.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
passed=0 failed=0

if [ $# -eq 1 ]; then
    build=$(cd "$1" && pwd) || exit 2
    log=$(mktemp) skipped=0
    trap 'rm -f "$log"' EXIT
    boot() { # NAME OPTIONS...
        local name=$1 status
        shift
        "$here/run-in-rdma-vm" "$@" -- bash "$here/suite.sh" "$name" "$build" 2>&1 | tee -a "$log"
        status=${PIPESTATUS[0]}
        [ "$status" -ne 77 ] || { skipped=1 && return; }
        [ "$status" -eq 0 ] || echo "FAILED machine $name: exit status $status" | tee -a "$log"
    }
    if [ ! -x "$build/tests/test_rdma_devices" ]; then
        echo "skipped: built without libibverbs (libibverbs-dev)" && skipped=1
    else
        if [ -n "${RATIOS-}" ]; then
            peers=$here/../../../perf-tests
            cc -std=c17 -D_GNU_SOURCE -O2 "$peers"/peers/{bench,tutti}.c "$peers/common/timing.c" -I "$here/../../../include" -I "$peers" \
                -L "$build/lib" -ltutti "-Wl,-rpath,$build/lib" -lm -o "$build/tests/rdma_bench" || echo "FAILED rdma_bench is not compiled" | tee -a "$log"
        fi
        boot one --nics 4 --timeout 700
        [ $skipped -eq 1 ] || boot two --nics 2 --hosts 2 --timeout 400
    fi
    # with two hosts lines begin with [0] or [1]
    failed=$(grep -cE '^(\[.\] )?FAILED' "$log")
    skipped=$((skipped + $(grep -c '^skipped: ' "$log")))
    echo "$(grep -cE '^(\[.\] )?ok ' "$log") passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
fi

inside=${1:?one or two} build=${2:?the build folder}
bin=$build/bin
work=/run/rdma-suite
mkdir -p $work
echo 29500 >$work/port
export TUTTI_TRANSPORT=rdma TUTTI_TIMEOUT_MS=60000 TUTTI_INIT_TIMEOUT_MS=60000
programs=(all_reduce reduce broadcast scatter gather all_gather reduce_scatter alltoall sendrecv hypercube barrier)
quickly=(-n 1 -w 0 --rotate 1M)

# check NAME COMMAND...: one test; its output is shown when it fails.
check() {
    local name=$1 status=0 begin=$SECONDS
    shift
    ("$@") >$work/log 2>&1 || status=$?
    if [ $status -eq 0 ]; then
        passed=$((passed + 1))
        echo "ok $name ($((SECONDS - begin)) s)"
    else
        failed=$((failed + 1))
        echo "FAILED $name: exit status $status"
        tail -n 25 $work/log | cut -c1-600 | sed 's/^/  | /'
    fi
}

# packets DEVICE: sent by it until now.
packets() { cat "/sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts"; }

# rank_of DEVICES RANK: the RANK-th of the devices of all ranks, "rxe0 rxe1" or "rxe0,rxe1 rxe2,rxe3".
rank_of() {
    local -a all
    read -ra all <<<"$1"
    echo "${all[$2]}"
}

# launch DEVICES PROGRAM ARGS...: a rank a device list, each acting as a host of its own; waits for
# all of them; output in $work/rank0, ...; the first exit status that is not 0.
launch() {
    local devices=$1 nranks r pids=() status=0 port
    nranks=$(wc -w <<<"$1") port=$(cat $work/port) # another one each time, also from subshells
    echo $((port + 1)) >$work/port
    shift
    for ((r = 0; r < nranks; r++)); do
        RANK=$r LOCAL_RANK=$r WORLD_SIZE=$nranks LOCAL_WORLD_SIZE=$nranks MASTER_ADDR=127.0.0.1 \
            MASTER_PORT=$port TUTTI_HOST_ID=host$r TUTTI_RDMA_DEVICE="=$(rank_of "$devices" $r)" \
            timeout --kill-after=5 60 "$@" >$work/rank$r 2>&1 &
        pids+=($!)
    done
    echo "${pids[@]}" >$work/pids
    for r in "${!pids[@]}"; do
        wait "${pids[r]}" || { status=$? && echo "rank $r: exit status $status" && tail -n 5 $work/rank$r; }
    done
    return $status
}

# Whether rank 0 printed rows, each with 0 wrong elements out of place. (Barriers are checked by the clock,
# which two hosts do not share.)
right() {
    awk -v two="$((RDMA_VM_HOSTS == 2))" '/^ *[0-9]/ { n++; if ($9 != "0" && !(two && $3 == "none" && $9 == "N/A")) bad = 1 } END { exit n == 0 || bad }' $work/rank0 &&
        grep -q 'Out of bounds values : 0 OK' $work/rank0
}

# verified DEVICES PROGRAM ARGS...: right results, and over every one of the devices.
verified() {
    local device
    declare -A before
    for device in ${1//,/ }; do before[$device]=$(packets "$device"); done
    launch "$1" "$bin/$2_perf" "${@:3}" || return 1
    right || { cat $work/rank0 && return 1; }
    for device in "${!before[@]}"; do
        [ "$(packets "$device")" -gt "${before[$device]}" ] || { echo "nothing went over $device" && return 1; }
    done
}

# ---- Faults, while all-reduces run

# faulty EXPECTED FAULT...: runs FAULT once data flows; EXPECTED is "right", or words that the errors
# of both ranks, together, contain.
faulty() {
    local expected=$1 job status=0 word before
    shift
    before=$(packets rxe0)
    launch "rxe0 rxe1" "$bin/all_reduce_perf" -b 64K -e 64K -n 400 -w 0 --rotate 1M -c 1 >$work/job &
    job=$!
    while kill -0 $job 2>/dev/null && [ "$(packets rxe0)" -lt $((before + 500)) ]; do sleep 0.05; done
    "$@"
    wait $job || status=$?
    tail -n 4 $work/rank0 $work/rank1
    if [ "$expected" = right ]; then
        [ $status -eq 0 ] && right
        return
    fi
    [ $status -ne 0 ] || { echo "no error came" && return 1; }
    for word in $expected; do
        grep -qh -- "${word//_/ }" $work/rank0 $work/rank1 || { echo "no error says \"${word//_/ }\"" && return 1; }
    done
}
port_down() { ip link set port1 down; }
port_down_and_back() { ip link set port1 down && sleep 1 && ip link set port1 up; }
lose_all() { tc qdisc add dev rdma0 root netem loss 100%; }
kill_peer() { pkill -9 -P "$(cut -d' ' -f2 $work/pids)"; }
mend() {
    ip link set port1 up
    for d in rdma0 rdma1; do tc qdisc del dev $d root 2>/dev/null; done
    sleep 0.5
}
disturbed() { # NETEM...: right results with the fault from the beginning
    tc qdisc add dev rdma1 root netem "$@"
    verified "rxe0 rxe1" all_reduce -b 8 -e 64K -f 64 "${quickly[@]}"
}

# ---- Ratios

# number FILE FIELD SIZE: a field of the row of a size in the output of perftest or of ours.
number() { awk -v f="$2" -v s="$3" '$1 == s { print $f; exit }' "$1"; }
ratios() {
    local typical average bandwidth
    for t in lat bw; do
        local size=8 how=(-n 300)
        [ $t = lat ] || { size=131072 && how=(-n 100 -t 6); }
        "ib_write_$t" -d rxe0 -x 1 -F -s $size "${how[@]}" >/dev/null 2>&1 &
        sleep 2
        timeout 60 "ib_write_$t" -d rxe1 -x 1 -F -s $size "${how[@]}" 10.77.0.1 >$work/ib_$t 2>&1 || return 1
        wait $!
    done
    typical=$(number $work/ib_lat 5 8) average=$(number $work/ib_lat 6 8) bandwidth=$(number $work/ib_bw 4 131072)
    launch "rxe0 rxe1" "$build/tests/rdma_bench" pingpong,stream 8,4194304 || return 1
    # a repetition's time is a mean, with the machine's pauses in it: the best has the fewest of them
    awk -v t="$typical" -v a="$average" -v b="$bandwidth" '
        $1 == "pingpong" && $3 == 8 {
            printf "8 bytes, best: one way %.0f us, ib_write_lat typically %.0f us: %.2f of it\n", $4, t, $4 / t
            printf "8 bytes, median: one way %.0f us, ib_write_lat on average %.0f us: %.2f of it\n", $5, a, $5 / a
        }
        $1 == "stream" && $3 > 8 { m = $3 / $4 / 1.048576; printf "large: stream %.1f MiB/s, ib_write_bw %.1f MiB/s: %.2f of it\n", m, b, m / b }' $work/rank0
}

# ---- The two machines

one() {
    check "unit tests with devices" timeout 300 "$build/tests/test_rdma_devices"
    # Every other program over several cards of a rank: all of them are so between the two hosts.
    local several=0
    for p in "${programs[@]}"; do
        check "$p over 2 cards" verified "rxe0 rxe1" "$p" -b 4 -e 256K -f 40 "${quickly[@]}"
        several=$((1 - several))
        [ $several -eq 0 ] || check "$p over 4 cards" verified "rxe0,rxe1 rxe2,rxe3" "$p" -b 4 -e 512K -f 80 "${quickly[@]}"
    done
    check "all_reduce of 4 ranks over 4 cards" verified "rxe0 rxe1 rxe2 rxe3" all_reduce -b 8 -e 300000 -f 100 "${quickly[@]}"
    check "all_reduce from memory of tutti" verified "rxe0,rxe1 rxe2,rxe3" all_reduce -b 64K -e 1M -f 4 -R 2 "${quickly[@]}"
    bridges
    check "1 % of the packets lost" disturbed loss 1%
    mend
    check "50 ms of delay" disturbed delay 50ms
    mend
    export TUTTI_RDMA_TIMEOUT=19
    check "a port that is down for a second" faulty right port_down_and_back
    unset TUTTI_RDMA_TIMEOUT
    mend
    check "a port that stays down" faulty "rank_[01]_(host rxe[01]_port_1 transport_retry UDP_port_4791" port_down
    mend
    check "all packets lost" faulty "rank_[01]_(host rxe[01]_port_1 transport_retry UDP_port_4791" lose_all
    mend
    check "a rank that is killed" faulty "rank_1_(host has_died" kill_peer
    unset TUTTI_TRANSPORT
    check "TCP where the other side has no RDMA" no_rdma_there
    [ -z "${RATIOS-}" ] || TUTTI_TRANSPORT=rdma ratios || tail -n 5 $work/ib_* $work/rank*
}

# ---- Kernels of virtual GPUs that reach other hosts

bridges() {
    [ -x "$build/tests/device_bridge_rank" ] || { echo "skipped: bridges: built without virtual GPUs, or without kernels" && return; }
    check "bridges over RDMA" "$here/bridges.sh" "$build" calls
    check "bridges over RDMA with slots in memory of GPUs" "$here/bridges.sh" "$build" dmabuf
}

# One rank may not use RDMA: both say so, and data goes over TCP.
no_rdma_there() {
    TUTTI_LOG=INFO launch "rxe0 rxe1" bash -c '[ $RANK = 0 ] || export TUTTI_TRANSPORT=tcp; exec "$@"' - \
        "$bin/all_reduce_perf" -b 8 -e 64K -f 64 "${quickly[@]}" || return 1
    right && grep -q 'rank 0 reaches rank 1 .* by tcp' $work/rank0
}

# between PORT RANKS_A_HOST PROGRAM ARGS...: on this host its ranks of a job on both.
between() {
    local port=$1 each=$2 r status=0 pids=()
    local program=$bin/$3_perf
    shift 3
    for ((r = 0; r < each; r++)); do
        RANK=$((RDMA_VM_HOST * each + r)) LOCAL_RANK=$r WORLD_SIZE=$((2 * each)) LOCAL_WORLD_SIZE=$each \
            MASTER_ADDR=10.77.0.1 MASTER_PORT=$port timeout --kill-after=5 60 "$program" "$@" >$work/rank$r 2>&1 &
        pids+=($!)
    done
    for r in "${!pids[@]}"; do wait "${pids[r]}" || { status=$? && tail -n 5 $work/rank$r; }; done
    [ "$RDMA_VM_HOST" -ne 0 ] || right || { cat $work/rank0 && status=1; }
    for r in rxe0 rxe1; do [ "$(packets $r)" -gt 0 ] || { echo "nothing went over $r" && status=1; }; done
    return $status
}

two() {
    local port=29600
    for p in "${programs[@]}"; do
        port=$((port + 1))
        check "$p between two hosts" between $port 1 "$p" -b 4 -e 128K -f 100 "${quickly[@]}"
    done
    check "all_reduce of two hosts with two ranks each" between $((port + 1)) 2 all_reduce -b 8 -e 128K -f 100 "${quickly[@]}"
}

"$inside"
[ $failed -eq 0 ]
