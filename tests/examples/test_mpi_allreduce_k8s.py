"""MPI in pods of images without SSH, on workers with 3, 2 and 1 ranks: the example; then each implementation,
of which a rank is killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed.images import MPI
from testbed.kubectl import Kubectl
from tests.conftest import PATIENCE

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "mpi_allreduce" / "allreduce.py"
JOB = """
script: {script}
framework: mpi
workers: 1
procs: 2
roles:
  chief: {{workers: 1, procs: 3}}
  evaluator: {{workers: 1, procs: 1}}
args: [{arguments}]
"""
KILLED = """
import os, signal
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
if world.rank == 5:
    print(f"rank 5 of {world.size} sum {total}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
world.barrier()
"""


@pytest.fixture
def echelon(
    tmp_path: Path, namespace: Kubectl, image: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """`echelon ...` in a folder of its own: its exit code, and what it prints."""
    monkeypatch.setenv("ECHELON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    monkeypatch.setenv("ECHELON_ON", "k8s")
    monkeypatch.setenv("ECHELON_NAMESPACE", namespace.namespace)

    def call(*words: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "echelon.cli.main", *words],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=15 * PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return call


def test_uneven_workers_reduce_without_ssh(
    echelon: Callable[..., tuple[int, str]], image: Callable[[str], str], namespace: Kubectl, tmp_path: Path
) -> None:
    (tmp_path / "allreduce.py").write_bytes(EXAMPLE.read_bytes())
    arguments = '"--throws", "1000", "--result", "{output}/pi.txt"'
    (tmp_path / "job.yaml").write_text(JOB.format(script="allreduce.py", arguments=arguments))
    there = ("--namespace", namespace.namespace)
    code, printed = echelon("run", "-f", "job.yaml", "--name", "pi", "--image", image("openmpi5"), *there)
    assert code == 0, printed
    for rank in range(6):
        assert f"[{rank}] rank {rank} of 6: " in printed
    assert 2.8 < float((tmp_path / "runs/pi/pi.txt").read_text()) < 3.5

    line = "test ! -e /usr/bin/ssh && exec mpirun python3 allreduce.py --throws 10"
    own = ("run", "-n", "2", "--name", "own", "--image", image("openmpi5"), *there)
    code, printed = echelon(*own, "--", "sh", "-c", line)
    assert code == 0, printed
    assert "rank 1 of 2: " in printed


@pytest.mark.parametrize("implementation", sorted(MPI))
def test_ranks_meet_and_a_killed_one_is_named(
    echelon: Callable[..., tuple[int, str]],
    image: Callable[[str], str],
    namespace: Kubectl,
    tmp_path: Path,
    implementation: str,
) -> None:
    there = ("--namespace", namespace.namespace)
    (tmp_path / "killed.py").write_text(KILLED)
    (tmp_path / "job.yaml").write_text(JOB.format(script="killed.py", arguments=""))
    code, printed = echelon(
        "run", "-f", "job.yaml", "--name", "killed", "--image", image(implementation), *there
    )
    assert code == 137, printed
    assert "[5] rank 5 of 6 sum 21\n" in printed
    cause = json.loads(echelon("status", "killed", "-o", "json", *there)[1])["root_cause"]
    assert (cause["rank"], cause["worker"], cause["signal"]) == (5, 2, "SIGKILL"), cause
