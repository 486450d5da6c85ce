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
usage 2 "--timeout soon: it must be a number of seconds" --timeout soon true
usage 2 "--nonesuch" --nonesuch true
usage 127 "cannot run 'no-such-program': No such file" -n 3 no-such-program
usage 126 "cannot run '/etc/passwd': Permission denied" -n 2 /etc/passwd
usage 0 "-n 5" -n 1 -- echo -n 5 -n 5
usage 0 "--help" -n 1 echo --help

# A port that somebody listens at: rank 0 of another job of ours would do.
"$RUN" -n 1 --master-port 28473 true || expect free_port 0 1
if command -v python3 >/dev/null; then
    python3 -c 'import socket,time
s = socket.create_server(("127.0.0.1", 28473))
open("'"$work"'/listening", "w").close()
time.sleep(60)' &
    holder=$!
    await test -e "$work/listening"
    usage 1 "port 28473: Address already in use; choose another with --master-port" --master-port 28473 true
    kill $holder
    wait $holder 2>/dev/null
fi
finish
