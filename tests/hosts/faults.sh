#!/usr/bin/env bash
# What can happen to a network and to hosts, at random moments of a running job: each must end with the
# right result, or soon with an error on every rank that names who and where. See --help.
set -u
kinds=(cable_out cable_back one_cable_of_two lost_for_good lost_a_while large_lost lossy slow delayed host_killed
    host_vanished interface_gone reset rank_killed rank_stopped killed_in_init stopped_in_init)

usage() {
    cat <<TEXT
usage: faults.sh [--seed N] [--rounds N] [KIND...]

KIND is of: ${kinds[*]} (all).
Each has hosts of its own, several run at once. \$BIN is where tutti's programs are; the ranks are
\$BIN/../tests/faults_rank. Ends with counts; exits 1 when one is not as it should be.
TEXT
}

here=$(dirname "$(readlink -f "$0")")

# --------------------------------------------------------------------- one of them, on its own hosts
# The deadlines of the job, far apart so that it shows which one ended it, and how long it may take.
net_ms=2000 limit_s=30

fail() {
    echo "FAILED $kind: $*"
    failed=1
}

start_job() {
    local host place number=0
    IFS=, read -ra counts <<<"$layout"
    export TUTTI_NET_TIMEOUT_MS=$net_ms TUTTI_TIMEOUT_MS=${deadline_ms-15000} TUTTI_INIT_TIMEOUT_MS=${init_ms-8000}
    export WORLD_SIZE=$((${layout//,/+})) MASTER_PORT=29500 MASTER_ADDR=10.77.0.1 TUTTI_SOCKET_FAMILY=$family
    [ "$family" = 4 ] || MASTER_ADDR=fd77::1
    for host in "${!counts[@]}"; do
        for ((place = 0; place < counts[host]; place++)); do
            RANK=$number LOCAL_RANK=$place LOCAL_WORLD_SIZE=${counts[host]} \
                "$here/on" "h$host" "exec $program" >"$work/out.$number" 2>"$work/err.$number" &
            pids+=($!) on+=("$host")
            number=$((number + 1))
        done
    done
}

# Packets are then cut by the host, not behind the interface, whose MTU matters.
without_offload() {
    local host n
    for host in ${HOSTS//,/ }; do
        for ((n = 0; n < nics; n++)); do
            "$here/on" "$host" ip link set "eth$n" gso_max_size 1600 gso_max_segs 1 || fail "segmentation offload stays on"
        done
    done
}

# await SECONDS COMMAND...: until it succeeds.
await() {
    local until=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -le $until ] || return 1
        sleep 0.02
    done
}

all_loop() {
    local r
    for r in "${!pids[@]}"; do
        grep -qs looping "$work/out.$r" || [ ! -d "/proc/${pids[r]}" ] || return 1
    done
}

all_ended() {
    local r
    for r in "${!pids[@]}"; do
        # A child that has ended is a zombie until it is waited for.
        [ -n "${spared[r]-}" ] || case $(cut -d' ' -f3 "/proc/${pids[r]}/stat" 2>/dev/null) in '' | Z) ;; *) return 1 ;; esac
    done
}

ranks_on() { # HOST
    local r
    for r in "${!on[@]}"; do [ "${on[r]}" != "$1" ] || echo "$r"; done
}

# spare RANK: nobody asks how it ends.
spare() { spared[$1]=1 && disown "${pids[$1]}"; }

signal_host() { # SIGNAL HOST
    local r victims=()
    for r in $(ranks_on "$2"); do spare "$r" && victims+=("${pids[r]}"); done
    kill "-$1" "${victims[@]}"
}

# pause MS: a random part of that.
pause() { sleep "$(printf '%d.%03d' $((RANDOM % $1 / 1000)) $((RANDOM % ($1 < 1000 ? $1 : 1000))))"; }

on_every_nic() { # ACTION VALUE
    local n
    for ((n = 0; n < nics; n++)); do "$here/link" "$1" "h$victim" "eth$n" ${2-} || fail "link $1"; done
}

# Brings the fault about. Sets `expected` (right, error or either), what every error must say (`says`)
# and one of them (`anyone`), and, in `spared`, who need not say anything. Who does not see the cause
# itself may see the others leave.
bring_about() {
    local network='eth[0-9]|10\.77\.|fd77:' r
    expected=error says=("rank [0-9]+ .*h[0-9]") anyone=$network
    case $kind in
    cable_out) on_every_nic down ;;
    cable_back)
        expected=right
        on_every_nic down
        pause 800
        on_every_nic up
        ;;
    one_cable_of_two)
        expected=either
        "$here/link" down "h$victim" "eth$((RANDOM % 2))"
        ;;
    lost_for_good) on_every_nic loss 100 ;;
    large_lost) # small ones keep the connection alive, so it may be the deadline that ends it
        anyone="$network|TUTTI_TIMEOUT_MS"
        on_every_nic mtu 1000
        ;;
    lost_a_while)
        expected=right
        on_every_nic loss 100
        pause 800
        on_every_nic loss 0
        ;;
    lossy) expected=right && on_every_nic loss $((1 + RANDOM % 3)) ;;
    slow) expected=right && on_every_nic rate 50 ;;
    delayed) expected=right && on_every_nic delay 50 ;;
    host_killed)
        anyone="rank ($(ranks_on "$victim" | paste -sd '|')) .*h$victim"
        signal_host KILL "$victim"
        ;;
    host_vanished) # nothing of it is heard any more: no FIN, no RST
        anyone="rank ($(ranks_on "$victim" | paste -sd '|')) .*h$victim.*($network)"
        on_every_nic loss 100
        signal_host KILL "$victim"
        ;;
    interface_gone) for ((n = 0; n < nics; n++)); do "$here/on" "h$victim" ip link del "eth$n"; done ;;
    reset)
        "$here/on" "h$victim" "$(reset_one)" >"$work/reset" 2>&1 || fail "no socket to reset: $(<"$work/reset")"
        ;;
    rank_killed)
        r=$((RANDOM % WORLD_SIZE)) && spare $r
        says=("rank $r( |\$)") anyone="rank $r .*h${on[r]}"
        kill -KILL "${pids[r]}"
        ;;
    rank_stopped)
        r=$((RANDOM % WORLD_SIZE)) && spare $r
        says=("rank $r( |\$)") anyone="rank"
        kill -STOP "${pids[r]}"
        ;;
    killed_in_init)
        r=$((RANDOM % WORLD_SIZE)) && spare $r
        says=("ranks? ([0-9]+, )*$r[ ,]") anyone="rank"
        kill -KILL "${pids[r]}"
        ;;
    stopped_in_init)
        r=$((RANDOM % WORLD_SIZE)) && spare $r
        says=("ranks? ([0-9]+, )*$r[ ,]") anyone="rank"
        kill -STOP "${pids[r]}"
        ;;
    esac
}

