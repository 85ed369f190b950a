"""The conversation in which a worker gives its results to the keeper, over one connection: both ends.

Each side proves that it knows the run's secret, as in the gang (`gang/wire.py`). The worker then offers what
it holds; the keeper accepts or refuses by its room; the folders go over in the protocol of every copy
(`files/sender.py`, `files/receiver.py`), and the keeper says what it has of each. It vouches only for what
has the listing that the worker stated, every file with its sha256."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import contextmanager

from echelon.agent.files.manifest import manifest_of
from echelon.agent.files.receiver import Missing, Receiver
from echelon.agent.files.sender import Sender
from echelon.agent.files.wire import SILENCE, Broken, Garbled, Trouble, Wire, report_trouble
from echelon.agent.gang.wire import Connection, fresh_nonce, prove, proven
from echelon.agent.keep.room import NO_SPACE, TOO_LARGE, TOO_MANY

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator

    from echelon.agent.keep.entries import Found

    _Wanted = Iterator[tuple[str, int, str]]

GIVER, TAKER = "giver", "taker"  # the sides, in their proofs
INCOMPLETE = "incomplete"
REFUSALS = (TOO_LARGE, TOO_MANY, NO_SPACE, INCOMPLETE)  # why the keeper does not vouch
MOST_LEFT_OUT = 100  # of what cannot be copied, so much is named
_CONNECTING = 10.0  # seconds
_GROWTH = 1 << 20  # bytes by which files may have grown since the worker stated them


class Refused(Exception):
    """The keeper does not take a worker's results; `kind` is one of REFUSALS."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


def socket_wire(sock: socket.socket) -> Wire:
    """The protocol of copies over a connected socket."""

    def receive(seconds: float) -> bytes:
        sock.settimeout(seconds)
        try:
            piece = sock.recv(1 << 17)
        except (BlockingIOError, socket.timeout):
            return b""
        except OSError as error:
            raise Broken(error.strerror or "connection error") from error
        if not piece:
            raise Broken("the other end is gone")
        return piece

    def send(data: bytes) -> None:
        sock.settimeout(SILENCE)
        try:
            sock.sendall(data)
        except OSError as error:
            raise Broken(error.strerror or "nothing was read for %d seconds" % SILENCE) from error

    return Wire(receive, send)


def give(
    address: tuple[str, int],
    secret: bytes,
    worker: int,
    roots: list[str],
    stated: list[dict[str, Any]],
    on_progress: Callable[[int, int, int, int], object] = lambda *_: None,
    *,
    unsafe: bool = False,
) -> None:
    """Give a worker's folders to the keeper; returns when it vouches for them. `stated` are manifests, of
    these roots; `unsafe`, that its ranks may have left a checkpoint torn. Raises Refused, or Broken, after
    which another try goes on where this one ended.
    """
    sums = {name: sum(each[name] for each in stated) for name in ("files", "size")}
    if unsafe:
        sums["unsafe"] = 1
    with _conversation(address) as wire:
        if _introduce(wire, secret, worker, sums):
            return
        known = {each["root"]: each for each in stated}
        wire.write(offer=[known.get(root, {}) for root in roots])
        for root in roots:
            Sender(wire, root, on_progress=on_progress).run()
        _take_word(wire)


def give_entry(
    address: tuple[str, int],
    secret: bytes,
    worker: int,
    folder: str,
    found: Found,
    is_same: Callable[[], bool],
    on_progress: Callable[[int, int, int, int], object] = lambda *_: None,
) -> None:
    """Give one entry of the folder of checkpoints; returns when the keeper has it as it was `found`, and
    `is_same()` has said that it is so still. Raises as `give` does.
    """
    with _conversation(address) as wire:
        if _introduce(wire, secret, worker, found.raw()):
            return
        if not found.link:
            Sender(wire, folder, found.name, on_progress).run()
        wire.write(same=int(is_same()))
        _take_word(wire)


def fetch_parts(
    address: tuple[str, int],
    secret: bytes,
    worker: int,
    wanted: Callable[[list[dict[str, Any]]], _Wanted],
    on_progress: Callable[[int, int, int, int], object] = lambda *_: None,
) -> None:
    """Fetch parts of safe checkpoints: `wanted` gets the list of these, newest first, and names entry, worker
    and place of each part that is to be put there, one after another.
    """
    with _conversation(address) as wire:
        _introduce(wire, secret, worker, {"restore": 1})
        safe = []
        told = wire.read()
        while "listed" not in told:
            safe.append(told)
            told = wire.read()
        for entry, whose, place in wanted(safe):
            wire.write(send=entry, worker=whose)
            wire.flush()
            try:
                outcome = Receiver(wire, place, on_progress=on_progress).run()
            except Missing as error:
                raise Broken("the keeper has it no more") from error
            if outcome["failed"] or outcome["changed"]:
                raise Broken("not all of it came")
        wire.write(end=1)
        wire.flush()


def serve_parts(wire: Wire, safe: list[dict[str, Any]], places: dict[tuple[str, int], str]) -> None:
    """The keeper's side of it; `places` has the folder of each part."""
    for each in safe:
        wire.write(**each)
    wire.write(listed=1)
    request = wire.read()
    while "end" not in request:
        place = places.get((str(request.get("send")), int(request.get("worker", -1))))
        if place is None:
            raise Garbled("a request for what is not here")
        Sender(wire, place).run()
        request = wire.read()


