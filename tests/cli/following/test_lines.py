from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.executor import start
from tests.cli.terminal import Terminal
from tests.conftest import PATIENCE, wait_until

import echelon
from echelon.cli.following.lines import StepColours, StepNotices
from echelon.cli.following.worker_lines import PartLines
from echelon.engines.local.engine import LocalEngine
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.output.log import LogBlock, PartLine
from echelon.model.program import Program, Step
from echelon.submit import Prepared, submit

Call = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]
FOLLOW = """
import sys
import echelon
from echelon.cli.following.follow import follow

run = echelon.attach("book-1")
sys.exit(follow(run, run.job(), sys.argv[1]))
"""
HOLD = """
    import pathlib, time
    print("begun", flush=True)
    while not pathlib.Path("go").exists():
        time.sleep(0.02)
    print("loss=1")
"""


def follower(format_: str = "text") -> subprocess.Popen[str]:
    """`follow` in a process of its own, as a command calls it."""
    return subprocess.Popen(
        [sys.executable, "-c", FOLLOW, format_], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def ended(write: Write) -> str:
    """One that is over."""
    write("load.py", "print('rows=3')")
    write("train.py", "for step in (1, 2, 3): print(f'{step=} loss={1 / step}')")
    start("book-1", "load", "train").wait(PATIENCE)
    return "book-1"


@pytest.mark.core
def test_what_it_printed_has_its_step(ended: str, call: Call) -> None:
    shown = call("logs", ended)
    assert shown.stdout.splitlines() == [
        "[load] rows=3",
        *(f"[train] step={step} loss={1 / step}" for step in (1, 2, 3)),
    ]
    assert shown.stderr.splitlines() == ["echelon: step load", "echelon: step train"]
    last = call("logs", ended, "--tail", "1", "-o", "json")
    assert json.loads(last.stdout)["part"] == "train"
    assert "part" not in json.loads(call("logs", "book-1-train", "--tail", "1", "-o", "json").stdout)
    assert call("logs", ended, "-f").stdout == shown.stdout
    assert re.fullmatch(r"[\d:.]+ \[load\] rows=3", call("logs", ended, "--timestamps").stdout.split("\n")[0])


def test_what_it_measured_has_its_step(ended: str, call: Call) -> None:
    table = [line.split()[:3] for line in call("metrics", ended).stdout.splitlines()]
    assert table == [["PART", "METRIC", "RANKS"], ["load", "rows", "0"], ["train", "loss", "0"]]
    rows = call("metrics", ended, "-o", "csv").stdout.splitlines()
    assert rows[0] == "run,part,time,rank,step,epoch,name,value,source"
    assert rows[1].startswith("book-1,load,")
    assert len(rows) == 5
    data = [json.loads(line) for line in call("metrics", ended, "-o", "json").stdout.splitlines()]
    assert [each["part"] for each in data] == ["load", "train", "train", "train"]
    assert call("metrics", ended, "-f").stdout.splitlines()[1] == "[train] step 1 loss=1"
    assert "loss (book-1 train)" in call("metrics", ended, "--plot").stdout
    events = [json.loads(line) for line in call("events", ended, "-o", "json").stdout.splitlines()]
    assert [each["part"] for each in events if each["kind"] == "metric"] == ["load", *["train"] * 3]
    ordinary = call("metrics", "book-1-train", "-o", "csv").stdout.splitlines()
    assert ordinary[0] == "run,time,rank,step,epoch,name,value,source"


@pytest.mark.core
def test_steps_that_go_on_stand_at_the_bottom(home: Path, write: Write) -> None:
    write("load.py", "print('loaded')")
    write("left.py", HOLD)
    write("right.py", HOLD)
    write("last.py", "print('end')")
    start("book-1", "load", "left,right", "last")
    terminal = Terminal("-c", FOLLOW, "text", program=[sys.executable], environment={"NO_COLOR": "1"})
    try:
        terminal.expect_lines(
            r"run book-1: notebook book.ipynb",
            r"^\[load\] loaded",
            r"step load succeeded in",
            r"^\[(left|right)\] begun",
            r"^\[(left|right)\] begun",
            r"^\[left\] running",
            r"^\[right\] running",
        )
        Path("go").touch()
        assert terminal.end() == 0
        assert not [line for line in terminal.lines if "] running" in line]
        assert "[last] end" in terminal.lines
        assert re.search(r"succeeded in .* s; ", terminal.lines[-1])
    finally:
        terminal.close()


def test_logs_of_one_that_goes_on_have_it_too(home: Path, write: Write) -> None:
    write("train.py", HOLD)
    run = start("book-1", "train")
    wait_until(lambda: list(run.logs()), "the first line")
    terminal = Terminal("logs", "-f", "book-1", environment={"NO_COLOR": "1"})
    try:
        terminal.expect_lines(r"^\[train\] begun", r"^\[train\] running")
        Path("go").touch()
        assert terminal.end() == 0
        assert terminal.lines == ["[train] begun", "[train] loss=1"]
    finally:
        terminal.close()


def test_the_end_of_one_that_failed(write: Write, call: Call) -> None:
    write("load.py", "print('loaded')")
    write("train.py", "raise ValueError('bad luck')")
    write("last.py", "")
    start("book-1", "load", "train", "last")
    with follower() as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert out == "[load] loaded\n"
    assert "[train] ValueError: bad luck" in err
    told = [line.removeprefix("echelon: ") for line in err.splitlines() if line.startswith("echelon: ")]
    assert told[0] == "run book-1: notebook book.ipynb"
    assert re.fullmatch(r"step load succeeded in [\d.]+ s", told[1])
    assert re.fullmatch(r"step train failed after [\d.]+ s in cell 3: .*ValueError: bad luck", told[2])
    assert told[3] == "step last not reached"
    assert re.fullmatch(r"step train failed in cell 3: .*ValueError: bad luck", told[4])
    assert told[5] == "`echelon logs book-1/train` has its output"
    assert re.fullmatch(r"failed after [\d.]+ s: step train: .*ValueError: bad luck", told[6])
    assert told[-1] == "`echelon resume book-1` continues with what is not done"
    assert not [text for text in told if "/logs" in text]
    assert "[executor]" not in out + err


def test_the_end_as_data(ended: str) -> None:
    with follower("json") as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert [step["name"] for step in json.loads(out)["steps"]] == ["load", "train"]
    assert "[load] rows=3" in err  # lines are no data


def test_ctrl_c_stops_all_of_it(write: Write) -> None:
    write("train.py", HOLD)
    write("last.py", "print('never')")
    run = start("book-1", "train", "last")
    with follower() as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[train] begun\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "stopping: the ranks get SIGINT" in err
    status = run.status()
    assert (status.state, [step.state for step in status.steps]) == ("stopped", ["stopped", "not-reached"])
    assert echelon.attach("book-1-train").status().state == "stopped"


def test_one_whose_executor_is_killed_is_over(write: Write) -> None:
    write("train.py", HOLD)
    run = start("book-1", "train", "last")
    with follower() as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "[train] begun\n"
        (pid,) = run.status().workers[0].rank_pids.values()
        os.kill(pid, signal.SIGKILL)
        _, err = process.communicate(timeout=PATIENCE)
    assert "its executor is gone; what may still run: train" in err
    assert "lost after" in err
    assert "`echelon resume book-1` continues" in err
    assert process.returncode == 117


def test_what_the_executor_itself_prints_is_shown(home: Path, call: Call) -> None:
    program = Program(title="notebook", source="/book.ipynb")
    job = Job(name="book-1", command=("sh", "-c", "echo no notebook >&2; exit 3"), framework="plain")
    run = submit(Prepared(job=replace(job, cwd=str(home.parent), program=program)), LocalEngine())
    assert run.wait(PATIENCE).state == "failed"
    assert call("logs", "book-1").stderr == "[executor] no notebook\n"


def test_a_line_at_the_bottom() -> None:
    below = PartLines("book-1", "local://book-1", StepColours())
    train = Step(name="train", state="queued", reason="2 GPUs are in use")
    steps = (Step(name="load", state="cached"), train, Step(name="last"))
    below.take(Event(kind="steps", at=1.0, steps=steps))
    assert [text for _, text in below.drawn().values()] == ["queued: 2 GPUs are in use"]
    below.take(Event(kind="steps", at=2.0, steps=(Step(name="train", state="running"),)))
    first = PartLine(text="epoch 1/3 loss=2", at=3.0, worker=0, rank=0, part="train")
    below.read(LogBlock(first=first, rest="epoch 2/3 loss=1.5"))
    assert list(below.drawn()) == [(1, "train")]
    assert [text for _, text in below.drawn().values()] == ["running  epoch 2/3  66%  loss 1.5"]
    below.read(PartLine(text="counting sheep", at=4.0, worker=0, rank=0, part="train", progress=True))
    assert [text for _, text in below.drawn().values()] == ["running  counting sheep"]
    below.take(Event(kind="finished", at=5.0, outcome="succeeded"))
    assert below.drawn() == {}


def test_notices_of_steps_come_once() -> None:
    notices = StepNotices()

    def told(*steps: Step) -> list[str]:
        return list(notices.of(Event(kind="steps", at=1.0, steps=steps)))

    assert told(Step(name="load", state="kept"), Step(name="train")) == []
    waits = Step(name="train", state="queued", reason="2 GPUs are in use")
    assert told(waits) == ["step train: 2 GPUs are in use"]
    assert told(waits) == []
    ends = "rank 0 exited with code 1"  # so does its end
    assert told(Step(name="train", state="running", started=1.0, reason=ends)) == []
    failed = Step(
        name="train", state="failed", started=1.0, ended=4.2, cell=4, line=2, reason="ValueError: x"
    )
    assert told(failed) == ["step train failed after 3.2 s in cell 4, line 2: ValueError: x"]
    assert told(Step(name="load", state="cached", reason="from book-1-load")) == [
        "step load cached: from book-1-load"
    ]
    assert list(notices.of(Event(kind="finished", at=1.0))) == []
