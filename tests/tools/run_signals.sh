#!/bin/sh
# Signals to tutti-run reach the ranks; when it is killed, they end too.
. "$(dirname "$0")/run_common.sh"

# What does not end when it is killed: a process that has ended, and whose parent, in a session of its own, does not look at it. That takes 13 s, beside the rest.
cat >"$work/zombie" <<'X'
import os, sys, time
pipe = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os._exit(0)
    os.setsid()
    os.write(pipe[1], b"x")
    os.closerange(0, 10)
    time.sleep(30)
    os._exit(0)
os.read(pipe[0], 1)
open(sys.argv[1] + "/zombies", "a").write("x\n")
time.sleep(100)
X
"$RUN" -n 1 --grace 1 python3 "$work/zombie" "$work" </dev/null >/dev/null 2>"$work/zombie_err" &
zombie=$!
await lines "$work/zombies" 1
kill -TERM $zombie

cat >"$work/rank" <<'X'
#!/bin/sh
for s in INT TERM HUP USR1 USR2; do trap "echo $s >>'$1/got'; $2" $s; done
echo $$ >>"$1/pids"
while :; do sleep 0.02; done
X
chmod +x "$work/rank"

# begin ACTION: starts three ranks that do ACTION on a signal; waits until they are there.
begin() {
    rm -f "$work/pids" "$work/got"
    # A shell without job control would have its background job ignore SIGINT.
    env --default-signal=INT,QUIT,HUP "$RUN" -n 3 "$work/rank" "$work" "$1" 2>"$work/err" &
    run=$!
    await lines "$work/pids" 3
}

for signal in USR1 USR2; do
    begin :
    kill -$signal $run
    await lines "$work/got" 3
    expect "$signal reaches all" "$signal $signal $signal " "$(tr '\n' ' ' <"$work/got")"
    kill -0 $run || expect "$signal" "still running" ended
    kill -KILL $run
    wait $run 2>/dev/null
done

for signal in INT TERM HUP; do
    begin 'exit 0'
    kill -$signal $run
    wait $run
    expect "$signal handled: code" 0 $?
    expect "$signal reaches all" "$signal $signal $signal " "$(tr '\n' ' ' <"$work/got")"
done

# Not handled: the ranks die of it, and so it is no accident of theirs.
env --default-signal=INT,QUIT "$RUN" -n 2 sh -c "echo \$\$ >>$work/two; exec sleep 100" 2>"$work/err" &
run=$!
await lines "$work/two" 2
kill -INT $run
wait $run
expect interrupted 130 $?
contains interrupted "ended by SIGINT" "$work/err"

# has_saved NAME N: so many programs have had their time.
has_saved() { lines "$work/saved" "$2" || expect "$1: programs that had their time" "$2" "$(cat "$work/saved" 2>&1)"; }

# A shell dies of the signal at once, and does not wait for the program that it runs: the program has its time, and what it writes is there.
cat >"$work/saves" <<'X'
#!/bin/sh
for s in INT TERM HUP USR1; do trap "sleep 0.3; echo saved >>'$1/saved'; echo it has saved; exit 0" $s; done
echo $$ >>"$1/pids"
while :; do sleep 0.02; done
X
chmod +x "$work/saves"
for signal in INT:0 TERM:143 HUP:129 USR1:138; do # a shell goes on behind a program that has heard SIGINT
    rm -f "$work/pids" "$work/saved"
    env --default-signal=INT,TERM,HUP,USR1 "$RUN" --tag-output -n 2 bash -c '"$0" "$1"; true' "$work/saves" "$work" >"$work/out" 2>"$work/err" &
    run=$!
    await lines "$work/pids" 2
    kill "-${signal%:*}" $run
    wait $run
    expect "behind a shell, ${signal%:*}: code" "${signal#*:}" $?
    has_saved "behind a shell, ${signal%:*}" 2
    expect "behind a shell, ${signal%:*}: lines" "[0] it has saved [1] it has saved " "$(sort "$work/out" | tr '\n' ' ')"
done

