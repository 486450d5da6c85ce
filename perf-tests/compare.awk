# After times.awk: compare.sh's table, JSON and verdict. Variables: libraries (names between blanks),
# json (a file or ""), below (R or ""), on (mean or point), ranks, turns.
#
# A ratio is another library's time / ours: above 1, tutti is faster.

function is_peer(library) { return library !~ /^tutti/ && library != "against" }

# The least time of a peer in this row; 0 without peers.
function fastest(row, times,   i, least) {
    for (i = 1; i <= n; i++)
        if (is_peer(name[i]) && (row, name[i]) in times && (!least || times[row, name[i]] < least))
            least = times[row, name[i]]
    return least
}

# The ratio of the k-th comparison in this row; 0 where it cannot be made.
function ratio(k, row, times,   other) {
    if (!((row, ours[k]) in times)) return 0
    if (theirs[k] == "peers") other = fastest(row, times)
    else if ((row, theirs[k]) in times) other = times[row, theirs[k]]
    return times[row, ours[k]] > 0 ? other / times[row, ours[k]] : 0
}

function add_comparison(mine, other) { ours[++ncomparisons] = mine; theirs[ncomparisons] = other }

function find_comparisons(   i, peers) {
    for (i = 1; i <= n; i++) { has[name[i]] = 1; if (is_peer(name[i])) peers = 1 }
    if (peers && "tutti" in has) add_comparison("tutti", "peers")
    if (peers && "tutti-mem" in has) add_comparison("tutti-mem", "peers")
    if ("against" in has && "tutti" in has) add_comparison("tutti", "against")
}

function print_table(   i, k, r, part) {
    printf "%-14s %10s", "operation", "bytes"
    for (i = 1; i <= n; i++) printf " %20s", name[i]
    for (k = 1; k <= ncomparisons; k++) printf " %17s", theirs[k] "/" ours[k]
    printf "\n%-14s %10s", "", ""
    for (i = 1; i <= n; i++) printf " %10s %9s", "best", "median"
    for (k = 1; k <= ncomparisons; k++) printf " %10s %6s", "best", "median"
    print ""
    for (r = 1; r <= nrows; r++) {
        split(rows[r], part, " ")
        printf "%-14s %10s", part[1], part[2]
        for (i = 1; i <= n; i++)
            if ((rows[r], name[i]) in best) printf " %10.2f %9.2f", best[rows[r], name[i]], median[rows[r], name[i]]
            else printf " %10s %9s", "-", "-"
        for (k = 1; k <= ncomparisons; k++) printf " %10s %6s", shown(ratio(k, rows[r], best)), shown(ratio(k, rows[r], median))
        print ""
    }
    printf "%-25s%*s", "geometric mean", 21 * n, ""
    for (k = 1; k <= ncomparisons; k++) printf " %10s %6s", shown(mean(k, best)), shown(mean(k, median))
    print ""
}

function shown(value) { return value > 0 ? sprintf("%.2f", value) : "-" }

function mean(k, times,   r, value, sum, count) {
    for (r = 1; r <= nrows; r++)
        if ((value = ratio(k, rows[r], times)) > 0) { sum += log(value); count++ }
    return count ? exp(sum / count) : 0
}

function write_json(   i, k, r, part, comma) {
    printf "{\n  \"ranks\": %d,\n  \"turns\": %d,\n  \"times\": [", ranks, turns >json
    for (r = 1; r <= nrows; r++)
        for (i = 1; i <= n; i++) {
            if (!((rows[r], name[i]) in best)) continue
            split(rows[r], part, " ")
            printf "%s\n    {\"op\": \"%s\", \"bytes\": %s, \"library\": \"%s\", \"best\": %.3f, \"median\": %.3f}", comma,
                part[1], part[2], name[i], best[rows[r], name[i]], median[rows[r], name[i]] >json
            comma = ","
        }
    printf "\n  ],\n  \"geometric_means\": [" >json
    for (k = 1; k <= ncomparisons; k++)
        printf "%s\n    {\"of\": \"%s\", \"to\": \"%s\", \"best\": %.4f, \"median\": %.4f}", (k > 1 ? "," : ""), ours[k],
            theirs[k], mean(k, best), mean(k, median) >json
    print "\n  ]\n}" >json
    if (close(json) != 0) { print "compare.sh: --json: cannot write " json | "cat >&2"; exit 1 }
}

# The medians of the first comparison decide: with the peers, without peers with --against.
function judge(   r, value, failed, made) {
    if (on == "mean") {
        value = mean(1, median)
        made = value > 0
        if (made && value < below) { printf "below %s: geometric mean %.3f\n", below, value; failed = 1 }
    } else
        for (r = 1; r <= nrows; r++) {
            value = ratio(1, rows[r], median)
            if (value > 0) made = 1
            if (value > 0 && value < below) { printf "below %s: %s: %.3f\n", below, rows[r], value; failed = 1 }
        }
    if (!made) { print "--fail-below: nothing to compare with: neither peers nor --against"; failed = 1 }
    return failed
}

END {
    n = split(libraries, name, " ")
    for (r = 1; r <= nrows; r++)
        for (i = 1; i <= n; i++)
            if ((rows[r], name[i]) in best) median[rows[r], name[i]] = middle(all[rows[r], name[i]])
    find_comparisons()
    print_table()
    if (json != "") write_json()
    if (below != "" && judge()) exit 1
}
