"""A connection to a port of a pod, through the API server: one WebSocket for each connection.

Channel 0 has the bytes of both directions, channel 1 the kubelet's reason when it cannot connect; each begins
with the port's number in two bytes. The protocol cannot say that one direction has ended."""

from __future__ import annotations

from echelon.engines.kubernetes.client import channels
from echelon.engines.kubernetes.client.channels import Piece
from echelon.engines.kubernetes.client.execute import Exec, open_channels
from echelon.engines.kubernetes.client.http.refusals import Request
from echelon.engines.kubernetes.client.http.session import Session
from echelon.errors import EchelonError, Unavailable

_DATA, _REASON = 0, 1
_NUMBER = 2  # bytes of a port's number


class PortConnection(Exec):
    """One connection. `read` returns what the pod sent; it raises Unavailable if nothing listens there."""

    _port_bytes = (_NUMBER, _NUMBER)

    def _deliver(self, piece: Piece) -> None:
        if piece.channel not in (_DATA, _REASON):
            return
        numbers = list(self._port_bytes)
        skipped = min(numbers[piece.channel], len(piece.data))
        numbers[piece.channel] -= skipped
        self._port_bytes = (numbers[0], numbers[1])
        data = piece.data[skipped:]
        if piece.channel == _REASON:
            self._status += data
        elif data:
            super()._deliver(Piece(channel=channels.OUTPUT, data=data, last=piece.last))

    def _read_status(self) -> EchelonError | None:
        if not self._status:
            return None
        reason = " ".join(self._status.decode(errors="replace").split()).rpartition(": ")[2]
        return Unavailable(f"it does not answer: {reason}", hint="does a process listen on it in the pod?")


def connect_to_port(session: Session, path: str, request: Request, port: int) -> PortConnection:
    """A connection to a port of the pod that `path` names."""
    upgraded = open_channels(session, path, request, [("ports", str(port))])
    return PortConnection(upgraded, session.access, request)
