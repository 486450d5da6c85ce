#!/usr/bin/env bash
# Every public function is declared with a comment and exported; nothing else is exported.
. "$(dirname "$0")/common.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Documented: right below a comment, or in one run of lines with a function that is.
awk '
    /^TUTTI_API/ {
        name = $0
        sub(/ *\(.*/, "", name)
        sub(/.*[ *]/, "", name)
        print name > declared
        if (!documented) print name " has no comment"
    }
    /\*\/ *$/ { documented = !/^\/\* ----/ }
    /^$/ { documented = 0 }' declared="$work/declared" include/tutti.h include/tutti_plan.h >"$work/bare"
while read -r line; do fail "include: $line"; done <"$work/bare"

nm -D --defined-only "$BINARY/lib/libtutti.so" | awk '{print $3}' | sed 's/@.*//' | sort >"$work/exported"
sort -o "$work/declared" "$work/declared"
while read -r name; do fail "libtutti.so lacks $name"; done < <(comm -23 "$work/declared" "$work/exported")
while read -r name; do fail "libtutti.so exports $name, which neither tutti.h nor tutti_plan.h declares"; done \
    < <(comm -13 "$work/declared" "$work/exported")
finish "$(wc -l <"$work/declared") functions are documented and exported, and nothing else"