# A second signal takes nothing of that time: Slurm's warning is followed by SIGCONT and SIGTERM.
sed 's/sleep 0.3/sleep 1/' "$work/saves" >"$work/saves_long"
chmod +x "$work/saves_long"
for second in TERM CONT USR2; do
    rm -f "$work/pids" "$work/saved"
    "$RUN" -n 2 sh -c 'trap "" USR2; "$0" "$1"; true' "$work/saves_long" "$work" >"$work/out" 2>"$work/err" &
    run=$!
    await lines "$work/pids" 2
    kill -USR1 $run
    sleep 0.2
    kill "-$second" $run
    wait $run
    expect "behind a shell, USR1 and $second: code" 138 $?
    has_saved "behind a shell, USR1 and $second" 2
done

# A shell's trap that exits, with any code, takes nothing of it.
for exit in 143 0; do
    rm -f "$work/pids" "$work/saved"
    "$RUN" -n 2 bash -c 'trap "exit $2" TERM; "$0" "$1" & wait' "$work/saves_long" "$work" $exit >"$work/out" 2>"$work/err" &
    run=$!
    await lines "$work/pids" 2
    kill -TERM $run
    wait $run
    expect "a trap exits with $exit: code" $exit $?
    has_saved "a trap exits with $exit" 2
done

# A signal that reaches the shell alone, or before tutti-run: the program has its time.
for signal in TERM:143 USR1:138; do
    rm -f "$work/pids" "$work/saved" "$work/shells"
    "$RUN" -n 1 bash -c 'echo $$ >>"$1/shells"; "$0" "$1"; true' "$work/saves_long" "$work" >"$work/out" 2>"$work/err" &
    run=$!
    await lines "$work/pids" 1
    kill "-${signal%:*}" "$(cat "$work/shells")"
    kill "-${signal%:*}" "$(cat "$work/pids")"
    wait $run
    expect "a shell gets ${signal%:*} itself: code" "${signal#*:}" $?
    has_saved "a shell gets ${signal%:*} itself" 1
done

# What the shell runs in a process group of its own (timeout, set -m) gets the signal by which the shell ends, and has its time.
for how in 'timeout 100 "$0" "$1"' 'set -m; "$0" "$1" & wait'; do
    rm -f "$work/pids" "$work/saved"
    "$RUN" -n 2 sh -c "$how; true" "$work/saves_long" "$work" >"$work/out" 2>"$work/err" &
    run=$!
    await lines "$work/pids" 2
    kill -TERM $run
    wait $run
    expect "a group of its own ($how): code" 143 $?
    has_saved "a group of its own ($how)" 2
done

