"""The lines that one page wants, each at its place, however many there are.

To search a million lines takes longer than a person waits for an answer. So they are searched from the last
one back, a moment at a time. A line keeps its place while that goes on: those that were there when the search
began are at -1, -2 and so on, those that came since at 0, 1 and so on, as all are where nothing is searched
for."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence

from echelon.ui.spool import LineQuery, Row, Spool, block_after, block_before

PAGE = 200  # lines that a page has at a time
MOMENT = 0.04  # seconds that a page waits for earlier lines, before it gets what was found so far


class Selection:
    """What a page gets to see; one thread at a time uses it."""

    def __init__(self, spool: Spool, wanted: LineQuery) -> None:
        self._spool, self.wanted = spool, wanted
        self._found: Sequence[int] | None = None  # the numbers, where nothing has to be searched
        if not wanted.search:
            self._found = None if wanted.rank is None else spool.of_rank(wanted.rank)
        self._earlier, self._later = array("I"), array("I")
        self._low = self._high = spool.count  # between these all was searched

    @property
    def first(self) -> int:
        """The place of the first one that is known."""
        return -len(self._earlier)

    @property
    def end(self) -> int:
        """The place after the last one."""
        if self.wanted.search:
            return len(self._later)
        return self._spool.count if self._found is None else len(self._found)

    @property
    def complete(self) -> bool:
        """Whether all lines that there are were looked at."""
        return not self.wanted.search or self._low == 0

    def look(self, moment: float = MOMENT, unwanted: Callable[[], bool] = lambda: False) -> None:
        """Search the lines that have come, and for a moment the earlier ones: less, once there are as many as
        a page has, or when they are not wanted any more.
        """
        if not self.wanted.search:
            return
        count = self._spool.count
        while self._high < count:
            stop = min(count, block_after(self._high))
            self._later.extend(self._spool.search(self._high, stop, self.wanted))
            self._high = stop
        until = time.monotonic() + moment
        first = not self._earlier
        while self._low > 0:
            start = block_before(self._low)
            self._earlier.extend(reversed(self._spool.search(start, self._low, self.wanted)))
            self._low = start
            full = first and len(self._earlier) >= PAGE
            if full or unwanted() or time.monotonic() >= until:
                return

    def rows(self, start: int, end: int) -> list[Row]:
        """The lines from one place to another, as far as they are known."""
        places = range(max(start, self.first), min(end, self.end))
        if self.wanted.search:
            earlier, later = self._earlier, self._later
            numbers = [earlier[-place - 1] if place < 0 else later[place] for place in places]
            return self._spool.rows(numbers)
        return self._spool.rows(places if self._found is None else [self._found[place] for place in places])
