# Sourced by check and quickstart: CUDA's header, which the virtual GPU's driver and src/driver need, and CUDA's compiler.

cuda_version=13.0.96
cuda_hashes=( # of its wheels for x86_64 and aarch64
    7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
    ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55
)
cuda_cache() { echo "${XDG_CACHE_HOME:-$HOME/.cache}/tutti/cuda-$cuda_version"; }

# cuda_include [NVCC]: prints the folder that holds cuda.h of CUDA 13: that of the compiler, which has all headers; the toolkit's;
# else that of NVIDIA's wheel (2 MB), which is downloaded once into a cache outside of the source, and lacks those of the compiler
# (crt). Fails, and says why, where none can be had.
cuda_include() {
    local folder nvcc
    nvcc=$(command -v nvcc) && nvcc=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    for folder in ${1:+"${1%/*/*}"} "${CUDA_HOME:-}" "${CUDA_PATH:-}" "$nvcc" /usr/local/cuda "$(cuda_cache)/nvidia/cu13"; do
        [ -n "$folder" ] && grep -qs '^#define CUDA_VERSION 13' "$folder/include/cuda.h" && echo "$folder/include" && return 0
    done
    cuda_download
}

# cuda_download: NVIDIA's wheel by pip, one of those that the hashes name; prints the folder of its headers.
cuda_download() {
    local wheel=nvidia-cuda-runtime==$cuda_version cache folder why
    cache=$(cuda_cache)
    folder=$(mktemp -d) || return 1
    printf '%s' "$wheel" "${cuda_hashes[@]/#/ --hash=sha256:}" >"$folder/wheels.txt"
    if timeout 120 python3 -m pip download --require-hashes --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --dest "$folder" --requirement "$folder/wheels.txt" </dev/null >"$folder/log" 2>&1 &&
        mkdir -p "$cache.new" && python3 -m zipfile -e "$folder"/*.whl "$cache.new" && mv -T "$cache.new" "$cache"; then
        rm -rf "$folder"
        echo "$cache/nvidia/cu13/include"
        return 0
    fi
    why=$(grep -m 1 ERROR "$folder/log" || tail -n 1 "$folder/log")
    echo "no cuda.h: no toolkit of CUDA 13 here, and pip could not download $wheel: $why" >&2
    rm -rf "$folder" "$cache.new"
    return 1
}

# Prints the folder of the toolkit's programs where it has the program of that name, of CUDA 13.
cuda_toolkit_has() {
    local folder nvcc
    nvcc=$(command -v nvcc) && nvcc=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "$nvcc" /usr/local/cuda; do
        [ -n "$folder" ] && "$folder/bin/$1" --version 2>/dev/null | grep -q 'release 13\.' && echo "$folder/bin" && return 0
    done
    return 1
}

# cuda_wheels KIND PROGRAM: the program's path from the wheels of that kind in cmake/cuda-wheels.txt, which pip installs once
# into a cache outside of the source. Fails, and says why.
cuda_wheels() {
    local list log version cache
    list=$(dirname "${BASH_SOURCE[0]}")/cuda-wheels.txt
    version=$(sed -n "/# $1\$/{s/^[^=]*==\([0-9.]*\).*/\1/p;q}" "$list")
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/tutti/cuda-$1-$version
    [ ! -x "$cache/nvidia/cu13/bin/$2" ] || { echo "$cache/nvidia/cu13/bin/$2" && return 0; }
    log=$(mktemp) || return 1
    mkdir -p "${cache%/*}"
    rm -rf "$cache.new"
    if timeout 600 python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
        --requirement <(grep "# $1\$" "$list") --target "$cache.new" </dev/null >"$log" 2>&1 && mv -T "$cache.new" "$cache"; then
        rm -f "$log"
        echo "$cache/nvidia/cu13/bin/$2"
        return 0
    fi
    echo "no $2: no toolkit of CUDA 13 here has it, and pip could not install NVIDIA's wheel: $(grep -v '^WARNING' "$log" | tail -n 1)" >&2
    rm -rf "$log" "$cache.new"
    return 1
}

# cuda_compiler: prints the path of nvcc: the toolkit's, else that of NVIDIA's wheels (105 MB). Fails, and says why.
cuda_compiler() {
    local folder
    if folder=$(cuda_toolkit_has nvcc); then echo "$folder/nvcc"; else cuda_wheels compiler nvcc; fi
}

# cuda_disassembler: prints the path of nvdisasm: the toolkit's, else that of NVIDIA's wheel (4 MB). Fails, and says why.
cuda_disassembler() {
    local folder
    if folder=$(cuda_toolkit_has nvdisasm); then echo "$folder/nvdisasm"; else cuda_wheels disassembler nvdisasm; fi
}
