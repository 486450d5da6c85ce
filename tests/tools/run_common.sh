# For the tests of tutti-run: $RUN is the program, $work an empty folder, removed at the end.
set -u
RUN=${RUN:?the path of tutti-run}
work=$(mktemp -d "${TMPDIR:-/tmp}/tutti-run-test-XXXXXX")
trap 'rm -rf "$work"' EXIT
failures=0

# expect NAME EXPECTED GOT
expect() {
    if [ "$2" != "$3" ]; then
        printf '%s: expected\n%s\nbut got\n%s\n' "$1" "$2" "$3"
        failures=$((failures + 1))
    fi
}

# contains NAME TEXT FILE
contains() {
    if ! grep -qF -- "$2" "$3"; then
        printf '%s: "%s" is not in\n%s\n' "$1" "$2" "$(cat "$3")"
        failures=$((failures + 1))
    fi
}

# lacks NAME TEXT FILE
lacks() {
    if grep -qF -- "$2" "$3"; then
        printf '%s: "%s" is in\n%s\n' "$1" "$2" "$(cat "$3")"
        failures=$((failures + 1))
    fi
}

# await COMMAND...: until it succeeds, at most 10 s.
await() {
    tries=0
    until "$@" 2>/dev/null; do
        tries=$((tries + 1))
        if [ $tries -gt 1000 ]; then
            echo "waited in vain for: $*"
            failures=$((failures + 1))
            return
        fi
        sleep 0.01
    done
}

# lines FILE N: whether it has N lines.
lines() { [ "$(cat "$1" 2>/dev/null | wc -l)" -eq "$2" ]; }

# gone PID: whether the process has ended (a zombie has).
gone() { case $(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null) in '' | Z | X) return 0 ;; *) return 1 ;; esac }

finish() {
    [ $failures -eq 0 ] || exit 1
    exit 0
}
