"""Findings of `echelon doctor` that are the same on every engine. Pure."""

from __future__ import annotations

from echelon.agent.ranks.mpi_version import PACKAGES, name_of, trouble_of
from echelon.model.engine.finding import Finding


def mpi_finding(said: object, place: str = "on the PATH") -> Finding:
    """The line on MPI; `said` is what `mpirun --version` prints, None where there is no mpirun."""
    if not isinstance(said, str):
        fix = f"framework mpi: {PACKAGES}"
        return Finding(level="degraded", what="mpirun", found=f"none {place}", fix=fix)
    name = name_of(said)
    trouble = trouble_of(name)
    if trouble:
        return Finding(level="degraded", what="mpirun", found=name, fix=f"framework mpi: it {trouble}")
    if not name:
        fix = "framework mpi: Open MPI and MPICH are known to work; `mpirun --version` shows what it is"
        return Finding(level="degraded", what="mpirun", found="of an unknown MPI", fix=fix)
    return Finding(level="ok", what="mpirun", found=name)
