# After times.awk: what compare.sh shows of the times, for its table and its charts. Variables: libraries (names between blanks),
# load ("quiet" or "loaded").
#
# name[1..n] are the libraries. figure[1..nfigures] are the figures that are shown, the decisive one is deciding:
# of repetitions on a quiet machine, of single calls on a loaded one. time[row, library, figure] is in microseconds,
# missing where the library has none. A ratio is another library's time / ours: above 1, tutti is faster.

function is_peer(library) { return library !~ /^tutti/ && library != "against" }

# The least time of a peer in this row; 0 without peers.
function fastest(row, what,   i, least) {
    for (i = 1; i <= n; i++)
        if (is_peer(name[i]) && (row, name[i], what) in time && (!least || time[row, name[i], what] < least))
            least = time[row, name[i], what]
    return least
}

# The ratio of the k-th comparison in this row; 0 where it cannot be made.
function ratio(k, row, what,   other, mine) {
    if (!((row, ours[k], what) in time)) return 0
    mine = time[row, ours[k], what]
    if (theirs[k] == "peers") other = fastest(row, what)
    else if ((row, theirs[k], what) in time) other = time[row, theirs[k], what]
    return mine > 0 ? other / mine : 0
}

# The geometric mean of the k-th comparison.
function mean(k, what,   r, value, sum, count) {
    for (r = 1; r <= nrows; r++)
        if ((value = ratio(k, rows[r], what)) > 0) { sum += log(value); count++ }
    return count ? exp(sum / count) : 0
}

function add_comparison(mine, other) { ours[++ncomparisons] = mine; theirs[ncomparisons] = other }

function find_comparisons(   i, peers) {
    for (i = 1; i <= n; i++) { has[name[i]] = 1; if (is_peer(name[i])) peers = 1 }
    if (peers && "tutti" in has) add_comparison("tutti", "peers")
    if (peers && "tutti-mem" in has) add_comparison("tutti-mem", "peers")
    if ("against" in has && "tutti" in has) add_comparison("tutti", "against")
}

function find_times(   r, i, row, at) {
    for (r = 1; r <= nrows; r++)
        for (i = 1; i <= n; i++) {
            row = rows[r]; at = name[i]
            if ((row, at) in best) {
                time[row, at, "best"] = best[row, at] + 0
                time[row, at, "median"] = middle(all[row, at]) + 0
            }
            if (!((row, at) in call_best)) continue
            time[row, at, "call_best"] = call_best[row, at] + 0
            time[row, at, "call_p50"] = middle(call_p50[row, at]) + 0
            time[row, at, "call_p90"] = middle(call_p90[row, at]) + 0
            time[row, at, "call_mean"] = average(call_mean[row, at])
        }
}

END {
    n = split(libraries, name, " ")
    nfigures = split(load == "loaded" ? "call_best call_p50 call_p90 call_mean" : "best median", figure, " ")
    deciding = load == "loaded" ? "call_p50" : "median"
    find_times()
    find_comparisons()
}
