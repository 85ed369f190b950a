"""Copies whose other end was killed or stopped: the agent's process ends by itself, whatever blocks it."""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.trees import tree
from tests.conftest import PATIENCE, wait_until

from echelon.agent.files.command import BROKEN, _moved
from echelon.agent.files.receiver import Receiver
from echelon.agent.files.wire import SILENCE, Broken, Wire
from echelon.bundle.zipapp import agent_archive

SHORTLY = 0.5  # seconds, where a minute would be waited for
WAITS = (
    "import sys; from echelon.agent.files import wire; wire.SILENCE, wire.GRACE = map(float, sys.argv[1:3]); "
)
COMMAND = "from echelon.agent.files import command; sys.exit(command.main(sys.argv[3:]))"
STUCK = (
    "import time; from echelon.agent.files import sender; sender.entries_at = lambda _: time.sleep(3600); "
)
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start `files ...` as an agent does, with pipes that the test reads or does not. The kernel ends none of
    them on a busy machine but where the test gives it a short `grace`.
    """
    started: list[subprocess.Popen[bytes]] = []

    def begin(
        *words: str, silence: float = SHORTLY, grace: float = PATIENCE, program: str = COMMAND, **more: Any
    ) -> subprocess.Popen[bytes]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, **more}
        command = [sys.executable, "-c", WAITS + program, str(silence), str(grace), *words]
        process = subprocess.Popen(command, bufsize=0, **pipes)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait(PATIENCE)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A folder with a file that no pipe holds."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "large").write_bytes(bytes(5_000_000))
    return tmp_path / "source"


def ask(process: subprocess.Popen[bytes], path: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # one that gives up soon may have ended on a busy machine
        process.stdin.write(json.dumps({"path": path, "offset": 0}).encode() + b"\n")


def is_blocked(process: subprocess.Popen[bytes]) -> bool:
    """Whether the pipe that the process writes to is full: nobody reads it."""
    assert process.stdout is not None
    held = array.array("i", [0])
    fcntl.ioctl(process.stdout.fileno(), termios.FIONREAD, held)
    return held[0] >= 60_000


def test_a_sender_whose_reader_is_gone_without_a_trace_ends(start: Start, large: Path) -> None:
    process = start("send", str(large))
    ask(process, "large")
    assert process.wait(PATIENCE) == BROKEN


def test_a_sender_that_is_blocked_ends_as_soon_as_its_input_is_closed(start: Start, large: Path) -> None:
    process = start("send", str(large), silence=SILENCE)
    ask(process, "large")
    wait_until(lambda: is_blocked(process), "the pipe to be full")
    assert process.poll() is None
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(PATIENCE) == BROKEN


def test_a_receiver_to_which_nothing_is_sent_ends(start: Start, tmp_path: Path) -> None:
    assert start("receive", str(tmp_path / "target")).wait(PATIENCE) == BROKEN


def test_a_listing_that_nobody_reads_ends(start: Start, tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / f"{number:0200}").touch()
    assert start("list", str(tmp_path), grace=SHORTLY).wait(PATIENCE) == -signal.SIGALRM


def test_a_sender_that_waits_for_its_disk_ends(start: Start, tmp_path: Path) -> None:
    """Reading blocks outside the wire: here the listing of a folder, in which the process is stopped."""
    process = start("send", str(tmp_path), grace=SHORTLY, program=STUCK + COMMAND)
    assert process.wait(PATIENCE) == -signal.SIGALRM


def test_input_and_output_may_be_one_open_file(start: Start, large: Path, tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = start("send", str(large), silence=SILENCE, stdin=theirs, stdout=theirs)
        theirs.close()

        def receive(seconds: float) -> bytes:
            ours.settimeout(seconds or 0.001)
            try:
                return ours.recv(1 << 16) or _gone()
            except TimeoutError:
                return b""

        def send(data: bytes) -> None:
            ours.settimeout(None)
            ours.sendall(data)

        Receiver(Wire(receive, send), str(tmp_path / "target")).run()
        assert process.wait(PATIENCE) == 0
    assert tree(tmp_path / "target") == tree(large)


def _gone() -> bytes:
    raise Broken("gone")


def test_a_pod_is_not_kept_by_a_copy_that_is_blocked(start: Start, large: Path, tmp_path: Path) -> None:
    archive = tmp_path / "agent.pyz"
    archive.write_bytes(agent_archive())
    words = [sys.executable, str(archive), "files"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    with subprocess.Popen([*words, "send", str(large)], **pipes) as copy:
        ask(copy, "large")
        wait_until(lambda: is_blocked(copy), "the pipe to be full")
        assert subprocess.run([*words, "hold", "1"], timeout=PATIENCE, check=False).returncode == 0
        assert copy.poll() is None, "the copy itself has a minute"
        copy.kill()


def test_a_copy_that_moves_is_seen_to(start: Start, large: Path) -> None:
    process = start("send", str(large), silence=SILENCE)
    before = _moved(str(process.pid))
    ask(process, "large")
    wait_until(lambda: is_blocked(process), "the pipe to be full")
    after = _moved(str(process.pid))
    assert before != after
    assert process.stdout is not None
    os.read(process.stdout.fileno(), 1 << 16)
    wait_until(lambda: _moved(str(process.pid)) != after, "more to be sent")
