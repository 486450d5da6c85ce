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


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def sodium():
    """libsodium's archive where it can be part of a shared library, so that nothing else must be installed; else the shared one."""
    found = Path(run("cc", "-print-file-name=libsodium.a").stdout.strip())
    if not found.is_absolute():
        why = "there is no libsodium.a"
    else:
        with tempfile.TemporaryDirectory() as folder:
            whole = ["-Wl,--whole-archive", str(found), "-Wl,--no-whole-archive", f"-Wl,--version-script={HERE / 'exports.map'}"]
            if run("cc", "-shared", "-o", f"{folder}/probe.so", *whole).returncode == 0:
                return str(found)
        why = f"{found} is not position-independent"
    print(f"tutti-torch: libsodium is linked as a shared library: {why}", file=sys.stderr)
    return "-lsodium"


def without_hwloc(folder):
    """An object that says that hwloc is not there: hwloc only writes topologies, for tutti-info."""
    built = Path(folder) / "hwloc.o"
    built.parent.mkdir(parents=True, exist_ok=True)
    source = ROOT / "src" / "topology" / "hwloc.c"
    done = run("cc", "-std=c17", "-D_GNU_SOURCE", "-O2", "-fPIC", f"-I{ROOT / 'src'}", "-c", str(source), "-o", str(built))
    if done.returncode != 0:
        fail(f"{source} does not compile:\n{done.stderr}")
    return str(built)


def extension():
    library = static_library()
    return CppExtension(
        "tutti_torch._C",
        ["csrc/all.cpp"],
        include_dirs=[str(ROOT / "include")],
        depends=[str(library), *map(str, (HERE / "csrc").iterdir()), str(HERE / "exports.map")],
        extra_compile_args=[
            "-std=c++20",
            "-O2",
            "-g0",
            "-fvisibility=hidden",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-Wno-missing-field-initializers",
        ],
        extra_link_args=[
            str(library),
            sodium(),
            "-lm",
            "-pthread",
            "-Wl,-z,nodelete",
            "-Wl,--exclude-libs,ALL",
            f"-Wl,--version-script={HERE / 'exports.map'}",
        ],
    )


class Build(BuildExtension):
    def build_extensions(self):
        for each in self.extensions:
            each.extra_objects.append(without_hwloc(HERE / "build"))
        super().build_extensions()


os.chdir(HERE)
setup(ext_modules=[extension()], cmdclass={"build_ext": Build})
