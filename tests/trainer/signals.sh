#!/usr/bin/env bash
# A signal to any rank ends a run after its step, with a checkpoint and the signal's code; resumed, it has the losses of an unbroken run,
# bit for bit. So under tutti-run, and, without sanitizers, under Open MPI's and MPICH's mpirun, torchrun and sbatch --signal where they are
# installed.
set -u
PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=${SIGNALS_WORK-}
[ -n "$work" ] || {
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
}
train=${BIN:?}/tutti-train
model=(--layers=2 --heads=2 --width=64 --context=64 --batch=16 --micro-batch=4 --warmup=5 --lr=0.003 --sample=0 "--data=${SOURCE:?}/include")
layout=(--fsdp=2)
steps=400
[ -z "${SANITIZERS-}" ] || steps=150 # which take as long there: the signals come in time
failures=0

fail() {
    echo "$case: $*"
    [ ! -s "$work/out" ] || tail -n 30 "$work/out"
    failures=$((failures + 1))
}

# begin COMMAND...: in the background, with signals as a terminal's shell would give them; waits for the first steps.
begin() {
    rm -rf "$work/c" "$work/log" "$work/out"
    env --default-signal=INT,TERM,USR1,HUP "$@" "$train" "${model[@]}" "${layout[@]}" "--steps=$steps" "--checkpoint=$work/c" "--log=$work/log" \
        >"$work/out" 2>&1 &
    run=$!
    for ((i = 0; i < 5000; ++i)); do
        [ -f "$work/log" ] && [ "$(grep -c loss "$work/log")" -gt 3 ] && return
        sleep 0.02
    done
    fail "no steps"
}

# saved NAME: it has saved, and says how to go on; its last step in $step. torchrun may put the rank ahead of a line.
saved() {
    step=$(sed -nE "s/^(\[default0\]:)?ended by SIG$1 after step ([0-9]*) of $steps; go on with --resume=.*/\2/p" "$work/out")
    [ -n "$step" ] || { fail "does not say that SIG$1 ended it" && step=0; }
    [ -f "$work/c/step-$(printf %08d "$step").safetensors" ] || fail "no checkpoint of step $step"
}

# ended CODE NAME: it has saved, says how to go on, and ends with that code.
ended() {
    wait "$run"
    local code=$?
    [ $code -eq "$1" ] || fail "code $code, expected $1"
    saved "$2"
}

# same_losses STEPS: the log has the losses of the unbroken run, one for each step.
same_losses() {
    [ "$(losses "$work/log" | wc -l)" -eq "$1" ] || fail "$(losses "$work/log" | wc -l) losses in the log, not $1"
    cmp <(losses "$work/log") <(losses "$work/straight") || fail "other losses than without the signal"
}

# launched LAUNCHER SIGNAL COMMAND...: the signal to the launcher ends a run. The launcher's own code is only printed: MPICH's mpiexec gives 0
# in a third of the runs whose ranks end by SIGUSR1. Resumed under the same launcher, the run has the losses of an unbroken one.
launched() {
    local launcher=$1 signal=$2 code
    shift 2
    case="SIG$signal to $launcher"
    begin "$@"
    kill "-$signal" "$run"
    wait "$run"
    code=$?
    saved "$signal"
    "$@" "$train" "--resume=$work/c" "--log=$work/log" --sample=0 >"$work/out" 2>&1 || fail "resumed: code $?"
    same_losses $steps
    echo "$case: ended after step $step of $steps with code $code, resumed"
}

# skip LAUNCHER REASON
skip() { echo "$1: skipped: $2"; }

# Open MPI passes SIGUSR1 on and makes SIGTERM of SIGINT; torchrun passes on SIGTERM and SIGINT only.
try_launchers() {
    local python=${XDG_CACHE_HOME:-$HOME/.cache}/tutti-torch/bin/python3
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$work
    if command -v mpirun.openmpi >/dev/null; then
        launched "Open MPI's mpirun" USR1 mpirun.openmpi --oversubscribe -n 2
        launched "Open MPI's mpirun" TERM mpirun.openmpi --oversubscribe -n 2
    else skip "Open MPI's mpirun" "no mpirun.openmpi (Debian package openmpi-bin)"; fi
    if command -v mpiexec.hydra >/dev/null; then
        launched "MPICH's mpiexec" USR1 mpiexec.hydra -n 2
        launched "MPICH's mpiexec" TERM mpiexec.hydra -n 2
    else skip "MPICH's mpiexec" "no mpiexec.hydra (Debian package mpich)"; fi
    if [ -x "$python" ]; then
        launched torchrun TERM "$python" -m torch.distributed.run --standalone --no_python --nproc_per_node 2 --
        launched torchrun INT "$python" -m torch.distributed.run --standalone --no_python --nproc_per_node 2 --
    elif command -v torchrun >/dev/null; then
        launched torchrun TERM torchrun --standalone --no_python --nproc_per_node 2 --log_dir "$work" -r 2 -t 1 --
    else skip torchrun "no torchrun (Debian package python3-torch)"; fi
}

