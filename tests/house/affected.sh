#!/usr/bin/env bash
# The table of ./check --for (tests/affected.txt): every folder is in it, every line names a folder and tests that are there, every filter
# takes a case, and every test is in some line.
. "$(dirname "$0")/common.sh"
all=$(ctest --test-dir "$BINARY" -N | sed -n 's/^ *Test *#[0-9]*: //p')

# is_there TEST: or a test that says why it is not.
is_there() {
    local at=$1
    ! grep -qxF -- "$at" <<<"$all" || return 0
    while :; do
        ! grep -qxF -- "${at}_skipped" <<<"$all" || return 0
        case $at in *_*) at=${at%_*} ;; *) return 1 ;; esac
    done
}

declare -A lines=() named=()
while read -r folder tests; do
    case $folder in '' | '#'*) continue ;; esac
    lines[$folder]=1
    case $folder in always | none) ;; *) [ -d "$folder" ] || fail "affected.txt: $folder is no folder" ;; esac
    [ -n "$tests" ] || fail "affected.txt: $folder names no test"
    for test in $tests; do
        name=${test%%:*}
        named[$name]=1
        is_there "$name" || [ ! -x "$BINARY/bin/tutti-train" ] || fail "affected.txt, $folder: ctest has no test $name"
        program=$BINARY/tests/test_$name
        [ "$name" != "$test" ] && [ -x "$program" ] || continue
        while read -r filter; do
            "$program" --gtest_list_tests --gtest_filter="$filter" | grep '^  ' >/dev/null || fail "affected.txt, $folder: no case of $name matches '$filter'"
        done < <(tr ':' '\n' <<<"${test#*:}")
    done
done <tests/affected.txt

while read -r folder; do
    [ -n "${lines[$folder]-}" ] || fail "affected.txt: no line for the folder $folder"
done < <(find src src/transport tests -mindepth 1 -maxdepth 1 -type d && printf '%s\n' include programs trainer perf-tests tools examples bindings vgpu cmake docs)
while read -r name; do
    case $name in *_skipped) ;; *) [ -n "${named[$name]-}" ] || fail "affected.txt: no line names the test $name; add it where a change can break it" ;; esac
done <<<"$all"

# The script: the nearest line above holds, a folder's own and those below it; a path that is none is named.
expect() {
    local wanted=$1 got
    shift
    got=$(tests/affected "$@" 2>&1 | grep -v '^house_' | paste -sd' ') || true
    [ "$got" = "$wanted" ] || fail "tests/affected $*: '$got', expected '$wanted'"
}
expect 'net' tests/net/acceptor_test.c
expect 'net topology' tests/net tests/topology/machine.c
expect "affected: tests/nothing is no file or folder of the source, nor was one" tests/nothing
expect "affected: /etc is not in the source, $PWD" /etc
tests/affected src | grep -x 'integration' >/dev/null || fail "tests/affected src: expected the whole of integration, which src/executor names so"
finish "${#named[@]} tests, ${#lines[@]} lines"
