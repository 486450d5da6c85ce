# After times.awk and figures.awk: compare.sh's table, JSON and verdict. Variables beside theirs: json (a file or ""),
# below (R or ""), on (mean or point), ranks, turns, hogs, work (microseconds), missing (lines "library: why it has no times").

# On a quiet machine: a line a row, two columns a library and a comparison.
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
        for (i = 1; i <= n; i++) printf " %10s %9s", shown_time(rows[r], name[i], "best"), shown_time(rows[r], name[i], "median")
        for (k = 1; k <= ncomparisons; k++)
            printf " %10s %6s", shown(ratio(k, rows[r], "best")), shown(ratio(k, rows[r], "median"))
        print ""
    }
    printf "%-25s%*s", "geometric mean", 21 * n, ""
    for (k = 1; k <= ncomparisons; k++) printf " %10s %6s", shown(mean(k, "best")), shown(mean(k, "median"))
    print ""
}

# On a loaded machine: a line a row and figure, a column a library and a comparison.
function print_long_table(   i, k, r, f, part, title) {
    printf "%-14s %10s %-6s", "operation", "bytes", "calls"
    for (i = 1; i <= n; i++) printf " %12s", name[i]
    for (k = 1; k <= ncomparisons; k++) printf " %17s", theirs[k] "/" ours[k]
    print ""
    for (r = 1; r <= nrows; r++)
        for (f = 1; f <= nfigures; f++) {
            split(rows[r], part, " ")
            printf "%-14s %10s %-6s", f == 1 ? part[1] : "", f == 1 ? part[2] : "", short_name(figure[f])
            for (i = 1; i <= n; i++) printf " %12s", shown_time(rows[r], name[i], figure[f])
            for (k = 1; k <= ncomparisons; k++) printf " %17s", shown(ratio(k, rows[r], figure[f]))
            print ""
        }
    for (f = 1; f <= nfigures && ncomparisons; f++) {
        printf "%-25s %-6s%*s", f == 1 ? "geometric mean" : "", short_name(figure[f]), 13 * n, ""
        for (k = 1; k <= ncomparisons; k++) printf " %17s", shown(mean(k, figure[f]))
        print ""
    }
}

function short_name(what) { sub(/^call_/, "", what); return what }

function shown(value) { return value <= 0 ? "-" : sprintf(value < 0.095 ? "%.3f" : "%.2f", value) }

function shown_time(row, library, what) { return (row, library, what) in time ? sprintf("%.2f", time[row, library, what]) : "-" }

# All figures that were measured, whatever the table shows.
function write_times(   i, r, f, part, comma, nall, every, fields) {
    nall = split("best median call_best call_p50 call_p90 call_mean", every, " ")
    for (r = 1; r <= nrows; r++)
        for (i = 1; i <= n; i++) {
            fields = ""
            for (f = 1; f <= nall; f++)
                if ((rows[r], name[i], every[f]) in time)
                    fields = fields sprintf(", \"%s\": %.3f", every[f], time[rows[r], name[i], every[f]])
            if (fields == "") continue
            split(rows[r], part, " ")
            printf "%s\n    {\"op\": \"%s\", \"bytes\": %s, \"library\": \"%s\"%s}", comma, part[1], part[2], name[i], fields >json
            comma = ","
        }
}

function write_json(   i, k, f, lines, nlines, colon) {
    printf "{\n  \"ranks\": %d,\n  \"turns\": %d,\n  \"load\": \"%s\",\n  \"hogs\": %d,\n  \"work_us\": %d,\n  \"times\": [", ranks,
        turns, load, hogs, work >json
    write_times()
    printf "\n  ],\n  \"geometric_means\": [" >json
    for (k = 1; k <= ncomparisons; k++) {
        printf "%s\n    {\"of\": \"%s\", \"to\": \"%s\"", (k > 1 ? "," : ""), ours[k], theirs[k] >json
        for (f = 1; f <= nfigures; f++) printf ", \"%s\": %.4f", figure[f], mean(k, figure[f]) >json
        printf "}" >json
    }
    printf "\n  ],\n  \"missing\": [" >json
    nlines = split(missing, lines, "\n")
    for (i = 1; i <= nlines; i++) {
        colon = index(lines[i], ": ")
        printf "%s\n    {\"library\": \"%s\", \"why\": \"%s\"}", (i > 1 ? "," : ""), substr(lines[i], 1, colon - 1),
            substr(lines[i], colon + 2) >json
    }
    print "\n  ]\n}" >json
    if (close(json) != 0) { print "compare.sh: --json: cannot write " json | "cat >&2"; exit 1 }
}

# The medians of the first comparison decide: with the peers, without peers with --against.
function judge(   r, value, failed, made) {
    if (on == "mean") {
        value = mean(1, deciding)
        made = value > 0
        if (made && value < below) { printf "below %s: geometric mean %.3f\n", below, value; failed = 1 }
    } else
        for (r = 1; r <= nrows; r++) {
            value = ratio(1, rows[r], deciding)
            if (value > 0) made = 1
            if (value > 0 && value < below) { printf "below %s: %s: %.3f\n", below, rows[r], value; failed = 1 }
        }
    if (!made) { print "--fail-below: nothing to compare with: neither peers nor --against"; failed = 1 }
    return failed
}

END {
    if (load == "loaded") print_long_table()
    else print_table()
    if (missing != "") print "missing:\n" missing
    if (json != "") write_json()
    if (below != "" && judge()) exit 1
}
