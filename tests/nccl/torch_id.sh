#!/usr/bin/env bash
# PyTorch with libnccl.so.2 preloaded: torch.cuda.nccl.unique_id() gives an id of tutti's. Exit status 77: there is no PyTorch with CUDA.
# LIBRARY: the library; PYTHON: see torch.sh.
# With --measure: the time, the processor's time and the most memory of `import torch` with this library and without, in turns; best and
# median of 5.
set -euo pipefail
: "${LIBRARY:?}"
. "$(dirname "$0")/torch.sh"
program='import resource, sys, time
begun, used = time.monotonic(), time.process_time()
import torch
seconds, used = time.monotonic() - begun, time.process_time() - used
if not hasattr(torch._C, "_nccl_unique_id"): sys.exit("no NCCL")
id = torch.cuda.nccl.unique_id()
print(bytes(id[:4]).hex(), torch.__version__, round(seconds, 2), round(used, 2), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)'

# turn COMMAND...: prints the first four bytes of an id, the version, seconds, the processor's seconds, MiB.
turn() {
    "$@" "$PYTHON" -c "$program" 2>"$errors" && return
    grep -q '^no NCCL$' "$errors" && echo "skipped: this PyTorch was built without NCCL" && exit 77
    cat "$errors" >&2 && return 1
}

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
said=$(turn env LD_PRELOAD="$LIBRARY") || { status=$? && echo "$said" && exit $status; }
read -r magic version _ <<<"$said"
echo "torch $version: the id begins with $magic"
[ "$magic" = 64497554 ] || { echo "expected 64497554, an id of tutti's" >&2 && exit 1; }
[ "${1-}" = --measure ] || exit 0
for _ in 1 2 3 4 5; do
    echo "ours $(turn env LD_PRELOAD="$LIBRARY")"
    echo "NVIDIA's $(turn env LD_PRELOAD=)"
done | awk '
    function sorted(which, column,    i, k, v) {
        for (i = 2; i <= n[which]; i++) {
            v = of[which, column, i]
            for (k = i - 1; k >= 1 && of[which, column, k] > v; k--) of[which, column, k + 1] = of[which, column, k]
            of[which, column, k + 1] = v
        }
        return of[which, column, 1] " (median " of[which, column, int((n[which] + 1) / 2)] ")"
    }
    { n[$1]++; for (i = 4; i <= 6; i++) of[$1, i, n[$1]] = $i + 0 }
    END { for (which in n) print which ": import torch " sorted(which, 4) " s, " sorted(which, 5) " s of a processor, " sorted(which, 6) " MiB" }'
