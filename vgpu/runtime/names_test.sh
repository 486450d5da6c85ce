#!/usr/bin/env bash
# The names that libcudart.so.13 exports, all of the version node of that name, and the names of NVIDIA's library where that is here.
# usage: names_test.sh LIBRARY NVIDIA'S
set -uo pipefail
library=$1 reference=$2
names_of() {
    nm -D --defined-only "$1" | awk '$2 ~ /[TW]/ { print $3 }' | sort
}
ours=$(names_of "$library")
[ "$(wc -l <<<"$ours")" -ge 400 ] || { echo "$library exports only $(wc -l <<<"$ours") names"; exit 1; }
stray=$(grep -v '^\(__\)\?cuda[A-Za-z0-9_]*@@libcudart\.so\.13$' <<<"$ours")
[ -z "$stray" ] || { printf '%s\n' "names without the version node libcudart.so.13:" "$stray"; exit 1; }
readelf -d "$library" | grep -q 'SONAME.*\[libcudart\.so\.13\]' || { echo "$library has another SONAME"; exit 1; }
[ -e "$reference" ] || { echo "skipped: NVIDIA's library is not at $reference"; exit 0; }
missing=$(comm -13 <(echo "$ours") <(names_of "$reference"))
[ -z "$missing" ] || { printf '%s\n' "names of NVIDIA's library that are missing:" "$missing"; exit 1; }
echo "$(wc -l <<<"$ours") names, all of $reference among them"
