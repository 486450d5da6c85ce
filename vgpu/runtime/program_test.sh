#!/usr/bin/env bash
# Compiles program.cu as a user does, runs it on virtual GPUs, and runs it without PTX, which is an error that says how to compile it.
# usage: program_test.sh SOURCE BUILD NVCC [SANITIZED]
set -uo pipefail
source=$1 build=$2 nvcc=$3 sanitized=${4:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    printf '%s\n' "$@"
    exit 1
}

# compile NAME OPTIONS...: linked to the virtual GPU's runtime, as the folder of nvcc may have no library.
compile() {
    "$nvcc" -std=c++17 -cudart shared -cudadevrt none -L"$build/vgpu" -o "$work/$1" "$source/vgpu/runtime/program.cu" "${@:2}" -w || fail "nvcc fails: ${*:2}"
}

# run NAME OPTIONS...: sets output and status.
run() {
    if [ -n "$sanitized" ]; then # the program itself is built without the sanitizer, which must be loaded first
        output=$(ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$(cc -print-file-name=libasan.so) "$build/vgpu/vgpu-run" "${@:2}" "$work/$1" 2>&1)
    else
        output=$("$build/vgpu/vgpu-run" "${@:2}" "$work/$1" 2>&1)
    fi
    status=$?
}

expected='vector sum
reduction in shared memory
scan
matrix product
constants and variables
cooperative groups
two streams
a graph
a block that is too large'
compile program -gencode arch=compute_75,code=compute_75
compile own_streams -gencode arch=compute_75,code=compute_75 -default-stream per-thread
for name in program own_streams; do
    run "$name" --strict --seed 3
    [ "$status" = 0 ] || fail "$output" "$name: status $status, expected 0"
    [ "$(grep ': right$' <<<"$output" | sed 's/: right$//')" = "$expected" ] || fail "$output" "$name: expected these lines, right:" "$expected"
done

compile without_ptx -gencode arch=compute_75,code=sm_75
run without_ptx
case $status:$output in
1:*'nvcc -gencode arch=compute_75,code=compute_75'*cudaErrorNoKernelImageForDevice*) ;;
*) fail "$output" "without PTX: status $status, expected 1, cudaErrorNoKernelImageForDevice and the option of nvcc" ;;
esac
echo "program.cu runs with both kinds of default streams, and says what it lacks without PTX"
