#!/usr/bin/env bash
# compare.sh: its ratios, JSON and verdicts from times that are given, and short runs of the script itself, also with libraries that
# hang, fail or do not compile. What it and choice.sh refuse.
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

# library operation ranks bytes best median, and of single calls best p50 p90 mean; two turns of tutti's first row.
cat >"$folder/times" <<'X'
tutti all_reduce 2 8 2.0 3.0 0.4 2.0 3.0 10.0
tutti all_reduce 2 8 1.0 5.0 0.5 4.0 5.0 30.0
tutti-mem all_reduce 2 8 0.5 1.0
fast all_reduce 2 8 4.0 8.0 0.8 6.0 2.0 5.0
slow all_reduce 2 8 9.0 9.0 0.9 9.0 9.0 4.0
against all_reduce 2 8 3.0 2.0 0.2 3.0 8.0 40.0
tutti barrier 2 8 1.0 2.0
fast barrier 2 8 1.0 1.0
X
sed 's/^\([^ ]* [^ ]* [^ ]* [^ ]*\) [^ ]* [^ ]*/\1 - -/' "$folder/times" >"$folder/loaded"
known=(-f "$root/perf-tests/times.awk" -f "$root/perf-tests/figures.awk" -f "$root/perf-tests/compare.awk")
conclude() { # LIBRARIES BELOW ON
    awk -v libraries="$1" -v load=quiet -v json="$folder/json" -v below="$2" -v on="$3" -v ranks=2 -v turns=2 \
        -v missing="slow: was stopped" "${known[@]}" "$folder/times"
}
conclude_loaded() { # LIBRARIES BELOW ON
    awk -v libraries="$1" -v load=loaded -v json="$folder/json" -v below="$2" -v on="$3" -v ranks=2 -v turns=2 -v hogs=3 -v work=7 \
        "${known[@]}" "$folder/loaded"
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
    expect json_of_calls 0 "all_reduce 8 slow 9.0 0.9 9.0 9.0 4.0" python3 -c 'import json, sys
for time in json.load(open(sys.argv[1]))["times"]:
    print(*[time.get(key) for key in ("op", "bytes", "library", "best", "call_best", "call_p50", "call_p90", "call_mean")])' "$folder/json"
    expect json_of_what_is_missing 0 "slow was stopped" python3 -c 'import json, sys
for one in json.load(open(sys.argv[1]))["missing"]: print(one["library"], one["why"])' "$folder/json"
    conclude_loaded "$all" "" mean >/dev/null
    expect json_of_the_load 0 "loaded 3 7 None 0.4 3.0 4.0 20.0 1.0" python3 -c 'import json, sys
all = json.load(open(sys.argv[1]))
print(all["load"], all["hogs"], all["work_us"], *[all["times"][0].get(key) for key in ("best", "call_best", "call_p50", "call_p90", "call_mean")],
    all["geometric_means"][2]["call_p50"])' "$folder/json"
else echo "skipped: no python3 to read the JSON with"; fi

# Of tutti the least best 0.4, the medians 3 and 4 of p50 and p90, the mean 20.
expect loaded_best 0 "^all_reduce +8 best +0\.40 +0\.20 +- +0\.80 +0\.90 +2\.00 +- +0\.50$" conclude_loaded "$all" "" mean
expect loaded_p50 0 "^ +p50 +3\.00 +3\.00 +- +6\.00 +9\.00 +2\.00 +- +1\.00$" conclude_loaded "$all" "" mean
expect loaded_p90 0 "^ +p90 +4\.00 +8\.00 +- +2\.00 +9\.00 +0\.50 +- +2\.00$" conclude_loaded "$all" "" mean
expect loaded_mean 0 "^ +mean +20\.00 +40\.00 +- +5\.00 +4\.00 +0\.20 +- +2\.00$" conclude_loaded "$all" "" mean
expect loaded_geometric_mean 0 "^geometric mean +best +2\.00 +- +0\.50$" conclude_loaded "$all" "" mean
expect p50_decides 1 "^below 2.1: geometric mean 2\.000" conclude_loaded "$all" 2.1 mean
expect why_missing 0 "^slow: was stopped$" conclude "$all" "" mean

# Charts, from the times above and of a further size: XML with every library, size and comparison.
draw() { # LOAD TIMES: into $folder/charts
    mkdir -p "$folder/charts" && awk -v libraries="$all" -v load="$1" -v folder="$folder/charts" -v caption='2 ranks & a <load>' \
        -f "$root/perf-tests/times.awk" -f "$root/perf-tests/figures.awk" -f "$root/perf-tests/chart.awk" "$2"
}
well_formed() {
    if command -v python3 >/dev/null; then python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$1"
    else grep -q '^</svg>$' "$1"; fi
}
sed -n '/ barrier /!p' "$folder/times" | sed 's/ 2 8 / 2 1048576 /' | cat "$folder/times" - >"$folder/more"
sed 's/^\([^ ]* [^ ]* [^ ]* [^ ]*\) [^ ]* [^ ]*/\1 - -/; / barrier /d' "$folder/more" >"$folder/more_loaded"
expect draw 0 "" draw quiet "$folder/more"
expect draw_loaded 0 "" draw loaded "$folder/more_loaded"
for name in all_reduce all_reduce-best barrier all_reduce-p50 all_reduce-p90 all_reduce-mean; do expect "chart_$name" 0 "" well_formed "$folder/charts/$name.svg"; done
for text in "8 B" "1 MiB" tutti against tutti-mem fast slow "fastest peer / tutti" "fastest peer / tutti-mem" "against / tutti" \
    "all_reduce: time of a call over the size" "median of repetitions; 2 ranks &amp; a &lt;load&gt;" "bytes of the whole vector"; do
    expect "chart_has_$text" 0 ">$text</text>" cat "$folder/charts/all_reduce.svg"
done
expect chart_of_calls 0 ">90th percentile of single calls; " cat "$folder/charts/all_reduce-p90.svg"
[ "$(grep -c '<polyline' "$folder/charts/all_reduce.svg")" -eq 8 ] || { echo "charts: expected 8 lines, of 5 libraries and 3 ratios" && failed=1; }
! grep -q -- '-\?nan\|inf' "$folder/charts/"*.svg || { echo "charts: a place that is no number" && failed=1; }

# The program bench.c with a library that does nothing.
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
for bad in ranks=4097 limit=0 limit=1s hogs=-1 hogs=1025 work=x work=10000001; do
    expect "bad_$bad" 2 "--${bad%=*} ${bad#*=}: it must be a whole number from [01] to " "$root/perf-tests/compare.sh" "--${bad%=*}" "${bad#*=}"
done
expect bad_library 2 "there is no 'lam'; it takes tutti" "$root/perf-tests/compare.sh" --libraries tutti,lam
expect bad_turns 2 "--turns x: it must be" "$root/perf-tests/compare.sh" --turns x

if grep -E 'lib(a|t|ub)san' <<<"$(ldd "$build/lib/libtutti.so")" >/dev/null; then
    echo "skipped: the script itself, which cannot link against a library with sanitizers"
    exit $failed
fi
# limited SECONDS HOGS COMMAND...
cc -std=c17 -D_GNU_SOURCE -O2 -I"$root/perf-tests" "$root"/perf-tests/{peers/limited,common/hogs,common/timing}.c -lm \
    -o "$folder/limited" || exit 1
expect limited 7 "" "$folder/limited" 60 1 sh -c 'exit 7'
expect limited_by_a_signal 137 "" "$folder/limited" 60 0 sh -c 'kill -KILL $$'
expect limited_command 125 "cannot run '$folder/none': No such file" "$folder/limited" 60 0 "$folder/none"
expect limited_time 124 "" "$folder/limited" 1 0 tail -f /dev/null
for bad in "0 0" "x 0" "1 -1" "1 1025" "1000001 0"; do expect "limited_$bad" 125 "usage: limited" "$folder/limited" $bad true; done

# is_gone PID: also when only its parent has not asked for its end yet.
is_gone() { ! grep -qs '^State:.[^ZX]' "/proc/$1/status"; }
until_so() { # COMMAND...: within a minute
    local end=$((SECONDS + 60))
    until "$@"; do [ $SECONDS -lt $end ] || return 1; done
}
all_gone() { for pid in $(cat "$folder/pids"); do is_gone "$pid" || return 1; done; }
expect_gone() { # NAME NUMBER: so many processes had been there, and are not any more
    [ "$(wc -w <"$folder/pids")" -eq "$2" ] || { echo "$1: expected $2 processes, got: $(xargs <"$folder/pids")" && failed=1; }
    until_so all_gone || { echo "$1: one of these processes is left: $(xargs <"$folder/pids")" && failed=1; }
    : >"$folder/pids"
}

# A launcher that hangs, with a rank of its own session that ignores SIGTERM.
cat >"$folder/hang" <<X
#!/usr/bin/env bash
setsid bash -c 'trap : TERM; echo \$\$ >>"$folder/pids"; until false; do read -r -t 1 <>"$folder/fifo"; done' &
echo \$\$ >>"$folder/pids"
echo "all_reduce 2 8 4.0 5.0 4.0 5.0 6.0 7.0"
wait
X
mkfifo "$folder/fifo"
chmod +x "$folder/hang"
: >"$folder/pids"
expect limited_launcher 124 "all_reduce" "$folder/limited" 2 2 "$folder/hang"
expect_gone limited_launcher 2

# MPI libraries whose compiler and launcher are scripts: one works, one hangs, one fails or does not compile.
mpi() { # LIBRARY MPICC MPIRUN: commands of a shell
    mkdir -p "$folder/peers/$1/bin"
    printf '#!/usr/bin/env bash\n%s\n' "$2" >"$folder/peers/$1/bin/mpicc"
    printf '#!/usr/bin/env bash\n%s\n' "$3" >"$folder/peers/$1/bin/mpirun"
    chmod +x "$folder/peers/$1/bin/"*
}
line='all_reduce 2 8 1.0 2.0 1.0 2.0 3.0 4.0'
mpi openmpi true "echo '$line'"
mpi mpich true "exec '$folder/hang'"
mpi impi true "echo '$line'; echo no fabric >&2; exit 9"
with_fakes() { TUTTI_PEERS=$folder/peers "$root/perf-tests/compare.sh" --build "$build" --operations all_reduce --sizes 8 "$@"; }
expect hanging_library 3 "^mpich: was stopped after 3 seconds \(--limit\) in turn 1 of 2" with_fakes --libraries openmpi,mpich --turns 2 --limit 3
expect_gone hanging_library 2
expect failing_library 3 "^impi: failed with exit code 9 in turn 1 of 2" with_fakes --libraries openmpi,impi --turns 2
expect its_own_words 3 "^  \| no fabric" with_fakes --libraries openmpi,impi --turns 2
expect table_is_there 3 "^all_reduce +8 +1\.00 +2\.00 +1\.00 +2\.00$" with_fakes --libraries openmpi,impi --turns 2
mpi impi "exit 1" true
expect not_compiling 3 "^impi: does not compile" with_fakes --libraries openmpi,impi
expect missing_points 3 "^all_reduce +8 +1\.00 +2\.00 +- +-$" with_fakes --libraries openmpi,impi
mpi openmpi true 'echo "${@: -2}" >"${0%/*}/last"'
expect load_of_peers 0 "" with_fakes --libraries openmpi --turns 1 --work 25
expect load_of_peers 0 "^loaded 25$" cat "$folder/peers/openmpi/bin/last"

# Nothing is left of a script that is killed.
hogs_are() { # NUMBER
    local process n=0
    for process in /proc/[0-9]*; do
        [ "$(cat "$process/comm" 2>/dev/null)" = perf-hog ] || continue
        ! grep -qaF "HOGS_OF_THE_TEST=$folder" "$process/environ" 2>/dev/null || n=$((n + 1))
    done
    [ $n -eq "$1" ]
}
started() { [ "$(wc -w <"$folder/pids")" -eq 2 ]; }
HOGS_OF_THE_TEST=$folder TUTTI_PEERS=$folder/peers "$root/perf-tests/compare.sh" --build "$build" --libraries mpich --hogs 2 >"$folder/out" 2>&1 &
script=$!
until_so started && until_so hogs_are 2 || { echo "killed_script: no library or no hogs: $(cat "$folder/out")" && failed=1; }
kill -KILL $script
wait $script 2>/dev/null
expect_gone killed_script 2
until_so hogs_are 0 || { echo "killed_script: its hogs are left" && failed=1; }

short=("$root/perf-tests/compare.sh" --build "$build" --against "$build" --libraries tutti,tutti-mem --operations all_reduce,barrier)
shortest=("${short[@]}" --turns 1 --sizes 8)
short+=(--turns 2 --sizes 8,4K)
expect script 0 "^all_reduce +4096 " "${short[@]}" --json "$folder/run.json" --fail-below 0.0001
expect script_fails 1 "below 1000000: all_reduce 8: " "${shortest[@]}" --fail-below 1000000 --fail-on point
expect script_draws 0 "^all_reduce +8 " "${shortest[@]}" --svg "$folder/drawn"
for name in all_reduce all_reduce-best barrier; do expect "drawn_$name" 0 "" well_formed "$folder/drawn/$name.svg"; done
expect nowhere_to_draw 1 "--svg: cannot write to '$folder/out/x'" "${shortest[@]}" --svg "$folder/out/x"
expect json_of_the_script 0 '"library": "against"' cat "$folder/run.json"
expect loaded_script 0 "^all_reduce +8 best " "${shortest[@]}" --hogs 1 --work 5 --json "$folder/run.json" --fail-below 0.0001
expect its_load 0 '"hogs": 1,' cat "$folder/run.json"
mpi openmpi true "echo '$line'"
mpi impi "exit 1" true
expect verdict_first 1 "^below 100000: all_reduce" with_fakes --libraries tutti,openmpi,impi --turns 1 --fail-below 100000 --fail-on point
expect bad_number 2 "must be a number" "${short[@]}" --fail-below x
expect bad_word 2 "must be mean or point" "${short[@]}" --fail-on all
expect bad_size 2 "--sizes" "${short[@]}" --sizes 8,some
expect no_tutti_there 1 "no tutti in '$folder'" "${short[@]}" --against "$folder"
exit $failed
