"""Workers whose pods are taken away: deleted, evicted as by a drain, or failed for good. The gang starts
again while a restart is left, and else the run ends and says who was lost, and how. What the others have made
comes home, and what all have printed is there already.
"""

from __future__ import annotations

import json
import random

import pytest
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import Terminal, flag_path

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


# Every rank has a result at once, and then waits to be taken away.
EARLY = """
import os, time
rank = os.environ["ECHELON_RANK"]
with open(os.environ["ECHELON_OUTPUT"] + f"/rank-{rank}", "w") as file:
    file.write(f"result of {rank}")
print(f"rank {rank} is up", flush=True)
time.sleep(3600)
"""


def result_of(rank: int) -> str:
    """Where the result of a rank is at home."""
    return f"rank-{rank}" if rank == 0 else f"worker-{rank}/rank-{rank}"


def released(terminal: Terminal, run: str) -> bool:
    """Whether no pod of the run runs any more."""
    return all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in terminal.pods(run))


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("force", [False, True])
def test_a_deleted_pod_without_restarts(terminal: Terminal, victim: int, force: bool) -> None:
    """What it printed is at home, and so is what the others have made: a leader is not needed for that."""
    terminal.write("early.py", EARLY)
    command = terminal.train("three", "-n", "3", "early.py")
    command.wait_for("is up\n", 3)
    now = ("--grace-period=0", "--force") if force else ()
    terminal.kubectl("delete", "pod", newest_pod(terminal, "three", victim), "--wait=false", *now)
    assert command.wait() == 117, command
    assert f"worker {victim} was lost: " in command.said, command
    if not force:
        assert f"worker {victim} was lost: its pod was deleted" in command.said, command
    status = terminal.status("three")
    assert (status["state"], status["exit_code"]) == ("failed", 117)
    assert status["root_cause"]["worker"] == victim
    for rank in range(3):
        assert terminal.read("three", f"logs/rank-{rank}.log") == f"rank {rank} is up\n"
        if rank != victim:
            assert terminal.read("three", result_of(rank)) == f"result of {rank}"
    shown = terminal.call("logs", "three").stdout.splitlines()
    assert sorted(shown) == [f"[{rank}] rank {rank} is up" for rank in range(3)]
    wait_until(lambda: released(terminal, "three"), "the workers to be gone", 120)
    terminal.check_removal("three")


def test_a_leader_is_lost_while_nobody_looks(terminal: Terminal) -> None:
    """The others hold what they have for the one that submitted the run, for as long as it said."""
    terminal.write("early.py", EARLY)
    submitted = ("run", "-d", "--linger", "5m", "--name", "left", "--image", terminal.image, "-n", "2")
    assert terminal.call(*submitted, "early.py").returncode == 0
    wait_until(lambda: terminal.call("logs", "left").stdout.count("is up") == 2, "both ranks", 120)
    terminal.kubectl("delete", "pod", newest_pod(terminal, "left", 0), "--wait=false")
    wait_until(lambda: terminal.status("left")["state"] == "failed", "the end", 120)
    assert terminal.call("rm", "left").returncode != 0  # results that could be fetched would be lost
    waited = terminal.call("wait", "left")
    assert waited.returncode == 117, waited.stderr
    assert terminal.read("left", result_of(1)) == "result of 1"
    terminal.check_removal("left")


def test_the_agent_of_the_only_worker_is_stopped(terminal: Terminal) -> None:
    """No peer misses it, and no command: the first process of its container does."""
    terminal.write("patient.py", PATIENT)
    command = terminal.train("one", "--restarts", "1", "patient.py", "1")
    command.wait_for("up 0\n")
    pod = newest_pod(terminal, "one", 0)
    terminal.kubectl("exec", pod, "--", "sh", "-c", "kill -STOP $(cat /proc/1/task/1/children)")
    assert command.wait() == 0, command
    assert "worker 0 was lost: its agent was killed by SIGKILL: it did not respond for 10 s" in command.said
    assert terminal.status("one")["restarts"] == 1
    assert terminal.read("one", "rank-0") == "result of 0"


