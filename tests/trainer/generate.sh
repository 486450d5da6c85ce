#!/usr/bin/env bash
# A checkpoint writes on (tutti-train generate): the same text on one rank and on two along tp, alone on standard output; what ends it; bad uses.
# BIN: the folder of the programs; SOURCE: that of the tree.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
train=${BIN:?}/tutti-train
failures=0

fail() {
    echo "$*"
    failures=$((failures + 1))
}

# write NAME NRANKS OPTIONS...: what is generated, in $work/NAME; messages in $work/NAME.err.
write() {
    "$BIN/tutti-run" -n "$2" "$train" generate "--from=$work/c" "${@:3}" >"$work/$1" 2>"$work/$1.err" || fail "$*: $(cat "$work/$1.err")"
}

# refuse SAYS OPTIONS...: fails with that text, and writes nothing.
refuse() {
    "$train" generate "${@:2}" >"$work/out" 2>"$work/err" && fail "$*: was taken"
    grep -qF -- "$1" "$work/err" || fail "$*: $(cat "$work/err")"
    [ ! -s "$work/out" ] || fail "$*: wrote something"
}

# Trained by four ranks in another layout than any below.
"$BIN/tutti-run" -n 4 "$train" --model=llama --pp=2 --fsdp=2 --heads=4 --kv-heads=2 --width=32 --context=64 --steps=40 --lr=0.01 --warmup=5 \
    --batch=16 --sample=0 "--data=${SOURCE:?}/include" "--checkpoint=$work/c" >"$work/out" 2>&1 || fail "training: $(tail -n 5 "$work/out")"

write one 1 --prompt=tutti --tokens=200 --temperature=0
write two 2 --prompt=tutti --tokens=200 --temperature=0
write pipeline 2 --prompt=tutti --tokens=200 --temperature=0 --pp=2
[ "$(wc -c <"$work/one")" -eq 200 ] || fail "one rank wrote $(wc -c <"$work/one") bytes, expected 200"
cmp "$work/one" "$work/two" || fail "two ranks wrote another text"
cmp "$work/one" "$work/pipeline" || fail "a pipeline wrote another text"
grep -q 'tokens/s' "$work/one.err" || fail "no speed: $(cat "$work/one.err")"

write warm 1 --prompt=tutti --tokens=200 --seed=5
write again 1 --prompt=tutti --tokens=200 --seed=5
write other 1 --prompt=tutti --tokens=200 --seed=6
write greedy 1 --prompt=tutti --tokens=200 --seed=6 --top-k=1
cmp "$work/warm" "$work/again" || fail "the same seed wrote another text"
! cmp -s "$work/warm" "$work/other" || fail "another seed wrote the same text"
cmp "$work/one" "$work/greedy" || fail "--top-k=1 is not the likeliest"

stop=$(tr -d '\n' <"$work/one" | cut -c 60-63)
write stopped 1 --prompt=tutti --tokens=200 --temperature=0 "--stop=$stop"
[ "$(wc -c <"$work/stopped")" -lt 200 ] || fail "--stop='$stop' did not end the text"
cmp -n "$(wc -c <"$work/stopped")" "$work/one" "$work/stopped" || fail "--stop changed the text"
! grep -qF -- "$stop" "$work/stopped" || fail "the stop text was written"

write none 1 --tokens=0
[ ! -s "$work/none" ] || fail "--tokens=0 wrote something"
refuse 'needs --from=CHECKPOINT' --prompt=x
refuse "$work/nothing" "--from=$work/nothing"
refuse '--resume=x is for training' "--from=$work/c" --resume=x
refuse '--checkpoint=x is for training' "--from=$work/c" --checkpoint=x
refuse '--plan does nothing for generate' "--from=$work/c" --plan
refuse '--width=64, but' "--from=$work/c" --width=64
refuse 'out of range' "--from=$work/c" --top-p=2
refuse 'tp=2' "--from=$work/c" --tp=2

# A file that says how to train is passed over, but for what generate has a use for.
echo '{"gradient_accumulation_steps": 3, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2}, "temperature": 0}' >"$work/train.json"
write file 1 --prompt=tutti --tokens=200 --config "$work/train.json"
cmp "$work/one" "$work/file" || fail "a file for training changed the text"

# ends SAYS COMMAND...: it writes without end, and ends all the same, with that error.
ends() {
    timeout 60 "${@:2}" 2>"$work/err"
    local code=$?
    [ "$code" -ne 0 ] && [ "$code" -ne 124 ] || fail "${*:2}: exit code $code"
    grep -qF -- "$1" "$work/err" || fail "${*:2}: $(cat "$work/err")"
}

endless=("$train" generate "--from=$work/c" --tokens=1000000000)
for launch in "" "$BIN/tutti-run -n 2"; do
    # shellcheck disable=SC2016,SC2086
    ends 'standard output: No space left' $launch bash -c '"$@" >/dev/full' bash "${endless[@]}"
    # shellcheck disable=SC2016,SC2086
    ends 'standard output: Broken pipe' $launch bash -c 'mkfifo "$0.$$"; exec 3<>"$0.$$" 4>"$0.$$" 3<&-; "$@" >&4' "$work/fifo" "${endless[@]}"
done
[ "$failures" -eq 0 ] && echo "generate: all is well"
exit "$failures"
