#!/usr/bin/env bash
# Every header compiles alone; tutti.h as strict C99 and as C++11 with every warning.
. "$(dirname "$0")/common.sh"
case $CUDA in *-NOTFOUND) CUDA= ;; esac
warnings=(-Wall -Wextra -Werror -fsyntax-only)

# Not behind a pipe: fail counts in this shell.
compile() {
    local what=$1 output
    shift
    output=$("$@" 2>&1) || fail "$what:"$'\n'"$(head -n 5 <<<"$output")"
}

n=0
while read -r header; do
    # No headers: X-macro tables, and the loops that each instruction set compiles with its own vectors.
    # vgpu/probes needs the headers of CUDA; its Makefile compiles it.
    case $header in vgpu/probes/* | *_table.h | src/datatype/fold_*.h | src/datatype/copy_x86.h) continue ;; esac
    case $header in src/driver/cuda.h | tests/driver/calls.h | vgpu/driver/* | vgpu/runtime/*) [ -n "$CUDA" ] || continue ;; esac
    case $header in vgpu/runtime/*) [ -e "$CUDA/crt/host_defines.h" ] || continue ;; esac # cuda_runtime_api.h includes this one of the compiler's
    n=$((n + 1))
    compile "$header does not compile alone" "$CC" -std=c17 -D_GNU_SOURCE -DTUTTI_SOURCE_DIR='""' \
        -DTUTTI_BINARY_DIR='""' -Wno-psabi "${warnings[@]}" -Iinclude -Isrc -Itests -I. ${CUDA:+-isystem "$CUDA"} -I"${header%%/*}" -x c - \
        <<<"#include \"$SOURCE/$header\""
done < <(sources '*.h')

compile "tutti.h is not C99" "$CC" -std=c99 -pedantic -Wconversion -Wstrict-prototypes "${warnings[@]}" \
    -Iinclude -x c - <<<$'#include <tutti.h>\nint used(void);\nint used(void) { return tuttiSuccess; }'
compile "tutti.h is not C++11" "$CXX" -std=c++11 -pedantic "${warnings[@]}" -Iinclude -x c++ - \
    <<<$'#include <tutti.h>\ntuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;'
finish "$n headers compile alone; tutti.h is C99 and C++11"
