#!/usr/bin/env bash
# PyTorch's own backend "nccl", old and new, on virtual GPUs: every operation, a rank that is killed, a rank that comes too late.
# LIBRARY: libnccl.so.2; VGPU: the folder of the virtual GPU; PYTHON: see torch.sh. Exit status 77: there is no PyTorch with CUDA.
set -uo pipefail
: "${LIBRARY:?}" "${VGPU:?}"
here=$(cd "$(dirname "$0")" && pwd)
. "$here/torch.sh"
folder=$(mktemp -d)
pids=() failed=0
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

# raises WAY N NEW PATTERN VARIABLE...: each rank but the last says PATTERN and ends within 60 s: PyTorch's new backend ends the process
# 15 s after it has seen the error, the old one raises at once.
raises() {
    local way=$1 n=$2 new=$3 pattern=$4 rank begun=$SECONDS
    shift 4
    start "$n" torch_fault.py WAY="$way" TORCH_DIST_USE_NCCL2="$new" "$@"
    for ((rank = 0; rank < n - 1; rank++)); do
        timeout 60 tail --pid="${pids[rank]}" -f /dev/null
        kill -0 "${pids[rank]}" 2>/dev/null && wrong "rank $rank does not end ($way)"
        grep -qE "$pattern" "$folder/$rank" && continue
        wrong "rank $rank does not say '$pattern' ($way, TORCH_DIST_USE_NCCL2=$new):"
        tail -n 20 "$folder/$rank"
    done
    echo "$way, TORCH_DIST_USE_NCCL2=$new: $((SECONDS - begun)) s; $(grep -ohE 'raised after [0-9.]+ s|due to (error|timeout)' "$folder/0" | head -n 1)"
    end_all
    wait "${pids[@]}" 2>/dev/null
}

if ! "$PYTHON" -W ignore -c 'import sys, torch.distributed as d; sys.exit(not d.is_nccl_available())'; then
    echo "skipped: this PyTorch was built without CUDA or NCCL"
    exit 77
fi
operations 2 1
operations 2 0
operations 4 0
# tutti's text and PyTorch's exception
raises kill 3 0 'raised after .*'
grep -q 'rank 2 (.*) has died' "$folder/0" "$folder/1" || wrong "nobody names rank 2, which was killed"
raises kill 3 1 'rank 2 \(.*\) has died'
# PyTorch waits four times this long, for other ranks to write their traces, before it aborts.
raises sleep 2 0 'communicator was aborted on rank 0' TORCH_NCCL_ASYNC_ERROR_HANDLING=1 TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=1000
raises sleep 2 1 'timeout watchdog detected operation timeout'
[ ! -s "$folder/reports" ] || { wrong "the virtual GPU has reports:" && head -c 2000 "$folder/reports"; }
exit $failed
