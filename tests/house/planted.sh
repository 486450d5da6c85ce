#!/usr/bin/env bash
# Every mistake that the scripts of tests/device plant, by hand, can still be planted: its sed script changes its file. The page says how many
# there are.
. "$(dirname "$0")/common.sh"
page=tests/device/README.md
said=''
for script in mutants bridge_mutants; do
    output=$(env NVCC="${NVCC:-}" "tests/device/$script.sh" --applies 2>&1) || fail "$output"
    number=$(grep -c '^mutant ' "tests/device/$script.sh")
    grep -qF "\`$script.sh\` | plants $number mistakes" $page || fail "$page does not say that $script.sh plants $number mistakes"
    said+="${said:+; }$(tail -n 1 <<<"$output")"
done
finish "$said"
