"""Whether silence is the other side's or our own: a process that was itself stopped has missed nothing.

A suspended laptop, a frozen container or a machine that swaps stops all processes of a run at once. Each of
them then finds that the others sent nothing for longer than they may. So the one that judges first looks at
its own ticks: after a gap in them, every peer gets its full time again, and deadlines move. Pure."""

from __future__ import annotations

GAP = 3  # heartbeats without a tick of our own after which we, too, were stopped


class OwnTicks:
    """The times at which this process looked at its peers, once every heartbeat."""

    def __init__(self, heartbeat: float, now: float) -> None:
        self._heartbeat = heartbeat
        self._last = now

    def stood_still(self, now: float) -> float:
        """Note a tick; returns the seconds for which this process stood still since the last one."""
        gap, self._last = now - self._last, now
        return gap if gap > GAP * self._heartbeat else 0.0
