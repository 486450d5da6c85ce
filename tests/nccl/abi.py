#!/usr/bin/env python3
"""Compares libnccl.so.2 and include/nccl.h with tests/nccl/abi.txt, and that table with NVIDIA's libraries and headers that are here.

usage: LIBRARY=PATH SOURCE=FOLDER [CUDA=FOLDER of CUDA's headers] abi.py
"""
import ctypes
import os
import re
import subprocess
import sys

import facts

LIBRARY, SOURCE = os.environ["LIBRARY"], os.environ["SOURCE"]
OURS = os.path.join(SOURCE, "include")
GLIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
NEWEST_GLIBC = (2, 34)
MOST_BYTES = 20 << 20
failures = []


def fail(text):
    failures.append(text)


def expect(what, got, wanted):
    if got != wanted:
        fail(f"{what}: {got}, expected {wanted}")


def check_names(newest):
    wanted = {name: binding for (kind, name), binding in newest.items() if kind == "name"}
    got = facts.exported(LIBRARY)
    for name in sorted(set(wanted) | set(got)):
        expect(f"the binding of {name}", got.get(name), wanted.get(name))
    expect("names nccl*", len([n for n in got if n.startswith("nccl")]), 97)
    return len(got)


def check_file():
    """What the loader must find beside the file, and how large it is."""
    dynamic = subprocess.run(["readelf", "-dW", LIBRARY], capture_output=True, text=True, check=True).stdout
    expect("SONAME", re.findall(r"\(SONAME\).*\[(.*)\]", dynamic), ["libnccl.so.2"])
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    if needed - GLIBC:
        fail(f"NEEDED has {sorted(needed - GLIBC)}: expected only glibc's libraries")
    if re.search(r"\((RPATH|RUNPATH)\)", dynamic):
        fail("the file has a RPATH or RUNPATH: expected none")
    symbols = subprocess.run(["objdump", "-T", LIBRARY], capture_output=True, text=True, check=True).stdout
    used = set(re.findall(r"\bGLIBC_(\d+(?:\.\d+)+)\b", symbols))
    late = [v for v in used if tuple(int(n) for n in v.split(".")) > NEWEST_GLIBC]
    for version in late:
        names = re.findall(rf"GLIBC_{re.escape(version)}\)?\s+(\S+)", symbols)
        fail(f"needs GLIBC_{version} for {' '.join(names)}: expected nothing above GLIBC_{'.'.join(map(str, NEWEST_GLIBC))}")
    nodes = [line for line in symbols.splitlines() if re.search(r"\bp?nccl\w+$", line) and " *UND* " not in line and re.search(r"\s\(?NCCL|\sVERS", line)]
    expect("names with a version node", nodes, [])
    undefined = [line.split()[-1] for line in symbols.splitlines() if "*UND*" in line and "GLIBC" not in line]
    unknown = [n for n in undefined if not n.startswith(("_ITM_", "__gmon_start__", "__cxa_finalize"))]
    expect("names that no library of glibc has", unknown, [])
    size = os.path.getsize(LIBRARY)
    if size >= MOST_BYTES:
        fail(f"the file has {size} bytes: expected less than {MOST_BYTES}")
    return size


def check_header(newest):
    """Sizes, offsets and values of include/nccl.h."""
    structs, values = facts.declared(os.path.join(OURS, "nccl.h"))
    got = {key: str(number) for key, number in facts.layout(structs, values, [OURS]).items()}
    wanted = {key: text for key, text in newest.items() if key[0] in ("size", "offset", "value")
              and key[1].split(".")[0] not in facts.DEVICE_STRUCTS}
    for key in sorted(set(got) | set(wanted)):
        expect(f"include/nccl.h: {key[0]} of {key[1]}", got.get(key), wanted.get(key))
    device = {key: text for key, text in newest.items() if key[1].split(".")[0] in facts.DEVICE_STRUCTS and key[0] == "offset"}
    code = "#include <stddef.h>\n#include \"nccl/device.h\"\n" + "\n".join(
        f"_Static_assert(offsetof(struct {key[1].split('.')[0][:-2]}, {key[1].split('.')[1]}) == {text}, \"{key[1]}\");" for key, text in device.items())
    compile_c("src/nccl/device.h has the offsets of nccl_device.h", code, ["-x", "c", "-std=c17"], [os.path.join(SOURCE, "src")])
    return len(wanted) + len(device)


def compile_c(what, code, options, include=()):
    compiler = os.environ.get("CXX" if "c++" in options else "CC", "cc")
    done = subprocess.run([compiler, *options, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{OURS}",
                           *[f"-I{i}" for i in include], "-"], input=code, text=True, capture_output=True)
    if done.returncode:
        fail(f"{what}: {done.stderr[:600]}")


