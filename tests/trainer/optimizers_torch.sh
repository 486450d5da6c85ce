#!/usr/bin/env bash
# PyTorch's optimizers, and DeepSpeed's LAMB written once more, take the same step as tutti-train (optimizers_torch.py).
# RUN: tutti-run; TRAIN: tutti-train.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${RUN:?}" "${TRAIN:?}"
. "$here/../nccl/torch.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0 folders=()
for optimizer in adamw sgd lamb muon; do
    for layout in "1 --model=gpt2" "4 --model=llama --kv-heads=2 --fsdp=2 --tp=2"; do
        folder=$work/$optimizer-${layout%% *}
        # shellcheck disable=SC2086
        TUTTI_LOG=NONE timeout 60 "$RUN" -n "${layout%% *}" "$TRAIN" ${layout#* } --optimizer="$optimizer" --layers=1 --width=48 --hidden=80 \
            --context=32 --batch=4 --steps=3 --every=1 --warmup=0 --min-lr=1 --lr=0.01 --clip=0 --decay=0.1 --beta1=0.6 --momentum=0.6 \
            --beta2=0.99 --eps=1e-6 --sample=0 --held-out=0 --data="$here/optimizers_torch.py" --checkpoint="$folder" >"$work/out" 2>&1 ||
            { echo "FAILED $optimizer $layout" && cat "$work/out" && failures=$((failures + 1)) && continue; }
        folders+=("$folder")
    done
done
"$PYTHON" -W ignore "$here/optimizers_torch.py" "${folders[@]}" && [ $failures -eq 0 ]
