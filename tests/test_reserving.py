"""A folder that is reserved for a run elsewhere is free once that run has ended; two runs of this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from echelon import reserving
from echelon.engines import reservation
from echelon.engines.local.engine import LocalEngine
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act, one_node
from echelon.engines.reservation import Owner, owner_of
from echelon.errors import StateTrouble, Unreachable
from echelon.model.job import Job
from echelon.model.run import RunRef
from echelon.reserving import free_folder
from tests.conftest import wait_until

STAYS = """
import os, time
open(os.environ["ECHELON_OUTPUT"] + "/checkpoint", "a").write("x")
time.sleep(600)
"""
Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> MemoryEngine:
    """Stands for the engine that the address of a run leads to."""
    engine = MemoryEngine({"stay.py": Act(lasts=True)}, cluster=one_node())
    monkeypatch.setattr(reserving, "choose_engine", lambda *_, **__: engine)
    return engine


def recorded(engine: MemoryEngine, tmp_path: Path) -> tuple[RunRef, Owner]:
    ref = engine.record(Job(name="far", script="stay.py", framework="plain", cwd=str(tmp_path)), None)
    owner = Owner(run="k8s://team/far?context=big", created=engine.read(ref).created)
    reservation.reserve(tmp_path / "out", owner).close()
    return ref, owner


def test_a_run_elsewhere_has_its_folder_until_it_has_ended(far: MemoryEngine, tmp_path: Path) -> None:
    ref, owner = recorded(far, tmp_path)
    out = tmp_path / "out"
    with pytest.raises(StateTrouble, match="run k8s://team/far"):
        free_folder(out, "b", LocalEngine(tmp_path))
    assert owner_of(out) == owner
    far.stop(ref)
    free_folder(out, "b", LocalEngine(tmp_path))
    assert owner_of(out) is None


def test_a_run_that_vanished_and_another_of_its_name_have_none(far: MemoryEngine, tmp_path: Path) -> None:
    ref, owner = recorded(far, tmp_path)
    out = tmp_path / "out"
    older = Owner(run=owner.run, created=owner.created - 1)
    reservation.reserve(out, older).close()
    free_folder(out, "b", LocalEngine(tmp_path))
    assert owner_of(out) is None
    reservation.reserve(out, owner).close()
    far.stop(ref)
    far.remove(ref)
    free_folder(out, "b", LocalEngine(tmp_path))
    assert owner_of(out) is None


def test_a_run_that_cannot_be_asked_keeps_its_folder(
    far: MemoryEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, owner = recorded(far, tmp_path)

    def silent(_ref: RunRef) -> None:
        raise Unreachable("no answer")

    monkeypatch.setattr(far, "read", silent)
    with pytest.raises(StateTrouble, match="is not known: no answer") as refused:
        free_folder(tmp_path / "out", "b", LocalEngine(tmp_path))
    assert str(tmp_path / "out" / ".echelon-run") in refused.value.hint
    assert owner_of(tmp_path / "out") == owner


def test_no_two_runs_of_this_machine_write_to_one_folder(cli: Cli, home: Path, tmp_path: Path) -> None:
    Path("stay.py").write_text(STAYS)
    assert cli("run", "-d", "--name", "a", "stay.py").returncode == 0
    wait_until(lambda: Path("runs/a/checkpoint").exists(), "the checkpoint of run a")
    Path("link").symlink_to("runs/a")
    for results in ("runs/a", "link"):
        second = cli("run", "-d", "--name", "b", "--reuse-results", "--results", results, "stay.py")
        assert (second.returncode, "run 'a' writes to it" in second.stderr) == (115, True), second.stderr
    other = tmp_path / "state-2"
    words = ("run", "-d", "--name", "b", "--reuse-results", "--results", "link", "stay.py")
    elsewhere = cli(*words, env={**os.environ, "ECHELON_HOME": str(other)})
    assert (elsewhere.returncode, f"run 'a' of {home}" in elsewhere.stderr) == (115, True), elsewhere.stderr
    assert [row.name for row in LocalEngine(home).runs()] == ["a"]
    assert LocalEngine(other).runs() == []

    assert cli("stop", "a").returncode == 0  # from now on, without a wait
    taken = cli(*words)
    assert taken.returncode == 0, taken.stderr
    wait_until(lambda: Path("runs/a/checkpoint").read_text() == "xx", "the second start")
    resumed = cli("resume", "-d", "a")
    assert (resumed.returncode, "run 'b' writes to it" in resumed.stderr) == (115, True), resumed.stderr
    assert cli("stop", "b").returncode == 0
    assert cli("resume", "-d", "a").returncode == 0
