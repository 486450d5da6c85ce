# For the tests of the perf tests' programs that look at what is written: $output is the last command's, $failed the test's exit status.
failed=0

# expect CODE TEXT COMMAND...: the exit code, and the text in what it writes.
expect() {
    local code=$1 text=$2 status=0
    shift 2
    output=$(timeout --kill-after=5 100 "$@" 2>&1) || status=$?
    if [ "$status" -ne "$code" ] || ! grep -qF -- "$text" <<<"$output"; then
        echo "expected code $code with '$text', got $status with:"
        echo "  $*"
        tail -n 20 <<<"$output" | sed 's/^/  | /'
        failed=1
    fi
}

# has PATTERN: the last output has such a line.
has() {
    grep -qE -- "$1" <<<"$output" && return
    echo "no line '$1' in:" && tail -n 30 <<<"$output" | sed 's/^/  | /'
    failed=1
}
