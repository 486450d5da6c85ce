#!/bin/sh
# Somebody reads the output of tutti-run late or never: signals and timeouts work all the same, and nothing
# is lost.
. "$(dirname "$0")/run_common.sh"
mkfifo "$work/fifo"
sleep 1000 <"$work/fifo" &
reader=$!
trap 'kill -KILL $reader 2>/dev/null; rm -rf "$work"' EXIT

# limited ARGUMENTS...: tutti-run, with a limit in case that it does not end.
limited() { timeout --signal=KILL 30 "$RUN" "$@"; }

limited -n 2 --tag-output --timeout 1 yes >"$work/fifo" 2>"$work/err"
expect "timeout, stdout stalled: code" 124 $?
contains "timeout, stdout stalled" "still running: rank 0, 1" "$work/err"
limited -n 2 --tag-output --timeout 1 sh -c 'exec yes >&2' >"$work/fifo" 2>&1
expect "timeout, both stalled: code" 124 $?
limited -n 1 --timeout 1 yes >"$work/fifo" 2>&1
expect "timeout, both stalled without tags: code" 124 $?
limited -n 1 --timeout 1 --tag-output true >"$work/fifo" 2>&1
expect "nothing to say" 0 $?

# stalled PID: whether it writes no more although it has more to write.
written() { sed -n 's/^wchar: //p' "/proc/$1/io"; }
stalled() {
    before=$(written "$1")
    sleep 0.1
    [ "$before" -ge 65536 ] && [ "$before" -eq "$(written "$1")" ]
}

# end: the status of $run, which should end.
end() {
    await gone $run
    kill -KILL $run 2>/dev/null
    wait $run
}

cat >"$work/rank" <<'X'
#!/bin/sh
yes &
trap 'echo $RANK >>"$1/got"; kill $!; exit 0' TERM
echo $! >>"$1/writers"
while :; do sleep 0.02; done
X
chmod +x "$work/rank"
"$RUN" -n 2 --tag-output "$work/rank" "$work" >"$work/fifo" 2>"$work/err" &
run=$!
await lines "$work/writers" 2
while read -r pid; do await stalled "$pid"; done <"$work/writers"
kill -TERM $run
await lines "$work/got" 2
end
expect "SIGTERM while stdout is stalled: code" 143 $? # for not all of the output was read

# A rank has ended, and what it wrote is not read: a signal ends the wait for that.
printf '%s\n' '#!/bin/sh' 'head -c 100000 /dev/zero; echo >"$1/over"' >"$work/short"
chmod +x "$work/short"
"$RUN" -n 1 --tag-output "$work/short" "$work" >"$work/fifo" 2>"$work/err" &
run=$!
await test -e "$work/over"
rank_gone() { [ -z "$(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' | grep -F "/bin/sh $work/short")" ]; }
await rank_gone
kill -TERM $run
end
expect "SIGTERM while the last output is not read: code" 143 $?
kill -KILL $reader

# A reader who stops for a while gets all of it, in order.
mkfifo "$work/other"
cat "$work/other" >"$work/late" &
reader=$!
"$RUN" -n 2 --tag-output sh -c 'echo $$ >>"$0/seqs"; until [ -e "$0/go" ]; do sleep 0.02; done; exec seq 1 200000' \
    "$work" >"$work/other" &
run=$!
await lines "$work/seqs" 2
kill -STOP $reader
touch "$work/go"
while read -r pid; do await stalled "$pid"; done <"$work/seqs"
kill -CONT $reader
wait $run
expect "late reader: code" 0 $?
wait $reader
seq 1 200000 >"$work/numbers"
for rank in 0 1; do
    sed -n "s/^\[$rank\] //p" "$work/late" | cmp -s - "$work/numbers" || expect "lines of rank $rank" "1 to 200000" "something else"
done
finish
