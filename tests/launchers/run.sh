#!/usr/bin/env bash
# Every launcher that is installed here starts a verified all_reduce_perf and a short training run, with no
# flag for tutti. See --help.
set -u
PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

usage() {
    cat <<TEXT
usage: run.sh [--bin DIR] [PART...]

  --bin DIR   where the programs are (build/bin)
  PART        local (mpirun, mpiexec, torchrun on this host), slurm (a cluster of its own: srun, sbatch,
              salloc) or hosts (tutti-run --hosts); all of them without

Names each run. Ends with "N passed, N failed, N skipped"; exits 1 when one failed.
TEXT
}

bin=$root/build/bin parts=()
while [ $# -gt 0 ]; do
    case $1 in
    --bin) bin=${2:?--bin wants a folder} && shift ;;
    -h | --help) usage && exit 0 ;;
    local | slurm | hosts) parts+=("$1") ;;
    *) echo "run.sh: '$1' is no option" >&2 && usage >&2 && exit 2 ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || parts=(local slurm hosts)
bin=$(cd "$bin" 2>/dev/null && pwd) || { echo "run.sh: --bin is no folder" >&2 && exit 2; }
# Where a part runs itself again on other hosts, it counts in the same file.
work=${LAUNCHERS_WORK-}
[ -n "$work" ] || {
    work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT || exit 2
    export LAUNCHERS_WORK=$work
    outermost=1
    # For what launchers name after host and pid: of both there are two when two of us run in namespaces.
    mkdir "$work/tmp" && export TMPDIR=$work/tmp
}

perf=("$bin/all_reduce_perf" -b 8 -e 256K -f 32 -n 3 -w 1)
train=("$bin/tutti-train" --layers=1 --heads=2 --width=32 --context=32 --batch=4 --micro-batch=2 --steps=4
    --sample=0 "--data=$root/include")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TUTTI_INIT_TIMEOUT_MS=20000

count() { echo "$1" >>"$work/counts"; }
skip() {
    echo "skipped: $*"
    count skipped
}

# verdict NAME REASON: an empty reason is a success; else the output follows.
verdict() {
    if [ -z "$2" ]; then
        echo "ok: $1"
        count passed
    else
        echo "FAILED: $1: $2"
        tail -n 25 "$work/out" | sed 's/^/  | /'
        count failed
    fi
}

# start COMMAND...: its output in $work/out; prints what is wrong with its end. START_LIMIT: seconds, 60.
start() {
    local status=0
    timeout --kill-after=5 "${START_LIMIT-60}" "$@" >"$work/out" 2>&1 </dev/null || status=$?
    [ $status -eq 0 ] || echo "exit status $status"
}

# check_perf NRANKS, check_train NRANKS: what is wrong with the output.
check_perf() {
    local ranks
    ranks=$(grep -cE '#  Rank +[0-9]+ ' "$work/out")
    [ "$ranks" -eq "$1" ] || echo "$ranks ranks, not $1"
    grep -q 'Out of bounds values : 0 OK' "$work/out" || echo "no verified result"
}
check_train() {
    grep -q "ranks: $1 = " "$work/out" || echo "not $1 ranks"
    grep -q 'done: loss [0-9.]* at the first step' "$work/out" || echo "no losses"
}

# perf NAME NRANKS LAUNCHER..., train NAME NRANKS LAUNCHER...
perf() {
    local name=$1 nranks=$2 wrong
    shift 2
    wrong=$(start "$@" "${perf[@]}")
    verdict "$name: all_reduce_perf, $nranks ranks" "${wrong:-$(check_perf "$nranks")}"
}
train() {
    local name=$1 wrong
    shift
    [ -x "${train[0]}" ] || { skip "$name: tutti-train was not built" && return; }
    wrong=$(start "$@" "${train[@]}")
    verdict "$name: tutti-train, 2 ranks" "${wrong:-$(check_train 2)}"
}

# needs PROGRAM PACKAGE
needs() { command -v "$1" >/dev/null || { skip "no $1 (Debian package $2)" && false; }; }

# crowded NAME NRANKS LAUNCHER...: perf, where most ports of this host are those of connections. The port that
# rank 0 or its launcher picks must be none of these.
crowded() {
    needs python3 python3 || return
    local name=$1 reply keeper
    shift
    coproc keeper { exec "$here/connections.py" 224; }
    read -r reply <&"${keeper[0]}" && [ "$reply" = ready ] || { verdict "$name" "no connections" && return; }
    perf "$name" "$@"
    exec {keeper[1]}>&-
    wait "$keeper_PID"
}

# ----------------------------------------------------------------------------------- on this host
try_local() {
    if needs mpirun.openmpi openmpi-bin; then
        perf "Open MPI's mpirun" 4 mpirun.openmpi --oversubscribe -n 4
        train "Open MPI's mpirun" mpirun.openmpi --oversubscribe -n 2
    fi
    if needs mpiexec.hydra mpich; then
        perf "MPICH's mpiexec" 4 mpiexec.hydra -n 4
        train "MPICH's mpiexec" mpiexec.hydra -n 2
    fi
    if needs torchrun python3-torch; then try_torchrun; fi
}

