#!/usr/bin/env bash
# ptxas takes the kernels' PTX for sm_75, the oldest GPU, whose code takes half a minute to make. ptxas names every error of a file before
# it makes code: a function with one error stands behind the kernels, and nothing else may be wrong.
# Arguments come from CMake: ARCHITECTURES (that for sm_75, or nothing), PTXAS, IMAGE (the fat binary, beside which the build kept the PTX).
. "$(dirname "$0")/../house/common.sh"
ptx=$(grep -lx '\.target sm_75' "$IMAGE.kept"/run*.ptx 2>/dev/null | head -n 1) || true
[ -n "$ARCHITECTURES" ] || skip "this build has no PTX for sm_75 (TUTTI_CUDA_ARCHITECTURES)"
[ -n "$ptx" ] || { fail "no file of $IMAGE.kept is the PTX for sm_75, which this build was to make"; finish; }
[ -x "$PTXAS" ] || skip "there is no ptxas beside nvcc"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    cat "$ptx"
    printf '.func tt_planted()\n{\n    mov.u32 %%tt_planted, 0;\n}\n'
} >"$work/kernels.ptx"
first=$(wc -l <"$ptx")
"$PTXAS" -arch=sm_75 -o "$work/cubin" "$work/kernels.ptx" >"$work/log" 2>&1 && fail "ptxas did not see the planted error"
grep -q "Unknown symbol '%tt_planted'" "$work/log" || fail "ptxas did not name the planted error"
awk -v first="$first" '/error +:/ { line = $0; sub(/.*, line /, "", line); if (line + 0 <= first) print }' "$work/log" >"$work/others"
[ ! -s "$work/others" ] || fail "ptxas: errors in the PTX for sm_75:"$'\n'"$(head -n 20 "$work/others")"
[ "$failures" -eq 0 ] || head -n 20 "$work/log"
finish "ptxas sees no error in the PTX for sm_75"
