"""Builds the extension tutti_torch._C over libtutti.a. TUTTI_BUILD: the folder where tutti was built (../../build)."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import setup

TORCH = "2.15"  # c10d's C++ interface changes with each version
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def fail(text):
    sys.exit(f"tutti-torch: {text}")


try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError:
    fail(f"torch is not installed for {sys.executable}; install torch {TORCH}, and call pip with --no-build-isolation")
if ".".join(torch.__version__.split(".")[:2]) != TORCH:
    fail(f"it is for torch {TORCH}, and torch {torch.__version__} is installed")


def static_library():
    build = Path(os.environ.get("TUTTI_BUILD", ROOT / "build"))
    library = build / "lib" / "libtutti.a"
    if not library.is_file():
        fail(f"{library} is not there; build tutti (cmake -B build -G Ninja && ninja -C build libtutti.a), or set TUTTI_BUILD")
    return library


def links(arguments):
    """Whether a shared library of all that these arguments name can be made."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["cc", "-shared", "-o", f"{folder}/probe.so", "-Wl,--whole-archive", *arguments, "-Wl,--no-whole-archive"]
        return subprocess.run(command, capture_output=True).returncode == 0


def system_library(name):
    """The archive where it can be part of a shared library, so that nothing else must be installed; else the shared one."""
    found = subprocess.run(["cc", f"-print-file-name=lib{name}.a"], capture_output=True, text=True).stdout.strip()
    if Path(found).is_absolute() and links([found]):
        return found
    why = f"{found} is not position-independent" if Path(found).is_absolute() else f"there is no lib{name}.a"
    print(f"tutti-torch: lib{name} is linked as a shared library: {why}", file=sys.stderr)
    return f"-l{name}"


def uses(library, symbol):
    symbols = subprocess.run(["nm", "-u", library], capture_output=True, text=True, check=True).stdout
    return f" {symbol}" in symbols


def extension():
    library = static_library()
    names = ["sodium"] + (["hwloc"] if uses(library, "hwloc_") else [])
    return CppExtension(
        "tutti_torch._C",
        ["csrc/all.cpp"],
        include_dirs=[str(ROOT / "include")],
        depends=[str(library), *map(str, (HERE / "csrc").iterdir()), str(HERE / "exports.map")],
        extra_compile_args=["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers"],
        extra_link_args=[
            str(library),
            *map(system_library, names),
            "-lm",
            "-pthread",
            "-Wl,--exclude-libs,ALL",
            f"-Wl,--version-script={HERE / 'exports.map'}",
        ],
    )


os.chdir(HERE)
setup(ext_modules=[extension()], cmdclass={"build_ext": BuildExtension})
