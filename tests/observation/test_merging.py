"""Several streams as one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest
from tests.conftest import PATIENCE, wait_until

from echelon.errors import Unreachable
from echelon.observation.merging import Merged


def test_an_error_of_one_source_is_raised() -> None:
    def fails() -> Iterator[Sequence[int]]:
        yield [1]
        raise Unreachable("gone")

    stream = iter(Merged([fails, lambda: iter(())]))
    assert next(stream) == 1
    with pytest.raises(Unreachable):
        next(stream)


def test_a_stream_that_is_left_lets_its_sources_go() -> None:
    gone = threading.Event()

    def endless() -> Iterator[Sequence[int]]:
        try:
            while True:
                yield [1]
        finally:
            gone.set()

    stream = iter(Merged([endless]))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    wait_until(gone.is_set, "the source to end")
    assert gone.wait(PATIENCE)


def test_a_source_may_be_added_while_the_others_are_read() -> None:
    stream: Merged[int] = Merged([lambda: iter([[1], [2]])])
    found = []
    for item in stream:
        found.append(item)
        if item < 5:
            stream.add(lambda item=item: iter([[item * 10]]))
    assert sorted(found) == [1, 2, 10, 20]


def test_a_slow_reader_keeps_the_sources_waiting() -> None:
    made = 0

    def endless() -> Iterator[Sequence[int]]:
        nonlocal made
        while True:
            made += 1
            yield [made]

    stream = iter(Merged([endless]))
    assert [next(stream) for _ in range(1000)] == list(range(1, 1001))
    assert made < 1100
    stream.close()  # type: ignore[attr-defined]
