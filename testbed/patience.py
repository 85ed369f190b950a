"""How long tests wait before they call something missing.

A wait costs nothing when what it waits for comes. So patience is one factor for the whole test run: `make
test` sets it above 1 for the parts that run side by side, where one test's load is another's delay.
"""

from __future__ import annotations

import os

VARIABLE = "ECHELON_TEST_PATIENCE"
FACTOR = float(os.environ.get(VARIABLE, "1"))


def pause_after(took: float, least: float = 0.02) -> float:
    """Seconds until a condition that took so long is looked at again: one that starts a process must not keep
    a processor busy that what it waits for needs.
    """
    return min(max(least, took), 1.0)
