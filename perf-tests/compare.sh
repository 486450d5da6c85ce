#!/usr/bin/env bash
# Times tutti against MPI libraries on this machine: all in one run, in turns, several times over.
# For developers; nothing else needs it. The peers come from PyPI, each into a virtual environment.
set -euo pipefail

usage() {
    cat <<'END'
usage: perf-tests/compare.sh [OPTION]...

  --install         download the peers that are missing into the cache, then go on
  --build DIR       tutti's build folder (default: build)
  --ranks N         processes (default: 2)
  --operations LIST of all_reduce broadcast reduce all_gather reduce_scatter alltoall scatter
                    gather sendrecv barrier, comma-separated (default: all_reduce)
  --sizes LIST      bytes of the whole vector (default: 8,4096,65536,1048576,16777216)
  --turns N         how often every library is run, one after the other (default: 5)
  --libraries LIST  of tutti tutti-mem openmpi mpich impi (default: all that are there)
  --help            this text

tutti-mem is tutti with buffers from tuttiMemAlloc. Times are microseconds: the best and the median of
all repetitions of all turns. ratio = tutti's time / the fastest peer's: below 1, tutti is faster.
The cache is $TUTTI_PEERS, by default ~/.cache/tutti-peers.
END
}

cd "$(dirname "$0")/.."
build=build ranks=2 operations=all_reduce sizes=8,4096,65536,1048576,16777216 turns=5
libraries='' install=no
peers=${TUTTI_PEERS:-$HOME/.cache/tutti-peers}

while [ $# -gt 0 ]; do
    case $1 in
    --install) install=yes && shift && continue ;;
    --help | -h) usage && exit 0 ;;
    --build | --ranks | --operations | --sizes | --turns | --libraries)
        [ $# -ge 2 ] || { echo "compare.sh: $1 needs a value" >&2 && exit 2; }
        declare "${1#--}=$2"
        shift 2
        ;;
    *) echo "compare.sh: unknown option '$1'; try --help" >&2 && exit 2 ;;
    esac
done

packages_of() {
    case $1 in
    openmpi) echo openmpi ;;
    mpich) echo mpich ;;
    impi) echo impi-rt impi-devel ;;
    esac
}

install_peer() {
    local venv=$peers/$1
    [ -x "$venv/bin/mpicc" ] && return
    echo "installing $1 into $venv" >&2
    python3 -m venv "$venv"
    # shellcheck disable=SC2046 # several packages
    "$venv/bin/pip" install --quiet $(packages_of "$1")
}

# Intel MPI finds its own parts through these; set for its own commands only.
with_impi() {
    env I_MPI_ROOT="$peers/impi" PATH="$peers/impi/bin:$PATH" LD_LIBRARY_PATH="$peers/impi/lib" \
        FI_PROVIDER_PATH="$peers/impi/lib/libfabric" "$@"
}

compile() {
    local library=$1 source=perf-tests/peers
    local flags=(-std=c17 -D_GNU_SOURCE -O2 "-I$source" "$source/bench.c" -o "$work/$library")
    local ours=("$source/tutti.c" -Iinclude "-L$build/lib" -ltutti)
    ours+=("-Wl,-rpath,$(realpath "$build")/lib")
    case $library in
    tutti) cc "${flags[@]}" "${ours[@]}" ;;
    tutti-mem) cc "${flags[@]}" -DSHARED_MEMORY "${ours[@]}" ;;
    impi) with_impi "$peers/impi/bin/mpicc" "${flags[@]}" "$source/mpi.c" ;;
    *) "$peers/$library/bin/mpicc" "${flags[@]}" "$source/mpi.c" ;;
    esac
}

# One turn of one library, each rank bound to a core while there are enough.
run() {
    local library=$1 many=no
    [ "$ranks" -gt "$(nproc)" ] && many=yes
    local program=("$work/$library" "$operations" "$sizes")
    case $library in
    tutti*) "$build/bin/tutti-run" -n "$ranks" "${program[@]}" ;;
    openmpi)
        local bind=(--bind-to core)
        [ $many = yes ] && bind=(--oversubscribe --bind-to none)
        [ "$(id -u)" -eq 0 ] && bind+=(--allow-run-as-root)
        "$peers/openmpi/bin/mpirun" -n "$ranks" "${bind[@]}" "${program[@]}"
        ;;
    mpich)
        local bind=(-bind-to core)
        [ $many = yes ] && bind=(-bind-to none)
        "$peers/mpich/bin/mpirun" -n "$ranks" "${bind[@]}" "${program[@]}"
        ;;
    impi) with_impi "$peers/impi/bin/mpirun" -n "$ranks" "${program[@]}" ;;
    esac
}

# Lines "library operation ranks bytes best median" -> a row for each operation and size.
table() {
    awk -v libraries="$1" "$(<perf-tests/times.awk)"'
        function ratio(row, times,   i, fastest) {
            for (i = 1; i <= n; i++)
                if (name[i] !~ /^tutti/ && (row, name[i]) in times && (!fastest || times[row, name[i]] < fastest))
                    fastest = times[row, name[i]]
            return fastest && (row, "tutti") in times ? sprintf("%.2f", times[row, "tutti"] / fastest) : "-"
        }
        END {
            n = split(libraries, name, " ")
            printf "%-14s %10s", "operation", "bytes"
            for (i = 1; i <= n; i++) printf " %20s", name[i]
            printf " %13s\n%-14s %10s", "ratio", "", ""
            for (i = 1; i <= n; i++) printf " %10s %9s", "best", "median"
            printf " %6s %6s\n", "best", "median"
            for (r = 1; r <= nrows; r++) {
                split(rows[r], part, " ")
                printf "%-14s %10s", part[1], part[2]
                for (i = 1; i <= n; i++) {
                    if (!((rows[r], name[i]) in best)) { printf " %10s %9s", "-", "-"; continue }
                    median[rows[r], name[i]] = middle(all[rows[r], name[i]])
                    printf " %10.2f %9.2f", best[rows[r], name[i]], median[rows[r], name[i]]
                }
                printf " %6s %6s\n", ratio(rows[r], best), ratio(rows[r], median)
            }
        }' "$2"
}

if [ $install = yes ]; then
    mkdir -p "$peers"
    for peer in openmpi mpich impi; do install_peer $peer; done
fi
if [ -z "$libraries" ]; then
    libraries='tutti tutti-mem'
    for peer in openmpi mpich impi; do
        if [ -x "$peers/$peer/bin/mpicc" ]; then libraries+=" $peer"; else
            echo "compare.sh: $peer is not in $peers; --install downloads it" >&2
        fi
    done
fi
libraries=${libraries//,/ }
[ -x "$build/bin/tutti-run" ] || { echo "compare.sh: no tutti in '$build'; build it or give --build" >&2 && exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for library in $libraries; do compile "$library"; done
for turn in $(seq "$turns"); do
    echo "turn $turn of $turns" >&2
    for library in $libraries; do
        if ! run "$library" >"$work/out" 2>"$work/err"; then
            echo "compare.sh: $library failed:" >&2
            cat "$work/err" >&2
            exit 1
        fi
        sed "s/^/$library /" "$work/out" >>"$work/all"
    done
done
echo "$ranks ranks on $(nproc) cores, $turns turns, $(date +%F), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)"
table "$libraries" "$work/all"
