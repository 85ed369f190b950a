"""Which tests decide whether a change lands, as a pytest plugin: those of `make test` are marked `gate`.

A test that needs a cluster, takes more than a few seconds, or watches real agents and terminals is right
nearly always; hundreds of these together refuse good work. So the gate holds the others, and of these the few
that are marked `core`. Every test is in `make test-all`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

FAULTS = Path(__file__).parent / "faults"
LEFT_OUT = ("slow", "soak", "cluster")
REAL_PROCESSES = {"agents", "background", "pods", "terminal"}  # fixtures whose tests wait for several of them


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what the gate holds."""
    for item in items:
        if is_in_gate(item):
            item.add_marker("gate")


def is_in_gate(item: pytest.Item) -> bool:
    """The rule."""
    if item.get_closest_marker("core"):
        return True
    if any(item.get_closest_marker(mark) for mark in LEFT_OUT) or FAULTS in item.path.parents:
        return False
    return REAL_PROCESSES.isdisjoint(_fixtures(item))


def _fixtures(item: pytest.Item) -> set[str]:
    """The fixtures that a test requests; a parameter of the same name is none."""
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return set(getattr(item, "fixturenames", ())) - set(parameters)
