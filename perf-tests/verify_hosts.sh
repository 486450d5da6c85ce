#!/usr/bin/env bash
# Runs every perf test over TCP between hosts, which are namespaces of this machine, and counts the runs
# whose results are wrong. Ends with "N runs, R rows, M wrong"; exits 1 when M is not 0 or R is, 77 when
# no hosts can be made here.
set -uo pipefail

usage() {
    cat <<TEXT
usage: verify_hosts.sh [--quick] [--every N] [--bin DIR] [--verbose]

  --bin DIR   where the programs are (build/bin)
  --quick     less of all: about half a minute on two cores instead of two
  --every N   only each N-th run
  --verbose   name every run
TEXT
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ -n "${INSIDE-}" ] || whole=("$@")
. "$root/perf-tests/verify_options.sh" "$@"
[ -n "${INSIDE-}" ] || # all of it on one set of hosts
    INSIDE=1 exec "$root/tests/hosts/with-hosts" --hosts 4 --nics 2 "${BASH_SOURCE[0]}" "${whole[@]}"
bin=$(cd "$bin" 2>/dev/null && pwd) || { echo "verify_hosts.sh: --bin is no folder" >&2 && exit 2; }
. "$root/perf-tests/verify_common.sh"

# run LAYOUT SETTINGS PROGRAM ARGS...: settings are comma-separated, TUTTI_ is added: NAME=VALUE,...
run() {
    local layout=$1 setting settings program=$3 environment=()
    IFS=, read -ra settings <<<"$2"
    shift 3
    for setting in "${settings[@]}"; do environment+=("TUTTI_$setting"); done
    judge env "${environment[@]}" "$root/tests/hosts/ranks" "$layout" "$bin/${program}_perf" "${once[@]}" "$@"
}

slices=(-b 4 -e 1M -f 512) # from one element to messages of many slices

# all LAYOUT SETTINGS: every program.
all() {
    local program
    for program in "${programs[@]}"; do run "$1" "$2" "$program" "${slices[@]}"; done
}

# odd LAYOUT SETTINGS: every program; sizes, type and root that are a multiple of nothing.
odd() {
    local program
    for program in "${programs[@]}"; do run "$1" "$2" "$program" -b 99 -e 300099 -i 100003 -d uint8 -r 1; done
}

# families LAYOUT SETTINGS: as all, every other program over IPv4 and the others over IPv6. Of four calls in a row, and of the next four,
# two are the other way round, so that each program meets both families with each of two or four settings that alternate.
ntimes=0
families() {
    local program family number=$((ntimes + ntimes / 2 + ntimes / 4))
    for program in "${programs[@]}"; do
        family=$((4 + number++ % 2 * 2))
        RANKS_FAMILY=$family run "$1" "$2${2:+,}SOCKET_FAMILY=$family" "$program" "${slices[@]}"
    done
    ntimes=$((ntimes + 1))
}

# fits PROGRAM ALGORITHM LAYOUT: whether the algorithm can be on such hosts.
fits() {
    "$bin/tutti-plan" print "${1/alltoall/all_to_all}:$2" --hosts "$3" --rank 0 >/dev/null 2>&1
}

# algorithms LAYOUT STRIDE: each of every collective by its name, those of two levels among them; with a
# stride only every so many.
algorithms() {
    local program algorithm number=0 nfit
    for program in "${programs[@]}"; do
        case $program in hypercube | *v) continue ;; esac # made of sends and receives, or with counts
        algorithms_of "$program" '.*'
        nfit=0
        for algorithm in $names; do
            fits "$program" "$algorithm" "$1" || continue
            nfit=$((nfit + 1)) number=$((number + 1))
            [ $((number % $2)) -ne 0 ] || run "$1" "" "$program" -b 8 -e 100008 -i 100000 --algorithm "$algorithm"
        done
        [ $nfit -gt 0 ] || wrong "no algorithm of ${program}_perf fits hosts $1"
    done
}

export RANKS_FAMILY=4
one_nic=SOCKET_INTERFACE=eth0
if [ $quick -eq 1 ]; then
    families 1,1 $one_nic
    all 2,2 ""
    odd 1,2,1 "$one_nic,ENCRYPT=1"
    algorithms 2,2 12
else
    encrypt=0
    for layout in 1,1 2,2 1,1,1 2,2,2 1,1,1,1 2,2,2,2; do # one interface or both: the one encrypted and the other not, in turn
        families $layout "$one_nic,ENCRYPT=$encrypt"
        encrypt=$((1 - encrypt))
        families $layout ENCRYPT=$encrypt
    done
    for settings in SOCKETS=2 SOCKETS=3,ENCRYPT=1 "SOCKETS=4,$one_nic" ZEROCOPY=1 ZEROCOPY=0 SLOTS=2,SLOT_BYTES=4K \
        SLOT_BYTES=2M TRANSPORT=tcp WAIT=yield; do
        all 1,2 $settings
    done
    for layout in 3,1 1,2,3 2,1,1,1 0,1,2; do odd $layout ""; done
    algorithms 2,2 1
    algorithms 2,2,2 5
    algorithms 1,3 1
fi
total
