#!/bin/sh
# NCCL's variables in real processes: what they change, and the lines of the log. $INFO and $RUN are tutti-info and tutti-run,
# $RANK_PROGRAM is nccl_rank.
. "$(dirname "$0")/../tools/run_common.sh"
for name in $(env | sed -n 's/^\(NCCL_[A-Z0-9_]*\)=.*/\1/p'); do unset "$name"; done
export NCCL_CONF_FILE=/dev/null HOME="$work"

# env ARGUMENTS...: a program's output in $work/out, that of its log in $work/err.
ranks() {
    "$RUN" -n 2 "$RANK_PROGRAM" env >"$work/out" 2>"$work/err" || { expect "code of two ranks" 0 $? && cat "$work/err"; }
}

# ---- tutti-info --nccl-env ------------------------------------------------------------------------
NCCL_SOCKET_IFNAME=lo NCCL_IB_SL=3 TUTTI_RDMA_SERVICE_LEVEL=4 NCCL_BUFFSIZE=1 "$INFO" --nccl-env >"$work/out" 2>"$work/err"
expect "code of --nccl-env" 0 $?
contains "a variable that sets a row" \
    "NCCL_SOCKET_IFNAME=lo (environment): TUTTI_SOCKET_INTERFACE=lo (NCCL_SOCKET_IFNAME, environment); " "$work/out"
contains "a variable that is overridden" "NCCL_IB_SL=3 (environment): TUTTI_RDMA_SERVICE_LEVEL=4 (environment); " "$work/out"
contains "a variable without effect" "NCCL_BUFFSIZE=1 (environment): without effect: " "$work/out"
contains "an unset variable" "NCCL_NTHREADS: TUTTI_DEVICE_THREADS=512 (default); " "$work/out"
expect "lines of --nccl-env" 119 "$(grep -c '^NCCL_[A-Z0-9_]*[=:]' "$work/out")"
expect "other lines" 0 "$(grep -vc '^NCCL_[A-Z0-9_]*[=:]' "$work/out")"
NCCL_SOCKET_FAMILY=AF_INET6 NCCL_IB_HCA==mlx5_0:1:0:1 "$INFO" --nccl-env --config >"$work/out"
contains "a setting with its source" "TUTTI_SOCKET_FAMILY=6  (NCCL_SOCKET_FAMILY, environment)" "$work/out"
contains "a list without rails" "TUTTI_RDMA_DEVICE==mlx5_0:1  (NCCL_IB_HCA, environment)" "$work/out"
NCCL_SOCKET_IFNAME=lo "$INFO" --config >"$work/out"
contains "without --nccl-env" "TUTTI_SOCKET_INTERFACE=  (default)" "$work/out"

# ---- What two ranks do ----------------------------------------------------------------------------
NCCL_ALGO=Ring ranks
expect "ring, and a chain where the ring of NCCL is one" "0 ring 1 chain 2 chain 3 ring 4 ring" \
    "$(sed -n '1,5p' "$work/out" | paste -sd' ')"
NCCL_ALGO="ring;allreduce:tree" ranks
expect "a list with collectives" "0 tree 1 chain" "$(sed -n '1,2p' "$work/out" | paste -sd' ')"
NCCL_ALGO=Ring TUTTI_ALGORITHM=all_reduce:parallel ranks
contains "TUTTI_ALGORITHM wins" "0 parallel" "$work/out"
NCCL_ALGO=Ring TUTTI_DETERMINISTIC=on ranks
contains "a deterministic communicator" "NCCL WARN NCCL_ALGO has no effect on all_reduce: ring does not fold in rank order" "$work/err"
NCCL_ALGO=NVLS ranks
expect "warnings of NVLS" 2 "$(grep -c 'NCCL WARN NCCL_ALGO=NVLS: tutti has no NVLS' "$work/err")"
for bad in NCCL_ALGO=Rings NCCL_IB_SL=high NCCL_SOCKET_FAMILY=7 NCCL_NET=aws NCCL_MAX_CTAS=none NCCL_DEBUG_FILE=/nonexistent/x; do
    export "${bad?}"
    ranks
    contains "a bad value" "$bad" "$work/err"
    unset "${bad%%=*}"
done

# Where neither way of sharing memory is left, ranks of a host use the network; the interface is the one that is named.
ranks
contains "a host" "shm" "$work/out"
NCCL_P2P_DISABLE=1 ranks
lacks "no memory in place" "window" "$work/out"
export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NET=Socket
NCCL_SOCKET_IFNAME=lo ranks
contains "over lo" "tcp lo" "$work/out"
NCCL_SOCKET_IFNAME=lo,nonesuch0 ranks
contains "a name that is missing is passed over" "tcp lo" "$work/out"
NCCL_SOCKET_IFNAME=nonesuch0 "$RUN" -n 2 "$RANK_PROGRAM" env >"$work/out" 2>&1 && expect "code without an interface" 1 0
contains "no interface" "NCCL_SOCKET_IFNAME=nonesuch0 leaves no interface" "$work/out"
NCCL_SOCKET_IFNAME=lo NCCL_PSK=0123456789abcdef0123456789abcdef ranks
grep -q libssl "$work/err" || contains "encrypted" ", encrypted" "$work/out"
NCCL_SOCKET_IFNAME=lo timeout 60 "$RANK_PROGRAM" fork >"$work/out" 2>&1 || expect "ranks that are children of one process" $? 0
contains "children of one process" "tcp lo" "$work/out"
NCCL_NET=IB NCCL_SOCKET_IFNAME=lo timeout 60 "$RUN" -n 2 "$RANK_PROGRAM" env >"$work/out" 2>&1 ||
    contains "the variable that allows RDMA only" "NCCL_NET allows only rdma between hosts" "$work/out"