# Both programs at once, for it takes long to start. Debian's 1.13 knows no dashes in its options, and with its
# Python no output that is neither redirected nor copied.
try_torchrun() {
    local wrong script
    script="$(printf '%q ' "${perf[@]}")"
    [ ! -x "${train[0]}" ] || script+="&& $(printf '%q ' "${train[@]}")"
    # Its own default, 29500, may be another's on this machine.
    wrong=$(start torchrun --no_python --nproc_per_node 2 --master_port $((20000 + SRANDOM % 10000)) \
        --log_dir "$work" -r 2 -t 1 sh -c "$script")
    verdict "torchrun: all_reduce_perf, 2 ranks" "${wrong:-$(check_perf 2)}"
    [ ! -x "${train[0]}" ] || verdict "torchrun: tutti-train, 2 ranks" "${wrong:-$(check_train 2)}"
}

# --------------------------------------------------------------------------------- a Slurm cluster
try_slurm() {
    if [ -n "${IN_SLURM-}" ]; then in_slurm && return; fi
    local status=0
    IN_SLURM=1 timeout 400 "$here/with-slurm" --nodes 4 -- "${BASH_SOURCE[0]}" --bin "$bin" slurm || status=$?
    case $status in
    0 | 1) ;;
    77) count skipped ;;
    *) echo "FAILED: with-slurm: exit status $status" && count failed ;;
    esac
}

in_slurm() {
    local mpi nodes libraries
    libraries=/usr/lib/$(uname -m)-linux-gnu
    for mpi in none pmi2 pmix; do
        if [ $mpi = pmix ] && [ ! -e "$libraries/pmix2/lib/libpmix.so" ]; then
            skip "srun --mpi=pmix: Slurm's plugin wants libpmix.so (Debian package libpmix-dev)"
            continue
        fi
        for nodes in 1 2 4; do
            perf "srun --mpi=$mpi on $nodes nodes" 4 srun -N $nodes --ntasks-per-node=$((4 / nodes)) --mpi=$mpi
        done
        perf "srun --mpi=$mpi on 2 nodes, 3 and 1 ranks" 4 srun -N 2 -n 4 --mpi=$mpi
        for nodes in 1 2; do train "srun --mpi=$mpi on $nodes nodes" srun -N $nodes -n 2 --mpi=$mpi; done
    done
    for mpi in pmi2 pmix; do
        [ $mpi = pmix ] && [ ! -e "$libraries/pmix2/lib/libpmix.so" ] ||
            crowded "srun --mpi=$mpi, few ports left" 2 srun -N 2 -n 2 --mpi=$mpi
    done
    perf "srun --distribution=cyclic on 2 nodes" 4 srun -N 2 --ntasks-per-node=2 -m cyclic
    try_arbitrary
    in_batch
    in_allocation
}

# Without a PMI nobody can tell where rank 0 is: said at once.
try_arbitrary() {
    printf '%s\n' h2 h0 h1 >"$work/order"
    perf "srun --mpi=pmi2 --distribution=arbitrary" 3 env SLURM_HOSTFILE="$work/order" \
        srun -N 3 -n 3 -m arbitrary --mpi=pmi2
    [ -n "$(start env SLURM_HOSTFILE="$work/order" srun -N 3 -n 3 -m arbitrary "${perf[@]}")" ] &&
        grep -q "does not say on which host rank 0 is" "$work/out"
    verdict "srun --distribution=arbitrary: an error" "$([ $? -eq 0 ] || echo "not the one expected")"
}

# batch NAME CHECK NRANKS SBATCH_ARGUMENTS...
batch() {
    local name=$1 check=$2 nranks=$3 wrong
    shift 3
    wrong=$(start sbatch --wait --output="$work/batch" "$@")
    cat "$work/batch" >>"$work/out"
    verdict "sbatch $name, $nranks ranks" "${wrong:-$("$check" "$nranks")}"
}

# With the example's script, as a user would; and a program that the script runs without srun is alone.
in_batch() {
    local script=$root/examples/slurm.sbatch
    batch "slurm.sbatch: all_reduce_perf" check_perf 4 "$script" "${perf[@]}"
    [ ! -x "${train[0]}" ] ||
        batch "slurm.sbatch: tutti-train" check_train 2 --ntasks-per-node=1 "$script" "${train[@]}"
    batch "without srun: all_reduce_perf" check_perf 1 -N 2 -n 4 --wrap="$(printf '%q ' "${perf[@]}")"
}

