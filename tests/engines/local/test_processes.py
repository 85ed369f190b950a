"""Processes of a run are found by their mark, wherever they have gone, and ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until

from echelon.engines.local.processes import MARK, end_marked_processes, mark_of, marked_processes

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="another process's environment cannot be read here"
)
FORK_AWAY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").close()
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""


def test_a_process_that_has_left_its_family(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "fm"
    away = tmp_path / "away"
    mine = subprocess.Popen(
        [sys.executable, "-c", FORK_AWAY, str(away)], env={**os.environ, MARK: mark_of(folder, 1.5)}
    )
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, MARK: mark_of(Path(f"{folder}-2"), 1.5)})
    try:
        wait_until(away.exists, "the grandchild")
        found = marked_processes(folder)
        assert mine.pid in found
        assert len(found) >= 2
        assert other.pid not in found  # though its mark begins the same
        assert end_marked_processes(folder) == []
        assert marked_processes(folder) == []
        assert mine.wait(PATIENCE) == -9
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_nobody_is_there(tmp_path: Path) -> None:
    assert marked_processes(tmp_path) == []
    assert end_marked_processes(tmp_path) == []


def test_we_do_not_end_ourselves(tmp_path: Path) -> None:
    code = (
        "from echelon.engines.local.processes import end_marked_processes; import sys\n"
        "print(end_marked_processes(sys.argv[1]))"
    )
    environment = {**os.environ, MARK: mark_of(tmp_path, 1.5)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
