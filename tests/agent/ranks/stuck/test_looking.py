"""Looking where ranks are, without a trace in their output: real Pythons, and torch with Gloo."""

from __future__ import annotations

import ast
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
from echelon.agent.ranks.stuck import dumps, looking

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
        self.words: list[str] = []  # what starts its Python
        self.process: subprocess.Popen[str] | None = None

    def start(self, program: str, python: str = sys.executable, **env: str) -> subprocess.Popen[str]:
        (self.folder / "train.py").write_text(textwrap.dedent(program))
        self.process = subprocess.Popen(
            [*self.words, python, str(self.folder / "train.py")],
            env={**os.environ, "PYTHONPATH": launch.STARTUP, launch.LOOKS: self.start_of_files, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "up\n"
        return self.process

    def files(self) -> str:
        """Where the files of its own process begin."""
        assert self.process is not None
        return f"{self.start_of_files}.{self.process.pid}"

    def look(self, *, only_recorders: bool = False) -> dict[str, Any]:
        return self.looks(only_recorders=only_recorders)["0"]

    def looks(self, *, only_recorders: bool = False) -> dict[str, dict[str, Any]]:
        assert self.process is not None
        loop = Loop()
        found: list[dict[str, dict[str, Any]]] = []

        def take(answers: dict[str, dict[str, Any]]) -> None:
            found.append(answers)
            loop.stop()

        looking.look(loop, {0: (self.process.pid, self.start_of_files)}, take, only_recorders)
        loop.run()
        loop.close()
        return found[0]

    def end(self) -> tuple[str, str]:
        assert self.process is not None
        for pid in looking.pythons(self.start_of_files):  # which may be below it
            os.kill(pid, signal.SIGKILL)
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
    assert Path(rank.files() + ".stacks").read_bytes() == b""
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
    process = rank.process
    assert process is not None
    assert process.stdout is not None
    assert process.stderr is not None
    # Not `communicate`: it does not know of what `readline` has read ahead.
    assert (process.stdout.read(), process.stderr.read()) == ("[] True 1\n", "")


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


# BUG: nothing was known of it but that the shell waits.
@pytest.mark.parametrize("words", [["sh", "-c", '"$0" "$@"; true'], ["sh", "-c", 'exec "$0" "$@"'], ["nice"]])
def test_a_rank_below_a_shell_tells_where_it_is(rank: Rank, words: list[str]) -> None:
    rank.words = words
    process = rank.start(WAITS)
    wait_until(lambda: rank.look().get("place") == "wait_for_ever (train.py:5)", "its sleep")
    for pid in looking.pythons(rank.start_of_files):
        os.kill(pid, signal.SIGKILL)
    process.wait(PATIENCE)
    assert rank.looks() == {}, "it has ended"


def test_of_several_pythons_the_one_with_process_groups_counts(rank: Rank) -> None:
    """As of a training whose output another one reads, or that a service runs beside."""
    write_torch(rank.folder, "2.15.0")
    (rank.folder / "beside.py").write_text("import time\ntime.sleep(1000)\n")
    beside = f'"$0" {rank.folder}/beside.py & "$0" "$@" & "$0" {rank.folder}/beside.py'
    rank.words = ["sh", "-c", beside]
    rank.start(IMPORTS + "    import time\n    time.sleep(1000)\n", ECHELON_RANKS="2")
    wait_until(lambda: len(looking.pythons(rank.start_of_files)) == 3, "all of them")
    wait_until(lambda: "recorder" in rank.look(), "torch is there")
    look = rank.look()
    assert look["recorder"]["groups"]["0"]["ranks"] == [0, 1]
    assert str(look["place"]).endswith("(train.py:6)")


STARTS = """
    import os, subprocess, sys
    ranks = [
        subprocess.Popen([sys.executable, os.environ["SCRIPT"]], env={**os.environ, "RANK": str(rank)})
        for rank in (4, 5)
    ]
    print("up", flush=True)
    for each in ranks:
        each.wait()
"""
SCRIPT = """
    import json, os, time, torch.distributed, torch._C._distributed_c10d
    torch.distributed.distributed_c10d.Group.rank = lambda group: int(os.environ["RANK"])
    time.sleep(1000)
"""


def test_what_torchrun_starts_are_ranks_themselves(rank: Rank) -> None:
    write_torch(rank.folder, "2.15.0")
    (rank.folder / "script.py").write_text(textwrap.dedent(SCRIPT))
    (rank.folder / "torchrun").write_text(textwrap.dedent(STARTS))
    rank.words = [sys.executable, str(rank.folder / "torchrun")]
    rank.start("", ECHELON_RANKS="2", SCRIPT=str(rank.folder / "script.py"))
    wait_until(lambda: sorted(rank.looks()) == ["4", "5"], "both ranks")


# BUG: it was one that does not answer, in place of what it had left.
def test_a_rank_that_ends_while_it_is_looked_at_is_left_out(rank: Rank) -> None:
    process = rank.start("import signal\nprint('up', flush=True)\nsignal.pause()\n")
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert rank.looks() == {}


def test_files_of_a_rank_that_has_ended_are_removed(rank: Rank) -> None:
    rank.start(WAITS)
    looking.forget(rank.start_of_files)
    assert list(rank.folder.glob("look*")) == []
    looking.forget(rank.start_of_files)


# What a rank's Python needs of torch: this is no torch, which would take seconds to import.
TORCH = {
    "__init__.py": '__version__ = "VERSION"\n',
    "distributed/__init__.py": "from torch.distributed import distributed_c10d\n",
    "distributed/distributed_c10d.py": """
        class Group:
            def rank(self): return 0
        class _world:
            default_pg = Group()
            pg_map = {default_pg: 0}
            pg_names = {default_pg: "0"}
            pg_group_ranks = {default_pg: {0: 0, 1: 1}}
    """,
    "_C/__init__.py": "",
    "_C/_distributed_c10d.py": "def _dump_fr_trace_json(): return b'DUMP'\n",
}
IMPORTS = """
    import json, os, torch.distributed, torch._C._distributed_c10d
    print("up", flush=True)
    print({name: os.environ[name] for name in sorted(os.environ) if name.startswith("TORCH_")})
"""


def write_torch(folder: Path, version: str) -> None:
    dump = (Path(__file__).parent / "answers" / "gloo.txt").read_text().splitlines()[1]
    for name, text in TORCH.items():
        (folder / "torch" / name).parent.mkdir(parents=True, exist_ok=True)
        text = textwrap.dedent(text).replace("VERSION", version).replace("DUMP", dump)  # noqa: PLW2901
        (folder / "torch" / name).write_text(text)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("2.15.0+cu132", "TORCH_FR_DUMP_TEMP_FILE"),
        ("2.6.1", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
        ("a0", "TORCH_FR_DUMP_TEMP_FILE"),
    ],
)
def test_where_torch_s_watchdog_writes_its_dump(rank: Rank, version: str, name: str) -> None:
    write_torch(rank.folder, version)
    process = rank.start(IMPORTS, ECHELON_RANKS="2")
    expected = {"TORCH_FR_BUFFER_SIZE": "500", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    expected[name] = rank.files() + ".dump."
    assert process.stdout is not None
    assert ast.literal_eval(process.stdout.read()) == expected  # some of it may be read already


def test_where_the_user_wants_the_dump(rank: Rank) -> None:
    write_torch(rank.folder, "2.15.0")
    process = rank.start(IMPORTS, ECHELON_RANKS="2", TORCH_NCCL_DEBUG_INFO_TEMP_FILE="/dumps/mine")
    assert process.stdout is not None
    out = process.stdout.read()
    assert "'/dumps/mine'" in out
    assert "TORCH_FR_DUMP_TEMP_FILE" not in out


def test_a_rank_that_an_exception_ends_writes_what_the_recorder_has(rank: Rank) -> None:
    write_torch(rank.folder, "2.15.0")
    process = rank.start(IMPORTS + "    1 / 0\n", ECHELON_RANKS="2")
    assert "ZeroDivisionError" in process.communicate(timeout=PATIENCE)[1]
    left = dumps.read(rank.start_of_files, 0)[0]
    assert (left["place"], left["collective"]) == ("<module> (train.py:5)", False)
    assert left["recorder"]["groups"]["0"]["ranks"] == [0, 1]
    Path(rank.files() + ".dump.17").touch()  # of a child
    looking.forget(rank.start_of_files)
    assert list(rank.folder.glob("look*")) == []


@pytest.mark.parametrize(
    "ending", ["", "    raise SystemExit(3)\n", "    if not os.fork(): 1 / 0\n    os.wait()\n"]
)
def test_a_rank_that_ends_otherwise_writes_nothing(rank: Rank, ending: str) -> None:
    write_torch(rank.folder, "2.15.0")
    rank.start(IMPORTS + ending, ECHELON_RANKS="2").communicate(timeout=PATIENCE)
    assert not Path(rank.files() + ".last").exists()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("way", record.WAYS)
def test_real_ranks_of_torch_that_hang(way: str, ranks: int, tmp_path: Path) -> None:
    found = hang.verdict({int(rank): look for rank, look in record.record(way, ranks, tmp_path).items()})
    both = (way == "order" and ranks == 2) or way == "groups"
    assert found.ranks == ([0, ranks - 1] if both else [ranks - 1])
