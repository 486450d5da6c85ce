#!/usr/bin/env bash
# Says which files clang-format would change: a warning, for versions differ in taste.
. "$(dirname "$0")/common.sh"
tool=$(command -v clang-format-14) || skip "no clang-format-14"
mapfile -t files < <(sources '*.c' '*.h')
changed=$("$tool" --dry-run "${files[@]}" 2>&1 | sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: warning: .*/\1/p' | sort -u)
for file in $changed; do echo "warning: run clang-format-14 -i $file"; done
finish "$(wc -w <<<"$changed") of ${#files[@]} files would change"
