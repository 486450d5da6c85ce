# To be sourced by tests that start ranks on virtual GPUs as processes. PROGRAM: the rank's.

# fail TEXT: the test fails, with that text; it ends with `exit $status`, or, with FIRST_ONLY, at once.
status=0
fail() {
    echo "$1" && status=1
    [ -z "${FIRST_ONLY:-}" ] || exit $status
}

# start HOSTS ARGUMENTS...: a rank for each letter; the same letter is the same host. Where the array `versions` has a word for the rank,
# its driver is of that version; where `visible` has one, that is its CUDA_VISIBLE_DEVICES. Their output and status are in $folder. A rank
# that takes longer than $most_seconds (MOST_SECONDS) is ended.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
versions=()
visible=()
most_seconds=${MOST_SECONDS:-100}
start() {
    local hosts=$1 rank pids=()
    local n=${#hosts}
    shift
    rm -f "$folder"/*
    for ((rank = 0; rank < n; rank++)); do
        env ${versions[rank]:+"VGPU_DRIVER_VERSION=${versions[rank]}"} ${visible[rank]:+"CUDA_VISIBLE_DEVICES=${visible[rank]}"} RANK=$rank WORLD_SIZE="$n" LOCAL_RANK=$rank LOCAL_WORLD_SIZE="$n" \
            TUTTI_INIT_METHOD=file://"$folder"/id TUTTI_HOST_ID="${hosts:rank:1}" timeout "$most_seconds" "$PROGRAM" "$@" >"$folder/$rank" 2>&1 &
        pids+=($!)
    done
    for rank in "${!pids[@]}"; do
        wait "${pids[rank]}"
        echo "status $?" >>"$folder/$rank"
    done
}

# all_end WHAT: every rank has succeeded.
all_end() {
    local file
    for file in "$folder"/[0-9]*; do
        grep -q "^status 0" "$file" || fail "$1: rank ${file##*/}: $(cat "$file")"
    done
}
