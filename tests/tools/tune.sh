#!/bin/sh
# tutti-plan tune: measures, writes a file that the library reads, and what it refuses. $PLAN, $INFO and $RUN are the programs.
. "$(dirname "$0")/run_common.sh"

# plan CODE TEXT arguments...
plan() {
    code=$1 text=$2
    shift 2
    "$PLAN" "$@" >"$work/out" 2>&1
    expect "code of tutti-plan $*" "$code" $?
    contains "tutti-plan $*" "$text" "$work/out"
}

# left NAME: no rank lives (they would be children of this shell's children), and $work has no temporary file.
left() {
    expect "temporary files of $1" "" "$(cd "$work" && ls | grep '^costs.*\.' || true)"
    for rank in $(cat "$work/ranks" 2>/dev/null); do
        await gone "$rank"
    done
}

# children PID: the processes that it has started.
children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }

# Mistakes.
plan 2 "--seconds takes seconds from 1 to 600, not 'soon'" tune --seconds soon
plan 2 "--seconds takes seconds from 1 to 600, not '0'" tune --seconds 0
plan 2 "--seconds takes seconds from 1 to 600, not 'nan'" tune --seconds nan
plan 2 "at most 16 numbers of ranks from 2 to 64" tune --ranks 1
plan 2 "at most 16 numbers of ranks from 2 to 64" tune --ranks 65
plan 2 "at most 16 numbers of ranks from 2 to 64" tune --ranks 2-20
plan 2 "tune takes no names of collectives, but there is 'all_reduce'" tune all_reduce
plan 2 "--output takes the path of a file" tune --output ""
plan 1 "'/nonexistent/costs' cannot be written: No such file or directory" tune --output /nonexistent/costs
plan 1 "'$work' cannot be written: it is there, and is no regular file" tune --output "$work"
plan 1 "'/dev/null' cannot be written: it is there, and is no regular file" tune --output /dev/null

# It measures, within its time, and writes a file that communicators read, where a symbolic link points.
: >"$work/costs"
ln -s costs "$work/link"
start=$(date +%s)
"$PLAN" tune --seconds 4 --ranks 2 --output "$work/link" >"$work/out" 2>"$work/err"
expect "code of tune" 0 $?
took=$(($(date +%s) - start))
[ "$took" -le 8 ] || expect "seconds of tune --seconds 4" "at most 8" "$took"
expect "stderr of tune" "" "$(cat "$work/err")"
contains "table" "times of algorithms, of " "$work/out"
if grep -q "Fewer than a third of the times can be believed" "$work/out"; then
    echo "not checked: the table of constants, for the machine is busy"
else
    contains "table" "constant           shipped     measured" "$work/out"
    contains "table" "shipped  constants: " "$work/out"
    contains "table" "measured constants: " "$work/out"
fi
contains "table" "Written to $work/link" "$work/out"
expect "the link, written through" costs "$(readlink "$work/link")"
rm -f "$work/link"
contains "file" "# Measured by tutti-plan tune, tutti " "$work/costs"
contains "file" "2 ranks." "$work/costs"
expect "constants of the file" "action byte_long byte_put byte_reduced byte_result byte_sent link link_one_way meeting meeting_rank net_byte net_link net_message turn_link turn_meeting" \
    "$(sed 's/#.*//; /=/!d; s/ *=.*//' "$work/costs" | sort | paste -sd' ')"
expect "mode of the file" 644 "$(stat -c %a "$work/costs")"
left "tune"
TUTTI_COST_FILE=$work/costs "$INFO" --costs >"$work/out" 2>&1
expect "code of tutti-info with the file" 0 $?
contains "tutti-info with the file" "constants of the host: TUTTI_COST_FILE=$work/costs" "$work/out"
TUTTI_COST_FILE=$work/costs "$RUN" -n 2 "$INFO" --links >"$work/out" 2>&1
expect "code of two ranks with the file" 0 $?

# Without --output the file goes to stdout, and the table to stderr. A damaged file in use does not keep tune from measuring, whether the
# environment or a settings file names it.
echo "link = fast" >"$work/damaged"
echo "TUTTI_COST_FILE=$work/damaged" >"$work/conf"
TUTTI_COST_FILE=$work/damaged TUTTI_CONF_FILE=$work/conf "$PLAN" tune --seconds 4 --ranks 2 >"$work/costs" 2>"$work/err"
expect "code of tune to stdout" 0 $?
contains "stdout" "byte_sent     = " "$work/costs"
lacks "stdout" "times of algorithms" "$work/costs"
contains "stderr" "times of algorithms" "$work/err"

# Who starts it may ignore SIGCHLD.
env --ignore-signal=CHLD "$PLAN" tune --seconds 4 --ranks 2 >"$work/out" 2>&1
expect "code of tune where SIGCHLD is ignored" 0 $?
lacks "tune where SIGCHLD is ignored" "did not end in time" "$work/out"

# A rank that dies ends all with an error and no file; a signal likewise, and tune dies of it.
for ends in rank tune; do
    rm -f "$work/costs"
    "$PLAN" tune --seconds 60 --ranks 4 --output "$work/costs" >"$work/out" 2>&1 &
    tune=$!
    four() { children $tune >"$work/ranks" && [ "$(wc -w <"$work/ranks")" -eq 4 ]; }
    await four
    if [ $ends = rank ]; then
        kill -KILL "$(cut -d' ' -f2 "$work/ranks")"
        wait $tune
        expect "code of tune without a rank" 1 $?
        contains "tune without a rank" "rank 1 of 4 was killed by signal 9" "$work/out"
    else
        kill -TERM $tune
        wait $tune
        expect "code of tune after SIGTERM" 143 $?
    fi
    left "tune that was ended ($ends)"
    [ ! -e "$work/costs" ] || expect "file of tune that was ended ($ends)" none "$(cat "$work/costs")"
done

# Ranks stay on the CPUs on which tune may run. They are bound before they map their memory.
cpu=$(taskset -cp $$ | sed 's/.*: *//; s/[,-].*//')
taskset -c "$cpu" "$PLAN" tune --seconds 60 --ranks 2 >"$work/out" 2>&1 &
tune=$!
two() {
    children $tune >"$work/ranks" && [ "$(wc -w <"$work/ranks")" -eq 2 ] || return 1
    for rank in $(cat "$work/ranks"); do
        grep -q tutti-segment "/proc/$rank/maps" 2>/dev/null || return 1
    done
}
await two
for rank in $(cat "$work/ranks"); do
    expect "CPUs of a rank" "$cpu" "$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$rank/status")"
done
kill -TERM $tune
wait $tune
left "tune on one CPU"

# tune dies of SIGKILL: its ranks do, too.
"$PLAN" tune --seconds 60 --ranks 4 >"$work/out" 2>&1 &
tune=$!
await four
kill -KILL $tune
wait $tune 2>/dev/null
left "tune that was killed"

# A write that fails is an error.
if [ -c /dev/full ]; then
    "$PLAN" tune --seconds 4 --ranks 2 >/dev/full 2>/dev/null
    expect "code when the disk is full" 1 $?
fi
finish
