"""What a call is about: the path of the API that serves it, and the deed that messages name when it fails.

Names come from users and from objects; one that would lead to another path is refused here, before anything
is sent. Called by `api`."""

from __future__ import annotations

from collections.abc import Callable

from echelon.engines.kubernetes.client.kinds import Catalogue, Kind, object_path
from echelon.engines.kubernetes.client.refusals import Deed, Object
from echelon.errors import Refused

ALL = "*"  # as a namespace: all of them


class Targets:
    """The objects of one cluster. They are in `namespace` unless a call says otherwise; `ask` gets what is at
    a path.
    """

    def __init__(self, namespace: str, ask: Callable[[str], Object]) -> None:
        self._namespace = namespace
        self._ask = ask
        self._kinds = Catalogue()

    def one(
        self, verb: str, kind: str, name: str, namespace: str | None, subresource: str = ""
    ) -> tuple[str, Deed]:
        """One object that is there, or a part of it."""
        # An empty name would be all objects, and dots would climb: deleting must never come to that.
        if name in ("", ".", "..") or "/" in name:
            raise Refused(f"{name!r} is no name of a {kind}", hint="name one object")
        what = self.kind(kind)
        place = self.place(what, namespace)
        deed = Deed(verb=verb, kind=what, namespace=place, name=name, subresource=subresource)
        return object_path(what, place, name, subresource), deed

    def every(self, verb: str, kind: str, namespace: str | None) -> tuple[str, Deed]:
        """All objects of a kind."""
        what = self.kind(kind)
        place = self.place(what, namespace)
        return object_path(what, place), Deed(verb=verb, kind=what, namespace=place)

    def new(self, obj: Object) -> tuple[str, Deed]:
        """An object that is to be made."""
        about = obj.get("metadata") or {}
        what = self.kind(str(obj["kind"]), str(obj["apiVersion"]))
        place = self.place(what, about.get("namespace"))
        deed = Deed(verb="create", kind=what, namespace=place, name=str(about.get("name", "")))
        return object_path(what, place), deed

    def kind(self, name: str, api_version: str = "") -> Kind:
        """Where objects of that kind are served; NotThere if they are not."""
        return self._kinds.find(name, api_version, self._ask)

    def place(self, kind: Kind, namespace: str | None) -> str:
        """The namespace that is meant; nothing for all of them, and for what is in none."""
        if not kind.namespaced or namespace == ALL:
            return ""
        place = namespace or self._namespace
        if place in (".", "..") or "/" in place:
            raise Refused(f"{place!r} is no namespace", hint="--namespace names one")
        return place
