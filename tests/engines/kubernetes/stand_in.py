"""A server on this machine that speaks HTTPS as an API server does, and misbehaves as the test asks.

It stands in for what a real API server does too rarely to be tested: being busy, cutting connections,
forgetting a user. The rest is tested against a real one."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.conftest import PATIENCE

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificates:
    authority: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """One request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = field(repr=False)
    client: dict[str, Any] | None  # the certificate that was shown
    port: int  # the client's side of the connection


def make_certificates(folder: Path) -> Certificates:
    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(
        "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=authority"
    )
    for name, names in (("server", "IP:127.0.0.1,DNS:api.example"), ("client", "DNS:client")):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/O=team/CN={name}")
        (folder / "names").write_text(f"subjectAltName={names}")
        signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *signed)
    return Certificates(
        authority=folder / "ca.crt",
        server=folder / "server.crt",
        server_key=folder / "server.key",
        client=folder / "client.crt",
        client_key=folder / "client.key",
    )


class StandIn:
    """Answers requests in turn, each as `answers` says; the last answer is given to all that follow."""

    def __init__(self, certificates: Certificates, *, port: int = 0) -> None:
        self.answers: list[Answer] = [says(200, POD)]
        self.seen: list[Seen] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                outer._answer(self)

            do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 - http.server's names

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # clients that go away are what is tested

        self._server = Server(("127.0.0.1", port), Handler, bind_and_activate=False)
        self._server.allow_reuse_address = True
        self._server.server_bind()
        self._server.server_activate()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.server, certificates.server_key)
        context.load_verify_locations(certificates.authority)
        context.verify_mode = ssl.CERT_OPTIONAL
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._lock = threading.Lock()
        self.port = self._server.server_address[1]
        self.url = f"https://127.0.0.1:{self.port}"

    def answer_with(self, *answers: Answer) -> None:
        self.answers = list(answers)

    def paths(self) -> list[str]:
        return [seen.path for seen in self.seen]

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        with self._lock:
            self.seen.append(
                Seen(
                    method=handler.command,
                    path=handler.path,
                    headers={name.lower(): value for name, value in handler.headers.items()},
                    body=body,
                    client=handler.connection.getpeercert(),  # type: ignore[attr-defined]
                    port=handler.client_address[1],
                )
            )
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        with suppress(OSError):
            answer(handler)


def says(code: int, body: object, **headers: str) -> Answer:
    """A whole answer; `retry_after="1"` is a header."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def refuses(code: int, reason: str, message: str, **more: object) -> Answer:
    """The API server's own way of saying no."""
    return says(
        code,
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        | {"reason": reason, "message": message}
        | more,
    )


def cuts(handler: BaseHTTPRequestHandler) -> None:
    """No answer: the connection is gone."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def waits(until: threading.Event) -> Answer:
    """No answer for as long as the test likes."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        until.wait(PATIENCE)
        cuts(handler)

    return answer


def streams(pieces: Sequence[bytes], *, then: Answer | None = None) -> Answer:
    """An answer in pieces; then its end, or something else."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if then is not None:
            then(handler)
        else:
            handler.wfile.write(b"0\r\n\r\n")

    return answer


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "uid": "1-2-3"},
    "spec": {},
    "status": {},
}
BUSY = refuses(503, "ServiceUnavailable", "starting")


class Proxy:
    """An HTTP proxy that knows CONNECT, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(
                    target=self._connect, args=(self._listener.accept()[0],), daemon=True
                ).start()

    def _connect(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request:
                request += client.recv(4096)
            self.asked.append(request)
            host, _, port = request.split()[1].decode().rpartition(":")
            with socket.create_connection((host, int(port))) as server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=_pour, args=(server, client), daemon=True)
                back.start()
                _pour(client, server)
                back.join()


def _pour(source: socket.socket, drain: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            drain.sendall(data)
    with suppress(OSError):
        drain.shutdown(socket.SHUT_WR)
