"""Looking where ranks are, without a trace in their output: real Pythons, and torch with Gloo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.gang.hangs import record
from tests.conftest import PATIENCE, need_python, wait_until

from echelon.agent.gang import hang
from echelon.agent.loop import Loop
from echelon.agent.ranks.launching import launch
from echelon.agent.ranks.stuck import looking

WAITS = """
    import os, time
    def wait_for_ever():
        print("up", flush=True)
        time.sleep(1000)
    wait_for_ever()
"""


class Rank:
    """A process as the agent starts one."""

    def __init__(self, folder: Path) -> None:
        self.start_of_files = str(folder / "look")
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None

    def start(self, program: str, python: str = sys.executable, **env: str) -> subprocess.Popen[str]:
        (self.folder / "train.py").write_text(textwrap.dedent(program))
        self.process = subprocess.Popen(
            [python, str(self.folder / "train.py")],
            env={**os.environ, "PYTHONPATH": launch.STARTUP, launch.LOOKS: self.start_of_files, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"
        return self.process

    def look(self, *, only_recorders: bool = False) -> dict[str, Any]:
        assert self.process is not None
        loop = Loop()
        found: list[dict[str, dict[str, Any]]] = []

        def take(answers: dict[str, dict[str, Any]]) -> None:
            found.append(answers)
            loop.stop()

        looking.look(loop, {0: (self.process.pid, self.start_of_files)}, take, only_recorders)
        loop.run()
        loop.close()
        return found[0]["0"]

    def end(self) -> tuple[str, str]:
        assert self.process is not None
        self.process.kill()
        return self.process.communicate(timeout=PATIENCE)


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    made = Rank(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("version", ["", "3.8", "3.13"])
def test_a_rank_tells_where_it_is_and_its_output_shows_nothing(rank: Rank, version: str) -> None:
    rank.start(WAITS, need_python(version) if version else sys.executable)
    wait_until(lambda: rank.look()["place"] == "wait_for_ever (train.py:5)", "its sleep")
    look = rank.look()
    assert (look["collective"], look["state"]) == (False, "S")
    assert rank.look()["trace"] == look["trace"]
    assert Path(rank.start_of_files + ".stacks").read_bytes() == b""
    assert rank.end() == ("", "")


def test_its_script_sees_nothing_of_it(rank: Rank) -> None:
    rank.start(
        """
        import os, threading
        print("up", flush=True)
        mine = open(__file__)
        print([name for name in os.environ if "LOOK" in name], mine.fileno() < 10, threading.active_count())
        """,
        ECHELON_RANKS="2",
    )
    assert rank.process is not None
    assert rank.process.communicate(timeout=PATIENCE) == ("[] True 1\n", "")


def test_the_recorders_alone_are_asked_without_a_signal(rank: Rank) -> None:
    rank.start(WAITS)
    assert rank.look(only_recorders=True) == {"state": "S"}


def test_a_stopped_rank_is_not_waited_for(rank: Rank) -> None:
    process = rank.start(WAITS)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    look = rank.look()
    assert look["state"] == "T"
    assert "place" not in look


def test_what_a_rank_reads(rank: Rank, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "part-17")
    rank.start(
        """
        import os
        file = os.open("part-17", os.O_RDWR)
        print("up", flush=True)
        os.read(file, 1)
        """.replace("part-17", str(tmp_path / "part-17"))
    )
    look = rank.look()
    if not Path(f"/proc/{os.getpid()}/syscall").exists():
        pytest.skip("needs a kernel that tells system calls")
    assert look["does"] == f"reading {tmp_path}/part-17"


def test_a_python_that_closes_all_files_is_not_harmed(rank: Rank) -> None:
    """What it opens then has other numbers than the agent's file."""
    rank.start(
        """
        import os, time
        os.closerange(3, 4096)
        file = open("data", "w")
        print("up", flush=True)
        time.sleep(1000)
        """.replace('"data"', repr(str(rank.folder / "data")))
    )
    assert "place" not in rank.look()
    assert (rank.folder / "data").read_bytes() == b""
    assert rank.process is not None
    assert rank.process.poll() is None


def test_files_of_a_rank_that_has_ended_are_removed(rank: Rank) -> None:
    rank.start(WAITS)
    looking.forget(rank.start_of_files)
    assert list(rank.folder.glob("look*")) == []
    looking.forget(rank.start_of_files)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("way", record.WAYS)
def test_real_ranks_of_torch_that_hang(way: str, ranks: int, tmp_path: Path) -> None:
    found = hang.verdict({int(rank): look for rank, look in record.record(way, ranks, tmp_path).items()})
    both = (way == "order" and ranks == 2) or way == "groups"
    assert found.ranks == ([0, ranks - 1] if both else [ranks - 1])
