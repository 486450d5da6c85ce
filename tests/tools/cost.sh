#!/bin/sh
# tutti-plan cost: what it prints adds up, what it says of links, and what it refuses. $PLAN is the program.
. "$(dirname "$0")/run_common.sh"

# plan CODE TEXT arguments...
plan() {
    code=$1 text=$2
    shift 2
    "$PLAN" cost "$@" >"$work/out" 2>&1
    expect "code of tutti-plan cost $*" "$code" $?
    contains "tutti-plan cost $*" "$text" "$work/out"
}

# adds_up NAME: the rows of $work/out, and what the call takes besides, are the time that is printed, but for rounding.
adds_up() {
    expect "sum of $1" "" "$(awk '
        /^ *[0-9]/ && column && !constants { sum += $column; rows++ }
        /^step|^ +us/ { column = $1 == "step" ? 2 : 1 }
        /^call / { sum += $2; rows++ }
        /^constants/ { constants = 1 }
        /^time / { if (rows < 2 || sum - $2 > 0.06 * rows || $2 - sum > 0.06 * rows) print sum, "is not", $2 }' "$work/out")"
}

# without_kind NAME: each constant in $work/out has a unit, a kind and a source.
without_kind() {
    expect "constants without a kind of $1" "" "$(sed -n '/^constants/,$p' "$work/out" | grep -v '^constants' |
        grep -vE '^  [a-z_]+ +[0-9.]+ [A-Za-z/]+ +(measured|fitted|counted|published|estimated)  .' || true)"
}

plan 0 "all_reduce:two_shot of 268435456 bytes on 8 GPUs over nvlink4: a model, not a measurement" --gpus 8 --link nvlink4 --bytes 256M
adds_up "8 GPUs"
contains "8 GPUs" "32 blocks of 512 threads a rank, 8 rounds; messages as slots" "$work/out"
contains "8 GPUs" "GB/s  published  H100: one GPU writes to another (github.com/NVIDIA/nccl/issues/1264)" "$work/out"
without_kind "8 GPUs"
for link in nvlink3 nvlink5 pcie4 pcie5; do
    plan 0 "on 8 GPUs over $link: a model" --gpus 8 --link $link --bytes 1M
    adds_up $link
done
plan 0 "2 blocks of 512 threads a rank" all_gather:ring --gpus 4 --bytes 1M --blocks 2
adds_up "all_gather:ring"
plan 0 "on 2 ranks that share one GPU: a model" --gpus 2 --link gpu --bytes 1M
for link in tcp rdma dmabuf; do
    plan 0 "bytes on 16 GPUs of 2 hosts over $link: a model" --gpus 2x8 --link $link --bytes 256M
    contains $link "kernels, inside a host over nvlink4; between hosts" "$work/out"
    contains $link "a host sends 268435456 bytes to others" "$work/out"
    contains $link "  proxy_copy " "$work/out"
    adds_up $link
    without_kind $link
done
plan 0 "2 blocks of 512 threads a rank" all_reduce:recursive_doubling --gpus 2x8 --link tcp --bytes 64K # each block's messages are frames of their own
plan 0 "32 blocks of 512 threads a rank" all_reduce:recursive_doubling --gpus 8 --bytes 64K
plan 0 "8 blocks of 512 threads a rank" all_reduce:parallel/ring --gpus 2x8 --link rdma --bytes 64M --blocks 8
adds_up "all_reduce:parallel/ring"
for link in tcp rdma; do
    plan 0 "bytes on 16 GPUs of 2 hosts over $link: a model" --gpus 2x8 --link $link --bytes 256M --staged
    contains "staged $link" "staged, as with TUTTI_DEVICE_BRIDGES=0: copied to pinned memory" "$work/out"
    adds_up "staged $link"
    without_kind "staged $link"
done
plan 0 "GPUs of 2 hosts over tcp" barrier --gpus 2x2 --bytes 0
plan 0 "on 4 GPUs over nvlink4" barrier --gpus 4 --bytes 0
TUTTI_DEVICE_CHANNELS=8 plan 0 "8 blocks of 512 threads" --gpus 8 --bytes 64M
TUTTI_DEVICE_SLOTS=3 plan 2 "TUTTI_DEVICE_SLOTS=3 is no power of two from 2 to 64" --gpus 8 --bytes 64M

