#!/usr/bin/env bash
# Kills a rank, or all, at random moments of a run that saves after every step: the newest checkpoint is whole, and nothing else is left.
# kills.sh [KILLS [SEED]]
set -u
kills=${1:-8}
seed=${2:-$(($(date +%N | sed 's/^0*//') % 32768))}
RANDOM=$seed
echo "seed $seed"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
options=(--layers=2 --heads=4 --width=128 --context=16 --batch=4 --micro-batch=2 --sample=0 "--data=${SOURCE:?}/include" --fsdp=2 --steps=100000
    --every=1 "--checkpoint=$work/c")
failures=0 saves=0

fail() {
    echo "kill $kill, $victims: $*"
    failures=$((failures + 1))
}

newest() { find "$work/c" -name 'step-*.safetensors' | sort | tail -n 1; }

for ((kill = 1; kill <= kills; ++kill)); do
    rm -rf "$work/c"
    "${BIN:?}/tutti-run" -n 2 sh -c 'echo $$ >"$0.$RANK"; exec "$@"' "$work/pid" "$BIN/tutti-train" "${options[@]}" >"$work/out" 2>&1 &
    run=$!
    for ((i = 0; i < 600; ++i)); do
        [ -n "$(newest 2>/dev/null)" ] && break
        sleep 0.05
    done
    sleep 0.$((RANDOM % 900 + 100))
    victims=$((RANDOM % 3))
    case $victims in
    2) kill -KILL $(cat "$work/pid.0" "$work/pid.1") ;;
    *) kill -KILL "$(cat "$work/pid.$victims")" ;;
    esac
    wait $run && fail "the run went on"
    file=$(newest)
    [ -n "$file" ] || { fail "no checkpoint" && continue; }
    step=$(basename "$file" .safetensors)
    saves=$((saves + 10#${step#step-}))
    # When rank 0 dies, it may leave the temporary file of the save that was under way, and no other.
    left=$(find "$work/c" -name '*.tmp')
    printf -v under_way '%s/c/step-%08d.safetensors' "$work" $((10#${step#step-} + 1))
    case $victims,$left in
    *,) ;;
    1,*) fail "$left is left" ;;
    *) [[ $left =~ ^"$under_way".[0-9]+.tmp$ ]] || fail "$left is left, at most the temporary file of $under_way may be" ;;
    esac
    timeout 60 "$BIN/tutti-train" "--resume=$file" --dp=0 --fsdp=1 --steps=$((10#${step#step-} + 1)) "--checkpoint=$work/c" --sample=0 >"$work/again" 2>&1 ||
        fail "$(tail -n 3 "$work/again")"
    [ -z "$(find "$work/c" -name '*.tmp')" ] || fail "the next run leaves $(find "$work/c" -name '*.tmp')"
done
echo "$kills kills after $saves saves, $failures wrong"
exit $((failures > 0))
