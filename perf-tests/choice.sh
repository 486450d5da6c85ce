#!/bin/bash
# usage: choice.sh BUILD_FOLDER [REPETITIONS [MAX_BYTES [OPERATION ...]]]
# Compares what the cost model chooses with every algorithm that can be forced, for 2 ranks of this host: a line for each
# operation and size with the time of the chosen one, the best forced one, and the ratio of both. A time is the least of
# REPETITIONS runs (5), between which all others run, so that a busy machine slows all alike. Sizes go up to MAX_BYTES (512K).
set -u
bin=${1:?usage: choice.sh BUILD_FOLDER [REPETITIONS [MAX_BYTES [OPERATION ...]]]}/bin
repetitions=${2:-5} most=${3:-512K}
shift $(($# < 3 ? $# : 3))
[ $# -gt 0 ] || set -- all_reduce broadcast reduce all_gather reduce_scatter alltoall scatter gather barrier

# Lines "operation bytes algorithm microseconds"; the algorithm of the cost model is "-".
run() {
    local operation=$1 algorithm=$2 force=()
    [ "$algorithm" = - ] || force=(--algorithm "$algorithm")
    "$bin/tutti-run" -n 2 "$bin/${operation}_perf" -b 8 -e "$most" -f 4 -n 100 -w 10 -c 0 "${force[@]}" |
        awk -v o="$operation" -v a="$algorithm" '$1 ~ /^[0-9]+$/ && NF > 5 { print o, $1, a, $6 }'
}

for operation in "$@"; do
    algorithms=$("$bin/${operation}_perf" --help | sed -n 's/^Algorithms: //p' | tr ' ' '\n' | grep -v /)
    for ((i = 0; i < repetitions; i++)); do
        for algorithm in - $algorithms; do run "$operation" "$algorithm"; done
    done
done | awk '
    { row = $1 " " $2; key = row " " $3
      if (!(row in seen)) { seen[row] = 1; rows[++n] = row }
      if (!(key in least) || $4 < least[key]) least[key] = $4
      if ($3 != "-" && (!(row in best) || $4 < best[row])) best[row] = $4
      names[row] = names[row] " " $3 }
    END {
      printf "%-16s %10s %12s %12s %6s  %s\n", "operation", "bytes", "chosen us", "best us", "ratio", "best"
      for (i = 1; i <= n; i++) {
          row = rows[i]; split(row, part, " "); m = split(names[row], name, " "); fastest = ""
          for (k = 1; k <= m; k++) if (name[k] != "-" && least[row " " name[k]] == best[row]) fastest = name[k]
          chosen = least[row " -"]
          printf "%-16s %10d %12.2f %12.2f %6.2f  %s\n", part[1], part[2], chosen, best[row], chosen / best[row], fastest
      }
    }'
