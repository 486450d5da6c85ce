#!/usr/bin/env bash
# The hosts that with-hosts makes: what they are, and that nothing is left of them.
set -u
here=$(dirname "$(readlink -f "$0")")
hosts=$here/with-hosts
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
"$hosts" true >"$work/out" 2>&1 || {
    status=$?
    cat "$work/out"
    exit $status # 77: skipped, with the reason
}

# expect NAME EXPECTED COMMAND...: what the command prints, and how it ends.
expect() {
    local name=$1 expected=$2 got
    shift 2
    got=$(timeout 60 "$@" 2>&1 </dev/null && echo "exit 0" || echo "exit $?")
    [ "$got" = "$expected" ] && return
    printf '%s: expected\n%s\nbut got\n%s\n' "$name" "$expected" "$got"
    failures=$((failures + 1))
}

# What a host could leave: processes with the mark, interfaces, mounts.
mark=with-hosts-mark-$$-$RANDOM
echo "$mark" >"$work/mark"
marked() { grep -lsFf "$work/mark" /proc/[0-9]*/cmdline; } # -f: grep's own words lack the mark
state() { ls /sys/class/net && cut -d' ' -f 4- /proc/self/mountinfo; }
state >"$work/before"
nothing_left() {
    local i
    for ((i = 0; i < 200; i++)); do
        [ -n "$(marked)" ] || break
        sleep 0.02
    done
    { marked; state | diff "$work/before" -; } >"$work/left"
    expect "left $1" "exit 0" cat "$work/left"
}

# reach ADDRESS TIMES: whether it answers at all, within so many seconds. Nobody listens, so an answer is
# a refusal. After a silence the kernel has to find its neighbours again, which takes some.
cat >"$work/reach" <<'X'
for ((i = 0; i < $2; i++)); do
    case $(timeout 1 bash -c "echo >/dev/tcp/$1/9" 2>&1) in *refused*) echo "$1 answers" && exit ;; esac
done
echo "$1 is silent"
X

expect names "h0 h0,h1,h2
h2
h1
exit 0" "$hosts" --hosts 3 sh -c 'echo $(hostname) $HOSTS; on h2 hostname; on h1 "on h0 true && hostname"'
expect interfaces "eth0 eth1 lo
9000
exit 0" "$hosts" --nics 2 --mtu 9000 sh -c 'on h1 "echo \$(ls /sys/class/net); cat /sys/class/net/eth1/mtu"'
expect reach "10.77.0.3 answers
10.77.1.3 answers
fd77:1::3 answers
h2 answers
exit 0" "$hosts" --hosts 3 --nics 2 sh -c "for a in 10.77.0.3 10.77.1.3 fd77:1::3 h2; do bash $work/reach \$a 15; done"
expect folder_and_words "/tmp
a  b\$
exit 0" env -C /tmp "$hosts" sh -c 'on h1 pwd; echo "$1"' - 'a  b$'
expect cables "10.77.0.2 is silent
10.77.1.2 answers
10.77.0.2 answers
10.77.0.2 is silent
10.77.0.2 answers
exit 0" "$hosts" --nics 2 bash -c "
    link down h1 eth0 && bash $work/reach 10.77.0.2 1; bash $work/reach 10.77.1.2 15
    link up h1 eth0 && bash $work/reach 10.77.0.2 15
    on h1 link loss h0 eth0 100 && bash $work/reach 10.77.0.2 1
    link loss h0 eth0 0 && bash $work/reach 10.77.0.2 15"
expect rate "100Mbit
exit 0" "$hosts" --rate 100 sh -c "on h1 tc qdisc show dev eth0 | sed -n 's/.* rate \\([^ ]*\\).*/\\1/p'"
expect ranks "0 0 of 3 on h0
1 1 of 3 on h0
2 0 of 3 on h1
exit 0" "$hosts" sh -c "ranks 2,1 sh -c 'echo \$RANK \$LOCAL_RANK of \$WORLD_SIZE on \$(hostname)' | sort"
expect ranks_failure "ranks: rank 1 on h1 ended with 4
exit 4" "$hosts" ranks 1,1 sh -c 'exit $((RANK * 4))'
expect each "h0
h1
exit 3" "$hosts" --each sh -c '[ "$(hostname)" = h1 ] && sleep 0.2; hostname; [ "$(hostname)" = h0 ] || exit 3'
expect no_such_host "on: there is no host 'h2', only h0,h1
exit 255" "$hosts" on h2 true
expect bad_option "with-hosts: --hosts takes 2 to 4, not '5'
exit 125" "$hosts" --hosts 5 true
nothing_left "after normal ends"

expect failure "exit 7" "$hosts" sh -c "on h1 'exec -a $mark sleep 100' 2>/dev/null & sleep 0.2; exit 7"
nothing_left "after a failure"
expect by_signal "exit 137" "$hosts" sh -c "on h1 'sh -c \"sleep 100; : $mark\"' & kill -KILL \$\$"
nothing_left "after a command died"

# Killed at any moment, whichever process it is; two at once, on the same addresses.
for victim in script unshare; do
    for name in one two; do
        "$hosts" bash -c "on h1 'sh -c \"sleep 100; : $mark\"' & sh -c \"sleep 100; : $mark\" & bash $work/reach h1 15; wait" \
            >"$work/$name" 2>&1 &
        pids+=($!)
    done
    for ((i = 0; i < 1000; i++)); do
        grep -qs answers "$work/one" && grep -qs answers "$work/two" && break
        sleep 0.01
    done
    expect "two at once, $victim" "h1 answers
h1 answers
exit 0" cat "$work/one" "$work/two"
    for pid in "${pids[@]}"; do
        read -r child _ <"/proc/$pid/task/$pid/children"
        if [ $victim = script ]; then kill -KILL "$pid"; else kill -KILL "$child"; fi
    done
    wait "${pids[@]}" 2>/dev/null
    pids=()
    rm "$work/one" "$work/two"
    nothing_left "after kill -9 of the $victim"
done
seed=${1:-$RANDOM}
echo "seed $seed"
RANDOM=$seed
for ((i = 0; i < 8; i++)); do
    "$hosts" --nics 2 sh -c "sleep 100; : $mark" >/dev/null 2>&1 &
    sleep "0.$(printf %03d $((RANDOM % 400)))"
    kill -KILL $!
    wait $! 2>/dev/null
    nothing_left "killed while it starts, $i"
done
[ $failures -eq 0 ] && echo "hosts are as they should be, and nothing is left of them"
exit $((failures > 0))
