#!/usr/bin/env bash
# Beside an atomic release a comment names the function that acquires, beside an acquire the one that releases (CONTRIBUTING.md). Each
# function that such a comment names is there, and has one: in the file of the comment, in the file that it names ("NAME of FILE"), or, for a name that
# begins with tt_, anywhere in the library. What is no function begins with "the" and may have a function in parentheses.
. "$(dirname "$0")/common.sh"

# Prints "FILE:LINE|NAME|FILE2" for each function that a comment of the files names; NAME is "?" and FILE2 the text where it names none.
named() {
    awk '
    function item(text) {
        gsub(/^ +| +$/, "", text)
        if (text == "" || text ~ /^(or )?the /) return
        if (text ~ /^[a-z][a-z0-9_]*$/) print where "|" text "|"
        else if (text ~ /^[a-z][a-z0-9_]* of [a-z0-9_.\/]+$/) { split(text, part, " of "); print where "|" part[1] "|" part[2] }
        else print where "|?|" text
    }
    function items(text,   part, i, n) { n = split(text, part, ","); for (i = 1; i <= n; i++) item(part[i]) }
    match($0, /\/\* (acquire|release): .*\*\//) {
        where = FILENAME ":" FNR
        text = substr($0, RSTART, RLENGTH)
        sub(/^\/\* (acquire|release): /, "", text)
        sub(/ *\*\/$/, "", text)
        while (match(text, /\([^)]*\)/)) {
            items(substr(text, RSTART + 1, RLENGTH - 2))
            text = substr(text, 1, RSTART - 1) substr(text, RSTART + RLENGTH)
        }
        sub(/, when .*/, "", text)
        items(text)
    }' "$@"
}

# defines NAME FILE...: one of the files has a function of this name, in which there is such an order or a CUDA stream has one
defines() {
    local name=$1
    shift
    [ $# -gt 0 ] && awk -v name="$name" '
        $0 ~ "^[a-zA-Z_].*[ *]" name "\\(" { inside = 1 }
        inside && /(memory_order_|__ATOMIC_)(acquire|release|acq_rel|seq_cst|ACQUIRE|RELEASE|ACQ_REL|SEQ_CST)|_stream_(store|await)/ { found = 1; exit }
        /^}/ || /^[a-zA-Z_].*;$/ { inside = 0 }
        END { exit !found }' "$@"
}

mapfile -t files < <(sources '*.c' '*.h' | grep '^src/')

# check NAMED...: fails for each one that is not there.
check() {
    local entry where name of file places
    for entry in "$@"; do
        IFS='|' read -r where name of <<<"$entry"
        file=${where%:*} places=("${where%:*}")
        case $name in tt_*) places=("${files[@]}") ;; esac
        if [ "$name" = '?' ]; then
            fail "$where: \"$of\" is no function; write a name, NAME of FILE, or a text that begins with \"the\""
            continue
        fi
        [ -z "$of" ] || mapfile -t places < <(printf '%s\n' "${files[@]}" | grep -E "(^|/)${of//./\\.}$")
        defines "$name" "${places[@]}" || fail "$where: there is no function $name with an acquire or a release in ${of:-$file}${of:+, or no such file}"
    done
}

# The test itself: it must find what is not there.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '%s\n' 'static void there(void)' '    store(memory_order_release);' '}' 'a; /* acquire: there, tt_work_advance, the end, away of ring.c */' 'b; /* release: gone */' \
    "c; /* release: the stream's store (store of carrier.c, gone) */" 'd; /* acquire: who knows */' >"$work/one.c"
mapfile -t found < <(named "$work/one.c")
expected=4 before=$failures
check "${found[@]}" 2>"$work/said"
[ $((failures - before)) -eq $expected ] || fail "this test finds not $expected but: $(cat "$work/said")"
failures=$((failures - expected))

mapfile -t found < <(named "${files[@]}")
[ ${#found[@]} -ge 40 ] || fail "only ${#found[@]} functions were found in comments"
check "${found[@]}"
finish "${#found[@]} functions of comments are there"
