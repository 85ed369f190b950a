"""A gate before the API server: every request passes through it, and it counts those that change something.

A test tells it to kill whoever asks at the n-th of them, before the request has gone through or when it has
and the answer is still on its way; or to lose that answer. So a client can be cut off at every step it takes,
without its help.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

from testbed.kubectl import Kubectl
from tests.conftest import PATIENCE

Moment = Literal["before", "after"]
# Of the writes of a submission, those that are made at the same time: code, the run's secret, its name in the
# network.
SHIPPED = range(1, 4)
_HOP = ("connection", "transfer-encoding", "content-length", "keep-alive")


def check_writes(seen: Sequence[str], wanted: Sequence[str], deadly: int) -> None:
    """Check the writes of a submission that was killed at one of them: it made, or tried, those before, and
    of what is made at the same time perhaps others.
    """
    first, last = SHIPPED.start, SHIPPED.stop
    assert deadly + 1 <= len(seen) <= (last if deadly in SHIPPED else deadly + 1), seen
    assert (seen[:first], seen[last:]) == (wanted[:first], wanted[last : len(seen)])
    assert not Counter(seen[first:last]) - Counter(wanted[first:last]), seen


class Gate:
    """A plain HTTP server that passes requests on as the administrator."""

    def __init__(self, kubectl: Kubectl, folder: Path) -> None:
        view = json.loads(kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        cluster, login = view["clusters"][0]["cluster"], view["users"][0]["user"]
        self._upstream = urlsplit(cluster["server"])
        self._tls = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        pair = [folder / "gate.crt", folder / "gate.key"]
        for path, key in zip(pair, ("client-certificate-data", "client-key-data"), strict=True):
            path.write_bytes(base64.b64decode(login[key]))
        self._tls.load_cert_chain(*map(str, pair))
        self._lock = threading.Lock()
        self._deadly: tuple[int, Moment] | None = None
        self._lost: int | None = None
        self._kill: Callable[[], object] = lambda: None
        self._armed = threading.Event()
        self.writes: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def watch(self, deadly: tuple[int, Moment] | None = None, *, lost: int | None = None) -> None:
        """Begin to count anew; at the write of that number (from 0 on) whoever asks dies, or, with `lost`, is
        told that the server did not answer in time.
        """
        with self._lock:
            self.writes = []
            self._deadly = deadly
            self._lost = lost
            self._armed.clear()

    def arm(self, kill: Callable[[], object]) -> None:
        """Say how whoever asks is killed; a deadly write waits for it."""
        with self._lock:
            self._kill = kill
            self._armed.set()

    def _count(self, method: str, path: str) -> int | None:
        if method == "GET" or "reviews" in path:
            return None
        with self._lock:
            words = urlsplit(path).path.partition("/namespaces/")[2].split("/")
            self.writes.append(f"{method} {words[1]}")
            return len(self.writes) - 1

    def _is_deadly(self, number: int | None, moment: Moment) -> bool:
        with self._lock:
            return number is not None and self._deadly == (number, moment)

    def _strike(self) -> None:
        # Whoever asks runs already when the test says how it is killed, and may be faster.
        assert self._armed.wait(PATIENCE), "nobody has said how to kill"
        self._kill()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                number = gate._count(self.command, self.path)
                if gate._is_deadly(number, "before"):
                    gate._strike()
                    self.close_connection = True
                    return
                sent = {
                    name: value
                    for name, value in self.headers.items()
                    if name.lower() not in (*_HOP, "host", "accept-encoding")
                }
                upstream = http.client.HTTPSConnection(
                    gate._upstream.hostname or "", gate._upstream.port, context=gate._tls, timeout=PATIENCE
                )
                try:
                    upstream.request(self.command, self.path, body or None, sent)
                    answer = upstream.getresponse()
                    content = answer.read()
                finally:
                    upstream.close()
                if gate._is_deadly(number, "after"):
                    gate._strike()
                    self.close_connection = True
                    return
                if number is not None and number == gate._lost:
                    content = b"the server did not answer in time"
                    self.send_response(504)
                else:
                    self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _pass  # noqa: N815 - the library's names

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the library
                """Say nothing."""

        return Handler
