"""That every line of every pod comes once, and what is missing is named."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import PATIENCE, wait_until
from tests.engines.kubernetes.small import RUNNING, ended, pod, pod_object
from tests.engines.kubernetes.stand_in import Answer, StandIn, cuts, refuses, says, streams, waits
from tests.engines.kubernetes.typed import as_pod

from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.http.stream import split_lines
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.follow.logs import _Read, is_last_line, read_all, read_pod, read_recent
from echelon.engines.kubernetes.pods import Pod
from echelon.errors import Denied, Unreachable
from echelon.model.output.log import EventLine, LogLine, is_gap, parse_line


@pytest.fixture
def api(access: Access, stand_in: StandIn) -> Api:
    return Api(access, "ours", patience=0.1)


def line(number: int, text: str = "") -> bytes:
    return b"%d.500 %d [0] %s" % (1000 + number, number, (text or f"line {number}").encode())


def log(*lines: bytes) -> bytes:
    return b"".join(each + b"\n" for each in lines)


def lines_of(api: Api, of: Pod, **more: Any) -> Iterator[LogLine | EventLine]:
    return itertools.chain.from_iterable(read_pod(api, of, **more))


def texts(lines: Iterator[LogLine | EventLine]) -> list[str]:
    return [each.text for each in lines if isinstance(each, LogLine)]


class Flag:
    """Whether a container has ended: no at first, then yes."""

    def __init__(self, noes: int) -> None:
        self._noes = itertools.count(-noes)

    def __call__(self) -> bool:
        return next(self._noes) >= 0


# Lines that come again


@given(data=st.data())
def test_every_line_once_however_often_the_connection_breaks(data: st.DataObject) -> None:
    """The log is read in connections that end anywhere, and begin anywhere before what was read last."""
    numbered = data.draw(st.lists(st.booleans(), max_size=30))
    numbers = itertools.count()
    lines = [line(next(numbers)) if has else b"word %d" % at for at, has in enumerate(numbered)]
    read, got, end = _Read(), [], 0
    while end < len(lines):
        earliest = max((at for at in range(end) if numbered[at]), default=0)
        begin = data.draw(st.integers(0, earliest))
        if read.last == -1:
            begin = 0  # nothing to ask from: all of it comes again
        end = data.draw(st.integers(min(end + 1, len(lines)), len(lines)))
        got += itertools.chain.from_iterable(read.fresh([lines[begin:end]], 3))
    assert got == [parse_line(each, 3) for each in lines]


@given(text=st.binary(max_size=200), cuts_at=st.lists(st.integers(0, 200)))
def test_lines_are_put_together(text: bytes, cuts_at: list[int]) -> None:
    edges = [0, *sorted(cuts_at), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    *whole, rest = text.split(b"\n")
    assert list(split_lines(pieces, with_rest=False)) == whole
    assert list(split_lines(pieces, with_rest=True)) == whole + ([rest] if rest else [])


def test_a_gap_is_told_in_its_place() -> None:
    read = _Read()
    (got,) = read.fresh([[line(3), line(4), line(6)]], 1)
    assert [each.text if isinstance(each, LogLine) else "" for each in got] == [
        "[3 lines are missing here: the cluster has thrown them away]",
        "line 3",
        "line 4",
        "[1 line is missing here: the cluster has thrown them away]",
        "line 6",
    ]
    assert [is_gap(each) for each in got] == [True, False, False, True, False]


# One pod


@pytest.mark.parametrize("politely", [True, False])
def test_a_line_that_was_cut_comes_whole(api: Api, stand_in: StandIn, politely: bool) -> None:
    begun = log(line(0)) + line(1, "not all of it")[:-6]
    everything = log(line(0), line(1, "not all of it"), line(2))
    stand_in.answer_with(streams([begun], then=None if politely else cuts), streams([everything]))
    got = lines_of(api, pod(state=RUNNING), follow=True, ended=Flag(2))
    assert texts(got) == ["line 0", "not all of it", "line 2"]
    assert "sinceTime=1970-01-01T00%3A16%3A38Z" in stand_in.paths()[1]  # a moment before the last line


def test_last_words_without_an_end_are_kept(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(streams([log(line(0)) + b"Killed"]))
    assert texts(lines_of(api, pod(state=ended(137)), follow=True)) == ["line 0", "Killed"]


def test_words_after_a_broken_connection_are_told(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(
        streams([log(b"warming up", line(0), b"odd")], then=cuts),
        streams([log(b"warming up", line(0), b"odd", b"Traceback", line(1))]),
    )
    got = lines_of(api, pod(state=RUNNING), follow=True, ended=Flag(2))
    assert texts(got) == ["warming up", "line 0", "odd", "Traceback", "line 1"]


def test_a_pod_that_goes_away_ends_its_log(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(streams([log(line(0))], then=cuts), refuses(404, "NotFound", "no such pod"))
    assert texts(lines_of(api, pod(state=RUNNING), follow=True, ended=lambda: False)) == ["line 0"]


@pytest.mark.parametrize(
    ("kind", "now", "read"),
    [
        ("PyTorchJob", "the-first", ["line 0", "line 1"]),
        ("PyTorchJob", "another", ["line 0"]),  # its operator has made another pod of the same name
        ("Job", "", ["line 0", "line 1"]),  # not asked: pods of Jobs have names of their own
    ],
)
def test_the_log_of_a_pod_that_has_got_the_name_of_another_is_not_its(
    api: Api, stand_in: StandIn, kind: str, now: str, read: list[str]
) -> None:
    maker = {"kind": kind, "name": "demo", "uid": "1", "controller": True}
    first = pod_object(state=RUNNING, name="demo-worker-0", uid="the-first", ownerReferences=[maker])
    found = {**first, "metadata": {**first["metadata"], "uid": now}}
    answers = [streams([log(line(0), line(1))]), *([says(200, found)] if now else [])]
    stand_in.answer_with(streams([log(line(0))], then=cuts), *answers)
    assert texts(lines_of(api, as_pod(first), follow=True, ended=Flag(1))) == read


def test_a_log_that_nobody_can_read_any_more(api: Api, stand_in: StandIn) -> None:
    """The pod of a node that died: its log is asked for a few times, and then no more."""
    stand_in.answer_with(streams([log(line(0))], then=cuts), says(502, {}))
    got = texts(lines_of(api, pod(state=ended(1)), follow=True))
    assert got[0] == "line 0"
    assert len(got) == 2
    assert "cannot be read" in got[1]


def test_the_last_lines_of_a_pod(api: Api, stand_in: StandIn) -> None:
    event = b'1003.500 4 [event] {"kind": "note"}'
    stand_in.answer_with(
        streams([log(line(2), line(3), event) + b"1004.5"]), refuses(404, "NotFound", "no such pod")
    )
    assert texts(read_recent(api, pod(state=RUNNING))) == ["line 2", "line 3"]
    assert "tailLines=300" in stand_in.paths()[0]
    assert texts(read_recent(api, pod(state=RUNNING))) == []


def test_a_log_that_we_may_not_read(api: Api, stand_in: StandIn) -> None:
    words = 'pods "p" is forbidden: User "ann" cannot get resource "pods/log" in API group ""'
    stand_in.answer_with(refuses(403, "Forbidden", words))
    with pytest.raises(Denied):
        list(lines_of(api, pod(state=RUNNING), follow=True))


def test_one_that_cannot_be_read_hides_no_other(api: Api, stand_in: StandIn) -> None:
    def answer(handler: object) -> None:
        path = handler.path  # type: ignore[attr-defined]
        chosen: Answer = says(502, {}) if "demo-1" in path else streams([log(line(0))])
        chosen(handler)  # type: ignore[arg-type]

    stand_in.answer_with(answer)
    got = texts(read_all(api, [pod(0, state=RUNNING), pod(1, state=RUNNING)]))
    assert sorted(text[:20] for text in got) == ["[the log cannot be r", "line 0"]
    with pytest.raises(Unreachable):
        list(lines_of(api, pod(1, state=RUNNING)))


def test_leaving_ends_the_reading(api: Api, stand_in: StandIn) -> None:
    over, leave = threading.Event(), threading.Event()
    stand_in.answer_with(streams([log(line(0))], then=waits(over)))
    opened: list[object] = []
    got: list[LogLine | EventLine] = []
    lines = lines_of(
        api, pod(state=RUNNING), follow=True, ended=lambda: False, leave=leave, opened=opened.append
    )
    thread = threading.Thread(target=lambda: got.extend(lines))
    thread.start()
    wait_until(lambda: got, "the first line")
    leave.set()
    opened[0].close()  # type: ignore[attr-defined]
    thread.join(PATIENCE)
    assert not thread.is_alive()
    over.set()


def test_an_agents_last_word() -> None:
    said = EventLine(sequence=1, at=1.0, payload=b'{"kind": "worker-ended", "worker": 2}')
    assert is_last_line(said, 2)
    assert not is_last_line(said, 0)
    assert not is_last_line(EventLine(sequence=1, at=1.0, payload=b'"worker-ended"{'), 2)
    again = b'{"kind": "state", "events": [{"kind": "verdict"}, %s]}' % said.payload
    assert is_last_line(EventLine(sequence=1, at=1.0, payload=again), 2)
    assert not is_last_line(EventLine(sequence=1, at=1.0, payload=again), 0)
    assert not is_last_line(EventLine(sequence=1, at=1.0, payload=b'{"kind": "state", "worker-ended": 1}'), 0)
    assert not is_last_line(LogLine(text='"worker-ended"', at=1.0, worker=2), 2)


def test_events_count_for_no_line() -> None:
    """An event has the number of the line that comes next: lines that are missing are counted exactly."""
    event = b'1005.000 %d [event] {"kind": "state"}'
    (found,) = _Read().fresh([[line(0), event % 1, event % 1, event % 5, line(5), line(7)]], 0)
    said = [each.text if isinstance(each, LogLine) else "event" for each in found]
    gaps = [text for text in said if "missing" in text]
    assert [text[:9] for text in gaps] == ["[4 lines ", "[1 line i"]
    assert [text for text in said if text not in gaps] == ["line 0", *["event"] * 3, "line 5", "line 7"]


def test_events_alone_survive_a_broken_connection(api: Api, stand_in: StandIn) -> None:
    said = [b'%d.000 %d [event] {"kind": "note", "worker": %d}' % (1000 + n, n, n) for n in range(6)]
    whole = [each for n in range(6) for each in (said[n], line(n), b"odd")]
    stand_in.answer_with(streams([log(*whole[:7]), log(*whole[7:11])], then=cuts), streams([log(*whole[3:])]))
    got = lines_of(api, pod(state=RUNNING), follow=True, ended=Flag(2), events_only=True)
    numbers = [each.sequence for each in got if isinstance(each, EventLine)]
    assert sorted(set(numbers)) == list(range(6))
    assert numbers == sorted(numbers)
