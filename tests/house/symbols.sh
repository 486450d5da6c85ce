#!/usr/bin/env bash
# Which functions the objects of the library use of one another follows symbols.rules.
. "$(dirname "$0")/common.sh"
[ -e "$BINARY/CMakeFiles/tutti_objects.dir/src" ] || skip "no objects of the library"
command -v nm >/dev/null || skip "no nm (binutils)"
python3 "$(dirname "$0")/symbols.py" "$BINARY" "$(dirname "$0")/symbols.rules" || fail "see tests/house/symbols.rules"
finish "objects follow symbols.rules"
