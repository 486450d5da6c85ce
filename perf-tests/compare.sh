#!/usr/bin/env bash
# Times tutti against MPI libraries and Gloo on this machine: all in one run, in turns, several times over.
# For developers; nothing else needs it. The MPI libraries come from PyPI, each into a virtual environment,
# Gloo from Debian, unpacked into a folder.
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
  --libraries LIST  of tutti tutti-mem openmpi mpich impi gloo (default: all that are there)
  --hogs N          N busy loops beside the ranks, on no core of their own
  --work US         each rank computes for US microseconds before each call, which is in no time
  --limit SECONDS   a run of a library that takes longer is stopped (default: 600)
  --against DIR     the build folder of another tutti, an old commit's say: one more library, run next
                    to tutti in every turn, the one first and the other first by turns
  --json FILE       also write op, bytes, library and all figures, the means of the ratios, and what is missing
  --svg DIR         also draw SVGs for each operation in DIR, time and ratio over the size: OPERATION.svg of
                    the medians, OPERATION-best.svg; with --hogs or --work OPERATION-p50.svg, -p90.svg, -mean.svg
  --fail-below R    exit status 1 when a median ratio of tutti is below R: to the fastest peer, without
                    peers to --against
  --fail-on WHAT    which one: mean, the geometric mean of all rows (default), or point, any row's
  --help            this text

tutti-mem is tutti with buffers from tuttiMemAlloc. Times are microseconds: the best and the median of
all repetitions of all turns; a repetition is many calls. With --hogs or --work (also with 0 of them) the
times are of single calls: the best of all turns, the medians of the turns' medians (p50) and 90th
percentiles (p90), and the mean. A ratio is the time of the fastest peer, or of --against, divided by
tutti's: above 1, tutti is faster. The cache is $TUTTI_PEERS, by default ~/.cache/tutti-peers.

A library that fails or is stopped is left out of later turns; points that it has not measured are "-",
and the reason is below the table. Exit status: 0; 1: below --fail-below, or nothing could be done; 2: a bad
command line; 3: a library failed or was stopped.
END
}

cd "$(dirname "$0")/.."
build=build ranks=2 turns=5 sizes=8,64,512,4K,32K,256K,2M,16M libraries='' install=no
operations=all_reduce,broadcast,reduce,scatter,gather,all_gather,reduce_scatter,all_to_all,sendrecv,barrier
against='' json='' svg='' fail_below='' fail_on=mean hogs='' work='' limit=600
peers=${TUTTI_PEERS:-$HOME/.cache/tutti-peers}

while [ $# -gt 0 ]; do
    case $1 in
    --install) install=yes && shift && continue ;;
    --help | -h) usage && exit 0 ;;
    --build | --ranks | --operations | --sizes | --turns | --libraries | --against | --json | --fail-below | --fail-on | \
        --hogs | --work | --limit | --svg)
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
# whole_number OPTION LEAST MOST: refuses another value of the option.
whole_number() {
    local value=${!1}
    [[ $value =~ ^(0|[1-9][0-9]{0,8})$ ]] && [ "$value" -ge "$2" ] && [ "$value" -le "$3" ] && return
    echo "compare.sh: --$1 $value: it must be a whole number from $2 to $3" >&2
    exit 2
}
whole_number ranks 1 4096
whole_number turns 1 10000
whole_number limit 1 1000000
load=quiet
[ -z "$hogs$work" ] || load=loaded
hogs=${hogs:-0} work=${work:-0}
whole_number hogs 0 1024
whole_number work 0 10000000
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

# Gloo is where its header is: in the cache, or in the system.
gloo_root() {
    local place
    for place in "$peers/gloo" ''; do
        [ ! -e "$place/usr/include/gloo/allreduce.h" ] || { echo "$place/usr" && return; }
    done
    return 1
}

# Debian's packages of Gloo and of what it is linked with, unpacked and not installed.
install_gloo() {
    ! gloo_root >/dev/null || return 0
    if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
        echo "compare.sh: this is no Debian: Gloo, which PyPI does not have, is left out" >&2
        return
    fi
    echo "unpacking gloo into $peers/gloo" >&2
    mkdir -p "$scratch/packages"
    (
        cd "$scratch/packages"
        apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances libgloo-dev |
            grep -E '^lib(gloo|hiredis)[-.0-9]*(dev)?$' | grep -v hiredis-dev | sort -u | xargs apt-get -qq download
        mkdir root
        for package in *.deb; do dpkg-deb -x "$package" root; done
    ) && rm -rf "$peers/gloo" && mv "$scratch/packages/root" "$peers/gloo"
}

