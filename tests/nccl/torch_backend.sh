#!/usr/bin/env bash
# PyTorch's own backend "nccl", old and new, on virtual GPUs: every operation, a rank that is killed, a rank that comes too late.
# LIBRARY: libnccl.so.2; VGPU: the folder of the virtual GPU; PYTHON: see torch.sh. Exit status 77: there is no PyTorch with CUDA.
# With --measure: how long two ranks take for init_process_group and the first all_reduce, best and median of 5.
set -uo pipefail
: "${LIBRARY:?}" "${VGPU:?}"
here=$(cd "$(dirname "$0")" && pwd)
. "$here/torch.sh"
folder=$(mktemp -d)
pids=() failed=0 ticks=0
trap 'end_all; rm -rf "$folder"' EXIT
export VGPU_REPORT=$folder/reports TUTTI_DEVICE_KERNELS=require OMP_NUM_THREADS=1

# timeout leads a process group with the rank.
end_all() { kill -9 -- "${pids[@]/#/-}" 2>/dev/null; }

wrong() {
    echo "WRONG $*"
    failed=1
}

# start N PROGRAM VARIABLE...: N ranks; their output is in $folder/0 and so on.
start() {
    local n=$1 program=$here/$2 rank port
    port=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    shift 2
    pids=()
    for ((rank = 0; rank < n; rank++)); do
        env VGPU_DEVICES="$n" LD_LIBRARY_PATH="$VGPU" LD_PRELOAD="$LIBRARY:$VGPU/libcudart.so.13" RANK=$rank LOCAL_RANK=$rank \
            WORLD_SIZE="$n" MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" "$@" \
            timeout 120 "$PYTHON" -W ignore "$program" >"$folder/$rank" 2>&1 &
        pids+=($!)
    done
}

# operations N NEW: all of torch_backend.py.
operations() {
    local rank begun=$SECONDS
    start "$1" torch_backend.py TORCH_DIST_USE_NCCL2="$2"
    for ((rank = 0; rank < $1; rank++)); do
        wait "${pids[rank]}" && [ "$(grep -c "^rank $rank: .* ran$" "$folder/$rank")" -eq 6 ] && continue
        wrong "rank $rank of $1, TORCH_DIST_USE_NCCL2=$2:"
        tail -n 20 "$folder/$rank"
    done
    echo "operations of $1 ranks, TORCH_DIST_USE_NCCL2=$2: $((SECONDS - begun)) s"
}

# ends RANK SECONDS PATTERN...: the rank ends before SECONDS, of those that `tick` counts, and says the patterns.
ends() {
    local rank=$1 seconds=$2 pattern
    shift 2
    while kill -0 "${pids[rank]}" 2>/dev/null && ((ticks < seconds)); do tick; done
    kill -0 "${pids[rank]}" 2>/dev/null && wrong "rank $rank has not ended in time"
    for pattern in "$@"; do
        grep -qE "$pattern" "$folder/$rank" && continue
        wrong "rank $rank does not say '$pattern':"
        tail -n 20 "$folder/$rank"
    done
}

# A second. All of this may be stopped for minutes while something else is measured: that counts as one.
tick() { sleep 1 && ((++ticks)); }

# raises WAY N NEW PYTORCHS OURS VARIABLE...: each rank but the last ends within 20 s of the fault, and says both patterns: PyTorch's text and
# tutti's, which names the last rank. On a busy machine it may take longer, by the time that the ranks took to start. Then the last rank
# wakes, and says that rank 0 is gone.
raises() {
    local way=$1 n=$2 new=$3 pytorchs=$4 ours=$5 rank limit
    shift 5
    rm -f "$folder/wake"
    start "$n" torch_fault.py WAY="$way" WAKE="$folder/wake" TORCH_DIST_USE_NCCL2="$new" "$@"
    ticks=0
    until grep -q '^the fault comes$' "$folder/$((n - 1))" || ((ticks == 120)); do tick; done
    limit=$((ticks + 20)) ticks=0
    for ((rank = 0; rank < n - 1; rank++)); do ends "$rank" "$limit" "$pytorchs" "$ours"; done
    echo "$way, TORCH_DIST_USE_NCCL2=$new $*: all ended $ticks s after the fault; $(
        grep -ohE 'raised after [0-9.]+ s|Aborting process on rank 0 due to [a-z]+' "$folder/0" | head -n 1)"
    touch "$folder/wake"
    [ "$way" = kill ] || ends $((n - 1)) $((ticks + limit)) 'raised after .*NCCL' 'rank 0 \(host .*, pid [0-9]+\)'
    end_all
    wait "${pids[@]}" 2>/dev/null
}

# measure NEW
measure() {
    local turn
    for turn in 1 2 3 4 5; do
        start 2 torch_first.py TORCH_DIST_USE_NCCL2="$1"
        wait "${pids[@]}" || { cat "$folder/0" "$folder/1" && exit 1; }
        sed -n 's/^first //p' "$folder/0"
    done | sort -n | awk -v new="$1" '
        { of[NR] = $1; if ($2 > mib) mib = $2 }
        END { print "TORCH_DIST_USE_NCCL2=" new ": init_process_group and the first all_reduce take " of[1] " s, median " of[3] " s; " mib " MiB a rank" }'
}

need_nccl
if [ "${1-}" = --measure ]; then
    measure 1
    measure 0
    exit
fi
for n in 2 4; do
    operations $n 1
    operations $n 0
done
died='rank 2 \(host .*, pid [0-9]+\) has died'
raises kill 3 0 'raised after .*NCCL error in' "$died"
# The new backend, by default: the watchdog ends the process, this long after it has seen the error.
# Then the threads that make calls may not come to say why; the rank that found out first has logged the cause.
raises kill 3 1 'raised after .*NCCL|Aborting process on rank [01] due to error' '' TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=1000
grep -qE "$died" "$folder/0" "$folder/1" || wrong "nobody names rank 2, which was killed"
# CleanUpOnly: the watchdog aborts the communicator, and the process lives. The old backend first waits four times the last one's time, for
# other ranks to write their traces.
settings=(TORCH_NCCL_ASYNC_ERROR_HANDLING=2 TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=100)
raises kill 3 1 'raised after .*NCCL' "$died" "${settings[@]}"
late='rank 1 \(host .*, pid [0-9]+\) has not entered it'
raises sleep 2 0 'raised after .*NCCL communicator was aborted on rank 0' "$late" "${settings[@]}" TUTTI_LATE_MS=5000
raises sleep 2 1 'raised after .*NCCL operation timed out' "$late" "${settings[@]}" TUTTI_LATE_MS=5000
[ ! -s "$folder/reports" ] || { wrong "the virtual GPU has reports:" && head -c 2000 "$folder/reports"; }
exit $failed
