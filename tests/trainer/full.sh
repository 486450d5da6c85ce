#!/usr/bin/env bash
# A disk that is full in the middle of a run: the run goes on, saves at a later turn, and ends with a whole newest file; only the last save
# must succeed. The disk is a tmpfs in a user and mount namespace.
set -u
if [ "${1:-}" != inside ]; then
    why=$(unshare --user --map-root-user --mount sh -c 'mount -t tmpfs -o size=1M none /mnt' 2>&1) ||
        { echo "skipped: no tmpfs in a user namespace: $why" && exit 77; }
    exec unshare --user --map-root-user --mount "$0" inside
fi
work=$(mktemp -d)
trap '[ -z "$run" ] || kill -KILL "$run" 2>/dev/null; umount -l "$work/m" "$work/kept" 2>/dev/null; rm -rf "$work"' EXIT
options=(--layers=2 --heads=4 --width=128 --context=16 --batch=4 --micro-batch=2 --sample=0 --held-out=0 "--data=${SOURCE:?}/include")
train=${BIN:?}/tutti-train
folder=$work/m/c
failures=0 run=

fail() {
    echo "$case: $*"
    [ ! -s "$work/out" ] || tail -n 5 "$work/out"
    failures=$((failures + 1))
}

# disk TENTHS: an empty disk with room for so many tenths of a checkpoint.
disk() {
    umount "$work/m" 2>/dev/null
    mkdir -p "$work/m"
    mount -t tmpfs -o "size=$((size * $1 / 10))" none "$work/m" || exit 1
}

# begin RANKS OPTION...: a run in the background. Its output goes through a pipe, whose size nothing limits.
begin() {
    local ranks=$1
    rm -f "$work/out" "$work/pipe"
    mkfifo "$work/pipe"
    cat "$work/pipe" >"$work/out" &
    reader=$!
    shift
    "$BIN/tutti-run" -n "$ranks" sh -c 'echo $$ >"$0.$RANK"; exec "$@"' "$work/pid" "${as_rank[@]}" "$train" "${options[@]}" \
        "--checkpoint=$folder" --every=1 "$@" >"$work/pipe" 2>&1 &
    run=$!
}

# until_true COMMAND...: waits 20 s for it.
until_true() {
    local i
    for ((i = 0; i < 400; ++i)); do
        "$@" && return
        sleep 0.05
    done
    fail "never: $*"
}

warned() { grep -q 'the training goes on' "$work/out"; }
wrote() { grep -qs "^wrote $folder/step" "$work/out"; }
wrote_again() { sed '1,/the training goes on/d' "$work/out" | grep -q "^wrote $folder/step"; }
# Takes what is free, until a save finds nothing: a checkpoint that is removed leaves room behind the last look.
filled() {
    cat /dev/zero >>"$work/m/filler" 2>/dev/null
    warned
}

# ended CODE: it ends with that code, and the newest file is whole; nothing else is left. Sets step.
ended() {
    wait "$run"
    local code=$?
    run=
    wait "$reader"
    [ $code -eq "$1" ] || fail "exit code $code, expected $1"
    [ -z "$(find "$folder" -name '*.tmp')" ] || fail "$(find "$folder" -name '*.tmp') is left"
    rm -f "$work/m/filler"
    step=$(sed -n "s|^wrote $folder/step-0*\([0-9]*\).safetensors|\1|p" "$work/out" | tail -n 1)
    "$train" "--resume=$folder" "--steps=$((step + 1))" --dp=0 --fsdp=1 --sample=0 >"$work/again" 2>&1 || fail "resumed: $(tail -n 3 "$work/again")"
    grep -q "^resumed from $folder/step-0*$step.safetensors after step $step$" "$work/again" || fail "resumed from another step than $step"
}

# noted TEXT: a note before the first step has it.
noted() { sed '/^ *step /,$d' "$work/out" | grep -q "^note: .*$1" || fail "no note at the start: $1"; }

as_rank=()
case="size"
folder=$work/c
begin 1 --steps=1
ended 0
size=$(stat -c %s "$work/c/step-00000001.safetensors")
folder=$work/m/c

for ranks in 1 2; do
    case="full for a while, $ranks ranks"
    disk 55
    begin $ranks --fsdp=$ranks --steps=100000 --keep=1
    until_true wrote
    until_true filled
    rm "$work/m/filler"
    until_true wrote_again
    kill -TERM "$run"
    ended 143

    case="full to the end, $ranks ranks"
    disk 35
    begin $ranks --fsdp=$ranks --steps=40
    ended 1
    [ "$step" -eq 3 ] || fail "the newest is of step $step; there is room for 3"
    grep -q 'a checkpoint takes .* MiB, but .* MiB are free there' "$work/out" || fail "does not say why"
    [ "$(grep -c 'there is no checkpoint of step' "$work/out")" -eq 36 ] || fail "not a warning for each of steps 4 to 39"
    noted 'room for 3 checkpoints, but this run writes 40, which all stay'

    case="--keep makes room, $ranks ranks"
    disk 25
    begin $ranks --fsdp=$ranks --steps=7 --keep=2
    ended 0
    [ "$step" -eq 7 ] || fail "the newest is of step $step, not 7"
    warned || fail "no warning, with room for 2 and 3 at a time"
    noted 'room for 2 checkpoints, but --keep=2 has up to 3 at a time'

    case="--keep leaves room, $ranks ranks"
    disk 35
    begin $ranks --fsdp=$ranks --steps=7 --keep=2
    ended 0
    ! warned || fail "a warning"
    ! grep 'room for' "$work/out" || fail "a note"
    [ "$(ls "$folder" | wc -l)" -eq 2 ] || fail "$(ls "$folder")"
