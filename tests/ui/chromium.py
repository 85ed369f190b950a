"""The browser of the tests of the dashboard, which runs in a process of its own (`tests/ui/visit.py`)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

from testbed.chromium import find_chromium, missing
from testbed.fixtures import give_up

ROOT = Path(__file__).parents[2]


def the_chromium() -> str:
    """The program; without it the test is skipped, and in CI it fails."""
    if importlib.util.find_spec("playwright") is None:
        give_up("needs Playwright: uv pip install --group browser")
    return find_chromium() or give_up(missing() or "needs Chromium: python -m testbed browser")


def start_visitor(module: str, *words: object, out: IO[str]) -> subprocess.Popen[str]:
    """Start one of the programs beside this file; what it says comes to a file."""
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.ui.{module}", *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
    )
