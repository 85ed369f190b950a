"""HTTP requests with the user's credentials, retried when that is safe and useful.

Expired credentials, a busy or restarting server and broken connections are handled here once; what remains is
raised as an error of ours. Safe to use from several threads."""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from echelon.engines.kubernetes.client.http.direct import (
    CONNECT,
    KEPT,
    KEPT_FOR,
    READ,
    Answer,
    Broken,
    Pool,
    TooLong,
    bounded,
    is_plain,
)
from echelon.engines.kubernetes.client.http.proxies import proxy_for
from echelon.engines.kubernetes.client.http.refusals import (
    NOT_NOW,
    Request,
    comes_from_a_node,
    is_hopeless,
    lacks_quota_for_a_moment,
    name_server,
    refusal,
    unreachable,
)
from echelon.engines.kubernetes.client.http.stream import Connection, Stream, Upgraded, switch_protocol
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.client.login.credentials import Credentials, Proof
from echelon.engines.kubernetes.client.login.trust import make_context
from echelon.errors import EchelonError, Unavailable, Unreachable

if TYPE_CHECKING:
    import httpx2

JSON = "application/json"

T = TypeVar("T")
R = TypeVar("R", bound="Answer | httpx2.Response")
Pairs = Sequence[tuple[str, str]]

STRANGERS_PATIENCE = 3.0  # seconds: a server that never answered is more likely a wrong address than busy
NODES_PATIENCE = 1.0  # seconds: `status` must not wait long for a dead node's log
FIRST, LONGEST = 0.1, 2.0  # seconds between two attempts


