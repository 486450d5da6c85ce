#!/usr/bin/env bash
# How ranks of several hosts find each other: over each family, over link-local addresses, and what is said
# when the address or the interface is one that others cannot reach.
set -u
here=$(dirname "$(readlink -f "$0")")
if [ -z "${INSIDE-}" ]; then INSIDE=1 exec "$here/with-hosts" --hosts 3 --nics 2 "$0"; fi
program=("${BIN:?the folder of the programs}/barrier_perf" -n 2)
work=/run/hosts/bootstrap
mkdir $work
failures=0

# expect NAME STATUS TEXT LAYOUT [VARIABLE=VALUE...]: how the job ends, and what somebody says.
expect() {
    local name=$1 expected=$2 text=$3 layout=$4 status
    shift 4
    # ranks sets an address; the last word counts.
    timeout 100 "$here/ranks" "$layout" env TUTTI_INIT_TIMEOUT_MS=60000 "$@" "${program[@]}" >$work/out 2>&1
    status=$?
    echo "$SECONDS s: $name"
    [ $status -eq "$expected" ] && grep -qF -- "$text" $work/out && return
    echo "$name: expected status $expected with '$text', got $status with:"
    cut -c1-400 $work/out | head -n 30
    failures=$((failures + 1))
}

# Rank 1, on h1, is the parent of ranks 9 and 10, on h2.
tree=1,8,2
fine="# Collective test concluded"
expect "IPv4" 0 "$fine" $tree
export RANKS_FAMILY=6
expect "IPv6" 0 "$fine" $tree

link_local=$(ip -6 -o addr show dev eth0 scope link | awk '{ sub("/.*", "", $4); print $4 }')
for ((i = 0; i < 100; i++)); do # until it is sure that nobody else has it
    ip -6 addr show dev eth0 scope link | grep -q tentative || break
    sleep 0.1
done
expect "link-local" 0 "$fine" $tree "MASTER_ADDR=$link_local%eth0"
expect "link-local without its link" 1 "is link-local: say by which interface" $tree "MASTER_ADDR=$link_local"

for host in h0 h1 h2; do
    "$here/on" $host "ip -4 addr flush dev eth0; ip -4 addr flush dev eth1"
done
expect "IPv6 only" 0 "$fine" $tree
expect "no IPv4 there" 1 "no interface that is up with an IPv4 address is called 'eth'" 1,1 \
    TUTTI_SOCKET_FAMILY=4 TUTTI_SOCKET_INTERFACE=eth
for host in h0 h1 h2; do
    for n in 0 1; do "$here/on" $host "ip addr add 10.77.$n.$((${host#h} + 1))/24 dev eth$n"; done
done
export RANKS_FAMILY=4

expect "one interface of two" 0 "$fine" $tree TUTTI_SOCKET_INTERFACE==eth1
expect "all but one" 0 "$fine" $tree TUTTI_SOCKET_INTERFACE=^eth0
expect "two by their common beginning" 0 "$fine" 1,1 TUTTI_SOCKET_INTERFACE=eth
expect "two by name" 0 "$fine" 1,2 TUTTI_SOCKET_INTERFACE=eth1,eth0
expect "one that is not there" 1 "there is eth0 (10.77.0.1, fd77::1), eth1 (10.77.1.1, fd77:1::1), lo (127.0.0.1" 1,1 \
    TUTTI_SOCKET_INTERFACE=ib0

# A network that is up everywhere and leads nowhere.
for host in h0 h1 h2; do
    "$here/on" $host "ip link add aib0 type veth peer name aib1; ip link set aib1 up
        ip addr add 10.99.0.$((${host#h} + 1))/24 dev aib0; ip link set aib0 up; ip link set eth1 down"
done
expect "one that leads nowhere" 0 "$fine" $tree
expect "one that leads nowhere, by its name" 0 "leave it out (TUTTI_SOCKET_INTERFACE=^aib0)" 1,1
expect "two, of which the first leads nowhere" 0 "$fine" $tree TUTTI_SOCKET_INTERFACE=aib0,eth0
expect "only one that leads nowhere" 1 "TUTTI_SOCKET_INTERFACE" 1,1 TUTTI_SOCKET_INTERFACE=aib0 \
    TUTTI_NET_TIMEOUT_MS=3000 TUTTI_INIT_TIMEOUT_MS=5000
for host in h0 h1 h2; do "$here/on" $host "ip link del aib0; ip link set eth1 up"; done

# A name that is a loopback address on every host.
echo 127.0.1.1 myself >>/run/hosts/names
expect "a name for loopback" 1 "resolves to 127.0.1.1 on the host of rank 1" 1,1 \
    MASTER_ADDR=myself TUTTI_INIT_TIMEOUT_MS=1000
expect "a listener that others cannot reach" 1 "waits for others at 127.0.0.1, where only its own host can reach it" \
    $tree TUTTI_SOCKET_INTERFACE=lo TUTTI_INIT_TIMEOUT_MS=20000

# Two jobs at one port: the second one's rank 0 says so, the first goes on.
# shellcheck disable=SC2016
RANKS_FAMILY=4 "$here/ranks" 1,1 env MASTER_PORT=19191 sh -c \
    'until [ $RANK = 0 ] || [ -e '$work/go' ]; do sleep 0.05; done; exec "$@"' - "${program[@]}" >$work/first 2>&1 &
first=$!
for ((i = 0; i < 1000; i++)); do
    ss -tlnH "sport = 19191" | grep -q . && break
    sleep 0.01
done
expect "two jobs at one port" 1 "port 19191 is taken" 2 MASTER_PORT=19191 TUTTI_INIT_TIMEOUT_MS=2000 \
    TUTTI_JOB_KEY="$(printf '%064d' 7)"
touch $work/go
wait $first || { cat $work/first && failures=$((failures + 1)); }

[ $failures -eq 0 ] && echo "right"
exit $((failures > 0))