# Prints the process of rank 1 of the Slurm job that writes $work/log.
slurm_rank() {
    local pid
    for pid in $(pgrep -x tutti-train); do
        tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF -- "--log=$work/log" &&
            tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx SLURM_PROCID=1 && echo "$pid"
    done
}

# hold_until_signalled BATCH: rank 1 stands still until Slurm's SIGUSR1 has come to it, for which Slurm takes a minute. The other rank
# waits for it, and neither computes.
hold_until_signalled() {
    local pid pending i
    for ((i = 0; i < 5000; ++i)); do
        [ -f "$work/log" ] && [ "$(grep -c loss "$work/log")" -gt 3 ] && break
        kill -0 "$1" 2>/dev/null || return
        sleep 0.02
    done
    pid=$(slurm_rank)
    kill -STOP "$pid" || { fail "rank 1 is not one process: '$pid'" && return; }
    while pending=$(sed -n 's/^ShdPnd:[[:blank:]]*//p' "/proc/$pid/status" 2>/dev/null) && [ -n "$pending" ]; do
        [ $((0x$pending >> ($(kill -l USR1) - 1) & 1)) -eq 0 ] || break
        sleep 0.2
    done
    kill -CONT "$pid" 2>/dev/null # or Slurm has let it go on
}

# In a Slurm cluster of its own: how far the job comes until the signal is Slurm's affair, so the rate stays and the unbroken run is as long
# as the resumed one.
in_slurm() {
    local model=("${model[@]}" --schedule=constant --log-every=1000) steps=100000000 run batch
    case="sbatch --signal=USR1"
    run="srun -N 2 --ntasks-per-node=1 $train ${model[*]} ${layout[*]}"
    sbatch --wait -N 2 --ntasks-per-node=1 --time=1 --signal=USR1@50 "--output=$work/out" \
        --wrap="$run --steps=$steps --checkpoint=$work/c --log=$work/log" >"$work/sbatch" 2>&1 &
    batch=$!
    hold_until_signalled $batch
    wait $batch && fail "code 0: $(cat "$work/sbatch")"
    saved USR1
    sbatch --wait -N 2 --ntasks-per-node=1 "--output=$work/out" \
        --wrap="srun --ntasks-per-node=1 $train --resume=$work/c --steps=$((step + 20)) --log=$work/log --sample=0" >"$work/sbatch" 2>&1 ||
        fail "resumed: code $?"
    $run --steps=$((step + 20)) "--log=$work/straight" >"$work/out" 2>&1 || fail "unbroken: code $?"
    same_losses $((step + 20))
    echo "$case: ended after step $step, resumed for 20 steps"
    exit $((failures > 0))
}

rank_pid() { pgrep -P "$(pgrep -d, -P "$run")" -x tutti-train | sed -n "$(($1 + 1))p"; }

losses() { sed -n 's/.*"step": \([0-9]*\), .*"loss": \([^,]*\), .*"norm": \([^,]*\),.*/\1 \2 \3/p' "$1"; }
[ -z "${SLURM_CONF-}" ] || [ -z "${SIGNALS_WORK-}" ] || in_slurm

# Slurm takes a minute to look at a job's time: meanwhile the rest goes on.
slurm=''
if [ -z "${SANITIZERS-}" ]; then
    mkdir "$work/slurm"
    SIGNALS_WORK=$work/slurm timeout 400 nice -n 19 "$here/../launchers/with-slurm" --nodes 2 -- "${BASH_SOURCE[0]}" >"$work/slurm.out" 2>&1 </dev/null &
    slurm=$!
fi

case=straight
"$BIN/tutti-run" -n 2 "$train" "${model[@]}" "${layout[@]}" --steps=$steps "--log=$work/straight" >"$work/out" 2>&1 || fail "code $?"

