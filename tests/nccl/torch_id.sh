#!/usr/bin/env bash
# PyTorch with libnccl.so.2 preloaded: torch.cuda.nccl.unique_id() gives an id of tutti's. Exit status 77: there is no PyTorch with CUDA.
# LIBRARY: the library; PYTHON: a python3 that has torch (else the one in the user's cache, tutti-torch, else python3).
# With --measure: the time and the most memory of `import torch` with this library and without, the least of 5 turns.
set -euo pipefail
: "${LIBRARY:?}"
cached=${XDG_CACHE_HOME:-$HOME/.cache}/tutti-torch/bin/python3
[ -x "$cached" ] || cached=python3
PYTHON=${PYTHON:-$cached}
if ! "$PYTHON" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))' 2>/dev/null; then
    echo "skipped: $PYTHON has no torch"
    exit 77
fi
program='import resource, sys, time
begun = time.monotonic()
import torch
seconds = time.monotonic() - begun
if not hasattr(torch._C, "_nccl_unique_id"): sys.exit("no NCCL")
id = torch.cuda.nccl.unique_id()
print(bytes(id[:4]).hex(), torch.__version__, round(seconds, 2), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)'

# A turn: the first four bytes of an id, the version, seconds, MiB. Empty: this PyTorch was built without NCCL.
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
for which in ours NVIDIA\'s; do
    preload=
    [ "$which" != ours ] || preload=$LIBRARY
    for _ in 1 2 3 4 5; do turn env LD_PRELOAD="$preload"; done | sort -n -k3 |
        awk -v which="$which" 'NR == 1 { seconds = $3 } { mib = mib ? (mib < $4 ? mib : $4) : $4 } END { print which ": import torch " seconds " s, " mib " MiB" }'
done
