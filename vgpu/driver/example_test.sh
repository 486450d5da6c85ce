#!/usr/bin/env bash
# Runs the lines of the first block of shell code in docs/vgpu.md as they are, and checks what they print.
# usage: example_test.sh SOURCE BUILD CUDA_INCLUDE [SANITIZED]
set -uo pipefail
source=$1 build=$2 include=$3 sanitized=${4:-}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
ln -s "$source/vgpu" "$root/vgpu"
ln -s "$build" "$root/build"
mkdir "$root/cuda" "$root/tmp"
ln -s "$include" "$root/cuda/include"
awk '/^```sh/ { inside = 1; next } /^```/ { if (inside) exit } inside' "$source/docs/vgpu.md" >"$root/lines"
[ "$(wc -l <"$root/lines")" -ge 4 ] || { echo "docs/vgpu.md has no block of shell code"; exit 1; }
if [ -n "$sanitized" ]; then # the program itself is built without the sanitizer, which must be loaded first
    export ASAN_OPTIONS=detect_leaks=0
    LD_PRELOAD=$(cc -print-file-name=libasan.so)
    export LD_PRELOAD
fi
output=$(cd "$root" && CUDA=$root/cuda TMPDIR=$root/tmp bash -e lines 2>&1)
status=$?
echo "$output"
[ "$status" = 86 ] || { echo "the status of the last line is $status, expected 86"; exit 1; }
for text in 'block 1 got 42' 'vgpu: race: ' 'pass.cu:5' 'pass.cu:11' 'VGPU_SEED=3' '1 x race: pass at pass.cu:5, pass at pass.cu:11'; do
    case $output in
    *"$text"*) ;;
    *) echo "expected in the output: $text" && exit 1 ;;
    esac
done
