#!/usr/bin/env bash
# A line of a table from which the build takes a file: the file is compiled, and a line that is written otherwise, or whose file is not
# there, is an error that names table, line and form.
# SOURCE: the checkout; CMAKE: cmake.
set -euo pipefail
: "${SOURCE:?}" "${CMAKE:?}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir ops
touch ops/adamw.c ops/lion.c
cat >list.cmake <<EOF
include("$SOURCE/cmake/tables.cmake")
set(files ops/other.c)
tt_files_of_table(files ops/table.h OPTIMIZER)
message(STATUS "files: \${files}")
EOF

# with EXPECTED LINE: what CMake says (unwrapped) of a table that ends with the line.
with() {
    local said
    printf '%s\n' '/* The optimizers:' ' * OPTIMIZER(NAME, name) is a line. */' 'OPTIMIZER(ADAMW, adamw)' "$2" '#undef OPTIMIZER' >ops/table.h
    said=$("$CMAKE" -P list.cmake 2>&1 | tr -s ' \n' ' ' || true)
    [[ $said == *"$1"* ]] || { echo "FAILED '$2': CMake says '$said', expected '$1'"; exit 1; }
}

with 'files: ops/other.c;ops/adamw.c;ops/lion.c' 'OPTIMIZER(LION, lion)'
for line in 'OPTIMIZER(LION,lion)' ' OPTIMIZER(LION, lion)' 'OPTIMIZER(LION, lion) /* signs */' 'OPTIMIZER (LION, lion)' 'OPTIMIZER(lion, lion)'; do
    with "ops/table.h, the line '$line': expected OPTIMIZER(NAME, name), as OPTIMIZER(ABC, abc)" "$line"
done
with "the line 'OPTIMIZER(TIGER, tiger)': expected the file ops/tiger.c, which is not there" 'OPTIMIZER(TIGER, tiger)'
echo "ok"
