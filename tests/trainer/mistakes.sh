#!/usr/bin/env bash
# Every deliberate mistake of mistakes.txt must make the gradient grid fail.
# Usage: mistakes.sh [TEXT]: those whose name holds the text.
# GRID: grid_ranks; RUN: tutti-run; BINARY: the build; LINK: what grid_ranks is linked of, but for the trainer's library.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
trainer=$(cd "$here/../../trainer" && pwd)
: "${GRID:?}" "${RUN:?}" "${BINARY:?}" "${LINK:?}"
only=${1:-}
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-mistakes-XXXXXX")
trap 'rm -rf "$work"' EXIT
export TUTTI_LOG=NONE

names=() files=() texts=() mistakes=() lines=()
complain() { echo "FAILED $*"; failures=$((failures + 1)); }
failures=0

# Reads the table; its head says what the signs mean.
read_table() {
    local line n=-1
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
        '= '*) n=$((n + 1)) && names[n]=${line#= } files[n]='' texts[n]='' mistakes[n]='' lines[n]='' ;;
        '@ '*) files[n]=${line#@ } ;;
        '- '*) texts[n]+=${texts[n]:+$'\n'}${line#- } ;;
        '+ '*) mistakes[n]+=${mistakes[n]:+$'\n'}${line#+ } ;;
        '? '*) lines[n]=${line#\? } ;;
        '' | '#'*) ;;
        *) complain "the table has a line without a sign: $line" ;;
        esac
    done <"$here/mistakes.txt"
}

# compile_command FILE: prints the command of the build that compiles the file.
compile_command() {
    local file=$trainer/$1
    grep -F -B1 "\"file\": \"$file\"" "$BINARY/compile_commands.json" | sed -n '1s/^ *"command": "\(.*\)",$/\1/p' |
        sed 's/\\\(.\)/\1/g'
}

# make N: a grid_ranks with mistake N at $work/N/grid, or a complaint at $work/N/why.
make() {
    local n=$1 folder=$work/$1 source words=() word skip=0 args=()
    local text=${texts[n]} mistake=${mistakes[n]} before after
    mkdir -p "$folder"
    source=$(cat "$trainer/${files[n]}") || return
    before=${source%%"$text"*} after=${source#*"$text"}
    if [ -z "$text" ] || [ "$before" = "$source" ]; then
        echo "its text is not in trainer/${files[n]}" >"$folder/why" && return
    elif [[ $after == *"$text"* ]]; then
        echo "its text is more than once in trainer/${files[n]}" >"$folder/why" && return
    fi
    cp -r "$trainer" "$folder/trainer"
    printf '%s\n' "$before$mistake$after" >"$folder/trainer/${files[n]}"
    eval "words=($(compile_command "${files[n]}"))"
    for word in "${words[@]}"; do
        if [ $skip -eq 1 ]; then
            skip=0
        elif [ "$word" = -o ] || [ "$word" = -MT ] || [ "$word" = -MF ]; then
            skip=1
        elif [ "$word" != "$trainer/${files[n]}" ] && [ "$word" != -MD ]; then
            args+=("$word")
        fi
    done
    # -w: what the mistake leaves unused is no error. -O1 -g0: compiling takes longer than the cases
    if [ ${#args[@]} -eq 0 ]; then
        echo "trainer/${files[n]} is not in compile_commands.json" >"$folder/why"
    elif ! "${args[@]}" -w -O1 -g0 "$folder/trainer/${files[n]}" -o "$folder/mistake.o" >"$folder/why" 2>&1; then
        echo "it does not compile" >>"$folder/why"
    else
        # shellcheck disable=SC2086
        "${CC:-cc}" "$folder/mistake.o" $LINK -o "$folder/grid" >"$folder/why" 2>&1
    fi
}

make_all() {
    local n running=0
    for n in "${chosen[@]}"; do
        if [ $running -ge "$(nproc)" ]; then wait -n && running=$((running - 1)); fi
        make "$n" &
        running=$((running + 1))
    done
    wait
}

# try N: the grid must fail with mistake N, because of a layout.
try() {
    local n=$1 folder=$work/$1 status=0 said
    if [ ! -x "$folder/grid" ]; then
        complain "${names[n]}: $(cat "$folder/why")"
        return
    fi
    TUTTI_TIMEOUT_MS=20000 timeout 60 "$RUN" -n 8 "$folder/grid" --case "${lines[n]}" >"$folder/out" 2>&1 || status=$?
    said=$(sed -n '/^FAILED /{n;s/^ *//p;q}' "$folder/out")
    if [ $status -eq 0 ]; then
        complain "${names[n]}: the grid does not notice it, in: ${lines[n]}"
    elif [ -z "$said" ]; then
        complain "${names[n]}: no layout failed, exit status $status, in: ${lines[n]}"
        tail -n 5 "$folder/out" | sed 's/^/    /'
    else
        printf 'ok %s\n    %s\n    %s\n' "${names[n]}" "${lines[n]}" "${said:0:200}"
    fi
    rm -f "$folder/grid" "$folder/mistake.o"
}

read_table
chosen=()
for n in "${!names[@]}"; do
    if [[ ${names[n]} == *"$only"* ]]; then chosen+=("$n"); fi
done
[ ${#chosen[@]} -gt 0 ] || complain "no mistake's name holds '$only'"
cases=()
for n in "${chosen[@]}"; do cases+=(--case "${lines[n]}"); done
if ! TUTTI_TIMEOUT_MS=200000 "$RUN" -n 8 "$GRID" "${cases[@]}" >"$work/out" 2>&1; then
    complain "without a mistake, too:"
    grep -A1 '^FAILED' "$work/out" || tail -n 5 "$work/out"
    exit 1
fi
make_all
for n in "${chosen[@]}"; do try "$n"; done
echo "${#chosen[@]} mistakes, $failures of them not noticed"
[ $failures -eq 0 ]
