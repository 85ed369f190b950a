"""What can go wrong around a local run's folder and its supervisor, and must not leave a run in limbo."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import PATIENCE, wait_until

from echelon.admission import admit
from echelon.bundle import pack_files
from echelon.engines.local import ending
from echelon.engines.local.engine import LocalEngine
from echelon.engines.local.folder import rundir
from echelon.errors import StateTrouble
from echelon.handle import Run
from echelon.model.job import Job
from echelon.model.resources import Amount, Resources
from echelon.model.run import parse_uri
from echelon.submit import Prepared, submit


@pytest.fixture
def engine(home: Path) -> LocalEngine:
    return LocalEngine(home)


def job(**more: object) -> Job:
    return Job(name="the-run", command=("true",), framework="plain", cwd=str(Path.cwd()), **more)  # type: ignore[arg-type]


def test_a_look_at_the_wrong_moment_does_not_keep_a_run_from_starting(engine: LocalEngine) -> None:
    """Every `ps` looks whether each run is held.

    A start at that very moment must wait, not take the looker for a holder.
    """
    ref = engine.record(job(), None)
    folder = engine.store.dir(ref.name)
    looking, go_on = threading.Event(), threading.Event()

    def look() -> None:
        with rundir.hold(folder) as lock:
            assert lock is not None
            looking.set()
            go_on.wait(PATIENCE)

    looker = threading.Thread(target=look)
    looker.start()
    looking.wait(PATIENCE)
    threading.Timer(0.2, go_on.set).start()
    admit(ref, engine)
    looker.join()
    assert Run(ref, engine).wait(PATIENCE).state == "succeeded"


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


def test_a_lost_run_has_trained_until_its_agents_wrote_last(engine: LocalEngine) -> None:
    run = submit(Prepared(job=job()), engine)
    run.wait(PATIENCE)
    folder = engine.store.dir(run.name)
    ending.await_supervisor(folder, PATIENCE)
    events = folder.events.read_text().splitlines(keepends=True)
    folder.events.write_text("".join(line for line in events if '"recorded"' in line or "-running" in line))
    folder.final.unlink()  # as if the supervisor had been killed
    hours_later = run.status().created + 7200.0
    os.utime(folder.worker_log(0, 0), (hours_later, hours_later))
    status = run.status()
    assert (status.state, status.ended) == ("lost", hours_later)


def test_a_run_that_is_removed_while_all_are_listed(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = submit(Prepared(job=job()), engine)
    run.wait(PATIENCE)
    folder = engine.store.dir(run.name)
    folder.final.unlink()  # as if it were just about to end
    hold = rundir.hold

    def remove_then_hold(which: rundir.RunDir) -> contextlib.AbstractContextManager[int | None]:
        shutil.rmtree(folder.path, ignore_errors=True)
        return hold(which)

    monkeypatch.setattr(rundir, "hold", remove_then_hold)
    assert [summary.name for summary in engine.runs()] in ([], ["the-run"])
    assert engine.runs() == []


def test_a_run_is_known_to_another_engine_of_the_same_home(engine: LocalEngine, home: Path) -> None:
    run = submit(Prepared(job=job()), engine)
    assert Run(parse_uri(str(run), ""), LocalEngine(home)).wait(PATIENCE).state == "succeeded"
    assert [summary.uri for summary in LocalEngine(home).runs()] == [str(run)]


def test_waiting_for_a_run_whose_submission_was_interrupted_is_not_for_ever(engine: LocalEngine) -> None:
    ref = engine.record(job(), None)
    long_ago = time.time() - 3600
    os.utime(engine.store.dir(ref.name).record, (long_ago, long_ago))
    with pytest.raises(StateTrouble, match="never started"):
        Run(ref, engine).wait()
    engine.remove(ref)
    assert engine.runs() == []


def test_a_submission_that_was_interrupted_at_the_worst_moment_is_taken_up(engine: LocalEngine) -> None:
    """Killed between taking the run and starting its supervisor: it is lost; submitted again, it runs."""
    ref = engine.record(job(), None)
    engine.store.dir(ref.name).supervisor_log.touch()
    assert Run(ref, engine).status().state == "lost"
    assert submit(Prepared(job=job()), engine).wait(PATIENCE).state == "succeeded"


def test_a_verdict_whose_end_could_not_be_written_is_not_a_loss(engine: LocalEngine) -> None:
    """A disk that was full at the very end."""
    run = submit(Prepared(job=job()), engine)
    run.wait(PATIENCE)
    folder = engine.store.dir(run.name)
    wait_until(lambda: not rundir.is_held(folder), "the supervisor to leave")
    folder.final.unlink()
    kept = [line for line in folder.events.read_bytes().splitlines() if b'"finished"' not in line]
    folder.events.write_bytes(b"\n".join(kept) + b"\n")
    assert run.status().state == "succeeded"


def test_other_code_under_the_same_name_is_not_mistaken_for_an_interrupted_submission(
    engine: LocalEngine,
) -> None:
    old, new = pack_files({"code.py": b"old"}), pack_files({"code.py": b"new"})
    engine.record(job(), old)
    assert engine.record(job(), new).name == "the-run"
    assert engine.store.dir("the-run").bundle.read_bytes() == new.data


def test_a_supervisor_in_line_that_is_told_to_end_says_so(engine: LocalEngine) -> None:
    ref = engine.record(job(), None)
    engine.queue(ref, "waiting for a test")
    folder = engine.store.dir(ref.name)
    wait_until(folder.supervisor.exists, "the supervisor")
    # It finds room at its first look; what matters is that it never ends without a word.
    os.kill(json.loads(folder.supervisor.read_bytes())["pid"], signal.SIGTERM)
    assert Run(ref, engine).wait(PATIENCE).state in ("stopped", "succeeded")


@pytest.mark.parametrize(
    ("needs", "looks"),
    [
        (Resources(), False),
        (Resources(cpus=Amount(request=0.001)), True),
        (Resources(memory=Amount(request=2**20)), True),
    ],
)
def test_only_a_job_that_asks_for_something_looks_at_all_other_runs(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, needs: Resources, looks: bool
) -> None:
    """Each of hundreds of submissions would read the folders of all that came before it."""
    submit(Prepared(job=replace(job(), name="other", command=("sleep", "600"))), engine)
    seen: list[str] = []
    real = rundir.is_held

    def watch(folder: rundir.RunDir) -> bool:
        seen.append(folder.path.name)
        return real(folder)

    monkeypatch.setattr(rundir, "is_held", watch)
    run = submit(Prepared(job=job(resources=needs)), engine)
    assert ("other" in seen) is looks
    assert run.wait(PATIENCE).state == "succeeded"