# A command that resets one of the connections of a host's ranks to another host.
reset_one() {
    cat <<'X'
read -r mine theirs < <(ss -tnH state established | awk '{ print $3, $4 }' | grep -v '127\.0\.0\.1:\|\[::1\]:' | shuf -n 1)
[ -n "$theirs" ] && ss -K -tnH src "${mine%:*}" sport = ":${mine##*:}" dst "${theirs%:*}" dport = ":${theirs##*:}" | grep .
X
}

# Every rank's end: right (0) or an error (3) with the words that are asked for.
judge() {
    local r status ends=()
    for r in "${!pids[@]}"; do
        [ -z "${spared[r]-}" ] || continue
        wait "${pids[r]}"
        status=$?
        ends[status]=1
        case $status in
        0) [ $expected != error ] || fail "rank $r ended well" ;;
        3)
            [ $expected != right ] || fail "rank $r: $(grep ERROR "$work/err.$r")"
            for word in "${says[@]}"; do
                grep ERROR "$work/err.$r" | grep -qE "$word" ||
                    fail "rank $r does not say '$word' but: $(grep ERROR "$work/err.$r" | cut -c1-500)"
            done
            ;;
        *) fail "rank $r ended with $status: $(tail -n 3 "$work/err.$r")" ;;
        esac
    done
    [ $expected != error ] || grep -qE "ERROR .*($anyone)" $work/err.* || fail "nobody says '$anyone'"
    end=${!ends[*]}
}