done

# told TEXT: the run has said it. told_and_wrote TEXT: and it has written a checkpoint behind that.
told() { grep -q -- "$1" "$work/out"; }
told_and_wrote() { sed "1,/$1/d" "$work/out" | grep -q "^wrote $folder/step"; }

# while_it_stands COMMAND...: between two moments of both ranks.
while_it_stands() {
    kill -STOP $(cat "$work/pid.0" "$work/pid.1")
    "$@" || fail "$*"
    kill -CONT $(cat "$work/pid.0" "$work/pid.1")
}

# Another run, which has one step and ends.
take_folder() {
    mv "$folder" "$work/m/away" && "$train" "${options[@]}" "--checkpoint=$folder" --steps=1 >"$work/other" 2>&1 && sum=$(sha256sum "$folder"/step-*)
}

lock_folder() {
    mv "$folder" "$work/m/away" && mkdir "$folder" && exec 9>"$folder/.lock" && flock 9
}

give_back() {
    mv "$folder" "$work/m/other" && mv "$work/m/away" "$folder" && rm -f "$folder"/*.tmp # of the save during which it went
}

for away in "rm -rf $folder" "mv $folder $work/m/away"; do
    case="a folder that goes: ${away%% *}"
    disk 75
    begin 2 --fsdp=2 --steps=100000 --keep=1
    until_true wrote
    while_it_stands $away
    until_true told_and_wrote "it is made again"
    ! flock -n "$folder/.lock" true || fail "the new folder is not locked"
    kill -TERM "$run"
    ended 143
done

case="a folder that another run has taken meanwhile, and locked"
disk 75
begin 2 --fsdp=2 --steps=100000 --keep=1
until_true wrote
while_it_stands lock_folder
until_true told "another run writes its checkpoints there.*the training goes on"
[ -z "$(find "$folder" -name 'step-*.safetensors')" ] || fail "wrote there all the same"
exec 9>&-
until_true told_and_wrote "it is locked anew"
kill -TERM "$run"
ended 143

case="a folder that another run has taken meanwhile, and ended"
disk 95
begin 2 --fsdp=2 --steps=100000 --keep=1
until_true wrote
while_it_stands take_folder
until_true told "it holds step-00000001.safetensors, a checkpoint of another run; .*the training goes on"
[ "$(sha256sum "$folder"/step-*)" = "$sum" ] || fail "the other run's checkpoint is another one, or not alone: $(ls "$folder")"
while_it_stands give_back
until_true told_and_wrote "a checkpoint of another run"
kill -TERM "$run"
ended 143
[ "$(cd "$work/m/other" && sha256sum step-* | cut -d' ' -f1)" = "${sum%% *}" ] || fail "the other run's checkpoint changed"

# Of the folder's file system another place is kept, where it is mounted again from.
put_away() {
    case $1 in
    above) mv "$work/m/above" "$work/m/away" ;;
    disk | root) umount -l "$work/m" ;;
    esac
}
put_back() {
    case $1 in
    above) mv "$work/m/away" "$work/m/above" ;;
    disk | root) mount --bind "$work/kept" "$work/m" ;;
    esac && rm -f "$folder"/*.tmp # of the save during which it went
}
mkdir "$work/kept"
gone="the folder is \(away, and\|on another file system\)"
for away in above disk root; do
    case="a folder that is away for a while: $away"
    disk 55
    mount --bind "$work/m" "$work/kept"
    case $away in
    above) folder=$work/m/above/c ;;
    disk) folder=$work/m/c ;;
    root) folder=$work/m ;;
    esac
    begin 2 --fsdp=2 --steps=100000 --keep=1
    until_true wrote
    while_it_stands put_away $away
    until_true told "$gone.*the training goes on"
    [ $away = root ] || [ ! -e "$folder" ] || fail "it was made again"
    [ -z "$(ls -A "$folder" 2>/dev/null)" ] || fail "it was written to"
    while_it_stands put_back $away
    until_true told_and_wrote "$gone"
    kill -TERM "$run"
    ended 143
    umount "$work/kept"
done
folder=$work/m/c

case="a folder that is away at the end"
disk 55
mkdir "$work/m/above"
folder=$work/m/above/c
begin 2 --fsdp=2 --steps=100000 --keep=1
until_true wrote
while_it_stands mv "$work/m/above" "$work/m/away"
until_true told "the folder is away, and .*the training goes on"
kill -TERM "$run"
wait "$run"
code=$?
run=
wait "$reader"
[ $code -ne 0 ] && [ $code -ne 143 ] || fail "exit code $code, though the last checkpoint could not be written"
[ ! -e "$folder" ] || fail "it was made again"
folder=$work/m/c

case="a file system that does not say how much room it has"
umount "$work/m"
mount -t tmpfs -o size=0 none "$work/m" || exit 1
begin 1 --steps=1
ended 0

# Rank 1's writes fail, of a file that rank 0 could begin and take room for.
case="one rank cannot write"
disk 55
begin 2 --fsdp=2 --steps=100000 --keep=1
until_true wrote
prlimit --pid "$(cat "$work/pid.1")" --fsize=1: || fail "prlimit"
until_true warned
grep -q 'rank 1: .*: File too large' "$work/out" || fail "does not say why"
prlimit --pid "$(cat "$work/pid.1")" --fsize=unlimited: || fail "prlimit"
until_true wrote_again
kill -TERM "$run"
ended 143
exit $((failures > 0))
