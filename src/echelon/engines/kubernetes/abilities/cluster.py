"""The abilities of a cluster: volumes and files on them, a check-up, usage. `shell.py` has the fourth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from echelon.engines.base import current_user
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.render.payload import MOST_CODE
from echelon.errors import Denied
from echelon.model.engine.traits import Traits
from echelon.model.run import RunRef

if TYPE_CHECKING:
    from echelon.engines.abilities import CopyWatch
    from echelon.model.copy import Copied, OpenCopy
    from echelon.model.engine.finding import Finding
    from echelon.model.engine.usage import ClusterUsage
    from echelon.model.engine.volume import Volume
    from echelon.model.pods.pod import PodOptions

TRAITS = Traits(
    place="the cluster",
    remote=True,
    code_limit=MOST_CODE,
    sent_limit=256 * 2**20,  # it goes through the API server, and from there to every worker through one
    keeps_queue=False,
    shared=True,
    previews_objects=True,
)
_CHECKUP_PATIENCE = 2.0  # seconds for a cluster that does not respond: a check-up reports that soon


class ClusterVolumes:
    """The volume claims of a namespace; files get there through a pod that mounts the volume."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect

    @property
    def place(self) -> str:
        """The namespace."""
        return f"namespace {self._connect().namespace}"

    def list_all(self) -> Sequence[Volume]:
        """Every claim, by name."""
        from echelon.engines.kubernetes.files.volumes import list_volumes

        return list_volumes(self._connect())

    def copies(self) -> Sequence[OpenCopy]:
        """The copies that go on."""
        from echelon.engines.kubernetes.files.copies import list_copies

        return list_copies(self._connect())

    def read(self, name: str) -> Volume:
        """One claim."""
        from echelon.engines.kubernetes.files.volumes import read_volume

        return read_volume(self._connect(), name)

    def shared_classes(self) -> Sequence[str]:
        """By what their provisioners are called, and by claims of this namespace."""
        from echelon.engines.kubernetes.files.volumes import list_shared_classes

        return list_shared_classes(self._connect())

    def create(
        self, name: str, *, size: int, mode: str, storage_class: str | None, labels: Mapping[str, str]
    ) -> Volume:
        """Make a claim, with the user's name on it."""
        from echelon.engines.kubernetes.files.volumes import create_volume

        return create_volume(
            self._connect(),
            name,
            size=size,
            mode=mode,
            storage_class=storage_class,
            marks=labels,
            owner=current_user(),
        )

    def remove(self, name: str, uid: str = "") -> None:
        """Remove a claim that no pod and no run uses at this moment."""
        from echelon.engines.kubernetes.files.volumes import remove_volume

        found = self.read(name)
        if uid in ("", found.uid):
            remove_volume(self._connect(), found)

    def send(
        self, source: Path, volume: str, path: str, options: PodOptions, watch: CopyWatch, *, content: bool
    ) -> Copied:
        """Copy to a volume; the target is given as pvc:NAME/path."""
        from dataclasses import replace

        from echelon.engines.kubernetes.files.copy_pod import MOUNT, reach_volume
        from echelon.engines.kubernetes.files.transfer import send_tree

        api, owner = self._connect(), current_user()
        there = self.read(volume)
        with reach_volume(api, there, options, owner=owner, writes=True, notice=watch.notice) as opener:
            target = f"{MOUNT}/{path}"
            copied = send_tree(opener, source, target, into=not content, progress=watch.update)
        return replace(copied, target=f"pvc:{volume}{copied.target.removeprefix(MOUNT)}")

    def fetch(
        self, volume: str, path: str, to: str, options: PodOptions, watch: CopyWatch, *, content: bool
    ) -> Copied:
        """Copy from a volume, which is mounted to be read only."""
        from echelon.engines.kubernetes.files.copy_pod import MOUNT, reach_volume
        from echelon.engines.kubernetes.files.transfer import fetch_tree

        api, owner = self._connect(), current_user()
        there = self.read(volume)
        with reach_volume(api, there, options, owner=owner, writes=False, notice=watch.notice) as opener:
            path = path.rstrip("/") or "."
            return fetch_tree(opener, MOUNT, to, path=path, into=not content, progress=watch.update)


class ClusterCheckup:
    """What a cluster offers to runs in one namespace."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect

    def check_up(
        self,
        *,
        python: str,  # noqa: ARG002 - the image has its own
        image: str | None = None,
        workers: int = 1,
    ) -> Iterator[Finding]:
        """Look at one thing after another; an image is tried in pods that are removed again."""
        from echelon.engines.kubernetes.doctor import check_up

        connect = self._connect
        return check_up(lambda: Api(connect().access, patience=_CHECKUP_PATIENCE), image, workers)

    def missing_rights(self) -> Sequence[Mapping[str, object]]:
        """Roles that grant what the user lacks."""
        from echelon.engines.kubernetes.doctor.checks import missing_rights

        return missing_rights(self._connect())


class ClusterMeter:
    """What pods have asked for, by node and by run."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect

    def measure(self) -> ClusterUsage:
        """Look at the cluster, as far as the user may."""
        from echelon.engines.kubernetes.follow.evidence import find_over
        from echelon.engines.kubernetes.follow.listing import damaged_runs
        from echelon.engines.kubernetes.nodes import inventory
        from echelon.engines.kubernetes.nodes.devices import look_for_devices
        from echelon.engines.kubernetes.nodes.holders import leaders, mark_idle
        from echelon.engines.kubernetes.nodes.usage import to_usage, with_damaged

        api = self._connect()
        seen = inventory.see(api)
        over = find_over(api, leaders(seen, api.namespace))
        found = mark_idle(to_usage(seen, api.namespace), over)
        found = replace(found, devices=look_for_devices(api))
        try:
            damaged = damaged_runs(api, lambda name: RunRef(engine="k8s", name=name))
        except Denied:
            return found
        return with_damaged(found, damaged)


def read_platforms(api: Api) -> frozenset[str]:
    """The platforms of all nodes; raises Denied if they may not be listed."""
    from echelon.engines.kubernetes import shapes

    try:
        nodes = api.list_shapes("Node", shapes.Node)
    except Denied as error:
        raise Denied(error.message, hint="say --platform instead, e.g. linux/amd64") from error
    about = [node.status.node_info for node in nodes]
    return frozenset(f"{each.operating_system}/{each.architecture}" for each in about if each.architecture)
