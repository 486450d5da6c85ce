#!/usr/bin/env bash
# The places that CONTRIBUTING.md names under "How to add" are those where an existing one is found.
. "$(dirname "$0")/common.sh"

# named TITLE: the paths in the paragraph that begins with **TITLE.**
named() {
    awk -v title="**$1" 'index($0, title) == 1 { on = 1 } /^$/ { on = 0 } on' CONTRIBUTING.md |
        grep -oE '\b(include|src|perf-tests|tests|docs|trainer)/[A-Za-z0-9_/.-]+\.(c|h|cuh|cu|txt|md)' | sort -u
}

# places TITLE OWN PATTERN...: files that match, but for its own (OWN, a pattern of paths), are named, and the other way round.
nplaces=0
places() {
    local title=$1 own=$2 pattern=$3 found wanted
    found=$(grep -rlE --include='*.c' --include='*.h' --include='*.cu' --include='*.cuh' --include='*.txt' --include='*.md' -- "$pattern" \
        include src perf-tests trainer tests/integration docs | grep -vE "$own" | sort -u)
    wanted=$(named "$title" | grep -vE "^tests/(device|trainer)/")
    [ -n "$found" ] && [ -n "$wanted" ] || fail "$title: no file found, or no path named"
    [ "$found" = "$wanted" ] || fail "CONTRIBUTING.md, \"$title\": < is where one is found, > is what is named"$'\n'"$(
        diff <(echo "$found") <(echo "$wanted") || true)"
    nplaces=$((nplaces + $(wc -l <<<"$found")))
}

places 'A data type' '^docs/|nccl' 'e5m2|\bu16\b|tuttiUint16|TT_UINT16'
places 'An algorithm' '^src/algorithms/chain\.c$' 'tt_broadcast_chain|chain\.c|`chain`'
places 'A setting' '^src/transport/tcp/|^docs/(man|rdma|launchers)' 'TUTTI_ZEROCOPY|CONFIG_ZEROCOPY'
places 'A transport between hosts' '^src/transport/rdma/|^docs/(rdma|config|cuda)' 'tt_rdma_transport|rdma_room|transport/rdma|tcp,rdma'
places 'A kernel protocol' '^docs/' 'TT_PROTOCOL_LINES|TT_GPU_LINES|DEVICE_LINE_BYTES|device_line_bytes|[^a-z]line_bytes|most_line_bytes|TT_LINE_'
places 'A parallelism of the trainer' '^trainer/parallel/(ulysses|fsdp|store|ring)\.c$|^trainer/README|^docs/(glossary|trainer-step)' 'ulysses|ULYSSES'
places 'An architecture of the trainer' '^docs/|^trainer/model/llama\.c$' 'ARCHITECTURE\(LLAMA|tr_llama'
places 'An activation of the trainer' '^docs/|^trainer/ops/relu2\.c$' 'ACTIVATION\(RELU2|relu2|RELU2'
places 'An optimizer of the trainer' '^docs/|^trainer/ops/muon\.c$|^trainer/deepspeed' 'OPTIMIZER\(MUON|nesterov'
places 'A collective' '^docs/(coming-from|nccl)|^src/nccl/|^perf-tests/(scatterv?\.c|peers/)|^src/algorithms/(binomial|direct|meet)\.c|^tests/integration/(bad_input|empty|hostile|mismatch|random_calls|uneven)' \
    '\bTT_SCATTER\b|^X\(SCATTER,|tuttiScatter\b|tuttiCollScatter\b|\bscatter_perf\b| gather scatter | scatter gather '
finish "$nplaces places are named"
