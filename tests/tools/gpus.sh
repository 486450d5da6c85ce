#!/bin/sh
# tutti-info --gpus with drivers that are no library, too old, incomplete or broken, and with virtual GPUs. $INFO is the program, $CC a
# compiler, $VGPU the folder of the virtual libcuda.so.1, if there is one.
. "$(dirname "$0")/run_common.sh"

# driver NAME C_TEXT: a libcuda.so.1 of that text in $work/NAME
driver() {
    mkdir "$work/$1" && printf '%s\n' "$2" >"$work/$1/cuda.c" &&
        "$CC" -shared -fPIC -o "$work/$1/libcuda.so.1" "$work/$1/cuda.c" || expect "the driver $1" "compiled" "not compiled"
}

# gpus FOLDER TEXT: what is said with the libcuda.so.1 of this folder
gpus() {
    LD_LIBRARY_PATH=$1 "$INFO" --gpus >"$work/out" 2>&1
    expect "code of tutti-info --gpus with $1" 0 $?
    contains "tutti-info --gpus with $1" "$2" "$work/out"
}

mkdir "$work/text" && echo "This is no library." >"$work/text/libcuda.so.1"
gpus "$work/text" "no GPU: $work/text/libcuda.so.1: "
driver old 'int cuDriverGetVersion(int *version) { *version = 12030; return 0; }'
gpus "$work/old" "no GPU: libcuda.so.1 is a driver for CUDA 12.3; tutti needs one for CUDA 12.4 or later (update NVIDIA's driver)"
driver lacking 'int cuDriverGetVersion(int *version) { *version = 12040; return 0; }'
gpus "$work/lacking" "no GPU: libcuda.so.1 has no cuInit: it is incomplete, or no driver for CUDA 12.4"
driver other 'int other;'
gpus "$work/other" "no GPU: libcuda.so.1 does not say its version: it is no driver"

# Every function fails with 999 but the named ones.
failing=$(sed -n 's/^X([A-Za-z0-9]*, \([A-Za-z0-9_]*\))$/\1/p' "$(dirname "$0")/../../src/driver/cuda_table.h" |
    grep -vE '^cu(DriverGetVersion|GetErrorName|GetErrorString|Init|DeviceGetCount)$' | sed 's/.*/int &(void) { return 999; }/')
named='int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuGetErrorName(int e, const char **s) { *s = e == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : "CUDA_ERROR_UNKNOWN"; return 0; }
int cuGetErrorString(int e, const char **s) { *s = "some text"; return 0; }'
driver mismatch "$named $failing int cuInit(int f) { return 803; } int cuDeviceGetCount(int *n) { *n = 1; return 0; }"
gpus "$work/mismatch" "no GPU: cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (some text)"
driver empty "$named $failing int cuInit(int f) { return 0; } int cuDeviceGetCount(int *n) { *n = 0; return 0; }"
gpus "$work/empty" "no GPU: CUDA's driver has no GPU for this process"
driver broken "$named $failing int cuInit(int f) { return 0; } int cuDeviceGetCount(int *n) { *n = 2; return 0; }"
gpus "$work/broken" "GPU 1: cuDeviceGet failed: CUDA_ERROR_UNKNOWN (some text)"

if [ ! -e "$VGPU/libcuda.so.1" ]; then
    echo "skipped: tutti-info --gpus with virtual GPUs: they were not built (cuda.h of CUDA 13)"
    finish
fi
VGPU_DEVICES=3 VGPU_TOPOLOGY="0,2|1" gpus "$VGPU" ", accesses GPU 1 by a PCIe root, 2 by NVLink"
VGPU_DEVICES=2 gpus "$VGPU" "GPU 0: "
expect "lines of two virtual GPUs" 2 "$(grep -c '^GPU [01]: .*, compute capability [0-9]*\.[0-9], [0-9]* multiprocessors, [0-9.]* GiB, PCI ' "$work/out")"
finish
