"""The API path of a call, and the `Request` that messages name when it fails.

Names come from users and from objects; one that would lead to another path is refused here, before anything
is sent."""

from __future__ import annotations

from collections.abc import Callable

from echelon.engines.kubernetes.client.http.refusals import Object, Request
from echelon.engines.kubernetes.client.kinds import Catalogue, Kind, object_path
from echelon.errors import Refused

ALL = "*"  # as a namespace: all of them


class Targets:
    """The paths of one cluster's objects. `namespace` is the default; `ask` reads a path."""

    def __init__(self, namespace: str, ask: Callable[[str], Object]) -> None:
        self._namespace = namespace
        self._ask = ask
        self._kinds = Catalogue()

    def one(
        self, verb: str, kind: str, name: str, namespace: str | None = None, subresource: str = ""
    ) -> tuple[str, Request]:
        """An existing object, or a subresource of it."""
        # An empty name would address all objects, and dots another path: a deletion must never do that.
        if name in ("", ".", "..") or "/" in name:
            raise Refused(f"{name!r} is not a name of a {kind}", hint="name one object")
        what = self.kind(kind)
        place = self.place(what, namespace)
        request = Request(verb=verb, kind=what, namespace=place, name=name, subresource=subresource)
        return object_path(what, place, name, subresource), request

    def every(self, verb: str, kind: str, namespace: str | None = None) -> tuple[str, Request]:
        """All objects of a kind."""
        what = self.kind(kind)
        place = self.place(what, namespace)
        return object_path(what, place), Request(verb=verb, kind=what, namespace=place)

    def new(self, obj: Object) -> tuple[str, Request]:
        """An object that is to be created."""
        about = obj.get("metadata") or {}
        what = self.kind(str(obj["kind"]), str(obj["apiVersion"]))
        place = self.place(what, about.get("namespace"))
        request = Request(verb="create", kind=what, namespace=place, name=str(about.get("name", "")))
        return object_path(what, place), request

    def kind(self, name: str, api_version: str = "") -> Kind:
        """Where objects of that kind are served; raises NotThere if they are not."""
        return self._kinds.find(name, api_version, self._ask)

    def place(self, kind: Kind, namespace: str | None) -> str:
        """The namespace of a call; "" for all namespaces, and for cluster-wide kinds."""
        if not kind.namespaced or namespace == ALL:
            return ""
        place = namespace or self._namespace
        if place in (".", "..") or "/" in place:
            raise Refused(f"{place!r} is not a namespace", hint="--namespace names one")
        return place
