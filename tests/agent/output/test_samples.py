"""The newest samples of all workers in one file, and the program that prints it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import PATIENCE, wait_until

from echelon.agent import __main__ as program
from echelon.agent.loop import Loop
from echelon.agent.output import samples
from echelon.agent.output.samples import Board


def spin(loop: Loop, seconds: float) -> None:
    loop.call_later(seconds, loop.stop)
    loop.run()


def read(folder: Path) -> Any:
    return json.loads((folder / samples.NAME).read_bytes())


def test_the_file_has_the_newest_of_each_worker_and_never_grows(tmp_path: Path) -> None:
    loop = Loop()
    board = Board(loop, str(tmp_path), 2)
    for cpus in range(1000):
        board.put(1, {"cpus": cpus})
        board.put(0, {"cpus": 0, "worker": 7})
    board.put(1, "no sample")
    spin(loop, 2 * samples.SOON)
    assert read(tmp_path) == {"workers": [{"cpus": 0, "worker": 0}, {"cpus": 999, "worker": 1}]}
    board.drop(0)
    spin(loop, 2 * samples.SOON)
    assert [each["worker"] for each in read(tmp_path)["workers"]] == [1]
    board.put(0, {})
    board.close()
    spin(loop, 2 * samples.SOON)
    assert list(tmp_path.iterdir()) == []
    board.close()
    loop.close()


def test_a_folder_that_cannot_be_written_to_ends_nothing(tmp_path: Path) -> None:
    loop = Loop()
    board = Board(loop, str(tmp_path / "missing"), 1)
    board.put(0, {})
    spin(loop, 2 * samples.SOON)
    board.close()
    loop.close()


def command(*words: str) -> list[str]:
    return [sys.executable, "-S", str(program.__file__), "samples", *words]


def test_printed_once(tmp_path: Path) -> None:
    path = tmp_path / samples.NAME
    path.write_text('{"workers": []}')
    done = subprocess.run(command(str(path)), capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout == '{"workers": []}\n'
    path.unlink()
    done = subprocess.run(command(str(path)), capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.strip() == ""


def test_printed_as_it_changes_until_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / samples.NAME
    with subprocess.Popen(command(str(path), "follow"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in ("first", "second"):
            (tmp_path / "new").write_text(text)
            (tmp_path / "new").replace(path)
            assert next(line for line in process.stdout if line.strip()) == f"{text}\n"
        path.unlink()
        assert process.wait(PATIENCE) == 0


def test_who_is_not_read_from_any_more_ends(tmp_path: Path) -> None:
    path = tmp_path / samples.NAME
    path.write_text("once")
    with subprocess.Popen(command(str(path), "follow"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "once\n"
        process.stdout.close()
        wait_until(lambda: process.poll() is not None, "its end")


def test_other_words_are_refused() -> None:
    done = subprocess.run(command("a", "b"), capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, "usage" in done.stderr) == (2, True)
