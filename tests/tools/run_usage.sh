#!/bin/sh
# Options and mistakes.
. "$(dirname "$0")/run_common.sh"

# usage CODE TEXT arguments...
usage() {
    code=$1 text=$2
    shift 2
    "$RUN" "$@" >"$work/out" 2>&1
    expect "code of tutti-run $*" "$code" $?
    contains "tutti-run $*" "$text" "$work/out"
}
usage 0 "usage: tutti-run" --help
usage 0 "tutti-run (tutti) " --version
usage 2 "which program?"
usage 2 "-n 0: the ranks must be a number" -n 0 true
usage 2 "-n two: the ranks must be a number" -n two true
usage 2 "--bind socket: it must be core or none" --bind socket true
usage 2 "--master-port 0: a port is a number" --master-port 0 true
usage 2 "--master-port 65536: a port is a number" --master-port 65536 true
usage 2 "--grace -1: it must be a number of seconds" --grace -1 true
usage 2 "requires an argument" --hosts
usage 2 "--hosts or --hostfile, not both" --hosts a --hostfile b true
usage 2 "--grace 0x1: it must be a number of seconds" --grace 0x1 true
usage 2 "--timeout soon: it must be a number of seconds" --timeout soon true
usage 124 "timeout after 0.001 s: still running: rank 0" --timeout 0.0001 --grace 0.0001 -n 1 sleep 100
usage 2 "--nonesuch" --nonesuch true
usage 127 "cannot run 'no-such-program': No such file" -n 3 no-such-program
usage 126 "cannot run '/etc/passwd': Permission denied" -n 2 /etc/passwd
cr=$(printf '\r') esc=$(printf '\033')
usage 2 "-n 4\\x0d: the ranks must be a number" -n "4$cr" true
usage 127 "cannot run 'no\\x1b[2Jsuch'" "no$esc[2Jsuch"
usage 0 "-n 5" -n 1 -- echo -n 5 -n 5
usage 0 "--help" -n 1 echo --help

# A port that somebody listens at: rank 0 of another job of ours would do.
if command -v python3 >/dev/null; then
    python3 -c 'import os,socket,sys,time
s = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[1] + ".new", "w") as f: f.write(str(s.getsockname()[1]))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(60)' "$work/listening" &
    holder=$!
    await test -e "$work/listening"
    port=$(cat "$work/listening")
    usage 1 "port $port: Address already in use; choose another with --master-port" --master-port "$port" true
    kill $holder
    wait $holder 2>/dev/null
    usage 0 "free again" --master-port "$port" -n 1 echo free again
else
    echo "skipped: no python3 to hold a port with"
fi

# When a later rank cannot be started, nothing is left of the earlier ones.
(ulimit -n 24 && exec "$RUN" -n 20 --tag-output sh -c 'sleep 61.28473 & wait') >"$work/out" 2>&1
expect "code when a rank cannot be started" 1 $?
contains no_more_files "cannot be started: Too many open files (raise the limit: ulimit -n)" "$work/out"
none_left() { ! grep -slz '[6]1.28473' /proc/[0-9]*/cmdline >"$work/left"; }
await none_left
finish
