"""The pseudo-terminal of a rank, and the messages to the user's: what a whole run does not show."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.conftest import wait_until

from echelon.agent.loop import Loop
from echelon.agent.ranks import frames
from echelon.agent.ranks import terminal as module
from echelon.agent.ranks.terminal import PlainText, RankTerminal


class Pair:
    """A rank's terminal, and the user's end of its connection."""

    def __init__(self, ahead: bytes = b"") -> None:
        self.loop = Loop()
        self.user, theirs = socket.socketpair()
        self.user.sendall(ahead)
        self.user.setblocking(False)
        self.terminal = RankTerminal(self.loop, theirs.detach())
        self._decoder = frames.Decoder()

    def end(self) -> None:
        self.terminal.close()
        self.user.close()
        self.turn()
        self.loop.close()

    def turn(self) -> None:
        """Let the agent do what it has to do now."""
        self.loop.call_later(0.01, self.loop.stop)
        self.loop.run()

    def read(self) -> list[tuple[bytes, bytes]]:
        """What has come to the user."""
        found = []
        try:
            while data := self.user.recv(65536):
                found += self._decoder.feed(data)
        except BlockingIOError:
            pass
        return found


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.end()


@pytest.mark.parametrize(
    ("program", "reads"),
    [
        ("input()", True),
        ("import pdb; pdb.set_trace()", True),
        ("import time; print(1); time.sleep(1000)", False),
        ("import os; os.read(os.pipe()[0], 1)", False),
    ],
)
def test_a_rank_that_waits_for_keys(pair: Pair, program: str, reads: bool) -> None:
    ours, theirs = pair.terminal.open()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs
    ) as rank:
        os.close(theirs)
        if reads:
            wait_until(lambda: pair.terminal.is_read_by(rank.pid), "its prompt")
        else:
            wait_until(lambda: _sleeps(rank.pid), "its sleep")
            assert not pair.terminal.is_read_by(rank.pid)
        rank.kill()
    os.close(ours)


def _sleeps(pid: int) -> bool:
    """Whether it waits for something else than a file that it imports."""
    call = Path(f"/proc/{pid}/syscall").read_text().split()
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return stat[0] == "S" and call[0] not in ("running", "-1")


def turning(pair: Pair, condition: Callable[[], object]) -> Callable[[], bool]:
    def look() -> bool:
        pair.turn()
        return bool(condition())

    return look


def test_a_terminal_that_takes_nothing_does_not_hold_the_rank_for_ever(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    drained: list[bool] = []
    pair.terminal.on_drained = lambda: drained.append(True)
    written = 0
    while not pair.terminal.full:
        pair.terminal.show(b"x" * 4096)
        written += 4096
    wait_until(turning(pair, lambda: drained), "the rank to go on")
    assert not pair.terminal.full
    pair.terminal.show(b"y" * 5000)
    shown: list[bytes] = []

    def take() -> bool:
        shown.extend(content for kind, content in pair.read() if kind == frames.OUTPUT)
        return b"5000 bytes were not shown" in shown[-1]

    wait_until(turning(pair, take), "the rest and a word about what is missing")
    assert b"".join(shown[:-1]) == b"x" * written
    pair.terminal.show(b"z")
    pair.turn()
    assert pair.read() == [(frames.OUTPUT, b"z")]


def test_a_rank_is_given_the_size_that_was_sent_ahead() -> None:
    made = Pair(frames.encode_size(11, 77))
    ours, slave = made.terminal.open()
    assert tuple(os.get_terminal_size(slave)) == (77, 11)
    for descriptor in (ours, slave):
        os.close(descriptor)
    made.end()


def test_what_is_typed_and_never_read_is_bounded(pair: Pair) -> None:
    ours, slave = pair.terminal.open()
    pair.user.setblocking(True)
    for _ in range(100):
        pair.user.sendall(frames.encode(frames.KEYS, b"k" * 4096))
        pair.turn()
    assert len(pair.terminal._keys) <= module._MOST_KEYS
    for descriptor in (ours, slave):
        os.close(descriptor)
    pair.user.setblocking(False)


def test_nonsense_closes_the_connection_and_not_the_rank(pair: Pair) -> None:
    ours, slave = pair.terminal.open()
    pair.user.sendall(b"!" * 10)
    pair.turn()
    pair.terminal.show(b"still here")
    assert frames.OUTPUT not in [kind for kind, _ in pair.read()]
    for descriptor in (ours, slave):
        os.close(descriptor)


@given(some.lists(some.tuples(some.sampled_from([frames.KEYS, frames.OUTPUT]), some.binary(max_size=50))))
def test_messages_survive_any_cut(messages: list[tuple[bytes, bytes]]) -> None:
    data = b"".join(frames.encode(*message) for message in messages)
    decoder = frames.Decoder()
    assert [found for at in range(len(data)) for found in decoder.feed(data[at : at + 1])] == messages
    assert frames.Decoder().feed(data) == messages


@given(some.lists(some.sampled_from([b"a", b"\r", b"\n", b"\r\n"])), some.integers(1, 3))
def test_lines_of_a_terminal_become_those_of_a_file(pieces: list[bytes], step: int) -> None:
    data = b"".join(pieces)
    text = PlainText()
    cut = [text.feed(data[at : at + step]) for at in range(0, len(data), step)]
    assert b"".join([*cut, text.rest()]) == data.replace(b"\r\n", b"\n")
