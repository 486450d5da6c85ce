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

# Sets folder to the table's name for the folder that holds the file PATH; the rooms of transport are folders of their own.
folder_of() {
    local rest=${1#*/}
    case $1 in
    include/tutti.h) folder=tutti.h ;;
    include/nccl.h) folder=nccl.h ;;
    vgpu/probes/*) folder=vgpu/probes ;;
    tools/fit/* | tools/cost/*) folder=${rest%%/*} folder=tools/$folder ;;
    src/transport/*/* | src/carrier/*/*) folder=${rest%%/*} rest=${rest#*/} folder+=/${rest%%/*} ;;
    src/*/*) folder=${rest%%/*} ;;
    *) folder=${1%%/*} ;;
    esac
}

# target_of FILE INCLUDE: sets target to the file that is meant: beside FILE, or below the top folder of its layer; of the virtual GPU also
# <vgpu/...>, and what its tests and probes take from tests and src.
target_of() {
    local places=("${1%/*}" "${1%%/*}" include .) place
    case $1 in
    vgpu/probes/* | tools/fit/* | tools/cost/*) places+=(src) ;;
    vgpu/*) places+=(tests) ;;
    esac
    for place in "${places[@]}"; do
        target=$place/$2
        if [ -e "$target" ]; then
            case $target in ./* | *../*) target=$(realpath --relative-to=. "$target") ;; esac
            return
        fi
    done
    target=nowhere/$2
}

nchecked=0
check_file() {
    local file=$1 from=$2 include
    while read -r include; do
        nchecked=$((nchecked + 1))
        target_of "$file" "$include"
        folder_of "$target"
        case " $from ${allowed[$from]} " in
        *" $folder "* | *" ${target#src/} "*) ;;
        *) fail "$file includes \"$include\": $from may include ${allowed[$from]:-nothing} (docs/design.md)" ;;
        esac
    done < <(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p; s/^ *# *include *<\(tutti\.h\|shim\.h\|vgpu\/[^>]*\)>.*/\1/p' "$file")
}

while read -r file; do
    case $file in src/* | programs/* | trainer/* | perf-tests/* | tools/* | examples/* | vgpu/*) ;; *) continue ;; esac
    folder_of "$file"
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