class Session:
    """Connections to one API server as one user."""

    def __init__(self, access: Access, patience: float) -> None:
        self.access = access
        self._patience = patience
        self._has_answered = False  # whether the server has ever answered
        self._credentials = Credentials(access)
        self._proxy = proxy_for(access.server, access.proxy, os.environ)
        self._lock = threading.Lock()
        self._trust: dict[tuple[bytes, bytes] | None, ssl.SSLContext] = {}
        self._clients: dict[tuple[bytes, bytes] | None, httpx2.Client] = {}
        self._pools: dict[tuple[bytes, bytes] | None, Pool] = {}
        self._is_direct = not self._proxy and is_plain(access.server)
        weakref.finalize(self, _close_all, self._clients, self._pools)

    def call(
        self,
        method: str,
        path: str,
        request: Request,
        *,
        params: Pairs = (),
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        again: bool,
    ) -> bytes:
        """One request and its whole response; `again` if the request is idempotent."""
        packed = "gzip" if self.access.compress else "identity"
        headers = [("Accept", accept), ("Accept-Encoding", packed)]
        if body is not None:
            headers.append(("Content-Type", content_type))

        def ask(proof: Proof) -> Answer | httpx2.Response:
            if self._is_direct:
                pool, said = self._pool(proof), self._complete(headers, proof)
                return pool.exchange(method, path, params, said, body)
            return self._open(proof, method, path, params, headers, body, read=READ, whole=True)

        return self._send(ask, request, again=again).content

    def stream(
        self,
        path: str,
        request: Request,
        decode: Callable[[Iterable[bytes]], Iterator[T]],
        *,
        params: Pairs = (),
        read: float | None,
        ends_in_silence: bool = False,
    ) -> Stream[T]:
        """A request whose response arrives piece by piece; `read` is how long it may be silent.

        A longer silence is a lost connection, or the normal end with `ends_in_silence`."""
        headers = [("Accept", "application/json, */*"), ("Accept-Encoding", "identity")]

        def send(connection: Connection) -> httpx2.Response:
            def ask(proof: Proof) -> httpx2.Response:
                return self._open(proof, "GET", path, params, headers, read=read, connection=connection)

            return self._send(ask, request, again=True, connection=connection)

        def translate(error: Exception) -> EchelonError | None:
            import httpx2

            if ends_in_silence and isinstance(error, httpx2.ReadTimeout):
                return None
            return unreachable(error, self.access, self._proxy)

        return Stream(send, decode, translate)

    def upgrade(self, path: str, request: Request, *, params: Pairs, headers: Pairs) -> Upgraded:
        """A request to switch to another protocol, on a connection of its own."""
        connection = Connection()
        with contextlib.ExitStack() as stack:
            stack.callback(connection.close)

            def ask(proof: Proof) -> httpx2.Response:
                return self._open(proof, "GET", path, params, headers, read=READ, connection=connection)

            response = self._send(ask, request, again=False, connection=connection)
            if response.status_code != 101:
                raise Unreachable(
                    f"{name_server(self.access)} does not open a WebSocket: it says {response.status_code}",
                    hint="a proxy between here and the server may not let WebSockets through",
                )
            upgraded = switch_protocol(response, connection)
            stack.pop_all()
        return upgraded

    def close(self) -> None:
        """Close every idle connection."""
        with self._lock:
            _close_all(self._clients, self._pools)

    def _send(
        self,
        ask: Callable[[Proof], R],
        request: Request,
        *,
        again: bool,
        connection: Connection | None = None,
    ) -> R:
        """Ask, and retry until there is a final response or the patience is over."""
        began = time.monotonic()
        deadline = began + (self._patience if self._has_answered else min(self._patience, STRANGERS_PATIENCE))
        attempt, renewed = 0, False
        while True:
            attempt += 1
            proof, asked = self._credentials.current(), None
            try:
                response = ask(proof)
            except Broken as broken:
                why = broken.__cause__ or broken
                trouble: EchelonError = unreachable(why, self.access, self._proxy)
                if is_hopeless(why) or broken.for_good or not (again or broken.never_made):
                    raise trouble from why
            else:
                code = response.status_code
                if not self._has_answered:
                    self._has_answered, deadline = True, began + self._patience
                if code < 300:
                    return response
                if code == 401 and not renewed and self._credentials.renew(proof):
                    renewed = True
                    continue
                content = response.content
                trouble = self._refusal(code, content, request)
                if not (
                    code == 429 or (again and code in NOT_NOW) or lacks_quota_for_a_moment(code, content)
                ):
                    raise trouble
                if comes_from_a_node(code, request):
                    deadline = min(deadline, began + NODES_PATIENCE)
                asked = asked_delay(response.headers.get("retry-after"))
            delay = next_delay(attempt, deadline - time.monotonic(), asked)
            if delay is None:
                raise trouble
            if connection is None:
                time.sleep(delay)
            elif connection.is_cut.wait(delay):
                raise trouble

    def _open(
        self,
        proof: Proof,
        method: str,
        path: str,
        params: Pairs,
        headers: Pairs,
        body: bytes | None = None,
        *,
        read: float | None,
        connection: Connection | None = None,
        whole: bool = False,
    ) -> httpx2.Response:
        """One request by the HTTP library; what is no success, or wanted as a `whole`, has been read."""
        import httpx2

        client = self._client(proof, connection)
        prepared = client.build_request(
            method,
            self._address(path),
            params=list(params),
            headers=self._complete(headers, proof),
            content=body,
            # The library counts the TLS handshake as connecting, and a slow server takes its time for that.
            timeout=httpx2.Timeout(
                READ, connect=READ if self._has_answered else CONNECT, read=read, pool=None
            ),
            extensions=self._extensions(connection),
        )
        try:
            response = client.send(prepared, stream=True)
            if whole or response.status_code >= 300:
                # An answer has all that is used of a response which was read.
                return cast("httpx2.Response", _whole(response))
        except TooLong as error:
            raise Broken(never_made=False, for_good=True) from error
        except (httpx2.HTTPError, OSError) as error:
            never = isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError))
            final = isinstance(error, httpx2.UnsupportedProtocol)
            raise Broken(never_made=never, for_good=final) from error
        return response

    def _complete(self, headers: Pairs, proof: Proof) -> list[tuple[bytes, bytes]]:
        proving = [("Authorization", proof.authorization)] if proof.authorization else []
        agent = [("User-Agent", "echelon")]
        # The HTTP library encodes headers as ASCII; user names may have other characters.
        return [
            (name.encode(), value.encode())
            for name, value in (*headers, *agent, *proving, *self.access.login.act_as)
        ]

    def _refusal(self, code: int, content: bytes, request: Request) -> EchelonError:
        if code >= 400:
            return refusal(code, content, request, self.access)
        return Unreachable(
            f"{name_server(self.access)} sends us elsewhere ({code}): it does not behave as an API server",
            hint="log in again, or check the server's address in the kubeconfig",
        )

    def _address(self, path: str) -> httpx2.URL:
        import httpx2

        try:
            return httpx2.URL(self.access.server + path)
        except httpx2.InvalidURL as error:
            raise Unavailable(
                f"{self.access.server} is not an address of a server: {error}",
                hint="correct `server` in the kubeconfig",
            ) from None

    def _extensions(self, connection: Connection | None) -> dict[str, object]:
        extensions: dict[str, object] = {}
        if self.access.server_name:
            extensions["sni_hostname"] = self.access.server_name
        if connection is not None:
            extensions["trace"] = connection.trace
        return extensions

    def _client(self, proof: Proof, connection: Connection | None) -> httpx2.Client:
        """The shared HTTP client, or a new one for a `connection` of its own."""
        with self._lock:
            if connection is not None:
                if connection.client is not None:
                    connection.client.close()
                connection.client = self._connect(proof)
                return connection.client
            client = self._clients.get(proof.pair)
            if client is None:
                client = self._clients[proof.pair] = self._connect(proof)
            return client

    def _pool(self, proof: Proof) -> Pool:
        """The connections for whole responses."""
        with self._lock:
            pool = self._pools.get(proof.pair)
            if pool is None:
                tls = self._context(proof)
                pool = self._pools[proof.pair] = Pool(self.access.server, tls, self.access.server_name)
            return pool

    def _context(self, proof: Proof) -> ssl.SSLContext:
        if proof.pair not in self._trust:
            self._trust[proof.pair] = make_context(self.access, proof.pair)
        return self._trust[proof.pair]

    def _connect(self, proof: Proof) -> httpx2.Client:
        import httpx2

        try:
            return httpx2.Client(
                verify=self._context(proof),
                proxy=self._proxy or None,
                limits=httpx2.Limits(
                    max_connections=None, max_keepalive_connections=KEPT, keepalive_expiry=KEPT_FOR
                ),
                trust_env=False,  # no .netrc; proxies are decided in `proxies`
            )
        except ImportError as error:
            raise Unavailable(
                "a SOCKS proxy needs the package socksio, which is not installed",
                hint="`pip install socksio`, or use an HTTP proxy",
            ) from error


def _whole(response: httpx2.Response) -> Answer:
    with contextlib.closing(response):
        content = bounded(response.iter_bytes())
    return Answer(status_code=response.status_code, headers=response.headers, content=content)


def _close_all(
    clients: dict[tuple[bytes, bytes] | None, httpx2.Client], pools: dict[tuple[bytes, bytes] | None, Pool]
) -> None:
    while clients:
        clients.popitem()[1].close()
    while pools:
        pools.popitem()[1].close()


def next_delay(attempt: int, left: float, asked: float | None = None) -> float | None:
    """Seconds to wait after attempt number `attempt` (from 1), or None when the patience is over.

    `asked` is the server's Retry-After; it is respected unless it exceeds the patience."""
    if left <= 0:
        return None
    if asked is not None:
        return asked if asked <= left else None
    longest = min(LONGEST, FIRST * 2.0 ** min(attempt - 1, 10))
    # Half of the delay is random, so that clients that lost the server together do not return together.
    return min(left, longest * (0.5 + os.urandom(1)[0] / 510))


def asked_delay(header: str | None) -> float | None:
    """The seconds of a Retry-After header. API servers send a number; a date is ignored."""
    seconds = (header or "").strip()
    return float(seconds) if seconds.isdecimal() else None
