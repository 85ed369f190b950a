"""The ways to a run's results: to the agents in its pods, and to the volume that has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from echelon.engines.base import current_user
from echelon.engines.kubernetes import control, names
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.files.results.seen import Seen, may_be_saved, see
from echelon.engines.kubernetes.files.transfer import Opener, pod_opener
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.image import image_of
from echelon.errors import Denied, ResultsIncomplete, Unavailable
from echelon.model.run import Record, RunRef

if TYPE_CHECKING:
    from echelon.model.engine.volume import Volume


def reach_pods(api: Api, record: Record, keeper: str | None = None) -> Callable[[str], Opener]:
    """How the agents in a run's pods, given by their names, are reached; the keeper is a pod of a Job."""
    container = dialects.named(record.job.pod.job_kind).CONTAINER

    def reach(pod: str) -> Opener:
        own = names.CONTAINER if pod == keeper else container
        return pod_opener(api, pod, container=own, python=record.job.python)

    return reach


def see_all(api: Api, ref: RunRef) -> Seen:
    """A run that is over with all that can be fetched of it: the keeper is told that it is, since no leader
    may have told it, and vouches for checkpoints of workers that are lost. Raises ResultsIncomplete if it
    cannot be asked.
    """
    seen = see(api, ref)
    keeper = may_be_saved(seen)
    if keeper is None:
        return seen
    try:
        asked = control.tell_keeper(api, seen.view.stored.run, keeper)
    except Denied:
        return seen
    seen = see(api, ref)
    if not asked and may_be_saved(seen) == keeper:
        reason = f"the results of run {ref.name!r} are not all here: its keeper, which has checkpoints,"
        raise ResultsIncomplete(f"{reason} does not answer", hint=f"`echelon get {ref.name}` goes on")
    return seen


@contextmanager
def reach_output(
    api: Api, record: Record, tell: Callable[[str], object] = lambda _: None
) -> Iterator[tuple[Opener, str]]:
    """A way to the volume that has the results, through a small pod with the run's own image, and where on it
    they are. A claim without a volume was never mounted: nothing is on it.
    """
    from echelon.engines.kubernetes.files.copy_pod import MOUNT, reach_volume

    output = record.job.pod.output
    assert output is not None
    volume = volume_of(api, record)
    if volume.status != "Bound":
        raise Unavailable(
            f"volume claim {volume.name} is {volume.status}, not Bound: no results can be read from it",
            hint=f"`kubectl describe pvc {volume.name}` says what it waits for",
        )
    options = replace(record.job.pod, image=image_of(record.job))
    with reach_volume(api, volume, options, owner=current_user(), writes=False, notice=tell) as opener:
        yield opener, f"{MOUNT}/{output.path}".rstrip("/")


def volume_of(api: Api, record: Record) -> Volume:
    """The volume on which a run's results are."""
    from echelon.engines.kubernetes.files.volumes import read_volume

    output = record.job.pod.output
    assert output is not None
    return read_volume(api, output.claim or names.claim_name(record.ref.name))
