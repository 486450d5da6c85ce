#!/usr/bin/env bash
# What nvcc made of the kernels. For GPUs of compute capability 8.0, 9.0 and 10.0, and all others that the build has code for: no register is
# spilled (few for 12.0); copies and folds move 16 bytes an access; a thread has 128 bytes in flight in copies, in sums and averages of two,
# three, four and eight sources, and in all other folds, but 64 where these take many registers (fp8, what is no sum of 16-bit floats,
# products of 8-bit integers; 48 for 7.5, which converts fp8 by code); each strong access that kernel/port.cuh asks for is there, and nothing
# else asks for one. The library's fat binary stays under 10 MB.
# Arguments come from CMake: SOURCE, NVCC, FLAGS (of the kernels), NVDISASM (false: there is none), IMAGE (the fat binary). What the build
# kept beside the image is read; an architecture that it was not built for is compiled here.
. "$(dirname "$0")/../house/common.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
read -ra flags <<<"$FLAGS"

# Strong accesses are written in one header.
hits=$(grep -nE '"[^"]*\b(ld|st|atom|red|fence|membar)\.|\batomic[A-Z]\w*\(|__threadfence|\bvolatile +[^(" ]|cuda::atomic' \
    src/device/kernel/*.cu src/device/kernel/*.cuh | grep -v '^src/device/kernel/port\.cuh:' || true)
[ -z "$hits" ] || fail "accesses that order belong into src/device/kernel/port.cuh:"$'\n'"$hits"

nbytes=$(stat -c %s "$IMAGE")
[ "$nbytes" -lt 10000000 ] || fail "$IMAGE has $nbytes bytes; expected less than 10,000,000"
echo "the fat binary has $nbytes bytes"

# said ARCHITECTURE LOG: what ptxas says of that architecture in a log of several. Each ptxas writes all it says at once; nothing is printed
# where lines of two are mixed.
said() {
    awk -v header="Compiling entry function '.*' for '$1'" '
        /Compiling entry function/ { mine = $0 ~ header }
        mine { text = text $0 "\n" }
        mine && /Function properties for/ { nfunctions++ }
        mine && /spill stores/ { nspills++ }
        mine && /: Used [0-9]+ registers/ { nused++ }
        END { if (nfunctions > 0 && nspills == nfunctions && nused == 1) printf "%s", text }' "$2"
}

# compile ARCHITECTURE: $work/run.sm_N.ptx, .cubin and, in .log, what ptxas says; what the build has kept of these, else compiled here.
compile() {
    local to=$work/run.$1 built cubin log=$IMAGE.kept/log start=$SECONDS
    # The first where the PTX, which may be that of an older architecture, serves more than this code.
    for cubin in "$IMAGE.kept"/run.compute_*."$1.cubin" "$IMAGE.kept/run.compute_${1#sm_}.cubin"; do [ ! -e "$cubin" ] || break; done
    built=${cubin%.cubin} built=${built%."$1"}
    if [ -e "$cubin" ] && [ -e "$log" ] && said "$1" "$log" >"$to.log" && [ -s "$to.log" ]; then
        cp "$built.ptx" "$to.ptx" && cp "$cubin" "$to.cubin" || fail "$1: $built.* cannot be read"
        echo "$1: compiled by the build:$(sed -n 's/.*info *: Used/ used/p' "$to.log")"
        return
    fi
    "$NVCC" "${flags[@]}" -arch="$1" -ptx -o "$to.ptx" src/device/kernel/run.cu &&
        "$NVCC" -arch="$1" -lineinfo -fmad=false -cubin -Xptxas -v -o "$to.cubin" "$to.ptx" >"$to.log" 2>&1 ||
        { fail "$1: src/device/kernel/run.cu does not compile" && return; }
    echo "$1: compiled in $((SECONDS - start)) s:$(sed -n 's/.*info *: Used/ used/p' "$to.log")"
}

# spilled ARCHITECTURE LOG: the functions that spill, and what ptxas says of them. For 12.0 it keeps a few registers to itself: there a pass
# may spill 16 bytes, and what does no arithmetic 128.
spilled() {
    awk -v some="$([ "$1" != sm_120 ] || echo 1)" '
        /Function properties for/ { name = $NF }
        /spill stores/ {
            most = !some ? 0 : name ~ /tt_pass/ ? 16 : 128
            for (i = 2; i <= NF; i++) if ($i == "bytes" && $(i + 1) == "spill" && $(i + 2) ~ /stores/ && $(i - 1) > most) print name, $0
        }' "$2"
}

# registers ARCHITECTURE: no function spills.
registers() {
    local log=$work/run.$1.log spills
    grep -q 'spill stores' "$log" || fail "$1: ptxas did not say what it spilled"
    spills=$(spilled "$1" "$log")
    [ -z "$spills" ] || fail "$1: ptxas spilled registers:"$'\n'"$spills"
}

# asked ARCHITECTURE: the strong accesses in the PTX, in the kinds of sass.awk. A release is a fence and a store; an acquire is a load
# and an invalidation of the first-level cache.
asked() {
    grep -oE '^[^/]*\b(ld|st|atom|red|fence)\.(relaxed|volatile|acquire|release|acq_rel|sc)\.[a-z0-9_.]+' "$work/run.$1.ptx" | awk '
        {
            op = $NF
            scope = op ~ /\.gpu/ ? "gpu" : "sys"
            bytes = op ~ /128$/ ? 16 : op ~ /64$/ ? 8 : 4
            if (op ~ /^ld/) { n["load." scope]++; if (bytes == 16) n["line.load." scope]++ }
            else if (op ~ /^st/) { n["store." scope ".bytes"] += bytes; if (bytes == 16) n["line.store." scope]++ }
            else if (op !~ /^fence/) n["atomic." scope]++
            if (op ~ /release|acq_rel|^fence/) n["fence." scope]++
            if (op ~ /acq/) n["invalidate"]++
        }
        END { for (kind in n) print kind, n[kind] }'
}

# accesses ARCHITECTURE: what the disassembly has.
accesses() {
    local found=$work/found kind n has bad
    "$NVDISASM" -c "$work/run.$1.cubin" | awk -f tests/device/sass.awk >"$found"
    asked "$1" >"$work/asked"
    for kind in load.gpu load.sys line.load.sys line.store.sys store.sys.bytes fence.gpu fence.sys invalidate atomic.gpu; do
        grep -q "^$kind " "$work/asked" || fail "$1: the PTX has no $kind: port.cuh was not found in it"
    done
    while read -r kind n; do
        has=$(awk -v kind="$kind" '$1 == "strong" && $2 == kind { print $3 }' "$found")
        [ "${has:-0}" -ge "$n" ] || fail "$1: strong accesses: $kind: ${has:-0} in the code, $n in the PTX"
    done <"$work/asked"
    bad=$(awk '$1 == "function" && /tt_pass_(fold|copy)/ && ($3 < 1 || $4 < 1)' "$found")
    [ -z "$bad" ] || fail "$1: without accesses of 16 bytes (function, loads, stores in flight):"$'\n'"$bad"
    bad=$(awk '$1 == "function" && /tt_pass_copy/ && ($3 < 8 || $4 < 8)
        $1 == "function" && /tt_pass_foldI(6tt_sum|13tt_float_foldI[67]tt_b?f[136][624]Li0ELi[02]E)/ {
            n++
            if ($3 < 8 || $4 < 4 || $5 < 4) print
        }
        END { if (n < 12) print n + 0, "sums and averages found, expected 12 or more" }' "$found")
    [ -z "$bad" ] || fail "$1: fewer than 8 loads of 16 bytes in flight of two, three, the first four and the next four sources" \
        "(function, loads, stores, at how many places 8 loads):"$'\n'"$bad"
    bad=$(awk -v old="$([ "$1" != sm_75 ] || echo 1)" '$1 == "function" && /tt_pass_fold/ {
            heavy = (/tt_float_foldI[67]tt_(b?f16|e)/ && !/b?f16Li0ELi[02]E/) || /tt_prodI5tt_u8/
            divides = /tt_e[45]m[23]Li0ELi[12]E/ # by a call for each word
            n++
            if ($3 < (divides ? 1 : heavy ? (old ? 3 : 4) : 8)) print
        }
        END { if (n < 80) print n + 0, "folds found, expected 80 or more" }' "$found")
    [ -z "$bad" ] || fail "$1: too few loads of 16 bytes in flight (function, loads, stores):"$'\n'"$bad"
    echo "$1: $(wc -l <"$work/asked") kinds of strong accesses: $(tr '\n' ';' <"$work/asked")"
}

# architectures: those that are looked at in any case, and those of the build.
architectures() {
    printf '%s\n' sm_80 sm_90 sm_100
    grep -oE "^ptxas info .*Compiling entry function '.*' for 'sm_[0-9]+[af]?'" "$IMAGE.kept/log" | sed "s/.* for '//; s/'$//"
}

for architecture in $(architectures | sort -uV); do
    compile "$architecture"
    [ "$failures" -eq 0 ] || finish
    registers "$architecture"
    case $NVDISASM in '' | *-NOTFOUND) ;; *) accesses "$architecture" ;; esac
done
[ "$failures" -eq 0 ] || finish
case $NVDISASM in '' | *-NOTFOUND) skip "no nvdisasm (-DTUTTI_NVDISASM=PATH): only registers and size were checked" ;; esac
finish "no spills, few for 12.0; 16 bytes an access, several in flight; all strong accesses are there"
