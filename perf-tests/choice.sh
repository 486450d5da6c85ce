#!/bin/bash
# usage: choice.sh [-n RANKS] BUILD_FOLDER [REPETITIONS [MAX_BYTES [OPERATION ...]]]
# Compares what the cost model chooses with every algorithm that can be forced, for RANKS ranks of this host (2): a line for each
# operation and size with the time of the chosen algorithm and of the best one, the ratio of both, and the same of medians. The
# times are of REPETITIONS runs (5) of each algorithm, and as many where the cost model chooses; between two runs of one all
# others run, so that a busy machine slows all alike. Sizes go up to MAX_BYTES (512K). MISS: both ratios are above 1.15. Such rows
# are measured again, with three times as many runs, in a second table.
set -u
usage='usage: choice.sh [-n RANKS] BUILD_FOLDER [REPETITIONS [MAX_BYTES [OPERATION ...]]]'
refuse() { echo "choice.sh: $1" >&2 && exit 2; }
ranks=2
if [ "${1-}" = -n ]; then
    ranks=${2-}
    [[ $ranks =~ ^[1-9][0-9]*$ ]] || refuse "-n is '$ranks': it must be a whole number of ranks from 1 up"
    shift 2
fi
bin=${1:?$usage}/bin
repetitions=${2:-5} most=${3:-512K}
shift $(($# < 3 ? $# : 3))
[ $# -gt 0 ] || set -- all_reduce broadcast reduce all_gather reduce_scatter alltoall scatter gather barrier
[ -x "$bin/tutti-run" ] || refuse "no tutti in '${bin%/bin}'; build it, or give another folder"
[[ $repetitions =~ ^[1-9][0-9]*$ ]] || refuse "REPETITIONS is '$repetitions': it must be a whole number from 1 up"
[[ $most =~ ^[1-9][0-9]*[KMG]?$ ]] || refuse "MAX_BYTES is '$most': it must be bytes, or with K, M or G"
for operation in "$@"; do
    [ -x "$bin/${operation}_perf" ] || refuse "there is no operation '$operation', for '$bin' has no ${operation}_perf"
done

# run OPERATION ALGORITHM FIRST LAST: sizes from FIRST to LAST bytes, in lines "operation bytes algorithm microseconds"; the algorithm
# of the cost model is "-NAME". Ranks that share cores come late to the first row of a program, so a row before FIRST is not shown.
run() {
    local operation=$1 algorithm=$2 first=$3 last=$4 force=()
    [ "$algorithm" = - ] || force=(--algorithm "$algorithm")
    "$bin/tutti-run" -n "$ranks" "$bin/${operation}_perf" -b $((first / 4)) -e "$last" -f 4 -n 100 -w 10 -c 0 "${force[@]}" |
        awk -v o="$operation" -v a="$algorithm" '
            $1 ~ /^[0-9]+$/ && NF > 5 { bytes[++n] = $1; time[n] = $6 }
            $2 == "Algorithm" && $3 == "from" { from[++m] = $4; name[m] = $6 }
            END {
                for (i = n > 1 ? 2 : 1; i <= n; i++) {
                    for (k = m; k > 1 && from[k] > bytes[i]; k--);
                    print o, bytes[i], a == "-" ? "-" name[k] : a, time[i]
                }
            }'
}

# measure RUNS OPERATION FIRST LAST: RUNS runs of each algorithm.
measure() {
    local runs=$1 operation=$2 first=$3 last=$4 algorithms algorithm i
    algorithms=$("$bin/${operation}_perf" --help | sed -n 's/^Algorithms: //p' | tr ' ' '\n' | grep -v /)
    for ((i = 0; i < runs; i++)); do
        for algorithm in - $algorithms; do run "$operation" "$algorithm" "$first" "$last"; done
    done
}

table() {
    awk '
    function middle(list,   n, v, i, k, t) {
        n = split(list, v, " ")
        for (i = 2; i <= n; i++)
            for (k = i; k > 1 && v[k] + 0 < v[k - 1] + 0; k--) { t = v[k]; v[k] = v[k - 1]; v[k - 1] = t }
        return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    { row = $1 " " $2
      if (!(row in seen)) { seen[row] = 1; rows[++n] = row }
      if (sub(/^-/, "", $3)) chosen[row] = $3
      key = row " " $3
      if (!(key in least)) names[row] = names[row] " " $3
      if (!(key in least) || $4 < least[key]) least[key] = $4
      all[key] = all[key] " " $4 }
    END {
      printf "%-16s %10s %12s %12s %6s %-20s %12s %6s %s\n", "operation", "bytes", "chosen us", "best us", "ratio", "of", "median us",
          "ratio", "chosen"
      for (i = 1; i <= n; i++) {
          row = rows[i]; split(row, part, " "); key = row " " chosen[row]
          m = split(names[row], name, " "); best = lowest = ""
          for (k = 1; k <= m; k++) {
              median[row " " name[k]] = middle(all[row " " name[k]])
              if (best == "" || least[row " " name[k]] < least[best]) { best = row " " name[k]; fastest = name[k] }
              if (lowest == "" || median[row " " name[k]] < median[lowest]) lowest = row " " name[k]
          }
          ratio = least[key] / least[best]; of_medians = median[key] / median[lowest]
          verdict = (ratio > 1.15 && of_medians > 1.15) ? " MISS" : ""
          printf "%-16s %10d %12.2f %12.2f %6.2f %-20s %12.2f %6.2f %s%s\n", part[1], part[2], least[key], least[best], ratio,
              fastest, median[key], of_medians, chosen[row], verdict
      }
    }'
}

measured=$(for operation in "$@"; do measure "$repetitions" "$operation" 8 "$most"; done | table)
echo "$measured"
missed=$(awk '$NF == "MISS" { print $1, $2 }' <<<"$measured")
[ -n "$missed" ] || exit 0
echo "measured again:"
while read -r operation bytes; do measure $((3 * repetitions)) "$operation" "$bytes" "$bytes"; done <<<"$missed" | table
