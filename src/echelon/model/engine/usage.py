"""Who uses what at one moment (`echelon top`): a machine in processes, a cluster in what pods ask for.

A run of either is shown by its workers (`RunUsage`), as their agents measure it. Of the whole there are two
shapes, because two different things are known: a machine measures what its processes use, a cluster
counts what its pods have requested, by node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from echelon.model.engine.cluster import Devices
from echelon.model.engine.sample import GpuSample, RankSample, Samples
from echelon.model.state import State
from echelon.model.status import Status, WorkerState
from echelon.values import frozen


@frozen
class GpuUse:
    """One GPU of a machine: `user` is a run, another user's process, or None."""

    gpu: str
    model: str
    memory: int
    used: int
    utilization: int | None
    user: str | None


@frozen
class MachineRun:
    """What the processes of one run use: `cpus` in cores, memory in bytes."""

    name: str
    state: str
    processes: int
    cpus: float
    memory: int
    gpus: tuple[str, ...] = ()


@frozen
class MachineUsage:
    """A machine at one moment."""

    cpus: int
    load: float
    memory: int
    memory_used: int
    gpus: tuple[GpuUse, ...]
    runs: tuple[MachineRun, ...]


@frozen
class NodeUse:
    """One node. What is used, and by whom (GPUs held by each run or pod), is None where it may not be seen.

    `state` is "ready", or why the node takes no workers."""

    node: str
    state: str
    model: str
    gpus: int
    gpus_used: int | None
    cpus: float
    cpus_used: float | None
    memory: int
    memory_used: int | None
    users: Mapping[str, int] | None = None


@frozen
class ClusterRun:
    """What the workers of one run ask for: `cpus` in cores, memory in bytes.

    Runs of other namespaces are listed too, if the user may look there."""

    name: str
    state: str
    workers: int
    cpus: float
    memory: int
    gpus: int
    nodes: tuple[str, ...] = ()


HolderState = Literal[
    "starting",  # it has its GPUs, and its process does not run yet
    "running",
    "lingering",  # its run is over, and it stays for its results to be fetched
    "keeping",  # the keeper of a run, which has no GPUs
]


@frozen
class Holder:
    """One pod, of a run or not, with the GPUs that it holds of a node. `pod` is "" where GPUs are promised to
    a worker whose pod does not exist yet; `since` is None where that is not known.
    """

    node: str
    name: str
    pod: str
    gpus: int
    since: float | None
    state: HolderState


@frozen
class ClusterUsage:
    """A cluster at one moment; `nodes` is None where the user may not list them. `devices` are those that are
    no number of a node.
    """

    namespace: str
    nodes: tuple[NodeUse, ...] | None
    runs: tuple[ClusterRun, ...]
    holders: tuple[Holder, ...] = ()
    devices: tuple[Devices, ...] = ()


@frozen
class WorkerUse:
    """One worker of a run: how it stands, and what it uses; that is None where there is no sample of it (its
    ranks do not run, or have only just begun).
    """

    worker: int
    role: str
    state: WorkerState
    node: str | None = None
    cpus: float | None = None
    memory: int | None = None
    memory_limit: int | None = None
    idle: float | None = None
    ranks: tuple[RankSample, ...] = ()
    gpus: tuple[GpuSample, ...] = ()


@frozen
class RunUsage:
    """A run at one moment."""

    name: str
    state: State
    workers: tuple[WorkerUse, ...] = ()


def usage_of(status: Status, samples: Samples) -> RunUsage:
    """How the workers of a run stand, with the newest samples. One of a worker that does not run any more is
    no longer true.
    """
    newest = {sample.worker: sample for sample in samples.workers}
    found = []
    for worker in status.workers:
        use = WorkerUse(worker=worker.worker, role=worker.role, state=worker.state, node=worker.node)
        sample = newest.get(worker.worker)
        if sample is not None and worker.state == "running":
            use = replace(
                use,
                cpus=sample.cpus,
                memory=sample.memory,
                memory_limit=sample.memory_limit,
                idle=sample.idle,
                ranks=sample.ranks,
                gpus=sample.gpus,
            )
        found.append(use)
    return RunUsage(name=status.name, state=status.state, workers=tuple(found))
