"""An API server in memory, as far as the engine asks: for tests of all that is above the connection.

It takes the place of the connection, so that everything above is the real thing. Tests look at `objects`, and
change them as controllers and other users do. A function among `rules` gets each request before it is carried
out, and may change something or raise what becomes of it; `after` gets it afterwards. `test_api_server.py`
compares it with a real one."""

from __future__ import annotations

import copy
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from unittest.mock import patch
from urllib.parse import unquote

from testbed.kubectl import Object

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.http.refusals import Request, refusal
from echelon.engines.kubernetes.client.kinds import KINDS, group_path
from echelon.engines.kubernetes.client.login.access import Access
from echelon.errors import Denied

ACCESS = Access(server="https://cluster", user="ann", namespace="team")
VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
_KIND_OF = {kind.plural: name for name, kind in KINDS.items()}
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)(?:/namespaces/(?P<place>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<below>[^/]+))?"
)
_TERM = re.compile(r"([\w./-]+)(?:=([\w.-]*)| in \(([^)]*)\))")
_SELECTOR = re.compile(r"(?:[\w./-]+(?:=[\w.-]{0,63}| in \((?:[\w.-]{1,63},?)+\)),?)*")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request: what it is about, and what it brings."""

    verb: str
    kind: str
    name: str
    place: str = ""
    below: str = ""  # the subresource
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    @property
    def changes(self) -> bool:
        """Whether it changes something, unless it is refused."""
        review = self.kind.startswith("SelfSubject")
        return self.verb in ("create", "patch", "delete") and not review and "dryRun" not in self.query


class Answered(Exception):
    """A request that ends with this status and content."""

    def __init__(self, code: int, content: object) -> None:
        super().__init__(code, content)
        self.code = code
        self.content = content


def refused(code: int, reason: str, message: str, **more: object) -> Answered:
    """The API server's own way of refusing."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return Answered(code, {**status, "code": code, "reason": reason, "message": message, **more})


def merged(old: Any, change: Any) -> Any:
    """What the API server makes of a merge patch."""
    if not isinstance(change, dict):
        return change
    made = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key), value)
    return made