is_there() {
    case $1 in
    gloo) gloo_root >/dev/null ;;
    *) [ -x "$peers/$1/bin/mpicc" ] ;;
    esac
}

# Intel MPI finds its own parts through these; set for its own commands only.
with_impi() {
    env I_MPI_ROOT="$peers/impi" PATH="$peers/impi/bin:$PATH" LD_LIBRARY_PATH="$peers/impi/lib" \
        FI_PROVIDER_PATH="$peers/impi/lib/libfabric" "$@"
}

compile() {
    local library=$1 source=perf-tests/peers
    local flags=(-std=c17 -D_GNU_SOURCE -O2 "-I$source" -Iperf-tests "$source/bench.c" perf-tests/common/timing.c
        -o "$scratch/$library" -lm)
    local folder=$build
    [ "$library" != against ] || folder=$against
    local ours=("$source/tutti.c" -Iinclude "-L$folder/lib" -ltutti)
    ours+=("-Wl,-rpath,$(realpath "$folder")/lib")
    case $library in
    tutti | against) cc "${flags[@]}" "${ours[@]}" ;;
    tutti-mem) cc "${flags[@]}" -DSHARED_MEMORY "${ours[@]}" ;;
    impi) with_impi "$peers/impi/bin/mpicc" "${flags[@]}" "$source/mpi.c" ;;
    gloo) compile_gloo ;;
    *) "$peers/$library/bin/mpicc" "${flags[@]}" "$source/mpi.c" ;;
    esac
}

# bench.c is C, the rest C++.
compile_gloo() {
    local root part where=()
    local flags=(-D_GNU_SOURCE -O2 -Iperf-tests/peers -Iperf-tests)
    root=$(gloo_root) || { echo "Gloo is neither in $peers nor in the system" >&2 && return 1; }
    [ "$root" = /usr ] || for part in lib "lib/$(cc -print-multiarch)"; do
        where+=("-L$root/$part" "-Wl,--disable-new-dtags,-rpath,$root/$part,-rpath-link,$root/$part")
    done
    for part in peers/bench common/timing; do
        cc -c -std=c17 "${flags[@]}" perf-tests/$part.c -o "$scratch/${part##*/}.o" || return
    done
    c++ -std=c++17 "${flags[@]}" -isystem "$root/include" perf-tests/peers/gloo.cpp "$scratch"/{bench,timing}.o -o "$scratch/gloo-bench" \
        "${where[@]}" -lgloo -lm && mv "$scratch/gloo-bench" "$scratch/gloo"
}

# One turn of one library, each rank bound to a core while there are enough.
run() {
    local library=$1 many=no
    [ "$ranks" -gt "$(nproc)" ] && many=yes
    local program=("$scratch/$library" "$operations" "$sizes" "$load")
    [ $load = quiet ] || program+=("$work")
    local limited=("$scratch/limited" "$limit" "$hogs")
    case $library in
    tutti*) "${limited[@]}" "$build/bin/tutti-run" -n "$ranks" "${program[@]}" ;;
    against) "${limited[@]}" "$against/bin/tutti-run" -n "$ranks" "${program[@]}" ;;
    openmpi)
        local bind=(--bind-to core)
        [ $many = yes ] && bind=(--oversubscribe --bind-to none)
        [ "$(id -u)" -eq 0 ] && bind+=(--allow-run-as-root)
        "${limited[@]}" "$peers/openmpi/bin/mpirun" -n "$ranks" "${bind[@]}" "${program[@]}"
        ;;
    mpich)
        local bind=(-bind-to core)
        [ $many = yes ] && bind=(-bind-to none)
        "${limited[@]}" "$peers/mpich/bin/mpirun" -n "$ranks" "${bind[@]}" "${program[@]}"
        ;;
    gloo) # its ranks have a second thread, so they are not bound
        env PEER_STORE="$(mktemp -d -p "$scratch")" PEER_INTERFACE=lo "${limited[@]}" "$build/bin/tutti-run" --bind none -n "$ranks" \
            "${program[@]}"
        ;;
    impi) with_impi "${limited[@]}" "$peers/impi/bin/mpirun" -n "$ranks" "${program[@]}" ;;
    esac
}

