"""A run that is over keeps less, says the same, and may be killed while it does so."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE, wait_until

import echelon
from echelon.engines.local.folder import compaction
from echelon.engines.local.folder.rundir import RunDir, open_log
from echelon.engines.local.folder.tail import follow_logs
from echelon.engines.machine import SMALL_CODE
from echelon.model.output.log import each_line

LINES = 4000
# Rank 0 alone fails: a rank that another's failure stops may have said little.
TALKS = f"""
import os, sys
for number in range({LINES}):
    print("a line of output, number", number)
sys.exit(0 if os.environ["ECHELON_RANK"] == "1" else int(sys.argv[1]))
"""


@pytest.fixture
def ended(tmp_path: Path) -> RunDir:
    """The folder of a run that is over, with output and a copy of its project."""
    folder = RunDir(tmp_path / "run")
    folder.path.mkdir()
    for worker in range(2):
        lines = (f"{number}.5 {number} [{worker}] text {number}\n" for number in range(LINES))
        folder.worker_log(worker, 0).write_text("".join(lines))
    folder.worker_log(0, 1).write_text(f"{LINES}.5 1 [0] small\n")
    folder.code.mkdir()
    (folder.code / "train.py").touch()
    folder.bundle.write_bytes(bytes(SMALL_CODE + 1))
    return folder


def shown(folder: RunDir) -> list[tuple[int, str]]:
    return [(line.worker, line.text) for line in each_line(follow_logs(folder, lambda: True, 0.01))]


def test_less_is_kept_and_the_same_is_said(ended: RunDir) -> None:
    before, size = shown(ended), sum(path.stat().st_size for _, _, path in ended.worker_logs())
    compaction.compact(ended, succeeded=True)
    assert shown(ended) == before
    assert sorted(path.name for path in ended.path.iterdir()) == [
        "worker-0.0.log.gz",
        "worker-0.1.log",
        "worker-1.0.log.gz",
    ]
    assert sum(path.stat().st_size for path in ended.path.iterdir()) < size / 3
    assert ended.path.joinpath("worker-0.0.log.gz").stat().st_mode & 0o077 == 0
    compaction.compact(ended, succeeded=True)  # again changes nothing
    assert shown(ended) == before


def test_what_may_be_resumed_keeps_its_code(ended: RunDir) -> None:
    compaction.compact(ended, succeeded=False)
    assert ended.bundle.exists()
    assert not ended.code.exists()


class Cut(BaseException):
    """The process is killed here."""


@pytest.mark.parametrize("step", range(1, 8))
def test_it_may_be_killed_anywhere(ended: RunDir, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    before, done = shown(ended), 0

    def cutting(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            nonlocal done
            done += 1
            if done >= step:
                raise Cut
            return real(*words, **more)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfileobj", cutting(shutil.copyfileobj))
        patch.setattr(Path, "replace", cutting(Path.replace))
        patch.setattr(Path, "unlink", cutting(Path.unlink))
        patch.setattr(shutil, "rmtree", cutting(shutil.rmtree))
        with pytest.raises(Cut):
            compaction.compact(ended, succeeded=True)
    assert shown(ended) == before
    compaction.compact(ended, succeeded=True)
    assert shown(ended) == before


def test_a_reader_that_has_begun_is_not_disturbed(ended: RunDir) -> None:
    before = shown(ended)
    looks = iter([False, True])
    lines: Iterator[Any] = follow_logs(ended, lambda: next(looks), 0.01)
    found = [next(lines) for _ in range(10)]
    compaction.compact(ended, succeeded=True)
    found += list(lines)
    assert [(line.worker, line.text) for line in found] == before


def test_a_full_disk_leaves_the_output_as_it_is(ended: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    before = shown(ended)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(gzip.GzipFile, "write", full)
        compaction.compact(ended, succeeded=False)
    assert shown(ended) == before
    assert not [path for path in ended.path.iterdir() if path.name.endswith(".tmp")]


def test_a_real_run_is_compacted(home: Path) -> None:
    Path("train.py").write_text(TALKS)
    folder = RunDir(home / "runs" / "fm")
    run = echelon.run("train.py", args=["5"], name="fm", workers=2, snapshot=True)
    shown_live = sorted(line.text for line in run.logs(follow=True))
    assert run.wait(PATIENCE).exit_code == 5
    wait_until(lambda: not folder.worker_log(0, 0).exists(), "its output to be compressed")
    wait_until(lambda: not folder.code.exists(), "its code to be deleted")
    assert sorted(line.text for line in run.logs()) == shown_live
    assert folder.bundle.exists()  # it may be resumed
    with open_log(folder.worker_log(0, 0)) as file:
        assert b" [event] " in file.readline()
    assert run.resume().wait(PATIENCE).exit_code == 5
    Path("train.py").write_text("")
    done = echelon.run("train.py", name="well", snapshot=True)
    assert done.wait(PATIENCE).state == "succeeded"
    wait_until(lambda: not RunDir(home / "runs" / "well").code.exists(), "its code to be deleted")
    assert done.code() is not None  # it is small
