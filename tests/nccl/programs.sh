#!/usr/bin/env bash
# A C program of NCCL's, compiled with each nccl.h that is here (ours; NVIDIA's of the toolkit and of wheels in the cache), linked to
# libnccl.so.2 and run in two processes; preloaded too, where it was linked to NVIDIA's library.
set -euo pipefail
: "${LIBRARY:?}" "${SOURCE:?}" "${CC:=cc}"
CUDA=${CUDA-}
[ -e "$CUDA/cuda_runtime.h" ] || CUDA=/usr/local/cuda/include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$(dirname "$LIBRARY")

# try FOLDER OF nccl.h: prints what the program says
try() {
    local options=(-I"$1")
    [ "$1" = "$SOURCE/include" ] || options+=(-isystem "$CUDA")
    "$CC" -Wall -Wextra "${options[@]}" "$SOURCE/tests/nccl/program.c" -o "$work/program" -L"$folder" -lnccl
    LD_LIBRARY_PATH=$folder "$work/program"
}

# As README.md says, and without LD_LIBRARY_PATH: another libnccl.so.2 may be installed.
try_readme() {
    local line
    line=$(sed -n 's/^    \(cc program\.c .*\)/\1/p' "$SOURCE/README.md" | sed 's/ *#.*//')
    mkdir -p "$work/readme/build"
    ln -s "$SOURCE/include" "$work/readme/include"
    ln -s "$folder" "$work/readme/build/lib"
    cp "$SOURCE/tests/nccl/program.c" "$work/readme"
    (cd "$work/readme" && unset LD_LIBRARY_PATH && bash -c "$line" && ldd ./a.out && ./a.out)
}

said=$(try_readme 2>&1) || true
case $said in *"=> $work/readme/build/lib/libnccl.so.2"*', library 23007: right') echo "README's line: right" ;;
*) echo "README.md's line 'cc program.c ...' makes no program that runs with our libnccl.so.2: $said" >&2 && exit 1 ;; esac

try "$SOURCE/include"
[ -e "$CUDA/cuda_runtime.h" ] || { echo "no headers of CUDA: NVIDIA's nccl.h was not tried" && exit 0; }
for include in "$CUDA" "${XDG_CACHE_HOME:-$HOME/.cache}"/tutti/nccl-*/nvidia/nccl/include; do
    [ -e "$include/nccl.h" ] || continue
    said=$(try "$include")
    echo "$said"
    header=$(sed -n 's/^#define NCCL_VERSION_CODE \([0-9]*\)$/\1/p' "$include/nccl.h")
    [ "$said" = "header $header, library 23007: right" ] || { echo "expected header $header, library 23007" >&2 && exit 1; }
done
nvidias=$CUDA/../lib/libnccl.so.2
[ -e "$nvidias" ] || exit 0
"$CC" -I"$CUDA" "$SOURCE/tests/nccl/program.c" -o "$work/program" "$nvidias" 2>/dev/null || { echo "not linked to NVIDIA's library" && exit 0; }
said=$(LD_PRELOAD=$LIBRARY LD_LIBRARY_PATH=${nvidias%/*} "$work/program")
echo "linked to NVIDIA's library, ours preloaded: $said"
case $said in *', library 23007: right') ;; *) echo "expected ours, version 23007" >&2 && exit 1 ;; esac
