# For the scripts with PyTorch: sets PYTHON, or ends with 77. PYTHON: a python3 that has torch (else the one in the user's cache,
# tutti-torch, else python3).
cached=${XDG_CACHE_HOME:-$HOME/.cache}/tutti-torch/bin/python3
[ -x "$cached" ] || cached=python3
PYTHON=${PYTHON:-$cached}
if ! "$PYTHON" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))' 2>/dev/null; then
    echo "skipped: $PYTHON has no torch"
    exit 77
fi

need_nccl() {
    "$PYTHON" -W ignore -c 'import sys, torch.distributed as d; sys.exit(not d.is_nccl_available())' && return
    echo "skipped: this PyTorch was built without CUDA or NCCL"
    exit 77
}
