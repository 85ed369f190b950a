"""The abilities of a cluster: volumes and files on them, a check-up, usage. `shell.py` has the fourth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from echelon.engines.abilities import CopyWatch
from echelon.engines.base import current_user
from echelon.engines.kubernetes.client.api import Api
from echelon.errors import Denied
from echelon.model.copy import Copied, OpenCopy
from echelon.model.finding import Finding
from echelon.model.pod import PodOptions
from echelon.model.traits import Traits
from echelon.model.usage import ClusterUsage
from echelon.model.volume import Volume

TRAITS = Traits(
    place="the cluster",
    remote=True,
    code_limit=5 * 2**20,  # what ConfigMaps carry through the API server
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

    def remove(self, name: str) -> None:
        """Remove a claim that no pod and no run uses at this moment."""
        from echelon.engines.kubernetes.files.volumes import remove_volume

        remove_volume(self._connect(), self.read(name))

    def send(self, source: Path, volume: str, path: str, options: PodOptions, watch: CopyWatch) -> Copied:
        """Copy to a volume; the target is given as pvc:NAME/path."""
        from dataclasses import replace

        from echelon.engines.kubernetes.files.copy_pod import MOUNT, reach_volume
        from echelon.engines.kubernetes.files.transfer import send_tree

        api, owner = self._connect(), current_user()
        there = self.read(volume)
        with reach_volume(api, there, options, owner=owner, writes=True, notice=watch.notice) as opener:
            copied = send_tree(opener, source, f"{MOUNT}/{path}", into=True, progress=watch.update)
        return replace(copied, target=f"pvc:{volume}{copied.target.removeprefix(MOUNT)}")

    def fetch(self, volume: str, path: str, to: str, options: PodOptions, watch: CopyWatch) -> Copied:
        """Copy from a volume, which is mounted to be read only."""
        from echelon.engines.kubernetes.files.copy_pod import MOUNT, reach_volume
        from echelon.engines.kubernetes.files.transfer import fetch_tree

        api, owner = self._connect(), current_user()
        there = self.read(volume)
        with reach_volume(api, there, options, owner=owner, writes=False, notice=watch.notice) as opener:
            return fetch_tree(
                opener, MOUNT, to, path=path.rstrip("/") or ".", into=True, progress=watch.update
            )


class ClusterCheckup:
    """What a cluster offers to runs in one namespace."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect

    def check_up(self, *, python: str, image: str | None = None) -> Iterator[Finding]:  # noqa: ARG002 - its own
        """Look at one thing after another; an image is tried in a pod that is removed again."""
        from echelon.engines.kubernetes.doctor import check_up

        return check_up(lambda: Api(self._connect().access, patience=_CHECKUP_PATIENCE), image)


class ClusterMeter:
    """What pods have asked for, by node and by run."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect

    def measure(self) -> ClusterUsage:
        """Look at the cluster, as far as the user may."""
        from echelon.engines.kubernetes.nodes.usage import measure_usage

        return measure_usage(self._connect())


def read_platforms(api: Api) -> frozenset[str]:
    """The platforms of all nodes; raises Denied if they may not be listed."""
    try:
        nodes = api.list("Node").items
    except Denied as error:
        raise Denied(error.message, hint="say --platform instead, e.g. linux/amd64") from error
    about = [node.get("status", {}).get("nodeInfo", {}) for node in nodes]
    return frozenset(f"{each.get('operatingSystem', 'linux')}/{each['architecture']}" for each in about)
