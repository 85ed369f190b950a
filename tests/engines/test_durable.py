"""Files of the state folder: replaced whole or not at all, and on the disk before anything builds on them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from echelon.engines import durable


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    durable.replace_file(path, b'{"a": 1}')
    with pytest.raises(TypeError):
        durable.replace_file(path, "no bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b'{"a": 1}'
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o077 == 0


def test_the_file_is_synced_before_it_has_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "final.json", []
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        seen.append((str(Path(f"/proc/self/fd/{descriptor}").readlink()), path.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    durable.replace_file(path, b"{}", sync=False)
    assert seen == []
    path.unlink()
    durable.replace_file(path, b"{}")
    (file, there), (folder, named) = seen
    assert file.startswith(f"{path}.")
    assert (there, folder, named) == (False, str(tmp_path), True)


def test_a_file_system_that_does_not_sync_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    durable.sync_folder(tmp_path)
    with pytest.raises(OSError, match="Invalid argument"):
        durable.replace_file(tmp_path / "file", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):
        durable.append_line(tmp_path / "pipe", b"x\n")
    with pytest.raises(OSError, match="Invalid argument"):
        durable.sync_file(tmp_path / "pipe")


@pytest.mark.parametrize("one_call", [True, False])
def test_a_whole_tree_is_forced_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_call: bool
) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "model.pt").write_bytes(b"x")
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    synced: list[str] = []
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    if not one_call:
        monkeypatch.setattr(durable, "_sync_file_system", lambda _descriptor: False)
    durable.sync_tree(tmp_path)
    places = ("deep/model.pt", "", "deep", "deep/er")
    assert sorted(synced) == sorted(str(tmp_path / place) for place in places if not one_call)


def test_a_tree_that_cannot_be_forced_to_disk_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        durable.sync_tree(tmp_path / "nothing")
    closed = os.open(tmp_path, os.O_RDONLY)
    os.close(closed)
    with pytest.raises(OSError, match="Bad file descriptor"):
        durable._sync_file_system(closed)


def test_a_folder_and_those_above_it_are_the_users_alone(tmp_path: Path) -> None:
    before = os.umask(0o002)  # as systems have it where every user has a group
    try:
        durable.make_folder(tmp_path / "state" / "started" / "x")
    finally:
        os.umask(before)
    for each in ("state", "state/started", "state/started/x"):
        assert (tmp_path / each).stat().st_mode & 0o777 == 0o700


def test_half_a_line_ends_before_the_next(tmp_path: Path) -> None:
    file = tmp_path / "events"
    file.write_bytes(b'{"kind": "recorded"}\n{"ki')
    durable.append_line(file, b'{"kind": "queued"}\n')
    assert file.read_bytes() == b'{"kind": "recorded"}\n{"ki\n{"kind": "queued"}\n'
