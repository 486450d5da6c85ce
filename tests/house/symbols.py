"""Which functions the objects of the library use of one another, as nm tells.

usage: symbols.py BUILD RULES

RULES has lines of these forms:
    forbid PATTERN NAME...   objects of src/PATTERN (a glob) use no function whose name begins so
    except FILE              but src/FILE may
    circle FOLDER N          no more than N files of src/FOLDER (all folders below it, too) use one another in a circle
Prints what breaks a rule. With --list FOLDER in place of RULES: the circles of that folder.
"""
import fnmatch
import os
import re
import subprocess
import sys


def objects_of(build):
    """Of each object whose source is there: its place in src without .c, and its path."""
    found = {}
    source = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", open(os.path.join(build, "CMakeCache.txt")).read(), re.M)[1]
    for root, _, files in os.walk(os.path.join(build, "CMakeFiles/tutti_objects.dir/src")):
        for name in files:
            if name.endswith(".c.o"):
                path = os.path.join(root, name)
                place = path.split("tutti_objects.dir/src/")[1].removesuffix(".o")
                if os.path.exists(os.path.join(source, "src", place)):
                    found[place.removesuffix(".c")] = path
    return found


def symbols_of(path):
    """Names that the object defines for others, and that it needs."""
    defined, needed = set(), set()
    for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
        parts = line.split()
        if parts[-2] == "U":
            needed.add(parts[-1])
        elif parts[-2].isupper():
            defined.add(parts[-1])
    return defined, needed


def circles_of(graph):
    """Strongly connected components of more than one node (Tarjan), the largest first."""
    index, low, stack, on, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on.add(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            circle = []
            while True:
                other = stack.pop()
                on.discard(other)
                circle.append(other)
                if other == node:
                    break
            if len(circle) > 1:
                found.append(sorted(circle))

    sys.setrecursionlimit(10000)
    for node in graph:
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def main():
    objects = objects_of(sys.argv[1])
    if not objects:
        sys.exit(f"{sys.argv[1]}: no objects of the library")
    symbols = {name: symbols_of(path) for name, path in objects.items()}
    definer = {symbol: name for name, (defined, _) in symbols.items() for symbol in defined}
    uses = {name: {definer[s] for s in needed if s in definer} - {name} for name, (_, needed) in symbols.items()}

    def circles(folder):
        inside = {n for n in uses if n.startswith(folder + "/")}
        return circles_of({n: uses[n] & inside for n in sorted(inside)})

    if sys.argv[2] == "--list":
        for circle in circles(sys.argv[3]):
            print(len(circle), *circle)
            for name in circle:
                for other in sorted(uses[name] & set(circle)):
                    names = sorted(s for s in symbols[name][1] if definer.get(s) == other)
                    print(f"   {name} -> {other}: {' '.join(names)}")
        return
    exceptions, broken = set(), 0
    rules = [line.split("#")[0].split() for line in open(sys.argv[2])]
    for rule in rules:
        if rule and rule[0] == "except":
            exceptions.add(rule[1])
    for rule in rules:
        if rule and rule[0] == "forbid":
            for name in sorted(n for n in uses if fnmatch.fnmatch(n, rule[1]) and n not in exceptions):
                wrong = sorted(s for s in symbols[name][1] if s.startswith(tuple(rule[2:])))
                if wrong:
                    broken += 1
                    print(f"src/{name}.c uses {', '.join(wrong)}")
        elif rule and rule[0] == "circle":
            for circle in circles(rule[1]):
                if len(circle) > int(rule[2]):
                    broken += 1
                    print(f"src/{rule[1]}: {len(circle)} files use one another in a circle: {', '.join(circle)}")
    sys.exit(broken > 0)


main()
