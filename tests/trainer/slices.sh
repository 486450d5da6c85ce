#!/usr/bin/env bash
# Where ranks do not see the folder of checkpoints, as on hosts that share no file system, rank 0 writes for them: the same file.
set -u
options=(--layers=2 --heads=4 --kv-heads=2 --width=32 --context=32 --batch=12 --micro-batch=2 --model=llama --sample=0 --steps=2
    "--data=${SOURCE:?}/include" --optimizer=muon --fsdp=2 --tp=2 --deterministic=on)
FAULTS_LIBRARY=${BIN:?}/../tests/libfaults.so
[ -f "$FAULTS_LIBRARY" ] || FAULTS_LIBRARY= # under sanitizers
export FAULTS_LIBRARY
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unshare -m true 2>"$work/why" || { echo "skipped: $(<"$work/why")" && exit 77; }

# Runs as a rank: those of $BLIND have another folder under the name.
cat >"$work/rank" <<'RANK'
#!/usr/bin/env bash
case " $BLIND " in *" $RANK "*) mount -t tmpfs none "$FOLDER" || exit 9 ;; esac
exec env "LD_PRELOAD=$FAULTS_LIBRARY" "FAULTS_LOG=$FOLDER.log" "$@"
RANK
chmod +x "$work/rank"

# train NAME BLIND: the folder becomes $work/NAME.
train() {
    rm -rf "$work/c" "$work/c.log" "$work/$1" && mkdir "$work/c"
    FOLDER=$work/c BLIND=$2 timeout 100 "$BIN/tutti-run" -n 4 unshare -m "$work/rank" "$BIN/tutti-train" "${options[@]}" \
        "--checkpoint=$work/c" >"$work/out" 2>&1 ||
        { echo "ranks $2 do not see the folder: exit code $?:" && tail -n 20 "$work/out" && exit 1; }
    mv "$work/c" "$work/$1"
    [ -z "$FAULTS_LIBRARY" ] && return
    # Only the header, at the beginning of the file, is written again behind the first wait for the disk.
    sed '1,/^fsync/d' "$work/c.log" | grep '^pwrite' | grep -vqE '^pwrite (0|8)$' && echo "ranks $2 do not see the folder: waits for the disk too early" &&
        failures=$((failures + 1))
    grep -q '^fsync' "$work/c.log" || { echo "no wait for the disk" && failures=$((failures + 1)); }
}

failures=0
train all ""
for blind in "1" "1 2 3"; do
    train one "$blind"
    all=$work/all/step-00000002.safetensors one=$work/one/step-00000002.safetensors
    behind_header=$((8 + $(od -An -tu8 -N8 "$all")))
    [ "$(stat -c %s "$all")" -gt "$behind_header" ] && cmp -i "$behind_header" "$all" "$one" || failures=$((failures + 1))
    [ "$(ls "$work/one")" = step-00000002.safetensors ] || { ls -la "$work/one" && failures=$((failures + 1)); }
done
exit $failures
