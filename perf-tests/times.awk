# Of lines "library operation ranks bytes best median": rows[1..nrows] ("operation bytes"), best[row,
# library], and all the medians in all[row, library]. Read by compare.sh and compare_hosts.sh.
{
    row = $2 " " $4
    if (!(row in seen)) { seen[row] = 1; rows[++nrows] = row }
    if (!((row, $1) in best) || $5 < best[row, $1]) best[row, $1] = $5
    all[row, $1] = all[row, $1] " " $6
}

# The median of numbers between blanks.
function middle(list,   n, v, i, k, t) {
    n = split(list, v, " ")
    for (i = 2; i <= n; i++)
        for (k = i; k > 1 && v[k] + 0 < v[k - 1] + 0; k--) { t = v[k]; v[k] = v[k - 1]; v[k - 1] = t }
    return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
