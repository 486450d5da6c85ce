#!/usr/bin/env bash
# cmake/cuda.sh takes NVIDIA's wheel only if it is the very file that a hash names: a forged one of the same name and version
# is refused, and nothing of it is unpacked.
. "$(dirname "$0")/common.sh"
. cmake/cuda.sh
python3 -m pip --version >/dev/null 2>&1 || skip "no pip for python3 here"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
info=nvidia_cuda_runtime-13.0.96.dist-info
mkdir -p "$work/wheels" "$work/nvidia/cu13/include" "$work/$info"
echo '#define CUDA_VERSION 13000' >"$work/nvidia/cu13/include/cuda.h"
printf 'Metadata-Version: 2.1\nName: nvidia-cuda-runtime\nVersion: 13.0.96\n' >"$work/$info/METADATA"
printf 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n' >"$work/$info/WHEEL"
: >"$work/$info/RECORD"
(cd "$work" && python3 -m zipfile -c wheels/nvidia_cuda_runtime-13.0.96-py3-none-any.whl nvidia "$info")
export XDG_CACHE_HOME=$work/cache PIP_NO_INDEX=1 PIP_FIND_LINKS=$work/wheels
if include=$(cuda_download 2>"$work/errors"); then fail "a forged wheel was taken: $include"; fi
[ ! -e "$work/cache/tutti/cuda-13.0.96" ] || fail "a forged wheel was unpacked into the cache"
grep -q 'DO NOT MATCH THE HASHES' "$work/errors" || fail "expected pip's message about hashes: $(cat "$work/errors")"
finish "a forged wheel is refused"
