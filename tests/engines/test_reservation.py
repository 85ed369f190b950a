"""A results folder belongs to one run at a time, whichever way leads to it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from echelon.agent.files.tree import MARKER
from echelon.engines import reservation
from echelon.engines.reservation import Owner, owner_of, reserve
from echelon.engines.results import (
    check_results,
    copy_result,
    holds_results,
    reserve_results,
)
from echelon.errors import RunExists, StateTrouble

A = Owner(run="local://a", created=1.0, state="/elsewhere/state")
B = Owner(run="local://b", created=2.0, state="/elsewhere/state")
FAR = Owner(run="k8s://team/far?context=big", created=3.0)


def test_a_second_writer_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    hold = reserve(folder, A)
    (tmp_path / "link").symlink_to(folder)
    for way in (folder, tmp_path / "link"):
        with pytest.raises(StateTrouble, match="run 'a' of /elsewhere/state writes to it") as refused:
            reserve(way, B)
        assert "ECHELON_HOME=/elsewhere/state echelon stop a" in refused.value.hint
        with pytest.raises(StateTrouble, match="'a'"):  # whatever is in it: that is the other's
            reserve_results(way, B, resume=False)
    hold.close()
    with reserve(tmp_path / "link", B):
        assert owner_of(folder) == B


def test_the_reservation_ends_with_the_process_that_inherited_it(tmp_path: Path) -> None:
    with reserve(tmp_path, A) as hold:
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[hold.fileno()]
        )
    with pytest.raises(StateTrouble, match="'a'"):
        reserve(tmp_path, B)
    child.kill()
    child.communicate()
    reserve(tmp_path, B).close()


def test_a_run_elsewhere_needs_no_process_here(tmp_path: Path) -> None:
    reserve(tmp_path, FAR).close()
    with pytest.raises(StateTrouble, match=r"run k8s://team/far\?context=big writes to it") as refused:
        reserve(tmp_path, A)
    assert "echelon stop 'k8s://team/far?context=big'" in refused.value.hint
    reserve(tmp_path, FAR).close()  # its own again, as when it is resumed
    reservation.withdraw(tmp_path, A)  # which has no reservation
    assert owner_of(tmp_path) == FAR
    reservation.withdraw(tmp_path, FAR)
    reserve(tmp_path, A).close()


def test_the_same_run_twice_at_once_is_a_name_that_is_taken(tmp_path: Path) -> None:
    """Two commands submit one run: which of them gets the folder first says nothing about the folder."""
    folder, first = tmp_path / "out", Owner(run="k8s://ns/twin?context=c", created=1.0)
    with reserve(folder, first):
        for refused in (reserve, reservation.check_free):
            with pytest.raises(RunExists, match="a run named 'twin' exists"):
                refused(folder, replace(first, created=2.0))
    reserve(folder, replace(first, created=2.0)).close()


def test_the_marker_is_no_result(tmp_path: Path) -> None:
    out = tmp_path / "out"
    reserve(out, A).close()
    (out / ".gitignore").write_text("*\n")
    check_results(out, resume=False)
    assert not holds_results(out)
    (out / "model").touch()
    assert holds_results(out)
    with pytest.raises(StateTrouble, match="not empty"):
        check_results(out, resume=False)
    copy_result(out, ".", tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == [".gitignore", "model"]


def test_of_a_run_without_results_nothing_stays(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    reserve(folder, A).close()
    reservation.forget(folder, B)  # not its own
    assert owner_of(folder) == A
    (folder / "model").touch()
    reservation.forget(folder, A)
    assert owner_of(folder) == A
    (folder / "model").unlink()
    reservation.forget(folder, A)
    assert not folder.exists()


@pytest.mark.parametrize("content", [b"", b"\0\xff", b"[]", b'{"run": "local://"}', b"[" * 5000])
def test_what_cannot_be_read_reserves_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MARKER).write_bytes(content)
    assert owner_of(tmp_path) is None
    reserve(tmp_path, A).close()
    assert owner_of(tmp_path) == A


def test_a_link_or_pipe_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    (tmp_path / MARKER).symlink_to("other")
    with pytest.raises(StateTrouble):
        reserve(tmp_path, A)
    assert (tmp_path / "other").read_bytes() == b""
    (tmp_path / MARKER).unlink()
    os.mkfifo(tmp_path / MARKER)
    assert owner_of(tmp_path) is None
    with pytest.raises(StateTrouble):
        reserve(tmp_path, A)


def test_the_folder_for_all_results_ignores_itself_in_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reserve_results(Path("runs/a").absolute(), A, resume=False).close()
    assert Path("runs/.gitignore").read_text() == "*\n"
    Path("runs/.gitignore").write_text("mine\n")
    reservation.make_runs(Path("runs"))
    assert Path("runs/.gitignore").read_text() == "mine\n"
    reserve_results(Path("elsewhere/a").absolute(), A, resume=False).close()
    assert not Path("elsewhere/.gitignore").exists()


def test_a_submission_that_fails_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("runs/a").absolute()
    reserve_results(folder, A, resume=False).close()
    reservation.forget(folder, A)
    assert not Path("runs").exists()