# So where the shell does not end by the signal: by a SIGINT while it waits, behind a trap, or where tutti-run itself ends the run.
for how in 'INT:0:timeout 100 "$0" "$1"; true' 'TERM:0:trap : TERM; timeout 100 sh -c "timeout 100 \"$0\" \"$1\"; true"; true' 'none:124:trap : TERM; timeout 100 "$0" "$1"; true'; do
    signal=${how%%:*}
    code=${how#*:}
    rm -f "$work/pids" "$work/saved"
    env --default-signal=INT "$RUN" -n 2 $([ $signal != none ] || echo --timeout 2) bash -c "${code#*:}" "$work/saves_long" "$work" >"$work/out" 2>"$work/err" &
    run=$!
    await lines "$work/pids" 2
    [ $signal = none ] || kill -$signal $run
    wait $run
    expect "a shell that goes on ($how): code" "${code%%:*}" $?
    has_saved "a shell that goes on ($how)" 2
done

# A job of a shell is not stopped with the rest: the shell would take that for its end.
rm -f "$work/pids" "$work/saved"
"$RUN" -n 1 bash -c 'set -m; "$0" "$1" & wait $!' "$work/saves_long" "$work" >"$work/out" 2>"$work/err" &
run=$!
await lines "$work/pids" 1
kill -TSTP $run
sleep 0.5
kill -CONT $run
sleep 0.5
kill -TERM $run
wait $run
expect "stopped behind set -m: code" 143 $?
has_saved "stopped behind set -m" 1

# once NAME COMMAND...: of a SIGUSR1 to tutti-run each of two programs gets one.
once() {
    name=$1
    shift
    rm -f "$work/pids" "$work/got"
    "$RUN" -n 2 "$@" 2>"$work/err" &
    run=$!
    await lines "$work/pids" 2
    kill -USR1 $run
    await lines "$work/got" 2
    sleep 0.5
    expect "$name" "USR1 USR1 " "$(tr '\n' ' ' <"$work/got")"
    kill -KILL $run
    wait $run 2>/dev/null
}

# A program that passes signals on to process groups that it has made, as tutti-run does, tells them alone.
once "tutti-run in tutti-run" "$RUN" -n 1 "$work/rank" "$work" :

# A job of a shell that ends by the signal, too, gets it once.
once "a job of a shell that ends" bash -c 'trap "exit 138" USR1; set -m; "$0" "$1" : & wait' "$work/rank" "$work"

# A trap that exits, with the signal's code or with another one, before tutti-run has heard anything. Behind another one the signal reaches tutti-run a little later.
for exit in 143 0 1; do
    rm -f "$work/pids" "$work/saved" "$work/shells"
    "$RUN" -n 1 bash -c 'trap "exit $2" TERM; echo $$ >>"$1/shells"; "$0" "$1" & wait' "$work/saves_long" "$work" $exit >"$work/out" 2>"$work/err" &
    run=$!
    await lines "$work/pids" 1
    kill -TERM "-$(cat "$work/shells")"
    [ $exit = 143 ] || { sleep 0.1; kill -TERM $run; }
    wait $run
    code=$?
    [ $exit != 0 ] || [ $code != 143 ] || code=0 # of a signal that came, or of the rank
    expect "a trap exits with $exit before tutti-run: code" $exit $code
    has_saved "a trap exits with $exit before tutti-run" 1
done

# A rank that fails by itself behind a signal is told at once, though it has left something behind.
rm -f "$work/pids"
"$RUN" -n 2 --grace 1 bash -c 'trap : USR1; (trap "" USR1; exec sleep 100) & echo $$ >>"$0/pids"; wait; [ $RANK = 1 ] || kill -SEGV $$; sleep 100' "$work" >"$work/out" 2>"$work/err" &
run=$!
await lines "$work/pids" 2
before=$(date +%s)
kill -USR1 $run
wait $run
expect "a crash behind a signal: code" 139 $?
contains "a crash behind a signal" "was killed by signal 11" "$work/err"
[ $(($(date +%s) - before)) -lt 9 ] || expect "a crash behind a signal: seconds" "less than 9" $(($(date +%s) - before))

# What one rank has left behind is ended also while others run.
rm -f "$work/pids"
"$RUN" -n 2 --grace 1 bash -c 'trap "exit 7" USR1; [ $RANK = 0 ] || trap : USR1; (trap "" USR1; exec sleep 100) & echo $$ >>"$0/pids"; wait; sleep 100' "$work" >"$work/out" 2>"$work/err" &
run=$!
await lines "$work/pids" 2
kill -USR1 $run
wait $run
expect "left behind by one rank: code" 7 $?
contains "left behind by one rank" "ending what rank 0 left behind (SIGTERM)" "$work/err"
contains "left behind by one rank" "rank 0 (pid " "$work/err"

# A program that a shell starts with '&' ignores SIGINT: it gets SIGTERM after a while.
rm -f "$work/pids"
env --default-signal=INT "$RUN" -n 2 --grace 1 bash -c '(trap "" INT; trap "exit 0" TERM; echo $$ >>"$0/pids"; while :; do sleep 0.05; done) & wait' "$work" 2>"$work/err" &
run=$!
await lines "$work/pids" 2
kill -INT $run
wait $run
expect "a program in the background: code" 130 $?
contains "a program in the background" "left behind (SIGTERM)" "$work/err"

# On a terminal rank 0 is in the terminal's process group.
rm -f "$work/pids" "$work/saved"
cat >"$work/typed" <<'X'
echo $$ >"$3/run"
exec "$1" -n 1 bash -c '"$0" "$1"; true' "$2" "$3"
X
script -qec "bash '$work/typed' '$RUN' '$work/saves' '$work'" /dev/null >"$work/out" 2>&1 </dev/null &
terminal=$!
await lines "$work/pids" 1
kill -TERM "$(cat "$work/run")"
wait $terminal
expect "behind a shell on a terminal: code" 143 $?
has_saved "behind a shell on a terminal" 1
await gone "$(cat "$work/pids")"

begin :
kill -INT $run
await lines "$work/got" 3
kill -TERM $run # a launcher's second signal, which the ranks hear too
await lines "$work/got" 6
kill -INT $run # at once: delivered twice
await lines "$work/got" 9
sleep 2.1
kill -TERM $run
await lines "$work/got" 12
kill -INT $run
wait $run
expect "asked twice" 137 $?
contains "asked twice" "asked twice: killing the ranks" "$work/err"

# What the process was started to ignore is no signal for the ranks, and does not count as asked.
env --default-signal=INT --ignore-signal=HUP "$RUN" -n 2 sh -c "trap 'exit 0' INT; echo \$\$ >>$work/ignore; while :; do sleep 0.02; done" 2>"$work/err" &
run=$!
await lines "$work/ignore" 2
kill -HUP $run
sleep 2.1
kill -INT $run
wait $run
expect "an ignored SIGHUP, then SIGINT" 0 $?

# Stop and continue.
begin :
state() { cut -d' ' -f3 "/proc/$1/stat"; }
# D: a shell whose child was stopped between vfork and exec.
stopped() { case $(state "$1") in T | D) return 0 ;; *) return 1 ;; esac; }
running() { ! stopped "$1"; }
kill -TSTP $run
await stopped $run
while read -r pid; do await stopped "$pid"; done <"$work/pids"
kill -CONT $run
while read -r pid; do await running "$pid"; done <"$work/pids"

