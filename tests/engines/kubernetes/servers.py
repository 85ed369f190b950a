"""Servers that say no, for the tests of what the diagnosis makes of it: a webhook and a registry."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from testbed import programs


@contextmanager
def refusing_webhook(folder: Path) -> Iterator[tuple[str, str]]:
    """A webhook that refuses every pod: its address, and the authority of its certificate."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=webhook"]
    files = ["-keyout", str(key), "-out", str(certificate), "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *words, *files], check=True, capture_output=True)

    class Refuse(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = {"message": "images come from the company's registry only", "code": 403}
            answer = {"uid": review["request"]["uid"], "allowed": False, "status": status}
            body = json.dumps({**review, "response": answer}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuse)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        authority = base64.b64encode(certificate.read_bytes()).decode()
        yield f"127.0.0.1:{server.server_address[1]}", authority
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def locked_registry(folder: Path) -> Iterator[str]:
    """A registry that nobody may read; on this machine's loopback, where TLS is not asked for."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (folder / "htpasswd").write_text("nobody:x\n")
    settings = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "images")}},
        "http": {"addr": f"127.0.0.1:{port}"},
        "auth": {"htpasswd": {"realm": "team", "path": str(folder / "htpasswd")}},
        "log": {"level": "error"},
    }
    path = folder / "registry.json"
    path.write_text(json.dumps(settings))
    process = subprocess.Popen(
        [str(programs.program("registry")), "serve", str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
