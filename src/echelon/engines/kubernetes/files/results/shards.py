"""What each worker of a run that is over should have, where it is, and what of it is not here. Pure.

A shard is one worker's part of the results. Every worker states at its end what it holds (a manifest of each
folder); a shard is at home when a copy whose listing has that manifest is complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.follow.keeper import KeeperView
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.state import workers
from echelon.errors import ResultsIncomplete
from echelon.model.copy import Copied, LeftOut, Manifest
from echelon.model.event import Event
from echelon.model.plan import Plan
from echelon.model.resources import format_memory
from echelon.model.run import Record, RunRef
from echelon.model.world import members, worker_count
from echelon.values import frozen

_NAMED = 3  # files that are named of a worker
_TOLD = 5  # workers that are told of
_OF_THE_RECORD = ("recorded", "queued", "admitted", "waiting", "stopping", "finished")


@frozen
class Shard:
    """One worker's part of the results. `stated` is what it says it holds, by folder; None if that is not
    known. Without a `pod` to fetch it from, `why` is the reason, and `lost` whether that is for good. `kept`
    if the pod is the run's keeper; `left_out` is what the worker could not give to it. With
    `only_checkpoints` the keeper has no more than these, and `why` and `lost` are of the rest.
    """

    worker: int
    stated: Mapping[str, Manifest] | None = None
    pod: str | None = None
    kept: bool = False
    only_checkpoints: bool = False
    left_out: tuple[LeftOut, ...] = ()
    why: str = ""
    lost: bool = False


@frozen
class Missing:
    """What of one worker, or of a volume, is not here, and why; `files` and `size` are None where nothing
    says how much.
    """

    worker: int | None
    why: str
    files: int | None = None
    size: int | None = None
    names: tuple[str, ...] = ()
    lost: bool = False  # for good: there is nothing left to fetch it from
    but_checkpoints: bool = False  # all of its files, but these


def find_shards(
    plan: Plan | None, events: Iterable[Event], pods: Sequence[Pod], keeper: KeeperView | None = None
) -> list[Shard]:
    """The shards of a run that is over: one for each worker, if its ranks ever ran. They start together, so
    that one which ran stands for all.

    What the keeper has is taken from it, though the worker may still be there: it leaves at any moment."""
    stated: dict[int, dict[str, Manifest]] = {}
    lost: dict[int, str] = {}
    given: set[int] = set()
    ran = has_log = False
    for event in events:
        has_log = has_log or event.kind not in _OF_THE_RECORD
        if event.kind == "worker-kept" and event.worker is not None:
            given.add(event.worker)
            continue
        for each in event.manifests or ():
            if each.worker is not None:
                stated.setdefault(each.worker, {})[each.root] = each
        ran = ran or (event.kind == "finished" and event.outcome == "succeeded")
        if event.kind == "worker-running":
            ran = True
            lost.pop(event.worker or 0, None)
        elif event.kind == "worker-lost":
            lost[event.worker or 0] = event.reason or "it was lost"
    ran = ran or bool(given) or bool(keeper is not None and keeper.kept)
    if plan is None or not (ran or stated or (not has_log and any(map(workers.has_started, pods)))):
        return []
    by_worker = workers.pods_by_worker(pods)
    found = [
        _shard(worker, stated.get(worker), lost.get(worker), by_worker.get(worker, ()))
        for worker in range(worker_count(plan.world))
    ]
    return [_with_keeper(shard, keeper, shard.worker in given) for shard in found] if keeper else found


def shards_now(plan: Plan | None, pods: Sequence[Pod]) -> list[Shard]:
    """The shards of a run that goes on: what each worker has made so far, in its pod."""
    by_worker = workers.pods_by_worker(pods)
    everyone = range(worker_count(plan.world)) if plan is not None else sorted(by_worker)
    found = []
    for worker in everyone:
        newest = next(reversed(by_worker.get(worker, ())), None)
        running = newest is not None and workers.is_running(newest)
        name = newest.metadata.name if newest is not None and running else None
        found.append(Shard(worker=worker, pod=name, why="" if running else "no pod of it runs now"))
    return found


def _with_keeper(shard: Shard, keeper: KeeperView, given: bool) -> Shard:
    mine = keeper.kept.get(shard.worker)
    if mine is not None and keeper.pod is not None and mine.only_checkpoints:
        if shard.pod is not None:
            return shard  # which may still give all of it
        return replace(shard, stated=mine.manifests, pod=keeper.pod, kept=True, only_checkpoints=True)
    if mine is not None and keeper.pod is not None:
        return Shard(
            worker=shard.worker,
            stated=mine.manifests,
            pod=keeper.pod,
            kept=True,
            left_out=mine.left_out,
        )
    if not given or shard.pod is not None:
        return shard
    if keeper.pod is not None:  # of another keeper, which was lost
        return replace(shard, why="the keeper that had it is gone", lost=True)
    return replace(shard, why=f"it is with the keeper, and {keeper.why}", lost=keeper.lost)


def _shard(
    worker: int, stated: Mapping[str, Manifest] | None, lost: str | None, pods: Sequence[Pod]
) -> Shard:
    if lost is not None and stated is None:
        return Shard(worker=worker, why=f"it was lost: {lost}", lost=True)
    if not pods:
        return Shard(worker=worker, stated=stated, why="its pod is gone", lost=True)
    newest = pods[-1]
    if workers.is_cut_off(newest):
        # A pod that was deleted is ended as soon as its node responds again.
        deleted = newest.metadata.leaves
        return Shard(worker=worker, stated=stated, why="its node does not respond", lost=deleted)
    if workers.is_running(newest):
        return Shard(worker=worker, stated=stated, pod=newest.metadata.name)
    if newest.metadata.leaves:
        return Shard(worker=worker, stated=stated, why="its pod was deleted", lost=True)
    if workers.has_ended(newest):
        loss = workers.last_loss(pods)
        return Shard(worker=worker, stated=stated, why=loss.how if loss else "its pod has ended", lost=True)
    return Shard(worker=worker, stated=stated, why="its pod was replaced", lost=True)


def whole(shard: Shard, why: str, *, lost: bool = False) -> Missing:
    """All of a shard as missing."""
    known = list(shard.stated.values()) if shard.stated is not None else None
    return Missing(
        worker=shard.worker,
        why=why,
        files=None if known is None else sum(each.files for each in known),
        size=None if known is None else sum(each.size for each in known),
        lost=lost,
    )


def check_copy(worker: int | None, stated: Manifest | None, copied: Copied) -> Missing | None:
    """What is missing after a copy that went through; None if it has all that the worker stated.

    Files that were written after the worker's part was over (a process that it left behind) are no loss."""
    if copied.failed:
        first = copied.failed[0]
        names = tuple(each.path for each in copied.failed)
        return Missing(worker=worker, why=f"{first.path}: {first.why}", files=len(names), names=names)
    now = copied.manifest
    if stated is None or now is None or now.digest == stated.digest:
        return None
    if now.files >= stated.files and now.size >= stated.size:
        return None
    return Missing(
        worker=worker,
        why=f"at its end it had {_amount(stated.files, stated.size)}; now {_amount(now.files, now.size)}",
        files=max(0, stated.files - now.files),
        size=max(0, stated.size - now.size),
        lost=True,
    )


