#!/usr/bin/env bash
# A signal to any rank ends a run after its step, with a checkpoint and the signal's code; resumed, it has the losses of an unbroken run,
# bit for bit.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
train=${BIN:?}/tutti-train
model=(--layers=2 --heads=2 --width=64 --context=64 --batch=16 --micro-batch=4 --warmup=5 --lr=0.003 --sample=0 "--data=${SOURCE:?}/include")
layout=(--fsdp=2)
steps=400
failures=0

fail() {
    echo "$case: $*"
    [ ! -s "$work/out" ] || tail -n 5 "$work/out"
    failures=$((failures + 1))
}

# begin COMMAND...: in the background, with signals as a terminal's shell would give them; waits for the first steps.
begin() {
    rm -rf "$work/c" "$work/log" "$work/out"
    env --default-signal=INT,TERM,USR1 "$@" "$train" "${model[@]}" "${layout[@]}" "--steps=$steps" "--checkpoint=$work/c" "--log=$work/log" \
        >"$work/out" 2>&1 &
    run=$!
    for ((i = 0; i < 5000; ++i)); do
        [ -f "$work/log" ] && [ "$(grep -c loss "$work/log")" -gt 3 ] && return
        sleep 0.02
    done
    fail "no steps"
}

# ended CODE NAME: it has saved, says how to go on, and ends with that code.
ended() {
    wait "$run"
    local code=$?
    [ $code -eq "$1" ] || fail "code $code, expected $1"
    step=$(sed -n "s/^ended by SIG$2 after step \([0-9]*\) of $steps; go on with --resume=.*/\1/p" "$work/out")
    [ -n "$step" ] || { fail "does not say that SIG$2 ended it" && step=0; }
    [ -f "$work/c/step-$(printf %08d "$step").safetensors" ] || fail "no checkpoint of step $step"
}

rank_pid() { pgrep -P "$(pgrep -d, -P "$run")" -x tutti-train | sed -n "$(($1 + 1))p"; }

losses() { sed -n 's/.*"step": \([0-9]*\), .*"loss": \([^,]*\), .*"norm": \([^,]*\),.*/\1 \2 \3/p' "$1"; }
case=straight
"$BIN/tutti-run" -n 2 "$train" "${model[@]}" "${layout[@]}" --steps=$steps "--log=$work/straight" >"$work/out" 2>&1 || fail "code $?"

for signal in INT:130 TERM:143 USR1:138; do
    name=${signal%:*} code=${signal#*:}
    case="SIG$name to tutti-run"
    begin "$BIN/tutti-run" -n 2
    kill "-$name" "$run"
    ended "$code" "$name"
    "$BIN/tutti-run" -n 2 "$train" "--resume=$work/c" "--log=$work/log" --sample=0 >"$work/out" 2>&1 || fail "resumed: code $?"
    [ "$(losses "$work/log" | wc -l)" -eq $steps ] || fail "$(losses "$work/log" | wc -l) losses in the log, not $steps"
    cmp <(losses "$work/log") <(losses "$work/straight") || fail "other losses than without the signal"
done

case="SIGTERM to rank 1 alone"
begin "$BIN/tutti-run" -n 2
kill -TERM "$(rank_pid 1)"
ended 143 TERM

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

case="a second SIGINT after 2 s"
layout=() model+=(--width=512 --layers=16 --batch=96 --micro-batch=12 --context=128)
rm -f "$work/out"
env --default-signal=INT "$train" "${model[@]}" --threads=1 --steps=1000000 "--checkpoint=$work/c" >"$work/out" 2>&1 &
run=$!
until grep -qs "^memory of" "$work/out" || ! kill -0 "$run" 2>/dev/null; do sleep 0.05; done
sleep 1
kill -INT "$run"
sleep 2.1
grep -q "Ctrl-C again" "$work/out" && kill -0 "$run" || fail "the first SIGINT was not heard, or ended the run"
kill -INT "$run"
wait "$run"
code=$?
[ $code -eq 130 ] || fail "code $code"
! grep -q "ended by" "$work/out" || fail "the step has ended: this test needs a longer one"

case="a signal that was ignored at the start"
layout=() model=(--layers=1 --heads=2 --width=32 --context=32 --batch=4 --sample=0 "--data=$SOURCE/include")
rm -rf "$work/c"
rm -f "$work/log"
(trap '' INT; exec "$train" "${model[@]}" --steps=3000 "--log=$work/log" >"$work/out" 2>&1) &
run=$!
until grep -qs loss "$work/log"; do sleep 0.02; done
kill -INT "$run" || fail "it has ended already"
wait "$run"
code=$?
[ $code -eq 0 ] || fail "code $code"
exit $((failures > 0))