@contextmanager
def _conversation(address: tuple[str, int]) -> Iterator[Wire]:
    """A connection to the keeper; what goes wrong on it is Refused, or Broken."""
    try:
        sock = socket.create_connection(address, timeout=_CONNECTING)
    except OSError as error:
        raise Broken(error.strerror or "no connection") from error
    with sock:
        try:
            yield socket_wire(sock)
        except Trouble as error:
            full = error.code in ("ENOSPC", "EDQUOT")
            raise Refused(NO_SPACE if full else INCOMPLETE) from error
        except (OSError, ValueError) as error:  # of our own files, or a message that makes no sense
            raise Broken(str(error)) from error


def _take_word(wire: Wire) -> None:
    if wire.read().get("kept") != 1:
        raise Refused(INCOMPLETE)


def _introduce(wire: Wire, secret: bytes, worker: int, offer: dict[str, Any]) -> bool:
    """Prove who this is, and say what it comes for; True if the keeper has it already."""
    theirs = wire.read().get("nonce")
    if not isinstance(theirs, str):
        raise Garbled("no keeper")
    mine = fresh_nonce()
    wire.write(
        say="me", worker=worker, nonce=mine, proof=prove(secret, GIVER, worker, theirs, mine), offer=offer
    )
    wire.flush()
    answer = wire.read()
    if not proven(prove(secret, TAKER, worker, mine, theirs), answer.get("proof")):
        raise Garbled("no keeper of this run")
    if "refused" in answer:
        raise Refused(str(answer["refused"]) if answer["refused"] in REFUSALS else INCOMPLETE)
    return answer.get("kept") == 1


def admit(connection: Connection, answer: dict[str, object]) -> socket.socket:
    """Let a worker in; what follows is between the two ends of a copy."""
    connection.send(answer)
    connection.drain(1.0)
    return connection.detach()


def dismiss(connection: Connection, answer: dict[str, object]) -> None:
    """Send a worker away."""
    connection.send(answer)
    connection.drain(1.0)
    connection.close()


def take(wire: Wire, folder: str, most: int) -> dict[str, Any] | None:
    """Take a worker's folders below `folder`, the first at `folder/0`; at most about `most` bytes. Returns
    what the keeper has of it now, `manifests` of each by its root in the worker and what cannot be copied
    (`left_out`), or None if something is missing of what the worker stated.
    """
    offer = wire.read().get("offer")
    if not isinstance(offer, list) or not all(isinstance(each, dict) for each in offer):
        raise Garbled("an offer that makes no sense")
    came = 0

    def limit(_done: int, total: int, _files_done: int, _files: int) -> None:
        if came + total > most + _GROWTH:
            raise OSError(errno.ENOSPC, "more than was offered")

    complete, manifests, left_out = True, [], []
    for number, stated in enumerate(offer):
        place = os.path.join(folder, str(number))
        try:
            outcome = Receiver(wire, place, on_progress=limit).run()
        except Missing:
            complete = complete and not stated.get("digest")
        else:
            came += outcome["bytes"]
            complete = complete and not outcome["failed"] and _is_whole(stated, outcome["manifest"])
            left_out += [[str(path), str(why)] for path, why in outcome["left_out"]]
        # Not the worker's own: what cannot be copied is in its listing, and not in ours.
        manifests.append(dict(manifest_of(place), root=str(stated.get("root", ""))))
    return {"manifests": manifests, "left_out": left_out[:MOST_LEFT_OUT]} if complete else None


def take_entry(wire: Wire, place: str, found: Found) -> bool:
    """Take one entry of a folder of checkpoints into the folder `place`; False if it is not as it was stated,
    or has changed since.
    """
    target = os.path.join(place, found.name)
    if found.link:
        os.symlink(found.link, target)
        return bool(wire.read().get("same"))

    def limit(_done: int, total: int, _files_done: int, _files: int) -> None:
        if total > found.size + _GROWTH:
            raise OSError(errno.ENOSPC, "more than was offered")

    try:
        outcome = Receiver(wire, target, on_progress=limit).run()
    except Missing:
        outcome = {}
    whole = outcome and not outcome["failed"] and not outcome["changed"]
    same = bool(wire.read().get("same"))
    return bool(whole and same and outcome["manifest"]["digest"] == found.version)


def _is_whole(stated: dict[str, Any], came: dict[str, Any]) -> bool:
    """Whether what came has all that the worker stated; files written after that are no loss."""
    if not stated or stated.get("digest") == came["digest"]:
        return True
    return bool(came["files"] >= stated.get("files", 0) and came["size"] >= stated.get("size", 0))


def report(wire: Wire, error: OSError | ValueError, place: str) -> None:
    """Tell the worker that the keeper cannot go on, and wait until it has read that."""
    code = errno.errorcode.get(getattr(error, "errno", None) or 0, type(error).__name__)
    try:
        report_trouble(wire, code, place, getattr(error, "strerror", None) or str(error))
    except Broken:
        pass
