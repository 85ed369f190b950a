"""Copies of results that are on this machine already."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from echelon.engines.results import copy_matching, copy_result
from echelon.errors import InvalidJob, StateTrouble
from echelon.model.copy import LeftOut


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "fm"
    (folder / "ckpt").mkdir(parents=True)
    (folder / "ckpt" / "1.pt").write_text("one")
    (folder / "latest").symlink_to(folder / "ckpt" / "1.pt")  # as scripts make it: absolute
    (folder / "ckpt" / "up").symlink_to("../latest")
    (tmp_path / "data").mkdir()
    (folder / "data").symlink_to(tmp_path / "data")
    return folder


def test_links_inside_stay_links_to_what_was_copied(results: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    assert copy_result(results, ".", to) == to
    assert (to / "latest").readlink() == Path("ckpt/1.pt")
    assert (to / "ckpt" / "up").readlink() == Path("../latest")
    assert (to / "ckpt" / "up").read_text() == "one"
    assert (to / "data").readlink() == tmp_path / "data"  # outside: the same place as before


def test_again_and_over_what_is_there(results: Path, tmp_path: Path) -> None:
    to = tmp_path / "to"
    for content in ("one", "two"):
        (results / "ckpt" / "1.pt").write_text(content)
        copy_result(results, ".", to)
        assert (to / "latest").read_text() == content
    assert sorted(path.name for path in to.iterdir()) == ["ckpt", "data", "latest"]
    assert copy_result(results, "ckpt", to) == to / "ckpt"
    assert copy_result(results, "latest", tmp_path / "x").read_text() == "two"


def test_what_is_no_file_is_told(results: Path, tmp_path: Path) -> None:
    os.mkfifo(results / "ckpt" / "pipe")
    told: list[LeftOut] = []
    copy_result(results, ".", tmp_path / "to", notice=told.append)
    assert told == [LeftOut(path="ckpt/pipe", why="a pipe")]
    assert (tmp_path / "to" / "ckpt" / "1.pt").read_text() == "one"


def test_a_target_inside_of_what_is_copied(results: Path) -> None:
    copy_result(results, ".", results / "ckpt" / "copy")
    assert (results / "ckpt" / "copy" / "ckpt" / "1.pt").read_text() == "one"
    assert not (results / "ckpt" / "copy" / "ckpt" / "copy").exists()


def test_what_is_left_out_and_what_cannot_be(results: Path, tmp_path: Path) -> None:
    copy_result(results, ".", tmp_path / "to", leave_out=("ckpt",))
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == ["data", "latest"]
    with pytest.raises(InvalidJob, match="outside the results"):
        copy_result(results, "data", tmp_path / "to")
    told: list[LeftOut] = []
    to = tmp_path / "some"
    assert copy_matching(results, "[cd]*", to, notice=told.append) == [to / "ckpt"]
    assert told == [LeftOut(path="data", why="it leads out of the results")]
    (results / "a[1].pt").write_text("odd")
    assert copy_matching(results, "a[1].pt", to) == [to / "a[1].pt"]
    with pytest.raises(InvalidJob, match="matches nothing"):
        copy_matching(results, "ck*", to, leave_out=("ckpt",))
    (tmp_path / "file").touch()
    with pytest.raises(StateTrouble):
        copy_result(results, ".", tmp_path / "file")
    (tmp_path / "odd" / "latest").mkdir(parents=True)
    with pytest.raises(StateTrouble):
        copy_result(results, ".", tmp_path / "odd")
    assert not list((tmp_path / "odd").glob(".*"))
