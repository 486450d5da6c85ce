#!/usr/bin/env bash
# A build that lacks something says so in one line when it is configured, and the tests that need it are skipped by name: none of them is
# there under its own name, where it would pass by doing without.
. "$(dirname "$0")/common.sh"
[ -n "$NVCC" ] && [ -n "$CUDA" ] || skip "no nvcc or no cuda.h: no build has kernels here"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# without LINE OPTIONS...: configures with these options; CMake says the line, if it is not empty, once; no test that runs kernels is there.
without() {
    local line=$1 log=$work/log tests name
    shift
    rm -rf "$work/build"
    cmake -S . -B "$work/build" -G Ninja -DTUTTI_TRAINER=OFF -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX" \
        -DTUTTI_NVCC="$NVCC" -DTUTTI_CUDA_INCLUDE="$CUDA" "$@" >"$log" 2>&1 || fail "cmake $*: $(tail -n 5 "$log")"
    [ -z "$line" ] || [ "$(grep -c "^-- .*$line" "$log")" -eq 1 ] || fail "cmake $*: expected one line with '$line': $(cat "$log")"
    tests=$(ctest --test-dir "$work/build" -N | sed -n 's/^ *Test *#[0-9]*: //p')
    for name in device gpu_run perf-tests_gpus example_gpu_allreduce; do
        grep -qx "${name}_skipped" <<<"$tests" || fail "cmake $*: there is no test ${name}_skipped"
    done
    tests=$(grep -xE '(device|device_(calls|graphs|run|fold|turns|staged|processes|faults).*|gpu_run|perf-tests_gpus|example_gpu_allreduce_[12])' \
        <<<"$tests" || true)
    [ -z "$tests" ] || fail "cmake $*: these tests need kernels that run:"$'\n'"$tests"
}

without 'libzstd not found (libzstd-dev): the virtual GPU loads neither' -DVGPU_ZSTD_LIBRARY=
without 'no kernels for GPUs: ' -DTUTTI_NVCC=
without '' -DTUTTI_VIRTUAL_GPU=OFF
finish "without libzstd, nvcc or the virtual GPU no test of kernels is there"
