"""The key-value store of Horovod's ranks, on loopback: what they ask of it, and what strangers send."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.conftest import PATIENCE, wait_until

from echelon.agent.loop import READ, Loop
from echelon.agent.ranks.launching import rendezvous
from echelon.agent.ranks.launching.rendezvous import Rendezvous

WORD = rendezvous.word(b"the run's secret", 0)


class Served:
    """A rendezvous whose loop runs in a thread."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.store = Rendezvous(self.loop, "127.0.0.1", WORD)
        self.door = f"/{WORD}:{self.store.port}"
        self._ours, self._theirs = socket.socketpair()
        self.loop.watch(self._ours, READ, lambda _events: self.loop.stop())
        self._thread = threading.Thread(target=self.loop.run, daemon=True)
        self._thread.start()

    def connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.store.port), timeout=PATIENCE)
        sock.settimeout(PATIENCE)
        return sock

    def send(self, data: bytes) -> bytes:
        """What is answered to these bytes, until the connection is closed."""
        heard = b""
        with self.connect() as sock, contextlib.suppress(ConnectionResetError, BrokenPipeError):
            sock.sendall(data)
            while more := sock.recv(65536):
                heard += more
        return heard

    def ask(self, method: str, path: str, value: bytes | None = None) -> tuple[int, bytes]:
        """As Horovod asks: the length is always stated."""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(value or b'')}\r\n\r\n"
        return read(self.send(head.encode() + (value or b"")))

    def end(self) -> None:
        self._theirs.send(b"x")
        self._thread.join()
        self.store.close()
        self.loop.close()
        self._ours.close()
        self._theirs.close()


def read(answer: bytes) -> tuple[int, bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    return int(head.split()[1]), body


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(rendezvous, "HOLD", 0.05)
    monkeypatch.setattr(rendezvous, "PATIENCE", 1000.0)  # however busy the machine is
    made = Served()
    yield made
    made.end()


def test_a_value_is_absent_until_it_is_put_and_after_it_is_taken_back(served: Served) -> None:
    here = f"{served.door}/global/3"
    assert served.ask("GET", here) == (404, b"")
    assert served.ask("PUT", here, b"\x00\xffaddress\r\n\r\n") == (200, b"")
    assert served.ask("GET", here) == (200, b"\x00\xffaddress\r\n\r\n")
    assert served.ask("PUT", here, b"") == (200, b"")
    assert served.ask("GET", here) == (200, b"")
    assert served.ask("DELETE", here) == (200, b"")
    assert served.ask("DELETE", here) == (200, b"")
    assert served.ask("GET", here) == (404, b"")


def test_scopes_do_not_mix(served: Served) -> None:
    for scope in ("global", "local_machine-0", "cross_0"):
        assert served.ask("PUT", f"{served.door}/{scope}/0", scope.encode()) == (200, b"")
    assert served.ask("DELETE", f"{served.door}/global/0") == (200, b"")
    assert served.ask("GET", f"{served.door}/local_machine-0/0") == (200, b"local_machine-0")


def test_a_rank_that_is_connected_leaves_nothing(served: Served) -> None:
    """Gloo puts two keys for each rank, Horovod takes back one; a second `hvd.init()` must find neither."""
    for key in ("0", "rank_0", "1", "rank_1"):
        served.ask("PUT", f"{served.door}/global/{key}", b"value")
    served.ask("DELETE", f"{served.door}/global/0")
    found = [served.ask("GET", f"{served.door}/global/{key}")[0] for key in ("0", "rank_0", "1", "rank_1")]
    assert found == [404, 404, 200, 200]


def test_who_asks_early_is_answered_as_soon_as_the_value_is_there(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "HOLD", 1000.0)  # without the value there would be no answer
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(served.ask, "GET", f"{served.door}/global/7") for _ in range(8)]
        wait_until(lambda: len(served.store._held.get((b"global", b"7"), [])) == 8, "all to have asked")
        served.ask("PUT", f"{served.door}/global/7", b"here")
        assert [each.result(PATIENCE) for each in asked] == [(200, b"here")] * 8


def test_without_the_word_nothing_is_told_or_kept(served: Served) -> None:
    served.ask("PUT", f"{served.door}/global/0", b"an address")
    other = rendezvous.word(b"the run's secret", 1)
    for path in (
        "/global/0",
        f"/{other}:{served.store.port}/global/0",
        f"/{WORD}/global/0",
        f"x{served.door}/global/0",
        "/",
        "*",
    ):
        assert served.ask("GET", path) == (403, b""), path
        assert served.ask("PUT", path, b"a lie") == (403, b""), path
        assert served.ask("DELETE", path) == (403, b""), path
    assert served.ask("GET", f"{served.door}/global/0") == (200, b"an address")


