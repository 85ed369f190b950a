"""A disk that fills up at any moment of a submission: the command says so and ends, and can clear up."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def small_disk(home: Path, tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A file system of so many pages."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small file system")
    mounted: list[Path] = []

    def mount(pages: int) -> Path:
        folder = tmp_path / f"disk-{len(mounted)}"
        folder.mkdir()
        size = pages * os.sysconf("SC_PAGE_SIZE")
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False
        )
        if done.returncode != 0:
            pytest.skip(f"mounting is not allowed here: {done.stderr.decode()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("pages", [1, 2, 3])
def test_no_room_to_start(
    cli: Call, hello: str, small_disk: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    state = small_disk(pages) / "state"
    monkeypatch.setenv("ECHELON_HOME", str(state))
    done = cli("run", hello)
    assert done.returncode == 115
    problem, hint = done.stderr.splitlines()
    assert problem.startswith("echelon: ")
    assert "the disk is full" in problem
    assert hint.startswith("  hint: free some space")
    assert list((state / "runs").iterdir()) == []
    assert not Path("runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("pages", [4, 5, 6, 8, 10])
def test_no_room_to_go_on(
    cli: Call, hello: str, small_disk: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    """The run may fail or be lost; the command ends all the same. The run can be looked at and removed."""
    monkeypatch.setenv("ECHELON_HOME", str(small_disk(pages) / "state"))
    done = cli("run", "-n", "2", "--name", "fm", hello, patience=30)
    assert done.returncode in (0, 115, 117), done.stderr
    assert "Traceback" not in done.stderr
    for words in (["ps", "-a"], ["status", "fm"], ["logs", "fm"], ["rm", "fm"]):
        again = cli(*words)
        assert again.returncode in (0, 111), again.stderr


def test_no_room_for_results(
    cli: Call, write: Callable[..., Path], small_disk: Callable[[int], Path]
) -> None:
    """A rank that writes too much fails by itself; its output is still shown, and the run says why."""
    disk = small_disk(8)
    write(
        "big.py",
        """
        import os, pathlib
        print("started", flush=True)
        (pathlib.Path(os.environ["ECHELON_OUTPUT"]) / "model.pt").write_bytes(bytes(10**6))
        """,
    )
    done = cli("run", "--results", str(disk / "results"), "--name", "fm", "big.py")
    assert done.returncode == 1
    assert done.stdout == "started\n"
    assert "No space left on device" in done.stderr
    assert "No space left on device" in cli("status", "fm").stdout


CHATTERS = """
for number in range(30_000):
    print("line", number, "x" * 40)
print("end")
"""
WARNING = "No space left on device; the run goes on"


def test_a_log_among_the_results_that_is_cut_is_told_and_the_end_says_so(
    cli: Call, write: Callable[..., Path], small_disk: Callable[[int], Path]
) -> None:
    write("chatters.py", CHATTERS)
    disk = small_disk(256)
    done = cli("run", "-n", "2", "--results", str(disk / "results"), "--name", "fm", "chatters.py")
    assert done.returncode == 123, done.stderr
    assert done.stdout.count("end\n") == 2  # the state folder has room for all of it
    assert done.stderr.count(WARNING) == 1
    (end,) = (line for line in done.stderr.splitlines() if "was not all kept" in line)
    assert "worker 0: the log of rank 0 lacks lines: No space left on device" in end
    assert "worker 1: the log of rank 1 lacks lines" in end
    shown = cli("status", "fm").stdout
    assert "succeeded" in shown
    assert "worker 1: the log of rank 1 lacks lines" in shown
    assert "progress" not in shown  # what is last in the log was not printed last
    assert cli("wait", "fm").returncode == 123


def test_a_full_state_folder_costs_lines_and_shows_nothing_of_its_own(
    cli: Call,
    write: Callable[..., Path],
    small_disk: Callable[[int], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write("chatters.py", CHATTERS)
    monkeypatch.setenv("ECHELON_HOME", str(small_disk(256) / "state"))
    done = cli("run", "--name", "fm", "chatters.py")
    assert done.returncode == 123, done.stderr
    *lines, last = done.stdout.splitlines()
    assert lines == [f"line {number} {'x' * 40}" for number in range(len(lines))]
    assert f"line {len(lines)} {'x' * 40}".startswith(last)  # it was cut there
    assert done.stderr.count(WARNING) == 1
    assert "worker 0: the output that is shown lacks lines: No space left on device" in done.stderr
    assert "lacks lines" in cli("status", "fm").stdout
    assert len(Path("runs/fm/logs/rank-0.log").read_text().splitlines()) == 30_001
    for words in ([], ["-f"]):
        again = cli("logs", "fm", *words)
        assert again.stdout == done.stdout
        assert again.stderr.count("worker 0: the output that is shown lacks lines") == 1
    assert cli("events", "fm").stdout.count("note            worker 0: the output that is shown") == 1
    assert cli("rm", "fm").returncode == 0
