"""Why a request failed, in the words of a person who must do something about it.

The one border at which the network's and the API server's troubles become errors of ours: connections that
are not made or cut, 401 and 403 with who may not do what, 404, 409, 410, and whatever else the server says no
to. Nothing here talks to anybody. Called by `session` and `answers`; the engine catches the subclasses."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from dataclasses import dataclass
from typing import Any

import msgspec

from echelon.engines.kubernetes.client.access import Access
from echelon.engines.kubernetes.client.credentials import log_in_again
from echelon.engines.kubernetes.client.kinds import Kind, NotThere
from echelon.engines.kubernetes.client.proxies import without_password
from echelon.errors import Denied, EchelonError, Refused, Unreachable

Object = dict[str, Any]

# The server did not come to a decision, and may if it is asked again.
NOT_NOW = frozenset({429, 500, 502, 503, 504})
LACKS_RIGHT = re.compile(r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) (?:resource|path) "(?P<what>[^"]*)"')
SERVICE_ACCOUNT = "system:serviceaccount:"
ANONYMOUS = "system:anonymous"  # somebody who has shown nothing


class AlreadyThere(Refused):
    """An object of that name exists."""


class Conflict(Refused):
    """The object has changed since it was read, or is not the one that was meant."""


class Gone(Refused):
    """The version to go on from is too old: list again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Deed:
    """What was asked of the API server, for the message when it fails."""

    verb: str  # get, list, watch, create, patch, delete
    kind: Kind | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    path: str = ""

    @property
    def resource(self) -> str:
        """As roles name it: `pods/log`, `jobs.batch`."""
        if self.kind is None:
            return self.path
        below = f"/{self.subresource}" if self.subresource else ""
        group = f".{self.kind.group}" if self.kind.group else ""
        return f"{self.kind.plural}{group}{below}"

    @property
    def place(self) -> str:
        """The namespace of the deed, if it has one."""
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
    """Whether trying again cannot help: a certificate, or a name that does not exist."""
    root = root_of(error)
    if isinstance(root, socket.gaierror):
        return root.errno == socket.EAI_NONAME
    return isinstance(root, ssl.SSLCertVerificationError)


def unreachable(error: BaseException, access: Access, proxy: str = "") -> Unreachable:
    """A connection that could not be made, or was cut, as an error that says which server and why."""
    server = name_server(access)
    through = f" through the proxy {without_password(proxy)}" if proxy else ""
    reason, hint = _reason(root_of(error), access)
    return Unreachable(f"cannot reach {server}{through}: {reason}", hint=hint)


def _reason(root: BaseException, access: Access) -> tuple[str, str]:
    check = "check the network or VPN, and that this context is the one you mean"
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
        words = error.verify_message or "it cannot be verified"
        if "expired" in words or "not yet valid" in words:
            hint = "is this machine's clock right? If it is, the server's certificate must be renewed"
        elif "mismatch" in words or "not valid for" in words:
            hint = "tls-server-name in the kubeconfig says which name the certificate carries"
        else:
            hint = "certificate-authority(-data) in the kubeconfig must hold the authority that signed it"
        return f"its certificate is not trusted: {words}", hint
    reason = (error.reason or "").lower().replace("_", " ")
    if "alert" in reason:
        return f"it does not accept the client's side of TLS: {reason}", log_in_again(access)
    if "wrong version number" in reason or "http request" in reason:
        return "it does not speak TLS there", "check http:// or https:// and the port in the kubeconfig"
    return f"TLS failed: {reason or error}", "try again; the API server may be restarting"


def refusal(code: int, body: bytes, deed: Deed, access: Access) -> EchelonError:
    """An answer of 400 or more as an error of ours."""
    status = _status(body)
    if status is not None:
        return from_status(status | {"code": code}, deed, access)
    server = name_server(access)
    if code == 401:
        return _unknown_user(access, "")
    if code == 403:
        words = "somebody before it, such as a proxy, says 403 Forbidden"
        return Denied(f"{server} was not asked: {words}", hint=log_in_again(access))
    said = _brief(re.sub(rb"<[^>]*>", b" ", body[:2000]).decode(errors="replace"))
    words = f"{code} {said}".strip()
    if code in NOT_NOW:
        return Unreachable(f"{server} cannot answer now: {words}", hint="try again in a moment")
    if code == 404:
        return NotThere(f"{server} has no {deed.resource}: {words}", hint="check the server's address")
    if code == 413:
        return _too_large(deed)
    return Refused(
        f"{server} said no to {deed.verb} {deed.resource}: {words}", hint=_refusal_hint(words, code)
    )


