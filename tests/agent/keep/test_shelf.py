"""The checkpoints that a keeper has: there is always a whole one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from echelon.agent.gang.rounds import mark_of
from echelon.agent.keep.entries import Found, read, scan, stock_mark
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
    assert shelf.safe() == [
        {"entry": "a", "parts": {"0": "v", "1": "v"}, "files": 2, "size": 20, "at": 2, "pointer": False}
    ]


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
    assert shelf.make_room(2 * most // 3 - 1, most) == ["step-1"]
    assert [each["entry"] for each in shelf.safe()] == ["step-2"]


def test_what_its_script_has_deleted_goes(shelf: Shelf) -> None:
    place = bring(shelf, 0, "a", "v")
    shelf.make_safe("a", {0: "v"})
    shelf.forget("a")
    assert not place.exists()
    assert (shelf.safe(), shelf.space) == ([], 0)


def write(place: Path, text: str, at: int) -> str:
    """A file of that time; returns the version of its entry."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    os.utime(place, ns=(at, at))
    found = read(str(place.parent), place.name)
    assert found is not None
    return found.version


def give(shelf: Shelf, worker: int, entry: str, text: str, at: int) -> str:
    place = Path(shelf.place())
    version = write(place / entry, text, at)
    found = read(str(place), entry)
    assert found is not None
    shelf.put(worker, found, str(place))
    return version


def test_room_is_not_made_for_what_does_not_fit_anyway(shelf: Shelf) -> None:
    for number in range(3):
        bring(shelf, 0, f"step-{number}", "v", at=number, size=1000)
        shelf.make_safe(f"step-{number}", {0: "v"})
    assert shelf.make_room(10 * shelf.space, shelf.space) == []
    assert len(shelf.safe()) == 3


def test_room_is_made_of_what_never_became_safe_too(shelf: Shelf) -> None:
    """As a part of a checkpoint whose other part was lost with its worker: no worker deletes it any more."""
    bring(shelf, 0, "step-0", "v", at=0, size=1000)
    bring(shelf, 0, "step-1", "v", at=1, size=1000)
    shelf.make_safe("step-1", {0: "v"})
    most = shelf.space
    assert shelf.make_room(100, most) == []
    assert not shelf.has(0, Found("step-0", "v", 1, 1000, 0))
    assert shelf.space + 100 <= most


def test_at_the_end_they_are_among_the_results_and_stay_what_they_are(shelf: Shelf, tmp_path: Path) -> None:
    version = give(shelf, 0, "a", "good", 1)
    bring(shelf, 1, "a", "v")
    shelf.make_safe("a", {0: version, 1: "v"})
    place = tmp_path / "0" / "ckpt" / "a"
    shelf.link_newest(0, str(place.parent))
    assert place.read_text() == "good"
    (tmp_path / "new").write_text("torn")
    (tmp_path / "new").replace(place)  # as a copy puts a file in its place
    shelf.link_newest(0, str(place.parent))
    assert place.read_text() == "torn", "what has come since is newer"
    assert len(shelf.safe()) == 1
    shelf.restore(0, str(place.parent), str(tmp_path / "0" / "aside"))
    assert place.read_text() == "good"
    assert (tmp_path / "0" / "aside" / "a").read_text() == "torn"
    shelf.drop(0)
    assert [each["parts"] for each in shelf.safe()] == [{"1": "v"}]
    assert shelf.has(1, Found("a", "v", 1, 10, 1))
    assert place.read_text() == "good"


def test_results_of_a_run_that_failed_have_what_another_start_would_go_on_from(
    shelf: Shelf, tmp_path: Path
) -> None:
    """What is newer than the newest safe checkpoint is moved aside, what is older stays, and what its script
    has deleted comes back if it is safe.
    """
    ckpt, aside = tmp_path / "ckpt", tmp_path / "aside"
    shelf.make_safe("step-1", {0: give(shelf, 0, "step-1", "one", 100)})
    shelf.make_safe(
        "step-2", {0: give(shelf, 0, "step-2", "two", 200), 1: give(shelf, 1, "step-2", "2", 210)}
    )
    for number in (0, 2, 3):
        write(ckpt / f"step-{number}", f"written {number}" if number != 2 else "two", 100 * number)
    shelf.restore(0, str(ckpt), str(aside))
    there = {path.name: path.read_text() for path in ckpt.iterdir()}
    assert there == {"step-0": "written 0", "step-1": "one", "step-2": "two"}
    assert [path.name for path in aside.iterdir()] == ["step-3"]