class ApiServer:
    """Objects by kind and name, in one namespace. `denied` has requests that the user may not make, as
    "create Job" or "create *". `logs` are those of pods; None for one whose kubelet does not respond.
    `serves` are the kinds of controllers that are installed, each with its "plural.version.group".
    """

    def __init__(self, *objects: Any, serves: Mapping[str, str] | None = None) -> None:
        self.objects: dict[tuple[str, str], Any] = {}
        for number, each in enumerate(objects):
            self.objects[str(_of(each, "kind")), str(_name(each) or number)] = each
        self.logs: dict[str, bytes | None] = {}
        self.log: bytes | None = None  # of every other pod
        self.denied: set[str] = set()
        self.asked: list[Asked] = []
        self.changes: list[Asked] = []  # those that were carried out, and changed something
        self.rules: list[Callable[[Asked], object]] = []
        self.after: Callable[[Asked], object] = lambda _asked: None
        self.page = 0  # objects of a page, if the client asks for more at once
        self._serves = {kind: place.split(".", 2) for kind, place in (serves or {}).items()}
        self._versions = itertools.count(1)
        self._events: list[tuple[int, str, Object]] = []
        self._changed = threading.Condition()
        with patch("echelon.engines.kubernetes.client.api.Session", self.session):
            self.api = Api(ACCESS)

    def session(self, access: Access, _patience: float) -> _Session:
        """What takes the place of a connection."""
        return _Session(self, access)

    def respond(self, method: str, path: str, query: Mapping[str, str], body: bytes | None) -> bytes:
        """The content of a response; raises Answered with one that is a refusal."""
        if (asked := self._read(method, path, query, body)) is None:
            return json.dumps(self._discover(path)).encode()
        self._admit(asked)
        with self._changed:
            done = json.dumps(getattr(self, f"_{asked.verb}")(asked)).encode()
            self._changed.notify_all()
        if asked.changes:
            self.changes.append(asked)
        self.after(asked)
        return done

    def _read(self, method: str, path: str, query: Mapping[str, str], body: bytes | None) -> Asked | None:
        """What is asked for; None where it is about the API itself."""
        found = _PATH.fullmatch(path)
        if found is None:
            return None
        said = json.loads(body) if body else None
        name = unquote(found["name"] or "") or (str(_name(said) or "") if method == "POST" else "")
        listing = "watch" if query.get("watch") else "list"
        return Asked(
            verb=listing if method == "GET" and not name else VERBS[method],
            kind=self._kind_named(found["plural"]),
            name=name,
            place=unquote(found["place"] or ""),
            below=found["below"] or "",
            query=query,
            body=said,
        )

    def _admit(self, asked: Asked) -> None:
        self.asked.append(asked)
        for rule in self.rules:
            rule(asked)
        anything = {f"{asked.verb} *"} if asked.changes else set()
        if (anything | {f"{asked.verb} {asked.kind}"}) & self.denied:
            what = f'User "ann" cannot {asked.verb} resource "{_plural(asked.kind)}" in API group ""'
            raise refused(403, "Forbidden", what)

    def touch(self, kind: str, name: str) -> None:
        """A controller changes the status of an object."""
        self.objects[kind, name]["metadata"]["resourceVersion"] = str(next(self._versions))

    def _discover(self, path: str) -> Any:
        if path == "/version":
            return {"major": "1", "minor": "36", "gitVersion": "v1.36.3"}
        own = [each for each in KINDS.values() if not each.group.endswith("kubeflow.org")]
        served = [*([each.plural, each.version, each.group] for each in own), *self._serves.values()]
        if path == "/apis":
            groups = dict.fromkeys((group, version) for _, version, group in served if group)
            return {
                "groups": [
                    {"name": group, "versions": [{"groupVersion": f"{group}/{version}", "version": version}]}
                    for group, version in groups
                ]
            }
        resources = []
        for plural, version, group in served:
            if path == group_path(f"{group}/{version}" if group else version):
                kind = self._kind_named(plural)
                namespaced = KINDS[kind].namespaced if kind in KINDS else True
                resources.append({"name": plural, "kind": kind, "namespaced": namespaced})
        if not resources:
            raise refused(404, "NotFound", "the server could not find the requested resource")
        return {"kind": "APIResourceList", "resources": resources}

    def _kind_named(self, plural: str) -> str:
        known = {place[0]: kind for kind, place in self._serves.items()} | _KIND_OF
        there = {_plural(kind): kind for kind, _ in self.objects}
        return known.get(plural) or there.get(plural, plural)

    def _find(self, asked: Asked) -> tuple[tuple[str, str], Any]:
        for key, each in self.objects.items():
            if key[0] == asked.kind and _name(each) == asked.name:
                return key, each
        raise refused(404, "NotFound", f'{_plural(asked.kind)} "{asked.name}" not found')

    def _get(self, asked: Asked) -> Any:
        return self._find(asked)[1]

    def _list(self, asked: Asked) -> Any:
        selector = asked.query.get("labelSelector", "")
        if not _SELECTOR.fullmatch(selector):
            raise refused(400, "BadRequest", f"unable to parse requirement: {selector}")
        mine = [each for (kind, _), each in self.objects.items() if kind == asked.kind]
        chosen = [
            each
            for each in mine
            if _selected(each, selector) and _has_fields(each, asked.query.get("fieldSelector", ""))
        ]
        limit, first = int(asked.query.get("limit") or 0), int(asked.query.get("continue") or 0)
        size = min(filter(None, (limit, self.page)), default=0) if limit else 0
        about = {"resourceVersion": str(self._events[-1][0] if self._events else 0)}
        if size and len(chosen) > first + size:
            about["continue"] = str(first + size)
        items = chosen[first : first + size] if size else chosen
        return {"kind": f"{asked.kind}List", "apiVersion": "v1", "metadata": about, "items": items}

    def _create(self, asked: Asked) -> Any:
        if asked.kind == "SelfSubjectAccessReview":
            right = asked.body["spec"]["resourceAttributes"]
            kind = _KIND_OF.get(right["resource"], right["resource"])
            return {"kind": asked.kind, "status": {"allowed": f"{right['verb']} {kind}" not in self.denied}}
        if asked.kind == "SelfSubjectReview":
            return {"kind": asked.kind, "status": {"userInfo": {"username": "ann"}}}
        made = asked.body
        key = made["kind"], asked.name
        if key in self.objects:
            raise refused(409, "AlreadyExists", f'{_plural(asked.kind)} "{asked.name}" already exists')
        number = next(self._versions)
        made["metadata"] = {
            **made["metadata"],
            "uid": f"{asked.name}-{number}",
            "resourceVersion": str(number),
            "generation": 1,
        }
        if asked.query.get("dryRun") != "All":
            self.objects[key] = made
            self._note(number, "ADDED", made)
        return made

    def _patch(self, asked: Asked) -> Any:
        key, old = self._find(asked)
        about = asked.body.get("metadata", {})
        for precondition in ("uid", "resourceVersion"):
            if about.get(precondition) not in (None, _of(_of(old, "metadata"), precondition)):
                raise refused(409, "Conflict", f"the {precondition} is another")
        new = merged(old, asked.body)
        number, made = next(self._versions), _of(_of(new, "metadata"), "generation")
        generation = (made if isinstance(made, int) else 1) + (_of(new, "spec") != _of(old, "spec"))
        written = {"resourceVersion": str(number), "generation": generation}
        new["metadata"] = {**new["metadata"], **written}
        self.objects[key] = new
        self._note(number, "MODIFIED", new)
        return new

    def _delete(self, asked: Asked) -> Any:
        key, old = self._find(asked)
        wanted = ((asked.body or {}).get("preconditions") or {}).get("uid")
        if wanted not in (None, _uid(old)):
            raise refused(409, "Conflict", "the uid is another")
        self._remove(key)
        return {"kind": "Status", "status": "Success"}

    def _remove(self, key: tuple[str, str]) -> None:
        """Remove an object, and what belongs to nothing else that is there."""
        old = self.objects.pop(key)
        self._note(next(self._versions), "DELETED", old)
        for other, each in list(self.objects.items()):
            owners = _of(_of(each, "metadata"), "ownerReferences")
            uids = [_of(one, "uid") for one in owners] if isinstance(owners, list) else []
            there = any(_uid(one) in uids for one in self.objects.values())
            if _uid(old) in uids and not there and other in self.objects:
                self._remove(other)

    def _note(self, number: int, what: str, obj: Object) -> None:
        self._events.append((number, what, copy.deepcopy(obj)))

    def pieces(self, path: str, query: Mapping[str, str], closed: threading.Event) -> Iterator[bytes]:
        """What arrives piece by piece: a log, or the changes of a watch."""
        asked = self._read("GET", path, query, None)
        assert asked is not None
        self._admit(asked)
        if asked.verb == "watch":
            yield from self._follow(asked, closed)
        else:
            yield self._log_of(asked)

    def _follow(self, asked: Asked, closed: threading.Event) -> Iterator[bytes]:
        seen = int(asked.query.get("resourceVersion") or 0)
        ends = time.monotonic() + float(asked.query.get("timeoutSeconds") or 0)
        while not closed.is_set() and time.monotonic() < ends:
            with self._changed:
                newer = [each for each in self._events if each[0] > seen]
                if not newer:
                    self._changed.wait(0.05)
                    continue
            for number, what, obj in newer:
                seen = number
                if obj["kind"] == asked.kind and _selected(obj, asked.query.get("labelSelector", "")):
                    yield json.dumps({"type": what, "object": obj}).encode() + b"\n"

    def _log_of(self, asked: Asked) -> bytes:
        found = self.logs.get(asked.name, self.log)
        if found is None:
            raise refused(500, "InternalError", "the kubelet does not respond")
        tail = asked.query.get("tailLines")
        return found if tail is None else b"".join(found.splitlines(keepends=True)[-int(tail) :])