# Killed outright, it takes the ranks along.
kill -KILL $run
wait $run 2>/dev/null
while read -r pid; do await gone "$pid"; done <"$work/pids"

# Killed outright, tutti-run takes along the programs that a rank has started: behind a wrapper, in a process group or a session of their
# own. The rank stays; each program writes its pid.
cat >"$work/wrapper" <<'X'
#!/bin/sh
sh -c 'echo $$ >>"$0/pids"; exec sleep 100' "$1" &
setsid sh -c 'echo $$ >>"$0/pids"; exec sleep 100' "$1" &
timeout 100 sh -c 'echo $$ >>"$0/pids"; sleep 100; true' "$1"
true
X
chmod +x "$work/wrapper"
begin_wrapped() {
    rm -f "$work/pids"
    "$RUN" -n 2 "$work/wrapper" "$work" 2>"$work/err" &
    run=$!
    await lines "$work/pids" 6
    supervisor=$(cut -d' ' -f1 "/proc/$run/task/$run/children")
}
all_gone() {
    while read -r pid; do await gone "$pid"; done <"$work/pids"
    await gone "$supervisor"
}
begin_wrapped
kill -KILL $run
wait $run 2>/dev/null
all_gone

# While tutti-run is stopped it can be killed too.
begin_wrapped
kill -TSTP $run
await stopped $run
kill -KILL $run
wait $run 2>/dev/null
all_gone

# Where poll is refused nothing can be waited for: the ranks are not left to themselves.
"$WITHOUT_POLL" "$RUN" --version >/dev/null
if [ $? -eq 77 ]; then
    echo "not checked: no seccomp here"
else
    timeout --signal=KILL 30 "$WITHOUT_POLL" "$RUN" -n 2 sh -c 'sleep 61.39571 & setsid sleep 61.39571 & wait' 2>"$work/err"
    expect "poll refused: code" 1 $?
    contains "poll refused" "tutti-run: cannot wait (poll): Operation not permitted" "$work/err"
    none_left() { ! grep -slz '[6]1.39571' /proc/[0-9]*/cmdline >"$work/left"; }
    await none_left
    timeout --signal=KILL 30 "$WITHOUT_POLL" "$RUN" --hosts a,b --rsh "$work/wrapper" true 2>"$work/err"
    expect "poll refused, several hosts: code" 1 $?
    contains "poll refused, several hosts" "cannot wait (poll): Operation not permitted" "$work/err"
    timeout --signal=KILL 30 "$WITHOUT_POLL" "$RUN" -n 1 --tag-output true 2>"$work/err" # it may have ended before it is waited for
    code=$?
    [ $code -eq 0 ] || [ $code -eq 1 ] || expect "poll refused, a short rank: code" "0 or 1" $code
fi

# The other of tutti-run's two processes, as when memory runs out.
begin_wrapped
kill -KILL "$supervisor"
wait $run
expect "supervisor killed: code" 137 $?
contains "supervisor killed" "was killed by signal 9 (Killed)" "$work/err"
all_gone

wait $zombie
expect "a zombie is left: code" 143 $?
contains "a zombie is left" "does not end: not waiting for it" "$work/zombie_err"
finish
