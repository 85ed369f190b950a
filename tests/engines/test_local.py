"""What can go wrong around a local run's folder and its supervisor, and must not leave a run in limbo."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from echelon.engines.local import rundir
from echelon.engines.local.engine import LocalEngine
from echelon.handle import Run
from echelon.model.job import Job
from echelon.model.run import parse_uri
from echelon.submit import Prepared, submit

PATIENCE = 20.0


@pytest.fixture
def engine(home: Path) -> LocalEngine:
    return LocalEngine(home)


def job(**more: object) -> Job:
    return Job(name="the-run", command=("true",), framework="plain", cwd=str(Path.cwd()), **more)  # type: ignore[arg-type]


# BUG: LocalEngine._ensure_supervisor takes a lock that somebody holds for a look (_is_locked and _is_over, so
# every `ps`, `run` and `top`, take each run's lock for a moment) for a supervisor's, and starts none: the run
# is "starting" for ever. Seen in 7 of 1,500 starts beside two processes that call cluster() and runs().
def test_a_look_at_the_wrong_moment_does_not_keep_a_run_from_starting(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure = LocalEngine._ensure_supervisor

    def look_then_ensure(self: LocalEngine, folder: rundir.RunDir) -> None:
        lock = rundir.try_lock(folder.supervisor_lock)  # as another process does that calls cluster()
        assert lock is not None
        threading.Timer(0.2, os.close, [lock]).start()
        ensure(self, folder)

    monkeypatch.setattr(LocalEngine, "_ensure_supervisor", look_then_ensure)
    assert submit(Prepared(job=job()), engine).wait(PATIENCE).state == "succeeded"


# BUG: a supervisor that ends before it has written supervisor.json (its Python is gone, it was killed early)
# is never missed: LocalEngine._is_over says False for ever, and `run` and `wait` hang.
def test_a_supervisor_that_ends_before_its_first_word(
    engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    status = submit(Prepared(job=job()), engine).wait(PATIENCE)
    assert (status.state, status.exit_code) == ("lost", 117)
    assert status.root_cause is not None


# BUG: LocalEngine.runs() raises FileNotFoundError when a run is removed between two looks of _is_over at its
# folder: try_lock then opens a file in a folder that is gone (_is_locked expects that, _is_over does not).
# Seen within a minute of runs() in one process beside remove() in another.
def test_a_run_that_is_removed_while_all_are_listed(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = submit(Prepared(job=job()), engine)
    run.wait(PATIENCE)
    folder = engine.store.dir(run.name)
    folder.final.unlink()  # as if it were just about to end
    try_lock = rundir.try_lock

    def remove_then_lock(path: Path) -> int | None:
        shutil.rmtree(folder.path, ignore_errors=True)
        return try_lock(path)

    monkeypatch.setattr(rundir, "try_lock", remove_then_lock)
    assert [summary.name for summary in engine.runs()] in ([], ["the-run"])
    assert engine.runs() == []


def test_a_run_is_known_to_another_engine_of_the_same_home(engine: LocalEngine, home: Path) -> None:
    run = submit(Prepared(job=job()), engine)
    assert Run(parse_uri(str(run), ""), LocalEngine(home)).wait(PATIENCE).state == "succeeded"
    assert [summary.uri for summary in LocalEngine(home).runs()] == [str(run)]
