"""Code that is too large for ConfigMaps: its archive on a volume, under its digest, where every worker finds
it, one that replaces another too. The same code again is not sent again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from echelon.engines.base import current_user
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.files.archive_file import archive_file
from echelon.engines.kubernetes.files.copy_pod import MOUNT, reach_volume
from echelon.engines.kubernetes.files.transfer import send_tree
from echelon.engines.kubernetes.files.volumes import read_volume
from echelon.engines.kubernetes.render.image import image_of

if TYPE_CHECKING:
    from echelon.bundle import Bundle
    from echelon.engines.kubernetes.client.api import Api
    from echelon.model.job import Job


def store_code(api: Api, job: Job, bundle: Bundle) -> None:
    """Put the code of a job on the volume that it names, unless it is there."""
    volume = job.pod.code_volume
    assert volume is not None
    target = "/".join(filter(None, (MOUNT, volume.path, names.stored_code(bundle.digest))))
    options = replace(job.pod, image=image_of(job))
    with archive_file(bundle.data) as file:
        there = read_volume(api, volume.claim)
        with reach_volume(api, there, options, owner=current_user(), writes=True) as opener:
            send_tree(opener, file, target)
