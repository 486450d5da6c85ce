#!/usr/bin/env bash
# Each collective of the table has perf tests, also beside the peers, and a row of the table that lacks a column does not
# compile.
. "$(dirname "$0")/common.sh"

table=src/schedule/collective_table.h
names=$(sed -nE 's/^X\([A-Z_]+, +[A-Za-z]+, +"([a-z_]+)",.*/\1/p' $table)
[ "$(wc -l <<<"$names")" = "$(grep -c '^X(' $table)" ] || fail "$table has rows whose name is not found"

tests=$(awk '/^foreach\(name/ { on = 1 } on; /\)$/ { on = 0 }' perf-tests/CMakeLists.txt | tr -d '()')
for name in $names; do
    [ "$name" = all_to_all ] && perf=alltoall || perf=$name # as nccl-tests name it
    grep -qw "$perf" <<<"$tests" || fail "perf-tests/CMakeLists.txt has no $perf"
    grep -q "\"$name\"" perf-tests/peers/bench.c || fail "perf-tests/peers/bench.c has no $name"
done

changed=$(mktemp -d)
trap 'rm -rf "$changed"' EXIT
mkdir "$changed/schedule"
compiles() {
    "$CC" -std=c17 -D_GNU_SOURCE -fsyntax-only -I"$changed" -Isrc -Iinclude src/schedule/collective.c 2>/dev/null
}
cp $table "$changed/schedule/"
compiles || fail "a copy of $table does not compile"
columns=$(awk -F, '/^X\(/ { print NF; exit }' $table)
for ((column = 2; column < columns; column++)); do
    awk -v without="$column" 'BEGIN { FS = "," }
        !/^X\(/ || done++ { print; next }
        { row = $1; for (i = 2; i <= NF; i++) if (i != without) row = row "," $i; print row }' \
        $table >"$changed/schedule/collective_table.h"
    compiles && fail "$table without column $column of its first row compiles"
done
finish "$(wc -l <<<"$names") collectives, $columns columns"
