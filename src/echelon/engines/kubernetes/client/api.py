"""The API server as the engine sees it: objects in, objects out.

The rest of the engine reaches the cluster through this module only, and every failure is an error of ours
(`Unreachable`, `Denied`, `Refused` and their subclasses). `session` authenticates, sends and retries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import msgspec

from echelon.engines.kubernetes.client.answers import (
    Change,
    no_api_server,
    read_events,
    read_object,
    reader_of,
)
from echelon.engines.kubernetes.client.border import Damaged, admit, admit_all, decode
from echelon.engines.kubernetes.client.http.refusals import (
    AlreadyThere,
    Conflict,
    Gone,
    Invalid,
    Object,
    Request,
)
from echelon.engines.kubernetes.client.http.session import JSON, Pairs, Session
from echelon.engines.kubernetes.client.http.stream import Stream
from echelon.engines.kubernetes.client.kinds import KINDS, NotThere, object_path
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.client.pages import read_pages, read_shapes
from echelon.engines.kubernetes.client.targets import ALL, Targets
from echelon.errors import Denied, Refused
from echelon.values import frozen

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.execute import Exec
    from echelon.engines.kubernetes.client.forward import PortConnection

__all__ = [
    "ALL",
    "AlreadyThere",
    "Api",
    "Conflict",
    "Damaged",
    "Gone",
    "Invalid",
    "Listing",
    "NotThere",
    "Object",
]

T = TypeVar("T")
PAGE = 500
_LARGE_PAGE = 100  # of nodes and pods, which take many kilobytes each
# Seconds after its timeout within which a watch may still report its end.
GRACE = 5.0
_ONLY_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_MERGE = "application/merge-patch+json"


@frozen
class Listing(Generic[T]):
    """Objects, and the resource version from which a watch continues."""

    items: list[T]
    version: str


class Api:
    """One cluster as one user; safe to use from several threads.

    `namespace` is the default namespace of every call. Idempotent requests are retried for `patience`
    seconds."""

    def __init__(self, access: Access, namespace: str | None = None, *, patience: float = 10.0) -> None:
        self.access = access
        self.namespace = namespace or access.namespace
        self._session = Session(access, patience)
        self._targets = Targets(self.namespace, partial(_look, self._session))

    def get(self, kind: str, name: str, *, namespace: str | None = None) -> Object:
        """One object; raises NotThere if it does not exist."""
        path, request = self._targets.one("get", kind, name, namespace)
        return self._read(self._session.call("GET", path, request, again=True), kind)

    def find(self, kind: str, name: str, *, namespace: str | None = None) -> Object | None:
        """One object, or None if it does not exist."""
        try:
            return self.get(kind, name, namespace=namespace)
        except NotThere:
            return None

    def find_shape(self, kind: str, shape: type[T], name: str, *, namespace: str | None = None) -> T | None:
        """One object in its shape, or None if it does not exist; raises Damaged if it has another."""
        path, request = self._targets.one("get", kind, name, namespace)
        try:
            content = self._session.call("GET", path, request, again=True)
        except NotThere:
            return None
        try:
            return decode(content, shape)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise no_api_server(self.access, str(error)) from None

    def exists(self, kind: str, name: str, *, namespace: str | None = None) -> bool:
        """Whether there is such an object. Its content, which may be a Secret's, does not travel."""
        path, request = self._targets.one("get", kind, name, namespace)
        try:
            self._session.call("GET", path, request, accept=_ONLY_METADATA, again=True)
        except NotThere:
            return False
        return True

    def is_replaced(self, kind: str, name: str, uid: str, *, namespace: str | None = None) -> bool:
        """Whether the name of an object that was read before is another's now."""
        found = self.find(kind, name, namespace=namespace)
        return found is not None and found["metadata"].get("uid") != uid

    def list(
        self, kind: str, *, selector: str = "", fields: str = "", namespace: str | None = None
    ) -> Listing[Object]:
        """All matching objects of a kind, from all pages."""

        def fetch(limit: int, mark: str) -> Object:
            return read_object(self._page(kind, selector, fields, namespace, limit, mark), self.access)

        pages = read_pages(fetch, lambda page: str(_about(page).get("continue") or ""), PAGE)
        items: list[Object] = []
        for page in pages:
            listed = page.get("items")
            for item in admit_all(kind, listed if isinstance(listed, list) else ()):
                # The API server leaves kind and apiVersion out of the items of a list.
                item.setdefault("apiVersion", page.get("apiVersion"))
                item.setdefault("kind", str(page.get("kind", "")).removesuffix("List"))
                items.append(item)
        return Listing(items=items, version=str(_about(pages[-1]).get("resourceVersion") or ""))

    def list_shapes(
        self,
        kind: str,
        shape: type[T],
        *,
        selector: str = "",
        fields: str = "",
        namespace: str | None = None,
    ) -> Sequence[T]:
        """All matching objects of a kind, parsed into `shape`: fields that it does not have are dropped."""
        return self.listing(kind, shape, selector=selector, fields=fields, namespace=namespace).items

    def listing(
        self,
        kind: str,
        shape: type[T],
        *,
        selector: str = "",
        fields: str = "",
        namespace: str | None = None,
    ) -> Listing[T]:
        """The same, and from where on they can be watched."""
        page = partial(self._page, kind, selector, fields, namespace)
        size = _LARGE_PAGE if kind in ("Node", "Pod") else PAGE
        found, version = read_shapes(page, shape, self.access, size)
        items = [each for each in found if not isinstance(each, dict) or admit(kind, each) is not None]
        return Listing(items=items, version=version)

    def _page(
        self, kind: str, selector: str, fields: str, namespace: str | None, limit: int, mark: str
    ) -> bytes:
        """One page of a list as the server wrote it; the whole list with `limit` 0. `mark` is the previous
        page's continue token.
        """
        path, request = self._targets.every("list", kind, namespace)
        size, more = [("limit", str(limit))] * bool(limit), [("continue", mark)] * bool(mark)
        params = [*_chosen(selector, fields), *size, *more]
        return self._session.call("GET", path, request, params=params, again=True)

    def place_of(self, obj: Object) -> str:
        """The namespace that an object would be created in; "" for cluster-wide kinds."""
        return self._targets.new(obj)[1].namespace

    def create(self, obj: Object, *, dry_run: bool = False, whole: bool = True) -> Object:
        """Create an object; raises AlreadyThere if its name is taken. Unless the `whole` is wanted, its
        metadata alone is returned: to pack, send and read a large content once more takes as long as its way
        there.

        Retried only if the request cannot have arrived. After Unreachable the object may or may not exist."""
        path, request = self._targets.new(obj)
        params = [("dryRun", "All")] if dry_run else []
        answer = self._session.call(
            "POST",
            path,
            request,
            params=params,
            body=msgspec.json.encode(obj),
            accept=JSON if whole else _ONLY_METADATA,
            again=dry_run,
        )
        return self._read(answer, str(obj.get("kind") or ""))

    def patch(
        self,
        kind: str,
        name: str,
        change: Object,
        *,
        subresource: str = "",
        namespace: str | None = None,
        uid: str = "",
    ) -> Object:
        """Merge a change into an object; raises Conflict if a precondition in it does not hold. With `uid`,
        only the one that has it: another of its name, made since, stays as it is, and NotThere is raised.
        """
        path, request = self._targets.one("patch", kind, name, namespace, subresource)
        try:
            answer = self._session.call(
                "PATCH",
                path,
                request,
                body=msgspec.json.encode(_only_of(uid, change) if uid else change),
                content_type=_MERGE,
                again=True,
            )
        except (Conflict, Invalid) as error:
            if uid and self._is_replaced(kind, name, namespace, uid):
                raise NotThere(
                    f"the {kind} {name!r} was removed, and another one has its name",
                    hint="look at what is there now",
                ) from error
            raise
        return self._read(answer, kind)

    def _is_replaced(self, kind: str, name: str, namespace: str | None, uid: str) -> bool:
        with suppress(Denied, Refused):
            found = self.find(kind, name, namespace=namespace)
            return found is None or found["metadata"].get("uid") != uid
        return False

    def delete(
        self,
        kind: str,
        name: str,
        *,
        namespace: str | None = None,
        grace: int | None = None,
        uid: str = "",
    ) -> None:
        """Remove an object; one that does not exist, or has another `uid`, is no error."""
        path, request = self._targets.one("delete", kind, name, namespace)
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            self._session.call("DELETE", path, request, body=msgspec.json.encode(options), again=True)
        except NotThere:
            return
        except Conflict:
            if not uid:
                raise

    def watch(
        self,
        kind: str,
        shape: type[T],
        *,
        selector: str = "",
        version: str,
        timeout: float,
    ) -> Stream[Change[T]]:
        """Changes of objects after `version`: ADDED, MODIFIED, DELETED, and BOOKMARK, which has only a newer
        version.

        The stream ends after `timeout` seconds, raises Gone if the version is too old and Unreachable if the
        connection is lost; `close` ends it from any thread."""
        path, request = self._targets.every("watch", kind)
        params = [
            *_chosen(selector),
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", version),
            ("timeoutSeconds", str(max(1, math.ceil(timeout)))),
        ]
        return self._session.stream(
            path,
            request,
            lambda pieces: read_events(pieces, reader_of(kind, shape), request, self.access),
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
        stamped: bool = False,
        namespace: str | None = None,
    ) -> Stream[bytes]:
        """A container's log, in pieces cut anywhere; `since` is an RFC 3339 time, and with `stamped` the
        kubelet puts one before each line.

        With `follow` the stream is silent while the container is; `close` ends it from any thread."""
        path, request = self._targets.one("get", "Pod", pod, namespace, "log")
        params = [("container", container)]
        if follow:
            params.append(("follow", "true"))
        if since:
            params.append(("sinceTime", since))
        if tail is not None:
            params.append(("tailLines", str(tail)))
        if stamped:
            params.append(("timestamps", "true"))
        read = None if follow else 30.0
        return self._session.stream(path, request, iter, params=params, read=read)

    def exec(
        self,
        pod: str,
        command: Sequence[str],
        *,
        container: str,
        stdin: bool = False,
        tty: bool = False,
    ) -> Exec:
        """Start a command in a container. The result is a context manager that closes the connection."""
        from echelon.engines.kubernetes.client.execute import begin_exec

        path, request = self._targets.one("get", "Pod", pod, subresource="exec")
        return begin_exec(self._session, path, request, command, container=container, stdin=stdin, tty=tty)

    def port(self, pod: str, port: int) -> PortConnection:
        """A connection to a port of a pod. The result is a context manager that closes it."""
        from echelon.engines.kubernetes.client.forward import connect_to_port

        path, request = self._targets.one("get", "Pod", pod, subresource="portforward")
        return connect_to_port(self._session, path, request, port)

    def may(self, verb: str, kind: str, *, subresource: str = "", namespace: str | None = None) -> bool:
        """Whether the user has a right."""
        what = self._targets.kind(kind)
        asked = {
            "verb": verb,
            "group": what.group,
            "version": what.version,
            "resource": what.plural,
            "subresource": subresource,
            "namespace": self._targets.place(what, namespace),
        }
        review = KINDS["SelfSubjectAccessReview"]
        body = {"apiVersion": review.api_version, "kind": "SelfSubjectAccessReview"}
        answer = self._session.call(
            "POST",
            object_path(review, ""),
            Request(verb="create", kind=review),
            body=msgspec.json.encode({**body, "spec": {"resourceAttributes": asked}}),
            again=True,  # a review creates nothing
        )
        status = read_object(answer, self.access).get("status")
        return isinstance(status, dict) and status.get("allowed") is True

    def version_of(self, kind: str) -> str:
        """The `apiVersion` in which objects of a kind are served; raises NotThere if they are not."""
        return self._targets.kind(kind).api_version

    def raw(self, path: str) -> Object:
        """The object at any path of the API, e.g. `/version`."""
        return _look(self._session, path)

    def close(self) -> None:
        """Close idle connections; the next call opens new ones."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, content: bytes, kind: str) -> Object:
        found = admit(kind, read_object(content, self.access))
        if found is None:
            raise no_api_server(self.access, "an object has no name")
        return found


def _look(session: Session, path: str) -> Object:
    return read_object(session.call("GET", path, Request(verb="get", path=path), again=True), session.access)


def _only_of(uid: str, change: Object) -> Object:
    """A change that no other object takes: a uid cannot be changed."""
    return {**change, "metadata": {**change.get("metadata", {}), "uid": uid}}


def _chosen(selector: str, fields: str = "") -> Pairs:
    named = (("labelSelector", selector), ("fieldSelector", fields))
    return [(name, value) for name, value in named if value]


def _about(page: Object) -> Object:
    found = page.get("metadata")
    return found if isinstance(found, dict) else {}
