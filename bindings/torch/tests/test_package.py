"""The package: what leaves the module, what it needs, and what a build that cannot work says. Does not run ranks."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def output(*command, **environment):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    return done.returncode, done.stdout + done.stderr


def module():
    import torch  # noqa: F401  the module needs its libraries
    import tutti_torch

    return tutti_torch._C.__file__


def only_the_function_that_python_calls_leaves_the_module():
    status, text = output("nm", "-D", "--defined-only", module())
    names = [line.split()[-1] for line in text.splitlines()]
    assert status == 0 and names == ["PyInit__C"], text


def the_module_needs_nothing_but_torch_and_the_system():
    status, text = output("readelf", "-d", module())
    needed = [line.split("[")[1].split("]")[0] for line in text.splitlines() if "(NEEDED)" in line]
    known = ("libc10.so", "libtorch", "libc.so", "libm.so", "libstdc++.so", "libgcc_s.so", "libpthread.so", "ld-linux", "libsodium.so")
    assert status == 0 and needed and all(name.startswith(known) for name in needed), needed
    assert not any("cuda" in name or "hwloc" in name for name in needed), needed


def another_torch_is_refused_with_both_versions():
    with tempfile.TemporaryDirectory() as folder:
        utils = Path(folder) / "torch" / "utils"
        utils.mkdir(parents=True)
        (utils.parent / "__init__.py").write_text("__version__ = '2.14.1+cpu'\n")
        (utils / "__init__.py").write_text("")
        (utils / "cpp_extension.py").write_text("BuildExtension = CppExtension = None\n")
        status, text = output(sys.executable, str(PACKAGE / "setup.py"), "--version", PYTHONPATH=folder)
    assert status != 0 and "2.15" in text and "2.14.1+cpu" in text, text


def a_missing_library_is_named_with_what_to_do():
    with tempfile.TemporaryDirectory() as folder:
        status, text = output(sys.executable, str(PACKAGE / "setup.py"), "--version", TUTTI_BUILD=folder)
    assert status != 0 and f"{folder}/lib/libtutti.a is not there" in text and "TUTTI_BUILD" in text, text


def pytorch_finds_the_backend_without_an_import():
    program = "import torch.distributed as dist; dist.Backend._ensure_backend_registered('tutti'); print(dist.Backend.TUTTI, dist.Backend.backend_capability['tutti'])"
    status, text = output(sys.executable, "-c", program)
    assert status == 0 and "tutti ['cpu']" in text, text


def the_version_is_that_of_tutti():
    header = (PACKAGE.parent.parent / "include" / "tutti.h").read_text()
    parts = [line.split()[2] for line in header.splitlines() if line.startswith(("#define TUTTI_MAJOR", "#define TUTTI_MINOR", "#define TUTTI_PATCH"))]
    assert f'version = "{".".join(parts)}"' in (PACKAGE / "pyproject.toml").read_text(), parts


def main():
    cases = [value for name, value in globals().items() if callable(value) and name not in ("main", "output", "module", "Path")]
    failed = 0
    for case in cases:
        try:
            case()
            print(f"ok      {case.__name__}")
        except AssertionError as error:
            failed += 1
            print(f"FAILED  {case.__name__}\n  | " + str(error).replace("\n", "\n  | "))
    print(f"{len(cases) - failed} passed, {failed} failed, 0 skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