@pytest.mark.parametrize("rest", ["", "/", "/global", "/global/", "//0", "/global/0/more"])
def test_a_path_with_other_parts_is_refused(served: Served, rest: str) -> None:
    assert served.ask("GET", served.door + rest) == (400, b"")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("nonsense", 400),
        ("GET {path}", 400),
        ("GET {path} FTP/1.1", 400),
        ("POST {path} HTTP/1.1", 405),
        ("PUT {path} HTTP/1.1", 411),
        ("PUT {path} HTTP/1.1\r\nContent-Length: -1", 400),
        ("PUT {path} HTTP/1.1\r\nContent-Length: many", 400),
        ("PUT {path} HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2", 400),
        ("PUT {path} HTTP/1.1\r\nContent-Length: " + "9" * 30, 400),
        ("PUT {path} HTTP/1.1\r\nContent-Length: 1048577", 413),
        ("GET {path} HTTP/1.1\r\nX: " + "x" * 5000, 431),
    ],
)
def test_what_is_no_request_is_answered_with_a_status(served: Served, head: str, status: int) -> None:
    data = head.replace("{path}", f"{served.door}/global/0").encode() + b"\r\n\r\n"
    assert read(served.send(data)) == (status, b"")


def test_garbage_does_not_disturb(served: Served) -> None:
    dice = random.Random(7)
    for _ in range(50):
        served.send(dice.randbytes(dice.randrange(1, 6000)) + b"\r\n\r\n")
    served.send(b"\xff" * 100_000)
    assert served.ask("PUT", f"{served.door}/global/0", b"x") == (200, b"")


def test_the_store_is_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "MOST_STORED", 10_000)
    for _ in range(3):  # the same value again takes no more room
        assert served.ask("PUT", f"{served.door}/global/0", b"x" * 9000) == (200, b"")
    assert served.ask("PUT", f"{served.door}/global/1", b"x" * 9000) == (507, b"")
    served.ask("DELETE", f"{served.door}/global/0")
    assert served.ask("PUT", f"{served.door}/global/1", b"x" * 9000) == (200, b"")


def test_who_takes_too_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "PATIENCE", 0.3)
    served = Served()
    try:
        half = f"PUT {served.door}/global/0 HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf"
        assert served.send(half.encode()) == b""
        assert served.send(b"") == b""
    finally:
        served.end()


def test_a_crowd_that_says_nothing_does_not_keep_ranks_out(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "MOST_CLIENTS", 20)
    with contextlib.ExitStack() as crowd:
        for _ in range(100):
            crowd.enter_context(served.connect())
        assert served.ask("PUT", f"{served.door}/global/0", b"x") == (200, b"")
        assert served.ask("GET", f"{served.door}/global/0") == (200, b"x")
        assert len(served.store._clients) <= 20


def test_a_request_in_small_pieces(served: Served) -> None:
    request = f"PUT {served.door}/global/0 HTTP/1.1\r\nContent-Length: 5\r\n\r\nvalue".encode()
    with served.connect() as sock:
        for at in range(len(request)):
            sock.sendall(request[at : at + 1])
        assert b" 200 " in sock.recv(1000)
    assert served.ask("GET", f"{served.door}/global/0") == (200, b"value")


def test_many_ranks_meet(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each puts its own value and waits for those of all others, as Gloo's full mesh does."""
    monkeypatch.setattr(rendezvous, "HOLD", 1.0)
    ranks = 24

    def meet(rank: int) -> list[bytes]:
        served.ask("PUT", f"{served.door}/global/{rank}", b"%d" % rank * 1000)
        found = []
        for other in range(ranks):
            answer = (404, b"")
            while answer[0] == 404:
                answer = served.ask("GET", f"{served.door}/global/{other}")
            found.append(answer[1])
        return found

    with ThreadPoolExecutor(ranks) as pool:
        for found in pool.map(meet, range(ranks)):
            assert found == [b"%d" % rank * 1000 for rank in range(ranks)]


def test_it_ends_with_its_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "HOLD", 1000.0)
    monkeypatch.setattr(rendezvous, "PATIENCE", 1000.0)
    served = Served()
    with served.connect() as waiting:
        waiting.sendall(f"GET {served.door}/global/0 HTTP/1.1\r\n\r\n".encode())
        wait_until(lambda: bool(served.store._held), "the question to arrive")
        served.end()
        assert waiting.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        served.connect()


def test_the_word_is_another_for_every_run_and_generation() -> None:
    words = {rendezvous.word(secret, number) for secret in (b"a", b"b") for number in range(3)}
    assert len(words) == 6
    assert all(len(word) == 32 and word.isalnum() for word in words)
