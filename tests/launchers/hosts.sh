#!/usr/bin/env bash
# tutti-run over several hosts: what ranks find, and that every way to end leaves nothing on any host. Runs
# inside with-hosts; $RUN is tutti-run, $RSH how it reaches a host.
. "$(dirname "$0")/../tools/run_common.sh"
start="$RUN --rsh"
unset RANK WORLD_SIZE OMP_NUM_THREADS

hosts() { $start "$RSH" --hosts "$@" 2>"$work/err" </dev/null; }

expect variables "0 4 0 2 0 h0 1
1 4 1 2 0 h0 1
2 4 0 1 1 h1 1
3 4 0 1 2 h2 1" "$(hosts h0:2,h1:1,h2:1 sh -c \
    'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $(hostname) $OMP_NUM_THREADS' | sort)"
expect shared_evenly "h0 h0 h1 " "$(hosts h0,h1 -n 3 hostname | sort | tr '\n' ' ')"
printf '# all\nh0 slots=2\nh1:1 # one\n\n' >"$work/hostfile"
expect hostfile "h0 h0 h1 " "$($start "$RSH" --hostfile "$work/hostfile" hostname | sort | tr '\n' ' ')"
expect one_meeting_place 1 "$(hosts h0,h1 sh -c 'echo $MASTER_ADDR $MASTER_PORT $TUTTI_JOB_KEY' | sort -u | wc -l)"
expect meeting_place 10.77.0.2 "$(hosts h1 sh -c 'echo $MASTER_ADDR')"
expect own_name h1 "$(hosts h1 --master-addr h1 sh -c 'echo $MASTER_ADDR')"
export TUTTI_LOG=INFO MINE=1 YOURS=2
expect passed_on "INFO 1 - x y=z " "$(env -i "PATH=$PATH" TUTTI_LOG=INFO MINE=1 $start "$RSH" --hosts h1 -x MINE -x 'THIRD=x y=z' \
    sh -c 'echo "$TUTTI_LOG $MINE ${YOURS--} $THIRD $*"' sh)"
unset TUTTI_LOG MINE YOURS
expect words_stay_words 'a  b|$HOME|"|' "$(hosts h1 printf '%s|' 'a  b' '$HOME' '"')"
expect folder "$work" "$(cd "$work" && hosts h1 pwd)"
expect lines_stay_whole 40000 "$(hosts h0,h1 -n 4 --tag-output seq 1 10000 | grep -cE '^\[[0-3]\] [0-9]+$')"

# usage CODE TEXT ARGUMENTS...
usage() {
    local code=$1 text=$2
    shift 2
    $start "$RSH" "$@" >"$work/out" 2>&1 </dev/null
    expect "code of tutti-run $*" "$code" $?
    contains "tutti-run $*" "$text" "$work/out"
}
usage 2 "-n 1 does not fit the hosts" --hosts h0,h1 -n 1 true
usage 2 "-n 5 does not fit the hosts" --hosts h0:2,h1:2 -n 5 true
usage 2 "its ranks must be a number" --hosts h0:0 true
usage 2 "'-oProxyCommand=x' is no name of a host" --hosts h0,-oProxyCommand=x true
usage 2 "'max_slots=4' is no name of a host" --hosts h0,max_slots=4 true
usage 2 "no hosts are named" --hosts , true
usage 2 "--hostfile /none: No such file" --hostfile /none true
usage 255 "host h9:" --hosts h9,h0 true
usage 255 "host h9:" --hosts h0,h9 sleep 100
usage 127 "tutti-run on h1: cannot run 'no-such-program': No such file" --hosts h1 no-such-program
usage 127 "cannot run 'no-such-rsh'" --rsh no-such-rsh --hosts h1 true
usage 2 "--serve is for tutti-run itself" --serve
printf 'tutti-run %s 5\n/tmp\0' "$($RUN --version | cut -d' ' -f3)" | $RUN --serve 2>"$work/err"
expect job_cut_off 2 $?
contains job_cut_off "which program" "$work/err"

# A rank that dies is named by its host, and decides the code; nothing is left on any host.
mark=73.$$
echo $mark >"$work/mark"
none_left() { [ -z "$(grep -lsFf "$work/mark" /proc/[0-9]*/cmdline)" ]; } # -f: grep's own words lack the mark
hosts h0:2,h1:2 sh -c '[ $RANK = 2 ] && exit 7; exec sleep '$mark
expect exited 7 $?
grep -qE '^tutti-run on h1: rank 2 \(pid [0-9]+\) exited with code 7$' "$work/err" || expect exited named "$(cat "$work/err")"
await none_left
hosts h0:2,h1:2 sh -c '[ $RANK = 0 ] && kill -9 $$; exec sleep '$mark
expect killed 137 $?
contains killed "tutti-run on h0: rank 0 (pid" "$work/err"
await none_left
hosts h0,h1 --timeout 1.5 sleep $mark
expect timeout 124 $?
contains timeout "tutti-run: timeout" "$work/err"
await none_left
printf '%s\n' '#!/bin/sh' "[ \$1 = h0 ] || { trap '' TERM; exec sleep $mark; }" "exec $RSH \"\$@\"" >"$work/deaf"
chmod +x "$work/deaf"
timeout --kill-after=1 60 $start "$work/deaf" --hosts h0,h1 --timeout 1 --grace 0.5 sleep $mark >"$work/out" 2>&1 </dev/null
expect connection_deaf_to_SIGTERM 124 $?
await none_left

# A job that ends from the outside: by signals, and by the death of tutti-run, of a connection, of a server.
begin() { # PROGRAM: what a rank becomes when it has said that it is there
    rm -f "$work"/there.*
    env --default-signal=INT,QUIT $start "$RSH" --hosts h0:2,h1:2 sh -c "touch $work/there.\$RANK; ${1-exec sleep $mark}" \
        2>"$work/err" </dev/null &
    run=$!
    await test -e "$work/there.0" -a -e "$work/there.1" -a -e "$work/there.2" -a -e "$work/there.3"
}
child() { cut -d' ' -f"$2" "/proc/$1/task/$1/children"; } # PID N
begin
kill -INT $run
wait $run
expect interrupted 130 $?
await none_left
begin
kill -KILL $run
wait $run 2>/dev/null
await none_left
begin
kill -KILL "$(child "$(child $run 1)" 2)" # its supervisor's second one
wait $run
expect connection_lost 137 $?
contains connection_lost "host h1:" "$work/err"
await none_left
# What a rank has started goes too.
wrapper="sleep $mark; true"
begin "setsid sleep $mark & $wrapper"
kill -KILL $run
wait $run 2>/dev/null
await none_left
begin "$wrapper"
kill -KILL "$(child "$(child $run 1)" 2)"
wait $run
expect connection_of_wrappers_lost 137 $?
await none_left
servers() { # two processes a host
    grep -lsz -- --serve /proc/[0-9]*/cmdline | cut -d/ -f3 | sort -n | while read -r pid; do
        [ "$(readlink "/proc/$pid/exe")" = "$(readlink -f "$RUN")" ] && echo "$pid"
    done
}
for which in head tail; do
    begin "$wrapper"
    kill -KILL "$(servers | $which -n 1)"
    wait $run
    code=$?
    [ $code -eq 255 ] || expect "$which of the servers killed" 137 $code # 255: as ssh puts it
    contains "$which of the servers killed" "tutti-run: host h" "$work/err"
    await none_left
done
finish
