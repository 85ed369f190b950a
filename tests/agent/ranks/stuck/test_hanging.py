"""Where the ranks of a stuck gang are: by py-spy, by the rank's own Python, by what the kernel tells."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.ranks.usage.test_gpus import Asking, asking
from tests.conftest import PATIENCE, wait_until

from echelon.agent.output.sink import RankLog, Sink, Stream
from echelon.agent.ranks.launching import launch
from echelon.agent.ranks.stuck import hanging

__all__ = ["asking"]
HANG = """
import time
def wait_for_ever(): print("up", flush=True); time.sleep(1000)
wait_for_ever()
"""
SPIED = b"""Process 77: python train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 78 (active): "watcher"
    watch (/home/ann/train.py:5)
Thread 77 (idle)%s
    init_process_group (/env/lib/python3.11/site-packages/torch/distributed/c10d.py:1234)
    main (/home/ann/train.py:12)
    <module> (/home/ann/train.py:20)
Process 79: python child.py

Thread 79 (idle): "MainThread"
    other (/home/ann/child.py:1)
"""


@pytest.mark.parametrize("name", [b"", b': "MainThread"'])
def test_the_place_in_what_py_spy_writes(name: bytes) -> None:
    assert hanging.find_place(SPIED % name) == "init_process_group (train.py:12)"


@pytest.mark.parametrize("text", [b"", b"Error: Permission denied\n", b"Process 7: x\nThread 7 (idle)\n"])
def test_without_a_stack_there_is_no_place(text: bytes) -> None:
    assert hanging.find_place(text) is None


class Ranks:
    """Processes that hang, and their output."""

    def __init__(self, asking: Asking, folder: Path) -> None:
        self.asking = asking
        self.folder = folder
        self.ranks: dict[int, tuple[int, Stream]] = {}
        self._started: list[tuple[subprocess.Popen[bytes], RankLog]] = []
        (folder / "hang.py").write_text(HANG)

    def start(self, *argv: str, up: bool = True, **env: str) -> None:
        number = len(self.ranks)
        process = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            env={**os.environ, **env},
            cwd=self.folder,
            start_new_session=True,  # so that all of it can be ended
        )
        log = RankLog(str(self.folder / f"rank-{number}.log"))
        self.ranks[number] = process.pid, Stream(Sink(self.asking.loop), log, number, "e")
        self._started.append((process, log))
        assert process.stdout is not None
        assert not up or process.stdout.readline() == b"up\n"

    def ask(self, path: str, python: str = "/nowhere/python") -> tuple[dict[str, str], list[str]]:
        found: list[dict[str, str]] = []
        env = {**os.environ, "PATH": path}
        hanging.ask(self.asking.loop, self.asking.children, self.ranks, env, python, found.append)
        self.asking.until(lambda: found)
        for _, stream in self.ranks.values():
            stream.close()
        texts = [(self.folder / f"rank-{number}.log").read_text() for number in self.ranks]
        return found[0], texts

    def end(self) -> None:
        for process, log in self._started:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=PATIENCE)
            log.close()


@pytest.fixture
def ranks(asking: Asking, tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(asking, tmp_path)
    yield made
    made.end()


def spy_folder() -> str:
    """Where py-spy is; it is asked of a process first, since a machine may forbid it."""
    found = shutil.which("py-spy", path=os.pathsep.join([str(Path(sys.executable).parent), os.defpath]))
    if found is None:
        pytest.skip("needs py-spy")
    done = subprocess.run([found, "dump", "--pid", str(os.getpid())], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("needs the right to look into processes")
    return str(Path(found).parent)


def test_py_spy_where_the_environment_has_it(ranks: Ranks) -> None:
    folder = spy_folder()
    ranks.start(sys.executable, "hang.py")
    ranks.start("sh", "-c", f"{sys.executable} hang.py; true")
    places, (text, other) = ranks.ask(f"{folder}:/usr/bin:/bin")
    assert places == {"0": "wait_for_ever (hang.py:3)", "1": "wait_for_ever (hang.py:3)"}
    assert "wait_for_ever" in text
    assert "wait_for_ever" in other


def test_py_spy_beside_the_python_that_runs_the_ranks(ranks: Ranks) -> None:
    folder = spy_folder()
    ranks.start(sys.executable, "hang.py")
    places, _ = ranks.ask("/usr/bin:/bin", python=f"{folder}/python")
    assert places == {"0": "wait_for_ever (hang.py:3)"}


@pytest.mark.parametrize("spy", [None, "exit 1", "echo nothing of use", "exec sleep 1000"])
def test_else_the_ranks_own_python(
    ranks: Ranks, spy: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without py-spy, or with one that may not, or does not end."""
    monkeypatch.setattr(hanging, "PATIENCE", 0.3)
    folder = tmp_path / "bin"
    folder.mkdir()
    if spy is not None:
        (folder / "py-spy").write_text(f"#!/bin/sh\n{spy}\n")
        (folder / "py-spy").chmod(0o755)
    with (tmp_path / "stderr").open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "hang.py"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=file,
            env={**os.environ, "PYTHONPATH": launch.STARTUP},
        )
    log = RankLog(str(tmp_path / "log"))
    stream = Stream(Sink(ranks.asking.loop), log, 0, "e")
    ranks.ranks[0] = process.pid, stream
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"

    passed = 0

    def pass_on() -> None:  # as the agent does, from a pipe
        nonlocal passed
        written = (tmp_path / "stderr").read_bytes()[passed:]
        passed += len(written)
        stream.feed(written)
        ranks.asking.loop.call_later(0.01, pass_on)

    pass_on()
    found: list[dict[str, str]] = []
    env = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
    hanging.ask(ranks.asking.loop, ranks.asking.children, ranks.ranks, env, "python", found.append)
    ranks.asking.until(lambda: found)
    process.kill()
    process.communicate()
    log.close()
    assert found == [{"0": "wait_for_ever (hang.py:3)"}]


def test_else_what_the_kernel_tells(ranks: Ranks) -> None:
    ranks.start("sh", "-c", "echo up; sleep 1000; true")
    pid = ranks.ranks[0][0]
    wait_until(lambda: len(hanging.what_the_kernel_tells(pid)[0]) > 1, "the child")
    wait_until(lambda: "(sleep)" in "".join(hanging.what_the_kernel_tells(pid)[0]), "its program")
    places, (text,) = ranks.ask("/nowhere")
    assert f"process {pid} (sh) sleeps" in text
    assert "(sleep) sleeps" in text
    assert "(sleep)" in places.get("0", "(sleep)"), "where the kernel tells it at all"
