#!/usr/bin/env bash
# Installs into a fresh place; a program finds the package there with CMake and with pkg-config, builds and runs.
. "$(dirname "$0")/common.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -x "$BINARY/bin/tutti-run" ] || fail "tutti-run is not built"
cmake --install "$BINARY" --prefix "$work/prefix" >"$work/log" 2>&1 || fail "install: $(tail -n 20 "$work/log")"
library=$(dirname "$(find "$work/prefix" -name libtutti.so)")

consume() {
    local what=$1
    shift
    "$@" >"$work/log" 2>&1 || fail "$what: $(tail -n 20 "$work/log")"
}
consume "find_package, configure" cmake -S tests/house/consumer -B "$work/build" -DCMAKE_C_COMPILER="$CC" \
    -DCMAKE_PREFIX_PATH="$work/prefix"
consume "find_package, build" cmake --build "$work/build"
consume "find_package, run" "$work/build/consumer"
consume "installed tutti-run" "$work/prefix/bin/tutti-run" -n 2 "$work/build/consumer"

export PKG_CONFIG_PATH=$library/pkgconfig
consume "pkg-config, shared" bash -c '"$0" tests/house/consumer/consumer.c -o "$1/shared" $(pkg-config --cflags --libs tutti)' \
    "$CC" "$work"
consume "pkg-config, shared, run" env LD_LIBRARY_PATH="$library" "$work/shared"
consume "pkg-config, static" bash -c '"$0" tests/house/consumer/consumer.c -o "$1/static" \
    $(pkg-config --cflags tutti) $(pkg-config --libs --static tutti | sed "s/-ltutti/-l:libtutti.a/")' "$CC" "$work"
consume "pkg-config, static, run" "$work/static"

# NCCL's library and header, where the build has them.
if [ -e "$BINARY/lib/libnccl.so.2" ]; then
    consume "libnccl.so.2" "$CC" tests/nccl/program.c -o "$work/nccl" -I"$work/prefix/include/tutti" -L"$library/tutti" -lnccl
    consume "libnccl.so.2, run" env LD_LIBRARY_PATH="$library/tutti" "$work/nccl"
fi

# Libraries and headers: only names of tutti's stand where compilers and programs look.
(cd "$work/prefix" && find include "${library#"$work/prefix/"}" ! -type d | LC_ALL=C sort) >"$work/list"
while read -r path; do
    case $path in
        */tutti/* | */libtutti.* | */libtutti_* | */tutti.h | */tutti_*.h | */pkgconfig/tutti.pc) ;;
        *) fail "installs $path, which is in the way of others" ;;
    esac
done <"$work/list"

# Nothing installed remembers where it was built.
hits=$(grep -rlF -e "$BINARY" -e "$SOURCE" "$work/prefix/include" "$library/cmake" "$library/pkgconfig" || true)
[ -z "$hits" ] || fail "the build's path is in $hits"
finish "installs, and is found by CMake and pkg-config"
