"""HTTP to one registry as one user: the only file of this package with HTTP.

It finds the registry's scheme, logs in (with a password, or a token from the service that the registry
names), retries broken requests, and translates every foreign error and refusal into one that a user can act
on: the missing right, and how to log in. Its promise about secrets: a password goes to the registry itself or
to its token service, never in plain text where the registry was reached over TLS; tokens go to the registry,
not to the target of a redirect.
"""

from __future__ import annotations

import base64
import itertools
import json
import random
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from shlex import quote
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import SplitResult, urlsplit

from echelon.errors import Denied, EchelonError, Refused, Unavailable, Unreachable
from echelon.image.reference import HUB, Reference, is_loopback
from echelon.image.registry.credentials import Credential, find_credential
from echelon.values import frozen

if TYPE_CHECKING:
    import httpx2

_SCHEME = re.compile(r"\s*,?\s*([A-Za-z]+)(?:\s+|$)")
_PARAMETER = re.compile(r'\s*,?\s*([A-Za-z_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_MEANING = {"pull": "read", "push": "write to"}
T = TypeVar("T")
Content = Callable[[], Iterable[bytes]]
_TRIES = 5
_LONGEST_PAUSE = 30.0
_LARGEST_ERROR = 64 << 10
_LARGEST_TOKEN = 256 << 10
_HUB_HOST = "registry-1.docker.io"
# A registry may respond late to the last byte of a large layer: it moves and hashes it first.
_TIMEOUTS = {"connect": 10.0, "read": 300.0, "write": 60.0, "pool": 10.0}


@frozen
class Challenge:
    """What the registry wants: a password (basic), or a token from a token service (bearer)."""

    scheme: str  # basic or bearer
    realm: str = ""
    service: str = ""


def read_challenges(headers: Iterable[str]) -> Challenge | None:
    """The challenge that can be answered, bearer before basic; None if there is none."""
    found = [challenge for header in headers for challenge in _challenges(header)]
    for scheme in ("bearer", "basic"):
        for challenge in found:
            if challenge.scheme == scheme and (scheme == "basic" or challenge.realm):
                return challenge
    return None


def _challenges(header: str) -> list[Challenge]:
    found, at = [], 0
    while scheme := _SCHEME.match(header, at):
        at = scheme.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(header, at):
            at = parameter.end()
            quoted = re.sub(r"\\(.)", r"\1", parameter[2] or "")
            parameters.setdefault(parameter[1].lower(), quoted or parameter[3] or "")
        found.append(
            Challenge(
                scheme=scheme[1].lower(),
                realm=parameters.get("realm", ""),
                service=parameters.get("service", ""),
            )
        )
    return found


def registry_message(body: bytes) -> str:
    """The registry's own message, on one line and without control characters."""
    try:
        errors = json.loads(body)["errors"]
        said = "; ".join(
            ": ".join(str(each[key]) for key in ("code", "message") if each.get(key)) for each in errors
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        said = ""
    printable = "".join(letter if letter.isprintable() else " " for letter in said)
    return " ".join(printable.split())[:300]


def refusal(
    status: int, message: str, *, right: str, image: Reference, credential: Credential | None
) -> EchelonError:
    """The error for a response; `right` is what the request needed: pull or push."""
    place = f"{image.registry}/{image.repository}"
    said = f" (the registry says: {message})" if message else ""
    if status == 401 and credential is None:
        return Denied(
            f"{image.registry} wants a login to {_MEANING[right]} {image.repository}: you are not logged"
            f" in there, and need the right to {right}{said}",
            hint=log_in(image.registry),
        )
    if status == 401:
        return Denied(
            f"{image.registry} does not accept the login{_login_of(credential)}, or it lacks the right to"
            f" {right} {image.repository}{said}",
            hint=f"{log_in(image.registry)} as a user who may {right} {place}",
        )
    if status == 403:
        who = f"the login{_login_of(credential)}" if credential else "a user who is not logged in"
        return Denied(
            f"{who} lacks the right to {right} {place}{said}",
            hint=f"ask the registry's administrator for it, or {log_in(image.registry)} as a user who has it",
        )
    if status == 404 and right == "push":
        return Unavailable(
            f"{image.registry} has no repository {image.repository} to push to{said}",
            hint="create it there first, or check its name",
        )
    if status == 404:
        return Unavailable(f"there is no image {image}{said}", hint="check its name and tag")
    if status in (405, 415):
        return Refused(
            f"{image.registry} does not take images like this: status {status}{said}",
            hint="is it a registry that one can push to, and not a cache or a mirror?",
        )
    if status == 413:
        return Refused(
            f"{image.registry} finds a layer too large{said}",
            hint="a proxy before it may limit the size of uploads",
        )
    return Refused(
        f"{image.registry} answered with status {status}{said}",
        hint="is it an image registry?",
    )


def token_refusal(
    status: int, message: str, *, right: str, image: Reference, credential: Credential | None
) -> EchelonError:
    """The error when the token service gave no token."""
    if status in (400, 401, 403):
        return refusal(401, message, right=right, image=image, credential=credential)
    return refusal(status if status != 404 else 400, message, right=right, image=image, credential=credential)


def log_in(registry: str) -> str:
    """The command that stores a login where echelon finds it."""
    name = "" if registry == HUB else f" {quote(registry)}"
    return f"log in with `docker login{name}` or `podman login {quote(registry)}`"


def _login_of(credential: Credential | None) -> str:
    if credential is None:
        return ""
    who = f" of {credential.user}" if credential.user else ""
    return f"{who} from {credential.source}"


class Unsteady(Unreachable):
    """A temporary failure: a broken connection, an overloaded registry."""

    def __init__(self, message: str, *, hint: str = "", pause: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.pause = pause


class Transport:
    """Requests to one repository, with one right; `also` are further scopes for the token."""

    def __init__(
        self, image: Reference, right: str, *, also: Sequence[str] = (), plain_http: bool = False
    ) -> None:
        import httpx2

        self.image, self.right = image, right
        actions = "pull,push" if right == "push" else "pull"
        self._scopes = (f"repository:{image.repository}:{actions}", *also)
        self._host = _HUB_HOST if image.registry == HUB else image.registry
        self._plain_http = plain_http
        # Bytes must arrive as they are stored, since their digest is checked.
        headers = {"User-Agent": "echelon", "Accept-Encoding": "identity"}
        self._client = httpx2.Client(timeout=httpx2.Timeout(**_TIMEOUTS), headers=headers)
        self._origin = ""
        self._authorization = ""
        self._credential: Credential | None = None
        self._looked_up = False

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def origin(self) -> str:
        """Scheme and host; a registry on this machine may lack TLS, any other only with `plain_http`."""
        if not self._origin:
            scheme = "http" if self._plain_http else "https"
            if scheme == "https" and is_loopback(self.image.registry) and not self._speaks_tls():
                scheme = "http"
            self._origin = f"{scheme}://{self._host}"
        return self._origin

    @contextmanager
    def call(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: Content | None = None,
        fine: Sequence[int] = (200,),
    ) -> Iterator[httpx2.Response]:
        """One request, its response not yet read; a status that is not `fine` is raised as an error of ours.

        `path` begins after the origin, or is a whole address that the registry gave. Raises Unsteady for what
        `patiently` should retry.
        """
        url = path if "://" in path else self.origin() + path
        response = self._send(method, url, headers or {}, content)
        try:
            asked = response.headers.get_list("WWW-Authenticate")
            challenge = read_challenges(asked) if response.status_code == 401 else None
            if challenge is not None and 401 not in fine:
                self._finish(response)
                self._log_in(challenge)
                response = self._send(method, url, headers or {}, content)
                if response.status_code == 401 and self._is_known(challenge):
                    raise self._error(response, status=403)
            if response.status_code not in fine:
                raise self._error(response)
            with self._translated(url):
                yield response
        finally:
            self._finish(response)

    def read(self, response: httpx2.Response, limit: int, what: str) -> bytes:
        """A whole response; raises Refused if it exceeds the limit."""
        data = b""
        for piece in response.iter_raw():
            data += piece
            if len(data) > limit:
                raise Refused(f"{what} is larger than {limit} bytes", hint="is it the image that you meant?")
        return data

    def split(self, url: str) -> SplitResult:
        """An address from the registry, parsed."""
        try:
            return urlsplit(url)
        except ValueError as error:
            message = f"{self.image.registry} sends us to {url[:200]!r}, which is not an address"
            raise Refused(message, hint="is it an image registry?") from error

    def patiently(self, action: Callable[[], T]) -> T:
        """Retry an action with growing pauses while it raises Unsteady."""
        for attempt in itertools.count():
            try:
                return action()
            except Unsteady as trouble:
                self.rest(attempt, trouble)
        raise AssertionError("unreachable")

    def rest(self, attempt: int, trouble: Unsteady) -> None:
        """Wait after the nth failed attempt in a row, or give up."""
        if attempt >= _TRIES - 1:
            raise trouble
        usual = 0.5 * 2**attempt * random.uniform(0.75, 1.25)  # noqa: S311 - no secret
        time.sleep(usual if trouble.pause is None else min(trouble.pause, _LONGEST_PAUSE))

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], content: Content | None
    ) -> httpx2.Response:
        sent = dict(headers)
        if self._authorization and urlsplit(url)[:2] == urlsplit(self.origin())[:2]:
            sent["Authorization"] = self._authorization
        # Some registries take a client with their cookie for a browser, and ask for more proof.
        self._client.cookies.clear()
        with self._translated(url):
            request = self._client.build_request(
                method, url, headers=sent, content=content() if content is not None else None
            )
            # Blobs are often served by another host; the HTTP client drops the token on such a redirect.
            return self._client.send(request, stream=True, follow_redirects=method in ("GET", "HEAD"))

    def _finish(self, response: httpx2.Response) -> None:
        """Close a response; a short one is read to its end, so that its connection can be reused."""
        length = response.headers.get("Content-Length", "")
        short = response.request.method == "HEAD" or (length.isdecimal() and int(length) <= _LARGEST_ERROR)
        if short and not response.is_stream_consumed:
            with suppress(Unreachable, Refused), self._translated(str(response.url)):
                for _ in response.iter_raw():
                    pass
        response.close()

    def _log_in(self, challenge: Challenge) -> None:
        """Answer the registry's challenge, for the first time or because a token has expired."""
        if not self._looked_up:
            self._credential, self._looked_up = find_credential(self.image), True
        who = self._credential
        if who is not None and who.access_token:
            self._authorization = f"Bearer {who.access_token}"
        elif challenge.scheme == "basic":
            self._authorization = _basic(who) if who is not None and who.password else ""
        else:
            self._authorization = f"Bearer {self.patiently(lambda: self._token(challenge, who))}"

    def _token(self, challenge: Challenge, who: Credential | None) -> str:
        if self.split(challenge.realm).scheme not in ("https", urlsplit(self.origin()).scheme):
            raise Refused(
                f"{self.image.registry} wants your login to be sent in plain text to {challenge.realm}",
                hint="this is not safe: tell the registry's administrator",
            )
        query = {"service": challenge.service, "scope": self._scopes}
        with self._translated(challenge.realm):
            if who is not None and who.identity_token:
                form = {
                    "grant_type": "refresh_token",
                    "service": challenge.service,
                    "client_id": "echelon",
                    "scope": " ".join(self._scopes),
                    "refresh_token": who.identity_token,
                }
                request = self._client.build_request("POST", challenge.realm, data=form)
            else:
                headers = {"Authorization": _basic(who)} if who is not None else {}
                request = self._client.build_request("GET", challenge.realm, params=query, headers=headers)
            response = self._client.send(request, stream=True)
            try:
                if response.status_code != 200:
                    raise self._error(response, token=True)
                answer = self.read(response, _LARGEST_TOKEN, f"the token from {challenge.realm}")
            finally:
                response.close()
        try:
            document = json.loads(answer)
            token = document.get("token") or document.get("access_token")
        except (ValueError, AttributeError, RecursionError):
            token = None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise Refused(f"{challenge.realm} gave no token", hint=f"is {self.image.registry} a registry?")
        return token

    def _is_known(self, challenge: Challenge) -> bool:
        """Whether the token service accepted the login, so that only a right can be missing."""
        who = self._credential
        return challenge.scheme == "bearer" and who is not None and not who.access_token

    def _error(self, response: httpx2.Response, *, status: int = 0, token: bool = False) -> EchelonError:
        status = status or response.status_code
        body = b""
        with self._translated(str(response.url)):
            for piece in response.iter_raw():
                body += piece
                if len(body) > _LARGEST_ERROR:
                    break
        message = registry_message(body)
        if status == 429 or status >= 500:
            after = response.headers.get("Retry-After", "")
            return Unsteady(
                f"{self.image.registry} cannot answer now: status {status}" + f" ({message})" * bool(message),
                hint="try again later",
                pause=float(after) if after.isdecimal() else None,
            )
        translate = token_refusal if token else refusal
        return translate(status, message, right=self.right, image=self.image, credential=self._credential)

    def _speaks_tls(self) -> bool:
        import httpx2

        try:
            self._client.head(f"https://{self._host}/v2/")
        except httpx2.ConnectError as error:
            return isinstance(_cause(error), ssl.SSLCertVerificationError)
        except httpx2.HTTPError:
            return False
        return True

    @contextmanager
    def _translated(self, url: str) -> Iterator[None]:
        """Turn the HTTP client's errors into ours; only some of them are temporary."""
        import httpx2

        try:
            yield
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.TooManyRedirects) as error:
            raise Refused(
                f"{self.image.registry} sends us to {url[:200]!r}: {error}", hint="is it an image registry?"
            ) from error
        except httpx2.HTTPError as error:
            host, cause = urlsplit(url).netloc, _cause(error)
            message = f"{host} does not answer: {cause or type(error).__name__}"
            if isinstance(cause, ssl.SSLCertVerificationError):
                hint = "let SSL_CERT_FILE name the file with the authority that signed its certificate"
                raise Unreachable(message, hint=hint) from error
            if isinstance(cause, ssl.SSLError):
                hint = (
                    f"if it has no TLS, and you trust the network between: --plain-http {self.image.registry}"
                )
                raise Unreachable(message, hint=hint) from error
            if isinstance(cause, socket.gaierror):
                raise Unreachable(message, hint="check the registry's name, and your network") from error
            raise Unsteady(message, hint="check the registry's name, your network and proxy") from error


def _basic(who: Credential) -> str:
    return "Basic " + base64.b64encode(f"{who.user}:{who.password}".encode()).decode()


def _cause(error: BaseException | None) -> OSError | None:
    """The operating system's or TLS's error at the root of the HTTP client's."""
    while error is not None:
        if isinstance(error, OSError):
            return error
        error = error.__cause__ or error.__context__
    return None
