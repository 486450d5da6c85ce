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

# A comment stands alone: it does not begin with a word that needs the line above.
leaning='(The same|Same|And|Or|Nor|Also|Likewise|Ditto|Those|They|Them|All of (it|them|these)|Of (these|those)|As (above|before))'
# A comment of C that begins so in lower case goes on with the line above; one of a shell may be a sentence's second line.
leaning="((/\\*|//|^ *#) *$leaning|(/\\*|(^|[^:])//) *(and|or|nor|likewise|ditto|of these))([^a-zA-Z]|\$)"
for text in '/* The same, and unmaps. */' 'int n; /* Also of others. */' '    # Those that stay.' 'int m; /* and how many */' 'n++; // or none'; do
    grep -qE -- "$leaning" <<<"$text" || fail "this test does not find a comment that leans on the line above: $text"
done
for text in '/* Theirs is the same. */' '/* Order: the same. */' '    a = b; // As open(2).' '# and of others' 'int n; /* other, and more */' '/* order of these */' '/* env:// and tcp:// */'; do
    ! grep -qE -- "$leaning" <<<"$text" || fail "this test finds fault with: $text"
done
hits=$(grep -nE -- "$leaning" $(printf '%s\n' "${files[@]}" | grep -vE '\.(md|[1-9])$') || true)
[ -z "$hits" ] || fail "a comment stands alone; say who does what:"$'\n'"$hits"

# A status that is ignored goes through tt_ignore.
hits=$(grep -nF '(void)!' "${files[@]}" || true)
[ -z "$hits" ] || fail "say tt_ignore(status), or handle it:"$'\n'"$hits"

# In the library a plan is a tuttiPlan_t only.
hits=$(grep -rniE '(^|[^a-z-])plan(s|ned|_|[^a-z]|$)' src | grep -vE '^src/communicator/(plan\.c|handles\.[ch]|CMakeLists)' || true)
[ -z "$hits" ] || fail "a plan is a tuttiPlan_t (docs/glossary.md):"$'\n'"$hits"

# Beside an atomic a comment names the function at the other end of the order, not a number of it.
hits=$(grep -rnE '(/\* |\()[RA][0-9]+(/A[0-9]+)?(\)| \*/|:)' src --include='*.c' --include='*.h' || true)
[ -z "$hits" ] || fail "name the function that acquires, or that releases (CONTRIBUTING.md); or an order of the kernel by its table (A5 of port.cuh):"$'\n'"$hits"

# The glossary: a table a layer, with at most 25 nouns, each of which is used there. A noun stands in one table, but for the products at the
# end. Each folder of src is in one heading.
layer='' nlayers=0 nnouns=0 layered='' library=''
declare -A nrows=()
while IFS='|' read -r first noun _; do
    case $first in
    '## '*)
        layer=${first##*: } nlayers=$((nlayers + 1)) nrows[$layer]=0
        layered+="${layer//,/} "
        ;;
    esac
    [ -n "$layer" ] && [[ $noun =~ ^\ [a-z] ]] || continue
    [[ $noun != ' noun '* ]] || continue
    folders=()
    for folder in ${layer//,/}; do
        [ -d "src/$folder" ] && folders+=("src/$folder") || folders+=("$folder")
    done
    for one in $(sed 's/^ *//; s/ *$//; s/ /_/g' <<<"${noun//, /$'\n'}"); do
        nrows[$layer]=$((nrows[$layer] + 1)) nnouns=$((nnouns + 1))
        case $layer in trainer | vgpu) ;; *) library+="$one"$'\n' ;; esac
        grep -rqiE --include='*.[ch]' --include='*.cu*' --include='*.md' -- "${one//_/[ _-]}" "${folders[@]}" ||
            fail "docs/glossary.md, $layer: nothing there is called \"${one//_/ }\""
    done
done <docs/glossary.md
[ "$nlayers" -ge 8 ] && [ "$nnouns" -ge 60 ] || fail "docs/glossary.md: only $nlayers tables and $nnouns nouns were found"
for layer in "${!nrows[@]}"; do
    [ "${nrows[$layer]}" -ge 1 ] && [ "${nrows[$layer]}" -le 25 ] || fail "docs/glossary.md, $layer: ${nrows[$layer]} nouns, expected 1 to 25"
done
twice=$(sort <<<"$library" | uniq -d | grep . || true)
[ -z "$twice" ] || fail "docs/glossary.md has twice: $twice"
for folder in $(cd src && ls -d */ | tr -d /) trainer vgpu; do
    n=$(tr ' ' '\n' <<<"$layered" | grep -cx "$folder" || true)
    [ "$n" -eq 1 ] || fail "docs/glossary.md: the folder $folder is in $n headings, expected 1"
done
# Nothing but a table follows a heading.
stray=$(awk '/^## / { on = 1; next } on && NF && !/^\|/' docs/glossary.md)
[ -z "$stray" ] || fail "docs/glossary.md: nouns stand in the tables, not below them:"$'\n'"$stray"
finish "${#files[@]} files without retired words, $nnouns nouns of $nlayers layers"
