"""What the pictures of the dashboard show: runs of every kind in a cluster that is played."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from echelon.bundle import Bundle
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.model.engine import usage
from echelon.model.engine.cluster import Cluster, Gpu, Node
from echelon.model.engine.traits import Traits, Where
from echelon.model.job import Job
from echelon.model.plan import Plan
from echelon.model.program import Parent, Program, Step
from echelon.model.resources import Resources
from echelon.model.run import RunRef
from echelon.preparation.prepare import Prepared
from echelon.submit import submit

_MODEL, _GIB, _HOUR = "NVIDIA-H100-80GB-HBM3", 2**30, 3600.0
_HELD = {
    "gpu-a": {"fashion": 6, "titanic-2-train": 2},
    "gpu-b": {"fashion": 2, "ben/llm": 4},
    "gpu-c": {},
}


_TITANIC = {
    "parent": Act(lasts=True),
    "load": Act(lines=("891 rows, 12 columns",)),
    "clean": Act(lines=("filled 177 ages with their median", "dropped Cabin, Ticket")),
    "train": Act(lines=tuple(f"epoch={n} loss={0.7 * 0.9**n + 0.38:.4f}" for n in range(40)), lasts=True),
}


class Played(MemoryEngine):
    """A cluster of three nodes; each thing that happens takes `pace` seconds."""

    traits = Traits(place="the cluster")
    where = Where(context="lab", namespace="team-a")

    def __init__(self, now: float, programs: dict[str, Any]) -> None:
        super().__init__(programs, cluster=Cluster(nodes=tuple(map(_node, _HELD))))
        self.pace, self._started = 1.0, now
        self.usage = self  # type: ignore[assignment]

    def at(self, hours_ago: float, pace: float) -> None:
        """The next run begins so many hours ago."""
        self.pace, self._clock = pace, self._started - hours_ago * _HOUR

    def record(self, job: Job, bundle: Bundle | None, held: Plan | None = None) -> RunRef:
        """As it is, of a user with a name."""
        ref = super().record(job, bundle, held)
        run = self._find(ref)
        run.record = replace(run.record, owner="ann")
        return ref

    def tell(self, name: str, *steps: Step) -> None:
        """How the steps of a run stand."""
        with self._changed:
            self._tell(self._runs[name], "steps", steps=steps)

    def measure(self) -> usage.ClusterUsage:
        """Who holds which GPUs."""
        nodes = [_use(name, users) for name, users in _HELD.items()]
        holders = [
            usage.Holder(
                node=node,
                name=run,
                pod=f"{run.rpartition('/')[2]}-{number}",
                gpus=count,
                since=self._started - 900.0,
                state="running",
            )
            for number, (node, users) in enumerate(_HELD.items())
            for run, count in users.items()
        ]
        nodes_of = tuple(node for node, users in _HELD.items() if "fashion" in users)
        run = usage.ClusterRun(
            name="fashion", state="running", workers=8, cpus=64.0, memory=512 * _GIB, gpus=8, nodes=nodes_of
        )
        return usage.ClusterUsage(namespace="team-a", nodes=tuple(nodes), runs=(run,), holders=tuple(holders))

    def _now(self) -> float:
        self._clock = min(round(self._clock + self.pace, 3), self._started)
        return self._clock


def _node(name: str) -> Node:
    gpus = tuple(Gpu(id=str(number), model=_MODEL) for number in range(8))
    memory = 1024.0 * _GIB
    return Node(name=name, cpus=96, memory=memory, free_cpus=96, free_memory=memory, gpus=gpus)


def _use(name: str, users: dict[str, int]) -> usage.NodeUse:
    count = sum(users.values())
    return usage.NodeUse(
        node=name,
        state="ready" if users else "cordoned",
        model=_MODEL,
        gpus=8,
        gpus_used=count,
        cpus=96.0,
        cpus_used=8.0 * count,
        memory=1024 * _GIB,
        memory_used=64 * _GIB * count,
        users=users,
    )


def _training(rank: int, _restart: int) -> Act:
    lines = [
        f"step={step * 10} loss={2.1 * math.exp(-step / 40) + 0.2 + 0.05 * math.sin(step * 1.7 + rank):.4f} "
        f"accuracy={0.93 - 0.8 * math.exp(-step / 35):.4f} lr={0.001 * (1 + math.cos(step / 51)) / 2:.6f}"
        for step in range(150)
    ]
    return Act(lines=(f"rank {rank} of 8, shard {rank}", *lines), lasts=True)


def _failing(rank: int, _restart: int) -> Act:
    lines = tuple(f"epoch={epoch} loss={2.0 - epoch / 5:.3f}" for epoch in range(4))
    if rank != 2:
        return Act(lines=lines, lasts=True)
    trace = (
        "Traceback (most recent call last):",
        '  File "train.py", line 41, in <module>',
        "    loss = criterion(model(images), labels)",
    )
    return Act(lines=(*lines, *trace), error="IndexError: Target 10 is out of bounds.", exit_code=1)


def play(now: float) -> Played:
    """Runs of every kind."""
    done = Act(lines=tuple(f"step={step} loss={1 / (step + 1):.3f}" for step in range(50)))
    programs = {"train.py": _training, "resnet.py": _failing, "done.py": done, **_TITANIC}
    engine = Played(now, programs)

    def start(name: str, script: str, gpus: int = 0, **more: Any) -> None:
        job = Job(
            name=name,
            script=script,
            framework="torch",
            resources=Resources(gpus=gpus),
            results=f"runs/{name}",
            **more,
        )
        submit(Prepared(job=job), engine, stays=False)

    engine.at(26.0, 30.0)
    start("baseline", "done.py", workers=2)
    engine.at(3.0, 4.0)
    start("resnet", "resnet.py", gpus=1, workers=4)
    engine.at(0.4, 0.5)
    start("fashion", "train.py", gpus=1, workers=8, args=("--epochs", "10"))
    engine.at(0.2, 2.0)
    start("titanic-2", "parent", program=Program(title="notebook", source="titanic.ipynb"))
    for step in ("load", "clean", "train"):
        own = Parent(run="titanic-2", step=step)
        start(f"titanic-2-{step}", step, 2 * (step == "train"), parent=own)
    engine.tell("titanic-2", *_steps(now - 0.2 * _HOUR))
    engine.at(0.05, 1.0)
    start("llama", "train.py", gpus=8, workers=3)
    return engine


def _steps(began: float) -> tuple[Step, ...]:
    """Those of a notebook, of which one runs now."""

    def ran(name: str, first: float, last: float | None, **more: Any) -> Step:
        ended = None if last is None else began + last
        return _step(name, run=f"memory://titanic-2-{name}", started=began + first, ended=ended, **more)

    features = ran("features", 33.0, 33.4, state="cached", reason="from titanic-1", gets={"load": ("raw",)})
    return (
        ran("load", 2.0, 31.0, state="succeeded"),
        ran("clean", 32.0, 140.0, state="succeeded", gets={"load": ("raw",)}),
        replace(features, run=""),
        ran(
            "train",
            150.0,
            None,
            state="running",
            gets={"clean": ("data",), "features": ("columns",)},
            size="2 workers, torch, 2 GPUs",
        ),
        _step("forest", gets={"clean": ("data",)}),
        _step("report", gets={"train": ("model", "scores"), "forest": ("scores",), "load": ("raw",)}),
    )


def _step(name: str, gets: dict[str, tuple[str, ...]] | None = None, **more: Any) -> Step:
    gets = gets or {}
    return Step(name=name, after=tuple(gets), gets=gets, **more)