def from_status(status: Object, deed: Deed, access: Access) -> EchelonError:
    """The API server's own words for a failure (a `Status` object) as an error of ours."""
    code, reason = int(status.get("code") or 0), str(status.get("reason") or "")
    words = _brief(str(status.get("message") or reason or "no reason given"), 2000)
    server = name_server(access)
    if code == 401:
        return _unknown_user(access, words)
    if code == 403:
        return _forbidden(words, deed, access)
    if code == 404:
        return NotThere(words, hint=_missing_hint(words, deed))
    if code == 409:
        if reason == "AlreadyExists":
            return AlreadyThere(words, hint="choose another name, or remove what is there")
        return Conflict(words, hint="somebody else changed it at the same time; try again")
    if code == 410 or reason == "Expired":
        return Gone(words, hint="list again and go on from there")
    if code == 413 or reason == "RequestEntityTooLarge":
        return _too_large(deed)
    if code == 429:
        return Unreachable(f"{server} has too much to do: {words}", hint="try again in a moment")
    if code in NOT_NOW and code != 500:
        return Unreachable(f"{server} cannot answer now: {words}", hint="try again in a moment")
    return Refused(f"the cluster said no: {words}", hint=_refusal_hint(words, code))


def comes_from_a_node(code: int, deed: Deed) -> bool:
    """Whether the server is well, and a node that it asked for a log did not answer: perhaps it is dead."""
    return code == 500 and deed.subresource == "log"


def lacks_quota_for_a_moment(code: int, body: bytes) -> bool:
    """Whether a creation failed only because two were counted against a quota at once; nothing was made."""
    status = _status(body) if code == 409 else None
    return status is not None and (status.get("details") or {}).get("kind") == "resourcequotas"


def _status(body: bytes) -> Object | None:
    try:
        status = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return status if isinstance(status, dict) and status.get("kind") == "Status" else None


def _unknown_user(access: Access, words: str) -> Denied:
    whose = f" as user {access.user!r}" if access.user else ""
    said = f": {words}" if words and words != "Unauthorized" else ""
    return Denied(f"{name_server(access)} does not accept you{whose}{said}", hint=log_in_again(access))


def _forbidden(words: str, deed: Deed, access: Access) -> EchelonError:
    lacking = LACKS_RIGHT.search(words)
    if lacking is None:  # quota, Pod Security, an admission plugin: it is the object that is not wanted
        return Refused(f"the cluster said no: {words}", hint=_refusal_hint(words, 403))
    user, verb = lacking["user"], lacking["verb"]
    if user == ANONYMOUS:
        return _unknown_user(access, "")
    where = f" in namespace {deed.place}" if deed.place else ""
    return Denied(
        f"you (user {user}) may not {verb} {deed.resource}{where}",
        hint=f"an administrator can allow it: {role_commands(user, verb, deed)}",
    )


def role_commands(user: str, verb: str, deed: Deed) -> str:
    """What an administrator types to allow a deed."""
    if user.startswith(SERVICE_ACCOUNT):
        subject = f"--serviceaccount={user.removeprefix(SERVICE_ACCOUNT)}"
    else:
        subject = f"--user={user}"
    name = "echelon-" + re.sub(r"[^a-z0-9]+", "-", f"{verb}-{deed.resource}".lower()).strip("-")
    if not deed.place:
        what = f"--resource={deed.resource}" if deed.kind else f"--non-resource-url={deed.path}"
        return (
            f"kubectl create clusterrole {name} --verb={verb} {what} && "
            f"kubectl create clusterrolebinding {name} --clusterrole={name} {subject}"
        )
    return (
        f"kubectl -n {deed.place} create role {name} --verb={verb} --resource={deed.resource} && "
        f"kubectl -n {deed.place} create rolebinding {name} --role={name} {subject}"
    )


def _missing_hint(words: str, deed: Deed) -> str:
    if re.search(r'namespaces "[^"]*" not found', words):
        return f"`kubectl create namespace {deed.place}` makes it, or choose another with --namespace"
    return "check the name, the namespace and the context"


def _refusal_hint(words: str, code: int) -> str:
    if "exceeded quota" in words:
        return "`kubectl describe resourcequota` shows what is used; ask for less, or for a larger quota"
    if "violates PodSecurity" in words:
        return "the namespace's Pod Security level forbids it; `echelon doctor --on k8s` says which it is"
    if "webhook" in words:
        return "a webhook of this cluster decides it; its administrator knows the rule"
    if "being terminated" in words:
        return "wait until the namespace is gone, or use another"
    if code in (400, 422):
        return "the object is not what this cluster accepts"
    return "try again; if it stays so, the cluster's administrator knows more"


def _too_large(deed: Deed) -> Refused:
    return Refused(
        f"{deed.verb} {deed.resource} {deed.name}: it is larger than the API server takes".replace("  ", " "),
        hint="leave out large files, or put them on a volume",
    )


def _brief(text: str, most: int = 300) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 3] + "..."
