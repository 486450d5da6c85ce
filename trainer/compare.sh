#!/usr/bin/env bash
# Times tutti-train against PyTorch on this machine: the same model on the same bytes, one after the other, several turns.
# For developers; nothing else needs it. PyTorch's environment is that of ./check torch.
set -euo pipefail

usage() {
    cat <<'END'
usage: trainer/compare.sh [OPTION]...

  --build DIR     tutti's build folder (default: build)
  --rows LIST     of thread threads ddp fsdp gpt2, comma-separated (default: all)
  --turns N       how often each row is run with either program, the one first and the other first by turns (default: 5)
  --steps N       steps of a run, of which the first two are not counted (default: 8; row gpt2: 4)
  --data FILE     the text (default: the pages in docs)
  --against DIR   tutti-train of another build folder, an old commit's say, in place of PyTorch
  --help          this text

thread is one process with one thread, threads one with two, ddp and fsdp are two ranks with one thread each: 10.7 million parameters
(6 layers, 6 heads, 384 wide, context 256, 8 sequences a step, 4 at a time). gpt2 is GPT-2 with 124 million (12 layers, 12 heads,
768 wide, context 1024, vocabulary 50257, 2 sequences a step) on two ranks with FSDP. All in fp32, AdamW, clipping, tied head.

Prints tokens/s of all ranks: the best step of all turns, the median of the turns' medians, their ratio (above 1: tutti is
faster), and the processors' seconds of a run. TUTTI_PYTHON: the Python that has PyTorch (~/.cache/tutti-torch/bin/python).
END
}

die() {
    echo "compare.sh: $1" >&2
    exit 2
}

cd "$(dirname "$0")/.."
build=build rows=thread,threads,ddp,fsdp,gpt2 turns=5 steps='' data='' against=''
python=${TUTTI_PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/tutti-torch/bin/python}
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage && exit 0 ;;
    --build | --rows | --turns | --steps | --data | --against)
        [ $# -ge 2 ] || die "$1 needs a value"
        declare "${1#--}=$2"
        shift 2
        ;;
    *) die "unknown option '$1'; try --help" ;;
    esac
