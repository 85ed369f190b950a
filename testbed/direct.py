"""Simple requests without kubectl, which takes 0.1 s of a processor for each: tests make thousands of them,
most of them in waits.

What is not simple (another kind, flag or login) is left to kubectl. The answers are the same as its own.
"""

from __future__ import annotations

import base64
import http
import http.client
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import yaml

from testbed.patience import FACTOR

Object = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of the API, and the words by which kubectl knows it."""

    name: str
    words: tuple[str, ...]  # the plural comes first
    prefix: str = "/api/v1"
    namespaced: bool = True

    @property
    def group(self) -> str:
        """Group and version, as objects write it."""
        return self.prefix.removeprefix("/apis/").removeprefix("/api/")


KINDS = (
    Kind(name="Pod", words=("pods", "pod", "po")),
    Kind(name="Job", words=("jobs", "job"), prefix="/apis/batch/v1"),
    Kind(name="ConfigMap", words=("configmaps", "configmap", "cm")),
    Kind(name="Secret", words=("secrets", "secret")),
    Kind(name="Service", words=("services", "service", "svc")),
    Kind(name="ServiceAccount", words=("serviceaccounts", "serviceaccount", "sa")),
    Kind(name="PersistentVolumeClaim", words=("persistentvolumeclaims", "persistentvolumeclaim", "pvc")),
    Kind(name="ResourceQuota", words=("resourcequotas", "resourcequota", "quota")),
    Kind(name="Node", words=("nodes", "node"), namespaced=False),
    Kind(name="Namespace", words=("namespaces", "namespace", "ns"), namespaced=False),
    Kind(name="PersistentVolume", words=("persistentvolumes", "persistentvolume", "pv"), namespaced=False),
)
_BY_WORD = {word: kind for kind in KINDS for word in kind.words}
_BY_NAME = {(kind.group, kind.name): kind for kind in KINDS}
_SILENCE, _PATIENCE = 30.0, 120.0 * FACTOR  # seconds: of one request, and of a question that is asked again
_PARAMETERS = {"-l": "labelSelector", "--field-selector": "fieldSelector"}


class Unanswered(Exception):
    """The API server refused, or did not answer; `status` is 0 then."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What `kubectl get` was asked, understood."""

    kinds: tuple[Kind, ...]
    name: str = ""
    everywhere: bool = False
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Login:
    """How a kubeconfig's user reaches the API server."""

    host: str
    port: int
    context: ssl.SSLContext
    headers: Mapping[str, str]
    namespace: str


def understand(words: Sequence[str]) -> Question | None:
    """The words after `kubectl get`; None if kubectl itself must read them."""
    plain: list[str] = []
    parameters: list[tuple[str, str]] = []
    everywhere = False
    rest = iter(words)
    for word in rest:
        if word in ("-A", "--all-namespaces"):
            everywhere = True
        elif word in _PARAMETERS:
            parameters.append((_PARAMETERS[word], next(rest, "")))
        elif word.startswith("-"):
            return None
        else:
            plain.append(word)
    asked = plain[0].split(",") if plain else []
    kinds = tuple(_BY_WORD[word] for word in asked if word in _BY_WORD)
    name = plain[1] if len(plain) == 2 else ""
    if not asked or len(kinds) != len(asked) or len(plain) > 2 or (name and (len(kinds) > 1 or parameters)):
        return None
    return Question(kinds=kinds, name=name, everywhere=everywhere, parameters=tuple(parameters))


def login(kubeconfig: Path) -> Login | None:
    """The login of a kubeconfig's current context; None if it is no certificate or token in that file, or if
    the file has gone with its cluster.
    """
    try:
        changed = kubeconfig.stat().st_mtime_ns
    except FileNotFoundError:
        return None
    return _login(kubeconfig, changed)


def understand_object(item: Mapping[str, Any]) -> Kind | None:
    """The kind of an object; None if kubectl itself must create it."""
    return _BY_NAME.get((str(item.get("apiVersion")), str(item.get("kind"))))


