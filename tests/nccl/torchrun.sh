#!/usr/bin/env bash
# The commands of docs/nccl.md and README.md that run a job of PyTorch's on virtual GPUs, as they stand there, in a folder that has `build`
# as the project has it, with the job.py of docs/nccl.md.
# LIBRARY: libnccl.so.2; VGPU: the folder of the virtual GPU; SOURCE: the project; PYTHON: see torch.sh. Exit status 77: there is no
# PyTorch with CUDA.
set -uo pipefail
: "${LIBRARY:?}" "${VGPU:?}" "${SOURCE:?}"
. "$(dirname "$0")/torch.sh"
need_nccl
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
mkdir -p "$folder/build/lib"
ln -s "$LIBRARY" "$folder/build/lib/libnccl.so.2"
ln -s "$VGPU" "$folder/build/vgpu"
sed -n '/^    # job.py/,/^$/ s/^    //p' "$SOURCE/docs/nccl.md" >"$folder/job.py"
export PATH=$(dirname "$(command -v "$PYTHON")"):$PATH TUTTI_DEVICE_KERNELS=require
failed=0
for page in docs/nccl.md README.md; do
    command=$(sed -n '/^    build.*vgpu-run .*LD_PRELOAD/ { :more; /\\$/ { N; b more }; p }' "$SOURCE/$page")
    case $command in *torchrun*) ;; *) echo "WRONG $page has no command with torchrun" && exit 1 ;; esac
    said=$(cd "$folder" && timeout 300 bash -c "$command" 2>&1)
    status=$?
    # The two ranks' lines may come as one: Python writes a line and its end apart.
    [ $status -eq 0 ] && [ "$(grep -o 'rank [01] of 2: \[3.0, 3.0\]' <<<"$said" | sort -u | wc -l)" -eq 2 ] && continue
    echo "WRONG the command of $page ends with $status and says: $said"
    failed=1
done
exit $failed