def check_compiles():
    """include/nccl.h as C and C++, alone and beside CUDA's headers, before and behind them."""
    use = ("ncclConfig_t config = NCCL_CONFIG_INITIALIZER;\nncclCollConfig_t call = NCCL_COLLCONFIG_INITIALIZER;\n"
           "ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;\nncclEncryptionConfig_t key = NCCL_ENCRYPTION_CONFIG_INITIALIZER;\n"
           "int used(cudaStream_t stream);\nint used(cudaStream_t stream) { return (int)pncclAllReduce(0, 0, 0, ncclInt8, ncclSum, 0, stream); }\n")
    for options in (["-x", "c", "-std=c99", "-pedantic"], ["-x", "c", "-std=c17"], ["-x", "c++", "-std=c++11", "-pedantic"],
                    ["-x", "c++", "-std=c++17"]):
        compile_c(f"nccl.h with {options}", "#include <nccl.h>\n" + use, options)
        cuda = facts.cuda_include()
        if not cuda:
            continue
        quiet = [*options, "-Wno-pedantic", "-isystem", cuda]
        compile_c(f"nccl.h behind cuda_runtime.h with {options}", "#include <cuda_runtime.h>\n#include <nccl.h>\n" + use, quiet)
        if "-std=c99" not in options:  # in which no type is declared twice
            compile_c(f"nccl.h before cuda_runtime.h with {options}", "#include <nccl.h>\n#include <cuda_runtime.h>\n" + use, quiet)


def check_answers(newest):
    library = ctypes.CDLL(LIBRARY)
    version = ctypes.c_int()
    expect("ncclGetVersion", library.ncclGetVersion(ctypes.byref(version)), 0)
    expect("the version", version.value, 23007)
    wanted = {int(name): text for (kind, name), text in newest.items() if kind == "text"}
    got = facts.texts(LIBRARY, len(wanted))
    for number, text in wanted.items():
        expect(f"ncclGetErrorString({number})", got[number], text)


def calls(test, name):
    """Whether the source of a test has the name of the function; nccl_face calls all that come later through their table."""
    files = {"nccl_collectives": ["collectives.py", "client.py"], "nccl_abi": ["abi.py", "facts.py"], "nccl_programs": ["program.c"]}
    for file in files.get(test, [test.removeprefix("nccl_") + "_test.c", "pair.h"]):
        path = os.path.join(SOURCE, "tests/nccl", file)
        quoted = "|\"" + name.removeprefix("nccl") + "\"" if file.endswith(".py") else ""
        if os.path.exists(path) and re.search(rf"\b{name}\b{quoted}", open(path).read()):
            return True
    return False


def check_page(newest):
    """docs/nccl.md has a row for each name, says "later" of those that come later, and names tests that call the function."""
    page = open(os.path.join(SOURCE, "docs/nccl.md")).read()
    found = re.findall(r"^\| `(nccl\w+)` \| (.*) \| (`.*`) \|$", page, re.M)
    rows = {name: status for name, status, _ in found}
    table = open(os.path.join(SOURCE, "src/nccl/names_table.h")).read()
    later = {"nccl" + name for name in re.findall(r"^TT_LATER(?:_CALL|_MAKER)?\((\w+),", table, re.M)}
    wanted = {name for (kind, name) in newest if kind == "name" and name.startswith("nccl")}
    for name in sorted(wanted | set(rows)):
        if (name in wanted) != (name in rows):
            fail(f"docs/nccl.md: {name}: expected one row for each name of NCCL's")
        elif (name in later) != (rows[name] == "later"):
            fail(f"docs/nccl.md says of {name} '{rows[name]}', src/nccl/names_table.h {'later' if name in later else 'that it is there'}")
    for name, _, tests in found:
        for test in re.findall(r"`(\w+)`", tests):
            if not calls(test, name) and not (test == "nccl_face" and name in later):
                fail(f"docs/nccl.md: {name}: the source of the test {test} does not call it")


def check_table(columns, table):
    """The table against NVIDIA's own files, where they are here."""
    compared = []
    for version, include, library in facts.versions():
        if version not in columns:
            continue
        own = facts.of_version(include, library, facts.cuda_include())
        column = columns.index(version)
        for key in sorted(set(table) | set(own)):
            expect(f"abi.txt, {version}, {key[0]} {key[1]}", table.get(key, [None] * len(columns))[column], own.get(key))
        compared.append(version)
    return compared


def main():
    columns, table = facts.read_table(os.path.join(SOURCE, "tests/nccl/abi.txt"))
    newest = {key: cells[-1] for key, cells in table.items() if cells[-1] is not None}
    nnames, size, nfacts = check_names(newest), check_file(), check_header(newest)
    check_compiles()
    check_answers(newest)
    check_page(newest)
    compared = check_table(columns, table)
    for text in failures:
        print(text, file=sys.stderr)
    if failures:
        sys.exit(f"{len(failures)} differences")
    print(f"{nnames} names, {nfacts} sizes, offsets and values as in NCCL {columns[-1]}; {size} bytes; "
          f"the table compared with NVIDIA's files of {', '.join(compared) or 'no version: none is here'}")


main()
