"""What a test run says at its end, as a pytest plugin: skips by reason, and failures for `tests.parts`.

A test marked `load_sensitive(reason)` needs a quiet machine. The reason travels with its report, because
under pytest-xdist the process that writes the summary never sees the test itself.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

FAILURES = "ECHELON_TEST_FAILURES"  # names the file that receives what failed
MARK = "load_sensitive"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each marked test the reason that its reports carry; a mark without a reason is an error."""
    for item in items:
        if mark := item.get_closest_marker(MARK):
            (reason,) = mark.args
            item.user_properties.append((MARK, str(reason)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each reason to skip, however many tests share it; and the file of failures."""
    stats = terminalreporter.stats
    skipped = Counter(skip_reason(report) for report in stats.get("skipped", ()))
    for reason, count in sorted(skipped.items()):
        terminalreporter.write_line(f"skipped {count}: {reason}")
    if path := os.environ.get(FAILURES):
        failed = [*stats.get("failed", ()), *stats.get("error", ())]
        found = {report.nodeid: load_reason(report) for report in failed}
        Path(path).write_text(json.dumps(found))


def skip_reason(report: Any) -> str:
    """Why a test was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return str(text).removeprefix("Skipped: ")


def load_reason(report: Any) -> str | None:
    """Why a failed test needs quiet; None if it does not say that it does."""
    return dict(getattr(report, "user_properties", ())).get(MARK)
