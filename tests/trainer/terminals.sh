#!/usr/bin/env bash
# See terminals.py.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$here/terminals.py" "$work" "${BIN:?}/tutti-train" --layers=1 --heads=1 --width=16 --context=16 --batch=4 --warmup=5 --sample=0 --threads=1 \
    "--data=${SOURCE:?}/include" --steps=10000000
