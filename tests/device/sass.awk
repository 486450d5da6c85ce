# Reads the disassembly of tutti_run (nvdisasm -c) and prints, sorted by kind:
#   function NAME LOADS STORES TIMES: how many 16-byte weak loads, and stores, of global memory a thread has in flight at most, and at how
#                              many places 8 loads or more
#   strong KIND N              how many strong instructions of a kind: load.gpu, store.sys.bytes, atomic.gpu, fence.sys, invalidate, ...
# In flight: loads, on a way without jumps, before the first instruction that uses what one of them loads; stores of one basic block.
function use() { times += nloads >= 8; nloads = 0; delete loading }
function leave_block() { use(); nstores = 0 }
function flush_function() { if (name != "") print "function", name, most_loads + 0, most_stores + 0, times + 0; most_loads = most_stores = times = 0 }

/^[.$A-Za-z_][^ ]*:/ {
    nstores = 0
    if ($0 ~ /^\.L/ || $0 ~ /^\.text/) next
    leave_block()
    flush_function()
    name = $1
    sub(/:$/, "", name)
    sub(/^\$tutti_run\$/, "", name)
    next
}
/^ *\/\*[0-9a-f]+\*\/ / {
    text = $0
    sub(/^ *\/\*[0-9a-f]+\*\/ */, "", text)
    predicated = sub(/^@!?U?P[0-9T]+ +/, "", text)
    split(text, words, /[ ;]/)
    op = words[1]
    operands = substr(text, length(op) + 1)
    scope = op ~ /\.SYS$/ ? "sys" : "gpu"
    bytes = op ~ /\.128/ ? 16 : op ~ /\.64/ ? 8 : 4
    gsub(/U[RP][0-9]+/, "", operands) # uniform registers are others
    rest = operands
    while (match(rest, /R[0-9]+/)) { # a use of what is being loaded: nothing after it runs before it
        register = substr(rest, RSTART + 1, RLENGTH - 1)
        if (register in loading) { use(); break }
        rest = substr(rest, RSTART + RLENGTH)
    }
    if (op ~ /STRONG/) {
        if (op ~ /^LD/) { count["load." scope]++; if (bytes == 16) count["line.load." scope]++ }
        else if (op ~ /^ST/) { count["store." scope ".bytes"] += bytes; if (bytes == 16) count["line.store." scope]++ }
        else count["atomic." scope]++
    } else if (op ~ /^MEMBAR/) count["fence." (op ~ /SYS/ ? "sys" : "gpu")]++
    else if (op ~ /^CCTL\.IVALL/) count["invalidate"]++
    else if (op ~ /^LDG.*\.128/) {
        match(operands, /R[0-9]+/)
        first = substr(operands, RSTART + 1, RLENGTH - 1)
        for (i = 0; i < 4; i++) loading[first + i] = 1
        if (++nloads > most_loads) most_loads = nloads
    } else if (op ~ /^STG.*\.128/) {
        if (++nstores > most_stores) most_stores = nstores
    } else if (op == "BRA" && predicated) nstores = 0
    else if (op ~ /^(BRA|BRX|CALL|RET|EXIT|BREAK|WARPSYNC|BAR)/) leave_block()
}
END {
    flush_function()
    for (kind in count) print "strong", kind, count[kind]
}
