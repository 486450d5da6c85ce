#!/usr/bin/env python3
"""Prints the results of the probes as tables, or compares two machines.

usage: table.py FILE              one table for each probe
       table.py --compare A B     rows of the probe "calls" that differ: the virtual GPU must show none
"""
import json
import lzma
import sys


def rows_of(path):
    with (lzma.open if path.endswith(".xz") else open)(path, "rt", encoding="utf-8") as file:
        return json.load(file)["rows"]


def show(path):
    last = None
    for row in rows_of(path):
        if row["probe"] != last:
            last = row["probe"]
            print(f"\n== {last}")
        rest = [f"{key}={value}" for key, value in row.items() if key not in ("probe", "name")]
        print(f'{row["name"]}: {"  ".join(rest)}')


def conformance(path):
    """The rows of `calls` by situation and call; repeated ones are numbered."""
    found, times = {}, {}
    for row in rows_of(path):
        if row["probe"] != "calls":
            continue
        key = (row["name"], row.get("call", row.get("value_of")))
        times[key] = times.get(key, 0) + 1
        found[key + (times[key],)] = row.get("result", row.get("value"))
    return found


def compare(left, right):
    a, b = conformance(left), conformance(right)
    different = [key for key in {**a, **b} if a.get(key) != b.get(key)]
    for key in different:
        print(f"{key[0]}: {key[1]} ({key[2]}): {a.get(key)} | {b.get(key)}")
    print(f"{len(different)} of {len({**a, **b})} rows differ")
    return 1 if different else 0


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--compare":
        sys.exit(compare(sys.argv[2], sys.argv[3]))
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    show(sys.argv[1])
