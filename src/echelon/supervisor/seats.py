"""The seats of a run here whose number of workers changes: which are filled, and which are given back.

A worker is added where there is room for it and no run waits that comes first; the highest seats are given
back when that lets a queued run of higher priority start, down to the fewest workers. Seat 0, whose agent
leads, is always filled. What the run holds is in its plan, as of any run: a seat on no node is empty."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from echelon.engines.local import capacity
from echelon.engines.local.folder import store
from echelon.engines.local.folder.rundir import RunDir
from echelon.engines.local.folder.store import RunStore
from echelon.errors import Unplaceable
from echelon.model.engine.cluster import Cluster
from echelon.model.job import Job, asks_for_gpus
from echelon.model.plan import Plan, Seat
from echelon.model.world import World
from echelon.planning import fit, room_now
from echelon.values import frozen

ASK_FOR_GPUS = 10.0  # seconds between two questions to nvidia-smi whether GPUs have become free


@frozen
class Change:
    """What is to be done with the seats: those to be given back, with the run that needs what they have, or
    those that are filled now.
    """

    leave: tuple[int, ...] = ()
    to: str = ""
    come: tuple[Seat, ...] = ()


def decide(
    plan: Plan, job: Job, cluster: Cluster, waiting: Collection[Job], leaving: Collection[int]
) -> Change:
    """What is to be done now. Pure. `waiting` are the queued runs, the first to start first. Seats that are
    `leaving` are being given back; until they are empty no other changes.
    """
    filled = [seat for seat in plan.placement.seats if seat.node and seat.worker not in leaving]
    ahead = [each for each in waiting if each.priority >= job.priority]
    if ahead and ahead[0].priority > job.priority and not leaving:
        spare = list(reversed(filled[job.least or job.workers :]))
        for number in range(1, len(spare) + 1):
            if _starts(ahead[0], _without(cluster, spare[:number], job)):
                return Change(leave=tuple(seat.worker for seat in spare[:number]), to=ahead[0].name)
    if ahead or leaving:
        return Change()
    return Change(come=tuple(_room_for_more(plan, cluster)))


def _starts(job: Job, cluster: Cluster) -> bool:
    try:
        return isinstance(fit(job, cluster), Plan)
    except Unplaceable:
        return False


def _without(cluster: Cluster, seats: Collection[Seat], job: Job) -> Cluster:
    """This machine once those seats are empty."""
    free = {gpu for seat in seats for gpu in seat.gpus}
    (node,) = cluster.nodes
    gpus = tuple(replace(gpu, holder=None) if gpu.id in free else gpu for gpu in node.gpus)
    cpus, memory = job.resources.cpus, job.resources.memory
    more_cpus = len(seats) * (cpus.request if cpus else 0.0)
    more_memory = len(seats) * (memory.request if memory else 0.0)
    freed = replace(
        node, gpus=gpus, free_cpus=node.free_cpus + more_cpus, free_memory=node.free_memory + more_memory
    )
    return replace(cluster, nodes=(freed,))


def _room_for_more(plan: Plan, cluster: Cluster) -> Collection[Seat]:
    """As many of the empty seats as there is room for, the lowest first."""
    empty = [seat for seat in plan.placement.seats if not seat.node]
    (group,) = plan.world.groups
    for number in range(len(empty), 0, -1):
        found = room_now(World(groups=(replace(group, workers=number, least=None),)), cluster)
        if found is not None:
            return [replace(seat, worker=old.worker) for seat, old in zip(found.seats, empty, strict=False)]
    return []


class Seats:
    """The seats of one run, as its plan has them."""

    def __init__(self, folder: RunDir) -> None:
        self._folder = folder
        self._runs = RunStore(folder.path.parent.parent)
        record = store.read_record(folder)
        assert record.plan is not None
        self._job, self._plan = record.job, record.plan
        self._leaving: set[int] = set()  # those that are being given back
        self._next_question = 0.0  # when to ask for free GPUs again, if nothing else makes it necessary

    @property
    def filled(self) -> dict[int, tuple[str, ...]]:
        """The seats that have a place and are not being given back, with their GPUs."""
        seats = (
            seat for seat in self._plan.placement.seats if seat.node and seat.worker not in self._leaving
        )
        return {seat.worker: seat.gpus for seat in seats}

    def look(self, there: Collection[int]) -> Change:
        """Decide, and take what is free. `there` are the workers that have an agent: a seat that is given
        back is empty when it has none.
        """
        gpus = asks_for_gpus(self._job)
        left = self._leaving - set(there)
        empty = any(not seat.node for seat in self._plan.placement.seats)
        waiting = capacity.waiting_for_gpus(self._runs) if gpus else []
        pressing = left or any(each.priority > self._job.priority for each in waiting)
        if not pressing and (not empty or time.monotonic() < self._next_question):
            return Change()
        self._next_question = time.monotonic() + (ASK_FOR_GPUS if gpus else 0.0)
        with store.translated(self._folder.path), self._runs.devices_locked():
            if left:
                self._leaving -= left
                self._write([Seat(worker=worker, node="") for worker in left])
            cluster = capacity.read_cluster(self._runs, gpus=gpus)
            change = decide(self._plan, self._job, cluster, waiting, self._leaving)
            self._leaving.update(change.leave)
            self._write(change.come)
            return change

    def _write(self, seats: Collection[Seat]) -> None:
        if seats:
            changed = {seat.worker: seat for seat in seats}
            whole = tuple(changed.get(seat.worker, seat) for seat in self._plan.placement.seats)
            self._plan = replace(self._plan, placement=replace(self._plan.placement, seats=whole))
            store.write_plan(self._folder, self._plan)
