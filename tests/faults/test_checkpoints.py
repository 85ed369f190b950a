"""Training with `--checkpoints` goes on from what was kept, whatever is lost and when: real agents, carriers
and keepers on loopback, which are killed or told to leave at random moments of one long run.

Every rank writes a shard of each checkpoint, checks all shards that it finds against what they must be, and
says from which step it goes on."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator

import pytest
from tests.agent.keepers import RunKeeper
from tests.agent.pods import Pods, pods_here
from tests.conftest import PATIENCE, wait_until

FEW, MANY = 20, 200
WORKERS = 2
TRAINS = """
import hashlib, os, pathlib, random, shutil, signal, sys, time
output = pathlib.Path(os.environ["ECHELON_OUTPUT"])
ckpt = output / "ckpt"
ckpt.mkdir(parents=True, exist_ok=True)
rank = int(os.environ["ECHELON_RANK"])
end = pathlib.Path({end!r})
def shard(step, rank):
    return random.Random("%d %d" % (step, rank)).randbytes(200_000)
def steps():
    return sorted(int(path.name.partition("-")[2]) for path in ckpt.glob("step-*"))
def check(step):
    there = list((ckpt / ("step-%d" % step)).iterdir())
    assert there, "an empty checkpoint"
    for path in there:
        assert path.read_bytes() == shard(step, int(path.name)), "torn: %s" % path
def save(step):
    to = ckpt / ("step-%d" % step)
    to.mkdir(exist_ok=True)
    data = shard(step, rank)
    with open(to / str(rank), "wb") as file:
        for at in range(0, len(data), 20_000):
            file.write(data[at:at + 20_000])
            file.flush()
            time.sleep(0.002)
found = steps()
step = found[-1] if found else 0
if step:
    check(step)
print("generation %s from %d" % (os.environ["ECHELON_RESTART"], step), flush=True)
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
while not end.exists() and not stopped:
    step += 1
    save(step)
    for old in steps()[:-4]:
        shutil.rmtree(ckpt / ("step-%d" % old), ignore_errors=True)
    time.sleep(1.5)
"""


class Long:
    """One run that loses its parts again and again."""

    def __init__(self, pods: Pods) -> None:
        self.pods = pods
        self.end = pods.folder / "end"
        self.failures = dict.fromkeys(range(WORKERS), 0)
        self.keepers: list[RunKeeper] = []
        text = TRAINS.format(end=str(self.end))
        pods.script(
            text, workers=WORKERS, hold=600.0, keep=600.0, repeat_state=True, restarts=1000, grace=20.0
        )
        self.keep()
        for worker in reversed(range(WORKERS)):
            self.start(worker)

    def start(self, worker: int) -> None:
        count = self.failures[worker]
        at = self.pods.folder / f"{worker}.{count}" / "output"
        self.pods.start(worker, failures=count or None, kept=[str(at)], checkpoints=str(at / "ckpt"))

    def keep(self) -> None:
        self.keepers.append(RunKeeper(self.pods, number=len(self.keepers)))
        self.keepers[-1].start(checkpoints="/nowhere/ckpt", kept=["/nowhere"])

    def lose(self, worker: int, number: int) -> None:
        process = self.pods.processes[worker]
        process.send_signal(number)
        process.wait(PATIENCE)
        self.failures[worker] += 1

    def safe(self) -> list[int]:
        """The steps that the present leader has called safe."""
        told = [event["path"] for event in self.pods.events(0) if event["kind"] == "checkpoint"]
        return [int(path.partition("-")[2]) for path in told]

    def began(self, worker: int) -> list[int]:
        """From which steps the present pod of a worker went on, start after start."""
        return [int(line.split()[3]) for line in self.pods.said(worker) if line.startswith("generation ")]

    def wait_for_more(self) -> int:
        """Wait until something became safe in this generation, and return it."""
        before = len(self.safe())
        wait_until(lambda: len(self.safe()) > before, f"a safe checkpoint after {self.safe()}")
        return max(self.safe())

    def replace(self, workers: list[int], number: int) -> int:
        """Lose the pods of these workers, and start others; returns from which step all go on."""
        starts = [0 if worker in workers else len(self.began(worker)) for worker in range(WORKERS)]
        for worker in workers:
            self.lose(worker, number)
        for worker in reversed(workers):
            self.start(worker)
        everyone = range(WORKERS)
        wait_until(lambda: all(len(self.began(each)) > starts[each] for each in everyone), "a new start")
        (step,) = {self.began(each)[-1] for each in everyone}
        return step


@pytest.fixture
def run() -> Iterator[Long]:
    with pods_here() as pods:
        run = Long(pods)
        yield run
        for keeper in run.keepers:
            keeper.close()


@pytest.mark.parametrize("moments", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_it_goes_on_from_what_was_kept_whatever_is_lost(run: Long, moments: int) -> None:
    draw = random.Random(moments)
    for _ in range(moments):
        run.wait_for_more()
        time.sleep(draw.uniform(0.0, 3.0))
        what = draw.choice(["leader", "member", "both", "leader leaves", "member leaves", "keeper"])
        kept = max(run.safe())
        if what == "keeper":
            run.keepers[-1].close()
            run.keep()
            continue
        number = signal.SIGTERM if "leaves" in what else signal.SIGKILL
        lost = {"leader": [0], "member": [1], "both": [0, 1]}[what.partition(" ")[0]]
        step = run.replace(lost, number)
        assert step >= kept, what
        print(f"{what}: {kept} was safe, goes on from {step}")
    run.end.touch()
    assert [run.pods.code(worker) for worker in range(WORKERS)] == [0, 0]
