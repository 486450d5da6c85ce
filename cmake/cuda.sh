# Sourced by check: CUDA's header, which the virtual GPU's driver and src/driver need.

# cuda_include: prints the folder that holds cuda.h of CUDA 13: the toolkit's; else that of NVIDIA's wheel (2 MB), which pip
# downloads once into a cache outside of the source. Fails, and says why, where neither can be had.
cuda_include() {
    local wheel=nvidia-cuda-runtime==13.0.96 cache=${XDG_CACHE_HOME:-$HOME/.cache}/tutti/cuda-13.0.96 folder nvcc
    nvcc=$(command -v nvcc) && nvcc=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    for folder in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "$nvcc" /usr/local/cuda "$cache/nvidia/cu13"; do
        [ -n "$folder" ] && grep -qs '^#define CUDA_VERSION 13' "$folder/include/cuda.h" && echo "$folder/include" && return 0
    done
    folder=$(mktemp -d) || return 1
    if timeout 120 python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --dest "$folder" "$wheel" </dev/null >"$folder/log" 2>&1 &&
        mkdir -p "$cache.new" && python3 -m zipfile -e "$folder"/*.whl "$cache.new" && mv -T "$cache.new" "$cache"; then
        rm -rf "$folder"
        echo "$cache/nvidia/cu13/include"
        return 0
    fi
    echo "no cuda.h: no toolkit of CUDA 13 here, and pip could not download $wheel: $(tail -n 1 "$folder/log")" >&2
    rm -rf "$folder" "$cache.new"
    return 1
}
