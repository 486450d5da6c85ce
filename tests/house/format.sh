#!/usr/bin/env bash
# Says which files clang-format would change: a warning, for versions differ in taste.
. "$(dirname "$0")/common.sh"
tool=$(command -v clang-format-14) || skip "no clang-format-14"
n=0
while read -r file; do
    "$tool" --dry-run -Werror "$file" >/dev/null 2>&1 || { n=$((n + 1)) && echo "warning: run clang-format-14 -i $file"; }
done < <(sources '*.c' '*.h')
finish "$n files would change"