def test_without_anything_safe_results_stay_as_they_are(shelf: Shelf, tmp_path: Path) -> None:
    give(shelf, 0, "step-1", "one", 100)
    write(tmp_path / "ckpt" / "step-1", "other", 300)
    shelf.restore(0, str(tmp_path / "ckpt"), str(tmp_path / "aside"))
    assert (tmp_path / "ckpt" / "step-1").read_text() == "other"
    assert not (tmp_path / "aside").exists()


def test_folders_and_links_are_put_back_too(shelf: Shelf, tmp_path: Path) -> None:
    place = Path(shelf.place())
    write(place / "step-1" / "deep" / "shard", "s", 100)
    (place / "step-1" / "to").symlink_to("deep/shard")
    found = read(str(place), "step-1")
    assert found is not None
    shelf.put(1, found, str(place))
    shelf.make_safe("step-1", {1: found.version})
    shelf.link_safe(1, str(tmp_path / "saved"))
    again = read(str(tmp_path / "saved"), "step-1")
    assert again is not None
    assert again.version == found.version
    shelf.link_safe(0, str(tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()


def test_a_part_that_its_worker_has_deleted_goes_alone(shelf: Shelf) -> None:
    mine, theirs = bring(shelf, 0, "a", "v"), bring(shelf, 1, "a", "v")
    shelf.forget("a", 0)
    assert (mine.exists(), theirs.exists()) == (False, True)


def test_what_a_worker_wrote_is_stated_with_the_mark_of_all_parts(shelf: Shelf) -> None:
    bring(shelf, 0, "a", "v")
    bring(shelf, 1, "a", "w")
    bring(shelf, 1, "b", "x")
    assert shelf.stated(0) == {}
    shelf.make_safe("a", {0: "v", 1: "w"})
    mark = mark_of({"parts": {"0": "v", "1": "w"}})
    assert (shelf.stated(0), shelf.stated(1)) == ({"a": ["v", mark, 1]}, {"a": ["w", mark, 1]})
    shelf.drop(0)  # its results have it
    assert shelf.stated(0) == {"a": ["v", mark, 1]}
    shelf.forget("a")
    assert (shelf.stated(0), shelf.stated(1)) == ({}, {})


def test_what_an_earlier_start_left_is_safe_but_what_came_since_counts(shelf: Shelf, tmp_path: Path) -> None:
    folder = tmp_path / "sent"
    for worker, name in ((0, "a"), (1, "a"), (0, "b")):
        (folder / str(worker) / name).mkdir(parents=True)
        (folder / str(worker) / name / "file").write_bytes(b"x" * (worker + 1))
    bring(shelf, 1, "b", "new", at=1 << 62)
    found = {worker: scan(str(folder / str(worker))) for worker in (0, 1)}
    shelf.stock(found, str(folder))
    assert [(told["entry"], sorted(told["parts"])) for told in shelf.safe()] == [("a", ["0", "1"])]
    assert (Path(shelf.places()["a", 1]) / "a" / "file").read_bytes() == b"xx"
    assert (folder / "0" / "b").exists()
    assert shelf.make_safe("b", {1: "new"})


def test_a_stock_is_known_by_all_of_its_parts() -> None:
    one, other = Found("a", "v", 1, 10, 1), Found("a", "w", 1, 10, 1)
    marks = [stock_mark(each) for each in ({}, {0: {"a": one}}, {1: {"a": one}}, {0: {"a": other}})]
    assert len(set(marks)) == 4