# Why libraries are left out from now on, and what they wrote.
declare -A why=()
give_up() {
    why[$1]=$2
    echo "compare.sh: $1 $2" >&2
    sed 's/^/  | /' "$scratch/err" >&2
}

# One turn of one library; its lines, each with its name in front, are kept even when it fails later.
take_turn() {
    local library=$1 turn=$2 status=0
    run "$library" >"$scratch/out" 2>"$scratch/err" </dev/null || status=$?
    awk -v library="$library" 'NF == 9 { print library, $0 }' "$scratch/out" >>"$scratch/all"
    case $status in
    0) ;;
    124) give_up "$library" "was stopped after $limit seconds (--limit) in turn $turn of $turns" ;;
    *) give_up "$library" "failed with exit code $status in turn $turn of $turns" ;;
    esac
}

# Lines "library: why it has no times", of those that were left out.
missing() {
    local library
    for library in $libraries; do [ -z "${why[$library]-}" ] || echo "$library: ${why[$library]}"; done
}

# bench.c's lines, with a library in front -> the charts.
draw() {
    mkdir -p "$svg" && awk -v libraries="$libraries" -v load="$load" -v folder="$svg" -v caption="$1" -f perf-tests/times.awk \
        -f perf-tests/figures.awk -f perf-tests/chart.awk "$scratch/all"
}

# bench.c's lines, with a library in front -> the table, the JSON, and the verdict as status.
conclude() {
    local known=(-v libraries="$libraries" -v load="$load" -f perf-tests/times.awk -f perf-tests/figures.awk)
    awk "${known[@]}" -v json="$json" -v below="$fail_below" -v on="$fail_on" -v ranks="$ranks" -v turns="$turns" \
        -v hogs="$hogs" -v work="$work" -v missing="$(missing)" -f perf-tests/compare.awk "$scratch/all"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ $install = yes ]; then
    mkdir -p "$peers"
    for peer in openmpi mpich impi; do install_peer $peer; done
    install_gloo
fi
if [ -z "$libraries" ]; then
    libraries='tutti tutti-mem'
    for peer in openmpi mpich impi gloo; do
        if is_there $peer; then libraries+=" $peer"; else
            echo "compare.sh: $peer is not in $peers; --install downloads it" >&2
        fi
    done
fi
libraries=${libraries//,/ }
for library in $libraries; do
    [[ " tutti tutti-mem openmpi mpich impi gloo " == *" $library "* ]] ||
        { echo "compare.sh: --libraries: there is no '$library'; it takes tutti tutti-mem openmpi mpich impi gloo" >&2 && exit 2; }
done
for folder in "$build" ${against:+"$against"}; do
    [ -x "$folder/bin/tutti-run" ] || { echo "compare.sh: no tutti in '$folder'; build it, or give another folder" >&2 && exit 1; }
done
if [ -n "$against" ]; then # in front, so that they can change places
    others=()
    for library in $libraries; do [ "$library" = tutti ] || others+=("$library"); done
    libraries="tutti against ${others[*]}"
fi
: >"$scratch/all"
cc -std=c17 -D_GNU_SOURCE -O2 -Iperf-tests perf-tests/peers/limited.c perf-tests/common/{hogs,timing}.c -o "$scratch/limited" -lm
for library in $libraries; do
    compile "$library" 2>"$scratch/err" || give_up "$library" "does not compile"
done
for turn in $(seq "$turns"); do
    echo "turn $turn of $turns" >&2
    order=$libraries
    [ $((turn % 2)) -eq 1 ] || order=${libraries/#tutti against/against tutti}
    for library in $order; do
        [ -n "${why[$library]-}" ] || take_turn "$library" "$turn"
    done
done
beside=''
[ $load = quiet ] || beside=", beside $hogs busy loops, $work us of work before each call"
about="$ranks ranks on $(nproc) cores$beside, $turns turns, $(date +%F), $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)"
echo "$about"
status=0
[ -z "$svg" ] || draw "$about" || { echo "compare.sh: --svg: cannot write to '$svg'" >&2 && status=1; }
conclude || status=1
[ $status -ne 0 ] || [ ${#why[@]} -eq 0 ] || status=3
exit $status
