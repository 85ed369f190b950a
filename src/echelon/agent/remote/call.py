"""A process of the run's that calls the agent of its own machine: it connects, and each side proves to the
other that it knows the run's secret. It may block, as the agent must not."""

from __future__ import annotations

import json
import socket

from echelon.agent.gang.wire import encode, fresh_nonce, prove, proven
from echelon.agent.ranks import sockets

PATIENCE = 30.0  # seconds for the agent's first answers


class Call:
    """One connection to an agent; OSError if there is none that proves itself."""

    def __init__(self, folder: str, name: str, side: str, secret_file: str) -> None:
        with open(secret_file, "rb") as file:
            secret = file.read().strip()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(PATIENCE)
        self._received = b""
        sockets.inside(folder, name, self.socket.connect)
        theirs, mine = str((self.receive() or {}).get("nonce")), fresh_nonce()
        self.send({"say": "me", "nonce": mine, "proof": prove(secret, side, 0, theirs, mine)})
        answer = self.receive() or {}
        if not proven(prove(secret, "agent", 0, mine, theirs), answer.get("proof")):
            raise OSError("the agent does not know the run's secret, or has refused ours")
        self.socket.settimeout(None)

    def send(self, message: dict[str, object]) -> None:
        """Send a message."""
        self.socket.sendall(encode(message))

    def receive(self) -> dict[str, object] | None:
        """The next message, waited for; None at the end of the connection."""
        while b"\n" not in self._received:
            data = self.socket.recv(256 * 1024)
            if not data:
                return None
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        message = json.loads(line.decode())
        return message if isinstance(message, dict) else {}

    @property
    def pending(self) -> bool:
        """Whether a message has been received that was not taken yet."""
        return b"\n" in self._received
