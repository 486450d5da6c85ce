# To be sourced by scripts that plant mistakes, one at a time, and say which tests notice each: SCRIPT BUILD [NAME...]. The names are those of
# the only mutants that are tried; JOBS are tried at a time. The script defines `examine NAME FILE SED`, which makes the mutant in the folder
# $work/NAME, tries it, and prints the row's second column: "caught: ..." or why not. It also defines `source_of FILE`, the path of a mutant's
# file, empty where it is not here. SCRIPT --applies tries nothing: it says which mistakes cannot be planted any more, and exits 1 where there are some.
applies='' names=() stale=0
if [ "$1" = --applies ]; then
    applies=1 build=/nowhere work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    shift
else
    build=$(realpath "$1") work=$(realpath "$1")/$(basename "$0" .sh)
    mkdir -p "$work"
    shift
fi
cd "$(dirname "$0")/../.." || exit 2
only=("$@")

# change FOLDER FILE SED: the file, a copy, changed in place. Prints why it is not.
change() {
    local before=$1/before
    cp "$1/$2" "$before" && sed -i -E "$3" "$1/$2"
    [ -z "$3" ] || ! cmp -s "$1/$2" "$before" || { echo "not planted: the sed script changes nothing" && return 1; }
}

# attempt PATTERN LOG COMMAND...: the command's status; 86, and the command is ended, as soon as its output has the pattern.
attempt() {
    local pattern=$1 log=$2
    shift 2
    : >"$log"
    ("$@") >"$log" 2>&1 &
    local pid=$!
    while kill -0 $pid 2>/dev/null; do
        if grep -q "$pattern" "$log"; then
            sleep 0.2 && pkill -P $pid && wait $pid
            return 86
        fi
        sleep 0.2
    done
    wait $pid
}

# test_of LOG [PATTERN]: the first test of a program that failed, or ran when the program ended or its output had the pattern.
test_of() {
    awk -v pattern="^\\[  FAILED${2:+|$2}" '/^\[ RUN/ { name = $4 } $0 ~ pattern { print name; done = 1; exit } END { if (!done) print name }' "$1"
}

# is_stale WHAT: counts and says it.
is_stale() {
    echo "$1"
    stale=$((stale + 1))
}

# look_at NAME FILE SED: whether the mistake can be planted, and has a name of its own.
look_at() {
    local file
    file=$(source_of "$2")
    [ -n "$file" ] || return
    [[ " ${names[*]} " != *" $1 "* ]] || is_stale "$1: two mistakes have this name"
    names+=("$1")
    [ -r "$file" ] || { is_stale "$1: $2 is not there"; return; }
    sed -E "$3" "$file" >"$work/planted" 2>&1 || { is_stale "$1: the sed script is wrong: $(head -n 1 "$work/planted")"; return; }
    ! cmp -s "$work/planted" "$file" || is_stale "$1: the sed script changes nothing in $2"
}

# mutant NAME FILE SED
mutant() {
    [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $1 "* ]] || return
    if [ -n "$applies" ]; then
        look_at "$@"
        return
    fi
    names+=("$1")
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-1}" ]; do wait -n; done
    {
        echo "| $1 | $(examine "$@") |" >"$work/$1.row"
        cat "$work/$1.row"
        rm -rf "${work:?}/$1"
    } &
}

# original FILE: the library without a mistake passes; else the script ends.
original() {
    [ -z "$applies" ] || return
    rm -f "$work/none.row"
    mutant none "$1" ''
    wait
    [ ! -s "$work/none.row" ] || ! grep -q caught: "$work/none.row" || exit 1
    names=()
}

# sum_up: after the last mutant.
sum_up() {
    if [ -n "$applies" ]; then
        echo "$((${#names[@]} - stale)) of ${#names[@]} mistakes can be planted"
        exit $((stale > 0))
    fi
    wait
    [ ${#names[@]} -gt 0 ] || exit 0
    names=("${names[@]/%/.row}") names=("${names[@]/#/$work/}")
    echo "$(cat "${names[@]}" | grep -c "| caught") of ${#names[@]} caught"
}