unset NCCL_P2P_DISABLE NCCL_SHM_DISABLE NCCL_NET
# shellcheck disable=SC2016
NCCL_SOCKET_IFNAME=lo "$RUN" -n 2 sh -c 'NCCL_HOSTID=$RANK exec "$1" env' - "$RANK_PROGRAM" >"$work/out" 2>&1
contains "hosts of NCCL_HOSTID" "tcp lo" "$work/out"

# ---- NCCL_COMM_ID: every rank makes an id of its own ------------------------------------------------
port=$((20000 + $$ % 10000))
export NCCL_COMM_ID=127.0.0.1:$port
for rank in 1 2 0; do "$RANK_PROGRAM" id $rank 3 >"$work/id.$rank" 2>&1 & done
wait
for rank in 0 1 2; do contains "rank $rank of NCCL_COMM_ID" "rank $rank is right" "$work/id.$rank"; done
unset NCCL_COMM_ID

# ---- The log --------------------------------------------------------------------------------------
NCCL_DEBUG=INFO ranks
for rank in 0 1; do
    expect "the line of rank $rank" 1 "$(grep -cE \
        "^[^: ]+:[0-9]+:[0-9]+ \[$rank\] NCCL INFO comm 0x[0-9a-f]+ rank $rank nranks 2 cudaDev $rank commId 0x[0-9a-f]+ - Init COMPLETE\$" "$work/out")"
done
expect "numbers of the communicator" 1 "$(grep -oE 'commId 0x[0-9a-f]+' "$work/out" | sort -u | wc -l)"
expect "versions" 1 "$(grep -cE 'NCCL INFO NCCL version 2\.30\.7\+tutti[0-9.]+$' "$work/out")"
NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=^INIT ranks
lacks "lines of INIT" "Init COMPLETE" "$work/out"
NCCL_DEBUG=VERSION ranks
expect "versions" 1 "$(grep -cE '^NCCL version 2\.30\.7\+tutti[0-9.]+$' "$work/out")"
lacks "at VERSION" "NCCL INFO" "$work/out"
ranks
lacks "without NCCL_DEBUG" "NCCL" "$work/out"
expect "and on standard error" "" "$(cat "$work/err")"
NCCL_NET_PLUGIN=ofi ranks
expect "warnings of a plugin" 2 "$(grep -c 'NCCL WARN NCCL_NET_PLUGIN=ofi' "$work/err")"

# ---- Functions ------------------------------------------------------------------------------------
expect "a value" eth0 "$(NCCL_SOCKET_IFNAME=eth0 "$RANK_PROGRAM" value NCCL_SOCKET_IFNAME)"
expect "an unset value" "" "$("$RANK_PROGRAM" value NCCL_SOCKET_IFNAME)"
"$RANK_PROGRAM" value NCCL_FAST >"$work/out" 2>&1 && expect "code of an unknown name" 1 0
contains "an unknown name" "'NCCL_FAST' is not among the variables" "$work/out"
NCCL_SOCKET_IFNAME=lo "$RANK_PROGRAM" late >"$work/out" 2>&1
expect "code when it is late" 0 $?
contains "too late" "call it before any other function" "$work/out"

# ---- A rank that is late --------------------------------------------------------------------------
TUTTI_LATE_MS=20 "$RANK_PROGRAM" wait >"$work/out" 2>"$work/err"
expect "code of a wait" 0 $?
contains "who is late, where NCCL_DEBUG is unset" "(TUTTI_LATE_MS); rank 1 (" "$work/err"
TUTTI_LATE_MS=20 NCCL_DEBUG=NONE "$RANK_PROGRAM" wait >"$work/out" 2>"$work/err"
expect "code of a wait that is not logged" 0 $?
expect "what NCCL_DEBUG=NONE lets through" "" "$(cat "$work/err")"

# ---- Files, in their order ------------------------------------------------------------------------
unset NCCL_CONF_FILE
printf 'NCCL_IB_SL=1\nNCCL_IB_TC=1\n' >"$work/.nccl.conf"
shown() { "$INFO" --nccl-env | sed -n "s/^$1[=:].*TUTTI_[A-Z_]*=\([0-9]*\) .*/\1/p"; }
expect "of ~/.nccl.conf" 1 "$(shown NCCL_IB_SL)"
expect "of the environment" 2 "$(NCCL_IB_SL=2 shown NCCL_IB_SL)"
# An /etc of its own, where this user may mount one.
mkdir "$work/etc"
printf 'NCCL_IB_TC=5\nNCCL_IB_TIMEOUT=20\n' >"$work/etc/nccl.conf"
if unshare -m true 2>/dev/null; then
    for name in NCCL_IB_SL NCCL_IB_TC NCCL_IB_TIMEOUT; do
        # shellcheck disable=SC2016
        unshare -m sh -c 'mount --bind "$1" /etc && exec "$2" --nccl-env' - "$work/etc" "$INFO" >"$work/out" 2>&1
        grep "^$name=" "$work/out" >>"$work/order"
    done
    expect "the user's file, then the system's" \
        "NCCL_IB_SL=1 ($work/.nccl.conf): NCCL_IB_TC=1 ($work/.nccl.conf): NCCL_IB_TIMEOUT=20 (/etc/nccl.conf):" \
        "$(grep -oE '^[A-Z_]+=[0-9]+ \([^)]*\):' "$work/order" | paste -sd' ')"
else
    echo "not checked: /etc/nccl.conf, for this user may not mount"
fi
finish
