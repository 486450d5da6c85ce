#!/usr/bin/env bash
# A C name of the library or of the trainer (tt_, tr_) is one thing: a structure, a macro or a function, defined in one place. A
# structure and a function of one file may share a name.
. "$(dirname "$0")/common.sh"

# Prints "name file" for what the files define or, in headers, declare.
defined() {
    awk '
    function say(name) { if (!said[name, FILENAME]++) print name, FILENAME }
    match($0, /^(struct|union|enum) t[tr]_[a-z0-9_]+ \{/) { split($0, part, " "); say(part[2]); next }
    match($0, /^ *# *define t[tr]_[a-z0-9_]+/) { name = substr($0, RSTART, RLENGTH); sub(/.* /, "", name); say(name); next }
    /^[a-zA-Z_].*[ *]t[tr]_[a-z0-9_]+\(/ && (FILENAME ~ /h$/ || /^static /) {
        match($0, /[ *]t[tr]_[a-z0-9_]+\(/)
        say(substr($0, RSTART + 1, RLENGTH - 2))
    }' "$@"
}

# twice FILE...: the names with more than one file, one a line, with these files
twice() { defined "$@" | sort -u | awk '{ n[$1]++; files[$1] = files[$1] " " $2 } END { for (i in n) if (n[i] > 1) print i ":" files[i] }' | sort; }

# The test itself: it must find each kind of name.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '%s\n' 'struct tt_a {' '#define tt_b(x) (x)' 'TT_NODISCARD tt_status tt_c(int a);' >"$work/one.h"
printf '%s\n' 'enum tt_a {' 'static inline int tt_b(int a)' '}' 'static __device__ struct tt_a *tt_c(' >"$work/two.cuh"
printf '%s\n' 'struct tt_a *other;' 'int tt_b(void)' '    tt_c(1);' >"$work/three.c"
[ "$(twice "$work"/* | wc -l)" -eq 3 ] || fail "this test finds not 3 but: $(twice "$work"/*)"

mapfile -t files < <(sources '*.c' '*.h' '*.cu' '*.cuh' | grep -E '^(src|trainer)/')
nnames=$(defined "${files[@]}" | wc -l)
[ "$nnames" -ge 1000 ] || fail "only $nnames names were found"
while read -r line; do
    [ -z "$line" ] || fail "one C name, two things: $line"
done < <(twice "${files[@]}")
finish "$nnames names, each of one thing"
