#!/usr/bin/env bash
# docs/trainer-step.md follows a step through the trainer: each of its items names files and, in brackets, functions; every function is in
# one of the item's files, and every file has one of the item's functions.
. "$(dirname "$0")/common.sh"
page=docs/trainer-step.md
items=0

# item FILES FUNCTIONS: both as the page writes them.
item() {
    local files functions file function found
    mapfile -t files < <(grep -oE '`[^`]+`' <<<"$1" | tr -d '`')
    mapfile -t functions < <(grep -oE '`[^`]+`' <<<"$2" | tr -d '`')
    for file in "${files[@]}"; do
        [ -f "trainer/$file" ] || { fail "$page: there is no trainer/$file" && return; }
        found=$(grep -cwF "$(printf '%s\n' "${functions[@]}")" "trainer/$file" || true)
        [ "$found" -gt 0 ] || fail "$page: none of ${functions[*]} is in trainer/$file"
    done
    for function in "${functions[@]}"; do
        grep -qwF "$function" "${files[@]/#/trainer/}" || fail "$page: $function is not in ${files[*]}"
    done
}

while IFS=$'\t' read -r files functions; do
    item "$files" "$functions"
    items=$((items + 1))
done < <(awk '/^- /{ if (line) print line; line = "" } /^$/{ if (line) print line; line = "" }
              /^- / || line { sub(/^ +/, " "); line = line $0 } END { if (line) print line }' "$page" |
    sed -nE 's/^- (`[^(]*`) \(([^)]*)\):.*/\1\t\2/p')
[ "$items" -eq "$(grep -c '^- ' "$page")" ] || fail "$page: $items of $(grep -c '^- ' "$page") items name files and, in brackets, functions"
[ "$items" -ge 15 ] || fail "$page: only $items items were found"
finish "$items items of $page name functions that are there"
