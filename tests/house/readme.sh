#!/usr/bin/env bash
# The first C program of the README compiles without a warning and runs under tutti-run; the README's short commands
# run as written; its numbers, and the test that CONTRIBUTING.md names, are true.
. "$(dirname "$0")/common.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk '/^```c$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' README.md >"$work/first.c"
[ -s "$work/first.c" ] || fail "README.md has no \`\`\`c block"
"$CC" -Wall -Wextra -Werror -Iinclude "$work/first.c" -o "$work/first" -L"$BINARY/lib" -ltutti \
    -Wl,-rpath,"$BINARY/lib" 2>"$work/log" || fail "README's program does not compile: $(cat "$work/log")"
"$BINARY/bin/tutti-run" -n 3 "$work/first" >"$work/out" 2>&1 || fail "README's program fails: $(cat "$work/out")"

# Commands that need no other host, no file and less than a minute.
mapfile -t commands < <(sed -n 's/^    \(\.\/.*\)/\1/p' README.md | sed 's/ *#.*//' |
    grep -E '^\./(tutti-info|tutti-plan (print|count)|tutti-run -n 2 \./all_reduce_perf)')
[ ${#commands[@]} -ge 5 ] || fail "README.md: only ${#commands[@]} commands to try were found"
for command in "${commands[@]}"; do
    (cd "$BINARY/bin" && timeout 120 bash -c "$command") >"$work/out" 2>&1 </dev/null ||
        fail "README's command fails: $command"$'\n'"$(tail -n 3 "$work/out")"
done
while read -r program; do
    [ -x "$BINARY/bin/$program" ] || [ "$program" = tutti-train ] || fail "README names $program, which is not built"
done < <(grep -oE '\./[a-z_]+(-[a-z]+|_perf)\b' README.md | grep -vE '^\./quickstart|^\./check' | sed 's,^\./,,' | sort -u)

nplacements=$(awk '/placements\[\]/,/};/' src/program/covered.c | grep -oE '"[a-z]+"' | wc -l)
longest=$(awk '/placements\[\]/,/};/' src/program/covered.c | grep -oE '"[a-z]+"' | awk '{ if (length > n) n = length } END { print n - 2 }')
grep -q "on $nplacements placements of up to $longest ranks" README.md ||
    fail "README.md: ./check proves on $nplacements placements of up to $longest ranks (src/program/covered.c)"

filter=$(sed -n "s/.*--gtest_filter='\([a-z_]*\)\.\*'.*/\1/p" CONTRIBUTING.md)
grep -q "^TEST($filter, " tests/schedule/*.c || fail "CONTRIBUTING.md: no test of tests/schedule begins with '$filter.'"
finish "${#commands[@]} commands ran; README's program says: $("$BINARY/bin/tutti-run" -n 1 "$work/first")"
