"""Settings from every source, the stronger first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from echelon.model.settings import Settings
from echelon.model.surroundings import Surroundings
from echelon.preparation.sources import Target, find_surroundings, gather, where_to_look

JOB = "script: train.py\nworkers: 3\nrestarts: 3\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text(
        "[tool.echelon]\nworkers = 2\nrestarts = 2\nprocs = 2\non = 'local'\nnamespace = 'team'\n"
    )
    Path("job.yaml").write_text(JOB)
    return tmp_path


def at(folder: Path, **environment: str) -> Surroundings:
    return Surroundings(folder=folder, environment=environment)


def test_the_stronger_source_wins(project: Path) -> None:
    job = Path("job.yaml")
    found = gather(Settings(workers=5), at(project), ["workers=4", "restarts=4"], job)
    assert (found.workers, found.restarts, found.procs, found.on) == (5, 4, 2, "local")
    assert gather(Settings(), at(project, ECHELON_ON="k8s"), file=job).on == "k8s"
    assert gather(Settings(on="local"), at(project, ECHELON_ON="k8s"), file=job).on == "local"


def test_the_project_is_the_script_s_or_the_folder_s(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "pyproject.toml").write_text("[tool.echelon]\nprocs = 7\n")
    assert gather(Settings(), at(outside)).procs == 7
    assert gather(Settings(script="../train.py"), at(outside)).procs == 2
    assert gather(Settings(script="outside/train.py"), at(project)).procs == 7


def test_where_to_look(project: Path) -> None:
    assert where_to_look(Target(), at(project)) == Target(on="local", namespace="team")
    assert where_to_look(Target(), at(project, ECHELON_ON="k8s")).on == "k8s"
    given = Target(on="k8s", context="far", namespace="mine")
    assert where_to_look(given, at(project, ECHELON_ON="local")) == given


def test_the_surroundings_of_this_process(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHELON_ON", "k8s")
    found = find_surroundings()
    assert (found.folder, found.environment) == (Path.cwd(), dict(os.environ))
    monkeypatch.setenv("ECHELON_ON", "local")
    assert found.environment["ECHELON_ON"] == "k8s"  # as of that moment
