#!/usr/bin/env bash
# Builds NVIDIA's nccl-tests as they are, for virtual GPUs, and runs them through libnccl.so.2: a line of a table for each run. Not a part of
# ./check: it takes most of an hour. docs/nccl-tests.md has what it printed.
# usage: tests/nccl/nccl_tests.sh NCCL_TESTS [BUILD]
#   NCCL_TESTS   the source of nccl-tests; it is built there, in build_vgpu and build_vgpu_mpi, unless it was
#   BUILD        the build of this project, default build
#   NCCL_INCLUDE the folder of NVIDIA's nccl.h, default that of version 2.30.7 in the cache
#   NVCC         nvcc of CUDA 13, default that of PATH
#   ONLY         a pattern of the shell: runs only the lines that match it, such as 'all_reduce *'
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
[ $# -ge 1 ] || { sed -n 's/^# \(usage: .*\)/\1/p' "$0" >&2 && exit 2; }
tests=$(realpath "$1") build=$(realpath "${2:-build}")
include=${NCCL_INCLUDE:-${XDG_CACHE_HOME:-$HOME/.cache}/tutti/nccl-2.30.7/nvidia/nccl/include}
nvcc=$(command -v "${NVCC:-nvcc}" || echo /usr/local/cuda/bin/nvcc)
programs=(all_reduce all_gather broadcast reduce_scatter reduce alltoall alltoallv scatter gather sendrecv hypercube)
for file in "$build/vgpu/libcudart.so.13" "$build/lib/libnccl.so.2" "$include/nccl.h" "$nvcc" "$tests/src/all_reduce.cu"; do
    [ -e "$file" ] || { echo "there is no $file" >&2 && exit 1; }
done

# make_tests FOLDER OPTIONS...: builds the programs in NCCL_TESTS/FOLDER, unless they are there.
make_tests() {
    local to=$tests/$1 home=$tests/$1/nccl_home
    [ ! -x "$to/${programs[-1]}_perf" ] || return 0
    mkdir -p "$home"
    ln -sfn "$include" "$home/include"
    ln -sfn "$build/lib" "$home/lib"
    nice make -s -C "$tests" -j"$(nproc)" BUILDDIR="$to" NVCC="$nvcc" NCCL_HOME="$home" CUDA_HOME="$(dirname "$(dirname "$nvcc")")" \
        CUDA_LIB="$build/vgpu" NVCC_GENCODE='-gencode=arch=compute_75,code=compute_75 -cudart shared' "${@:2}" >"$to.log" 2>&1 ||
        { tail -n 20 "$to.log" >&2 && exit 1; }
}
make_tests build_vgpu
mpi=$(mpicc --showme:incdirs 2>/dev/null | cut -d' ' -f1) # Open MPI's; its mpirun is found in PATH
[ -e "$mpi/mpi.h" ] || { mpi='' && echo "no Open MPI with headers: the lines with mpirun are left out" >&2; }
[ -z "$mpi" ] || make_tests build_vgpu_mpi MPI=1 MPI_HOME="${mpi%/*}"

export VGPU_DEVICES=8 LD_LIBRARY_PATH=$build/vgpu:$build/lib OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# In place these receive into what they send, and have no right result (#wrong is N/A): the virtual GPU reports that as a race, status 86.
racing=(sendrecv alltoallv)
failed=0
echo "| program | options | ranks | seconds | result |"
echo "|---|---|---|---|---|"
# try PROGRAM RANKS OPTIONS...: under mpirun where the options begin with it; `hosts` as the first one: a process on each of two hosts, by
# kernels over bridges.
try() {
    local name=$1 nranks=$2 command=() output status begin result
    shift 2
    case "$name $*" in ${ONLY:-*}) ;; *) return ;; esac
    if [ "$1" = mpirun ]; then
        command=(mpirun --oversubscribe -n "$3" "$tests/build_vgpu_mpi/${name}_perf" "${@:4}")
    elif [ "$1" = hosts ]; then
        command=("$tests/build_vgpu_mpi/${name}_perf" "${@:2}")
        command=(env TUTTI_DEVICE_KERNELS=require mpirun --oversubscribe
            -n 1 -x TUTTI_HOST_ID=a "${command[@]}" : -n 1 -x TUTTI_HOST_ID=b "${command[@]}")
    else
        command=("$tests/build_vgpu/${name}_perf" "$@")
    fi
    begin=$(date +%s.%N)
    output=$(timeout 600 "${command[@]}" 2>&1)
    status=$?
    if [ $status = 0 ] && grep -q 'Out of bounds values : 0 OK' <<<"$output"; then
        result='0 wrong'
    elif [ $status = 86 ] && grep -q 'Out of bounds values : 0 OK' <<<"$output" && [[ " ${racing[*]} " = *" $name "* ]]; then
        result='0 wrong; in place the test itself races'
    else
        result="status $status: $(grep -m 1 -E 'vgpu: [a-z]+: |NCCL failure|failure|FAILED|WARN|rror' <<<"$output" | tr '|' '/' | cut -c1-160)"
        failed=$((failed + 1))
        printf '%s\n' "$output" >"$tests/failed_${name}_$failed.log"
    fi
    printf '| %s | `%s` | %s | %.1f | %s |\n' "$name" "$*" "$nranks" "$(echo "$(date +%s.%N) - $begin" | bc)" "$result"
}

try all_reduce 8 -g 8 -b 8 -e 64K -f 8 -n 2 -w 1
try all_reduce 2 -g 2 -b 8 -e 4K -f 8 -n 1 -w 1 -d all -o all
for name in "${programs[@]}"; do
    try "$name" 1 -g 1 -b 1K -e 1K -n 2 -w 1
    try "$name" 2 -g 2 -b 8 -e 4K -f 8 -n 2 -w 1
    # The rounds of hypercube depend on each other. A thread with several GPUs puts them into one group, in which nothing has an order.
    [ "$name" = hypercube ] || try "$name" 4 -g 4 -b 1K -e 1K -n 2 -w 1
    try "$name" 2 -t 2 -g 1 -b 1K -e 1K -n 2 -w 1
    [ "$name" = hypercube ] || try "$name" 4 -t 2 -g 2 -b 1K -e 1K -n 2 -w 1
    [ "$name" != hypercube ] || try "$name" 4 -t 4 -g 1 -b 1K -e 1K -n 2 -w 1
    try "$name" 2 -g 2 -G 2 -b 1K -e 1K -n 2 -w 1
    try "$name" 2 -g 2 -R 1 -b 1K -e 1K -n 2 -w 1
    [ -z "$mpi" ] || try "$name" 2 mpirun -n 2 -g 1 -b 1K -e 1K -n 2 -w 1
    [ -z "$mpi" ] || [ "$name" = hypercube ] || try "$name" 8 hosts -g 4 -b 1K -e 64K -f 8 -n 2 -w 1
    [ -z "$mpi" ] || [ "$name" != hypercube ] || try "$name" 8 hosts -t 4 -g 1 -b 1K -e 1K -n 2 -w 1
done
[ $failed = 0 ] || { echo "$failed runs failed; their outputs: $tests/failed_*.log" >&2 && exit 1; }
