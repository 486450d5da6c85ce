#!/bin/sh
# What a rank finds: variables, stdin, cores, output.
. "$(dirname "$0")/run_common.sh"
unset OMP_NUM_THREADS RANK WORLD_SIZE

"$RUN" -n 3 sh -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK $NODE_RANK $MASTER_ADDR $OMP_NUM_THREADS' |
    sort >"$work/out"
expect variables "0 3 0 3 0 0 127.0.0.1 1
1 3 1 3 0 0 127.0.0.1 1
2 3 2 3 0 0 127.0.0.1 1" "$(cat "$work/out")"

OMP_NUM_THREADS=7 "$RUN" -n 1 sh -c 'echo $OMP_NUM_THREADS' >"$work/out"
expect omp_is_kept 7 "$(cat "$work/out")"

"$RUN" -n 2 sh -c 'echo $MASTER_PORT $TUTTI_JOB_KEY' | sort -u >"$work/out"
expect port_and_key_are_shared 1 "$(wc -l <"$work/out")"
grep -qE '^[0-9]+ [0-9a-f]{64}$' "$work/out" || expect port_and_key "a port and 64 hex digits" "$(cat "$work/out")"
"$RUN" -n 1 sh -c 'echo $TUTTI_JOB_KEY' >"$work/other"
lacks key_is_new_for_every_job "$(cat "$work/other")" "$work/out"
expect master_port 23456 "$("$RUN" --master-port 23456 -n 1 sh -c 'echo $MASTER_PORT')"

expect stdin_goes_to_rank_0 "0:hello 1: " \
    "$(echo hello | "$RUN" -n 2 sh -c 'echo "$RANK:$(cat)"' | sort | tr '\n' ' ')"

expect exit_0 0 "$("$RUN" -n 4 true && echo 0)"
expect default_is_a_rank_a_core 1 "$("$RUN" sh -c 'echo $WORLD_SIZE' | sort -u | wc -l)"

cores=$("$RUN" sh -c '[ $RANK = 0 ] && echo $WORLD_SIZE; true')
if "$RUN" --bind core -n 1 true 2>&1 | grep -q "built without hwloc"; then
    echo "skipped: binding needs hwloc"
elif [ "$cores" -gt 1 ]; then
    mask='grep Cpus_allowed_list /proc/self/status'
    expect each_rank_has_a_core 2 "$("$RUN" -n 2 sh -c "$mask" | sort -u | wc -l)"
    expect unbound_when_asked 1 "$("$RUN" --bind none -n 2 sh -c "$mask" | sort -u | wc -l)"
    expect unbound_when_too_many 1 "$("$RUN" -n $((cores + 1)) sh -c "$mask" | sort -u | wc -l)"
else
    echo "skipped: binding needs two cores"
fi

"$RUN" -n 2 --tag-output sh -c 'printf "a\nlast"; echo e >&2' >"$work/out" 2>"$work/err"
expect tagged_stdout "[0] a
[0] last
[1] a
[1] last" "$(sort "$work/out")"
expect tagged_stderr "[0] e
[1] e" "$(sort "$work/err")"
# 200,000 bytes without a newline, then many lines from several ranks at once: nothing lost, no line broken.
expect long_line 200004 "$("$RUN" -n 1 --tag-output sh -c 'head -c 200000 /dev/zero | tr "\0" x; echo' | head -n 1 | tr -d '\n' | wc -c)"
"$RUN" -n 3 --tag-output sh -c 'seq 1 20000' >"$work/out"
expect all_lines 60000 "$(grep -cE '^\[[012]\] [0-9]+$' "$work/out")"
seq 1 20000 >"$work/numbers"
grep '^\[1\]' "$work/out" | cut -d' ' -f2 | cmp -s - "$work/numbers" || expect in_order "1 to 20000" "something else"
# A rank that writes without end keeps neither signals nor the timeout from us.
expect endless_writer 124 "$("$RUN" -n 1 --timeout 1 --tag-output yes >/dev/null 2>&1; echo $?)"
expect reader_leaves "[0] y" "$("$RUN" -n 1 --tag-output yes 2>/dev/null | head -n 1)"
finish
