"""Checkpoints that survive their pods: real agents, carriers and a keeper on loopback, pods lost while ranks
train.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.keepers import RunKeeper
from tests.agent.pods import Pods
from tests.conftest import PATIENCE, wait_until

from echelon.agent.files.manifest import manifest_of

Make = Callable[..., RunKeeper]

# Each rank counts on from the newest checkpoint; rank 0 alone writes. A step ends when the test allows it.
TRAINS = """
import json, os, pathlib, signal, sys, time
place = pathlib.Path({folder!r})
ckpt = pathlib.Path(os.environ["ECHELON_OUTPUT"]) / "ckpt"
ckpt.mkdir(parents=True, exist_ok=True)
rank = int(os.environ["ECHELON_RANK"])
steps = sorted(int(path.name.partition("-")[2]) for path in ckpt.glob("step-*"))
step = steps[-1] if steps else 0
if step:
    told = json.loads((ckpt / ("step-%d" % step) / "model.json").read_text())
    assert told["step"] == step, told
print("from", step, flush=True)
def save(step):
    to = ckpt / ("step-%d" % step)
    to.mkdir()
    (to / "model.json").write_text(json.dumps(dict(step=step, weights="w" * 10000)))
    print("saved", step, flush=True)
def last(*_):
    if rank == 0 and {saves_last}:
        save(step + 1000)
    sys.exit(0)
signal.signal(signal.SIGTERM, last)
while step < {steps}:
    while not (place / ("go-%d" % (step + 1))).exists():
        time.sleep(0.02)
    step += 1
    if rank == 0:
        save(step)
