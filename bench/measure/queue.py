"""A long queue on a large, half full cluster, for the manager's decision: most runs start. Pure."""

from __future__ import annotations

from random import Random

from echelon.model.cluster import Cluster, Gpu, Node
from echelon.model.job import Job
from echelon.model.open_shape import OpenShape
from echelon.model.queue import HoldingRun, QueuedRun, Rules
from echelon.queueing.policy import Decision, decide
from echelon.queueing.room import ClusterRoom

NODES, RUNS, GPUS = 1000, 200, 8
_HOLDER = "others/run"
_MEMORY = 2.0**40


def cluster() -> Cluster:
    """Nodes of which every second GPU is free, somewhere."""
    random = Random(1)
    nodes = []
    for at in range(NODES):
        holders = [None if random.random() < 0.5 else _HOLDER for _ in range(GPUS)]
        gpus = tuple(
            Gpu(id=f"n{at}/{number}", model="A100", holder=holder) for number, holder in enumerate(holders)
        )
        about = {"cpus": 64.0, "free_cpus": 64.0, "memory": _MEMORY, "free_memory": _MEMORY}
        nodes.append(Node(name=f"n{at:04}", gpus=gpus, **about))
    return Cluster(nodes=tuple(nodes), here=False)


def queue() -> list[QueuedRun]:
    """Runs that say only how many GPUs they need, none of which has waited for long."""
    random = Random(2)
    sizes = [random.choice((1, 2, 3, 4, 6, 8, 12, 16)) for _ in range(RUNS)]
    return [
        QueuedRun(
            name=f"team/r{at}",
            job=Job(name=f"r{at}", script="x.py", framework="plain", shape=OpenShape(least=size, most=size)),
            since=float(at),
            gpus=size,
        )
        for at, size in enumerate(sizes)
    ]


def decide_all(waiting: list[QueuedRun], there: Cluster) -> Decision[ClusterRoom]:
    """One decision over the whole queue, as the manager makes it in a round."""
    holding = [HoldingRun(name=_HOLDER, gpus=NODES * GPUS // 2)]
    room = ClusterRoom(view=lambda _job: there)
    return decide(waiting, holding, room, Rules(), float(RUNS))
