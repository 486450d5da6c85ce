#!/usr/bin/env bash
# A rank that stands still for 8 s is named by the other one while it does; the run goes on then.
# BIN: the folder of the programs; SOURCE: that of the tree.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset TUTTI_LATE_MS
export TUTTI_LOG=WARN
"${BIN:?}/tutti-run" -n 2 "$BIN/tutti-train" --layers=1 --heads=2 --width=16 --context=16 --batch=4 --steps=1000000 --sample=0 --held-out=0 \
    --log-every=10 "--data=${SOURCE:?}/include" >"$work/out" 2>&1 &
run=$!
end() { kill -TERM "$run" 2>/dev/null; wait "$run"; }
for _ in {1..300}; do grep -q '^step  *30 ' "$work/out" && break; sleep 0.1; done
rank=$(pgrep -x tutti-train -P "$(pgrep -P "$run" | paste -sd,),$run" | tail -n 1)
[ -n "$rank" ] || { end; echo "no rank was started"; exit 1; }
kill -STOP "$rank"
for _ in {1..80}; do sleep 0.1; done
named=$(grep -cE 'rank [01] .*has waited [0-9]+ ms in .*\(TUTTI_LATE_MS\).*rank [01]' "$work/out")
kill -CONT "$rank"
end
[ "$named" -ge 1 ] && grep -q 'ended by SIGTERM' "$work/out" && echo "a late rank is named" && exit 0
grep -v '^step' "$work/out" | tail -n 20
echo "$named lines name the rank that stands still, expected 1; or the run did not go on"
exit 1
