"""What lies in a folder of checkpoints, and which of it is complete."""

from __future__ import annotations

import os
from pathlib import Path

from echelon.agent.files.manifest import manifest_of
from echelon.agent.keep.entries import POINTER, QUIET, Found, Watch, read, scan, to_give, written_now


def found(version: str) -> dict[str, Found]:
    return {"a": Found("a", version, 1, 1, 0)}


def test_entries_are_files_folders_and_links_beside_them(tmp_path: Path) -> None:
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "model").write_bytes(b"123")
    (tmp_path / "last.pt").write_bytes(b"12345")
    (tmp_path / "latest").symlink_to("step-1")
    (tmp_path / "outside").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    entries = scan(str(tmp_path))
    assert {name: (entry.files, entry.size) for name, entry in entries.items()} == {
        "step-1": (1, 3),
        "last.pt": (1, 5),
        "latest": (0, 0),
    }
    assert entries["latest"].link == "step-1"
    assert entries["step-1"].version == manifest_of(str(tmp_path / "step-1"))["digest"]
    assert all(vars_of(Found.of(entry.raw())) == vars_of(entry) for entry in entries.values())


def vars_of(entry: Found | None) -> dict[str, object]:
    assert entry is not None
    return {name: getattr(entry, name) for name in Found.__slots__}


def test_its_version_changes_with_everything_in_it(tmp_path: Path) -> None:
    place = tmp_path / "a"
    place.write_bytes(b"1")
    os.utime(place, ns=(5, 5))
    versions = [read(str(tmp_path), "a")]
    place.write_bytes(b"12")
    os.utime(place, ns=(5, 5))
    versions.append(read(str(tmp_path), "a"))
    os.utime(place, ns=(5, 6))
    versions.append(read(str(tmp_path), "a"))
    assert len({entry.version for entry in versions if entry}) == 3
    assert [entry.at for entry in versions if entry] == [5, 5, 6]


def test_who_may_be_no_name_of_a_stranger() -> None:
    good = Found("a", "v", 1, 1, 0).raw()
    assert Found.of(good) is not None
    for bad in (
        {"entry": "../a"},
        {"entry": "a/b"},
        {"link": "/etc"},
        {"link": "../a"},
        {"size": -1},
        {"at": "1"},
    ):
        assert Found.of({**good, **bad}) is None


def test_it_is_complete_when_it_has_been_quiet_for_a_while() -> None:
    watch = Watch()
    watch.see(found("1"), 0.0)
    assert watch.quiet(QUIET - 1) == []
    watch.see(found("2"), QUIET - 1)
    assert watch.quiet(QUIET) == []
    assert watch.quiet(2 * QUIET) == ["a"]
    watch.confirm(["a"])
    assert watch.complete == {"a": "2"}
    watch.see(found("3"), 3 * QUIET)
    assert watch.complete == {}


def test_what_ranks_that_ended_by_themselves_have_left_is_complete() -> None:
    watch = Watch()
    watch.see(found("1"), 0.0)
    watch.end(trusted=True)
    assert watch.complete == {"a": "1"}


def test_what_ranks_died_over_stays_torn_until_it_is_written_anew() -> None:
    watch = Watch()
    watch.see(found("1"), 0.0)
    watch.end(trusted=False)
    watch.see(found("1"), 100.0)
    assert (watch.quiet(100.0), watch.complete) == ([], {})
    watch.end(trusted=True)
    assert watch.complete == {}
    watch.see(found("2"), 101.0)
    assert watch.quiet(101.0 + QUIET) == ["a"]


def test_a_file_that_is_open_for_writing_is_not_complete(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").write_bytes(b"1")
    with (tmp_path / "a" / "part").open("wb"), (tmp_path / "b").open("rb"):
        assert written_now(str(tmp_path)) == {"a"}
    assert written_now(str(tmp_path)) == set()


def an(name: str, at: int, *, pointer: bool = False) -> Found:
    return Found(name, "v", 1, 10, at, pointer=pointer)


def test_the_newest_is_given_first_and_a_pointer_after_what_it_may_name() -> None:
    """As DeepSpeed and Megatron write them: a folder, then a small file with its name."""
    entries = [an("step-1", 10), an("step-2", 20), an("latest", 21, pointer=True)]
    found = {each.name: each for each in entries}
    assert to_give(found, found, (), ()) is found["step-2"]
    assert to_give(found, ["latest", "step-1"], (), ()) is found["step-1"], "step-2 is being written"
    assert to_give(found, ["latest"], ["step-1"], ()) is None
    assert to_give(found, found, ["step-1"], ["step-2"]) is None, "what does not fit is not there either"
    assert to_give(found, ["latest"], ["step-2"], ()) is found["latest"], "an older one never matters"
    del found["step-2"]
    found["step-3"] = an("step-3", 30)
    assert to_give(found, ["latest"], ["step-1"], ()) is found["latest"], "it names none that is newer"


def test_small_files_and_links_may_be_pointers(tmp_path: Path) -> None:
    (tmp_path / "step").mkdir()
    (tmp_path / "latest").write_text("step")
    (tmp_path / "to").symlink_to("step")
    (tmp_path / "large").write_bytes(b"x" * (POINTER + 1))
    found = scan(str(tmp_path))
    assert {name for name, each in found.items() if each.pointer} == {"latest", "to"}
    for each in found.values():
        again = Found.of(each.raw())
        assert again is not None
        assert again.pointer == each.pointer