# The tables of docs/cuda-model.md have what is printed: arguments, algorithm, time, bandwidth, and the parts of links, network and proxies.
grep '^| `[a-z_]* --gpus' "$(dirname "$0")/../../docs/cuda-model.md" | tr -d '`' >"$work/rows"
[ "$(wc -l <"$work/rows")" -ge 30 ] || expect "rows of docs/cuda-model.md" "30 or more" "$(wc -l <"$work/rows")"
while IFS='|' read -r _ arguments algorithm us bandwidth link network proxy _; do
    "$PLAN" cost $arguments >"$work/out" 2>&1
    sed -n '1s/^[a-z_]*:\([a-z_\/]*\) .*/algorithm \1/p
        s/^time \(.*\) us, algorithm bandwidth .*, bus bandwidth \(.*\) GB.*/us \1 bandwidth \2/p
        s/^the link alone takes .*, \(.*\) % of the time/link \1 %/p
        s/^the network alone takes .*, \(.*\) % of the time/network \1 %/p
        s/^the busiest proxy alone takes .*, \(.*\) % of the time/proxy \1 %/p
        s/^staged, .*/link staged/p' "$work/out" | sort >"$work/printed"
    {
        echo algorithm $algorithm && echo us $us bandwidth $bandwidth && echo link $link
        case $arguments in
        *staged*) ;;
        *x*) echo network $network && echo proxy $proxy ;;
        esac
    } | sort >"$work/expected"
    expect "docs/cuda-model.md: $arguments" "$(cat "$work/expected")" "$(cat "$work/printed")"
done <"$work/rows"

# Mistakes.
plan 2 "--gpus is missing" --bytes 8
plan 2 "--bytes is missing" --gpus 8
plan 2 "--gpus takes GPUs of a host, or hosts and their GPUs, once: 8, 2x8 or 3,1,4, not '0'" --gpus 0 --bytes 8
plan 2 "--gpus takes GPUs of a host, or hosts and their GPUs, once: 8, 2x8 or 3,1,4, not '-8'" --gpus -8 --bytes 8
plan 2 "--gpus takes GPUs of a host, or hosts and their GPUs, once: 8, 2x8 or 3,1,4, not '4'" --gpus 8 --gpus 4 --bytes 8
plan 2 "--gpus 65: the model takes at most 64 GPUs of a host" --gpus 65 --bytes 1K
plan 2 "--link takes one of gpu, nvlink3, nvlink4, nvlink5, pcie4, pcie5, tcp, rdma, dmabuf, not 'nvlink'" --gpus 8 --bytes 8 --link nvlink
plan 2 "--link tcp is between hosts, and all GPUs are on one: give --gpus 2x8" --gpus 8 --bytes 8 --link tcp
plan 2 "--link pcie5 is inside a host" --gpus 2x8 --bytes 8 --link pcie5
plan 2 "--bytes takes bytes, or a number with K, M, G or T, not '8X'" --gpus 8 --bytes 8X
plan 2 "--bytes 3: all_reduce over 8 GPUs has at least 4 bytes" --gpus 8 --bytes 3
plan 2 "--bytes 8: all_gather over 8 GPUs has at least 32 bytes" all_gather --gpus 8 --bytes 8
plan 2 "--bytes 137438953472: the model takes at most 64G" --gpus 8 --bytes 128G
plan 2 "--blocks takes a number from 2 to 64, not '0'" --gpus 8 --bytes 8 --blocks 0
plan 2 "--blocks takes a number from 2 to 64, not '65'" --gpus 8 --bytes 8 --blocks 65
plan 2 "--blocks is of kernels, and --staged calls have none" --gpus 2x8 --bytes 8 --blocks 8 --staged
plan 2 "--staged is of several hosts, and all GPUs are on one: give --gpus 2x8" --gpus 8 --bytes 8 --staged
plan 2 "--staged goes through memory of the host, where --link dmabuf does not differ from rdma" --gpus 2x8 --bytes 8 --link dmabuf --staged
plan 2 "--gpus 136: kernels between hosts take at most 128 GPUs: give --staged" --gpus 17x8 --bytes 1K
plan 2 "--gpus 65: the model takes at most 64 GPUs of a host" --gpus 2x65 --bytes 1K
plan 2 "there is no such collective (see tutti-plan list): 'allreduce'" allreduce --gpus 8 --bytes 8
plan 2 "all_reduce has no algorithm 'rings': there are naive, ring" all_reduce:rings --gpus 8 --bytes 8
plan 2 "cost takes one COLLECTIVE[:ALGORITHM]" all_reduce broadcast --gpus 8 --bytes 8
for option in "--ranks 8" "--hosts 2x4" "--root 1" "--rank 0" "--counts 8" --all --deterministic --exact "--output x" "--seconds 5"; do
    plan 2 "${option% *} is no option of cost, which takes --bytes, --gpus, --link, --blocks, --staged" $option --gpus 8 --bytes 8
done
plan 2 "all_reduce:ring/ring" all_reduce:ring/ring --gpus 8 --bytes 8
plan 2 "all_reduce:meet has ranks that meet, which kernels do not between hosts: give another algorithm, or --staged" all_reduce:meet --gpus 2x8 --bytes 8
plan 2 "all_reduce:meet/ring has ranks that meet" all_reduce:meet/ring --gpus 2x8 --bytes 8
plan 2 "all_reduce:meet" all_reduce:meet --gpus 2x8 --bytes 8 --staged

finish
