#!/usr/bin/env bash
# What may stand in a source file, and how long it may be.
. "$(dirname "$0")/common.sh"

# never PATTERN WHY FILE...: no line (comments aside) matches.
never() {
    local pattern=$1 why=$2 hits
    shift 2
    hits=$(grep -nE -- "$pattern" "$@" /dev/null | grep -vE '^[^:]*:[0-9]+: *(/?\*|//)' || true)
    [ -z "$hits" ] || fail "$why:"$'\n'"$hits"
}

mapfile -t library < <(sources '*.c' '*.h' '*.cu' '*.cuh' | grep '^src/')
mapfile -t code < <(sources '*.c' '*.h' '*.cpp' '*.inc' '*.cu' '*.cuh')
mapfile -t all < <(sources '*.c' '*.h' '*.cpp' '*.inc' '*.cu' '*.cuh' '*.sh' '*.md' '*.txt' '*.cmake' '*.in' quickstart check affected run |
    grep -vx tests/house/sources.sh)

# tutti-run passes variables on to other hosts.
mapfile -t not_config < <(printf '%s\n' "${code[@]}" |
    grep -vE '^(src/base/config\.c|tools/run_(hosts|serve)\.c|perf-tests/peers/.*|tests/.*|vgpu/.*)$')
never '\b(secure_)?getenv *\(' "only src/base/config.c reads the environment" "${not_config[@]}"
never '\b(exit|_exit|_Exit|quick_exit|abort) *\(' "the library never ends the process" "${library[@]}"
never '\b(strcat|sprintf|vsprintf|gets|alloca) *\(' "unbounded" "${library[@]}"
never '\b(TODO|FIXME|XXX|HACK)\b' "unfinished" "${all[@]}"
never '/(home|root|Users)/[A-Za-z]' "the path of somebody's machine" "${all[@]}"
never "(^|[^A-Za-z0-9_.])$(sed 's/[.[\*^$+?(){|]/\\&/g' <<<"$SOURCE")(/|\"|\$)" "this checkout's path" "${all[@]}"
# A loop that yields gives other programs a whole time slice each time. The wait loop (run.c) measures its yields; a stream's thread and
# the attendant yield only while their next look is due at once, some 50 us.
mapfile -t not_waiting < <(printf '%s\n' "${library[@]}" |
    grep -vxE 'src/(base/pause|executor/run|executor/host_stream|carrier/kernel/attendant)\.c')
never '\b(sched_yield|pthread_yield|thrd_yield) *\(' "a loop that waits pauses by base/pause.h" "${not_waiting[@]}"
# A further transport is a folder and a line in transports.c: the fabric and the communicator take names from that table.
mapfile -t above < <(printf '%s\n' "${library[@]}" | grep -E '^src/(transport/[a-z_]+|communicator/.*)\.c$')
rooms=$(sed -n 's,^#include "transport/\([a-z_]*\)/.*,\1,p' src/transport/transports.c | paste -sd'|')
[ -n "$rooms" ] || fail "src/transport/transports.c includes no transport"
never "^[^#]*\"[^\"]*\b($rooms|${rooms^^})\b" "names a transport in a text: take it from tt_transports" "${above[@]}"

for file in "${code[@]}"; do
    lines=$(wc -l <"$file")
    most=600
    [[ $file != src/* ]] || most=500
    [ "$lines" -le "$most" ] || fail "$file has $lines lines, more than $most: split it"
done
for limit in README.md:150 CMakeLists.txt:120; do
    lines=$(wc -l <"${limit%:*}")
    [ "$lines" -le "${limit#*:}" ] || fail "${limit%:*} has $lines lines, more than ${limit#*:}"
done

# opens FILE: its first line, or the one after #!, begins a comment that says something.
opens() {
    local first second
    { read -r first && read -r second; } <"$1" || true
    [[ $first != '#!'* ]] || first=$second
    case $1 in
    *.c | *.h | *.inc | *.cpp | *.cu | *.cuh) [[ $first =~ ^/[*/]\ *[A-Za-z\"] ]] ;;
    *) [[ $first =~ ^(#|\"\"\")\ *[A-Za-z\"] ]] ;;
    esac
}
mapfile -t scripts < <(sources '*.sh' '*.py' '*.awk' quickstart check affected run link on ranks 'with-*' 'run-in-*')
for file in "${code[@]}" "${scripts[@]}"; do
    opens "$file" || fail "$file does not open with a comment that says what it is"
done

while read -r file; do fail "$file is the leftover of an editor or a merge"; done \
    < <(git ls-files -- '*.orig' '*.rej' '*~' 2>/dev/null || true)

# anchors PAGE: what a link to a heading of the page has behind its #.
anchors() {
    sed -n '/^```/,/^```/d; s/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

# Relative links in the pages lead somewhere, also those to a heading.
while read -r page; do
    while read -r link; do
        target=$(dirname "$page")/${link%%#*}
        [ -n "${link%%#*}" ] || target=$page
        [ -e "$target" ] || fail "$page links to $link, which is not there"
        [[ $link == *#* && $target == *.md && -e $target ]] || continue
        anchors "$target" | grep -x -- "${link#*#}" >/dev/null || fail "$page links to $link: $target has no such heading"
    done < <(sed '/^```/,/^```/d' "$page" | grep -oE '\]\([^)]+' | sed 's/^](//' | grep -vE '^[a-z]+:' || true)
done < <(sources '*.md')
finish "${#all[@]} files keep the rules"
