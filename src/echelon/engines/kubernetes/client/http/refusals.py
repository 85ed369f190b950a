"""Failures of the network and refusals of the API server, as errors that a user can act on.

The one border at which they become errors of ours: connections that fail or break, 401 and 403 with the
missing right, 404, 409, 410, and every other refusal. Pure."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from shlex import quote
from typing import Any

import msgspec

from echelon.engines.kubernetes.client.http.direct import TooLong
from echelon.engines.kubernetes.client.http.proxies import without_password
from echelon.engines.kubernetes.client.kinds import Kind, NotThere
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.client.login.credentials import log_in_again
from echelon.errors import Denied, EchelonError, Refused, Unreachable
from echelon.values import frozen

Object = dict[str, Any]

# The server did not decide: a retry may succeed.
NOT_NOW = frozenset({429, 500, 502, 503, 504})
LACKS_RIGHT = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) (?:resource|path) "(?P<what>[^"]*)"')
SERVICE_ACCOUNT = "system:serviceaccount:"
ANONYMOUS = "system:anonymous"  # a request without credentials


class AlreadyThere(Refused):
    """An object of that name exists."""


class Conflict(Refused):
    """The object has changed since it was read, or a precondition does not hold."""


class Invalid(Refused):
    """The API server does not accept what the object would be."""


class Gone(Refused):
    """The resource version to continue from is too old: list again."""


@frozen
class Request:
    """What a call requests of the API server, for the message when it fails."""

    verb: str  # get, list, watch, create, patch, delete
    kind: Kind | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    path: str = ""

    @property
    def resource(self) -> str:
        """The resource as roles name it: `pods/log`, `jobs.batch`."""
        if self.kind is None:
            return self.path
        below = f"/{self.subresource}" if self.subresource else ""
        group = f".{self.kind.group}" if self.kind.group else ""
        return f"{self.kind.plural}{group}{below}"

    @property
    def place(self) -> str:
        """The namespace of the request, or ""."""
        return self.namespace if self.kind is not None and self.kind.namespaced else ""


def name_server(access: Access) -> str:
    """The server as messages name it."""
    return f"{access.server} (context {access.context})" if access.context else access.server


def root_of(error: BaseException) -> BaseException:
    """The operating system's error at the bottom of an HTTP library's, if there is one."""
    seen: BaseException | None = error
    found = error
    while seen is not None:
        if isinstance(seen, OSError):
            found = seen
        seen = seen.__cause__ or seen.__context__
    return found


def is_hopeless(error: BaseException) -> bool:
    """Whether a retry cannot help: a bad certificate, or a name that does not exist."""
    root = root_of(error)
    if isinstance(root, socket.gaierror):
        return root.errno == socket.EAI_NONAME
    return isinstance(root, ssl.SSLCertVerificationError)


def unreachable(error: BaseException, access: Access, proxy: str = "") -> Unreachable:
    """A connection that failed or broke, as an error that names the server and the reason."""
    server = name_server(access)
    through = f" through the proxy {without_password(proxy)}" if proxy else ""
    reason, hint = _reason(root_of(error), access)
    return Unreachable(f"cannot reach {server}{through}: {reason}", hint=hint)


def _reason(root: BaseException, access: Access) -> tuple[str, str]:
    check = "check the network or VPN, and that this context is the one you mean"
    if isinstance(root, TooLong):
        return str(root), "it does not behave as an API server: check its address in the kubeconfig"
    if isinstance(root, ssl.SSLError):
        return _tls_reason(root, access)
    if isinstance(root, socket.gaierror):
        return "its name is not known to DNS", "check the server's name in the kubeconfig, and the VPN"
    if isinstance(root, ConnectionRefusedError):
        return "it refuses connections", "is the cluster running? " + check
    if isinstance(root, TimeoutError):
        return "no answer in time", check
    if isinstance(root, ConnectionError):
        return "the connection was cut", "try again; the API server may be restarting"
    if isinstance(root, OSError) and root.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        return "there is no route to it", check
    if isinstance(root, OSError) and root.strerror:
        return root.strerror, check
    if "imeout" in type(root).__name__:
        return "no answer in time", check
    return _brief(str(root)) or type(root).__name__, "try again; the API server may be restarting"


def _tls_reason(error: ssl.SSLError, access: Access) -> tuple[str, str]:
    if isinstance(error, ssl.SSLCertVerificationError):
        message = error.verify_message or "it cannot be verified"
        if "expired" in message or "not yet valid" in message:
            hint = "is this machine's clock right? If it is, the server's certificate must be renewed"
        elif "mismatch" in message or "not valid for" in message:
            hint = "tls-server-name in the kubeconfig says which name the certificate carries"
        else:
            hint = "certificate-authority(-data) in the kubeconfig must hold the authority that signed it"
        return f"its certificate is not trusted: {message}", hint
    reason = (error.reason or "").lower().replace("_", " ")
    if "alert" in reason:
        return f"it does not accept the client's side of TLS: {reason}", log_in_again(access)
    if "wrong version number" in reason or "http request" in reason:
        return "it does not speak TLS there", "check http:// or https:// and the port in the kubeconfig"
    return f"TLS failed: {reason or error}", "try again; the API server may be restarting"


def refusal(code: int, body: bytes, request: Request, access: Access) -> EchelonError:
    """A response with status 400 or more as an error of ours."""
    status = _status(body)
    if status is not None:
        return from_status(status | {"code": code}, request, access)
    server = name_server(access)
    if code == 401:
        return _unknown_user(access, "")
    if code == 403:
        message = "something in front of it, such as a proxy, says 403 Forbidden"
        return Denied(f"{server} was not asked: {message}", hint=log_in_again(access))
    said = _brief(re.sub(rb"<[^>]*>", b" ", body[:2000]).decode(errors="replace"))
    message = f"{code} {said}".strip()
    if code in NOT_NOW:
        return Unreachable(f"{server} cannot answer now: {message}", hint="try again in a moment")
    if code == 404:
        return NotThere(f"{server} has no {request.resource}: {message}", hint="check the server's address")
    if code == 413:
        return _too_large(request)
    return Refused(
        f"{server} said no to {request.verb} {request.resource}: {message}", hint=_refusal_hint(message, code)
    )


def from_status(status: Object, request: Request, access: Access) -> EchelonError:
    """A `Status` object of the API server as an error of ours."""
    given = status.get("code")
    code, reason = given if isinstance(given, int) else 0, str(status.get("reason") or "")
    message = _brief(str(status.get("message") or reason or "no reason given"), 2000)
    server = name_server(access)
    if code == 401:
        return _unknown_user(access, message)
    if code == 403:
        return _forbidden(message, request, access)
    if code == 404:
        return NotThere(message, hint=_missing_hint(message, request))
    if code == 409:
        if reason == "AlreadyExists":
            return AlreadyThere(message, hint="choose another name, or remove what is there")
        return Conflict(message, hint="another client changed it at the same time; try again")
    if code == 410 or reason == "Expired":
        return Gone(message, hint="list again and go on from there")
    if code == 413 or reason == "RequestEntityTooLarge":
        return _too_large(request)
    if code == 429:
        return Unreachable(f"{server} has too much to do: {message}", hint="try again in a moment")
    if code in NOT_NOW and code != 500:
        return Unreachable(f"{server} cannot answer now: {message}", hint="try again in a moment")
    refused = Invalid if code == 422 else Refused
    return refused(f"the cluster said no: {message}", hint=_refusal_hint(message, code))


def comes_from_a_node(code: int, request: Request) -> bool:
    """Whether the API server works, and a node that it asked for a log did not respond."""
    return code == 500 and request.subresource == "log"


def lacks_quota_for_a_moment(code: int, body: bytes) -> bool:
    """Whether a creation failed only because two counted against one quota at once; nothing was made."""
    status = _status(body) if code == 409 else None
    details = (status or {}).get("details")
    return isinstance(details, dict) and details.get("kind") == "resourcequotas"


def _status(body: bytes) -> Object | None:
    try:
        status = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return status if isinstance(status, dict) and status.get("kind") == "Status" else None


def _unknown_user(access: Access, message: str) -> Denied:
    whose = f" as user {access.user!r}" if access.user else ""
    said = f": {message}" if message and message != "Unauthorized" else ""
    return Denied(f"{name_server(access)} does not accept you{whose}{said}", hint=log_in_again(access))


def _forbidden(message: str, request: Request, access: Access) -> EchelonError:
    lacking = LACKS_RIGHT.search(message)
    if lacking is None:  # quota, Pod Security, an admission plugin: the object is refused, not the user
        return Refused(f"the cluster said no: {message}", hint=_refusal_hint(message, 403))
    user, verb = lacking["user"], lacking["verb"]
    if user == ANONYMOUS:
        return _unknown_user(access, "")
    where = f" in namespace {request.place}" if request.place else ""
    return Denied(
        f"you (user {user}) may not {verb} {request.resource}{where}",
        hint=f"an administrator can allow it: {role_commands(user, verb, request)}",
    )


def role_commands(user: str, verb: str, request: Request) -> str:
    """The commands with which an administrator allows a request."""
    if user.startswith(SERVICE_ACCOUNT):
        subject = f"--serviceaccount={quote(user.removeprefix(SERVICE_ACCOUNT))}"
    else:
        subject = f"--user={quote(user)}"
    name = "echelon-" + re.sub(r"[^a-z0-9]+", "-", f"{verb}-{request.resource}".lower()).strip("-")
    if not request.place:
        what = (
            f"--resource={request.resource}" if request.kind else f"--non-resource-url={quote(request.path)}"
        )
        return (
            f"kubectl create clusterrole {name} --verb={quote(verb)} {what} && "
            f"kubectl create clusterrolebinding {name} --clusterrole={name} {subject}"
        )
    place = quote(request.place)
    return (
        f"kubectl -n {place} create role {name} --verb={quote(verb)} --resource={request.resource} && "
        f"kubectl -n {place} create rolebinding {name} --role={name} {subject}"
    )


def _missing_hint(message: str, request: Request) -> str:
    if re.search(r'namespaces "[^"]*" not found', message):
        return (
            f"`kubectl create namespace {quote(request.place)}` makes it, or choose another with --namespace"
        )
    return "check the name, the namespace and the context"


def _refusal_hint(message: str, code: int) -> str:
    if "exceeded quota" in message:
        return "`kubectl describe resourcequota` shows what is used; ask for less, or for a larger quota"
    if "violates PodSecurity" in message:
        return "the namespace's Pod Security level forbids it; `echelon doctor --on k8s` says which it is"
    if "webhook" in message:
        return "a webhook of this cluster decides it; its administrator knows the rule"
    if "being terminated" in message:
        return "wait until the namespace is gone, or use another"
    if code in (400, 422):
        return "the object is not what this cluster accepts"
    return "try again; if it stays so, the cluster's administrator knows more"


def _too_large(request: Request) -> Refused:
    what = " ".join(filter(None, (request.verb, request.resource, request.name)))
    return Refused(
        f"{what}: it is larger than the API server takes",
        hint="leave out large files, or put them on a volume",
    )


def _brief(text: str, most: int = 300) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 3] + "..."
