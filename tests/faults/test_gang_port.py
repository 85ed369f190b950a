"""Strangers on the gang's port: wrong secrets, garbage, crowds.

A run takes no notice, and they learn nothing.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until

import echelon
from echelon.agent.gang.wire import encode, fresh_nonce, prove
from echelon.engines.local.folder.store import RunStore

SCRIPT = """
import os, time
print("up", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
print("done", flush=True)
"""


@pytest.fixture
def run(home: Path) -> Iterator[echelon.Run]:
    """Two workers that work until the file `go` appears; at the end they must have ended well."""
    Path("script.py").write_text(SCRIPT)
    started = echelon.run("script.py", workers=2)
    wait_until(lambda: started.status().state == "running", "the run to run")
    yield started
    Path("go").touch()
    status = started.wait(PATIENCE)
    assert (status.state, status.restarts) == ("succeeded", 0)
    assert [line.text for line in started.logs(rank=1)] == ["up", "done"]


def address(run: echelon.Run, home: Path) -> tuple[str, int]:
    task = json.loads(RunStore(home).dir(run.name).task.read_bytes())
    return task["leader"]["host"], task["leader"]["port"]


def hear(sock: socket.socket) -> bytes:
    """Everything until the other side hangs up."""
    sock.settimeout(PATIENCE)
    heard = b""
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(65536):
            heard += data
    return heard


def test_it_listens_on_loopback_only(run: echelon.Run, home: Path) -> None:
    host, port = address(run, home)
    assert host == "127.0.0.1"
    listening = [
        line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if f":{port:04X} " in line
    ]
    assert "0100007F:" + f"{port:04X}" in listening
    assert "00000000:" + f"{port:04X}" not in listening


@pytest.mark.parametrize("worker", [1, 0, 2, -1, "1", None, 10**30, True])
def test_a_wrong_secret_is_sent_away_without_a_word(run: echelon.Run, home: Path, worker: object) -> None:
    with socket.create_connection(address(run, home)) as sock:
        who = json.loads(sock.makefile("rb").readline())
        nonce = fresh_nonce()
        proof = prove(b"guess", "member", worker if isinstance(worker, int) else 1, who["nonce"], nonce)
        sock.sendall(
            encode({"say": "me", "worker": worker, "nonce": nonce, "proof": proof, "last_started": 5})
        )
        assert hear(sock) == b""


def test_a_proof_cannot_be_used_again(run: echelon.Run, home: Path) -> None:
    """What a worker sent once opens no other talk: the leader's number is new each time."""
    secret = RunStore(home).dir(run.name).secret.read_bytes()
    with socket.create_connection(address(run, home)) as first:
        old = json.loads(first.makefile("rb").readline())["nonce"]
    mine = fresh_nonce()
    with socket.create_connection(address(run, home)) as second:
        assert json.loads(second.makefile("rb").readline())["nonce"] != old
        second.sendall(
            encode({"say": "me", "worker": 1, "nonce": mine, "proof": prove(secret, "member", 1, old, mine)})
        )
        assert hear(second) == b""


@pytest.mark.parametrize("seed", range(6))
def test_garbage(run: echelon.Run, home: Path, seed: int) -> None:
    chance = random.Random(seed)
    pieces = [
        chance.randbytes(chance.randrange(1, 5000)),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\n" * 500,
        b"{" * 100_000,
        b'{"say": "start"}\n',
        b'["me"]\n',
        b'{"say": "me", "worker": 1, "nonce": 3, "proof": {}}\n',
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ]
    for piece in chance.sample(pieces, len(pieces)):
        with socket.create_connection(address(run, home)) as sock, contextlib.suppress(OSError):
            sock.sendall(piece)
            if chance.random() < 0.5:
                sock.shutdown(socket.SHUT_WR)


CROWD = """
import socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
held = []
for _ in range(count):
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex((host, port))
    held.append(sock)
print("all", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def crowd(host: str, port: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that open 3,000 connections in all and hold them; four, since one may be allowed no more than
    1,024 files.
    """
    words = [sys.executable, "-c", CROWD, host, str(port), "750"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with contextlib.ExitStack() as held:
        started = [subprocess.Popen(words, **pipes) for _ in range(4)]  # type: ignore[call-overload]
        for process in started:
            held.enter_context(process)  # closes its input, which ends it, and waits
        yield started


def test_a_crowd_that_says_nothing(run: echelon.Run, home: Path) -> None:
    """Thousands of connections, held open: the leader lets the oldest go, and a stop still comes through."""
    with crowd(*address(run, home)) as processes:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "all\n"
        leader = run.status().workers[0].pid
        wait_until(
            lambda: len(list(Path(f"/proc/{leader}/fd").iterdir())) < 700,
            "the waiting room to be of bounded size",
        )
        assert run.status().state == "running"


def test_a_crowd_at_the_door_does_not_keep_workers_out(home: Path) -> None:
    """Connections pour in while the gang forms."""
    Path("script.py").write_text("print('hello')")
    run = echelon.run("script.py", workers=4)
    task = RunStore(home).dir(run.name).task
    wait_until(task.exists, "the task file")
    with crowd(*address(run, home)):
        assert run.wait(PATIENCE).state == "succeeded"


def test_the_secret_is_nowhere_to_be_read(run: echelon.Run, home: Path) -> None:
    folder = RunStore(home).dir(run.name)
    secret = folder.secret.read_bytes()
    assert folder.secret.stat().st_mode & 0o077 == 0
    assert folder.path.stat().st_mode & 0o077 == 0
    for path in folder.path.rglob("*"):
        if path.is_file() and path != folder.secret:
            assert secret not in path.read_bytes(), path
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            assert secret not in (entry / "cmdline").read_bytes()
