"""The API server as the engine sees it: objects in, objects out.

Every other file of the engine talks to the cluster through this one, and meets its failures as errors of ours
(`Unreachable`, `Denied`, `Refused` and the four below). How requests are made, proved and repeated is
`session`'s affair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

import msgspec

from echelon.engines.kubernetes.access import Access
from echelon.engines.kubernetes.execute import Exec, begin_exec
from echelon.engines.kubernetes.kinds import KINDS, Catalogue, Kind, NotThere, object_path
from echelon.engines.kubernetes.refusals import (
    AlreadyThere,
    Conflict,
    Deed,
    Gone,
    Object,
    from_status,
    name_server,
)
from echelon.engines.kubernetes.session import Pairs, Session
from echelon.engines.kubernetes.stream import Stream, read_events
from echelon.errors import EchelonError, Refused, Unreachable

__all__ = ["ALL", "AlreadyThere", "Api", "Conflict", "Exec", "Gone", "Listing", "NotThere", "Object"]

ALL = "*"  # as a namespace: all of them
PAGE = 500
# How long after its time a watch may still say that it is over.
GRACE = 5.0
PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """Objects, and the version from which a watch goes on."""

    items: list[Object]
    version: str


class Api:
    """One cluster as one user; several threads may use it at once.

    `namespace` is where objects are unless a call says otherwise. Requests that do no harm when they are
    carried out twice are repeated for `patience` seconds."""

    def __init__(self, access: Access, namespace: str | None = None, *, patience: float = 10.0) -> None:
        self.access = access
        self.namespace = namespace or access.namespace
        self._session = Session(access, patience)
        self._kinds = Catalogue()

    def get(self, kind: str, name: str, *, namespace: str | None = None) -> Object:
        """One object; NotThere if there is none."""
        path, deed = self._one("get", kind, name, namespace)
        return self._answer(self._session.call("GET", path, deed, again=True))

    def find(self, kind: str, name: str, *, namespace: str | None = None) -> Object | None:
        """One object, or nothing if it is not there."""
        try:
            return self.get(kind, name, namespace=namespace)
        except NotThere:
            return None

    def list(
        self, kind: str, *, selector: str = "", fields: str = "", namespace: str | None = None
    ) -> Listing:
        """All objects of a kind that fit, however many pages they fill."""
        path, deed = self._all("list", kind, namespace)
        chosen = _chosen(selector, fields)
        items: list[Object] = []
        mark = ""
        while True:
            params = [*chosen, ("limit", str(PAGE)), *([("continue", mark)] if mark else [])]
            try:
                page = self._answer(self._session.call("GET", path, deed, params=params, again=True))
            except Gone:
                if not mark:
                    raise
                # It took so long that the rest is from another time: once more, in one piece.
                items, mark = [], ""
                page = self._answer(self._session.call("GET", path, deed, params=chosen, again=True))
            about = page.get("metadata") or {}
            for item in page.get("items") or []:
                # The API server leaves out what it says once for all.
                item.setdefault("apiVersion", page.get("apiVersion"))
                item.setdefault("kind", str(page.get("kind", "")).removesuffix("List"))
                items.append(item)
            mark = about.get("continue") or ""
            if not mark:
                return Listing(items=items, version=about.get("resourceVersion", ""))

    def page(
        self,
        kind: str,
        *,
        selector: str = "",
        fields: str = "",
        namespace: str | None = None,
        limit: int,
        mark: str = "",
    ) -> bytes:
        """A page of a list as the server wrote it, for whoever wants but little of large objects; all of it
        with `limit` 0. `mark` is where the page before said that it goes on."""
        path, deed = self._all("list", kind, namespace)
        size, more = [("limit", str(limit))] * bool(limit), [("continue", mark)] * bool(mark)
        params = [*_chosen(selector, fields), *size, *more]
        return self._session.call("GET", path, deed, params=params, again=True)

    def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Make an object; AlreadyThere if its name is taken.

        Sent again only if it cannot have arrived. After an Unreachable it may or may not be there."""
        about = obj.get("metadata") or {}
        kind = self._kind(str(obj["kind"]), str(obj["apiVersion"]))
        place = self._place(kind, about.get("namespace"))
        deed = Deed(verb="create", kind=kind, namespace=place, name=str(about.get("name", "")))
        body = msgspec.json.encode(obj)
        params = [("dryRun", "All")] if dry_run else []
        answer = self._session.call(
            "POST", object_path(kind, place), deed, params=params, body=body, again=dry_run
        )
        return self._answer(answer)

    def patch(
        self,
        kind: str,
        name: str,
        change: object,
        *,
        how: Literal["merge", "json", "strategic", "apply"] = "merge",
        subresource: str = "",
        namespace: str | None = None,
    ) -> Object:
        """Change an object; Conflict if it is no longer what the change says it is."""
        path, deed = self._one("patch", kind, name, namespace, subresource)
        params = [("fieldManager", "echelon"), ("force", "true")] if how == "apply" else []
        answer = self._session.call(
            "PATCH",
            path,
            deed,
            params=params,
            body=msgspec.json.encode(change),
            content_type=PATCHES[how],
            again=how != "json",  # adding to a list twice is not the same as once
        )
        return self._answer(answer)

    def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str | None = None,
        grace: int | None = None,
        propagation: str = "Background",
        uid: str = "",
    ) -> None:
        """Remove an object; what is not there, or has another `uid`, is fine."""
        path, deed = self._one("delete", kind, name, namespace)
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self._session.call("DELETE", path, deed, body=msgspec.json.encode(options), again=True)
        except NotThere:
            return
        except Conflict:
            if not uid:
                raise

    def watch(
        self,
        kind: str,
        *,
        selector: str = "",
        fields: str = "",
        version: str,
        timeout: float,
        namespace: str | None = None,
    ) -> Stream[tuple[str, Object]]:
        """What happens to objects after `version`: ADDED, MODIFIED, DELETED, and BOOKMARK, whose object has
        nothing but a newer version.

        It ends after `timeout` seconds, raises Gone if the version is too old and Unreachable if the
        connection is lost; `close` ends it from any thread."""
        path, deed = self._all("watch", kind, namespace)
        params = [
            *_chosen(selector, fields),
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(max(1, math.ceil(timeout)))),
        ]

        def failure(status: Object) -> EchelonError:
            return from_status(status, deed, self.access)

        return self._session.stream(
            path,
            deed,
            lambda pieces: read_events(pieces, failure),
            params=params,
            read=timeout + GRACE,
            ends_in_silence=True,
        )

    def logs(
        self,
        pod: str,
        *,
        container: str,
        follow: bool = False,
        since: str = "",
        tail: int | None = None,
        namespace: str | None = None,
    ) -> Stream[bytes]:
        """What a container wrote, in pieces cut anywhere; `since` is a time as RFC 3339 writes it.

        Followed, it is silent for as long as the container is; `close` ends it from any thread."""
        path, deed = self._one("get", "Pod", pod, namespace, "log")
        params = [("container", container)]
        if follow:
            params.append(("follow", "true"))
        if since:
            params.append(("sinceTime", since))
        if tail is not None:
            params.append(("tailLines", str(tail)))
        read = None if follow else 30.0
        return self._session.stream(path, deed, iter, params=params, read=read)

    def exec(
        self,
        pod: str,
        command: Sequence[str],
        *,
        container: str,
        stdin: bool = False,
        tty: bool = False,
        namespace: str | None = None,
    ) -> Exec:
        """Start a command in a container; a context manager that ends the connection."""
        path, deed = self._one("get", "Pod", pod, namespace, "exec")
        return begin_exec(self._session, path, deed, command, container=container, stdin=stdin, tty=tty)

    def may(self, verb: str, kind: str, *, subresource: str = "", namespace: str | None = None) -> bool:
        """Whether the user has a right."""
        what = self._kind(kind)
        asked = {
            "verb": verb,
            "group": what.group,
            "version": what.version,
            "resource": what.plural,
            "subresource": subresource,
            "namespace": self._place(what, namespace),
        }
        review = KINDS["SelfSubjectAccessReview"]
        body = {"apiVersion": review.api_version, "kind": "SelfSubjectAccessReview"}
        answer = self._session.call(
            "POST",
            object_path(review, ""),
            Deed(verb="create", kind=review),
            body=msgspec.json.encode({**body, "spec": {"resourceAttributes": asked}}),
            again=True,  # it makes nothing
        )
        return bool((self._answer(answer).get("status") or {}).get("allowed"))

    def raw(self, path: str) -> Object:
        """Whatever the API server has at a path, e.g. `/version`."""
        return self._answer(self._session.call("GET", path, Deed(verb="get", path=path), again=True))

    def close(self) -> None:
        """End the connections that are kept for later; the next call makes new ones."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _one(
        self, verb: str, kind: str, name: str, namespace: str | None, subresource: str = ""
    ) -> tuple[str, Deed]:
        # An empty name would be all objects, and dots would climb: deleting must never come to that.
        if name in ("", ".", "..") or "/" in name:
            raise Refused(f"{name!r} is no name of a {kind}", hint="name one object")
        what = self._kind(kind)
        place = self._place(what, namespace)
        deed = Deed(verb=verb, kind=what, namespace=place, name=name, subresource=subresource)
        return object_path(what, place, name, subresource), deed

    def _all(self, verb: str, kind: str, namespace: str | None) -> tuple[str, Deed]:
        what = self._kind(kind)
        place = self._place(what, namespace)
        return object_path(what, place), Deed(verb=verb, kind=what, namespace=place)

    def _place(self, kind: Kind, namespace: str | None) -> str:
        if not kind.namespaced or namespace == ALL:
            return ""
        place = namespace or self.namespace
        if place in (".", "..") or "/" in place:
            raise Refused(f"{place!r} is no namespace", hint="--namespace names one")
        return place

    def _kind(self, name: str, api_version: str = "") -> Kind:
        return self._kinds.find(name, api_version, self.raw)

    def _answer(self, content: bytes) -> Object:
        try:
            answer = msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError):
            answer = None
        if not isinstance(answer, dict):
            raise Unreachable(
                f"{name_server(self.access)} does not answer as an API server does",
                hint="check the server's address in the kubeconfig; a login page may stand in between",
            )
        return answer


def _chosen(selector: str, fields: str) -> Pairs:
    named = (("labelSelector", selector), ("fieldSelector", fields))
    return [(name, value) for name, value in named if value]
