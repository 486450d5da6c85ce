# Of lines "library operation ranks bytes best median call_best call_p50 call_p90 call_mean" (bench.c, with a library in front):
# rows[1..nrows] ("operation bytes"); of the repetitions best[row, library], and all the medians in all[row, library]; of single
# calls call_best[row, library], and all of the others in call_p50, call_p90 and call_mean. "-" is no time. Read by compare.sh and
# compare_hosts.sh, whose lines may end after the median.
{
    row = $2 " " $4
    if (!(row in seen)) { seen[row] = 1; rows[++nrows] = row }
    if ($5 != "-") {
        if (!((row, $1) in best) || $5 + 0 < best[row, $1] + 0) best[row, $1] = $5
        all[row, $1] = all[row, $1] " " $6
    }
    if (NF >= 10) {
        if (!((row, $1) in call_best) || $7 + 0 < call_best[row, $1] + 0) call_best[row, $1] = $7
        call_p50[row, $1] = call_p50[row, $1] " " $8
        call_p90[row, $1] = call_p90[row, $1] " " $9
        call_mean[row, $1] = call_mean[row, $1] " " $10
    }
}

# The median of numbers between blanks.
function middle(list,   n, v, i, k, t) {
    n = split(list, v, " ")
    for (i = 2; i <= n; i++)
        for (k = i; k > 1 && v[k] + 0 < v[k - 1] + 0; k--) { t = v[k]; v[k] = v[k - 1]; v[k - 1] = t }
    return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}

# The mean of numbers between blanks.
function average(list,   n, v, i, sum) {
    n = split(list, v, " ")
    for (i = 1; i <= n; i++) sum += v[i]
    return sum / n
}
