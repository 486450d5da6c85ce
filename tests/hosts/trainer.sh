#!/usr/bin/env bash
# The trainer learns the same on several hosts as on one: same data, same global batch, same losses.
set -u
here=$(dirname "$(readlink -f "$0")")
[ -x "${BIN:?the folder of the programs}/tutti-train" ] || { echo "skipped: tutti-train was not built" && exit 77; }
if [ -z "${INSIDE-}" ]; then INSIDE=1 exec "$here/with-hosts" --hosts 3 --nics 2 "$0"; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
steps=40
options=(--layers=2 --heads=2 --width=32 --context=32 --batch=12 --micro-batch=3 --warmup=5 --sample=0 --lr=0.003
    --bucket-kib=16 --steps=$steps "--data=$(readlink -f "$here/../../include")")

# train NAME COMMAND...: its losses, one a line, in $work/NAME.
train() {
    local name=$1
    shift
    timeout 100 "$@" "$BIN/tutti-train" "${options[@]}" "--log=$work/$name.log" >"$work/$name.out" 2>&1 ||
        { echo "$name: exit code $?:" && tail -n 20 "$work/$name.out" && exit 1; }
    sed -n 's/.*"loss": \([0-9.e+-]*\).*/\1/p' "$work/$name.log" >"$work/$name"
    [ "$(wc -l <"$work/$name")" -eq $steps ] || { echo "$name: not $steps losses in its log" && exit 1; }
}

train alone env
failures=0
for layout in 1,1 2,1 1,1,1; do
    train "$layout" "$here/ranks" "$layout"
    off=$(paste "$work/alone" "$work/$layout" | awk '{ d = $2 / $1 - 1; d = d < 0 ? -d : d; if (d > most) most = d } END {
        print most + 0 }')
    echo "ranks on hosts $layout: losses from $(head -n 1 "$work/$layout") to $(tail -n 1 "$work/$layout"), off by $off at most"
    awk -v off="$off" 'BEGIN { exit !(off < 1e-4) }' || failures=$((failures + 1))
done
exit $failures
