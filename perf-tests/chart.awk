# After times.awk and figures.awk: an SVG for each operation, and for each figure on a loaded machine: the times over the bytes of all
# libraries, and below them the ratios of the comparisons, both axes logarithmic. Variables beside theirs: folder, caption (a line
# about machine and run).

function floor(value) { return int(value) - (int(value) > value) }

function log2(value) { return log(value) / log(2) }

function escaped(text) { gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text); return text }

# 4096 -> "4 KiB"
function size_name(bytes) {
    if (bytes >= 1048576 && bytes % 1048576 == 0) return bytes / 1048576 " MiB"
    if (bytes >= 1024 && bytes % 1024 == 0) return bytes / 1024 " KiB"
    return bytes " B"
}

function time_name(us) { return us >= 1000 ? us / 1000 " ms" : us " us" }

# 2 to this power: 1/2, 0.7, 1, 1.4, 2
function ratio_name(power) {
    if (power != int(power)) return sprintf("%.1f", 2 ^ power)
    return power < 0 ? "1/" 2 ^ -power : 2 ^ power ""
}

# The place of a size, and of a value between two bounds in a panel: from the left, from the top.
function x_of(bytes) {
    return high_x > low_x ? LEFT + WIDTH * (0.03 + 0.94 * (log2(bytes) - low_x) / (high_x - low_x)) : LEFT + WIDTH / 2
}
function y_of(value, low, high, top, height) { return top + height * (1 - (log2(value) - low) / (high - low)) }

function text(x, y, anchor, class, content) {
    printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">%s</text>\n", x, y, anchor, class, escaped(content) >out
}
function segment(x1, y1, x2, y2, class) {
    printf "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1, y1, x2, y2, class >out
}
function turned_text(x, y, content) {
    printf "<text transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\" class=\"axis\">%s</text>\n", x, y, escaped(content) >out
}

function begin(operation, what,   title) {
    title = operation ": time of a call over the size"
    printf "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\"" \
        " width=\"%d\" height=\"%d\" role=\"img\">\n<title>%s</title>\n", PAGE_WIDTH, PAGE_HEIGHT, PAGE_WIDTH, PAGE_HEIGHT, title >out
    printf "<style>text { font-family: sans-serif; fill: #222 } .title { font-size: 18px; font-weight: bold }" \
        " .caption { font-size: 12px; fill: #555 } .axis { font-size: 13px } .tick { font-size: 12px }" \
        " .frame { fill: none; stroke: #444 } .grid { stroke: #ddd } .even { stroke: #444; stroke-dasharray: 5 4 }</style>\n" >out
    printf "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n" >out
    text(LEFT, 28, "start", "title", title)
    text(LEFT, 47, "start", "caption", figure_name(what) "; " caption)
}

function figure_name(what) {
    if (what == "best") return "best repetition"
    if (what == "median") return "median of repetitions"
    if (what == "call_p50") return "median of single calls"
    if (what == "call_p90") return "90th percentile of single calls"
    return "mean of single calls"
}

# The frame of a panel with the grid of the sizes, which are named where there is room.
function panel(nsizes, size, top, height, with_names,   i, last) {
    last = -PAGE_WIDTH
    for (i = 1; i <= nsizes; i++) {
        segment(x_of(size[i]), top, x_of(size[i]), top + height, "grid")
        if (!with_names || x_of(size[i]) - last < 52) continue
        last = x_of(size[i])
        text(x_of(size[i]), top + height + 18, "middle", "tick", size_name(size[i]))
    }
    printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" class=\"frame\"/>\n", LEFT, top, WIDTH, height >out
}

function mark(x, y, i) { printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x, y, colour[i] >out }

# A line through points "x,y x,y ...", with a mark at each.
function curve(points, i, label,   n, p, xy, k) {
    printf "<g><title>%s</title>\n<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n", escaped(label), points, colour[i] >out
    n = split(points, p, " ")
    for (k = 1; k <= n; k++) { split(p[k], xy, ","); mark(xy[1], xy[2], i) }
    print "</g>" >out
}

function times_panel(operation, what, nsizes, size,   i, k, low, high, power, y, at, points) {
    low = 1e300; high = 0
    for (k = 1; k <= nsizes; k++)
        for (i = 1; i <= n; i++) {
            at = operation " " size[k] SUBSEP name[i] SUBSEP what
            if (!(at in time) || time[at] <= 0) continue
            if (time[at] < low) low = time[at]
            if (time[at] > high) high = time[at]
        }
    low = log2(10 ^ floor(log(low) / log(10))); high = log2(10 ^ (floor(log(high) / log(10)) + 1)) # whole decades
    for (power = -3; power <= 7; power++) {
        if (log2(10 ^ power) < low - 0.01 || log2(10 ^ power) > high + 0.01) continue
        y = y_of(10 ^ power, low, high, TOP, HEIGHT)
        segment(LEFT, y, LEFT + WIDTH, y, "grid")
        text(LEFT - 8, y + 4, "end", "tick", time_name(10 ^ power))
    }
    panel(nsizes, size, TOP, HEIGHT, 0)
    turned_text(22, TOP + HEIGHT / 2, "time of a call")
    for (i = 1; i <= n; i++) {
        points = ""
        for (k = 1; k <= nsizes; k++) {
            at = operation " " size[k] SUBSEP name[i] SUBSEP what
            if (at in time && time[at] > 0) points = points sprintf("%.1f,%.1f ", x_of(size[k]), y_of(time[at], low, high, TOP, HEIGHT))
        }
        if (points != "") curve(points, i, name[i])
        segment_of_legend(i, TOP + 14 + 22 * (i - 1), name[i])
    }
}