def evict(terminal: Terminal, run: str, worker: int) -> None:
    """As `kubectl drain` does it: through the eviction API."""
    pod = newest_pod(terminal, run, worker)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    address = f"/api/v1/namespaces/{terminal.kubectl.namespace}/pods/{pod}/eviction"
    terminal.kubectl("create", "--raw", address, "-f", "-", stdin=json.dumps(eviction))


@pytest.mark.parametrize("victim", [0, 1])
def test_a_pod_is_evicted_twice(terminal: Terminal, victim: int) -> None:
    """That counts against no restart: nothing has failed."""
    terminal.write("patient.py", PATIENT)
    command = terminal.train("moved", "-n", "2", "--restarts", "1", "patient.py", "2")
    for restart in (0, 1):
        command.wait_for(f"up {restart}\n", 2)
        evict(terminal, "moved", victim)
    assert command.wait() == 0, command
    assert f"worker {victim} was lost: it was evicted from its node" in command.said, command
    status = terminal.status("moved")
    assert (status["restarts"], status["restarts_spared"]) == (2, 2)
    lost = [
        path.read_text() for path in sorted(terminal.folder.glob(f"runs/moved/logs/rank-{victim}.lost-*"))
    ]
    assert lost == ["up 0\n", "up 1\n"]  # what its pods printed is at home, too
    terminal.check_removal("moved")


def test_an_eviction_ends_a_run_without_restarts(terminal: Terminal) -> None:
    terminal.write("early.py", EARLY)
    command = terminal.train("once", "-n", "2", "early.py")
    command.wait_for("is up\n", 2)
    evict(terminal, "once", 1)
    assert command.wait() == 117, command
    cause = terminal.status("once")["root_cause"]
    assert (cause["kind"], cause["disruption"], cause["worker"]) == ("worker-evicted", "drained", 1)
    assert terminal.read("once", "rank-0") == "result of 0"
    terminal.check_removal("once")


def test_a_final_failure_does_not_start_over(terminal: Terminal) -> None:
    """Rank 1 fails with code 3 each time; one restart is all it gets, in the pods that are there."""
    terminal.write(
        "fails.py",
        "import os, sys, time\n"
        "restart = os.environ['ECHELON_RESTART']\n"
        "print('up', restart, flush=True)\n"
        f"while not os.path.exists('{flag_path('fail-')}' + restart): time.sleep(0.1)\n"
        "sys.exit(3)\n",
    )
    command = terminal.train("final", "-n", "2", "--restarts", "1", "fails.py")
    for restart in (0, 1):
        # Rank 0 is stopped when rank 1 fails, and must have had the time to print.
        command.wait_for(f"up {restart}\n", 2)
        terminal.raise_flag(newest_pod(terminal, "final", 1), f"fail-{restart}")
    assert command.wait() == 3, command
    assert sorted(command.lines) == ["[0] up 0", "[0] up 1", "[1] up 0", "[1] up 1"]
    assert "rank 1 exited with code 3" in command.said
    terminal.kubectl.wait_for(
        lambda: "Failed" in str(terminal.kubectl.get("job", "final")["status"].get("conditions")),
        "the Job to have failed",
    )
    pods = [newest_pod(terminal, "final", worker) for worker in (0, 1)]
    assert sorted(pods) == sorted(pod["metadata"]["name"] for pod in terminal.pods("final"))
    # What a user of kubectl sees: the rank's lines, the pod that failed, and why.
    lines = terminal.kubectl("logs", pods[1]).splitlines()
    assert [line for line in lines if "[event]" not in line] == ["0 [1] up 0", "1 [1] up 1"]
    codes = [pod["status"]["containerStatuses"][0]["state"]["terminated"] for pod in terminal.pods("final")]
    assert sorted(code["exitCode"] for code in codes) == [193, 196]
    assert "rank 1 exited with code 3" in terminal.kubectl("describe", "pod", pods[1])
    # The Service, the Secret and the code are gone.
    kept = [each for each in terminal.left_of("final") if not each.startswith("pod/")]
    assert kept == ["configmap/final", "job/final"]
    status = terminal.status("final")
    assert (status["state"], status["restarts"], status["exit_code"]) == ("failed", 1, 3)
    terminal.check_removal("final")
