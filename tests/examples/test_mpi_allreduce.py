"""The MPI example: on this machine with real Open MPI and MPICH."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import PATIENCE
from tests.mpi import WHEELS, python_with

import echelon

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]

EXAMPLE = Path(__file__).parents[2] / "examples" / "mpi_allreduce" / "allreduce.py"


@pytest.mark.parametrize("implementation", sorted(WHEELS))
def test_the_example_runs_as_its_page_says(implementation: str) -> None:
    run = echelon.run(
        str(EXAMPLE),
        args=["--throws", "1000", "--result", "{output}/pi.txt"],
        workers=2,
        procs=2,
        python=str(python_with(implementation)),
    )
    status = run.wait(2 * PATIENCE)
    assert status.state == "succeeded", (status, list(run.logs()))
    said = {line.rank: line.text for line in run.logs() if line.text.startswith("rank")}
    assert [said[rank].split(":")[0] for rank in range(4)] == [f"rank {rank} of 4" for rank in range(4)]
    assert 2.8 < float(Path("runs", run.name, "pi.txt").read_text()) < 3.5