function segment_of_legend(i, y, label) {
    printf "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\"/>\n", LEFT + WIDTH + 14, y, LEFT + WIDTH + 40, y, colour[i] >out
    mark(LEFT + WIDTH + 27, y, i)
    text(LEFT + WIDTH + 47, y + 4, "start", "axis", label)
}

function ratios_panel(operation, what, nsizes, size,   k, c, low, high, value, power, step, y, points) {
    low = high = 1
    for (k = 1; k <= nsizes; k++)
        for (c = 1; c <= ncomparisons; c++) {
            value = ratio(c, operation " " size[k], what)
            if (value > 0 && value < low) low = value
            if (value > high) high = value
        }
    low = log2(low) - 0.5; high = log2(high) + 0.5
    step = high - low > 8 ? 2 : high - low > 2 ? 1 : 0.5
    for (power = -20; power <= 20; power += step) {
        if (power < low || power > high) continue
        y = y_of(2 ^ power, low, high, RATIO_TOP, RATIO_HEIGHT)
        segment(LEFT, y, LEFT + WIDTH, y, power == 0 ? "even" : "grid")
        text(LEFT - 8, y + 4, "end", "tick", ratio_name(power))
    }
    panel(nsizes, size, RATIO_TOP, RATIO_HEIGHT, 1)
    turned_text(22, RATIO_TOP + RATIO_HEIGHT / 2, "ratio")
    for (c = 1; c <= ncomparisons; c++) {
        points = ""
        for (k = 1; k <= nsizes; k++)
            if ((value = ratio(c, operation " " size[k], what)) > 0)
                points = points sprintf("%.1f,%.1f ", x_of(size[k]), y_of(value, low, high, RATIO_TOP, RATIO_HEIGHT))
        if (points != "") curve(points, number[theirs[c] == "against" ? "against" : ours[c]], theirs[c] "/" ours[c])
        segment_of_legend(number[theirs[c] == "against" ? "against" : ours[c]], RATIO_TOP + 14 + 22 * (c - 1),
            (theirs[c] == "peers" ? "fastest peer" : theirs[c]) " / " ours[c])
    }
    if (ncomparisons) text(LEFT + WIDTH + 14, RATIO_TOP + RATIO_HEIGHT - 6, "start", "caption", "above 1: " ours[1] " is faster")
    text(LEFT + WIDTH / 2, RATIO_TOP + RATIO_HEIGHT + 42, "middle", "axis", "bytes of the whole vector")
}

function chart(operation, what,   r, part, size, nsizes) {
    low_x = 1e300; high_x = -1e300
    for (r = 1; r <= nrows; r++) {
        split(rows[r], part, " ")
        if (part[1] != operation) continue
        size[++nsizes] = part[2]
        if (log2(part[2]) < low_x) low_x = log2(part[2])
        if (log2(part[2]) > high_x) high_x = log2(part[2])
    }
    out = folder "/" operation (what == "median" ? "" : "-" (what == "best" ? what : substr(what, 6))) ".svg"
    begin(operation, what)
    times_panel(operation, what, nsizes, size)
    ratios_panel(operation, what, nsizes, size)
    print "</svg>" >out
    if (close(out) != 0) { print "compare.sh: --svg: cannot write " out | "cat >&2"; exit 1 }
}

END {
    PAGE_WIDTH = 900; PAGE_HEIGHT = 640; LEFT = 92; WIDTH = 590; TOP = 64; HEIGHT = 320; RATIO_TOP = 404; RATIO_HEIGHT = 170
    split("#1b6ca8 #d1495b #2e8b57 #e08e0b #7b4fa3 #5c5c5c #00a0a0 #a0522d", colour, " ")
    for (i = 1; i <= n; i++) number[name[i]] = i
    nfigures = split(load == "loaded" ? "call_p50 call_p90 call_mean" : "best median", figure, " ")
    for (r = 1; r <= nrows; r++) {
        split(rows[r], part, " ")
        if (part[1] in drawn) continue
        drawn[part[1]] = 1
        for (f = 1; f <= nfigures; f++) chart(part[1], figure[f])
    }
}
