"""One line for each worker below what ranks print: what it says, and that it neither disturbs nor stays."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.cli.terminal import ECHELON, Terminal
from tests.conftest import wait_until

from echelon.cli.following.bottom import BottomLines
from echelon.cli.following.worker_lines import WorkerLine, WorkerLines
from echelon.cli.printing import say
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.handle import Run
from echelon.model.engine.sample import Samples, WorkerSample
from echelon.model.job import Job
from echelon.model.output.log import LogLine
from echelon.model.output.progress import Progress
from echelon.model.status import WorkerStatus
from echelon.submit import Prepared, submit

Call = Callable[..., subprocess.CompletedProcess[str]]
Open = Callable[..., Terminal]
Write = Callable[..., Path]
PLAIN = {"NO_COLOR": "1"}
TRAIN = """
    import os, pathlib, sys, time
    rank = os.environ["ECHELON_RANK"]
    for step in range(1, 101):
        print(f"step {step}/200 loss={1 / step:.2f}", flush=True)
        if step == 50:
            sys.stderr.write("a warning\\n")
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    print("end", flush=True)
"""
HALF = """
    import pathlib, time
    print("step 1/2 loss=0.5")
    print("half", end="", flush=True)
    while not pathlib.Path("on").exists():
        time.sleep(0.02)
    print(" a line", flush=True)
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
"""


@pytest.mark.core
def test_lines_below_the_logs_that_garble_none(terminal: Open, write: Write) -> None:
    write("train.py", TRAIN)
    screen = terminal("run", "-n", "2", "--name", "fm", "train.py", environment=PLAIN)
    live = r"running  100/200  50%  .*loss 0.01  CPU \d+%  [\d.]+ \S+(  GPU .*)?$"
    logs = [r"^\[[01]\] (step \d+/200 loss=\d\.\d\d|a warning)$"] * 22
    screen.expect_lines(*logs, rf"^\[0\] {live}", rf"^\[1\] {live}")
    Path("go").touch()
    assert screen.end() == 0
    *printed, last = screen.lines
    assert all(re.match(r"\[[01]\] (step \d+/200 loss=\d\.\d\d|a warning|end)$", line) for line in printed)
    assert last.startswith("echelon: succeeded")
    for rank in (0, 1):
        log = Path(f"runs/fm/logs/rank-{rank}.log").read_text().splitlines()
        assert log.count("a warning") == 1
        assert len(log) == 102


def test_the_same_of_a_run_that_another_command_has_started(terminal: Open, cli: Call, write: Write) -> None:
    write("train.py", TRAIN)
    assert cli("run", "-d", "-n", "2", "--name", "fm", "train.py").returncode == 0
    screen = terminal("logs", "-f", "fm", environment=PLAIN)
    logs = [r"^\[[01]\] (step|a warning)"] * 22
    screen.expect_lines(*logs, r"^\[0\] running  100/200", r"^\[1\] running  100/200")
    Path("go").touch()
    assert screen.end() == 0
    assert all(re.match(r"\[[01]\] (step.*|a warning|end)$", line) for line in screen.lines)


def test_a_line_that_is_not_ended_is_left_alone(terminal: Open, cli: Call, write: Write) -> None:
    write("half.py", HALF)
    assert cli("run", "-d", "--name", "fm", "half.py").returncode == 0
    screen = terminal("logs", "-f", "fm", environment=PLAIN)
    wait_until(lambda: cli("status", "fm").stdout.count("1/2") == 1, "the first line")
    Path("on").touch()
    screen.expect_lines("^step 1/2 loss=0.5$", "^half a line$", r"^\[0\] running  1/2  50%  loss 0.5$")
    assert "half[0]" not in screen.shown
    Path("go").touch()
    assert screen.end() == 0
    assert screen.lines == ["step 1/2 loss=0.5", "half a line"]


@pytest.mark.parametrize("words", [["run", "-n", "2", "train.py"], ["run", "-n", "2", "--raw", "train.py"]])
def test_none_where_lines_go_elsewhere_or_are_as_they_are(
    terminal: Open, write: Write, words: Sequence[str]
) -> None:
    """A reader such as `tee` may write to the same terminal, and what it writes would meet the lines."""
    write("train.py", TRAIN)
    Path("go").touch()
    piped = "" if "--raw" in words else "| cat"
    program = ("sh", "-c", f'{" ".join(ECHELON)} "$@" {piped}', "sh")
    screen = terminal(*words, program=program, environment=PLAIN)
    assert screen.end() == 0
    assert "running" not in screen.shown
    assert "\x1b" not in screen.shown


# What is drawn


def worker(state: str = "running", ranks: tuple[int, ...] = (0,)) -> WorkerStatus:
    return WorkerStatus(worker=0, ranks=ranks, state=state)  # type: ignore[arg-type]


def test_what_a_line_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    metrics = {"loss": 0.25, "lr": 0.1, "acc": 0.5}
    progress = Progress(rank=0, at=0.0, step=3, steps=12, done=0.25, left=70.0, metrics=metrics)
    line = WorkerLine(worker=worker(ranks=(0, 1, 2)), progress=progress, use="CPU 98%  1.2 GiB")
    assert line.head() == "[0-2] "
    assert line.text() == "running  3/12  25%  1 m 10 s left  loss 0.25  lr 0.1  CPU 98%  1.2 GiB"
    assert WorkerLine(worker=worker("lost", ranks=())).head() == "[worker 0] "
    assert WorkerLine(worker=worker("lost")).text() == "lost"
    assert WorkerLine(worker=worker(), progress=progress, painted="50% of it").text() == "running  50% of it"


def start(act: Act, workers: int = 2) -> Run:
    job = Job(name="fm", script="train.py", framework="plain", workers=workers)
    return submit(Prepared(job=job), MemoryEngine({"train.py": act}))


def texts(lines: WorkerLines) -> list[str]:
    return [line.text() for line in lines.lines()]


def test_lines_of_a_run_from_its_start_to_its_end() -> None:
    run = start(Act(lines=("step 1/4 loss=0.5",), lasts=True))
    samples = run.samples()
    samples.all = Samples(workers=tuple(WorkerSample(worker=each, at=0.0, cpus=each) for each in range(2)))
    lines = WorkerLines(run, (), samples)
    assert texts(lines) == []
    for event in run._engine.events(run._ref):
        lines.take(event)
    assert texts(lines) == ["running  CPU 0%  0 B", "running  CPU 100%  0 B"]
    for each in run.logs():
        lines.read(each)
    assert texts(lines)[1] == "running  1/4  25%  loss 0.5  CPU 100%  0 B"
    run.stop()
    for event in run.events():
        lines.take(event)
    assert texts(lines) == []


def test_a_bar_that_is_not_understood_is_shown_as_it_is() -> None:
    run = start(Act(lasts=True), workers=1)
    lines = WorkerLines(run, ())
    for event in run._engine.events(run._ref):
        lines.take(event)

    def paint(text: str) -> None:
        lines.read(LogLine(text=text, at=time.time(), worker=0, rank=0, progress=True))

    paint("Downloading: 4.1M of 9M")
    assert texts(lines) == ["running  Downloading: 4.1M of 9M"]
    paint("50%|#####     | 5/10 [00:01<00:01, 5.00it/s]")
    assert texts(lines) == ["running  5/10  50%  5/s  1 s left"]
    paint("")
    assert texts(lines) == ["running  5/10  50%  5/s  1 s left"]
    run.stop()


# How it is painted


def test_what_stands_there_is_not_painted_again(capsys: pytest.CaptureFixture[str]) -> None:
    bottom = BottomLines()
    bottom.put((0, ""), "[0] ", "running")
    assert capsys.readouterr().err == "[0] running"
    bottom.put((0, ""), "[0] ", "running")
    bottom.paint()
    assert capsys.readouterr().err == ""
    bottom.put_all({(0, ""): ("[0] ", "done"), (1, ""): ("[1] ", "done")})
    assert capsys.readouterr().err == "\r\x1b[J[0] done\n[1] done"
    bottom.lose()  # a shell has printed below it
    bottom.put((0, ""), "[0] ", "")
    assert capsys.readouterr().err == "[1] done"
    bottom.close()
    assert capsys.readouterr().err == "\r\x1b[J"


def test_nothing_is_painted_behind_a_line_that_is_not_ended(capsys: pytest.CaptureFixture[str]) -> None:
    bottom = BottomLines()
    bottom.put((0, ""), "[0] ", "running")
    with bottom.hidden(open_line=True):
        sys.stderr.write("half")
    bottom.put((0, ""), "[0] ", "running  1/2")
    bottom.paint()
    assert capsys.readouterr().err == "[0] running\r\x1b[Jhalf"
    with bottom.hidden():
        sys.stderr.write(" a line\n")
    bottom.paint()
    assert capsys.readouterr().err == " a line\n[0] running  1/2"
    say.say("a message", err=True)
    bottom.paint()
    assert capsys.readouterr().err == "\r\x1b[Ja message\n[0] running  1/2"
    bottom.close()
