"""Ctrl-C, SIGTERM and SIGKILL to the command line: what becomes of the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Background, wait_for
from tests.conftest import wait_until

import echelon

Call = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., Background]
PIDS = ("runs/fm/pid-0", "runs/fm/pid-1")


def status_of(cli: Call, name: str = "fm") -> dict[str, object]:
    found: dict[str, object] = json.loads(cli("status", name, "-o", "json").stdout)
    return found


@pytest.mark.core
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_once_stops_the_run(cli: Call, background: Start, stay: str, number: int, code: int) -> None:
    running = background("run", "-n", "2", "--name", "fm", stay)
    wait_for(*PIDS)
    running.process.send_signal(number)
    assert running.end() == code
    assert Path("runs/fm/term-0").exists()
    assert Path("runs/fm/term-1").exists()
    assert sorted(running.out.splitlines()) == [
        "[0] heard SIGTERM",
        "[0] ready 0",
        "[1] heard SIGTERM",
        "[1] ready 1",
    ]
    assert "echelon: stopping" in running.err
    assert "echelon: stopped after" in running.err
    assert "Traceback" not in running.err
    status = status_of(cli)
    assert (status["state"], status["exit_code"]) == ("stopped", 143)


def test_twice_kills_what_ignores_sigterm(cli: Call, background: Start, stay: str) -> None:
    running = background("run", "-n", "2", "--name", "fm", stay, "--stubborn")
    wait_for(*PIDS)
    running.process.send_signal(signal.SIGINT)
    wait_for("runs/fm/term-0", "runs/fm/term-1")
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 130
    assert "echelon: killing" in running.err
    for path in PIDS:
        with pytest.raises(ProcessLookupError):
            os.kill(int(Path(path).read_text()), 0)
    assert status_of(cli)["state"] == "stopped"


def test_in_the_middle_of_a_flood(background: Start, write: Callable[..., Path]) -> None:
    """A signal that arrives while a line is being printed to the very stream that the answer goes to."""
    write(
        "flood.py",
        """
        import sys
        while True:
            sys.stderr.write("x" * 100 + "\\n")
        """,
    )
    running = background("run", "--name", "fm", "flood.py")
    wait_until(lambda: running.err.count("\n") > 1000, "the flood")
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 130
    assert "echelon: stopping" in running.err
    assert "Traceback" not in running.err


def test_when_the_run_succeeds_all_the_same(background: Start, write: Callable[..., Path]) -> None:
    write(
        "careful.py",
        """
        import os, pathlib, signal, sys, time
        asked = []
        signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
        out = pathlib.Path(os.environ["ECHELON_OUTPUT"])
        (out / "ready").touch()
        while not asked:
            time.sleep(0.02)
        (out / "model.pt").touch()
        """,
    )
    running = background("run", "--name", "fm", "careful.py")
    wait_for("runs/fm/ready")
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 130
    assert Path("runs/fm/model.pt").exists()


def test_the_run_goes_on_when_its_command_is_killed(cli: Call, background: Start, stay: str) -> None:
    running = background("run", "-n", "2", "--name", "fm", stay)
    wait_for(*PIDS)
    running.process.kill()
    running.end()
    assert status_of(cli)["state"] == "running"
    following = background("logs", "-f", "fm")
    wait_until(lambda: following.out.count("ready") == 2, "the lines so far")
    stopped = cli("stop", "fm")
    assert stopped.stdout.startswith("fm stopped: stopped by ")
    assert following.end() == 0
    assert following.out.count("heard SIGTERM") == 2


@pytest.mark.parametrize("words", [["logs", "-f", "fm"], ["wait", "fm"], ["ps", "--watch"]])
def test_looking_can_be_interrupted_and_the_run_goes_on(
    cli: Call, background: Start, stay: str, words: list[str]
) -> None:
    assert cli("run", "-d", "--name", "fm", stay).returncode == 0
    wait_for("runs/fm/pid-0")
    looking = background(*words)
    if words[0] != "wait":
        wait_until(lambda: looking.out, "something to look at")
    else:
        wait_until(lambda: _sleeps(looking.process.pid), "it to wait")
    looking.process.send_signal(signal.SIGINT)
    assert looking.end() == 130
    assert looking.err.strip() == ""
    assert status_of(cli)["state"] == "running"


def _sleeps(pid: int) -> bool:
    """Whether a process has got past its imports, and waits."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return "msgspec" in maps and Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "S"


def test_ctrl_c_stops_the_run_although_nobody_reads_our_words(home: Path) -> None:
    """`echelon run ... 2>&1 | tee log`: tee dies of the same Ctrl-C."""
    command = [sys.executable, "-m", "echelon.cli.main", "run", "--name", "fm", "--", "sleep", "600"]
    read, write = os.pipe()
    with subprocess.Popen(command, stdout=write, stderr=write) as asker:
        os.close(write)
        wait_until(lambda: running("fm"), "the run")
        os.close(read)
        asker.send_signal(signal.SIGINT)
        asker.wait(60)
    assert echelon.attach("fm").wait(60).state == "stopped"


def running(name: str) -> bool:
    return any(run.name == name and run.state == "running" for run in echelon.runs())