one() {
    kind=$1 seed=$2 nics=$3 program=$4 failed=0 pids=() on=() spared=() anyone=
    RANDOM=$seed
    layouts=("1,1" "2,2" "1,1,1" "2,1,2")
    layout=${layouts[RANDOM % 4]} family=$((RANDOM % 2 ? 4 : 6))
    victim=$((RANDOM % (1 + $(tr -cd , <<<"$layout" | wc -c))))
    export TUTTI_ENCRYPT=$((RANDOM % 4 == 0)) TUTTI_SOCKETS=$((1 + RANDOM % 2))
    work=/run/hosts/faults # ends with the hosts
    mkdir $work
    # All is to end well there, on a busy machine too: only a wait that does not end fails.
    case $kind in cable_back | lost_a_while | lossy | delayed) net_ms=20000 deadline_ms=50000 limit_s=60 ;; esac
    case $kind in rank_stopped | stopped_in_init) deadline_ms=3000 init_ms=2000 ;; esac
    [ "$kind" != large_lost ] || without_offload
    start_job
    if [[ $kind = *_in_init ]]; then
        pause 120
    else
        await 30 all_loop || fail "not every rank came to loop: $(cat $work/err.* | tail -n 5)"
        pause 2000
    fi
    local start=${EPOCHREALTIME/./}
    bring_about
    case $expected in # what does not end by itself: not before the fault can have struck
    right) pause 2000 && kill -TERM "${pids[0]}" ;;
    either) sleep 8 && kill -TERM "${pids[0]}" ;;
    esac 2>/dev/null
    if await $limit_s all_ended; then
        judge
    else
        end=none && fail "no end in $limit_s s: $(who_hangs)"
    fi
    [[ $kind != *stopped* ]] || kill -CONT "${pids[@]}" 2>/dev/null
    printf '%-16s ranks %-6s h%s IPv%s %s nics, %s sockets, encrypted %s: exit %s after %5d ms (seed %s)\n' "$kind" "$layout" \
        "$victim" "$family" "$nics" "$TUTTI_SOCKETS" "$TUTTI_ENCRYPT" "$end" $(((${EPOCHREALTIME/./} - start) / 1000)) "$seed"
    return $failed
}

who_hangs() {
    local r
    for r in "${!pids[@]}"; do
        [ -n "${spared[r]-}" ] || echo "rank $r said: $(tail -n 2 "$work/err.$r")"
    done
}

if [ "${1-}" = --one ]; then
    shift
    one "$@"
    exit
fi

# ------------------------------------------------------------------------------------------- all of them
seed=$RANDOM rounds=1 chosen=()
while [ $# -gt 0 ]; do
    case $1 in
    --seed) seed=${2:?} && shift ;;
    --rounds) rounds=${2:?} && shift ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
    *) chosen+=("$1") ;;
    esac
    shift
done
[ ${#chosen[@]} -gt 0 ] || chosen=("${kinds[@]}")
program=$(readlink -f "${BIN:?the folder of the programs}/../tests/faults_rank") && [ -x "$program" ] ||
    { echo "faults.sh: no ../tests/faults_rank beside $BIN" >&2 && exit 2; }
"$here/with-hosts" --nics 2 "$here/link" loss h0 eth0 0 || exit # 77: skipped, with the reason

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "seed $seed (--seed $seed repeats it)"
RANDOM=$seed
experiment() { # KIND SEED NICS: on hosts of its own; what it said comes out in one piece
    local out
    out=$(timeout --kill-after=5 120 "$here/with-hosts" --hosts 3 --nics "$3" "$here/faults.sh" --one "$@" "$program" 2>&1) ||
        echo "$*" >>"$work/failed"
    echo "$out"
}

number=0
for ((round = 0; round < rounds; round++)); do
    for kind in "${chosen[@]}"; do
        nics=$((1 + RANDOM % 2))
        [ "$kind" != one_cable_of_two ] || nics=2
        experiment "$kind" "$RANDOM" $nics &
        number=$((number + 1))
        while [ "$(jobs -r | wc -l)" -ge 3 ]; do wait -n; done
    done
done
wait
touch "$work/failed"
echo "$number faults, $(wc -l <"$work/failed") not as they should be"
[ ! -s "$work/failed" ]