in_allocation() {
    ! needs mpirun.openmpi openmpi-bin ||
        perf "salloc, Open MPI's mpirun on 2 nodes" 4 salloc -N 2 --ntasks-per-node=2 mpirun.openmpi -n 4
    ! needs mpiexec.hydra mpich ||
        perf "salloc, MPICH's mpiexec on 2 nodes" 4 salloc -N 2 --ntasks-per-node=2 mpiexec.hydra -n 4
}

# ------------------------------------------------------------------------------ tutti-run --hosts
try_hosts() {
    if [ -n "${IN_HOSTS-}" ]; then in_hosts && return; fi
    local status=0
    IN_HOSTS=1 timeout 400 "$here/../hosts/with-hosts" --hosts 3 --family 4 -- \
        "${BASH_SOURCE[0]}" --bin "$bin" hosts || status=$?
    [ $status -ne 77 ] || count skipped
    case $status in 0 | 1 | 77) ;; *) echo "FAILED: with-hosts: exit status $status" && count failed ;; esac
}

in_hosts() {
    local name="tutti-run --hosts" rsh=on wrong # with-hosts' own way, where there is no ssh
    if needs sshd openssh-server && needs ssh openssh-client && start_sshd; then
        name="tutti-run --hosts over ssh" rsh="ssh -F $work/ssh"
    fi
    perf "$name" 4 "$bin/tutti-run" --hosts h0:2,h1,h2 --rsh "$rsh"
    train "$name" "$bin/tutti-run" --hosts h0,h1 --rsh "$rsh"
    crowded "$name, few ports left" 2 "$bin/tutti-run" --hosts h0,h1 --rsh "$rsh"
    wrong=$(START_LIMIT=300 start env RUN="$bin/tutti-run" RSH="$rsh" "$here/hosts.sh")
    verdict "$name: variables, mistakes and deaths" "$wrong"
    try_names
}

# Debian's /etc/hosts gives a host's own name a loopback address. That is no harm to rank 0, whose host it is;
# a host on which it means another host must say so, and not wait for itself. The mounts of with-hosts' hosts
# are not shared, and in a chroot, where / is no mount, unshare could not make them so.
try_names() {
    printf '%s\n' '127.0.0.1 localhost' '127.0.1.1 h0' >"$work/names"
    local rank wrong=''
    for misled in 0 1; do
        local pids=()
        for rank in 0 1; do
            RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=h0 MASTER_PORT=23456 \
                TUTTI_INIT_TIMEOUT_MS=$((misled ? 3000 : 20000)) on h$rank "exec unshare --mount --propagation unchanged sh -c '
                [ $rank != $misled ] || mount --bind $work/names /etc/hosts
                exec timeout 60 ${perf[*]}'" >"$work/out.$rank" 2>&1 </dev/null &
            pids+=($!)
        done
        wait "${pids[@]}"
        cat "$work/out.0" "$work/out.1" >"$work/out"
        [ $misled = 1 ] || { verdict "rank 0's host has a loopback name: all_reduce_perf" "$(check_perf 2)" && continue; }
        grep -q "'h0', the host of rank 0, resolves to 127.0.1.1 on the host of rank 1" "$work/out.1" ||
            wrong="rank 1 does not say so"
        verdict "rank 0's host has a loopback name elsewhere: an error" "$wrong"
    done
}

# A real one on each host, with keys and a port of its own; of the system's nothing is used or changed.
start_sshd() {
    local host
    ssh-keygen -q -t ed25519 -N '' -f "$work/host-key" && ssh-keygen -q -t ed25519 -N '' -f "$work/key" || return 1
    cp "$work/key.pub" "$work/authorized"
    printf '%s\n' "Port 2222" "HostKey $work/host-key" "AuthorizedKeysFile $work/authorized" "PidFile none" \
        "StrictModes no" "UsePAM no" "PasswordAuthentication no" "PermitRootLogin yes" "MaxStartups 100" >"$work/sshd"
    printf '%s\n' "Port 2222" "IdentityFile $work/key" "IdentitiesOnly yes" "BatchMode yes" "LogLevel ERROR" \
        "StrictHostKeyChecking no" "UserKnownHostsFile /dev/null" >"$work/ssh"
    mkdir -p /run/sshd # the hosts' own /run
    for host in h0 h1 h2; do
        on $host "exec $(command -v sshd) -D -e -f $work/sshd" >"$work/sshd.$host" 2>&1 </dev/null &
    done
    for host in h0 h1 h2; do
        timeout 20 sh -c "until ssh -F $work/ssh $host true 2>/dev/null; do sleep 0.05; done" </dev/null ||
            { skip "no sshd on $host: $(tail -n 1 "$work/sshd.$host")" && return 1; }
    done
}

for part in "${parts[@]}"; do "try_$part"; done
[ -n "${outermost-}" ] || exit 0
of() { grep -cx "$1" "$work/counts"; }
echo "$(of passed) passed, $(of failed) failed, $(of skipped) skipped"
[ "$(of failed)" -eq 0 ]
