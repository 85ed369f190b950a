"""Finding the leader's pod before its Service leads there: against a name server that remembers what it did
not have, as those of clusters do.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import PATIENCE

from echelon.agent.gang import lookup
from echelon.agent.gang.lookup import MOMENTS, Lookup


class NameServer:
    """Answers questions for an address; one that it could not answer once it never answers."""

    def __init__(self) -> None:
        self.leader: str | None = None
        self.asked: list[tuple[str, bytes]] = []
        self.answers: list[bytes] = []  # instead of its own
        self._absent: set[bytes] = set()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.sendto(b"", ("127.0.0.1", self.port))
        self._thread.join(PATIENCE)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            asked, sender = self._socket.recvfrom(4096)
            if not asked:
                return
            self._socket.sendto(self.answers.pop(0) if self.answers else self._answer(asked), sender)

    def _answer(self, asked: bytes) -> bytes:
        labels, at = [], 12
        while asked[at]:
            labels.append(asked[at + 1 : at + 1 + asked[at]].decode())
            at += 1 + asked[at]
        self.asked.append((".".join(labels), asked[2:]))
        echoed = asked[12 : at + 5]
        if self.leader is None or asked[2:] in self._absent:
            self._absent.add(asked[2:])
            return asked[:2] + struct.pack("!5H", 0x8183, 1, 0, 0, 0) + echoed
        address = struct.pack("!H2HIH", 0xC00C, 1, 1, 5, 4) + socket.inet_aton(self.leader)
        if asked[at + 1 : at + 3] == b"\0\x21":  # SRV: the address is an additional record
            service = (
                b"\xc0\x0c" + struct.pack("!2HIH", 33, 1, 5, 8) + struct.pack("!4H", 0, 1, 29411, 0xC00C)
            )
            return asked[:2] + struct.pack("!5H", 0x8180, 1, 1, 0, 1) + echoed + service + address
        return asked[:2] + struct.pack("!5H", 0x8180, 1, 1, 0, 0) + echoed + address


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    made = NameServer()
    (tmp_path / "resolv.conf").write_text(
        "search team.svc.cluster.local svc.cluster.local cluster.local\nnameserver 127.0.0.1\n"
    )
    monkeypatch.setattr(lookup, "RESOLVER", str(tmp_path / "resolv.conf"))
    monkeypatch.setattr(lookup, "_PORT", made.port)
    monkeypatch.setattr(lookup, "_TIMEOUT", 30.0)
    yield made
    made.close()


@pytest.mark.parametrize("after", range(len(MOMENTS) - 1))
def test_a_pod_that_appears_is_found_by_the_next_question(server: NameServer, after: int) -> None:
    """Although the server goes on saying that what it was asked for before does not exist."""
    looking = Lookup("run-0.run")
    assert [looking.address(each) for each in MOMENTS[:after]] == [None] * after
    server.leader = "10.1.2.3"
    assert looking.address(MOMENTS[after]) == "10.1.2.3"
    assert {name for name, _ in server.asked} == {"run-0.run.team.svc.cluster.local"}
    assert len({question for _, question in server.asked}) == after + 1


def test_no_question_is_asked_twice_or_before_its_time(server: NameServer) -> None:
    looking = Lookup("run-0.run")
    for moment in MOMENTS:
        for _ in range(3):
            assert looking.address(moment) is None
    assert not looking.goes_on
    assert looking.address(100.0) is None
    assert len(server.asked) == len({question for _, question in server.asked}) == len(MOMENTS)


def test_an_address_is_known_until_it_is_no_longer_right(server: NameServer) -> None:
    server.leader = "10.1.2.3"
    looking = Lookup("run-0.run")
    assert [looking.address(0.0), looking.address(0.0), looking.address(9.0)] == ["10.1.2.3"] * 3
    assert len(server.asked) == 1
    looking.end()
    assert (looking.address(0.0), looking.goes_on) == (None, False)


def test_nonsense_is_no_address(server: NameServer) -> None:
    server.leader = "10.1.2.3"
    server.answers = [b"", b"x", b"\0" * 12, b"\xff" * 300]
    assert [lookup.find_pod("run-0.run", number) for number in range(5)] == [None] * 4 + ["10.1.2.3"]


def test_outside_of_a_cluster_no_server_is_asked(
    server: NameServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Lookup(None).address(0.0) is None
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\nnameserver ::1\nsearch example.com lan\n")
    assert lookup.find_pod("run-0.run", 0) is None
    monkeypatch.setattr(lookup, "RESOLVER", "/nowhere")
    assert lookup.find_pod("run-0.run", 0) is None
    assert server.asked == []


@given(st.binary(max_size=200), st.integers(0, 65535))
def test_any_answer_is_read_or_refused(answer: bytes, identity: int) -> None:
    try:
        found = lookup.addresses_in(identity.to_bytes(2, "big") + answer, identity)
    except lookup.Garbled:
        return
    assert all(isinstance(each, str) for each in found)
