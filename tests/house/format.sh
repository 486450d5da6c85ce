#!/usr/bin/env bash
# clang-format would change no file. Only version 14 counts: versions differ in taste.
. "$(dirname "$0")/common.sh"
tool=$(command -v clang-format-14) || skip "no clang-format-14"
# Of the kernels, the library's and those of tests/device: tests of the virtual GPU read others by their lines, and probes are tables.
mapfile -t files < <(sources '*.c' '*.h' && sources '*.cu' '*.cuh' | grep -E '^(src|tests/device)/' &&
    sources '*.cpp' '*.hpp' | grep '^bindings/')
changed=$("$tool" --dry-run "${files[@]}" 2>&1 | sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: warning: .*/\1/p' | sort -u)
for file in $changed; do fail "run clang-format-14 -i $file"; done
finish "${#files[@]} files are formatted"
