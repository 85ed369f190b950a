"""How long Hypothesis looks for a counterexample: briefly and always in the same places where tests decide
whether a change lands, long and elsewhere each time in `make test-all` and `make soak`.

A property that is wrong once in a thousand examples would refuse the work of somebody who has not touched it.
How long one example takes, or is looked for, says more about the machine's load than about the code.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

VARIABLE = "ECHELON_TEST_PROPERTIES"
GATE, FULL = "gate", "full"
MOST_IN_GATE = 25

_CHOSEN = os.environ.get(VARIABLE, GATE)


def examples(count: int) -> int:
    """How many examples a test that wants `count` gets in this test run."""
    return count if _CHOSEN == FULL else min(count, MOST_IN_GATE)


def load_profile() -> None:
    """Choose the profile. Before any module of tests is imported: settings take their defaults from it."""
    slow = [HealthCheck.too_slow]
    settings.register_profile(FULL, deadline=None, suppress_health_check=slow)
    settings.register_profile(
        GATE, deadline=None, suppress_health_check=slow, derandomize=True, max_examples=MOST_IN_GATE
    )
    settings.load_profile(_CHOSEN)
