"""Horovod for tests, compiled once from its source distribution and kept by versions: for the Python and the
PyTorch of this machine, and for those of Debian, which the image `horovod` has.

Its last release asks for C++14, with which newer PyTorch does not compile, and has a line that new compilers
refuse: that is changed first. Only Gloo and PyTorch are built in."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from echelon.errors import Unavailable
from testbed.debian import tool
from testbed.locking import held
from testbed.paths import CACHE
from testbed.progress import run_long

VERSION = "0.28.1"
RECIPE = "1"  # increase it when the way it is built changes
_TO_BUILD = (
    "python3-torch",
    "libtorch-dev",
    "pybind11-dev",
    "python3-dev",
    "python3-setuptools",
    "cmake",
    "g++",
    "make",
)
_STANDARD = "CMAKE_CXX_STANDARD"
_LISTS = ("CMakeLists.txt", "horovod/torch/CMakeLists.txt")
_FLATBUFFERS = "third_party/flatbuffers/include/flatbuffers/stl_emulation.h"
_OPTIONS = {
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "CXXFLAGS": "-w -include stdexcept -include cstdint",  # newer compilers do not include them unasked
}
# With `build` as its first word, setup.py would fetch what Horovod needs to run.
_BUILD = ("setup.py", "--quiet", "build", "--build-lib")


def missing() -> str:
    """Why Horovod cannot be compiled on this machine, in one line; empty if it can."""
    absent = [name for name in ("g++", "make", "strip") if not shutil.which(name)]
    return f"Horovod is compiled with {', '.join(absent)}, which are not on this machine" if absent else ""


def folder() -> Path:
    """A folder for PYTHONPATH with Horovod for this Python and PyTorch; built if it is not in the cache."""
    if reason := missing():
        raise Unavailable(reason, hint="apt-get install g++ make")
    torch = importlib.metadata.version("torch")
    target = CACHE / "horovod" / f"{VERSION}-{_key(sys.version, torch)}"
    return _built(target, lambda source, output: _build_here(source, output, torch))


def folder_for_debian(suite: str) -> Path:
    """The same for the Python and PyTorch of a Debian suite."""
    target = CACHE / "horovod" / f"{VERSION}-{suite}-{_key(suite, *_TO_BUILD)}"
    return _built(target, lambda source, output: _build_in_debian(source, output, suite))


def _key(*parts: str) -> str:
    return hashlib.sha256(repr((parts, RECIPE, _OPTIONS, platform.machine())).encode()).hexdigest()[:12]


def _built(target: Path, build: Callable[[Path, Path], None]) -> Path:
    if target.is_dir():
        return target
    with held(target.parent / f".{target.name}.lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as scratch:
                output = Path(scratch, "output")
                build(_source(Path(scratch)), output)
                for library in output.rglob("*.so"):  # 60 MB of symbols
                    subprocess.run([tool("strip"), "--strip-debug", str(library)], check=True)
                output.replace(target)
    return target


def _source(scratch: Path) -> Path:
    """Horovod's sources, unpacked."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    run_long(
        f"fetching the sources of Horovod {VERSION}",
        [*pip, "--no-deps", "--no-binary", ":all:", "--dest", str(scratch), f"horovod=={VERSION}"],
        log=CACHE / "logs" / "horovod-sources.log",
    )
    with tarfile.open(next(scratch.glob("horovod-*.tar.gz"))) as archive:
        archive.extractall(scratch, filter="data")
    return scratch / f"horovod-{VERSION}"


def _change(source: Path, standard: int) -> None:
    changes = dict.fromkeys(_LISTS, (f"{_STANDARD} 14", f"{_STANDARD} {standard}"))
    for name, (old, new) in {**changes, _FLATBUFFERS: ("    count_ = other.count_;\n", "")}.items():
        text = (source / name).read_text()
        if old not in text:
            raise Unavailable(f"{name} of Horovod {VERSION} is not as expected", hint=f"it lacks {old!r}")
        (source / name).write_text(text.replace(old, new))


def _standard(torch: str) -> int:
    """The C++ that the headers of a version of PyTorch need."""
    found = re.match(r"(\d+)\.(\d+)", torch)
    assert found
    return 20 if (int(found[1]), int(found[2])) >= (2, 14) else 17


def _build_here(source: Path, output: Path, torch: str) -> None:
    _change(source, _standard(torch))
    env = os.environ | _OPTIONS | {"MAKEFLAGS": f"-j{os.cpu_count() or 1}", "HOROVOD_CMAKE": _cmake(source)}
    run_long(
        f"compiling Horovod {VERSION} for PyTorch {torch} (once)",
        [sys.executable, *_BUILD, str(output)],
        log=CACHE / "logs" / "horovod.log",
        cwd=source,
        env=env,
    )


def _cmake(source: Path) -> str:
    if found := shutil.which("cmake"):
        return found
    place = source / "cmake-from-pypi"
    run_long(
        "fetching cmake",
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(place), "cmake<4"],
        log=CACHE / "logs" / "horovod-cmake.log",
    )
    return str(place / "cmake" / "data" / "bin" / "cmake")


def _build_in_debian(source: Path, output: Path, suite: str) -> None:
    """In a root file system of that suite, which is thrown away."""
    _change(source, 17)
    options = _OPTIONS | {"MAKEFLAGS": f"-j{os.cpu_count() or 1}"}
    words = ["env", *(f"{name}={value}" for name, value in options.items()), "python3", *_BUILD, "/output"]
    build = f"cd /horovod && {shlex.join(words)}"
    output.mkdir()
    source.rename(source.with_name("horovod"))
    run_long(
        f"compiling Horovod {VERSION} for Debian {suite} (once)",
        [
            tool("mmdebstrap"),
            "--variant=minbase",
            "--format=null",
            f"--include={','.join(_TO_BUILD)}",
            f"--customize-hook=copy-in {source.with_name('horovod')} /",
            f'--customize-hook=chroot "$1" sh -c "{build}"',
            f"--customize-hook=copy-out /output/horovod {output}",
            suite,
            "/dev/null",
        ],
        log=CACHE / "logs" / "horovod-debian.log",
    )
