"""A Python rank and the children that it forks write whole lines into one pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, find_python

from echelon.agent.ranks.launching import launch

CHILDREN = """
import multiprocessing, sys

def work(number):
    for step in range(2000):
        print("worker", number, "step", step, "loss", 0.5)
        print("warning", number, step, file=sys.stderr)

context = multiprocessing.get_context("fork")
children = [context.Process(target=work, args=(number,)) for number in range(4)]
for child in children:
    child.start()
for child in children:
    child.join()
"""


def run(tmp_path: Path, script: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    (tmp_path / "script.py").write_text(script)
    around = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": launch.STARTUP}
    words = [python, str(tmp_path / "script.py")]
    return subprocess.run(
        words, env=around, capture_output=True, text=True, timeout=2 * PATIENCE, check=False
    )


@pytest.mark.parametrize("version", ["", "3.8", "3.13"])
def test_children_do_not_cut_each_others_lines(tmp_path: Path, version: str) -> None:
    python = find_python(version) if version else sys.executable
    if python is None:
        pytest.skip(f"needs Python {version}")
    done = run(tmp_path, CHILDREN, python)
    expected = {f"worker {number} step {step} loss 0.5" for number in range(4) for step in range(2000)}
    assert len(done.stdout.splitlines()) == 8000
    assert set(done.stdout.splitlines()) == expected
    assert set(done.stderr.splitlines()) == {f"warning {n} {step}" for n in range(4) for step in range(2000)}


def test_a_rank_that_is_killed_has_written_its_lines(tmp_path: Path) -> None:
    done = run(tmp_path, "import os, signal; print('a', 'line'); os.kill(os.getpid(), signal.SIGKILL)")
    assert done.stdout == "a line\n"


def test_what_is_flushed_comes_at_once(tmp_path: Path) -> None:
    done = run(tmp_path, "import os; print('half', end='', flush=True); print(' lost', end=''); os._exit(0)")
    assert done.stdout == "half"


def test_streams_that_are_closed_or_replaced_stay_so(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys; sys.exit(3 if sys.stdout is None else 4)")
    around = {**os.environ, "PYTHONPATH": launch.STARTUP}
    words = ["sh", "-c", f"exec {sys.executable} {tmp_path / 'script.py'} >&-"]
    assert subprocess.run(words, env=around, timeout=PATIENCE, check=False).returncode == 3
