#!/bin/sh
# A rank dies: who, how, what becomes of the others, and the exit code.
. "$(dirname "$0")/run_common.sh"

# Ranks write their pid when they are there; the others then wait to be ended.
cat >"$work/rank" <<'X'
#!/bin/sh
echo $$ >>"$1/pids"
[ "$RANK" = 2 ] || exec sleep 100
until [ "$(wc -l <"$1/pids")" -eq 4 ]; do sleep 0.01; done
eval "$2"
X
chmod +x "$work/rank"

all_gone() {
    while read -r pid; do
        gone "$pid" || expect "$1: pid $pid" ended running
    done <"$work/pids"
    rm "$work/pids"
}

"$RUN" -n 4 "$work/rank" "$work" 'kill -9 $$' 2>"$work/err"
expect killed 137 $?
pid=$(sed -n 's/.*rank 2 (pid \([0-9]*\)).*/\1/p' "$work/err")
contains killed "tutti-run: rank 2 (pid $pid) was killed by signal 9 (Killed)" "$work/err"
contains killed_others "ending rank 0, 1, 3 (SIGTERM; SIGKILL in 30 s)" "$work/err"
lacks only_the_first_is_blamed "rank 0 (" "$work/err"
grep -qx "$pid" "$work/pids" || expect pid "one of the ranks' pids" "$pid"
all_gone killed

"$RUN" -n 4 "$work/rank" "$work" 'exit 7' 2>"$work/err"
expect exited 7 $?
grep -qE '^tutti-run: rank 2 \(pid [0-9]+\) exited with code 7$' "$work/err" ||
    expect exited "rank 2 (pid N) exited with code 7" "$(cat "$work/err")"
all_gone exited

# A survivor that says more about it and ends by itself is not waited for any longer, nor ended.
"$RUN" -n 2 sh -c '[ $RANK = 1 ] && exit 3; sleep 0.1; echo my own words >&2; exit 4' 2>"$work/err"
expect own_words 3 $?
contains own_words "my own words" "$work/err"
lacks own_words SIGTERM "$work/err"

# One that will not hear SIGTERM gets SIGKILL after the grace.
"$RUN" -n 2 --grace 0.2 sh -c 'trap "" TERM; [ $RANK = 1 ] && exit 3; while :; do sleep 0.05; done' 2>"$work/err"
expect stubborn 3 $?
contains stubborn "killing rank 0 (SIGKILL)" "$work/err"

# With a longer grace the time that is left is said.
"$RUN" -n 2 --grace 10.5 sh -c 'trap "" TERM; [ $RANK = 1 ] && exit 3; while :; do sleep 0.05; done' 2>"$work/err"
expect countdown 3 $?
contains countdown "SIGKILL for rank 0 in " "$work/err"

# What a dead rank had started goes with it.
"$RUN" -n 2 sh -c '[ $RANK = 1 ] || exit 0; sleep 100 & echo $! >"'"$work"'/pids"; exit 5' 2>"$work/err"
expect orphan 5 $?
all_gone orphan

# Code 0 of one rank ends nobody.
expect early_end "late" "$("$RUN" -n 2 sh -c '[ $RANK = 1 ] && exit 0; sleep 0.1; echo late')"

"$RUN" -n 2 --timeout 0.2 sleep 100 2>"$work/err"
expect timeout 124 $?
contains timeout "timeout after 0.2 s: still running: rank 0, 1" "$work/err"
finish