print("done", flush=True)
"""


class Training:
    """A run with a keeper and checkpoints."""

    def __init__(
        self, pods: Pods, *, workers: int = 2, steps: int = 2, saves_last: bool = False, restarts: int = 3
    ) -> None:
        self.pods = pods
        self.workers = workers
        text = TRAINS.format(folder=str(pods.folder), steps=steps, saves_last=saves_last)
        pods.script(text, workers=workers, hold=600.0, keep=600.0, repeat_state=True, restarts=restarts)
        for worker in reversed(range(workers)):
            self.start(worker)

    def start(self, worker: int, failures: int | None = None) -> None:
        at = self.pods.folder / f"{worker}.{failures or 0}" / "output"
        self.pods.start(worker, failures=failures, kept=[str(at)], checkpoints=str(at / "ckpt"))

    def go(self, step: int) -> None:
        (self.pods.folder / f"go-{step}").touch()

    def safe(self, leader: int = 0) -> list[str]:
        return [event["path"] for event in self.pods.events(leader) if event["kind"] == "checkpoint"]

    def wait_safe(self, step: int) -> None:
        wait_until(lambda: f"ckpt/step-{step}" in self.safe(), f"step {step} to be safe: {self.safe()}")

    def replace(self, worker: int, number: int = signal.SIGKILL, failures: int = 1) -> None:
        process = self.pods.processes[worker]
        process.send_signal(number)
        process.wait(PATIENCE)
        self.start(worker, failures=failures)

    def folder(self, worker: int) -> Path:
        return self.pods.place(worker) / "output" / "ckpt"

    def said(self, worker: int, text: str) -> None:
        wait_until(lambda: text in self.pods.said(worker), f"worker {worker} to say {text!r}")


@pytest.fixture
def make(pods: Pods) -> Iterator[Make]:
    made: list[RunKeeper] = []

    def keeper(**more: Any) -> RunKeeper:
        made.append(RunKeeper(pods, number=len(made), **more))
        made[-1].start(checkpoints="/nowhere/ckpt", kept=["/nowhere"])
        return made[-1]

    yield keeper
    for each in made:
        each.close()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_worker_that_is_killed_goes_on_from_the_safe_checkpoint(pods: Pods, make: Make, lost: int) -> None:
    training = Training(pods)
    make()
    training.go(1)
    training.wait_safe(1)
    training.replace(lost)
    for worker in (0, 1):
        training.said(worker, "from 1")
    restored = [each for each in pods.events(0) if each["kind"] == "restored"]
    assert {(each["worker"], each["path"]) for each in restored} == {
        (lost, "ckpt/step-1"),
        (1, "ckpt/step-1"),
    }
    training.go(2)
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]


def test_what_is_not_safe_is_set_aside(pods: Pods, make: Make) -> None:
    """Worker 1 dies before the second checkpoint is known to be whole: both go on from the first."""
    training = Training(pods, steps=3)
    keeper = make()
    training.go(1)
    training.wait_safe(1)
    assert keeper.process is not None
    keeper.process.send_signal(signal.SIGSTOP)
    training.go(2)
    training.said(0, "saved 2")
    training.replace(1)
    keeper.process.send_signal(signal.SIGCONT)
    for worker in (0, 1):
        training.said(worker, "from 1")
    aside = training.folder(0).parent / ".echelon-set-aside" / "step-2" / "model.json"
    assert json.loads(aside.read_text())["step"] == 2
    training.go(3)
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]


@pytest.mark.parametrize("workers", [1, 2])
def test_what_ranks_save_when_their_pod_is_told_to_go_is_given_before(
    pods: Pods, make: Make, workers: int
) -> None:
    training = Training(pods, workers=workers, saves_last=True, steps=1001)
    make()
    training.go(1)
    training.wait_safe(1)
    training.replace(0, signal.SIGTERM)
    for worker in range(workers):
        training.said(worker, "from 1001")
    assert [pods.code(worker) for worker in range(workers)] == [0] * workers


def test_pods_that_look_like_the_first_ones_go_on_too(pods: Pods, make: Make) -> None:
    """As after their Job was suspended: nothing tells them that the run has begun before."""
    training = Training(pods)
    make()
    training.go(1)
    training.wait_safe(1)
    for worker in (0, 1):
        pods.processes[worker].kill()
        pods.processes[worker].wait()
        pods.place(worker).rename(pods.folder / f"before-{worker}")
    for worker in (1, 0):
        training.start(worker)
    for worker in (0, 1):
        training.said(worker, "from 1")
    training.go(2)
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]


def test_another_keeper_gets_everything_again(pods: Pods, make: Make) -> None:
    training = Training(pods, steps=2)
    first = make()
    training.go(1)
    training.wait_safe(1)
    first.close()
    make()
    wait_until(lambda: training.safe().count("ckpt/step-1") == 2, "the second keeper to have it")
    training.replace(0)
    for worker in (0, 1):
        training.said(worker, "from 1")
    training.go(2)
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]


# What is left of checkpoints when a run ends that goes on no more.


def kept(keeper: RunKeeper, worker: int) -> dict[str, Any]:
    wait_until(lambda: worker in keeper.kept(), f"the keeper to vouch for worker {worker}")
    return keeper.kept()[worker]


def check_saved(keeper: RunKeeper, worker: int, *steps: int) -> None:
    """The keeper vouches for these checkpoints of a worker, and for nothing else of it."""
    event = kept(keeper, worker)
    assert event["only"] == "checkpoints"
    place = keeper.folder(worker)
    files = [path for path in place.rglob("*") if path.is_file()]
    assert {path.relative_to(place) for path in files} == {
        Path("ckpt") / f"step-{step}" / "model.json" for step in steps
    }
    (stated,) = event["manifests"]
    assert {**manifest_of(str(place)), "root": "/nowhere", "worker": worker} == stated


def test_a_worker_that_is_lost_for_good_leaves_its_safe_checkpoints(pods: Pods, make: Make) -> None:
    """Worker 0, which writes them, is killed, and no restart is left; worker 1 gives what it has."""
    training = Training(pods, restarts=0)
    keeper = make()
    training.go(1)
    training.wait_safe(1)
    training.replace(0)
    check_saved(keeper, 0, 1)
    assert pods.code(1) in (0, 195)
    assert "only" not in kept(keeper, 1)
    time.sleep(2.5)  # it would have left by now, had it nothing
    assert keeper.process is not None
    assert keeper.process.poll() is None
    assert keeper.order("release").returncode == 0
    assert keeper.code() == 0


def test_when_no_leader_tells_the_keeper_that_the_run_is_over_a_client_does(pods: Pods, make: Make) -> None:
    training = Training(pods, restarts=0)
    keeper = make()
    training.go(1)
    training.wait_safe(1)
    for worker in (0, 1):
        pods.processes[worker].kill()
        pods.processes[worker].wait()
    time.sleep(1.5)
    assert not keeper.kept(), "a leader may come"
    assert keeper.order("fetch", json.dumps({"client": "a", "seconds": 60})).returncode == 0
    check_saved(keeper, 0, 1)
    assert set(keeper.kept()) == {0}, "worker 1 has written nothing"
    assert keeper.order("fetch", json.dumps({"client": "a", "seconds": 60})).returncode == 0
    assert [event["kind"] for event in keeper.events()].count("worker-kept") == 1


TEARS = """
import os, pathlib, signal, sys, time
place = pathlib.Path({folder!r})
ckpt = pathlib.Path(os.environ["ECHELON_OUTPUT"]) / "ckpt"
ckpt.mkdir(parents=True, exist_ok=True)
(ckpt / "last").write_text("whole")
print("saved", flush=True)
while not (place / "go").exists():
    time.sleep(0.02)
