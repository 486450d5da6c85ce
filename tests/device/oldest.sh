#!/usr/bin/env bash
# ptxas takes the kernels' PTX for sm_75, the oldest GPU, and all PTX for the oldest drivers, whose version is 8.4. To make code of one
# takes half a minute, but ptxas names every error of a file before it makes code: a function with one error stands behind the kernels,
# and nothing else may be wrong.
# Arguments come from CMake: ARCHITECTURES (that for sm_75, or nothing), PTXAS, IMAGE and OLDER (the fat binaries, beside which the build
# kept the PTX).
. "$(dirname "$0")/../house/common.sh"
ptx=$(grep -lx '\.target sm_75' "$IMAGE.kept"/run*.ptx 2>/dev/null | head -n 1) || true
[ -n "$ARCHITECTURES" ] || skip "this build has no PTX for sm_75 (TUTTI_CUDA_ARCHITECTURES)"
[ -n "$ptx" ] || { fail "no file of $IMAGE.kept is the PTX for sm_75, which this build was to make"; finish; }
[ -x "$PTXAS" ] || skip "there is no ptxas beside nvcc"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# sees ARCHITECTURE PTX TEXT ERROR: ptxas sees that error alone where the text stands behind the PTX.
sees() {
    local first
    {
        cat "$2"
        printf '%s' "$3"
    } >"$work/kernels.ptx"
    first=$(wc -l <"$2")
    "$PTXAS" -arch="$1" -o "$work/cubin" "$work/kernels.ptx" >"$work/log" 2>&1 && fail "$2: ptxas did not see the planted error"
    grep -q "$4" "$work/log" || fail "$2: ptxas did not name the planted error: $4"
    awk -v first="$first" '/error +:/ { line = $0; sub(/.*, line /, "", line); if (line + 0 <= first) print }' "$work/log" >"$work/others"
    [ ! -s "$work/others" ] || fail "ptxas: errors in $2:"$'\n'"$(head -n 20 "$work/others")"
    [ "$failures" -eq 0 ] || head -n 20 "$work/log"
}
sees sm_75 "$ptx" '.func tt_planted()
{
    mov.u32 %tt_planted, 0;
}
' "Unknown symbol '%tt_planted'"

# The planted error is an instruction that PTX has since 8.6: ptxas goes by the version that the file names.
older=("$OLDER.kept"/compute_*.ptx)
[ -e "$OLDER.kept/compute_75.ptx" ] || fail "$OLDER.kept has no PTX for sm_75 and older drivers"
for ptx in "${older[@]}"; do
    number=${ptx##*_}
    sees "sm_${number%.ptx}" "$ptx" '.func tt_planted()
{
    .reg .b32 %tt_value;
    redux.sync.min.f32 %tt_value, %tt_value, 0;
}
' "'redux.f32' requires PTX ISA .version 8.6 or later"
done
finish "ptxas sees no error in the PTX for sm_75, nor in that for drivers of CUDA 12.4"
