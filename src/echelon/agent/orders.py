"""What clients order of a worker in a pod, carried out; `control.py` has the socket that they come over."""

from __future__ import annotations

from echelon.agent import stopping
from echelon.agent.control import ControlSocket
from echelon.agent.loop import Loop

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

    from echelon.agent.ending.finish import Shutdown
    from echelon.agent.gang.join import LeaderConnection


class Orders:
    """Takes orders and answers them. `to_leader` is set where this worker follows a leader."""

    def __init__(self, loop: Loop, worker: int, shutdown: Callable[[], Shutdown]) -> None:
        self._loop = loop
        self._worker = worker
        self._shutdown = shutdown
        self._socket: ControlSocket | None = None
        self.to_leader: LeaderConnection | None = None

    def listen(self, path: str) -> None:
        """Take orders that come over a socket at this path; raises OSError."""
        self._socket = ControlSocket(self._loop, path, self.answer)

    def close(self) -> None:
        """Take no more orders."""
        if self._socket is not None:
            self._socket.close()

    def answer(self, order: str, details: dict[str, object]) -> dict[str, object]:
        """Carry out an order, and return the reply."""
        shutdown = self._shutdown()
        client, seconds = str(details.get("client") or ""), details.get("seconds")
        if order == "fetch":
            shutdown.renew(client, seconds if isinstance(seconds, (int, float)) else 0.0)
            return {"ok": True, "until": shutdown.until}
        if order == "stock":
            return {"ok": False, "error": "a worker keeps no checkpoints of others"}
        self._loop.call_later(0, shutdown.renew)
        if order == "release":
            if shutdown.final is None:
                return {"ok": False, "error": "the run is not over yet"}
            self._loop.call_later(0, lambda: shutdown.release(client))
            return {"ok": True}
        reason = str(details.get("reason") or "stopped")
        leader = shutdown.leader
        if leader is not None:  # after the answer, since this may end the agent
            self._loop.call_later(0, lambda: leader.stop("stopped", reason, details))
        elif self.to_leader is not None and self.to_leader.connected:
            asked = {"signal": stopping.asked_for(details), "grace": details.get("grace")}
            self.to_leader.send(dict(asked, say="please-stop", reason=reason))
        else:
            return {"ok": False, "error": "worker %d does not reach worker 0, which leads" % self._worker}
        return {"ok": True, "over": shutdown.final is not None}
