#!/usr/bin/env bash
# compare.sh: its ratios, JSON and verdicts from times that are given, and a short run of the script itself. What it and
# choice.sh refuse.
set -uo pipefail
build=$1 failed=0
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# expect NAME CODE TEXT COMMAND...: the exit code, and a line like TEXT in what it writes.
expect() {
    local name=$1 code=$2 text=$3 status=0 output
    shift 3
    output=$("$@" 2>&1) || status=$?
    if [ "$status" -ne "$code" ] || ! grep -qE -- "$text" <<<"$output"; then
        echo "$name: expected code $code with '$text', got $status with:"
        sed 's/^/  | /' <<<"$output"
        failed=1
    fi
}

# library operation ranks bytes best median; two turns of tutti's first row.
cat >"$folder/times" <<'X'
tutti all_reduce 2 8 2.0 3.0
tutti all_reduce 2 8 1.0 5.0
tutti-mem all_reduce 2 8 0.5 1.0
fast all_reduce 2 8 4.0 8.0
slow all_reduce 2 8 9.0 9.0
against all_reduce 2 8 3.0 2.0
tutti barrier 2 8 1.0 2.0
fast barrier 2 8 1.0 1.0
X
conclude() { # LIBRARIES BELOW ON
    awk -v libraries="$1" -v json="$folder/json" -v below="$2" -v on="$3" -v ranks=2 -v turns=2 \
        -f "$root/perf-tests/times.awk" -f "$root/perf-tests/compare.awk" "$folder/times"
}
all="tutti against tutti-mem fast slow"
# Of tutti 1.00 and the median of 3 and 5; the fastest peer has 4 and 8, --against 3 and 2.
expect ratios 0 "^all_reduce .* 4\.00 +2\.00 +8\.00 +8\.00 +3\.00 +0\.50$" conclude "$all" "" mean
expect nothing_to_compare_in_a_row 0 "^barrier .* 1\.00 +0\.50 +- +- +- +-$" conclude "$all" "" mean
expect geometric_means 0 "^geometric mean .* 2\.00 +1\.00 " conclude "$all" "" mean
expect mean_is_enough 0 "geometric mean" conclude "$all" 1 mean
expect mean_below 1 "^below 1.1: geometric mean 1\.000" conclude "$all" 1.1 mean
expect point_below 1 "^below 0.6: barrier 8: 0\.500" conclude "$all" 0.6 point
expect points_are_enough 0 "geometric mean" conclude "$all" 0.5 point
expect without_peers_against_counts 1 "^below 1: geometric mean 0\.500" conclude "tutti against" 1 mean
expect nothing_to_compare_with 1 "nothing to compare with" conclude "tutti" 0.1 mean
conclude "$all" "" mean >/dev/null
if command -v python3 >/dev/null; then
    expect json 0 "all_reduce 8 tutti 1.0 4.0" python3 -c 'import json, sys
for time in json.load(open(sys.argv[1]))["times"]: print(*[time[key] for key in ("op", "bytes", "library", "best", "median")])' "$folder/json"
else echo "skipped: no python3 to read the JSON with"; fi

# bench.c with a library that does nothing.
cc -std=c17 -D_GNU_SOURCE -O2 -I"$root/perf-tests/peers" -I"$root/perf-tests" "$root"/perf-tests/{peers/bench,common/timing}.c \
    "$root/tests/perf-tests/lone_peer.c" -lm -o "$folder/bench" || exit 1
number='[0-9]+\.[0-9]{3}'
expect bench_quiet 0 "^all_reduce 1 8( $number){6}$" "$folder/bench" all_reduce 8
expect bench_says_quiet 0 "^all_reduce 1 4096( $number){6}$" "$folder/bench" all_reduce 8,4096 quiet
expect bench_loaded 0 "^all_reduce 1 8 - -( $number){4}$" "$folder/bench" all_reduce 8 loaded
expect bench_works 0 "^all_reduce 1 8 - -( $number){4}$" "$folder/bench" all_reduce 8 loaded 1000
expect bench_lacks 0 "^all_reduce 1 8" "$folder/bench" reduce,all_reduce 8
expect bench_fails 1 "" "$folder/bench" barrier 8
expect bench_load 2 "usage: bench" "$folder/bench" all_reduce 8 busy
expect bench_work 2 "usage: bench" "$folder/bench" all_reduce 8 loaded 1x
expect bench_work_in_quiet 2 "usage: bench" "$folder/bench" all_reduce 8 quiet 1
ordered() { "$folder/bench" all_reduce 8,64,512 "$1" | awk '{ if ($6 <= $7 && $7 <= $8) n++ } END { exit n != 3 }'; }
expect best_is_below_median_is_below_p90 0 "" ordered quiet
expect loaded_too 0 "" ordered loaded

choice=$root/perf-tests/choice.sh
expect choice_without_tutti 2 "no tutti in '$folder'" "$choice" "$folder"
expect choice_repetitions 2 "REPETITIONS is '0'" "$choice" "$build" 0
expect choice_bytes 2 "MAX_BYTES is 'some'" "$choice" "$build" 1 some
expect choice_operation 2 "there is no operation 'nix'" "$choice" "$build" 1 8 barrier nix
expect choice_ranks 2 "-n is 'few'" "$choice" -n few "$build"
expect choice 0 "^barrier +0 " "$choice" "$build" 1 8 barrier
expect choice_of_three 0 "^scatter +0 .* (direct|binomial|meet)( MISS)?$" "$choice" -n 3 "$build" 1 8 scatter
expect bad_ranks 2 "--ranks 0: it must be" "$root/perf-tests/compare.sh" --ranks 0
expect bad_turns 2 "--turns x: it must be" "$root/perf-tests/compare.sh" --turns x

if grep -E 'lib(a|t|ub)san' <<<"$(ldd "$build/lib/libtutti.so")" >/dev/null; then
    echo "skipped: the script itself, which cannot link against a library with sanitizers"
    exit $failed
fi
short=("$root/perf-tests/compare.sh" --build "$build" --against "$build" --libraries tutti,tutti-mem --turns 2
    --operations all_reduce,barrier --sizes 8,4K)
expect script 0 "^all_reduce +4096 " "${short[@]}" --json "$folder/run.json" --fail-below 0.0001
expect script_fails 1 "below 1000000: all_reduce 8: " "${short[@]}" --fail-below 1000000 --fail-on point
expect json_of_the_script 0 '"library": "against"' cat "$folder/run.json"
expect bad_number 2 "must be a number" "${short[@]}" --fail-below x
expect bad_word 2 "must be mean or point" "${short[@]}" --fail-on all
expect bad_size 2 "--sizes" "${short[@]}" --sizes 8,some
expect no_tutti_there 1 "no tutti in '$folder'" "${short[@]}" --against "$folder"
exit $failed
