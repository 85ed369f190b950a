"""What a worker and the keeper say to each other, each against an end that the test plays."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE

from echelon.agent.files.manifest import manifest_of
from echelon.agent.files.sender import Sender
from echelon.agent.files.wire import Broken, Trouble, Wire
from echelon.agent.gang.wire import encode, fresh_nonce, prove
from echelon.agent.keep import exchange
from echelon.agent.keep.exchange import GIVER, TAKER, Refused, give, socket_wire, take

SECRET = b"the run's own"
Play = Callable[[socket.socket, dict[str, Any], str], None]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "output"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "part").write_bytes(b"x" * 700_000)
    (folder / "small").write_text("y")
    return folder


def give_to(output: Path, play: Play) -> None:
    """Give a folder to a keeper of the test's; `play` gets what the worker says of itself."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock, contextlib.suppress(OSError, Broken):
                nonce = fresh_nonce()
                sock.sendall(encode({"say": "who", "nonce": nonce}))
                lines = sock.makefile("rb", buffering=0)
                play(sock, json.loads(lines.readline()), nonce)

        keeper = threading.Thread(target=serve, daemon=True)
        keeper.start()
        try:
            give(listener.getsockname()[:2], SECRET, 3, [str(output)], [manifest_of(str(output))])
        finally:
            keeper.join(PATIENCE)


def welcome(me: dict[str, Any], nonce: str, **more: object) -> bytes:
    proof = prove(SECRET, TAKER, me["worker"], me["nonce"], nonce)
    return encode({"say": "welcome", "proof": proof, **more})


def test_a_worker_proves_itself_and_says_what_it_brings(output: Path) -> None:
    heard: list[dict[str, Any]] = []

    def play(sock: socket.socket, me: dict[str, Any], nonce: str) -> None:
        heard.append(me)
        assert me["proof"] == prove(SECRET, GIVER, 3, nonce, me["nonce"])
        sock.sendall(welcome(me, nonce, refused="too-large"))

    with pytest.raises(Refused, match="too-large"):
        give_to(output, play)
    assert heard[0]["offer"] == {"files": 2, "size": 700_001}


@pytest.mark.parametrize("trick", ["none", "guess", "reflected", "leader's"])
def test_a_false_keeper_gets_nothing(output: Path, trick: str) -> None:
    came: list[bytes] = []

    def play(sock: socket.socket, me: dict[str, Any], nonce: str) -> None:
        proof: object = {
            "none": None,
            "guess": prove(b"guess", TAKER, 3, me["nonce"], nonce),
            "reflected": me["proof"],
            "leader's": prove(SECRET, "leader", 3, me["nonce"], nonce),
        }[trick]
        sock.sendall(encode({"say": "welcome", "proof": proof}))
        sock.settimeout(PATIENCE)
        came.append(sock.recv(1000))

    with pytest.raises(Broken):
        give_to(output, play)
    assert came == [b""], "it hangs up, and says nothing more"


@pytest.mark.parametrize("upto", [0, 100, 300_000])
def test_a_keeper_that_dies_in_the_middle(output: Path, upto: int) -> None:
    def play(sock: socket.socket, me: dict[str, Any], nonce: str) -> None:
        sock.sendall(welcome(me, nonce))
        sock.settimeout(PATIENCE)
        while upto and len(sock.recv(upto, socket.MSG_PEEK | socket.MSG_WAITALL)) < 1:
            pass

    with pytest.raises(Broken):
        give_to(output, play)


def both(work: Callable[[Wire], object], folder: Path, most: int = 1 << 30) -> dict[str, Any] | None:
    """A keeper's side against `work`, which plays the worker after the handshake."""
    mine, theirs = socket.socketpair()

    def play() -> None:
        with theirs, contextlib.suppress(Broken, Trouble):
            work(socket_wire(theirs))

    worker = threading.Thread(target=play, daemon=True)
    worker.start()
    with mine:
        try:
            return take(socket_wire(mine), str(folder), most)
        finally:
            mine.close()
            worker.join(PATIENCE)


def brings(output: Path, **lie: object) -> Callable[[Wire], object]:
    def work(wire: Wire) -> None:
        wire.write(offer=[{**manifest_of(str(output)), **lie}])
        Sender(wire, str(output)).run()

    return work


def test_what_came_is_vouched_for(output: Path, tmp_path: Path) -> None:
    (output / "pipe").symlink_to("/outside")
    taken = both(brings(output), tmp_path / "kept")
    assert taken is not None
    assert (tmp_path / "kept" / "0" / "deep" / "part").read_bytes() == b"x" * 700_000
    kept = manifest_of(str(tmp_path / "kept" / "0"))
    assert taken["manifests"] == [{**kept, "root": str(output)}]
    assert [path for path, _ in taken["left_out"]] == ["pipe"]


def test_less_than_was_stated_is_not_vouched_for(output: Path, tmp_path: Path) -> None:
    assert both(brings(output, files=3, digest="another"), tmp_path / "kept") is None


def test_a_folder_that_is_not_there(output: Path, tmp_path: Path) -> None:
    missing = output / "nowhere"
    taken = both(brings(missing), tmp_path / "kept")
    assert taken is not None
    assert taken["manifests"][0]["digest"] == ""
    assert both(brings(missing, digest="once"), tmp_path / "other") is None


def test_a_transfer_that_breaks_off_is_gone_on_with(output: Path, tmp_path: Path) -> None:
    """What came of the first is not sent again."""
    sent: list[int] = []

    def short(wire: Wire) -> None:
        wire.write(offer=[manifest_of(str(output))])
        flush = wire.flush

        def dies() -> None:
            flush()
            if wire.rate < float("inf") and len(sent) > 2:
                raise Broken("killed")
            sent.append(1)

        wire.flush = dies  # type: ignore[method-assign]
        Sender(wire, str(output)).run()

    with pytest.raises(Broken):
        both(short, tmp_path / "kept")
    assert both(brings(output), tmp_path / "kept") is not None
    assert (tmp_path / "kept" / "0" / "deep" / "part").read_bytes() == b"x" * 700_000


def test_more_than_was_offered_is_refused(output: Path, tmp_path: Path) -> None:
    (output / "large").write_bytes(b"z" * (3 << 20))
    with pytest.raises(OSError, match="more than was offered"):
        both(brings(output), tmp_path / "kept", most=1000)


def test_a_full_disk_is_told(output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker hears why, also in the middle of a file."""
    from echelon.agent.files import receiver

    def full(file: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(receiver, "write_all", full)
    heard: list[Trouble] = []
    mine, theirs = socket.socketpair()

    def play() -> None:
        try:
            with theirs:
                brings(output)(socket_wire(theirs))
        except Trouble as error:
            heard.append(error)

    worker = threading.Thread(target=play, daemon=True)
    worker.start()
    with mine:
        wire = socket_wire(mine)
        with pytest.raises(OSError, match="No space") as caught:
            take(wire, str(tmp_path / "kept"), 1 << 30)
        exchange.report(wire, caught.value, "kept")
    worker.join(PATIENCE)
    assert [error.code for error in heard] == ["ENOSPC"]