with open(ckpt / "last", "w") as file:
    file.write("to")
    file.flush()
    (ckpt / "begun").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def one_worker(pods: Pods, text: str) -> None:
    pods.script(text.format(folder=str(pods.folder)), workers=1, hold=600.0, keep=600.0, repeat_state=True)
    at = pods.folder / "0.0" / "output"
    pods.start(0, kept=[str(at)], checkpoints=str(at / "ckpt"))


def test_what_a_rank_tore_when_it_died_does_not_replace_what_was_safe(pods: Pods, make: Make) -> None:
    one_worker(pods, TEARS)
    keeper = make()
    wait_until(lambda: any(each["kind"] == "checkpoint" for each in pods.events(0)), "it to be safe")
    (pods.folder / "go").touch()
    assert pods.code(0) == 193
    event = kept(keeper, 0)
    place = keeper.folder(0)
    assert [path.name for path in (place / "ckpt").iterdir()] == ["last"]
    assert (place / "ckpt" / "last").read_text() == "whole"
    assert (place / ".echelon-set-aside" / "last").read_text() == "to"
    assert (place / ".echelon-set-aside" / "begun").read_text() == "x"
    assert "only" not in event
    (stated,) = event["manifests"]
    assert stated["digest"] == manifest_of(str(place))["digest"]


FAILS = """
import os, pathlib, sys, time
while not (pathlib.Path({folder!r}) / "go").exists():
    time.sleep(0.02)
ckpt = pathlib.Path(os.environ["ECHELON_OUTPUT"]) / "ckpt"
ckpt.mkdir(parents=True, exist_ok=True)
(ckpt / "last").write_text("whole")
sys.exit(3)
"""


def test_what_a_rank_wrote_right_before_it_failed_is_safe(pods: Pods, make: Make) -> None:
    """The end of the run waits until it has been given."""
    one_worker(pods, FAILS)
    keeper = make()
    pods.wait_for("worker-running")
    time.sleep(1.0)  # the keeper is there: a start waits for it
    (pods.folder / "go").touch()
    assert pods.code(0) == 193
    assert [each["path"] for each in pods.events(0) if each["kind"] == "checkpoint"] == ["ckpt/last"]
    kept(keeper, 0)
    assert (keeper.folder(0) / "ckpt" / "last").read_text() == "whole"
    assert not (keeper.folder(0) / ".echelon-set-aside").exists()
