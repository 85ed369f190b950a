"""When to ask again, and lines that arrive in pieces."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from echelon.engines.kubernetes.client.http.session import LONGEST, asked_delay, next_delay
from echelon.engines.kubernetes.client.http.stream import split_lines

LEFT = st.floats(-10, 1000, allow_nan=False)


@given(st.integers(1, 10_000), LEFT)
def test_waiting_never_outlasts_patience(attempt: int, left: float) -> None:
    delay = next_delay(attempt, left)
    if left <= 0:
        assert delay is None
    else:
        assert delay is not None
        assert 0 < delay <= min(left, LONGEST)


@given(st.integers(1, 10_000), LEFT, st.floats(0, 1000, allow_nan=False))
def test_what_the_server_asks_for_is_kept_to(attempt: int, left: float, asked: float) -> None:
    assert next_delay(attempt, left, asked) == (asked if left > 0 and asked <= left else None)


def test_the_header() -> None:
    assert asked_delay("7") == 7.0
    assert asked_delay(" 0 ") == 0.0
    for word in (None, "", "soon", "-1", "1.5", "Fri, 31 Dec 1999 23:59:59 GMT"):
        assert asked_delay(word) is None


@given(
    st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b""))), st.lists(st.integers(0, 400))
)
def test_lines_from_pieces(lines: list[bytes], places: list[int]) -> None:
    text = b"".join(line + b"\n" for line in lines) + b"no end"
    marks = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    pieces = [text[start:end] for start, end in itertools.pairwise(marks)]
    assert list(split_lines(pieces)) == lines
