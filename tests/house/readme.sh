#!/usr/bin/env bash
# The first C program of the README compiles without a warning and runs under tutti-run.
. "$(dirname "$0")/common.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk '/^```c$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' README.md >"$work/first.c"
[ -s "$work/first.c" ] || fail "README.md has no \`\`\`c block"
"$CC" -Wall -Wextra -Werror -Iinclude "$work/first.c" -o "$work/first" -L"$BINARY/lib" -ltutti \
    -Wl,-rpath,"$BINARY/lib" 2>"$work/log" || fail "README's program does not compile: $(cat "$work/log")"
"$BINARY/bin/tutti-run" -n 3 "$work/first" >"$work/out" 2>&1 || fail "README's program fails: $(cat "$work/out")"
finish "README's program says: $(head -n 1 "$work/out")"
