#!/bin/bash
# usage: choice.sh BUILD_FOLDER [REPETITIONS [MAX_BYTES [OPERATION ...]]]
# Compares what the cost model chooses with every algorithm that can be forced, for 2 ranks of this host: a line for each
# operation and size with the time of the chosen one, the best forced one, the ratio of both, and their names. A time is the
# least of REPETITIONS runs (5), between which all others run, so that a busy machine slows all alike. Sizes go up to MAX_BYTES
# (512K).
set -u
bin=${1:?usage: choice.sh BUILD_FOLDER [REPETITIONS [MAX_BYTES [OPERATION ...]]]}/bin
repetitions=${2:-5} most=${3:-512K}
shift $(($# < 3 ? $# : 3))
[ $# -gt 0 ] || set -- all_reduce broadcast reduce all_gather reduce_scatter alltoall scatter gather barrier
refuse() { echo "choice.sh: $1" >&2 && exit 2; }
[ -x "$bin/tutti-run" ] || refuse "no tutti in '${bin%/bin}'; build it, or give another folder"
[[ $repetitions =~ ^[1-9][0-9]*$ ]] || refuse "REPETITIONS is '$repetitions': it must be a whole number from 1 up"
[[ $most =~ ^[1-9][0-9]*[KMG]?$ ]] || refuse "MAX_BYTES is '$most': it must be bytes, or with K, M or G"
for operation in "$@"; do
    [ -x "$bin/${operation}_perf" ] || refuse "there is no operation '$operation', for '$bin' has no ${operation}_perf"
done

# Lines "operation bytes algorithm microseconds"; the algorithm of the cost model is "-NAME".
run() {
    local operation=$1 algorithm=$2 force=()
    [ "$algorithm" = - ] || force=(--algorithm "$algorithm")
    "$bin/tutti-run" -n 2 "$bin/${operation}_perf" -b 8 -e "$most" -f 4 -n 100 -w 10 -c 0 "${force[@]}" |
        awk -v o="$operation" -v a="$algorithm" '
            $1 ~ /^[0-9]+$/ && NF > 5 { bytes[++n] = $1; time[n] = $6 }
            $2 == "Algorithm" && $3 == "from" { from[++m] = $4; name[m] = $6 }
            END {
                for (i = 1; i <= n; i++) {
                    for (k = m; k > 1 && from[k] > bytes[i]; k--);
                    print o, bytes[i], a == "-" ? "-" name[k] : a, time[i]
                }
            }'
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
      if ($3 ~ /^-/) chosen[row] = $3
      else if (!(row in best) || $4 < best[row]) best[row] = $4
      names[row] = names[row] " " $3 }
    END {
      printf "%-16s %10s %12s %12s %6s  %-20s %s\n", "operation", "bytes", "chosen us", "best us", "ratio", "chosen", "best"
      for (i = 1; i <= n; i++) {
          row = rows[i]; split(row, part, " "); m = split(names[row], name, " "); fastest = ""
          for (k = 1; k <= m; k++) if (name[k] !~ /^-/ && least[row " " name[k]] == best[row]) fastest = name[k]
          time = least[row " " chosen[row]]
          printf "%-16s %10d %12.2f %12.2f %6.2f  %-20s %s\n", part[1], part[2], time, best[row], time / best[row],
              substr(chosen[row], 2), fastest
      }
    }'
