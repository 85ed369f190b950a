"""The folder of a run: one holder at a time, whole files, events that are never half read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from echelon.engines.local.folder import rundir
from echelon.engines.local.folder.events import read_events
from echelon.engines.local.folder.rundir import RunDir


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def test_a_run_has_one_holder(folder: RunDir) -> None:
    assert not rundir.is_held(folder)
    with rundir.hold(folder) as lock:
        assert lock is not None
        os.set_inheritable(lock, True)
        code = "import sys; print('holding', flush=True); sys.stdin.read()"
        heir = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(lock,)
        )
        assert heir.stdout is not None
        assert heir.stdout.readline() == b"holding\n"
    assert rundir.is_held(folder)  # by the heir
    with rundir.hold(folder) as second:
        assert second is None
    heir.kill()
    heir.communicate()
    assert not rundir.is_held(folder)


def test_a_run_that_is_gone_is_not_held(tmp_path: Path) -> None:
    assert not rundir.is_held(RunDir(tmp_path / "gone"))


def test_events_of_many_writers_are_whole_lines(folder: RunDir) -> None:
    def tell(writer: int) -> None:
        for number in range(50):
            rundir.append_event(
                folder, {"kind": "note", "at": 1.0, "reason": f"{writer}-{number}" * 50, "rank": None}
            )

    threads = [threading.Thread(target=tell, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A writer that finds another's line half written begins a new line: an empty one may stand between two.
    events = [json.loads(line) for line in folder.events.read_bytes().splitlines() if line]
    assert len(events) == 200
    assert len(list(read_events(folder))) == 200
    assert all("rank" not in event for event in events)  # what is None is not said
    assert folder.events.stat().st_mode & 0o077 == 0


def test_a_run_ends_once(folder: RunDir) -> None:
    rundir.write_final(folder, {"kind": "finished", "at": 1.0, "outcome": "succeeded"})
    rundir.write_final(folder, {"kind": "finished", "at": 2.0, "outcome": "lost"})
    assert rundir.read_json(folder.final) == {"kind": "finished", "at": 1.0, "outcome": "succeeded"}
    assert len(folder.events.read_bytes().splitlines()) == 1


@pytest.mark.parametrize("content", [None, b"", b"{", b"[1]", b"\xff"])
def test_a_small_file_that_cannot_be_read(folder: RunDir, content: bytes | None) -> None:
    if content is not None:
        folder.stop.write_bytes(content)
    assert rundir.read_json(folder.stop) is None


def test_output_of_agents_is_found_in_order(folder: RunDir) -> None:
    for worker, failures in ((10, 0), (2, 1), (2, 0)):
        folder.worker_log(worker, failures).touch()
    assert [(worker, failures) for worker, failures, _ in folder.worker_logs()] == [(2, 0), (2, 1), (10, 0)]