def describe(missing: Missing) -> str:
    """Missing files of one worker, or of a volume, as a person reads it."""
    of = "" if missing.worker is None else f"worker {missing.worker}: "
    what = "its files"
    if missing.files:
        what = f"{_amount(missing.files, missing.size)},"
    elif missing.files == 0:
        what = "the last links and folders"
    elif missing.but_checkpoints:
        what = "its files, but for the safe checkpoints,"
    if missing.names:
        more = ", ..." if len(missing.names) > _NAMED else ""
        what += f" ({', '.join(missing.names[:_NAMED])}{more})"
    return f"{of}{what} not fetched: {missing.why}"


_NO_RIGHT = "you may not create pods/exec"


def without_right(missing: Sequence[Missing], record: Record) -> tuple[Missing, ...]:
    """What is missing for a user who may not execute in pods, by which files leave them. Its workers did not
    wait for it, unless they were told to, so that what they had is lost. Logs are none of it: those are read
    without that right.
    """
    pod = record.job.pod
    gone = pod.linger == 0 and pod.keeper is None
    logs = _logs_of(record.plan) if pod.output is None and record.plan is not None else {}
    return tuple(
        replace(each, why=f"{_NO_RIGHT}, and {each.why}" if each.lost else _NO_RIGHT, lost=each.lost or gone)
        for each in missing
        if each.files is None or each.worker is None or each.files > logs.get(each.worker, 0)
    )


def on_volume(record: Record) -> Missing:
    """All that is on the volume that was made for a run, for a user who may not execute in pods."""
    claim = names.claim_name(record.ref.name)
    return Missing(worker=None, why=f"they are on the volume claim {claim}, and {_NO_RIGHT}")


def _logs_of(plan: Plan) -> dict[int, int]:
    """How many logs each worker has among its results at least: one of each process that it starts."""
    return {
        each.worker: each.procs if plan.launches[each.group].per == "rank" else 1
        for each in members(plan.world)
        if plan.launches[each.group].per != "leader" or each.worker == 0
    }


def left_out_of(copied: Copied) -> tuple[LeftOut, ...]:
    """What cannot be copied at all; files that were listed and did not come are missing instead."""
    failed = {each.path for each in copied.failed}
    return tuple(each for each in copied.left_out if each.path not in failed)


def incomplete(run: str, missing: Sequence[str], *, hint: str) -> ResultsIncomplete:
    """The error for results of which a part is missing."""
    told = list(missing[:_TOLD])
    if len(missing) > _TOLD:
        told.append(f"and {len(missing) - _TOLD} more workers")
    return ResultsIncomplete(f"the results of run {run!r} are not all here: {'; '.join(told)}", hint=hint)


def check_complete(ref: RunRef, missing: Sequence[str]) -> None:
    """Raise what is missing of results that were fetched as far as they could be."""
    if missing:
        hint = "it is lost for good; --output keeps results on a volume, --keep for longer"
        raise incomplete(ref.name, missing, hint=hint)


def check_came(ref: RunRef, copied: Copied) -> None:
    """Raise what was listed on a volume, and did not come: the volume has it, and nothing is given up."""
    if (lacks := check_copy(None, None, copied)) is not None:
        raise incomplete(ref.name, [describe(lacks)], hint="the volume keeps them; the same command goes on")


def _amount(files: int, size: int | None) -> str:
    text = f"{files} file{'s' * (files != 1)}"
    return text if size is None else f"{text}, {format_memory(size)}"
