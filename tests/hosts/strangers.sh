#!/usr/bin/env bash
# Strangers at every port that a job listens on: the job goes on and ends right, and says once of each
# kind of stranger where it came from.
set -u
here=$(dirname "$(readlink -f "$0")")
program=$(readlink -f "${BIN:?the folder of the programs}/../tests/faults_rank")
command -v python3 >/dev/null || { echo "skipped: strangers need python3" && exit 77; }
if [ -z "${INSIDE-}" ]; then INSIDE=1 exec "$here/with-hosts" --hosts 3 "$0"; fi
work=/run/hosts/strangers
TUTTI_JOB_KEY=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n') # that strangers do not know
export TUTTI_JOB_KEY
mkdir $work
failures=0
fail() {
    echo "$*"
    failures=$((failures + 1))
}

# Where the ranks of a host listen, loopback aside, by an address that the strangers reach.
ports() { # HOST
    "$here/on" "$1" ss -tlnH | awk '{ print $4 }' | grep -v '^127\.\|^\[::1\]' | sed 's/.*://' | sort -u |
        sed "s/^/10.77.0.$((${1#h} + 1)):/"
}

start() { # SECONDS [chain]: how much later than the others rank 2 comes
    # shellcheck disable=SC2016
    RANKS_FAMILY=4 "$here/ranks" 2,1 bash -c 'echo $$ >"$1/pid.$RANK"; [ $RANK != 2 ] || sleep $3; exec "$2" $4 >"$1/out.$RANK" 2>"$1/err.$RANK"' \
        - $work "$program" "$@" >$work/ranks 2>&1 &
    job=$!
}

all_loop() { [ "$(cat $work/out.* 2>/dev/null | grep -c looping)" -eq 3 ]; }

# until_true SECONDS COMMAND...
until_true() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -le $until ] || { fail "in vain: $*: $(cat $work/err.*)" && return 1; }
        sleep 0.02
    done
}

finish() { # NAME
    kill -TERM "$(<$work/pid.0)"
    timeout 60 tail --pid=$job -f /dev/null || fail "$1: the job does not end"
    wait $job || fail "$1: the job failed: $(cat $work/ranks $work/err.*)"
}

# 1. While the job starts, at each port as soon as it is there.
{
    while [ ! -e $work/stop ]; do
        for port in $(ports h0) $(ports h1); do
            grep -qxF "$port" $work/known 2>/dev/null && continue
            echo "$port" >>$work/known
            "$here/on" h2 python3 "$here/strangers.py" "$port" >/dev/null &
        done
    done
} &
hammer=$!
start 1.5
until_true 60 all_loop
touch $work/stop
finish "strangers while it starts"
wait $hammer
echo "while the job starts: $(wc -l <$work/known) ports"
rm -f $work/out.* $work/err.*

# 2. While it runs: nobody listens who has all its connections.
start 0
until_true 60 all_loop
mapfile -t where < <(ports h0; ports h1)
[ "${#where[@]}" -eq 0 ] || fail "ranks that have all their connections listen at ${where[*]}"
finish "all connections stand"
rm -f $work/out.* $work/err.*

# 3. The same where ranks 0 and 2 are never connected, with the log counted.
start 0 chain
until_true 60 all_loop
mapfile -t where < <(ports h0; ports h1)
[ "${#where[@]}" -eq 2 ] || fail "two ranks could still be connected, there are ${#where[@]} ports"
echo "while it runs: at ${where[*]}"
"$here/on" h2 timeout 150 python3 "$here/strangers.py" "${where[@]}" || fail "strangers.py failed"
finish "strangers while it runs"
for rank in 0 2; do
    for words in "does not speak" "another version" "byte order" "word size" "key" "in time"; do
        number=$(grep -c "10\.77\.0\.3.*$words" $work/err.$rank)
        [ "$number" -eq 1 ] || fail "rank $rank says $number times where one came from that has '$words': $(cat $work/err.$rank)"
    done
    number=$(wc -l <$work/err.$rank)
    [ "$number" -eq 6 ] || fail "rank $rank says $number lines instead of 6: $(cat $work/err.$rank)"
done
echo "$failures failures"
[ $failures -eq 0 ]
