"""The checkpoints that a keeper has: there is always a whole one."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.agent.keep.entries import Found
from echelon.agent.keep.shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(str(tmp_path / "shelf"))


def bring(shelf: Shelf, worker: int, entry: str, version: str, at: int = 1, size: int = 10) -> Path:
    place = Path(shelf.place())
    (place / entry).write_bytes(b"x" * size)
    shelf.put(worker, Found(entry, version, 1, size, at), str(place))
    return place


def test_it_is_safe_only_with_all_its_parts(shelf: Shelf) -> None:
    bring(shelf, 0, "a", "v")
    assert not shelf.make_safe("a", {0: "v", 1: "v"})
    assert not shelf.make_safe("a", {})
    bring(shelf, 1, "a", "v", at=2)
    assert shelf.make_safe("a", {0: "v", 1: "v"})
    assert shelf.safe() == [{"entry": "a", "parts": {"0": "v", "1": "v"}, "files": 2, "size": 20, "at": 2}]


def test_the_safe_one_stays_while_another_of_its_name_comes(shelf: Shelf) -> None:
    first = bring(shelf, 0, "last", "1")
    shelf.make_safe("last", {0: "1"})
    second = bring(shelf, 0, "last", "2")
    assert first.exists()
    third = bring(shelf, 0, "last", "3")
    assert (first.exists(), second.exists(), third.exists()) == (True, False, True)
    assert shelf.make_safe("last", {0: "3"})
    assert not first.exists()


def test_room_is_made_of_the_oldest_and_never_of_the_newest(shelf: Shelf) -> None:
    for number in range(3):
        bring(shelf, 0, f"step-{number}", "v", at=number, size=1000)
        shelf.make_safe(f"step-{number}", {0: "v"})
    most = shelf.space
    assert shelf.make_room(shelf.space // 3, most) == ["step-0"]
    assert shelf.make_room(10 * most, most) == ["step-1"]
    assert [each["entry"] for each in shelf.safe()] == ["step-2"]


def test_what_its_script_has_deleted_goes(shelf: Shelf) -> None:
    place = bring(shelf, 0, "a", "v")
    shelf.make_safe("a", {0: "v"})
    shelf.forget("a")
    assert not place.exists()
    assert (shelf.safe(), shelf.space) == ([], 0)


def test_at_the_end_they_are_moved_among_the_results(shelf: Shelf, tmp_path: Path) -> None:
    bring(shelf, 0, "a", "v")
    bring(shelf, 1, "a", "v")
    shelf.make_safe("a", {0: "v", 1: "v"})
    shelf.move_to(0, str(tmp_path / "0" / "ckpt"))
    assert (tmp_path / "0" / "ckpt" / "a").read_bytes() == b"x" * 10
    assert shelf.safe() == []
    assert shelf.has(1, Found("a", "v", 1, 10, 1))
