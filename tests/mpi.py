"""Real implementations of MPI, each in a virtual environment of its own: they cannot be installed side by
side, since both bring an `mpirun`. Made once, from wheels that need no compiler, and kept in the cache.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from pathlib import Path

from testbed.images import MPI
from testbed.locking import held
from testbed.paths import CACHE

WHEELS = {name: MPI[name] for name in ("openmpi4", "openmpi5", "mpich")}  # as the images have them


def python_with(implementation: str) -> Path:
    """The Python of an environment with mpi4py and this implementation, whose mpirun is beside it."""
    wheels = WHEELS[implementation]
    key = hashlib.sha256(repr((wheels, sys.version, platform.machine())).encode()).hexdigest()[:12]
    folder = CACHE / "mpi" / f"{implementation}-{key}"
    with held(CACHE / "mpi" / f".{implementation}.lock"):
        if not (folder / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
            pip = [str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check", "install"]
            subprocess.run([*pip, "--quiet", "--only-binary", ":all:", *wheels], check=True)
            (folder / "complete").touch()
    return folder / "bin/python"