done
[[ $turns =~ ^[1-9][0-9]{0,3}$ ]] || die "--turns $turns: expected a whole number from 1 to 9999"
[[ -z $steps || $steps =~ ^([3-9]|[1-9][0-9]{1,4})$ ]] || die "--steps $steps: expected a whole number from 3 to 99999"
for row in ${rows//,/ }; do
    [[ $row =~ ^(thread|threads|ddp|fsdp|gpt2)$ ]] || die "--rows: no row '$row'; expected thread, threads, ddp, fsdp or gpt2"
done
for folder in "$build" $against; do
    [ -x "$folder/bin/tutti-train" ] || die "there is no $folder/bin/tutti-train; build it first"
done
peer=PyTorch
if [ -n "$against" ]; then
    peer=$against
elif ! "$python" -c 'import torch' 2>/dev/null; then
    die "$python cannot import torch; ./check torch --install makes that environment, or set TUTTI_PYTHON"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$data" ]; then
    data=$work/pages
    cat docs/*.md >"$data"
fi
[ -r "$data" ] || die "--data $data: there is no such file"

# Sets ranks, and the options that both programs have.
shape() {
    local small='--layers=6 --heads=6 --width=384 --context=256 --batch=8 --micro-batch=4'
    ranks=2 threads=1 parallel=$1 sizes=$small nsteps=${steps:-8}
    case $1 in
    thread) ranks=1 parallel=none ;;
    threads) ranks=1 threads=2 parallel=none ;;
    gpt2)
        parallel=fsdp nsteps=${steps:-4}
        sizes='--layers=12 --heads=12 --width=768 --context=1024 --vocabulary=50257 --batch=2 --micro-batch=1'
        ;;
    esac
}

tutti_run() {
    local folder=$1 axis=() run=()
    case $parallel in
    ddp) axis=(--dp=2) ;;
    fsdp) axis=(--fsdp=2) ;;
    esac
    [ "$ranks" = 1 ] || run=("$folder/bin/tutti-run" -n 2)
    rm -f "$work/steps"
    # shellcheck disable=SC2086 # several options
    "${run[@]}" "$folder/bin/tutti-train" $sizes "${axis[@]}" --threads=$threads --steps=$nsteps --data="$data" --tied=on --lr=6e-4 \
        --sample=0 --held-out=0 --log="$work/steps" >"$work/out" 2>&1
}

torch_run() {
    # shellcheck disable=SC2086 # several options
    "$python" trainer/peers/torch_gpt.py $sizes --parallel=$parallel --ranks=$ranks --threads=$threads --steps=$nsteps \
        --data="$data" >"$work/out" 2>&1
}

# timed NAME COMMAND...: appends to NAME.medians, .best and .processors the tokens/s of the steps behind the first two, and processor seconds.
timed() {
    local name=$1 tokens status=0 user system
    shift
    TIMEFORMAT='%U %S'
    { time "$@"; } 2>"$work/time" || status=$?
    [ $status -eq 0 ] || { tail -n 5 "$work/out" >&2 && echo "compare.sh: $row, $name: the run failed ($status)" >&2 && exit 1; }
    read -r user system < <(tail -n 1 "$work/time")
    tokens=$(sed -nE 's/.*--context=([0-9]+) .*--batch=([0-9]+) .*/\1 \2/p' <<<"$sizes" | awk '{ print $1 * $2 }')
    if [ "$name" = peer ] && [ -z "$against" ]; then
        awk -v tokens="$tokens" '/^seconds /{ print tokens / $2 }' "$work/out"
    else
        sed -nE 's/.*"tokens_per_second": ([0-9.e+]+).*/\1/p' "$work/steps"
    fi | tail -n +3 | sort -g >"$work/rates"
    [ -s "$work/rates" ] || { echo "compare.sh: $row, $name: no step was timed" >&2 && exit 1; }
    median <"$work/rates" >>"$work/$row.$name.medians"
    tail -n 1 "$work/rates" >>"$work/$row.$name.best"
    echo "$user $system" | awk '{ print $1 + $2 }' >>"$work/$row.$name.processors"
}

median() { sort -g | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
best() { sort -g | tail -n 1; }

run_one() {
    if [ "$1" = tutti ]; then
        timed tutti tutti_run "$build"
    elif [ -n "$against" ]; then
        timed peer tutti_run "$against"
    else
        timed peer torch_run
    fi
}

for turn in $(seq "$turns"); do
    for row in ${rows//,/ }; do
        shape "$row"
        if [ $((turn % 2)) -eq 1 ]; then order=(tutti peer); else order=(peer tutti); fi
        for one in "${order[@]}"; do run_one "$one"; done
        echo "turn $turn of $turns: $row: tutti $(tail -n 1 "$work/$row.tutti.medians"), $peer $(tail -n 1 "$work/$row.peer.medians") tokens/s" >&2
    done
done
printf '%-8s  %22s  %22s  %6s  %6s  %18s\n' row "tutti, best (median)" "$peer, best (median)" best median "processor seconds"
for row in ${rows//,/ }; do
    for one in tutti peer; do
        declare "best_$one=$(best <"$work/$row.$one.best")" "median_$one=$(median <"$work/$row.$one.medians")" \
            "processors_$one=$(median <"$work/$row.$one.processors")"
    done
    # shellcheck disable=SC2154 # declared above
    awk -v row="$row" -v b="$best_tutti" -v m="$median_tutti" -v pb="$best_peer" -v pm="$median_peer" -v c="$processors_tutti" -v pc="$processors_peer" \
        'BEGIN { printf "%-8s  %12.0f (%7.0f)  %12.0f (%7.0f)  %6.2f  %6.2f  %8.1f %8.1f\n", row, b, m, pb, pm, b / pb, m / pm, c, pc }'
done
