#!/usr/bin/env bash
# docs/deepspeed.md lists the keys of trainer/deepspeed_table.h, each with its row's text. `tests/house/deepspeed.sh --print` writes these tables.
[ "${1:-}" != --print ] || SOURCE=${SOURCE:-$(dirname "$0")/../..}
. "$(dirname "$0")/common.sh"
table=trainer/deepspeed_table.h

print() {
    printf '| key | option of tutti-train |\n|---|---|\n'
    sed -nE 's/^OPTION\("([^"]*)", *"([^"]*)"\)$/| `\1` | `--\2` |/p' "$table"
    printf '\n| key | accepted without effect, because |\n|---|---|\n'
    sed -nE 's/^IDLE\( *"([^"]*)", *"([^"]*)"\)$/| `\1` | \2 |/p' "$table"
    printf '\n| key | accepted values | because |\n|---|---|---|\n'
    sed -nE 's/^ONLY\( *"([^"]*)", *"([^"]*)", *"([^"]*)"\)$/\1\t\2\t\3/p' "$table" |
        awk -F'\t' '{ gsub(/\|/, ", ", $2); printf "| `%s` | %s | %s |\n", $1, $2 == "" ? "none" : $2, $3 }'
}

[ "${1:-}" != --print ] || { print; exit; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
print >"$work/rows"
nkeys=$(grep -cE '^(OPTION|TAKE|IDLE|ONLY)\(' "$table")
nlines=$(($(grep -c '^| `' "$work/rows") + $(grep -c '^TAKE(' "$table")))
[ "$nkeys" -eq "$nlines" ] || fail "$table has $nkeys keys, of which this test reads $nlines"
while read -r line; do
    grep -qxF -- "$line" docs/deepspeed.md || fail "docs/deepspeed.md lacks: $line (tests/house/deepspeed.sh --print)"
done <"$work/rows"
for key in $(sed -nE 's/^TAKE\( *"([^"]*)".*/\1/p' "$table"); do
    grep -qF "\`$key\`" docs/deepspeed.md || fail "docs/deepspeed.md lacks the key $key"
done
n=$(grep -cE '^\| `[a-z0-9_.*]+` \| ' docs/deepspeed.md)
[ "$n" -eq "$nkeys" ] || fail "docs/deepspeed.md has $n keys, $table has $nkeys"
finish "$nkeys keys"
