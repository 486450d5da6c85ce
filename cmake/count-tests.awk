# Reads `ctest -V` output. First line out: passed, failed and skipped cases. Then a line for each skip's reason.
# A program without GoogleTest's lines counts as one case; one that died without naming a case as one failure.
/^[0-9]+: \[       OK \] / { ok[$1]++ }
/^[0-9]+: \[  SKIPPED \] .* \([0-9]+ ms\)/ { skips[$1]++ }
/^[0-9]+: \[  FAILED  \] .* \([0-9]+ ms\)/ { bad[$1]++ }
/^[0-9]+: .*skipped: / { sub(/^[0-9]+: /, ""); sub(/^[^ ]*\//, ""); reasons[++nreasons] = $0 }
/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / {
    number = $0
    sub(/^.*Test +#/, "", number)
    sub(/:.*$/, "", number)
    key = number ":"
    if (/\*\*\*Skipped/) nskipped += 1
    else if (/ Passed /) npassed += (key in ok) || (key in skips) ? ok[key] : 1
    else {
        npassed += ok[key]
        nfailed += (key in bad) ? bad[key] : 1
    }
    nskipped += skips[key]
}
END {
    printf "%d %d %d\n", npassed, nfailed, nskipped
    for (i = 1; i <= nreasons; i++) print reasons[i]
}