def create(item: Mapping[str, Any], kind: Kind, who: Login, namespace: str) -> None:
    """Create an object, with an unknown field being refused, as kubectl does it; raises Unanswered."""
    inside = item["metadata"].get("namespace") or namespace or who.namespace
    _call(who, "POST", _path(kind, inside) + "?fieldValidation=Strict", item)


def delete(question: Question, who: Login, namespace: str) -> None:
    """Delete what a question is about, and do not wait for it; raises Unanswered."""
    for kind in question.kinds:
        path = _path(kind, namespace or who.namespace, question.name)
        _call(who, "DELETE", path, {"propagationPolicy": "Background"})


def answer(question: Question, who: Login, namespace: str) -> Object:
    """The object, or the list of objects; raises Unanswered."""
    inside = None if question.everywhere else namespace or who.namespace
    if question.name:
        return _told(_call(who, "GET", _path(question.kinds[0], inside, question.name)), question.kinds[0])
    query = f"?{urlencode(question.parameters)}" if question.parameters else ""
    items = [
        _told(item, kind)
        for kind in question.kinds
        for item in _call(who, "GET", _path(kind, inside) + query).get("items") or ()
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _path(kind: Kind, namespace: str | None, name: str = "") -> str:
    place = f"/namespaces/{quote(namespace)}" if kind.namespaced and namespace is not None else ""
    return f"{kind.prefix}{place}/{kind.words[0]}" + (f"/{quote(name, safe='')}" if name else "")


def _call(who: Login, method: str, path: str, body: Mapping[str, Any] | None = None) -> Object:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return _ask(who, method, path, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            # An API server that is silent has much to do on a busy machine; one that is away refuses. Only a
            # question may be asked again.
            silent = isinstance(error, TimeoutError) and method == "GET"
            if not silent or time.monotonic() > deadline:
                raise Unanswered(0, f"the API server did not answer {method} {path}: {error}") from error


def _ask(who: Login, method: str, path: str, body: Mapping[str, Any] | None) -> Object:
    connection = http.client.HTTPSConnection(who.host, who.port, timeout=_SILENCE, context=who.context)
    try:
        content = None if body is None else json.dumps(body)
        about = {"Accept": "application/json", "Content-Type": "application/json"}
        connection.request(method, path, content, {**about, **who.headers})
        response = connection.getresponse()
        found: Object = json.loads(response.read())
    finally:
        connection.close()
    if response.status >= http.HTTPStatus.BAD_REQUEST:
        raise Unanswered(response.status, str(found.get("message") or response.reason))
    return found


def _told(item: Object, kind: Kind) -> Object:
    # As kubectl prints it: objects of a list, too, say what they are, and not who has set each field.
    item["metadata"].pop("managedFields", None)
    return {"apiVersion": kind.group, "kind": kind.name, **item}


@lru_cache(maxsize=64)
def _login(kubeconfig: Path, changed: int) -> Login | None:  # noqa: ARG001 - a file that has changed is read again
    view = yaml.safe_load(kubeconfig.read_text())
    current = _named(view, "contexts", view.get("current-context"))["context"]
    cluster = _named(view, "clusters", current["cluster"])["cluster"]
    user = _named(view, "users", current["user"])["user"]
    server, trusted = urlsplit(cluster["server"]), cluster.get("certificate-authority-data")
    if server.scheme != "https" or server.path.strip("/") or not trusted or not server.hostname:
        return None
    context = ssl.create_default_context(cadata=base64.b64decode(trusted).decode())
    headers = {}
    if user.keys() == {"token"}:
        headers["Authorization"] = f"Bearer {user['token']}"
    elif user.keys() == {"client-certificate-data", "client-key-data"}:
        with TemporaryDirectory() as folder:
            file = Path(folder, "both")
            both = (base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key"))
            file.write_bytes(b"\n".join(both))
            context.load_cert_chain(file)
    else:
        return None
    return Login(
        host=server.hostname,
        port=server.port or 443,
        context=context,
        headers=headers,
        namespace=current.get("namespace") or "default",
    )


def _named(view: Object, what: str, name: str | None) -> Object:
    found: Object = next(each for each in view[what] if each["name"] == name)
    return found
