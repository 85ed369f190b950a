"""Ctrl-C, SIGTERM and SIGKILL to the command line: what becomes of the run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Background, wait_for
from tests.conftest import PATIENCE, wait_until

import echelon

Call = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., Background]
PIDS = ("runs/fm/pid-0", "runs/fm/pid-1")


def status_of(cli: Call, name: str = "fm") -> dict[str, object]:
    found: dict[str, object] = json.loads(cli("status", name, "-o", "json").stdout)
    return found


@pytest.mark.core
@pytest.mark.parametrize(("name", "code"), [("int", 130), ("term", 143)])
def test_once_stops_the_run(cli: Call, background: Start, stay: str, name: str, code: int) -> None:
    number = getattr(signal, f"SIG{name.upper()}")
    running = background("run", "-n", "2", "--name", "fm", stay)
    wait_for(*PIDS)
    wait_until(lambda: "run fm" in running.err, "its headline")  # it handles signals from then on
    running.process.send_signal(number)
    assert running.end() == code
    assert Path(f"runs/fm/{name}-0").exists()
    assert Path(f"runs/fm/{name}-1").exists()
    assert sorted(running.out.splitlines()) == [
        f"[0] heard SIG{name.upper()}",
        "[0] ready 0",
        f"[1] heard SIG{name.upper()}",
        "[1] ready 1",
    ]
    assert "echelon: stopping" in running.err
    how = " with Ctrl-C" if name == "int" else ""
    assert re.search(rf"echelon: stopped after .*: stopped by \S+{how}\n", running.err)
    assert "`echelon resume fm` starts it again" in running.err
    assert "Traceback" not in running.err
    status = status_of(cli)
    assert (status["state"], status["exit_code"]) == ("stopped", 143)


IGNORES = """
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(os.environ["ECHELON_OUTPUT"], "up").touch()
time.sleep(600)
"""


def test_a_stop_says_which_rank_it_had_to_kill(cli: Call, write: Callable[..., Path]) -> None:
    write("train.py", IGNORES)
    write("train.sh", f"{sys.executable} train.py\ntrue\n")
    assert cli("run", "-d", "--name", "fm", "--grace", "1h", "--", "bash", "train.sh").returncode == 0
    wait_for("runs/fm/up")
    told = "rank 0 still ran after 0.5 s and was killed"
    assert told in cli("stop", "--grace", "0.5s", "fm").stdout
    assert str(status_of(cli)["reason"]).endswith(told)
    assert told in cli("events", "fm").stdout


def test_a_stop_leaves_time_or_none(cli: Call) -> None:
    refused = cli("stop", "--now", "--grace", "5s", "fm")
    assert (refused.returncode, "leave out one of them" in refused.stderr) == (2, True)


def test_every_rank_saves_at_ctrl_c(background: Start, write: Callable[..., Path]) -> None:
    """An ordinary script: the exception, `finally`, and results that are written then. SIGINT comes once."""
    write(
        "train.py",
        """
        import os, pathlib, time
        out, rank = pathlib.Path(os.environ["ECHELON_OUTPUT"]), os.environ["ECHELON_RANK"]
        try:
            print("ready", flush=True)
            while True:
                time.sleep(600)
        except KeyboardInterrupt:
            for _ in range(50):
                time.sleep(0.01)
            (out / f"model-{rank}.pt").touch()
            raise
        finally:
            print("saved", flush=True)
        """,
    )
    running = background("run", "-n", "2", "--procs", "2", "--name", "fm", "train.py")
    wait_until(lambda: running.out.count("ready") == 4, "every rank")
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 130
    assert running.out.count("saved") == 4
    assert [Path(f"runs/fm/model-{rank}.pt").exists() for rank in range(4)] == [True] * 4
    assert "echelon: stopped after" in running.err


def test_a_shell_passes_ctrl_c_on_to_what_it_waits_for(background: Start, write: Callable[..., Path]) -> None:
    write("train.py", "import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    running = background("run", "--name", "fm", "--", "sh", "-c", "python train.py; echo code $?")
    wait_until(lambda: "ready" in running.out, "the script")
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 130
    assert running.err.count("KeyboardInterrupt") == 1
    assert Path("runs/fm/logs/rank-0.log").read_text().count("KeyboardInterrupt") == 1


def test_three_times_kills_what_ignores_the_first_two(cli: Call, background: Start, stay: str) -> None:
    running = background("run", "-n", "2", "--name", "fm", stay, "--stubborn")
    wait_for(*PIDS)
    wait_until(lambda: "run fm" in running.err, "its headline")  # it handles signals from then on
    running.process.send_signal(signal.SIGINT)
    wait_for("runs/fm/int-0", "runs/fm/int-1")
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
        import os, signal, sys
        signal.signal(signal.SIGINT, lambda *_: os._exit(0))
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
        signal.signal(signal.SIGINT, lambda *_: asked.append(1))
        out = pathlib.Path(os.environ["ECHELON_OUTPUT"])
        (out / "ready").touch()
        while not asked:
            time.sleep(0.02)
        (out / "model.pt").touch()
        """,
    )
    running = background("run", "--name", "fm", "careful.py")
    wait_for("runs/fm/ready")
    wait_until(lambda: "run fm" in running.err, "its headline")  # it handles signals from then on
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 130
    assert Path("runs/fm/model.pt").exists()


def test_the_run_goes_on_when_its_command_is_killed(cli: Call, background: Start, stay: str) -> None:
    running = background("run", "-n", "2", "--name", "fm", stay)
    wait_for(*PIDS)
    running.process.kill()
    running.end()
    wait_until(lambda: status_of(cli)["state"] == "running", "the run to be seen running")
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
    wait_until(lambda: status_of(cli)["state"] == "running", "the run to be seen running")


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
        said = b""
        while b"run fm" not in said:  # its headline: it handles signals from then on
            said += os.read(read, 1000) or pytest.fail(f"it has ended: {said!r}")
        os.close(read)
        asker.send_signal(signal.SIGINT)
        asker.wait(PATIENCE)
    assert echelon.attach("fm").wait(PATIENCE).state == "stopped"


def running(name: str) -> bool:
    return any(run.name == name and run.state == "running" for run in echelon.runs())


INSIDE = """
import os, signal
from echelon.cli import main

text = "def inside(seen):\\n    os.kill(os.getpid(), signal.SIGINT)\\n    seen.append(1)\\n"
names = {"os": os, "signal": signal}
exec(compile(text, "<frozen importlib._bootstrap>", "exec"), names)
main._interrupt_between_imports()
seen = []
try:
    names["inside"](seen)
    while True:
        len(seen)
except KeyboardInterrupt:
    print(seen)
"""


def test_ctrl_c_inside_of_pythons_import_comes_after_it() -> None:
    """As far as Python's own code of it is concerned, where an exception keeps the lock of all imports."""
    done = subprocess.run(
        [sys.executable, "-c", INSIDE], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.stdout == "[1]\n", done.stderr


_INTERRUPTED_BEFORE_IT_FOLLOWS = """
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "echelon.cli.following.follow":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from echelon.cli.main import call
sys.exit(call(["run", "--name", "fm", *sys.argv[1:]]))
"""


def test_between_the_start_and_the_following_of_a_run(cli: Call, stay: str) -> None:
    """What follows a run is imported once it is submitted: Ctrl-C meanwhile leaves none behind."""
    words = [sys.executable, "-c", _INTERRUPTED_BEFORE_IT_FOLLOWS, stay]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False), done.stderr
    assert cli("ps", "-aq").stdout == ""
