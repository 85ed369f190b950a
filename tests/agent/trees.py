"""Both ends of a copy for tests: a script that plays one of them, a stream between two, a tree to compare."""

from __future__ import annotations

import hashlib
import json
import socket
import stat
import threading
from pathlib import Path
from typing import Any

from tests.conftest import PATIENCE

from echelon.agent.files.receiver import Receiver
from echelon.agent.files.sender import Sender
from echelon.agent.files.wire import Broken, Wire

HELLO = {"files": 1, "root": "folder", "name": "x"}
LISTED = {"listed": 1}


def scripted(*parts: dict[str, Any] | bytes) -> Wire:
    """A wire at whose other end somebody says exactly this, and then is gone."""
    script = b"".join(
        part if isinstance(part, bytes) else json.dumps(part).encode() + b"\n" for part in parts
    )
    rest = [script]

    def receive(_seconds: float) -> bytes:
        piece, rest[0] = rest[0][:7], rest[0][7:]
        if not piece:
            raise Broken("the script is over")
        return piece

    return Wire(receive, lambda _data: None)


def entry(path: str, kind: str = "file", **more: object) -> dict[str, Any]:
    return {"path": path, "kind": kind, **more}


def sent(path: str, content: bytes, **more: object) -> bytes:
    header = {"path": path, "size": len(content), "mode": 0o644, "mtime": 5, "offset": 0, **more}
    trailer = {"path": path, "sha256": hashlib.sha256(content).hexdigest(), "changed": False}
    chunk = b"%d\n" % len(content) + content
    return json.dumps(header).encode() + b"\n" + chunk + json.dumps(trailer).encode() + b"\n"


def wires() -> tuple[Wire, Wire]:
    """Two ends of one stream."""
    ours, theirs = socket.socketpair()

    def wire(end: socket.socket) -> Wire:
        def receive(seconds: float) -> bytes:
            end.settimeout(seconds or 0.001)
            try:
                piece = end.recv(1 << 16)
            except TimeoutError:
                return b""
            if not piece:
                raise Broken("gone")
            return piece

        def send(data: bytes) -> None:
            end.settimeout(None)
            try:
                end.sendall(data)
            except OSError as error:
                raise Broken("gone") from error

        made = Wire(receive, send)
        made.close = end.close  # type: ignore[attr-defined]
        return made

    return wire(ours), wire(theirs)


def copy(source: Path, target: Path, **more: Any) -> dict[str, Any]:
    """Both ends in this process."""
    here, there = wires()
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(Sender(there, str(source)).run()))
    thread.start()
    try:
        outcome = Receiver(here, str(target), **more).run()
    finally:
        here.close()  # type: ignore[attr-defined]
        thread.join(PATIENCE)
        there.close()  # type: ignore[attr-defined]
    assert answers[0]["files"] == outcome["files"]
    assert answers[0]["left_out"] == outcome["left_out"]
    return outcome


def tree(folder: Path) -> dict[str, object]:
    """Everything below a folder, for comparison."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        about = path.lstat()
        if stat.S_ISLNK(about.st_mode):
            found[name] = f"-> {path.readlink()}"
        elif stat.S_ISDIR(about.st_mode):
            found[name] = "folder"
        else:
            found[name] = (path.read_bytes(), stat.S_IMODE(about.st_mode), about.st_mtime_ns)
    return found
