"""A run's results copied to any folder, on any machine (`get --to`): from this machine, from the workers or
from a volume, whether the run is over or not. It changes nothing of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote

from echelon.engines.kubernetes import control, names
from echelon.engines.kubernetes.client.api import Api, NotThere
from echelon.engines.kubernetes.files.results.gather import gather, root_of
from echelon.engines.kubernetes.files.results.home import elsewhere, local_folder
from echelon.engines.kubernetes.files.results.reaching import reach_output, reach_pods, see_all
from echelon.engines.kubernetes.files.results.shards import (
    Shard,
    check_came,
    check_complete,
    check_copy,
    describe,
    incomplete,
    left_out_of,
    shards_now,
)
from echelon.engines.kubernetes.files.transfer import Opener, fetch_tree
from echelon.engines.kubernetes.follow.keeper import find_keeper
from echelon.engines.kubernetes.follow.view import jobs_of, pods_of, read_record
from echelon.engines.kubernetes.record import Collected, Stored
from echelon.engines.kubernetes.render.task import kept_folders
from echelon.engines.kubernetes.state import workers
from echelon.engines.machine import Submissions
from echelon.engines.results import check_inside, copy_result, holds_results
from echelon.errors import InvalidJob
from echelon.model.copy import Copied, LeftOut
from echelon.model.run import Record, RunRef


def fetch_results(
    api: Api,
    submissions: Submissions,
    ref: RunRef,
    path: str,
    to: Path,
    notice: Callable[[LeftOut], object] = lambda _: None,
    tell: Callable[[str], object] = lambda _: None,
) -> Path:
    """Copy a file or folder of the results to the folder `to`: from this machine if they were collected to
    it, else from where they are. `notice` gets what cannot be copied, `tell` what is waited for.
    """
    stored = read_record(api, ref)
    record = stored.run
    folder, output = local_folder(stored, submissions), record.job.pod.output
    check_inside(folder, path)
    collected, own = stored.collected, submissions.fetched(stored.uid, record.created)
    stays = output is not None and output.claim is not None
    if own is not None and not stays and (own.path == str(folder) or holds_results(folder)):
        found = copy_result(folder, path, to, notice=notice)
        check_complete(ref, own.missing)
        return found
    target = to if path in (".", "") else to / Path(path).name
    pods = pods_of(api, stored)
    if output is not None:
        leader = [pod for pod in workers.leader_pods(pods) if workers.is_running(pod)]
        if leader and stored.end is None:
            opener = reach_pods(api, record)(leader[-1].metadata.name)
            return _came(ref, fetch_tree(opener, names.RESULTS_VOLUME, target, path=path), notice)
        if jobs_of(api, stored):
            with reach_output(api, record, tell) as (opener, root):
                copied = fetch_tree(opener, root, target, path=path)
            return _came(ref, copied, notice)
    elif any(map(workers.is_running, pods)) or _may_be_kept(api, stored):
        return _fetch_from_workers(api, ref, path, target, notice)
    raise _nowhere(record, path, collected)


def _came(ref: RunRef, copied: Copied, notice: Callable[[LeftOut], object]) -> Path:
    """Where a copy from a volume is, all of it."""
    for each in left_out_of(copied):
        notice(each)
    check_came(ref, copied)
    return Path(copied.target)


def _may_be_kept(api: Api, stored: Stored) -> bool:
    """Whether a run's keeper may have results: it has, or the record does not say that they were fetched."""
    if stored.run.job.pod.keeper is None:
        return False
    if stored.collected is None:
        return True
    keeper = find_keeper(api, stored)
    return keeper is not None and keeper.pod is not None


def _fetch_from_workers(
    api: Api, ref: RunRef, path: str, target: Path, notice: Callable[[LeftOut], object]
) -> Path:
    """Copy from the workers, or their keeper, whether the run is over or not; of one that goes on, what is
    there now.
    """
    seen = see_all(api, ref)
    view, record = seen.view, seen.view.stored.run
    shards = seen.shards()
    if not any(event.kind == "finished" for event in seen.events):
        shards = shards_now(record.plan, view.pods)
    keeper = seen.keeper.pod if seen.keeper is not None else None
    reach = reach_pods(api, record, keeper)
    with control.at_work(api, record, view.pods, keeper):
        if path in (".", ""):
            gathered = gather(shards, kept_folders(record), target, reach)
            for each in gathered.left_out:
                notice(each)
            if gathered.missing:
                hint = "the workers that are there keep what they have; the same command goes on"
                raise incomplete(ref.name, tuple(map(describe, gathered.missing)), hint=hint)
            return target
        return _fetch_part(shards, reach, path, target, ref, notice)


def _fetch_part(
    shards: Sequence[Shard],
    reach: Callable[[str], Opener],
    path: str,
    target: Path,
    ref: RunRef,
    notice: Callable[[LeftOut], object],
) -> Path:
    """Copy one file or folder, named as it would be at home: `worker-1/x` is worker 1's, `logs/` is of all,
    anything else worker 0's.
    """
    of_worker = {f"worker-{shard.worker}": shard for shard in shards if shard.worker}
    first, _, rest = path.partition("/")
    chosen = [shard for shard in shards if shard.worker == 0]
    if first in of_worker:
        chosen, path = [of_worker[first]], rest or "."
    elif first == "logs":
        chosen = list(shards)
    found, told, gone = None, [], []
    for shard in chosen:
        if shard.pod is None:
            gone.append(f"worker {shard.worker}: {path} not fetched: {shard.why}")
            continue
        try:
            copied = fetch_tree(reach(shard.pod), root_of(shard, names.OUTPUT), target, path=path)
        except InvalidJob:
            continue
        except NotThere:
            gone.append(f"worker {shard.worker}: {path} not fetched: its pod is gone")
            continue
        found = Path(copied.target)
        for each in left_out_of(copied):
            notice(each)
        if (lacks := check_copy(shard.worker, None, copied)) is not None:
            told.append(describe(lacks))
    if found is None or path.rstrip("/") == "logs":  # else one worker has it, and it is here
        told += gone
    if told:
        raise incomplete(ref.name, told, hint="what the other workers have of it is copied")
    if found is None:
        raise InvalidJob("path", path, "is not among the results", hint="check its spelling")
    return found


def _nowhere(record: Record, path: str, collected: Collected | None) -> InvalidJob:
    if collected is not None and collected.path:
        hint = elsewhere(collected)
    elif record.job.pod.output is not None:
        claim = record.job.pod.output.claim or names.claim_name(record.ref.name)
        there = f"{claim}/{record.job.pod.output.path}".rstrip("/")
        hint = f"they are on a volume: echelon cp {quote(f'pvc:{there}/{path}')} ."
    else:
        kept = f"{record.job.pod.linger:g} s"
        hint = f"workers keep them for {kept} after the end (--keep), and then they are gone"
    return InvalidJob("path", path, "is not among the results any more", hint=hint)
