#!/usr/bin/env bash
# Every #include of ours goes only where the table "folder | may include" of docs/design.md allows.
. "$(dirname "$0")/common.sh"

# allowed[folder]: the folders or files it may include, space-separated; a file is named from src, with its folder.
declare -A allowed
while IFS='|' read -r _ folders may _; do
    may=$(tr -d ' `' <<<"$may" | tr ',' ' ')
    for folder in $(tr -d ' `' <<<"$folders" | tr ',' ' '); do allowed[$folder]=$may; done
done < <(sed -n '/^| folder | may include |/,/^$/p' docs/design.md | tail -n +3 | grep '^|')
[ ${#allowed[@]} -ge 10 ] || fail "docs/design.md: the table of layers was not found"

# folder_of PATH: the table's name for the folder that holds a file; the rooms of transport are folders of their own.
folder_of() {
    case $1 in
    include/tutti.h) echo tutti.h ;;
    vgpu/probes/*) echo vgpu/probes ;;
    src/transport/*/*) cut -d/ -f2,3 <<<"$1" ;;
    src/*/*) cut -d/ -f2 <<<"$1" ;;
    */*) echo "${1%%/*}" ;;
    esac
}

# target_of FILE INCLUDE: the file that is meant: beside FILE, or below the top folder of its layer; of the virtual GPU also <vgpu/...>,
# and what its tests and probes take from tests and src.
target_of() {
    local places=("$(dirname "$1")" "${1%%/*}" include .) place
    case $1 in
    vgpu/probes/*) places+=(src) ;;
    vgpu/*) places+=(tests) ;;
    esac
    for place in "${places[@]}"; do
        [ -e "$place/$2" ] && realpath --relative-to=. "$place/$2" && return
    done
    echo "nowhere/$2"
}

nchecked=0
check_file() {
    local file=$1 folder=$2 include path target
    while read -r include; do
        nchecked=$((nchecked + 1))
        path=$(target_of "$file" "$include")
        target=$(folder_of "$path")
        case " $folder ${allowed[$folder]} " in
        *" $target "* | *" ${path#src/} "*) ;;
        *) fail "$file includes \"$include\": $folder may include ${allowed[$folder]:-nothing} (docs/design.md)" ;;
        esac
    done < <(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p; s/^ *# *include *<\(tutti\.h\|shim\.h\|vgpu\/[^>]*\)>.*/\1/p' "$file")
}

while read -r file; do
    case $file in src/* | programs/* | trainer/* | perf-tests/* | tools/* | examples/* | vgpu/*) ;; *) continue ;; esac
    folder=$(folder_of "$file")
    if [ -z "${allowed[$folder]+known}" ]; then
        fail "$file: folder $folder is not in the table of docs/design.md"
        continue
    fi
    check_file "$file" "$folder"
done < <(sources '*.c' '*.h' '*.cpp' '*.inc')
# No two files of transport include each other, directly or over others; x.c and x.h count as one.
pairs() {
    local file name include
    for file in src/transport/*.[ch] src/transport/*/*.[ch]; do
        name=${file#src/} name=${name%.*}
        while read -r include; do
            [ "$include" = "$name" ] || echo "$name $include"
        done < <(sed -n 's/^ *# *include *"\(transport\/[^"]*\)\.h".*/\1/p' "$file")
    done
}
circle=$(pairs | tsort 2>&1 >/dev/null | grep -v 'contains a loop' | sed 's/^tsort: //' || true)
[ -z "$circle" ] || fail "these files of src/transport include each other in a circle:"$'\n'"$circle"
finish "$nchecked includes follow the table"
