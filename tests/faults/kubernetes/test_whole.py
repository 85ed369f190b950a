"""A run is whole or not at all: its client is killed between two of its Jobs, it is stopped while it starts,
the answer to a write is lost; and at its end its leader is lost while results are fetched, or a second
command takes over from one that fetches.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl
from tests.conftest import wait_until
from tests.faults.kubernetes.gate import Gate, check_writes
from tests.faults.kubernetes.terminal import PATIENCE, Terminal, kubeconfig_in
from tests.faults.kubernetes.test_results import FILES, SIZE, WRITES, check_complete, stopped, wait_for_bytes

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

FEW, MANY = 3, 30
HELLO = """
import os, time
print("hello from", os.environ["ECHELON_WORKER"], flush=True)
while '"type": "ps"' in os.environ["TF_CONFIG"]:
    time.sleep(1)
"""
STAYS = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
# What a submission of two Jobs writes: the record; code, secret and service; both Jobs, and both released;
# the keeper; and the record belongs to the first Job.
WRITES_OF_TWO = [
    "POST configmaps",
    "POST configmaps",
    "POST secrets",
    "POST services",
    "POST jobs",
    "POST jobs",
    "PATCH jobs",
    "PATCH jobs",
    "POST jobs",
    "PATCH configmaps",
]
SECOND_JOB, FIRST_RELEASE = 5, 6


@pytest.fixture
def gate(namespace: Kubectl, own_cluster: object, tmp_path: Path) -> Iterator[Gate]:
    with Gate(namespace, tmp_path) as opened:
        yield opened


@pytest.fixture
def through(terminal: Terminal, gate: Gate, tmp_path: Path) -> Terminal:
    """The same person, who goes through the gate without knowing."""
    terminal.write("hello.py", HELLO)
    return replace(terminal, kubeconfig=kubeconfig_in(terminal.kubectl, tmp_path / "through-gate", gate.url))


def with_roles(terminal: Terminal, name: str, script: str = "hello.py", count: int = 1) -> tuple[str, ...]:
    """A detached run of two Jobs."""
    words = ("run", "-d", "--name", name, "--image", terminal.image, "--framework", "tensorflow")
    return (*words, "-n", str(count), "--role", f"ps={count}", script)


def submit_and_die(terminal: Terminal, gate: Gate, name: str, at: int) -> None:
    gate.watch((at, "before"))
    command = terminal.start(*with_roles(terminal, name))
    gate.arm(command.process.kill)
    assert command.wait() != 0, command
    check_writes(gate.writes, WRITES_OF_TWO, at)


def started_jobs(terminal: Terminal, name: str) -> set[str]:
    """The Jobs of a run that may have pods."""
    found = terminal.kubectl.items("jobs", "-l", f"echelon.dev/run={name}")
    return {job["metadata"]["name"] for job in found if not job["spec"].get("suspend")}


def check_success(terminal: Terminal, name: str) -> None:
    ended = terminal.call("wait", name, "--timeout", "3m")
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert "hello from 0" in terminal.call("logs", name).stdout


def nothing_runs(terminal: Terminal, name: str) -> bool:
    return not [pod for pod in terminal.pods(name) if pod["status"]["phase"] in ("Pending", "Running")]


@pytest.mark.core
def test_killed_between_two_jobs_and_repeated(terminal: Terminal, through: Terminal, gate: Gate) -> None:
    submit_and_die(through, gate, "half", SECOND_JOB)
    assert started_jobs(terminal, "half") == set(), "half a gang never runs"
    again = terminal.call(*with_roles(terminal, "half"))
    assert (again.returncode, again.stdout) == (0, "half\n"), again.stderr
    check_success(terminal, "half")


@pytest.mark.parametrize("at", [SECOND_JOB, FIRST_RELEASE, FIRST_RELEASE + 1])
def test_killed_while_it_starts_and_tended(
    terminal: Terminal, through: Terminal, gate: Gate, at: int
) -> None:
    submit_and_die(through, gate, "half", at)
    assert terminal.status("half")["state"] == "starting"
    check_success(terminal, "half")
    terminal.check_removal("half")


@pytest.mark.parametrize("at", [SECOND_JOB, FIRST_RELEASE + 1])
def test_killed_while_it_starts_and_stopped(
    terminal: Terminal, through: Terminal, gate: Gate, at: int
) -> None:
    submit_and_die(through, gate, "half", at)
    done = terminal.call("stop", "half")
    assert done.returncode == 0, done.stderr
    assert terminal.status("half")["state"] == "stopped"
    wait_until(lambda: nothing_runs(terminal, "half"), "its pods to end", PATIENCE)
    terminal.check_removal("half")


@pytest.mark.parametrize(
    "seed", [*range(FEW), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(FEW, MANY))]
)
def test_stopped_within_two_seconds(terminal: Terminal, seed: int) -> None:
    """Some of its workers may not have come when their leader is told to stop."""
    terminal.write("stays.py", STAYS)
    done = terminal.call(*with_roles(terminal, "early", "stays.py", count=2))
    assert done.returncode == 0, done.stderr
    time.sleep(random.Random(seed).uniform(0.0, 2.0))
    done = terminal.call("stop", "early")
    assert done.returncode == 0, done.stderr
    assert terminal.status("early")["state"] == "stopped"
    wait_until(lambda: nothing_runs(terminal, "early"), "its pods to end", PATIENCE)
    terminal.check_removal("early")


@pytest.mark.parametrize("delay", [0.3, 0.6, 0.9])
def test_stopped_while_it_is_submitted(terminal: Terminal, delay: float) -> None:
    """Jobs that are made after the stop was asked for end too."""
    terminal.write("stays.py", STAYS)
    command = terminal.start(*with_roles(terminal, "early", "stays.py", count=2))
    wait_until(lambda: terminal.kubectl.find("configmap", "early") is not None, "its record", PATIENCE)
    time.sleep(delay - 0.3)
    done = terminal.call("stop", "early")
    assert done.returncode == 0, done.stderr
    command.wait()
    assert terminal.status("early")["state"] == "stopped"
    wait_until(lambda: nothing_runs(terminal, "early"), "its pods to end", PATIENCE)
    terminal.check_removal("early")


@pytest.mark.parametrize("at", [0, SECOND_JOB - 1, SECOND_JOB, FIRST_RELEASE])
def test_an_answer_is_lost(terminal: Terminal, through: Terminal, gate: Gate, at: int) -> None:
    """The server has done what was asked for, and says that it did not answer in time: the run goes on."""
    gate.watch(lost=at)
    done = through.call(*with_roles(terminal, "unclear"))
    assert (done.returncode, done.stdout) == (0, "unclear\n"), done.stderr
    check_success(terminal, "unclear")
    assert len(terminal.pods("unclear")) == 2
    terminal.check_removal("unclear")


def end_of(terminal: Terminal, name: str, worker: int) -> str:
    """The pod of a worker of a run of one Job."""
    found = [pod["metadata"]["name"] for pod in terminal.pods(name)]
    return next(pod for pod in found if pod.startswith(f"{name}-{worker}-"))


def test_the_leader_is_evicted_in_a_slow_fetch(terminal: Terminal) -> None:
    """Its own results are here already; the others wait for a client that takes longer than they linger."""
    terminal.write("writes.py", WRITES)
    command = terminal.train("slow", "--keep", "8s:0", "-n", "3", "writes.py")
    home = terminal.folder / "runs" / "slow"
    wait_until((home / "worker-1").exists, "the fetch from worker 1", PATIENCE)
    wait_for_bytes(command, home / "worker-1", 1 << 20)
    with stopped(command):
        terminal.kubectl("delete", "pod", end_of(terminal, "slow", 0), "--wait=false")
        time.sleep(25)  # longer than anybody lingers
        assert not (home / "worker-2").exists(), "it was faster than the deletion"
    assert command.wait() == 0, command
    check_complete(home, workers=3)
    terminal.check_removal("slow")


def test_a_take_over_while_the_owner_fetches(terminal: Terminal, tmp_path: Path) -> None:
    terminal.write("writes.py", WRITES)
    command = terminal.train("both", "-n", "2", "writes.py")
    home = terminal.folder / "runs" / "both"
    wait_for_bytes(command, home)
    colleague = terminal.on_another_machine(terminal.kubectl, tmp_path / "colleague")
    with stopped(command):
        other = colleague.start(*take_over(terminal, "both"))
        time.sleep(5)
        assert other.process.poll() is None, other
    assert command.wait() == 0, command
    assert other.wait() == 0, other
    assert "are not here" not in other.said, other
    assert f"fetched to {home}" in other.said, other
    check_complete(home, workers=2)
    terminal.check_removal("both")


def test_a_take_over_when_the_owner_dies(terminal: Terminal, tmp_path: Path) -> None:
    terminal.write("writes.py", WRITES)
    command = terminal.train("both", "-n", "2", "writes.py")
    wait_for_bytes(command, terminal.folder / "runs" / "both")
    colleague = terminal.on_another_machine(terminal.kubectl, tmp_path / "colleague")
    with stopped(command):
        other = colleague.start(*take_over(terminal, "both"))
        time.sleep(3)
        command.process.kill()
    command.wait()
    assert other.wait() == 0, other
    taken = colleague.folder / "runs" / "both"
    for place in (taken, taken / "worker-1"):
        sizes = {path.name: path.stat().st_size for path in place.glob("part-*")}
        assert sizes == {f"part-{number}": SIZE for number in range(FILES)}, place
    terminal.check_removal("both")


def take_over(terminal: Terminal, name: str) -> tuple[str, ...]:
    return ("wait", name, "--take-over", "--namespace", str(terminal.kubectl.namespace))
