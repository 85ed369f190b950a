"""Workers whose pods are taken away: deleted, evicted as by a drain, or failed for good. The gang starts
again while a restart is left, and else the run ends and says who was lost, and how.
"""

from __future__ import annotations

import json
import random

import pytest
from tests.faults.kubernetes.terminal import Terminal

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FEW, MANY = 1, 20
# Every rank waits to be taken away so often; then it writes what it has to.
PATIENT = """
import os, sys, time
rank, restart = os.environ["ECHELON_RANK"], int(os.environ["ECHELON_RESTART"])
print(f"up {restart}", flush=True)
while restart < int(sys.argv[1]):
    time.sleep(0.1)
with open(os.environ["ECHELON_OUTPUT"] + f"/rank-{rank}", "w") as file:
    file.write(f"result of {rank}")
"""


def seeds() -> list[object]:
    return [*range(FEW), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(FEW, MANY))]


def newest_pod(terminal: Terminal, run: str, worker: int) -> str:
    index = "batch.kubernetes.io/job-completion-index"
    mine = [pod for pod in terminal.pods(run) if pod["metadata"]["labels"][index] == str(worker)]
    return str(mine[-1]["metadata"]["name"])


@pytest.mark.parametrize("seed", seeds())
def test_three_pods_of_four_are_deleted_one_after_another(terminal: Terminal, seed: int) -> None:
    terminal.write("patient.py", PATIENT)
    chance = random.Random(seed)
    victims = [chance.randrange(4) for _ in range(3)]
    if seed == 0:
        victims[1] = 0  # the leader is among them
    command = terminal.train("four", "-n", "4", "--restarts", "3", "patient.py", "3")
    for restart, victim in enumerate(victims):
        command.wait_for(f"up {restart}\n", 4)
        terminal.kubectl("delete", "pod", newest_pod(terminal, "four", victim), "--wait=false")
    assert command.wait() == 0, command
    for rank in range(4):
        path = f"rank-{rank}" if rank == 0 else f"worker-{rank}/rank-{rank}"
        assert terminal.read("four", path) == f"result of {rank}"
    status = terminal.status("four")
    assert (status["state"], status["restarts"]) == ("succeeded", 3)
    for restart, victim in enumerate(victims):
        assert f"worker {victim} was lost: its pod was deleted" in command.said, (restart, str(command))
    terminal.check_removal("four")


@pytest.mark.parametrize("victim", [0, 1])
def test_a_deleted_pod_without_restarts(terminal: Terminal, victim: int) -> None:
    terminal.write("patient.py", PATIENT)
    command = terminal.train("two", "-n", "2", "patient.py", "1")
    command.wait_for("up 0\n", 2)
    terminal.kubectl("delete", "pod", newest_pod(terminal, "two", victim), "--wait=false")
    assert command.wait() != 0, command
    assert f"worker {victim} was lost: its pod was deleted" in command.said, command
    status = terminal.status("two")
    assert status["state"] == "failed"
    assert status["root_cause"]["worker"] == victim
    terminal.check_removal("two")


def test_a_pod_is_evicted(terminal: Terminal) -> None:
    """As `kubectl drain` does it: through the eviction API."""
    terminal.write("patient.py", PATIENT)
    command = terminal.train("moved", "-n", "2", "--restarts", "1", "patient.py", "1")
    command.wait_for("up 0\n", 2)
    pod = newest_pod(terminal, "moved", 1)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    address = f"/api/v1/namespaces/{terminal.kubectl.namespace}/pods/{pod}/eviction"
    terminal.kubectl("create", "--raw", address, "-f", "-", stdin=json.dumps(eviction))
    assert command.wait() == 0, command
    assert "worker 1 was lost: it was evicted from its node" in command.said, command
    assert terminal.status("moved")["restarts"] == 1
    terminal.check_removal("moved")


def test_a_final_failure_does_not_start_over(terminal: Terminal) -> None:
    """Rank 1 fails with code 3 each time; one restart is all it gets, in the pods that are there."""
    terminal.write(
        "fails.py",
        "import os, sys, time\n"
        "print('up', os.environ['ECHELON_RESTART'], flush=True)\n"
        # Rank 0 is stopped when rank 1 fails, and must have had the time to print.
        "time.sleep(3)\n"
        "sys.exit(3) if os.environ['ECHELON_RANK'] == '1' else time.sleep(600)\n",
    )
    command = terminal.train("final", "-n", "2", "--restarts", "1", "fails.py")
    assert command.wait() == 3, command
    assert sorted(command.lines) == ["[0] up 0", "[0] up 1", "[1] up 0", "[1] up 1"]
    assert "rank 1 exited with code 3" in command.said
    terminal.kubectl.wait_for(
        lambda: "Failed" in str(terminal.kubectl.get("job", "final")["status"].get("conditions")),
        "the Job to have failed",
    )
    assert len(terminal.pods("final")) == 2
    status = terminal.status("final")
    assert (status["state"], status["restarts"], status["exit_code"]) == ("failed", 1, 3)
    terminal.check_removal("final")
