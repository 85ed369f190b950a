"""A client that knows what a browser knows, and an engine with runs to look at."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from tests.conftest import PATIENCE

from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act, Program
from echelon.model.job import Job
from echelon.preparation.prepare import Prepared
from echelon.submit import submit
from echelon.ui.server import Server

Answer = tuple[int, dict[str, str], bytes]


class Client:
    """HTTP as a test writes it: every header is the test's own."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.origin = server.origin
        self.host = server.origin.removeprefix("http://")
        self.port = int(self.host.rpartition(":")[2])
        self.token = server.address.rpartition("=")[2]
        self.cookie = ""

    def raw(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Answer:
        head = {"connection": "close", "content-length": str(len(body)), **headers}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as made:
            made.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            found = b"".join(iter(lambda: made.recv(65536), b""))
        top, _, content = found.partition(b"\r\n\r\n")
        first, *rest = top.decode().split("\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
        return int(first.split()[1]), fields, content

    def enter(self) -> Client:
        status, fields, _ = self.post("/api/session", {"token": self.token})
        assert status == 204
        self.cookie = fields["set-cookie"].partition(";")[0]
        return self

    def get(self, path: str, **headers: str) -> Answer:
        return self.raw("GET", path, {"host": self.host, "cookie": self.cookie, **headers})

    def data(self, path: str) -> Any:
        status, _, content = self.get(path)
        assert status == 200, content
        return json.loads(content)

    def post(self, path: str, body: object = None, **headers: str) -> Answer:
        own = {"host": self.host, "origin": self.origin, "cookie": self.cookie, **headers}
        return self.raw("POST", path, own, json.dumps(body or {}).encode())


HOSTILE = "<script>alert(1)</script> \x1b]0;title\x07\x1b[31mred\x1b[0m \u202etxt"


def training(rank: int, restart: int) -> Act:
    del restart
    lines = [f"step={step} loss={1 / (step + 1):.3f}" for step in range(5)]
    return Act(lines=(*lines, HOSTILE, f"only rank {rank}: Needle"), files={"model.pt": b"weights"})


def engine_with(results: Path | None = None, **runs: Program) -> MemoryEngine:
    """An engine with one run for each program."""
    engine = MemoryEngine({f"{name}.py": program for name, program in runs.items()})
    for name in runs:
        folder = None if results is None else str(results)
        job = Job(name=name, script=f"{name}.py", workers=2, results=folder, framework="plain")
        submit(Prepared(job=job), engine, stays=False)
    return engine
