#!/bin/bash
# Every program in the folder $BIN: output that cannot be written is an error, and standard streams may be closed.
. "$(dirname "$0")/run_common.sh"
BIN=${BIN:?the folder of the programs} EXAMPLES=${EXAMPLES:?that of the examples} VGPU=${VGPU:?that of the virtual GPU}
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT

# arguments_of PROGRAM: what makes it print something within a second; one word an argument.
arguments_of() {
    case $1 in
    tutti-run) printf '%s\n' '-n 2 --tag-output echo hello' ;;
    tutti-info) echo --config ;;
    tutti-plan) echo verify all_reduce:ring --ranks 1-4 ;;
    tutti-train) echo --plan ;;
    bootstrap_perf) echo -b 2 -e 2 -n 1 ;;
    barrier_perf) printf '%s\n' '-n 1' ;;
    *_perf) echo -b 8 -e 8 -n 1 ;;
    *) echo "$1 is not known to tests/tools/streams.sh" >&2 ;;
    esac
}

# full PROGRAM ARGUMENTS...: to a full disk.
full() {
    "$BIN/$1" "${@:2}" >/dev/full 2>"$work/err"
    expect "code of $* > /dev/full" 1 $?
    contains "$* > /dev/full" "standard output cannot be written" "$work/err"
}

nprograms=0
for path in "$BIN"/*; do
    [ -f "$path" ] && [ -x "$path" ] || continue
    program=$(basename "$path")
    read -ra words < <(arguments_of "$program")
    [ ${#words[@]} -gt 0 ] || expect "$program" "arguments for it" none
    nprograms=$((nprograms + 1))
    full "$program" "${words[@]}"
    full "$program" --help
    "$path" "${words[@]}" 0<&- 1>&- 2>&-
    expect "code of $program without standard streams" 0 $?
done
[ $nprograms -ge 20 ] || expect "programs in $BIN" "20 or more" $nprograms
for command in list "count all_reduce:ring --ranks 4 --bytes 1M" "print all_reduce:ring --ranks 2" --version; do
    # shellcheck disable=SC2086
    full tutti-plan $command
done
full tutti-run --version
full tutti-info --version

# The examples, and the virtual GPU's program.
nprograms=0
for path in "$EXAMPLES"/* "$VGPU"/vgpu-info; do
    [ -f "$path" ] && [ -x "$path" ] || continue
    case $path in */gpu_allreduce) continue ;; esac # needs a GPU
    LD_LIBRARY_PATH=$VGPU "$path" >/dev/full 2>"$work/err" && expect "code of $path > /dev/full" 1 0
    nprograms=$((nprograms + 1))
done
[ $nprograms -ge 3 ] || expect "programs in $EXAMPLES" "3 or more" $nprograms

# The JSON of a perf test: a device is written to, not a file beside it.
"$BIN/all_reduce_perf" -b 8 -e 8 -n 1 -J /dev/full >"$work/out" 2>"$work/err"
expect "code with -J /dev/full" 1 $?
contains "-J /dev/full" "the JSON could not be written: No space left on device" "$work/err"
[ ! -e /dev/full.0 ] || expect "-J /dev/full" "no other file" /dev/full.0
"$BIN/all_reduce_perf" -b 8 -e 8 -n 1 -J /dev/stdout 2>"$work/err" | cat >"$work/out"
expect "code with -J /dev/stdout" 0 "${PIPESTATUS[0]}"
contains "-J /dev/stdout" '"start_time"' "$work/out"

# What ranks write through tutti-run: to a full disk, and to a reader who has gone.
"$RUN" -n 2 --tag-output sh -c 'echo hello >&2' 2>/dev/full
expect "code of tutti-run --tag-output 2> /dev/full" 1 $?
"$RUN" -n 2 --tag-output sh -c 'exit 5' >/dev/full 2>"$work/err"
expect "a rank's own code" 5 $?
lacks "nothing to write" "cannot be written" "$work/err"
mkfifo "$work/fifo"
true <"$work/fifo" &
reader=$!
# shellcheck disable=SC2016
"$RUN" -n 1 --tag-output sh -c 'until [ -e "$0" ]; do sleep 0.02; done; echo hello' "$work/gone" >"$work/fifo" 2>"$work/err" &
run=$!
wait $reader
touch "$work/gone"
wait $run
expect "code of tutti-run whose reader has gone" 141 $?

# Closed streams of tutti-run are /dev/null, for itself and its ranks.
cat >"$work/look" <<'X'
#!/bin/sh
seen=$(for pid in $$ $PPID $(cut -d' ' -f4 /proc/$PPID/stat); do
    for fd in 0 1 2; do readlink "/proc/$pid/fd/$fd"; done
done)
echo "$seen" >"$1"
X
chmod +x "$work/look"
"$RUN" -n 1 "$work/look" "$work/seen" 0<&- 1>&- 2>&-
expect "what a rank, its tutti-run and the front have as 0 to 2" "9 /dev/null" "$(sort "$work/seen" | uniq -c | sed 's/^ *//')"

# Several hosts: the connection to a host is no standard stream.
printf '%s\n' '#!/bin/sh' 'shift' 'exec "$@"' >"$work/rsh"
chmod +x "$work/rsh"
hosts=("$RUN" --hosts a,b --rsh "$work/rsh" --master-addr 127.0.0.1)
# shellcheck disable=SC2016
"${hosts[@]}" sh -c 'echo "hello $RANK"; cat >/dev/null' 0<&- 1>&- 2>"$work/err"
expect "code of --hosts without standard streams" 0 $?
expect "stderr of --hosts without standard streams" "" "$(cat "$work/err")"
"${hosts[@]}" echo hello >/dev/full 2>"$work/err"
expect "code of --hosts > /dev/full" 1 $?
contains "--hosts > /dev/full" "standard output cannot be written (No space left on device)" "$work/err"
finish
