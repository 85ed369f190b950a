"""What a test run says at its end, as a pytest plugin: skips by reason; and, for `tests.part`, a report of
what passed and failed, and the stacks of what hangs.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

REPORT = "ECHELON_TEST_REPORT"  # names the file that receives how the tests ended
STACKS = (
    "ECHELON_TEST_STACKS"  # names the folder where each process of the tests writes its stacks, when asked
)
ASK_FOR_STACKS = signal.SIGUSR1


def pytest_configure() -> None:
    """Have this process write the stacks of its threads, to a file named by its pid, when it is asked to."""
    if folder := os.environ.get(STACKS):
        file = Path(folder, str(os.getpid())).open("w")  # noqa: SIM115 - as long as the process
        faulthandler.register(ASK_FOR_STACKS, file=file, all_threads=True)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line for each reason to skip, however many tests share it; and the report."""
    stats = terminalreporter.stats
    skipped = Counter(skip_reason(report) for report in stats.get("skipped", ()))
    for reason, count in sorted(skipped.items()):
        terminalreporter.write_line(f"skipped {count}: {reason}")
    if path := os.environ.get(REPORT):
        failures: dict[str, str] = {}
        for report in (*stats.get("failed", ()), *stats.get("error", ())):
            failures.setdefault(report.nodeid, report.longreprtext)  # the first of call and teardown
        counts = {kind: len(stats.get(kind, ())) for kind in ("passed", "skipped")}
        Path(path).write_text(json.dumps(counts | {"failures": failures}))


def skip_reason(report: pytest.TestReport) -> str:
    """Why a test was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return str(text).removeprefix("Skipped: ")
