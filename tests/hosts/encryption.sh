#!/usr/bin/env bash
# With TUTTI_ENCRYPT nothing of the data can be read on the network; without, it can.
set -u
here=$(dirname "$(readlink -f "$0")")
program=$(readlink -f "${BIN:?the folder of the programs}/../tests/faults_rank")
command -v python3 >/dev/null || { echo "skipped: reading a network needs python3" && exit 77; }
if [ -z "${INSIDE-}" ]; then INSIDE=1 exec "$here/with-hosts" "$0"; fi
work=/run/hosts/encryption
mkdir $work
failures=0
for family in 4 6; do
    for encrypt in 0 1; do
        # shellcheck disable=SC2016
        TUTTI_ENCRYPT=$encrypt TUTTI_SOCKET_FAMILY=$family RANKS_FAMILY=$family "$here/ranks" 1,1 bash -c \
            'echo $$ >"$1/pid.$RANK"; exec "$2" >"$1/out.$RANK"' - $work "$program" &
        job=$!
        for ((i = 0; i < 3000; i++)); do
            [ "$(cat $work/out.* 2>/dev/null | grep -c looping)" -ne 2 ] || break
            sleep 0.01
        done
        read -r frames clear < <("$here/on" h0 python3 "$here/sniff.py" eth0 1 | tail -n 1)
        kill -TERM "$(<$work/pid.0)"
        wait $job || failures=$((failures + 1))
        echo "IPv$family, TUTTI_ENCRYPT=$encrypt: $frames frames, $clear with readable data"
        if [ $encrypt -eq 1 ]; then [ "$clear" -eq 0 ]; else [ "$clear" -gt 0 ]; fi && [ "$frames" -gt 10 ] ||
            failures=$((failures + 1))
        rm $work/out.* $work/pid.*
    done
done
exit $failures