for signal in INT:130 TERM:143 USR1:138; do
    name=${signal%:*} code=${signal#*:}
    case="SIG$name to tutti-run"
    begin "$BIN/tutti-run" -n 2
    kill "-$name" "$run"
    ended "$code" "$name"
    "$BIN/tutti-run" -n 2 "$train" "--resume=$work/c" "--log=$work/log" --sample=0 >"$work/out" 2>&1 || fail "resumed: code $?"
    same_losses $steps
done
[ -n "${SANITIZERS-}" ] || try_launchers

case="SIGHUP to rank 1 alone"
begin "$BIN/tutti-run" -n 2
kill -HUP "$(rank_pid 1)"
ended 129 HUP

layout=()
case="SIGINT also ends who reads the output"
rm -rf "$work/c" "$work/log"
mkfifo "$work/pipe"
cat "$work/pipe" >"$work/out" &
reader=$!
env --default-signal=INT "$train" "${model[@]}" "--steps=$steps" --log-every=400 "--checkpoint=$work/c" "--log=$work/log" >"$work/pipe" 2>/dev/null &
run=$!
until grep -qs loss "$work/log"; do sleep 0.02; done
kill -STOP "$run"
kill -TERM "$reader"
wait "$reader" 2>/dev/null
kill -INT "$run"
kill -CONT "$run"
wait "$run"
code=$?
[ $code -eq 130 ] || fail "code $code"
ls "$work/c"/step-*.safetensors >"$work/out" 2>&1 || fail "no checkpoint"

case="SIGTERM behind a SIGINT"
begin env
kill -INT "$run"
kill -TERM "$run"
ended 130 INT

case="SIGINT twice at once"
begin env
kill -INT "$run"
kill -INT "$run"
ended 130 INT

case="a second SIGINT, 2 s after the first, which comes 2 s after a SIGUSR1"
layout=() model+=(--width=512 --layers=16 --batch=96 --micro-batch=12 --context=128)
rm -f "$work/out"
env --default-signal=INT "$train" "${model[@]}" --threads=1 --steps=1000000 "--checkpoint=$work/c" >"$work/out" 2>&1 &
run=$!
until grep -qs "^memory of" "$work/out" || ! kill -0 "$run" 2>/dev/null; do sleep 0.05; done
sleep 1
kill -USR1 "$run"
sleep 2.1
kill -INT "$run"
sleep 2.1
grep -q "Ctrl-C again" "$work/out" && kill -0 "$run" || fail "the first SIGINT was not heard, or ended the run"
kill -INT "$run"
wait "$run"
code=$?
[ $code -eq 130 ] || fail "code $code"
! grep -q "ended by" "$work/out" || fail "the step has ended: this test needs a longer one"

layout=() model=(--layers=1 --heads=2 --width=32 --context=32 --batch=4 --sample=0 "--data=$SOURCE/include")
steps=100000000 # until the signal
case="process 1, as in a container"
if unshare --pid --fork true 2>/dev/null; then
    for signal in TERM:143 INT:130; do
        begin unshare --pid --fork --kill-child
        kill "-${signal%:*}" "$(pgrep -P "$run")"
        ended "${signal#*:}" "${signal%:*}"
    done
else
    echo "$case: skipped: no new process IDs to be had (unshare)"
fi

case="a signal that was blocked at the start"
begin env --block-signal=TERM "$BIN/tutti-run" -n 2
kill -TERM "$run"
ended 143 TERM

# Both streams: the pipe has room for some lines. Saves have lines of their own, more than stdio's buffer takes.
case="nobody reads the output"
rm -rf "$work/c"
mkfifo "$work/full"
exec 8<>"$work/full"
head -c 40000 /dev/zero >&8
"$BIN/tutti-run" -n 2 "$train" "${model[@]}" "--steps=$steps" --log-every=1 --every=3 --keep=1 "--checkpoint=$work/c" "--log=$work/still" >&8 2>&8 &
run=$!
for ((i = 0; i < 3000; ++i)); do
    [ -f "$work/still" ] && [ "$(grep -c loss "$work/still")" -gt 900 ] && break
    sleep 0.02
done
[ "$(grep -c loss "$work/still")" -gt 900 ] || fail "the training stands still, too"
kill -TERM "$run"
wait "$run"
code=$?
[ $code -eq 143 ] || fail "code $code"
ls "$work/c"/step-*.safetensors >"$work/out" 2>&1 || fail "no checkpoint"
exec 8>&-

case="a signal that was ignored at the start"
rm -rf "$work/c"
rm -f "$work/log"
(trap '' INT; exec "$train" "${model[@]}" --steps=3000 "--log=$work/log" >"$work/out" 2>&1) &
run=$!
until grep -qs loss "$work/log"; do sleep 0.02; done
kill -INT "$run" || fail "it has ended already"
wait "$run"
code=$?
[ $code -eq 0 ] || fail "code $code"

if [ -n "$slurm" ]; then
    wait "$slurm"
    code=$?
    cat "$work/slurm.out"
    rm -f "$work/out"
    case $code in 0 | 77) ;; *) case="in a Slurm cluster" && fail "code $code, see above" ;; esac
fi
exit $((failures > 0))
