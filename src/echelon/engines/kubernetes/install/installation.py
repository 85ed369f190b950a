"""Makes the manager's objects in a cluster, and removes them; both may be repeated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.client.api import AlreadyThere, Api
from echelon.engines.kubernetes.install.manifests import render

# An administrator edits the rules, and the manager writes the Lease: a second installation leaves both.
_MADE_ONCE = ("ConfigMap", "Lease")


class ClusterInstallation:
    """The manager of a cluster."""

    def __init__(self, connect: Callable[[], Api]) -> None:
        self._connect = connect

    def manifests(self, image: str) -> Sequence[Mapping[str, object]]:
        """The objects that `make` would make."""
        return render(image)

    def make(self, image: str) -> None:
        """Make every object, or change it to what it should be."""
        api = self._connect()
        for obj in render(image):
            kind, about = obj["kind"], obj["metadata"]
            if kind in _MADE_ONCE:
                with suppress(AlreadyThere):
                    api.create(obj)
            else:
                api.patch(kind, about["name"], obj, how="apply", namespace=about.get("namespace"))

    def remove(self) -> None:
        """Delete every object; the namespace too, if it was made for the manager."""
        api = self._connect()
        for obj in reversed(render("")):
            kind, about = obj["kind"], obj["metadata"]
            if kind == "Namespace":
                there = api.find(kind, about["name"])
                marks = ((there or {}).get("metadata") or {}).get("labels") or {}
                if marks.get(names.MANAGED_BY) != "echelon":
                    continue
            api.delete(kind, about["name"], namespace=about.get("namespace"))
