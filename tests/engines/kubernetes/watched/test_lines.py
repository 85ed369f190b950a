"""Lines of pods that no agent writes: stamped by the kubelet, merged by time, followed to the end."""

from __future__ import annotations

import threading
import time
from typing import Any, Self

import pytest
from tests.conftest import wait_until
from tests.engines.kubernetes.typed import as_pod

from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.watched import lines
from echelon.engines.kubernetes.watched.lines import follow_lines, merged_lines
from echelon.errors import Denied, Refused, Unreachable


class Log(list[Any]):
    """A log in pieces; one that is an error is raised."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Any:
        for piece in list.__iter__(self):
            if isinstance(piece, Exception):
                raise piece
            yield piece


class Logs:
    """The part of an API that serves logs: of each pod, one answer after the other, the last for ever."""

    def __init__(self, **answers: list[Log]) -> None:
        self._answers = answers
        self.asked: list[str] = []  # the times from which on logs were asked for
        self.names: dict[str, str] = {}  # uids of pods that have got a name since

    def is_replaced(self, _kind: str, name: str, uid: str, **_: object) -> bool:
        return self.names.get(name, uid) != uid

    def find_shape(self, _kind: str, _shape: type[Pod], name: str, **_: object) -> Pod | None:
        """The pod, ended when there is no further answer."""
        return pod(name, "Running" if len(self._answers[name]) > 1 else "Succeeded")

    def logs(self, pod: str, *, since: str = "", **_: object) -> Log:
        answers = self._answers[pod]
        self.asked.append(since)
        return answers.pop(0) if len(answers) > 1 else answers[0]


def pod(name: str, phase: str = "Running", uid: str = "") -> Pod:
    found = {
        "metadata": {"name": name, "uid": uid or name},
        "spec": {"containers": [{"name": "pytorch"}]},
        "status": {"phase": phase},
    }
    return as_pod(found)


def stamped(second: int, text: str) -> bytes:
    return f"2026-01-01T00:00:{second:02}.5Z {text}\n".encode()


PODS = {0: pod("a"), 1: pod("b")}


def test_lines_are_merged_by_time_and_pieces_may_be_cut_anywhere() -> None:
    first = stamped(1, "one") + stamped(3, "three")
    api: Any = Logs(
        a=[Log([first[:40], first[40:]])], b=[Log([stamped(2, "two"), b"2026-01-01T00:00:04Z end"])]
    )
    assert [(line.rank, line.text) for line in merged_lines(api, PODS)] == [
        (0, "one"),
        (1, "two"),
        (0, "three"),
        (1, "end"),
    ]


def test_a_pod_that_has_not_begun_has_no_lines() -> None:
    api: Any = Logs(a=[Log([Refused("waiting to start")])], b=[Log([stamped(1, "one")])])
    assert [line.text for line in merged_lines(api, PODS)] == ["one"]


def test_a_follower_goes_on_after_a_lost_connection() -> None:
    broken = Log([stamped(1, "one"), Unreachable("away")])
    api: Any = Logs(a=[broken, Log([stamped(1, "one"), stamped(2, "two")])], b=[Log()])
    found = follow_lines(api, lambda: PODS, lambda: True)
    assert [line.text for line in found] == ["one", "two"]


def test_a_file_that_is_full_costs_a_follower_no_line() -> None:
    """The kubelet serves its newest file only: what was read before the cut is not in the next answer."""
    broken = Log([stamped(1, "one"), stamped(2, "two"), stamped(3, "three"), Unreachable("away")])
    api: Any = Logs(
        a=[broken, Log([stamped(3, "three"), stamped(3, "and more"), stamped(4, "four")])], b=[Log()]
    )
    found = list(follow_lines(api, lambda: PODS, lambda: True))
    assert [line.text for line in found] == ["one", "two", "three", "and more", "four"]
    assert [line.sequence for line in found] == [1, 2, 3, 4, 5]
    assert "2026-01-01T00:00:01Z" in api.asked


def test_a_stream_that_the_api_server_ends_is_taken_up_again() -> None:
    """As it does after some hours; the pod runs on."""
    api: Any = Logs(a=[Log([stamped(1, "one")]), Log([stamped(1, "one"), stamped(2, "two")])], b=[Log()])
    found = follow_lines(api, lambda: PODS, lambda: True)
    assert [line.text for line in found] == ["one", "two"]


def test_an_outage_does_not_end_a_follower() -> None:
    looks = iter(["goes on", "away", "away"])

    def over() -> bool:
        answer = next(looks, "over")
        if answer == "away":
            raise Unreachable(answer)
        return answer == "over"

    api: Any = Logs(a=[Log([stamped(1, "one")])], b=[Log([stamped(2, "two")])])
    assert sorted(line.text for line in follow_lines(api, lambda: PODS, over)) == ["one", "two"]


def test_a_reader_that_pauses_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_AHEAD", 3)
    taken = 0

    class Long(Log):
        def __iter__(self) -> Any:
            nonlocal taken
            for number in range(1000):
                taken += 1
                yield stamped(number % 60, str(number))

    api: Any = Logs(a=[Long()], b=[Log()])
    follower = follow_lines(api, lambda: {0: PODS[0]}, lambda: True)
    assert next(follower).text == "0"
    time.sleep(0.2)
    assert taken < 10
    assert "log a" in {each.name for each in threading.enumerate()}
    del follower
    wait_until(
        lambda: "log a" not in {each.name for each in threading.enumerate()}, "the reader of the log to leave"
    )


def test_a_pod_that_has_got_the_name_of_another_is_read_as_itself() -> None:
    """The connection broke with the first pod; the name leads to the second one from then on."""
    old = Log([stamped(1, "one"), stamped(2, "two"), Unreachable("away")])
    new = Log([stamped(5, "first"), stamped(6, "second"), stamped(7, "third")])
    first, second = pod("a"), pod("a", uid="another")

    class Replaced(Logs):
        def logs(self, pod: str, **_: Any) -> Log:
            found = super().logs(pod)
            if found is new:
                self.names[pod] = "another"
            return found

    api: Any = Replaced(a=[old, new])

    def look() -> dict[int, Any]:
        return {0: second if api.names else first}

    def over() -> bool:
        return bool(api.names)

    found = [line.text for line in follow_lines(api, look, over)]
    assert found == ["one", "two", "first", "second", "third"]


def test_who_may_not_read_logs_is_told() -> None:
    api: Any = Logs(a=[Log([Denied("no")])], b=[Log()])
    with pytest.raises(Denied):
        list(follow_lines(api, lambda: PODS, lambda: True))
    with pytest.raises(Denied):
        list(merged_lines(api, PODS))
