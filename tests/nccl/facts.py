"""Facts about a version of NCCL: what its header declares, and what its library exports and says."""
import ctypes
import os
import re
import subprocess
import tempfile

# The structs of nccl_device.h that a function of the host takes or fills.
DEVICE_STRUCTS = {"ncclTeam_t": ["nRanks", "rank", "stride"],
                  "ncclCommProperties_t": ["size", "magic", "version", "rank", "nRanks", "cudaDev", "nvmlDev", "deviceApiSupport",
                                           "multimemSupport", "ginType", "nLsaTeams", "hostRmaSupport", "railedGinType"]}


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def declared(header):
    """(structs with their fields, names of values) of an nccl.h, whoever wrote it."""
    text = without_comments(open(header).read())
    text = re.sub(r"\\\n", " ", text)
    values = [m.group(1) for m in re.finditer(r"^\s*#\s*define\s+(NCCL_[A-Z0-9_]+)[ \t]+[^{\s][^{\n]*$", text, re.M)
              if not re.search(r"_INITIALIZER|_SUFFIX|_COMM_NULL|UNDEF_PTR|UNDEF_FLOAT|ALSO_P", m.group(1))]
    structs = {}
    for kind, body, name in re.findall(r"typedef\s+(enum|struct)\s*\w*\s*\{((?:[^{}]|\{[^{}]*\})*)\}\s*(\w+)\s*;", text):
        if kind == "enum":
            values += re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"\([^()]*\)", "", body))
        else:
            body = re.sub(r"\{[^{}]*\}", "", body)
            structs[name] = re.findall(r"(\w+)\s*(?:\[\w+\])?\s*;", body)
    return structs, sorted(set(values))


def layout(structs, values, include, more=None):
    """{("size", struct) and ("offset", struct.field) and ("value", name): number}, as a compiler sees nccl.h, and `more`, in `include`."""
    lines = []
    for struct, fields in structs.items():
        lines.append(f'printf("size {struct} %ld\\n", (long)sizeof({struct}));')
        lines += [f'printf("offset {struct}.{field} %ld\\n", (long)offsetof({struct}, {field}));' for field in fields]
    lines += [f'printf("value {value} %ld\\n", (long)({value}));' for value in values]
    code = "#include <cstdio>\n#include <cstddef>\n#include <nccl.h>\n" + (f"#include <{more}>\n" if more else "")
    code += "int main() {\n" + "\n".join(lines) + "\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "facts")
        compiler = os.environ.get("CXX", "g++")
        subprocess.run([compiler, "-x", "c++", "-std=c++17", "-w", *[f"-I{i}" for i in include], "-", "-o", program], input=code, text=True,
                       check=True)
        output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return {tuple(line.split()[:2]): int(line.split()[2]) for line in output.splitlines()}


def exported(library):
    """{name: binding} of the names that the library defines for others: W weak, T strong."""
    output = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[2].split("@")[0]: line.split()[1] for line in output.splitlines()}


def texts(library, most=10):
    """What ncclGetErrorString says of the results 0 to `most` - 1. In a process of its own: names of two libraries must not meet."""
    code = ("import ctypes, sys; f = ctypes.CDLL(sys.argv[1]).ncclGetErrorString; f.restype = ctypes.c_char_p\n"
            f"for i in range({most}): print(f(i).decode())")
    return subprocess.run(["python3", "-c", code, library], capture_output=True, text=True, check=True).stdout.splitlines()


def of_version(include, library, cuda):
    """All facts of one version, as {(kind, name): text}."""
    structs, values = declared(os.path.join(include, "nccl.h"))
    facts = {key: str(number) for key, number in layout(structs, values, [include, cuda]).items()}
    for header in ("nccl_device/core.h", "nccl_device/host.h"):
        path = os.path.join(include, header)
        if os.path.exists(path) and "struct ncclCommProperties {" in open(path).read():
            facts.update({key: str(number) for key, number in layout(DEVICE_STRUCTS, [], [include, cuda], header).items()})
    facts.update({("name", name): binding for name, binding in exported(library).items()})
    facts.update({("text", str(i)): text for i, text in enumerate(texts(library))})
    return facts


def versions():
    """[(version, folder of headers, library)] of NVIDIA that are on this machine: the toolkit's, and wheels in the cache (make_table)."""
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tutti")
    cuda = cuda_include()
    places = [(cuda, os.path.join(os.path.dirname(cuda), "lib", "libnccl.so.2"))] if cuda else []
    if os.path.isdir(cache):
        places += [(os.path.join(cache, f, "nvidia/nccl/include"), os.path.join(cache, f, "nvidia/nccl/lib/libnccl.so.2"))
                   for f in sorted(os.listdir(cache)) if f.startswith("nccl-")]
    found = []
    for include, library in places:
        header = os.path.join(include, "nccl.h")
        if not os.path.exists(header) or not os.path.exists(library):
            continue
        numbers = [re.search(rf"#define NCCL_{part}\s+(\d+)", open(header).read()) for part in ("MAJOR", "MINOR", "PATCH")]
        found.append((".".join(n.group(1) for n in numbers), include, library))
    return sorted(found, key=lambda v: [int(n) for n in v[0].split(".")])


def cuda_include():
    """The folder of CUDA's headers, which NVIDIA's nccl.h includes; None: there is none with those of the compiler."""
    for folder in (os.environ.get("CUDA") or "", "/usr/local/cuda/include"):
        if folder and all(os.path.exists(os.path.join(folder, name)) for name in ("cuda_runtime.h", "crt/host_config.h")):
            return folder
    return None


def read_table(path):
    """(versions, {(kind, name): [text of each version; None: it has none]})"""
    columns, table = [], {}
    for line in open(path):
        if line.startswith("#") or not line.strip():
            continue
        kind, name, *rest = line.rstrip("\n").split("\t")
        if kind == "version":
            columns = [name, *rest]
        else:
            table[kind, name] = [None if cell == "-" else cell for cell in rest]
    return columns, table
