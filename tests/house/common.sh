# Sourced by the house tests: they run in the source folder and read what is there.
# Arguments come from CMake: SOURCE, BINARY, CC, CXX (see CMakeLists.txt beside this).
set -euo pipefail
cd "$SOURCE"
failures=0

fail() {
    printf '%s\n' "$*" >&2
    failures=$((failures + 1))
}

skip() {
    echo "skipped: $*"
    exit 77
}

# Our own source files (no build folders), with paths from the root; arguments: name patterns.
sources() {
    local names=() pattern
    for pattern in "$@"; do names+=(-o -name "$pattern"); done
    find . \( -name .git -o -name 'build' -o -name 'build-*' -o -name shared \) -prune -o \
        -type f \( "${names[@]:1}" \) -print | sed 's,^\./,,' | LC_ALL=C sort
}

finish() {
    [ "$failures" -eq 0 ] || { echo "$failures violations" >&2 && exit 1; }
    echo "${1:-all is well}"
}
