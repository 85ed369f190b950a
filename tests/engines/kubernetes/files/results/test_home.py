"""Where results belong on this machine."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.engines.kubernetes.small import stored

from echelon.engines.kubernetes.files.results.home import local_folder
from echelon.engines.machine import Submissions


def folder(results: Path | str) -> Path:
    """Where the results of a run belong that this machine submitted, to be put there."""
    submissions = Submissions()
    submissions.remember("the-record", Path(results))
    return local_folder(stored(), submissions)


def test_home_is_where_the_submission_said(tmp_path: Path) -> None:
    assert folder(tmp_path / "runs" / "demo") == tmp_path / "runs" / "demo"
    assert folder(tmp_path / "there") == tmp_path / "there"


def test_a_run_of_another_machine_comes_to_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_folder(stored(), Submissions()) == tmp_path / "runs" / "demo"
    assert folder("/no/such/home/project/runs/demo") == tmp_path / "runs" / "demo"


def test_a_path_in_a_record_leads_no_write_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schema 1 had one; by now anybody may have written it."""
    monkeypatch.chdir(tmp_path)
    old = stored(schema="1")
    (tmp_path / ".ssh").mkdir()
    said = replace(old, run=replace(old.run, results=str(tmp_path / ".ssh")))
    assert local_folder(said, Submissions()) == tmp_path / "runs" / "demo"
    mine = Submissions()
    mine.remember("the-record", tmp_path / "there")
    assert local_folder(said, mine) == tmp_path / "there"


def test_home_that_is_another_users_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    monkeypatch.chdir(tmp_path)
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != theirs and may(path, mode))
    assert folder(theirs / "runs" / "demo") == tmp_path / "runs" / "demo"
