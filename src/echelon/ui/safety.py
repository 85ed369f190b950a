"""Who may talk to the server: this user's own browser, from the page that the server itself gave it.

Other users of the machine lack the token. Pages of other sites, in the same browser, lack the Origin; the
cookie is not sent with their requests either. A foreign name that leads to this machine (DNS rebinding) is
refused by the Host. docs/security.md lists the attacks and their tests."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from echelon.values import frozen

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

SESSION = "/api/session"
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    b"require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_READING = ("GET", "HEAD")


@frozen
class Keys:
    """What this server and its user know: `token` is in the address that is printed, `cookie` is what a
    browser gets for it. They end with the process.
    """

    token: str
    cookie: str
    port: int

    @property
    def cookie_name(self) -> str:
        """Browsers share cookies between the ports of a machine: each server has its own."""
        return f"echelon-{self.port}"

    @property
    def hosts(self) -> frozenset[str]:
        """The names by which this machine may be called."""
        return frozenset(f"{name}:{self.port}" for name in ("127.0.0.1", "localhost"))

    def is_token(self, text: str) -> bool:
        """Whether it is the token."""
        return hmac.compare_digest(text.encode(), self.token.encode())


def make_keys(port: int) -> Keys:
    """New ones."""
    return Keys(token=secrets.token_urlsafe(32), cookie=secrets.token_urlsafe(32), port=port)


class Guard:
    """Stands before the application, and lets through what is this user's."""

    def __init__(self, app: App, keys: Keys) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer or pass on one request."""
        if scope["type"] not in ("http", "websocket"):
            return
        refusal = refuse(scope, self._keys)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [name for name, _ in message.get("headers", ())]
                added = [pair for pair in HEADERS if pair[0] not in own]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        if refusal is None:
            await self._app(scope, receive, send_safely)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": refusal[1]})
        else:
            status, text = refusal
            body = f'{{"error": "{text}", "hint": "open the address that `echelon ui` printed"}}'.encode()
            headers = [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            await send_safely({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})


def refuse(scope: MutableMapping[str, Any], keys: Keys) -> tuple[int, str] | None:
    """Why a request is refused, with the status; None if it is not. Pure."""
    hosts, origins = _all(scope, b"host"), _all(scope, b"origin")
    if len(hosts) != 1 or hosts[0].lower() not in keys.hosts:
        return 421, "this server does not have that name"
    if any(origin != f"http://{hosts[0].lower()}" for origin in origins) or len(origins) > 1:
        return 403, "the request comes from another page"
    if any(site not in ("same-origin", "none") for site in _all(scope, b"sec-fetch-site")) and _is_api(scope):
        return 403, "the request comes from another page"
    changes = scope["type"] == "websocket" or scope["method"] not in _READING
    if changes and not origins:
        return 403, "the request does not say from which page it comes"
    if not _is_api(scope) or scope["path"] == SESSION:
        return None
    if _has_cookie(scope, keys) or (not changes and _has_bearer(scope, keys)):
        return None
    return 401, "the request has no valid cookie"


def _is_api(scope: MutableMapping[str, Any]) -> bool:
    """Pages and their scripts hold no secret: everything else is guarded."""
    return scope["type"] == "websocket" or not (
        scope["path"] == "/" or scope["path"].startswith("/static/") or scope["path"] == "/favicon.ico"
    )


def _has_cookie(scope: MutableMapping[str, Any], keys: Keys) -> bool:
    for text in _all(scope, b"cookie"):
        try:
            found = SimpleCookie(text).get(keys.cookie_name)
        except CookieError:
            continue
        if found is not None and hmac.compare_digest(found.value.encode(), keys.cookie.encode()):
            return True
    return False


def _has_bearer(scope: MutableMapping[str, Any], keys: Keys) -> bool:
    """For scripts; no page of another site can add this header."""
    return any(
        kind.lower() == "bearer" and keys.is_token(token.strip())
        for kind, _, token in (text.partition(" ") for text in _all(scope, b"authorization"))
    )


def _all(scope: MutableMapping[str, Any], name: bytes) -> list[str]:
    pairs: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1") for key, value in pairs if key.lower() == name]
