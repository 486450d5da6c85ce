#!/bin/sh
# tutti-info: sections, options and mistakes. $INFO and $RUN are the programs.
. "$(dirname "$0")/run_common.sh"

# info CODE TEXT arguments...
info() {
    code=$1 text=$2
    shift 2
    "$INFO" "$@" >"$work/out" 2>&1
    expect "code of tutti-info $*" "$code" $?
    contains "tutti-info $*" "$text" "$work/out"
}
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT

info 0 "usage: tutti-info" --help
info 0 "tutti-info " --version
info 2 "--nonesuch" --nonesuch
info 2 "'extra' is no option" extra
info 0 "features found" --cpu
info 0 "TUTTI_TIMEOUT_MS=600000  (default)" --config
info 0 '| `TUTTI_LOG` | LEVEL | `WARN` |' --config-markdown
info 0 "NCCL_SOCKET_IFNAME" --nccl-env
info 0 "choices for 2 ranks" --costs
TUTTI_DETERMINISTIC=on info 0 "choices for 8 ranks on this host, deterministic" --costs
info 0 "to rank 1" --links
info 0 "source: this machine" --topology
info 1 "/nonexistent.xml" --topology-file /nonexistent.xml --topology

# Without options: all sections in order, no XML.
"$INFO" >"$work/out" 2>"$work/err" || expect "code of tutti-info" 0 $?
expect "sections" "CPU Topology GPUs Links Costs and choices Config" \
    "$(grep -E '^(CPU|Topology|GPUs|Links|Costs and choices|Config)$' "$work/out" | paste -sd' ')"
lacks "tutti-info" "<topology" "$work/out"
expect "stderr of tutti-info" "" "$(cat "$work/err")"

# A damaged file is an error that names it.
mkfifo "$work/pipe"
info 1 "$work/pipe' cannot be read as hwloc XML (it is a pipe)" --topology-file "$work/pipe" --topology
if "$INFO" --xml >"$work/here.xml" 2>/dev/null; then
    sed 's/complete_nodeset/complete_n"deset/' "$work/here.xml" >"$work/damaged.xml"
    for section in --topology --xml; do
        "$INFO" --topology-file "$work/damaged.xml" $section >"$work/out" 2>&1
        expect "code of $section with a damaged file" 1 $?
        contains "$section with a damaged file" "$work/damaged.xml' cannot be read as hwloc XML (line 4: " "$work/out"
    done
fi

# What --xml writes is the same machine when read again.
if "$INFO" --xml >"$work/here.xml" 2>/dev/null; then
    "$INFO" --topology | grep -v '^source\|memory' >"$work/direct"
    "$INFO" --topology-file "$work/here.xml" --topology | grep -v '^source\|memory' >"$work/again"
    expect "topology through XML" "$(cat "$work/direct")" "$(cat "$work/again")"
else
    echo "not checked: built without hwloc, no XML"
fi

# Under a launcher every rank shows its links, once and in order; the rest comes once.
"$RUN" -n 3 "$INFO" --links --cpu >"$work/out" || expect "code under tutti-run" 0 $?
expect "ranks" "rank 0 of 3: rank 1 of 3: rank 2 of 3:" \
    "$(grep -oE '^rank [0-9] of 3:' "$work/out" | paste -sd' ')"
expect "features" 1 "$(grep -c 'features found' "$work/out")"

# Of each connection between hosts it says whether it is encrypted.
for encrypt in yes no; do
    # shellcheck disable=SC2016
    TUTTI_ENCRYPT=$encrypt "$RUN" -n 2 sh -c 'TUTTI_HOST_ID=$RANK exec "$1" --links' - "$INFO" >"$work/out" 2>&1 ||
        expect "code with TUTTI_ENCRYPT=$encrypt" 0 $?
    if grep -q "libssl" "$work/out"; then echo "not checked: no TLS here" && continue; fi
    if [ $encrypt = yes ]; then say=encrypted; else say="not encrypted"; fi
    expect "connections with TUTTI_ENCRYPT=$encrypt" 2 "$(grep -c "to rank .*: tcp .*, $say\$" "$work/out")"
done

# A write that fails is an error.
if [ -c /dev/full ]; then
    "$INFO" --config >/dev/full 2>/dev/null
    expect "code when the disk is full" 1 $?
fi
finish
