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
  --operations LIST of all_reduce broadcast reduce scatter gather all_gather reduce_scatter
                    all_to_all sendrecv barrier, comma-separated (default: all of them)
  --sizes LIST      bytes of the whole vector; K and M are binary (default: 8,64,512,4K,32K,256K,2M,16M)
  --turns N         how often every library is run, one after the other (default: 5)
  --libraries LIST  of tutti tutti-mem openmpi mpich impi (default: all that are there)
  --against DIR     the build folder of another tutti, an old commit's say: one more library, run next
                    to tutti in every turn, the one first and the other first by turns
  --json FILE       also write op, bytes, library, best and median, and the means of the ratios
  --fail-below R    exit status 1 when a median ratio of tutti is below R: to the fastest peer, without
                    peers to --against
  --fail-on WHAT    which one: mean, the geometric mean of all rows (default), or point, any row's
  --help            this text

tutti-mem is tutti with buffers from tuttiMemAlloc. Times are microseconds: the best and the median of
all repetitions of all turns. A ratio is the time of the fastest peer, or of --against, divided by
tutti's: above 1, tutti is faster. The cache is $TUTTI_PEERS, by default ~/.cache/tutti-peers.
END
}

cd "$(dirname "$0")/.."
build=build ranks=2 turns=5 sizes=8,64,512,4K,32K,256K,2M,16M libraries='' install=no
operations=all_reduce,broadcast,reduce,scatter,gather,all_gather,reduce_scatter,all_to_all,sendrecv,barrier
against='' json='' fail_below='' fail_on=mean
peers=${TUTTI_PEERS:-$HOME/.cache/tutti-peers}

while [ $# -gt 0 ]; do
    case $1 in
    --install) install=yes && shift && continue ;;
    --help | -h) usage && exit 0 ;;
    --build | --ranks | --operations | --sizes | --turns | --libraries | --against | --json | --fail-below | --fail-on)
        [ $# -ge 2 ] || { echo "compare.sh: $1 needs a value" >&2 && exit 2; }
        option=${1#--}
        declare "${option//-/_}=$2"
        shift 2
        ;;
    *) echo "compare.sh: unknown option '$1'; try --help" >&2 && exit 2 ;;
    esac
done

[[ $fail_on =~ ^(mean|point)$ ]] || { echo "compare.sh: --fail-on $fail_on: it must be mean or point" >&2 && exit 2; }
[[ $fail_below =~ ^([0-9]+(\.[0-9]+)?)?$ ]] || { echo "compare.sh: --fail-below $fail_below: it must be a number" >&2 && exit 2; }
for option in ranks turns; do
    [[ ${!option} =~ ^[1-9][0-9]*$ ]] ||
        { echo "compare.sh: --$option ${!option}: it must be a whole number from 1 up" >&2 && exit 2; }
done
sizes=$(numfmt --from=iec ${sizes//,/ } | paste -sd,) || { echo "compare.sh: --sizes: bytes, or with K or M, comma-separated" >&2 && exit 2; }

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
    local flags=(-std=c17 -D_GNU_SOURCE -O2 "-I$source" -Iperf-tests "$source/bench.c" perf-tests/common/timing.c
        -o "$work/$library" -lm)
    local folder=$build
    [ "$library" != against ] || folder=$against
    local ours=("$source/tutti.c" -Iinclude "-L$folder/lib" -ltutti)
    ours+=("-Wl,-rpath,$(realpath "$folder")/lib")
    case $library in
    tutti | against) cc "${flags[@]}" "${ours[@]}" ;;
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
    against) "$against/bin/tutti-run" -n "$ranks" "${program[@]}" ;;
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

# Lines "library operation ranks bytes best median" -> the table, the JSON, and the verdict as status.
conclude() {
    awk -v libraries="$libraries" -v json="$json" -v below="$fail_below" -v on="$fail_on" -v ranks="$ranks" \
        -v turns="$turns" -f perf-tests/times.awk -f perf-tests/compare.awk "$work/all"
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
for folder in "$build" ${against:+"$against"}; do
    [ -x "$folder/bin/tutti-run" ] || { echo "compare.sh: no tutti in '$folder'; build it, or give another folder" >&2 && exit 1; }
done
if [ -n "$against" ]; then # in front, so that they can change places
    others=()
    for library in $libraries; do [ "$library" = tutti ] || others+=("$library"); done
    libraries="tutti against ${others[*]}"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for library in $libraries; do compile "$library"; done
for turn in $(seq "$turns"); do
    echo "turn $turn of $turns" >&2
    order=$libraries
    [ $((turn % 2)) -eq 1 ] || order=${libraries/#tutti against/against tutti}
    for library in $order; do
        if ! run "$library" >"$work/out" 2>"$work/err"; then
            echo "compare.sh: $library failed:" >&2
            cat "$work/err" >&2
            exit 1
        fi
        sed "s/^/$library /" "$work/out" >>"$work/all"
    done
done
echo "$ranks ranks on $(nproc) cores, $turns turns, $(date +%F), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)"
conclude
