#!/usr/bin/env bash
# Only the trainer's backend (trainer/ops) reads and writes tensors. Its other files work out addresses and pass them on, so they compile
# where a float is a type that cannot be read (tensors.h). Those with floats of the host's own are listed, with what these are.
. "$(dirname "$0")/common.sh"
declare -A own=(
    [trainer/choice.c]="logits that a token is drawn from"
    [trainer/ckpt/compare.c]="a number that is not finite, for its error"
    [trainer/ckpt/save.c]="numbers on their way to the file"
    [trainer/evaluate.c]="logits that the caller gets"
    [trainer/model/model.c]="the deviation of first values"
    [trainer/parallel/flight.c]="times of the library's events"
    [trainer/run.c]="weights of tokens"
    [trainer/tokens.c]="weights of tokens, before they go to the backend"
)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# compiles FILE: whether it does where tensors cannot be read; and no float is copied into a variable.
compiles() {
    "$CC" -std=c17 -D_GNU_SOURCE -DTUTTI_SOURCE_DIR='""' -Iinclude -Itrainer -I. -include tests/house/tensors.h -fsyntax-only "$1" 2>"$work/why" &&
        ! grep -nE '(^|[^a-z_"])float [a-z_0-9]+( =|;|,|\[)' "$1" >"$work/why"
}

# The test itself: what it must refuse, and what it must not.
plant() {
    printf 'float *f(float *x, const float *y, double *z, size_t n);\nfloat *f(float *x, const float *y, double *z, size_t n)\n{\n    %s\n}\n' "$1" \
        >"$work/planted.c"
    compiles "$work/planted.c"
}
for text in 'x[n] += y[n]; return x;' 'x[0] = y[0]; return x;' '*x = *y; return x;' 'z[0] += (double)y[n]; return x;' 'x[0] = 0; return x;' \
    'return *y > 0 ? x : x + n;' 'memset(x, 0, n); return x;' 'memcpy(x, y, n); return x;' 'memcpy(z, y, n); return x;' \
    'memcpy(x, z, n); return x;' 'return memcmp(x, z, n) ? x : NULL;' 'float a = y[0]; (void)a; return x;' 'z[0] = sqrtf(*x); return x;'; do
    ! plant "$text" || fail "this test does not refuse: $text"
done
for text in 'return x + n;' 'return y ? x + (n * sizeof *y) : NULL;' 'memset(z, 0, n); return &x[n];' 'float *const a = x; return f(a + 1, y, z, n);'; do
    plant "$text" || fail "this test refuses: $text"$'\n'"$(cat "$work/why")"
done

n=0
while read -r file; do
    grep -q 'json-c' "$file" && continue # has no tensors, and needs another package's headers
    n=$((n + 1))
    if [ -n "${own[$file]:-}" ]; then
        ! compiles "$file" || fail "$file: reads no float; take it off the list in $0"
        unset "own[$file]"
    else
        compiles "$file" || fail "$file touches elements of tensors, which only trainer/ops may; floats of the host's own are listed in $0:"$'\n'"$(
            grep -E 'error|^[0-9]+:' "$work/why" | head -n 5)"
    fi
done < <(sources '*.c' | grep '^trainer/' | grep -v '^trainer/ops/')
for file in "${!own[@]}"; do fail "$file is listed in $0, but is not there"; done
[ "$n" -ge 30 ] || fail "only $n files were found"
finish "$n files of the trainer leave tensors to the backend"
