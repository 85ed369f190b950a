"""A run's keeper, as a client sees it: which pod it is, what it vouches for, what it was told of the run.

All of that is in its own log. It is looked for only where it matters, after a run's end. It only reads."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import field

import msgspec

from echelon.engines.decoding import convert
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.fields import json_object
from echelon.engines.kubernetes.follow.logs import read_pod
from echelon.engines.kubernetes.ownership.belonging import is_made_by, is_owned_by
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.record import Stored
from echelon.engines.kubernetes.state import workers
from echelon.errors import Refused, Unreachable
from echelon.model.copy import LeftOut, Manifest
from echelon.model.event import Event, is_sound
from echelon.model.output.log import EventLine
from echelon.values import frozen


@frozen
class Kept:
    """What the keeper has of one worker: manifests by the folder in the worker, and what cannot be copied;
    with `only_checkpoints`, what was safe of a worker that has given no results. `parts` are what it wrote to
    safe checkpoints, by their names (`Event.parts`).
    """

    manifests: Mapping[str, Manifest] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()
    only_checkpoints: bool = False
    parts: Mapping[str, tuple[str, str, int]] = field(default_factory=dict)


@frozen
class KeeperView:
    """The keeper now. Without a `pod` that can be asked, `why` is the reason, and `lost` whether that is for
    good. `told` are the lines with the run's events.
    """

    pod: str | None = None
    why: str = ""
    lost: bool = False
    kept: Mapping[int, Kept] = field(default_factory=dict)
    until: float | None = None
    told: Sequence[EventLine] = ()


def find_keeper(api: Api, stored: Stored) -> KeeperView | None:
    """The keeper of a run; None if it has none."""
    if stored.run.job.pod.keeper is None:
        return None
    job = find_job(api, stored)
    if job is None:
        return KeeperView(why="the keeper is gone", lost=True)
    mine = pods_of_job(api, stored, job)
    if not mine:
        return KeeperView(why="the keeper's pod is gone", lost=True)
    newest = max(mine, key=lambda pod: pod.metadata.creation_timestamp or "")
    if workers.is_cut_off(newest):
        return KeeperView(why="the keeper's node does not respond")
    if workers.has_ended(newest):
        loss = workers.last_loss([newest])
        over = "its time (--keep) is over" if workers.is_done(newest) else "it has ended"
        return KeeperView(why=f"the keeper is gone: {loss.how if loss is not None else over}", lost=True)
    if not workers.is_running(newest):
        deleted = newest.metadata.leaves or len(mine) > 1
        why = "the keeper's pod was deleted" if deleted else "the keeper has not started"
        return KeeperView(why=why, lost=True)
    return _read(api, newest)


def find_job(api: Api, stored: Stored) -> Object | None:
    """The Job of a run's keeper; another of that name, as of a run that is called so, is none."""
    job = api.find("Job", names.keeper_name(stored.run.ref.name))
    return job if job is not None and is_keeper(job, stored) else None


def pods_of_job(api: Api, stored: Stored, job: Object) -> list[Pod]:
    """The pods that the controller made of the keeper's Job; others may carry its labels."""
    found = api.list_shapes("Pod", Pod, selector=names.selector(stored.run.ref.name, names.KEEPER))
    return [pod for pod in found if is_made_by(pod.metadata, {job["metadata"]["uid"]})]


def is_keeper(job: Object, stored: Stored) -> bool:
    """Whether a Job is the run's keeper: one that belongs to the record. Pure."""
    return is_owned_by(job, stored.uid)


def _read(api: Api, pod: Pod) -> KeeperView:
    lines: list[EventLine] = []
    with contextlib.suppress(Unreachable, Refused):
        lines += [line for batch in read_pod(api, pod) for line in batch if isinstance(line, EventLine)]
    return replay(pod.metadata.name, lines)


def replay(pod: str, lines: Sequence[EventLine]) -> KeeperView:
    """What a keeper's log says. Pure."""
    kept: dict[int, Kept] = {}
    until: float | None = None
    told: list[EventLine] = []
    for line in lines:
        raw = json_object(line.payload.decode(errors="replace"))
        if raw.get("kind") == "state":
            told.append(line)
            continue
        with contextlib.suppress(msgspec.ValidationError, RecursionError):
            event = convert(raw, Event)
            if not is_sound(event):
                continue
            if event.kind == "keeping":
                until = event.until
            elif event.kind == "worker-kept" and event.worker is not None:
                kept[event.worker] = _kept(event)
    return KeeperView(pod=pod, kept=kept, until=until, told=tuple(told[-1:]))


def _kept(event: Event) -> Kept:
    return Kept(
        manifests={each.root: each for each in event.manifests or ()},
        left_out=tuple(LeftOut(path=path, why=why) for path, why in event.left_out or ()),
        only_checkpoints=event.only == "checkpoints",
        parts=event.parts or {},
    )


def keeping(keeper: KeeperView, at: float) -> list[Event]:
    """What a status shows of it: nothing while it has nothing. Pure."""
    if not keeper.kept:
        return []
    return [Event(kind="keeping", at=at, until=keeper.until, workers=tuple(sorted(keeper.kept)))]
