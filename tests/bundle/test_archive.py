"""The archive: the same bytes everywhere, and never a wrong one."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from echelon.bundle import pack, pack_files
from echelon.bundle.archive import _pack, human_size, read_content
from echelon.bundle.survey import survey
from echelon.errors import CannotShip

Change = Callable[[Path], object]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src/empty").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "src/model.py").write_text("x = 1\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "latest").symlink_to("src/model.py")
    (folder / "naïve-✓.txt").write_text("ü")
    (folder / ("long-" * 40 + ".txt")).write_text("long")
    return folder


def members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        return {info.name: info for info in archive.getmembers()}


def test_an_ordinary_archive_with_nothing_of_this_machine_in_it(root: Path) -> None:
    bundle = pack(root)
    inside = members(bundle.data)
    expected = [
        "latest",
        "long-" * 40 + ".txt",
        "naïve-✓.txt",
        "run.sh",
        "src/empty",
        "src/model.py",
        "train.py",
    ]
    assert list(inside) == expected
    for info in inside.values():
        assert (info.mtime, info.uid, info.gid, info.uname, info.gname) == (0, 0, 0, "", "")
    modes = {name: info.mode for name, info in inside.items()}
    assert modes["run.sh"] == modes["src/empty"] == 0o755
    assert modes["train.py"] == 0o644
    assert inside["latest"].issym()
    assert inside["latest"].linkname == "src/model.py"
    assert bundle.digest == hashlib.sha256(bundle.data).hexdigest()
    assert bundle.files == 6
    assert bundle.size == sum(
        path.lstat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert bundle.data[:10] == b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    assert bundle.notes == ()


def test_the_same_content_gives_the_same_bytes(root: Path, tmp_path: Path) -> None:
    twin = tmp_path / "elsewhere" / "of another name"
    shutil.copytree(root, twin, symlinks=True)
    for number, path in enumerate(sorted(twin.rglob("*"), reverse=True)):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)
            os.utime(path, (number, number))
    (twin / "moved").write_text((twin / "train.py").read_text())
    (twin / "train.py").unlink()
    (twin / "moved").rename(twin / "train.py")
    assert pack(twin) == pack(root)


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "train.py").write_text("print(2)\n"),
        lambda root: (root / "train.py").chmod(0o755),
        lambda root: (root / "train.py").rename(root / "other.py"),
        lambda root: (root / "src/empty").rmdir(),
        lambda root: ((root / "latest").unlink(), (root / "latest").symlink_to("train.py")),
    ],
    ids=["content", "executable", "name", "folder", "link"],
)
def test_other_content_gives_another_digest(root: Path, change: Change) -> None:
    before = pack(root).digest
    change(root)
    assert pack(root).digest != before


def test_extra_files_are_added_and_take_precedence(root: Path) -> None:
    bundle = pack(root, extra={".echelon/entry.py": b"go()", "train.py": b"other"})
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as archive:
        entry, train = archive.extractfile(".echelon/entry.py"), archive.extractfile("train.py")
        assert entry is not None
        assert train is not None
        assert (entry.read(), train.read()) == (b"go()", b"other")
    assert bundle.files == 7
    assert pack_files({"b": b"2", "a": b"1"}) == pack_files({"a": b"1", "b": b"2"})
    assert pack_files({"a": b"1"}).files == 1


@pytest.mark.parametrize("name", ["", "/abs", "../up", "a//b", "a/./b", "a/", ".echelon-bundle", "a\0b"])
def test_extra_files_need_proper_names(name: str) -> None:
    with pytest.raises(ValueError, match="not a name"):
        pack_files({name: b""})


@pytest.mark.parametrize("extra", ["train.py/inside", "latest/inside", "src"])
def test_an_extra_file_does_not_bury_the_projects_own(root: Path, extra: str) -> None:
    with pytest.raises(CannotShip, match="in the way"):
        pack(root, extra={extra: b""})


def test_include_and_notes_reach_the_bundle(root: Path) -> None:
    (root / ".gitignore").write_text("*.txt\n")
    (root / "data").symlink_to("/mnt/data")
    bundle = pack(root, include=["naïve-✓.txt"])
    assert "naïve-✓.txt" in members(bundle.data)
    assert "long-" * 40 + ".txt" not in members(bundle.data)
    (note,) = bundle.notes
    assert "/mnt/data" in note


def test_names_that_are_no_text_survive(root: Path) -> None:
    (root / os.fsdecode(b"caf\xe9")).write_text("x")
    assert b"caf\xe9" in gzip.decompress(pack(root).data)


def test_too_large_names_total_and_largest_and_ways_out(root: Path) -> None:
    (root / "data").mkdir()
    for number in range(1, 8):
        (root / f"data/{number}.bin").write_bytes(random.Random(number).randbytes(number * 10_000))
    with pytest.raises(CannotShip) as caught:
        pack(root, limit=100_000)
    assert "280 kB in 13 files" in caught.value.message
    assert "100 kB" in caught.value.message
    assert re.findall(r"(\S+) ([\d.]+ kB)", caught.value.hint) == [
        (f"data/{number}.bin", f"{number}0 kB") for number in (7, 6, 5, 4, 3)
    ]
    assert all(way in caught.value.hint for way in (".gitignore", ".echelonignore", "volume", "image"))
    assert pack(root, limit=300_000).files == 13


def test_a_hopeless_size_is_refused_without_reading(root: Path) -> None:
    for number in range(20):
        (root / f"{number}.bin").touch()
        os.truncate(root / f"{number}.bin", 7 << 30)  # 150 GB of holes
    found = survey(root)
    (root / "0.bin").unlink()  # would be noticed, if anything were read
    with pytest.raises(CannotShip, match=r"150\.3 GB"):
        _pack(found, {}, 1_000_000)


def test_over_the_limit_it_stops_reading(root: Path) -> None:
    (root / "a.bin").write_bytes(random.Random(1).randbytes(3_000_000))
    (root / "b.bin").write_bytes(b"")
    found = survey(root)
    (root / "b.bin").unlink()  # would be noticed, if it came to that
    with pytest.raises(CannotShip, match="more than the 1 MB"):
        _pack(found, {}, 1_000_000)


def test_a_file_beyond_the_formats_size_is_refused(root: Path) -> None:
    (root / "huge.bin").touch()
    os.truncate(root / "huge.bin", 9 << 30)
    with pytest.raises(CannotShip, match=r"huge\.bin is 9\.7 GB"):
        pack(root)


def test_too_deep_is_refused(root: Path) -> None:
    deep = root.joinpath(*["d"] * 120)
    deep.mkdir(parents=True)
    with pytest.raises(CannotShip, match="100 folders deep"):
        pack(root)


def become_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def lose_parent(file: Path) -> None:
    shutil.rmtree(file.parent)
    file.parent.touch()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda file: file.unlink(), "vanished"),
        (lambda file: file.write_text("longer than before"), "changed"),
        (lambda file: file.write_text(""), "changed"),
        (lambda file: (file.unlink(), file.symlink_to("/etc/passwd")), "became a link"),
        (lambda file: (file.unlink(), file.mkdir()), "became a folder"),
        (become_pipe, "changed"),
        (lambda file: os.utime(file, (1, 1)), "changed"),
        (lose_parent, "vanished"),
    ],
    ids=["unlink", "grow", "shrink", "link", "folder", "pipe", "rewritten", "parent"],
)
def test_a_file_that_changes_meanwhile_is_named(root: Path, change: Change, what: str) -> None:
    found = survey(root)
    change(root / "src/model.py")
    with pytest.raises(CannotShip, match=rf"src/model\.py {what} while it was being packed") as caught:
        _pack(found, {}, None)
    assert "try again" in caught.value.hint


def test_a_file_that_grows_while_it_is_read_is_named(root: Path) -> None:
    (root / "big.bin").write_bytes(bytes(3 << 20))
    (big,) = (each for each in survey(root).found if each.path == "big.bin")
    pieces = read_content(root, big)
    next(pieces)
    with (root / "big.bin").open("ab") as file:
        file.write(b"more")
    with pytest.raises(CannotShip, match=r"big\.bin changed"):
        list(pieces)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (1_540_000, "1.5 MB"),
        (999_999, "1 MB"),
        (2.5e12, "2500 GB"),
    ],
)
def test_sizes_in_words(size: float, words: str) -> None:
    assert human_size(size) == words
