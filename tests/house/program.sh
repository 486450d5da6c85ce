#!/usr/bin/env bash
# A program and a binding are plain data: their headers compile as C17 and as C++17, hold no atomics, and walking
# through the pieces of a span takes no division.
. "$(dirname "$0")/common.sh"
headers=(src/program/program.h src/schedule/cut.h src/schedule/kinds.h)
walk=tests/house/walk.c
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
warnings=(-Wall -Wextra -Werror)

# compile WHAT COMMAND...
compile() {
    local what=$1 output
    shift
    output=$("$@" 2>&1) || fail "$what:"$'\n'"$(head -n 5 <<<"$output")"
}

for header in "${headers[@]}" $walk; do
    compile "$header is not C17" "$CC" -std=c17 -pedantic "${warnings[@]}" -fsyntax-only -Isrc -include "$header" -x c /dev/null
    compile "$header is not C++17" "$CXX" -std=c++17 -pedantic "${warnings[@]}" -fsyntax-only -Isrc -include "$header" \
        -x c++ /dev/null
done
for header in "${headers[@]}"; do
    hits=$(grep -nE '_Atomic|stdatomic|std::atomic' "$header" | grep -vE '^[0-9]+: *(/?\*|//)' || true)
    [ -z "$hits" ] || fail "$header has atomics, which do not compile as CUDA: $hits"
done

# Divisions by name, on x86, Arm, RISC-V and Power, and the compiler's own functions for long ones.
division='^[[:space:]]+(i?div[bwlqsup]*|v?(div|idiv)[a-z]*|[us]div|(div|rem)u?w?|divd?[uw]*)[[:space:]]|__(aeabi_)?u?(l|i)?(div|mod)'
"$CC" -std=c17 -O2 -S -Isrc -DWITH_DIVISION -o "$work/with.s" $walk
"$CC" -std=c17 -O2 -S -Isrc -o "$work/without.s" $walk
if grep -qE "$division" "$work/with.s"; then
    hits=$(grep -nE "$division" "$work/without.s" || true)
    [ -z "$hits" ] || fail "walking through the pieces of a span divides:"$'\n'"$hits"
else
    fail "the division in $walk was not found in the compiler's output: add this machine's name for it to $0"
fi
for function in next_piece begin_walk part count; do
    grep -qE "^_?$function:" "$work/without.s" || fail "$walk: the compiler's output lacks $function"
done
finish "${#headers[@]} headers compile as C17 and C++17, without atomics and without a division a piece"
