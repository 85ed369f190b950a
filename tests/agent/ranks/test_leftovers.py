"""What ranks leave when they end: the training below a shell or launcher saves, and gets SIGTERM once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.agent.conftest import Agents
from tests.conftest import PATIENCE, wait_until

from echelon.agent.ranks.leftovers import next_to_tell
from echelon.agent.task import INTERRUPTED, RUN_OVER
from testbed import trainers

AGENT = 1
TRAIN = """
import os, signal, sys, time
times = 0
def save(*_):
    global times
    times += 1
    print("saving", times, flush=True)
    time.sleep(1.0)
    print("saved", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
time.sleep(600)
"""
WRAPPER = "import subprocess, sys; subprocess.run([sys.executable, 'train.py'])"
# As torchrun does: it passes the signal on, and waits for what it has started.
LAUNCHER = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, 'train.py'])
signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
sys.exit(child.wait())
"""
PASSES_ON_AND_LEAVES = "trap 'kill -TERM $!' TERM; {python} train.py & wait $!"
WAYS = {
    "a shell": "{python} train.py\ntrue",
    "a pipeline": "{python} train.py | tee log.txt",
    "the background": "{python} train.py &\nwait",
    "a wrapper": "{python} wrapper.py\ntrue",
    "a wrapper in a pipeline": "{python} wrapper.py | cat",
    "a launcher": "{python} launcher.py\ntrue",
    "a shell that passes it on": PASSES_ON_AND_LEAVES,
}


def put(folder: Path, line: str) -> None:
    for name, text in (("train", TRAIN), ("wrapper", WRAPPER), ("launcher", LAUNCHER)):
        (folder / f"{name}.py").write_text(text)
    (folder / "train.sh").write_text(line.format(python=sys.executable) + "\n")


def printed(agents: Agents, rank: int = 0) -> list[str]:
    log = agents.folder / "out" / "logs" / f"rank-{rank}.log"
    return log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize("way", WAYS)
def test_what_runs_below_another_program_saves(agents: Agents, way: str) -> None:
    put(agents.folder, WAYS[way])
    agents.describe("bash", "train.sh", restarts=1)
    agents.start(0)
    wait_until(lambda: "up" in printed(agents), "the rank")
    agents.processes[0].terminate()
    assert agents.processes[0].wait(PATIENCE) == INTERRUPTED
    assert printed(agents) == ["up", "saving 1", "saved"]


@pytest.mark.core
def test_each_rank_of_a_worker_saves(agents: Agents) -> None:
    put(agents.folder, "{python} train.py | tee log.$ECHELON_RANK; true")
    agents.describe("bash", "train.sh", procs=2, restarts=1)
    agents.start(0)
    wait_until(lambda: all("up" in printed(agents, rank) for rank in (0, 1)), "both ranks")
    agents.processes[0].terminate()
    assert agents.processes[0].wait(PATIENCE) == INTERRUPTED
    assert [printed(agents, rank) for rank in (0, 1)] == [["up", "saving 1", "saved"]] * 2


def test_what_is_left_when_the_time_is_over_is_killed_and_told(agents: Agents) -> None:
    put(agents.folder, "trap '' TERM; sleep 600 &\nexec sleep 600")
    agents.describe("bash", "train.sh", timeout=1.0, grace=0.5)
    agents.start(0)
    assert agents.processes[0].wait(PATIENCE) == RUN_OVER
    told = "rank 0 still ran after 0.5 s and was killed"
    assert agents.verdict()["reason"].endswith(told)
    assert told in [event.get("reason") for event in agents.events(0) if event["kind"] == "note"]


def test_what_a_rank_left_that_ended_well_is_read_until_it_ends(agents: Agents) -> None:
    put(agents.folder, "{python} train.py &\nwhile ! grep -qs up out/logs/rank-0.log; do sleep 0.1; done")
    agents.describe("bash", "train.sh")
    agents.start(0)
    assert agents.processes[0].wait(PATIENCE) == 0
    assert agents.verdict()["outcome"] == "succeeded"
    assert printed(agents) == ["up", "saving 1", "saved"]


def test_only_orphans_are_told_since_a_launcher_passes_it_on() -> None:
    assert next_to_tell({2: AGENT, 3: 2, 4: 2}, AGENT, {2, 3, 4}, set()) == [2]
    assert next_to_tell({3: AGENT, 4: AGENT}, AGENT, {3, 4}, {3}) == [4]


def test_what_only_dies_of_it_is_told_last() -> None:
    tee, training, wrapper = 2, 3, 4
    assert next_to_tell({tee: AGENT, training: AGENT}, AGENT, {training}, set()) == [training]
    assert next_to_tell({tee: AGENT, training: AGENT}, AGENT, {training}, {training}) == []
    assert next_to_tell({tee: AGENT}, AGENT, set(), {training}) == [tee]
    assert next_to_tell({tee: AGENT, wrapper: AGENT, training: wrapper}, AGENT, {training}, set()) == [
        wrapper
    ]


@pytest.mark.slow
def test_what_accelerate_launches_saves(agents: Agents) -> None:
    """It starts the training as a child, and dies of the signal before it."""
    if reason := trainers.missing("accelerate"):
        pytest.skip(reason)
    flags = "--num_machines 1 --num_processes 1 --mixed_precision no --dynamo_backend no --cpu"
    path = f"export PYTHONPATH={trainers.folder('accelerate')}"
    put(agents.folder, f"{path}\n{{python}} -m accelerate.commands.launch {flags} train.py")
    agents.describe("bash", "train.sh", restarts=1)
    agents.start(0)
    wait_until(lambda: "up" in printed(agents), "the training")
    agents.processes[0].terminate()
    assert agents.processes[0].wait(PATIENCE) == INTERRUPTED
    told = [line for line in printed(agents) if line in ("up", "saving 1", "saving 2", "saved")]
    assert told == ["up", "saving 1", "saved"]
