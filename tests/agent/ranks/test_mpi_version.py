"""Which MPI an mpirun is of, and what is known to go wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.agent.ranks.mpi_version import ask, name_of, trouble_of
from echelon.agent.ranks.rank import describe_no_start
from echelon.engines.findings import mpi_finding

HYDRA = "HYDRA build details:\n    Version:                                 {}\n    CC:    gcc\n"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (
            "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n",
            "Open MPI 4.1.4",
        ),
        ("mpirun (Open MPI) 5.0.11\n", "Open MPI 5.0.11"),
        (HYDRA.format("4.0.2"), "MPICH 4.0.2"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307\n", "Intel MPI 2021.9"),
        ("a wrapper of the site's\n", ""),
        ("", ""),
    ],
)
def test_its_name(said: str, name: str) -> None:
    assert name_of(said) == name


def test_the_one_of_debian_12_hangs_across_machines() -> None:
    assert "MPI_Finalize" in trouble_of("MPICH 4.0.2")
    assert not any(map(trouble_of, ("MPICH 4.2.1", "MPICH 5.0.2", "Open MPI 4.1.4", "")))


@pytest.mark.parametrize(
    ("body", "level", "found"),
    [
        (None, "degraded", "none on the PATH"),
        (f"cat <<'E'\n{HYDRA.format('5.0.2')}E", "ok", "MPICH 5.0.2"),
        (f"cat <<'E'\n{HYDRA.format('4.0.2')}E", "degraded", "MPICH 4.0.2"),
        ("exit 3", "degraded", "of an unknown MPI"),
    ],
)
def test_what_doctor_says(tmp_path: Path, body: str | None, level: str, found: str) -> None:
    if body is not None:
        (tmp_path / "mpirun").write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "mpirun").chmod(0o755)
    finding = mpi_finding(ask(f"{tmp_path}:/bin" if body is not None else str(tmp_path)))
    assert (finding.level, finding.found) == (level, found)
    assert finding.fix.startswith("framework mpi: ") is (level != "ok")
    assert ("openmpi-bin" in finding.fix) is (body is None)


def test_without_mpirun_the_packages_are_named(tmp_path: Path) -> None:
    text = describe_no_start(
        "mpirun", FileNotFoundError(2, "No such file or directory", "mpirun"), str(tmp_path)
    )
    assert "openmpi-bin" in text
    other = describe_no_start(
        "prog", FileNotFoundError(2, "No such file or directory", "prog"), str(tmp_path)
    )
    assert "MPI" not in other
