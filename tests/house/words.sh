#!/usr/bin/env bash
# Words that were given up do not come back, neither in names nor in comments, pages and messages.
. "$(dirname "$0")/common.sh"

# regular expression | what to say instead. An underscore separates words as a blank does.
retired='
nursery|gathering
guests?|pending connection
knock(s|ed|ing)?|probe
hush(es|ed)?|clear the notification
ow(e|es|ed|ing)|due
(see|sees|seen|seeing)[ _]off|drain, is drained
the[ _]silent|unresponsive peers
without[ _]a[ _]word|without an error
last[ _]words|the last record, the last message
its[ _]last[ _]word|its last message
good-?byes?|the record that announces the end
doze|sleep
nap|sleep briefly
of[ _]the[ _]like|such
(general|express)[ _](way|path)|general execution, express execution
tt_(wire_plan|path)|tt_wire_routes, tt_route
bites?|piece
'

pattern() { printf '(^|[^a-z])(%s)([^a-z]|$)' "$1"; }

# The test itself: it must find a word inside a name, and must not find one inside another word.
any=$(pattern "$(grep . <<<"$retired" | sed 's/|[^|]*$//' | paste -sd'|')")
for text in '#define KNOCK_NS 1' 'return seen_off(wire);' '/* Credits owed. */'; do
    grep -qiE -- "$any" <<<"$text" || fail "this test does not find a retired word in: $text"
done
for text in 'allowed, showed' 'snapshot' 'however' 'see official'; do
    ! grep -qiE -- "$any" <<<"$text" || fail "this test finds a retired word in: $text"
done

mapfile -t files < <(sources '*.c' '*.h' '*.cpp' '*.inc' '*.cu' '*.cuh' '*.sh' '*.py' '*.md' '*.txt' '*.cmake' '*.in' '*.[1-9]' \
    quickstart check affected with-hosts on link with-slurm | grep -vxE 'tests/house/words\.sh|CHANGELOG\.md')
[ ${#files[@]} -ge 300 ] || fail "only ${#files[@]} files were found"
while read -r line; do
    [ -n "$line" ] || continue
    hits=$(grep -niE -- "$(pattern "${line%|*}")" "${files[@]}" || true)
    [ -z "$hits" ] || fail "say \"${line##*|}\" instead:"$'\n'"$hits"
done <<<"$retired"

# A status that is ignored goes through tt_ignore.
hits=$(grep -nF '(void)!' "${files[@]}" || true)
[ -z "$hits" ] || fail "say tt_ignore(status), or handle it:"$'\n'"$hits"

# In the library a plan is a tuttiPlan_t only.
hits=$(grep -rniE '(^|[^a-z-])plan(s|ned|_|[^a-z]|$)' src | grep -vE '^src/communicator/(plan\.c|handles\.[ch]|CMakeLists)' || true)
[ -z "$hits" ] || fail "a plan is a tuttiPlan_t (docs/glossary.md):"$'\n'"$hits"

# Beside an atomic a comment names the function at the other end of the order, not a number of it.
hits=$(grep -rnE '(/\* |\()[RA][0-9]+(/A[0-9]+)?(\)| \*/|:)' src --include='*.c' --include='*.h' || true)
[ -z "$hits" ] || fail "name the function that acquires, or that releases (CONTRIBUTING.md); or an order of the kernel by its table (A5 of port.cuh):"$'\n'"$hits"

# The glossary has at most 25 nouns, each once.
mapfile -t nouns < <(sed -n '/^|---/,/^$/s/^| *\([a-z][a-z ]*[a-z]\) *|.*/\1/p' docs/glossary.md)
[ ${#nouns[@]} -ge 20 ] && [ ${#nouns[@]} -le 25 ] ||
    fail "docs/glossary.md has ${#nouns[@]} nouns, expected 20 to 25"
twice=$(printf '%s\n' "${nouns[@]}" | sort | uniq -d)
[ -z "$twice" ] || fail "docs/glossary.md has twice: $twice"
finish "${#files[@]} files without retired words, ${#nouns[@]} nouns"
