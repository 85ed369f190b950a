"""What unfinished runs hold of this machine, and what is left of it for others.

A run holds what its plan names for as long as it has a supervisor, and nothing else decides it."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterable, Iterator

from echelon.engines.base import RunDamaged
from echelon.engines.local import devices
from echelon.engines.local.folder import store
from echelon.engines.local.folder.store import RunStore
from echelon.engines.local.supervision import is_alive, settle
from echelon.model.engine.cluster import Cluster, Node
from echelon.model.job import Job, asks_for_gpus
from echelon.model.run import Record
from echelon.model.world import members
from echelon.values import frozen


@frozen
class _Living:
    """A run that goes on, and its GPUs; without a record if that is damaged."""

    name: str
    record: Record | None = None
    gpus: tuple[str, ...]


def read_cluster(runs: RunStore | None, *, gpus: bool) -> Cluster:
    """This machine as one node; without `gpus` nvidia-smi is not called, without `runs` none is looked at."""
    living = list(_unfinished(runs)) if runs is not None else []
    cpus = float(devices.count_cpus())
    memory = float(devices.total_memory())
    free_cpus, free_memory = cpus, memory
    for each in living:
        record = each.record
        if record is None or record.plan is None:
            continue
        world, seats = record.plan.world, record.plan.placement.seats
        for member, seat in zip(members(world), seats, strict=True):
            need = world.groups[member.group].resources
            if seat.node and (need.cpus or need.memory):
                free_cpus -= need.cpus.request if need.cpus else 0
                free_memory -= need.memory.request if need.memory else 0
    found = devices.to_gpus(devices.read_gpus(), _gpus_of(living)) if gpus else ()
    node = Node(
        name=platform.node() or "localhost",
        cpus=cpus,
        memory=memory,
        free_cpus=max(0.0, free_cpus),
        free_memory=max(0.0, free_memory),
        gpus=found,
    )
    return Cluster(nodes=(node,), waiting=tuple(job.name for job in _queue(living)))


def waiting_for_gpus(runs: RunStore) -> list[Job]:
    """The jobs of queued runs that want GPUs, the first to start first."""
    return _queue(_unfinished(runs))


def _queue(living: Iterable[_Living]) -> list[Job]:
    queued = (each.record for each in living if each.record is not None and each.record.plan is None)
    waiting = (record for record in queued if asks_for_gpus(record.job))
    return [each.job for each in sorted(waiting, key=lambda each: (-each.job.priority, each.created))]


def gpus_held(runs: RunStore, but: str | None = None) -> dict[str, str]:
    """Which run holds which GPU; `but` names one that does not count."""
    return _gpus_of(_unfinished(runs, but))


def settled_gpus(runs: RunStore, but: str) -> dict[str, str]:
    """Which run holds which GPU, once nothing uses those of runs that were lost."""
    for name in runs.names():
        folder = runs.dir(name)
        if name != but and not folder.final.exists():
            with contextlib.suppress(RunDamaged):
                settle(folder)
    return gpus_held(runs, but)


def _unfinished(runs: RunStore, but: str | None = None) -> Iterator[_Living]:
    """Runs that have a supervisor: they hold what their plan names, or are queued."""
    for name in runs.names():
        folder = runs.dir(name)
        if name == but or folder.final.exists() or not is_alive(folder):
            continue
        try:
            record = store.read_record(folder)
        except RunDamaged:
            yield _Living(name=name, gpus=store.gpus_of_task(folder))
        else:
            seats = record.plan.placement.seats if record.plan is not None else ()
            yield _Living(name=name, record=record, gpus=tuple(gpu for seat in seats for gpu in seat.gpus))


def _gpus_of(runs: Iterable[_Living]) -> dict[str, str]:
    return {gpu: run.name for run in runs for gpu in run.gpus}
