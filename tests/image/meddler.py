"""Somebody on the way to a real registry who loses, changes or invents answers: what one rarely sees."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from tests.conftest import PATIENCE


@dataclass(frozen=True, kw_only=True)
class Said:
    """An answer that the registry never gave."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Break the connection after this much of the real answer's body."""

    after: int


@dataclass(frozen=True, kw_only=True)
class Change:
    """Another body than the registry's, of the same length if that is to go unnoticed."""

    by: Callable[[bytes], bytes]


@dataclass(frozen=True, kw_only=True)
class Swallow:
    """Break the connection after this much of the request's body, and tell the registry nothing."""

    after: int


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]


class Meddler:
    """Answers at `address` as the registry behind it does, but for what `rule` says of a request."""

    def __init__(self, behind: str) -> None:
        self.rule: Callable[[Asked], Said | Cut | Change | Swallow | None] = lambda _asked: None
        self.asked: list[Asked] = []
        self.connections = 0
        meddler = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                meddler.connections += 1

            def _meddle(self) -> None:
                asked = Asked(method=self.command, path=self.path, headers=dict(self.headers))
                meddler.asked.append(asked)
                fault = meddler.rule(asked)
                length = int(self.headers.get("Content-Length", 0))
                if isinstance(fault, Swallow):
                    self.rfile.read(min(length, fault.after))
                    self.connection.close()
                    self.close_connection = True
                    return
                body = self.rfile.read(length)
                if isinstance(fault, Said):
                    self._say(fault.status, fault.headers, fault.body)
                    return
                connection = http.client.HTTPConnection(behind, timeout=PATIENCE)
                try:
                    connection.request(self.command, self.path, body=body or None, headers=dict(self.headers))
                    response = connection.getresponse()
                    content, headers = response.read(), dict(response.headers)
                finally:
                    connection.close()
                if isinstance(fault, Change):
                    content = fault.by(content)
                cut = fault.after if isinstance(fault, Cut) else None
                self._say(response.status, headers, content, cut=cut)

            def __getattr__(self, name: str) -> Callable[[], None]:
                if not name.startswith("do_"):
                    raise AttributeError(name)
                return self._meddle

            def _say(
                self, status: int, headers: Mapping[str, str], body: bytes, *, cut: int | None = None
            ) -> None:
                self.send_response_only(status)
                length = headers.get("Content-Length") if self.command == "HEAD" else None
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "transfer-encoding"):
                        self.send_header(name, value)
                self.send_header("Content-Length", length or str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body if cut is None else body[:cut])
                if cut is not None:
                    self.wfile.flush()
                    self.connection.close()
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (OSError, ValueError):
                    self.close_connection = True  # the other side left, or we closed it ourselves

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def once(self, fault: Said | Cut | Change | Swallow, *, method: str, part: str) -> None:
        """Meddle with the first request of a method to a path that holds `part`."""
        done: list[Asked] = []

        def rule(asked: Asked) -> Said | Cut | Change | Swallow | None:
            if not done and asked.method == method and part in asked.path:
                done.append(asked)
                return fault
            return None

        self.rule = rule
