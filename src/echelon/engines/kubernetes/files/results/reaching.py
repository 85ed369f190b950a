"""The ways to a run's results: to the agents in its pods, and to the volume that has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from echelon.engines.base import current_user
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.files.transfer import Opener, pod_opener
from echelon.engines.kubernetes.render import dialects
from echelon.engines.kubernetes.render.image import image_of
from echelon.errors import Unavailable
from echelon.model.run import Record

if TYPE_CHECKING:
    from echelon.model.engine.volume import Volume


def reach_pods(api: Api, record: Record, keeper: str | None = None) -> Callable[[str], Opener]:
    """How the agents in a run's pods, given by their names, are reached; the keeper is a pod of a Job."""
    container = dialects.named(record.job.pod.job_kind).CONTAINER

    def reach(pod: str) -> Opener:
        own = names.CONTAINER if pod == keeper else container
        return pod_opener(api, pod, container=own, python=record.job.python)

    return reach


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
