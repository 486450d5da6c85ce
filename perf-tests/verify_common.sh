# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by verify_all.sh and verify_hosts.sh: runs perf tests and counts what is wrong. Uses $bin,
# $every and $verbose; changes nruns, nrows and nwrong.

[ -x "$bin/tutti-run" ] && [ -x "$bin/all_reduce_perf" ] || {
    echo "${0##*/}: '$bin' has no tutti-run and no perf tests: build them, or give --bin" >&2
    exit 2
}

programs=(all_reduce all_gather broadcast reduce_scatter reduce alltoall scatter gather sendrecv
    hypercube barrier all_gatherv reduce_scatterv gatherv scatterv alltoallv)
once=(-n 1 -w 0 --rotate 256K --align 1)
nruns=0 nrows=0 nwrong=0 nasked=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# judge COMMAND...: runs a perf test, or leaves it out by --every; it must end well within two minutes with all results right.
judge() {
    local status=0
    nasked=$((nasked + 1))
    [ $((nasked % every)) -eq 0 ] || return 0
    timeout --kill-after=5 120 "$@" >"$output" 2>&1 </dev/null || status=$?
    nruns=$((nruns + 1))
    nrows=$((nrows + $(grep -c '^ ' "$output")))
    [ "$verbose" -eq 0 ] || echo "${*##*/}"
    if [ $status -eq 0 ] && grep -q 'Out of bounds values : 0 OK' "$output"; then return; fi
    wrong "(exit code $status): $*"
    [ $nwrong -le 20 ] || return # enough to know what is the matter
    awk '/^ / && (($9 != "N/A" && $9 > 0) || ($13 != "N/A" && $13 > 0))' "$output" | head -n 3
    grep -v '^[# ]' "$output" | tail -n 3
}

wrong() {
    nwrong=$((nwrong + 1))
    echo "WRONG $*"
}

# algorithms_of PROGRAM PATTERN: the names that match wholly, in `names`; none is wrong.
algorithms_of() {
    names=$("$bin/$1_perf" --help | sed -n 's/^Algorithms://p' | tr ' ' '\n' | grep -xE "$2")
    [ -n "$names" ] || wrong "$1_perf --help names no algorithms like $2"
}

# Says what was counted; fails when something was wrong, or nothing was there to be.
total() {
    echo "$nruns runs, $nrows rows, $nwrong wrong"
    [ $nwrong -eq 0 ] && [ $nrows -gt 0 ]
}