class _Session:
    """The connection of a client."""

    def __init__(self, server: ApiServer, access: Access) -> None:
        self._server = server
        self.access = access

    def call(
        self,
        method: str,
        path: str,
        request: Request,
        *,
        params: Sequence[tuple[str, str]] = (),
        body: bytes | None = None,
        **_: object,
    ) -> bytes:
        try:
            return self._server.respond(method, path, dict(params), body)
        except Answered as answered:
            raise self._error(answered, request) from None

    def stream(
        self,
        path: str,
        request: Request,
        decode: Callable[[Iterable[bytes]], Iterator[Any]],
        *,
        params: Sequence[tuple[str, str]] = (),
        **_: object,
    ) -> Streamed:
        closed = threading.Event()

        def pieces() -> Iterator[bytes]:
            try:
                yield from self._server.pieces(path, dict(params), closed)
            except Answered as answered:
                raise self._error(answered, request) from None

        return Streamed(decode(pieces()), closed)

    def upgrade(self, *_: object, **__: object) -> Any:
        raise Denied("no command may be run here")

    def close(self) -> None:
        pass

    def _error(self, answered: Answered, request: Request) -> Exception:
        return refusal(answered.code, json.dumps(answered.content).encode(), request, self.access)


class Streamed(Iterator[Any]):
    """A watch or a log, which any thread may close."""

    def __init__(self, pieces: Iterator[Any], closed: threading.Event) -> None:
        self._pieces = pieces
        self._closed = closed

    def __next__(self) -> Any:
        return next(self._pieces)

    def close(self) -> None:
        self._closed.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Objects may be garbled: whatever is read of them may have any type.


def _of(obj: Any, name: str) -> Any:
    return obj.get(name) if isinstance(obj, dict) else None


def _name(obj: Any) -> Any:
    return _of(_of(obj, "metadata"), "name")


def _uid(obj: Any) -> Any:
    return _of(_of(obj, "metadata"), "uid")


def _plural(kind: str) -> str:
    return KINDS[kind].plural if kind in KINDS else f"{kind.lower()}s"


def _selected(obj: Any, selector: str) -> bool:
    """Whether a selector takes an object; of one whose labels are garbled, that is not known."""
    labels = _of(_of(obj, "metadata"), "labels")
    if selector and not isinstance(labels, dict):
        return labels is not None
    for key, value, several in _TERM.findall(selector):
        given = labels.get(key)
        if given not in (several.split(",") if several else [value]) and isinstance(given, str | None):
            return False
    return True


def _has_fields(obj: Any, selector: str) -> bool:
    """Whether an object has the fields of a selector, as `status.phase!=Failed`."""
    for term in filter(None, selector.split(",")):
        path, how, wanted = re.split(r"(!=|==?)", term, maxsplit=1)
        value = obj
        for part in path.split("."):
            value = _of(value, part)
        if (str(value or "") == wanted) is (how == "!="):
            return False
    return True
