"""Free ports for ranks to listen on, kept from the moment they are found until the ranks start.

They are below the range from which the system assigns ports to programs that ask for any. So between our look
and the rank's own `bind`, which can be seconds of imports, only another run could take one; on Linux a lock
that all users of the machine share prevents it."""

from __future__ import annotations

import os
import socket
import sys

_FIRST, _LAST = 20000, 31999
_TRIES = 2000


class Reservation:
    """Some free ports. `open_up` just before the ranks start; `release` when they have ended."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self._bound: list[socket.socket] = []
        self._locks: list[socket.socket] = []

    def open_up(self) -> None:
        """Close our sockets, so that the ranks can bind the ports. The locks stay."""
        for sock in self._bound:
            sock.close()
        self._bound.clear()

    def release(self) -> None:
        """Give the ports back."""
        self.open_up()
        for lock in self._locks:
            lock.close()
        self._locks.clear()


def reserve(count: int) -> Reservation:
    """Find `count` ports on which no program listens."""
    reservation = Reservation()
    for _ in range(_TRIES):
        if len(reservation.ports) == count:
            return reservation
        port = _FIRST + int.from_bytes(os.urandom(4), "big") % (_LAST - _FIRST + 1)
        if port in reservation.ports:
            continue
        lock = _lock(port)
        sock = _bind(port) if lock is not False else None
        if sock is None:
            if isinstance(lock, socket.socket):
                lock.close()
            continue
        reservation.ports.append(port)
        reservation._bound.append(sock)  # noqa: SLF001 - made here
        if isinstance(lock, socket.socket):
            reservation._locks.append(lock)  # noqa: SLF001
    reservation.release()
    raise OSError("no free port between %d and %d" % (_FIRST, _LAST))


def _lock(port: int) -> socket.socket | bool:
    """A name in the abstract namespace, gone with its holder; True where the system has no such names, False
    if another process holds it.
    """
    if not sys.platform.startswith("linux"):
        return True
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sock.bind("\0echelon-port-%d" % port)
    except OSError:
        sock.close()
        return False
    return sock


def _bind(port: int) -> socket.socket | None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.bind(("", port))
    except OSError:
        sock.close()
        return None
    return sock
