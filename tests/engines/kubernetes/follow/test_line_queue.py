"""A slow reader holds nothing up: what it has not taken is in a file, and comes in order."""

from __future__ import annotations

import queue
import random
from pathlib import Path

import pytest

from echelon.engines.kubernetes.follow.line_queue import SpillingQueue
from echelon.errors import Unreachable
from echelon.model.output.log import Line, parse_line


def batch(number: int) -> list[Line]:
    return [parse_line(b"1.0 %d [0] %s" % (number, b"x" * 1000), 0)]


def test_everything_comes_in_order(tmp_path: Path) -> None:
    chance = random.Random(1)
    lines = SpillingQueue(4, tmp_path)
    pods: list[dict[str, str]] = [{"name": "a"}, {"name": "b"}]
    put: list[tuple[str, int]] = []
    taken: list[tuple[str, int]] = []

    def take() -> None:
        pod, found = lines.get_nowait()
        taken.extend((pod["name"], line.sequence) for line in found)

    for number in range(5000):
        pod = pods[chance.randrange(20) == 0]
        put.append((pod["name"], number))
        lines.put((pod, batch(number)))
        if number % 1000 > 900:
            while lines.qsize():
                take()
    assert not list(tmp_path.iterdir())  # the file has no name, and goes with the process
    while lines.qsize():
        take()
    assert taken == put
    lines.close()


def test_an_end_and_an_error_keep_their_place(tmp_path: Path) -> None:
    lines = SpillingQueue(1, tmp_path)
    error = Unreachable("away", hint="wait")
    for item in (batch(0), batch(1), None, batch(2), error):
        lines.put(({}, item))
    got = [lines.get_nowait()[1] for _ in range(5)]
    assert got == [batch(0), batch(1), None, batch(2), error]
    lines.close()


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the queue is as long as its memory, and nothing that is in it is lost."""
    lines = SpillingQueue(2, tmp_path)

    def fails(_data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lines, "_append", fails)
    lines.put(({}, batch(0)))
    lines.put(({}, batch(1)))
    with pytest.raises(queue.Full):
        lines.put(({}, batch(2)), timeout=0.01)
    assert lines.get_nowait() == ({}, batch(0))
    lines.put(({}, batch(2)), timeout=0.01)
    assert [lines.get_nowait()[1][0].sequence for _ in range(2)] == [1, 2]
