"""The events of a run that still matter: folding them gives the same status as folding all of them.

The log of a pod is rotated, and its beginning is lost with the first file. So the leader regularly repeats
these events in one event line of the kind `state`. The fold is in the client's `model/status.py`; a test
compares the two."""

from __future__ import annotations

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from echelon.agent.output.sink import Sink

REPEAT = 1 << 20  # bytes of the leader's output between two state lines, at least
_OF_RUN = frozenset(
    (
        "gave-way",
        "notice",
        "failed",
        "restarting",
        "stopping",
        "verdict",
        "holding",
        "still",
        "moving",
        "checkpoint",
    )
)
# The earlier events of a worker that an event supersedes.
_OVERRULES = {
    "worker-started": ("rank-failed", "rank-stopped", "worker-lost", "worker-ended", "worker-kept", "unkept"),
    "worker-running": ("rank-failed", "rank-stopped", "worker-lost", "worker-ended", "worker-kept", "unkept"),
    "rank-failed": (),
    "rank-stopped": (),
    "worker-lost": (),
    "worker-ended": (),
    "worker-kept": ("unkept",),
    "unkept": (),
}
_TURNS = {"still": "moving", "moving": "still", "restarting": "still", "stopping": "still"}


class History:
    """Receives every event; keeps the last of each kind that counts, in the order of arrival."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, object], dict[str, object]] = {}

    def note(self, event: dict[str, object]) -> None:
        """Record an event."""
        kind, worker = str(event.get("kind")), event.get("worker")
        if kind == "rank-ended":
            if event.get("reason") is not None:
                kind = "rank-failed"
            elif event.get("exit_code") or event.get("told"):
                kind = "rank-stopped"
        if kind in _OF_RUN:
            worker = None
        elif kind not in _OVERRULES or worker is None:
            return
        for other in _OVERRULES.get(kind, ()):
            self._kept.pop((other, worker), None)
        if kind in _TURNS:
            self._kept.pop((_TURNS[kind], None), None)
        self._kept.pop((kind, worker), None)  # so that it comes last
        self._kept[kind, worker] = event

    def events(self) -> list[dict[str, object]]:
        """What still matters, oldest first."""
        return list(self._kept.values())

    def repeat(self, sink: Sink) -> int:
        """Write a state line; returns after how many more bytes the next one is due."""
        return max(REPEAT, 8 * sink.state(self.events()))
